//! Writes: from an operation to what its placement makes of it.
//!
//! Every write of a key passes through `pending[key]`. Further writes of a key that waits for its
//! commit group are applied on top where the placement can do that; anything else waits until the
//! key has nothing under way.

use bytes::Bytes;
use stratakv_base::{Expiry, Key, Level, fault_point, probe};
use stratakv_device::Block;
use stratakv_engine::update;
use stratakv_engine::{Effects, Error, Expect, Record, Reply, Stage, Token, Unmet, Update, Value};
use stratakv_index::Finger;

use crate::batch::{BatchId, BatchStep};
use crate::keys::Wait;
use crate::place::RecordPlace;
use crate::placement::{PlaceOf, Placement};
use crate::record::Meta;
use crate::shard::{IndexedShard, is_expired};
use crate::space::Extent;

/// Who asked for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Client(Token),
    /// A step of a DeleteRange.
    Range(u64),
    /// The sweep for expired records.
    Expiry,
    /// A step of a batch.
    Batch(BatchId, BatchStep),
}

/// What a write does.
#[derive(Debug)]
pub(crate) enum Kind {
    Put {
        value: Bytes,
        flags: u32,
        expiry: Expiry,
    },
    Delete,
    Update(Update),
    /// Keeps the key for a batch, with nothing under way.
    LockKey,
    /// Reads the record.
    Load,
}

/// A write that its placement has not taken yet.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) origin: Origin,
    pub(crate) key: Key,
    pub(crate) expect: Expect,
    pub(crate) kind: Kind,
    pub(crate) level: Level,
    /// The current record, where it lies in a blob and had to be read first.
    pub(crate) loaded: Option<(Meta, Bytes)>,
    pub(crate) loaded_whole: bool,
    /// First page of the blob to be cleared.
    pub(crate) head: Option<Block>,
    /// A delete range removes only versions up to this one.
    pub(crate) not_after: u64,
    /// The version to give the record; else a new one.
    pub(crate) version: Option<u64>,
    /// Pages set aside for a blob.
    pub(crate) extent: Option<Extent>,
    /// It has locked the key.
    is_key_locked: bool,
    /// Nobody waits for it any more.
    pub(crate) is_over: bool,
}

impl Work {
    pub(crate) fn new(origin: Origin, key: Key, expect: Expect, kind: Kind, level: Level) -> Work {
        Work {
            origin,
            key,
            expect,
            kind,
            level,
            loaded: None,
            loaded_whole: false,
            head: None,
            not_after: u64::MAX,
            version: None,
            extent: None,
            is_key_locked: false,
            is_over: false,
        }
    }
}

impl Work {
    /// A delete of a range takes a record that cannot be read, whatever its version was: nobody
    /// will read that record again.
    fn takes_unreadable(&self, error: &Error) -> bool {
        self.not_after != u64::MAX
            && matches!(self.kind, Kind::Delete)
            && matches!(error, Error::Corrupt(_) | Error::Io { .. })
    }

    /// Space was set aside for it: it must not fail for want of any.
    pub(crate) fn has_reserve(&self) -> bool {
        matches!(self.origin, Origin::Batch(_, BatchStep::Apply | BatchStep::CommitDone))
    }
}

/// Who is answered what once a change is durable.
#[derive(Debug)]
pub(crate) struct Ack {
    pub(crate) origin: Origin,
    pub(crate) reply: Reply,
}

/// A change that waits to be durable.
#[derive(Debug)]
pub(crate) struct Change<P: Placement> {
    pub(crate) key: Key,
    pub(crate) place: PlaceOf<P>,
    pub(crate) expiry: u64,
    /// Where the index had the key when the write was taken.
    pub(crate) finger: Option<Finger>,
    pub(crate) kind: Changed,
    pub(crate) ack: Option<Ack>,
}

/// Kind of a [`Change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Put,
    Delete,
    /// An older copy was cleared.
    Clear,
}

/// Why its placement did not take a write.
pub(crate) enum Stop<P: Placement> {
    Wait(Wait<P::Wait>),
    Answer(Reply),
    /// It is as wanted already, and as durable as that state is.
    Unchanged(Reply),
}

