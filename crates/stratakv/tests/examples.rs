//! The programs in `examples/` do what they say, one test each.
#![expect(dead_code, reason = "each has a `main` of its own")]

use std::time::Duration;

use stratakv::Ttl;

#[path = "../examples/backup.rs"]
mod backup;
#[path = "../examples/basics.rs"]
mod basics;
#[path = "../examples/batch.rs"]
mod batch;
#[path = "../examples/expiry.rs"]
mod expiry;
#[path = "../examples/lists.rs"]
mod lists;
#[path = "../examples/scan.rs"]
mod scan;
#[path = "../examples/sessions.rs"]
mod sessions;
#[path = "../examples/tokio.rs"]
mod tokio_futures;
#[path = "../examples/transaction.rs"]
mod transaction;

/// Runs an example where nothing else is.
fn ran<T>(run: impl FnOnce(&std::path::Path) -> Result<T, stratakv::Error>) -> T {
    let directory = tempfile::tempdir().expect("a directory");
    run(&directory.path().join("data")).expect("it runs")
}

#[test]
fn basics() {
    assert_eq!(ran(basics::run), "ADA LOVELACE");
}

#[test]
fn scans() {
    assert_eq!(ran(scan::run), ["paris/2026-11-30", "berlin/2026-12-01", "berlin/2026-11-30"]);
}

#[test]
fn expiry() {
    let (code, other) = ran(expiry::run);
    let Ttl::Left(left) = code else { panic!("{code:?}") };
    assert!(left <= Duration::from_secs(60) && left > Duration::from_secs(1), "{left:?}");
    assert_eq!(other, Ttl::Unlimited);
}

#[test]
fn batches() {
    assert!(ran(batch::run));
}

#[test]
fn transactions() {
    assert_eq!(ran(transaction::run), 300);
}

#[test]
fn backups() {
    let directory = tempfile::tempdir().expect("a directory");
    assert_eq!(backup::run(directory.path()).expect("it runs"), 100);
}

#[test]
fn lists() {
    assert_eq!(ran(lists::run), 4);
}

#[test]
fn sessions() {
    assert_eq!(ran(sessions::run), Some("ada".to_owned()));
}

#[test]
fn futures() {
    assert_eq!(ran(tokio_futures::run), 200);
}
