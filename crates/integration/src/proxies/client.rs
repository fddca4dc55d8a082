//! A client of the proxy: it writes keys of its own and judges every answer.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stratakv_base::random::Random;

use super::Tally;
use super::oracle::{Counted, CounterRecord, Judgement, KeyRecord};
use crate::memcache::Client;
use crate::twemproxy::Twemproxy;

/// Keys of a client, and counters.
pub(super) const KEYS: usize = 60;
const COUNTERS: usize = 10;
/// How long a server may take that is asked directly.
const DIRECT_LIMIT: Duration = Duration::from_secs(2);
/// How long the proxy may take: longer than it waits for a server.
const PROXY_LIMIT: Duration = Duration::from_secs(60);
/// No server is out.
pub(super) const NOBODY: usize = usize::MAX;

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Gets, sets, deletes, adds and additions by lot.
    Mix,
    /// Every key is set once; then it goes on as `Mix`.
    SetAll,
    /// Every key is read, again and again.
    ReadAll,
}

/// What the clients of a trial share with who directs it.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) mode: Mutex<(Mode, u64)>,
    /// The number of this calm; 0 while something is disturbed.
    pub(super) calm: AtomicU64,
    /// Servers that the proxy had left out, in all, when this calm began.
    pub(super) ejects: AtomicU64,
    /// The server that cannot be reached.
    pub(super) out: AtomicUsize,
    pub(super) is_over: AtomicBool,
    pub(super) operations: AtomicU64,
    /// Clients that have set all keys, or read them, since that was asked for.
    done: Mutex<HashSet<usize>>,
}

impl Stage {
    pub(super) fn new() -> Stage {
        Stage {
            mode: Mutex::new((Mode::Mix, 0)),
            calm: 0.into(),
            ejects: 0.into(),
            out: NOBODY.into(),
            is_over: false.into(),
            operations: 0.into(),
            done: Mutex::default(),
        }
    }

    fn mode(&self) -> (Mode, u64) {
        *lock(&self.mode)
    }

    /// Has the clients do this from now on.
    pub(super) fn set_mode(&self, mode: Mode) {
        let mut now = lock(&self.mode);
        *now = (mode, now.1 + 1);
        lock(&self.done).clear();
    }

    /// How many clients have set all keys, or read them, since that was asked for.
    pub(super) fn clients_done(&self) -> usize {
        lock(&self.done).len()
    }
}

/// Where things are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) stage: &'a Stage,
    pub(super) proxy: &'a Twemproxy,
    pub(super) servers: &'a [SocketAddr],
    /// Whether writes go elsewhere while a server is out.
    pub(super) moves_keys: bool,
}

/// See the module.
pub(super) struct ProxyClient<'a> {
    number: usize,
    around: Surroundings<'a>,
    connection: Option<Client>,
    random: Random,
    keys: Vec<KeyRecord>,
    /// The server of each key while all are there.
    homes: Vec<usize>,
    counters: Vec<CounterRecord>,
    counter_homes: Vec<usize>,
    adds: u64,
    /// Stale values that are counted already.
    seen: HashSet<(usize, u64)>,
    tally: Tally,
}

