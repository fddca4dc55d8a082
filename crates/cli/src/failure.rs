//! How the program ends: exit codes and messages.

use std::io;

use stratakv::{Capability, EngineError, ErrorKind, OrderError, Unmet};

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
            Unmet::NotANumber => Failure::failed("nothing was written: the value is no number"),
            Unmet::Occupied => Failure::failed("nothing was loaded: something lies between the first and the last key"),
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
            stratakv::Error::NotFound { path } => format!(
                "there is no store in {}: name its directory with --data (or STRATAKV_DATA); `serve`, `put` and `load` create one",
                path.display()
            ),
            stratakv::Error::Locked { .. } => {
                format!(
                    "{error}. If it is `stratakv serve`: --server HOST:PORT asks it (get, put, del, update, stats, backup)"
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
            other => other.to_string(),
        };
        Failure { exit, message }
    }
}
