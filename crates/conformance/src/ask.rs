//! Short ways to ask a subject, and what its answers must be like.

use std::ops::Bound;

use bytes::Bytes;
use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Level};
use stratakv_engine::{
    Change, ChangeKind, Error, Expect, Operation, PageRequest, Record, RecordPart, Reply, Unmet, Update,
};

use super::Subject;

/// A key of the default collection.
pub(super) fn key(user: impl AsRef<[u8]>) -> Key {
    Key::new(CollectionId(0), user.as_ref()).expect("a key within the limits")
}

/// Bytes that tell their seed and position, so that no piece of one value can stand for a piece of
/// another.
pub(super) fn fill(seed: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    Random::new(seed ^ (len as u64) << 40).fill(&mut bytes);
    bytes.into()
}

pub(super) fn write_of(key: &Key, expect: Expect, kind: ChangeKind) -> Operation {
    Operation::Write { changes: vec![Change { key: key.clone(), expect, kind }], level: Level::PowerLoss }
}

pub(super) fn put_of(key: &Key, value: impl Into<Bytes>) -> Operation {
    put_with(key, value, 0, Expiry::NEVER, Expect::Any)
}

pub(super) fn put_with(key: &Key, value: impl Into<Bytes>, flags: u32, expiry: Expiry, expect: Expect) -> Operation {
    write_of(key, expect, ChangeKind::Put { value: value.into(), flags, expiry })
}

pub(super) fn delete_of(key: &Key) -> Operation {
    write_of(key, Expect::Any, ChangeKind::Delete)
}

pub(super) fn get_of(key: &Key) -> Operation {
    Operation::Get { key: key.clone(), part: RecordPart::Whole }
}

pub(super) fn update_of(key: &Key, update: Update) -> Operation {
    Operation::Update { key: key.clone(), update, level: Level::PowerLoss }
}

/// Puts; the version.
#[track_caller]
pub(super) fn put(subject: &mut dyn Subject, key: &Key, value: impl Into<Bytes>) -> u64 {
    done(subject.execute(put_of(key, value))).0
}

/// Deletes; whether it existed.
#[track_caller]
pub(super) fn delete(subject: &mut dyn Subject, key: &Key) -> bool {
    done(subject.execute(delete_of(key))).1
}

/// Gets the whole record.
#[track_caller]
pub(super) fn get(subject: &mut dyn Subject, key: &Key) -> Option<Record> {
    get_part(subject, key, RecordPart::Whole)
}

#[track_caller]
pub(super) fn get_part(subject: &mut dyn Subject, key: &Key, part: RecordPart) -> Option<Record> {
    match subject.execute(Operation::Get { key: key.clone(), part }) {
        Reply::Record(record) => record,
        other => panic!("a get of {} is answered with a record, not {}", shown(key), brief(&other)),
    }
}

/// Gets, and checks the value.
#[track_caller]
pub(super) fn expect_value(subject: &mut dyn Subject, key: &Key, value: &[u8]) -> Record {
    let Some(record) = get(subject, key) else {
        panic!("{} is gone; it should have {} bytes", shown(key), value.len());
    };
    check_value(&record, key, value);
    record
}

#[track_caller]
pub(super) fn check_value(record: &Record, key: &Key, value: &[u8]) {
    assert_eq!(record.value.len(), value.len() as u64, "length of the value of {}", shown(key));
    assert_eq!(record.value_bytes, value.len() as u64, "value_bytes of {}", shown(key));
    let found = record.value.to_bytes();
    let wrong = found.iter().zip(value).position(|(found, expected)| found != expected);
    assert_eq!(wrong, None, "first wrong byte of the value of {} ({} bytes)", shown(key), value.len());
}

#[track_caller]
pub(super) fn expect_absent(subject: &mut dyn Subject, key: &Key) {
    let found = get(subject, key).map(|record| record.value_bytes);
    assert_eq!(found, None, "{} should not exist, it has a value of so many bytes", shown(key));
}

#[track_caller]
pub(super) fn done(reply: Reply) -> (u64, bool) {
    match reply {
        Reply::Done { version, existed } => (version, existed),
        other => panic!("a write is answered with Done, not {}", brief(&other)),
    }
}

#[track_caller]
pub(super) fn number(reply: Reply) -> (u64, u64) {
    match reply {
        Reply::Number { number, version } => (number, version),
        other => panic!("expected a Number, not {}", brief(&other)),
    }
}

#[track_caller]
pub(super) fn unmet(reply: Reply) -> Unmet {
    match reply {
        Reply::Unmet(unmet) => unmet,
        other => panic!("expected Unmet, not {}", brief(&other)),
    }
}

#[track_caller]
pub(super) fn failed(reply: Reply) -> Error {
    match reply {
        Reply::Failed(error) => error,
        other => panic!("expected Failed, not {}", brief(&other)),
    }
}

/// A page request with no limits to speak of.
pub(super) fn page_of(from: Bound<Key>, to: Bound<Key>, reverse: bool) -> PageRequest {
    PageRequest { from, to, reverse, keys_only: false, items_max: 1000, bytes_max: 1 << 30, at: None }
}

/// Follows pages to the end: all items. Checks order, limits and progress on the way.
#[track_caller]
pub(super) fn scan(subject: &mut dyn Subject, mut request: PageRequest) -> Vec<(Key, Option<Record>)> {
    let mut all: Vec<(Key, Option<Record>)> = Vec::new();
    for _ in 0..100_000 {
        let reply = subject.execute(Operation::Page(request.clone().into()));
        let (items, next) = match reply {
            Reply::Page { items, next } => (items, next),
            other => panic!("a page is answered with a page, not {}", brief(&other)),
        };
        assert!(items.len() <= request.items_max as usize, "{} items on a page of {}", items.len(), request.items_max);
        for item in items {
            assert_eq!(item.record.is_none(), request.keys_only, "records come unless only keys were asked for");
            if let Some((last, _)) = all.last() {
                let order = last.cmp(&item.key);
                let expected = if request.reverse { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less };
                assert_eq!(order, expected, "{} comes after {}", shown(&item.key), shown(last));
            }
            all.push((item.key, item.record));
        }
        let Some(next) = next else { return all };
        *(if request.reverse { &mut request.to } else { &mut request.from }) = next;
    }
    panic!("the scan does not end");
}

/// A key for messages, shortened.
pub(super) fn shown(key: &Key) -> String {
    let mut text = format!("{key:?}");
    if text.len() > 60 {
        text.truncate(40);
        text.push_str(&format!("… ({} bytes)", key.user().len()));
    }
    text
}

/// A reply without its value.
pub(super) fn brief(reply: &Reply) -> String {
    match reply {
        Reply::Record(None) => "Record(None)".to_owned(),
        Reply::Record(Some(record)) => format!("Record({} bytes, version {})", record.value_bytes, record.version),
        Reply::Part(record, _) => format!("Part({} bytes)", record.value.len()),
        Reply::Page { items, next } => format!("Page({} items, next: {})", items.len(), next.is_some()),
        Reply::Listed { items, next } => format!("Listed({} items, next: {next:?})", items.len()),
        other => format!("{other:?}"),
    }
}
