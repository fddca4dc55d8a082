//! Redis clients' commands on our server beside Redis: each server in turn, on the same core, with
//! the same load from the other.
//!
//! `memory`: Redis without persistence; ours with the store in a file system in memory. `durable`:
//! a write is answered when it is on the disk. `redis-benchmark` is the load: it may be what binds
//! where commands come in batches, so the server's processor time for a command is told too.

mod baselines;
mod footprint;
pub mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use baselines::Baseline;
use baselines::Room;
pub use footprint::{Footprint, footprint};

/// A command that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Its name in tables and on command lines.
    pub name: &'static str,
    /// What `redis-benchmark` sends: `__rand_int__` is a number, `__data__` the value.
    words: &'static str,
    /// What is sent so many times as there are keys before it.
    fill: Option<&'static str>,
    /// Whether it writes: what is measured for durability.
    writes: bool,
}

const fn measure(name: &'static str, writes: bool, words: &'static str, fill: Option<&'static str>) -> Measure {
    Measure { name, words, fill, writes }
}

/// All of them, in the order in which they are run. Structures are `short`, one for each key, or
/// `long`: one that has as many elements as there are keys.
pub const MEASURES: [Measure; 20] = [
    measure("SET", true, "SET key:__rand_int__ __data__", None),
    measure("GET", false, "GET key:__rand_int__", Some("SET key:__rand_int__ __data__")),
    measure("INCR", true, "INCR counter:__rand_int__", None),
    measure(
        "MSET of 10",
        true,
        "MSET key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
         key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
         key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__",
        None,
    ),
    measure("HSET, short", true, "HSET user:__rand_int__ name __data__", None),
    measure("HGET, short", false, "HGET user:__rand_int__ name", Some("HSET user:__rand_int__ name __data__ age 41")),
    measure("LPUSH, short", true, "LPUSH jobs:__rand_int__ __data__", None),
    measure("LPOP, short", true, "LPOP jobs:__rand_int__", Some("LPUSH jobs:__rand_int__ __data__ __data__")),
    measure("SADD, short", true, "SADD tags:__rand_int__ __data__", None),
    measure("ZADD, short", true, "ZADD board:__rand_int__ __rand_int__ player", None),
    measure(
        "ZRANGE of 10, short",
        false,
        "ZRANGE board:__rand_int__ 0 9",
        Some("ZADD board:__rand_int__ 1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h 9 i 10 j"),
    ),
    measure("HSET, long", true, "HSET users __rand_int__ __data__", None),
    measure("HGET, long", false, "HGET users __rand_int__", Some("HSET users __rand_int__ __data__")),
    measure("LPUSH, long", true, "LPUSH jobs __data__", None),
    measure("LPOP, long", true, "LPOP jobs", Some("LPUSH jobs __data__ __data__")),
    measure("LRANGE of 100, long", false, "LRANGE jobs 0 99", Some("LPUSH jobs __data__")),
    measure("SADD, long", true, "SADD tags __rand_int__", None),
    measure("ZADD, long", true, "ZADD board __rand_int__ player:__rand_int__", None),
    measure("ZRANGE of 10, long", false, "ZRANGE board 100 109", Some("ZADD board __rand_int__ player:__rand_int__")),
    measure(
        "ZRANK, long",
        false,
        "ZRANK board player:__rand_int__",
        Some("ZADD board __rand_int__ player:__rand_int__"),
    ),
];

/// What to compare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whether writes are answered when they are on the disk.
    pub durable: bool,
    /// Servers; the first one is what the others are compared with.
    pub baselines: Vec<Baseline>,
    /// Commands.
    pub measures: Vec<Measure>,
    /// Connections.
    pub connections: u32,
    /// Commands in a batch, one table column each.
    pub pipelines: Vec<u32>,
    /// Keys, and elements of long structures.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Commands of a run without batches; four times as many with batches.
    pub commands: u64,
    /// Rounds: all servers in turn.
    pub rounds: u32,
    /// The core of the server, and that of the load.
    pub cores: (usize, usize),
    /// Memory of each of our servers.
    pub memory_bytes: u64,
    /// Where stores are.
    pub place: PathBuf,
}

impl Plan {
    /// The usual one.
    pub fn new(durable: bool) -> Plan {
        let baselines =
            if durable { vec![Baseline::RedisAlways, Baseline::Packed] } else { Baseline::IN_MEMORY.to_vec() };
        let measures = MEASURES.iter().copied().filter(|one| one.writes || !durable).collect();
        Plan {
            durable,
            baselines,
            measures,
            connections: 50,
            pipelines: vec![1, 16],
            keys: 100_000,
            value_bytes: 100,
            commands: if durable { 20_000 } else { 100_000 },
            rounds: 3,
            cores: (0, 1),
            memory_bytes: 2 << 30,
            place: if durable { "target/beside-redis".into() } else { "/dev/shm/stratakv-beside-redis".into() },
        }
    }

