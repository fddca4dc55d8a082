//! What a table answers, beside a sorted list of what was put into it.

use stratakv_base::Expiry;
use stratakv_base::random::Random;

use super::*;
use crate::cursor::Cursor;
use crate::table::{TableCursor, bytes_between, entries_of_block, find, get, key_hash, may_contain, verify};

/// Keys of many kinds: numbers, few letters, long ones with much in common, a page and more, the
/// longest.
fn key(random: &mut Random, kind: u64) -> Vec<u8> {
    let number = random.below(3_000);
    match kind {
        0 => format!("user{number:08}").into_bytes(),
        1 => (0..1 + random.below(6)).map(|_| [0, 1, 0xfe, 0xff][random.below(4) as usize]).collect(),
        2 => {
            let mut key = vec![b'x'; 100 + random.below(400) as usize];
            key.extend_from_slice(&number.to_be_bytes());
            key
        }
        3 => [&vec![b'y'; 3_000 + 500 * random.below(5) as usize][..], &number.to_be_bytes()].concat(),
        4 => [&vec![random.below(3) as u8; 65_532][..], &random.below(20).to_be_bytes()].concat(),
        _ => (0..1 + random.below(40)).map(|_| random.below(256) as u8).collect(),
    }
}

fn value(random: &mut Random, is_dull: bool) -> Vec<u8> {
    let len = match random.below(100) {
        0 => 65_536,
        1..=3 => 3_900 + random.below(300),
        4..=30 => 0,
        _ => random.below(120),
    };
    let mut value = vec![b'.'; len as usize];
    // Dull ones compress.
    let drawn = if is_dull { value.len() / 8 } else { value.len() };
    random.fill(&mut value[..drawn]);
    value
}

fn version(random: &mut Random, key: &[u8], version: u64, is_dull: bool) -> Version {
    let mut made = match random.below(10) {
        0..=1 => return delete(key, version),
        2..=5 => {
            let (file, offset) = (random.below(3) + 8, random.below(1 << 40));
            let value_bytes = 512 + random.below(1 << 26) as u32;
            blob(key, version, Pointer { file, offset, value_bytes, checksum: random.next_u64() as u32 })
        }
        _ => put(key, version, &value(random, is_dull)),
    };
    if random.below(4) == 0 {
        made.meta.flags = random.next_u64() as u32;
    }
    if random.below(4) == 0 {
        made.meta.expiry = Expiry(random.next_u64());
    }
    made
}

/// Versions in order, as many keys as `keys` at most.
fn versions(random: &mut Random, keys: u64) -> Vec<Version> {
    let mostly = random.below(8);
    let mut all: Vec<Vec<u8>> = (0..=random.below(keys))
        .map(|_| {
            let kind = if random.below(20) == 0 { random.below(6) } else { mostly };
            key(random, kind)
        })
        .collect();
    all.sort();
    all.dedup();
    let (mut made, mut is_dull) = (Vec::new(), random.below(2) == 0);
    for key in all {
        is_dull ^= random.below(100) == 0;
        let count = match random.below(60) {
            0 => random.below(600),
            1..=20 => random.below(4),
            _ => 1,
        };
        let mut number = 1 << (11 + random.below(30));
        for _ in 0..count.max(1) {
            number -= 1 + random.below(2) * random.below(3);
            made.push(version(random, &key, number, is_dull));
        }
    }
    made
}

fn some_key(random: &mut Random, versions: &[Version]) -> Vec<u8> {
    if random.below(3) == 0 {
        let kind = random.below(6);
        return key(random, kind);
    }
    let mut key = versions[random.below(versions.len() as u64) as usize].key.clone();
    match random.below(6) {
        0 => key.push(0),
        1 => _ = key.pop(),
        2 => *key.last_mut().unwrap() ^= 1,
        _ => {}
    }
    key
}

/// Where a cursor stands: before all, at one, behind all.
struct Model<'a> {
    versions: &'a [Version],
    at: Option<usize>,
    behind: bool,
}

impl Model<'_> {
    fn stand(&mut self, at: Option<usize>, behind: bool) {
        (self.at, self.behind) = (at.filter(|at| *at < self.versions.len()), behind);
    }

    fn first_from(&self, key: &[u8]) -> usize {
        self.versions.partition_point(|version| &version.key[..] < key)
    }

    fn compare(&self, cursor: &TableCursor<'_>) {
        let wanted = self.at.map(|at| &self.versions[at]);
        assert_eq!(cursor.key(), wanted.map(|version| &version.key[..]));
        assert_eq!(cursor.meta(), wanted.map(|version| version.meta));
        let mut value = Vec::new();
        cursor.value(&mut value).unwrap();
        assert!(value == wanted.map_or(&[][..], |version| &version.value));
    }
}

