//! Stores of engine `hash`: the contract through the library, and what opening one can meet.

use std::fs::{self, File, OpenOptions};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stratakv::raw::{Change, ChangeKind, Operation, RecordPart, Reply};
use stratakv::{
    CollectionId, Engine, ErrorKind, Expect, Expiry, Key, Level, Now, Options, Placement, PutOptions, Record,
    ScanOptions, Store, StoreEvent, Wall, WriteBatch,
};
use stratakv_base::Mono;
use stratakv_conformance::{self as conformance, Subject};
use stratakv_engine::{Capabilities, Error as EngineError};
use stratakv_integration::place;
use stratakv_runtime::{Clock, ManualClock};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn options() -> Options {
    Options::new().engine(Engine::Hash).region_bytes(32 * MIB).level(Level::ProcessCrash)
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).expect("a get").map(|record| record.to_bytes().to_vec())
}

/// The store's region.
fn region(data: &Path) -> std::path::PathBuf {
    data.join("pmem/region-000")
}

/// Refused, with all of these words.
fn refused(options: &Options, data: &Path, kind: ErrorKind, words: &[&str]) {
    let error = options.open(data).expect_err("it must be refused");
    let said = error.to_string();
    assert!(error.kind() == kind && words.iter().all(|word| said.contains(word)), "{:?}: {said}", error.kind());
}

/// A store that is closed and opened between lives; its clock stands still until it is told.
struct StoreSubject {
    place: TempDir,
    store: Option<Store>,
    clock: Arc<ManualClock>,
    now: Now,
}

impl StoreSubject {
    fn new() -> StoreSubject {
        let now = Now { mono: Mono(1), wall: Wall(1_800_000_000_000) };
        let clock = Arc::new(ManualClock::default());
        clock.set(now);
        let mut subject = StoreSubject { place: place::directory(), store: None, clock, now };
        subject.open();
        subject
    }

    fn open(&mut self) {
        let options = options().region_bytes(256 * MIB).clock(Clock::Manual(Arc::clone(&self.clock)));
        self.store = Some(options.open(self.place.path().join("data")).expect("opened"));
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open between operations")
    }
}

/// The suite asks for the level of a disk; this store is of another.
fn at_level(operation: Operation) -> Operation {
    match operation {
        Operation::Write { changes, .. } => Operation::Write { changes, level: Level::ProcessCrash },
        Operation::Update { key, update, .. } => Operation::Update { key, update, level: Level::ProcessCrash },
        Operation::DeleteRange { range, .. } => Operation::DeleteRange { range, level: Level::ProcessCrash },
        other => other,
    }
}

impl Subject for StoreSubject {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: false, snapshot: true, durable: true, evicting: false, blind: false }
    }

    fn execute(&mut self, operation: Operation) -> Reply {
        self.store().execute(at_level(operation))
    }

    fn execute_all(&mut self, operations: Vec<Operation>) -> Vec<Reply> {
        self.store().execute_many(operations.into_iter().map(at_level).collect())
    }

    fn reopen(&mut self) {
        drop(self.store.take());
        self.open();
        assert!(self.store().recovery().clean && self.store().recovery().corrupt.is_empty());
    }

    fn wall(&self) -> Wall {
        self.now.wall
    }

    fn advance_wall(&mut self, millis: u64) {
        self.now.wall.0 += millis;
        self.now.mono.0 += millis * 1_000_000;
        self.clock.set(self.now);
    }
}

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        mod contract {
            $(#[test] fn $name() { super::conformance::$module::$name(&mut super::StoreSubject::new()); })*
        }
    };
}
stratakv_conformance::cases!(tests);

