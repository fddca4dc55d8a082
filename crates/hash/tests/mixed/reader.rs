//! Threads that read what others write at the same time: single keys, and ranges of keys in order.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::thread;

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Key};
use stratakv_engine::{Item, Operation, PageRequest, Record, RecordPart, Reply, Shared};

use crate::calls;
use crate::judge::{Times, Window};
use crate::tally::Kind;
use crate::world::{
    self, ACCOUNTS, COUNTERS, GROUPS, MEMBERS, ORDERED, STAIRS, Seen, WRITERS, What, World, bound_of_cells,
};

/// Keys that half of the gets are of, as of the writes.
const HOT: u64 = 64;
/// A batch is shown in less than a microsecond: whoever would see a part of it has to look often
/// while its writer has no processor.
const GROUPS_AT_ONCE: u64 = 8;

pub struct Reader<'a> {
    world: &'a World<'a>,
    random: Random,
    /// Version and round of the newest record that was seen of a key.
    newest: HashMap<u64, (u64, u64)>,
}

impl<'a> Reader<'a> {
    pub fn new(world: &'a World<'a>, seed: u64) -> Reader<'a> {
        Reader { world, random: Random::new(seed), newest: HashMap::new() }
    }

    pub fn get_on(&mut self) -> Result<(), String> {
        while !self.world.is_over() {
            match self.random.below(20) {
                0 | 1 => (0..GROUPS_AT_ONCE).try_for_each(|group| self.get_group(group % GROUPS)),
                2 => self.get_stairs(),
                3 => self.get_counter(),
                4 => self.get_account(),
                5 => self.get_part_of_cell(),
                _ => self.get_cell(),
            }?;
            // A get is much quicker than a write.
            thread::yield_now();
        }
        Ok(())
    }

    pub fn scan_on(&mut self) -> Result<(), String> {
        while !self.world.is_over() {
            self.scan()?;
        }
        Ok(())
    }

    /// A record or a part of it, with the time it was asked for at; `None`: the store is closed.
    fn record(&self, number: u64, part: RecordPart) -> Result<Option<(Option<Record>, Times)>, String> {
        let (world, now) = (self.world, self.world.now());
        world.tally.count(Kind::Get);
        let key = world.key(number).clone();
        match world.store.execute(Operation::Get { key, part }, now) {
            Reply::Record(found) => Ok(Some((found, Times { asked: now.wall, latest: world.wall() }))),
            Reply::Failed(error) => world.unless_closed(Err(error)),
            other => Err(format!("a get was answered {other:?}")),
        }
    }

    fn get(&mut self, number: u64) -> Result<Option<(Option<Seen>, Times)>, String> {
        let Some((record, times)) = self.record(number, RecordPart::Whole)? else { return Ok(None) };
        let Some(record) = record else { return Ok(Some((None, times))) };
        let (_, seen) = self.world.seen(self.world.key(number), &record, times.asked)?;
        self.note(number, &seen)?;
        Ok(Some((Some(seen), times)))
    }

    /// Who saw a record sees no older one of its key later.
    fn note(&mut self, number: u64, seen: &Seen) -> Result<(), String> {
        // A balance and a number that is read are no rounds.
        let round = match world::what(number) {
            What::Account | What::Lock(_) => 0,
            _ => seen.round,
        };
        let before = self.newest.insert(number, (seen.version, round)).unwrap_or_default();
        let is_right = match seen.version == before.0 {
            true => round == before.1,
            false => seen.version > before.0 && round >= before.1,
        };
        let what = world::what(number);
        if is_right { Ok(()) } else { Err(format!("{what:?} went from (version, round) {before:?} to {seen:?}")) }
    }

    fn get_cell(&mut self) -> Result<(), String> {
        let cells = self.world.plan.cells / WRITERS;
        let below = if self.random.below(2) == 0 { HOT.min(cells) } else { cells };
        let number = world::cell(self.random.below(WRITERS), self.random.below(below));
        let known = self.world.known(number);
        let mut window = Window::open(known);
        let Some((seen, times)) = self.get(number)? else { return Ok(()) };
        window.close(known);
        window.judge(seen.as_ref(), times).map_err(|why| format!("{:?}: {why}", world::what(number)))
    }

    /// The beginning of a value says its round; without any of it the flags do, if they are not 0.
    fn get_part_of_cell(&mut self) -> Result<(), String> {
        let writer = self.random.below(WRITERS);
        let number = world::cell(writer, self.random.below(HOT.min(self.world.plan.cells / WRITERS)));
        let known = self.world.known(number);
        let mut window = Window::open(known);
        let is_meta = self.random.below(2) == 0;
        let part = if is_meta { RecordPart::Meta } else { RecordPart::Range { start: 16, len: 8 } };
        let Some((record, times)) = self.record(number, part)? else { return Ok(()) };
        window.close(known);
        let seen = record.as_ref().map(|record| {
            let bytes = record.value.to_bytes();
            let round = bytes.first_chunk().map_or(u64::from(record.flags), |word| u64::from_le_bytes(*word));
            let (version, expiry, value_bytes) = (record.version, record.expiry.0 as u32, record.value_bytes);
            Seen { round, writer, version, expiry, value_bytes }
        });
        let judged = match seen {
            Some(Seen { round: 0, .. }) => window.judge_there(),
            seen => window.judge(seen.as_ref(), times),
        };
        judged.map_err(|why| format!("a part of {:?}: {why}", world::what(number)))
    }

    /// Members one after the other: none is of a batch before that of another one.
    fn get_group(&mut self, group: u64) -> Result<(), String> {
        let known = self.world.group(group);
        let mut newest = 0;
        for index in 0..MEMBERS {
            let mut window = Window::open(known);
            window.done.round = newest.max(window.done.round);
            let Some((seen, _)) = self.get(world::member(group, index))? else { return Ok(()) };
            window.close(known);
            let judged = window.judge_member((group, index), seen.as_ref());
            judged.map_err(|why| format!("member {index} of group {group} after round {newest}: {why}"))?;
            newest = seen.map_or(newest, |seen| seen.round);
        }
        Ok(())
    }

    /// From the last one to the first: each has been put at least as often as those behind it.
    fn get_stairs(&mut self) -> Result<(), String> {
        let mut round = 0;
        for at in (0..STAIRS).rev() {
            let known = self.world.known(world::stair(at));
            let mut window = Window::open(known);
            let Some((seen, times)) = self.get(world::stair(at))? else { return Ok(()) };
            window.close(known);
            window.judge(seen.as_ref(), times).map_err(|why| format!("stair {at}: {why}"))?;
            let found = seen.map_or(0, |seen| seen.round);
            if found < round {
                return Err(format!("stair {at} has round {found}, one behind it had {round}"));
            }
            round = found;
        }
        Ok(())
    }

    fn get_counter(&mut self) -> Result<(), String> {
        let at = self.random.below(COUNTERS);
        let (asked, added) = self.world.counts(at);
        let least = added.load(Ordering::SeqCst);
        // What is taken back because there was no room was asked for as well.
        let Some((seen, _)) = self.get(world::counter(at))? else { return Ok(()) };
        let (seen, most) = (seen.map(|seen| seen.round), asked.load(Ordering::SeqCst));
        let is_right = seen.is_some_and(|seen| (least..=most).contains(&seen));
        if is_right { Ok(()) } else { Err(format!("counter {at} has {seen:?}, not {least} to {most}")) }
    }

    fn get_account(&mut self) -> Result<(), String> {
        let number = world::account(self.random.below(ACCOUNTS));
        match self.get(number)? {
            Some((None, _)) => Err(format!("account {number} is not there")),
            _ => Ok(()),
        }
    }

    /// A range of a collection in order.
    fn range(&mut self) -> PageRequest {
        let collection = *ORDERED.start() + self.random.below(5) as u32;
        let end = |collection| Key::bound(CollectionId(collection), b"");
        let (mut from, mut to) = (end(collection), end(collection + 1));
        if collection <= 2 && self.random.below(8) > 0 {
            let (writer, cells) = (self.random.below(WRITERS), self.world.plan.cells / WRITERS);
            let first = self.random.below(cells);
            let last = first + 1 + self.random.below(300);
            (from, to) = (bound_of_cells(collection, writer, first), bound_of_cells(collection, writer, last));
        }
        PageRequest {
            from: Bound::Included(from),
            to: Bound::Excluded(to),
            reverse: self.random.below(2) == 0,
            keys_only: self.random.below(3) == 0,
            items_max: 1 + self.random.below(100) as u32,
            bytes_max: 1 << self.random.below(20),
            at: None,
        }
    }

    /// All that is in a range all the while is found, and once; nothing else is.
    fn scan(&mut self) -> Result<(), String> {
        let (world, request) = (self.world, self.range());
        let in_range = || world.numbers().range((request.from.clone(), request.to.clone()));
        let opened: Vec<(u64, Window)> = in_range().map(|(_, number)| (*number, window_of(world, *number))).collect();
        let now = world.now();
        let answer = calls::items(&world.store, request.clone(), now);
        let Some(items) = world.unless_closed(answer)? else { return Ok(()) };
        let times = Times { asked: now.wall, latest: world.wall() };
        world.tally.count(Kind::Scan);
        world.tally.add(Kind::Item, items.len() as u64);
        let told = |why: String| format!("a scan of {request:?}: {why}");
        let mut found = self.found(&items, request.reverse, times).map_err(told)?;
        for (number, mut window) in opened {
            known_of(world, number).inspect(|known| window.close(known));
            let item = found.remove(&number);
            judge_item(number, window, item, times).map_err(told)?;
        }
        match found.keys().next() {
            Some(number) => Err(told(format!("{:?} is not in the range", world::what(*number)))),
            None => Ok(()),
        }
    }

    /// By number; `None` where only keys were asked for.
    fn found(&mut self, items: &[Item], reverse: bool, times: Times) -> Result<HashMap<u64, Option<Seen>>, String> {
        let is_in_order = |pair: &[Item]| if reverse { pair[0].key > pair[1].key } else { pair[0].key < pair[1].key };
        if let Some(pair) = items.windows(2).find(|pair| !is_in_order(pair)) {
            return Err(format!("{:?} comes before {:?}", pair[0].key, pair[1].key));
        }
        let mut found = HashMap::new();
        for Item { key, record } in items {
            let number = *self.world.numbers().get(key).ok_or_else(|| format!("nobody ever wrote {key:?}"))?;
            let seen = record.as_ref().map(|record| self.world.seen(key, record, times.asked)).transpose()?;
            if let Some((_, seen)) = &seen {
                self.note(number, seen)?;
            }
            found.insert(number, seen.map(|(_, seen)| seen));
        }
        Ok(found)
    }
}

