//! Items that are written anew where they lie: no superseded item is left that others would have to
//! be moved for.

use stratakv_base::Key;

use crate::index::{Loc, Tag};
use crate::item::Header;
use crate::segment::{Segment, Stream, ttl_class};
use crate::tier::Tier;

impl Tier {
    /// Writes an item over the one of the same key and length, if that lies in DRAM and nobody else
    /// sees its bytes: no reply has them, the volume does not get them and has no copy. False: it
    /// must be appended.
    ///
    /// It keeps its place in its queue, and that it was written counts as a use (as S3-FIFO counts
    /// it): it stays for another round.
    pub(crate) fn overwrite(&mut self, key: &Key, header: &Header, pieces: [&[u8]; 3], tag: Tag) -> bool {
        let Some((loc, slot, offset)) = self.overwritable(key, header, tag) else { return false };
        let done = self.segments.change(slot, |segment| segment.overwrite(offset, header, pieces.into_iter()));
        if done != Some(true) {
            return false;
        }
        self.counters.overwritten += 1;
        self.index.replace(tag, loc, loc.with_uses(loc.uses().max(1)).wanted(true))
    }

    /// The place of the item that this one may be written over.
    fn overwritable(&self, key: &Key, header: &Header, tag: Tag) -> Option<(Loc, u32, usize)> {
        if self.config.collected_percent == 0 {
            return None;
        }
        let mut locs = self.index.find(tag);
        // What shares its tag on the volume may be an older copy.
        let (loc, None) = (locs.next()?, locs.next()) else { return None };
        let (slot, _) = loc.in_dram()?;
        let (segment, offset, old) = self.segments.item(loc)?;
        // Slices, or none, as it was laid: under another cap a value of this length may be cut in
        // another way.
        let is_same_form = old.total() == header.total() && old.slice_shift == header.slice_shift;
        let is_same = is_same_form && !old.has_ssd_address && segment.has_key(offset, &old, key.encoded());
        let class = |header: &Header| ttl_class(header.expiry, self.now.wall);
        let stays = segment.order.is_none() && segment.stream != Stream::Outgoing && class(&old) == class(header);
        (is_same && stays).then_some((loc, slot, offset))
    }
}

impl Segment {
    /// Writes an item over one of the same length. False: a block is lent to a reply, or being
    /// written to the volume, and nothing was changed.
    fn overwrite<'a>(&mut self, offset: usize, header: &Header, pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        let blocks = offset / self.class().bytes()..=(offset + header.total() - 1) / self.class().bytes();
        if !blocks.into_iter().all(|number| self.block_mut(number).is_some()) {
            return false;
        }
        let mut at = self.write_at(offset, &header.encode());
        for piece in pieces {
            at = self.write_at(at, piece);
        }
        self.write_at(at, &[0; 8][..offset + header.total() - at]);
        self.expires_by(header.expiry);
        true
    }

    /// Gives the place behind them.
    pub(crate) fn write_at(&mut self, mut at: usize, mut bytes: &[u8]) -> usize {
        let len = self.class().bytes();
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(len - at % len));
            if let Some(block) = self.block_mut(at / len) {
                block.store(at % len, now);
            }
            (at, bytes) = (at + now.len(), rest);
        }
        at
    }
}
