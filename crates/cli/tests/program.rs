//! The program as its users see it: arguments, exit codes, stdout and stderr.

use base64::Engine as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

#[path = "program/backup.rs"]
mod backup;
#[path = "program/configuration.rs"]
mod configuration;
#[path = "program/endings.rs"]
mod endings;
#[path = "program/exit_codes.rs"]
mod exit_codes;
#[path = "program/first_steps.rs"]
mod first_steps;
#[path = "program/import.rs"]
mod import;
#[path = "program/import_resume.rs"]
mod import_resume;
#[path = "program/numbers.rs"]
mod numbers;
#[path = "program/operations.rs"]
mod operations;
#[path = "program/orders.rs"]
mod orders;
#[path = "program/placement.rs"]
mod placement;
#[path = "program/refusals.rs"]
mod refusals;
#[path = "program/region.rs"]
mod region;
#[path = "program/remembered.rs"]
mod remembered;
#[path = "program/remote.rs"]
mod remote;
#[path = "program/remote_collections.rs"]
mod remote_collections;
#[path = "program/server.rs"]
mod server;
#[path = "program/trees.rs"]
mod trees;
#[path = "program/watching.rs"]
mod watching;

const PROGRAM: &str = env!("CARGO_BIN_EXE_stratakv");

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("STRATAKV_DATA", data).env_remove("STRATAKV_LOG").args(arguments);
    command
}

fn run(data: &Path, arguments: &[&str]) -> Output {
    command(data, arguments).output().unwrap()
}

fn feed(data: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child =
        command(data, arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that refuses its arguments does not read; what it says is looked at below.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("killed: {output:?}"))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs it, expects success, returns stdout.
fn ok(data: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = run(data, arguments);
    assert_eq!(code(&output), 0, "{arguments:?}: {}", stderr(&output));
    output.stdout
}

fn put(data: &Path, arguments: &[&str]) {
    // Tests run on tmpfs too, where power_loss is refused.
    let mut all = vec!["put", "--durability", "process_crash"];
    all.extend(arguments);
    assert_eq!(ok(data, &all), b"");
}

fn load(data: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut all = vec!["load", "--durability", "process_crash"];
    all.extend(arguments);
    feed(data, &all, input)
}

fn directory() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    (directory, data)
}

