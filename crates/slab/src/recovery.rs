//! What recovery finds, whatever the placement.

use foldhash::HashMap;
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_index::Tree;

use crate::config::RecoveryReport;
use crate::index::Index;
use crate::placement::Placement;
use crate::space::Space;

/// Damage reported in full; the rest is counted in the log.
pub(crate) const REPORTED_MAX: usize = 1000;
/// What is damaged if not all is there that was at the last orderly close.
pub(crate) const WHOLE_VOLUME: &str = "volume";

/// What recovery hands to the shard.
#[derive(Debug)]
pub(crate) struct RecoveredShard<P> {
    pub(crate) index: Index,
    pub(crate) placement: P,
    pub(crate) space: Space,
    pub(crate) blob_pages: u64,
    pub(crate) blob_tags: HashMap<u32, u32>,
    pub(crate) expiring: u64,
    /// The highest version or sequence on the volume.
    pub(crate) last_number: u64,
    /// First pages of torn images and blobs, to be zeroed.
    pub(crate) torn_places: Vec<u32>,
    pub(crate) report: RecoveryReport,
}

impl<P: Placement> RecoveredShard<P> {
    /// Of a volume of so many pages, without records.
    pub(crate) fn empty((placement, mut space): (P, Space), pages: u32) -> RecoveredShard<P> {
        space.extend(pages);
        RecoveredShard {
            index: Index::new(Tree::new(), 0),
            placement,
            space,
            blob_pages: 0,
            blob_tags: HashMap::default(),
            expiring: 0,
            last_number: 0,
            torn_places: Vec::new(),
            report: RecoveryReport { clean: true, ..RecoveryReport::default() },
        }
    }
}

/// First pages of slices that the device did not give. What zeros in their place look like is no
/// damage.
#[derive(Debug, Default)]
pub(crate) struct Unread(Vec<u32>);

impl Unread {
    pub(crate) fn add(&mut self, first: u32) {
        self.0.push(first);
    }

    /// Whether some of these pages are in one.
    pub(crate) fn meets(&self, first: u32, pages: u32) -> bool {
        let slice = (SLICE_BYTES / PAGE_BYTES) as u32;
        self.0.iter().any(|unread| *unread < first.saturating_add(pages) && first < unread + slice)
    }
}
