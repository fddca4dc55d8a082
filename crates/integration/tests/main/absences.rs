//! A cache that ran on while it was away: it stood still, or a client could not be reached. What it
//! had is gone, no late write is taken, and one that was merely busy keeps what it has.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stratakv_integration::attacks::wire::{Certificate, Dialer, Wire};
use stratakv_integration::memcache::{Client, set_command};
use stratakv_integration::place;
use stratakv_integration::program::{Serve, Served, admin, free_address};
use stratakv_integration::proxies::network::Network;
use stratakv_integration::requirement::{not_here, tool};

/// How long is waited for what comes by itself. Long: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Longer than a server may stand still.
const STILL: Duration = Duration::from_millis(1300);

/// `version` of each protocol: the server answers at once.
const TEXT: &[u8] = b"version\r\n";
const BINARY: &[u8] = &[0x80, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const RESP: &[u8] = b"*1\r\n$4\r\nPING\r\n";

fn serve(data: &Path, options: &[&str]) -> Serve {
    let small = ["--engine", "tier", "--shards", "1", "--memory", "16M", "--capacity", "128M"];
    Serve::on(data).options(&small).options(options)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "in vain it was waited that {what}");
        std::thread::sleep(POLL);
    }
}

/// The states of a process's threads, `T` for those that a signal has stopped.
fn is_stopped(served: &Served) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", served.id())).expect("it runs");
    tasks.flatten().all(|task| {
        let line = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        line.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

fn figure(client: &mut Client, name: &str) -> u64 {
    client.statistic(name).expect("statistics").unwrap_or_else(|| panic!("a cache has {name}"))
}

fn dial(address: SocketAddr, hello: &[u8]) -> Wire {
    greet(Dialer::plain(address), hello)
}

fn greet(dialer: Dialer, hello: &[u8]) -> Wire {
    let mut wire = dialer.dial_and_wait(PATIENCE).expect("connected");
    wire.write_all(hello).and_then(|()| wire.flush()).expect("sent");
    assert!(wire.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0), "it answers");
    wire
}

/// Freezes a server with connections of before, sends late writes, and lets it go on.
fn freeze(served: &Served, resp: SocketAddr) -> Vec<Wire> {
    let late = |number: usize| set_command(format!("late{number}").as_bytes(), 0, b"late");
    let mut wires = vec![dial(served.address(), TEXT), dial(served.address(), BINARY), dial(resp, RESP)];
    served.signal(Signal::STOP);
    wait_until("all threads stand still", || is_stopped(served));
    let frozen = Instant::now();
    let binary = [&[0x80, 0x01, 0, 5, 8, 0, 0, 0, 0, 0, 0, 17][..], &[0; 20], b"late1late"].concat();
    let writes = [late(0), binary, b"*3\r\n$3\r\nSET\r\n$5\r\nlate2\r\n$4\r\nlate\r\n".to_vec()];
    for (wire, bytes) in wires.iter_mut().zip(&writes) {
        wire.write_all(bytes).expect("the kernel takes it");
    }
    // The kernel accepts for it.
    for number in 3..6 {
        let mut pending = Dialer::plain(served.address()).dial_and_wait(PATIENCE).expect("connected");
        pending.write_all(&late(number)).expect("the kernel takes it");
        wires.push(pending);
    }
    std::thread::sleep(STILL.saturating_sub(frozen.elapsed()));
    served.signal(Signal::CONT);
    wires
}

/// Writes so much that most of it leaves the memory.
fn fill(served: &Served) {
    let mut client = served.client();
    for number in 0..RECORDS {
        assert_eq!(client.set(format!("key{number}").as_bytes(), &[b'o'; 4096]).expect("an answer"), "STORED");
    }
}

const RECORDS: usize = 8000;

fn found(served: &Served) -> usize {
    let mut client = served.client();
    (0..RECORDS).filter(|number| client.get(format!("key{number}").as_bytes()).expect("an answer").is_some()).count()
}

fn check_frozen(io: &str) {
    let folder = place::directory();
    let (data, resp) = (folder.path().join("data"), free_address().expect("a port"));
    let (at, resp_at) = (free_address().expect("a port"), resp.to_string());
    let options = ["--rejoin", "cold", "--threads", "2", "--io", io, "--resp", &resp_at, "--admin", &at.to_string()];
    let mut served = serve(&data, &options).start();
    fill(&served);
    let epoch = figure(&mut served.client(), "rejoin_epoch");
    let wires = freeze(&served, resp);
    for (number, mut wire) in wires.into_iter().enumerate() {
        assert!(!matches!(wire.read(&mut [0; 64]), Ok(1..)), "{io}: an answer to late write {number}");
    }
    // Nobody is let in before it is empty, so the first look tells.
    let mut client = served.client();
    for number in 0..6 {
        assert_eq!(client.get(format!("late{number}").as_bytes()).expect("an answer"), None, "{io}: {number}");
    }
    assert_eq!(found(&served), 0, "{io}: values of before");
    assert_eq!([figure(&mut client, "rejoin_epoch"), figure(&mut client, "rejoin_was_emptied")], [epoch + 1, 1]);
    assert!(figure(&mut client, "rejoin_absent_ms") >= 1000);
    assert!(admin(at, "/readyz").expect("answered").starts_with("ready"), "{io}");
    assert_eq!(client.set(b"k", b"new").expect("an answer"), "STORED");
    assert_eq!(client.get(b"k").expect("an answer").as_deref(), Some(&b"new"[..]));
    assert!(served.said().contains("did not run for"), "{}", served.said());
    served.kill();
    served = serve(&data, &["--rejoin", "warm"]).start();
    assert_eq!(found(&served), 0, "{io}: they came back after a kill");
    assert!(served.stop().success());
}

#[test]
fn a_cache_that_stood_still_takes_no_late_write_and_has_nothing_old() {
    ["auto", "blocking"].into_iter().for_each(check_frozen);
}

/// What the test above prevents: so it can fail.
#[test]
fn a_warm_cache_that_stood_still_has_all_that_it_had_and_late_writes() {
    let folder = place::directory();
    let (data, resp) = (folder.path().join("data"), free_address().expect("a port"));
    let mut served = serve(&data, &["--rejoin", "warm", "--resp", &resp.to_string()]).start();
    fill(&served);
    for (number, mut wire) in freeze(&served, resp).into_iter().enumerate() {
        assert!(matches!(wire.read(&mut [0; 64]), Ok(1..)), "no answer to late write {number}");
    }
    let mut client = served.client();
    for number in 0..6 {
        let late = client.get(format!("late{number}").as_bytes()).expect("an answer");
        assert_eq!(late.as_deref(), Some(&b"late"[..]), "{number}");
    }
    assert!(found(&served) > RECORDS / 2);
    served.kill();
    served = serve(&data, &["--rejoin", "warm"]).start();
    assert!(found(&served) > 0, "nothing had left the memory");
    assert!(served.stop().success());
}

/// Stops one thread of another process until its stdin ends, as no signal can.
const STOP_A_THREAD: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
thread = int(sys.argv[1])
if libc.ptrace(SEIZE, thread, None, None) != 0 or libc.ptrace(INTERRUPT, thread, None, None) != 0:
    sys.exit('ptrace: ' + os.strerror(ctypes.get_errno()))
os.waitpid(thread, WALL)
print('stopped', flush=True)
sys.stdin.read()
";

fn thread_of(served: &Served, name: &str) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", served.id())).expect("it runs");
    let is_it = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let found = tasks.flatten().find(is_it).unwrap_or_else(|| panic!("no thread is called {name}"));
    found.file_name().to_string_lossy().into_owned()
}

