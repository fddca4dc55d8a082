//! Sorted records that are loaded: straight to their place with engine `matrix`, as puts with the
//! others.

use std::path::Path;

use stratakv::{Collection, Engine, EngineError, Error, Expiry, Level, Options, Order, Store};
use stratakv_integration::{place, program, value};

const MIB: u64 = 1 << 20;
const RECORDS: u64 = 100_000;

fn options(engine: Engine, shards: usize) -> Options {
    let options = Options::new().engine(engine).shards(shards).memory_bytes(256 * MIB);
    match engine {
        Engine::Slab => options.level(Level::ProcessCrash),
        Engine::Tier => options.level(Level::Memory),
        _ => options.level(Level::ProcessCrash).region_bytes(8 * MIB * shards as u64),
    }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn value_of(number: u64, round: u64) -> Vec<u8> {
    value::encode(number, round, [100, 600, 1000, 300, 500][number as usize % 5])
}

fn records(numbers: std::ops::Range<u64>, round: u64) -> impl Iterator<Item = ([u8; 8], Vec<u8>)> {
    numbers.map(move |number| (key(number), value_of(number, round)))
}

fn statistic(store: &Store, name: &str) -> u64 {
    store.stats().iter().filter(|one| one.name == name).map(|one| one.value).sum()
}

/// All of them and nothing else, in order.
fn assert_has(collection: &Collection, numbers: std::ops::Range<u64>, round: u64) {
    let mut wanted = records(numbers, round);
    for item in collection.scan(stratakv::ScanOptions::all()) {
        let (found, record) = item.expect("sound");
        let (key, value) = wanted.next().expect("nothing else");
        assert!(found[..] == key && record.to_bytes()[..] == value, "record {key:?}");
    }
    assert!(wanted.next().is_none(), "one is missing");
}

fn assert_sound(data: &Path) {
    let report = stratakv::check(data, None).expect("checked");
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn sorted_records_are_written_once() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options(Engine::Matrix, 2).open(&data).expect("a store");
    assert_eq!(store.load(records(0..RECORDS, 1)).expect("loaded"), RECORDS);
    let (loaded, written) = (statistic(&store, "loaded_bytes"), statistic(&store, "write_bytes"));
    let user_bytes: u64 = records(0..RECORDS, 1).map(|(_, value)| 9 + value.len() as u64).sum();
    assert!(loaded * 100 > user_bytes * 95, "{loaded} of {user_bytes} bytes went straight to their place");
    assert!(written * 100 < user_bytes * 120, "{written} bytes written for {user_bytes}");
    assert_eq!(statistic(&store, "level_compactions"), 0);
    assert_has(&store, 0..RECORDS, 1);
    store.close().expect("closed");
    assert_sound(&data);

    // What is there is written over, what is behind it goes straight to its place again.
    let store = options(Engine::Matrix, 2).open(&data).expect("opened");
    assert_has(&store, 0..RECORDS, 1);
    assert_eq!(store.load(records(20_000..30_000, 2)).expect("loaded"), 10_000);
    assert_eq!(statistic(&store, "loaded_bytes"), 0, "something lies there");
    assert_eq!(store.load(records(RECORDS..RECORDS + 20_000, 2)).expect("loaded"), 20_000);
    assert!(statistic(&store, "loaded_bytes") > 5 * MIB);
    for (numbers, round) in [(0..20_000, 1), (20_000..30_000, 2), (30_000..RECORDS, 1), (RECORDS..RECORDS + 20_000, 2)]
    {
        for number in numbers.step_by(97) {
            let found = store.get(key(number)).expect("sound").expect("there");
            assert!(found.to_bytes()[..] == value_of(number, round), "record {number}");
        }
    }
    store.close().expect("closed");
    assert_sound(&data);
}

/// In an order of their own, and between others that are written meanwhile.
#[test]
fn collections_are_loaded_in_their_order() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options(Engine::Matrix, 2).open(&data).expect("a store");
    for name in ["before", "behind"] {
        for (key, value) in records(0..30_000, 3) {
            store.collection(name).expect("made").put(key, &value).expect("a put");
        }
    }
    let numbers = store.collection_in_order("numbers", Order::NUMERIC).expect("made");
    let between = store.collection("between").expect("made");
    let decimal = |number: u64| number.to_string().into_bytes();
    let mut loader = numbers.loader();
    for number in 0..30_000 {
        loader.add_with(decimal(number), value_of(number, 4), 7, Expiry::NEVER).expect("taken");
        if number == 9_999 {
            store.put(b"a", b"meanwhile").expect("a put");
        }
    }
    assert_eq!(loader.finish().expect("loaded"), 30_000);
    assert_eq!(between.load(records(0..30_000, 5)).expect("loaded"), 30_000);
    assert!(statistic(&store, "loaded_bytes") > 25 * MIB, "most of it goes straight to its place");
    let mut expected = 0;
    for item in numbers.scan(stratakv::ScanOptions::all()) {
        let (key, record) = item.expect("sound");
        assert!(key[..] == decimal(expected) && record.flags == 7 && record.to_bytes()[..] == value_of(expected, 4));
        expected += 1;
    }
    assert_eq!(expected, 30_000);
    assert_has(&between, 0..30_000, 5);
    for name in ["before", "behind"] {
        assert_has(&store.collection(name).expect("there"), 0..30_000, 3);
    }
    let error = numbers.load(["9", "11", "2"].map(|key| (key, "")));
    let Err(Error::Operation(EngineError::Unsorted(_))) = &error else { panic!("{error:?}") };
    let said = error.expect_err("it is refused").to_string();
    assert!(said.starts_with("`2` of collection") && said.contains("comes after `11` of collection"), "{said}");
    store.close().expect("closed");
    assert_sound(&data);
}

