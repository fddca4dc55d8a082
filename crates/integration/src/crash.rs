//! `kill -9` under writing clients, with an oracle of what was acknowledged.
//!
//! Each key belongs to one client, which numbers its writes. After a restart the value under a key must be the last
//! acknowledged one or one issued after it: never an older one, never another key's, never torn. A deleted key stays away.
//! What a restart showed is settled: it must be there after the next one, unless it was overwritten.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stratakv_base::random::Random;

use crate::memcache::{Client, set_command};
use crate::program::{self, Serve, Served};
use crate::value;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How often to kill.
    pub rounds: u32,
    /// Writing clients.
    pub clients: u64,
    /// Keys of each client.
    pub keys_per_client: u64,
    /// Largest value, in bytes.
    pub value_bytes_max: u64,
    /// The longest time between the first write and the kill.
    pub life_max: Duration,
    /// Further options of `serve`.
    pub options: Vec<String>,
    /// For the operations; the moments of the kills are never the same twice.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            rounds: 200,
            clients: 8,
            keys_per_client: 400,
            value_bytes_max: 300 << 10,
            life_max: Duration::from_millis(600),
            options: Vec::new(),
            seed: 1,
        }
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Kills.
    pub kills: u64,
    /// Of these, kills while the server was recovering.
    pub kills_in_recovery: u64,
    /// Acknowledged writes and deletes.
    pub acknowledged: u64,
    /// Writes whose outcome was not known at a kill.
    pub in_doubt: u64,
    /// Of these, writes that had happened.
    pub in_doubt_present: u64,
    /// Values compared after restarts.
    pub verified: u64,
}

/// A state of a key: a value by its sequence, or nothing.
type State = Option<u64>;

/// What may be found under a key.
#[derive(Clone, Debug, Default)]
struct Known {
    acknowledged: State,
    /// Issued after it, in order; outcome not known.
    issued: Vec<State>,
}

impl Known {
    fn may_be(&self, found: State) -> bool {
        self.acknowledged == found || self.issued.contains(&found)
    }
}

/// One client's keys, and its next sequence.
#[derive(Clone, Debug)]
struct Writer {
    number: u64,
    known: HashMap<u64, Known>,
    sequence: u64,
    random: Random,
    acknowledged: u64,
}

/// Runs the plan on a fresh store in `data`; `report` is called after each round.
///
/// # Errors
/// Something acknowledged is lost, something else appeared, or the server does not come back: what, and in which round.
pub fn run(data: &Path, plan: &Plan, report: &mut dyn FnMut(u32, &Tally)) -> Result<Tally, String> {
    let mut serve = Serve::on(data);
    serve.options.clone_from(&plan.options);
    let mut random = Random::new(plan.seed);
    let mut writers: Vec<Writer> = (0..plan.clients).map(|number| Writer::new(number, plan)).collect();
    let mut tally = Tally::default();
    for round in 0..plan.rounds {
        let in_round = |message: String| format!("round {round}: {message}");
        if random.below(8) == 0 {
            kill_in_recovery(&serve, random.below(60))?;
            tally.kills_in_recovery += 1;
            tally.kills += 1;
        }
        let mut served = serve.spawn().map_err(|error| error.to_string())?;
        served.wait_ready().map_err(in_round)?;
        verify(&served, &mut writers, plan, &mut tally).map_err(in_round)?;
        let life = Duration::from_micros(1000 + random.below(plan.life_max.as_micros() as u64));
        writers = write_and_kill(&mut served, writers, plan, life).map_err(in_round)?;
        tally.kills += 1;
        tally.acknowledged = writers.iter().map(|writer| writer.acknowledged).sum();
        report(round, &tally);
    }
    let mut served = serve.spawn().map_err(|error| error.to_string())?;
    served.wait_ready()?;
    verify(&served, &mut writers, plan, &mut tally)?;
    let status = served.stop();
    if !status.success() {
        return Err(format!("the server ended with {status} on SIGTERM"));
    }
    check_offline(data, &writers)?;
    Ok(tally)
}

/// Starts a server and kills it soon: most likely while it reads its volumes.
fn kill_in_recovery(serve: &Serve, after_ms: u64) -> Result<(), String> {
    let mut served = serve.spawn().map_err(|error| error.to_string())?;
    std::thread::sleep(Duration::from_millis(after_ms));
    served.kill();
    Ok(())
}