#[test]
fn a_snapshot_stays_as_it_was_while_the_store_goes_on() {
    let place = place::directory();
    let store = options().open(place.path().join("data")).expect("opened");
    let users = store.collection("users").expect("a collection");
    let write_all = |with: &str| {
        for number in 0..500 {
            let mut batch = WriteBatch::new();
            let (key, value) = (format!("{number:03}"), format!("{with} {number}"));
            batch.put(key.as_bytes(), value.as_bytes()).put_in(&users, key.as_bytes(), value.as_bytes());
            store.write(batch).expect("a batch");
        }
    };
    write_all("old");
    let snapshot = store.snapshot().expect("a snapshot");
    write_all("new");
    users.delete_prefix(b"1").expect("deleted");
    store.delete(b"007").expect("deleted");
    let text = |record: stratakv::Record| String::from_utf8_lossy(&record.to_bytes()).into_owned();
    let of = |scan: stratakv::Scan| -> Vec<String> { scan.map(|item| text(item.expect("an item").1)).collect() };
    let old: Vec<String> = (0..500).map(|number| format!("old {number}")).collect();
    assert_eq!(of(snapshot.scan(&users, ScanOptions::all())), old);
    assert_eq!(of(snapshot.scan(&users, ScanOptions::all().reverse()))[0], "old 499");
    assert_eq!(of(users.scan(ScanOptions::all())).len(), 400);
    let keys = snapshot.scan(&users, ScanOptions::prefix(b"1").keys_only());
    assert_eq!(keys.count(), 100);
    assert_eq!(snapshot.get(&store, b"007").expect("a get").map(text).as_deref(), Some("old 7"));
    assert_eq!(snapshot.get(&users, b"123").expect("a get").map(text).as_deref(), Some("old 123"));
    assert!(snapshot.get(&users, b"absent").expect("a get").is_none());
    let kept = || store.stats().into_iter().find(|one| one.name == "snapshots_kept_bytes").map(|one| one.value);
    assert!(kept() > Some(0));
    drop(snapshot);
    assert_eq!(kept(), Some(0));

    let slab = Options::new().open(place.path().join("slab")).expect("opened");
    assert_eq!(slab.snapshot().expect_err("slab has none").kind(), ErrorKind::Unsupported);
}

/// What a backup keeps was kept for good when it was called off, or a walk over all records ended
/// by an error.
#[test]
fn what_comes_to_no_end_keeps_nothing() {
    let place = place::directory();
    let store = options().open(place.path().join("data")).expect("opened");
    for number in 0..5_000u32 {
        store.put(number.to_le_bytes(), [1; 500]).expect("a put");
    }
    let open = || store.stats().into_iter().find(|one| one.name == "snapshots").map(|one| one.value);
    store.backup_watched(&place.path().join("backup"), &|_| false).expect_err("called off");
    assert_eq!(open(), Some(0));
    let ended = store.for_each(|_, _, _| Err(stratakv::Error::Option("enough".into())));
    assert!(ended.is_err() && open() == Some(0), "{ended:?} {:?}", open());
    store.backup(place.path().join("whole")).expect("a backup");
    assert_eq!(open(), Some(0));
}

/// What snapshots remember of replaced records was in no figure and under no cap.
#[test]
fn a_snapshot_ends_before_it_takes_the_memory_of_keys() {
    let place = place::directory();
    let options = options().region_bytes(64 * MIB).memory_bytes(8 * MIB);
    let store = options.open(place.path().join("data")).expect("opened");
    let write_all = |value: &[u8]| {
        for number in 0..60_000u32 {
            store.put(number.to_le_bytes(), value).expect("a put");
        }
    };
    write_all(b"old");
    let snapshot = store.snapshot().expect("a snapshot");
    write_all(b"new");
    let stat = |name: &str| store.stats().into_iter().find(|one| one.name == name).map(|one| one.value);
    // Maintenance sees to it, ten times a second.
    while stat("snapshots_ended_early") != Some(1) {
        thread::yield_now();
    }
    assert_eq!((stat("snapshots"), stat("snapshots_index_bytes")), (Some(0), Some(0)));
    assert_eq!(snapshot.get(&store, b"k").expect_err("it has ended").kind(), ErrorKind::Busy);
    // And soon there is memory for new keys again.
    while let Err(error) = store.put(b"a new key", b"v") {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        thread::yield_now();
    }
}

/// A batch of one change asked for the level of disks, and was refused where there is none.
#[test]
fn a_batch_of_one_change_is_as_durable_as_its_store() {
    let place = place::directory();
    let store = options().open(place.path().join("data")).expect("opened");
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"v");
    store.write(batch).expect("a batch");
    assert_eq!(value(&store, b"k").as_deref(), Some(&b"v"[..]));
    store.transact(|transaction| transaction.delete(&store, b"k")).expect("a transaction");
    let list = store.list("l").expect("a list");
    list.push_all(stratakv::End::Back, &[b"a", b"b"]).expect("two pushes");
    assert_eq!(list.len().expect("a length"), 2);
    assert_eq!(value(&store, b"k"), None);
}

