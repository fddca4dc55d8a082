//! A block device without a file system on it: opened whole, held exclusively, given out in ranges.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stratakv_base::limits::PAGE_BYTES;

use crate::block::{Block, BlockPart, Class, Pool};
use crate::geometry::Geometry;
use crate::nvme::{DriveRefusal, Namespace, NvmeName, NvmeVolume, VfioRefusal};
use crate::passthrough::{GenericDevice, PassthroughNamespace, PassthroughRefusal, PassthroughVolume, generic_sibling};
use crate::request::{DiskOutcome, DiskRequest, IoFault};
use crate::sync;
use crate::volume::{Medium, Share, Volume};

const MIB: u64 = 1 << 20;

/// A block device, open.
///
/// For writing it is claimed (O_EXCL): nobody can mount it, and no other program that asks can have
/// it. The claim goes with this value; the lock (flock) is on the descriptor that does the I/O, so
/// it outlives a killed process until its last request is done.
#[derive(Debug)]
pub struct RawDevice {
    whole: Volume,
    len_bytes: u64,
    held: Arc<AtomicUsize>,
    /// Kept for what the kernel ties to them.
    _claims: Vec<File>,
}

/// Why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum RawRefusal {
    /// There is nothing of that name.
    #[error("there is no such device")]
    Missing,
    /// A file or directory.
    #[error("it is no block device, nor an NVMe namespace's character device (/dev/ng0n1)")]
    NoDevice,
    /// Mounted, or part of something, or open in a store.
    #[error("it is mounted, or another program has it: unmount it, or stop that program")]
    Busy,
    /// The user may not, or the device may not be written to.
    #[error(
        "this user may not open it, or it is write-protected: run as one who may (often of the group `disk`), or see `blockdev --getro`"
    )]
    Permission,
    /// Sectors longer than a page cannot be written one page at a time.
    #[error("its sectors have {0} bytes, and I/O is done in pages of {PAGE_BYTES}: use another device")]
    Sectors(u32),
    /// It is a namespace that this process was to drive, and cannot.
    #[error(transparent)]
    Driven(#[from] DriveRefusal),
    /// It is a namespace that was to take commands, and cannot.
    #[error(transparent)]
    Passthrough(#[from] PassthroughRefusal),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl RawRefusal {
    /// Of a device that could not be opened or locked.
    pub(crate) fn of_open(error: io::Error) -> RawRefusal {
        match error.kind() {
            io::ErrorKind::NotFound => RawRefusal::Missing,
            io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy => RawRefusal::Busy,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => RawRefusal::Permission,
            // ENXIO and ENODEV: a node without a device behind it.
            _ if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM)) => {
                RawRefusal::Missing
            }
            _ => RawRefusal::Io(error),
        }
    }
}

impl RawDevice {
    /// Opens `path` for direct I/O: a block device; an NVMe namespace's character device, which
    /// takes commands; or a namespace that this process drives, which is named as an [`NvmeName`].
    /// For writing it is claimed; for reading others may have it open
    /// for reading too.
    ///
    /// A device held by a process that has just died is waited for, up to two seconds.
    ///
    /// # Errors
    /// See [`RawRefusal`].
    pub fn open(path: &Path, read_only: bool) -> Result<RawDevice, RawRefusal> {
        if let Some(name) = NvmeName::of(path) {
            let name = name.map_err(VfioRefusal::Address).map_err(DriveRefusal::Vfio)?;
            return Ok(RawDevice::of_namespace(path, &name.open()?));
        }
        let refusal = RawRefusal::of_open;
        if let Some(device) = GenericDevice::find(path) {
            let (namespace, claim) = PassthroughNamespace::open(path, &device, read_only)?;
            return Ok(RawDevice {
                _claims: claim.into_iter().collect(),
                ..RawDevice::of_passthrough(path, &namespace)
            });
        }
        if !std::fs::metadata(path).map_err(refusal)?.file_type().is_block_device() {
            return Err(RawRefusal::NoDevice);
        }
        let open = |write: bool, flags: i32| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
        let claim =
            if read_only { None } else { Some(sync::wait_while_busy(|| open(false, libc::O_EXCL)).map_err(refusal)?) };
        let file = open(!read_only, libc::O_DIRECT).map_err(refusal)?;
        sync::lock(&file, read_only, sync::LOCK_WAIT).map_err(refusal)?;
        let mut claims: Vec<File> = claim.into_iter().collect();
        claims.extend(lock_sibling(&file, read_only).map_err(refusal)?);
        let geometry = Geometry::probe(&file);
        if geometry.sector_bytes as usize > PAGE_BYTES {
            return Err(RawRefusal::Sectors(geometry.sector_bytes));
        }
        let len_bytes = sync::file_len(&file)?;
        let whole =
            Volume { medium: Medium::File(file), path: path.to_path_buf(), geometry, direct: true, share: None };
        Ok(RawDevice { whole, len_bytes, held: Arc::default(), _claims: claims })
    }

