//! The NVMe driver over a controller that is a program: what every ring does, and what this one
//! does when its controller misbehaves.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stratakv_device::nvme::{Controller, EmulatedBus, Namespace, NvmeError, NvmeOptions};
use stratakv_device::{
    Block, BlockPart, Class, Completion, DiskOutcome, DiskRequest, IoFault, NvmeRing, Pool, RawDevice, Ring, RingKind,
    Volume, Wait, open_ring, sync,
};
use stratakv_sim::nvme::{ControllerTraits, EmulatedController, NvmeImage, Quirk};

#[path = "../../device/tests/ring/cases.rs"]
#[expect(dead_code, reason = "some cases are of files: volumes that are cut, and end")]
mod cases;

/// Devices of the running tests: a volume's namespace is its own, and so is this.
static DEVICES: Mutex<Vec<NvmeImage>> = Mutex::new(Vec::new());

fn image(traits: ControllerTraits, options: NvmeOptions) -> NvmeImage {
    NvmeImage::new(traits, options).unwrap()
}

fn volume_on(device: &NvmeImage) -> Arc<Volume> {
    let raw = RawDevice::of_namespace(Path::new("nvme:0000:00:00.0"), device.namespace());
    Arc::new(raw.range(0, raw.len_bytes()).unwrap())
}

fn volume(_directory: &Path) -> Arc<Volume> {
    let traits = ControllerTraits { blocks: 4096, ..ControllerTraits::default() };
    let device = image(traits, NvmeOptions::default());
    let volume = volume_on(&device);
    DEVICES.lock().unwrap().push(device);
    volume
}

fn ring() -> Box<dyn Ring + Send> {
    Box::new(NvmeRing::new(open_ring(RingKind::Auto, 32).unwrap()))
}

macro_rules! on_this_ring {
    ($($case:ident),* $(,)?) => {
        $(#[test] fn $case() { cases::$case(&cases::Kind { ring, volume }); })*
    };
}

cases::cases_of_every_ring!(on_this_ring);

const TIMEOUT: Duration = Duration::from_millis(80);

struct Bench {
    device: NvmeImage,
    volume: Arc<Volume>,
    ring: Box<dyn Ring + Send>,
    pool: Pool,
}

impl Bench {
    fn new(traits: ControllerTraits) -> Bench {
        let device = image(traits, NvmeOptions { command_timeout: TIMEOUT, depth: 16 });
        Bench { volume: volume_on(&device), device, ring: ring(), pool: Pool::new(8 << 20) }
    }

    fn block(&self, fill: u8) -> Block {
        let mut block = self.pool.take(Class::Slice).unwrap();
        block.fill(fill);
        block
    }

    fn write(&mut self, tag: u64, slice: u64, fill: u8, durable: bool) {
        let parts = vec![BlockPart::whole(Arc::new(self.block(fill)))];
        self.ring.disk(tag, &self.volume, DiskRequest::Write { offset: slice << 16, parts, durable });
    }

    fn read(&mut self, tag: u64, slice: u64) {
        let block = self.block(0xEE);
        self.ring.disk(tag, &self.volume, DiskRequest::Read { offset: slice << 16, block, len: 1 << 16 });
    }

    fn flush(&mut self, tag: u64) {
        self.ring.disk(tag, &self.volume, DiskRequest::Flush);
    }

    /// All outcomes, in the order of their tags.
    fn complete(&mut self, count: usize) -> Vec<DiskOutcome> {
        let mut done = Vec::new();
        while done.len() < count {
            self.ring.submit(Wait::For { completions: 1, timeout: None }).unwrap();
            self.ring.reap(&mut done);
        }
        assert_eq!((done.len(), self.ring.in_flight()), (count, 0), "each is answered once");
        let mut outcomes: Vec<(u64, DiskOutcome)> = done.into_iter().map(told).collect();
        outcomes.sort_by_key(|(tag, _)| *tag);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Each slice holds what was written to it.
    fn compare(&mut self, slices: u64) {
        (0..slices).for_each(|slice| self.read(slice, slice));
        for (slice, outcome) in (0..).zip(self.complete(slices as usize)) {
            let DiskOutcome::Read(block, Ok(())) = outcome else { panic!("slice {slice}: {outcome:?}") };
            assert!(block.iter().all(|byte| *byte == slice as u8 + 1), "slice {slice}");
        }
    }
}

fn told(completion: Completion) -> (u64, DiskOutcome) {
    match completion {
        Completion::Disk { tag, outcome } => (tag, outcome),
        Completion::Net { .. } => panic!("no socket was asked"),
    }
}

/// The least that a controller may have, and the most; blocks of 512 bytes and of 4 KiB.
#[test]
fn every_kind_of_controller_is_driven() {
    let kinds = [(2, 0, 9, 1), (2, 1, 12, 1), (3, 4, 12, 2), (65_536, 9, 9, 64)];
    for ((queue_entries, mdts, lbads, pairs), sgls) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)])
    {
        let blocks = (4 << 20) >> lbads;
        let traits = ControllerTraits { blocks, lbads, mdts, queue_entries, pairs, volatile_cache: false, sgls };
        let mut bench = Bench::new(traits);
        (0..16).for_each(|slice| bench.write(slice, slice, slice as u8 + 1, false));
        assert!(bench.complete(16).iter().all(|outcome| outcome.fault().is_none()));
        bench.flush(0);
        assert_eq!(bench.complete(1).iter().find_map(DiskOutcome::fault), None);
        bench.compare(16);
    }
}

