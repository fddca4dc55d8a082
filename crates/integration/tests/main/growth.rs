//! Regions of engine `hash` that grow, and what can be wrong with them then.

use std::fs::{self, File};
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
    (from..).find(|number| store.put(key(*number), value(*number, bytes)).is_err()).expect("it gets full")
}

fn check(store: &Store, count: u64, bytes: usize) {
    for number in 0..count {
        let found = store.get(key(number)).expect("sound").expect("there");
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
    store.delete_range::<&str>(..).expect("deleted");
    store.put(b"long", value(1, 3 << 20)).expect("in one part");
    assert_eq!(store.put(b"too long", value(1, 5 << 20)).expect_err("in none").kind(), ErrorKind::Full);
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
    store.put(key(count), value(count, 3000)).expect_err("it is full");
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

/// Two files in a store's neighbourhood, and options that name them.
fn two(place: &Path) -> ([PathBuf; 2], Options) {
    let paths = [place.join("first"), place.join("second")];
    let options = plain().engine(Engine::Hash).region_paths(&paths);
    (paths, options)
}

#[test]
fn a_region_in_several_files_is_one() {
    let place = place::directory();
    let data = place.path().join("data");
    let (paths, both) = two(place.path());
    let store = both.clone().region_bytes(16 * MIB).open(&data).expect("created");
    assert_eq!((store.recovery().created, store.recovery().grown_bytes), (true, 0));
    let region = store.region().expect("a region");
    assert_eq!((region.len_bytes, &region.paths[..]), (16 * MIB, &paths[..]));
    assert!(paths.iter().all(|path| fs::metadata(path).expect("there").len() == 8 * MIB));
    let count = fill(&store, 0, 3000);
    assert!(count > 15 * MIB / 3136, "both are full with {count}");
    store.close().expect("closed");
    // Remembered; named, in any order; moved; checked.
    let [first, second] = &paths;
    for options in [plain(), both, plain().region_paths([second, first]), plain().region_path(second)] {
        check(&options.open(&data).expect("opened"), count, 3000);
    }
    let reader = Options::new().read_only(true).open(&data).expect("opened");
    check(&reader, count, 3000);
    reader.close().expect("closed");
    let moved = place.path().join("moved");
    fs::rename(second, &moved).expect("moved");
    refused(&plain(), &data, ErrorKind::NotFound, &["part 1 is missing", "8388608 bytes", "second", "--region-path"]);
    check(&plain().region_path(&moved).open(&data).expect("opened"), count, 3000);
    let report = stratakv::check_spread(&data, &[], &[], std::slice::from_ref(&moved), None).expect("checked");
    assert!(report.is_sound() && report.records == count, "{report:?}");
    // Both grow, by halves.
    let store = plain().region_path(&moved).region_bytes(24 * MIB).open(&data).expect("grown");
    assert_eq!(store.recovery().grown_bytes, 8 * MIB);
    let all = fill(&store, count, 3000);
    store.close().expect("closed");
    assert!(all > 22 * MIB / 3136, "{all}");
    assert!([first, &moved].iter().all(|path| fs::metadata(path).expect("there").len() == 12 * MIB));
    check(&plain().region_path(&moved).open(&data).expect("opened"), all, 3000);
}

#[test]
fn a_file_is_added_to_a_region() {
    let place = place::directory();
    let (data, added) = (place.path().join("data"), place.path().join("added"));
    let store = sized(4).open(&data).expect("created");
    let first = fill(&store, 0, 3000);
    store.close().expect("closed");
    let with = plain().region_path(&added);
    refused(&with, &data, ErrorKind::Usage, &["added has no part of the region", "--region-path", "--region"]);
    assert!(!added.exists());
    fs::write(&added, b"precious").expect("written");
    refused(&with.clone().region_bytes(8 * MIB), &data, ErrorKind::Usage, &["added exists", "another file"]);
    fs::write(&added, vec![0; 1 << 20]).expect("written");
    refused(&with.clone().region_bytes(8 * MIB), &data, ErrorKind::Usage, &["added exists", "another file"]);
    fs::remove_file(&added).expect("removed");
    let store = with.region_bytes(12 * MIB).open(&data).expect("grown");
    assert_eq!((store.recovery().grown_bytes, store.region().expect("one").paths.len()), (8 * MIB, 2));
    let all = fill(&store, first, 3000);
    store.close().expect("closed");
    check(&plain().open(&data).expect("it is remembered"), all, 3000);
    assert!(all > 2 * first, "{first}, then {all}");
}

#[test]
fn files_that_are_not_the_regions_are_told() {
    let place = place::directory();
    let (data, other) = (place.path().join("data"), place.path().join("other"));
    let (paths, both) = two(place.path());
    both.region_bytes(8 * MIB).open(&data).expect("created").put(b"k", b"v").expect("a put");
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    let (others, both) = two(&elsewhere);
    both.region_bytes(8 * MIB).open(&other).expect("created").put(b"k", b"w").expect("a put");
    let [first, second] = &paths;
    // The other store's, in each place.
    for (own, foreign) in paths.iter().zip(&others) {
        let kept = place.path().join("kept");
        fs::rename(own, &kept).expect("moved");
        fs::copy(foreign, own).expect("copied");
        refused(&plain(), &data, ErrorKind::Corrupt, &["of another store", "put it back"]);
        fs::rename(&kept, own).expect("moved back");
    }
    // Twice, by name or by a copy.
    refused(&plain().region_paths([first, second, second]), &data, ErrorKind::Usage, &["named twice"]);
    let copy = place.path().join("copy");
    fs::copy(first, &copy).expect("copied");
    refused(&plain().region_paths([first, &copy]), &data, ErrorKind::Corrupt, &["one is a copy of the other"]);
    // Cut off, and with neither copy of its head.
    fs::copy(second, &copy).expect("copied");
    set_len(second, 2 * MIB);
    refused(&plain(), &data, ErrorKind::Corrupt, &["second has 2097152 bytes", "cut off"]);
    let mut bytes = fs::read(&copy).expect("read");
    bytes[..64].fill(1);
    fs::write(second, &bytes).expect("written");
    assert!(plain().open(&data).expect("the other copy tells").get(b"k").expect("sound").is_some());
    bytes[4096..4160].fill(1);
    fs::write(second, &bytes).expect("written");
    refused(&plain(), &data, ErrorKind::Corrupt, &["part 1 is missing", "its head is damaged"]);
}

/// At each point at which it may have been: the manifest names the file, the file is empty, it is
/// there, its head is; the superblock does not name it.
#[test]
fn an_added_file_whose_growth_was_cut_is_added_again() {
    let place = place::directory();
    let data = place.path().join("data");
    sized(4).open(&data).expect("created").put(b"k", b"v").expect("a put");
    let before = fs::read(region(&data)).expect("read");
    let added = place.path().join("added");
    drop(plain().region_path(&added).region_bytes(8 * MIB).open(&data).expect("grown"));
    let head = fs::read(&added).expect("read");
    let steps: [Option<&[u8]>; 4] = [None, Some(&[]), Some(&[0; 4 << 20]), Some(&head)];
    for there in steps {
        let _ = fs::remove_file(&added);
        if let Some(bytes) = there {
            fs::write(&added, bytes).expect("written");
        }
        fs::write(region(&data), &before).expect("written");
        // As it was.
        let store = plain().open(&data).expect("opened");
        assert_eq!(store.region().expect("a region").len_bytes, 4 * MIB);
        drop(store);
        // Again, or by its own file alone: then what lies in the other one is no part, though it
        // says so.
        let store = plain().region_path(&added).region_bytes(8 * MIB).open(&data).expect("grown");
        assert_eq!((store.recovery().grown_bytes, store.get(b"k").expect("sound").is_some()), (4 * MIB, true));
        drop(store);
        fs::write(region(&data), &before).expect("written");
        let store = sized(8).open(&data).expect("grown");
        assert_eq!(store.region().expect("a region").paths.len(), 1);
        let count = fill(&store, 0, 3000);
        drop(store);
        check(&plain().open(&data).expect("opened"), count, 3000);
        refused(&plain().region_path(&added), &data, ErrorKind::Usage, &["has no part of the region"]);
    }
}
