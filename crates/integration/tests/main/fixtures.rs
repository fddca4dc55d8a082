//! Stores that older programs wrote, opened by today's: every record is there, `check` finds them
//! sound, they take writes and open again. `cargo xtask fixtures` made them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use stratakv::{Collection, CollectionId, End, Error, Expiry, Options, Record, ScanOptions, Store, WriteBatch};
use stratakv_integration::place;
use stratakv_integration::program::{self, Serve};
use stratakv_integration::resp::{RespConnection, RespReply};

use writer::{Listed, Listing, value};

#[path = "../fixtures/writer.rs"]
mod writer;

/// Each program with the kinds of stores that it wrote, and whether it served Redis clients.
const PROGRAMS: [(&str, &[&str], bool); 2] = [
    ("0.1.0", &["in_place", "packed", "two_directories", "hash", "matrix", "pmem_levels", "tier"], true),
    ("first-formats", &["in_place", "packed", "two_directories", "hash", "matrix", "tier"], false),
];
/// How stores were left.
const ENDS: [&str; 2] = ["closed", "killed"];

/// The folder of all stores.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A store that was packed: the program that wrote it, its kind, and how that program ended.
struct Fixture {
    folder: PathBuf,
    kind: String,
    end: String,
}

impl Fixture {
    /// Those of these kinds, of every program.
    ///
    /// # Panics
    /// The stores that are there, of whatever kind, are not those that are expected.
    fn of(kinds: &[&str]) -> Vec<Fixture> {
        let all = Fixture::all();
        let found: BTreeSet<String> = all.iter().map(Fixture::name).collect();
        let of_kind = |program: &str, kind: &str| ENDS.map(|end| format!("{kind}-{end} of {program}"));
        let of_program = |(program, kinds, _): &(&str, &[&str], bool)| {
            kinds.iter().flat_map(|kind| of_kind(program, kind)).collect::<Vec<_>>()
        };
        let expected: BTreeSet<String> = PROGRAMS.iter().flat_map(of_program).collect();
        assert_eq!(found, expected, "stores are missing, or nobody expects them");
        for (program, _, has_redis) in PROGRAMS {
            assert_eq!(folder().join(program).join("redis.txt").is_file(), has_redis, "redis.txt of {program}");
        }
        all.into_iter().filter(|fixture| kinds.contains(&fixture.kind.as_str())).collect()
    }

    /// Whatever there is.
    fn all() -> Vec<Fixture> {
        let programs = std::fs::read_dir(folder()).expect("the folder of stores");
        let mut fixtures = Vec::new();
        for program in programs.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()) {
            for archive in std::fs::read_dir(&program).expect("a folder of stores") {
                let name = archive.expect("an entry").file_name().into_string().expect("a name");
                if let Some((kind, end)) = name.strip_suffix(".tar.gz").and_then(|name| name.rsplit_once('-')) {
                    let (kind, end) = (kind.to_owned(), end.to_owned());
                    fixtures.push(Fixture { folder: program.clone(), kind, end });
                }
            }
        }
        fixtures
    }

    fn name(&self) -> String {
        format!("{}-{} of {}", self.kind, self.end, self.folder.file_name().unwrap_or_default().display())
    }

    /// Unpacks it below `place`.
    fn unpack(&self, place: &Path) {
        let archive = self.folder.join(format!("{}-{}.tar.gz", self.kind, self.end));
        let status = Command::new("tar").arg("-xzSf").arg(archive).arg("-C").arg(place).status();
        assert!(status.expect("tar can be started").success(), "{}", self.name());
    }

    fn listing(&self) -> Listing {
        let list = self.folder.join(format!("{}.list", self.kind));
        Listing::decode(&std::fs::read_to_string(list).expect("the list beside the stores"))
    }

    /// Records of the list that the program which wrote it found again itself.
    fn found_by_its_program(&self) -> usize {
        let about = std::fs::read_to_string(self.folder.join("about.toml")).expect("about.toml");
        let section = format!("[{}-{}]", self.kind, self.end);
        let lines = about.lines().skip_while(|line| *line != section);
        let found = lines.skip(1).find_map(|line| line.strip_prefix("records_found = "));
        found.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("about.toml says nothing of {section}"))
    }

    /// Opens what was unpacked, as it is: its engine, shards and level are its own.
    fn open(&self, data: &Path) -> Store {
        let options = Options::new().create(false).memory_bytes(64 << 20);
        let options = match self.kind.as_str() {
            "two_directories" => options.data_directories([data.with_extension("second")]),
            _ => options,
        };
        options.open(data).unwrap_or_else(|error| panic!("{} does not open: {error}", self.name()))
    }

    /// The options of a command that say where it is.
    fn arguments(&self, data: &Path) -> Vec<String> {
        let mut paths = vec![data.to_owned()];
        if self.kind == "two_directories" {
            paths.push(data.with_extension("second"));
        }
        paths.iter().flat_map(|path| ["--data".to_owned(), path.display().to_string()]).collect()
    }

    fn check(&self, data: &Path) {
        let mut arguments = vec!["check".to_owned()];
        arguments.extend(self.arguments(data));
        let output = program::run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}: check: {}", self.name(), program::said(&output));
    }
}

