//! What the library's user asks, and what a store owes: plain maps.

use std::collections::{BTreeMap, VecDeque};

use stratakv::End;
use stratakv_base::decimal;
use stratakv_base::random::Random;

/// Names of collections; the first one is the default one, which has none.
pub(super) const COLLECTIONS: [&str; 4] = ["", "ants", "bees", "cows"];
pub(super) const LISTS: [&str; 2] = ["queue", "stack"];

/// Keys of a collection, more than a page of an index has.
const KEYS: u64 = 90;
/// What is loaded at once, at most.
const LOADED_MAX: u64 = 60;

/// All that a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) collections: BTreeMap<&'static str, Contents<BTreeMap<Vec<u8>, ModelRecord>>>,
    pub(super) lists: BTreeMap<&'static str, Contents<VecDeque<Vec<u8>>>>,
}

/// What a name stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents<T> {
    /// When all of it expires, in milliseconds of the wall clock; 0: never.
    pub(super) expires: u64,
    pub(super) holds: T,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelRecord {
    pub(super) value: Vec<u8>,
    pub(super) expires: u64,
}

/// One change of a batch.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Put { of: &'static str, key: Vec<u8>, value: Vec<u8> },
    Delete { of: &'static str, key: Vec<u8> },
    Push { list: &'static str, end: End, value: Vec<u8> },
}

/// One call of the library.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Put {
        of: &'static str,
        key: Vec<u8>,
        value: Vec<u8>,
        lifetime_ms: u64,
    },
    Delete {
        of: &'static str,
        key: Vec<u8>,
    },
    Increment {
        of: &'static str,
        key: Vec<u8>,
        by: u64,
    },
    Batch(Vec<Change>),
    /// Moves a record, and an element from one list to the other, as one.
    Move {
        from: (&'static str, Vec<u8>),
        to: (&'static str, Vec<u8>),
        end: End,
    },
    Load {
        of: &'static str,
        first: u64,
        count: u64,
        value: Vec<u8>,
    },
    DeleteRange {
        of: &'static str,
        from: Vec<u8>,
        to: Vec<u8>,
    },
    PushAll {
        list: &'static str,
        end: End,
        values: Vec<Vec<u8>>,
    },
    Pop {
        list: &'static str,
        end: End,
    },
    Insert {
        list: &'static str,
        index: usize,
        value: Vec<u8>,
    },
    Drop {
        name: &'static str,
    },
    Expire {
        name: &'static str,
        after_ms: u64,
    },
    Sync,
}

/// What a call answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Done,
    Was(bool),
    Number(u64),
    NotANumber,
    Count(u64),
    Value(Option<Vec<u8>>),
}

/// How much of a call may be there though it was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wholeness {
    /// All of it or nothing.
    Whole,
    /// Each record by itself.
    Each,
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:03}").into_bytes()
}

fn drawn<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// Draws calls; no two values are the same.
#[derive(Debug)]
pub(super) struct Calls {
    counter: u64,
    value_bytes_max: u64,
    /// Few keys meet one another more often.
    keys: u64,
    /// Percentage of calls about collections as a whole.
    names: u64,
}

impl Calls {
    pub(super) fn new(random: &mut Random) -> Calls {
        Calls {
            counter: 0,
            value_bytes_max: drawn(random, &[20, 120, 120, 1_500, 9_000]),
            keys: drawn(random, &[4, 12, KEYS]),
            names: drawn(random, &[4, 12, 30]),
        }
    }

    fn value(&mut self, random: &mut Random) -> Vec<u8> {
        self.counter += 1;
        if random.below(5) == 0 {
            return (self.counter * 1_000).to_string().into_bytes();
        }
        // Many records of equal length.
        let len = if random.below(2) == 0 { self.value_bytes_max } else { random.below(self.value_bytes_max + 1) };
        let unit = format!("<{}>", self.counter);
        unit.bytes().cycle().take((len as usize).max(unit.len())).collect()
    }

    fn key(&self, random: &mut Random) -> Vec<u8> {
        key(random.below(self.keys))
    }

    fn change(&mut self, random: &mut Random) -> Change {
        let of = drawn(random, &COLLECTIONS);
        match random.below(8) {
            0 => Change::Push { list: drawn(random, &LISTS), end: end(random), value: self.value(random) },
            1 | 2 => Change::Delete { of, key: self.key(random) },
            _ => Change::Put { of, key: self.key(random), value: self.value(random) },
        }
    }

