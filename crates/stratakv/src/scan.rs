//! Ordered scans over all shards, a round of keys at a time ([`crate::merge`]). Not a snapshot:
//! each key's latest value when its record is read.
//!
//! While a long round is consumed the next one is being read. A round holds a bounded number of
//! bytes, whatever the sizes of values are.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use bytes::Bytes;
use stratakv_base::{CollectionId, Key};
use stratakv_engine::{Error as EngineError, Item, Operation, PageRequest, Record as EngineRecord, RecordPart, Reply};
use stratakv_runtime::Started;

use crate::collection::Collection;
use crate::engine::Engine;
use crate::error::Error;
use crate::merge::{Share, shares};
use crate::record::Record;
use crate::routing::Inner;

/// Keys of the first round, so that a short scan reads little; each round has twice as many as the
/// one before.
const ITEMS_MIN: u32 = 16;
/// Most keys of a round.
const ITEMS_MAX: u32 = 512;
/// Bytes of keys and values that a round asks for at once. Values larger than a shard's share of it
/// come one at a time.
const ROUND_BYTES: u32 = 4 << 20;

/// What to scan, and how.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    pub(crate) extent: Extent,
    reverse: bool,
    keys_only: bool,
    /// Of a snapshot.
    at: Option<u64>,
}

/// Which keys.
#[derive(Clone, Debug)]
pub(crate) enum Extent {
    Range(Bound<Bytes>, Bound<Bytes>),
    Prefix(Bytes),
    SortPrefix(Bytes),
}

impl ScanOptions {
    /// Every key.
    pub fn all() -> ScanOptions {
        ScanOptions::of(Extent::Range(Bound::Unbounded, Bound::Unbounded))
    }

    /// Keys that begin with `prefix`. In a collection in an order of the user's
    /// ([`Order`](crate::Order)) these do not lie together, and anything but the empty prefix is
    /// refused.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> ScanOptions {
        ScanOptions::of(Extent::Prefix(Bytes::copy_from_slice(prefix.as_ref())))
    }

    /// Keys with a sort key ([`Order`](crate::Order)) that begins with `prefix`. In the order of
    /// bytes a key is its own.
    pub fn sort_prefix(prefix: impl AsRef<[u8]>) -> ScanOptions {
        ScanOptions::of(Extent::SortPrefix(Bytes::copy_from_slice(prefix.as_ref())))
    }

    /// Keys between two bounds, in the order of the collection. The empty key is before every other
    /// one.
    ///
    /// ```
    /// # use stratakv::ScanOptions;
    /// let _ = ScanOptions::range("a".."c"); // also "a"..="c", "a".., .."c"
    /// ```
    pub fn range<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> ScanOptions {
        let copied = |bound: Bound<&K>| bound.map(|key| Bytes::copy_from_slice(key.as_ref()));
        ScanOptions::of(Extent::Range(copied(range.start_bound()), copied(range.end_bound())))
    }

    fn of(extent: Extent) -> ScanOptions {
        ScanOptions { extent, reverse: false, keys_only: false, at: None }
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

    /// Of a snapshot.
    pub(crate) fn at(mut self, snapshot: u64) -> ScanOptions {
        self.at = Some(snapshot);
        self
    }
}

