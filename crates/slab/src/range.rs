//! DeleteRange: what the writes handed over before it leave, a bounded number of deletes at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow, RangeBounds};

use stratakv_base::{Key, Level, fault_point};
use stratakv_engine::range::{before_engine_keys, encoded, is_empty_range};
use stratakv_engine::{Capability, Effects, Error, Expect, Reply, Token};

use crate::health::read_only;
use crate::placement::Placement;
use crate::shard::IndexedShard;
use crate::write::{Kind, Origin, Work};

/// Deletes of one range under way.
const STEPS_MAX: usize = 64;

/// Ranges being deleted.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    active: BTreeMap<u64, Range>,
    next: u64,
    /// Those that have room for more deletes, perhaps.
    ready: BTreeSet<u64>,
}

#[derive(Debug)]
struct Range {
    token: Token,
    from: Bound<Key>,
    to: Bound<Key>,
    level: Level,
    /// Later versions stay.
    not_after: u64,
    /// Keys that were being written when the range was accepted: the index need not show them when
    /// it is walked.
    pending: Vec<Key>,
    walked: bool,
    outstanding: usize,
    deleted: u64,
    version: u64,
    /// Of the first key that could not be deleted.
    error: Option<Error>,
    /// No further key is tried.
    is_stopped: bool,
}

impl Range {
    /// Whether there are keys that nobody was asked to delete yet.
    fn has_more(&self) -> bool {
        !(self.is_stopped || self.walked && self.pending.is_empty())
    }
}

impl Ranges {
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }
}

impl<P: Placement> IndexedShard<P> {
    /// Begins to delete a range.
    pub(crate) fn delete_range(
        &mut self,
        token: Token,
        (from, to): (Bound<Key>, Bound<Key>),
        level: Level,
        effects: &mut Effects,
    ) {
        if let Err(error) = self.may_delete_range(level) {
            return effects.reply(token, Reply::Failed(error));
        }
        let to = before_engine_keys(to);
        if is_empty_range(&from, &to) {
            return effects.reply(token, Reply::Number { number: 0, version: 0 });
        }
        let range = (from.as_ref(), to.as_ref());
        let (pending, waiting) = (self.changing_within(range, effects), self.waiting_within(range));
        self.ranges.next += 1;
        let number = self.ranges.next;
        self.ranges.active.insert(
            number,
            Range {
                token,
                from,
                to,
                level,
                not_after: self.groups.counter,
                pending,
                walked: false,
                outstanding: waiting.len(),
                deleted: 0,
                version: 0,
                error: None,
                is_stopped: false,
            },
        );
        self.ranges.ready.insert(number);
        for key in waiting {
            self.submit(Work::new(Origin::Range(number), key, Expect::Any, Kind::Delete, level), effects);
        }
        self.pump_ranges(effects);
    }

    fn may_delete_range(&self, level: Level) -> Result<(), Error> {
        if let Some(fault) = self.health.poisoned {
            return Err(Error::Poisoned(fault));
        }
        if level == Level::Memory {
            return Err(Error::Unsupported(Capability::Level));
        }
        if self.config.read_only { Err(read_only()) } else { Ok(()) }
    }

    /// Keys of a range that are being written, in order. Also those that the index has: they may be
    /// gone from it, and not be there again yet, when the walk comes by.
    fn changing_within(&self, range: (Bound<&Key>, Bound<&Key>), effects: &Effects) -> Vec<Key> {
        let changing = self.keys.changing().map(|(key, _)| key).filter(|key| range.contains(*key)).cloned();
        let of_batches = self.batch_keys(range, u64::MAX, effects).into_iter();
        let mut keys: Vec<Key> = changing.chain(of_batches.filter_map(|(key, exists)| exists.then_some(key))).collect();
        fault_point!("range_misses_a_first_write", keys.retain(|key| self.index.get(key).is_some()));
        fault_point!("pipelined_range_misses_what_is_written_again", {
            keys.retain(|key| self.index.get(key).is_none());
        });
        keys.sort_unstable();
        keys
    }

