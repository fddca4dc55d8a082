//! `bench` as its users see it: what it refuses, what it says, what it leaves behind.

#[path = "bench/report.rs"]
mod report;

use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_stratakv");

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).env_remove("STRATAKV_LOG").args(arguments).output().unwrap()
}

/// `bench ycsb` in `data`, for a second.
fn ycsb(data: &Path, arguments: &[&str]) -> (i32, String, String) {
    let data = data.to_str().unwrap();
    let common = ["bench", "ycsb", "--data", data, "--seconds", "1", "--warm-up", "0", "--durability", "process_crash"];
    let output = run(&[&common, arguments].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn values_shorter_than_their_stamp_are_known_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("bench");
    for bytes in ["0", "3"] {
        let (code, _, told) = ycsb(&data, &["--records", "500", "--workload", "a", "--value-size", bytes]);
        let made = "stratakv: new store: engine slab, placement in_place; `stratakv doctor` says if packed suits\n";
        assert_eq!((code, told.as_str()), (0, made), "{bytes} bytes");
    }
    assert!(!data.exists(), "it is removed afterwards");
}

/// Requests of the store are seen where they are made: in sessions, in place, and on reactors.
#[test]
fn an_explanation_counts_requests_and_names_what_binds() {
    let directory = tempfile::tempdir().unwrap();
    for target in ["embedded", "blocking", "async"] {
        let data = directory.path().join(target);
        let (code, printed, told) =
            ycsb(&data, &["--records", "2000", "--workload", "fill", "--target", target, "--explain"]);
        assert_eq!(code, 0, "{told}");
        let row = printed.lines().find(|line| line.starts_with("write ")).unwrap_or_default();
        let per_s: f64 = row.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
        assert!(per_s > 0.0, "{target}: {printed}");
        assert_eq!(printed.lines().filter(|line| line.starts_with("bound by ")).count(), 1, "{printed}");
    }
    let (_, printed, _) = ycsb(&directory.path().join("plain"), &["--records", "100", "--workload", "c"]);
    assert!(!printed.contains("bound by") && !printed.contains("pages_free"), "nobody asked: {printed}");
    let all = ["--records", "100", "--workload", "c", "--counters"];
    assert!(ycsb(&directory.path().join("counters"), &all).1.contains("pages_free"));
    let remote = ["--workload", "c", "--target", "memcache://127.0.0.1:9", "--explain"];
    let (code, _, told) = ycsb(&directory.path().join("remote"), &remote);
    assert!(code == 2 && told.contains("/metrics"), "{told}");
}

#[test]
fn a_run_that_fails_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("bench");
    // No room for that many.
    let failing = ["--records", "200000", "--workload", "a", "--capacity", "16M", "--shards", "1"];
    let (code, _, told) = ycsb(&data, &failing);
    assert_eq!(code, 1, "{told}");
    assert!(!data.exists());
    std::fs::create_dir(&data).unwrap();
    assert_eq!(ycsb(&data, &failing).0, 1);
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "a directory that was there stays, empty as it was");
}

#[test]
fn a_store_of_somebody_else_is_not_written_to_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let place = data.to_str().unwrap();
    let put = ["put", "--data", place, "--durability", "process_crash", "key", "value"];
    assert!(run(&put).status.success());
    let small = ["--records", "100", "--workload", "c"];
    let (code, _, told) = ycsb(&data, &small);
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("--existing"), "{told}");
    assert_eq!(run(&["scan", "--data", place]).stdout, b"key\tvalue\n");
    let (code, _, told) = ycsb(&data, &[&small[..], &["--existing"]].concat());
    assert_eq!(code, 0, "{told}");
    assert!(data.exists(), "it was there before");

    let other = directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("letter"), "dear").unwrap();
    assert_eq!(ycsb(&other, &small).0, 2, "neither is a directory of other things");
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
}

#[test]
fn what_was_not_loaded_is_not_measured() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("bench");
    let (code, out, told) = ycsb(&data, &["--records", "100", "--workload", "c", "--no-load"]);
    assert_eq!((code, out.as_str()), (3, ""), "{told}");
    assert!(!data.exists());
    let kept = ycsb(&data, &["--records", "100", "--workload", "c", "--keep"]);
    assert_eq!(kept.0, 0, "{}", kept.2);
    let (code, out, told) = ycsb(&data, &["--records", "1000", "--workload", "c", "--no-load"]);
    assert_eq!((code, out.as_str()), (3, ""), "{told}");
    assert!(told.contains("is not there") && data.exists(), "{told}");
    assert_eq!(ycsb(&data, &["--records", "100", "--workload", "c", "--no-load"]).0, 0, "a store that bench made");
}

