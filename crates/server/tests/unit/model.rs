//! A store in a map, for tests and the fuzzer of connections: answers late and in any order, shows
//! writes only when they are answered.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use stratakv_base::random::Random;
use stratakv_base::{Expiry, Key, Wall};
use stratakv_engine::{
    Change, ChangeKind, Error, Expect, Hold, Item, Operation, PageRequest, Record, RecordPart, Reply, Unmet, Update,
    Value,
};

use crate::connection::{Submission, Target};

/// There are versions before those that are given.
const FIRST_VERSION: u64 = 100;

#[derive(Clone)]
struct Held {
    value: Vec<u8>,
    flags: u32,
    version: u64,
    expiry: Expiry,
}

/// See the module.
pub(crate) struct Model {
    records: BTreeMap<Key, Held>,
    /// Of each key by itself, so that it does not depend on what happens to others in between.
    versions: BTreeMap<Key, u64>,
    wall: Wall,
    /// Reads have their answer from the moment they came; writes are carried out when they are
    /// answered.
    waiting: Vec<(u32, Result<Reply, Operation>)>,
    pub(crate) shards: usize,
    /// Values longer than this are answered slice by slice, the first of this length; shorter ones
    /// whole, as all of them is read.
    pub(crate) front_bytes: Option<usize>,
    /// Who asks for too little of a value is told how long it is, and nothing is read.
    pub(crate) tells_longer: bool,
    /// Gets that were asked for.
    pub(crate) gets: u64,
    /// Bytes of values that gets read.
    pub(crate) read_bytes: u64,
    holds: Vec<(Hold, Held)>,
    /// How many of a hundred operations fail.
    pub(crate) failures_percent: u64,
    /// The longest value that it takes.
    pub(crate) value_bytes_max: usize,
}

impl Model {
    pub(crate) fn new(wall: Wall) -> Model {
        Model {
            records: BTreeMap::new(),
            versions: BTreeMap::new(),
            wall,
            waiting: Vec::new(),
            shards: 3,
            front_bytes: None,
            tells_longer: false,
            gets: 0,
            read_bytes: 0,
            holds: Vec::new(),
            failures_percent: 0,
            value_bytes_max: usize::MAX,
        }
    }

