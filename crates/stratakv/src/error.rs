//! Errors of the library: what failed, why, what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use stratakv_base::format::unknown_format;
use stratakv_base::key::KeyError;
use stratakv_engine::Error as EngineError;
use stratakv_runtime::OpenFailure;

use crate::kind::Kind;
use crate::order::OrderError;

/// Why a call failed. A key that does not exist is not an error. Unless [`Error::kind`] is
/// [`ErrorKind::Unknown`], nothing was changed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] EngineError),
    /// The order of a collection is not what was asked for, or not there.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// A volume could not be opened.
    #[error("cannot open {path}: {error}", path = path.display())]
    Volume {
        /// The volume.
        path: PathBuf,
        /// Why.
        error: EngineError,
    },
    /// The system refused.
    #[error("cannot {what} {path}: {error}", path = path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process has the store open.
    #[error("{path} is open in another process{holder}: stop it, or talk to it over the network", path = path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// ` (process N)` if known.
        holder: String,
    },
    /// This process has the store open already.
    #[error(
        "{path} is open already in this process: share that `Store` (a clone is another handle of the same one), or close it first",
        path = path.display()
    )]
    OpenHere {
        /// The directory.
        path: PathBuf,
    },
    /// There is no store there.
    #[error("there is no store in {path}: name another directory, or create one by opening it with `create`", path = path.display())]
    NotFound {
        /// The directory.
        path: PathBuf,
    },
    /// One of the store's directories is not there.
    #[error(
        "part {part} of the store in {home} is missing: {was} is not there, or not a part of it. Mount its disk, or name all its \
         directories where they are now (--data, once for each)",
        home = home.display(), was = was.display()
    )]
    MissingDirectory {
        /// The store's own directory.
        home: PathBuf,
        /// Which part.
        part: u32,
        /// Where it was at creation.
        was: PathBuf,
    },
    /// A raw device cannot be used as it is. It was not written to.
    #[error("device {path}: {why}", path = path.display())]
    Device {
        /// The device.
        path: PathBuf,
        /// What is wrong, and the way out.
        why: String,
        /// What sort of failure that is.
        kind: ErrorKind,
    },
    /// The region of a store of engine `hash` cannot be made or used. It was not written to.
    #[error("{why}")]
    Region {
        /// Which, what is wrong, and the way out.
        why: String,
        /// What sort of failure that is.
        kind: ErrorKind,
    },
    /// There is a store there, and a new one was asked for.
    #[error("{path} already holds a store", path = path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The store was written by a newer program.
    #[error("{}", unknown_format(&path.display().to_string(), *found, *known))]
    NewerFormat {
        /// `store.toml`.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A directory or file of the store was removed while it was open. Operations go on, on what
    /// nobody finds again.
    #[error(
        "{path} was removed while the store was open: all that it held is gone when this process ends. Copy what is still wanted out of it first (backup --server), then begin a new store, or restore a backup",
        path = path.display()
    )]
    Removed {
        /// Which.
        path: PathBuf,
    },
    /// What describes the store does not make sense.
    #[error("{path} is damaged: {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the way out.
        why: String,
    },
    /// What lies there is a part of what was to be restored.
    #[error(
        "{path} holds no whole store: a restore into it was interrupted, or is under way. Remove the directory (rm -r {path}) and restore again",
        path = path.display()
    )]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// A counter whose value does not begin with a decimal number of 64 bits. Nothing was changed.
    #[error("the value of `{key}` is no decimal number of 64 bits, so it cannot be counted: put one")]
    NotANumber {
        /// The key, escaped.
        key: String,
    },
    /// A collection was opened as what it is not. Nothing was changed.
    #[error("`{name}` is {is}, not {asked}: open it as what it is, take another name, or drop it first")]
    OtherKind {
        /// Its name.
        name: String,
        /// What it is.
        is: Kind,
        /// What was asked for.
        asked: Kind,
    },
    /// Another key space or list belongs to another store.
    #[error("{0} belongs to another store: what is done as one lies in one store")]
    OtherStore(&'static str),
    /// A list has no room for a key between two of its elements.
    #[error("the list has no position there ({why}): copy its elements into a new list")]
    NoPosition {
        /// Why.
        why: &'static str,
    },
    /// A transaction was tried again and again, and somebody else was always faster. Nothing was
    /// changed.
    #[error(
        "the transaction met a conflict {attempts} times, last at {at}; nothing was changed: try again, or change fewer keys at once"
    )]
    Conflict {
        /// How often.
        attempts: u32,
        /// Which key, for people.
        at: String,
    },
    /// An option that cannot be had here.
    #[error("{0}")]
    Option(String),
}

