//! More than a client should ask for: a million requests in one go, with answers that are read or
//! not, and ten thousand connections.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use stratakv_integration::program::{Serve, Served};
use stratakv_integration::{place, process, requirement};
use tempfile::TempDir;

const REQUESTS: usize = 1_000_000;
const KEYS: usize = 16;
const VALUE: &[u8] = &[b'v'; 64];

/// A server with the keys that are asked for.
fn serve(options: &[&str]) -> (TempDir, Served) {
    let place = place::directory();
    let served = Serve::on(&place.path().join("data")).options(&["--memory", "64M"]).options(options).start();
    let mut client = served.client();
    for number in 0..KEYS {
        assert_eq!(client.set(key(number).as_bytes(), VALUE).expect("answered"), "STORED");
    }
    (place, served)
}

fn key(number: usize) -> String {
    format!("key-{:028}", number % KEYS)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server takes connections");
    // A test that would hang fails instead.
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket can be told to wait");
    stream
}

/// Ends a connection: who still writes to it, when a test has failed, does not wait for ever.
struct HangUp<'a>(&'a TcpStream);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// The request of this number, and its answer: opaque words and misses of another length tell one
/// from the next.
fn exchange(number: usize, request: &mut Vec<u8>, answer: &mut Vec<u8>) {
    let (key, len) = (key(number), VALUE.len());
    // Writing to a vector does not fail.
    let _ = match number % 4 {
        0 => write!(request, "mn\r\n").and_then(|()| write!(answer, "MN\r\n")),
        1 => write!(request, "get {key}\r\n").and_then(|()| write!(answer, "VALUE {key} 0 {len}\r\n")),
        2 => write!(request, "mg {key} v O{number}\r\n").and_then(|()| write!(answer, "VA {len} O{number}\r\n")),
        _ => write!(request, "get absent-{number}\r\n").and_then(|()| write!(answer, "END\r\n")),
    };
    if matches!(number % 4, 1 | 2) {
        answer.extend_from_slice(VALUE);
        answer.extend_from_slice(if number % 4 == 1 { b"\r\nEND\r\n" } else { b"\r\n" });
    }
}

/// Requests that are sent in one piece.
const PIECE: usize = 1000;

/// Sends all requests, and counts them as they go.
fn send_all(mut stream: &TcpStream, sent: &AtomicUsize) {
    let (mut requests, mut unused) = (Vec::new(), Vec::new());
    for first in (0..REQUESTS).step_by(PIECE) {
        requests.clear();
        unused.clear();
        (first..first + PIECE).for_each(|number| exchange(number, &mut requests, &mut unused));
        stream.write_all(&requests).expect("the server takes requests");
        sent.fetch_add(PIECE, Ordering::Relaxed);
    }
}

/// Reads the answers to all of them, in order.
fn read_all(stream: &TcpStream) {
    let mut reader = BufReader::with_capacity(1 << 20, stream);
    let (mut expected, mut answers, mut unused) = (Vec::new(), Vec::new(), Vec::new());
    for first in (0..REQUESTS).step_by(PIECE) {
        expected.clear();
        unused.clear();
        (first..first + PIECE).for_each(|number| exchange(number, &mut unused, &mut expected));
        answers.resize(expected.len(), 0);
        reader.read_exact(&mut answers).unwrap_or_else(|error| panic!("request {first} and later: {error}"));
        assert!(answers == expected, "answers to request {first} and later are not in order");
    }
}

/// 2 MiB of answers that are not taken, 64 KiB that were received, 64 commands; what the allocator
/// keeps of it besides.
const PIPELINE_BYTES_MAX: u64 = 8 << 20;

#[test]
fn a_million_requests_in_one_go_are_answered_in_order() {
    for io in ["auto", "blocking"] {
        let (_place, served) = serve(&["--io", io]);
        let before = served.memory_bytes();
        let stream = connect(served.address());
        std::thread::scope(|scope| {
            scope.spawn(|| send_all(&stream, &AtomicUsize::new(0)));
            let _hang_up = HangUp(&stream);
            read_all(&stream);
        });
        let grown = served.memory_peak_bytes().saturating_sub(before);
        assert!(grown < PIPELINE_BYTES_MAX, "{grown} bytes of memory for a pipeline, io {io}");
    }
}

