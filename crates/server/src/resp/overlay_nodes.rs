//! Nodes of the long structures in an overlay: as they were read, and what commands make of them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{Expiry, Key};
use stratakv_engine::{Change, ChangeKind, Expect};
use stratakv_structures::Damaged;
use stratakv_structures::tree::{NodeName, SearchNode, SearchedNode, TreeError};

use super::node_reads::WantedNode;
use super::nodes::node_key;
use super::overlay::ENTRY_BYTES;

/// Looking at a node that was looked through before.
const SEARCH_BYTES: usize = 128;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct OverlayNodes {
    /// Users' keys whose structures have nodes here, numbered.
    owners: HashMap<Box<[u8]>, u32>,
    nodes: HashMap<NodePlace, OverlayNode>,
    /// What is kept of nodes takes some, too.
    bytes: Cell<usize>,
    seen_bytes: Cell<usize>,
    missing: RefCell<MissingNodes>,
}

/// Which node of whose structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodePlace {
    owner: u32,
    id: u64,
    number: u64,
}

/// A node as it was read, if it was, and what becomes of it.
#[derive(Clone, Debug, Default)]
struct OverlayNode {
    read: Option<Bytes>,
    new: NewNode,
    /// What was found out about its bytes, now or before a change was undone.
    searched: RefCell<Option<Arc<SearchedNode>>>,
}

#[derive(Clone, Debug, Default)]
pub(super) enum NewNode {
    #[default]
    Unchanged,
    Put(Bytes),
    Deleted,
}

/// Nodes that a command could not go on without, and those that would be useful.
#[derive(Clone, Debug, Default)]
struct MissingNodes {
    needed: HashMap<Key, WantedNode>,
    useful: HashMap<Key, WantedNode>,
    /// Useful ones were read: the command goes on without more of them.
    had_useful: bool,
}

impl OverlayNode {
    fn now(&self) -> Option<&Bytes> {
        match &self.new {
            NewNode::Unchanged => self.read.as_ref(),
            NewNode::Put(image) => Some(image),
            NewNode::Deleted => None,
        }
    }

    fn bytes(&self) -> usize {
        let new = if let NewNode::Put(image) = &self.new { image.len() } else { 0 };
        let searched = self.searched.borrow().as_ref().map_or(0, |searched| searched.held_bytes());
        ENTRY_BYTES + self.read.as_ref().map_or(0, Bytes::len) + new + searched
    }

    /// What is kept, if it is about the bytes that the node has now.
    fn searched(&self) -> Option<Arc<SearchedNode>> {
        let (searched, now) = (self.searched.borrow(), self.now()?);
        let is_of = |searched: &&Arc<SearchedNode>| {
            let image = searched.image();
            image.as_ptr() == now.as_ptr() && image.len() == now.len()
        };
        searched.as_ref().filter(is_of).cloned()
    }
}

impl OverlayNodes {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Bytes of memory that they take.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Bytes that were looked at, since this was last asked.
    pub(super) fn take_seen_bytes(&self) -> usize {
        self.seen_bytes.take()
    }

    fn add_bytes(&self, more: usize, less: usize) {
        self.bytes.set(self.bytes.get() + more - less);
    }

    fn see(&self, bytes: usize) {
        self.seen_bytes.set(self.seen_bytes.get() + bytes);
    }

    fn place(&self, user: &[u8], name: NodeName) -> Option<NodePlace> {
        let owner = *self.owners.get(user)?;
        Some(NodePlace { owner, id: name.id, number: name.number })
    }

    /// The same of a user's key that may be new here.
    fn new_place(&mut self, user: &[u8], name: NodeName) -> NodePlace {
        self.place(user, name).unwrap_or_else(|| {
            let owner = self.owners.len() as u32;
            self.owners.insert(user.into(), owner);
            self.add_bytes(ENTRY_BYTES + user.len(), 0);
            NodePlace { owner, id: name.id, number: name.number }
        })
    }

