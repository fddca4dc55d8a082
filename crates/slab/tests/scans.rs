//! What scans cost: reads counted, and how many of them are in flight at once.

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use std::ops::Bound;

use harness::*;
use stratakv_base::random::Random;
use stratakv_base::{Expiry, Key, Level};
use stratakv_engine::{Item, Operation, PageRequest, Reply};
use stratakv_slab::{Packed, Slab};

const MEMORY: u64 = 8 << 20;

/// Keys in an order that no scan has.
fn shuffled(count: u64) -> Vec<u64> {
    let mut random = Random::new(5);
    let mut keyed: Vec<(u64, u64)> = (0..count).map(|number| (random.next_u64(), number)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, number)| number).collect()
}

fn name(number: u64) -> String {
    format!("k{number:06}")
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    vec![(number * 31) as u8; bytes]
}

/// A shard with records loaded in this order, opened again: nothing is cached.
fn cold<E: Engine>(order: &[u64], bytes: usize) -> Machine<E> {
    let mut machine = Machine::create_as(7, 1 << 30, MEMORY, None);
    for numbers in order.chunks(64) {
        let put = |number: &u64| {
            put_operation(name(*number).as_bytes(), &value(*number, bytes), Expiry::NEVER, Level::PowerLoss)
        };
        let waiting: Vec<u32> = numbers.iter().map(|number| machine.submit(put(number))).collect();
        for number in waiting {
            assert!(matches!(machine.wait(number), Reply::Done { .. }));
        }
    }
    reopen(&mut machine);
    machine
}

fn reopen(machine: &mut Machine<impl Engine>) {
    machine.close();
    machine.recover(MEMORY, None).unwrap();
    machine.run_until_idle();
    (machine.disk.reads, machine.disk.deepest) = (0, 0);
}

fn page(items_max: u32, bytes_max: u32) -> PageRequest {
    let (from, to) = (Bound::Unbounded, Bound::Unbounded);
    PageRequest { from, to, reverse: false, keys_only: false, items_max, bytes_max, at: None }
}

fn scan(machine: &mut Machine<impl Engine>, request: PageRequest) -> (Vec<Item>, Option<Bound<Key>>) {
    match machine.run(Operation::Page(request.into())) {
        Reply::Page { items, next } => (items, next),
        other => panic!("{other:?}"),
    }
}

fn check_items(items: &[Item], numbers: impl Iterator<Item = u64>, bytes: usize) {
    let mut count = 0;
    for (item, number) in items.iter().zip(numbers) {
        assert_eq!(item.key.user(), name(number).as_bytes());
        let record = item.record.as_ref().unwrap();
        assert!(record.value.to_bytes() == value(number, bytes), "k{number}");
        count += 1;
    }
    assert_eq!(count, items.len());
}

/// All reads that a page needs are in flight after its first tick, up to the depth, and stay there.
#[test]
fn a_page_reads_at_depth() {
    each_engine!(E, placement => {
        let mut machine = cold::<E>(&shuffled(4000), 900);
        let number = machine.submit(Operation::Page(page(200, 8 << 20).into()));
        machine.tick(0);
        assert_eq!(machine.disk.in_flight(), DEPTH, "{placement}: in flight after one tick");
        let mut full = 0;
        let reply = loop {
            machine.tick(1);
            full += u64::from(machine.disk.in_flight() == DEPTH);
            if let Some(reply) = machine.replies.remove(&number) {
                break reply;
            }
        };
        let reads = machine.disk.reads;
        assert!(
            reads > 60 && full + 2 * DEPTH as u64 > reads,
            "{placement}: {full} ticks at full depth, {reads} reads"
        );
        let Reply::Page { items, .. } = reply else { panic!("a page") };
        check_items(&items, 0..200, 900);
    });
}

