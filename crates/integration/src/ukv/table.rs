//! What was measured as tables and as JSON: the median of the rounds of each figure.

use std::fmt::Write as _;

use serde_json::{Value, json};
use stratakv_base::quantity::format_bytes;
use stratakv_bench::suite::ukv::{ServedReport, UkvReport, length};
use stratakv_bench::value::key;

use super::{Baseline, Case, Measured, Mix, Plan, Setting};

/// The medians of one server at one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    baseline: Baseline,
    setting: Setting,
    rounds: usize,
    records: u64,
    operations_per_s: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    hit_percent: Option<f64>,
    refused_percent: f64,
    server_cpu_us: f64,
    generator_cpu: f64,
    memory_peak_bytes: f64,
    system_calls: Option<f64>,
}

/// Of an even number the upper of the two in the middle.
fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

impl Row {
    fn of(rounds: &[&Measured]) -> Option<Row> {
        let first = rounds.first()?;
        let middle = |figure: fn(&Measured) -> f64| median(rounds.iter().map(|one| figure(one))).unwrap_or_default();
        let sets = |one: &Measured| (one.report.operations - one.report.gets).max(1) as f64;
        Some(Row {
            baseline: first.baseline,
            setting: first.setting,
            rounds: rounds.len(),
            records: first.records,
            operations_per_s: middle(|one| one.report.operations_per_s),
            p50_ms: middle(|one| one.report.latency_us_p50 / 1e3),
            p95_ms: middle(|one| one.report.latency_us_p95 / 1e3),
            p99_ms: middle(|one| one.report.latency_us_p99 / 1e3),
            hit_percent: median(rounds.iter().filter_map(|one| one.report.hit_percent())),
            refused_percent: median(rounds.iter().map(|one| 100.0 * one.report.refused as f64 / sets(one)))
                .unwrap_or_default(),
            server_cpu_us: middle(|one| one.server_cpu_us),
            generator_cpu: middle(|one| one.report.generator_cpu),
            memory_peak_bytes: middle(|one| one.memory_peak_bytes as f64),
            system_calls: median(rounds.iter().filter_map(|one| one.system_calls)),
        })
    }
}

impl Row {
    /// Requests that were of use: what is not there is told quickly, and of sets alone none is
    /// missed.
    fn served_per_s(&self) -> f64 {
        self.operations_per_s
            * if self.setting.mix == Mix::Get { self.hit_percent.unwrap_or(100.0) / 100.0 } else { 1.0 }
    }

    /// Records that were there, by the gets that found one of all.
    fn held(&self) -> f64 {
        self.records as f64 * self.hit_percent.unwrap_or_default() / 100.0
    }

    /// Of the memory of the process, what comes to each record that was there beyond its key and
    /// its value.
    fn overhead_bytes(&self) -> f64 {
        self.memory_peak_bytes / self.held().max(1.0) - (key(0).len() + self.setting.value_bytes) as f64
    }
}

fn rows(all: &[Measured]) -> Vec<Row> {
    let mut names: Vec<(Baseline, Setting)> = Vec::new();
    for one in all {
        if !names.contains(&(one.baseline, one.setting)) {
            names.push((one.baseline, one.setting));
        }
    }
    let rounds = |(baseline, setting): (Baseline, Setting)| -> Vec<&Measured> {
        all.iter().filter(|one| one.baseline == baseline && one.setting == setting).collect()
    };
    names.into_iter().filter_map(|name| Row::of(&rounds(name))).collect()
}

