//! What is all of one moment: snapshots, however often they are looked at, backups, and a store at
//! rest.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use stratakv_base::random::Random;
use stratakv_base::{Key, Now, Wall};
use stratakv_engine::{Error, Item, PageRequest, Shared};

use crate::calls::{self, all_of, one};
use crate::judge::{Times, Window};
use crate::tally::Kind;
use crate::world::{
    self, ACCOUNTS, COUNTERS, GROUPS, MEMBERS, ORDERED, STAIRS, Seen, WORTH, WRITERS, What, World, is_in,
};

/// Snapshots that are open at a time.
const OPEN_MAX: usize = 4;
/// Cells of the default collection that a snapshot is asked for.
const SAMPLE: u64 = 60;

/// By number.
pub type ReadView = HashMap<u64, Seen>;

/// What every key and counter may be at a moment between two others.
pub struct Bounds {
    keys: Vec<Window>,
    groups: Vec<Window>,
    counters: Vec<(u64, u64)>,
    times: Times,
}

impl Bounds {
    /// Before the moment.
    pub fn open(world: &World<'_>) -> Bounds {
        let wall = world.wall();
        let counters = (0..COUNTERS).map(|at| (world.counts(at).1.load(Ordering::SeqCst), 0));
        Bounds {
            keys: world.every_known().iter().map(Window::open).collect(),
            groups: (0..GROUPS).map(|group| Window::open(world.group(group))).collect(),
            counters: counters.collect(),
            times: Times { asked: wall, latest: wall },
        }
    }

    /// After it.
    pub fn close(&mut self, world: &World<'_>) {
        self.keys.iter_mut().zip(world.every_known()).for_each(|(window, known)| window.close(known));
        (0..).zip(&mut self.groups).for_each(|(group, window)| window.close(world.group(group)));
        (0..).zip(&mut self.counters).for_each(|(at, bounds)| bounds.1 = world.counts(at).0.load(Ordering::SeqCst));
        self.times.latest = world.wall();
    }

    pub fn asked(&self) -> Wall {
        self.times.asked
    }

    /// What of a read view cannot be. `is_asked`: whether a key was looked for.
    pub fn judge(&self, read_view: &ReadView, is_asked: &dyn Fn(u64) -> bool) -> Result<(), String> {
        for (number, window) in (0..).zip(&self.keys).filter(|(number, _)| is_asked(*number)) {
            if matches!(world::what(number), What::Cell { .. } | What::Stair(_)) {
                let judged = window.judge(read_view.get(&number), self.times);
                judged.map_err(|why| format!("{:?}: {why}", world::what(number)))?;
            }
        }
        for (group, window) in (0..).zip(&self.groups) {
            judge_group(group, window, read_view).map_err(|why| format!("group {group}: {why}"))?;
        }
        for (at, (least, most)) in (0..).zip(&self.counters) {
            let number = read_view.get(&world::counter(at)).map(|seen| seen.round);
            if !number.is_some_and(|number| (*least..=*most).contains(&number)) {
                return Err(format!("counter {at} has {number:?}, not {least} to {most}"));
            }
        }
        judge_accounts(read_view)?;
        judge_stairs(read_view)
    }
}

/// All of one batch.
fn judge_group(group: u64, window: &Window, read_view: &ReadView) -> Result<(), String> {
    let members: Vec<Option<&Seen>> = (0..MEMBERS).map(|index| read_view.get(&world::member(group, index))).collect();
    let is_of = |round: u64| {
        (0..).zip(&members).all(|(index, seen)| match seen {
            Some(seen) => seen.round == round && is_in(round, group, index),
            None => !is_in(round, group, index),
        })
    };
    let is_whole = (window.done.round..=window.begun.round).any(is_of);
    let rounds: Vec<Option<u64>> = members.iter().map(|seen| seen.map(|seen| seen.round)).collect();
    if is_whole { Ok(()) } else { Err(format!("{rounds:?} is no batch of {window:?}")) }
}