#[test]
fn what_was_put_is_there_after_reopening() {
    for level in [Level::PowerLoss, Level::ProcessCrash] {
        let place = place::directory();
        let data = place.path().join("data");
        let store = options().level(level).open(&data).expect("created");
        assert!(store.recovery().created && store.shards() == 1);
        let first = store.put(b"a", b"1").expect("a put");
        assert!(store.put(b"a", b"2").expect("a put") > first);
        store.put(b"b", vec![7; 300_000]).expect("a put");
        assert!(!store.delete(b"none").expect("a delete"));
        let mut batch = WriteBatch::new();
        batch.put(b"c", b"3").put(b"d", b"4").delete(b"a");
        store.write(batch).expect("a batch");
        let users = store.collection("users").expect("made");
        for number in 0..100u32 {
            users.put(format!("user:{number:03}").as_bytes(), b"x").expect("a put");
        }
        assert_eq!(users.increment(b"visits", 2).expect("counted"), 2);
        store.sync().expect("synced");
        store.close().expect("closed");
        assert_eq!(store.get(b"a").expect_err("it is closed").kind(), ErrorKind::Closed);
        assert_eq!(store.put(b"a", b"3").expect_err("it is closed").kind(), ErrorKind::Closed);
        // What the store is made of says it: no option is needed, and the handle of the closed one
        // is in nobody's way.
        let again = Options::new().level(level).open(&data).expect("opened");
        assert!(again.recovery().clean && !again.recovery().created, "{:?}", again.recovery());
        assert_eq!((value(&again, b"a"), value(&again, b"c")), (None, Some(b"3".to_vec())));
        assert_eq!(value(&again, b"b"), Some(vec![7; 300_000]));
        let users = again.existing_collection("users").expect("looked up").expect("there");
        let keys: Vec<Vec<u8>> = users.prefix(b"user:").map(|item| item.expect("an item").0.to_vec()).collect();
        assert!(keys.len() == 100 && keys.is_sorted());
        assert_eq!(again.collections().expect("listed"), ["users"]);
        assert!(again.drop_collection("users").expect("dropped"));
    }
}

#[test]
fn sessions_futures_and_threads_see_one_store() {
    for level in [Level::PowerLoss, Level::ProcessCrash] {
        let place = place::directory();
        let store = options().level(level).open(place.path().join("data")).expect("created");
        thread::scope(|scope| {
            for thread in 0..4u32 {
                let store = store.clone();
                scope.spawn(move || {
                    let mut session = store.session().expect("a session");
                    let key =
                        |number: u32| Key::new(store.id(), format!("{thread}/{number}").as_bytes()).expect("a key");
                    for number in 0..100u32 {
                        let kind =
                            ChangeKind::Put { value: number.to_string().into(), flags: number, expiry: Expiry::NEVER };
                        let change = Change { key: key(number), expect: Expect::Absent, kind };
                        session.submit(Operation::Write { changes: vec![change], level });
                    }
                    while session.in_flight() > 0 {
                        for (_, reply) in session.poll(100).expect("polled") {
                            assert!(matches!(reply, Reply::Done { existed: false, .. }), "{reply:?}");
                        }
                    }
                    for number in 0..100u32 {
                        session.submit(Operation::Get { key: key(number), part: RecordPart::Whole });
                    }
                    let found = session.poll(100).expect("polled");
                    assert_eq!(found.len(), 100, "reads are answered at once");
                    for (number, (_, reply)) in (0u32..).zip(found) {
                        let Reply::Record(Some(record)) = reply else { panic!("{reply:?}") };
                        assert_eq!(
                            (record.flags, &record.value.to_bytes()[..]),
                            (number, number.to_string().as_bytes())
                        );
                    }
                    store.increment(b"threads", 1).map(drop).unwrap_or_default();
                });
            }
        });
        let statistics = store.stats();
        let records = statistics.iter().find(|one| one.name == "records").map(|one| one.value);
        assert!(records >= Some(400), "{statistics:?}");
    }
}

