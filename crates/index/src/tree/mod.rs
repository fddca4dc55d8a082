//! Ordered index of whole keys, one shard's own.
//!
//! A B+-tree whose nodes are front-coded byte strings ([`node`]), so that an item costs the part of
//! its key that its neighbours do not share, 6 bytes of place, and about 3 to 5 bytes of everything
//! else. Separators in inner nodes are the shortest that tell two leaves apart. Nodes grow in steps
//! of 64 bytes, split at [`node::BYTES_MAX`] or [`node::COUNT_MAX`], and merge when sparse, so no
//! operation ever touches more than one node per level and its neighbour: there is no moment at
//! which the whole is rebuilt.
//!
//! In an inner node the first key of each child's range stands before the child's number; the first
//! key of a child that is itself an inner node equals the key its parent has for it. The leftmost
//! is empty.

mod arena;
mod builder;
mod check;
mod draft;
mod node;

use std::ops::{Bound, ControlFlow};

pub use self::builder::Builder;

use self::arena::Arena;
use self::draft::{Change, Draft, Scratch};
use self::node::{Node, RecordAddress, View};

/// Where a key's record lies, and when it expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// The record's place, below 2^48; what it means is the engine's affair.
    pub place: u64,
    /// Milliseconds since the epoch at which the record expires; 0 = never.
    pub expiry: u64,
}

/// Where a key was found: a later access to the same key begins there instead of at the root, as
/// in a finger search tree (Guibas and others, STOC 1977). If the key is there no more, it is
/// looked up as usual, so a finger may be as old as it likes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finger {
    leaf: u32,
    group: u8,
}

/// Places are below this.
const PLACE_LIMIT: u64 = 1 << 48;
/// More levels than any tree that fits in memory has.
const LEVELS_MAX: usize = 16;

/// The inner nodes above a node, root first, each with the rank of the child taken.
type Path = smallvec::SmallVec<[(u32, usize); LEVELS_MAX]>;

/// An ordered map from keys (1 byte and more) to [`IndexEntry`]. See the module for its form and
/// cost.
pub struct Tree {
    arena: Arena,
    root: u32,
    len: usize,
    scratch: Scratch,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({} keys in {} nodes)", self.len, self.arena.len())
    }
}

