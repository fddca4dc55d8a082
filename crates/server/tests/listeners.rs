//! What a server listens on beside TCP addresses: UNIX sockets, sockets that it was given, TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use stratakv::{IoBackend, Level, Options, Store};
use stratakv_server::{Error, Inherited, RespListeners, Server, ServerOptions, TlsOptions};

fn store(io: IoBackend) -> (Store, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().shards(1).memory_bytes(64 << 20).level(Level::ProcessCrash).io(io);
    (options.open(directory.path().join("data")).unwrap(), directory)
}

fn options() -> ServerOptions {
    ServerOptions { memcache: Vec::new(), threads: 2, ..ServerOptions::default() }
}

/// Commands and the whole answer.
fn converse(mut stream: impl Read + Write, commands: &str) -> String {
    stream.write_all(format!("{commands}quit\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_unix_socket_is_served_with_its_mode_and_removed() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let (store, directory) = store(io);
        let path = directory.path().join("socket");
        let options = ServerOptions { unix: vec![path.clone()], unix_mode: 0o640, ..options() };
        let server = Server::start(store.clone(), options.clone()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let answer = converse(UnixStream::connect(&path).unwrap(), "set a 0 0 1\r\n1\r\nget a\r\n");
        assert_eq!(answer, "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
        let refused = Server::start(store.clone(), options).err().expect("it is taken").to_string();
        assert!(refused.contains("another process listens") && refused.contains("unix:"), "{refused}");
        let mut idle = UnixStream::connect(&path).unwrap();
        idle.write_all(b"get b\r\n").unwrap();
        idle.read_exact(&mut [0; 5]).unwrap();
        let begun = Instant::now();
        server.shutdown();
        server.join().unwrap();
        // What does not end by itself is cut off, after ten seconds.
        assert!(begun.elapsed() < Duration::from_secs(9), "the accept did not end");
        assert_eq!(idle.read_to_end(&mut Vec::new()).unwrap(), 0);
        assert!(!path.exists());
    }
}

#[test]
fn a_socket_file_that_was_left_is_replaced_anything_else_is_not() {
    let (store, directory) = store(IoBackend::Auto);
    let serve = |path: &Path| Server::start(store.clone(), ServerOptions { unix: vec![path.to_owned()], ..options() });
    let left = directory.path().join("left");
    drop(UnixListener::bind(&left).unwrap());
    let server = serve(&left).unwrap();
    assert_eq!(std::fs::metadata(&left).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(converse(UnixStream::connect(&left).unwrap(), "get a\r\n"), "END\r\n");
    // Another one has taken its place: it is not ours to remove.
    std::fs::remove_file(&left).unwrap();
    let other = UnixListener::bind(&left).unwrap();
    drop(server);
    assert!(left.exists());
    drop(other);

    let file = directory.path().join("file");
    std::fs::write(&file, b"precious").unwrap();
    let refused = serve(&file).err().expect("it is a file");
    assert!(matches!(refused, Error::Listen { .. }) && refused.to_string().contains("no socket"), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    for path in [directory.path().join("absent/socket"), directory.path().join("x".repeat(200))] {
        let refused = serve(&path).err().expect("it cannot be made").to_string();
        assert!(refused.contains("directory must exist"), "{refused}");
    }
}

/// Who asked whether somebody listens waited with those who wait to be accepted.
#[test]
fn a_socket_whose_backlog_is_full_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waits = UnixStream::connect(&path).unwrap();
    let refused = stratakv_server::check_socket_path(&path, std::iter::empty()).unwrap_err().to_string();
    assert!(refused.contains("another process listens"), "{refused}");
}

/// A socket in a store's directory was refused before its first start made that.
#[test]
fn a_directory_that_will_be_made_counts_as_there() {
    let check =
        |path: &str, made: &str| stratakv_server::check_socket_path(Path::new(path), [Path::new(made)].into_iter());
    for (path, made) in [("no/socket", "./no"), ("./no/socket", "no/such/store"), ("/no/socket", "/no/such")] {
        check(path, made).unwrap();
    }
    for (path, made) in [("no/socket", "other"), ("no/such/socket", "no"), ("/no/socket", "no")] {
        check(path, made).unwrap_err();
    }
}

#[test]
fn sockets_that_were_inherited_are_served_and_still_listen_afterwards() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let (store, directory) = store(io);
        let path = directory.path().join("socket");
        let (tcp, unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
        let address = tcp.local_addr().unwrap();
        let inherited = [OwnedFd::from(tcp), OwnedFd::from(unix)];
        let inherited = inherited.map(|socket| Inherited { socket: Arc::new(socket.into()), tls: false });
        for _ in 0..2 {
            let options = ServerOptions { inherited: inherited.to_vec(), ..options() };
            let server = Server::start(store.clone(), options).unwrap();
            assert_eq!(converse(TcpStream::connect(address).unwrap(), "get a\r\n"), "END\r\n");
            assert_eq!(converse(UnixStream::connect(&path).unwrap(), "get a\r\n"), "END\r\n");
            server.shutdown();
            server.join().unwrap();
        }
        // Nobody serves, and clients wait for the next one.
        TcpStream::connect(address).unwrap();
        UnixStream::connect(&path).unwrap();
        assert!(path.exists());
    }
}

/// Only TCP addresses of the server's own were.
#[test]
fn all_that_is_listened_on_is_listed() {
    let (store, directory) = store(IoBackend::Auto);
    let (path, given_path) = (directory.path().join("socket"), directory.path().join("given"));
    let (tcp, unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&given_path).unwrap());
    let given = tcp.local_addr().unwrap();
    let inherited = [OwnedFd::from(tcp), OwnedFd::from(unix)];
    let inherited = inherited.map(|socket| Inherited { socket: Arc::new(socket.into()), tls: false }).to_vec();
    let memcache = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let server = Server::start(store, ServerOptions { memcache, unix: vec![path.clone()], inherited, ..options() });
    let own = server.as_ref().unwrap().addresses()[0];
    let listed = converse(UnixStream::connect(&path).unwrap(), "stats conns\r\n");
    let addresses = [
        format!("tcp:{own}"),
        format!("unix:{}", path.display()),
        format!("tcp:{given}"),
        format!("unix:{}", given_path.display()),
    ];
    // By their descriptors, as memcached's.
    let number_of = |address: &str| {
        let mut lines = listed.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(":addr "));
        let (number, _) = lines.find(|(_, of)| *of == address).unwrap_or_else(|| panic!("no {address}: {listed}"));
        number
    };
    let mut numbers: Vec<&str> = addresses.iter().map(|address| number_of(address)).collect();
    for number in &numbers {
        assert!(listed.contains(&format!("STAT {number}:state conn_listening\r\n")), "{number}: {listed}");
    }
    assert_eq!(listed.matches("conn_listening").count(), 4, "{listed}");
    numbers.push(number_of("unix:"));
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 5, "each is told apart, and so is who asks: {listed}");
}

