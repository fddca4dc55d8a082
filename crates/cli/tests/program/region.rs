//! Stores of engine `hash`, and what they share with caches.

use std::path::Path;

use super::{Serving, code, directory, feed, load, ok, put, run, stderr};

const MAKE: [&str; 4] = ["--engine", "hash", "--region", "32M"];

fn json(data: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_slice(&ok(data, arguments)).unwrap()
}

fn sorted(lines: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(lines).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn every_command_works_on_a_store_in_a_region() {
    let (directory, data) = directory();
    put(&data, &[&MAKE[..], &["--flags", "7", "--", "user:1", "Ada"]].concat());
    put(&data, &["user:2", "Grace"]);
    put(&data, &["--collection", "c", "k", "v"]);
    assert_eq!(ok(&data, &["get", "user:1"]), b"Ada");
    let counted = ["update", "--durability", "process_crash", "--increment", "3", "visits"];
    assert_eq!((ok(&data, &counted), ok(&data, &counted)), (b"3\n".to_vec(), b"6\n".to_vec()));
    assert_eq!(ok(&data, &["collections"]), b"c\n");
    assert_eq!(ok(&data, &["scan", "--collection", "c"]), b"k\tv\n");
    let scan = run(&data, &["scan"]);
    assert_eq!(code(&scan), 6, "{}", stderr(&scan));
    assert!(stderr(&scan).contains("in no order") && stderr(&scan).contains("dump"), "{}", stderr(&scan));
    let stats = json(&data, &["stats", "--json"]);
    assert_eq!(
        (&stats["records"], &stats["clean"], &stats["region_bytes"]),
        (&4.into(), &true.into(), &(32 << 20).into())
    );
    // The names of collections are nobody's records.
    assert_eq!(stats["catalogue_records"], 2, "{stats}");
    let lies = data.join("pmem/region-000");
    assert_eq!((&stats["engine"], &stats["region_path"]), (&"hash".into(), &lies.to_str().unwrap().into()));
    let text = String::from_utf8(ok(&data, &["stats"])).unwrap();
    let rows = ["engine ", "region ", "region lies in", "durability, at most"];
    assert!(rows.iter().all(|row| text.lines().any(|line| line.starts_with(row))), "{text}");
    let checked = json(&data, &["check", "--json"]);
    assert_eq!((&checked["sound"], &checked["records"], &checked["pages"]), (&true.into(), &4.into(), &8192.into()));
    // Out, into a store of the other engine, and back.
    let dumped = ok(&data, &["dump"]);
    assert_eq!(sorted(&dumped).len(), 4);
    let slab = directory.path().join("slab");
    assert_eq!(code(&load(&slab, &[], &dumped)), 0);
    assert_eq!(sorted(&ok(&slab, &["dump"])), sorted(&dumped));
    let again = directory.path().join("again");
    assert_eq!(code(&load(&again, &MAKE, &ok(&slab, &["dump"]))), 0);
    assert_eq!(sorted(&ok(&again, &["dump"])), sorted(&dumped));
    assert_eq!(sorted(&ok(&again, &["dump", "--prefix", "user:"])).len(), 2);
    let backup = directory.path().join("backup");
    ok(&data, &["backup", backup.to_str().unwrap()]);
    let restored = directory.path().join("restored");
    ok(&restored, &[&["restore", backup.to_str().unwrap()], &MAKE[..]].concat());
    assert_eq!(sorted(&ok(&restored, &["dump"])), sorted(&dumped));
    ok(&data, &["del", "--durability", "process_crash", "user:1"]);
    assert_eq!(code(&run(&data, &["get", "user:1"])), 3);
    ok(&data, &["del", "--durability", "process_crash", "--prefix", "user:"]);
    assert_eq!(sorted(&ok(&data, &["dump"])).len(), 2);
}

/// It made a slab store, or failed when it came to the records that had no room.
#[test]
fn a_restored_region_is_as_it_was_unless_it_is_told_otherwise() {
    let (directory, data) = directory();
    let lines: String =
        (0..20_000).map(|number| format!("{{\"key\":\"{number}\",\"value\":\"{:0100}\"}}\n", number)).collect();
    let filled = load(&data, &["--engine", "hash", "--region", "8M"], lines.as_bytes());
    assert_eq!(code(&filled), 0, "{}", stderr(&filled));
    let backup = directory.path().join("backup");
    let backup = backup.to_str().unwrap();
    ok(&data, &["backup", backup]);
    let restore = |name: &str, more: &[&str]| {
        let made = directory.path().join(name);
        let output = run(&made, &[&["restore", backup], more].concat());
        (made, output)
    };
    let (copy, done) = restore("copy", &[]);
    assert!(code(&done) == 0 && stderr(&done).contains("engine hash"), "{}", stderr(&done));
    let figure = |data: &Path, name: &str| json(data, &["stats", "--json"])[name].as_u64();
    assert_eq!(figure(&copy, "region_bytes"), Some(8 << 20));
    assert_eq!(sorted(&ok(&copy, &["dump"])), sorted(&ok(&data, &["dump"])));
    let (small, refused) = restore("small", &["--region", "2M"]);
    let said = stderr(&refused);
    assert!(code(&refused) == 2 && said.contains("20000 records") && said.contains("leave its length out"), "{said}");
    assert!(!small.exists());
    let (_, refused) = restore("shards", &["--shards", "2"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("--engine slab"), "{}", stderr(&refused));
    let (slab, done) = restore("slab", &["--engine", "slab", "--shards", "2"]);
    assert!(code(&done) == 0 && figure(&slab, "region_bytes").is_none(), "{}", stderr(&done));
    let (long, done) = restore("long", &["--region", "16M"]);
    assert!(code(&done) == 0 && figure(&long, "region_bytes") == Some(16 << 20), "{}", stderr(&done));
    let loaded = load(&directory.path().join("none"), &[backup], b"");
    assert!(code(&loaded) == 2 && stderr(&loaded).contains("stratakv restore"), "{}", stderr(&loaded));
}

#[test]
fn another_engine_or_region_is_not_passed_over() {
    let (directory, data) = directory();
    put(&data, &[&MAKE[..], &["k", "v"]].concat());
    let usage = |data: &Path, arguments: &[&str], words: &str| {
        let arguments = [arguments, &["--durability", "process_crash", "k", "w"]].concat();
        let output = run(data, &arguments);
        assert!(code(&output) == 2 && stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    };
    usage(&data, &["put", "--engine", "slab"], "`slab` was asked for");
    usage(&data, &["put", "--region", "16M"], "never gets shorter");
    let slab = directory.path().join("slab");
    put(&slab, &["k", "v"]);
    usage(&slab, &["put", "--engine", "hash"], "`hash` was asked for");
    usage(&slab, &["put", "--region", "64M"], "has the engine `slab`");
    usage(&slab, &["put", "--server", "127.0.0.1:1", "--engine", "hash"], "--engine");
    assert_eq!(ok(&slab, &["get", "k"]), b"v");
    // It said that a store which is not there has another engine.
    let absent = directory.path().join("absent");
    usage(&absent, &["put", "--region", "64M"], "--engine hash");
    let serve = ["serve", "--memcache", "127.0.0.1:0", "--region", "64M"];
    let refused = run(&absent, &serve);
    let said = stderr(&refused);
    assert!(code(&refused) == 2 && said.contains("--engine hash") && !said.contains("placement"), "{said}");
    assert!(!absent.exists());
    // A region that was moved is named.
    let moved = directory.path().join("moved");
    std::fs::rename(data.join("pmem/region-000"), &moved).unwrap();
    let missing = run(&data, &["get", "k"]);
    assert!(code(&missing) == 3 && stderr(&missing).contains("--region-path"), "{}", stderr(&missing));
    assert_eq!(ok(&data, &["get", "--region-path", moved.to_str().unwrap(), "k"]), b"v");
    assert_eq!(code(&run(&data, &["check", "--region-path", moved.to_str().unwrap()])), 0);
}

#[test]
fn a_region_grows_as_it_is_told_and_says_so() {
    let (_directory, data) = directory();
    put(&data, &[&MAKE[..], &["k", "v"]].concat());
    let grown = run(&data, &["put", "--durability", "process_crash", "--region", "48M", "l", "w"]);
    let said = stderr(&grown);
    assert!(code(&grown) == 0 && said.contains("grown from 32.0 MiB to 48.0 MiB"), "{said}");
    let again = run(&data, &["put", "--durability", "process_crash", "--region", "48M", "m", "x"]);
    assert!(code(&again) == 0 && !stderr(&again).contains("grown"), "{}", stderr(&again));
    let serving = Serving::with(&data, &["--region", "64M"]);
    assert!(serving.lines.concat().contains("hash, 64.0 MiB in"), "{}", serving.lines.concat());
    assert_eq!(ok(&data, &["get", "--server", &serving.address, "k"]), b"v");
    drop(serving);
    let stats = json(&data, &["stats", "--json"]);
    assert_eq!((&stats["records"], &stats["region_bytes"]), (&3.into(), &(64 << 20).into()));
    let checked = json(&data, &["check", "--json"]);
    assert_eq!((&checked["sound"], &checked["pages"]), (&true.into(), &16384.into()));
}

#[test]
fn a_served_region_is_announced_killed_and_closed_in_order() {
    let (_directory, data) = directory();
    let told = |serving: &Serving| serving.lines.concat();
    let serving = Serving::with(&data, &MAKE);
    assert!(
        told(&serving).contains("hash, 32.0 MiB in") && told(&serving).contains("region-000"),
        "{}",
        told(&serving)
    );
    let server = ["put", "--server", &serving.address, "k", "v"];
    ok(&data, &server);
    let stats = json(&data, &["stats", "--json", "--server", &serving.address]);
    let (used, limit) = (stats["bytes"].as_u64().unwrap(), stats["limit_maxbytes"].as_u64());
    assert!(used > 0 && limit == Some(32 << 20), "{stats}");
    let path = data.join("pmem/region-000");
    assert!(stats["engine"] == "hash" && stats["region_path"] == path.to_str().unwrap(), "{stats}");
    assert!(["power_loss", "process_crash"].contains(&stats["durability"].as_str().unwrap()), "{stats}");
    drop(serving);
    let killed = json(&data, &["stats", "--json"]);
    assert_eq!((&killed["clean"], &killed["records"]), (&false.into(), &1.into()));
    let mut serving = Serving::with(&data, &[]);
    assert!(told(&serving).contains("1 record, recovered after a crash"), "{}", told(&serving));
    assert_eq!(ok(&data, &["get", "--server", &serving.address, "k"]), b"v");
    serving.signal("-TERM");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
    assert_eq!(json(&data, &["stats", "--json"])["clean"], true);
    let refused = run(&data, &["serve", "--memcache", "127.0.0.1:0", "--max-latency", "1ms"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("no requests in flight"), "{}", stderr(&refused));
}

#[test]
fn a_plan_for_a_region_comes_true() {
    const RECORDS: u64 = 200_000;
    let (_directory, data) = directory();
    let lines: String =
        (0..RECORDS).map(|number| format!("{{\"key\":\"{number:08}\",\"value\":\"{:0100}\"}}\n", number)).collect();
    let made = feed(
        &data,
        &["load", "--engine", "hash", "--region", "64M", "--durability", "process_crash"],
        lines.as_bytes(),
    );
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let stats = json(&data, &["stats", "--json"]);
    let records = RECORDS.to_string();
    let plan = ["plan", "--engine", "hash", "--keys", &records, "--key-bytes", "8", "--value-bytes", "100", "--json"];
    let plan = json(&data, &plan);
    let ratio = |found: &str, planned: &str| stats[found].as_f64().unwrap() / plan[planned].as_f64().unwrap();
    let used = ratio("region_used_bytes", "disk_bytes");
    assert!((0.8..1.0).contains(&used), "{used}: {plan} {stats}");
    let index = ratio("index_bytes", "memory_bytes_min");
    assert!((0.4..1.1).contains(&index), "{index}: {plan} {stats}");
}

/// It forecast 752 bytes, which `--region` refuses; and with --json no region at all.
#[test]
fn a_region_that_is_planned_can_be_made() {
    let (_directory, data) = directory();
    for keys in ["1", "10", "20000"] {
        let plan = json(&data, &["plan", "--engine", "hash", "--keys", keys, "--value-bytes", "100", "--json"]);
        let region = plan["region_bytes"].as_u64().unwrap().to_string();
        assert!(plan["engine"] == "hash" && plan["region_bytes"] == plan["disk_bytes"], "{plan}");
        put(&data.join(keys), &["--engine", "hash", "--region", &region, "k", "v"]);
    }
    let plan = json(&data, &["plan", "--keys", "10", "--json"]);
    assert!(plan["engine"] == "slab" && plan["region_bytes"].is_null(), "{plan}");
}

#[test]
fn doctor_tells_what_a_region_would_be() {
    let (directory, data) = directory();
    let path = directory.path().to_str().unwrap();
    let brief = ["--seconds", "0.02", "--file-bytes", "2M"];
    let report = json(&data, &[&["doctor", path, "--json"], &brief[..]].concat());
    let domain = report["region_domain"].as_str().unwrap();
    assert!(["volatile", "file", "adr", "eadr"].contains(&domain), "{report}");
    assert!(report["map_sync"].is_boolean() && report["dax_devices"].is_array(), "{report}");
    let engine = report["engine"].as_str().unwrap();
    assert!(["slab", "hash"].contains(&engine), "{report}");
    assert!(report["advice"][0].as_str().unwrap().contains(&format!("--engine {engine}")), "{report}");
    assert!(["power_loss", "process_crash"].contains(&report["durability"].as_str().unwrap()), "{report}");
    // A region of matrix may lie there too: what it promises, and what a commit costs.
    let durability = if domain == "volatile" { "process_crash" } else { "power_loss" };
    assert!(report["region_commit_us_p50"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(report["matrix_durability"], durability, "{report}");
    assert!(report["advice"][1].as_str().unwrap().starts_with("--engine matrix"), "{report}");
    let text = String::from_utf8(ok(&data, &[&["doctor", path], &brief[..]].concat())).unwrap();
    for row in ["commit to a region here", "a region here", "DAX (MAP_SYNC)", "flush instruction", "devdax devices"] {
        assert!(text.contains(row), "{text}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// It advised engine `hash` for memory, and then a placement, which that has not, and a disk.
#[test]
fn doctor_advises_one_engine() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let brief = ["doctor", memory.path().to_str().unwrap(), "--json", "--seconds", "0.02", "--file-bytes", "2M"];
    let report = json(memory.path(), &brief);
    assert!(report["engine"] == "hash" && report["placement"].is_null(), "{report}");
    let advice = report["advice"].as_array().unwrap();
    assert!(advice[0].as_str().unwrap().contains("--engine hash --durability process_crash"), "{report}");
    for words in ["--placement", "put the data on a disk", "in flight"] {
        assert!(advice.iter().all(|line| !line.as_str().unwrap().contains(words)), "{words}: {report}");
    }
}

/// It said `cannot make a temporary file in /dev/dax0.0: Not a directory`.
#[test]
fn doctor_says_what_it_can_look_at() {
    let (directory, data) = directory();
    let file = directory.path().join("a file");
    std::fs::write(&file, "kept").unwrap();
    for path in ["/dev/null", file.to_str().unwrap()] {
        let refused = run(&data, &["doctor", path]);
        assert_eq!(code(&refused), 2, "{}", stderr(&refused));
        let said = stderr(&refused);
        assert!(said.contains(path) && said.contains("name a directory") && said.contains("/dev/dax0.0"), "{said}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
}

/// It left out most of what was undamaged, and did not say so; `check` said that no record was
/// lost, and advised it.
#[test]
fn a_dump_of_a_damaged_region_lacks_what_is_damaged_and_nothing_else() {
    const RECORDS: usize = 3_000;
    let (_directory, data) = directory();
    let line =
        |of: &str, number: usize| format!("{{{of}\"key\":\"key {number:05}\",\"value\":\"a value {number:05}\"}}\n");
    let lines: String = (0..RECORDS).map(|number| line("", number)).collect();
    let named: String = (0..500).map(|number| line("\"collection\":\"named\",", number)).collect();
    let load = ["load", "--engine", "hash", "--region", "4M", "--durability", "process_crash"];
    assert_eq!(code(&feed(&data, &load, (lines + &named).as_bytes())), 0);
    let region = data.join("pmem").join("region-000");
    let mut bytes = std::fs::read(&region).unwrap();
    let at = bytes.windows(13).position(|window| window == b"a value 00100").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&region, bytes).unwrap();
    let checked = run(&data, &["check", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((&report["lost_records"], &report["lost"][0]["key"]), (&1.into(), &"key 00100".into()), "{report}");
    let dumped = run(&data, &["dump", "--skip-damaged"]);
    let text = String::from_utf8(dumped.stdout.clone()).unwrap();
    assert_eq!((code(&dumped), text.lines().count()), (4, RECORDS + 500 - 1), "{}", stderr(&dumped));
    assert!(stderr(&dumped).contains("missing from this dump: 1 damaged record"), "{}", stderr(&dumped));
}

/// It was called a store of engine `hash`, and told to be dumped.
#[test]
fn a_cache_that_cannot_be_dumped_says_that_it_is_one() {
    let (_directory, data) = directory();
    ok(&data, &["put", "--engine", "tier", "--memory", "16M", "user:1", "Ada"]);
    for command in ["dump", "scan"] {
        let refused = run(&data, &[command]);
        assert_eq!(code(&refused), 6, "{}", stderr(&refused));
        assert!(stderr(&refused).contains("A cache (`tier`) cannot be dumped"), "{}", stderr(&refused));
    }
}

/// Missing directories of the path were made in silence: where a file system was not mounted, below
/// its mount point. And nothing said which region it was about, and how long the new one would be.
#[test]
fn a_new_region_was_made_where_its_directory_was_missing() {
    let (directory, data) = directory();
    let mount = directory.path().join("fast/deep");
    std::fs::create_dir_all(&mount).unwrap();
    let region = mount.join("region");
    let text = region.to_str().unwrap();
    put(&data, &["--engine", "matrix", "--region", "16M", "--pmem-levels", "8M", "--region-path", text, "k", "v"]);
    std::fs::remove_dir_all(directory.path().join("fast")).unwrap();
    let told = run(&data, &["repair", "--region", "16M"]);
    let said = String::from_utf8(told.stdout.clone()).unwrap();
    assert_eq!(code(&told), 4, "{said}");
    assert!(said.contains(&format!("region: {text}")) && said.contains("16.0 MiB, no PMEM levels"), "{said}");

    let accept = ["repair", "--accept-lost-region", "--region", "16M", "--durability", "process_crash"];
    let refused = run(&data, &accept);
    assert_eq!(code(&refused), 3, "{}", stderr(&refused));
    assert!(stderr(&refused).contains(&format!("mkdir -p {}", mount.display())), "{}", stderr(&refused));
    assert!(!directory.path().join("fast").exists());
    std::fs::create_dir_all(&mount).unwrap();
    let said = String::from_utf8(ok(&data, &[&accept[..], &["--layer", "8M"]].concat())).unwrap();
    assert!(said.contains(&format!("the new region is {text}: 16.0 MiB, 8.00 MiB of it for PMEM levels")), "{said}");
}

/// A tenth of it was forecast: what a volume sets aside was left out.
#[test]
fn a_small_store_of_matrix_took_more_disk_than_was_forecast() {
    let (_directory, data) = directory();
    put(&data, &["--engine", "matrix", "--region", "8M", "k", "v"]);
    let volume = std::fs::metadata(data.join("shard-000.vol")).unwrap().len();
    let plan = ["plan", "--engine", "matrix", "--keys", "100", "--shards", "1", "--json"];
    let forecast: serde_json::Value = serde_json::from_slice(&ok(&data, &plan)).unwrap();
    assert!(forecast["disk_bytes"].as_u64().unwrap() >= volume, "{forecast} for {volume}");
}
