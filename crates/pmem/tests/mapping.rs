//! Regions as their users see them.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use stratakv_pmem::{Domain, MapError, MapOptions, Mapping, Piece, Pmem, PmemError};

const PAGE: u64 = 4096;

/// A directory on a disk, where there is one.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn create(at: &Path, len_bytes: u64) -> Mapping {
    Mapping::create(at, len_bytes, MapOptions::default()).unwrap()
}

fn open(at: &Path) -> Result<Mapping, MapError> {
    Mapping::open(at, MapOptions::default())
}

fn read_only() -> MapOptions {
    MapOptions { read_only: true, ..MapOptions::default() }
}

fn reserve(reserve_bytes: u64) -> MapOptions {
    MapOptions { reserve_bytes, ..MapOptions::default() }
}

/// Names the region for a test that runs in a process of its own.
const REGION: &str = "STRATAKV_PMEM_TEST_REGION";

/// Runs a test of this file, which finds `region` in its environment.
fn in_another_process(test: &str, region: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args([test, "--exact"]).env(REGION, region).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
}

fn region_of_parent() -> Option<PathBuf> {
    std::env::var_os(REGION).map(PathBuf::from)
}

#[test]
fn what_was_stored_is_read_by_another_process() {
    if let Some(at) = region_of_parent() {
        let mapping = open(&at).unwrap();
        let mut bytes = [0; 11];
        mapping.load(4090, &mut bytes).unwrap();
        assert_eq!((&bytes, mapping.load_u64(8)), (b"persistent!", Ok(42)));
        mapping.store_nt(0, &[9; 1000]).unwrap();
        mapping.fence().unwrap();
        return;
    }
    let directory = directory();
    let at = directory.path().join("region");
    let mapping = create(&at, 2 * PAGE);
    mapping.store(4090, b"persistent!").unwrap();
    mapping.store_u64(8, 42).unwrap();
    mapping.persist(0, 2 * PAGE).unwrap();
    drop(mapping);
    in_another_process("what_was_stored_is_read_by_another_process", &at);
    let mapping = open(&at).unwrap();
    let mut bytes = [0; 1000];
    mapping.load(0, &mut bytes).unwrap();
    assert_eq!((bytes, mapping.load_u64(1000)), ([9; 1000], Ok(0)));
    assert_eq!(mapping.len_bytes(), 2 * PAGE);
}

#[test]
fn a_second_writer_is_refused() {
    if let Some(at) = region_of_parent() {
        assert!(matches!(open(&at), Err(MapError::Locked { .. })));
        assert!(matches!(Mapping::open(&at, read_only()), Err(MapError::Locked { .. })));
        return;
    }
    let directory = directory();
    let at = directory.path().join("region");
    let mapping = create(&at, PAGE);
    in_another_process("a_second_writer_is_refused", &at);
    let shown = open(&at).unwrap_err().to_string();
    assert!(shown.contains("open elsewhere") && shown.contains("region"), "{shown}");
    drop(mapping);
    let readers = [0; 2].map(|_| Mapping::open(&at, read_only()).unwrap());
    assert!(matches!(open(&at), Err(MapError::Locked { .. })));
    drop(readers);
    open(&at).unwrap();
}

