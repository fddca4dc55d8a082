//! The host's side: boots, then power cuts over the log of all writes, and what clients were
//! acknowledged is compared with what each cut leaves.

use std::path::{Path, PathBuf};

use stratakv::{Level, Options, ScanOptions};

use super::super::super::guest::{open_direct, text};
use super::super::super::host::{Cuts, Plan, Tally, read, read_mail};
use super::super::super::log::{self, LogEntry};
use super::super::super::machine::Machine;
use super::super::super::replay::Replayer;
use super::super::super::trace as issued;
use super::super::super::verify::Bench;
use super::super::super::workload::{DEVICE_BYTES, FILE_SYSTEM_BYTES, name};
use super::super::cuts::{END_FLUSHES_MAX, Files, VOLUMES};
use super::super::{BypassTask, board, trace};
use super::{IDLE_KEY, ServeKind, ServeTask, StoreKind, Trouble, script};

/// Ends the commands of one server in the guest's mail.
pub(super) const END_OF_SERVER: &str = "end\n";
/// Where the log is told that a server has ended: behind the witness sectors.
const END_AT: u64 = FILE_SYSTEM_BYTES + (64 << 10);
const MAGIC: &[u8; 8] = b"SKVENDED";

/// In the guest: a server has ended, and the controller carries out nothing of it any more.
pub(super) fn mark_end(home: &str, number: u32) -> Result<(), String> {
    use std::os::unix::fs::FileExt;
    let mut sector = stratakv_device::Pool::new(1 << 20).take(stratakv_device::Class::Page).ok_or("no memory")?;
    let sector = sector.get_mut(..512).ok_or("a block is longer than a sector")?;
    sector.fill(0);
    let words = MAGIC.iter().copied().chain(number.to_le_bytes());
    sector.iter_mut().zip(words).for_each(|(place, byte)| *place = byte);
    open_direct(home)?.write_all_at(sector, END_AT).map_err(text("mark a server's end"))
}

fn is_end(log: &[u8], entry: &LogEntry) -> bool {
    matches!(entry, LogEntry::Write { at: END_AT, data, .. } if log.get(data.clone()).is_some_and(|data| data.starts_with(MAGIC)))
}

/// Boots and power cuts for each kind, and what else happens to controllers under a server.
pub(in super::super) fn run(
    machine: &Machine,
    cache: &Path,
    plan: &Plan,
    kinds: &[ServeKind],
    report: &mut dyn FnMut(String),
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let durable = kinds.iter().filter(|kind| **kind != ServeKind::Tier).count().max(1) as u32;
    for (number, kind) in (0..).zip(kinds) {
        let seed = plan.seed.wrapping_add(number);
        let task = ServeTask { kind: *kind, trouble: Trouble::Nothing, seed, steps: plan.steps };
        let files = Files::create(cache)?;
        let base = read(&files.device)?;
        let words = BypassTask::Serve(task).to_words();
        let said = machine.boot_on(&board(), &files.logged(), &words)?;
        tally.boots += 1;
        report(format!("boot {}, {words}: {said}", tally.boots));
        if *kind != ServeKind::Tier {
            cut(&files, base, plan, (task, plan.prefixes / durable), &mut tally, report)?;
        }
        if tally.lost > 0 {
            return Ok(tally);
        }
    }
    // An engine whose writes go to the controller at once.
    let kind = ServeKind::Store(StoreKind::InPlace);
    if plan.lies.is_honest() && kinds.len() > 1 {
        for trouble in [Trouble::WriteErrors, Trouble::Reset] {
            let files = Files::create(cache)?;
            let words = BypassTask::Serve(ServeTask { kind, trouble, seed: plan.seed, steps: plan.steps }).to_words();
            let drives = if trouble == Trouble::WriteErrors { files.failing_and_mail() } else { files.logged() };
            let said = machine.boot_on(&board(), &drives, &words)?;
            tally.boots += 1;
            report(format!("boot {}, {words}: {said}", tally.boots));
        }
    }
    Ok(tally)
}

