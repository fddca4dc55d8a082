//! Power cuts at every store, flush and fence of each kind of operation, and during the recovery
//! after them.

mod growing;

use std::collections::BTreeMap;

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Wall};
use stratakv_engine::{Change, ChangeKind, Error, Expect};
use stratakv_hash::{Hash, HashOptions, Report, Written};
use stratakv_sim::pmem::{Caught, Domain, Exhaustive, Explored, Pmem, PmemError, Region, Trace, WordOrder};

const NOW: Wall = Wall(1000);
const OPTIONS: HashOptions = HashOptions { uuid: *b"a store of tests", block_bytes: 64, segment_bytes: 4096 };
const REGION_BYTES: usize = 8 * 4096;

#[derive(Clone, Debug)]
enum Do {
    Put(u8, usize),
    Delete(u8),
    /// Of values of so many bytes, or deletes.
    Batch(Vec<(u8, Option<usize>)>),
}

type Model = BTreeMap<u8, Vec<u8>>;

fn key(number: u8) -> Key {
    Key::new(CollectionId(0), &[b'k', number]).expect("a key")
}

/// The value that operation `step` gives a key.
fn value(step: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (step * 37 + at) as u8).collect()
}

fn act(hash: &Hash<&Region>, step: usize, what: &Do) -> Result<(), Error> {
    let written = match what {
        Do::Put(number, bytes) => {
            hash.put(&key(*number), &value(step, *bytes), (*number as u32 % 2, Expiry::NEVER), Expect::Any, NOW)?
        }
        Do::Delete(number) => hash.delete(&key(*number), Expect::Any, NOW)?,
        Do::Batch(changes) => {
            let change = |(number, bytes): &(u8, Option<usize>)| {
                let put = |bytes| ChangeKind::Put {
                    value: value(step, bytes).into(),
                    flags: u32::from(*number) % 2,
                    expiry: Expiry::NEVER,
                };
                Change { key: key(*number), expect: Expect::Any, kind: bytes.map_or(ChangeKind::Delete, put) }
            };
            hash.write(&changes.iter().map(change).collect::<Vec<_>>(), NOW)?
        }
    };
    assert!(matches!(written, Written::Done { .. }));
    Ok(())
}

fn model(steps: &[Do]) -> Model {
    let mut model = Model::new();
    for (step, what) in steps.iter().enumerate() {
        match what {
            Do::Put(number, bytes) => drop(model.insert(*number, value(step, *bytes))),
            Do::Delete(number) => drop(model.remove(number)),
            Do::Batch(changes) => {
                for (number, bytes) in changes {
                    match bytes {
                        Some(bytes) => drop(model.insert(*number, value(step, *bytes))),
                        None => drop(model.remove(number)),
                    }
                }
            }
        }
    }
    model
}

fn memory(error: Error) -> PmemError {
    match error {
        Error::Pmem(error) => error,
        other => panic!("{other}"),
    }
}

fn created() -> Vec<u8> {
    let region = Region::new(REGION_BYTES);
    Hash::create(&region, OPTIONS).expect("created");
    let mut image = vec![0; REGION_BYTES];
    region.load(0, &mut image).expect("in bounds");
    image
}

/// Runs steps on a store that `before` made, and records them.
fn trace(before: &[Do], steps: &[Do], domain: Domain) -> Option<Trace> {
    trace_from(created(), before, steps, domain)
}

/// `None`: there was no room for one of them.
fn trace_from(start: Vec<u8>, before: &[Do], steps: &[Do], domain: Domain) -> Option<Trace> {
    let region = Region::open(start, domain);
    let hash = Hash::open(&region, 1).expect("opened");
    for (step, what) in before.iter().enumerate() {
        unless_full(act(&hash, step, what))?.expect("done");
    }
    let mut image = vec![0; REGION_BYTES];
    region.load(0, &mut image).expect("in bounds");
    let mut was_full = false;
    let trace = Trace::record(image, domain, |region| {
        let hash = Hash::open(region, 1).map_err(memory)?;
        for (step, what) in steps.iter().enumerate() {
            match unless_full(act(&hash, before.len() + step, what)) {
                Some(done) => done.map_err(memory)?,
                None => was_full = true,
            }
            region.acknowledge();
        }
        Ok(())
    });
    (!was_full).then(|| trace.expect("recorded"))
}

fn unless_full(done: Result<(), Error>) -> Option<Result<(), Error>> {
    (!matches!(done, Err(Error::Full(_)))).then_some(done)
}

