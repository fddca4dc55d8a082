//! Block devices for tests: loop devices over files, which root can make.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::requirement;

/// A loop device over a file; detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    device: PathBuf,
    /// What holds its bytes.
    pub image: PathBuf,
}

impl LoopDevice {
    /// Attaches `image` (made with `bytes` zeros if there is none) to a free loop device with
    /// sectors of `sector_bytes`; or `None` after saying why the test is skipped.
    ///
    /// # Panics
    /// The image cannot be made.
    pub fn attach(image: &Path, bytes: u64, sector_bytes: u32) -> Option<LoopDevice> {
        if !rustix::process::geteuid().is_root() {
            requirement::not_here("loop devices want root");
            return None;
        }
        let losetup = requirement::tool("losetup")?;
        if !image.exists() {
            File::create(image).and_then(|file| file.set_len(bytes)).expect("the target folder can be written");
        }
        let sectors = format!("--sector-size={sector_bytes}");
        let attach = || Command::new(&losetup).args(["--find", "--show", &sectors]).arg(image).output();
        match attach() {
            Ok(output) if output.status.success() => {
                let device = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
                let image = image.canonicalize().expect("it was just attached");
                Some(LoopDevice { device, image })
            }
            refused => {
                let why = match refused {
                    Ok(Output { stderr, .. }) => String::from_utf8_lossy(&stderr).trim().to_owned(),
                    Err(error) => error.to_string(),
                };
                requirement::not_here(&format!("no loop device can be had: {why}"));
                None
            }
        }
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.device
    }
}

impl LoopDevice {
    /// Whether the kernel still has our image behind the device; another test may have got its
    /// number since.
    fn is_ours(&self) -> bool {
        let number = self.device.file_name().unwrap_or_default();
        let backing = std::fs::read_to_string(Path::new("/sys/block").join(number).join("loop/backing_file"));
        backing.is_ok_and(|path| path.trim_end().trim_end_matches(" (deleted)") == self.image.to_string_lossy())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Once: if somebody still has it open (a process that was just killed), the kernel detaches
        // it with the last one.
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).output();
        for _ in 0..100 {
            if !self.is_ours() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
