//! How long the operations of a connection take, and the slow log.
//!
//! An operation's time begins with the tick that submits it, and ends with the tick that brings its
//! reply: waiting for a shard, for other operations and for the disk is in it, the network is not.
//! Time is that of ticks: no clock is read for it. Each key of a get is an operation; a value that
//! is longer than was asked for at first is read by two.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use stratakv_base::{Key, Mono, Now, Wall};

use crate::measures::{Kind, Measures};
use crate::server::lock;

/// Bytes of a key that the slow log shows.
const KEY_BYTES_SHOWN: usize = 64;
/// Lines of the slow log that one thread writes in a second; more are counted.
const LINES_MAX: u32 = 10;
const SECOND_NS: u64 = 1_000_000_000;
/// Slow operations of one thread that are kept for the status page.
const RECENT_MAX: usize = 20;
/// A threshold that nothing reaches.
const OFF: u64 = u64::MAX;

/// From when on an operation is slow; may be changed while serving.
#[derive(Debug)]
pub(crate) struct SlowFrom(AtomicU64);

impl SlowFrom {
    pub(crate) fn new(from: Option<std::time::Duration>) -> SlowFrom {
        let slow = SlowFrom(OFF.into());
        slow.set(from);
        slow
    }

    /// From how many microseconds on an operation is slow, if the slow log is on.
    pub(crate) fn threshold_us(&self) -> Option<u64> {
        self.is_on().then(|| self.ns() / 1000)
    }

    /// `None` turns the slow log off.
    pub(crate) fn set(&self, from: Option<std::time::Duration>) {
        self.0.store(from.map_or(OFF, |from| u64::try_from(from.as_nanos()).unwrap_or(OFF)), Ordering::Relaxed);
    }

    fn ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.ns() != OFF
    }
}

/// The operations of one connection that are not answered.
#[derive(Debug, Default)]
pub(crate) struct Begun(VecDeque<One>);

#[derive(Debug)]
struct One {
    sequence: u32,
    kind: Kind,
    /// Replies still missing.
    missing: usize,
    at: Mono,
    /// For the slow log, if it is on.
    key: Option<Key>,
}

impl Begun {
    /// `replies` to `sequence` will come. The key is for the slow log, if it is on.
    pub(crate) fn begin(&mut self, sequence: u32, kind: Kind, key: Option<Key>, replies: usize, at: Mono) {
        self.0.push_back(One { sequence, kind, missing: replies, at, key });
    }

    /// A reply came. If it was the last one, the operation is counted; tells of it if it was slow.
    pub(crate) fn replied(&mut self, sequence: u32, now: Now, measures: &Measures, slow: &SlowFrom) -> Option<Slow> {
        // Nearly always one of the first.
        let index = self.0.iter().position(|one| one.sequence == sequence)?;
        let one = self.0.get_mut(index)?;
        one.missing = one.missing.saturating_sub(1);
        if one.missing > 0 {
            return None;
        }
        let one = self.0.remove(index)?;
        let latency_ns = now.mono.0.saturating_sub(one.at.0);
        measures.latency(one.kind).record(latency_ns);
        if latency_ns < slow.ns() {
            return None;
        }
        measures.slow_operations.add(1);
        let key_bytes = one.key.as_ref().map_or(0, |key| key.user().len());
        measures.recent_slow.add(SlowOperation { kind: one.kind, key_bytes, latency_ns, ended: now.wall });
        Some(Slow { kind: one.kind, key: one.key, latency_ns })
    }
}

/// A slow operation as the status page tells of it: without its key, as nobody logs in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlowOperation {
    pub(crate) kind: Kind,
    /// Length of its key; 0 of one without.
    pub(crate) key_bytes: usize,
    pub(crate) latency_ns: u64,
    pub(crate) ended: Wall,
}

/// The last slow operations of one thread, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentSlow(Mutex<VecDeque<SlowOperation>>);

impl RecentSlow {
    fn add(&self, slow: SlowOperation) {
        // A thread that serves does not wait for one that reads: this one is left out then.
        let Ok(mut recent) = self.0.try_lock() else { return };
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(slow);
    }

    /// A copy of them.
    pub(crate) fn all(&self) -> Vec<SlowOperation> {
        lock(&self.0).iter().copied().collect()
    }
}

/// An operation that was slow, for the log.
#[derive(Debug)]
pub(crate) struct Slow {
    kind: Kind,
    key: Option<Key>,
    latency_ns: u64,
}

/// Writes the slow log of one thread: a bounded number of lines each second, so that a slow disk
/// does not fill another one with logs.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    second: u64,
    lines: u32,
    left_out: u64,
}

