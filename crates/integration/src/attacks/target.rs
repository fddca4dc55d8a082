//! Servers that are attacked: ours over each engine, and memcached.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::honest::{ACCOUNT, slow_value};
use super::wire::{Certificate, Dialer};
use crate::memcache::Client;
use crate::{process, program};

/// How long a server may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Long values that are there before an attack, those of gets of many keys, and short ones.
pub const LONG: usize = 96;
/// The length of the long ones.
pub const LONG_BYTES: usize = 1_048_000;
/// Keys of one get.
pub const WIDE: usize = 100;
const WIDE_BYTES: usize = 10 << 10;
const SHORT: usize = 20_000;
const SHORT_BYTES: usize = 100;
/// The key of what slow clients take.
pub const SLOW_KEY: &str = "taken";

/// A server that can be attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Engine `slab`, placement `in_place`.
    InPlace,
    /// Engine `slab`, placement `packed`.
    Packed,
    /// Engine `matrix`.
    Matrix,
    /// Engine `hash`.
    Hash,
    /// Engine `tier`.
    Tier,
    /// Somebody else's.
    Memcached,
}

impl Target {
    /// Ours.
    pub const OURS: [Target; 5] = [Target::InPlace, Target::Packed, Target::Matrix, Target::Hash, Target::Tier];
    /// All of them.
    pub const ALL: [Target; 6] =
        [Target::InPlace, Target::Packed, Target::Matrix, Target::Hash, Target::Tier, Target::Memcached];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Target::InPlace => "in_place",
            Target::Packed => "packed",
            Target::Matrix => "matrix",
            Target::Hash => "hash",
            Target::Tier => "tier",
            Target::Memcached => "memcached",
        }
    }

    /// What makes `stratakv serve` serve it: enough room for what is loaded, and no wait for a
    /// disk.
    pub fn serve_options(self) -> &'static [&'static str] {
        match self {
            Target::InPlace => {
                &["--engine", "slab", "--placement", "in_place", "--durability", "process_crash", "--shards", "2"]
            }
            Target::Packed => {
                &["--engine", "slab", "--placement", "packed", "--durability", "process_crash", "--shards", "2"]
            }
            Target::Matrix => {
                &["--engine", "matrix", "--region", "64M", "--durability", "process_crash", "--shards", "2"]
            }
            Target::Hash => &["--engine", "hash", "--region", "512M", "--durability", "process_crash"],
            Target::Tier => &["--engine", "tier", "--capacity", "512M", "--shards", "2"],
            Target::Memcached => &[],
        }
    }

    fn command(self, options: &Options<'_>, plain: SocketAddr, tls: SocketAddr) -> Command {
        if self == Target::Memcached {
            let mut command = Command::new("memcached");
            let mib = (options.memory_bytes >> 20).to_string();
            command.args(["-U", "0", "-u", "root", "-t", "2", "-c", "4096", "-I", "2m", "-m", &mib]);
            if options.asks_who {
                command.arg("-Y").arg(options.place.join("accounts"));
            }
            match options.certificate {
                None => command.args(["-l", &plain.to_string()]),
                Some(Certificate { certificate, key, .. }) => command
                    .args(["-Z", "-o", &format!("ssl_chain_cert={},ssl_key={}", certificate.display(), key.display())])
                    .args(["-l", &format!("notls:{plain},{tls}")]),
            };
            return command;
        }
        let mut command = program::command();
        command.args(["serve", "--memory", &options.memory_bytes.to_string(), "--memcache", &plain.to_string()]);
        command.args(["--threads", "2", "--data"]).arg(options.place.join("store")).args(self.serve_options());
        if options.asks_who {
            command.arg("--auth-file").arg(options.place.join("accounts"));
        }
        if let Some(Certificate { certificate, key, .. }) = options.certificate {
            command.args(["--memcache", &format!("tls:{tls}"), "--tls-cert"]).arg(certificate);
            command.arg("--tls-key").arg(key);
        }
        command
    }

    /// Starts it in a new directory, and loads it.
    ///
    /// # Errors
    /// It does not start, or refuses what is loaded.
    pub fn start(self, options: &Options<'_>) -> Result<Running, String> {
        let cannot = |error: io::Error| format!("cannot start {}: {error}", self.name());
        fs::create_dir_all(options.place).map_err(cannot)?;
        // Both spellings of an account, memcached's and ours, are the same.
        fs::write(options.place.join("accounts"), ACCOUNT.replace(' ', ":") + "\n").map_err(cannot)?;
        let (plain, tls) = (program::free_address().map_err(cannot)?, program::free_address().map_err(cannot)?);
        let log = options.place.join("log");
        let output = File::create(&log).map_err(cannot)?;
        let mut command = self.command(options, plain, tls);
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(cannot)?).stderr(output);
        let child = command.spawn().map_err(cannot)?;
        let place = options.place.to_owned();
        let asks_who = options.asks_who;
        let mut running = Running { child, plain, dialer: Dialer::plain(plain), place, log, asks_who };
        if let Some(certificate) = options.certificate {
            running.dialer = Dialer { address: tls, tls: Some(certificate.client()?), receive_bytes: None };
        }
        let loaded = running.wait_ready().and_then(|()| running.load(options.slow_bytes));
        loaded.map_err(|why| format!("{}: {why}; it said: {}", self.name(), running.said()))?;
        Ok(running)
    }
}

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// A directory of its own, removed afterwards.
    pub place: &'a Path,
    /// `--memory`.
    pub memory_bytes: u64,
    /// Whether clients have to say who they are.
    pub asks_who: bool,
    /// It serves TLS with this.
    pub certificate: Option<&'a Certificate>,
    /// How long the value of slow clients is.
    pub slow_bytes: usize,
}

