//! Backups while the store serves, and what is restored from them.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stratakv::{
    CollectionId, ErrorKind, Expiry, Key, Level, Options, Placement, PutOptions, Store, WriteBatch, restore,
};
use stratakv_integration::place;

fn options() -> Options {
    Options::new().shards(3).memory_bytes(192 << 20).level(Level::ProcessCrash)
}

fn all(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let items = store.prefix(b"").map(|item| item.expect("an item"));
    items.map(|(key, record)| (key.to_vec(), record.to_bytes().to_vec())).collect()
}

fn restored(from: &Path, to: &Path) -> Store {
    restore(from, to, &options().shards(2)).expect("restored");
    options().create(false).open(to).expect("the restored store opens")
}

#[test]
fn everything_comes_back_in_its_collection() {
    let place = place::directory();
    let store = options().open(place.path().join("data")).expect("created");
    let users = store.collection("users").expect("made");
    for key in 0..3000u32 {
        store.put(key.to_be_bytes(), vec![key as u8; key as usize % 900]).expect("a put");
    }
    store.put(b"large", vec![9; 3 << 20]).expect("a put");
    users.put(b"ada", b"36").expect("a put");
    let flagged = PutOptions { flags: 77, expiry: Expiry(Expiry::MAX.0 - 1), ..PutOptions::default() };
    users.put_with(b"flagged", b"f", &flagged).expect("a put");
    let to = place.path().join("backup");
    let summary = store.backup(&to).expect("backed up");
    assert!(summary.records >= 3003 && summary.bytes > 3 << 20, "{summary:?}");
    let copy = restored(&to, &place.path().join("copy"));
    assert_eq!(all(&copy), all(&store));
    assert_eq!(copy.collections().expect("names"), ["users"]);
    let users = copy.collection("users").expect("there");
    let found = users.get(b"flagged").expect("a get").expect("it is there");
    assert_eq!((found.flags, found.expiry), (77, Expiry(Expiry::MAX.0 - 1)));
    assert_eq!(users.get(b"ada").expect("a get").map(|record| record.to_bytes()), Some("36".into()));
}

/// Each shard's part is what it held at one moment, and batches are whole.
#[test]
fn a_backup_under_load_is_a_cut() {
    is_a_cut(Placement::InPlace);
}

#[test]
fn a_backup_under_load_is_a_cut_of_segments_too() {
    is_a_cut(Placement::Packed);
}

