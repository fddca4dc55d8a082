//! Random puts into a store of any make, until it is settled. The comparison with others measures
//! by this too.

use std::time::{Duration, Instant};

use crate::distribution::Distribution;
use crate::run::{RunOptions, run_through};
use crate::suite::matrixkv::fills::FillReport;
use crate::target::{BenchError, Kind as TargetKind, Way};
use crate::usage::Usage;
use crate::value::{ValueSize, key};
use crate::workload::{Kind, Workload};

/// A store that writes on after so long has no settled state, or none that is worth waiting for.
const SETTLING_MAX: Duration = Duration::from_secs(600);

/// What to put, and how it is called.
#[derive(Clone, Debug)]
pub struct Fill {
    /// See [`FillReport::store`].
    pub store: String,
    /// See [`FillReport::fast_memory`].
    pub fast_memory: String,
    /// Length of values.
    pub value_bytes: usize,
    /// From 1.
    pub round: usize,
    /// Puts, and how many records they are drawn from.
    pub records: u64,
    /// Puts in flight.
    pub clients: usize,
    /// Threads that put, where the way in lets one thread have several in flight.
    pub threads: usize,
    /// Seed.
    pub seed: u64,
    /// A store is settled when it has written nothing for so long.
    pub quiet: Duration,
}

impl Fill {
    fn options(&self, workload: Workload) -> RunOptions {
        RunOptions {
            workload,
            distribution: Distribution::Uniform,
            records: self.records,
            hot_shard_percent: 0,
            value: ValueSize::Fixed(self.value_bytes),
            // What counts is the `Way`.
            target: TargetKind::Embedded,
            level: stratakv::Level::ProcessCrash,
            threads: self.threads,
            clients: self.clients,
            duration: Duration::from_secs(86_400),
            warm_up: Duration::ZERO,
            operations_max: Some(self.records),
            seed: self.seed,
        }
    }

    /// Puts all there is to put into a store that is empty, then reads, one at a time, until the
    /// store writes nothing more. `told_bytes` is what the store itself says it has written to its
    /// disk, if it says that. The larger of this and the kernel's account of the process counts:
    /// the kernel sees nothing on tmpfs, and the store does not see what lies below it. Whether the
    /// store is at rest it knows best, since others may write in this process.
    ///
    /// # Errors
    /// The store's own.
    pub fn measure(&self, way: &dyn Way, told_bytes: Option<&dyn Fn() -> u64>) -> Result<FillReport, BenchError> {
        let told = || told_bytes.map(|told| told());
        let (before, told_before) = (Usage::now(), told().unwrap_or_default());
        let used = || Usage::now().since(before);
        let written = || used().write_bytes.max(told().unwrap_or_default().saturating_sub(told_before));
        let begun = Instant::now();
        let run = run_through(way, &self.options(Workload::Fill))?;
        let (seconds, cpu, written_bytes_unsettled) = (begun.elapsed().as_secs_f64(), used().cpu, written());
        let is_put = |of: &&crate::OperationReport| of.kind == Kind::Update;
        let puts = run.operations.iter().find(is_put).ok_or_else(|| BenchError::Wrong("nothing was put".into()))?;
        let (settling, is_settled) = self.settle(way, &|| told().unwrap_or_else(&written))?;
        let (written_bytes, user_bytes) = (written(), puts.count * (self.value_bytes + key(0).len()) as u64);
        Ok(FillReport {
            store: self.store.clone(),
            fast_memory: self.fast_memory.clone(),
            value_bytes: self.value_bytes,
            round: self.round,
            threads: run.threads,
            puts: puts.count,
            seconds,
            puts_per_s: puts.count as f64 / seconds.max(1e-9),
            puts_per_s_each: if seconds < 1.0 { Vec::new() } else { run.operations_per_s_each },
            cpu_us_per_put: cpu.as_secs_f64() * 1e6 / puts.count.max(1) as f64,
            latency_us_p50: puts.latency_us_p50,
            latency_us_p99: puts.latency_us_p99,
            latency_us_p99_9: puts.latency_us_p99_9,
            latency_us_p99_99: puts.latency_us_p99_99,
            latency_us_max: puts.latency_us_max,
            user_bytes,
            written_bytes_unsettled,
            written_bytes,
            settling_seconds: settling.as_secs_f64(),
            is_settled,
            pmem_levels_table_bytes: 0,
            write_amplification: written_bytes as f64 / user_bytes.max(1) as f64,
        })
    }

