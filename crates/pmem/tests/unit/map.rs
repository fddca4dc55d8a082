use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use super::*;
use crate::RegionPart;
use crate::group::Sync;

const REGION_BYTES: u64 = 16 * PAGE_BYTES;

/// Memory whose stores are made durable by `sync`.
fn paged(sync: Sync) -> Mapping {
    with(Durability::Pages(Group::new(sync)))
}

fn with(durability: Durability) -> Mapping {
    let mut mapping = Mapping::anonymous(REGION_BYTES, MapOptions::default()).unwrap();
    mapping.durability = durability;
    mapping
}

fn syncs(mapping: &Mapping) -> u64 {
    let Durability::Pages(group) = &mapping.durability else { panic!("not paged") };
    group.syncs()
}

#[test]
fn threads_that_fence_at_once_share_an_msync() {
    const THREADS: usize = 8;
    static FLUSHED: AtomicUsize = AtomicUsize::new(0);
    static DURABLE: Mutex<Vec<Range<u64>>> = Mutex::new(Vec::new());
    // Whoever leads first finishes when everybody has flushed: the others are then one batch.
    fn sync(space: &Space, range: Range<u64>) -> Result<(), Errno> {
        while FLUSHED.load(Ordering::Acquire) < THREADS {
            std::thread::yield_now();
        }
        space.sync(range.clone())?;
        DURABLE.lock().unwrap().push(range);
        Ok(())
    }
    let mapping = paged(sync);
    let work = |thread: usize| {
        let offset = thread as u64 * PAGE_BYTES + 100;
        mapping.store(offset, b"mine").unwrap();
        mapping.flush(offset, 4).unwrap();
        FLUSHED.fetch_add(1, Ordering::Release);
        mapping.fence().unwrap();
        let durable = DURABLE.lock().unwrap();
        assert!(durable.iter().any(|range| range.start <= offset && offset + 4 <= range.end), "{thread}: {durable:?}");
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(thread));
        }
    });
    assert!((1..=2).contains(&syncs(&mapping)), "{} for {THREADS} fences", syncs(&mapping));
}

#[test]
fn after_a_fence_what_its_thread_flushed_is_durable() {
    const THREADS: u64 = 4;
    static MEDIUM: [AtomicU64; THREADS as usize] = [const { AtomicU64::new(0) }; THREADS as usize];
    fn sync(space: &Space, range: Range<u64>) -> Result<(), Errno> {
        for page in range.start / PAGE_BYTES..=(range.end - 1) / PAGE_BYTES {
            let value = space.load_u64(page * PAGE_BYTES).map_err(|_| Errno::NOMEM)?;
            MEDIUM[page as usize].store(value, Ordering::Relaxed);
            std::thread::yield_now();
        }
        Ok(())
    }
    let mapping = paged(sync);
    let work = |thread: u64| {
        for round in 1..=500 {
            mapping.store_u64(thread * PAGE_BYTES, round).unwrap();
            mapping.persist(thread * PAGE_BYTES, 8).unwrap();
            assert_eq!(MEDIUM[thread as usize].load(Ordering::Relaxed), round, "thread {thread}");
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(thread));
        }
    });
}

#[test]
fn only_what_was_flushed_costs_an_msync() {
    let mapping = paged(Space::sync);
    mapping.fence().unwrap();
    mapping.store(0, b"not flushed").unwrap();
    mapping.flush(0, 0).unwrap();
    mapping.fence().unwrap();
    assert_eq!(syncs(&mapping), 0);
    mapping.persist(4000, 200).unwrap();
    assert_eq!(syncs(&mapping), 1);
    mapping.store_nt(0, &[1; 300]).unwrap();
    mapping.fence().unwrap();
    mapping.fence().unwrap();
    assert_eq!(syncs(&mapping), 2);
}

#[test]
fn a_failed_msync_ends_the_region() {
    let mapping = paged(|_, _| Err(Errno::IO));
    mapping.store(8, b"before").unwrap();
    mapping.flush(8, 6).unwrap();
    let error = PmemError::SyncFailed { errno: Errno::IO.raw_os_error() };
    let failed = Err(error);
    assert_eq!(mapping.fence(), failed);
    assert_eq!(mapping.fence(), failed);
    assert_eq!(mapping.store(8, b"after!"), failed);
    assert_eq!(mapping.store_u64(8, 0), failed);
    assert_eq!(mapping.store_nt(8, &[0; 600]), failed);
    assert!(matches!(mapping.grow(2 * REGION_BYTES), Err(MapError::Region(PmemError::SyncFailed { .. }))));
    let mut bytes = [0; 6];
    mapping.load(8, &mut bytes).unwrap();
    assert_eq!(&bytes, b"before");
    let shown = error.to_string();
    assert!(shown.contains("Input/output error") && shown.contains("open it again"), "{shown}");
}

