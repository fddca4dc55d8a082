//! Threads that write. Each knows what its own keys must be, and holds every answer against that.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use stratakv_base::random::Random;
use stratakv_base::{Expiry, Level, Now, Wall};
use stratakv_engine::{Change, ChangeKind, Expect, Operation, RecordPart, Reply, Shared, Unmet, Update};

use crate::plan::Plan;
use crate::tally::Kind;
use crate::values::Stamp;
use crate::world::{
    self, ACCOUNTS, COUNTERS, GROUPS, LOCKS, MEMBERS, Outcome, STAIRS, Seen, State, WRITERS, What, World,
};

/// Deletes after a write that found no room.
const DELETES_WHEN_FULL: u32 = 64;
/// Keys that half of the writes are of.
const HOT: u64 = 64;

pub struct Writer<'a> {
    world: &'a World<'a>,
    number: u64,
    random: Random,
    /// Deletes to come.
    short: u32,
}

/// A write of a cell that is to come.
struct Intent {
    number: u64,
    /// Before it.
    known: State,
    version: u64,
    next: State,
}

impl Intent {
    /// Whether it is known if the key is there: what expires meanwhile may be given back at any
    /// time.
    fn is_sure(&self, asked: Wall, latest: Wall) -> bool {
        self.known.is_gone(asked) || !self.known.is_gone(latest)
    }

    /// What of a condition does not hold.
    fn unmet(&self, expect: Expect, asked: Wall) -> Option<Unmet> {
        expect.unmet(!self.known.is_gone(asked), Some(self.version))
    }
}

