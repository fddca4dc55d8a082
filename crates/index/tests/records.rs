//! The record cache against a model: what it returns is what was put there last, whatever it has
//! forgotten meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use stratakv_base::random::Random;
use stratakv_device::{Class, Pool};
use stratakv_index::RecordCache;

/// Bytes that tell their record and its life.
fn bytes_of(at: u64, life: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|byte| (at.wrapping_mul(31) ^ life.wrapping_mul(17) ^ byte) as u8).collect()
}

fn assert_hit(cache: &mut RecordCache, at: u64, expected: &[u8]) -> bool {
    let Some(hit) = cache.get(at) else { return false };
    assert_eq!(&hit.bytes[..expected.len()], expected, "at {at}");
    if let Some((block, start)) = hit.shared {
        assert_eq!(&block[start..start + expected.len()], expected, "at {at}, lent");
    }
    true
}

#[test]
fn a_hit_is_what_was_put_there_last() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let pool = Pool::new(4 << 20);
        let mut cache = RecordCache::new();
        let limit = (2 + random.below(30)) as usize * Class::Slice.bytes();
        cache.set_limit_bytes(limit);
        let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
        let mut lent = Vec::new();
        let mut hits = 0;
        for life in 0..20_000 {
            let at = random.below(400) * 8;
            let units = if random.below(50) == 0 { 2000 } else { 150 };
            let len = 8 * (1 + random.below(units)) as usize;
            let bytes = bytes_of(at, life, len);
            let (head, tail) = bytes.split_at(len / 3);
            let take = &mut || pool.take(Class::Slice);
            match random.below(10) {
                0..=2 if !model.contains_key(&at) => {
                    cache.insert(at, &[head, tail], take);
                    model.insert(at, bytes);
                }
                3 | 4 => {
                    let new = random.below(400) * 8;
                    cache.replace(at, new, &[head, tail], take);
                    model.remove(&at);
                    model.insert(new, bytes);
                }
                5 if random.below(3) == 0 => {
                    cache.remove(at);
                    model.remove(&at);
                }
                6 if random.below(3) == 0 => {
                    let new = random.below(400) * 8;
                    cache.rekey(at, new);
                    if at != new {
                        model.remove(&new);
                        model.remove(&at).map(|bytes| model.insert(new, bytes));
                    }
                }
                7 if random.below(8) == 0 && !model.contains_key(&at) => {
                    let mut block = pool.take(Class::Slice).expect("more than the cache takes");
                    let bytes = bytes_of(at, life, Class::Slice.bytes());
                    block.copy_from_slice(&bytes);
                    cache.adopt(at, &Arc::new(block), take);
                    model.insert(at, bytes);
                }
                _ => {
                    if let Some(expected) = model.get(&at) {
                        hits += u32::from(assert_hit(&mut cache, at, expected));
                        let kept =
                            cache.get(at).and_then(|hit| hit.shared.map(|(block, start)| (block.clone(), start)));
                        lent.extend(kept.map(|(block, start)| (block, start, expected.clone())));
                        lent.truncate(20);
                    } else {
                        assert!(cache.get(at).is_none(), "{at} was removed");
                    }
                }
            }
            assert!(cache.slab_page_bytes() <= limit + 2 * Class::Slice.bytes());
        }
        // What was lent did not change under its reader.
        for (block, start, expected) in lent {
            assert_eq!(&block[start..start + expected.len()], &expected[..]);
        }
        assert!(hits > 100, "{hits} hits");
    }
}

#[test]
fn a_chunk_that_is_given_back_takes_its_records_with_it() {
    let pool = Pool::new(3 << 20);
    let mut cache = RecordCache::new();
    cache.set_limit_bytes(2 << 20);
    for at in 0..1500 {
        cache.insert(at * 8, &[&bytes_of(at, 0, 1000)], &mut || pool.take(Class::Slice));
    }
    let before = cache.len();
    pool.set_limit_bytes(2 << 20);
    let chunk = pool.take(Class::Slice).map(|block| block.chunk()).expect("a block is left");
    cache.drop_chunk(chunk);
    assert!(cache.len() < before, "{before} records before and after");
    for at in 0..1500 {
        assert_hit(&mut cache, at * 8, &bytes_of(at, 0, 1000));
    }
}

/// A record of a slab page's length is not copied, and its room is there again as soon as it is
/// forgotten.
#[test]
fn a_whole_block_is_taken_as_it_is() {
    let pool = Pool::new(4 << 20);
    let mut cache = RecordCache::new();
    let slab_page = Class::Slice.bytes();
    cache.set_limit_bytes(8 * slab_page);
    let adopt = |cache: &mut RecordCache, at: u64| {
        let block = Arc::new(pool.take(Class::Slice).expect("a block"));
        cache.adopt(at * 8, &block, &mut || pool.take(Class::Slice));
        let lent = cache.get(at * 8).and_then(|hit| hit.shared.map(|(block, start)| (Arc::clone(block), start)));
        assert!(lent.is_some_and(|(lent, start)| Arc::ptr_eq(&lent, &block) && start == 0), "at {at}");
    };
    let mut footprints = Vec::new();
    for at in 0..1000 {
        adopt(&mut cache, at);
        cache.remove(at * 8);
        assert_eq!((cache.slab_page_bytes(), pool.used_bytes()), (0, 0));
        footprints.push(cache.footprint_bytes());
    }
    assert_eq!(footprints.first(), footprints.last(), "bytes beside the slab pages");
    (0..8).for_each(|at| adopt(&mut cache, at));
    assert_eq!(cache.len(), 8);
    assert_eq!((cache.slab_page_bytes(), pool.used_bytes()), (8 * slab_page, 8 * slab_page));
}

/// The aim of the policy: what is read again stays, though everything else passes through once.
#[test]
fn a_scan_does_not_displace_what_is_hot() {
    let pool = Pool::new(3 << 20);
    let mut cache = RecordCache::new();
    cache.set_limit_bytes(1 << 20);
    let take = &mut || pool.take(Class::Slice);
    let hot: Vec<u64> = (0..500).map(|record| record * 8).collect();
    for _ in 0..3 {
        for at in &hot {
            if cache.get(*at).is_none() {
                cache.insert(*at, &[&bytes_of(*at, 0, 1000)], take);
            }
        }
    }
    for cold in 10_000..30_000 {
        cache.insert(cold * 8, &[&bytes_of(cold, 0, 1000)], take);
    }
    let left = hot.iter().filter(|at| cache.contains(**at)).count();
    assert!(left >= 450, "{left} of 500 are left");
}
