//! NVMe commands by io_uring under a real kernel: what every ring does, requests against an oracle
//! of pages, who may have the device, and a store that is opened by either of its nodes.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{AddressFamily, SendFlags, SocketType};
use stratakv::{Engine, Level, Options, Store};
use stratakv_base::random::Random;
use stratakv_device::{
    Completion, DiskOutcome, DiskRequest, PassthroughRing, Pool, RawDevice, RawRefusal, Ring, RingKind, Volume, Wait,
    open_ring, sync,
};

use super::super::guest::text;
use super::pages::{self, PAGE_BYTES, Pages};
use super::work::{block_device, generic_device};
use crate::process;

#[path = "../../../../device/tests/ring/cases.rs"]
#[expect(dead_code, clippy::unwrap_used, clippy::panic, reason = "tests, some of them of files")]
mod cases;

/// Bytes of each case's volume, from the device's begin on.
const CASE_BYTES: u64 = 4 << 20;
/// Where the oracle's pages are, behind those of cases.
const PAGES_AT: u64 = 48 << 20;
const PAGES: usize = 2048;
const DEPTH: usize = 24;
const OPERATIONS: usize = 800;
const POOL_BYTES: usize = 16 << 20;
const STORE: &str = "/data/by-either";

static DEVICE: OnceLock<RawDevice> = OnceLock::new();
static TAKEN: AtomicU64 = AtomicU64::new(0);

macro_rules! cases_of {
    ($($case:ident),* $(,)?) => { [$((stringify!($case), cases::$case as fn(&cases::Kind))),*] };
}

pub(super) fn run(seed: u64) -> Result<String, String> {
    fs::create_dir_all("/tmp").map_err(text("make /tmp"))?;
    bring_loopback_up()?;
    // A case has hundreds of connections.
    process::allow_open_files(4096);
    let (volume, spare) = (generic_device("VOLUME")?, generic_device("SPARE")?);
    let excluded = exclusion(&volume, &block_device("VOLUME")?)?;
    let raw = RawDevice::open(Path::new(&volume), false).map_err(text("open the namespace"))?;
    let namespace = raw.passthrough().ok_or("it takes no commands")?;
    let what = format!(
        "{} {}, largest command {} KiB, cache {}",
        namespace.controller().model_number,
        namespace.controller().serial_number,
        namespace.transfer_bytes_max() >> 10,
        if namespace.controller().volatile_write_cache { "volatile" } else { "none" },
    );
    let pages = raw.range(PAGES_AT, (PAGES * PAGE_BYTES) as u64).map_err(text("take a range"))?;
    let said = Drive::new(pages, seed)?.work()?;
    DEVICE.get_or_init(|| raw);
    let passed = conformance()?;
    let keys = by_either_node(&block_device("SPARE")?, &spare)?;
    Ok(format!(
        "{what}; {said}; {passed} cases of rings passed; {excluded} openings refused; {keys} keys of a store by either node"
    ))
}

/// The rings' cases, on ranges of the device in turn.
fn conformance() -> Result<usize, String> {
    let cases = cases::cases_of_every_ring!(cases_of);
    for (name, case) in cases {
        let kind = cases::Kind { ring: case_ring, volume: case_volume };
        let passed = std::thread::spawn(move || case(&kind)).join();
        passed.map_err(|_| format!("{name} failed; the console has its message"))?;
    }
    Ok(cases.len())
}

#[expect(clippy::expect_used, reason = "a case's answer is a panic")]
fn case_ring() -> Box<dyn Ring + Send> {
    Box::new(PassthroughRing::new(open_ring(RingKind::IoUring, 32).expect("an io_uring")))
}

#[expect(clippy::expect_used, reason = "as above")]
fn case_volume(_: &Path) -> Arc<Volume> {
    // Each overwrites what it reads: what lies there is another case's.
    let number = TAKEN.fetch_add(1, Ordering::Relaxed) % (PAGES_AT / CASE_BYTES);
    let raw = DEVICE.get().expect("the device is open");
    Arc::new(raw.range(number * CASE_BYTES, CASE_BYTES).expect("a range of it"))
}

