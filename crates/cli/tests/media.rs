//! A medium that fails at each system call of opening, writing and ending: what the client,
//! `/readyz`, the metrics, the log and the exit code say. `strace` makes the calls fail.
//! `STRATAKV_MEDIA_TABLE=FILE` writes down what was seen (docs/failing-media.md has it).

use std::fmt::Write as _;
mod strace;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Nothing takes so long: who has not answered by then never does.
const NEVER: Duration = Duration::from_secs(60);

const KINDS: [(&str, &[&str]); 7] = [
    ("slab in_place", &["--engine", "slab", "--placement", "in_place"]),
    ("slab packed", &["--engine", "slab", "--placement", "packed"]),
    ("hash", &["--engine", "hash", "--region", "32M"]),
    ("hash process_crash", &["--engine", "hash", "--region", "32M", "--durability", "process_crash"]),
    ("matrix", &["--engine", "matrix", "--region", "32M"]),
    ("matrix process_crash", &["--engine", "matrix", "--region", "32M", "--durability", "process_crash"]),
    ("tier", &["--engine", "tier", "--capacity", "64M"]),
];
const AT_OPENING: [&str; 9] =
    ["openat", "read", "pread64", "flock", "mmap", "pwritev2", "fdatasync", "msync", "fallocate"];
const WHILE_SERVING: [&str; 4] = ["pwritev2", "fdatasync", "fsync", "msync"];
const VALUES: [usize; 4] = [100, 3_000, 60_000, 100];

struct Server {
    child: Child,
    // Where it serves and tells of itself, as it said; none if it ended before.
    listens: Option<Listens>,
}

#[derive(Clone, Copy)]
struct Listens {
    memcache: SocketAddr,
    admin: SocketAddr,
}

impl Listens {
    /// What the server says when it serves. Nobody else chose the ports: one that was free a moment
    /// ago may be another connection's by now.
    fn read(stdout: impl Read) -> Option<Listens> {
        let mut admin = None;
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let told = |name| {
                let rest: &str = line.strip_prefix(name)?;
                rest.trim().trim_start_matches("http://").trim_end_matches('/').parse().ok()
            };
            admin = admin.or(told("admin"));
            if let Some(memcache) = told("memcache") {
                return admin.map(|admin| Listens { memcache, admin });
            }
        }
        None
    }
}

/// How a server ended, and what it said.
struct End {
    status: ExitStatus,
    log: String,
}

impl Server {
    /// `tracer`: a command that the server is an argument of.
    fn start(data: &Path, options: &[&str], tracer: Option<Command>) -> Server {
        let program = env!("CARGO_BIN_EXE_stratakv");
        let mut command = match tracer {
            Some(mut tracer) => {
                tracer.arg(program);
                tracer
            }
            None => Command::new(program),
        };
        command.args(["serve", "--threads", "1", "--shards", "1", "--memory", "64M", "--io", "blocking", "--data"]);
        command.arg(data).args(["--memcache", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).args(options);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (tell, told) = mpsc::channel();
        let mut stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            _ = tell.send(Listens::read(&mut stdout));
            // It must not find its stdout closed.
            io::copy(&mut stdout, &mut io::sink())
        });
        let mut server = Server { child, listens: None };
        server.listens = told.recv_timeout(NEVER).expect("it serves or ends");
        server
    }

    /// Whether it serves; else it has ended.
    fn is_ready(&mut self) -> bool {
        let began = Instant::now();
        while self.listens.is_some() && self.child.try_wait().unwrap().is_none() {
            if self.get("/readyz").is_some_and(|(status, _)| status == 200) {
                return true;
            }
            assert!(began.elapsed() < NEVER, "it neither serves nor ends");
            std::thread::yield_now();
        }
        false
    }

    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.listens?.admin).ok()?;
        stream.set_read_timeout(Some(NEVER)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    fn ask(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.listens.unwrap().memcache).unwrap();
        stream.set_read_timeout(Some(NEVER)).unwrap();
        stream.write_all(request).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("it is answered");
        line.trim_end().to_owned()
    }

    fn set(&self, key: &str, bytes: usize) -> String {
        self.ask(&[format!("set {key} 0 0 {bytes}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat())
    }

    fn has(&self, key: &str) -> bool {
        self.ask(format!("get {key}\r\n").as_bytes()).starts_with("VALUE")
    }

    /// Tells it to end, unless it has; how it did.
    fn end(mut self, tells: bool) -> End {
        if tells {
            let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
            assert!(told.success());
        }
        let mut stderr = self.child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut log = String::new();
            let _ = stderr.read_to_string(&mut log);
            log
        });
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > NEVER {
                strace::end(&mut self.child);
                panic!("it never ends");
            }
            std::thread::yield_now();
        };
        End { status, log: reader.join().unwrap() }
    }
}

