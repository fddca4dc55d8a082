//! Removes nodes of long structures whose root has gone or is another one, a few at a time: other
//! operations run in between.
//!
//! Nodes are asked for in the order of their keys, so that those of one structure follow each
//! other. Those of one that is there are passed over at once. The others go in batches, each on the
//! condition that the record of the key is what it was when it was looked at.

use std::collections::VecDeque;
use std::ops::Bound;
use std::time::Duration;

use stratakv_base::{CollectionId, Key, Mono};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Item, Operation, PageRequest, Record, RecordPart, Reply};
use stratakv_structures::tree::{NodeName, TreeRoot};
use stratakv_structures::{Kind, STRUCTURE_FLAGS, kind_of};

use super::{TAG_SWEEP, Worker, after, submit};
use crate::connection::Target;
use crate::orphans::{NodeRange, OrphanQueue, nodes_of};
use crate::resp::nodes::{node_key, split_node_key};

/// Nodes that one batch removes.
const REMOVED_AT_ONCE: u32 = 128;
/// Bytes of a page of their keys.
const PAGE_BYTES: u32 = 32 << 10;
/// As much of a root tells its id.
const ROOT_FRONT_BYTES: u64 = 20;
/// Structures that are looked at for one removed key: those of longer keys may lie in between.
const STRUCTURES_OF_A_KEY: u32 = 16;
/// Between two structures of the slow walk.
const STEP_EVERY: Duration = Duration::from_millis(5);
/// Before the first walk, between two, and before one that is wanted soon.
const FIRST_WALK_AFTER: Duration = Duration::from_secs(1);
const WALK_EVERY: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NodeSweeper {
    stage: SweepStage,
    pub(super) orphans: OrphanQueue,
    /// What it is at, then what is next.
    ranges: VecDeque<NodeRange>,
    /// When it goes on; `None`: at once.
    rests_until: Option<Mono>,
    /// When all nodes are looked at again.
    walk_at: Option<Mono>,
}

#[derive(Debug, Default)]
enum SweepStage {
    #[default]
    Idle,
    /// The next nodes of the range are asked for.
    Paging,
    /// The record is asked for whose nodes these are.
    AskingRoot { nodes: Vec<Key>, root: Key, name: NodeName },
    /// These were removed.
    Removing { last: Key, count: u64 },
}

impl Worker {
    /// Goes on with what is to be looked at, if it is time.
    pub(super) fn sweep_nodes(&mut self) {
        let now = self.driver.now().mono;
        if self.times.drain_until.is_some() || !matches!(self.sweeper.stage, SweepStage::Idle) {
            return;
        }
        self.begin_walk(now);
        while let Some(key) = self.sweeper.orphans.pop() {
            let (from, to) = nodes_of(&key);
            let shard = self.shared.store.shard_of(&key);
            // Before a walk, which goes on later.
            self.sweeper.ranges.push_front(NodeRange { shard, from, to, structures_max: STRUCTURES_OF_A_KEY });
            self.sweeper.rests_until = None;
        }
        if self.sweeper.rests_until.is_some_and(|until| until > now) {
            return;
        }
        self.sweeper.rests_until = None;
        self.ask_for_nodes();
    }

    /// All nodes are looked at now and then, by the first thread.
    fn begin_walk(&mut self, now: Mono) {
        if self.index != 0 {
            return;
        }
        let sweeps = &self.shared.resp.sweeps;
        let walk_at = *self.sweeper.walk_at.get_or_insert(after(now, FIRST_WALK_AFTER));
        if walk_at > now || !self.sweeper.ranges.is_empty() {
            return;
        }
        let next = if sweeps.take_wanted() { FIRST_WALK_AFTER } else { WALK_EVERY };
        self.sweeper.walk_at = Some(after(now, next));
        let from = Key::bound(CollectionId::NODES, b"");
        let to = Bound::Excluded(Key::bound(CollectionId(CollectionId::NODES.0 + 1), b""));
        let range = |shard| NodeRange { shard, from: from.clone(), to: to.clone(), structures_max: u32::MAX };
        self.sweeper.ranges.extend((0..self.shared.store.shards()).map(range));
    }

    /// A client has removed everything: what it leaves goes soon.
    pub(super) fn sweep_soon(&mut self) {
        let now = self.driver.now().mono;
        self.sweeper.walk_at = self.sweeper.walk_at.map(|at| at.min(after(now, SOON)));
    }

    /// When the sweeper has something to do.
    pub(super) fn sweeps_at(&self) -> Option<Mono> {
        if !matches!(self.sweeper.stage, SweepStage::Idle) || self.times.drain_until.is_some() {
            return None;
        }
        let now = self.driver.now().mono;
        if !self.sweeper.orphans.is_empty() {
            return Some(now);
        }
        match self.sweeper.ranges.is_empty() {
            // The first tick says when the first walk is.
            true => self.sweeper.walk_at.or((self.index == 0).then_some(now)),
            false => Some(self.sweeper.rests_until.unwrap_or(now)),
        }
    }

    fn ask_for_nodes(&mut self) {
        let Some(range) = self.sweeper.ranges.front() else { return };
        let page = PageRequest {
            from: Bound::Included(range.from.clone()),
            to: range.to.clone(),
            reverse: false,
            keys_only: true,
            items_max: REMOVED_AT_ONCE,
            bytes_max: PAGE_BYTES,
            at: None,
        };
        let target = Target::Shard(range.shard);
        self.sweeper.stage = SweepStage::Paging;
        submit(&mut self.driver, &self.shared, TAG_SWEEP, target, Operation::Page(page.into()));
    }

