//! A region whose file is cut short under a process: it ends by SIGBUS, and says why.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use stratakv_pmem::{MapOptions, Mapping, Pmem, explain_bus_errors};

const FILE: &str = "REGION_TO_CUT_SHORT";

/// It ended without a word.
#[test]
fn a_region_that_is_cut_short_is_named() {
    if let Some(path) = std::env::var_os(FILE) {
        return cut_short(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("region");
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "a_region_that_is_cut_short_is_named", "--nocapture"]).env(FILE, &path);
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(7), "{}: {said}", output.status);
    assert!(said.contains(&format!("the region {} is gone at byte 8", path.display())), "{said}");
}

fn cut_short(path: &Path) {
    explain_bus_errors().unwrap();
    let other = Mapping::create(&path.with_extension("other"), 1 << 20, MapOptions::default()).unwrap();
    let mapping = Mapping::create(path, 1 << 20, MapOptions::default()).unwrap();
    drop(other);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4096).unwrap();
    let _ = mapping.load(80_000, &mut [0; 8]);
    unreachable!("nothing is there");
}