/// A thread of a server that does not get on.
struct StoppedThread(Child);

impl StoppedThread {
    fn of(served: &Served, name: &str) -> Result<StoppedThread, String> {
        let python = tool("python3").ok_or("python3 is not there")?;
        let mut stopping = Command::new(python);
        stopping.args(["-c", STOP_A_THREAD, &thread_of(served, name)]).stdin(Stdio::piped());
        let mut child = stopping.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        if line == "stopped\n" {
            return Ok(StoppedThread(child));
        }
        let output = child.wait_with_output().expect("it ends");
        Err(format!("one thread cannot be stopped: {}", String::from_utf8_lossy(&output.stderr)))
    }

    fn go_on(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("it ends").success());
    }
}

/// Its only server thread does not get on, for longer than the process may stand still.
#[test]
fn a_cache_that_is_busy_keeps_what_it_has() {
    let folder = place::directory();
    let served = serve(&folder.path().join("data"), &["--rejoin", "cold", "--threads", "1"]).start();
    let mut client = served.client();
    assert_eq!(client.set(b"k", b"kept").expect("an answer"), "STORED");
    let stopped = match StoppedThread::of(&served, "server-0") {
        Ok(stopped) => stopped,
        Err(why) => return not_here(&why),
    };
    client.send(b"get k\r\n").expect("the kernel takes it");
    std::thread::sleep(STILL);
    client.stream().set_nonblocking(true).expect("a socket");
    let answer = client.stream().peek(&mut [0]).expect_err("it was not stopped");
    assert_eq!(answer.kind(), std::io::ErrorKind::WouldBlock);
    client.stream().set_nonblocking(false).expect("a socket");
    stopped.go_on();
    let [line, value, end] = [(); 3].map(|()| client.line().expect("the connection stays"));
    assert_eq!([line.trim(), value.trim(), end.trim()], ["VALUE k 0 4", "kept", "END"]);
    assert_eq!(figure(&mut client, "rejoin_was_emptied"), 0);
    assert!(served.stop().success());
}

