//! Damaged media, full disks, failing devices, limits of memory.

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use std::ops::Bound;

use harness::*;
use stratakv_base::random::Random;
use stratakv_base::{Expiry, Level, Mono, Wall};
use stratakv_device::{IoFault, Pool};
use stratakv_engine::{Capability, Effects, Error, Operation, PageRequest, Reply, Shard};
use stratakv_slab::{PackedOpener, Slab, SlabOpener};

const MEMORY: u64 = 8 << 20;

fn name(number: usize) -> Vec<u8> {
    format!("key{number:03}").into_bytes()
}

/// A clean volume of 256 KiB with records of many sizes.
fn sample() -> Machine {
    let mut machine = Machine::create(3, 1 << 20, MEMORY, Some(256 << 10));
    for number in 0..20 {
        assert!(matches!(machine.put(&name(number), &vec![number as u8; number * 37]), Reply::Done { .. }));
    }
    assert!(matches!(machine.put(b"large", &[9; 20_000]), Reply::Done { .. }));
    machine.run_until_idle();
    machine.close();
    machine
}

#[test]
fn a_flipped_bit_anywhere_gives_no_wrong_value_and_spares_the_other_records() {
    let mut machine = sample();
    let mut found_damaged = 0;
    // Every byte would take a while: a stride that meets every offset within a sector.
    for (number, offset) in (0..256 << 10).step_by(397).enumerate() {
        let mask = 1 << (number % 8);
        let before = machine.disk.current.clone();
        machine.disk.damage(offset, mask);
        machine.recover(MEMORY, Some(256 << 10)).unwrap_or_else(|error| panic!("byte {offset}: {error}"));
        let mut damaged = 0;
        let reported = !machine.slab.recovery().corrupt.is_empty() || machine.slab.recovery().superblock_repaired;
        let expected = (0..20).map(|number| (name(number), vec![number as u8; number * 37]));
        for (key, value) in expected.chain([(b"large".to_vec(), vec![9; 20_000])]) {
            match machine.get(&key) {
                Ok(Some(found)) => assert!(found == value, "byte {offset}: a wrong value"),
                Ok(None) => damaged += 1,
                Err(Error::Corrupt(_)) => damaged += 1,
                Err(error) => panic!("byte {offset}: {error}"),
            }
        }
        assert!(damaged <= 1, "byte {offset}: {damaged} records");
        assert!(damaged == 0 || reported, "byte {offset}: a record is lost without a word");
        found_damaged += damaged;
        machine.run_until_idle();
        assert_eq!(machine.slab.check().mistakes, Vec::<String>::new());
        machine.disk.restore(before);
    }
    assert!(found_damaged > 10, "the flips meet records: {found_damaged}");
}

#[test]
fn a_lost_or_outdated_page_is_noticed_after_an_orderly_close() {
    let mut machine = sample();
    let clean = machine.disk.current.clone();
    let mut noticed = 0;
    for page in 2..64 {
        let range = page * 4096..(page + 1) * 4096;
        if clean[range.clone()].iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut image = clean.clone();
        image[range].fill(0);
        machine.disk.restore(image);
        machine.recover(MEMORY, Some(256 << 10)).unwrap();
        let mut lost = false;
        for number in 0..20 {
            let found = machine.get(&name(number));
            lost |= found != Ok(Some(vec![number as u8; number * 37]));
        }
        lost |= machine.get(b"large") != Ok(Some(vec![9; 20_000]));
        assert!(!lost || !machine.slab.recovery().corrupt.is_empty(), "page {page}");
        noticed += usize::from(lost);
    }
    assert!(noticed > 3);
}

