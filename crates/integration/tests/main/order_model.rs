//! Random operations on a collection in an order of the user's, and on a map sorted as it should
//! be: the same, always.

use std::collections::BTreeMap;
use std::ops::Bound;

use stratakv::{
    Collection, Commit, Expect, Level, Options, Order, Placement, PutOutcome, ScanOptions, Snapshot, Store, WriteBatch,
};
use stratakv_base::random::Random;
use stratakv_integration::engine::Engine;
use stratakv_integration::place;

const STEPS: usize = 3000;
const REOPENED_EVERY: usize = 700;

/// By what comes after the first byte: many keys share a sort key, sort keys are prefixes of one
/// another, and the shortest one is empty.
fn sort_key(key: &[u8]) -> Vec<u8> {
    key[1..].to_vec()
}

fn by_tail() -> Order {
    Order::new("by-tail", sort_key)
}

/// Sort key and key.
type At = (Vec<u8>, Vec<u8>);
type Model = BTreeMap<At, Vec<u8>>;
type Records<'a> = Vec<(&'a At, &'a Vec<u8>)>;

fn place_of(key: &[u8]) -> At {
    (sort_key(key), key.to_vec())
}

/// Few bytes, those that are special among them.
fn bytes(random: &mut Random, least: u64) -> Vec<u8> {
    let len = least + random.below(4);
    (0..len).map(|_| [0, 1, b'k', 0xFE, 0xFF][random.below(5) as usize]).collect()
}

fn key(random: &mut Random) -> Vec<u8> {
    bytes(random, 1)
}

fn bound(random: &mut Random) -> Bound<Vec<u8>> {
    match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(random)),
        _ => Bound::Excluded(key(random)),
    }
}

/// What of the model lies within such bounds, in order. (A map panics at bounds that cross.)
fn within<'a>(model: &'a Model, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> Records<'a> {
    let (from, to) = (from.as_ref().map(|key| place_of(key)), to.as_ref().map(|key| place_of(key)));
    model.iter().filter(|(at, _)| std::ops::RangeBounds::contains(&(from.clone(), to.clone()), *at)).collect()
}

struct Run {
    options: Options,
    place: tempfile::TempDir,
    store: Store,
    collection: Collection,
    model: Model,
    random: Random,
    snapshot: Option<(Snapshot, Model)>,
}

fn open(options: &Options, place: &tempfile::TempDir) -> (Store, Collection) {
    let store = options.open(place.path().join("data")).expect("opened");
    let collection = store.collection_in_order("c", "by-tail").expect("there");
    (store, collection)
}

impl Run {
    fn new(options: Options, seed: u64) -> Run {
        let options = options.memory_bytes(96 << 20).level(Level::ProcessCrash).order(by_tail());
        let place = place::directory();
        let (store, collection) = open(&options, &place);
        let (model, random) = (Model::new(), Random::new(seed));
        Run { options, place, store, collection, model, random, snapshot: None }
    }

    fn go(mut self, has_snapshots: bool) {
        for step in 1..=STEPS {
            match self.random.below(12) {
                0..3 => self.put(),
                3 => self.delete(),
                4 => self.batch(),
                5 => self.transaction(),
                6 => self.append(),
                7 if self.random.below(8) == 0 => self.delete_range(),
                7 | 8 => self.get(),
                9 => self.sort_prefix(),
                10 if has_snapshots => self.look_back(),
                _ => self.scan(),
            }
            if step % REOPENED_EVERY == 0 {
                self.reopen();
            }
        }
        assert_eq!(self.collection.len().expect("counted"), self.model.len() as u64);
        assert!(self.model.len() > 50, "the model holds something");
    }

    fn reopen(&mut self) {
        self.snapshot = None;
        self.store.close().expect("closed");
        (self.store, self.collection) = open(&self.options, &self.place);
    }

    fn put(&mut self) {
        let (key, value) = (key(&mut self.random), bytes(&mut self.random, 0));
        self.collection.put(&key, &value).expect("a put");
        self.model.insert(place_of(&key), value);
    }

    fn delete(&mut self) {
        let key = key(&mut self.random);
        let existed = self.collection.delete(&key).expect("deleted");
        assert_eq!(existed, self.model.remove(&place_of(&key)).is_some());
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..=self.random.below(5) {
            let (key, value) = (key(&mut self.random), bytes(&mut self.random, 0));
            match self.random.below(3) {
                0 => {
                    batch.delete_in(&self.collection, &key);
                    self.model.remove(&place_of(&key));
                }
                _ => {
                    batch.put_in(&self.collection, &key, &value);
                    self.model.insert(place_of(&key), value);
                }
            }
        }
        assert!(matches!(self.store.write(batch).expect("written"), PutOutcome::Written { .. }));
    }

