//! Redis clients on a server of each engine, and what a real Redis says.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stratakv::{Engine, Level, Options, Store};
use stratakv_server::{RespListeners, Server, ServerOptions};

mod clients;
mod cluster;
#[path = "conversations/resp.rs"]
mod conversations;
mod programs;
mod pubsub;
mod ranges;
mod redis_tools;
mod structures;
mod transactions;
mod trees;
mod waits;

use conversations::{
    RespConversation, conversations, conversations_of_batches, is_told, of_words, reply, request, told,
};

const ENGINES: [Engine; 4] = [Engine::Slab, Engine::Hash, Engine::Matrix, Engine::Tier];
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A server on any free ports, and what it stands on.
struct Bench {
    server: Server,
    store: Store,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn of(engine: Engine) -> Bench {
        Bench::with(engine, |_| {})
    }

    fn with(engine: Engine, change: impl FnOnce(&mut ServerOptions)) -> Bench {
        let options = Options::new().engine(engine).memory_bytes(64 << 20);
        let options = match engine {
            Engine::Hash => options.region_bytes(64 << 20).level(Level::ProcessCrash),
            Engine::Tier => options.shards(2),
            Engine::Matrix => options.region_bytes(16 << 20).shards(2).level(Level::ProcessCrash),
            _ => options.shards(3).level(Level::ProcessCrash),
        };
        let directory = tempfile::tempdir().unwrap();
        let store = options.open(directory.path().join("data")).unwrap();
        let resp = RespListeners { addresses: vec![ANY_PORT], ..RespListeners::default() };
        let mut options = ServerOptions { memcache: vec![ANY_PORT], resp, threads: 2, ..ServerOptions::default() };
        change(&mut options);
        let server = Server::start(store.clone(), options).unwrap();
        Bench { server, store, _directory: directory }
    }

    fn address(&self) -> SocketAddr {
        self.server.resp_addresses()[0]
    }

    fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// The most bytes that clients made the server hold, and how many they may.
    fn client_memory(&self) -> (u64, u64) {
        let stats = self.memcache("stats\r\n");
        let counted = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT client_memory_{name}_bytes ")));
            line.unwrap_or_else(|| panic!("{stats}")).parse().unwrap()
        };
        (counted("peak"), counted("limit"))
    }

    fn memcache(&self, commands: &str) -> String {
        String::from_utf8(converse(self.server.addresses()[0], format!("{commands}quit\r\n").as_bytes())).unwrap()
    }
}

/// A client that waits for each reply.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        // A test that would hang fails instead.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, received: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn read(&mut self) -> String {
        loop {
            let mut rest = &self.received[..];
            if let Some(told) = reply(&mut rest) {
                self.received = rest.to_vec();
                return told;
            }
            let mut buffer = [0; 64 << 10];
            let bytes = match self.stream.read(&mut buffer) {
                Ok(bytes) => bytes,
                // A receive with a timeout is interrupted when the kernel takes down a ring that
                // this thread has used, as it does some time after a store was opened.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("{error}, after {}", self.received.escape_ascii()),
            };
            assert!(bytes > 0, "the server hung up: {}", self.received.escape_ascii());
            self.received.extend_from_slice(&buffer[..bytes]);
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(&of_words(line));
        self.read()
    }

    /// The number that is the reply.
    fn number(&mut self, line: &str) -> i64 {
        let told = self.ask(line);
        told.trim_matches(['(', ')']).parse().unwrap_or_else(|_| panic!("{line}: {told}"))
    }
}

/// Sends everything, says that it is all, and reads to the end.
fn converse(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The server may hang up before it has heard everything.
            let _ = writer.write_all(sent);
            let _ = writer.shutdown(Shutdown::Write);
        });
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    })
}

