//! What is done in the background: space of expired records, and checking what nobody asks for.

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Level, Mono, Now, Wall};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Operation, Reply, Shared};
use stratakv_hash::{Hash, HashOptions, Report};
use stratakv_pmem::{MapOptions, Mapping, Pmem};

fn key(number: u64) -> Key {
    Key::new(CollectionId(number as u32 % 2), format!("key {number}").as_bytes()).expect("a key")
}

fn created() -> Hash<Mapping> {
    let pmem = Mapping::anonymous(16 << 20, MapOptions::default()).expect("memory");
    Hash::create(pmem, HashOptions { segment_bytes: 64 << 10, ..HashOptions::default() }).expect("created")
}

fn put(hash: &Hash<Mapping>, number: u64, second: u64) {
    hash.put(&key(number), &[7; 100], (0, Expiry::at_second(second)), Expect::Any, Wall(1000)).expect("a put");
}

/// How many steps there were to do.
fn maintain(hash: &Hash<Mapping>, second: u64) -> u64 {
    let steps = (1..).find(|_| !hash.maintain(Now { mono: Mono(1), wall: Wall(second * 1000) }));
    steps.expect("it ends")
}

fn used(report: &Report) -> u64 {
    report.used_bytes - report.free_bytes - report.retired_bytes
}

#[test]
fn the_space_of_expired_records_comes_back_in_steps() {
    let hash = created();
    (0..1_000).for_each(|number| put(&hash, number, 0));
    let before = hash.report();
    (1_000..11_000).for_each(|number| put(&hash, number, 2_000 + number % 3));
    // Replaced by what does not expire, by what expires later; deleted, and written again.
    (1_000..1_500).for_each(|number| put(&hash, number, 0));
    (1_500..2_000).for_each(|number| put(&hash, number, 3_000));
    for number in 2_000..2_500 {
        hash.delete(&key(number), Expect::Any, Wall(1000)).expect("a delete");
        put(&hash, number, 3_000);
    }
    assert_eq!(maintain(&hash, 1_999), 1);
    assert_eq!(hash.report().records, 11_000);
    let steps = maintain(&hash, 2_002);
    assert!((30..60).contains(&steps), "{steps} steps for 8,500 records");
    let report = hash.report();
    assert_eq!((report.records, report.ordered, report.reclaimed), (2_500, 1_250, 8_500));
    assert_eq!(used(&report), used(&before) * 5 / 2);
    maintain(&hash, 3_000);
    let report = hash.report();
    assert_eq!((report.records, report.ordered, report.dram.expiry_bytes), (1_500, 750, 0), "{report:?}");

    // And what opening finds.
    (1_000..2_000).for_each(|number| put(&hash, number, 4_000));
    let hash = Hash::open(hash.into_pmem(), 2).expect("opened");
    maintain(&hash, 4_000);
    assert_eq!(hash.report().records, 1_000);
}

#[test]
fn a_key_that_is_written_over_and_over_takes_no_more_memory_for_its_expiry() {
    let hash = created();
    for round in 0..100_000 {
        put(&hash, round % 10, 5_000 + round / 100);
        if round % 1_000 == 0 {
            maintain(&hash, 1_000);
        }
    }
    maintain(&hash, 1_000);
    let report = hash.report();
    assert!(report.dram.expiry_bytes < 200_000, "{} bytes for {} records", report.dram.expiry_bytes, report.records);
    maintain(&hash, 6_000);
    assert_eq!(hash.report().records, 0);
}

#[test]
fn rot_that_nobody_asks_for_is_found_and_counted_once() {
    let hash = created();
    (0..20_000).for_each(|number| put(&hash, number, 0));
    while !hash.scrub(64 << 10) {}
    let report = hash.report();
    assert!(report.damaged == 0 && report.scrubbed_bytes > 20_000 * 140, "{report:?}");
    // Bytes of values are all 7.
    let middle = 2 << 20;
    let mut word = [0; 8];
    let at = (0..100_000).map(|step| middle + step * 8).find(|at| {
        hash.pmem().load(*at, &mut word).expect("in bounds");
        word == [7; 8]
    });
    let at = at.expect("a value");
    hash.pmem().store(at, &[7, 7, 6]).expect("in bounds");
    for _ in 0..2 {
        while !hash.scrub(64 << 10) {}
    }
    assert_eq!(hash.report().damaged, 1, "{:?}", hash.damage());
    let errors = (0..20_000).filter(|number| matches!(hash.get(&key(*number), Wall(1)), Err(Error::Corrupt(_))));
    assert_eq!(errors.count(), 1);
    assert_eq!(hash.report().damaged, 1);
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize * 37 + at) as u8).collect()
}

/// Puts until there is no room; how many.
fn put_until_full(hash: &Hash<Mapping>, first: u64, bytes: usize) -> u64 {
    let put = |number| hash.put(&key(number), &value(number, bytes), (3, Expiry(9_000)), Expect::Any, Wall(1000));
    let full = (first..).find(|number| matches!(put(*number), Err(Error::Full(_))));
    full.expect("it is full some time") - first
}

/// Whether exactly these are there, with their values of so many bytes.
fn check_all(hash: &Hash<Mapping>, all: &[(u64, usize)]) {
    for (number, bytes) in all {
        let record = hash.get(&key(*number), Wall(1000)).expect("a get").expect("it is there");
        assert!(record.value.to_bytes() == value(*number, *bytes) && record.flags == 3, "{number}");
        assert_eq!(record.expiry, Expiry(9_000));
    }
    let report = hash.report();
    assert_eq!((report.records, report.damaged), (all.len() as u64, 0), "{report:?}");
}

