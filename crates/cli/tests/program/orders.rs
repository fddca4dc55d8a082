//! Collections in an order of the user's own.

use super::*;

/// Orders that are built in are known here too.
#[test]
fn collections_in_an_order_that_is_known_are_read_written_dumped_and_loaded() {
    let (directory, data) = directory();
    let line = |key: &str| {
        format!("{{\"collection\":\"n\",\"order\":\"stratakv.numeric\",\"key\":\"{key}\",\"value\":\"v\"}}\n")
    };
    let dump = ["-3", "2", "10"].map(line).concat().into_bytes();
    assert_eq!(code(&load(&data, &["-"], &dump)), 0);
    assert_eq!(ok(&data, &["dump"]), dump);
    assert_eq!(ok(&data, &["get", "10", "--collection", "n"]), b"v");
    put(&data, &["9.5", "w", "--collection", "n"]);
    assert_eq!(ok(&data, &["scan", "--collection", "n", "--from", "3", "--keys-only"]), b"9.5\n10\n");
    assert_eq!(ok(&data, &["scan", "--collection", "n", "--match", "^[0-9]+$"]), b"2\tv\n10\tv\n");
    assert_eq!(ok(&data, &["collections", "--long"]), b"n\tkeyvalue\t4\tnever\tstratakv.numeric\n");
    let refused = run(&data, &["scan", "--collection", "n", "--prefix", "1"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("do not lie together"), "{}", stderr(&refused));
    assert_eq!(ok(&data, &["dump", "--prefix", "1"]), line("10").into_bytes());
    assert_eq!(ok(&data, &["dump", "--skip-damaged", "--prefix", "1"]), line("10").into_bytes());
    let copy = directory.path().join("copy");
    assert_eq!(code(&load(&copy, &["-"], &line("1").replace("stratakv.numeric", "theirs").into_bytes())), 2);
    let copied = load(&copy, &["-"], b"{\"order\":\"stratakv.numeric\",\"key\":\"k\",\"value\":\"v\"}\n");
    assert!(stderr(&copied).contains("`order` without `collection`"), "{}", stderr(&copied));
    assert_eq!(ok(&copy, &["collections"]), b"");
}

/// There was no way to make one but a line of JSON, the names stood nowhere, and a wrong one was
/// blamed on a program.
#[test]
fn a_collection_is_made_in_an_order_that_is_named() {
    let (_directory, data) = directory();
    for command in ["put", "update", "load"] {
        let help = String::from_utf8(ok(&data, &[command, "--help"])).unwrap();
        assert!(stratakv::Order::BUILT_IN.iter().all(|name| help.contains(name)), "{command}: {help}");
    }
    let numeric = ["--collection", "n", "--order", "stratakv.numeric"];
    put(&data, &[&["10", "v"][..], &numeric].concat());
    put(&data, &[&["9", "v"][..], &numeric].concat());
    assert_eq!(code(&load(&data, &numeric, b"{\"key\":\"2\",\"value\":\"v\"}\n")), 0);
    assert_eq!(ok(&data, &["scan", "--collection", "n", "--keys-only"]), b"2\n9\n10\n");
    let refused = |arguments: &[&str], words: &[&str]| {
        let output =
            load(&data, arguments, b"{\"collection\":\"m\",\"order\":\"theirs\",\"key\":\"k\",\"value\":\"v\"}\n");
        let said = stderr(&output);
        assert!(code(&output) == 2 && words.iter().all(|word| said.contains(word)), "{said}");
    };
    refused(&[], &["line 1", "no collection `m`", "`theirs`", "stratakv.numeric", "not built in"]);
    refused(&["--collection", "n", "--order", "stratakv.reversed"], &["`n` is in the order `stratakv.numeric`"]);
    refused(&["--collection", "n", "--order", "theirs"], &["stratakv.reversed"]);
    refused(&["--order", "stratakv.reversed"], &["--collection"]);
    assert_eq!(ok(&data, &["collections"]), b"n\n");
}

/// What a program has written whose order is not known here can be seen, copied and removed.
#[test]
fn collections_in_an_order_that_is_not_known_are_shown_and_left_alone() {
    let (directory, data) = directory();
    let by_length = || stratakv::Order::new("by-length", |key| vec![key.len() as u8]);
    let options = |data: &Path| {
        stratakv::Options::new()
            .memory_bytes(64 << 20)
            .level(stratakv::Level::ProcessCrash)
            .order(by_length())
            .open(data)
            .unwrap()
    };
    let store = options(&data);
    let words = store.collection_in_order("words", "by-length").unwrap();
    for word in ["ccc", "bb", "a", "\u{fc}"] {
        words.put(word.as_bytes(), b"v").unwrap();
    }
    drop(words);
    store.close().unwrap();
    drop(store);
    assert_eq!(ok(&data, &["scan", "--collection", "words", "--keys-only"]), "a\nbb\n\u{fc}\nccc\n".as_bytes());
    assert_eq!(ok(&data, &["scan", "--collection", "words", "--match", "^[ac]"]), b"a\tv\nccc\tv\n");
    assert_eq!(ok(&data, &["scan", "--collection", "words", "--reverse", "--limit", "1"]), b"ccc\tv\n");
    assert_eq!(ok(&data, &["collections", "--long"]), b"words\tkeyvalue\t4\tnever\tby-length\n");
    let dump = ok(&data, &["dump"]);
    assert!(dump.starts_with(b"{\"collection\":\"words\",\"order\":\"by-length\",\"key\":\"a\""));
    assert_eq!(String::from_utf8_lossy(&dump).lines().count(), 4);
    assert_eq!(ok(&data, &["dump", "--skip-damaged"]), dump);
    let write = ["--collection", "words", "--durability", "process_crash"];
    let commands: [&[&str]; 6] = [
        &["get", "a", "--collection", "words"],
        &["scan", "--from", "a", "--collection", "words"],
        &[&["put", "a", "w"][..], &write].concat(),
        &[&["del", "a"][..], &write].concat(),
        &[&["del", "--to", "a"][..], &write].concat(),
        &[&["update", "a", "--append", "w"][..], &write].concat(),
    ];
    for command in commands {
        let refused = run(&data, command);
        assert_eq!(code(&refused), 2, "{command:?}");
        let said = stderr(&refused);
        assert!(said.contains("`words` is in the order `by-length`") && said.contains("`dump`"), "{said}");
    }
    let refused = load(&data, &["-"], &dump);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("line 1") && stderr(&refused).contains("by-length"), "{}", stderr(&refused));
    assert_eq!(ok(&data, &["dump"]), dump, "nothing was changed");
    // A copy of it serves the program that knows the order.
    let (backup, copy) = (directory.path().join("backup"), directory.path().join("copy"));
    ok(&data, &["backup", backup.to_str().unwrap()]);
    ok(&copy, &["restore", backup.to_str().unwrap()]);
    let store = options(&copy);
    assert!(store.collection("words").unwrap().get(b"bb").unwrap().is_some());
    store.close().unwrap();
    ok(&data, &[&["del", "--prefix", ""][..], &write].concat());
    assert_eq!(ok(&data, &["scan", "--collection", "words"]), b"");
}

