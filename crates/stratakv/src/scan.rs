//! Ordered scans over all shards.
//!
//! As in KVell (section 5.5): the keys are taken from every shard's index first and merged, then each record is read once, so a
//! scan of n items over s shards costs n reads, not n·s. Not a snapshot: each key's latest value when its record is read.

use std::collections::VecDeque;
use std::ops::Bound;

use bytes::Bytes;
use stratakv_base::{CollectionId, Key};
use stratakv_engine::{Error as EngineError, Item, Operation, PageRequest, RecordPart, Reply};

use crate::collection::Collection;
use crate::error::Error;
use crate::record::Record;

/// Keys asked from each shard at a time, and records read at a time: bounds a scan's memory.
const BATCH: u32 = 128;

/// What to scan, and how.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    from: Bound<Bytes>,
    to: Bound<Bytes>,
    reverse: bool,
    keys_only: bool,
}

impl ScanOptions {
    /// Every key.
    pub fn all() -> ScanOptions {
        ScanOptions::prefix(b"")
    }

    /// Keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> ScanOptions {
        let to = successor(prefix).map_or(Bound::Unbounded, |end| Bound::Excluded(end.into()));
        let from = Bound::Included(Bytes::copy_from_slice(prefix));
        ScanOptions { from, to, reverse: false, keys_only: false }
    }

    /// Keys between two bounds.
    pub fn range(from: Bound<&[u8]>, to: Bound<&[u8]>) -> ScanOptions {
        let (from, to) = (from.map(Bytes::copy_from_slice), to.map(Bytes::copy_from_slice));
        ScanOptions { from, to, reverse: false, keys_only: false }
    }

    /// From the upper bound downwards.
    #[must_use]
    pub fn reverse(mut self) -> ScanOptions {
        self.reverse = true;
        self
    }

    /// Keys only: costs no I/O; the records come back empty.
    #[must_use]
    pub fn keys_only(mut self) -> ScanOptions {
        self.keys_only = true;
        self
    }

    /// As bounds within a collection.
    pub(crate) fn bounds(&self, collection: CollectionId) -> (Bound<Key>, Bound<Key>) {
        let bound = |bound: &Bound<Bytes>, open: Bound<Key>| match bound {
            Bound::Unbounded => open,
            Bound::Included(user) => Bound::Included(Key::bound(collection, user)),
            Bound::Excluded(user) => Bound::Excluded(Key::bound(collection, user)),
        };
        let start = Bound::Included(Key::bound(collection, b""));
        (bound(&self.from, start), bound(&self.to, end_of(collection)))
    }
}

/// The first key after every key of `collection`: the next collection's start, or no bound.
fn end_of(collection: CollectionId) -> Bound<Key> {
    match collection.0.checked_add(1) {
        Some(next) => Bound::Excluded(Key::bound(CollectionId(next), b"")),
        None => Bound::Unbounded,
    }
}

/// The smallest byte string above every string that begins with `prefix`; `None` if there is none.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Merges one page of keys from each shard: the first `items_max` in order, and where the scan goes on.
///
/// A key may be given out only if no shard could still have a smaller one: beyond the last key of a shard whose page did not reach
/// its end, nothing is known.
pub(crate) fn merge_keys(
    pages: Vec<(Vec<Item>, Option<Bound<Key>>)>,
    reverse: bool,
    items_max: usize,
) -> (Vec<Key>, Option<Bound<Key>>) {
    let before = |a: &Key, b: &Key| if reverse { a > b } else { a < b };
    let mut horizon: Option<Key> = None;
    let mut keys: Vec<Key> = Vec::new();
    for (items, next) in pages {
        if let (Some(last), true) = (items.last(), next.is_some())
            && horizon.as_ref().is_none_or(|horizon| before(&last.key, horizon))
        {
            horizon = Some(last.key.clone());
        }
        keys.extend(items.into_iter().map(|item| item.key));
    }
    if let Some(horizon) = &horizon {
        keys.retain(|key| !before(horizon, key));
    }
    keys.sort_unstable();
    if reverse {
        keys.reverse();
    }
    let more = keys.len() > items_max || horizon.is_some();
    keys.truncate(items_max);
    let next = keys.last().filter(|_| more).map(|last| Bound::Excluded(last.clone()));
    (keys, next)
}

