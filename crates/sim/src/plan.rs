//! Scenarios as data: what is asked of a store, when its requests complete, when and how it dies.
//! Drawn from a seed, and small enough to be cut down when they fail: every step carries its own
//! randomness, so that leaving one out does not change the others.

mod snapshots;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;

use crate::disk::Chances;

/// What may go wrong in a scenario, and so what a store owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// Power cuts, kills, full disks, slow requests: nothing acknowledged is lost, nothing is
    /// damaged.
    Crashes,
    /// And the disk reports errors: what is affected says so, what was acknowledged comes back
    /// after a repair.
    Errors,
    /// And the disk lies (flips, stale, misdirected, lost): never data that was not written to the
    /// key.
    Lies,
}

/// A scenario's circumstances.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What may go wrong.
    pub regime: Regime,
    /// The engine's own cap; `None` to grow up to the disk's end.
    pub capacity_bytes: Option<u64>,
    /// The disk's end.
    pub disk_bytes: u64,
    /// Whether the disk has a volatile cache.
    pub volatile_cache: bool,
    /// The shard's memory.
    pub memory_bytes: u64,
    /// The shard's I/O depth.
    pub depth: u32,
    /// The log grows by so many bytes from one checkpoint of the index to the next; `None` for what
    /// suits the capacity.
    pub checkpoint_bytes: Option<u32>,
    /// Records are kept in memory; else every read reaches the disk, and scans have neighbours
    /// brought together.
    pub record_cache: bool,
    /// Number of keys.
    pub keys: u16,
    /// How often requests fail.
    pub chances: Chances,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its circumstances.
    pub setup: Setup,
    /// What happens, in order. A crash is added at the end.
    pub steps: Vec<PlanStep>,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStep {
    /// An operation is handed over.
    Submit(Request),
    /// Up to `completions` requests complete, then the shard's tick ends.
    Tick {
        /// At most so many.
        completions: u8,
        /// Decides which, and what befalls them.
        seed: u32,
    },
    /// Runs ticks until everything is answered.
    Drain {
        /// As for a tick.
        seed: u32,
    },
    /// Runs ticks until nothing is in flight; then the space accounting is checked.
    Settle {
        /// As for a tick.
        seed: u32,
    },
    /// Everything is answered, then the wall clock moves on.
    Pass {
        /// By so many seconds.
        seconds: u32,
    },
    /// An orderly close, at the next crash.
    Close {
        /// As for a tick.
        seed: u32,
    },
    /// The end of a life; then the store is recovered and compared.
    Crash(Crash),
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The power fails; else the process is killed.
    pub power: bool,
    /// Recovery itself is cut after so many completions, and again; `None` lets it finish.
    pub inside: [Option<u8>; 3],
    /// What survives.
    pub seed: u32,
    /// After an orderly close: one bit of the medium flips. The scenario ends with what is found
    /// then.
    pub rot: bool,
}

/// An operation on the numbered keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key's number.
    pub key: u16,
    /// What.
    pub what: What,
    /// Acknowledge at `power_loss`; else at `process_crash`.
    pub power_loss: bool,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A value of `len` bytes that no other write has.
    Put {
        /// Its length.
        len: u32,
        /// Under which condition.
        expect: Condition,
        /// Seconds from now, 0 for never.
        ttl: u32,
    },
    /// A decimal number.
    PutNumber(u32),
    /// Removes it.
    Delete(Condition),
    /// Adds `len` bytes behind, or in front.
    Join {
        /// How many.
        len: u16,
        /// In front.
        front: bool,
    },
    /// Adds to a number, or subtracts.
    Count {
        /// How much.
        by: u16,
        /// Subtract.
        down: bool,
    },
    /// Sets the expiry: seconds from now, 0 for never.
    Touch(u32),
    /// Reads it.
    Get,
    /// Reads flags, version and length.
    GetMeta,
    /// Reads a part.
    GetRange {
        /// From here.
        start: u32,
        /// So many bytes.
        len: u32,
    },
    /// One page of a scan, from or (reversed) up to the key.
    Scan {
        /// Downwards.
        reverse: bool,
        /// Without values.
        keys_only: bool,
        /// Items of the page.
        items: u8,
    },
    /// Deletes this key and the next ones.
    DeleteRange {
        /// How many.
        count: u8,
    },
    /// Loads this key and the next ones, each with `len` bytes; by engines that have loads.
    Load {
        /// How many.
        count: u8,
        /// The length of their values.
        len: u32,
    },
    /// Makes everything durable.
    Sync,
    /// Opens a snapshot; by engines that have them.
    OpenSnapshot,
    /// The next page of a snapshot in this direction. The first one begins at the key, and so does
    /// the one after the last.
    PageSnapshot {
        /// Of those that are known.
        which: u8,
        /// Downwards.
        reverse: bool,
        /// Without values.
        keys_only: bool,
        /// Items of the page.
        items: u8,
    },
    /// Closes a snapshot.
    CloseSnapshot {
        /// Of those that are known.
        which: u8,
    },
}

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// None.
    Any,
    /// It must not exist.
    Absent,
    /// It must exist.
    Present,
    /// It must have the version last heard of.
    SameVersion,
    /// It must have another version than it has.
    OtherVersion,
}

