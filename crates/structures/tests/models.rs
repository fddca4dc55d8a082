//! Each structure does what a collection of the standard library does, through its bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use stratakv_structures::list::{from_front, range};
use stratakv_structures::{Hash, Kind, List, STRUCTURE_FLAGS, Set, SortedSet, kind_of, len};

const BYTES_MAX: usize = 1 << 20;

type Bytes = Vec<u8>;

/// Few short ones that meet each other, and some whose length takes two bytes.
fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![8 => vec(0u8..3, 0..3), 1 => vec(any::<u8>(), 120..140)]
}

fn score() -> impl Strategy<Value = f64> {
    let chosen = vec![0.0, -0.0, 1.0, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, 1e300];
    prop_oneof![prop::sample::select(chosen), any::<f64>().prop_filter("a score", |score| !score.is_nan())]
}

fn slices(all: &[Bytes]) -> impl Iterator<Item = &[u8]> {
    all.iter().map(Vec::as_slice)
}

proptest! {
    #[test]
    fn a_hash_is_a_map(steps in vec((vec((bytes(), bytes()), 0..6), vec(bytes(), 0..3)), 1..8)) {
        let mut model = BTreeMap::<Bytes, Bytes>::new();
        let mut record: Option<Bytes> = None;
        for (inserted, removed) in &steps {
            let value = record.take();
            let mut hash = value.as_deref().map_or(Ok(Hash::default()), Hash::parse).unwrap();
            let new = inserted.iter().filter(|(field, value)| model.insert(field.clone(), value.clone()).is_none());
            let new = new.count();
            if inserted.len() == 1 {
                prop_assert_eq!(hash.insert(&inserted[0].0, &inserted[0].1), new == 1);
            } else {
                let inserted = inserted.iter().map(|(field, value)| (&field[..], &value[..]));
                prop_assert_eq!(hash.insert_all(inserted), new);
            }
            let gone = removed.iter().filter(|field| model.remove(*field).is_some()).count();
            if removed.len() == 1 {
                prop_assert_eq!(hash.remove(&removed[0]), gone == 1);
            } else {
                prop_assert_eq!(hash.remove_all(slices(removed)), gone);
            }
            record = hash.encode(BYTES_MAX).unwrap();
            prop_assert_eq!(record.is_none(), model.is_empty());
            let Some(value) = &record else { continue };
            prop_assert_eq!((kind_of(STRUCTURE_FLAGS, value), len(value)), (Kind::Hash, Ok(model.len())));
            let hash = Hash::parse(value).unwrap();
            prop_assert!(hash.iter().eq(model.iter().map(|(field, value)| (&field[..], &value[..]))));
            for field in inserted.iter().map(|entry| &entry.0).chain(removed) {
                let expected = model.get(field).map(Vec::as_slice);
                prop_assert_eq!((hash.get(field), Hash::lookup(value, field)), (expected, Ok(expected)));
            }
        }
    }

    #[test]
    fn a_set_is_a_set(
        steps in vec((vec(bytes(), 0..6), vec(bytes(), 0..3)), 1..8),
        others in vec(bytes(), 0..9),
    ) {
        let mut model = BTreeSet::<Bytes>::new();
        let mut record: Option<Bytes> = None;
        let other_model: BTreeSet<Bytes> = others.iter().cloned().collect();
        let mut other = Set::default();
        prop_assert_eq!(other.insert_all(slices(&others)), other_model.len());
        for (inserted, removed) in &steps {
            let value = record.take();
            let mut set = value.as_deref().map_or(Ok(Set::default()), Set::parse).unwrap();
            let new = inserted.iter().filter(|member| model.insert((*member).clone())).count();
            prop_assert_eq!(set.insert_all(slices(inserted)), new);
            let gone = removed.iter().filter(|member| model.remove(*member)).count();
            prop_assert_eq!(set.remove_all(slices(removed)), gone);
            let mut both = set.clone();
            both.intersect(&other);
            prop_assert!(both.iter().eq(model.intersection(&other_model)));
            record = set.encode(BYTES_MAX).unwrap();
            prop_assert_eq!(record.is_none(), model.is_empty());
            let Some(value) = &record else { continue };
            prop_assert_eq!((kind_of(STRUCTURE_FLAGS, value), len(value)), (Kind::Set, Ok(model.len())));
            let set = Set::parse(value).unwrap();
            prop_assert!(set.iter().eq(&model));
            for member in inserted.iter().chain(removed) {
                let expected = model.contains(member);
                prop_assert_eq!((set.contains(member), Set::lookup(value, member)), (expected, Ok(expected)));
            }
        }
    }

    #[test]
    fn a_list_is_a_deque(steps in vec((0u8..4, bytes()), 1..30), place in -40i64..40) {
        let mut model = VecDeque::<Bytes>::new();
        let mut record: Option<Bytes> = None;
        for (what, element) in &steps {
            let value = record.take();
            let mut list = value.as_deref().map_or(Ok(List::default()), List::parse).unwrap();
            match what {
                0 => {
                    list.elements.push_front(element);
                    model.push_front(element.clone());
                }
                3 => {
                    let popped = list.elements.pop_front().map(<[u8]>::to_vec);
                    prop_assert_eq!(popped, model.pop_front());
                }
                _ => {
                    list.elements.push_back(element);
                    model.push_back(element.clone());
                }
            }
            record = list.encode(BYTES_MAX).unwrap();
            prop_assert_eq!(record.is_none(), model.is_empty());
            let Some(value) = &record else { continue };
            prop_assert_eq!((kind_of(STRUCTURE_FLAGS, value), len(value)), (Kind::List, Ok(model.len())));
            prop_assert!(List::parse(value).unwrap().elements.iter().copied().eq(&model));
            let index = if place < 0 { place + model.len() as i64 } else { place };
            let expected = usize::try_from(index).ok().and_then(|index| model.get(index)).map(Vec::as_slice);
            prop_assert_eq!(List::lookup(value, place), Ok(expected));
        }
    }

    #[test]
    fn a_sorted_set_is_a_map_in_order_of_scores(
        steps in vec((vec((bytes(), score()), 0..6), vec(bytes(), 0..3)), 1..8),
        bound in score(),
    ) {
        let mut model = BTreeMap::<Bytes, f64>::new();
        let mut record: Option<Bytes> = None;
        for (inserted, removed) in &steps {
            let value = record.take();
            let mut set = value.as_deref().map_or(Ok(SortedSet::default()), SortedSet::parse).unwrap();
            let before = set.scores_of(inserted.iter().map(|entry| &entry.0[..]));
            prop_assert!(before.iter().all(|(member, score)| model.get(*member).copied() == *score));
            set.insert_all(inserted.iter().map(|(member, score)| (&member[..], *score)));
            model.extend(inserted.iter().cloned());
            let gone = removed.iter().filter(|member| model.remove(*member).is_some()).count();
            prop_assert_eq!(set.remove_all(slices(removed)), gone);
            record = set.encode(BYTES_MAX).unwrap();
            prop_assert_eq!(record.is_none(), model.is_empty());
            let Some(value) = &record else { continue };
            prop_assert_eq!((kind_of(STRUCTURE_FLAGS, value), len(value)), (Kind::SortedSet, Ok(model.len())));
            let mut set = SortedSet::parse(value).unwrap();
            let mut expected: Vec<(&[u8], f64)> = model.iter().map(|(member, score)| (&member[..], *score)).collect();
            expected.sort_by(|one, other| one.1.partial_cmp(&other.1).unwrap().then(one.0.cmp(other.0)));
            prop_assert!(set.iter().eq(expected.iter().copied()));
            let below = expected.iter().filter(|entry| entry.1 < bound).count();
            prop_assert_eq!(set.count_while(|_, score| score < bound), below);
            for (rank, (member, score)) in expected.iter().enumerate() {
                prop_assert_eq!((set.rank(member), SortedSet::lookup(value, member)), (Some(rank), Ok(Some(*score))));
            }
            prop_assert_eq!(set.remove_places(0..below), &expected[..below]);
            prop_assert!(set.iter().eq(expected[below..].iter().copied()));
        }
    }
}