    pub(crate) fn take(&mut self, Submission { sequence, operation, target }: Submission) {
        let copies = if target == Target::Every { self.shards } else { 1 };
        for _ in 0..copies {
            let waiting = match &operation {
                // All lie in the first shard, and a page has one.
                Operation::Page(page) => Ok(self.page(page, target)),
                Operation::Get { key, part } => Ok(self.get(key, *part)),
                _ => Err(operation.clone()),
            };
            self.waiting.push((sequence, waiting));
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Answers one operation: any read, or the oldest write of any key.
    pub(crate) fn answer(&mut self, random: &mut Random) -> (u32, Reply) {
        let pick = random.below(self.waiting.len() as u64) as usize;
        let pick = match &self.waiting[pick].1 {
            Ok(_) => pick,
            Err(_) => self.waiting.iter().position(|(_, waiting)| waiting.is_err()).unwrap(),
        };
        let (sequence, waiting) = self.waiting.remove(pick);
        if self.failures_percent > 0 && random.below(100) < self.failures_percent {
            let errors =
                [Error::Full("no free page"), Error::Busy, Error::ValueTooLarge { len_bytes: 2, max_bytes: 1 }];
            return (sequence, Reply::Failed(errors[random.below(3) as usize].clone()));
        }
        (sequence, waiting.unwrap_or_else(|operation| self.carry_out(operation)))
    }

    /// Long values are answered slice by slice, to those who take them so.
    fn get(&mut self, key: &Key, part: RecordPart) -> Reply {
        self.gets += 1;
        match part {
            RecordPart::Sliced { hold: 0, start: 0, len } => {
                let Some(held) = self.live(key) else { return Reply::Record(None) };
                if self.tells_longer && part.expected_bytes() < Some(held.value.len() as u64) {
                    return Reply::Longer(held.value.len() as u64 + 4096);
                }
                self.read_bytes += held.value.len() as u64;
                if self.front_bytes.is_none_or(|front_bytes| held.value.len() <= front_bytes) {
                    let range = RecordPart::Range { start: 0, len: len.into() };
                    let part = if self.front_bytes.is_some() { RecordPart::Whole } else { range };
                    return Reply::Record(Some(record_part(&held, part)));
                }
                let front = RecordPart::Range { start: 0, len: self.front_bytes.unwrap_or_default() as u64 };
                let hold = Hold::new(self.holds.len() as u64 + 1);
                let front = record_part(&held, front);
                self.holds.push((hold.clone(), held));
                Reply::Part(front, hold)
            }
            RecordPart::Sliced { hold, start, len } => {
                let (handle, held) = &self.holds[hold as usize - 1];
                assert!(!handle.is_over(), "who asks holds it");
                let value = held.value[start as usize..][..len as usize].to_vec();
                Reply::Record(Some(Record { value: Value::Inline(value.into()), ..record(held) }))
            }
            part => Reply::Record(self.live(key).map(|held| record_part(&held, part))),
        }
    }

    fn live(&self, key: &Key) -> Option<Held> {
        self.records.get(key).filter(|held| !held.expiry.is_past(self.wall)).cloned()
    }

    fn carry_out(&mut self, operation: Operation) -> Reply {
        match operation {
            Operation::Write { mut changes, .. } if changes.len() == 1 => self.change(changes.remove(0)),
            Operation::Write { changes, .. } => self.batch(changes),
            Operation::Update { key, update, .. } => self.update(key, update),
            Operation::DeleteRange { range, .. } => {
                let before = self.records.len();
                use std::ops::RangeBounds;
                self.records.retain(|key, _| !range.contains(key));
                Reply::Number { number: (before - self.records.len()) as u64, version: 0 }
            }
            other => panic!("connections do not ask for {other:?}"),
        }
    }

    fn page(&self, page: &PageRequest, target: Target) -> Reply {
        let mut rest = self.records.range((page.from.clone(), page.to.clone()));
        let found = rest.find(|(_, held)| !held.expiry.is_past(self.wall)).filter(|_| target == Target::Shard(0));
        let items =
            found.map(|(key, held)| Item { key: key.clone(), record: Some(record(held)) }).into_iter().collect();
        Reply::Page { items, next: found.map(|(key, _)| Bound::Excluded(key.clone())) }
    }

    /// All of them, if all conditions hold.
    fn batch(&mut self, changes: Vec<Change>) -> Reply {
        for Change { key, expect, .. } in &changes {
            let held = self.live(key);
            if let Some(unmet) = expect.unmet(held.is_some(), held.map(|held| held.version)) {
                return Reply::Unmet(unmet);
            }
        }
        let replies = changes.into_iter().map(|change| self.change(change));
        replies.last().expect("a batch has changes")
    }

    fn change(&mut self, Change { key, expect, kind }: Change) -> Reply {
        let found = self.live(&key);
        let unmet = match (expect, &found) {
            (Expect::Absent, Some(held)) => Some(Unmet::Present { version: held.version }),
            (Expect::Present | Expect::Version(_), None) => Some(Unmet::Absent),
            (Expect::Version(version), Some(held)) if held.version != version => {
                Some(Unmet::Version { found: held.version })
            }
            _ => None,
        };
        if let Some(unmet) = unmet {
            return Reply::Unmet(unmet);
        }
        if let ChangeKind::Put { value, .. } = &kind
            && value.len() > self.value_bytes_max
        {
            return self.too_large(value.len());
        }
        let version = self.next_version(&key);
        match kind {
            ChangeKind::Put { value, flags, expiry } => {
                self.records.insert(key, Held { value: value.to_vec(), flags, version, expiry });
            }
            ChangeKind::Delete => _ = self.records.remove(&key),
            ChangeKind::Check => {}
        }
        Reply::Done { version, existed: found.is_some() }
    }

    fn update(&mut self, key: Key, update: Update) -> Reply {
        let version = self.versions.get(&key).copied().unwrap_or(FIRST_VERSION) + 1;
        let Some(mut held) = self.live(&key) else {
            let made = match stratakv_engine::update::create(&update) {
                Ok(made) => made,
                Err(reply) => return reply,
            };
            let (flags, expiry) = (made.flags.unwrap_or(0), Expiry(made.expiry));
            self.versions.insert(key.clone(), version);
            self.records.insert(key, Held { value: made.value.to_vec(), flags, version, expiry });
            return Reply::Done { version, existed: false };
        };
        let number = || stratakv_base::decimal::unsigned(&held.value);
        let reply = match update {
            Update::Append(bytes) => {
                held.value.extend_from_slice(&bytes);
                Reply::Done { version, existed: true }
            }
            Update::Prepend(bytes) => {
                held.value = [&bytes[..], &held.value].concat();
                Reply::Done { version, existed: true }
            }
            Update::Edit(edit) => match edit.apply(&held.value.clone().into(), held.flags, held.expiry) {
                Ok(updated) => {
                    (held.value, held.expiry) = (updated.value.to_vec(), Expiry(updated.expiry));
                    held.flags = updated.flags.unwrap_or(held.flags);
                    Reply::Done { version, existed: true }
                }
                Err(error) => return error.into(),
            },
            Update::Touch(expiry) => {
                (held.expiry, held.version) = (expiry, version);
                Reply::Record(Some(record(&held)))
            }
            Update::Increment(_) | Update::Decrement(_) => {
                let Some(number) = number() else { return Reply::Unmet(Unmet::NotANumber) };
                let number = match update {
                    Update::Increment(delta) => number.wrapping_add(delta),
                    Update::Decrement(delta) => number.saturating_sub(delta),
                    _ => number,
                };
                held.value = stratakv_base::decimal::padded(number, held.value.len());
                Reply::Number { number, version }
            }
        };
        if held.value.len() > self.value_bytes_max {
            return self.too_large(held.value.len());
        }
        held.version = self.next_version(&key);
        self.records.insert(key, held);
        reply
    }

    fn too_large(&self, len: usize) -> Reply {
        let (len_bytes, max_bytes) = (len as u64, self.value_bytes_max as u64);
        Reply::Failed(Error::ValueTooLarge { len_bytes, max_bytes })
    }

    fn next_version(&mut self, key: &Key) -> u64 {
        let version = self.versions.entry(key.clone()).or_insert(FIRST_VERSION);
        *version += 1;
        *version
    }
}

fn record_part(held: &Held, part: RecordPart) -> Record {
    let whole = held.value.len() as u64;
    let (start, end) = match part {
        RecordPart::Range { start, len } => (start.min(whole), start.saturating_add(len).min(whole)),
        RecordPart::Whole => (0, whole),
        RecordPart::Meta => (0, 0),
        other => panic!("connections do not ask for {other:?}"),
    };
    let value = Bytes::copy_from_slice(&held.value[start as usize..end as usize]);
    Record { value: Value::Inline(value), ..record(held) }
}

fn record(held: &Held) -> Record {
    Record {
        value: Value::Inline(Bytes::from(held.value.clone())),
        value_bytes: held.value.len() as u64,
        flags: held.flags,
        version: held.version,
        expiry: held.expiry,
    }
}
