//! `stratakv check`.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use stratakv::{CheckReport, Engine, Format, Options};
use stratakv_base::quantity::{format_bytes, format_count};

use crate::failure::{DEVICE_ADVICE, Exit, Failure};
use crate::json_line::Line;
use crate::opening::{DataArguments, Io};
use crate::remote::{Client, RangeRequest, ServerArguments, Verified};
use crate::trees::{self, TreeFindings};
use crate::{Output, progress};

/// Memory of a store that is opened, and for each record: its key, and an entry of the index.
const OPENED_BYTES: u64 = 256 << 20;
const RECORD_BYTES: u64 = 256;

/// Read and verify a whole store that no process has open, or the records of a running server;
/// changes nothing
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv check\n  stratakv check --data /mnt/nvme/store --json
  stratakv check --server 127.0.0.1:11211

Reads every byte that a get could read, compares the index with the disk, and verifies the space \
accounting. If there are long structures of Redis clients, it reads the nodes of each. Exit code 4 for damage: it lists lost records with their keys, then each damaged \
place. Exit code 1 if there is none, but the device did not give all bytes: it lists these places, \
whose content may be whole.

With --server it gets every record of the default collection once, as clients do: a page, then the next one. \
The server compares checksums of what it reads from the disk; what it has in memory it does not read again. \
Named collections, structures of Redis clients, free space and the index are not verified so: it says so.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    server: ServerArguments,
    /// What carries the I/O
    #[arg(long, value_enum, default_value_t)]
    io: Io,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if let Some(server) = arguments.server.connect()? {
        return remote(server, arguments.json, output);
    }
    let path = arguments.data.first();
    let options = options_of(arguments).progress(progress::bar("checking"));
    let mut report = stratakv::check_with(path, &options)?;
    // Recovery and the check of the accounting may both have met a place.
    report.damage.sort();
    report.damage.dedup();
    let format = stratakv::format_of(path).ok().flatten();
    let mut structures = TreeFindings::default();
    if let (true, Some(format)) = (report.is_sound(), format) {
        // Each record is what was written. Whether long structures are whole is another question.
        let memory_bytes = OPENED_BYTES.saturating_add(report.records.saturating_mul(RECORD_BYTES));
        let store = options_of(arguments).read_only(true).memory_bytes(memory_bytes).open(path)?;
        structures = trees::verify(&store, format.engine)?;
        report.damage = std::mem::take(&mut structures.damage);
        store.close()?;
    }
    let written =
        if arguments.json { write_json(&report, format, output) } else { write_text(&report, format, output) };
    written.map_err(Failure::output)?;
    if report.is_sound() {
        return unverified(&structures).map_or(Ok(()), Err);
    }
    let is_cache = format.is_some_and(|format| format.engine == Engine::Tier);
    Err(failure(&report, &path.display().to_string(), is_cache))
}

/// Structures of which only a newer program can say whether they are whole.
fn unverified(found: &TreeFindings) -> Option<Failure> {
    let structures = format_count(found.newer, "structure");
    let why = format!("every record is sound, but {structures} cannot be verified. {}", found.first_newer);
    (found.newer > 0).then(|| Failure::new(Exit::Unsupported, why))
}

/// Reads every record of a server.
fn remote(mut server: Client, json: bool, output: &mut Output) -> Result<(), Failure> {
    let told = server.statistics("")?;
    let figure = |name: &str| -> u64 {
        let found = told.iter().find(|(known, _)| known == name);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    };
    let expected = figure("curr_items");
    let show = progress::bar_of_records("checking");
    let mut known = Verified::default();
    server.keys_of_range(RangeRequest::of_prefix(b""), &mut |server, keys| {
        server.verify(&keys, &mut known)?;
        show(known.records, expected.max(known.records + 1));
        Ok(())
    })?;
    let places = figure("damaged_places") + figure("corrupt_records");
    let failed = figure("read_only_after_a_failure") + figure("broken_shards");
    let written = if json {
        let damaged: Vec<_> =
            known.damaged.iter().map(|(key, why)| json!({ "key": Line::key_only(key), "why": why })).collect();
        let object = json!({
            "records": known.records, "bytes": known.bytes, "damaged": damaged, "unread": known.unread,
            "damaged_places": places, "failed_shards": failed, "scope": "records of the default collection",
        });
        writeln!(output, "{object}")
    } else {
        write_verified(&known, output)
    };
    written.map_err(Failure::output)?;
    match (known.damaged.len() as u64, places, failed) {
        (0, 0, 0) => Ok(()),
        (0, 0, _) => {
            Err(Failure::failed("shards take no writes after a failure: see the server's log, and start it again"))
        }
        (records, places, _) => Err(Failure::new(
            Exit::Corrupt,
            format!(
                "{} cannot be read, and the server knows of {}: stop it and run `stratakv check` on its --data for all of it",
                format_count(records, "record"),
                format_count(places, "damaged place")
            ),
        )),
    }
}

