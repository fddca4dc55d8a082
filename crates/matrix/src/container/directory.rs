//! What the region holds, in two slots; and how far a compactor's columns are down.

use stratakv_base::checksum::crc32c;
use stratakv_base::codec::{Reader, Truncated};
use stratakv_base::{Corruption, fault_point};
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use super::medium::{Layout, Medium};
use super::superblock;
use crate::pairing::Epoch;

const FIXED_BYTES: usize = 72;
const ROW_BYTES: usize = 24;
const CRC_AT: usize = 68;
const WRAPPED: u32 = 1;
const BEGUN: u32 = 2;
/// The epochs follow the keys.
const PAIRED: u32 = 4;
const EPOCHS_BYTES: usize = 32;
/// What counts directories, memtables, hand-overs, manifests and openings, in region and volumes,
/// is below this, and versions are below that: so that counting on never ends.
pub(crate) const NUMBERS_END: u64 = 1 << 60;
const VERSIONS_END: u64 = 1 << 53;
/// In a row's first element that is down: they go around the end. A row has fewer elements.
const ROW_WRAPPED: u32 = 1 << 31;

/// How far the columns of a compactor are down, around the key space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The number of the compactor: hand-overs so far.
    pub compactor: u64,
    /// Where the first column since the hand-over began. Rows of before have more that is down.
    pub start: Vec<u8>,
    /// Where the next one begins, once one is down. Empty after the end of the key space.
    pub cursor: Vec<u8>,
    /// The end of the key space is behind it.
    pub wrapped: bool,
    /// A column is down.
    pub begun: bool,
}

impl Rotation {
    /// Whether the records of this key in all rows of the compactor are down.
    pub fn is_down(&self, key: &[u8]) -> bool {
        let (start, cursor) = (key >= &self.start[..], key < &self.cursor[..]);
        self.begun && if self.wrapped { start || cursor } else { start && cursor }
    }

    /// Whether all columns are down.
    pub fn is_over(&self) -> bool {
        self.begun && self.wrapped && self.cursor >= self.start
    }

    /// What is not down and follows the cursor, up to the end of the key space (`None`) or the
    /// start.
    pub fn rest(&self) -> (&[u8], Option<&[u8]>) {
        match (self.begun, self.wrapped) {
            (false, _) => (&self.start, None),
            (true, false) => (&self.cursor, None),
            (true, true) => (&self.cursor, Some(&self.start)),
        }
    }

    /// The rotation once everything before `end` (`None`: before the end of the key space) is down.
    pub fn after(&self, end: Option<&[u8]>) -> Rotation {
        let cursor = end.unwrap_or_default().to_vec();
        let (compactor, start) = (self.compactor, self.start.clone());
        Rotation { compactor, start, cursor, wrapped: self.wrapped || end.is_none(), begun: true }
    }

    /// Whether it is further than the other one of the same compactor.
    pub(super) fn is_beyond(&self, other: &Rotation) -> bool {
        (self.begun, self.wrapped, &self.cursor) > (other.begun, other.wrapped, &other.cursor)
    }
}

/// A row, as the directory has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowEntry {
    pub(super) number: u64,
    pub(super) first_unit: u32,
    pub(super) header_crc: u32,
    /// Elements that are down: from this one ...
    pub(super) down_from: u32,
    /// ... up to this one ...
    pub(super) down_to: u32,
    /// ... around the end. Before format 2 that holds of all rows of the compactor if the rotation
    /// has gone around.
    pub(super) wrapped: bool,
}

/// See `docs/format-matrix.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) number: u64,
    pub(super) flushed: u64,
    pub(super) next: u64,
    pub(super) version: u64,
    pub(super) manifest: u64,
    pub(super) compactor_rows: u32,
    pub(super) rotation: Rotation,
    pub(super) rows: Vec<RowEntry>,
    /// The last opening for writing.
    pub(super) epoch: Epoch,
    /// What the volume may have instead, as long as the opening is under way.
    pub(super) before: Epoch,
}

/// Length with so many rows and bytes of keys.
pub(super) fn bytes(rows: usize, keys_bytes: usize) -> usize {
    FIXED_BYTES + rows * ROW_BYTES + keys_bytes + EPOCHS_BYTES
}

impl Directory {
    /// Of a container without contents: 0 is no memtable's number.
    pub(super) fn blank() -> Directory {
        Directory { next: 1, ..Directory::default() }
    }