    /// The reply to an operation of the server's own. Apart: beside it replies to clients were
    /// copied once more.
    #[cold]
    #[expect(clippy::boxed_local, reason = "a reply that is not in a box would be copied by the caller")]
    pub(super) fn own_reply(&mut self, tag: u64, reply: Box<Reply>) {
        match (tag, *reply) {
            (TAG_SWEEP, reply) => self.swept(reply),
            (_, Reply::Failed(error)) => tracing::error!(%error, "a delayed flush_all failed"),
            _ => {}
        }
    }

    /// An operation of the sweeper is done.
    fn swept(&mut self, reply: Reply) {
        tracing::trace!(stage = ?self.sweeper.stage, ?reply, "nodes of structures are looked at");
        match (std::mem::take(&mut self.sweeper.stage), reply) {
            (SweepStage::Paging, Reply::Page { items, .. }) => self.nodes_came(items),
            (SweepStage::AskingRoot { nodes, root, name }, Reply::Record(record)) => {
                match record.as_ref().is_some_and(|record| may_be_root(record, name)) {
                    true => self.pass(&root, name),
                    false => self.remove(nodes, root, record.map(|record| record.version)),
                }
            }
            (SweepStage::Removing { last, count }, Reply::Done { .. }) => {
                self.counters().structure_nodes_removed.add(count);
                self.go_on_behind(&last);
            }
            // The record of the key is another one: it is looked at again.
            (SweepStage::Removing { .. }, Reply::Unmet(_)) => self.sweeper.rests_until = self.rest(),
            (_, reply) => {
                if let Reply::Failed(error) = &reply
                    && !matches!(error, Error::Unsupported(_))
                {
                    tracing::debug!(%error, "nodes of structures cannot be looked at now");
                }
                // A walk comes again.
                self.sweeper.ranges.clear();
            }
        }
    }

    fn rest(&self) -> Option<Mono> {
        Some(after(self.driver.now().mono, STEP_EVERY))
    }

    /// The first nodes of a range: those of one structure are looked at.
    fn nodes_came(&mut self, items: Vec<Item>) {
        let keys = items.into_iter().map(|item| item.key);
        let nodes: Vec<Key> = keys.filter(|key| key.collection() == CollectionId::NODES).collect();
        let Some(first) = nodes.first() else {
            self.sweeper.ranges.pop_front();
            return;
        };
        self.shared.resp.sweeps.note_nodes();
        let root = split_node_key(first).and_then(|(user, name)| Some((crate::resp::key(user).ok()?, name)));
        let Some((root, name)) = root else {
            // Nobody's.
            let first = first.clone();
            return self.go_on_behind(&first);
        };
        let is_same =
            |key: &Key| split_node_key(key).is_some_and(|(user, other)| user == root.user() && other.id == name.id);
        let nodes = nodes.into_iter().take_while(is_same).collect();
        let part = RecordPart::Range { start: 0, len: ROOT_FRONT_BYTES };
        let operation = Operation::Get { key: root.clone(), part };
        self.sweeper.stage = SweepStage::AskingRoot { nodes, root, name };
        submit(&mut self.driver, &self.shared, TAG_SWEEP, Target::Key, operation);
    }

    fn remove(&mut self, nodes: Vec<Key>, root: Key, version: Option<u64>) {
        let Some(last) = nodes.last().cloned() else { return };
        let expect = version.map_or(Expect::Absent, Expect::Version);
        let count = nodes.len() as u64;
        let check = Change { key: root, expect, kind: ChangeKind::Check };
        let deletes = nodes.into_iter().map(|key| Change { key, expect: Expect::Any, kind: ChangeKind::Delete });
        let changes = std::iter::once(check).chain(deletes).collect();
        let operation = Operation::Write { changes, level: self.shared.resp.batch_level };
        self.sweeper.stage = SweepStage::Removing { last, count };
        submit(&mut self.driver, &self.shared, TAG_SWEEP, Target::Batch, operation);
    }

    /// The nodes are those of a structure that is there.
    fn pass(&mut self, root: &Key, name: NodeName) {
        if let Some(range) = self.sweeper.ranges.front_mut() {
            range.structures_max = range.structures_max.saturating_sub(1);
        }
        self.go_on_behind(&node_key(root.user(), NodeName { id: name.id, number: u64::MAX }));
    }

    /// The next nodes of the range lie behind this key.
    fn go_on_behind(&mut self, key: &Key) {
        let rest = self.rest();
        let Some(range) = self.sweeper.ranges.front_mut() else { return };
        // A walk takes its time.
        self.sweeper.rests_until = if range.structures_max > STRUCTURES_OF_A_KEY { rest } else { None };
        range.from = Key::bound(CollectionId::NODES, &[key.user(), b"\0"].concat());
        if range.is_over() || range.structures_max == 0 {
            self.sweeper.ranges.pop_front();
        }
    }
}

/// Whether a record is the root of the tree with these nodes. Whose nodes the root of a newer
/// layout has, this program cannot tell: it keeps them all.
fn may_be_root(record: &Record, name: NodeName) -> bool {
    let front = record.value.to_bytes();
    record.flags == STRUCTURE_FLAGS
        && (TreeRoot::id_of(&front) == Some(name.id) || kind_of(record.flags, &front) == Kind::Newer)
}
