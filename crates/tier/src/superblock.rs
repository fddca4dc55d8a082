//! The two superblocks, pages 0 and 1 of a volume, written in turn.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_chassis::superblock::{Envelope, Paired, SuperblockError};

use crate::TierConfig;

/// The format that this program writes, and the highest that it knows.
const FORMAT: u32 = 2;
const ENVELOPE: Envelope =
    Envelope { magic: b"StrataKV tier\0\0\0", formats: 0..=FORMAT, uuid_at: 32, crc_at: |_| 176, is_seeded: true };
/// Openings for writing that versions and orders have room for.
const INCARNATION_SHIFT: u32 = 40;
/// The last ones are kept free: a volume that says that it is there has none left to be opened in.
const INCARNATIONS_MAX: u64 = (1 << (64 - INCARNATION_SHIFT)) - 4;
const GENERATIONS_MAX: u64 = 1 << 60;

/// Which pages of a volume are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Pages of the journal's ring; before it lie its two tails, in pages 2 and 3.
    pub(crate) ring_pages: u64,
    /// The log of segments.
    pub(crate) log_page: u64,
    pub(crate) log_pages: u64,
}

/// No volume has more pages: 256 TiB.
pub(crate) const PAGES_MAX: u64 = 1 << 36;
/// The journal's first page.
pub(crate) const TAIL_PAGE: u64 = 2;
/// 64 MiB: four million records.
const RING_PAGES_MAX: u64 = 16 << 10;

impl Layout {
    /// For this capacity: a sixty-fourth for the ring. `None`: there is no second tier.
    pub(crate) fn of(config: &TierConfig) -> Option<Layout> {
        let pages = config.capacity_bytes? / PAGE_BYTES as u64;
        let ring_pages = (pages / 64).clamp(1, RING_PAGES_MAX);
        let log_page = TAIL_PAGE + 2 + ring_pages;
        Some(Layout { ring_pages, log_page, log_pages: pages.saturating_sub(log_page) })
    }

    /// Of what is saved: no journal, and a log as long as it takes.
    pub(crate) fn saved(log_pages: u64) -> Layout {
        Layout { ring_pages: 0, log_page: TAIL_PAGE, log_pages }
    }

    /// Whether these pages are the log's.
    fn has_in_log(&self, page: u64, end: u64) -> bool {
        let log_end = self.log_page.saturating_add(self.log_pages);
        page >= self.log_page && page <= end && end <= log_end
    }
}

/// The list of segments and the dump of the index that an orderly end leaves in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexDump {
    /// Its first page.
    pub(crate) page: u64,
    pub(crate) segments: u64,
    pub(crate) entries: u64,
    /// All segments in it have a lower order.
    pub(crate) order: u64,
    /// Where the log went on.
    pub(crate) next_page: u64,
}

