//! The `stratakv` program: built once, started, watched, killed. So is a process with the library
//! in it, and what plays a client.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::memcache::Client;
use crate::process;
use crate::protocol::{self, Kind, Protocol};

/// How long a server may take to answer its first connection (it may be recovering, on a busy
/// machine).
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a server may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Between two looks at a process.
const POLL: Duration = Duration::from_millis(5);

/// The program's path. `STRATAKV_BIN` names another one; else it is built, with the profile of the
/// running test.
///
/// # Panics
/// It cannot be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("STRATAKV_BIN") {
        Some(path) => path.into(),
        None => build(),
    })
}

/// The harness `crash`, whose processes play parts in scenarios. Cargo builds it before any
/// integration test.
pub fn harness() -> PathBuf {
    profile_folder().join("crash")
}

/// target/PROFILE, from target/PROFILE/deps/test or target/PROFILE/program.
fn profile_folder() -> PathBuf {
    let running = std::env::current_exe().expect("a test knows its own path");
    running.ancestors().skip(1).find(|folder| !folder.ends_with("deps")).expect("a target folder").to_owned()
}

fn build() -> PathBuf {
    let profile_folder = profile_folder();
    let target_folder = profile_folder.parent().expect("a profile lies in the target folder");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // With the features of `cargo test --workspace`, which are those of a build with a test in it:
    // that has built it already.
    cargo.args(["build", "--quiet", "--workspace", "--bin", "stratakv", "--test", "bus", "--target-dir"]);
    cargo.arg(target_folder);
    if let Some(profile) = profile_folder.file_name().filter(|folder| *folder != "debug") {
        cargo.arg("--profile").arg(profile);
    }
    // As a cargo that nobody calls from a test of its own: with other variables ring is built
    // again, and what rests on it.
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_of_this_test = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    names.filter(is_of_this_test).for_each(|name| _ = cargo.env_remove(name));
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo can be started");
    assert!(status.success(), "the program cannot be built ({status})");
    profile_folder.join("stratakv")
}

/// Runs the program to its end.
///
/// # Panics
/// It cannot be started.
pub fn run(arguments: &[&str]) -> Output {
    command().args(arguments).stdin(Stdio::null()).output().expect("the program can be started")
}

/// The program, with no configuration from the outside.
pub fn command() -> Command {
    clean(binary())
}

fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("STRATAKV_")) {
            command.env_remove(name);
        }
    }
    command
}

/// What both streams of a finished program said, for messages.
pub fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\nstdout: {}\nstderr: {}", output.status, text(&output.stdout), text(&output.stderr))
}

/// How to start a process that has a store and serves it.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Its data directory.
    pub data: PathBuf,
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it serves; a free port of loopback, where nothing is said.
    pub address: Option<SocketAddr>,
    /// Further options.
    pub options: Vec<String>,
    /// A shell line to run first, in the process that becomes the server (`ulimit -f 1000`).
    pub before: Option<String>,
    /// The user (and group) to run as; root only.
    pub user: Option<u32>,
    /// The program, where it is not the built one.
    pub program: Option<PathBuf>,
    /// Where what it says is kept.
    pub log: PathBuf,
}

impl Serve {
    /// A server on `data` with defaults.
    pub fn on(data: &Path) -> Serve {
        Serve {
            data: data.to_owned(),
            protocol: Protocol::Memcache,
            address: None,
            options: Vec::new(),
            before: None,
            user: None,
            program: None,
            log: data.with_extension("log"),
        }
    }

    /// By another protocol.
    pub fn protocol(mut self, protocol: Protocol) -> Serve {
        self.protocol = protocol;
        self
    }

    /// At this address.
    pub fn at(mut self, address: SocketAddr) -> Serve {
        self.address = Some(address);
        self
    }

    /// With further options.
    pub fn options(mut self, options: &[&str]) -> Serve {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// With a shell line to run first.
    pub fn before(mut self, line: &str) -> Serve {
        self.before = Some(line.to_owned());
        self
    }

    /// Starts it, without waiting.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn spawn(&self) -> io::Result<Served> {
        let address = self.address.map_or_else(free_address, Ok)?;
        let stderr = File::options().create(true).append(true).open(&self.log)?;
        let built = match self.protocol {
            Protocol::Memcache => binary().to_owned(),
            Protocol::Embedded => harness(),
        };
        let program = self.program.clone().unwrap_or(built);
        let mut command = match &self.before {
            None => clean(&program),
            Some(line) => {
                let mut shell = clean(Path::new("sh"));
                shell.arg("-c").arg(format!("{line}; exec \"$0\" \"$@\"")).arg(&program);
                shell
            }
        };
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let (part, at) = match self.protocol {
            Protocol::Memcache => ("serve", "--memcache"),
            Protocol::Embedded => ("embedded", "--address"),
        };
        command.arg(part).arg("--data").arg(&self.data).arg(at).arg(address.to_string()).args(&self.options);
        // The end of its stdin tells the embedded one to close; the other does not look.
        let child = command.stdin(Stdio::piped()).stdout(stderr.try_clone()?).stderr(stderr).spawn()?;
        Ok(Served { child, protocol: self.protocol, address, log: self.log.clone() })
    }