#[test]
fn a_range_delete_in_a_session_kept_no_order_with_its_writes() {
    for level in [Level::PowerLoss, Level::ProcessCrash] {
        let place = place::directory();
        let store = options().level(level).open(place.path().join("data")).expect("created");
        let users = store.collection("users").expect("made");
        let mut session = store.session().expect("a session");
        for id in [store.id(), users.id()] {
            let put = |number: u32, value: &'static str| {
                let key = Key::new(id, format!("{number:03}").as_bytes()).expect("a key");
                let kind = ChangeKind::Put { value: value.into(), flags: 0, expiry: Expiry::NEVER };
                let changes = vec![Change { key, expect: Expect::Any, kind }];
                Operation::Write { changes, level }
            };
            let (from, to) =
                (Bound::Included(Key::bound(id, b"")), Bound::Excluded(Key::bound(CollectionId(id.0 + 1), b"")));
            for number in 0..200 {
                session.submit(put(number, "old"));
            }
            session.submit(Operation::DeleteRange { range: Box::new((from, to)), level });
            for number in (0..200).step_by(2) {
                session.submit(put(number, "new"));
            }
            while session.in_flight() > 0 {
                let replies = session.poll(301).expect("polled");
                assert!(!replies.iter().any(|(_, reply)| matches!(reply, Reply::Failed(_))), "{replies:?}");
            }
        }
        let wanted = |number: u32| number.is_multiple_of(2).then(|| b"new".to_vec());
        let found = |record: Option<Record>| record.map(|record| record.to_bytes().to_vec());
        for number in 0..200 {
            let key = format!("{number:03}");
            assert_eq!(value(&store, key.as_bytes()), wanted(number), "{key}");
            assert_eq!(found(users.get(key.as_bytes()).expect("a get")), wanted(number), "{key} of users");
        }
    }
}

#[test]
fn a_level_that_the_medium_cannot_give_is_refused() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let data = memory.path().join("data");
    let asked = options().level(Level::PowerLoss);
    refused(&asked, &data, ErrorKind::Usage, &["power_loss", "process_crash"]);
    assert!(!region(&data).exists(), "nothing is made that is refused");
    let store = options().open(&data).expect("the weaker level can be had");
    store.put(b"k", b"v").expect("a put");
    // Also by a single write.
    let casual = PutOptions { level: Some(Level::PowerLoss), ..PutOptions::default() };
    assert_eq!(store.put_with(b"k", b"w", &casual).expect_err("refused").kind(), ErrorKind::Unsupported);
    assert_eq!(value(&store, b"k"), Some(b"v".to_vec()));
    drop(store);
    refused(&asked, &data, ErrorKind::Usage, &["power_loss", "process_crash"]);
    assert_eq!(value(&options().open(&data).expect("opened"), b"k"), Some(b"v".to_vec()));
}

/// Every later opening had to be told anew where the region was.
#[test]
fn a_region_that_was_moved_is_named_once() {
    let place = place::directory();
    let (data, other) = (place.path().join("data"), place.path().join("other"));
    let plain = Options::new().level(Level::ProcessCrash);
    for data in [&data, &other] {
        options().open(data).expect("created").put(b"k", b"v").expect("a put");
    }
    let (moved, further) = (place.path().join("moved"), place.path().join("further"));
    fs::rename(region(&data), &moved).expect("moved");
    // Another store's is not remembered, nor what was only looked at.
    let before = fs::read(data.join("store.toml")).expect("read");
    refused(&plain.clone().region_path(region(&other)), &data, ErrorKind::Corrupt, &["another store"]);
    drop(plain.clone().read_only(true).region_path(&moved).open(&data).expect("read"));
    assert!(fs::read(data.join("store.toml")).expect("read") == before);
    drop(plain.clone().region_path(&moved).open(&data).expect("it is where it says"));
    assert_eq!(value(&plain.open(&data).expect("it is known"), b"k"), Some(b"v".to_vec()));
    fs::rename(&moved, &further).expect("moved");
    drop(plain.clone().region_path(&further).open(&data).expect("it is where it says"));
    drop(plain.open(&data).expect("it is known"));
    // Home again: wherever the directory goes, it goes along.
    fs::rename(&further, region(&data)).expect("moved");
    drop(plain.clone().region_path(region(&data)).open(&data).expect("it is where it says"));
    let elsewhere = place.path().join("elsewhere");
    fs::rename(&data, &elsewhere).expect("moved");
    assert_eq!(value(&plain.open(&elsewhere).expect("it is known"), b"k"), Some(b"v".to_vec()));
}

