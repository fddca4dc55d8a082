//! A server and its clients over loopback sockets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stratakv::{Engine, IoBackend, Level, Options, Store};
use stratakv_base::{Mono, Now, Wall};
use stratakv_runtime::{Clock, ManualClock};
use stratakv_server::{Error, Server, ServerOptions};

mod compatibility;
mod conversations;
mod endings;
mod memory;
mod names;
mod reads;
mod through_xdp;
mod watching;
use conversations::{conversations, matches};

/// A server on any free port, and what it stands on.
struct Bench {
    server: Server,
    store: Store,
    _directory: tempfile::TempDir,
    _network: Option<through_xdp::Network>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(IoBackend::Auto, |_| {})
    }

    fn with(io: IoBackend, change: impl FnOnce(&mut ServerOptions)) -> Bench {
        Bench::on(Options::new().shards(2).level(Level::ProcessCrash).io(io), change)
    }

    fn of(engine: Engine) -> Bench {
        let options = Options::new().engine(engine);
        let options = match engine {
            Engine::Hash => options.region_bytes(16 << 20).level(Level::ProcessCrash),
            Engine::Tier => options.shards(2),
            Engine::Matrix => options.region_bytes(8 << 20).shards(1).level(Level::ProcessCrash),
            _ => options.shards(2).level(Level::ProcessCrash),
        };
        Bench::on(options, |_| {})
    }

    fn on(options: Options, change: impl FnOnce(&mut ServerOptions)) -> Bench {
        Bench::on_memory(options.memory_bytes(64 << 20), change)
    }

    fn on_memory(options: Options, change: impl FnOnce(&mut ServerOptions)) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let store = options.open(directory.path().join("data")).unwrap();
        let mut options = options_on(SocketAddr::from(([127, 0, 0, 1], 0)));
        let network = through_xdp::network();
        network.iter().for_each(|network| network.serve_here(&mut options));
        change(&mut options);
        let server = Server::start(store.clone(), options).unwrap();
        // Clients are at the other end.
        network.iter().for_each(|network| network.enter());
        Bench { server, store, _directory: directory, _network: network }
    }

    fn address(&self) -> SocketAddr {
        *self.server.xdp_addresses().first().unwrap_or(&self.server.addresses()[0])
    }

    fn connect(&self) -> TcpStream {
        connect(self.address())
    }
}

