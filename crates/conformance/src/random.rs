//! Random operations, on the subject and on the oracle: every answer must be the same but for the
//! versions' numbers.

use std::collections::HashSet;
use std::ops::Bound;

use stratakv_base::random::Random;
use stratakv_base::{Expiry, Key, Level};
use stratakv_engine::{ChangeKind, Expect, Operation, PageRequest, Record, RecordPart, Reply, Update};

use super::ask::{brief, delete_of, fill, get_of, key, page_of, put_of, put_with, shown, update_of, write_of};
use super::{Oracle, Subject};

/// Small values, 150 keys, 6,000 operations in groups; reopened now and then.
pub fn against_the_oracle(subject: &mut dyn Subject) {
    for seed in 1..=2 {
        Differential::new(subject, seed, 150, 2000).run(300, 10);
    }
}

/// Values of up to 200 KiB on 40 keys.
pub fn against_the_oracle_with_large_values(subject: &mut dyn Subject) {
    Differential::new(subject, 3, 40, 200 << 10).run(60, 8);
}

struct Differential<'a> {
    subject: &'a mut dyn Subject,
    oracle: Oracle,
    random: Random,
    seed: u64,
    keys: u64,
    value_bytes_max: u64,
    /// For each version the oracle gave, the subject's.
    versions: std::collections::HashMap<u64, u64>,
}

impl<'a> Differential<'a> {
    fn new(subject: &'a mut dyn Subject, seed: u64, keys: u64, value_bytes_max: u64) -> Self {
        let oracle = Oracle::at(subject.wall());
        let random = Random::new(seed);
        Differential { subject, oracle, random, seed, keys, value_bytes_max, versions: Default::default() }
    }

    fn run(mut self, groups: usize, group_len: u64) {
        for group in 0..groups {
            let operations = self.group(group_len);
            self.compare(group, operations);
            match self.random.below(40) {
                0 => self.subject.reopen(),
                1 | 2 => {
                    let millis = self.random.below(30_000);
                    self.subject.advance_wall(millis);
                    self.oracle.advance_wall(millis);
                }
                3..=7 if self.subject.capabilities().ordered => self.compare_scan(group),
                _ => {}
            }
        }
        self.subject.reopen();
        for number in 0..self.keys {
            self.compare(groups, vec![get_of(&self.key(number))]);
        }
    }

    /// Keys of one seed lie apart from those of another, so that a subject can be used again.
    fn key(&self, number: u64) -> Key {
        key(format!("{}/{:x}", self.seed, number * number * 7919 % 104_729))
    }

    /// Operations on different keys: in which order they happen cannot be seen.
    fn group(&mut self, len: u64) -> Vec<Operation> {
        let mut taken = HashSet::new();
        let mut group = Vec::new();
        for _ in 0..1 + self.random.below(len) {
            let number = self.random.below(self.keys);
            if taken.insert(number) {
                let key = self.key(number);
                group.push(self.operation(&key));
            }
        }
        group
    }

    fn operation(&mut self, key: &Key) -> Operation {
        let len = match self.random.below(3) {
            0 => self.random.below(self.value_bytes_max),
            _ => self.random.below(self.value_bytes_max.min(300)),
        };
        let value = fill(self.random.next_u64(), len as usize);
        let flags = self.random.next_u64() as u32;
        let expiry = match self.random.below(4) {
            0 => Expiry(self.oracle.wall().0 + self.random.below(60_000)),
            _ => Expiry::NEVER,
        };
        match self.random.below(20) {
            0..=5 => put_with(key, value, flags, expiry, Expect::Any),
            6..=9 => get_of(key),
            10 => Operation::Get { key: key.clone(), part: RecordPart::Meta },
            11 => {
                let part = RecordPart::Range { start: self.random.below(self.value_bytes_max), len };
                Operation::Get { key: key.clone(), part }
            }
            12 | 13 => delete_of(key),
            14 => put_with(key, value, flags, expiry, Expect::Absent),
            15 => write_of(key, Expect::Present, ChangeKind::Delete),
            16 => put_of(key, self.random.below(1000).to_string()),
            17 => update_of(key, Update::Append(fill(7, (len % 300) as usize))),
            18 => {
                let by = self.random.below(2000);
                let update = if by.is_multiple_of(2) { Update::Increment(by) } else { Update::Decrement(by) };
                update_of(key, update)
            }
            _ => update_of(key, Update::Touch(expiry)),
        }
    }

