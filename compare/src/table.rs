//! Medians of rounds, ratios, what bound ours, tables, timelines.

use std::fmt::Write;

use stratakv_bench::plot::{Axes, Line, svg};
use stratakv_bench::workload::Kind;
use stratakv_bench::{BenchError, OperationReport, Report};

use crate::job::Done;
use crate::subject::Subject;

/// One measured run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Whose.
    pub subject: Subject,
    /// From 1.
    pub round: usize,
    /// `a uniform`, and so on, with requests in flight.
    pub setting: String,
    /// What came out.
    pub done: Done,
}

/// The middle one; of an even number the upper of both; 0 of none.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Rounds of one store in one setting.
struct Row<'a> {
    subject: Subject,
    reports: Vec<&'a Report>,
    /// Bytes of records moved by the cleaner for each that users wrote.
    cleaned: Option<f64>,
    memory_peak_bytes: u64,
}

impl Row<'_> {
    fn median(&self, figure: impl Fn(&Report) -> f64) -> f64 {
        median(self.reports.iter().map(|report| figure(report)))
    }

    /// The round whose throughput is the median.
    fn middle(&self) -> Option<&Report> {
        let median = self.operations_per_s();
        self.reports.iter().copied().find(|report| report.operations_per_s == median)
    }

    fn operations_per_s(&self) -> f64 {
        self.median(|report| report.operations_per_s)
    }

    /// Medians of p50 and p99, and the highest of all rounds.
    fn latencies(&self, kind: Kind) -> String {
        let all: Vec<&OperationReport> =
            self.reports.iter().flat_map(|report| &report.operations).filter(|one| one.kind == kind).collect();
        if all.is_empty() {
            return String::new();
        }
        let of = |figure: fn(&OperationReport) -> f64| median(all.iter().map(|one| figure(one)));
        let max = all.iter().map(|one| one.latency_us_max).fold(0.0, f64::max);
        format!("{} {:.0} / {:.0} / {max:.0}", kind.name(), of(|one| one.latency_us_p50), of(|one| one.latency_us_p99))
    }
}

/// A table for each setting, in the order in which they were run first, in Markdown.
pub fn tables(runs: &[Run]) -> String {
    settings(runs).iter().map(|setting| table(setting, runs)).collect()
}

fn rows<'a>(setting: &str, runs: &'a [Run]) -> Vec<Row<'a>> {
    let rows = Subject::ALL.into_iter().map(|subject| {
        let mine = || runs.iter().filter(move |run| run.subject == subject && run.setting == setting);
        Row {
            subject,
            reports: mine().filter_map(|run| run.done.report.as_ref()).collect(),
            cleaned: cleaned(mine().map(|run| &run.done)),
            memory_peak_bytes: mine().map(|run| run.done.memory_peak_bytes).max().unwrap_or_default(),
        }
    });
    rows.filter(|row| !row.reports.is_empty()).collect()
}

/// Median of what was moved for each byte that users wrote, warm-up included; `None` where nothing
/// is moved or written.
fn cleaned<'a>(runs: impl Iterator<Item = &'a Done>) -> Option<f64> {
    let each = runs.filter_map(|done| {
        let (moved, laid) = (done.statistics.get("cleaned_bytes")?, done.statistics.get("user_bytes")?);
        (*laid > 0).then(|| *moved as f64 / *laid as f64)
    });
    let each: Vec<f64> = each.collect();
    (!each.is_empty()).then(|| median(each))
}

fn table(setting: &str, runs: &[Run]) -> String {
    let rows = rows(setting, runs);
    let mut text = format!(
        "\n### {setting}\n\n| store | operations/s | slowest second | p50 / p99 / max in µs | CPU µs/op | B read/op | B written/op | moved/written | peak memory |\n\
         |---|---|---|---|---|---|---|---|---|\n"
    );
    for row in &rows {
        let latencies: Vec<String> =
            Kind::ALL.into_iter().map(|kind| row.latencies(kind)).filter(|text| !text.is_empty()).collect();
        let slowest = row.reports.iter().map(|report| report.operations_per_s_min).min().unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {:.0} | {slowest} | {} | {:.1} | {:.0} | {:.0} | {} | {} MiB |",
            row.subject,
            row.operations_per_s(),
            latencies.join("; "),
            row.median(|report| report.cpu_us_per_operation),
            row.median(|report| report.device_read_bytes_per_operation),
            row.median(|report| report.device_write_bytes_per_operation),
            row.cleaned.map_or(String::new(), |moved| format!("{moved:.2}")),
            row.memory_peak_bytes >> 20
        );
    }
    text.push('\n');
    text.push_str(&ratios(&rows));
    text.push_str(&explanations(&rows));
    text
}

/// A line for each store of ours: what bound it, in its middle round.
fn explanations(rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    for row in rows {
        if let Some(found) = row.middle().and_then(|report| report.explanation.as_ref()) {
            let _ = writeln!(text, "- {}: {}", row.subject, found.sentence());
        }
    }
    text
}

