//! The run phase: a closed loop with a fixed number of requests in flight, timed from submission.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use stratakv::{CollectionId, Key, Level, Store};
use stratakv_base::random::Random;
use stratakv_base::slots::Slots;

use crate::distribution::Distribution;
use crate::explain::{Explanation, Window};
use crate::report::{OperationReport, Report};
use crate::stages;
use crate::target::{BenchError, Kind as TargetKind, OperationOutcome, Request, Target, Through, Way};
use crate::usage::Usage;
use crate::value::{ValueSize, Values, key};
use crate::workload::{Action, Generator, Kind, Workload};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Which operations.
    pub workload: Workload,
    /// On which records.
    pub distribution: Distribution,
    /// Records loaded.
    pub records: u64,
    /// Of 100 choices, so many fall on records of the store's shard 0, and are distributed among
    /// them; 0: as they fall.
    pub hot_shard_percent: u32,
    /// Length of values written.
    pub value: ValueSize,
    /// Through which way in.
    pub target: TargetKind,
    /// When writes are acknowledged.
    pub level: Level,
    /// Threads.
    pub threads: usize,
    /// Requests in flight, over all threads.
    pub clients: usize,
    /// How long it counts.
    pub duration: Duration,
    /// How long it runs before it counts.
    pub warm_up: Duration,
    /// It ends after so many operations, if that is earlier.
    pub operations_max: Option<u64>,
    /// Seed.
    pub seed: u64,
}

/// Histograms of one thread, by kind, in nanoseconds; operations completed in each second.
struct Tally {
    latencies: Vec<Histogram<u64>>,
    seconds: Vec<u64>,
    missing: u64,
    scanned: u64,
    /// Bytes of keys and values that were written.
    written: u64,
    /// Of the last operation.
    end: Duration,
}

impl Tally {
    fn new(duration: Duration) -> Tally {
        // Three significant digits up to two minutes.
        let histogram = || {
            Histogram::new_with_bounds(1, 120_000_000_000, 3)
                .unwrap_or_else(|_| Histogram::new(3).expect("3 digits are legal"))
        };
        Tally {
            latencies: Kind::ALL.iter().map(|_| histogram()).collect(),
            seconds: vec![0; duration.as_secs() as usize + 1],
            missing: 0,
            scanned: 0,
            written: 0,
            end: Duration::ZERO,
        }
    }

    fn add(&mut self, other: &Tally) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            // Equal bounds: cannot fail.
            let _ = mine.add(theirs);
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            *mine += theirs;
        }
        self.missing += other.missing;
        self.scanned += other.scanned;
        self.written += other.written;
        self.end = self.end.max(other.end);
    }
}

/// Runs a workload.
///
/// # Errors
/// An operation failed, or a value did not belong to its key.
pub fn run(store: Option<&Store>, options: &RunOptions) -> Result<Report, BenchError> {
    let way = Through { kind: options.target, store, collection: CollectionId::default(), level: options.level };
    let mut generator = generator(options);
    if let (Some(store), 1..) = (store, options.hot_shard_percent) {
        let store = store.clone();
        let is_hot = move |record| {
            let key = Key::new(CollectionId::default(), &key(record));
            key.is_ok_and(|key| store.shard_of(&key) == 0)
        };
        generator = generator.with_focus(options.hot_shard_percent, Box::new(is_hot));
    }
    run_with(&way, options, &generator)
}

fn generator(options: &RunOptions) -> Generator {
    Generator::new(options.workload, options.distribution, options.records)
}

/// The same through a way of one's own; `target` of the options does not matter then.
///
/// # Errors
/// As [`run`].
pub fn run_through(way: &dyn Way, options: &RunOptions) -> Result<Report, BenchError> {
    run_with(way, options, &generator(options))
}

