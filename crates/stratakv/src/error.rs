//! Errors of the library: what failed, why, what to do next.

use std::io;
use std::path::PathBuf;

use stratakv_base::key::KeyError;
use stratakv_engine::Error as EngineError;
use stratakv_runtime::OpenFailure;

/// Why a call failed. A key that does not exist is not an error. Unless [`Error::kind`] is [`ErrorKind::Unknown`], nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] EngineError),
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
    /// There is a store there, and a new one was asked for.
    #[error("{path} already holds a store", path = path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The store was written by a newer program.
    #[error("{path} has format {found}, this program knows up to {known}: use a newer stratakv", path = path.display())]
    NewerFormat {
        /// `store.toml`.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// What describes the store does not make sense.
    #[error("{path} is damaged: {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the way out.
        why: String,
    },
    /// A counter whose value is no decimal number of 64 bits. Nothing was changed.
    #[error("the value of `{key}` is no decimal number of 64 bits, so it cannot be counted: put one")]
    NotANumber {
        /// The key, escaped.
        key: String,
    },
    /// An option that cannot be had here.
    #[error("{0}")]
    Option(String),
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
            Error::Locked { .. } => ErrorKind::Locked,
            Error::NotFound { .. } | Error::MissingDirectory { .. } => ErrorKind::NotFound,
            Error::Exists { .. } | Error::NotANumber { .. } | Error::Option(_) => ErrorKind::Usage,
            Error::NewerFormat { .. } => ErrorKind::Unsupported,
            Error::Damaged { .. } => ErrorKind::Corrupt,
            Error::Device { kind, .. } => *kind,
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
        | EngineError::ValueTooLarge { .. }
        | EngineError::BadBatch(_)
        | EngineError::BatchTooLarge { .. } => ErrorKind::Usage,
        EngineError::Full(_) | EngineError::MemoryFull { .. } => ErrorKind::Full,
        EngineError::Corrupt(_) | EngineError::WrongVolume(_) => ErrorKind::Corrupt,
        EngineError::Unknown(_) => ErrorKind::Unknown,
        EngineError::Unsupported(_) | EngineError::NewerFormat { .. } => ErrorKind::Unsupported,
        EngineError::Closed => ErrorKind::Closed,
        EngineError::Busy => ErrorKind::Busy,
        _ => ErrorKind::Io,
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Error::Operation(error.into())
    }
}
