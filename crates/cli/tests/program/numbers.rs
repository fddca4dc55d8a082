//! Numbers as people write them, and numbers that the machine does not have.

use super::*;

#[test]
fn counts_take_suffixes_and_one_name() {
    let (_directory, data) = directory();
    let planned = |arguments: &[&str]| {
        let all = [&["plan", "--json"][..], arguments].concat();
        serde_json::from_slice::<serde_json::Value>(&ok(&data, &all)).unwrap()
    };
    assert_eq!(planned(&["--records", "100M"]), planned(&["--keys", "100000000"]));
    let bench = ["bench", "ycsb", "--workload", "c", "--seconds", "1", "--warm-up", "0", "--placement", "in_place"];
    let more = ["--durability", "process_crash", "--data", data.to_str().unwrap()];
    for name in ["--records", "--keys"] {
        let output = run(&data, &[&bench[..], &more, &[name, "1K", "--operations", "2K"]].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }
    put(&data, &["a", "1"]);
    assert_eq!(ok(&data, &["scan", "--limit", "1K"]), b"a\t1\n");
    let refused = run(&data, &["scan", "--limit", "1x"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("use K, M, G or T"), "{refused:?}");
}

#[test]
fn more_memory_than_there_is_warns_in_one_line() {
    let (_directory, data) = directory();
    put(&data, &["a", "1"]);
    let told = run(&data, &["get", "--memory", "64T", "a"]);
    assert_eq!((code(&told), told.stdout.as_slice()), (0, &b"1"[..]), "{}", stderr(&told));
    let lines: Vec<String> = stderr(&told).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("--memory 64.0 TiB is more than") && lines[0].len() <= 100, "{}", lines[0]);
    let quiet = run(&data, &["get", "--memory", "16M", "a"]);
    assert_eq!(stderr(&quiet), "");
}
