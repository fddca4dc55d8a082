//! [`Evictions`]: what is remembered of items that the cache gave up.
//!
//! It owns the counts by reason, the ghost queue, and the events for whoever listens to evictions.
//! Every place that drops an item calls it. It never touches the index.

use stratakv_base::Key;
use stratakv_engine::{Evicted, ShardEvent};

use crate::drops::{DropReason, Drops};
use crate::ghost_queue::GhostQueue;
use crate::index::Tag;
use crate::item::Header;

/// See the module.
#[derive(Debug)]
pub(crate) struct Evictions {
    drops: Drops,
    ghost_queue: GhostQueue,
    /// Told at the end of the tick; empty if nobody listens.
    events: Vec<ShardEvent>,
}

impl Evictions {
    /// Beside so much memory.
    pub(crate) fn new(memory_bytes: u64) -> Evictions {
        Evictions { drops: Drops::default(), ghost_queue: GhostQueue::new(memory_bytes), events: Vec::new() }
    }

    /// Beside another memory the ghost queue has another length: its entries are hints, and come up
    /// anew.
    pub(crate) fn resize(&mut self, memory_bytes: u64) {
        self.ghost_queue = GhostQueue::new(memory_bytes);
    }

    /// Bytes of the ghost queue.
    pub(crate) fn bytes(&self) -> usize {
        self.ghost_queue.bytes()
    }

    pub(crate) fn drops(&self) -> Drops {
        self.drops
    }

    /// An item was dropped, and is wanted if it comes back.
    pub(crate) fn add(&mut self, tag: Tag, reason: DropReason) {
        self.ghost_queue.add(tag);
        self.count(reason, 1);
    }

    /// So many items are gone whose keys nobody remembers.
    pub(crate) fn count(&mut self, reason: DropReason, items: u64) {
        self.drops.add(reason, items);
    }

    /// An item that somebody wanted has expired: it is likely to be put again.
    pub(crate) fn add_expired(&mut self, tag: Tag) {
        self.ghost_queue.add(tag);
    }

    /// Whether a key that is put was dropped lately. Asked once: it is forgotten then.
    pub(crate) fn comes_back(&mut self, tag: Tag) -> bool {
        self.ghost_queue.take(tag)
    }

    /// Whoever listens is to be told of this item.
    pub(crate) fn tell(&mut self, key: &[u8], header: &Header, used: bool) {
        let Some(key) = Key::from_encoded(key) else { return };
        let Header { value_bytes, expiry, .. } = *header;
        self.events.push(ShardEvent::Evicted(Evicted { key, value_bytes: value_bytes.into(), expiry, used }));
    }

    /// What has come up since, and is told now.
    pub(crate) fn events(&mut self) -> &mut Vec<ShardEvent> {
        &mut self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_key_comes_back_once_and_what_is_only_counted_never_does() {
        let mut evictions = Evictions::new(1 << 20);
        let (dropped, expired, other) = (Tag::from_bits(1 << 20), Tag::from_bits(2 << 20), Tag::from_bits(3 << 20));
        evictions.add(dropped, DropReason::MemoryFull);
        evictions.add_expired(expired);
        evictions.count(DropReason::LogFull, 5);
        assert_eq!([dropped, expired, other, dropped].map(|tag| evictions.comes_back(tag)), [true, true, false, false]);
        assert_eq!(evictions.drops().total(), 6, "what expired is not dropped");
    }
}
