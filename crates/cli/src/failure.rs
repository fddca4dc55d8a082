//! How the program ends: exit codes and messages.

use std::io;
use std::path::Path;

use stratakv::{Capability, EngineError, ErrorKind, OrderError, Store, Unmet};
use stratakv_base::quantity::format_count;
use stratakv_device::IoFault;

/// What to do about a device that does not answer. That is no damage: nothing is to be removed.
pub(crate) const DEVICE_ADVICE: &str = "that is an error of the device, not damage: what lies there may be whole, so remove nothing. \
     Look at the device (dmesg, smartctl), and copy it to a whole one if it goes on";

/// Exit codes. They are an interface: documented in `--help` and docs/cli.md, never renumbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Nothing went wrong: the reader of our output went away early.
    Quiet = 0,
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Corrupt = 4,
    Busy = 5,
    Unsupported = 6,
}

/// Why the program ends with something else than success.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Empty: say nothing.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Failed, message)
    }

    /// A failed write to stdout. A closed pipe (`dump | head`) is no failure.
    pub(crate) fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(Exit::Quiet, ""),
            _ => Failure::failed(format!("cannot write to stdout: {error}")),
        }
    }

    /// Puts `place` in front of the message.
    pub(crate) fn at(mut self, place: impl std::fmt::Display) -> Failure {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Why an answer may lack something though nothing failed: damaged records that nobody knows
    /// the keys of, or places that the device did not give. `what`: the answer.
    pub(crate) fn incomplete(store: &Store, what: &str) -> Option<Failure> {
        let recovery = store.recovery();
        let (unknown, unreadable) = (recovery.lost_unknown, recovery.unreadable.len() as u64);
        if unknown > 0 {
            let lost = format_count(unknown, "damaged record");
            let why =
                format!("{what}, but {lost} whose keys cannot be read may be missing: `stratakv check` says where");
            return Some(Failure::new(Exit::Corrupt, why));
        }
        let places = format_count(unreadable, "place");
        (unreadable > 0).then(|| {
            Failure::failed(format!(
                "{what}, but records in {places} may be missing: the device did not give these; {DEVICE_ADVICE}"
            ))
        })
    }

    /// There is no such key.
    pub(crate) fn no_key(key: &[u8]) -> Failure {
        Failure::new(Exit::NotFound, format!("there is no key `{}`", key.escape_ascii()))
    }

    /// A condition of a write did not hold.
    pub(crate) fn unmet(unmet: Unmet) -> Failure {
        match unmet {
            Unmet::Absent => Failure::new(Exit::NotFound, "nothing was written: there is no such key"),
            Unmet::Present { version } => {
                Failure::failed(format!("nothing was written: the key exists, with version {version}"))
            }
            Unmet::Version { found } => {
                Failure::failed(format!("nothing was written: the key has version {found} by now; read it again"))
            }
        }
    }
}

impl From<stratakv::Error> for Failure {
    fn from(error: stratakv::Error) -> Failure {
        let exit = match error.kind() {
            ErrorKind::Usage => Exit::Usage,
            ErrorKind::NotFound => Exit::NotFound,
            ErrorKind::Corrupt => Exit::Corrupt,
            ErrorKind::Locked | ErrorKind::Busy => Exit::Busy,
            ErrorKind::Unsupported => Exit::Unsupported,
            _ => Exit::Failed,
        };
        let message = match &error {
            stratakv::Error::NotFound { path } if holds_backup(path) => backup_there(path),
            stratakv::Error::NotFound { path } => format!(
                "there is no store in {}: name its directory with --data (or STRATAKV_DATA); `serve`, `put` and `load` create one",
                path.display()
            ),
            stratakv::Error::Locked { .. } => {
                format!(
                    "{error}. If it is `stratakv serve`: --server HOST:PORT asks it (get, put, del, update, scan, dump, collections, stats, backup)"
                )
            }
            stratakv::Error::Operation(EngineError::Unsupported(Capability::Ordered)) => {
                "these keys are in no order, so they cannot be scanned: get single ones. In a store of engine `hash` that is the default collection: name another one \
                 (--collection NAME), or take all of it with `stratakv dump`. A cache (`tier`) cannot be dumped"
                    .to_owned()
            }
            stratakv::Error::Operation(EngineError::Unsupported(Capability::Backup)) => {
                "a cache (engine `tier`) cannot be backed up: it may drop any record at any time, and what it holds comes back from where it came from. End the server in \
                 order (SIGTERM) and it is warm when it starts again; for what must not be lost take a store of engine `slab`"
                    .to_owned()
            }
            stratakv::Error::Order(OrderError::Unknown { collection, order }) => format!(
                "`{collection}` is in the order `{order}`, which only the program that made it knows: `scan` and `dump` show all of it, `backup` copies it, `del --prefix ''` \
                 empties it; single keys, ranges and writes are for that program"
            ),
            stratakv::Error::Io { error: cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => {
                format!("{error}; run this as the user who owns it, or name another directory")
            }
            stratakv::Error::Operation(EngineError::Corrupt(_)) => {
                format!("{error}; `stratakv check` lists all damage, `stratakv dump --skip-damaged` saves the rest")
            }
            other if is_of_device(other) => format!("{other}; {DEVICE_ADVICE}"),
            other => other.to_string(),
        };
        Failure { exit, message }
    }
}

/// Whether a finished backup lies in `directory`.
pub(crate) fn holds_backup(directory: &Path) -> bool {
    directory.join("backup.toml").exists()
}

/// What to do with the backup in `directory`, where a store was wanted.
pub(crate) fn backup_there(directory: &Path) -> String {
    let shown = directory.display();
    format!("{shown} holds a backup, no store: `stratakv restore {shown} --data NEW` makes a store from it")
}

/// Whether a device did not answer as one that is whole does.
fn is_of_device(error: &stratakv::Error) -> bool {
    let errno = match error {
        stratakv::Error::Operation(EngineError::Io { fault: IoFault::Os(errno), .. })
        | stratakv::Error::Volume { error: EngineError::Io { fault: IoFault::Os(errno), .. }, .. } => Some(*errno),
        stratakv::Error::Io { error, .. } => error.raw_os_error(),
        _ => None,
    };
    errno.is_some_and(|errno| DEVICE_ERRORS.contains(&errno))
}

/// EIO, ENXIO, ENODEV, EREMOTEIO, ETIMEDOUT, EBADMSG (a checksum of the file system), EUCLEAN.
const DEVICE_ERRORS: [i32; 7] = [5, 6, 19, 121, 110, 74, 117];
