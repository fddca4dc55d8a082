//! The same operation again and again, for those who count what one takes: `cargo xtask bench-gate`
//! runs it under valgrind.
//!
//! `operations PATH DIR load`, then `operations PATH DIR run N`. One thread, one shard, blocking
//! I/O, keys and values from a fixed seed: two runs do the same work. It prints nothing and checks
//! every answer.

use std::ops::Bound;
use std::path::Path;
use std::time::{Duration, Instant};

use stratakv::raw::{Change, ChangeKind, Operation, PageRequest, RecordPart, Reply};
use stratakv::{
    Collection, CollectionId, Engine, Expect, Expiry, IoBackend, Key, Level, Options, Placement, Session, Store,
    WriteBatch,
};
use stratakv_base::random::Random;

type Failure = Box<dyn std::error::Error>;

/// Records of a scan.
const SCAN: u32 = 50;
/// Puts of a batch.
const BATCH: usize = 16;
/// Operations of a session in flight.
const IN_FLIGHT: usize = 16;
const USAGE: &str = "usage: operations PATH DIR load | operations PATH DIR run N";

/// What is done, and to what store.
struct Work {
    name: &'static str,
    engine: Engine,
    placement: Placement,
    records: u64,
    value_bytes: usize,
    memory_bytes: u64,
    operation: Single,
    /// Each record is read once before.
    is_warm: bool,
}

/// One operation of a [`Work`].
#[derive(Clone, Copy)]
enum Single {
    Get,
    Put,
    Scan,
    Batch,
    Push,
    SessionGet,
    SessionPut,
}

const fn work(name: &'static str, engine: Engine, operation: Single) -> Work {
    let (records, value_bytes, memory_bytes) = (2_000, 1024, 64 << 20);
    Work { name, engine, placement: Placement::InPlace, records, value_bytes, memory_bytes, operation, is_warm: true }
}

impl Work {
    const fn packed(self) -> Work {
        Work { placement: Placement::Packed, ..self }
    }

    /// Most records are on the disk only.
    const fn cold(self) -> Work {
        Work { records: 24_000, memory_bytes: 12 << 20, is_warm: false, ..self }
    }

    /// Values as short as those that engine `hash` is for.
    const fn short(self) -> Work {
        Work { value_bytes: 128, ..self }
    }
}

const ALL: &[Work] = &[
    work("in_place-get", Engine::Slab, Single::Get),
    work("in_place-get-cold", Engine::Slab, Single::SessionGet).cold(),
    work("in_place-put", Engine::Slab, Single::Put),
    work("in_place-scan", Engine::Slab, Single::Scan),
    work("packed-get", Engine::Slab, Single::Get).packed(),
    work("packed-put", Engine::Slab, Single::SessionPut).packed(),
    work("packed-scan", Engine::Slab, Single::Scan).packed(),
    work("packed-batch", Engine::Slab, Single::Batch).packed(),
    work("hash-get", Engine::Hash, Single::Get).short(),
    work("hash-put", Engine::Hash, Single::Put).short(),
    work("hash-scan", Engine::Hash, Single::Scan).short(),
    work("hash-push", Engine::Hash, Single::Push).short(),
    work("matrix-get", Engine::Matrix, Single::Get),
    work("matrix-put", Engine::Matrix, Single::Put),
    work("matrix-scan", Engine::Matrix, Single::Scan),
];

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [name, directory, rest @ ..] = &words[..] else { return Err(USAGE.into()) };
    let work = ALL.iter().find(|work| work.name == *name).ok_or_else(|| format!("there is no path `{name}`"))?;
    let store = open(work, Path::new(directory))?;
    // Collections of engine `hash` have an order; its default one has none.
    let records = match work.engine {
        Engine::Hash if matches!(work.operation, Single::Scan) => store.collection("sorted")?,
        _ => Collection::clone(&store),
    };
    // Threads share out the opening of a store of engine `hash`, differently each time: it is
    // opened empty, and loaded by the run itself.
    let is_loaded_by_run = matches!(work.engine, Engine::Hash);
    let load = || (0..work.records).try_for_each(|number| put(&records, number, work));
    match rest {
        ["load"] if is_loaded_by_run => {}
        ["load"] => {
            load()?;
            settle(&store, &records, work)?;
        }
        ["run", count] => {
            if is_loaded_by_run {
                load()?;
            }
            if work.is_warm {
                (0..work.records).try_for_each(|number| get(&records, number, work))?;
            }
            run(&store, &records, work, count.parse()?)?;
        }
        _ => return Err(USAGE.into()),
    }
    Ok(store.close()?)
}

