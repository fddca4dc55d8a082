//! A server and its memcache clients, over simulated sockets, with the store under it on simulated
//! disks.
//!
//! Each client has keys of its own, so every answer is known to the byte, however the bytes are
//! split and whatever the others do: they stall, vanish, reset the connection in the middle of a
//! value, or speak no protocol at all (`adversary`). The disks fail, once or for good, are full,
//! and slow. After a crash each key holds what was acknowledged, or what was asked later; of a
//! cache that, or nothing. Errors need a disk that gave one. At the end nothing is left: no
//! connection, no block; and meanwhile no more memory was taken than there may be.

mod adversary;
mod circumstances;
mod client;
mod command;
mod line;
mod redis;
mod redis_adversary;
mod structures;
mod talker;

use std::rc::Rc;

use stratakv::{CollectionId, Engine, Key};
use stratakv_base::random::Random;
use stratakv_device::Wait;
use stratakv_server::{ClientLimits, DrivenListeners, DrivenServer, ServerOptions};
use stratakv_sim::coverage::StorePhase;
use stratakv_sim::search::{panics, watch_panics};

use crate::world::{Host, Medium, On, Process, Statistics, left_out};
use adversary::Adversary;
use circumstances::Circumstances;
use client::Client;
use redis::RedisClient;
use talker::Talker;

/// Rounds in which nothing moves after which a client counts as not served.
const IDLE_ROUNDS_MAX: u32 = 4_000;
/// Most that a receive may be given: the room of a value.
const RECV_BYTES_MAX: u64 = (1 << 20) + (64 << 10);
/// Most that a send may hold: what a connection holds, and one value more.
const SEND_BYTES_MAX: u64 = 3 << 20;

/// Runs the world of a seed, on an engine that goes by the seed too.
///
/// # Errors
/// What the server did wrong.
pub fn run(seed: u64) -> Result<Statistics, String> {
    run_over(Medium::Kernel, seed)
}

/// As [`run`], with disks that are driven so.
///
/// # Errors
/// What the server did wrong.
pub fn run_over(medium: Medium, seed: u64) -> Result<Statistics, String> {
    let all = [On::InPlace, On::Tier, On::Packed, On::Tier, On::InPlace, On::Matrix, On::Packed, On::Tier];
    run_with(all[(seed % 8) as usize], medium, seed, |_| {})
}

/// As [`run`], on this engine.
///
/// # Errors
/// What the server did wrong.
pub fn run_on(on: On, seed: u64) -> Result<Statistics, String> {
    run_with(on, Medium::Kernel, seed, |_| {})
}

/// As [`run`], over several shards, some of which break in each life, as by a panic, while the wall
/// clock is stepped by hours. Everybody is answered all the same, without an error where the shard
/// is whole; nothing expires early; an end says that it is not orderly.
///
/// # Errors
/// What the server did wrong.
pub fn run_breaking(seed: u64) -> Result<Statistics, String> {
    run_breaking_over(Medium::Kernel, seed)
}

/// As [`run_breaking`], with disks that are driven so.
///
/// # Errors
/// What the server did wrong.
pub fn run_breaking_over(medium: Medium, seed: u64) -> Result<Statistics, String> {
    let all = [On::InPlace, On::Packed, On::Matrix, On::Tier];
    // In half of the seeds everything is whole, and clients only share a key.
    let change = if seed & 4 == 0 {
        Circumstances::with_breaking_shards
    } else {
        |circumstances: &mut Circumstances| circumstances.shares = true
    };
    run_with(all[(seed % 4) as usize], medium, seed, change)
}

/// As [`run`], with Redis clients beside those of memcache, on disks that do not fail: structures,
/// commands of several keys and transactions are judged beside a model, through power cuts and
/// kills.
///
/// # Errors
/// What the server did wrong.
pub fn run_redis(seed: u64) -> Result<Statistics, String> {
    run_redis_over(Medium::Kernel, seed)
}

