//! What a server is sent that it should not be: a clear answer, the connection in step or closed,
//! nothing lost.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use stratakv_base::random::Random;
use stratakv_integration::memcache::Client;
use stratakv_integration::place;
use stratakv_integration::program::{Serve, Served, run, said};
use tempfile::TempDir;

/// A server with a record that must stay as it is.
fn serve() -> (TempDir, Served) {
    let place = place::directory();
    let served = Serve::on(&place.path().join("data")).options(&["--memory", "128M"]).start();
    assert_eq!(served.client().set(b"steady", b"as it was").expect("answered"), "STORED");
    (place, served)
}

/// The server serves others, and the record is as it was.
fn check(served: &Served) {
    let found = served.client().get(b"steady").expect("others are served");
    assert_eq!(found.as_deref(), Some(&b"as it was"[..]));
}

/// Sends; expects a first line that begins so; then the same connection must still be in step.
fn refused(served: &Served, sent: &[u8], answer: &str) {
    let shown = sent[..sent.len().min(60)].escape_ascii().to_string();
    let mut client = served.client();
    client.send(sent).expect("sent");
    let line = client.line().unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert!(line.starts_with(answer), "{shown} was answered `{line}`");
    in_step(&mut client, &shown);
    check(served);
}

/// What comes next is the answer to what is asked next (further errors for the rest of a broken
/// command may come first).
fn in_step(client: &mut Client, shown: &str) {
    client.send(b"mn\r\nget steady\r\n").expect("sent");
    for _ in 0..50 {
        match client.line().unwrap_or_else(|error| panic!("after {shown}: {error}")).as_str() {
            "VALUE steady 0 9" => {
                assert_eq!(client.line().expect("a value"), "as it was");
                assert_eq!(client.line().expect("an end"), "END");
                return;
            }
            line => assert!(line == "MN" || line.contains("ERROR"), "after {shown}: `{line}`"),
        }
    }
    panic!("after {shown}: out of step");
}

#[test]
fn commands_that_are_wrong() {
    let (_place, served) = serve();
    let long = "k".repeat(251);
    for (sent, answer) in [
        ("get\r\n".to_owned(), "ERROR"),
        ("get  \r\n".to_owned(), "ERROR"),
        (format!("get {long}\r\n"), "CLIENT_ERROR"),
        (format!("set {long} 0 0 1\r\nx\r\n"), "CLIENT_ERROR"),
        (format!("delete {long}\r\n"), "CLIENT_ERROR"),
        ("conquer the world\r\n".to_owned(), "ERROR"),
        ("\r\n".to_owned(), "ERROR"),
        ("set k\r\n".to_owned(), "ERROR"),
        ("set k abc 0 1\r\nx\r\n".to_owned(), "CLIENT_ERROR"),
        ("set k 0 abc 1\r\nx\r\n".to_owned(), "CLIENT_ERROR"),
        ("set k 0 0 abc\r\nx\r\n".to_owned(), "CLIENT_ERROR"),
        ("set k 0 0 -1\r\n".to_owned(), "CLIENT_ERROR"),
        ("set k 4294967296 0 1\r\nx\r\n".to_owned(), "CLIENT_ERROR"),
        ("cas k 0 0 1 nonsense\r\nx\r\n".to_owned(), "CLIENT_ERROR"),
        ("incr steady 1\r\n".to_owned(), "CLIENT_ERROR"),
        ("incr steady abc\r\n".to_owned(), "CLIENT_ERROR"),
        ("touch steady abc\r\n".to_owned(), "CLIENT_ERROR"),
        ("set k 0 0 3\r\nabcdef\r\n".to_owned(), "CLIENT_ERROR"),
    ] {
        refused(&served, sent.as_bytes(), answer);
    }
    assert_eq!(served.client().get(b"k").expect("a get"), None, "no wrong command stored anything");
}

/// A value of any length that is announced but too long is not held in memory: it is thrown away as
/// it comes and refused behind it, or refused at once and not taken.
#[test]
fn lengths_that_are_too_large() {
    let (_place, served) = serve();
    let before = served.memory_bytes();
    let mut client = served.client();
    client.send(b"set k 0 0 67108865\r\n").expect("sent");
    let mebibyte = vec![b'x'; 1 << 20];
    (0..64).for_each(|_| client.send(&mebibyte).expect("it is taken"));
    client.send(b"x\r\n").expect("sent");
    let line = client.line().expect("answered");
    assert!(line.starts_with("SERVER_ERROR object too large"), "{line}");
    assert_eq!(client.get(b"k").expect("the connection goes on"), None);
    // Who leaves in the middle is no harm.
    let mut leaver = served.client();
    leaver.send(b"set k 0 0 1073741824\r\n").and_then(|()| leaver.send(&mebibyte)).expect("sent");
    drop(leaver);
    for len in ["4294967295", "9223372036854775807", "18446744073709551616", "99999999999999999999999"] {
        let mut client = served.client();
        client.send(format!("set k 0 0 {len}\r\n").as_bytes()).expect("sent");
        let line = client.line().expect("answered");
        assert!(line.starts_with("SERVER_ERROR") || line.starts_with("CLIENT_ERROR"), "{len}: {line}");
        // Whatever follows may be dropped with the connection, but must not be taken for commands
        // that store.
        let _ = client.send(&vec![b'x'; 1 << 20]);
    }
    check(&served);
    assert_eq!(served.client().get(b"k").expect("a get"), None);
    let grown = served.memory_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes of memory for refused values");
}

