//! One mistake has one exit code, whether the program opens the store itself or asks a server. The
//! table is in docs/cli.md.

use super::{Serving, code, directory, put, run, stderr};

#[test]
fn a_mistake_has_the_same_code_with_a_server_and_without() {
    let (directory, data) = directory();
    let place = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let backups = directory.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    put(&data, &["key", "value"]);
    let told = |arguments: &[&str]| {
        let output = run(&data, arguments);
        (code(&output), stderr(&output))
    };
    // A backup whose name is taken.
    let monday = place("monday");
    assert_eq!(told(&["backup", &monday]).0, 0);
    assert_eq!(told(&["backup", &monday]).0, 2);
    let serving = Serving::with(&data, &["--backup-dir", backups.to_str().unwrap()]);
    assert_eq!(told(&["backup", "monday", "--server", &serving.address]).0, 0);
    let (by_server, why) = told(&["backup", "monday", "--server", &serving.address]);
    assert!(by_server == 2 && why.contains("another name"), "{by_server} {why}");
    drop(serving);
    // No such backup, as no such store.
    for (from, words) in [(place("absent"), "there is no"), (place("backups"), "no complete backup")] {
        let output = run(directory.path().join("copy").as_path(), &["restore", &from]);
        assert!(code(&output) == 3 && stderr(&output).contains(words), "{}", stderr(&output));
    }
    assert_eq!(code(&run(&directory.path().join("nowhere"), &["get", "key"])), 3);
}

#[test]
fn a_cache_cannot_be_backed_up_by_either_way() {
    let (directory, data) = directory();
    let backups = directory.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    let mut start = super::command(&data, &["serve", "--memcache", "127.0.0.1:0", "--threads", "1"]);
    start.args(["--engine", "tier", "--capacity", "64M", "--memory", "64M", "--backup-dir", backups.to_str().unwrap()]);
    let serving = Serving::started(&mut start);
    let asked = run(&data, &["backup", "monday", "--server", &serving.address]);
    drop(serving);
    let opened = run(&data, &["backup", directory.path().join("own").to_str().unwrap()]);
    for output in [asked, opened] {
        assert!(code(&output) == 6 && stderr(&output).contains("cannot be backed up"), "{}", stderr(&output));
    }
}