/// Draws scenarios. Swarm testing (Groce et al., ISSTA 2012): each seed draws which operations and
/// faults it uses and how strong they are.
pub struct Generator {
    random: Random,
    /// Weights of the kinds of operations.
    weights: [u16; 12],
    value_bytes_max: u32,
    /// Most values have one of these lengths: places are used again and again.
    usual_bytes: Option<[u32; 2]>,
    /// Percentage of writes at `process_crash` only.
    casual: u64,
    keys: u16,
    /// Lives to come that follow soon upon a turned bit.
    rotted: u32,
}

impl Generator {
    /// The scenario of a seed.
    pub fn plan(seed: u64) -> Plan {
        if seed % 16 == 7 {
            return Generator::gathering(seed);
        }
        let plan = Generator::story(seed);
        Plan { setup: paced(seed, plan.setup), ..plan }
    }

    /// The scenario of a seed as it was before the pace of checkpoints and the cache were drawn
    /// too: for seeds that were kept.
    pub fn story(seed: u64) -> Plan {
        if seed % 256 == 255 {
            return Generator::crowded(seed);
        }
        let mut random = Random::new(seed ^ 0x5151_0CEA_0000_0001);
        let setup = setup(&mut random);
        // Mostly small values: a crash costs what it reads.
        let value_bytes_max = match random.below(16) {
            0 if setup.disk_bytes > 1 << 20 => 150_000,
            // Over one slice, so that a value is written in several steps.
            0 => 80_000,
            1 => 30_000,
            2..=6 => 9_000,
            7..=10 => 1_500,
            _ => 250,
        };
        let mut weights = [30, 3, 8, 3, 3, 2, 16, 1, 1, 3, 1, 2];
        for weight in &mut weights[1..] {
            match random.below(4) {
                0 => *weight = 0,
                1 => *weight *= 4,
                _ => {}
            }
        }
        let casual = [0, 0, 20, 50, 95, 100][random.below(6) as usize];
        // Short lives, one upon the other: what one crash left meets the next.
        let restless = random.below(2) == 0;
        let keys = if restless { 2 + random.below(4) as u16 } else { setup.keys };
        let setup = Setup { keys, ..setup };
        let setup = if keys <= 8 && random.below(2) == 0 { small(setup) } else { setup };
        let lengths = [30, 700, 1900, 3500, 4500, 6000, 9000, 20_000];
        let usual_bytes = match random.below(4) {
            0..=2 if restless => Some([(); 2].map(|()| lengths[random.below(8) as usize])),
            0 => Some([(); 2].map(|()| lengths[random.below(6) as usize])),
            _ => None,
        };
        let mut generator = Generator { random, weights, value_bytes_max, usual_bytes, casual, keys, rotted: 0 };
        let mut steps = Vec::new();
        let lives = if restless { 6 + generator.random.below(24) } else { 3 + generator.random.below(8) };
        for _ in 0..lives {
            generator.life(restless, &mut steps);
        }
        Plan { setup, steps }
    }

