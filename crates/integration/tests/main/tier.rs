//! Stores of engine `tier`: what they have in a way of their own.

use std::io::{Read, Write};
use std::path::Path;

use stratakv::{Engine, Level, Options, check};
use stratakv_base::random::Random;
use stratakv_integration::place;
use stratakv_integration::program::{Serve, Served};

const MIB: u64 = 1 << 20;

/// Their volumes followed the memory, and volumes of another length begin empty: so did a cache
/// that any other command had opened.
#[test]
fn a_cache_is_warm_with_another_memory_too() {
    let place = place::directory();
    let data = place.path().join("data");
    let options = |memory: u64| Options::new().shards(2).memory_bytes(memory * MIB);
    let store = options(64).engine(Engine::Tier).open(&data).expect("a cache");
    assert_eq!(store.default_level(), Level::Memory);
    for record in 0..1_000_u32 {
        store.put(record.to_be_bytes(), [7; 1000]).expect("a put");
    }
    store.close().expect("closed");
    drop(store);
    assert_eq!(check(&data, None).expect("checked").records, 1_000);
    for memory in [48, 96] {
        let store = options(memory).open(&data).expect("opened");
        let found = (0..1_000_u32).filter(|record| store.get(record.to_be_bytes()).expect("a get").is_some()).count();
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
        store.put(record.to_be_bytes(), [7; 1000]).expect("a put");
    }
    store.close().expect("closed");
    drop(store);
    assert!(len_bytes() > 16 * MIB, "{} bytes", len_bytes());
    for (asked, most) in [(8 * MIB, 8 * MIB), (0, 2 * 8192)] {
        let store = options.clone().capacity_bytes(asked).open(&data).expect("opened");
        assert!(len_bytes() <= most, "{} bytes where {asked} were asked for", len_bytes());
        store.put(b"k", b"v").expect("a put");
        assert!(store.get(1_u32.to_be_bytes()).expect("a get").is_none(), "it began empty");
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

const LONG: usize = 4 << 20;

fn serve(data: &Path, io: &str) -> Served {
    let options =
        ["--engine", "tier", "--shards", "1", "--memory", "64M", "--capacity", "256M", "--item-bytes-max", "16M"];
    Serve::on(data).options(&options).options(&["--io", io]).start()
}

/// All that a get of the long value brings before the connection ends or `END` is there.
fn take_long(served: &Served) -> Vec<u8> {
    let mut client = served.client();
    client.stream().write_all(b"get long\r\n").expect("sent");
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 20]);
    while !bytes.ends_with(b"\r\nEND\r\n") && bytes != b"END\r\n" {
        match client.stream().read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
    }
    bytes
}

/// Turns a bit of the value in the volume, near its end.
fn damage(data: &Path, value: &[u8]) {
    let volume = data.join("shard-000.vol");
    let mut bytes = std::fs::read(&volume).expect("the volume");
    let wanted = &value[LONG - 500_000..][..32];
    let at = bytes.windows(32).position(|found| found == wanted).expect("it lies there");
    bytes[at] ^= 1;
    std::fs::write(&volume, bytes).expect("written");
}

#[test]
fn a_long_value_from_the_volume_comes_whole_or_its_connection_ends() {
    let mut value = vec![0; LONG];
    Random::new(1).fill(&mut value);
    let whole = [format!("VALUE long 0 {LONG}\r\n").as_bytes(), &value, b"\r\nEND\r\n"].concat();
    for io in ["auto", "blocking"] {
        let place = place::directory();
        let data = place.path().join("data");
        let served = serve(&data, io);
        assert_eq!(served.client().set(b"long", &value).expect("an answer"), "STORED");
        assert!(served.stop().success());
        let served = serve(&data, io);
        // One stops reading in the middle of it, and goes on when others were served.
        let mut stopped = served.client();
        stopped.stream().write_all(b"get long\r\n").expect("sent");
        let mut taken = vec![0; 100_000];
        stopped.stream().read_exact(&mut taken).expect("its front");
        for _ in 0..3 {
            assert!(take_long(&served) == whole, "{io}");
            assert_eq!(served.client().set(b"other", b"value").expect("an answer"), "STORED");
        }
        let mut rest = vec![0; whole.len() - taken.len()];
        stopped.stream().read_exact(&mut rest).expect("the rest");
        assert!([taken, rest].concat() == whole, "{io}");
        assert!(served.stop().success());
        damage(&data, &value);
        let served = serve(&data, io);
        let cut = take_long(&served);
        assert!(cut.len() < whole.len() && whole.starts_with(&cut) && cut.len() > 1 << 20, "{} bytes", cut.len());
        assert_eq!(take_long(&served), b"END\r\n", "from then on it is a miss");
        assert!(served.stop().success());
    }
}
