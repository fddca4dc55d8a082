//! One store, the clients that write to it, and the processes that have it one after the other.

use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stratakv_base::random::Random;

use super::writer::{Failure, Shared, Writer};
use super::{Plan, Share, Tally};
use crate::engine::Engine;
use crate::program::{self, Serve, Served};
use crate::protocol::Client;

/// How long clients may need to make progress on a busy machine.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks.
const POLL: Duration = Duration::from_millis(2);

/// See the module.
#[derive(Debug)]
pub struct Trial {
    /// How the next process is started.
    pub serve: Serve,
    engine: Engine,
    writers: Vec<Writer>,
    shared: Arc<Shared>,
    tally: Tally,
    /// The last process ended in order.
    is_closed: bool,
}

/// Clients at work, until they are stopped or their server is.
#[derive(Debug)]
pub struct Load {
    threads: Vec<JoinHandle<(Writer, Result<(), String>)>>,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    /// From now on connections may end.
    cut: Arc<AtomicBool>,
    /// What the first client that stopped has to say.
    wrong: Arc<OnceLock<String>>,
}

impl Trial {
    /// A trial of a fresh store in `data`, with the first of each list of the plan.
    pub fn new(data: &Path, plan: &Plan) -> Trial {
        let shared = Arc::<Shared>::default();
        let writer = |number| Writer::new(number, plan.mix.clone(), plan.seed, Arc::clone(&shared));
        let writers = (0..plan.clients).map(writer).collect();
        let mut trial = Trial {
            serve: Serve::on(data),
            engine: plan.engine,
            writers,
            shared,
            tally: Tally::default(),
            is_closed: false,
        };
        trial.options(plan, 0, 0, 0);
        trial
    }

    /// Draws how the next process is started.
    pub fn draw(&mut self, random: &mut Random, plan: &Plan) {
        let pick = |random: &mut Random, len: usize| random.below(len as u64) as usize;
        let protocol = pick(random, plan.protocols.len());
        let (io, level) = (pick(random, plan.ios.len()), pick(random, plan.levels.len()));
        self.options(plan, protocol, io, level);
        let threads = (1 + random.below(3)).to_string();
        let depth = ["1", "8", "64"][pick(random, 3)];
        let memory = plan.engine.memory_choices()[pick(random, 2)];
        self.serve = self.serve.clone().options(&["--threads", &threads, "--depth", depth, "--memory", memory]);
    }

    fn options(&mut self, plan: &Plan, protocol: usize, io: usize, level: usize) {
        self.serve.protocol = plan.protocols[protocol];
        self.serve.options.clear();
        self.serve.options.extend(plan.engine.serve_options().iter().map(|option| (*option).to_owned()));
        let drawn = ["--io", &plan.ios[io], "--durability", &plan.levels[level]];
        self.serve.options.extend(drawn.map(str::to_owned));
    }

    /// What was seen so far.
    pub fn tally(&self) -> Tally {
        Tally {
            acknowledged: self.shared.acknowledged.load(Ordering::Relaxed),
            refused: self.shared.refused.load(Ordering::Relaxed),
            flushes: self.shared.flushed.load(Ordering::SeqCst),
            ..self.tally
        }
    }

    /// Starts a process and compares every key with the oracle.
    ///
    /// # Errors
    /// It does not serve, or not what it must.
    pub fn start(&mut self) -> Result<Served, String> {
        let mut served = self.serve.spawn().map_err(|error| error.to_string())?;
        served.wait_ready()?;
        self.verify(&served)?;
        Ok(served)
    }

    /// Compares every key with the oracle; no client may be at work.
    ///
    /// # Errors
    /// Something is not what it must be.
    pub fn verify(&mut self, served: &Served) -> Result<(), String> {
        let said = |message| format!("{message}\nthe server said:\n{}", served.said());
        let client = served.protocol().connect(served.address());
        let mut client = client.map_err(|error| said(error.to_string()))?;
        let mut seen = Share::default();
        for writer in &mut self.writers {
            seen.add(writer.verify(client.as_mut(), &mut self.tally).map_err(said)?);
        }
        if self.is_closed {
            self.tally.after_close.add(seen)
        } else {
            self.tally.after_kill.add(seen)
        }
        self.shared.verify(client.as_mut()).map_err(said)
    }