#[test]
fn damage_under_a_running_shard_is_an_error_and_a_put_heals_it() {
    let mut machine = sample();
    machine.recover(MEMORY, Some(256 << 10)).unwrap();
    let value = [7u8; 7 * 37];
    let at = machine.disk.current.windows(value.len()).position(|window| window == value).unwrap();
    // The newest copy of the value may lie elsewhere too: damage all of them.
    let places: Vec<usize> = (at..machine.disk.current.len() - value.len())
        .filter(|at| machine.disk.current[*at..].starts_with(&value) && machine.disk.current[at - 1] != 7)
        .collect();
    places.iter().for_each(|at| machine.disk.damage(at + 5, 0x10));
    assert!(matches!(machine.get(&name(7)), Err(Error::Corrupt(_))));
    assert!(matches!(machine.get(&name(8)), Ok(Some(_))), "its neighbours are whole");
    assert!(!machine.slab.check().corrupt.is_empty());
    let all = PageRequest {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
        reverse: false,
        keys_only: false,
        items_max: 100,
        bytes_max: 1 << 20,
        at: None,
    };
    let scan = machine.run(Operation::Page(all.into()));
    assert!(matches!(scan, Reply::Failed(Error::Corrupt(_))), "a scan does not leave it out: {scan:?}");
    // Changing a neighbour seals the page again; the damage must not become truth.
    assert!(matches!(machine.put(&name(8), &[8; 8 * 37]), Reply::Done { .. }));
    assert!(matches!(machine.get(&name(7)), Err(Error::Corrupt(_))));
    assert!(matches!(machine.put(&name(7), b"new"), Reply::Done { .. }));
    assert_eq!(machine.get(&name(7)), Ok(Some(b"new".to_vec())));
}

#[test]
fn superblocks_are_repaired_and_foreign_or_newer_volumes_refused() {
    let mut machine = sample();
    let clean = machine.disk.current.clone();
    for slot in [0, 4096] {
        machine.disk.damage(slot + 40, 1);
        machine.recover(MEMORY, Some(256 << 10)).unwrap();
        assert!(machine.slab.recovery().superblock_repaired);
        machine.recover(MEMORY, Some(256 << 10)).unwrap();
        assert!(!machine.slab.recovery().superblock_repaired);
    }
    machine.disk.damage(40, 1);
    machine.disk.damage(4096 + 40, 1);
    assert!(matches!(machine.recover(MEMORY, Some(256 << 10)), Err(Error::Corrupt(_))));
    machine.disk.restore(clean);
    let (mut effects, mut random) = (Effects::new(Pool::new(MEMORY as usize)), Random::new(1));
    let mut open_with =
        |config| open(SlabOpener::recover(config), &mut machine.disk, &mut effects, &mut random, None).unwrap();
    let config = |volume_bytes| {
        let mut config = config(&Disk::new(0), MEMORY, None);
        config.volume_bytes = volume_bytes;
        config
    };
    let whole = 256 << 10;
    let mut other = config(whole);
    other.uuid = [1; 16];
    assert!(matches!(open_with(other), Err(Error::WrongVolume(_))));
    let mut other = config(whole);
    other.shards = 2;
    assert!(matches!(open_with(other), Err(Error::WrongVolume(_))));
    assert!(matches!(open_with(config(whole - 4096)), Err(Error::WrongVolume(_))), "cut short");
    assert!(matches!(open_with(config(4096)), Err(Error::WrongVolume(_))));
    let mut reader = config(whole);
    reader.read_only = true;
    let slab: Slab = open_with(reader).unwrap();
    assert_eq!(slab.recovery().records, 21);
}

/// Each placement would take the other's volume for an empty one.
#[test]
fn a_volume_of_the_other_placement_is_refused() {
    let mut machine = sample();
    let config = config(&machine.disk, MEMORY, None);
    let opener = PackedOpener::recover(config);
    let opened = open(opener, &mut machine.disk, &mut machine.effects, &mut machine.random, None).unwrap();
    let Err(Error::WrongVolume(why)) = opened else { panic!("{opened:?}") };
    assert!(why.contains("is of placement `in_place`, not `packed`"), "{why}");
    machine.recover(MEMORY, Some(256 << 10)).unwrap();
    assert!(machine.slab.recovery().clean, "nothing was written to it");
}

