//! [`GenericDevice`]: which character device is an NVMe namespace, and which block device is the
//! same one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::nvme::NvmeError;

/// Why a namespace's character device is not used.
#[derive(Debug, thiserror::Error)]
pub enum PassthroughRefusal {
    /// There is no block device beside it, which other programs would see as taken.
    #[error(
        "its block device {0} is not there or is another one: it is what other programs see as taken, so the namespace is not used without it"
    )]
    NoBlockDevice(PathBuf),
    /// Before Linux 5.19.
    #[error("this kernel takes no NVMe commands by io_uring (Linux 5.19 does): name the block device {0}")]
    OldKernel(PathBuf),
    /// Its controller or format.
    #[error(transparent)]
    Nvme(#[from] NvmeError),
}

/// An NVMe generic character device, as sysfs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenericDevice {
    /// `ng0n1`.
    pub name: String,
    /// `nvme0n1`, the block device of the same namespace.
    pub block_name: String,
    root: PathBuf,
}

impl GenericDevice {
    /// The device at `path`; `None` if that is none of the kernel's NVMe driver.
    pub fn find(path: &Path) -> Option<GenericDevice> {
        // What cannot be looked at is opened as any device, which says why not.
        let metadata = fs::metadata(path).ok()?;
        let number = metadata.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        metadata.file_type().is_char_device().then(|| GenericDevice::of_number(Path::new("/"), (major, minor)))?
    }

    /// The same by its number, on a machine whose `sys` and `dev` are folders of `root`.
    fn of_number(root: &Path, (major, minor): (u32, u32)) -> Option<GenericDevice> {
        // A device that sysfs does not know is none of that driver.
        let folder = fs::canonicalize(root.join(format!("sys/dev/char/{major}:{minor}"))).ok()?;
        let name = folder.file_name()?.to_str()?.to_owned();
        // In a class of its own since the node exists.
        let class = fs::read_link(folder.join("subsystem")).ok()?;
        let block_name = format!("nvme{}", name.strip_prefix("ng")?);
        (class.file_name()? == "nvme-generic").then(|| GenericDevice { name, block_name, root: root.to_owned() })
    }

    /// Its block device's path.
    pub fn block_path(&self) -> PathBuf {
        self.root.join("dev").join(&self.block_name)
    }

    /// Opens the block device for reading, if it is the one that the system has by that name.
    pub(super) fn open_block(&self, flags: i32) -> io::Result<Option<File>> {
        let path = self.block_path();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let metadata = file.metadata()?;
        let number = metadata.rdev();
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let is_same = metadata.file_type().is_block_device() && self.word("dev").is_some_and(|known| known == number);
        Ok(is_same.then_some(file))
    }

    /// Most bytes that the kernel takes in one command, whatever the controller does: a piece of
    /// memory is a page at worst.
    pub(super) fn transfer_bytes_max(&self) -> u64 {
        let number = |name: &str| self.word(name)?.parse::<u64>().ok();
        let whole = number("queue/max_hw_sectors_kb").map_or(u64::MAX, |kib| kib.saturating_mul(1024));
        let pieces = number("queue/max_segments").map_or(u64::MAX, |pages| pages.saturating_mul(4096));
        (whole.min(pieces) / 4096 * 4096).max(4096)
    }

    /// A file of the block device's folder, without its end of line.
    fn word(&self, name: &str) -> Option<String> {
        let path = self.root.join("sys/class/block").join(&self.block_name).join(name);
        // What the kernel does not tell sets no limit, or is no block device.
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    }
}

/// The character device of a block device that is a namespace: `/dev/ng0n1` of `/dev/nvme0n1`.
pub(crate) fn generic_sibling(block: &File) -> Option<PathBuf> {
    // Without a number there is no sibling to be found: the block device has a lock of its own.
    let number = block.metadata().ok()?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    sibling_of(Path::new("/"), (major, minor))
}

fn sibling_of(root: &Path, (major, minor): (u32, u32)) -> Option<PathBuf> {
    // As above.
    let folder = fs::canonicalize(root.join(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    let name = format!("ng{}", folder.file_name()?.to_str()?.strip_prefix("nvme")?);
    let is_there = root.join("sys/class/nvme-generic").join(&name).exists();
    is_there.then(|| root.join("dev").join(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine made of files, with one namespace.
    fn machine(class: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let folder = at("sys/devices/nvme0");
        for path in ["ng0n1", "nvme0n1/queue"] {
            fs::create_dir_all(folder.join(path)).unwrap();
        }
        for path in ["sys/dev/char", "sys/dev/block", "sys/class/block", "sys/class/nvme-generic", "dev"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        fs::create_dir_all(at(&format!("sys/class/{class}"))).unwrap();
        symlink(at(&format!("sys/class/{class}")), folder.join("ng0n1/subsystem")).unwrap();
        symlink(folder.join("ng0n1"), at("sys/dev/char/241:0")).unwrap();
        symlink(folder.join("ng0n1"), at("sys/class/nvme-generic/ng0n1")).unwrap();
        symlink(folder.join("nvme0n1"), at("sys/dev/block/259:3")).unwrap();
        symlink(folder.join("nvme0n1"), at("sys/class/block/nvme0n1")).unwrap();
        fs::write(folder.join("nvme0n1/dev"), "259:3\n").unwrap();
        fs::write(folder.join("nvme0n1/queue/max_hw_sectors_kb"), "1024\n").unwrap();
        fs::write(folder.join("nvme0n1/queue/max_segments"), "127\n").unwrap();
        root
    }

    #[test]
    fn a_namespace_is_known_by_its_class() {
        let root = machine("nvme-generic");
        let device = GenericDevice::of_number(root.path(), (241, 0)).expect("it is one");
        assert_eq!((device.name.as_str(), device.block_name.as_str()), ("ng0n1", "nvme0n1"));
        assert_eq!(device.block_path(), root.path().join("dev/nvme0n1"));
        assert_eq!(device.transfer_bytes_max(), 127 * 4096, "pieces of a page each");
        assert_eq!(GenericDevice::of_number(root.path(), (241, 1)), None);
        assert_eq!(GenericDevice::of_number(machine("misc").path(), (241, 0)), None);
        assert_eq!(GenericDevice::find(Path::new("/dev/null")), None);
        assert_eq!(GenericDevice::find(Path::new("/dev/no-such-device")), None);
    }

    #[test]
    fn a_file_in_the_place_of_the_block_device_is_not_taken_for_it() {
        let root = machine("nvme-generic");
        let device = GenericDevice::of_number(root.path(), (241, 0)).expect("it is one");
        assert!(device.open_block(0).unwrap().is_none(), "there is none");
        fs::write(root.path().join("dev/nvme0n1"), "").unwrap();
        assert!(device.open_block(0).unwrap().is_none(), "it is a file");
    }

    #[test]
    fn a_block_device_knows_its_character_device() {
        let root = machine("nvme-generic");
        assert_eq!(sibling_of(root.path(), (259, 3)), Some(root.path().join("dev/ng0n1")));
        assert_eq!(sibling_of(root.path(), (8, 0)), None);
        fs::remove_file(root.path().join("sys/class/nvme-generic/ng0n1")).unwrap();
        assert_eq!(sibling_of(root.path(), (259, 3)), None);
    }
}
