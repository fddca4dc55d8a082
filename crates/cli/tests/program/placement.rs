//! One rule chooses the placement of a new store, whichever command makes it.

use super::*;

const LINE: &[u8] = b"{\"key\":\"a\",\"value\":\"1\"}\n";

fn placement(data: &Path) -> String {
    let stats: serde_json::Value = serde_json::from_slice(&ok(data, &["stats", "--json"])).unwrap();
    stats["placement"].as_str().unwrap().to_owned()
}

/// The one line that says what was made.
fn told(stderr: &str) -> &str {
    let lines: Vec<&str> = stderr.lines().filter(|line| line.contains("new store")).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(lines[0].chars().count() <= 100, "{}", lines[0]);
    lines[0]
}

/// Makes a store by each command, and says how it said so.
fn made(command_line: &[&str], options: &[&str]) -> (tempfile::TempDir, std::path::PathBuf, String) {
    let (directory, data) = directory();
    let text = data.to_str().unwrap();
    let all = [command_line, &["--durability", "process_crash"], options].concat();
    let said = match command_line[0] {
        "serve" => {
            let mut serving = Serving::started(&mut command(&data, &all));
            serving.signal("-TERM");
            let mut told = String::new();
            serving.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            assert_eq!(serving.child.wait().unwrap().code(), Some(0), "{told}");
            told
        }
        "bench" => {
            let output = run(&data, &[&all, &["--data", text, "--keep"][..]].concat());
            assert_eq!(code(&output), 0, "{}", stderr(&output));
            stderr(&output)
        }
        _ => {
            let output = feed(&data, &all, LINE);
            assert_eq!(code(&output), 0, "{all:?}: {}", stderr(&output));
            stderr(&output)
        }
    };
    (directory, data, said)
}

const MAKERS: [&[&str]; 5] = [
    &["put", "a", "1"],
    &["update", "a", "--increment", "1"],
    &["load"],
    &["serve", "--memcache", "127.0.0.1:0"],
    &["bench", "ycsb", "--workload", "c", "--records", "10", "--seconds", "1", "--warm-up", "0"],
];

#[test]
fn every_command_makes_the_same_store_and_says_so_in_one_line() {
    for maker in MAKERS {
        let (_directory, data, said) = made(maker, &[]);
        let line = told(&said);
        assert!(line.contains("engine slab, placement in_place; `stratakv doctor`"), "{maker:?}: {line}");
        assert_eq!(placement(&data), "in_place", "{maker:?}");
    }
}

#[test]
fn every_command_takes_a_placement() {
    for maker in MAKERS.into_iter().filter(|maker| maker[0] != "update") {
        let (_directory, data, said) = made(maker, &["--placement", "packed"]);
        assert!(told(&said).ends_with("engine slab, placement packed"), "{maker:?}: {said}");
        assert_eq!(placement(&data), "packed", "{maker:?}");
        let checked = String::from_utf8(ok(&data, &["check"])).unwrap();
        assert!(checked.contains("engine slab, placement packed"), "{checked}");
        let table = String::from_utf8(ok(&data, &["stats"])).unwrap();
        assert!(table.contains("packed"), "{table}");
        if maker[0] == "put" || maker[0] == "load" {
            let again = [maker, &["--durability", "process_crash", "--placement", "in_place"]].concat();
            let refused = feed(&data, &again, LINE);
            assert_eq!(code(&refused), 2, "{}", stderr(&refused));
            assert!(stderr(&refused).contains("has the other one"), "{}", stderr(&refused));
        }
    }
}

#[test]
fn a_disk_is_measured_if_that_is_asked_for() {
    let (_directory, data, said) = made(&["put", "a", "1"], &["--placement", "measured"]);
    let line = told(&said);
    assert!(line.contains("measured: "), "{line}");
    assert!(line.contains(&format!("placement {}", placement(&data))), "{line}");
    // Of a store that exists, it asks for nothing else.
    put(&data, &["--placement", "measured", "b", "2"]);
    let devices = ["put", "--device", "/dev/null", "--placement", "measured", "a", "1"];
    let refused = run(&data.join("other"), &devices);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    assert!(stderr(&refused).contains("say in_place or packed"), "{}", stderr(&refused));
}

#[test]
fn a_restored_store_has_the_placement_of_its_backup() {
    let (directory, data) = directory();
    put(&data, &["--placement", "packed", "a", "1"]);
    let backup = directory.path().join("backup");
    let backup = backup.to_str().unwrap();
    ok(&data, &["backup", backup]);
    let restored = |name: &str, options: &[&str]| {
        let copy = directory.path().join(name);
        let output = run(&copy, &[&["restore", backup][..], options].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        (placement(&copy), stderr(&output))
    };
    let (same, said) = restored("same", &[]);
    assert!(same == "packed" && said.contains("placement packed as in the backup"), "{said}");
    let (other, said) = restored("other", &["--placement", "in_place"]);
    assert!(other == "in_place" && said.contains("placement in_place)"), "{said}");
    let text = std::fs::read_to_string(format!("{backup}/backup.toml")).unwrap();
    std::fs::write(format!("{backup}/backup.toml"), text.replace("placement = \"packed\"\n", "")).unwrap();
    // One of before backups said it.
    assert_eq!(restored("older", &[]).0, "in_place");
    let refused =
        run(&directory.path().join("hash"), &["restore", backup, "--engine", "hash", "--placement", "packed"]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    assert!(stderr(&refused).contains("placement is of the engine `slab`"), "{}", stderr(&refused));
}
