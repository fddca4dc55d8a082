//! `stratakv doctor`: what this kernel and this disk can do, measured, with advice.

mod advice;
mod device;
mod generic;
mod matrix;
mod measure;
mod nvme;
mod persistence;
mod system;
mod xdp;

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use stratakv::{Engine, Placement};
use stratakv_base::quantity::{format_bytes, parse_bytes};
use stratakv_device::nvme::inspect::Inspector;

use crate::Output;
use crate::failure::{Exit, Failure};
use crate::opening::Io;
use matrix::Commits;
use measure::{Figures, Measured, Run};
use persistence::{Choice, Persistence};
use system::System;

/// Measure what this kernel and a disk or memory can do; advise engine, durability and settings
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv doctor /mnt/nvme\n  stratakv doctor --json . | jq .read_depth_64.iops
  stratakv doctor --json /mnt/pmem | jq -r .engine,.region_domain\n  stratakv doctor /dev/dax0.0
  stratakv doctor /dev/ng0n1
  stratakv doctor --nvme 0000:05:00.0\n  stratakv doctor --xdp eth1

Writes a temporary file of 256 MiB in DIR, which is gone afterwards however the program ends, \
and takes about twenty seconds (with --long, a minute more). Run it while nothing else uses the \
disk. For a devdax device it only reports what a region there would be, and for an NVMe \
namespace's character device what that is.")]
pub(crate) struct Arguments {
    /// A directory on the disk in question; or a devdax device, or an NVMe namespace (/dev/ng0n1)
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Size of the temporary file
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_bytes)]
    file_bytes: u64,
    /// Write for a minute more, to see whether the disk keeps its speed
    #[arg(long)]
    long: bool,
    /// Length of each of the first four measurements; the others take half of it
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// What carries the I/O
    #[arg(long, value_enum, default_value_t)]
    io: Io,
    /// Report NVMe controllers instead, or the one at ADDRESS (0000:05:00.0), with the commands
    /// that hand it to a user-space driver and give it back. Nothing is measured or written
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "")]
    nvme: Option<String>,
    /// Report a network interface instead: what stands between it and `serve --xdp`, with the
    /// commands that mend it. Nothing is measured or changed
    #[arg(long, value_name = "INTERFACE", conflicts_with = "nvme")]
    xdp: Option<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if let Some(address) = &arguments.nvme {
        let report = nvme::NvmeReport::look(&Inspector::here(), address)?;
        return report.write(arguments.json, output).map_err(Failure::output);
    }
    if let Some(interface) = &arguments.xdp {
        let report = xdp::XdpReport::look(interface)?;
        return report.write(arguments.json, output).map_err(Failure::output);
    }
    if !(0.01..=600.0).contains(&arguments.seconds) {
        return Err(Failure::usage("--seconds: 0.01 to 600"));
    }
    if !((1 << 20)..=(1 << 40)).contains(&arguments.file_bytes) {
        return Err(Failure::usage("--file-bytes: 1M to 1T"));
    }
    refuse_missing(&arguments.directory)?;
    if std::fs::metadata(&arguments.directory).is_ok_and(|metadata| !metadata.is_dir()) {
        return run_on_device(arguments, output);
    }
    let rings = measure::rings(arguments.io.into());
    let run = Run {
        directory: &arguments.directory,
        file_bytes: arguments.file_bytes >> 20 << 20,
        length: Duration::from_secs_f64(arguments.seconds),
        stability_steps: if arguments.long { 60 } else { 0 },
        stability_step: Duration::from_secs(1),
        rings: &rings,
        now: &std::time::Instant::now,
    };
    let system = System::read();
    let measured = measure::measure(&run)?;
    let persistence = Persistence::look(&arguments.directory);
    let choice = persistence.choose(measured.geometry.survives_power_loss);
    let commits = matrix::measure(&arguments.directory);
    let mut advice = vec![choice.why.clone()];
    if let Ok(commits) = &commits {
        let disk_us = measured.fdatasync_us_p50.min(measured.dsync_us_p50);
        advice.push(commits.advice(disk_us, measured.geometry.survives_power_loss));
    }
    advice.extend(advice::advice(&system, &measured, choice.engine));
    let report = Report {
        arguments,
        system: &system,
        measured: &measured,
        persistence: &persistence,
        choice: &choice,
        commits: &commits,
        advice: &advice,
    };
    let written = if arguments.json { report.write_json(output) } else { report.write_text(output) };
    written.map_err(Failure::output)
}

