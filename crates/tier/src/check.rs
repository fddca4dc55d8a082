//! Whether the space accounting balances.

use crate::index::Tag;
use crate::tier::Tier;

impl Tier {
    /// Sums that do not add up: defects of this program, not of the medium. O(items).
    pub fn check(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        let mut bytes = 0;
        for slot in 0..self.segments.slots() as u32 {
            bytes += self.segments.get(slot).map_or(0, |segment| segment.footprint_bytes());
        }
        if bytes != self.segments.bytes() {
            mistakes
                .push(format!("segments have {bytes} bytes of blocks, {} are accounted for", self.segments.bytes()));
        }
        for (tag, loc) in self.index.entries() {
            let is_sound = match self.segments.item(loc) {
                Some((segment, offset, header)) => Tag::of(&segment.key(offset, &header)) == tag,
                None => self
                    .volume
                    .as_ref()
                    .is_some_and(|volume| loc.is_on_volume() && volume.log.of(loc.address()).is_some()),
            };
            if !is_sound {
                mistakes.push(format!("an entry leads nowhere: {tag:?} {loc:?}"));
            }
        }
        let queued = self.segments.queued() + self.segments.open_ones();
        let outgoing = usize::from(self.segments.outgoing().is_some());
        let leaving = self.volume.as_ref().map_or(0, |volume| volume.spills.len());
        if queued + outgoing + leaving != self.segments.len() {
            mistakes.push(format!(
                "{} segments in DRAM, {queued} queued, {outgoing} + {leaving} outgoing",
                self.segments.len()
            ));
        }
        mistakes
    }

    /// Bytes of DRAM that segments, index and ghost queue take.
    pub fn dram_bytes(&self) -> u64 {
        (self.segments.bytes() + self.index.bytes() + self.evictions.bytes()) as u64
    }
}
