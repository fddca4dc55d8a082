//! What a shard that was not closed in order left: which items on its volume are provably the
//! newest of their keys.

use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt};
use stratakv_base::fault_point;

use crate::index::{Index, Loc, Tag};
use crate::journal::{Record, Tail};
use crate::log::{Line, Log, Stored};

/// Gathers what is read from a volume.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) index: Index,
    pub(crate) log: Log,
    pub(crate) tail: Tail,
    /// Of the ring's pages, the newest segment at their writing.
    pub(crate) newest_of: VecDeque<u64>,
    /// Copies with this tag and a version below this one are stale.
    stale: HashMap<Tag, u64>,
    /// The last segment so far.
    pub(crate) last: u64,
    pub(crate) untrusted_segments: u64,
    pub(crate) invalidated: u64,
    /// Items that the index had no room for.
    pub(crate) crowded_out: u64,
}

impl Recovery {
    pub(crate) fn new(log: Log, tail: Tail, index_bytes_max: u64) -> Recovery {
        let mut recovery = Recovery {
            index: Index::new(index_bytes_max),
            log,
            newest_of: VecDeque::new(),
            stale: HashMap::new(),
            last: 0,
            untrusted_segments: 0,
            invalidated: 0,
            crowded_out: 0,
            tail: Tail::default(),
        };
        recovery.note(&tail.records);
        recovery.tail = tail;
        recovery
    }

    fn note(&mut self, records: &[Record]) {
        fault_point!("tier_journal_not_read", return);
        for record in records {
            let version = self.stale.entry(record.tag).or_default();
            *version = record.version.max(*version);
        }
    }

    /// The ring's next page: its records; or it is lost, and with it what it may have spoken of.
    pub(crate) fn ring_page(&mut self, page: Option<(u64, Vec<Record>)>) {
        let (newest, records) = page.unwrap_or_else(|| {
            self.tail.untrusted = self.tail.untrusted.max(self.tail.newest);
            (self.tail.newest, Vec::new())
        });
        self.newest_of.push_back(newest);
        self.note(&records);
    }

    /// A segment of the table. The entries of an older one were dropped with it.
    pub(crate) fn table_segment(&mut self, stored: Stored) {
        if stored.order >= self.tail.low && self.log.has_place(stored.page, stored.pages) {
            self.log.push(stored);
        }
    }

    /// An entry of the table. `is_clean`: nothing happened since.
    pub(crate) fn table_entry(&mut self, tag: Tag, loc: Loc, is_clean: bool) {
        let Some(stored) = self.log.of(loc.address()).filter(|_| loc.is_on_volume()) else { return };
        if !is_clean && (stored.order <= self.tail.untrusted || self.stale.contains_key(&tag)) {
            self.invalidated += 1;
            return;
        }
        self.insert(tag, loc);
    }

    /// Where the index has no room, as there is less memory than before, the oldest segments go: an
    /// eighth of them at a time.
    fn insert(&mut self, tag: Tag, loc: Loc) {
        while self.index.is_crowded() || !self.index.has_room(tag) {
            if !self.drop_oldest() {
                self.crowded_out += 1;
                return;
            }
        }
        if self.log.of(loc.address()).is_some() {
            self.index.insert(tag, loc);
        } else {
            self.crowded_out += 1;
        }
    }

    /// False: there is no segment.
    fn drop_oldest(&mut self) -> bool {
        let count = self.log.len().div_ceil(8);
        let Some(last) = (0..count).map_while(|_| self.log.pop_oldest()).last() else { return false };
        // The tail that is written before anything is served says so.
        let next = self.log.oldest().map(|next| (next.order, next.page));
        (self.tail.low, self.tail.low_page) = next.unwrap_or((last.order + 1, last.end()));
        let log = &self.log;
        self.crowded_out += self.index.retain(|_, loc| log.of(loc.address()).is_some());
        true
    }

    /// Whether a segment of this order can be the next one.
    pub(crate) fn is_next(&self, order: u64) -> bool {
        let was_passed_over = (self.tail.ends + 1..self.tail.since).contains(&order);
        order > self.last && order >= self.tail.low && !was_passed_over
    }

    /// The next segment. A later copy of a key is the newer one. `None`: its summary is damaged,
    /// and as nobody knows what is in it, what came before it is not trusted either.
    pub(crate) fn segment(&mut self, mut stored: Stored, lines: Option<Vec<Line>>) {
        self.last = stored.order;
        stored.is_void = lines.is_none();
        self.log.push(stored);
        let Some(lines) = lines else {
            self.tail.untrusted = self.tail.untrusted.max(stored.order);
            let untrusted = self.tail.untrusted;
            let log = &self.log;
            self.index.retain(|_, loc| log.of(loc.address()).is_some_and(|stored| stored.order > untrusted));
            return;
        };
        if stored.order <= self.tail.untrusted {
            self.untrusted_segments += 1;
            return;
        }
        for line in lines {
            if self.stale.get(&line.tag).is_some_and(|version| line.version < *version) {
                self.invalidated += 1;
                continue;
            }
            let older: Vec<Loc> = self.index.find(line.tag).collect();
            for loc in older {
                self.index.remove(line.tag, loc);
            }
            self.insert(line.tag, stored.loc(&line));
        }
    }
}