fn run_with(way: &dyn Way, options: &RunOptions, generator: &Generator) -> Result<Report, BenchError> {
    let (threads, depth) = way.spread(options.clients, options.threads);
    let values = Values::new(options.value.max());
    let (begun, barrier) = (AtomicU64::new(0), Barrier::new(threads + 1));
    let (at_work, ended) = mpsc::channel::<()>();
    let (tallies, (used, told, explanation)): (Result<Vec<Tally>, BenchError>, _) = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (generator, values, begun, barrier) = (generator, &values, &begun, &barrier);
                let at_work = at_work.clone();
                scope.spawn(move || {
                    let _at_work = at_work;
                    let target = way.open();
                    barrier.wait();
                    Client::new(target?, options, generator, (values, begun), (thread, depth)).run()
                })
            })
            .collect();
        drop(at_work);
        barrier.wait();
        let used = usage_while_counted(options, way.store(), &ended);
        let gone = || Err(BenchError::Wrong("a client thread ended by a panic".into()));
        (handles.into_iter().map(|handle| handle.join().unwrap_or_else(|_| gone())).collect(), used)
    });
    let mut sum = Tally::new(options.duration);
    tallies?.iter().for_each(|tally| sum.add(tally));
    let mut report = report(options, &sum, used, told);
    (report.target, report.threads, report.clients) = (way.name(), threads, threads * depth);
    let answered_writes_per_s = report.writes_per_s();
    report.explanation = explanation.map(|found| {
        let mut found = Explanation { clients: report.clients as f64, answered_writes_per_s, ..found };
        stages::add_outside(&mut found.stages, &report.operations);
        found
    });
    report.records_after = generator.records();
    Ok(report)
}

/// What the process uses, and what the store says it has written to its volumes, from the end of
/// the warm-up until nothing is counted any more. Ends early when all clients have.
fn usage_while_counted(
    options: &RunOptions,
    store: Option<&Store>,
    ended: &mpsc::Receiver<()>,
) -> (Usage, u64, Option<Explanation>) {
    // Nothing is ever sent: this waits for the time, or for all senders to be gone.
    let _ = ended.recv_timeout(options.warm_up);
    let (mut window, begun) = (Window::open(store), Instant::now());
    for _ in 0..options.duration.as_secs() {
        if ended.recv_timeout(window.left()) == Err(mpsc::RecvTimeoutError::Disconnected) {
            break;
        }
        window.second();
    }
    // What is left is no whole second.
    let _ = ended.recv_timeout(options.duration.saturating_sub(begun.elapsed()));
    window.close()
}

fn report(options: &RunOptions, sum: &Tally, used: Usage, told: u64) -> Report {
    // The last, partial second is not a second.
    let whole = if options.operations_max.is_some() { sum.end.min(options.duration) } else { options.duration };
    let seconds = sum.seconds[..whole.as_secs().max(1) as usize].to_vec();
    let operations: Vec<OperationReport> = Kind::ALL
        .iter()
        .zip(&sum.latencies)
        .filter(|(_, histogram)| !histogram.is_empty())
        .map(|(kind, histogram)| OperationReport::new(*kind, histogram))
        .collect();
    let total: u64 = seconds.iter().sum();
    let counted = total.max(1) as f64;
    Report {
        operations_per_s: total as f64 / seconds.len() as f64,
        operations_per_s_min: seconds.iter().copied().min().unwrap_or_default(),
        operations_per_s_each: seconds,
        operations,
        missing: sum.missing,
        records_scanned: sum.scanned,
        cpu_us_per_operation: used.cpu.as_secs_f64() * 1e6 / counted,
        device_read_bytes_per_operation: used.read_bytes as f64 / counted,
        device_write_bytes_per_operation: used.write_bytes as f64 / counted,
        user_write_bytes_per_operation: sum.written as f64 / counted,
        store_write_bytes_per_operation: told as f64 / counted,
        ..Report::describe(options)
    }
}

/// One thread's closed loop.
struct Client<'a> {
    target: Box<dyn Target>,
    options: &'a RunOptions,
    generator: &'a Generator,
    values: &'a Values,
    /// Operations that all threads have begun, if these are limited.
    begun: &'a AtomicU64,
    random: Random,
    depth: usize,
    slots: Slots<Slot, u64>,
    tally: Tally,
    value: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Slot {
    action: Action,
    begun: Instant,
    /// Read-modify-write: the read is done, the write under way.
    writing: bool,
    /// Bytes of key and value that it writes.
    bytes: usize,
}