/// What goes otherwise than written.
fn wrong(address: SocketAddr, is_spoken: impl Fn(&RespConversation) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for conversation in conversations().filter(|conversation| is_spoken(conversation)) {
        assert_eq!(converse(address, &of_words("FLUSHALL")), b"+OK\r\n");
        let sent: Vec<u8> = conversation.lines.iter().flat_map(|(line, _)| of_words(line)).collect();
        let replies = told(&converse(address, &sent));
        if replies.len() != conversation.lines.len() {
            wrong.push(format!("{}: {} replies", conversation.name, replies.len()));
        }
        for (told, (line, expected)) in replies.iter().zip(conversation.lines) {
            if !is_told(told, expected) {
                wrong.push(format!("{}, {line}: {told}, not {expected}", conversation.name));
            }
        }
    }
    wrong
}

#[test]
fn conversations_go_as_written_on_every_engine() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let has_batches = engine != Engine::Tier;
        let is_of_batches =
            |spoken: &RespConversation| conversations_of_batches().any(|other| std::ptr::eq(other, spoken));
        let wrong = wrong(bench.address(), |spoken| has_batches || !is_of_batches(spoken));
        assert!(wrong.is_empty(), "{engine:?}:\n{}", wrong.join("\n"));
    }
}

/// Whether a program is there; its test is skipped otherwise, and fails where all must run.
fn is_installed(program: &str) -> bool {
    or_skipped(Path::new("/usr/bin").join(program).exists(), program)
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn or_skipped(is_there: bool, what: &str) -> bool {
    if !is_there {
        let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        assert!(!in_ci, "{what} is not installed; with CI=true every test must run");
        eprintln!("skipped: {what} is not installed");
    }
    is_there
}

#[test]
fn redis_py_works_unchanged() {
    let mut import = Command::new("python3");
    import.args(["-c", "import redis"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !or_skipped(import.status().is_ok_and(|status| status.success()), "python module redis") {
        return;
    }
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let mut command = Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis_session.py"));
        let output = command.arg(bench.address().port().to_string()).arg(engine.name()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine:?}: {}\n{said}", output.status);
    }
}

/// A redis-server, stopped when dropped.
struct Redis(Child, SocketAddr);

impl Redis {
    fn start() -> Redis {
        Redis::with(&["--dir", "/tmp"])
    }

    fn with(options: &[&str]) -> Redis {
        let first = std::process::id();
        for port in (0..100).map(|step| (10_000 + (first + step) % 20_000) as u16) {
            let arguments = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
            let mut command = Command::new("/usr/bin/redis-server");
            let process =
                command.args(arguments).args(options).current_dir("/tmp").stdout(Stdio::null()).spawn().unwrap();
            let mut redis = Redis(process, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            if redis.is_ready() {
                return redis;
            }
        }
        panic!("redis-server did not start")
    }

    /// Whether it takes connections; else it has ended, as another program has its port.
    fn is_ready(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.0.try_wait().unwrap().is_none() {
            if TcpStream::connect(self.1).is_ok() {
                let info = Client::connect(self.1).ask("INFO server");
                return info.contains(&format!("process_id:{}", self.0.id()));
            }
            assert!(Instant::now() < deadline, "redis-server did not start");
            std::thread::yield_now();
        }
        false
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The conversations say what Redis says: else we would be compatible with ourselves only.
#[test]
fn redis_itself_talks_like_the_conversations() {
    if is_installed("redis-server") {
        let wrong = wrong(Redis::start().1, |conversation| !conversation.ours);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn both_protocols_see_one_data_set() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        assert_eq!(bench.memcache("set a 7 1000 2\r\n10\r\nset b 0 0 3\r\nabc\r\n"), "STORED\r\nSTORED\r\n");
        assert_eq!(client.ask("GET a"), "\"10\"");
        assert_eq!(client.ask("INCR a"), "(11)");
        assert!((990..=1000).contains(&client.number("TTL a")));
        assert_eq!(client.ask("APPEND b def"), "(6)");
        assert_eq!(client.ask("SET c 1 EX 1000"), "OK");
        let told = bench.memcache("get a b c\r\n");
        assert_eq!(told, "VALUE a 7 2\r\n11\r\nVALUE b 0 6\r\nabcdef\r\nVALUE c 0 1\r\n1\r\nEND\r\n", "{engine:?}");
        // A version that memcache has seen ends with a write of the other protocol.
        let gets = bench.memcache("gets a\r\n");
        let version = gets.split_whitespace().nth(4).unwrap().to_owned();
        assert_eq!(client.ask("INCR a"), "(12)");
        assert_eq!(bench.memcache(&format!("cas a 0 0 1 {version}\r\n1\r\n")), "EXISTS\r\n");
        assert_eq!(bench.memcache("incr a 1\r\ndelete b\r\ntouch c 0\r\n"), "13\r\nDELETED\r\nTOUCHED\r\n");
        assert_eq!(client.ask("MGET a b"), "[\"13\", nil]");
        assert_eq!(client.ask("TTL c"), "(-1)");
        assert_eq!(client.ask("GETDEL a"), "\"13\"");
        assert_eq!(bench.memcache("get a\r\n"), "END\r\n");
        assert_eq!(client.ask("FLUSHALL"), "OK");
        assert_eq!(bench.memcache("get c\r\n"), "END\r\n");
    }
}

/// Runs the same with so many clients at once, and gathers what each has.
fn at_once<R: Send>(bench: &Bench, clients: usize, each: impl Fn(usize, &mut Client) -> R + Sync) -> Vec<R> {
    let each = &each;
    std::thread::scope(|scope| {
        let client = |number| scope.spawn(move || each(number, &mut bench.connect()));
        let threads: Vec<_> = (0..clients).map(client).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

const CLIENTS: usize = 8;
const ROUNDS: usize = 40;

#[test]
fn changes_of_one_key_by_many_clients_are_all_made_once() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let sums: Vec<Vec<i64>> =
            at_once(&bench, CLIENTS, |_, client| (0..ROUNDS).map(|_| client.number("INCRBY count 3")).collect());
        let sums: BTreeSet<i64> = sums.into_iter().flatten().collect();
        let expected: BTreeSet<i64> = (1..=(CLIENTS * ROUNDS) as i64).map(|round| 3 * round).collect();
        assert_eq!(sums, expected, "{engine:?}: every sum is told once");
        let sums: Vec<Vec<i64>> =
            at_once(&bench, CLIENTS, |_, client| (0..ROUNDS).map(|_| client.number("HINCRBY h count 3")).collect());
        let sums: BTreeSet<i64> = sums.into_iter().flatten().collect();
        assert_eq!(sums, expected, "{engine:?}: every sum of a hash is told once");
        // Each adds fields of its own, and takes half of them away.
        at_once(&bench, CLIENTS, |number, client| {
            (0..ROUNDS).for_each(|round| _ = client.ask(&format!("HSET fields {number}.{round} v")));
            (0..ROUNDS / 2).for_each(|round| assert_eq!(client.ask(&format!("HDEL fields {number}.{round}")), "(1)"));
        });
        assert_eq!(bench.connect().number("HLEN fields"), (CLIENTS * ROUNDS / 2) as i64, "{engine:?}");
        let lengths: Vec<Vec<i64>> =
            at_once(&bench, CLIENTS, |_, client| (0..ROUNDS).map(|_| client.number("APPEND text ab")).collect());
        let lengths: BTreeSet<i64> = lengths.into_iter().flatten().collect();
        assert_eq!((lengths.len(), lengths.last()), (CLIENTS * ROUNDS, Some(&((2 * CLIENTS * ROUNDS) as i64))));
        at_once(&bench, CLIENTS, |_, client| (0..ROUNDS).for_each(|_| _ = client.ask("INCRBYFLOAT float 0.1")));
        let sum = (CLIENTS * ROUNDS / 10).to_string();
        assert_eq!(bench.connect().ask("GET float"), format!("\"{sum}\""), "{engine:?}");
    }
}

#[test]
fn a_value_that_is_taken_is_taken_by_one_client() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let winners: Vec<usize> = at_once(&bench, CLIENTS, |number, client| {
            (0..ROUNDS).filter(|round| client.ask(&format!("SETNX lock{round} {number}")) == "(1)").count()
        });
        assert_eq!(winners.iter().sum::<usize>(), ROUNDS, "{engine:?}");
        let takers: Vec<usize> = at_once(&bench, CLIENTS, |_, client| {
            (0..ROUNDS).filter(|round| client.ask(&format!("GETDEL lock{round}")) != "nil").count()
        });
        assert_eq!(takers.iter().sum::<usize>(), ROUNDS, "{engine:?}");
        // Each value that was put is got by the next one, and none twice.
        for command in ["GETSET last", "SET last"] {
            let got: Vec<Vec<String>> = at_once(&bench, CLIENTS, |number, client| {
                let tail = if command.starts_with("SET") { " GET" } else { "" };
                (0..ROUNDS).map(|round| client.ask(&format!("{command} {number}.{round}{tail}"))).collect()
            });
            let mut all: Vec<String> = got.into_iter().flatten().collect();
            all.push(bench.connect().ask("GETDEL last"));
            let distinct: BTreeSet<&String> = all.iter().collect();
            assert_eq!((distinct.len(), distinct.len()), (all.len(), CLIENTS * ROUNDS + 1), "{engine:?}, {command}");
        }
        // Of SET with NX and GET one client is told that there was nothing.
        let told = at_once(&bench, CLIENTS, |number, client| client.ask(&format!("SET once {number} NX GET")));
        let value = bench.connect().ask("GET once");
        assert_eq!(told.iter().filter(|told| *told == "nil").count(), 1, "{engine:?}: {told:?}");
        assert_eq!(told.iter().filter(|told| **told == value).count(), CLIENTS - 1);
    }
}

/// Keys on all shards; of each round one client wins all keys, or none.
#[test]
fn msetnx_is_all_or_nothing_over_the_shards() {
    for engine in ENGINES.into_iter().filter(|engine| *engine != Engine::Tier) {
        let bench = Bench::of(engine);
        let keys = |round: usize| (0..8).map(move |key| format!("{round}.{key}"));
        let won: Vec<Vec<usize>> = at_once(&bench, 4, |number, client| {
            let pairs = |round| keys(round).map(|key| format!("{key} {number}")).collect::<Vec<_>>().join(" ");
            (0..20).filter(|round| client.ask(&format!("MSETNX {}", pairs(*round))) == "(1)").collect()
        });
        let mut client = bench.connect();
        for round in 0..20 {
            let winners: Vec<usize> = (0..4).filter(|client| won[*client].contains(&round)).collect();
            assert_eq!(winners.len(), 1, "{engine:?}, round {round}: {winners:?}");
            let values = client.ask(&format!("MGET {}", keys(round).collect::<Vec<_>>().join(" ")));
            let expected = vec![format!("\"{}\"", winners[0]); 8].join(", ");
            assert_eq!(values, format!("[{expected}]"));
        }
        assert_eq!(client.ask("MSETNX new1 1 0.0 1 new2 1"), "(0)");
        assert_eq!(client.ask("EXISTS new1 new2"), "(0)");
        assert_eq!(client.ask("MSET 0.0 a new1 b"), "OK");
        assert_eq!(client.ask("MGET 0.0 new1"), "[\"a\", \"b\"]");
    }
    let bench = Bench::of(Engine::Tier);
    let mut client = bench.connect();
    let refused = client.ask("MSETNX a 1 b 2");
    assert!(refused.starts_with("-ERR the engine `tier` has no batches"), "{refused}");
    assert_eq!(client.ask("MSET a 1 b 2"), "OK");
    assert_eq!(client.ask("MGET a b"), "[\"1\", \"2\"]");
}

/// The keys of all pages; each page by a connection of its own.
fn scanned(bench: &Bench, options: &str, mut between: impl FnMut(usize)) -> Vec<String> {
    let (mut cursor, mut keys, mut pages) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let told = bench.connect().ask(&format!("SCAN {cursor} {options}"));
        let (next, page) = told.strip_prefix("[\"").unwrap().split_once("\", [").unwrap();
        let page = page.strip_suffix("]]").unwrap();
        keys.extend(page.split(", ").filter(|key| !key.is_empty()).map(|key| key.trim_matches('"').to_owned()));
        if next == "0" {
            return keys;
        }
        cursor = next.to_owned();
        between(pages);
        pages += 1;
        assert!(pages < 2000, "a scan does not end");
    }
}

#[test]
fn a_scan_finds_every_key_once_whatever_happens_meanwhile() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let stays = |number: usize| !number.is_multiple_of(3);
        let pairs: Vec<String> = (0..3000).map(|number| format!("key:{number} v")).collect();
        let mut client = bench.connect();
        pairs.chunks(500).for_each(|pairs| _ = client.ask(&format!("MSET {}", pairs.join(" "))));
        let mut next = 0;
        let keys = scanned(&bench, "COUNT 50", |_| {
            // Some go, and others come.
            let gone: Vec<String> = (next..next + 90).filter(|n| !stays(*n)).map(|n| format!("key:{n}")).collect();
            client.ask(&format!("DEL {}", gone.join(" ")));
            client.ask(&format!("SET new:{next} v"));
            next += 90;
        });
        let distinct: BTreeSet<&String> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len(), "{engine:?}: a key comes once");
        for number in (0..3000).filter(|number| stays(*number)) {
            assert!(distinct.contains(&format!("key:{number}")), "{engine:?}: {number} is missing of {}", keys.len());
        }
        let few = scanned(&bench, "MATCH key:2999* COUNT 1000", |_| {});
        let all = client.ask("KEYS key:2999*");
        assert_eq!((few.len(), all.as_str()), (1, "[\"key:2999\"]"), "{engine:?}");
        let unknown = client.ask("SCAN 12345");
        assert_eq!(unknown, "-ERR invalid cursor: it is not known, or too old; begin again with 0");
        let listed = client.ask("KEYS *").matches('"').count() as i64 / 2;
        assert_eq!(listed, scanned(&bench, "COUNT 1000", |_| {}).len() as i64, "{engine:?}");
        assert!(client.number("DBSIZE") > 0, "{engine:?}");
    }
}

