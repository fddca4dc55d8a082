//! Free pages that went back to the file system: it may be full when they are needed again, or make
//! no holes at all.

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use harness::*;
use stratakv_device::IoFault;
use stratakv_engine::{Error, Reply};

const MEMORY: u64 = 32 << 20;
const CAPACITY: Option<u64> = Some(64 << 20);
const RECORDS: u32 = 60;

fn name(number: u32) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 500_000]
}

/// A shard with values that take 30 MB, of which nearly all are deleted.
fn emptied<E: Engine>() -> Machine<E> {
    let mut machine = Machine::<E>::create_as(7, 1 << 30, MEMORY, CAPACITY);
    for number in 0..RECORDS {
        assert!(matches!(machine.put(&name(number), &value(number)), Reply::Done { .. }));
    }
    for number in 2..RECORDS {
        assert!(matches!(machine.delete(&name(number)), Reply::Done { existed: true, .. }));
    }
    machine.close();
    machine
}

fn discarded_bytes<E: Engine>(machine: &Machine<E>) -> u64 {
    let mut told = Vec::new();
    machine.slab.statistics(&mut told);
    told.iter().find(|statistic| statistic.name == "discarded_bytes").map_or(0, |statistic| statistic.value)
}

fn is_right<E: Engine>(machine: &mut Machine<E>, there: u32) {
    for number in 0..RECORDS {
        let expected = (number < there).then(|| value(number));
        assert!(machine.get(&name(number)).unwrap() == expected, "record {number}");
    }
    assert_eq!(machine.slab.check().mistakes, Vec::<String>::new());
}

#[test]
fn a_full_disk_refuses_what_needs_discarded_pages_and_ends_nothing() {
    each_engine!(Engine, name_of_it => {
        let mut machine = emptied::<Engine>();
        machine.recover_discarding(MEMORY, CAPACITY);
        machine.run_until_at_rest();
        let discarded = discarded_bytes(&machine);
        assert!(discarded > 10 << 20, "{name_of_it}: {discarded} bytes");
        is_right(&mut machine, 2);
        machine.disk.is_full = true;
        let mut taken = 2;
        let why = loop {
            match machine.put(&name(taken), &value(taken)) {
                Reply::Done { .. } => taken += 1,
                Reply::Failed(why) => break why,
                other => panic!("{name_of_it}: {other:?}"),
            }
        };
        assert!(matches!(why, Error::Full(_)), "{name_of_it}: {why:?}");
        is_right(&mut machine, taken);
        assert!(matches!(machine.put(b"short", b"1"), Reply::Done { .. }), "{name_of_it}");
        assert!(matches!(machine.delete(b"short"), Reply::Done { existed: true, .. }), "{name_of_it}");
        // After an opening too: nothing was forgotten.
        machine.close();
        machine.recover_discarding(MEMORY, CAPACITY);
        assert!(discarded_bytes(&machine) > 0, "{name_of_it}");
        is_right(&mut machine, taken);
        assert!(matches!(machine.delete(&name(taken - 1)), Reply::Done { existed: true, .. }), "{name_of_it}");
        machine.disk.is_full = false;
        machine.now.mono.0 += 2_000_000_000;
        for number in taken - 1..RECORDS {
            assert!(matches!(machine.put(&name(number), &value(number)), Reply::Done { .. }), "{name_of_it}");
        }
        is_right(&mut machine, RECORDS);
    });
}

#[test]
fn a_file_system_without_holes_is_asked_once() {
    each_engine!(Engine, name_of_it => {
        let mut machine = emptied::<Engine>();
        machine.disk.fail_discards = Some(IoFault::Os(95));
        machine.recover_discarding(MEMORY, CAPACITY);
        machine.run_until_at_rest();
        assert_eq!((machine.disk.discards, discarded_bytes(&machine)), (1, 0), "{name_of_it}");
        is_right(&mut machine, 2);
    });
}
