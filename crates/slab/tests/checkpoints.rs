//! Checkpoints of placement `packed`: what opening reads after a kill, damage to them, their space.

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use std::collections::BTreeMap;

use harness::*;
use stratakv_base::random::Random;
use stratakv_base::{Expiry, Level};
use stratakv_device::Pool;
use stratakv_engine::{Effects, Reply, Shard, ShardEvent};
use stratakv_slab::{CheckpointPace, Packed, PackedOpener};

const MEMORY: u64 = 8 << 20;
/// 64 segments of 256 KiB.
const CAPACITY: u64 = 16 << 20;

fn create(seed: u64) -> Machine<Packed> {
    let mut machine = Machine::create_as(seed, 1 << 30, MEMORY, Some(CAPACITY));
    reopen(&mut machine, false);
    machine
}

/// Opens the store again, with or without a comparison with what a scan finds.
fn reopen(machine: &mut Machine<Packed>, verify: bool) {
    let mut config = config(&machine.disk, MEMORY, Some(CAPACITY));
    (config.verify, config.checkpoints) = (verify, CheckpointPace { log_bytes_min: 1 << 20, ..Default::default() });
    machine.effects = Effects::new(Pool::new(MEMORY as usize));
    let opener = PackedOpener::recover(config);
    let opened = open(opener, &mut machine.disk, &mut machine.effects, &mut machine.random, None);
    machine.slab = opened.unwrap().unwrap();
    machine.replies.clear();
}

fn statistic(machine: &Machine<Packed>, name: &str) -> u64 {
    let mut all = Vec::new();
    machine.slab.statistics(&mut all);
    all.iter().filter(|statistic| statistic.name == name).map(|statistic| statistic.value).sum()
}

fn sound(machine: &Machine<Packed>) {
    let report = machine.slab.check();
    assert!(report.is_sound(), "{report:#?}");
}

/// Puts and deletes, many at a time.
fn write(machine: &mut Machine<Packed>, held: &mut BTreeMap<u64, u8>, random: &mut Random, count: u64, keys: u64) {
    for round in 0..count / 50 {
        for _ in 0..50 {
            let (key, byte) = (random.below(keys), round as u8);
            let name = format!("key {key:06}").into_bytes();
            if random.below(10) == 0 {
                held.remove(&key);
                machine.submit(delete_operation(&name, Level::PowerLoss));
            } else {
                held.insert(key, byte);
                machine.submit(put_operation(&name, &[byte; 1400], Expiry::NEVER, Level::PowerLoss));
            }
        }
        for _ in 0..100 {
            if machine.replies.len() == 50 {
                break;
            }
            machine.tick(8);
        }
        assert!(machine.replies.drain().all(|(_, reply)| matches!(reply, Reply::Done { .. })));
    }
}

fn compare(machine: &mut Machine<Packed>, held: &BTreeMap<u64, u8>, keys: u64) {
    for key in 0..keys {
        let found = machine.get(format!("key {key:06}").as_bytes()).unwrap();
        assert_eq!(found, held.get(&key).map(|byte| vec![*byte; 1400]), "key {key}");
    }
}

/// A store with a checkpoint, and a little written after it.
fn sample(seed: u64) -> (Machine<Packed>, BTreeMap<u64, u8>) {
    let (mut machine, mut held, mut random) = (create(seed), BTreeMap::new(), Random::new(seed));
    while statistic(&machine, "checkpoints") < 3 || held.len() < 5000 {
        write(&mut machine, &mut held, &mut random, 500, 6000);
    }
    write(&mut machine, &mut held, &mut random, 50, 6000);
    sound(&machine);
    (machine, held)
}

#[test]
fn after_a_kill_opening_reads_a_fifth_of_the_log_at_most() {
    let (mut machine, held) = sample(1);
    let traffic = statistic(&machine, "checkpoint_bytes") * 100 / statistic(&machine, "write_bytes");
    assert!(traffic <= 10, "checkpoints are {traffic} % of what is written");
    machine.disk.kill(&mut Random::new(1));
    let image = machine.disk.current.clone();
    reopen(&mut machine, false);
    assert!(machine.slab.recovery().checkpoint.is_used);
    let quick = statistic(&machine, "recovery_bytes_read");
    sound(&machine);
    compare(&mut machine, &held, 6000);
    // Without the roots everything is read.
    let mut bare = image.clone();
    let roots: Vec<usize> = (0..bare.len()).step_by(4096).filter(|at| bare[*at..].starts_with(b"SPCR")).collect();
    roots.iter().for_each(|at| bare[*at..at + 4096].fill(0));
    machine.disk.restore(bare);
    reopen(&mut machine, false);
    assert!(!machine.slab.recovery().checkpoint.is_used);
    let scan = statistic(&machine, "recovery_bytes_read");
    assert!(quick * 5 <= scan, "{quick} of {scan} bytes");
    compare(&mut machine, &held, 6000);
    // Compared key by key, segment by segment.
    machine.disk.restore(image);
    reopen(&mut machine, true);
    assert!(machine.slab.recovery().checkpoint.is_used && machine.slab.recovery().corrupt.is_empty());
    sound(&machine);
}

