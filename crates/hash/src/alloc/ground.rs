//! What segments there are, and on which nodes of the machine they lie.

use std::ops::Range;

use stratakv_pmem::Pmem;

use crate::region::Region;

/// Segments by parts of the region.
#[derive(Debug)]
pub(crate) struct Ground {
    /// Of the block that the first segment begins with.
    pub(super) first_place: u64,
    pub(super) segment_blocks: u32,
    /// Ascending; none goes on where another one ends. Each with its node.
    parts: Vec<(Range<u32>, usize)>,
    /// How many there are.
    pub(super) nodes: usize,
}

impl Ground {
    pub(crate) fn of<P: Pmem>(region: &Region<P>) -> Ground {
        let (superblock, nodes) = (&region.superblock, region.pmem.node_count().max(1));
        let parts = region.parts.iter().map(|part| {
            let node = region.pmem.node_of(superblock.segment_at(part.segments.start));
            (part.segments.clone(), node.min(nodes - 1))
        });
        Ground {
            first_place: region.place(superblock.first()),
            segment_blocks: (superblock.segment_bytes / u64::from(superblock.block_bytes)) as u32,
            parts: parts.collect(),
            nodes,
        }
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = (Range<u32>, usize)> {
        self.parts.iter().cloned()
    }

    /// One more than the highest number of a segment.
    pub(super) fn end(&self) -> u32 {
        self.parts.last().map_or(0, |(segments, _)| segments.end)
    }

    /// The node of a segment.
    pub(super) fn node_of(&self, segment: u32) -> usize {
        if self.nodes == 1 {
            return 0;
        }
        let index = self.parts.partition_point(|(segments, _)| segments.end <= segment);
        self.parts.get(index).map_or(0, |(_, node)| *node)
    }

    /// The node of a block.
    pub(super) fn node_at(&self, place: u64) -> usize {
        let segment = place.saturating_sub(self.first_place) / u64::from(self.segment_blocks);
        self.node_of(segment as u32)
    }
}