/// It was accepted: after a power cut the region is there, and nobody knows what it is.
#[test]
fn power_loss_is_refused_where_what_the_store_is_would_be_lost() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let place = place::directory();
    let (data, at) = (memory.path().join("data"), place.path().join("region"));
    let asked = options().region_path(&at).level(Level::PowerLoss);
    refused(&asked, &data, ErrorKind::Usage, &["power_loss", "store.toml", "on tmpfs", "--data", "process_crash"]);
    assert!(!at.exists() && !data.join("store.toml").exists(), "nothing is made that is refused");
    drop(options().region_path(&at).open(&data).expect("the weaker level can be had"));
    refused(&asked, &data, ErrorKind::Usage, &["power_loss", "store.toml"]);
    drop(options().region_path(&at).open(&data).expect("opened"));
}

/// It was told as a lack of durability, or as something that cannot be examined.
#[test]
fn a_directory_that_the_region_wants_and_is_not_there_is_named() {
    let place = place::directory();
    let absent = place.path().join("absent");
    for level in [Level::PowerLoss, Level::ProcessCrash] {
        let asked = options().region_path(absent.join("region")).level(level);
        let name = absent.display().to_string();
        refused(&asked, &place.path().join("data"), ErrorKind::NotFound, &["mkdir -p", &name, "does not exist"]);
    }
    assert!(!absent.exists());
    drop(options().open(place.path().join("data")).expect("its own directory is made"));
}

#[test]
fn options_of_the_other_engine_are_refused() {
    let place = place::directory();
    let data = place.path().join("data");
    let usage = |options: Options, words: &[&str]| refused(&options, &data, ErrorKind::Usage, words);
    usage(options().devices(["/dev/null"]), &["hash", "leave that out"]);
    usage(options().data_directories([place.path().join("more")]), &["hash", "leave that out"]);
    usage(options().placement(Placement::Packed), &["placement", "slab"]);
    usage(options().capacity_bytes(1 << 30), &["capacity", "region"]);
    usage(options().shards(4), &["4 shards", "has one"]);
    usage(options().region_bytes(5000), &["5000", "multiple of 4096"]);
    usage(options().region_bytes(4096), &["at least"]);
    usage(Options::new().engine(Engine::Slab).region_bytes(MIB), &["region", "slab"]);
    assert!(!region(&data).exists());
    // And of a store that is there, whichever it is.
    drop(options().open(&data).expect("created"));
    usage(Options::new().engine(Engine::Slab), &["`slab` was asked for", "`hash`"]);
    usage(Options::new().level(Level::ProcessCrash).region_bytes(16 * MIB), &["never gets shorter", "restore"]);
    let reader = Options::new().read_only(true).region_bytes(64 * MIB);
    usage(reader, &["only read", "open it for writing"]);
    usage(Options::new().placement(Placement::Packed), &["placement"]);
    let slab = place.path().join("slab");
    drop(Options::new().shards(1).open(&slab).expect("created"));
    refused(&options(), &slab, ErrorKind::Usage, &["`hash` was asked for", "`slab`"]);
    refused(&Options::new().region_bytes(32 * MIB), &slab, ErrorKind::Usage, &["has the engine `slab`"]);
}

#[test]
fn a_region_that_is_not_the_stores_own_is_told() {
    let place = place::directory();
    let (data, other) = (place.path().join("data"), place.path().join("other"));
    let (plain, kept) = (Options::new().level(Level::ProcessCrash), place.path().join("kept"));
    for data in [&data, &other] {
        options().open(data).expect("created").put(b"k", b"v").expect("a put");
    }
    fs::rename(region(&data), &kept).expect("moved");
    refused(&plain, &data, ErrorKind::NotFound, &["region-000", "is missing", "--region-path"]);
    fs::copy(region(&other), region(&data)).expect("copied");
    refused(&plain, &data, ErrorKind::Corrupt, &["of another store"]);
    fs::remove_file(region(&data)).expect("removed");
    let at_kept = plain.clone().read_only(true).region_path(&kept);
    assert_eq!(value(&at_kept.open(&data).expect("it is where it says"), b"k"), Some(b"v".to_vec()));
    // Cut off, by pages and by bytes; then not a region at all.
    let cut = |len: u64, words: &[&str]| {
        fs::copy(&kept, region(&data)).expect("copied");
        File::options().write(true).open(region(&data)).and_then(|file| file.set_len(len)).expect("cut");
        refused(&plain, &data, ErrorKind::Corrupt, words);
    };
    cut(8 * MIB, &["cut off"]);
    cut(8 * MIB + 5, &["cut off"]);
    cut(0, &["cut off"]);
    fs::write(region(&data), vec![7; 1 << 20]).expect("written");
    refused(&plain, &data, ErrorKind::Corrupt, &["no store"]);
    fs::remove_file(region(&data)).expect("removed");
    fs::create_dir(region(&data)).expect("made");
    refused(&plain, &data, ErrorKind::Usage, &["neither a file nor a devdax device"]);
}

