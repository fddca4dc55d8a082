//! Records of several keys as they were read, and what commands make of them: in memory, until one
//! write makes all of it so.

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use stratakv_base::{Key, Wall};
use stratakv_engine::{Change, ChangeKind, Expect};

use super::arguments::{RequestRefusal, key};
use super::data::NewRecord;
use super::edit::too_long;
use super::pubsub::{ListenKind, Publication};
use super::records::{Records, StoredRecord, head_of};

/// What a key beside its record takes.
pub(super) const ENTRY_BYTES: usize = 128;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    entries: BTreeMap<Vec<u8>, OverlayRecord>,
    publications: Vec<Publication>,
    value_bytes_max: usize,
    wall: Wall,
    /// Bytes of what was read, and of what was made.
    bytes: usize,
    /// Bytes that were looked at, since this was last asked.
    seen_bytes: Cell<usize>,
}

#[derive(Clone, Debug)]
struct OverlayRecord {
    read: Option<ReadRecord>,
    new: NewRecord,
}

/// A record as it was read. Of a value that is too long to be looked at there is the front only.
#[derive(Clone, Debug)]
pub(crate) struct ReadRecord {
    pub(crate) record: StoredRecord,
    pub(crate) version: u64,
    pub(crate) value_bytes: u64,
}

impl OverlayRecord {
    fn now(&self) -> Option<&StoredRecord> {
        self.new.after(self.read.as_ref().map(|read| &read.record))
    }

    fn bytes(&self) -> usize {
        let read = self.read.as_ref().map_or(0, |read| read.record.value.len());
        let new = if let NewRecord::Put(record) = &self.new { record.value.len() } else { 0 };
        ENTRY_BYTES + read + new
    }
}

impl Overlay {
    /// One without records, for commands that look at values of so many bytes at most.
    pub(crate) fn new(value_bytes_max: usize, wall: Wall) -> Overlay {
        Overlay { value_bytes_max, wall, ..Overlay::default() }
    }

    /// What was read of a key.
    pub(crate) fn insert(&mut self, key: &Key, read: Option<ReadRecord>) {
        let entry = OverlayRecord { read, new: NewRecord::Unchanged };
        self.bytes += entry.bytes() + key.user().len();
        self.entries.insert(key.user().to_vec(), entry);
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of records that commands have looked at, since this was last asked.
    pub(crate) fn take_seen_bytes(&self) -> usize {
        self.seen_bytes.take()
    }

    fn make(&mut self, key: &[u8], new: NewRecord) {
        debug_assert!(self.entries.contains_key(key), "a command's keys are read before it runs");
        if let Some(entry) = self.entries.get_mut(key) {
            self.bytes -= entry.bytes();
            entry.new = match new {
                NewRecord::Deleted => NewRecord::deleted(entry.read.is_some()),
                new => new,
            };
            self.bytes += entry.bytes();
        }
    }

    /// The messages that are to be sent.
    pub(crate) fn take_publications(&mut self) -> Vec<Publication> {
        std::mem::take(&mut self.publications)
    }

    /// The write that makes it so: a change for each key, the changed ones last, and whether there
    /// is one that is no check. Keys that were not changed must be as they were read.
    pub(crate) fn into_changes(self) -> (Vec<Change>, usize) {
        let (mut changes, mut checks) = (Vec::new(), Vec::new());
        for (name, entry) in self.entries {
            let Ok(key) = key(&name) else { continue };
            let expect = entry.read.map_or(Expect::Absent, |read| Expect::Version(read.version));
            let kind = match entry.new {
                NewRecord::Unchanged => {
                    checks.push(Change { key, expect, kind: ChangeKind::Check });
                    continue;
                }
                NewRecord::Put(StoredRecord { value, flags, expiry }) => ChangeKind::Put { value, flags, expiry },
                NewRecord::Deleted => ChangeKind::Delete,
            };
            changes.push(Change { key, expect, kind });
        }
        let changed = changes.len();
        checks.append(&mut changes);
        (checks, changed)
    }
}

impl Records for Overlay {
    fn get(&self, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        let long = entry
            .read
            .as_ref()
            .filter(|read| entry.new == NewRecord::Unchanged && read.value_bytes > self.value_bytes_max as u64);
        match long {
            Some(read) => Err(too_long(read.value_bytes, self.value_bytes_max)),
            None => {
                let record = entry.now().cloned();
                let bytes = record.as_ref().map_or(0, |record| record.value.len());
                self.seen_bytes.set(self.seen_bytes.get() + bytes);
                Ok(record)
            }
        }
    }

    fn head(&self, key: &[u8]) -> Option<StoredRecord> {
        self.entries.get(key)?.now().map(head_of)
    }

    fn put(&mut self, key: &[u8], record: StoredRecord) {
        let is_past = record.expiry.is_past(self.wall);
        self.make(key, if is_past { NewRecord::Deleted } else { NewRecord::Put(record) });
    }

    fn delete(&mut self, key: &[u8]) {
        self.make(key, NewRecord::Deleted);
    }

    fn publish(&mut self, at: usize, kind: ListenKind, (channel, message): (Bytes, Bytes)) {
        let publication = Publication { at, kind, channel, message };
        self.bytes += publication.held_bytes();
        self.publications.push(publication);
    }
}
