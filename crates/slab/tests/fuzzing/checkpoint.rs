//! Roots and chunks of checkpoints as bytes; what recovery makes of them, the fuzzer of logs sees.

use stratakv_base::Key;
use stratakv_base::codec::Writer;
use stratakv_base::limits::PAGE_BYTES;

use super::log_pages::mend_part;
use super::{Choices, OTHER_UUID, UUID, lay};
use crate::packed::addr::RecordAddress;
use crate::packed::checkpoint::format::{
    CHUNK_HEADER_BYTES, ChunkHeader, ChunkKind, Covered, KeyEntry, KeysBody, KeysReader, Root, chunk_pages, root_pages,
};
use crate::place::Address;
use crate::space::Extent;

/// Forged: a root, or a chunk, behind a checksum that matches. Or a chunk as the engine makes it,
/// then damaged.
///
/// What is accepted reads back as it is written and has no more entries than bytes; damage is seen.
///
/// # Panics
/// A property does not hold.
pub fn checkpoint(input: &[u8]) {
    let mut choices = Choices::new(input);
    match choices.byte() % 3 {
        0 => forged_root(&mut choices),
        1 => forged_chunk(&mut choices),
        _ => built_chunk(&mut choices),
    }
}

fn forged_root(choices: &mut Choices<'_>) {
    let (mode, first, generation) = (choices.byte(), choices.u32(), choices.u64());
    let segment_pages = [4, 64, 128, 256][usize::from(mode >> 2) % 4];
    let mut bytes = vec![0; root_pages(segment_pages) as usize * PAGE_BYTES];
    lay(choices.bytes(bytes.len()), &mut bytes);
    if mode & 1 != 0 {
        bytes[..4].copy_from_slice(b"SPCR");
    }
    if mode & 2 != 0 {
        let len = bytes.len();
        mend_part(&mut bytes, u64::from(first), generation, len);
    }
    let Some(root) = Root::decode(&UUID, first, generation, &bytes) else { return };
    assert!((1..=Root::segments_max(segment_pages)).contains(&root.segments.len()));
    let again = root.encode(&UUID, first, generation, segment_pages);
    assert_eq!(Root::decode(&UUID, first, generation, &again), Some(root));
    assert!(Root::decode(&UUID, first, generation ^ 1, &again).is_none(), "of another life of the segment");
    assert!(Root::decode(&OTHER_UUID, first, generation, &again).is_none(), "of another store");
}

fn forged_chunk(choices: &mut Choices<'_>) {
    let (mode, first, generation) = (choices.byte(), choices.u32(), choices.u64());
    let len = choices.below(2 * PAGE_BYTES);
    let body = choices.bytes(len);
    let mut bytes = vec![0; CHUNK_HEADER_BYTES + body.len()];
    lay(choices.bytes(CHUNK_HEADER_BYTES), &mut bytes);
    bytes[CHUNK_HEADER_BYTES..].copy_from_slice(body);
    let claimed = if mode & 1 == 0 { body.len() as u32 } else { choices.u32() };
    let pages = if mode & 2 == 0 { chunk_pages(claimed as usize) } else { choices.u32() };
    bytes[..4].copy_from_slice(b"SPCK");
    Writer::new(&mut bytes[28..]).u32(u32::from(mode >> 2) % 4).u32(pages).u32(claimed);
    mend_part(&mut bytes, u64::from(first), generation, CHUNK_HEADER_BYTES.saturating_add(claimed as usize));
    let Some((header, found, pages, _)) = ChunkHeader::decode(&UUID, first, generation, &bytes) else { return };
    assert!(found.len() <= body.len() && pages as usize * PAGE_BYTES >= CHUNK_HEADER_BYTES + found.len());
    let (again, crc) = header.encode(&UUID, first, generation, found);
    assert_eq!(ChunkHeader::decode(&UUID, first, generation, &again), Some((header, found, pages, crc)));
    assert!(ChunkHeader::decode(&UUID, first ^ 1, generation, &again).is_none(), "at another place");
    match header.kind {
        ChunkKind::Segments => {
            let Some(all) = Covered::decode_all(found) else { return };
            let mut again = Vec::new();
            all.iter().for_each(|covered| covered.encode(&mut again));
            assert_eq!(again, found);
        }
        ChunkKind::Keys => {
            let entries = entries(found);
            let mut again = KeysBody::default();
            assert!(entries.iter().all(|(key, entry)| again.push(key, entry, usize::MAX)));
            assert_eq!(self::entries(&again.bytes), entries);
        }
    }
}

/// The entries of a body, as far as they make sense.
fn entries(body: &[u8]) -> Vec<(Vec<u8>, KeyEntry)> {
    let (mut reader, mut found) = (KeysReader::new(body), Vec::<(Vec<u8>, KeyEntry)>::new());
    while let Some((key, entry)) = reader.next() {
        assert!(Key::from_encoded(key).is_some(), "{key:?} is no key");
        assert!(found.last().is_none_or(|(last, _)| last.as_slice() < key), "keys ascend");
        assert_eq!(RecordAddress::from_bits(entry.addr.to_bits()), entry.addr);
        found.push((key.to_vec(), entry));
    }
    assert!(found.len() <= body.len());
    found
}

fn built_chunk(choices: &mut Choices<'_>) {
    let (first, generation) = (choices.u32(), choices.u64());
    let mut all = std::collections::BTreeMap::new();
    for _ in 0..choices.byte() {
        let len = choices.below(40);
        let key = [&[0], choices.bytes(len)].concat();
        let (bits, at, bytes) = (choices.byte(), u64::from(choices.u32()) * 8, 32 + choices.below(16_000) as u32);
        let run = Extent { first: choices.u32(), pages: choices.u32() };
        let large = (bits & 1 != 0).then_some((run, run.first ^ run.pages));
        let expiry = if bits & 2 != 0 { super::expiry(choices) } else { 0 };
        if Key::from_encoded(&key).is_some() {
            all.insert(key, KeyEntry { addr: RecordAddress::new(at, bytes), expiry, large });
        }
    }
    let mut body = KeysBody::default();
    assert!(all.iter().all(|(key, entry)| body.push(key, entry, usize::MAX)));
    assert!(entries(&body.bytes).into_iter().eq(all), "what was written is read");
    let header = ChunkHeader { id: 5, mark: 6, number: 7, kind: ChunkKind::Keys };
    let (mut bytes, crc) = header.encode(&UUID, first, generation, &body.bytes);
    let before = bytes.clone();
    for _ in 0..choices.byte() % 4 {
        let at = choices.below(CHUNK_HEADER_BYTES + body.bytes.len());
        bytes[at] ^= choices.byte();
    }
    match ChunkHeader::decode(&UUID, first, generation, &bytes) {
        Some(found) => assert!(bytes == before && found == (header, &body.bytes, chunk_pages(body.bytes.len()), crc)),
        None => assert!(bytes != before, "a whole chunk is refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratakv_base::random::Random;

    #[test]
    fn bytes_drawn_at_random_hold() {
        let mut random = Random::new(5);
        for number in 0..3000 {
            let mut input = vec![0; 1 + random.below(400) as usize];
            random.fill(&mut input);
            input[0] = number as u8;
            checkpoint(&input);
        }
    }
}
