//! Where a store must have come to survive.

use std::fmt;
use std::path::Path;

/// The domain of persistence of a region: what must be done with a store before a power cut can no
/// longer take it.
///
/// Ordered by what is promised: a region can be treated as if it were in a weaker domain, never in
/// a stronger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Domain {
    /// Ordinary memory (tmpfs, hugetlbfs, anonymous): stores survive the process where the file
    /// does, no power cut. Nothing to flush.
    Volatile,
    /// A file in the kernel's page cache: a fence writes the flushed pages back with `msync`.
    ///
    /// Also a file on overlayfs or a disk in memory: that these forget is not seen.
    File,
    /// Persistent memory whose controller has a reserve of power, the caches have none: flushed
    /// lines are written back (clwb, clflushopt or clflush; dc cvap), a fence waits for them.
    Adr,
    /// As [`Domain::Adr`], and the caches have a reserve as well: nothing to flush, a fence only
    /// orders.
    Eadr,
}

impl Domain {
    /// Whether what was flushed and fenced is there after a power cut.
    pub fn survives_power_loss(self) -> bool {
        self != Domain::Volatile
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Domain::Volatile => "volatile (memory: lost with the power)",
            Domain::File => "file (page cache: msync)",
            Domain::Adr => "ADR (persistent memory: flush lines, fence)",
            Domain::Eadr => "eADR (persistent memory, persistent caches: fence)",
        })
    }
}

/// Of persistent memory, the domain that the kernel names for the NVDIMM region under a device (a
/// path in `/sys/dev`). Where it names none, the caches count as volatile.
pub(crate) fn of_device(device: &Path) -> Domain {
    let Ok(device) = std::fs::canonicalize(device) else { return Domain::Adr };
    // What the kernel does not tell counts as the weaker domain.
    let named = device.ancestors().find_map(|above| std::fs::read_to_string(above.join("persistence_domain")).ok());
    if named.is_some_and(|named| named.trim() == "cpu_cache") { Domain::Eadr } else { Domain::Adr }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_word_makes_caches_persistent() {
        let directory = tempfile::tempdir().unwrap();
        let region = directory.path().join("ndbus0/region0");
        let device = region.join("namespace0.0/block/pmem0");
        std::fs::create_dir_all(&device).unwrap();
        let link = directory.path().join("259:0");
        std::os::unix::fs::symlink(&device, &link).unwrap();
        assert_eq!(of_device(&link), Domain::Adr);
        for (named, domain) in [
            ("cpu_cache\n", Domain::Eadr),
            ("memory_controller\n", Domain::Adr),
            ("\n", Domain::Adr),
            ("cpu_cache_not", Domain::Adr),
        ] {
            std::fs::write(region.join("persistence_domain"), named).unwrap();
            assert_eq!(of_device(&link), domain, "{named:?}");
        }
        assert_eq!(of_device(Path::new("/nowhere")), Domain::Adr);
    }

    #[test]
    fn domains_are_ordered_by_what_they_promise() {
        let all = [Domain::Volatile, Domain::File, Domain::Adr, Domain::Eadr];
        assert!(all.is_sorted());
        assert_eq!(all.map(Domain::survives_power_loss), [false, true, true, true]);
        let shown: std::collections::BTreeSet<String> = all.iter().map(Domain::to_string).collect();
        assert_eq!(shown.len(), all.len());
    }
}
