//! Reports: what `--report` and `bench report` write, and what they refuse before anything is
//! measured.

use std::path::{Path, PathBuf};

use scraper::{Html, Selector};

use super::{run, ycsb};

/// Texts of all cells of a page.
fn cells(file: &Path) -> Vec<String> {
    let html = Html::parse_document(&std::fs::read_to_string(file).expect("a page"));
    assert_eq!(html.errors, Vec::<String>::new());
    let cells = Selector::parse("td, tbody th").expect("a selector");
    html.select(&cells).map(|cell| cell.text().collect::<String>().trim().to_owned()).collect()
}

/// Thousands are set apart on pages.
fn plain(cell: &str) -> String {
    cell.replace(',', "")
}

fn json(file: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(file).expect("a file")).expect("JSON")
}

struct Files {
    _directory: tempfile::TempDir,
    place: PathBuf,
}

impl Files {
    fn new() -> Files {
        let directory = tempfile::tempdir().expect("a directory");
        Files { place: directory.path().to_owned(), _directory: directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }
}

#[test]
fn a_run_and_its_rounds_are_on_the_page_with_the_numbers_of_the_json() {
    let files = Files::new();
    let (page, results) = (files.name("a.html"), files.name("a.json"));
    let options = ["--records", "2000", "--workload", "a", "--rounds", "2", "--report", &page, "--json", &results];
    let (code, out, told) = ycsb(&files.path("bench"), &options);
    assert_eq!(code, 0, "{told}");
    assert_eq!(out.matches("operations/s over 1 s").count(), 2, "{out}");
    // Fifty counters of the store hid the results.
    assert!(!out.contains("pages_free"), "{out}");
    let rounds = json(&files.path("a.json"));
    assert_eq!(rounds.as_array().map(Vec::len), Some(2));
    let cells = cells(&files.path("a.html"));
    for round in rounds.as_array().into_iter().flatten() {
        let second = round["operations_per_s_each"][0].as_u64().expect("a number").to_string();
        assert!(cells.iter().any(|cell| plain(cell) == second), "{second}: {cells:?}");
        assert!(round["environment"]["date"].as_str().is_some_and(|date| date.ends_with('Z')), "{round}");
        assert_eq!(round["store"]["placement"], "in_place");
        assert!(round["user_write_bytes_per_operation"].as_f64().is_some_and(|bytes| bytes > 400.0), "{round}");
    }
    for words in ["slab in_place", "process_crash", "2,000"] {
        assert!(cells.iter().any(|cell| cell.contains(words)), "{words}: {cells:?}");
    }
    assert!(cells.iter().any(|cell| cell.starts_with("stratakv bench ycsb --data")), "{cells:?}");
}

#[test]
fn saved_runs_stand_side_by_side() {
    let files = Files::new();
    for name in ["before", "after"] {
        let results = files.name(&format!("{name}.json"));
        let (code, _, told) = ycsb(&files.path("bench"), &["--records", "500", "--workload", "c", "--json", &results]);
        assert_eq!(code, 0, "{told}");
    }
    let (after, before, both) = (files.name("after.json"), files.name("before.json"), files.name("both.html"));
    let output = run(&["bench", "report", &after, &before, "--output", &both]);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    let found = cells(&files.path("both.html"));
    assert!(
        found.iter().any(|cell| cell.starts_with("after: ")) && found.iter().any(|cell| cell.starts_with("before: "))
    );
    // A page that was there is replaced, and that is said.
    let output = run(&["bench", "report", &before, "--output", &both, "--title", "One <b>"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("has been replaced"), "{told}");
    assert!(std::fs::read_to_string(&both).expect("a page").contains("<h1>One &lt;b&gt;</h1>"));
    // The same by a run itself.
    let beside = ["--records", "500", "--workload", "c", "--report", &both, "--beside", &before];
    let (code, _, told) = ycsb(&files.path("bench"), &beside);
    assert_eq!(code, 0, "{told}");
    assert!(cells(&files.path("both.html")).iter().any(|cell| cell.starts_with("before: ")));
}

#[test]
fn what_cannot_be_a_report_is_told_before_anything_is_measured() {
    let files = Files::new();
    let (page, nowhere, wrong) = (files.name("page.html"), files.name("no/page.html"), files.name("wrong.json"));
    std::fs::write(&wrong, "[1, 2]").expect("a file");
    let data = files.path("bench");
    let small = ["--records", "100", "--workload", "c"];
    let refused = |arguments: &[&str], words: &str| {
        let output = run(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?} {told}");
        assert!(told.contains(words), "{words}: {told}");
    };
    let (code, out, told) = ycsb(&data, &[&small[..], &["--report", &nowhere]].concat());
    assert!(code == 2 && out.is_empty() && told.contains("nothing was measured"), "{told}");
    let (code, out, told) = ycsb(&data, &[&small[..], &["--report", &page, "--beside", &wrong]].concat());
    assert!(code == 2 && out.is_empty() && told.contains("--beside") && told.contains("wrong.json"), "{told}");
    for suite in ["kvdk", "matrixkv", "kvell", "ukv"] {
        let data = data.to_str().expect("UTF-8");
        refused(&["bench", "suite", suite, "--data", data, "--report", &nowhere], "nothing was measured");
    }
    refused(&["bench", "report", &wrong, "--output", &page], "wrong.json is not as `stratakv bench` writes it");
    refused(&["bench", "report", &files.name("absent.json"), "--output", &page], "cannot read");
    refused(&["bench", "report", "--output", &page], "RUN.json");
    assert!(!data.exists() && !files.path("page.html").exists());
    // What is read is not written over.
    let kept = "{\"schema\":1,\"suite\":\"kvell\",\"runs\":[]}";
    std::fs::write(&wrong, kept).expect("a file");
    refused(&["bench", "report", &wrong, "--output", &wrong], "would be written over it");
    assert_eq!(std::fs::read_to_string(&wrong).expect("still there"), kept);
}

#[test]
fn suite_kvell_measures_both_placements() {
    let files = Files::new();
    let (data, page, results) = (files.name("bench"), files.name("kvell.html"), files.name("kvell.json"));
    let options = [
        "--records",
        "300",
        "--value-size",
        "200",
        "--workloads",
        "a,production",
        "--distributions",
        "uniform",
        "--seconds",
        "1",
        "--warm-up",
        "0",
        "--rounds",
        "1",
        "--durability",
        "process_crash",
    ];
    let places = ["bench", "suite", "kvell", "--data", &data, "--report", &page, "--json", &results];
    let output = run(&[&places[..], &options].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), told.as_str()), (Some(0), ""));
    assert!(String::from_utf8_lossy(&output.stdout).lines().count() == 5 && !files.path("bench").exists());
    assert_eq!(json(&files.path("kvell.json"))["runs"].as_array().map(Vec::len), Some(4));
    let found = cells(&files.path("kvell.html"));
    assert!(
        found.iter().any(|cell| cell.starts_with("packed: "))
            && found.iter().any(|cell| cell.starts_with("in_place: "))
    );
    assert!(found.iter().any(|cell| cell.contains("KVell, SOSP 2019")), "{found:?}");
    // Saved, it gives the same page.
    let again = files.name("again.html");
    assert!(run(&["bench", "report", &results, "--output", &again]).status.success());
    assert_eq!(cells(&files.path("again.html")), found);
    for wrong in [["--placements", "measured"], ["--durability", "memory"]] {
        let output = run(&[&places[..5], &wrong].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(wrong[0]) && !files.path("bench").exists(), "{told}");
    }
}

