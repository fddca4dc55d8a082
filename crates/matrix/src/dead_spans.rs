//! [`DeadSpans`]: parts of the key space of which it is known that a reader sees nothing in them.
//!
//! A walk that passed many deleted, hidden or expired records learns where they lie, and later
//! walks go from one end of the span to the other in one step: so what takes from one end of a
//! queue does not pass all that was taken before. A put splits a span. Spans are in memory only,
//! and bounded.

use std::collections::BTreeMap;
use std::ops::Bound;

use stratakv_base::{Wall, fault_point};

use crate::merge::ReadView;

/// Fewest records of a span that is worth remembering.
pub(crate) const RECORDS_MIN: u64 = 16;
/// Spans of a shard. With more the one goes that saves the least.
const SPANS_MAX: usize = 256;
/// Bytes of their keys.
const BYTES_MAX: usize = 256 << 10;

/// A stretch of records of which none is shown, as a walk met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadRun {
    /// The first key that may be in it.
    pub(crate) from: Vec<u8>,
    /// The first key behind it.
    pub(crate) to: Vec<u8>,
    /// How many records it has.
    pub(crate) records: u64,
    /// One of them is there no more since it expired.
    pub(crate) has_expired: bool,
}

#[derive(Clone, Debug)]
struct Span {
    /// The first key behind it.
    to: Box<[u8]>,
    /// Records that a walk passed here, about.
    records: u64,
    /// It holds for readers who see everything up to this version, or more.
    version: u64,
    /// And by this clock, or a later one.
    now: Wall,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DeadSpans {
    /// By their first key; no two touch each other.
    spans: BTreeMap<Box<[u8]>, Span>,
    /// Length of all their keys.
    bytes: usize,
}

impl DeadSpans {
    /// Remembers that a reader who sees everything up to `version`, at `now`, finds nothing here.
    /// Spans that it touches become one with it. O(spans).
    pub(crate) fn learn(&mut self, run: DeadRun, version: u64, now: Wall) {
        fault_point!("trial_nothing_is_known_dead", return);
        if run.from >= run.to {
            return;
        }
        let now = if run.has_expired { now } else { Wall(0) };
        let mut from: Box<[u8]> = run.from.into();
        let mut span = Span { to: run.to.into(), records: run.records, version, now };
        while let Some(first) = self.touching(&from, &span.to) {
            let Some(other) = self.remove(&first) else { break };
            from = from.min(first);
            span.to = span.to.max(other.to);
            span.records = span.records.saturating_add(other.records);
            (span.version, span.now) = (span.version.max(other.version), span.now.max(other.now));
        }
        self.insert(from, span);
        while self.spans.len() > SPANS_MAX || self.bytes > BYTES_MAX {
            let least = self.spans.iter().min_by_key(|(_, span)| span.records);
            let Some(least) = least.map(|(from, _)| from.clone()) else { break };
            self.remove(&least);
        }
    }

    /// The first key of a span that shares a key or an end with this one.
    fn touching(&self, from: &[u8], to: &[u8]) -> Option<Box<[u8]>> {
        let (first, span) = self.spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(to))).next_back()?;
        (&span.to[..] >= from).then(|| first.clone())
    }

    fn insert(&mut self, from: Box<[u8]>, span: Span) {
        if from < span.to {
            self.bytes += from.len() + span.to.len();
            self.spans.insert(from, span);
        }
    }

    fn remove(&mut self, from: &[u8]) -> Option<Span> {
        let span = self.spans.remove(from)?;
        self.bytes -= from.len() + span.to.len();
        Some(span)
    }

    /// The span that begins at or before a key, last.
    fn before(&self, key: &[u8]) -> Option<(&[u8], &Span)> {
        let found = self.spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        Some((&found.0[..], found.1))
    }

    /// Where a walk upwards goes on that has come to a key, if it is in a span: behind that. O(log
    /// spans).
    pub(crate) fn behind(&self, key: &[u8], read_view: ReadView) -> Option<&[u8]> {
        let (_, span) = self.before(key).filter(|(_, span)| key < &span.to[..] && span.holds(read_view))?;
        Some(&span.to)
    }

    /// Where a walk downwards goes on that has seen all from a key on, if what comes next is in a
    /// span: before the key that is given. O(log spans).
    pub(crate) fn below(&self, key: &[u8], read_view: ReadView) -> Option<&[u8]> {
        let below = self.spans.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back();
        let (from, _) = below.filter(|(_, span)| key <= &span.to[..] && span.holds(read_view))?;
        Some(from)
    }

    /// Something is put at a key: it is in no span any more. O(log spans).
    pub(crate) fn split(&mut self, key: &[u8]) {
        fault_point!("trial_dead_spans_outlive_puts", return);
        if self.spans.is_empty() {
            return;
        }
        let Some((from, _)) = self.before(key).filter(|(_, span)| key < &span.to[..]) else { return };
        let from: Box<[u8]> = from.into();
        let Some(span) = self.remove(&from) else { return };
        let behind = Span { records: span.records / 2, ..span.clone() };
        self.insert(from, Span { to: key.into(), records: span.records / 2, ..span });
        self.insert([key, &[0]].concat().into(), behind);
    }

    /// Something is put between two keys, these included: no span has any of it. O(spans).
    pub(crate) fn forget(&mut self, first: &[u8], last: &[u8]) {
        while let Some(from) = self.touching(first, last) {
            self.remove(&from);
        }
    }
}

