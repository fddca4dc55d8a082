//! Everything at once, for as long as it is told: writers, batches, gets, scans, snapshots,
//! backups, expiry, maintenance, on a region that is too small for all of it. Whatever is read is
//! held against what may be there. `cargo xtask mixed` runs it for minutes.

#![expect(clippy::print_stderr, reason = "it tells how far it is where somebody waits for it")]

#[path = "../calls/mod.rs"]
mod calls;
#[path = "../hooked/mod.rs"]
mod hooked;
mod judge;
mod moment;
mod plan;
mod reader;
mod tally;
#[path = "../values/mod.rs"]
mod values;
mod world;
mod writer;

use std::io::{self, Write};
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plan::Plan;
use reader::Reader;
use stratakv_base::random::Random;
use stratakv_base::{Expiry, Level};
use stratakv_engine::{Change, ChangeKind, Expect, Operation, Reply, Shared};
use tally::{Kind, Tally};
use values::Stamp;
use world::{LOCKS, Outcome, WRITERS, What, World};
use writer::Writer;

/// How long, and from which seed, if not as below.
const SECONDS: &str = "STRATAKV_MIXED_SECONDS";
const SEED: &str = "STRATAKV_MIXED_SEED";
/// A deliberate defect, where there are any.
const FAULT_POINT: &str = "STRATAKV_MIXED_FAULT_POINT";
const SHORT_SECONDS: u64 = 6;
/// Of a store between two openings.
const LIFE_MAX: Duration = Duration::from_secs(10);
/// Threads that do not come back for so long never will.
const STUCK: Duration = Duration::from_secs(120);

