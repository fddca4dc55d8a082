//! The contract as an ordered map: no medium, no batching, nothing to get wrong.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use bytes::Bytes;
use stratakv_base::key::KeyError;
use stratakv_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use stratakv_base::{Expiry, Key, Wall};
use stratakv_engine::{
    Capabilities, Capability, Change, ChangeKind, Error, Expect, Item, ListRequest, Operation, PageRequest, Record,
    RecordPart, Reply, Unmet, Update, Value, update,
};

use super::Subject;

/// What the contract says, in memory. Ordered; reopening changes nothing.
#[derive(Clone, Debug)]
pub struct Oracle {
    records: BTreeMap<Key, Stored>,
    version: u64,
    wall: Wall,
}

#[derive(Clone, Debug)]
struct Stored {
    value: Bytes,
    flags: u32,
    expiry: Expiry,
    version: u64,
}

impl Stored {
    fn record(&self, part: RecordPart) -> Record {
        let len = self.value.len() as u64;
        let value = match part {
            RecordPart::Meta => Bytes::new(),
            RecordPart::Whole => self.value.clone(),
            RecordPart::Sliced { start, len: count, .. } => {
                return self.record(RecordPart::Range { start, len: count.into() });
            }
            RecordPart::Range { start, len: count } => {
                self.value.slice(start.min(len) as usize..start.saturating_add(count).min(len) as usize)
            }
        };
        Record {
            value: Value::Inline(value),
            value_bytes: len,
            flags: self.flags,
            version: self.version,
            expiry: self.expiry,
        }
    }
}

impl Oracle {
    /// An empty one whose clock stands at `wall`.
    pub fn at(wall: Wall) -> Oracle {
        Oracle { records: BTreeMap::new(), version: 0, wall }
    }

    /// For a shard that is an oracle with a log.
    #[cfg(test)]
    pub(super) fn set_wall(&mut self, wall: Wall) {
        self.wall = wall;
    }

    #[cfg(test)]
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    #[cfg(test)]
    pub(super) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    #[cfg(test)]
    pub(super) fn restore(&mut self, key: Key, record: Option<Record>) {
        let Some(record) = record else {
            self.records.remove(&key);
            return;
        };
        let stored = Stored {
            value: record.value.to_bytes(),
            flags: record.flags,
            expiry: record.expiry,
            version: record.version,
        };
        self.records.insert(key, stored);
    }

