//! The host's side: boots with a store on a controller driven from user space, then power cuts over
//! one log of all writes.
//!
//! ```text
//!   controller VOLUME, vfio-pci, volatile cache ── raw, from 96 MiB on ──┐
//!                                                                       blklogwrites ── file
//!   controller HOME, the kernel's, written through ── raw, from 0 on ───┘
//! ```
//! HOME has the store's directory (and the region of `matrix`) on a file system, and the witness
//! sectors behind it. What is written there counts as durable at once.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::super::host::{Cuts, Plan, Tally, make_file_system, read, read_mail};
use super::super::log::{self, LogEntry};
use super::super::machine::Machine;
use super::super::replay::Replayer;
use super::super::verify::Bench;
use super::super::workload::{self, DEVICE_BYTES};
use super::super::{errors, trace as issued};
use super::{BypassTask, Driver, StoreKind, WorkTask, board, trace};

/// Bytes of the device with the volumes, behind HOME's.
const VOLUME_BYTES: u64 = 96 << 20;
pub(super) const VOLUMES: Range<u64> = DEVICE_BYTES..DEVICE_BYTES + VOLUME_BYTES;
const SWITCH_BYTES: u64 = 1 << 20;
/// Flushes behind the driver's last one: at the orderly ends of two controllers, and of QEMU.
pub(super) const END_FLUSHES_MAX: u64 = 4;

/// Boots and power cuts for each kind of store, and one boot with I/O errors.
pub(super) fn run(
    machine: &Machine,
    cache: &Path,
    plan: &Plan,
    (driver, kinds): (Driver, &[StoreKind]),
    report: &mut dyn FnMut(String),
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for (number, kind) in (0..).zip(kinds) {
        let share = plan.prefixes / kinds.len() as u32;
        let seed = plan.seed.wrapping_add(number);
        let task = WorkTask { kind: *kind, driver, errors: false, seed, steps: plan.steps };
        let words = BypassTask::Work(task).to_words();
        let files = Files::create(cache)?;
        let base = read(&files.device)?;
        let said = machine.boot_on(&board(), &files.logged(), &words)?;
        tally.boots += 1;
        report(format!("boot {}, {words}: {said}", tally.boots));
        let log = read(&files.log)?;
        let entries = files.entries(&log, driver, &mut tally)?;
        let bench = Bench::new()?;
        let verify = |image: &[u8], acknowledged: &[u32]| {
            let (home, volumes) = image.split_at_checked(DEVICE_BYTES as usize).ok_or("the image is cut off")?;
            bench.verify_spread(home, Some(volumes), &workload::known(seed, acknowledged, plan.steps))
        };
        let cuts = Cuts { seed: task.seed, count: share, words, verify: &verify };
        let replayer = Replayer::new(base, &log, &entries, plan.lies).write_through(0..DEVICE_BYTES);
        cuts.run(replayer, (&log, &entries), &mut tally, report);
        if tally.lost > 0 {
            return Ok(tally);
        }
        // What `matrix` is given goes to its region first, where nothing fails.
        if plan.lies.is_honest() && *kind != StoreKind::Matrix {
            let words = BypassTask::Work(WorkTask { errors: true, ..task }).to_words();
            let said = machine.boot_on(&board(), &files.failing(), &words)?;
            tally.boots += 1;
            report(format!("boot {}, I/O errors: {said}", tally.boots));
        }
    }
    Ok(tally)
}

/// Boots for the operator's way: what it said, as it is for documentation.
pub(super) fn operate(machine: &Machine, cache: &Path) -> Result<String, String> {
    let files = Files::create(cache)?;
    let said = machine.boot_on(&board(), &files.logged(), &BypassTask::Operate.to_words())?;
    Ok(format!("operator: {said}:\n{}", read_mail(&files.mail)?))
}

/// Files of one boot.
pub(super) struct Files {
    pub(super) device: PathBuf,
    pub(super) log: PathBuf,
    pub(super) mail: PathBuf,
}

impl Files {
    pub(super) fn create(cache: &Path) -> Result<Files, String> {
        let path = |name: &str| cache.join(format!("bypass-{name}.img"));
        let files = Files { device: path("device"), log: path("log"), mail: path("mail") };
        let lengths = [(&files.device, VOLUMES.end + SWITCH_BYTES), (&files.log, 0), (&files.mail, 64 << 20)];
        for (path, bytes) in lengths {
            let made = File::create(path).and_then(|file| file.set_len(bytes));
            made.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        }
        make_file_system("bypass-device.img", cache)?;
        Ok(files)
    }

