//! Lists of all records: from memory, from the volume, and while items go from one to the other.

use std::collections::BTreeMap;

use stratakv_engine::ListRequest;

use super::*;

fn page_of(cursor: u64) -> Operation {
    Operation::List(ListRequest { collection: CollectionId(0), cursor, shard: 0, items_max: 64 })
}

fn page(driver: &mut Driver, cursor: u64) -> (Vec<(Key, u64)>, Option<u64>) {
    match driver.ask(page_of(cursor)) {
        Reply::Listed { items, next } => {
            let told = |item: stratakv_engine::Item| (item.key, item.record.expect("what is known").value_bytes);
            (items.into_iter().map(told).collect(), next)
        }
        other => panic!("{other:?}"),
    }
}

/// How often each key is listed; `between` is called after each page.
fn list(driver: &mut Driver, mut between: impl FnMut(&mut Driver, usize)) -> BTreeMap<Key, u32> {
    let (mut times, mut cursor) = (BTreeMap::new(), 0);
    for number in 0..10_000 {
        let (items, next) = page(driver, cursor);
        assert!(items.len() <= 64, "{} items", items.len());
        items.into_iter().for_each(|(key, _)| *times.entry(key).or_default() += 1);
        between(driver, number);
        let Some(next) = next else { return times };
        cursor = next;
    }
    panic!("the list does not end");
}

fn filled(keys: usize, len: usize) -> Driver {
    let mut driver = Driver::new(config());
    for number in 0..keys {
        assert!(matches!(driver.put(number, len), Reply::Done { .. }));
    }
    driver.run_until_idle();
    assert_eq!(driver.statistic("evictions"), 0, "all of it has room");
    driver.reads.clear();
    driver
}

#[test]
fn what_lies_on_the_volume_is_listed_and_neither_counts_as_used_nor_comes_back() {
    let mut driver = filled(6000, 3000);
    let before = ["hits_dram", "hits_ssd", "misses", "promoted"].map(|name| driver.statistic(name));
    assert!(driver.statistic("ssd_bytes") > 8 << 20, "most of it left memory");
    let times = list(&mut driver, |_, _| {});
    assert_eq!(times.len(), 6000);
    assert!(times.values().all(|times| *times == 1));
    assert!(driver.reads.len() > 2000 && driver.reads.len() < 6500, "{} reads", driver.reads.len());
    let after = ["hits_dram", "hits_ssd", "misses", "promoted"].map(|name| driver.statistic(name));
    assert_eq!(after, before);
    driver.sound();
}

#[test]
fn long_values_are_listed_by_their_fronts() {
    let mut driver = filled(20, 1_000_000);
    let (items, next) = page(&mut driver, 0);
    let mut all = items;
    let mut cursor = next;
    while let Some(from) = cursor {
        let (items, next) = page(&mut driver, from);
        all.extend(items);
        cursor = next;
    }
    assert!(all.len() == 20 && all.iter().all(|(_, bytes)| *bytes == 1_000_000), "{all:?}");
    let read: u64 = driver.reads.iter().map(|len| u64::from(*len)).sum();
    assert!(read < 20 * (64 << 10), "{read} bytes were read");
}

/// Segments are taken apart, written out, recycled and overwritten between the pages.
#[test]
fn what_stays_is_listed_once_while_items_move() {
    let mut driver = filled(4000, 3000);
    let mut number = 4000;
    let times = list(&mut driver, |driver, page| {
        for _ in 0..20 {
            // New ones, and old ones anew.
            let written = if number % 2 == 0 { number } else { (number * 7 + page) % 4000 };
            assert!(matches!(driver.put(written, 2000), Reply::Done { .. }));
            number += 1;
        }
    });
    assert_eq!(driver.statistic("evictions"), 0, "nothing had to go");
    let missing: Vec<usize> = (0..4000).filter(|number| times.get(&key(*number)) != Some(&1)).collect();
    assert_eq!(missing, [] as [usize; 0]);
    assert!(times.values().all(|times| *times == 1));
    driver.sound();
}

#[test]
fn what_was_deleted_flushed_or_has_expired_is_not_listed() {
    let mut driver = filled(3000, 3000);
    for number in (0..3000).step_by(3) {
        let change = Change { key: key(number), expect: Expect::Any, kind: ChangeKind::Delete };
        driver.ask(Operation::Write { changes: vec![change], level: Level::Memory });
    }
    for number in 5000..5100 {
        driver.put_until(number, 10, Expiry::after(driver.now.wall, 1000));
    }
    driver.now.wall.0 += 2000;
    let times = list(&mut driver, |_, _| {});
    assert_eq!(times.len(), 2000);
    assert!((0..3000).all(|number| times.contains_key(&key(number)) == (number % 3 != 0)));
    let range = (Bound::Included(Key::bound(CollectionId(0), b"")), Bound::Excluded(Key::bound(CollectionId(1), b"")));
    driver.ask(Operation::DeleteRange { range: Box::new(range), level: Level::Memory });
    driver.put(7, 10);
    assert_eq!(list(&mut driver, |_, _| {}).into_keys().collect::<Vec<_>>(), [key(7)]);
}

/// Reads that fail are misses, as for gets; a list goes on.
#[test]
fn what_cannot_be_read_is_left_out() {
    let mut driver = filled(4000, 3000);
    driver.fails = |request| matches!(request, DiskRequest::Read { .. });
    let times = list(&mut driver, |_, _| {});
    assert!(times.len() < 3000 && !times.is_empty(), "{} keys", times.len());
    driver.fails = |_| false;
    assert_eq!(list(&mut driver, |_, _| {}), times, "what is left is what was listed");
    driver.sound();
}

/// Several at once have their turns; those whose clients left are answered so, and an end waits for
/// the others.
#[test]
fn lists_at_once_are_each_answered_once() {
    let mut driver = filled(4000, 3000);
    (0..20).for_each(|number| driver.submit(page_of(number << 34)));
    driver.shard.as_mut().expect("open").cancel(&|token| token.slot % 2 == 0, &mut driver.effects);
    driver.shard.as_mut().expect("open").close(&mut driver.effects);
    let mut replies = BTreeMap::new();
    for _ in 0..10_000 {
        for (token, reply) in driver.effects.replies.drain(..) {
            assert!(replies.insert(token.slot, reply).is_none(), "{} is answered twice", token.slot);
        }
        if driver.shard.as_ref().is_some_and(Shard::is_closed) {
            break;
        }
        driver.tick();
    }
    assert_eq!(replies.len(), 20, "an end waits for what was accepted");
    for (slot, reply) in replies {
        match reply {
            Reply::Listed { items, next } => assert!(slot % 2 == 1 && (!items.is_empty() || next.is_none())),
            reply => assert!(slot % 2 == 0 && matches!(reply, Reply::Failed(Error::Cancelled)), "{reply:?}"),
        }
    }
}
