//! Lists: against a model, by many threads at once, and when the process is killed.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stratakv::{
    End, ErrorKind, Expect, Level, List, Options, Placement, Position, PutOptions, PutOutcome, Store, WriteBatch,
};
use stratakv_base::random::Random;
use stratakv_integration::engine::Engine;
use stratakv_integration::executor::block_on_all;
use stratakv_integration::place;

fn open(engine: Engine, path: &Path) -> Store {
    let options = engine.options().memory_bytes(96 << 20).level(Level::ProcessCrash);
    options.shards(if engine == Engine::Slab { 3 } else { 1 }).open(path).expect("the store opens")
}

fn packed(path: &Path) -> Store {
    let options = Options::new().placement(Placement::Packed).memory_bytes(96 << 20).level(Level::ProcessCrash);
    options.shards(3).open(path).expect("the store opens")
}

fn all(list: &List) -> Vec<String> {
    list.iter().map(|element| text(&element.expect("an element").value)).collect()
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Two lists beside two of the standard library's.
struct Pair {
    lists: [List; 2],
    models: [VecDeque<String>; 2],
    /// Positions seen, with the value that was there.
    seen: Vec<(usize, Position, String)>,
    next: u64,
}

impl Pair {
    fn of(store: &Store) -> Pair {
        let lists = ["one", "other"].map(|name| store.list(name).expect("made"));
        Pair { lists, models: Default::default(), seen: Vec::new(), next: 0 }
    }

    fn fresh(&mut self, random: &mut Random) -> String {
        self.next += 1;
        let len = if random.below(20) == 0 { 9000 } else { 8 };
        format!("{:>len$}", self.next)
    }

    fn step(&mut self, random: &mut Random) {
        let which = random.below(2) as usize;
        let end = if random.below(2) == 0 { End::Front } else { End::Back };
        match random.below(20) {
            0..=4 => self.push(which, end, random),
            5..=7 => {
                let popped = self.lists[which].pop(end).expect("popped");
                assert_eq!(popped.map(|value| text(&value)), taken(&mut self.models[which], end));
            }
            8 => self.push_all(which, end, random),
            9 => {
                let count = random.below(5) as usize;
                let popped = self.lists[which].pop_many(end, count).expect("popped");
                let expected: Vec<_> = (0..count).filter_map(|_| taken(&mut self.models[which], end)).collect();
                assert_eq!(popped.iter().map(|value| text(value)).collect::<Vec<_>>(), expected);
            }
            10 => self.move_one(which, end, random),
            11 | 12 => self.insert_at(which, random),
            13 => self.look(which, random),
            _ => self.at_a_position(random),
        }
    }

    fn push(&mut self, which: usize, end: End, random: &mut Random) {
        let value = self.fresh(random);
        let position = self.lists[which].push(end, value.as_bytes()).expect("pushed");
        put(&mut self.models[which], end, value.clone());
        self.seen.push((which, position, value));
    }

    fn push_all(&mut self, which: usize, end: End, random: &mut Random) {
        let values: Vec<String> = (0..random.below(5)).map(|_| self.fresh(random)).collect();
        self.lists[which].push_all(end, &values).expect("pushed");
        match end {
            End::Back => self.models[which].extend(values),
            End::Front => values.into_iter().rev().for_each(|value| self.models[which].push_front(value)),
        }
    }

    fn move_one(&mut self, which: usize, end: End, random: &mut Random) {
        let (to, to_end) = (random.below(2) as usize, if random.below(2) == 0 { End::Front } else { End::Back });
        let moved = self.lists[which].move_to(end, &self.lists[to], to_end).expect("moved");
        let expected = taken(&mut self.models[which], end);
        assert_eq!(moved.map(|value| text(&value)), expected);
        if let Some(value) = expected {
            put(&mut self.models[to], to_end, value);
        }
    }

    fn insert_at(&mut self, which: usize, random: &mut Random) {
        let value = self.fresh(random);
        let model = &mut self.models[which];
        let index = random.below(model.len() as u64 + 3) as i64;
        let index = if random.below(2) == 0 { index } else { -index - 1 };
        let at = if index < 0 { model.len() as i64 + 1 + index } else { index };
        let inserted = self.lists[which].insert_at(index, value.as_bytes()).expect("answered");
        assert_eq!(inserted.is_some(), (0..=model.len() as i64).contains(&at), "{index} of {}", model.len());
        if let Some(position) = inserted {
            model.insert(at as usize, value.clone());
            self.seen.push((which, position, value));
        }
    }

    fn look(&mut self, which: usize, random: &mut Random) {
        let (list, model) = (&self.lists[which], &self.models[which]);
        assert_eq!(list.len().expect("counted"), model.len() as u64);
        assert_eq!(list.is_empty().expect("looked at"), model.is_empty());
        let index = random.below(model.len() as u64 + 2) as i64;
        let get = |index| list.get(index).expect("a get").map(|value| text(&value));
        assert_eq!(get(index), model.get(index as usize).cloned());
        assert_eq!(get(-1 - index), model.iter().rev().nth(index as usize).cloned());
        if let Some(position) = list.position(index).expect("found") {
            let value = list.at(&position).expect("a read").map(|value| text(&value));
            assert_eq!(value, model.get(index as usize).cloned());
            self.seen.push((which, position, value.expect("it is there")));
        }
    }

    /// Values never repeat, so a position is good as long as its value is in the list, and was not
    /// moved.
    fn at_a_position(&mut self, random: &mut Random) {
        if self.seen.is_empty() {
            return;
        }
        let chosen = random.below(self.seen.len() as u64) as usize;
        let (which, position, value) = self.seen.swap_remove(chosen);
        let list = self.lists[which].clone();
        let at = self.models[which].iter().position(|other| *other == value);
        let is_there = list.at(&position).expect("a read").is_some();
        assert!(at.is_some() || !is_there, "what is gone has no position");
        // Moved away and back: the same value, another element.
        let at = at.filter(|_| is_there);
        let fresh = self.fresh(random);
        let model = &mut self.models[which];
        let new = match random.below(4) {
            0 => {
                assert_eq!(list.erase(&position).expect("answered"), at.is_some());
                at.map(|at| model.remove(at));
                return;
            }
            1 => list.replace(&position, fresh.as_bytes()),
            2 => list.insert_before(&position, fresh.as_bytes()),
            _ => list.insert_after(&position, fresh.as_bytes()),
        };
        let new = new.expect("answered");
        assert_eq!(new.is_some(), at.is_some());
        let (Some(new), Some(at)) = (new, at) else { return };
        let neighbours = all(&list);
        let placed = neighbours.iter().position(|other| *other == fresh).expect("it is in the list");
        if neighbours.len() == model.len() {
            model[at] = fresh.clone();
        } else {
            assert!(placed == at || placed == at + 1);
            model.insert(placed, fresh.clone());
            self.seen.push((which, position, value));
        }
        self.seen.push((which, new, fresh));
    }

    fn compare(&self) {
        for (list, model) in self.lists.iter().zip(&self.models) {
            assert!(all(list).iter().eq(model));
            let back: Vec<_> = list.iter_back().map(|element| text(&element.expect("an element").value)).collect();
            assert!(back.iter().eq(model.iter().rev()));
        }
    }
}

fn put(model: &mut VecDeque<String>, end: End, value: String) {
    match end {
        End::Front => model.push_front(value),
        End::Back => model.push_back(value),
    }
}

fn taken(model: &mut VecDeque<String>, end: End) -> Option<String> {
    match end {
        End::Front => model.pop_front(),
        End::Back => model.pop_back(),
    }
}

#[test]
fn lists_do_what_a_deque_does() {
    let slab: fn(&Path) -> Store = |path| open(Engine::Slab, path);
    for (seed, open) in [(1, slab), (2, packed), (3, slab), (4, |path| open(Engine::Hash, path))] {
        let place = place::directory();
        let path = place.path().join("data");
        let mut random = Random::new(seed);
        let store = open(&path);
        let mut pair = Pair::of(&store);
        for _ in 0..600 {
            pair.step(&mut random);
        }
        pair.compare();
        let (models, seen, next) = (pair.models, pair.seen, pair.next);
        drop(pair.lists);
        store.close().expect("closed");
        let store = open(&path);
        let mut pair = Pair { models, seen, next, ..Pair::of(&store) };
        pair.compare();
        for _ in 0..200 {
            pair.step(&mut random);
        }
        pair.compare();
    }
}

#[test]
fn a_position_stands_for_one_element_only() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let list = store.list("l").expect("made");
        let first = list.push_back(b"a").expect("pushed");
        list.pop_back().expect("popped");
        let second = list.push_back(b"b").expect("pushed");
        assert_ne!(first, second);
        assert!(!list.erase(&first).expect("answered"), "it is another element that lies there now");
        assert_eq!(list.insert_before(&first, b"x").expect("answered"), None);
        let third = list.replace(&second, b"c").expect("replaced").expect("it was there");
        assert_eq!(list.replace(&second, b"d").expect("answered"), None);
        assert_eq!(list.at(&third).expect("a read").map(|value| text(&value)), Some("c".into()));
        assert_eq!(all(&list), ["c"]);
        let other = open(engine, &place.path().join("other"));
        let elsewhere = other.list("l").expect("made");
        assert_eq!(list.move_to(End::Front, &elsewhere, End::Back).expect_err("two stores").kind(), ErrorKind::Usage);
    }
}