/// Fills a region with records of a block, deletes every other one, and fills it with longer ones;
/// what they take of what was free, in percent.
fn longer_ones_between_short_ones(bytes: usize) -> u64 {
    let hash = created();
    let short = put_until_full(&hash, 0, 10);
    assert!(short > 200_000, "{short} records of a block");
    let version = |number| hash.get_meta(&key(number), Wall(1000)).expect("a get").expect("it is there").version;
    let versions: Vec<u64> = (0..short).map(version).collect();
    for number in (0..short).step_by(2) {
        hash.delete(&key(number), Expect::Any, Wall(1000)).expect("a delete");
    }
    let free_bytes = hash.report().free_bytes + hash.report().retired_bytes;
    let long = put_until_full(&hash, short, bytes);
    let left = (1..short).step_by(2).map(|number| (number, 10));
    let all: Vec<(u64, usize)> = left.chain((short..short + long).map(|number| (number, bytes))).collect();
    check_all(&hash, &all);
    assert!(
        (1..short).step_by(2).all(|number| version(number) == versions[number as usize]),
        "a moved record is as old"
    );
    let hash = Hash::open(hash.into_pmem(), 2).expect("opened");
    check_all(&hash, &all);
    // And what expires is found where it is now.
    maintain(&hash, 9_000);
    assert_eq!(hash.report().records, 0);
    long * bytes as u64 * 100 / free_bytes
}

/// A store that was mostly free was full for whatever was longer than what lay between its records.
#[test]
fn what_is_free_in_pieces_takes_longer_records() {
    let taken = [500, 3_000, 30_000].map(longer_ones_between_short_ones);
    assert!(taken.iter().all(|percent| *percent > 75), "{taken:?} %");
}

#[test]
fn what_is_free_in_pieces_takes_records_longer_than_a_segment() {
    let taken = longer_ones_between_short_ones(250_000);
    assert!(taken > 75, "{taken} %");
}

/// Segments in use and free ones in turn, with little in those in use, or all that fits: two at
/// once were never cleared, and a store with room for a hundred such records had room for none.
#[test]
fn records_longer_than_a_segment_find_room_between_segments_in_use() {
    for (bytes, stays) in [(10, 1000), (65_000, 1)] {
        let hash = created();
        let all = put_until_full(&hash, 0, bytes);
        // Records lie in the order in which they were put: 1,024 short ones in a segment, or a long
        // one.
        let in_segment = if bytes == 10 { 1024 } else { 1 };
        let goes =
            |number: u64| (number / in_segment).is_multiple_of(2) || !(number % in_segment).is_multiple_of(stays);
        for number in (0..all).filter(|number| goes(*number)) {
            hash.delete(&key(number), Expect::Any, Wall(1000)).expect("a delete");
        }
        let long = put_until_full(&hash, all, 120_000);
        let free = (hash.report().free_bytes + hash.report().unused_bytes) >> 20;
        assert!(long >= if bytes == 10 { 115 } else { 50 }, "{long} of 120,000 bytes between {all}, {free} MiB left");
    }
}

/// What a snapshot keeps is free on the medium, and was taken for the best place to clear: nothing
/// was, again and again, until the snapshot was ended.
#[test]
fn what_a_snapshot_keeps_is_not_cleared() {
    let hash = created();
    let all = put_until_full(&hash, 0, 10);
    for number in (0..all).filter(|number| number % 4 > 0) {
        hash.delete(&key(number), Expect::Any, Wall(1000)).expect("a delete");
    }
    let id = hash.open_snapshot(Mono(1)).expect("a snapshot");
    // Of each segment a run of records, short enough for a quarter of the region.
    for number in (0..all).filter(|number| number % 1024 < 600 && number % 4 == 0) {
        hash.delete(&key(number), Expect::Any, Wall(1000)).expect("a delete");
    }
    for number in all..all + 40 {
        hash.put(&key(number), &value(number, 5_000), (3, Expiry(9_000)), Expect::Any, Wall(1000))
            .expect("there is room");
    }
    let report = hash.report().snapshots;
    assert_eq!((report.open, report.ended_early), (1, 0), "{report:?}");
    hash.close_snapshot(id).expect("it is open");
}

#[test]
fn lists_that_grow_in_batches_with_what_stays_find_room_for_long() {
    let hash = created();
    let mut random = Random::new(1);
    let mut lengths = [0usize; 32];
    let put = |name: &str, bytes: usize| {
        let key = Key::new(CollectionId(0), name.as_bytes()).expect("a key");
        let kind = ChangeKind::Put { value: vec![7; bytes].into(), flags: 0, expiry: Expiry::NEVER };
        Change { key, expect: Expect::Any, kind }
    };
    for edge in 0..100_000 {
        // The lower the number, the longer the list.
        let list = random.below(32).min(random.below(32)) as usize;
        lengths[list] += 8;
        let changes = vec![
            put(&format!("edge {edge}"), 8),
            put(&format!("list {list}"), lengths[list]),
            put(&format!("back {edge}"), 8),
        ];
        let operation = Operation::Write { changes, level: Level::ProcessCrash };
        let reply = hash.execute(operation, Now { mono: Mono(1), wall: Wall(1000) });
        assert!(matches!(reply, Reply::Done { .. }), "edge {edge}: {reply:?} {:?}", hash.report());
    }
    let report = hash.report();
    assert!(used(&report) < (14 << 20), "so much for a region of 16 MiB: {report:?}");
}
