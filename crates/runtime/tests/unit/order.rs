use std::cell::Cell;
use std::collections::BTreeMap;

use stratakv_base::random::Random;

use super::*;

/// An order whose jobs are their numbers, and a clock that counts what happens: it stands for the
/// engine's versions.
struct Bench {
    order: Order<u64>,
    clock: Cell<u64>,
    begun: Vec<Begun>,
    out: BTreeMap<u64, Done>,
}

struct Begun {
    scope: Scope,
    /// Of a range delete.
    begun_at: Option<u64>,
    taken: Option<u64>,
    finished: Option<u64>,
}

impl Begun {
    fn is_write(&self) -> bool {
        matches!(self.scope, Scope::Keys(_))
    }

    fn shares_a_key(&self, other: &Begun) -> bool {
        let (Scope::Keys(mine), Scope::Keys(others)) = (&self.scope, &other.scope) else { return false };
        mine.iter().any(|key| others.contains(key))
    }
}

impl Bench {
    fn new() -> Bench {
        Bench { order: Order::new(), clock: Cell::new(0), begun: Vec::new(), out: BTreeMap::new() }
    }

    fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    fn begin(&mut self, scope: Scope) -> u64 {
        let number = self.begun.len() as u64;
        self.tick();
        self.begun.push(Begun { scope: scope.clone(), begun_at: None, taken: None, finished: None });
        let clock = &self.clock;
        self.order.begin(scope, number, || clock.get());
        number
    }

    fn write(&mut self, keys: &[u64]) -> u64 {
        self.begin(Scope::Keys(keys.to_vec()))
    }

    fn take(&mut self) -> Option<u64> {
        let has_next = self.order.has_next();
        let task = self.order.next();
        assert_eq!(task.is_some(), has_next);
        let task = task?;
        let now = self.tick();
        let begun = &mut self.begun[task.job as usize];
        (begun.taken, begun.begun_at) = (Some(now), task.begun_at);
        self.out.insert(task.job, task.done);
        Some(task.job)
    }

    fn take_all(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.take()).collect()
    }

    fn finish(&mut self, number: u64) {
        let done = self.out.remove(&number).expect("it was taken");
        self.begun[number as usize].finished = Some(self.tick());
        let clock = &self.clock;
        self.order.finish(done, || clock.get());
    }

    fn writes_before(&self, number: usize) -> impl Iterator<Item = &Begun> {
        self.begun[..number].iter().filter(|begun| begun.is_write())
    }

    /// Whether the rules let it be done now.
    fn may_begin(&self, number: usize) -> bool {
        let begun = &self.begun[number];
        if !begun.is_write() {
            let mut wide = self.begun[..number].iter().filter(|begun| !begun.is_write());
            return wide.all(|wide| wide.finished.is_some())
                && self.writes_before(number).all(|write| write.finished.is_some());
        }
        let held = (0..number).any(|range| {
            self.begun[range].scope == Scope::Range && self.writes_before(range).any(|write| write.finished.is_none())
        });
        !held && self.writes_before(number).all(|write| write.finished.is_some() || !write.shares_a_key(begun))
    }
}

#[test]
fn writes_of_a_key_come_one_after_the_other_and_others_beside_them() {
    let mut bench = Bench::new();
    let (first, second, other) = (bench.write(&[1]), bench.write(&[1]), bench.write(&[2]));
    assert_eq!(bench.take_all(), [first, other]);
    bench.finish(other);
    assert_eq!(bench.take_all(), []);
    bench.finish(first);
    assert_eq!(bench.take_all(), [second]);
    bench.finish(second);
    assert_eq!(bench.order.len(), 0);
    assert!(bench.order.last_of_key.is_empty(), "nothing is remembered of what is done");
}

#[test]
fn batches_kept_order_with_others_of_their_first_key_only() {
    let mut bench = Bench::new();
    let (one, two, put) = (bench.write(&[1, 9]), bench.write(&[2, 9]), bench.write(&[9]));
    for next in [one, two, put] {
        assert_eq!(bench.take_all(), [next]);
        bench.finish(next);
    }
}

#[test]
fn a_batch_with_a_key_twice_waits_for_others_and_not_for_itself() {
    let mut bench = Bench::new();
    let (put, batch, later) = (bench.write(&[1]), bench.write(&[1, 2, 1]), bench.write(&[2, 1]));
    for next in [put, batch, later] {
        assert_eq!(bench.take_all(), [next]);
        bench.finish(next);
    }
    let empty = bench.write(&[]);
    assert_eq!(bench.take_all(), [empty]);
}

