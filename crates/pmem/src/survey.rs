//! What the machine has: looked up before a region is made, and told to people.

use std::path::{Path, PathBuf};

use crate::flush::Flush;
use crate::map::PAGE_BYTES;
use crate::source::{Kind, devdax, failed};
use crate::{Domain, MapError, MapOptions, Mapping, domain};

/// Where the kernel lists devdax devices.
const DAX_DEVICES: &str = "/sys/bus/dax/devices";

/// What a region in a directory would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// Its domain.
    pub domain: Domain,
    /// Whether it can be mapped with MAP_SYNC: the file system is mounted with DAX, on persistent
    /// memory.
    pub is_synchronous: bool,
}

/// A devdax device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaxDevice {
    /// Where it is opened.
    pub path: PathBuf,
    /// Its length.
    pub len_bytes: u64,
    /// What a region on it would be; ordinary memory set aside is volatile.
    pub domain: Domain,
}

/// What a region in `directory` would be: found with one of a page, which is gone on return.
///
/// # Errors
/// As [`Mapping::create`].
pub fn prospect_of(directory: &Path) -> Result<Prospect, MapError> {
    let path = directory.join(format!(".stratakv-prospect-{}", std::process::id()));
    // Left by a process that was killed here, and had our number.
    let _ = std::fs::remove_file(&path);
    let mut len_bytes = PAGE_BYTES;
    let options = MapOptions { prewrite: false, ..MapOptions::default() };
    let made = match Mapping::create(&path, len_bytes, options) {
        // Huge pages.
        Err(MapError::TooShort { unit_bytes, .. } | MapError::Unaligned { unit_bytes, .. }) => {
            len_bytes = unit_bytes;
            Mapping::create(&path, len_bytes, options)
        }
        made => made,
    };
    let mapping = made?;
    let prospect = Prospect { domain: mapping.domain(), is_synchronous: mapping.is_synchronous() };
    std::fs::remove_file(&path).map_err(failed("remove", &path))?;
    Ok(prospect)
}

/// The instruction of this processor that writes a line back; `None` if it has none.
pub fn flush_instruction() -> Option<&'static str> {
    Flush::detect().map(Flush::name)
}

/// The devdax devices of this machine, by name.
pub fn dax_devices() -> Vec<DaxDevice> {
    dax_devices_in(Path::new(DAX_DEVICES))
}

fn dax_devices_in(listed: &Path) -> Vec<DaxDevice> {
    let entries = std::fs::read_dir(listed).into_iter().flatten().flatten();
    let devices = entries.filter_map(|entry| {
        let (Kind::Device { len_bytes, is_persistent }, _) = devdax(&entry.path())? else { return None };
        let domain = if is_persistent { domain::of_device(&entry.path()) } else { Domain::Volatile };
        Some(DaxDevice { path: Path::new("/dev").join(entry.file_name()), len_bytes, domain })
    });
    let mut devices: Vec<DaxDevice> = devices.collect();
    devices.sort_by(|a, b| a.path.cmp(&b.path));
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let prospect = prospect_of(directory.path()).unwrap();
        let at = directory.path().join("region");
        let mapping = Mapping::create(&at, PAGE_BYTES, MapOptions::default()).unwrap();
        assert_eq!(prospect.domain, mapping.domain());
        drop(mapping);
        std::fs::remove_file(at).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(matches!(prospect_of(Path::new("/nowhere")), Err(MapError::Io { .. })));
    }

    #[test]
    fn devices_are_listed_with_what_they_keep() {
        let sys = tempfile::tempdir().unwrap();
        let listed = sys.path().join("bus/dax/devices");
        std::fs::create_dir_all(&listed).unwrap();
        for (name, bus) in [("dax1.0", "platform/hmem.0"), ("dax0.0", "ndbus0/region0")] {
            let device = sys.path().join("devices").join(bus).join(name);
            std::fs::create_dir_all(&device).unwrap();
            std::os::unix::fs::symlink(sys.path().join("bus/dax"), device.join("subsystem")).unwrap();
            std::fs::write(device.join("size"), "268435456\n").unwrap();
            std::fs::write(device.join("align"), "2097152\n").unwrap();
            std::os::unix::fs::symlink(&device, listed.join(name)).unwrap();
        }
        let device =
            |name: &str, domain| DaxDevice { path: Path::new("/dev").join(name), len_bytes: 256 << 20, domain };
        assert_eq!(dax_devices_in(&listed), [device("dax0.0", Domain::Adr), device("dax1.0", Domain::Volatile)]);
        assert_eq!(dax_devices_in(Path::new("/nowhere")), []);
    }
}
