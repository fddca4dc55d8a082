//! What the system says about a device: sizes, cache, medium.

#![expect(unsafe_code, reason = "statx with a field that no wrapper knows yet")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use stratakv_base::limits::PAGE_BYTES;

/// Properties of the device under a file, read from the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Smallest unit of direct I/O, in bytes (512 or 4096).
    pub sector_bytes: u32,
    /// Physical block, in bytes; batches are padded to it.
    pub physical_block_bytes: u32,
    /// Largest write that survives a power cut whole or not at all, in bytes. 0: none promised, so
    /// a torn page is possible.
    pub atomic_write_bytes: u32,
    /// Whether a completed write may still be lost at a power cut until a flush. True when unknown.
    pub volatile_cache: bool,
    /// Whether the medium keeps data without power: false on tmpfs and ramfs.
    pub survives_power_loss: bool,
    /// Spinning disk.
    pub rotational: bool,
    /// The kernel's I/O scheduler of the device ("none", "mq-deadline"), if found.
    pub scheduler: Option<String>,
    /// Name of the device in /sys/block ("vda", "nvme0n1"), if found.
    pub device: Option<String>,
    /// Name of the file system ("ext4", "xfs", "tmpfs", "raw"), if found.
    pub file_system: Option<String>,
}

impl Geometry {
    /// What to assume of a device that tells nothing: 4096-byte sectors, torn pages possible, a
    /// volatile cache.
    pub fn unknown() -> Geometry {
        Geometry {
            sector_bytes: 4096,
            physical_block_bytes: 4096,
            atomic_write_bytes: 0,
            volatile_cache: true,
            survives_power_loss: true,
            rotational: false,
            scheduler: None,
            device: None,
            file_system: None,
        }
    }

    /// Reads the geometry of the device that holds `file`, from statx(2), fstatfs(2) and /sys. What
    /// the system does not tell stays as in [`Geometry::unknown`].
    pub fn probe(file: &File) -> Geometry {
        let mut geometry = Geometry::unknown();
        geometry.file_system = file_system(file);
        if matches!(geometry.file_system.as_deref(), Some("tmpfs" | "ramfs")) {
            geometry.survives_power_loss = false;
            geometry.volatile_cache = false;
            return geometry;
        }
        let Ok(metadata) = file.metadata() else { return geometry };
        let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        if let Some(queue) = queue_directory(device) {
            // What the kernel does not tell stays as for an unknown device, the careful way.
            read_queue(&|name| std::fs::read_to_string(queue.join(name)).ok(), &mut geometry);
            geometry.device = queue.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        }
        if metadata.file_type().is_block_device() {
            ask_device(file, &mut geometry);
        }
        geometry.atomic_write_bytes = atomic_write_bytes(file);
        // A write that the kernel may keep in its own cache is volatile, whatever the device says.
        geometry.volatile_cache |= !is_direct(file);
        geometry
    }
}

fn file_system(file: &File) -> Option<String> {
    if file.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        return Some("raw".into());
    }
    // Magic numbers of statfs(2).
    let name = match rustix::fs::fstatfs(file).ok()?.f_type as u64 {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        0x8584_58F6 => "ramfs",
        0x794C_7630 => "overlayfs",
        0x6969 => "nfs",
        0x6573_5546 => "fuse",
        0x2FC1_2FC1 => "zfs",
        _ => return None,
    };
    Some(name.into())
}

/// `/sys/.../queue` of a device or, for a partition, of the disk it is on.
fn queue_directory(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // As above.
    let own = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    [own.join("queue"), own.parent()?.join("queue")].into_iter().find(|queue| queue.is_dir())
}

/// Takes what the files of a queue directory say, read by `content`.
fn read_queue(content: &dyn Fn(&str) -> Option<String>, geometry: &mut Geometry) {
    let text = |name: &str| Some(content(name)?.trim().to_owned());
    let number = |name: &str| text(name)?.parse::<u32>().ok();
    geometry.sector_bytes = number("logical_block_size").unwrap_or(geometry.sector_bytes);
    geometry.physical_block_bytes = number("physical_block_size").unwrap_or(geometry.physical_block_bytes);
    geometry.rotational = number("rotational") == Some(1);
    geometry.scheduler = text("scheduler").as_deref().and_then(chosen_scheduler).map(str::to_owned);
    // Anything but a clear word for write-through counts as volatile.
    geometry.volatile_cache = text("write_cache").as_deref() != Some("write through");
}

/// Of `[mq-deadline] kyber none` the one in brackets; a word that stands alone is the only one
/// there is.
fn chosen_scheduler(text: &str) -> Option<&str> {
    let bracketed = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let mut words = text.split_whitespace();
    bracketed.or_else(|| words.next().filter(|_| words.next().is_none())).filter(|name| !name.is_empty())
}

/// What a raw device itself says (BLKSSZGET, BLKPBSZGET), also where /sys is not mounted.
fn ask_device(file: &File, geometry: &mut Geometry) {
    // As above.
    geometry.sector_bytes = rustix::fs::ioctl_blksszget(file).unwrap_or(geometry.sector_bytes);
    geometry.physical_block_bytes = rustix::fs::ioctl_blkpbszget(file).unwrap_or(geometry.physical_block_bytes);
    // Disks in memory, compressed or not.
    let is_memory = |name: &str| name.starts_with("ram") || name.starts_with("zram");
    geometry.survives_power_loss &= !geometry.device.as_deref().is_some_and(is_memory);
}

