//! What lies under a region: found by looking at its path, locked, allocated.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, MemfdFlags, OFlags};
use rustix::io::Errno;

use crate::flush::Flush;
use crate::map::PAGE_BYTES;
use crate::{Domain, MapError, domain, node};

/// Where the kernel describes devices.
const SYS: &str = "/sys/dev";
/// Of one call the kernel reads no more than the longest request of the device, 128 KiB or longer.
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// A file or device, locked as long as this value lives.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// Lengths are multiples of this: a page.
    pub(crate) unit_bytes: u64,
    /// It never had a name.
    pub(crate) is_anonymous: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// On a file system that keeps it.
    File,
    /// On tmpfs, ramfs or hugetlbfs, or anonymous.
    Memory,
    /// A devdax device.
    Device { len_bytes: u64, is_persistent: bool },
}

impl Source {
    /// A new, empty file.
    pub(crate) fn create(path: &Path) -> Result<Source, MapError> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => MapError::Exists { path: path.to_path_buf() },
            _ => failed("create", path)(error),
        })?;
        Source::lock(file, path, false)
    }

    /// What is there.
    pub(crate) fn open(path: &Path, read_only: bool) -> Result<Source, MapError> {
        let metadata = std::fs::metadata(path).map_err(failed("open", path))?;
        if !(metadata.is_file() || metadata.file_type().is_char_device()) {
            return Err(MapError::NotARegion { path: path.to_path_buf() });
        }
        // What it is may change before it is opened: to open a pipe must not wait for its other
        // end.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(path);
        Source::lock(file.map_err(failed("open", path))?, path, read_only)
    }

    /// Memory without a name.
    pub(crate) fn anonymous() -> Result<Source, MapError> {
        let path = Path::new("(anonymous memory)");
        let file = rustix::fs::memfd_create("region", MemfdFlags::CLOEXEC).map_err(failed("create", path))?;
        let mut source = Source::lock(file.into(), path, false)?;
        source.is_anonymous = true;
        Ok(source)
    }

    fn lock(file: File, path: &Path, read_only: bool) -> Result<Source, MapError> {
        let how =
            if read_only { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
        match rustix::fs::flock(&file, how) {
            Err(Errno::WOULDBLOCK) => return Err(MapError::Locked { path: path.to_path_buf() }),
            locked => locked.map_err(failed("lock", path))?,
        }
        let (kind, unit_bytes) = look(&file, path)?;
        Ok(Source { file, path: path.to_path_buf(), kind, unit_bytes, is_anonymous: false })
    }

    /// Its length, in bytes.
    pub(crate) fn len_bytes(&self) -> Result<u64, MapError> {
        match self.kind {
            Kind::Device { len_bytes, .. } => Ok(len_bytes),
            _ => Ok(self.file.metadata().map_err(failed("examine", &self.path))?.len()),
        }
    }

    /// Whether a region can have that length.
    pub(crate) fn check_len(&self, len_bytes: u64) -> Result<(), MapError> {
        let unit_bytes = self.unit_bytes;
        if len_bytes < unit_bytes {
            return Err(MapError::TooShort { len_bytes, unit_bytes });
        }
        if !len_bytes.is_multiple_of(unit_bytes) {
            return Err(MapError::Unaligned { len_bytes, unit_bytes });
        }
        // `isize::MAX`: no object is longer.
        if isize::try_from(len_bytes).is_err() { Err(MapError::TooLong { len_bytes }) } else { Ok(()) }
    }

    /// Extends the file from `from_bytes` by allocated zeros, durably; `written` ones if asked for.
    pub(crate) fn extend(&self, from_bytes: u64, to_bytes: u64, written: bool) -> Result<(), MapError> {
        let len_bytes = to_bytes - from_bytes;
        let is_allocated = self.allocate(from_bytes, len_bytes).map_err(self.full("allocate", to_bytes))?;
        if !is_allocated || written && self.kind == Kind::File {
            self.write_zeros(from_bytes, to_bytes).map_err(self.full("write", to_bytes))?;
        }
        if self.kind == Kind::File {
            self.file.sync_all().map_err(failed("write back", &self.path))?;
        }
        Ok(())
    }

    /// The same, from this node where the system gives the memory.
    pub(crate) fn extend_on(
        &self,
        node: Option<u32>,
        (from_bytes, to_bytes): (u64, u64),
        written: bool,
    ) -> Result<(), MapError> {
        let node = node.filter(|_| self.kind == Kind::Memory);
        let extended = node::bound_to(node, || self.extend(from_bytes, to_bytes, written));
        extended.map_err(failed("take memory of that node for", &self.path))?
    }

    /// Fills the holes of a file that was made by others: a store into one must not end the process
    /// when the disk is full.
    pub(crate) fn fill_holes(&self, len_bytes: u64) -> Result<(), MapError> {
        if self.allocate(0, len_bytes).map_err(self.full("allocate", len_bytes))? {
            return Ok(());
        }
        let blocks = self.file.metadata().map_err(failed("examine", &self.path))?.blocks();
        // Of 512 bytes, whatever the file system.
        if blocks.saturating_mul(512) < len_bytes { Err(MapError::Sparse { path: self.path.clone() }) } else { Ok(()) }
    }

    /// Reads pages into the page cache ahead of loads, one by one as loads do.
    pub(crate) fn will_read(&self, from_bytes: u64, len_bytes: u64) {
        let to_bytes = from_bytes + len_bytes;
        for at in (from_bytes..to_bytes).step_by(READ_AHEAD_BYTES as usize) {
            let len = NonZeroU64::new(READ_AHEAD_BYTES.min(to_bytes - at));
            // A hint: what is not read ahead is read when it is loaded.
            if rustix::fs::fadvise(&self.file, at, len, Advice::WillNeed).is_err() {
                return;
            }
        }
    }

    /// False if the file system cannot.
    fn allocate(&self, from_bytes: u64, len_bytes: u64) -> io::Result<bool> {
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), from_bytes, len_bytes) {
                Ok(()) => return Ok(true),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Page by page: longer writes leave long folios in the page cache
    /// ([`Access::by_page`](crate::space::Access)).
    fn write_zeros(&self, from_bytes: u64, to_bytes: u64) -> io::Result<()> {
        let zeros = vec![0; PAGE_BYTES as usize];
        let mut at = from_bytes;
        while at < to_bytes {
            let len = (to_bytes - at).min(zeros.len() as u64);
            self.file.write_all_at(&zeros[..len as usize], at)?;
            at += len;
        }
        Ok(())
    }

    fn full(&self, what: &'static str, len_bytes: u64) -> impl FnOnce(io::Error) -> MapError {
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                MapError::NoSpace { path: self.path.clone(), len_bytes }
            }
            _ => failed(what, &self.path)(error),
        }
    }

    /// Makes the name of a new file durable.
    pub(crate) fn sync_directory(&self) -> Result<(), MapError> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        synced.map_err(failed("write back the directory of", &self.path))
    }

    /// Its domain; `is_synchronous`: it can be mapped with MAP_SYNC.
    pub(crate) fn domain(&self, is_synchronous: bool) -> Result<Domain, MapError> {
        let metadata = self.file.metadata().map_err(failed("examine", &self.path))?;
        let described = |class: &str, device: u64| Path::new(SYS).join(class).join(device_name(device));
        match self.kind {
            Kind::Memory | Kind::Device { is_persistent: false, .. } => Ok(Domain::Volatile),
            Kind::Device { .. } if Flush::detect().is_none() => Err(MapError::NoFlush { path: self.path.clone() }),
            Kind::Device { .. } => Ok(domain::of_device(&described("char", metadata.rdev()))),
            Kind::File if is_synchronous && Flush::detect().is_some() => {
                Ok(domain::of_device(&described("block", metadata.dev())))
            }
            Kind::File => Ok(Domain::File),
        }
    }
}

