//! One trial: servers, the proxy, clients at work, and events one after the other.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stratakv_base::random::Random;

use super::client::{Mode, NOBODY, ProxyClient, Stage, Surroundings};
use super::network::Network;
use super::{CUT_OFF, Event, Plan, Row, SERVERS, Tally, WINDOW_MS};
use crate::memcache::Client;
use crate::place;
use crate::program::{Serve, Served, free_address};
use crate::twemproxy::Twemproxy;

/// How long something may take that comes by itself. Long: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(2);
/// A server answers here those that are on its side of the cable.
const BESIDE: &str = "127.0.0.1:11211";
/// While no keys move, every third operation waits for the proxy to give up.
const OPERATIONS_WITHOUT: u64 = 200;

/// Servers, whether cables can be cut or not.
struct Fleet<'a> {
    row: &'a Row,
    folder: &'a Path,
    network: Option<&'a Network>,
    addresses: Vec<SocketAddr>,
    servers: Vec<Served>,
}

impl<'a> Fleet<'a> {
    fn start(row: &'a Row, folder: &'a Path, network: Option<&'a Network>) -> Result<Fleet<'a>, String> {
        let address = |number| match network {
            Some(network) => Ok(network.address(number)),
            None => free_address().map_err(|error| format!("no port is free: {error}")),
        };
        let addresses = (0..SERVERS).map(address).collect::<Result<_, _>>()?;
        let mut fleet = Fleet { row, folder, network, addresses, servers: Vec::new() };
        for number in 0..SERVERS {
            let served = fleet.serve(number)?;
            fleet.servers.push(served);
        }
        Ok(fleet)
    }

    fn serve(&self, number: usize) -> Result<Served, String> {
        let options = ["--engine", "tier", "--shards", "1", "--threads", "1", "--memory", "16M", "--capacity", "64M"];
        let serve = Serve::on(&self.folder.join(number.to_string())).options(&options);
        let serve = serve.options(&["--rejoin", self.row.rejoin]).at(self.addresses[number]);
        let serve = if self.row.cut_off { serve.options(&["--rejoin-cut-off", CUT_OFF]) } else { serve };
        let serve = match self.network {
            Some(network) => serve.options(&["--memcache", BESIDE, "--insecure"]).before(&network.line_of(number)),
            None => serve,
        };
        let mut served = serve.spawn().map_err(|error| format!("a server cannot be started: {error}"))?;
        served.wait_ready()?;
        Ok(served)
    }

    /// Takes a server away.
    fn disturb(&mut self, victim: usize) -> Result<(), String> {
        match (self.row.event, self.network) {
            (Event::Kill, _) => self.servers[victim].kill(),
            (Event::End, _) => {
                self.servers[victim].ask_to_stop();
                let status = self.servers[victim].wait(PATIENCE);
                return if status.success() { Ok(()) } else { Err(format!("a server ended so: {status}")) };
            }
            (Event::Freeze, _) => self.servers[victim].signal(Signal::STOP),
            (Event::Cut | Event::CutAndFlush, Some(network)) => return network.cut(victim),
            (Event::Cut | Event::CutAndFlush, None) => return Err("nothing can be cut here".to_owned()),
        }
        Ok(())
    }

    /// Lets it back in.
    fn mend(&mut self, victim: usize) -> Result<(), String> {
        match (self.row.event, self.network) {
            (Event::Kill | Event::End, _) => self.servers[victim] = self.serve(victim)?,
            (Event::Freeze, _) => self.servers[victim].signal(Signal::CONT),
            (Event::Cut, Some(network)) => return network.mend(victim),
            (Event::CutAndFlush, Some(network)) => {
                let flushed = network.beside(victim, || {
                    let address = BESIDE.parse().map_err(|_| "no address".to_owned())?;
                    let asked = Client::connect(address).and_then(|mut client| client.ask("flush_all"));
                    asked.map_err(|error| format!("flush_all: {error}"))
                })??;
                if flushed != "OK" {
                    return Err(format!("flush_all is answered `{flushed}`"));
                }
                return network.mend(victim);
            }
            (Event::Cut | Event::CutAndFlush, None) => {}
        }
        Ok(())
    }

    /// Whether a server that is back begins as it was asked to.
    fn check_return(&self, victim: usize) -> Result<(), String> {
        let mut client = Client::connect(self.addresses[victim]).map_err(|error| error.to_string())?;
        let mut figure = |name: &str| client.statistic(name).map_err(|error| error.to_string());
        let (was_emptied, absent_ms) = (figure("rejoin_was_emptied")?, figure("rejoin_absent_ms")?);
        let is_wanted = self.row.rejoin == "cold" || self.row.is_long;
        if (self.row.event.restarts() || self.row.notices()) && was_emptied != Some(u64::from(is_wanted)) {
            return Err(format!("{}: emptied {was_emptied:?}, away for {absent_ms:?} ms", self.row.rejoin));
        }
        Ok(())
    }
}

/// Runs a trial in a thread of its own, as it may enter a network namespace; `None` without the
/// proxy.
///
/// # Errors
/// What failed.
pub(super) fn run(row: &Row, plan: &Plan, has_network: bool) -> Result<Option<Tally>, String> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let network = if has_network { Some(Network::new(SERVERS)?) } else { None };
            if let Some(network) = &network {
                network.enter()?;
            }
            let folder = place::directory();
            let fleet = Fleet::start(row, folder.path(), network.as_ref())?;
            let proxy = Twemproxy::start_with(folder.path(), &fleet.addresses, row.ejects, row.times());
            match proxy.map_err(|error| format!("the proxy does not start: {error}"))? {
                Some(proxy) => Director { row, plan, proxy }.run(fleet).map(Some),
                None => Ok(None),
            }
        });
        thread.join().map_err(|_| "a trial failed".to_owned())?
    })
}

