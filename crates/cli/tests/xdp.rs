//! `serve --xdp` over cables between network namespaces that the test makes: a client's kernel at
//! one end, AF_XDP at the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::Duration;

#[path = "xdp/interface.rs"]
mod interface;
#[path = "xdp/network.rs"]
mod network;
#[path = "xdp/user.rs"]
mod user;

use network::{INTERFACE, KERNEL, Losses, Network, SERVER, SERVER_OF_IPV6, network};

const PROGRAM: &str = env!("CARGO_BIN_EXE_stratakv");

struct Server {
    process: Child,
    port: u16,
    _data: Option<tempfile::TempDir>,
}

impl Server {
    fn start(network: &Network, more: &[&str]) -> Server {
        let data = tempfile::tempdir().unwrap();
        let mut server = Server::start_on(network, &data.path().join("store"), more);
        server._data = Some(data);
        server
    }

    fn start_on(network: &Network, data: &Path, more: &[&str]) -> Server {
        let mut command = network.command(PROGRAM);
        command.args(["serve", "--memory", "64M", "--memcache", "0.0.0.0:0", "--insecure"]);
        command.arg("--data").arg(data);
        command.args(["--xdp", INTERFACE, "--address", "10.77.0.2/24", "--address", "fd77::2/64"]).args(more);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| line.strip_prefix("xdp       10.77.0.2:").map(str::to_owned));
        let Some(address) = address else {
            let Output { stderr, .. } = process.wait_with_output().unwrap();
            panic!("the server did not start: {}", String::from_utf8_lossy(&stderr));
        };
        Server { process, port: address.parse().unwrap(), _data: None }
    }

    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut said = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.process.wait().unwrap().success() && said.contains("closed in order"), "{said}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended if the test has passed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str, port: u16) -> Client {
        let address = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(60)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(BufReader::new(stream))
    }

    fn ask(&mut self, request: &[u8]) -> String {
        self.0.get_mut().write_all(request).unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        assert_eq!(self.ask(&[head.as_bytes(), value, b"\r\n"].concat()), "STORED\r\n");
    }

    fn get(&mut self, key: &str) -> Vec<u8> {
        let head = self.ask(format!("get {key}\r\n").as_bytes());
        let len = head.trim().rsplit(' ').next().and_then(|len| len.parse::<usize>().ok());
        let mut value = vec![0; len.unwrap_or_else(|| panic!("{head}")) + 2];
        self.0.read_exact(&mut value).unwrap();
        assert_eq!(self.line(), "END\r\n");
        value.truncate(value.len() - 2);
        value
    }
}

fn value(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + number * 7 + at / 251) as u8).collect()
}

/// Writes and reads values of all lengths that take different ways.
fn converse(address: &str, port: u16, name: &str) {
    let mut client = Client::connect(address, port);
    let lens = [0, 1, 100, 1000, 1460, 1461, 4096, 9000, 70_000, 1_000_000];
    for (number, len) in lens.into_iter().enumerate() {
        client.set(&format!("{name}{number}"), &value(number, len));
    }
    for (number, len) in lens.into_iter().enumerate() {
        assert!(client.get(&format!("{name}{number}")) == value(number, len), "{len} bytes");
    }
}

#[test]
fn clients_are_served_through_af_xdp_and_through_the_kernel() {
    for mtu in [1500, 9000] {
        let Some(network) = network(mtu, None) else { return };
        let server = Server::start(&network, &[]);
        network.enter();
        for address in [SERVER, SERVER_OF_IPV6, KERNEL] {
            converse(address, server.port, "value");
        }
        let mut one = Client::connect(SERVER, server.port);
        assert_eq!(one.get("value3"), value(3, 1000));
        // Who says `quit` sees the end of the stream.
        one.0.get_mut().write_all(b"quit\r\n").unwrap();
        assert_eq!(one.0.read(&mut [0; 9]).unwrap(), 0);
        // Nobody listens at another port: told at once, by the kernel or by us.
        let elsewhere = SocketAddr::new(SERVER.parse().unwrap(), server.port ^ 1);
        TcpStream::connect_timeout(&elsewhere, Duration::from_secs(1)).unwrap_err();
        // A client that is connected when the server ends is told so.
        let mut last = Client::connect(SERVER, server.port);
        assert_eq!(last.ask(b"get none\r\n"), "END\r\n");
        server.end();
        assert_eq!(last.0.read(&mut [0; 9]).unwrap_or(0), 0);
    }
}

