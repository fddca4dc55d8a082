//! Clients that other people wrote.

use std::collections::BTreeSet;
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

/// Does this with a server on each engine, all at once: clients' own tests wait for seconds to
/// pass.
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

/// What a program prints.
fn printed(mut command: Command) -> String {
    let output = command.output().expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const KEYS: usize = 300;

fn fill(served: &Served) {
    let mut client = served.client();
    for number in 0..KEYS {
        assert_eq!(client.set(format!("key:{number}").as_bytes(), b"value").expect("an answer"), "STORED");
    }
}

/// `tier` and `hash` answered errors.
#[test]
fn memcdump_lists_every_key() {
    let Some(memcdump) = requirement::tool("memcdump") else { return };
    for options in OPTIONS {
        let place = place::directory();
        let served = Serve::on(&place.path().join("data")).options(options).start();
        fill(&served);
        let mut command = Command::new(&memcdump);
        command.arg(format!("--servers=127.0.0.1:{}", served.address().port()));
        let said = printed(command);
        let keys: BTreeSet<&str> = said.lines().filter(|line| line.starts_with("key:")).collect();
        assert_eq!(keys.len(), KEYS, "{options:?}:\n{said}");
    }
}

/// `dump` was empty on `tier` and `hash`, `display` on `slab`.
#[test]
fn memcached_tool_shows_and_dumps() {
    let script = Path::new("/usr/share/memcached/scripts/memcached-tool");
    let Some(perl) = requirement::tool("perl") else { return };
    if !script.is_file() {
        return requirement::skip("memcached-tool not installed").unwrap_or_default();
    }
    for options in OPTIONS {
        let place = place::directory();
        let served = Serve::on(&place.path().join("data")).options(options).start();
        fill(&served);
        let tool = |mode: &str| {
            let mut command = Command::new(&perl);
            command.arg(script).arg(format!("127.0.0.1:{}", served.address().port())).arg(mode);
            printed(command)
        };
        let dump = tool("dump");
        let adds: BTreeSet<&str> = dump.lines().filter(|line| line.starts_with("add key:")).collect();
        assert!(adds.contains("add key:7 0 0 5\r") || adds.contains("add key:7 0 0 5"), "{options:?}:\n{dump}");
        assert_eq!((adds.len(), dump.matches("value").count()), (KEYS, KEYS), "{options:?}");
        let display = tool("display");
        let row = display.lines().nth(1).unwrap_or_default();
        assert!(row.contains(&KEYS.to_string()) && row.trim_start().starts_with('1'), "{options:?}:\n{display}");
    }
}
