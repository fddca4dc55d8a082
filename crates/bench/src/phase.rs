//! One phase of a suite: how many operations of one kind, how long they took, on the clock and of
//! processor, and how long each.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::target::BenchError;
use crate::usage::Usage;

/// What was measured of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Which store.
    pub subject: String,
    /// Which phase.
    pub phase: String,
    /// Operations.
    pub operations: u64,
    /// How long they took, on the clock.
    pub seconds: f64,
    /// Processor time of the whole process meanwhile, the kernel's work for it included.
    pub cpu_seconds: f64,
    /// Operations in a second of the clock.
    pub operations_per_s: f64,
    /// Operations in a second of one processor: on a machine with other work, this is the figure
    /// that repeats.
    pub operations_per_cpu_s: f64,
    /// Half of the operations were faster.
    pub latency_us_p50: f64,
    /// 99 %.
    pub latency_us_p99: f64,
    /// 99.9 %.
    pub latency_us_p99_9: f64,
}

impl PhaseReport {
    /// The figures of several rounds of the same phase: of each the median, of an even number the
    /// upper of the two in the middle. Default of none.
    pub fn median(rounds: &[&PhaseReport]) -> PhaseReport {
        let Some(first) = rounds.first() else { return PhaseReport::default() };
        let middle = |figure: fn(&PhaseReport) -> f64| {
            let mut sorted: Vec<f64> = rounds.iter().map(|round| figure(round)).collect();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).copied().unwrap_or_default()
        };
        PhaseReport {
            subject: first.subject.clone(),
            phase: first.phase.clone(),
            operations: first.operations,
            seconds: middle(|one| one.seconds),
            cpu_seconds: middle(|one| one.cpu_seconds),
            operations_per_s: middle(|one| one.operations_per_s),
            operations_per_cpu_s: middle(|one| one.operations_per_cpu_s),
            latency_us_p50: middle(|one| one.latency_us_p50),
            latency_us_p99: middle(|one| one.latency_us_p99),
            latency_us_p99_9: middle(|one| one.latency_us_p99_9),
        }
    }

    /// The median of each phase of each subject, in the order in which they come first.
    pub fn medians(rounds: &[PhaseReport]) -> Vec<PhaseReport> {
        let mut names: Vec<(&str, &str)> = Vec::new();
        for one in rounds {
            if !names.contains(&(&one.subject, &one.phase)) {
                names.push((&one.subject, &one.phase));
            }
        }
        let of = |(subject, phase): (&str, &str)| -> Vec<&PhaseReport> {
            rounds.iter().filter(|one| one.subject == subject && one.phase == phase).collect()
        };
        names.into_iter().map(|name| PhaseReport::median(&of(name))).collect()
    }
}

/// Latencies in nanoseconds: three significant digits, up to two minutes.
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    ///
    /// # Errors
    /// Never, as the bounds are legal; so that nobody has to take that on trust.
    pub fn new() -> Result<Latencies, BenchError> {
        let histogram = Histogram::new_with_bounds(1, 120_000_000_000, 3);
        histogram.map(Latencies).map_err(|error| BenchError::Wrong(error.to_string()))
    }

    /// Does it, and notes how long it took.
    ///
    /// # Errors
    /// What `operation` says; then nothing is noted.
    pub fn time<T>(&mut self, operation: impl FnOnce() -> Result<T, BenchError>) -> Result<T, BenchError> {
        let begun = Instant::now();
        let outcome = operation()?;
        self.note(begun.elapsed());
        Ok(outcome)
    }

    /// Another operation.
    pub fn note(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// All of the other's too.
    ///
    /// # Errors
    /// Never, as bounds are equal.
    pub fn add(&mut self, other: &Latencies) -> Result<(), BenchError> {
        self.0.add(&other.0).map_err(|error| BenchError::Wrong(error.to_string()))
    }
}

/// A phase under way.
pub struct Meter {
    begun: Instant,
    before: Usage,
}

impl Meter {
    /// It begins now.
    pub fn start() -> Meter {
        Meter { before: Usage::now(), begun: Instant::now() }
    }

    /// It has ended: so many operations were done, of whatever number `latencies` are.
    pub fn finish(self, subject: &str, phase: &str, operations: u64, latencies: &Latencies) -> PhaseReport {
        let seconds = self.begun.elapsed().as_secs_f64();
        let cpu_seconds = Usage::now().since(self.before).cpu.as_secs_f64();
        let rate = |seconds: f64| operations as f64 / seconds.max(1e-9);
        let at = |quantile| latencies.0.value_at_quantile(quantile) as f64 / 1e3;
        let report = PhaseReport {
            subject: subject.to_owned(),
            phase: phase.to_owned(),
            operations,
            seconds,
            cpu_seconds,
            operations_per_s: rate(seconds),
            operations_per_cpu_s: rate(cpu_seconds),
            latency_us_p50: at(0.5),
            latency_us_p99: at(0.99),
            latency_us_p99_9: at(0.999),
        };
        tracing::info!(subject, phase, operations, seconds, "measured");
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(subject: &str, phase: &str, seconds: f64) -> PhaseReport {
        PhaseReport { subject: subject.into(), phase: phase.into(), seconds, ..PhaseReport::default() }
    }

    #[test]
    fn medians_are_of_one_phase_of_one_subject() {
        let rounds = [
            round("hash", "fill", 3.0),
            round("slab", "fill", 9.0),
            round("hash", "fill", 1.0),
            round("hash", "read", 7.0),
            round("hash", "fill", 2.0),
        ];
        let medians = PhaseReport::medians(&rounds);
        assert_eq!(medians, [round("hash", "fill", 2.0), round("slab", "fill", 9.0), round("hash", "read", 7.0)]);
    }

    #[test]
    fn what_failed_is_not_timed() {
        let mut latencies = Latencies::new().unwrap();
        assert_eq!(latencies.time(|| Ok(5)).unwrap(), 5);
        assert!(latencies.time(|| Err::<(), _>(BenchError::NoScans("it"))).is_err());
        let report = Meter::start().finish("hash", "read", 10, &latencies);
        assert_eq!((latencies.0.len(), report.operations), (1, 10));
        assert!(report.operations_per_s > 0.0 && report.latency_us_p50 > 0.0);
    }
}
