//! A process that asks much at once over one session: puts, deletes, deletes of ranges, batches
//! within a shard and gets, hundreds before the first is answered, so that shards hold some back.
//! What is begun first is done first, key by key; a delete of a range finds what was begun before
//! it and leaves what is begun after it. So when all is answered, every key is what the last one
//! begun left.
//!
//! Values of a run often have one length, and a volume has little more room than they need: what is
//! moved to make room is read again.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use stratakv::raw::{Change, ChangeKind, Operation, RecordPart, Reply};
use stratakv::{CollectionId, Engine, Expect, Expiry, Key, Level, Placement, Session, Store};
use stratakv_base::random::Random;
use stratakv_device::Wait;
use stratakv_engine::Error;

use crate::world::{Host, Medium, Process, Setup, Statistics, left_out};

/// Rounds in which nothing happens after which the store counts as stuck.
const IDLE_ROUNDS_MAX: u32 = 3_000;
const PAGE: u64 = 4096;

/// Runs the world of a seed.
///
/// # Errors
/// What the store did wrong.
pub fn run(seed: u64) -> Result<Statistics, String> {
    run_over(Medium::Kernel, seed)
}

/// As [`run`], with disks that are driven so.
///
/// # Errors
/// What the store did wrong.
pub fn run_over(medium: Medium, seed: u64) -> Result<Statistics, String> {
    let mut random = Random::new(seed ^ 0x919E_11AE_D000_0001);
    let mut setup = Setup { medium, ..Setup::draw(&mut random) };
    setup.engine = if seed % 3 == 2 { Engine::Matrix } else { Engine::Slab };
    setup.placement = if seed % 3 == 1 { Placement::Packed } else { Placement::InPlace };
    let keys = [20, 100, 300][random.below(3) as usize];
    let len_max = [60, 400, 1_500, 3_000][random.below(4) as usize];
    // From hardly enough to plenty.
    let room = keys * len_max * [2, 3, 6][random.below(3) as usize] / u64::from(setup.shards);
    setup.capacity_bytes = (room + (1 << 20)).next_multiple_of(PAGE);
    let mut run = Run {
        host: Host::new(setup, random.next_u64()),
        keys: vec![States::default(); keys as usize],
        len_max,
        equal: random.below(3) > 0,
        burst_max: [10, 100, 500][random.below(3) as usize],
        counter: 0,
        random,
        asked: BTreeMap::new(),
        statistics: Statistics { runs: 1, ..Statistics::default() },
    };
    let lives = 2 + run.random.below(3);
    for _ in 0..lives {
        run.life()?;
    }
    Ok(run.statistics)
}

/// What a key has been since the last state that is certain, oldest first.
#[derive(Clone, Debug)]
struct States {
    all: Vec<State>,
    /// Of these, the newest whose write was answered.
    acknowledged: usize,
    /// Writes that are not answered.
    under_way: usize,
    /// One of them is a batch: it is in no order with other writes of the key, but for deletes of
    /// ranges.
    in_batch: bool,
}

#[derive(Clone, Debug)]
struct State {
    value: Option<Bytes>,
    /// Its write was refused: nobody may see it.
    is_refused: bool,
}

impl Default for States {
    fn default() -> States {
        States { all: vec![State { value: None, is_refused: false }], acknowledged: 0, under_way: 0, in_batch: false }
    }
}

impl States {
    /// A write is begun; its number.
    fn begin(&mut self, value: Option<Bytes>) -> usize {
        self.all.push(State { value, is_refused: false });
        self.under_way += 1;
        self.all.len() - 1
    }

    /// The states from one on that somebody may see.
    fn seen_from(&self, from: usize) -> impl Iterator<Item = &Option<Bytes>> {
        self.all[from..].iter().filter(|state| !state.is_refused).map(|state| &state.value)
    }

    /// All is answered: the newest state is the key's.
    fn settled(&self) -> &Option<Bytes> {
        let newest = self.all.iter().rfind(|state| !state.is_refused);
        newest.map_or(&None, |state| &state.value)
    }

    fn is_now(&mut self, value: Option<Bytes>) {
        *self = States { all: vec![State { value, is_refused: false }], ..States::default() };
    }
}

/// What a ticket is for.
enum Asked {
    /// Writes: keys and their states.
    Writes(Vec<(usize, usize)>),
    /// A get, begun when this state of the key was acknowledged.
    Get { key: usize, from: usize },
}

struct Run {
    host: Host,
    keys: Vec<States>,
    len_max: u64,
    /// All values have the same length.
    equal: bool,
    burst_max: u64,
    counter: u64,
    random: Random,
    asked: BTreeMap<u64, Asked>,
    statistics: Statistics,
}

fn key(number: usize) -> Key {
    Key::bound(CollectionId(0), format!("key-{number:04}").as_bytes())
}