/// What is asked about the server comes after what was asked before, also in a pipeline.
#[test]
fn what_a_pipeline_changes_is_counted_in_its_end() {
    for engine in [Engine::Slab, Engine::Tier, Engine::Hash, Engine::Matrix] {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        for round in 0..20 {
            let lines = ["FLUSHALL", "SET a 1", "SET b 2", "SET c 3", "DBSIZE", "INFO keyspace"];
            client.send(&lines.iter().flat_map(|line| of_words(line)).collect::<Vec<u8>>());
            let told: Vec<String> = lines.iter().map(|_| client.read()).collect();
            // On `matrix` it is an estimate.
            let is_exact = engine != Engine::Matrix;
            assert!(!is_exact || told[4] == "(3)", "{engine:?}, round {round}: {told:?}");
            assert!(!is_exact || told[5].contains("keys=3"), "{engine:?}, round {round}: {told:?}");
        }
    }
}

#[test]
fn a_long_word_is_not_repeated_whole() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    let long = "\u{1}".repeat(100_000);
    for line in ["EXPIRE k 1", "HELLO 3", "CLIENT SETINFO"] {
        let arguments = line.split(' ').chain([long.as_str()]).chain(line.ends_with("INFO").then_some("x"));
        client.send(&request(&arguments.map(|argument| argument.as_bytes().to_vec()).collect::<Vec<Vec<u8>>>()));
        let told = client.read();
        assert!(told.starts_with("-ERR") && told.len() < 2000, "{line}: {} bytes", told.len());
    }
}

