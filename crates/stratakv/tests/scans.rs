//! Scans over several shards: what they read, when, and how much of it at once.

use std::path::Path;
use std::time::{Duration, Instant};

use stratakv::{Options, Placement, ScanOptions, Store};

const PLACEMENTS: [Placement; 2] = [Placement::InPlace, Placement::Packed];

fn open(path: &Path, placement: Placement, shards: usize) -> Store {
    Options::new().shards(shards).memory_bytes(64 << 20).placement(placement).open(path).unwrap()
}

fn name(number: u64) -> Vec<u8> {
    // Multiplied by an odd number: no two are equal, and the order is not that of the numbers.
    format!("{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

/// A store with so many records, and nothing of it in memory.
fn cold(directory: &Path, placement: Placement, shards: usize, records: u64, bytes: usize) -> Store {
    let store = open(directory, placement, shards);
    let mut session = store.session().unwrap();
    for number in 0..records {
        let kind = stratakv::raw::ChangeKind::Put {
            value: vec![number as u8; bytes].into(),
            flags: 0,
            expiry: stratakv::Expiry::NEVER,
        };
        let key = stratakv::Key::new(stratakv::CollectionId(0), &name(number)).unwrap();
        let change = stratakv::raw::Change { key, expect: stratakv::Expect::Any, kind };
        let level = stratakv::Level::ProcessCrash;
        session.submit(stratakv::raw::Operation::Write { changes: vec![change], level });
        while session.in_flight() >= 64 {
            session.poll(32).unwrap();
        }
    }
    while session.in_flight() > 0 {
        session.poll(1).unwrap();
    }
    drop(session);
    store.close().unwrap();
    drop(store);
    open(directory, placement, shards)
}

fn statistic(store: &Store, name: &str) -> u64 {
    store.stats().iter().filter(|statistic| statistic.name == name).map(|statistic| statistic.value).sum()
}

/// The next round is read while the second half of one is consumed, and not before: a short scan
/// reads little that nobody takes. It all comes, in order, both ways.
#[test]
fn a_scan_reads_ahead() {
    for (placement, shards) in [(PLACEMENTS[0], 2), (PLACEMENTS[0], 1), (PLACEMENTS[1], 2), (PLACEMENTS[1], 1)] {
        let directory = tempfile::tempdir().unwrap();
        let store = cold(&directory.path().join("d"), placement, shards, 3000, 3000);
        let mut scan = store.scan(ScanOptions::all());
        assert_eq!(scan.ready(), 0);
        // The first round has 16 records, the second 32, the third 64.
        for _ in 0..32 {
            scan.next().unwrap().unwrap();
        }
        assert_eq!(scan.ready(), 16, "{placement:?}, {shards} shards");
        let reads = statistic(&store, "page_reads");
        assert!(
            reads <= 16 + 32,
            "{placement:?}, {shards} shards: {reads} reads, and the second round is not half taken"
        );
        scan.next().unwrap().unwrap();
        let begun = Instant::now();
        while statistic(&store, "page_reads") < 80 {
            let reads = statistic(&store, "page_reads");
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{placement:?}, {shards} shards: {reads} reads, and the third round is not read"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(statistic(&store, "page_reads") <= 16 + 32 + 64);
        assert_eq!(scan.count(), 3000 - 33);
        for reverse in [false, true] {
            let options = if reverse { ScanOptions::all().reverse() } else { ScanOptions::all() };
            let mut keys: Vec<Vec<u8>> = store.scan(options).map(|item| item.unwrap().0.to_vec()).collect();
            if reverse {
                keys.reverse();
            }
            assert!(keys.is_sorted() && keys.len() == 3000);
        }
        store.close().unwrap();
    }
}

/// What a scan reads before it is asked for more is bounded, however large the values are; and it
/// gets through.
#[test]
fn a_scan_of_large_values_reads_few_of_them_ahead() {
    for placement in PLACEMENTS {
        let directory = tempfile::tempdir().unwrap();
        let bytes = 6 << 20;
        let store = cold(&directory.path().join("d"), placement, 2, 24, bytes);
        let mut scan = store.scan(ScanOptions::all());
        for taken in 1..=24u64 {
            let (_, record) = scan.next().unwrap().unwrap();
            assert_eq!(record.len(), bytes);
            drop(record);
            let read = statistic(&store, "read_bytes") / bytes as u64;
            // Of each shard the value in hand and, of the next round, one more.
            assert!(read <= taken + 4, "{placement:?}: {read} values are read when {taken} were taken");
        }
        assert!(scan.next().is_none());
        store.close().unwrap();
    }
}

/// Keys alone cost no reads, whatever collection they are in.
#[test]
fn keys_cost_no_reads() {
    for placement in PLACEMENTS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        let store = cold(&path, placement, 2, 500, 3000);
        let collection = store.collection("other").unwrap();
        for number in 0..100 {
            collection.put(name(number), b"value").unwrap();
        }
        drop(collection);
        store.close().unwrap();
        drop(store);
        let store = open(&path, placement, 2);
        let collection = store.collection("other").unwrap();
        let before = statistic(&store, "page_reads");
        assert_eq!(collection.scan(ScanOptions::all().keys_only()).count(), 100);
        assert_eq!(store.scan(ScanOptions::all().keys_only().reverse()).count(), 500);
        assert_eq!(statistic(&store, "page_reads"), before, "{placement:?}");
        drop(collection);
        store.close().unwrap();
    }
}
