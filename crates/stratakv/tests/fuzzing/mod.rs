//! What holds for any bytes: run by the fuzzers (docs/fuzzing.md), and over their corpus by a test.

use std::path::Path;

use bytes::Bytes;
use stratakv_base::codec::Reader;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_engine::{Item, LoadRecord, Record, Value};

use crate::backup::{self, Blocks, HEADER_BYTES};
use crate::directory;
use crate::error::Error;

/// Reads `store.toml`: refused with a reason, or the same again after it was written.
///
/// # Panics
/// A property does not hold.
pub fn manifest(text: &[u8]) {
    let manifest = match directory::parse(text) {
        Ok(manifest) => manifest,
        Err(refusal) => {
            assert!(!refusal.at("store.toml".into()).to_string().is_empty());
            return;
        }
    };
    let uuid = manifest.uuid_bytes().expect("a manifest that is read has a UUID");
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, manifest.uuid.to_ascii_lowercase());
    let again = toml::to_string(&manifest).expect("what was read can be written");
    assert_eq!(directory::parse(again.as_bytes()).ok(), Some(manifest));
}

/// A shard's file of a backup: forged, behind checksums that match; or as the store writes it, then
/// damaged.
///
/// It is refused with a reason or read to its end; records that a restore takes are such as a store
/// writes; of a damaged file only true records are taken, in order, up to the damage.
///
/// # Panics
/// A property does not hold.
pub fn backup(input: &[u8]) {
    let mut choices = Reader::new(input);
    match choices.u8().unwrap_or_default() % 2 {
        0 => forged_backup(&mut choices),
        _ => damaged_backup(&mut choices),
    }
}

const SHARD: u32 = 3;

fn byte(choices: &mut Reader<'_>) -> u8 {
    choices.u8().unwrap_or_default()
}

fn below(choices: &mut Reader<'_>, bound: usize) -> usize {
    choices.u16().map_or(0, |number| usize::from(number) % bound.max(1))
}

fn some<'a>(choices: &mut Reader<'a>, len: usize) -> &'a [u8] {
    choices.bytes(len.min(choices.left())).unwrap_or_default()
}

/// What a restore would take, and whether it came to the end.
fn read(file: &[u8]) -> (Vec<LoadRecord>, bool) {
    let mut taken = Vec::new();
    let read = backup::read_file(file, Path::new("backup"), SHARD, |record| {
        taken.push(record);
        Ok(())
    });
    match &read {
        Ok(records) => assert_eq!(*records, taken.len() as u64),
        Err(Error::Damaged { why, .. }) => assert!(why.contains("use another backup"), "{why}"),
        // The header has no checksum: a version that no program has written yet is a newer one's.
        Err(Error::NewerFormat { .. }) if is_newer(file) => {}
        Err(other) => panic!("bytes that are there cannot be read: {other}"),
    }
    (taken, read.is_ok())
}

/// Whether a file is a backup of another version, by its first bytes.
fn is_newer(file: &[u8]) -> bool {
    let ours = backup::header(SHARD);
    file.get(..8) == ours.get(..8) && file.len() >= ours.len() && file.get(8..12) != ours.get(8..12)
}

fn forged_backup(choices: &mut Reader<'_>) {
    let mut file = backup::header(SHARD).to_vec();
    for number in 0..u64::from(byte(choices) % 5) {
        let (mode, len) = (byte(choices), below(choices, 600));
        let body = some(choices, len);
        let claimed = if mode & 1 == 0 { body.len() as u32 } else { choices.u32().unwrap_or_default() };
        let sum = if mode & 2 == 0 { backup::crc(SHARD, number, body) } else { choices.u32().unwrap_or_default() };
        file.extend_from_slice(&claimed.to_le_bytes());
        file.extend_from_slice(&sum.to_le_bytes());
        file.extend_from_slice(body);
    }
    let (taken, _) = read(&file);
    for LoadRecord { key, value, .. } in &taken {
        assert!(key.collection() != CollectionId::ENGINE && Key::new(key.collection(), key.user()).as_ref() == Ok(key));
        assert!(value.len() <= VALUE_BYTES_MAX);
    }
}