#[test]
fn batches_push_to_lists_too() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let [empty, full, back_first] = ["empty", "full", "back"].map(|name| store.list(name).expect("made"));
        full.push_all(End::Back, &["1", "2"]).expect("pushed");
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v").push(&empty, End::Front, b"a").push(&empty, End::Back, b"b").push(
            &empty,
            End::Front,
            b"c",
        );
        batch.push(&full, End::Back, b"3").push(&full, End::Front, b"0").push(&full, End::Back, b"4");
        batch.push(&back_first, End::Back, b"x").push(&back_first, End::Front, b"w");
        assert_eq!(batch.len(), 9);
        assert!(matches!(store.write(batch.clone()), Ok(PutOutcome::Written { .. })));
        assert_eq!([&empty, &full, &back_first].map(|list| all(list).concat()), ["cab", "01234", "wx"]);
        // All or nothing.
        batch.put_with(&store, b"k", b"v", &PutOptions { expect: Expect::Absent, ..PutOptions::default() });
        assert!(matches!(store.write(batch.clone()), Ok(PutOutcome::Unmet(_))));
        assert_eq!((empty.len().expect("counted"), full.len().expect("counted")), (3, 5));
        let refused = block_on_all(vec![store.write_async(batch.clone())]).remove(0);
        assert!(refused.is_err_and(|error| error.kind() == ErrorKind::Usage));
        let other = open(engine, &place.path().join("other"));
        assert_eq!(other.write(batch).expect_err("two stores").kind(), ErrorKind::Usage);
    }
}