/// Struct statx of an open file, as bytes.
#[repr(C, align(8))]
struct Statx([u8; 256]);

impl Statx {
    /// `None` if the kernel does not know the fields of `mask`.
    fn of(file: &File, mask: u32) -> Option<Statx> {
        let mut statx = Statx([0; 256]);
        // SAFETY: the kernel writes at most sizeof(struct statx) = 256 bytes to the buffer; the
        // empty path with AT_EMPTY_PATH names the open file.
        let result = unsafe {
            libc::syscall(libc::SYS_statx, file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &raw mut statx)
        };
        // `stx_mask`, what was filled in, comes first.
        (result == 0 && statx.word(0) & mask == mask).then_some(statx)
    }

    /// The 32-bit field at byte `at`.
    fn word(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        u32::from_ne_bytes(bytes)
    }
}

/// What statx(2) promises for this very file: the device and the file system together. 0 if nothing
/// (or before Linux 6.11).
fn atomic_write_bytes(file: &File) -> u32 {
    const STATX_WRITE_ATOMIC: u32 = 0x0001_0000;
    /// Where `stx_atomic_write_unit_min` and `_max` lie in struct statx, in bytes.
    const UNIT_MIN_AT: usize = 0xA8;
    const UNIT_MAX_AT: usize = 0xAC;
    let statx = Statx::of(file, STATX_WRITE_ATOMIC);
    // A smallest unit above a page is of no use to us: single pages are what may tear.
    statx.filter(|statx| statx.word(UNIT_MIN_AT) as usize <= PAGE_BYTES).map_or(0, |statx| statx.word(UNIT_MAX_AT))
}

/// Whether O_DIRECT on this file bypasses the kernel's cache: some file systems accept the flag and
/// buffer all the same (ext4 with data journalling, encrypted files). False where the kernel does
/// not say (before Linux 6.1).
fn is_direct(file: &File) -> bool {
    const STATX_DIOALIGN: u32 = 0x2000;
    /// `stx_dio_mem_align`: 0 where direct I/O is not supported.
    const MEM_ALIGN_AT: usize = 0x98;
    Statx::of(file, STATX_DIOALIGN).is_some_and(|statx| statx.word(MEM_ALIGN_AT) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_on_tmpfs_does_not_survive_power_loss() {
        let Ok(file) = File::create("/dev/shm/stratakv-geometry-test") else { return };
        let geometry = Geometry::probe(&file);
        let _ = std::fs::remove_file("/dev/shm/stratakv-geometry-test");
        if geometry.file_system.as_deref() == Some("tmpfs") {
            assert!(!geometry.survives_power_loss);
        }
    }

    /// Acknowledging from the kernel's cache would lose writes at a power cut on a device that says
    /// `write through`.
    #[test]
    fn a_file_that_is_buffered_has_a_volatile_cache() {
        let file = tempfile::tempfile().unwrap();
        assert!(Geometry::probe(&file).volatile_cache || is_direct(&file));
        // No file system takes O_DIRECT for procfs files: the kernel answers for them without an
        // alignment.
        assert!(!is_direct(&File::open("/proc/self/status").unwrap()));
    }

    #[test]
    fn a_queue_is_read_as_its_files_say() {
        let read = |scheduler: &str, rotational: &str, write_cache: &str| {
            let content = |name: &str| match name {
                "scheduler" => Some(format!("{scheduler}\n")),
                "rotational" => Some(format!("{rotational}\n")),
                "write_cache" => Some(format!("{write_cache}\n")),
                "physical_block_size" => Some("512\n".to_owned()),
                _ => None,
            };
            let mut geometry = Geometry::unknown();
            read_queue(&content, &mut geometry);
            assert_eq!((geometry.sector_bytes, geometry.physical_block_bytes), (4096, 512));
            (geometry.scheduler, geometry.rotational, geometry.volatile_cache)
        };
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(read("[none] mq-deadline kyber bfq", "0", "write through"), (is("none"), false, false));
        assert_eq!(read("none [mq-deadline]", "1", "write back"), (is("mq-deadline"), true, true));
        assert_eq!(read("mq-deadline kyber [bfq] none", "", ""), (is("bfq"), false, true));
        // Without a choice there are no brackets.
        assert_eq!(read("none", "0", "write back").0, is("none"));
        for nonsense in ["", "[]", "none kyber"] {
            assert_eq!(read(nonsense, "x", "write"), (None, false, true), "{nonsense}");
        }
    }

    #[test]
    fn sizes_are_powers_of_two() {
        let file = tempfile::tempfile().unwrap();
        let geometry = Geometry::probe(&file);
        assert!(geometry.sector_bytes.is_power_of_two() && geometry.physical_block_bytes.is_power_of_two());
        assert!(geometry.atomic_write_bytes == 0 || geometry.atomic_write_bytes.is_power_of_two());
    }
}
