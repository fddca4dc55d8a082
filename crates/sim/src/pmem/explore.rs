//! Power cuts of a recorded workload.

use std::fmt;
use std::ops::ControlFlow;

use stratakv_base::random::Random;

use super::PmemError;
use super::lines::WordOrder;
use super::region::{Counters, Domain, Event, Region, State};

/// What a workload did to a region, and what may be left of it.
///
/// A check gets the region as a cut left it, and how many operations were acknowledged before. It
/// recovers the structure (it may write) and says what is wrong. It must not depend on anything but
/// its arguments.
#[derive(Clone, Debug)]
pub struct Trace {
    start: Vec<u8>,
    domain: Domain,
    events: Vec<Event>,
    counters: Counters,
}

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub struct Exhaustive {
    /// Which words may survive without which others.
    pub order: WordOrder,
    /// Cuts within the recovery from a cut, so many deep.
    pub recoveries: u32,
    /// Stop after so many states.
    pub states_max: u64,
}

impl Default for Exhaustive {
    fn default() -> Exhaustive {
        Exhaustive { order: WordOrder::Program, recoveries: 0, states_max: 10_000_000 }
    }
}

/// What was explored without finding anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Points at which the power may fail: before the first call, and after each one that stores,
    /// flushes, fences or acknowledges.
    pub cuts: u64,
    /// States checked, those inside recoveries included.
    pub states: u64,
    /// Of them, inside recoveries.
    pub in_recovery: u64,
    /// Whether these are all there are.
    pub complete: bool,
}

/// A state that did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// What the check said.
    pub why: String,
    /// States checked, this one included.
    pub states: u64,
    /// Calls done when the power failed; more than one where recoveries were cut too, the last
    /// recovery's last.
    pub cuts: Vec<usize>,
    /// Operations acknowledged before the first of these cuts.
    pub acknowledged: u64,
    /// Lines with pending stores at the last cut: offset, words stored since they were durable,
    /// which of the possible outcomes it was, how many are possible.
    pub lines: Vec<(usize, usize, u64, u64)>,
    /// What the cut left, and the recovery then found.
    pub image: Vec<u8>,
}

impl Trace {
    /// Runs a workload on a region, and records it.
    ///
    /// # Errors
    /// What the workload returned.
    ///
    /// # Panics
    /// As [`Region::open`].
    pub fn record(
        start: Vec<u8>,
        domain: Domain,
        workload: impl FnOnce(&Region) -> Result<(), PmemError>,
    ) -> Result<Trace, PmemError> {
        let region = Region::recorded(start.clone(), domain);
        workload(&region)?;
        Ok(Trace { start, domain, events: region.take_events(), counters: region.counters() })
    }

    /// What the workload did, and what it left undone.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Calls recorded.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Checks every state that a cut at any point can leave. Costs a check for each, and as many
    /// lines copied as are pending; memory for one region, and another for each recovery being cut.
    /// The states of a cut are the product over its lines: a workload must fence often, or use few
    /// lines.
    ///
    /// # Errors
    /// The first state that does not pass.
    pub fn exhaustive(
        &self,
        options: Exhaustive,
        check: impl FnMut(&Region, u64) -> Result<(), String>,
    ) -> Result<Explored, Box<Caught>> {
        let complete = true;
        let explored = Explored { cuts: self.events.len() as u64 + 1, complete, ..Explored::default() };
        let mut walk = Walk { options, domain: self.domain, check, cuts: Vec::new(), explored };
        match walk.states(self.start.clone(), &self.events, None) {
            ControlFlow::Break(Stop::Caught(caught)) => Err(caught),
            ControlFlow::Break(Stop::Bound) => Ok(Explored { complete: false, ..walk.explored }),
            ControlFlow::Continue(()) => Ok(walk.explored),
        }
    }

    /// Checks `cuts` cuts at random points with random survivors; half of the recoveries that write
    /// are cut too, to any depth. A seed always draws the same ones. Costs as
    /// [`Trace::exhaustive`], and a walk through the trace with a copy of the region for every
    /// batch of cuts.
    ///
    /// # Errors
    /// The first state that does not pass.
    pub fn random(
        &self,
        seed: u64,
        cuts: u64,
        mut check: impl FnMut(&Region, u64) -> Result<(), String>,
    ) -> Result<Explored, Box<Caught>> {
        let points = self.events.len() as u64 + 1;
        let explored = Explored { cuts: points, ..Explored::default() };
        let mut dice = Dice { domain: self.domain, random: Random::new(seed), cuts: Vec::new(), explored };
        let batch_max = points.div_ceil(16).max(self.start.len() as u64 / 4096).max(16);
        let mut left = cuts;
        while left > 0 {
            let batch = left.min(batch_max);
            left -= batch;
            let mut at: Vec<usize> = (0..batch).map(|_| dice.random.below(points) as usize).collect();
            at.sort_unstable();
            let mut state = State::new(self.start.clone());
            let (mut done, mut acknowledged) = (0, 0);
            for cut in at {
                for event in &self.events[done..cut] {
                    state.apply(event, self.domain);
                    acknowledged += u64::from(matches!(event, Event::Acknowledge));
                }
                done = cut;
                dice.cut(&mut state, cut, acknowledged, &mut check)?;
            }
        }
        Ok(dice.explored)
    }
}

/// A random exploration.
struct Dice {
    domain: Domain,
    random: Random,
    cuts: Vec<usize>,
    explored: Explored,
}

