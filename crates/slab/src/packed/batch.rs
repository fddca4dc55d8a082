//! Batches and records as bytes. Pure functions; the layout is drawn in docs/format-packed.md.

use stratakv_base::checksum::{crc32c, seed, turned_bit};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::{PAGE_BYTES, VALUE_BYTES_MAX};
use stratakv_base::{Key, fault_point};
use stratakv_device::Block;

use crate::expiry;
use crate::record::Meta;
use crate::space::Extent;

const MAGIC: u32 = u32::from_le_bytes(*b"SPBT");
const FORMAT: u8 = 1;
/// Bytes of a batch's header; it is repeated at the end.
pub(crate) const HEADER_BYTES: usize = 64;
/// Bytes of a record in front of its key, without the optional flags and expiry.
const RECORD_BYTES: usize = 24;
const HAS_FLAGS: u8 = 1;

/// Which records a segment takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Users' writes.
    Hot,
    /// Records that outlived their segment.
    Cold,
}

/// What a batch's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) stream: Stream,
    /// Of the segment.
    pub(crate) generation: u64,
    pub(crate) sequence: u64,
    /// Sequence of the batch before this one, of either stream.
    pub(crate) previous: u64,
    pub(crate) durable: u64,
    /// The highest version of its records.
    pub(crate) version_max: u64,
    pub(crate) pages: u32,
    /// Bytes of its records.
    pub(crate) bytes: u32,
    /// Over the records' checksums.
    pub(crate) records_crc: u32,
}

impl BatchHeader {
    /// Reads a header, the first or the second, of a batch that begins at page `first`.
    pub(crate) fn decode(uuid: &[u8; 16], first: u32, bytes: &[u8]) -> Option<BatchHeader> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().ok()?;
        let mut reader = Reader::new(bytes);
        let (magic, format, stream) = (reader.u32().ok()?, reader.u8().ok()?, reader.u8().ok()?);
        if magic != MAGIC || format != FORMAT {
            return None;
        }
        reader.u16().ok()?;
        if reader.u32().ok()? != header_crc(uuid, first, bytes) {
            return None;
        }
        let records_crc = reader.u32().ok()?;
        let (generation, sequence) = (reader.u64().ok()?, reader.u64().ok()?);
        let (previous, durable, version_max) = (reader.u64().ok()?, reader.u64().ok()?, reader.u64().ok()?);
        let (pages, bytes) = (reader.u32().ok()?, reader.u32().ok()?);
        let stream = if stream == 0 { Stream::Hot } else { Stream::Cold };
        let fits = pages > 0 && (bytes as usize).checked_add(2 * HEADER_BYTES)? <= (pages as usize) * PAGE_BYTES;
        fits.then_some(BatchHeader {
            stream,
            generation,
            sequence,
            previous,
            durable,
            version_max,
            pages,
            bytes,
            records_crc,
        })
    }

    /// Reads a second header at the end of a page; where the batch begins follows from it.
    pub(crate) fn decode_end(uuid: &[u8; 16], last: u32, page: &[u8]) -> Option<(u32, BatchHeader)> {
        let bytes = page.get(PAGE_BYTES - HEADER_BYTES..)?;
        if Reader::new(bytes).u32().ok()? != MAGIC {
            return None;
        }
        let pages = Reader::new(bytes.get(56..)?).u32().ok()?;
        let first = (last + 1).checked_sub(pages)?;
        Some((first, BatchHeader::decode(uuid, first, bytes)?))
    }

    fn encode(&self, uuid: &[u8; 16], first: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.u32(MAGIC).u8(FORMAT).u8(u8::from(self.stream == Stream::Cold)).u16(0).u32(0).u32(self.records_crc);
        writer.u64(self.generation).u64(self.sequence).u64(self.previous).u64(self.durable).u64(self.version_max);
        writer.u32(self.pages).u32(self.bytes);
        let crc = header_crc(uuid, first, &bytes);
        Writer::new(&mut bytes[8..12]).u32(crc);
        bytes
    }
}

fn header_crc(uuid: &[u8; 16], first: u32, bytes: &[u8; HEADER_BYTES]) -> u32 {
    crc32c(crc32c(seed(uuid, u64::from(first), 2), &bytes[..8]), &bytes[12..])
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Value,
    /// A tombstone, first appended in the batch with this sequence.
    Deleted {
        appended: u64,
    },
    /// The value is a blob.
    Large {
        blob: Extent,
        value_bytes: u32,
    },
}

/// A record to be appended, or as read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogRecord<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) meta: Meta,
    pub(crate) key: &'a [u8],
    /// Empty unless it is a value.
    pub(crate) value: &'a [u8],
}

