//! The process under the library: shards of an engine on simulated disks, or `hash` in a simulated
//! region. One thread is everybody: who waits for a reply turns the machine meanwhile, and the
//! power may fail at any of its steps.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use stratakv::raw::{AnyShard, Driver};
use stratakv::{Engine, Level, Store};
use stratakv_base::random::Random;
use stratakv_base::{Mono, Now, Wall};
use stratakv_device::Wait;
use stratakv_hash::{Hash, HashOptions};
use stratakv_runtime::{Clock, ManualClock, Runtime, with_pump};
use stratakv_sim::pmem::{Cutting, Region};
use stratakv_sim::ring::World;

use crate::world::{Host, Process, Statistics};

/// Turns without a reply after which the store counts as stuck.
const TICKS_MAX: u64 = 400_000;
/// Of engine `hash`.
const REGION_BYTES: usize = 2 << 20;
const SEGMENT_BYTES: u64 = 32 << 10;

/// What outlives a process.
pub(super) enum Machine {
    Disks(Box<Host>),
    Region { image: Vec<u8>, created: bool, clock: Arc<ManualClock>, now: Now },
}

/// A process. Its reactors are dropped first, as in `end`: a store that is dropped waits for them.
pub(super) struct Life {
    turned: Rc<Turned>,
    pub(super) store: Store,
    runtime: Arc<Runtime<AnyShard>>,
    region: Option<Arc<Hash<Cutting>>>,
}

/// What is turned by whoever waits.
struct Turned {
    world: Option<World>,
    reactors: RefCell<Vec<Driver>>,
    clock: Arc<ManualClock>,
    now: Cell<Now>,
    /// Turns until the power fails, or the process is killed.
    cut_after: Cell<Option<u64>>,
    power: Cell<bool>,
    is_cut: Cell<bool>,
    ticks: Cell<u64>,
}

impl Turned {
    fn pass(&self, nanoseconds: u64, wall_ms: u64) {
        let Now { mono, wall } = self.now.get();
        self.now.set(Now { mono: Mono(mono.0 + nanoseconds), wall: Wall(wall.0 + wall_ms) });
        self.clock.set(self.now.get());
    }

    fn tick(&self) {
        self.ticks.set(self.ticks.get() + 1);
        assert!(self.ticks.get() < TICKS_MAX, "a call of the library is not answered");
        let Some(world) = &self.world else { return };
        match self.cut_after.get() {
            Some(0) if !self.is_cut.replace(true) => world.crash(self.power.get()),
            Some(left) => self.cut_after.set(Some(left.saturating_sub(1))),
            None => {}
        }
        let tick = |reactor: &mut Driver| reactor.tick(Wait::None, &mut Vec::new()).is_err();
        let failed = self.reactors.borrow_mut().iter_mut().map(tick).filter(|failed| *failed).count();
        if failed > 0 {
            // Without its ring a reactor is gone: whoever waits for its shards is told so.
            let gone = self.reactors.take();
            drop(gone);
        }
        let busy = (0..4).filter(|_| world.step()).count();
        self.pass(if busy > 0 { 20_000 } else { 5_000_000 }, 0);
    }
}

impl Machine {
    pub(super) fn on_disks(host: Host) -> Machine {
        Machine::Disks(Box::new(host))
    }

    pub(super) fn in_region() -> Machine {
        let now = Now { mono: Mono(1_000_000_000), wall: Wall(1_000_000) };
        let clock = Arc::new(ManualClock::default());
        clock.set(now);
        Machine::Region { image: vec![0; REGION_BYTES], created: false, clock, now }
    }

    /// Opens the store, over power cuts and failures that the disks have.
    pub(super) fn open(&mut self, random: &mut Random, statistics: &mut Statistics) -> Result<Life, String> {
        match self {
            Machine::Disks(host) => {
                let (Process { runtime, reactors, store }, _) = host.reopen(random, statistics)?;
                let turned = Turned {
                    world: Some(host.world.clone()),
                    reactors: RefCell::new(reactors),
                    clock: Arc::clone(&host.clock),
                    now: Cell::new(host.now),
                    ..Turned::default()
                };
                Ok(Life { store, runtime, turned: Rc::new(turned), region: None })
            }
            Machine::Region { image, created, clock, now } => {
                let region = Region::open(std::mem::take(image), stratakv_sim::pmem::Domain::Adr);
                let pmem = Cutting::new(region, random.next_u64());
                let options = HashOptions { segment_bytes: SEGMENT_BYTES, uuid: *b"simulated store!", block_bytes: 64 };
                let hash = if *created { Hash::open(pmem, 1) } else { Hash::create(pmem, options) };
                let hash = Arc::new(hash.map_err(|error| format!("the region does not open: {error}"))?);
                *created = true;
                let shared: Arc<dyn stratakv_engine::Shared> = Arc::clone(&hash) as _;
                let runtime = Runtime::shared_driven(shared, Clock::Manual(Arc::clone(clock)));
                let store = Store::over(Arc::clone(&runtime), Level::PowerLoss, Engine::Hash);
                let turned = Turned { clock: Arc::clone(clock), now: Cell::new(*now), ..Turned::default() };
                Ok(Life { store, runtime, turned: Rc::new(turned), region: Some(hash) })
            }
        }
    }