/// It is not read from any more, and has all its answers when it reads after all.
#[test]
fn a_million_requests_of_a_client_that_does_not_read_harm_nobody() {
    let (_place, served) = serve(&["--threads", "1"]);
    let before = served.memory_bytes();
    let (stream, sent) = (connect(served.address()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| send_all(&stream, &sent));
        let _hang_up = HangUp(&stream);
        let mut other = served.client();
        let mut seen = 0;
        // Until nothing more was taken while others were served.
        loop {
            for number in 0..200 {
                let found = other.get(key(number).as_bytes()).expect("others are served");
                assert_eq!(found.as_deref(), Some(VALUE));
            }
            match sent.load(Ordering::Relaxed) {
                now if now == seen && now > 0 => break,
                now => seen = now,
            }
        }
        assert!(seen < REQUESTS, "all was taken from a client that reads nothing");
        let grown = served.memory_peak_bytes().saturating_sub(before);
        assert!(grown < PIPELINE_BYTES_MAX, "{grown} bytes of memory for a client that does not read");
        read_all(&stream);
    });
}

const CONNECTIONS: usize = 10_000;
/// Beside those of other tests.
const FILES: u64 = CONNECTIONS as u64 + 2000;

/// Of an idle connection that has asked once: its receive buffer and what is known of it (see
/// docs/operations.md), and as much again.
const IDLE_BYTES_MAX: u64 = 8 << 10;

fn statistic(served: &Served, name: &str) -> u64 {
    served.client().statistic(name).expect("an answer").unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn ten_thousand_connections_are_idle_and_another_client_is_served() {
    if process::allow_open_files(FILES) < FILES {
        return requirement::skip("the hard limit of open files is below 12,000 (ulimit -Hn)").unwrap_or_default();
    }
    let (_place, served) = serve(&["--connections", "10100"]);
    let before = served.memory_bytes();
    let idle: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = connect(served.address());
            stream.write_all(b"mn\r\n").expect("sent");
            stream.read_exact(&mut [0; 4]).expect("answered");
            stream
        })
        .collect();
    assert!(statistic(&served, "curr_connections") > CONNECTIONS as u64);
    assert_eq!(served.client().get(key(1).as_bytes()).expect("answered").as_deref(), Some(VALUE));
    let each = served.memory_bytes().saturating_sub(before) / CONNECTIONS as u64;
    assert!(each < IDLE_BYTES_MAX, "{each} bytes of memory for an idle connection");
    // They have stayed all the time, and may ask again.
    for mut stream in idle.iter().step_by(100) {
        stream.write_all(b"mn\r\n").expect("sent");
        stream.read_exact(&mut [0; 4]).expect("answered");
    }
    drop(idle);
    while statistic(&served, "curr_connections") > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn a_server_that_has_no_descriptor_left_serves_who_is_there_and_others_later() {
    for io in ["auto", "blocking"] {
        let (_place, served) = serve(&["--threads", "1", "--io", io]);
        let mut early = served.client();
        assert_eq!(early.ask("mn").expect("answered"), "MN");
        let server = i32::try_from(served.id()).ok().and_then(Pid::from_raw);
        let open = std::fs::read_dir(format!("/proc/{}/fd", served.id())).expect("the server runs").count() as u64;
        let limit = |current| {
            let limit = Rlimit { current: Some(current), maximum: getrlimit(Resource::Nofile).maximum };
            prlimit(server, Resource::Nofile, limit).expect("a child's limit can be changed")
        };
        let before = limit(open);
        // More than one: an accept that is under way may have the limit from before.
        let mut late: Vec<TcpStream> = (0..3).map(|_| connect(served.address())).collect();
        loop {
            if early.statistic("listen_disabled_num").expect("an answer").expect("it is told") > 0 {
                break;
            }
        }
        limit(before.current.expect("the server has set one"));
        for stream in &mut late {
            stream.write_all(b"mn\r\n").expect("sent");
            stream.read_exact(&mut [0; 4]).expect("answered");
        }
        assert!(statistic(&served, "time_in_listen_disabled_us") > 0, "io {io}");
        assert_eq!(statistic(&served, "accepting_conns"), 1, "io {io}");
    }
}
