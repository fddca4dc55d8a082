//! Backups that a client asks a loaded server for, and what is restored from them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stratakv::{Level, Options, Placement, Store, WriteBatch, check, restore};
use stratakv_server::{Server, ServerOptions};

const CLIENTS: usize = 3;
const KEYS: usize = 60;
const BATCH_WRITERS: usize = 2;
const BATCH_KEYS: usize = 6;

fn options() -> Options {
    Options::new().shards(3).memory_bytes(192 << 20).level(Level::ProcessCrash)
}

/// One connection, a command and its answer at a time.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(BufReader::new(stream))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn ask(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(command.as_bytes()).unwrap();
        self.line()
    }

    /// Values of `stats backup` by name.
    fn backups(&mut self) -> BTreeMap<String, String> {
        let mut told = BTreeMap::new();
        let mut line = self.ask("stats backup\r\n");
        while line != "END\r\n" {
            let (name, value) = line.trim_end().strip_prefix("STAT backup:").unwrap().split_once(' ').unwrap();
            told.insert(name.to_owned(), value.to_owned());
            line = self.line();
        }
        told
    }

    /// Waits for the end of a backup; its state then.
    fn ended(&mut self, name: &str) -> (String, BTreeMap<String, String>) {
        loop {
            let told = self.backups();
            let state = told[&format!("{name}:state")].clone();
            if state != "running" {
                return (state, told);
            }
            thread::yield_now();
        }
    }
}

/// What clients write, and how far they know it to be written: a number for each key that only
/// grows.
#[derive(Default)]
struct Ledger {
    sent: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
}

impl Ledger {
    fn new() -> Ledger {
        let zeros = || (0..CLIENTS * KEYS).map(|_| AtomicU64::new(0)).collect();
        Ledger { sent: zeros(), acknowledged: zeros() }
    }

