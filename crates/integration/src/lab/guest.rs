//! Process 1 of the lab's machine: mounts, runs a scenario, mails the kernel's trace, says
//! `lab: done`, switches the machine off.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::system::{RebootCommand, reboot};
use stratakv::raw::{Change, ChangeKind, Operation, Reply};
use stratakv::{Expect, Expiry, IoBackend, Key, Level, Options, Store};
use stratakv_device::{Block, Class, Pool};

use super::bypass::{self, BypassTask};
use super::counts;
use super::errors;
use super::numa::{self, NumaTask};
use super::pmem::{self, PmemTask};
use super::workload::{self, BLOCKING, LaneWrite, SESSIONS};

/// The device under test, and the one that carries the trace to the host.
const DEVICE: &str = "/dev/nvme0n1";
const MAIL: &str = "/dev/nvme1n1";
pub(super) const TRACE: &str = "/sys/kernel/tracing";
/// Where the store is, in the guest.
const STORE: &str = "/data/store";

/// A task that takes longer tells where it is: far more than any takes, less than the host waits.
const TASK_LONG: Duration = Duration::from_secs(200);

/// Tells process 1 of a lab's machine from process 1 of, say, a container.
pub(super) const GUEST: &str = "lab-guest";

/// What the kernel's command line asks for.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The I/O errors instead of the workload.
    pub errors: bool,
    /// What carries the I/O.
    pub io: IoBackend,
    /// Of the workload.
    pub seed: u64,
    /// Steps of each lane.
    pub steps: u32,
}

impl Task {
    /// As words for a command line.
    pub fn to_words(self) -> String {
        let io = if self.io == IoBackend::Blocking { "blocking" } else { "io_uring" };
        format!("{GUEST} {} {io} {} {}", if self.errors { "errors" } else { "workload" }, self.seed, self.steps)
    }

    pub(super) fn from_words(words: &[String]) -> Option<Task> {
        // A kernel hands on words of its own that it does not know, before ours.
        let [.., guest, what, io, seed, steps] = words else { return None };
        if guest != GUEST || !["errors", "workload"].contains(&what.as_str()) {
            return None;
        }
        let io = if io == "blocking" { IoBackend::Blocking } else { IoBackend::IoUring };
        Some(Task { errors: what == "errors", io, seed: seed.parse().ok()?, steps: steps.parse().ok()? })
    }
}

/// Whether this process, started with `words`, is process 1 of a lab's machine.
pub fn is_guest(words: &[String]) -> bool {
    let is_task = Task::from_words(words).is_some()
        || PmemTask::from_words(words).is_some()
        || NumaTask::from_words(words).is_some()
        || BypassTask::from_words(words).is_some()
        || counts::is_task(words);
    std::process::id() == 1 && is_task
}

/// Runs as process 1; never returns.
#[expect(clippy::print_stdout, reason = "the console is the way to the host")]
pub fn main(words: &[String]) -> ! {
    println!("{}", super::machine::UP);
    thread::spawn(|| {
        thread::sleep(TASK_LONG);
        println!("{} for {TASK_LONG:?}; where each thread is:\n{}", super::machine::STUCK, threads());
    });
    let outcome = if let Some(task) = PmemTask::from_words(words) {
        pmem::guest(task)
    } else if let Some(task) = NumaTask::from_words(words) {
        numa::guest(task)
    } else if let Some(task) = BypassTask::from_words(words) {
        bypass::guest(task)
    } else if counts::is_task(words) {
        counts::guest()
    } else if let Some(task) = Task::from_words(words) {
        run(task)
    } else {
        Err(format!("bad task {words:?}"))
    };
    match outcome {
        Ok(said) => println!("lab: done: {said}"),
        Err(message) => println!("lab: failed: {message}"),
    }
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        thread::park();
    }
}

/// What each thread of this process waits for, as the kernel tells: name, system call, frames.
fn threads() -> String {
    let mut said = String::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        for what in ["comm", "syscall", "stack"] {
            said += &fs::read_to_string(task.path().join(what)).unwrap_or_default();
        }
    }
    said
}

