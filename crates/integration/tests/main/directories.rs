//! A store spread over several directories.

use std::fs;
use std::path::{Path, PathBuf};

use stratakv::{Error, ErrorKind, Level, Options, Store};
use stratakv_integration::place;

fn options(further: &[&Path]) -> Options {
    let options = Options::new().shards(4).memory_bytes(128 << 20).level(Level::ProcessCrash);
    options.data_directories(further.iter().map(PathBuf::from))
}

fn fill(store: &Store) {
    for key in 0..50u32 {
        store.put(key.to_be_bytes(), b"v").expect("a put");
    }
}

fn count(store: &Store) -> usize {
    store.prefix(b"").collect::<Result<Vec<_>, _>>().expect("items").len()
}

/// Three directories with a store of 50 records in them.
fn spread(place: &Path) -> [PathBuf; 3] {
    let all = ["a", "b", "c"].map(|name| place.join(name));
    let store = options(&[&all[1], &all[2]]).open(&all[0]).expect("created");
    fill(&store);
    store.close().expect("closed");
    all
}

#[test]
fn shards_are_spread_in_turn_and_found_again() {
    let place = place::directory();
    let [a, b, c] = spread(place.path());
    for (directory, shards) in [(&a, &[0, 3][..]), (&b, &[1]), (&c, &[2])] {
        let volumes = place::volumes(directory);
        let names: Vec<String> = shards.iter().map(|shard| format!("shard-{shard:03}.vol")).collect();
        let found = volumes.iter().map(|path| path.file_name().expect("a name").to_string_lossy().into_owned());
        assert_eq!(found.collect::<Vec<_>>(), names);
    }
    // By the first alone, by all, in another order.
    assert_eq!(count(&options(&[]).open(&a).expect("opened")), 50);
    assert_eq!(count(&options(&[&b, &c]).open(&a).expect("opened")), 50);
    assert_eq!(count(&options(&[&a, &b]).open(&c).expect("opened")), 50);
    assert!(stratakv::check(&a, None).expect("checked").is_sound());
    // One has moved.
    let moved = place.path().join("moved");
    fs::rename(&b, &moved).expect("renamed");
    let error = options(&[]).open(&a).expect_err("a part is missing");
    assert!(matches!(error, Error::MissingDirectory { part: 1, .. }) && error.kind() == ErrorKind::NotFound);
    assert!(error.to_string().contains(&b.display().to_string()), "{error}");
    assert_eq!(count(&options(&[&moved, &c]).open(&a).expect("opened")), 50);
    let named = stratakv::check_spread(&a, &[moved, c], &[], &[], None).expect("checked");
    assert!(named.is_sound());
}

#[test]
fn what_is_missing_or_exchanged_is_named() {
    let place = place::directory();
    let (one, two) = (place.path().join("1"), place.path().join("2"));
    let [a, b, c] = spread(&one);
    let [_, other_b, _] = spread(&two);
    let refused = |first: &Path, further: &[&Path], words: &str| {
        let error = options(further).open(first).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    };
    refused(&a, &[&b], "part 2");
    refused(&a, &[&b, &b], "named twice");
    refused(&a, &[&b, &other_b], "another store");
    refused(&a, &[&b, &c, &place.path().join("new")], "spread over more");
    fs::copy(c.join("part.toml"), b.join("part.toml")).expect("copied");
    refused(&a, &[&b, &c], "is a copy");
    fs::write(b.join("part.toml"), "format = 1\nnonsense").expect("written");
    refused(&a, &[&b, &c], "part.toml");
}

#[test]
fn nothing_of_another_store_is_written_over() {
    let place = place::directory();
    let [a, b, _] = spread(&place.path().join("1"));
    let new = place.path().join("new");
    for (first, further, words) in [(&new, &b, "a part of another store"), (&b, &new, "a part of another store")] {
        let error = options(&[further]).open(first).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
    let loose = place.path().join("loose");
    fs::create_dir(&loose).expect("made");
    fs::write(loose.join("shard-003.vol"), b"precious").expect("written");
    let error = options(&[&loose]).open(&new).expect_err("volumes lie there");
    assert!(error.to_string().contains("volumes"), "{error}");
    let error = Options::new().shards(2).data_directories([&new, &loose]).open(place.path().join("x"));
    assert_eq!(error.expect_err("too many directories").kind(), ErrorKind::Usage);
    assert_eq!(count(&options(&[]).open(&a).expect("opened")), 50);
}
