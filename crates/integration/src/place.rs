//! Where tests keep their stores.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory of a test's own, removed with it. It lies beside the running test, in the build's
/// target folder: on a disk, where `/tmp` may be memory, on which a store refuses to promise
/// anything about power loss.
///
/// # Panics
/// It cannot be made.
pub fn directory() -> TempDir {
    let running = std::env::current_exe().expect("a test knows its own path");
    let folder = running.parent().expect("a program lies in a folder").join("stratakv-tests");
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    tempfile::Builder::new().prefix("store").tempdir_in(folder).expect("the target folder can be written")
}

/// The volumes of a store, in order.
///
/// # Panics
/// The directory cannot be read.
pub fn volumes(store: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(store).expect("a store is a directory");
    let paths = entries.map(|entry| entry.expect("a directory can be listed").path());
    let mut volumes: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "vol")).collect();
    volumes.sort();
    volumes
}
