//! `check` against `get`: what one refuses the other may not call sound.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stratakv::{CheckReport, Compression, Engine, Error, ErrorKind, Level, Options, Placement, ScanOptions, Store};
use stratakv_base::random::Random;
use stratakv_integration::{place, program, value};

const KEYS: u64 = 40;

/// From values that share a page to values over many blocks.
fn len(key: u64) -> usize {
    [40, 300, 1500, 4000, 9000, 70_000, 200_000][key as usize % 7]
}

fn name(key: u64) -> Vec<u8> {
    format!("key{key}").into_bytes()
}

/// What is damaged: a kind of store, and its options.
fn kinds() -> Vec<(&'static str, Options)> {
    let options = || Options::new().shards(1).memory_bytes(64 << 20);
    let in_region = |engine| options().engine(engine).region_bytes(8 << 20);
    vec![
        ("in_place", options().placement(Placement::InPlace)),
        ("packed", options().placement(Placement::Packed)),
        ("hash", in_region(Engine::Hash)),
        ("matrix", in_region(Engine::Matrix)),
        ("matrix, compressed", in_region(Engine::Matrix).compression(Compression::Lz4)),
        ("tier", options().engine(Engine::Tier).level(Level::Memory).capacity_bytes(64 << 20)),
    ]
}

/// A closed store with [`KEYS`] records, most of them written twice; the files that hold them.
fn store(data: &Path, options: &Options) -> Vec<PathBuf> {
    let store = options.clone().open(data).expect("created");
    for round in 0..2 {
        for key in (0..KEYS).filter(|key| round == 1 || key % 3 > 0) {
            store.put(name(key), value::encode(key, 1, len(key))).expect("a put");
        }
    }
    store.close().expect("closed");
    let region = data.join("pmem/region-000");
    place::volumes(data).into_iter().chain(region.exists().then_some(region)).collect()
}