    /// Changes what is known of a node.
    fn change<T>(&mut self, place: NodePlace, change: impl FnOnce(&mut OverlayNode) -> T) -> T {
        let node = self.nodes.entry(place).or_insert_with(|| {
            let node = OverlayNode::default();
            self.bytes.set(self.bytes.get() + node.bytes());
            node
        });
        let before = node.bytes();
        let changed = change(node);
        let after = node.bytes();
        self.add_bytes(after, before);
        changed
    }

    /// A node as it was read.
    pub(super) fn insert(&mut self, user: &[u8], name: NodeName, image: Bytes) {
        let place = self.new_place(user, name);
        // A command of the same group may have freed it meanwhile, without a look at it.
        self.change(place, |node| node.read = Some(image));
    }

    /// The bytes of a node now. One that was not read is noted as missing.
    ///
    /// # Errors
    /// It is missing, or removed.
    pub(super) fn read(&self, user: &[u8], name: NodeName, bytes: u64) -> Result<Bytes, TreeError> {
        let image = self.find(user, name, bytes)?.now().ok_or(Damaged::new("a node is in it twice"))?;
        self.see(image.len());
        Ok(image.clone())
    }

    /// The same of an inner node, which is looked through once.
    ///
    /// # Errors
    /// As [`OverlayNodes::read`], and those of `search`.
    pub(super) fn read_searched(
        &self,
        (user, name): (&[u8], NodeName),
        bytes: u64,
        search: &SearchNode<'_>,
    ) -> Result<Arc<SearchedNode>, TreeError> {
        let node = self.find(user, name, bytes)?;
        if let Some(searched) = node.searched() {
            self.see(SEARCH_BYTES);
            return Ok(searched);
        }
        let image = node.now().ok_or(Damaged::new("a node is in it twice"))?;
        self.see(image.len());
        let (searched, before) = (Arc::new(search(image.clone())?), node.bytes());
        node.searched.replace(Some(Arc::clone(&searched)));
        self.add_bytes(node.bytes(), before);
        Ok(searched)
    }

    fn find(&self, user: &[u8], name: NodeName, bytes: u64) -> Result<&OverlayNode, TreeError> {
        self.place(user, name).and_then(|place| self.nodes.get(&place)).ok_or_else(|| {
            let wanted = WantedNode { key: node_key(user, name), name, bytes };
            self.missing.borrow_mut().needed.insert(wanted.key.clone(), wanted);
            TreeError::Missing
        })
    }

    /// Whether it can be read now; if not, it is noted as useful.
    pub(super) fn has(&self, user: &[u8], name: NodeName, bytes: u64) -> bool {
        let node = self.place(user, name).and_then(|place| self.nodes.get(&place));
        let has = node.is_some_and(|node| node.now().is_some());
        if !has {
            let wanted = WantedNode { key: node_key(user, name), name, bytes };
            self.missing.borrow_mut().useful.insert(wanted.key.clone(), wanted);
        }
        has
    }

    /// Gives a node these bytes, or removes it; what is known of the bytes may be kept. What it was
    /// before, so that it can be undone.
    pub(super) fn put(
        &mut self,
        user: &[u8],
        name: NodeName,
        new: NewNode,
        searched: Option<SearchedNode>,
    ) -> (NodePlace, NewNode) {
        let place = self.new_place(user, name);
        let before = self.change(place, |node| {
            if let Some(searched) = searched {
                node.searched.replace(Some(Arc::new(searched)));
            }
            std::mem::replace(&mut node.new, new)
        });
        (place, before)
    }

    /// Makes a node what it was before a change.
    pub(super) fn undo(&mut self, place: NodePlace, new: NewNode) {
        let is_unknown = self.change(place, |node| {
            node.new = new;
            node.now().is_none() && matches!(node.new, NewNode::Unchanged)
        });
        if is_unknown && let Some(node) = self.nodes.remove(&place) {
            // It was never read: nothing is known of it.
            self.add_bytes(0, node.bytes());
        }
    }

