//! Roots and chunks of checkpoints as bytes. Pure functions; the layout is drawn in
//! docs/format-packed.md.

use stratakv_base::Key;
use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::PAGE_BYTES;

use crate::expiry;
use crate::packed::addr::RecordAddress;
use crate::place::Address;
use crate::space::Extent;

pub(crate) const ROOT_MAGIC: u32 = u32::from_le_bytes(*b"SPCR");
pub(crate) const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"SPCK");
const ROOT_BYTES: usize = 64;
const ROOT_SEGMENT_BYTES: usize = 8;
/// Bytes of a chunk in front of its body.
pub(crate) const CHUNK_HEADER_BYTES: usize = 64;
/// The checksum covers what lies behind it.
const CRC_AT: usize = 4;
const LARGE: u8 = 1;

/// Pages that the root takes.
pub(crate) fn root_pages(segment_pages: u32) -> u32 {
    (segment_pages / 64).max(1)
}

/// What makes chunks a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    /// Rises with each checkpoint.
    pub(crate) id: u64,
    /// Batches up to this sequence need not be read.
    pub(crate) start: u64,
    /// Number of the shard's counter when the root was written.
    pub(crate) mark: u64,
    /// Every batch up to this sequence is durable, and none above it is in the checkpoint.
    pub(crate) durable: u64,
    /// Keys.
    pub(crate) entries: u64,
    pub(crate) chunks: u32,
    /// Over the checksums of the chunks.
    pub(crate) chunks_crc: u32,
    /// Its segments, each with the pages in use; the first begins with the root.
    pub(crate) segments: Vec<(u32, u32)>,
}

impl Root {
    /// Most segments that a root can name.
    pub(crate) fn segments_max(segment_pages: u32) -> usize {
        (root_pages(segment_pages) as usize * PAGE_BYTES - ROOT_BYTES) / ROOT_SEGMENT_BYTES
    }

    /// The bytes of a root that lies at page `first` of a segment with this generation.
    pub(crate) fn encode(&self, uuid: &[u8; 16], first: u32, generation: u64, segment_pages: u32) -> Vec<u8> {
        let mut bytes = vec![0; root_pages(segment_pages) as usize * PAGE_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.u32(ROOT_MAGIC).u32(0).u64(self.id).u64(self.start).u64(self.mark).u64(self.durable).u64(self.entries);
        writer.u32(self.chunks).u32(self.chunks_crc).u32(self.segments.len() as u32).u32(0);
        for (number, pages) in &self.segments {
            writer.u32(*number).u32(*pages);
        }
        let crc = own_crc(uuid, first, generation, &bytes);
        Writer::new(&mut bytes[CRC_AT..]).u32(crc);
        bytes
    }

    /// Reads one; `None` if it does not check.
    pub(crate) fn decode(uuid: &[u8; 16], first: u32, generation: u64, bytes: &[u8]) -> Option<Root> {
        let mut reader = Reader::new(bytes);
        if reader.u32().ok()? != ROOT_MAGIC || reader.u32().ok()? != own_crc(uuid, first, generation, bytes) {
            return None;
        }
        let (id, start, mark) = (reader.u64().ok()?, reader.u64().ok()?, reader.u64().ok()?);
        let (durable, entries) = (reader.u64().ok()?, reader.u64().ok()?);
        let (chunks, chunks_crc) = (reader.u32().ok()?, reader.u32().ok()?);
        let count = reader.u32().ok()? as usize;
        reader.u32().ok()?;
        if count == 0 || count > reader.left() / ROOT_SEGMENT_BYTES {
            return None;
        }
        let segments = (0..count).map(|_| Some((reader.u32().ok()?, reader.u32().ok()?)));
        let segments = segments.collect::<Option<Vec<_>>>()?;
        Some(Root { id, start, mark, durable, entries, chunks, chunks_crc, segments })
    }
}

fn own_crc(uuid: &[u8; 16], first: u32, generation: u64, bytes: &[u8]) -> u32 {
    crc32c(seed(uuid, u64::from(first), generation), bytes.get(CRC_AT + 4..).unwrap_or_default())
}

/// What a chunk is a list of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    /// Segments that are covered.
    Segments,
    Keys,
}

