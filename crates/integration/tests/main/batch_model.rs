//! Batches of every shape beside a map: changes of the same key more than once, conditions, lists,
//! deletes of ranges between them, over every engine that makes batches.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use stratakv::{
    Collection, Commit, End, Engine, ErrorKind, Expect, Level, List, Options, Placement, PutOptions, PutOutcome, Store,
    WriteBatch,
};
use stratakv_base::random::Random;
use stratakv_integration::place;

const KEYS: u64 = 4;
const BATCHES: usize = 400;

/// What is stored: per collection and key, a value and its version; and the list.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    records: BTreeMap<(usize, u8), (Vec<u8>, u64)>,
    list: VecDeque<Vec<u8>>,
}

/// One change of a batch.
#[derive(Clone, Debug)]
enum Asked {
    Put(usize, u8, Vec<u8>, Expect),
    Delete(usize, u8, Expect),
    Push(End, Vec<u8>),
}

/// What a batch is owed.
#[derive(Debug, PartialEq)]
enum Owed {
    Written(Model),
    Unmet,
    /// Two conditions on one key can never hold both.
    Refused,
}

impl Model {
    /// All conditions are about what is stored before; of several changes of a key the last one
    /// holds. Versions of what the batch puts are 0 until they are learnt.
    fn apply(&self, asked: &[Asked]) -> Owed {
        let (mut after, mut is_unmet) = (self.clone(), false);
        let mut conditions: BTreeMap<(usize, u8), Vec<Expect>> = BTreeMap::new();
        for change in asked {
            let (at, expect, value) = match change {
                Asked::Put(collection, key, value, expect) => ((*collection, *key), *expect, Some(value)),
                Asked::Delete(collection, key, expect) => ((*collection, *key), *expect, None),
                Asked::Push(End::Front, value) => {
                    after.list.push_front(value.clone());
                    continue;
                }
                Asked::Push(End::Back, value) => {
                    after.list.push_back(value.clone());
                    continue;
                }
            };
            conditions.entry(at).or_default().push(expect);
            is_unmet |= !holds(expect, self.records.get(&at).map(|(_, version)| *version));
            match value {
                Some(value) => _ = after.records.insert(at, (value.clone(), 0)),
                None => _ = after.records.remove(&at),
            }
        }
        // Absent, or with any version that a condition names, or with another one.
        let named = |expect: &Expect| if let Expect::Version(version) = expect { Some(*version) } else { None };
        let can_hold = |all: &Vec<Expect>| {
            let mut states: Vec<Option<u64>> = all.iter().map(named).collect();
            states.extend([None, Some(u64::MAX)]);
            states.into_iter().any(|state| all.iter().all(|expect| holds(*expect, state)))
        };
        match is_unmet {
            _ if !conditions.values().all(can_hold) => Owed::Refused,
            true => Owed::Unmet,
            false => Owed::Written(after),
        }
    }
}

/// Whether a condition holds of a key with this version, or of one that is absent.
fn holds(expect: Expect, version: Option<u64>) -> bool {
    match expect {
        Expect::Any => true,
        Expect::Absent => version.is_none(),
        Expect::Present => version.is_some(),
        Expect::Version(expected) => version == Some(expected),
    }
}

struct Subject {
    store: Store,
    collections: [Collection; 2],
    list: List,
}

fn open(path: &Path, engine: Engine, placement: Placement) -> Subject {
    let options = Options::new().engine(engine).placement(placement).memory_bytes(128 << 20);
    let options = match engine {
        Engine::Slab => options.shards(3).level(Level::ProcessCrash),
        Engine::Matrix => options.shards(2).region_bytes(32 << 20).level(Level::ProcessCrash),
        _ => options.region_bytes(32 << 20).level(Level::ProcessCrash),
    };
    let store = options.open(path).expect("the store opens");
    let collections = ["a", "b"].map(|name| store.collection(name).expect("made"));
    let list = store.list("list").expect("made");
    Subject { store, collections, list }
}

impl Subject {
    fn write(&self, asked: &[Asked]) -> Result<PutOutcome, stratakv::Error> {
        let mut batch = WriteBatch::new();
        for change in asked {
            match change {
                Asked::Put(collection, key, value, expect) => {
                    let options = PutOptions { expect: *expect, ..PutOptions::default() };
                    batch.put_with(&self.collections[*collection], [*key], value, &options);
                }
                Asked::Delete(collection, key, expect) => {
                    batch.delete_if(&self.collections[*collection], [*key], *expect);
                }
                Asked::Push(end, value) => _ = batch.push(&self.list, *end, value),
            }
        }
        self.store.write(batch)
    }

    /// What is there.
    fn read(&self) -> Model {
        let mut model = Model::default();
        for (number, collection) in self.collections.iter().enumerate() {
            for key in 0..KEYS as u8 {
                if let Some(record) = collection.get([key]).expect("a get") {
                    model.records.insert((number, key), (record.to_bytes().to_vec(), record.version));
                }
            }
        }
        let length = self.list.len().expect("a length") as i64;
        model.list = (0..length).map(|at| self.list.get(at).expect("a get").expect("it is there").to_vec()).collect();
        model
    }
}