#[test]
fn who_reads_only_cannot_store() {
    let directory = directory();
    let at = directory.path().join("region");
    let mapping = create(&at, PAGE);
    mapping.store(1, b"kept").unwrap();
    mapping.persist(1, 4).unwrap();
    drop(mapping);
    let mapping = Mapping::open(&at, MapOptions { reserve_bytes: 8 * PAGE, ..read_only() }).unwrap();
    assert_eq!(mapping.store(0, &[1]), Err(PmemError::ReadOnly));
    assert_eq!(mapping.store_u64(0, 1), Err(PmemError::ReadOnly));
    assert_eq!(mapping.store_nt(0, &[1; 800]), Err(PmemError::ReadOnly));
    assert_eq!(mapping.persist(0, PAGE), Ok(()));
    assert!(matches!(mapping.grow(2 * PAGE), Err(MapError::ReadOnly)));
    assert!(matches!(Mapping::create(&directory.path().join("new"), PAGE, read_only()), Err(MapError::ReadOnly)));
    let mut bytes = [0; 6];
    mapping.load(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0kept\0");
    assert_eq!(mapping.load_u64(8), Ok(0));
}

#[test]
fn what_is_stored_apart_is_seen_by_nobody_else() {
    let directory = directory();
    let at = directory.path().join("region");
    let mapping = create(&at, 4 * PAGE);
    mapping.store(1, b"kept").unwrap();
    mapping.persist(1, 4).unwrap();
    drop(mapping);
    let private = MapOptions { private: true, ..MapOptions::default() };
    let mapping = Mapping::open(&at, private).unwrap();
    assert!(matches!(open(&at), Err(MapError::Locked { .. })));
    let beside = Mapping::open(&at, read_only()).unwrap();
    mapping.store(1, b"lost").unwrap();
    mapping.store_u64(2 * PAGE, 7).unwrap();
    mapping.persist(0, 4 * PAGE).unwrap();
    mapping.sync().unwrap();
    assert!(!mapping.survives_power_loss() && !mapping.fence_waits());
    let load = |mapping: &Mapping| {
        let mut bytes = [0; 6];
        mapping.load(0, &mut bytes).unwrap();
        (bytes, mapping.load_u64(2 * PAGE).unwrap())
    };
    assert_eq!((load(&mapping), load(&beside)), ((*b"\0lost\0", 7), (*b"\0kept\0", 0)));
    assert!(matches!(mapping.grow(8 * PAGE), Err(MapError::ReadOnly)));
    assert!(matches!(Mapping::create(&directory.path().join("new"), PAGE, private), Err(MapError::ReadOnly)));
    drop((mapping, beside));
    assert_eq!(load(&open(&at).unwrap()), (*b"\0kept\0", 0));
}

#[test]
fn a_region_that_was_looked_at_may_be_treated_as_weaker() {
    let directory = directory();
    let at = directory.path().join("region");
    let mapping = create(&at, PAGE);
    let (found, waits) = (mapping.domain(), mapping.fence_waits());
    let stronger = mapping.treated_as(Domain::Eadr);
    assert!(matches!(stronger, Err(MapError::Domain { wanted: Domain::Eadr, .. })));
    let mapping = open(&at).unwrap().treated_as(Domain::Volatile).unwrap();
    assert!(!mapping.survives_power_loss() && !mapping.fence_waits());
    mapping.store_u64(0, 9).unwrap();
    mapping.sync().unwrap();
    // What it is has not changed.
    let mapping = mapping.treated_as(found).unwrap();
    assert_eq!((mapping.domain(), mapping.fence_waits(), mapping.load_u64(0)), (found, waits, Ok(9)));
}

#[test]
fn an_unlocked_region_is_anybodys() {
    let directory = directory();
    let at = directory.path().join("region");
    let mapping = create(&at, PAGE);
    assert!(matches!(open(&at), Err(MapError::Locked { .. })));
    mapping.unlock();
    drop(open(&at).unwrap());
    assert_eq!(mapping.load_u64(0), Ok(0));
}

#[test]
fn the_domain_is_that_of_the_file_system() {
    let directory = directory();
    let at = directory.path().join("region");
    // Magic number of tmpfs.
    let on_disk = rustix::fs::statfs(directory.path()).unwrap().f_type as u64 != 0x0102_1994;
    if on_disk {
        let mapping = create(&at, PAGE);
        assert_eq!((mapping.domain(), mapping.survives_power_loss()), (Domain::File, true));
        drop(mapping);
        let forced = |domain| Mapping::open(&at, MapOptions { domain: Some(domain), ..MapOptions::default() });
        for stronger in [Domain::Adr, Domain::Eadr] {
            assert!(matches!(forced(stronger), Err(MapError::Domain { found: Domain::File, .. })));
        }
        assert_eq!(forced(Domain::File).unwrap().domain(), Domain::File);
        let volatile = forced(Domain::Volatile).unwrap();
        assert_eq!((volatile.domain(), volatile.survives_power_loss()), (Domain::Volatile, false));
        volatile.persist(0, PAGE).unwrap();
    }
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
    let at = directory.path().join("region");
    let mapping = create(&at, PAGE);
    assert_eq!((mapping.domain(), mapping.survives_power_loss()), (Domain::Volatile, false));
    mapping.store_u64(16, 7).unwrap();
    drop(mapping);
    let mapping = open(&at).unwrap();
    assert_eq!(mapping.load_u64(16), Ok(7));
    drop(mapping);
    let file = MapOptions { domain: Some(Domain::File), ..MapOptions::default() };
    assert!(matches!(Mapping::open(&at, file), Err(MapError::Domain { found: Domain::Volatile, .. })));
}

#[test]
fn what_is_no_region_is_refused() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    let refused = |at: &Path| open(at).unwrap_err();
    assert!(matches!(refused(directory.path()), MapError::NotARegion { .. }));
    assert!(matches!(refused(Path::new("/dev/null")), MapError::NotARegion { .. }));
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    assert!(matches!(refused(&at("pipe")), MapError::NotARegion { .. }));
    assert!(matches!(refused(&at("missing")), MapError::Io { .. }));
    for (len_bytes, too_short) in [(0, true), (4095, true), (4097, false), (10_000, false)] {
        File::create(at("odd")).unwrap().set_len(len_bytes).unwrap();
        match refused(&at("odd")) {
            MapError::TooShort { len_bytes: found, unit_bytes: PAGE } => assert!(too_short && found == len_bytes),
            MapError::Unaligned { len_bytes: found, unit_bytes: PAGE } => assert!(!too_short && found == len_bytes),
            other => panic!("{len_bytes}: {other}"),
        }
        let created = Mapping::create(&at("new"), len_bytes, MapOptions::default());
        assert!(matches!(created, Err(MapError::TooShort { .. } | MapError::Unaligned { .. })));
    }
    let too_long = Mapping::create(&at("new"), 1 << 63, MapOptions::default());
    assert!(matches!(too_long, Err(MapError::TooLong { .. })));
    let too_long = Mapping::create(&at("new"), PAGE, reserve(u64::MAX));
    assert!(matches!(too_long, Err(MapError::TooLong { .. })));
    assert!(!at("new").exists(), "a file stays behind");
    assert!(matches!(Mapping::create(&at("odd"), PAGE, MapOptions::default()), Err(MapError::Exists { .. })));
    assert!(at("odd").exists());
}

