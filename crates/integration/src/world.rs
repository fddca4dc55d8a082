//! Whole stores in the simulator: several shards of an engine behind the real runtime, store and
//! server code, on simulated disks and sockets, in one thread, by a seeded clock. One seed gives
//! one run, always the same.
//!
//! [`store`] is a process with the library embedded, [`server`] one that serves memcache clients.
//! Both die at any moment, by a power cut or a kill, and are opened again by the code that opens
//! real volumes.

mod host;
pub mod left_out;
pub mod library;
pub mod pipelined;
pub mod server;
pub mod store;

use stratakv::{Engine, Placement};
use stratakv_base::random::Random;
use stratakv_sim::coverage::Coverage;
use stratakv_sim::disk::Chances;

use host::{Host, Process};

/// What runs came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Runs.
    pub runs: u64,
    /// Lives that a power cut ended.
    pub power_cuts: u64,
    /// Lives that a kill ended.
    pub kills: u64,
    /// Lives that ended in order.
    pub closes: u64,
    /// Recoveries that were themselves cut off.
    pub cut_recoveries: u64,
    /// Shards that broke (store only).
    pub broken: u64,
    /// Operations or commands asked.
    pub asked: u64,
    /// Of them, answered.
    pub answered: u64,
    /// Runs whose history was too hard to judge.
    pub undecided: u64,
    /// Backups made and judged (store only).
    pub backups: u64,
    /// Openings that failed because a disk did; after a repair they went well.
    pub failed_openings: u64,
    /// Which faults the disks had.
    pub coverage: Coverage,
    /// What became of a server and its clients (server only).
    pub served: Served,
    /// A checksum over everything that was answered, to compare runs by.
    pub digest: u64,
}

/// What a server and its clients went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Connections of clients whose answers are judged.
    pub connections: u64,
    /// Connections of clients that speak no protocol as they should.
    pub adversary: u64,
    /// Bytes that they sent.
    pub adversary_bytes: u64,
    /// Connections that clients closed, reset, or left without a word.
    pub left: [u64; 3],
    /// Of them, in the middle of a command.
    pub left_inside: u64,
    /// Connections whose clients stopped reading for a while.
    pub deaf: u64,
    /// Accepts that failed.
    pub accepts_failed: u64,
    /// Gets of one key that found it.
    pub hits: u64,
    /// Answers that were errors, for which a disk had given reason.
    pub failed: u64,
    /// Lives in which a cache had lost its volume, or left it alone for a while, and said so.
    pub degraded: u64,
    /// Hits in such lives, from then on.
    pub degraded_hits: u64,
    /// Counts of a key that clients share, answered.
    pub tallied: u64,
    /// Steps of the wall clock.
    pub clock_steps: u64,
    /// Most bytes of blocks that a store held.
    pub block_bytes_max: u64,
    /// Most bytes that a server had lent to socket requests.
    pub lent_bytes_max: u64,
}

impl Served {
    fn add(&mut self, other: &Served) {
        let sums = [
            (&mut self.connections, other.connections),
            (&mut self.adversary, other.adversary),
            (&mut self.adversary_bytes, other.adversary_bytes),
            (&mut self.left_inside, other.left_inside),
            (&mut self.deaf, other.deaf),
            (&mut self.accepts_failed, other.accepts_failed),
            (&mut self.hits, other.hits),
            (&mut self.failed, other.failed),
            (&mut self.degraded, other.degraded),
            (&mut self.degraded_hits, other.degraded_hits),
            (&mut self.clock_steps, other.clock_steps),
            (&mut self.tallied, other.tallied),
        ];
        sums.into_iter().for_each(|(mine, theirs)| *mine += theirs);
        self.left.iter_mut().zip(other.left).for_each(|(mine, theirs)| *mine += theirs);
        self.block_bytes_max = self.block_bytes_max.max(other.block_bytes_max);
        self.lent_bytes_max = self.lent_bytes_max.max(other.lent_bytes_max);
    }
}

impl Statistics {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Statistics) {
        self.runs += other.runs;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.closes += other.closes;
        self.cut_recoveries += other.cut_recoveries;
        self.broken += other.broken;
        self.asked += other.asked;
        self.answered += other.answered;
        self.undecided += other.undecided;
        self.backups += other.backups;
        self.failed_openings += other.failed_openings;
        self.coverage.add(&other.coverage);
        self.served.add(&other.served);
        // In whatever order runs are added.
        self.digest = self.digest.wrapping_add(other.digest.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }

