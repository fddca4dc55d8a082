//! [`Order`]: what was handed over and is not done, and what of it comes before what. It neither
//! waits nor knows threads.
//!
//! - A write waits for those begun before it that share a key with it.
//! - A *wide* operation, one without keys of its own (a range delete, `sync`, a snapshot, a
//!   backup), waits for all writes and wide ones begun before it.
//! - Writes begun after a range delete wait until all before it are done, not for itself: from then
//!   on there is a version that tells what it deletes from what it leaves.
//!
//! Whoever waits waits for somebody begun earlier: nobody waits in a circle.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// What an operation concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// These keys, by their hashes: those of equal hashes only wait for each other without need.
    Keys(Vec<u64>),
    /// A range of keys, to be deleted.
    Range,
    /// Everything.
    All,
}

/// Operations begun and not done. `J` is what there is to do.
pub(crate) struct Order<J> {
    /// How many were begun. Each is known by what this was then.
    begun: u64,
    /// Writes not done.
    writes: BTreeMap<u64, Write<J>>,
    /// The last of them for each key.
    last_of_key: HashMap<u64, u64>,
    /// Wide ones that wait for writes.
    wide: VecDeque<Wide<J>>,
    /// The last range delete among those.
    last_range: Option<u64>,
    /// Writes that wait for range deletes: which one, and which write.
    held: VecDeque<(u64, u64)>,
    /// Wide ones that wait for each other only.
    next_wide: VecDeque<Task<J>>,
    wide_is_out: bool,
    /// Writes that wait for nobody.
    next_writes: VecDeque<Task<J>>,
}

struct Write<J> {
    keys: Vec<u64>,
    /// What it waits for.
    missing: usize,
    /// Taken out when it waits for nobody.
    job: Option<J>,
    /// Those that wait for it.
    waiting: Vec<u64>,
}

struct Wide<J> {
    number: u64,
    is_range: bool,
    job: J,
}

/// To be done now, in any thread; then it is to be given to [`Order::finish`].
pub(crate) struct Task<J> {
    pub(crate) done: Done,
    pub(crate) job: J,
    /// Of a range delete: the last version when all before it was done.
    pub(crate) begun_at: Option<u64>,
}

/// Names a task that was taken.
#[derive(Debug)]
pub(crate) enum Done {
    Write(u64),
    Wide,
}

impl<J> Order<J> {
    pub(crate) fn new() -> Order<J> {
        Order {
            begun: 0,
            writes: BTreeMap::new(),
            last_of_key: HashMap::new(),
            wide: VecDeque::new(),
            last_range: None,
            held: VecDeque::new(),
            next_wide: VecDeque::new(),
            wide_is_out: false,
            next_writes: VecDeque::new(),
        }
    }

    /// Operations begun and not done.
    pub(crate) fn len(&self) -> usize {
        self.writes.len() + self.wide.len() + self.next_wide.len() + usize::from(self.wide_is_out)
    }

    /// Whether a write or a range delete of this scope would come before what was begun earlier, if
    /// it were done now.
    pub(crate) fn would_overtake(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Keys(keys) => self.last_range.is_some() || keys.iter().any(|key| self.last_of_key.contains_key(key)),
            Scope::Range => !self.writes.is_empty(),
            Scope::All => false,
        }
    }

    /// Adds an operation behind all others. `last_version`: that of the engine, now.
    pub(crate) fn begin(&mut self, scope: Scope, job: J, last_version: impl Fn() -> u64) {
        self.begun += 1;
        let number = self.begun;
        let is_range = scope == Scope::Range;
        if let Scope::Keys(keys) = scope {
            return self.begin_write(number, keys, job);
        }
        if is_range {
            self.last_range = Some(number);
        }
        self.wide.push_back(Wide { number, is_range, job });
        self.release_wide(last_version);
    }

    fn begin_write(&mut self, number: u64, keys: Vec<u64>, job: J) {
        let mut missing = 0;
        for key in &keys {
            // It may be this one, of a key named twice: such a batch is for the engine to refuse.
            let before = self.last_of_key.insert(*key, number);
            if let Some(before) = before.and_then(|before| self.writes.get_mut(&before)) {
                before.waiting.push(number);
                missing += 1;
            }
        }
        if let Some(range) = self.last_range {
            self.held.push_back((range, number));
            missing += 1;
        }
        // One step more, so that there is one place that sets writes free.
        self.writes.insert(number, Write { keys, missing: missing + 1, job: Some(job), waiting: Vec::new() });
        self.free(number);
    }

    /// A write waits for one less.
    fn free(&mut self, number: u64) {
        let Some(write) = self.writes.get_mut(&number) else { return };
        write.missing -= 1;
        if write.missing == 0
            && let Some(job) = write.job.take()
        {
            self.next_writes.push_back(Task { done: Done::Write(number), job, begun_at: None });
        }
    }

    /// Wide ones whose writes are all done wait for each other only.
    fn release_wide(&mut self, last_version: impl Fn() -> u64) {
        let first_write = self.writes.keys().next().copied().unwrap_or(u64::MAX);
        while let Some(Wide { number, is_range, job }) = self.wide.pop_front_if(|wide| wide.number < first_write) {
            let begun_at = is_range.then(&last_version);
            self.next_wide.push_back(Task { done: Done::Wide, job, begun_at });
            self.last_range.take_if(|range| *range == number);
            while let Some((_, write)) = self.held.pop_front_if(|(range, _)| *range == number) {
                self.free(write);
            }
        }
    }

    /// Whether there is something that can be done now.
    pub(crate) fn has_next(&self) -> bool {
        !self.next_writes.is_empty() || !self.wide_is_out && !self.next_wide.is_empty()
    }

    /// What can be done now, the longest waiting first. Of wide ones, which may take long, one at a
    /// time: writes have the other threads.
    pub(crate) fn next(&mut self) -> Option<Task<J>> {
        if !self.wide_is_out
            && let Some(task) = self.next_wide.pop_front()
        {
            self.wide_is_out = true;
            return Some(task);
        }
        self.next_writes.pop_front()
    }

    /// A task is done: those that waited for it do not any more.
    pub(crate) fn finish(&mut self, done: Done, last_version: impl Fn() -> u64) {
        let Done::Write(number) = done else {
            self.wide_is_out = false;
            return;
        };
        let Some(write) = self.writes.remove(&number) else { return };
        for key in write.keys {
            if self.last_of_key.get(&key) == Some(&number) {
                self.last_of_key.remove(&key);
            }
        }
        for waiting in write.waiting {
            self.free(waiting);
        }
        self.release_wide(last_version);
    }
}

#[cfg(test)]
#[path = "../tests/unit/order.rs"]
mod tests;
