//! What a server thread measures of itself: latencies by kind of operation, ticks, system calls.
//! Written by one thread, read by any.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stratakv_engine::{ChangeKind, Operation};

/// Latencies are told apart from this on, and grow by at most an eighth within a bucket.
const UNIT_NS: u64 = 128;
/// Buckets of a histogram: 8 below 1 us, then 8 for each doubling. The last ends at 68.7 s, and has
/// all that is longer.
const BUCKETS: usize = 216;

/// Kinds of operations whose latency is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Set,
    Delete,
    Update,
    Other,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [Kind::Get, Kind::Set, Kind::Delete, Kind::Update, Kind::Other];

    /// The kind of an operation.
    pub(crate) fn of(operation: &Operation) -> Kind {
        match operation {
            Operation::Get { .. } => Kind::Get,
            Operation::Update { .. } => Kind::Update,
            Operation::Write { changes, .. } => match changes.first().map(|change| &change.kind) {
                Some(ChangeKind::Put { .. }) => Kind::Set,
                Some(ChangeKind::Delete) => Kind::Delete,
                _ => Kind::Other,
            },
            _ => Kind::Other,
        }
    }

    /// Its name in figures and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Set => "set",
            Kind::Delete => "delete",
            Kind::Update => "update",
            Kind::Other => "other",
        }
    }
}

/// A number written by one thread and read by any: no bus lock, unlike an atomic addition.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    pub(crate) fn add(&self, number: u64) {
        self.0.store(self.get().wrapping_add(number), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many operations took how long.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [Tally; BUCKETS],
    sum_ns: Tally,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| Tally::default()), sum_ns: Tally::default() }
    }
}

impl Histogram {
    /// One operation more. A few instructions; by the thread that owns it only.
    pub(crate) fn record(&self, latency_ns: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(latency_ns)) {
            bucket.add(1);
        }
        self.sum_ns.add(latency_ns);
    }
}

fn bucket_of(latency_ns: u64) -> usize {
    let units = latency_ns / UNIT_NS;
    if units < 8 {
        return units as usize;
    }
    let doublings = 60 - units.leading_zeros() as usize;
    (doublings * 8 + (units >> doublings) as usize).min(BUCKETS - 1)
}

/// Where a bucket ends, exclusive.
fn bucket_end_ns(bucket: usize) -> u64 {
    match bucket {
        0..8 => (bucket as u64 + 1) * UNIT_NS,
        _ => ((bucket as u64 % 8 + 9) << (bucket / 8 - 1)) * UNIT_NS,
    }
}

/// What one thread measures, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Measures {
    latencies: [Histogram; Kind::ALL.len()],
    pub(crate) ticks: Tally,
    pub(crate) system_calls: Tally,
    pub(crate) slow_operations: Tally,
    pub(crate) idle_closed: Tally,
    /// The kernel's number of the thread; 0 before it runs.
    pub(crate) thread_id: AtomicU32,
}

impl Measures {
    pub(crate) fn latency(&self, kind: Kind) -> &Histogram {
        &self.latencies[kind as usize]
    }

    /// Operations measured.
    pub(crate) fn operations(&self) -> u64 {
        self.latencies.iter().flat_map(|histogram| &histogram.buckets).map(Tally::get).sum()
    }
}

/// Histograms of several threads, added up.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    counts: Vec<u64>,
    pub(crate) sum_ns: u64,
}

impl Distribution {
    /// Of one kind, over all threads.
    pub(crate) fn of(kind: Kind, threads: &[Measures]) -> Distribution {
        let mut all = Distribution { counts: vec![0; BUCKETS], sum_ns: 0 };
        for histogram in threads.iter().map(|thread| thread.latency(kind)) {
            all.counts.iter_mut().zip(&histogram.buckets).for_each(|(sum, bucket)| *sum += bucket.get());
            all.sum_ns = all.sum_ns.wrapping_add(histogram.sum_ns.get());
        }
        all
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The latency that this part of the operations (0 to 1) did not exceed, in ns, up to an eighth
    /// too long; 0 if there were none.
    pub(crate) fn quantile_ns(&self, part: f64) -> u64 {
        let wanted = (self.count() as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, bucket_end_ns)
    }

    /// Buckets that hold something: where each ends (ns), and how many operations it has.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (bucket_end_ns(bucket), *count))
    }

    /// For each doubling from 1.024 us on: where it ends (ns), and how many operations took less.
    /// The last bucket of all is left to "more".
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut below = 0;
        self.counts
            .chunks(8)
            .enumerate()
            .map(move |(doubling, counts)| {
                below += counts.iter().sum::<u64>();
                (bucket_end_ns(doubling * 8 + 7), below)
            })
            .take(BUCKETS / 8 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_has_a_bucket_that_ends_after_it_and_at_most_an_eighth_later() {
        let mut random = stratakv_base::random::Random::new(1);
        let drawn = (0..10_000).map(|_| random.below(1 << 36) >> random.below(36));
        for latency_ns in (0..3000).chain(drawn).chain([1023, 1024, (1 << 36) - 1]) {
            let bucket = bucket_of(latency_ns);
            let end = bucket_end_ns(bucket);
            let begin = bucket.checked_sub(1).map_or(0, bucket_end_ns);
            assert!(begin <= latency_ns && latency_ns < end, "{latency_ns} in {begin}..{end}");
            assert!(end - begin <= UNIT_NS.max(begin / 8), "{begin}..{end}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_end_ns(BUCKETS - 1), 1 << 36);
    }

    #[test]
    fn histograms_of_threads_add_up_and_tell_quantiles() {
        let threads = [Measures::default(), Measures::default()];
        for number in 1..=1000u64 {
            threads[number as usize % 2].latency(Kind::Get).record(number * 1000);
        }
        threads[0].latency(Kind::Set).record(5_000_000);
        let gets = Distribution::of(Kind::Get, &threads);
        assert_eq!((gets.count(), gets.sum_ns), (1000, 500_500_000));
        for (part, exact_ns) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let told = gets.quantile_ns(part);
            assert!((exact_ns..=exact_ns * 9 / 8 + 1).contains(&told), "{part}: {told}");
        }
        assert_eq!(gets.filled().map(|(_, count)| count).sum::<u64>(), 1000);
        let last = gets.cumulative().last().unwrap();
        assert_eq!(last, (1 << 35, 1000));
        assert_eq!(gets.cumulative().next(), Some((1024, 1)));
        assert!(gets.cumulative().is_sorted());
        assert_eq!(Distribution::of(Kind::Delete, &threads).quantile_ns(0.5), 0);
        assert_eq!(threads[0].operations(), 501);
    }
}
