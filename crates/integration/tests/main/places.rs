//! Places a store cannot be, or cannot be served from.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stratakv::{ErrorKind, Options};
use stratakv_integration::place;
use stratakv_integration::program::{self, Serve, said};

fn text(path: &Path) -> &str {
    path.to_str().expect("a name that is text")
}

#[test]
fn a_port_in_use_is_said_and_leaves_the_store_in_order() {
    let place = place::directory();
    let data = place.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let output = program::run(&["serve", "--data", text(&data), "--memcache", &address]);
    assert!(!output.status.success());
    let message = said(&output);
    assert!(message.contains(&address) && message.to_lowercase().contains("in use"), "{message}");
    drop(taken);
    assert!(Serve::on(&data).start().stop().success());
}

#[test]
fn a_second_process_on_the_same_data_is_refused() {
    let place = place::directory();
    let data = place.path().join("data");
    let served = Serve::on(&data).start();
    assert_eq!(served.client().set(b"k", b"v").expect("answered"), "STORED");
    for arguments in [
        &["put", "--data", text(&data), "k", "w"][..],
        &["get", "--data", text(&data), "k"],
        &["serve", "--data", text(&data), "--memcache", "127.0.0.1:0"],
        &["check", "--data", text(&data)],
    ] {
        let output = program::run(arguments);
        assert_eq!(output.status.code(), Some(5), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains("another process"), "{arguments:?}: {}", said(&output));
    }
    let error = Options::new().open(&data).expect_err("the server has it");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert_eq!(served.client().get(b"k").expect("a get").as_deref(), Some(&b"v"[..]));
    assert!(served.stop().success());
    let output = program::run(&["get", "--data", text(&data), "k"]);
    assert!(output.status.success(), "the lock goes with its holder: {}", said(&output));
}

#[test]
fn a_store_is_opened_once_in_a_process() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = Options::new().memory_bytes(64 << 20).open(&data).expect("created");
    assert_eq!(Options::new().open(&data).expect_err("it is open").kind(), ErrorKind::Locked);
    drop(store);
    drop(Options::new().memory_bytes(64 << 20).open(&data).expect("it was let go"));
}

/// Runs the program as somebody whom permissions bind. Root's own are not checked by the kernel:
/// then it is a copy, run as `nobody`.
fn run_unprivileged(place: &Path, arguments: &[&str]) -> Output {
    if !rustix::process::getuid().is_root() {
        return program::run(arguments);
    }
    let copy = place.join("stratakv");
    if !copy.exists() {
        std::fs::copy(program::binary(), &copy).expect("the program can be copied");
    }
    let nobody = 65_534;
    let mut command = Command::new(&copy);
    command.args(arguments).uid(nobody).gid(nobody).output().expect("the program can be started")
}

/// A directory that everybody can enter: the build's own may lie in a private home.
fn public_directory() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a temporary directory");
    permit(place.path(), 0o755);
    place
}

fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("permissions can be changed");
}

fn everything_under(path: &Path) -> Vec<PathBuf> {
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).expect("a directory can be listed");
        paths.extend(entries.flat_map(|entry| everything_under(&entry.expect("an entry").path())));
    }
    paths
}

#[test]
fn a_read_only_directory_is_said_and_can_be_read() {
    let place = public_directory();
    let data = place.path().join("data");
    let durability = ["--durability", "process_crash"];
    let output = program::run(&["put", "--data", text(&data), "k", "v", durability[0], durability[1]]);
    assert!(output.status.success(), "{}", said(&output));
    for path in everything_under(&data) {
        permit(&path, if path.is_dir() { 0o555 } else { 0o444 });
    }
    let output =
        run_unprivileged(place.path(), &["put", "--data", text(&data), "k", "w", durability[0], durability[1]]);
    assert!(!output.status.success());
    assert!(said(&output).contains(text(&data)) && said(&output).contains("ermission"), "{}", said(&output));
    let output = run_unprivileged(place.path(), &["get", "--data", text(&data), "k"]);
    assert!(output.status.success(), "reading needs no permission to write: {}", said(&output));
    assert_eq!(output.stdout.trim_ascii_end(), b"v");
    let inside = place.path().join("closed");
    std::fs::create_dir(&inside).expect("a directory");
    permit(&inside, 0o555);
    let output = run_unprivileged(
        place.path(),
        &["put", "--data", text(&inside.join("data")), "k", "v", durability[0], durability[1]],
    );
    assert!(!output.status.success());
    assert!(said(&output).contains("ermission"), "{}", said(&output));
    for path in everything_under(place.path()) {
        permit(&path, 0o755);
    }
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_reading() {
    let place = place::directory();
    let data = place.path().join("data");
    for arguments in
        [&["get", "--data", text(&data), "k"][..], &["check", "--data", text(&data)], &["scan", "--data", text(&data)]]
    {
        let output = program::run(arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", said(&output));
        assert!(!data.exists(), "{arguments:?} made a store");
    }
}