/// Power cuts over the log of one boot.
fn cut(
    files: &Files,
    base: Vec<u8>,
    plan: &Plan,
    (task, count): (ServeTask, u32),
    tally: &mut Tally,
    report: &mut dyn FnMut(String),
) -> Result<(), String> {
    let log = read(&files.log)?;
    let mut entries = log::parse(&log)?;
    mark(&log, &mut entries, &read_mail(&files.mail)?, tally)?;
    let bench = Bench::new()?;
    let checked = std::cell::Cell::new(0);
    let verify = |image: &[u8], acknowledged: &[u32]| {
        let (home, volumes) = image.split_at_checked(DEVICE_BYTES as usize).ok_or("the image is cut off")?;
        let is_new = acknowledged.iter().all(|count| *count == 0);
        checked.set(checked.get() + script::writes(task.seed, acknowledged));
        bench.verify_with(home, Some(volumes), is_new, &|store, devices| compare(store, devices, task, acknowledged))
    };
    let words = BypassTask::Serve(task).to_words();
    let before = tally.acknowledged;
    let cuts = Cuts { seed: task.seed, count, words, verify: &verify };
    let replayer = Replayer::new(base, &log, &entries, plan.lies).write_through(0..DEVICE_BYTES);
    cuts.run(replayer, (&log, &entries), tally, report);
    // Reads are steps too, and promise nothing.
    tally.acknowledged = before + checked.get();
    Ok(())
}

/// Marks the writes that had FUA, server by server.
fn mark(log: &[u8], entries: &mut [LogEntry], mail: &str, tally: &mut Tally) -> Result<(), String> {
    let servers: Vec<&str> = mail.split(END_OF_SERVER).collect();
    let logged = entries.iter().filter(|entry| **entry == LogEntry::Flush).count() as u64;
    let mut flushes = 0;
    let mut rest = &mut *entries;
    // What is behind the last one's end has no commands.
    for (number, commands) in servers.iter().take(servers.len() - 1).enumerate() {
        let end = rest.iter().position(|entry| is_end(log, entry));
        let end = end.ok_or_else(|| format!("the log does not tell of the end of server {}", number + 1))?;
        let (of_server, behind) = std::mem::take(&mut rest).split_at_mut(end + 1);
        let (writes, flushes_of) = trace::parse(commands);
        flushes += flushes_of;
        // A server that is killed leaves commands that were told of and not carried out.
        tally.fua += issued::mark_some(writes.into_iter(), VOLUMES, of_server)
            .map_err(|why| format!("server {}: {why}", number + 1))?
            .0;
        rest = behind;
    }
    if logged == 0 || logged > flushes + END_FLUSHES_MAX * servers.len() as u64 {
        return Err(format!("the driver sent {flushes} flushes, and {logged} are in the log"));
    }
    let on_volumes = |entry: &&LogEntry| matches!(entry, LogEntry::Write { at, .. } if VOLUMES.contains(at));
    tally.writes += entries.iter().filter(on_volumes).count() as u64;
    tally.flushes += logged;
    Ok(())
}

/// Every key of a store that was opened after a cut.
fn compare(store: &Path, devices: &[PathBuf], task: ServeTask, acknowledged: &[u32]) -> Result<u64, String> {
    let options = Options::new().create(false).memory_bytes(64 << 20).level(Level::ProcessCrash).cores(1);
    let store = options.devices(devices).open(store).map_err(|error| format!("open: {error}"))?;
    let known = script::known(task.seed, acknowledged, task.steps);
    let mut left: std::collections::BTreeMap<String, u64> = known.keys().map(|key| (name(*key), *key)).collect();
    for item in store.scan(ScanOptions::all()) {
        let (found, record) = item.map_err(|error| format!("scan: {error}"))?;
        let found = String::from_utf8_lossy(&found).into_owned();
        if found == name(IDLE_KEY) {
            continue;
        }
        let key = left.remove(&found).ok_or_else(|| format!("{found}: nobody wrote it"))?;
        let known = known.get(&key).ok_or("a key without a state")?;
        script::compare(task.seed, key, known, Some(&record.to_bytes()))?;
    }
    for key in left.into_values() {
        script::compare(task.seed, key, known.get(&key).ok_or("a key without a state")?, None)?;
    }
    store.close().map_err(|error| error.to_string())?;
    Ok(known.len() as u64)
}
