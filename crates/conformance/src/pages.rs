//! Scans, by pages; and what deletes whole ranges.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use stratakv_base::{CollectionId, Key, Level};
use stratakv_engine::{Operation, PageRequest, Reply};

use super::Subject;
use super::ask::{check_value, delete, fill, key, number, page_of, put, scan};

/// What the subject should hold.
type Expected = BTreeMap<Key, Bytes>;

fn load(subject: &mut dyn Subject, count: u64) -> Expected {
    let mut expected = Expected::new();
    for seed in 0..count {
        let (key, value) = (key(format!("k{:04}", seed * 37 % 1000)), fill(seed, (seed * 131 % 700) as usize));
        put(subject, &key, value.clone());
        expected.insert(key, value);
    }
    expected
}

#[track_caller]
fn check(subject: &mut dyn Subject, request: PageRequest, expected: &Expected) {
    let inside = |key: &Key| {
        let above = match &request.from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        let below = match &request.to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        };
        above && below
    };
    let mut wanted: Vec<(&Key, &Bytes)> = expected.iter().filter(|(key, _)| inside(key)).collect();
    if request.reverse {
        wanted.reverse();
    }
    let found = scan(subject, request.clone());
    let keys: Vec<&Key> = found.iter().map(|(key, _)| key).collect();
    let wanted_keys: Vec<&Key> = wanted.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, wanted_keys, "keys of {request:?}");
    for ((key, record), (_, value)) in found.iter().zip(wanted) {
        if let Some(record) = record {
            check_value(record, key, value);
        }
    }
}

/// No keys, one key.
pub fn empty_and_single(subject: &mut dyn Subject) {
    if !subject.capabilities().ordered {
        return;
    }
    for reverse in [false, true] {
        assert!(scan(subject, page_of(Bound::Unbounded, Bound::Unbounded, reverse)).is_empty());
    }
    put(subject, &key("k"), "v");
    let expected = Expected::from([(key("k"), "v".into())]);
    for reverse in [false, true] {
        check(subject, page_of(Bound::Unbounded, Bound::Unbounded, reverse), &expected);
    }
    delete(subject, &key("k"));
    assert!(scan(subject, page_of(Bound::Unbounded, Bound::Unbounded, false)).is_empty());
}

/// Included, excluded and open; on keys, between keys, outside all keys; crossing.
pub fn all_bounds_both_directions(subject: &mut dyn Subject) {
    if !subject.capabilities().ordered {
        return;
    }
    let expected = load(subject, 60);
    let edges = ["a", "k0000", "k0037", "k00370", "k0500", "k0999", "z"].map(key);
    let bounds = |edge: &Key| [Bound::Included(edge.clone()), Bound::Excluded(edge.clone()), Bound::Unbounded];
    for from in edges.iter().flat_map(bounds) {
        for to in edges.iter().flat_map(bounds) {
            for reverse in [false, true] {
                let request = page_of(from.clone(), to.clone(), reverse);
                check(subject, PageRequest { items_max: 17, ..request }, &expected);
            }
        }
    }
}

/// Pages of every size put together are the scan.
pub fn follow_each_other(subject: &mut dyn Subject) {
    if !subject.capabilities().ordered {
        return;
    }
    let expected = load(subject, 100);
    for items_max in [1, 2, 3, 7, 50, 99, 100, 101, u32::MAX] {
        for reverse in [false, true] {
            let request = page_of(Bound::Unbounded, Bound::Excluded(key("k0900")), reverse);
            check(subject, PageRequest { items_max, ..request }, &expected);
        }
    }
}

/// Keys without records.
pub fn keys_only(subject: &mut dyn Subject) {
    if !subject.capabilities().ordered {
        return;
    }
    let expected = load(subject, 50);
    for reverse in [false, true] {
        let request = page_of(Bound::Included(key("k0100")), Bound::Unbounded, reverse);
        check(subject, PageRequest { keys_only: true, items_max: 8, ..request }, &expected);
    }
}

