//! A server's process whose output goes to a file: one of those that are compared.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer its first connection.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// See the module. Killed when dropped.
#[derive(Debug)]
pub(crate) struct LoggedProcess {
    child: Child,
    log: PathBuf,
}

impl LoggedProcess {
    /// Starts it, its log in a directory.
    ///
    /// # Errors
    /// The file cannot be made, or the program not be started.
    pub(crate) fn spawn(command: &mut Command, place: &Path) -> io::Result<LoggedProcess> {
        let log = place.join("log");
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(LoggedProcess { child: command.spawn()?, log })
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it said, for messages.
    pub(crate) fn said(&self) -> String {
        format!("it said: {}", fs::read_to_string(&self.log).unwrap_or_default().trim())
    }

    /// Waits until it takes connections; looks again after `pause`.
    ///
    /// # Errors
    /// It ends, or does not in time.
    pub(crate) fn wait_until(&mut self, takes_connections: impl Fn() -> bool, pause: Duration) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !takes_connections() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended ({status}); {}", self.said()));
            }
            if Instant::now() > deadline {
                return Err(format!("it takes no connections; {}", self.said()));
            }
            std::thread::sleep(pause);
        }
        Ok(())
    }
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        // It has ended, or ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