/// The bytes that are read and held are bounded, whatever the items' sizes: a page over large
/// values does not begin all of them.
#[test]
fn a_page_reads_no_more_than_its_window() {
    each_engine!(E, placement => {
        let mut machine = cold::<E>(&shuffled(64), 300_000);
        let before = machine.effects.pool().used_bytes();
        let number = machine.submit(Operation::Page(page(64, 64 << 20).into()));
        let mut most = 0;
        let reply = loop {
            machine.tick(2);
            most = most.max(machine.effects.pool().used_bytes());
            if let Some(reply) = machine.replies.remove(&number) {
                break reply;
            }
        };
        let Reply::Page { items, .. } = reply else { panic!("a page") };
        check_items(&items, 0..64, 300_000);
        assert!(most - before <= (MEMORY + (2 << 20)) as usize, "{placement}: {most} bytes of blocks");
        let kept = (machine.effects.pool().used_bytes() - before) as u64;
        assert_eq!(kept, statistic(&machine, "cache_bytes"), "{placement}: the answer holds blocks");
        // A small answer reads little.
        reopen(&mut machine);
        let (items, next) = scan(&mut machine, page(64, 1));
        assert_eq!((items.len(), next.is_some()), (1, true));
        assert!(machine.disk.reads <= 5, "{placement}: {} reads for one value of five slices", machine.disk.reads);
    });
}

/// Keys and expiry come from the index.
#[test]
fn keys_cost_no_reads() {
    each_engine!(E, placement => {
        let mut machine = cold::<E>(&shuffled(2000), 100);
        for number in 0..300u64 {
            let expiry = if number % 3 == 0 { Expiry(2000) } else { Expiry::NEVER };
            let bytes = if number % 50 == 0 { 100_000 } else { 100 };
            let put = put_operation(name(number).as_bytes(), &value(number, bytes), expiry, Level::PowerLoss);
            machine.run(put);
        }
        for collection in [1, 300] {
            for number in 0..100u64 {
                let key = Key::new(stratakv_base::CollectionId(collection), name(number).as_bytes()).unwrap();
                let expiry = if number % 2 == 0 { Expiry(2000) } else { Expiry::NEVER };
                let kind = stratakv_engine::ChangeKind::Put { value: vec![1; 5000].into(), flags: 1, expiry };
                let changes = vec![stratakv_engine::Change { key, expect: Default::default(), kind }];
                machine.run(Operation::Write { changes, level: Level::PowerLoss });
            }
        }
        for passed in [false, true] {
            reopen(&mut machine);
            if passed {
                machine.now.wall.0 = 3000;
            }
            for reverse in [false, true] {
                let request = PageRequest { keys_only: true, reverse, ..page(10_000, 8 << 20) };
                let number = machine.submit(Operation::Page(request.into()));
                // Before the tick's end, which may begin to sweep what has expired.
                let (_, reply) = machine.effects.replies.pop().expect("answered at once");
                assert!(machine.effects.requests.is_empty(), "{placement}: keys are read from the volume");
                let Reply::Page { items, next: None } = reply else { panic!("{number}: {reply:?}") };
                assert_eq!(items.len(), if passed { 2200 - 100 - 100 } else { 2200 }, "{placement}");
            }
            assert_eq!(machine.disk.reads, 0);
        }
    });
}

/// Records that lie next to each other come with one read.
#[test]
fn neighbours_are_read_once() {
    let (count, bytes) = (4000, 900);
    let order: Vec<u64> = (0..count).collect();
    let mut machine = cold::<Packed>(&order, bytes);
    for reverse in [false, true] {
        reopen(&mut machine);
        let (items, _) = scan(&mut machine, PageRequest { reverse, ..page(1000, 8 << 20) });
        if reverse {
            check_items(&items, (count - 1000..count).rev(), bytes);
        } else {
            check_items(&items, 0..1000, bytes);
        }
        // 1000 records of 944 bytes are 231 pages, 16 to a read at best; batches of 64 records
        // leave some room.
        let reads = machine.disk.reads;
        assert!(reads <= 25, "{reads} reads for 1000 records in a row, reverse {reverse}");
    }
    reopen(&mut machine);
    // A page is read once even if the depth is one: four records in each.
    let mut machine = cold::<Slab>(&order, bytes);
    let (items, _) = scan(&mut machine, page(1000, 8 << 20));
    check_items(&items, 0..1000, bytes);
    assert!(machine.disk.reads <= 260, "{} reads", machine.disk.reads);
}

