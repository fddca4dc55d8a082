//! A server on cores of its own, beside a load on another, and what its process has used.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::Advice;

use crate::logged::LoggedProcess;
use crate::{process, program};

/// Between two looks.
const POLL: Duration = Duration::from_millis(5);

/// Which server, and where it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PinnedServer<'a> {
    /// For messages.
    pub(crate) name: &'static str,
    pub(crate) program: &'a Path,
    pub(crate) cores: &'a [usize],
}

impl PinnedServer<'_> {
    /// Starts it in a directory, with the options that `arguments` makes of that and an address,
    /// and waits until it takes connections.
    ///
    /// # Errors
    /// It cannot be started, or ends.
    pub(crate) fn start(
        self,
        place: &Path,
        arguments: impl FnOnce(&Path, SocketAddr) -> Vec<String>,
    ) -> Result<Running, String> {
        let cannot = |error: io::Error| format!("cannot start {}: {error}", self.name);
        fs::create_dir_all(place).map_err(cannot)?;
        let address = program::free_address().map_err(cannot)?;
        let mut command = Command::new("taskset");
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        command.arg("-c").arg(cores.join(",")).arg(self.program).args(arguments(place, address));
        let process = LoggedProcess::spawn(&mut command, place).map_err(cannot)?;
        let mut running = Running { process, address, place: place.to_owned() };
        running.wait_ready().map_err(|why| format!("{}: {why}", self.name))?;
        Ok(running)
    }
}

/// A server at work. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    process: LoggedProcess,
    address: SocketAddr,
    place: PathBuf,
}

impl Running {
    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it said, for messages.
    pub fn said(&self) -> String {
        self.process.said()
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let SocketAddr::V4(address) = self.address else { return Err("servers are started on IPv4".into()) };
        let id = self.id();
        self.process.wait_until(|| process::listens(id, address).unwrap_or(false), POLL)
    }

    /// Processor time so far, the kernel's work for it included.
    pub fn cpu(&self) -> Duration {
        process::cpu(self.id())
    }

    /// The most memory it has had.
    pub fn memory_peak_bytes(&self) -> u64 {
        process::memory_bytes(self.id(), "VmHWM").unwrap_or_default()
    }

    /// Lets the kernel forget what it has of the server's files; written out before, if asked for.
    pub fn drop_page_cache(&self, write_out: bool) {
        for path in files(&self.place) {
            // One that is gone by now has no pages.
            let Ok(file) = File::open(path) else { continue };
            if write_out {
                // What could not be written stays in memory, and is found there: faster, not
                // slower.
                let _ = file.sync_data();
            }
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        }
    }
}

/// All files under a directory.
pub(crate) fn files(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let (folders, mut found): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    found.extend(folders.iter().flat_map(|folder| files(folder)));
    found
}