    /// Keys of a range with writes that wait, in order. These have no version yet: what they leave
    /// is removed behind them, whatever version that will have.
    fn waiting_within(&self, range: (Bound<&Key>, Bound<&Key>)) -> Vec<Key> {
        let waiting = self.keys.pending.iter().filter(|(_, pending)| !pending.queue.is_empty());
        let mut keys: Vec<Key> = waiting.map(|(key, _)| key).filter(|key| range.contains(*key)).cloned().collect();
        fault_point!("range_overtakes_writes", keys.clear());
        keys.sort_unstable();
        keys
    }

    /// Goes on with ranges that have room for more deletes.
    pub(crate) fn pump_ranges(&mut self, effects: &mut Effects) {
        for number in std::mem::take(&mut self.ranges.ready) {
            let Some(range) = self.ranges.active.get_mut(&number) else { continue };
            let room = STEPS_MAX.saturating_sub(range.outstanding);
            let mut keys: Vec<Key> = Vec::new();
            if !range.is_stopped && room > 0 {
                let kept = range.pending.len().saturating_sub(room);
                keys = range.pending.split_off(kept);
                if !range.walked && keys.len() < room {
                    let left = room - keys.len();
                    let mut found = Vec::new();
                    self.index.tree.scan(encoded(&range.from), encoded(&range.to), false, &mut |key, _| {
                        found.extend(Key::from_encoded(key));
                        if found.len() >= left { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    });
                    range.walked = found.len() < left;
                    if let Some(last) = found.last() {
                        range.from = Bound::Excluded(last.clone());
                        range.walked |= is_empty_range(&range.from, &range.to);
                    }
                    keys.extend(found);
                }
            }
            // Counted first: a delete may be answered at once.
            range.outstanding += keys.len() + 1;
            let (level, not_after) = (range.level, range.not_after);
            for key in keys {
                let mut work = Work::new(Origin::Range(number), key, Expect::Any, Kind::Delete, level);
                work.not_after = not_after;
                self.submit(work, effects);
            }
            self.range_step_done(number, Reply::Done { version: 0, existed: false }, effects);
            if self.ranges.active.get(&number).is_some_and(|range| range.outstanding < STEPS_MAX && range.has_more()) {
                // Some were answered at once: the next ones need not wait for I/O.
                self.ranges.ready.insert(number);
                effects.more();
            }
        }
    }

    /// A delete of a range is answered.
    pub(crate) fn range_step_done(&mut self, number: u64, reply: Reply, effects: &mut Effects) {
        let Some(range) = self.ranges.active.get_mut(&number) else { return };
        range.outstanding -= 1;
        match reply {
            Reply::Done { version, existed } => {
                range.deleted += u64::from(existed);
                range.version = range.version.max(version);
            }
            Reply::Failed(error) => {
                // What one key has is no reason to leave the others.
                range.is_stopped |= !matches!(error, Error::Corrupt(_) | Error::Io { .. });
                range.error = range.error.take().or(Some(error));
            }
            _ => {}
        }
        if range.has_more() && range.outstanding < STEPS_MAX {
            self.ranges.ready.insert(number);
        }
        if range.outstanding > 0 || range.has_more() {
            return;
        }
        if let Some(range) = self.ranges.active.remove(&number) {
            let done = Reply::Number { number: range.deleted, version: range.version };
            match range.error {
                Some(error) => effects.reply(range.token, Reply::Failed(error)),
                // Keys that were absent already may be so by writes that are not durable yet.
                None => {
                    self.answer_when_durable(crate::write::Origin::Client(range.token), range.level, done, effects);
                }
            }
        }
    }

    /// Every range fails.
    pub(crate) fn fail_ranges(&mut self, error: &Error, effects: &mut Effects) {
        for (_, range) in std::mem::take(&mut self.ranges.active) {
            effects.reply(range.token, Reply::Failed(error.clone()));
        }
    }
}