    pub(super) fn draw(&mut self, random: &mut Random) -> Call {
        if random.below(100) < self.names {
            return self.draw_of_names(random);
        }
        let of = drawn(random, &COLLECTIONS);
        match random.below(20) {
            0..=5 => {
                let lifetime_ms = drawn(random, &[0, 0, 0, 3_000, 20_000]);
                Call::Put { of, key: self.key(random), value: self.value(random), lifetime_ms }
            }
            6 | 7 => Call::Delete { of, key: self.key(random) },
            8 => Call::Increment { of, key: self.key(random), by: 1 + random.below(50) },
            9..=11 => {
                let count = 1 + random.below(6);
                Call::Batch((0..count).map(|_| self.change(random)).collect())
            }
            12 | 13 => {
                let to = (drawn(random, &COLLECTIONS), self.key(random));
                Call::Move { from: (of, self.key(random)), to, end: end(random) }
            }
            14 => {
                let (first, count) = (random.below(KEYS), 1 + random.below(LOADED_MAX));
                Call::Load { of, first, count: count.min(KEYS - first), value: self.value(random) }
            }
            15 => {
                let (from, to) = (random.below(self.keys + 1), random.below(self.keys + 1));
                Call::DeleteRange { of, from: key(from.min(to)), to: key(from.max(to)) }
            }
            16 => {
                let values = (0..1 + random.below(5)).map(|_| self.value(random)).collect();
                Call::PushAll { list: drawn(random, &LISTS), end: end(random), values }
            }
            17 | 18 => Call::Pop { list: drawn(random, &LISTS), end: end(random) },
            _ => {
                let index = random.below(6) as usize;
                Call::Insert { list: drawn(random, &LISTS), index, value: self.value(random) }
            }
        }
    }

    fn draw_of_names(&self, random: &mut Random) -> Call {
        let name = if random.below(3) == 0 { drawn(random, &LISTS) } else { drawn(random, &COLLECTIONS[1..]) };
        match random.below(5) {
            0 | 1 => Call::Drop { name },
            2 | 3 => Call::Expire { name, after_ms: drawn(random, &[0, 2_000, 2_000, 15_000]) },
            _ => Call::Sync,
        }
    }
}

fn end(random: &mut Random) -> End {
    if random.below(2) == 0 { End::Front } else { End::Back }
}

impl Call {
    /// Collections and lists that it makes if there are none, in that order.
    pub(super) fn makes(&self) -> Vec<&'static str> {
        match self {
            Call::Put { of, .. }
            | Call::Delete { of, .. }
            | Call::Increment { of, .. }
            | Call::Load { of, .. }
            | Call::DeleteRange { of, .. } => vec![of],
            Call::PushAll { list, .. } | Call::Pop { list, .. } | Call::Insert { list, .. } => vec![list],
            Call::Batch(changes) => changes.iter().map(Change::of).collect(),
            Call::Move { from, to, .. } => vec![from.0, to.0, LISTS[0], LISTS[1]],
            Call::Drop { .. } | Call::Expire { .. } | Call::Sync => Vec::new(),
        }
    }

    pub(super) fn wholeness(&self) -> Wholeness {
        match self {
            Call::Load { .. } | Call::DeleteRange { .. } | Call::PushAll { .. } => Wholeness::Each,
            _ => Wholeness::Whole,
        }
    }

    /// Every key that calls have.
    pub(super) fn all_keys() -> impl Iterator<Item = Vec<u8>> {
        (0..KEYS).map(key)
    }

    /// Keys of a load, in order.
    pub(super) fn loaded(first: u64, count: u64) -> impl Iterator<Item = Vec<u8>> {
        (first..first + count).map(key)
    }
}

impl Change {
    fn of(&self) -> &'static str {
        match self {
            Change::Put { of, .. } | Change::Delete { of, .. } => of,
            Change::Push { list, .. } => list,
        }
    }
}

impl Model {
    /// An empty store: the default collection is there.
    pub(super) fn with_default() -> Model {
        let mut model = Model::default();
        model.make(COLLECTIONS[0]);
        model
    }

    /// Makes what a name stands for, if there is nothing.
    pub(super) fn make(&mut self, name: &'static str) {
        if LISTS.contains(&name) {
            self.lists.entry(name).or_default();
        } else {
            self.collections.entry(name).or_default();
        }
    }

