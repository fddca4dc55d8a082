//! A naive model of the same hardware: a set of machines, and at every moment any cache line may be
//! evicted, any word leave a write-combining buffer. What they can leave must be what the explorer
//! tries, no more and no less.

use std::collections::BTreeSet;

use stratakv_base::random::Random;

use super::super::{Domain, Exhaustive, LINE_BYTES, Pmem, PmemError, Region, Trace, WordOrder};

const LINES: u64 = 3;
const WORDS: usize = (LINES * LINE_BYTES / 8) as usize;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Line, word, value; past the cache or not.
    Store(u64, u64, u64, bool),
    /// One call for this word and the next.
    Pair(u64, u64, u64),
    Flush(u64),
    Fence,
    Acknowledge,
}

type Words = [u64; WORDS];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Machine {
    medium: Words,
    cache: Words,
    /// Words in write-combining buffers.
    combining: BTreeSet<(usize, u64)>,
    /// Lines a fence waits for.
    awaited: BTreeSet<usize>,
}

impl Machine {
    fn line(line: usize) -> std::ops::Range<usize> {
        line * 8..line * 8 + 8
    }

    /// Everything that can happen of itself, in one step.
    fn spontaneous(&self) -> Vec<Machine> {
        let mut next = Vec::new();
        for line in 0..LINES as usize {
            let mut evicted = self.clone();
            evicted.medium[Self::line(line)].copy_from_slice(&self.cache[Self::line(line)]);
            evicted.awaited.remove(&line);
            next.push(evicted);
        }
        for (word, value) in &self.combining {
            let mut drained = self.clone();
            (drained.medium[*word], drained.cache[*word]) = (*value, *value);
            drained.combining.remove(&(*word, *value));
            next.push(drained);
        }
        next
    }

    fn step(mut self, step: Step) -> Option<Machine> {
        match step {
            Step::Store(line, word, value, non_temporal) => {
                let at = (line * 8 + word) as usize;
                if non_temporal {
                    self.combining.retain(|(other, _)| *other != at);
                    self.combining.insert((at, value));
                } else {
                    self.cache[at] = value;
                }
            }
            Step::Flush(line) => {
                self.awaited.insert(line as usize);
            }
            // It returns only where what it waits for has happened.
            Step::Fence => return (self.awaited.is_empty() && self.combining.is_empty()).then_some(self),
            Step::Acknowledge | Step::Pair(..) => {}
        }
        Some(self)
    }
}

fn closure(machines: BTreeSet<Machine>) -> BTreeSet<Machine> {
    let mut all = machines.clone();
    let mut fresh: Vec<Machine> = machines.into_iter().collect();
    while let Some(machine) = fresh.pop() {
        for next in machine.spontaneous() {
            if all.insert(next.clone()) {
                fresh.push(next);
            }
        }
    }
    all
}

fn reference(steps: &[Step]) -> BTreeSet<(u64, Words)> {
    let start = Machine { medium: [0; WORDS], cache: [0; WORDS], combining: BTreeSet::new(), awaited: BTreeSet::new() };
    let mut machines = closure([start].into());
    let mut acknowledged = 0;
    let mut left: BTreeSet<_> = machines.iter().map(|machine| (acknowledged, machine.medium)).collect();
    for step in steps {
        acknowledged += u64::from(matches!(step, Step::Acknowledge));
        let run = |machines: &BTreeSet<Machine>, step| {
            closure(machines.iter().filter_map(|machine| machine.clone().step(step)).collect())
        };
        machines = match *step {
            // The words of a call go in either order.
            Step::Pair(line, word, value) => {
                let (one, other) = (Step::Store(line, word, value, false), Step::Store(line, word + 1, value, false));
                let mut machines_after = BTreeSet::new();
                for (first, second) in [(one, other), (other, one)] {
                    let between = run(&machines, first);
                    left.extend(between.iter().map(|machine| (acknowledged, machine.medium)));
                    machines_after.extend(run(&between, second));
                }
                machines_after
            }
            step => run(&machines, step),
        };
        left.extend(machines.iter().map(|machine| (acknowledged, machine.medium)));
    }
    left
}

fn explored(steps: &[Step]) -> BTreeSet<(u64, Words)> {
    let workload = |region: &Region| {
        steps.iter().try_for_each(|step| -> Result<(), PmemError> {
            match *step {
                Step::Store(line, word, value, false) => region.store_u64(line * LINE_BYTES + word * 8, value),
                Step::Store(line, word, value, true) => {
                    region.store_nt(line * LINE_BYTES + word * 8, &value.to_ne_bytes())
                }
                Step::Pair(line, word, value) => {
                    region.store(line * LINE_BYTES + word * 8, &[value.to_ne_bytes(); 2].concat())
                }
                Step::Flush(line) => region.flush(line * LINE_BYTES, LINE_BYTES),
                Step::Fence => region.fence(),
                Step::Acknowledge => {
                    region.acknowledge();
                    Ok(())
                }
            }
        })
    };
    let trace = Trace::record(vec![0; WORDS * 8], Domain::Adr, workload).expect("it fits");
    let mut left = BTreeSet::new();
    let options = Exhaustive { order: WordOrder::Any, ..Exhaustive::default() };
    let collect = |region: &Region, acknowledged| {
        let mut words = [0; WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = region.load_u64(at as u64 * 8).map_err(|error| error.to_string())?;
        }
        left.insert((acknowledged, words));
        Ok(())
    };
    trace.exhaustive(options, collect).expect("nothing is checked");
    left
}

#[test]
fn the_explorer_tries_what_hardware_can_leave_and_nothing_else() {
    let mut random = Random::new(11);
    let mut states = 0;
    for round in 0..300 {
        let mut steps = Vec::new();
        let mut past_cache = BTreeSet::new();
        for value in 1..=4 + random.below(6) {
            let (line, word) = (random.below(LINES), random.below(7));
            steps.push(match random.below(9) {
                0..2 => {
                    past_cache.insert((line, word));
                    Step::Store(line, word, value, true)
                }
                // What a store through the cache does to a word in a write-combining buffer, the
                // naive model does not say.
                2..6 if past_cache.contains(&(line, word)) || past_cache.contains(&(line, word + 1)) => {
                    Step::Flush(line)
                }
                2..4 => Step::Store(line, word, value, false),
                4 | 5 => Step::Pair(line, word, value),
                6 => Step::Flush(line),
                7 => {
                    past_cache.clear();
                    Step::Fence
                }
                _ => Step::Acknowledge,
            });
        }
        let (expected, found) = (reference(&steps), explored(&steps));
        states += found.len();
        assert_eq!(found, expected, "round {round}: {steps:?}");
    }
    assert!(states > 3000, "the programs are too dull: {states} states");
}
