//! Writes: conditions, batches, read-modify-write. What a condition needs is looked up first; then
//! all is decided and appended in one step.

use bytes::Bytes;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{Corruption, Expiry, Wall, fault_point};
use stratakv_engine::update::outcome;
use stratakv_engine::{Change, ChangeKind, Error, Expect, Record, Reply, Unmet, Update, Value};
use stratakv_pmem::Pmem;

use crate::blob_write::Placed;
use crate::container::{Change as Append, What};
use crate::cursor::Stop;
use crate::entry::{Body, Meta};
use crate::lookup::{Located, LongRead};
use crate::matrix::Matrix;

/// How a step of an operation ended.
pub(crate) enum OperationStep {
    /// It is done, or refused for good.
    Reply(Reply),
    /// What a reader saw, and the version that this rests on.
    Seen(Reply, u64),
    /// It is in the log; the reply is for when that is durable.
    Logged(Reply),
    /// All before it is in the log; the reply is for when the region is written back.
    Synced,
    /// The container has no room now.
    NoRoom,
    /// The volume has to grow first.
    Grows,
    /// A part of it is done; the rest comes when walks have their turn.
    Yields,
    /// It waits for what another shard says.
    Rests,
    /// It is over, and nobody waits for its reply.
    Ended,
    /// It is a load that is logged: the shard's job is to make its tables.
    Loads,
    /// It has values that are too long for the log: they are to be written to the volume first.
    BlobWrite(Vec<Bytes>),
}

/// What the last change of a write that is no check comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastChange {
    /// Its key was there.
    pub(crate) existed: bool,
    /// It deletes what is not there: it has no version.
    pub(crate) deletes_nothing: bool,
}

/// What is known of a key before a change: nobody else writes it from the moment when that was
/// looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// Of the record that is there; 0: none is.
    version: u64,
    expiry: Expiry,
}

impl Before {
    /// The version that a condition is compared with, if the key exists now.
    fn version_at(self, now: Wall) -> Option<u64> {
        (self.version > 0 && !self.expiry.is_past(now)).then_some(self.version)
    }
}

/// Whether a change has to know what is there. A plain put does not: it costs no read.
fn looks(change: &Change) -> bool {
    change.expect != Expect::Any || !matches!(change.kind, ChangeKind::Put { .. })
}

impl<P: Pmem> Matrix<P> {
    /// Carries out a write, if all that its conditions need is in memory. `placed`: where its long
    /// values lie already.
    ///
    /// # Errors
    /// [`Stop`]: nothing was changed.
    pub(crate) fn write(
        &mut self,
        changes: &[Change],
        placed: &[Placed],
        looked: &mut Vec<Option<Before>>,
        damage: Option<&Corruption>,
    ) -> Result<OperationStep, Stop> {
        self.look_at(changes, looked, damage)?;
        if let Some(unmet) = self.unmet(changes, looked) {
            return Ok(OperationStep::Reply(Reply::Unmet(unmet)));
        }
        if let Some(long) = self.long_values(changes, placed) {
            return Ok(OperationStep::BlobWrite(long));
        }
        let (appends, done) = self.appends(changes, looked, placed);
        if appends.is_empty() {
            return Ok(OperationStep::Reply(Reply::Done { version: 0, existed: false }));
        }
        let grows = appends.iter().any(|append| !matches!(append.what, What::Delete));
        if let Some(waits) =
            self.waits_for_room(grows && appends.iter().all(|append| !matches!(append.what, What::Blob(_))))
        {
            return Ok(waits);
        }
        let version = match self.append(&appends) {
            Ok(version) => version,
            Err(refused) => return Ok(refused),
        };
        let version = if done.deletes_nothing { 0 } else { version };
        Ok(OperationStep::Logged(Reply::Done { version, existed: done.existed }))
    }