/// A chunk's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) id: u64,
    /// Number of the shard's counter when it was filled.
    pub(crate) mark: u64,
    pub(crate) number: u32,
    pub(crate) kind: ChunkKind,
}

/// Pages of a chunk whose body has so many bytes.
pub(crate) fn chunk_pages(body: usize) -> u32 {
    (CHUNK_HEADER_BYTES + body).div_ceil(PAGE_BYTES) as u32
}

impl ChunkHeader {
    /// The bytes of a chunk at page `first`, and its checksum.
    pub(crate) fn encode(&self, uuid: &[u8; 16], first: u32, generation: u64, body: &[u8]) -> (Vec<u8>, u32) {
        let pages = chunk_pages(body.len());
        let mut bytes = vec![0; pages as usize * PAGE_BYTES];
        let kind = match self.kind {
            ChunkKind::Segments => 1,
            ChunkKind::Keys => 2,
        };
        let mut writer = Writer::new(&mut bytes);
        writer.u32(CHUNK_MAGIC).u32(0).u64(self.id).u64(self.mark).u32(self.number).u32(kind).u32(pages);
        writer.u32(body.len() as u32);
        Writer::new(&mut bytes[CHUNK_HEADER_BYTES..]).bytes(body);
        let crc = own_crc(uuid, first, generation, &bytes[..CHUNK_HEADER_BYTES + body.len()]);
        Writer::new(&mut bytes[CRC_AT..]).u32(crc);
        (bytes, crc)
    }

    /// Reads the chunk at page `first`, at the front of `bytes`: header, body, pages and checksum.
    pub(crate) fn decode<'a>(
        uuid: &[u8; 16],
        first: u32,
        generation: u64,
        bytes: &'a [u8],
    ) -> Option<(ChunkHeader, &'a [u8], u32, u32)> {
        let mut reader = Reader::new(bytes);
        let (magic, crc) = (reader.u32().ok()?, reader.u32().ok()?);
        let (id, mark, number) = (reader.u64().ok()?, reader.u64().ok()?, reader.u32().ok()?);
        let kind = match reader.u32().ok()? {
            1 => ChunkKind::Segments,
            2 => ChunkKind::Keys,
            _ => return None,
        };
        let (pages, len) = (reader.u32().ok()?, reader.u32().ok()? as usize);
        let body = bytes.get(CHUNK_HEADER_BYTES..CHUNK_HEADER_BYTES.checked_add(len)?)?;
        let whole = bytes.get(..CHUNK_HEADER_BYTES + len)?;
        let checks =
            magic == CHUNK_MAGIC && pages == chunk_pages(len) && crc == own_crc(uuid, first, generation, whole);
        checks.then_some((ChunkHeader { id, mark, number, kind }, body, pages, crc))
    }
}

/// A covered segment: nothing in it needs to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    pub(crate) number: u32,
    /// Pages in use.
    pub(crate) end: u32,
    /// Its tombstones that count: offset in units of 8 bytes, and from bit 17 on the code of the
    /// length.
    pub(crate) tombstones: Vec<u32>,
}

impl Covered {
    /// Adds it to a body.
    pub(crate) fn encode(&self, body: &mut Vec<u8>) {
        for field in [self.number, self.end, self.tombstones.len() as u32].iter().chain(&self.tombstones) {
            body.extend_from_slice(&field.to_le_bytes());
        }
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        12 + 4 * self.tombstones.len()
    }