/// Tables for people: one for each case and mix.
pub fn markdown(all: &[Measured]) -> String {
    let rows = rows(all);
    let mut tables: Vec<(Case, super::Mix)> = Vec::new();
    for row in &rows {
        let table = (row.setting.case, row.setting.mix);
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    tables.sort_by_key(|(case, mix)| (*case as u8, *mix as u8));
    let mut text = String::new();
    for (case, mix) in tables {
        let within: Vec<&Row> = rows.iter().filter(|row| (row.setting.case, row.setting.mix) == (case, mix)).collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "### {}, {}\n", case.name(), mix.name());
        if case == Case::Small {
            text.push_str("| value | server | records held | `tier` / it | peak RSS MiB | RSS beyond key and value, bytes a record | sets refused |\n|---|---|---|---|---|---|---|\n");
            within.iter().for_each(|row| small_line(&mut text, row, &within));
            text.push('\n');
            continue;
        }
        text.push_str("| value | connections x batch | server | requests/s | `tier` / it | p50 / p95 / p99 ms | hits | sets refused | server CPU us | generator CPU | peak RSS MiB | system calls |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
        within.iter().for_each(|row| line(&mut text, row, &within));
        text.push('\n');
    }
    text
}

/// A figure of ours at the same setting, by the row's.
fn ours_by(row: &Row, within: &[&Row], figure: fn(&Row) -> f64) -> String {
    let ours = within.iter().find(|other| other.baseline == Baseline::Tier && other.setting == row.setting);
    let ratio = ours.filter(|ours| ours.baseline != row.baseline).map(|ours| figure(ours) / figure(row));
    ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"))
}

fn line(text: &mut String, row: &Row, within: &[&Row]) {
    let Setting { value_bytes, connections, pipeline, .. } = row.setting;
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let _ = writeln!(
        text,
        "| {} | {connections} x {pipeline} | {} | {:.0} | {} | {:.2} / {:.2} / {:.2} | {} | {:.1} % | {:.1} | {:.0} % | {:.0} | {} |",
        length(value_bytes),
        row.baseline.name(),
        row.operations_per_s,
        ours_by(row, within, Row::served_per_s),
        row.p50_ms,
        row.p95_ms,
        row.p99_ms,
        dash(row.hit_percent.map(|percent| format!("{percent:.1} %"))),
        row.refused_percent,
        row.server_cpu_us,
        row.generator_cpu * 100.0,
        row.memory_peak_bytes / 1048576.0,
        dash(row.system_calls.map(|calls| format!("{calls:.2}"))),
    );
}

fn small_line(text: &mut String, row: &Row, within: &[&Row]) {
    let _ = writeln!(
        text,
        "| {} | {} | {:.0} | {} | {:.0} | {:.1} | {:.1} % |",
        length(row.setting.value_bytes),
        row.baseline.name(),
        row.held(),
        ours_by(row, within, Row::held),
        row.memory_peak_bytes / 1048576.0,
        row.overhead_bytes(),
        row.refused_percent,
    );
}

/// Every round, and the medians.
pub fn json(all: &[Measured]) -> Value {
    let place = |baseline: Baseline, setting: Setting| {
        json!({
            "server": baseline.name(), "case": setting.case.name(), "mix": setting.mix.name(),
            "value_bytes": setting.value_bytes, "connections": setting.connections, "pipeline": setting.pipeline,
        })
    };
    let rounds = all.iter().map(|one| {
        json!({
            "what": place(one.baseline, one.setting), "round": one.round, "records": one.records, "clients": one.report,
            "server_cpu_us_per_operation": one.server_cpu_us, "memory_peak_bytes": one.memory_peak_bytes,
            "system_calls_per_operation": one.system_calls,
        })
    });
    let medians = rows(all).into_iter().map(|row| {
        json!({
            "what": place(row.baseline, row.setting), "rounds": row.rounds, "operations_per_s": row.operations_per_s,
            "latency_ms_p50": row.p50_ms, "latency_ms_p95": row.p95_ms, "latency_ms_p99": row.p99_ms,
            "hit_percent": row.hit_percent, "refused_percent": row.refused_percent,
            "server_cpu_us_per_operation": row.server_cpu_us, "generator_cpu": row.generator_cpu,
            "memory_peak_bytes": row.memory_peak_bytes, "system_calls_per_operation": row.system_calls,
        })
    });
    json!({ "schema": 1, "rounds": rounds.collect::<Vec<_>>(), "medians": medians.collect::<Vec<_>>() })
}

/// Servers that are ours.
pub const OURS: [&str; 2] = ["tier", "slab"];

/// Every round, for a page.
pub fn report(plan: &Plan, all: &[Measured], here: UkvReport) -> UkvReport {
    let cores: Vec<String> = plan.server_cores.iter().map(usize::to_string).collect();
    let conditions = [
        ("core of the server, a thread on each", cores.join(" and ")),
        ("core of the load generator", plan.load_core.to_string()),
        ("what counts of each run", format!("{:?} after {:?}", plan.duration, plan.warm_up)),
        ("distribution", format!("{:?}", plan.distribution).to_lowercase()),
        ("case ram", format!("{} of memory, records of half of it", format_bytes(plan.ram_memory_bytes))),
        (
            "case ssd",
            format!(
                "{} of memory, {} of SSD, records of five times the memory",
                format_bytes(plan.ssd_memory_bytes),
                format_bytes(plan.ssd_bytes)
            ),
        ),
        ("rounds", plan.rounds.to_string()),
        ("seed", plan.seed.to_string()),
    ];
    let served = all.iter().map(|one| ServedReport {
        server: one.baseline.name().into(),
        case: one.setting.case.name().into(),
        mix: one.setting.mix.name().into(),
        value_bytes: one.setting.value_bytes,
        connections: one.setting.connections,
        pipeline: one.setting.pipeline,
        round: one.round as usize,
        records: one.records,
        wire: one.report,
        server_cpu_us_per_operation: Some(one.server_cpu_us),
        memory_peak_bytes: one.memory_peak_bytes,
    });
    let notes = [
        "The kernel's pages of the servers' files are dropped before each run of case ssd and ten times a second during it. \
         Ours are read and written by O_DIRECT.",
        "slab acknowledges a set when it is durable; all others acknowledge it from memory.",
        "extstore is loaded at 64 MiB a second, since it drops records that it cannot write in time. It has 4 threads for its \
         file.",
    ];
    UkvReport {
        conditions: conditions.map(|(name, words)| (name.to_owned(), words)).into(),
        notes: notes.map(str::to_owned).into(),
        served: served.collect(),
        ..here
    }
}

#[cfg(test)]
mod tests {
    use stratakv_bench::wire::WireReport;

    use super::*;

    fn measured(baseline: Baseline, round: u32, operations_per_s: f64, system_calls: Option<f64>) -> Measured {
        let setting = Setting { case: Case::Ssd, mix: Mix::Get, value_bytes: 4096, connections: 32, pipeline: 1 };
        let report = WireReport { operations: 100, gets: 100, hits: 39, operations_per_s, ..WireReport::default() };
        Measured {
            baseline,
            setting,
            round,
            records: 1000,
            report,
            server_cpu_us: 20.0,
            memory_peak_bytes: 5 << 20,
            system_calls,
        }
    }

    #[test]
    fn rows_are_medians_beside_ours() {
        let all = [
            measured(Baseline::Tier, 1, 300.0, None),
            measured(Baseline::Extstore, 1, 50.0, None),
            measured(Baseline::Tier, 2, 900.0, None),
            measured(Baseline::Tier, 3, 200.0, Some(0.5)),
            measured(Baseline::Extstore, 2, 100.0, None),
        ];
        let text = markdown(&all);
        assert!(text.contains("### ssd, get"), "{text}");
        assert!(
            text.contains(
                "| 4 KiB | 32 x 1 | tier | 300 | - | 0.00 / 0.00 / 0.00 | 39.0 % | 0.0 % | 20.0 | 0 % | 5 | 0.50 |"
            ),
            "{text}"
        );
        assert!(text.contains("| extstore | 100 | 3.00 |"), "{text}");
        let small =
            all.map(|one| Measured { setting: Setting { case: Case::Small, value_bytes: 64, ..one.setting }, ..one });
        let text = markdown(&small);
        // 390 of 1000 records were there: 5 MiB for each are 13443.3 bytes, 24 and 64 of them its
        // own.
        assert!(text.contains("| 64 B | extstore | 390 | 1.00 | 5 | 13355.3 | 0.0 % |"), "{text}");
        let page = report(&Plan::default(), &all, UkvReport::default());
        let page = stratakv_bench::page::of_served(&page, &OURS).expect("a page");
        assert!(page.verdicts.iter().any(|line| line.ratio.is_some_and(|ratio| ratio.median == 3.0)), "{page:?}");
        let json = json(&all);
        assert_eq!(
            (json["rounds"].as_array().map(Vec::len), json["medians"].as_array().map(Vec::len)),
            (Some(5), Some(2))
        );
        assert_eq!(json["medians"][0]["operations_per_s"], 300.0);
    }
}
