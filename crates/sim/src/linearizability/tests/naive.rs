//! Every order of a few operations, tried one after the other.

use stratakv_base::random::Random;

use super::super::component::{Call, Calls, Component, Components};
use super::super::register::{Action, Answer, Registers, Values, step};
use super::*;

/// A call in the order, with the registers before and after it.
type Taken = (usize, Registers, Registers);

struct Naive<'a, 'h> {
    calls: &'a [Call<'h>],
    crash: Option<(u64, Level)>,
    values: Values,
}

impl Naive<'_, '_> {
    /// Whether what is not in the order yet can follow it.
    fn has_order(&mut self, order: &mut Vec<Taken>, used: &mut [bool], now: &Registers, crashed: bool) -> bool {
        let calls = self.calls;
        let done = |call: &Call<'_>, used: bool| used || !call.must;
        match self.crash.filter(|_| !crashed) {
            Some((at, _)) => {
                let mut before = calls.iter().zip(&*used).filter(|(call, _)| call.invoked < at);
                if before.all(|(call, used)| done(call, *used)) && self.survives_crash(order, used, now) {
                    return true;
                }
            }
            None if calls.iter().zip(&*used).all(|(call, used)| done(call, *used)) => return true,
            None => {}
        }
        for (number, call) in calls.iter().enumerate() {
            let too_early =
                calls.iter().zip(&*used).any(|(other, used)| !done(other, *used) && other.until < call.invoked);
            let other_era = self.crash.is_some_and(|(at, _)| (call.invoked < at) == crashed);
            if used[number] || too_early || other_era {
                continue;
            }
            let Some(after) = step(&call.action, call.answer, now, &mut self.values) else { continue };
            used[number] = true;
            order.push((number, now.clone(), after.clone()));
            let found = self.has_order(order, used, &after, crashed);
            order.pop();
            used[number] = false;
            if found {
                return true;
            }
        }
        false
    }

    /// Takes back every set of calls that a crash may take back, and goes on.
    fn survives_crash(&mut self, order: &[Taken], used: &mut [bool], now: &Registers) -> bool {
        (0..1u32 << order.len()).any(|lost| {
            let is_lost = |at: usize| lost >> at & 1 == 1;
            let Some(state) = self.after_crash(order, now, is_lost) else { return false };
            self.has_order(&mut Vec::new(), used, &state, true)
        })
    }

    fn after_crash(&self, order: &[Taken], now: &Registers, is_lost: impl Fn(usize) -> bool) -> Option<Registers> {
        let crash = self.crash?;
        let mut state = now.clone();
        for (at, (number, before, after)) in order.iter().enumerate() {
            let wrote = !matches!(self.calls[*number].action, Action::Get(_)) && before != after;
            if is_lost(at) && (!wrote || self.calls[*number].survives(crash)) {
                return None;
            }
        }
        for (key, left) in state.iter_mut().enumerate() {
            let changes = |at: &usize| {
                let (number, before, after) = &order[*at];
                before[key] != after[key] && !matches!(self.calls[*number].action, Action::Get(_))
            };
            let writes: Vec<usize> = (0..order.len()).filter(changes).collect();
            if let Some(first) = writes.iter().position(|at| is_lost(*at)) {
                if !writes[first..].iter().all(|at| is_lost(*at)) {
                    return None;
                }
                *left = order[writes[first]].1[key];
            }
            for (at, (number, _, _)) in order.iter().enumerate() {
                let call = &self.calls[*number];
                let shown =
                    matches!((&call.action, call.answer), (Action::Get(got), Answer::Record(Some(_))) if *got == key);
                let writer = writes.iter().rev().find(|write| **write < at);
                if shown && writer.is_some_and(|write| is_lost(*write) && self.calls[order[*write].0].level >= crash.1)
                {
                    return None;
                }
            }
        }
        Some(state)
    }
}

fn has_order(component: &Component<'_, '_>) -> bool {
    let Calls { calls, values, crashes, .. } = component.calls(u64::MAX).expect("all of it is known");
    let start: Registers = component.keys.iter().map(|_| Default::default()).collect();
    let mut naive = Naive { calls: &calls, crash: crashes.first().copied(), values };
    naive.has_order(&mut Vec::new(), &mut vec![false; calls.len()], &start, false)
}

fn operation(random: &mut Random, keys: u64) -> Operation {
    let name = ["a", "b"][random.below(keys) as usize];
    let value = ["1", "2"][random.below(2) as usize];
    let level = [Level::ProcessCrash, Level::PowerLoss][random.below(2) as usize];
    match random.below(8) {
        0..3 => get(name),
        3 => write(&[(name, Some(value))], level),
        4 => write(&[(name, None)], level),
        5 => put_if(name, value, [Expect::Absent, Expect::Present, Expect::Version(2)][random.below(3) as usize]),
        6 if keys == 2 => write(&[("a", Some(value)), ("b", Some(value))], level),
        _ => update(name, Update::Increment(1)),
    }
}

/// An answer that is often wrong.
fn reply(operation: &Operation, random: &mut Random) -> Option<Reply> {
    let version = random.below(4);
    if random.below(6) == 0 {
        return None;
    }
    match operation {
        Operation::Get { .. } if random.below(3) == 0 => absent(),
        Operation::Get { .. } => found(["1", "2", "3"][random.below(3) as usize], version),
        Operation::Update { .. } => match random.below(3) {
            0 => Some(Reply::Unmet(Unmet::Absent)),
            _ => Some(Reply::Number { number: 2 + random.below(2), version }),
        },
        _ => match random.below(5) {
            0 => Some(Reply::Unmet(Unmet::Absent)),
            1 => Some(Reply::Unmet(Unmet::Present { version })),
            _ => done(version, random.below(2) == 0),
        },
    }
}

#[test]
fn the_search_finds_an_order_where_there_is_one() {
    let (mut right, mut wrong, mut crashed) = (0, 0, [0, 0]);
    for seed in 0..30_000 {
        let mut random = Random::new(seed);
        let keys = 1 + seed % 2;
        let mut ticks: Vec<u64> = (0..20).collect();
        let count = 2 + random.below(5);
        let entries = (0..count).map(|_| {
            let mut tick = || ticks.swap_remove(random.below(ticks.len() as u64) as usize) * 10;
            let (one, other) = (tick(), tick());
            let operation = operation(&mut random, keys);
            let reply = reply(&operation, &mut random);
            (one.min(other), one.max(other), operation, reply)
        });
        let mut history = history(entries.collect());
        let crash = (seed % 3 > 0).then(|| random.below(20) * 10 + 5);
        if let Some(at) = crash {
            history.crash(at, if seed % 3 == 1 { Level::PowerLoss } else { Level::ProcessCrash });
        }
        let components = Components::of(&history).expect("all of it is known");
        let expected = components.iter().all(|component| has_order(&component));
        let outcome = check(&history, STEPS);
        assert_eq!(outcome.is_ok(), expected, "seed {seed}, crash {crash:?}: {outcome:?}\n{:#?}", history.entries);
        *(if expected { &mut right } else { &mut wrong }) += 1;
        crashed[usize::from(expected)] += u32::from(crash.is_some());
    }
    assert!(
        right > 2000 && wrong > 2000 && crashed[1] > 1000,
        "{right} right, {wrong} wrong, with a crash {crashed:?}"
    );
}
