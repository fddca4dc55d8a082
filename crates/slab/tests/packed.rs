//! Placement `packed`, step by step.

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use harness::*;
use stratakv_base::Level;
use stratakv_engine::{Operation, RecordPart, Reply, Shard};
use stratakv_slab::Packed;

const MEMORY: u64 = 8 << 20;

fn create(seed: u64, capacity_bytes: Option<u64>) -> Machine<Packed> {
    Machine::create_as(seed, 1 << 30, MEMORY, capacity_bytes)
}

fn statistic(machine: &Machine<Packed>, name: &str) -> u64 {
    let mut all = Vec::new();
    machine.slab.statistics(&mut all);
    all.iter().filter(|statistic| statistic.name == name).map(|statistic| statistic.value).sum()
}

fn write_amplification_percent(machine: &Machine<Packed>) -> u64 {
    statistic(machine, "write_bytes") * 100 / statistic(machine, "user_bytes")
}

fn sound(machine: &Machine<Packed>) {
    let report = machine.slab.check();
    assert!(report.is_sound(), "{report:#?}");
}

/// Values that were read whole are not read again, neither whole nor in part, while memory has room
/// for them.
#[test]
fn large_values_are_read_once() {
    let mut machine = create(2, None);
    let sizes = [17_000, 40_000, 65_000, 65_536, 100_000, 300_000];
    let bytes_of = |number: usize, life: usize| -> Vec<u8> {
        (0..sizes[number]).map(|at| (at / 251 + at * 7 + number * 31 + life) as u8).collect()
    };
    let name = |number: usize| format!("key{number}").into_bytes();
    (0..sizes.len()).for_each(|number| _ = machine.put(&name(number), &bytes_of(number, 0)));
    machine.close();
    machine.recover(MEMORY, None).unwrap();
    let part = |machine: &mut Machine<Packed>, number: usize, part: RecordPart| {
        let Reply::Record(Some(record)) = machine.run(Operation::Get { key: key(&name(number)), part }) else {
            panic!("key{number} is there")
        };
        record.value.to_bytes()
    };
    for life in 0..3 {
        for number in 0..sizes.len() {
            assert_eq!(machine.get(&name(number)), Ok(Some(bytes_of(number, life))), "{number}, {life}");
        }
        let reads = statistic(&machine, "page_reads");
        for number in 0..sizes.len() {
            let expected = bytes_of(number, life);
            assert_eq!(machine.get(&name(number)), Ok(Some(expected.clone())), "{number}, {life}, again");
            for start in [0, 1, 16_999, sizes[number] / 2, sizes[number] - 1] {
                let found = part(&mut machine, number, RecordPart::Range { start: start as u64, len: 20_000 });
                assert_eq!(found, expected[start..(start + 20_000).min(sizes[number])], "{number} from {start}");
            }
            assert!(part(&mut machine, number, RecordPart::Meta).is_empty());
        }
        assert_eq!(statistic(&machine, "page_reads"), reads, "{life}: all of it was in memory");
        (0..sizes.len()).for_each(|number| _ = machine.put(&name(number), &bytes_of(number, life + 1)));
    }
    machine.run_until_idle();
    sound(&machine);
}

#[test]
fn values_of_every_size_survive_overwriting_closing_and_reopening() {
    let mut machine = create(1, None);
    let sizes = [0, 1, 30, 100, 500, 1000, 2000, 3900, 4000, 4096, 5000, 16_300, 20_000, 65_536, 200_000, 1 << 20];
    for round in 0..3usize {
        for (number, size) in sizes.iter().enumerate() {
            let size = sizes[(number + round) % sizes.len()].max(*size / 2);
            let reply = machine.put(format!("key{number}").as_bytes(), &vec![number as u8; size]);
            assert!(matches!(reply, Reply::Done { existed, .. } if existed == (round > 0)), "{reply:?}");
        }
        for (number, size) in sizes.iter().enumerate() {
            let size = sizes[(number + round) % sizes.len()].max(*size / 2);
            let value = machine.get(format!("key{number}").as_bytes()).unwrap().unwrap();
            assert!(value == vec![number as u8; size], "key{number} of {size} bytes, round {round}");
        }
        machine.run_until_idle();
        sound(&machine);
        machine.close();
        machine.recover(MEMORY, None).unwrap();
        assert!(machine.slab.recovery().clean);
        assert!(machine.slab.recovery().corrupt.is_empty(), "{:?}", machine.slab.recovery());
        assert_eq!(machine.slab.recovery().records, sizes.len() as u64);
        sound(&machine);
    }
    for number in 0..sizes.len() {
        assert!(matches!(machine.delete(format!("key{number}").as_bytes()), Reply::Done { existed: true, .. }));
        assert_eq!(machine.get(format!("key{number}").as_bytes()), Ok(None));
    }
    machine.run_until_idle();
    sound(&machine);
    assert_eq!(machine.slab.check().records, 0);
    machine.close();
    machine.recover(MEMORY, None).unwrap();
    for number in 0..sizes.len() {
        assert_eq!(machine.get(format!("key{number}").as_bytes()), Ok(None));
    }
}

