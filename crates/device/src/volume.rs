//! A file, or a range of a raw device, opened for direct I/O; or a range of an NVMe namespace that
//! this process drives itself, or that takes its commands by the kernel.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::geometry::Geometry;
use crate::nvme::NvmeVolume;
use crate::passthrough::PassthroughVolume;
use crate::request::{DiskOutcome, DiskRequest, IoFault};

/// An open volume: the file (or the device and a range of it, see [`RawDevice`](crate::RawDevice)),
/// its path for messages, its geometry.
///
/// The advisory lock (flock) is taken on the very descriptor used for I/O: after a `kill -9` the
/// kernel keeps it until the last request in flight is done, so a new process cannot race with
/// writes of the dead one.
#[derive(Debug)]
pub struct Volume {
    pub(crate) medium: Medium,
    pub(crate) path: PathBuf,
    pub(crate) geometry: Geometry,
    pub(crate) direct: bool,
    /// Of a raw device: the volume's share of it.
    pub(crate) share: Option<Share>,
}

/// What a volume's requests go to.
#[derive(Debug)]
pub(crate) enum Medium {
    /// The kernel.
    File(File),
    /// A device that this process drives.
    Nvme(Arc<NvmeVolume>),
    /// A device that takes commands by the kernel's driver.
    Passthrough(Arc<PassthroughVolume>),
}

/// What one volume has of a device that others lie on too.
#[derive(Debug)]
pub(crate) struct Share {
    /// Its bytes.
    pub(crate) range: Range<u64>,
    /// Volumes of the device that were not let go: the last one unlocks it.
    pub(crate) held: Arc<AtomicUsize>,
    pub(crate) release: AtomicBool,
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
    /// Opens (or creates) and locks `path`. Uses O_DIRECT where the file system takes it; else
    /// buffered I/O, and says so by [`Volume::is_direct`].
    ///
    /// A lock held by a process that has just died is waited for, up to two seconds.
    ///
    /// # Errors
    /// As open(2); `WouldBlock` if another process has the volume open, or it is a device that is
    /// mounted.
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

    /// Gives the lock back before the last handle is dropped: for an orderly close while others
    /// still hold the volume. A device is unlocked with the last of its volumes.
    pub fn unlock(&self) {
        let is_last = |share: &Share| {
            !share.release.swap(true, Ordering::AcqRel) && share.held.fetch_sub(1, Ordering::AcqRel) == 1
        };
        if !self.share.as_ref().is_none_or(is_last) {
            return;
        }
        match &self.medium {
            // Cannot fail on a descriptor that is open; the kernel also unlocks when it closes.
            Medium::File(file) => {
                let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
            }
            Medium::Nvme(volume) => {
                if let Err(error) = volume.namespace().shut_down() {
                    tracing::warn!(device = %self.path.display(), %error, "the device did not end in order");
                }
            }
            Medium::Passthrough(volume) => volume.namespace().unlock(),
        }
    }

    /// Length in bytes: the file's size, or that of the range.
    ///
    /// # Errors
    /// As fstat(2) or ioctl(2).
    pub fn len_bytes(&self) -> io::Result<u64> {
        match &self.share {
            Some(share) => Ok(share.range.end - share.range.start),
            None => match &self.medium {
                Medium::File(file) => crate::sync::file_len(file),
                Medium::Nvme(volume) => Ok(volume.namespace().len_bytes()),
                Medium::Passthrough(volume) => Ok(volume.namespace().len_bytes()),
            },
        }
    }

    /// Its place on a device that this process drives; `None`: it is on none.
    pub(crate) fn nvme(&self) -> Option<&Arc<NvmeVolume>> {
        match &self.medium {
            Medium::Nvme(volume) => Some(volume),
            Medium::File(_) | Medium::Passthrough(_) => None,
        }
    }

    /// Its place on a device that takes commands by the kernel's driver; `None`: it is on none.
    pub(crate) fn passthrough(&self) -> Option<&Arc<PassthroughVolume>> {
        match &self.medium {
            Medium::Passthrough(volume) => Some(volume),
            Medium::File(_) | Medium::Nvme(_) => None,
        }
    }

