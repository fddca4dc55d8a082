//! No space left: writes are refused, reads and deletes go on, and there is a way back.

use std::collections::BTreeMap;
use std::path::Path;

use super::disk::SmallDisk;
use super::{ScenarioOutcome, Setting, connect};
use crate::crash::{Mix, Trial};
use crate::engine::Engine;
use crate::memcache::Client;
use crate::program::Served;
use crate::value;

/// What fills the disk, one after the other: the last room is in small pieces.
const BALLAST_BYTES: [usize; 3] = [50_000, 5_000, 1_500];
/// More than any disk here holds.
const BALLAST_MAX: u64 = 20_000;
/// Keys and the lengths of their values.
type Ballast = BTreeMap<u64, usize>;

/// Before its first key no writer's identities lie.
const BALLAST_ID: u64 = 1 << 50;

pub(super) fn full_disk(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    if !setting.engine.has_volumes() {
        // Its region is as long as it was when it was opened: that fills up instead.
        return fill_again_and_again(setting, &setting.place.join("data"), None);
    }
    let disk = match SmallDisk::mount(setting.place, setting.either(48 << 20, 100 << 20)) {
        Ok(disk) => disk,
        Err(outcome) => return Ok(outcome),
    };
    fill_again_and_again(setting, &disk.path().join("data"), None)
}

pub(super) fn file_size_limit(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    if !setting.engine.has_volumes() {
        return Ok(ScenarioOutcome::Held("a region grows only where it is opened".into()));
    }
    // In blocks of 512 bytes (dash) or 1 KiB (bash).
    let blocks = match setting.engine {
        // Longer than its capacity, see below.
        Engine::Matrix => setting.either(60_000, 150_000),
        _ => setting.either(24_000, 60_000),
    };
    fill_again_and_again(setting, &setting.place.join("data"), Some(format!("ulimit -f {blocks}")))
}

fn fill_again_and_again(setting: &Setting<'_>, data: &Path, before: Option<String>) -> Result<ScenarioOutcome, String> {
    let mix = Mix { keys_per_client: 100, value_bytes_max: 40_000, may_fail: true, evicts: false };
    let mut trial = setting.trial(data, 4, mix);
    trial.serve.before = before;
    if let Some(region) = trial.serve.options.iter().position(|option| option == "--region") {
        // Beside a disk it is short, so that it is full soon after.
        let (short, long) = if setting.engine.has_volumes() { ("8M", "8M") } else { ("24M", "100M") };
        trial.serve.options[region + 1] = setting.either(short, long).into();
        // What a compaction needs is set aside of a capacity; of a device, by nobody: when that is
        // full, deletes may be refused too.
        if setting.engine.has_volumes() {
            trial.serve = trial.serve.options(&["--capacity", setting.either("24M", "72M")]);
        }
    }
    let mut ballast = Ballast::new();
    let rounds = setting.either(2, 5);
    for _ in 0..rounds {
        let served = trial.start()?;
        let outcome = fill_and_kill(&mut trial, served, &mut ballast, setting.engine);
        outcome.map_err(|message| format!("{message}\nthe server said:\n{}", trial.serve.said()))?;
    }
    let served = trial.start()?;
    let mut client = connect(&served)?;
    check(&mut client, &ballast)?;
    for key in ballast.keys() {
        delete(&mut client, *key)?;
    }
    for key in 0..10 {
        put(&mut client, key, BALLAST_BYTES[0])?.map_err(|line| format!("with everything deleted: {line}"))?;
        delete(&mut client, key)?;
    }
    drop(client);
    let stopped = served.stop();
    if !stopped.success() {
        return Err(format!("the server ended with {stopped}"));
    }
    let tally = trial.finish()?;
    if tally.refused == 0 {
        return Err("no writer was refused: the disk was not full".into());
    }
    Ok(ScenarioOutcome::Held(format!("{} values filled it each of {rounds} times; {tally:?}", ballast.len())))
}

