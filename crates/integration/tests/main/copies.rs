//! What a server copies in user space, counted by a memcpy of our own that is loaded before the
//! system's.

use std::path::{Path, PathBuf};
use std::process::Command;

use stratakv_integration::memcache::Client;
use stratakv_integration::program::{Serve, Served};
use stratakv_integration::{place, requirement};
use tempfile::TempDir;

const SHORT_LEN: usize = 12 << 10;
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
    client.statistic(name).expect("an answer").unwrap_or_default()
}

/// A server whose copies are counted.
struct Counted {
    served: Served,
    client: Client,
    counters: PathBuf,
    _place: TempDir,
}

impl Counted {
    /// `None`: there is no C compiler.
    fn start(options: &[&str]) -> Option<Counted> {
        let place = place::directory();
        let library = counting(place.path())?;
        let counters = place.path().join("counters");
        std::fs::write(&counters, [0; 4096]).expect("a file");
        let (library, counters_name) = (library.display(), counters.display());
        let before = format!("export LD_PRELOAD='{library}' COPIES='{counters_name}'");
        let served = Serve::on(&place.path().join("data")).options(options).before(&before).start();
        let client = served.client();
        Some(Counted { served, client, counters, _place: place })
    }

    /// Copies for each of `count` calls of `act`.
    fn copies_for(&mut self, count: usize, mut act: impl FnMut(&mut Client, usize)) -> Copies {
        let before = copies(&self.counters);
        (0..count).for_each(|number| act(&mut self.client, number));
        let after = copies(&self.counters);
        let each = |before: u64, after: u64| (after - before) / count as u64;
        Copies { bytes: each(before.bytes, after.bytes), long_bytes: each(before.long_bytes, after.long_bytes) }
    }
}

fn set(client: &mut Client, number: usize) {
    set_of(LEN, client, number);
}

fn set_of(len: usize, client: &mut Client, number: usize) {
    let reply = client.set(format!("key{number}").as_bytes(), &vec![b'v'; len]).expect("an answer");
    assert_eq!(reply, "STORED");
}

/// What is copied for each get of values that lie on the volume, and how many of 200 did.
fn copied_for_gets(options: &[&str], read_there: &str) -> Option<(Copies, u64)> {
    let mut counted = Counted::start(options)?;
    // The counters count, or nothing below could fail. Longer copies into a block go past the
    // caches, which they do not see.
    let filling = counted.copies_for(10, |client, number| set_of(SHORT_LEN, client, number));
    assert!(filling.long_bytes >= SHORT_LEN as u64, "{filling:?}");
    counted.copies_for(KEYS, set);
    let reads = statistic(&mut counted.client, read_there);
    // The oldest, each once: none is used so often that it returns to memory.
    let gets = counted.copies_for(200, |client, number| {
        let found = client.get(format!("key{number}").as_bytes()).expect("an answer");
        assert!(found.is_some_and(|found| found == [b'v'; LEN]));
    });
    let reads = statistic(&mut counted.client, read_there) - reads;
    assert!(counted.served.stop().success());
    Some((gets, reads))
}

#[test]
fn a_get_of_a_long_value_from_the_volume_of_a_cache_copies_none_of_it() {
    let options = ["--engine", "tier", "--memory", "32M", "--capacity", "512M"];
    let Some((copied, reads)) = copied_for_gets(&options, "hits_ssd") else { return };
    assert!(reads >= 190, "only {reads} of 200 values lay on the volume");
    // Of requests and answers on their way; more in a test's build than in an optimised one.
    assert!(copied.bytes <= 512, "for a get: {copied:?}");
}

#[test]
fn a_get_of_a_long_value_from_disk_copies_none_of_it() {
    let options = ["--memory", "16M", "--durability", "process_crash"];
    let Some((copied, reads)) = copied_for_gets(&options, "page_reads") else { return };
    assert!(reads >= 190, "only {reads} reads for 200 values");
    assert!(copied.bytes < 1600, "for a get: {copied:?}");
}

/// From where it was received to where it stays; the socket's own copy is the kernel's.
#[test]
fn a_set_of_a_long_value_in_a_cache_copies_it_once() {
    let options = ["--engine", "tier", "--memory", "64M", "--capacity", "512M"];
    let Some(mut counted) = Counted::start(&options) else { return };
    // Receives grow until a value comes whole.
    counted.copies_for(20, set);
    // The one copy is `Block::store`'s: another one would be seen.
    let copied = counted.copies_for(200, set);
    assert!(copied.bytes < 4096, "for a set: {copied:?}");
    let len = SHORT_LEN as u64;
    let copied = counted.copies_for(200, |client, number| set_of(SHORT_LEN, client, number));
    assert!((len..len + 4096).contains(&copied.bytes), "for a short set: {copied:?}");
    assert!(counted.served.stop().success());
}
