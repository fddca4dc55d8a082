//! Regions of engine `hash` that grow, and what can be wrong with them then.

use std::fs::{self, File};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use stratakv::{Engine, ErrorKind, Level, Options, Store};
use stratakv_integration::place;

const MIB: u64 = 1 << 20;

fn plain() -> Options {
    Options::new().level(Level::ProcessCrash)
}

fn sized(mib: u64) -> Options {
    plain().engine(Engine::Hash).region_bytes(mib * MIB)
}

fn region(data: &Path) -> PathBuf {
    data.join("pmem/region-000")
}

fn refused(options: &Options, data: &Path, kind: ErrorKind, words: &[&str]) {
    let error = options.open(data).expect_err("it must be refused");
    let said = error.to_string();
    assert!(error.kind() == kind && words.iter().all(|word| said.contains(word)), "{:?}: {said}", error.kind());
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize * 31 + at) as u8).collect()
}

/// Puts until it is full, from this number on; how many there are then.
fn fill(store: &Store, from: u64, bytes: usize) -> u64 {
    (from..).find(|number| store.put(&key(*number), &value(*number, bytes)).is_err()).expect("it gets full")
}

fn check(store: &Store, count: u64, bytes: usize) {
    for number in 0..count {
        let found = store.get(&key(number)).expect("sound").expect("there");
        assert!(found.to_bytes()[..] == value(number, bytes), "record {number}");
    }
}

fn set_len(path: &Path, bytes: u64) {
    File::options().write(true).open(path).and_then(|file| file.set_len(bytes)).expect("its length is set");
}

#[test]
fn a_full_region_grows_and_takes_as_much_again() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = sized(4).open(&data).expect("created");
    let first = fill(&store, 0, 3000);
    store.close().expect("closed");
    let store = sized(8).open(&data).expect("grown");
    assert_eq!((store.recovery().grown_bytes, store.recovery().clean), (4 * MIB, true));
    assert_eq!(store.region().expect("a region").len_bytes, 8 * MIB);
    check(&store, first, 3000);
    let second = fill(&store, first, 3000);
    assert!(second - first > first * 9 / 10, "{first}, then {second}");
    // A record longer than a segment, and one longer than what a part has.
    store.delete_range(Bound::Unbounded, Bound::Unbounded).expect("deleted");
    store.put(b"long", &value(1, 3 << 20)).expect("in one part");
    assert_eq!(store.put(b"too long", &value(1, 5 << 20)).expect_err("in none").kind(), ErrorKind::Full);
    store.close().expect("closed");
    // As it is now, and as it is asked for.
    for options in [plain(), sized(8)] {
        let store = options.open(&data).expect("opened");
        assert_eq!(store.recovery().grown_bytes, 0);
        assert_eq!(store.get(b"long").expect("sound").expect("there").to_bytes()[..], value(1, 3 << 20));
    }
    refused(&sized(4), &data, ErrorKind::Usage, &["never gets shorter", "has 8388608"]);
}

#[test]
fn a_region_made_longer_by_hand_is_as_it_was_until_it_is_told() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = sized(4).open(&data).expect("created");
    let count = fill(&store, 0, 3000);
    store.close().expect("closed");
    set_len(&region(&data), 8 * MIB);
    let store = plain().open(&data).expect("opened");
    assert_eq!((store.recovery().grown_bytes, store.region().expect("a region").len_bytes), (0, 4 * MIB));
    check(&store, count, 3000);
    store.put(&key(count), &value(count, 3000)).expect_err("it is full");
    store.close().expect("closed");
    let store = sized(8).open(&data).expect("grown");
    assert_eq!(store.recovery().grown_bytes, 4 * MIB);
    fill(&store, count, 3000);
    check(&store, count, 3000);
    store.close().expect("closed");
    // By bytes, and cut off inside the part that it grew by.
    for (bytes, words) in [(8 * MIB + 5, ["8388613", "truncate"]), (6 * MIB, ["cut off", "8388608"])] {
        set_len(&region(&data), bytes);
        refused(&plain(), &data, ErrorKind::Corrupt, &words);
    }
}

#[test]
fn a_growth_that_cannot_be_leaves_the_file_as_it_was() {
    let place = place::directory();
    let data = place.path().join("data");
    sized(8).open(&data).expect("created").put(b"k", b"v").expect("a put");
    refused(&sized(5 << 20), &data, ErrorKind::Usage, &["cannot grow", "2^36 blocks of 64"]);
    refused(&plain().region_bytes(8 * MIB + 8192), &data, ErrorKind::Usage, &["cannot grow by 8192", "one segment"]);
    let store = plain().open(&data).expect("opened");
    assert_eq!(store.get(b"k").expect("sound").expect("there").to_bytes()[..], *b"v");
    assert_eq!(fs::metadata(region(&data)).expect("there").len(), 8 * MIB);
}