/// Somebody has written there with a key of his own making.
#[test]
fn a_key_that_was_not_made_in_the_order_is_passed_over_when_asked() {
    let (_directory, data) = directory();
    let options = stratakv::Options::new().memory_bytes(64 << 20).level(stratakv::Level::ProcessCrash);
    let store = options.open(&data).unwrap();
    let numbers = store.collection_in_order("n", stratakv::Order::NUMERIC).unwrap();
    numbers.put(b"7", b"v").unwrap();
    let kind = stratakv::raw::ChangeKind::Put { value: "v".into(), flags: 0, expiry: stratakv::Expiry::NEVER };
    let key = stratakv::Key::new(numbers.id(), b"\x01raw").unwrap();
    let change = stratakv::raw::Change { key, expect: stratakv::Expect::Any, kind };
    let level = stratakv::Level::ProcessCrash;
    store.execute(stratakv::raw::Operation::Write { changes: vec![change], level });
    drop(numbers);
    store.close().unwrap();
    drop(store);
    assert_eq!(code(&run(&data, &["dump"])), 4);
    let skipped = run(&data, &["dump", "--skip-damaged"]);
    assert_eq!(code(&skipped), 4);
    assert!(stderr(&skipped).contains("`\\x01raw`"), "{}", stderr(&skipped));
    assert_eq!(String::from_utf8_lossy(&skipped.stdout).lines().count(), 1);
}
