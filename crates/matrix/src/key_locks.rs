//! [`KeyLockQueue`]: who may write which keys, and which ranges. [`Scheduler`] alone has one.
//!
//! [`Scheduler`]: crate::scheduler::Scheduler

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound::{self, Included};
use std::ops::RangeBounds;

use foldhash::HashMap;
use stratakv_base::{Key, fault_point};

use crate::operations::Work;

/// Who may write which keys: first come, first served. What a write costs here does not grow with
/// those that wait, but for deletes of ranges.
#[derive(Debug, Default)]
pub(crate) struct KeyLockQueue {
    /// Writes that hold or want a key, in order; the first one holds it.
    keys: HashMap<Key, VecDeque<u64>>,
    /// Writes under way, in order. Range deletes and syncs wait until they are the first.
    writes: BTreeSet<u64>,
    /// Ranges that are being deleted, or are to be: later writes within one wait until it is done.
    ranges: Vec<(u64, Bound<Key>, Bound<Key>)>,
    /// Writes that may have their turn now, since something before them is over.
    candidates: BTreeSet<u64>,
}

impl KeyLockQueue {
    /// Whether nobody has a turn or waits for one.
    pub(crate) fn is_idle(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether a step of this operation can run now, without its being queued.
    pub(crate) fn is_free(&self, work: &Work) -> bool {
        fault_point!("matrix_writes_out_of_turn", return true);
        if self.is_idle() {
            return true;
        }
        !work.is_barrier() && work.keys().all(|key| !self.keys.contains_key(key) && !self.is_in_range(u64::MAX, key))
    }

    /// Whether a range that came before `id` has the key.
    fn is_in_range(&self, id: u64, key: &Key) -> bool {
        let mut earlier = self.ranges.iter().filter(|(range, ..)| *range < id);
        earlier.any(|(_, from, to)| (from.as_ref(), to.as_ref()).contains(key))
    }

    /// Queues a write for its keys, or a range for all that comes before it.
    pub(crate) fn queue(&mut self, id: u64, work: &Work) {
        self.writes.insert(id);
        self.candidates.insert(id);
        match work {
            Work::DeleteRange { from, to } => self.ranges.push((id, from.clone(), to.clone())),
            Work::Deleting(range) => self.ranges.push((id, range.from.clone(), range.to.clone())),
            Work::Load(load) => {
                let bounds = load.range().map(|(first, last)| (id, Included(first.clone()), Included(last.clone())));
                self.ranges.extend(bounds);
            }
            _ => {}
        }
        for key in work.keys() {
            self.keys.entry(key.clone()).or_default().push_back(id);
        }
    }

    /// Whether it is this one's turn.
    pub(crate) fn has(&self, id: u64, work: &Work) -> bool {
        if work.is_barrier() {
            return self.writes.first() == Some(&id);
        }
        let is_first = |key: &Key| self.keys.get(key).and_then(VecDeque::front) == Some(&id);
        work.keys().all(|key| is_first(key) && !self.is_in_range(id, key))
    }

    /// It is over. Afterwards others may have their turn.
    pub(crate) fn done(&mut self, id: u64, work: &Work) {
        self.writes.remove(&id);
        self.candidates.remove(&id);
        for key in work.keys() {
            let Some(queue) = self.keys.get_mut(key) else { continue };
            if queue.front() == Some(&id) {
                queue.pop_front();
            } else {
                queue.retain(|other| *other != id);
            }
            match queue.front() {
                Some(next) => drop(self.candidates.insert(*next)),
                None => drop(self.keys.remove(key)),
            }
        }
        if let Some(at) = self.ranges.iter().position(|(range, ..)| *range == id) {
            self.ranges.swap_remove(at);
            self.candidates.extend(self.writes.range(id..));
        }
        self.candidates.extend(self.writes.first());
    }

    /// The next one that may have its turn, in order of arrival; each is told once, until something
    /// before it is over.
    pub(crate) fn next_candidate(&mut self) -> Option<u64> {
        self.candidates.pop_first()
    }
}