/// What a record is, as lists say it.
fn listed(record: &Record) -> Listed {
    Listed { flags: record.flags, expiry: record.expiry.0, value: record.to_bytes().to_vec() }
}

/// A collection by the name that lists have for it.
fn named(store: &Store, name: &str) -> Collection {
    match name {
        "-" => Collection::clone(store),
        _ => store.collection(name).unwrap_or_else(|error| panic!("collection {name}: {error}")),
    }
}

/// What differs: that of a store from what is listed, in the collections that are.
fn difference(store: &Store, listing: &Listing) -> Result<(), String> {
    let said = |error: Error| error.to_string();
    let names: BTreeSet<&str> = listing.records.keys().map(|(name, _)| name.as_str()).collect();
    let opened: BTreeMap<&str, Collection> = names.iter().map(|name| (*name, named(store, name))).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for ((name, key), expected) in &listing.records {
        let at = || format!("{name}: `{}`", key.escape_ascii());
        let record = opened[name.as_str()].get(key).map_err(said)?.ok_or_else(|| format!("{} is gone", at()))?;
        if listed(&record) != *expected {
            return Err(format!("{} is another record: {record:?}", at()));
        }
        *counts.entry(name).or_default() += 1;
    }
    for (name, key) in &listing.absent {
        if named(store, name).get(key).map_err(said)?.is_some() {
            return Err(format!("{name}: `{}` was deleted or has expired", key.escape_ascii()));
        }
    }
    let found = count(store, &opened).map_err(said)?;
    if found != counts {
        return Err(format!("records of each collection: {found:?}, not {counts:?}"));
    }
    difference_of_lists(store, listing)
}

/// The same of lists, of orders, and of the names that there are.
fn difference_of_lists(store: &Store, listing: &Listing) -> Result<(), String> {
    let said = |error: Error| error.to_string();
    for (name, elements) in &listing.lists {
        let list = store.existing_list(name).map_err(said)?.ok_or_else(|| format!("no list {name}"))?;
        let found = list.iter().map(|element| element.map(|element| element.value.to_vec()));
        let found = found.collect::<Result<Vec<_>, Error>>().map_err(said)?;
        if found != *elements {
            return Err(format!("list {name} has {} elements, not {}", found.len(), elements.len()));
        }
    }
    for (name, sorted) in &listing.orders {
        let scan = named(store, name).scan(ScanOptions::all().keys_only());
        let found = scan.map(|item| item.map(|(key, _)| key.to_vec())).collect::<Result<Vec<_>, Error>>();
        if found.map_err(said)? != *sorted {
            return Err(format!("the keys of {name} are in another order"));
        }
    }
    let names = listing.records.keys().map(|(name, _)| name.as_str()).filter(|name| *name != "-");
    let names: BTreeSet<&str> = names.chain(listing.lists.keys().map(String::as_str)).collect();
    let found = store.collections().map_err(said)?;
    if found.iter().map(String::as_str).collect::<BTreeSet<_>>() != names {
        return Err(format!("there are the names {found:?}, not {names:?}"));
    }
    Ok(())
}