/// As [`run_redis`], with disks that are driven so.
///
/// # Errors
/// What the server did wrong.
pub fn run_redis_over(medium: Medium, seed: u64) -> Result<Statistics, String> {
    let all = [On::InPlace, On::Packed, On::Matrix];
    run_with(all[(seed % 3) as usize], medium, seed, Circumstances::with_redis_clients)
}

fn run_with(on: On, medium: Medium, seed: u64, change: fn(&mut Circumstances)) -> Result<Statistics, String> {
    watch_panics();
    let panics_before = panics();
    let mut random = Random::new(seed ^ 0x5E4F_E400_0000_0001);
    let mut circumstances = Circumstances::draw(on, &mut random);
    // Without it more goes to the volume.
    circumstances.setup.medium = medium;
    circumstances.setup.collected_percent = if seed & 8 == 0 { 66 } else { 0 };
    change(&mut circumstances);
    let mut run = Run::new(circumstances, random);
    let lives = 2 + run.random.below(3);
    for _ in 0..lives {
        run.life()?;
        if panics() > panics_before {
            return Err("something panicked, and it was not to be seen".into());
        }
    }
    run.statistics.coverage = run.host.coverage();
    run.statistics.served.accepts_failed = run.host.world.with_net(|net, _| net.accepts_failed);
    Ok(run.statistics)
}

struct Run {
    host: Host,
    circumstances: Circumstances,
    options: ServerOptions,
    workers: usize,
    clients: Vec<Box<dyn Talker>>,
    adversaries: Vec<Adversary>,
    random: Random,
    statistics: Statistics,
}

/// A server's process.
struct Life {
    server: DrivenServer,
    process: Process,
    /// A cache goes on without its volume, and says so.
    is_degraded: bool,
    /// A shard has broken.
    is_broken: bool,
}

impl Run {
    fn new(circumstances: Circumstances, mut random: Random) -> Run {
        let mut host = Host::new(circumstances.setup, random.next_u64());
        if circumstances.breaks_shards {
            host.guard_clock();
        }
        host.world.with_net(|net, _| {
            net.pipe_bytes = circumstances.pipe_bytes;
            net.accept_failures = circumstances.accept_failures;
        });
        let tally = Rc::default();
        let client = |number| -> Box<dyn Talker> {
            let mut client = Client::new(number, &circumstances);
            if circumstances.shares {
                client.share(&tally);
            }
            Box::new(client)
        };
        let redis = |number| -> Box<dyn Talker> { Box::new(RedisClient::new(number, &circumstances)) };
        let limits = ClientLimits { connections_max: circumstances.connections_max, ..ClientLimits::default() };
        Run {
            options: ServerOptions { limits, ..ServerOptions::default() },
            workers: 1 + random.below(2) as usize,
            clients: (0..circumstances.crowd.memcache)
                .map(client)
                .chain((0..circumstances.crowd.redis).map(redis))
                .collect(),
            adversaries: (0..circumstances.crowd.adversaries)
                .map(|number| Adversary::new(number, &circumstances))
                .collect(),
            host,
            circumstances,
            random,
            statistics: Statistics { runs: 1, ..Statistics::default() },
        }
    }

    fn life(&mut self) -> Result<(), String> {
        let (process, _) = self.host.reopen(&mut self.random, &mut self.statistics)?;
        self.clients.iter_mut().for_each(|client| client.begin_life());
        let mut life = self.start(process)?;
        self.talk(&mut life, |client, _, statistics| client.ask_everything(statistics))?;
        let events = self.circumstances.events_max / [1, 1, 4][self.random.below(3) as usize];
        for _ in 0..events {
            if self.circumstances.breaks_shards {
                self.break_something(&mut life, events);
            }
            if !left_out::is_next() {
                self.event(&mut life)?;
            }
        }
        if life.is_broken {
            // Whoever asks a shard that is whole is served.
            self.talk(&mut life, |client, random, statistics| client.ask(random, statistics))?;
        }
        // A process that begins believes the clock.
        self.host.step_clock(0);
        match self.random.below(4) {
            0 => self.stop(life),
            1 => {
                self.talk(&mut life, |client, random, statistics| client.ask(random, statistics))?;
                self.crash(life)
            }
            _ => self.crash(life),
        }
    }