#[test]
fn halves() {
    let (_place, served) = serve();
    for half in [
        &b"se"[..],
        b"set half 0 0 10",
        b"set half 0 0 10\r\n",
        b"set half 0 0 10\r\n01234",
        b"set half 0 0 10\r\n0123456789\r",
    ] {
        let mut client = served.client();
        client.send(half).expect("sent");
        client.stream().shutdown(Shutdown::Both).expect("a socket can be shut down");
        drop(client);
        check(&served);
        assert_eq!(served.client().get(b"half").expect("a get"), None, "{}", half.escape_ascii());
    }
    // The same bytes one at a time are a command like any other.
    let mut client = served.client();
    for byte in b"set slow 0 0 3\r\nabc\r\nget slow\r\n" {
        client.send(&[*byte]).expect("sent");
    }
    assert_eq!(client.line().expect("answered"), "STORED");
    assert_eq!(client.hits().expect("answered")[0].value, b"abc");
}

#[test]
fn garbage() {
    let (_place, served) = serve();
    let mut random = Random::new(1);
    for round in 0..30 {
        let mut bytes = vec![0; 20_000];
        random.fill(&mut bytes);
        if round % 3 == 0 {
            bytes.iter_mut().for_each(|byte| *byte = b' ' + *byte % 90);
        }
        let mut client = served.client();
        // The server may close on us at any point; that it goes on serving others is what counts.
        let _ = client.send(&bytes);
        let _ = client.stream().shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = client.stream().read_to_end(&mut answer);
        check(&served);
    }
    let before = served.memory_bytes();
    let mut endless = served.client();
    // Once the server has given up on us nobody reads: the kernel then refuses, or lets us wait.
    endless.stream().set_write_timeout(Some(Duration::from_secs(1))).expect("a socket can be told to wait");
    for _ in 0..64 {
        if endless.send(&vec![b'a'; 1 << 20]).is_err() {
            break;
        }
    }
    check(&served);
    let grown = served.memory_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes of memory for a line without end");
}

#[test]
fn a_client_that_stops_reading() {
    let (_place, served) = serve();
    let value = vec![b'v'; 1 << 20];
    assert_eq!(served.client().set(b"large", &value).expect("answered"), "STORED");
    let before = served.memory_bytes();
    let mut stuck = served.client();
    const GETS: usize = 400;
    stuck.stream().set_nonblocking(true).expect("a socket can be told not to block");
    let mut sent = 0;
    let asked = b"get large\r\n".repeat(GETS);
    while sent < asked.len() {
        match stuck.stream().write(&asked[sent..]) {
            Ok(len) => sent += len,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    for _ in 0..20 {
        check(&served);
    }
    let grown = served.memory_bytes().saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes of memory for a client that does not read");
    stuck.stream().set_nonblocking(false).expect("a socket can be told to block");
    stuck.stream().set_read_timeout(Some(Duration::from_secs(60))).expect("a socket can be told to wait");
    for number in 0..sent / b"get large\r\n".len() {
        let hits = stuck.hits().unwrap_or_else(|error| panic!("answer {number}: {error}"));
        assert!(hits.len() == 1 && hits[0].value == value, "answer {number} is not what was stored");
    }
}

#[test]
fn command_lines() {
    let place = place::directory();
    let data = place.path().join("data");
    let data = data.to_str().expect("a name that is text");
    let code = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(!output.stderr.is_empty(), "{arguments:?} said nothing: {}", said(&output));
        output.status.code()
    };
    assert_eq!(code(&["conquer"]), Some(2));
    assert_eq!(code(&["get", "--data", data, "--colour", "k"]), Some(2));
    assert_eq!(code(&["serve", "--data", data, "--memory", "much"]), Some(2));
    assert_eq!(code(&["serve", "--data", data, "--durability", "eternal"]), Some(2));
    assert_eq!(code(&["serve", "--data", data, "--memcache", "not an address"]), Some(2));
    assert_eq!(code(&["get", "--data", data, "k"]), Some(3), "there is no store");
    assert!(run(&["put", "--data", data, "k", "v"]).status.success());
    assert_eq!(code(&["get", "--data", data, "none"]), Some(3), "there is no such key");
    assert_eq!(code(&["put", "--data", data, "", "v"]), Some(2), "an empty key");
    let found = run(&["get", "--data", data, "k"]);
    assert!(found.status.success() && found.stdout.trim_ascii_end() == b"v", "{}", said(&found));
}
