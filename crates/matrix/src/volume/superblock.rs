//! The two superblocks of a volume, pages 0 and 1, written in turn: each says where the manifest
//! is.

use stratakv_base::codec::{Reader, Truncated};
use stratakv_chassis::superblock::{Envelope, Paired, SuperblockError};

use super::extents::Extent;
use crate::container::NUMBERS_END;
use crate::pairing::{Epoch, Known};

const FORMAT: u32 = 2;
/// That of a volume whose manifest names pages of the PMEM levels.
const FORMAT_OF_LAYERS: u32 = 3;
/// That of a volume whose manifest has deletes of ranges.
const FORMAT_OF_RANGES: u32 = 4;
/// That of a volume whose tables may have compressed pages. Each has perhaps all that those before
/// it may have.
const FORMAT_OF_COMPRESSED: u32 = 5;
/// Without what the volume knows of the region.
const FORMAT_UNPAIRED: u32 = 1;
const ENVELOPE: Envelope = Envelope {
    magic: b"StrataKV matrix\0",
    formats: FORMAT_UNPAIRED..=FORMAT_OF_COMPRESSED,
    uuid_at: 32,
    crc_at: |format| if format == FORMAT_UNPAIRED { 76 } else { CRC_AT },
    is_seeded: false,
};
const CRC_AT: usize = 124;

/// The first page that belongs to no superblock.
pub const FIRST_PAGE: u64 = 2;

/// No volume has so many pages: offsets in bytes, and sums of two extents, stay below 2^64.
pub const PAGES_MAX: u64 = 1 << 50;

/// What a superblock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// Of the store's shards, this one.
    pub shard: u32,
    /// Shards of the store.
    pub shards: u32,
    /// Number of the manifest; the superblock with the higher one counts, and it lies in page
    /// `number % 2`.
    pub number: u64,
    /// The manifest's first page.
    pub page: u64,
    /// Its pages.
    pub pages: u32,
    /// Its checksum.
    pub checksum: u32,
    /// The shard was closed in order since.
    pub clean: bool,
    /// What the region was when this was written.
    pub known: Known,
    /// The manifest names pages of the PMEM levels in the region; of one that was read, perhaps.
    pub layered: bool,
    /// The manifest has deletes of ranges; of one that was read, perhaps.
    pub has_ranges: bool,
    /// Tables have compressed pages.
    pub compressed: bool,
}

impl Paired for Superblock {
    fn age(&self) -> (u64, u64) {
        (self.number, self.known.epoch.number)
    }

    fn shard(&self) -> (u32, u32) {
        (self.shard, self.shards)
    }
}

impl Superblock {
    /// Where the manifest lies, both copies of it.
    pub fn manifest(&self) -> Extent {
        Extent { page: self.page, pages: self.pages.saturating_mul(2) }
    }

    /// Writes it into a page.
    pub fn encode(&self, uuid: &[u8; 16], page: &mut [u8]) {
        let format = match self.layered {
            _ if self.compressed => FORMAT_OF_COMPRESSED,
            _ if self.has_ranges => FORMAT_OF_RANGES,
            true => FORMAT_OF_LAYERS,
            false => FORMAT,
        };
        let mut writer = ENVELOPE.begin(format, page);
        writer.u32(self.shard).u32(self.shards).u32(0).bytes(uuid);
        writer.u64(self.number).u64(self.page).u32(self.pages).u32(self.checksum).u32(u32::from(self.clean));
        let Known { epoch, directory, version, oldest, records } = self.known;
        writer.u64(epoch.number).u64(epoch.session).u64(directory).u64(version).u64(oldest).u64(records);
        debug_assert_eq!(writer.at(), CRC_AT);
        ENVELOPE.seal(format, uuid, page);
    }

    /// Reads it from a page.
    ///
    /// # Errors
    /// [`SuperblockError`].
    pub fn decode(uuid: &[u8; 16], page: &[u8]) -> Result<Superblock, SuperblockError> {
        let (format, mut reader) = ENVELOPE.open(uuid, page)?;
        let (shard, shards, _) = (reader.u32()?, reader.u32()?, reader.u32()?);
        reader.bytes(uuid.len())?;
        let (number, first) = (reader.u64()?, reader.u64()?);
        let (pages, checksum, clean) = (reader.u32()?, reader.u32()?, reader.u32()? == 1);
        let known = if format == FORMAT_UNPAIRED { Known::default() } else { Superblock::known(&mut reader)? };
        if !(FIRST_PAGE..PAGES_MAX).contains(&first) {
            return Err(SuperblockError::Damaged("it points to no page of a volume"));
        }
        if [number, known.epoch.number, known.directory, known.version].iter().any(|number| *number >= NUMBERS_END) {
            return Err(SuperblockError::Damaged("its numbers are at their end"));
        }
        Ok(Superblock {
            shard,
            shards,
            number,
            page: first,
            pages,
            checksum,
            clean,
            known,
            layered: format >= FORMAT_OF_LAYERS,
            has_ranges: format >= FORMAT_OF_RANGES,
            compressed: format == FORMAT_OF_COMPRESSED,
        })
    }