#[test]
fn hits_are_not_sold_as_misses() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("bench");
    let arguments = ["bench", "paths", "--data", data.to_str().unwrap(), "--records", "1000", "--count", "500"];
    let output = run(&[&arguments[..], &["--durability", "process_crash"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let miss = text.lines().find(|line| line.starts_with("blocking miss")).unwrap_or_else(|| panic!("{output:?}"));
    assert!(miss.contains("the cache holds the rest"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--memory"), "{output:?}");
}

/// `bench suite kvdk` on next to nothing, in `data`.
fn suite(data: &Path, arguments: &[&str]) -> (i32, String, String) {
    let data = data.to_str().unwrap();
    let common = ["bench", "suite", "kvdk", "--data", data, "--scale", "0.00001", "--rounds", "1", "--memory", "64M"];
    let output = run(&[&common, arguments].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_suite_prints_a_table_and_leaves_only_its_json() {
    let directory = tempfile::tempdir().unwrap();
    let (data, json) = (directory.path().join("bench"), directory.path().join("kvdk.json"));
    let (code, out, told) = suite(&data, &["--json", json.to_str().unwrap()]);
    assert_eq!((code, told.as_str()), (0, ""));
    for words in ["phase", "strings fill", "list pop", "graph search 4 hops", "most edges"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    assert!(!data.exists(), "what the suite made is removed");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((report["suite"].as_str(), report["graph"]["vertices"].as_u64()), (Some("kvdk"), Some(16)));
    assert_eq!(report["phases"].as_array().map(Vec::len), Some(3 * 13 + 4));
}

#[test]
fn a_suite_takes_graphs_from_files_and_says_what_is_wrong_with_them() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (directory.path().join("bench"), directory.path().join("graph"));
    let graph = file.to_str().unwrap();
    std::fs::write(&file, "# four of them\n0\t1\n1\t2\n2\t3\n0\t3\n").unwrap();
    let (code, out, told) = suite(&data, &["--edges", graph]);
    assert_eq!((code, told.as_str()), (0, ""));
    assert!(out.contains("graph: 4 vertices, 4 edges of 4 that came"), "{out}");
    assert!(out.contains("from vertex 0, reached after 0, 1, .. edges: [1, 2, 1]"), "{out}");
    let (code, _, told) = suite(&data, &["--packages", graph]);
    assert!(code == 2 && told.contains("no package is in the text"), "{told}");
    std::fs::write(&file, "Package: a\nDepends: b, c\n\nPackage: b\nDepends: c\n").unwrap();
    let (code, out, told) = suite(&data, &["--packages", graph]);
    assert_eq!((code, told.as_str()), (0, ""));
    assert!(out.contains("graph: 3 vertices, 3 edges of 3 that came"), "{out}");
    let (code, _, told) = suite(&data, &["--edges", graph]);
    assert!(code == 2 && told.contains("line 1 is no edge"), "{told}");
    std::fs::write(&file, "# none\n").unwrap();
    let (code, _, told) = suite(&data, &["--edges", graph]);
    assert!(code == 2 && told.contains("no edges"), "{told}");
    assert_eq!(suite(&data, &["--scale", "0"]).0, 2);
    assert!(!data.exists());
}

/// `bench suite matrixkv` on next to nothing, its region on no tmpfs.
fn matrixkv(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let (data, fast) = (directory.join("bench"), directory.join("fast"));
    let places = ["--data", data.to_str().unwrap(), "--pmem", fast.to_str().unwrap()];
    let common = ["bench", "suite", "matrixkv", "--scale", "0.00001", "--rounds", "1"];
    let output = run(&[&common[..], &places, arguments].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(!data.exists() && !fast.exists(), "what the suite made is removed");
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_run_of_matrixkv_can_stand_beside_another() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (json, html) = (file("ours.json"), file("report.html"));
    let (code, out, told) = matrixkv(directory.path(), &["--value-sizes", "100,4K", "--json", &json]);
    assert_eq!((code, told.as_str()), (0, ""));
    assert!(out.lines().count() == 3 && out.contains("worst/mean") && out.contains("   4096 matrix"), "{out}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((report["suite"].as_str(), report["schema"].as_u64()), (Some("matrixkv"), Some(1)));
    assert_eq!(report["fills"].as_array().map(Vec::len), Some(2));

    let beside = std::fs::read_to_string(&json).unwrap().replace("\"matrix\"", "\"rocksdb-async\"");
    let peer = file("matrixkv.json");
    std::fs::write(&peer, beside).unwrap();
    let sizes = ["--value-sizes", "100,4K"];
    let (code, out, told) = matrixkv(directory.path(), &[&sizes[..], &["--report", &html, "--beside", &peer]].concat());
    assert_eq!((code, told.as_str()), (0, ""));
    assert!(out.contains("rocksdb-async"), "{out}");
    let page = std::fs::read_to_string(&html).unwrap();
    for figure in ["throughput", "timeline", "latency", "amplification", "comparison"] {
        assert!(page.contains(&format!("<section id=\"{figure}\">")), "{figure}");
    }
    assert!(page.contains("matrix beside rocksdb-async") && page.contains("</svg>"));
}

#[test]
fn what_cannot_stand_beside_is_told_before_anything_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("other.json");
    let (other, html) = (file.to_str().unwrap(), directory.path().join("report.html"));
    let beside = ["--report", html.to_str().unwrap(), "--beside", other];
    for (text, words) in [
        (None, "cannot read"),
        (Some("value_bytes,store"), "is no JSON"),
        (Some("{\"suite\":\"kvdk\",\"schema\":1}"), "is a report of suite `kvdk`"),
        (Some("{\"suite\":\"matrixkv\",\"schema\":9}"), "is of schema 9; this program reads up to 1"),
    ] {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let (code, out, told) = matrixkv(directory.path(), &beside);
        assert_eq!((code, out.as_str()), (2, ""), "{told}");
        assert!(told.contains(words) && told.contains("--beside") && told.contains("other.json"), "{told}");
    }
    let (code, _, told) = matrixkv(directory.path(), &["--beside", other]);
    assert!(code == 2 && told.contains("--report"), "{told}");
    for wrong in [["--value-sizes", "0"], ["--value-sizes", "65M"], ["--scale", "0"], ["--rounds", "0"]] {
        let (code, out, told) = matrixkv(directory.path(), &wrong);
        assert_eq!((code, out.as_str()), (2, ""), "{wrong:?} {told}");
    }
    assert!(!html.exists());
}

#[test]
fn a_region_is_not_made_among_other_things() {
    let directory = tempfile::tempdir().unwrap();
    let (data, fast) = (directory.path().join("bench"), directory.path().join("fast"));
    std::fs::create_dir(&fast).unwrap();
    std::fs::write(fast.join("letter"), "dear").unwrap();
    let places = ["--data", data.to_str().unwrap(), "--pmem", fast.to_str().unwrap()];
    let output = run(&[&["bench", "suite", "matrixkv", "--scale", "0.00001"][..], &places].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains(fast.to_str().unwrap()) && told.contains("holds other things"), "{told}");
    assert_eq!(std::fs::read_dir(&fast).unwrap().count(), 1);
}

/// It was told at the end, when all was measured.
#[test]
fn a_report_that_cannot_be_written_is_told_before_anything_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nowhere/report");
    for option in ["--report", "--json"] {
        let (code, out, told) = matrixkv(directory.path(), &[option, file.to_str().unwrap()]);
        assert_eq!((code, out.as_str()), (2, ""), "{option}: {told}");
        assert!(told.contains("cannot write") && told.contains("nothing was measured"), "{told}");
    }
    let data = directory.path().join("bench");
    let (code, out, told) = suite(&data, &["--json", directory.path().to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (2, ""), "{told}");
    assert!(told.contains("nothing was measured") && !data.exists(), "{told}");
    // Nor by these.
    let file = file.to_str().unwrap();
    let (code, _, told) = ycsb(&data, &["--workload", "a", "--records", "100", "--json", file]);
    assert!(code == 2 && told.contains("nothing was measured") && !data.exists(), "{code} {told}");
    let paths = run(&["bench", "paths", "--data", data.to_str().unwrap(), "--records", "100", "--json", file]);
    let told = String::from_utf8_lossy(&paths.stderr);
    assert!(paths.status.code() == Some(2) && told.contains("nothing was measured") && !data.exists(), "{told}");
    // What could be written is not left behind by a run that is refused.
    let (report, other) = (directory.path().join("report.html"), file);
    assert_eq!(matrixkv(directory.path(), &["--report", report.to_str().unwrap(), "--json", other]).0, 2);
    assert!(!report.exists());
}
