//! A server and its admin address.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use stratakv::{Level, Options, Store};
use stratakv_server::{Admin, Server, ServerOptions};

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

struct Bench {
    server: Server,
    admin: Admin,
    store: Store,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().shards(2).memory_bytes(64 << 20).level(Level::ProcessCrash);
        let store = options.open(directory.path().join("data")).unwrap();
        let admin = Admin::start(local(), Vec::new()).unwrap();
        let options = ServerOptions { memcache: vec![local()], threads: 2, ..ServerOptions::default() };
        let server = Server::start(store.clone(), options).unwrap();
        admin.serve(&server);
        Bench { server, admin, store, _directory: directory }
    }

    fn converse(&self, commands: &str) -> String {
        let mut stream = TcpStream::connect(self.server.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(format!("{commands}quit\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn body(&self, path: &str) -> String {
        let answer = self.get(path);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        body.to_owned()
    }
}

/// Samples by name and labels. Every family is told what it is before its samples, once.
fn samples(text: &str) -> HashMap<String, f64> {
    let (mut types, mut helped, mut samples) = (HashMap::new(), HashSet::new(), HashMap::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().unwrap();
            assert!(help.len() > name.len() + 3 && helped.insert(name.to_owned()), "{line}");
            continue;
        }
        if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram", "untyped"].contains(&kind), "{line}");
            assert!(kind != "counter" || name.ends_with("_total"), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let name = sample.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
        let known = family.chain([name]).any(|name| types.contains_key(name) && helped.contains(name));
        assert!(known && name.starts_with("stratakv_"), "{line}");
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
        assert!(samples.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "{line}");
    }
    assert!(text.ends_with('\n'));
    samples
}

#[test]
fn stages_of_operations_are_told() {
    let bench = Bench::new();
    let sets: String = (0..200).map(|number| format!("set key{number} 0 0 1\r\n1\r\n")).collect();
    bench.converse(&sets);
    let answer = bench.get("/metrics");
    let samples = samples(answer.split_once("\r\n\r\n").unwrap().1);
    let count = |stage: &str| {
        let name = format!("stratakv_operation_stage_seconds_count{{operation=\"write\",stage=\"{stage}\"}}");
        samples.get(&name).copied().unwrap_or_default()
    };
    assert!(count("write") >= 2.0, "sets wait for the writes of their groups: {}", count("write"));
    let answer = bench.get("/stats.json");
    let told: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let stages = &told["stages"]["write"];
    assert!(stages["measured"].as_u64() >= Some(4), "{stages}");
    assert!(stages["write"]["count"].as_u64() >= Some(2), "{stages}");
}

#[test]
fn metrics_count_what_clients_did() {
    let bench = Bench::new();
    bench.converse("set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nget a b c\r\nincr a 1\r\ndelete b\r\n");
    let answer = bench.get("/metrics");
    assert!(answer.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    let samples = samples(answer.split_once("\r\n\r\n").unwrap().1);
    for (name, expected) in [
        ("stratakv_ready", 1.0),
        ("stratakv_cmd_get_total", 3.0),
        ("stratakv_cmd_set_total", 2.0),
        ("stratakv_get_hits_total", 2.0),
        ("stratakv_get_misses_total", 1.0),
        ("stratakv_connections_total", 1.0),
        ("stratakv_operation_latency_seconds_count{operation=\"get\"}", 3.0),
        ("stratakv_operation_latency_seconds_count{operation=\"set\"}", 2.0),
        ("stratakv_operation_latency_seconds_count{operation=\"update\"}", 1.0),
        ("stratakv_operation_latency_seconds_count{operation=\"delete\"}", 1.0),
        ("stratakv_operation_latency_seconds_bucket{operation=\"set\",le=\"+Inf\"}", 2.0),
        ("stratakv_store_records", 1.0),
        ("stratakv_request_latency_seconds_count{request=\"read\"}", 0.0),
    ] {
        assert_eq!(samples.get(name), Some(&expected), "{name}");
    }
    let sum =
        |name: &str| samples.iter().filter(|(sample, _)| sample.starts_with(name)).map(|(_, value)| value).sum::<f64>();
    assert_eq!(sum("stratakv_core_operations_total"), 7.0);
    for name in [
        "core_ticks_total",
        "core_turns_total",
        "core_system_calls_total",
        "core_cpu_seconds_total",
        "process_resident_bytes",
        "disk_bytes",
    ] {
        assert!(sum(&format!("stratakv_{name}")) > 0.0, "{name}");
    }
    assert!(sum("stratakv_request_latency_seconds_count{request=\"write\"}") > 0.0, "two sets were made durable");
    let mut bounds: Vec<(f64, f64)> = samples
        .iter()
        .filter_map(|(sample, below)| {
            let rest = sample.strip_prefix("stratakv_operation_latency_seconds_bucket{operation=\"get\",le=\"")?;
            Some((rest.strip_suffix("\"}")?.parse().unwrap_or(f64::INFINITY), *below))
        })
        .collect();
    bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(bounds.len() == 27 && bounds.is_sorted_by(|a, b| a.1 <= b.1), "{bounds:?}");
}

#[test]
fn statistics_are_json_and_have_what_the_page_reads() {
    let bench = Bench::new();
    bench.converse("set a 0 0 1\r\n1\r\nget a\r\n");
    let told: serde_json::Value = serde_json::from_str(&bench.body("/stats.json")).unwrap();
    assert_eq!(told["state"], "serving");
    assert_eq!(told["latency"]["get"]["count"], 1);
    assert_eq!(told["latency"]["get"]["buckets_ns"].as_array().unwrap().len(), 1);
    assert!(told["latency"]["get"]["p99_us"].as_f64().unwrap() > 0.0);
    assert_eq!(told["counters"]["get_hits"], 1);
    assert_eq!(told["cores"].as_array().unwrap().len(), 2);
    assert_eq!(told["store"]["records"], 1);
    for (part, name) in
        [("process", "resident_bytes"), ("process", "cpu_ns"), ("disk", "available_bytes"), ("connections", "max")]
    {
        assert!(told[part][name].as_u64().unwrap() > 0, "{part} {name}: {told}");
    }
}

#[test]
fn a_server_that_drains_is_alive_and_not_ready() {
    let bench = Bench::new();
    assert!(bench.get("/readyz").starts_with("HTTP/1.1 200 "));
    bench.server.shutdown();
    assert!(bench.get("/readyz").starts_with("HTTP/1.1 503 "));
    assert!(bench.get("/healthz").starts_with("HTTP/1.1 200 "));
    bench.server.join().unwrap();
    drop(bench.server);
    let told = bench.admin.address();
    let mut stream = TcpStream::connect(told).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("draining\n"), "{answer}");
    // What is asked of the admin address keeps no store open.
    bench.store.close().unwrap();
}

/// `/readyz` stayed 200 after a medium had failed or a shard was broken, and clients of batches
/// waited for ever.
#[test]
fn a_server_with_a_broken_shard_answers_and_says_that_it_is_not_ready() {
    let bench = Bench::new();
    let keys: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
    let sets: String = keys.iter().map(|key| format!("set {key} 0 0 1\r\nv\r\n")).collect();
    assert_eq!(bench.converse(&sets), "STORED\r\n".repeat(keys.len()));
    assert!(bench.get("/readyz").starts_with("HTTP/1.1 200 "));
    bench.store.break_shard(1, 1);
    let gets: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
    for commands in [&gets, &sets, &gets] {
        let answers = bench.converse(commands);
        let failed = answers.matches("SERVER_ERROR").count();
        let done = answers.matches("STORED\r\n").count() + answers.matches("VALUE ").count();
        assert!(failed > 0 && done > 0 && failed + done == keys.len(), "{failed} failed, {done} done: {answers}");
    }
    let all = bench.converse(&format!("get {}\r\n", keys.join(" ")));
    assert!(all.contains("SERVER_ERROR"), "{all}");
    let flushed = bench.converse("flush_all\r\n");
    assert!(flushed.starts_with("SERVER_ERROR"), "{flushed}");
    let ready = bench.get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("reopen the store"), "{ready}");
    let metrics = bench.body("/metrics");
    for line in ["stratakv_ready 0", "stratakv_store_broken_shards 1", "stratakv_store_read_only_after_a_failure 0"] {
        assert!(metrics.lines().any(|one| one == line), "{line}");
    }
    let told: serde_json::Value = serde_json::from_str(&bench.body("/stats.json")).unwrap();
    assert!(told["failure"].as_str().is_some_and(|why| why.contains("reopen the store")), "{told}");
    bench.server.shutdown();
    bench.server.join().unwrap();
    assert!(bench.store.close().is_err(), "that was no orderly end");
}