#[test]
fn a_page_of_long_keys_ends_by_their_bytes() {
    for engine in [Engine::Slab, Engine::Hash, Engine::Tier] {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let long = "k".repeat(60_000);
        for number in 0..40 {
            assert_eq!(client.ask(&format!("SET {long}{number} v")), "OK");
        }
        let told = client.ask("SCAN 0 COUNT 1000");
        assert!(told.len() < 1_000_000, "{engine:?}: {} bytes", told.len());
        let keys = scanned(&bench, "COUNT 1000", |_| {});
        assert_eq!(keys.iter().collect::<BTreeSet<&String>>().len(), 40, "{engine:?}");
    }
}

#[test]
fn too_many_keys_for_one_answer_are_refused() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    let long = "k".repeat(900);
    for number in 0..1400 {
        client.send(&of_words(&format!("SET {long}{number} v")));
    }
    (0..1400).for_each(|_| assert_eq!(client.read(), "OK"));
    let refused = client.ask("KEYS *");
    assert_eq!(refused, "-ERR more than 1 MiB of keys match: take them piece by piece, with SCAN");
    assert_eq!(client.ask("KEYS *1399"), format!("[\"{long}1399\"]"));
    assert_eq!(scanned(&bench, "COUNT 500", |_| {}).len(), 1400);
}

