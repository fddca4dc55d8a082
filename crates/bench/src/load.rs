//! The load phase: writes every record once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stratakv::{CollectionId, Level, Store};
use stratakv_base::random::Random;

use crate::target::{BenchError, Kind, Request, Through, Way};
use crate::value::{ValueSize, Values, key};

/// What to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// How many records.
    pub records: u64,
    /// Writes after that, of records drawn at random: ages the store.
    pub overwrites: u64,
    /// How long their values are.
    pub value: ValueSize,
    /// Through which way in.
    pub target: Kind,
    /// When each is acknowledged.
    pub level: Level,
    /// Threads.
    pub threads: usize,
    /// Requests in flight, over all threads.
    pub clients: usize,
    /// Seed of the values.
    pub seed: u64,
}

/// Writes records `0..records`, then so many of them anew; returns how long it took. `watch` is
/// told now and then how many are done.
///
/// # Errors
/// A write failed.
pub fn load(
    store: Option<&Store>,
    options: &LoadOptions,
    watch: &(dyn Fn(u64) + Sync),
) -> Result<Duration, BenchError> {
    load_through(
        &Through { kind: options.target, store, collection: CollectionId::default(), level: options.level },
        options,
        watch,
    )
}

/// The same through a way of one's own; `target` and `level` of the options do not matter then.
///
/// # Errors
/// As [`load`].
pub fn load_through(
    way: &dyn Way,
    options: &LoadOptions,
    watch: &(dyn Fn(u64) + Sync),
) -> Result<Duration, BenchError> {
    let (threads, depth) = way.spread(options.clients, options.threads);
    let values = Values::new(options.value.max());
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (values, next, done) = (&values, &next, &done);
                scope.spawn(move || load_share(way, options, (thread, depth), values, (next, done), watch))
            })
            .collect();
        let gone = || Err(BenchError::Wrong("a loading thread ended by a panic".into()));
        handles.into_iter().try_for_each(|handle| handle.join().unwrap_or_else(|_| gone()))
    })?;
    Ok(start.elapsed())
}

/// Whether records `0..records` seem to be there: the first, the middle and the last are asked for.
///
/// # Errors
/// One of them is not there, or cannot be read.
pub fn expect_loaded(store: Option<&Store>, target: Kind, records: u64) -> Result<(), BenchError> {
    let mut target = target.open(store, CollectionId::default(), Level::ProcessCrash)?;
    let mut outcomes = Vec::new();
    for record in [0, records / 2, records.saturating_sub(1)] {
        target.submit(record, Request::Read(&key(record)))?;
        target.poll(1, &mut outcomes)?;
        if outcomes.pop().is_none_or(|(_, outcome)| outcome.records == 0) {
            return Err(BenchError::NotLoaded { record, records });
        }
    }
    Ok(())
}

fn load_share(
    way: &dyn Way,
    options: &LoadOptions,
    (thread, depth): (usize, usize),
    values: &Values,
    (next, done): (&AtomicU64, &AtomicU64),
    watch: &(dyn Fn(u64) + Sync),
) -> Result<(), BenchError> {
    let mut target = way.open()?;
    let mut random = Random::new(options.seed ^ (thread as u64) << 32);
    let (mut value, mut outcomes, mut in_flight) = (Vec::new(), Vec::new(), 0);
    loop {
        while in_flight < depth {
            let tick = next.fetch_add(1, Ordering::Relaxed);
            if tick >= options.records.saturating_add(options.overwrites) {
                break;
            }
            let record = if tick < options.records { tick } else { random.below(options.records) };
            values.make(record, options.value.next(&mut random), &mut random, &mut value);
            target.submit(record, Request::Write(&key(record), &value))?;
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok(());
        }
        target.poll((in_flight / 4).max(1), &mut outcomes)?;
        in_flight -= outcomes.len();
        let before = done.fetch_add(outcomes.len() as u64, Ordering::Relaxed);
        watch(before + outcomes.len() as u64);
        outcomes.clear();
    }
}
