//! Nodes of long structures whose root has gone or is another one: where to look for them.
//!
//! What Redis clients remove or overwrite is told here, and looked after at once. What goes in
//! another way (memcache, the library, expiry, a crash) a slow walk over all nodes finds.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use stratakv_base::Key;
use stratakv_structures::tree::NodeName;

use crate::resp::nodes::node_key;

/// More are left to the walk.
const RANGES_MAX: usize = 1024;
const BYTES_MAX: usize = 256 << 10;

/// Nodes from a key on, to another one or before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeRange {
    pub(crate) shard: usize,
    pub(crate) from: Key,
    pub(crate) to: Bound<Key>,
    /// Structures that are looked at, at most.
    pub(crate) structures_max: u32,
}

/// Of one thread.
#[derive(Debug, Default)]
pub(crate) struct OrphanQueue(RefCell<OrphanRanges>);

#[derive(Debug, Default)]
struct OrphanRanges {
    keys: VecDeque<Key>,
    bytes: usize,
}

impl OrphanQueue {
    /// The record of a key has gone or is another one: it may have been the root of a tree.
    pub(crate) fn push(&self, key: &Key) {
        let Ok(mut ranges) = self.0.try_borrow_mut() else { return };
        let bytes = size_of::<Key>() + key.encoded().len();
        if ranges.keys.len() < RANGES_MAX && ranges.bytes + bytes <= BYTES_MAX {
            ranges.bytes += bytes;
            ranges.keys.push_back(key.clone());
        }
    }

    /// The next key whose nodes are looked for.
    pub(crate) fn pop(&self) -> Option<Key> {
        let mut ranges = self.0.try_borrow_mut().ok()?;
        let key = ranges.keys.pop_front()?;
        ranges.bytes = ranges.bytes.saturating_sub(size_of::<Key>() + key.encoded().len());
        Some(key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.try_borrow().map_or(true, |ranges| ranges.keys.is_empty())
    }
}

/// All nodes that a key may have, and some of longer keys.
pub(crate) fn nodes_of(key: &Key) -> (Key, Bound<Key>) {
    let end = |number| node_key(key.user(), NodeName { id: number, number });
    (end(0), Bound::Included(end(u64::MAX)))
}

impl NodeRange {
    /// Whether nothing is left of it.
    pub(crate) fn is_over(&self) -> bool {
        match &self.to {
            Bound::Included(to) => self.from > *to,
            Bound::Excluded(to) => self.from >= *to,
            Bound::Unbounded => false,
        }
    }
}

/// What the threads of a server know of nodes together.
#[derive(Debug, Default)]
pub(crate) struct NodeSweeps {
    /// There are nodes, or were: until then nobody looks for them.
    has_nodes: AtomicBool,
    /// Walks over all nodes that are to begin soon.
    wanted: AtomicU32,
}

impl NodeSweeps {
    pub(crate) fn note_nodes(&self) {
        if !self.has_nodes.load(Ordering::Relaxed) {
            self.has_nodes.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_nodes(&self) -> bool {
        self.has_nodes.load(Ordering::Relaxed)
    }

    /// Much was removed at once: all nodes are looked at soon, and once more as the removal may not
    /// be over by then.
    pub(crate) fn want(&self) {
        self.wanted.store(2, Ordering::Relaxed);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Whether a walk is to begin soon, which then is begun.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |wanted| wanted.checked_sub(1)).is_ok()
    }
}

/// Where commands tell of roots that they removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRemovals<'a> {
    pub(crate) queue: &'a OrphanQueue,
    pub(crate) sweeps: &'a NodeSweeps,
}

impl NodeRemovals<'_> {
    /// The record of a key has gone or is another one, and may have been the root of a tree.
    pub(crate) fn removed(&self, key: &Key) {
        if self.sweeps.has_nodes() {
            self.queue.push(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::CollectionId;

    use super::*;

    #[test]
    fn a_queue_of_removed_keys_is_bounded() {
        let queue = OrphanQueue::default();
        let key = |bytes: usize| Key::new(CollectionId(0), &vec![b'k'; bytes]).unwrap();
        (0..2 * RANGES_MAX).for_each(|_| queue.push(&key(9)));
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), RANGES_MAX);
        (0..10).for_each(|_| queue.push(&key(60_000)));
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 4);
        assert!(queue.is_empty() && queue.0.borrow().bytes == 0);
    }
}
