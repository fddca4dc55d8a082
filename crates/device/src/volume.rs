//! A file or raw device opened for direct I/O.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::geometry::Geometry;

/// An open volume: the file, its path for messages, its geometry.
///
/// The advisory lock (flock) is taken on the very descriptor used for I/O: after a `kill -9` the kernel keeps it until the
/// last request in flight is done, so a new process cannot race with writes of the dead one.
#[derive(Debug)]
pub struct Volume {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) geometry: Geometry,
    pub(crate) direct: bool,
}

/// How to open a volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenMode {
    /// Create the file; it must not exist.
    pub create: bool,
    /// Open for reading only; takes a shared lock.
    pub read_only: bool,
}

impl Volume {
    /// Opens (or creates) and locks `path`. Uses O_DIRECT where the file system takes it; else buffered I/O, and says so by [`Volume::is_direct`].
    ///
    /// A lock held by a process that has just died is waited for, up to two seconds.
    ///
    /// # Errors
    /// As open(2); `WouldBlock` if another process has the volume open, or it is a device that is mounted.
    pub fn open(path: &Path, mode: OpenMode) -> io::Result<Volume> {
        crate::sync::open_volume(path, mode)
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether I/O bypasses the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Gives the lock back before the last handle is dropped: for an orderly close while others still hold the volume.
    pub fn unlock(&self) {
        // Cannot fail on a descriptor that is open; the kernel also unlocks when it closes.
        let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
    }

    /// Length in bytes: the file's size, or the device's.
    ///
    /// # Errors
    /// As fstat(2) or ioctl(2).
    pub fn len_bytes(&self) -> io::Result<u64> {
        crate::sync::volume_len(self)
    }
}