#[test]
fn all_who_wait_for_a_failed_msync_are_told() {
    static FLUSHED: AtomicUsize = AtomicUsize::new(0);
    fn sync(_: &Space, _: Range<u64>) -> Result<(), Errno> {
        while FLUSHED.load(Ordering::Acquire) < 4 {
            std::thread::yield_now();
        }
        Err(Errno::NOSPC)
    }
    let mapping = paged(sync);
    let work = || {
        mapping.flush(0, 1).unwrap();
        FLUSHED.fetch_add(1, Ordering::Release);
        assert_eq!(mapping.fence(), Err(PmemError::SyncFailed { errno: Errno::NOSPC.raw_os_error() }));
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    assert_eq!(syncs(&mapping), 1);
}

#[test]
fn growth_moves_nothing_under_readers() {
    let options = MapOptions { reserve_bytes: 64 * REGION_BYTES, ..MapOptions::default() };
    let mapping = Mapping::anonymous(REGION_BYTES, options).unwrap();
    mapping.store(0, &[7; 4096]).unwrap();
    let base = mapping.space.base();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 4096];
            while !is_done.load(Ordering::Acquire) {
                mapping.load(0, &mut bytes).unwrap();
                assert_eq!(bytes, [7; 4096]);
            }
        });
        for times in 2..=64 {
            let before_bytes = mapping.len_bytes();
            assert!(matches!(mapping.load(before_bytes, &mut [0]), Err(PmemError::OutOfBounds { .. })));
            mapping.grow(times * REGION_BYTES).unwrap();
            assert_eq!(mapping.len_bytes(), times * REGION_BYTES);
            assert_eq!(mapping.load_u64(before_bytes), Ok(0));
            mapping.store(before_bytes - 4, &[times as u8; 8]).unwrap();
            assert_eq!(
                mapping.load_u64(before_bytes).unwrap().to_ne_bytes()[..5],
                [[times as u8; 4].as_slice(), &[0]].concat()
            );
        }
        is_done.store(true, Ordering::Release);
    });
    assert_eq!(mapping.space.base(), base);
    assert!(matches!(mapping.grow(65 * REGION_BYTES), Err(MapError::NotReserved { .. })));
}

#[test]
fn a_length_that_changes_meanwhile_is_refused() {
    let mapping =
        Mapping::anonymous(REGION_BYTES, MapOptions { reserve_bytes: 1 << 20, ..MapOptions::default() }).unwrap();
    mapping.source.file.set_len(2 * REGION_BYTES).unwrap();
    assert!(matches!(mapping.grow(4 * REGION_BYTES), Err(MapError::LengthChanged { .. })));
    let over = |len_bytes| Mapping::over(Source::anonymous().unwrap(), len_bytes, MapOptions::default());
    assert!(matches!(over(4096), Err(MapError::LengthChanged { before_bytes: 4096, after_bytes: 0, .. })));
}

/// As while another thread of the process starts a program.
#[test]
fn a_region_is_unlocked_though_its_descriptor_lives_on_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("region");
    let mapping = Mapping::create(&at, PAGE_BYTES, MapOptions::default()).unwrap();
    let _elsewhere = mapping.source.file.try_clone().unwrap();
    drop(mapping);
    Mapping::open(&at, MapOptions::default()).unwrap();
}