    fn room(&self) -> Room {
        Room { memory_bytes: self.memory_bytes, core: self.cores.0 }
    }
}

/// What a command was in one run.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Whose it is.
    pub baseline: Baseline,
    /// Which command.
    pub measure: Measure,
    /// Commands in a batch.
    pub pipeline: u32,
    /// Commands of a second.
    pub per_s: f64,
    /// The slowest hundredth begins here.
    pub p99_ms: f64,
    /// Processor time of the server for a command, the kernel's work for it included.
    pub cpu_us: f64,
}

/// Runs it all; each run is told as it ends.
///
/// # Errors
/// A server or `redis-benchmark` cannot be started, or a command was refused.
pub fn run(plan: &Plan, told: &mut dyn FnMut(u32, &Measured)) -> Result<Vec<Measured>, String> {
    let mut all = Vec::new();
    for round in 1..=plan.rounds {
        for measure in &plan.measures {
            for baseline in &plan.baselines {
                if !baseline.has(measure) {
                    continue;
                }
                let place = plan.place.join(baseline.name().replace(' ', "-"));
                let outcome = run_one(plan, *baseline, *measure, &place, &mut |one| {
                    told(round, &one);
                    all.push(one);
                });
                let _ = std::fs::remove_dir_all(&place);
                outcome?;
            }
        }
    }
    Ok(all)
}

/// A command on a fresh server, for each number of commands in a batch.
fn run_one(
    plan: &Plan,
    baseline: Baseline,
    measure: Measure,
    place: &Path,
    each: &mut dyn FnMut(Measured),
) -> Result<(), String> {
    let running = baseline.start(place, plan.room())?;
    let port = running.address().port();
    for pipeline in &plan.pipelines {
        if let Some(fill) = measure.fill {
            // Twice as often as there are keys: six of seven are there.
            load(plan, port, 16, plan.keys * 2, fill)?;
        }
        let commands = plan.commands * if *pipeline > 1 { 4 } else { 1 };
        let before = running.cpu();
        let (per_s, p99_ms) = load(plan, port, *pipeline, commands, measure.words)?;
        let cpu_us = (running.cpu() - before).as_secs_f64() * 1e6 / commands as f64;
        each(Measured { baseline, measure, pipeline: *pipeline, per_s, p99_ms, cpu_us });
    }
    Ok(())
}

/// Runs `redis-benchmark`: commands of a second, and milliseconds of the slowest hundredth.
fn load(plan: &Plan, port: u16, pipeline: u32, commands: u64, words: &str) -> Result<(f64, f64), String> {
    let data = "x".repeat(plan.value_bytes);
    let mut command = Command::new("taskset");
    command.args(["-c", &plan.cores.1.to_string(), "redis-benchmark", "-h", "127.0.0.1", "--csv"]);
    for (option, value) in [
        ("-p", u64::from(port)),
        ("-c", u64::from(plan.connections)),
        ("-P", u64::from(pipeline)),
        ("-n", commands),
        ("-r", plan.keys),
    ] {
        command.args([option, &value.to_string()]);
    }
    command.args(words.split_ascii_whitespace().map(|word| word.replace("__data__", &data)));
    let output = command.output().map_err(|error| format!("cannot run redis-benchmark: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let fields = text.lines().last().map(figures).unwrap_or_default();
    match fields[..] {
        // Behind the name: a second, then mean, least, median, p95, p99 and most in milliseconds.
        [per_s, _, _, _, _, p99, _] if output.status.success() => Ok((per_s, p99)),
        _ => Err(format!("redis-benchmark of {words}: {text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// The numbers of a line of `redis-benchmark --csv`, whose first field is the command.
fn figures(line: &str) -> Vec<f64> {
    let fields = line.trim().trim_matches('"').rsplit("\",\"");
    let mut numbers: Vec<f64> = fields.map_while(|field| field.parse().ok()).collect();
    numbers.reverse();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_redis_benchmark_is_read_from_its_end() {
        let line = r#""SET key:__rand_int__ x","97087.38","0.276","0.056","0.271","0.391","0.479","1.279""#;
        assert_eq!(figures(line), [97087.38, 0.276, 0.056, 0.271, 0.391, 0.479, 1.279]);
        assert_eq!(figures(r#""test","rps","avg_latency_ms""#), [0.0; 0]);
        assert_eq!(figures("WARNING: something"), [0.0; 0]);
    }

    #[test]
    fn what_is_durable_is_written() {
        let durable = Plan::new(true);
        assert!(durable.measures.iter().all(|one| one.writes) && durable.measures.len() < MEASURES.len());
        assert_eq!(Plan::new(false).measures.len(), MEASURES.len());
    }
}
