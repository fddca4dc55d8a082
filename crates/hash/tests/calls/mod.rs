//! Operations of the contract that take more than one call, or whose answer has to be taken apart.

use std::ops::Bound;

use stratakv_base::{CollectionId, Key, Level, Now};
use stratakv_engine::{Change, Error, Item, Operation, PageRequest, Reply, Shared, SnapshotOp};
use stratakv_hash::Written;

pub fn write(hash: &impl Shared, changes: Vec<Change>, now: Now) -> Result<Written, Error> {
    match hash.execute(Operation::Write { changes, level: Level::PowerLoss }, now) {
        Reply::Done { version, existed } => Ok(Written::Done { version, existed }),
        Reply::Unmet(unmet) => Ok(Written::Unmet(unmet)),
        Reply::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

pub fn open_snapshot(hash: &impl Shared, now: Now) -> Result<u64, Error> {
    match hash.execute(Operation::Snapshot(SnapshotOp::Open), now) {
        Reply::Number { number, .. } => Ok(number),
        Reply::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

pub fn close_snapshot(hash: &impl Shared, id: u64, now: Now) -> Result<(), Error> {
    match hash.execute(Operation::Snapshot(SnapshotOp::Close(id)), now) {
        Reply::Done { .. } => Ok(()),
        Reply::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

/// All of a collection, in pages of a few.
pub fn all_of(collection: u32, at: Option<u64>, keys_only: bool) -> PageRequest {
    PageRequest {
        from: Bound::Included(Key::bound(CollectionId(collection), b"")),
        to: Bound::Excluded(Key::bound(CollectionId(collection + 1), b"")),
        reverse: false,
        keys_only,
        items_max: 37,
        bytes_max: 1 << 20,
        at,
    }
}

/// A single key, of any collection.
pub fn one(key: &Key, at: Option<u64>) -> PageRequest {
    let bound = || Bound::Included(key.clone());
    PageRequest { from: bound(), to: bound(), ..all_of(0, at, false) }
}

/// What is in a range, page by page.
pub fn items(hash: &impl Shared, mut request: PageRequest, now: Now) -> Result<Vec<Item>, Error> {
    let mut found = Vec::new();
    loop {
        let (items, next) = match hash.execute(Operation::Page(request.clone().into()), now) {
            Reply::Page { items, next } => (items, next),
            Reply::Failed(error) => return Err(error),
            other => panic!("{other:?}"),
        };
        found.extend(items);
        match next {
            Some(next) if request.reverse => request.to = next,
            Some(next) => request.from = next,
            None => return Ok(found),
        }
    }
}

/// A whole backup; `between` is called after each piece but the last.
pub fn backup(hash: &impl Shared, now: Now, mut between: impl FnMut()) -> Result<Vec<Item>, Error> {
    let cursor = match hash.execute(Operation::Backup { cursor: 0, shard: 0 }, now) {
        Reply::Number { number, .. } => number,
        Reply::Failed(error) => return Err(error),
        other => panic!("{other:?}"),
    };
    let mut found = Vec::new();
    loop {
        match hash.execute(Operation::Backup { cursor, shard: 0 }, now) {
            Reply::Page { items, next } => {
                found.extend(items);
                if next.is_none() {
                    return Ok(found);
                }
            }
            Reply::Failed(error) => return Err(error),
            other => panic!("{other:?}"),
        }
        between();
    }
}
