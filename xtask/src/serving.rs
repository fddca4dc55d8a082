//! A server, for chores that talk to one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::cargo::{built, succeed};

/// A server under way; it ends with this.
pub struct Serving {
    child: Child,
    /// Where it tells of itself.
    pub admin: String,
    /// Where memcache clients connect.
    pub memcache: String,
    /// Where Redis clients do, if they may.
    pub resp: String,
    _stdout: BufReader<ChildStdout>,
}

impl Serving {
    /// Starts one of the debug build, with two threads, and two shards where the engine has more
    /// than one, on ports that are free.
    pub fn start(root: &Path, data: &Path, options: &[&str]) -> Result<Serving, String> {
        let mut command = Command::new(built(root, "debug", "stratakv"));
        command.args(["serve", "--memcache", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--threads", "2"]);
        if !options.contains(&"hash") {
            command.args(["--shards", "2"]);
        }
        command.args(["--memory", "256M", "--data"]).arg(data).args(options);
        Serving::spawn(command)
    }

    /// Starts a server by this command, and waits until it takes clients.
    pub fn spawn(mut command: Command) -> Result<Serving, String> {
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot start the server: {error}"))?;
        let stdout = child.stdout.take().ok_or("the server has no stdout")?;
        let (admin, memcache, resp) = Default::default();
        let mut serving = Serving { child, admin, memcache, resp, _stdout: BufReader::new(stdout) };
        while serving.memcache.is_empty() {
            let mut line = String::new();
            if !matches!(serving._stdout.read_line(&mut line), Ok(1..)) {
                return Err("the server ended".into());
            }
            let told = |name| line.strip_prefix(name).map(|rest: &str| rest.trim().to_owned());
            serving.admin = told("admin").unwrap_or(std::mem::take(&mut serving.admin));
            serving.resp = told("resp").unwrap_or(std::mem::take(&mut serving.resp));
            serving.memcache = told("memcache").unwrap_or_default();
        }
        Ok(serving)
    }

    /// Asks it to end, and waits until it has.
    pub fn end(mut self) -> Result<(), String> {
        succeed("kill", Command::new("kill").args(["-TERM", &self.child.id().to_string()]))?;
        self.child.wait().map(|_| ()).map_err(|error| format!("cannot wait for the server: {error}"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It has ended, or ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a chore with a directory of its own, and removes it.
pub fn with_directory<T>(chore: &str, run: impl FnOnce(&Path) -> Result<T, String>) -> Result<T, String> {
    with_directory_in(&std::env::temp_dir(), chore, run)
}

/// Runs a chore with a directory of its own below `parent`, and removes it.
pub fn with_directory_in<T>(
    parent: &Path,
    chore: &str,
    run: impl FnOnce(&Path) -> Result<T, String>,
) -> Result<T, String> {
    let directory = own_name(parent, chore);
    std::fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    let outcome = run(&directory);
    let removed = std::fs::remove_dir_all(&directory);
    let removed = removed.map_err(|error| format!("cannot remove {}: {error}", directory.display()));
    outcome.and_then(|output| removed.map(|()| output))
}

/// A name below `parent` that no other process uses.
pub fn own_name(parent: &Path, what: &str) -> PathBuf {
    parent.join(format!("stratakv-{what}-{}", std::process::id()))
}

/// Removes what processes that are gone left in `parent` under names of [`own_name`], such as those
/// that were killed. What cannot be removed stays.
pub fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let id = name.strip_prefix("stratakv-").and_then(|rest| rest.rsplit_once('-')).map(|(_, id)| id);
        let is_left = id.and_then(|id| id.parse::<u32>().ok()).is_some_and(|id| !is_running(id));
        if is_left && fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).is_ok() {
            println!("removed {}, left by a process that is gone", path.display());
        }
    }
}

fn is_running(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_processes_left_is_removed_and_nothing_else() {
        with_directory("leftovers", |parent| {
            let mut child = Command::new("true").spawn().unwrap();
            let gone = child.id();
            child.wait().unwrap();
            let (root, partial) = (format!("stratakv-install-test-{gone}"), format!("stratakv-clean-root-{gone}"));
            fs::create_dir_all(parent.join(&root).join("etc")).unwrap();
            let kept = ["stratakv_0.1.0-1_amd64.deb", "stratakv", "clean-root-bookworm-1.tar"];
            [&[partial.as_str()], &kept[..]].concat().iter().for_each(|name| fs::write(parent.join(name), "").unwrap());
            fs::write(own_name(parent, "image"), "").unwrap();
            remove_leftovers(parent);
            assert!(kept.iter().all(|name| parent.join(name).exists()) && own_name(parent, "image").exists());
            assert!(!parent.join(root).exists() && !parent.join(partial).exists());
            Ok(())
        })
        .unwrap();
    }
}