/// Whoever writes a list's records by their keys gets an answer, not a panic.
#[test]
fn keys_that_no_list_makes_are_told() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let list = store.list("l").expect("made");
        for key in [&b"x"[..], b"x\0", b"\0"] {
            list.records().put(key, key).expect("a put");
        }
        assert_eq!(list.push_front(b"f").expect_err("nothing is before 0").kind(), ErrorKind::Full);
        let x = list.position(1).expect("found").expect("it is there");
        assert!(list.insert_after(&x, b"y").is_err_and(|error| error.to_string().contains("no position")));
        list.push_back(b"last").expect("pushed");
        assert_eq!(all(&list), ["\0", "x", "x\0", "last"]);
    }
}

#[test]
fn every_element_is_popped_once() {
    for engine in Engine::ALL.iter().copied() {
        const EACH: usize = 120;
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let (list, moved) = (store.list("queue").expect("made"), store.list("moved").expect("made"));
        let popped = AtomicUsize::new(0);
        let mut values: Vec<String> = thread::scope(|scope| {
            for pusher in 0..2 {
                let list = &list;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let end = if pusher == 0 { End::Back } else { End::Front };
                        list.push(end, format!("{pusher}-{number}").as_bytes()).expect("pushed");
                    }
                });
            }
            let (list, moved, popped) = (&list, &moved, &popped);
            let poppers = [0, 1, 2, 3].map(|popper| {
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    while popped.load(Ordering::Relaxed) < 2 * EACH {
                        let taken = match popper {
                            0 => list.pop_front().expect("popped").into_iter().collect(),
                            1 => {
                                list.move_to(End::Back, moved, End::Front).expect("moved");
                                moved.pop_many(End::Back, 3).expect("popped")
                            }
                            // Two lists are locked at once from both sides.
                            2 => moved.move_to(End::Front, list, End::Back).map(|_| Vec::new()).expect("moved"),
                            _ => list.pop_many(End::Back, 2).expect("popped"),
                        };
                        popped.fetch_add(taken.len(), Ordering::Relaxed);
                        mine.extend(taken.iter().map(|value| text(value)));
                    }
                    mine
                })
            });
            poppers.into_iter().flat_map(|popper| popper.join().expect("no panic")).collect()
        });
        values.sort();
        let mut expected: Vec<String> =
            (0..2).flat_map(|pusher| (0..EACH).map(move |number| format!("{pusher}-{number}"))).collect();
        expected.sort();
        assert_eq!(values, expected);
        assert!(list.is_empty().expect("looked at") && moved.is_empty().expect("looked at"));
    }
}

