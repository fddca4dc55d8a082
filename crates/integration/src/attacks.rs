//! Attacks of many clients on a server, beside honest ones: what it holds for them, and whether the
//! honest ones are served.
//!
//! For each server and attack two of the servers are started. In each round the crowd attacks one
//! of them, and then the other one, the control: the steady honest client is at the first all the
//! time, so that the difference is what the server does, and not what the processor has to do. Then
//! slow honest clients come, and at last the crowd leaves.

pub mod crowd;
pub mod honest;
pub mod kinds;
pub mod table;
pub mod target;
pub mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::process;
use crowd::{Crowd, Tally};
use honest::Steady;
use kinds::Attack;
use target::{LONG_BYTES, Options, Running, Target};
use wire::Certificate;

/// Open files of the harness and, by inheritance, of the servers.
const FILES: u64 = 20_000;
/// How long a crowd is at work before it is measured.
const RAMP: Duration = Duration::from_millis(1200);
/// Between two measurements.
const PAUSE: Duration = Duration::from_millis(500);
/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The pace of slow clients.
pub const SLOW_BYTES_PER_S: usize = 100_000;
/// How long a server may go on for clients that have left, until it is said that it does.
const QUIET_TIMEOUT: Duration = Duration::from_secs(30);

/// What a connection may hold beside the budget, and what a session of TLS takes beside that.
const CONNECTION_BYTES: u64 = 4 << 10;
const TLS_BYTES: u64 = 33 << 9;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Servers.
    pub targets: Vec<Target>,
    /// Attacks.
    pub attacks: Vec<Attack>,
    /// `--memory` of each.
    pub memory_bytes: u64,
    /// Attacked and control, in turn; medians count.
    pub rounds: u32,
    /// How long the steady client is measured in each.
    pub duration: Duration,
    /// What slow clients store and take.
    pub slow_bytes: usize,
    /// After how long it is looked at what a server still holds when the crowd has left.
    pub after: Duration,
    /// A tenth of the clients.
    pub few: bool,
    /// All by TLS.
    pub tls: bool,
    /// Where the servers' files lie; what is made there is removed.
    pub place: PathBuf,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            targets: Target::OURS.to_vec(),
            attacks: Attack::ALL.to_vec(),
            memory_bytes: 128 << 20,
            rounds: 5,
            duration: Duration::from_secs(4),
            slow_bytes: 1_000_000,
            after: Duration::from_secs(60),
            few: false,
            tls: false,
            place: "./stratakv-attacks".into(),
        }
    }
}

impl Plan {
    /// Small and quick: whether the bounds hold with fewer clients.
    pub fn shorten(&mut self) {
        (self.rounds, self.few, self.slow_bytes) = (1, true, 200_000);
        (self.duration, self.after) = (Duration::from_secs(1), Duration::from_secs(12));
    }

    /// How long it takes, about.
    pub fn estimate(&self) -> Duration {
        let rounds = (RAMP + PAUSE + self.duration) * 2 * self.rounds;
        let slow = Duration::from_secs_f64(self.slow_bytes as f64 / SLOW_BYTES_PER_S as f64);
        let one = Duration::from_secs(6) + self.duration + rounds + slow + self.after;
        one * (self.targets.len() * self.attacks.len()) as u32
    }

    /// The most anonymous memory that a server may have with so many clients.
    pub fn bound_bytes(&self, clients: usize) -> u64 {
        bound_bytes(self.memory_bytes, clients, self.tls)
    }
}

/// The most anonymous memory that a server may have.
pub fn bound_bytes(memory_bytes: u64, clients: usize, tls: bool) -> u64 {
    memory_bytes + memory_bytes / 20 + clients as u64 * connection_bytes(tls)
}

/// What of it is for each connection.
fn connection_bytes(tls: bool) -> u64 {
    CONNECTION_BYTES + if tls { TLS_BYTES } else { 0 }
}

/// Milliseconds of the steady client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delay {
    /// Of gets.
    pub p50_ms: f64,
    /// Of gets.
    pub p99_ms: f64,
    /// Of sets.
    pub sets_p99_ms: f64,
}

impl Delay {
    fn of(seen: &Steady) -> Delay {
        let of = |figures: &[f64], part| honest::quantile(figures, part);
        Delay { p50_ms: of(&seen.gets_ms, 0.5), p99_ms: of(&seen.gets_ms, 0.99), sets_p99_ms: of(&seen.sets_ms, 0.99) }
    }

    fn median(all: &[Delay]) -> Delay {
        let of = |figure: fn(&Delay) -> f64| honest::quantile(&all.iter().map(figure).collect::<Vec<_>>(), 0.5);
        Delay { p50_ms: of(|one| one.p50_ms), p99_ms: of(|one| one.p99_ms), sets_p99_ms: of(|one| one.sets_p99_ms) }
    }
}

/// What a server held, in bytes of anonymous memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnonymousMemory {
    /// Loaded, before the attack.
    pub before: u64,
    /// At most.
    pub peak: u64,
    /// When the crowd had left and some time had passed.
    pub after: u64,
    /// What is allowed.
    pub bound: u64,
}

