//! Power cuts at every store, flush and fence of each kind of step, and during the recovery after
//! them.

use stratakv_base::random::Random;
use stratakv_sim::pmem::{Caught, Domain, Exhaustive, Explored, Region, WordOrder};

use super::world::{BLOB, Do, KEYS, blank, record};

const ALL: u64 = 1 << 20;

/// Steps that make a row of these changes.
fn row(changes: &[(u8, Option<usize>)]) -> Vec<Do> {
    vec![Do::Append(changes.to_vec()), Do::Commit, Do::Seal, Do::Flush(ALL)]
}

fn rows(count: u8, bytes: usize) -> Vec<Do> {
    (0..count)
        .flat_map(|at| {
            row(&[(at % KEYS, Some(bytes)), ((at * 5 + 3) % KEYS, Some(bytes)), ((at * 3 + 1) % KEYS, None)])
        })
        .collect()
}

/// One step of each kind, from states in which it takes each of its ways: name, before, steps,
/// whether all states can be tried.
pub fn kinds() -> Vec<(&'static str, Vec<Do>, Vec<Do>, bool)> {
    use Do::{Append, Column, Commit, Epoch, Flush, HandOver, Reopen, Seal};
    let put = |number, bytes| Append(vec![(number, Some(bytes))]);
    let with = |before: &[&[Do]]| before.concat();
    vec![
        ("the first put", vec![], vec![put(0, 4), Commit], true),
        ("a put behind another", vec![put(0, 4), Commit], vec![put(3, 4), Commit], true),
        ("puts of one commit", vec![put(0, 4)], vec![put(3, 4), put(0, 5), Commit, put(3, 1), Commit], true),
        ("puts of equal length", vec![], vec![put(0, 30), put(3, 30), put(6, 30), Commit], false),
        ("a delete and a value apart", vec![put(0, 4)], vec![Append(vec![(0, None), (3, Some(BLOB))]), Commit], true),
        ("a batch", vec![put(0, 4)], vec![Append(vec![(0, Some(3)), (3, None), (6, Some(2))]), Commit], true),
        ("a batch over units", vec![put(0, 3900)], vec![Append(vec![(0, Some(40)), (3, Some(80))]), Commit], true),
        ("a put into a new unit", vec![put(0, 3980)], vec![put(3, 20), Commit, put(0, 20), Commit], true),
        ("a seal, and a put behind it", vec![put(0, 4)], vec![Seal, put(3, 4), Commit], true),
        ("a seal of what is not committed", vec![], vec![put(0, 4), Seal, put(3, 4), Commit], false),
        ("a flush", with(&[&[put(0, 4)]]), vec![Seal, Flush(ALL)], true),
        (
            "a flush in steps",
            with(&[&rows(1, 30)]),
            vec![put(0, 4), Commit, Seal, Flush(1), Flush(1), Flush(1), Flush(ALL)],
            false,
        ),
        (
            "a flush with puts beside it",
            with(&[&rows(1, 30), &[put(2, 10), put(4, 10), Seal]]),
            vec![Flush(1), put(5, 10), Commit, Flush(1), put(6, 3), Commit, Flush(ALL), put(7, 9), Commit],
            false,
        ),
        ("a process that ended before it committed", vec![put(0, 4)], vec![put(3, 4), Reopen, put(6, 4), Commit], true),
        ("an epoch", vec![put(0, 4), Commit], vec![Epoch, put(3, 4), Commit], true),
        (
            "an epoch after another, and a column",
            with(&[&rows(3, 900), &[HandOver, Epoch]]),
            vec![put(3, 4), Commit, Epoch, Column(1000, 2000), Epoch],
            false,
        ),
        ("a hand-over", rows(2, 30), vec![HandOver, put(3, 4), Commit], true),
        ("a column", with(&[&rows(3, 900), &[HandOver]]), vec![Column(1000, 2000), put(3, 4), Commit], true),
        (
            "columns to the end",
            with(&[&rows(4, 900), &[HandOver]]),
            vec![Column(2000, 3000), Column(1500, 4000), Column(ALL, ALL), put(3, 4), Commit],
            true,
        ),
        (
            "columns, and what comes over their units",
            with(&[&rows(4, 1900), &[HandOver]]),
            vec![
                Column(4000, 9000),
                put(3, 3000),
                put(4, 3000),
                Commit,
                Column(ALL, ALL),
                put(5, 3000),
                put(6, 3000),
                Commit,
            ],
            false,
        ),
        (
            "a rotation that goes on",
            with(&[&rows(2, 900), &[HandOver, Column(1000, 1900), Column(ALL, ALL)], &rows(2, 800)]),
            vec![HandOver, Column(1000, 2000), Column(ALL, ALL), put(1, 9), Commit],
            true,
        ),
        (
            "a row above a compactor that goes down",
            with(&[&rows(2, 900), &[HandOver, Column(1000, 2000)]]),
            [row(&[(1, Some(9)), (2, Some(8)), (9, None)]), vec![Column(ALL, ALL), Do::Column(ALL, ALL), HandOver]]
                .concat(),
            false,
        ),
    ]
}

