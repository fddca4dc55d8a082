//! One budget for the memory that clients make the server hold: what is received, read for them,
//! and waits to be sent.
//!
//! Each connection has a permit for what it holds beyond its constant. A connection that gets no
//! permit stops: it receives nothing and begins nothing until others have given theirs back. Worker
//! threads ask; nobody waits in here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use stratakv_base::Mono;

/// The budget's part of the memory that the store and the server share: one part in so many.
const CLIENT_MEMORY_SHARE: u64 = 8;
/// From so much memory on: of less, the store has all.
const SHARED_FROM_BYTES: u64 = 16 << 20;

/// How much of the memory that a server and its store share is for clients.
pub fn client_memory_bytes(memory_bytes: u64) -> u64 {
    if memory_bytes < SHARED_FROM_BYTES { 0 } else { memory_bytes / CLIENT_MEMORY_SHARE }
}

/// A connection may hold this much whatever the others do: an answer of a page is always on its
/// way.
pub(crate) const FREE_BYTES: u64 = 4 << 10;

/// Answers up to so many bytes may take the budget to three quarters, longer ones to five eighths:
/// short ones find room, and so do values that come. An eighth is for longer ones whatever the
/// short ones hold, or a crowd of these would keep them out for ever.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Bytes that a permit takes ahead while there is plenty, so that not every command has to ask.
const SLACK_BYTES: u64 = 32 << 10;

/// What was freed is given back from so many bytes, or so many closed connections, on; and so often
/// at most.
const TRIM_BYTES: u64 = 4 << 20;
const TRIM_CONNECTIONS: u64 = 256;
const TRIM_EVERY_NS: u64 = 10_000_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    max_bytes: AtomicU64,
    held_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    /// Of values that are being received: at most half of the budget.
    values_bytes: AtomicU64,
    /// Of long answers that came in by the eighth which is theirs.
    long_bytes: AtomicU64,
    /// A connection has the turn of large requests.
    has_turn: AtomicBool,
    /// Connections that stopped for want of a permit.
    waiting: AtomicUsize,
    trim: Trim,
}

/// When what was freed is given back to the system: the allocator keeps it otherwise.
#[derive(Debug, Default)]
struct Trim {
    /// The most that was held since the last time.
    peak_bytes: AtomicU64,
    /// Connections closed since then.
    released: AtomicU64,
    /// Monotonic nanosecond before which it is not done again.
    not_before: AtomicU64,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    pub(crate) fn new(max_bytes: u64) -> Arc<MemoryBudget> {
        let (held_bytes, peak_bytes, waiting) = (0.into(), 0.into(), 0.into());
        Arc::new(MemoryBudget {
            max_bytes: max_bytes.into(),
            held_bytes,
            peak_bytes,
            values_bytes: 0.into(),
            long_bytes: 0.into(),
            has_turn: false.into(),
            waiting,
            trim: Trim::default(),
        })
    }

