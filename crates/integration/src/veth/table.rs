//! What was measured as tables and as JSON: the median of the rounds of each figure.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Contender, Measured, Setting};

/// The medians of one server at one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    operations_per_s: f64,
    p95_us: f64,
    process_us: f64,
    core_us: f64,
    generator_cpu: f64,
}

/// Of an even number the upper of the two in the middle.
fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn row(all: &[Measured], contender: Contender, setting: Setting) -> Option<Row> {
    let rounds: Vec<&Measured> =
        all.iter().filter(|one| one.contender == contender && one.setting == setting).collect();
    rounds.first()?;
    let middle = |figure: fn(&Measured) -> f64| median(rounds.iter().map(|one| figure(one)));
    Some(Row {
        operations_per_s: middle(|one| one.report.operations_per_s),
        p95_us: middle(|one| one.report.latency_us_p95),
        process_us: middle(|one| one.process_us),
        core_us: middle(|one| one.core_us),
        generator_cpu: middle(|one| one.report.generator_cpu),
    })
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn settings(all: &[Measured]) -> Vec<Setting> {
    let mut settings = distinct(all.iter().map(|one| one.setting));
    let place = |one: &Setting| (one.mix as u8, one.value_bytes, one.pipeline, one.connections);
    settings.sort_by_key(place);
    settings
}

/// A table for people. Ratios are ours on AF_XDP by ours on io_uring.
pub fn markdown(all: &[Measured]) -> String {
    let contenders = distinct(all.iter().map(|one| one.contender));
    let mut text = String::from("| what | value | connections x batch |");
    for contender in &contenders {
        // Writing to a string does not fail.
        let _ = write!(text, " {} |", contender.name());
    }
    text.push_str(" requests, xdp / uring | CPU, xdp / uring |\n|---|---|---|");
    text.push_str(&"---|".repeat(contenders.len() + 2));
    text.push('\n');
    for setting in settings(all) {
        let Setting { mix, value_bytes, connections, pipeline } = setting;
        let _ = write!(text, "| {} | {} KiB | {connections} x {pipeline} |", mix.name(), value_bytes as f64 / 1024.0);
        for contender in &contenders {
            match row(all, *contender, setting) {
                Some(row) => {
                    let _ = write!(
                        text,
                        " {:.0}/s, {:.0} µs, {:.1} ({:.1}) |",
                        row.operations_per_s, row.p95_us, row.process_us, row.core_us
                    );
                }
                None => text.push_str(" - |"),
            }
        }
        let pair = row(all, Contender::Xdp, setting).zip(row(all, Contender::Uring, setting));
        let ratio = |figure: fn(&Row) -> f64| {
            pair.map_or("-".to_owned(), |(xdp, uring)| format!("{:.2}", figure(&xdp) / figure(&uring)))
        };
        let _ = writeln!(text, " {} | {} |", ratio(|row| row.operations_per_s), ratio(|row| row.process_us));
    }
    text
}

/// Every round, and the medians.
pub fn json(all: &[Measured]) -> Value {
    let place = |contender: Contender, setting: Setting| {
        json!({
            "server": contender.name(), "mix": setting.mix.name(), "value_bytes": setting.value_bytes,
            "connections": setting.connections, "pipeline": setting.pipeline,
        })
    };
    let rounds = all.iter().map(|one| {
        json!({
            "what": place(one.contender, one.setting), "round": one.round, "clients": one.report,
            "process_us_per_operation": one.process_us, "core_us_per_operation": one.core_us,
        })
    });
    let pairs = distinct(all.iter().map(|one| (one.contender, one.setting)));
    let medians = pairs.into_iter().filter_map(|(contender, setting)| {
        let row = row(all, contender, setting)?;
        Some(json!({
            "what": place(contender, setting), "operations_per_s": row.operations_per_s,
            "latency_us_p95": row.p95_us, "process_us_per_operation": row.process_us,
            "core_us_per_operation": row.core_us, "generator_cpu": row.generator_cpu,
        }))
    });
    json!({ "schema": 1, "rounds": rounds.collect::<Vec<_>>(), "medians": medians.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use stratakv_bench::wire::WireReport;

    use super::*;
    use crate::ukv::Mix;

    #[test]
    fn rows_are_medians_and_ours_are_compared() {
        let setting = Setting { mix: Mix::Get, value_bytes: 1024, connections: 16, pipeline: 1 };
        let one = |contender, round, operations_per_s, process_us| {
            let report = WireReport { operations_per_s, latency_us_p95: 7.0, ..WireReport::default() };
            Measured { contender, setting, round, report, process_us, core_us: process_us + 1.0 }
        };
        let all = [
            one(Contender::Xdp, 1, 300.0, 4.0),
            one(Contender::Uring, 1, 200.0, 8.0),
            one(Contender::Xdp, 2, 900.0, 9.0),
            one(Contender::Xdp, 3, 250.0, 3.0),
        ];
        let text = markdown(&all);
        let line = "| get | 1 KiB | 16 x 1 | 300/s, 7 µs, 4.0 (5.0) | 200/s, 7 µs, 8.0 (9.0) | 1.50 | 0.50 |";
        assert!(text.contains(line), "{text}");
        assert_eq!(json(&all)["medians"][0]["operations_per_s"], 300.0);
    }
}
