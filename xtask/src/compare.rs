//! `cargo xtask compare`: builds and runs `compare/`, which links RocksDB and WiredTiger of the
//! system.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo::{cargo, succeed};

/// What the linker looks for, and the Debian package that has it.
const LIBRARIES: &[(&str, &str)] = &[("librocksdb.so", "librocksdb-dev"), ("libwiredtiger.so", "libwiredtiger-dev")];

/// Runs the command; without the libraries, says so and does nothing.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let missing = missing(&library_folders());
    if !missing.is_empty() {
        println!("skipped: compare needs RocksDB and WiredTiger 3.2 (apt-get install {})", missing.join(" "));
        return Ok(());
    }
    let manifest = root.join("compare/Cargo.toml");
    let mut command = cargo(root);
    command.args(["run", "--release", "--quiet", "--manifest-path"]).arg(manifest).arg("--").args(arguments);
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
fn missing(folders: &[PathBuf]) -> Vec<&'static str> {
    let absent = LIBRARIES.iter().filter(|(library, _)| !folders.iter().any(|folder| folder.join(library).exists()));
    absent.map(|(_, package)| *package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing(&[]), ["librocksdb-dev", "libwiredtiger-dev"]);
        let folder = std::env::temp_dir().join(format!("stratakv-xtask-compare-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        fs::write(folder.join("librocksdb.so"), "").expect("a file");
        let found = missing(std::slice::from_ref(&folder));
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(found, ["libwiredtiger-dev"]);
    }
}
