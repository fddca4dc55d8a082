//! What is refused, and damage, say what, why and what to do next.

use super::*;

/// Where these bytes begin.
fn places(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    bytes.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted).map(|(at, _)| at).collect()
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A turned byte in the volume had lost two keys, and `check` said `sound`.
#[test]
fn a_damaged_cache_was_called_sound() {
    let (_directory, data) = directory();
    for (key, value) in [("user:1", "Ada Lovelace"), ("user:2", "Grace Hopper")] {
        ok(&data, &["put", "--engine", "tier", "--memory", "16M", key, value]);
    }
    let sound = String::from_utf8(ok(&data, &["check"])).unwrap();
    assert!(sound.contains("2 records") && sound.ends_with("sound\n"), "{sound}");
    let volumes = std::fs::read_dir(&data).unwrap().map(|file| file.unwrap().path());
    let mut volumes = volumes.filter(|path| path.extension().is_some_and(|end| end == "vol"));
    let volume = volumes.find(|path| !places(&std::fs::read(path).unwrap(), b"Grace Hopper").is_empty()).unwrap();
    let bytes = std::fs::read(&volume).unwrap();
    let value = *places(&bytes, b"Grace Hopper").last().unwrap();
    let head = *places(&bytes[..value], b"STRTIERS").last().unwrap();
    let newest = if number(&bytes, 48) > number(&bytes, 4096 + 48) { 0 } else { 4096 };
    let table = number(&bytes, newest + 120) as usize * 4096;
    let cases = [
        (value, "item"),
        // Its key.
        (value - 3, "item"),
        (head + 9, "head of a segment"),
        (head + 66, "summary of a segment"),
        (table + 2000, "table of what is cached"),
        (2 * 4096 + 700, "tail of the journal"),
        (3 * 4096 + 700, "tail of the journal"),
        (100, "superblock"),
        (4096 + 100, "superblock"),
    ];
    for (at, what) in cases {
        let mut turned = bytes.clone();
        turned[at] ^= 1;
        std::fs::write(&volume, &turned).unwrap();
        let found = run(&data, &["check"]);
        let (said, why) = (String::from_utf8_lossy(&found.stdout).into_owned(), stderr(&found));
        assert_eq!(code(&found), 4, "{what} at {at}: {said}{why}");
        assert!(said.contains(&format!("damaged: {what}")) && !said.contains("sound\n"), "{at}: {said}");
        assert!(why.contains("it is a cache: opening it drops what is damaged"), "{why}");
        if what == "item" {
            let lost = if at == value { "lost: `user:2`, whose" } else { "lost" };
            assert!(format!("{said}{why}").contains(lost), "{said}{why}");
        }
    }
    std::fs::write(&volume, &bytes).unwrap();
    ok(&data, &["check"]);
    assert_eq!(ok(&data, &["get", "user:2"]), b"Grace Hopper");
}

/// It ended with 4, the code of damage.
#[test]
fn a_capacity_that_is_far_too_small_was_called_damage() {
    for engine in ["slab", "tier"] {
        let (_directory, data) = directory();
        let mut arguments = vec!["serve", "--memcache", "127.0.0.1:0", "--engine", engine, "--capacity", "10"];
        arguments.extend(if engine == "slab" {
            &["--placement", "in_place", "--durability", "process_crash"][..]
        } else {
            &[]
        });
        let refused = run(&data, &arguments);
        assert_eq!(code(&refused), 2, "{engine}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("too small"), "{}", stderr(&refused));
    }
}

/// It ended with 1 and a share of the cap in bytes.
#[test]
fn a_hash_store_opened_with_too_little_memory_said_no_way_out() {
    let (_directory, data) = directory();
    put(&data, &["--engine", "hash", "--region", "16M", "a", "1"]);
    let refused = run(&data, &["get", "--memory", "4K", "a"]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    let said = stderr(&refused);
    assert!(
        said.contains("region-000") && said.contains("of memory, and the cap is 4.00 KiB") && said.contains("--memory"),
        "{said}"
    );
    assert_eq!(ok(&data, &["get", "a"]), b"1");
}

/// "this engine does not support Backup".
#[test]
fn a_cache_refused_its_backup_in_internal_words() {
    let (directory, data) = directory();
    ok(&data, &["put", "--engine", "tier", "--memory", "16M", "a", "1"]);
    let target = directory.path().join("copy");
    let refused = run(&data, &["backup", "--memory", "16M", target.to_str().unwrap()]);
    assert_eq!(code(&refused), 6, "{}", stderr(&refused));
    let said = stderr(&refused);
    assert!(said.contains("a cache (engine `tier`) cannot be backed up") && said.contains("`slab`"), "{said}");
    assert!(!target.exists(), "nothing was made");
}
