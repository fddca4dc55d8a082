//! What is refused, and damage, say what, why and what to do next.

use super::*;

/// Where these bytes begin.
fn places(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    bytes.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted).map(|(at, _)| at).collect()
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A `put` made a store among the files of a backup.
#[test]
fn a_directory_that_holds_a_backup_is_no_place_for_a_store() {
    let (directory, data) = directory();
    put(&data, &["k", "v"]);
    let backup = directory.path().join("backup");
    ok(&data, &["backup", backup.to_str().unwrap()]);
    for (arguments, expected) in [(&["get", "k"][..], 3), (&["put", "k", "w"], 2), (&["load"], 2)] {
        let refused = run(&backup, arguments);
        let said = stderr(&refused);
        assert!(code(&refused) == expected && said.contains("stratakv restore"), "{arguments:?}: {said}");
    }
    assert!(!backup.join("store.toml").exists());
}

/// A word too many was refused without the way out.
#[test]
fn a_directory_without_its_option_is_told_of_it() {
    let (_directory, data) = directory();
    for (arguments, way) in [(["check", "DIR"], "--data DIR"), (["scan", "user:"], "--prefix P")] {
        let refused = run(&data, &arguments);
        assert!(code(&refused) == 2 && stderr(&refused).contains(way), "{arguments:?}: {}", stderr(&refused));
    }
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

/// The store's own placement was taken for one that was asked for, and that refused.
#[test]
fn a_server_of_another_engine_is_told_which_one_the_store_has() {
    let (_directory, data) = directory();
    drop(Serving::with(&data, &["--threads", "1", "--placement", "packed"]));
    for engine in [&["tier"][..], &["hash", "--region", "64M"], &["matrix", "--region", "64M"]] {
        let serve = ["serve", "--memcache", "127.0.0.1:0", "--durability", "process_crash", "--engine"];
        let refused = run(&data, &[&serve, engine].concat());
        assert_eq!(code(&refused), 2, "{engine:?}: {}", stderr(&refused));
        let said = stderr(&refused);
        assert!(said.contains("holds a store of engine `slab`") && said.contains("--data"), "{said}");
    }
}

/// `store.toml`, a lock and volumes were left, in the way of the next creation with other options.
#[test]
fn a_creation_that_was_refused_left_files_behind() {
    let refused: [&[&str]; 6] = [
        &["--engine", "slab", "--capacity", "10", "--placement", "in_place"],
        &["--engine", "matrix", "--region", "8M", "--shards", "2"],
        &["--engine", "matrix", "--region", "16M", "--shards", "2", "--capacity", "10"],
        &["--engine", "matrix", "--region", "16M", "--pmem-levels", "12M"],
        &["--engine", "hash", "--region", "8M", "--memory", "4K"],
        &["--engine", "hash", "--region", "8M", "--shards", "2"],
    ];
    for options in refused {
        let (directory, data) = directory();
        let (data, other) = (data.join("deep"), directory.path().join("other"));
        let serve = ["serve", "--memcache", "127.0.0.1:0", "--durability", "process_crash"];
        let arguments = [&serve, options].concat();
        let output = run(&data, &arguments);
        assert_eq!(code(&output), 2, "{options:?}: {}", stderr(&output));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{options:?}");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("letter"), "dear").unwrap();
        std::fs::create_dir(&other).unwrap();
        assert_eq!(code(&run(&data, &arguments)), 2);
        let names: Vec<_> = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["letter"], "{options:?}");
        if options[1] == "slab" {
            let text = other.to_str().unwrap();
            assert_eq!(
                code(&run(
                    &data,
                    &[&arguments[..], &["--shards", "2", "--data", data.to_str().unwrap(), "--data", text]].concat()
                )),
                2
            );
            assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
        }
        put(&data, &["a", "1"]);
    }
}

/// `in_place` is what the library has where nothing was said, so it could not tell.
#[test]
fn a_placement_was_taken_by_engines_that_have_none() {
    for engine in ["hash", "matrix", "tier"] {
        let (_directory, data) = directory();
        let serve = ["serve", "--memory", "32M", "--shards", "1", "--memcache", "127.0.0.1:0"];
        let asked = [&serve[..], &["--engine", engine, "--placement", "in_place"]].concat();
        let refused = run(&data, &asked);
        assert_eq!(code(&refused), 2, "{engine}: {}", stderr(&refused));
        let why = format!("placement is of the engine `slab`, and --engine says `{engine}`");
        assert!(stderr(&refused).contains(&why) && !data.exists(), "{}", stderr(&refused));
        let made = [&serve[..], &["--engine", engine, "--durability", "process_crash"]].concat();
        let made = if engine == "tier" { [&serve[..], &["--engine", engine]].concat() } else { made };
        Serving::started(&mut command(&data, &made)).signal("-TERM");
        let again = run(&data, &[&serve[..], &["--placement", "in_place"]].concat());
        assert_eq!(code(&again), 2, "{engine}: {}", stderr(&again));
        assert!(stderr(&again).contains(&format!("has `{engine}`: leave it out")), "{}", stderr(&again));
    }
}

