//! Loads: [`Loader`], many records in the order of their keys.

use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{Expiry, Key, Level};
use stratakv_engine::{ChangeKind, Error as EngineError, LoadRecord, Operation, Reply, Unmet};

use crate::collection::{Collection, put_kind};
use crate::engine::Engine;
use crate::error::Error;
use crate::routing::Inner;
use crate::store::unexpected_reply;

/// Bytes of records that a shard is given as one load: so many that what its installation costs is
/// little beside them, and a share of the shard's memory.
const CHUNK_BYTES_MAX: usize = 8 << 20;
const CHUNK_BYTES_MIN: usize = 1 << 20;
const CHUNK_SHARE: u64 = 16;
/// Fewer are put: they would be a table of their own, and two flushes.
const DIRECT_BYTES_MIN: usize = 256 << 10;
/// Bytes of puts that are begun at once.
const PUT_BYTES: usize = 4 << 20;

/// Loads records into a collection. They come in the order of the collection's keys, each key once;
/// with engine `matrix` they then go straight to where compaction would bring them in the end, if
/// nothing lies there yet: each byte is written once, where puts would write it several times. What
/// does not go that way is put. See [`Collection::load`], which is the same for records that an
/// iterator has.
///
/// ```
/// # fn main() -> Result<(), stratakv::Error> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let store = stratakv::Store::open(directory.path().join("data"))?;
/// let mut loader = store.loader();
/// for year in 1900_u32..2000 {
///     loader.add(&year.to_be_bytes(), b"a year")?;
/// }
/// assert_eq!(loader.finish()?, 100);
/// # store.close()
/// # }
/// ```
///
/// Not one step: records become visible and durable in chunks of a few MiB for each shard, and
/// after an error or a crash what came before may be there. A chunk that goes straight to its place
/// is there as a whole or not at all; one that is put may be there in part. Dropped without
/// [`Loader::finish`], it forgets what waits for its chunk to be full.
#[derive(Debug)]
pub struct Loader {
    collection: Collection,
    chunks: Chunks,
    /// The last key: as the store has it, and as it was given.
    last: Option<Key>,
    named: Vec<u8>,
}

impl Loader {
    /// Takes a record. It is there once the chunk that it belongs to is full, or with
    /// [`Loader::finish`].
    ///
    /// # Errors
    /// The key does not come after the last one ([`EngineError::Unsorted`]); as
    /// [`Collection::put`], for any record of the chunk.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.add_with(key, value, 0, Expiry::NEVER)
    }

    /// Takes a record with flags and expiry.
    ///
    /// # Errors
    /// As [`Loader::add`].
    pub fn add_with(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        flags: u32,
        expiry: Expiry,
    ) -> Result<(), Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let placed = self.collection.place(key)?;
        if self.last.as_ref().is_some_and(|last| *last >= placed) {
            let named = |key: &[u8]| Key::bound(self.collection.id(), key);
            return Err(EngineError::Unsorted(Box::new([named(&self.named), named(key)])).into());
        }
        let ChangeKind::Put { value, flags, expiry } = put_kind(Bytes::copy_from_slice(value), flags, expiry)? else {
            return Err(unexpected_reply());
        };
        self.last = Some(placed.clone());
        self.named.clear();
        self.named.extend_from_slice(key);
        self.chunks.push(LoadRecord { key: placed, value, flags, expiry })
    }

    /// Records that are there already.
    pub fn loaded(&self) -> u64 {
        self.chunks.loaded
    }

    /// Loads what is left; how many records were loaded in all. They are durable at the store's
    /// level.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn finish(mut self) -> Result<u64, Error> {
        self.chunks.flush()?;
        Ok(self.chunks.loaded)
    }
}

impl Collection {
    /// Loads records: see [`Loader`].
    pub fn loader(&self) -> Loader {
        let chunks = Chunks::new(Arc::clone(self.inner()), self.inner().level);
        Loader { collection: self.clone(), chunks, last: None, named: Vec::new() }
    }