/// A server of [`Network`], and a client's connection to it that says nothing.
struct Cut {
    name: &'static str,
    served: Served,
    wires: Vec<Wire>,
    epoch: u64,
}

const TLS_PORT: u16 = 11212;
const RESP_PORT: u16 = 11213;
const BESIDE: &str = "127.0.0.1:11211";

/// Of what a server says to those on its side of the cable.
fn beside(network: &Network, server: usize) -> Option<[u64; 2]> {
    let asked = network.beside(server, || {
        let mut client = Client::connect(BESIDE.parse().expect("an address"))?;
        Ok::<_, std::io::Error>([client.statistic("rejoin_epoch")?, client.statistic("rejoin_was_emptied")?])
    });
    // It closes connections while it empties itself.
    let [epoch, was_emptied] = asked.expect("a thread enters").ok()?;
    Some([epoch?, was_emptied?])
}

/// Each protocol, and both kinds of I/O.
const SPOKEN: [(&str, &str); 4] = [("text", "auto"), ("resp", "blocking"), ("tls", "auto"), ("binary", "blocking")];

fn start_cut(network: &Network, folder: &Path, certificate: &Certificate, server: usize) -> Cut {
    let (name, io) = SPOKEN[server];
    let address = network.address(server);
    let (tls, resp) = (format!("tls:{}:{TLS_PORT}", address.ip()), format!("{}:{RESP_PORT}", address.ip()));
    let pem = [&certificate.certificate, &certificate.key].map(|path| path.display().to_string());
    let options = ["--threads", "2", "--memcache", BESIDE, "--memcache", &tls, "--resp", &resp, "--insecure"];
    let given = ["--tls-cert", &pem[0], "--tls-key", &pem[1], "--io", io, "--rejoin", "cold"];
    let served = serve(&folder.join(name), &options).options(&given).options(&["--rejoin-cut-off", "3s"]);
    let served = served.at(address).before(&network.line_of(server)).start();
    let at = |port| SocketAddr::new(address.ip(), port);
    let connect = || match name {
        "resp" => dial(at(RESP_PORT), RESP),
        "binary" => dial(address, BINARY),
        "tls" => {
            let tls = Some(certificate.client().expect("a certificate"));
            greet(Dialer { tls, ..Dialer::plain(at(TLS_PORT)) }, TEXT)
        }
        _ => dial(address, TEXT),
    };
    // Several die in the same cut.
    let wires = (0..3).map(|_| connect()).collect();
    let [epoch, _] = beside(network, server).expect("it answers");
    Cut { name, served, wires, epoch }
}

