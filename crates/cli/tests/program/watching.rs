//! Dashboards and alerts of `contrib/`, and `stratakv health`, beside running servers: what they
//! name is there.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use regex::Regex;

use super::{PROGRAM, code, run, stderr};

/// A server of each engine, by the name that dashboard and alerts give it, with its options.
const ENGINES: [(&str, &[&str]); 5] = [
    ("slab", &["--engine", "slab", "--durability", "process_crash"]),
    ("packed", &["--engine", "slab", "--placement", "packed", "--durability", "process_crash"]),
    ("hash", &["--engine", "hash", "--region", "16M", "--durability", "process_crash"]),
    ("matrix", &["--engine", "matrix", "--region", "16M", "--durability", "process_crash"]),
    ("tier", &["--engine", "tier", "--capacity", "64M"]),
];

struct Watched {
    child: Child,
    admin: String,
    memcache: String,
}

impl Watched {
    fn start(directory: &Path, options: &[&str]) -> Watched {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--memory", "32M", "--memcache", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"]);
        command.arg(directory).args(options).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let admin = lines.find_map(|line| Some(line.strip_prefix("admin")?.trim().to_owned())).expect("an address");
        // The last line: from then on clients are served.
        let memcache =
            lines.find_map(|line| Some(line.strip_prefix("memcache")?.trim().to_owned())).expect("it serves");
        let admin = admin.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Watched { child, admin, memcache }
    }

    /// An answer of the admin address, headers and all.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Names of all series that it has or will have.
    fn series(&self) -> BTreeSet<String> {
        let text = self.get("/metrics");
        // By families: a histogram has no line before something was measured.
        let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let series = families.flat_map(|(name, kind)| match kind {
            "histogram" => ["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")).to_vec(),
            _ => vec![name.to_owned()],
        });
        series.collect()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It has nothing that anybody wants back.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn contrib(name: &str) -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Series of ours that an expression names.
fn named(expression: &str) -> Vec<String> {
    let name = Regex::new(r"\bstratakv_[a-z0-9_]+").unwrap();
    name.find_iter(expression).map(|found| found.as_str().to_owned()).collect()
}

/// Each expression of the alerts with the engines that it is for; none: all of them.
fn alerts() -> Vec<(String, Vec<String>)> {
    let mut rules: Vec<(String, Vec<String>)> = Vec::new();
    for line in contrib("prometheus/alerts.yml").lines().map(str::trim) {
        if let Some(expression) = line.strip_prefix("expr: ") {
            rules.push((expression.to_owned(), Vec::new()));
        } else if let Some(engines) = line.strip_prefix("engines: ") {
            rules.last_mut().expect("a rule").1 = engines.split(", ").map(str::to_owned).collect();
        }
    }
    rules
}

/// Each expression of the dashboard with the engine of its row, if that is of one.
fn panels() -> Vec<(String, Vec<String>)> {
    fn collect(panels: &serde_json::Value, row: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
        for panel in panels.as_array().into_iter().flatten() {
            if panel["type"] == "row" {
                let title = panel["title"].as_str().unwrap();
                *row = match title.strip_prefix("Engine ") {
                    Some("slab") => vec!["slab".into(), "packed".into()],
                    Some(engine) => vec![engine.rsplit(' ').next().unwrap().to_owned()],
                    None => Vec::new(),
                };
                collect(&panel["panels"], row, found);
            }
            for target in panel["targets"].as_array().into_iter().flatten() {
                found.push((target["expr"].as_str().unwrap().to_owned(), row.clone()));
            }
        }
    }
    let dashboard: serde_json::Value = serde_json::from_str(&contrib("grafana/stratakv.json")).unwrap();
    let mut found = Vec::new();
    collect(&dashboard["panels"], &mut Vec::new(), &mut found);
    found
}

