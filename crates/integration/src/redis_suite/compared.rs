//! What harnesses that run somebody's tests on Redis and on our servers have in common: options,
//! what came of the tests, and which differences have a reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::known::{Known, REASONS};
use super::run::SuiteServer;
use crate::arguments::named;
use crate::suites::page::counts;
use crate::suites::{Results, TestOutcome, differences};

/// What to do.
#[derive(Debug)]
pub struct SuiteArguments {
    /// Files of tests.
    pub files: Vec<&'static str>,
    /// Servers beside Redis.
    pub servers: Vec<SuiteServer>,
    /// Where the tests are; else they are fetched.
    pub source: Option<PathBuf>,
    /// Where they are fetched to and run.
    pub folder: PathBuf,
}

impl SuiteArguments {
    /// Reads options; `files` is the name of the one that chooses among `all` files.
    ///
    /// # Errors
    /// An option is unknown, or its value is; behind it stands `usage`.
    pub fn read(
        words: &[String],
        usage: &str,
        (files, all): (&str, &[&'static str]),
        folder: &str,
    ) -> Result<SuiteArguments, String> {
        let mut arguments = SuiteArguments {
            files: all.to_vec(),
            servers: vec![SuiteServer::Packed],
            source: None,
            folder: PathBuf::from(folder),
        };
        for pair in words.chunks(2) {
            let [option, value] = pair else { return Err(format!("{} needs a value\n\n{usage}", pair[0])) };
            match option.as_str() {
                option if option == files => arguments.files = named(value, all, |file| file)?,
                "--servers" => arguments.servers = named(value, SuiteServer::OURS, SuiteServer::name)?,
                "--source" => arguments.source = Some(value.into()),
                "--folder" => arguments.folder = value.into(),
                _ => return Err(format!("unknown option `{option}`\n\n{usage}")),
            }
        }
        Ok(arguments)
    }

    /// The folder, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be.
    pub fn make_folder(&self) -> Result<PathBuf, String> {
        let cannot = |error| format!("cannot use {}: {error}", self.folder.display());
        fs::create_dir_all(&self.folder).map_err(cannot)?;
        self.folder.canonicalize().map_err(cannot)
    }
}

/// What came of the tests of all files with one server.
#[derive(Debug, Default)]
pub struct Tally {
    counted: [usize; 3],
    /// Tests that a reason was needed for, by its kind.
    reasons: BTreeMap<String, usize>,
}

impl Tally {
    /// Adds the results of a file, and holds them against those with Redis. What has no reason, and
    /// which of the reasons explain something.
    pub fn add(
        &mut self,
        file: &str,
        server: SuiteServer,
        [theirs, ours]: [&Results; 2],
        known: &[Known],
    ) -> (Vec<String>, Vec<bool>) {
        let counted = counts(ours);
        self.counted = std::array::from_fn(|at| self.counted[at] + counted[at]);
        let (mut faults, mut are_used) = (Vec::new(), vec![false; known.len()]);
        for difference in &differences(theirs, ours) {
            match known.iter().position(|known| known.explains(file, server, &difference.test)) {
                Some(at) => {
                    are_used[at] = true;
                    *self.reasons.entry(known[at].reason.clone()).or_default() += 1;
                }
                // One that Redis fails and we pass needs no reason.
                None if difference.ours == TestOutcome::Passed => {}
                None => {
                    let (name, test, message) = (server.name(), &difference.test, &difference.message);
                    let (theirs, ours) = (difference.theirs.name(), difference.ours.name());
                    faults.push(format!("{file} | {name} | {test}: {theirs} with Redis, {ours} with ours: {message}"));
                }
            }
        }
        (faults, are_used)
    }

    /// Lines about a server; `what` became of tests that a reason was needed for.
    pub fn told(&self, server: SuiteServer, what: &str) -> String {
        let [passed, failed, skipped] = self.counted;
        let mut text = format!("{}: {passed} passed, {failed} failed, {skipped} skipped", server.name());
        for (name, why) in REASONS {
            if let Some(count) = self.reasons.get(*name) {
                // Writing to a String does not fail.
                let _ = write!(text, "\n  {count} {what}: {name}, {why}");
            }
        }
        text
    }
}

/// How a comparison ends.
///
/// # Errors
/// Something was found.
pub fn end(faults: &[String]) -> Result<(), String> {
    match faults.len() {
        0 => Ok(()),
        count => Err(format!("{count} findings\n{}", faults.join("\n"))),
    }
}

/// Runs a tool in a folder.
///
/// # Errors
/// It is not there, or fails: what it said.
pub(crate) fn tool(command: &mut Command, folder: &Path) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.current_dir(folder).output().map_err(|error| format!("cannot start {name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// A folder for one run: empty, whatever an earlier one has left.
///
/// # Errors
/// It cannot be made.
pub(crate) fn fresh_place(folder: &Path, server: SuiteServer, file: &str) -> Result<PathBuf, String> {
    let place = folder.join(format!("{}-{}", server.name(), file.replace('/', "-")));
    let failed = |error| format!("cannot prepare {}: {error}", place.display());
    if place.exists() {
        fs::remove_dir_all(&place).map_err(failed)?;
    }
    fs::create_dir_all(&place).map_err(failed)?;
    Ok(place)
}

/// Removes the store of a run that has ended; its log stays.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove_store(place: &Path) -> Result<(), String> {
    let data = place.join("data");
    match data.exists() {
        true => fs::remove_dir_all(&data).map_err(|error| format!("cannot remove {}: {error}", data.display())),
        false => Ok(()),
    }
}
