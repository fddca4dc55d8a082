//! What an administrator does to the files of a running server.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{ScenarioOutcome, Setting, honest};
use crate::program::{self, said};

/// Whom permissions bind.
const NOBODY: u32 = 65_534;

/// Writes acknowledged to go on in spite of it.
const GO_ON: u64 = 300;

pub(super) fn permissions(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    // Root is not bound by permissions, and nobody may not enter a private home: a place and a
    // program of its own.
    let public = tempfile::tempdir().map_err(|error| error.to_string())?;
    permit(public.path(), 0o777)?;
    let data = public.path().join("data");
    let mut trial = setting.trial(&data, 4, honest());
    if rustix::process::getuid().is_root() {
        let copy = public.path().join("stratakv");
        std::fs::copy(program::binary(), &copy).map_err(|error| format!("cannot copy the program: {error}"))?;
        trial.serve.program = Some(copy);
        trial.serve.user = Some(NOBODY);
    }
    for _ in 0..setting.either(2, 10) {
        let served = trial.start()?;
        let load = trial.load(&served);
        load.go_on(GO_ON)?;
        permit_all(&data, 0)?;
        load.go_on(GO_ON)?;
        trial.kill(served, load)?;
        let mut refused = trial.serve.spawn().map_err(|error| error.to_string())?;
        match refused.wait_ready() {
            Ok(()) => return Err("a store that nobody may read was opened".into()),
            Err(message) if message.contains("ermission denied") && message.contains("data") => {}
            Err(message) => return Err(format!("it does not say that permission is denied: {message}")),
        }
        drop(refused);
        permit_all(&data, 0o700)?;
    }
    let served = trial.start()?;
    let load = trial.load(&served);
    permit_all(&data, 0)?;
    load.go_on(GO_ON)?;
    trial.close(served, load).map_err(|message| format!("closing without permissions: {message}"))?;
    permit_all(&data, 0o700)?;
    let tally = trial.finish()?;
    Ok(ScenarioOutcome::Held(format!("{tally:?}")))
}

pub(super) fn renamed(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    let mut data = setting.place.join("data0");
    let mut trial = setting.trial(&data, 4, honest());
    for round in 1..=setting.either(2, 10) {
        let served = trial.start()?;
        let load = trial.load(&served);
        load.go_on(GO_ON)?;
        let elsewhere = setting.place.join(format!("data{round}"));
        std::fs::rename(&data, &elsewhere).map_err(|error| error.to_string())?;
        load.go_on(GO_ON)?;
        expect(&data, Some(3), "no store")?;
        expect(&elsewhere, Some(5), "another process")?;
        if round % 2 == 0 {
            trial.close(served, load)?
        } else {
            trial.kill(served, load)?
        };
        data = elsewhere;
        trial.serve.data.clone_from(&data);
    }
    let tally = trial.finish()?;
    Ok(ScenarioOutcome::Held(format!("{tally:?}")))
}

/// What `stratakv check` says of a place.
fn expect(data: &Path, code: Option<i32>, words: &str) -> Result<(), String> {
    let mut check = program::command();
    let output = check.arg("check").arg("--data").arg(data).output().map_err(|error| error.to_string())?;
    match output.status.code() == code && said(&output).contains(words) {
        true => Ok(()),
        false => Err(format!("check of {} should end with {code:?} and `{words}`: {}", data.display(), said(&output))),
    }
}

fn permit(path: &Path, mode: u32) -> Result<(), String> {
    let permit = std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
    permit.map_err(|error| format!("cannot change the permissions of {}: {error}", path.display()))
}

/// Of a directory and what is in it.
fn permit_all(directory: &Path, mode: u32) -> Result<(), String> {
    permit(directory, 0o700)?;
    let entries = std::fs::read_dir(directory).map_err(|error| error.to_string())?;
    let inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    inside.iter().try_for_each(|path| permit(path, mode))?;
    permit(directory, mode)
}