    /// A few records of one length on a small volume, scanned while they are written over, and read
    /// from the disk each time: what a scan would bring together has been replaced by then, perhaps
    /// at the very same place.
    fn gathering(seed: u64) -> Plan {
        let mut random = Random::new(seed ^ 0x6A7E_4E50);
        let bytes = 64 * PAGE_BYTES as u64;
        let chances = Chances { delay: 1000 + random.below(8000) as u16, ..Chances::default() };
        let setup = Setup {
            regime: Regime::Crashes,
            capacity_bytes: Some(bytes),
            disk_bytes: bytes + 8 * PAGE_BYTES as u64,
            volatile_cache: random.below(6) > 0,
            memory_bytes: 4 << 20,
            depth: [8, 32][random.below(2) as usize],
            checkpoint_bytes: [None, Some(300 << 10)][random.below(2) as usize],
            record_cache: false,
            keys: 4 + random.below(4) as u16,
            chances,
        };
        let len = [1900, 3600, 3600][random.below(3) as usize];
        let durable = random.below(4) > 0;
        let put = |key| {
            let what = What::Put { len, expect: Condition::Any, ttl: 0 };
            PlanStep::Submit(Request { key, what, power_loss: durable })
        };
        let mut steps = Vec::new();
        for _ in 0..3 {
            steps.extend((0..setup.keys).map(put));
            for _ in 0..300 {
                for _ in 0..1 + random.below(3) {
                    let key = random.below(setup.keys.into()) as u16;
                    let scan = What::Scan { reverse: key % 2 == 1, keys_only: false, items: 39 };
                    let scan =
                        Request { key: if key % 2 == 1 { setup.keys - 1 } else { 0 }, what: scan, power_loss: false };
                    steps.push(if random.below(5) == 0 { PlanStep::Submit(scan) } else { put(key) });
                }
                steps.push(PlanStep::Tick { completions: random.below(8) as u8, seed: random.next_u64() as u32 });
            }
            let crash =
                Crash { power: random.below(2) == 0, inside: [None; 3], seed: random.next_u64() as u32, rot: false };
            steps.push(PlanStep::Crash(crash));
        }
        Plan { setup, steps }
    }

    /// More records than the cache holds: pages are evicted and read again while they change.
    fn crowded(seed: u64) -> Plan {
        let mut random = Random::new(seed ^ 0xC0_DED0);
        let (keys, disk_bytes) = (1200, 48 << 20);
        let chances = Chances { delay: random.below(3000) as u16, ..Chances::default() };
        let setup = Setup {
            regime: Regime::Crashes,
            capacity_bytes: None,
            disk_bytes,
            volatile_cache: random.below(6) > 0,
            memory_bytes: 2 << 20,
            depth: [4, 32][random.below(2) as usize],
            checkpoint_bytes: None,
            record_cache: true,
            keys,
            chances,
        };
        let weights = [30, 3, 4, 2, 1, 2, 16, 1, 1, 1, 0, 1];
        let value_bytes_max = [4_000, 4_000, 150_000][random.below(3) as usize];
        let mut generator =
            Generator { random, weights, value_bytes_max, usual_bytes: Some([2_000; 2]), casual: 20, keys, rotted: 0 };
        let mut steps = Vec::new();
        for _ in 0..2 {
            for _ in 0..300 + generator.random.below(300) {
                for _ in 0..generator.random.below(12) {
                    steps.push(PlanStep::Submit(generator.request()));
                }
                steps.push(PlanStep::Tick { completions: generator.random.below(12) as u8, seed: generator.seed() });
            }
            steps.push(PlanStep::Crash(generator.crash()));
        }
        Plan { setup, steps }
    }

    fn life(&mut self, restless: bool, steps: &mut Vec<PlanStep>) {
        let rotted = self.rotted > 0;
        self.rotted = self.rotted.saturating_sub(1);
        let ticks = match self.random.below(12) {
            _ if restless || rotted => 1 + self.random.below(4),
            0 => 0,
            // Without a flush, freed places come round again only after many writes.
            1 => 20 + self.random.below(120),
            2 | 3 if self.casual == 100 => 20 + self.random.below(120),
            _ => 1 + self.random.below(12),
        };
        let casual = self.casual;
        // Nothing is flushed, and nothing is lost either.
        let lingers = rotted && self.random.below(2) == 0;
        if lingers {
            self.casual = 100;
        }
        let burst = 1 + self.random.below(6);
        let eager = 1 + self.random.below(6);
        for _ in 0..ticks {
            for _ in 0..self.random.below(burst + 1) {
                steps.push(PlanStep::Submit(self.request()));
            }
            let completions = self.random.below(eager + 1) as u8;
            steps.push(PlanStep::Tick { completions, seed: self.seed() });
            match self.random.below(60) {
                0 => steps.push(PlanStep::Pass { seconds: 1 + self.random.below(200) as u32 }),
                1 => steps.push(PlanStep::Drain { seed: self.seed() }),
                _ => {}
            }
        }
        self.casual = casual;
        let end = self.random.below(12);
        match end {
            0 => steps.push(PlanStep::Drain { seed: self.seed() }),
            1 => steps.push(PlanStep::Settle { seed: self.seed() }),
            2 | 3 => steps.push(PlanStep::Close { seed: self.seed() }),
            _ => {}
        }
        let mut crash = self.crash();
        if matches!(end, 2 | 3) && crash.rot {
            // What becomes of damage when it is written over and around, and of the lives that see
            // it.
            self.rotted = 2 + self.random.below(6) as u32;
        } else if lingers {
            crash.power = self.random.below(8) == 0;
        }
        steps.push(PlanStep::Crash(crash));
    }