impl Dice {
    /// Checks one thing that a cut may leave, and half of the time one that a cut inside its
    /// recovery may leave, and so on.
    fn cut(
        &mut self,
        state: &mut State,
        at: usize,
        acknowledged: u64,
        check: &mut impl FnMut(&Region, u64) -> Result<(), String>,
    ) -> Result<(), Box<Caught>> {
        let region = Region::rewindable(self.domain);
        region.swap_image(&mut state.image);
        state.draw(&mut self.random).iter().for_each(|(start, bytes)| region.set_line(*start, bytes));
        self.cuts.push(at);
        self.explored.states += 1;
        self.explored.in_recovery += u64::from(self.cuts.len() > 1);
        let checked = check(&region, acknowledged);
        let events = region.rewind();
        if let Err(why) = checked {
            let (states, cuts, lines) = (self.explored.states, self.cuts.clone(), Vec::new());
            return Err(Box::new(Caught { why, states, cuts, acknowledged, lines, image: region.image() }));
        }
        if !events.is_empty() && self.random.below(2) == 0 {
            let mut recovery = State::new(region.image());
            let cut = self.random.below(events.len() as u64 + 1) as usize;
            events[..cut].iter().for_each(|event| recovery.apply(event, self.domain));
            self.cut(&mut recovery, cut, acknowledged, check)?;
        }
        self.cuts.pop();
        state.lines.iter().for_each(|(start, line)| region.set_line(start, &line.current()));
        region.swap_image(&mut state.image);
        Ok(())
    }
}

enum Stop {
    Caught(Box<Caught>),
    Bound,
}

struct Walk<C> {
    options: Exhaustive,
    domain: Domain,
    check: C,
    cuts: Vec<usize>,
    explored: Explored,
}

impl<C: FnMut(&Region, u64) -> Result<(), String>> Walk<C> {
    /// Every state of a trace. A cut right before a fence or an acknowledgement can leave whatever
    /// a cut since the previous one of these could, as more stores only add outcomes: it stands for
    /// all of them.
    fn states(&mut self, start: Vec<u8>, events: &[Event], acknowledged: Option<u64>) -> ControlFlow<Stop> {
        let mut state = State::new(start);
        let mut count = acknowledged.unwrap_or(0);
        let mut unseen = true;
        for (at, event) in events.iter().map(Some).chain([None]).enumerate() {
            if unseen && matches!(event, None | Some(Event::Fence | Event::Acknowledge)) {
                self.cuts.push(at);
                self.survivors(&mut state, count)?;
                self.cuts.pop();
                unseen = false;
            }
            let Some(event) = event else { break };
            unseen |= match event {
                Event::Store { .. } => true,
                Event::Acknowledge if acknowledged.is_none() => {
                    count += 1;
                    true
                }
                _ => false,
            };
            state.apply(event, self.domain);
        }
        ControlFlow::Continue(())
    }

    /// Every state that one cut can leave: an odometer with a wheel for each line.
    fn survivors(&mut self, state: &mut State, acknowledged: u64) -> ControlFlow<Stop> {
        let order = self.options.order;
        let lines: Vec<_> = state.lines.iter().map(|(start, line)| (start, line, line.choices(order))).collect();
        let region = Region::rewindable(self.domain);
        region.swap_image(&mut state.image);
        let mut chosen = vec![0; lines.len()];
        let mut turned = lines.len();
        loop {
            for ((start, line, _), choice) in lines.iter().zip(&chosen).take(turned) {
                region.set_line(*start, &line.survivor(order, *choice));
            }
            if self.explored.states == self.options.states_max {
                return ControlFlow::Break(Stop::Bound);
            }
            if let Err(why) = self.check(&region, acknowledged)? {
                let outcomes = lines.iter().zip(&chosen);
                let lines = outcomes.map(|((start, line, of), choice)| (*start, line.pending(), *choice, *of));
                let (states, cuts, lines) = (self.explored.states, self.cuts.clone(), lines.collect());
                let caught = Caught { why, states, cuts, acknowledged, lines, image: region.image() };
                return ControlFlow::Break(Stop::Caught(Box::new(caught)));
            }
            // Every wheel at its last outcome goes back to its first, the next one goes on.
            let Some(wheel) = lines.iter().zip(&chosen).position(|((_, _, of), choice)| choice + 1 < *of) else {
                break;
            };
            chosen[..wheel].fill(0);
            chosen[wheel] += 1;
            turned = wheel + 1;
        }
        // The last outcome is that everything survived: the image is again as the workload left it.
        region.swap_image(&mut state.image);
        ControlFlow::Continue(())
    }

    fn check(&mut self, region: &Region, acknowledged: u64) -> ControlFlow<Stop, Result<(), String>> {
        self.explored.states += 1;
        self.explored.in_recovery += u64::from(self.cuts.len() > 1);
        let checked = (self.check)(region, acknowledged);
        let events = region.rewind();
        if checked.is_ok() && !events.is_empty() && self.cuts.len() <= self.options.recoveries as usize {
            self.states(region.image(), &events, Some(acknowledged))?;
        }
        ControlFlow::Continue(checked)
    }
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (states, acknowledged) = (self.states, self.acknowledged);
        write!(f, "{} (state {states}, power cut after call {:?}, {acknowledged} acknowledged", self.why, self.cuts)?;
        for (offset, words, choice, of) in &self.lines {
            write!(f, "; line at {offset}: {words} words pending, outcome {choice} of {of}")?;
        }
        write!(f, ")")
    }
}

impl std::error::Error for Caught {}