/// A page ends once it holds so many bytes, and has at least one item.
pub fn bytes_max_ends_a_page(subject: &mut dyn Subject) {
    if !subject.capabilities().ordered {
        return;
    }
    let expected: Expected = (0..30).map(|n| (key(format!("k{n:02}")), fill(n, 1000))).collect();
    for (key, value) in &expected {
        put(subject, key, value.clone());
    }
    for (bytes_max, items) in [(1, 1), (1000, 1), (5000, 5), (10_100, 11)] {
        let request = page_of(Bound::Unbounded, Bound::Unbounded, false);
        let request = PageRequest { bytes_max, ..request };
        let reply = subject.execute(Operation::Page(request.clone().into()));
        let Reply::Page { items: found, next } = reply else { panic!("a page is answered with a page") };
        assert!(!found.is_empty() && found.len() <= items, "{} items for {bytes_max} bytes", found.len());
        assert!(next.is_some(), "there is more");
        check(subject, request, &expected);
    }
}

/// Bytewise: 0xFF is after 'z', a prefix is before what it begins; collections lie one after
/// another.
pub fn prefixes_are_in_byte_order(subject: &mut dyn Subject) {
    if !subject.capabilities().ordered {
        return;
    }
    let mut expected = Expected::new();
    for user in [
        &b"\x00"[..],
        b"\x00\x00",
        b"\x01",
        b"A",
        b"a",
        b"a\x00",
        b"a\xff",
        b"aa",
        b"b",
        b"z",
        b"\x80",
        b"\xff",
        b"\xff\xff",
    ] {
        for collection in [0, 1, 255] {
            let key = Key::new(CollectionId(collection), user).expect("a key");
            put(subject, &key, user.to_vec());
            expected.insert(key, user.to_vec().into());
        }
    }
    let prefix_a = |collection| {
        let from = Bound::Included(Key::bound(CollectionId(collection), b"a"));
        (from, Bound::Excluded(Key::bound(CollectionId(collection), b"b")))
    };
    for reverse in [false, true] {
        check(subject, page_of(Bound::Unbounded, Bound::Unbounded, reverse), &expected);
        for collection in [0, 1, 255] {
            let (from, to) = prefix_a(collection);
            check(subject, page_of(from, to, reverse), &expected);
        }
    }
}

/// Overwritten with other sizes, deleted, reopened.
pub fn after_changes_and_reopening(subject: &mut dyn Subject) {
    if !subject.capabilities().ordered {
        return;
    }
    let mut expected = load(subject, 80);
    let keys: Vec<Key> = expected.keys().cloned().collect();
    for (index, key) in keys.iter().enumerate() {
        if index % 3 == 0 {
            delete(subject, key);
            expected.remove(key);
        } else if index % 3 == 1 {
            let value = fill(index as u64, 5000 + index * 10);
            put(subject, key, value.clone());
            expected.insert(key.clone(), value);
        }
    }
    for _ in 0..2 {
        for reverse in [false, true] {
            let request = page_of(Bound::Unbounded, Bound::Unbounded, reverse);
            check(subject, PageRequest { items_max: 9, ..request }, &expected);
        }
        subject.reopen();
    }
}

/// Deletes what is inside its bounds, says how much, and stays so.
pub fn delete_range(subject: &mut dyn Subject) {
    if !subject.capabilities().ordered {
        return;
    }
    let mut expected = load(subject, 100);
    let ranges = [
        (Bound::Included(key("k0100")), Bound::Excluded(key("k0200"))),
        (Bound::Excluded(key("k0300")), Bound::Included(key("k0370"))),
        (Bound::Included(key("k0800")), Bound::Unbounded),
        (Bound::Included(key("x")), Bound::Excluded(key("a"))),
    ];
    for (from, to) in ranges {
        let inside = |key: &Key| {
            let above = match &from {
                Bound::Included(from) => key >= from,
                Bound::Excluded(from) => key > from,
                Bound::Unbounded => true,
            };
            above
                && match &to {
                    Bound::Included(to) => key <= to,
                    Bound::Excluded(to) => key < to,
                    Bound::Unbounded => true,
                }
        };
        let before = expected.len();
        expected.retain(|key, _| !inside(key));
        let operation = Operation::DeleteRange { range: Box::new((from.clone(), to.clone())), level: Level::PowerLoss };
        assert_eq!(number(subject.execute(operation)).0, (before - expected.len()) as u64, "{from:?}..{to:?}");
        check(subject, page_of(Bound::Unbounded, Bound::Unbounded, false), &expected);
    }
    subject.reopen();
    check(subject, page_of(Bound::Unbounded, Bound::Unbounded, false), &expected);
}
