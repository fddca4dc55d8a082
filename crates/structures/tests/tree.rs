//! Trees do what collections of the standard library do, whichever nodes are missing at first.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::random::Random;
use stratakv_structures::tree::{
    BY_MEMBER, MAIN, NODE_BYTES, NodeName, Nodes, ReadNodes, SearchNode, SearchedNode, TOP_BYTES, TreeError, TreeRoot,
    is_tree, score_key,
};
use stratakv_structures::{Hash, Kind, List, Set, SortedSet, len};

/// Nodes as they lie in a store, those that were read of them, and what a call has changed.
#[derive(Default)]
struct Bench {
    stored: HashMap<u64, Bytes>,
    at_hand: HashSet<u64>,
    changed: BTreeMap<u64, Option<Bytes>>,
    missing: RefCell<HashSet<u64>>,
    useful: RefCell<HashSet<u64>>,
    searched: RefCell<HashMap<u64, Arc<SearchedNode>>>,
    /// How often what was changed with a node was what a search would find.
    kept: Cell<usize>,
}

impl ReadNodes for Bench {
    fn read(&self, number: u64, bytes: u64) -> Result<Bytes, TreeError> {
        if let Some(changed) = self.changed.get(&number) {
            return Ok(changed.clone().expect("a node that was removed is not read"));
        }
        let image = self.stored.get(&number).unwrap_or_else(|| panic!("there is no node {number}"));
        assert_eq!(image.len() as u64, bytes, "a parent knows how long its children are");
        if self.at_hand.contains(&number) {
            return Ok(image.clone());
        }
        self.missing.borrow_mut().insert(number);
        Err(TreeError::Missing)
    }

    fn read_searched(&self, number: u64, bytes: u64, search: &SearchNode<'_>) -> Result<Arc<SearchedNode>, TreeError> {
        let image = self.read(number, bytes)?;
        let fresh = Arc::new(search(image.clone())?);
        let kept = self.searched.borrow().get(&number).filter(|kept| *kept.image() == image).cloned();
        if let Some(kept) = kept {
            assert_eq!(kept, fresh, "what is kept is what a search finds");
            self.kept.set(self.kept.get() + 1);
            return Ok(kept);
        }
        self.searched.borrow_mut().insert(number, Arc::clone(&fresh));
        Ok(fresh)
    }
}

impl Nodes for Bench {
    fn is_at_hand(&self, number: u64, _: u64) -> bool {
        let is = self.changed.contains_key(&number) || self.at_hand.contains(&number);
        if !is {
            self.useful.borrow_mut().insert(number);
        }
        is
    }

    fn write(&mut self, number: u64, image: Bytes) {
        assert_eq!(NodeName::of(&image).unwrap().number, number);
        self.changed.insert(number, Some(image));
    }

    fn write_searched(&mut self, number: u64, node: SearchedNode) {
        self.write(number, node.image().clone());
        self.searched.borrow_mut().insert(number, Arc::new(node));
    }

    fn free(&mut self, number: u64) {
        self.changed.insert(number, None);
    }

    /// As where two thirds of the numbers lie in other shards.
    fn usable_number(&self, from: u64) -> u64 {
        from.next_multiple_of(3)
    }
}

impl Bench {
    /// Carries out a call on a root, and reads what it misses; how often that was.
    fn run<T>(
        &mut self,
        root: &mut TreeRoot,
        call: impl Fn(&mut TreeRoot, &mut Bench) -> Result<T, TreeError>,
    ) -> (T, usize) {
        self.at_hand.clear();
        let mut rounds = 0;
        loop {
            let mut changed_root = root.clone();
            let done = call(&mut changed_root, self);
            if let Err(TreeError::Missing) = done {
                self.changed.clear();
                let mut missing = self.missing.take();
                assert!(!missing.is_empty());
                missing.extend(self.useful.take());
                self.at_hand.extend(missing);
                rounds += 1;
                continue;
            }
            for (number, image) in std::mem::take(&mut self.changed) {
                match image {
                    Some(image) => _ = self.stored.insert(number, image),
                    None => assert!(self.stored.remove(&number).is_some() || root.is_empty()),
                }
            }
            *root = changed_root;
            self.useful.take();
            return (done.unwrap(), rounds);
        }
    }