impl<'a> ProxyClient<'a> {
    pub(super) fn new(number: usize, seed: u64, around: Surroundings<'a>) -> ProxyClient<'a> {
        ProxyClient {
            number,
            around,
            connection: None,
            random: Random::new(seed.wrapping_add(number as u64 * 7919)),
            keys: vec![KeyRecord::default(); KEYS],
            homes: vec![NOBODY; KEYS],
            counters: vec![CounterRecord::default(); COUNTERS],
            counter_homes: vec![NOBODY; COUNTERS],
            adds: 0,
            seen: HashSet::new(),
            tally: Tally::default(),
        }
    }

    fn key(&self, key: usize) -> Vec<u8> {
        format!("key:{}:{key}", self.number).into_bytes()
    }

    fn counter(&self, counter: usize) -> Vec<u8> {
        format!("counter:{}:{counter}", self.number).into_bytes()
    }

    /// Sets every key and counter, while all servers are there, and looks where each of them is.
    ///
    /// # Errors
    /// A key is nowhere.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        let patient =
            || if begun.elapsed() > PROXY_LIMIT { Err("the proxy stores nothing".to_owned()) } else { Ok(()) };
        for key in 0..KEYS {
            while !self.set(key) {
                patient()?;
            }
        }
        for counter in 0..COUNTERS {
            while !self.set_counter(counter) {
                patient()?;
            }
        }
        let servers = self.around.servers;
        let home = |name: Vec<u8>| {
            let has = |server: &usize| ask_directly(servers[*server], &name).is_some();
            (0..servers.len()).find(has).ok_or_else(|| format!("{} is nowhere", name.escape_ascii()))
        };
        self.homes = (0..KEYS).map(|key| home(self.key(key))).collect::<Result<_, _>>()?;
        self.counter_homes = (0..COUNTERS).map(|counter| home(self.counter(counter))).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Works until the trial is over; what was seen.
    pub(super) fn run(mut self) -> Tally {
        let mut done = 0;
        while !self.around.stage.is_over.load(Ordering::SeqCst) {
            let (mode, change) = self.around.stage.mode();
            match mode {
                Mode::SetAll if done != change => {
                    self.set_all();
                    done = change;
                    self.end_round(change);
                }
                Mode::ReadAll => {
                    (0..KEYS).for_each(|key| self.get(key));
                    self.end_round(change);
                }
                _ => self.draw(),
            }
        }
        self.tally
    }

    /// Tells of a round, if it is still asked for.
    fn end_round(&self, change: u64) {
        let now = lock(&self.around.stage.mode);
        if now.1 == change {
            lock(&self.around.stage.done).insert(self.number);
        }
    }

    fn set_all(&mut self) {
        for key in 0..KEYS {
            while !self.set(key) && self.around.moves_keys && !self.around.stage.is_over.load(Ordering::SeqCst) {}
        }
    }

    fn draw(&mut self) {
        let key = self.random.below(KEYS as u64) as usize;
        match self.random.below(100) {
            0..45 => self.get(key),
            45..75 => _ = self.set(key),
            75..80 => self.delete(key),
            80..95 => self.count(key % COUNTERS),
            _ => self.add(),
        }
    }

    /// Asks the proxy; `None` if it fails, or an error is the answer: what became of it is unknown.
    fn ask<R>(&mut self, ask: impl FnOnce(&mut Client) -> io::Result<R>) -> Option<R> {
        self.around.stage.operations.fetch_add(1, Ordering::SeqCst);
        self.tally.operations += 1;
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => Client::connect_within(self.around.proxy.address, PROXY_LIMIT),
        };
        let answer = connection.and_then(|mut connection| {
            let answer = ask(&mut connection)?;
            self.connection = Some(connection);
            Ok(answer)
        });
        self.tally.errors += u64::from(answer.is_err());
        answer.ok()
    }

    /// Asks for a line; one with an error is none.
    fn line(&mut self, request: &[u8]) -> Option<String> {
        self.ask(|client| {
            client.send(request)?;
            let line = client.line()?;
            if line.contains("ERROR") { Err(io::Error::other(line)) } else { Ok(line) }
        })
    }

    /// The number of this calm, if it was the same before: 0 if something was disturbed meanwhile.
    fn calm_since(&self, before: u64) -> u64 {
        if self.calm() == before { before } else { 0 }
    }

    fn calm(&self) -> u64 {
        self.around.stage.calm.load(Ordering::SeqCst)
    }

    fn set(&mut self, key: usize) -> bool {
        let (before, name) = (self.calm(), self.key(key));
        let number = self.keys[key].begin_set().to_string();
        let request = crate::memcache::set_command(&name, 0, number.as_bytes());
        let is_stored = self.line(&request).is_some_and(|line| line == "STORED");
        if is_stored {
            let calm = self.calm_since(before);
            self.keys[key].acknowledge(calm);
        }
        is_stored
    }

    fn delete(&mut self, key: usize) {
        let (before, name) = (self.calm(), self.key(key));
        self.keys[key].begin_delete();
        let request = [b"delete ", &name[..], b"\r\n"].concat();
        if self.line(&request).is_some() {
            let calm = self.calm_since(before);
            self.keys[key].acknowledge(calm);
        }
    }

