//! What begins empty, and stays without what it had.

use super::*;

/// A cache that was away for too long ([`TierConfig::begins_empty`]): what it had does not come
/// back with the openings after it either, whatever end they follow.
#[test]
fn what_was_dropped_at_an_opening_comes_back_with_none() {
    for first in [Ending::Orderly, Ending::Kill] {
        for second in [Ending::Orderly, Ending::Kill] {
            let mut driver = Driver::new(config());
            (0..3000).for_each(|number| drop(driver.put(number, 3000)));
            driver.config.begins_empty = true;
            assert_eq!(driver.restart(first).start, Start::Emptied);
            assert_eq!(driver.hits(0..3000, 3000), 0, "{first:?}");
            // Fewer than before: much of the old log is not written over.
            (5000..5600).for_each(|number| drop(driver.put(number, 3000)));
            driver.config.begins_empty = false;
            let start = driver.restart(second).start;
            assert_ne!(start, Start::Emptied, "{first:?}, {second:?}");
            assert_eq!(driver.hits(0..3000, 3000), 0, "{first:?}, {second:?}");
            assert!(second == Ending::Kill || driver.hits(5000..5600, 3000) == 600);
            driver.sound();
        }
    }
}

#[test]
fn a_volume_of_another_length_is_empty() {
    let mut driver = Driver::new(config());
    (0..3000).for_each(|number| drop(driver.put(number, 3000)));
    driver.end(Ending::Orderly);
    driver.config.capacity_bytes = Some(CAPACITY_BYTES / 2);
    driver.open(false);
    assert_eq!(driver.shard.as_ref().expect("it is open").recovery().start, Start::Emptied);
    assert_eq!(driver.hits(0..3000, 3000), 0);
    driver.put(1, 10);
    assert_eq!(driver.restart(Ending::Orderly).items, 1);
}

#[test]
fn one_superblock_damaged_empties_and_two_refuse() {
    let mut driver = Driver::new(config());
    (0..3000).for_each(|number| drop(driver.put(number, 3000)));
    driver.end(Ending::Orderly);
    driver.disk.flip_bit(0, 100);
    driver.open(false);
    assert_eq!(driver.shard.as_ref().expect("it is open").recovery().start, Start::Emptied);
    driver.end(Ending::Orderly);
    driver.disk.flip_bit(0, 100);
    driver.disk.flip_bit(1, 100);
    let mut opener = TierOpener::recover(driver.config.clone());
    opener.start(&mut driver.effects);
    for (io, outcome) in driver.carry_out() {
        opener.complete(io, outcome, &mut driver.effects);
    }
    assert!(opener.is_finished());
    assert!(matches!(opener.finish(), Err(Error::Corrupt(_))));
}