fn asked(name: &str, otherwise: u64) -> u64 {
    let Ok(asked) = std::env::var(name) else { return otherwise };
    asked.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{asked}`"))
}

#[test]
fn nothing_is_lost_mixed_up_or_older_while_everything_goes_on() {
    let (length, seed) = (Duration::from_secs(asked(SECONDS, SHORT_SECONDS)), asked(SEED, 1));
    let (tally, mut random, started) = (Tally::new(), Random::new(seed), Instant::now());
    let (mut life, mut told, mut kept) = (0, Instant::now(), None);
    while started.elapsed() < length {
        life += 1;
        let longest = LIFE_MAX.min(length / 3);
        let plan = Plan::draw(&mut random, (seed, life), longest);
        let seed_of_life = random.next_u64();
        // Half of the lives go on with the store of the one before.
        let world = match kept.take().filter(|_| random.below(2) == 0) {
            Some(world) => Ok(World::again(world, &plan)),
            None => World::begin(plan, &tally),
        };
        let lived = world.and_then(|world| live(world, seed_of_life));
        kept = Some(lived.unwrap_or_else(|why| panic!("seed {seed}, life {life}: {why}\nuntil then {tally}")));
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            eprintln!("{:>4} s, {life} lives: {tally}", started.elapsed().as_secs());
        }
    }
    eprintln!("mixed, seed {seed}: no finding in {life} lives, {} s: {tally}", started.elapsed().as_secs());
    assert!(tally.of(Kind::Put) > 0 && tally.of(Kind::Verified) > 0, "{tally}");
}

/// A life: everything at once, then rest; closed, opened, and rest again.
fn live(world: World<'_>, seed: u64) -> Result<World<'_>, String> {
    let (mut random, before) = (Random::new(seed), world.store.report());
    everything_at_once(&world, &mut random);
    let told = |when: &str, world: &World<'_>, found: Result<(), String>| {
        found.map_err(|why| format!("{when}: {why}\n{:?}, {:?}", world.plan, world.store.report()))
    };
    told("while it went on", &world, world.finding().map_or(Ok(()), Err))?;
    let report = world.store.report();
    world.tally.add(Kind::Expired, report.reclaimed);
    world.tally.add(Kind::Grown, report.dram.table_bytes.saturating_sub(before.dram.table_bytes) / 64);
    if !world.plan.closes_under_way {
        told("at rest", &world, moment::verify(&world))?;
    }
    let world = world.reopened()?;
    told("opened again", &world, moment::verify(&world).and_then(|()| give_back_locks(&world)))?;
    if random.below(2) == 0 {
        told("emptied", &world, empty(&world).and_then(|()| moment::verify(&world)))?;
    }
    Ok(world)
}

/// Until the plan's time has come, or something was found.
fn everything_at_once(world: &World<'_>, random: &mut Random) {
    let (started, ended) = (Instant::now(), &AtomicUsize::new(0));
    let seeds: Vec<u64> = (0..WRITERS + 5).map(|_| random.next_u64()).collect();
    thread::scope(|scope| {
        for (part, seed) in (0..).zip(&seeds) {
            scope.spawn(move || {
                release();
                let played = AssertUnwindSafe(|| play(world, part, *seed));
                let done = std::panic::catch_unwind(played);
                world.report(&format!("thread {part}"), done.unwrap_or_else(|_| Err("it panicked".into())));
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        while started.elapsed() < world.plan.length && !world.is_over() {
            thread::sleep(Duration::from_millis(5));
        }
        scope.spawn(|| {
            world.end();
            ended.fetch_add(1, Ordering::SeqCst);
        });
        wait_for(ended, seeds.len() + 1, world);
    });
}

/// Whoever waits for ever is told of, and ends the process: it could not be joined.
fn wait_for(ended: &AtomicUsize, threads: usize, world: &World<'_>) {
    let over = Instant::now();
    while ended.load(Ordering::SeqCst) < threads {
        if over.elapsed() > STUCK {
            let (left, plan) = (threads - ended.load(Ordering::SeqCst), &world.plan);
            let said = format!("seed {}, life {}: {left} of {threads} threads do not come back", plan.seed, plan.life);
            // A test's prints go with it.
            let _ = writeln!(io::stderr(), "{said}: {plan:?}");
            std::process::abort();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn play(world: &World<'_>, part: u64, seed: u64) -> Result<(), String> {
    match part {
        0..WRITERS => Writer::new(world, part, seed).run(),
        4 | 5 => Reader::new(world, seed).get_on(),
        6 => Reader::new(world, seed).scan_on(),
        7 => moment::look_on(world, Random::new(seed)),
        _ => moment::keep_on(world, Random::new(seed)),
    }
}

#[cfg(feature = "fault_points")]
fn release() {
    stratakv_base::fault_point::release(std::env::var(FAULT_POINT).ok().as_deref());
}

#[cfg(not(feature = "fault_points"))]
fn release() {
    assert!(std::env::var_os(FAULT_POINT).is_none(), "there are no deliberate defects in this build");
}

/// Those that nobody could delete, because the store was closed.
fn give_back_locks(world: &World<'_>) -> Result<(), String> {
    for at in 0..LOCKS {
        if world.holders[at as usize].swap(0, Ordering::SeqCst) != 0 {
            let change =
                Change { key: world.key(world::lock(at)).clone(), expect: Expect::Present, kind: ChangeKind::Delete };
            let outcome = world.write(vec![change])?;
            if !matches!(outcome, Outcome::Done { existed: true, .. }) {
                return Err(format!("lock {at} was deleted with {outcome:?}"));
            }
        }
    }
    Ok(())
}

/// Deletes every cell; then there is room again.
fn empty(world: &World<'_>) -> Result<(), String> {
    let cells = world.plan.cells / WRITERS;
    for (collection, writer) in (0..3).flat_map(|collection| (0..WRITERS).map(move |writer| (collection, writer))) {
        let bound = |index| Bound::Included(world::bound_of_cells(collection, writer, index));
        let operation = Operation::DeleteRange { range: Box::new((bound(0), bound(cells))), level: Level::PowerLoss };
        let reply = world.store.execute(operation, world.now());
        if !matches!(reply, Reply::Number { .. }) {
            return Err(format!("a range delete was answered {reply:?}"));
        }
    }
    for number in world.numbers().values() {
        let known = world.known(*number);
        if matches!(world::what(*number), What::Cell { .. }) && known.done().is_there {
            known.begin(world::State { round: known.done().round + 1, ..world::State::default() });
            known.finish(known.version());
        }
    }
    for index in 0..64 {
        put_and_delete(world, world::cell(0, index))?;
    }
    Ok(())
}

/// An eighth of a segment: each has as much in one piece, whatever small ones are left in it.
fn put_and_delete(world: &World<'_>, number: u64) -> Result<(), String> {
    let known = world.known(number);
    let round = known.done().round + 1;
    known.begin(world::State { round, is_there: true, expiry: 0 });
    let value = Stamp { number, writer: 0, round }.value(world.plan.segment_bytes / 8 / 24 - 16);
    let put = world.write(vec![world.put(number, value, Expiry::NEVER, Expect::Absent)])?;
    let key = world.key(number).clone();
    let deleted = world.write(vec![Change { key, expect: Expect::Present, kind: ChangeKind::Delete }])?;
    match (put, deleted) {
        (Outcome::Done { existed: false, .. }, Outcome::Done { version, existed: true }) => {
            known.begin(world::State { round, ..world::State::default() });
            known.finish(version);
            Ok(())
        }
        other => Err(format!("{:?} was put and deleted with {other:?}", world::what(number))),
    }
}