fn judge_accounts(read_view: &ReadView) -> Result<(), String> {
    let found: Vec<u64> = (0..ACCOUNTS).filter_map(|at| Some(read_view.get(&world::account(at))?.round)).collect();
    let sum: u64 = found.iter().sum();
    let is_right = found.len() as u64 == ACCOUNTS && sum == ACCOUNTS * WORTH;
    if is_right { Ok(()) } else { Err(format!("{} accounts with {sum}: {found:?}", found.len())) }
}

/// Those that were climbed in this round, and behind them those of the round before.
fn judge_stairs(read_view: &ReadView) -> Result<(), String> {
    let rounds: Vec<u64> =
        (0..STAIRS).map(|at| read_view.get(&world::stair(at)).map_or(0, |seen| seen.round)).collect();
    let is_right = rounds.is_sorted_by(|a, b| a >= b) && rounds.first() <= rounds.last().map(|last| last + 1).as_ref();
    if is_right { Ok(()) } else { Err(format!("stairs of {rounds:?}")) }
}

/// What records say, by number; each key once.
fn read_view_of(world: &World<'_>, items: &[Item], asked: Wall) -> Result<ReadView, String> {
    let mut read_view = ReadView::new();
    for Item { key, record } in items {
        let record = record.as_ref().ok_or_else(|| format!("{key:?} came without its record"))?;
        let (number, seen) = world.seen(key, record, asked)?;
        if read_view.insert(number, seen).is_some() {
            return Err(format!("{:?} came twice", world::what(number)));
        }
    }
    Ok(read_view)
}

/// A snapshot that is open.
struct Opened {
    id: u64,
    bounds: Bounds,
    /// Cells of the default collection that are looked at.
    sample: Vec<u64>,
    first: Option<ReadView>,
}

impl Opened {
    fn open(world: &World<'_>, random: &mut Random) -> Result<Option<Opened>, String> {
        let mut bounds = Bounds::open(world);
        let opened = calls::open_snapshot(&world.store, world.now());
        let Some(id) = world.unless_closed(opened)? else { return Ok(None) };
        bounds.close(world);
        world.tally.count(Kind::Snapshot);
        let cells = world.plan.cells / WRITERS;
        let mut drawn = || world::cell(random.below(WRITERS), random.below(cells / 3) * 3);
        let sample = (0..SAMPLE).map(|_| drawn()).collect();
        Ok(Some(Opened { id, bounds, sample, first: None }))
    }

    /// Looks, for the first time or again; whether it is still open.
    fn look(&mut self, world: &World<'_>) -> Result<bool, String> {
        let Some(read_view) = world.unless_ended(self.read_view(world))? else { return Ok(false) };
        let read_view = read_view?;
        world.tally.count(Kind::Look);
        if let Some(first) = &self.first {
            let other = read_view.iter().find(|(number, seen)| first.get(number) != Some(seen));
            let lost = first.keys().find(|number| !read_view.contains_key(number));
            let Some(number) = other.map(|(number, _)| number).or(lost) else { return Ok(true) };
            let (then, now) = (first.get(number), read_view.get(number));
            return Err(format!("{:?} was {then:?} in snapshot {} and is {now:?}", world::what(*number), self.id));
        }
        let is_asked = |number| match world::what(number) {
            What::Cell { index, .. } => world::collection_of_cell(index) > 0 || self.sample.contains(&number),
            _ => true,
        };
        let judged = self.bounds.judge(&read_view, &is_asked);
        judged.map_err(|why| format!("snapshot {}: {why}", self.id))?;
        self.first = Some(read_view);
        Ok(true)
    }

