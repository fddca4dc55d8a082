//! A walk over records: where it ends, how far it may go at once, and what it learns on the way.
//!
//! Records that are deleted or expired cost a walk as much as others and bring it nothing, so it is
//! bounded by what it visits. Walks of a tick share a number of visits; one that has used it up
//! goes on in the next tick, behind the others.

use std::cell::{Cell, RefCell};
use std::ops::Bound;

use stratakv_base::{Key, Wall, fault_point};
use stratakv_engine::Effects;
use stratakv_pmem::Pmem;

use crate::dead_spans::{DeadRun, DeadSpans, RECORDS_MIN};
use crate::entry::Meta;
use crate::matrix::Matrix;
use crate::merge::ReadView;
use crate::operations::Work;
use crate::scheduler::WaitFor;

/// Records that the walks of a tick visit together, those that go on and once more those that begin
/// or have got their pages: so a short walk never waits for the long ones. About two milliseconds.
const TICK_VISITS: u64 = 4096;
/// Records that a walk visits before others have their turn.
const WALK_VISITS: u64 = 1024;
/// Dead records that walks passed since the last look, with which the container is looked at:
/// whether it is to be compacted for their sake.
const DENSE_VISITS: u64 = 16 << 10;

/// Walks of a shard that are under way, and what they share.
#[derive(Debug)]
pub(crate) struct Walks {
    /// Visits that are left in this tick for walks that begin or have got their pages, and for
    /// those that go on.
    left: [Cell<u64>; 2],
    /// Which of the two the walk in hand takes from, and how many it may.
    pool: usize,
    allowance: Cell<u64>,
    pub(crate) spans: RefCell<DeadSpans>,
    /// Dead records passed since compaction was last asked about them.
    passed_dead: Cell<u64>,
    /// Compaction clears dead records away, though there is room.
    pub(crate) clears_dead: bool,
    /// The memtable becomes a row for that, once.
    pub(crate) seals_dead: bool,
    /// Records visited since the opening.
    pub(crate) visited: Cell<u64>,
}

/// Walks that begin, or have got their pages.
const FRESH: usize = 0;
/// Walks that were suspended.
const RESUMED: usize = 1;

impl Default for Walks {
    fn default() -> Walks {
        Walks {
            left: [TICK_VISITS.into(), TICK_VISITS.into()],
            pool: FRESH,
            allowance: Cell::default(),
            spans: RefCell::default(),
            passed_dead: Cell::default(),
            clears_dead: false,
            seals_dead: false,
            visited: Cell::default(),
        }
    }
}

impl Walks {
    /// A step of a walk is to run. Whether the tick has visits for it.
    pub(crate) fn begin(&self) -> bool {
        let left = self.left[self.pool].get();
        let mut allowance = left.min(WALK_VISITS);
        fault_point!("trial_walks_never_pause", allowance = u64::MAX);
        self.allowance.set(allowance);
        self.may_go_on()
    }

    /// Whether the walk in hand may visit more.
    pub(crate) fn may_go_on(&self) -> bool {
        self.allowance.get() > 0
    }

    fn count(&self, visits: u64, dead: u64) {
        let left = &self.left[self.pool];
        left.set(left.get().saturating_sub(visits));
        self.allowance.set(self.allowance.get().saturating_sub(visits));
        self.visited.set(self.visited.get() + visits);
        self.passed_dead.set(self.passed_dead.get() + dead);
    }

    /// The next tick has all its visits.
    pub(crate) fn begin_tick(&mut self) {
        self.left.iter().for_each(|left| left.set(TICK_VISITS));
    }

    /// If walks have passed many dead records, compaction sees to them.
    pub(crate) fn note_dead(&mut self) {
        fault_point!("trial_dead_records_stay", return);
        if self.passed_dead.get() >= DENSE_VISITS {
            self.passed_dead.set(0);
            (self.clears_dead, self.seals_dead) = (true, true);
        }
    }
}

/// Keys, encoded: upwards from the first one to the first one beyond, downwards from the first one
/// behind to the first one within.
pub(crate) struct Way<'a> {
    pub(crate) from: Option<&'a [u8]>,
    pub(crate) end: Option<&'a [u8]>,
    pub(crate) reverse: bool,
}

/// See the module.
pub(crate) struct Walk<'a> {
    walks: &'a Walks,
    way: Way<'a>,
    read_view: ReadView,
    /// The container's version: what is learned now holds for whoever sees so much.
    version: u64,
    visits_max: u64,
    visits: u64,
    run: Run,
    passed_dead: u64,
    /// It ended before this key though there is more.
    paused_at: Option<Vec<u8>>,
}

/// Dead records that were passed one after the other.
#[derive(Default)]
struct Run {
    /// Upwards the first key that may be one of them, downwards the first that is behind them.
    from: Vec<u8>,
    is_from_known: bool,
    records: u64,
    has_expired: bool,
}