    /// A namespace that this process drives, as such a device; `path` is its name in messages and
    /// in the store's manifest. It is shut down with the last of its volumes.
    pub fn of_namespace(path: &Path, namespace: &Arc<Namespace>) -> RawDevice {
        let whole = Volume {
            medium: Medium::Nvme(NvmeVolume::new(namespace)),
            path: path.to_path_buf(),
            geometry: namespace.geometry(),
            direct: true,
            share: None,
        };
        RawDevice { whole, len_bytes: namespace.len_bytes(), held: Arc::default(), _claims: Vec::new() }
    }

    /// The same of a namespace that takes its commands by the kernel.
    pub fn of_passthrough(path: &Path, namespace: &Arc<PassthroughNamespace>) -> RawDevice {
        let whole = Volume {
            medium: Medium::Passthrough(PassthroughVolume::new(namespace)),
            path: path.to_path_buf(),
            geometry: namespace.geometry(),
            direct: true,
            share: None,
        };
        RawDevice { whole, len_bytes: namespace.len_bytes(), held: Arc::default(), _claims: Vec::new() }
    }

    /// The namespace, if it takes its commands by the kernel.
    pub fn passthrough(&self) -> Option<&Arc<PassthroughNamespace>> {
        self.whole.passthrough().map(|volume| volume.namespace())
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.whole.path
    }

    /// Its size (BLKGETSIZE64), in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// `len` bytes from `start` on as a volume. It keeps the device locked until it is unlocked or
    /// dropped, like the others of the device.
    ///
    /// # Errors
    /// The range is not on the device, or the descriptor cannot be shared.
    pub fn range(&self, start: u64, len: u64) -> io::Result<Volume> {
        let end = start.checked_add(len).filter(|end| *end <= self.len_bytes);
        let end =
            end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the device ends before the volume does"))?;
        let medium = match &self.whole.medium {
            Medium::File(file) => Medium::File(file.try_clone()?),
            Medium::Nvme(volume) => Medium::Nvme(NvmeVolume::new(volume.namespace())),
            Medium::Passthrough(volume) => Medium::Passthrough(PassthroughVolume::new(volume.namespace())),
        };
        self.held.fetch_add(1, Ordering::AcqRel);
        let share = Share { range: start..end, held: Arc::clone(&self.held), release: AtomicBool::new(false) };
        let Volume { path, geometry, direct, .. } = &self.whole;
        Ok(Volume { medium, path: path.clone(), geometry: geometry.clone(), direct: *direct, share: Some(share) })
    }

    /// The page at `offset`, a multiple of 4096.
    ///
    /// # Errors
    /// The device's.
    pub fn read_page(&self, offset: u64) -> Result<Block, IoFault> {
        read(&self.whole, offset, block()?, PAGE_BYTES as u32)
    }

    /// Writes `bytes`, followed by zeros up to 4096, to the page at `offset`, through to the
    /// medium.
    ///
    /// # Errors
    /// The device's.
    pub fn write_page(&self, offset: u64, bytes: &[u8]) -> Result<(), IoFault> {
        let mut page = block()?;
        page.fill(0);
        let len = bytes.len().min(page.len());
        page[..len].copy_from_slice(&bytes[..len]);
        let request = DiskRequest::Write { offset, parts: vec![BlockPart::whole(Arc::new(page))], durable: true };
        match sync::execute(&self.whole, request) {
            DiskOutcome::Write(result) => result,
            _ => Err(IoFault::Os(libc::EINVAL)),
        }
    }