    /// Sets all clients to work.
    pub fn load(&mut self, served: &Served) -> Load {
        let (stop, cut) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let wrong = Arc::<OnceLock<String>>::default();
        let (protocol, address) = (served.protocol(), served.address());
        let spawn = |mut writer: Writer| {
            let (stop, cut, wrong) = (Arc::clone(&stop), Arc::clone(&cut), Arc::clone(&wrong));
            std::thread::spawn(move || {
                let outcome = protocol.connect(address).map_err(Failure::Connection);
                let outcome = outcome.and_then(|mut client: Box<dyn Client>| writer.run(client.as_mut(), &stop));
                let outcome = match outcome {
                    Err(Failure::Wrong(message)) => Err(message),
                    Err(Failure::Connection(error)) if !cut.load(Ordering::SeqCst) => {
                        Err(format!("a connection ended by itself: {error}"))
                    }
                    Ok(()) | Err(Failure::Connection(_)) => Ok(()),
                };
                if let Err(message) = &outcome {
                    wrong.get_or_init(|| message.clone());
                }
                (writer, outcome)
            })
        };
        let threads = std::mem::take(&mut self.writers).into_iter().map(spawn).collect();
        Load { threads, shared: Arc::clone(&self.shared), stop, cut, wrong }
    }

    /// Lets clients finish what they are at, all of which must be answered.
    ///
    /// # Errors
    /// An answer is not what it must be, or a connection ended.
    pub fn rest(&mut self, load: Load) -> Result<(), String> {
        load.stop.store(true, Ordering::SeqCst);
        self.join(load)
    }

    fn join(&mut self, load: Load) -> Result<(), String> {
        let mut outcome = Ok(());
        for thread in load.threads {
            let (writer, seen) = thread.join().map_err(|_| "a client panicked".to_owned())?;
            outcome = outcome.and(seen);
            self.writers.push(writer);
        }
        outcome
    }

    /// `kill -9` under the clients.
    ///
    /// # Errors
    /// The process had ended by itself, or an answer was not what it must be.
    pub fn kill(&mut self, mut served: Served, load: Load) -> Result<(), String> {
        let alone = !served.is_running();
        load.cut.store(true, Ordering::SeqCst);
        served.kill();
        self.is_closed = false;
        self.tally.kills += 1;
        self.join(load)?;
        if alone { Err(format!("the server ended by itself; it said:\n{}", served.said())) } else { Ok(()) }
    }

    /// An orderly end; clients have stopped before.
    ///
    /// # Errors
    /// It does not end well, or an answer was not what it must be.
    pub fn close(&mut self, served: Served, load: Load) -> Result<(), String> {
        self.rest(load)?;
        self.is_closed = true;
        self.tally.closes += 1;
        let status = served.stop();
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }

    /// Waits for the end of a process that was asked to; what clients were told before it must
    /// hold.
    ///
    /// # Errors
    /// An answer was not what it must be.
    pub fn wait(&mut self, mut served: Served, load: Load) -> Result<ExitStatus, String> {
        let status = served.wait(PROGRESS_TIMEOUT);
        self.tally.closes += 1;
        self.join(load)?;
        Ok(status)
    }

    /// `kill -9` this long after asking for an end under the clients.
    ///
    /// # Errors
    /// As [`Trial::kill`].
    pub fn kill_in_close(&mut self, mut served: Served, load: Load, after: Duration) -> Result<(), String> {
        // An embedded store that is closed answers so; a server ends connections.
        if served.protocol() == crate::protocol::Protocol::Embedded {
            self.rest(load)?;
            served.ask_to_stop();
            std::thread::sleep(after);
        } else {
            load.cut.store(true, Ordering::SeqCst);
            served.ask_to_stop();
            std::thread::sleep(after);
            served.kill();
            self.join(load)?;
        }
        served.kill();
        self.is_closed = false;
        self.tally.kills += 1;
        self.tally.kills_in_close += 1;
        Ok(())
    }

