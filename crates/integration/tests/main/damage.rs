//! Damaged media: found, said with its place, never served; what is whole is served on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stratakv::{ErrorKind, Options, ScanOptions, Store};
use stratakv_base::checksum::{crc32c, seed};
use stratakv_integration::{place, program, value};

const KEYS: u64 = 40;

fn options() -> Options {
    Options::new().shards(1).memory_bytes(64 << 20)
}

/// From values that share a page to values over many blocks.
fn len(key: u64) -> usize {
    [40, 300, 1500, 4000, 9000, 70_000, 200_000][key as usize % 7]
}

fn name(key: u64) -> Vec<u8> {
    format!("key{key}").into_bytes()
}

/// A closed store with [`KEYS`] records; its directory and its volume.
fn store(place: &Path) -> (PathBuf, PathBuf) {
    let data = place.join("data");
    let store = options().open(&data).expect("created");
    for key in 0..KEYS {
        store.put(name(key), value::encode(key, 1, len(key))).expect("a put");
    }
    store.close().expect("closed");
    let volume = place::volumes(&data).remove(0);
    (data, volume)
}

fn read(volume: &Path) -> Vec<u8> {
    std::fs::read(volume).expect("a volume can be read")
}

fn write_at(volume: &Path, bytes: &[u8], offset: u64) {
    let file = File::options().write(true).open(volume).expect("a volume can be written");
    file.write_all_at(bytes, offset).expect("a volume can be written");
}

/// Where the bytes lie: more than once, as a page is written to a free place each time, and old
/// copies stay until they are reused.
fn find(volume: &[u8], bytes: &[u8]) -> Vec<usize> {
    let found: Vec<usize> =
        volume.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes).map(|(at, _)| at).collect();
    assert!(!found.is_empty(), "the bytes of a value lie in the volume as they are");
    found
}

/// Every key but the damaged ones has its value.
fn check_others(store: &Store, damaged: &[u64]) {
    for key in (0..KEYS).filter(|key| !damaged.contains(key)) {
        let record = store.get(name(key)).unwrap_or_else(|error| panic!("key{key} is not damaged: {error}"));
        let record = record.unwrap_or_else(|| panic!("key{key} is gone"));
        assert_eq!(value::decode(key, &record.to_bytes()), Ok(1));
    }
}

#[test]
fn one_flipped_bit_in_a_value_is_an_error_with_its_place() {
    for key in 0..7 {
        let place = place::directory();
        let (data, volume) = store(place.path());
        let encoded = value::encode(key, 1, len(key));
        let whole = read(&volume);
        for at in find(&whole, &encoded[..32]) {
            let offset = at + [0, 17, 31][key as usize % 3];
            write_at(&volume, &[whole[offset] ^ 0x20], offset as u64);
        }
        let data_text = data.to_str().expect("a name that is text");
        let output = program::run(&["check", "--data", data_text]);
        assert_eq!(output.status.code(), Some(4), "check: {}", program::said(&output));
        assert!(program::said(&output).contains("byte"), "check names the place: {}", program::said(&output));
        let store = options().open(&data).expect("a store with a damaged record opens");
        match store.get(name(key)) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
            Ok(found) => {
                panic!("key{key} is damaged; it was answered with {:?} bytes", found.map(|record| record.len()))
            }
        }
        let in_same_page: Vec<u64> = (0..KEYS).filter(|other| store.get(name(*other)).is_err()).collect();
        assert!(in_same_page.len() <= 1 || len(key) < 4096, "one large value is damaged, {in_same_page:?} are refused");
        check_others(&store, &in_same_page);
        store.put(name(key), b"new").expect("a damaged record can be replaced");
        assert_eq!(store.get(name(key)).expect("a get").expect("it was put").to_bytes(), "new");
    }
}

/// Flips bits all over the used part of a volume: what is read is right or refused, and what
/// recovery misses it reports.
#[test]
fn a_flipped_bit_anywhere_never_gives_wrong_data() {
    let place = place::directory();
    let (data, volume) = store(place.path());
    let whole = read(&volume);
    let used: Vec<usize> =
        (0..whole.len() / 4096).filter(|page| whole[page * 4096..][..4096].iter().any(|byte| *byte != 0)).collect();
    let mut random = stratakv_base::random::Random::new(3);
    for round in 0..150 {
        // Half of the bits in the first 160 bytes of a page, where headers are.
        let page = used[random.below(used.len() as u64) as usize];
        let within = if round % 2 == 0 { random.below(160) } else { random.below(4096) } as usize;
        let at = page * 4096 + within;
        let flipped = whole[at] ^ 1 << random.below(8);
        write_at(&volume, &[flipped], at as u64);
        let store = options()
            .read_only(true)
            .open(&data)
            .unwrap_or_else(|error| panic!("byte {at}: the store does not open: {error}"));
        for key in 0..KEYS {
            match store.get(name(key)) {
                Ok(Some(record)) => assert_eq!(value::decode(key, &record.to_bytes()), Ok(1), "byte {at}, key{key}"),
                Ok(None) => {
                    assert!(!store.recovery().corrupt.is_empty(), "byte {at}: key{key} is gone and nothing was said")
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}, key{key}: {error}"),
            }
        }
        store.close().expect("closed");
        write_at(&volume, &whole[at..=at], at as u64);
    }
    check_others(&options().open(&data).expect("nothing is damaged any more"), &[]);
}

