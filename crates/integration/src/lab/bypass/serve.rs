//! Both halves at once: the real `serve` drives a controller and a network interface itself, while
//! clients in another network namespace keep it busy, the cable is pulled, and it is killed.
//!
//! ```text
//!  namespace `client`            the guest's own namespace
//!  clients ── TCP ── eth0 ═ veth ═ xdp0 ── AF_XDP ── stratakv serve ── VFIO ── controller VOLUME
//!     └──── witness sectors ──────────────────────────────────────────────────► controller HOME
//! ```

mod clients;
pub(super) mod host;
mod network;
mod script;
mod server;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::super::errors::Switch;
use super::super::guest::{open_direct, send_mail, text, write};
use super::super::workload::{BLOCKING, LANES, SESSIONS};
use super::{StoreKind, VOLUME, bind, block_device, give_back};

use clients::{Clients, Connection, Done, Script, Stage};
use network::Network;
pub(super) use network::tools;
use server::{Server, lost_interrupts};

/// Where clients find the server; no kernel has the address.
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 2)), 11211);
/// How long nothing is asked of a server before it counts as idle: far longer than it looks for
/// work.
const IDLE: Duration = Duration::from_millis(200);
/// Requests after such a time.
const IDLE_ROUNDS: u32 = 5;
/// The key of these; no lane has it.
const IDLE_KEY: u64 = 0xfff << 20;
/// Clients come on; else it is a finding.
const PATIENCE: Duration = Duration::from_secs(150);

/// What a boot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) struct ServeTask {
    pub(super) kind: ServeKind,
    pub(super) trouble: Trouble,
    pub(super) seed: u64,
    /// Of each connection.
    pub(super) steps: u32,
}

/// The store that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) enum ServeKind {
    Store(StoreKind),
    /// A cache whose second tier is on the controller. It promises nothing for a power cut.
    Tier,
}

/// What happens to the controller, beside kills and pulled cables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) enum Trouble {
    Nothing,
    /// Its writes fail for a while.
    WriteErrors,
    /// It is reset, by somebody else, with requests in flight.
    Reset,
}

impl ServeKind {
    pub(super) const ALL: [ServeKind; 4] = [
        ServeKind::Store(StoreKind::InPlace),
        ServeKind::Store(StoreKind::Packed),
        ServeKind::Store(StoreKind::Matrix),
        ServeKind::Tier,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            ServeKind::Store(kind) => kind.name(),
            ServeKind::Tier => "tier",
        }
    }

    /// Options of `serve`.
    fn options(self) -> &'static [&'static str] {
        match self {
            ServeKind::Store(StoreKind::InPlace) => {
                &["--engine", "slab", "--placement", "in_place", "--durability", "power_loss"]
            }
            ServeKind::Store(StoreKind::Packed) => {
                &["--engine", "slab", "--placement", "packed", "--durability", "power_loss"]
            }
            ServeKind::Store(StoreKind::Matrix) => {
                &["--engine", "matrix", "--region", "16M", "--durability", "power_loss"]
            }
            ServeKind::Tier => &["--engine", "tier", "--capacity", "48M"],
        }
    }
}

impl Trouble {
    const ALL: [(Trouble, &str); 3] =
        [(Trouble::Nothing, "nothing"), (Trouble::WriteErrors, "errors"), (Trouble::Reset, "reset")];
}

impl ServeTask {
    pub(super) fn to_words(self) -> String {
        let trouble = Trouble::ALL.iter().find(|(trouble, _)| *trouble == self.trouble).map_or("", |(_, name)| name);
        format!("{} {trouble} {} {}", self.kind.name(), self.seed, self.steps)
    }

    pub(super) fn from_words(words: &[&str]) -> Option<ServeTask> {
        let [kind, trouble, seed, steps] = words else { return None };
        Some(ServeTask {
            kind: ServeKind::ALL.into_iter().find(|of| of.name() == *kind)?,
            trouble: Trouble::ALL.iter().find(|(_, name)| name == trouble)?.0,
            seed: seed.parse().ok()?,
            steps: steps.parse().ok()?,
        })
    }
}