    /// Reads until nothing was written for [`Fill::quiet`]; how long that took, and whether it came
    /// to that.
    fn settle(&self, way: &dyn Way, written: &dyn Fn() -> u64) -> Result<(Duration, bool), BenchError> {
        let begun = Instant::now();
        let mut reads = RunOptions { clients: 1, duration: self.quiet, ..self.options(Workload::C) };
        reads.operations_max = None;
        while begun.elapsed() < SETTLING_MAX {
            let before = written();
            reads.seed += 1;
            run_through(way, &reads)?;
            if written() == before {
                return Ok((begun.elapsed(), true));
            }
        }
        Ok((begun.elapsed(), false))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;

    use super::*;
    use crate::target::{OperationOutcome, Request, Target};

    /// A store that only remembers how often it was asked for what.
    #[derive(Default)]
    struct Counting(Mutex<(u64, u64)>);

    struct CountingTarget<'a>(&'a Counting, Vec<(u64, OperationOutcome)>);

    impl Target for CountingTarget<'_> {
        fn submit(&mut self, tag: u64, request: Request<'_>) -> Result<(), BenchError> {
            let mut counts = self.0.0.lock().expect("nobody panics");
            match request {
                Request::Write(..) => counts.0 += 1,
                _ => counts.1 += 1,
            }
            self.1.push((tag, OperationOutcome::default()));
            Ok(())
        }

        fn poll(&mut self, _: usize, done: &mut Vec<(u64, OperationOutcome)>) -> Result<(), BenchError> {
            done.append(&mut self.1);
            Ok(())
        }
    }

    /// `Way::open` gives what outlives it.
    struct Shared(&'static Counting);

    impl Way for Shared {
        fn name(&self) -> String {
            "counting".into()
        }
        fn spread(&self, clients: usize, _: usize) -> (usize, usize) {
            (clients, 1)
        }
        fn open(&self) -> Result<Box<dyn Target>, BenchError> {
            Ok(Box::new(CountingTarget(self.0, Vec::new())))
        }
    }

    fn fill() -> Fill {
        Fill {
            store: "counting".into(),
            fast_memory: String::new(),
            value_bytes: 100,
            round: 2,
            records: 5000,
            clients: 2,
            threads: 1,
            seed: 3,
            quiet: Duration::from_millis(5),
        }
    }

    #[test]
    fn what_is_owed_at_the_last_answer_is_counted() {
        let counting: &'static Counting = Box::leak(Box::default());
        // What the store says it has written: 100 KB from the last put on in each of four slices
        // more, then no more.
        let asked = Cell::new(0u64);
        let told = || {
            let (puts, reads) = *counting.0.lock().expect("nobody panics");
            asked.set(asked.get() + 1);
            match (puts, reads) {
                (5000, 1..) => 1_000_000_000 + 100_000 * asked.get().min(10),
                (5000, 0) => 1_000_000_000,
                _ => 7,
            }
        };
        let report = fill().measure(&Shared(counting), Some(&told)).expect("a run");
        assert_eq!((report.puts, report.user_bytes, report.round), (5000, 5000 * 124, 2));
        assert_eq!((report.written_bytes_unsettled, report.written_bytes), (999_999_993, 1_000_999_993));
        assert!(report.is_settled && report.settling_seconds > 0.01, "{report:?}");
        assert!((report.write_amplification - 1_000_999_993.0 / 620_000.0).abs() < 1e-6, "{report:?}");
        assert!(report.puts_per_s > 5000.0 && report.puts_per_s_each.is_empty(), "{report:?}");
    }
}