impl Tree {
    /// A tree without keys.
    pub fn new() -> Tree {
        let mut arena = Arena::default();
        let root = arena.add(Node::new(0, &Draft::default()));
        Tree { arena, root, len: 0, scratch: Scratch::default() }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry of `key`. O(log n), no allocation.
    pub fn get(&self, key: &[u8]) -> Option<IndexEntry> {
        self.find(key).map(|(entry, _)| entry)
    }

    /// The entry of `key`, and where it is. As [`Tree::get`].
    pub fn find(&self, key: &[u8]) -> Option<(IndexEntry, Finger)> {
        let leaf = self.leaf_for(key);
        let view = self.arena.get(leaf).view();
        let addr = view.search(key);
        addr.found.then(|| (view.entry(addr.rank), Finger { leaf, group: addr.group as u8 }))
    }

    /// As [`Tree::find`], for a key that may have been found before: about a fifth of a lookup, if
    /// it is still there.
    pub fn find_at(&self, finger: Option<Finger>, key: &[u8]) -> Option<(IndexEntry, Finger)> {
        match self.addr_at(finger, key) {
            Some((leaf, addr)) => Some((self.arena.get(leaf).view().entry(addr.rank), finger?)),
            None => self.find(key),
        }
    }

    /// The leaf of a key and its address there, if that is where it was found before.
    fn addr_at(&self, finger: Option<Finger>, key: &[u8]) -> Option<(u32, RecordAddress)> {
        let Finger { leaf, group } = finger?;
        let node = self.arena.find(leaf).filter(|node| node.level() == 0)?;
        let addr = node.view().search_in(usize::from(group), key)?;
        Some((leaf, addr))
    }

    fn leaf_for(&self, key: &[u8]) -> u32 {
        let mut id = self.root;
        loop {
            let node = self.arena.get(id);
            if node.level() == 0 {
                return id;
            }
            id = node.child_for(key).1;
        }
    }

    fn descend(&self, key: &[u8]) -> (Path, u32) {
        let (mut path, mut id) = (Path::new(), self.root);
        loop {
            let node = self.arena.get(id);
            if node.level() == 0 {
                return (path, id);
            }
            let (rank, child) = node.child_for(key);
            path.push((id, rank));
            id = child;
        }
    }

    /// Walks to the leaf of `key` and reads its first line, so that a later lookup finds the path
    /// in the processor's cache. The reads depend on one another, so this costs nearly a lookup
    /// itself: it only pays off when there is idle time before the lookup, not right before it.
    /// Changes nothing.
    pub fn prefetch(&self, key: &[u8]) {
        std::hint::black_box(self.arena.get(self.leaf_for(key)).level());
    }

    /// Sets the entry of `key` and returns the one it had. O(log n); a key that is there already is
    /// changed in place.
    ///
    /// # Panics
    /// If `key` is empty or `entry.place` is 2^48 or more.
    pub fn insert(&mut self, key: &[u8], entry: IndexEntry) -> Option<IndexEntry> {
        assert!(!key.is_empty(), "an index key has at least one byte");
        assert!(entry.place < PLACE_LIMIT, "place {} does not fit in 48 bits", entry.place);
        let (path, leaf) = self.descend(key);
        let node = self.arena.get(leaf);
        let addr = node.view().search(key);
        if addr.found {
            return Some(self.replace(leaf, addr, entry));
        }
        let ascending = addr.rank == node.count();
        self.change(leaf, addr, Change::Insert(key, entry));
        self.len += 1;
        self.split(path, leaf, ascending);
        self.scratch.trim();
        None
    }

    /// As [`Tree::insert`], for a key that may have been found before: then about a fifth of it, if
    /// it is still there.
    ///
    /// # Panics
    /// As [`Tree::insert`].
    pub fn insert_at(&mut self, finger: Option<Finger>, key: &[u8], entry: IndexEntry) -> Option<IndexEntry> {
        match self.addr_at(finger, key) {
            Some((leaf, addr)) => {
                assert!(entry.place < PLACE_LIMIT, "place {} does not fit in 48 bits", entry.place);
                Some(self.replace(leaf, addr, entry))
            }
            None => self.insert(key, entry),
        }
    }

    /// If `key`'s place is `from`, makes it `to`; whether it was. Its expiry stays. One descent, or
    /// none if it is where it was found: a record that is moved costs no more than a lookup.
    /// O(log n).
    ///
    /// # Panics
    /// If `to` is 2^48 or more.
    pub fn relocate(&mut self, finger: Option<Finger>, key: &[u8], from: u64, to: u64) -> bool {
        assert!(to < PLACE_LIMIT, "place {to} does not fit in 48 bits");
        let (leaf, addr) = self.addr_at(finger, key).unwrap_or_else(|| {
            let leaf = self.leaf_for(key);
            (leaf, self.arena.get(leaf).view().search(key))
        });
        let view = self.arena.get(leaf).view();
        if !addr.found || view.entry(addr.rank).place != from {
            return false;
        }
        let entry = IndexEntry { place: to, ..view.entry(addr.rank) };
        self.arena.edit(leaf, |node| node.set(addr.rank, entry))
    }

    fn replace(&mut self, leaf: u32, addr: RecordAddress, entry: IndexEntry) -> IndexEntry {
        let previous = self.arena.get(leaf).view().entry(addr.rank);
        let scratch = &mut self.scratch;
        let widened = self.arena.edit(leaf, |node| {
            let widened = !node.set(addr.rank, entry);
            if widened {
                scratch.add_expiry(node, addr.rank, entry);
            }
            widened
        });
        if widened && self.arena.get(leaf).is_over() {
            let mut key = Vec::new();
            self.arena.get(leaf).view().key(0, &mut key);
            let (path, leaf) = self.descend(&key);
            self.split(path, leaf, false);
        }
        previous
    }

    fn change(&mut self, id: u32, addr: RecordAddress, change: Change<'_>) {
        let scratch = &mut self.scratch;
        self.arena.edit(id, |node| scratch.change(node, addr, change));
    }

    /// Splits the node `id`, and those above it, as far as they became too large.
    fn split(&mut self, mut path: Path, mut id: u32, ascending: bool) {
        while self.arena.get(id).is_over() {
            let level = self.arena.get(id).level();
            let mut pieces = self.scratch.split(self.arena.get(id), ascending).into_iter();
            if let Some(first) = pieces.next() {
                self.arena.edit(id, |node| *node = first.node);
            }
            let parent = match path.pop() {
                Some((parent, _)) => parent,
                None => self.add_root(level + 1),
            };
            for piece in pieces {
                let place = u64::from(self.arena.add(piece.node));
                let addr = self.arena.get(parent).view().search(&piece.separator);
                self.change(parent, addr, Change::Insert(&piece.separator, IndexEntry { place, expiry: 0 }));
            }
            id = parent;
        }
    }

    /// Puts a new root above the old one.
    fn add_root(&mut self, level: u8) -> u32 {
        let root = self.arena.add(Node::new(level, &Draft::default()));
        let addr = self.arena.get(root).view().search(b"");
        let place = u64::from(self.root);
        self.change(root, addr, Change::Insert(b"", IndexEntry { place, expiry: 0 }));
        self.root = root;
        root
    }

    /// Removes `key` and returns its entry. O(log n).
    pub fn remove(&mut self, key: &[u8]) -> Option<IndexEntry> {
        let (path, leaf) = self.descend(key);
        let view = self.arena.get(leaf).view();
        let addr = view.search(key);
        if !addr.found {
            return None;
        }
        let previous = view.entry(addr.rank);
        self.change(leaf, addr, Change::Remove);
        self.len -= 1;
        self.shrink(path, leaf);
        self.scratch.trim();
        Some(previous)
    }

    /// Merges the node `id`, and those above it, with a neighbour as far as they became sparse.
    fn shrink(&mut self, mut path: Path, mut id: u32) {
        while let Some((parent, rank)) = path.pop() {
            let node = self.arena.get(id);
            if node.count() == 0 {
                self.arena.remove(id);
                self.forget_child(parent, rank);
            } else if !node.is_sparse() || !(self.merge(parent, rank) || (rank > 0 && self.merge(parent, rank - 1))) {
                return;
            }
            id = parent;
        }
        self.lower_root();
    }

    /// Merges the children at `rank` and the next one, if they fit in one node.
    fn merge(&mut self, parent: u32, rank: usize) -> bool {
        let view = self.arena.get(parent).view();
        if rank + 1 >= view.count {
            return false;
        }
        let (left, right) = (view.child(rank), view.child(rank + 1));
        let (left_node, right_node) = (self.arena.get(left), self.arena.get(right));
        if !left_node.may_merge(right_node) {
            return false;
        }
        let addr = view.addr(rank + 1);
        let Some(merged) = self.scratch.merge(left_node, right_node) else { return false };
        self.arena.edit(left, |node| *node = merged);
        self.arena.remove(right);
        self.change(parent, addr, Change::Remove);
        true
    }

    /// Takes a freed child out of `parent`; its range goes to the child before it, or after it if
    /// it was the first.
    fn forget_child(&mut self, parent: u32, rank: usize) {
        let view = self.arena.get(parent).view();
        if rank > 0 || view.count == 1 {
            let addr = view.addr(rank);
            return self.change(parent, addr, Change::Remove);
        }
        let (heir, addr) = (view.entry(1), view.addr(1));
        let mut least = Vec::new();
        view.key(0, &mut least);
        self.arena.edit(parent, |node| node.set(0, heir));
        self.change(parent, addr, Change::Remove);
        let mut id = heir.place as u32;
        while self.arena.get(id).level() > 0 {
            let scratch = &mut self.scratch;
            self.arena.edit(id, |node| scratch.lower_first(node, &least));
            id = self.arena.get(id).view().child(0);
        }
    }

    /// Drops roots that have a single child; an empty tree is one empty leaf.
    fn lower_root(&mut self) {
        loop {
            let root = self.arena.get(self.root);
            if root.level() == 0 || root.count() > 1 {
                return;
            }
            let child = (root.count() == 1).then(|| root.view().child(0));
            self.arena.remove(self.root);
            self.root = child.unwrap_or_else(|| self.arena.add(Node::new(0, &Draft::default())));
        }
    }

    /// Visits the keys between `from` and `to` in order, or from the last to the first if
    /// `reverse`, until `visit` breaks. The key is only valid during the call. An empty or inverted
    /// range visits nothing. Cost: O(log n), then some 10 to 20 ns a key.
    pub fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], IndexEntry) -> ControlFlow<()>,
    ) {
        let _ = self.scan_node(self.root, from, to, reverse, &mut Vec::new(), visit);
    }

    fn scan_node(
        &self,
        id: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8], IndexEntry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let node = self.arena.get(id);
        let view = node.view();
        if node.level() == 0 {
            return scan_leaf(view, from, to, reverse, key, visit);
        }
        let child_of = |bound: Bound<&[u8]>, otherwise: usize| match bound {
            Bound::Included(key) | Bound::Excluded(key) => node.child_for(key).0,
            Bound::Unbounded => otherwise,
        };
        let (first, last) = (child_of(from, 0), child_of(to, view.count.saturating_sub(1)));
        let mut visit_child = |rank: usize| {
            let from = if rank == first { from } else { Bound::Unbounded };
            let to = if rank == last { to } else { Bound::Unbounded };
            self.scan_node(view.child(rank), from, to, reverse, key, visit)
        };
        let mut ranks = first..=last;
        if reverse { ranks.rev().try_for_each(visit_child) } else { ranks.try_for_each(&mut visit_child) }
    }

    /// Bytes the tree takes from the heap, with the allocator's own (as glibc counts them).
    pub fn footprint_bytes(&self) -> usize {
        self.arena.footprint_bytes() + self.scratch.footprint_bytes()
    }

    /// Verifies the structure: order within and between nodes, separators, limits, counts and
    /// accounts. Err says the first thing that is wrong. Reads everything.
    pub fn check(&self) -> Result<(), String> {
        check::check(self)
    }
}