#[test]
fn one_damaged_superblock_is_repaired_and_said() {
    for copy in [0, 1] {
        let place = place::directory();
        let (data, volume) = store(place.path());
        write_at(&volume, &[0xA5; 512], copy * 4096);
        let store = options().open(&data).expect("one copy is enough");
        assert_eq!(store.recovery().superblocks_repaired, 1, "copy {copy}");
        check_others(&store, &[]);
        store.close().expect("closed");
        let store = options().open(&data).expect("opened");
        assert_eq!(store.recovery().superblocks_repaired, 0, "it was repaired");
    }
}

#[test]
fn two_damaged_superblocks_are_refused_with_the_way_out() {
    let place = place::directory();
    let (data, volume) = store(place.path());
    write_at(&volume, &[0xA5; 8192], 0);
    let before = read(&volume);
    let error = options().open(&data).expect_err("no superblock is left");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("backup"), "the way out: {error}");
    assert!(read(&volume) == before, "a refused open changes nothing");
    let output = program::run(&["get", "--data", data.to_str().expect("a name that is text"), "key1"]);
    assert_eq!(output.status.code(), Some(4), "{}", program::said(&output));
}

#[test]
fn a_newer_format_is_refused() {
    let place = place::directory();
    let (data, volume) = store(place.path());
    let manifest = data.join("store.toml");
    let text = std::fs::read_to_string(&manifest).expect("a manifest");
    std::fs::write(&manifest, text.replace("format = 1", "format = 999")).expect("written");
    let error = options().open(&data).expect_err("a newer format");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("999") && error.to_string().contains("newer stratakv"), "{error}");
    let output = program::run(&["get", "--data", data.to_str().expect("a name that is text"), "key1"]);
    assert_eq!(output.status.code(), Some(6), "{}", program::said(&output));
    std::fs::write(&manifest, text).expect("written");
    drop(options().open(&data).expect("the format is known again"));
    // The volume's own format: docs/format-slab.md. Version at 8, UUID at 16, CRC-32C of the first
    // 88 bytes at 88.
    for copy in [0, 4096] {
        let mut superblock = read(&volume)[copy..copy + 96].to_vec();
        let uuid: [u8; 16] = superblock[16..32].try_into().expect("16 bytes");
        superblock[8..12].copy_from_slice(&999u32.to_le_bytes());
        let crc = crc32c(seed(&uuid, 0, 0), &superblock[..88]);
        superblock[88..92].copy_from_slice(&crc.to_le_bytes());
        write_at(&volume, &superblock, copy as u64);
    }
    let error = options().open(&data).expect_err("a newer volume");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("999"), "{error}");
}

#[test]
fn a_damaged_or_missing_manifest_is_refused_with_the_way_out() {
    let place = place::directory();
    let (data, _) = store(place.path());
    let manifest = data.join("store.toml");
    let text = std::fs::read_to_string(&manifest).expect("a manifest");
    for damaged in ["", "format = ", "\u{0}\u{1}", &text.replace("slab", "marble"), &text[..text.len() / 2]] {
        std::fs::write(&manifest, damaged).expect("written");
        let error = options().open(&data).expect_err("no manifest");
        assert_ne!(error.kind(), ErrorKind::NotFound, "`{damaged}`: {error}");
    }
    std::fs::remove_file(&manifest).expect("removed");
    let error = options().open(&data).expect_err("volumes without a manifest are not overwritten");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    std::fs::write(&manifest, text).expect("written");
    check_others(&options().open(&data).expect("restored"), &[]);
}

#[test]
fn a_volume_of_another_store_is_refused() {
    let place = place::directory();
    let (data, volume) = store(place.path());
    let other = place.path().join("other");
    options().open(&other).expect("created").close().expect("closed");
    std::fs::copy(&place::volumes(&other)[0], &volume).expect("copied");
    let error = options().open(&data).expect_err("another store's volume");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn a_volume_that_was_cut_short_is_reported() {
    let place = place::directory();
    let (data, volume) = store(place.path());
    let file = File::options().write(true).open(&volume).expect("a volume can be written");
    file.set_len(8192).expect("cut");
    match options().read_only(true).open(&data) {
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io), "{error}"),
        Ok(store) => {
            let found = store.scan(ScanOptions::all().keys_only()).count() as u64;
            assert!(found == KEYS || !store.recovery().corrupt.is_empty(), "{found} keys and nothing was said");
        }
    }
}