    /// Whether this process drives its device: a ring for it is an [`NvmeRing`](crate::NvmeRing).
    pub fn is_driven_here(&self) -> bool {
        self.nvme().is_some()
    }

    /// Whether its requests are NVMe commands of this process, and not requests to a file.
    pub(crate) fn takes_commands(&self) -> bool {
        !matches!(self.medium, Medium::File(_))
    }

    /// Its descriptor; -1 if the kernel has none.
    pub(crate) fn descriptor(&self) -> RawFd {
        match &self.medium {
            Medium::File(file) => file.as_raw_fd(),
            Medium::Nvme(_) | Medium::Passthrough(_) => -1,
        }
    }

    /// Whether its file has no name any more: it ends with the last process that has it open. What
    /// cannot be examined counts as there.
    pub fn is_removed(&self) -> bool {
        let Medium::File(file) = &self.medium else { return false };
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.nlink() == 0)
    }

    /// Cuts a file that is longer to this length. A device, or a range of one, stays as it is.
    ///
    /// # Errors
    /// As fstat(2) and ftruncate(2).
    pub fn shorten(&self, len_bytes: u64) -> io::Result<()> {
        let Medium::File(file) = &self.medium else { return Ok(()) };
        let metadata = file.metadata()?;
        if self.share.is_some() || !metadata.is_file() || metadata.len() <= len_bytes {
            return Ok(());
        }
        file.set_len(len_bytes)
    }

    /// A request with its offset on the device; or how it ends if it leaves the volume's range:
    /// what lies beyond is another shard's.
    pub(crate) fn place(&self, request: DiskRequest) -> Result<DiskRequest, DiskOutcome> {
        let Some(Share { range, .. }) = &self.share else { return Ok(request) };
        let place = |offset: u64, len: u64| {
            let end = range.start.checked_add(offset)?.checked_add(len)?;
            (end <= range.end).then_some(range.start + offset)
        };
        match request {
            DiskRequest::Read { offset, block, len } => match place(offset, len.into()) {
                Some(offset) => Ok(DiskRequest::Read { offset, block, len }),
                None => Err(DiskOutcome::Read(block, Err(IoFault::Short))),
            },
            DiskRequest::Write { offset, parts, durable } => {
                match place(offset, parts.iter().map(|part| u64::from(part.len)).sum()) {
                    Some(offset) => Ok(DiskRequest::Write { offset, parts, durable }),
                    None => Err(DiskOutcome::Write(Err(IoFault::Full))),
                }
            }
            DiskRequest::Flush => Ok(DiskRequest::Flush),
            // A device has all its space.
            DiskRequest::Allocate { offset, len } => {
                let result = place(offset, len).map_or(Err(IoFault::Full), |_| Ok(()));
                Err(DiskOutcome::Allocate(result))
            }
            DiskRequest::Discard { offset, len } => match place(offset, len) {
                Some(offset) => Ok(DiskRequest::Discard { offset, len }),
                None => Err(DiskOutcome::Discard(Err(IoFault::Short))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::block::{Block, BlockPart, Class, Pool};
    use crate::ring::{Completion, Ring, RingKind, Wait, open_ring};

    /// The middle 8 KiB of a file of 24 KiB full of `n`, as if it were a device.
    fn middle(at: &Path) -> Arc<Volume> {
        std::fs::write(at, vec![b'n'; 24 << 10]).unwrap();
        let mut volume = Volume::open(at, OpenMode::default()).unwrap();
        let held = Arc::new(AtomicUsize::new(1));
        volume.share = Some(Share { range: 8 << 10..16 << 10, held, release: AtomicBool::new(false) });
        Arc::new(volume)
    }

    fn page(byte: u8) -> Block {
        let mut block = Pool::new(0).take(Class::Page).unwrap();
        block.fill(byte);
        block
    }

    /// By `sync` and by every ring.
    fn everywhere(volume: &Arc<Volume>, request: impl Fn() -> DiskRequest) -> Vec<DiskOutcome> {
        let mut outcomes = vec![crate::sync::execute(volume, request())];
        for kind in [RingKind::Auto, RingKind::Blocking] {
            let mut ring: Box<dyn Ring + Send> = open_ring(kind, 8).unwrap();
            ring.disk(7, volume, request());
            let mut completions = Vec::new();
            while completions.is_empty() {
                ring.submit(Wait::For { completions: 1, timeout: None }).unwrap();
                ring.reap(&mut completions);
            }
            let Some(Completion::Disk { outcome, .. }) = completions.pop() else { panic!("a disk request was made") };
            outcomes.push(outcome);
        }
        outcomes
    }

    #[test]
    fn a_range_never_reaches_its_neighbours() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("device");
        let volume = middle(&at);
        assert_eq!(volume.len_bytes().unwrap(), 8192);
        let write = |offset| {
            let write = move || DiskRequest::Write {
                offset,
                parts: vec![BlockPart::whole(Arc::new(page(b'v')))],
                durable: false,
            };
            everywhere(&volume, write).iter().all(|outcome| matches!(outcome, DiskOutcome::Write(Ok(()))))
        };
        assert!(write(0) && write(4096));
        for beyond in [8192, 16 << 10, u64::MAX - 8191] {
            let write = || DiskRequest::Write {
                offset: beyond,
                parts: vec![BlockPart::whole(Arc::new(page(b'v')))],
                durable: true,
            };
            for outcome in everywhere(&volume, write) {
                assert!(matches!(outcome, DiskOutcome::Write(Err(IoFault::Full))), "{outcome:?}");
            }
            for outcome in everywhere(&volume, || DiskRequest::Read { offset: beyond, block: page(0), len: 4096 }) {
                assert!(matches!(outcome, DiskOutcome::Read(_, Err(IoFault::Short))), "{outcome:?}");
            }
            for outcome in everywhere(&volume, || DiskRequest::Discard { offset: beyond, len: 4096 }) {
                assert!(matches!(outcome, DiskOutcome::Discard(Err(IoFault::Short))), "{outcome:?}");
            }
        }
        for outcome in everywhere(&volume, || DiskRequest::Read { offset: 4096, block: page(0), len: 4096 }) {
            assert!(matches!(outcome, DiskOutcome::Read(block, Ok(())) if block.iter().all(|byte| *byte == b'v')));
        }
        let mut bytes = vec![0; 24 << 10];
        File::open(&at).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        let expected = [b'n', b'v', b'n'].map(|byte| vec![byte; 8 << 10]).concat();
        assert!(bytes == expected, "a neighbour was written over");
    }

    #[test]
    fn a_file_is_cut_and_a_range_of_a_device_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("device");
        middle(&at).shorten(4096).unwrap();
        assert_eq!(std::fs::metadata(&at).unwrap().len(), 24 << 10);
        let volume = Volume::open(&at, OpenMode::default()).unwrap();
        volume.shorten(8192).unwrap();
        volume.shorten(1 << 20).unwrap();
        assert_eq!(volume.len_bytes().unwrap(), 8192, "cut, and never lengthened");
    }

    /// A shard that broke may still have writes in flight: the others must not unlock the device
    /// under it.
    #[test]
    fn a_device_is_unlocked_by_the_last_of_its_volumes() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("device");
        let volume = middle(&at);
        volume.share.as_ref().unwrap().held.store(2, Ordering::Relaxed);
        let is_locked = || {
            let other = File::open(&at).unwrap();
            rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
        };
        volume.unlock();
        volume.unlock();
        assert!(is_locked(), "one volume let go twice counts once");
        let share = volume.share.as_ref().unwrap();
        let held = Arc::clone(&share.held);
        // Another handle of the same open file, as those of a device are.
        let Medium::File(file) = &volume.medium else { panic!("it is a file") };
        let last = Volume {
            medium: Medium::File(file.try_clone().unwrap()),
            path: at.clone(),
            geometry: Geometry::unknown(),
            direct: volume.direct,
            share: Some(Share { range: 0..0, held, release: AtomicBool::new(false) }),
        };
        last.unlock();
        assert!(!is_locked());
    }
}