    fn write(&self, client: usize, connection: &mut Client, stop: &AtomicBool) {
        for round in 1u64.. {
            for key in (0..KEYS).filter(|key| round % (1 + *key as u64 % 3) == 0) {
                let at = client * KEYS + key;
                // Some over several pages.
                let value = format!("{round} {}", "v".repeat((round as usize * 37 + key * 401) % 9000));
                self.sent[at].store(round, Ordering::SeqCst);
                let answer = connection.ask(&format!("set k{at} 0 0 {}\r\n{value}\r\n", value.len()));
                assert_eq!(answer, "STORED\r\n");
                self.acknowledged[at].store(round, Ordering::SeqCst);
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.acknowledged.iter().map(|round| round.load(Ordering::SeqCst)).collect()
    }
}

fn write_batches(store: &Store, writer: usize, stop: &AtomicBool) {
    for round in 1u64.. {
        let mut batch = WriteBatch::new();
        for key in 0..BATCH_KEYS {
            batch.put(format!("batch-{writer}-{key}").as_bytes(), round.to_string().as_bytes());
            batch.put(format!("fresh-{writer}-{round}/{key}").as_bytes(), b"");
        }
        store.write(batch).unwrap();
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// The number at the front of a key's value; 0 if it is not there.
fn round_of(store: &Store, key: &str) -> u64 {
    let Some(record) = store.get(key.as_bytes()).unwrap() else { return 0 };
    let value = String::from_utf8(record.to_bytes().to_vec()).unwrap();
    value.split(' ').next().unwrap().parse().unwrap()
}

fn is_good(backup: &Path, copy: &Path, at_least: &[u64], at_most: &Ledger) {
    restore(backup, copy, &options().shards(2)).unwrap();
    let report = check(copy, None).unwrap();
    assert!(report.is_sound() && report.lost_records == 0, "{report:?}");
    let store = options().create(false).open(copy).unwrap();
    for (key, acknowledged) in at_least.iter().enumerate() {
        let found = round_of(&store, &format!("k{key}"));
        let sent = at_most.sent[key].load(Ordering::SeqCst);
        assert!((*acknowledged..=sent).contains(&found), "k{key}: {found} of {acknowledged} to {sent}");
    }
    for key in 0..1500 {
        assert_eq!(
            store.get(format!("old-{key}").as_bytes()).unwrap().map(|record| record.to_bytes().len()),
            Some(2000)
        );
    }
    for writer in 0..BATCH_WRITERS {
        let of = |key| round_of(&store, &format!("batch-{writer}-{key}"));
        let first = of(0);
        assert!(first > 0 && (1..BATCH_KEYS).all(|key| of(key) == first), "the batch of writer {writer} is not whole");
    }
    let mut fresh: BTreeMap<String, usize> = BTreeMap::new();
    for item in store.prefix(b"fresh-") {
        let key = String::from_utf8(item.unwrap().0.to_vec()).unwrap();
        *fresh.entry(key.split('/').next().unwrap().to_owned()).or_default() += 1;
    }
    let torn: Vec<_> = fresh.iter().filter(|(_, keys)| **keys != BATCH_KEYS).collect();
    assert!(!fresh.is_empty() && torn.is_empty(), "batches that are not whole: {torn:?}");
}

fn backups_are_good(placement: Placement) {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("backups");
    std::fs::create_dir(&to).unwrap();
    let store = options().placement(placement).open(place.path().join("data")).unwrap();
    (0..1500).for_each(|key| _ = store.put(format!("old-{key}").as_bytes(), [1; 2000]).unwrap());
    (0..BATCH_WRITERS).for_each(|writer| write_batches(&store, writer, &AtomicBool::new(true)));
    let memcache = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let server_options =
        ServerOptions { memcache, threads: 2, backup_directory: Some(to.clone()), ..Default::default() };
    let server = Server::start(store.clone(), server_options).unwrap();
    let (address, ledger, stop) = (server.addresses()[0], Ledger::new(), AtomicBool::new(false));
    let made: Vec<_> = thread::scope(|scope| {
        let (store, ledger, stop) = (&store, &ledger, &stop);
        for client in 0..CLIENTS {
            scope.spawn(move || ledger.write(client, &mut Client::connect(address), stop));
        }
        for writer in 0..BATCH_WRITERS {
            scope.spawn(move || write_batches(store, writer, stop));
        }
        let mut asking = Client::connect(address);
        let made = (0..3).map(|number| {
            let before = ledger.acknowledged();
            let answer = asking.ask(&format!("backup b{number}\r\n"));
            (before, answer, asking.ended(&format!("b{number}")))
        });
        let made = made.collect();
        // Before anything is said of them: the writers would go on for ever.
        stop.store(true, Ordering::Relaxed);
        made
    });
    server.shutdown();
    server.join().unwrap();
    for (number, (before, answer, (state, told))) in made.into_iter().enumerate() {
        assert_eq!((answer.as_str(), state.as_str()), ("OK\r\n", "done"), "{told:?}");
        assert!(told[&format!("b{number}:records")].parse::<u64>().unwrap() >= 1500, "{told:?}");
        assert!(number == 0 || before.iter().any(|round| *round > 0), "the clients write");
        is_good(&to.join(format!("b{number}")), &place.path().join(format!("copy-{number}")), &before, &ledger);
    }
}

#[test]
fn a_backup_of_a_loaded_server_is_good() {
    backups_are_good(Placement::InPlace);
}

#[test]
fn a_backup_of_a_loaded_server_is_good_in_segments_too() {
    backups_are_good(Placement::Packed);
}

#[test]
fn a_directory_that_is_none_or_holds_a_store_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let store = options().open(&data).unwrap();
    std::fs::write(place.path().join("file"), b"").unwrap();
    for (directory, why) in [("absent", "no directory"), ("file", "no directory"), ("data", "a store lies in it")] {
        let backup_directory = Some(place.path().join(directory));
        let memcache = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        let refused = Server::start(store.clone(), ServerOptions { memcache, backup_directory, ..Default::default() });
        let error = refused.err().expect(directory).to_string();
        assert!(error.contains(why) && error.contains(directory), "{error}");
    }
}
