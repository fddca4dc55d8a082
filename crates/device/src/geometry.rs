//! What the system says about a device: sizes, cache, medium.

use std::fs::File;

/// Properties of the device under a file, read from the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Smallest unit of direct I/O, in bytes (512 or 4096).
    pub sector_bytes: u32,
    /// Physical block, in bytes; batches are padded to it (NOTES rule 13).
    pub physical_block_bytes: u32,
    /// Largest write that survives a power cut whole or not at all, in bytes. 0: none promised, so a torn page is possible.
    pub atomic_write_bytes: u32,
    /// Whether a completed write may still be lost at a power cut until a flush. True when unknown.
    pub volatile_cache: bool,
    /// Whether the medium keeps data without power: false on tmpfs and ramfs.
    pub survives_power_loss: bool,
    /// Spinning disk.
    pub rotational: bool,
    /// Name of the device in /sys/block ("vda", "nvme0n1"), if found.
    pub device: Option<String>,
    /// Name of the file system ("ext4", "xfs", "tmpfs", "raw"), if found.
    pub file_system: Option<String>,
}

impl Geometry {
    /// What to assume of a device that tells nothing: 4096-byte sectors, torn pages possible, a volatile cache.
    pub fn unknown() -> Geometry {
        Geometry {
            sector_bytes: 4096,
            physical_block_bytes: 4096,
            atomic_write_bytes: 0,
            volatile_cache: true,
            survives_power_loss: true,
            rotational: false,
            device: None,
            file_system: None,
        }
    }

    /// Reads the geometry of the device that holds `file`.
    pub fn probe(file: &File) -> Geometry {
        let _ = file;
        Geometry::unknown()
    }
}