#[test]
fn suite_ukv_measures_servers_over_the_wire() {
    let files = Files::new();
    let (data, page, results) = (files.name("bench"), files.name("ukv.html"), files.name("ukv.json"));
    let places = ["bench", "suite", "ukv", "--data", &data, "--report", &page, "--json", &results];
    let options = [
        "--cases",
        "memory",
        "--value-sizes",
        "100,4K",
        "--records",
        "50",
        "--memory",
        "64M",
        "--rounds",
        "1",
        "--connections",
        "2",
        "--durability",
        "process_crash",
    ];
    let output = run(&[&places[..], &options].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(!files.path("bench").exists(), "what the suite made is removed");
    let report = json(&files.path("ukv.json"));
    // Two servers, two lengths, three mixes.
    assert_eq!(report["served"].as_array().map(Vec::len), Some(12));
    for one in report["served"].as_array().into_iter().flatten() {
        let us = one["server_cpu_us_per_operation"].as_f64();
        assert!(us.is_some_and(|us| us > 0.0) && one["memory_peak_bytes"].as_u64() > Some(1 << 20), "{one}");
        assert!(one["mix"] != "get" || one["wire"]["hits"] == one["wire"]["gets"], "{one}");
    }
    let found = cells(&files.path("ukv.html"));
    assert!(
        found.iter().any(|cell| cell == "4 KiB: tier") && found.iter().any(|cell| cell.starts_with("slab: ")),
        "{found:?}"
    );
    let output = run(&[&places[..5], &["--peer", "x=http://127.0.0.1:1"]].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && told.contains("NAME=memcache://ADDRESS:PORT"), "{told}");
}
