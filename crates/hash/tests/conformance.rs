//! The conformance suite, over strings and over keys in collections.

use std::ops::Bound;

use stratakv_base::{CollectionId, Expiry, Key, Level, Mono, Now, Wall};
use stratakv_conformance::{self as conformance, Subject};
use stratakv_engine::{Capabilities, Change, ChangeKind, Expect, Operation, Reply, Shared};
use stratakv_hash::{Hash, HashOptions};
use stratakv_pmem::{MapOptions, Mapping};

/// A store in memory. `in_order`: what is asked of the default collection is done in collection 1,
/// and so on.
struct HashSubject {
    hash: Option<Hash<Mapping>>,
    now: Now,
    in_order: bool,
}

fn created(in_order: bool) -> HashSubject {
    let pmem = Mapping::anonymous(256 << 20, MapOptions { prewrite: false, ..MapOptions::default() }).expect("memory");
    let hash = Hash::create(pmem, HashOptions::default()).expect("created");
    HashSubject { hash: Some(hash), now: Now { mono: Mono(1), wall: Wall(1_800_000_000) }, in_order }
}

/// Collection 0 becomes 1, 1 becomes 2 and so on; nothing asks for the last but one.
fn shifted(key: &Key) -> Key {
    let number = key.collection().0;
    Key::bound(CollectionId(if number == u32::MAX - 1 { number } else { number + 1 }), key.user())
}

fn back(key: &Key) -> Key {
    let number = key.collection().0;
    Key::bound(CollectionId(if number == u32::MAX - 1 { number } else { number - 1 }), key.user())
}

fn lower(bound: Bound<Key>) -> Bound<Key> {
    match bound {
        Bound::Unbounded => Bound::Included(Key::bound(CollectionId(1), b"")),
        bound => bound.map(|key| shifted(&key)),
    }
}

fn into_collections(operation: Operation) -> Operation {
    match operation {
        Operation::Get { key, part } => Operation::Get { key: shifted(&key), part },
        Operation::Update { key, update, level } => Operation::Update { key: shifted(&key), update, level },
        Operation::Write { mut changes, level } => {
            changes.iter_mut().for_each(|change| change.key = shifted(&change.key));
            Operation::Write { changes, level }
        }
        Operation::Page(mut request) => {
            request.from = lower(request.from);
            request.to = request.to.map(|key| shifted(&key));
            Operation::Page(request)
        }
        Operation::DeleteRange { range, level } => {
            let (from, to) = *range;
            Operation::DeleteRange { range: Box::new((lower(from), to.map(|key| shifted(&key)))), level }
        }
        Operation::List(mut request) => {
            request.collection.0 += 1;
            Operation::List(request)
        }
        other => other,
    }
}

fn out_of_collections(reply: Reply) -> Reply {
    match reply {
        Reply::Page { mut items, next } => {
            items.iter_mut().for_each(|item| item.key = back(&item.key));
            Reply::Page { items, next: next.map(|bound| bound.map(|key| back(&key))) }
        }
        Reply::Listed { mut items, next } => {
            items.iter_mut().for_each(|item| item.key = back(&item.key));
            Reply::Listed { items, next }
        }
        other => other,
    }
}

impl HashSubject {
    fn hash(&self) -> &Hash<Mapping> {
        self.hash.as_ref().expect("open between operations")
    }
}

impl Subject for HashSubject {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: self.in_order, ..self.hash().capabilities() }
    }

    fn execute(&mut self, operation: Operation) -> Reply {
        self.now.mono.0 += 1000;
        if !self.in_order {
            return self.hash().execute(operation, self.now);
        }
        out_of_collections(self.hash().execute(into_collections(operation), self.now))
    }

    fn reopen(&mut self) {
        let pmem = self.hash.take().expect("open").into_pmem();
        self.hash = Some(Hash::open(pmem, 2).expect("opened"));
        assert!(self.hash().damage().is_empty(), "{:?}", self.hash().damage());
    }

    fn wall(&self) -> Wall {
        self.now.wall
    }

    fn advance_wall(&mut self, millis: u64) {
        self.now.wall.0 += millis;
        self.now.mono.0 += millis * 1_000_000;
    }
}

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        mod strings {
            $(#[test] fn $name() { super::conformance::$module::$name(&mut super::created(false)); })*
        }
        mod collections {
            $(#[test] fn $name() { super::conformance::$module::$name(&mut super::created(true)); })*
        }
    };
}
stratakv_conformance::cases!(tests);

/// The default collection is in no order; all of it, or a range, can be deleted.
#[test]
fn keys_in_no_order_are_deleted_by_ranges() {
    let mut subject = created(false);
    let put = |subject: &mut HashSubject, key: Key| {
        let kind = ChangeKind::Put { value: "v".into(), flags: 0, expiry: Expiry::NEVER };
        let changes = vec![Change { key, expect: Expect::Any, kind }];
        let reply = subject.execute(Operation::Write { changes, level: Level::PowerLoss });
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    };
    for number in 0..20_000u32 {
        for collection in [0, 1] {
            let key = Key::new(CollectionId(collection), format!("{number:05}").as_bytes()).expect("a key");
            put(&mut subject, key);
        }
    }
    let mut delete = |from: Bound<Key>, to: Bound<Key>| match subject
        .execute(Operation::DeleteRange { range: Box::new((from, to)), level: Level::PowerLoss })
    {
        Reply::Number { number, .. } => number,
        other => panic!("{other:?}"),
    };
    let bound = |collection, text: &str| Key::bound(CollectionId(collection), text.as_bytes());
    assert_eq!(delete(Bound::Included(bound(0, "00100")), Bound::Excluded(bound(0, "00150"))), 50);
    assert_eq!(delete(Bound::Included(bound(0, "00100")), Bound::Included(bound(0, "00150"))), 1);
    // As `flush_all` asks.
    assert_eq!(delete(Bound::Included(bound(0, "")), Bound::Excluded(bound(1, ""))), 20_000 - 51);
    assert_eq!(delete(Bound::Included(bound(0, "")), Bound::Excluded(bound(1, ""))), 0);
    assert_eq!(delete(Bound::Unbounded, Bound::Included(bound(1, "00009"))), 10);
    assert_eq!(subject.hash().report().records, 20_000 - 10);
}

#[test]
fn a_range_delete_leaves_what_was_written_since_it_was_begun() {
    for collection in [0, 1] {
        let subject = created(false);
        let (hash, level) = (subject.hash(), Level::PowerLoss);
        let put = |name: &str| {
            let key = Key::new(CollectionId(collection), name.as_bytes()).expect("a key");
            let kind = ChangeKind::Put { value: "v".into(), flags: 0, expiry: Expiry::NEVER };
            let changes = vec![Change { key, expect: Expect::Any, kind }];
            hash.execute(Operation::Write { changes, level }, subject.now);
        };
        put("before");
        put("again");
        let begun_at = hash.last_version();
        put("again");
        put("since");
        let bound = |collection| Key::bound(CollectionId(collection), b"");
        let (from, to) = (Bound::Included(bound(collection)), Bound::Excluded(bound(collection + 1)));
        let delete = |begun_at| {
            let range = Operation::DeleteRange { range: Box::new((from.clone(), to.clone())), level };
            match hash.execute_begun(range, begun_at, subject.now) {
                Reply::Number { number, .. } => number,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((delete(Some(begun_at)), delete(Some(begun_at)), delete(None)), (1, 0, 2), "{collection}");
    }
}
