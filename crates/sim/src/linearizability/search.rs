//! The search for an order.

use std::collections::HashSet;

use stratakv_base::Level;
use stratakv_base::random::Random;

use super::component::{Call, Calls, Component};
use super::register::{Action, Answer, Registers, Values, step};
use super::undo::{Deed, NOTHING, Undo, UndoId};

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchOutcome {
    /// There is an order.
    Ordered,
    /// There is none.
    NoOrder,
    /// Its steps were used up.
    Bound,
}

const HEAD: usize = 0;

/// What lies at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Head,
    Call(usize),
    /// The last moment at which the call may take effect.
    Until(usize),
    Crash(usize),
}

/// Moments in order; lifted ones are left out. (Dancing links: what is lifted last comes back
/// first.)
struct Moments {
    what: Vec<Moment>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Of each call, where its first and its last moment are.
    call: Vec<usize>,
    until: Vec<usize>,
}

/// A state, and what a crash may take back of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    registers: Registers,
    undo: UndoId,
}

/// A choice made, and what was before it.
enum Frame {
    /// A call that changed nothing: putting it elsewhere cannot help.
    Idle(usize),
    Taken(usize, State),
    /// A call without an answer never happened.
    Dropped(usize),
    /// A crash, and the other ways it may have turned out.
    Crashed(usize, State, Vec<State>),
}

pub(super) struct Search<'s, 'h> {
    calls: &'s [Call<'h>],
    crashes: &'s [(u64, Level)],
    moments: Moments,
    values: Values,
    undo: Undo,
    state: State,
    /// Of each chain, how many of its calls were taken.
    chains: Vec<u32>,
    /// Answered calls and crashes not in the order yet.
    left: usize,
    /// Names the set of what was taken and dropped: the keys of its members, XORed (Zobrist 1970).
    set: u128,
    keys: Vec<u128>,
    seen: HashSet<(u128, State)>,
    frames: Vec<Frame>,
    steps: u64,
    steps_max: u64,
    /// The longest order found, if it is wanted: calls, and what the keys hold then.
    longest: Option<(Vec<usize>, Registers)>,
}

/// Searches; also how many steps it took.
pub(super) fn search(component: &Component<'_, '_>, calls: &Calls<'_>, steps_max: u64) -> (SearchOutcome, u64) {
    let mut search = Search::new(component, calls, steps_max);
    (search.run(), search.steps)
}

/// The longest order that explains what it holds, as entries of the component, with the registers
/// and values at its end.
pub(super) fn longest(
    component: &Component<'_, '_>,
    calls: &Calls<'_>,
    steps_max: u64,
) -> (Vec<usize>, Registers, Values) {
    let mut search = Search::new(component, calls, steps_max);
    search.longest = Some((Vec::new(), search.state.registers.clone()));
    search.run();
    let (order, registers) = search.longest.unwrap_or_default();
    (order.into_iter().map(|call| calls.calls[call].entry).collect(), registers, search.values)
}