/// It said "create one", or "look which file it is", and no more.
#[test]
fn a_region_that_is_lost_is_told_with_the_way_out() {
    let place = place::directory();
    let (data, at) = (place.path().join("data"), place.path().join("region"));
    let plain = Options::new().level(Level::ProcessCrash);
    drop(options().open(&data).expect("created"));
    let restore = format!("stratakv restore BACKUP --data {}", data.display());
    let anew = format!("stratakv serve --engine hash --data {}", data.display());
    let bytes = fs::read(region(&data)).expect("read");
    let overwritten = |len: usize, with: u8| {
        let mut bytes = bytes.clone();
        bytes[..len].fill(with);
        fs::write(region(&data), bytes).expect("written");
    };
    overwritten(bytes.len(), 0);
    refused(&plain, &data, ErrorKind::Corrupt, &["region-000", "is blank", "zeros", &restore, &anew]);
    overwritten(8192, 7);
    refused(&plain, &data, ErrorKind::Corrupt, &["both copies of its superblock", "--region-path", &restore, &anew]);
    fs::remove_file(region(&data)).expect("removed");
    refused(&plain, &data, ErrorKind::NotFound, &["is missing", "mount", &restore, &anew]);
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let volatile = memory.path().join("gone").join("region");
    fs::create_dir(memory.path().join("gone")).expect("made");
    let named = place.path().join("named");
    drop(options().region_path(&volatile).open(&named).expect("created"));
    fs::remove_dir_all(memory.path().join("gone")).expect("removed");
    let option = format!("--region-path {}", volatile.display());
    refused(&plain, &named, ErrorKind::NotFound, &["is missing", "end with the machine", &option, "restore BACKUP"]);
    fs::write(&at, vec![0; MIB as usize]).expect("written");
    let words = ["is blank", &format!("rm -r {}", named.display()), "restore BACKUP"];
    refused(&plain.clone().region_path(&at), &named, ErrorKind::Corrupt, &words);
}

#[test]
fn a_region_lies_where_it_was_named() {
    let place = place::directory();
    let (data, at) = (place.path().join("data"), place.path().join("elsewhere"));
    fs::write(&at, b"precious").expect("written");
    let named = options().region_path(&at);
    refused(&named, &data, ErrorKind::Usage, &["exists", "another file"]);
    assert_eq!(fs::read(&at).expect("it is still there"), b"precious");
    fs::remove_file(&at).expect("removed");
    named.open(&data).expect("created").put(b"k", b"v").expect("a put");
    assert!(at.exists() && !region(&data).exists());
    // It is remembered, and guarded.
    let store = Options::new().level(Level::ProcessCrash).open(&data).expect("opened");
    assert_eq!(value(&store, b"k"), Some(b"v".to_vec()));
    refused(&named.clone(), &place.path().join("other"), ErrorKind::Usage, &["exists"]);
    drop(store);
    let device = options().region_path("/dev/null");
    refused(&device, &place.path().join("third"), ErrorKind::Usage, &["neither a file nor a devdax device"]);
}