#[test]
fn usage_errors_exit_with_2_and_create_nothing() {
    let (_directory, data) = directory();
    let cases: [&[&str]; 9] = [
        &[],
        &["frobnicate"],
        &["get"],
        &["put", "key"],
        &["put", "", "value"],
        &["put", "key", "value", "--if-absent", "--if-version", "3"],
        &["put", "key", "value", "--base64"],
        &["serve", "--memcache", "127.0.0.1:0", "--shards", "5000"],
        &["scan", "--prefix", "a", "--from", "b"],
    ];
    for arguments in cases {
        let output = run(&data, arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
    assert!(!data.exists());
    // Too many shards, so that it ends even where the address is let through.
    let refused = run(&data, &["serve", "--memcache", "0.0.0.0:0", "--shards", "5000"]);
    assert!(stderr(&refused).contains("--insecure"), "{}", stderr(&refused));
}

#[test]
fn help_tells_exit_codes_and_examples() {
    let (_directory, data) = directory();
    let help = String::from_utf8(ok(&data, &["--help"])).unwrap();
    for part in ["Exit codes:", "4  corruption", "Examples:", "serve", "doctor"] {
        assert!(help.contains(part), "no `{part}` in {help}");
    }
    for subcommand in [
        "serve",
        "get",
        "put",
        "del",
        "update",
        "scan",
        "collections",
        "load",
        "dump",
        "stats",
        "check",
        "doctor",
        "plan",
        "completions",
    ] {
        let help = String::from_utf8(ok(&data, &[subcommand, "--help"])).unwrap();
        assert!(help.contains("Examples:"), "{subcommand}: {help}");
    }
    assert!(ok(&data, &["completions", "bash"]).starts_with(b"_stratakv()"));
}

#[test]
fn what_is_not_there_exits_with_3() {
    let (_directory, data) = directory();
    for arguments in [&["get", "key"][..], &["scan"], &["dump"], &["stats"], &["check"], &["del", "key"]] {
        let output = run(&data, arguments);
        assert_eq!(code(&output), 3, "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("no store"), "{}", stderr(&output));
    }
    put(&data, &["here", "1"]);
    let absent = run(&data, &["get", "absent"]);
    assert_eq!((code(&absent), absent.stdout.len()), (3, 0));
    assert!(stderr(&absent).contains("absent"));
    assert_eq!(code(&run(&data, &["del", "--durability", "process_crash", "absent", "here"])), 3);
    assert_eq!(code(&run(&data, &["get", "here"])), 3, "the other key is deleted all the same");
}

#[test]
fn values_come_back_byte_for_byte() {
    let (directory, data) = directory();
    put(&data, &["text", "Ada"]);
    assert_eq!(ok(&data, &["get", "text"]), b"Ada");

    let bytes: Vec<u8> = (0..300_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let file = directory.path().join("value");
    std::fs::write(&file, &bytes).unwrap();
    put(&data, &["file", "--file", file.to_str().unwrap(), "--flags", "7"]);
    assert_eq!(ok(&data, &["get", "file"]), bytes);

    let fed = feed(&data, &["put", "--durability", "process_crash", "stdin", "-"], b"\x00\xff\n");
    assert_eq!(code(&fed), 0, "{}", stderr(&fed));
    assert_eq!(ok(&data, &["get", "stdin"]), b"\x00\xff\n");

    put(&data, &["--base64", "AP8=", ""]);
    assert_eq!(ok(&data, &["get", "--base64", "AP8="]), b"");
    let line: serde_json::Value = serde_json::from_slice(&ok(&data, &["get", "--json", "file"])).unwrap();
    assert_eq!((&line["key"], &line["flags"]), (&"file".into(), &7.into()));
    assert!(line["version"].as_u64().is_some() && line["value_base64"].is_string() && line.get("expiry").is_none());
}

#[test]
fn conditions_that_do_not_hold_change_nothing() {
    let (_directory, data) = directory();
    let put = |arguments: &[&str]| {
        let mut all = vec!["put", "--durability", "process_crash", "key"];
        all.extend(arguments);
        code(&run(&data, &all))
    };
    assert_eq!(put(&["0", "--if-present"]), 3);
    assert_eq!(put(&["0", "--if-version", "1"]), 3);
    assert_eq!(put(&["1", "--if-absent"]), 0);
    assert_eq!(put(&["2", "--if-absent"]), 1);
    assert_eq!(ok(&data, &["get", "key"]), b"1");
    let line: serde_json::Value = serde_json::from_slice(&ok(&data, &["get", "--json", "key"])).unwrap();
    let version = line["version"].as_u64().unwrap();
    assert_eq!(put(&["3", "--if-version", &(version + 1).to_string()]), 1);
    assert_eq!(ok(&data, &["get", "key"]), b"1");
    assert_eq!(put(&["4", "--if-version", &version.to_string()]), 0);
    assert_eq!(put(&["5", "--if-present", "--ttl", "1000"]), 0);
    let line: serde_json::Value = serde_json::from_slice(&ok(&data, &["get", "--json", "key"])).unwrap();
    assert!(line["value"] == "5" && line["expiry"].as_u64().unwrap() > 1_700_000_000, "{line}");
}

#[test]
fn scans_are_ordered_and_bounded() {
    let (_directory, data) = directory();
    let lines = "cab b a\ta".split(' ').chain(["ca"]).map(|key| serde_json::json!({ "key": key, "value": "v" }));
    let input: String = lines.map(|line| format!("{line}\n")).collect();
    assert_eq!(code(&load(&data, &[], input.as_bytes())), 0);
    let scan = |arguments: &[&str]| {
        let mut all = vec!["scan", "--keys-only"];
        all.extend(arguments);
        String::from_utf8(ok(&data, &all)).unwrap()
    };
    assert_eq!(scan(&[]), "a\\ta\nb\nca\ncab\n");
    assert_eq!(scan(&["--reverse", "--limit", "2"]), "cab\nca\n");
    assert_eq!(scan(&["--prefix", "ca"]), "ca\ncab\n");
    assert_eq!(scan(&["--from", "b", "--to", "cab"]), "b\nca\n");
    assert_eq!(scan(&["--prefix", "b", "--json"]), "{\"key\":\"b\"}\n");
    assert_eq!(ok(&data, &["scan", "--prefix", "b"]), b"b\tv\n");
}

/// Keys and values of all kinds: text, bytes, empty, escapes, some pages long.
fn mixed_lines() -> Vec<u8> {
    let mut lines = String::new();
    for i in 0..700u32 {
        let value = match i % 4 {
            0 => serde_json::json!({ "key": format!("näme \"{i:04}\"\n"), "value": "" }),
            1 => {
                serde_json::json!({ "key": format!("key{i:04}"), "value": "x\u{0}y".repeat(i as usize % 50), "flags": i })
            }
            // 0xFF first: no UTF-8.
            2 => {
                serde_json::json!({ "key_base64": format!("/w{:02}", i % 100).replace('%', "A"), "value_base64": "gIGC" })
            }
            _ => {
                serde_json::json!({ "key": format!("big{i:04}"), "value": "z".repeat(20_000), "expiry": 4_000_000_000u32 })
            }
        };
        lines.push_str(&format!("{value}\n"));
    }
    lines.into_bytes()
}

#[test]
fn dump_and_load_give_back_every_byte() {
    let (directory, data) = directory();
    let loaded = load(&data, &["--shards-are-not-an-option"], b"");
    assert_eq!(code(&loaded), 2);
    let loaded = load(&data, &[], &mixed_lines());
    assert_eq!(code(&loaded), 0, "{}", stderr(&loaded));
    assert!(stderr(&loaded).contains("700 records"), "{}", stderr(&loaded));
    assert!(loaded.stdout.is_empty());

    let dump = ok(&data, &["dump"]);
    assert!(dump.windows(10).any(|window| window == b"key_base64"));
    let copy = directory.path().join("copy");
    let loaded = load(&copy, &[], &dump);
    assert_eq!(code(&loaded), 0, "{}", stderr(&loaded));
    assert!(ok(&copy, &["dump"]) == dump, "the copy's dump differs");
    assert_eq!(ok(&copy, &["get", "--base64", "/w02"]), b"\x80\x81\x82");

    let file = directory.path().join("dump.jsonl");
    std::fs::write(&file, ok(&data, &["scan", "--json"])).unwrap();
    let again = directory.path().join("again");
    ok(&again, &["load", "--durability", "process_crash", file.to_str().unwrap()]);
    assert!(ok(&again, &["dump"]) == dump, "what `scan --json` gives can be loaded");
}

#[test]
fn the_last_line_of_a_key_wins() {
    let (_directory, data) = directory();
    let input: String = (0..500).map(|i| format!("{{\"key\":\"same\",\"value\":\"{i}\"}}\n")).collect();
    assert_eq!(code(&load(&data, &[], input.as_bytes())), 0);
    assert_eq!(ok(&data, &["get", "same"]), b"499");
}

#[test]
fn a_malformed_line_is_named() {
    let (_directory, data) = directory();
    let input = b"{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key\":\"b\"}\n{\"key\":\"c\",\"value\":\"3\"}\n";
    let stopped = load(&data, &[], input);
    assert_eq!(code(&stopped), 1);
    assert!(stderr(&stopped).contains("stdin: line 3: no `value`"), "{}", stderr(&stopped));
    assert_eq!(ok(&data, &["scan"]), b"a\t1\n", "the lines before it are written, those after it are not");
    let skipped = load(&data, &["--skip-errors"], input);
    assert_eq!(code(&skipped), 0);
    assert!(stderr(&skipped).contains("line 3") && stderr(&skipped).contains("1 bad line passed over"));
    assert_eq!(ok(&data, &["scan"]), b"a\t1\nc\t3\n");
}

#[test]
fn a_sound_store_checks_and_tells_its_statistics() {
    let (_directory, data) = directory();
    assert_eq!(code(&load(&data, &[], &mixed_lines())), 0);
    let records = ok(&data, &["dump"]).iter().filter(|byte| **byte == b'\n').count();
    assert!(String::from_utf8(ok(&data, &["check"])).unwrap().ends_with("sound\n"));
    let report: serde_json::Value = serde_json::from_slice(&ok(&data, &["check", "--json"])).unwrap();
    assert_eq!((&report["sound"], &report["records"]), (&true.into(), &records.into()), "{report}");
    let stats: serde_json::Value = serde_json::from_slice(&ok(&data, &["stats", "--json"])).unwrap();
    assert_eq!(stats["clean"], true, "{stats}");
    assert!(String::from_utf8(ok(&data, &["stats"])).unwrap().contains("shards"));
}

#[test]
fn damage_exits_with_4_and_is_listed() {
    let (_directory, data) = directory();
    put(&data, &["a", "1"]);
    put(&data, &["key", &"needle".repeat(1000)]);
    put(&data, &["z", "2"]);
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        // All copies: a page that was rewritten is still there until its space is used again.
        while let Some(at) = bytes.windows(12).position(|window| window == b"needleneedle") {
            bytes[at..at + 12].fill(b'?');
        }
        std::fs::write(&path, bytes).unwrap();
    }
    let checked = run(&data, &["check"]);
    assert_eq!(code(&checked), 4, "{checked:?}");
    assert!(String::from_utf8_lossy(&checked.stdout).contains("damaged: "), "{checked:?}");
    let get = run(&data, &["get", "key"]);
    assert_eq!((code(&get), get.stdout.len()), (4, 0), "damage is never given out: {get:?}");
    assert_eq!(code(&run(&data, &["dump"])), 4);
    let rest = run(&data, &["dump", "--skip-damaged"]);
    assert_eq!(code(&rest), 4);
    assert_eq!(rest.stdout, b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"z\",\"value\":\"2\"}\n", "{rest:?}");
    let json = run(&data, &["check", "--json"]);
    assert_eq!(code(&json), 4);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(report["sound"] == false && !report["damage"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (_directory, data) = directory();
    assert_eq!(code(&load(&data, &[], &mixed_lines())), 0);
    let mut child = command(&data, &["dump"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
}

/// A server, killed when dropped.
struct Serving {
    child: std::process::Child,
    lines: Vec<String>,
    address: String,
    // Kept open: the server writes to it.
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Serving {
    fn start(data: &Path) -> Serving {
        Serving::with(data, &["--threads", "1"])
    }

    fn with(data: &Path, more: &[&str]) -> Serving {
        let arguments = ["serve", "--memcache", "127.0.0.1:0", "--durability", "process_crash"];
        Serving::started(&mut command(data, &[&arguments, more].concat()))
    }

    fn started(command: &mut Command) -> Serving {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines = Vec::new();
        let address = loop {
            let mut line = String::new();
            assert!(
                stdout.read_line(&mut line).unwrap() > 0,
                "the server ended: {lines:?} {:?}",
                child.wait_with_output()
            );
            lines.push(line.clone());
            if let Some(address) = line.strip_prefix("memcache") {
                break address.trim().to_owned();
            }
        };
        Serving { child, lines, address, _stdout: stdout }
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_served_store_is_locked_and_closes_in_order() {
    for signal in ["-TERM", "-INT"] {
        let (_directory, data) = directory();
        let mut serving = Serving::start(&data);
        let told = serving.lines.concat();
        assert!(told.contains(data.to_str().unwrap()) && told.contains("I/O by"), "{told}");
        for arguments in
            [&["get", "key"][..], &["put", "key", "value"], &["check"], &["serve", "--memcache", "127.0.0.1:0"]]
        {
            let locked = run(&data, arguments);
            assert_eq!(code(&locked), 5, "{arguments:?}: {}", stderr(&locked));
            assert!(stderr(&locked).contains("another process"), "{}", stderr(&locked));
        }
        let mut client = std::net::TcpStream::connect(&serving.address).unwrap();
        client.write_all(b"set key 5 0 5\r\nvalue\r\n").unwrap();
        let mut answer = [0; 8];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"STORED\r\n");
        serving.signal(signal);
        assert_eq!(serving.child.wait().unwrap().code(), Some(0));
        assert_eq!(ok(&data, &["get", "key"]), b"value");
        let stats: serde_json::Value = serde_json::from_slice(&ok(&data, &["stats", "--json"])).unwrap();
        assert_eq!(stats["clean"], true, "{stats}");
    }
}

#[test]
fn a_port_that_is_taken_exits_with_5_before_a_store_is_made() {
    let (_directory, data) = directory();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&data, &["serve", "--memcache", &address]);
    assert_eq!(code(&output), 5, "{}", stderr(&output));
    assert!(stderr(&output).contains(&address) && !data.exists());
}

#[test]
fn doctor_measures_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let arguments = ["doctor", path, "--json", "--seconds", "0.02", "--file-bytes", "2M"];
    let report: serde_json::Value = serde_json::from_slice(&ok(directory.path(), &arguments)).unwrap();
    for load in ["read_depth_1", "read_depth_64", "write_depth_1", "write_depth_64"] {
        assert!(report[load]["iops"].as_f64().unwrap() > 0.0, "{load}: {report}");
    }
    let profile = report["profile"].as_array().unwrap();
    assert!(profile.len() > 8 && profile.iter().all(|row| row["bytes_per_s"].as_f64().unwrap() > 0.0), "{report}");
    assert!(["in_place", "packed"].contains(&report["placement"].as_str().unwrap()), "{report}");
    assert!(report["scheduler"].is_string() || report["scheduler"].is_null() && report.get("scheduler").is_some());
    assert!(report["kernel"].as_str().unwrap().starts_with("Linux") && report["advice"].is_array());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let missing = run(directory.path(), &["doctor", "/no/such/directory"]);
    assert_eq!(code(&missing), 3, "{}", stderr(&missing));
}

/// Loads a store of each placement with random keys, and holds the forecast against what it then
/// takes.
#[test]
fn a_plan_comes_true() {
    const RECORDS: u64 = 40_000;
    for (placement, value_bytes) in [("in_place", "400"), ("in_place", "1024"), ("packed", "400"), ("packed", "1024")] {
        let (directory, data) = directory();
        let records = RECORDS.to_string();
        let store = directory.path().join("measured");
        let path = store.to_str().unwrap();
        let bench = ["bench", "ycsb", "--workload", "c", "--data", path, "--keep", "--records", &records];
        let options = ["--value-size", value_bytes, "--placement", placement, "--seconds", "1", "--warm-up", "0"];
        let options =
            [&bench[..], &options, &["--shards", "2", "--durability", "process_crash", "--counters"]].concat();
        let printed = String::from_utf8(ok(&data, &options)).unwrap();
        let found = |name: &str| -> f64 {
            let line = printed.lines().find(|line| line.split_whitespace().next() == Some(name));
            let figure = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            figure.unwrap_or_else(|| panic!("no {name} in {printed}"))
        };
        let plan = ["plan", "--keys", &records, "--key-size", "24", "--value-size", value_bytes];
        // The keys are "user" and digits at random: 40,000 of them share about four.
        let plan = [&plan[..], &["--shared-bytes", "8"]].concat();
        let plan = [&plan[..], &["--placement", placement, "--json"]].concat();
        let plan: serde_json::Value = serde_json::from_slice(&ok(&data, &plan)).unwrap();
        let planned = |name: &str| plan[name].as_f64().unwrap();
        let index = found("index_bytes") / planned("index_bytes");
        assert!((0.9..1.1).contains(&index), "{placement} {value_bytes}: index {index} of the plan {plan}\n{printed}");
        // A log is three quarters alive at most.
        let needed = if placement == "packed" { found("live_bytes") / 0.75 } else { found("pages_used") * 4096.0 };
        let disk = needed / planned("disk_bytes");
        assert!((0.95..1.05).contains(&disk), "{placement} {value_bytes}: disk {disk} of the plan {plan}\n{printed}");
        // Volumes grow ahead of need, small ones by steps of 16 MiB for each shard.
        let most = planned("disk_bytes") * 1.1 + 2.0 * 24.0 * f64::from(1 << 20);
        assert!(found("usable_bytes") < most, "{placement} {value_bytes}: the plan {plan}\n{printed}");
        let begun = std::time::Instant::now();
        assert_eq!(code(&run(&store, &["get", "nobody"])), 3);
        let took = begun.elapsed().as_secs_f64();
        assert!(took < planned("reopen_s") * 20.0 + 2.0, "{placement}: reopened in {took} s, {plan}");
    }
}

#[test]
fn collections_are_key_spaces_of_their_own() {
    let (directory, data) = directory();
    put(&data, &["k", "plain"]);
    put(&data, &["k", "user", "--collection", "users"]);
    put(&data, &["l", "other", "--collection", "users"]);
    assert_eq!(ok(&data, &["get", "k"]), b"plain");
    assert_eq!(ok(&data, &["get", "k", "--collection", "users"]), b"user");
    assert_eq!(ok(&data, &["scan", "--collection", "users"]), b"k\tuser\nl\tother\n");
    assert_eq!(ok(&data, &["collections"]), b"users\n");
    assert_eq!(ok(&data, &["collections", "--json"]), b"[\"users\"]\n");
    let none = run(&data, &["get", "k", "--collection", "nobody"]);
    assert_eq!(code(&none), 3);
    assert!(stderr(&none).contains("nobody"), "{}", stderr(&none));

    let dump = ok(&data, &["dump"]);
    assert_eq!(String::from_utf8_lossy(&dump).lines().count(), 3);
    let one = ok(&data, &["dump", "--collection", "users"]);
    assert!(one.starts_with(b"{\"collection\":\"users\",\"key\":\"k\"") && one.len() < dump.len());
    let copy = directory.path().join("copy");
    assert_eq!(code(&load(&copy, &["-"], &dump)), 0);
    assert_eq!(ok(&copy, &["dump"]), dump);
    let plain = b"{\"key\":\"k\",\"value\":\"v\"}\n";
    assert_eq!(code(&load(&copy, &["--collection", "more", "-"], plain)), 0);
    assert_eq!(ok(&copy, &["get", "k", "--collection", "more"]), b"v");

    let drop = ["collections", "--durability", "process_crash", "--drop", "users"];
    assert_eq!(ok(&data, &drop), b"");
    assert_eq!(code(&run(&data, &drop)), 3);
    assert_eq!((ok(&data, &["collections"]), ok(&data, &["get", "k"])), (Vec::new(), b"plain".to_vec()));
}

#[test]
fn lists_are_listed_dumped_and_loaded() {
    let (directory, data) = directory();
    put(&data, &["k", "v", "--collection", "users"]);
    // Behind the first position, in order.
    let elements = (0..3).map(|at| {
        let key = base64::prelude::BASE64_STANDARD.encode([0x80, 0, 0, 0, 0, 0, 0, at]);
        format!("{{\"list\":\"tasks\",\"key_base64\":\"{key}\",\"value\":\"{at}\"}}\n")
    });
    let elements = elements.collect::<String>().into_bytes();
    assert_eq!(code(&load(&data, &["-"], &elements)), 0);
    assert_eq!(ok(&data, &["dump", "--collection", "tasks"]), elements);
    assert_eq!(
        ok(&data, &["collections", "--long"]),
        b"tasks\tlist\t3\tnever\tbytes\nusers\tkeyvalue\t1\tnever\tbytes\n"
    );
    let dump = ok(&data, &["dump"]);
    let copy = directory.path().join("copy");
    assert_eq!(code(&load(&copy, &["-"], &dump)), 0);
    assert_eq!(ok(&copy, &["dump"]), dump);
    let store = stratakv::Store::open(&copy).unwrap();
    let tasks = store.list("tasks").unwrap();
    tasks.push_back(b"3").unwrap();
    let all: Vec<_> = tasks.iter().map(|element| element.unwrap().value).collect();
    assert_eq!(all, ["0", "1", "2", "3"]);
    drop(tasks);
    store.close().unwrap();
    drop(store);
    let refused = run(&data, &["put", "k", "v", "--collection", "tasks", "--durability", "process_crash"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("`tasks` is a list"), "{}", stderr(&refused));
    let both = b"{\"list\":\"a\",\"collection\":\"b\",\"key\":\"k\",\"value\":\"v\"}\n";
    let refused = load(&data, &["-"], both);
    assert!(stderr(&refused).contains("both `collection` and `list`"), "{}", stderr(&refused));
}

#[test]
fn keys_are_picked_by_a_pattern() {
    let (_directory, data) = directory();
    let lines = (0..200).map(|n| format!("{{\"key\":\"user:{n}\",\"value\":\"v{n}\"}}\n")).collect::<String>();
    assert_eq!(code(&load(&data, &["-"], lines.as_bytes())), 0);
    assert_eq!(ok(&data, &["scan", "--match", "^user:1?7$"]), b"user:17\tv17\nuser:7\tv7\n");
    assert_eq!(ok(&data, &["scan", "--match", "9", "--keys-only", "--limit", "2"]), b"user:109\nuser:119\n");
    let reverse = ok(&data, &["scan", "--match", "[0-9]{3}", "--reverse", "--limit", "70"]);
    assert_eq!((reverse.split(|byte| *byte == b'\n').count(), reverse.starts_with(b"user:199\tv199\n")), (71, true));
    let bad = run(&data, &["scan", "--match", "["]);
    assert_eq!(code(&bad), 2, "{}", stderr(&bad));
}

#[test]
fn ranges_are_deleted_and_records_updated() {
    let (_directory, data) = directory();
    let level = ["--durability", "process_crash"];
    let change = |arguments: &[&str]| ok(&data, &[arguments, &level].concat());
    assert_eq!(change(&["update", "n", "--increment", "40"]), b"40\n");
    assert_eq!(change(&["update", "n", "--increment", "2"]), b"42\n");
    assert_eq!(change(&["update", "n", "--decrement", "50"]), b"0\n");
    change(&["put", "a1", "x"]);
    change(&["update", "a1", "--append", "y"]);
    change(&["update", "a1", "--prepend", "w"]);
    assert_eq!(ok(&data, &["get", "a1"]), b"wxy");
    change(&["update", "a1", "--ttl", "1000"]);
    let line: serde_json::Value = serde_json::from_slice(&ok(&data, &["get", "a1", "--json"])).unwrap();
    assert!(line["expiry"].as_u64().is_some());
    assert_eq!(code(&run(&data, &[&["update", "none", "--append", "x"][..], &level].concat())), 3);
    let word = run(&data, &[&["update", "a1", "--increment", "1"][..], &level].concat());
    assert_eq!(code(&word), 2, "{}", stderr(&word));
    assert_eq!(code(&run(&data, &["update", "n"])), 2, "a change must be named");

    change(&["put", "a2", "x"]);
    change(&["put", "b", "x"]);
    let deleted = run(&data, &[&["del", "--prefix", "a"][..], &level].concat());
    assert!(stderr(&deleted).contains("2 keys deleted"), "{}", stderr(&deleted));
    assert_eq!(ok(&data, &["scan", "--keys-only"]), b"b\nn\n");
    change(&["del", "--from", "b", "--to", "c"]);
    assert_eq!(ok(&data, &["scan", "--keys-only"]), b"n\n");
    assert_eq!(code(&run(&data, &["del"])), 2, "never everything for want of an argument");
    assert_eq!(code(&run(&data, &["del", "k", "--prefix", "a"])), 2);
}

#[test]
fn a_backup_is_restored_to_other_disks() {
    let (directory, data) = directory();
    put(&data, &["k", "plain"]);
    put(&data, &["k", "user", "--collection", "users"]);
    let backup = directory.path().join("backup");
    let backup = backup.to_str().unwrap();
    assert!(String::from_utf8(ok(&data, &["backup", backup, "--json"])).unwrap().contains("\"records\":"));
    assert_eq!(code(&run(&data, &["backup", backup])), 2, "it is not empty any more");
    let (a, b) = (directory.path().join("a"), directory.path().join("b"));
    let spread = ["--data", a.to_str().unwrap(), "--data", b.to_str().unwrap()];
    ok(&data, &[&["restore", backup, "--shards", "3"][..], &spread].concat());
    assert!(b.join("part.toml").exists() && b.join("shard-001.vol").exists());
    assert_eq!(ok(&a, &["dump"]), ok(&data, &["dump"]));
    assert_eq!(ok(&data, &[&["get", "k", "--collection", "users"][..], &spread].concat()), b"user");
    ok(&a, &["check"]);
    let stats: serde_json::Value = serde_json::from_slice(&ok(&a, &["stats", "--shards", "--json"])).unwrap();
    assert_eq!(stats["by_shard"].as_array().map(Vec::len), Some(3));
    std::fs::rename(&b, directory.path().join("elsewhere")).unwrap();
    let missing = run(&a, &["get", "k"]);
    assert_eq!(code(&missing), 3);
    assert!(stderr(&missing).contains(b.to_str().unwrap()), "{}", stderr(&missing));
    let again = run(&a, &["restore", backup]);
    assert_eq!(code(&again), 2, "{}", stderr(&again));
}

/// A `serve` that should end by itself; killed as soon as it serves.
fn refused_to_serve(data: &Path, arguments: &[&str]) -> Output {
    let all = [&["serve", "--memcache", "127.0.0.1:0", "--durability", "process_crash"][..], arguments].concat();
    let mut child = command(data, &all).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let served = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap() > 0;
    if served {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(!served, "{arguments:?} are taken: {output:?}");
    output
}

#[test]
fn memory_on_which_nothing_can_live_is_refused() {
    let (_directory, data) = directory();
    for memory in ["0", "1K", "1M"] {
        let output = refused_to_serve(&data, &["--shards", "2", "--memory", memory]);
        assert_eq!(code(&output), 2, "--memory {memory}: {}", stderr(&output));
        assert!(stderr(&output).contains("at least"), "{}", stderr(&output));
    }
    assert!(!data.exists(), "nothing is made");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let least = format!("{}M", cores.min(64));
    put(&data, &["--memory", &least, "key", "value"]);
    assert_eq!(ok(&data, &["get", "--memory", &least, "key"]), b"value");
    assert_eq!(code(&run(&data, &["get", "--memory", "1000K", "key"])), 2);
}

#[test]
fn the_line_that_could_not_be_written_is_named() {
    let (_directory, data) = directory();
    // Keys that fill the memory for the index long before the last of them.
    let key = |line: usize| format!("{line:04}{}", "k".repeat(1000));
    let collection = |line: usize| format!("c{}", line % 3);
    let line = |line| serde_json::json!({ "collection": collection(line), "key": key(line), "value": "" }).to_string();
    let input = (1..=8000).map(|number| line(number) + "\n").collect::<String>();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let least = format!("{}M", cores.min(64));
    let stopped = load(&data, &["--memory", &least], input.as_bytes());
    assert_eq!(code(&stopped), 1, "{}", stderr(&stopped));
    let told = stderr(&stopped);
    let named = told.split("stratakv: stdin: line ").nth(1).unwrap_or_else(|| panic!("no line is named: {told}"));
    let (number, why) = named.split_once(": ").unwrap();
    let number: usize = number.parse().unwrap();
    assert!(!why.contains("line "), "one line is named: {told}");
    let there = |number: usize| code(&run(&data, &["get", "--collection", &collection(number), &key(number)]));
    assert_eq!(there(number), 3, "line {number} was refused");
    let lines = ok(&data, &["scan", "--keys-only", "--collection", &collection(number - 1)]);
    let written: Vec<&[u8]> =
        lines.split(|byte| *byte == b'\n').map(|line| line.get(..4).unwrap_or_default()).collect();
    let before = (1..number).filter(|line| line % 3 == (number - 1) % 3);
    for line in before {
        assert!(written.contains(&format!("{line:04}").as_bytes()), "line {line} of {number} is not written");
    }
}

#[test]
fn an_option_that_is_fixed_at_creation_is_not_passed_over() {
    let (_directory, data) = directory();
    put(&data, &["key", "value"]);
    let report: serde_json::Value = serde_json::from_slice(&ok(&data, &["check", "--json"])).unwrap();
    let shards = report["shards"].as_u64().unwrap();
    for other in [["--shards", &(shards + 1).to_string()], ["--placement", "packed"]] {
        let refused = refused_to_serve(&data, &other);
        assert_eq!(code(&refused), 2, "{}", stderr(&refused));
        assert!(stderr(&refused).contains(other[0]) && stderr(&refused).contains("fixed"), "{}", stderr(&refused));
    }
}

#[test]
fn damage_is_told_once_and_names_its_key() {
    let (_directory, data) = directory();
    for number in 0..30 {
        put(&data, &["key", &format!("needle{number:02}needle")]);
    }
    put(&data, &["other", "value"]);
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        while let Some(at) = bytes.windows(6).position(|window| window == b"needle") {
            bytes[at..at + 6].fill(b'?');
        }
        std::fs::write(&path, bytes).unwrap();
    }
    // What has nothing to do with the damage says nothing of it.
    let other = run(&data, &["get", "other"]);
    assert_eq!((code(&other), stderr(&other).as_str()), (0, ""));
    let get = run(&data, &["get", "key"]);
    assert_eq!((code(&get), stderr(&get).lines().count()), (4, 1), "{}", stderr(&get));
    assert!(!stderr(&get).contains("0:key"), "{}", stderr(&get));
    let checked = run(&data, &["check"]);
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(text.contains("lost: `key`"), "{text}");
    assert_eq!(text.matches("damaged: ").count(), 1, "images that are superseded are no damage: {text}");
    assert!(stderr(&checked).contains("1 record is lost"), "{}", stderr(&checked));
    let json: serde_json::Value = serde_json::from_slice(&run(&data, &["check", "--json"]).stdout).unwrap();
    assert_eq!((&json["lost"][0]["key"], &json["lost_records"]), (&"key".into(), &1.into()), "{json}");
    let dumped = run(&data, &["dump", "--skip-damaged"]);
    assert!(stderr(&dumped).contains("key `key`"), "{}", stderr(&dumped));
}

#[test]
fn a_usage_line_says_that_there_are_options() {
    let (_directory, data) = directory();
    for command in [&["get"][..], &["put", "key"], &["bench", "ycsb"]] {
        let told = stderr(&run(&data, command));
        assert!(told.contains(&format!("Usage: stratakv {}", command[0])) && told.contains("[OPTIONS]"), "{told}");
    }
}
