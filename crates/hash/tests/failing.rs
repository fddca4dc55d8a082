//! Persistent memory that cannot be written back: once is for good.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytes::Bytes;
use stratakv_base::{CollectionId, Key, Level, Mono, Now, Wall};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Operation, Reply, Shared};
use stratakv_hash::{Hash, HashOptions};
use stratakv_pmem::{Pmem, PmemError};
use stratakv_sim::pmem::Memory;

/// Memory whose next sync or fence fails if told to.
struct Failing {
    memory: Memory,
    fails: AtomicBool,
    syncs: AtomicU32,
}

impl Failing {
    fn outcome(&self) -> Result<(), PmemError> {
        if self.fails.swap(false, Ordering::Relaxed) { Err(PmemError::SyncFailed { errno: 5 }) } else { Ok(()) }
    }
}

impl Pmem for Failing {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.memory.load(offset, into)
    }
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.memory.load_u64(offset)
    }
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.memory.store(offset, bytes)
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.memory.store_u64(offset, value)
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.memory.store_nt(offset, bytes)
    }
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.memory.flush(offset, len_bytes)
    }
    fn fence(&self) -> Result<(), PmemError> {
        self.outcome()?;
        self.memory.fence()
    }
    fn sync(&self) -> Result<(), PmemError> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.fence()
    }
}

const NOW: Now = Now { mono: Mono(1), wall: Wall(1000) };

fn created() -> Hash<Failing> {
    let (fails, syncs) = (AtomicBool::new(false), AtomicU32::new(0));
    let pmem = Failing { memory: Memory::new(4 << 20, 3), fails, syncs };
    Hash::create(pmem, HashOptions { segment_bytes: 64 << 10, ..HashOptions::default() }).expect("created")
}

fn put(hash: &Hash<Failing>, name: &str) -> Result<(), Error> {
    let key = Key::new(CollectionId(0), name.as_bytes()).expect("a key");
    let expiry = stratakv_base::Expiry::NEVER;
    hash.put(&key, b"v", (0, expiry), Expect::Any, Wall(1000)).map(|_| ())
}

/// The second sync was answered `Ok`, puts went on, and the end said nothing.
#[test]
fn a_failed_sync_is_for_good() {
    let hash = created();
    put(&hash, "before").expect("a put");
    assert!(matches!(hash.execute(Operation::Sync, NOW), Reply::Done { .. }));
    assert_eq!(hash.failure(), None);
    hash.pmem().fails.store(true, Ordering::Relaxed);
    let why = Error::Pmem(PmemError::SyncFailed { errno: 5 });
    assert!(matches!(hash.execute(Operation::Sync, NOW), Reply::Failed(error) if error == why));
    assert!(matches!(hash.execute(Operation::Sync, NOW), Reply::Failed(_)), "the second one too");
    assert!(put(&hash, "after").is_err_and(|error| error.to_string().contains("open it again")));
    assert_eq!(hash.failure(), Some(why.clone()));
    hash.close();
    assert_eq!(hash.failure(), Some(why), "after the end too");
    assert_eq!(hash.pmem().syncs.load(Ordering::Relaxed), 3, "two that were asked for, and the end's");
}

#[test]
fn a_failed_last_sync_is_told() {
    let hash = created();
    put(&hash, "before").expect("a put");
    hash.pmem().fails.store(true, Ordering::Relaxed);
    hash.close();
    assert_eq!(hash.failure(), Some(Error::Pmem(PmemError::SyncFailed { errno: 5 })));
}

#[test]
fn a_failed_fence_is_for_good() {
    let hash = created();
    put(&hash, "key").expect("a put");
    hash.pmem().fails.store(true, Ordering::Relaxed);
    let key = Key::new(CollectionId(0), b"key").expect("a key");
    let kind = ChangeKind::Put { value: Bytes::from_static(b"w"), flags: 0, expiry: stratakv_base::Expiry::NEVER };
    let changes = vec![Change { key, expect: Expect::Any, kind }];
    let write = Operation::Write { changes, level: Level::PowerLoss };
    assert!(matches!(hash.execute(write, NOW), Reply::Failed(_)));
    assert!(hash.failure().is_some() && put(&hash, "other").is_err());
    assert!(matches!(hash.execute(Operation::Sync, NOW), Reply::Failed(_)));
}
