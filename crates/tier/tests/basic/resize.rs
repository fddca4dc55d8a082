//! The cap on memory goes up and down while the shard serves.

use super::*;

impl Driver {
    fn set_memory(&mut self, bytes: u64) {
        self.effects.memory_bytes = Some(bytes);
        self.tick();
    }

    fn held_bytes(&self) -> u64 {
        let apart = self.statistic("index_bytes") + self.statistic("ghost_queue_bytes");
        self.effects.pool().held_bytes() as u64 + apart
    }

    /// Runs ticks until what is held is under the cap; how many.
    fn ticks_until_under(&mut self, cap: u64) -> u32 {
        for ticks in 0..3000 {
            if self.held_bytes() <= cap {
                return ticks;
            }
            self.tick();
        }
        panic!("{} bytes are held, {cap} may be", self.held_bytes());
    }
}

fn large(capacity_bytes: Option<u64>) -> TierConfig {
    TierConfig { memory_bytes: 64 << 20, capacity_bytes, segment_bytes: 1 << 20, ..config() }
}

#[test]
fn a_lower_cap_is_reached_in_a_bounded_number_of_ticks_and_what_is_left_is_the_newest() {
    for capacity_bytes in [None, Some(256 << 20)] {
        let mut driver = Driver::new(large(capacity_bytes));
        (0..30_000).for_each(|number| assert!(matches!(driver.put(number, 3000), Reply::Done { .. })));
        assert!(driver.held_bytes() > 56 << 20, "{}", driver.held_bytes());
        driver.set_memory(8 << 20);
        assert_eq!(driver.statistic("memory_limit_bytes"), 8 << 20);
        let ticks = driver.ticks_until_under(8 << 20);
        assert!((10..600).contains(&ticks), "{ticks} ticks");
        driver.tick();
        assert!(driver.statistic("memory_bytes") <= 8 << 20);
        driver.sound();
        let parts = ["index", "tables", "blocks", "work", "reserve", "unused"];
        let account: u64 = parts.iter().map(|part| driver.statistic(&format!("memory_{part}_bytes"))).sum();
        assert_eq!(account, 8 << 20, "its parts add up to the cap");
        assert!(driver.statistic("memory_blocks_bytes") >= driver.statistic("dram_bytes"));
        let hits = driver.hits(0..30_000, 3000);
        assert!(hits > if capacity_bytes.is_some() { 20_000 } else { 1000 }, "{hits} hits");
        // With more room there are more.
        driver.set_memory(64 << 20);
        (0..30_000).for_each(|number| assert!(matches!(driver.put(number, 3000), Reply::Done { .. })));
        assert!(driver.held_bytes() > 56 << 20, "{}", driver.held_bytes());
        driver.sound();
        driver.hits(0..30_000, 3000);
    }
}

/// A tick makes room for what is put and takes a few segments' step, however far the cap is from
/// what is held.
#[test]
fn no_tick_evicts_more_than_a_few_segments() {
    let mut driver = Driver::new(large(None));
    (0..20_000).for_each(|number| drop(driver.put(number, 3000)));
    driver.set_memory(8 << 20);
    let mut before = driver.statistic("dram_bytes");
    for number in 0..200 {
        assert!(matches!(driver.put(20_000 + number, 3000), Reply::Done { .. }), "none is refused");
        driver.tick();
        let now = driver.statistic("dram_bytes");
        assert!(before.saturating_sub(now) <= 16 << 20, "{before} bytes, then {now}");
        before = now;
    }
    assert!(driver.held_bytes() <= 8 << 20, "{}", driver.held_bytes());
}

/// The index has its share of less memory: the volume's oldest segments go, and its tables are
/// shorter.
#[test]
fn an_index_that_is_too_long_for_the_cap_shrinks_and_nothing_old_comes_back() {
    let mut driver = Driver::new(TierConfig { memory_bytes: 32 << 20, ..config() });
    (0..600_000).for_each(|number| drop(driver.put(number, 30)));
    assert!(driver.statistic("index_bytes") > 2 << 20 && driver.statistic("ssd_segments") > 4);
    driver.set_memory(4 << 20);
    driver.ticks_until_under(4 << 20);
    (0..300).for_each(|_| driver.tick());
    assert!(driver.statistic("index_bytes") <= (4 << 20) / 16 * 7, "{}", driver.statistic("index_bytes"));
    driver.sound();
    // What was dropped is written anew; no older copy may come back after a kill.
    (550_000..600_000).for_each(|number| drop(driver.put(number, 31)));
    assert_eq!(driver.restart(Ending::Kill).start, Start::Recovered);
    driver.hits(550_000..600_000, 31);
    driver.hits(400_000..550_000, 30);
    assert!(driver.statistic("memory_limit_bytes") == 32 << 20, "it is what it was opened with");
}

#[test]
fn tables_whose_entries_are_gone_are_shorter_again() {
    let mut driver = Driver::new(TierConfig { capacity_bytes: None, ..large(None) });
    (0..100_000).for_each(|number| drop(driver.put(number, 30)));
    let full = driver.statistic("index_bytes");
    for number in 0..95_000 {
        let changes = vec![Change { key: key(number), expect: Expect::Any, kind: ChangeKind::Delete }];
        driver.ask(Operation::Write { changes, level: Level::Memory });
    }
    driver.ticks_until_under(64 << 20);
    (0..600).for_each(|_| driver.tick());
    assert!(driver.statistic("index_bytes") < full / 8, "{full} bytes, then {}", driver.statistic("index_bytes"));
    assert_eq!(driver.hits(95_000..100_000, 30), 5000);
}