fn expect(random: &mut Random, version: u64) -> Expect {
    match random.below(8) {
        0..4 => Expect::Any,
        4 => Expect::Absent,
        5 => Expect::Present,
        6 => Expect::Version(version),
        _ => Expect::Version(version + 1 + random.below(3)),
    }
}

fn draw(random: &mut Random, model: &Model, round: usize) -> Vec<Asked> {
    let asked = (0..1 + random.below(6)).map(|number| {
        let (collection, key) = (random.below(2) as usize, random.below(KEYS) as u8);
        let version = model.records.get(&(collection, key)).map_or(1, |(_, version)| *version);
        let value = format!("{round}.{number}").into_bytes();
        match random.below(10) {
            0 => Asked::Push(if random.below(2) == 0 { End::Front } else { End::Back }, value),
            1..4 => Asked::Delete(collection, key, expect(random, version)),
            _ => Asked::Put(collection, key, value, expect(random, version)),
        }
    });
    asked.collect()
}

/// Values only: versions of what a batch put are learnt afterwards.
fn values(model: &Model) -> Vec<(&(usize, u8), &Vec<u8>)> {
    model.records.iter().map(|(at, (value, _))| (at, value)).collect()
}

fn batches_beside_a_map(engine: Engine, placement: Placement, seed: u64) {
    let place = place::directory();
    let path = place.path().join("data");
    let subject = open(&path, engine, placement);
    let (mut random, mut model) = (Random::new(seed), Model::default());
    let mut met = [0_usize; 3];
    for round in 0..BATCHES {
        let asked = draw(&mut random, &model, round);
        let owed = model.apply(&asked);
        let outcome = subject.write(&asked);
        let found = subject.read();
        match (owed, outcome) {
            (Owed::Written(after), Ok(PutOutcome::Written { .. })) => {
                met[0] += 1;
                assert_eq!((values(&found), &found.list), (values(&after), &after.list), "{round}: {asked:?}");
            }
            (Owed::Unmet, Ok(PutOutcome::Unmet(_))) => {
                met[1] += 1;
                assert_eq!(found, model, "{round}: nothing of it may be done: {asked:?}");
            }
            (Owed::Refused, Err(error)) if error.kind() == ErrorKind::Usage => {
                met[2] += 1;
                assert_eq!(found, model, "{round}: nothing of it may be done: {asked:?}");
            }
            (owed, outcome) => panic!("{engine:?}, {round}: {asked:?} was answered {outcome:?}, owed {owed:?}"),
        }
        model = found;
        if random.below(20) == 0 {
            let which = random.below(2) as usize;
            let from = random.below(KEYS) as u8;
            let deleted = subject.collections[which].delete_range([from]..).expect("deleted");
            let before = model.records.len();
            model.records.retain(|(collection, key), _| *collection != which || *key < from);
            assert_eq!(deleted as usize, before - model.records.len());
            assert_eq!(subject.read(), model);
        }
        if random.below(10) == 0 {
            // A transaction that puts what it has read, twice: each key is one change, with one
            // condition.
            let mut transaction = subject.store.transaction();
            let collection = &subject.collections[0];
            let there = transaction.get(collection, [0]).expect("a get").is_some();
            transaction.put(collection, [0], b"once").expect("kept");
            transaction.delete(collection, [0]).expect("kept");
            let absent = PutOptions { expect: Expect::Absent, ..PutOptions::default() };
            assert!(transaction.put_with(collection, [0], b"twice", &absent).expect("kept"), "it was deleted");
            if there {
                let other = PutOptions::default();
                collection.put_with([0], b"somebody else's", &other).expect("a put");
                assert!(matches!(transaction.commit(), Ok(Commit::Conflict { .. })));
            } else {
                assert!(matches!(transaction.commit(), Ok(Commit::Done { .. })));
            }
            model = subject.read();
            let expected: &[u8] = if there { b"somebody else's" } else { b"twice" };
            assert_eq!(model.records[&(0, 0)].0, expected);
        }
    }
    assert!(met.iter().all(|count| *count >= BATCHES / 40), "too little was met: {met:?}");
    subject.store.close().expect("closed");
    assert_eq!(open(&path, engine, placement).read(), model, "after an orderly end");
}

#[test]
fn batches_of_slab_in_place_beside_a_map() {
    batches_beside_a_map(Engine::Slab, Placement::InPlace, 1);
}

#[test]
fn batches_of_slab_packed_beside_a_map() {
    batches_beside_a_map(Engine::Slab, Placement::Packed, 2);
}

#[test]
fn batches_of_hash_beside_a_map() {
    batches_beside_a_map(Engine::Hash, Placement::InPlace, 3);
}

#[test]
fn batches_of_matrix_beside_a_map() {
    batches_beside_a_map(Engine::Matrix, Placement::InPlace, 4);
}