impl<P: Placement> From<Wait<P::Wait>> for Stop<P> {
    fn from(wait: Wait<P::Wait>) -> Self {
        Stop::Wait(wait)
    }
}

impl<P: Placement> From<Error> for Stop<P> {
    fn from(error: Error) -> Self {
        Stop::Answer(Reply::Failed(error))
    }
}

/// The newest state of a key.
pub(crate) struct Newest<P: Placement> {
    pub(crate) place: Option<PlaceOf<P>>,
    /// Exists and has not expired.
    pub(crate) exists: bool,
    pub(crate) pending: bool,
    /// Where the index has it.
    pub(crate) finger: Option<Finger>,
}

impl Origin {
    /// It waits for this from now on.
    #[inline]
    pub(crate) fn enter(self, stage: Stage, effects: &mut Effects) {
        if let Origin::Client(token) = self {
            effects.enter(token, stage);
        }
    }
}

impl<W> Wait<W> {
    fn stage(&self) -> Stage {
        match self {
            Wait::Drain | Wait::Batch => Stage::Key,
            Wait::Record { .. } | Wait::Placement(_) => Stage::Read,
            Wait::Space | Wait::Block => Stage::Room,
        }
    }
}

impl<P: Placement> IndexedShard<P> {
    /// Takes a write; its reply comes when it is durable.
    pub(crate) fn submit(&mut self, work: Work, effects: &mut Effects) {
        if let Some(error) = self.batches.stuck(&work.key).cloned() {
            return self.answer(work.origin, Reply::Failed(error), effects);
        }
        work.origin.enter(Stage::Key, effects);
        if let Some(work) = self.keys.queue_behind(work) {
            self.try_work(work, effects);
        }
    }

    /// Tries a write; false if it waits.
    fn try_work(&mut self, mut work: Work, effects: &mut Effects) -> bool {
        work.origin.enter(Stage::Group, effects);
        match self.run_step(&mut work, effects) {
            Ok(()) => true,
            Err(Stop::Answer(reply)) => {
                self.answer(work.origin, reply, effects);
                true
            }
            Err(Stop::Unchanged(reply)) => {
                self.answer_when_durable(work.origin, work.level, reply, effects);
                true
            }
            Err(Stop::Wait(wait)) => {
                self.block_on(work, wait, effects);
                false
            }
        }
    }

    fn block_on(&mut self, work: Work, wait: Wait<P::Wait>, effects: &mut Effects) {
        work.origin.enter(wait.stage(), effects);
        let key = work.key.clone();
        let pending = self.keys.pending.entry(key.clone()).or_default();
        pending.queue.push_front(work);
        pending.wait = Some(wait);
        match wait {
            Wait::Drain | Wait::Batch => {}
            Wait::Record { whole } => self.load_record(key, whole, effects),
            Wait::Space => self.keys.space_waiters.push(key),
            Wait::Block => self.keys.block_waiters.push_back(key),
            Wait::Placement(wait) => P::wait(self, key, wait, effects),
        }
    }

    /// What the key's first write waited for has happened: goes on with it and those behind it.
    pub(crate) fn wake(&mut self, key: &Key, effects: &mut Effects) {
        loop {
            let Some(pending) = self.keys.pending.get_mut(key) else { return };
            pending.wait = None;
            let Some(work) = pending.queue.pop_front() else {
                if pending.outstanding == 0 {
                    self.keys.pending.remove(key);
                }
                return;
            };
            if !self.try_work(work, effects) {
                return;
            }
        }
    }

    /// What the key's first write waited for cannot be had: it fails, those behind it go on.
    pub(crate) fn fail_first(&mut self, key: &Key, error: Error, effects: &mut Effects) {
        if self.backup_wants(key) {
            // It may only be the copy that cannot be had: the write shows by itself whether it
            // needs the record.
            self.copy_for_backup(key, None);
            return self.wake(key, effects);
        }
        if let Some(work) = self.keys.first(key).filter(|work| work.takes_unreadable(&error)) {
            work.not_after = u64::MAX;
            return self.wake(key, effects);
        }
        if let Some(work) = self.keys.pending.get_mut(key).and_then(|pending| pending.queue.pop_front()) {
            self.answer(work.origin, Reply::Failed(error), effects);
        }
        self.wake(key, effects);
    }

