//! `stratakv doctor /dev/ng0n1`: an NVMe namespace that takes commands by the kernel's driver. It
//! is identified; nothing is measured or written.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stratakv_base::quantity::format_bytes;
use stratakv_device::passthrough::GenericDevice;
use stratakv_device::{RawDevice, RawRefusal};

use super::nvme::LABEL_MAGIC;
use crate::Output;
use crate::failure::{Exit, Failure};

/// What a store on it would have.
#[derive(Debug)]
pub(super) struct NamespaceReport {
    path: PathBuf,
    block_path: PathBuf,
    state: NamespaceState,
}

#[derive(Debug)]
enum NamespaceState {
    /// Mounted, or open in a store.
    Busy,
    Free {
        model: String,
        nsid: u32,
        len_bytes: u64,
        has_volatile_cache: bool,
        transfer_bytes_max: u64,
        contents: Contents,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Contents {
    Nothing,
    Store,
    Foreign(String),
}

impl NamespaceReport {
    /// `None`: it is none.
    pub(super) fn look(path: &Path) -> Option<Result<NamespaceReport, Failure>> {
        let device = GenericDevice::find(path)?;
        Some(NamespaceReport::of(path, &device))
    }

    fn of(path: &Path, device: &GenericDevice) -> Result<NamespaceReport, Failure> {
        let (path, block_path) = (path.to_path_buf(), device.block_path());
        let refused = |why: String| Failure::new(Exit::Failed, format!("{}: {why}", path.display()));
        // A claim tells of mounts; it goes at once.
        let raw = match RawDevice::open(&path, false) {
            Ok(raw) => raw,
            Err(RawRefusal::Busy) => return Ok(NamespaceReport { path, block_path, state: NamespaceState::Busy }),
            Err(error) => return Err(refused(error.to_string())),
        };
        let Some(namespace) = raw.passthrough() else { return Err(refused("it takes no commands".into())) };
        let contents = match raw.read_page(0) {
            Ok(page) if page.starts_with(LABEL_MAGIC) => Contents::Store,
            Ok(_) => match raw.contents() {
                Ok(None) => Contents::Nothing,
                Ok(Some(what)) => Contents::Foreign(what),
                Err(fault) => return Err(refused(fault.to_string())),
            },
            Err(fault) => return Err(refused(fault.to_string())),
        };
        let state = NamespaceState::Free {
            model: namespace.controller().model_number.clone(),
            nsid: namespace.nsid(),
            len_bytes: namespace.len_bytes(),
            has_volatile_cache: namespace.controller().volatile_write_cache,
            transfer_bytes_max: namespace.transfer_bytes_max(),
            contents,
        };
        Ok(NamespaceReport { path: path.clone(), block_path, state })
    }

    pub(super) fn write(&self, is_json: bool, output: &mut Output) -> io::Result<()> {
        if is_json {
            return writeln!(output, "{}", self.json());
        }
        for (name, value) in self.rows() {
            writeln!(output, "{name:<24} {value}")?;
        }
        writeln!(output, "\n- {}", self.advice())
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("NVMe namespace", self.path.display().to_string()),
            ("block device", self.block_path.display().to_string()),
        ];
        if let NamespaceState::Free { model, nsid, len_bytes, has_volatile_cache, transfer_bytes_max, contents } =
            &self.state
        {
            rows.extend([
                ("controller", format!("{model}, namespace {nsid}")),
                ("length", format_bytes(*len_bytes)),
                ("write cache", if *has_volatile_cache { "volatile: writes are flushed" } else { "none" }.to_owned()),
                ("largest command", format_bytes(*transfer_bytes_max)),
                ("holds", contents.text()),
            ]);
        }
        rows
    }

    fn advice(&self) -> String {
        let (path, block) = (self.path.display(), self.block_path.display());
        match &self.state {
            NamespaceState::Busy => {
                format!("It is mounted, or another program has it: unmount {block}, or stop that program.")
            }
            NamespaceState::Free { contents: Contents::Foreign(what), .. } => format!(
                "A new store takes an empty device, and this one holds {what}. If nothing on it is needed any more, empty it for good: \
                 `blkdiscard --zeroout {block}`."
            ),
            NamespaceState::Free { contents: Contents::Store, .. } => {
                format!(
                    "Open the store with `--data DIR --device {path}`, or on the block layer with `--device {block}`."
                )
            }
            NamespaceState::Free { contents: Contents::Nothing, .. } => {
                format!(
                    "`--data DIR --device {path}` makes a store on it whose requests are NVMe commands, past the block layer."
                )
            }
        }
    }

    fn json(&self) -> Value {
        let mut report = json!({
            "device": self.path.to_string_lossy(), "block_device": self.block_path.to_string_lossy(),
            "busy": matches!(self.state, NamespaceState::Busy), "advice": [self.advice()],
        });
        if let NamespaceState::Free { model, nsid, len_bytes, has_volatile_cache, transfer_bytes_max, contents } =
            &self.state
        {
            report["controller"] = json!(model);
            report["nsid"] = json!(nsid);
            report["len_bytes"] = json!(len_bytes);
            report["volatile_cache"] = json!(has_volatile_cache);
            report["transfer_bytes_max"] = json!(transfer_bytes_max);
            report["holds"] = json!(contents.text());
        }
        report
    }
}

impl Contents {
    fn text(&self) -> String {
        match self {
            Contents::Nothing => "nothing".to_owned(),
            Contents::Store => "volumes of a StrataKV store".to_owned(),
            Contents::Foreign(what) => what.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(contents: Contents) -> NamespaceReport {
        let state = NamespaceState::Free {
            model: "QEMU NVMe Ctrl".into(),
            nsid: 1,
            len_bytes: 1 << 30,
            has_volatile_cache: true,
            transfer_bytes_max: 512 << 10,
            contents,
        };
        NamespaceReport { path: "/dev/ng0n1".into(), block_path: "/dev/nvme0n1".into(), state }
    }

    #[test]
    fn a_namespace_is_told_in_both_forms() {
        let free = report(Contents::Nothing);
        let text: Vec<String> = free.rows().into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert!(text.contains(&"controller: QEMU NVMe Ctrl, namespace 1".to_owned()), "{text:?}");
        assert!(text.contains(&"largest command: 512 KiB".to_owned()), "{text:?}");
        assert!(free.advice().contains("--device /dev/ng0n1"));
        assert_eq!((free.json()["busy"].as_bool(), free.json()["len_bytes"].as_u64()), (Some(false), Some(1 << 30)));
        let foreign = report(Contents::Foreign("an xfs file system".into()));
        assert!(foreign.advice().contains("blkdiscard --zeroout /dev/nvme0n1"), "{}", foreign.advice());
        assert_eq!(foreign.json()["holds"], "an xfs file system");
        assert!(report(Contents::Store).advice().contains("--device /dev/nvme0n1"));
        let busy = NamespaceReport { state: NamespaceState::Busy, ..report(Contents::Nothing) };
        assert!(busy.advice().contains("unmount /dev/nvme0n1") && busy.rows().len() == 2);
        assert!(NamespaceReport::look(Path::new("/dev/null")).is_none());
    }
}
