//! What a run measured, for people and as JSON.

use std::fmt;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::environment::{Environment, StoreSettings, cpu_model, read_line};
use crate::explain::Explanation;
use crate::run::RunOptions;
use crate::value::ValueSize;
use crate::workload::Kind;

/// Latencies of one kind of operation, in microseconds from submission to answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationReport {
    /// Which.
    pub kind: Kind,
    /// How many.
    pub count: u64,
    /// Mean.
    pub latency_us_mean: f64,
    /// Half were faster.
    pub latency_us_p50: f64,
    /// Nine in ten were faster.
    pub latency_us_p90: f64,
    /// 99 %.
    pub latency_us_p99: f64,
    /// 99.9 %.
    pub latency_us_p99_9: f64,
    /// 99.99 %.
    pub latency_us_p99_99: f64,
    /// The slowest.
    pub latency_us_max: f64,
    /// At each of [`CURVE`], in its order; empty in reports of earlier versions.
    #[serde(default)]
    pub latency_us_curve: Vec<f64>,
}

/// Shares of the operations that were faster, of the curve in reports: each step is further into
/// the tail than the one before. With their names.
pub const CURVE: [(f64, &str); 14] = [
    (0.01, "p1"),
    (0.1, "p10"),
    (0.25, "p25"),
    (0.5, "p50"),
    (0.75, "p75"),
    (0.9, "p90"),
    (0.95, "p95"),
    (0.99, "p99"),
    (0.995, "p99.5"),
    (0.999, "p99.9"),
    (0.9995, "p99.95"),
    (0.9999, "p99.99"),
    (0.99999, "p99.999"),
    (1.0, "max"),
];

impl OperationReport {
    /// From a histogram in nanoseconds.
    pub fn new(kind: Kind, histogram: &Histogram<u64>) -> OperationReport {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        OperationReport {
            kind,
            count: histogram.len(),
            latency_us_mean: histogram.mean() / 1e3,
            latency_us_p50: at(0.5),
            latency_us_p90: at(0.9),
            latency_us_p99: at(0.99),
            latency_us_p99_9: at(0.999),
            latency_us_p99_99: at(0.9999),
            latency_us_max: histogram.max() as f64 / 1e3,
            latency_us_curve: CURVE.iter().map(|(share, _)| at(*share).min(histogram.max() as f64 / 1e3)).collect(),
        }
    }

    /// The curve as places in [`CURVE`] and latencies; of reports without one, what they have.
    pub fn curve(&self) -> Vec<(usize, f64)> {
        if !self.latency_us_curve.is_empty() {
            return self.latency_us_curve.iter().copied().enumerate().take(CURVE.len()).collect();
        }
        let few = [
            ("p50", self.latency_us_p50),
            ("p90", self.latency_us_p90),
            ("p99", self.latency_us_p99),
            ("p99.9", self.latency_us_p99_9),
            ("p99.99", self.latency_us_p99_99),
            ("max", self.latency_us_max),
        ];
        let place = |wanted| CURVE.iter().position(|(_, name)| *name == wanted);
        few.iter().filter_map(|(name, us)| Some((place(*name)?, *us))).collect()
    }
}

/// A run: what was asked, where it ran, what came out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Version of this JSON's shape.
    pub schema: u32,
    /// `a` to `f`, or `production`.
    pub workload: String,
    /// `uniform`, `zipfian` or `latest`.
    pub distribution: String,
    /// Through which way in.
    pub target: String,
    /// Durability level of writes.
    pub durability: String,
    /// Records loaded.
    pub records: u64,
    /// Length of values, in bytes, or `production`.
    pub value_size: String,
    /// Threads.
    pub threads: usize,
    /// Requests in flight.
    pub clients: usize,
    /// Seconds that count.
    pub seconds: u64,
    /// Seed.
    pub seed: u64,
    /// CPU model.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// Kernel.
    pub kernel: String,
    /// Version of this program.
    pub version: String,
    /// Operations answered in a second, on average.
    pub operations_per_s: f64,
    /// In the slowest second.
    pub operations_per_s_min: u64,
    /// In each second.
    pub operations_per_s_each: Vec<u64>,
    /// Latencies.
    pub operations: Vec<OperationReport>,
    /// Reads that found no record.
    pub missing: u64,
    /// Records that scans returned.
    pub records_scanned: u64,
    /// Records there are afterwards.
    pub records_after: u64,
    /// Processor time of this process for each operation, the kernel's included (against a server:
    /// the client's share only).
    pub cpu_us_per_operation: f64,
    /// Bytes this process asked of storage for each operation.
    pub device_read_bytes_per_operation: f64,
    /// Bytes this process sent to storage for each operation.
    pub device_write_bytes_per_operation: f64,
    /// Bytes of keys and values that users wrote, for each operation; 0 in reports of earlier
    /// versions.
    #[serde(default)]
    pub user_write_bytes_per_operation: f64,
    /// Bytes that the store itself says it has written to its volumes, for each operation; 0 where
    /// it does not tell.
    #[serde(default)]
    pub store_write_bytes_per_operation: f64,
    /// Where the time went, of a store that was embedded.
    #[serde(default)]
    pub explanation: Option<Explanation>,
    /// Where and how it was measured; `None` in reports of earlier versions.
    #[serde(default)]
    pub environment: Option<Environment>,
    /// What the store was opened with; `None` against a server, and in earlier reports.
    #[serde(default)]
    pub store: Option<StoreSettings>,
}

