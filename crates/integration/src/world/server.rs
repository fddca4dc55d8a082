//! A server and its memcache clients, over simulated sockets, with the store under it on simulated disks.
//!
//! Each client has keys of its own, so every answer is known to the byte, however the bytes are split and whatever the others do: they stall, vanish,
//! reset the connection in the middle of a value. After a crash each key holds what was acknowledged, or what was asked later. At the end nothing is
//! left: no connection, no block.

mod client;
mod command;

use stratakv_base::random::Random;
use stratakv_device::Wait;
use stratakv_server::{ServerOptions, TurnedServer};

use crate::world::{Host, Process, Setup, Statistics};
use client::{Client, Mood};

/// Rounds in which nothing moves after which a client counts as not served.
const IDLE_ROUNDS_MAX: u32 = 4_000;

/// Runs the world of a seed.
///
/// # Errors
/// What the server did wrong.
pub fn run(seed: u64) -> Result<Statistics, String> {
    run_with(seed, |_| {})
}

fn run_with(seed: u64, change: fn(&mut Setup)) -> Result<Statistics, String> {
    let mut random = Random::new(seed ^ 0x5E4F_E400_0000_0001);
    let mut setup = Setup::draw(&mut random);
    // No command fails for want of space: every answer is known.
    setup.capacity_bytes = 16 << 20;
    change(&mut setup);
    let host = Host::new(setup, random.next_u64());
    host.world.with_net(|net, _| {
        net.pipe_bytes = [16, 100, 1500, 20_000, 100_000][random.below(5) as usize];
        net.accept_failures = [0, 0, 0, 80][random.below(4) as usize];
    });
    let value_bytes_max = [30, 200, 2_000, 12_000][random.below(4) as usize];
    let clients = 1 + random.below(5) as usize;
    let options =
        ServerOptions { connections_max: [10_000, 10_000, 2][random.below(3) as usize], ..ServerOptions::default() };
    let refuses = options.connections_max < 100;
    let mut run = Run {
        host,
        options,
        workers: 1 + random.below(2) as usize,
        clients: (0..clients).map(|number| Client::new(number, value_bytes_max, refuses)).collect(),
        random,
        statistics: Statistics { runs: 1, ..Statistics::default() },
    };
    let lives = 2 + run.random.below(3);
    for _ in 0..lives {
        run.life()?;
    }
    Ok(run.statistics)
}

struct Run {
    host: Host,
    options: ServerOptions,
    workers: usize,
    clients: Vec<Client>,
    random: Random,
    statistics: Statistics,
}

/// A server's process.
struct Life {
    server: TurnedServer,
    process: Process,
}

impl Run {
    fn life(&mut self) -> Result<(), String> {
        let (process, _) = self.host.reopen(&mut self.random, &mut self.statistics)?;
        let mut life = self.start(process)?;
        self.talk(&mut life, |client, _, statistics| client.ask_everything(statistics))?;
        let events = [50, 300, 900][self.random.below(3) as usize];
        for _ in 0..events {
            self.event(&mut life)?;
        }
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
        let listener = self.host.world.with_net(|net, _| net.listener()).map_err(|error| error.to_string())?;
        let server = TurnedServer::new(process.store.clone(), &self.options, drivers, vec![listener]);
        Ok(Life { server: server.map_err(|error| error.to_string())?, process })
    }

    fn event(&mut self, life: &mut Life) -> Result<(), String> {
        let nanoseconds = self.random.below(60_000);
        self.host.pass(nanoseconds);
        let which = self.random.below(self.clients.len() as u64) as usize;
        match self.random.below(24) {
            0..=7 => {
                let Run { host, clients, random, statistics, .. } = self;
                let client = &mut clients[which];
                host.world.with_net(|net, net_random| {
                    client.connect(net, statistics);
                    for _ in 0..random.below(4) {
                        client.ask(random, statistics);
                    }
                    client.act(net, net_random, statistics)
                })?;
            }
            8..=13 => self.turn_worker(life)?,
            14 | 15 => self.turn_reactor(life)?,
            16..=22 => {
                for _ in 0..1 + self.random.below(8) {
                    self.host.world.step();
                }
            }
            _ => self.disturb(which),
        }
        Ok(())
    }

    /// A client misbehaves, or time passes.
    fn disturb(&mut self, which: usize) {
        let Run { host, clients, random, .. } = self;
        let client = &mut clients[which];
        host.world.with_net(|net, _| match random.below(24) {
            0 | 1 => client.leave(net, true),
            2 => client.leave(net, false),
            3 => client.vanish(net),
            4..=6 => client.turn_deaf(),
            7 => client.finish(net, true),
            8 => client.finish(net, false),
            _ => {}
        });
        if self.random.below(4) == 0 {
            self.host.pass(120_000_000);
        }
    }

