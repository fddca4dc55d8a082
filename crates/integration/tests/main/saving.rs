//! Caches in memory only (engine `tier`, no second tier) that save what they hold at an orderly
//! end, as servers on tmpfs.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use stratakv::{Engine, Options, check};
use stratakv_integration::place;
use stratakv_integration::program::{Serve, Served};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const KEYS: usize = 20_000;
const LONG: usize = 4 << 20;

/// Where one would have it; else where all tests keep their stores.
fn on_tmpfs() -> TempDir {
    tempfile::Builder::new().prefix("stratakv-tests").tempdir_in("/dev/shm").unwrap_or_else(|_| place::directory())
}

fn serve(data: &Path, io: &str, more: &[&str]) -> Served {
    let options = ["--engine", "tier", "--shards", "2", "--memory", "64M", "--item-bytes-max", "16M", "--io", io];
    Serve::on(data).options(&options).options(more).start()
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn value(number: usize) -> Vec<u8> {
    [number.to_string().as_bytes(), &[b'.'; 800]].concat()
}

fn fill(served: &Served) {
    let mut client = served.client();
    for number in 0..KEYS {
        assert_eq!(client.set(&key(number), &value(number)).expect("an answer"), "STORED");
    }
    assert_eq!(client.set(b"long", &vec![b'l'; LONG]).expect("an answer"), "STORED");
}

/// How many keys are there, each with the value it was given.
fn hits(served: &Served) -> usize {
    let mut client = served.client();
    let found = |number: &usize| match client.get(&key(*number)).expect("an answer") {
        Some(found) => {
            assert!(found == value(*number), "key {number}");
            true
        }
        None => false,
    };
    (0..KEYS).filter(found).count()
}

/// Bytes that the volumes have of the file system.
fn taken(data: &Path) -> u64 {
    let blocks = |path: &std::path::PathBuf| std::fs::metadata(path).expect("a volume").blocks() * 512;
    place::volumes(data).iter().map(blocks).sum()
}

fn wait_until_returned(data: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while taken(data) > MIB {
        assert!(Instant::now() < deadline, "{} bytes lie in the volumes", taken(data));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_in_memory_only_is_warm_after_an_orderly_end_and_cold_after_a_kill() {
    for io in ["auto", "blocking"] {
        let place = on_tmpfs();
        let data = place.path().join("data");
        let served = serve(&data, io, &["--save-at-shutdown"]);
        fill(&served);
        assert!(taken(&data) < MIB, "it writes nothing while it serves");
        assert!(served.stop().success());
        assert!(taken(&data) > 16 * MIB, "{} bytes are saved", taken(&data));
        assert_eq!(check(&data, None).expect("checked").records, KEYS as u64 + 1);
        assert!(check(&data, None).expect("checked").is_sound(), "and it is as it was");

        // That is remembered.
        let served = serve(&data, io, &[]);
        assert_eq!(hits(&served), KEYS);
        assert!(served.client().get(b"long").expect("an answer").is_some_and(|long| long == [b'l'; LONG]));
        wait_until_returned(&data);
        assert_eq!(hits(&served), KEYS);
        assert!(served.stop().success());

        let mut served = serve(&data, io, &[]);
        let mut client = served.client();
        for number in 0..50 {
            assert_eq!(client.set(&key(number), b"newer").expect("an answer"), "STORED");
            assert_eq!(client.ask(&format!("delete key:{}", number + 50)).expect("an answer"), "DELETED");
        }
        served.kill();
        let served = serve(&data, io, &[]);
        assert_eq!(hits(&served), 0, "absent, and nothing older");
        assert!(taken(&data) < MIB, "what nobody can use is given back");

        fill(&served);
        assert!(served.stop().success());
        let served = serve(&data, io, &["--park=off"]);
        assert_eq!(hits(&served), KEYS, "what was saved is there once more");
        assert!(served.stop().success());
        let served = serve(&data, io, &[]);
        assert_eq!(hits(&served), 0);
        assert!(served.stop().success());
    }
}

/// memcached's signal for it killed the server.
#[test]
fn sigusr1_is_an_orderly_end_too() {
    let place = on_tmpfs();
    let data = place.path().join("data");
    let mut served = serve(&data, "auto", &["--save-at-shutdown"]);
    fill(&served);
    served.signal(rustix::process::Signal::USR1);
    assert!(served.wait(Duration::from_secs(60)).success());
    assert_eq!(hits(&serve(&data, "auto", &[])), KEYS);
}

#[test]
fn a_store_that_saves_has_no_second_tier() {
    let place = place::directory();
    let options = Options::new().shards(2).memory_bytes(16 * MIB);
    let cache = options.clone().engine(Engine::Tier);
    let refused =
        |options: Options, name: &str| options.open(place.path().join(name)).expect_err("refused").to_string();
    let said = refused(cache.clone().save_at_shutdown(true).capacity_bytes(64 * MIB), "a");
    assert!(said.contains("second tier, of 64") && said.contains("--capacity 0"), "{said}");
    for other in [options.clone(), options.clone().engine(Engine::Slab), options.clone().engine(Engine::Hash)] {
        let said = refused(other.save_at_shutdown(true), "b");
        assert!(said.contains("engine `tier`"), "{said}");
    }
    assert!(!place.path().join("a").exists() && !place.path().join("b").exists());

    // One that has a second tier, until it is told to have none.
    let with_ssd = place.path().join("c");
    drop(cache.clone().capacity_bytes(64 * MIB).open(&with_ssd).expect("a cache"));
    let said = refused(options.clone().save_at_shutdown(true), "c");
    assert!(said.contains("second tier"), "{said}");
    for (options, found) in [
        (options.clone().save_at_shutdown(true).capacity_bytes(0), 0),
        (options.clone(), 500),
        (options.clone().memory_bytes(8 * MIB), 500),
        (options.clone().save_at_shutdown(false), 500),
        (options.clone(), 0),
    ] {
        let store = options.open(&with_ssd).expect("opened");
        let hits = (0..500_u32).filter(|key| store.get(key.to_be_bytes()).expect("a get").is_some()).count();
        assert_eq!(hits, found);
        for key in 0..500_u32 {
            store.put(key.to_be_bytes(), [7; 1000]).expect("a put");
        }
        store.close().expect("closed");
    }
}

/// As the file-size limit of a process has it.
#[test]
fn a_full_place_ends_in_order_and_says_so() {
    let place = place::directory();
    let data = place.path();
    let short = |blocks: u32| {
        let options =
            ["--engine", "tier", "--shards", "1", "--memory", "64M", "--item-bytes-max", "16M", "--save-at-shutdown"];
        // A store of its own for each: within a file that is long already room is set aside
        // whatever the limit.
        let data = data.join(blocks.to_string());
        Serve::on(&data).options(&options).before(&format!("ulimit -f {blocks}")).start()
    };
    let served = short(16 << 10);
    fill(&served);
    assert!(served.stop().success());
    let served = short(16 << 10);
    assert!(served.said().contains("not everything could be saved"), "{}", served.said());
    let found = hits(&served);
    assert!((1000..KEYS).contains(&found), "{found}");
    let served = short(300);
    fill(&served);
    assert!(served.stop().success());
    let served = short(300);
    assert!(served.said().contains("nothing can be saved"), "{}", served.said());
    assert_eq!(hits(&served), 0);
}