/// A server at work. Killed, and its files removed, when it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    plain: SocketAddr,
    dialer: Dialer,
    place: PathBuf,
    log: PathBuf,
    asks_who: bool,
}

impl Running {
    /// How its clients connect.
    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Whether clients have to say who they are.
    pub fn asks_who(&self) -> bool {
        self.asks_who
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it said.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default().trim().to_owned()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// A plain connection of somebody who is let in.
    ///
    /// # Errors
    /// It takes none.
    pub fn client(&self) -> Result<Client, String> {
        let mut client = Client::connect(self.plain).map_err(|error| format!("no connection: {error}"))?;
        if self.asks_who {
            let said = client.set(b"a", ACCOUNT.as_bytes()).map_err(|error| error.to_string())?;
            if said != "STORED" {
                return Err(format!("not let in: {said}"));
            }
        }
        Ok(client)
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        let SocketAddr::V4(address) = self.plain else { return Err("servers are started on IPv4".into()) };
        while !process::listens(self.id(), address).unwrap_or(false) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended ({status})"));
            }
            if Instant::now() > deadline {
                return Err("it takes no connections".into());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn load(&self, slow_bytes: usize) -> Result<(), String> {
        let mut client = self.client()?;
        let store = |client: &mut Client, key: String, value: &[u8]| {
            let said = client.set(key.as_bytes(), value).map_err(|error| format!("{key}: {error}"))?;
            if said == "STORED" { Ok(()) } else { Err(format!("{key}: {said}")) }
        };
        let value = vec![b'B'; LONG_BYTES];
        (0..LONG).try_for_each(|number| store(&mut client, format!("big{number}"), &value))?;
        (0..WIDE).try_for_each(|number| store(&mut client, format!("mg{number}"), &value[..WIDE_BYTES]))?;
        let short = "f".repeat(SHORT_BYTES);
        for first in (0..SHORT).step_by(1000) {
            let set = |number| format!("set fill{number} 0 0 {SHORT_BYTES} noreply\r\n{short}\r\n");
            let sets: String = (first..first + 1000).map(set).collect();
            client.send(sets.as_bytes()).map_err(|error| error.to_string())?;
        }
        client.ask("version").map_err(|error| error.to_string())?;
        store(&mut client, SLOW_KEY.to_owned(), &slow_value(slow_bytes))
    }

    /// Ends it in order; its files are removed.
    ///
    /// # Errors
    /// It does not end, or not in order.
    pub fn stop(mut self) -> Result<(), String> {
        // It may have ended: then the wait tells so.
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("it ended with {status}; it said: {}", self.said())),
                _ if Instant::now() > deadline => return Err("it does not end".into()),
                _ => std::thread::sleep(POLL),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or ends; what is left lies in the harness's own directory.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.place);
    }
}