    fn turn_worker(&mut self, life: &mut Life) -> Result<(), String> {
        let which = self.random.below(self.workers as u64) as usize;
        life.server.turn(which).map_err(|error| format!("a worker's ring failed: {error}"))
    }

    fn turn_reactor(&mut self, life: &mut Life) -> Result<(), String> {
        let which = self.random.below(life.process.reactors.len() as u64) as usize;
        let wait = Wait::For { completions: 1, timeout: None };
        let turned = life.process.reactors[which].turn(wait, &mut Vec::new());
        turned.map_err(|error| format!("a reactor's ring failed: {error}"))
    }

    /// Every client that behaves asks once more, and is answered: whatever the others do.
    fn talk(&mut self, life: &mut Life, ask: impl Fn(&mut Client, &mut Random, &mut Statistics)) -> Result<(), String> {
        let Run { host, clients, random, statistics, .. } = self;
        for client in clients {
            host.world.with_net(|net, _| client.connect(net, statistics));
            ask(client, random, statistics);
        }
        self.turn_until(life, |clients, _| clients.iter().all(|client| client.is_quiet() || !client.must_be_served()))
    }

    fn turn_until(&mut self, life: &mut Life, done: impl Fn(&[Client], &Life) -> bool) -> Result<(), String> {
        let mut idle = 0;
        while !done(&self.clients, life) {
            let before = self.statistics.answered;
            self.turn_reactor(life)?;
            for _ in 0..self.workers {
                self.turn_worker(life)?;
            }
            let mut busy = false;
            for _ in 0..16 {
                busy |= self.host.world.step();
            }
            let Run { host, clients, statistics, .. } = self;
            for client in clients {
                busy |= host.world.with_net(|net, net_random| client.act(net, net_random, statistics))?;
            }
            // A long answer through a narrow pipe takes its time; it is another thing when nothing moves.
            idle = if self.statistics.answered > before { 0 } else { idle + if busy { 1 } else { 50 } };
            self.host.pass(if busy { 20_000 } else { 10_000_000 });
            if idle > 50 * IDLE_ROUNDS_MAX {
                let clients: Vec<String> = self.clients.iter().map(Client::describe).collect();
                return Err(format!("nobody is answered any more: {}", clients.join("; ")));
            }
        }
        Ok(())
    }

    /// An orderly stop of the server, then of the store.
    fn stop(&mut self, mut life: Life) -> Result<(), String> {
        self.host.world.with_net(|net, _| net.stopping = true);
        for client in &mut self.clients {
            // Who would go on asking is cut off; what that leaves open is found out by the next life.
            let leaves = client.mood != Mood::Gone;
            self.host.world.with_net(|net, _| {
                if leaves {
                    client.leave(net, false)
                }
            });
        }
        life.server.shutdown();
        self.turn_until(&mut life, |_, life| life.server.is_over())?;
        if life.server.connections() > 0 {
            return Err(format!("{} connections are left", life.server.connections()));
        }
        let Life { server, process } = life;
        drop(server);
        self.end_store(process)?;
        self.statistics.closes += 1;
        // For the clients it is as any other end.
        self.host.world.crash(false);
        self.over()
    }

    fn end_store(&mut self, mut process: Process) -> Result<(), String> {
        process.runtime.begin_close();
        for _ in 0..IDLE_ROUNDS_MAX {
            if process.runtime.is_ended() {
                process.store.close().map_err(|error| format!("close: {error}"))?;
                return Ok(());
            }
            for reactor in &mut process.reactors {
                reactor.turn(Wait::None, &mut Vec::new()).map_err(|error| error.to_string())?;
            }
            for _ in 0..8 {
                self.host.world.step();
            }
            self.host.pass(1_000_000);
        }
        Err("the store does not close".into())
    }

    fn crash(&mut self, life: Life) -> Result<(), String> {
        let power = self.random.below(4) > 0;
        self.host.world.crash(power);
        *(if power { &mut self.statistics.power_cuts } else { &mut self.statistics.kills }) += 1;
        let Life { server, mut process } = life;
        drop(server);
        process.reactors.clear();
        drop(process);
        self.over()
    }

    fn over(&mut self) -> Result<(), String> {
        let Run { host, clients, statistics, .. } = self;
        for client in clients {
            host.world.with_net(|net, net_random| client.server_died(net, net_random, statistics))?;
        }
        match host.world.with_net(|net, _| net.held()) {
            0 => host.is_all_given_back(),
            held => Err(format!("{held} sockets were not closed when the process ended")),
        }
    }
}

#[cfg(test)]
mod tests;
