//! The allocator over a region: what it costs, counted; and what it does when the memory fails.

use std::sync::atomic::{AtomicU64, Ordering};

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Wall};
use stratakv_engine::{Change, ChangeKind, Error, Expect};
use stratakv_pmem::{MapOptions, Mapping, Pmem, PmemError};

use super::arena::VOID_MAX;
use super::{Allocator, Extent, Ground, lock, steps};
use crate::epoch::Epochs;
use crate::hash::{Hash, HashOptions};
use crate::layout::{First, Kind, Named, SegmentState, Superblock};
use crate::region::Region;

const BLOCK_BYTES: u32 = 64;

/// Memory of which one access fails.
struct Faulty {
    memory: Mapping,
    /// Accesses until then; 0: none fails any more.
    left: AtomicU64,
    error: PmemError,
}

impl Faulty {
    fn access(&self) -> Result<(), PmemError> {
        let before = self.left.load(Ordering::Relaxed);
        self.left.store(before.saturating_sub(1), Ordering::Relaxed);
        if before == 1 { Err(self.error) } else { Ok(()) }
    }
}

impl Pmem for Faulty {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.access()?;
        self.memory.load(offset, into)
    }
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.access()?;
        self.memory.load_u64(offset)
    }
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.access()?;
        self.memory.store(offset, bytes)
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.access()?;
        self.memory.store_u64(offset, value)
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.access()?;
        self.memory.store_nt(offset, bytes)
    }
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.access()?;
        self.memory.flush(offset, len_bytes)
    }
    fn fence(&self) -> Result<(), PmemError> {
        self.access()?;
        self.memory.fence()
    }
}

/// What walking the medium meets.
#[derive(Default)]
struct Walked {
    /// Place, blocks.
    records: Vec<(u64, u32)>,
    free: u64,
    /// Blocks of the longest run of free ones, or of segments in no span.
    longest: u64,
}

/// An allocator, the region it is of, and what is in use.
struct Space {
    region: Region<Faulty>,
    alloc: Allocator,
    epochs: Epochs,
    records: Vec<Extent>,
}

impl Space {
    fn new(segment_bytes: u64, segments: u64, arenas: usize) -> Space {
        let region_bytes = 3 * 4096 + (segments * 8).next_multiple_of(4096) + segments * segment_bytes;
        let parts = smallvec::smallvec![Named::first(region_bytes)];
        let superblock = Superblock { block_bytes: BLOCK_BYTES, segment_bytes, parts, uuid: [3; 16] };
        let memory = Mapping::anonymous(region_bytes, MapOptions::default()).unwrap();
        let error = PmemError::Poisoned { offset: 0 };
        let region = Region::new(Faulty { memory, left: AtomicU64::new(0), error }, superblock);
        assert_eq!(u64::from(region.parts[0].segments.end), segments);
        for segment in region.parts[0].segments.clone() {
            region.set_segment(segment, SegmentState::Unused).unwrap();
        }
        let alloc = Allocator::new(Ground::of(&region), arenas);
        Space { region, alloc, epochs: Epochs::new(), records: Vec::new() }
    }

    /// What a put does: a record at the begin of an extent, and what is left of it given back. Only
    /// the allocator meets the fault.
    fn put(&mut self, stripe: usize, blocks: u32) -> Result<bool, PmemError> {
        let Some(extent) = self.alloc.allocate(&self.region, &self.epochs, (stripe, 0), blocks)? else {
            return Ok(false);
        };
        let fault = self.region.pmem.left.swap(0, Ordering::Relaxed);
        let rest = Extent { place: extent.place + u64::from(blocks), blocks: extent.blocks - blocks };
        if rest.blocks > 0 {
            self.region.set_first(self.region.offset(rest.place), First::free(rest.blocks))?;
        }
        let record = First { kind: Kind::Record, blocks, key_bytes: 1 };
        self.region.set_first(self.region.offset(extent.place), record)?;
        if rest.blocks > 0 {
            self.alloc.free_rest(stripe, rest);
        }
        self.alloc.release();
        self.records.push(Extent { place: extent.place, blocks });
        self.region.pmem.left.store(fault, Ordering::Relaxed);
        Ok(true)
    }

    fn fill(&mut self, stripes: usize, blocks: u32) {
        while (0..stripes).filter(|stripe| self.put(*stripe, blocks).unwrap()).count() > 0 {}
    }

    fn delete(&mut self, record: usize) {
        let fault = self.region.pmem.left.swap(0, Ordering::Relaxed);
        let extent = self.records.swap_remove(record);
        self.region.set_first(self.region.offset(extent.place), First::free(extent.blocks)).unwrap();
        self.alloc.free(extent);
        self.region.pmem.left.store(fault, Ordering::Relaxed);
    }