/// The outcome of every state of a kind, or of some.
pub fn explore(start: Vec<u8>, before: &[Do], steps: &[Do], is_small: bool) -> Result<Explored, Box<Caught>> {
    let (trace, journal, had_room) = record(start, before, steps, Domain::Adr);
    assert!(had_room, "no room for {steps:?}");
    let check = |region: &Region, acknowledged: u64| journal.check(region, acknowledged);
    let exhaustive = Exhaustive { order: WordOrder::Program, recoveries: 1, states_max: 50_000 };
    if is_small {
        let explored = trace.exhaustive(exhaustive, check)?;
        // Recoveries that write have too many states: then all cuts of the steps, and some of the
        // recoveries.
        if explored.complete {
            return Ok(explored);
        }
        let explored = trace.exhaustive(Exhaustive { recoveries: 0, ..exhaustive }, check)?;
        assert!(explored.complete, "{explored:?}");
    }
    trace.random(1, 1_500, |region, acknowledged| journal.check_and_go_on(region, acknowledged))
}

#[test]
#[expect(clippy::print_stdout, reason = "how many states it took is what one wants to know")]
fn every_cut_of_every_kind_of_step() {
    let mut sums = (0, 0);
    for (name, before, steps, is_small) in kinds() {
        let explored = explore(blank(16), &before, &steps, is_small);
        let explored = explored.unwrap_or_else(|caught| panic!("{name}: {caught}"));
        println!("{name}: {explored:?}");
        sums = (sums.0 + explored.cuts, sums.1 + explored.states);
        let (trace, journal, _) = record(blank(16), &before, &steps, Domain::File);
        let again = trace.random(7, 200, |region, acknowledged| journal.check_and_go_on(region, acknowledged));
        let again = again.unwrap_or_else(|caught| panic!("{name}, of a file: {caught}"));
        sums.1 += again.states;
    }
    println!("{} cuts, {} states", sums.0, sums.1);
}

/// Steps drawn from a seed.
pub fn draw(random: &mut Random, count: u64) -> Vec<Do> {
    let one = |random: &mut Random| match random.below(18) {
        0 | 1 => Do::Seal,
        2..=4 => Do::Flush([1, 300, ALL][random.below(3) as usize]),
        5 => Do::HandOver,
        6 | 7 => {
            let low = random.below(4000);
            Do::Column(low, low + 300 + random.below(4000))
        }
        8..=10 => Do::Commit,
        16 => Do::Reopen,
        17 => Do::Epoch,
        _ => {
            let members = if random.below(2) == 0 { 1 } else { 1 + random.below(4) };
            let longest = if random.below(4) == 0 { 2500 } else { 200 };
            let change = |random: &mut Random| {
                let bytes = match random.below(8) {
                    0 | 1 => None,
                    2 => Some(BLOB + random.below(100) as usize),
                    _ => Some(random.below(longest) as usize),
                };
                (random.below(u64::from(KEYS)) as u8, bytes)
            };
            Do::Append((0..members).map(|_| change(random)).collect())
        }
    };
    (0..count).map(|_| one(random)).collect()
}

pub fn mix(seed: u64, cuts: u64) -> Result<Explored, Box<Caught>> {
    let mut random = Random::new(seed);
    let (before, steps) = (draw(&mut random, 60), draw(&mut random, 40));
    let domain = if seed % 3 == 2 { Domain::File } else { Domain::Adr };
    let (trace, journal, _) = record(blank(24), &before, &steps, domain);
    trace.random(seed, cuts, |region, acknowledged| journal.check_and_go_on(region, acknowledged))
}

#[test]
#[expect(clippy::print_stdout, reason = "how many states it took is what one wants to know")]
fn cuts_of_mixes_at_random() {
    let mut states = 0;
    for seed in 0..40 {
        states += mix(seed, 200).unwrap_or_else(|caught| panic!("seed {seed}: {caught}")).states;
    }
    println!("{states} states");
    assert!(states > 8_000, "{states} states");
}

