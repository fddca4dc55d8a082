//! Limits of a server: how long a connection may be idle, and what it costs.

use std::io::{Read, Write};
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
        let (server, _store, _directory) = serve(io, |options| options.idle_limit = Some(limit));
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
