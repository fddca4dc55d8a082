//! What was measured of MatrixKV (USENIX ATC 2020, section 5): random writes of several lengths,
//! then reads and scans, each store in turn and from nothing.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use stratakv_bench::page::of_fills;
use stratakv_bench::suite::matrixkv::{FillReport, FillsReport};

use crate::Arguments;
use crate::job::{Done, Job, Task};
use crate::page;
use crate::subject::Subject;
use crate::table::median;

/// A store's figures of one round.
struct Measured {
    subject: Subject,
    fill: FillReport,
    filled: Done,
    reads: Done,
    scans: Done,
}

/// Fills, reads and scans; prints a table.
///
/// # Errors
/// A store's own; the disk's.
pub fn compare(arguments: &Arguments) -> Result<(), String> {
    let (mut all, here) = (Vec::new(), FillsReport::here(&arguments.data));
    for value_bytes in &arguments.value_sizes {
        for round in 1..=arguments.rounds {
            for subject in &arguments.stores {
                let measured = measure(arguments, *subject, *value_bytes, round)?;
                eprintln!("{}", row(&[&measured]));
                all.push(measured);
            }
            if let Some(out) = &arguments.out {
                write_out(arguments, out, &all, &here)?;
            }
            page::write(arguments.report.as_deref(), || of_fills(&fills(arguments, &all, &here), None))?;
        }
    }
    println!("{}", table(&all));
    Ok(())
}

fn measure(arguments: &Arguments, subject: Subject, value_bytes: usize, round: usize) -> Result<Measured, String> {
    let directory = arguments.data.join(format!("matrixkv-{}-{}", subject.data_set(), std::process::id()));
    let records = arguments.bytes / value_bytes as u64;
    let job = Job {
        subject: subject.to_string(),
        memory_bytes: memory_bytes(arguments),
        capacity_bytes: 0,
        region_bytes: 0,
        fast: arguments.memory_dir(subject),
        fast_bytes: arguments.fast_bytes(arguments.bytes),
        clients: clients(arguments),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        records,
        value_bytes,
        // As the suite has it, so that both put the same.
        seed: arguments.seed + 100 * (round as u64 - 1),
        directory,
        task: Task::Fill { round },
    };
    let outcome = measure_in(&job, arguments, subject);
    // Of what failed too.
    for made in [&job.directory, &job.fast] {
        let _ = fs::remove_dir_all(made);
    }
    outcome
}

fn measure_in(job: &Job, arguments: &Arguments, subject: Subject) -> Result<Measured, String> {
    let run = |workload: &str| {
        let (workload, distribution) = (workload.to_owned(), "uniform".to_owned());
        let task = Task::Run { workload, distribution, seconds: arguments.seconds, warm_up: 0, operations_max: None };
        Job { task, seed: job.seed + 1, ..job.clone() }.run()
    };
    let mut filled = job.run()?;
    let fill = filled.fill.take().ok_or_else(|| format!("{subject}: a fill without figures"))?;
    Ok(Measured { subject, fill, filled, reads: run("c")?, scans: run("e")? })
}

fn memory_bytes(arguments: &Arguments) -> u64 {
    arguments.memory.unwrap_or(arguments.bytes / 16).max(64 << 20)
}

fn clients(arguments: &Arguments) -> usize {
    arguments.clients.first().copied().unwrap_or(4)
}

const HEAD: &str = "| value | store | fill, MB/s | worst second / mean | p50 us | p99 us | p99.9 us | p99.99 us | max ms | written / user, settled | cpu us | reads/s | scans/s | peak memory, MiB |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

fn table(all: &[Measured]) -> String {
    let mut settings: Vec<(usize, Subject)> = Vec::new();
    for one in all {
        if !settings.contains(&(one.fill.value_bytes, one.subject)) {
            settings.push((one.fill.value_bytes, one.subject));
        }
    }
    let rows = settings.into_iter().map(|(value_bytes, subject)| {
        let is_it = |one: &&Measured| one.fill.value_bytes == value_bytes && one.subject == subject;
        row(&all.iter().filter(is_it).collect::<Vec<_>>()) + "\n"
    });
    HEAD.to_owned() + &rows.collect::<String>()
}

/// Medians of rounds.
fn row(of: &[&Measured]) -> String {
    let Some(first) = of.first() else { return String::new() };
    let middle = |figure: &dyn Fn(&Measured) -> f64| median(of.iter().map(|one| figure(one)));
    let fill = |figure: fn(&FillReport) -> f64| middle(&|one| figure(&one.fill));
    let speed = |done: fn(&Measured) -> &Done| {
        middle(&|one| done(one).report.as_ref().map_or(0.0, |report| report.operations_per_s))
    };
    let mut row = String::new();
    let _ = write!(
        row,
        "| {} | {} | {:.0} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} | {:.1} | {:.0} | {:.0} | {:.0} |",
        first.fill.value_bytes,
        first.subject,
        fill(FillReport::megabytes_per_s),
        fill(|fill| fill.worst_second().unwrap_or_default()),
        fill(|fill| fill.latency_us_p50),
        fill(|fill| fill.latency_us_p99),
        fill(|fill| fill.latency_us_p99_9),
        fill(|fill| fill.latency_us_p99_99),
        fill(|fill| fill.latency_us_max) / 1e3,
        fill(|fill| fill.write_amplification),
        fill(|fill| fill.cpu_us_per_put),
        speed(|one| &one.reads),
        speed(|one| &one.scans),
        middle(&|one| one.filled.memory_peak_bytes as f64 / (1 << 20) as f64),
    );
    row
}

/// What `stratakv bench suite matrixkv --beside` reads.
fn fills(arguments: &Arguments, all: &[Measured], here: &FillsReport) -> FillsReport {
    FillsReport {
        bytes: arguments.bytes,
        region_bytes: arguments.fast_bytes(arguments.bytes),
        memory_bytes: memory_bytes(arguments),
        clients: clients(arguments),
        seed: arguments.seed,
        fills: all.iter().map(|one| one.fill.clone()).collect(),
        ..here.clone()
    }
}

fn write_out(arguments: &Arguments, out: &Path, all: &[Measured], here: &FillsReport) -> Result<(), String> {
    let mut timeline = String::from("value_bytes,store,second,operations\n");
    for FillReport { value_bytes, store, puts_per_s_each, .. } in all.iter().map(|one| &one.fill) {
        for (second, puts) in puts_per_s_each.iter().enumerate() {
            let _ = writeln!(timeline, "{value_bytes},{store},{second},{puts}");
        }
    }
    let runs: Vec<_> = all
        .iter()
        .map(|one| {
            let FillReport { value_bytes, store, round, .. } = &one.fill;
            serde_json::json!({ "store": store, "value_bytes": value_bytes, "round": round, "fill": one.filled, "reads": one.reads, "scans": one.scans })
        })
        .collect();
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(out)?;
        fs::write(out.join("matrixkv.md"), table(all))?;
        fs::write(out.join("matrixkv-timeline.csv"), timeline)?;
        fs::write(out.join("matrixkv-runs.json"), serde_json::to_vec(&runs)?)?;
        fs::write(out.join("matrixkv.json"), serde_json::to_vec_pretty(&fills(arguments, all, here))?)
    };
    write().map_err(|error| format!("cannot write to {}: {error}", out.display()))
}
