//! The guest's side of power cuts and I/O errors: the lab's workload on a store whose volumes lie
//! on a controller that this process drives.

use std::fs;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use stratakv::{Level, Options, Store};

use super::super::errors::{self, Switch};
use super::super::guest::{Lanes, begin_trace, end_trace, open_direct, send_mail, text, write};
use super::super::trace::writes_of;
use super::binding::{bind, give_back};
use super::trace::{CommandTrace, kernel_text};
use super::{Driver, StoreKind, VOLUME, WorkTask};

const STORE: &str = "/data/store";

pub(super) fn run(task: WorkTask) -> Result<String, String> {
    let home = block_device("HOME")?;
    // It has no cache: the kernel sends no flush there, so all flushes of the log are the driver's.
    let cache = format!("/sys/block/{}/queue/write_cache", home.trim_start_matches("/dev/"));
    write(&cache, "write through")?;
    let volume = Volumes::take(task.driver)?;
    // No commit of the journal by time.
    mount(&home, "/data", "ext4", MountFlags::empty(), c"commit=600").map_err(text("mount the file system"))?;
    let open = || open(task.kind, &volume.name);
    let said = match task.errors {
        true => {
            let switch = Switch { device: open_direct(&block_device("SWITCH")?)?, at: 0 };
            errors::run_with((task.seed, task.steps), &open, &switch)
        }
        false => {
            let store = open()?;
            let acknowledged = Lanes { seed: task.seed, steps: task.steps, witness: &home }.write(&store)?;
            store.close().map_err(|error| error.to_string())?;
            Ok(format!("{acknowledged} steps acknowledged"))
        }
    }?;
    unmount("/data", UnmountFlags::empty()).map_err(text("unmount the file system"))?;
    let writes = volume.end()?;
    if !task.errors {
        send_mail(&block_device("MAIL")?, writes.as_bytes())?;
    }
    Ok(said)
}

/// The controller with the volumes.
struct Volumes {
    /// As the store's options name it.
    name: String,
    /// The commands of this process; `None`: the kernel makes them.
    trace: Option<CommandTrace>,
}

impl Volumes {
    fn take(driver: Driver) -> Result<Volumes, String> {
        if driver == Driver::Kernel {
            begin_trace()?;
            return Ok(Volumes { name: block_device("VOLUME")?, trace: None });
        }
        let trace = Some(CommandTrace::begin()?);
        if driver == Driver::Passthrough {
            return Ok(Volumes { name: generic_device("VOLUME")?, trace });
        }
        bind(VOLUME)?;
        Ok(Volumes { name: format!("nvme:{VOLUME}"), trace })
    }

    /// The writes that were issued, as lines.
    fn end(self) -> Result<String, String> {
        let Some(trace) = self.trace else {
            let (number, trace) = end_trace(self.name.trim_start_matches("/dev/"))?;
            return Ok(kernel_text(writes_of(&trace, &number)));
        };
        if self.name.starts_with("nvme:") {
            give_back(VOLUME)?;
        }
        Ok(trace.to_text())
    }
}

fn open(kind: StoreKind, device: &str) -> Result<Store, String> {
    let options = Options::new().shards(2).memory_bytes(24 << 20).level(Level::PowerLoss);
    kind.add_to(options).devices([device]).open(STORE).map_err(|error| error.to_string())
}

/// The kernel's block device of the controller with a serial number: their order is not fixed.
pub(in crate::lab) fn block_device(serial: &str) -> Result<String, String> {
    for entry in fs::read_dir("/sys/block").map_err(text("list block devices"))?.flatten() {
        let found = fs::read_to_string(entry.path().join("device/serial")).unwrap_or_default();
        if found.trim() == serial {
            return Ok(format!("/dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    Err(format!("there is no block device {serial}"))
}

/// The same namespace's character device, which takes commands.
pub(super) fn generic_device(serial: &str) -> Result<String, String> {
    Ok(block_device(serial)?.replace("/dev/nvme", "/dev/ng"))
}
