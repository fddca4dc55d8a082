//! Histories of clients that overlap, drawn from a register that does one operation at a time.

use std::collections::HashMap;
use std::time::Instant;

use stratakv_base::random::Random;

use super::*;

/// What a key held, oldest first, and how much of that is durable.
#[derive(Default)]
struct Past {
    states: Vec<Option<(String, u64)>>,
    durable: usize,
}

impl Past {
    fn now(&self) -> Option<(String, u64)> {
        self.states.last().cloned().flatten()
    }
}

struct Draw {
    random: Random,
    keys: u64,
    versions: bool,
    version: u64,
    number: u64,
    pasts: HashMap<String, Past>,
}

impl Draw {
    fn new(seed: u64, keys: u64, versions: bool) -> Draw {
        Draw { random: Random::new(seed), keys, versions, version: 0, number: 0, pasts: HashMap::new() }
    }

    fn operation(&mut self) -> Operation {
        let name = format!("k{}", self.random.below(self.keys));
        self.number += 1;
        let value = self.number.to_string();
        let level = [Level::PowerLoss, Level::ProcessCrash][self.random.below(2) as usize];
        let version = self.pasts.get(&name).and_then(Past::now).map_or(1, |(_, version)| version);
        match self.random.below(10) {
            0..4 => get(&name),
            4 | 5 => write(&[(&name, Some(&value))], level),
            6 => write(&[(&name, None)], level),
            7 if self.versions => put_if(&name, &value, Expect::Version(version)),
            7 => put_if(&name, &value, Expect::Absent),
            8 => update(&name, Update::Increment(self.number)),
            _ => update(&name, Update::Append(Bytes::from(format!("{}", self.number % 10)))),
        }
    }

    /// Does an operation; its answer.
    fn execute(&mut self, operation: &Operation) -> Reply {
        let (name, level) = match operation {
            Operation::Get { key, .. } => (key, Level::Memory),
            Operation::Update { key, level, .. } => (key, *level),
            Operation::Write { changes, level, .. } => (&changes[0].key, *level),
            _ => unreachable!("not drawn"),
        };
        let past = self.pasts.entry(String::from_utf8_lossy(name.user()).into_owned()).or_default();
        let now = past.now();
        let version = self.version + 1;
        let shown = |version: u64| if self.versions { version } else { 0 };
        let (next, reply) = match (operation, now) {
            (Operation::Get { .. }, Some((value, version))) => {
                return found(&value, shown(version)).unwrap_or_else(|| Reply::Record(None));
            }
            (Operation::Get { .. }, None) => return Reply::Record(None),
            (Operation::Update { .. }, None) => return Reply::Unmet(Unmet::Absent),
            (Operation::Update { update: Update::Increment(by), .. }, Some((old, _))) => {
                let Ok(number) = old.parse::<u64>() else { return Reply::Unmet(Unmet::NotANumber) };
                let number = number.wrapping_add(*by);
                (
                    Some(format!("{number:<width$}", width = old.len())),
                    Reply::Number { number, version: shown(version) },
                )
            }
            (Operation::Update { update: Update::Append(bytes), .. }, Some((old, _))) => {
                let done = Reply::Done { version: shown(version), existed: true };
                (Some(old + &String::from_utf8_lossy(bytes)), done)
            }
            (Operation::Write { changes, .. }, now) => {
                match (changes[0].expect, &now) {
                    (Expect::Version(_), None) => return Reply::Unmet(Unmet::Absent),
                    (Expect::Version(wanted), Some((_, found))) if wanted != *found => {
                        return Reply::Unmet(Unmet::Version { found: *found });
                    }
                    (Expect::Absent, Some((_, found))) => {
                        return Reply::Unmet(Unmet::Present { version: shown(*found) });
                    }
                    _ => {}
                }
                match &changes[0].kind {
                    ChangeKind::Check => return Reply::Done { version: 0, existed: false },
                    ChangeKind::Delete if now.is_none() => return Reply::Done { version: 0, existed: false },
                    ChangeKind::Delete => (None, Reply::Done { version: shown(version), existed: true }),
                    ChangeKind::Put { value, .. } => {
                        let value = String::from_utf8_lossy(value).into_owned();
                        (Some(value), Reply::Done { version: shown(version), existed: now.is_some() })
                    }
                }
            }
            _ => unreachable!("not drawn"),
        };
        self.version = version;
        past.states.push(next.map(|value| (value, version)));
        if level == Level::PowerLoss {
            past.durable = past.states.len();
        }
        reply
    }