/// Fills the disk under the writers, makes room, fills it again, and kills the server.
fn fill_and_kill(trial: &mut Trial, served: Served, ballast: &mut Ballast, engine: Engine) -> Result<(), String> {
    let mut client = connect(&served)?;
    check(&mut client, ballast)?;
    let load = trial.load(&served);
    load.go_on(100)?;
    let (refused, mut filled) = (load.refused(), Ok(()));
    // Writers delete too, and so make room again.
    load.wait_until("writers are refused", || {
        filled = fill(&mut client, ballast);
        filled.is_err() || load.refused() > refused + 10
    })?;
    filled?;
    check(&mut client, ballast)?;
    // They would take the room that is made, in pieces.
    trial.rest(load)?;
    let half: Vec<(u64, usize)> = ballast.iter().step_by(2).map(|(key, len)| (*key, *len)).collect();
    for (key, _) in &half {
        delete(&mut client, *key)?;
        ballast.remove(key);
    }
    refill(&mut client, ballast, &half, engine)?;
    let load = trial.load(&served);
    load.go_on(100)?;
    fill(&mut client, ballast)?;
    trial.kill(served, load)
}

/// Puts back what was deleted: a good part must find room. That lies in pieces by now, so long
/// values may find none that is long enough; in an LSM tree it does not, and the long ones, which
/// come first, may take all of it.
fn refill(client: &mut Client, ballast: &mut Ballast, deleted: &[(u64, usize)], engine: Engine) -> Result<(), String> {
    let (mut stored_bytes, mut refused) = (0, String::new());
    for len in BALLAST_BYTES {
        let mut stored = 0;
        let keys: Vec<u64> = deleted.iter().filter(|(_, other)| *other == len).map(|(key, _)| *key).collect();
        for key in &keys {
            match put(client, *key, len)? {
                Ok(()) => {
                    ballast.insert(*key, len);
                    stored += 1;
                }
                Err(line) => refused = line,
            }
        }
        stored_bytes += stored * len;
        if engine != Engine::Matrix && len < BALLAST_BYTES[0] && stored < keys.len().div_ceil(4) {
            let count = keys.len();
            return Err(format!(
                "of {count} values of {len} bytes that were deleted {stored} find room again: {refused}"
            ));
        }
    }
    let deleted_bytes: usize = deleted.iter().map(|(_, len)| len).sum();
    match engine == Engine::Matrix && stored_bytes < deleted_bytes / 4 {
        true => Err(format!("of {deleted_bytes} bytes that were deleted {stored_bytes} find room again: {refused}")),
        false => Ok(()),
    }
}

/// Writes until it is refused, in words that say why.
fn fill(client: &mut Client, ballast: &mut Ballast) -> Result<(), String> {
    let mut keys = ballast.last_key_value().map_or(0, |(last, _)| last + 1)..BALLAST_MAX;
    for len in BALLAST_BYTES {
        for key in &mut keys {
            match put(client, key, len)? {
                Ok(()) if key < BALLAST_MAX - 1 => _ = ballast.insert(key, len),
                Ok(()) => return Err(format!("{BALLAST_MAX} values were stored: the disk is not full")),
                Err(line) if line.starts_with("SERVER_ERROR out of memory storing object") && line.contains("full") => {
                    break;
                }
                Err(line) => return Err(format!("a write to a full disk was answered `{line}`")),
            }
        }
    }
    Ok(())
}

fn put(client: &mut Client, key: u64, len: usize) -> Result<Result<(), String>, String> {
    let value = value::encode(BALLAST_ID + key, 1, len);
    let line = client.set(name(key).as_bytes(), &value).map_err(|error| format!("a set on a full disk: {error}"))?;
    Ok(if line == "STORED" { Ok(()) } else { Err(line) })
}

fn delete(client: &mut Client, key: u64) -> Result<(), String> {
    match client.ask(&format!("delete {}", name(key))) {
        Ok(line) if line == "DELETED" => Ok(()),
        other => Err(format!("a delete on a full disk was answered {other:?}")),
    }
}

/// What was acknowledged is there and whole.
fn check(client: &mut Client, ballast: &Ballast) -> Result<(), String> {
    for key in ballast.keys() {
        let found = client.get(name(*key).as_bytes()).map_err(|error| format!("a get on a full disk: {error}"))?;
        let found = found.ok_or_else(|| format!("{} is lost", name(*key)))?;
        value::decode(BALLAST_ID + key, &found).map_err(|message| format!("{}: {message}", name(*key)))?;
    }
    Ok(())
}

fn name(key: u64) -> String {
    format!("ballast{key}")
}
