//! Cutting a failed run of a world down. A world draws its events as it goes, so it has no plan to
//! cut; instead each event is numbered, and a run may be told to leave some of them out.

use std::cell::RefCell;
use std::ops::Range;

use stratakv_sim::search::run_guarded;

use super::{RunSeed, Statistics};

#[derive(Default)]
struct Events {
    left_out: Vec<Range<u64>>,
    /// Events so far, those that were left out too.
    count: u64,
}

thread_local! {
    static EVENTS: RefCell<Events> = RefCell::default();
}

/// Whether the next event of this run is to be left out. Every world asks once for each event.
pub(crate) fn is_next() -> bool {
    EVENTS.with_borrow_mut(|events| {
        let number = events.count;
        events.count += 1;
        events.left_out.iter().any(|range| range.contains(&number))
    })
}

/// A seed that fails, cut down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smallest {
    /// Events to leave out.
    pub left_out: Vec<Range<u64>>,
    /// Events of the run, those that are left out too.
    pub events: u64,
    /// What goes wrong then.
    pub why: String,
}

/// Runs the world of a seed without some of its events; how many it had, and how it went.
pub fn run(world: RunSeed, seed: u64, left_out: &[Range<u64>]) -> (u64, Result<Statistics, String>) {
    EVENTS.set(Events { left_out: left_out.to_vec(), count: 0 });
    let outcome = run_guarded(|| world(seed));
    let events = EVENTS.with_borrow(|events| events.count);
    EVENTS.set(Events::default());
    (events, outcome)
}

/// Leaves out ever smaller pieces of a failed run as long as it still fails, in whatever way (delta
/// debugging, Zeller and Hildebrandt 2002). `None`: the seed does not fail. Takes about `runs_max`
/// runs.
pub fn cut_down(world: RunSeed, seed: u64, runs_max: u32) -> Option<Smallest> {
    let (events, outcome) = run(world, seed, &[]);
    let mut smallest = Smallest { left_out: Vec::new(), events, why: outcome.err()? };
    let mut piece = smallest.events.div_ceil(2).max(1);
    let mut runs = 1;
    loop {
        let (mut at, mut removed) = (0, false);
        while at < smallest.events && runs < runs_max {
            let range = at..(at + piece).min(smallest.events);
            at = range.end;
            if smallest.left_out.iter().any(|known| known.start <= range.start && range.end <= known.end) {
                continue;
            }
            runs += 1;
            let left_out = with(&smallest.left_out, range);
            if let (events, Err(why)) = run(world, seed, &left_out) {
                smallest = Smallest { left_out, events, why };
                removed = true;
            }
        }
        if (piece == 1 && !removed) || runs >= runs_max {
            return Some(smallest);
        }
        piece = if removed { piece } else { piece.div_ceil(2) };
    }
}

/// The ranges with one more, in order, those that touch as one.
fn with(ranges: &[Range<u64>], more: Range<u64>) -> Vec<Range<u64>> {
    let mut all = ranges.to_vec();
    all.push(more);
    all.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in all {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred events; it fails if both 17 and 63 happen.
    fn pair(_: u64) -> Result<Statistics, String> {
        let happened: Vec<u64> = (0..100).filter(|_| !is_next()).collect();
        match happened.contains(&17) && happened.contains(&63) {
            true => Err("both happened".into()),
            false => Ok(Statistics::default()),
        }
    }

    #[test]
    fn a_failed_run_is_cut_down_to_the_events_that_it_takes() {
        let smallest = cut_down(pair, 1, 1000).expect("it fails");
        assert_eq!(smallest.left_out, [0..17, 18..63, 64..100]);
        assert_eq!((smallest.events, smallest.why.as_str()), (100, "both happened"));
        assert!(run(pair, 1, &smallest.left_out).1.is_err());
        assert!(run(pair, 1, &[17..18, 80..81]).1.is_ok());
        assert_eq!(cut_down(|_| Ok(Statistics::default()), 1, 10), None);
    }
}
