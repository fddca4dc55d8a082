//! The last space of a file system: who needs none goes on, and shards share it.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::disk::SmallDisk;
use super::{ScenarioOutcome, Setting, connect, honest};
use crate::memcache::Client;
use crate::value;

const KEYS: u64 = 200;
const VALUE_BYTES: usize = 2_000;
/// Values with which a disk is filled.
const FILLING_BYTES: usize = 20_000;
/// More than any disk here holds.
const FILLING_MAX: u64 = 100_000;
const SHARDS: u64 = 4;

/// A store is killed, others fill its file system to the last byte, and it opens for writing, is
/// read, deleted from, and closed in order.
pub(super) fn full_opening(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    let disk = match SmallDisk::mount(setting.place, 160 << 20) {
        Ok(disk) => disk,
        Err(outcome) => return Ok(outcome),
    };
    let mut trial = setting.trial(&disk.path().join("data"), 1, honest());
    if let Some(region) = trial.serve.options.iter().position(|option| option == "--region") {
        trial.serve.options[region + 1] = "24M".into();
    }
    let mut served = trial.start()?;
    let mut client = connect(&served)?;
    for key in 0..KEYS {
        put(&mut client, key, VALUE_BYTES)?.map_err(|line| format!("with room: {line}"))?;
    }
    served.kill();
    // Once after a kill, and once after an orderly end.
    let others = disk.path().join("others");
    for how in ["killed", "closed in order"] {
        let _others = fill_up(&others)?;
        let served = trial.start().map_err(|why| format!("{how}, then opened on a full file system: {why}"))?;
        let mut client = connect(&served)?;
        for key in 0..KEYS {
            let found = client.get(name(key).as_bytes()).map_err(|error| format!("{how}: {error}"))?;
            let found = found.ok_or_else(|| format!("{how}: {} is lost", name(key)))?;
            value::decode(key, &found).map_err(|message| format!("{how}, {}: {message}", name(key)))?;
        }
        let deleted = client.ask(&format!("delete {}", name(KEYS + 1)));
        if deleted.as_deref().ok() != Some("NOT_FOUND") {
            return Err(format!("{how}: a delete of nothing was answered {deleted:?}"));
        }
        drop(client);
        let stopped = served.stop();
        if !stopped.success() {
            return Err(format!("{how}: the server ended with {stopped}"));
        }
    }
    Ok(ScenarioOutcome::Held(format!("{KEYS} records were there")))
}

/// Shards grow side by side until the file system is full: the first refusal comes when most of
/// what fits is there.
pub(super) fn shared_last_space(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    if !setting.engine.has_volumes() {
        return Ok(ScenarioOutcome::Held("it has no volumes".into()));
    }
    let disk = match SmallDisk::mount(setting.place, setting.either(256 << 20, 1 << 30)) {
        Ok(disk) => disk,
        Err(outcome) => return Ok(outcome),
    };
    let mut trial = setting.trial(&disk.path().join("data"), 1, honest());
    let options = &mut trial.serve.options;
    if let Some(shards) = options.iter().position(|option| option == "--shards") {
        options.drain(shards..shards + 2);
    }
    if let Some(region) = options.iter().position(|option| option == "--region") {
        options[region + 1] = "32M".into();
    }
    trial.serve = trial.serve.options(&["--shards", &SHARDS.to_string()]);
    let served = trial.start()?;
    let mut client = connect(&served)?;
    let (mut stored, mut refused, mut first) = (0, 0, None);
    for key in 0..FILLING_MAX {
        match put(&mut client, key, FILLING_BYTES)? {
            Ok(()) => stored += 1,
            Err(line) if line.contains("full") => {
                first.get_or_insert(stored);
                refused += 1;
            }
            Err(line) => return Err(format!("a write to a full disk was answered `{line}`")),
        }
        // With as many refusals in a row as this, no shard takes anything.
        if refused > stored / 10 + 100 {
            break;
        }
    }
    drop(client);
    let stopped = served.stop();
    let first = first.ok_or("it was never full")?;
    let percent = 100 * first / stored.max(1);
    match (stopped.success(), percent >= FIRST_REFUSAL_PERCENT_MIN) {
        (false, _) => Err(format!("the server ended with {stopped}")),
        (_, false) => Err(format!("the first of {stored} values that fit was refused after {first}: {percent} %")),
        _ => Ok(ScenarioOutcome::Held(format!("the first refusal came after {percent} % of {stored} values"))),
    }
}

/// Of what fits, so much is stored before the first refusal.
const FIRST_REFUSAL_PERCENT_MIN: u64 = 75;

/// Takes all that a file system has left, for as long as the file is kept.
fn fill_up(path: &Path) -> Result<Filling<'_>, String> {
    let mut file = File::create(path).map_err(|error| error.to_string())?;
    for len in [1 << 20, 4096, 1] {
        while file.write_all(&vec![0; len]).and_then(|()| file.sync_data()).is_ok() {}
    }
    Ok(Filling(path))
}

struct Filling<'a>(&'a Path);

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

fn put(client: &mut Client, key: u64, len: usize) -> Result<Result<(), String>, String> {
    let value = value::encode(key, 1, len);
    let line = client.set(name(key).as_bytes(), &value).map_err(|error| format!("a set: {error}"))?;
    Ok(if line == "STORED" { Ok(()) } else { Err(line) })
}

fn name(key: u64) -> String {
    format!("key{key}")
}