impl Source {
    /// The node of the machine that its memory lies on: that of persistent memory is known.
    pub(crate) fn node(&self, is_synchronous: bool) -> Option<u32> {
        // Without a node it is near everybody: slower, nothing else.
        let metadata = self.file.metadata().ok()?;
        let described = |class: &str, device: u64| Path::new(SYS).join(class).join(device_name(device));
        match self.kind {
            Kind::Device { .. } => node::of_device(&described("char", metadata.rdev())),
            Kind::File if is_synchronous => node::of_device(&described("block", metadata.dev())),
            Kind::File | Kind::Memory => None,
        }
    }

    /// Whether its file has no name any more: it ends with the last process that has it open.
    pub(crate) fn is_removed(&self) -> bool {
        // Anonymous memory never had one. What cannot be examined counts as there.
        !self.is_anonymous && self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    pub(crate) fn unlock(&self) {
        // Cannot fail on a descriptor that is open; the kernel also unlocks when the last one
        // closes.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // To close it is not enough: a child that was forked and has not called exec yet still
        // holds the descriptor, and with it the lock.
        self.unlock();
    }
}

/// What an open file is, and its page.
fn look(file: &File, path: &Path) -> Result<(Kind, u64), MapError> {
    let metadata = file.metadata().map_err(failed("examine", path))?;
    if metadata.file_type().is_char_device() {
        let described = Path::new(SYS).join("char").join(device_name(metadata.rdev()));
        return devdax(&described).ok_or_else(|| MapError::NotARegion { path: path.to_path_buf() });
    }
    if !metadata.is_file() {
        return Err(MapError::NotARegion { path: path.to_path_buf() });
    }
    let system = rustix::fs::fstatfs(file).map_err(failed("examine", path))?;
    // Magic numbers of statfs(2).
    Ok(match system.f_type as u64 & 0xFFFF_FFFF {
        // hugetlbfs: its block is the huge page.
        0x9584_58F6 => (Kind::Memory, system.f_bsize as u64),
        // tmpfs, ramfs.
        0x0102_1994 | 0x8584_58F6 => (Kind::Memory, PAGE_BYTES),
        _ => (Kind::File, PAGE_BYTES),
    })
}

/// What the kernel says about a devdax device and its page; `None` of any other device.
pub(crate) fn devdax(described: &Path) -> Option<(Kind, u64)> {
    // What the kernel does not describe as a devdax device is refused as a region.
    let subsystem = std::fs::canonicalize(described.join("subsystem")).ok()?;
    if subsystem.file_name()? != "dax" {
        return None;
    }
    // As above, and so is what says no length.
    let device = std::fs::canonicalize(described).ok()?;
    let number = |name: &str| std::fs::read_to_string(device.join(name)).ok()?.trim().parse::<u64>().ok();
    let len_bytes = number("size")?;
    // Older kernels name the alignment of the region only.
    let unit_bytes =
        number("align").or_else(|| number("../dax_region/align")).or_else(|| number("../../dax_region/align"))?;
    let unit_bytes = Some(unit_bytes).filter(|unit| unit.is_power_of_two() && *unit >= PAGE_BYTES)?;
    // Below no NVDIMM bus it is ordinary memory set aside.
    let is_persistent = device.components().any(|part| part.as_os_str().to_string_lossy().starts_with("ndbus"));
    Some((Kind::Device { len_bytes, is_persistent }, unit_bytes))
}

fn device_name(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// An error of the system, with what was tried.
pub(crate) fn failed<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> MapError {
    move |error| MapError::Io { what, path: path.to_path_buf(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device below `bus`, as the kernel describes it.
    fn described(sys: &Path, subsystem: &str, bus: &str, files: &[(&str, &str)]) -> PathBuf {
        let device = sys.join("devices").join(bus).join("dax0.0");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::create_dir_all(sys.join("bus").join(subsystem)).unwrap();
        std::os::unix::fs::symlink(sys.join("bus").join(subsystem), device.join("subsystem")).unwrap();
        for (name, text) in files {
            std::fs::write(device.join(name), text).unwrap();
        }
        let link = sys.join("252:0");
        std::os::unix::fs::symlink(&device, &link).unwrap();
        link
    }

    #[test]
    fn a_device_is_as_long_as_the_kernel_says() {
        let read = |subsystem: &str, bus: &str, files: &[(&str, &str)]| {
            let sys = tempfile::tempdir().unwrap();
            devdax(&described(sys.path(), subsystem, bus, files))
        };
        let device = |is_persistent| Kind::Device { len_bytes: 256 << 20, is_persistent };
        let (size, align) = (("size", "268435456\n"), ("align", "2097152\n"));
        assert_eq!(read("dax", "ndbus0/region0", &[size, align]), Some((device(true), 2 << 20)));
        assert_eq!(read("dax", "platform/hmem.0", &[size, align]), Some((device(false), 2 << 20)));
        assert_eq!(read("tty", "ndbus0/region0", &[size, align]), None);
        let bad_align = |text| [size, ("align", text)];
        for bad in [&[size][..], &[align], &bad_align("0\n"), &bad_align("6144"), &[("size", "many"), align]] {
            assert_eq!(read("dax", "ndbus0", bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_terminal_is_no_region() {
        let file = File::open("/dev/null").unwrap();
        assert!(matches!(look(&file, Path::new("/dev/null")), Err(MapError::NotARegion { .. })));
    }
}