    fn note(&mut self, bytes: &[u8]) {
        let mut hash = self.digest ^ 0xCBF2_9CE4_8422_2325;
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
        self.digest = hash;
    }
}

/// What drives the disks of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// Requests go to them as they are.
    #[default]
    Kernel,
    /// The NVMe driver of this process does, through a controller that is a program.
    Nvme,
}

/// Runs the world of a seed; the error says what went wrong.
pub type RunSeed = fn(seed: u64) -> Result<Statistics, String>;

/// The world of that name: `library` (calls of the library, one after the other), `pipelined`
/// (hundreds of operations at once over one session), `store`, `breaking` (a store whose shards
/// break), `server`, `redis` (one with Redis clients too), `breaking_server` (one whose shards
/// break while the clock is stepped), or one shard of engine `tier`, whose judge is none of a
/// durable engine. `on`: the engine under a server; none: each seed has its own. Not every world
/// can have its disks driven by the NVMe driver.
pub fn by_name(name: &str, on: Option<On>, medium: Medium) -> Option<RunSeed> {
    if medium == Medium::Nvme {
        return by_name_driven(name, on);
    }
    match (name, on) {
        ("store", None) => Some(store::run),
        ("store", Some(On::Matrix)) => Some(store::run_on_matrix),
        ("breaking", None) => Some(store::run_breaking),
        ("pipelined", None) => Some(pipelined::run),
        ("library", None) => Some(library::run),
        ("breaking_server", None) => Some(server::run_breaking),
        ("server", None) => Some(server::run),
        ("redis", None) => Some(server::run_redis),
        ("server", Some(On::InPlace)) => Some(|seed| server::run_on(On::InPlace, seed)),
        ("server", Some(On::Packed)) => Some(|seed| server::run_on(On::Packed, seed)),
        ("server", Some(On::Matrix)) => Some(|seed| server::run_on(On::Matrix, seed)),
        ("server", Some(On::Tier)) => Some(|seed| server::run_on(On::Tier, seed)),
        ("tier", None | Some(On::Tier)) => Some(crate::sim::tier::run),
        _ => None,
    }
}

fn by_name_driven(name: &str, on: Option<On>) -> Option<RunSeed> {
    match (name, on) {
        ("store", None) => Some(|seed| store::run_over(Medium::Nvme, seed)),
        ("pipelined", None) => Some(|seed| pipelined::run_over(Medium::Nvme, seed)),
        ("library", None) => Some(|seed| library::run_over(Medium::Nvme, seed)),
        ("server", None) => Some(|seed| server::run_over(Medium::Nvme, seed)),
        ("redis", None) => Some(|seed| server::run_redis_over(Medium::Nvme, seed)),
        ("breaking_server", None) => Some(|seed| server::run_breaking_over(Medium::Nvme, seed)),
        _ => None,
    }
}

/// The engine under a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// `slab`, in place.
    InPlace,
    /// `slab`, packed.
    Packed,
    /// `matrix`.
    Matrix,
    /// `tier`.
    Tier,
}

/// A store's circumstances.
#[derive(Clone, Copy, Debug)]
struct Setup {
    engine: Engine,
    shards: u32,
    /// Memory of a shard.
    memory_bytes: u64,
    /// Of engine `tier`: length of a segment in memory.
    segment_bytes: u32,
    /// And below which share of live items superseded ones are collected.
    collected_percent: u32,
    capacity_bytes: u64,
    volatile_cache: bool,
    depth: u32,
    placement: Placement,
    reactors: usize,
    chances: Chances,
    medium: Medium,
}

impl Setup {
    fn draw(random: &mut Random) -> Setup {
        Setup {
            engine: Engine::Slab,
            memory_bytes: 4 << 20,
            segment_bytes: 64 << 10,
            collected_percent: 66,
            shards: 1 + random.below(3) as u32,
            capacity_bytes: [64, 96, 160][random.below(3) as usize] * 4096,
            volatile_cache: random.below(6) > 0,
            depth: [1, 2, 8, 32][random.below(4) as usize],
            reactors: 1 + random.below(2) as usize,
            placement: if random.below(3) == 0 { Placement::Packed } else { Placement::InPlace },
            chances: Chances { delay: [0, 0, 800, 6000][random.below(4) as usize], ..Chances::default() },
            medium: Medium::Kernel,
        }
    }
}