    /// All of a body; `None` if it does not end with one of them.
    pub(crate) fn decode_all(body: &[u8]) -> Option<Vec<Covered>> {
        let (mut reader, mut all) = (Reader::new(body), Vec::new());
        while reader.left() > 0 {
            let (number, end) = (reader.u32().ok()?, reader.u32().ok()?);
            let count = reader.u32().ok()? as usize;
            let mut tombstones = Reader::new(reader.bytes(count.checked_mul(4)?).ok()?);
            let tombstones = (0..count).map(|_| tombstones.u32().ok()).collect::<Option<Vec<_>>>()?;
            all.push(Covered { number, end, tombstones });
        }
        Some(all)
    }
}

/// A key's entry, without the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    /// Where its record lies.
    pub(crate) addr: RecordAddress,
    pub(crate) expiry: u64,
    /// Of a large value: its pages, and the tag of its version.
    pub(crate) large: Option<(Extent, u32)>,
}

/// Fills the body of a chunk with keys in ascending order.
#[derive(Debug, Default)]
pub(crate) struct KeysBody {
    pub(crate) bytes: Vec<u8>,
    last: Vec<u8>,
    pub(crate) entries: u64,
}

impl KeysBody {
    /// Adds an entry if the body has no more than `most` bytes with it; one at least.
    pub(crate) fn push(&mut self, key: &[u8], entry: &KeyEntry, most: usize) -> bool {
        let shared = self.last.iter().zip(key).take_while(|(a, b)| a == b).count();
        let before = self.bytes.len();
        let bits = (LARGE * u8::from(entry.large.is_some())) | expiry::bit(entry.expiry);
        self.bytes.push(bits);
        put_number(&mut self.bytes, shared);
        put_number(&mut self.bytes, key.len() - shared);
        self.bytes.extend_from_slice(key.get(shared..).unwrap_or_default());
        self.bytes.extend_from_slice(entry.addr.to_bits().to_le_bytes().get(..6).unwrap_or_default());
        let mut room = [0; 8];
        expiry::write(&mut Writer::new(&mut room), entry.expiry);
        self.bytes.extend_from_slice(room.get(..expiry::bytes(entry.expiry)).unwrap_or_default());
        if let Some((blob, tag)) = entry.large {
            for field in [blob.first, blob.pages, tag] {
                self.bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        if self.bytes.len() > most && before > 0 {
            self.bytes.truncate(before);
            return false;
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.entries += 1;
        true
    }
}

/// Reads the entries of a body, in order.
#[derive(Debug)]
pub(crate) struct KeysReader<'a> {
    reader: Reader<'a>,
    key: Vec<u8>,
}

impl<'a> KeysReader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> KeysReader<'a> {
        KeysReader { reader: Reader::new(body), key: Vec::new() }
    }

    /// Whether the body is at its end.
    pub(crate) fn is_done(&self) -> bool {
        self.reader.left() == 0
    }

    /// The next entry and its key, which ascends; `None` at the end, or if it makes no sense.
    pub(crate) fn next(&mut self) -> Option<(&[u8], KeyEntry)> {
        let reader = &mut self.reader;
        let bits = reader.u8().ok()?;
        let (shared, rest) = (number(reader)?, number(reader)?);
        if shared > self.key.len() || shared.checked_add(rest)? > Key::ENCODED_BYTES_MAX {
            return None;
        }
        let rest = reader.bytes(rest).ok()?;
        let ascends = self.key.is_empty() || rest > self.key.get(shared..)?;
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        let [a, b, c, d, e, f] = reader.array().ok()?;
        let bits_of_addr = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        let expiry = expiry::read(reader, bits).ok()?;
        let large = match bits & LARGE {
            0 => None,
            _ => {
                let blob = Extent { first: reader.u32().ok()?, pages: reader.u32().ok()? };
                Some((blob, reader.u32().ok()?))
            }
        };
        let sound = ascends && Key::from_encoded(&self.key).is_some() && bits_of_addr >> 47 == 0;
        sound.then_some((self.key.as_slice(), KeyEntry { addr: RecordAddress::from_bits(bits_of_addr), expiry, large }))
    }
}

fn put_number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn number(reader: &mut Reader<'_>) -> Option<usize> {
    let mut number = 0;
    for shift in [0, 7, 14] {
        let byte = reader.u8().ok()?;
        number |= usize::from(byte & 127) << shift;
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [7; 16];

    #[test]
    fn roots_read_back_and_every_flipped_bit_is_refused() {
        let segments = vec![(9, 256), (70_000, 3)];
        let (id, start, mark) = (1 << 41, 77, 1 << 42);
        let root = Root { id, start, mark, durable: 99, entries: 12, chunks: 5, chunks_crc: 0xABCD, segments };
        let mut bytes = root.encode(&UUID, 40, 8, 64);
        assert_eq!(crc32c(0, &bytes), 0x74E6_2FCB, "raise the format when this changes");
        assert_eq!(Root::decode(&UUID, 40, 8, &bytes), Some(root.clone()));
        assert_eq!(Root::decode(&UUID, 40, 9, &bytes), None, "of an earlier life of the segment");
        assert_eq!(root.encode(&UUID, 40, 8, 256).len(), 4 * PAGE_BYTES);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Root::decode(&UUID, 40, 8, &bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn keys() -> Vec<(Vec<u8>, KeyEntry)> {
        let blob = Extent { first: 300, pages: 20 };
        let plain = KeyEntry { addr: RecordAddress::new(4096, 40), expiry: 0, large: None };
        vec![
            (b"\0alpha".to_vec(), plain),
            (b"\0alphabet".to_vec(), KeyEntry { expiry: 7_000, ..plain }),
            (vec![0; 300].iter().map(|_| b'b').fold(vec![0], |mut key, byte| (key.push(byte), key).1), plain),
            (
                b"\0c".to_vec(),
                KeyEntry { large: Some((blob, 0xFFFF_0000)), expiry: u64::from(u32::MAX) * 1000, ..plain },
            ),
        ]
    }

    #[test]
    fn chunks_read_back_and_damage_is_found() {
        let mut body = KeysBody::default();
        for (key, entry) in keys() {
            assert!(body.push(&key, &entry, 4000));
        }
        assert!(!body.push(b"\0d", &keys()[0].1, body.bytes.len()), "it is full");
        let header = ChunkHeader { id: 5, mark: 6, number: 7, kind: ChunkKind::Keys };
        let (mut bytes, crc) = header.encode(&UUID, 41, 8, &body.bytes);
        assert_eq!(crc32c(0, &bytes), 0x91A4_F08A, "raise the format when this changes");
        let decoded = ChunkHeader::decode(&UUID, 41, 8, &bytes).unwrap();
        assert_eq!((decoded.0, decoded.2, decoded.3), (header, 1, crc));
        let mut reader = KeysReader::new(decoded.1);
        for (key, entry) in keys() {
            assert_eq!(reader.next(), Some((key.as_slice(), entry)));
        }
        assert!(reader.is_done() && reader.next().is_none());
        for bit in 0..(CHUNK_HEADER_BYTES + body.bytes.len()) * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(ChunkHeader::decode(&UUID, 41, 8, &bytes).is_none(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn covered_segments_read_back() {
        let all = vec![
            Covered { number: 3, end: 4, tombstones: vec![] },
            Covered { number: 9, end: 256, tombstones: vec![64, 4160] },
        ];
        let mut body = Vec::new();
        all.iter().for_each(|covered| covered.encode(&mut body));
        assert_eq!(body.len(), all.iter().map(Covered::bytes).sum::<usize>());
        assert_eq!(Covered::decode_all(&body), Some(all));
        assert_eq!(Covered::decode_all(&body[..body.len() - 1]), None);
        assert_eq!(Covered::decode_all(&[255; 12]), None, "a count beyond its end");
    }
}