    fn get(&mut self, key: usize) {
        let (before, name) = (self.calm(), self.key(key));
        let Some(found) = self.ask(|client| client.get(&name)) else { return };
        let number = found.map(|value| String::from_utf8_lossy(&value).parse::<u64>().unwrap_or(u64::MAX));
        let calm = self.calm_since(before);
        match self.keys[key].judge(number, calm) {
            Judgement::Right => {}
            Judgement::Miss => self.tally.misses += 1,
            Judgement::Late => self.tally.late += 1,
            Judgement::Alien => self.tally.alien += 1,
            Judgement::Lost if self.is_calm_indeed() => self.tally.lost += 1,
            Judgement::Lost => self.tally.misses += 1,
            Judgement::OlderInCalm if self.is_calm_indeed() => self.tally.lost += 1,
            Judgement::OlderInCalm | Judgement::Stale => self.stale(key, number.unwrap_or_default()),
        }
    }

    /// Whether the proxy has left out no server since the calm began. It counts with some delay.
    fn is_calm_indeed(&self) -> bool {
        self.around
            .proxy
            .figures_by_now()
            .is_ok_and(|now| now.ejects == self.around.stage.ejects.load(Ordering::SeqCst))
    }

    /// An older value of a key, which counts once.
    fn stale(&mut self, key: usize, number: u64) {
        let is_home = self.is_of_home(self.homes[key], &self.key(key), number);
        if self.seen.insert((key, number)) {
            self.count_stale(is_home);
        }
    }

    /// Whether an older value is of the key's own server: else of one that stood in for it once.
    fn is_of_home(&self, home: usize, name: &[u8], number: u64) -> bool {
        let is_out = self.around.stage.out.load(Ordering::SeqCst) == home;
        !is_out && ask_directly(self.around.servers[home], name) == Some(number.to_string().into_bytes())
    }

    fn count_stale(&mut self, is_home: bool) {
        *if is_home { &mut self.tally.stale_home } else { &mut self.tally.stale_elsewhere } += 1;
    }

    fn count(&mut self, counter: usize) {
        let (before, name) = (self.calm(), self.counter(counter));
        let request = [b"incr ", &name[..], b" 1\r\n"].concat();
        match self.line(&request).map(|line| line.parse::<u64>()) {
            Some(Ok(sum)) => {
                let calm = self.calm_since(before);
                match self.counters[counter].judge(sum, calm) {
                    Counted::Right => {}
                    Counted::TooMuch => self.tally.duplicated += 1,
                    Counted::LessInCalm if self.is_calm_indeed() => self.tally.lost += 1,
                    Counted::LessInCalm | Counted::Stale => {
                        let is_home = self.is_of_home(self.counter_homes[counter], &name, sum);
                        self.count_stale(is_home);
                    }
                }
            }
            Some(Err(_)) => _ = self.set_counter(counter),
            None => self.counters[counter].failed(),
        }
    }

    /// There is none: it begins where it was at most. Whether it is set.
    fn set_counter(&mut self, counter: usize) -> bool {
        let (before, name) = (self.calm(), self.counter(counter));
        let base = self.counters[counter].base().to_string();
        let request = crate::memcache::set_command(&name, 0, base.as_bytes());
        let is_set = self.line(&request).is_some_and(|line| line == "STORED");
        let calm = self.calm_since(before);
        if is_set {
            self.counters[counter].is_set(calm)
        } else {
            self.counters[counter].set_failed()
        }
        is_set
    }

    /// A key that was never there: that it is there means that it was added twice.
    fn add(&mut self) {
        self.adds += 1;
        let request = format!("add add:{}:{} 0 60 1\r\n1\r\n", self.number, self.adds);
        let is_there = self.line(request.as_bytes()).is_some_and(|line| line == "NOT_STORED");
        self.tally.duplicated += u64::from(is_there);
    }
}

/// What a server itself has of a key.
fn ask_directly(server: SocketAddr, key: &[u8]) -> Option<Vec<u8>> {
    Client::connect_within(server, DIRECT_LIMIT).and_then(|mut client| client.get(key)).ok().flatten()
}

/// What a client panicked over is told by its thread's end.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
