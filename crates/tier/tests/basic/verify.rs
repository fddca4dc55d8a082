//! `verify`: sound after every end, and nothing is lost of which it says no word.

use stratakv_device::Class;
use stratakv_tier::Verified;

use super::*;

/// Of the shard as it is found, opened for reading only.
pub(super) fn verified(driver: &mut Driver) -> Verified {
    driver.open(false);
    let (disk, pool) = (&mut driver.disk, driver.effects.pool());
    let mut read = |offset: u64, len: usize| {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let piece = (len - bytes.len()).min(64 << 10);
            let block = pool.take(Class::Slice).expect("a block");
            match disk.execute(DiskRequest::Read { offset: offset + bytes.len() as u64, block, len: piece as u32 }) {
                DiskOutcome::Read(block, Ok(())) => bytes.extend_from_slice(&block[..piece]),
                _ => return Err("it cannot be read".to_owned()),
            }
        }
        Ok(bytes)
    };
    driver.shard.as_ref().expect("it is open").verify(&mut read)
}

/// Spilled, overwritten, deleted, expired, too long for a segment; and a part of it twice over the
/// volume.
fn filled(items: usize) -> Driver {
    let mut driver = Driver::new(config());
    for number in 0..items {
        driver.put(number, if number % 40 == 7 { 50_000 } else { 700 });
        driver.put(number / 2, 600);
    }
    driver
}

/// How many keys are found.
fn present(driver: &mut Driver) -> usize {
    (0..200).filter(|number| driver.get(*number).is_some()).count()
}

#[test]
fn a_volume_is_sound_however_the_process_ended() {
    for items in [0, 300, 25_000] {
        for ending in [Ending::Orderly, Ending::Kill, Ending::PowerCut] {
            let mut driver = filled(items);
            driver.end(ending);
            driver.config.read_only = true;
            let found = verified(&mut driver);
            assert_eq!(found.damage, [], "{items} items, {ending:?}");
            let known = driver.shard.as_ref().expect("it is open").recovery().items;
            assert!(found.items == known || found.torn > 0, "{found:?}, {known} known, {ending:?}");
            assert!(known > 0 || items == 0 || ending != Ending::Orderly);
        }
    }
}

/// A process that was killed leaves its last writes by halves, or not at all.
#[test]
fn writes_that_never_came_are_not_damage() {
    let mut driver = filled(3_000);
    driver.stays_under_way = |request| matches!(request, DiskRequest::Write { offset, .. } if *offset > 1 << 20);
    for number in 0..400 {
        driver.put(number, 900);
    }
    driver.end(Ending::Kill);
    driver.stays_under_way = |_| false;
    driver.config.read_only = true;
    assert_eq!(verified(&mut driver).damage, []);
}

/// `check` said `sound` of a volume with a turned byte, and two keys were gone.
#[test]
fn a_turned_bit_took_keys_and_nobody_was_told() {
    let mut driver = filled(200);
    driver.end(Ending::Orderly);
    driver.config.read_only = true;
    assert_eq!(verified(&mut driver).damage, []);
    let before = present(&mut driver);
    let (mut random, mut lost) = (Random::new(5), 0);
    for page in driver.disk.pages() {
        let bit = random.below(4096 * 8) as usize;
        driver.disk.flip_bit(page, bit);
        let found = verified(&mut driver);
        let left = present(&mut driver);
        lost += usize::from(left < before);
        let gone = found.lost_items + found.lost_unknown;
        assert!(
            left == before || !found.damage.is_empty(),
            "bit {bit} of page {page}: {left} of {before} keys are left, and {found:?}"
        );
        assert!(left == 0 || before - left == gone as usize, "{left} of {before} are left, and {found:?}");
        driver.disk.flip_bit(page, bit);
    }
    assert!(lost > 10, "{lost} flips took something");
}