/// Bytes a record takes.
pub(crate) fn record_bytes(meta: &Meta, key: usize, value: usize) -> usize {
    let optional = 4 * usize::from(meta.flags != 0) + expiry::bytes(meta.expiry);
    (RECORD_BYTES + optional + key + value).next_multiple_of(8)
}

impl LogRecord<'_> {
    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        let value = match self.kind {
            RecordKind::Value => self.value.len(),
            RecordKind::Deleted { .. } => 8,
            RecordKind::Large { .. } => 12,
        };
        record_bytes(&self.meta, self.key.len(), value)
    }
}

/// Appends records back to back over pages.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    uuid: [u8; 16],
    first: u32,
    generation: u64,
    blocks: Vec<Block>,
    at: usize,
    crcs: u32,
    version_max: u64,
}

impl SegmentWriter {
    /// For a batch that begins at page `first`.
    pub(crate) fn new(uuid: [u8; 16], first: u32, generation: u64) -> SegmentWriter {
        SegmentWriter { uuid, first, generation, blocks: Vec::new(), at: HEADER_BYTES, crcs: 0, version_max: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at == HEADER_BYTES
    }

    /// Pages it takes with another record of `bytes`.
    pub(crate) fn pages_with(&self, bytes: usize) -> u32 {
        (self.at + bytes + HEADER_BYTES).div_ceil(PAGE_BYTES) as u32
    }

    /// Blocks it has.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Adds a page to append into.
    pub(crate) fn add(&mut self, block: Block) {
        self.blocks.push(block);
    }

    /// Appends a record; the blocks for it are there. Its offset on the volume.
    pub(crate) fn append(&mut self, record: &LogRecord<'_>) -> u64 {
        let at = u64::from(self.first) * PAGE_BYTES as u64 + self.at as u64;
        let mut head = [0; RECORD_BYTES + 12];
        let mut tail = [0; 12];
        let (kind, value): (u8, &[u8]) = match record.kind {
            RecordKind::Value => (1, record.value),
            RecordKind::Deleted { appended } => {
                Writer::new(&mut tail).u64(appended);
                (2, &tail[..8])
            }
            RecordKind::Large { blob, value_bytes } => {
                Writer::new(&mut tail).u32(blob.first).u32(blob.pages).u32(value_bytes);
                (3, &tail)
            }
        };
        let meta = &record.meta;
        let bits = (u8::from(meta.flags != 0) * HAS_FLAGS) | expiry::bit(meta.expiry);
        let mut writer = Writer::new(&mut head);
        writer.u32(0).u8(kind).u8(bits).u16(key_check(record.key)).u32(record.key.len() as u32).u32(value.len() as u32);
        writer.u64(meta.version);
        if meta.flags != 0 {
            writer.u32(meta.flags);
        }
        expiry::write(&mut writer, meta.expiry);
        let len = writer.at();
        let mut crc = seed(&self.uuid, at, self.generation);
        for piece in [&head[4..len], record.key, value] {
            crc = crc32c(crc, piece);
        }
        Writer::new(&mut head).u32(crc);
        let end = self.at + record.bytes();
        for piece in [&head[..len], record.key, value] {
            self.put(piece);
        }
        while self.at < end {
            let zeros = [0; 8];
            let left = end - self.at;
            self.put(&zeros[..left]);
        }
        self.crcs = crc32c(self.crcs, &crc.to_le_bytes());
        self.version_max = self.version_max.max(meta.version);
        at
    }

    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (page, within) = (self.at / PAGE_BYTES, self.at % PAGE_BYTES);
            let len = bytes.len().min(PAGE_BYTES - within);
            self.blocks[page][within..within + len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            self.at += len;
        }
    }

    /// Completes the batch: zeros behind the records, and both headers.
    pub(crate) fn seal(mut self, stream: Stream, sequence: u64, previous: u64, durable: u64) -> Vec<Block> {
        let bytes = (self.at - HEADER_BYTES) as u32;
        let pages = self.pages_with(0);
        self.blocks.truncate(pages as usize);
        let header = BatchHeader {
            stream,
            generation: self.generation,
            sequence,
            previous,
            durable,
            version_max: self.version_max,
            pages,
            bytes,
            records_crc: self.crcs,
        };
        let header = header.encode(&self.uuid, self.first);
        let end = pages as usize * PAGE_BYTES - HEADER_BYTES;
        while self.at < end {
            let (page, within) = (self.at / PAGE_BYTES, self.at % PAGE_BYTES);
            let len = (end - self.at).min(PAGE_BYTES - within);
            self.blocks[page][within..within + len].fill(0);
            self.at += len;
        }
        self.put(&header);
        self.at = 0;
        self.put(&header);
        self.blocks
    }
}

