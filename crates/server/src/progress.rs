//! How the bytes of a connection move: who holds memory and moves nothing is closed first when
//! memory is short.

use std::time::Duration;

use stratakv_base::Mono;

use crate::worker::after;

/// A connection of which nothing moved for so long stands still.
const STILL: Duration = Duration::from_secs(1);
/// A connection is slow if over this time, at least, it moved less than [`SLOW_BYTES`] a second.
const WINDOW: Duration = Duration::from_secs(2);
const SLOW_BYTES: u64 = 32 << 10;

/// What one connection has moved.
#[derive(Debug)]
pub(crate) struct Progress {
    moved_bytes: u64,
    /// When something last moved.
    moved_at: Mono,
    /// What the peer had not taken when that was last looked at.
    untaken_bytes: u64,
    /// Since when it is measured, and what had moved by then.
    window_at: Mono,
    window_bytes: u64,
}

impl Progress {
    /// Nothing has moved yet.
    pub(crate) fn new(now: Mono) -> Progress {
        Progress { moved_bytes: 0, moved_at: now, untaken_bytes: 0, window_at: now, window_bytes: 0 }
    }

    /// Measured from now on: what went before was another request.
    pub(crate) fn begin(&mut self, now: Mono) {
        (self.window_at, self.window_bytes, self.moved_at) = (now, self.moved_bytes, now);
    }

    /// Bytes were received, or a send ended.
    pub(crate) fn moved(&mut self, bytes: u64, now: Mono) {
        self.moved_bytes += bytes;
        self.moved_at = now;
    }

    /// Looks at what the peer has not taken of what is being sent; whether it took or was given
    /// some.
    pub(crate) fn look(&mut self, untaken_bytes: u64, now: Mono) -> bool {
        let before = std::mem::replace(&mut self.untaken_bytes, untaken_bytes);
        let has_moved = untaken_bytes != before;
        if has_moved {
            self.moved(before.saturating_sub(untaken_bytes), now);
        }
        has_moved
    }

    /// Since when it stands still or is slow, if it is.
    pub(crate) fn slow_since(&mut self, now: Mono) -> Option<Mono> {
        if after(self.moved_at, STILL) <= now {
            return Some(self.moved_at);
        }
        if now < after(self.window_at, WINDOW) {
            return None;
        }
        let elapsed_ms = (now.0 - self.window_at.0) / 1_000_000;
        if (self.moved_bytes - self.window_bytes) * 1000 < SLOW_BYTES * elapsed_ms {
            return Some(self.window_at);
        }
        (self.window_at, self.window_bytes) = (now, self.moved_bytes);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    #[test]
    fn a_client_of_100_kb_a_second_is_not_slow_whatever_its_pieces() {
        for piece_ms in [10, 100, 900] {
            let mut progress = Progress::new(at_ms(0));
            for ms in 1..20_000 {
                if ms % piece_ms == 0 {
                    progress.moved(100 * piece_ms, at_ms(ms));
                }
                assert_eq!(progress.slow_since(at_ms(ms)), None, "{piece_ms} ms, at {ms}");
            }
        }
    }

    #[test]
    fn who_stands_still_or_drips_is_known_and_since_when() {
        let mut progress = Progress::new(at_ms(0));
        progress.moved(1 << 20, at_ms(100));
        assert_eq!(progress.slow_since(at_ms(1099)), None);
        assert_eq!(progress.slow_since(at_ms(1100)), Some(at_ms(100)));
        progress.begin(at_ms(5000));
        for ms in (5000..10_000).step_by(50) {
            progress.moved(100, at_ms(ms));
        }
        assert_eq!(progress.slow_since(at_ms(10_000)), Some(at_ms(5000)));
    }

    #[test]
    fn what_the_peer_takes_of_a_long_send_is_progress() {
        let mut progress = Progress::new(at_ms(0));
        for ms in (100..10_000).step_by(100) {
            progress.look((1 << 20) - ms * 100, at_ms(ms));
            assert_eq!(progress.slow_since(at_ms(ms)), None, "at {ms}");
        }
        progress.look((1 << 20) - 9900 * 100, at_ms(12_000));
        assert_eq!(progress.slow_since(at_ms(12_000)), Some(at_ms(9900)));
    }
}