#[test]
fn a_range_delete_waits_for_writes_before_it_and_holds_later_ones_until_then_only() {
    let mut bench = Bench::new();
    let before = bench.write(&[1]);
    let (range, after) = (bench.begin(Scope::Range), bench.write(&[2]));
    assert_eq!(bench.take_all(), [before]);
    let clock = bench.clock.get();
    bench.finish(before);
    assert_eq!(bench.take_all(), [range, after]);
    let begun_at = bench.begun[range as usize].begun_at.unwrap();
    assert!(begun_at > clock && begun_at < bench.begun[after as usize].taken.unwrap());
    // Still under way: it has its bound, and is in nobody's way.
    let later = bench.write(&[3]);
    assert_eq!(bench.take_all(), [later]);
}

#[test]
fn with_no_write_under_way_a_range_delete_has_its_bound_at_once() {
    let mut bench = Bench::new();
    let (first, second) = (bench.begin(Scope::Range), bench.begin(Scope::Range));
    let write = bench.write(&[1]);
    assert_eq!(bench.take_all(), [first, write]);
    assert_eq!(bench.begun[first as usize].begun_at, Some(1));
    bench.finish(first);
    assert_eq!(bench.take_all(), [second]);
    assert_eq!(bench.begun[second as usize].begun_at, Some(2), "when it was begun, not when it was its turn");
}

#[test]
fn what_concerns_everything_waits_for_what_is_before_it_and_holds_nothing() {
    let mut bench = Bench::new();
    let (write, all, other, later) =
        (bench.write(&[1]), bench.begin(Scope::All), bench.begin(Scope::All), bench.write(&[2]));
    assert_eq!(bench.take_all(), [write, later]);
    bench.finish(write);
    assert_eq!(bench.take_all(), [all]);
    bench.finish(all);
    assert_eq!(bench.take_all(), [other]);
}

#[test]
fn a_caller_in_place_would_overtake_what_it_shares_keys_with_and_what_holds_it() {
    let mut bench = Bench::new();
    let key = |key| Scope::Keys(vec![key]);
    let overtaking =
        |bench: &Bench| [key(1), key(2), Scope::Range, Scope::All].map(|scope| bench.order.would_overtake(&scope));
    assert_eq!(overtaking(&bench), [false, false, false, false]);
    let write = bench.write(&[1]);
    assert_eq!(overtaking(&bench), [true, false, true, false]);
    let range = bench.begin(Scope::Range);
    assert_eq!(overtaking(&bench), [true, true, true, false]);
    assert_eq!(bench.take_all(), [write]);
    bench.finish(write);
    assert_eq!(overtaking(&bench), [false, false, false, false], "the range delete has its bound");
    assert_eq!(bench.take_all(), [range]);
}

/// Whatever can be done is done, in any order, and nothing else.
#[test]
fn any_operations_in_any_order_of_ending_keep_the_rules_and_come_to_an_end() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        let (count, threads) = (30, 1 + random.below(6) as usize);
        while bench.begun.iter().any(|begun| begun.finished.is_none()) || bench.begun.len() < count {
            match random.below(3) {
                0 if bench.begun.len() < count => {
                    let scope = match random.below(8) {
                        0 => Scope::Range,
                        1 => Scope::All,
                        _ => Scope::Keys((0..1 + random.below(3)).map(|_| random.below(6)).collect()),
                    };
                    bench.begin(scope);
                }
                1 if bench.out.len() < threads => {
                    let may: Vec<u64> = (0..bench.begun.len())
                        .filter(|number| bench.begun[*number].taken.is_none() && bench.may_begin(*number))
                        .map(|number| number as u64)
                        .collect();
                    match bench.take() {
                        Some(taken) => assert!(may.contains(&taken), "seed {seed}: {taken} of {may:?}"),
                        None => assert_eq!(may, [], "seed {seed}"),
                    }
                }
                _ => {
                    let nth = random.below(bench.out.len() as u64) as usize;
                    let number = bench.out.keys().nth(nth).copied();
                    number.into_iter().for_each(|number| bench.finish(number));
                }
            }
        }
        check_bounds(&bench, seed);
        assert_eq!(bench.order.len(), 0);
    }
}

/// A range delete's bound is above all before it and below all after it.
fn check_bounds(bench: &Bench, seed: u64) {
    for (number, range) in bench.begun.iter().enumerate().filter(|(_, begun)| begun.scope == Scope::Range) {
        let bound = range.begun_at.unwrap();
        assert!(bench.writes_before(number).all(|write| write.finished.unwrap() <= bound), "seed {seed}");
        let mut after = bench.begun[number..].iter().filter(|begun| begun.is_write());
        assert!(after.all(|write| write.taken.unwrap() > bound), "seed {seed}");
    }
}