/// A path that is not there, or cannot be looked at.
fn refuse_missing(path: &Path) -> Result<(), Failure> {
    let Err(error) = std::fs::metadata(path) else { return Ok(()) };
    let shown = path.display();
    if error.kind() != io::ErrorKind::NotFound {
        return Err(Failure::failed(format!("cannot look at {shown}: {error}")));
    }
    let advice = match path.starts_with("/dev") {
        true => {
            "`ls /dev/dax*` lists the devdax devices of this machine, and `ndctl create-namespace --mode devdax` makes \
             one of persistent memory. For a disk name a directory on it"
        }
        false => {
            "name a directory on the disk in question that exists (mkdir -p makes one), or a device such as /dev/dax0.0"
        }
    };
    Err(Failure::new(Exit::NotFound, format!("there is no {shown}: {advice}")))
}

/// Not a directory: a devdax device or an NVMe namespace, or nothing that can be measured.
fn run_on_device(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let path = &arguments.directory;
    if let Some(device) = device::Prospect::look(path) {
        return device.write(&System::read(), arguments.json, output).map_err(Failure::output);
    }
    if let Some(namespace) = generic::NamespaceReport::look(path) {
        return namespace?.write(arguments.json, output).map_err(Failure::output);
    }
    let path = path.display();
    let is_block_device =
        std::fs::metadata(&arguments.directory).is_ok_and(|found| found.file_type().is_block_device());
    Err(Failure::usage(if is_block_device {
        format!(
            "{path} is a device, and measuring would write to it: name a directory on a file system of that disk. Nothing was written"
        )
    } else {
        format!(
            "{path} is neither a directory nor a devdax device: name a directory on the disk in question, or a device such as /dev/dax0.0"
        )
    }))
}

/// Measures the disk under a directory for about a second, and tells which placement suits a new
/// store there, and why.
///
/// # Errors
/// There is no room for a temporary file of 64 MiB, or the disk fails.
pub(crate) fn choose_placement(directory: &Path, io: Io) -> Result<(Placement, String), Failure> {
    Ok(advice::placement_in_brief(&measure::probe(directory, io.into())?, system::cores()))
}

/// Measures the disk under a directory for about a second, and tells how many requests may be in
/// flight there if nine and ninety of a hundred reads shall take no longer than `max`, and why.
///
/// # Errors
/// There is no room for a temporary file of 64 MiB, or the disk fails.
pub(crate) fn choose_depth(directory: &Path, io: Io, max: Duration) -> Result<(u32, String), Failure> {
    Ok(advice::depth(&measure::latency_by_depth(directory, io.into())?, max))
}

struct Report<'a> {
    arguments: &'a Arguments,
    system: &'a System,
    measured: &'a Measured,
    persistence: &'a Persistence,
    choice: &'a Choice,
    /// What a region of engine `matrix` would be, or why there can be none.
    commits: &'a Result<Commits, String>,
    advice: &'a [String],
}

fn figures_json(figures: &Figures) -> serde_json::Value {
    json!({ "iops": figures.iops, "latency_us_p50": figures.latency_us_p50, "latency_us_p99": figures.latency_us_p99 })
}

