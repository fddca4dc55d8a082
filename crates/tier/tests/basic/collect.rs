//! Superseded items are collected before anything leaves DRAM.

use super::*;

impl Driver {
    /// Writes a key anew, elsewhere: one of the same length would lie where the old one did.
    fn rewrite(&mut self, number: usize, len: usize) {
        for len in [len + 8, len] {
            let reply = self.put(number, len);
            assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
        }
    }
}

/// Writes of random keys again and again, of which all have room in half of the memory. How many
/// are not there any more, and what was left of DRAM by others' ways.
fn rewritten(config: TierConfig, keys: usize, len: usize, writes: usize) -> (usize, u64) {
    let mut driver = Driver::new(TierConfig { capacity_bytes: None, ..config });
    let mut random = Random::new(7);
    for number in 0..keys {
        assert!(matches!(driver.put(number, len), Reply::Done { .. }));
    }
    for write in 0..writes {
        driver.rewrite(random.below(keys as u64) as usize, len);
        if write % 100 == 0 {
            let bytes = driver.shard.as_ref().expect("it is open").dram_bytes();
            assert!(bytes <= driver.config.memory_bytes, "{bytes} bytes at {write}");
        }
    }
    driver.sound();
    (keys - driver.hits(0..keys, len), driver.statistic("evictions"))
}

#[test]
fn what_is_written_again_and_again_left_memory_though_all_of_it_had_room() {
    // Small items, some to a segment, and one to a segment of its own.
    for (keys, len) in [(8000, 400), (100, 30_000), (20, 150_000)] {
        assert_eq!(rewritten(config(), keys, len, 3 * keys), (0, 0), "{keys} values of {len} bytes");
    }
    let (missing, evictions) = rewritten(TierConfig { collected_percent: 0, ..config() }, 8000, 400, 24_000);
    assert!(missing > 100 && evictions > 100, "without collecting {missing} were missing");
}

/// Their segments wait in their queue for nothing, and are forgotten before they are many.
#[test]
fn a_long_value_written_again_and_again_takes_no_more_than_its_room() {
    let mut driver = Driver::new(TierConfig { capacity_bytes: None, ..config() });
    for _ in 0..2500 {
        driver.rewrite(1, 100_000);
    }
    let bytes = driver.statistic("dram_bytes");
    assert!(bytes < 1 << 20, "{bytes} bytes");
    driver.sound();
    assert_eq!(driver.hits(1..2, 100_000), 1);
}

/// Its checksum was moved along with it: it is the right one where it is read from the volume.
#[test]
fn items_that_were_moved_check_on_the_volume() {
    let mut driver = Driver::new(config());
    let mut random = Random::new(9);
    for _ in 0..1500 {
        let number = random.below(600) as usize;
        driver.rewrite(number, 9000);
    }
    driver.run_until_idle();
    assert!(driver.statistic("spilled_items") > 100, "{}", driver.statistic("spilled_items"));
    assert!(driver.hits(0..600, 9000) > 300);
    assert_eq!(driver.statistic("corrupt_records"), 0);
    driver.sound();
}