fn known_of<'a>(world: &'a World<'_>, number: u64) -> Option<&'a world::Known> {
    match world::what(number) {
        What::Cell { .. } | What::Stair(_) => Some(world.known(number)),
        What::Member { group, .. } => Some(world.group(group)),
        _ => None,
    }
}

fn window_of(world: &World<'_>, number: u64) -> Window {
    known_of(world, number).map_or_else(|| Window::open(&world::Known::default()), Window::open)
}

/// `item`: whether it was found, and what it has if that was asked for.
fn judge_item(number: u64, window: Window, item: Option<Option<Seen>>, times: Times) -> Result<(), String> {
    let what = world::what(number);
    let judged = match (what, item) {
        (What::Account, None) => Err("it is missing".into()),
        (What::Cell { .. } | What::Stair(_), None) => window.judge(None, times),
        (What::Cell { .. } | What::Stair(_), Some(None)) => window.judge_there(),
        (What::Cell { .. } | What::Stair(_), Some(seen)) => window.judge(seen.as_ref(), times),
        (What::Member { group, index }, None) => window.judge_member((group, index), None),
        (What::Member { group, index }, Some(Some(seen))) => window.judge_member((group, index), Some(&seen)),
        _ => Ok(()),
    };
    judged.map_err(|why| format!("{what:?}: {why}"))
}