/// The manifest says that it was not completed: the same store is made again, and nothing of others
/// is taken.
#[test]
fn an_interrupted_creation_is_begun_again() {
    let place = place::directory();
    let (data, at) = (place.path().join("data"), place.path().join("elsewhere"));
    let named = options().region_path(&at);
    named.open(&data).expect("created").put(b"k", b"v").expect("a put");
    let manifest = data.join("store.toml");
    let text = fs::read_to_string(&manifest).expect("read");
    fs::write(&manifest, text.replace("complete = true", "complete = false")).expect("written");
    let store = named.open(&data).expect("made again");
    assert!(store.recovery().created && value(&store, b"k").is_none());
    drop(store);
    // Interrupted before the region's first byte; and after somebody else has put something there.
    fs::write(&manifest, text.replace("complete = true", "complete = false")).expect("written");
    fs::write(&at, vec![0; 1 << 20]).expect("written");
    drop(named.open(&data).expect("made again"));
    fs::write(&manifest, text.replace("complete = true", "complete = false")).expect("written");
    fs::write(&at, vec![1; 1 << 20]).expect("written");
    refused(&named, &data, ErrorKind::Usage, &["holds something"]);
    assert!(fs::read(&at).expect("it is still there").iter().all(|byte| *byte == 1));
}

#[test]
fn a_region_without_its_manifest_is_not_written_over() {
    let place = place::directory();
    let data = place.path().join("data");
    options().open(&data).expect("created").put(b"k", b"v").expect("a put");
    let kept = fs::read(region(&data)).expect("read");
    fs::remove_file(data.join("store.toml")).expect("removed");
    refused(&options(), &data, ErrorKind::Corrupt, &["a region lies beside it"]);
    refused(&Options::new(), &data, ErrorKind::Corrupt, &["a region lies beside it"]);
    assert!(fs::read(region(&data)).expect("read") == kept);
}

#[test]
fn read_only_reads_and_changes_no_byte() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options().open(&data).expect("created");
    for number in 0..1000u32 {
        store.put(format!("{}", number % 300).as_bytes(), number.to_le_bytes()).expect("a put");
    }
    store.close().expect("closed");
    // One copy of the superblock is damaged: opening mends it, but not for a reader.
    let mut bytes = fs::read(region(&data)).expect("read");
    bytes[20] ^= 1;
    fs::write(region(&data), &bytes).expect("written");
    let options = Options::new().read_only(true);
    let store = options.open(&data).expect("opened, whatever the level");
    assert_eq!(value(&store, b"299"), Some(899u32.to_le_bytes().to_vec()));
    assert_eq!(value(&options.open(&data).expect("a second reader"), b"0"), Some(900u32.to_le_bytes().to_vec()));
    store.put(b"k", b"w").expect_err("read-only");
    store.delete(b"0").expect_err("read-only");
    assert!(store.put(b"k", b"w").expect_err("read-only").to_string().contains("reading only"));
    assert_eq!(
        options.clone().read_only(false).level(Level::ProcessCrash).open(&data).expect_err("read").kind(),
        ErrorKind::Locked
    );
    store.close().expect("closed");
    assert!(fs::read(region(&data)).expect("read") == bytes, "a read-only store wrote");
    drop(Options::new().level(Level::ProcessCrash).open(&data).expect("opened"));
    assert!(fs::read(region(&data)).expect("read") != bytes, "opening it mends it");
}