fn write_verified(known: &Verified, output: &mut Output) -> io::Result<()> {
    for (key, why) in &known.damaged {
        writeln!(output, "damaged: `{}`: {why}", key.escape_ascii())?;
    }
    writeln!(output, "{} read, {}", format_count(known.records, "record"), format_bytes(known.bytes))?;
    if known.unread > 0 {
        let records = format_count(known.unread, "record");
        writeln!(output, "not read: {records}, structures of Redis clients and keys of more than 250 bytes")?;
    }
    writeln!(
        output,
        "not verified: named collections, free space, the index, and what the server had in memory; that takes `stratakv check` on the stopped store"
    )
}

/// Where the store is, and what carries the I/O.
fn options_of(arguments: &Arguments) -> Options {
    let data = &arguments.data;
    let options = Options::new().create(false).io(arguments.io.into()).data_directories(data.more_directories());
    options.devices(data.devices()).region_paths(data.regions())
}

/// Why a store is not sound: damage, or a device that does not answer, which is none.
fn failure(report: &CheckReport, path: &str, is_cache: bool) -> Failure {
    let unreadable = report.unreadable.len() as u64;
    let places = format_count(unreadable, "place");
    let knows_damage = !report.damage.is_empty() || report.lost_records + report.lost_unknown > 0;
    match (unreadable, knows_damage || !report.mistakes.is_empty()) {
        (0, _) => Failure::new(Exit::Corrupt, summary(report, path, is_cache)),
        (_, true) => {
            let damage = summary(report, path, is_cache);
            Failure::new(Exit::Corrupt, format!("{damage}. Besides, the device did not give {places}; {DEVICE_ADVICE}"))
        }
        (_, false) => Failure::failed(format!(
            "the device did not give {places} of {path}, and nothing else is wrong; {DEVICE_ADVICE}, then check again. \
             What can be read is copied with `stratakv dump --skip-damaged`"
        )),
    }
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
        (0, 0, 0) if !report.mistakes.is_empty() => {
            let mistakes = plural(report.mistakes.len() as u64, "account does", "accounts do");
            format!("{mistakes} not add up: a defect of this program, please report it")
        }
        (_, 0, 0) => format!("{places} in {path}, but no record that is known is lost; {advice}"),
        (_, lost, 0) => format!("{} lost in {path} ({places}); {advice}", plural(lost, "record is", "records are")),
        (_, lost, unknown) => {
            let lost = plural(lost, "record is", "records are");
            format!("{lost} lost in {path}, and up to {unknown} whose keys cannot be read ({places}); {advice}")
        }
    }
}

fn write_json(report: &CheckReport, format: Option<Format>, output: &mut Output) -> io::Result<()> {
    let lost: Vec<Line> = report.lost.iter().map(|key| Line::key_only(key.user())).collect();
    let object = json!({
        "sound": report.is_sound(), "shards": report.shards, "records": report.records, "pages": report.pages,
        "pages_free": report.pages_free, "torn": report.torn, "lost": lost, "lost_records": report.lost_records,
        "lost_unknown": report.lost_unknown, "damage": report.damage, "unreadable": report.unreadable,
        "mistakes": report.mistakes, "engine": format.map(|format| format.engine.name()),
        "placement": format.and_then(placement),
    });
    writeln!(output, "{object}")
}

/// That of engine `slab`.
fn placement(format: Format) -> Option<&'static str> {
    (format.engine == Engine::Slab).then(|| format.placement.name())
}

fn write_text(report: &CheckReport, format: Option<Format>, output: &mut Output) -> io::Result<()> {
    let size = format_bytes(report.pages * 4096);
    let (shards, records) = (format_count(u64::from(report.shards), "shard"), format_count(report.records, "record"));
    let placement = format.and_then(placement).map_or(String::new(), |placement| format!(", placement {placement}"));
    let engine = format.map_or(String::new(), |format| format!("; engine {}{placement}", format.engine.name()));
    writeln!(output, "{shards}, {records}, {size}, {} free{engine}", format_count(report.pages_free, "page"))?;
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
    for place in &report.unreadable {
        writeln!(output, "unreadable: {place}")?;
    }
    for mistake in &report.mistakes {
        writeln!(output, "does not add up: {mistake}")?;
    }
    if report.is_sound() {
        writeln!(output, "sound")?;
    }
    Ok(())
}