/// What a store holds, read back; and whether its books are right.
fn contents(hash: &Hash<&Region>) -> Result<Model, String> {
    contents_in(hash, 4)
}

/// In so many segments.
fn contents_in(hash: &Hash<&Region>, segments: u64) -> Result<Model, String> {
    let mut found = Model::new();
    for number in 0..16 {
        match hash.get(&key(number), NOW) {
            Ok(Some(record)) => {
                if record.flags != u32::from(number) % 2 {
                    return Err(format!("flags of {number} are {}", record.flags));
                }
                found.insert(number, record.value.to_bytes().to_vec());
            }
            Ok(None) => {}
            Err(error) => return Err(format!("k{number}: {error}")),
        }
    }
    let report = hash.report();
    if report.records != found.len() as u64 || report.damaged > 0 {
        return Err(format!("{report:?} with {} records", found.len()));
    }
    let taken: u64 = found.iter().map(|(number, value)| record_bytes(*number, value.len())).sum();
    let Report { used_bytes, free_bytes, retired_bytes, unused_bytes, .. } = report;
    if used_bytes != free_bytes + retired_bytes + taken || used_bytes + unused_bytes != segments * 4096 {
        return Err(format!("{report:?}: the records take {taken} bytes"));
    }
    Ok(found)
}

fn record_bytes(number: u8, value_bytes: usize) -> u64 {
    (32 + 3 + 4 * (u64::from(number) % 2) + value_bytes as u64).next_multiple_of(64)
}

/// Opens what a cut left: the state before or after the operation that was cut; then everything can
/// be done with it.
fn check(region: &Region, before: &[Do], steps: &[Do], acknowledged: u64) -> Result<(), String> {
    let hash = Hash::open(region, 1).map_err(|error| error.to_string())?;
    let found = contents(&hash)?;
    let done = |count: u64| model(&[before, &steps[..(count as usize).min(steps.len())]].concat());
    if found != done(acknowledged) && found != done(acknowledged + 1) {
        let (before, after) = (done(acknowledged), done(acknowledged + 1));
        let wrong = (0..16).filter(|number| ![before.get(number), after.get(number)].contains(&found.get(number)));
        return Err(format!("keys {:?} are wrong after {acknowledged} operations", wrong.collect::<Vec<u8>>()));
    }
    Ok(())
}

