//! Items are written anew where they lie.

use super::*;

impl Driver {
    /// Puts the value of another key.
    fn put_value_of(&mut self, number: usize, other: usize, len: usize, expiry: Expiry) {
        let kind = ChangeKind::Put { value: value(other, len).into(), flags: 0, expiry };
        let changes = vec![Change { key: key(number), expect: Expect::Any, kind }];
        let reply = self.ask(Operation::Write { changes, level: Level::Memory });
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }

    /// How many items were written where others lay since the last question.
    fn overwritten(&mut self, before: &mut u64) -> u64 {
        self.statistic("overwritten_in_place") - std::mem::replace(before, self.statistic("overwritten_in_place"))
    }
}

#[test]
fn overwritten_items_cost_no_room_and_are_the_newest_in_memory_and_on_the_volume() {
    for len in [10, 3000, 20_000, 100_000] {
        let mut driver = Driver::new(config());
        let count = 500_000 / len.max(100);
        (0..count).for_each(|number| drop(driver.put(number, len)));
        let (bytes, mut before) = (driver.statistic("dram_bytes"), 0);
        for round in 1..4 {
            for number in 0..count {
                driver.put_value_of(number, number + round, len, Expiry::NEVER);
                assert_eq!(driver.get(number), Some(value(number + round, len)), "{number} of {len} bytes");
            }
            assert_eq!(driver.overwritten(&mut before), count as u64);
        }
        assert_eq!(driver.statistic("dram_bytes"), bytes);
        driver.sound();
        driver.restart(Ending::Orderly);
        for number in 0..count {
            assert_eq!(driver.get(number), Some(value(number + 3, len)), "{number} of {len} bytes");
        }
        assert_eq!(driver.statistic("corrupt_records"), 0);
    }
}

#[test]
fn a_reply_keeps_its_bytes_when_its_item_is_overwritten() {
    let mut driver = Driver::new(config());
    (0..200).for_each(|number| drop(driver.put(number, 3000)));
    let Reply::Record(Some(record)) = driver.ask(Operation::Get { key: key(3), part: RecordPart::Whole }) else {
        panic!("it is there");
    };
    let mut before = 0;
    driver.put_value_of(3, 4, 3000, Expiry::NEVER);
    assert_eq!(driver.overwritten(&mut before), 0);
    assert_eq!(record.value.to_bytes(), value(3, 3000));
    assert_eq!(driver.get(3), Some(value(4, 3000)));
    drop(record);
    driver.put_value_of(3, 5, 3000, Expiry::NEVER);
    assert_eq!((driver.overwritten(&mut before), driver.get(3)), (1, Some(value(5, 3000))));
    driver.sound();
}

/// Its segment would have expired without it.
#[test]
fn an_overwritten_item_lives_as_long_as_it_was_told() {
    let mut driver = Driver::new(config());
    let (now, mut before) = (driver.now.wall.0, 0);
    (0..1000).for_each(|number| drop(driver.put_until(number, 3000, Expiry(now + 10_000))));
    driver.put_value_of(7, 8, 3000, Expiry(now + 100_000));
    assert_eq!(driver.overwritten(&mut before), 1);
    driver.put_value_of(8, 9, 3000, Expiry::NEVER);
    assert_eq!(driver.overwritten(&mut before), 0, "it belongs to segments that never expire");
    driver.now.wall.0 += 10_000;
    driver.run_until_idle();
    assert_eq!((driver.get(7), driver.get(8), driver.get(9)), (Some(value(8, 3000)), Some(value(9, 3000)), None));
    driver.now.wall.0 += 90_000;
    driver.run_until_idle();
    assert_eq!((driver.get(7), driver.get(8)), (None, Some(value(9, 3000))));
    assert_eq!(driver.statistic("items"), 1);
}

/// A promoted item is sixteen bytes longer, where its copy lies: a value that is sixteen bytes
/// longer has its length.
#[test]
fn an_item_with_a_copy_on_the_volume_is_not_overwritten() {
    let mut driver = Driver::new(config());
    (0..6000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    for _ in 0..4 {
        assert_eq!(driver.hits(100..130, 3000), 30);
    }
    assert!(driver.statistic("promoted") > 0);
    let mut before = 0;
    (100..130).for_each(|number| driver.put_value_of(number, number + 1, 3016, Expiry::NEVER));
    assert_eq!(driver.overwritten(&mut before), 0);
    driver.run_until_idle();
    driver.restart(Ending::Kill);
    for number in 100..130 {
        let found = driver.get(number);
        assert!(found.as_ref().is_none_or(|found| *found == value(number + 1, 3016)), "{number} is older");
    }
}

/// A long item gets its checksums when it leaves memory, in its first block, which a reply may
/// have: that must not change under it.
#[test]
fn items_that_are_being_sent_leave_memory_with_their_checksums() {
    for len in [300_000, 1_000_000, 100_000, 5000] {
        let mut driver = Driver::new(config());
        let count = 1_000_000 / len + 1;
        (0..count).for_each(|number| drop(driver.put(number, len)));
        let get = |number| Operation::Get { key: key(number), part: RecordPart::Whole };
        let sent: Vec<Reply> = (0..count).map(|number| driver.ask(get(number))).collect();
        driver.restart(Ending::Orderly);
        driver.sound();
        for (number, sent) in sent.into_iter().enumerate() {
            let Reply::Record(Some(record)) = sent else { panic!("{sent:?}") };
            assert!(record.value.to_bytes() == value(number, len), "{number} of {len} bytes, as it was sent");
            assert!(driver.get(number) == Some(value(number, len)), "{number} of {len} bytes");
        }
        assert!(driver.statistic("hits_ssd") > 0);
        assert_eq!(driver.statistic("corrupt_records"), 0);
    }
}
