//! Hit ratios of engine `tier` beside FIFO, LRU and S3-FIFO with the same bytes, on traces from
//! seeds: `cargo run --release -p stratakv-tier --example hit_ratio`.
//!
//! The engine runs as it is, over a disk in memory. The others are ideal: they know sizes, and pay
//! neither for an index nor for segments that are not full; so "all" is what a policy with DRAM and
//! volume as one memory would have, "dram" what it would have in DRAM alone.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Level};
use stratakv_conformance::{Ending, Opening, ShardSubject, Subject};
use stratakv_engine::{Change, ChangeKind, Expect, Operation, RecordPart, Reply, Shard};
use stratakv_tier::{Tier, TierConfig, TierOpener};

const DRAM_BYTES: u64 = 16 << 20;
const VOLUME_BYTES: u64 = 64 << 20;
const KEYS: usize = 150_000;
const REQUESTS: usize = 600_000;
/// What an item takes besides key and value.
const ITEM_BYTES: u64 = 32;

/// One request: a key, the length of its value, and the second at which it expires if it has to be
/// fetched now.
#[derive(Clone, Copy)]
struct Request {
    key: u64,
    bytes: u64,
    now: u32,
    ttl: u32,
}

fn size_of(key: u64) -> u64 {
    200 + key.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 1800
}

/// Draws keys with the frequencies of Zipf's law, exponent 0.99.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += 1.0 / (rank as f64).powf(0.99);
            sum
        });
        Zipf(sums.collect())
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let all = self.0.last().copied().unwrap_or(1.0);
        let at = random.unit() * all;
        self.0.partition_point(|sum| *sum < at) as u64
    }
}

/// `scans`: of a hundred requests so many are for keys that nobody asks for again. `ttl`: half of
/// the keys live so long.
fn trace(scans: u64, ttl: u32) -> Vec<Request> {
    let (zipf, mut random, mut scanned) = (Zipf::new(KEYS), Random::new(7), 1 << 32);
    let request = |number: usize| {
        let key = if random.below(100) < scans {
            scanned += 1;
            scanned
        } else {
            zipf.draw(&mut random)
        };
        let ttl = if key % 2 == 0 { ttl } else { 0 };
        Request { key, bytes: size_of(key), now: (number / 500) as u32, ttl }
    };
    (0..REQUESTS).map(request).collect()
}

/// A cache of so many bytes.
trait Policy {
    fn get(&mut self, key: u64) -> bool;
    fn put(&mut self, key: u64, bytes: u64);
    fn remove(&mut self, key: u64);
}

/// Oldest first; `is_lru`: the oldest use.
struct Queue {
    is_lru: bool,
    room: u64,
    used: u64,
    clock: u64,
    items: HashMap<u64, (u64, u64)>,
    order: BTreeMap<u64, u64>,
}

impl Queue {
    fn new(room: u64, is_lru: bool) -> Queue {
        Queue { is_lru, room, used: 0, clock: 0, items: HashMap::new(), order: BTreeMap::new() }
    }
}

impl Policy for Queue {
    fn get(&mut self, key: u64) -> bool {
        let Some((at, _)) = self.items.get_mut(&key) else { return false };
        if self.is_lru {
            self.clock += 1;
            self.order.remove(at);
            self.order.insert(self.clock, key);
            *at = self.clock;
        }
        true
    }

    fn put(&mut self, key: u64, bytes: u64) {
        self.clock += 1;
        self.used += bytes;
        self.items.insert(key, (self.clock, bytes));
        self.order.insert(self.clock, key);
        while self.used > self.room {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.used -= self.items.remove(&oldest).map_or(0, |(_, bytes)| bytes);
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some((at, bytes)) = self.items.remove(&key) {
            self.order.remove(&at);
            self.used -= bytes;
        }
    }
}

/// S3-FIFO (Yang et al., SOSP 2023): a tenth for the small queue, ghost queue of as many items as
/// the main one has.
struct S3Fifo {
    room: u64,
    used: [u64; 2],
    queues: [VecDeque<u64>; 2],
    items: HashMap<u64, (u64, u8, usize)>,
    ghost_queue: (VecDeque<u64>, HashSet<u64>),
}

impl S3Fifo {
    fn new(room: u64) -> S3Fifo {
        S3Fifo {
            room,
            used: [0; 2],
            queues: Default::default(),
            items: HashMap::new(),
            ghost_queue: Default::default(),
        }
    }

    fn insert(&mut self, key: u64, bytes: u64, queue: usize) {
        self.items.insert(key, (bytes, 0, queue));
        self.used[queue] += bytes;
        self.queues[queue].push_back(key);
    }

    fn evict(&mut self) {
        let from = usize::from(self.used[0] <= self.room / 10 && !self.queues[1].is_empty());
        let Some(key) = self.queues[from].pop_front() else { return };
        let Some((bytes, uses, _)) = self.items.get(&key).copied().filter(|(_, _, queue)| *queue == from) else {
            return;
        };
        self.used[from] -= bytes;
        match (from, uses) {
            (0, 2..) => self.insert(key, bytes, 1),
            (1, 1..) => {
                self.insert(key, bytes, 1);
                self.items.insert(key, (bytes, uses - 1, 1));
            }
            (0, _) => {
                self.items.remove(&key);
                self.ghost_queue.0.push_back(key);
                self.ghost_queue.1.insert(key);
                while self.ghost_queue.0.len() > self.queues[1].len().max(100) {
                    self.ghost_queue.0.pop_front().map(|old| self.ghost_queue.1.remove(&old));
                }
            }
            _ => drop(self.items.remove(&key)),
        }
    }
}

impl Policy for S3Fifo {
    fn get(&mut self, key: u64) -> bool {
        self.items.get_mut(&key).map(|(_, uses, _)| *uses = (*uses + 1).min(3)).is_some()
    }