impl<'a> Writer<'a> {
    pub fn new(world: &'a World<'a>, number: u64, seed: u64) -> Writer<'a> {
        Writer { world, number, random: Random::new(seed), short: 0 }
    }

    pub fn run(&mut self) -> Result<(), String> {
        if self.world.plan.fills_first {
            self.fill()?;
        }
        while !self.world.is_over() {
            match self.random.below(1000) {
                0 => self.delete_range(1),
                1 => self.delete_range(2),
                2 if self.random.below(20) == 0 => self.delete_range(0),
                3..80 => self.write_group(),
                80..160 => self.transfer(),
                160..220 => self.increment(),
                220..250 => self.take_lock(),
                250..300 if self.number == 0 => self.climb(),
                300..340 => {
                    let count = 2 + self.random.below(5);
                    self.write_cells(count)
                }
                _ => self.write_cells(1),
            }?;
        }
        Ok(())
    }

    fn cells(&self) -> u64 {
        self.world.plan.cells / WRITERS
    }

    fn value(&mut self, number: u64, round: u64) -> Vec<u8> {
        let Plan { times: (some, most), times_max, .. } = self.world.plan;
        let times = match self.random.below(150) {
            0 => self.random.below(times_max),
            1..30 => self.random.below(some),
            _ => self.random.below(most),
        };
        Stamp { number, writer: self.number, round }.value(1 + times)
    }

    fn intend(&mut self, number: u64, removes: bool, now: Now) -> Intent {
        let known = self.world.known(number).done();
        let expires = !removes && self.random.below(7) == 0;
        let expiry = if expires { (now.wall.0 + 1 + self.random.below(6000)) as u32 } else { 0 };
        let next = State { round: known.round + 1, is_there: !removes, expiry };
        Intent { number, known, version: self.world.known(number).version(), next }
    }

    /// A condition that holds or not, mostly none.
    fn condition(&mut self, version: u64) -> Expect {
        match self.random.below(10) {
            0 => Expect::Absent,
            1 => Expect::Present,
            2 => Expect::Version(version),
            3 => Expect::Version(version.wrapping_sub(1)),
            _ => Expect::Any,
        }
    }

    /// All cells, one after the other, as long as there is room: as fast as the table can grow.
    fn fill(&mut self) -> Result<(), String> {
        for index in 0..self.cells() {
            if self.world.is_over() || self.short > 0 {
                break;
            }
            let now = self.world.now();
            let intent = self.intend(world::cell(self.number, index), false, now);
            self.write(&[intent], Expect::Any, now)?;
        }
        Ok(())
    }

    /// Puts or deletes so many cells as one write; the first one under a condition.
    fn write_cells(&mut self, count: u64) -> Result<(), String> {
        let now = self.world.now();
        let mut intents = BTreeMap::new();
        for _ in 0..count {
            let (cells, is_hot) = (self.cells(), self.random.below(2) == 0);
            let index = self.random.below(if is_hot { HOT.min(cells) } else { cells });
            let removes = self.short > 0 || self.random.below(4) == 0;
            self.short = self.short.saturating_sub(1);
            let number = world::cell(self.number, index);
            intents.insert(number, self.intend(number, removes, now));
        }
        let intents: Vec<Intent> = intents.into_values().collect();
        let expect = self.condition(intents[0].version);
        self.write(&intents, expect, now)
    }

    fn write(&mut self, intents: &[Intent], expect: Expect, now: Now) -> Result<(), String> {
        let mut changes = Vec::new();
        for (at, Intent { number, next, .. }) in intents.iter().enumerate() {
            self.world.known(*number).begin(*next);
            let expect = if at == 0 { expect } else { Expect::Any };
            changes.push(if next.is_there {
                let value = self.value(*number, next.round);
                self.world.put(*number, value, Expiry(next.expiry.into()), expect)
            } else {
                Change { key: self.world.key(*number).clone(), expect, kind: ChangeKind::Delete }
            });
        }
        let outcome = self.world.write_at(changes, now)?;
        self.check_outcome(intents, expect, outcome, now.wall)
            .map_err(|why| format!("{outcome:?} for {expect:?} at {:?} with {:?}: {why}", now.wall, told(intents)))
    }

    /// Takes down what was answered, and says what of it cannot be.
    fn check_outcome(
        &mut self,
        intents: &[Intent],
        expect: Expect,
        outcome: Outcome,
        asked: Wall,
    ) -> Result<(), String> {
        let latest = self.world.wall();
        let (first, is_sure) = (&intents[0], intents[0].is_sure(asked, latest));
        let unmet = first.unmet(expect, asked);
        match outcome {
            Outcome::Done { version, existed } => {
                // Deletes of what is not there change nothing, and are answered with version 0.
                let is_gone = |intent: &Intent| !intent.next.is_there && intent.known.is_gone(latest);
                let changes_nothing = version == 0 && !existed && intents.iter().all(is_gone);
                for Intent { number, next, version: before, .. } in intents {
                    if version <= *before && !changes_nothing {
                        return Err(format!("a version after {before}"));
                    }
                    self.world.known(*number).finish(version.max(*before));
                    self.world.tally.count(if next.is_there { Kind::Put } else { Kind::Delete });
                }
                if is_sure && unmet.is_some() {
                    return Err(format!("{unmet:?} was expected"));
                }
                let is_right = existed != first.known.is_gone(asked);
                if intents.len() == 1 && is_sure && !is_right { Err("it did not exist so".into()) } else { Ok(()) }
            }
            Outcome::Unmet(found) => {
                self.take_back(intents);
                self.world.tally.count(Kind::Unmet);
                let may_be = if is_sure { unmet == Some(found) } else { expect != Expect::Any };
                if may_be { Ok(()) } else { Err(format!("{unmet:?} was expected")) }
            }
            Outcome::Full => {
                self.take_back(intents);
                self.short = DELETES_WHEN_FULL;
                // A batch needs room for its removals.
                let needs_room = intents.len() > 1 || first.next.is_there;
                if needs_room { Ok(()) } else { Err("a delete needs no room".into()) }
            }
            Outcome::Closed => {
                self.take_back(intents);
                Ok(())
            }
        }
    }

    fn take_back(&self, intents: &[Intent]) {
        intents.iter().for_each(|intent| self.world.known(intent.number).take_back());
    }

    /// Some of our cells that lie side by side, in the order of a collection or in the default one.
    fn delete_range(&mut self, collection: u32) -> Result<(), String> {
        let cells = self.cells();
        let from = self.random.below(cells);
        let to = (from + 1 + self.random.below(cells / 8)).min(cells);
        let now = self.world.now();
        let mut intents = Vec::new();
        for index in (from..to).filter(|index| world::collection_of_cell(*index) == collection) {
            let intent = self.intend(world::cell(self.number, index), true, now);
            if intent.known.is_there {
                self.world.known(intent.number).begin(intent.next);
                intents.push(intent);
            }
        }
        let bound = |index| world::bound_of_cells(collection, self.number, index);
        let (from, to) = (Bound::Included(bound(from)), Bound::Excluded(bound(to)));
        let reply = self
            .world
            .store
            .execute(Operation::DeleteRange { range: Box::new((from, to)), level: Level::PowerLoss }, now);
        let deleted = match reply {
            Reply::Number { number, .. } => number,
            Reply::Failed(error) => {
                self.take_back(&intents);
                return self.world.unless_closed::<()>(Err(error)).map(drop);
            }
            other => return Err(format!("a range delete was answered {other:?}")),
        };
        intents.iter().for_each(|intent| self.world.known(intent.number).finish(intent.version));
        self.world.tally.count(Kind::Range);
        self.world.tally.add(Kind::RangeKey, deleted);
        let latest = self.world.wall();
        let least = intents.iter().filter(|intent| !intent.known.is_gone(latest)).count() as u64;
        if (least..=intents.len() as u64).contains(&deleted) {
            return Ok(());
        }
        Err(format!("a range delete of collection {collection} found {deleted} keys, not {least} to {}", intents.len()))
    }

    /// A batch over all keys of one of our groups, at times with a check of a key that is not in
    /// it.
    fn write_group(&mut self) -> Result<(), String> {
        let group = self.random.below(GROUPS / WRITERS) * WRITERS + self.number;
        let known = self.world.group(group);
        let round = known.done().round + 1;
        known.begin(State { round, is_there: true, expiry: 0 });
        let mut changes = Vec::new();
        for index in 0..MEMBERS {
            let number = world::member(group, index);
            changes.push(if world::is_in(round, group, index) {
                let value = self.value(number, round);
                self.world.put(number, value, Expiry::NEVER, Expect::Any)
            } else {
                Change { key: self.world.key(number).clone(), expect: Expect::Any, kind: ChangeKind::Delete }
            });
        }
        let (checks, fails) = (self.random.below(4) == 0, self.random.below(4) == 0);
        if checks {
            let key = self.world.key(world::account(self.random.below(ACCOUNTS))).clone();
            let expect = if fails { Expect::Absent } else { Expect::Present };
            changes.push(Change { key, expect, kind: ChangeKind::Check });
        }
        let outcome = self.world.write(changes)?;
        match outcome {
            Outcome::Done { version, .. } if version > known.version() && !(checks && fails) => {
                known.finish(version);
                self.world.tally.count(Kind::Batch);
            }
            Outcome::Unmet(Unmet::Present { .. }) if checks && fails => known.take_back(),
            Outcome::Full => {
                known.take_back();
                self.short = DELETES_WHEN_FULL;
            }
            Outcome::Closed => known.take_back(),
            other => {
                return Err(format!("batch {round} of group {group} (checks {checks}, fails {fails}) ended {other:?}"));
            }
        }
        Ok(())
    }

    /// What a key has; `None` also if the store is closed.
    fn get(&self, number: u64) -> Result<Option<Seen>, String> {
        let (key, now) = (self.world.key(number).clone(), self.world.now());
        match self.world.store.execute(Operation::Get { key, part: RecordPart::Whole }, now) {
            Reply::Record(None) => Ok(None),
            Reply::Record(Some(record)) => Ok(Some(self.world.seen(self.world.key(number), &record, now.wall)?.1)),
            Reply::Failed(error) => self.world.unless_closed(Err(error)),
            other => Err(format!("a get was answered {other:?}")),
        }
    }

    /// An amount from one account to another, if nobody changes one of them meanwhile.
    fn transfer(&mut self) -> Result<(), String> {
        let (from, to) = (world::account(self.random.below(ACCOUNTS)), world::account(self.random.below(ACCOUNTS)));
        let (Some(a), Some(b)) = (self.get(from)?, self.get(to)?) else {
            return if self.world.is_closing() { Ok(()) } else { Err("an account is not there".into()) };
        };
        if from == to || a.round == 0 {
            return Ok(());
        }
        let amount = 1 + self.random.below(a.round);
        let mut put = |number, round, version| {
            let value = Stamp { number, writer: self.number, round }.value(1 + self.random.below(8));
            self.world.put(number, value, Expiry::NEVER, Expect::Version(version))
        };
        let changes = vec![put(from, a.round - amount, a.version), put(to, b.round + amount, b.version)];
        match self.world.write(changes)? {
            Outcome::Done { .. } => self.world.tally.count(Kind::Transfer),
            Outcome::Unmet(Unmet::Version { .. }) => self.world.tally.count(Kind::Conflict),
            Outcome::Full => self.short = DELETES_WHEN_FULL,
            Outcome::Closed => {}
            other => return Err(format!("a transfer ended {other:?}")),
        }
        Ok(())
    }

    fn increment(&mut self) -> Result<(), String> {
        let (at, by) = (self.random.below(COUNTERS), 1 + self.random.below(100));
        let (asked, added) = self.world.counts(at);
        let least = added.load(Ordering::SeqCst) + by;
        asked.fetch_add(by, Ordering::SeqCst);
        let key = self.world.key(world::counter(at)).clone();
        let operation = Operation::Update { key, update: Update::Increment(by), level: Level::PowerLoss };
        match self.world.store.execute(operation, self.world.now()) {
            Reply::Number { number, .. } => {
                added.fetch_add(by, Ordering::SeqCst);
                self.world.tally.count(Kind::Increment);
                let most = asked.load(Ordering::SeqCst);
                let is_right = (least..=most).contains(&number);
                if is_right { Ok(()) } else { Err(format!("counter {at} became {number}, not {least} to {most}")) }
            }
            Reply::Failed(error) => {
                asked.fetch_sub(by, Ordering::SeqCst);
                match error {
                    stratakv_engine::Error::Full(_) => {
                        self.world.tally.count(Kind::Full);
                        self.short = DELETES_WHEN_FULL;
                        Ok(())
                    }
                    error => self.world.unless_closed::<()>(Err(error)).map(drop),
                }
            }
            other => Err(format!("an increment was answered {other:?}")),
        }
    }

    /// A key that is made only where there is none: while it is there nobody else makes it.
    fn take_lock(&mut self) -> Result<(), String> {
        let at = self.random.below(LOCKS);
        let (number, holder) = (world::lock(at), &self.world.holders[at as usize]);
        let value = Stamp { number, writer: self.number, round: self.random.below(1 << 30) }.value(2);
        let version = match self.world.write(vec![self.world.put(number, value, Expiry::NEVER, Expect::Absent)])? {
            Outcome::Done { version, existed: false } => version,
            Outcome::Unmet(Unmet::Present { .. }) | Outcome::Full | Outcome::Closed => return Ok(()),
            other => return Err(format!("a lock was answered {other:?}")),
        };
        let other = holder.swap(self.number + 1, Ordering::SeqCst);
        if other != 0 {
            return Err(format!("lock {at} was made by writer {} while writer {} has it", self.number, other - 1));
        }
        self.world.tally.count(Kind::Lock);
        self.write_cells(1)?;
        holder.store(0, Ordering::SeqCst);
        let key = self.world.key(number).clone();
        match self.world.write(vec![Change { key, expect: Expect::Version(version), kind: ChangeKind::Delete }])? {
            Outcome::Done { existed: true, .. } => Ok(()),
            // Whoever opens the store again finds it held.
            Outcome::Closed => {
                holder.store(self.number + 1, Ordering::SeqCst);
                Ok(())
            }
            other => Err(format!("lock {at} was given back with {other:?}")),
        }
    }

    /// The next step.
    fn climb(&mut self) -> Result<(), String> {
        let climbed = self.world.climbed.load(Ordering::SeqCst);
        let number = world::stair(climbed % STAIRS);
        let (known, round) = (self.world.known(number), climbed / STAIRS + 1);
        known.begin(State { round, is_there: true, expiry: 0 });
        let value = self.value(number, round);
        let outcome = self.world.write(vec![self.world.put(number, value, Expiry::NEVER, Expect::Any)])?;
        match outcome {
            Outcome::Done { version, existed } if existed == (round > 1) => {
                known.finish(version);
                self.world.climbed.store(climbed + 1, Ordering::SeqCst);
                self.world.tally.count(Kind::Step);
            }
            Outcome::Full => {
                known.take_back();
                self.short = DELETES_WHEN_FULL;
            }
            Outcome::Closed => known.take_back(),
            other => return Err(format!("step {climbed} ended {other:?}")),
        }
        Ok(())
    }
}

fn told(intents: &[Intent]) -> Vec<(What, State, u64, State)> {
    let tell = |intent: &Intent| (world::what(intent.number), intent.known, intent.version, intent.next);
    intents.iter().map(tell).collect()
}