#[test]
fn values_are_whole_over_a_cable_that_loses_delays_and_reorders_frames() {
    for losses in
        [Losses { seed: 1, lost_of_1000: 0, delay_ms: 2.0 }, Losses { seed: 2, lost_of_1000: 20, delay_ms: 1.0 }]
    {
        let Some(network) = network(1500, Some(losses)) else { return };
        let server = Server::start(&network, &[]);
        network.enter();
        let port = server.port;
        thread::scope(|scope| {
            for number in 0..4 {
                // Threads inherit their namespace.
                scope.spawn(move || converse(SERVER, port, &format!("client{number}-")));
            }
        });
        server.end();
    }
}

#[test]
fn a_thousand_connections_are_open_at_once() {
    let Some(network) = network(1500, None) else { return };
    let server = Server::start(&network, &[]);
    network.enter();
    let mut clients: Vec<Client> = (0..1000).map(|_| Client::connect(SERVER, server.port)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.set(&format!("key{number}"), &value(number, 500));
    }
    for (number, client) in clients.iter_mut().rev().enumerate() {
        assert_eq!(client.get(&format!("key{number}")), value(number, 500));
    }
    drop(clients);
    converse(SERVER, server.port, "after");
    server.end();
}

#[test]
fn an_interface_that_goes_down_and_comes_up_is_served_again() {
    let Some(network) = network(1500, None) else { return };
    let server = Server::start(&network, &[]);
    network.enter();
    let mut client = Client::connect(SERVER, server.port);
    client.set("before", b"1");
    network.set_up(false);
    client.0.get_mut().write_all(b"get before\r\n").unwrap();
    thread::sleep(Duration::from_millis(300));
    network.set_up(true);
    // Its kernel sends the request again.
    assert_eq!(client.line(), "VALUE before 0 1\r\n");
    converse(SERVER, server.port, "after");
    server.end();
}

#[test]
fn what_cannot_be_served_is_told_with_what_to_do() {
    let Some(network) = network(1500, None) else { return };
    let data = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        let mut command = network.command(PROGRAM);
        command.args(["serve", "--memory", "64M", "--memcache", "127.0.0.1:0"]).args(arguments);
        let output = command.arg("--data").arg(data.path().join("store")).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let cases = [
        (&["--xdp", "none0", "--address", "10.0.0.2/24", "--insecure"][..], "`ip link` lists"),
        (&["--xdp", "lo", "--address", "10.0.0.2/24", "--insecure"], "not an Ethernet interface"),
        (&["--xdp", INTERFACE, "--address", "10.0.0.2/24"], "--insecure"),
        (&["--xdp", INTERFACE, "--address", "10.0.0.2", "--insecure"], "10.0.0.2/24"),
        (&["--xdp", INTERFACE, "--address", "127.0.0.2/8", "--insecure"], "no address of a host"),
        (&["--xdp", INTERFACE, "--insecure"], "--address"),
        (&["--xdp", INTERFACE, "--address", "10.0.0.2/24", "--xdp-memory", "1K", "--insecure"], "1 MiB"),
    ];
    for (arguments, what) in cases {
        let said = refused(arguments);
        assert!(said.contains(what), "{arguments:?}: {said}");
    }
    // Another server has it.
    let server = Server::start(&network, &[]);
    let said = refused(&["--xdp", INTERFACE, "--address", "10.0.0.2/24", "--insecure"]);
    assert!(said.contains("another program has the queue"), "{said}");
    server.end();
}
