//! [`Pace`], the admission of writes: with little of the container free, writes come in at the rate
//! at which columns free it. Each waits microseconds early, so that none has to wait for a whole
//! column, or for a flush that takes seconds, when there is nothing free any more.

use stratakv_base::{Mono, fault_point};
use stratakv_engine::Operation;
use stratakv_pmem::Pmem;

use crate::container::{Change as Append, What};
use crate::matrix::Matrix;

/// With more of the container's units free than so many of a hundred nobody waits.
const PACED_FREE_PERCENT: u64 = 30;
/// With so many free writes come in as fast as columns go down; with twice as many twice as fast.
const EVEN_FREE_PERCENT: u64 = 15;
/// Nobody waits longer for one write before it.
const WAIT_NS_MAX: u64 = 50_000_000;

/// The rate is a mean over about so long.
const MEAN_NS: u128 = 1_000_000_000;
/// A column is late after so many times as long as it should take: they are of several lengths, and
/// move more or less.
const LATE_TIMES: u128 = 2;
/// Writes may be so far ahead of the rate: less is not worth a timer.
const BURST_NS: u64 = 200_000;

/// How fast columns go down, and when the next write may come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// At most [`WAIT_NS_MAX`] ahead.
    next: Mono,
    /// Bytes a second that columns freed lately, while writes waited for them; 0: not known.
    rate: u64,
    /// Bytes that a column may be expected to have: of the last one, or half of what was expected
    /// of it if that is more. The last column around the key space is what is left, often next to
    /// nothing.
    column_bytes: u64,
    /// When the last column was down, or writes began to wait; or the job after that, if nothing
    /// was compacted meanwhile.
    since: Mono,
    is_idle: bool,
    /// So few units are free that writes wait.
    is_paced: bool,
}

impl Pace {
    /// Bytes a second that can be counted on: a column that takes much longer than it should makes
    /// the rate less with each moment, so that what is free lasts however long the device says
    /// nothing.
    fn rate_at(&self, now: Mono) -> u64 {
        let took = u128::from(now.0.saturating_sub(self.since.0).max(1));
        let in_this_time = u128::from(self.column_bytes) * 1_000_000_000 / took;
        self.rate.min((in_this_time * LATE_TIMES).min(u64::MAX.into()) as u64)
    }

    /// A column gave so many bytes back.
    fn expect_after(&mut self, bytes: u64) {
        let mut at_least = self.column_bytes / 2;
        fault_point!("trial_rests_of_columns_are_expected", at_least = 0);
        self.column_bytes = bytes.max(at_least);
    }

    /// Before this no write comes.
    #[cfg(test)]
    pub(crate) fn next(&self) -> Mono {
        self.next
    }

    /// A compaction begins: the time before it, when there was nothing to do, does not count.
    pub(crate) fn begin_job(&mut self, now: Mono) {
        if std::mem::take(&mut self.is_idle) {
            self.since = now;
        }
    }

    /// Until when a write has to wait, if it has to. There may be room again since.
    fn wait(&self, now: Mono, free_percent: impl FnOnce() -> u64) -> Option<Mono> {
        let waits = now.0 + BURST_NS < self.next.0 && self.is_paced && free_percent() < PACED_FREE_PERCENT;
        waits.then_some(self.next)
    }

    /// So many bytes came into the container, of which so much is free since. How long the next
    /// write waits for them.
    fn came_in(&mut self, bytes: u64, free: u64, now: Mono, is_compacting: bool) -> u64 {
        let was_paced = std::mem::replace(&mut self.is_paced, free < PACED_FREE_PERCENT);
        if self.is_paced && !was_paced {
            (self.since, self.is_idle) = (now, !is_compacting);
        }
        fault_point!("trial_nobody_is_paced", return 0);
        if !self.is_paced || self.rate == 0 {
            return 0;
        }
        let rate = (self.rate_at(now).saturating_mul(free.max(1)) / EVEN_FREE_PERCENT).max(1);
        let wait = (u128::from(bytes) * 1_000_000_000 / u128::from(rate)).min(WAIT_NS_MAX.into()) as u64;
        let next = self.next.max(now).0;
        // What was held up by something else comes in all at once, and does not hold up what comes
        // later for the sum of it.
        let wait = wait.min((now.0 + WAIT_NS_MAX).saturating_sub(next));
        self.next = Mono(next + wait);
        wait
    }

    /// A column is down, and gave so many bytes back.
    pub(crate) fn went_down(&mut self, bytes: u64, now: Mono) {
        let since = std::mem::replace(&mut self.since, now);
        self.expect_after(bytes);
        self.is_idle = true;
        // While nobody waits columns go down as bytes come in, and not as fast as they could.
        if !self.is_paced {
            return;
        }
        let took = u128::from(now.0.saturating_sub(since.0).max(1));
        let (rate, more) = (u128::from(self.rate), u128::from(bytes) * 1_000_000_000);
        // Longer columns count for more: (rate * mean + bytes) / (mean + took).
        let rate = if rate == 0 { more / took } else { (rate * MEAN_NS + more) / (MEAN_NS + took) };
        self.rate = rate.min(u64::MAX.into()) as u64;
    }
}

impl<P: Pmem> Matrix<P> {
    /// Whether a write has to wait, and until when.
    pub(crate) fn waits_for_pace(&self, operation: &Operation) -> Option<Mono> {
        let is_write = matches!(operation, Operation::Write { .. } | Operation::Update { .. });
        if is_write { self.compactor.pace.wait(self.life.mono(), || self.free_percent()) } else { None }
    }

    /// These came into the container.
    pub(crate) fn came_in(&mut self, changes: &[Append<'_>]) {
        // Values that lie apart are on the volume already.
        let inline = |change: &Append<'_>| if let What::Put(value) = &change.what { value.len() } else { 0 };
        let bytes = changes.iter().map(|change| (change.key.len() + inline(change)) as u64).sum::<u64>();
        let (free, is_compacting) = (self.free_percent(), self.compactor.job().is_some());
        self.counters.paced_ns += self.compactor.pace.came_in(bytes, free, self.life.mono(), is_compacting);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The last column around the key space had next to nothing, and the next one took as long as
    /// ever: meanwhile hardly a write came in (slowest second 0.46 of the mean).
    #[test]
    pub(crate) fn a_short_column_does_not_slow_the_next_one_down() {
        let mut pace = Pace { rate: 100_000_000, column_bytes: 20_000_000, ..Pace::default() };
        pace.expect_after(1000);
        assert_eq!(pace.rate_at(Mono(200_000_000)), pace.rate);
        // And one that says nothing does.
        assert!(pace.rate_at(Mono(2_000_000_000)) <= 10_000_000);
        (0..20).for_each(|_| pace.expect_after(1000));
        assert!(pace.rate_at(Mono(200_000_000)) <= 10_000);
    }
}