/// Files of a certificate for localhost.
fn certify(directory: &Path) -> (TlsOptions, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (certificate, key) = (directory.join("server.pem"), directory.join("server.key"));
    std::fs::write(&certificate, cert.pem()).unwrap();
    std::fs::write(&key, signing_key.serialize_pem()).unwrap();
    (TlsOptions { certificate, key, client_authority: None }, cert.der().clone())
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

fn connect(address: SocketAddr, trusted: &CertificateDer<'static>) -> TlsStream {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    StreamOwned::new(ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap(), stream)
}

fn serve_tls(io: IoBackend) -> (Server, CertificateDer<'static>, tempfile::TempDir) {
    let (store, directory) = store(io);
    let (tls, certificate) = certify(directory.path());
    let tls_memcache = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let server = Server::start(store, ServerOptions { tls_memcache, tls: Some(tls), ..options() }).unwrap();
    (server, certificate, directory)
}

#[test]
fn tls_clients_are_answered_as_others_are() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let (server, certificate, _directory) = serve_tls(io);
        let address = server.addresses()[0];
        let long: String = (0..1 << 20).map(|at| char::from(b'a' + (at * 7 + at / 26) as u8 % 26)).collect();
        let commands = format!("set a 0 0 1\r\n1\r\nset long 0 0 {}\r\n{long}\r\nget a\r\nget long\r\n", long.len());
        let expected =
            format!("STORED\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nEND\r\nVALUE long 0 {}\r\n{long}\r\nEND\r\n", long.len());
        // It reads to an end that the server has announced: else it would be an error.
        assert!(converse(connect(address, &certificate), &commands) == expected);
        let gets = "get a\r\n".repeat(2000);
        assert!(converse(connect(address, &certificate), &gets) == "VALUE a 0 1\r\n1\r\nEND\r\n".repeat(2000));
        let many: Vec<_> = (0..20)
            .map(|_| {
                let mut stream = connect(address, &certificate);
                stream.write_all(b"get a\r\n").unwrap();
                stream
            })
            .collect();
        for mut stream in many {
            let mut answer = [0; 24];
            stream.read_exact(&mut answer[..19]).unwrap();
            assert_eq!(&answer[..19], b"VALUE a 0 1\r\n1\r\nEND");
        }
    }
}

/// Lines come unasked: nothing of the client's wakes the layer between.
#[test]
fn who_watches_by_tls_is_told_too_and_the_settings_said_that_there_was_none() {
    let (server, certificate, _directory) = serve_tls(IoBackend::Auto);
    let address = server.addresses()[0];
    let mut watcher = connect(address, &certificate);
    watcher.write_all(b"watch mutations\r\n").unwrap();
    watcher.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(converse(connect(address, &certificate), "set a 0 0 1\r\n1\r\n"), "STORED\r\n");
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        watcher.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let line = String::from_utf8(line).unwrap();
    assert!(line.contains("type=item_store key=a status=stored cmd=set"), "{line}");
    assert!(converse(connect(address, &certificate), "stats settings\r\n").contains("STAT ssl_enabled yes\r\n"));
}