fn walk(random: &mut Random, versions: &[Version], facts: &TableFacts, store: &Store) {
    let mut cursor = TableCursor::new(facts, store);
    let mut model = Model { versions, at: None, behind: false };
    model.compare(&cursor);
    for _ in 0..if facts.pages > 2_000 { 5 } else { 40 } {
        let key = some_key(random, versions);
        store.drop_some(random);
        match random.below(9) {
            0..=3 => {
                store.until(|| cursor.seek(&key));
                model.stand(Some(model.first_from(&key)), true);
            }
            4..=6 => {
                store.until(|| cursor.seek_before(Some(&key)));
                model.stand(model.first_from(&key).checked_sub(1), false);
            }
            7 => {
                store.until(|| cursor.seek_before(None));
                model.stand(versions.len().checked_sub(1), false);
            }
            _ => {}
        }
        model.compare(&cursor);
        for _ in 0..random.below(4) {
            let forward = random.below(2) == 0;
            let most = [200, 40][random.below(2) as usize];
            for _ in 0..random.below(most) {
                step(&mut cursor, &mut model, store, forward);
            }
        }
    }
}

fn step(cursor: &mut TableCursor<'_>, model: &mut Model<'_>, store: &Store, forward: bool) {
    let last = model.versions.len() - 1;
    if forward {
        store.until(|| cursor.next());
        match model.at {
            Some(at) => model.stand(Some(at + 1), true),
            None if !model.behind => model.stand(Some(0), true),
            None => {}
        }
    } else {
        store.until(|| cursor.prev());
        match model.at {
            Some(at) => model.stand(at.checked_sub(1), false),
            None if model.behind => model.stand(Some(last), false),
            None => {}
        }
    }
    model.compare(cursor);
}

fn look_up(random: &mut Random, versions: &[Version], facts: &TableFacts, store: &Store) {
    for _ in 0..if facts.pages > 2_000 { 20 } else { 300 } {
        let key = some_key(random, versions);
        let near = versions[random.below(versions.len() as u64) as usize].meta.version;
        let at = [u64::MAX, near, near.saturating_sub(1), near + 1, 0][random.below(5) as usize];
        store.drop_some(random);
        let wanted = versions.iter().find(|version| version.key == key && version.meta.version <= at);
        let found = store.until(|| find(facts, store, &key, at));
        assert_eq!(found.as_ref().map(|hit| hit.meta), wanted.map(|version| version.meta), "{key:?} at {at}");
        let again = store.until(|| get(facts, store, &key, at));
        assert_eq!(again.map(|hit| hit.meta), found.as_ref().map(|hit| hit.meta), "the filter knows every key");
        let (Some(hit), Some(wanted)) = (found, wanted) else { continue };
        let mut value = Vec::new();
        hit.value(&mut value).unwrap();
        assert!(value == wanted.value);
        assert!(hit.part().unwrap().is_none_or(|part| part.bytes() == wanted.value));
    }
}

fn tables_are_as_the_model_says(seeds: std::ops::Range<u64>) {
    for (seed, compression) in seeds.flat_map(|seed| [(seed, Compression::None), (seed, Compression::Lz4)]) {
        let mut random = Random::new(seed);
        let keys = [3, 40, 400, 3_000][random.below(4) as usize];
        let versions = versions(&mut random, keys);
        let (facts, parts) = build_with(&versions, [10, 10, 0][random.below(3) as usize], compression);
        for (ordinal, part) in parts.iter().enumerate() {
            verify(part.bytes(), &UUID, FILE, ordinal as u32).unwrap();
        }
        told_facts_are_true(&versions, &facts);
        let store = Store::new(parts);
        look_up(&mut random, &versions, &facts, &store);
        walk(&mut random, &versions, &facts, &store);
        all_bytes_lie_between_the_ends(&versions, &facts, &store);
        all_blocks_have_all_versions(&versions, &facts, &store);
    }
}

fn told_facts_are_true(versions: &[Version], facts: &TableFacts) {
    let numbers = || versions.iter().map(|version| version.meta.version);
    assert_eq!(facts.entries, versions.len() as u64);
    assert_eq!(facts.lowest_version, numbers().min().unwrap());
    assert_eq!(facts.highest_version, numbers().max().unwrap());
    assert_eq!(*facts.first_key, versions[0].key);
    assert_eq!(*facts.last_key, versions[versions.len() - 1].key);
    let deletes = versions.iter().filter(|version| version.meta.body == Body::Delete).count();
    assert_eq!(facts.deletes, deletes as u64);
    for (file, bytes) in &facts.blob {
        let told = versions.iter().filter_map(|version| match version.meta.body {
            Body::Blob(pointer) if pointer.file == *file => Some(u64::from(pointer.value_bytes)),
            _ => None,
        });
        assert_eq!(told.sum::<u64>(), *bytes);
    }
}

