//! What reading the code found, as scenarios.

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use std::ops::Bound;

use harness::*;
use stratakv_base::{Expiry, Level, Wall};
use stratakv_engine::{ChangeKind, Error, Expect, Operation, PageRequest, Reply, Shard};

const MEMORY: u64 = 8 << 20;

/// The middles of all images of a value of `len` times `byte`: older images lie in free pages.
fn images(machine: &Machine, byte: u8, len: usize) -> Vec<usize> {
    let medium = &machine.disk.current;
    let is_image = |at: &usize| medium[*at..].starts_with(&vec![byte; len]) && medium[at - 1] != byte;
    let found: Vec<usize> = (1..medium.len()).filter(is_image).map(|at| at + len / 2).collect();
    assert!(!found.is_empty(), "the value is on the medium");
    found
}

fn turn_bits(machine: &mut Machine, places: &[usize]) {
    places.iter().for_each(|at| machine.disk.damage(*at, 4));
}

fn casual(machine: &mut Machine, key: &[u8], value: &[u8]) {
    let reply = machine.run(put_operation(key, value, Expiry::NEVER, Level::ProcessCrash));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
}

/// A damaged record counted as new as its page; each write of a neighbour made it newer, until it
/// outranked a copy written since.
#[test]
fn a_damaged_record_does_not_outrank_what_was_written_after_the_damage() {
    let mut machine = Machine::create(1, 1 << 30, MEMORY, None);
    machine.put(b"k", &[1; 604]);
    machine.put(b"neighbour", &[2; 604]);
    let places = images(&machine, 1, 604);
    turn_bits(&mut machine, &places);
    machine.recover(MEMORY, None).unwrap();
    assert!(matches!(machine.get(b"k"), Err(Error::Corrupt(_))));
    // Not flushed, so that the damaged copy is not cleared yet.
    casual(&mut machine, b"k", &[3; 40]);
    casual(&mut machine, b"neighbour", &[4; 604]);
    machine.recover(MEMORY, None).unwrap();
    assert_eq!(machine.get(b"k"), Ok(Some(vec![3; 40])));
}

/// An older copy in a page that did not check once was forgotten, the key deleted, and the copy
/// found at the next opening.
#[test]
fn a_delete_does_not_forget_an_older_copy_that_cannot_be_read() {
    let mut machine = Machine::create(1, 1 << 30, MEMORY, None);
    machine.put(b"k", &[1; 604]);
    machine.put(b"neighbour", &[2; 604]);
    casual(&mut machine, b"k", &[3; 40]);
    machine.recover(MEMORY, None).unwrap();
    assert_eq!(machine.slab.recovery().obsolete, 1);
    let pages = images(&machine, 1, 604).into_iter().map(|at| at / 4096 * 4096);
    let edges: Vec<usize> = pages.flat_map(|page| [page, page + 4095]).collect();
    turn_bits(&mut machine, &edges);
    let refused = machine.delete(b"k");
    assert!(matches!(refused, Reply::Failed(Error::Corrupt(_))), "{refused:?}");
    turn_bits(&mut machine, &edges);
    assert!(matches!(machine.delete(b"k"), Reply::Done { existed: true, .. }));
    machine.recover(MEMORY, None).unwrap();
    assert_eq!(machine.get(b"k"), Ok(None));
}

/// The index does not know when a record expires that recovery found damaged, though later reads of
/// it are good.
#[test]
fn a_record_that_expired_unknown_to_the_index_is_absent_to_writes() {
    let mut machine = Machine::create(1, 1 << 30, MEMORY, None);
    machine.run(put_operation(b"k", &[1; 604], Expiry(2000), Level::PowerLoss));
    machine.close();
    let places = images(&machine, 1, 604);
    turn_bits(&mut machine, &places);
    machine.recover(MEMORY, None).unwrap();
    turn_bits(&mut machine, &places);
    machine.now.wall = Wall(2000);
    assert_eq!(machine.get(b"k"), Ok(None));
    let add = ChangeKind::Put { value: bytes::Bytes::from_static(b"new"), flags: 0, expiry: Expiry::NEVER };
    let reply = machine.run(write(b"k", Expect::Absent, add, Level::PowerLoss));
    assert!(matches!(reply, Reply::Done { existed: false, .. }), "{reply:?}");
    assert_eq!(machine.get(b"k"), Ok(Some(b"new".to_vec())));
}

/// A scan began 64 reads whatever its answer may hold: of large values, gigabytes.
#[test]
fn a_scan_reads_little_more_than_its_answer_holds() {
    let mut machine = Machine::create(1, 1 << 30, 64 << 20, None);
    for number in 0..30u8 {
        machine.put(&[b'a', number], &[number; 200_000]);
    }
    let read_bytes = |machine: &Machine| {
        let mut statistics = Vec::new();
        machine.slab.statistics(&mut statistics);
        statistics.iter().find(|statistic| statistic.name == "read_bytes").unwrap().value
    };
    let before = read_bytes(&machine);
    let request = PageRequest {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
        reverse: false,
        keys_only: false,
        items_max: 100,
        bytes_max: 500_000,
        at: None,
    };
    let Reply::Page { items, next } = machine.run(Operation::Page(request.into())) else { panic!() };
    assert_eq!((items.len(), next.is_some()), (3, true));
    let read = read_bytes(&machine) - before;
    assert!(read <= 3 * 204_800, "{read}");
}

/// Copies kept for the sake of a damaged record stayed when it was replaced, and took their space
/// for ever.
#[test]
fn copies_kept_beside_damage_go_when_it_is_replaced() {
    let mut machine = Machine::create(1, 1 << 30, MEMORY, None);
    machine.put(b"k", &[1; 604]);
    machine.put(b"neighbour", &[2; 604]);
    casual(&mut machine, b"k", &[3; 40]);
    machine.close();
    let places = images(&machine, 3, 40);
    turn_bits(&mut machine, &places);
    machine.recover(MEMORY, None).unwrap();
    assert_eq!(machine.slab.recovery().obsolete, 1);
    assert!(matches!(machine.get(b"k"), Err(Error::Corrupt(_))));
    machine.run_until_idle();
    machine.put(b"k", &[5; 40]);
    machine.run_until_idle();
    machine.recover(MEMORY, None).unwrap();
    assert_eq!(machine.slab.recovery().obsolete, 0);
    assert_eq!(machine.get(b"k"), Ok(Some(vec![5; 40])));
}
