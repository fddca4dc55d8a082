//! Stores of engine `tier`: what they have in a way of their own.

use stratakv::{Engine, Level, Options, check};
use stratakv_integration::place;

const MIB: u64 = 1 << 20;

/// Their volumes followed the memory, and volumes of another length begin empty: so did a cache that any other command had opened.
#[test]
fn a_cache_is_warm_with_another_memory_too() {
    let place = place::directory();
    let data = place.path().join("data");
    let options = |memory: u64| Options::new().shards(2).memory_bytes(memory * MIB);
    let store = options(64).engine(Engine::Tier).open(&data).expect("a cache");
    assert_eq!(store.default_level(), Level::Memory);
    for record in 0..1_000_u32 {
        store.put(&record.to_be_bytes(), &[7; 1000]).expect("a put");
    }
    store.close().expect("closed");
    drop(store);
    assert_eq!(check(&data, None).expect("checked").records, 1_000);
    for memory in [48, 96] {
        let store = options(memory).open(&data).expect("opened");
        let found = (0..1_000_u32).filter(|record| store.get(&record.to_be_bytes()).expect("a get").is_some()).count();
        assert_eq!(found, 1_000, "with {memory} MiB");
        store.close().expect("closed");
    }
    // It is a hard cap, and is remembered.
    drop(options(64).capacity_bytes(32 * MIB).open(&data).expect("opened"));
    let store = options(64).open(&data).expect("opened");
    let capacity = store.stats().iter().find(|one| one.name == "ssd_capacity_bytes").map(|one| one.value);
    assert!(capacity.is_some_and(|bytes| bytes > 0 && bytes <= 32 * MIB), "{capacity:?}");
}

#[test]
fn a_lowered_capacity_left_the_files_as_long_as_they_were() {
    let place = place::directory();
    let data = place.path().join("data");
    let options = Options::new().shards(2).memory_bytes(16 * MIB);
    let len_bytes = || -> u64 {
        let files = std::fs::read_dir(&data).expect("a directory").map(|file| file.expect("a file"));
        let volumes = files.filter(|file| file.path().extension().is_some_and(|end| end == "vol"));
        volumes.map(|file| file.metadata().expect("its length").len()).sum()
    };
    let store = options.clone().engine(Engine::Tier).capacity_bytes(64 * MIB).open(&data).expect("a cache");
    for record in 0..20_000_u32 {
        store.put(&record.to_be_bytes(), &[7; 1000]).expect("a put");
    }
    store.close().expect("closed");
    drop(store);
    assert!(len_bytes() > 16 * MIB, "{} bytes", len_bytes());
    for (asked, most) in [(8 * MIB, 8 * MIB), (0, 2 * 8192)] {
        let store = options.clone().capacity_bytes(asked).open(&data).expect("opened");
        assert!(len_bytes() <= most, "{} bytes where {asked} were asked for", len_bytes());
        store.put(b"k", b"v").expect("a put");
        assert!(store.get(&1_u32.to_be_bytes()).expect("a get").is_none(), "it began empty");
        store.close().expect("closed");
    }
}

#[test]
fn levels_that_a_cache_cannot_give_are_refused() {
    let place = place::directory();
    let options = Options::new().engine(Engine::Tier).memory_bytes(16 * MIB);
    let said = options.clone().level(Level::PowerLoss).open(place.path().join("a")).expect_err("refused").to_string();
    assert!(said.contains("`tier` is a cache") && said.contains("`slab`"), "{said}");
    let said = Options::new().level(Level::Memory).open(place.path().join("b")).expect_err("refused").to_string();
    assert!(said.contains("`tier` only"), "{said}");
    let store = options.open(place.path().join("c")).expect("a cache");
    assert!(store.collection("names").expect_err("refused").to_string().contains("default collection"));
    assert_eq!(store.collections().expect("none"), Vec::<String>::new());
}