#[test]
fn growth_that_fails_leaves_the_region_as_it_was() {
    let file = memfd_create("region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap().into();
    let source = Source { file, path: "sealed".into(), kind: Kind::Memory, unit_bytes: PAGE_BYTES, is_anonymous: true };
    let options = MapOptions { reserve_bytes: 1 << 20, ..MapOptions::default() };
    let mapping = Mapping::fill(source, REGION_BYTES, options).unwrap();
    // It can be extended, but no more of it can be mapped for writing.
    fcntl_add_seals(&mapping.source.file, SealFlags::FUTURE_WRITE).unwrap();
    assert!(matches!(mapping.grow(2 * REGION_BYTES), Err(MapError::Io { what: "map", .. })));
    assert_eq!((mapping.len_bytes(), mapping.source.len_bytes().unwrap()), (REGION_BYTES, REGION_BYTES));
    mapping.store(REGION_BYTES - 8, &[1; 8]).unwrap();
    assert!(matches!(mapping.grow(2 * REGION_BYTES), Err(MapError::NotReserved { reserved_bytes: REGION_BYTES, .. })));
}

#[test]
fn a_domain_is_found_or_weaker() {
    let device = Kind::Device { len_bytes: 0, is_persistent: true };
    let all = [Domain::Volatile, Domain::File, Domain::Adr, Domain::Eadr];
    for found in all {
        assert_eq!(choose(found, Kind::File, None).unwrap(), found);
        for wanted in all {
            assert_eq!(choose(found, Kind::File, Some(wanted)).is_ok(), wanted <= found, "{wanted:?} for {found:?}");
            let can = wanted <= found && wanted != Domain::File;
            assert_eq!(choose(found, device, Some(wanted)).is_ok(), can, "{wanted:?} for a device in {found:?}");
        }
    }
}

/// Persistent memory is rare: its instructions are the same on ordinary memory.
#[test]
fn lines_are_written_back_and_keep_what_they_hold() {
    let Some(flush) = Flush::detect() else { return };
    for mapping in [with(Durability::Lines(flush)), with(Durability::Fence(flush))] {
        let mut model = vec![0; REGION_BYTES as usize];
        for (step, len) in [0, 1, 7, 8, 63, 64, 65, 255, 256, 257, 320, 1000, 4096, 9001].into_iter().enumerate() {
            for offset in [0, 1, 8, 60, 64, 4095, 4097, REGION_BYTES as usize - len] {
                let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + step + offset) as u8).collect();
                model[offset..offset + len].copy_from_slice(&bytes);
                mapping.store_nt(offset as u64, &bytes).unwrap();
                mapping.fence().unwrap();
                let mut loaded = vec![0; model.len()];
                mapping.load(0, &mut loaded).unwrap();
                assert!(loaded == model, "{len} bytes at {offset}");
                mapping.store(offset as u64, &bytes).unwrap();
                mapping.persist(offset as u64, len as u64).unwrap();
            }
        }
        let beyond = PmemError::OutOfBounds { offset: REGION_BYTES, len_bytes: 1, region_bytes: REGION_BYTES };
        assert_eq!(mapping.flush(REGION_BYTES, 1), Err(beyond));
        assert_eq!(mapping.store_nt(REGION_BYTES, &[1]), Err(beyond));
        assert_eq!(mapping.flush(REGION_BYTES, 0), Ok(()));
    }
}

/// It was forgotten: the next sync was answered `Ok`, and so were stores.
#[test]
fn after_a_failed_sync_the_region_takes_nothing_more() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    fn fails_once(_: &Space, _: Range<u64>) -> Result<(), Errno> {
        if CALLS.fetch_add(1, Ordering::Relaxed) == 0 { Err(Errno::IO) } else { Ok(()) }
    }
    let mut mapping = with(Durability::Nothing);
    mapping.pieces[0].is_file = true;
    mapping.write_back = fails_once;
    let (mapping, failed) = (Arc::new(mapping), Err(PmemError::SyncFailed { errno: Errno::IO.raw_os_error() }));
    let parts =
        [0, 1].map(|part| RegionPart::new(Arc::clone(&mapping), part * 4 * PAGE_BYTES, 4 * PAGE_BYTES).unwrap());
    assert_eq!(parts[0].failure(), None);
    assert_eq!(parts[0].sync(), failed);
    for part in &parts {
        assert_eq!(
            (part.sync(), part.fence(), part.store(0, b"x"), part.store_u64(8, 1)),
            (failed, failed, failed, failed)
        );
        assert_eq!(part.store_nt(0, b"x"), failed);
        assert_eq!(part.failure(), failed.err());
        part.load(0, &mut [0; 8]).unwrap();
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), 1, "the kernel may have dropped the pages: it is not asked again");
}

/// A sync of a part wrote the whole region back.
#[test]
fn a_part_writes_back_its_own_range() {
    static RANGES: Mutex<Vec<Range<u64>>> = Mutex::new(Vec::new());
    fn notes(_: &Space, range: Range<u64>) -> Result<(), Errno> {
        RANGES.lock().unwrap().push(range);
        Ok(())
    }
    let mut mapping = with(Durability::Nothing);
    mapping.pieces[0].is_file = true;
    mapping.write_back = notes;
    let mapping = Arc::new(mapping);
    RegionPart::new(Arc::clone(&mapping), 4 * PAGE_BYTES, 2 * PAGE_BYTES).unwrap().sync().unwrap();
    mapping.sync().unwrap();
    assert_eq!(*RANGES.lock().unwrap(), [4 * PAGE_BYTES..6 * PAGE_BYTES, 0..REGION_BYTES]);
}