    fn compare(&mut self, group: usize, operations: Vec<Operation>) {
        let expected = self.oracle.execute_all(operations.clone());
        let found = self.subject.execute_all(operations.clone());
        assert_eq!(found.len(), expected.len(), "one reply for each operation");
        for ((operation, expected), found) in operations.iter().zip(&expected).zip(&found) {
            if let Some(difference) = self.difference(expected, found) {
                let (seed, what) = (self.seed, described(operation));
                panic!(
                    "seed {seed}, group {group}, {what}: {difference}; expected {}, found {}",
                    brief(expected),
                    brief(found)
                );
            }
        }
    }

    fn compare_scan(&mut self, group: usize) {
        let (low, high) = (self.random.below(self.keys), self.random.below(self.keys));
        let (from, to) = (Bound::Included(self.key(low)), Bound::Excluded(self.key(high)));
        let reverse = self.random.below(2) == 0;
        let request = PageRequest { items_max: 1 + self.random.below(20) as u32, ..page_of(from, to, reverse) };
        let expected = super::ask::scan(&mut self.oracle, request.clone());
        let found = super::ask::scan(self.subject, request);
        let keys = |items: &[(Key, _)]| items.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&found), keys(&expected), "seed {}, group {group}: keys of a scan", self.seed);
        for ((key, found), (_, expected)) in found.iter().zip(&expected) {
            let difference = self.difference(&Reply::Record(expected.clone()), &Reply::Record(found.clone()));
            assert_eq!(difference, None, "seed {}, group {group}: {} in a scan", self.seed, shown(key));
        }
    }

    /// What differs, if anything that matters does.
    fn difference(&mut self, expected: &Reply, found: &Reply) -> Option<&'static str> {
        match (expected, found) {
            (Reply::Done { version, existed }, Reply::Done { version: seen, existed: existed_there }) => {
                let unseen = self.subject.capabilities().blind && !existed_there;
                (existed != existed_there && !unseen).then_some("existed").or_else(|| self.version(*version, *seen))
            }
            (Reply::Record(Some(expected)), Reply::Record(Some(found))) => {
                let same_value = expected.value.to_bytes() == found.value.to_bytes();
                let meta = |record: &Record| (record.value_bytes, record.flags, record.expiry);
                (!same_value)
                    .then_some("the value")
                    .or_else(|| (meta(expected) != meta(found)).then_some("length, flags or expiry"))
            }
            (Reply::Record(None), Reply::Record(None)) => None,
            (Reply::Number { number, version }, Reply::Number { number: seen, version: seen_version }) => {
                (number != seen).then_some("the number").or_else(|| self.version(*version, *seen_version))
            }
            (Reply::Unmet(expected), Reply::Unmet(found)) => {
                (std::mem::discriminant(expected) != std::mem::discriminant(found)).then_some("what was unmet")
            }
            _ => Some("the kind of reply"),
        }
    }

    /// Versions of changes are new; 0 where nothing changed.
    fn version(&mut self, expected: u64, seen: u64) -> Option<&'static str> {
        if expected == 0 {
            return (seen != 0).then_some("a version though nothing was changed");
        }
        let fresh = !self.versions.values().any(|known| *known == seen);
        self.versions.insert(expected, seen);
        (!fresh).then_some("a version that another change has")
    }
}

fn described(operation: &Operation) -> String {
    match operation {
        Operation::Get { key, part } => format!("get {part:?} of {}", shown(key)),
        Operation::Update { key, update, .. } => match update {
            Update::Append(bytes) => format!("append {} bytes to {}", bytes.len(), shown(key)),
            Update::Prepend(bytes) => format!("prepend {} bytes to {}", bytes.len(), shown(key)),
            other => format!("{other:?} of {}", shown(key)),
        },
        Operation::Write { changes, level: Level::PowerLoss, .. } if changes.len() == 1 => match &changes[0].kind {
            ChangeKind::Put { value, .. } => {
                format!("put {} bytes under {}, {:?}", value.len(), shown(&changes[0].key), changes[0].expect)
            }
            ChangeKind::Delete => format!("delete {}, {:?}", shown(&changes[0].key), changes[0].expect),
            ChangeKind::Check => format!("check {:?} of {}", changes[0].expect, shown(&changes[0].key)),
        },
        other => format!("{other:?}"),
    }
}