#[test]
fn any_pace_of_a_client_gives_the_same_answers() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    let value = "x".repeat(3000);
    let sent = [of_words(&format!("SET a {value}")), of_words("GET a"), b"PING\r\n".to_vec()].concat();
    for byte in &sent {
        client.send(&[*byte]);
    }
    assert_eq!([client.read(), client.read(), client.read()], ["OK".to_owned(), format!("\"{value}\""), "PONG".into()]);
    // Many at once, and nothing is read before all are sent.
    let many = 50_000;
    let sent = [of_words("SET n 0"), of_words("INCR n").repeat(many)].concat();
    let replies = converse(bench.address(), &sent);
    assert!(replies.ends_with(format!(":{many}\r\n").as_bytes()));
    // Half a request, and the end.
    assert_eq!(converse(bench.address(), b"*2\r\n$3\r\nGET\r\n$1\r\n"), b"");
    assert_eq!(converse(bench.address(), b"*1000000\r\n$1\r\na\r\n"), b"");
    assert_eq!(client.ask("GET n"), format!("\"{many}\""));
}

/// A length costs nothing: a thousand clients that promise half a gigabyte each are served on.
#[test]
fn promised_lengths_take_no_memory() {
    let bench = Bench::of(Engine::Slab);
    let promises: Vec<Client> = (0..200)
        .map(|number| {
            let mut client = bench.connect();
            let bytes = if number % 2 == 0 { 1 << 20 } else { 512 << 20 };
            client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${bytes}\r\nxxxx").as_bytes());
            client
        })
        .collect();
    let mut client = bench.connect();
    assert_eq!(client.ask("SET b 1"), "OK");
    let value = "v".repeat(100_000);
    assert_eq!(client.ask(&format!("SET c {value}")), "OK");
    let info = client.ask("INFO memory");
    let figure = |name: &str| {
        let text = info.split(&format!("{name}:")).nth(1).unwrap().split("\\r").next().unwrap();
        text.parse::<u64>().unwrap()
    };
    // Values that have begun to come have their room for certain: half of the limit at most.
    let (held, limit) = (figure("mem_clients_normal"), figure("stratakv_client_memory_limit_bytes"));
    assert!(held < limit / 2 + (8 << 20), "{held} bytes are held for {} promises", promises.len());
    let told = told(&converse(bench.address(), b"*1\r\n$1073741824\r\n"));
    assert_eq!(told, ["-ERR Protocol error: invalid bulk length"]);
}