    /// All collections in order, and of the default one some cells and all that is no cell.
    fn read_view(&self, world: &World<'_>) -> Result<Result<ReadView, String>, Error> {
        let now = Now { wall: self.bounds.asked(), ..world.now() };
        let mut items = Vec::new();
        for collection in ORDERED {
            items.extend(calls::items(&world.store, all_of(collection, Some(self.id), false), now)?);
        }
        let others = world
            .numbers()
            .iter()
            .filter(|(key, number)| key.collection().0 == 0 && !matches!(world::what(**number), What::Cell { .. }));
        let mut sample = self.sample.clone();
        sample.sort_unstable();
        sample.dedup();
        for number in others.map(|(_, number)| *number).chain(sample) {
            items.extend(calls::items(&world.store, one(world.key(number), Some(self.id)), now)?);
        }
        Ok(read_view_of(world, &items, now.wall))
    }
}

/// Opens snapshots that overlap, and looks at each until it closes it.
pub fn look_on(world: &World<'_>, mut random: Random) -> Result<(), String> {
    let mut opened: Vec<Opened> = Vec::new();
    while !world.is_over() {
        if opened.len() < OPEN_MAX && random.below(2) == 0 {
            opened.extend(Opened::open(world, &mut random)?);
        }
        let Some(at) = (!opened.is_empty()).then(|| random.below(opened.len() as u64) as usize) else { continue };
        let is_open = opened[at].look(world)?;
        if !is_open || random.below(3) == 0 {
            let Opened { id, .. } = opened.swap_remove(at);
            let closed = calls::close_snapshot(&world.store, id, world.now());
            let was_open = world.unless_ended(closed)?.is_some();
            world.tally.add(Kind::Ended, u64::from(!was_open && !world.is_closing()));
        }
    }
    for Opened { id, .. } in opened {
        world.unless_ended(calls::close_snapshot(&world.store, id, world.now()))?;
    }
    Ok(())
}

/// The clock, maintenance, backups.
pub fn keep_on(world: &World<'_>, mut random: Random) -> Result<(), String> {
    while !world.is_over() {
        keep(world, &mut random)?;
        if random.below(10) == 0 {
            back_up(world, &mut || drop(keep(world, &mut random)))?;
        }
    }
    Ok(())
}

fn keep(world: &World<'_>, random: &mut Random) -> Result<(), String> {
    thread::sleep(Duration::from_millis(random.below(8)));
    if random.below(4) == 0 {
        world.tick();
    }
    while world.store.maintain(world.now()) {}
    world.tally.add(Kind::Scrub, u64::from(world.store.scrub(64 << 10)));
    undamaged(world)
}

fn undamaged(world: &World<'_>) -> Result<(), String> {
    match world.store.damage()[..] {
        [] => Ok(()),
        ref damage => Err(format!("damage: {damage:?}")),
    }
}

/// A backup, held against what may be in it; unless it ends for want of room, or with the store.
fn back_up(world: &World<'_>, between: &mut dyn FnMut()) -> Result<(), String> {
    let mut bounds = Bounds::open(world);
    let now = Now { wall: bounds.asked(), ..world.now() };
    // It is of the moment at which it begins, which is before its first piece is there.
    let mut begun = false;
    let mut close = || {
        if !std::mem::replace(&mut begun, true) {
            bounds.close(world);
        }
    };
    let answer = calls::backup(&world.store, now, || {
        close();
        between();
    });
    close();
    let Some(items) = world.unless_ended(answer)? else {
        world.tally.add(Kind::Ended, u64::from(!world.is_closing()));
        return Ok(());
    };
    world.tally.count(Kind::Backup);
    let read_view = read_view_of(world, &items, now.wall).map_err(|why| format!("a backup: {why}"))?;
    bounds.judge(&read_view, &|_| true).map_err(|why| format!("a backup: {why}"))
}