fn scan_leaf(
    view: View<'_>,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    reverse: bool,
    key: &mut Vec<u8>,
    visit: &mut dyn FnMut(&[u8], IndexEntry) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let after = |addr: RecordAddress| addr.rank + usize::from(addr.found);
    let start = match from {
        Bound::Included(key) => view.search(key).rank,
        Bound::Excluded(key) => after(view.search(key)),
        Bound::Unbounded => 0,
    };
    let end = match to {
        Bound::Included(key) => after(view.search(key)),
        Bound::Excluded(key) => view.search(key).rank,
        Bound::Unbounded => view.count,
    };
    if start >= end {
        return ControlFlow::Continue(());
    }
    let mut groups = view.addr(start).group..view.addr(end - 1).group + 1;
    if reverse {
        groups.rev().try_for_each(|group| scan_group_back(view, group, start..end, key, visit))
    } else {
        groups.try_for_each(|group| {
            let mut flow = ControlFlow::Continue(());
            view.each_in_group(group, key, |rank, key| {
                if rank >= end {
                    return false;
                }
                if rank >= start {
                    flow = visit(key, view.entry(rank));
                }
                flow.is_continue()
            });
            flow
        })
    }
}

/// Front coding is read forwards only: a group's keys are laid out first, then visited from the
/// last.
fn scan_group_back(
    view: View<'_>,
    group: usize,
    ranks: std::ops::Range<usize>,
    key: &mut Vec<u8>,
    visit: &mut dyn FnMut(&[u8], IndexEntry) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut keys, mut ends) = (Vec::new(), smallvec::SmallVec::<[(usize, usize); node::GROUP_MAX]>::new());
    view.each_in_group(group, key, |rank, key| {
        if ranks.contains(&rank) {
            keys.extend_from_slice(key);
            ends.push((rank, keys.len()));
        }
        rank < ranks.end
    });
    while let Some((rank, end)) = ends.pop() {
        let start = ends.last().map_or(0, |(_, end)| *end);
        visit(&keys[start..end], view.entry(rank))?;
    }
    ControlFlow::Continue(())
}
