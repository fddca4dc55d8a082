//! Lists without order: of engines that cannot scan, and of others that have them.

use std::collections::BTreeMap;

use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_engine::{Capability, Error, Expect, Item, ListRequest, Operation, Record, Reply};

use super::Subject;
use super::ask::{brief, delete, done, fill, key, put, put_with, shown};

/// Records of a page, and the cursor of the next one.
type Listed = (Vec<(Key, Record)>, Option<u64>);

/// A page; `None`: the engine is in order and has none.
fn page(subject: &mut dyn Subject, cursor: u64, items_max: u32) -> Option<Listed> {
    let request = ListRequest { collection: CollectionId(0), cursor, shard: 0, items_max };
    match subject.execute(Operation::List(request)) {
        Reply::Listed { items, next } => {
            let told = |item: Item| (item.key, item.record.expect("a list tells of each record"));
            Some((items.into_iter().map(told).collect(), next))
        }
        Reply::Failed(Error::Unsupported(Capability::List)) if subject.capabilities().ordered => None,
        other => panic!("a list is given, or refused by an engine in order, not {}", brief(&other)),
    }
}

/// All pages; `between` is called after each.
fn list(
    subject: &mut dyn Subject,
    items_max: u32,
    mut between: impl FnMut(&mut dyn Subject),
) -> Option<BTreeMap<Key, Record>> {
    let (mut all, mut cursor) = (BTreeMap::new(), 0);
    for _ in 0..100_000 {
        let (items, next) = page(subject, cursor, items_max)?;
        assert!(items.len() < items_max as usize + 64, "{} items of {items_max}", items.len());
        for (key, record) in items {
            assert!(record.value.is_empty(), "a list has no values");
            assert!(all.insert(key.clone(), record).is_none(), "{} is listed twice", shown(&key));
        }
        between(subject);
        match next {
            Some(next) => cursor = next,
            None => return Some(all),
        }
    }
    panic!("the list does not end");
}

/// Short and long ones, as they are now; nothing that is gone, and no other collection's.
pub fn every_record_is_listed_once(subject: &mut dyn Subject) {
    let Some(none) = list(subject, 10, |_| {}) else { return };
    assert!(none.is_empty(), "there is nothing yet");
    let lives = Expiry::after(subject.wall(), 5_000_000);
    let mut expected = BTreeMap::new();
    for number in 0..700usize {
        let (key, len) = (key(format!("key {number}")), if number % 100 == 7 { 70_000 } else { number });
        let (flags, expiry) = (number as u32, if number % 3 == 0 { lives } else { Expiry::NEVER });
        let operation = put_with(&key, fill(1, len), flags, expiry, Expect::Any);
        let (version, _) = done(subject.execute(operation));
        expected.insert(key, (len as u64, flags, expiry, version));
    }
    let soon = Expiry::after(subject.wall(), 1000);
    for number in 700..750 {
        let key = key(format!("key {number}"));
        done(subject.execute(put_with(&key, "expires", 0, soon, Expect::Any)));
    }
    for number in (0..700).step_by(10) {
        let key = key(format!("key {number}"));
        assert!(delete(subject, &key));
        expected.remove(&key);
    }
    put(subject, &Key::new(CollectionId(1), b"of another collection").expect("a key"), "v");
    subject.advance_wall(2000);
    for items_max in [1, 64, 10_000] {
        let found = list(subject, items_max, |_| {}).expect("it listed before");
        let found: BTreeMap<_, _> = found
            .into_iter()
            .map(|(key, record)| (key, (record.value_bytes, record.flags, record.expiry, record.version)))
            .collect();
        assert_eq!(found, expected, "in pages of {items_max}");
    }
}

/// Others come, are written again and go between two pages.
pub fn what_stays_is_listed_once_while_others_come_and_go(subject: &mut dyn Subject) {
    let stays: Vec<Key> = (0..500).map(|number| key(format!("stays {number}"))).collect();
    stays.iter().for_each(|key| _ = put(subject, key, fill(2, 100)));
    let gone: Vec<Key> = (0..100).map(|number| key(format!("gone {number}"))).collect();
    gone.iter().for_each(|key| _ = put(subject, key, "v"));
    gone.iter().for_each(|key| assert!(delete(subject, key)));
    let mut round = 0;
    let found = list(subject, 8, |subject| {
        for number in 0..10 {
            put(subject, &key(format!("comes {round} {number}")), fill(round, 2000));
            put(subject, &stays[(round as usize * 7 + number) % stays.len()], fill(round, 50 + number));
        }
        if round > 2 {
            delete(subject, &key(format!("comes {} 3", round - 2)));
        }
        round += 1;
    });
    let Some(found) = found else { return };
    assert!(stays.iter().all(|key| found.contains_key(key)), "what was there all the time is listed");
    assert!(gone.iter().all(|key| !found.contains_key(key)), "what was deleted before is not");
}
