//! Turns of long structures that have come to commands of a thread, and replies to those that
//! others have carried out.

use super::Worker;
use crate::server::WorkerSlot;

impl Worker {
    /// Commands whose turn has come go on in the next tick; other threads are told of theirs.
    pub(super) fn give_turns(&mut self) {
        let (here, elsewhere) = self.shared.resp.turns.take_granted(self.index);
        let slots = elsewhere.iter().filter_map(|slot| self.shared.worker_slots.get(*slot));
        slots.for_each(WorkerSlot::ring);
        for grant in here {
            if let Some(entry) = self.touch(grant.waiter.connection) {
                entry.connection.hear(grant.waiter.sequence, grant.ticket, grant.news);
            }
        }
    }
}
