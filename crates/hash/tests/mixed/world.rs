//! What the threads share: the store, what each key may be at any moment, the clock.

use std::cell::Cell as Local;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stratakv_base::{CollectionId, Expiry, Key, Mono, Now, Wall};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Record, Shared, Unmet};
use stratakv_hash::{Hash, Written};
use stratakv_pmem::{MapOptions, Mapping};

use crate::calls;
use crate::hooked::Hooked;
use crate::plan::Plan;
use crate::tally::{Kind, Tally};
use crate::values::Stamp;

pub type Store = Hash<Hooked<'static, Mapping>>;

pub const WRITERS: u64 = 4;
/// Keys that are written by batches, all of a group at once.
pub const GROUPS: u64 = 4;
pub const MEMBERS: u64 = 32;
/// Keys between which every writer moves amounts.
pub const ACCOUNTS: u64 = 24;
pub const WORTH: u64 = 1000;
/// Numbers that every writer increments.
pub const COUNTERS: u64 = 8;
/// Keys that one writer at a time makes and deletes.
pub const LOCKS: u64 = 4;
/// Keys that one writer puts one after the other: nobody sees one that is further than the one
/// before it.
pub const STAIRS: u64 = 6;

const FIRST_ACCOUNT: u64 = GROUPS * MEMBERS;
const FIRST_COUNTER: u64 = FIRST_ACCOUNT + ACCOUNTS;
const FIRST_LOCK: u64 = FIRST_COUNTER + COUNTERS;
const FIRST_STAIR: u64 = FIRST_LOCK + LOCKS;
/// The rest: each is one writer's, who puts and deletes it as it likes.
const FIRST_CELL: u64 = FIRST_STAIR + STAIRS;

/// What a key is, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Member { group: u64, index: u64 },
    Account,
    Counter(u64),
    Lock(u64),
    Stair(u64),
    Cell { writer: u64, index: u64 },
}

pub fn what(number: u64) -> What {
    match number {
        0..FIRST_ACCOUNT => What::Member { group: number / MEMBERS, index: number % MEMBERS },
        FIRST_ACCOUNT..FIRST_COUNTER => What::Account,
        FIRST_COUNTER..FIRST_LOCK => What::Counter(number - FIRST_COUNTER),
        FIRST_LOCK..FIRST_STAIR => What::Lock(number - FIRST_LOCK),
        FIRST_STAIR..FIRST_CELL => What::Stair(number - FIRST_STAIR),
        _ => What::Cell { writer: (number - FIRST_CELL) % WRITERS, index: (number - FIRST_CELL) / WRITERS },
    }
}

pub fn member(group: u64, index: u64) -> u64 {
    group * MEMBERS + index
}

pub fn account(at: u64) -> u64 {
    FIRST_ACCOUNT + at
}

pub fn counter(at: u64) -> u64 {
    FIRST_COUNTER + at
}

pub fn lock(at: u64) -> u64 {
    FIRST_LOCK + at
}

pub fn stair(at: u64) -> u64 {
    FIRST_STAIR + at
}

pub fn cell(writer: u64, index: u64) -> u64 {
    FIRST_CELL + index * WRITERS + writer
}

/// Cells lie in the default collection, which is in no order, and in two that are.
pub fn collection_of_cell(index: u64) -> u32 {
    index as u32 % 3
}

pub const ORDERED: std::ops::RangeInclusive<u32> = 1..=5;

fn key_of(number: u64) -> Key {
    let (collection, name) = match what(number) {
        What::Member { group, index } => (if index % 2 == 0 { 0 } else { 4 }, format!("group {group}/{index}")),
        What::Account => (3, format!("account {number:03}")),
        What::Counter(at) => (0, format!("counter {at}")),
        What::Lock(at) => (0, format!("lock {at}")),
        What::Stair(at) => (if at % 2 == 0 { 0 } else { 5 }, format!("stair {at}")),
        What::Cell { writer, index } => (collection_of_cell(index), cell_name(writer, index)),
    };
    Key::new(CollectionId(collection), name.as_bytes()).expect("a key")
}