    fn start(&mut self, process: Process) -> Result<Life, String> {
        let drivers = (0..self.workers).map(|_| Ok(process.runtime.driver_over(self.host.ring()?)));
        let drivers = drivers.collect::<Result<Vec<_>, String>>()?;
        let listener = || self.host.world.with_net(|net, _| net.listener()).map_err(|error| error.to_string());
        // The older one: whoever does not say which connects to the newest.
        let redis = if self.circumstances.crowd.redis > 0 { vec![listener()?] } else { Vec::new() };
        let listeners = DrivenListeners { memcache: vec![listener()?], redis };
        let server = DrivenServer::new(process.store.clone(), &self.options, drivers, listeners);
        Ok(Life { server: server.map_err(|error| error.to_string())?, process, is_degraded: false, is_broken: false })
    }

    fn event(&mut self, life: &mut Life) -> Result<(), String> {
        let nanoseconds = self.random.below(60_000);
        self.host.pass(nanoseconds);
        if self.host.is_excused() && self.random.below(3) == 0 {
            // What failed is tried again after a while, and given up after a longer one.
            self.host.pass(50_000_000);
        }
        let which = self.random.below((self.clients.len() + self.adversaries.len()) as u64) as usize;
        match self.random.below(24) {
            0..=7 => self.somebody_acts(which)?,
            8..=13 => self.tick_worker(life)?,
            14 | 15 => self.tick_reactor(life)?,
            16..=22 => {
                for _ in 0..1 + self.random.below(8) {
                    self.host.world.step();
                }
            }
            _ => self.disturb(which),
        }
        self.look_at(life)
    }

    /// About twice in so many events a shard breaks, and more often the wall clock is stepped.
    fn break_something(&mut self, life: &mut Life, events: u64) {
        if self.random.below(events) == 0 {
            let shard = self.random.below(u64::from(self.host.setup.shards)) as usize;
            life.process.runtime.break_shard(shard, self.random.below(3) as u8);
            let store = &life.process.store;
            let has = |key: &str| store.shard_of(&Key::bound(CollectionId(0), key.as_bytes())) == shard;
            self.clients.iter_mut().for_each(|client| client.shard_broke(&has));
            life.is_broken = true;
            self.statistics.broken += 1;
        }
        if self.random.below(events / 10) == 0 {
            let hours = [0, 2, 3, 24, 8760, -2, -24][self.random.below(7) as usize];
            self.host.step_clock(hours * 3_600_000);
            self.statistics.served.clock_steps += 1;
        }
    }

    fn somebody_acts(&mut self, which: usize) -> Result<(), String> {
        let Run { host, clients, adversaries, random, statistics, .. } = self;
        host.world.with_net(|net, net_random| {
            let Some(client) = clients.get_mut(which) else {
                adversaries[which - clients.len()].act(net, net_random, statistics);
                return Ok(());
            };
            client.connect(net, statistics);
            for _ in 0..random.below(4) {
                client.ask(random, statistics);
            }
            client.act(net, net_random, statistics).map(|_| ())
        })
    }

