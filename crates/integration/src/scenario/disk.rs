//! A small file system of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::ScenarioOutcome;

/// A mounted ext4 in a file; unmounted when dropped.
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// One of `bytes` bytes, in `place`; or why there can be none.
    pub(super) fn mount(place: &Path, bytes: u64) -> Result<SmallDisk, ScenarioOutcome> {
        let (image, at) = (place.join("image"), place.join("mounted"));
        let cannot = |what: &str| ScenarioOutcome::Skipped(format!("{what} (not root, or a container)"));
        let make = || {
            File::create(&image)?.set_len(bytes)?;
            std::fs::create_dir(&at)
        };
        make().map_err(|error| cannot(&format!("no image can be made: {error}")))?;
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status();
        match made.or_else(|_| Command::new("/sbin/mkfs.ext4").args(["-q", "-F"]).arg(&image).status()) {
            Ok(status) if status.success() => {}
            _ => return Err(ScenarioOutcome::Missing("mkfs.ext4")),
        }
        match Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at).output() {
            Ok(output) if output.status.success() => Ok(SmallDisk(at)),
            _ => Err(cannot("loop devices cannot be mounted")),
        }
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The kernel lets go of a killed process's rings, and so of its files, a little after its
        // end.
        for _ in 0..100 {
            match Command::new("umount").arg(&self.0).stderr(Stdio::null()).status() {
                Ok(status) if !status.success() => std::thread::sleep(Duration::from_millis(50)),
                _ => return,
            }
        }
    }
}