    /// All of it logged.
    pub(super) fn logged(&self) -> Vec<String> {
        let log = format!("driver=file,node-name=l0,filename={},cache.no-flush=on", self.log.display());
        let mail = format!("driver=file,node-name=m0,filename={},cache.no-flush=on", self.mail.display());
        let top = "driver=blklogwrites,node-name=b0,file=f0,log=l0,log-sector-size=512".to_owned();
        let mut words = self.nodes(&[log, mail, top], "b0");
        words.extend(["-device".to_owned(), "nvme,serial=MAIL,drive=m0,addr=7".to_owned()]);
        words
    }

    /// Errors on the volumes, switched by another controller at the end of the same device.
    fn failing(&self) -> Vec<String> {
        let top = format!("driver=blkdebug,node-name=b0,image=f1{}", errors::rules());
        let below =
            format!("driver=raw,node-name=f1,file=f0,offset={},size={}", VOLUMES.start, VOLUME_BYTES + SWITCH_BYTES);
        let switch = format!("driver=raw,node-name=s0,file=b0,offset={VOLUME_BYTES},size={SWITCH_BYTES}");
        let volume = format!("driver=raw,node-name=v0,file=b0,offset=0,size={VOLUME_BYTES}");
        let home = format!("driver=raw,node-name=h0,file=f0,offset=0,size={DEVICE_BYTES}");
        let mut words = self.with_file(&[below, top, switch, volume, home]);
        words.extend(controllers());
        words.extend(["-device".to_owned(), "nvme,serial=SWITCH,drive=s0,share-rw=on,addr=7".to_owned()]);
        words
    }

    /// The same with a controller for mail.
    pub(super) fn failing_and_mail(&self) -> Vec<String> {
        let mail = format!("driver=file,node-name=m0,filename={},cache.no-flush=on", self.mail.display());
        let more = ["-blockdev".to_owned(), mail, "-device".to_owned(), "nvme,serial=MAIL,drive=m0,addr=8".to_owned()];
        self.failing().into_iter().chain(more).collect()
    }

    fn nodes(&self, nodes: &[String], top: &str) -> Vec<String> {
        let volume = format!("driver=raw,node-name=v0,file={top},offset={},size={VOLUME_BYTES}", VOLUMES.start);
        let home = format!("driver=raw,node-name=h0,file={top},offset=0,size={DEVICE_BYTES}");
        let mut words = self.with_file(&[nodes, &[volume, home]].concat());
        words.extend(controllers());
        words
    }

    fn with_file(&self, nodes: &[String]) -> Vec<String> {
        let file = format!("driver=file,node-name=f0,filename={},cache.no-flush=on", self.device.display());
        let nodes = [file].into_iter().chain(nodes.iter().cloned());
        nodes.flat_map(|node| ["-blockdev".to_owned(), node]).collect()
    }

    /// The log's entries, with FUA as the driver told it.
    fn entries(&self, log: &[u8], driver: Driver, tally: &mut Tally) -> Result<Vec<LogEntry>, String> {
        let mut entries = log::parse(log)?;
        let (writes, flushes) = trace::parse(&read_mail(&self.mail)?);
        tally.fua += issued::mark(writes.into_iter(), VOLUMES, &mut entries)?;
        let logged = entries.iter().filter(|entry| **entry == LogEntry::Flush).count() as u64;
        // QEMU drops a flush that no write came before since the last one.
        if driver != Driver::Kernel && (logged > flushes + END_FLUSHES_MAX || logged == 0) {
            return Err(format!("the driver sent {flushes} flushes, and {logged} are in the log"));
        }
        let on_volumes = |entry: &&LogEntry| matches!(entry, LogEntry::Write { at, .. } if VOLUMES.contains(at));
        tally.writes += entries.iter().filter(on_volumes).count() as u64;
        tally.flushes += logged;
        Ok(entries)
    }
}

fn controllers() -> Vec<String> {
    let devices = ["nvme,serial=VOLUME,drive=v0,share-rw=on,addr=4", "nvme,serial=HOME,drive=h0,share-rw=on,addr=6"];
    devices.iter().flat_map(|device| ["-device".to_owned(), (*device).to_owned()]).collect()
}
