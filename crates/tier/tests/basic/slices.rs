//! Long values, taken slice by slice from the volume.

use stratakv_device::Class;
use stratakv_engine::{Hold, Record};

use super::*;

const LEN: usize = 1_000_000;
/// Segments of 128 KiB: an item of over 64 KiB has slices of 32.
const SLICE: u64 = 32 << 10;

/// A shard with long values on its volume, the first of them the oldest.
fn with_long_values() -> Driver {
    let mut driver = Driver::new(config());
    for number in 0..20 {
        assert!(matches!(driver.put(number, LEN), Reply::Done { .. }));
    }
    driver.run_until_idle();
    driver.reads.clear();
    driver
}

fn sliced(number: usize, hold: u64, start: u64, len: u32) -> Operation {
    Operation::Get { key: key(number), part: RecordPart::Sliced { hold, start, len } }
}

fn front(driver: &mut Driver, number: usize) -> (Record, Hold) {
    match driver.ask(sliced(number, 0, 0, 16 << 20)) {
        Reply::Part(record, hold) => (record, hold),
        other => panic!("{other:?}"),
    }
}

/// The rest, so many bytes at a time; `None`: it was not to be had to its end.
fn rest(driver: &mut Driver, number: usize, front: &Record, hold: &Hold, step: u32) -> Option<Vec<u8>> {
    let mut bytes = front.value.to_bytes().to_vec();
    while (bytes.len() as u64) < front.value_bytes {
        match driver.ask(sliced(number, hold.id(), bytes.len() as u64, step)) {
            Reply::Record(record) => bytes.extend_from_slice(&record?.value.to_bytes()),
            other => panic!("{other:?}"),
        }
    }
    Some(bytes)
}

#[test]
fn a_long_value_comes_slice_by_slice_and_its_first_bytes_cost_one_read() {
    let mut driver = with_long_values();
    let (record, hold) = front(&mut driver, 0);
    assert_eq!(driver.reads, [SLICE as u32], "its front alone is read");
    assert_eq!(record.value_bytes, LEN as u64);
    assert!(record.value.len() < SLICE && record.value.len() > SLICE - 300, "{}", record.value.len());
    for step in [1000, 64 << 10, 256 << 10, 16 << 20] {
        assert!(rest(&mut driver, 0, &record, &hold, step) == Some(value(0, LEN)), "{step} at a time");
    }
    assert!(driver.get(0) == Some(value(0, LEN)), "as a whole");
    driver.sound();
}

#[test]
fn slices_are_of_the_record_that_was_begun_whatever_is_written_since() {
    let mut driver = with_long_values();
    let (record, hold) = front(&mut driver, 0);
    assert!(matches!(driver.put(0, 5), Reply::Done { .. }));
    assert!(matches!(driver.ask(put_of(1, LEN, Expiry::NEVER)), Reply::Done { .. }));
    assert!(rest(&mut driver, 0, &record, &hold, 256 << 10) == Some(value(0, LEN)));
    assert!(driver.get(0) == Some(value(0, 5)));
}

#[test]
fn values_in_memory_and_short_ones_come_as_ever() {
    let mut driver = with_long_values();
    driver.put(30, 10);
    for (number, len) in [(19, LEN), (30, 10)] {
        let Reply::Record(Some(record)) = driver.ask(sliced(number, 0, 0, 16 << 20)) else { panic!("{number}") };
        assert!(record.value.to_bytes() == value(number, len));
    }
}

/// Turns a bit of the volume where the value of `number` has these bytes.
fn damage(driver: &mut Driver, number: usize, at: usize) {
    let value = value(number, LEN);
    let mut turned = 0;
    for page in driver.disk.pages() {
        let block = driver.effects.block(Class::Page).expect("a block");
        let read = driver.disk.execute(DiskRequest::Read { offset: page * 4096, block, len: 4096 });
        let DiskOutcome::Read(block, Ok(())) = read else { continue };
        // One of the two does not lie across two pages.
        for at in [at, at + 32] {
            if let Some(found) = block.windows(16).position(|bytes| bytes == &value[at..at + 16]) {
                driver.disk.flip_bit(page, found * 8);
                turned += 1;
            }
        }
    }
    assert!(turned > 0, "it lies there");
}

#[test]
fn damage_in_a_later_slice_is_met_there_and_never_handed_out() {
    let mut driver = with_long_values();
    damage(&mut driver, 0, 700_000);
    let (record, hold) = front(&mut driver, 0);
    assert_eq!(rest(&mut driver, 0, &record, &hold, 64 << 10), None);
    assert_eq!(driver.statistic("corrupt_records"), 1);
    // From now on it is a miss.
    assert_eq!(driver.get(0), None);
    damage(&mut driver, 1, 700_000);
    assert_eq!(driver.get(1), None, "read as a whole");
    damage(&mut driver, 2, 100);
    assert!(matches!(driver.ask(sliced(2, 0, 0, 16 << 20)), Reply::Record(None)), "in the front");
}

