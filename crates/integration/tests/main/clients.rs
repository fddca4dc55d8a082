//! Clients that other people wrote.

use std::path::Path;
use std::process::Command;

use stratakv_integration::program::{Serve, Served};
use stratakv_integration::{place, requirement};

/// Of the server.
const OPTIONS: [&[&str]; 5] = [
    &["--io", "auto"],
    &["--io", "blocking"],
    &["--engine", "hash", "--region", "256M", "--durability", "process_crash"],
    &["--engine", "tier", "--memory", "64M", "--capacity", "256M"],
    &["--engine", "matrix", "--region", "64M", "--durability", "process_crash"],
];

/// Does this with a server on each engine, all at once: clients' own tests wait for seconds to pass.
fn on_all(look: impl Fn(&[&str], &Served) + Sync) {
    std::thread::scope(|scope| {
        for options in OPTIONS {
            scope.spawn(|| {
                let place = place::directory();
                look(options, &Serve::on(&place.path().join("data")).options(options).start());
            });
        }
    });
}

#[test]
fn memccapable_passes_whole() {
    let Some(memccapable) = requirement::tool("memccapable") else { return };
    on_all(|options, served| {
        for protocol in ["-a", "-b"] {
            let mut command = Command::new(&memccapable);
            command.args(["-h", "127.0.0.1", protocol, "-p"]).arg(served.address().port().to_string());
            let output = command.output().expect("memccapable can be started");
            let said = String::from_utf8_lossy(&output.stdout);
            let passed = said.lines().filter(|line| line.contains("[pass]")).count();
            assert!(output.status.success() && passed == 27, "{options:?} {protocol}: {}\n{said}", output.status);
            assert!(said.contains("All tests passed"), "{options:?} {protocol}:\n{said}");
        }
    });
}

#[test]
fn pymemcache_works_unchanged() {
    let Some(python) = requirement::python_with("pymemcache") else { return };
    on_all(|options, served| {
        let mut command = Command::new(&python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/pymemcache_session.py"));
        let output = command.arg(served.address().port().to_string()).output().expect("python can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {}\n{said}\nserver: {}", output.status, served.said());
    });
}

/// A session of pylibmc, by this protocol.
fn pylibmc_session(python: &Path, served: &Served, protocol: &str) {
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/pylibmc_session.py"));
    command.arg(served.address().port().to_string()).arg(protocol);
    let output = command.output().expect("python can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{protocol}: {}\n{said}\nserver: {}", output.status, served.said());
}

#[test]
fn pylibmc_works_unchanged_by_both_protocols() {
    let Some(python) = requirement::python_with("pylibmc") else { return };
    on_all(|_, served| {
        pylibmc_session(&python, served, "text");
        pylibmc_session(&python, served, "binary");
    });
}
