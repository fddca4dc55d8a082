//! The region, and where things lie in it.

use stratakv_base::{Corruption, Place, checksum};
use stratakv_pmem::{LINE_BYTES, Pmem, PmemError};

/// Bytes before what a unit holds.
pub(super) const UNIT_HEADER_BYTES: u64 = 64;
/// Kinds of units.
pub(super) const LOG: u32 = 1;
pub(super) const ROW: u32 = 2;

/// What the superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) uuid: [u8; 16],
    pub(super) shard: u32,
    pub(super) unit_bytes: u32,
    pub(super) region_bytes: u64,
    pub(super) directory_bytes: u32,
    /// Version of the format.
    pub(super) format: u32,
}

impl Layout {
    /// Rows join the compactor while columns go down; before format 2 only an empty one takes rows.
    pub(super) fn joins(&self) -> bool {
        self.format >= 2
    }

    /// There may be records that delete a range.
    pub(super) fn has_ranges(&self) -> bool {
        self.format >= 3
    }

    /// Where the units begin.
    pub(super) fn first(&self) -> u64 {
        // Lengths of units are powers of two; every access comes here, and a division costs as much
        // as the rest of it.
        let within = u64::from(self.unit_bytes) - 1;
        (4096 + 2 * u64::from(self.directory_bytes) + within) & !within
    }

    pub(super) fn units(&self) -> u32 {
        let bytes = self.region_bytes.saturating_sub(self.first());
        u32::try_from(bytes / u64::from(self.unit_bytes)).unwrap_or(u32::MAX)
    }

    pub(super) fn unit_start(&self, unit: u32) -> u64 {
        self.first() + u64::from(unit) * u64::from(self.unit_bytes)
    }

    pub(super) fn unit_end(&self, unit: u32) -> u64 {
        self.unit_start(unit) + u64::from(self.unit_bytes)
    }

    /// The unit that holds a place; one that does not exist if it lies before or behind them.
    pub(super) fn unit_of(&self, place: u64) -> u32 {
        let unit = place.checked_sub(self.first()).map(|bytes| bytes >> self.unit_bytes.trailing_zeros());
        unit.and_then(|unit| u32::try_from(unit).ok()).unwrap_or(u32::MAX)
    }

    /// Bytes that a unit holds behind its header.
    pub(super) fn capacity(&self) -> u64 {
        u64::from(self.unit_bytes) - UNIT_HEADER_BYTES
    }

    pub(super) fn seed(&self, a: u64, b: u64) -> u32 {
        checksum::seed(&self.uuid, a, b)
    }
}

/// The header of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnitHeader {
    pub(super) kind: u32,
    pub(super) ordinal: u32,
    pub(super) number: u64,
}

impl UnitHeader {
    pub(super) fn encode(self, layout: &Layout, unit: u32) -> [u8; UNIT_HEADER_BYTES as usize] {
        let mut bytes = [0; UNIT_HEADER_BYTES as usize];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.ordinal.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&layout.uuid[..8]);
        let crc = checksum::crc32c(layout.seed(u64::from(layout.shard), u64::from(unit)), &bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: it does not check.
    pub(super) fn decode(bytes: &[u8; UNIT_HEADER_BYTES as usize], layout: &Layout, unit: u32) -> Option<UnitHeader> {
        let header = UnitHeader { kind: u32_at(bytes, 0), ordinal: u32_at(bytes, 4), number: u64_at(bytes, 8) };
        (header.encode(layout, unit)[..28] == bytes[..28]).then_some(header)
    }
}

/// Four bytes of a buffer that has them; zeros where it ends.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    u32::from_le_bytes(field.copied().unwrap_or_default())
}

/// As [`u32_at`], eight bytes.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    u64::from_le_bytes(field.copied().unwrap_or_default())
}

/// A region and its layout.
#[derive(Debug)]
pub(super) struct Medium<P> {
    pub(super) pmem: P,
    pub(super) layout: Layout,
}

impl<P: Pmem> Medium<P> {
    /// As [`Pmem::load`]; what cannot be read is damage.
    pub(super) fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), Corruption> {
        self.pmem.load(offset, into).map_err(|error| self.damage(offset, "a place", "bytes", error.to_string()))
    }

    /// An aligned word.
    pub(super) fn load_u64(&self, offset: u64) -> Result<u64, Corruption> {
        let word = self.pmem.load_u64(offset).map(u64::from_le);
        word.map_err(|error| self.damage(offset, "a place", "a word", error.to_string()))
    }

    /// An aligned half of a word.
    pub(super) fn load_u32(&self, offset: u64) -> Result<u32, Corruption> {
        let (word, upper) = (self.load_u64(offset & !7)?, offset & 4 != 0);
        Ok(if upper { (word >> 32) as u32 } else { word as u32 })
    }

    pub(super) fn unit_header(&self, unit: u32) -> Result<Option<UnitHeader>, Corruption> {
        let mut bytes = [0; UNIT_HEADER_BYTES as usize];
        self.load(self.layout.unit_start(unit), &mut bytes)?;
        Ok(UnitHeader::decode(&bytes, &self.layout, unit))
    }

    /// Stores past the cache whole words; what precedes and follows them in their lines through it,
    /// flushed. Durable after a fence.
    pub(super) fn store_past_cache(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        let lead = (offset.next_multiple_of(LINE_BYTES) - offset).min(bytes.len() as u64) as usize;
        let whole = (bytes.len() - lead) / LINE_BYTES as usize * LINE_BYTES as usize;
        let (before, rest) = bytes.split_at(lead);
        let (lines, after) = rest.split_at(whole);
        let at = offset + lead as u64;
        for (at, edge) in [(offset, before), (at + whole as u64, after)] {
            if !edge.is_empty() {
                self.pmem.store(at, edge)?;
                self.pmem.flush(at, edge.len() as u64)?;
            }
        }
        if lines.is_empty() { Ok(()) } else { self.pmem.store_nt(at, lines) }
    }

    pub(super) fn damage(
        &self,
        offset_bytes: u64,
        what: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Corruption {
        let place = Place { shard: self.layout.shard, offset_bytes };
        Corruption { place, what, expected: expected.into(), found: found.into() }
    }
}
