//! Bytes that background work moved in each second of a run: what makes throughput come in waves.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stratakv::Store;

/// Statistics that count bytes of background work, of any engine.
const COUNTERS: &[&str] = &[
    "checkpoint_bytes",
    "cleaned_bytes",
    "reclustered_bytes",
    "sorted_bytes",
    "sort_read_bytes",
    "cleaner_read_bytes",
    "table_write_bytes",
    "value_write_bytes",
    "pmem_levels_write_bytes",
    "compacted_bytes",
    "spilled_bytes",
    "scrubbed_bytes",
];

/// Bytes of one kind of background work, in each whole second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Background {
    /// The statistic that counts them.
    pub name: String,
    /// In each second.
    pub bytes_each: Vec<u64>,
}

impl Background {
    /// Bytes in a second, on average.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes_each.iter().sum::<u64>() as f64 / self.bytes_each.len().max(1) as f64
    }

    /// The busiest second by the mean one; 1 is flat.
    pub fn peak(&self) -> f64 {
        let most = self.bytes_each.iter().max().copied().unwrap_or_default();
        most as f64 / self.bytes_per_s().max(1e-9)
    }

    /// Share of the seconds that are within a tenth of the mean.
    pub fn steady(&self) -> f64 {
        let mean = self.bytes_per_s();
        let near = self.bytes_each.iter().filter(|bytes| (**bytes as f64 - mean).abs() <= mean / 10.0);
        near.count() as f64 / self.bytes_each.len().max(1) as f64
    }
}

/// Reads the counters of a store once a second.
pub(crate) struct Sampler<'a> {
    store: Option<&'a Store>,
    next: Instant,
    last: Vec<u64>,
    seconds: Vec<Vec<u64>>,
}

impl<'a> Sampler<'a> {
    /// Of a store, from now on; of none, nothing is read.
    pub(crate) fn new(store: Option<&'a Store>) -> Sampler<'a> {
        let next = Instant::now() + Duration::from_secs(1);
        Sampler { store, next, last: read(store), seconds: Vec::new() }
    }

    /// How long until a second is over.
    pub(crate) fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// A second is over.
    pub(crate) fn second(&mut self) {
        let now = read(self.store);
        self.seconds.push(now.iter().zip(&self.last).map(|(now, last)| now.saturating_sub(*last)).collect());
        self.last = now;
        self.next += Duration::from_secs(1);
    }

    /// What there was of each kind that there was any of.
    pub(crate) fn finish(self) -> Vec<Background> {
        let of = |at: usize| self.seconds.iter().map(|second| second.get(at).copied().unwrap_or_default()).collect();
        let all = COUNTERS.iter().enumerate().map(|(at, name)| Background { name: (*name).into(), bytes_each: of(at) });
        all.filter(|one| one.bytes_each.iter().any(|bytes| *bytes > 0)).collect()
    }
}

/// The counters now, those of all shards together.
fn read(store: Option<&Store>) -> Vec<u64> {
    let statistics = store.map(Store::stats).unwrap_or_default();
    let sum = |name: &&str| statistics.iter().filter(|one| one.name == *name).map(|one| one.value).sum();
    COUNTERS.iter().map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_is_told_from_a_steady_rate() {
        let wave = Background { name: "checkpoint_bytes".into(), bytes_each: vec![0, 0, 0, 40] };
        assert_eq!((wave.bytes_per_s(), wave.peak(), wave.steady()), (10.0, 4.0, 0.0));
        let flat = Background { name: "cleaned_bytes".into(), bytes_each: vec![100, 95, 105, 100] };
        assert_eq!((flat.bytes_per_s(), flat.steady()), (100.0, 1.0));
        assert!(flat.peak() < 1.06);
    }

    #[test]
    fn kinds_of_which_there_was_nothing_are_left_out() {
        let mut sampler = Sampler::new(None);
        sampler.second();
        sampler.seconds.push([&[7][..], &[0; COUNTERS.len() - 1]].concat());
        let found = sampler.finish();
        assert_eq!(found, [Background { name: COUNTERS[0].into(), bytes_each: vec![0, 7] }]);
    }
}