/// Clients whose requests come in parts hold those, and waited for each other: some were ended.
#[test]
fn large_requests_of_many_clients_at_once_are_all_carried_out() {
    const CLIENTS: usize = 12;
    const VALUES: usize = 10;
    let bench = Bench::with(Engine::Tier, |options| options.limits.client_memory_bytes = Some(8 << 20));
    let began = std::sync::Barrier::new(CLIENTS);
    for bytes in [900, 90_000] {
        let values = VALUES * 90_000 / bytes;
        let said = at_once(&bench, CLIENTS, |number, client| {
            client.send(format!("*{}\r\n$4\r\nMSET\r\n", 1 + 2 * values).as_bytes());
            for value in 0..values {
                // Each has a part of its request there before any sends the rest.
                if value == values / 5 {
                    began.wait();
                }
                let key = format!("{number} {value}");
                client.send(format!("${}\r\n{key}\r\n${bytes}\r\n", key.len()).as_bytes());
                client.send(&vec![b'v'; bytes]);
                client.send(b"\r\n");
            }
            client.read()
        });
        assert_eq!(said, ["OK"; CLIENTS], "{bytes}");
    }
    assert!(bench.memcache("stats\r\n").contains("STAT memory_kicks 0\r\n"));
}

#[test]
fn what_is_told_of_server_and_clients_is_so() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    let id = client.number("CLIENT ID");
    let mut other = bench.connect();
    assert!(other.number("CLIENT ID") > id);
    assert_eq!(other.ask("CLIENT SETNAME worker"), "OK");
    assert_eq!(other.ask("CLIENT SETINFO LIB-NAME redis-py"), "OK");
    assert_eq!(
        other.ask("CLIENT SETNAME \"a b\""),
        "-ERR Client names cannot contain spaces, newlines or special characters, nor more than 256 bytes"
    );
    let list = client.ask("CLIENT LIST");
    assert!(
        list.contains("name=worker") && list.contains("lib-name=redis-py") && list.matches("id=").count() == 2,
        "{list}"
    );
    assert!(list.contains(&other.stream.local_addr().unwrap().to_string()), "{list}");
    assert_eq!(client.ask("MSET a 1 b 2"), "OK");
    client.ask("MGET a none");
    // A batch is counted once it is applied, which may be after its answer.
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.number("DBSIZE") < 2 {
        assert!(Instant::now() < deadline, "records are not counted");
    }
    let info = client.ask("INFO");
    for part in [
        "role:master",
        "redis_version:7.0.15",
        "stratakv_engine:slab",
        "keys=2",
        "keyspace_hits:1",
        "keyspace_misses:1",
        "connected_clients:2",
        // Clients and monitors look for these.
        "cluster_enabled:0",
        "maxmemory:0",
        "maxmemory_policy:noeviction",
        "used_memory_human:",
        "aof_enabled:0",
        "rdb_bgsave_in_progress:0",
        "master_repl_offset:0",
    ] {
        assert!(info.contains(part), "{part} is not in {info}");
    }
    let info = client.ask("INFO stats");
    assert!(!info.contains("redis_version") && info.contains("total_commands_processed"), "{info}");
    assert_eq!(client.number("DBSIZE"), 2);
    let time = client.ask("TIME");
    assert!(time.starts_with("[\"1") || time.starts_with("[\"2"), "{time}");
    let count = client.number("COMMAND COUNT");
    assert!(count > 50);
    assert_eq!(client.ask("COMMAND LIST").matches('"').count() as i64, 2 * count);
    let told = client.ask("COMMAND INFO get nothing");
    assert!(
        told.starts_with(
            "[[\"get\", (2), [readonly, fast], (1), (1), (1), [@read, @string, @fast], [], [], []], nil array]"
        ),
        "{told}"
    );
    let docs = client.ask("COMMAND DOCS get");
    assert!(docs.contains("Returns the string value of a key."), "{docs}");
    assert_eq!(client.ask("CONFIG GET maxc*"), "[\"maxclients\", \"10000\"]");
    assert_eq!(client.ask("CONFIG GET maxmemory-*"), "[\"maxmemory-policy\", \"noeviction\"]");
}

