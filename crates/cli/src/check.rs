//! `stratakv check`.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use stratakv::CheckReport;
use stratakv_base::quantity::format_bytes;

use crate::failure::{Exit, Failure};
use crate::opening::DataArguments;
use crate::{Output, progress};

/// Read and verify a whole store that no process has open; changes nothing
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv check\n  stratakv check --data /mnt/nvme/store --json

Every record's checksum and place, the index against the disk, the books of free space. Exit code 4 when something is damaged;
each damaged place is listed.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let (path, further) = (arguments.data.first(), arguments.data.further());
    let mut report = stratakv::check_spread(path, further, Some(progress::watch("checking")))?;
    // Recovery and the check of the books may both have met a place.
    report.damage.sort();
    report.damage.dedup();
    let written = if arguments.json { write_json(&report, output) } else { write_text(&report, output) };
    written.map_err(Failure::output)?;
    if report.is_sound() {
        return Ok(());
    }
    let (damage, mistakes) = (report.damage.len(), report.mistakes.len());
    let advice =
        "what is undamaged can be read and copied with `stratakv dump --skip-damaged`; restore the rest from a backup";
    let message = match (damage, mistakes) {
        (0, mistakes) => format!("{mistakes} books do not add up: a defect of this program, please report it"),
        (damage, _) => format!("{damage} places in {} are damaged; {advice}", path.display()),
    };
    Err(Failure::new(Exit::Corrupt, message))
}

fn write_json(report: &CheckReport, output: &mut Output) -> io::Result<()> {
    let object = json!({
        "sound": report.is_sound(), "shards": report.shards, "records": report.records, "pages": report.pages,
        "pages_free": report.pages_free, "torn": report.torn, "damage": report.damage, "mistakes": report.mistakes,
    });
    writeln!(output, "{object}")
}

fn write_text(report: &CheckReport, output: &mut Output) -> io::Result<()> {
    let size = format_bytes(report.pages * 4096);
    writeln!(output, "{} shards, {} records, {size}, {} pages free", report.shards, report.records, report.pages_free)?;
    if report.torn > 0 {
        writeln!(output, "{} writes were cut off before they were acknowledged: harmless", report.torn)?;
    }
    for damage in &report.damage {
        writeln!(output, "damaged: {damage}")?;
    }
    for mistake in &report.mistakes {
        writeln!(output, "does not add up: {mistake}")?;
    }
    if report.is_sound() {
        writeln!(output, "sound")?;
    }
    Ok(())
}