/// What was measured of one server under one attack.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which server.
    pub target: Target,
    /// Which attack.
    pub attack: Attack,
    /// How many clients.
    pub clients: usize,
    /// Its memory.
    pub held: AnonymousMemory,
    /// The steady client without any crowd.
    pub alone: Delay,
    /// With the crowd at the same server, and at another one; medians.
    pub attacked: Delay,
    /// See `attacked`.
    pub control: Delay,
    /// Requests of the steady client that failed.
    pub errors: u64,
    /// The slow clients: how long it took, or why it did not work.
    pub slow_sender: Result<Duration, String>,
    /// See `slow_sender`.
    pub slow_taker: Result<Duration, String>,
    /// Connections that the server closed or refused.
    pub closed: u64,
    /// Processor time of the server for each megabyte that the crowd sent and received.
    pub cpu_ms_per_mb: f64,
    /// Of attack `left`: bytes that were asked for, and that were read from the device after all
    /// had left.
    pub device: Option<(u64, u64)>,
}

impl Measured {
    /// How much later the honest client was served than beside as much load elsewhere.
    pub fn ratio(&self) -> f64 {
        self.attacked.p99_ms / self.control.p99_ms.max(0.001)
    }

    /// Whether its memory stayed within its bound, and the slow clients were served.
    pub fn holds(&self) -> bool {
        self.held.peak <= self.held.bound && self.slow_sender.is_ok() && self.slow_taker.is_ok()
    }
}

/// Runs the plan; `note` is called with each measurement, or with why there is none.
///
/// # Errors
/// It cannot be run here.
pub fn run(plan: &Plan, note: &mut dyn FnMut(Result<&Measured, &str>)) -> Result<Vec<Measured>, String> {
    if process::allow_open_files(FILES) < 3000 {
        return Err("the limit of open files is below 3,000 (ulimit -Hn)".into());
    }
    std::fs::create_dir_all(&plan.place).map_err(|error| format!("cannot make {}: {error}", plan.place.display()))?;
    let certificate = plan.tls.then(|| Certificate::new(&plan.place)).transpose()?;
    let mut all = Vec::new();
    for target in &plan.targets {
        for attack in &plan.attacks {
            let trial = Trial { plan, target: *target, attack: *attack, certificate: certificate.as_ref() };
            match trial.measure() {
                Ok(measured) => {
                    note(Ok(&measured));
                    all.push(measured);
                }
                Err(why) => note(Err(&format!("{}, {}: {why}", target.name(), attack.name()))),
            }
        }
    }
    if let Some(Certificate { certificate, key, .. }) = &certificate {
        // Left there they do no harm.
        let _ = std::fs::remove_file(certificate).and_then(|()| std::fs::remove_file(key));
    }
    Ok(all)
}

/// One server under one attack.
struct Trial<'a> {
    plan: &'a Plan,
    target: Target,
    attack: Attack,
    certificate: Option<&'a Certificate>,
}