    /// Every record must be met by walking, and the accounts agree.
    fn check(&self) -> Result<(), String> {
        let fault = self.region.pmem.left.swap(0, Ordering::Relaxed);
        let checked = self.walk().and_then(|walked| self.compare(&walked));
        self.region.pmem.left.store(fault, Ordering::Relaxed);
        checked
    }

    /// Walks the medium as opening does.
    fn walk(&self) -> Result<Walked, String> {
        let superblock = &self.region.superblock;
        let (mut walked, mut number, mut unused) = (Walked::default(), 0, 0);
        while number < self.region.parts[0].segments.end {
            let segments = match self.region.segment(number).unwrap() {
                Some(SegmentState::Extents) => 1,
                Some(SegmentState::Large(count)) => count,
                _ => 0,
            };
            unused = if segments == 0 { unused + self.alloc.blocks_of(1) } else { 0 };
            walked.longest = walked.longest.max(unused);
            let (mut offset, end) = (superblock.segment_at(number), superblock.segment_at(number + segments));
            let mut run = 0;
            while offset < end {
                let first = self.region.first(offset).unwrap().ok_or(format!("nothing at {offset}"))?;
                if first.kind == Kind::Record {
                    walked.records.push((self.region.place(offset), first.blocks));
                    run = 0;
                } else {
                    walked.free += u64::from(first.blocks);
                    run += u64::from(first.blocks);
                    walked.longest = walked.longest.max(run);
                }
                offset += u64::from(first.blocks) * u64::from(BLOCK_BYTES);
            }
            if segments > 0 && offset != end {
                return Err(format!("segment {number} ends at {offset} and not at {end}"));
            }
            number += segments.max(1);
        }
        Ok(walked)
    }

    fn compare(&self, Walked { records: met, free, .. }: &Walked) -> Result<(), String> {
        let mut records: Vec<_> = self.records.iter().map(|extent| (extent.place, extent.blocks)).collect();
        records.sort_unstable();
        if *met != records {
            return Err(format!("{} records, of which {} are met", records.len(), met.len()));
        }
        if self.alloc.arenas.iter().map(|arena| lock(arena).entries()).any(|(entries, extents)| entries < extents) {
            return Err("free extents are in no list".into());
        }
        let usage = self.alloc.usage();
        if usage.lost == 0 && usage.free != *free {
            return Err(format!("{usage:?}, and {free} blocks free on the medium"));
        }
        let all = self.alloc.blocks_of(self.region.parts[0].segments.end);
        let sum = usage.in_spans + usage.unused + usage.lost;
        if sum == all { Ok(()) } else { Err(format!("{usage:?} of {all} blocks")) }
    }