    fn known(reader: &mut Reader<'_>) -> Result<Known, Truncated> {
        let epoch = Epoch { number: reader.u64()?, session: reader.u64()? };
        let (directory, version, oldest, records) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        Ok(Known { epoch, directory, version, oldest, records })
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::checksum::crc32c;

    use super::*;

    fn sample() -> (Superblock, Vec<u8>) {
        let epoch = Epoch { number: 5, session: 0xFEED_BEEF };
        let known = Known { epoch, directory: 31, version: 900, oldest: 700, records: 150 };
        let superblock = Superblock {
            shard: 1,
            shards: 2,
            number: 77,
            page: 12_345,
            pages: 9,
            checksum: 0xABCD,
            clean: true,
            known,
            layered: false,
            has_ranges: false,
            compressed: false,
        };
        let mut page = vec![0xFF; 4096];
        superblock.encode(&[7; 16], &mut page);
        (superblock, page)
    }

    #[test]
    fn what_was_written_is_read() {
        let (superblock, page) = sample();
        assert_eq!(Superblock::decode(&[7; 16], &page), Ok(superblock));
        assert_eq!(Superblock::decode(&[8; 16], &page), Err(SuperblockError::Foreign));
    }

    #[test]
    fn the_format_of_the_superblock_is_this() {
        let (_, page) = sample();
        assert_eq!(crc32c(0, &page), 2_385_513_313, "a change of the format needs a new version");
    }

    #[test]
    fn what_a_volume_may_have_is_its_version() {
        let versions = [(false, false, 2), (true, false, 3), (false, true, 5), (true, true, 5)];
        for (layered, compressed, version) in versions {
            let (superblock, mut page) = sample();
            Superblock { layered, compressed, ..superblock }.encode(&[7; 16], &mut page);
            assert_eq!(page[16], version);
            let read = Superblock::decode(&[7; 16], &page).unwrap();
            assert_eq!((read.layered, read.compressed), (layered || compressed, compressed));
            let mut again = vec![0; 4096];
            read.encode(&[7; 16], &mut again);
            assert_eq!(again, page, "as it was found");
        }
    }

    #[test]
    fn the_format_before_is_read() {
        let (superblock, mut page) = sample();
        page[16] = 1;
        page[76..].fill(0);
        let checksum = crc32c(0, &page[..76]);
        page[76..80].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(crc32c(0, &page), 2_681_157_336, "as it always was");
        let unpaired = Superblock { known: Known::default(), ..superblock };
        assert_eq!(Superblock::decode(&[7; 16], &page), Ok(unpaired));
    }

    #[test]
    fn every_turned_bit_is_noticed() {
        let (superblock, page) = sample();
        for bit in 0..128 * 8 {
            let mut turned = page.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Superblock::decode(&[7; 16], &turned), Ok(superblock), "bit {bit}");
        }
        for len in 0..128 {
            assert!(Superblock::decode(&[7; 16], &page[..len]).is_err());
        }
    }

    #[test]
    fn numbers_from_which_nothing_counts_on_are_refused() {
        for at in [48, 76, 92, 100] {
            let (_, mut page) = sample();
            page[at..at + 8].fill(0xFF);
            let checksum = crc32c(0, &page[..CRC_AT]);
            page[CRC_AT..CRC_AT + 4].copy_from_slice(&checksum.to_le_bytes());
            let refused = Superblock::decode(&[7; 16], &page);
            assert_eq!(refused, Err(SuperblockError::Damaged("its numbers are at their end")), "byte {at}");
        }
    }

    #[test]
    fn a_newer_format_is_told() {
        let (_, mut page) = sample();
        page[16] = 6;
        let checksum = crc32c(0, &page[..CRC_AT]);
        page[CRC_AT..CRC_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Superblock::decode(&[7; 16], &page), Err(SuperblockError::Newer { found: 6, known: 5 }));
    }
}