/// A fault in one page does not spoil what was read along with it.
#[test]
fn a_fault_is_its_own_records() {
    let order: Vec<u64> = (0..200).collect();
    let mut machine = cold::<Packed>(&order, 900);
    let found = machine.disk.current.windows(7).position(|bytes| bytes == b"k000100").unwrap();
    machine.disk.bad_place = Some(found as u64);
    let keys = 0..200u64;
    let get = |number| Operation::Get { key: key(name(number).as_bytes()), part: stratakv_engine::RecordPart::Whole };
    let waiting: Vec<u32> = keys.clone().map(|number| machine.submit(get(number))).collect();
    let mut failed = 0;
    for (number, waiting) in keys.zip(waiting) {
        match machine.wait(waiting) {
            Reply::Record(Some(record)) => assert!(record.value.to_bytes() == value(number, 900)),
            Reply::Failed(_) => failed += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!((1..=6).contains(&failed), "{failed} records failed for one page");
}

/// A page that took many reads brings its records together: the next scan there reads little, also
/// after a crash, and nothing else changes.
#[test]
fn a_scan_brings_neighbours_together() {
    let (count, bytes) = (12_000, 900);
    let mut machine = cold::<Packed>(&shuffled(count), bytes);
    let pages = |machine: &mut Machine<Packed>| {
        for number in 0..4 {
            let from = Bound::Included(key(name(number * 150).as_bytes()));
            let (items, _) = scan(machine, PageRequest { from, ..page(150, 8 << 20) });
            check_items(&items, number * 150..(number + 1) * 150, bytes);
            machine.run_until_idle();
        }
    };
    pages(&mut machine);
    let before = machine.disk.reads;
    assert!(before > 400, "{before} reads for 600 records anywhere");
    assert!(statistic(&machine, "reclustered_bytes") > 500_000);
    for crash in [false, true] {
        if crash {
            machine.disk.lose_all_unflushed();
            machine.recover(MEMORY, None).unwrap();
            machine.run_until_idle();
            machine.disk.reads = 0;
        } else {
            reopen(&mut machine);
        }
        sound(&machine);
        pages(&mut machine);
        let reads = machine.disk.reads;
        assert!(reads <= 30, "{reads} reads for 600 records that were brought together");
        assert_eq!(statistic(&machine, "reclustered_bytes"), 0, "they are moved again");
    }
    // What is written while copies are laid is not lost to them.
    reopen(&mut machine);
    let number = machine.submit(Operation::Page(
        PageRequest { from: Bound::Included(key(name(6000).as_bytes())), ..page(150, 8 << 20) }.into(),
    ));
    for changed in 6000..6150 {
        machine.tick(3);
        let name = name(changed);
        let operation = match changed % 3 {
            0 => put_operation(name.as_bytes(), b"new", Expiry::NEVER, Level::PowerLoss),
            1 => delete_operation(name.as_bytes(), Level::PowerLoss),
            _ => continue,
        };
        machine.submit(operation);
    }
    machine.wait(number);
    machine.run_until_idle();
    sound(&machine);
    machine.disk.lose_all_unflushed();
    machine.recover(MEMORY, None).unwrap();
    sound(&machine);
    for changed in 6000..6150 {
        let found = machine.get(name(changed).as_bytes()).unwrap();
        match changed % 3 {
            0 => assert_eq!(found.as_deref(), Some(&b"new"[..])),
            1 => assert_eq!(found, None),
            _ => assert!(found.unwrap() == value(changed, bytes)),
        }
    }
}

/// Where space is short gathering stops in time: it is no reason to refuse a write, and what was
/// gathered stays so.
#[test]
fn gathering_leaves_room() {
    let (count, bytes, capacity) = (22_000, 900, Some(32 << 20));
    let mut machine = Machine::<Packed>::create_as(3, 1 << 30, MEMORY, capacity);
    for numbers in shuffled(count).chunks(64) {
        let put = |number: &u64| {
            put_operation(name(*number).as_bytes(), &value(*number, bytes), Expiry::NEVER, Level::PowerLoss)
        };
        let waiting: Vec<u32> = numbers.iter().map(|number| machine.submit(put(number))).collect();
        for number in waiting {
            assert!(matches!(machine.wait(number), Reply::Done { .. }));
        }
    }
    let mut reads = Vec::new();
    for _ in 0..3 {
        machine.disk.reads = 0;
        for number in 0..count / 100 {
            let from = Bound::Included(key(name(number * 100).as_bytes()));
            let (items, _) = scan(&mut machine, PageRequest { from, ..page(100, 8 << 20) });
            check_items(&items, number * 100..(number + 1) * 100, bytes);
        }
        reads.push(machine.disk.reads);
    }
    machine.run_until_idle();
    sound(&machine);
    assert!(statistic(&machine, "reclustered_bytes") > 4 << 20);
    assert!(reads[2] * 3 < reads[0] * 2, "reads of each pass: {reads:?}");
    for number in 0..2000 {
        let reply = machine.put(name(number * 11).as_bytes(), &value(number * 11, bytes));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    machine.run_until_idle();
    sound(&machine);
    assert_eq!(statistic(&machine, "full_refusals"), 0);
}

fn statistic(machine: &Machine<impl Engine>, name: &str) -> u64 {
    let mut all = Vec::new();
    machine.slab.statistics(&mut all);
    all.iter().filter(|statistic| statistic.name == name).map(|statistic| statistic.value).sum()
}

#[track_caller]
fn sound(machine: &Machine<impl Engine>) {
    let report = machine.slab.check();
    assert!(report.is_sound(), "{report:#?}");
}

/// Two thirds writes, a third of the records read by scans: what a scan laid together would be
/// written elsewhere before the next one comes.
#[test]
fn scans_beside_many_writes_lay_nothing_together() {
    let (count, bytes) = (12_000, 900);
    let mut machine = cold::<Packed>(&shuffled(count), bytes);
    let scan_at = |machine: &mut Machine<Packed>, number: u64| {
        let from = Bound::Included(key(name(number * 100 % count).as_bytes()));
        scan(machine, PageRequest { from, ..page(100, 8 << 20) });
        machine.run_until_idle();
    };
    for round in 0..40 {
        for number in 0..200 {
            let name = name((round * 200 + number) * 7 % count);
            machine.put(name.as_bytes(), &value(number, bytes));
        }
        scan_at(&mut machine, round * 17);
    }
    assert_eq!(statistic(&machine, "reclustered_bytes"), 0);
    for round in 0..400 {
        scan_at(&mut machine, round);
    }
    assert!(statistic(&machine, "reclustered_bytes") > 1 << 20, "nor where the writes have ended");
}

fn cut(machine: &mut Machine<impl Engine>) -> u64 {
    match machine.run(Operation::Backup { cursor: 0, shard: 0 }) {
        Reply::Number { number, .. } => number,
        other => panic!("{other:?}"),
    }
}

fn rest_of_backup(machine: &mut Machine<impl Engine>, cursor: u64) -> Vec<Item> {
    let mut all = Vec::new();
    loop {
        let Reply::Page { items, next } = machine.run(Operation::Backup { cursor, shard: 0 }) else {
            panic!("the backup failed")
        };
        all.extend(items);
        if next.is_none() {
            return all;
        }
    }
}

/// It had 256 of them: clients of a loaded server got a tenth of their reads while it ran.
#[test]
fn a_backup_keeps_few_reads_in_flight() {
    each_engine!(E, placement => {
        let mut machine = cold::<E>(&shuffled(2000), 900);
        let cursor = cut(&mut machine);
        assert_eq!(rest_of_backup(&mut machine, cursor).len(), 2000);
        assert!((2..=4).contains(&machine.disk.deepest), "{placement}: {}", machine.disk.deepest);
    });
}

/// It counted each key that was written before its turn against the memory for copies, and failed.
#[test]
fn a_backup_goes_on_however_many_keys_are_written_before_their_turn() {
    let count = 40_000;
    let mut machine = cold::<Packed>(&shuffled(count), 3);
    let cursor = cut(&mut machine);
    for round in 1..3 {
        for number in (0..count).rev() {
            machine.put(name(number).as_bytes(), &value(number + round, 4));
        }
    }
    let items = rest_of_backup(&mut machine, cursor);
    assert_eq!(items.len(), count as usize);
    for item in items {
        let number: u64 = std::str::from_utf8(&item.key.user()[1..]).unwrap().parse().unwrap();
        assert!(item.record.unwrap().value.to_bytes() == value(number, 3), "k{number}");
    }
    sound(&machine);
}

/// Pages of large values that are all in memory complete without a request to the device, so
/// nothing but the shard itself brings their next tick.
#[test]
fn a_page_of_cached_large_values_is_answered_unasked() {
    let mut machine = Machine::<Packed>::create_as(7, 1 << 30, 64 << 20, None);
    for number in 0..200u64 {
        machine.put(name(number).as_bytes(), &value(number, 30_000));
    }
    for _ in 0..2 {
        for bytes_max in [1 << 20, 4 << 20, 64 << 20] {
            let (items, _) = scan(&mut machine, page(200, bytes_max));
            check_items(&items, 0..items.len() as u64, 30_000);
            assert!(items.len() >= 30, "{} items", items.len());
        }
    }
    machine.close();
}