/// A running scan: an iterator of keys and records, in order. Memory is bounded by one batch. A record that cannot be read is an error in
/// its place; the scan goes on after it.
pub struct Scan {
    collection: Collection,
    /// What is left to scan.
    request: PageRequest,
    keys_only: bool,
    ready: VecDeque<Result<(Bytes, Record), Error>>,
    ended: bool,
}

impl Scan {
    pub(crate) fn new(collection: Collection, options: ScanOptions) -> Scan {
        let (from, to) = options.bounds(collection.id());
        let ScanOptions { reverse, keys_only, .. } = options;
        let request = PageRequest { from, to, reverse, keys_only: true, items_max: 16, bytes_max: 1 << 20, at: None };
        Scan { collection, request, keys_only, ready: VecDeque::new(), ended: false }
    }

    fn fill(&mut self) -> Result<(), Error> {
        let (keys, next) = self.collection.inner().page_of_keys(&self.request)?;
        // Small at first, so that a short scan reads little.
        self.request.items_max = (self.request.items_max * 2).min(BATCH);
        match next {
            Some(next) if self.request.reverse => self.request.to = next,
            Some(next) => self.request.from = next,
            None => self.ended = true,
        }
        if self.keys_only {
            self.ready.extend(keys.iter().map(|key| Ok((Bytes::copy_from_slice(key.user()), Record::empty()))));
            return Ok(());
        }
        let gets = keys.iter().map(|key| Operation::Get { key: key.clone(), part: RecordPart::Whole });
        let replies = self.collection.inner().execute_many(gets.collect());
        for (key, reply) in keys.iter().zip(replies) {
            match reply {
                Reply::Record(Some(record)) => {
                    self.ready.push_back(Ok((Bytes::copy_from_slice(key.user()), record.into())));
                }
                // Deleted since the index was read: as if the scan had come later.
                Reply::Record(None) => {}
                Reply::Failed(error) => self.ready.push_back(Err(error.into())),
                _ => {
                    self.ready.push_back(Err(EngineError::Unknown("the engine gave an answer of another kind").into()))
                }
            }
        }
        Ok(())
    }
}

impl Iterator for Scan {
    type Item = Result<(Bytes, Record), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.ended {
            if let Err(error) = self.fill() {
                // The keys themselves cannot be had: there is nowhere to go on from.
                self.ended = true;
                return Some(Err(error));
            }
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(user: u8) -> Key {
        Key::bound(CollectionId(0), &[user])
    }
    fn page(keys: &[u8], more: bool) -> (Vec<Item>, Option<Bound<Key>>) {
        let items = keys.iter().map(|k| Item { key: key(*k), record: None }).collect();
        (items, more.then(|| Bound::Excluded(key(*keys.last().unwrap()))))
    }

    #[test]
    fn nothing_is_given_out_beyond_a_page_that_did_not_end() {
        // The second shard may still have 4..8, so 9 must wait although it was asked for.
        let (keys, next) = merge_keys(vec![page(&[1, 9], false), page(&[2, 3], true)], false, 10);
        assert_eq!(keys, [key(1), key(2), key(3)]);
        assert_eq!(next, Some(Bound::Excluded(key(3))));
        let (keys, next) = merge_keys(vec![page(&[9, 1], false), page(&[8, 7], true)], true, 10);
        assert_eq!(keys, [key(9), key(8), key(7)]);
        assert_eq!(next, Some(Bound::Excluded(key(7))));
    }

    #[test]
    fn a_cut_page_goes_on_and_a_whole_one_ends() {
        let (keys, next) = merge_keys(vec![page(&[1, 3], false), page(&[2], false)], false, 2);
        assert_eq!((keys, next), (vec![key(1), key(2)], Some(Bound::Excluded(key(2)))));
        let (keys, next) = merge_keys(vec![page(&[1, 3], false), page(&[2], false)], false, 3);
        assert_eq!((keys.len(), next), (3, None));
    }

    #[test]
    fn a_prefix_ends_where_it_should() {
        assert_eq!(successor(b"a"), Some(b"b".to_vec()));
        assert_eq!(successor(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b"\xff"), None);
        assert_eq!(successor(b""), None);
    }
}
