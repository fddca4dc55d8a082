//! A cache without a second tier whose orderly ends save what it holds.

use super::*;

const LEN: usize = 700;
const ITEMS: usize = 4000;
/// Longer than a segment, each of them; the others are short.
const LONG: [(usize, usize); 3] = [(90_001, 40_000), (90_002, 200_000), (90_003, 1_500_000)];

fn saves_at_shutdown() -> TierConfig {
    TierConfig { capacity_bytes: None, saves_at_shutdown: true, ..config() }
}

/// All of it fits.
fn filled() -> Driver {
    let mut driver = Driver::new(saves_at_shutdown());
    for number in 0..ITEMS {
        driver.put(number, LEN);
    }
    for (number, len) in LONG {
        driver.put(number, len);
    }
    assert_eq!(driver.statistic("evictions"), 0);
    driver
}

fn all_is_there(driver: &mut Driver) {
    assert_eq!(driver.hits(0..ITEMS, LEN), ITEMS);
    for (number, len) in LONG {
        assert_eq!(driver.hits(number..number + 1, len), 1, "the value of {len} bytes");
    }
}

fn flush(driver: &mut Driver) {
    let range = Box::new((Bound::Unbounded, Bound::Unbounded));
    assert!(matches!(driver.ask(Operation::DeleteRange { range, level: Level::Memory }), Reply::Number { .. }));
}

fn delete(driver: &mut Driver, number: usize) -> Reply {
    let changes = vec![Change { key: key(number), expect: Expect::Any, kind: ChangeKind::Delete }];
    driver.ask(Operation::Write { changes, level: Level::Memory })
}

/// Until nothing of it lies on the volume any more.
fn returned(driver: &mut Driver) {
    for _ in 0..10_000 {
        if driver.statistic("saved_bytes") == 0 {
            return driver.sound();
        }
        driver.tick();
    }
    panic!("it does not come back");
}

/// What a start gave back to the file system was carried out after the next end had saved there:
/// half of the cache was zeros.
#[test]
fn an_end_saves_when_all_room_was_given_back() {
    let mut driver = filled();
    driver.restart(Ending::Orderly);
    driver.stays_under_way = |request| matches!(request, DiskRequest::Discard { .. });
    returned(&mut driver);
    assert!(!driver.under_way.is_empty());
    driver.shard.as_mut().expect("it is open").close(&mut driver.effects);
    driver.run_until_idle();
    driver.stays_under_way = |_| false;
    for (io, request) in std::mem::take(&mut driver.under_way) {
        let outcome = driver.request(request);
        let shard = driver.shard.as_mut().expect("it is open");
        shard.complete(io, outcome, &mut driver.effects);
    }
    driver.run_until_idle();
    assert!(driver.shard.as_ref().is_some_and(Shard::is_closed));
    assert_eq!(driver.restart(Ending::Kill).start, Start::Clean);
    returned(&mut driver);
    assert_eq!(driver.statistic("corrupt_records"), 0);
    all_is_there(&mut driver);
}

#[test]
fn what_was_in_memory_is_there_again_and_leaves_the_volume() {
    let mut driver = filled();
    assert_eq!(driver.write_end, 8192, "nothing but superblocks is written while it serves");
    for _ in 0..2 {
        for ending in [Ending::Orderly, Ending::Orderly] {
            let report = driver.restart(ending);
            assert_eq!((report.start, report.items), (Start::Clean, (ITEMS + LONG.len()) as u64));
            assert!(driver.statistic("saved_bytes") > 0);
            // Some are read where they are saved, others are back.
            all_is_there(&mut driver);
            assert!(driver.statistic("hits_ssd") > 0);
            returned(&mut driver);
            assert_eq!(driver.statistic("reinserted"), report.items);
            all_is_there(&mut driver);
            driver.run_until_idle();
            let left: Vec<u64> = driver.disk.pages().into_iter().filter(|page| *page > 1).collect();
            assert_eq!(left, [0; 0], "its room is given back");
        }
        // What is handed to a disk must be flushed before it counts.
        driver.end(Ending::Orderly);
        driver.disk.end(Ending::PowerCut, 7);
        driver.open(false);
        all_is_there(&mut driver);
    }
}