/// What gets say: keys that are refused or gone. A value is never wrong.
fn refused(data: &Path, options: &Options) -> Result<BTreeSet<Vec<u8>>, String> {
    let store = match options.clone().create(false).read_only(true).open(data) {
        Ok(store) => store,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok((0..KEYS).map(name).collect()),
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    let mut refused = BTreeSet::new();
    for key in 0..KEYS {
        match store.get(name(key)) {
            Ok(Some(record)) => drop(value::decode(key, &record.to_bytes())?),
            Ok(None) => drop(refused.insert(name(key))),
            Err(error) if error.kind() == ErrorKind::Corrupt => drop(refused.insert(name(key))),
            Err(error) => return Err(format!("key{key}: {error}")),
        }
    }
    store.close().map_err(|error| error.to_string())?;
    Ok(refused)
}

/// What contradicts one another in the answers of `check` and of gets.
fn contradiction(check: &Result<CheckReport, Error>, refused: &BTreeSet<Vec<u8>>) -> Option<String> {
    let check = match check {
        Ok(check) => check,
        Err(_) if refused.len() as u64 == KEYS => return None,
        Err(error) => return Some(format!("check refuses the store, gets do not: {error}")),
    };
    if !refused.is_empty() && check.is_sound() {
        return Some(format!("a get refuses {}, and check says sound", shown(refused)));
    }
    let lost: BTreeSet<Vec<u8>> = check.lost.iter().map(|key| key.user().to_vec()).collect();
    let not_lost: BTreeSet<_> = lost.difference(refused).cloned().collect();
    if !not_lost.is_empty() {
        return Some(format!("a get gives {}, which check calls lost", shown(&not_lost)));
    }
    let told = lost.len() as u64 + check.lost_unknown;
    (refused.len() as u64 > told).then(|| format!("a get refuses {}, and check: {check:?}", shown(refused)))
}

fn shown(keys: &BTreeSet<Vec<u8>>) -> String {
    let names: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
    names.join(", ")
}

/// Single bits, all over what is written: half of them in the front of a page, where headers are.
#[test]
fn check_refuses_what_a_get_refuses() {
    let mut contradictions = Vec::new();
    for (kind, options) in kinds() {
        let place = place::directory();
        let data = place.path().join("data");
        let files = store(&data, &options);
        let mut random = Random::new(4711);
        let mut damaged = 0;
        for round in 0..flips() {
            let file = &files[random.below(files.len() as u64) as usize];
            let whole = std::fs::read(file).expect("it can be read");
            let is_used = |page: &usize| whole[page * 4096..][..4096].iter().any(|byte| *byte != 0);
            let used: Vec<usize> = (0..whole.len() / 4096).filter(is_used).collect();
            let page = used[random.below(used.len() as u64) as usize];
            let within = if round % 2 == 0 { random.below(160) } else { random.below(4096) } as usize;
            let (at, bit) = (page * 4096 + within, random.below(8));
            write_at(file, &[whole[at] ^ 1 << bit], at);
            let check = stratakv::check(&data, None);
            let found = match refused(&data, &options) {
                Ok(refused) => contradiction(&check, &refused),
                Err(wrong) => Some(wrong),
            };
            contradictions
                .extend(found.map(|found| format!("{kind}, {}, byte {at}, bit {bit}: {found}", file.display())));
            damaged += u64::from(check.is_ok_and(|check| !check.is_sound()));
            write_at(file, &whole[at..=at], at);
        }
        assert_eq!(refused(&data, &options), Ok(BTreeSet::new()), "{kind}: all is whole again");
        assert!(stratakv::check(&data, None).expect("a check").is_sound(), "{kind}: all is whole again");
        assert!(damaged > flips() / 8, "{kind}: {damaged} of {} bits hit something", flips());
    }
    assert!(contradictions.is_empty(), "{} times:\n{}", contradictions.len(), contradictions.join("\n"));
}

fn flips() -> u64 {
    std::env::var("STRATAKV_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(60)
}

fn write_at(file: &Path, bytes: &[u8], offset: usize) {
    let file = File::options().write(true).open(file).expect("it can be written");
    file.write_all_at(bytes, offset as u64).expect("it can be written");
}

/// A bit in every copy of these bytes.
fn flip_all(files: &[PathBuf], pattern: &[u8]) {
    let mut flipped = 0;
    for file in files {
        let bytes = std::fs::read(file).expect("it can be read");
        for (at, _) in bytes.windows(pattern.len()).enumerate().filter(|(_, window)| *window == pattern) {
            write_at(file, &[bytes[at] ^ 1], at);
            flipped += 1;
        }
    }
    assert!(flipped > 0, "the bytes lie there as they are");
}

fn files_of(data: &Path) -> Vec<PathBuf> {
    let region = data.join("pmem/region-000");
    place::volumes(data).into_iter().chain(region.exists().then_some(region)).collect()
}

/// Damage is carried along when its page is written again: that page checks, and its record is lost
/// all the same. `check` named the key, and said that the store was sound.
#[test]
fn a_record_that_is_lost_is_never_in_a_sound_store() {
    let place = place::directory();
    let data = place.path().join("data");
    let options = kinds().remove(0).1;
    let store = options.clone().open(&data).expect("created");
    for key in ["a", "b", "c"] {
        store.put(key.as_bytes(), format!("the value of {key}").as_bytes()).expect("a put");
    }
    store.close().expect("closed");
    flip_all(&files_of(&data), b"the value of b");
    let store = options.open(&data).expect("it opens");
    store.put(b"d", b"in the same page").expect("a put");
    store.close().expect("closed");
    let check = stratakv::check(&data, None).expect("a check");
    assert!(!check.is_sound() && check.lost_records == 1 && check.damage.len() == 1, "{check:?}");
    let text = data.to_str().expect("a name that is text");
    let output = program::run(&["check", "--data", text]);
    assert_eq!(output.status.code(), Some(4), "{}", program::said(&output));
    let output = program::run(&["check", "--json", "--data", text]);
    assert!(output.status.code() == Some(4) && program::said(&output).contains("\"sound\":false"));
    let opened = Options::new().create(false).read_only(true).open(&data).expect("it opens");
    assert_eq!(opened.recovery().corrupt.len(), 1, "an opening tells it too");
}

/// More than are deleted one by one by an engine that deletes ranges with one record.
const KEYS_OF_RANGE: u64 = 70;

/// Deletes of ranges stopped at the first record that could not be read, half done.
#[test]
fn a_range_is_deleted_with_the_damaged_records_in_it() {
    for (kind, options) in kinds().into_iter().filter(|(kind, _)| *kind != "tier") {
        for in_table in [false, true].into_iter().take(if kind == "matrix" { 2 } else { 1 }) {
            let place = place::directory();
            let data = place.path().join("data");
            let value = |key: u64| format!("<the value of key {key:03}>{}", "-".repeat(len(key)));
            let records = || (0..KEYS_OF_RANGE).map(|key| (format!("key{key:03}"), value(key)));
            let store = options.clone().open(&data).expect("created");
            let named = store.collection("named").expect("a collection");
            match in_table {
                true => drop(named.load(records()).expect("loaded")),
                false => {
                    for (key, value) in records() {
                        named.put(key.as_bytes(), value.as_bytes()).expect("a put");
                    }
                }
            }
            named.put(b"other", b"stays").expect("a put");
            drop(named);
            store.close().expect("closed");
            // A short value, one of some pages, and one over many.
            for key in [35, 39, 41] {
                flip_all(&files_of(&data), format!("<the value of key {key:03}>").as_bytes());
            }
            let store = options.clone().open(&data).expect("it opens");
            let named = store.collection("named").expect("a collection");
            let damaged =
                (0..KEYS_OF_RANGE).filter(|key| named.get(format!("key{key:03}").as_bytes()).is_err()).count();
            assert!(damaged >= 3, "{kind}: {damaged} are damaged");
            let deleted = named.delete_prefix(b"key").unwrap_or_else(|error| panic!("{kind}, {in_table}: {error}"));
            // Of a damaged page of a table nobody knows how many keys were on it.
            assert!(deleted == KEYS_OF_RANGE || in_table && deleted < KEYS_OF_RANGE, "{kind}: {deleted} deleted");
            // A table of which everything is hidden goes as soon as the shard has had some ticks.
            let keys = || named.scan(ScanOptions::all().keys_only()).map(|item| item.map(|(key, _)| key)).collect();
            let mut left: Result<Vec<_>, Error> = keys();
            for _ in (0..1000).take_while(|_| in_table) {
                named.put(b"other", b"stays").expect("a put");
                left = keys();
                if left.is_ok() {
                    break;
                }
            }
            assert_eq!(left.expect("nothing is damaged any more"), [b"other".to_vec()], "{kind}, {in_table}");
            drop(named);
            store.close().expect("closed");
            let store = options.clone().open(&data).expect("it opens");
            let named = store.collection("named").expect("a collection");
            assert_eq!(named.len().expect("a count"), 1, "{kind}, {in_table}: after an opening too");
        }
    }
}

/// 5 records were 7 for `check` and `stats`, and 20,002 for `check` were 20,004 for a backup.
#[test]
fn everybody_counts_the_same_records() {
    for (kind, options) in kinds().into_iter().filter(|(kind, _)| *kind != "tier") {
        let place = place::directory();
        let data = place.path().join("data");
        let store = options.open(&data).expect("created");
        for key in ["a", "b", "c"] {
            store.put(key.as_bytes(), b"value").expect("a put");
        }
        let named = store.collection("named").expect("a collection");
        named.put(b"x", b"value").expect("a put");
        store.list("list").expect("a list").push_back(b"element").expect("pushed");
        store.collection("dropped").expect("a collection").put(b"y", b"value").expect("a put");
        store.drop_collection("dropped").expect("dropped");
        let figure = |store: &Store, name: &str| {
            store.stats().iter().find(|one| one.name == name).map(|one| one.value).expect("a figure")
        };
        // What nobody has merged yet `matrix` can only estimate.
        let is_exact = !kind.starts_with("matrix");
        assert!(figure(&store, "records") == 5 || !is_exact, "{kind}: stats while it is open");
        drop(named);
        store.close().expect("closed");
        let text = data.to_str().expect("a name that is text");
        let dump = program::run(&["dump", "--data", text]);
        assert_eq!(String::from_utf8_lossy(&dump.stdout).lines().count(), 5, "{kind}: dump");
        assert_eq!(stratakv::check(&data, None).expect("a check").records, 5, "{kind}: check");
        let store = Options::new().create(false).read_only(true).open(&data).expect("it opens");
        let told = (figure(&store, "records"), store.recovery().records);
        assert!(told == (5, 5) || !is_exact, "{kind}: stats and what opening found are {told:?}");
        let (backup, copy) = (place.path().join("backup"), place.path().join("copy"));
        assert_eq!(store.backup(&backup).expect("a backup").records, 5, "{kind}: backup");
        store.close().expect("closed");
        let options = Options::new().level(Level::ProcessCrash).memory_bytes(64 << 20).shards(1);
        assert_eq!(stratakv::restore(&backup, &copy, &options).expect("restored").records, 5, "{kind}: restore");
        assert_eq!(stratakv::check(&copy, None).expect("a check").records, 5, "{kind}: check of what was restored");
    }
}

/// `get --data SECOND` said that there was no store.
#[test]
fn a_part_of_a_store_is_told_as_such() {
    let place = place::directory();
    let (first, second) = (place.path().join("a"), place.path().join("b"));
    let options = Options::new().shards(2).level(Level::ProcessCrash).data_directories([&second]);
    options.open(&first).expect("created").close().expect("closed");
    for command in ["check", "stats", "dump"] {
        let output = program::run(&[command, "--data", second.to_str().expect("a name that is text")]);
        assert!(program::said(&output).contains("is a part of another store"), "{}", program::said(&output));
        assert!(!second.join("LOCK").exists(), "nothing is left there");
    }
}
