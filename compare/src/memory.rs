//! Memory of a process together with the kernel's pages of the files that it reads, held to a
//! number of bytes by a control group.
//!
//! Stores that read through the kernel's cache would else have all the memory of the machine.

use std::path::{Path, PathBuf};
use std::{fs, io};

use stratakv_bench::BenchError;

/// Where control groups are, and what the file with the limit is called: version 1, and 2.
const HIERARCHIES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A group of this process alone.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
    parent: &'static str,
}

impl MemoryGroup {
    /// Moves this process into a group of its own that may use `bytes`.
    ///
    /// # Errors
    /// There are no control groups for memory, or they are not ours to change.
    pub fn enter(bytes: u64) -> Result<MemoryGroup, BenchError> {
        let mut why = String::from("no control group for memory is mounted");
        for (parent, limit) in HIERARCHIES {
            match enter_below(parent, limit, bytes) {
                Ok(group) => return Ok(group),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => why = format!("{parent}: {error}"),
            }
        }
        Err(BenchError::Wrong(format!(
            "cannot hold fjall, redb or LMDB to the memory of the others ({why}): run as root"
        )))
    }
}

fn enter_below(parent: &'static str, limit: &str, bytes: u64) -> io::Result<MemoryGroup> {
    let own = Path::new(parent).join(format!("stratakv-compare-{}", std::process::id()));
    // Control groups of this version are not mounted.
    if !Path::new(parent).join("cgroup.procs").exists() {
        return Err(io::ErrorKind::NotFound.into());
    }
    fs::create_dir(&own)?;
    let group = MemoryGroup { folder: own, parent };
    fs::write(group.folder.join(limit), bytes.to_string())?;
    fs::write(group.folder.join("cgroup.procs"), std::process::id().to_string())?;
    Ok(group)
}

impl Drop for MemoryGroup {
    /// Back to where all groups begin; the group is removed.
    fn drop(&mut self) {
        let _ = fs::write(Path::new(self.parent).join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.folder);
    }
}