fn run(task: Task) -> Result<String, String> {
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tracefs", TRACE)] {
        mount(kind, at, kind, MountFlags::empty(), None).map_err(text(&format!("mount {kind}")))?;
    }
    if !task.errors {
        begin_trace()?;
    }
    // No commit of the journal by time: the I/O errors are for the store, not for the file system.
    mount(DEVICE, "/data", "ext4", MountFlags::empty(), c"commit=600").map_err(text("mount the file system"))?;
    let said = if task.errors { errors::run(task) } else { write_workload(task) }?;
    unmount("/data", UnmountFlags::empty()).map_err(text("unmount the file system"))?;
    if !task.errors {
        mail_trace()?;
    }
    Ok(said)
}

/// Opens the store.
pub(super) fn open(task: Task) -> Result<Store, String> {
    let options = Options::new().io(task.io).shards(2).memory_bytes(24 << 20).level(Level::PowerLoss);
    options.open(STORE).map_err(|error| error.to_string())
}

/// The device, past the file system.
pub(super) fn device() -> Result<File, String> {
    open_direct(DEVICE)
}

pub(super) fn open_direct(device: &str) -> Result<File, String> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let opened = OpenOptions::new().read(true).write(true).custom_flags(direct).open(device);
    opened.map_err(text(&format!("open {device}")))
}

fn write_workload(task: Task) -> Result<String, String> {
    let store = open(task)?;
    let cache = fs::read_to_string("/sys/block/nvme0n1/queue/write_cache").map_err(text("read the cache's kind"))?;
    if cache.trim() != "write back" {
        return Err(format!("the device's cache is {}: there is nothing to lose", cache.trim()));
    }
    let lanes = Lanes { seed: task.seed, steps: task.steps, witness: DEVICE };
    let acknowledged = lanes.write(&store)?;
    store.close().map_err(|error| error.to_string())?;
    Ok(format!("{acknowledged} steps acknowledged"))
}

/// The workload: all lanes of a seed.
#[derive(Clone, Copy)]
pub(super) struct Lanes<'a> {
    pub(super) seed: u64,
    pub(super) steps: u32,
    /// The device that witness sectors go to.
    pub(super) witness: &'a str,
}

impl Lanes<'_> {
    /// Writes by all threads; how many steps were acknowledged.
    ///
    /// # Errors
    /// A step was not acknowledged.
    pub(super) fn write(self, store: &Store) -> Result<u32, String> {
        thread::scope(|scope| {
            let spawn = |number| {
                let store = store.clone();
                scope.spawn(move || Writer::new(number, self)?.write(&store))
            };
            let threads: Vec<_> = (0..SESSIONS + BLOCKING).map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a writer panicked".to_owned())?).sum()
        })
    }
}

/// One thread: its lanes, and its witness sector.
struct Writer<'a> {
    task: Lanes<'a>,
    number: u32,
    device: File,
    sector: Block,
    acknowledged: Vec<u32>,
}