/// The guest's side.
pub(super) fn run(task: ServeTask) -> Result<String, String> {
    let home = block_device("HOME")?;
    // It has no cache: the kernel sends no flush there, so all flushes of the log are the driver's.
    write(&format!("/sys/block/{}/queue/write_cache", home.trim_start_matches("/dev/")), "write through")?;
    mount(&home, "/data", "ext4", MountFlags::empty(), c"commit=600").map_err(text("mount the file system"))?;
    bind(VOLUME)?;
    let network = Network::lay()?;
    let stage = Stage::default();
    let script = Script {
        seed: task.seed,
        steps: task.steps,
        server: SERVER,
        witness: &home,
        may_forget: task.kind == ServeKind::Tier,
    };
    let mut director =
        Director { task, stage: &stage, network: &network, home: &home, server: None, story: Story::default() };
    director.start()?;
    let done = thread::scope(|scope| {
        let clients = |number| {
            let (network, stage) = (&network, &stage);
            scope.spawn(move || {
                network.enter()?;
                Clients::new(number, script, stage)?.run()
            })
        };
        let threads: Vec<_> = (0..SESSIONS + BLOCKING).map(clients).collect();
        let directed = director.direct(LANES * task.steps);
        if directed.is_err() {
            stage.failed.store(true, Ordering::Release);
        }
        let ends = threads.into_iter().map(|thread| thread.join().map_err(|_| "a client panicked".to_owned())?);
        let ends: Vec<Result<Done, String>> = ends.collect();
        let done: Result<Vec<Done>, String> = ends.into_iter().collect();
        match (done, directed) {
            (Ok(done), Ok(())) => Ok(done),
            (Err(why), Ok(())) | (Ok(_), Err(why)) => Err(why),
            (Err(why), Err(also)) => Err(format!("{why}; {also}")),
        }
    });
    let done = done.map_err(|why| format!("{why}; the server said: {}", director.said()))?;
    let story = director.finish()?;
    unmount("/data", UnmountFlags::empty()).map_err(text("unmount the file system"))?;
    give_back(VOLUME)?;
    send_mail(&block_device("MAIL")?, story.mail.as_bytes())?;
    let sum = |of: fn(&Done) -> u32| done.iter().map(of).sum::<u32>();
    Ok(format!(
        "{} steps acknowledged and {} values read over AF_XDP by {} connections; {} servers ({} killed), {} flaps, \
         {} errors answered, {} commands of the driver; {}",
        sum(|done| done.acknowledged),
        sum(|done| done.gets),
        sum(|done| done.connections),
        story.servers,
        story.kills,
        story.flaps,
        stage.errors.load(Ordering::Acquire),
        story.mail.lines().filter(|line| line.contains(' ')).count(),
        story.idle,
    ))
}

/// What has happened.
#[derive(Default)]
struct Story {
    servers: u32,
    kills: u32,
    flaps: u32,
    /// What was seen of requests after idle times.
    idle: String,
    /// Commands of the driver, by servers.
    mail: String,
}

/// Starts and ends servers, and disturbs them.
struct Director<'a> {
    task: ServeTask,
    stage: &'a Stage,
    network: &'a Network,
    home: &'a str,
    server: Option<Server>,
    story: Story,
}