/// Bounds of every key of a collection.
pub(crate) fn whole(collection: CollectionId) -> (Bound<Key>, Bound<Key>) {
    (Bound::Included(Key::bound(collection, b"")), end_of(collection))
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

/// A running scan: an iterator of keys and records, in order. Memory is bounded: two rounds of at
/// most 512 keys and 4 MiB, and one value of each shard. A record that cannot be read is an error
/// in its place; the scan goes on after it.
///
/// ```no_run
/// # fn main() -> Result<(), stratakv::Error> {
/// # let store = stratakv::Store::open("data")?;
/// for key in store.range("a".."c").rev().keys() {
///     println!("{}", key?.escape_ascii());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a scan reads nothing before it is asked for its first item"]
pub struct Scan {
    collection: Collection,
    /// What is left to scan; keys only.
    request: PageRequest,
    keys_only: bool,
    /// Keys, if only those are wanted.
    keys: VecDeque<Key>,
    round: Option<Round>,
    /// The next round, being read.
    ahead: Option<Round>,
    rounds: u64,
    /// Whether it has been asked for an item.
    is_begun: bool,
    ended: bool,
    /// A page of records has failed: its keys are wanted first.
    is_record_by_record: bool,
    /// Why there is nothing to scan.
    refused: Option<Error>,
}

impl Scan {
    pub(crate) fn new(collection: Collection, options: ScanOptions) -> Scan {
        let ScanOptions { extent, reverse, keys_only, at } = options;
        let ((from, to), refused) = match collection.bounds(&extent) {
            Ok(bounds) => (bounds, None),
            Err(error) => (whole(collection.id()), Some(error)),
        };
        let (items_max, bytes_max) = (ITEMS_MIN, ROUND_BYTES);
        let request = PageRequest { from, to, reverse, keys_only: true, items_max, bytes_max, at };
        let (keys, ended) = (VecDeque::new(), refused.is_some());
        Scan {
            collection,
            request,
            keys_only,
            keys,
            round: None,
            ahead: None,
            rounds: 0,
            is_begun: false,
            ended,
            is_record_by_record: false,
            refused,
        }
    }

    /// The other way round: from the upper bound downwards. To be called before the first item;
    /// later its only item is an error ([`ErrorKind::Usage`](crate::ErrorKind::Usage)).
    pub fn rev(mut self) -> Scan {
        self.unless_begun("rev", |scan| scan.request.reverse = !scan.request.reverse);
        self
    }

    /// The keys alone: costs no I/O. To be called before the first item, as [`Scan::rev`].
    pub fn keys(mut self) -> impl Iterator<Item = Result<Bytes, Error>> {
        self.unless_begun("keys", |scan| scan.keys_only = true);
        self.map(|item| item.map(|(key, _)| key))
    }

    /// The records alone.
    pub fn records(self) -> impl Iterator<Item = Result<Record, Error>> {
        self.map(|item| item.map(|(_, record)| record))
    }

    fn unless_begun(&mut self, what: &str, change: impl FnOnce(&mut Scan)) {
        if self.is_begun {
            (self.round, self.ahead, self.ended) = (None, None, true);
            self.keys.clear();
            self.refused =
                Some(Error::Option(format!("`{what}` comes before the first item of a scan: call it earlier")));
        } else {
            change(self);
        }
    }

    /// The keys of the next round, from the shards' indexes. None: there are no more.
    fn next_keys(&mut self) -> Result<Vec<Key>, Error> {
        while !self.ended {
            let (keys, next) = self.collection.inner().page_of_keys(&self.request)?;
            self.go_on(next, !keys.is_empty());
            if !keys.is_empty() {
                return Ok(keys);
            }
        }
        Ok(Vec::new())
    }

    /// Where the next round begins, and how long it is.
    fn go_on(&mut self, next: Option<Bound<Key>>, has_found: bool) {
        match next {
            Some(next) if self.request.reverse => self.request.to = next,
            Some(next) => self.request.from = next,
            None => self.ended = true,
        }
        if has_found {
            self.rounds += 1;
            self.request.items_max = (self.request.items_max * 2).min(ITEMS_MAX);
        }
    }

    /// The next round of an engine that is called in place: its one shard gives records with their
    /// keys, and nothing would go on meanwhile. `None`: there is no more, or it has to be asked for
    /// record by record.
    fn read_in_place(&mut self) -> Option<Round> {
        while !self.ended && self.is_in_place() {
            let request = PageRequest { keys_only: false, ..self.request.clone() };
            let reply = self.collection.inner().execute(Operation::Page(request.clone().into()));
            let Reply::Page { items, next } = reply else { return None };
            self.go_on(next, !items.is_empty());
            if !items.is_empty() {
                return Some(Round::of(items, request));
            }
        }
        None
    }

    fn is_in_place(&self) -> bool {
        self.collection.inner().engine == Engine::Hash
    }

    /// Begins to read the next round.
    fn begin_round(&mut self) -> Result<Option<Round>, Error> {
        if let Some(round) = self.read_in_place() {
            return Ok(Some(round));
        }
        let inner = self.collection.inner();
        if inner.shards() == 1 && !std::mem::take(&mut self.is_record_by_record) {
            let wanted = !self.ended && !inner.is_page_expired(&self.request);
            // To have another thread read the first few records takes longer than that does.
            let is_first = self.rounds == 0;
            return Ok(wanted.then(|| Round::of_one_shard(inner, &self.request, is_first)));
        }
        let keys = self.next_keys()?;
        if keys.is_empty() {
            return Ok(None);
        }
        Ok(Some(Round::begin(self.collection.inner(), keys, &self.request)))
    }

    /// Takes the next round, and waits for what it asked for.
    fn turn_over(&mut self) -> Result<bool, Error> {
        let next = match self.ahead.take() {
            Some(round) => Some(round),
            None => self.begin_round()?,
        };
        let Some(mut round) = next else { return Ok(false) };
        round.arrive(self.collection.inner());
        match round.end.take() {
            Some(End::At(next)) => self.go_on(next, round.keys > 0),
            // Once more, with the keys in hand: only what cannot be read is an error.
            Some(End::Failed) => {
                self.is_record_by_record = true;
                return self.turn_over();
            }
            None => {}
        }
        if round.bytes > u64::from(ROUND_BYTES / 2) {
            let fit = round.keys * u64::from(ROUND_BYTES / 2) / round.bytes;
            self.request.items_max = self.request.items_max.min(fit as u32).max(1);
        }
        self.round = Some(round);
        Ok(true)
    }

    /// Begins the round behind this one, at most once for each, where reads take time. A short scan
    /// may end with its first round, and one that has not lasted long yet may end with this: only
    /// when half of it is taken the next one is wanted. Where values are large one round is enough
    /// to keep the device busy.
    fn read_ahead(&mut self) {
        let Some(round) = self.round.as_mut().filter(|round| round.has_waited && !round.is_followed) else { return };
        let lasts = self.request.items_max >= ITEMS_MAX;
        if self.rounds < 2 || !(lasts || round.left() * 2 <= round.keys as usize) {
            return;
        }
        round.is_followed = true;
        if round.bytes <= u64::from(ROUND_BYTES) {
            // Keys that cannot be had now are asked for again when they are wanted.
            self.ahead = self.begin_round().ok().flatten();
        }
    }

    /// Records that the next calls give without waiting for their reads. Of engine `matrix` with
    /// several shards a call may read the keys of the records behind them.
    pub fn ready(&self) -> usize {
        if self.keys_only { self.keys.len() } else { self.round.as_ref().map_or(0, Round::ready) }
    }

    /// Whether it is known that nothing follows: [`Scan::next`] would give `None`.
    pub fn is_over(&self) -> bool {
        let has_records = |round: &Round| round.parts.iter().any(|part| !part.is_done || !part.items.is_empty());
        self.ended
            && self.refused.is_none()
            && self.keys.is_empty()
            && self.ahead.is_none()
            && !self.is_record_by_record
            && !self.round.as_ref().is_some_and(has_records)
    }

    fn next_key(&mut self) -> Option<Result<Key, Error>> {
        if self.keys.is_empty() {
            match self.next_keys() {
                Ok(keys) => self.keys = keys.into(),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        self.keys.pop_front().map(Ok)
    }
}

impl Iterator for Scan {
    type Item = Result<(Bytes, Record), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.is_begun = true;
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        if self.keys_only {
            let key = self.next_key()?;
            return Some(key.and_then(|key| Ok((self.collection.user_key(&key)?, Record::empty()))));
        }
        loop {
            self.read_ahead();
            if let Some(round) = &mut self.round
                && let Some((key, record)) = round.next(self.collection.inner())
            {
                let item = record.map_err(Error::from);
                return Some(item.and_then(|record| Ok((self.collection.user_key(&key)?, record.into()))));
            }
            self.round = None;
            match self.turn_over() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    // The keys themselves cannot be had: there is nowhere to go on from.
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The records of some keys, from the shards that have them, merged as they come.
struct Round {
    parts: Vec<ShardRound>,
    reverse: bool,
    /// Pages asked for, and of which parts.
    started: Option<(Vec<usize>, Started)>,
    keys: u64,
    /// Bytes of the records that have come.
    bytes: u64,
    /// Not all of it was in memory.
    has_waited: bool,
    /// The round behind it has been begun, or will not be.
    is_followed: bool,
    /// Of one that was asked for without its keys: how it ended.
    end: Option<End>,
}

/// How a page of records of the one shard ended.
enum End {
    /// The scan goes on there; `None`: it is over.
    At(Option<Bound<Key>>),
    /// It cannot be had.
    Failed,
}

/// A shard's part in a round.
struct ShardRound {
    share: Share,
    /// Nothing of it is left to be asked for.
    is_done: bool,
    items: VecDeque<(Key, Result<EngineRecord, EngineError>)>,
}

impl Round {
    fn begin(inner: &Inner, keys: Vec<Key>, request: &PageRequest) -> Round {
        let count = keys.len() as u64;
        let shares = shares(keys, request, inner.shards(), |key| inner.shard_of(key)).into_iter();
        let parts = shares.map(|share| ShardRound { share, is_done: false, items: VecDeque::new() }).collect();
        let mut round = Round::empty(request.reverse);
        (round.parts, round.keys) = (parts, count);
        round.ask(inner);
        round
    }

    fn empty(reverse: bool) -> Round {
        Round {
            parts: Vec::new(),
            reverse,
            started: None,
            keys: 0,
            bytes: 0,
            has_waited: false,
            is_followed: false,
            end: None,
        }
    }

    /// Of a store with one shard, which needs no keys to merge: the records are asked for at once.
    /// `at_once`: by the calling thread, which waits for it anyway.
    fn of_one_shard(inner: &Inner, request: &PageRequest, at_once: bool) -> Round {
        let mut round = Round::empty(request.reverse);
        let request = PageRequest { keys_only: false, ..request.clone() };
        let share = Share { shard: 0, keys: Vec::new(), request };
        round.parts.push(ShardRound { share, is_done: false, items: VecDeque::new() });
        round.end = Some(End::Failed);
        if at_once {
            round.read(inner);
        } else {
            round.ask(inner);
        }
        round
    }

    /// What [`Round::ask`] and [`Round::arrive`] do, of one shard and without handing it over.
    fn read(&mut self, inner: &Inner) {
        while let Some(request) = self.parts.first().filter(|part| !part.is_done).map(|part| part.share.request.clone())
        {
            let reply = inner.runtime.execute(0, Operation::Page(request.into()));
            self.take_of_one_shard(reply);
        }
    }

    /// Records that have come and are not taken.
    fn left(&self) -> usize {
        self.parts.iter().map(|part| part.items.len()).sum()
    }

    /// The same, unless one that comes before them has to be asked for.
    fn ready(&self) -> usize {
        let is_wanting = self.parts.iter().any(|part| part.items.is_empty() && !part.is_done);
        if is_wanting { 0 } else { self.left() }
    }

    /// Of a page that one shard gave whole.
    fn of(items: Vec<Item>, request: PageRequest) -> Round {
        let keys = items.len() as u64;
        let share = Share { shard: 0, keys: Vec::new(), request };
        let mut round = Round::empty(share.request.reverse);
        round.keys = keys;
        let items: VecDeque<_> = items.into_iter().filter_map(|item| Some((item.key, Ok(item.record?)))).collect();
        let part = ShardRound { share, is_done: true, items };
        round.bytes = part.bytes();
        round.parts.push(part);
        round
    }

    /// Asks the shards of which nothing is left for their next page; false if all have given
    /// everything.
    fn ask(&mut self, inner: &Inner) -> bool {
        let wanting = |part: &ShardRound| part.items.is_empty() && !part.is_done;
        let asked: Vec<usize> =
            self.parts.iter().enumerate().filter(|(_, part)| wanting(part)).map(|(at, _)| at).collect();
        if asked.is_empty() {
            return false;
        }
        let page = |at: &usize| {
            let share = &self.parts.get(*at)?.share;
            Some((share.shard, Operation::Page(share.request.clone().into())))
        };
        let pages = asked.iter().filter_map(page).collect();
        let started = inner.runtime.start_many(pages);
        self.has_waited |= !started.is_ready();
        self.started = Some((asked, started));
        true
    }

    /// Waits until each shard has given a page that is not empty, or everything.
    fn arrive(&mut self, inner: &Inner) {
        while self.started.is_some() || self.ask(inner) {
            let Some((asked, started)) = self.started.take() else { return };
            let replies = asked.into_iter().zip(started.wait());
            if self.end.is_some() {
                replies.for_each(|(_, reply)| self.take_of_one_shard(reply));
                continue;
            }
            for (at, reply) in replies {
                if let Some(part) = self.parts.get_mut(at) {
                    self.bytes += part.take(reply, inner);
                }
            }
        }
    }

    /// Takes the page of the one shard, or that there is none. An empty one is asked for again from
    /// where it ended.
    fn take_of_one_shard(&mut self, reply: Reply) {
        let Some(part) = self.parts.first_mut() else { return };
        self.end = match reply {
            Reply::Page { items, next } => {
                part.is_done = next.is_none() || !items.is_empty();
                part.keep(items, next.clone());
                Some(End::At(next))
            }
            _ => {
                part.is_done = true;
                Some(End::Failed)
            }
        };
        (self.keys, self.bytes) = (part.items.len() as u64, part.bytes());
    }

    fn next(&mut self, inner: &Inner) -> Option<(Key, Result<EngineRecord, EngineError>)> {
        if let [part] = &mut self.parts[..]
            && let Some(item) = part.items.pop_front()
        {
            return Some(item);
        }
        self.arrive(inner);
        let fronts = self.parts.iter_mut().filter(|part| !part.items.is_empty());
        let front = |part: &&mut ShardRound| part.items.front().map(|(key, _)| key.clone());
        let part = if self.reverse { fronts.max_by_key(front) } else { fronts.min_by_key(front) };
        part?.items.pop_front()
    }
}

impl ShardRound {
    /// Takes a page; its bytes. If it failed, the records are read one by one: only those that
    /// cannot be read are errors.
    fn take(&mut self, reply: Reply, inner: &Inner) -> u64 {
        match reply {
            Reply::Page { items, next } => {
                self.is_done = next.is_none();
                self.keep(items, next);
            }
            _ => {
                self.is_done = true;
                self.read_singly(inner);
            }
        }
        self.bytes()
    }

    /// Keeps records, and where the next page begins.
    fn keep(&mut self, items: Vec<Item>, next: Option<Bound<Key>>) {
        match next {
            Some(next) if self.share.request.reverse => self.share.request.to = next,
            Some(next) => self.share.request.from = next,
            None => {}
        }
        self.items.extend(items.into_iter().filter_map(|item| Some((item.key, Ok(item.record?)))));
    }

    /// Bytes of what it has.
    fn bytes(&self) -> u64 {
        self.items.iter().map(|(_, record)| record.as_ref().map_or(0, |record| record.value_bytes)).sum()
    }

    fn read_singly(&mut self, inner: &Inner) {
        let request = &self.share.request;
        let bounds = (request.from.clone(), request.to.clone());
        let keys = self.share.keys.iter().filter(|key| std::ops::RangeBounds::contains(&bounds, *key));
        for key in keys.cloned().collect::<Vec<_>>() {
            let operation = match self.share.request.at {
                None => Operation::Get { key: key.clone(), part: RecordPart::Whole },
                Some(id) => crate::snapshot::get_at(&key, id),
            };
            match inner.execute(operation) {
                Reply::Record(Some(record)) => self.items.push_back((key, Ok(record))),
                // Deleted since the index was read: as if the scan had come later.
                Reply::Record(None) => {}
                Reply::Page { items, .. } => {
                    self.items.extend(items.into_iter().filter_map(|item| Some((item.key, Ok(item.record?)))));
                }
                Reply::Failed(error) => self.items.push_back((key, Err(error))),
                _ => {
                    let error = EngineError::Unknown("the engine gave an answer of another kind");
                    self.items.push_back((key, Err(error)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_it_should() {
        assert_eq!(successor(b"a"), Some(b"b".to_vec()));
        assert_eq!(successor(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b"\xff"), None);
        assert_eq!(successor(b""), None);
    }
}