/// All writers write until the server, killed after `life`, stops answering.
fn write_and_kill(
    served: &mut Served,
    writers: Vec<Writer>,
    plan: &Plan,
    life: Duration,
) -> Result<Vec<Writer>, String> {
    let address = served.address();
    let killed = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = writers
        .into_iter()
        .map(|mut writer| {
            let (plan, killed) = (plan.clone(), Arc::clone(&killed));
            std::thread::spawn(move || {
                let outcome = Client::connect(address)
                    .map_err(Failure::Connection)
                    .and_then(|mut client| writer.write_until_killed(&mut client, &plan));
                let wrong = match outcome {
                    Err(Failure::Wrong(message)) => Some(message),
                    Err(Failure::Connection(error)) if !killed.load(Ordering::SeqCst) => {
                        Some(format!("a connection ended before the kill: {error}"))
                    }
                    Ok(()) | Err(Failure::Connection(_)) => None,
                };
                (writer, wrong)
            })
        })
        .collect();
    let started = Instant::now();
    while started.elapsed() < life && served.is_running() {
        std::thread::sleep(Duration::from_micros(500).min(life.saturating_sub(started.elapsed())));
    }
    let died_alone = !served.is_running();
    killed.store(true, Ordering::SeqCst);
    served.kill();
    let mut writers = Vec::new();
    let mut wrong = died_alone.then(|| format!("the server ended by itself; it said:\n{}", served.said()));
    for thread in threads {
        let (writer, seen) = thread.join().map_err(|_| "a client panicked".to_owned())?;
        wrong = wrong.or(seen);
        writers.push(writer);
    }
    match wrong {
        Some(message) => Err(message),
        None => Ok(writers),
    }
}

/// Why a writer stopped.
enum Failure {
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

impl Writer {
    fn new(number: u64, plan: &Plan) -> Writer {
        Writer {
            number,
            known: HashMap::new(),
            sequence: 0,
            random: Random::new(plan.seed ^ (number + 1) << 32),
            acknowledged: 0,
        }
    }

    fn key_text(&self, key: u64) -> String {
        format!("client{}/key{key}", self.number)
    }

    /// Different for every key of every client.
    fn key_id(&self, key: u64) -> u64 {
        self.number << 20 | key
    }

    fn write_until_killed(&mut self, client: &mut Client, plan: &Plan) -> Result<(), Failure> {
        loop {
            let batch = 1 + self.random.below(8);
            let mut commands = Vec::new();
            let mut issued: Vec<(u64, State)> = Vec::new();
            for _ in 0..batch {
                let key = self.random.below(plan.keys_per_client);
                if issued.iter().all(|(other, _)| *other != key) {
                    issued.push((key, self.issue(key, plan, &mut commands)));
                }
            }
            client.send(&commands)?;
            for (key, state) in issued {
                self.acknowledge(key, state, &client.line()?)?;
            }
            if self.random.below(4) == 0 {
                let key = self.random.below(plan.keys_per_client);
                self.read_back(client, key)?;
            }
        }
    }

    /// Appends a command on `key`, which nobody else writes.
    fn issue(&mut self, key: u64, plan: &Plan, commands: &mut Vec<u8>) -> State {
        let name = self.key_text(key);
        let state = if self.random.below(6) == 0 {
            commands.extend_from_slice(format!("delete {name}\r\n").as_bytes());
            None
        } else {
            self.sequence += 1;
            let len = self.value_len(plan);
            commands.extend_from_slice(&set_command(
                name.as_bytes(),
                0,
                &value::encode(self.key_id(key), self.sequence, len),
            ));
            Some(self.sequence)
        };
        self.known.entry(key).or_default().issued.push(state);
        state
    }

    /// Mostly small, some over a page, few large.
    fn value_len(&mut self, plan: &Plan) -> usize {
        let max = match self.random.below(20) {
            0 => plan.value_bytes_max,
            1..=4 => plan.value_bytes_max.min(20_000),
            _ => plan.value_bytes_max.min(1500),
        };
        value::LEN_MIN + self.random.below(max) as usize
    }

    fn acknowledge(&mut self, key: u64, state: State, line: &str) -> Result<(), Failure> {
        let known = self.known.entry(key).or_default();
        let right = match state {
            Some(_) => line == "STORED",
            None => line == if known.acknowledged.is_some() { "DELETED" } else { "NOT_FOUND" },
        };
        if !right {
            return Err(Failure::Wrong(format!(
                "{}: {state:?} was answered `{line}`; known: {:?}",
                self.key_text(key),
                self.known[&key]
            )));
        }
        *known = Known { acknowledged: state, issued: Vec::new() };
        self.acknowledged += 1;
        Ok(())
    }

    /// Reads an own key with nothing in flight: exactly what was acknowledged.
    fn read_back(&mut self, client: &mut Client, key: u64) -> Result<(), Failure> {
        let name = self.key_text(key);
        let found = client.get(name.as_bytes())?;
        let found = found.map(|bytes| value::decode(self.key_id(key), &bytes)).transpose();
        let found = found.map_err(|message| Failure::Wrong(format!("{name}: {message}")))?;
        let expected = self.known.get(&key).and_then(|known| known.acknowledged);
        if found == expected {
            Ok(())
        } else {
            Err(Failure::Wrong(format!("{name}: read {found:?}, {expected:?} was acknowledged")))
        }
    }

