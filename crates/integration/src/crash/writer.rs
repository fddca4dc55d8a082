//! A client that writes, reads and deletes keys of its own, swaps counters it shares with all
//! others, and knows what must be there.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use stratakv_base::random::Random;

use super::oracle::{Known, Moment, State, Write};
use super::{Mix, Share, Tally};
use crate::protocol::{Answer, Client, Command, Condition, Kind, ReadRecord, ask};
use crate::value;

/// Counters that all writers swap.
const COUNTERS: u64 = 4;
/// The first identity that is no writer's key.
const COUNTER_ID: u64 = 1 << 40;
/// An expiry that no run lives to see, from now, in seconds.
const FAR_SECONDS: u64 = 1_000_000;
/// Keys asked for at once after a restart.
const VERIFY_BATCH: usize = 20;
/// Of a cache: in one life of so many it is flushed, when its first client has made fewer batches
/// than the second number says.
const FLUSHED_LIFE: u64 = 4;
const FLUSHED_BATCHES_MAX: u64 = 200;

/// Why a writer stopped.
#[derive(Debug)]
pub enum Failure {
    /// The connection ended, as it does when the server is killed.
    Connection(io::Error),
    /// The server answered what it must not.
    Wrong(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Failure::Wrong(error.to_string())
            }
            _ => Failure::Connection(error),
        }
    }
}

/// What all writers of a trial share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Acknowledged writes and deletes of all writers.
    pub acknowledged: AtomicU64,
    /// Writes refused for want of room, or failed.
    pub refused: AtomicU64,
    /// Flushes asked for, all of them by the first writer, and the last of them that was
    /// acknowledged.
    flushes: AtomicU64,
    pub(super) flushed: AtomicU64,
    counters: [Mutex<Counter>; COUNTERS as usize],
}

/// What a counter must show: its number is how often it was swapped.
#[derive(Debug, Default)]
struct Counter {
    acknowledged: u64,
    in_doubt: u64,
    version: u64,
}

/// One writer: its keys, and its next sequence.
#[derive(Clone, Debug)]
pub struct Writer {
    number: u64,
    mix: Mix,
    known: HashMap<u64, Known>,
    sequence: u64,
    random: Random,
    shared: Arc<Shared>,
}

/// The wall clock, in seconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

impl Writer {
    /// A writer that has written nothing.
    pub fn new(number: u64, mix: Mix, seed: u64, shared: Arc<Shared>) -> Writer {
        let random = Random::new(seed ^ (number + 1) << 32);
        Writer { number, mix, known: HashMap::new(), sequence: 0, random, shared }
    }