impl<'a> Walk<'a> {
    /// Of a reader.
    pub(crate) fn new(walks: &'a Walks, read_view: ReadView, way: Way<'a>, version: u64) -> Walk<'a> {
        let from = way.from.unwrap_or_default().to_vec();
        let run = Run { from, is_from_known: way.from.is_some() || !way.reverse, ..Run::default() };
        let visits_max = walks.allowance.get();
        Walk { walks, way, read_view, version, visits_max, visits: 0, run, passed_dead: 0, paused_at: None }
    }

    /// Whether a key is none of its range any more.
    pub(crate) fn is_beyond(&self, key: &[u8]) -> bool {
        fault_point!("trial_walks_pass_their_end", return false);
        let is_beyond = |end: &[u8]| if self.way.reverse { key < end } else { key >= end };
        self.way.end.is_some_and(is_beyond)
    }

    /// Whether it ends before a key that it has not visited: it has gone far enough, or there is a
    /// short cut.
    pub(crate) fn pauses_at(&mut self, key: &[u8]) -> bool {
        let pauses = self.visits >= self.visits_max || self.has_short_cut(key);
        if pauses {
            self.paused_at = Some(key.to_vec());
        }
        pauses
    }

    /// Whether a key is in a span that is known. Not looked for at each of them.
    fn has_short_cut(&self, key: &[u8]) -> bool {
        let looks = self.run.records == 1 || self.run.records >= RECORDS_MIN;
        if !looks || !self.run.records.is_power_of_two() {
            return false;
        }
        let spans = self.walks.spans.borrow();
        let behind = if self.way.reverse {
            spans.below(&behind_key(key), self.read_view)
        } else {
            spans.behind(key, self.read_view)
        };
        behind.is_some()
    }

    pub(crate) fn visit(&mut self) {
        self.visits += 1;
    }

    /// The newest version of a key that its reader sees is a delete, hidden, or has expired.
    pub(crate) fn pass_dead(&mut self, meta: Meta) {
        self.run.records += 1;
        self.run.has_expired |= meta.expiry.is_past(self.read_view.now);
    }

    /// A key is there.
    pub(crate) fn note_visible(&mut self, key: &[u8]) {
        if self.way.reverse {
            self.learn_to(&behind_key(key));
        } else {
            self.learn_to(key);
        }
        self.run.is_from_known = true;
        self.run.from.clear();
        self.run.from.extend_from_slice(key);
        if !self.way.reverse {
            self.run.from.push(0);
        }
    }

    /// The dead records passed last end here: upwards before this key, downwards at it.
    fn learn_to(&mut self, to: &[u8]) {
        let Run { from, is_from_known, records, has_expired } = std::mem::take(&mut self.run);
        self.passed_dead += records;
        if records >= RECORDS_MIN && is_from_known && self.read_view.at == u64::MAX {
            let (from, to) = if self.way.reverse { (to.to_vec(), from) } else { (from, to.to_vec()) };
            let run = DeadRun { from, to, records, has_expired };
            self.walks.spans.borrow_mut().learn(run, self.version, self.read_view.now);
        } else {
            // Its memory is of use.
            self.run.from = from;
        }
    }

    /// It came to the end of its range.
    pub(crate) fn reach_end(&mut self) {
        match self.way.end {
            Some(end) => self.learn_to(end),
            None => self.passed_dead += std::mem::take(&mut self.run.records),
        }
    }

    /// It stops: everything before this is seen (downwards: all above it).
    pub(crate) fn stop_at(&mut self, passed: &Bound<Key>) {
        let (Bound::Included(key) | Bound::Excluded(key)) = passed else { return };
        let is_key_left = matches!(passed, Bound::Included(_));
        if self.way.reverse == is_key_left {
            self.learn_to(&behind_key(key.encoded()));
        } else {
            self.learn_to(key.encoded());
        }
    }

    /// Before which key it ended though there is more, and whether it passed dead records.
    pub(crate) fn take_pause(&mut self) -> Option<(Vec<u8>, bool)> {
        let at = self.paused_at.take()?;
        if self.way.reverse {
            self.learn_to(&behind_key(&at));
        } else {
            self.learn_to(&at);
        }
        Some((at, self.passed_dead > 0))
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.walks.count(self.visits, self.passed_dead + self.run.records);
    }
}

/// The next key.
fn behind_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl<P: Pmem> Matrix<P> {
    /// The span that begins where a walk stands is known to be dead: where that ends.
    pub(crate) fn short_cut(&self, at: Option<&[u8]>, read_view: ReadView, reverse: bool) -> Option<Vec<u8>> {
        let spans = self.scheduler.walks().spans.borrow();
        let found = if reverse { spans.below(at?, read_view) } else { spans.behind(at.unwrap_or_default(), read_view) };
        found.map(<[u8]>::to_vec)
    }

    /// Goes on with walks that were suspended, as far as the tick's visits last.
    pub(crate) fn run_walks(&mut self, effects: &mut Effects) {
        self.scheduler.walks_mut().pool = RESUMED;
        for _ in 0..self.scheduler.waiting(WaitFor::Visits) {
            if !self.scheduler.walks().begin() {
                break;
            }
            let Some(id) = self.scheduler.next(WaitFor::Visits) else { break };
            self.step_again(id, effects);
        }
        self.scheduler.walks_mut().pool = FRESH;
        fault_point!("trial_walks_end_unnoticed", return);
        // Writes may have waited for one that is over.
        self.retry_key_waiters(effects);
    }

    /// Nobody finds anything between these any more, of whoever comes later.
    pub(crate) fn learn_dead(&self, from: &[u8], to: &[u8], records: u64, version: u64) {
        let run = DeadRun { from: from.to_vec(), to: to.to_vec(), records, has_expired: false };
        if records >= RECORDS_MIN {
            self.scheduler.walks().spans.borrow_mut().learn(run, version, Wall(0));
        }
    }
}

impl Work {
    /// Whether it goes over records, any number of them.
    pub(crate) fn is_walk(&self) -> bool {
        matches!(self, Work::Page(_) | Work::Deleting(_) | Work::DeleteRange { .. })
    }
}