/// At rest everything is known exactly, once a second is over: until then the space of what expired
/// in it may be held.
pub fn verify(world: &World<'_>) -> Result<(), String> {
    world.end_second();
    while world.store.maintain(world.now()) {}
    let mut bounds = Bounds::open(world);
    bounds.close(world);
    let now = world.now();
    let told = |error: Error| error.to_string();
    let backup = read_view_of(world, &calls::backup(&world.store, now, || ()).map_err(told)?, now.wall)?;
    let mut read_view = ReadView::new();
    for (key, number) in world.numbers() {
        let items = calls::items(&world.store, one(key, None), now).map_err(told)?;
        read_view.extend(read_view_of(world, &items, now.wall)?);
        verify_one(world, *number, read_view.get(number))?;
    }
    bounds.judge(&read_view, &|_| true)?;
    if read_view != backup {
        let differs = |number: &&u64| read_view.get(*number) != backup.get(*number);
        let number = read_view.keys().chain(backup.keys()).find(differs).copied().unwrap_or_default();
        let (here, there) = (read_view.get(&number), backup.get(&number));
        return Err(format!("{:?} is {here:?}, and {there:?} in a backup", world::what(number)));
    }
    world.tally.add(Kind::Verified, read_view.len() as u64);
    verify_orders(world, &read_view)?;
    verify_figures(world, &read_view)
}

fn verify_one(world: &World<'_>, number: u64, seen: Option<&Seen>) -> Result<(), String> {
    let what = world::what(number);
    let version = match what {
        What::Cell { .. } | What::Stair(_) => world.known(number).version(),
        What::Member { group, .. } => world.group(group).version(),
        _ => seen.map_or(0, |seen| seen.version),
    };
    if seen.is_some_and(|seen| seen.version != version) {
        return Err(format!("{what:?} is {seen:?}, and its last write has version {version}"));
    }
    let What::Lock(at) = what else { return Ok(()) };
    let holder = world.holders[at as usize].load(Ordering::SeqCst);
    let is_right = seen.map_or(0, |seen| seen.writer + 1) == holder;
    if is_right { Ok(()) } else { Err(format!("lock {at} is {seen:?}, and {holder} has it")) }
}

/// Both ways, with records and without.
fn verify_orders(world: &World<'_>, read_view: &ReadView) -> Result<(), String> {
    for (collection, reverse, keys_only) in
        ORDERED.flat_map(|it| [(it, false, true), (it, true, true), (it, false, false)])
    {
        let request = PageRequest { reverse, ..all_of(collection, None, keys_only) };
        let items = calls::items(&world.store, request, world.now()).map_err(|error| error.to_string())?;
        let mut keys: Vec<_> = items.into_iter().map(|item| item.key).collect();
        if reverse {
            keys.reverse();
        }
        let is_there = |entry: &(&Key, &u64)| entry.0.collection().0 == collection && read_view.contains_key(entry.1);
        if !world.numbers().iter().filter(is_there).map(|(key, _)| key).eq(&keys) {
            return Err(format!(
                "a scan of collection {collection} (reverse {reverse}, keys only {keys_only}) has other keys"
            ));
        }
    }
    Ok(())
}

/// Every byte of the region is accounted for.
fn verify_figures(world: &World<'_>, read_view: &ReadView) -> Result<(), String> {
    undamaged(world)?;
    let report = world.store.report();
    let block_bytes = u64::from(world.plan.block_bytes);
    let taken = |(number, seen): (&u64, &Seen)| {
        let has_flags = matches!(world::what(*number), What::Cell { .. }) && world::flags_of(seen.round) != 0;
        let prefix_bytes = world.key(*number).encoded().len() as u64 + if has_flags { 4 } else { 0 };
        (32 + prefix_bytes + seen.value_bytes).next_multiple_of(block_bytes)
    };
    let taken: u64 = read_view.iter().map(taken).sum();
    let snapshots = report.snapshots;
    let is_right = report.records == read_view.len() as u64
        && (snapshots.open, snapshots.kept_bytes, snapshots.index_bytes) == (0, 0, 0)
        && (report.damaged, report.lost_bytes) == (0, 0)
        && report.used_bytes == report.free_bytes + report.retired_bytes + taken;
    if is_right { Ok(()) } else { Err(format!("{} records of {taken} bytes, and {report:?}", read_view.len())) }
}