/// A plot for each setting: operations of each second of each store's middle round. With its name,
/// as of a file without its ending.
///
/// # Errors
/// As [`svg`].
pub fn plots(runs: &[Run]) -> Result<Vec<(String, String)>, BenchError> {
    let draw = |setting: &str| {
        let rows = rows(setting, runs);
        let lines = rows.iter().enumerate().map(|(store, row)| {
            let each = row.middle().map_or(&[][..], |report| &report.operations_per_s_each);
            let points = each.iter().enumerate().map(|(second, operations)| (second as i32, *operations as f64));
            Line { store, name: row.subject.to_string(), points: points.collect() }
        });
        let axes = Axes {
            title: setting.to_owned(),
            x: "second",
            y: "operations in it",
            places: Vec::new(),
            is_logarithmic: false,
            size: (760, 320),
        };
        let name = setting.replace(|c: char| !c.is_ascii_alphanumeric(), "-").to_lowercase();
        Ok((name, svg(&axes, &lines.collect::<Vec<Line>>())?))
    };
    settings(runs).into_iter().map(draw).collect()
}

/// Settings, in the order in which they were run first.
fn settings(runs: &[Run]) -> Vec<&str> {
    let mut settings: Vec<&str> = Vec::new();
    for run in runs {
        if !settings.contains(&run.setting.as_str()) {
            settings.push(&run.setting);
        }
    }
    settings
}

/// A line for each store of ours: its throughput against each other's.
fn ratios(rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    for ours in rows.iter().filter(|row| row.subject.is_ours()) {
        let against = rows
            .iter()
            .filter(|row| !row.subject.is_ours() && row.operations_per_s() > 0.0)
            .map(|peer| format!("{:.2} × {}", ours.operations_per_s() / peer.operations_per_s(), peer.subject));
        let against: Vec<String> = against.collect();
        if !against.is_empty() {
            let _ = writeln!(text, "- {}: {}", ours.subject, against.join(", "));
        }
    }
    text
}

/// Operations of each second of each run, as CSV.
pub fn timeline(runs: &[Run]) -> String {
    let mut text = "setting,store,round,second,operations\n".to_owned();
    for run in runs {
        let each = run.done.report.iter().flat_map(|report| &report.operations_per_s_each);
        for (second, operations) in each.enumerate() {
            let _ = writeln!(text, "{},{},{},{second},{operations}", run.setting, run.subject, run.round);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use stratakv_bench::explain::Explanation;

    use super::*;

    fn run(name: &str, round: usize, operations_per_s: f64) -> Run {
        let operation = OperationReport {
            kind: Kind::Read,
            count: 1,
            latency_us_mean: 1.0,
            latency_us_p50: 2.0 * round as f64,
            latency_us_p90: 3.0,
            latency_us_p99: 4.0,
            latency_us_p99_9: 5.0,
            latency_us_p99_99: 6.0,
            latency_us_max: 10.0 * round as f64,
            latency_us_curve: Vec::new(),
        };
        let report = Report {
            operations_per_s,
            operations_per_s_min: operations_per_s as u64 / 2,
            operations_per_s_each: vec![7, 8],
            operations: vec![operation],
            cpu_us_per_operation: 5.5,
            ..Report::default()
        };
        let statistics = [("cleaned_bytes".to_owned(), 30), ("user_bytes".to_owned(), 20)].into();
        let done = Done { report: Some(report), memory_peak_bytes: 3 << 20, statistics, ..Done::default() };
        Run { subject: name.parse().expect("a name"), round, setting: "C uniform".to_owned(), done }
    }

    #[test]
    fn medians_are_of_rounds_and_ratios_of_medians() {
        let runs =
            [run("rocksdb-sync", 1, 100.0), run("packed", 1, 900.0), run("packed", 2, 600.0), run("packed", 3, 100.0)];
        let text = tables(&runs);
        assert!(text.contains("| packed | 600 | 50 | read 4 / 4 / 30 | 5.5 | 0 | 0 | 1.50 | 3 MiB |"), "{text}");
        assert!(text.contains("- packed: 6.00 × rocksdb-sync\n"), "{text}");
        assert_eq!(text.matches("###").count(), 1);
    }

    #[test]
    fn what_bound_ours_is_of_the_middle_round() {
        let explained = |round, operations_per_s, processors| {
            let mut run = run("packed", round, operations_per_s);
            let found = Explanation { processors, cores: 2.0, ..Explanation::default() };
            run.done.report.as_mut().expect("a report").explanation = Some(found);
            run
        };
        let text = tables(&[explained(1, 9.0, 0.1), explained(2, 5.0, 1.9), explained(3, 1.0, 0.1)]);
        assert!(text.ends_with("- packed: bound by the processors: they are busy at 95 % of 2 cores\n"), "{text}");
        assert!(!tables(&[run("packed", 1, 1.0)]).contains("bound by"));
    }

    #[test]
    fn each_setting_has_a_plot_of_each_store() {
        let found = plots(&[run("packed", 1, 1.0), run("rocksdb-async", 1, 2.0)]).expect("plots");
        let [(name, text)] = &found[..] else { panic!("{found:?}") };
        assert!(name == "c-uniform" && text.contains("packed") && text.contains("rocksdb-async"), "{name}: {text}");
    }

    #[test]
    fn each_second_has_its_line() {
        let text = timeline(&[run("rocksdb-async", 2, 1.0)]);
        assert!(text.ends_with("C uniform,rocksdb-async,2,0,7\nC uniform,rocksdb-async,2,1,8\n"), "{text}");
    }

    #[test]
    fn the_median_of_few() {
        assert_eq!((median([]), median([3.0]), median([3.0, 1.0, 2.0])), (0.0, 3.0, 2.0));
    }
}