impl Moments {
    fn of(calls: &[Call<'_>], crashes: &[(u64, Level)]) -> Moments {
        let mut sorted = vec![(0, 0, Moment::Head)];
        for (number, call) in calls.iter().enumerate() {
            sorted.push((call.invoked, 0, Moment::Call(number)));
            sorted.push((call.until, 1, Moment::Until(number)));
        }
        sorted.extend(crashes.iter().enumerate().map(|(number, (at, _))| (*at, 2, Moment::Crash(number))));
        sorted[1..].sort_by_key(|(at, kind, _)| (*at, *kind));
        let count = sorted.len();
        let (mut first, mut until) = (vec![HEAD; calls.len()], vec![HEAD; calls.len()]);
        for (at, (_, _, what)) in sorted.iter().enumerate() {
            match what {
                Moment::Call(number) => first[*number] = at,
                Moment::Until(number) => until[*number] = at,
                Moment::Head | Moment::Crash(_) => {}
            }
        }
        Moments {
            what: sorted.into_iter().map(|(_, _, what)| what).collect(),
            next: (0..count).map(|at| (at + 1) % count).collect(),
            previous: (0..count).map(|at| (at + count - 1) % count).collect(),
            call: first,
            until,
        }
    }

    fn remove(&mut self, at: usize) {
        let (previous, next) = (self.previous[at], self.next[at]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn restore(&mut self, at: usize) {
        let (previous, next) = (self.previous[at], self.next[at]);
        self.next[previous] = at;
        self.previous[next] = at;
    }
}

impl<'s, 'h> Search<'s, 'h> {
    fn new(component: &Component<'h, 's>, calls: &'s Calls<'h>, steps_max: u64) -> Search<'s, 'h> {
        let crashes = calls.crashes;
        let mut random = Random::new(0x5EED);
        let mut key = || u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        let moments = Moments::of(&calls.calls, crashes);
        Search {
            crashes,
            keys: moments.what.iter().map(|_| key()).collect(),
            moments,
            values: calls.values.clone(),
            undo: Undo::default(),
            state: State { registers: component.keys.iter().map(|_| Default::default()).collect(), undo: NOTHING },
            chains: vec![0; calls.chains],
            left: calls.calls.iter().filter(|call| call.must).count() + crashes.len(),
            calls: &calls.calls,
            set: 0,
            seen: HashSet::new(),
            frames: Vec::new(),
            steps: 0,
            steps_max,
            longest: None,
        }
    }

    fn run(&mut self) -> SearchOutcome {
        let mut at = self.take_idle();
        while self.left > 0 {
            if self.steps >= self.steps_max {
                return SearchOutcome::Bound;
            }
            let advanced = match self.moments.what[at] {
                Moment::Call(call) => {
                    let Some(after) = self.try_call(call).filter(|after| self.is_new(at, after)) else {
                        at = self.moments.next[at];
                        continue;
                    };
                    let before = std::mem::replace(&mut self.state, after);
                    self.lift(at);
                    self.frames.push(Frame::Taken(at, before));
                    true
                }
                Moment::Until(call) => {
                    let (at, state) = (self.moments.call[call], self.state.clone());
                    let may_drop = !self.calls[call].must && self.is_new(at, &state);
                    if may_drop {
                        self.lift(at);
                        self.frames.push(Frame::Dropped(at));
                    }
                    may_drop
                }
                Moment::Crash(crash) => match self.crash(crash) {
                    Some(ways) => {
                        self.lift(at);
                        self.frames.push(Frame::Crashed(at, self.state.clone(), ways));
                        false
                    }
                    None => return SearchOutcome::Bound,
                },
                Moment::Head => false,
            };
            at = match if advanced { Some(self.take_idle()) } else { self.go_back() } {
                Some(at) => at,
                None => return SearchOutcome::NoOrder,
            };
        }
        SearchOutcome::Ordered
    }

    /// Takes what can be taken without a change: an order with such a call later has one with it
    /// now. The first moment left.
    fn take_idle(&mut self) -> usize {
        let mut at = self.moments.next[HEAD];
        while let Moment::Call(call) = self.moments.what[at] {
            if self.calls[call].must
                && self.calls[call].may_be_idle()
                && self.try_call(call).is_some_and(|after| after == self.state)
            {
                self.lift(at);
                self.frames.push(Frame::Idle(at));
            }
            at = self.moments.next[at];
        }
        self.note_longest();
        self.moments.next[HEAD]
    }

    /// Undoes choices until one can be made otherwise; where to go on.
    fn go_back(&mut self) -> Option<usize> {
        loop {
            match self.frames.pop()? {
                Frame::Idle(at) | Frame::Dropped(at) => self.unlift(at),
                Frame::Taken(at, before) => {
                    self.state = before;
                    self.unlift(at);
                    return Some(self.moments.next[at]);
                }
                Frame::Crashed(at, before, mut ways) => {
                    while let Some(way) = ways.pop() {
                        if self.seen.insert((self.set, way.clone())) {
                            self.state = way;
                            self.frames.push(Frame::Crashed(at, before, ways));
                            return Some(self.take_idle());
                        }
                    }
                    self.state = before;
                    self.unlift(at);
                }
            }
        }
    }

    /// The state after a call, if it can be next.
    fn try_call(&mut self, number: usize) -> Option<State> {
        self.steps += 1;
        let call = &self.calls[number];
        if call.chain.is_some_and(|(chain, place)| self.chains[chain as usize] != place) {
            return None;
        }
        let registers = step(&call.action, call.answer, &self.state.registers, &mut self.values)?;
        let changed = registers != self.state.registers;
        if !call.must && !changed {
            return None;
        }
        let undo = self.undo_after(number, changed, &registers);
        Some(State { registers, undo })
    }

    fn undo_after(&mut self, number: usize, changed: bool, registers: &Registers) -> UndoId {
        let (call, undo) = (&self.calls[number], self.state.undo);
        let crashes = &self.crashes[self.crashes.partition_point(|(at, _)| *at < call.invoked)..];
        if crashes.is_empty() {
            return NOTHING;
        }
        let alone = registers.len() == 1;
        if let (Action::Get(key), Answer::Record(Some(_))) = (&call.action, call.answer) {
            let level = self.undo.writer(undo, *key).map(|writer| self.calls[writer as usize].level);
            return match level {
                None | Some(Level::Memory) => undo,
                Some(Level::PowerLoss) if alone => NOTHING,
                Some(level) => self.undo.showed(undo, *key, registers[*key], level),
            };
        }
        let safe = (call.must && call.level == Level::PowerLoss) || crashes.iter().all(|crash| call.survives(*crash));
        match changed {
            false => undo,
            true if safe && (alone || undo == NOTHING) => NOTHING,
            true => self.undo.wrote(undo, number as u32, &self.state.registers, registers),
        }
    }

    /// Every state a crash may leave; `None` if there are too many.
    fn crash(&mut self, number: usize) -> Option<Vec<State>> {
        let (calls, crash) = (self.calls, self.crashes[number]);
        let survives = |deed| match deed {
            Deed::Wrote(call) => calls[call as usize].survives(crash),
            Deed::Showed(level) => level >= crash.1,
        };
        let (keeps_list, forks_max) = (crash.1 < Level::PowerLoss, self.steps_max - self.steps);
        let State { registers, undo } = &self.state;
        let ways = self.undo.crash(registers, *undo, keeps_list, forks_max, survives)?;
        self.steps += ways.len() as u64;
        // The last one is tried first: the one that lost nothing.
        Some(ways.into_iter().rev().map(|(registers, undo)| State { registers, undo }).collect())
    }

    /// Whether what is taken, with this moment, was not yet tried in this state.
    fn is_new(&mut self, at: usize, after: &State) -> bool {
        self.seen.insert((self.set ^ self.keys[at], after.clone()))
    }

    fn lift(&mut self, at: usize) {
        self.set ^= self.keys[at];
        self.moments.remove(at);
        let Moment::Call(call) = self.moments.what[at] else {
            self.left -= 1;
            return;
        };
        self.moments.remove(self.moments.until[call]);
        self.left -= usize::from(self.calls[call].must);
        if let Some((chain, _)) = self.calls[call].chain {
            self.chains[chain as usize] += 1;
        }
    }

    fn unlift(&mut self, at: usize) {
        self.set ^= self.keys[at];
        if let Moment::Call(call) = self.moments.what[at] {
            self.moments.restore(self.moments.until[call]);
            self.left += usize::from(self.calls[call].must);
            if let Some((chain, _)) = self.calls[call].chain {
                self.chains[chain as usize] -= 1;
            }
        } else {
            self.left += 1;
        }
        self.moments.restore(at);
    }

    fn note_longest(&mut self) {
        let Some((order, registers)) = &mut self.longest else { return };
        let taken = self.frames.iter().filter_map(|frame| match frame {
            Frame::Idle(at) | Frame::Taken(at, _) => Some(self.moments.what[*at]),
            Frame::Dropped(_) | Frame::Crashed(..) => None,
        });
        let taken: Vec<usize> =
            taken.filter_map(|moment| if let Moment::Call(call) = moment { Some(call) } else { None }).collect();
        if taken.len() > order.len() {
            (*order, *registers) = (taken, self.state.registers.clone());
        }
    }
}