fn compare(store: &Store, listing: &Listing, of: &str) {
    difference(store, listing).unwrap_or_else(|why| panic!("{of}: {why}"));
}

/// Counts the records of each collection, by a walk over all that lies there. Structures of Redis
/// clients, which other lists have, are passed over.
fn count<'n>(store: &Store, opened: &BTreeMap<&'n str, Collection>) -> Result<BTreeMap<&'n str, usize>, Error> {
    let ids: BTreeMap<CollectionId, &str> = opened.iter().map(|(name, collection)| (collection.id(), *name)).collect();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    store.for_each(|id, key, _| {
        if let Some(name) = ids.get(&id).filter(|name| **name != "-" || !is_of_redis(key)) {
            *found.entry(name).or_default() += 1;
        }
        Ok::<(), Error>(())
    })?;
    Ok(found)
}

/// Keys of `redis.txt`, none of which the writer has.
fn is_of_redis(key: &[u8]) -> bool {
    let names: [&[u8]; 6] = [b"string", b"lasting", b"hash", b"list", b"set", b"sorted"];
    names.contains(&key) || key.starts_with(b"long:")
}

/// Changes a store, and the list with it.
fn change(store: &Store, listing: &mut Listing) {
    let keys: Vec<Vec<u8>> =
        listing.records.keys().filter(|(name, _)| name == "-").map(|(_, key)| key.clone()).collect();
    let mut set = |key: &[u8], value: Vec<u8>| {
        listing.absent.retain(|(name, gone)| name != "-" || gone != key);
        listing.records.insert(("-".into(), key.to_vec()), Listed { flags: 0, expiry: 0, value });
    };
    for (n, key) in keys.iter().enumerate().filter(|(n, _)| n % 7 == 0) {
        let value = value(n as u32, [10, 5000, 100_000][n % 3]);
        store.put(key, &value).expect("a put over an old record");
        set(key, value);
    }
    store.put("new", "of today").expect("a put");
    set(b"new", b"of today".to_vec());
    for key in keys.iter().skip(3).step_by(7) {
        assert!(store.delete(key).expect("a delete of an old record"));
        listing.records.remove(&("-".to_owned(), key.clone()));
        listing.absent.push(("-".into(), key.clone()));
    }
    if listing.lists.is_empty() {
        return;
    }
    let (users, queue) = (named(store, "users"), store.list("queue").expect("a list"));
    let mut batch = WriteBatch::new();
    batch.put_in(&users, "new", "user").put("in a batch", "1").push(&queue, End::Back, "last");
    store.write(batch).expect("a batch");
    listing.absent.retain(|(_, gone)| gone != b"in a batch");
    let record = |value: &[u8]| Listed { flags: 0, expiry: Expiry::NEVER.0, value: value.to_vec() };
    listing.records.insert(("users".into(), b"new".to_vec()), record(b"user"));
    listing.records.insert(("-".into(), b"in a batch".to_vec()), record(b"1"));
    listing.lists.get_mut("queue").expect("listed").push(b"last".to_vec());
}

/// Opens a copy of each store of these kinds, compares, checks, writes, and opens it again.
fn open_all(kinds: &[&str]) {
    for fixture in Fixture::of(kinds) {
        let (place, of) = (place::directory(), fixture.name());
        fixture.unpack(place.path());
        let data = place.path().join("data");
        let mut listing = fixture.listing();
        fixture.check(&data);
        ask_redis(&fixture, &data);
        for round in 0..3 {
            let store = fixture.open(&data);
            let recovery = store.recovery();
            assert!(recovery.corrupt.is_empty() && recovery.lost_unknown == 0, "{of}: {recovery:?}");
            compare(&store, &listing, &format!("{of}, opening {round}"));
            change(&store, &mut listing);
            compare(&store, &listing, &format!("{of}, changed {round}"));
            store.close().expect("closed");
        }
        fixture.check(&data);
        ask_redis(&fixture, &data);
    }
}

