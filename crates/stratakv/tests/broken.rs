//! One shard breaks: everybody who asks the others, or all of them, is answered, and the store ends
//! and says how.

use std::sync::mpsc;
use std::time::Duration;

use stratakv::{Engine, Level, Options, Placement, Store, WriteBatch};
use stratakv_base::{CollectionId, Key};

/// Nothing here takes so long: what is not answered then never is.
const NEVER: Duration = Duration::from_secs(60);

/// What has shards, and batches over them.
const KINDS: [(Engine, Placement); 3] =
    [(Engine::Slab, Placement::InPlace), (Engine::Slab, Placement::Packed), (Engine::Matrix, Placement::InPlace)];

fn open(path: &std::path::Path, (engine, placement): (Engine, Placement)) -> Store {
    let options = Options::new().engine(engine).shards(2).memory_bytes(64 << 20);
    let options = match engine {
        Engine::Matrix => options.region_bytes(32 << 20).level(Level::ProcessCrash),
        _ => options.placement(placement),
    };
    options.open(path).unwrap()
}

fn key_on(store: &Store, shard: usize, stem: &str) -> Vec<u8> {
    let keys = (0..1000).map(|number| format!("{stem}{number}").into_bytes());
    let lies = |key: &Vec<u8>| store.shard_of(&Key::new(CollectionId::default(), key).unwrap()) == shard;
    keys.into_iter().find(lies).unwrap()
}

fn batch(keys: &[&[u8]]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    keys.iter().for_each(|key| _ = batch.put(key, b"batch"));
    batch
}

/// Does it in a thread of its own: whether it was answered, and how.
fn ask<T: Send + 'static>(what: &str, ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || _ = tell.send(ask()));
    told.recv_timeout(NEVER).unwrap_or_else(|_| panic!("{what}: no answer"))
}

/// What was begun after the break was never answered, took plain puts of its keys on the healthy
/// shard with it, and close waited for ever.
#[test]
fn everybody_is_answered_after_a_shard_broke() {
    for kind in KINDS {
        for (broken, stage) in [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2)] {
            let directory = tempfile::tempdir().unwrap();
            let place = format!("{kind:?}, shard {broken} breaks before stage {stage}");
            let store = open(&directory.path().join("data"), kind);
            answers_of(&store, &place, broken, stage, directory.path());
            let failure = store.failure().map(|error| error.to_string());
            assert!(failure.is_some_and(|why| why.contains("reopen the store")), "{place}");
            let closing = store.clone();
            assert!(ask(&format!("{place}: close"), move || closing.close()).is_err(), "{place}");
            assert!(store.close().is_err(), "{place}: it is said each time");
            drop(store);
            let store = open(&directory.path().join("data"), kind);
            assert!(store.failure().is_none());
            assert_eq!(store.get(key_on(&store, 1 - broken, "healthy")).unwrap().unwrap().to_bytes(), "v", "{place}");
            store.close().unwrap();
        }
    }
}

fn answers_of(store: &Store, place: &str, broken: usize, stage: u8, directory: &std::path::Path) {
    let keys = [key_on(store, 0, "a"), key_on(store, 1, "a")];
    let healthy = 1 - broken;
    let names = ["before".to_owned(), "after".to_owned()];
    let list = store.list("list").unwrap();
    let before = store.collection(&names[0]).unwrap();
    store.put(key_on(store, healthy, "healthy"), b"v").unwrap();
    store.write(batch(&[&keys[0], &keys[1]])).unwrap();
    store.break_shard(broken, stage);
    // The tick that breaks it.
    let (it, key) = (store.clone(), keys[broken].clone());
    ask(&format!("{place}: a get there"), move || _ = it.get(&key));
    let say = |what: &str| format!("{place}: {what}");
    for round in 0..2 {
        let (it, both) = (store.clone(), [keys[0].clone(), keys[1].clone()]);
        let written = ask(&say("a batch over both"), move || it.write(batch(&[&both[0], &both[1]])));
        assert!(written.is_err(), "{place}");
        let (it, key) = (store.clone(), keys[healthy].clone());
        let put = ask(&say("a put of a key of that batch"), move || it.put(&key, b"v"));
        assert!(put.is_ok(), "{place}, round {round}: {put:?}");
        let (it, key) = (store.clone(), key_on(store, healthy, "other"));
        ask(&say("a put of another key"), move || it.put(&key, b"v")).unwrap();
        let (it, both) = (store.clone(), [key_on(store, healthy, "b"), key_on(store, healthy, "c")]);
        let alone = ask(&say("a batch on the healthy one"), move || it.write(batch(&[&both[0], &both[1]])));
        assert!(alone.is_ok(), "{place}: {alone:?}");
        let (it, to) = (store.clone(), directory.join(format!("backup-{round}")));
        assert!(ask(&say("a backup"), move || it.backup(&to)).is_err(), "{place}: without one of its shards");
        let it = store.clone();
        assert!(ask(&say("a sync"), move || it.sync()).is_err(), "{place}");
        let it = store.clone();
        ask(&say("a snapshot"), move || _ = it.snapshot());
        let it = store.clone();
        assert!(ask(&say("a scan"), move || it.prefix(b"").any(|item| item.is_err())), "{place}");
        let it = store.clone();
        ask(&say("a range delete"), move || _ = it.delete_range("zz"..));
        let (it, both) = (store.clone(), keys.clone());
        ask(&say("a transaction"), move || {
            let mut transaction = it.transaction();
            let _ = transaction.get(&it, &both[0]);
            let _ = transaction.put(&it, &both[1], b"t");
            _ = transaction.commit();
        });
        let (it, names) = (store.clone(), names.clone());
        ask(&say("collections"), move || {
            let _ = it.collection(&names[1]);
            let _ = it.drop_collection(&names[1]);
            _ = it.collections();
        });
        let (list, before) = (list.clone(), before.clone());
        ask(&say("a list"), move || {
            let _ = list.push_back(b"x");
            let _ = list.pop_front();
            _ = before.put(b"k", b"v");
        });
        let (it, both) = (store.clone(), keys.clone());
        ask(&say("gets at once"), move || _ = it.multi_get(&both));
    }
}
