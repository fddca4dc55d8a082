//! Random operations, random completion order, crashes at random points, against a model.
//!
//! The model keeps, per key, the states after each write in the order they were submitted. After a crash the key must be in the
//! state of its last durable write or of a later one; while running, a read must return a state between the last
//! write acknowledged before it and the last one submitted.

#![expect(clippy::print_stderr, reason = "a failing seed is named, TRACE=1 tells what happened")]

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use bytes::Bytes;
use harness::*;
use stratakv_base::random::Random;
use stratakv_base::{Expiry, Level};
use stratakv_device::Pool;
use stratakv_engine::{
    ChangeKind, Effects, Error, Expect, Operation, PageRequest, RecordPart, Reply, Shard, Unmet, Update,
};
use stratakv_slab::SlabOpener;

const MEMORY: u64 = 4 << 20;

/// What a key holds: nothing, or a value.
type State = Option<Bytes>;

/// A write as the model sees it.
struct Write {
    after: State,
    /// Refused for lack of space or failed: changed nothing.
    void: bool,
    acked: bool,
}

#[derive(Default)]
struct History {
    base: State,
    writes: Vec<Write>,
    /// Writes up to here are acknowledged, or durable at power loss.
    acked: usize,
    durable: usize,
}

impl History {
    fn newest(&self) -> State {
        self.writes.iter().rev().find(|write| !write.void).map_or(&self.base, |write| &write.after).clone()
    }
    /// Whether the state may be seen if writes up to `from` must be visible.
    fn allows(&self, from: usize, state: &State) -> bool {
        let at = |number: usize| if number == 0 { &self.base } else { &self.writes[number - 1].after };
        let mut first = from;
        while first > 0 && self.writes[first - 1].void {
            first -= 1;
        }
        (first..=self.writes.len()).any(|number| (number == 0 || !self.writes[number - 1].void) && at(number) == state)
    }
    fn settle(&mut self, state: State) {
        *self = History { base: state, ..History::default() };
    }
}

enum Asked {
    Write { key: u64, number: usize, level: Level, expected: Expected },
    Get { key: u64, from: usize },
    Scan { reverse: bool, keys_only: bool, from: HashMap<u64, usize> },
    Sync { durable: Vec<(u64, usize)> },
}

enum Expected {
    Done { existed: bool },
    Unmet,
    Number(u64),
}

struct World {
    machine: Machine,
    histories: BTreeMap<u64, History>,
    asked: HashMap<u32, Asked>,
    keys: u64,
    capacity: Option<u64>,
    counter: u64,
    largest: u64,
    /// Percentage of writes that ask for `process_crash` only.
    casual: u64,
    trace: bool,
}

fn name(key: u64) -> Vec<u8> {
    // Keys of different lengths, some long.
    let mut name = format!("key{key:04}").into_bytes();
    if key % 7 == 3 {
        name.extend(std::iter::repeat_n(b'x', 300));
    }
    name
}