/// A thread sleeps in the ring below; the completion comes from elsewhere, a while later. Without
/// the interrupt the sleep would end too, so calls are counted: one or two, not one every 100 us.
#[test]
fn an_interrupt_ends_a_sleep() {
    let device = image(ControllerTraits::default(), NvmeOptions::default());
    let mut bench = Bench { volume: volume_on(&device), device, ring: ring(), pool: Pool::new(8 << 20) };
    bench.write(0, 0, 1, false);
    bench.complete(1);
    bench.device.with(|device| device.plan(0, Quirk::Lost { abortable: true }));
    bench.read(0, 0);
    bench.ring.submit(Wait::None).unwrap();
    let before = bench.ring.system_calls();
    let device = &bench.device;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(15));
            assert!(device.find_lost());
        });
        let mut done = Vec::new();
        while done.is_empty() {
            bench.ring.submit(Wait::For { completions: 1, timeout: None }).unwrap();
            bench.ring.reap(&mut done);
        }
        assert_eq!(told(done.remove(0)).1.fault(), None);
    });
    let calls = bench.ring.system_calls() - before;
    assert!(calls <= 20, "{calls} system calls in 15 ms");
}

/// Doorbells: one write for all commands of a submit.
#[test]
fn a_submit_rings_once() {
    let mut bench = Bench::new(ControllerTraits::default());
    bench.write(0, 0, 1, false);
    bench.complete(1);
    let before = bench.device.with(|device| device.controller().doorbells());
    (0..8).for_each(|tag| bench.write(tag, tag, 1, false));
    bench.ring.submit(Wait::None).unwrap();
    let mut done = Vec::new();
    bench.ring.reap(&mut done);
    assert_eq!(done.len(), 8, "this controller is at once");
    let rung = bench.device.with(|device| device.controller().doorbells()) - before;
    assert_eq!(rung, 2, "one for the commands, one for the completions");
}

/// What a controller may do wrong with one of eight writes: each request is answered once, and what
/// was answered well is there afterwards.
#[test]
fn a_controller_that_misbehaves_loses_nothing() {
    let quirks = [
        Quirk::NotReady,
        Quirk::Lost { abortable: true },
        Quirk::Lost { abortable: false },
        Quirk::Twice,
        Quirk::Fatal,
        Quirk::UnknownCommand,
        Quirk::WrongHead,
    ];
    for quirk in quirks {
        let mut bench = Bench::new(ControllerTraits { volatile_cache: false, ..ControllerTraits::default() });
        (0..8).for_each(|slice| bench.write(slice, slice, 0x77, true));
        bench.complete(8);
        bench.device.with(|device| device.plan(3, quirk));
        (0..8).for_each(|slice| bench.write(slice, slice, slice as u8 + 1, true));
        let outcomes = bench.complete(8);
        let failed: Vec<u64> =
            (0..).zip(&outcomes).filter(|(_, one)| one.fault().is_some()).map(|(at, _)| at).collect();
        match quirk {
            Quirk::NotReady => assert!(failed.is_empty(), "it is sent again"),
            Quirk::Twice => {}
            _ => assert!(failed.contains(&3), "{quirk:?}: {outcomes:?}"),
        }
        failed.iter().for_each(|slice| bench.write(*slice, *slice, *slice as u8 + 1, true));
        let again = bench.complete(failed.len());
        assert!(again.iter().all(|outcome| outcome.fault().is_none()), "{quirk:?}: it works again: {again:?}");
        bench.compare(8);
    }
}

/// A reset may lose what the cache held: the next flush says so, once.
#[test]
fn a_flush_after_a_reset_fails_once() {
    let mut bench = Bench::new(ControllerTraits::default());
    bench.flush(0);
    bench.complete(1);
    bench.write(0, 0, 1, false);
    bench.complete(1);
    bench.device.with(|device| device.plan(0, Quirk::Fatal));
    bench.read(0, 0);
    assert_eq!(bench.complete(1).iter().find_map(DiskOutcome::fault), Some(IoFault::Os(libc_etimedout())));
    bench.flush(0);
    assert!(bench.complete(1)[0].fault().is_some(), "the write may be lost");
    bench.flush(0);
    assert_eq!(bench.complete(1)[0].fault(), None);
}

