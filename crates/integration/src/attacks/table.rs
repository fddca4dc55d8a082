//! What was measured as a Markdown table.

use std::fmt::Write as _;
use std::time::Duration;

use super::kinds::Attack;
use super::{Measured, Plan, connection_bytes};

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / (1 << 20) as f64)
}

fn served(outcome: &Result<Duration, String>) -> String {
    match outcome {
        Ok(took) => format!("{:.1} s", took.as_secs_f64()),
        Err(why) => format!("**no**: {}", why.replace('|', "/")),
    }
}

/// All of it: how it was measured, what clients did, and the figures.
pub fn markdown(plan: &Plan, all: &[Measured]) -> String {
    let mut text = format!(
        "`--memory {}M`{}; {} rounds of {:.0} s each way, medians. Memory is `RssAnon` in MiB; `after` is {:.0} s after the \
         crowd left. The bound is the memory, 5 % and {} KiB for each connection. The honest client sends 220 requests a \
         second, each eleventh a set; `control` is the same while the crowd attacks another server on the same cores. \
         The slow clients send and take {} bytes at 100 KB/s.\n\n",
        plan.memory_bytes >> 20,
        if plan.tls { ", all clients by TLS" } else { "" },
        plan.rounds,
        plan.duration.as_secs_f64(),
        plan.after.as_secs_f64(),
        connection_bytes(plan.tls) as f64 / 1024.0,
        plan.slow_bytes
    );
    for attack in Attack::ALL.iter().filter(|attack| all.iter().any(|one| one.attack == **attack)) {
        let _ = writeln!(text, "- `{}`: {}", attack.name(), attack.what());
    }
    if plan.few {
        text.push_str("\nA tenth of these clients.\n");
    }
    text.push_str(
        "\n| server | attack | before | peak | bound | after | closed | get p50 alone, control, attacked ms | get p99 alone, \
         control, attacked ms | p99 ratio | set p99 control, attacked ms | failed | slow set | slow get | cpu ms/MB |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for one in all.iter().filter(|one| one.device.is_none()) {
        let held = one.held;
        let peak = if held.peak > held.bound { format!("**{}**", mib(held.peak)) } else { mib(held.peak) };
        let ratio = if one.ratio() > 2.0 { format!("**{:.1}**", one.ratio()) } else { format!("{:.1}", one.ratio()) };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {peak} | {} | {} | {} | {:.2}, {:.2}, {:.2} | {:.2}, {:.2}, {:.2} | {ratio} | {:.2}, {:.2} \
             | {} | {} | {} | {:.2} |",
            one.target.name(),
            one.attack.name(),
            mib(held.before),
            mib(held.bound),
            mib(held.after),
            one.closed,
            one.alone.p50_ms,
            one.control.p50_ms,
            one.attacked.p50_ms,
            one.alone.p99_ms,
            one.control.p99_ms,
            one.attacked.p99_ms,
            one.control.sets_p99_ms,
            one.attacked.sets_p99_ms,
            one.errors,
            served(&one.slow_sender),
            served(&one.slow_taker),
            one.cpu_ms_per_mb
        );
    }
    let mut device = all.iter().filter(|one| one.device.is_some()).peekable();
    if device.peek().is_some() {
        text.push_str(
            "\n| server | asked for, then left: MiB | read from the device after that: MiB | peak | bound | after |\n\
             |---|---|---|---|---|---|\n",
        );
    }
    for one in device {
        let (asked, read) = one.device.unwrap_or_default();
        let held = one.held;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            one.target.name(),
            mib(asked),
            mib(read),
            mib(held.peak),
            mib(held.bound),
            mib(held.after)
        );
    }
    text
}
