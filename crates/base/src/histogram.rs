//! Latencies by buckets that grow: written by one thread, read by any, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Latencies are told apart from this on, and grow by at most an eighth within a bucket.
const UNIT_NS: u64 = 128;
/// Buckets of a histogram: 8 below 1 us, then 8 for each doubling. The last ends at 68.7 s, and has
/// all that is longer.
const BUCKETS: usize = 216;

/// A number written by one thread and read by any: no bus lock, unlike an atomic addition.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// So many more.
    pub fn add(&self, number: u64) {
        self.0.store(self.get().wrapping_add(number), Ordering::Relaxed);
    }

    /// It is this now.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// What it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many operations took how long.
#[derive(Debug)]
pub struct Histogram {
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
    pub fn record(&self, latency_ns: u64) {
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

/// Histograms of several threads, added up.
#[derive(Clone, Debug)]
pub struct Distribution {
    counts: Vec<u64>,
    /// The sum of all latencies, in ns.
    pub sum_ns: u64,
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution { counts: vec![0; BUCKETS], sum_ns: 0 }
    }
}

impl Distribution {
    /// All of these.
    pub fn of<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Distribution {
        let mut all = Distribution::default();
        histograms.into_iter().for_each(|histogram| all.add(histogram));
        all
    }

    /// What one thread has measured, too.
    pub fn add(&mut self, histogram: &Histogram) {
        self.counts.iter_mut().zip(&histogram.buckets).for_each(|(sum, bucket)| *sum += bucket.get());
        self.sum_ns = self.sum_ns.wrapping_add(histogram.sum_ns.get());
    }

    /// What came after `before`, which was the same once.
    pub fn since(&self, before: &Distribution) -> Distribution {
        let counts = self.counts.iter().zip(&before.counts).map(|(now, before)| now.saturating_sub(*before));
        Distribution { counts: counts.collect(), sum_ns: self.sum_ns.wrapping_sub(before.sum_ns) }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many were in flight on average over so many ns, in which these are all that ended: by
    /// Little's law the sum of their latencies over that time.
    pub fn mean_in_flight(&self, elapsed_ns: u64) -> f64 {
        self.sum_ns as f64 / elapsed_ns.max(1) as f64
    }

    /// The latency that this part of the operations (0 to 1) did not exceed, in ns, up to an eighth
    /// too long; 0 if there were none.
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let wanted = (self.count() as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, bucket_end_ns)
    }

    /// Buckets that hold something: where each ends (ns), and how many operations it has.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (bucket_end_ns(bucket), *count))
    }

    /// For each doubling from 1.024 us on: where it ends (ns), and how many operations took less.
    /// The last bucket of all is left to "more".
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
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
        let mut random = crate::random::Random::new(1);
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
        let threads = [Histogram::default(), Histogram::default()];
        let record = |number: u64| threads[number as usize % 2].record(number * 1000);
        (1..=1000).for_each(record);
        let all = Distribution::of(&threads);
        assert_eq!((all.count(), all.sum_ns), (1000, 500_500_000));
        for (part, exact_ns) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let told = all.quantile_ns(part);
            assert!((exact_ns..=exact_ns * 9 / 8 + 1).contains(&told), "{part}: {told}");
        }
        assert_eq!(all.filled().map(|(_, count)| count).sum::<u64>(), 1000);
        assert_eq!((all.cumulative().next(), all.cumulative().last()), (Some((1024, 1)), Some((1 << 35, 1000))));
        assert!(all.cumulative().is_sorted());
        assert_eq!(Distribution::default().quantile_ns(0.5), 0);
        (1001..=1010).for_each(record);
        let later = Distribution::of(&threads).since(&all);
        assert_eq!((later.count(), later.sum_ns), (10, 10_055_000));
        assert!((1_001_000..=1_010_000 * 9 / 8).contains(&later.quantile_ns(0.5)));
    }
}