/// Sockets of cases are on the loopback interface: RTM_NEWLINK of interface 1, IFF_UP.
fn bring_loopback_up() -> Result<(), String> {
    // No protocol is NETLINK_ROUTE.
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None).map_err(text("open netlink"))?;
    let words: [u32; 8] = [32, 1 << 16 | 16, 1, 0, 0, 1, 1, 1];
    let message: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    rustix::net::send(&socket, &message, SendFlags::empty()).map_err(text("set the loopback interface up"))?;
    Ok(())
}

/// Who has one node keeps others from both, and a mounted device is not taken.
fn exclusion(generic: &str, block: &str) -> Result<usize, String> {
    let is_refused = |path: &str| matches!(RawDevice::open(Path::new(path), false), Err(RawRefusal::Busy));
    let mut refused = 0;
    for (first, second) in [(generic, generic), (generic, block), (block, generic)] {
        let held = RawDevice::open(Path::new(first), false).map_err(text(&format!("open {first}")))?;
        if !is_refused(second) {
            return Err(format!("{second} was opened although {first} is"));
        }
        drop(held);
        refused += 1;
    }
    let made = Command::new("/mkfs.ext4").args(["-q", "-F", block]).output().map_err(text("make a file system"))?;
    if !made.status.success() {
        return Err(format!("mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr)));
    }
    mount(block, "/data", "ext4", MountFlags::empty(), None).map_err(text("mount the device"))?;
    let is_taken = !is_refused(generic);
    unmount("/data", UnmountFlags::empty()).map_err(text("unmount the device"))?;
    if is_taken {
        return Err("a mounted device was taken".into());
    }
    let raw = RawDevice::open(Path::new(generic), false).map_err(text("open an unmounted device"))?;
    match raw.contents() {
        Ok(Some(what)) if what.contains("ext4") => Ok(refused + 1),
        other => Err(format!("a file system was taken for {other:?}")),
    }
}

/// A store made on the block device opens on the character device, and back.
fn by_either_node(block: &str, generic: &str) -> Result<u32, String> {
    let open = |device: &str| -> Result<Store, String> {
        let options = Options::new().engine(Engine::Slab).shards(2).memory_bytes(24 << 20).level(Level::ProcessCrash);
        options.devices([device]).open(STORE).map_err(|error| format!("{device}: {error}"))
    };
    let mut keys = 0;
    for device in [block, generic, block, generic] {
        let store = open(device)?;
        for key in 0..keys {
            let found = store.get(format!("key{key}").as_bytes()).map_err(|error| error.to_string())?;
            let found = found.ok_or_else(|| format!("key{key} is lost on {device}"))?;
            if found.to_bytes() != vec![key as u8; 100 + key as usize * 300] {
                return Err(format!("key{key} is another on {device}"));
            }
        }
        for key in keys..keys + 50 {
            let value = vec![key as u8; 100 + key as usize * 300];
            store.put(format!("key{key}").as_bytes(), &value).map_err(|error| error.to_string())?;
        }
        keys += 50;
        store.close().map_err(|error| error.to_string())?;
    }
    Ok(keys)
}

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Read(usize),
    Write(usize, usize, u32),
    Flush,
    Discard(usize, usize),
}

/// Requests to a volume, and what it must hold.
struct Drive {
    volume: Arc<Volume>,
    ring: PassthroughRing,
    pool: Pool,
    pages: Pages,
    random: Random,
    sent: HashMap<u64, (Sent, std::ops::Range<usize>)>,
    tags: u64,
    counts: [u64; 4],
}

impl Drive {
    fn new(volume: Volume, seed: u64) -> Result<Drive, String> {
        let ring = PassthroughRing::new(open_ring(RingKind::IoUring, 64).map_err(text("open a ring"))?);
        Ok(Drive {
            volume: Arc::new(volume),
            ring,
            pool: Pool::new(POOL_BYTES),
            pages: Pages::new(PAGES),
            random: Random::new(seed),
            sent: HashMap::new(),
            tags: 0,
            counts: [0; 4],
        })
    }

    fn work(mut self) -> Result<String, String> {
        self.zero()?;
        let before = self.ring.system_calls();
        for _ in 0..OPERATIONS {
            while self.sent.len() >= DEPTH {
                self.collect()?;
            }
            self.begin()?;
        }
        while !self.sent.is_empty() {
            self.collect()?;
        }
        let calls = self.ring.system_calls() - before;
        let compared = self.compare()?;
        if self.ring.in_flight() > 0 {
            return Err("all requests were answered, and the ring has more".into());
        }
        let counts = self.counts;
        Ok(format!("{counts:?} (reads, writes, flushes, discards) by {calls} system calls; {compared} pages compared"))
    }

    /// Something may be there.
    fn zero(&mut self) -> Result<(), String> {
        for first in (0..PAGES).step_by(32) {
            let request = pages::write(&self.pool, (first, 32), 0, false)?;
            if let Some(fault) = sync::execute(&self.volume, request).fault() {
                return Err(format!("page {first} cannot be written: {fault}"));
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), String> {
        let most = if self.random.below(4) == 0 { 200 } else { 4 };
        let count = 1 + self.random.below(most) as usize;
        let first = self.random.below((PAGES - 200) as u64) as usize;
        let durable = self.random.below(3) == 0;
        let (sent, pages, request) = match self.random.below(20) {
            0..=7 => (Sent::Read(first), first..first + 16, pages::read(&self.pool, first, 16)?),
            8..=17 => {
                let version = self.pages.next_version();
                let request = pages::write(&self.pool, (first, count), version, durable)?;
                (Sent::Write(first, count, version), first..first + count, request)
            }
            18 => (Sent::Flush, 0..0, DiskRequest::Flush),
            _ => {
                let (offset, len) = ((first * PAGE_BYTES) as u64, (count * PAGE_BYTES) as u64);
                (Sent::Discard(first, count), first..first + count, DiskRequest::Discard { offset, len })
            }
        };
        if self.sent.values().any(|(_, other)| pages.start < other.end && other.start < pages.end) {
            return Ok(());
        }
        self.tags += 1;
        self.sent.insert(self.tags, (sent, pages));
        self.ring.disk(self.tags, &self.volume, request);
        Ok(())
    }

    fn collect(&mut self) -> Result<(), String> {
        let timeout = Some(Duration::from_secs(1));
        self.ring.submit(Wait::For { completions: 1, timeout }).map_err(text("wait for the ring"))?;
        let mut completions = Vec::new();
        self.ring.reap(&mut completions);
        for completion in completions {
            let Completion::Disk { tag, outcome } = completion else { return Err("an answer of no disk".into()) };
            let (sent, _) = self.sent.remove(&tag).ok_or_else(|| format!("an answer to nothing, {tag}"))?;
            if let Some(fault) = outcome.fault() {
                return Err(format!("{sent:?} failed: {fault}"));
            }
            self.take(sent, outcome)?;
        }
        Ok(())
    }

    fn take(&mut self, sent: Sent, outcome: DiskOutcome) -> Result<(), String> {
        let kind = match (sent, outcome) {
            (Sent::Read(first), DiskOutcome::Read(block, _)) => {
                for (page, bytes) in (first..).zip(block.chunks_exact(PAGE_BYTES)) {
                    self.pages.check(page, bytes)?;
                }
                0
            }
            (Sent::Write(first, count, version), DiskOutcome::Write(_)) => {
                self.pages.written(first, count, version);
                1
            }
            (Sent::Flush, DiskOutcome::Flush(_)) => 2,
            // Zeros, or what was there.
            (Sent::Discard(first, count), DiskOutcome::Discard(_)) => {
                self.pages.maybe_written(first, count, 0);
                3
            }
            (sent, outcome) => return Err(format!("{sent:?} was answered {outcome:?}")),
        };
        if let Some(count) = self.counts.get_mut(kind) {
            *count += 1;
        }
        Ok(())
    }

    /// Reads all pages as callers without a ring do.
    fn compare(&mut self) -> Result<usize, String> {
        for first in (0..PAGES).step_by(16) {
            let outcome = sync::execute(&self.volume, pages::read(&self.pool, first, 16)?);
            let DiskOutcome::Read(block, Ok(())) = outcome else { return Err(format!("{first}: {outcome:?}")) };
            for (page, bytes) in (first..).zip(block.chunks_exact(PAGE_BYTES)) {
                self.pages.check(page, bytes)?;
            }
        }
        Ok(PAGES)
    }
}
