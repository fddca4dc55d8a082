//! Commands that ask a running server.

use std::net::TcpStream;

use super::*;

fn asked(serving: &Serving, arguments: &[&str]) -> Output {
    // A directory that is not there: nothing but the server can answer.
    run(Path::new("/nonexistent/stratakv"), &[arguments, &["--server", &serving.address]].concat())
}

fn told(serving: &Serving, arguments: &[&str]) -> String {
    let output = asked(serving, arguments);
    assert_eq!(code(&output), 0, "{arguments:?}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_running_server_is_asked() {
    let (directory, data) = directory();
    let serving = Serving::start(&data);
    assert_eq!(told(&serving, &["put", "k", "a b\r\nEND", "--flags", "7"]), "");
    assert_eq!(told(&serving, &["get", "k"]), "a b\r\nEND");
    let line: serde_json::Value = serde_json::from_str(&told(&serving, &["get", "k", "--json"])).unwrap();
    assert!(line["value"] == "a b\r\nEND" && line["flags"] == 7, "{line}");
    let version = line["version"].as_u64().unwrap();

    let file = directory.path().join("value");
    let long: Vec<u8> = (0..900_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    std::fs::write(&file, &long).unwrap();
    told(&serving, &["put", "long", "--file", file.to_str().unwrap()]);
    assert!(asked(&serving, &["get", "long"]).stdout == long);
    std::fs::write(&file, vec![1; (1 << 20) + 1]).unwrap();
    let refused = asked(&serving, &["put", "longer", "--file", file.to_str().unwrap()]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("--item-bytes-max"), "{}", stderr(&refused));

    let put = |arguments: &[&str]| code(&asked(&serving, &[&["put", "k"], arguments].concat()));
    assert_eq!(put(&["1", "--if-absent"]), 1);
    assert_eq!(put(&["1", "--if-version", &(version + 100).to_string()]), 1);
    assert_eq!(put(&["1", "--if-version", &version.to_string()]), 0);
    assert_eq!(put(&["2", "--if-present", "--ttl", "5000000"]), 0);
    assert_eq!(code(&asked(&serving, &["put", "absent", "1", "--if-present"])), 3);
    assert_eq!(code(&asked(&serving, &["put", "absent", "1", "--if-version", "1"])), 3);
    assert_eq!(code(&asked(&serving, &["get", "absent"])), 3);

    let removed = asked(&serving, &["del", "long", "absent", "k"]);
    assert_eq!(code(&removed), 3);
    assert!(stderr(&removed).contains("`absent`") && !stderr(&removed).contains("`k`"), "{}", stderr(&removed));
    assert_eq!(code(&asked(&serving, &["get", "k"])), 3);
    told(&serving, &["put", "a", "1"]);
    told(&serving, &["del", "a"]);
}

#[test]
fn a_running_server_updates_and_tells_its_statistics() {
    let (_directory, data) = directory();
    let serving = Serving::start(&data);
    assert_eq!(told(&serving, &["update", "visits", "--increment", "5"]), "5\n");
    assert_eq!(told(&serving, &["update", "visits", "--increment", "5"]), "10\n");
    assert_eq!(told(&serving, &["update", "visits", "--decrement", "3"]), "7\n");
    assert_eq!(told(&serving, &["update", "down", "--decrement", "3"]), "0\n");
    told(&serving, &["put", "log", "one"]);
    told(&serving, &["update", "log", "--append", ", two"]);
    told(&serving, &["update", "log", "--prepend", "zero, "]);
    assert_eq!(told(&serving, &["get", "log"]), "zero, one, two");
    assert_eq!(code(&asked(&serving, &["update", "log", "--increment", "1"])), 1);
    told(&serving, &["update", "log", "--ttl", "1000"]);
    for change in [["--append", "x"], ["--prepend", "x"], ["--ttl", "9"]] {
        assert_eq!(code(&asked(&serving, &["update", "absent", change[0], change[1]])), 3);
    }
    let stats: serde_json::Value = serde_json::from_str(&told(&serving, &["stats", "--json"])).unwrap();
    assert!(stats["records"] == 3 && stats["curr_items"] == 3 && stats["version"].is_string(), "{stats}");
    let table = told(&serving, &["stats"]);
    assert!(table.lines().any(|line| line.starts_with("records ") && line.ends_with(" 3")), "{table}");
}

/// Clients of the protocol see no other collection, so they empty no other.
/// It began with a table; and a hundred counters stood where people looked for four figures.
#[test]
fn what_people_read_first_comes_first() {
    let (_directory, data) = directory();
    let serving = Serving::start(&data);
    let first = &serving.lines[0];
    assert!(first.starts_with("Serving ") && first.contains(&serving.address) && first.contains("Ctrl-C"), "{first}");
    told(&serving, &["put", "key", "value"]);
    told(&serving, &["get", "key"]);
    let table = told(&serving, &["stats"]);
    assert!(table.starts_with("Items    1, ") && table.contains("\nHits     100.0 % of 1 get\n"), "{table}");
    assert!(table.contains("\nMemory   ") && table.contains("\nClients  ") && table.contains("\nDisk     "), "{table}");
    let (summary, counters) = table.split_once("\n\n").unwrap();
    assert!(summary.lines().count() <= 6 && counters.contains("curr_items"), "{table}");
    let names = |text: &str| text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&told(&serving, &["stats", "--raw"])), names(counters));
    drop(serving);
    let table = String::from_utf8(ok(&data, &["stats"])).unwrap();
    assert!(table.starts_with("Items    1\n"), "{table}");
    assert!(ok(&data, &["stats", "--raw"]).starts_with(b"path "));
}