/// The kind and the message: a program prints this of an error that its `main` returns.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

/// What sort of failure: for exit codes, retries and bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A bad argument; will fail again.
    Usage,
    /// No such store.
    NotFound,
    /// Damaged data.
    Corrupt,
    /// Open in another process.
    Locked,
    /// No space, or no memory for the index.
    Full,
    /// Not offered by this engine, medium or format version.
    Unsupported,
    /// The device or the system failed.
    Io,
    /// The store is closed.
    Closed,
    /// The outcome is not known.
    Unknown,
    /// Too much waits; try again.
    Busy,
}

impl Error {
    /// What sort of failure it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Operation(error) | Error::Volume { error, .. } => engine_kind(error),
            Error::Io { error, .. } if error.kind() == io::ErrorKind::StorageFull => ErrorKind::Full,
            Error::Io { .. } => ErrorKind::Io,
            Error::Order(OrderError::Foreign { .. }) => ErrorKind::Corrupt,
            Error::Locked { .. } | Error::OpenHere { .. } => ErrorKind::Locked,
            Error::NotFound { .. } | Error::MissingDirectory { .. } | Error::Removed { .. } => ErrorKind::NotFound,
            Error::Exists { .. }
            | Error::NotANumber { .. }
            | Error::OtherKind { .. }
            | Error::OtherStore(_)
            | Error::Order(_)
            | Error::Option(_) => ErrorKind::Usage,
            Error::NoPosition { .. } => ErrorKind::Full,
            Error::Conflict { .. } => ErrorKind::Busy,
            Error::NewerFormat { .. } => ErrorKind::Unsupported,
            Error::Damaged { .. } | Error::Unfinished { .. } => ErrorKind::Corrupt,
            Error::Device { kind, .. } | Error::Region { kind, .. } => *kind,
        }
    }

    /// How long to wait before the same call is worth another try. `None`: waiting alone does not
    /// help.
    ///
    /// Too many operations wait (they are short): 10 ms. A transaction that met conflicts, or
    /// too many open snapshots: 100 ms. A store that another process has open: a second.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Operation(EngineError::Busy) => Some(Duration::from_millis(10)),
            Error::Operation(EngineError::TooManySnapshots { .. }) | Error::Conflict { .. } => {
                Some(Duration::from_millis(100))
            }
            Error::Locked { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    pub(crate) fn opening(path: PathBuf, failure: OpenFailure) -> Error {
        match failure {
            OpenFailure::Engine(error) => Error::Volume { path, error },
            OpenFailure::Ring(error) => Error::Io { what: "do I/O on", path, error },
        }
    }
}

fn engine_kind(error: &EngineError) -> ErrorKind {
    match error {
        EngineError::Key(_)
        | EngineError::Option(_)
        | EngineError::ValueTooLarge { .. }
        | EngineError::BadBatch(_)
        | EngineError::Unsorted(_)
        | EngineError::BatchTooLarge { .. } => ErrorKind::Usage,
        EngineError::Full(_) | EngineError::MemoryFull { .. } => ErrorKind::Full,
        EngineError::Corrupt(_) | EngineError::WrongVolume(_) => ErrorKind::Corrupt,
        EngineError::Unknown(_) => ErrorKind::Unknown,
        EngineError::Unsupported(_) | EngineError::NewerFormat { .. } => ErrorKind::Unsupported,
        EngineError::Expired { .. } => ErrorKind::NotFound,
        EngineError::Closed | EngineError::Forked => ErrorKind::Closed,
        EngineError::Busy | EngineError::NoSnapshot { .. } | EngineError::TooManySnapshots { .. } => ErrorKind::Busy,
        _ => ErrorKind::Io,
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Error::Operation(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_main_prints_of_an_error_is_a_sentence() {
        let error = Error::NotFound { path: "data".into() };
        let expected = "NotFound: there is no store in data: name another directory, or \
                        create one by opening it with `create`";
        assert_eq!(format!("{error:?}"), expected);
    }
}