impl Trial<'_> {
    fn start(&self, which: &str) -> Result<Running, String> {
        let place = self.plan.place.join(format!("{}-{}-{which}", self.target.name(), std::process::id()));
        self.target.start(&Options {
            place: &place,
            memory_bytes: self.plan.memory_bytes,
            asks_who: self.attack.asks_who(),
            certificate: self.certificate,
            slow_bytes: self.plan.slow_bytes,
        })
    }

    fn crowd(&self, server: &Running) -> Crowd {
        let mut dialer = server.dialer().clone();
        dialer.receive_bytes = self.attack.receive_bytes();
        Crowd::start(self.attack.script(self.plan.few), dialer)
    }

    fn steady(&self, server: &Running) -> Result<Steady, String> {
        std::thread::scope(|scope| {
            let honest = scope.spawn(|| honest::steady(server.dialer(), server.asks_who(), self.plan.duration));
            honest.join().unwrap_or_else(|_| Err("the steady client panicked".into()))
        })
    }

    fn measure(&self) -> Result<Measured, String> {
        let (mut server, control) = (self.start("attacked")?, self.start("control")?);
        let clients = self.attack.script(self.plan.few).clients;
        let mut measured = Measured {
            target: self.target,
            attack: self.attack,
            clients,
            held: AnonymousMemory { bound: self.plan.bound_bytes(clients), ..AnonymousMemory::default() },
            alone: Delay::of(&self.steady(&server)?),
            attacked: Delay::default(),
            control: Delay::default(),
            errors: 0,
            slow_sender: Err("not tried".into()),
            slow_taker: Err("not tried".into()),
            closed: 0,
            cpu_ms_per_mb: 0.0,
            device: None,
        };
        measured.held.before = process::memory_bytes(server.id(), "RssAnon")?;
        let watch = Watch::start(server.id());
        let outcome = match self.attack {
            Attack::Left => self.leave_at_once(&server, &mut measured),
            _ => self.rounds(&server, &control, &mut measured),
        };
        outcome.map_err(|why| format!("{why}; the server said: {}", server.said()))?;
        std::thread::sleep(self.plan.after);
        measured.held.peak = watch.most();
        measured.held.after = process::memory_bytes(server.id(), "RssAnon")?;
        if !server.is_running() {
            return Err(format!("the server ended: {}", server.said()));
        }
        server.stop()?;
        Ok(measured)
    }

    fn rounds(&self, server: &Running, control: &Running, measured: &mut Measured) -> Result<(), String> {
        let (mut attacked, mut beside) = (Vec::new(), Vec::new());
        let (mut cpu, mut moved_bytes) = (Duration::ZERO, 0);
        for _ in 0..self.plan.rounds {
            for (at, delays) in [(server, &mut attacked), (control, &mut beside)] {
                let cpu_before = process::cpu(at.id());
                let crowd = self.crowd(at);
                std::thread::sleep(RAMP);
                let seen = self.steady(server)?;
                let tally = crowd.leave()?;
                delays.push(Delay::of(&seen));
                if at.id() == server.id() {
                    measured.errors += seen.errors;
                    cpu += process::cpu(at.id()).saturating_sub(cpu_before);
                    moved_bytes += tally.moved_bytes();
                    measured.closed += closed(&tally);
                }
                std::thread::sleep(PAUSE);
            }
        }
        (measured.attacked, measured.control) = (Delay::median(&attacked), Delay::median(&beside));
        measured.cpu_ms_per_mb = cpu.as_secs_f64() * 1e3 / (moved_bytes as f64 / 1e6).max(1.0);
        let crowd = self.crowd(server);
        std::thread::sleep(RAMP);
        self.slow(server, measured);
        measured.closed += closed(&*crowd.leave()?);
        Ok(())
    }

    /// Slow clients beside the crowd.
    fn slow(&self, server: &Running, measured: &mut Measured) {
        let (dialer, says_who, bytes) = (server.dialer(), server.asks_who(), self.plan.slow_bytes);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| honest::slow_sender(dialer, says_who, bytes, SLOW_BYTES_PER_S));
            let taker = scope.spawn(|| honest::slow_taker(dialer, says_who, target::SLOW_KEY, bytes, SLOW_BYTES_PER_S));
            let panicked = |_| Err("it panicked".to_owned());
            measured.slow_sender = sender.join().unwrap_or_else(panicked);
            measured.slow_taker = taker.join().unwrap_or_else(panicked);
        });
    }

    /// Clients that ask and leave: what the device reads for them all the same.
    fn leave_at_once(&self, server: &Running, measured: &mut Measured) -> Result<(), String> {
        let script = self.attack.script(self.plan.few);
        let asked_bytes = (script.clients * kinds::GETS * LONG_BYTES) as u64;
        let request_bytes = (0..script.clients).map(|number| (script.head)(number).len() as u64).sum::<u64>();
        let crowd = self.crowd(server);
        let deadline = Instant::now() + QUIET_TIMEOUT;
        while crowd.tally().sent_bytes.load(Ordering::Relaxed) < request_bytes && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = process::device_read_bytes(server.id())?;
        measured.closed = closed(&*crowd.leave()?);
        let left = Instant::now();
        // Until nothing was read for a second.
        let (mut read, mut since) = (before, Instant::now());
        while since.elapsed() < Duration::from_secs(1) && left.elapsed() < QUIET_TIMEOUT {
            std::thread::sleep(LOOK_EVERY);
            let now = process::device_read_bytes(server.id())?;
            if now != read {
                (read, since) = (now, Instant::now());
            }
        }
        measured.device = Some((asked_bytes, read - before));
        self.slow(server, measured);
        Ok(())
    }
}

fn closed(tally: &Tally) -> u64 {
    tally.closed.load(Ordering::Relaxed) + tally.refused.load(Ordering::Relaxed)
}

/// The most anonymous memory that a process has, looked at all the time.
pub struct Watch {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    /// Looks at a process from now on.
    pub fn start(process: u32) -> Watch {
        let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, seen) = (Arc::clone(&stop), Arc::clone(&most));
        let look = move || {
            while !until.load(Ordering::Relaxed) {
                // None when it has ended, which others tell.
                seen.fetch_max(process::memory_bytes(process, "RssAnon").unwrap_or_default(), Ordering::Relaxed);
                std::thread::sleep(LOOK_EVERY);
            }
        };
        Watch { stop, most, thread: Some(std::thread::spawn(look)) }
    }

    /// The most so far.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only looks; that it panicked would be seen by the figure.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_memory_and_a_constant_for_each_connection() {
        let plan = Plan::default();
        assert_eq!(plan.bound_bytes(1000), (128 << 20) + (128 << 20) / 20 + (4000 << 10));
        let sealed = Plan { tls: true, ..plan };
        assert_eq!(sealed.bound_bytes(2) - sealed.bound_bytes(1), (4 << 10) + 16896);
        assert!(sealed.estimate() > Duration::from_secs(3600));
    }
}