/// Ranges and dumps of a server say what those of its store say.
#[test]
fn scan_and_dump_ask_a_server() {
    for engine in ["slab", "matrix", "hash"] {
        let (_directory, data) = directory();
        let region: &[&str] = if engine == "slab" { &[] } else { &["--region", "16M"] };
        put(&data, &[&["--engine", engine][..], region, &["user:1", "Ada\tLovelace"]].concat());
        for (key, value, flags) in [("user:2", "Grace", "7"), ("user:3", "", "0"), ("z", "last", "0")] {
            put(&data, &["--flags", flags, key, value]);
        }
        let lines: String = (0..1500).map(|n| format!("{{\"key\":\"many:{n:04}\",\"value\":\"{n}\"}}\n")).collect();
        let file = data.with_extension("jsonl");
        std::fs::write(&file, lines).unwrap();
        ok(&data, &["load", file.to_str().unwrap()]);
        put(&data, &["--base64", "/wAg", "binary"]);
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let dumped = String::from_utf8(ok(&data, &["dump"])).unwrap();
        let scans: [&[&str]; 6] = [
            &["scan"],
            &["scan", "--prefix", "user:", "--json"],
            &["scan", "--from", "many:0500", "--to", "z", "--reverse", "--limit", "1100"],
            &["scan", "--keys-only", "--limit", "3"],
            &["scan", "--match", "[13]$", "--limit", "70"],
            &["scan", "--match", "user", "--keys-only", "--json"],
        ];
        let is_ordered = engine != "hash";
        let shown: Vec<Vec<u8>> = scans.iter().filter(|_| is_ordered).map(|scan| ok(&data, scan)).collect();
        let serving = Serving::start(&data);
        let of_server = told(&serving, &["dump"]);
        assert_eq!(sorted(&of_server), sorted(&dumped), "{engine}");
        assert!(!is_ordered || of_server == dumped, "{engine}");
        assert_eq!(told(&serving, &["dump", "--prefix", "user:"]).lines().count(), 3, "{engine}");
        for (scan, shown) in scans.iter().zip(&shown) {
            assert_eq!(told(&serving, scan).as_bytes(), shown, "{engine}, {scan:?}");
        }
        if !is_ordered {
            let output = asked(&serving, &["scan"]);
            assert_eq!(code(&output), 6);
            assert!(stderr(&output).contains("no order"), "{}", stderr(&output));
        }
    }
}

#[test]
fn flush_all_leaves_named_collections() {
    for engine in [&["--engine", "slab"][..], &["--engine", "hash", "--region", "8M"]] {
        let (_directory, data) = directory();
        put(&data, &[engine, &["k", "v"]].concat());
        put(&data, &["--collection", "c", "k", "v"]);
        let mut serving = Serving::start(&data);
        let mut stream = TcpStream::connect(&serving.address).unwrap();
        stream.write_all(b"flush_all\r\n").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"OK\r\n");
        assert_eq!(code(&asked(&serving, &["get", "k"])), 3);
        serving.signal("-TERM");
        assert_eq!(serving.child.wait().unwrap().code(), Some(0));
        assert_eq!(ok(&data, &["get", "--collection", "c", "k"]), b"v");
    }
}

#[test]
fn what_a_server_cannot_be_told_is_refused() {
    let (_directory, data) = directory();
    let serving = Serving::start(&data);
    let cases: [&[&str]; 12] = [
        &["get", "a b"],
        &["put", "", "value"],
        &["put", "key", "value", "--json"],
        &["put", "key", "value", "--durability", "power_loss"],
        &["get", "key", "--data", "elsewhere"],
        &["get", "key", "--memory", "1G"],
        &["get", "key", "--collection", "users"],
        &["del", "--prefix", "k", "--collection", "users"],
        &["check", "--device", "/dev/null"],
        &["check", "--io", "blocking"],
        &["stats", "--shards"],
        &["del", "--base64", "AAA="],
    ];
    for arguments in cases {
        let output = asked(&serving, arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
    }
    let shards = stderr(&asked(&serving, &["stats", "--shards"]));
    assert!(shards.contains("sums over the shards") && shards.contains("Leave --shards out"), "{shards}");
    let collection = stderr(&asked(&serving, &["get", "key", "--collection", "users"]));
    assert!(collection.contains("--collection") && collection.contains("default collection"), "{collection}");
}

#[test]
fn who_finds_the_store_taken_is_told_of_the_server() {
    let (_directory, data) = directory();
    let serving = Serving::start(&data);
    for arguments in [&["get", "key"][..], &["put", "key", "1"], &["del", "key"], &["stats"], &["backup", "b"]] {
        let locked = run(&data, arguments);
        assert_eq!(code(&locked), 5, "{arguments:?}");
        let told = stderr(&locked);
        assert!(
            told.contains(&format!("process {}", serving.child.id())) && told.contains("--server HOST:PORT"),
            "{told}"
        );
    }
}

#[test]
fn a_server_that_is_not_there_or_is_none_is_told() {
    let nowhere = Path::new("/nonexistent/stratakv");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || -> TcpStream {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        stream
    });
    let output = run(nowhere, &["get", "key", "--server", &address]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("SSH-2.0") && stderr(&output).contains(&address), "{}", stderr(&output));
    drop(answering.join().unwrap());
    let output = run(nowhere, &["get", "key", "--server", &address]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("cannot connect") && stderr(&output).contains("serve"), "{}", stderr(&output));
    for bad in ["127.0.0.1", "127.0.0.1:x", ":::", ""] {
        let output = run(nowhere, &["get", "key", "--server", bad]);
        assert_eq!(code(&output), 2, "{bad}: {}", stderr(&output));
    }
}