    /// Everything that servers started so said.
    pub fn said(&self) -> String {
        logged(&self.log)
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// It ends or does not answer; with what it said.
    pub fn start(&self) -> Served {
        let mut served = self.spawn().expect("the server can be started");
        if let Err(message) = served.wait_ready() {
            panic!("{message}");
        }
        served
    }
}

fn logged(log: &Path) -> String {
    let mut text = Vec::new();
    match File::open(log).and_then(|mut file| file.read_to_end(&mut text)) {
        Ok(_) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => format!("(its log cannot be read: {error})"),
    }
}

/// An address on loopback that nobody listens on now: another one each time, and below the ports
/// that the kernel gives to connections, one of which could else be there before the server.
///
/// # Errors
/// None of many is free.
pub fn free_address() -> io::Result<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut last = None;
    for _ in 0..1000 {
        let step = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 10_000 + (step % 22_000) as u16));
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

/// What a server answers to GET of a path at its admin address, without the head. Asks again while
/// it says `opening`: clients may be served a moment before that ends.
///
/// # Errors
/// It does not answer, or opens for too long.
pub fn admin(address: SocketAddr, path: &str) -> io::Result<String> {
    let deadline = Instant::now() + START_TIMEOUT;
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.trim().to_owned());
        body.ok_or_else(|| io::Error::other(format!("no head: {answer:?}")))
    };
    while get("/readyz")? == "opening" {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(POLL);
    }
    get(path)
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Served {
    child: Child,
    protocol: Protocol,
    address: SocketAddr,
    log: PathBuf,
}

impl Served {
    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has in memory, in bytes.
    ///
    /// # Panics
    /// There is no such process any more.
    pub fn memory_bytes(&self) -> u64 {
        process::memory_bytes(self.id(), "VmRSS").expect("the server runs")
    }

    /// The most that it has had.
    ///
    /// # Panics
    /// As [`Served::memory_bytes`].
    pub fn memory_peak_bytes(&self) -> u64 {
        process::memory_bytes(self.id(), "VmHWM").expect("the server runs")
    }

    /// What it speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// It has ended, or does not answer in time; with what it said.
    pub fn wait_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let question = protocol::Command { key: b"nothing".to_vec(), kind: Kind::Get };
            let answer = self.protocol.connect(self.address);
            if answer.and_then(|mut client| protocol::ask(client.as_mut(), question)).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the server ended ({status}); it said:\n{}", self.said()));
            }
            if Instant::now() > deadline {
                return Err(format!("the server does not answer; it said:\n{}", self.said()));
            }
            std::thread::sleep(POLL);
        }
    }

    /// A memcache connection.
    ///
    /// # Panics
    /// It does not take one.
    pub fn client(&self) -> Client {
        match Client::connect(self.address) {
            Ok(client) => client,
            Err(error) => panic!("the server takes no connection ({error}); it said:\n{}", self.said()),
        }
    }

    /// Everything it (and servers before it on the same data) said.
    pub fn said(&self) -> String {
        logged(&self.log)
    }

    /// `kill -9`, and waits for the end of the process.
    pub fn kill(&mut self) {
        // An error means that it has ended already, which `wait` will tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end in order, without waiting.
    pub fn ask_to_stop(&mut self) {
        match self.protocol {
            Protocol::Memcache => self.signal(rustix::process::Signal::TERM),
            Protocol::Embedded => drop(self.child.stdin.take()),
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// There is no such process any more.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the server is running");
    }

    /// An orderly end.
    ///
    /// # Panics
    /// It does not end in time.
    pub fn stop(mut self) -> ExitStatus {
        self.ask_to_stop();
        self.wait(STOP_TIMEOUT)
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It does not end in time; with what it said.
    pub fn wait(&mut self, timeout: Duration) -> ExitStatus {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end; it said:\n{}", self.said());
            std::thread::sleep(POLL);
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}
