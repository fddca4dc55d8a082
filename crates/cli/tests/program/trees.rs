//! Long structures of Redis clients: dumped, loaded and checked, on every engine that has them.

use std::ops::Bound;

use base64::engine::general_purpose::STANDARD;
use stratakv::raw::{Operation, Reply};
use stratakv::{CollectionId, Key, Options, PutOptions, Store};
use stratakv_engine::{Change, ChangeKind, Expect, PageRequest};
use stratakv_structures::STRUCTURE_FLAGS;

use super::*;

/// A packed structure of this type with so many elements of a length, and flags: a line of a dump.
fn line(key: &str, kind: u8, count: u32, element: impl Fn(u32, &mut Vec<u8>)) -> String {
    let mut value = [&b"\xFFSKV\x01"[..], &[kind, 0, 0], &count.to_le_bytes()].concat();
    (0..count).for_each(|number| element(number, &mut value));
    format!("{{\"key\":\"{key}\",\"value_base64\":\"{}\",\"flags\":{STRUCTURE_FLAGS}}}\n", STANDARD.encode(value))
}

fn bytes(text: String, out: &mut Vec<u8>) {
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

/// A structure of each type, in the order of their keys.
fn lines(count: u32) -> String {
    [
        line("hash", 1, count, |number, out| {
            bytes(format!("field:{number:06}"), out);
            bytes(format!("value {number}"), out);
        }),
        line("list", 2, count, |number, out| bytes(format!("element {}", number * 7 % 1000), out)),
        line("set", 3, count, |number, out| bytes(format!("member:{number:06}"), out)),
        line("sorted", 4, count, |number, out| {
            out.extend_from_slice(&f64::from(number / 3).to_le_bytes());
            bytes(format!("member:{number:06}"), out);
        }),
    ]
    .concat()
}

/// The keys of all nodes.
fn nodes(store: &Store) -> Vec<Key> {
    let page = PageRequest {
        from: Bound::Included(Key::bound(CollectionId::NODES, b"")),
        to: Bound::Excluded(Key::bound(CollectionId(CollectionId::NODES.0 + 1), b"")),
        reverse: false,
        keys_only: true,
        items_max: 100_000,
        bytes_max: 64 << 20,
        at: None,
    };
    match store.execute(Operation::Page(page.into())) {
        Reply::Page { items, next: None } => items.into_iter().map(|item| item.key).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn long_structures_are_dumped_loaded_and_checked() {
    for engine in [
        &["--engine", "slab"][..],
        &["--engine", "slab", "--placement", "packed"],
        &["--engine", "hash", "--region", "64M"],
        &["--engine", "matrix", "--region", "64M"],
    ] {
        let (directory, data) = directory();
        let (long, short) = (lines(5000), lines(5));
        let said = load(&data, engine, long.as_bytes());
        assert_eq!(code(&said), 0, "{engine:?}: {}", stderr(&said));
        assert!(stderr(&said).contains("4 records"), "{engine:?}: {}", stderr(&said));
        let store = Options::new().open(&data).unwrap();
        let before = nodes(&store);
        assert!(before.len() > 100, "{engine:?}: {} nodes", before.len());
        assert!(store.get(b"hash").unwrap().unwrap().len() < 4000, "{engine:?}: a root");
        store.close().unwrap();

        // The engine `hash` has no order.
        let sorted = |dump: &[u8]| {
            let mut lines: Vec<String> = String::from_utf8_lossy(dump).lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&ok(&data, &["dump"])), sorted(long.as_bytes()), "{engine:?}");
        assert!(ok(&data, &["check"]).ends_with(b"sound\n"), "{engine:?}");
        let again = directory.path().join("again");
        assert_eq!(code(&load(&again, engine, &ok(&data, &["dump"]))), 0, "{engine:?}");
        assert_eq!(sorted(&ok(&again, &["dump"])), sorted(long.as_bytes()), "{engine:?}");
        // Short ones are one record each.
        let packed = directory.path().join("packed");
        assert_eq!(code(&load(&packed, engine, short.as_bytes())), 0, "{engine:?}");
        assert!(nodes(&Options::new().read_only(true).open(&packed).unwrap()).is_empty(), "{engine:?}");
        assert_eq!(sorted(&ok(&packed, &["dump"])), sorted(short.as_bytes()), "{engine:?}");

        // A node less: every record is whole, and the structure is not.
        let store = Options::new().open(&data).unwrap();
        let lost = before.iter().find(|key| key.user().starts_with(b"list")).unwrap().clone();
        let change = Change { key: lost, expect: Expect::Any, kind: ChangeKind::Delete };
        let level = store.default_level();
        assert!(matches!(store.execute(Operation::Write { changes: vec![change], level }), Reply::Done { .. }));
        store.close().unwrap();
        let said = run(&data, &["check"]);
        assert_eq!(code(&said), 4, "{engine:?}");
        let told = String::from_utf8_lossy(&said.stdout).into_owned();
        let damage = "key `list`: the structure is damaged: a node is not there";
        assert!(told.contains(&format!("damaged: {damage}")) && !told.contains("sound"), "{engine:?}: {told}");
        let said = run(&data, &["dump"]);
        assert_eq!(code(&said), 4, "{engine:?}: {}", stderr(&said));
        assert!(stderr(&said).contains(damage), "{engine:?}: {}", stderr(&said));
        let said = run(&data, &["dump", "--skip-damaged"]);
        assert_eq!(code(&said), 4, "{engine:?}: {}", stderr(&said));
        let others: Vec<String> =
            sorted(long.as_bytes()).into_iter().filter(|line| !line.contains("\"list\"")).collect();
        assert_eq!(sorted(&said.stdout), others, "{engine:?}");
    }
}

/// "Damaged" would have somebody remove what a newer program can read.
#[test]
fn structures_of_a_newer_layout_are_not_called_damaged() {
    let (_directory, data) = directory();
    assert_eq!(code(&load(&data, &["--engine", "slab"], lines(2000).as_bytes())), 0);
    let store = Options::new().open(&data).unwrap();
    let root = store.get(b"list").unwrap().unwrap();
    let mut value = root.to_bytes().to_vec();
    value[4] = 2;
    store.put_with(b"list", &value, &PutOptions::new().flags(STRUCTURE_FLAGS)).unwrap();
    store.close().unwrap();
    let why = "key `list`: the structure has format 2, this program knows up to 1: use a newer stratakv";
    let said = run(&data, &["check"]);
    assert_eq!(code(&said), 6, "{}", stderr(&said));
    assert!(
        stderr(&said).contains(why) && stderr(&said).contains("1 structure cannot be verified"),
        "{}",
        stderr(&said)
    );
    assert!(!String::from_utf8_lossy(&said.stdout).contains("damaged"));
    let said = run(&data, &["dump"]);
    assert_eq!(code(&said), 6, "a dump would have the root without its nodes: {}", stderr(&said));
    assert!(stderr(&said).contains(why), "{}", stderr(&said));
    // The others are saved, and what is missing is named.
    let said = run(&data, &["dump", "--skip-damaged"]);
    assert_eq!(code(&said), 6, "{}", stderr(&said));
    assert!(stderr(&said).contains(&format!("{why}; passed over")), "{}", stderr(&said));
    let missing = "missing from this dump: 1 structure of a newer layout";
    assert!(stderr(&said).contains(missing), "{}", stderr(&said));
    let others: Vec<String> =
        lines(2000).lines().filter(|line| !line.contains("\"list\"")).map(str::to_owned).collect();
    let dumped = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(dumped.lines().map(str::to_owned).collect::<Vec<_>>(), others);
}

/// A store without any node: `dump` meets them. `check` walks over no records then.
#[test]
fn short_structures_of_a_newer_layout_are_told_by_dump() {
    for engine in [&["--engine", "slab"][..], &["--engine", "hash", "--region", "64M"]] {
        let (_directory, data) = directory();
        assert_eq!(code(&load(&data, engine, lines(5).as_bytes())), 0);
        let store = Options::new().open(&data).unwrap();
        assert!(nodes(&store).is_empty(), "{engine:?}");
        let mut value = store.get(b"list").unwrap().unwrap().to_bytes().to_vec();
        value[4] = 2;
        store.put_with(b"list", &value, &PutOptions::new().flags(STRUCTURE_FLAGS)).unwrap();
        store.close().unwrap();
        for arguments in [&["dump"][..], &["dump", "--skip-damaged"]] {
            let said = run(&data, arguments);
            assert_eq!(code(&said), 6, "{engine:?}, {arguments:?}: {}", stderr(&said));
            assert!(stderr(&said).contains("key `list`: the structure has format 2"), "{}", stderr(&said));
        }
    }
}