    /// A client misbehaves, a disk breaks or is mended, or time passes.
    fn disturb(&mut self, which: usize) {
        let Run { host, clients, random, statistics, .. } = self;
        if let Some(client) = clients.get_mut(which) {
            host.world.with_net(|net, _| match random.below(24) {
                0 | 1 => client.line().leave(net, true, statistics),
                2 => client.line().leave(net, false, statistics),
                3 => client.line().vanish(net, statistics),
                4..=6 => client.line().tick_deaf(statistics),
                7 => client.finish(net, true, statistics),
                8 => client.finish(net, false, statistics),
                _ => {}
            });
        }
        if self.circumstances.is_troubled {
            match self.random.below(12) {
                0 if self.circumstances.breaks => self.host.break_a_disk(&mut self.random),
                1 => self.host.repair(),
                _ => {}
            }
        }
        if self.random.below(4) == 0 {
            self.host.pass(120_000_000);
        }
    }

    /// What may be known at any moment: memory within its bounds, who may be answered with errors,
    /// what a cache says of its volume.
    fn look_at(&mut self, life: &mut Life) -> Result<(), String> {
        let served = &mut self.statistics.served;
        served.block_bytes_max = served.block_bytes_max.max(self.host.held_bytes()?);
        let lent = self.host.world.with_net(|net, _| net.lent());
        served.lent_bytes_max = served.lent_bytes_max.max(lent.sum);
        if lent.recv_max > RECV_BYTES_MAX || lent.send_max > SEND_BYTES_MAX {
            return Err(format!("a connection is lent more than it may have: {lent:?}"));
        }
        if !self.circumstances.is_troubled || !self.host.is_excused() {
            return Ok(());
        }
        if !life.is_degraded && self.circumstances.setup.engine == Engine::Tier && self.random.below(8) == 0 {
            let said = life.process.store.stats();
            let says = |name| said.iter().any(|statistic| statistic.name == name && statistic.value > 0);
            life.is_degraded = says("ssd_lost") || says("ssd_paused");
            self.statistics.served.degraded += u64::from(life.is_degraded);
        }
        for client in &mut self.clients {
            client.excuse(life.is_degraded);
        }
        Ok(())
    }

    fn tick_worker(&mut self, life: &mut Life) -> Result<(), String> {
        let which = self.random.below(self.workers as u64) as usize;
        life.server.tick(which).map_err(|error| format!("a worker's ring failed: {error}"))
    }

    fn tick_reactor(&mut self, life: &mut Life) -> Result<(), String> {
        let which = self.random.below(life.process.reactors.len() as u64) as usize;
        let wait = Wait::For { completions: 1, timeout: None };
        let turned = life.process.reactors[which].tick(wait, &mut Vec::new());
        turned.map_err(|error| format!("a reactor's ring failed: {error}"))
    }

    /// Every client that behaves asks once more, and is answered: whatever the others do. Whoever
    /// has gone is let go of.
    fn talk(
        &mut self,
        life: &mut Life,
        ask: impl Fn(&mut dyn Talker, &mut Random, &mut Statistics),
    ) -> Result<(), String> {
        let Run { host, clients, random, statistics, .. } = self;
        for client in clients {
            host.world.with_net(|net, _| client.connect(net, statistics));
            ask(client.as_mut(), random, statistics);
        }
        self.tick_until(life, |run, _| {
            run.clients.iter().all(|client| client.is_content()) && !run.adversaries.iter().any(Adversary::has_left)
        })
    }

