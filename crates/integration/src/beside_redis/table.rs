//! The comparison as Markdown.

use std::fmt::Write as _;

use super::{Baseline, Footprint, Measured, Plan};

/// The median of what a command was in all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Median {
    per_s: f64,
    p99_ms: f64,
    cpu_us: f64,
}

/// A table for each number of commands in a batch: medians, and ratios to the first server.
pub fn markdown(plan: &Plan, all: &[Measured]) -> String {
    let mut text = String::new();
    for pipeline in &plan.pipelines {
        let _ = write!(text, "{pipeline} commands in a batch, {} connections:\n\n| command |", plan.connections);
        for baseline in &plan.baselines {
            let _ = write!(text, " {0}/s | p99 ms | µs |", baseline.name());
            if *baseline != plan.baselines[0] {
                text.push_str(" ratio | of µs |");
            }
        }
        text.push_str("\n|---|");
        for baseline in &plan.baselines {
            text.push_str(if *baseline == plan.baselines[0] { "--:|--:|--:|" } else { "--:|--:|--:|--:|--:|" });
        }
        text.push('\n');
        for measure in &plan.measures {
            let _ = write!(text, "| {} |", measure.name);
            let of = |baseline: Baseline| {
                median(all.iter().filter(|one| {
                    one.baseline == baseline && one.measure.name == measure.name && one.pipeline == *pipeline
                }))
            };
            let first = of(plan.baselines[0]);
            for baseline in &plan.baselines {
                let is_first = *baseline == plan.baselines[0];
                match of(*baseline) {
                    None => text.push_str(if is_first { " | | |" } else { " | | | | |" }),
                    Some(own) => {
                        let _ = write!(text, " {:.0} | {:.2} | {:.2} |", own.per_s, own.p99_ms, own.cpu_us);
                        if let (false, Some(first)) = (is_first, first) {
                            let (rate, cpu) = (own.per_s / first.per_s, own.cpu_us / first.cpu_us);
                            let _ = write!(text, " {rate:.2} | {cpu:.2} |");
                        }
                    }
                }
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

/// What a small hash takes.
pub fn footprints(all: &[Footprint]) -> String {
    let mut text = "| a hash of 5 fields | bytes of memory | bytes of the medium |\n|---|--:|--:|\n".to_owned();
    for one in all {
        let _ = writeln!(text, "| {} | {:.0} | {:.0} |", one.baseline.name(), one.memory_bytes, one.medium_bytes);
    }
    text
}

fn median<'a>(runs: impl Iterator<Item = &'a Measured>) -> Option<Median> {
    let runs: Vec<&Measured> = runs.collect();
    let middle = |figure: fn(&Measured) -> f64| {
        let mut figures: Vec<f64> = runs.iter().map(|one| figure(one)).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    };
    Some(Median {
        per_s: middle(|one| one.per_s)?,
        p99_ms: middle(|one| one.p99_ms)?,
        cpu_us: middle(|one| one.cpu_us)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::MEASURES;
    use super::*;

    #[test]
    fn medians_stand_beside_the_first_servers() {
        let mut plan = Plan::new(false);
        (plan.baselines, plan.measures, plan.pipelines) =
            (vec![Baseline::Redis, Baseline::Hash], MEASURES[..1].to_vec(), vec![1]);
        let one =
            |baseline, per_s| Measured { baseline, measure: MEASURES[0], pipeline: 1, per_s, p99_ms: 0.5, cpu_us: 4.0 };
        let all = [
            one(Baseline::Redis, 100.0),
            one(Baseline::Hash, 90.0),
            one(Baseline::Hash, 150.0),
            one(Baseline::Hash, 800.0),
        ];
        let text = markdown(&plan, &all);
        assert!(text.ends_with("| SET | 100 | 0.50 | 4.00 | 150 | 0.50 | 4.00 | 1.50 | 1.00 |\n\n"), "{text}");
    }
}
