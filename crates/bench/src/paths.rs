//! The four paths of one get: blocking hit, blocking miss, future, server. One request at a time,
//! so that each path's own cost shows.

use std::net::SocketAddr;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;
use stratakv::{CollectionId, Level, Store};
use stratakv_base::random::Random;

use crate::target::{BenchError, Kind, Request};
use crate::value::key;

/// Latency of one path.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// Which.
    pub path: &'static str,
    /// Gets timed.
    pub count: u64,
    /// Pages that were read from the device for them.
    pub page_reads: u64,
    /// Median, in microseconds.
    pub latency_us_p50: f64,
    /// 99 %, in microseconds.
    pub latency_us_p99: f64,
}

impl PathReport {
    /// It should have read from the device and did not, or seldom: what it timed are hits.
    pub fn missed_the_point(&self) -> bool {
        self.path.ends_with("miss") && self.page_reads < self.count / 2
    }
}

/// Times `count` gets on each path. Hits ask again and again for the same 64 records; misses ask
/// for records spread over all `records`, so the cache must be far smaller than the data.
///
/// # Errors
/// A get failed.
pub fn measure(
    store: &Store,
    server: Option<SocketAddr>,
    records: u64,
    count: u64,
) -> Result<Vec<PathReport>, BenchError> {
    let mut reports = Vec::new();
    let mut time = |path, kind: Kind, hot: bool| -> Result<(), BenchError> {
        reports.push(one_path(path, kind, store, if hot { 64.min(records) } else { records }, count)?);
        Ok(())
    };
    time("blocking hit", Kind::Blocking, true)?;
    time("blocking miss", Kind::Blocking, false)?;
    time("async hit", Kind::Async, true)?;
    time("async miss", Kind::Async, false)?;
    time("session hit", Kind::Embedded, true)?;
    time("session miss", Kind::Embedded, false)?;
    if let Some(address) = server {
        time("server hit", Kind::Memcache(address), true)?;
        time("server miss", Kind::Memcache(address), false)?;
    }
    Ok(reports)
}

fn page_reads(store: &Store) -> u64 {
    store.stats().iter().filter(|one| one.name == "page_reads").map(|one| one.value).sum()
}

fn one_path(path: &'static str, kind: Kind, store: &Store, among: u64, count: u64) -> Result<PathReport, BenchError> {
    let mut target = kind.open(Some(store), CollectionId::default(), Level::PowerLoss)?;
    // Another sequence for each path: what one path has read would be a hit for the next.
    let mut random = Random::new(path.bytes().fold(11, |seed, byte| u64::wrapping_mul(seed, 31) + u64::from(byte)));
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 120_000_000_000, 3)
        .map_err(|error| BenchError::Wrong(error.to_string()))?;
    let mut done = Vec::new();
    let warm_up = 2 * 64;
    let mut reads_before = page_reads(store);
    for tick in 0..count + warm_up {
        if tick == warm_up {
            reads_before = page_reads(store);
        }
        let record = if among <= 64 { tick % among } else { random.below(among) };
        let begun = Instant::now();
        target.submit(0, Request::Read(&key(record)))?;
        target.poll(1, &mut done)?;
        let nanoseconds = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if done.pop().is_none_or(|(_, outcome)| outcome.records == 0) {
            return Err(BenchError::Wrong(format!("record {record} is not there: load the store first")));
        }
        if tick >= warm_up {
            histogram.saturating_record(nanoseconds.max(1));
        }
    }
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    let page_reads = page_reads(store).saturating_sub(reads_before);
    Ok(PathReport { path, count, page_reads, latency_us_p50: at(0.5), latency_us_p99: at(0.99) })
}
