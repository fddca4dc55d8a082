//! `stratakv repair`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use stratakv::{LostTable, Options, RepairReport};
use stratakv_base::quantity::{format_bytes, format_count};

use crate::failure::{Exit, Failure};
use crate::json_line::Line;
use crate::opening::{DataArguments, DurabilityArguments, Io};
use crate::{Output, memory};

/// Tables of lost PMEM levels that are listed in words, of a shard: what is lost in each level is
/// said before them.
const TABLES_LISTED: usize = 5;

/// Report what a lost persistent-memory region of engine `matrix` costs; --accept-lost-region
/// continues without it
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv repair --data /mnt/nvme/store\n  stratakv repair --data /mnt/nvme/store --accept-lost-region

For a region that is gone (a tmpfs after a reboot), blank, damaged, or a copy from before. \
Without the option nothing is changed: it reports what would be lost, with exit code 4. No process \
may have the store open. If there is a copy of the region, or a backup, use that instead."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// Make a new region, and continue with the contents of the volumes
    #[arg(long)]
    accept_lost_region: bool,
    /// How long the new region is, if there is none [default: half of what is free there, 1 GiB at
    /// most]
    #[arg(long, value_name = "BYTES", value_parser = stratakv_base::quantity::parse_bytes)]
    region: Option<u64>,
    /// How much of the new region, if there is none, holds the first levels of tables [default:
    /// none]
    #[arg(long, alias = "layer", value_name = "BYTES", value_parser = stratakv_base::quantity::parse_bytes)]
    pmem_levels: Option<u64>,
    /// Cap on index, cache and I/O buffers together
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = stratakv_base::quantity::parse_bytes)]
    memory: u64,
    /// What carries the I/O
    #[arg(long, value_enum, default_value_t)]
    io: Io,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let Arguments { data, durability, .. } = arguments;
    memory::warn_of_too_much(arguments.memory);
    let options = Options::new().memory_bytes(arguments.memory).io(arguments.io.into());
    let options = options.data_directories(data.more_directories()).devices(data.devices());
    let mut options = durability.add_to(options.region_paths(data.regions()));
    if let Some(bytes) = arguments.region {
        options = options.region_bytes(bytes);
    }
    if let Some(bytes) = arguments.pmem_levels {
        options = options.pmem_levels_bytes(bytes);
    }
    let report = stratakv::repair(data.first(), &options, arguments.accept_lost_region)?;
    let written = if arguments.json { write_json(&report, output) } else { write_text(&report, output) };
    written.map_err(Failure::output)?;
    if report.lost.is_empty() || report.repaired {
        return Ok(());
    }
    let lost = format_count(report.lost.len() as u64, "shard");
    let why = format!(
        "{lost} without its region; nothing was changed: `{}` goes on with what is on the volumes",
        arguments.accepting(&report)
    );
    Err(Failure::new(Exit::Corrupt, why))
}

impl Arguments {
    /// The same command, to be pasted, with the loss accepted.
    fn accepting(&self, report: &RepairReport) -> String {
        let mut command = "stratakv repair --accept-lost-region".to_owned();
        let devices = self.data.devices();
        let named = [
            ("data", self.data.all().collect::<Vec<_>>()),
            ("device", devices.iter().map(PathBuf::as_path).collect()),
            ("region-path", self.data.regions().iter().map(PathBuf::as_path).collect()),
        ];
        for (option, paths) in named {
            command.extend(paths.into_iter().map(|path| format!(" --{option} {}", quoted(path))));
        }
        command.extend(self.region.map(|bytes| format!(" --region {bytes}")));
        command.extend(self.pmem_levels.map(|bytes| format!(" --pmem-levels {bytes}")));
        command += &format!(" --memory {}", self.memory);
        if report.region_in_memory || self.durability.is_process_crash() {
            command += " --durability process_crash";
        }
        command
    }
}

/// As a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:+,=@".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn write_json(report: &RepairReport, output: &mut Output) -> io::Result<()> {
    let lost = report.lost.iter().map(|lost| {
        json!({
            "shard": lost.shard, "why": lost.why, "loss": lost.loss, "oldest": lost.oldest, "version": lost.version,
            "records": lost.records, "clean": lost.clean, "kept_version": lost.kept_version, "entries": lost.entries,
            "tables": lost.tables.iter().map(table_json).collect::<Vec<_>>(), "may_lose_names": lost.may_lose_names,
        })
    });
    let lost: Vec<_> = lost.collect();
    let object = json!({
        "repaired": report.repaired, "region": report.region, "region_path": report.region_path.display().to_string(),
        "region_bytes": report.region_bytes, "pmem_levels_bytes": report.pmem_levels_bytes,
        "layer_bytes": report.pmem_levels_bytes, "lost": lost,
    });
    writeln!(output, "{object}")
}

fn table_json(table: &LostTable) -> serde_json::Value {
    json!({
        "table": table.table, "level": table.level, "entries": table.entries, "deletes": table.deletes, "bytes": table.bytes,
        "value_bytes": table.value_bytes, "lowest_version": table.lowest_version, "highest_version": table.highest_version,
        "first": Line::key_only(table.first.user()), "last": Line::key_only(table.last.user()),
        "first_collection": table.first.collection().0, "last_collection": table.last.collection().0,
        "hid_others": table.hid_others,
    })
}

/// How long a region is, and what of it is for PMEM levels.
fn lengths(report: &RepairReport) -> String {
    match report.pmem_levels_bytes {
        0 => format!("{}, no PMEM levels", format_bytes(report.region_bytes)),
        bytes => format!("{}, {} of it for PMEM levels", format_bytes(report.region_bytes), format_bytes(bytes)),
    }
}

fn write_text(report: &RepairReport, output: &mut Output) -> io::Result<()> {
    writeln!(output, "region: {} (--region-path names another)", report.region_path.display())?;
    for lost in &report.lost {
        writeln!(output, "shard {}: {}", lost.shard, lost.why)?;
        writeln!(output, "shard {}: {}", lost.shard, lost.loss)?;
        for table in lost.tables.iter().take(TABLES_LISTED) {
            writeln!(output, "shard {}: lost: {}", lost.shard, table.text)?;
        }
        if lost.tables.len() > TABLES_LISTED {
            writeln!(
                output,
                "shard {}: and {} tables more: --json lists all",
                lost.shard,
                lost.tables.len() - TABLES_LISTED
            )?;
        }
        if lost.may_lose_names {
            writeln!(
                output,
                "shard {}: names of collections may be among what is lost, or come back: compare `stratakv collections --long` with what there was before collections are made or dropped, \
                 since a number that was given out may be given out again",
                lost.shard
            )?;
        }
    }
    match (&report.region, report.lost.is_empty()) {
        (_, true) => writeln!(
            output,
            "region and volumes belong together: `repair` has nothing to do. It read no records; `stratakv check` does"
        ),
        (Some(region), false) => writeln!(output, "repaired: the new region is {region}: {}", lengths(report)),
        (None, false) => writeln!(
            output,
            "with --accept-lost-region what is new lies in a region of {} (a missing region's lengths: --region, --pmem-levels)",
            lengths(report)
        ),
    }
}
