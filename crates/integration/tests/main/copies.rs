//! What a server copies in user space, counted by a memcpy of our own that is loaded before the system's.

use std::path::{Path, PathBuf};
use std::process::Command;

use stratakv_integration::memcache::Client;
use stratakv_integration::program::Serve;
use stratakv_integration::{place, requirement};

const LEN: usize = 64 << 10;
const KEYS: usize = 1200;

/// Bytes that were copied, and those of them in calls of 512 bytes and more.
#[derive(Clone, Copy, Debug)]
struct Copies {
    bytes: u64,
    long_bytes: u64,
}

fn copies(counters: &Path) -> Copies {
    let page = std::fs::read(counters).expect("the counters");
    let word = |at: usize| u64::from_ne_bytes(page[at * 8..][..8].try_into().expect("eight bytes"));
    Copies { bytes: word(0), long_bytes: word(2) }
}

/// The library that counts; `None`: there is no C compiler.
fn counting(place: &Path) -> Option<PathBuf> {
    let Some(cc) = requirement::tool("cc") else { return requirement::skip("no C compiler (cc)") };
    let library = place.join("copies.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/copies.c");
    let mut command = Command::new(cc);
    command.args(["-O2", "-Wall", "-Werror", "-fno-builtin", "-fPIC", "-shared", source, "-o"]).arg(&library);
    assert!(command.status().expect("cc runs").success());
    Some(library)
}

fn statistic(client: &mut Client, name: &str) -> u64 {
    let mut line = client.ask("stats").expect("an answer");
    let mut value = 0;
    while line != "END" {
        if let Some(rest) = line.strip_prefix(&format!("STAT {name} ")) {
            value = rest.parse().expect("a number");
        }
        line = client.line().expect("a line");
    }
    value
}

/// Bytes copied for each get of values that lie on the volume, and how many did.
fn copied_for_gets(options: &[&str], read_there: &str) -> Option<(u64, u64, u64)> {
    let place = place::directory();
    let library = counting(place.path())?;
    let counters = place.path().join("counters");
    std::fs::write(&counters, [0; 4096]).expect("a file");
    let (library, counters_name) = (library.display(), counters.display());
    let before = format!("export LD_PRELOAD='{library}' COPIES='{counters_name}'");
    let served = Serve::on(&place.path().join("data")).options(options).before(&before).start();
    let mut client = served.client();
    let value = vec![b'v'; LEN];
    let at_first = copies(&counters);
    for key in 0..KEYS {
        assert_eq!(client.set(format!("key{key}").as_bytes(), &value).expect("an answer"), "STORED");
    }
    let filled = copies(&counters);
    // The counters count, or nothing below could fail.
    assert!(filled.long_bytes - at_first.long_bytes >= (KEYS * LEN) as u64, "{at_first:?}, {filled:?}");
    let (reads, gets) = (statistic(&mut client, read_there), 200);
    let before = copies(&counters);
    // The oldest, each once: none is used so often that it returns to memory.
    for key in 0..gets {
        assert!(client.get(format!("key{key}").as_bytes()).expect("an answer").is_some_and(|found| found == value));
    }
    let after = copies(&counters);
    let reads = statistic(&mut client, read_there) - reads;
    assert!(served.stop().success());
    Some(((after.bytes - before.bytes) / gets, (after.long_bytes - before.long_bytes) / gets, reads))
}

#[test]
fn a_get_of_a_long_value_from_the_volume_of_a_cache_copies_none_of_it() {
    let options = ["--engine", "tier", "--memory", "32M", "--capacity", "512M"];
    let Some((bytes, long_bytes, reads)) = copied_for_gets(&options, "hits_ssd") else { return };
    assert!(reads >= 190, "only {reads} of 200 values lay on the volume");
    assert!(
        long_bytes < 512 && bytes < 16 << 10,
        "{bytes} bytes were copied for a get, {long_bytes} of them in long pieces"
    );
}

#[test]
fn a_get_of_a_long_value_from_disk_copies_none_of_it() {
    let options = ["--memory", "16M", "--durability", "process_crash"];
    let Some((bytes, long_bytes, reads)) = copied_for_gets(&options, "page_reads") else { return };
    assert!(reads >= 190, "only {reads} reads for 200 values");
    assert!(
        long_bytes < 512 && bytes < 48 << 10,
        "{bytes} bytes were copied for a get, {long_bytes} of them in long pieces"
    );
}