    /// What its first and last MiB hold, where every file system, partition table and volume
    /// manager leaves its marks: nothing if all is zero.
    ///
    /// # Errors
    /// The device's.
    pub fn contents(&self) -> Result<Option<String>, IoFault> {
        let first = self.read_mib(0)?;
        if let Some(name) = signature(&first) {
            return Ok(Some(name.into()));
        }
        let last_at = self.len_bytes.saturating_sub(MIB).next_multiple_of(PAGE_BYTES as u64);
        let first_byte = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0);
        let at = match first_byte(&first) {
            Some(at) => Some(at as u64),
            None => first_byte(&self.read_mib(last_at)?).map(|at| last_at + at as u64),
        };
        Ok(at.map(|at| format!("bytes that are not zero (the first one at {at})")))
    }

    /// Up to a MiB from `start` on; less where the device ends. Half a sector there is left out: no
    /// I/O reaches it.
    fn read_mib(&self, start: u64) -> Result<Vec<u8>, IoFault> {
        let sector = u64::from(self.whole.geometry.sector_bytes.max(1));
        let end = (start + MIB).min(self.len_bytes / sector * sector);
        let mut bytes = Vec::new();
        let mut page = block()?;
        for offset in (start..end).step_by(PAGE_BYTES) {
            let len = (end - offset).min(PAGE_BYTES as u64) as u32;
            page = read(&self.whole, offset, page, len)?;
            bytes.extend_from_slice(&page[..len as usize]);
        }
        Ok(bytes)
    }
}

/// Locks the character device of a block device that is an NVMe namespace: commands in flight of a
/// process that was killed hold that lock. Who may not open it leaves it.
fn lock_sibling(block: &File, shared: bool) -> io::Result<Option<File>> {
    let Some(path) = generic_sibling(block) else { return Ok(None) };
    match File::open(path) {
        Ok(file) => sync::lock(&file, shared, sync::LOCK_WAIT).map(|()| Some(file)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(None),
        Err(error) => Err(error),
    }
}

fn block() -> Result<Block, IoFault> {
    Pool::new(0).take(Class::Page).ok_or(IoFault::Os(libc::ENOMEM))
}

fn read(volume: &Volume, offset: u64, block: Block, len: u32) -> Result<Block, IoFault> {
    match sync::execute(volume, DiskRequest::Read { offset, block, len }) {
        DiskOutcome::Read(block, result) => result.map(|()| block),
        _ => Err(IoFault::Os(libc::EINVAL)),
    }
}

/// Marks of what is met on disks: where, what, whose. For the message only: what has no mark is
/// refused all the same.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (0x438, b"\x53\xEF", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an xfs file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (1024, b"\x10\x20\xF5\xF2", "an f2fs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xBA\xBE", "an encrypted volume (LUKS)"),
    (512, b"LABELONE", "an LVM physical volume"),
    (0, b"\xFC\x4E\x2B\xA9", "a member of a RAID (md)"),
    (4096, b"\xFC\x4E\x2B\xA9", "a member of a RAID (md)"),
    (510, b"\x55\xAA", "a partition table or a boot sector"),
];

fn signature(bytes: &[u8]) -> Option<&'static str> {
    let is_there =
        |(at, mark, _): &&(usize, &[u8], &str)| bytes.get(*at..).is_some_and(|bytes| bytes.starts_with(mark));
    SIGNATURES.iter().find(is_there).map(|(_, _, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(RawDevice::open(file.path(), true), Err(RawRefusal::NoDevice)));
        assert!(matches!(RawDevice::open(&file.path().join("x"), true), Err(RawRefusal::Io(_))));
        assert!(matches!(RawDevice::open(Path::new("/dev/no-such-device"), false), Err(RawRefusal::Missing)));
    }

    #[test]
    fn marks_are_known() {
        let mut bytes = vec![0; MIB as usize];
        assert_eq!(signature(&bytes), None);
        bytes[510..512].copy_from_slice(b"\x55\xAA");
        bytes[512..520].copy_from_slice(b"EFI PART");
        assert_eq!(signature(&bytes), Some("a partition table (GPT)"));
        assert_eq!(signature(b"XFSB"), Some("an xfs file system"));
        assert_eq!(signature(b""), None);
    }
}
