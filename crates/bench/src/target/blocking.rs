//! The library through blocking calls.

use std::ops::Bound;

use bytes::Bytes;
use stratakv::raw::{Change, ChangeKind, Operation, PageRequest, RecordPart, Reply};
use stratakv::{CollectionId, Expect, Expiry, Key, Level, Store};

use super::{BenchError, Front, OperationOutcome, Request, Target};

pub(super) struct BlockingTarget {
    store: Store,
    collection: CollectionId,
    level: Level,
    done: Vec<(u64, OperationOutcome)>,
}

impl BlockingTarget {
    pub(super) fn new(store: Store, collection: CollectionId, level: Level) -> BlockingTarget {
        BlockingTarget { store, collection, level, done: Vec::new() }
    }
}

impl Target for BlockingTarget {
    fn submit(&mut self, tag: u64, request: Request<'_>) -> Result<(), BenchError> {
        let operation = match request {
            Request::Read(key) => get(self.collection, key)?,
            Request::Write(key, value) => put(self.collection, key, Bytes::copy_from_slice(value), self.level)?,
            Request::Scan(key, len) => scan(self.collection, key, len),
        };
        let reply = self.store.execute(operation);
        if let Reply::Failed(error) = reply {
            return Err(stratakv::Error::from(error).into());
        }
        self.done.push((tag, outcome(&reply)?));
        Ok(())
    }

    fn poll(&mut self, _: usize, done: &mut Vec<(u64, OperationOutcome)>) -> Result<(), BenchError> {
        done.append(&mut self.done);
        Ok(())
    }
}

pub(super) fn get(collection: CollectionId, key: &[u8]) -> Result<Operation, BenchError> {
    Ok(Operation::Get { key: encoded(collection, key)?, part: RecordPart::Whole })
}

pub(super) fn put(collection: CollectionId, key: &[u8], value: Bytes, level: Level) -> Result<Operation, BenchError> {
    let kind = ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER };
    let change = Change { key: encoded(collection, key)?, expect: Expect::Any, kind };
    Ok(Operation::Write { changes: vec![change], level })
}

pub(super) fn scan(collection: CollectionId, key: &[u8], len: u32) -> Operation {
    Operation::Page(
        PageRequest {
            from: Bound::Included(Key::bound(collection, key)),
            to: Bound::Excluded(Key::bound(CollectionId(collection.0 + 1), b"")),
            reverse: false,
            keys_only: false,
            items_max: len,
            bytes_max: 64 << 20,
            at: None,
        }
        .into(),
    )
}

fn encoded(collection: CollectionId, key: &[u8]) -> Result<Key, BenchError> {
    Ok(Key::new(collection, key).map_err(stratakv::Error::from)?)
}

pub(super) fn outcome(reply: &Reply) -> Result<OperationOutcome, BenchError> {
    match reply {
        Reply::Record(None) | Reply::Done { .. } => Ok(OperationOutcome::default()),
        Reply::Record(Some(record)) => {
            Ok(OperationOutcome { records: 1, front: Front::of(record.value.slices().flatten()) })
        }
        Reply::Page { items, .. } => {
            Ok(OperationOutcome { records: items.len() as u32, ..OperationOutcome::default() })
        }
        other => Err(BenchError::Wrong(format!("an unexpected answer: {other:?}"))),
    }
}