    /// Moves a value from one key to another.
    fn transaction(&mut self) {
        let (from, to) = (key(&mut self.random), key(&mut self.random));
        let mut txn = self.store.transaction();
        let record = txn.get(&self.collection, &from).expect("read");
        assert_eq!(record.as_ref().map(|record| record.to_bytes().to_vec()), self.model.get(&place_of(&from)).cloned());
        txn.delete(&self.collection, &from).expect("kept");
        if let Some(record) = record {
            txn.put(&self.collection, &to, record.to_bytes()).expect("kept");
        }
        assert!(matches!(txn.commit().expect("committed"), Commit::Done { .. }));
        if let Some(value) = self.model.remove(&place_of(&from)) {
            self.model.insert(place_of(&to), value);
        }
    }

    fn append(&mut self) {
        let key = key(&mut self.random);
        let appended = self.collection.append(&key, "+").expect("appended").is_some();
        assert_eq!(appended, self.model.contains_key(&place_of(&key)));
        if let Some(value) = self.model.get_mut(&place_of(&key)) {
            value.push(b'+');
        }
        let is_new = !self.model.contains_key(&place_of(&key));
        let outcome = self.collection.put_if(&key, b"first", Expect::Absent).expect("answered");
        assert_eq!(matches!(outcome, PutOutcome::Written { .. }), is_new);
        self.model.entry(place_of(&key)).or_insert_with(|| b"first".to_vec());
    }

    fn delete_range(&mut self) {
        let (from, to) = (bound(&mut self.random), bound(&mut self.random));
        let gone: Vec<_> = within(&self.model, &from, &to).into_iter().map(|(at, _)| at.clone()).collect();
        // Some of it is to stay.
        if gone.len() > 60 {
            return;
        }
        let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let deleted = self.collection.delete_range::<&[u8]>((from, to)).expect("deleted");
        assert_eq!(deleted, gone.len() as u64, "{from:?} {to:?}");
        gone.iter().for_each(|at| drop(self.model.remove(at)));
    }

    fn get(&mut self) {
        let keys: Vec<_> = (0..4).map(|_| key(&mut self.random)).collect();
        let found = self.collection.multi_get(&keys).expect("read");
        for (key, found) in keys.iter().zip(found) {
            let expected = self.model.get(&place_of(key));
            assert_eq!(found.map(|record| record.to_bytes().to_vec()).as_ref(), expected);
            let single = self.collection.get(key).expect("read");
            assert_eq!(single.map(|record| record.to_bytes().to_vec()).as_ref(), expected);
        }
    }

    fn scan(&mut self) {
        let (from, to) = (bound(&mut self.random), bound(&mut self.random));
        let expected = within(&self.model, &from, &to);
        let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let options = ScanOptions::range::<&[u8]>((from, to));
        let reverse = self.random.below(2) == 0;
        let options = if reverse { options.reverse() } else { options };
        same(self.collection.scan(options.clone()), expected.clone(), reverse);
        let keys = self.collection.scan(options.keys_only()).map(|item| item.expect("a key").0.to_vec());
        let expected = expected.into_iter().map(|((_, key), _)| key.clone());
        let expected: Vec<_> = if reverse { expected.rev().collect() } else { expected.collect() };
        assert_eq!(keys.collect::<Vec<_>>(), expected);
    }

    fn sort_prefix(&mut self) {
        let prefix = bytes(&mut self.random, 0);
        let expected = self.model.iter().filter(|((sort_key, _), _)| sort_key.starts_with(&prefix)).collect();
        same(self.collection.scan(ScanOptions::sort_prefix(&prefix)), expected, false);
    }

    /// Holds the last snapshot against the model as it was then, and takes another one.
    fn look_back(&mut self) {
        if let Some((snapshot, model)) = &self.snapshot {
            let reverse = self.random.below(2) == 0;
            let options = if reverse { ScanOptions::all().reverse() } else { ScanOptions::all() };
            same(snapshot.scan(&self.collection, options), model.iter().collect(), reverse);
            let key = key(&mut self.random);
            let found = snapshot.get(&self.collection, &key).expect("read");
            assert_eq!(found.map(|record| record.to_bytes().to_vec()).as_ref(), model.get(&place_of(&key)));
        }
        self.snapshot = Some((self.store.snapshot().expect("a snapshot"), self.model.clone()));
    }
}

/// A scan gives just that.
fn same(scan: stratakv::Scan, mut expected: Records<'_>, reverse: bool) {
    if reverse {
        expected.reverse();
    }
    let found: Vec<(Vec<u8>, Vec<u8>)> = scan
        .map(|item| item.expect("an item"))
        .map(|(key, record)| (key.to_vec(), record.to_bytes().to_vec()))
        .collect();
    let expected: Vec<_> = expected.into_iter().map(|((_, key), value)| (key.clone(), value.clone())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_collection_in_an_order_does_what_a_sorted_map_does() {
    for engine in Engine::ALL.iter().copied() {
        let options = engine.options().shards(if engine == Engine::Slab { 3 } else { 1 });
        Run::new(options, 1).go(engine == Engine::Hash);
    }
}

#[test]
fn it_does_so_in_segments_too() {
    Run::new(Options::new().shards(2).placement(Placement::Packed), 2).go(false);
}