#[test]
fn places_count_from_both_ends() {
    for (place, expected) in [(0, Some(0)), (2, Some(2)), (3, None), (-1, Some(2)), (-3, Some(0)), (-4, None)] {
        assert_eq!(from_front(place, 3), expected, "{place}");
    }
    assert_eq!((from_front(i64::MIN, 3), from_front(i64::MAX, 3), from_front(0, 0)), (None, None, None));
    for (first, last, expected) in [
        (0, -1, 0..3),
        (1, 1, 1..2),
        (-2, -1, 1..3),
        (2, 1, 2..2),
        (5, 9, 3..3),
        (0, -9, 0..0),
        (i64::MIN, i64::MAX, 0..3),
        (i64::MAX, i64::MIN, 3..3),
    ] {
        assert_eq!(range(first, last, 3), expected, "{first} {last}");
    }
}

#[test]
fn a_score_that_is_no_number_is_never_written() {
    let mut set = SortedSet::default();
    set.insert_all([(&b"a"[..], f64::NAN), (b"b", 1.0)]);
    assert!(set.iter().eq([(&b"b"[..], 1.0)]));
    let mut value = set.encode(BYTES_MAX).unwrap().unwrap();
    value[12..20].copy_from_slice(&f64::NAN.to_bits().to_le_bytes());
    assert!(SortedSet::parse(&value).is_err() && SortedSet::lookup(&value, b"b").is_err());
}
