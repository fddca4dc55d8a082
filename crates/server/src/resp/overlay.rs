//! Records of several keys as they were read, and what commands make of them: in memory, until one
//! write makes all of it so.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::checksum::shard_of;
use stratakv_base::{Key, Wall};
use stratakv_engine::{Change, ChangeKind, Expect};
use stratakv_structures::tree::{NodeName, SearchNode, SearchedNode, TreeError, TreeRoot, is_tree};

use super::arguments::{RequestRefusal, key};
use super::cursors::Cursors;
use super::data::NewRecord;
use super::edit::too_long;
use super::node_reads::WantedNode;
use super::nodes::node_key;
use super::overlay_nodes::{NewNode, NodePlace, OverlayNodes};
use super::pubsub::{ListenKind, Publication};
use super::records::{Records, StoredRecord, head_of};

/// What a key beside its record takes.
pub(super) const ENTRY_BYTES: usize = 128;

/// How far records and trees may be looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OverlayLimits {
    /// Longest value.
    pub(crate) value_bytes_max: usize,
    /// Bytes of a tree that is read as a whole.
    pub(crate) whole_bytes_max: u64,
    pub(crate) has_trees: bool,
    pub(crate) shards: usize,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    entries: BTreeMap<Vec<u8>, OverlayRecord>,
    nodes: OverlayNodes,
    limits: OverlayLimits,
    cursors: Cursors,
    publications: Vec<Publication>,
    /// How many there were before the command that is carried out.
    published_before: usize,
    wall: Wall,
    /// Bytes of what was read, and of what was made.
    bytes: usize,
    /// Bytes that were looked at, since this was last asked.
    seen_bytes: Cell<usize>,
    /// What the command that is carried out has changed, the last one last.
    undo: Vec<UndoStep>,
}

#[derive(Clone, Debug)]
struct OverlayRecord {
    read: Option<ReadRecord>,
    new: NewRecord,
}

/// What something was before it was changed.
#[derive(Clone, Debug)]
enum UndoStep {
    Record(Vec<u8>, NewRecord),
    Node(NodePlace, NewNode),
}

/// A record as it was read. Of a value that is too long to be looked at there is the front only.
#[derive(Clone, Debug)]
pub(crate) struct ReadRecord {
    pub(crate) record: StoredRecord,
    pub(crate) version: u64,
    pub(crate) value_bytes: u64,
}

/// The write that makes an overlay so.
pub(crate) struct OverlayChanges {
    /// One for each key, the changed ones last, then nodes.
    pub(crate) changes: Vec<Change>,
    /// How many records are changed.
    pub(crate) changed: usize,
    /// Keys whose tree is not that of before: its nodes are to be removed.
    pub(crate) orphaned: Vec<Key>,
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

    /// Whether the record was the root of a tree that is not there any more.
    fn leaves_nodes(&self) -> bool {
        let id = |record: Option<&StoredRecord>| record.and_then(|record| TreeRoot::id_of(&record.value));
        let before = id(self.read.as_ref().map(|read| &read.record));
        before.is_some() && before != id(self.now())
    }
}

impl Overlay {
    /// One without records.
    pub(crate) fn new(limits: OverlayLimits, cursors: Cursors, wall: Wall) -> Overlay {
        Overlay { limits, cursors, wall, ..Overlay::default() }
    }

    /// What was read of a key.
    pub(crate) fn insert(&mut self, key: &Key, read: Option<ReadRecord>) {
        let entry = OverlayRecord { read, new: NewRecord::Unchanged };
        self.bytes += entry.bytes() + key.user().len();
        self.entries.insert(key.user().to_vec(), entry);
    }

    /// A node of the structure of a user's key, as it was read.
    pub(crate) fn insert_node(&mut self, user: &[u8], name: NodeName, image: Bytes) {
        self.nodes.insert(user, name, image);
    }

    /// Whether nodes were read: what was told of them is true only if their root is what it was.
    pub(crate) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The version of a record as it was read.
    pub(crate) fn version(&self, key: &Key) -> Option<u64> {
        self.entries.get(key.user())?.read.as_ref().map(|read| read.version)
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes + self.nodes.held_bytes()
    }

    /// Bytes of records that commands have looked at, since this was last asked.
    pub(crate) fn take_seen_bytes(&self) -> usize {
        self.seen_bytes.take() + self.nodes.take_seen_bytes()
    }

    /// A command begins, perhaps again: what it changes can be undone.
    pub(crate) fn begin_command(&mut self) {
        self.undo.clear();
        self.published_before = self.publications.len();
    }

    /// A command is done.
    pub(crate) fn end_command(&mut self) {
        self.undo.clear();
        self.nodes.end_command();
    }

    /// Whether the record of a key is the root of a tree, or becomes one.
    pub(crate) fn has_tree(&self, key: &Key) -> bool {
        let Some(entry) = self.entries.get(key.user()) else { return false };
        let read = entry.read.as_ref().map(|read| &read.record);
        [read, entry.now()].into_iter().flatten().any(|record| is_tree(&record.value))
    }

    /// Whether a record is changed.
    pub(crate) fn has_changes(&self) -> bool {
        self.entries.values().any(|entry| entry.new != NewRecord::Unchanged)
    }