    /// Every node is of the tree, and the root is as long as it may be.
    fn check(&mut self, root: &TreeRoot) {
        let mut root = root.clone();
        self.at_hand = self.stored.keys().copied().collect();
        let report = root.check(self).unwrap();
        assert_eq!((report.elements, report.nodes), (root.len(), self.stored.len() as u64));
        match root.encode().unwrap() {
            Some(value) => {
                assert!(is_tree(&value) && value.len() <= 100 + 2 * (TOP_BYTES + 400), "{}", value.len());
                assert_eq!(len(&value), Ok(root.len() as usize));
                assert_eq!(TreeRoot::parse(&value), Ok(root.clone()));
                assert_eq!(TreeRoot::id_of(&value), Some(root.id()));
            }
            None => assert!(root.is_empty() && self.stored.is_empty()),
        }
        self.at_hand.clear();
        self.run(&mut root, |root, bench| root.all(bench, MAIN, u64::MAX));
    }
}

fn bytes(random: &mut Random, number: u64) -> Vec<u8> {
    let long = if random.below(200) == 0 { 3000 } else { 40 };
    [format!("{number:06}").into_bytes(), vec![b'x'; random.below(long) as usize]].concat()
}

#[test]
fn a_tree_of_fields_is_a_map() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut root = TreeRoot::new(Kind::Hash, 7 + seed);
        let (mut bench, mut model) = (Bench::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
        let mut rounds_max = 0;
        for step in 0..6000u64 {
            // It grows, shrinks, and grows again, at its ends and anywhere.
            let grows = if (2500..4500).contains(&step) { 3 } else { 8 };
            let field = match seed % 3 {
                0 => format!("f{}", random.below(3000)),
                1 => format!("f{step:06}"),
                _ => format!("f{:06}", 6000 - step),
            };
            let value = bytes(&mut random, step);
            if random.below(150) == 0 {
                let from = random.below(3000);
                let many: BTreeMap<Vec<u8>, Vec<u8>> = (0..random.below(300))
                    .map(|at| (format!("f{:06}", from + 7 * at).into_bytes(), value.clone()))
                    .collect();
                let entries: Vec<(&[u8], &[u8])> = many.iter().map(|(field, value)| (&field[..], &value[..])).collect();
                let (new, _) = bench.run(&mut root, |root, bench| root.insert_all(bench, MAIN, &entries));
                let count = many
                    .into_iter()
                    .filter(|(field, value)| model.insert(field.clone(), value.clone()).is_none())
                    .count();
                assert_eq!(new, count as u64);
            } else if random.below(150) == 0 {
                let (from, step) = (random.below(3000), 1 + random.below(9));
                let many: BTreeSet<Vec<u8>> =
                    (0..random.below(300)).map(|at| format!("f{:06}", from + step * at).into_bytes()).collect();
                let keys: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
                let (removed, rounds) = bench.run(&mut root, |root, bench| {
                    root.need_keys(bench, MAIN, keys.iter().rev().copied())?;
                    root.remove_all(bench, MAIN, &keys)
                });
                rounds_max = rounds_max.max(rounds);
                assert_eq!(removed, many.iter().filter(|field| model.remove(*field).is_some()).count() as u64);
            } else if random.below(10) < grows {
                let (is_new, rounds) =
                    bench.run(&mut root, |root, bench| root.insert(bench, MAIN, (field.as_bytes(), &value)));
                assert_eq!(is_new, model.insert(field.into_bytes(), value).is_none());
                rounds_max = rounds_max.max(rounds);
            } else {
                let field = match model.len() {
                    0 => field.into_bytes(),
                    len => model.keys().nth(random.below(len as u64) as usize).unwrap().clone(),
                };
                let (removed, _) = bench.run(&mut root, |root, bench| root.remove(bench, MAIN, &field));
                assert_eq!(removed.map(|value| value.to_vec()), model.remove(&field));
            }
            if step % 500 == 0 {
                bench.check(&root);
                let field = format!("f{}", random.below(3000)).into_bytes();
                let (found, _) = bench.run(&mut root, |root, bench| root.get(bench, MAIN, &field));
                assert_eq!(found.as_deref(), model.get(&field).map(Vec::as_slice));
                let asked: BTreeSet<Vec<u8>> =
                    (0..200).map(|_| format!("f{:06}", random.below(6000)).into_bytes()).collect();
                let keys: Vec<&[u8]> = asked.iter().map(Vec::as_slice).collect();
                let (values, rounds) = bench.run(&mut root, |root, bench| root.get_all(bench, MAIN, &keys));
                assert!(rounds <= 4, "{rounds}: all leaves at once");
                let wanted = asked.iter().map(|field| model.get(field).map(Vec::as_slice));
                assert!(values.iter().map(Option::as_deref).eq(wanted));
                let (place, _) = bench.run(&mut root, |root, bench| root.place_of(bench, MAIN, &field));
                let before = model.range::<Vec<u8>, _>(..&field).count() as u64;
                assert_eq!(place, (before, model.contains_key(&field)));
                let len = model.len() as u64;
                let places: BTreeSet<u64> = (0..random.below(500)).map(|_| random.below(len.max(1))).collect();
                let places: Vec<u64> = places.into_iter().filter(|place| *place < len).collect();
                let (drawn, rounds) = bench.run(&mut root, |root, bench| root.entries_at(bench, MAIN, &places));
                assert!(rounds <= 4, "{rounds}: all leaves at once");
                let fields: Vec<&Vec<u8>> = model.keys().collect();
                assert!(drawn.iter().map(|entry| &entry.key[..]).eq(places.iter().map(|at| &fields[*at as usize][..])));
                assert!(matches!(root.entries_at(&bench, MAIN, &[len]), Err(TreeError::Damaged(_))));
                let range = random.below(100)..100 + random.below(4000);
                let (entries, _) =
                    bench.run(&mut root, |root, bench| root.entries(bench, MAIN, range.clone(), u64::MAX));
                let wanted = model.iter().skip(range.start as usize).take((range.end - range.start) as usize);
                assert!(
                    entries
                        .iter()
                        .map(|entry| (&entry.key[..], &entry.value[..]))
                        .eq(wanted.map(|(k, v)| (&k[..], &v[..])))
                );
            }
        }
        assert!(rounds_max <= 5, "{rounds_max}: one for each level");
        assert!(bench.kept.get() > 1000, "{} times what was kept was used", bench.kept.get());
        let bytes: usize = model.iter().map(|(field, value)| 2 + field.len() + value.len()).sum();
        assert!(root.element_bytes() >= bytes as u64 && root.element_bytes() <= bytes as u64 * 11 / 10);
        bench.check(&root);
        let (_, rounds) = bench.run(&mut root, |root, bench| root.all(bench, MAIN, u64::MAX));
        assert!((1..=4).contains(&rounds), "{rounds}: all leaves at once");
        bench.run(&mut root, |root, bench| root.free_all(bench));
        bench.check(&root);
        assert_eq!((root.len(), root.element_bytes()), (0, 0));
    }
}