/// The same, and once more after writes that may fall upon what recovery took for free.
fn check_and_go_on(region: &Region, before: &[Do], steps: &[Do], acknowledged: u64) -> Result<(), String> {
    check(region, before, steps, acknowledged)?;
    // On a copy: recoveries are cut too, and these writes are none.
    let mut image = vec![0; REGION_BYTES];
    region.load(0, &mut image).map_err(|error| error.to_string())?;
    let region = &Region::open(image, Domain::Adr);
    let hash = Hash::open(region, 1).map_err(|error| error.to_string())?;
    let mut expected = contents(&hash)?;
    for (step, number) in [(200, 9), (201, 1), (202, 10)] {
        match act(&hash, step, &Do::Put(number, 100)) {
            Ok(()) => drop(expected.insert(number, value(step, 100))),
            Err(Error::Full(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    drop(hash);
    let hash = Hash::open(region, 1).map_err(|error| error.to_string())?;
    let found = contents(&hash)?;
    let wrong: Vec<u8> = (0..16).filter(|number| found.get(number) != expected.get(number)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("keys {wrong:?} are wrong after more writes")) }
}

/// Two segments of records of 10 blocks, every other one deleted.
fn in_pieces() -> Vec<Do> {
    let puts = (0..12).map(|number| Do::Put(number, 600));
    puts.chain((0..12).step_by(2).map(Do::Delete)).collect()
}

/// One operation of each kind, from states in which it takes each of its ways.
fn kinds() -> Vec<(&'static str, Vec<Do>, Vec<Do>)> {
    use Do::{Batch, Delete, Put};
    let fill: Vec<Do> = (0..12).map(|number| Put(number, 60)).collect();
    vec![
        ("the first put", vec![], vec![Put(1, 20)]),
        ("a put behind another", vec![Put(1, 20)], vec![Put(2, 20)]),
        ("an update", vec![Put(1, 20), Put(2, 9)], vec![Put(1, 30)]),
        ("an update of another length", vec![Put(1, 20), Put(2, 9)], vec![Put(1, 150)]),
        ("a put of a value of no bytes", vec![Put(1, 20)], vec![Put(3, 0)]),
        ("a delete", vec![Put(1, 20), Put(2, 9)], vec![Delete(1)]),
        ("a delete of what is not there", vec![Put(2, 9)], vec![Delete(1)]),
        ("an update, then a delete", vec![Put(1, 20)], vec![Put(1, 21), Delete(1)]),
        ("a delete, then a put", vec![Put(1, 20)], vec![Delete(1), Put(1, 22)]),
        ("a put into what a delete freed", [&fill[..], &[Delete(3), Delete(4)]].concat(), vec![Put(13, 60)]),
        (
            "a put into merged space",
            vec![Put(1, 3900), Put(2, 3900), Put(3, 2000), Put(4, 1900), Put(5, 3900), Delete(3), Delete(4)],
            vec![Put(6, 3800)],
        ),
        (
            "a put that moves what is in its way",
            // Of four segments two are full, and what is free in the others lies between records.
            [vec![Put(14, 3900), Put(15, 3900)], in_pieces()].concat(),
            vec![Put(13, 2000)],
        ),
        (
            "a batch that moves what is in its way",
            [vec![Put(14, 3900), Put(15, 3900)], in_pieces()].concat(),
            vec![Batch(vec![(13, Some(2000)), (1, Some(20)), (3, None)])],
        ),
        ("a record longer than a segment", vec![Put(1, 20)], vec![Put(2, 5000)]),
        (
            "a long record freed, and short ones",
            vec![Put(1, 5000), Put(2, 3900), Put(3, 20)],
            vec![Delete(1), Put(4, 3900)],
        ),
        ("a batch of new keys", vec![Put(1, 20)], vec![Batch(vec![(2, Some(20)), (3, Some(9))])]),
        (
            "a batch that updates, adds and deletes",
            vec![Put(1, 20), Put(2, 9)],
            vec![Batch(vec![(1, Some(21)), (3, Some(5)), (2, None)])],
        ),
        ("a batch of deletes", vec![Put(1, 20), Put(2, 9)], vec![Batch(vec![(1, None), (4, None), (2, None)])]),
        (
            "a batch, then its keys again",
            vec![Put(1, 20)],
            vec![Batch(vec![(1, Some(5)), (2, Some(6))]), Delete(1), Put(2, 7)],
        ),
        (
            "a batch of long values",
            vec![Put(1, 20), Put(2, 9)],
            vec![Batch(vec![(1, Some(2500)), (2, None), (3, Some(2500))])],
        ),
    ]
}

#[test]
#[expect(clippy::print_stdout, reason = "how many states it took is what one wants to know")]
fn every_cut_of_every_kind_of_operation() {
    let mut sums = (0, 0);
    for (name, before, steps) in kinds() {
        let trace = trace(&before, &steps, Domain::Adr).expect("there is room");
        let check = |region: &Region, done: u64| check(region, &before, &steps, done);
        // What is laid before its fence may survive in any mixture of its lines: of long values too
        // many to try them all.
        let is_long = steps.iter().any(|what| match what {
            Do::Put(_, bytes) => *bytes > 100,
            Do::Delete(_) => false,
            Do::Batch(changes) => changes.iter().any(|(_, bytes)| bytes.is_some_and(|bytes| bytes > 100)),
        });
        let explored = if is_long {
            trace.random(1, 3_000, check)
        } else {
            trace.exhaustive(Exhaustive { order: WordOrder::Program, recoveries: 1, states_max: 300_000 }, check)
        };
        let explored = explored.unwrap_or_else(|caught| panic!("{name}: {caught}"));
        println!("{name}: {explored:?}");
        assert!(explored.complete || is_long, "{name}: {explored:?}");
        sums = (sums.0 + explored.cuts, sums.1 + explored.states);
        let counters = trace.counters();
        assert_eq!((counters.unflushed_lines, counters.unfenced_lines), (0, 0), "{name}: {counters:?}");
    }
    println!("{} cuts, {} states", sums.0, sums.1);
}

/// Operations drawn from a seed, cut at random. Where they do not find room there is nothing to
/// see.
fn mix(seed: u64, domain: Domain, cuts: u64) -> Result<Explored, Box<Caught>> {
    let mut random = Random::new(seed);
    let mut draw = |count: u64| -> Vec<Do> {
        let one = |random: &mut Random| {
            let (number, longest) = (random.below(8) as u8, if random.below(6) == 0 { 3000 } else { 300 });
            match random.below(8) {
                0 | 1 => Do::Delete(number),
                2 => {
                    let first = random.below(8) as u8;
                    let mut bytes = || (random.below(3) > 0).then(|| random.below(200) as usize);
                    Do::Batch((0..3).map(|further| ((first + further) % 8, bytes())).collect())
                }
                _ => Do::Put(number, random.below(longest) as usize),
            }
        };
        (0..count).map(|_| one(&mut random)).collect()
    };
    let (before, steps) = (draw(30), draw(25));
    let Some(trace) = trace(&before, &steps, domain) else { return Ok(Explored::default()) };
    trace.random(seed, cuts, |region, done| check_and_go_on(region, &before, &steps, done))
}

#[test]
fn cuts_of_mixes_at_random() {
    let mut states = 0;
    for (seed, domain) in (0..24).zip([Domain::Adr, Domain::Adr, Domain::File].into_iter().cycle()) {
        states += mix(seed, domain, 400).unwrap_or_else(|caught| panic!("seed {seed}: {caught}")).states;
    }
    assert!(states > 4_000, "{states} states: most mixes find no room");
}

#[test]
fn a_creation_that_was_cut_is_none_or_whole() {
    let trace = Trace::record(vec![0; REGION_BYTES], Domain::Adr, |region| {
        Hash::create(region, OPTIONS).map_err(memory)?;
        region.acknowledge();
        Ok(())
    });
    let check = |region: &Region, acknowledged: u64| match Hash::open(region, 1) {
        Ok(hash) => contents(&hash).map(drop),
        Err(Error::WrongVolume(_)) if acknowledged == 0 => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    trace.expect("recorded").random(5, 3_000, check).unwrap_or_else(|caught| panic!("{caught}"));
}

/// With feature `fault_points`: each deliberate defect in the engine's sources is caught by the
/// checks above, or by readers beside writers.
#[cfg(feature = "fault_points")]
mod fault_points {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::{Path, PathBuf};

    use super::*;
    use stratakv_base::fault_point;

    /// Those that only threads beside others see: in tests/threads.rs and tests/snapshots.rs.
    const BESIDE_OTHERS: [&str; 6] = [
        "hash_entry_before_record",
        "hash_reused_under_readers",
        "hash_batch_shown_by_halves",
        "hash_old_record_not_kept",
        "hash_snapshot_without_grace",
        "hash_moved_over_a_newer_one",
    ];

    /// Those of the order of loads and stores in DRAM are for `interleavings`.
    fn is_of_cuts(name: &str) -> bool {
        !BESIDE_OTHERS.contains(&name) && !name.starts_with("hash_order_") && !is_of_growths(name)
    }

    fn is_of_growths(name: &str) -> bool {
        name.starts_with("hash_part_") || name.starts_with("hash_growth_")
    }

    /// The sources of a folder, and of those in it.
    fn sources(folder: &Path) -> String {
        let entries = std::fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("an entry").path());
        let text = |path: PathBuf| {
            if path.is_dir() { sources(&path) } else { std::fs::read_to_string(path).expect("text") }
        };
        entries.map(text).collect()
    }

    fn names() -> Vec<String> {
        let all = sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
        let mut names: Vec<String> =
            all.split("fault_point!(\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    /// What of the checks finds a defect, if any does.
    fn caught_by(name: &str) -> Option<String> {
        for (kind, before, steps) in kinds() {
            fault_point::release(None);
            let start = created();
            fault_point::release(Some(name));
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let Some(trace) = trace_from(start, &before, &steps, Domain::Adr) else { return false };
                trace.random(3, 2_000, |region, done| check(region, &before, &steps, done)).is_err()
            }));
            fault_point::release(None);
            if caught.unwrap_or(true) {
                return Some(kind.to_owned());
            }
        }
        for seed in 0..60 {
            fault_point::release(Some(name));
            let caught = catch_unwind(AssertUnwindSafe(|| mix(seed, Domain::Adr, 300).is_err()));
            fault_point::release(None);
            if caught.unwrap_or(true) {
                return Some(format!("mix {seed}"));
            }
        }
        None
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "what caught it is what one wants to know")]
    fn every_deliberate_defect_is_caught() {
        let names = names();
        assert!(names.len() >= 14, "{names:?}");
        for name in names.iter().filter(|name| is_of_cuts(name)) {
            let caught = caught_by(name);
            println!("{name}: {caught:?}");
            assert!(caught.is_some(), "{name} is not caught");
        }
    }

    /// Surely: all that a cut can leave is tried.
    #[test]
    fn every_deliberate_defect_of_growths_is_caught() {
        let names: Vec<String> = names().into_iter().filter(|name| is_of_growths(name)).collect();
        assert!(names.len() >= 3, "{names:?}");
        for name in names {
            assert!(growing::is_caught(&name), "{name} is not caught");
        }
    }
}
