//! Operations under way. Each is *attempted*: a pure step that either ends it or notes the pages that it lacks. Those are read, then it is attempted again. Writes
//! of one key are attempted in the order in which they came.

use std::collections::VecDeque;
use std::ops::Bound;

use foldhash::{HashMap, HashMapExt};
use stratakv_base::Key;
use stratakv_engine::{Change, RecordPart, Token, Update};

use crate::lookup::LongRead;
use crate::reading::Pins;
use crate::scan::{PageWork, RangeWork};
use crate::spill::Placed;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Work {
    Get {
        key: Key,
        part: RecordPart,
        long: Option<LongRead>,
    },
    Write {
        changes: Vec<Change>,
        placed: Vec<Placed>,
    },
    Update {
        key: Key,
        update: Update,
        placed: Vec<Placed>,
    },
    Page(PageWork),
    /// Before it begins: it waits for the writes that came before it.
    DeleteRange {
        from: Bound<Key>,
        to: Bound<Key>,
    },
    Deleting(RangeWork),
    Sync,
}

/// An operation that could not be ended at once.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) token: Token,
    pub(crate) work: Work,
    /// Pages that were read for it.
    pub(crate) pins: Pins,
    /// Reads that it waits for.
    pub(crate) missing: usize,
    /// It waits for its long values to be written.
    pub(crate) spills: bool,
}

/// Who may write which keys: first come, first served.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Writes that hold or want a key, in order; the first one holds it.
    keys: HashMap<Key, VecDeque<u64>>,
    /// Writes under way, in order. Range deletes and syncs wait until they are the first.
    writes: VecDeque<u64>,
    /// Those of them that wait for all before them, and that all after them wait for until they have begun.
    barriers: VecDeque<u64>,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns { keys: HashMap::new(), writes: VecDeque::new(), barriers: VecDeque::new() }
    }

    /// Nobody has a turn or waits for one.
    pub(crate) fn is_idle(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether a write of these keys need not wait for anybody.
    pub(crate) fn is_free<'a>(&self, mut keys: impl Iterator<Item = &'a Key>) -> bool {
        self.is_idle() || (self.barriers.is_empty() && keys.all(|key| !self.keys.contains_key(key)))
    }

    /// Queues a write for its keys, or as a barrier.
    pub(crate) fn queue<'a>(&mut self, id: u64, keys: impl Iterator<Item = &'a Key>, barrier: bool) {
        self.writes.push_back(id);
        if barrier {
            self.barriers.push_back(id);
        }
        for key in keys {
            self.keys.entry(key.clone()).or_default().push_back(id);
        }
    }

    /// Whether it is this write's turn.
    pub(crate) fn has<'a>(&self, id: u64, mut keys: impl Iterator<Item = &'a Key>) -> bool {
        match self.barriers.front() {
            Some(barrier) if *barrier == id => return self.writes.front() == Some(&id),
            Some(barrier) if self.is_before(*barrier, id) => return false,
            _ => {}
        }
        !self.barriers.contains(&id) && keys.all(|key| self.keys.get(key).and_then(VecDeque::front) == Some(&id))
    }

    fn is_before(&self, a: u64, b: u64) -> bool {
        // Numbers are given in the order of arrival.
        a < b
    }

    /// A barrier has begun: those after it need not wait for it.
    pub(crate) fn begun(&mut self, id: u64) {
        self.barriers.retain(|barrier| *barrier != id);
        self.writes.retain(|write| *write != id);
    }

    /// A write is over. Afterwards others may have their turn.
    pub(crate) fn done<'a>(&mut self, id: u64, keys: impl Iterator<Item = &'a Key>) {
        self.begun(id);
        for key in keys {
            if let Some(queue) = self.keys.get_mut(key) {
                queue.retain(|other| *other != id);
                if queue.is_empty() {
                    self.keys.remove(key);
                }
            }
        }
    }

    /// Writes that may have got their turn, in order of arrival.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u64> + '_ {
        self.writes.iter().copied()
    }
}

impl Work {
    /// The keys that it writes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        let (changes, one) = match self {
            Work::Write { changes, .. } => (&changes[..], None),
            Work::Update { key, .. } => (&[][..], Some(key)),
            _ => (&[][..], None),
        };
        changes.iter().map(|change| &change.key).chain(one)
    }

    /// Differs when it came further by an attempt that did not end it.
    pub(crate) fn progress(&self) -> usize {
        match self {
            Work::Get { long, .. } => long.as_ref().map_or(0, LongRead::progress),
            Work::Page(page) => page.progress(),
            _ => 0,
        }
    }

    /// Where its long values lie.
    pub(crate) fn placed(&mut self) -> Option<&mut Vec<Placed>> {
        match self {
            Work::Write { placed, .. } | Work::Update { placed, .. } => Some(placed),
            _ => None,
        }
    }

    /// Whether it waits for its turn among writes.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Work::Write { .. } | Work::Update { .. }) || self.is_barrier()
    }

    /// Whether it waits for all writes before it.
    pub(crate) fn is_barrier(&self) -> bool {
        matches!(self, Work::DeleteRange { .. } | Work::Sync)
    }
}