#[test]
fn a_tree_of_places_is_a_list() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut root = TreeRoot::new(Kind::List, 1);
        let (mut bench, mut model) = (Bench::default(), Vec::<Vec<u8>>::new());
        for step in 0..4000u64 {
            let len = model.len() as u64;
            let value = bytes(&mut random, step);
            match random.below(20) {
                0..14 => {
                    let place = match seed % 3 {
                        0 => random.below(len + 1),
                        1 => len,
                        _ => 0,
                    };
                    bench.run(&mut root, |root, bench| root.insert_at(bench, place, &value));
                    model.insert(place as usize, value);
                }
                14..16 if len > 0 => {
                    let place = random.below(len);
                    bench.run(&mut root, |root, bench| root.set_at(bench, place, &value));
                    model[place as usize] = value;
                }
                16 if len > 0 => {
                    let place = random.below(len);
                    let (entry, _) = bench.run(&mut root, |root, bench| root.get_at(bench, MAIN, place));
                    assert_eq!(entry.unwrap().value, model[place as usize]);
                }
                _ => {
                    let start = random.below(len + 1);
                    let most = if random.below(100) == 0 { len } else { 10 };
                    let end = (start + random.below(most + 1)).min(len);
                    bench.run(&mut root, |root, bench| root.remove_places(bench, MAIN, start..end));
                    model.drain(start as usize..end as usize);
                }
            }
            if step % 250 == 0 {
                bench.check(&root);
                let (all, _) = bench.run(&mut root, |root, bench| root.all(bench, MAIN, u64::MAX));
                assert!(all.iter().map(|entry| &entry.value[..]).eq(model.iter().map(Vec::as_slice)));
            }
        }
        let len = model.len() as u64;
        bench.run(&mut root, |root, bench| root.remove_places(bench, MAIN, 0..len));
        bench.check(&root);
    }
}

