//! What clients make of answers.

use std::ops::{Bound, RangeBounds};

use stratakv::raw::{EngineRecord, Operation, PageRequest, RecordPart, Reply};
use stratakv::{Key, Value};
use stratakv_engine::Item;

/// The reply with bytes of its own: a history must not keep blocks of the store.
pub(super) fn owned(reply: Reply) -> Reply {
    match reply {
        Reply::Record(record) => Reply::Record(record.map(own)),
        Reply::Page { items, next } => {
            let items = items.into_iter().map(|item| Item { record: item.record.map(own), ..item });
            Reply::Page { items: items.collect(), next }
        }
        other => other,
    }
}

fn own(record: EngineRecord) -> EngineRecord {
    EngineRecord { value: Value::Inline(record.value.to_bytes()), ..record }
}

/// A page of a scan as reads: of the keys it returned, and of those in the range it covered that it
/// did not.
///
/// # Errors
/// It is not in order, or returns keys out of its bounds.
pub(super) fn scanned(request: &PageRequest, reply: &Reply, known: &[Key]) -> Result<Vec<(Operation, Reply)>, String> {
    let Reply::Page { items, next } = reply else {
        return match reply {
            Reply::Failed(_) => Ok(Vec::new()),
            other => Err(format!("a scan was answered {other:?}")),
        };
    };
    let keys: Vec<&Key> = items.iter().map(|item| &item.key).collect();
    let in_order = keys.is_sorted_by(|a, b| if request.reverse { a > b } else { a < b });
    let bounds = (request.from.clone(), request.to.clone());
    if !in_order || keys.len() > request.items_max as usize || !keys.iter().all(|key| bounds.contains(*key)) {
        return Err(format!("a page of {request:?} is {keys:?}"));
    }
    let covered = match next.clone() {
        None => bounds,
        Some(next) if request.reverse => (inverse(next), bounds.1),
        Some(next) => (bounds.0, inverse(next)),
    };
    let get = |key: &Key| Operation::Get { key: key.clone(), part: RecordPart::Whole };
    let found = items.iter().filter(|item| item.record.is_some());
    let mut reads: Vec<_> = found.map(|item| (get(&item.key), Reply::Record(item.record.clone()))).collect();
    let missing = known.iter().filter(|key| covered.contains(*key) && !keys.contains(key));
    reads.extend(missing.map(|key| (get(key), Reply::Record(None))));
    Ok(reads)
}

/// Where the next page starts is where this one ends.
fn inverse(bound: Bound<Key>) -> Bound<Key> {
    match bound {
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