    /// Forgets what has expired; the names that have.
    pub(super) fn expire(&mut self, wall_ms: u64) -> Vec<&'static str> {
        let is_past = |expires: u64| expires != 0 && expires <= wall_ms;
        let mut gone = Vec::new();
        self.collections.retain(|name, contents| {
            gone.extend(is_past(contents.expires).then_some(*name));
            !is_past(contents.expires)
        });
        self.lists.retain(|name, contents| {
            gone.extend(is_past(contents.expires).then_some(*name));
            !is_past(contents.expires)
        });
        self.collections.values_mut().for_each(|contents| contents.holds.retain(|_, held| !is_past(held.expires)));
        gone
    }

    fn records(&mut self, of: &'static str) -> &mut BTreeMap<Vec<u8>, ModelRecord> {
        &mut self.collections.entry(of).or_default().holds
    }

    fn elements(&mut self, list: &'static str) -> &mut VecDeque<Vec<u8>> {
        &mut self.lists.entry(list).or_default().holds
    }

    fn put(&mut self, of: &'static str, key: &[u8], value: &[u8]) {
        self.records(of).insert(key.to_vec(), ModelRecord { value: value.to_vec(), expires: 0 });
    }

    fn push(&mut self, list: &'static str, end: End, value: &[u8]) {
        match end {
            End::Front => self.elements(list).push_front(value.to_vec()),
            End::Back => self.elements(list).push_back(value.to_vec()),
        }
    }

    fn pop(&mut self, list: &'static str, end: End) -> Option<Vec<u8>> {
        match end {
            End::Front => self.elements(list).pop_front(),
            End::Back => self.elements(list).pop_back(),
        }
    }

    /// Carries a call out; what it answers.
    pub(super) fn carry_out(&mut self, call: &Call, wall_ms: u64) -> Told {
        match call {
            Call::Put { of, key, value, lifetime_ms } => {
                let expires = if *lifetime_ms == 0 { 0 } else { wall_ms + lifetime_ms };
                self.records(of).insert(key.clone(), ModelRecord { value: value.clone(), expires });
                Told::Done
            }
            Call::Delete { of, key } => Told::Was(self.records(of).remove(key).is_some()),
            Call::Increment { of, key, by } => self.increment(of, key, *by),
            Call::Batch(changes) => {
                for change in changes {
                    match change {
                        Change::Put { of, key, value } => self.put(of, key, value),
                        Change::Delete { of, key } => _ = self.records(of).remove(key),
                        Change::Push { list, end, value } => self.push(list, *end, value),
                    }
                }
                Told::Done
            }
            Call::Move { from, to, end } => {
                let held = self.records(from.0).remove(&from.1);
                if let Some(held) = &held {
                    self.put(to.0, &to.1, &held.value);
                }
                if let Some(element) = self.pop(LISTS[0], *end) {
                    self.push(LISTS[1], *end, &element);
                }
                Told::Value(held.map(|held| held.value))
            }
            Call::Load { of, first, count, value } => {
                Call::loaded(*first, *count).for_each(|key| self.put(of, &key, value));
                Told::Count(*count)
            }
            Call::DeleteRange { of, from, to } => {
                let records = self.records(of);
                let before = records.len();
                records.retain(|key, _| key < from || key >= to);
                Told::Count((before - records.len()) as u64)
            }
            Call::PushAll { list, end, values } => {
                // They stay in the order in which they are given.
                match end {
                    End::Front => values.iter().rev().for_each(|value| self.push(list, *end, value)),
                    End::Back => values.iter().for_each(|value| self.push(list, *end, value)),
                }
                Told::Done
            }
            Call::Pop { list, end } => Told::Value(self.pop(list, *end)),
            Call::Insert { list, index, value } => {
                let elements = self.elements(list);
                let is_there = *index <= elements.len();
                if is_there {
                    elements.insert(*index, value.clone());
                }
                Told::Was(is_there)
            }
            Call::Drop { name } => {
                let was = self.collections.remove(name).is_some();
                Told::Was(self.lists.remove(name).is_some() || was)
            }
            Call::Expire { name, after_ms } => {
                let expires = if *after_ms == 0 { 0 } else { wall_ms + after_ms };
                let of_collection = self.collections.get_mut(name).map(|contents| contents.expires = expires);
                let of_list = self.lists.get_mut(name).map(|contents| contents.expires = expires);
                Told::Was(of_collection.or(of_list).is_some())
            }
            Call::Sync => Told::Done,
        }
    }

    fn increment(&mut self, of: &'static str, key: &[u8], by: u64) -> Told {
        let records = self.records(of);
        let Some(held) = records.get_mut(key) else {
            records.insert(key.to_vec(), ModelRecord { value: by.to_string().into_bytes(), expires: 0 });
            return Told::Number(by);
        };
        let Some(number) = decimal::unsigned(&held.value) else { return Told::NotANumber };
        held.value = decimal::padded(number + by, held.value.len());
        Told::Number(number + by)
    }

    /// What is wrong with a store that holds this, if it may be in any of these states; records of
    /// `each` may be in either of the last two.
    pub(super) fn judge(&self, candidates: &[Model], each: bool) -> Result<(), String> {
        if candidates.contains(self) {
            return Ok(());
        }
        let (Some(after), before) = (candidates.last(), candidates.iter().rev().nth(1)) else {
            return Err("nothing is known of it".into());
        };
        if each && before.is_some_and(|before| self.is_between(before, after)) {
            return Ok(());
        }
        let each = candidates.iter().map(|candidate| self.first_difference(std::slice::from_ref(candidate)));
        Err(each.collect::<Vec<_>>().join("; or else "))
    }

    /// Whether each record is as in one of the two. Of a list as much as there is was pushed.
    fn is_between(&self, before: &Model, after: &Model) -> bool {
        let names = |model: &Model| model.collections.keys().copied().collect::<Vec<_>>();
        if names(self) != names(after) || !self.lists.keys().eq(after.lists.keys()) {
            return false;
        }
        let records = self.collections.iter().all(|(name, contents)| {
            let of =
                |model: &Model, key: &Vec<u8>| model.collections.get(name).and_then(|all| all.holds.get(key).cloned());
            let keys = contents.holds.keys().chain(after.collections[name].holds.keys());
            let old = before.collections.get(name).into_iter().flat_map(|all| all.holds.keys());
            contents.expires == after.collections[name].expires
                && keys.chain(old).all(|key| {
                    let found = contents.holds.get(key).cloned();
                    found == of(before, key) || found == of(after, key)
                })
        });
        records
            && self.lists.iter().all(|(name, contents)| {
                let (old, new) = (before.lists.get(name).map(|one| &one.holds), &after.lists[name].holds);
                let is_part = |whole: &VecDeque<Vec<u8>>| contents.holds.iter().all(|element| whole.contains(element));
                contents.holds.len() >= old.map_or(0, VecDeque::len)
                    && contents.holds.len() <= new.len()
                    && is_part(new)
            })
    }

    fn first_difference(&self, candidates: &[Model]) -> String {
        let Some(owed) = candidates.last() else { return String::new() };
        if self.collections.keys().ne(owed.collections.keys()) || self.lists.keys().ne(owed.lists.keys()) {
            let names = |model: &Model| format!("{:?} {:?}", model.collections.keys(), model.lists.keys());
            let all: Vec<String> = candidates.iter().map(names).collect();
            return format!("its names are {}, and should be one of {}", names(self), all.join(" or "));
        }
        for (name, contents) in &self.collections {
            let due = &owed.collections[name];
            if contents.expires != due.expires {
                return format!("`{name}` expires at {}, and should at {}", contents.expires, due.expires);
            }
            for key in contents.holds.keys().chain(due.holds.keys()) {
                let of = |model: &Model| show(model.collections.get(name).and_then(|all| all.holds.get(key)));
                let states: Vec<String> = candidates.iter().map(of).collect();
                if contents.holds.get(key) != due.holds.get(key) {
                    let (key, found) = (String::from_utf8_lossy(key), show(contents.holds.get(key)));
                    return format!("{key} of `{name}` is {found}, and should be {}", states.join(" or "));
                }
            }
        }
        format!("its lists are {:?}, and should be {:?}", brief(self), candidates.iter().map(brief).collect::<Vec<_>>())
    }
}

fn show(held: Option<&ModelRecord>) -> String {
    held.map_or("nothing".into(), |held| {
        let shown = &held.value[..held.value.len().min(20)];
        format!("{} ({} bytes, expires {})", String::from_utf8_lossy(shown), held.value.len(), held.expires)
    })
}

fn brief(model: &Model) -> Vec<(&'static str, u64, Vec<String>)> {
    let short = |value: &Vec<u8>| String::from_utf8_lossy(&value[..value.len().min(12)]).into_owned();
    let one = |(name, contents): (&&'static str, &Contents<VecDeque<Vec<u8>>>)| {
        (*name, contents.expires, contents.holds.iter().map(short).collect())
    };
    model.lists.iter().map(one).collect()
}