#[test]
fn a_damaged_checkpoint_is_told_and_everything_is_read_instead() {
    let (mut machine, held) = sample(2);
    machine.disk.kill(&mut Random::new(2));
    let mut image = machine.disk.current.clone();
    let newest = |at: &usize| u64::from_le_bytes(image[at + 8..at + 16].try_into().unwrap());
    let roots = (0..image.len()).step_by(4096).filter(|at| image[*at..].starts_with(b"SPCR"));
    let roots: Vec<usize> = roots.collect();
    let root = roots.iter().copied().max_by_key(newest).unwrap();
    // The one before it, if it was not given up yet, would do instead.
    roots.iter().filter(|at| **at != root).for_each(|at| image[*at..at + 4096].fill(0));
    let (chunks, of_root) = ("the chunks of a checkpoint do not check", "the root of a checkpoint does not check");
    for (offset, told, why) in [(4096 + 100, true, chunks), (2 * 4096 + 3000, true, chunks), (100, false, of_root)] {
        machine.disk.restore(image.clone());
        machine.disk.damage(root + offset, 4);
        reopen(&mut machine, false);
        let report = machine.slab.recovery();
        assert!(!report.checkpoint.is_used && report.corrupt.is_empty() != told, "{offset}: {report:?}");
        assert_eq!(report.checkpoint.refused, u64::from(told));
        machine.tick(1);
        assert_eq!(std::mem::take(&mut machine.effects.events), [ShardEvent::ReadInFull { why }]);
        // It stays void if it can be read again: segments it covers may have been continued.
        machine.disk.damage(root + offset, 4);
        machine.disk.kill(&mut Random::new(2));
        reopen(&mut machine, false);
        assert!(!machine.slab.recovery().checkpoint.is_used && machine.slab.recovery().corrupt.is_empty());
        compare(&mut machine, &held, 6000);
        assert_eq!(machine.slab.check().mistakes, Vec::<String>::new());
    }
}

#[test]
fn an_orderly_close_leaves_one_and_the_next_life_goes_on_from_it() {
    let (mut machine, mut held) = sample(3);
    let mut random = Random::new(3);
    for life in 0..4 {
        write(&mut machine, &mut held, &mut random, 2000, 6000);
        machine.run_until_idle();
        machine.close();
        reopen(&mut machine, life % 2 == 0);
        let report = machine.slab.recovery();
        assert!(report.checkpoint.is_used && report.clean && report.corrupt.is_empty(), "{report:?}");
        sound(&machine);
        compare(&mut machine, &held, 6000);
    }
}

#[test]
fn a_volume_four_fifths_full_goes_on_making_checkpoints() {
    // Room for one, but mostly not for another beside it.
    let (mut machine, mut held, mut random, keys) = (create(5), BTreeMap::new(), Random::new(5), 10_300);
    while held.len() < keys as usize * 88 / 100 {
        write(&mut machine, &mut held, &mut random, 500, keys);
    }
    let before = statistic(&machine, "checkpoints");
    write(&mut machine, &mut held, &mut random, 30_000, keys);
    let fill = statistic(&machine, "live_bytes") * 100 / CAPACITY;
    assert!((78..82).contains(&fill), "{fill} % is alive");
    let made = statistic(&machine, "checkpoints") - before;
    assert!(made >= 10, "{made} were made");
    sound(&machine);
    machine.disk.kill(&mut Random::new(5));
    reopen(&mut machine, true);
    sound(&machine);
    compare(&mut machine, &held, keys);
}

#[test]
fn checkpoints_make_way_for_records() {
    let (mut machine, mut held) = sample(4);
    assert!(statistic(&machine, "checkpoint_segments") > 0);
    // As full as a store without checkpoints may be.
    let (mut number, mut refused) = (6000u64, 0);
    while refused == 0 {
        match machine.put(format!("key {number:06}").as_bytes(), &[7; 1400]) {
            Reply::Done { .. } => drop(held.insert(number, 7)),
            other => {
                assert!(matches!(other, Reply::Failed(stratakv_engine::Error::Full(_))), "{other:?}");
                refused += 1;
            }
        }
        number += 1;
    }
    machine.run_until_idle();
    sound(&machine);
    assert_eq!(statistic(&machine, "checkpoint_segments"), 0, "given back before anything was refused");
    let live = statistic(&machine, "live_bytes") * 100 / CAPACITY;
    assert!(live >= 80, "{live} % is alive");
    machine.disk.kill(&mut Random::new(4));
    reopen(&mut machine, true);
    sound(&machine);
    compare(&mut machine, &held, number);
}

/// Found by the fuzzer of logs: closing waited for the damaged copy to be written anew, which
/// nobody does who only reads.
#[test]
fn a_volume_with_a_damaged_copy_of_a_table_opens_for_reading_and_closes() {
    let (mut machine, held) = sample(4);
    machine.run_until_idle();
    machine.close();
    machine.disk.damage(2 * 4096 + 100, 4);
    let mut config = config(&machine.disk, MEMORY, Some(CAPACITY));
    config.read_only = true;
    machine.effects = Effects::new(Pool::new(MEMORY as usize));
    let opener = PackedOpener::recover(config);
    let opened = open(opener, &mut machine.disk, &mut machine.effects, &mut machine.random, None);
    machine.slab = opened.unwrap().unwrap();
    machine.replies.clear();
    compare(&mut machine, &held, 6000);
    machine.close();
}
