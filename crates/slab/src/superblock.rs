//! The two superblocks: pages 0 and 1 of the volume, written one after the other with a flush
//! between.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_chassis::superblock::{Envelope, Paired, SuperblockError};

/// Version of the format of pages and blobs.
pub(crate) const FORMAT: u8 = 1;
/// Format of volumes with placement `packed`.
const PACKED_FORMAT: u32 = 2;
const ENVELOPE: Envelope =
    Envelope { magic: b"STRSLAB\0", formats: 0..=PACKED_FORMAT, uuid_at: 16, crc_at: |_| 88, is_seeded: true };
/// Openings for writing that versions and sequences have room for.
pub(crate) const INCARNATIONS_MAX: u64 = 1 << 24;
/// Superblock writes; no store gets there.
const GENERATIONS_MAX: u64 = 1 << 62;

/// What a superblock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) shard: u32,
    pub(crate) shards: u32,
    /// Counts superblock writes; the higher one holds.
    pub(crate) generation: u64,
    /// Counts openings for writing; the top 24 bits of every version and sequence.
    pub(crate) incarnation: u64,
    /// Bytes of the volume that are zero-written and may hold pages.
    pub(crate) usable_bytes: u64,
    /// Every sequence up to this one is durable.
    pub(crate) durable: u64,
    /// Closed in order: everything is durable and `digest` covers it.
    pub(crate) clean: bool,
    /// Sum over all pages and blobs at a clean close; 0 otherwise.
    pub(crate) digest: u64,
    /// Pages of a segment with placement `packed`; 0 for `in_place`.
    pub(crate) segment_pages: u32,
    /// Free pages from this one on may have been discarded; 0: none are.
    pub(crate) discarded_from: u32,
}

impl Paired for Superblock {
    fn age(&self) -> (u64, u64) {
        (self.generation, 0)
    }

    fn shard(&self) -> (u32, u32) {
        (self.shard, self.shards)
    }
}

impl Superblock {
    /// Writes it into a page.
    pub(crate) fn encode(&self, uuid: &[u8; 16], page: &mut [u8]) {
        let format = if self.segment_pages == 0 { u32::from(FORMAT) } else { PACKED_FORMAT };
        let mut writer = ENVELOPE.begin(format, page);
        writer.u32(self.shard).bytes(uuid).u32(self.shards).u32(u32::from(self.clean));
        writer.u64(self.generation).u64(self.incarnation).u64(self.usable_bytes).u64(self.durable).u64(self.digest);
        debug_assert_eq!(writer.at(), 80);
        writer.u32(self.segment_pages).u32(self.discarded_from);
        ENVELOPE.seal(format, uuid, page);
    }

    /// Reads it from a page.
    pub(crate) fn decode(uuid: &[u8; 16], page: &[u8]) -> Result<Superblock, SuperblockError> {
        let (format, mut reader) = ENVELOPE.open(uuid, page)?;
        let shard = reader.u32()?;
        reader.bytes(uuid.len())?;
        let (shards, clean) = (reader.u32()?, reader.u32()? == 1);
        let (generation, incarnation) = (reader.u64()?, reader.u64()?);
        let (usable_bytes, durable, digest) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let segment_pages = reader.u32()?;
        let segment_pages = if format == PACKED_FORMAT { segment_pages } else { 0 };
        let discarded_from = reader.u32()?;
        if usable_bytes % PAGE_BYTES as u64 != 0 || usable_bytes < 2 * PAGE_BYTES as u64 {
            return Err(SuperblockError::Damaged(
                "its size is no multiple of 4096 bytes, or has no room for superblocks",
            ));
        }
        if format == PACKED_FORMAT && !(segment_pages.is_power_of_two() && (4..=256).contains(&segment_pages)) {
            return Err(SuperblockError::Damaged("its segments have an impossible length"));
        }
        if generation >= GENERATIONS_MAX || incarnation >= INCARNATIONS_MAX {
            return Err(SuperblockError::Damaged("its counters are beyond what a store can reach"));
        }
        Ok(Superblock {
            shard,
            shards,
            generation,
            incarnation,
            usable_bytes,
            durable,
            clean,
            digest,
            segment_pages,
            discarded_from,
        })
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::checksum::crc32c;

    use super::*;

    fn sample() -> (Superblock, Vec<u8>) {
        let superblock = Superblock {
            shard: 1,
            shards: 4,
            generation: 9,
            incarnation: 3,
            usable_bytes: 1 << 22,
            durable: 77,
            clean: true,
            digest: 5,
            discarded_from: 4711,
            segment_pages: 0,
        };
        let mut page = vec![0; PAGE_BYTES];
        superblock.encode(&[7; 16], &mut page);
        (superblock, page)
    }

    #[test]
    fn reads_back_and_its_format_is_fixed() {
        let (superblock, page) = sample();
        assert_eq!(Superblock::decode(&[7; 16], &page), Ok(superblock));
        assert!(matches!(Superblock::decode(&[8; 16], &page), Err(SuperblockError::Foreign)));
        assert_eq!(crc32c(0, &page), 0x009D_B5F5, "raise FORMAT when this changes");
    }

    /// The accounting of a volume without its superblocks did not add up (fuzzer).
    #[test]
    fn a_volume_has_room_for_its_superblocks() {
        let (superblock, mut page) = sample();
        Superblock { usable_bytes: 4096, ..superblock }.encode(&[7; 16], &mut page);
        assert!(matches!(Superblock::decode(&[7; 16], &page), Err(SuperblockError::Damaged(_))));
    }

    /// Counting on from there overflowed (fuzzer).
    #[test]
    fn counters_no_store_can_reach_are_refused() {
        let (superblock, mut page) = sample();
        for (generation, incarnation) in [(u64::MAX, 3), (9, u64::MAX), (9, INCARNATIONS_MAX)] {
            Superblock { generation, incarnation, ..superblock }.encode(&[7; 16], &mut page);
            assert!(matches!(Superblock::decode(&[7; 16], &page), Err(SuperblockError::Damaged(_))));
        }
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let (_, page) = sample();
        for bit in 0..92 * 8 {
            let mut page = page.clone();
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&[7; 16], &page).is_err(), "bit {bit}");
        }
    }
}