/// Some are long.
fn cell_name(writer: u64, index: u64) -> String {
    let tail = if index.is_multiple_of(7) { "x".repeat(100 + index as usize % 150) } else { String::new() };
    format!("{writer}/{index:06}{tail}")
}

/// Where the keys of a writer's cells from `index` on begin.
pub fn bound_of_cells(collection: u32, writer: u64, index: u64) -> Key {
    Key::bound(CollectionId(collection), format!("{writer}/{index:06}").as_bytes())
}

/// Whether a group's batch of this round puts a member; else it deletes it.
pub fn is_in(round: u64, group: u64, index: u64) -> bool {
    !round.is_multiple_of(5) && !(round * 31 + group * 13 + index * 7).is_multiple_of(4)
}

pub fn flags_of(round: u64) -> u32 {
    if round.is_multiple_of(4) { 0 } else { round as u32 }
}

/// What a write leaves behind. A key's writes are its rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Below 2^31.
    pub round: u64,
    pub is_there: bool,
    pub expiry: u32,
}

impl State {
    fn pack(self) -> u64 {
        self.round << 33 | u64::from(self.is_there) << 32 | u64::from(self.expiry)
    }

    fn unpack(packed: u64) -> State {
        State { round: packed >> 33, is_there: packed >> 32 & 1 == 1, expiry: packed as u32 }
    }

    pub fn is_gone(self, wall: Wall) -> bool {
        !self.is_there || Expiry(self.expiry.into()).is_past(wall)
    }
}

/// The state of a key, or of a group, as its writer knows it and as others may look at it.
#[derive(Default)]
pub struct Known {
    begun: AtomicU64,
    done: AtomicU64,
    /// Of the last write that is done.
    version: AtomicU64,
}

impl Known {
    /// The last write that was answered: whoever looks after this sees it, or a later one.
    pub fn done(&self) -> State {
        State::unpack(self.done.load(Ordering::SeqCst))
    }