fn open(work: &Work, directory: &Path) -> Result<Store, Failure> {
    let options = Options::new().engine(work.engine).shards(1).cores(1).io(IoBackend::Blocking);
    let options = options.level(Level::ProcessCrash).memory_bytes(work.memory_bytes);
    let options = match work.engine {
        Engine::Slab => options.placement(work.placement),
        Engine::Hash | Engine::Matrix => options.region_bytes(64 << 20),
        _ => options,
    };
    Ok(options.open(directory)?)
}

/// The records of `matrix` fill a memtable and begin another. Whether the full one is a row yet
/// when the store is closed is up to time, and what reads take depends on it. So records are read
/// until it is.
fn settle(store: &Store, records: &Collection, work: &Work) -> Result<(), Failure> {
    let has_row = || store.stats().iter().any(|one| one.name == "container_elements" && one.value > 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    while matches!(work.engine, Engine::Matrix) && !has_row() {
        if Instant::now() > deadline {
            return Err("the memtable that is full has not become a row".into());
        }
        get(records, 0, work)?;
    }
    Ok(())
}

fn key(number: u64) -> [u8; 24] {
    let mut key = *b"user00000000000000000000";
    for (place, digit) in key.iter_mut().rev().zip(0..20) {
        *place = b'0' + (number / 10_u64.pow(digit) % 10) as u8;
    }
    key
}

/// Bytes that do not compress; the first eight tell whose they are.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    Random::new(number).fill(&mut value);
    value
}

fn put(records: &Collection, number: u64, work: &Work) -> Result<(), Failure> {
    records.put(key(number), value(number, work.value_bytes))?;
    Ok(())
}

fn get(records: &Collection, number: u64, work: &Work) -> Result<(), Failure> {
    match records.get(key(number))? {
        Some(record) if record.len() == work.value_bytes => Ok(()),
        other => Err(format!("not record {number}: {other:?}").into()),
    }
}

fn run(store: &Store, records: &Collection, work: &Work, count: usize) -> Result<(), Failure> {
    let mut random = Random::new(1);
    // The bytes are made once: what making them takes is none of the store's.
    let bytes = value(0, work.value_bytes);
    let mut draw = move || random.below(work.records);
    match work.operation {
        Single::Get => (0..count).try_for_each(|_| get(records, draw(), work)),
        Single::Put => (0..count).try_for_each(|_| Ok(records.put(key(draw()), &bytes).map(|_| ())?)),
        Single::Scan => (0..count).try_for_each(|_| scan(store, records, &key(draw()))),
        Single::Batch => (0..count).try_for_each(|_| {
            let mut batch = WriteBatch::new();
            (0..BATCH).for_each(|_| _ = batch.put(key(draw()), &bytes));
            store.write(batch)?;
            Ok(())
        }),
        Single::Push => {
            let list = store.list("list")?;
            (0..count).try_for_each(|_| Ok(list.push_back(&bytes).map(|_| ())?))
        }
        Single::SessionGet => session(store, count, || {
            Ok(Operation::Get { key: Key::new(CollectionId(0), &key(draw()))?, part: RecordPart::Whole })
        }),
        Single::SessionPut => session(store, count, || {
            let kind = ChangeKind::Put { value: bytes.clone().into(), flags: 0, expiry: Expiry::NEVER };
            let key = Key::new(CollectionId(0), &key(draw()))?;
            let changes = vec![Change { key, expect: Expect::Any, kind }];
            Ok(Operation::Write { changes, level: Level::ProcessCrash })
        }),
    }
}

/// The next records from a key on, as YCSB's E asks for them.
fn scan(store: &Store, records: &Collection, from: &[u8]) -> Result<(), Failure> {
    let (from, to) = (Key::bound(records.id(), from), Key::bound(CollectionId(records.id().0 + 1), b""));
    let (from, to) = (Bound::Included(from), Bound::Excluded(to));
    let (items_max, bytes_max) = (SCAN, 64 << 20);
    let page = PageRequest { from, to, reverse: false, keys_only: false, items_max, bytes_max, at: None };
    match store.execute(Operation::Page(page.into())) {
        Reply::Page { .. } => Ok(()),
        other => Err(format!("not a page: {other:?}").into()),
    }
}

/// As many operations, always as many of them in flight.
fn session(store: &Store, count: usize, mut next: impl FnMut() -> Result<Operation, Failure>) -> Result<(), Failure> {
    let mut session: Session = store.session()?;
    let (mut begun, mut ended) = (0, 0);
    while ended < count {
        while begun < count && session.in_flight() < IN_FLIGHT {
            session.submit(next()?);
            begun += 1;
        }
        for (_, reply) in session.poll(1)? {
            match reply {
                Reply::Done { .. } | Reply::Record(Some(_)) => ended += 1,
                other => return Err(format!("not an answer to this: {other:?}").into()),
            }
        }
    }
    Ok(())
}