fn key_check(key: &[u8]) -> u16 {
    crc32c(0x5EED, key) as u16
}

/// A record as parsed, whether or not it checks.
struct Parsed<'a> {
    record: LogRecord<'a>,
    key_checks: bool,
    /// Bytes that the checksum covers, from the record's start.
    end: usize,
    value_start: usize,
}

fn parse(bytes: &[u8]) -> Option<Parsed<'_>> {
    let mut reader = Reader::new(bytes);
    reader.u32().ok()?;
    let (kind, bits, check) = (reader.u8().ok()?, reader.u8().ok()?, reader.u16().ok()?);
    let (key_len, value_len) = (reader.u32().ok()? as usize, reader.u32().ok()? as usize);
    if key_len > Key::ENCODED_BYTES_MAX || value_len > VALUE_BYTES_MAX {
        return None;
    }
    let version = reader.u64().ok()?;
    let flags = if bits & HAS_FLAGS != 0 { reader.u32().ok()? } else { 0 };
    let expiry = expiry::read(&mut reader, bits).ok()?;
    let key = reader.bytes(key_len).ok()?;
    let value_start = reader.at();
    let value = reader.bytes(value_len).ok()?;
    let end = reader.at();
    let mut fields = Reader::new(value);
    let (kind, value) = match (kind, value_len) {
        (1, _) => (RecordKind::Value, value),
        (2, 8) => (RecordKind::Deleted { appended: fields.u64().ok()? }, &value[8..]),
        (3, 12) => {
            let blob = Extent { first: fields.u32().ok()?, pages: fields.u32().ok()? };
            (RecordKind::Large { blob, value_bytes: fields.u32().ok()? }, &value[12..])
        }
        _ => return None,
    };
    let record = LogRecord { kind, meta: Meta { version, flags, expiry }, key, value };
    Some(Parsed { record, key_checks: check == key_check(key), end, value_start })
}

/// A record that was checked before, and the offset of its value in `bytes`.
pub(crate) fn parsed(bytes: &[u8]) -> Option<(LogRecord<'_>, usize)> {
    parse(bytes).map(|parsed| (parsed.record, parsed.value_start))
}

/// The record at offset `at` of the volume, if it checks; with the offset of its value in `bytes`.
pub(crate) fn record<'a>(uuid: &[u8; 16], at: u64, generation: u64, bytes: &'a [u8]) -> Option<(LogRecord<'a>, usize)> {
    let parsed = parse(bytes)?;
    let stored = Reader::new(bytes).u32().ok()?;
    let mut checks = crc32c(seed(uuid, at, generation), bytes.get(4..parsed.end)?) == stored;
    fault_point!("skip_the_checksum_of_packed_records", checks = true);
    checks.then_some((parsed.record, parsed.value_start))
}