    /// The last write that was begun: whoever looked before this saw it, or an earlier one. Of the
    /// round of `done` or the next.
    pub fn begun(&self) -> State {
        State::unpack(self.begun.load(Ordering::SeqCst))
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub fn begin(&self, next: State) {
        self.begun.store(next.pack(), Ordering::SeqCst);
    }

    pub fn finish(&self, version: u64) {
        self.version.store(version, Ordering::SeqCst);
        self.done.store(self.begun.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// It was refused: nobody may see it.
    pub fn take_back(&self) {
        self.begun.store(self.done.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Of an account its balance, of a counter its number.
    pub round: u64,
    pub writer: u64,
    pub version: u64,
    pub expiry: u32,
    pub value_bytes: u64,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done { version: u64, existed: bool },
    Unmet(Unmet),
    Full,
    Closed,
}

pub struct World<'a> {
    pub plan: Plan,
    pub store: Store,
    pub tally: &'a Tally,
    keys: Vec<Key>,
    numbers: BTreeMap<Key, u64>,
    known: Vec<Known>,
    groups: Vec<Known>,
    /// Of counters: the sums of what was asked for and of what was answered.
    asked: Vec<AtomicU64>,
    added: Vec<AtomicU64>,
    /// Who has a lock, from 1 on.
    pub holders: Vec<AtomicU64>,
    /// Steps that were taken on the stairs.
    pub climbed: AtomicU64,
    clock: AtomicU32,
    is_over: AtomicBool,
    is_closing: AtomicBool,
    finding: Mutex<Option<String>>,
}

impl<'a> World<'a> {
    /// An empty region, with accounts and counters in it.
    pub fn begin(plan: Plan, tally: &'a Tally) -> Result<World<'a>, String> {
        let region = Mapping::anonymous(plan.region_bytes, MapOptions::default()).map_err(|error| error.to_string())?;
        let store = Hash::create(jolted(region), plan.options()).map_err(|error| error.to_string())?;
        let keys: Vec<Key> = (0..FIRST_CELL + plan.cells).map(key_of).collect();
        let zeros = || (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        let world = World {
            store,
            tally,
            numbers: keys.iter().cloned().zip(0..).collect(),
            known: keys.iter().map(|_| Known::default()).collect(),
            groups: (0..GROUPS).map(|_| Known::default()).collect(),
            keys,
            asked: zeros(),
            added: zeros(),
            holders: (0..LOCKS).map(|_| AtomicU64::new(0)).collect(),
            climbed: AtomicU64::new(0),
            clock: AtomicU32::new(1000),
            is_over: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            finding: Mutex::new(None),
            plan,
        };
        let accounts = (0..ACCOUNTS).map(|at| {
            let stamp = Stamp { number: account(at), writer: WRITERS, round: WORTH };
            (account(at), stamp.value(1))
        });
        for (number, value) in accounts.chain((0..COUNTERS).map(|at| (counter(at), b"0".to_vec()))) {
            let written = world.write(vec![world.put(number, value, Expiry::NEVER, Expect::Absent)])?;
            if !matches!(written, Outcome::Done { existed: false, .. }) {
                return Err(format!("the first put of {:?} was answered {written:?}", what(number)));
            }
        }
        Ok(world)
    }

    /// Another life of the same store.
    pub fn again(self, plan: &Plan) -> World<'a> {
        let Plan { life, length, fills_first, closes_under_way, .. } = *plan;
        let plan = Plan { life, length, fills_first, closes_under_way, ..self.plan.clone() };
        World { plan, ..self }
    }

    /// Closed, and opened again.
    pub fn reopened(self) -> Result<World<'a>, String> {
        self.store.close();
        if self.store.has_failed() {
            return Err("the end of the store failed".into());
        }
        let store = Hash::open(self.store.into_pmem(), 2).map_err(|error| format!("opening: {error}"))?;
        self.tally.count(Kind::Opening);
        Ok(World { store, is_over: AtomicBool::new(false), is_closing: AtomicBool::new(false), ..self })
    }

    pub fn key(&self, number: u64) -> &Key {
        &self.keys[number as usize]
    }

    pub fn numbers(&self) -> &BTreeMap<Key, u64> {
        &self.numbers
    }

    pub fn known(&self, number: u64) -> &Known {
        &self.known[number as usize]
    }

    /// By number.
    pub fn every_known(&self) -> &[Known] {
        &self.known
    }

    pub fn group(&self, group: u64) -> &Known {
        &self.groups[group as usize]
    }

    /// What was asked of a counter and what was answered: it never is above the one or below the
    /// other.
    pub fn counts(&self, at: u64) -> (&AtomicU64, &AtomicU64) {
        (&self.asked[at as usize], &self.added[at as usize])
    }

    pub fn wall(&self) -> Wall {
        Wall(self.clock.load(Ordering::SeqCst).into())
    }

    pub fn now(&self) -> Now {
        Now { mono: Mono(1), wall: self.wall() }
    }

    pub fn tick(&self) {
        self.clock.fetch_add(300, Ordering::SeqCst);
    }

    pub fn end_second(&self) {
        let clock = self.clock.load(Ordering::SeqCst);
        self.clock.store(clock.next_multiple_of(1000), Ordering::SeqCst);
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Threads end; if the plan says so, by finding the store closed under them.
    pub fn end(&self) {
        if self.plan.closes_under_way {
            self.is_closing.store(true, Ordering::SeqCst);
            self.store.close();
        }
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Of a thread that ended: what it found ends the others.
    pub fn report(&self, who: &str, ended: Result<(), String>) {
        if let Err(why) = ended {
            self.finding.lock().expect("not poisoned").get_or_insert(format!("{who}: {why}"));
            self.is_over.store(true, Ordering::SeqCst);
        }
    }

    pub fn finding(&self) -> Option<String> {
        self.finding.lock().expect("not poisoned").clone()
    }

    /// `None`: the store is being closed.
    pub fn unless_closed<T>(&self, answer: Result<T, Error>) -> Result<Option<T>, String> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(Error::Closed) if self.is_closing() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// As [`World::unless_closed`], and `None` too for a snapshot that ended for want of room.
    pub fn unless_ended<T>(&self, answer: Result<T, Error>) -> Result<Option<T>, String> {
        match answer {
            // Whoever ends a snapshot counts it when what it kept has been given back.
            Err(Error::NoSnapshot { .. }) if self.comes_true(|| self.store.report().snapshots.ended_early > 0) => {
                Ok(None)
            }
            answer => self.unless_closed(answer),
        }
    }

    fn comes_true(&self, it: impl Fn() -> bool) -> bool {
        (0..5000).any(|turn| {
            if turn > 0 {
                thread::sleep(Duration::from_millis(1));
            }
            it()
        })
    }

    pub fn put(&self, number: u64, value: Vec<u8>, expiry: Expiry, expect: Expect) -> Change {
        let flags = match what(number) {
            What::Cell { .. } => flags_of(self.known(number).begun().round),
            _ => 0,
        };
        let kind = ChangeKind::Put { value: value.into(), flags, expiry };
        Change { key: self.key(number).clone(), expect, kind }
    }

    pub fn write(&self, changes: Vec<Change>) -> Result<Outcome, String> {
        self.write_at(changes, self.now())
    }

    pub fn write_at(&self, changes: Vec<Change>, now: Now) -> Result<Outcome, String> {
        Ok(match calls::write(&self.store, changes, now) {
            Err(Error::Full(_)) => {
                self.tally.count(Kind::Full);
                Outcome::Full
            }
            answer => match self.unless_closed(answer)? {
                Some(Written::Done { version, existed }) => Outcome::Done { version, existed },
                Some(Written::Unmet(unmet)) => Outcome::Unmet(unmet),
                None => Outcome::Closed,
            },
        })
    }

    /// What a record says, if it is whole, of this key, and not expired when it was asked for.
    pub fn seen(&self, key: &Key, record: &Record, asked: Wall) -> Result<(u64, Seen), String> {
        let number = *self.numbers.get(key).ok_or_else(|| format!("nobody ever wrote {key:?}"))?;
        let value = record.value.to_bytes();
        let stamp = match what(number) {
            What::Counter(_) => {
                let number_of = |text: &str| text.trim_end().parse().ok();
                let round = std::str::from_utf8(&value).ok().and_then(number_of).ok_or("a counter is no number")?;
                Stamp { number, writer: 0, round }
            }
            _ => Stamp::read(&value).map_err(|why| format!("the value of {:?}: {why}", what(number)))?,
        };
        let is_its = match what(number) {
            What::Cell { writer, .. } => stamp.writer == writer && record.flags == flags_of(stamp.round),
            What::Member { group, .. } => stamp.writer == group % WRITERS && record.flags == 0,
            _ => record.flags == 0,
        };
        if stamp.number != number || !is_its {
            return Err(format!("{:?} has {stamp:?} with flags {}", what(number), record.flags));
        }
        if record.expiry.is_past(asked) {
            return Err(format!("{:?} is shown at {asked:?}, and it expired at {:?}", what(number), record.expiry));
        }
        let (version, expiry, value_bytes) = (record.version, record.expiry.0 as u32, value.len() as u64);
        Ok((number, Seen { round: stamp.round, writer: stamp.writer, version, expiry, value_bytes }))
    }
}

/// Gives other threads a chance in the middle of things.
fn jolted(region: Mapping) -> Hooked<'static, Mapping> {
    Hooked { region, at_load: &|| jolt(1 << 9), at_store: &|_| jolt(1 << 6), at_fence: &|| jolt(1 << 4) }
}

/// One time in so many, and for longer one time in a hundred of these.
fn jolt(one_in: u32) {
    thread_local!(static DRAWN: Local<u32> = const { Local::new(1) });
    let drawn = DRAWN.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    DRAWN.set(drawn);
    if (drawn >> 16).is_multiple_of(one_in) {
        if drawn >> 9 & 127 == 0 { thread::sleep(Duration::from_micros(50)) } else { thread::yield_now() }
    }
}