impl Drop for Server {
    /// A test that fails leaves no server behind.
    fn drop(&mut self) {
        strace::end(&mut self.child);
    }
}

impl End {
    fn is_orderly(&self) -> bool {
        self.status.success() && self.log.lines().any(|line| line == "stratakv: closed in order")
    }

    /// The last line that tells of the failure.
    fn reason(&self) -> String {
        let mut lines = self.log.lines().filter(|line| !line.contains("finishing;"));
        lines.next_back().unwrap_or("nothing").replace('|', "/").chars().take(110).collect()
    }
}

fn strace(call: &str, log: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(log).args([
        "-e",
        &format!("trace={call}"),
        "-e",
        &format!("inject={call}:error=EIO"),
    ]);
    command
}

fn injected(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().matches("INJECTED").count()
}

/// A store with some keys, closed in order.
fn made(data: &Path, options: &[&str]) -> Vec<String> {
    let mut server = Server::start(data, options, None);
    assert!(server.is_ready());
    let keys: Vec<String> = (0..3).map(|number| format!("key-{number}")).collect();
    keys.iter().for_each(|key| assert_eq!(server.set(key, 100), "STORED"));
    let end = server.end(true);
    assert!(end.is_orderly(), "{}", end.log);
    keys
}

/// Opens the store on a sound medium: what was acknowledged is there, but of a cache.
fn demand_all(kind: &str, data: &Path, options: &[&str], keys: &[String], place: &str) {
    let mut server = Server::start(data, options, None);
    assert!(server.is_ready(), "{place}: it does not open again: {}", server.end(false).log);
    let lost: Vec<&String> = keys.iter().filter(|key| !server.has(key)).collect();
    assert!(lost.is_empty() || kind == "tier", "{place}: acknowledged, and lost: {lost:?}");
    let end = server.end(true);
    assert!(end.is_orderly(), "{place}: {}", end.log);
}

#[test]
fn a_medium_that_fails_is_told_everywhere_and_loses_nothing() {
    if !strace::is_there() {
        return;
    }
    let mut table = String::from(
        "| engine | while | call | client | `/readyz` | metric | exit | last line |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut rows = 0;
    for (kind, options) in KINDS {
        for call in AT_OPENING {
            rows += u32::from(at_opening(kind, options, call, &mut table));
        }
        for call in WHILE_SERVING {
            rows += u32::from(while_serving(kind, options, call, true, &mut table));
            rows += u32::from(while_serving(kind, options, call, false, &mut table));
        }
    }
    if let Some(file) = std::env::var_os("STRATAKV_MEDIA_TABLE") {
        fs::write(file, &table).unwrap();
    }
    assert!(rows > 40, "only {rows} calls failed:\n{table}");
}

/// One call of all fails whenever it concerns a file of the store, from the start on. False: there
/// is no such call.
fn at_opening(kind: &str, options: &[&str], call: &str, table: &mut String) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("strace"));
    let keys = made(&data, options);
    let mut tracer = strace(call, &log);
    strace::files_under(&data).iter().for_each(|file| _ = tracer.arg("-P").arg(file));
    let mut server = Server::start(&data, options, Some(tracer));
    let serves = server.is_ready();
    let place = format!("{kind}, opening, {call}");
    let end = if serves {
        // It is a child of strace, which passes no signals on: asked by the client it would need an
        // option, so it is killed by name of its port.
        let pid = fs::read_to_string(data.join("LOCK")).unwrap();
        let told = Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap();
        assert!(told.success(), "{place}");
        server.end(false)
    } else {
        server.end(false)
    };
    if injected(&log) == 0 {
        return false;
    }
    if !serves {
        assert!(!end.status.success() && end.log.contains("stratakv: "), "{place}: {}", end.log);
        assert!(!end.log.contains("panicked"), "{place}: {}", end.log);
    }
    let client = if serves { "served" } else { "refused to open" };
    let exit = end.status.code().map_or("killed".to_owned(), |code| code.to_string());
    _ = writeln!(
        table,
        "| {kind} | opening | `{call}` | {client} | | | {exit} | {} |",
        neutral(&end.reason(), folder.path())
    );
    demand_all(kind, &data, options, &keys, &place);
    true
}