/// Tells clients what to do, and servers what happens to them.
struct Director<'a> {
    row: &'a Row,
    plan: &'a Plan,
    proxy: Twemproxy,
}

impl Director<'_> {
    fn run(&self, mut fleet: Fleet<'_>) -> Result<Tally, String> {
        let (stage, servers) = (Stage::new(), fleet.addresses.clone());
        let around = Surroundings { stage: &stage, proxy: &self.proxy, servers: &servers, moves_keys: self.row.ejects };
        let mut clients: Vec<ProxyClient<'_>> =
            (0..self.plan.clients).map(|number| ProxyClient::new(number, self.plan.seed, around)).collect();
        self.begin(&mut clients)?;
        std::thread::scope(|scope| {
            let threads: Vec<_> = clients.into_iter().map(|client| scope.spawn(move || client.run())).collect();
            let directed = self.direct(&stage, &mut fleet);
            stage.is_over.store(true, Ordering::SeqCst);
            let mut tally = Tally::default();
            for thread in threads {
                tally.add(&thread.join().map_err(|_| "a client failed".to_owned())?);
            }
            directed.map(|()| tally)
        })
    }

    /// Clients look where their keys are, while the proxy leaves out nobody.
    fn begin(&self, clients: &mut [ProxyClient<'_>]) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let before = self.proxy.figures_by_now()?.ejects;
            let found = clients.iter_mut().try_for_each(ProxyClient::begin);
            if self.proxy.figures_by_now()?.ejects == before {
                return found;
            }
            if begun.elapsed() > PATIENCE {
                return Err("the proxy leaves out servers that are there".to_owned());
            }
        }
    }

    fn direct(&self, stage: &Stage, fleet: &mut Fleet<'_>) -> Result<(), String> {
        let mut random = Random::new(self.plan.seed);
        for calm in 1..=u64::from(self.plan.rounds) {
            self.begin_calm(stage, calm)?;
            self.work(stage, self.plan.operations)?;
            stage.calm.store(0, Ordering::SeqCst);
            let victim = random.below(SERVERS as u64) as usize;
            self.disturb(stage, fleet, victim)?;
            self.bring_back(stage, fleet, victim)?;
        }
        self.begin_calm(stage, u64::from(self.plan.rounds) + 1)?;
        self.work(stage, self.plan.operations)
    }

    /// A server goes away, and clients write all that they have.
    fn disturb(&self, stage: &Stage, fleet: &mut Fleet<'_>, victim: usize) -> Result<(), String> {
        let begun = Instant::now();
        fleet.disturb(victim)?;
        stage.out.store(victim, Ordering::SeqCst);
        // What stood in for it before may have older values.
        self.read_all(stage)?;
        stage.set_mode(Mode::SetAll);
        self.wait("clients set their keys", || Ok(stage.clients_done() >= self.plan.clients))?;
        self.work(stage, if self.row.ejects { self.plan.operations / 2 } else { OPERATIONS_WITHOUT })?;
        if self.row.is_long {
            std::thread::sleep(Duration::from_millis(WINDOW_MS + 100).saturating_sub(begun.elapsed()));
        }
        Ok(())
    }

    /// It comes back, and clients read all that they have once it is asked again.
    fn bring_back(&self, stage: &Stage, fleet: &mut Fleet<'_>, victim: usize) -> Result<(), String> {
        stage.set_mode(Mode::ReadAll);
        fleet.mend(victim)?;
        stage.out.store(NOBODY, Ordering::SeqCst);
        self.wait_for_servers()?;
        fleet.check_return(victim)?;
        self.read_all(stage)?;
        stage.set_mode(Mode::Mix);
        Ok(())
    }

    /// Clients do nothing but read, and every client has read all of its keys.
    fn read_all(&self, stage: &Stage) -> Result<(), String> {
        stage.set_mode(Mode::ReadAll);
        let begun = Instant::now();
        while stage.clients_done() < self.plan.clients {
            if begun.elapsed() > PATIENCE {
                return Err(format!("{}: not every client reads its keys", self.row.rejoin));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// The proxy asks all servers, and has left out none meanwhile: from now on it is calm.
    fn begin_calm(&self, stage: &Stage, calm: u64) -> Result<(), String> {
        let ejects = self.wait_for_servers()?;
        stage.ejects.store(ejects, Ordering::SeqCst);
        stage.calm.store(calm, Ordering::SeqCst);
        Ok(())
    }

    /// Waits until each server has answered the proxy while none was left out; how many were left
    /// out so far.
    fn wait_for_servers(&self) -> Result<u64, String> {
        let (mut before, mut found) = (self.proxy.figures_by_now()?, 0);
        self.wait("the proxy asks every server", || {
            let now = self.proxy.figures_by_now()?;
            if now.ejects != before.ejects || now.responses.len() != SERVERS {
                before = now;
                return Ok(false);
            }
            found = now.ejects;
            Ok(now.responses.iter().zip(&before.responses).all(|(now, before)| now > before))
        })?;
        Ok(found)
    }

    /// Waits until clients have done so many operations more.
    fn work(&self, stage: &Stage, operations: u64) -> Result<(), String> {
        let before = stage.operations.load(Ordering::SeqCst);
        self.wait("clients work", || Ok(stage.operations.load(Ordering::SeqCst) >= before + operations))
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
        let begun = Instant::now();
        while !is_so()? {
            if begun.elapsed() > PATIENCE {
                return Err(format!(
                    "{}, {}: in vain it was waited that {what}",
                    self.row.rejoin,
                    self.row.event.name()
                ));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}
