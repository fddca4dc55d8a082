//! What belongs to a store is said once.

use super::*;

#[test]
fn a_store_on_tmpfs_remembers_its_durability() {
    for engine in [&["slab"][..], &["hash", "--region", "16M"], &["matrix", "--region", "16M"]] {
        let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
        let data = directory.path().join("data");
        let refused = run(&data, &[&["put", "a", "1", "--engine"][..], engine].concat());
        assert_eq!(code(&refused), 2, "{engine:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("process_crash"), "{}", stderr(&refused));
        put(&data, &[&["--engine"][..], engine, &["a", "1"]].concat());
        ok(&data, &["put", "b", "2"]);
        assert_eq!(ok(&data, &["get", "b"]), b"2");
        let serving = Serving::started(&mut command(&data, &["serve", "--memcache", "127.0.0.1:0"]));
        let told = serving.lines.concat();
        assert!(told.contains("durability process_crash"), "{told}");
        serving.signal("-TERM");
        drop(serving);
        // It is no promise that the medium cannot keep.
        let refused = run(&data, &["put", "--durability", "power_loss", "c", "3"]);
        assert_eq!(code(&refused), 2, "{engine:?}: {}", stderr(&refused));
    }
}

/// An option that a load was given for speed would weaken every later write.
#[test]
fn a_store_on_a_disk_goes_on_at_power_loss() {
    let (_directory, data) = directory();
    put(&data, &["a", "1"]);
    let kept = std::fs::read_to_string(data.join("store.toml")).unwrap();
    let again = run(&data, &["put", "b", "2"]);
    // Temporary directories are on tmpfs on some machines.
    assert_eq!(kept.contains("durability"), is_tmpfs(&data), "{kept}");
    assert_eq!(code(&again), 0, "{}", stderr(&again));
}

fn is_tmpfs(path: &Path) -> bool {
    let output = Command::new("stat").args(["-f", "-c", "%T", path.to_str().unwrap()]).output().unwrap();
    output.stdout.starts_with(b"tmpfs")
}
