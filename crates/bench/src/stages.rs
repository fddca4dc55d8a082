//! Where the time of operations went within a store, stage by stage, beside what their callers
//! waited.

use std::fmt;

use serde::{Deserialize, Serialize};
use stratakv::{MeasuredKind, Stage, StageReport, Store};

use crate::report::OperationReport;
use crate::workload::Kind;

/// One stage of operations of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// Its name, or `outside`: before the store took an operation, and after it answered.
    pub stage: String,
    /// What it took an operation on average, in µs; of those that were not in it, nothing.
    pub us_mean: f64,
    /// 99 of 100 that were in it were shorter, in µs.
    pub us_p99: f64,
}

/// Where the time of operations of a kind went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StagesOfKind {
    /// What they do.
    pub operation: String,
    /// How many were measured.
    pub measured: u64,
    /// Those that took time, in the order of a write.
    pub stages: Vec<StageTime>,
}

impl StagesOfKind {
    /// Of what was measured.
    fn new(kind: MeasuredKind, report: &StageReport) -> StagesOfKind {
        let means = report.mean_ns();
        let stages: Vec<StageTime> = Stage::ALL
            .iter()
            .zip(&report.stages)
            .zip(means)
            .filter(|((_, times), _)| times.count() > 0)
            .map(|((stage, times), mean_ns)| StageTime {
                stage: stage.name().into(),
                us_mean: mean_ns / 1e3,
                us_p99: times.quantile_ns(0.99) as f64 / 1e3,
            })
            .collect();
        StagesOfKind { operation: kind.name().into(), measured: report.answered, stages }
    }

    fn us_mean(&self) -> f64 {
        self.stages.iter().map(|stage| stage.us_mean).sum()
    }

    /// The longest stages, in a sentence; nothing if none took time.
    fn sentence(&self) -> Option<String> {
        let all = self.us_mean();
        let mut sorted: Vec<&StageTime> = self.stages.iter().filter(|stage| stage.us_mean >= all / 20.0).collect();
        sorted.sort_by(|one, other| other.us_mean.total_cmp(&one.us_mean));
        let parts = sorted.iter().map(|stage| format!("{} {:.0} %", stage.stage, stage.us_mean / all * 100.0));
        (all > 0.0).then(|| format!("a {} takes {all:.0} us: {}", self.operation, parts.collect::<Vec<_>>().join(", ")))
    }
}

impl fmt::Display for StagesOfKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for StageTime { stage, us_mean, us_p99 } in &self.stages {
            let name = format!("{}: {stage}", self.operation);
            match stage == "outside" {
                true => writeln!(f, "{name:<18}{us_mean:>10.1}")?,
                false => writeln!(f, "{name:<18}{us_mean:>10.1}{us_p99:>10.0}")?,
            }
        }
        Ok(())
    }
}

/// All kinds that took time, as a table and sentences.
pub(crate) fn write(all: &[StagesOfKind], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if all.iter().any(|kind| !kind.stages.is_empty()) {
        writeln!(f, "{:<18}{:>10}{:>10}", "stages", "mean us", "p99 us")?;
    }
    all.iter().try_for_each(|kind| write!(f, "{kind}"))?;
    all.iter().filter_map(StagesOfKind::sentence).try_for_each(|sentence| writeln!(f, "{sentence}"))
}

/// What was measured of each kind when a run began to be counted.
pub(crate) struct StagesBefore([StageReport; MeasuredKind::ALL.len()]);

impl StagesBefore {
    pub(crate) fn new(store: Option<&Store>) -> StagesBefore {
        StagesBefore(MeasuredKind::ALL.map(|kind| store.map(|store| store.stages(kind)).unwrap_or_default()))
    }

    /// What came since, of kinds that were measured at all.
    pub(crate) fn since(&self, store: &Store) -> Vec<StagesOfKind> {
        let since =
            MeasuredKind::ALL.into_iter().zip(&self.0).map(|(kind, before)| (kind, store.stages(kind).since(before)));
        let measured = since.filter(|(_, report)| report.answered > 0);
        measured.map(|(kind, report)| StagesOfKind::new(kind, &report)).collect()
    }
}

/// Adds what callers waited beyond what was measured. A read-modify-write is two operations, and a
/// scan several pages: where a run has those, nothing outside is told.
pub(crate) fn add_outside(all: &mut [StagesOfKind], operations: &[OperationReport]) {
    let mean_of = |kinds: &[Kind], but: &[Kind]| {
        if operations.iter().any(|one| but.contains(&one.kind)) {
            return None;
        }
        let these = operations.iter().filter(|one| kinds.contains(&one.kind));
        let (sum, count) = these
            .fold((0.0, 0u64), |(sum, count), one| (sum + one.latency_us_mean * one.count as f64, count + one.count));
        (count > 0).then(|| sum / count as f64)
    };
    let callers_us = |kind: &str| match kind {
        "get" => mean_of(&[Kind::Read], &[Kind::ReadModifyWrite]),
        "write" => mean_of(&[Kind::Update, Kind::Insert], &[Kind::ReadModifyWrite]),
        _ => None,
    };
    for of in all {
        let outside = callers_us(&of.operation).map(|callers_us| (callers_us - of.us_mean()).max(0.0));
        of.stages.extend(outside.map(|us_mean| StageTime { stage: "outside".into(), us_mean, us_p99: 0.0 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_the_longest_stages_first() {
        let stage = |stage: &str, us_mean| StageTime { stage: stage.into(), us_mean, us_p99: 0.0 };
        let stages = vec![stage("group", 20.0), stage("write", 75.0), stage("order", 1.0), stage("outside", 4.0)];
        let of = StagesOfKind { operation: "write".into(), measured: 3, stages };
        assert_eq!(of.sentence().as_deref(), Some("a write takes 100 us: write 75 %, group 20 %"));
        assert_eq!(StagesOfKind::default().sentence(), None);
    }

    #[test]
    fn outside_is_told_only_where_callers_wait_for_one_operation() {
        let report = |kind, latency_us_mean| OperationReport {
            kind,
            count: 10,
            latency_us_mean,
            latency_us_p50: 0.0,
            latency_us_p90: 0.0,
            latency_us_p99: 0.0,
            latency_us_p99_9: 0.0,
            latency_us_p99_99: 0.0,
            latency_us_max: 0.0,
            latency_us_curve: Vec::new(),
        };
        let measured =
            || [StagesOfKind::new(MeasuredKind::Write, &StageReport { answered: 1, ..StageReport::default() })];
        let mut all = measured();
        add_outside(&mut all, &[report(Kind::Update, 10.0), report(Kind::Insert, 20.0)]);
        let [of] = &all;
        assert_eq!((of.stages[0].stage.as_str(), of.stages[0].us_mean), ("outside", 15.0));
        let mut all = measured();
        add_outside(&mut all, &[report(Kind::ReadModifyWrite, 10.0)]);
        let [of] = &all;
        assert_eq!(of.stages, []);
    }
}
