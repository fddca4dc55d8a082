//! What a load of sorted records costs beside puts of the same: seconds, and bytes written to the
//! volume for each byte of keys and values, compactions that follow included.
//!
//! `cargo run --release --example sorted_load -- DIR [load|puts|restore] [N] [BYTES] [SHARDS]`:
//! N records with values of BYTES. The directory must not exist, and is removed at the end.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use std::time::{Duration, Instant};

use stratakv::raw::{Change, ChangeKind, Operation, Reply};
use stratakv::{Engine, Expect, Expiry, Level, Options, Store};

type Failure = Box<dyn std::error::Error>;

/// Puts begun at once.
const IN_FLIGHT: u64 = 4096;

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"user0000\0\0\0\0\0\0\0\0";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Bytes that do not compress, other ones for each record.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = (0..bytes.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(bytes).collect()
}

fn options(shards: usize) -> Options {
    let options = Options::new().engine(Engine::Matrix).shards(shards).level(Level::ProcessCrash);
    options.memory_bytes(512 << 20).region_bytes((64 << 20) * shards as u64)
}

fn statistic(store: &Store, name: &str) -> u64 {
    store.stats().iter().filter(|one| one.name == name).map(|one| one.value).sum()
}

fn puts(store: &Store, records: u64, bytes: usize) -> Result<(), Failure> {
    for from in (0..records).step_by(IN_FLIGHT as usize) {
        let put = |number| {
            let kind = ChangeKind::Put { value: value(number, bytes).into(), flags: 0, expiry: Expiry::NEVER };
            let changes = vec![Change { key: store.key(key(number))?, expect: Expect::Any, kind }];
            Ok(Operation::Write { changes, level: Level::ProcessCrash })
        };
        let operations = (from..records.min(from + IN_FLIGHT)).map(put).collect::<Result<Vec<_>, stratakv::Error>>()?;
        for reply in store.execute_many(operations) {
            if let Reply::Failed(error) = reply {
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// Waits until nothing is written any more.
fn wait_until_idle(store: &Store) {
    let mut before = u64::MAX;
    while before != statistic(store, "write_bytes") {
        before = statistic(store, "write_bytes");
        std::thread::sleep(Duration::from_secs(2));
    }
}

fn tell(store: &Store, what: &str, seconds: f64, user_bytes: u64) {
    let told = |store: &Store| {
        let written = statistic(store, "write_bytes") + statistic(store, "manifest_write_bytes");
        written as f64 / user_bytes as f64
    };
    let at_once = told(store);
    wait_until_idle(store);
    println!(
        "{what}: {seconds:.2} s, {:.0} MB/s of keys and values; {at_once:.3} bytes written to the volume for each, {:.3} when it is at rest",
        user_bytes as f64 / seconds / 1e6,
        told(store)
    );
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| arguments.get(at).map_or(Ok(or), |text| text.parse());
    let directory = Path::new(arguments.first().ok_or("name a directory that does not exist")?);
    let what = arguments.get(1).map_or("load", String::as_str);
    let (records, bytes, shards) = (number(2, 1_000_000)?, number(3, 1024)? as usize, number(4, 2)? as usize);
    let user_bytes = records * (17 + bytes as u64);
    std::fs::create_dir(directory)?;
    let store = options(shards).open(directory.join("data"))?;
    let started = Instant::now();
    match what {
        "puts" => puts(&store, records, bytes)?,
        _ => drop(store.load((0..records).map(|number| (key(number), value(number, bytes))))?),
    }
    tell(&store, what, started.elapsed().as_secs_f64(), user_bytes);
    if what == "restore" {
        store.backup(directory.join("copy"))?;
        store.close()?;
        std::fs::remove_dir_all(directory.join("data"))?;
        let started = Instant::now();
        stratakv::restore(directory.join("copy"), directory.join("again"), &options(shards))?;
        let seconds = started.elapsed().as_secs_f64();
        println!("restored in {seconds:.2} s, {:.0} MB/s", user_bytes as f64 / seconds / 1e6);
    }
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