#[test]
fn a_full_file_system_is_told_and_left_as_it_was() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
    // Without a limit it would take all memory there is.
    if !(1..1 << 33).contains(&rustix::fs::statvfs(directory.path()).unwrap().f_blocks) {
        return;
    }
    let at = directory.path().join("region");
    let created = Mapping::create(&at, 1 << 45, MapOptions::default());
    assert!(matches!(created, Err(MapError::NoSpace { .. })), "{created:?}");
    assert!(!at.exists());
    let mapping = Mapping::create(&at, PAGE, reserve(1 << 45)).unwrap();
    assert!(matches!(mapping.grow(1 << 45), Err(MapError::NoSpace { .. })));
    assert_eq!((mapping.len_bytes(), std::fs::metadata(&at).unwrap().len()), (PAGE, PAGE));
    mapping.grow(2 * PAGE).unwrap();
}

#[test]
fn space_is_really_allocated() {
    let directory = directory();
    let at = directory.path().join("region");
    let allocated_bytes = || std::fs::metadata(&at).unwrap().blocks() * 512;
    let unwritten = MapOptions { prewrite: false, reserve_bytes: 4 << 20, ..MapOptions::default() };
    let mapping = Mapping::create(&at, 1 << 20, unwritten).unwrap();
    assert!(allocated_bytes() >= 1 << 20);
    mapping.grow(2 << 20).unwrap();
    assert!(allocated_bytes() >= 2 << 20);
    drop(mapping);
    std::fs::remove_file(&at).unwrap();
    File::create(&at).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(allocated_bytes(), 0);
    drop(Mapping::open(&at, read_only()).unwrap());
    let mapping = open(&at).unwrap();
    assert!(allocated_bytes() >= 1 << 20);
    assert_eq!(mapping.load_u64(4096), Ok(0));
}

#[test]
fn a_region_grows_while_it_is_open() {
    let directory = directory();
    let at = directory.path().join("region");
    let mapping = Mapping::create(&at, PAGE, reserve(4 * PAGE - 1)).unwrap();
    mapping.store(PAGE - 2, b"ab").unwrap();
    assert!(mapping.store(PAGE - 2, b"abc").is_err());
    mapping.grow(3 * PAGE).unwrap();
    mapping.store(PAGE - 2, b"abc").unwrap();
    mapping.persist(0, 3 * PAGE).unwrap();
    assert!(matches!(mapping.grow(3 * PAGE + 8), Err(MapError::Unaligned { .. })));
    assert!(matches!(mapping.grow(2 * PAGE), Err(MapError::Shrinks { len_bytes: 12288 })));
    assert!(matches!(mapping.grow(5 * PAGE), Err(MapError::NotReserved { reserved_bytes: 16384, .. })));
    mapping.grow(3 * PAGE).unwrap();
    mapping.grow(4 * PAGE).unwrap();
    drop(mapping);
    let mapping = open(&at).unwrap();
    let mut bytes = [0; 4];
    mapping.load(PAGE - 2, &mut bytes).unwrap();
    assert_eq!((&bytes, mapping.len_bytes()), (b"abc\0", 4 * PAGE));
    assert!(matches!(mapping.grow(5 * PAGE), Err(MapError::NotReserved { .. })));
}