fn libc_etimedout() -> i32 {
    std::io::Error::from(rustix::io::Errno::TIMEDOUT).raw_os_error().unwrap_or_default()
}

/// Everything fails at once, and goes on failing; nothing waits for ever, and nothing is reached by
/// the device.
#[test]
fn a_device_that_disappears_fails_what_is_asked() {
    let mut bench = Bench::new(ControllerTraits::default());
    bench.write(0, 0, 1, false);
    bench.complete(1);
    bench.device.with(|device| device.plan(2, Quirk::Gone));
    (0..5).for_each(|tag| bench.read(tag, tag));
    let outcomes = bench.complete(5);
    assert!(outcomes.iter().filter(|one| one.fault().is_some()).count() >= 3, "{outcomes:?}");
    assert!(bench.device.namespace().controller().is_dead());
    bench.write(0, 0, 1, true);
    bench.flush(1);
    let gone = Some(IoFault::Os(std::io::Error::from(rustix::io::Errno::NODEV).raw_os_error().unwrap_or_default()));
    assert_eq!(bench.complete(2).iter().map(DiskOutcome::fault).collect::<Vec<_>>(), [gone, gone]);
    let outcome = sync::execute(&bench.volume, DiskRequest::Flush);
    assert_eq!(outcome.fault(), gone, "callers without a ring hear it too");
}

/// More threads than the controller has queue pairs: the others wait for one another.
#[test]
fn rings_beyond_the_queue_pairs_are_served() {
    let mut bench = Bench::new(ControllerTraits { pairs: 2, ..ControllerTraits::default() });
    let mut rings: Vec<_> = (0..4).map(|_| ring()).collect();
    for (slice, ring) in (0..).zip(&mut rings) {
        let parts = vec![BlockPart::whole(Arc::new(bench.block(slice as u8 + 1)))];
        ring.disk(0, &bench.volume, DiskRequest::Write { offset: slice << 16, parts, durable: true });
        let mut done = Vec::new();
        while done.is_empty() {
            ring.submit(Wait::For { completions: 1, timeout: None }).unwrap();
            ring.reap(&mut done);
        }
        assert!(done.into_iter().all(|one| told(one).1.fault().is_none()));
    }
    drop(rings);
    bench.compare(4);
}

#[test]
fn what_cannot_be_driven_is_refused_and_says_why() {
    let start = |traits: ControllerTraits, nsid: u32| {
        let bus = Arc::new(EmulatedBus::new("0000:00:00.0", EmulatedController::new(traits)));
        let controller = Controller::start(bus, NvmeOptions::default())?;
        Namespace::open(&controller, nsid).map(|_| ())
    };
    let plain = ControllerTraits::default();
    assert!(start(plain, 1).is_ok());
    for nsid in [0, 2, u32::MAX] {
        assert!(matches!(start(plain, nsid), Err(NvmeError::NoNamespace { .. })), "{nsid}");
    }
    let refused = start(ControllerTraits { lbads: 13, ..plain }, 1).unwrap_err();
    assert!(refused.to_string().contains("8192 bytes") && refused.to_string().contains("nvme format"), "{refused}");
    assert!(matches!(start(ControllerTraits { lbads: 3, ..plain }, 1), Err(NvmeError::BadIdentity(1))));
    assert!(matches!(start(ControllerTraits { blocks: 0, ..plain }, 1), Err(NvmeError::NoNamespace { .. })));
    assert!(matches!(start(ControllerTraits { blocks: u64::MAX, ..plain }, 1), Err(NvmeError::BadIdentity(1))));
    let mut device = EmulatedController::new(plain);
    device.remove();
    let bus = Arc::new(EmulatedBus::new("0000:00:00.0", device));
    assert!(matches!(Controller::start(bus, NvmeOptions::default()), Err(NvmeError::Gone)));
}

/// A pool's chunk that goes back to the system is taken from the device first, and one that comes
/// in its place is mapped anew.
#[test]
fn chunks_that_come_and_go_are_found_by_the_device() {
    let mut bench = Bench::new(ControllerTraits { volatile_cache: false, ..ControllerTraits::default() });
    for round in 0..20 {
        bench.pool = Pool::new(2 << 20);
        (0..4).for_each(|slice| bench.write(slice, slice, slice as u8 + 1 + round % 2, false));
        assert!(bench.complete(4).iter().all(|outcome| outcome.fault().is_none()), "round {round}");
        (0..4).for_each(|slice| bench.write(slice, slice, slice as u8 + 1, false));
        bench.complete(4);
        bench.compare(4);
    }
}