    /// Its bytes; `paired` is the flag of one that has epochs, or 0.
    pub(super) fn encode(&self, layout: &Layout, paired: u32) -> Vec<u8> {
        let rotation = &self.rotation;
        let flags = paired | if rotation.wrapped { WRAPPED } else { 0 } | if rotation.begun { BEGUN } else { 0 };
        let mut bytes = Vec::with_capacity(bytes(self.rows.len(), rotation.start.len() + rotation.cursor.len()));
        for word in [self.number, self.flushed, self.next, self.version, self.manifest, rotation.compactor] {
            bytes.extend(word.to_le_bytes());
        }
        let lengths = [rotation.start.len() as u32, rotation.cursor.len() as u32];
        for word in [self.compactor_rows, self.rows.len() as u32, lengths[0], lengths[1], flags, 0] {
            bytes.extend(word.to_le_bytes());
        }
        for row in &self.rows {
            bytes.extend(row.number.to_le_bytes());
            let wrapped = if layout.joins() && row.wrapped { ROW_WRAPPED } else { 0 };
            for word in [row.first_unit, row.header_crc, row.down_from | wrapped, row.down_to] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes.extend(&rotation.start);
        bytes.extend(&rotation.cursor);
        if paired != 0 {
            for word in [self.epoch.number, self.epoch.session, self.before.number, self.before.session] {
                bytes.extend(word.to_le_bytes());
            }
        }
        let crc = checksum(&bytes, layout);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: it does not check.
    fn decode(bytes: &[u8], layout: &Layout) -> Option<Directory> {
        let (directory, len) = Directory::parse(bytes, layout).ok()?;
        let bytes = bytes.get(..len)?;
        let stored = super::medium::u32_at(bytes, CRC_AT);
        let sane = directory.compactor_rows as usize <= directory.rows.len() && directory.can_count_on();
        (stored == checksum(bytes, layout) && sane).then_some(directory)
    }

    fn can_count_on(&self) -> bool {
        let Directory { number, flushed, next, manifest, epoch, before, rotation, .. } = self;
        let counted = [*number, *flushed, *next, *manifest, epoch.number, before.number, rotation.compactor];
        let rows = self.rows.iter().map(|row| row.number);
        counted.into_iter().chain(rows).all(|number| number < NUMBERS_END) && self.version < VERSIONS_END
    }

    fn parse(bytes: &[u8], layout: &Layout) -> Result<(Directory, usize), Truncated> {
        let mut reader = Reader::new(bytes);
        let mut directory = Directory { number: reader.u64()?, ..Directory::default() };
        directory.flushed = reader.u64()?;
        directory.next = reader.u64()?;
        directory.version = reader.u64()?;
        directory.manifest = reader.u64()?;
        directory.rotation.compactor = reader.u64()?;
        directory.compactor_rows = reader.u32()?;
        let rows = reader.u32()?;
        let (start, cursor) = (reader.u32()?, reader.u32()?);
        let flags = reader.u32()?;
        reader.u32()?;
        directory.rotation.wrapped = flags & WRAPPED != 0;
        for ordinal in 0..rows {
            let (number, first_unit, header_crc) = (reader.u64()?, reader.u32()?, reader.u32()?);
            let (down_from, down_to) = (reader.u32()?, reader.u32()?);
            let wrapped = match layout.joins() {
                true => down_from & ROW_WRAPPED != 0,
                false => ordinal < directory.compactor_rows && directory.rotation.wrapped,
            };
            let down_from = if layout.joins() { down_from & !ROW_WRAPPED } else { down_from };
            directory.rows.push(RowEntry { number, first_unit, header_crc, down_from, down_to, wrapped });
        }
        directory.rotation.start = reader.bytes(start as usize)?.to_vec();
        directory.rotation.cursor = reader.bytes(cursor as usize)?.to_vec();
        directory.rotation.begun = flags & BEGUN != 0;
        if flags & PAIRED != 0 {
            directory.epoch = Epoch { number: reader.u64()?, session: reader.u64()? };
            directory.before = Epoch { number: reader.u64()?, session: reader.u64()? };
        }
        Ok((directory, reader.at()))
    }

    /// Whether a row more would fit, whatever the keys.
    pub(super) fn has_room(&self, layout: &Layout) -> bool {
        let keys_bytes = 2 * (superblock::key_bytes_max(layout.unit_bytes) + 1);
        bytes(self.rows.len() + 1, keys_bytes) <= layout.directory_bytes as usize
    }

    fn slot(&self, layout: &Layout) -> u64 {
        let mut slot = self.number % 2;
        fault_point!("matrix_directory_in_place", slot = 0);
        superblock::BYTES + slot * u64::from(layout.directory_bytes)
    }

    /// Stores it into its slot and flushes it: durable after a fence.
    pub(super) fn store<P: Pmem>(&self, medium: &Medium<P>) -> Result<(), Error> {
        self.store_bytes(medium, &self.encode(&medium.layout, PAIRED))
    }

    /// Stores encoded bytes into its slot and flushes them.
    pub(super) fn store_bytes<P: Pmem>(&self, medium: &Medium<P>, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > medium.layout.directory_bytes as usize {
            return Err(Error::Full("the directory of the container has no room for another row"));
        }
        let at = self.slot(&medium.layout);
        medium.pmem.store(at, bytes)?;
        medium.pmem.flush(at, bytes.len() as u64)?;
        Ok(())
    }

    /// The valid one with the higher number; and whether the other slot holds something that does
    /// not check.
    pub(super) fn open<P: Pmem>(medium: &Medium<P>) -> Result<(Directory, bool), Corruption> {
        let layout = &medium.layout;
        let (mut newest, mut torn) = (None::<Directory>, false);
        let mut bytes = vec![0; layout.directory_bytes as usize];
        for slot in 0..2 {
            let at = superblock::BYTES + slot * u64::from(layout.directory_bytes);
            medium.load(at, &mut bytes)?;
            match Directory::decode(&bytes, layout) {
                Some(found) if newest.as_ref().is_none_or(|newest| newest.number < found.number) => {
                    newest = Some(found);
                }
                Some(_) => {}
                None => torn |= bytes[..FIXED_BYTES].iter().any(|byte| *byte != 0),
            }
        }
        let none = || medium.damage(superblock::BYTES, "directory", "one valid slot", "none");
        newest.map(|newest| (newest, torn)).ok_or_else(none)
    }
}

fn checksum(bytes: &[u8], layout: &Layout) -> u32 {
    let seed = layout.seed(u64::from(layout.shard), 0);
    crc32c(crc32c(seed, &bytes[..CRC_AT]), &bytes[CRC_AT + 4..])
}