    /// Compares what a restarted server shows; what it shows is settled.
    fn settle(&mut self, key: u64, found: Option<&[u8]>, tally: &mut Tally) -> Result<(), String> {
        let name = self.key_text(key);
        let id = self.key_id(key);
        let found =
            found.map(|bytes| value::decode(id, bytes)).transpose().map_err(|message| format!("{name}: {message}"))?;
        let known = self.known.entry(key).or_default();
        if !known.may_be(found) {
            return Err(format!(
                "{name}: found {found:?}; acknowledged was {:?}, issued since {:?}",
                known.acknowledged, known.issued
            ));
        }
        tally.in_doubt += known.issued.len() as u64;
        tally.in_doubt_present += u64::from(known.acknowledged != found);
        tally.verified += 1;
        *known = Known { acknowledged: found, issued: Vec::new() };
        Ok(())
    }
}

/// Reads every key of every writer.
fn verify(served: &Served, writers: &mut [Writer], plan: &Plan, tally: &mut Tally) -> Result<(), String> {
    let text =
        |error: io::Error| format!("a read after a restart failed: {error}; the server said:\n{}", served.said());
    let mut client = Client::connect(served.address()).map_err(text)?;
    let keys: Vec<u64> = (0..plan.keys_per_client).collect();
    for writer in writers {
        for keys in keys.chunks(20) {
            let names: Vec<String> = keys.iter().map(|key| writer.key_text(*key)).collect();
            client.send(format!("get {}\r\n", names.join(" ")).as_bytes()).map_err(text)?;
            let hits = client.hits().map_err(text)?;
            for (key, name) in keys.iter().zip(&names) {
                let hit = hits.iter().find(|hit| hit.key == name.as_bytes());
                writer.settle(*key, hit.map(|hit| &hit.value[..]), tally)?;
            }
        }
    }
    Ok(())
}

/// After an orderly end: `check` finds nothing, and the keys are exactly those of the oracle.
fn check_offline(data: &Path, writers: &[Writer]) -> Result<(), String> {
    let data = data.to_str().ok_or("the data directory's name is no text")?;
    let output = program::run(&["check", "--data", data]);
    if !output.status.success() {
        return Err(format!("check: {}", program::said(&output)));
    }
    let output = program::run(&["scan", "--data", data, "--keys-only"]);
    if !output.status.success() {
        return Err(format!("scan: {}", program::said(&output)));
    }
    let mut found: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    let mut expected: Vec<String> = Vec::new();
    for writer in writers {
        let present = writer.known.iter().filter(|(_, known)| known.acknowledged.is_some());
        expected.extend(present.map(|(key, _)| writer.key_text(*key)));
    }
    found.sort();
    expected.sort();
    if found == expected {
        Ok(())
    } else {
        Err(format!("scan shows {} keys, the oracle has {}", found.len(), expected.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer_with(acknowledged: State, issued: &[State]) -> Writer {
        let mut writer = Writer::new(0, &Plan::default());
        writer.known.insert(1, Known { acknowledged, issued: issued.to_vec() });
        writer
    }

    fn settles(writer: &Writer, found: State) -> bool {
        let bytes = found.map(|sequence| value::encode(1, sequence, 100));
        writer.clone().settle(1, bytes.as_deref(), &mut Tally::default()).is_ok()
    }

    #[test]
    fn the_oracle_takes_the_last_acknowledged_and_what_was_issued_since() {
        let writer = writer_with(Some(5), &[Some(6), None]);
        assert!([Some(5), Some(6), None].into_iter().all(|found| settles(&writer, found)));
        assert!(!settles(&writer, Some(4)), "an older value");
        let deleted = writer_with(None, &[]);
        assert!(settles(&deleted, None));
        assert!(!settles(&deleted, Some(4)), "a resurrected value");
        assert!(!settles(&writer_with(Some(5), &[]), None), "a lost value");
    }

    #[test]
    fn what_a_restart_showed_is_settled() {
        let mut writer = writer_with(Some(5), &[Some(6)]);
        writer.settle(1, Some(&value::encode(1, 6, 100)), &mut Tally::default()).expect("6 was issued");
        assert!(!settles(&writer, Some(5)), "5 was seen to be overwritten");
    }

    #[test]
    fn a_torn_value_and_another_keys_value_are_refused() {
        let mut writer = writer_with(Some(5), &[]);
        let mut torn = value::encode(1, 5, 100);
        torn[60] ^= 0x10;
        assert!(writer.settle(1, Some(&torn), &mut Tally::default()).is_err());
        assert!(writer.settle(1, Some(&value::encode(2, 5, 100)), &mut Tally::default()).is_err());
    }
}
