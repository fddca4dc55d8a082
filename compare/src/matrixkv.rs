//! What was measured of MatrixKV (USENIX ATC 2020, section 5): random writes of several lengths, then reads and scans, each store in turn and from nothing.

use std::fmt::Write;
use std::fs;

use stratakv_bench::Report;
use stratakv_bench::workload::Kind;

use crate::Arguments;
use crate::job::{Done, Job, Task};
use crate::subject::Subject;
use crate::table::median;

/// A store's figures of one round.
struct Measured {
    subject: Subject,
    value_bytes: usize,
    fill: Done,
    reads: Done,
    scans: Done,
}

/// Fills, reads and scans; prints a table.
///
/// # Errors
/// A store's own; the disk's.
pub fn compare(arguments: &Arguments) -> Result<(), String> {
    let mut all = Vec::new();
    for value_bytes in &arguments.value_sizes {
        for round in 1..=arguments.rounds {
            for subject in &arguments.stores {
                let measured = measure(arguments, *subject, *value_bytes, round as u64)?;
                eprintln!("{}", row(&[&measured]));
                all.push(measured);
            }
            if let Some(out) = &arguments.out {
                write_out(out, &all)?;
            }
        }
    }
    println!("{}", table(&all));
    Ok(())
}

fn measure(arguments: &Arguments, subject: Subject, value_bytes: usize, round: u64) -> Result<Measured, String> {
    let directory = arguments.data.join(format!("matrixkv-{}-{}", subject.data_set(), std::process::id()));
    let records = arguments.bytes / value_bytes as u64;
    let job = Job {
        subject: subject.to_string(),
        memory_bytes: arguments.memory.unwrap_or(arguments.bytes / 16).max(64 << 20),
        capacity_bytes: 0,
        region_bytes: 0,
        fast: arguments.memory_dir(subject),
        fast_bytes: arguments.fast_bytes(arguments.bytes),
        clients: arguments.clients.first().copied().unwrap_or(4),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        records,
        value_bytes,
        seed: arguments.seed + 100 * round,
        directory,
        task: Task::Load { overwrites: 0 },
    };
    let outcome = measure_in(&job, arguments, subject);
    // Of what failed too.
    for made in [&job.directory, &job.fast] {
        let _ = fs::remove_dir_all(made);
    }
    outcome
}

fn measure_in(job: &Job, arguments: &Arguments, subject: Subject) -> Result<Measured, String> {
    let run = |workload: &str, seconds, operations_max| {
        let (workload, distribution) = (workload.to_owned(), "uniform".to_owned());
        let task = Task::Run { workload, distribution, seconds, warm_up: 0, operations_max };
        Job { task, seed: job.seed + 1, ..job.clone() }.run()
    };
    let fill = run("fill", 3600, Some(job.records))?;
    let reads = run("c", arguments.seconds, None)?;
    let scans = run("e", arguments.seconds, None)?;
    Ok(Measured { subject, value_bytes: job.value_bytes, fill, reads, scans })
}

const HEAD: &str = "| value | store | fill, MB/s | worst second / mean | p50 us | p99 us | p99.9 us | p99.99 us | max ms | written / user | cpu us | reads/s | scans/s | peak memory, MiB |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

fn table(all: &[Measured]) -> String {
    let mut settings: Vec<(usize, Subject)> = Vec::new();
    for one in all {
        if !settings.contains(&(one.value_bytes, one.subject)) {
            settings.push((one.value_bytes, one.subject));
        }
    }
    let rows = settings.into_iter().map(|(value_bytes, subject)| {
        let of: Vec<&Measured> =
            all.iter().filter(|one| one.value_bytes == value_bytes && one.subject == subject).collect();
        row(&of) + "\n"
    });
    HEAD.to_owned() + &rows.collect::<String>()
}

/// Medians of rounds.
fn row(of: &[&Measured]) -> String {
    let Some(first) = of.first() else { return String::new() };
    let middle = |figure: &dyn Fn(&Measured) -> f64| median(of.iter().map(|one| figure(one)));
    let fill = |figure: fn(&Report) -> f64| middle(&|one| one.fill.report.as_ref().map_or(0.0, figure));
    let latency = |figure: fn(&stratakv_bench::OperationReport) -> f64| {
        middle(&|one| {
            let report = one.fill.report.as_ref();
            let updates = report.and_then(|report| report.operations.iter().find(|of| of.kind == Kind::Update));
            updates.map_or(0.0, figure)
        })
    };
    let speed = |done: fn(&Measured) -> &Done| {
        middle(&|one| done(one).report.as_ref().map_or(0.0, |report| report.operations_per_s))
    };
    let user_bytes = |one: &Measured| {
        let writes = one.fill.report.as_ref().map_or(0, |report| report.operations.iter().map(|of| of.count).sum());
        (writes * (one.value_bytes as u64 + 24)) as f64
    };
    // What is owed when the last write has been answered is paid while it is read.
    let amplification = middle(&|one| (one.fill.write_bytes + one.reads.write_bytes) as f64 / user_bytes(one).max(1.0));
    let mut row = String::new();
    let _ = write!(
        row,
        "| {} | {} | {:.0} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {amplification:.2} | {:.1} | {:.0} | {:.0} | {:.0} |",
        first.value_bytes,
        first.subject,
        fill(|report| report.operations_per_s) * first.value_bytes as f64 / 1e6,
        fill(|report| report.operations_per_s_min as f64 / report.operations_per_s.max(1.0)),
        latency(|of| of.latency_us_p50),
        latency(|of| of.latency_us_p99),
        latency(|of| of.latency_us_p99_9),
        latency(|of| of.latency_us_p99_99),
        latency(|of| of.latency_us_max) / 1e3,
        fill(|report| report.cpu_us_per_operation),
        speed(|one| &one.reads),
        speed(|one| &one.scans),
        middle(&|one| one.fill.memory_peak_bytes as f64 / (1 << 20) as f64),
    );
    row
}

fn write_out(out: &std::path::Path, all: &[Measured]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write to {}: {error}", out.display());
    fs::create_dir_all(out).map_err(failed)?;
    fs::write(out.join("matrixkv.md"), table(all)).map_err(failed)?;
    let mut timeline = String::from("value_bytes,store,second,operations\n");
    for one in all {
        let each = one.fill.report.iter().flat_map(|report| &report.operations_per_s_each).enumerate();
        for (second, operations) in each {
            let _ = writeln!(timeline, "{},{},{second},{operations}", one.value_bytes, one.subject);
        }
    }
    fs::write(out.join("matrixkv-timeline.csv"), timeline).map_err(failed)?;
    let runs: Vec<_> = all
        .iter()
        .map(|one| {
            let (subject, value_bytes) = (one.subject.to_string(), one.value_bytes);
            serde_json::json!({ "store": subject, "value_bytes": value_bytes, "fill": one.fill, "reads": one.reads, "scans": one.scans })
        })
        .collect();
    let runs = serde_json::to_string(&runs).map_err(|error| error.to_string())?;
    fs::write(out.join("matrixkv.json"), runs).map_err(failed)
}