/// What Redis clients find, of programs that served them.
fn ask_redis(fixture: &Fixture, data: &Path) {
    let commands = fixture.folder.join("redis.txt");
    if !commands.is_file() {
        return;
    }
    let (text, of) = (std::fs::read_to_string(&commands).expect("commands"), fixture.name());
    let address = program::free_address().expect("an address").to_string();
    let further: Vec<String> = fixture.arguments(data).into_iter().skip(2).collect();
    let further: Vec<&str> = further.iter().map(String::as_str).collect();
    let serve = Serve::on(data).options(&["--memory", "64M", "--threads", "1", "--resp", &address]).options(&further);
    let served = serve.start();
    let mut client = RespConnection::connect(address.parse().expect("an address")).expect("a connection");
    for line in text.lines().filter_map(|line| line.strip_prefix("ask ")) {
        let (command, expected) = line.split_once(" => ").expect("ask COMMAND => REPLY");
        client.send(&[command.to_owned()]).expect("sent");
        assert_eq!(spelled(&client.reply().expect("a reply")), expected, "{of}: {command}\n{}", served.said());
    }
    assert!(served.stop().success(), "{of}: {}", serve.said());
}

/// A reply as `redis.txt` spells it.
fn spelled(reply: &RespReply) -> String {
    match reply {
        RespReply::Simple(text) | RespReply::Error(text) => text.clone(),
        RespReply::Integer(number) => number.to_string(),
        RespReply::Bulk(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        RespReply::Bulk(None) | RespReply::Array(None) => "(nil)".into(),
        RespReply::Array(Some(replies)) => replies.iter().map(spelled).collect::<Vec<_>>().join(", "),
    }
}

#[test]
fn stores_of_engine_slab_open() {
    open_all(&["in_place", "packed", "two_directories"]);
}

#[test]
fn stores_of_engine_hash_open() {
    open_all(&["hash"]);
}

#[test]
fn stores_of_engine_matrix_open() {
    open_all(&["matrix", "pmem_levels"]);
}

/// A cache may have lost a record, and answers no other one. One that was closed has what the
/// program that wrote it found again.
#[test]
fn caches_open_and_answer_nothing_wrong() {
    for fixture in Fixture::of(&["tier"]) {
        let (place, of) = (place::directory(), fixture.name());
        fixture.unpack(place.path());
        let data = place.path().join("data");
        let listing = fixture.listing();
        fixture.check(&data);
        for round in 0..2 {
            let store = fixture.open(&data);
            let mut found = 0;
            for ((_, key), expected) in &listing.records {
                if let Some(record) = store.get(key).expect("a get") {
                    assert!(listed(&record) == *expected, "{of}: `{}` is another record", key.escape_ascii());
                    found += 1;
                }
            }
            for (_, key) in &listing.absent {
                assert!(store.get(key).expect("a get").is_none(), "{of}: `{}` is gone", key.escape_ascii());
            }
            assert!(found >= fixture.found_by_its_program(), "{of}, opening {round}: {found} records are left");
            store.put(format!("new {round}"), "of today").expect("a put");
            store.close().expect("closed");
        }
        let store = fixture.open(&data);
        assert!(store.get("new 0").expect("a get").is_some() && store.get("new 1").expect("a get").is_some(), "{of}");
    }
}

/// The list that lies beside the stores is what the writer writes, and the test would see if a
/// record were another one.
#[test]
fn the_writer_writes_what_it_lists() {
    for kind in writer::KINDS.into_iter().filter(|kind| *kind != "tier") {
        let place = place::directory();
        let data = place.path().join("data");
        let store = writer::options(kind, &data).create_new(true).open(&data).expect("a new store");
        let listing = writer::fill(&store, kind).expect("written");
        assert_eq!(Listing::decode(&listing.encode()), listing, "{kind}: the list is read as it was written");
        compare(&store, &listing, kind);
        store.put("one", "more").expect("a put");
        let told = difference(&store, &listing).expect_err("a record that is not listed");
        assert!(told.starts_with("records of each collection"), "{kind}: {told}");
        store.close().expect("closed");
    }
}