    fn crash(&mut self) -> Crash {
        let mut inside = [None; 3];
        let depth = [0, 0, 0, 0, 0, 1, 1, 2, 3][self.random.below(9) as usize];
        for stop in inside.iter_mut().take(depth) {
            let stops = if self.random.below(4) == 0 { 80 } else { 16 };
            *stop = Some(self.random.below(stops) as u8);
        }
        Crash { power: self.random.below(8) > 0, inside, seed: self.seed(), rot: self.random.below(2) == 0 }
    }

    fn request(&mut self) -> Request {
        let key = self.random.below(u64::from(self.keys)) as u16;
        let power_loss = self.random.below(100) >= self.casual;
        Request { key, what: self.what(), power_loss }
    }

    fn what(&mut self) -> What {
        let total: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut drawn = self.random.below(total);
        let kind = self.weights.iter().position(|weight| {
            let here = drawn < u64::from(*weight);
            drawn = drawn.wrapping_sub(u64::from(*weight));
            here
        });
        match kind.unwrap_or(0) {
            0 => What::Put { len: self.len(), expect: Condition::Any, ttl: 0 },
            1 => What::Put { len: self.len(), expect: self.condition(), ttl: self.ttl() },
            2 => What::Delete(Condition::Any),
            3 => What::Delete(self.condition()),
            4 => match self.random.below(2) {
                0 => What::PutNumber(self.random.below(2000) as u32),
                _ => What::Count { by: self.random.below(300) as u16, down: self.random.below(3) == 0 },
            },
            5 => What::Join { len: self.random.below(300) as u16, front: self.random.below(2) == 0 },
            6 => What::Get,
            7 => What::GetMeta,
            8 => What::GetRange { start: self.random.below(3000) as u32, len: self.random.below(3000) as u32 },
            9 => What::Scan {
                reverse: self.random.below(2) == 0,
                keys_only: self.random.below(3) == 0,
                items: 1 + self.random.below(40) as u8,
            },
            10 => match self.random.below(2) {
                0 => What::DeleteRange { count: 1 + self.random.below(6) as u8 },
                _ => What::Touch(self.ttl()),
            },
            _ => What::Sync,
        }
    }

    fn len(&mut self) -> u32 {
        if let Some(usual) = self.usual_bytes.filter(|_| self.random.below(4) > 0) {
            return usual[self.random.below(2) as usize] + self.random.below(16) as u32;
        }
        let max = [16, 200, self.value_bytes_max][self.random.below(3) as usize];
        self.random.below(u64::from(max) + 1) as u32
    }

    fn ttl(&mut self) -> u32 {
        [0, 1, 60, 1000][self.random.below(4) as usize]
    }

    fn condition(&mut self) -> Condition {
        use Condition::*;
        [Any, Absent, Present, SameVersion, OtherVersion][self.random.below(5) as usize]
    }

    fn seed(&mut self) -> u32 {
        self.random.next_u64() as u32
    }
}