fn key_of(name: &[u8]) -> u64 {
    std::str::from_utf8(&name[3..7]).unwrap().parse().unwrap()
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed ^ 0xC0FF_EE00);
        let capacity = [Some(256 << 10), Some(512 << 10), Some(1 << 20), None][random.below(4) as usize];
        let keys = [3, 8, 30, 100][random.below(4) as usize];
        let largest = [200, 1500, 6000, 30_000, 150_000][random.below(5) as usize];
        let casual = [0, 20, 50, 95][random.below(4) as usize];
        let mut machine = Machine::create(seed, 64 << 20, MEMORY, capacity);
        // Takes effect when the volume is opened again.
        machine.disk.writes_through = random.below(5) == 0;
        let histories = (0..keys).map(|key| (key, History::default())).collect();
        let trace = std::env::var("TRACE").is_ok();
        World { machine, histories, asked: HashMap::new(), keys, capacity, counter: 0, largest, casual, trace }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.machine.random.below(bound)
    }

    fn value(&mut self) -> Bytes {
        self.counter += 1;
        let largest = [16, 200, self.largest][self.below(3) as usize];
        let len = self.below(largest) as usize;
        let mut value = format!("{:08}", self.counter).into_bytes();
        value.resize(len.max(8), self.counter as u8);
        value.into()
    }

    fn submit(&mut self) {
        let key = self.below(self.keys);
        let level = if self.below(100) < self.casual { Level::ProcessCrash } else { Level::PowerLoss };
        match self.below(20) {
            0..=8 => {
                let value = self.value();
                let kind = ChangeKind::Put { value: value.clone(), flags: 0, expiry: Expiry::NEVER };
                self.write(key, Expect::Any, kind, Some(value), level);
            }
            9 => {
                let value = self.value();
                let kind = ChangeKind::Put { value: value.clone(), flags: 7, expiry: Expiry(2_000_000_000) };
                let expect = if self.below(2) == 0 { Expect::Absent } else { Expect::Present };
                self.write(key, expect, kind, Some(value), level);
            }
            10..=12 => self.write(key, Expect::Any, ChangeKind::Delete, None, level),
            13 => self.update(key, level),
            14..=17 => {
                let from = self.histories[&key].acked;
                let part = RecordPart::Whole;
                let number = self.machine.submit(Operation::Get { key: harness::key(&name(key)), part });
                self.asked.insert(number, Asked::Get { key, from });
            }
            18 => {
                let (reverse, keys_only) = (self.below(2) == 0, self.below(3) == 0);
                let from = self.histories.iter().map(|(key, history)| (*key, history.acked)).collect();
                let request = page_request(reverse, keys_only, 1 + self.below(50) as u32);
                let number = self.machine.submit(Operation::Page(request));
                self.asked.insert(number, Asked::Scan { reverse, keys_only, from });
            }
            _ => {
                let durable = self.histories.iter().map(|(key, history)| (*key, history.acked)).collect();
                let number = self.machine.submit(Operation::Sync);
                self.asked.insert(number, Asked::Sync { durable });
            }
        }
    }

    fn write(&mut self, key: u64, expect: Expect, kind: ChangeKind, after: State, level: Level) {
        let before = self.histories[&key].newest();
        let met = match expect {
            Expect::Absent => before.is_none(),
            Expect::Present => before.is_some(),
            _ => true,
        };
        let expected = if met { Expected::Done { existed: before.is_some() } } else { Expected::Unmet };
        let operation = harness::write(&name(key), expect, kind, level);
        self.ask(key, operation, if met { after } else { before }, level, expected);
    }

    fn update(&mut self, key: u64, level: Level) {
        let before = self.histories[&key].newest();
        let (update, after, expected) = match self.below(3) {
            0 => {
                let mut longer = before.clone().unwrap_or_default().to_vec();
                longer.extend_from_slice(b"+more");
                (Update::Append(Bytes::from_static(b"+more")), Bytes::from(longer), Expected::Done { existed: true })
            }
            1 => (Update::Touch(Expiry::NEVER), before.clone().unwrap_or_default(), Expected::Done { existed: true }),
            _ => {
                let digits = before.as_ref().and_then(|value| digits(value));
                match digits {
                    None => (Update::Increment(1), before.clone().unwrap_or_default(), Expected::Unmet),
                    Some(number @ 0u64..) => {
                        let mut text = (number + 1).to_string();
                        while text.len() < before.as_ref().map_or(0, |value| value.len()) {
                            text.push(' ');
                        }
                        (Update::Increment(1), Bytes::from(text), Expected::Number(number + 1))
                    }
                }
            }
        };
        let operation = Operation::Update { key: harness::key(&name(key)), update, level };
        match before {
            None => self.ask(key, operation, None, level, Expected::Unmet),
            Some(_) => self.ask(key, operation, Some(after), level, expected),
        }
    }

    fn ask(&mut self, key: u64, operation: Operation, after: State, level: Level, expected: Expected) {
        let history = self.histories.get_mut(&key).unwrap();
        // A refusal would change what the writes behind it are expected to do: one at a time where space can run out.
        if history.writes.iter().any(|write| !write.acked) && self.capacity.is_some() {
            return;
        }
        history.writes.push(Write { after, void: false, acked: false });
        let number = history.writes.len();
        let token = self.machine.submit(operation);
        if self.trace {
            let after = self.histories[&key].writes[number - 1].after.as_ref().map(|value| value.len());
            eprintln!("ask {token}: key {key} write {number} {level:?} after {after:?}");
        }
        self.asked.insert(token, Asked::Write { key, number, level, expected });
    }

    fn turn(&mut self) {
        let count = self.below(6);
        self.machine.turn(count);
        let replies: Vec<(u32, Reply)> = self.machine.replies.drain().collect();
        // Judge reads by what was acknowledged before the turn.
        for (number, reply) in &replies {
            match &self.asked[number] {
                Asked::Get { key, from } => {
                    let state = match reply {
                        Reply::Record(record) => record.as_ref().map(|record| record.value.to_bytes()),
                        other => panic!("get: {other:?}"),
                    };
                    let history = &self.histories[key];
                    assert!(history.allows(*from, &state), "get of {key}: {:?}", state.map(|value| value.len()));
                }
                Asked::Scan { reverse, keys_only, from } => self.judge_scan(*reverse, *keys_only, from, reply),
                _ => {}
            }
        }
        for (number, reply) in replies {
            if self.trace {
                eprintln!("reply {number}: {}", format!("{reply:?}").chars().take(100).collect::<String>());
            }
            match self.asked.remove(&number).unwrap() {
                Asked::Write { key, number, level, expected } => self.written(key, number, level, &expected, reply),
                Asked::Sync { durable } => {
                    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
                    for (key, number) in durable {
                        let history = self.histories.get_mut(&key).unwrap();
                        history.durable = history.durable.max(number);
                    }
                }
                _ => {}
            }
        }
    }

    fn written(&mut self, key: u64, number: usize, level: Level, expected: &Expected, reply: Reply) {
        let history = self.histories.get_mut(&key).unwrap();
        history.writes[number - 1].acked = true;
        match (&reply, expected) {
            (Reply::Failed(Error::Full(_)), _) => {
                assert!(self.capacity.is_some(), "there is space");
                history.writes[number - 1].void = true;
                return;
            }
            (Reply::Done { existed, .. }, Expected::Done { existed: wanted }) => {
                assert_eq!(existed, wanted, "key {key} write {number}");
            }
            (Reply::Record(Some(_)), Expected::Done { .. }) | (Reply::Unmet(_), Expected::Unmet) => {}
            (Reply::Number { number: found, .. }, Expected::Number(wanted)) => assert_eq!(found, wanted),
            _ => panic!("key {key} write {number}: {reply:?}"),
        }
        if matches!(reply, Reply::Unmet(Unmet::Present { version: 0 })) {
            panic!("no version");
        }
        history.acked = history.acked.max(number);
        // A refusal changes nothing, so it makes nothing durable either.
        if level == Level::PowerLoss && !matches!(reply, Reply::Unmet(_) | Reply::Done { version: 0, .. }) {
            history.durable = history.durable.max(number);
        }
    }

    fn judge_scan(&self, reverse: bool, keys_only: bool, from: &HashMap<u64, usize>, reply: &Reply) {
        let Reply::Page { items, next } = reply else { panic!("scan: {reply:?}") };
        let mut keys: Vec<u64> = items.iter().map(|item| key_of(item.key.user())).collect();
        if reverse {
            keys.reverse();
        }
        assert!(keys.is_sorted(), "{keys:?}");
        let last = match next {
            Some(Bound::Excluded(key)) => key_of(key.user()),
            None if reverse => 0,
            None => u64::MAX,
            other => panic!("{other:?}"),
        };
        for item in items.iter().filter(|_| !keys_only) {
            let key = key_of(item.key.user());
            let state = item.record.as_ref().map(|record| record.value.to_bytes());
            assert!(self.histories[&key].allows(from[&key], &state), "scan of {key}");
        }
        for (key, history) in &self.histories {
            let inside = if reverse { *key >= last } else { *key <= last };
            let may_be_absent = history.allows(from[key], &None);
            assert!(!inside || keys.contains(key) || may_be_absent, "key {key} is missing from a scan up to {last}");
        }
    }

    /// A crash, perhaps others during recovery, then everything is compared.
    fn crash(&mut self) {
        let power = self.below(3) > 0;
        if self.trace {
            eprintln!("crash, power {power}");
        }
        self.asked.clear();
        for _ in 0..=self.below(3) {
            let machine = &mut self.machine;
            if power {
                machine.disk.lose_power(&mut machine.random);
            } else {
                machine.disk.kill(&mut machine.random);
            }
            if machine.random.below(2) == 0 {
                let opener = SlabOpener::recover(config(&machine.disk, MEMORY, self.capacity));
                let mut effects = Effects::new(Pool::new(MEMORY as usize));
                let stop = Some(machine.random.below(24));
                drop(open(opener, &mut machine.disk, &mut effects, &mut machine.random, stop));
            }
        }
        if power {
            self.machine.disk.lose_power(&mut self.machine.random);
        } else {
            self.machine.disk.kill(&mut self.machine.random);
        }
        self.machine.recover(MEMORY, self.capacity).unwrap();
        let report = self.machine.slab.recovery();
        assert!(report.corrupt.is_empty(), "{report:?}");
        let check = self.machine.slab.check();
        assert!(check.is_sound(), "{check:?}");
        for key in 0..self.keys {
            let found = self.machine.get(&name(key)).unwrap().map(Bytes::from);
            let history = self.histories.get_mut(&key).unwrap();
            let from = if power { history.durable } else { history.acked };
            assert!(
                history.allows(from, &found),
                "key {key} after a crash (power {power}): {:?}, durable {} acked {} of {:?}",
                found.map(|value| (value.len(), String::from_utf8_lossy(&value[..8]).into_owned())),
                history.durable,
                history.acked,
                history.writes.iter().map(|write| write.after.as_ref().map(|value| value.len())).collect::<Vec<_>>()
            );
            history.settle(found);
        }
        let scan = self.machine.run(Operation::Page(page_request(false, false, 1000)));
        let from = self.histories.keys().map(|key| (*key, 0)).collect();
        self.judge_scan(false, false, &from, &scan);
    }

    fn drain(&mut self) {
        for _ in 0..20_000 {
            if self.asked.is_empty() {
                return;
            }
            self.turn();
        }
        panic!("{} operations are never answered: {:#?}", self.asked.len(), self.machine.slab);
    }
}