/// What a superblock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) shard: u32,
    pub(crate) shards: u32,
    /// Counts superblocks; the higher one holds, and lies in page `generation % 2`.
    pub(crate) generation: u64,
    /// Counts openings for writing; the top of every version and order.
    pub(crate) incarnation: u64,
    pub(crate) clean: bool,
    /// The system that it ran on; `None`: what is on the volume counts only if `clean`.
    pub(crate) boot: Option<[u8; 16]>,
    pub(crate) layout: Layout,
    pub(crate) table: Option<IndexDump>,
    /// No version was higher, at an orderly end.
    pub(crate) version: u64,
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
    /// Below every version and order of its incarnation.
    pub(crate) fn first_number(&self) -> u64 {
        self.incarnation << INCARNATION_SHIFT
    }

    /// Whether an orderly end saved here what DRAM held, and nobody has taken it since.
    pub(crate) fn is_saved(&self) -> bool {
        let is_saved = self.layout == Layout::saved(self.layout.log_pages) && self.layout.log_pages <= PAGES_MAX;
        self.clean && is_saved && self.table.is_some()
    }

    /// Above every version and order that its incarnation, or the opening that follows it, can have
    /// given.
    pub(crate) fn end_number(&self) -> u64 {
        (self.incarnation + 2) << INCARNATION_SHIFT
    }

    /// Why nothing that was written says this, if nothing does: counting on from there would end,
    /// and what lies elsewhere cannot be read.
    fn complaint(&self) -> Option<&'static str> {
        if self.incarnation > INCARNATIONS_MAX || self.generation > GENERATIONS_MAX {
            return Some("its numbers are at their end");
        }
        if self.version >= self.end_number() {
            return Some("its version is of a later opening");
        }
        let table = self.table?;
        let end = table.page.saturating_add(table.pages());
        let is_possible = end <= table.next_page && self.layout.has_in_log(table.page, table.next_page);
        (!is_possible || table.order >= self.end_number()).then_some("its table lies outside of the log")
    }

    /// Writes it into a page.
    pub(crate) fn encode(&self, uuid: &[u8; 16], page: &mut [u8]) {
        let mut writer = ENVELOPE.begin(FORMAT, page);
        writer.u32(self.shard).u32(self.shards).u32(u32::from(self.clean)).bytes(uuid);
        writer.u64(self.generation).u64(self.incarnation).u64(self.version);
        writer.u32(u32::from(self.boot.is_some())).u32(u32::from(self.table.is_some()));
        writer.bytes(&self.boot.unwrap_or_default());
        writer.u64(self.layout.ring_pages).u64(self.layout.log_page).u64(self.layout.log_pages);
        let table = self.table.unwrap_or_default();
        writer.u64(table.page).u64(table.segments).u64(table.entries).u64(table.order).u64(table.next_page);
        debug_assert!(writer.at() <= 176);
        ENVELOPE.seal(FORMAT, uuid, page);
    }

    /// Reads it from this page of the volume.
    pub(crate) fn decode(uuid: &[u8; 16], number: u64, page: &[u8]) -> Result<Superblock, SuperblockError> {
        let (_, mut reader) = ENVELOPE.open(uuid, page)?;
        let (shard, shards, clean) = (reader.u32()?, reader.u32()?, reader.u32()? == 1);
        reader.bytes(uuid.len())?;
        let (generation, incarnation, version) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (has_boot, has_table) = (reader.u32()? == 1, reader.u32()? == 1);
        let boot = reader.array::<16>()?;
        let layout = Layout { ring_pages: reader.u64()?, log_page: reader.u64()?, log_pages: reader.u64()? };
        let table = IndexDump {
            page: reader.u64()?,
            segments: reader.u64()?,
            entries: reader.u64()?,
            order: reader.u64()?,
            next_page: reader.u64()?,
        };
        let (boot, table) = (has_boot.then_some(boot), has_table.then_some(table));
        let found = Superblock { shard, shards, generation, incarnation, clean, boot, layout, table, version };
        if found.generation % 2 != number {
            // The newer one may have been here.
            return Err(SuperblockError::Damaged("it is a copy of the other one"));
        }
        found.complaint().map_or(Ok(found), |why| Err(SuperblockError::Damaged(why)))
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::checksum::crc32c;

    use super::*;

    #[test]
    fn every_turned_bit_is_noticed() {
        let uuid = [7; 16];
        let table = IndexDump { page: 7, segments: 6, entries: 7, order: 8, next_page: 9 };
        let layout = Layout { ring_pages: 2, log_page: 6, log_pages: 1000 };
        let superblock = Superblock {
            shard: 1,
            shards: 2,
            generation: 3,
            incarnation: 4,
            clean: true,
            boot: Some([9; 16]),
            layout,
            table: Some(table),
            version: 10,
        };
        let mut page = [0; PAGE_BYTES];
        superblock.encode(&uuid, &mut page);
        assert_eq!(Superblock::decode(&uuid, 1, &page), Ok(superblock));
        assert_eq!(crc32c(0, &page), 0xFA9D_9F6E, "raise FORMAT when this changes");
        assert_eq!(Superblock::decode(&[8; 16], 1, &page), Err(SuperblockError::Foreign));
        let copy = Superblock::decode(&uuid, 0, &page);
        assert_eq!(
            copy,
            Err(SuperblockError::Damaged("it is a copy of the other one")),
            "the newer one may have been there"
        );
        for bit in 0..180 * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&uuid, 1, &page).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Superblock::decode(&uuid, 1, &page[..100]).is_err());
    }

    #[test]
    fn what_no_opening_can_have_written_is_refused() {
        let layout = Layout { ring_pages: 2, log_page: 6, log_pages: 1000 };
        let whole = Superblock { generation: 3, incarnation: 4, version: 5, layout, ..Superblock::default() };
        let table = IndexDump { page: 900, segments: 1, entries: 7, order: 8, next_page: 902 };
        let decoded = |superblock: Superblock| {
            let mut page = [0; PAGE_BYTES];
            superblock.encode(&[7; 16], &mut page);
            Superblock::decode(&[7; 16], 1, &page).is_ok()
        };
        let with = |table| Superblock { table: Some(table), ..whole };
        assert!(decoded(whole) && decoded(with(table)));
        assert!(!decoded(Superblock { incarnation: (1 << 24) - 1, ..whole }));
        assert!(!decoded(Superblock { generation: u64::MAX, ..whole }));
        assert!(!decoded(Superblock { version: u64::MAX, ..whole }));
        assert!(!decoded(with(IndexDump { entries: u64::MAX, segments: u64::MAX, ..table })));
        assert!(!decoded(with(IndexDump { page: u64::MAX, next_page: u64::MAX, ..table })));
        assert!(!decoded(with(IndexDump { page: 2, ..table })));
        assert!(!decoded(with(IndexDump { next_page: 5000, ..table })));
        assert!(!decoded(with(IndexDump { order: u64::MAX, ..table })));
    }
}