/// The same calls leave the same, whatever the engine makes of them.
#[test]
fn every_engine_takes_loads() {
    for engine in [Engine::Slab, Engine::Hash, Engine::Matrix, Engine::Tier] {
        let place = place::directory();
        let store = options(engine, if engine == Engine::Hash { 1 } else { 2 })
            .open(place.path().join("data"))
            .expect("a store");
        store.put(key(500), b"before").expect("a put");
        assert_eq!(store.load(records(0..3_000, 1)).expect("loaded"), 3_000, "{engine:?}");
        assert_eq!(store.load(records(1_000..2_000, 2)).expect("loaded"), 1_000, "{engine:?}");
        assert_eq!(store.load(records(0..0, 1)).expect("nothing"), 0);
        for number in 0..3_000 {
            let round = if (1_000..2_000).contains(&number) { 2 } else { 1 };
            let found = store.get(key(number)).expect("sound").expect("there").to_bytes();
            assert!(found[..] == value_of(number, round), "{engine:?}: record {number}");
        }
        let error = store.load([(key(9), b"x"), (key(9), b"y")]).expect_err("twice the same");
        assert!(matches!(error, Error::Operation(EngineError::Unsorted(_))), "{engine:?}: {error}");
        let mut loader = store.loader();
        loader.add(b"z1", b"").expect("taken");
        assert!(loader.add(b"", b"").is_err() && loader.add(b"z1", b"").is_err());
        loader.add(b"z2", b"").expect("it goes on behind a refused one");
        assert_eq!(loader.finish().expect("loaded"), 2);
    }
}

/// A load while others write, snapshots of all that are whole, and a store that ends in the middle.
#[test]
fn loads_go_on_beside_writes_and_backups() {
    let place = place::directory();
    let (data, copy) = (place.path().join("data"), place.path().join("copy"));
    let store = options(Engine::Matrix, 2).open(&data).expect("a store");
    let counts = store.collection("counts").expect("made");
    let (store, counts) = (&store, &counts);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| store.load(records(0..60_000, 1)).expect("loaded"));
        let count =
            scope.spawn(|| (0..20_000_u64).for_each(|n| _ = counts.increment(key(n % 50), 1).expect("counted")));
        store.backup(&copy).expect("a backup");
        assert_eq!(load.join().expect("it ends"), 60_000);
        count.join().expect("it ends");
    });
    assert_has(store, 0..60_000, 1);
    let sum: u64 = counts
        .scan(stratakv::ScanOptions::all())
        .map(|item| item.expect("sound").1.to_bytes())
        .map(|number| std::str::from_utf8(&number).expect("digits").parse::<u64>().expect("a number"))
        .sum();
    assert_eq!(sum, 20_000);
    store.close().expect("closed");
    assert_sound(&data);
}

/// A backup of `matrix` has its records in order.
#[test]
fn a_backup_is_restored_by_loads() {
    let place = place::directory();
    let (data, copy, restored) = (place.path().join("data"), place.path().join("copy"), place.path().join("restored"));
    let store = options(Engine::Matrix, 2).open(&data).expect("a store");
    store.load(records(0..50_000, 1)).expect("loaded");
    let named = store.collection("named").expect("made");
    named.load(records(0..20_000, 2)).expect("loaded");
    store.backup(&copy).expect("a backup");
    store.close().expect("closed");
    let summary = stratakv::restore(&copy, &restored, &options(Engine::Matrix, 2)).expect("restored");
    assert!(summary.records >= 70_000);
    let again = options(Engine::Matrix, 2).open(&restored).expect("opened");
    let (elements, logged) = (statistic(&again, "container_elements"), statistic(&again, "memtable_bytes"));
    assert!(elements < 2_000 && logged < MIB, "{elements} records and {logged} bytes of them were put");
    assert_has(&again, 0..50_000, 1);
    assert_has(&again.collection("named").expect("there"), 0..20_000, 2);
    again.close().expect("closed");
    assert_sound(&restored);
}

#[test]
fn lines_in_order_are_loaded_and_others_told() {
    let place = place::directory();
    let (data, file) = (place.path().join("data"), place.path().join("lines.jsonl"));
    let line = |number: u64| format!("{{\"key\":\"key{number:06}\",\"value\":\"{}\"}}\n", "v".repeat(700));
    let lines: String = (0..3_000).map(line).collect();
    let of_others: String =
        (0..100).map(|n| format!("{{\"collection\":\"other\",\"key\":\"{n:03}\",\"value\":\"\"}}\n")).collect();
    std::fs::write(&file, of_others + &lines).expect("written");
    let (data_text, file_text) = (data.to_str().expect("text"), file.to_str().expect("text"));
    let load = ["load", "--data", data_text, "--engine", "matrix", "--sorted", file_text];
    let output = program::run(&load);
    let said = program::said(&output);
    assert!(output.status.success() && said.contains("3100 records"), "{said}");
    std::fs::write(&file, line(4_000) + &line(4_001) + &line(3_999)).expect("written");
    let output = program::run(&["load", "--data", data_text, "--sorted", file_text]);
    let said = program::said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("line 3: `key003999` comes after `key004001`"), "{said}");
    let store = Options::new().open(&data).expect("opened");
    assert_eq!(store.len().expect("counted"), 3_002, "lines before a bad one are written");
    assert_eq!(store.collection("other").expect("there").len().expect("counted"), 100);
}
