//! Connections that watch, on a real server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use stratakv::{Engine, IoBackend, Options};

use super::{Bench, ask, converse};

/// A connection that watches.
fn watch(bench: &Bench, kinds: &str) -> BufReader<TcpStream> {
    let mut stream = bench.connect();
    ask(&mut stream, &format!("watch {kinds}\r\n"), "OK\r\n");
    BufReader::new(stream)
}

/// The next line, without its instant and number.
fn next(watcher: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    watcher.read_line(&mut line).unwrap();
    let mut words = line.split_whitespace();
    assert!(words.next().is_some_and(|word| word.starts_with("ts=")), "{line}");
    assert!(words.next().is_some_and(|word| word.starts_with("gid=")), "{line}");
    let words: Vec<&str> = words.filter(|word| !word.starts_with("cfd=")).collect();
    words.join(" ")
}

#[test]
fn watchers_on_every_thread_are_told_what_others_do() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let bench = Bench::with(io, |options| options.threads = 3);
        let mut watchers: Vec<_> = (0..6).map(|_| watch(&bench, "fetchers mutations")).collect();
        let mut stream = bench.connect();
        ask(&mut stream, "set a 0 0 3\r\nabc\r\n", "STORED\r\n");
        ask(&mut stream, "get a\r\n", "VALUE a 0 3\r\nabc\r\nEND\r\n");
        for watcher in &mut watchers {
            assert_eq!(next(watcher), "type=item_store key=a status=stored cmd=set ttl=0 clsid=1 size=3");
            assert_eq!(next(watcher), "type=item_get key=a status=found clsid=1 size=3");
        }
        let stats = String::from_utf8(converse(bench.address(), b"stats\r\n")).unwrap();
        assert!(stats.contains("STAT log_watchers 6\r\n") && stats.contains("STAT log_watcher_sent 12\r\n"), "{stats}");
    }
}

