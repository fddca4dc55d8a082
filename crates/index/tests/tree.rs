//! The tree against a `BTreeMap`, and its promises about memory.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use proptest::prelude::*;
use stratakv_base::random::Random;
use stratakv_index::{Builder, Finger, IndexEntry, Tree};

type Model = BTreeMap<Vec<u8>, IndexEntry>;
type Items = Vec<(Vec<u8>, IndexEntry)>;

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, IndexEntry),
    Remove(Vec<u8>),
    Get(Vec<u8>),
    /// To another place, from where it is or from elsewhere.
    Relocate(Vec<u8>, bool, u64),
    Scan(Bound<Vec<u8>>, Bound<Vec<u8>>, bool, usize),
    /// Removes every key that begins so.
    Clear(Vec<u8>),
}

fn entry() -> impl Strategy<Value = IndexEntry> {
    let expiry = prop_oneof![9 => Just(0), 1 => any::<u64>()];
    (0..1u64 << 48, expiry).prop_map(|(place, expiry)| IndexEntry { place, expiry })
}

/// Few distinct keys of many shapes: short, with shared beginnings of all lengths, counting, huge.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let repeated = |len: usize, tail: Vec<u8>| {
        let mut key = vec![b'p'; len];
        key.extend(tail);
        key
    };
    prop_oneof![
        6 => prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)], 1..5),
        8 => (0..4000u32).prop_map(|n| format!("user{n:019}").into_bytes()),
        3 => (0..300usize, prop::collection::vec(any::<u8>(), 1..3)).prop_map(move |(len, tail)| repeated(len, tail)),
        3 => (prop_oneof![Just(14usize), Just(15), Just(142), Just(143), Just(1900), Just(2100)], prop::collection::vec(0..4u8, 1..6))
            .prop_map(move |(len, tail)| repeated(len, tail)),
        1 => (prop_oneof![Just(65_530usize), Just(40_000), Just(16_398)], prop::collection::vec(0..3u8, 1..5)).prop_map(move |(len, tail)| repeated(len, tail)),
        1 => (0..40u8, 65_000..65_536usize).prop_map(|(first, len)| vec![first; len]),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![key().prop_map(Bound::Included), key().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (key(), entry()).prop_map(|(key, entry)| Step::Insert(key, entry)),
        5 => key().prop_map(Step::Remove),
        2 => key().prop_map(Step::Get),
        3 => (key(), any::<bool>(), 0..1u64 << 48).prop_map(|(key, is_there, to)| Step::Relocate(key, is_there, to)),
        2 => (bound(), bound(), any::<bool>(), 1..200usize).prop_map(|(from, to, reverse, limit)| Step::Scan(from, to, reverse, limit)),
        1 => (key(), 0..7usize).prop_map(|(mut key, len)| { key.truncate(len.max(1)); Step::Clear(key) }),
    ]
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn scan(tree: &Tree, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool, limit: usize) -> Items {
    let mut items = Vec::new();
    tree.scan(from, to, reverse, &mut |key, entry| {
        items.push((key.to_vec(), entry));
        if items.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    items
}

fn scan_model(model: &Model, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool, limit: usize) -> Items {
    let inside = |key: &[u8]| {
        let above = match from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        let below = match to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        };
        above && below
    };
    let items = model.iter().filter(|(key, _)| inside(key)).map(|(key, entry)| (key.clone(), *entry));
    if reverse { items.rev().take(limit).collect() } else { items.take(limit).collect() }
}

fn all(tree: &Tree) -> Items {
    scan(tree, Bound::Unbounded, Bound::Unbounded, false, usize::MAX)
}

/// Fingers of earlier steps, however old.
#[derive(Default)]
struct Fingers {
    of_keys: BTreeMap<Vec<u8>, Finger>,
    taken: usize,
}

impl Fingers {
    /// The one of this key, of the key after it, or none, in turn.
    fn one(&mut self, key: &[u8]) -> Option<Finger> {
        self.taken += 1;
        match self.taken % 3 {
            0 => None,
            1 => self.of_keys.get(key).copied(),
            _ => self.of_keys.range(key.to_vec()..).nth(1).map(|(_, finger)| *finger),
        }
    }
}

fn run(steps: Vec<Step>) {
    let (mut tree, mut model, mut fingers) = (Tree::new(), Model::new(), Fingers::default());
    for step in steps {
        match step {
            Step::Insert(key, entry) => {
                assert_eq!(tree.insert_at(fingers.one(&key), &key, entry), model.insert(key.clone(), entry));
                let (found, finger) = tree.find(&key).unwrap();
                assert_eq!((tree.get(&key), found), (Some(entry), entry));
                fingers.of_keys.insert(key, finger);
            }
            Step::Remove(key) => assert_eq!(tree.remove(&key), model.remove(&key)),
            Step::Get(key) => {
                let found = tree.find_at(fingers.one(&key), &key);
                assert_eq!(found.map(|(entry, _)| entry), model.get(&key).copied());
                found.and_then(|(_, finger)| fingers.of_keys.insert(key, finger));
            }
            Step::Relocate(key, is_there, to) => {
                let place = model.get(&key).map_or(7, |entry| entry.place);
                let from = if is_there { place } else { place ^ 1 };
                let is_moved = is_there && model.contains_key(&key);
                assert_eq!(tree.relocate(fingers.one(&key), &key, from, to), is_moved);
                model.get_mut(&key).filter(|_| is_moved).into_iter().for_each(|entry| entry.place = to);
                assert_eq!(tree.get(&key), model.get(&key).copied());
            }
            Step::Scan(from, to, reverse, limit) => {
                let (from, to) = (borrowed(&from), borrowed(&to));
                assert!(scan(&tree, from, to, reverse, limit) == scan_model(&model, from, to, reverse, limit));
            }
            Step::Clear(prefix) => {
                let keys: Vec<Vec<u8>> = model.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
                for key in keys {
                    assert_eq!(tree.remove(&key), model.remove(&key));
                }
            }
        }
        assert_eq!(tree.len(), model.len());
        tree.check().unwrap();
    }
    let items: Items = model.into_iter().collect();
    assert!(all(&tree) == items);
    assert!(all(&build(&items)) == items);
    for (key, entry) in &items {
        assert_eq!(tree.remove(key), Some(*entry));
    }
    tree.check().unwrap();
    assert!(tree.is_empty());
    let empty = Tree::new().footprint_bytes();
    assert!(tree.footprint_bytes() <= empty + (24 << 10), "{} bytes when empty", tree.footprint_bytes());
}

fn build(items: &Items) -> Tree {
    let mut builder = Builder::new();
    items.iter().for_each(|(key, entry)| builder.push(key, *entry));
    let tree = builder.finish();
    tree.check().unwrap();
    tree
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        rng_algorithm: prop::test_runner::RngAlgorithm::ChaCha,
        rng_seed: prop::test_runner::RngSeed::Fixed(14),
        ..ProptestConfig::default()
    })]

    #[test]
    fn agrees_with_a_btree_map(steps in prop::collection::vec(step(), 1..400)) {
        run(steps);
    }
}

fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || random.next_u64())
}

fn at(place: u64) -> IndexEntry {
    IndexEntry { place, expiry: 0 }
}

fn user(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

#[test]
fn thousands_of_keys_in_any_order_of_arrival() {
    const KEYS: u64 = 30_000;
    let random: Vec<u64> = numbers(1).take(KEYS as usize).collect();
    let rising: Vec<u64> = (0..KEYS).map(|n| n * 7).collect();
    let falling: Vec<u64> = rising.iter().rev().copied().collect();
    for order in [random, rising, falling] {
        let mut tree = Tree::new();
        for (place, number) in order.iter().enumerate() {
            assert_eq!(tree.insert(&user(*number), at(place as u64)), None);
        }
        tree.check().unwrap();
        let mut sorted: Items =
            order.iter().enumerate().map(|(place, number)| (user(*number), at(place as u64))).collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(all(&tree) == sorted);
        let mut backwards = scan(&tree, Bound::Unbounded, Bound::Unbounded, true, usize::MAX);
        backwards.reverse();
        assert!(backwards == sorted);
        assert!(all(&build(&sorted)) == sorted);
        for number in &order[..order.len() / 2] {
            assert!(tree.remove(&user(*number)).is_some());
        }
        tree.check().unwrap();
        for (place, number) in order.iter().enumerate() {
            let expected = (place >= order.len() / 2).then(|| at(place as u64));
            assert_eq!(tree.get(&user(*number)), expected);
        }
    }
}

#[test]
fn an_item_costs_its_suffix_and_at_most_twelve_bytes() {
    // 8-byte keys: 40,000 of them share a little under two bytes with a neighbour; 24-byte ones
    // four more and the leading digits.
    for (name, suffix, key) in
        [("8 B", 6.1, (|n| n.to_be_bytes().to_vec()) as fn(u64) -> Vec<u8>), ("24 B", 15.4, user as fn(u64) -> Vec<u8>)]
    {
        let mut tree = Tree::new();
        let mut items: Items = numbers(2).take(40_000).map(|n| (key(n), at(n >> 16))).collect();
        for (key, entry) in &items {
            tree.insert(key, *entry);
        }
        let per_item = tree.footprint_bytes() as f64 / items.len() as f64;
        assert!(per_item < suffix + 12.0, "{name} keys: {per_item} B per item after inserts");
        items.sort_by(|a, b| a.0.cmp(&b.0));
        let built = build(&items).footprint_bytes() as f64 / items.len() as f64;
        assert!(built < per_item, "{name} keys: {built} B per item built, {per_item} inserted");
    }
}

#[test]
fn memory_comes_back_after_deletes() {
    let mut tree = Tree::new();
    let random: Vec<u64> = numbers(3).take(40_000).collect();
    random.iter().for_each(|n| _ = tree.insert(&user(*n), at(1)));
    let full = tree.footprint_bytes();
    // Every key but one in ten, spread evenly: leaves have to merge for this to free anything but
    // slack.
    random.iter().filter(|n| *n % 10 != 0).for_each(|n| _ = tree.remove(&user(*n)));
    tree.check().unwrap();
    assert!(
        tree.footprint_bytes() * 100 < full * 16,
        "{} of {full} bytes left for a tenth of the keys",
        tree.footprint_bytes()
    );
    random.iter().for_each(|n| _ = tree.remove(&user(*n)));
    tree.check().unwrap();
    assert!(tree.footprint_bytes() < 32 << 10, "{} bytes left in an empty tree", tree.footprint_bytes());
}

#[test]
fn only_leaves_with_an_expiry_pay_for_it() {
    let mut tree = Tree::new();
    let keys: Vec<Vec<u8>> = numbers(4).take(20_000).map(user).collect();
    keys.iter().for_each(|key| _ = tree.insert(key, at(1)));
    let without = tree.footprint_bytes();
    let expiring = IndexEntry { place: 2, expiry: 77 };
    assert_eq!(tree.insert(&keys[5], expiring), Some(at(1)));
    assert_eq!(tree.get(&keys[5]), Some(expiring));
    tree.check().unwrap();
    assert!(tree.footprint_bytes() < without + 1024);
    keys.iter().for_each(|key| _ = tree.insert(key, expiring));
    tree.check().unwrap();
    assert!(tree.footprint_bytes() > without + 4 * keys.len());
    assert!(all(&tree).iter().all(|(_, entry)| *entry == expiring));
}

#[test]
#[should_panic(expected = "must ascend")]
fn a_builder_refuses_keys_out_of_order() {
    let mut builder = Builder::new();
    builder.push(b"b", at(1));
    builder.push(b"b", at(2));
}

#[test]
fn removing_all_keys_of_the_first_leaves_passes_their_range_on() {
    // The first child of an inner node goes away again and again, and its range is used once more.
    let mut tree = Tree::new();
    let long = |n: u32| format!("{n:06}{}", "x".repeat(150)).into_bytes();
    (0..20_000).for_each(|n| _ = tree.insert(&long(n), at(u64::from(n))));
    for start in [0, 5_000, 9_000] {
        (start..start + 4_000).for_each(|n| _ = tree.remove(&long(n)));
        tree.check().unwrap();
        (start..start + 2_000).rev().for_each(|n| _ = tree.insert(&long(n), at(u64::from(n))));
        tree.check().unwrap();
    }
}