fn digits(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim_end_matches(' ');
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn page_request(reverse: bool, keys_only: bool, items_max: u32) -> PageRequest {
    let (from, to) = (Bound::Unbounded, Bound::Unbounded);
    PageRequest { from, to, reverse, keys_only, items_max, bytes_max: 1 << 20, at: None }
}

fn run(seed: u64) {
    run_world(World::new(seed), 400);
}

fn run_world(mut world: World, steps_max: u64) {
    for _ in 0..4 {
        let steps = 20 + world.below(steps_max);
        let burst = 1 + world.below(12);
        for _ in 0..steps {
            for _ in 0..world.below(burst + 1) {
                if world.asked.len() < 64 {
                    world.submit();
                }
            }
            world.turn();
        }
        match world.below(4) {
            0 => {
                world.drain();
                world.machine.settle();
                let check = world.machine.slab.check();
                assert!(check.is_sound(), "{check:?}");
            }
            1 => {
                world.drain();
                world.machine.close();
                world.histories.values_mut().for_each(|history| {
                    (history.durable, history.acked) = (history.writes.len(), history.writes.len())
                });
            }
            _ => {}
        }
        world.crash();
    }
}

/// More pages than the pool has blocks, so that pages are evicted and read again while they are written.
#[test]
fn with_a_cache_smaller_than_the_data() {
    for seed in 0..3 {
        let mut world = World::new(seed);
        world.machine = Machine::create(seed, 256 << 20, MEMORY, None);
        (world.capacity, world.keys, world.largest) = (None, 1500, 4000);
        world.histories = (0..world.keys).map(|key| (key, History::default())).collect();
        run_world(world, 2500);
    }
}

/// Blocks of 64 KiB had taken the whole pool, the last page chunk was being given back: no page could be read any more.
#[test]
fn pages_are_not_starved_by_large_values() {
    run(2975);
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_deleted_returns() {
    let from = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(100);
    for seed in from.unwrap_or(0)..from.map_or(count, |from: u64| from + 1) {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("the seed is {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn unmet_is_named() {
    let mut machine = Machine::create(5, 1 << 30, MEMORY, None);
    let put = |expect| {
        let kind = ChangeKind::Put { value: Bytes::from_static(b"v"), flags: 0, expiry: Expiry::NEVER };
        harness::write(b"k", expect, kind, Level::PowerLoss)
    };
    assert!(matches!(machine.run(put(Expect::Present)), Reply::Unmet(Unmet::Absent)));
    let Reply::Done { version, existed: false } = machine.run(put(Expect::Absent)) else { panic!() };
    let present = machine.run(put(Expect::Absent));
    assert!(matches!(present, Reply::Unmet(Unmet::Present { version: found }) if found == version));
    let other = machine.run(put(Expect::Version(version + 1)));
    assert!(matches!(other, Reply::Unmet(Unmet::Version { found }) if found == version));
    assert!(matches!(machine.run(put(Expect::Version(version))), Reply::Done { existed: true, .. }));
    machine.settle();
    assert!(machine.slab.statistics_sum("records") == 1);
}

trait Sum {
    fn statistics_sum(&self, name: &str) -> u64;
}

impl Sum for stratakv_slab::Slab {
    fn statistics_sum(&self, name: &str) -> u64 {
        let mut all = Vec::new();
        self.statistics(&mut all);
        all.iter().filter(|statistic| statistic.name == name).map(|statistic| statistic.value).sum()
    }
}
