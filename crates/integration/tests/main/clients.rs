//! Clients that other people wrote.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use stratakv_integration::program::{Serve, Served};
use stratakv_integration::{place, requirement};

/// Of the server.
const OPTIONS: [&[&str]; 3] = [
    &["--io", "auto"],
    &["--io", "blocking"],
    &["--engine", "hash", "--region", "256M", "--durability", "process_crash"],
];

#[test]
fn memccapable_passes_whole() {
    let Some(memccapable) = requirement::tool("memccapable") else { return };
    for options in OPTIONS {
        let place = place::directory();
        let served = Serve::on(&place.path().join("data")).options(options).start();
        for protocol in ["-a", "-b"] {
            let mut command = Command::new(&memccapable);
            command.args(["-h", "127.0.0.1", protocol, "-p"]).arg(served.address().port().to_string());
            let output = command.output().expect("memccapable can be started");
            let said = String::from_utf8_lossy(&output.stdout);
            let passed = said.lines().filter(|line| line.contains("[pass]")).count();
            assert!(output.status.success() && passed == 27, "{options:?} {protocol}: {}\n{said}", output.status);
            assert!(said.contains("All tests passed"), "{options:?} {protocol}:\n{said}");
        }
    }
}

#[test]
fn pymemcache_works_unchanged() {
    let Some(python) = requirement::python_with("pymemcache") else { return };
    for options in OPTIONS {
        let place = place::directory();
        let served = Serve::on(&place.path().join("data")).options(options).start();
        let mut command = Command::new(&python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/pymemcache_session.py"));
        let output = command.arg(served.address().port().to_string()).output().expect("python can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {}\n{said}\nserver: {}", output.status, served.said());
    }
}

/// A session of pylibmc: the protocol, and perhaps user and password.
fn pylibmc_session(python: &Path, served: &Served, arguments: &[&str]) {
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/pylibmc_session.py"));
    command.arg(served.address().port().to_string()).args(arguments);
    let output = command.output().expect("python can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}\n{said}\nserver: {}", output.status, served.said());
}

#[test]
fn pylibmc_works_unchanged_by_both_protocols() {
    let Some(python) = requirement::python_with("pylibmc") else { return };
    for options in OPTIONS {
        let place = place::directory();
        let served = Serve::on(&place.path().join("data")).options(options).start();
        pylibmc_session(&python, &served, &["text"]);
        pylibmc_session(&python, &served, &["binary"]);
    }
}

#[test]
fn pylibmc_says_who_it_is() {
    let Some(python) = requirement::python_with("pylibmc") else { return };
    let place = place::directory();
    let accounts = place.path().join("accounts");
    std::fs::write(&accounts, "user:pass\n").expect("a file of accounts");
    let options = ["--auth-file", accounts.to_str().expect("a path of letters")];
    let served = Serve::on(&place.path().join("data")).options(&options).spawn().expect("a server");
    // A get, as others are waited for by, would be refused.
    let deadline = Instant::now() + Duration::from_secs(120);
    while TcpStream::connect(served.address()).is_err() {
        assert!(Instant::now() < deadline, "the server does not begin: {}", served.said());
        std::thread::sleep(Duration::from_millis(5));
    }
    pylibmc_session(&python, &served, &["binary", "user", "pass"]);
    pylibmc_session(&python, &served, &["binary", "user", "wrong"]);
}