    fn live(&self, key: &Key) -> Option<&Stored> {
        self.records.get(key).filter(|stored| !stored.expiry.is_past(self.wall))
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn write(&mut self, changes: Vec<Change>) -> Result<Reply, Reply> {
        for change in &changes {
            check_limits(change)?;
            self.check_condition(change)?;
        }
        let mut reply = Reply::Done { version: 0, existed: false };
        for change in changes {
            if matches!(change.kind, ChangeKind::Check) {
                continue;
            }
            let existed = self.live(&change.key).is_some();
            let version =
                if existed || matches!(change.kind, ChangeKind::Put { .. }) { self.next_version() } else { 0 };
            match change.kind {
                ChangeKind::Put { value, flags, expiry } => {
                    self.records.insert(change.key, Stored { value, flags, expiry, version });
                }
                ChangeKind::Delete => {
                    self.records.remove(&change.key);
                }
                ChangeKind::Check => {}
            }
            reply = Reply::Done { version, existed };
        }
        Ok(reply)
    }

    fn check_condition(&self, change: &Change) -> Result<(), Reply> {
        let found = self.live(&change.key).map(|stored| stored.version);
        match (change.expect, found) {
            (Expect::Any, _) | (Expect::Absent, None) | (Expect::Present, Some(_)) => Ok(()),
            (Expect::Absent, Some(version)) => Err(Reply::Unmet(Unmet::Present { version })),
            (Expect::Present | Expect::Version(_), None) => Err(Reply::Unmet(Unmet::Absent)),
            (Expect::Version(wanted), Some(found)) if wanted == found => Ok(()),
            (Expect::Version(_), Some(found)) => Err(Reply::Unmet(Unmet::Version { found })),
        }
    }

    fn update(&mut self, key: Key, update: Update) -> Result<Reply, Reply> {
        let Some(old) = self.live(&key).cloned() else {
            let update::UpdatedRecord { value, expiry, flags, .. } = update::create(&update)?;
            check_value(&value)?;
            let version = self.next_version();
            let stored = Stored { value, flags: flags.unwrap_or(0), expiry: Expiry(expiry), version };
            self.records.insert(key, stored);
            return Ok(Reply::Done { version, existed: false });
        };
        let (mut new, mut number) = (old.clone(), None);
        match update {
            Update::Append(bytes) => new.value = [old.value, bytes].concat().into(),
            Update::Prepend(bytes) => new.value = [bytes, old.value].concat().into(),
            Update::Increment(by) => {
                let sum = decimal(&old.value)?.wrapping_add(by);
                (new.value, number) = (padded(sum, old.value.len()), Some(sum));
            }
            Update::Decrement(by) => {
                let difference = decimal(&old.value)?.saturating_sub(by);
                (new.value, number) = (padded(difference, old.value.len()), Some(difference));
            }
            Update::Touch(expiry) => new.expiry = expiry,
            Update::Edit(edit) => {
                let updated = edit.apply(&old.value, old.flags, old.expiry)?;
                (new.value, new.expiry) = (updated.value, Expiry(updated.expiry));
                new.flags = updated.flags.unwrap_or(old.flags);
            }
        }
        check_value(&new.value)?;
        new.version = self.next_version();
        let reply = match number {
            Some(number) => Reply::Number { number, version: new.version },
            None => Reply::Done { version: new.version, existed: true },
        };
        self.records.insert(key, new);
        Ok(reply)
    }

    fn page(&self, request: &PageRequest) -> Reply {
        if request.at.is_some() {
            return Reply::Failed(Error::Unsupported(Capability::Snapshot));
        }
        let range = (request.from.clone(), request.to.clone());
        let live =
            self.records.iter().filter(|(key, stored)| range.contains(*key) && !stored.expiry.is_past(self.wall));
        let live: Box<dyn Iterator<Item = (&Key, &Stored)>> =
            if request.reverse { Box::new(live.rev()) } else { Box::new(live) };
        let (mut items, mut bytes) = (Vec::<Item>::new(), 0u64);
        for (key, stored) in live {
            if items.len() >= request.items_max as usize || bytes >= u64::from(request.bytes_max) && !items.is_empty() {
                return Reply::Page { next: items.last().map(|item| Bound::Excluded(item.key.clone())), items };
            }
            let record = (!request.keys_only).then(|| stored.record(RecordPart::Whole));
            bytes += key.user().len() as u64 + record.as_ref().map_or(0, |record| record.value_bytes);
            items.push(Item { key: key.clone(), record });
        }
        Reply::Page { items, next: None }
    }

    /// In the order of their hashes.
    fn list(&self, request: &ListRequest) -> Reply {
        let is_listed = |(key, stored): &(&Key, &Stored)| {
            key.collection() == request.collection && !stored.expiry.is_past(self.wall)
        };
        let hash = |key: &Key| stratakv_base::checksum::shard_of(key.encoded(), usize::MAX) as u64;
        let records = self.records.iter().filter(is_listed).map(|(key, stored)| (hash(key), key, stored));
        let mut left: Vec<_> = records.filter(|(hash, ..)| *hash >= request.cursor).collect();
        left.sort_by_key(|(hash, ..)| *hash);
        let next = left.get(request.items_max.max(1) as usize).map(|(hash, ..)| *hash);
        let page = left.into_iter().take_while(|(hash, ..)| next.is_none_or(|next| *hash < next));
        let item = |(_, key, stored): (u64, &Key, &Stored)| Item {
            key: key.clone(),
            record: Some(stored.record(RecordPart::Meta)),
        };
        Reply::Listed { items: page.map(item).collect(), next }
    }

    fn delete_range(&mut self, range: (Bound<Key>, Bound<Key>)) -> Reply {
        let wall = self.wall;
        let inside: Vec<(Key, bool)> = self
            .records
            .iter()
            .filter(|(key, _)| range.contains(*key))
            .map(|(key, stored)| (key.clone(), !stored.expiry.is_past(wall)))
            .collect();
        inside.iter().for_each(|(key, _)| drop(self.records.remove(key)));
        let version = self.next_version();
        Reply::Number { number: inside.iter().filter(|(_, live)| *live).count() as u64, version }
    }
}

fn check_limits(change: &Change) -> Result<(), Reply> {
    match change.key.user().len() {
        0 => return Err(Reply::Failed(KeyError::Empty.into())),
        len if len > KEY_BYTES_MAX => return Err(Reply::Failed(KeyError::TooLong(len).into())),
        _ => {}
    }
    match &change.kind {
        ChangeKind::Put { value, .. } => check_value(value),
        ChangeKind::Delete | ChangeKind::Check => Ok(()),
    }
}

fn check_value(value: &[u8]) -> Result<(), Reply> {
    let (len_bytes, max_bytes) = (value.len() as u64, VALUE_BYTES_MAX as u64);
    if len_bytes > max_bytes { Err(Reply::Failed(Error::ValueTooLarge { len_bytes, max_bytes })) } else { Ok(()) }
}

/// The number that a value begins with.
fn decimal(value: &[u8]) -> Result<u64, Reply> {
    stratakv_base::decimal::unsigned(value).ok_or(Reply::Unmet(Unmet::NotANumber))
}

/// memcached's rule: the length never shrinks.
fn padded(number: u64, len: usize) -> Bytes {
    stratakv_base::decimal::padded(number, len).into()
}

impl Subject for Oracle {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, snapshot: false, durable: true, evicting: false, blind: false }
    }

    fn execute(&mut self, operation: Operation) -> Reply {
        let reply = match operation {
            Operation::Get { key, part } => Ok(Reply::Record(self.live(&key).map(|stored| stored.record(part)))),
            Operation::Update { key, update: Update::Touch(expiry), .. } => self
                .update(key.clone(), Update::Touch(expiry))
                .map(|_| Reply::Record(self.records.get(&key).map(|stored| stored.record(RecordPart::Whole)))),
            Operation::Update { key, update, .. } => self.update(key, update),
            Operation::Write { changes, .. } => self.write(changes),
            Operation::Load { .. } => Err(Reply::Failed(Error::Unsupported(Capability::Load))),
            Operation::Page(request) => Ok(self.page(&request)),
            Operation::List(request) => Ok(self.list(&request)),
            Operation::DeleteRange { range, .. } => Ok(self.delete_range(*range)),
            Operation::Snapshot(_) => Err(Reply::Failed(Error::Unsupported(Capability::Snapshot))),
            Operation::Backup { .. } => Err(Reply::Failed(Error::Unsupported(Capability::Backup))),
            Operation::Sync => Ok(Reply::Done { version: self.version, existed: false }),
        };
        reply.unwrap_or_else(|refusal| refusal)
    }

    fn reopen(&mut self) {}

    fn wall(&self) -> Wall {
        self.wall
    }

    fn advance_wall(&mut self, millis: u64) {
        self.wall.0 += millis;
    }
}
