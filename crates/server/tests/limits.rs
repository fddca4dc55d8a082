//! Limits of a server: how long a connection may be idle, a request unfinished and an answer not
//! taken.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use stratakv::{IoBackend, Level, Options, Store};
use stratakv_server::{Server, ServerOptions};

fn serve(io: IoBackend, change: impl FnOnce(&mut ServerOptions)) -> (Server, Store, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().shards(1).memory_bytes(64 << 20).level(Level::ProcessCrash).io(io);
    let store = options.open(directory.path().join("data")).unwrap();
    let memcache = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let mut options = ServerOptions { memcache, threads: 2, ..ServerOptions::default() };
    change(&mut options);
    (Server::start(store.clone(), options).unwrap(), store, directory)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, command: &str, expected: &str) {
    stream.write_all(command.as_bytes()).unwrap();
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

#[test]
fn a_connection_that_is_idle_for_too_long_is_closed() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let limit = Duration::from_millis(200);
        let (server, _store, _directory) = serve(io, |options| options.limits.idle_limit = Some(limit));
        let mut stream = connect(&server);
        let since = Instant::now();
        ask(&mut stream, "get a\r\n", "END\r\n");
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
        assert!(since.elapsed() >= limit / 2, "closed after {:?}", since.elapsed());
    }
}

#[test]
fn an_idle_limit_may_be_set_while_threads_sleep() {
    let (server, _store, _directory) = serve(IoBackend::Auto, |_| {});
    let mut streams: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    streams.iter_mut().for_each(|stream| ask(stream, "get a\r\n", "END\r\n"));
    server.set_idle_limit(Some(Duration::from_millis(10)));
    for stream in &mut streams {
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}

/// Errors cost a client nothing. One that goes on making them waits, and then takes up no thread.
#[test]
fn errors_are_answered_at_a_pace_and_commands_of_others_meanwhile() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let (server, _store, _directory) = serve(io, |_| {});
        let (mut wrong, mut honest) = (connect(&server), connect(&server));
        let begun = Instant::now();
        wrong.write_all(&b"foo bar\r\n".repeat(400)).unwrap();
        ask(&mut honest, "get a\r\n", "END\r\n");
        let mut answers = vec![0; b"ERROR\r\n".len() * 400];
        wrong.read_exact(&mut answers).unwrap();
        assert_eq!(answers, b"ERROR\r\n".repeat(400), "each is answered");
        // 128 at once, then 160 in a second; the last ones come with the tick in which they may.
        assert!(begun.elapsed() >= Duration::from_millis(1000), "400 errors within {:?}", begun.elapsed());
        ask(&mut wrong, "get a\r\n", "END\r\n");
    }
}

fn curr_connections(stream: &mut TcpStream) -> usize {
    stream.write_all(b"stats\r\n").unwrap();
    let mut told = Vec::new();
    while !told.ends_with(b"END\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        told.push(byte[0]);
    }
    let told = String::from_utf8(told).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("STAT curr_connections ")).unwrap();
    line.parse().unwrap()
}

/// They held their buffers for ever.
#[test]
fn a_request_that_does_not_go_on_ends_its_connection_and_one_that_is_idle_stays() {
    let begun: [&[u8]; 5] = [
        b"get a",
        b"set a 0 0 10\r\n0123",
        b"set a 0 0 100000\r\n0123",
        b"ms a 100000\r\n0123",
        b"\x80\x01\0\x01\x08\0\0\0\0\0\0\x64\0\0\0\0\0\0\0\0\0\0\0\0",
    ];
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let (server, _store, _directory) =
            serve(io, |options| options.limits.request_limit = Some(Duration::from_millis(100)));
        let mut idle = connect(&server);
        ask(&mut idle, "get a\r\n", "END\r\n");
        for request in begun {
            let mut stream = connect(&server);
            stream.write_all(request).unwrap();
            assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "{}", request.escape_ascii());
        }
        ask(&mut idle, "get a\r\n", "END\r\n");
    }
}

#[test]
fn an_answer_that_is_not_taken_ends_its_connection() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let (server, _store, _directory) =
            serve(io, |options| options.limits.request_limit = Some(Duration::from_millis(200)));
        let mut other = connect(&server);
        let value = "v".repeat(1_000_000);
        ask(&mut other, &format!("set a 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
        let mut deaf = connect(&server);
        deaf.write_all(&b"get a\r\n".repeat(64)).unwrap();
        while curr_connections(&mut other) < 2 {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        while curr_connections(&mut other) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is still there");
            std::thread::yield_now();
        }
    }
}

/// One send takes longer than the limit: what the kernel says that the client took counts.
#[test]
fn a_client_that_takes_its_answer_slowly_has_all_of_it() {
    let (server, _store, _directory) =
        serve(IoBackend::Auto, |options| options.limits.request_limit = Some(Duration::from_millis(800)));
    let value = "v".repeat(1_000_000);
    let mut stream = connect(&server);
    ask(&mut stream, &format!("set a 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    stream.write_all(&b"get a\r\n".repeat(16)).unwrap();
    let expected = 16 * (b"VALUE a 0 1000000\r\n\r\nEND\r\n".len() + value.len());
    let (mut taken, mut piece) = (0, vec![0; 256 << 10]);
    while taken < expected {
        std::thread::sleep(Duration::from_millis(20));
        let bytes = match stream.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        assert!(bytes > 0, "closed after {taken} bytes of {expected}");
        taken += bytes;
    }
}