/// A thread's own elements stay in its order, whatever others push.
#[test]
fn pushes_keep_their_order() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let list = store.list("l").expect("made");
        thread::scope(|scope| {
            for pusher in 0..4 {
                let list = &list;
                scope.spawn(move || {
                    for number in 0..40 {
                        list.push_back(format!("{pusher} {number}").as_bytes()).expect("pushed");
                    }
                });
            }
        });
        let mut next = [0; 4];
        for value in all(&list) {
            let (pusher, number) = value.split_once(' ').expect("two numbers");
            let pusher: usize = pusher.parse().expect("a number");
            assert_eq!(number.parse(), Ok(next[pusher]));
            next[pusher] += 1;
        }
        assert_eq!(next, [40; 4]);
    }
}

const KILLED_IN: &str = "STRATAKV_TEST_LISTS_IN";
const KILLED_SEED: &str = "STRATAKV_TEST_LISTS_SEED";
const KILLED_ENGINE: &str = "STRATAKV_TEST_LISTS_ENGINE";

/// The same steps from the same seed, on lists or on their models alone.
fn killed_step(random: &mut Random, number: u64, lists: Option<&[List; 2]>, models: &mut [VecDeque<String>; 2]) {
    let (which, other) = (random.below(2) as usize, random.below(2) as usize);
    let (end, other_end) = if random.below(2) == 0 { (End::Front, End::Back) } else { (End::Back, End::Front) };
    let value = format!("{number}");
    match random.below(8) {
        0..=2 => {
            if let Some(lists) = lists {
                lists[which].push(end, value.as_bytes()).expect("pushed");
            }
            put(&mut models[which], end, value);
        }
        3 | 4 => {
            let values = [0, 1, 2].map(|part| format!("{number}.{part}"));
            if let Some(lists) = lists {
                lists[which].push_all(End::Back, &values).expect("pushed");
            }
            models[which].extend(values);
        }
        5 => {
            if let Some(lists) = lists {
                lists[which].pop(end).expect("popped");
            }
            taken(&mut models[which], end);
        }
        6 => {
            if let Some(lists) = lists {
                lists[which].pop_many(end, 2).expect("popped");
            }
            (0..2).for_each(|_| drop(taken(&mut models[which], end)));
        }
        _ => {
            if let Some(lists) = lists {
                lists[which].move_to(end, &lists[other], other_end).expect("moved");
            }
            if let Some(value) = taken(&mut models[which], end) {
                put(&mut models[other], other_end, value);
            }
        }
    }
}

/// The process that the test below kills; by itself, nothing.
#[test]
fn changes_lists_until_it_is_killed() {
    let (Some(path), Ok(seed)) = (std::env::var_os(KILLED_IN), std::env::var(KILLED_SEED)) else { return };
    let engine = std::env::var(KILLED_ENGINE).ok().and_then(|name| Engine::named(&name)).expect("an engine");
    let store = open(engine, Path::new(&path));
    let lists = ["one", "other"].map(|name| store.list(name).expect("made"));
    let mut random = Random::new(seed.parse().expect("a number"));
    let mut models = Default::default();
    let mut output = std::io::stdout();
    for number in 0.. {
        killed_step(&mut random, number, Some(&lists), &mut models);
        writeln!(output, "\nstep {number}").expect("somebody reads it");
    }
}

#[test]
fn a_killed_process_leaves_each_step_whole_or_not_at_all() {
    for (seed, engine) in (1..=4).zip([Engine::Slab, Engine::Hash].into_iter().cycle()) {
        let place = place::directory();
        let path = place.path().join("data");
        let own = std::env::current_exe().expect("a test knows its own path");
        let arguments = ["lists::changes_lists_until_it_is_killed", "--exact", "--nocapture"];
        let mut child = Command::new(own)
            .args(arguments)
            .envs([(KILLED_IN, path.as_os_str()), (KILLED_SEED, seed.to_string().as_ref())])
            .env(KILLED_ENGINE, engine.name())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test starts itself");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut done = 0;
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("step ") {
                done = number.parse::<u64>().expect("a number") + 1;
                if done == 40 * seed {
                    child.kill().expect("killed");
                }
            }
        }
        child.wait().expect("it is over");
        assert!(done >= 40 * seed);
        let store = open(engine, &path);
        let lists = ["one", "other"].map(|name| store.existing_list(name).expect("found").expect("made"));
        let found = lists.map(|list| VecDeque::from(all(&list)));
        let mut random = Random::new(seed);
        let mut models: [VecDeque<String>; 2] = Default::default();
        (0..done).for_each(|number| killed_step(&mut random, number, None, &mut models));
        let mut later = models.clone();
        killed_step(&mut random, done, None, &mut later);
        assert!(found == models || found == later, "after {done} steps: {found:?}, expected {models:?} or {later:?}");
    }
}