#[test]
fn an_end_while_it_comes_back_saves_all_of_it_again() {
    let mut driver = filled();
    driver.restart(Ending::Orderly);
    driver.tick();
    driver.put(0, 10);
    let report = driver.restart(Ending::Orderly);
    assert_eq!(report.items, (ITEMS + LONG.len()) as u64);
    assert_eq!((driver.hits(0..1, 10), driver.hits(1..ITEMS, LEN)), (1, ITEMS - 1));
}

#[test]
fn memory_and_what_is_saved_are_one_memory() {
    let mut driver = filled();
    let before = driver.effects.pool().held_bytes() as u64;
    let shard = driver.shard.as_mut().expect("it is open");
    shard.close(&mut driver.effects);
    while !driver.shard.as_ref().is_some_and(Shard::is_closed) {
        driver.tick();
        let both = driver.effects.pool().held_bytes() as u64 + driver.write_end;
        assert!(both <= before + (7 << 19), "{both} bytes, {before} before");
    }
    driver.shard = None;
    driver.open(false);
    let saved = driver.disk.pages().len() as u64 * 4096;
    while driver.statistic("saved_bytes") > 0 {
        driver.tick();
        let shard = driver.shard.as_ref().expect("it is open");
        let both = shard.dram_bytes() + driver.disk.pages().len() as u64 * 4096;
        // The longest segment is in both for a moment.
        assert!(both <= saved + (5 << 19), "{both} bytes, {saved} saved");
    }
}

#[test]
fn after_a_kill_nothing_that_was_saved_counts() {
    for ticks in [0, 3, 10_000] {
        let mut driver = filled();
        driver.restart(Ending::Orderly);
        (0..ticks).for_each(|_| driver.tick());
        assert!(matches!(driver.put(1, 20), Reply::Done { .. }));
        delete(&mut driver, 2);
        let ending = if ticks == 3 { Ending::PowerCut } else { Ending::Kill };
        let report = driver.restart(ending);
        assert_eq!((report.start, report.items), (Start::Emptied, 0), "after {ticks} ticks");
        assert_eq!(driver.hits(0..ITEMS, LEN), 0);
        // And it goes on.
        driver.put(1, LEN);
        assert_eq!(driver.restart(Ending::Orderly).items, 1);
        assert_eq!(driver.hits(0..ITEMS, LEN), 1);
    }
}

#[test]
fn what_is_written_before_it_came_back_is_newer() {
    let mut driver = filled();
    driver.restart(Ending::Orderly);
    let saved_bytes = driver.statistic("saved_bytes");
    driver.put(3, 30);
    assert!(matches!(delete(&mut driver, 4), Reply::Done { existed: true, .. }));
    let append = Update::Append(b"more"[..].into());
    assert!(matches!(
        driver.ask(Operation::Update { key: key(5), update: append, level: Level::Memory }),
        Reply::Done { .. }
    ));
    assert!(driver.statistic("saved_bytes") > saved_bytes / 2);
    for _ in 0..2 {
        returned(&mut driver);
        assert_eq!((driver.hits(3..4, 30), driver.get(4)), (1, None));
        assert_eq!(driver.get(5), Some([value(5, LEN), b"more".to_vec()].concat()));
        assert_eq!(driver.hits(6..ITEMS, LEN), ITEMS - 6);
        driver.restart(Ending::Orderly);
    }
}