#[test]
fn a_read_of_a_slice_that_fails_is_no_data() {
    let mut driver = with_long_values();
    let (record, hold) = front(&mut driver, 0);
    driver.fails = |request| matches!(request, DiskRequest::Read { .. });
    assert_eq!(rest(&mut driver, 0, &record, &hold, 64 << 10), None);
    assert_eq!(driver.statistic("ssd_read_errors"), 1);
}

/// Writes until the log has gone round.
fn displace(driver: &mut Driver) {
    for number in 100..160 {
        assert!(matches!(driver.put(number, LEN), Reply::Done { .. }));
    }
}

#[test]
fn who_does_not_take_a_value_does_not_keep_its_segment_for_ever() {
    let mut driver = with_long_values();
    let (record, hold) = front(&mut driver, 0);
    displace(&mut driver);
    assert!(driver.statistic("evictions") > 10, "the log goes on");
    assert_eq!(rest(&mut driver, 0, &record, &hold, 64 << 10), None, "its place was given away");
    driver.sound();
}

#[test]
fn what_is_held_stays_for_a_while_when_its_segment_is_to_make_room() {
    let mut driver = with_long_values();
    let (record, hold) = front(&mut driver, 0);
    let mut number = 100;
    // Until its entry is gone: the segment then waits for the hold.
    while driver.get(0).is_some() {
        driver.submit(put_of(number, LEN, Expiry::NEVER));
        (0..50).for_each(|_| driver.tick());
        driver.effects.replies.clear();
        number += 1;
        assert!(number < 200);
    }
    assert!(rest(&mut driver, 0, &record, &hold, 64 << 10) == Some(value(0, LEN)));
}

#[test]
fn long_values_are_warm_after_ends_of_either_kind() {
    for ending in [Ending::Orderly, Ending::Kill] {
        let mut driver = with_long_values();
        let (_, hold) = front(&mut driver, 0);
        driver.restart(ending);
        let (record, new) = front(&mut driver, 0);
        assert!(rest(&mut driver, 0, &record, &new, 256 << 10) == Some(value(0, LEN)), "{ending:?}");
        drop(hold);
    }
}

/// Cut under a higher cap its first slice is longer than what is read of a front now: it was read
/// whole, or not at all.
#[test]
fn slices_of_another_cap_are_read_as_they_were_cut() {
    let long = 5_000_000;
    let mut driver = Driver::new(TierConfig {
        memory_bytes: 64 << 20,
        segment_bytes: 1 << 20,
        capacity_bytes: Some(128 << 20),
        ..config()
    });
    (0..4).for_each(|number| assert!(matches!(driver.put(number, long), Reply::Done { .. })));
    (4..20_000).for_each(|number| drop(driver.put(number, 4000)));
    driver.run_until_idle();
    driver.effects.memory_bytes = Some(8 << 20);
    driver.run_until_idle();
    driver.reads.clear();
    let (record, hold) = front(&mut driver, 0);
    assert_eq!(driver.reads, [32 << 10, 64 << 10], "its front, as it is cut now and as it was then");
    assert!(rest(&mut driver, 0, &record, &hold, 256 << 10) == Some(value(0, long)));
    assert_eq!((driver.statistic("corrupt_records"), driver.statistic("evictions_too_long")), (0, 0));
    // All at once it has no place.
    assert!(driver.get(1).is_none());
    assert_eq!((driver.statistic("corrupt_records"), driver.statistic("evictions_too_long")), (0, 1));
    driver.sound();
}

/// Its first bytes were asked for, all of it was read, and then it was read again for the rest: 800
/// reads for 200 gets, and a promotion after one use.
#[test]
fn what_is_too_short_for_slices_is_read_once() {
    let len = 50_000;
    let mut driver = Driver::new(config());
    (0..400).for_each(|number| drop(driver.put(number, len)));
    driver.run_until_idle();
    driver.reads.clear();
    for number in 0..50 {
        let Reply::Record(Some(record)) = driver.ask(sliced(number, 0, 0, 16 << 10)) else { panic!("{number}") };
        assert!(record.value.to_bytes() == value(number, len), "all of it came");
    }
    assert_eq!((driver.reads.len(), driver.statistic("hits_ssd")), (50, 50));
    // Of what lies in memory no more comes than was asked for: it costs nothing to ask again.
    let Reply::Record(Some(record)) = driver.ask(sliced(399, 0, 0, 16 << 10)) else { panic!("it was put last") };
    assert_eq!((record.value.len(), record.value_bytes), (16 << 10, len as u64));
}
