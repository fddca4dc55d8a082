//! `cargo xtask compare`: builds and runs `compare/`, which links RocksDB and WiredTiger of the
//! system.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo::{cargo, succeed, tell_commit};

/// What the linker looks for, and the Debian package that has it.
const LIBRARIES: &[(&str, &str)] = &[("librocksdb.so", "librocksdb-dev"), ("libwiredtiger.so", "libwiredtiger-dev")];
/// The same with RocksDB of its crate, which needs libclang-dev as well and says so itself.
const LIBRARIES_TODAY: &[(&str, &str)] = &[("liburing.so", "liburing-dev"), ("libwiredtiger.so", "libwiredtiger-dev")];

/// Runs the command; without the libraries, says so and does nothing.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let is_today = arguments.iter().any(|word| word == "--today");
    let libraries = if is_today { LIBRARIES_TODAY } else { LIBRARIES };
    let missing = missing(libraries, &library_folders());
    if !missing.is_empty() {
        println!("skipped: compare needs libraries of the system (apt-get install {})", missing.join(" "));
        return Ok(());
    }
    let manifest = root.join("compare/Cargo.toml");
    let mut command = cargo(root);
    tell_commit(root, &mut command);
    command.args(["run", "--release", "--quiet", "--manifest-path"]).arg(manifest);
    if is_today {
        // All stores, ours too, may use what this processor has.
        command.args(["--features", "today", "--target-dir"]).arg(root.join("compare/target/today"));
        command.env("RUSTFLAGS", "-Ctarget-cpu=native");
    }
    command.arg("--").args(arguments.iter().filter(|word| *word != "--today"));
    succeed("compare", &mut command)
}

/// Where linkers look: the usual folders, and those of each architecture in them.
fn library_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib"].map(PathBuf::from).into();
    let inner = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let inner: Vec<PathBuf> = inner.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.extend(inner);
    folders
}

/// Packages whose library is in none of the folders.
fn missing(libraries: &[(&str, &'static str)], folders: &[PathBuf]) -> Vec<&'static str> {
    let absent = libraries.iter().filter(|(library, _)| !folders.iter().any(|folder| folder.join(library).exists()));
    absent.map(|(_, package)| *package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing(LIBRARIES, &[]), ["librocksdb-dev", "libwiredtiger-dev"]);
        let folder = std::env::temp_dir().join(format!("stratakv-xtask-compare-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        fs::write(folder.join("librocksdb.so"), "").expect("a file");
        let found = missing(LIBRARIES, std::slice::from_ref(&folder));
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(found, ["libwiredtiger-dev"]);
    }
}