    /// The nodes that the command has missed; none: it is done. Nodes that would be useful are
    /// asked for once.
    pub(crate) fn take_missing(&mut self) -> Vec<WantedNode> {
        self.nodes.take_missing()
    }

    /// Undoes what the command has changed.
    pub(crate) fn roll_back(&mut self) {
        let published = self.publications.drain(self.published_before.min(self.publications.len())..);
        self.bytes -= published.map(|publication| publication.held_bytes()).sum::<usize>();
        while let Some(step) = self.undo.pop() {
            match step {
                UndoStep::Record(key, new) => _ = self.set_record(&key, new),
                UndoStep::Node(place, new) => self.nodes.undo(place, new),
            }
        }
    }

    /// The messages that are to be sent.
    pub(crate) fn take_publications(&mut self) -> Vec<Publication> {
        std::mem::take(&mut self.publications)
    }

    /// What it was before.
    fn set_record(&mut self, key: &[u8], new: NewRecord) -> Option<NewRecord> {
        let entry = self.entries.get_mut(key)?;
        self.bytes -= entry.bytes();
        let before = std::mem::replace(&mut entry.new, new);
        self.bytes += entry.bytes();
        Some(before)
    }

    fn make(&mut self, key: &[u8], new: NewRecord) {
        debug_assert!(self.entries.contains_key(key), "a command's keys are read before it runs");
        let existed = self.entries.get(key).is_some_and(|entry| entry.read.is_some());
        let new = if new == NewRecord::Deleted { NewRecord::deleted(existed) } else { new };
        if let Some(before) = self.set_record(key, new) {
            self.undo.push(UndoStep::Record(key.to_vec(), before));
        }
    }

    /// The write that makes it so. Keys that were not changed must be as they were read.
    pub(crate) fn into_changes(self) -> OverlayChanges {
        let (mut changes, mut checks, mut orphaned) = (Vec::new(), Vec::new(), Vec::new());
        for (name, entry) in self.entries {
            let Ok(key) = key(&name) else { continue };
            if entry.leaves_nodes() {
                orphaned.push(key.clone());
            }
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
        if changed > 0 {
            checks.extend(self.nodes.into_changes());
        }
        OverlayChanges { changes: checks, changed, orphaned }
    }
}

impl Records for Overlay {
    fn get(&self, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        let most = self.limits.value_bytes_max;
        let long =
            entry.read.as_ref().filter(|read| entry.new == NewRecord::Unchanged && read.value_bytes > most as u64);
        match long {
            Some(read) => Err(too_long(read.value_bytes, most)),
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

    fn node(&self, key: &[u8], name: NodeName, bytes: u64) -> Result<Bytes, TreeError> {
        self.nodes.read(key, name, bytes)
    }

    fn searched_node(
        &self,
        at: (&[u8], NodeName),
        bytes: u64,
        search: &SearchNode<'_>,
    ) -> Result<Arc<SearchedNode>, TreeError> {
        self.nodes.read_searched(at, bytes, search)
    }

    fn has_node(&self, key: &[u8], name: NodeName, bytes: u64) -> bool {
        self.nodes.has(key, name, bytes)
    }

    fn put_node(&mut self, key: &[u8], name: NodeName, image: Option<Bytes>) {
        let new = image.map_or(NewNode::Deleted, NewNode::Put);
        let (place, before) = self.nodes.put(key, name, new, None);
        self.undo.push(UndoStep::Node(place, before));
    }

    fn put_searched_node(&mut self, key: &[u8], name: NodeName, node: SearchedNode) {
        let new = NewNode::Put(node.image().clone());
        let (place, before) = self.nodes.put(key, name, new, Some(node));
        self.undo.push(UndoStep::Node(place, before));
    }

    fn usable_number(&self, key: &[u8], id: u64, from: u64) -> u64 {
        let Ok(root) = super::arguments::key(key) else { return from };
        let shards = self.limits.shards.max(1);
        let wanted = shard_of(root.encoded(), shards);
        // Each has one chance in as many as there are shards; in the end any number will do.
        let candidates = from..from.saturating_add(64 * shards as u64);
        let is_there = |number: &u64| {
            shards == 1 || shard_of(node_key(key, NodeName { id, number: *number }).encoded(), shards) == wanted
        };
        candidates.into_iter().find(is_there).unwrap_or(from)
    }

    fn has_trees(&self) -> bool {
        self.limits.has_trees
    }

    fn scan_place(&self, key: &[u8], cursor: u64) -> Option<Bytes> {
        self.cursors.element(cursor, key)
    }

    fn keep_scan_place(&self, key: &[u8], from: u64, next: Bytes) -> u64 {
        self.cursors.keep_element(from, key, next, self.wall)
    }

    fn whole_bytes_max(&self) -> u64 {
        self.limits.whole_bytes_max
    }

    fn publish(&mut self, at: usize, kind: ListenKind, (channel, message): (Bytes, Bytes)) {
        let publication = Publication { at, kind, channel, message };
        self.bytes += publication.held_bytes();
        self.publications.push(publication);
    }
}