fn check_cuts(network: &Network) {
    network.enter().expect("a namespace of its own");
    let folder = place::directory();
    let certificate = Certificate::new(folder.path()).expect("a certificate");
    let cuts: Vec<Cut> =
        (0..SPOKEN.len()).map(|server| start_cut(network, folder.path(), &certificate, server)).collect();
    // A quiet night: idle clients that are there are no cut.
    std::thread::sleep(Duration::from_secs(4));
    for (server, cut) in cuts.iter().enumerate() {
        assert_eq!(beside(network, server), Some([cut.epoch, 0]), "{}: nobody was away", cut.name);
        network.cut(server).expect("cut");
    }
    for (server, cut) in cuts.iter().enumerate() {
        let is_emptied = || beside(network, server).is_some_and(|[_, was_emptied]| was_emptied == 1);
        wait_until(cut.name, is_emptied);
        network.mend(server).expect("mended");
    }
    let mut later: Vec<Client> = cuts.iter().map(|cut| cut.served.client()).collect();
    for client in &mut later {
        assert_eq!(client.set(b"k", b"new").expect("an answer"), "STORED");
    }
    // As long as a connection of before would take to die.
    std::thread::sleep(Duration::from_secs(4));
    for ((server, cut), mut client) in cuts.into_iter().enumerate().zip(later) {
        assert_eq!(client.get(b"k").expect("an answer").as_deref(), Some(&b"new"[..]), "{}: twice", cut.name);
        assert_eq!(beside(network, server), Some([cut.epoch + 1, 1]), "{}: once for all", cut.name);
        assert!(cut.served.said().contains("a client cannot be reached"), "{}", cut.served.said());
        drop(cut.wires);
        assert!(cut.served.stop().success());
    }
}

fn with_network(servers: usize, check: fn(&Network)) {
    match Network::new(servers) {
        Err(why) => not_here(&format!("cables cannot be cut: {why}")),
        // A thread of its own, as it enters a namespace.
        Ok(network) => std::thread::scope(|scope| scope.spawn(|| check(&network)).join().expect("it holds")),
    }
}

#[test]
fn a_cache_whose_clients_cannot_be_reached_empties_itself_once() {
    with_network(SPOKEN.len(), check_cuts);
}

const LOGIN: &[u8] = b"user pass";

/// What one on its side of the cable sees: connections, that one included, and whether the cache
/// was emptied.
fn connections_beside(network: &Network, server: usize, has_accounts: bool) -> Option<[u64; 2]> {
    let asked = network.beside(server, || {
        let mut client = Client::connect(BESIDE.parse().expect("an address"))?;
        if has_accounts {
            client.set(b"login", LOGIN)?;
        }
        Ok::<_, std::io::Error>([client.statistic("curr_connections")?, client.statistic("rejoin_was_emptied")?])
    });
    let [connections, was_emptied] = asked.expect("a thread enters").ok()?;
    Some([connections?, was_emptied?])
}

/// One that says nothing, one that does not say who it is, and a client.
fn check_strangers(network: &Network) {
    network.enter().expect("a namespace of its own");
    let folder = place::directory();
    let accounts = folder.path().join("accounts");
    std::fs::write(&accounts, "user:pass\n").expect("written");
    let shown = accounts.display().to_string();
    let options = ["--memcache", BESIDE, "--insecure", "--rejoin", "cold", "--rejoin-cut-off", "3s"];
    let start = |server: usize, more: &[&str]| {
        let serve = serve(&folder.path().join(format!("data{server}")), &options).options(more);
        serve.at(network.address(server)).before(&network.line_of(server)).spawn().expect("started")
    };
    let has_accounts = [false, true, true];
    let served = [start(0, &[]), start(1, &["--auth-file", &shown]), start(2, &["--auth-file", &shown])];
    for (server, has_accounts) in has_accounts.into_iter().enumerate() {
        wait_until("it serves", || connections_beside(network, server, has_accounts).is_some());
    }
    let silent = Dialer::plain(served[0].address()).dial_and_wait(PATIENCE).expect("connected");
    let login = set_command(b"login", 0, LOGIN);
    let wires = [silent, dial(served[1].address(), TEXT), dial(served[2].address(), &login)];
    for (server, has_accounts) in has_accounts.into_iter().enumerate() {
        let is_counted = || connections_beside(network, server, has_accounts) == Some([2, 0]);
        wait_until("only the one there is is connected", is_counted);
    }
    (0..3).for_each(|server| network.cut(server).expect("cut"));
    for (server, has_accounts) in has_accounts.into_iter().enumerate() {
        let mut was_emptied = 0;
        wait_until("the kernel has given it up", || {
            let seen = connections_beside(network, server, has_accounts);
            was_emptied = seen.map_or(0, |[_, was_emptied]| was_emptied);
            seen.is_some_and(|[connections, _]| connections == 1)
        });
        assert_eq!(was_emptied, u64::from(server == 2), "server {server}");
    }
    drop(wires);
    assert!(served.map(Served::stop).iter().all(std::process::ExitStatus::success));
}