#[test]
fn clients_that_speak_no_tls_or_vanish_harm_no_tls_client() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let (server, certificate, _directory) = serve_tls(io);
        let address = server.addresses()[0];
        let mut stream = connect(address, &certificate);
        for bytes in [&b"get a\r\nget a\r\n"[..], b"", b"\x16\x03\x01\x02\x00", &[0x16; 70_000]] {
            let mut plain = TcpStream::connect(address).unwrap();
            plain.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            // It may be hung up on before all is sent.
            let _ = plain.write_all(bytes);
            let _ = plain.shutdown(std::net::Shutdown::Write);
            let _ = plain.read_to_end(&mut Vec::new());
            stream.write_all(b"get a\r\n").unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
        }
        // In the middle of a value.
        let mut half = connect(address, &certificate);
        half.write_all(b"set half 0 0 100\r\nabc").unwrap();
        half.flush().unwrap();
        drop(half);
        stream.write_all(b"get half\r\n").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        server.shutdown();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "the end is announced");
        server.join().unwrap();
    }
}

#[test]
fn a_certificate_is_exchanged_while_serving() {
    let (server, old, directory) = serve_tls(IoBackend::Auto);
    let address = server.addresses()[0];
    let mut before = connect(address, &old);
    before.write_all(b"get a\r\n").unwrap();
    before.read_exact(&mut [0; 5]).unwrap();
    let (_, new) = certify(directory.path());
    // A client may ask for it, and so may the process.
    assert_eq!(converse(connect(address, &old), "refresh_certs\r\n"), "OK\r\n");
    assert_eq!(converse(connect(address, &new), "get a\r\n"), "END\r\n");
    assert!(connect(address, &old).write_all(b"get a\r\n").is_err());
    before.write_all(b"get a\r\n").unwrap();
    before.read_exact(&mut [0; 5]).unwrap();
    // What is no good leaves what there is.
    std::fs::write(directory.path().join("server.key"), b"garbage").unwrap();
    assert!(matches!(server.reload(None), Err(Error::Option(_))));
    assert!(converse(connect(address, &new), "refresh_certs\r\n").starts_with("ERROR "));
    assert_eq!(converse(connect(address, &new), "get a\r\n"), "END\r\n");
}

#[test]
fn tls_without_a_certificate_and_modes_that_are_none_are_refused() {
    let (store, directory) = store(IoBackend::Auto);
    let tls_memcache = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let refused = Server::start(store.clone(), ServerOptions { tls_memcache, ..options() }).err().unwrap().to_string();
    assert!(refused.contains("--tls-cert"), "{refused}");
    let unix = vec![directory.path().join("socket")];
    let refused = Server::start(store, ServerOptions { unix, unix_mode: 0o1777, ..options() }).err().unwrap();
    assert!(refused.to_string().contains("1777"), "{refused}");
}

/// Redis clients by TLS and by a UNIX socket, who have to say who they are.
#[test]
fn redis_clients_are_served_by_tls_and_unix_sockets_and_log_in() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let (store, directory) = store(io);
        let (tls, certificate) = certify(directory.path());
        let accounts = directory.path().join("accounts");
        std::fs::write(&accounts, "user:pass\n").unwrap();
        let path = directory.path().join("resp");
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let resp =
            RespListeners { tls_addresses: vec![any_port], unix: vec![path.clone()], ..RespListeners::default() };
        let options = ServerOptions { resp, tls: Some(tls), auth_file: Some(accounts), unix_mode: 0o600, ..options() };
        let server = Server::start(store, options).unwrap();
        assert!(server.addresses().is_empty() && server.resp_addresses().len() == 1);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let expected = "-NOAUTH Authentication required.\r\n+OK\r\n+OK\r\n$1\r\n1\r\n+OK\r\n";
        let commands = "get a\r\nauth user pass\r\nset a 1\r\nget a\r\n";
        assert_eq!(converse(connect(server.resp_addresses()[0], &certificate), commands), expected);
        assert_eq!(converse(UnixStream::connect(&path).unwrap(), commands), expected);
        server.shutdown();
        server.join().unwrap();
        assert!(!path.exists());
    }
}

#[test]
fn tls_for_redis_clients_needs_a_certificate_too() {
    let tls_addresses = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let resp = RespListeners { tls_addresses, ..RespListeners::default() };
    let refused = ServerOptions { resp, ..options() }.check().unwrap_err().to_string();
    assert!(refused.contains("TLS needs a certificate"), "{refused}");
}