/// Both were taken in silence, and remembered.
#[test]
fn a_cache_took_a_placement_and_a_capacity_that_no_disk_has() {
    let (_directory, data) = directory();
    let serve = ["serve", "--engine", "tier", "--memory", "16M", "--shards", "1", "--memcache", "127.0.0.1:0"];
    let refused = run(&data, &[&serve[..], &["--placement", "packed"]].concat());
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    assert!(stderr(&refused).contains("placement is of the engine `slab`") && !data.exists(), "{}", stderr(&refused));
    let mut serving = Serving::started(&mut command(&data, &[&serve[..], &["--capacity", "900T"]].concat()));
    serving.signal("-TERM");
    let mut told = String::new();
    serving.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("may take 900 TiB") && told.contains("--capacity"), "{told}");
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

/// "the following required arguments were not provided", and "unexpected argument '-7'".
#[test]
fn a_put_without_a_value_says_how_to_give_one() {
    let (_directory, data) = directory();
    for (arguments, advice) in [
        (&["put", "k"][..], "put KEY VALUE"),
        (&["put", "-7"], "put -- KEY -7"),
        (&["put", "k", "-7"], "put -- KEY -7"),
        (&["get", "-k"], "Put -- in front"),
    ] {
        let refused = run(&data, arguments);
        assert_eq!(code(&refused), 2, "{arguments:?}");
        assert!(stderr(&refused).contains(advice), "{arguments:?}: {}", stderr(&refused));
    }
    put(&data, &["--", "-k", "-7"]);
    assert_eq!(ok(&data, &["get", "--", "-k"]), b"-7");
}

/// The store was made first: a socket that another process had, or that could not be made, left
/// a new store behind.
#[test]
fn a_socket_that_cannot_be_made_leaves_no_store_behind() {
    let (directory, data) = directory();
    let socket = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let serve = |path: &Path| {
        let address = format!("unix:{}", path.display());
        run(&data, &["serve", "--durability", "process_crash", "--memcache", &address])
    };
    let taken = serve(&socket);
    assert_eq!(code(&taken), 5, "{}", stderr(&taken));
    assert!(stderr(&taken).contains("another process listens there"), "{}", stderr(&taken));
    let long = serve(&directory.path().join("x".repeat(200)));
    assert!(code(&long) == 1 && stderr(&long).contains("at most 107 bytes"), "{}", stderr(&long));
    let nowhere = serve(&directory.path().join("no/socket"));
    assert!(code(&nowhere) == 1 && stderr(&nowhere).contains("must exist"), "{}", stderr(&nowhere));
    assert!(!data.exists(), "a store was made");
    drop(listener);
}

/// A file was made in `/dev`, and `doctor` spoke of a temporary file.
#[test]
fn a_device_that_is_not_there_is_named_with_what_to_do() {
    let (_directory, data) = directory();
    let put = ["put", "--durability", "process_crash", "--engine", "hash", "--region", "16M"];
    let refused = run(&data, &[&put[..], &["--region-path", "/dev/dax97.3", "a", "1"]].concat());
    assert_eq!(code(&refused), 3, "{}", stderr(&refused));
    assert!(stderr(&refused).contains("no device /dev/dax97.3") && stderr(&refused).contains("ndctl"), "{refused:?}");
    assert!(!Path::new("/dev/dax97.3").exists() && !data.exists());
    for (path, advice) in [("/dev/dax97.3", "ndctl"), ("/no/such/place", "mkdir -p")] {
        let refused = run(&data, &["doctor", path]);
        assert_eq!(code(&refused), 3, "{}", stderr(&refused));
        assert!(stderr(&refused).contains(path) && stderr(&refused).contains(advice), "{}", stderr(&refused));
    }
}

/// "already holds a store".
#[test]
fn a_restore_over_a_store_says_where_to_restore() {
    let (directory, data) = directory();
    put(&data, &["a", "1"]);
    let backup = directory.path().join("backup");
    ok(&data, &["backup", backup.to_str().unwrap()]);
    let refused = run(&data, &["restore", backup.to_str().unwrap()]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    assert!(stderr(&refused).contains("--data NEW"), "{}", stderr(&refused));
}

#[test]
fn a_repair_of_another_engine_names_the_commands_that_help() {
    let (_directory, data) = directory();
    put(&data, &["a", "1"]);
    let refused = run(&data, &["repair"]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    for command in ["`slab`", "stratakv check", "dump --skip-damaged", "stratakv restore"] {
        assert!(stderr(&refused).contains(command), "{}", stderr(&refused));
    }
}

/// An eighth of a full cache went at its end, and nothing said so.
#[test]
fn a_cache_that_drops_records_at_its_end_says_how_many() {
    let (_directory, data) = directory();
    let arguments = ["serve", "--engine", "tier", "--memory", "32M", "--capacity", "32M", "--shards", "1"];
    let more = ["--memcache", "127.0.0.1:0", "--threads", "1"];
    let mut serving = Serving::started(&mut command(&data, &[&arguments[..], &more].concat()));
    let mut client = std::net::TcpStream::connect(&serving.address).unwrap();
    let value = "v".repeat(100_000);
    for number in 0..800 {
        write!(client, "set key{number} 0 0 {}\r\n{value}\r\n", value.len()).unwrap();
        let mut answer = [0; 8];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"STORED\r\n");
    }
    drop(client);
    serving.signal("-TERM");
    let mut told = String::new();
    serving.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(serving.child.wait().unwrap().success(), "{told}");
    let line = told.lines().find(|line| line.contains("the end dropped")).unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains("raise --capacity") && line.chars().count() <= 120, "{line}");
}