#[test]
fn every_offset_is_checked() {
    let mapping = Mapping::anonymous(PAGE, reserve(64 * PAGE)).unwrap();
    for (offset, len_bytes) in [(4095, 2), (4096, 1), (4097, 0), (u64::MAX, 1), (u64::MAX - 7, 8), (0, 4097), (8192, 8)]
    {
        let refused = Err(PmemError::OutOfBounds { offset, len_bytes, region_bytes: PAGE });
        let mut bytes = vec![0; len_bytes as usize];
        assert_eq!(mapping.load(offset, &mut bytes), refused);
        assert_eq!(mapping.store(offset, &bytes), refused);
        assert_eq!(mapping.store_nt(offset, &bytes), refused);
        assert_eq!(mapping.flush(offset, len_bytes), refused);
    }
    assert!(mapping.flush(8, u64::MAX).is_err());
    for offset in [4096, u64::MAX - 7] {
        assert!(matches!(mapping.load_u64(offset), Err(PmemError::OutOfBounds { len_bytes: 8, .. })));
        assert!(matches!(mapping.store_u64(offset, 1), Err(PmemError::OutOfBounds { len_bytes: 8, .. })));
    }
    assert_eq!(mapping.load_u64(4092), Err(PmemError::Misaligned { offset: 4092 }));
    assert_eq!(mapping.store_u64(4095, 1), Err(PmemError::Misaligned { offset: 4095 }));
    assert_eq!(mapping.load(4096, &mut []), Ok(()));
    assert_eq!(mapping.store(4096, &[]), Ok(()));
    assert_eq!(mapping.store_u64(4088, 1), Ok(()));
}

/// Loads during stores see words of before or after, of either way to copy.
#[test]
fn words_are_never_torn() {
    for len in [64, 4096] {
        let mapping = Mapping::anonymous(2 * PAGE, MapOptions::default()).unwrap();
        let both = Barrier::new(2);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                let patterns = [vec![0xFF; len], vec![0; len]];
                for pattern in patterns.iter().cycle().take_while(|_| !is_done.load(Ordering::Acquire)) {
                    mapping.store(8, pattern).unwrap();
                }
            });
            both.wait();
            let mut bytes = vec![0; len];
            let is_whole = |word: &[u8; 8]| [[0; 8], [0xFF; 8]].contains(word);
            let is_torn = (0..64_000_000 / len).any(|_| {
                mapping.load(8, &mut bytes).unwrap();
                !bytes.as_chunks::<8>().0.iter().all(is_whole)
            });
            is_done.store(true, Ordering::Release);
            assert!(!is_torn, "{len} bytes: {bytes:?}");
        });
    }
}

#[test]
fn neighbours_in_a_word_do_not_lose_each_others_stores() {
    let mapping = Mapping::anonymous(PAGE, MapOptions::default()).unwrap();
    let both = Barrier::new(2);
    let (mapping, both) = (&mapping, &both);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                both.wait();
                for round in 0..4_000_000_u32 {
                    mapping.store(3 + thread * 4, &round.to_le_bytes()).unwrap();
                    let mut bytes = [0; 4];
                    mapping.load(3 + thread * 4, &mut bytes).unwrap();
                    assert_eq!(u32::from_le_bytes(bytes), round, "thread {thread}");
                }
            });
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    Store { offset: u64, len: usize, byte: u8, non_temporal: bool },
    StoreWord { offset: u64, value: u64 },
    Load { offset: u64, len: usize },
    LoadWord { offset: u64 },
    Persist { offset: u64, len: u64 },
    Grow { pages: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = || 0..4 * PAGE + 16;
    let len = || prop_oneof![0..40_usize, 0..1200_usize, 0..9000_usize];
    let step = prop_oneof![
        4 => (offset(), len(), any::<u8>(), any::<bool>())
            .prop_map(|(offset, len, byte, non_temporal)| Step::Store { offset, len, byte, non_temporal }),
        2 => (offset(), any::<u64>()).prop_map(|(offset, value)| Step::StoreWord { offset, value }),
        4 => (offset(), len()).prop_map(|(offset, len)| Step::Load { offset, len }),
        2 => offset().prop_map(|offset| Step::LoadWord { offset }),
        1 => (offset(), 0..9000_u64).prop_map(|(offset, len)| Step::Persist { offset, len }),
        1 => (0..6_u64).prop_map(|pages| Step::Grow { pages }),
    ];
    proptest::collection::vec(step, 1..60)
}