/// A page in a browser can have it send lines of its own behind those of HTTP.
#[test]
fn lines_of_http_end_a_connection_before_anything_behind_them_is_carried_out() {
    let bench = Bench::of(Engine::Hash);
    for first in ["POST / HTTP/1.1\r\nHost: x\r\n", "get / HTTP/1.1\r\nhost: x\r\n"] {
        let answer = converse(bench.address(), format!("{first}\r\nSET pwned 1\r\n").as_bytes());
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains("OK") && answer.matches('\n').count() <= 1, "{answer}");
    }
    assert_eq!(bench.connect().ask("GET pwned"), "nil");
}

/// What can never be done is refused at once, and what failed is told.
#[test]
fn a_cache_refuses_backups_and_moves_that_wait_and_a_backup_that_failed_is_told() {
    let bench = Bench::of(Engine::Tier);
    let mut client = bench.connect();
    assert!(client.ask("BGSAVE").contains("no backups"));
    let told = client.ask("BLMOVE from to LEFT RIGHT 30");
    assert!(told.contains("has no batches"), "{told}");
    assert_eq!(client.ask("BLMOVE same same LEFT RIGHT 0.01"), "nil array");
    let backups = tempfile::tempdir().unwrap();
    let at = backups.path().join("backups");
    std::fs::create_dir(&at).unwrap();
    let bench = Bench::with(Engine::Slab, |options| options.backup_directory = Some(at.clone()));
    let mut client = bench.connect();
    let status = |client: &mut Client| {
        let until = Instant::now() + Duration::from_secs(60);
        while client.ask("INFO persistence").contains("rdb_bgsave_in_progress:1") {
            assert!(Instant::now() < until, "a backup goes on");
        }
        client.ask("INFO persistence").contains("rdb_last_bgsave_status:ok")
    };
    assert!(status(&mut client));
    std::fs::remove_dir(&at).unwrap();
    assert_eq!(client.ask("BGSAVE"), "Background saving started");
    assert!(!status(&mut client), "the directory is not there");
    std::fs::create_dir(&at).unwrap();
    assert_eq!(client.ask("BGSAVE"), "Background saving started");
    assert!(status(&mut client));
}