fn options_on(address: SocketAddr) -> ServerOptions {
    ServerOptions { memcache: vec![address], threads: 2, ..ServerOptions::default() }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    // A test that would hang fails instead.
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Reads to the end that the server makes: nothing comes before it. (A single read of a socket with
/// a timeout may be interrupted, where this thread did I/O on a ring.)
fn is_ended(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).is_ok() && rest.is_empty()
}

/// Sends everything, says that it is all, and reads to the end.
fn converse(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
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

/// Sends a command on an open connection and reads an answer of known length.
fn ask(stream: &mut TcpStream, command: &str, expected: &str) {
    stream.write_all(command.as_bytes()).unwrap();
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string(), "{command}");
}

fn run_conversations(address: SocketAddr, ours_too: bool) {
    let mut wrong = Vec::new();
    for conversation in conversations().filter(|conversation| ours_too || !conversation.ours_alone) {
        assert_eq!(converse(address, b"flush_all\r\n"), b"OK\r\n");
        let answer = converse(address, conversation.sent.as_bytes());
        if !matches(&answer, conversation.expected) {
            wrong.push(format!("{}:\n{}\n", conversation.name, answer.escape_ascii()));
        }
    }
    for conversation in conversations::binary::conversations() {
        assert_eq!(converse(address, b"flush_all\r\n"), b"OK\r\n");
        let told = conversations::binary::told(&converse(address, &conversation.sent));
        if (ours_too || !conversation.ours_alone) && told != conversation.expected {
            wrong.push(format!("{}:\n{told}", conversation.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn conversations_go_as_written() {
    run_conversations(Bench::new().address(), true);
}

#[test]
fn conversations_go_as_written_without_io_uring() {
    run_conversations(Bench::with(IoBackend::Blocking, |_| {}).address(), true);
}

/// A memcached, stopped when dropped.
struct Memcached {
    process: Child,
    address: SocketAddr,
}

impl Memcached {
    /// `None`: it is not installed.
    fn start() -> Option<Memcached> {
        const MEMCACHED: &str = "/usr/bin/memcached";
        if !std::path::Path::new(MEMCACHED).exists() {
            return None;
        }
        // Below the ports that the kernel gives to connections, one of which could else be there
        // before memcached.
        let first = std::process::id();
        for port in (0..100).map(|step| (10_000 + (first + step) % 20_000) as u16) {
            let arguments = ["-u", "root", "-l", "127.0.0.1", "-U", "0", "-p", &port.to_string()];
            let process = Command::new(MEMCACHED).args(arguments).stderr(Stdio::null()).spawn().unwrap();
            let mut memcached = Memcached { process, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) };
            if memcached.is_ready() {
                return Some(memcached);
            }
        }
        panic!("memcached did not start")
    }

    /// Whether it takes connections; else it has ended, as another program has its port.
    fn is_ready(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.process.try_wait().unwrap().is_none() {
            if let Ok(mut stream) = TcpStream::connect(self.address) {
                // Another program may have answered.
                stream.write_all(b"stats\r\n").unwrap();
                let pid = format!("STAT pid {}\r\n", self.process.id());
                let mut told = vec![0; pid.len()];
                return stream.read_exact(&mut told).is_ok() && told == pid.as_bytes();
            }
            assert!(Instant::now() < deadline, "memcached did not start");
            std::thread::yield_now();
        }
        false
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The tables say what memcached says: else we would be compatible with ourselves only.
#[test]
fn memcached_itself_talks_like_the_tables() {
    let Some(memcached) = Memcached::start() else { return };
    run_conversations(memcached.address, false);
}

#[test]
fn values_of_a_megabyte_and_pages_in_between() {
    let bench = Bench::new();
    let mut stream = bench.connect();
    for length in [0, 1, 4095, 4096, 4097, 65_536, 100_000, 1 << 20] {
        let value: String = (0..length).map(|at| char::from(b'a' + (at * 7 + at / 26) as u8 % 26)).collect();
        ask(&mut stream, &format!("set k{length} 1 0 {length}\r\n{value}\r\n"), "STORED\r\n");
        let answer = format!("VALUE k{length} 1 {length}\r\n{value}\r\nEND\r\n");
        ask(&mut stream, &format!("get k{length}\r\n"), &answer);
    }
    ask(&mut stream, "set big 0 0 1048577\r\n", "");
    stream.write_all(&vec![b'x'; 1_048_577]).unwrap();
    ask(&mut stream, "\r\nget big\r\n", "SERVER_ERROR object too large for cache\r\nEND\r\n");
}

#[test]
fn ten_thousand_gets_in_one_go() {
    let bench = Bench::new();
    let sets: String = (0..1000).map(|number| format!("set k{number} 0 0 5\r\n{number:05}\r\n")).collect();
    assert!(converse(bench.address(), sets.as_bytes()) == b"STORED\r\n".repeat(1000));
    let gets: String = (0..10_000).map(|number| format!("get k{}\r\n", number % 1000)).collect();
    let value = |number: usize| format!("VALUE k{number} 0 5\r\n{number:05}\r\n");
    let expected: String = (0..10_000).map(|number| value(number % 1000) + "END\r\n").collect();
    assert!(converse(bench.address(), gets.as_bytes()) == expected.as_bytes());
    // And as one line.
    let keys: String = (0..10_000).map(|number| format!(" k{}", number % 1000)).collect();
    let expected: String = (0..10_000).map(|number| value(number % 1000)).collect::<String>() + "END\r\n";
    assert!(converse(bench.address(), format!("get{keys}\r\n").as_bytes()) == expected.as_bytes());
}

#[test]
fn a_peer_that_does_not_read_harms_nobody() {
    let bench = Bench::with(IoBackend::Auto, |options| options.threads = 1);
    let mut stream = bench.connect();
    let value = "v".repeat(500_000);
    ask(&mut stream, &format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    let mut deaf = bench.connect();
    deaf.set_nonblocking(true).unwrap();
    // As many as the kernel and the server take: then the server must have stopped reading.
    let gets = b"get big\r\n".repeat(1000);
    let mut taken = 0;
    while let Ok(bytes) = deaf.write(&gets) {
        taken += bytes;
        assert!(taken < 1 << 30, "the server reads without end");
        ask(&mut stream, "version\r\n", "VERSION 1.6.18\r\n");
    }
    ask(&mut stream, "get nothing\r\n", "END\r\n");
    drop(deaf);
    ask(&mut stream, "delete big\r\n", "DELETED\r\n");
}

#[test]
fn garbage_and_half_commands_harm_nobody() {
    let bench = Bench::new();
    let mut random = stratakv_base::random::Random::new(11211);
    let mut stream = bench.connect();
    for round in 0..50 {
        let mut garbage = vec![0; random.below(20_000) as usize];
        random.fill(&mut garbage);
        if round % 2 == 0 {
            garbage.splice(0..0, *b"set a 0 0 100000000\r\n");
        }
        converse(bench.address(), &garbage);
        ask(&mut stream, "get nothing\r\n", "END\r\n");
    }
    assert_eq!(converse(bench.address(), b"set half 0 0 100\r\nabc"), b"");
    assert_eq!(converse(bench.address(), b"set a 0 0 1000000000\r\nabc"), b"", "its data block has not come");
    assert_eq!(
        converse(bench.address(), b"set a 0 0 2000000000\r\nabc"),
        b"SERVER_ERROR object too large for cache\r\n",
        "nobody throws away so much"
    );
    let long = vec![b'x'; 100_000];
    assert_eq!(converse(bench.address(), &long), b"");
    ask(&mut stream, "get half\r\n", "END\r\n");
}

#[test]
fn a_busy_port_is_told_with_the_way_out() {
    let bench = Bench::new();
    let error = Server::start(bench.store.clone(), options_on(bench.address())).err().expect("the port is taken");
    assert!(matches!(error, Error::Listen { .. }));
    let text = error.to_string();
    assert!(text.contains(&bench.address().to_string()) && text.contains("choose another port"), "{text}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let bench = Bench::new();
    let changes: [fn(&mut ServerOptions); 5] = [
        |options| options.memcache.clear(),
        |options| options.threads = 0,
        |options| options.limits.connections_max = 0,
        |options| options.limits.item_bytes_max = 0,
        |options| options.limits.item_bytes_max = (64 << 20) + 1,
    ];
    for change in changes {
        let mut options = options_on(SocketAddr::from(([127, 0, 0, 1], 0)));
        change(&mut options);
        assert!(matches!(Server::start(bench.store.clone(), options), Err(Error::Option(_))));
    }
}

#[test]
fn too_many_connections_are_told_so() {
    let bench = Bench::with(IoBackend::Auto, |options| options.limits.connections_max = 2);
    let (mut first, mut second) = (bench.connect(), bench.connect());
    ask(&mut first, "get a\r\n", "END\r\n");
    ask(&mut second, "get a\r\n", "END\r\n");
    let mut answer = Vec::new();
    bench.connect().read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"ERROR Too many open connections\r\n");
    ask(&mut first, "get a\r\n", "END\r\n");
}

#[test]
fn shutting_down_answers_what_was_received_and_keeps_it() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let bench = Bench::with(io, |_| {});
        let mut idle = bench.connect();
        ask(&mut idle, "get a\r\n", "END\r\n");
        let mut stream = bench.connect();
        ask(&mut stream, "set a 0 0 1\r\n1\r\n", "STORED\r\n");
        stream.write_all(b"set a 0 0 1\r\n2\r\nget a\r\nset b 0 0 5\r\n").unwrap();
        let begun = Instant::now();
        bench.server.shutdown();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        // Whether the last bytes had arrived is a matter of chance; what was answered was done, in
        // order.
        assert!(b"STORED\r\nVALUE a 0 1\r\n2\r\nEND\r\n".starts_with(&answer), "{}", answer.escape_ascii());
        bench.server.join().unwrap();
        // Only what does not end in order is cut off, after ten seconds.
        assert!(begun.elapsed() < Duration::from_secs(9), "the connections did not end by themselves");
        assert!(is_ended(&mut idle));
        assert!(TcpStream::connect_timeout(&bench.address(), Duration::from_millis(500)).is_err());
        let kept = bench.store.get(b"a").unwrap().unwrap().to_bytes();
        assert!(kept == "2" || answer.is_empty(), "{kept:?}");
    }
}

#[test]
fn the_library_sees_what_clients_wrote_and_the_other_way_round() {
    let bench = Bench::new();
    let mut stream = bench.connect();
    ask(&mut stream, "set a 7 0 2\r\nab\r\n", "STORED\r\n");
    assert_eq!(bench.store.get(b"a").unwrap().unwrap().to_bytes(), "ab");
    bench.store.put(b"b", b"cd").unwrap();
    ask(&mut stream, "get b\r\n", "VALUE b 0 2\r\ncd\r\nEND\r\n");
}

#[test]
fn a_compare_and_swap_with_the_version_that_gets_told() {
    let bench = Bench::new();
    let mut stream = bench.connect();
    ask(&mut stream, "set a 0 0 1\r\n1\r\n", "STORED\r\n");
    let answer = String::from_utf8(converse(bench.address(), b"gets a\r\n")).unwrap();
    let version = answer.lines().next().unwrap().rsplit(' ').next().unwrap();
    ask(&mut stream, &format!("cas a 0 0 1 {version}\r\n2\r\n"), "STORED\r\n");
    ask(&mut stream, &format!("cas a 0 0 1 {version}\r\n3\r\n"), "EXISTS\r\n");
    ask(&mut stream, "get a\r\n", "VALUE a 0 1\r\n2\r\nEND\r\n");
}

#[test]
fn statistics_are_counted() {
    let bench = Bench::new();
    converse(bench.address(), b"set a 0 0 1\r\n1\r\nset c 0 0 1\r\n1\r\nget a b\r\ndelete a\r\n");
    let text = String::from_utf8(converse(bench.address(), b"stats\r\n")).unwrap();
    for expected in [
        "cmd_get 2",
        "cmd_set 2",
        "curr_items 1",
        "get_hits 1",
        "get_misses 1",
        "delete_hits 1",
        "threads 2",
        "total_connections 2",
    ] {
        assert!(text.contains(&format!("STAT {expected}\r\n")), "{expected}:\n{text}");
    }
    assert!(text.ends_with("END\r\n"));
    let settings = String::from_utf8(converse(bench.address(), b"stats settings\r\n")).unwrap();
    assert!(settings.contains("STAT item_size_max 1048576\r\n"), "{settings}");
}

/// Under the names that exporters read. What no engine keeps is not there.
#[test]
fn one_class_has_every_record() {
    for engine in [Engine::Slab, Engine::Hash, Engine::Tier] {
        let bench = Bench::of(engine);
        assert_eq!(converse(bench.address(), b"stats items\r\n"), b"END\r\n");
        let sets = b"set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nget a\r\nincr b 1\r\n";
        converse(bench.address(), sets);
        let items = String::from_utf8(converse(bench.address(), b"stats items\r\n")).unwrap();
        assert!(items.starts_with("STAT items:1:number 2\r\nSTAT items:1:mem_requested "), "{items}");
        for name in ["evicted", "evicted_nonzero", "evicted_time", "outofmemory", "reclaimed", "tailrepairs"] {
            assert!(items.contains(&format!("STAT items:1:{name} 0\r\n")), "{name}: {items}");
        }
        assert!(!items.contains("expired_unfetched"), "nobody knows: {items}");
        let slabs = String::from_utf8(converse(bench.address(), b"stats slabs\r\n")).unwrap();
        for figure in ["1:get_hits 1", "1:cmd_set 2", "1:incr_hits 1", "1:delete_hits 0", "active_slabs 1"] {
            assert!(slabs.contains(&format!("STAT {figure}\r\n")), "{figure}: {slabs}");
        }
        let number = |name: &str| {
            let value = slabs.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
            value.map(|value| value.parse::<u64>().unwrap())
        };
        assert!(number("total_malloced").unwrap() >= number("1:mem_requested").unwrap(), "{slabs}");
        // It was 0 but with `slab`.
        let general = String::from_utf8(converse(bench.address(), b"stats\r\nstats settings\r\n")).unwrap();
        let limits: Vec<&str> = general.lines().filter(|line| line.contains("maxbytes ")).collect();
        let [limit, setting] = limits[..] else { panic!("{general}") };
        assert_eq!(limit.replace("limit_", ""), setting);
        assert!(!setting.ends_with(" 0"), "{setting}");
        match engine {
            Engine::Slab => {
                let all = number("1:used_chunks").unwrap() + number("1:free_chunks").unwrap();
                assert_eq!((number("1:chunk_size"), number("1:total_chunks")), (Some(4096), Some(all)), "{slabs}");
            }
            // What one of the two takes, and a page of memcached or a segment.
            _ => {
                let (chunk, used) = (number("1:chunk_size"), number("1:used_chunks"));
                assert!(chunk.is_some_and(|bytes| bytes > 0) && used == Some(2), "{slabs}");
                assert!(number("1:total_pages").unwrap() > 0, "{slabs}");
            }
        }
    }
}

#[test]
fn a_reset_forgets_what_was_counted_by_prefix() {
    let bench = Bench::new();
    let sent = b"stats detail on\r\nget user:1\r\nstats detail dump\r\nstats reset\r\nstats detail dump\r\n";
    let expected = "OK\r\nEND\r\nPREFIX user get 1 hit 0 set 0 del 0\r\nEND\r\nRESET\r\nEND\r\n";
    assert_eq!(String::from_utf8(converse(bench.address(), sent)).unwrap(), expected);
}

#[test]
fn sizes_are_not_counted_and_that_is_the_answer() {
    let bench = Bench::new();
    let answer = converse(bench.address(), b"stats sizes_enable\r\nstats sizes\r\nstats sizes_disable\r\n");
    let expected = "STAT sizes_status error\r\nSTAT sizes_error sizes_are_not_counted\r\nEND\r\n\
        STAT sizes_status disabled\r\nEND\r\nSTAT sizes_status disabled\r\nEND\r\n";
    assert_eq!(String::from_utf8(answer).unwrap(), expected);
}

#[test]
fn what_is_not_there_is_refused() {
    let bench = Bench::new();
    let answer = converse(bench.address(), b"watch proxyreqs\r\nextstore free_memchunks 1 2\r\nmn\r\n");
    assert_eq!(answer.escape_ascii().to_string(), "ERROR\\r\\nERROR\\r\\nMN\\r\\n");
}

#[test]
fn connections_are_listed_with_their_addresses() {
    let bench = Bench::new();
    let mut stream = bench.connect();
    ask(&mut stream, "get a\r\n", "END\r\n");
    let text = String::from_utf8(converse(bench.address(), b"stats conns\r\n")).unwrap();
    let peer = stream.local_addr().unwrap();
    assert!(text.contains(&format!(":addr tcp:{}\r\n", bench.address())), "{text}");
    assert!(text.contains(&format!(":addr tcp:{peer}\r\n")) && text.contains(":state conn_read\r\n"), "{text}");
    assert!(text.contains(&format!(":listen_addr tcp:{}\r\n", bench.address())), "{text}");
    let mut watcher = bench.connect();
    ask(&mut watcher, "watch\r\n", "OK\r\n");
    let text = String::from_utf8(converse(bench.address(), b"stats conns\r\n")).unwrap();
    assert!(text.contains(":state conn_watch\r\n"), "{text}");
    drop(stream);
    let deadline = Instant::now() + Duration::from_secs(30);
    while converse(bench.address(), b"stats conns\r\n").windows(5).filter(|bytes| bytes == b"_read").count() > 1 {
        assert!(Instant::now() < deadline, "a connection that is gone is listed");
    }
}

#[test]
fn accounts_come_from_a_file_and_a_bad_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("accounts");
    std::fs::write(&file, "user:pass\n").unwrap();
    let bench = Bench::with(IoBackend::Auto, |options| options.auth_file = Some(file.clone()));
    let mut stream = bench.connect();
    ask(&mut stream, "set b 0 0 1\r\n", "");
    ask(&mut stream, "x\r\nget a\r\n", "CLIENT_ERROR authentication failure\r\nCLIENT_ERROR unauthenticated\r\n");
    ask(&mut stream, "set b 0 0 9\r\nuser pass\r\nget b\r\n", "STORED\r\nEND\r\n");
    ask(&mut bench.connect(), "get b\r\n", "CLIENT_ERROR unauthenticated\r\n");
    let stats = converse(bench.address(), b"set b 0 0 9\r\nuser pass\r\nstats\r\n");
    let stats = String::from_utf8(stats).unwrap();
    assert!(stats.contains("STAT auth_cmds 3\r\nSTAT auth_errors 1\r\n"), "{stats}");
    std::fs::write(&file, "secret\n").unwrap();
    let mut options = options_on(SocketAddr::from(([127, 0, 0, 1], 0)));
    options.auth_file = Some(file);
    let error = options.check().unwrap_err().to_string();
    assert!(error.ends_with("accounts: line 1 is not `user:password`"), "{error}");
}

#[test]
fn clients_stop_the_server_only_where_they_may() {
    let bench = Bench::with(IoBackend::Auto, |options| options.shutdown_command = true);
    let mut stream = bench.connect();
    ask(&mut stream, "shutdown now\r\n", "CLIENT_ERROR invalid shutdown mode\r\n");
    ask(&mut stream, "set a 0 0 1\r\n1\r\n", "STORED\r\n");
    stream.write_all(b"shutdown graceful\r\n").unwrap();
    bench.server.join().unwrap();
    assert!(is_ended(&mut stream));
    assert_eq!(bench.store.get(b"a").unwrap().unwrap().to_bytes(), "1");
}

#[test]
fn a_listing_of_many_records_is_whole_with_every_engine() {
    for engine in [Engine::Slab, Engine::Hash, Engine::Tier, Engine::Matrix] {
        listing_is_whole(&Bench::of(engine));
    }
}

/// Pages without keys, of shards that have none, once ended in silence: nobody went on after them.
#[test]
fn a_listing_of_little_ends_while_its_client_waits() {
    for engine in [Engine::Slab, Engine::Hash, Engine::Tier, Engine::Matrix] {
        let bench = Bench::of(engine);
        let mut stream = bench.connect();
        let lists = [
            ("lru_crawler metadump all\r\n", "END\r\n"),
            ("lru_crawler mgdump all\r\n", "EN\r\n"),
            ("stats cachedump 1 10\r\n", "END\r\n"),
        ];
        lists.iter().for_each(|(list, end)| ask(&mut stream, list, end));
        // A binary key cannot be told there.
        ask(&mut stream, "ms AAo= 1 b\r\nx\r\n", "HD\r\n");
        ask(&mut stream, "stats cachedump 1 10\r\n", "END\r\n");
        ask(&mut stream, "lru_crawler mgdump all\r\nmn\r\n", "mg AAo= b\r\nEN\r\nMN\r\n");
        // What has expired is passed over.
        ask(&mut stream, "md AAo= b\r\n", "HD\r\n");
        let sets: String = (0..200).map(|number| format!("set e{number} 0 1 1 noreply\r\n1\r\n")).collect();
        ask(&mut stream, &(sets + "mn\r\n"), "MN\r\n");
        let deadline = Instant::now() + Duration::from_secs(10);
        while bench.store.get(b"e199").unwrap().is_some() {
            assert!(Instant::now() < deadline, "it does not expire");
            std::thread::yield_now();
        }
        lists.iter().for_each(|(list, end)| ask(&mut stream, list, end));
    }
}

/// Most of its keys lie on the second tier, and nowhere in memory.
#[test]
fn a_listing_of_a_cache_has_what_left_memory() {
    let options = Options::new().engine(Engine::Tier).shards(2).memory_bytes(16 << 20).capacity_bytes(128 << 20);
    let bench = Bench::on_memory(options, |_| {});
    let value = "x".repeat(3000);
    let sets: String =
        (0..10_000).map(|number| format!("set key:{number} 0 0 {} noreply\r\n{value}\r\n", value.len())).collect();
    assert_eq!(converse(bench.address(), &[sets.as_bytes(), b"mn\r\n"].concat()), b"MN\r\n");
    let text = String::from_utf8(converse(bench.address(), b"stats\r\nlru_crawler metadump all\r\n")).unwrap();
    let figure = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        value.unwrap_or_else(|| panic!("{name}: {text}")).parse::<usize>().unwrap()
    };
    assert_eq!((figure("curr_items"), figure("evictions")), (10_000, 0));
    assert!(figure("ssd_bytes") > 10_000_000, "{} bytes left memory", figure("ssd_bytes"));
    let keys: std::collections::BTreeSet<&str> =
        text.lines().filter_map(|line| line.split_once(" exp=")).map(|(key, _)| key).collect();
    assert_eq!((keys.len(), text.matches("key=").count()), (10_000, 10_000));
    assert!(text.contains(" size=3008\n") && text.ends_with("\nEND\r\n"));
}

fn listing_is_whole(bench: &Bench) {
    let sets: String = (0..30_000).map(|number| format!("set {number:0200} 0 0 1\r\n1\r\n")).collect();
    converse(bench.address(), sets.as_bytes());
    let text = converse(bench.address(), b"lru_crawler metadump all\r\nstats cachedump 1 7\r\n");
    let text = String::from_utf8(text).unwrap();
    assert_eq!((text.matches("key=").count(), text.matches("ITEM").count()), (30_000, 7));
    assert!(text.ends_with("END\r\n") && text.matches("END\r\n").count() == 2);
}

#[test]
fn many_clients_count_together() {
    let bench = Bench::new();
    converse(bench.address(), b"set n 0 0 1\r\n0\r\n");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| converse(bench.address(), &b"incr n 1\r\n".repeat(50)));
        }
    });
    assert_eq!(converse(bench.address(), b"incr n 0\r\n"), b"400\r\n");
}