fn part(model: &mut [u8], offset: u64, len: usize) -> Option<&mut [u8]> {
    model.get_mut(offset as usize..)?.get_mut(..len)
}

fn run(mapping: &Mapping, steps: &[Step]) {
    let mut model = vec![0_u8; mapping.len_bytes() as usize];
    for step in steps {
        match *step {
            Step::Store { offset, len, byte, non_temporal } => {
                let bytes: Vec<u8> = (0..len).map(|at| byte.wrapping_add(at as u8)).collect();
                let stored =
                    if non_temporal { mapping.store_nt(offset, &bytes) } else { mapping.store(offset, &bytes) };
                let part = part(&mut model, offset, len);
                assert_eq!(stored.is_ok(), part.is_some(), "{step:?}");
                part.into_iter().for_each(|part| part.copy_from_slice(&bytes));
            }
            Step::StoreWord { offset, value } => {
                let part = part(&mut model, offset, 8).filter(|_| offset.is_multiple_of(8));
                assert_eq!(mapping.store_u64(offset, value).is_ok(), part.is_some(), "{step:?}");
                part.into_iter().for_each(|part| part.copy_from_slice(&value.to_ne_bytes()));
            }
            Step::Load { offset, len } => {
                let mut bytes = vec![0; len];
                let loaded = mapping.load(offset, &mut bytes).ok().map(|()| bytes);
                assert!(loaded.as_deref() == part(&mut model, offset, len).as_deref(), "{step:?}");
            }
            Step::LoadWord { offset } => {
                let expected = part(&mut model, offset, 8).filter(|_| offset.is_multiple_of(8));
                assert_eq!(
                    mapping.load_u64(offset).ok().map(u64::to_ne_bytes).as_ref().map(|word| &word[..]),
                    expected.as_deref()
                );
            }
            Step::Persist { offset, len } => {
                assert_eq!(mapping.persist(offset, len).is_ok(), part(&mut model, offset, len as usize).is_some());
            }
            Step::Grow { pages } => {
                let fits = (model.len() as u64..=4 * PAGE).contains(&(pages * PAGE));
                assert_eq!(mapping.grow(pages * PAGE).is_ok(), fits, "{step:?}");
                model.resize(if fits { (pages * PAGE) as usize } else { model.len() }, 0);
            }
        }
    }
    let mut bytes = vec![0; model.len()];
    mapping.load(0, &mut bytes).unwrap();
    assert!(bytes == model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_region_is_an_array_of_bytes(steps in steps()) {
        run(&Mapping::anonymous(2 * PAGE, reserve(4 * PAGE)).unwrap(), &steps);
    }
}

#[test]
fn pieces_of_several_files_are_one_region() {
    let directory = directory();
    let paths = [directory.path().join("a"), directory.path().join("b")];
    let on_nodes = |nodes: [Option<u32>; 2]| {
        let mut mappings = Vec::new();
        for (path, node) in paths.iter().zip(nodes) {
            let options = MapOptions { node, ..MapOptions::default() };
            mappings.push(Mapping::open(path, options).unwrap());
        }
        mappings
    };
    let piece = |of: usize, from: u64, len: u64| Piece { of, from_bytes: from * PAGE, len_bytes: len * PAGE };
    let pieces = [piece(1, 1, 2), piece(0, 0, 3), piece(1, 3, 1)];
    paths.iter().for_each(|path| drop(create(path, 4 * PAGE)));
    let whole = Mapping::joined(on_nodes([None, None]), &pieces).unwrap();
    assert_eq!((whole.len_bytes(), whole.nodes().len(), whole.node_count()), (6 * PAGE, 0, 1));
    assert_eq!(whole.paths().collect::<Vec<_>>(), paths.iter().collect::<Vec<_>>());
    // Over the edges too.
    let bytes: Vec<u8> = (0..6 * PAGE).map(|at| (at / 7) as u8).collect();
    whole.store(0, &bytes).unwrap();
    whole.persist(0, 6 * PAGE).unwrap();
    whole.sync().unwrap();
    assert!(matches!(whole.grow(8 * PAGE), Err(MapError::NotReserved { .. })));
    assert!(paths.iter().all(|path| matches!(open(path), Err(MapError::Locked { .. }))));
    whole.unlock();
    drop(open(&paths[1]).unwrap());
    drop(whole);
    let [a, b] = [0, 1].map(|file| std::fs::read(&paths[file]).unwrap());
    let of = |from: u64, to: u64| &bytes[(from * PAGE) as usize..(to * PAGE) as usize];
    assert_eq!((&a[..3 * 4096], &b[4096..]), (of(2, 5), &[of(0, 2), of(5, 6)].concat()[..]));
    assert!(a[3 * 4096..].iter().chain(&b[..4096]).all(|byte| *byte == 0), "what is in no piece is as it was");
    // Each lies where it was said to.
    let whole = Mapping::joined(on_nodes([Some(3), Some(1)]), &pieces).unwrap();
    assert_eq!([0, 2, 5].map(|page| whole.node_of(page * PAGE + 7)), [0, 1, 0]);
    assert_eq!([0, 1].map(|node| whole.node_number(node)), [1, 3]);
    assert!(whole.node_here() < 2);
}

#[test]
fn pieces_that_make_no_region_are_refused() {
    let directory = directory();
    let at = directory.path().join("a");
    create(&at, 4 * PAGE);
    let piece = |of: usize, from_bytes: u64, len_bytes: u64| Piece { of, from_bytes, len_bytes };
    let joined = |pieces: &[Piece]| Mapping::joined(vec![open(&at).unwrap()], pieces);
    assert!(matches!(joined(&[piece(0, 0, 5 * PAGE)]), Err(MapError::TooShort { .. })));
    assert!(matches!(joined(&[piece(1, 0, PAGE)]), Err(MapError::TooShort { .. })));
    assert!(matches!(joined(&[piece(0, 0, PAGE + 8)]), Err(MapError::Unaligned { .. })));
    assert!(matches!(joined(&[piece(0, 8, PAGE)]), Err(MapError::Unaligned { .. })));
    assert!(matches!(
        joined(&[piece(0, u64::MAX - 4095, PAGE)]),
        Err(MapError::TooLong { .. } | MapError::TooShort { .. })
    ));
    assert!(Mapping::joined(Vec::new(), &[]).is_err());
    let memory = Mapping::anonymous(PAGE, MapOptions::default()).unwrap();
    let disk = open(&at).unwrap();
    if disk.domain() != Domain::Volatile {
        let mixed = Mapping::joined(vec![disk, memory], &[piece(0, 0, PAGE), piece(1, 0, PAGE)]);
        let said = mixed.map(drop).unwrap_err().to_string();
        assert!(said.contains("one sort") && said.contains("anonymous"), "{said}");
    }
}

/// What was cut off a file reads as zeros, in this process only.
#[test]
fn a_file_that_was_cut_off_is_filled_up_with_zeros_for_who_only_looks() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("region");
    let whole = Mapping::create(&path, 4 * 4096, MapOptions::default()).expect("created");
    (0..4).for_each(|page| whole.store(page * 4096, &[7; 4096]).expect("stored"));
    whole.sync().expect("written back");
    drop(whole);
    let file = std::fs::File::options().write(true).open(&path).expect("opened");
    file.set_len(2 * 4096 + 1000).expect("cut off");

    let how = MapOptions { private: true, reserve_bytes: 4 * 4096, ..MapOptions::default() };
    let left = Mapping::open(&path, how).expect("mapped");
    assert_eq!((left.len_bytes(), left.file_ends_at()), (3 * 4096, Some(2 * 4096 + 1000)));
    left.fill_up_with_zeros(4 * 4096).expect("filled up");
    let mut bytes = vec![1; 4 * 4096];
    left.load(0, &mut bytes).expect("loaded");
    let ends = 2 * 4096 + 1000;
    assert!(bytes[..ends].iter().all(|byte| *byte == 7) && bytes[ends..].iter().all(|byte| *byte == 0));
    assert_eq!(file.metadata().expect("there").len(), ends as u64, "the file stays as it was");
    drop(left);

    file.set_len(2 * 4096).expect("cut off");
    let changes =
        Mapping::open(&path, MapOptions { reserve_bytes: 4 * 4096, ..MapOptions::default() }).expect("mapped");
    assert!(matches!(changes.fill_up_with_zeros(4 * 4096), Err(MapError::ReadOnly)), "only who looks may");
}
