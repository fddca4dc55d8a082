//! Static slots over three servers and a real client of clusters, redis-py's: a server that is
//! killed takes its slots with it, and nothing else, and comes back with all that it acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use stratakv_integration::place;
use stratakv_integration::program::{Serve, Served, free_address};
use stratakv_integration::requirement;

const SERVERS: usize = 3;
const SLOTS: [&str; SERVERS] = ["0-5460", "5461-10922", "10923-16383"];

fn serve(data: &Path, number: usize, addresses: &[SocketAddr]) -> Served {
    let resp = addresses[number].to_string();
    let nodes = addresses.iter().zip(SLOTS).map(|(address, slots)| format!("--cluster-node={address}={slots}"));
    let nodes: Vec<String> = nodes.collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let options = ["--shards", "1", "--threads", "1", "--memory", "32M", "--resp", &resp];
    Serve::on(&data.join(number.to_string())).options(&options).options(&nodes).start()
}

/// The client's process.
struct Session {
    child: Child,
    parts: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Session {
    fn start(python: &Path, addresses: &[SocketAddr]) -> Session {
        let mut command = Command::new(python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/redis_cluster_session.py"));
        command.args(addresses.iter().map(|address| address.port().to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python runs");
        let parts = child.stdin.take().expect("it is piped");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        Session { child, parts, said }
    }

    /// Runs a part of it, to its end.
    fn run(&mut self, part: &str) {
        writeln!(self.parts, "{part}").expect("the session reads");
        let mut line = String::new();
        self.said.read_line(&mut line).expect("the session writes");
        assert_eq!(line.trim(), "done", "{part}: see what the session says");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn a_client_of_clusters_misses_the_slots_of_a_killed_server_only() {
    let Some(python) = requirement::python_with("redis.cluster") else { return };
    let folder = place::directory();
    let addresses: Vec<SocketAddr> = (0..SERVERS).map(|_| free_address().expect("a port")).collect();
    let mut servers: Vec<Served> = (0..SERVERS).map(|number| serve(folder.path(), number, &addresses)).collect();
    let mut session = Session::start(&python, &addresses);
    session.run("fill");
    servers[1].kill();
    session.run("away");
    servers[1] = serve(folder.path(), 1, &addresses);
    session.run("back");
    for server in servers {
        assert!(server.stop().success());
    }
}