    /// The nodes that the command has missed; none: it is done. Nodes that would be useful are
    /// asked for once.
    pub(super) fn take_missing(&mut self) -> Vec<WantedNode> {
        let missing = self.missing.get_mut();
        let mut wanted = std::mem::take(&mut missing.needed);
        let useful = std::mem::take(&mut missing.useful);
        if !wanted.is_empty() || !missing.had_useful {
            missing.had_useful |= !useful.is_empty();
            wanted.extend(useful);
        }
        wanted.into_values().collect()
    }

    /// A command is done: the next one misses others.
    pub(super) fn end_command(&mut self) {
        self.missing.take();
    }

    /// What is written of them. Nobody else writes them: all who do change their root as well.
    pub(super) fn into_changes(self) -> impl Iterator<Item = Change> {
        let mut users: Vec<(u32, Box<[u8]>)> = self.owners.into_iter().map(|(user, owner)| (owner, user)).collect();
        users.sort_unstable_by_key(|(owner, _)| *owner);
        self.nodes.into_iter().filter_map(move |(place, node)| {
            let kind = match node.new {
                NewNode::Put(value) => ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER },
                // One that was made and removed was never there, and one that was not read is.
                NewNode::Deleted => ChangeKind::Delete,
                NewNode::Unchanged => return None,
            };
            let (_, user) = users.get(place.owner as usize)?;
            let key = node_key(user, NodeName { id: place.id, number: place.number });
            Some(Change { key, expect: Expect::Any, kind })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: NodeName = NodeName { id: 7, number: 1 };

    fn is_damaged(nodes: &OverlayNodes) -> bool {
        matches!(nodes.read(b"k", NAME, 10), Err(TreeError::Damaged(_)))
    }

    #[test]
    fn a_node_that_was_freed_unread_by_a_command_that_is_undone_is_missing_again() {
        let mut nodes = OverlayNodes::default();
        let (place, before) = nodes.put(b"k", NAME, NewNode::Deleted, None);
        assert!(is_damaged(&nodes), "it is not there any more");
        nodes.undo(place, before);
        assert!(matches!(nodes.read(b"k", NAME, 10), Err(TreeError::Missing)));
        assert_eq!((nodes.nodes.len(), nodes.held_bytes()), (0, ENTRY_BYTES + 1), "whose it was is still known");
    }

    #[test]
    fn a_node_that_comes_after_it_was_freed_stays_freed() {
        let mut nodes = OverlayNodes::default();
        nodes.put(b"k", NAME, NewNode::Deleted, None);
        nodes.insert(b"k", NAME, Bytes::from_static(b"a node"));
        assert!(is_damaged(&nodes));
        let (mine, all) = (nodes.nodes.values().map(OverlayNode::bytes).sum::<usize>(), nodes.held_bytes());
        assert_eq!(all, mine + ENTRY_BYTES + 1);
        let changes: Vec<Change> = nodes.into_changes().collect();
        assert!(matches!(&changes[..], [Change { kind: ChangeKind::Delete, key, .. }] if *key == node_key(b"k", NAME)));
    }

    #[test]
    fn nodes_of_several_keys_are_told_apart_though_their_names_are_equal() {
        let mut nodes = OverlayNodes::default();
        nodes.insert(b"one", NAME, Bytes::from_static(b"1"));
        nodes.insert(b"other", NAME, Bytes::from_static(b"2"));
        assert_eq!(nodes.read(b"one", NAME, 1).unwrap(), &b"1"[..]);
        assert_eq!(nodes.read(b"other", NAME, 1).unwrap(), &b"2"[..]);
        nodes.put(b"other", NAME, NewNode::Put(Bytes::from_static(b"3")), None);
        let changes: Vec<Change> = nodes.into_changes().collect();
        assert!(matches!(&changes[..], [Change { key, .. }] if *key == node_key(b"other", NAME)));
    }
}