impl Director<'_> {
    fn start(&mut self) -> Result<(), String> {
        self.server = Some(Server::start(self.task.kind.options())?);
        self.story.servers += 1;
        self.stage.up.store(self.story.servers, Ordering::Release);
        Ok(())
    }

    /// Ends the server; what it did with the controller is kept. The log of writes is told where
    /// its commands end.
    fn end(&mut self, kill: bool) -> Result<(), String> {
        let server = self.server.take().ok_or("there is no server")?;
        self.stage.ended.fetch_add(1, Ordering::AcqRel);
        let commands = if kill { server.kill() } else { server.stop() }?;
        self.story.kills += u32::from(kill);
        self.story.mail += &commands;
        self.story.mail += host::END_OF_SERVER;
        host::mark_end(self.home, self.story.servers)
    }

    fn said(&self) -> String {
        self.server.as_ref().map_or_else(|| "(there is none)".into(), Server::said)
    }

    /// While clients work: all that happens at its time.
    fn direct(&mut self, steps: u32) -> Result<(), String> {
        for (number, percent) in [(0, 8), (1, 18), (2, 30), (3, 42), (4, 54), (5, 66), (6, 78), (7, 88)] {
            self.wait_for_steps((u64::from(steps) * percent / 100) as u32)?;
            match number {
                0 | 5 => self.flap(&[network::Side::Server])?,
                1 | 7 => self.flap(&[network::Side::Client])?,
                3 => self.flap(&[network::Side::Client, network::Side::Server])?,
                4 => self.trouble()?,
                _ => {
                    self.end(true)?;
                    self.start()?;
                }
            }
        }
        self.wait_for_steps(steps)
    }

    fn wait_for_steps(&mut self, steps: u32) -> Result<(), String> {
        let mut begin = Instant::now();
        let mut seen = 0;
        loop {
            let acknowledged = self.stage.acknowledged.load(Ordering::Acquire);
            if acknowledged > seen {
                (seen, begin) = (acknowledged, Instant::now());
            }
            if self.stage.failed.load(Ordering::Acquire) {
                return Err(format!("at step {acknowledged} of all clients"));
            }
            if acknowledged >= steps {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("no step since {PATIENCE:?}, {acknowledged} were acknowledged"));
            }
            if self.stage.errors.load(Ordering::Acquire) > 0 && self.task.trouble == Trouble::Nothing {
                return Err("an error was answered though nothing failed".into());
            }
            self.server.as_mut().map_or(Ok(()), Server::must_run)?;
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Pulls the cable and puts it in again.
    fn flap(&mut self, sides: &[network::Side]) -> Result<(), String> {
        for side in sides {
            self.network.set_up(*side, false)?;
        }
        // Something is sent meanwhile.
        thread::sleep(Duration::from_millis(60));
        for side in sides {
            self.network.set_up(*side, true)?;
        }
        self.story.flaps += 1;
        Ok(())
    }

    fn trouble(&mut self) -> Result<(), String> {
        match self.task.trouble {
            Trouble::Nothing => return Ok(()),
            Trouble::WriteErrors => {
                let switch = Switch { device: open_direct(&block_device("SWITCH")?)?, at: 0 };
                // Errors of reads, of nothing, of writes.
                (0..3).try_for_each(|_| switch.next_state())?;
                self.wait_for_errors()?;
                switch.next_state()?;
            }
            Trouble::Reset => {
                write(&format!("/sys/bus/pci/devices/{VOLUME}/reset"), "1")?;
                self.wait_for_errors()?;
            }
        }
        // Everything else is answered or refused; the store goes on when it is opened again.
        self.end(true)?;
        self.start()
    }

    fn wait_for_errors(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        while self.stage.errors.load(Ordering::Acquire) == 0 {
            if begin.elapsed() > PATIENCE || self.stage.failed.load(Ordering::Acquire) {
                return Err("no request was answered with an error".into());
            }
            self.server.as_mut().map_or(Ok(()), Server::must_run)?;
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Requests of an idle server, then its orderly end.
    fn finish(mut self) -> Result<Story, String> {
        self.end(false)?;
        self.start()?;
        self.story.idle = self.idle()?;
        self.end(false)?;
        Ok(self.story)
    }

    /// One request after the server has gone to sleep, several times. Its commands must end its
    /// sleep by their interrupts, not by its look every 20 ms for those that are lost.
    fn idle(&mut self) -> Result<String, String> {
        let (network, stage) = (self.network, self.stage);
        // Nothing of a controller: its values are in memory.
        let is_on_disk = !matches!(self.task.kind, ServeKind::Tier);
        let lost_before = lost_interrupts(&self.said());
        let interrupts = thread::scope(|scope| {
            let asks = scope.spawn(move || {
                network.enter()?;
                let mut connection = Connection::open(SERVER, stage)?;
                let before = server::interrupts()?;
                for round in 0..IDLE_ROUNDS {
                    thread::sleep(IDLE);
                    idle_request(&mut connection, stage, round)?;
                }
                Ok::<u64, String>(server::interrupts()? - before)
            });
            asks.join().map_err(|_| "a client panicked".to_owned())?
        })?;
        let lost = lost_interrupts(&self.said()) - lost_before;
        match (is_on_disk, interrupts, lost) {
            (true, 0, _) => Err("requests of an idle server came without an interrupt of the controller".into()),
            // Each round has two requests, and each at least a command. On a busy host an
            // interrupt may
            // come in the moment of the look.
            (_, _, lost) if lost >= IDLE_ROUNDS as usize => {
                Err(format!("{lost} sleeps of an idle server did not end by an interrupt"))
            }
            _ => Ok(format!(
                "{IDLE_ROUNDS} pairs of requests when idle: {interrupts} interrupts of the controller, \
                 {lost} sleeps ended by time"
            )),
        }
    }
}

/// A value that is too long to stay in the region of `matrix`; it is deleted again.
fn idle_request(connection: &mut Connection, stage: &Stage, round: u32) -> Result<(), String> {
    let name = super::super::workload::name(IDLE_KEY);
    let value = vec![round as u8; 200 << 10];
    let commands =
        [crate::memcache::set_command(name.as_bytes(), 0, &value), format!("delete {name}\r\n").into_bytes()];
    for (command, expected) in commands.iter().zip(["STORED", "DELETED"]) {
        let sent = connection.send(command, stage);
        let line = sent.and_then(|()| connection.line(stage)).map_err(clients::Broken::say)?;
        if line != expected {
            return Err(format!("a request of an idle server was answered `{line}`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read_from_the_words_that_they_are_written_as() {
        for kind in ServeKind::ALL {
            for (trouble, _) in Trouble::ALL {
                let task = ServeTask { kind, trouble, seed: 5, steps: 40 };
                let words = task.to_words();
                assert_eq!(ServeTask::from_words(&words.split(' ').collect::<Vec<_>>()), Some(task));
            }
        }
        assert_eq!(ServeTask::from_words(&["hash", "nothing", "1", "2"]), None);
        assert_eq!(ServeTask::from_words(&["tier", "fire", "1", "2"]), None);
    }
}