/// Written under a higher cap, it has no room in all of the memory now: that it was looked for must
/// keep nobody waiting.
#[test]
fn values_that_are_too_long_for_the_cap_are_misses_and_are_refused() {
    let mut driver = Driver::new(large(Some(64 << 20)));
    let long = 9 << 20;
    (0..4).for_each(|number| assert!(matches!(driver.put(number, long), Reply::Done { .. })));
    (4..20_000).for_each(|number| drop(driver.put(number, 3000)));
    assert!(driver.hits(0..4, long) > 0, "some are on the volume");
    driver.set_memory(8 << 20);
    driver.ticks_until_under(8 << 20);
    assert_eq!(driver.hits(0..4, long), 0);
    assert!(driver.hits(4..20_000, 3000) > 1000);
    assert!(matches!(driver.put(1, long), Reply::Failed(Error::ValueTooLarge { .. })));
    assert!(matches!(driver.put(1, 3000), Reply::Done { .. }));
    driver.set_memory(64 << 20);
    assert_eq!(driver.hits(2..4, long), 0, "what was a miss comes back");
    assert!(matches!(driver.put(2, long), Reply::Done { .. }));
    assert_eq!(driver.hits(1..2, 3000) + driver.hits(2..3, long), 2);
    driver.sound();
}

/// What stays lies in as many chunks as before, each of them nearly empty: it moves together, and
/// the chunks are given back.
#[test]
fn memory_goes_back_to_the_system_though_what_stays_is_scattered() {
    let mut driver = Driver::new(large(None));
    let mut random = Random::new(3);
    // Long ones between short ones, and some that are used again and again: segments have their
    // blocks from everywhere.
    for number in 0..60_000 {
        let len = if number % 40 == 0 { random.below(300_000) } else { random.below(1500) } as usize;
        driver.put(number, len);
        if number % 3 == 0 {
            driver.get(random.below(number as u64 + 1) as usize);
        }
        if number % 50 == 0 {
            driver.tick();
        }
    }
    for cap in [40 << 20, 20 << 20, 8 << 20] {
        driver.set_memory(cap);
        let ticks = driver.ticks_until_under(cap);
        assert!(ticks < 300, "{ticks} ticks to {cap}");
        driver.sound();
    }
    assert!(driver.statistic("items") > 1000, "{} items", driver.statistic("items"));
}

/// Slices were cut by the segments of the day; under another cap they were taken for an ordinary
/// value, and got no checksums: 40 of 40 were lost.
#[test]
fn long_values_outlive_a_cap_that_grows_and_one_that_falls() {
    // A sixty-fourth of the memory is a segment; a value of more than a quarter of that lies alone,
    // and has slices if it is longer than two of them.
    let lengths = [3000, 70_000, 140_000, 200_000, 300_000, 700_000];
    for (from, to) in [(16, 64), (8, 32), (16, 24), (64, 16), (32, 24)] {
        for ending in [None, Some(Ending::Orderly), Some(Ending::Kill)] {
            for capacity_bytes in [Some(256 << 20), None] {
                let saves_at_shutdown = capacity_bytes.is_none();
                if saves_at_shutdown && (ending != Some(Ending::Orderly) || to < from) {
                    continue;
                }
                let config = TierConfig { memory_bytes: from << 20, saves_at_shutdown, ..large(capacity_bytes) };
                let mut driver = Driver::new(config);
                let items: Vec<(usize, usize)> = lengths.into_iter().cycle().enumerate().take(36).collect();
                let keep = |(number, len): &(usize, usize)| {
                    (*len as u64) < (to.min(from) << 20) / 13 && (!saves_at_shutdown || *number < 12)
                };
                let items: Vec<(usize, usize)> = items.into_iter().filter(keep).collect();
                for (number, len) in &items {
                    assert!(matches!(driver.put(*number, *len), Reply::Done { .. }), "{len}");
                }
                driver.set_memory(to << 20);
                driver.ticks_until_under(to.max(from) << 20);
                // Of the same length: written where the first one lies, if it may be. What is used
                // stays in memory, where a kill finds it.
                let rewritten = if ending == Some(Ending::Kill) { 0 } else { items.len() };
                for (number, len) in items.iter().take(rewritten).step_by(3) {
                    assert!(matches!(driver.put(*number, *len), Reply::Done { .. }), "{len}");
                }
                if ending.is_none() || ending == Some(Ending::Kill) {
                    // Everything leaves memory.
                    (1000..1000 + (to as usize) * 300).for_each(|number| drop(driver.put(number, 4000)));
                    driver.run_until_idle();
                }
                if let Some(ending) = ending {
                    driver.restart(ending);
                }
                let what = format!("{from} MiB, then {to}, {ending:?}, saves: {saves_at_shutdown}");
                for (number, len) in &items {
                    assert!(driver.get(*number) == Some(value(*number, *len)), "{len} bytes, {what}");
                }
                assert_eq!(driver.statistic("corrupt_records"), 0, "{what}");
                driver.sound();
            }
        }
    }
}