    /// Starts a process and kills it soon: most likely while it reads its volumes.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn kill_in_recovery(&mut self, after: Duration) -> Result<(), String> {
        let mut served = self.serve.spawn().map_err(|error| error.to_string())?;
        std::thread::sleep(after);
        served.kill();
        self.is_closed = false;
        self.tally.kills += 1;
        self.tally.kills_in_recovery += 1;
        Ok(())
    }

    /// Starts a last process, compares, ends it in order, and looks at the store from outside:
    /// `check` finds nothing, and its keys are those of the oracle.
    ///
    /// # Errors
    /// Something is not what it must be.
    pub fn finish(&mut self) -> Result<Tally, String> {
        let served = self.start()?;
        let status = served.stop();
        if !status.success() {
            return Err(format!("the server ended with {status} when asked to"));
        }
        self.check_offline()?;
        Ok(self.tally())
    }

    /// The keys that the command line shows.
    fn shown(&self, data: &str) -> Result<Vec<String>, String> {
        let scan = self.engine.is_ordered();
        let arguments = if scan { &["scan", "--keys-only", "--data", data][..] } else { &["dump", "--data", data] };
        let output = program::run(arguments);
        if !output.status.success() {
            return Err(format!("{}: {}", arguments[0], program::said(&output)));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let key = |line: &str| match scan {
            true => Some(line.to_owned()),
            false => Some(serde_json::from_str::<serde_json::Value>(line).ok()?.get("key")?.as_str()?.to_owned()),
        };
        said.lines().map(|line| key(line).ok_or_else(|| format!("a line without a key: {line}"))).collect()
    }

    fn check_offline(&self) -> Result<(), String> {
        let data = self.serve.data.to_str().ok_or("the data directory's name is no text")?;
        let output = program::run(&["check", "--data", data]);
        if !output.status.success() {
            return Err(format!("check: {}", program::said(&output)));
        }
        if self.engine.evicts() {
            // It may hold any of them, or none, and the command line does not list its keys.
            return Ok(());
        }
        let expected: Vec<_> = self.writers.iter().map(Writer::expected).collect();
        let found = self.shown(data)?;
        let counters = self.shared.counters();
        let after: Vec<_> = self.writers.iter().map(Writer::expected).collect();
        // What must be there after the scan, and what may have been there before it.
        let must: Vec<&String> = after.iter().flat_map(|(must, _)| must).chain(&counters).collect();
        let may: std::collections::HashSet<&String> =
            expected.iter().flat_map(|(_, may)| may).chain(&counters).collect();
        let shown: std::collections::HashSet<&String> = found.iter().collect();
        if let Some(key) = must.iter().find(|key| !shown.contains(**key)) {
            return Err(format!("the scan does not show {key}"));
        }
        match found.iter().find(|key| !may.contains(key)) {
            Some(key) => Err(format!("the scan shows {key}, which must not be there")),
            None if shown.len() != found.len() => Err("the scan shows a key twice".into()),
            None => Ok(()),
        }
    }
}

impl Load {
    /// Whether every client is still at work.
    pub fn is_well(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// From now on connections may end.
    pub fn expect_cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Writes acknowledged to all clients so far.
    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Writes refused or failed so far.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Waits until `count` more writes are acknowledged.
    ///
    /// # Errors
    /// A client has stopped, or nothing goes on.
    pub fn go_on(&self, count: u64) -> Result<(), String> {
        let from = self.acknowledged();
        self.wait_until(&format!("{count} more writes are acknowledged"), || self.acknowledged() >= from + count)
    }

    /// Waits until something holds.
    ///
    /// # Errors
    /// A client has stopped, or it does not come to hold in a minute.
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + PROGRESS_TIMEOUT;
        while !holds() {
            if !self.is_well() {
                let why = self.wrong.get().map_or("it was told to", String::as_str);
                return Err(format!("a client stopped before {what}: {why}"));
            }
            if Instant::now() > deadline {
                return Err(format!("waited in vain: {what}"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}
