use std::io::{Read, Write};

use super::*;

fn state(names: &[&str]) -> State {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    State { names, patience: PATIENCE, server: Mutex::default(), connections: 0.into() }
}

#[test]
fn only_names_of_this_machine_are_answered_to() {
    let state = state(&["kv.example"]);
    for host in [
        "127.0.0.1",
        "127.0.0.1:9100",
        "[::1]:9100",
        "[::1]",
        "10.0.0.7",
        "localhost:9100",
        "LOCALHOST",
        "kv.example:80",
    ] {
        assert!(state.is_ours(Some(host)), "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:9100",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "kv.example.",
        "[evil]:1",
    ] {
        assert!(!state.is_ours(Some(host)), "{host}");
    }
    // As before HTTP 1.1; browsers always send one.
    assert!(state.is_ours(None));
}

fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // It may hang up before it has heard all.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
}

#[test]
fn before_a_server_is_there_it_is_alive_and_not_ready() {
    let admin = Admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), Vec::new()).unwrap();
    let address = admin.address();
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200 "));
    let ready = get(address, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("\r\n\r\nopening\n"), "{ready}");
    assert!(get(address, "/metrics").contains("\nstratakv_ready 0\n"));
    assert!(get(address, "/stats.json").contains("\"state\":\"opening\""));
    assert!(get(address, "/").contains("<title>"));
    assert!(get(address, "/else").starts_with("HTTP/1.1 404 "));
    let strange = ask(address, b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(strange.starts_with("HTTP/1.1 421 ") && strange.contains("--admin-name"), "{strange}");
    let head = ask(address, b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.contains("Content-Length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    drop(admin);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn requests_without_end_and_too_many_connections_are_refused() {
    // The silent ones are to stay, however slow this machine is.
    let patience = Duration::from_secs(3600);
    let admin = Admin::with_patience(SocketAddr::from(([127, 0, 0, 1], 0)), Vec::new(), patience).unwrap();
    let address = admin.address();
    let long = [b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'x'; 9000]].concat();
    let refused = ask(address, &long);
    assert!(refused.starts_with("HTTP/1.1 431 "), "{refused}");
    let silent: Vec<_> = (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Connections are taken in their order: this one comes after the silent ones.
    let refused = get(address, "/healthz");
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("too many"), "{refused}");
    drop(silent);
    while !get(address, "/healthz").starts_with("HTTP/1.1 200 ") {
        std::thread::yield_now();
    }
}

#[test]
fn the_page_is_whole_and_may_run_nothing_but_its_own() {
    let admin = Admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), Vec::new()).unwrap();
    let (one, other) = (get(admin.address(), "/"), get(admin.address(), "/"));
    let nonce = |page: &str| page.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    assert!(nonce(&one).len() == 32 && nonce(&one) != nonce(&other));
    let body = one.split_once("\r\n\r\n").unwrap().1;
    assert!(body.contains(&format!("<script nonce=\"{}\">", nonce(&one))) && !body.contains("NONCE"));
    // Addresses of namespaces aside, it names no other host.
    let others = body.matches("http").count() - body.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(others, 0);
    for word in [" src=", " href=", "innerHTML", " onclick", " style="] {
        assert!(!body.contains(word), "{word}");
    }
}

/// 32 of them, and the address answered nobody any more.
#[test]
fn a_request_that_ends_by_a_defect_gives_its_place_back() {
    let state = Arc::new(state(&[]));
    let place = state.place().unwrap();
    let ended = std::thread::spawn(move || {
        let _place = place;
        panic!("on purpose");
    });
    assert!(ended.join().is_err());
    let places: Vec<_> = std::iter::from_fn(|| state.place()).collect();
    assert_eq!(places.len(), CONNECTIONS_MAX);
    drop(places);
    assert_eq!(state.connections.load(Ordering::Acquire), 0);
}