/// Nodes that are filled in order are full, and those of a tree that was filled at once.
#[test]
fn nodes_are_filled_in_order_without_waste() {
    let fields: Vec<String> = (0..20_000).map(|number| format!("field:{number:08}")).collect();
    let entries = || fields.iter().map(|field| (field.as_bytes(), &b"value"[..]));
    let (mut root, mut bench) = (TreeRoot::new(Kind::Hash, 3), Bench::default());
    for entry in entries() {
        bench.run(&mut root, |root, bench| root.insert(bench, MAIN, entry));
    }
    bench.check(&root);
    let (mut filled, mut other) = (TreeRoot::new(Kind::Hash, 4), Bench::default());
    other.run(&mut filled, |root, bench| root.fill(bench, MAIN, entries()));
    other.check(&filled);
    for (root, bench) in [(&root, &bench), (&filled, &other)] {
        let bytes: usize = bench.stored.values().map(Bytes::len).sum();
        assert!((bytes as u64) < root.element_bytes() * 108 / 100, "{bytes} beside {}", root.element_bytes());
        assert!(bench.stored.values().all(|image| image.len() <= NODE_BYTES));
    }
}

/// Both trees of a sorted set; a member that is in one of them only is found by a check.
#[test]
fn a_check_finds_what_is_wrong() {
    let (mut root, mut bench) = (TreeRoot::new(Kind::SortedSet, 9), Bench::default());
    for number in 0..2000u32 {
        let (score, member) = (score_key(f64::from(number % 77)), format!("member:{number}"));
        let by_score = [&score[..], member.as_bytes()].concat();
        bench.run(&mut root, |root, bench| {
            root.insert(bench, MAIN, (&by_score, b""))?;
            root.insert(bench, BY_MEMBER, (member.as_bytes(), &score))
        });
    }
    bench.check(&root);
    bench.at_hand = bench.stored.keys().copied().collect();
    let numbers: Vec<u64> = bench.stored.keys().copied().collect();
    for number in numbers {
        let whole = bench.stored[&number].clone();
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 1;
            bench.stored.insert(number, damaged.into());
            assert!(root.check(&bench).is_err(), "byte {at} of node {number}");
        }
        bench.stored.insert(number, whole);
    }
    let value = root.encode().unwrap().unwrap();
    for at in 0..value.len() {
        let mut damaged = value.to_vec();
        damaged[at] ^= 1;
        if let Ok(damaged) = TreeRoot::parse(&damaged.into()) {
            let is_unseen = (12..28).contains(&at);
            assert!(is_unseen || damaged != root, "byte {at}");
        }
    }
}

