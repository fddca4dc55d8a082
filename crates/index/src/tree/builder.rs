//! Building a tree bottom-up from sorted keys.

use super::IndexEntry;
use super::draft::{Draft, Run, Scratch, cut};
use super::node::{BYTES_MAX, COUNT_MAX, GROUP_MAX, common_bytes, least_keys};
use super::{PLACE_LIMIT, Tree};

/// Builds a [`Tree`] from keys in ascending order, with nodes about 95 % full: recovery from a
/// checkpoint (KVell paper, section 5.7, rebuilds its index by inserts). O(1) a key.
pub struct Builder {
    tree: Tree,
    /// Keys of each level not yet in a node; leaves first.
    levels: Vec<Level>,
    draft: Draft,
    /// The last key of the leaf written last.
    before: Vec<u8>,
}

#[derive(Default)]
struct Level {
    run: Run,
    /// What the run will take in a node, roughly.
    bytes: usize,
}

impl Level {
    fn push(&mut self, key: &[u8], entry: IndexEntry) {
        let rank = self.run.len();
        let shared = if rank == 0 { key.len() } else { common_bytes(self.run.key(rank - 1), key) };
        let expiry = if entry.expiry == 0 { 0 } else { 8 };
        self.bytes += 7 + expiry + key.len() - shared;
        self.run.push(key, entry);
    }

    fn is_full(&self) -> bool {
        self.run.len() * 100 >= COUNT_MAX * 95 || self.bytes * 100 >= BYTES_MAX * 95
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Builder({} keys)", self.tree.len)
    }
}

impl Builder {
    /// A builder without keys.
    pub fn new() -> Builder {
        let tree = Tree { len: 0, ..Tree::new() };
        Builder { tree, levels: vec![Level::default()], draft: Draft::default(), before: Vec::new() }
    }

    /// Adds the next key.
    ///
    /// # Panics
    /// If `key` is empty or not greater than the one before, or `entry.place` is 2^48 or more.
    pub fn push(&mut self, key: &[u8], entry: IndexEntry) {
        assert!(entry.place < PLACE_LIMIT, "place {} does not fit in 48 bits", entry.place);
        let run = &self.levels[0].run;
        let last = if run.len() > 0 { run.key(run.len() - 1) } else { &self.before };
        assert!(last < key, "keys given to an index builder must ascend");
        self.tree.len += 1;
        self.levels[0].push(key, entry);
        if self.levels[0].is_full() {
            self.write(0);
        }
    }

    /// Makes nodes of what a level has gathered, and tells the level above.
    fn write(&mut self, level: usize) {
        let Level { run, .. } = std::mem::take(&mut self.levels[level]);
        if run.len() == 0 {
            return;
        }
        let mut pieces = Vec::new();
        cut(&run, 0..run.len(), level as u8, 8, GROUP_MAX, &mut self.draft, &mut pieces);
        if level == 0 {
            // The first separator of a run is only known against the leaf before.
            let first = run.key(0);
            let len = if self.before.is_empty() { 0 } else { common_bytes(&self.before, first) + 1 };
            pieces[0].separator = first[..len].to_vec();
            self.before = run.key(run.len() - 1).to_vec();
        }
        if self.levels.len() == level + 1 {
            self.levels.push(Level::default());
        }
        for piece in pieces {
            let place = u64::from(self.tree.arena.add(piece.node));
            let above = &mut self.levels[level + 1];
            // A full node is written once it is known that a node of at least two follows.
            if above.is_full() && above.run.len() >= 2 * least_keys(1) {
                self.write(level + 1);
            }
            self.levels[level + 1].push(&piece.separator, IndexEntry { place, expiry: 0 });
        }
    }

    /// The tree. Its root is the first level with a single node.
    pub fn finish(mut self) -> Tree {
        if self.tree.len == 0 {
            return Tree::new();
        }
        let mut level = 0;
        loop {
            self.write(level);
            level += 1;
            let top = &self.levels[level];
            if self.levels.len() == level + 1 && top.run.len() == 1 {
                let empty = std::mem::replace(&mut self.tree.root, top.run.entry(0).place as u32);
                self.tree.arena.remove(empty);
                self.tree.scratch = Scratch::default();
                return self.tree;
            }
        }
    }
}