/// What was there before is there, or a container without contents is, or none.
#[test]
fn a_creation_that_was_cut_is_none_or_whole() {
    use stratakv_matrix::container::Container;
    use stratakv_sim::pmem::Trace;
    let used = || {
        let region = Region::open(blank(16), Domain::Adr);
        let (mut journal, mut volume) = Default::default();
        let mut container = super::world::open(&region, &volume).expect("opened");
        for step in rows(2, 30).into_iter().chain([Do::Append(vec![(0, Some(30)), (3, Some(30))]), Do::Commit]) {
            super::world::Journal::act(&mut journal, &mut container, &region, &mut volume, &step).expect("done");
        }
        super::world::image(&region)
    };
    for start in [vec![0; blank(16).len()], used()] {
        let trace = Trace::record(start, Domain::Adr, |region| {
            Container::create(region, super::world::config()).map_err(super::world::memory)?;
            region.acknowledge();
            Ok(())
        });
        let check = |region: &Region, acknowledged: u64| {
            let (uuid, shard) = (super::world::UUID, super::world::SHARD);
            match Container::open(region, uuid, shard, super::world::ROW_BYTES) {
                Ok((container, report)) => {
                    let is_blank = (container.version(), report.rows) == (0, 0);
                    let is_old = acknowledged == 0 && report.rows == 2 && report.recovered > 0;
                    if !is_blank && !is_old {
                        return Err(format!("{report:?}"));
                    }
                    if !is_blank {
                        return Ok(());
                    }
                    // What the old one left in units is void, whatever is written beside it.
                    let journal = super::world::Journal::of_nothing();
                    journal.check_and_go_on(region, 0)
                }
                Err(stratakv_engine::Error::WrongVolume(_) | stratakv_engine::Error::Corrupt(_))
                    if acknowledged == 0 =>
                {
                    Ok(())
                }
                Err(error) => Err(error.to_string()),
            }
        };
        trace.expect("recorded").random(5, 1_000, check).unwrap_or_else(|caught| panic!("{caught}"));
    }
}

/// What is in the place of a lost container is that one, or none, or the new one.
#[test]
fn a_container_in_the_place_of_another_is_none_or_whole() {
    use stratakv_matrix::container::{Container, Predecessor};
    use stratakv_matrix::pairing::{Epoch, Known, VolumeState};
    use stratakv_sim::pmem::Trace;
    let epoch = |number| Epoch { number, session: number * 3 };
    let known = Known { epoch: epoch(6), directory: 90, version: 700, oldest: 600, records: 80 };
    let lost = Predecessor { known, directory: 88, compactor: 4, version: 690, manifest: 30 };
    let volume = VolumeState { known, manifest: 30, directory: 88, compactor: 4 };
    let used = || {
        let region = Region::open(blank(16), Domain::Adr);
        let (mut journal, mut volume) = Default::default();
        let mut container = super::world::open(&region, &volume).expect("opened");
        for step in rows(2, 30).into_iter().chain([Do::Append(vec![(0, Some(30)), (3, Some(30))]), Do::Commit]) {
            super::world::Journal::act(&mut journal, &mut container, &region, &mut volume, &step).expect("done");
        }
        super::world::image(&region)
    };
    for start in [vec![0; blank(16).len()], used()] {
        let trace = Trace::record(start, Domain::Adr, |region| {
            let made = Container::replace(region, super::world::config(), &lost, epoch(7));
            made.map_err(super::world::memory)?;
            region.acknowledge();
            Ok(())
        });
        let check = |region: &Region, acknowledged: u64| {
            let (uuid, shard) = (super::world::UUID, super::world::SHARD);
            let opened = Container::open(region, uuid, shard, super::world::ROW_BYTES);
            match opened.map(|(container, _)| (container.state().compare(&volume), container.check())) {
                Ok((Ok(()), check)) => check.map(drop).map_err(|fault| fault.to_string()),
                Ok((Err(_), _)) | Err(stratakv_engine::Error::WrongVolume(_) | stratakv_engine::Error::Corrupt(_))
                    if acknowledged == 0 =>
                {
                    // It can be tried again.
                    let copy = Region::open(super::world::image(region), Domain::Adr);
                    let again = Container::replace(&copy, super::world::config(), &lost, epoch(7));
                    again.map(drop).map_err(|error| error.to_string())
                }
                other => Err(format!("{other:?}")),
            }
        };
        trace.expect("recorded").random(5, 1_000, check).unwrap_or_else(|caught| panic!("{caught}"));
    }
}