/// A node of a higher version is a newer program's if it is where its parent says; else it is
/// damage. A check walks on behind it.
#[test]
fn a_node_of_a_newer_program_is_told_from_damage() {
    let (mut root, mut bench) = (TreeRoot::new(Kind::Set, 9), Bench::default());
    for number in 0..1500u32 {
        let member = format!("member:{number:0100}");
        bench.run(&mut root, |root, bench| root.insert(bench, MAIN, (member.as_bytes(), b"")));
    }
    bench.at_hand = bench.stored.keys().copied().collect();
    let numbers: Vec<u64> = bench.stored.keys().copied().collect();
    let whole = bench.stored.clone();
    let damage = |bench: &Bench| match root.check(bench) {
        Err(TreeError::Damaged(damaged)) => damaged,
        other => panic!("{other:?}"),
    };
    let changed = |number: u64, changes: &[(usize, u8)]| -> Bytes {
        let mut image = whole[&number].to_vec();
        changes.iter().for_each(|(at, bit)| image[*at] ^= *bit);
        image.into()
    };
    let mut levels = HashSet::new();
    for (at, number) in numbers.iter().enumerate() {
        levels.insert(whole[number][2]);
        bench.stored.insert(*number, changed(*number, &[(0, 2)]));
        assert!(damage(&bench).is_newer(), "node {number}");
        // Tree, level, number.
        for place in [1, 2, 16] {
            bench.stored.insert(*number, changed(*number, &[(0, 2), (place, 1)]));
            assert!(!damage(&bench).is_newer(), "byte {place} of node {number}");
        }
        // Before or behind it a leaf is damaged: nodes above it do not hide the others.
        bench.stored.insert(*number, changed(*number, &[(0, 2)]));
        let other = numbers[(at + numbers.len() / 2) % numbers.len()];
        if whole[number][2] == 0 && whole[&other][2] == 0 {
            bench.stored.insert(other, changed(other, &[(4, 1)]));
            assert!(!damage(&bench).is_newer(), "nodes {number} and {other}");
            bench.stored.insert(other, whole[&other].clone());
        }
        bench.stored.insert(*number, whole[number].clone());
    }
    assert!(levels.len() > 1, "{levels:?}");
    assert!(root.check(&bench).is_ok());
}

/// A packed value becomes a tree, and the tree the same value again.
#[test]
fn what_is_packed_becomes_a_tree_and_comes_back() {
    let texts: Vec<Vec<u8>> = (0..5000).map(|number| format!("element:{number:05}").into_bytes()).collect();
    let slices = || texts.iter().map(Vec::as_slice);
    let mut hash = Hash::default();
    hash.insert_all(slices().map(|text| (text, &b"value"[..])));
    let list = List { elements: slices().rev().collect() };
    let mut set = Set::default();
    set.insert_all(slices());
    let mut sorted_set = SortedSet::default();
    sorted_set.insert_all(slices().enumerate().map(|(at, text)| (text, (at % 90) as f64 - 40.5)));
    let most = usize::MAX;
    let values = [hash.encode(most), list.encode(most), set.encode(most), sorted_set.encode(most)];
    for packed in values.map(|value| value.unwrap().unwrap()) {
        let mut bench = Bench::default();
        let mut root = TreeRoot::new(Kind::Set, 0);
        bench.run(&mut root, |root, bench| {
            *root = TreeRoot::of_packed(&packed, 5, bench)?;
            Ok(())
        });
        bench.check(&root);
        assert!(root.element_bytes().abs_diff(packed.len() as u64) < 100);
        let (again, rounds) = bench.run(&mut root, |root, bench| root.pack(bench, 1 << 20));
        assert!(again == packed && rounds <= 4);
        assert_eq!(root.pack(&bench, 1000), Err(TreeError::TooLong { bytes: root.element_bytes() }));
    }
}