impl SlowLog {
    pub(crate) fn tell(&mut self, slow: &Slow, connection: u32, operations_in_progress: usize, now: Mono) {
        let second = now.0 / SECOND_NS;
        if second != self.second {
            (self.second, self.lines) = (second, 0);
        }
        if self.lines == LINES_MAX {
            self.left_out += 1;
            return;
        }
        self.lines += 1;
        let key = slow.key.as_ref().map_or(String::new(), shown);
        let left_out = std::mem::take(&mut self.left_out);
        tracing::warn!(
            target: "stratakv_server::slow",
            operation = slow.kind.name(),
            key,
            key_bytes = slow.key.as_ref().map_or(0, |key| key.user().len()),
            latency_us = slow.latency_ns / 1000,
            connection,
            operations_in_progress,
            left_out,
            "a slow operation"
        );
    }
}

/// The beginning of a key, escaped: on one line, whatever is in it.
fn shown(key: &Key) -> String {
    let user = key.user();
    let mut text = user.get(..KEY_BYTES_SHOWN).unwrap_or(user).escape_ascii().to_string();
    if user.len() > KEY_BYTES_SHOWN {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stratakv_base::CollectionId;

    use super::*;
    use crate::measures::latencies_of;

    fn at(mono: Mono) -> Now {
        Now { mono, wall: Wall(mono.0 / 1_000_000) }
    }

    #[test]
    fn the_last_slow_operations_of_a_thread_are_kept_without_their_keys() {
        let slow = SlowFrom::new(Some(Duration::ZERO));
        let (mut begun, measures) = (Begun::default(), Measures::default());
        for number in 0..50 {
            let key = Key::new(CollectionId(0), b"secret").unwrap();
            begun.begin(number, Kind::Set, Some(key), 1, Mono(0));
            begun.replied(number, at(Mono(u64::from(number) * 1_000_000)), &measures, &slow);
        }
        let recent = measures.recent_slow.all();
        assert_eq!(recent.len(), RECENT_MAX);
        let last = SlowOperation { kind: Kind::Set, key_bytes: 6, latency_ns: 49_000_000, ended: Wall(49) };
        assert_eq!((recent.last(), recent[0].ended), (Some(&last), Wall(30)));
    }

    #[test]
    fn the_last_reply_ends_an_operation_and_slow_ones_are_told_with_their_key() {
        let slow = SlowFrom::new(Some(Duration::from_millis(1)));
        let (mut begun, measures) = (Begun::default(), [Measures::default()]);
        let key = Key::new(CollectionId(0), b"k").unwrap();
        begun.begin(7, Kind::Get, Some(key), 1, Mono(0));
        begun.begin(8, Kind::Other, None, 2, Mono(0));
        assert!(begun.replied(8, at(Mono(10)), &measures[0], &slow).is_none());
        assert!(begun.replied(9, at(Mono(10)), &measures[0], &slow).is_none());
        assert!(begun.replied(8, at(Mono(20)), &measures[0], &slow).is_none());
        assert_eq!(measures[0].operations(), 1);
        let told = begun.replied(7, at(Mono(1_000_000)), &measures[0], &slow).unwrap();
        assert!(told.key.as_ref().is_some_and(|key| shown(key) == "k") && told.latency_ns == 1_000_000, "{told:?}");
        assert_eq!(latencies_of(Kind::Get, &measures).count(), 1);
        assert_eq!(measures[0].slow_operations.get(), 1);
        assert!(begun.0.is_empty());
    }

    #[test]
    fn without_a_slow_log_nothing_is_slow() {
        let slow = SlowFrom::new(None);
        let (mut begun, measures) = (Begun::default(), Measures::default());
        begun.begin(0, Kind::Get, None, 1, Mono(0));
        assert!(!slow.is_on() && begun.replied(0, at(Mono(u64::MAX - 1)), &measures, &slow).is_none());
        slow.set(Some(Duration::ZERO));
        begun.begin(1, Kind::Get, None, 1, Mono(0));
        assert!(begun.replied(1, at(Mono(0)), &measures, &slow).is_some());
    }

    #[test]
    fn long_and_odd_keys_are_shown_on_one_line() {
        let key = Key::new(CollectionId(0), &[b"a\n\xff".to_vec(), vec![b'x'; 100]].concat()).unwrap();
        let text = shown(&key);
        assert!(text.starts_with(r"a\n\xffxxx") && text.ends_with("x..."), "{text}");
        assert!(text.len() <= 4 * KEY_BYTES_SHOWN + 3);
    }

    #[test]
    fn a_thread_writes_a_bounded_number_of_slow_lines_a_second() {
        let (mut log, slow) = (SlowLog::default(), Slow { kind: Kind::Get, key: None, latency_ns: 1 });
        (0..25).for_each(|_| log.tell(&slow, 0, 0, Mono(SECOND_NS)));
        assert_eq!((log.lines, log.left_out), (LINES_MAX, 15));
        log.tell(&slow, 0, 0, Mono(2 * SECOND_NS));
        assert_eq!((log.lines, log.left_out), (1, 0));
    }
}