/// Until the last one who watches evictions hangs up; what comes then is only counted.
#[test]
fn watchers_are_told_what_a_cache_drops() {
    let bench = Bench::on(Options::new().engine(Engine::Tier).shards(1).capacity_bytes(0), |_| {});
    let (mut watcher, mut stream) = (watch(&bench, "evictions"), bench.connect());
    let value = "v".repeat(100 << 10);
    for number in 0..1000 {
        let expiry = 1000 * (number % 2);
        ask(&mut stream, &format!("set key{number} 0 {expiry} {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    }
    let lines: Vec<String> = (0..200).map(|_| next(&mut watcher)).collect();
    let dropped = |line: &&String| {
        let key = line.strip_prefix("type=eviction key=key").and_then(|rest| rest.split(' ').next());
        let key: usize = key.expect("a key").parse().expect("a number");
        let ttl = line.split("ttl=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a time to live");
        let ttl: i64 = ttl.parse().expect("a number");
        assert!(if key % 2 == 1 { (800..=1000).contains(&ttl) } else { ttl == -1 }, "{line}");
        assert!(line.ends_with(" la=-1 clsid=1 size=102400"), "{line}");
        assert!(line.contains(" fetch=no "), "{line}");
        converse(bench.address(), format!("get key{key}\r\nquit\r\n").as_bytes()) == b"END\r\n"
    };
    assert_eq!(lines.iter().filter(dropped).count(), lines.len());
    let counted = |name: &str| {
        let stats = String::from_utf8(converse(bench.address(), b"stats\r\nquit\r\n")).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("{name} in {stats}")).parse::<u64>().unwrap()
    };
    assert_eq!(counted("log_worker_written"), counted("evictions"));
    watcher.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    watcher.read_to_end(&mut Vec::new()).unwrap();
    let before = (counted("log_worker_written"), counted("evictions"));
    for number in 1000..1500 {
        ask(&mut stream, &format!("set key{number} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    }
    assert_eq!(counted("log_worker_written"), before.0);
    assert!(counted("evictions") > before.1 + 300);
}

#[test]
fn connections_are_told_when_they_come_and_go() {
    let bench = Bench::new();
    let mut watcher = watch(&bench, "connevents");
    let stream = bench.connect();
    let from = stream.local_addr().unwrap();
    let about = format!("rip={} rport={} transport=tcp", from.ip(), from.port());
    assert_eq!(next(&mut watcher), format!("type=conn_new {about}"));
    drop(stream);
    assert_eq!(next(&mut watcher), format!("type=conn_close {about} reason=normal"));
}

#[test]
fn a_watcher_that_hangs_up_is_gone_and_one_that_talks_is_not_heard() {
    let bench = Bench::new();
    let mut watcher = watch(&bench, "mutations");
    watcher.get_mut().write_all(&b"set a 0 0 1\r\n1\r\n".repeat(50_000)).unwrap();
    let mut stream = bench.connect();
    ask(&mut stream, "get a\r\n", "END\r\n");
    ask(&mut stream, "set b 0 0 1\r\n1\r\n", "STORED\r\n");
    assert!(next(&mut watcher).contains("key=b"));
    watcher.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    watcher.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    ask(&mut stream, "set b 0 0 1\r\n1\r\n", "STORED\r\n");
    let stats = String::from_utf8(converse(bench.address(), b"stats\r\n")).unwrap();
    assert!(stats.contains("STAT log_watchers 0\r\n") && stats.contains("STAT log_worker_written 1\r\n"), "{stats}");
}

/// It takes none of its lines until others have caused more than it has room for.
#[test]
fn a_watcher_that_does_not_read_slows_nobody_and_hears_of_what_it_missed() {
    let bench = Bench::with(IoBackend::Auto, |options| options.threads = 2);
    let mut deaf = watch(&bench, "fetchers");
    let (mut heard, mut skipped) = (0, 0);
    // More than its socket takes on top.
    while skipped == 0 {
        let gets = b"mg k q\r\n".repeat(50_000);
        assert_eq!(converse(bench.address(), &[&gets[..], b"mn\r\n"].concat()), b"MN\r\n");
        heard += 50_000;
        assert!(heard < 20_000_000, "the watcher has room without end");
        let stats = String::from_utf8(converse(bench.address(), b"stats\r\n")).unwrap();
        let value = stats.lines().find_map(|line| line.strip_prefix("STAT log_watcher_skipped ")).unwrap();
        skipped = value.parse().unwrap();
    }
    let (mut told, mut missed, mut line) = (0, 0, String::new());
    while told + missed < heard {
        line.clear();
        deaf.read_line(&mut line).unwrap();
        match line.strip_prefix("skipped=") {
            Some(count) => missed += count.trim_end().trim_end_matches(']').parse::<u64>().unwrap(),
            None => told += 1,
        }
    }
    assert_eq!((told, missed), (heard - skipped, skipped), "every line is told or counted");
}

#[test]
fn idle_connections_are_told_of_and_who_watches_in_silence_is_none() {
    let bench = Bench::with(IoBackend::Auto, |options| options.limits.idle_limit = Some(Duration::from_millis(50)));
    let (mut silent, mut watcher) = (watch(&bench, "mutations"), watch(&bench, "connevents"));
    let idle = bench.connect();
    assert!(next(&mut watcher).starts_with("type=conn_new"));
    let told = next(&mut watcher);
    assert!(told.ends_with(&format!("rport={} transport=tcp reason=idle_timeout", idle.local_addr().unwrap().port())));
    ask(&mut bench.connect(), "set a 0 0 1\r\n1\r\n", "STORED\r\n");
    assert!(next(&mut silent).contains("key=a status=stored"));
}

#[test]
fn a_server_stops_though_somebody_watches() {
    let bench = Bench::new();
    let mut watcher = watch(&bench, "fetchers connevents");
    bench.server.shutdown();
    bench.server.join().unwrap();
    let mut rest = Vec::new();
    watcher.read_to_end(&mut rest).unwrap();
}
