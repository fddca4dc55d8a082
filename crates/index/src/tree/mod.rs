//! Ordered index.
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
/// Where a key's record lies, and when it expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The record's place, below 2^48; what it means is the engine's affair.
    pub place: u64,
    /// Seconds since the epoch at which the record expires; 0 = never.
    pub expiry: u32,
}
/// Ordered index.
#[derive(Default)]
pub struct Tree(BTreeMap<Vec<u8>, Entry>);
impl Tree {
    /// An empty tree.
    pub fn new() -> Tree { Tree::default() }
    /// Number of keys.
    pub fn len(&self) -> usize { self.0.len() }
    /// No keys.
    pub fn is_empty(&self) -> bool { self.0.is_empty() }
    /// Entry of `key`.
    pub fn get(&self, key: &[u8]) -> Option<Entry> { self.0.get(key).copied() }
    /// Inserts or replaces.
    pub fn insert(&mut self, key: &[u8], entry: Entry) -> Option<Entry> { self.0.insert(key.to_vec(), entry) }
    /// Removes.
    pub fn remove(&mut self, key: &[u8]) -> Option<Entry> { self.0.remove(key) }
    /// Visits in order.
    pub fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool, visit: &mut dyn FnMut(&[u8], Entry) -> ControlFlow<()>) {
        let inside = |k: &[u8]| (match from { Bound::Included(f) => k >= f, Bound::Excluded(f) => k > f, Bound::Unbounded => true })
            && (match to { Bound::Included(t) => k <= t, Bound::Excluded(t) => k < t, Bound::Unbounded => true });
        let mut all: Vec<_> = self.0.iter().filter(|(k, _)| inside(k)).collect();
        if reverse { all.reverse(); }
        for (k, e) in all { if visit(k, *e).is_break() { return; } }
    }
    /// Heap bytes.
    pub fn footprint_bytes(&self) -> usize { self.0.len() * 64 }
    /// Touches the path.
    pub fn prefetch(&self, _key: &[u8]) {}
    /// Structure.
    pub fn check(&self) -> Result<(), String> { Ok(()) }
}
/// Builds a tree from ascending keys.
#[derive(Default)]
pub struct Builder(Tree);
impl Builder {
    /// Empty.
    pub fn new() -> Builder { Builder::default() }
    /// Adds the next key.
    pub fn push(&mut self, key: &[u8], entry: Entry) { self.0.insert(key, entry); }
    /// The tree.
    pub fn finish(self) -> Tree { self.0 }
}