    /// A power cut: each key loses some of what is not durable.
    fn lose_power(&mut self) {
        // The order of a map of the standard library is not always the same.
        let mut names: Vec<String> = self.pasts.keys().cloned().collect();
        names.sort_unstable();
        for name in names {
            let Some(past) = self.pasts.get_mut(&name) else { continue };
            let kept = past.durable as u64 + self.random.below((past.states.len() - past.durable) as u64 + 1);
            past.states.truncate(kept as usize);
            past.durable = past.states.len();
        }
    }

    /// A history of so many operations by so many clients; now and then one is never answered, now
    /// and then the power fails.
    fn history(&mut self, operations: usize, clients: usize, unanswered: bool, cuts: bool) -> History {
        let mut history = History::default();
        let mut running: Vec<Option<(u64, Operation, Option<Reply>)>> = (0..clients).map(|_| None).collect();
        let mut tick = 0;
        while history.entries.len() < operations {
            tick += 1;
            let client = self.random.below(clients as u64) as usize;
            let lost = unanswered && self.random.below(200) == 0;
            running[client] = match running[client].take() {
                None => Some((tick, self.operation(), None)),
                Some((invoked, operation, None)) if !lost => {
                    let reply = self.execute(&operation);
                    Some((invoked, operation, Some(reply)))
                }
                Some((invoked, operation, reply)) => {
                    let reply = reply.filter(|_| !lost);
                    let returned = reply.is_some().then_some(tick);
                    history.entries.push(HistoryEntry { client: client as u32, invoked, returned, operation, reply });
                    None
                }
            };
            let cut = cuts && self.random.below(1000) == 0;
            if cut || history.entries.len() >= operations {
                for (client, under_way) in running.iter_mut().enumerate() {
                    let Some((invoked, operation, _)) = under_way.take() else { continue };
                    let (client, returned, reply) = (client as u32, None, None);
                    history.entries.push(HistoryEntry { client, invoked, returned, operation, reply });
                }
            }
            if cut {
                self.lose_power();
                tick += 1;
                history.crash(tick, Level::PowerLoss);
            }
        }
        history
    }
}

#[test]
fn what_a_register_answers_has_an_order() {
    for seed in 0..60 {
        let (versions, unanswered, cuts) = (seed % 2 == 0, seed % 3 > 0, seed % 3 > 1);
        let mut draw = Draw::new(seed, 1 + seed % 5, versions);
        let history = draw.history(600, 2 + seed as usize % 7, unanswered, cuts);
        let outcome = check(&history, STEPS);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it is not"));
    }
}

/// Changes one answer of a history in a way that another moment might explain. Which one it was.
fn falsify(history: &mut History, random: &mut Random) -> Option<usize> {
    let at = random.below(history.entries.len() as u64) as usize;
    let key_of =
        |operation: &Operation| if let Operation::Get { key, .. } = operation { Some(key.clone()) } else { None };
    let key = key_of(&history.entries[at].operation)?;
    let mut others = history.entries.iter().filter(|entry| key_of(&entry.operation).as_ref() == Some(&key));
    let other = others.nth(random.below(20) as usize)?.reply.clone()?;
    let value = |reply: &Reply| {
        if let Reply::Record(record) = reply { record.as_ref().map(|record| record.value.to_bytes()) } else { None }
    };
    let reply = history.entries[at].reply.as_mut()?;
    if value(reply) == value(&other) {
        return None;
    }
    *reply = other;
    Some(at)
}

#[test]
#[expect(clippy::print_stdout, reason = "how many are found is what one wants to know")]
fn a_planted_answer_of_another_moment_is_found() {
    for versions in [true, false] {
        let (mut planted, mut found) = (0, 0);
        for seed in 0..300 {
            let mut history = Draw::new(seed, 3, versions).history(300, 4, false, false);
            if falsify(&mut history, &mut Random::new(seed)).is_none() {
                continue;
            }
            planted += 1;
            match check(&history, STEPS) {
                Err(Failure::Violation(_)) => found += 1,
                Err(other) => panic!("seed {seed}: {other}"),
                Ok(_) => {}
            }
        }
        println!("versions {versions}: {found} of {planted} planted answers found");
        // The others were within the overlap of what they showed.
        assert!(planted > 50 && found * 10 > planted * 9, "{found} of {planted}");
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the speed is what one wants to know")]
fn a_hundred_thousand_operations_of_sixteen_clients() {
    for (keys, versions, unanswered, cuts) in
        [(1000, true, false, false), (1000, false, false, false), (1000, true, true, true), (10, true, false, false)]
    {
        let history = Draw::new(7, keys, versions).history(100_000, 16, unanswered, cuts);
        let start = Instant::now();
        let checked = check(&history, STEPS).expect("it comes from a register");
        let rate = checked.operations as f64 / start.elapsed().as_secs_f64() / 1000.0;
        println!("{keys} keys, versions {versions}, cuts {cuts}: {checked:?}, {rate:.0} K operations/s");
    }
}
