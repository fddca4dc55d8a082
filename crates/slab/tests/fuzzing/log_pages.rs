//! Pages of a log, forged: whatever their fields say, their checksums match.

use std::collections::BTreeSet;

use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::PAGE_BYTES;

use super::UUID;
use crate::packed::batch::{HEADER_BYTES, RecordKind, parsed};
use crate::packed::checkpoint::format::{CHUNK_HEADER_BYTES, KeysReader, root_pages};
use crate::packed::table::SegmentTable;
use crate::packed::tables::table_page;

/// Pages of a segment of the smallest volumes.
const SEGMENT_PAGES: usize = 4;
/// Where a chunk says how long its body is.
const CHUNK_BODY_AT: usize = 36;

/// Mends the checksums of what page `number` says it is the beginning of; false if it says nothing
/// of the kind.
pub(super) fn forge(image: &mut [u8], number: usize) -> bool {
    let generation = generation(image, number);
    let rest = &mut image[number * PAGE_BYTES..];
    match rest.first_chunk::<4>() {
        Some(b"SPTB") => mend_table(&mut rest[..PAGE_BYTES], number),
        Some(b"SPCR") => mend_root(rest, number, generation),
        Some(b"SPCK") => mend_chunk(rest, number, generation),
        Some(b"SPBT") => mend_batch(rest, number, generation),
        _ => return false,
    }
    true
}

/// Keys that the batch at page `number` names, if one begins there.
pub(super) fn keys(image: &[u8], number: usize) -> BTreeSet<Vec<u8>> {
    let rest = &image[number * PAGE_BYTES..];
    let mut keys = BTreeSet::new();
    if rest.starts_with(b"SPBT") {
        records(rest, |bytes, _, _| keys.extend(parsed(bytes).map(|(record, _)| record.key.to_vec())));
    }
    keys
}

/// What the tables say of the segment of a page, be they forged or not.
fn generation(image: &[u8], number: usize) -> u64 {
    let copy = |copy: usize| {
        let place = table_page(0, SEGMENT_PAGES as u32) as usize + copy;
        SegmentTable::decode(&UUID, place as u32, image.get(place * PAGE_BYTES..(place + 1) * PAGE_BYTES)?)
    };
    let table = [copy(0), copy(1)].into_iter().flatten().max_by_key(|table| table.counter);
    let entry = table.as_ref().and_then(|table| table.entries.get(number / SEGMENT_PAGES));
    entry.map_or(0, |entry| entry.generation)
}

fn mend_table(page: &mut [u8], number: usize) {
    let crc = crc32c(crc32c(seed(&UUID, number as u64, 3), &page[..4]), &page[8..]);
    Writer::new(&mut page[4..8]).u32(crc);
}

/// Gives a root, or a chunk of which so many bytes count, the checksum of what it holds.
pub(super) fn mend_part(bytes: &mut [u8], first: u64, generation: u64, len: usize) {
    let len = len.clamp(8, bytes.len());
    let crc = crc32c(seed(&UUID, first, generation), &bytes[8..len]);
    Writer::new(&mut bytes[4..8]).u32(crc);
}

fn mend_root(rest: &mut [u8], number: usize, generation: u64) {
    mend_part(rest, number as u64, generation, root_pages(SEGMENT_PAGES as u32) as usize * PAGE_BYTES);
}

fn mend_chunk(rest: &mut [u8], number: usize, generation: u64) {
    let body = field(rest, CHUNK_BODY_AT);
    mend_part(rest, number as u64, generation, CHUNK_HEADER_BYTES.saturating_add(body));
}

fn field(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..).and_then(|rest| Reader::new(rest).u32().ok()).unwrap_or_default() as usize
}

/// Makes every root say what its chunks are: else one forged chunk would be refused for the sum
/// over all.
pub(super) fn mend_sums(image: &mut [u8]) {
    for number in (0..image.len() / PAGE_BYTES).step_by(SEGMENT_PAGES) {
        let root = &image[number * PAGE_BYTES..];
        if !root.starts_with(b"SPCR") {
            continue;
        }
        let segments = (0..field(root, 56).min(image.len() / PAGE_BYTES)).map(|at| {
            let skip = if at == 0 { root_pages(SEGMENT_PAGES as u32) as usize } else { 0 };
            (field(root, 64 + 8 * at), skip, field(root, 68 + 8 * at).min(SEGMENT_PAGES))
        });
        let (mut chunks, mut sum, mut entries) = (0, 0, 0);
        for (segment, skip, pages) in segments {
            let mut page = skip;
            while page < pages {
                let Some(chunk) = image.get((segment * SEGMENT_PAGES + page) * PAGE_BYTES..) else { break };
                sum = crc32c(sum, chunk.get(4..8).unwrap_or_default());
                chunks += 1;
                let body = chunk.get(CHUNK_HEADER_BYTES..).and_then(|rest| rest.get(..field(chunk, CHUNK_BODY_AT)));
                if field(chunk, 28) == 2 {
                    let mut reader = KeysReader::new(body.unwrap_or_default());
                    while reader.next().is_some() {
                        entries += 1;
                    }
                }
                page += field(chunk, 32).max(1);
            }
        }
        let generation = generation(image, number);
        let root = &mut image[number * PAGE_BYTES..];
        Writer::new(&mut root[40..]).u64(entries).u32(chunks).u32(sum);
        mend_root(root, number, generation);
    }
}

/// Calls `visit` with the bytes from each record's beginning, its offset from the batch's, and
/// where its checksum's cover ends.
fn records(batch: &[u8], mut visit: impl FnMut(&[u8], usize, usize)) {
    let bytes = Reader::new(&batch[60..]).u32().unwrap_or_default() as usize;
    let end = HEADER_BYTES.saturating_add(bytes).min(batch.len());
    let mut at = HEADER_BYTES;
    while let Some((record, value_start)) = batch.get(at..end).and_then(parsed) {
        let value = match record.kind {
            RecordKind::Value => record.value.len(),
            RecordKind::Deleted { .. } => 8,
            RecordKind::Large { .. } => 12,
        };
        visit(&batch[at..end], at, value_start + value);
        at += (value_start + value).next_multiple_of(8);
    }
}

fn mend_batch(rest: &mut [u8], number: usize, generation: u64) {
    let mut mended = Vec::new();
    records(rest, |bytes, at, end| {
        let place = number as u64 * PAGE_BYTES as u64 + at as u64;
        mended.push((at, crc32c(seed(&UUID, place, generation), &bytes[4..end])));
    });
    let mut records_crc = 0;
    for (at, crc) in mended {
        Writer::new(&mut rest[at..]).u32(crc);
        records_crc = crc32c(records_crc, &crc.to_le_bytes());
    }
    Writer::new(&mut rest[12..]).u32(records_crc);
    let crc = crc32c(crc32c(seed(&UUID, number as u64, 2), &rest[..8]), &rest[12..HEADER_BYTES]);
    Writer::new(&mut rest[8..]).u32(crc);
    let pages = Reader::new(&rest[56..]).u32().unwrap_or_default() as usize;
    if (1..=rest.len() / PAGE_BYTES).contains(&pages) {
        rest.copy_within(..HEADER_BYTES, pages * PAGE_BYTES - HEADER_BYTES);
    }
}