impl Run {
    fn life(&mut self) -> Result<(), String> {
        let (mut process, _) = self.host.reopen(&mut self.random, &mut self.statistics)?;
        let driver = process.runtime.driver_over(self.host.ring()?);
        let mut session = process.store.session_over(driver);
        self.look_at_all(&mut process, &mut session, true)?;
        let bursts = 1 + self.random.below(6);
        for _ in 0..bursts {
            if left_out::is_next() {
                continue;
            }
            self.burst(&mut process, &mut session)?;
            if self.random.below(3) > 0 {
                self.drain(&mut process, &mut session)?;
                self.look_at_all(&mut process, &mut session, false)?;
            }
        }
        self.end(process, session)
    }

    fn end(&mut self, mut process: Process, session: Session) -> Result<(), String> {
        let power = self.host.setup.engine != Engine::Matrix && self.random.below(4) > 0;
        self.host.crash(power);
        *(if power { &mut self.statistics.power_cuts } else { &mut self.statistics.kills }) += 1;
        self.asked.clear();
        drop(session);
        process.reactors.clear();
        drop(process);
        self.host.is_all_given_back()
    }

    fn burst(&mut self, process: &mut Process, session: &mut Session) -> Result<(), String> {
        for _ in 0..1 + self.random.below(self.burst_max) {
            let (operation, asked) = self.draw(&process.store);
            self.statistics.asked += 1;
            self.asked.insert(session.submit(operation), asked);
            match self.random.below(40) {
                0 => self.poll(session)?,
                1 => self.tick(process, session).map(drop)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn value(&mut self) -> Bytes {
        self.counter += 1;
        let len = if self.equal { self.len_max } else { 1 + self.random.below(self.len_max) };
        let unit = format!("<{}>", self.counter);
        unit.bytes().cycle().take((len as usize).max(unit.len())).collect()
    }

    fn draw(&mut self, store: &Store) -> (Operation, Asked) {
        let count = self.keys.len() as u64;
        let number = self.random.below(count) as usize;
        match self.random.below(20) {
            0..=10 if !self.keys[number].in_batch => self.write(vec![number]),
            11 => {
                let mut several: Vec<usize> =
                    (0..2 + self.random.below(3)).map(|_| self.random.below(count) as usize).collect();
                // Over shards it is in no order with deletes of ranges either: its shares come by
                // messages.
                several.retain(|other| store.shard_of(&key(*other)) == store.shard_of(&key(number)));
                several.push(number);
                several.sort_unstable();
                several.dedup();
                several.retain(|other| self.keys[*other].under_way == 0);
                if several.len() < 2 {
                    return self.draw(store);
                }
                several.iter().for_each(|other| self.keys[*other].in_batch = true);
                self.write(several)
            }
            12 => {
                // A few keys, or more than a step of a delete takes.
                let span = [3, 30, count][self.random.below(3) as usize].min(count) as usize;
                let to = (number + span).min(self.keys.len());
                let states = (number..to).map(|key| (key, self.keys[key].begin(None))).collect();
                let range = Box::new((Bound::Included(key(number)), Bound::Excluded(key(to))));
                (Operation::DeleteRange { range, level: self.level() }, Asked::Writes(states))
            }
            _ => {
                let asked = Asked::Get { key: number, from: self.keys[number].acknowledged };
                (Operation::Get { key: key(number), part: RecordPart::Whole }, asked)
            }
        }
    }

    fn level(&self) -> Level {
        if self.host.setup.engine == Engine::Matrix { Level::ProcessCrash } else { Level::PowerLoss }
    }

    /// A put or delete of each of the keys, as one.
    fn write(&mut self, numbers: Vec<usize>) -> (Operation, Asked) {
        let (mut changes, mut states) = (Vec::new(), Vec::new());
        for number in numbers {
            let value = (self.random.below(8) > 0).then(|| self.value());
            states.push((number, self.keys[number].begin(value.clone())));
            let kind =
                value.map_or(ChangeKind::Delete, |value| ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER });
            changes.push(Change { key: key(number), expect: Expect::Any, kind });
        }
        (Operation::Write { changes, level: self.level() }, Asked::Writes(states))
    }

    fn poll(&mut self, session: &mut Session) -> Result<(), String> {
        for (ticket, reply) in session.poll(0).map_err(|error| format!("poll: {error}"))? {
            let asked = self.asked.remove(&ticket).ok_or_else(|| format!("ticket {ticket} was answered twice"))?;
            self.statistics.answered += 1;
            self.answered(asked, reply)?;
        }
        Ok(())
    }

    fn answered(&mut self, asked: Asked, reply: Reply) -> Result<(), String> {
        if let Asked::Writes(states) = &asked {
            for (key, _) in states {
                self.keys[*key].under_way -= 1;
                self.keys[*key].in_batch &= self.keys[*key].under_way > 0;
            }
        }
        match (asked, reply) {
            (Asked::Writes(states), Reply::Failed(Error::Full(_) | Error::MemoryFull { .. } | Error::Busy)) => {
                states.into_iter().for_each(|(key, state)| self.keys[key].all[state].is_refused = true);
            }
            (_, Reply::Failed(error)) => return Err(format!("an operation failed on a sound machine: {error}")),
            (Asked::Writes(states), _) => {
                for (key, state) in states {
                    self.keys[key].acknowledged = self.keys[key].acknowledged.max(state);
                }
            }
            (Asked::Get { key, from }, Reply::Record(record)) => {
                let found = record.map(|record| record.value.to_bytes());
                let states = &self.keys[key];
                if !states.seen_from(from).any(|state| *state == found) {
                    return Err(format!("key {key} is {}, and may be one of {}", show(&found), self.known(key, from)));
                }
            }
            (Asked::Get { .. }, reply) => return Err(format!("a get was answered {reply:?}")),
        }
        Ok(())
    }

    fn known(&self, key: usize, from: usize) -> String {
        self.keys[key].seen_from(from).map(show).collect::<Vec<_>>().join(", ")
    }

    fn tick(&mut self, process: &mut Process, session: &mut Session) -> Result<bool, String> {
        for reactor in &mut process.reactors {
            reactor.tick(Wait::None, &mut Vec::new()).map_err(|error| format!("a reactor's ring failed: {error}"))?;
        }
        let before = self.statistics.answered;
        self.poll(session)?;
        let busy = (0..8).filter(|_| self.host.world.step()).count() > 0;
        self.host.pass(if busy { 20_000 } else { 10_000_000 });
        Ok(busy || self.statistics.answered > before)
    }

    /// Until everything is answered.
    fn drain(&mut self, process: &mut Process, session: &mut Session) -> Result<(), String> {
        let mut idle = 0;
        while session.in_flight() > 0 {
            idle = if self.tick(process, session)? { 0 } else { idle + 1 };
            if idle > IDLE_ROUNDS_MAX {
                let told = process.store.stats();
                let told =
                    told.iter().filter(|told| told.value > 0).map(|told| format!("{} {}", told.name, told.value));
                let (told, waiting) = (told.collect::<Vec<_>>().join(", "), self.asked.len());
                return Err(format!("nothing happens any more; {waiting} operations wait; the store: {told}"));
            }
        }
        Ok(())
    }

    /// Reads every key while nothing else goes on: it is what the last write left, or, after an
    /// opening, any since the last that was answered.
    fn look_at_all(&mut self, process: &mut Process, session: &mut Session, opened: bool) -> Result<(), String> {
        let tickets: Vec<u64> = (0..self.keys.len())
            .map(|number| session.submit(Operation::Get { key: key(number), part: RecordPart::Whole }))
            .collect();
        let mut found = BTreeMap::new();
        let mut idle = 0;
        while found.len() < tickets.len() {
            for reactor in &mut process.reactors {
                reactor
                    .tick(Wait::None, &mut Vec::new())
                    .map_err(|error| format!("a reactor's ring failed: {error}"))?;
            }
            let replies = session.poll(0).map_err(|error| format!("poll: {error}"))?;
            let busy = !replies.is_empty() | self.host.world.step();
            found.extend(replies);
            self.host.pass(if busy { 20_000 } else { 10_000_000 });
            idle = if busy { 0 } else { idle + 1 };
            if idle > IDLE_ROUNDS_MAX {
                return Err("nothing happens any more, and keys are being read".into());
            }
        }
        for (number, ticket) in tickets.iter().enumerate() {
            let value = match found.remove(ticket) {
                Some(Reply::Record(record)) => record.map(|record| record.value.to_bytes()),
                other => return Err(format!("a get of key {number} was answered {other:?}")),
            };
            let states = &mut self.keys[number];
            let is_right = match opened {
                true => states.seen_from(states.acknowledged).any(|state| *state == value),
                false => *states.settled() == value,
            };
            if !is_right {
                let due = if opened {
                    self.known(number, self.keys[number].acknowledged)
                } else {
                    show(self.keys[number].settled())
                };
                let when = if opened { "after an opening" } else { "when all was answered" };
                return Err(format!("{when} key {number} is {}, and should be {due}", show(&value)));
            }
            self.statistics.note(&value.as_ref().map_or(0, Bytes::len).to_le_bytes());
            states.is_now(value.map(|value| Bytes::copy_from_slice(&value)));
        }
        Ok(())
    }
}

fn show(value: &Option<Bytes>) -> String {
    value.as_ref().map_or("nothing".into(), |value| {
        format!("{}… of {} bytes", String::from_utf8_lossy(&value[..value.len().min(10)]), value.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_of_each_engine_do_all_in_order() {
        let mut sums = Statistics::default();
        for seed in 0..30 {
            sums.add(&run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}")));
        }
        assert!(sums.answered > 10_000 && sums.power_cuts > 10, "{sums:?}");
    }

    #[test]
    fn states_are_seen_from_the_last_that_was_answered_and_refused_ones_never() {
        let mut states = States::default();
        let first = states.begin(Some(Bytes::from_static(b"1")));
        let second = states.begin(Some(Bytes::from_static(b"2")));
        states.begin(None);
        (states.acknowledged, states.all[second].is_refused) = (first, true);
        let seen: Vec<_> = states.seen_from(states.acknowledged).cloned().collect();
        assert_eq!(seen, [Some(Bytes::from_static(b"1")), None]);
        assert_eq!(states.settled(), &None);
    }
}
