//! Backups of a store while `serve` has it.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

const KEYS: usize = 40;

/// Sets its keys to growing numbers until told to stop, and notes which ones were acknowledged.
fn write(address: &str, client: usize, acknowledged: &[AtomicU64], stop: &AtomicBool) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    for round in 1u64.. {
        for (key, acknowledged) in acknowledged.iter().enumerate() {
            let value = format!("{round} {}", "v".repeat((key * 311) % 3000));
            stream.write_all(format!("set {client}-{key} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes()).unwrap();
            let mut answer = [0; 8];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"STORED\r\n");
            acknowledged.store(round, Ordering::SeqCst);
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[test]
fn a_server_under_load_is_backed_up_and_restored() {
    let (directory, data) = directory();
    let backups = directory.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    let serving = Serving::with(&data, &["--backup-dir", backups.to_str().unwrap()]);
    assert!(serving.lines.concat().contains(backups.to_str().unwrap()), "{:?}", serving.lines);
    let server = ["--server", &serving.address];
    let ledger: Vec<Vec<AtomicU64>> = (0..3).map(|_| (0..KEYS).map(|_| AtomicU64::new(0)).collect()).collect();
    let stop = AtomicBool::new(false);
    let (before, made, read) = std::thread::scope(|scope| {
        for (client, keys) in ledger.iter().enumerate() {
            let (address, stop) = (&serving.address, &stop);
            scope.spawn(move || write(address, client, keys, stop));
        }
        while ledger.iter().flatten().any(|round| round.load(Ordering::SeqCst) < 3) {
            std::thread::yield_now();
        }
        let before: Vec<u64> = ledger.iter().flatten().map(|round| round.load(Ordering::SeqCst)).collect();
        let made = run(&data, &[&["backup", "monday", "--json"][..], &server].concat());
        let read = run(&data, &[&["get", "0-0"][..], &server].concat());
        stop.store(true, Ordering::Relaxed);
        (before, made, read)
    });
    assert_eq!((code(&made), code(&read)), (0, 0), "{} {}", stderr(&made), stderr(&read));
    let summary: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(summary["records"], 3 * KEYS, "{summary}");

    let copy = directory.path().join("copy");
    ok(&copy, &["restore", backups.join("monday").to_str().unwrap()]);
    ok(&copy, &["check"]);
    for (key, before) in before.iter().enumerate() {
        let value = ok(&copy, &["get", &format!("{}-{}", key / KEYS, key % KEYS)]);
        let round: u64 = String::from_utf8(value).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(round >= *before, "key {key}: round {round}, and {before} was acknowledged");
    }
}

#[test]
fn a_backup_that_cannot_be_is_told_why() {
    let (directory, data) = directory();
    let backups = directory.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    let to = backups.to_str().unwrap();
    let serving = Serving::with(&data, &["--backup-dir", to]);
    let backup = |serving: &Serving, name: &str| {
        let output = run(&data, &["backup", name, "--server", &serving.address]);
        (code(&output), stderr(&output))
    };
    for name in ["../monday", "/tmp/monday", ".", "-", "a b", ""] {
        let output = run(&data, &["backup", "--server", &serving.address, "--", name]);
        assert_eq!(code(&output), 2, "{name}: {}", stderr(&output));
    }
    assert_eq!(backups.read_dir().unwrap().count(), 0);
    assert_eq!(backup(&serving, "monday").0, 0);
    let (code_again, again) = backup(&serving, "monday");
    assert!(code_again == 2 && again.contains("another name"), "{again}");
    assert!(backups.join("monday").join("backup.toml").exists());
    drop(serving);

    let without = Serving::start(&data);
    let (code_without, why) = backup(&without, "tuesday");
    assert!(code_without == 1 && why.contains("--backup-dir"), "{why}");
    drop(without);
    for directory in [directory.path().join("absent"), data.clone()] {
        let refused = refused_to_serve(&data, &["--backup-dir", directory.to_str().unwrap()]);
        assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    }
    let (_other, fresh) = super::directory();
    let refused = refused_to_serve(&fresh, &["--backup-dir", fresh.join("absent").to_str().unwrap()]);
    assert!(code(&refused) == 2 && !fresh.exists(), "{}", stderr(&refused));
}