#[test]
fn a_volume_with_unreadable_places_is_saved_read_only() {
    let mut machine = sample();
    machine.disk.bad_place = Some(100 << 10);
    assert!(matches!(machine.recover(MEMORY, Some(256 << 10)), Err(Error::Io { .. })), "not for writing");
    let mut reader = config(&machine.disk, MEMORY, None);
    reader.read_only = true;
    let opener = SlabOpener::recover(reader);
    machine.slab = open(opener, &mut machine.disk, &mut machine.effects, &mut machine.random, None).unwrap().unwrap();
    let report = machine.slab.recovery();
    assert!(report.corrupt.is_empty() && !report.unreadable.is_empty(), "{report:?}");
    let saved = (0..20).filter(|number| matches!(machine.get(&name(*number)), Ok(Some(_)))).count();
    assert!(saved > 0, "the rest is there");
    assert!(matches!(machine.put(b"k", b"v"), Reply::Failed(Error::WrongVolume(_))));
    machine.close();
}

#[test]
fn a_full_store_refuses_new_records_but_not_deletes_and_recovers() {
    let mut machine = Machine::create(4, 1 << 30, MEMORY, Some(512 << 10));
    let mut stored = 0;
    loop {
        match machine.put(&name(stored), &[stored as u8; 3000]) {
            Reply::Done { .. } => stored += 1,
            Reply::Failed(Error::Full(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(stored > 100, "{stored}");
    assert!(matches!(machine.put(b"large", &[0; 100_000]), Reply::Failed(Error::Full(_))));
    assert!(matches!(machine.put(&name(3), &[1; 3100]), Reply::Done { existed: true, .. }), "rewriting goes on");
    assert!(matches!(machine.get(&name(4)), Ok(Some(_))));
    for number in 0..5 {
        assert!(matches!(machine.delete(&name(number)), Reply::Done { existed: true, .. }));
    }
    assert!(matches!(machine.put(b"again", &[0; 3000]), Reply::Done { .. }));
    machine.run_until_idle();
    let report = machine.slab.check();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_full_device_refuses_and_growth_is_tried_again() {
    let mut machine = Machine::create(4, 5 << 20, 64 << 20, None);
    let mut stored = 0;
    loop {
        match machine.put(&name(stored), &[stored as u8; 60_000]) {
            Reply::Done { .. } => stored += 1,
            Reply::Failed(Error::Full(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!((50..=64).contains(&stored), "{stored}");
    machine.disk.limit_bytes = 1 << 30;
    machine.now.mono.0 += 2_000_000_000;
    assert!(matches!(machine.put(b"after", &[1; 60_000]), Reply::Done { .. }));
    for number in 0..stored {
        assert_eq!(machine.get(&name(number)), Ok(Some(vec![number as u8; 60_000])));
    }
    // The volume has grown; what is in the new part survives.
    machine.disk.lose_power(&mut Random::new(1));
    machine.recover(64 << 20, None).unwrap();
    assert_eq!(machine.get(b"after"), Ok(Some(vec![1; 60_000])));
}

#[test]
fn after_a_failed_flush_nothing_is_written_and_reads_go_on() {
    for flush in [true, false] {
        let mut machine = Machine::create(6, 1 << 30, MEMORY, None);
        machine.put(b"a", b"1");
        let fault = Some(IoFault::Os(5));
        (machine.disk.fail_flushes, machine.disk.fail_writes) = if flush { (fault, None) } else { (None, fault) };
        // Two pages in one group, so that it is flushed.
        let first = machine.submit(put_operation(b"a", &[2; 10], Expiry::NEVER, Level::PowerLoss));
        let second = machine.submit(put_operation(b"b", &[2; 3000], Expiry::NEVER, Level::PowerLoss));
        let third = machine.submit(put_operation(b"c", &[2; 30_000], Expiry::NEVER, Level::PowerLoss));
        for number in [first, second] {
            let reply = machine.wait(number);
            assert!(matches!(reply, Reply::Failed(Error::Unknown(_) | Error::Poisoned(_))), "{reply:?}");
        }
        assert!(matches!(machine.wait(third), Reply::Failed(_)));
        (machine.disk.fail_flushes, machine.disk.fail_writes) = (None, None);
        assert!(matches!(machine.put(b"a", b"3"), Reply::Failed(Error::Poisoned(_))));
        assert!(matches!(machine.run(Operation::Sync), Reply::Failed(Error::Poisoned(_))));
        assert_eq!(machine.get(b"a"), Ok(Some(b"1".to_vec())));
        machine.close();
    }
}

/// It was told to nobody: what `process_crash` had acknowledged could be lost, and the end seemed
/// orderly.
#[test]
fn a_failed_last_flush_or_superblock_is_told() {
    for flush in [true, false] {
        let mut machine = Machine::create(6, 1 << 30, MEMORY, None);
        machine.run(put_operation(b"a", b"1", Expiry::NEVER, Level::PowerLoss));
        machine.run_until_idle();
        assert_eq!(machine.slab.failure(), None);
        let fault = Some(IoFault::Os(5));
        (machine.disk.fail_flushes, machine.disk.fail_writes) = if flush { (fault, None) } else { (None, fault) };
        machine.close();
        assert_eq!(machine.slab.failure(), Some(Error::Poisoned(IoFault::Os(5))), "the flush: {flush}");
        (machine.disk.fail_flushes, machine.disk.fail_writes) = (None, None);
        machine.recover(MEMORY, None).unwrap();
        assert!(!machine.slab.recovery().clean);
        assert_eq!(machine.get(b"a"), Ok(Some(b"1".to_vec())));
    }
}

#[test]
fn expired_records_vanish_at_once_and_their_space_comes_back() {
    let mut machine = Machine::create(7, 1 << 30, MEMORY, None);
    for number in 0..200 {
        machine.run(put_operation(&name(number), &[1; 500], Expiry(2000), Level::PowerLoss));
    }
    machine.put(b"kept", b"1");
    machine.now.wall = Wall(2000);
    assert_eq!(machine.get(&name(5)), Ok(None));
    assert!(matches!(machine.delete(&name(5)), Reply::Done { existed: false, .. }));
    for _ in 0..100 {
        machine.now.mono = Mono(machine.now.mono.0 + 1_000_000_000);
        machine.tick(64);
    }
    machine.run_until_idle();
    assert_eq!(machine.slab.check().records, 1);
    assert_eq!(machine.get(b"kept"), Ok(Some(b"1".to_vec())));
}

#[test]
fn an_index_at_its_limit_refuses_new_keys_only() {
    let mut machine = Machine::create(8, 1 << 30, 4 << 20, None);
    let mut stored = 0usize;
    // Keys without a common prefix, so that the index cannot shorten them.
    let key = |number: usize| {
        let mut key = vec![0; 200];
        Random::new(number as u64).fill(&mut key);
        key
    };
    let refused = loop {
        let number = machine.submit(put_operation(&key(stored), b"", Expiry::NEVER, Level::ProcessCrash));
        match machine.wait(number) {
            Reply::Done { .. } => stored += 1,
            Reply::Failed(error) => break error,
            other => panic!("{other:?}"),
        }
        assert!(stored < 1_000_000);
    };
    assert!(matches!(refused, Error::MemoryFull { .. }), "{refused}");
    assert!(stored > 1000, "{stored}");
    assert!(matches!(machine.put(&key(0), b"new"), Reply::Done { existed: true, .. }));
    let mut statistics = Vec::new();
    machine.slab.statistics(&mut statistics);
    let index = statistics.iter().find(|statistic| statistic.name == "index_bytes").unwrap().value;
    assert!(index <= 2 << 20, "{index}");
}

#[test]
fn what_is_not_supported_says_so() {
    let mut machine = Machine::create(9, 1 << 30, MEMORY, None);
    let memory = machine.run(put_operation(b"k", b"v", Expiry::NEVER, Level::Memory));
    assert!(matches!(memory, Reply::Failed(Error::Unsupported(Capability::Level))));
    // A piece of a backup that was never begun.
    let backup = machine.run(Operation::Backup { cursor: 1, shard: 0 });
    assert!(matches!(backup, Reply::Failed(Error::Unknown(_))));
    let huge = machine.put(b"k", &vec![0; (64 << 20) + 1]);
    assert!(matches!(huge, Reply::Failed(Error::ValueTooLarge { .. })));
}