    /// Loads records that come in the order of the collection's keys, each key once; how many.
    /// Records that exist are overwritten. Durable at the store's level when it returns; until then
    /// some may be there, and after an error, too ([`Loader`]). Where nothing lies yet between the
    /// first and the last key of a chunk (8 MiB for each shard, or less with little memory) engine
    /// `matrix` writes each byte once; writes between these keys wait for it. Other engines put the
    /// records, many at once.
    ///
    /// # Errors
    /// A key that does not come after the one before it ([`EngineError::Unsorted`]); as
    /// [`Collection::put`].
    pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, Error> {
        let mut loader = self.loader();
        for (key, value) in records {
            loader.add(key.as_ref(), value.as_ref())?;
        }
        loader.finish()
    }
}

/// Records on their way to their shards.
pub(crate) struct Chunks {
    inner: Arc<Inner>,
    level: Level,
    /// What waits for each shard, and bytes of it.
    waiting: Vec<(Vec<LoadRecord>, usize)>,
    all_bytes: usize,
    chunk_bytes: usize,
    /// They are in order, and the engine makes something of that.
    is_direct: bool,
    pub(crate) loaded: u64,
}

impl Chunks {
    pub(crate) fn new(inner: Arc<Inner>, level: Level) -> Chunks {
        let share = inner.runtime.block_bytes_min().map_or(usize::MAX, |bytes| (bytes / CHUNK_SHARE) as usize);
        Chunks {
            waiting: (0..inner.shards()).map(|_| Default::default()).collect(),
            level,
            all_bytes: 0,
            chunk_bytes: share.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
            is_direct: inner.engine == Engine::Matrix,
            loaded: 0,
            inner,
        }
    }

    /// From here on records come in no order.
    ///
    /// # Errors
    /// As [`Chunks::flush`].
    pub(crate) fn end_order(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.is_direct = false;
        Ok(())
    }

    /// Takes a record; those of a shard come in order.
    ///
    /// # Errors
    /// As [`Chunks::flush`].
    pub(crate) fn push(&mut self, record: LoadRecord) -> Result<(), Error> {
        let bytes = size_of::<LoadRecord>() + record.len_bytes() as usize;
        let (records, waiting) = &mut self.waiting[self.inner.shard_of(&record.key)];
        records.push(record);
        *waiting += bytes;
        self.all_bytes += bytes;
        let is_full = if self.is_direct { *waiting >= self.chunk_bytes } else { self.all_bytes >= PUT_BYTES };
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Loads what waits, of all shards at once: keys are spread evenly.
    ///
    /// # Errors
    /// A record cannot be written; others may be there.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let (mut loads, mut puts) = (Vec::new(), Vec::new());
        for (records, bytes) in &mut self.waiting {
            let is_direct = self.is_direct && *bytes >= DIRECT_BYTES_MIN;
            *bytes = 0;
            let records = std::mem::take(records);
            if is_direct { loads.push(Arc::from(records)) } else { puts.extend(records) }
        }
        self.all_bytes = 0;
        let load = |records: &Arc<[LoadRecord]>| Operation::Load { records: Arc::clone(records), level: self.level };
        let replies = self.inner.execute_many(loads.iter().map(load).collect());
        let mut failure = None;
        for (records, reply) in loads.into_iter().zip(replies) {
            match reply {
                Reply::Done { .. } => self.loaded += records.len() as u64,
                Reply::Unmet(Unmet::Occupied) => puts.extend(records.iter().cloned()),
                Reply::Failed(error) => failure = failure.or(Some(error.into())),
                _ => failure = failure.or_else(|| Some(unexpected_reply())),
            }
        }
        failure.map_or_else(|| self.put(&puts), Err)
    }

    fn put(&mut self, mut records: &[LoadRecord]) -> Result<(), Error> {
        while !records.is_empty() {
            let mut bytes = 0;
            let is_within = |record: &&LoadRecord| {
                bytes += size_of::<Operation>() + record.len_bytes() as usize;
                bytes < PUT_BYTES
            };
            let count = records.iter().take_while(is_within).count().max(1);
            let (now, later) = records.split_at(count);
            let put = |record: &LoadRecord| Operation::Write { changes: vec![record.to_change()], level: self.level };
            for reply in self.inner.execute_many(now.iter().map(put).collect()) {
                match reply {
                    Reply::Done { .. } => self.loaded += 1,
                    Reply::Failed(error) => return Err(error.into()),
                    _ => return Err(unexpected_reply()),
                }
            }
            records = later;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunks({} loaded, {} bytes waiting)", self.loaded, self.all_bytes)
    }
}
