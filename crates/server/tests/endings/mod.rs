//! Connections that the server ends: what they hold afterwards, however their clients behave.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stratakv::IoBackend;

use super::{Bench, ask, is_ended};

/// What `stats` says of a name.
fn figure(bench: &Bench, name: &str) -> u64 {
    let stats = bench.store_stats();
    stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} "))).unwrap().parse().unwrap()
}

impl Bench {
    fn store_stats(&self) -> String {
        String::from_utf8(super::converse(self.address(), b"stats\r\n")).unwrap()
    }
}

/// Five that had said `quit` locked everybody else out until they closed their sockets too.
#[test]
fn who_was_hung_up_on_takes_no_place_of_others() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let bench = Bench::with(io, |options| options.limits.connections_max = 5);
        let mut gone: Vec<TcpStream> = Vec::new();
        for _ in 0..20 {
            let mut stream = bench.connect();
            ask(&mut stream, "mn\r\n", "MN\r\n");
            stream.write_all(b"quit\r\n").unwrap();
            assert!(is_ended(&mut stream));
            gone.push(stream);
        }
        assert_eq!(figure(&bench, "curr_connections"), 1);
        assert_eq!(figure(&bench, "rejected_connections"), 0);
        let conns = String::from_utf8(super::converse(bench.address(), b"stats conns\r\n")).unwrap();
        assert_eq!(conns.matches("conn_read").count(), 1, "{conns}");
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Their descriptors are given back although they never close their ends.
#[test]
fn who_was_hung_up_on_is_closed_after_a_while() {
    let bench = Bench::with(IoBackend::Auto, |_| {});
    let mut gone: Vec<TcpStream> = Vec::new();
    for _ in 0..40 {
        let mut stream = bench.connect();
        stream.write_all(b"quit\r\n").unwrap();
        assert!(is_ended(&mut stream));
        // What it still says is thrown away, and comes to nothing.
        stream.write_all(b"set a 0 0 1\r\n1\r\n").unwrap();
        gone.push(stream);
    }
    // Tests of other threads have descriptors too: only those of this server are looked at.
    let ours = |stream: &TcpStream| {
        let mut stream = stream.try_clone().unwrap();
        stream.set_nonblocking(true).unwrap();
        // A socket that is closed answers what was sent to it with a reset.
        stream.write_all(b"x").and_then(|()| stream.write_all(b"x")).is_err()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !gone.iter().all(ours) {
        assert!(Instant::now() < deadline, "{} descriptors are open", descriptors());
        std::thread::sleep(Duration::from_millis(10));
    }
    ask(&mut bench.connect(), "get a\r\n", "END\r\n");
}

/// An answer reaches a client that goes on sending when it was hung up on: closing at once would
/// take it back.
#[test]
fn a_last_answer_is_not_taken_back() {
    let bench = Bench::with(IoBackend::Auto, |_| {});
    ask(&mut bench.connect(), &format!("set a 0 0 100000\r\n{}\r\n", "x".repeat(100_000)), "STORED\r\n");
    for _ in 0..20 {
        let mut stream = bench.connect();
        stream.write_all(&[&b"get a\r\nquit\r\n"[..], &[b'y'; 30_000]].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer.len(), "VALUE a 0 100000\r\n\r\nEND\r\n".len() + 100_000);
    }
}