/// Ten times the volume is written into one that is three quarters full: the space comes back, and
/// nothing is lost.
#[test]
fn overwriting_for_ever_needs_no_more_space() {
    let capacity = 8 << 20;
    let mut machine = create(2, Some(capacity));
    let keys = 4000u64;
    let value = |key: u64, round: u64| vec![(key * 31 + round) as u8; 1000 + (key % 700) as usize];
    let mut rounds = vec![0u64; keys as usize];
    let mut waiting = Vec::new();
    for step in 0..60_000u64 {
        let key = if step < keys { step } else { machine.random.below(keys) };
        rounds[key as usize] = step;
        let operation =
            put_operation(format!("k{key}").as_bytes(), &value(key, step), Default::default(), Level::PowerLoss);
        waiting.push(machine.submit(operation));
        if waiting.len() == 32 {
            for number in waiting.drain(..) {
                let reply = machine.wait(number);
                assert!(matches!(reply, Reply::Done { .. }), "step {step}: {reply:?}");
            }
        }
    }
    machine.run_until_idle();
    sound(&machine);
    assert!(statistic(&machine, "segments_cleaned") > 100);
    let amplification = write_amplification_percent(&machine);
    assert!(amplification < 600, "{amplification} %");
    for reopened in [false, true] {
        if reopened {
            machine.disk.lose_all_unflushed();
            machine.recover(MEMORY, Some(capacity)).unwrap();
            sound(&machine);
        }
        for key in 0..keys {
            let found = machine.get(format!("k{key}").as_bytes()).unwrap().unwrap();
            assert!(found == value(key, rounds[key as usize]), "k{key}");
        }
    }
}

/// At the limit writes are refused, overwriting and deleting go on or say so, and room comes back;
/// nothing is ever stuck.
#[test]
fn a_full_log_refuses_and_recovers() {
    let capacity = 4 << 20;
    let mut machine = create(3, Some(capacity));
    let mut held: std::collections::BTreeMap<u64, Vec<u8>> = Default::default();
    let mut refused = 0;
    for step in 0..30_000u64 {
        let key = machine.random.below(6000);
        let name = format!("k{key}");
        if machine.random.below(100) < 15 {
            let reply = machine.delete(name.as_bytes());
            assert!(matches!(reply, Reply::Done { .. }), "step {step}: {reply:?}");
            held.remove(&key);
            continue;
        }
        let len = [40, 400, 1500, 9000][machine.random.below(4) as usize] + machine.random.below(100);
        let value = vec![step as u8; len as usize];
        match machine.put(name.as_bytes(), &value) {
            Reply::Done { .. } => drop(held.insert(key, value)),
            Reply::Failed(stratakv_engine::Error::Full(_)) => refused += 1,
            other => panic!("step {step}: {other:?}"),
        }
    }
    assert!(refused > 1000, "it was never full");
    machine.run_until_idle();
    sound(&machine);
    let bytes: usize = held.values().map(Vec::len).sum();
    assert!(bytes > capacity as usize / 2);
    machine.disk.lose_all_unflushed();
    machine.recover(MEMORY, Some(capacity)).unwrap();
    sound(&machine);
    for key in 0..6000 {
        assert_eq!(machine.get(format!("k{key}").as_bytes()).unwrap().as_ref(), held.get(&key), "k{key}");
    }
    for key in 0..6000 {
        machine.delete(format!("k{key}").as_bytes());
    }
    let reply = machine.put(b"after", &[1; 1000]);
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
}
