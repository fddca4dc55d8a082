//! [`BackupRate`]: how fast a backup may be.

use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::backup::BackupSummary;

/// How long a call-off may wait to be noticed.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// Keeps a backup to so many bytes a second over all its threads, so that who reads and writes
/// meanwhile has the rest of the disk. For the `watch` of
/// [`Store::backup_watched`](crate::Store::backup_watched).
///
/// ```no_run
/// # fn main() -> Result<(), stratakv::Error> {
/// # let store = stratakv::Store::open("data")?;
/// let rate = stratakv::BackupRate::new(std::num::NonZero::new(50 << 20).unwrap());
/// store.backup_watched("monday".as_ref(), &|piece| rate.keep(piece, || true))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BackupRate {
    bytes_per_second: NonZeroU64,
    /// When what was written is paid for.
    due: Mutex<Instant>,
}

impl BackupRate {
    /// Counts from now on.
    pub fn new(bytes_per_second: NonZeroU64) -> BackupRate {
        BackupRate { bytes_per_second, due: Mutex::new(Instant::now()) }
    }

    /// Waits until the backup is no faster than it may be with this piece too; whether it
    /// `goes_on`, which is asked again and again. A piece has about a megabyte, or one longer
    /// record: so much may be written at once.
    pub fn keep(&self, piece: &BackupSummary, goes_on: impl Fn() -> bool) -> bool {
        let due = self.pay(piece.bytes, Instant::now());
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if !goes_on() || left.is_zero() {
                return goes_on();
            }
            thread::park_timeout(left.min(LOOKS_EVERY));
        }
    }

    /// When so many bytes more are paid for. Time in which nothing was written is not saved up.
    fn pay(&self, bytes: u64, now: Instant) -> Instant {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        *due = (*due).max(now) + self.takes(bytes);
        *due
    }

    /// How long so many bytes take at least.
    fn takes(&self, bytes: u64) -> Duration {
        let per_second = u128::from(self.bytes_per_second.get());
        let micros = u128::from(bytes) * 1_000_000 / per_second;
        // A year is long enough, and can be added to any time.
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)).min(Duration::from_secs(31_536_000))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn piece(bytes: u64) -> BackupSummary {
        BackupSummary { records: 1, bytes }
    }

    #[test]
    fn all_pieces_together_take_their_time() {
        let rate = BackupRate::new(NonZeroU64::new(1 << 20).expect("it is"));
        let begun = Instant::now();
        assert!(rate.keep(&piece(50 << 10), || true) && rate.keep(&piece(50 << 10), || true));
        assert!(begun.elapsed() >= rate.takes(100 << 10), "{:?}", begun.elapsed());
        assert_eq!(rate.takes(1 << 20), Duration::from_secs(1));
        assert_eq!(rate.takes(u64::MAX), Duration::from_secs(31_536_000));
    }

    #[test]
    fn a_call_off_is_not_waited_for() {
        let rate = BackupRate::new(NonZeroU64::new(1).expect("it is"));
        let (begun, looks) = (Instant::now(), Cell::new(0));
        assert!(!rate.keep(&piece(1 << 30), || looks.replace(looks.get() + 1) < 2));
        assert!(begun.elapsed() < Duration::from_secs(3600));
    }

    #[test]
    fn time_in_which_nothing_was_written_is_not_saved_up() {
        let rate = BackupRate::new(NonZeroU64::new(1000).expect("it is"));
        let late = Instant::now() + Duration::from_secs(60);
        assert_eq!(rate.pay(1000, late), late + Duration::from_secs(1));
        assert_eq!(rate.pay(1000, late), late + Duration::from_secs(2));
    }
}