#[test]
fn servers_have_the_series_that_dashboard_and_alerts_name() {
    let directory = tempfile::tempdir().unwrap();
    let (alerts, panels) = (alerts(), panels());
    assert!(alerts.len() > 20 && panels.len() > 100, "{} alerts, {} panels", alerts.len(), panels.len());
    let known: BTreeSet<&str> = ENGINES.iter().map(|(name, _)| *name).collect();
    let mut checked = 0;
    for (engine, options) in ENGINES {
        let server = Watched::start(&directory.path().join(engine), options);
        let series = server.series();
        for (expression, engines) in alerts.iter().chain(&panels) {
            engines.iter().for_each(|name| assert!(known.contains(name.as_str()), "{name}: {expression}"));
            if !engines.is_empty() && !engines.iter().any(|name| name == engine) {
                continue;
            }
            // `a or b`: engines have one of the two.
            let alternatives = expression.split(" or ").collect::<Vec<_>>();
            let missing = |part: &&str| named(part).into_iter().find(|name| !series.contains(name));
            let found = alternatives.iter().filter(|part| missing(part).is_none()).count();
            let why = alternatives.iter().find_map(missing);
            assert!(found > 0, "engine {engine} has no {}: {expression}", why.unwrap_or_default());
            checked += 1;
        }
    }
    assert!(checked > 400, "{checked}");
}

#[test]
fn figures_tell_what_is_served_by_whom_and_what_was_slow() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Watched::start(&data, &[ENGINES[1].1, &["--shards", "3", "--slow-log-ms", "0"]].concat());
    let figures = || {
        let answer = server.get("/stats.json");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (serde_json::from_str::<serde_json::Value>(body).unwrap(), body.to_owned())
    };
    for key in ["secret", "secret2"] {
        super::ok(directory.path(), &["put", "--server", &server.memcache, key, "value"]);
    }
    let (told, text) = figures();
    assert_eq!((&told["engine"], &told["placement"]), (&"slab".into(), &"packed".into()));
    assert_eq!(told["path"].as_str(), data.to_str());
    let shards = told["shards"]["figures"].as_array().unwrap();
    assert_eq!((told["shards"]["count"].as_u64(), shards.len()), (Some(3), 3));
    assert_eq!(shards.iter().map(|shard| shard["records"].as_u64().unwrap()).sum::<u64>(), 2);
    let slow = &told["slow"];
    assert_eq!((slow["from_us"].as_u64(), slow["recent"].as_array().unwrap().len()), (Some(0), 2), "{slow}");
    let newest = &slow["recent"][0];
    assert_eq!((newest["operation"].as_str(), newest["key_bytes"].as_u64()), (Some("set"), Some(7)), "{newest}");
    assert!(!text.contains("secret"), "nobody logs in there");
}

#[test]
fn health_is_told_by_exit_code_and_message() {
    let directory = tempfile::tempdir().unwrap();
    let server = Watched::start(&directory.path().join("data"), ENGINES[0].1);
    for (arguments, said) in
        [(&["health", &server.admin][..], "ready"), (&["health", &server.admin, "--live"], "alive")]
    {
        let output = run(directory.path(), arguments);
        assert_eq!((code(&output), output.stdout.as_slice()), (0, format!("{said}\n").as_bytes()), "{arguments:?}");
    }
    let admin = server.admin.clone();
    drop(server);
    let output = run(directory.path(), &["health", &admin]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("--admin"), "{}", stderr(&output));
}

#[test]
fn health_does_not_wait_for_a_server_that_says_nothing() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let output = run(directory.path(), &["health", &address, "--timeout", "200ms"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("in time"), "{}", stderr(&output));
    // No HTTP: the address of memcache was named.
    let greeter = std::thread::spawn(move || {
        let (mut stream, _) = silent.accept().and_then(|_| silent.accept()).unwrap();
        // Closing with bytes unread would take back the answer.
        let mut request = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while request.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        stream.write_all(b"ERROR\r\n").unwrap();
    });
    let output = run(directory.path(), &["health", &address]);
    greeter.join().unwrap();
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("not that of --memcache"), "{}", stderr(&output));
}