    /// The first condition that does not hold.
    pub(crate) fn unmet(&self, changes: &[Change], looked: &[Option<Before>]) -> Option<Unmet> {
        let before = |at: usize| looked.get(at).copied().flatten()?.version_at(self.life.wall());
        changes.iter().enumerate().find_map(|(at, change)| {
            let version = before(at);
            change.expect.unmet(version.is_some(), Some(version.unwrap_or(0)))
        })
    }

    /// The values that are to be written to the volume first, if they are not there.
    pub(crate) fn long_values(&self, changes: &[Change], placed: &[Placed]) -> Option<Vec<Bytes>> {
        let long = changes.iter().filter_map(|change| match &change.kind {
            ChangeKind::Put { value, .. } if self.is_long(change.key.encoded(), value) => Some(value.clone()),
            _ => None,
        });
        let long: Vec<Bytes> = long.collect();
        (long.len() != placed.len()).then_some(long)
    }

    /// What changes are in the log. What was not looked at counts as there.
    pub(crate) fn appends<'a>(
        &self,
        changes: &'a [Change],
        looked: &[Option<Before>],
        placed: &[Placed],
    ) -> (Vec<Append<'a>>, LastChange) {
        let exists = |at: usize| {
            let before = looked.get(at).copied().flatten();
            before.is_some_and(|before| before.version_at(self.life.wall()).is_some())
        };
        let mut placed = placed.iter();
        let mut version = self.container.version();
        let mut appends = Vec::with_capacity(changes.len() + 1);
        for (at, change) in changes.iter().enumerate() {
            let key = change.key.encoded();
            match &change.kind {
                ChangeKind::Put { value, flags, expiry } => {
                    version += 1;
                    let what = match self.is_long(key, value).then(|| placed.next()).flatten() {
                        Some(placed) => What::Blob(placed.pointer(version, value)),
                        None => What::Put(value),
                    };
                    appends.push(Append { key, flags: *flags, expiry: *expiry, what });
                }
                ChangeKind::Delete if exists(at) || looked.is_empty() => {
                    version += 1;
                    appends.push(Append::delete(key));
                }
                ChangeKind::Delete | ChangeKind::Check => {}
            }
        }
        let last = changes.iter().rposition(|change| !matches!(change.kind, ChangeKind::Check));
        let existed = last.is_some_and(exists);
        let deletes = |last: usize| changes.get(last).is_some_and(|change| matches!(change.kind, ChangeKind::Delete));
        (appends, LastChange { existed, deletes_nothing: last.is_none_or(|last| deletes(last) && !exists(last)) })
    }

    /// Looks up what conditions and deletes have to know, and keeps what it found: one operation
    /// never has to hold the pages of all its keys.
    pub(crate) fn look_at(
        &self,
        changes: &[Change],
        looked: &mut Vec<Option<Before>>,
        damage: Option<&Corruption>,
    ) -> Result<(), Stop> {
        if !changes.iter().any(looks) {
            return Ok(());
        }
        looked.resize(changes.len(), None);
        let memory = self.in_memory(1);
        let mut stop = None;
        // To the end, so that everything that is missing is read at once.
        for (change, before) in changes.iter().zip(looked).filter(|(change, before)| looks(change) && before.is_none())
        {
            let found = self.visible(change.key.encoded(), self.read_view(), &memory);
            let found = match (found, damage) {
                (Err(Stop::Missing), Some(damage)) => Err(Stop::Damaged(damage.clone())),
                (found, _) => found,
            };
            *before = match found {
                Ok(Some(Located { meta, .. })) => Some(Before { version: meta.version, expiry: meta.expiry }),
                Ok(None) => Some(Before { version: 0, expiry: Expiry::NEVER }),
                // Something is there that cannot be read: it can be deleted.
                Err(Stop::Damaged(_)) if change.expect == Expect::Any => {
                    Some(Before { version: u64::MAX, expiry: Expiry::NEVER })
                }
                Err(Stop::Missing) => {
                    stop = Some(Stop::Missing);
                    None
                }
                Err(damaged) => return Err(damaged),
            };
        }
        stop.map_or(Ok(()), Err)
    }

    /// Carries out an update, if the record is in memory.
    ///
    /// # Errors
    /// [`Stop`]: nothing was changed.
    pub(crate) fn update(
        &mut self,
        key: &[u8],
        update: &Update,
        placed: &[Placed],
        long: &mut Option<LongRead>,
    ) -> Result<OperationStep, Stop> {
        let old = self.record_in_memory(key, long)?;
        let (existed, old_flags) = (old.is_some(), old.as_ref().map_or(0, |(meta, _)| meta.flags));
        let old = old.as_ref().map(|(meta, value)| (value, meta.flags, meta.expiry.0));
        let outcome = match outcome(update, old) {
            Ok(outcome) => outcome,
            Err(reply) => return Ok(OperationStep::Reply(reply)),
        };
        if let Some(error) = Self::value_error(outcome.value.len()) {
            return Ok(OperationStep::Reply(Reply::Failed(error)));
        }
        let expiry = Expiry(outcome.expiry);
        let is_long = self.is_long(key, &outcome.value);
        let what = match placed.first() {
            None if is_long => return Ok(OperationStep::BlobWrite(vec![outcome.value])),
            Some(placed) if is_long => What::Blob(placed.pointer(self.container.version() + 1, &outcome.value)),
            _ => What::Put(&outcome.value),
        };
        if let Some(waits) = self.waits_for_room(placed.is_empty()) {
            return Ok(waits);
        }
        let append = Append { key, flags: outcome.flags.unwrap_or(old_flags), expiry, what };
        let version = match self.append(&[append]) {
            Ok(version) => version,
            Err(refused) => return Ok(refused),
        };
        Ok(OperationStep::Logged(match (update, outcome.number) {
            (_, Some(number)) => Reply::Number { number, version },
            (Update::Touch(_), None) => Reply::Record(Some(Record {
                value_bytes: outcome.value.len() as u64,
                value: Value::Inline(outcome.value),
                flags: old_flags,
                version,
                expiry,
            })),
            (_, None) => Reply::Done { version, existed },
        }))
    }

    fn record_in_memory(&self, key: &[u8], long: &mut Option<LongRead>) -> Result<Option<(Meta, Bytes)>, Stop> {
        let memory = self.in_memory(1);
        let Some(located) = self.visible(key, self.read_view(), &memory)? else { return Ok(None) };
        let value = match located.meta.body {
            Body::Blob(pointer) => self.value_in_pieces(located.meta.version, pointer, long, &memory)?,
            _ => self.value(&located, &memory)?,
        };
        Ok(Some((located.meta, value)))
    }

    /// What becomes of a write that grows where the volume has hardly room. Long values that found
    /// room have it already.
    pub(crate) fn waits_for_room(&mut self, grows: bool) -> Option<OperationStep> {
        // To ask may end a snapshot.
        if !grows {
            return None;
        }
        let must_wait = self.must_wait_for_room();
        fault_point!("trial_growth_leaves_no_reserve", matches!(must_wait, Ok(false)), return None);
        match must_wait {
            Ok(false) if self.volume.waits_for(self.reserve_pages() + self.blobs.wanted_pages()) => {
                Some(OperationStep::Grows)
            }
            Ok(false) => None,
            Ok(true) => Some(OperationStep::NoRoom),
            Err(error) => {
                self.counters.full_refusals += 1;
                Some(OperationStep::Reply(Reply::Failed(error)))
            }
        }
    }

    /// Whether a value is too long for a record of the log.
    pub(crate) fn is_long(&self, key: &[u8], value: &[u8]) -> bool {
        let append = Append { key, flags: 0, expiry: Expiry::NEVER, what: What::Put(value) };
        append.record_bytes() > self.container.record_bytes_max()
    }

    /// Why a value of this length cannot be written.
    pub(crate) fn value_error(len: usize) -> Option<Error> {
        let max_bytes = VALUE_BYTES_MAX as u64;
        (len as u64 > max_bytes).then_some(Error::ValueTooLarge { len_bytes: len as u64, max_bytes })
    }
}