fn damaged_backup(choices: &mut Reader<'_>) {
    let mut blocks = Blocks::begin(Vec::new(), SHARD).expect("memory takes it");
    let mut items = Vec::new();
    for _ in 0..byte(choices) % 100 {
        let (user, len) = (1 + below(choices, 20), below(choices, 300));
        let key = Key::bound(CollectionId(u32::from(byte(choices)) * 300), &vec![byte(choices); user]);
        let value = Bytes::copy_from_slice(some(choices, len));
        let (flags, expiry, version) = (choices.u32().unwrap_or_default(), Expiry(byte(choices).into()), 7);
        let value_bytes = value.len() as u64;
        let record = Record { value: Value::Inline(value), value_bytes, flags, version, expiry };
        items.push(Item { key, record: Some(record) });
    }
    blocks.write(&items).expect("memory takes it");
    let (mut file, written) = blocks.end().expect("memory takes it");
    let records = written.summary.records + written.catalogue_records;
    assert_eq!((records, written.summary.bytes), (items.len() as u64, file.len() as u64));
    let before = file.clone();
    for _ in 0..byte(choices) % 4 {
        let at = choices.u32().unwrap_or_default() as usize % file.len();
        match byte(choices) {
            0 => file.truncate(at.max(1)),
            mask => file[at] ^= mask,
        }
    }
    let (taken, whole) = read(&file);
    assert_eq!(whole, before == file, "damage of {} bytes behind {HEADER_BYTES} of the header", file.len());
    assert!(!whole || taken.len() == items.len());
    for (taken, item) in taken.iter().zip(&items) {
        let record = item.record.as_ref().expect("each has one");
        let was = (&item.key, record.value.to_bytes(), record.flags, record.expiry);
        assert_eq!((&taken.key, taken.value.clone(), taken.flags, taken.expiry), was);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratakv_base::random::Random;

    fn holds(target: &str, check: fn(&[u8])) {
        let folder = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        for file in std::fs::read_dir(folder).unwrap() {
            check(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn the_corpus_of_manifests_holds() {
        holds("manifest", manifest);
    }

    #[test]
    fn the_corpus_of_backups_holds() {
        holds("backup", backup);
    }

    #[test]
    fn backups_drawn_at_random_hold() {
        let mut random = Random::new(3);
        for number in 0..2000 {
            let mut input = vec![0; 1 + random.below(600) as usize];
            random.fill(&mut input);
            input[0] = number as u8;
            backup(&input);
        }
    }

    /// One record, as a file behind a checksum that matches.
    fn forged(key: &Key, value: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        for field in [key.encoded().len() as u32, value.len() as u32, 0, 0] {
            body.extend_from_slice(&field.to_le_bytes());
        }
        body.extend_from_slice(&7_u64.to_le_bytes());
        body.extend_from_slice(key.encoded());
        body.extend_from_slice(value);
        let mut file = backup::header(SHARD).to_vec();
        for (number, body) in [&body[..], &[]].into_iter().enumerate() {
            file.extend_from_slice(&(body.len() as u32).to_le_bytes());
            file.extend_from_slice(&backup::crc(SHARD, number as u64, body).to_le_bytes());
            file.extend_from_slice(body);
        }
        file
    }

    /// Found by the fuzzer of backups: what no store writes was handed to the new store, which
    /// refused it for a reason that did not name the backup.
    #[test]
    fn a_backup_with_a_record_of_the_engines_own_is_damaged() {
        assert!(read(&forged(&Key::bound(CollectionId(0), b"key"), b"value")).1);
        let (taken, whole) = read(&forged(&Key::bound(CollectionId::ENGINE, b"123456789012"), b"\x01\x01"));
        assert!(taken.is_empty() && !whole);
    }
}