impl<'a> Writer<'a> {
    fn new(number: u32, task: Lanes<'a>) -> Result<Writer<'a>, String> {
        let sector = Pool::new(1 << 20).take(Class::Page).ok_or("no memory for a witness sector")?;
        let acknowledged = vec![0; workload::lanes_of(number).len()];
        Ok(Writer { task, number, device: open_direct(task.witness)?, sector, acknowledged })
    }

    fn write(mut self, store: &Store) -> Result<u32, String> {
        if self.number < SESSIONS { self.write_in_session(store) } else { self.write_blocking(store) }?;
        Ok(self.acknowledged.iter().sum())
    }

    /// Before anything else is asked for by this thread, the device learns what it has been told.
    fn witness(&mut self) -> Result<(), String> {
        let sector = self.sector.get_mut(..512).ok_or("a block is longer than a sector")?;
        workload::encode_witness(self.number, &self.acknowledged, sector);
        self.device.write_all_at(sector, workload::witness_at(self.number)).map_err(text("write a witness sector"))
    }

    fn step(&self, lane: usize, number: u32) -> LaneWrite {
        workload::step(self.task.seed, workload::lanes_of(self.number).start + lane as u32, number)
    }

    fn write_blocking(&mut self, store: &Store) -> Result<(), String> {
        for number in 0..self.task.steps {
            let step = self.step(0, number);
            let name = step.name();
            let outcome = match step.value() {
                Some(value) => store.put(name.as_bytes(), &value).map(|_| ()),
                None => store.delete(name.as_bytes()).map(|_| ()),
            };
            outcome.map_err(|error| format!("{name}: {error}"))?;
            self.acknowledged[0] += 1;
            self.witness()?;
        }
        Ok(())
    }

    fn write_in_session(&mut self, store: &Store) -> Result<(), String> {
        let mut session = store.session().map_err(|error| error.to_string())?;
        let mut lane_of = std::collections::HashMap::new();
        for lane in 0..self.acknowledged.len() {
            lane_of.insert(session.submit(operation(&self.step(lane, 0))?), lane);
        }
        while session.in_flight() > 0 {
            let mut next = Vec::new();
            for (ticket, reply) in session.poll(1).map_err(|error| error.to_string())? {
                let lane = lane_of.remove(&ticket).ok_or("an answer to nothing")?;
                let Reply::Done { .. } = reply else { return Err(format!("lane {lane} was answered {reply:?}")) };
                self.acknowledged[lane] += 1;
                next.push(lane);
            }
            if !next.is_empty() {
                self.witness()?;
            }
            for lane in next.into_iter().filter(|lane| self.acknowledged[*lane] < self.task.steps).collect::<Vec<_>>() {
                let ticket = session.submit(operation(&self.step(lane, self.acknowledged[lane]))?);
                lane_of.insert(ticket, lane);
            }
        }
        Ok(())
    }
}

fn operation(step: &LaneWrite) -> Result<Operation, String> {
    let key = Key::new(stratakv::CollectionId::default(), step.name().as_bytes()).map_err(|error| error.to_string())?;
    let kind = match step.value() {
        Some(value) => ChangeKind::Put { value: Bytes::from(value), flags: 0, expiry: Expiry::NEVER },
        None => ChangeKind::Delete,
    };
    Ok(Operation::Write { changes: vec![Change { key, expect: Expect::Any, kind }], level: Level::PowerLoss })
}

/// From now on the kernel traces the requests that its block drivers are given.
pub(super) fn begin_trace() -> Result<(), String> {
    write(&format!("{TRACE}/buffer_size_kb"), "32768")?;
    write(&format!("{TRACE}/events/block/block_rq_issue/enable"), "1")
}

/// A block device's number (`259,0`), and the trace until now.
pub(super) fn end_trace(device: &str) -> Result<(String, String), String> {
    write(&format!("{TRACE}/tracing_on"), "0")?;
    let number = fs::read_to_string(format!("/sys/block/{device}/dev")).map_err(text("read the device's number"))?;
    let trace = fs::read(format!("{TRACE}/trace")).map_err(text("read the trace"))?;
    Ok((number.trim().replace(':', ","), String::from_utf8_lossy(&trace).into_owned()))
}

/// Length, the device's numbers, the trace: to the second device.
fn mail_trace() -> Result<(), String> {
    let (number, trace) = end_trace("nvme0n1")?;
    send_mail(MAIL, format!("{number}\n{trace}").as_bytes())
}

/// A text to the host, by a device that nothing else is on.
pub(super) fn send_mail(device: &str, mail: &[u8]) -> Result<(), String> {
    let mut framed = (mail.len() as u64).to_le_bytes().to_vec();
    framed.extend_from_slice(mail);
    let device = OpenOptions::new().write(true).open(device).map_err(text("open the device for mail"))?;
    device.write_all_at(&framed, 0).and_then(|()| device.sync_all()).map_err(text("mail a text"))
}

pub(super) fn write(path: &str, what: &str) -> Result<(), String> {
    fs::write(Path::new(path), what).map_err(text(&format!("write to {path}")))
}

pub(super) fn text<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String {
    let what = what.to_owned();
    move |error| format!("cannot {what}: {error}")
}