fn all_bytes_lie_between_the_ends(versions: &[Version], facts: &TableFacts, store: &Store) {
    let all = store.until(|| bytes_between(facts, store, &facts.first_key, &facts.last_key));
    let data = u64::from(facts.data_pages) * PAGE_BYTES as u64;
    // The last key's blocks do not count; a version takes 33 pages at most.
    let last = versions.iter().rev().take_while(|version| version.key == *facts.last_key).count() as u64;
    assert!(all < data && all + (last * 33 + 1) * PAGE_BYTES as u64 >= data, "{all} of {data}");
    assert_eq!(store.until(|| bytes_between(facts, store, b"", &facts.first_key)), 0);
}

fn all_blocks_have_all_versions(versions: &[Version], facts: &TableFacts, store: &Store) {
    let (mut ordinal, mut at) = (0, 0);
    while ordinal < u64::from(facts.data_pages) {
        let mut found = Vec::new();
        let next = store.until(|| {
            found.clear();
            entries_of_block(store, FILE, ordinal as u32, &mut |key, meta| found.push((key.to_vec(), meta)))
        });
        for (key, meta) in found {
            assert_eq!((&versions[at].key, versions[at].meta), (&key, meta));
            at += 1;
        }
        ordinal = next;
    }
    assert_eq!(at, versions.len());
}

#[test]
fn a_table_answers_as_a_sorted_list_does() {
    tables_are_as_the_model_says(0..40);
}

#[test]
#[ignore = "minutes: many more seeds; by hand: cargo test --release -p stratakv-matrix --lib -- --ignored"]
fn a_table_answers_as_a_sorted_list_does_for_long() {
    tables_are_as_the_model_says(40..3_000);
}

#[test]
fn versions_of_one_key_are_found_across_blocks() {
    let versions: Vec<Version> = (0..1_000).rev().map(|version| put(b"key", version + 1, &[7; 100])).collect();
    let (facts, parts) = build(&versions, 10);
    assert!(facts.data_pages > 20 && facts.index_levels == 1);
    let store = Store::new(parts);
    for version in [1, 2, 500, 999, 1_000, 2_000] {
        let hit = get(&facts, &store, b"key", version).unwrap().unwrap();
        assert_eq!(hit.meta.version, version.min(1_000));
    }
    assert!(get(&facts, &store, b"key", 0).unwrap().is_none());
}

#[test]
fn an_index_of_the_longest_keys_comes_to_an_end() {
    let key = |number: u32| [&[9; 65_536][..], &number.to_be_bytes()].concat();
    let versions: Vec<Version> = (0..40).map(|number| put(&key(number), 1, &[1; 65_536])).collect();
    let (facts, parts) = build(&versions, 10);
    assert_eq!((facts.data_pages, facts.index_levels), (40 * 33, 6));
    let store = Store::new(parts);
    for number in 0..40 {
        let hit = get(&facts, &store, &key(number), 1).unwrap().unwrap();
        let mut value = Vec::new();
        hit.value(&mut value).unwrap();
        assert!(value == [1; 65_536] && hit.part().unwrap().is_none());
    }
    assert!(get(&facts, &store, &key(40), 1).unwrap().is_none());
}

#[test]
fn a_filter_refuses_without_a_look_at_data() {
    let versions: Vec<Version> = (0..500u32).map(|number| put(&number.to_be_bytes(), 1, b"v")).collect();
    let (facts, parts) = build(&versions, 10);
    let store = Store::new(parts);
    store.there.borrow_mut().fill(false);
    let stranger = (500..)
        .find(|number: &u32| store.until(|| may_contain(&facts, &store, key_hash(&number.to_be_bytes()))).eq(&false));
    assert!(get(&facts, &store, &stranger.unwrap().to_be_bytes(), 1).unwrap().is_none());
    assert_eq!(store.there.borrow().iter().filter(|there| **there).count(), 1, "one page was read");
}

#[test]
fn what_is_out_of_order_or_too_long_is_refused() {
    let mut builder = Builder::new(UUID, FILE, 10, Compression::None);
    let mut add = |version: &Version| builder.add(&version.key, &version.meta, &version.value, &mut |_| {}).is_ok();
    assert!(add(&put(b"b", 5, b"value")));
    assert!(!add(&put(b"b", 5, b"value")), "the same version");
    assert!(!add(&put(b"b", 6, b"value")), "a newer one");
    assert!(!add(&put(b"a", 9, b"value")), "a key before it");
    assert!(!add(&put(b"", 9, b"value")));
    assert!(!add(&put(&[b'c'; 65_541], 9, b"value")));
    assert!(!add(&put(b"c", 9, &[0; 65_537])));
    assert!(!add(&Version { value: b"other".to_vec(), ..delete(b"c", 9) }), "a value where none was told");
    assert!(add(&put(b"b", 4, b"value")));
    assert!(add(&put(b"ba", 9, b"value")));
    assert_eq!((builder.entries(), builder.last_key()), (3, &b"ba"[..]));
    assert_eq!(builder.finish(&mut |_| {}).unwrap().entries, 3);
    assert_eq!(Builder::new(UUID, FILE, 10, Compression::None).finish(&mut |_| panic!("a page")), None);
}