/// A client beyond the limit is told so in its protocol.
#[test]
fn more_clients_than_may_be_are_refused() {
    let bench = Bench::with(Engine::Slab, |options| options.limits.connections_max = 1);
    let mut client = bench.connect();
    assert_eq!(client.ask("PING"), "PONG");
    let mut told = Vec::new();
    TcpStream::connect(bench.address()).unwrap().read_to_end(&mut told).unwrap();
    assert_eq!(told, b"-ERR max number of clients reached\r\n");
}

#[test]
fn records_are_there_when_the_store_is_opened_again() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    assert_eq!(client.ask("MSET a 1 b 2 c 3 d 4"), "OK");
    assert_eq!(client.ask("INCRBY a 9"), "(10)");
    assert_eq!(client.ask("GETDEL b"), "\"2\"");
    let Bench { server, store, _directory: directory } = bench;
    server.shutdown();
    server.join().unwrap();
    drop(server);
    store.close().unwrap();
    drop(store);
    let store = Options::new().memory_bytes(64 << 20).open(directory.path().join("data")).unwrap();
    let values: Vec<_> = ["a", "b", "c", "d"].map(|key| store.get(key.as_bytes()).unwrap()).into_iter().collect();
    let values: Vec<_> = values.into_iter().map(|value| value.map(|value| value.to_bytes())).collect();
    assert_eq!(values, [Some("10".into()), None, Some("3".into()), Some("4".into())]);
}

/// A request of arguments of any bytes.
#[test]
fn arguments_may_have_any_bytes() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    let key: Vec<u8> = (0..=255).collect();
    client.send(&request(&[b"SET".to_vec(), key.clone(), key.clone()]));
    client.send(&request(&[b"GET".to_vec(), key.clone()]));
    assert_eq!([client.read(), client.read()], ["OK".to_owned(), format!("\"{}\"", key.escape_ascii())]);
    let long = vec![b'k'; 65_536];
    client.send(&request(&[b"GET".to_vec(), long]));
    assert_eq!(client.read(), "-ERR the key has 65536 bytes; a key has 1 to 65535 bytes");
    client.send(&request(&[vec![0xFF; 300], b"a".to_vec()]));
    assert!(client.read().starts_with("-ERR unknown command"));
}
