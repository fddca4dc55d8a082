//! Interfaces that are refused, change and go, and what `doctor --xdp` says of them.

use std::net::UdpSocket;

use super::*;

fn doctor(network: &Network, interface: &str, more: &[&str]) -> (bool, String) {
    let mut command = network.command(PROGRAM);
    let output = command.args(["doctor", "--xdp", interface]).args(more).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn doctor_tells_what_stands_between_an_interface_and_a_server() {
    let Some(network) = network(9000, None) else { return };
    let (ok, text) = doctor(&network, INTERFACE, &[]);
    assert!(ok && text.contains("It is ready: `stratakv serve --xdp xdp0"), "{text}");
    assert!(text.contains("driver                   veth\n") && text.contains("packets get up to 3826"), "{text}");
    network.set_up(false);
    let (_, text) = doctor(&network, INTERFACE, &[]);
    assert!(text.contains("It cannot be served yet") && text.contains("    ip link set xdp0 up\n"), "{text}");
    network.set_up(true);
    let server = Server::start(&network, &[]);
    let (_, json) = doctor(&network, INTERFACE, &["--json"]);
    assert!(json.contains("another XDP program (number ") && json.contains("\"ready\":false"), "{json}");
    server.end();
    let (ok, text) = doctor(&network, "none0", &[]);
    assert!(!ok && text.contains("`ip link` lists"), "{text}");
    let (ok, text) = doctor(&network, "lo", &[]);
    assert!(!ok && text.contains("not an Ethernet interface"), "{text}");
}

#[test]
fn a_refused_interface_is_told_before_a_store_is_made() {
    let Some(network) = network(1500, None) else { return };
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let other = Server::start(&network, &[]);
    let mut command = network.command(PROGRAM);
    command.args(["serve", "--memory", "64M", "--memcache", "127.0.0.1:0", "--insecure", "--xdp", INTERFACE]);
    let output = command.args(["--address", "10.0.0.2/24", "--data"]).arg(&store).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("another program has the queue"), "{said}");
    assert!(!store.exists(), "a store was made all the same");
    other.end();
}

/// Reads what a server says until there is this in it.
fn wait_for(stderr: &mut impl BufRead, what: &str) {
    let mut line = String::new();
    while !line.contains(what) {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it never said {what}");
    }
}

/// /metrics of a server, asked for at its end of the cable.
fn metrics(network: &Network, address: &str) -> String {
    network.enter_server();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_removed_interface_is_noticed_though_nobody_sends() {
    let Some(network) = network(1500, None) else { return };
    let mut server = Server::start(&network, &["--admin", "127.0.0.1:18765"]);
    let gauge = |value: u8| format!("stratakv_xdp_up {value}\n");
    let text = metrics(&network, "127.0.0.1:18765");
    assert!(text.contains(&gauge(1)), "{text}");
    network.enter();
    let mut client = Client::connect(SERVER, server.port);
    client.set("before", b"1");
    network.remove();
    let mut stderr = BufReader::new(server.process.stderr.take().unwrap());
    wait_for(&mut stderr, "the interface is gone");
    let text = metrics(&network, "127.0.0.1:18765");
    assert!(text.contains(&gauge(0)), "{text}");
    // Kernel sockets go on.
    let mut kernel = Client::connect("127.0.0.1", server.port);
    assert_eq!(kernel.get("before"), b"1");
    server.process.stderr = Some(stderr.into_inner());
    server.end();
}

/// A frame with a VLAN tag in front of the rest: what is in it is not for the server.
#[test]
fn tagged_frames_go_on_to_the_kernel() {
    let Some(network) = network(1500, None) else { return };
    let server = Server::start(&network, &[]);
    network.enter();
    let mut client = Client::connect(SERVER, server.port);
    client.set("a", b"1");
    let passed = || network.sees_tagged_arp(SERVER);
    // Without a tag the server answers; with one nobody does, and the kernel sees the question.
    assert_eq!(passed(), (true, false, true));
    assert_eq!(client.get("a"), b"1");
    server.end();
}

#[test]
fn jumbo_frames_are_received_as_long_as_a_page() {
    let Some(network) = network(9000, None) else { return };
    let server = Server::start(&network, &[]);
    network.enter();
    let mut client = Client::connect(SERVER, server.port);
    client.set("long", &value(1, 100_000));
    assert_eq!(client.get("long"), value(1, 100_000));
    // The peer was told how long segments may be, and keeps to it.
    let longest = network.longest_segment_to(SERVER, || client.set("longer", &value(2, 100_000)));
    assert!((3000..=3826).contains(&longest), "{longest}");
    // Others still get packets of 9000 bytes through the kernel.
    let socket = UdpSocket::bind((network::CLIENT, 0)).unwrap();
    assert_eq!(socket.send_to(&[7; 8900], (KERNEL, 9)).unwrap(), 8900);
    converse(KERNEL, server.port, "kernel");
    server.end();
}
