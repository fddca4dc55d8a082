//! Instructions per operation, by callgrind: two runs of different length, and the difference
//! between them, so that opening and closing do not count.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::callgrind;
use crate::cargo::succeed;

const RECORDS: u64 = 2_000;
/// Operations of the shorter and the longer run.
const RUNS: [u64; 2] = [10_000, 30_000];
const ENGINES: &[(&str, &[&str])] = &[
    ("slab, in_place", &["--engine", "slab", "--placement", "in_place"]),
    ("slab, packed", &["--engine", "slab", "--placement", "packed"]),
    ("matrix", &["--engine", "matrix"]),
    ("hash", &["--engine", "hash"]),
];

/// A table.
///
/// # Errors
/// A program cannot be built or run.
pub fn measure(of: &Path) -> Result<String, String> {
    let program = callgrind::build(of, true)?;
    let folder = of.join("target/shape/instructions");
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let mut text = String::from("| engine | workload | instructions per operation |\n|---|---|--:|\n");
    for (name, options) in ENGINES {
        for workload in ["a", "c"] {
            let mut counts = Vec::new();
            for operations in RUNS {
                let out = folder.join("out");
                let mut command = callgrind::command(&program, &out, &[]);
                ycsb(&mut command, workload, operations).arg("--data").arg(folder.join("store")).args(*options);
                command.args(["--target", "blocking", "--shards", "1", "--durability", "process_crash"]);
                command.args((*name != "hash").then_some(["--io", "blocking"]).into_iter().flatten());
                succeed("bench", &mut command)?;
                counts.push(callgrind::instructions(&out)?);
            }
            _ = writeln!(text, "| {name} | {} | {} |", workload.to_uppercase(), each(&counts));
        }
    }
    for (name, workload) in [("get", "c"), ("set", "fill")] {
        let mut counts = Vec::new();
        for operations in RUNS {
            counts.push(served(&program, &folder, workload, operations)?);
        }
        _ = writeln!(text, "| tier, memcache | {name} | {} |", each(&counts));
    }
    Ok(text)
}

fn each(counts: &[u64]) -> u64 {
    (counts[1] - counts[0]) / (RUNS[1] - RUNS[0])
}

fn ycsb<'a>(command: &'a mut Command, workload: &str, operations: u64) -> &'a mut Command {
    command.args(["bench", "ycsb", "--workload", workload, "--records", &RECORDS.to_string()]);
    command.args(["--clients", "1", "--warm-up", "0", "--seconds", "600", "--value-size", "256"]);
    command.args(["--distribution", "uniform", "--operations", &operations.to_string()])
}

/// What a server needs for so many operations of one client.
fn served(program: &Path, folder: &Path, workload: &str, operations: u64) -> Result<u64, String> {
    let (out, store) = (folder.join("out"), folder.join("served"));
    _ = std::fs::remove_dir_all(&store);
    let mut command = callgrind::command(program, &out, &[]);
    command.args(["serve", "--engine", "tier", "--io", "blocking", "--threads", "1", "--memcache", "127.0.0.1:0"]);
    let server = command.arg("--data").arg(&store).stdout(Stdio::piped()).spawn();
    let mut server = server.map_err(|error| format!("cannot start valgrind: {error}"))?;
    let mut said = BufReader::new(server.stdout.take().ok_or("the server has no stdout")?);
    let server = Server(server);
    let mut address = String::new();
    while address.is_empty() {
        let mut line = String::new();
        if !matches!(said.read_line(&mut line), Ok(1..)) {
            return Err("the server ended".into());
        }
        address = line.strip_prefix("memcache").unwrap_or_default().trim().to_owned();
    }
    let mut client = Command::new(program);
    ycsb(&mut client, workload, operations).args(["--target", &format!("memcache://{address}")]);
    succeed("bench", client.stdout(Stdio::null()).stderr(Stdio::null()))?;
    server.end()?;
    callgrind::instructions(&out)
}

/// Ended in any case.
struct Server(Child);

impl Server {
    fn end(mut self) -> Result<(), String> {
        let mut kill = Command::new("kill");
        succeed("kill", kill.args(["-TERM", &self.0.id().to_string()]))?;
        let status = self.0.wait().map_err(|error| format!("cannot await the server: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("the server failed ({status})")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
    }
}