impl Report {
    /// Operations that write, answered in a second.
    pub fn writes_per_s(&self) -> f64 {
        let count = |writes: bool| -> u64 {
            let some = self.operations.iter().filter(|one| !writes || !matches!(one.kind, Kind::Read | Kind::Scan));
            some.map(|one| one.count).sum()
        };
        self.operations_per_s * count(true) as f64 / count(false).max(1) as f64
    }

    /// Operations of the slowest second for each of a mean one; `None` without a second.
    pub fn slowest_share(&self) -> Option<f64> {
        (self.operations_per_s > 0.0 && !self.operations_per_s_each.is_empty())
            .then(|| self.operations_per_s_min as f64 / self.operations_per_s)
    }

    /// Bytes to the device for each byte that users wrote. The larger of two accounts counts: the
    /// kernel's of the process, which sees nothing on tmpfs, and the store's own. `None` if nothing
    /// was written, or the run was against a server, whose bytes are not of this process.
    pub fn write_amplification(&self) -> Option<f64> {
        let written = self.device_write_bytes_per_operation.max(self.store_write_bytes_per_operation);
        let is_seen = self.user_write_bytes_per_operation > 0.0 && written > 0.0 && !self.is_of_server();
        is_seen.then(|| written / self.user_write_bytes_per_operation)
    }

    /// Whether a server did the work: then processor time and bytes of this process are its
    /// client's.
    pub fn is_of_server(&self) -> bool {
        self.target.contains("://")
    }

    /// Everything but the results.
    pub fn describe(options: &RunOptions) -> Report {
        let (threads, depth) = options.target.spread(options.clients, options.threads);
        let lower = |value: &dyn fmt::Debug| format!("{value:?}").to_ascii_lowercase();
        Report {
            schema: 1,
            workload: lower(&options.workload),
            distribution: lower(&options.distribution),
            target: options.target.name(),
            durability: options.level.name().into(),
            records: options.records,
            value_size: match options.value {
                ValueSize::Fixed(bytes) => bytes.to_string(),
                ValueSize::Production => "production".into(),
            },
            threads,
            clients: threads * depth,
            seconds: options.duration.as_secs(),
            seed: options.seed,
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            version: env!("CARGO_PKG_VERSION").into(),
            ..Report::default()
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "workload {} {} over {}, {} records of {} B, {} in flight from {} threads, {}",
            self.workload,
            self.distribution,
            self.target,
            self.records,
            self.value_size,
            self.clients,
            self.threads,
            self.durability
        )?;
        writeln!(
            f,
            "{:.0} operations/s over {} s, slowest second {}",
            self.operations_per_s, self.seconds, self.operations_per_s_min
        )?;
        writeln!(
            f,
            "{:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "latency in µs", "count", "mean", "p50", "p99", "p99.9", "p99.99", "max"
        )?;
        for one in &self.operations {
            writeln!(
                f,
                "{:<18}{:>10}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.0}",
                one.kind.name(),
                one.count,
                one.latency_us_mean,
                one.latency_us_p50,
                one.latency_us_p99,
                one.latency_us_p99_9,
                one.latency_us_p99_99,
                one.latency_us_max
            )?;
        }
        writeln!(
            f,
            "for each operation: {:.1} µs of processor, {:.0} B read from storage, {:.0} B written to it",
            self.cpu_us_per_operation, self.device_read_bytes_per_operation, self.device_write_bytes_per_operation
        )?;
        if self.missing > 0 {
            writeln!(f, "{} reads found no record", self.missing)?;
        }
        Ok(())
    }
}