#[test]
fn who_may_not_use_a_cache_cannot_have_it_emptied() {
    with_network(3, check_strangers);
}

/// A thread that does not get on keeps the cache from being emptied, and then comes a kill.
fn check_kill_before_it_is_empty(network: &Network) {
    network.enter().expect("a namespace of its own");
    let folder = place::directory();
    let (data, address) = (folder.path().join("data"), network.address(0));
    let options = ["--threads", "2", "--memcache", BESIDE, "--insecure", "--rejoin", "warm-within=1h"];
    let serve = serve(&data, &options).options(&["--rejoin-cut-off", "3s"]);
    let serve = serve.at(address).before(&network.line_of(0));
    let mut served = serve.start();
    // Both threads have some.
    let wires: Vec<Wire> = (0..8).map(|_| dial(address, TEXT)).collect();
    let stopped = match StoppedThread::of(&served, "server-1") {
        Ok(stopped) => stopped,
        Err(why) => return not_here(&why),
    };
    network.cut(0).expect("cut");
    let says_unknown = || std::fs::read_to_string(data.join("presence")).is_ok_and(|text| text.starts_with("1  "));
    wait_until("the absence is noted", says_unknown);
    wait_until("who is waited for is told", || served.said().contains("waited_for=1"));
    assert!(served.said().contains("all connections are closed"), "{}", served.said());
    // A process of which a thread is traced ends when the tracer lets that thread go.
    served.signal(Signal::KILL);
    stopped.go_on();
    served.kill();
    network.mend(0).expect("mended");
    let again = serve.start();
    assert_eq!(figure(&mut again.client(), "rejoin_was_emptied"), 1, "{}", again.said());
    drop(wires);
    assert!(again.stop().success());
}

#[test]
fn a_cut_that_was_noticed_counts_though_a_kill_comes_before_the_cache_is_empty() {
    with_network(1, check_kill_before_it_is_empty);
}

#[test]
fn cuts_are_watched_for_where_something_follows_from_them() {
    let folder = place::directory();
    for (options, why) in [
        (&["--rejoin-cut-off", "5s"][..], "say --rejoin cold"),
        (&["--rejoin-cut-off", "5s", "--rejoin", "warm"][..], "say --rejoin cold"),
        (&["--rejoin-cut-off", "2s", "--rejoin", "cold"][..], "it can be 3s to 1h"),
        (&["--rejoin-cut-off", "3500ms", "--rejoin", "cold"][..], "in whole seconds"),
    ] {
        let mut served = serve(&folder.path().join("data"), options).spawn().expect("started");
        assert_eq!(served.wait(PATIENCE).code(), Some(2), "{options:?}: {}", served.said());
        assert!(served.said().contains(why), "{options:?}: {}", served.said());
    }
}

/// In place of the file that says when it last served lies what cannot be written.
#[test]
fn who_asked_for_an_empty_cache_is_not_told_to_ask_for_it() {
    let folder = place::directory();
    let data = folder.path().join("data");
    assert!(serve(&data, &[]).start().stop().success());
    std::fs::remove_file(data.join("presence")).expect("it was there");
    std::fs::create_dir(data.join("presence")).expect("made");
    let mut served = serve(&data, &["--rejoin", "cold", "--rejoin-cut-off", "5s"]).spawn().expect("started");
    assert_eq!(served.wait(PATIENCE).code(), Some(2), "{}", served.said());
    let said = served.said();
    assert!(said.contains("cannot be noted in") && !said.contains("say --rejoin"), "{said}");
}