fn setup(random: &mut Random) -> Setup {
    let regime = match random.below(12) {
        0 | 1 => Regime::Errors,
        2 | 3 => Regime::Lies,
        _ => Regime::Crashes,
    };
    // Large ones cost what recovery reads.
    let pages = match random.below(64) {
        0 => None,
        1..=3 => Some(300),
        4..=11 => Some(128),
        _ => Some(64),
    };
    let capacity_bytes = pages.map(|pages| pages * PAGE_BYTES as u64);
    // Sometimes the disk ends before the capacity does.
    let disk_bytes = match capacity_bytes {
        None => 24 << 20,
        Some(bytes) => bytes + 8 * PAGE_BYTES as u64,
    };
    let chance = |random: &mut Random, strong: u64| [0, 0, strong / 8, strong][random.below(4) as usize] as u16;
    let mut chances = Chances { delay: chance(random, 6000), ..Chances::default() };
    if random.below(8) == 0 {
        chances.full = chance(random, 2000);
    }
    if regime == Regime::Errors {
        chances.read_error = chance(random, 1500);
        chances.write_error = chance(random, 1500);
        chances.flush_error = chance(random, 2500);
        chances.error_forever = chance(random, 800);
    }
    if regime == Regime::Lies {
        chances.flip = chance(random, 1500);
        chances.stale = chance(random, 6000);
        chances.misdirected = chance(random, 1000);
        chances.lost = chance(random, 1500);
    }
    Setup {
        regime,
        capacity_bytes,
        disk_bytes,
        volatile_cache: random.below(6) > 0,
        memory_bytes: 4 << 20,
        depth: [1, 2, 8, 32][random.below(4) as usize],
        checkpoint_bytes: None,
        record_cache: true,
        keys: [2, 4, 8, 16, 40][random.below(5) as usize],
        chances,
    }
}

/// How often there are checkpoints, and whether records are cached: drawn apart, so that a seed's
/// other circumstances stay what they were. Without a capacity a segment is a megabyte, and few
/// scenarios write as much as would suit it; there are a few more of them here.
fn paced(seed: u64, setup: Setup) -> Setup {
    let mut random = Random::new(seed ^ 0xC4EC_4901);
    let setup = match random.below(32) {
        0 => Setup { capacity_bytes: None, disk_bytes: setup.disk_bytes.max(24 << 20), ..setup },
        _ => setup,
    };
    let checkpoint_bytes = match setup.capacity_bytes {
        None => [Some(4 << 10), Some(4 << 10), Some(24 << 10), Some(300 << 10)][random.below(4) as usize],
        Some(_) => [None, None, None, Some(4 << 10)][random.below(4) as usize],
    };
    // A lie that opening believed and a second one about the same place are two faults on one
    // record: the cache keeps the second away.
    let record_cache = random.below(3) > 0 || setup.regime == Regime::Lies;
    Setup { checkpoint_bytes, record_cache, ..setup }
}

impl Plan {
    /// The same with loads among the steps of some seeds, drawn apart: at the beginning, when
    /// nothing lies there yet, and wherever something may. For engines that have loads.
    pub fn with_loads(mut self, seed: u64) -> Plan {
        let mut random = Random::new(seed ^ 0x10AD_50F7);
        if random.below(3) > 0 {
            return self;
        }
        let len = [20, 300, 900, 5000][random.below(4) as usize];
        for number in 0..1 + random.below(6) {
            let at = if number == 0 { 0 } else { random.below(self.steps.len() as u64 + 1) as usize };
            let (key, count) = (random.below(self.setup.keys.into()) as u16, 1 + random.below(12) as u8);
            // Turns that carry it out, or a part of it, before the next crash.
            for _ in 0..random.below(8) {
                let tick = PlanStep::Tick { completions: random.below(6) as u8, seed: random.next_u64() as u32 };
                self.steps.insert(at, tick);
            }
            let request = Request { key, what: What::Load { count, len }, power_loss: random.below(4) > 0 };
            self.steps.insert(at, PlanStep::Submit(request));
        }
        self
    }
}

/// On a volume so small that places are soon used again.
fn small(setup: Setup) -> Setup {
    let bytes = 24 * PAGE_BYTES as u64;
    Setup { capacity_bytes: Some(bytes), disk_bytes: bytes + 8 * PAGE_BYTES as u64, ..setup }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_plan_and_seeds_differ() {
        let text = |seed| format!("{:?}", Generator::plan(seed));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
        let crashes =
            |seed| Generator::plan(seed).steps.iter().filter(|step| matches!(step, PlanStep::Crash(_))).count();
        assert!((0..50).all(|seed| crashes(seed) >= 3));
    }
}