    /// Entries of lists, and free extents.
    fn entries(&self) -> (usize, usize) {
        self.alloc.arenas.iter().map(|arena| lock(arena).entries()).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    fn is_lost(&self, place: u64) -> bool {
        self.alloc.owners.span_of(place).is_none()
    }
}

/// Steps of an allocation, on average and at worst, while a full region is emptied at random and
/// nearly every one is refused.
fn steps_of_refusals(segments: u64) -> (usize, usize) {
    let (mut space, mut random) = (Space::new(64 << 10, segments, 4), Random::new(5));
    space.fill(4, 2);
    let (mut sum, mut worst, mut count) = (0, 0, 0);
    while space.records.len() > segments as usize * 300 {
        space.delete(random.below(space.records.len() as u64) as usize);
        steps::take();
        space.put(count % 4, 40).unwrap();
        let steps = steps::take();
        (sum, worst, count) = (sum + steps, worst.max(steps), count + 1);
    }
    space.check().unwrap();
    (sum / count, worst)
}

#[test]
fn what_an_allocation_costs_does_not_grow_with_the_region_when_room_is_short() {
    let ((small, _), (large, worst)) = (steps_of_refusals(16), steps_of_refusals(128));
    // A span has 1024 blocks in 16 words, and up to 512 free extents; two are taken over at most.
    assert!(small < 1000 && large < 1000, "{small} and {large} steps on average");
    assert!(large < 2 * small, "{small} steps in 16 segments, {large} in 128");
    // A list may be rid of its void entries: a step for each.
    let pruned = 128 * 1024 / 2;
    assert!(worst < pruned, "{worst} steps at worst");
}

#[test]
fn what_is_refused_has_no_room_anywhere() {
    let (mut space, mut random) = (Space::new(4096, 40, 4), Random::new(8));
    let mut refused = 0;
    for step in 0..20_000 {
        let longest = if random.below(20) == 0 { 200 } else { 20 };
        let blocks = 1 + random.below(longest) as u32;
        if !space.put(random.below(4) as usize, blocks).unwrap() {
            let longest = space.walk().unwrap().longest;
            assert!(longest < u64::from(blocks), "{blocks} blocks are refused in step {step} and there are {longest}");
            refused += 1;
            for _ in 0..random.below(8) {
                space.delete(random.below(space.records.len() as u64) as usize);
            }
        }
    }
    space.check().unwrap();
    assert!(refused > 2000, "{refused} refusals");
}

/// What is cut off and merged again leaves entries for lengths that nobody asks for: they were kept
/// for good.
#[test]
fn void_entries_are_dropped_when_they_are_more_than_the_others() {
    let (mut space, mut random) = (Space::new(64 << 10, 64, 1), Random::new(6));
    let mut most = 0;
    for step in 0..400_000 {
        let has_room = space.put(0, 30 + random.below(30) as u32).unwrap();
        if !has_room || space.records.len() > 1000 {
            space.delete(random.below(space.records.len() as u64) as usize);
        }
        let (entries, extents) = space.entries();
        assert!(entries <= 2 * extents + VOID_MAX, "{entries} entries for {extents} extents at step {step}");
        most = most.max(entries - extents);
    }
    space.check().unwrap();
    assert!(most > VOID_MAX, "{most} void entries at most: this tries nothing");
}

/// What arranging does when one access of the memory fails, whichever it is: no record is lost to
/// it, and nothing is allocated where medium and DRAM may differ.
#[test]
fn an_access_that_fails_costs_a_span_and_no_record() {
    for error in [PmemError::Poisoned { offset: 64 }, PmemError::SyncFailed { errno: 5 }] {
        let (mut lost, mut refused) = (0, 0);
        for fault in 1..400 {
            let (mut space, mut random) = (Space::new(4096, 12, 3), Random::new(fault / 40));
            space.region.pmem.error = error;
            space.region.pmem.left.store(fault, Ordering::Relaxed);
            for step in 0..250 {
                let long = random.below(8) == 0;
                let blocks = 1 + random.below(if long { 100 } else { 12 }) as u32;
                if random.below(100) < 55 {
                    match space.put(step % 3, blocks) {
                        Err(found) if found == error && of_all(error) => refused += 1,
                        Ok(true) => assert!(space.records.last().is_some_and(|new| !space.is_lost(new.place))),
                        other => drop(other.unwrap()),
                    }
                } else if !space.records.is_empty() {
                    space.delete(random.below(space.records.len() as u64) as usize);
                }
                space.check().unwrap_or_else(|why| panic!("access {fault} fails ({error}), step {step}: {why}"));
            }
            lost += u64::from(space.alloc.usage().lost > 0);
        }
        assert!(lost > 150, "{lost} accesses cost a span");
        assert_eq!(refused > 0, of_all(error));
    }
}

fn of_all(error: PmemError) -> bool {
    matches!(error, PmemError::SyncFailed { .. })
}

#[test]
fn the_memory_of_its_own_is_counted() {
    let mut space = Space::new(64 << 10, 32, 2);
    let empty = space.alloc.usage().footprint_bytes;
    assert!(empty < 40_000, "{empty} bytes for nothing");
    space.fill(2, 1);
    let bits_bytes = 32 * 1024 / 4;
    assert!(space.alloc.usage().footprint_bytes >= empty + bits_bytes);
    space.records.sort_unstable_by_key(|record| record.place);
    for record in (0..space.records.len() / 2).rev() {
        space.delete(record * 2);
    }
    let (_, extents) = space.entries();
    let (lists_bytes, found) = (8 * extents as u64, space.alloc.usage().footprint_bytes);
    assert!(extents > 16_000);
    assert!(found > bits_bytes + lists_bytes && found < 2 * (bits_bytes + lists_bytes) + empty, "{found} bytes");
}

/// It gave the others twenty thousand turns before it was refused: on a machine with much to do
/// minutes, and for whoever looked for room meanwhile too.
#[test]
fn a_batch_waited_for_what_it_had_in_hand_itself() {
    let memory = Mapping::anonymous(1 << 20, MapOptions::default()).unwrap();
    let hash = Hash::create(memory, HashOptions { segment_bytes: 4096, ..HashOptions::default() }).unwrap();
    let change = |name: &str| {
        let kind = ChangeKind::Put { value: vec![7; 600 << 10].into(), flags: 0, expiry: Expiry::NEVER };
        Change { key: Key::new(CollectionId(0), name.as_bytes()).unwrap(), expect: Expect::Any, kind }
    };
    steps::take();
    for _ in 0..3 {
        assert!(matches!(hash.write(&[change("a"), change("b")], Wall(1)), Err(Error::Full(_))));
    }
    let steps = steps::take();
    assert!(steps < 5000, "{steps} steps");
    hash.write(&[change("a")], Wall(1)).unwrap();
}
