//! Values too long for a placement's small records: what is in pages of its own, and under way.

use foldhash::HashMap;

use crate::blob_read::BlobReads;
use crate::blob_write::BlobWrites;
use crate::placement::Placement;

/// See the module.
#[derive(Debug)]
pub(crate) struct Blobs<P: Placement> {
    pub(crate) reads: BlobReads,
    pub(crate) writes: BlobWrites<P>,
    /// Pages of those in the index.
    pub(crate) pages: u64,
    /// [`tag`](crate::record::tag) of the version of each blob, by its first page: an older value
    /// of the same key at the same place is noticed.
    pub(crate) tags: HashMap<u32, u32>,
}

impl<P: Placement> Blobs<P> {
    /// Those that recovery found.
    pub(crate) fn new(pages: u64, tags: HashMap<u32, u32>) -> Blobs<P> {
        Blobs { reads: BlobReads::default(), writes: BlobWrites::default(), pages, tags }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.reads.is_idle() && self.writes.is_idle()
    }
}