/// A record that does not check, put right by turning one bit back; the damaged bytes are changed.
fn mend(uuid: &[u8; 16], at: u64, generation: u64, bytes: &mut [u8]) -> bool {
    let checks = |bytes: &[u8]| record(uuid, at, generation, bytes).is_some();
    // The fields decide how much the checksum covers.
    for bit in 0..(RECORD_BYTES + 8).min(bytes.len()) * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if checks(bytes) {
            return true;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    let Some(end) = parse(bytes).map(|parsed| parsed.end) else { return false };
    let stored = Reader::new(bytes).u32().unwrap_or_default();
    let crc = crc32c(seed(uuid, at, generation), &bytes[4..end]);
    let Some((byte, mask)) = turned_bit(crc ^ stored, end - 4) else { return false };
    bytes[4 + byte] ^= mask;
    checks(bytes)
}

/// What lies at a place among the records of a batch.
#[derive(Debug)]
pub(crate) enum BatchEntry<'a> {
    /// A record; if `damaged`, one bit had to be turned back (`mended`), or only its key is sure.
    Record { record: LogRecord<'a>, start: usize, bytes: usize, damaged: bool, mended: bool },
    /// Bytes that are no record.
    Lost,
}

/// Visits the records of a batch whose records region is `bytes`, at offset `at` of the volume.
/// True if all check, and they are those of the header. Damaged ones are mended in `bytes` where
/// one bit explains it.
pub(crate) fn records(
    uuid: &[u8; 16],
    at: u64,
    generation: u64,
    records_crc: u32,
    bytes: &mut [u8],
    mut visit: impl FnMut(BatchEntry<'_>),
) -> bool {
    let (mut start, mut whole, mut crcs) = (0, true, 0);
    while start < bytes.len() {
        let here = at + start as u64;
        let sound = record(uuid, here, generation, &bytes[start..]).is_some();
        let known = sound || mend(uuid, here, generation, &mut bytes[start..]);
        whole &= sound;
        let stored = Reader::new(&bytes[start..]).u32().unwrap_or_default();
        crcs = crc32c(crcs, &stored.to_le_bytes());
        let parsed = parse(&bytes[start..]).filter(|parsed| known || parsed.key_checks);
        if let Some(parsed) = parsed {
            let len = parsed.end.next_multiple_of(8);
            visit(BatchEntry::Record {
                record: parsed.record,
                start,
                bytes: len,
                damaged: !sound,
                mended: known && !sound,
            });
            start += len;
            continue;
        }
        visit(BatchEntry::Lost);
        // The next record that checks, if any.
        let next = (start + 8..bytes.len()).step_by(8);
        let mut next = next.filter(|next| record(uuid, at + *next as u64, generation, &bytes[*next..]).is_some());
        start = next.next().unwrap_or(bytes.len());
    }
    whole && crcs == records_crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratakv_device::{Class, Pool};

    const UUID: [u8; 16] = [7; 16];

    fn sample() -> Vec<u8> {
        let pool = Pool::new(4 << 20);
        let mut segment_writer = SegmentWriter::new(UUID, 40, 9);
        let records = [
            (RecordKind::Value, Meta { version: 5, flags: 0, expiry: 0 }, &b"\0alpha"[..], vec![1; 3]),
            (RecordKind::Value, Meta { version: 6, flags: 3, expiry: 4_000 }, b"\0beta", vec![2; 5000]),
            (RecordKind::Deleted { appended: 77 }, Meta { version: 7, flags: 0, expiry: 0 }, b"\0gamma", vec![]),
            (
                RecordKind::Large { blob: Extent { first: 3, pages: 9 }, value_bytes: 30_000 },
                Meta { version: 8, flags: 0, expiry: 0 },
                b"\0delta",
                vec![],
            ),
        ];
        for (kind, meta, key, value) in &records {
            let record = LogRecord { kind: *kind, meta: *meta, key, value };
            while segment_writer.blocks() < segment_writer.pages_with(record.bytes()) {
                segment_writer.add(pool.take(Class::Page).unwrap());
            }
            segment_writer.append(&record);
        }
        segment_writer.seal(Stream::Cold, 12, 11, 10).iter().flat_map(|block| block.to_vec()).collect()
    }

    fn header(bytes: &[u8]) -> BatchHeader {
        BatchHeader::decode(&UUID, 40, &bytes[..HEADER_BYTES]).unwrap()
    }

    fn walk(bytes: &mut [u8]) -> (bool, Vec<(Vec<u8>, u64, bool)>) {
        let header = header(bytes);
        let mut found = Vec::new();
        let region = &mut bytes[HEADER_BYTES..HEADER_BYTES + header.bytes as usize];
        let at = 40 * 4096 + HEADER_BYTES as u64;
        let whole = records(&UUID, at, 9, header.records_crc, region, |entry| {
            if let BatchEntry::Record { record, damaged, .. } = entry {
                found.push((record.key.to_vec(), record.meta.version, damaged));
            }
        });
        (whole, found)
    }

    #[test]
    fn reads_back_what_was_appended_and_the_format_is_fixed() {
        let mut bytes = sample();
        assert_eq!(crc32c(0, &bytes), 0x1135_E1F2, "raise FORMAT when this changes");
        let header = header(&bytes);
        assert_eq!((header.sequence, header.previous, header.durable, header.version_max), (12, 11, 10, 8));
        let last = 40 + header.pages - 1;
        let page = &bytes[(header.pages as usize - 1) * PAGE_BYTES..];
        assert_eq!(BatchHeader::decode_end(&UUID, last, page), Some((40, header)));
        let (whole, found) = walk(&mut bytes);
        assert!(whole);
        assert_eq!(found.iter().map(|(_, version, _)| *version).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(BatchHeader::decode(&UUID, 41, &bytes[..HEADER_BYTES]).is_none(), "another place");
    }

    #[test]
    fn every_flipped_bit_is_found_and_every_key_is_still_known() {
        let clean = sample();
        let header = header(&clean);
        let region = HEADER_BYTES * 8..(HEADER_BYTES + header.bytes as usize) * 8;
        for bit in region.step_by(1) {
            let mut bytes = clean.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (whole, found) = walk(&mut bytes);
            let keys: Vec<&[u8]> = found.iter().map(|(key, ..)| &key[..]).collect();
            assert_eq!(keys, [&b"\0alpha"[..], b"\0beta", b"\0gamma", b"\0delta"], "bit {bit}");
            let damaged = found.iter().filter(|(.., damaged)| *damaged).count();
            // Bits between records belong to none.
            assert!(damaged == usize::from(!whole), "bit {bit}: {damaged} damaged");
        }
    }
}