    /// Answers whoever asked for a write.
    pub(crate) fn answer(&mut self, origin: Origin, reply: Reply, effects: &mut Effects) {
        match origin {
            Origin::Client(token) => effects.reply(token, reply),
            Origin::Range(id) => self.range_step_done(id, reply, effects),
            Origin::Expiry => {}
            Origin::Batch(id, step) => self.batches.answered(id, step, reply),
        }
    }

    fn newest(&self, key: &Key, effects: &Effects) -> Newest<P> {
        let (place, expiry, pending, finger) = match self.keys.pending.get(key) {
            Some(pending) if pending.outstanding > 0 => {
                let mut expiry = pending.expiry;
                fault_point!("write_under_way_has_the_expiry_before_it", {
                    expiry = self.index.get(key).map_or(expiry, |entry| entry.expiry);
                });
                (pending.place, expiry, true, None)
            }
            _ => match self.index.find(key) {
                Some((entry, finger)) => (Some(RecordPlace::from_bits(entry.place)), entry.expiry, false, Some(finger)),
                None => (None, 0, false, None),
            },
        };
        Newest { place, exists: place.is_some() && !is_expired(expiry, effects), pending, finger }
    }

    fn run_step(&mut self, work: &mut Work, effects: &mut Effects) -> Result<(), Stop<P>> {
        if let Some(fault) = self.health.poisoned {
            return Err(Error::Poisoned(fault).into());
        }
        if work.is_over {
            return Err(Stop::Answer(Reply::Record(None)));
        }
        let mut newest = self.newest(&work.key, effects);
        let mut needs_record = matches!(work.kind, Kind::Update(_) | Kind::Load)
            || matches!(work.expect, Expect::Absent | Expect::Version(_))
            || work.not_after != u64::MAX;
        let copies = !matches!(work.kind, Kind::LockKey | Kind::Load) && self.backup_wants(&work.key);
        let current = match newest.place {
            Some(place) if newest.exists && (needs_record || copies) => match P::current(self, work, place, &newest) {
                Err(Stop::Answer(_)) if !needs_record => None,
                Err(Stop::Answer(Reply::Failed(error))) if work.takes_unreadable(&error) => {
                    work.not_after = u64::MAX;
                    needs_record = false;
                    None
                }
                current => Some(current?),
            },
            _ => None,
        };
        if copies {
            let record = current.as_ref().map(|(meta, value)| meta.whole(value));
            self.copy_for_backup(&work.key, record);
        }
        let current = current.filter(|_| needs_record);
        // Of a record that was found damaged and can be read after all, the index does not know
        // when it expires.
        let current = current.filter(|(meta, _)| !is_expired(meta.expiry, effects));
        newest.exists &= current.is_some() || !needs_record;
        if let Some(unmet) = work.expect.unmet(newest.exists, current.as_ref().map(|(meta, _)| meta.version)) {
            // Decided by a state that may still be lost: ask again when it is durable.
            let mut pending = newest.pending;
            fault_point!("refused_by_what_may_be_lost", pending = false);
            let refusal = match &work.kind {
                Kind::Update(Update::Touch(_)) if unmet == Unmet::Absent => Reply::Record(None),
                _ => Reply::Unmet(unmet),
            };
            return Err(if pending { Wait::Drain.into() } else { Stop::Answer(refusal) });
        }
        if let Some((meta, _)) = &current
            && meta.version > work.not_after
        {
            probe!("slab: a delete of a range comes to what was put after it began");
            return Err(Stop::Unchanged(Reply::Done { version: 0, existed: false }));
        }
        self.change(work, &newest, current, effects)
    }

