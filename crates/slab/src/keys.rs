//! Keys with writes under way, and what those wait for: the first write of a key blocks the others.

use std::collections::VecDeque;

use foldhash::HashMap;
use stratakv_base::Key;

use crate::placement::{PlaceOf, Placement};
use crate::write::Work;

/// Writes of one key that are under way.
#[derive(Debug)]
pub(crate) struct PendingWrites<P: Placement> {
    /// What the placement keeps of them.
    pub(crate) placement: P::KeyState,
    /// Changes that are not yet durable.
    pub(crate) outstanding: u32,
    /// The newest state, if `outstanding`.
    pub(crate) place: Option<PlaceOf<P>>,
    pub(crate) expiry: u64,
    /// Writes in order; the first is blocked by `wait`.
    pub(crate) queue: VecDeque<Work>,
    pub(crate) wait: Option<Wait<P::Wait>>,
}

impl<P: Placement> Default for PendingWrites<P> {
    fn default() -> Self {
        PendingWrites {
            placement: P::KeyState::default(),
            outstanding: 0,
            place: None,
            expiry: 0,
            queue: VecDeque::new(),
            wait: None,
        }
    }
}

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait<W> {
    /// Until the key has nothing outstanding.
    Drain,
    /// Its record, which is read.
    Record {
        whole: bool,
    },
    Space,
    Block,
    /// For its batch.
    Batch,
    /// For what only its placement has.
    Placement(W),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct KeyQueues<P: Placement> {
    pub(crate) pending: HashMap<Key, PendingWrites<P>>,
    /// Keys whose write waits for space, or for a block.
    pub(crate) space_waiters: Vec<Key>,
    pub(crate) block_waiters: VecDeque<Key>,
}

impl<P: Placement> Default for KeyQueues<P> {
    fn default() -> Self {
        KeyQueues { pending: HashMap::default(), space_waiters: Vec::new(), block_waiters: VecDeque::new() }
    }
}

impl<P: Placement> KeyQueues<P> {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// A change of a key waits for its group: the newest state is this.
    pub(crate) fn changed(&mut self, key: &Key, place: Option<PlaceOf<P>>, expiry: u64) -> &mut PendingWrites<P> {
        let pending = self.pending.entry(key.clone()).or_default();
        pending.outstanding += 1;
        (pending.place, pending.expiry) = (place, expiry);
        pending
    }

    /// Queues a write behind those of its key that wait; gives it back if there are none.
    pub(crate) fn queue_behind(&mut self, work: Work) -> Option<Work> {
        match self.pending.get_mut(&work.key) {
            Some(pending) if pending.wait.is_some() || !pending.queue.is_empty() => {
                pending.queue.push_back(work);
                None
            }
            _ => Some(work),
        }
    }

    /// The first write of a key that waits.
    pub(crate) fn first(&mut self, key: &Key) -> Option<&mut Work> {
        self.pending.get_mut(key)?.queue.front_mut()
    }

    /// Whether the first write of a key waits for this.
    pub(crate) fn waits_for(&self, key: &Key, wait: Wait<P::Wait>) -> bool {
        self.pending.get(key).is_some_and(|pending| pending.wait == Some(wait))
    }

    /// Keys with changes that are not published yet.
    pub(crate) fn changing(&self) -> impl Iterator<Item = (&Key, u32)> {
        let changing = self.pending.iter().filter(|(_, pending)| pending.outstanding > 0);
        changing.map(|(key, pending)| (key, pending.outstanding))
    }

    /// A change of a key was published, or failed. Whether the key has none under way any more, and
    /// its first write, if there is one, waits for nothing else.
    pub(crate) fn change_ended(&mut self, key: &Key) -> bool {
        let Some(pending) = self.pending.get_mut(key) else { return false };
        pending.outstanding -= 1;
        pending.outstanding == 0 && matches!(pending.wait, None | Some(Wait::Drain))
    }

    /// Everything that waits: nothing is written any more.
    pub(crate) fn abandon(&mut self) -> Vec<Work> {
        self.space_waiters.clear();
        self.block_waiters.clear();
        self.pending.drain().flat_map(|(_, pending)| pending.queue).collect()
    }
}