fn is_a_cut(placement: Placement) {
    let place = place::directory();
    let store = options().placement(placement).open(place.path().join("data")).expect("created");
    for key in 0..2000u32 {
        store.put(format!("old-{key}").as_bytes(), [1; 300]).expect("a put");
    }
    let stop = AtomicBool::new(false);
    let written: Mutex<Vec<(String, Option<String>)>> = Mutex::default();
    let backups: Vec<_> = (0..3).map(|number| place.path().join(format!("backup-{number}"))).collect();
    thread::scope(|scope| {
        let writer = |number: u32| {
            let (store, stop) = (&store, &stop);
            move || {
                for round in 0.. {
                    let mut batch = WriteBatch::new();
                    (0..6).for_each(|key| {
                        batch.put(format!("batch-{number}-{key}").as_bytes(), format!("{round}").as_bytes());
                    });
                    store.write(batch).expect("written");
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        };
        scope.spawn(writer(0));
        scope.spawn(writer(1));
        scope.spawn(|| {
            for round in 0u32.. {
                let key = match round % 3 {
                    0 => format!("new-{round}"),
                    _ => format!("old-{}", round * 7919 % 2000),
                };
                let value = (round % 5 > 0).then(|| "v".repeat(1 + (round as usize * 31) % 5000) + &round.to_string());
                written.lock().expect("no panic").push((key.clone(), value.clone()));
                match value {
                    Some(value) => drop(store.put(key.as_bytes(), value.as_bytes()).expect("a put").to_string()),
                    None => drop(store.delete(key.as_bytes()).expect("a delete").to_string()),
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let made: Vec<_> = backups.iter().map(|to| store.backup(to)).collect();
        // Before anything is said of it: the writers would go on for ever.
        stop.store(true, Ordering::Relaxed);
        for made in made {
            made.expect("backed up");
        }
    });
    let written = written.into_inner().expect("no panic");
    for (number, to) in backups.iter().enumerate() {
        let copy = restored(to, &place.path().join(format!("copy-{number}")));
        let found = all(&copy);
        for writer in 0..2 {
            let of = |key: u32| found.get(format!("batch-{writer}-{key}").as_bytes());
            assert!((1..6).all(|key| of(key) == of(0)), "backup {number} holds half a batch");
        }
        let shard_of = |key: &[u8]| store.shard_of(&Key::new(CollectionId::default(), key).expect("a key"));
        for shard in 0..store.shards() {
            let mine = found.iter().filter(|(key, _)| !key.starts_with(b"batch-") && shard_of(key) == shard);
            let mine: HashMap<&[u8], &[u8]> = mine.map(|(key, value)| (&key[..], &value[..])).collect();
            is_a_prefix(&mine, &written, |key| shard_of(key) == shard)
                .unwrap_or_else(|why| panic!("backup {number}, shard {shard}: {why}"));
        }
    }
}

/// Whether `found` is what the writes of a shard, up to one of them, leave.
fn is_a_prefix(
    found: &HashMap<&[u8], &[u8]>,
    written: &[(String, Option<String>)],
    is_mine: impl Fn(&[u8]) -> bool,
) -> Result<(), String> {
    let old: Vec<String> = (0..2000).map(|key| format!("old-{key}")).collect();
    let mut state: HashMap<&[u8], &[u8]> = HashMap::new();
    state.extend(old.iter().map(|key| (key.as_bytes(), &[1; 300][..])).filter(|(key, _)| is_mine(key)));
    // Keys that differ from what was found.
    let differs = |state: &HashMap<&[u8], &[u8]>, key: &[u8]| state.get(key) != found.get(key);
    let keys = state.keys().chain(found.keys()).copied().collect::<std::collections::HashSet<_>>();
    let mut different = keys.into_iter().filter(|key| differs(&state, key)).collect::<std::collections::HashSet<_>>();
    let mut fewest = different.len();
    for (key, value) in written.iter().filter(|(key, _)| is_mine(key.as_bytes())) {
        if different.is_empty() {
            return Ok(());
        }
        let key = key.as_bytes();
        match value {
            Some(value) => state.insert(key, value.as_bytes()),
            None => state.remove(key),
        };
        if differs(&state, key) {
            different.insert(key)
        } else {
            different.remove(key)
        };
        fewest = fewest.min(different.len());
    }
    if different.is_empty() {
        Ok(())
    } else {
        Err(format!("at best {fewest} keys differ from every prefix of the writes"))
    }
}

#[test]
fn what_is_not_a_whole_backup_is_refused() {
    let place = place::directory();
    let store = options().open(place.path().join("data")).expect("created");
    (0..500u32).for_each(|key| drop(store.put(key.to_be_bytes(), [5; 200]).expect("a put").to_string()));
    let to = place.path().join("backup");
    store.backup(&to).expect("backed up");
    assert_eq!(store.backup(&to).expect_err("it is not empty").kind(), ErrorKind::Usage);
    let refused = |number: u32, words: &str| {
        let copy = place.path().join(format!("copy-{number}"));
        let error = restore(&to, &copy, &options()).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
        if copy.exists() {
            let error = options().open(&copy).expect_err("half a restore");
            let said = error.to_string();
            assert!(said.contains("interrupted") && said.contains("rm -r") && !said.contains("damaged"), "{said}");
        }
    };
    let file = to.join("shard-001.backup");
    let whole = fs::read(&file).expect("read");
    for at in [20, whole.len() / 2, whole.len() - 1] {
        let mut turned = whole.clone();
        turned[at] ^= 1;
        fs::write(&file, &turned).expect("written");
        refused(at as u32, "checksum");
    }
    fs::write(&file, &whole[..whole.len() - 8]).expect("written");
    refused(1, "cut short");
    fs::remove_file(to.join("backup.toml")).expect("removed");
    refused(2, "no complete backup");
    let taken = place.path().join("data");
    assert!(restore(&to, &taken, &options()).is_err());
}
