//! [`Snapshot`]: a store as it was at one moment.

use std::ops::Bound;
use std::sync::Arc;

use stratakv_base::Key;
use stratakv_engine::{Operation, PageRequest, Reply, SnapshotOp};

use crate::collection::Collection;
use crate::error::Error;
use crate::record::Record;
use crate::routing::Inner;
use crate::scan::{Scan, ScanOptions};
use crate::store::{Store, unexpected_reply};

/// A store as it was when [`Store::snapshot`] was called: batches are in it whole or not at all.
/// Writers go on; records that they replace or delete keep their space until the snapshot is
/// dropped. If what is kept for snapshots takes more than a quarter of a region (with engine
/// `matrix`: of what its volumes hold, if that is more than the region has), or a put finds no room
/// for it, the oldest snapshot ends, and says so. It does not outlive the store's process.
///
/// What has expired is gone from snapshots too.
pub struct Snapshot {
    inner: Arc<Inner>,
    id: u64,
}

impl Store {
    /// A snapshot of all collections. Costs two short waits for the writes under way.
    ///
    /// # Errors
    /// The engine has none ([`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): `hash` and
    /// `matrix` have them), or 64 are open.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        match self.execute(Operation::Snapshot(SnapshotOp::Open)) {
            Reply::Number { number, .. } => Ok(Snapshot { inner: Arc::clone(self.inner()), id: number }),
            Reply::Failed(error) => Err(error.into()),
            _ => Err(unexpected_reply()),
        }
    }
}

/// The operation that reads one key of a snapshot.
pub(crate) fn get_at(key: &Key, id: u64) -> Operation {
    let bound = || Bound::Included(key.clone());
    let (items_max, bytes_max) = (1, u32::MAX);
    Operation::Page(
        PageRequest {
            from: bound(),
            to: bound(),
            reverse: false,
            keys_only: false,
            items_max,
            bytes_max,
            at: Some(id),
        }
        .into(),
    )
}

impl Snapshot {
    /// The record that a key of a collection had. (The store itself is its default collection:
    /// `snapshot.get(&store, key)`.)
    ///
    /// # Errors
    /// As [`Collection::get`]; the snapshot has ended
    /// ([`ErrorKind::Busy`](crate::ErrorKind::Busy)).
    pub fn get(&self, collection: &Collection, key: impl AsRef<[u8]>) -> Result<Option<Record>, Error> {
        let key = collection.key(key.as_ref())?;
        match self.inner.execute(get_at(&key, self.id)) {
            Reply::Page { items, .. } => Ok(items.into_iter().next().and_then(|item| item.record).map(Record::from)),
            Reply::Failed(error) => Err(error.into()),
            _ => Err(unexpected_reply()),
        }
    }

    /// A scan of a collection as it was.
    ///
    /// Its items are errors where a record cannot be read, or when the snapshot has ended.
    pub fn scan(&self, collection: &Collection, options: ScanOptions) -> Scan {
        Scan::new(collection.clone(), options.at(self.id))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // It may have ended before, or the store.
        let _ = self.inner.execute(Operation::Snapshot(SnapshotOp::Close(self.id)));
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.id)
    }
}
