//! The second tier of an open shard: its log, its journal, and what is under way on it.

use foldhash::HashSet;
use stratakv_base::Mono;

use crate::holds::Holds;
use crate::index::Tag;
use crate::item::SsdAddress;
use crate::journal::Journal;
use crate::log::Log;
use crate::recycle::Retire;
use crate::saving::Saving;
use crate::spill_queue::SpillQueue;

/// See the module.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) log: Log,
    pub(crate) journal: Journal,
    pub(crate) spills: SpillQueue,
    pub(crate) holds: Holds,
    pub(crate) retire: Option<Retire>,
    /// Segments below this order are gone for every recovery to come.
    pub(crate) written_low: u64,
    pub(crate) next_order: u64,
    /// The log has been full: what is written displaces something.
    pub(crate) lapped: bool,
    /// The journal could not be written: nothing on the volume counts any more, and nothing more is
    /// written.
    pub(crate) is_lost: bool,
    /// It holds what is saved between two lives, and is no second tier: nothing on it counts in a
    /// later one but after an orderly end, so nothing is journaled.
    pub(crate) saving: Option<Saving>,
    /// Tags with copies that a recovery might take for the newest, while nothing on the volume can
    /// say that they are not.
    pub(crate) returning: HashSet<Tag>,
}

impl Volume {
    /// One on which nothing is under way.
    pub(crate) fn new(log: Log, journal: Journal, next_order: u64, saving: Option<Saving>) -> Volume {
        Volume {
            written_low: journal.low(),
            log,
            journal,
            spills: SpillQueue::default(),
            holds: Holds::default(),
            retire: None,
            next_order,
            lapped: false,
            is_lost: false,
            saving,
            returning: HashSet::default(),
        }
    }

    /// Since when a segment that is to make room waits for those who have pinned it.
    pub(crate) fn pinned_since(&self) -> Option<Mono> {
        self.retire.as_ref().and_then(Retire::pinned_since)
    }

    /// Whether the copy is still there, and will be for a while.
    pub(crate) fn is_ssd_address(&self, ssd_address: &SsdAddress) -> bool {
        self.journals() && ssd_address.order >= self.journal.low()
    }

    /// Whether a recovery might find the copy.
    pub(crate) fn may_return(&self, ssd_address: &SsdAddress) -> bool {
        self.journals() && ssd_address.order >= self.written_low
    }

    /// Whether a recovery might find what is on it, so that the journal has to say what of it is
    /// stale.
    pub(crate) fn journals(&self) -> bool {
        !self.is_lost && self.saving.is_none()
    }

    /// Whether its oldest segment can make room in the index.
    pub(crate) fn has_some_to_retire(&self) -> bool {
        self.journals() && self.log.len() > 0
    }
}