#[test]
fn what_has_expired_or_was_flushed_does_not_come_back() {
    let mut driver = Driver::new(saves_at_shutdown());
    let soon = Expiry(driver.now.wall.0 + 5000);
    for number in 0..1000 {
        driver.put_until(number, LEN, if number % 2 == 0 { soon } else { Expiry::NEVER });
    }
    driver.end(Ending::Orderly);
    driver.now.wall.0 += 10_000;
    driver.open(false);
    assert_eq!(driver.hits(0..1000, LEN), 500);
    returned(&mut driver);
    assert_eq!((driver.statistic("items"), driver.hits(0..1000, LEN)), (500, 500));

    flush(&mut driver);
    driver.put(1000, LEN);
    driver.restart(Ending::Orderly);
    assert_eq!(driver.hits(0..1001, LEN), 1, "flushed before the end");
    driver.put(1001, LEN);
    driver.restart(Ending::Orderly);
    flush(&mut driver);
    assert_eq!(driver.hits(0..1002, LEN), 0, "flushed before it came back");
    returned(&mut driver);
    assert_eq!(driver.hits(0..1002, LEN), 0);
    driver.restart(Ending::Orderly);
    assert_eq!(driver.hits(0..1002, LEN), 0);
}

#[test]
fn a_full_place_has_a_part_or_nothing_and_the_end_succeeds() {
    let mut driver = Driver::new(saves_at_shutdown());
    driver.disk = Disk::new(2 << 20);
    driver.open(true);
    (0..ITEMS).for_each(|number| drop(driver.put(number, LEN)));
    let report = driver.restart(Ending::Orderly);
    assert!(report.start == Start::Clean && (500..ITEMS as u64 * 2 / 3).contains(&report.items), "{report:?}");
    let hits = driver.hits(0..ITEMS, LEN);
    assert_eq!(hits as u64, report.items);
    returned(&mut driver);

    let mut driver = Driver::new(saves_at_shutdown());
    driver.disk = Disk::new(16 << 10);
    driver.open(true);
    (0..ITEMS).for_each(|number| drop(driver.put(number, LEN)));
    assert_eq!(driver.restart(Ending::Orderly).items, 0, "not even the table fits");
    driver.put(1, LEN);
    assert_eq!(driver.hits(0..2, LEN), 1);
}

#[test]
fn what_cannot_be_made_sure_does_not_count() {
    let mut driver = filled();
    driver.fails = |request| matches!(request, DiskRequest::Flush);
    driver.end(Ending::Orderly);
    driver.fails = |_| false;
    driver.open(false);
    assert_eq!(driver.hits(0..ITEMS, LEN), 0);
    // Nor what was saved before an opening that failed to say that it took it.
    driver.put(1, LEN);
    driver.end(Ending::Orderly);
    let mut opener = TierOpener::recover(driver.config.clone());
    driver.fails = |request| matches!(request, DiskRequest::Write { .. });
    opener.start(&mut driver.effects);
    while !opener.is_finished() {
        for (io, outcome) in driver.carry_out() {
            opener.complete(io, outcome, &mut driver.effects);
        }
    }
    assert!(opener.finish().is_err(), "nothing may be served");
}

#[test]
fn damage_costs_what_it_hit() {
    let mut driver = filled();
    driver.end(Ending::Orderly);
    let (clean, pages) = (driver.disk.clone(), driver.disk.pages());
    // The table lies in front.
    driver.disk.flip_bit(2, 99);
    driver.open(false);
    let report = driver.shard.as_ref().expect("it is open").recovery().clone();
    assert_eq!((report.start, report.items), (Start::Emptied, 0));
    assert_eq!(driver.hits(0..ITEMS, LEN), 0);
    driver.put(1, LEN);
    assert_eq!(driver.restart(Ending::Orderly).items, 1);

    let mut found = Vec::new();
    for page in pages.iter().copied().filter(|page| page % 37 == 0 && *page > 20) {
        driver.end(Ending::Kill);
        driver.disk = clean.clone();
        driver.disk.flip_bit(page, 12_345);
        driver.open(false);
        returned(&mut driver);
        found.push(driver.hits(0..ITEMS, LEN));
    }
    assert!(found.len() > 10 && found.iter().all(|hits| *hits > ITEMS - 400), "{found:?}");
    assert!(found.iter().any(|hits| *hits < ITEMS), "{found:?}");
}