    /// Changes a key whose conditions hold.
    fn change(
        &mut self,
        work: &mut Work,
        newest: &Newest<P>,
        current: Option<(Meta, Bytes)>,
        effects: &mut Effects,
    ) -> Result<(), Stop<P>> {
        match std::mem::replace(&mut work.kind, Kind::Delete) {
            Kind::LockKey => {
                work.kind = Kind::LockKey;
                self.lock_keys(work, newest)
            }
            Kind::Load => Err(Stop::Answer(Reply::Record(current.as_ref().map(|(meta, value)| meta.whole(value))))),
            Kind::Delete => self.delete(work, newest, effects),
            Kind::Put { value, flags, expiry } => {
                let meta = Meta { version: 0, flags, expiry: expiry.0 };
                let reply = |version| Reply::Done { version, existed: newest.exists };
                let done = P::put(self, work, newest, (meta, &value), &reply, effects);
                work.kind = Kind::Put { value, flags, expiry };
                done
            }
            Kind::Update(update) => {
                let done = self.update(work, newest, current, &update, effects);
                work.kind = Kind::Update(update);
                done
            }
        }
    }

    /// Keeps the key until the batch lets it go.
    fn lock_keys(&mut self, work: &mut Work, newest: &Newest<P>) -> Result<(), Stop<P>> {
        let Origin::Batch(id, step) = work.origin else { return Ok(()) };
        if newest.pending {
            return Err(Wait::Drain.into());
        }
        if !std::mem::replace(&mut work.is_key_locked, true) {
            self.batches.key_locked(id, step, newest.exists);
        }
        Err(Wait::Batch.into())
    }

    fn update(
        &mut self,
        work: &mut Work,
        newest: &Newest<P>,
        current: Option<(Meta, Bytes)>,
        change: &Update,
        effects: &mut Effects,
    ) -> Result<(), Stop<P>> {
        let old_flags = current.as_ref().map_or(0, |(meta, _)| meta.flags);
        let old = current.as_ref().map(|(meta, value)| (value, meta.flags, meta.expiry));
        let outcome = match update::outcome(change, old) {
            Ok(outcome) => outcome,
            // Refused by a state that may still be lost: ask again when it is durable.
            Err(_) if newest.pending => return Err(Wait::Drain.into()),
            Err(reply) => return Err(Stop::Answer(reply)),
        };
        let flags = outcome.flags.unwrap_or(old_flags);
        let meta = Meta { version: 0, flags, expiry: outcome.expiry };
        let existed = current.is_some();
        let value = outcome.value.clone();
        let reply = move |version| match (outcome.number, change) {
            (Some(number), _) => Reply::Number { number, version },
            (None, Update::Touch(expiry)) => Reply::Record(Some(Record {
                value_bytes: outcome.value.len() as u64,
                value: Value::Inline(outcome.value.clone()),
                flags,
                version,
                expiry: *expiry,
            })),
            (None, _) => Reply::Done { version, existed },
        };
        P::put(self, work, newest, (meta, &value), &reply, effects)
    }

    /// Whether a write needs the value too, not only what is known of it.
    pub(crate) fn wants_whole(&self, work: &Work) -> bool {
        matches!(work.kind, Kind::Update(_) | Kind::Load) || self.backup_wants(&work.key)
    }

    fn delete(&mut self, work: &mut Work, newest: &Newest<P>, effects: &mut Effects) -> Result<(), Stop<P>> {
        let reclaims = work.origin == Origin::Expiry;
        let Some(place) = newest.place.filter(|_| newest.exists || reclaims) else {
            if newest.pending {
                return Err(Wait::Drain.into());
            }
            return Err(Stop::Unchanged(Reply::Done { version: 0, existed: false }));
        };
        if reclaims && newest.exists {
            return Err(Stop::Unchanged(Reply::Done { version: 0, existed: false }));
        }
        P::delete(self, work, place, newest, effects)
    }

    /// Writes that waited for a block try again, until one still gets none.
    pub(crate) fn wake_block_waiters(&mut self, effects: &mut Effects) {
        for _ in 0..self.keys.block_waiters.len() {
            let Some(key) = self.keys.block_waiters.pop_front() else { return };
            self.wake(&key, effects);
            if self.keys.block_waiters.back() == Some(&key) {
                return;
            }
        }
    }
}
