use stratakv_device::{BlockPart, Class, DiskOutcome, Pool};

use super::*;
use crate::disk::DiskOptions;

fn world(seed: u64) -> (World, Arc<Volume>) {
    let world = World::new(seed);
    world.add_disk("v", Disk::new(DiskOptions { capacity_bytes: 1 << 20, volatile_cache: true }));
    let volume = world.volume("v").unwrap();
    (world, volume)
}

fn write(pool: &Pool, page: u64) -> DiskRequest {
    let mut block = pool.take(Class::Page).unwrap();
    block.fill(page as u8);
    DiskRequest::Write { offset: page * 4096, parts: vec![BlockPart::whole(Arc::new(block))], durable: false }
}

fn tags(ring: &mut SimRing) -> Vec<u64> {
    let mut completions = Vec::new();
    ring.reap(&mut completions);
    let tag = |completion| match completion {
        Completion::Disk { tag, outcome: DiskOutcome::Write(Ok(())) } => tag,
        other => panic!("{other:?}"),
    };
    completions.into_iter().map(tag).collect()
}

#[test]
fn two_rings_share_the_disks_and_get_each_its_own_in_the_order_of_the_seed() {
    let run = |seed| {
        let (world, volume) = world(seed);
        let pool = Pool::new(2 << 20);
        let (mut one, mut two) = (world.ring().unwrap(), world.ring().unwrap());
        for page in 0..20 {
            one.disk(page, &volume, write(&pool, page));
            two.disk(100 + page, &volume, write(&pool, page));
        }
        one.submit(Wait::None).unwrap();
        two.submit(Wait::None).unwrap();
        while world.step() {}
        assert_eq!((one.in_flight(), two.in_flight(), world.disk_in_flight()), (20, 20, 0));
        (tags(&mut one), tags(&mut two))
    };
    let (mut one, mut two) = run(1);
    assert_eq!((one.clone(), two.clone()), run(1));
    assert_ne!((one.clone(), two.clone()), run(2));
    one.sort_unstable();
    two.sort_unstable();
    assert!(one.into_iter().eq(0..20) && two.into_iter().eq(100..120));
}

#[test]
fn a_dropped_ring_sees_its_requests_through_and_a_dead_one_fails() {
    let (world, volume) = world(1);
    let pool = Pool::new(2 << 20);
    let mut ring = world.ring().unwrap();
    ring.disk(1, &volume, write(&pool, 0));
    ring.submit(Wait::None).unwrap();
    drop(ring);
    assert_eq!((world.disk_in_flight(), pool.used_bytes()), (0, 0));
    let mut ring = world.ring().unwrap();
    ring.disk(1, &volume, write(&pool, 1));
    ring.submit(Wait::None).unwrap();
    world.crash(true);
    assert!(ring.submit(Wait::None).is_err());
    let mut completions = Vec::new();
    ring.reap(&mut completions);
    assert!(completions.is_empty());
    drop(ring);
    assert_eq!(pool.used_bytes(), 0, "what was in flight is gone with the process");
}
