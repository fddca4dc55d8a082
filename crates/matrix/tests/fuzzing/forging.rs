//! Writes anything into what a container's checksums cover, and mends them: for the fuzzers.

use stratakv_base::checksum::crc32c;
use stratakv_pmem::Pmem;

use super::directory::{Directory, RowEntry};
use super::medium::{Medium, UNIT_HEADER_BYTES, u32_at};
use super::record::{self, Head};
use super::row::Row;
use super::superblock;

/// Of a directory before its rows.
const DIRECTORY_BYTES: usize = 72;
const DIRECTORY_CRC_AT: usize = 68;
const ROW_ENTRY_BYTES: usize = 24;
const ROW_HEADER_CRC_AT: usize = 44;

/// Which part, which of its kind, from which byte on, and what is written there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgery<'a> {
    pub(crate) part: u8,
    pub(crate) number: usize,
    pub(crate) at: usize,
    pub(crate) bytes: &'a [u8],
}

/// Forges something in the container of a region. `None`: there is no such thing in it.
pub(crate) fn forge<P: Pmem>(pmem: &P, uuid: &[u8; 16], forgery: Forgery<'_>) -> Option<()> {
    let Forgery { part, number, at, bytes } = forgery;
    let medium = Medium { pmem, layout: superblock::open(pmem, uuid, 0).ok()? };
    let unit = number as u32 % medium.layout.units();
    match part % 6 {
        0 => edit(&medium, 0, 64, at % 60, bytes, |page| seal(page, 60, crc32c(0, &page[..60]))),
        1 => {
            let len = medium.layout.directory_bytes as usize;
            edit(&medium, slot_at(&medium, number as u64 % 2), len, at % len.min(600), bytes, |slot| {
                seal_directory(&medium, slot);
            })
        }
        2 => edit(&medium, medium.layout.unit_start(unit), 28, at % 24, bytes, |header| {
            let seed = medium.layout.seed(u64::from(medium.layout.shard), u64::from(unit));
            seal(header, 24, crc32c(seed, &header[..24]));
        }),
        3 | 4 => row(&medium, forgery),
        _ => record(&medium, unit, at, bytes),
    }
}

fn slot_at<P: Pmem>(medium: &Medium<P>, slot: u64) -> u64 {
    superblock::BYTES + slot * u64::from(medium.layout.directory_bytes)
}

/// Writes `bytes` at byte `at` of `len` that begin at `start`, and what `mend` makes of them.
fn edit<P: Pmem>(
    medium: &Medium<P>,
    start: u64,
    len: usize,
    at: usize,
    bytes: &[u8],
    mend: impl Fn(&mut [u8]),
) -> Option<()> {
    let mut whole = vec![0; len];
    medium.load(start, &mut whole).ok()?;
    let count = bytes.len().min(len - at);
    whole[at..at + count].copy_from_slice(&bytes[..count]);
    mend(&mut whole);
    medium.pmem.store(start, &whole).ok()
}

fn seal(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn seal_directory<P: Pmem>(medium: &Medium<P>, slot: &mut [u8]) {
    let field = |at: usize| u32_at(slot, at) as usize;
    let epochs = if field(64) & 4 == 0 { 0 } else { 32 };
    let len = DIRECTORY_BYTES
        .saturating_add(field(52).saturating_mul(ROW_ENTRY_BYTES))
        .saturating_add(field(56) + field(60) + epochs);
    let Some(whole) = slot.get(..len) else { return };
    let seed = medium.layout.seed(u64::from(medium.layout.shard), 0);
    let crc = crc32c(crc32c(seed, &whole[..DIRECTORY_CRC_AT]), &whole[DIRECTORY_BYTES..]);
    seal(slot, DIRECTORY_CRC_AT, crc);
}

/// The header of a row, or its list of units, prefixes, places and hints.
fn row<P: Pmem>(medium: &Medium<P>, Forgery { part, number, at, bytes }: Forgery<'_>) -> Option<()> {
    let (directory, _) = Directory::open(medium).ok()?;
    let ordinal = number.checked_rem(directory.rows.len())?;
    let entry: RowEntry = directory.rows[ordinal];
    let row = Row::open(medium, &entry).ok()?;
    let seed = medium.layout.seed(entry.number, 0);
    let start = medium.layout.unit_start(entry.first_unit) + UNIT_HEADER_BYTES;
    let is_header = part % 6 == 3;
    if !is_header {
        let at = row.metadata_at(medium, at as u64 % row.metadata_bytes());
        let unit_end = medium.layout.unit_end(medium.layout.unit_of(at));
        let count = (bytes.len() as u64).min(unit_end - at) as usize;
        medium.pmem.store(at, &bytes[..count]).ok()?;
    }
    let metadata_crc = row.metadata_crc(medium, seed).ok()?;
    let forged = if is_header { bytes } else { &[] };
    edit(medium, start, ROW_HEADER_CRC_AT + 4, at % ROW_HEADER_CRC_AT, forged, |header| {
        if !is_header {
            seal(header, 40, metadata_crc);
        }
        seal(header, ROW_HEADER_CRC_AT, crc32c(seed, &header[..ROW_HEADER_CRC_AT]));
    })?;
    let mut header = [0; ROW_HEADER_CRC_AT + 4];
    medium.load(start, &mut header).ok()?;
    let slot = slot_at(medium, directory.number % 2);
    let at = DIRECTORY_BYTES + ordinal * ROW_ENTRY_BYTES + 12;
    let len = medium.layout.directory_bytes as usize;
    edit(medium, slot, len, at, &header[ROW_HEADER_CRC_AT..], |slot| seal_directory(medium, slot))
}

/// Header or key of a record of a unit, log or row.
fn record<P: Pmem>(medium: &Medium<P>, unit: u32, at: usize, bytes: &[u8]) -> Option<()> {
    let layout = &medium.layout;
    let owner = medium.unit_header(unit).ok()??.number;
    let mut place = layout.unit_start(unit) + UNIT_HEADER_BYTES;
    for _ in 0..at >> 6 & 31 {
        let Ok(head) = Head::load(medium, owner, place) else { break };
        place += head.record_bytes();
    }
    let room = layout.unit_end(unit).checked_sub(place)? as usize;
    let at = 4 + at % 60;
    if room <= at {
        return None;
    }
    edit(medium, place, room, at, bytes, |rest| {
        let key_bytes = u32_at(rest, 4) as usize & 0xFFFF;
        let pointer_bytes = if rest[6] == 3 { record::POINTER_BYTES } else { 0 };
        let len = record::HEADER_BYTES + key_bytes + pointer_bytes;
        if let Some(head) = rest.get_mut(..len) {
            record::seal(layout, owner, place, head);
        }
    })
}

/// Makes both slots of a region's directory as they were before there were epochs.
#[cfg(test)]
pub(crate) fn forget_epochs<P: Pmem>(pmem: &P, uuid: [u8; 16], shard: u32) {
    let layout = superblock::open(pmem, &uuid, shard).unwrap();
    let medium = Medium { pmem, layout };
    let (mut directory, _) = Directory::open(&medium).unwrap();
    (directory.epoch, directory.before) = Default::default();
    for _ in 0..2 {
        directory.number += 1;
        directory.store_bytes(&medium, &directory.encode(&medium.layout, 0)).unwrap();
    }
}