impl<'a> Client<'a> {
    fn new(
        target: Box<dyn Target>,
        options: &'a RunOptions,
        generator: &'a Generator,
        (values, begun): (&'a Values, &'a AtomicU64),
        (thread, depth): (usize, usize),
    ) -> Client<'a> {
        Client {
            target,
            options,
            generator,
            values,
            begun,
            random: Random::new(options.seed.wrapping_add(1 + thread as u64)),
            depth,
            slots: Slots::default(),
            tally: Tally::new(options.duration),
            value: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Tally, BenchError> {
        let start = Instant::now();
        let (counted_from, end) = (start + self.options.warm_up, start + self.options.warm_up + self.options.duration);
        let mut done = Vec::new();
        let mut now = start;
        loop {
            while now < end && self.in_flight() < self.depth && self.may_begin() {
                self.begin()?;
            }
            if self.in_flight() == 0 {
                return Ok(self.tally);
            }
            self.target.poll((self.in_flight() / 4).max(1), &mut done)?;
            now = Instant::now();
            for (tag, outcome) in done.drain(..) {
                self.finish(tag, outcome, now, counted_from)?;
            }
        }
    }

    /// Whether there are operations left to begin; takes one.
    fn may_begin(&self) -> bool {
        let Some(max) = self.options.operations_max else { return true };
        self.begun.fetch_add(1, Ordering::Relaxed) < max
    }

    fn in_flight(&self) -> usize {
        self.slots.len()
    }

    fn begin(&mut self) -> Result<(), BenchError> {
        let action = self.generator.next(&mut self.random);
        let writing = matches!(action.kind, Kind::Update | Kind::Insert);
        self.submit(Slot { action, begun: Instant::now(), writing, bytes: 0 })
    }

    fn submit(&mut self, mut slot: Slot) -> Result<(), BenchError> {
        let Slot { action, writing, .. } = slot;
        let key = key(action.record);
        if writing {
            let bytes = self.options.value.next(&mut self.random);
            self.values.make(action.record, bytes, &mut self.random, &mut self.value);
            slot.bytes = key.len() + bytes;
            let tag = self.slots.insert(slot);
            return self.target.submit(tag, Request::Write(&key, &self.value));
        }
        let tag = self.slots.insert(slot);
        let request = if action.kind == Kind::Scan { Request::Scan(&key, action.len) } else { Request::Read(&key) };
        self.target.submit(tag, request)
    }

    fn finish(
        &mut self,
        tag: u64,
        outcome: OperationOutcome,
        now: Instant,
        counted_from: Instant,
    ) -> Result<(), BenchError> {
        let Some(slot) = self.slots.remove(tag) else {
            return Err(BenchError::Wrong("an operation was answered that is not in flight".into()));
        };
        let Action { kind, record, .. } = slot.action;
        if !slot.writing && kind != Kind::Scan {
            if outcome.records == 0 {
                self.tally.missing += 1;
            } else if !Values::belongs(record, outcome.front.bytes()) {
                return Err(BenchError::Wrong(format!("record {record} was answered with the value of another")));
            }
        }
        if kind == Kind::ReadModifyWrite && !slot.writing {
            return self.submit(Slot { writing: true, ..slot });
        }
        if kind == Kind::Insert {
            self.generator.inserted(record);
        }
        self.tally.scanned += u64::from(if kind == Kind::Scan { outcome.records } else { 0 });
        let Some(at) = now.checked_duration_since(counted_from) else { return Ok(()) };
        self.tally.end = at;
        self.tally.written += slot.bytes as u64;
        if let Some(second) = self.tally.seconds.get_mut(at.as_secs() as usize) {
            *second += 1;
        }
        let place = Kind::ALL.iter().position(|other| *other == kind).unwrap_or_default();
        let latency = u64::try_from(now.duration_since(slot.begun).as_nanos()).unwrap_or(u64::MAX);
        self.tally.latencies[place].saturating_record(latency);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_counted_for_as_long_as_was_asked_also_within_a_second() {
        let options = RunOptions {
            workload: "a".parse().unwrap(),
            distribution: Distribution::Uniform,
            records: 1,
            hot_shard_percent: 0,
            value: ValueSize::Fixed(1),
            target: TargetKind::Embedded,
            level: Level::ProcessCrash,
            threads: 1,
            clients: 1,
            duration: Duration::from_millis(60),
            warm_up: Duration::ZERO,
            operations_max: None,
            seed: 1,
        };
        let (at_work, ended) = mpsc::channel::<()>();
        let begun = Instant::now();
        let _used = usage_while_counted(&options, None, &ended);
        assert!(begun.elapsed() >= options.duration, "{:?}", begun.elapsed());
        // Nobody is at work any more: it does not wait.
        drop(at_work);
        let hour = RunOptions { duration: Duration::from_secs(3600), ..options };
        let _used = usage_while_counted(&hour, None, &ended);
    }
}