    /// The process ends, by a power cut or by a kill, unless it has already.
    pub(super) fn end(&mut self, life: Life, power: bool) -> Result<(), String> {
        let Life { store, runtime, turned, region } = life;
        match self {
            Machine::Disks(host) => {
                host.now = turned.now.get();
                host.crash(power && !turned.is_cut.get() || turned.is_cut.get() && turned.power.get());
                turned.reactors.take();
                drop((store, runtime));
                host.is_all_given_back()
            }
            Machine::Region { image, now, .. } => {
                *now = turned.now.get();
                drop((store, runtime));
                *image = region.map(|hash| hash.pmem().end(power)).unwrap_or_default();
                Ok(())
            }
        }
    }

    /// Whether the machine has given reason for errors since the store was opened.
    pub(super) fn is_excused(&self, life: &Life) -> bool {
        let has_failed = match self {
            Machine::Disks(host) => host.is_excused(),
            Machine::Region { .. } => life.has_failed(),
        };
        has_failed || life.is_cut()
    }
}

impl Default for Turned {
    fn default() -> Turned {
        Turned {
            world: None,
            reactors: RefCell::default(),
            clock: Arc::default(),
            now: Cell::new(Now { mono: Mono(0), wall: Wall(0) }),
            cut_after: Cell::new(None),
            power: Cell::new(true),
            is_cut: Cell::new(false),
            ticks: Cell::new(0),
        }
    }
}

impl Life {
    /// A call of the library: what it waits for happens meanwhile.
    pub(super) fn call<R>(&self, call: impl FnOnce(&Store) -> R) -> R {
        self.turned.ticks.set(0);
        let turned = Rc::clone(&self.turned);
        with_pump(move || turned.tick(), || call(&self.store))
    }

    /// Orders the power to fail, or the process to be killed, in the middle of what comes.
    pub(super) fn cut_after(&self, steps: u64, power: bool) {
        self.turned.power.set(power);
        self.turned.cut_after.set(Some(steps));
        if let Some(hash) = &self.region {
            hash.pmem().cut_after(4 * steps);
        }
    }

    /// Orders that writing the region back fails in the middle of what comes.
    pub(super) fn fail_after(&self, steps: u64) {
        if let Some(hash) = &self.region {
            hash.pmem().fail_after(4 * steps);
        }
    }

    pub(super) fn has_region(&self) -> bool {
        self.region.is_some()
    }

    /// Whether writing the region back has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.region.as_ref().is_some_and(|hash| hash.pmem().has_failed())
    }

    /// Whether the power has failed, or the process was killed.
    pub(super) fn is_cut(&self) -> bool {
        self.turned.is_cut.get() || self.region.as_ref().is_some_and(|hash| hash.pmem().is_cut())
    }

    /// The wall clock goes on.
    pub(super) fn pass_ms(&self, ms: u64) {
        self.turned.pass(ms * 1_000_000, ms);
    }

    pub(super) fn wall_ms(&self) -> u64 {
        self.turned.now.get().wall.0
    }

    /// Nobody asks anything, and the store does what it has to do.
    pub(super) fn rest(&self, ticks: u64) {
        self.turned.ticks.set(0);
        for _ in 0..ticks {
            self.turned.tick();
            self.runtime.maintain();
        }
    }

    /// An orderly end of the store.
    pub(super) fn close(&self) -> Result<(), String> {
        self.runtime.begin_close();
        self.turned.ticks.set(0);
        while !self.runtime.is_ended() {
            self.turned.tick();
        }
        self.call(|store| store.close().map_err(|error| error.to_string()))
    }
}
