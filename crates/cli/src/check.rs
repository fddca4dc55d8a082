//! `stratakv check`.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use stratakv::{CheckReport, Engine};
use stratakv_base::quantity::{format_bytes, format_count};

use crate::failure::{Exit, Failure};
use crate::json_line::Line;
use crate::opening::DataArguments;
use crate::{Output, progress};

/// Read and verify a whole store that no process has open; changes nothing
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv check\n  stratakv check --data /mnt/nvme/store --json

Every record's checksum and place, the index against the disk, the books of free space. Exit code 4 when something is damaged;
records that are lost are listed with their keys, then each damaged place.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let path = arguments.data.first();
    let watch = Some(progress::watch("checking"));
    let mut report = stratakv::check_spread(
        path,
        arguments.data.further(),
        arguments.data.devices(),
        arguments.data.regions(),
        watch,
    )?;
    // Recovery and the check of the books may both have met a place.
    report.damage.sort();
    report.damage.dedup();
    let written = if arguments.json { write_json(&report, output) } else { write_text(&report, output) };
    written.map_err(Failure::output)?;
    if report.is_sound() {
        return Ok(());
    }
    let is_cache = stratakv::format_of(path).ok().flatten().is_some_and(|format| format.engine == Engine::Tier);
    Err(Failure::new(Exit::Corrupt, summary(&report, &path.display().to_string(), is_cache)))
}

fn summary(report: &CheckReport, path: &str, is_cache: bool) -> String {
    let plural = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let places = plural(report.damage.len() as u64, "damaged place", "damaged places");
    let advice = match is_cache {
        true => {
            "it is a cache: opening it drops what is damaged, which is missed from then on, and nothing else need be done; if it happens again, look at the disk"
        }
        false => {
            "what is undamaged can be read and copied with `stratakv dump --skip-damaged`; restore the rest from a backup"
        }
    };
    match (report.damage.len(), report.lost_records, report.lost_unknown) {
        (0, 0, 0) => {
            let books = plural(report.mistakes.len() as u64, "book does", "books do");
            format!("{books} not add up: a defect of this program, please report it")
        }
        (_, 0, 0) => format!("{places} in {path}, but no record that is known is lost; {advice}"),
        (_, lost, 0) => format!("{} lost in {path} ({places}); {advice}", plural(lost, "record is", "records are")),
        (_, lost, unknown) => {
            let lost = plural(lost, "record is", "records are");
            format!("{lost} lost in {path}, and up to {unknown} whose keys cannot be read ({places}); {advice}")
        }
    }
}

fn write_json(report: &CheckReport, output: &mut Output) -> io::Result<()> {
    let lost: Vec<Line> = report.lost.iter().map(|key| Line::key_only(key.user())).collect();
    let object = json!({
        "sound": report.is_sound(), "shards": report.shards, "records": report.records, "pages": report.pages,
        "pages_free": report.pages_free, "torn": report.torn, "lost": lost, "lost_records": report.lost_records,
        "lost_unknown": report.lost_unknown, "damage": report.damage, "mistakes": report.mistakes,
    });
    writeln!(output, "{object}")
}

fn write_text(report: &CheckReport, output: &mut Output) -> io::Result<()> {
    let size = format_bytes(report.pages * 4096);
    let (shards, records) = (format_count(u64::from(report.shards), "shard"), format_count(report.records, "record"));
    writeln!(output, "{shards}, {records}, {size}, {} free", format_count(report.pages_free, "page"))?;
    if report.torn > 0 {
        let writes = format_count(report.torn, "write");
        writeln!(output, "cut off before they were acknowledged, so harmless: {writes}")?;
    }
    for key in &report.lost {
        writeln!(output, "lost: {key}, whose newest record is damaged")?;
    }
    match report.lost_records - report.lost.len() as u64 {
        0 => {}
        more => writeln!(output, "lost: {more} more")?,
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
