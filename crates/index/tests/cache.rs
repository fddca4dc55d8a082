//! The page cache against a `BTreeMap`, and what it evicts.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use stratakv_device::{Block, Class, Pool};
use stratakv_index::PageCache;

fn pool() -> Pool {
    Pool::new(64 << 20)
}

/// A block that says which page it is of.
fn block(pool: &Pool, mark: u64) -> Arc<Block> {
    let mut block = pool.take(Class::Page).expect("the pool is large enough");
    block[..8].copy_from_slice(&mark.to_le_bytes());
    Arc::new(block)
}

fn mark(block: &Block) -> u64 {
    u64::from_le_bytes(*block.first_chunk().unwrap())
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Remove(u64),
    Get(u64),
    Evict,
    /// Drops the chunk that the page's block lies in.
    DropChunk(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let page = || prop_oneof![4 => 0..600u64, 1 => (0..300u64).prop_map(|n| n << 32)];
    prop_oneof![
        40 => page().prop_map(Step::Insert),
        12 => page().prop_map(Step::Remove),
        12 => page().prop_map(Step::Get),
        6 => Just(Step::Evict),
        1 => page().prop_map(Step::DropChunk),
    ]
}

fn run(steps: Vec<Step>) {
    let pool = pool();
    let (mut cache, mut model) = (PageCache::new(), BTreeMap::<u64, u64>::new());
    for (version, step) in steps.into_iter().enumerate() {
        let version = version as u64;
        match step {
            Step::Insert(page) => {
                let previous = cache.insert(page, block(&pool, version));
                assert_eq!(previous.map(|block| mark(&block)), model.insert(page, version));
            }
            Step::Remove(page) => assert_eq!(cache.remove(page).map(|block| mark(&block)), model.remove(&page)),
            Step::Get(page) => assert_eq!(cache.get(page).map(|block| mark(&block)), model.get(&page).copied()),
            Step::Evict => match cache.evict() {
                Some((page, block)) => assert_eq!(Some(mark(&block)), model.remove(&page)),
                None => assert!(model.is_empty()),
            },
            Step::DropChunk(page) => {
                if let Some(chunk) = cache.peek(page).map(|block| block.chunk()) {
                    let before = model.len();
                    model.retain(|page, _| cache.peek(*page).unwrap().chunk() != chunk);
                    assert_eq!(cache.drop_chunk(chunk), before - model.len());
                }
            }
        }
        assert_eq!(cache.len(), model.len());
    }
    for (page, version) in &model {
        assert_eq!(cache.peek(*page).map(|block| mark(block)), Some(*version));
    }
    let evicted: BTreeMap<u64, u64> =
        std::iter::from_fn(|| cache.evict()).map(|(page, block)| (page, mark(&block))).collect();
    assert_eq!(evicted, model);
    assert_eq!(pool.used_bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        rng_algorithm: prop::test_runner::RngAlgorithm::ChaCha,
        rng_seed: prop::test_runner::RngSeed::Fixed(11),
        ..ProptestConfig::default()
    })]

    #[test]
    fn agrees_with_a_btree_map(steps in prop::collection::vec(step(), 1..1500)) {
        run(steps);
    }
}

#[test]
fn pages_used_since_the_hand_passed_stay() {
    let (pool, mut cache) = (pool(), PageCache::new());
    (0..100).for_each(|page| assert!(cache.insert(page, block(&pool, page)).is_none()));
    (0..100).filter(|page| page % 2 == 0).for_each(|page| assert!(cache.get(page).is_some()));
    let evicted: Vec<u64> = std::iter::from_fn(|| cache.evict()).take(50).map(|(page, _)| page).collect();
    assert!(evicted.iter().all(|page| page % 2 == 1), "{evicted:?}");
}

#[test]
fn a_second_look_ends_although_every_page_is_in_use_or_used() {
    let (pool, mut cache) = (pool(), PageCache::new());
    let held: Vec<Arc<Block>> = (0..500).map(|page| block(&pool, page)).collect();
    for (page, block) in held.iter().enumerate() {
        cache.insert(page as u64, Arc::clone(block));
    }
    assert!(cache.evict().is_none(), "all blocks are held here");
    cache.insert(500, block(&pool, 500));
    cache.get(500);
    assert_eq!(cache.evict().map(|(page, _)| page), Some(500));
    drop(held);
    (0..500).for_each(|page| drop(cache.get(page)));
    assert!(cache.evict().is_some(), "all pages were used");
}

#[test]
fn the_table_is_small_and_shrinks() {
    let (pool, mut cache) = (pool(), PageCache::new());
    let empty = cache.footprint_bytes();
    (0..16_000).for_each(|page| drop(cache.insert(page * 7, block(&pool, page))));
    let full = cache.footprint_bytes();
    assert!(full < 16_000 * 40, "{full} bytes for 16,000 pages");
    (0..16_000).for_each(|page| assert!(cache.remove(page * 7).is_some()));
    // Two pieces' slack at most: the slots' last, and half as many buckets.
    assert!(cache.footprint_bytes() < empty + (40 << 10), "{} bytes left", cache.footprint_bytes());
}