impl Span {
    fn holds(&self, read_view: ReadView) -> bool {
        self.version <= read_view.at && self.now <= read_view.now
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use stratakv_base::random::Random;

    use super::*;

    impl DeadSpans {
        fn len(&self) -> usize {
            self.spans.len()
        }
    }

    const ALL: ReadView = ReadView { at: u64::MAX, now: Wall(u64::MAX) };

    fn run(from: &[u8], to: &[u8]) -> DeadRun {
        DeadRun { from: from.to_vec(), to: to.to_vec(), records: 20, has_expired: true }
    }

    #[test]
    fn spans_that_touch_are_one_and_a_put_splits_them() {
        let mut spans = DeadSpans::default();
        spans.learn(run(b"a", b"c"), 5, Wall(7));
        spans.learn(run(b"e", b"g"), 9, Wall(3));
        assert_eq!((spans.len(), spans.behind(b"b", ALL), spans.behind(b"c", ALL)), (2, Some(&b"c"[..]), None));
        spans.learn(run(b"c", b"e"), 2, Wall(1));
        assert_eq!(
            (spans.len(), spans.behind(b"a", ALL), spans.below(b"g", ALL)),
            (1, Some(&b"g"[..]), Some(&b"a"[..]))
        );
        assert_eq!(spans.behind(b"b", ReadView { at: 8, ..ALL }), None, "a snapshot may see what was deleted later");
        assert_eq!(spans.behind(b"b", ReadView { now: Wall(6), ..ALL }), None, "a clock that was put back");
        spans.split(b"d");
        assert_eq!((spans.behind(b"b", ALL), spans.behind(b"d", ALL)), (Some(&b"d"[..]), None));
        assert_eq!((spans.behind(b"d\0", ALL), spans.below(b"d\0", ALL)), (Some(&b"g"[..]), None));
        spans.forget(b"f", b"f");
        assert_eq!((spans.behind(b"f", ALL), spans.len()), (None, 1));
        spans.forget(b"", b"z");
        assert_eq!((spans.len(), spans.bytes), (0, 0));
    }

    #[test]
    fn the_spans_that_save_the_least_are_forgotten_first() {
        let mut spans = DeadSpans::default();
        for number in 0..2 * SPANS_MAX as u64 {
            let key = |end: u8| [&number.to_be_bytes()[..], &[end]].concat();
            let run = DeadRun { from: key(1), to: key(2), records: number + 16, has_expired: false };
            spans.learn(run, 1, Wall(1));
        }
        assert_eq!(spans.len(), SPANS_MAX);
        assert!(spans.behind(&[&511_u64.to_be_bytes()[..], &[1]].concat(), ALL).is_some());
        assert!(spans.behind(&[&3_u64.to_be_bytes()[..], &[1]].concat(), ALL).is_none());
        for number in 0..20_u8 {
            let key = |end: u8| [&[255, number][..], &[end; 60_000]].concat();
            let run = DeadRun { from: key(1), to: key(2), records: 1 << 40, has_expired: false };
            spans.learn(run, 1, Wall(1));
        }
        assert!(spans.bytes <= BYTES_MAX && spans.len() <= 2, "{} bytes", spans.bytes);
    }

    proptest! {
        /// A set of single keys tells the same.
        #[test]
        fn spans_are_what_was_learned_and_not_put_since(seed in any::<u64>()) {
            let mut random = Random::new(seed);
            let (mut spans, mut dead) = (DeadSpans::default(), BTreeSet::new());
            for _ in 0..60 {
                let (from, to) = (random.below(40) as u8, random.below(40) as u8);
                match random.below(4) {
                    0 | 1 => {
                        spans.learn(run(&[from], &[to]), 1, Wall(1));
                        dead.extend(from..to);
                    }
                    2 => {
                        spans.split(&[from]);
                        dead.remove(&from);
                    }
                    _ => {
                        spans.forget(&[from], &[to]);
                        dead.retain(|key| spans.behind(&[*key], ALL).is_some());
                        prop_assert!(!(from..=to).any(|key| dead.contains(&key)));
                    }
                }
                for key in 0..41_u8 {
                    prop_assert_eq!(spans.behind(&[key], ALL).is_some(), dead.contains(&key), "{}", key);
                    prop_assert_eq!(spans.below(&[key, 0], ALL).is_some(), spans.behind(&[key], ALL).is_some());
                }
                let bytes: usize = spans.spans.iter().map(|(from, span)| from.len() + span.to.len()).sum();
                prop_assert_eq!(bytes, spans.bytes);
            }
        }
    }
}