/// The call fails from some moment on, before writes, or before the end only.
fn while_serving(kind: &str, options: &[&str], call: &str, writes: bool, table: &mut String) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("strace"));
    let mut keys = made(&data, options);
    let mut server = Server::start(&data, options, None);
    assert!(server.is_ready());
    let place = format!("{kind}, {}, {call}", if writes { "writing" } else { "ending" });
    assert_eq!(server.set("before", 100), "STORED");
    keys.push("before".into());
    let mut tracer = strace(call, &log);
    let mut tracer = tracer.args(["-p", &server.child.id().to_string()]).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(tracer.stderr.take().unwrap()).lines();
    assert!(told.any(|line| line.is_ok_and(|line| line.contains("attached"))), "{place}");
    // The rest of what it says must not fill the pipe.
    let drain = std::thread::spawn(move || told.count());
    let (mut refused, mut client, mut readyz, mut metric) = (false, String::new(), String::new(), String::new());
    if writes {
        for (number, bytes) in VALUES.into_iter().enumerate() {
            let (key, answer) = (format!("new-{number}"), server.set(&format!("new-{number}"), bytes));
            if answer == "STORED" {
                keys.push(key);
            } else {
                (refused, client) = (true, answer.chars().take(60).collect());
            }
        }
        let (status, _) = server.get("/readyz").expect("the admin address");
        let (_, metrics) = server.get("/metrics").expect("the admin address");
        let of = |line: &str| line.strip_prefix("stratakv_store_read_only_after_a_failure ").map(str::to_owned);
        (readyz, metric) = (status.to_string(), metrics.lines().find_map(of).expect("every engine has it"));
        if client.is_empty() {
            client = "stored".into();
        }
    }
    let end = server.end(true);
    let _ = tracer.wait();
    let _ = drain.join();
    if injected(&log) == 0 {
        return false;
    }
    let exit = end.status.code().map_or("killed".to_owned(), |code| code.to_string());
    let when = if writes { "writing" } else { "ending" };
    let reason = neutral(&end.reason(), folder.path());
    _ = writeln!(table, "| {kind} | {when} | `{call}` | {client} | {readyz} | {metric} | {exit} | {reason} |");
    // A cache serves on without its volume. The mark that `hash` removes at its end is taken for a
    // crash if it comes back.
    let is_harmless = kind == "tier" || call == "fsync";
    assert!(is_harmless || !end.is_orderly() && !end.status.success(), "{place}: {}", end.log);
    assert!(is_harmless || end.log.contains("was not closed in order"), "{place}: {}", end.log);
    assert!(!refused || readyz == "503" && metric != "0", "{place}: /readyz {readyz}, metric {metric}");
    demand_all(kind, &data, options, &keys, &place);
    true
}

/// Without the folder of this run.
fn neutral(text: &str, folder: &Path) -> String {
    text.replace(&folder.display().to_string(), "…")
}