/// Each write that was refused and each that was taken had a line in the log.
#[test]
fn a_store_without_room_says_so_once_and_takes_deletes() {
    let place = place::directory();
    let (tell, told) = std::sync::mpsc::channel();
    let watcher = move |event: &StoreEvent| tell.send(event.to_string()).expect("heard");
    let clock = Arc::new(ManualClock::default());
    let at = |seconds: u64| clock.set(Now { mono: Mono(seconds * 1_000_000_000), wall: Wall(1_800_000_000_000) });
    at(1);
    let options = options().region_bytes(2 * MIB).on_event(Arc::new(watcher)).clock(Clock::Manual(Arc::clone(&clock)));
    let store = options.open(place.path().join("data")).expect("created");
    let mut written = 0u32;
    let error = loop {
        match store.put(written.to_le_bytes(), [9; 10_000]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(error.kind() == ErrorKind::Full && written > 100, "{written}: {error}");
    assert!(value(&store, &0u32.to_le_bytes()).is_some());
    assert!(store.delete(0u32.to_le_bytes()).expect("a delete"));
    for seconds in 2..30 {
        at(seconds);
        store.put(b"short", b"v").expect("room for it");
        assert_eq!(store.put(b"long", [9; 100_000]).expect_err("no room").kind(), ErrorKind::Full);
    }
    for number in 1..written / 2 {
        assert!(store.delete(number.to_le_bytes()).expect("a delete"));
    }
    let again = (0..written / 4).all(|number| store.put(number.to_le_bytes(), [8; 10_000]).is_ok());
    assert!(again, "there is room again");
    at(40);
    let said: Vec<String> = told.iter().take(3).collect();
    assert!(said[0].contains("is open with"), "{said:?}");
    assert_eq!(
        said[1..],
        ["the store is full: new records are refused until there is room", "the store has room again"]
    );
    drop((store, options));
    assert_eq!(told.iter().count(), 1, "that it is closed");
}

#[test]
fn new_keys_beyond_the_memory_cap_are_refused_and_others_go_on() {
    let place = place::directory();
    let data = place.path().join("data");
    let cap = options().region_bytes(64 * MIB).memory_bytes(2 * MIB);
    let store = cap.open(&data).expect("created");
    let mut written = 0u64;
    let error = loop {
        // Maintenance looks ten times a second, and is to see it before the region is full, however
        // busy the machine is.
        if written.is_multiple_of(20_000) {
            thread::sleep(Duration::from_millis(120));
        }
        match store.put(written.to_le_bytes(), b"v") {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, stratakv::Error::Operation(EngineError::MemoryFull { .. })), "{error}");
    store.put(0u64.to_le_bytes(), b"w").expect("a key that is there already");
    assert!(store.delete(1u64.to_le_bytes()).expect("a delete"));
    assert_eq!(value(&store, &0u64.to_le_bytes()), Some(b"w".to_vec()));
    drop(store);
    // A running store also counts what finds its space: what an opening asks of the cap may be a
    // little less.
    refused(&cap.memory_bytes(MIB), &data, ErrorKind::Usage, &["of memory, and the cap is", "--memory"]);
    assert_eq!(
        Options::new().level(Level::ProcessCrash).open(&data).expect("with more").recovery().records,
        written - 1
    );
}

#[test]
fn opening_tells_how_far_it_is_and_how_the_last_life_ended() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options().open(&data).expect("created");
    for number in 0..20_000u32 {
        store.put(number.to_le_bytes(), [5; 100]).expect("a put");
    }
    drop(store);
    let told = Arc::new(AtomicU64::new(0));
    let telling = Arc::clone(&told);
    let watched = options().progress(Arc::new(move |progress| {
        assert!(progress.done_bytes <= progress.total_bytes);
        if progress.done_bytes == progress.total_bytes {
            telling.store(progress.total_bytes, Ordering::SeqCst);
        }
    }));
    let store = watched.open(&data).expect("opened");
    assert_eq!((store.recovery().records, store.recovery().clean), (20_000, true));
    assert!(told.load(Ordering::SeqCst) > 2 * MIB);
    drop(store);
    // As a process leaves it that is killed.
    fs::write(data.join("pmem/OPEN"), "1\n").expect("written");
    let store = options().open(&data).expect("opened");
    assert_eq!((store.recovery().records, store.recovery().clean), (20_000, false));
}

#[test]
fn check_reads_every_record() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options().open(&data).expect("created");
    for number in 0..500u32 {
        store.put(format!("key {number:04}").as_bytes(), [number as u8; 200]).expect("a put");
    }
    drop(store);
    let report = stratakv::check(&data, None).expect("checked");
    assert!(report.is_sound() && report.records == 500 && report.pages == 32 * MIB / 4096, "{report:?}");
    assert!(report.pages_free > 7000, "{report:?}");
    let mut bytes = fs::read(region(&data)).expect("read");
    let at = bytes.windows(8).position(|bytes| bytes == b"key 0123").expect("it is there");
    bytes[at + 100] ^= 0x10;
    fs::write(region(&data), &bytes).expect("written");
    let report = stratakv::check(&data, None).expect("checked");
    assert!(!report.is_sound() && report.damage.len() == 1, "{report:?}");
    let store = options().open(&data).expect("opened");
    assert_eq!(store.recovery().corrupt.len(), 1);
    assert_eq!(store.get(b"key 0123").expect_err("damaged").kind(), ErrorKind::Corrupt);
    assert_eq!(value(&store, b"key 0124"), Some(vec![124; 200]));
    assert!(OpenOptions::new().read(true).open(region(&data)).is_ok());
}