    fn put(&mut self, key: u64, bytes: u64) {
        let queue = usize::from(self.ghost_queue.1.remove(&key));
        self.insert(key, bytes, queue);
        while self.used[0] + self.used[1] > self.room {
            self.evict();
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some((bytes, _, queue)) = self.items.remove(&key) {
            self.used[queue] -= bytes;
            self.queues[queue].retain(|other| *other != key);
        }
    }
}

/// Hits of a hundred requests, once everything has been seen once.
fn play(trace: &[Request], policy: &mut dyn Policy) -> f64 {
    let (mut hits, mut expires) = (0, HashMap::new());
    for (number, request) in trace.iter().enumerate() {
        if expires.get(&request.key).is_some_and(|at| *at <= request.now) {
            policy.remove(request.key);
            expires.remove(&request.key);
        }
        if policy.get(request.key) {
            hits += u64::from(number >= REQUESTS / 3);
            continue;
        }
        policy.put(request.key, request.bytes + ITEM_BYTES);
        if request.ttl > 0 {
            expires.insert(request.key, request.now + request.ttl);
        }
    }
    hits as f64 * 100.0 / (REQUESTS - REQUESTS / 3) as f64
}

fn statistic(tier: &Tier, name: &str) -> u64 {
    let mut found = Vec::new();
    tier.statistics(&mut found);
    found.iter().find(|statistic| statistic.name == name).map_or(0, |statistic| statistic.value)
}

/// The engine: hits in all and in DRAM, of a hundred; bytes written to the volume for each request;
/// items that were not admitted.
fn play_tier(trace: &[Request]) -> (f64, f64, f64, u64) {
    let make = |opening: Opening| {
        TierOpener::create(TierConfig {
            uuid: [1; 16],
            shard: 0,
            shards: 1,
            memory_bytes: DRAM_BYTES,
            depth: 32,
            capacity_bytes: Some(opening.capacity_bytes),
            segment_bytes: 1 << 20,
            collected_percent: 66,
            saves_at_shutdown: false,
            boot: None,
            begins_empty: false,
            read_only: false,
        })
    };
    let mut subject = ShardSubject::new(VOLUME_BYTES, DRAM_BYTES as usize, Ending::Kill, 1, make);
    let start = subject.wall().0;
    let (mut counted, mut before) = ((0, 0), (0, 0));
    for (number, request) in trace.iter().enumerate() {
        if number == REQUESTS / 3 {
            before = (statistic(subject.shard(), "hits_dram"), statistic(subject.shard(), "hits_ssd"));
        }
        let passed = start + u64::from(request.now) * 1000 - subject.wall().0;
        subject.advance_wall(passed);
        let key = Key::bound(CollectionId(0), format!("{:08x}", request.key).as_bytes());
        let get = Operation::Get { key: key.clone(), part: RecordPart::Whole };
        if matches!(subject.execute(get), Reply::Record(Some(_))) {
            continue;
        }
        let expiry =
            if request.ttl > 0 { Expiry(start + u64::from(request.now + request.ttl) * 1000) } else { Expiry::NEVER };
        let value = vec![0; (request.bytes - 9) as usize].into();
        let kind = ChangeKind::Put { value, flags: 0, expiry };
        let changes = vec![Change { key, expect: Expect::Any, kind }];
        subject.execute(Operation::Write { changes, level: Level::Memory });
    }
    counted.0 = statistic(subject.shard(), "hits_dram") - before.0;
    counted.1 = statistic(subject.shard(), "hits_ssd") - before.1;
    let share = |hits: u64| hits as f64 * 100.0 / (REQUESTS - REQUESTS / 3) as f64;
    let written = statistic(subject.shard(), "spilled_bytes") as f64 / REQUESTS as f64;
    (share(counted.0 + counted.1), share(counted.0), written, statistic(subject.shard(), "not_admitted"))
}

fn main() {
    let traces = [("zipfian", trace(0, 0)), ("30 % scanned", trace(30, 0)), ("half expiring", trace(0, 300))];
    println!("{:<14} {:>8} {:>10} {:>10}", "trace", "policy", "all %", "dram %");
    for (name, trace) in &traces {
        let all = DRAM_BYTES + VOLUME_BYTES;
        let pair =
            |make: &dyn Fn(u64) -> Box<dyn Policy>| (play(trace, &mut *make(all)), play(trace, &mut *make(DRAM_BYTES)));
        let rows = [
            ("FIFO", pair(&|room| Box::new(Queue::new(room, false)))),
            ("LRU", pair(&|room| Box::new(Queue::new(room, true)))),
            ("S3-FIFO", pair(&|room| Box::new(S3Fifo::new(room)))),
        ];
        for (policy, (all, dram)) in rows {
            println!("{name:<14} {policy:>8} {all:>10.1} {dram:>10.1}");
        }
        let (all, dram, written, refused) = play_tier(trace);
        println!(
            "{name:<14} {:>8} {all:>10.1} {dram:>10.1}   {written:.0} bytes written a request, {refused} items not admitted",
            "tier"
        );
    }
}