    /// So many bytes from now on. What is held beyond them comes back as it is sent.
    pub(crate) fn set_max_bytes(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that connections hold now, beyond the constant of each.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The most that was held at once.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed).max(self.trim.peak_bytes.load(Ordering::Relaxed))
    }

    fn note_peak(&self, held_bytes: u64) {
        if held_bytes > self.trim.peak_bytes.load(Ordering::Relaxed) {
            self.trim.peak_bytes.fetch_max(held_bytes, Ordering::Relaxed);
        }
    }

    /// A connection was closed.
    pub(crate) fn count_released(&self) {
        self.trim.released.fetch_add(1, Ordering::Relaxed);
    }

    /// When what was freed is to be given back to the system; `None` while there is little of it.
    pub(crate) fn trim_at(&self) -> Option<Mono> {
        let freed = self.trim.peak_bytes.load(Ordering::Relaxed).saturating_sub(self.held_bytes());
        let is_much = freed >= TRIM_BYTES || self.trim.released.load(Ordering::Relaxed) >= TRIM_CONNECTIONS;
        is_much.then(|| Mono(self.trim.not_before.load(Ordering::Relaxed)))
    }

    /// Whether the calling thread is to do that now; no other is then told so for a while.
    pub(crate) fn begin_trim(&self, now: Mono) -> bool {
        let Some(at) = self.trim_at().filter(|at| *at <= now) else { return false };
        let next = now.0.saturating_add(TRIM_EVERY_NS);
        if self.trim.not_before.compare_exchange(at.0, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        let peak = self.trim.peak_bytes.swap(self.held_bytes(), Ordering::Relaxed);
        self.peak_bytes.fetch_max(peak, Ordering::Relaxed);
        self.trim.released.store(0, Ordering::Relaxed);
        true
    }

    /// Whether more than five eighths of it are held: connections then hold less each.
    pub(crate) fn is_scarce(&self) -> bool {
        self.held_bytes() > self.max_bytes() / 8 * 5
    }

    /// Whether a connection has the turn of large requests.
    pub(crate) fn has_turn(&self) -> bool {
        self.has_turn.load(Ordering::Relaxed)
    }

    /// Connections that wait for permits.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// One more connection waits, or one fewer.
    pub(crate) fn count_waiting(&self, more: bool) {
        match more {
            true => self.waiting.fetch_add(1, Ordering::Relaxed),
            false => self.waiting.fetch_sub(1, Ordering::Relaxed),
        };
    }

    fn take(&self, bytes: u64) -> u64 {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    fn give_back(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The turn of large requests: one connection of the server has it, and may hold what the rest of
/// its request takes, whatever others hold. Those whose requests came in parts would else wait for
/// each other. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct RequestTurn(Arc<MemoryBudget>);

impl Drop for RequestTurn {
    fn drop(&mut self) {
        self.0.has_turn.store(false, Ordering::Release);
    }
}

/// For a value that is being received, beside the permit of its connection; given back when it is
/// dropped.
#[derive(Debug)]
pub(crate) struct ValuePermit {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for ValuePermit {
    fn drop(&mut self) {
        self.budget.values_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What one connection may hold; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryPermit {
    budget: Arc<MemoryBudget>,
    bytes: u64,
    /// Of them, those that came in by the part of long answers.
    long_bytes: u64,
}

impl MemoryPermit {
    /// For nothing yet.
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> MemoryPermit {
        MemoryPermit { budget: Arc::clone(budget), bytes: 0, long_bytes: 0 }
    }

    /// One for another holder, for nothing yet.
    pub(crate) fn another(&self) -> MemoryPermit {
        MemoryPermit::new(&self.budget)
    }

    /// Whose it is.
    pub(crate) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Bytes that it is for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The connection holds `held_bytes`, which may be more than it was allowed.
    pub(crate) fn set(&mut self, held_bytes: u64) {
        let bytes = held_bytes.saturating_sub(FREE_BYTES);
        if bytes > self.bytes {
            let all = self.budget.take(bytes - self.bytes);
            self.budget.note_peak(all);
        } else if bytes < self.bytes {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        self.keep_long(bytes);
    }

    /// No more than `bytes` of it are of long answers any more.
    fn keep_long(&mut self, bytes: u64) {
        let over = self.long_bytes.saturating_sub(bytes);
        self.budget.long_bytes.fetch_sub(over, Ordering::Relaxed);
        self.long_bytes -= over;
    }

    /// A permit for a value that is going to be received, of which `missing` bytes are to come.
    pub(crate) fn try_value(&mut self, held_bytes: u64, missing: u64) -> Option<ValuePermit> {
        let max = self.budget.max_bytes();
        let all = self.budget.values_bytes.fetch_add(missing, Ordering::Relaxed) + missing;
        let permit = ValuePermit { budget: Arc::clone(&self.budget), bytes: missing };
        (all <= max / 2 && self.try_grow_to(held_bytes, missing, max)).then_some(permit)
    }

    /// The same for a request that has the turn: it goes on in any case.
    pub(crate) fn take_value(&mut self, held_bytes: u64, missing: u64) -> ValuePermit {
        self.budget.values_bytes.fetch_add(missing, Ordering::Relaxed);
        self.try_grow_to(held_bytes, missing, u64::MAX);
        ValuePermit { budget: Arc::clone(&self.budget), bytes: missing }
    }

    /// The turn of large requests, if no other connection has it.
    pub(crate) fn try_turn(&self) -> Option<RequestTurn> {
        let has = self.budget.has_turn.swap(true, Ordering::Acquire);
        (!has).then(|| RequestTurn(Arc::clone(&self.budget)))
    }

    /// The same for an answer that is begun: to five eighths only, so that those that are begun can
    /// go on. Otherwise all would wait for each other.
    pub(crate) fn try_begin(&mut self, held_bytes: u64, more: u64) -> bool {
        self.try_grow_to(held_bytes, more, self.limit(5))
    }

    /// So many eighths of the budget. What is in the part of long answers takes nothing from the
    /// others.
    fn limit(&self, eighths: u64) -> u64 {
        let max = self.budget.max_bytes();
        (max / 8 * eighths + self.budget.long_bytes.load(Ordering::Relaxed)).min(max)
    }

    /// Whether the connection, which holds `held_bytes`, may hold `more` beside them. They count
    /// from then on.
    pub(crate) fn try_grow(&mut self, held_bytes: u64, more: u64) -> bool {
        match more > SMALL_BYTES_MAX {
            true => self.try_grow_to(held_bytes, more, self.limit(5)) || self.try_long(held_bytes, more),
            false => self.try_grow_to(held_bytes, more, self.limit(6)),
        }
    }

    /// The same by the eighth that is for long answers. One connection may take all of it, and
    /// more: what it has of it already is in nobody else's way.
    fn try_long(&mut self, held_bytes: u64, more: u64) -> bool {
        let before = self.budget.long_bytes.fetch_add(more, Ordering::Relaxed);
        let may = before <= self.long_bytes || before + more <= self.budget.max_bytes() / 8;
        if may && self.try_grow_to(held_bytes, more, self.budget.max_bytes()) {
            self.long_bytes += more;
            return true;
        }
        self.budget.long_bytes.fetch_sub(more, Ordering::Relaxed);
        false
    }

    fn try_grow_to(&mut self, held_bytes: u64, more: u64, limit: u64) -> bool {
        let wanted = (held_bytes + more).saturating_sub(FREE_BYTES);
        let Some(missing) = wanted.checked_sub(self.bytes).filter(|missing| *missing > 0) else { return true };
        let slack = if self.budget.is_scarce() { 0 } else { SLACK_BYTES };
        let all = self.budget.take(missing);
        if all > limit {
            self.budget.give_back(missing);
            return false;
        }
        self.budget.note_peak(all);
        self.bytes += missing;
        if all + slack <= limit {
            self.budget.take(slack);
            self.bytes += slack;
        }
        true
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.keep_long(0);
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn answers_values_and_short_answers_leave_room_to_each_other() {
        let budget = MemoryBudget::new(16 * MIB);
        let permits = |count| (0..count).map(|_| MemoryPermit::new(&budget)).collect::<Vec<_>>();
        let (mut values, mut long, mut short) = (permits(40), permits(40), permits(400));
        let held: Vec<_> = values.iter_mut().map_while(|permit| permit.try_value(0, MIB)).collect();
        assert_eq!(held.len(), 8, "half of it");
        let long = long.iter_mut().map_while(|permit| permit.try_grow(0, MIB).then_some(())).count();
        assert!((3..=4).contains(&long), "to five eighths, and the eighth that is theirs: {long}");
        let short = short.iter_mut().map_while(|permit| permit.try_grow(0, 64 << 10).then_some(())).count();
        assert!((15..=50).contains(&short), "to three quarters: {short}");
        assert!(budget.held_bytes() <= 14 * MIB);
        drop((values, held));
        assert!(MemoryPermit::new(&budget).try_value(0, MIB).is_some());
    }

    #[test]
    fn answers_alone_leave_a_quarter_to_values() {
        let budget = MemoryBudget::new(16 * MIB);
        let mut answers: Vec<_> = (0..400).map(|_| MemoryPermit::new(&budget)).collect();
        answers.iter_mut().for_each(|permit| _ = permit.try_grow(0, 64 << 10));
        let mut values: Vec<_> = (0..5).map(|_| MemoryPermit::new(&budget)).collect();
        let held: Vec<_> = values.iter_mut().filter_map(|permit| permit.try_value(0, MIB)).collect();
        assert!(held.len() >= 4 && budget.peak_bytes() <= 16 * MIB);
        drop((values, held, answers));
        assert_eq!((budget.held_bytes(), budget.values_bytes.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn answers_that_are_begun_leave_room_to_go_on_with_them() {
        let budget = MemoryBudget::new(16 * MIB);
        let mut all: Vec<_> = (0..400).map(|_| MemoryPermit::new(&budget)).collect();
        assert!(!all.iter_mut().all(|permit| permit.try_begin(0, 64 << 10)));
        assert!(
            all.iter_mut()
                .map(|permit| permit.try_grow(permit.bytes() + FREE_BYTES, 10 << 10))
                .filter(|may| *may)
                .count()
                > 100
        );
        assert!(budget.held_bytes() <= 12 * MIB);
    }

    #[test]
    fn a_crowd_of_short_answers_does_not_keep_a_long_one_out() {
        let budget = MemoryBudget::new(16 * MIB);
        let mut short: Vec<_> = (0..400).map(|_| MemoryPermit::new(&budget)).collect();
        assert!(!short.iter_mut().all(|permit| permit.try_grow(0, 64 << 10)), "they take all that they may");
        let mut long: Vec<_> = (0..8).map(|_| MemoryPermit::new(&budget)).collect();
        let held = long.iter_mut().map_while(|permit| permit.try_grow(0, MIB).then_some(())).count();
        assert_eq!(held, 2, "an eighth");
        long.first_mut().expect("one").set(MIB / 2);
        assert!(!MemoryPermit::new(&budget).try_grow(0, MIB), "it goes as it is sent");
        drop(long);
        assert_eq!(budget.long_bytes.load(Ordering::Relaxed), 0);
        assert!(MemoryPermit::new(&budget).try_grow(0, 3 * MIB), "one may take more");
        drop(short);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn a_connection_that_has_the_part_of_long_answers_may_take_more_of_it() {
        let budget = MemoryBudget::new(16 * MIB);
        let mut one = MemoryPermit::new(&budget);
        assert!(one.try_grow(0, 11 * MIB) && one.long_bytes > 0);
        one.set(2 * MIB);
        assert!(one.long_bytes > 0 && one.try_grow(2 * MIB, 12 * MIB), "in its own way");
        drop(one);
        assert_eq!((budget.held_bytes(), budget.long_bytes.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn what_a_connection_holds_all_the_same_counts_too() {
        let budget = MemoryBudget::new(MIB);
        let (mut first, mut second) = (MemoryPermit::new(&budget), MemoryPermit::new(&budget));
        first.set(2 * MIB);
        assert!(budget.is_scarce() && !second.try_grow(0, FREE_BYTES + 1));
        assert!(second.try_grow(0, FREE_BYTES), "its constant is always free");
        first.set(0);
        assert!(second.try_grow(0, FREE_BYTES + 1));
    }

    #[test]
    fn what_was_freed_is_given_back_by_one_thread_and_not_all_the_time() {
        let budget = MemoryBudget::new(64 * MIB);
        let mut permit = MemoryPermit::new(&budget);
        permit.set(32 * MIB);
        assert!(!budget.begin_trim(Mono(5)), "nothing was freed");
        permit.set(0);
        assert!(budget.begin_trim(Mono(5)) && !budget.begin_trim(Mono(5)));
        permit.set(8 * MIB);
        permit.set(0);
        assert!(!budget.begin_trim(Mono(6)), "a moment later");
        assert!(budget.begin_trim(Mono(5 + TRIM_EVERY_NS)));
        assert_eq!(budget.peak_bytes(), 32 * MIB - FREE_BYTES);
    }
}