impl Report<'_> {
    fn write_json(&self, output: &mut Output) -> io::Result<()> {
        let (system, measured) = (self.system, self.measured);
        let geometry = &measured.geometry;
        let placement = advice::placement(&measured.rates(), system.cores).0.name();
        let placement = (self.choice.engine == Engine::Slab).then_some(placement);
        let mut object = json!({
            "directory": self.arguments.directory.to_string_lossy(),
            "kernel": system.kernel, "cores": system.cores,
            "io_uring": system.io_uring.is_ok(), "io_uring_refusal": system.io_uring.as_ref().err(),
            "memlock_bytes": system.memlock_bytes, "open_files": system.open_files,
            "device": geometry.device, "file_system": geometry.file_system, "o_direct": measured.direct,
            "sector_bytes": geometry.sector_bytes, "physical_block_bytes": geometry.physical_block_bytes,
            "atomic_write_bytes": geometry.atomic_write_bytes, "volatile_cache": geometry.volatile_cache,
            "rotational": geometry.rotational, "scheduler": geometry.scheduler, "survives_power_loss": geometry.survives_power_loss,
            "ring": measured.ring, "file_bytes": measured.file_bytes,
            "write_then_fdatasync_us_p50": measured.fdatasync_us_p50, "write_dsync_us_p50": measured.dsync_us_p50,
            "read_depth_1": figures_json(&measured.read_1), "read_depth_64": figures_json(&measured.read_64),
            "write_depth_1": figures_json(&measured.write_1), "write_depth_64": figures_json(&measured.write_64),
            "profile": measured.profile.iter().map(|(pattern, depth, figures)| json!({
                "pattern": pattern.name(), "depth": depth, "bytes_per_s": figures.iops * pattern.bytes as f64,
                "iops": figures.iops, "latency_us_p50": figures.latency_us_p50, "latency_us_p99": figures.latency_us_p99,
            })).collect::<Vec<_>>(),
            "write_iops_each_second": measured.write_iops_each_second,
            "placement": placement,
            "engine": self.choice.engine.name(), "durability": self.choice.level.name(), "advice": self.advice,
        });
        let commits = self.commits.as_ref().ok();
        object["region_commit_us_p50"] = commits.map(|commits| commits.commit_us_p50).into();
        object["matrix_durability"] = commits.map(|commits| commits.level().name()).into();
        for (name, value) in self.persistence.json() {
            object[name] = value;
        }
        writeln!(output, "{object}")
    }

    fn write_profile(&self, output: &mut Output) -> io::Result<()> {
        for (pattern, depth, figures) in &self.measured.profile {
            let Figures { iops, latency_us_p50, latency_us_p99 } = figures;
            let name = format!("{}, depth {depth}", pattern.name());
            let mib_per_s = iops * pattern.bytes as f64 / f64::from(1 << 20);
            writeln!(
                output,
                "{name:<32} {iops:>8.0} IOPS   p50 {latency_us_p50:>6.0} µs   p99 {latency_us_p99:>6.0} µs {mib_per_s:>7.0} MiB/s"
            )?;
        }
        let seconds = &self.measured.write_iops_each_second;
        if let (Some(least), Some(most)) = (seconds.iter().min(), seconds.iter().max()) {
            let mean = seconds.iter().sum::<u64>() / seconds.len() as u64;
            let name = format!("4 KiB random write, {} s", seconds.len());
            writeln!(output, "{name:<32} {mean:>8} IOPS   slowest second {least}, fastest {most}")?;
        }
        Ok(())
    }

    /// What the machine and the directory are.
    fn rows(&self) -> [(&'static str, String); 15] {
        let (system, measured) = (self.system, self.measured);
        let geometry = &measured.geometry;
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        let unknown = || "unknown".to_owned();
        let io_uring = match &system.io_uring {
            Ok(()) => "allowed".to_owned(),
            Err(refusal) => format!("refused: {}", refusal.why),
        };
        let atomic = match geometry.atomic_write_bytes {
            0 => "none promised".to_owned(),
            bytes => format_bytes(u64::from(bytes)),
        };
        let memlock = system.memlock_bytes.map_or("unlimited".to_owned(), format_bytes);
        [
            ("kernel", system.kernel.clone()),
            ("cores", system.cores.to_string()),
            ("io_uring", io_uring),
            ("locked memory", memlock),
            ("open files", system.open_files.map_or("unlimited".to_owned(), |files| files.to_string())),
            ("directory", self.arguments.directory.display().to_string()),
            ("device", geometry.device.clone().unwrap_or_else(unknown)),
            ("file system", geometry.file_system.clone().unwrap_or_else(unknown)),
            ("direct I/O", yes(measured.direct).to_owned()),
            ("sector", format!("{} B", geometry.sector_bytes)),
            ("physical block", format!("{} B", geometry.physical_block_bytes)),
            ("atomic write", atomic),
            ("volatile cache", format!("{} (as far as the system tells)", yes(geometry.volatile_cache))),
            ("I/O scheduler", geometry.scheduler.clone().unwrap_or_else(unknown)),
            ("rotating", yes(geometry.rotational).to_owned()),
        ]
    }

    fn write_text(&self, output: &mut Output) -> io::Result<()> {
        let measured = self.measured;
        for (name, value) in self.rows().into_iter().chain(self.persistence.rows()) {
            writeln!(output, "{name:<24} {value}")?;
        }
        writeln!(output, "\nMeasured on a file of {}, I/O by {}:", format_bytes(measured.file_bytes), measured.ring)?;
        writeln!(output, "{:<32} {:>8.0} µs median", "4 KiB write, then fdatasync", measured.fdatasync_us_p50)?;
        writeln!(output, "{:<32} {:>8.0} µs median", "4 KiB write with RWF_DSYNC", measured.dsync_us_p50)?;
        match self.commits {
            Ok(commits) => {
                writeln!(output, "{:<32} {:>11} median", "commit to a region here", commits.time())?;
            }
            Err(why) => writeln!(output, "{:<32} impossible: {why}", "commit to a region here")?,
        }
        for (name, figures) in [
            ("4 KiB random read, depth 1", &measured.read_1),
            ("4 KiB random read, depth 64", &measured.read_64),
            ("4 KiB random write, depth 1", &measured.write_1),
            ("4 KiB random write, depth 64", &measured.write_64),
        ] {
            let Figures { iops, latency_us_p50, latency_us_p99 } = figures;
            writeln!(
                output,
                "{name:<32} {iops:>8.0} IOPS   p50 {latency_us_p50:>6.0} µs   p99 {latency_us_p99:>6.0} µs"
            )?;
        }
        self.write_profile(output)?;
        writeln!(output)?;
        match self.advice {
            [] => writeln!(output, "Nothing to change."),
            advice => advice.iter().try_for_each(|line| writeln!(output, "- {line}")),
        }
    }
}