    /// Writes, reads and deletes until told to stop.
    ///
    /// # Errors
    /// The connection ended, or an answer is not what it must be.
    pub fn run(&mut self, client: &mut dyn Client, stop: &AtomicBool) -> Result<(), Failure> {
        let has_flush = self.mix.evicts && self.number == 0 && self.random.below(FLUSHED_LIFE) == 0;
        let flush_at = has_flush.then(|| self.random.below(FLUSHED_BATCHES_MAX));
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if flush_at == Some(number) {
                self.flush(client)?;
            }
            self.batch(client)?;
            match self.random.below(8) {
                0 | 1 => {
                    let key = self.random.below(self.mix.keys_per_client);
                    self.read_back(client, key)?;
                }
                // In a cache a counter may be gone, and then begins again.
                2 if !self.mix.evicts => self.swap_counter(client)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn key_text(&self, key: u64) -> String {
        format!("client{}/key{key}", self.number)
    }

    /// Different for every key of every client.
    fn key_id(&self, key: u64) -> u64 {
        self.number << 20 | key
    }

    /// Everything goes, of all writers.
    fn flush(&mut self, client: &mut dyn Client) -> Result<(), Failure> {
        let number = self.shared.flushes.fetch_add(1, Ordering::SeqCst) + 1;
        client.flush()?;
        self.shared.flushed.store(number, Ordering::SeqCst);
        Ok(())
    }

    /// A question is about to be asked.
    fn ask_at(&self) -> Moment {
        let flushed = self.shared.flushed.load(Ordering::SeqCst);
        Moment { from: now(), to: 0, flushed, flushes: 0, evicts: self.mix.evicts }
    }

    /// The question asked then was answered.
    fn answered(&self, asked: Moment) -> Moment {
        Moment { to: now(), flushes: self.shared.flushes.load(Ordering::SeqCst), ..asked }
    }

    /// Some changes of different keys at once.
    fn batch(&mut self, client: &mut dyn Client) -> Result<(), Failure> {
        let mut issued: Vec<(u64, State)> = Vec::new();
        let mut commands = Vec::new();
        for _ in 0..1 + self.random.below(8) {
            let key = self.random.below(self.mix.keys_per_client);
            if issued.iter().all(|(other, _)| *other != key) {
                let (state, command) = self.change(key);
                issued.push((key, state));
                commands.push(command);
            }
        }
        let asked = self.ask_at();
        for (key, state) in &issued {
            self.known.entry(*key).or_default().issued.push(*state);
        }
        client.submit(&commands)?;
        for ((key, state), command) in issued.iter().zip(&commands) {
            let answer = client.answer(command)?;
            let judged = self.judge(*key, *state, &command.kind, answer, self.answered(asked));
            judged.map_err(|message| Failure::Wrong(format!("{}: {message}", self.key_text(*key))))?;
        }
        Ok(())
    }

    /// A change of `key`, which nobody else writes, and what it makes of it.
    fn change(&mut self, key: u64) -> (State, Command) {
        let name = self.key_text(key).into_bytes();
        if self.random.below(6) == 0 {
            return (None, Command { key: name, kind: Kind::Delete });
        }
        self.sequence += 1;
        let expiry = match self.random.below(16) {
            0 => now() + self.random.below(4),
            1 => now() - self.random.below(3),
            2 => now() + FAR_SECONDS,
            _ => 0,
        } as u32;
        let condition = match (self.random.below(6), self.known.get(&key).and_then(Known::version)) {
            (0, Some(version)) => Condition::Version(version),
            (1, Some(version)) => Condition::Version(version.wrapping_sub(1)),
            (2, _) => Condition::Absent,
            _ => Condition::None,
        };
        let len = self.value_len();
        let value = value::encode(self.key_id(key), self.sequence, len);
        let state = Some(Write::new(self.sequence, expiry));
        (state, Command { key: name, kind: Kind::Put { value, expiry, condition } })
    }

    /// Mostly small, some over a page, few large.
    fn value_len(&mut self) -> usize {
        let max = match self.random.below(20) {
            0 => self.mix.value_bytes_max,
            1..=4 => self.mix.value_bytes_max.min(20_000),
            _ => self.mix.value_bytes_max.min(1500),
        };
        value::LEN_MIN + self.random.below(max) as usize
    }

    /// Compares an answer with what was known before, and takes it over.
    fn judge(&mut self, key: u64, state: State, kind: &Kind, answer: Answer, moment: Moment) -> Result<(), String> {
        let known = self.known.entry(key).or_default();
        // What was there before: the change itself is the last of those issued.
        known.issued.pop();
        let (may_be_there, may_be_gone) = known.may_be(moment);
        let may_hold = match kind {
            Kind::Put { condition: Condition::Absent, .. } => may_be_gone,
            Kind::Put { condition: Condition::Version(version), .. } => {
                may_be_there && known.version() == Some(*version)
            }
            _ => true,
        };
        let must_hold = match kind {
            Kind::Put { condition: Condition::Absent, .. } => !may_be_there,
            Kind::Put { condition: Condition::Version(_), .. } => may_hold && !may_be_gone,
            _ => true,
        };
        let as_expected = match &answer {
            Answer::Written(_) => state.is_some() && may_hold,
            Answer::Deleted(true) => state.is_none() && may_be_there,
            Answer::Deleted(false) => state.is_none() && may_be_gone,
            Answer::Unmet => !must_hold,
            Answer::Full(_) | Answer::Failed(_) => self.mix.may_fail,
            Answer::Record(_) => false,
        };
        if !as_expected {
            return Err(format!("{answer:?} to {}; known: {known:?}", short(kind)));
        }
        match answer {
            Answer::Written(version) => {
                known.settle(state, moment);
                if let (Some(write), Some(version)) = (state, version) {
                    known.note_version(write.sequence, version)?;
                }
            }
            Answer::Deleted(_) => known.settle(None, moment),
            Answer::Failed(_) => known.issued.push(state),
            _ => {}
        }
        let counted = match answer {
            Answer::Full(_) | Answer::Failed(_) => &self.shared.refused,
            _ => &self.shared.acknowledged,
        };
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reads an own key with nothing in flight: exactly what was acknowledged.
    fn read_back(&mut self, client: &mut dyn Client, key: u64) -> Result<(), Failure> {
        let name = self.key_text(key);
        let asked = self.ask_at();
        let found = match ask(client, Command { key: name.clone().into_bytes(), kind: Kind::Get })? {
            Answer::Record(found) => found,
            Answer::Failed(_) if self.mix.may_fail => return Ok(()),
            other => return Err(Failure::Wrong(format!("{name}: a get was answered {other:?}"))),
        };
        let (id, moment) = (self.key_id(key), self.answered(asked));
        let read = self.known.entry(key).or_default().read(id, found.as_ref(), moment);
        read.map(drop).map_err(|message| Failure::Wrong(format!("{name}: {message}")))
    }

    /// Adds one to a counter, unless another writer is faster.
    fn swap_counter(&mut self, client: &mut dyn Client) -> Result<(), Failure> {
        let number = self.random.below(COUNTERS);
        let before = self.shared.counter(number).acknowledged;
        let key = counter_key(number);
        let found = match ask(client, Command { key: key.clone(), kind: Kind::Get })? {
            Answer::Record(found) => found,
            Answer::Failed(_) if self.mix.may_fail => return Ok(()),
            other => return Err(Failure::Wrong(format!("a counter's get was answered {other:?}"))),
        };
        let (count, condition) = match &found {
            None => (0, Condition::Absent),
            Some(found) => {
                let count = value::decode(COUNTER_ID + number, &found.value);
                let count = count.map_err(|message| Failure::Wrong(format!("counter {number}: {message}")))?;
                (count, Condition::Version(found.version))
            }
        };
        if count < before {
            return Err(Failure::Wrong(format!("counter {number} shows {count} after {before} swaps")));
        }
        self.shared.counter(number).in_doubt += 1;
        let value = value::encode(COUNTER_ID + number, count + 1, 100);
        let answer = ask(client, Command { key, kind: Kind::Put { value, expiry: 0, condition } })?;
        let mut counter = self.shared.counter(number);
        match answer {
            Answer::Written(_) => {
                counter.acknowledged += 1;
                counter.in_doubt -= 1;
                self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Answer::Unmet => counter.in_doubt -= 1,
            Answer::Full(_) if self.mix.may_fail => counter.in_doubt -= 1,
            Answer::Failed(_) if self.mix.may_fail => {}
            other => return Err(Failure::Wrong(format!("a counter's swap was answered {other:?}"))),
        }
        Ok(())
    }

    /// Reads every own key with nothing in flight and settles on what is there; returns how many
    /// may have been there, and how many were.
    ///
    /// # Errors
    /// Something acknowledged is lost, something else appeared, or a read failed.
    pub fn verify(&mut self, client: &mut dyn Client, tally: &mut Tally) -> Result<Share, String> {
        let mut share = Share::default();
        let keys: Vec<u64> = (0..self.mix.keys_per_client).collect();
        for keys in keys.chunks(VERIFY_BATCH) {
            let command = |key: &u64| Command { key: self.key_text(*key).into_bytes(), kind: Kind::Get };
            let commands: Vec<Command> = keys.iter().map(command).collect();
            let asked = self.ask_at();
            client.submit(&commands).map_err(|error| error.to_string())?;
            for (key, command) in keys.iter().zip(&commands) {
                let name = self.key_text(*key);
                let found = match client.answer(command).map_err(|error| format!("{name}: {error}"))? {
                    Answer::Record(found) => found,
                    other => return Err(format!("{name}: a get was answered {other:?}")),
                };
                let (id, moment) = (self.key_id(*key), self.answered(asked));
                let known = self.known.entry(*key).or_default();
                share.expected += u64::from(known.may_be(moment).0);
                share.found += u64::from(found.is_some());
                let settled = known.read(id, found.as_ref(), moment);
                let settled = settled.map_err(|message| format!("{name}: {message}"))?;
                tally.in_doubt += settled.in_doubt;
                tally.in_doubt_present += u64::from(settled.in_doubt_present);
                tally.expired += u64::from(settled.expired);
                tally.verified += 1;
            }
        }
        Ok(share)
    }

    /// Own keys that must be there now, and those that may be.
    pub fn expected(&self) -> (Vec<String>, Vec<String>) {
        let moment = self.answered(self.ask_at());
        let names = |wanted: fn((bool, bool)) -> bool| {
            let keys = self.known.iter().filter(|(_, known)| wanted(known.may_be(moment)));
            keys.map(|(key, _)| self.key_text(*key)).collect()
        };
        (names(|(_, may_be_gone)| !may_be_gone), names(|(may_be_there, _)| may_be_there))
    }
}

impl Shared {
    fn counter(&self, number: u64) -> MutexGuard<'_, Counter> {
        // A counter is whole between any two statements.
        self.counters[number as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads every counter with nothing in flight: neither fewer swaps than acknowledged nor more
    /// than issued.
    ///
    /// # Errors
    /// A counter is not what it must be.
    pub fn verify(&self, client: &mut dyn Client) -> Result<(), String> {
        for number in 0..COUNTERS {
            let command = Command { key: counter_key(number), kind: Kind::Get };
            let answer = ask(client, command).map_err(|error| format!("counter {number}: {error}"))?;
            let Answer::Record(found) = answer else { return Err(format!("counter {number}: {answer:?}")) };
            self.counter(number).settle(number, found.as_ref())?;
        }
        Ok(())
    }

    /// Names of the counters that exist.
    pub fn counters(&self) -> Vec<String> {
        let swapped = (0..COUNTERS).filter(|number| self.counter(*number).acknowledged > 0);
        swapped.map(|number| String::from_utf8_lossy(&counter_key(number)).into_owned()).collect()
    }
}

impl Counter {
    fn settle(&mut self, number: u64, found: Option<&ReadRecord>) -> Result<(), String> {
        let (count, version) = match found {
            None => (0, 0),
            Some(found) => (value::decode(COUNTER_ID + number, &found.value)?, found.version),
        };
        let Counter { acknowledged, in_doubt, version: seen } = *self;
        if !(acknowledged..=acknowledged + in_doubt).contains(&count) {
            return Err(format!("counter {number}: {count} swaps, {acknowledged} acknowledged, {in_doubt} in doubt"));
        }
        if version < seen {
            return Err(format!("counter {number}: version {version} after {seen}"));
        }
        *self = Counter { acknowledged: count, in_doubt: 0, version };
        Ok(())
    }
}

fn counter_key(number: u64) -> Vec<u8> {
    format!("counter{number}").into_bytes()
}

/// A command in a few words.
fn short(kind: &Kind) -> String {
    match kind {
        Kind::Put { value, expiry, condition } => format!("a put of {} bytes, {expiry}, {condition:?}", value.len()),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_shows_no_fewer_swaps_than_acknowledged_and_no_more_than_issued() {
        let settle = |count: u64, version| {
            let found = ReadRecord { value: value::encode(COUNTER_ID, count, 100), version };
            Counter { acknowledged: 5, in_doubt: 2, version: 50 }.settle(0, Some(&found))
        };
        assert!(settle(5, 50).is_ok() && settle(7, 60).is_ok());
        assert!(settle(4, 60).is_err(), "a swap was lost");
        assert!(settle(8, 60).is_err(), "a swap was carried out twice");
        assert!(settle(6, 49).is_err(), "an old version");
        assert!(Counter { acknowledged: 1, ..Counter::default() }.settle(0, None).is_err(), "it is gone");
    }

    #[test]
    fn answers_that_cannot_be_are_refused() {
        let written = Some(Write::new(1, 0));
        let put = |condition| Kind::Put { value: Vec::new(), expiry: 0, condition };
        let judge = |there: bool, state: State, kind: Kind, answer: Answer| {
            let mut writer = Writer::new(0, Mix::default(), 1, Arc::default());
            let known = writer.known.entry(1).or_default();
            known.settle(written.filter(|_| there), Moment::default());
            known.issued.push(state);
            writer.judge(1, state, &kind, answer, Moment { from: 1000, to: 1000, ..Moment::default() }).is_ok()
        };
        let next = Some(Write::new(2, 0));
        assert!(judge(true, next, put(Condition::None), Answer::Written(Some(3))));
        assert!(!judge(true, next, put(Condition::None), Answer::Unmet));
        assert!(!judge(true, next, put(Condition::Absent), Answer::Written(Some(3))), "it was there");
        assert!(!judge(false, next, put(Condition::Absent), Answer::Unmet), "it was not there");
        assert!(!judge(true, next, put(Condition::Version(9)), Answer::Written(Some(3))), "another version");
        assert!(!judge(true, None, Kind::Delete, Answer::Deleted(false)), "it was there");
        assert!(!judge(false, None, Kind::Delete, Answer::Deleted(true)), "it was not there");
        assert!(!judge(true, next, put(Condition::None), Answer::Full("no room".into())), "there is room");
    }
}