#[test]
fn with_less_memory_what_was_used_comes_back() {
    const LEN: usize = 4000;
    let mut driver = Driver::new(TierConfig { memory_bytes: 32 << 20, ..saves_at_shutdown() });
    for number in 0..6000 {
        driver.put(number, LEN);
    }
    driver.put(6000, 9 << 20);
    for _ in 0..3 {
        driver.hits(1000..1500, LEN);
    }
    assert_eq!(driver.statistic("evictions"), 0);
    // Of a segment an eviction keeps three quarters at most.
    for (memory_bytes, least, used) in [(16 << 20, 2400, 370), (8 << 20, 700, 300)] {
        driver.end(Ending::Orderly);
        driver.config.memory_bytes = memory_bytes;
        driver.open(false);
        returned(&mut driver);
        let bytes = driver.shard.as_ref().expect("it is open").dram_bytes();
        assert!(bytes <= memory_bytes, "{bytes} bytes");
        assert!(driver.statistic("evictions") > 0);
        assert!(driver.hits(1000..1500, LEN) >= used, "of {used} with {memory_bytes}");
        // All of them are used from then on.
        let hits = driver.hits(0..6000, LEN);
        assert!((least..6000).contains(&hits), "{hits} with {memory_bytes}");
        assert_eq!(driver.get(6000), None, "it has no place any more");
        driver.run_until_idle();
        assert!(driver.disk.pages().iter().all(|page| *page < 2), "also what was not read is given back");
    }
    // Far too little for it.
    driver.end(Ending::Orderly);
    driver.config.memory_bytes = 1 << 20;
    driver.open(false);
    returned(&mut driver);
    assert!(driver.hits(0..6000, LEN) > 10);
}

#[test]
fn it_is_read_and_verified_without_being_taken() {
    let mut driver = filled();
    driver.end(Ending::Orderly);
    driver.config.read_only = true;
    driver.open(false);
    all_is_there(&mut driver);
    driver.run_until_idle();
    all_is_there(&mut driver);
    let found = super::verify::verified(&mut driver);
    assert_eq!((found.items, found.damage), ((ITEMS + LONG.len()) as u64, Vec::new()));
    driver.end(Ending::Orderly);
    driver.config.read_only = false;
    driver.open(false);
    all_is_there(&mut driver);
}

#[test]
fn another_store_is_refused_and_a_second_tier_begins_empty() {
    let mut driver = filled();
    driver.end(Ending::Orderly);
    let clean = driver.disk.clone();
    let opened = |driver: &mut Driver, config: TierConfig| {
        let mut opener = TierOpener::recover(config);
        opener.start(&mut driver.effects);
        while !opener.is_finished() {
            for (io, outcome) in driver.carry_out() {
                opener.complete(io, outcome, &mut driver.effects);
            }
        }
        opener.finish()
    };
    let foreign = TierConfig { uuid: [4; 16], ..saves_at_shutdown() };
    assert!(matches!(opened(&mut driver, foreign), Err(Error::WrongVolume(_))));
    let with_ssd = opened(&mut driver, config()).expect("it opens");
    assert_eq!((with_ssd.recovery().start, with_ssd.recovery().items), (Start::Emptied, 0));
    drop(with_ssd);
    driver.open(false);
    assert_eq!(driver.hits(0..ITEMS, LEN), 0, "what was saved has been called used");

    // Who does not save any more still finds what is saved, once.
    driver.end(Ending::Kill);
    driver.disk = clean;
    driver.config.saves_at_shutdown = false;
    driver.open(false);
    all_is_there(&mut driver);
    driver.restart(Ending::Orderly);
    assert_eq!(driver.hits(0..ITEMS, LEN), 0);
}
