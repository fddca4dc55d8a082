//! Network namespaces with cables between them, made by the test and gone with it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A server's and a client's namespace, and one between them if frames are forwarded by a program.
pub struct Network {
    server: String,
    client: String,
    between: Option<(String, Child)>,
}

/// What a program between the two does to frames.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    pub seed: u32,
    pub lost_of_1000: u32,
    pub delay_ms: f32,
}

/// Addresses: the client's, and the server's that the kernel knows nothing of.
pub const CLIENT: &str = "10.77.0.1";
pub const SERVER: &str = "10.77.0.2";
pub const SERVER_OF_IPV6: &str = "fd77::2";
/// The server's that the kernel has.
pub const KERNEL: &str = "10.77.0.9";
/// The server's interface.
pub const INTERFACE: &str = "xdp0";

/// Why this machine cannot have such a network, if so.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root is needed for network namespaces".into());
    }
    for (program, argument) in [("ip", "-V"), ("python3", "-V")] {
        let found = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Some(format!("{program} is not installed"));
        }
    }
    let name = format!("stratakv-try-{}", std::process::id());
    let made = ip(&["netns", "add", &name]);
    // Where it could not be made there is none.
    drop(ip(&["netns", "del", &name]));
    made.err().map(|why| format!("network namespaces are refused: {why}"))
}

/// A network, unless this machine has none: then the test says so.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn network(mtu: u32, losses: Option<Losses>) -> Option<Network> {
    match obstacle() {
        Some(why) => {
            eprintln!("skipped: {why}");
            None
        }
        None => Some(Network::new(mtu, losses)),
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

fn demand(arguments: &str) {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    ip(&arguments).unwrap_or_else(|why| panic!("ip {arguments:?}: {why}"));
}

impl Network {
    fn new(mtu: u32, losses: Option<Losses>) -> Network {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |of: &str| format!("stratakv-{of}-{}-{number}", std::process::id());
        let (server, client) = (name("server"), name("client"));
        let mut network = Network { server: server.clone(), client: client.clone(), between: None };
        demand(&format!("netns add {server}"));
        demand(&format!("netns add {client}"));
        match losses {
            None => cable((&server, INTERFACE), (&client, "eth0"), mtu),
            Some(losses) => {
                let between = name("between");
                demand(&format!("netns add {between}"));
                cable((&server, INTERFACE), (&between, "left"), mtu);
                cable((&client, "eth0"), (&between, "right"), mtu);
                let program = forward(&between, losses);
                network.between = Some((between, program));
            }
        }
        demand(&format!("-n {server} addr add {KERNEL}/24 dev {INTERFACE}"));
        demand(&format!("-n {client} addr add {CLIENT}/24 dev eth0"));
        demand(&format!("-n {client} addr add fd77::1/64 dev eth0 nodad"));
        network
    }

    /// A program in the server's namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.server, program]);
        command
    }

    /// Has the calling thread be a client from now on.
    pub fn enter(&self) {
        enter(&self.client);
    }

    /// Has the calling thread be at the server's end from now on.
    pub fn enter_server(&self) {
        enter(&self.server);
    }

    /// Removes the server's interface.
    pub fn remove(&self) {
        demand(&format!("-n {} link del {INTERFACE}", self.server));
    }

    /// Asks by ARP who has an address: whether there was an answer, one to a question with a VLAN
    /// tag, and whether the kernel at the server's end saw that question.
    pub fn sees_tagged_arp(&self, address: &str) -> (bool, bool, bool) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/xdp/tagged.py");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.client, "python3", script, "eth0", &self.server, INTERFACE]);
        let output = command.args([CLIENT, address]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let words: Vec<bool> = said.split_whitespace().map(|word| word == "True").collect();
        let [untagged, tagged, passed] = words[..] else {
            panic!("{said}{}", String::from_utf8_lossy(&output.stderr));
        };
        (untagged, tagged, passed)
    }

    /// The longest IP packet to an address that leaves the client while something is done.
    pub fn longest_segment_to(&self, address: &str, body: impl FnOnce()) -> usize {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/xdp/longest.py");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.client, "python3", script, "eth0", address]);
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "watching");
        body();
        drop(program.stdin.take());
        let longest = lines.next().unwrap().unwrap();
        program.wait().unwrap();
        longest.parse().unwrap()
    }

    /// Takes the server's end of the cable down, or up again.
    pub fn set_up(&self, up: bool) {
        demand(&format!("-n {} link set {INTERFACE} {}", self.server, if up { "up" } else { "down" }));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some((name, program)) = &mut self.between {
            // It may have ended.
            let _ = program.kill();
            let _ = program.wait();
            drop(ip(&["netns", "del", name]));
        }
        for name in [&self.server, &self.client] {
            drop(ip(&["netns", "del", name]));
        }
    }
}

fn enter(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

fn cable(one: (&str, &str), other: (&str, &str), mtu: u32) {
    demand(&format!("-n {} link add {} type veth peer name {} netns {}", one.0, one.1, other.1, other.0));
    for (namespace, interface) in [one, other] {
        demand(&format!("-n {namespace} link set {interface} mtu {mtu} up"));
        demand(&format!("-n {namespace} link set lo up"));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/xdp/checksums.py");
        demand(&format!("netns exec {namespace} python3 {script} {interface}"));
    }
}

fn forward(namespace: &str, Losses { seed, lost_of_1000, delay_ms }: Losses) -> Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/xdp/forward.py");
    let numbers = [seed.to_string(), lost_of_1000.to_string(), delay_ms.to_string()];
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "python3", script, "left", "right"]).args(numbers);
    let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "forwarding\n");
    program
}