    fn tick_until(&mut self, life: &mut Life, done: impl Fn(&Run, &Life) -> bool) -> Result<(), String> {
        let mut idle = 0;
        while !done(self, life) {
            let before = self.statistics.answered + self.statistics.served.adversary;
            self.tick_reactor(life)?;
            for _ in 0..self.workers {
                self.tick_worker(life)?;
            }
            let mut busy = false;
            for _ in 0..16 {
                busy |= self.host.world.step();
            }
            // Before anybody hears of it.
            self.look_at(life)?;
            let Run { host, clients, adversaries, statistics, .. } = self;
            let unsaid = |clients: &mut [Box<dyn Talker>]| -> usize {
                clients.iter_mut().map(|client| client.line().to_write.len()).sum()
            };
            let unsaid_before = unsaid(clients);
            for client in clients.iter_mut() {
                busy |= host.world.with_net(|net, net_random| client.act(net, net_random, statistics))?;
            }
            for adversary in adversaries {
                host.world.with_net(|net, net_random| adversary.finish(net, net_random, statistics));
            }
            let said = unsaid(clients) < unsaid_before;
            // A long answer or a long command through a narrow pipe takes its time; it is another
            // thing when nothing moves.
            let answered = said || self.statistics.answered + self.statistics.served.adversary > before;
            idle = if answered { 0 } else { idle + if busy { 1 } else { 50 } };
            self.host.pass(if busy { 20_000 } else { 10_000_000 });
            if idle > 50 * IDLE_ROUNDS_MAX {
                let clients: Vec<String> = self.clients.iter().map(|client| client.describe()).collect();
                let left = self.adversaries.iter().filter(|adversary| adversary.has_left()).count();
                let told: Vec<String> = life
                    .process
                    .store
                    .stats()
                    .iter()
                    .filter(|told| told.value > 0)
                    .map(|told| format!("{} {}", told.name, told.value))
                    .collect();
                let clients = clients.join("; ");
                return Err(format!(
                    "nobody is answered any more: {clients}; {left} adversaries kept; the store: {}",
                    told.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// An orderly stop of the server, then of the store.
    fn stop(&mut self, mut life: Life) -> Result<(), String> {
        self.host.world.with_net(|net, _| net.stopping = true);
        for client in &mut self.clients {
            // Who would go on asking is cut off; what that leaves open is found out by the next
            // life.
            self.host.world.with_net(|net, _| client.line().leave(net, false, &mut self.statistics));
        }
        life.server.shutdown();
        self.tick_until(&mut life, |_, life| life.server.is_over())?;
        if life.server.connections() > 0 {
            return Err(format!("{} connections are left", life.server.connections()));
        }
        let Life { server, process, is_broken, .. } = life;
        drop(server);
        self.end_store(process, is_broken)?;
        self.statistics.closes += 1;
        // For the clients it is as any other end.
        self.host.crash(false);
        self.over()
    }

    fn end_store(&mut self, mut process: Process, is_broken: bool) -> Result<(), String> {
        self.host.set_phase(StorePhase::Close);
        process.runtime.begin_close();
        for _ in 0..IDLE_ROUNDS_MAX {
            if process.runtime.is_ended() {
                let closed = process.store.close();
                return match closed {
                    Ok(()) if is_broken => Err("a store with a broken shard says that it was closed in order".into()),
                    Err(_) if is_broken => Ok(()),
                    Err(error) if !self.host.is_excused() => Err(format!("close: {error}")),
                    _ => Ok(()),
                };
            }
            for reactor in &mut process.reactors {
                reactor.tick(Wait::None, &mut Vec::new()).map_err(|error| error.to_string())?;
            }
            for _ in 0..8 {
                self.host.world.step();
            }
            self.host.pass(1_000_000);
        }
        Err("the store does not close".into())
    }

    fn crash(&mut self, life: Life) -> Result<(), String> {
        // A region in memory does not survive the power.
        let power = self.random.below(4) > 0 && self.circumstances.setup.engine != Engine::Matrix;
        self.host.crash(power);
        *(if power { &mut self.statistics.power_cuts } else { &mut self.statistics.kills }) += 1;
        let Life { server, mut process, .. } = life;
        drop(server);
        process.reactors.clear();
        drop(process);
        self.over()
    }

    fn over(&mut self) -> Result<(), String> {
        let Run { host, clients, adversaries, statistics, .. } = self;
        for client in clients {
            host.world.with_net(|net, net_random| client.server_died(net, net_random, statistics))?;
        }
        adversaries.iter_mut().for_each(Adversary::server_died);
        match host.world.with_net(|net, _| net.held()) {
            0 => host.is_all_given_back(),
            held => Err(format!("{held} sockets were not closed when the process ended")),
        }
    }
}

#[cfg(test)]
mod tests;