#[test]
fn a_delayed_flush_all_comes_true() {
    let bench = Bench::new();
    let mut stream = bench.connect();
    ask(&mut stream, "set a 0 0 1\r\n1\r\nflush_all 1\r\n", "STORED\r\nOK\r\n");
    let deadline = Instant::now() + Duration::from_secs(10);
    while bench.store.get(b"a").unwrap().is_some() {
        assert!(Instant::now() < deadline, "nothing was flushed");
        std::thread::yield_now();
    }
    ask(&mut stream, "set a 0 0 1\r\n1\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
}

/// It counts monotonic time: after the wall clock had been set back it came hours late.
#[test]
fn a_delayed_flush_all_comes_though_the_clock_is_set_back() {
    let clock = Arc::new(ManualClock::default());
    let set = |passed_s: u64, step_s: i64| {
        let wall = (1_800_000_000 + passed_s).saturating_add_signed(step_s) * 1000;
        clock.set(Now { mono: Mono((1 + passed_s) * 1_000_000_000), wall: Wall(wall) });
    };
    set(0, 0);
    let options = Options::new().shards(2).level(Level::ProcessCrash).clock(Clock::Manual(Arc::clone(&clock)));
    let bench = Bench::on(options, |_| {});
    let mut stream = bench.connect();
    ask(&mut stream, "set a 0 0 1\r\n1\r\nflush_all 100\r\nmn\r\n", "STORED\r\nOK\r\nMN\r\n");
    set(99, -7200);
    (0..10).for_each(|_| ask(&mut stream, "get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n"));
    set(101, -7200);
    let deadline = Instant::now() + Duration::from_secs(30);
    while bench.store.get(b"a").unwrap().is_some() {
        // Each command is a tick of the thread that has it in mind.
        ask(&mut stream, "mn\r\n", "MN\r\n");
        assert!(Instant::now() < deadline, "nothing was flushed");
    }
}

/// libmemcached's own judgement, where it is installed (Debian: libmemcached-tools).
#[test]
fn memccapable_passes_whole() {
    const MEMCCAPABLE: &str = "/usr/bin/memccapable";
    if !std::path::Path::new(MEMCCAPABLE).exists() {
        return;
    }
    let bench = Bench::new();
    let (host, port) = (bench.address().ip().to_string(), bench.address().port().to_string());
    for protocol in ["-a", "-b"] {
        let output = Command::new(MEMCCAPABLE).args(["-h", &host, "-p", &port, protocol]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let passed = text.matches("[pass]").count();
        assert!(output.status.success() && text.contains("All tests passed") && passed == 27, "{passed}: {text}");
    }
}
