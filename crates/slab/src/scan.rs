//! Pages of scans: keys from the index, then the records, a window of them at a time with all its
//! reads in flight at once.
//!
//! A scan sees the latest durable value of each key, not a snapshot (KVell paper, section 4). Scans
//! go on at the end of a tick, before reads are submitted: what a tick brings is taken in one step,
//! and the reads that a window adds can be joined.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use bytes::Bytes;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Key, fault_point};
use stratakv_engine::range::{before_engine_keys, encoded, is_empty_range};
use stratakv_engine::{Effects, Error, Item, PageRequest, Record, RecordPart, Reply, Stage, Token, Value};

use crate::blob_read::BlobPurpose;
use crate::place::{Address, RecordPlace};
use crate::placement::{PlaceOf, Placement, Scanned};
use crate::read::Waiter;
use crate::shard::{IndexedShard, is_expired};

/// Most items read at once, and most bytes of them: with 64 KiB to a read, a window keeps a queue
/// of reads full.
const WINDOW: usize = 256;
const WINDOW_BYTES: usize = 1 << 20;
/// The same of a backup: it takes as long as it takes, and every read that it has in flight is one
/// that clients stand behind.
const BACKUP_WINDOW: usize = 4;
const BACKUP_WINDOW_BYTES: usize = 128 << 10;
/// Most items of a page.
const ITEMS_MAX: usize = 16 << 10;
/// Expired records that a page passes over. With more it ends, and says where the next one begins.
const PASSED_MAX: usize = 4096;

/// Scans that wait for pages.
#[derive(Debug)]
pub(crate) struct Scans<P: Placement> {
    active: BTreeMap<u64, Scan<P>>,
    /// Those with something new; some more than once.
    awake: Vec<u64>,
    next: u64,
    /// One of them may hold blocks.
    holds_blocks: bool,
}

#[derive(Debug)]
struct Scan<P: Placement> {
    reader: Reader,
    request: PageRequest,
    items: Vec<(Key, State<P::Origin>)>,
    /// There are keys beyond `items`.
    more: bool,
    /// The last key that was looked at, if that is none of `items`.
    passed: Option<Key>,
    /// Items up to here are read; their bytes.
    done: usize,
    bytes: usize,
    /// Reads of records it took.
    reads: usize,
}

/// Whom a scan reads for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Client(Token),
    /// The backup with this id: it looks past batches.
    Backup(u64),
    /// The placement, which puts its records in order.
    Merge,
}

impl Reader {
    /// Most items read at once, and most bytes of them.
    fn window(self) -> (usize, usize) {
        match self {
            Reader::Client(_) => (WINDOW, WINDOW_BYTES),
            Reader::Backup(_) => (BACKUP_WINDOW, BACKUP_WINDOW_BYTES),
            // All of the page: neighbours in a run come by one read.
            Reader::Merge => (usize::MAX, usize::MAX),
        }
    }
}

/// What the walk that found a key learned of its record: true until the shard changes, so for the
/// first window.
struct Known<P: Placement> {
    place: PlaceOf<P>,
    /// If it is a record in the cache.
    cached: Option<P::Cached>,
}

#[derive(Debug)]
enum State<O> {
    Todo,
    /// With the bytes it may take.
    Reading(usize),
    /// And where it was, if that was in a log.
    Read(Record, Option<O>),
    /// Deleted since.
    Gone,
}

impl<O> State<O> {
    fn bytes(&self) -> usize {
        match self {
            State::Todo | State::Gone => 0,
            State::Reading(bytes) => *bytes,
            State::Read(record, _) => record.value.len() as usize,
        }
    }
}

impl<P: Placement> Scan<P> {
    /// What was read, and where.
    fn records<'a>(&'a self) -> Vec<Scanned<'a, P>> {
        let read = |item: &'a (Key, State<P::Origin>)| match &item.1 {
            State::Read(record, origin) => Some((&item.0, record, *origin)),
            _ => None,
        };
        self.items.iter().filter_map(read).collect()
    }

    /// The last key that was looked at, if there are more.
    fn next(&self) -> Option<Key> {
        let last = || self.items.last().map(|(key, _)| key.clone());
        self.passed.clone().or_else(last).filter(|_| self.more)
    }

    /// Passes the items that are there; whether there were any. An item that reaches the limit of
    /// bytes is the last.
    fn advance(&mut self) -> bool {
        let before = self.done;
        while let Some((key, state)) = self.items.get(self.done) {
            match state {
                State::Read(record, _) => self.bytes += key.encoded().len() + record.value.len() as usize,
                State::Gone => {}
                State::Todo | State::Reading(_) => break,
            }
            self.done += 1;
            if self.bytes >= self.request.bytes_max as usize && self.done < self.items.len() {
                self.items.truncate(self.done);
                self.passed = None;
                self.more = true;
                fault_point!("scan_ends_at_its_bytes", self.more = false);
            }
        }
        self.done > before
    }
}

impl<P: Placement> Default for Scans<P> {
    fn default() -> Self {
        Scans { active: BTreeMap::new(), awake: Vec::new(), next: 0, holds_blocks: false }
    }
}

impl<P: Placement> Scans<P> {
    /// Whether a scan has something new that it has not been told of.
    pub(crate) fn is_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }
}

impl<P: Placement> IndexedShard<P> {
    /// Answers one page of a scan.
    pub(crate) fn scan(&mut self, token: Token, mut request: PageRequest, effects: &mut Effects) {
        if request.at.is_some() {
            let error = Error::Unsupported(stratakv_engine::Capability::Snapshot);
            return effects.reply(token, Reply::Failed(error));
        }
        request.to = before_engine_keys(request.to);
        let limit = (request.items_max.max(1) as usize).min(ITEMS_MAX);
        let batched = self.batch_keys((request.from.as_ref(), request.to.as_ref()), u64::MAX, effects);
        let page = self.page_of_keys(&request, limit, &batched, effects);
        effects.enter(token, Stage::Read);
        self.begin_scan((Reader::Client(token), request), page, effects);
    }

    /// Reads records of these keys, in order, for the placement: [`Placement::merge_read`] gets
    /// them.
    pub(crate) fn scan_for_merge(&mut self, keys: Vec<Key>, places: Vec<Option<u64>>, effects: &mut Effects) {
        let request = PageRequest {
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            reverse: false,
            keys_only: false,
            items_max: keys.len() as u32,
            bytes_max: u32::MAX,
            at: None,
        };
        let page = KeyPage { limit: keys.len(), keys, places, ..KeyPage::default() };
        self.begin_scan((Reader::Merge, request), page, effects);
    }

    /// Reads a stretch of keys for the backup.
    pub(crate) fn scan_for_backup(&mut self, id: u64, token: Token, mut request: PageRequest, effects: &mut Effects) {
        request.to = before_engine_keys(request.to);
        let limit = request.items_max as usize;
        // Batches that were committed before the cut and cannot be applied before another opening.
        let batched = self.batch_keys((request.from.as_ref(), request.to.as_ref()), self.backup_cut(), effects);
        let page = self.page_of_keys(&request, limit, &batched, effects);
        effects.enter(token, Stage::Read);
        self.begin_scan((Reader::Backup(id), request), page, effects);
    }

    fn begin_scan(
        &mut self,
        (reader, request): (Reader, PageRequest),
        KeyPage { keys, places, more, passed, .. }: KeyPage,
        effects: &mut Effects,
    ) {
        let items = keys.into_iter().map(|key| (key, State::Todo)).collect();
        let scan = Scan { reader, request, items, more, passed, done: 0, bytes: 0, reads: 0 };
        if let Reader::Client(token) = reader
            && scan.request.keys_only
        {
            return reply(token, scan, effects);
        }
        self.scans.next += 1;
        let number = self.scans.next;
        self.scans.active.insert(number, scan);
        let known = self.known(&places, reader.window().0);
        self.step_scan(number, &known, effects);
    }

    /// What there is to know of the records of the first window.
    fn known(&self, places: &[Option<u64>], window: usize) -> Vec<Option<Known<P>>> {
        let places = || places.iter().take(window).map(|bits| bits.map(RecordPlace::from_bits));
        let address = |place| if let Some(RecordPlace::Record(address)) = place { Some(address) } else { None };
        let mut cached = self.placement.find_cached(places().map(address)).into_iter();
        let known = places().map(|place| {
            let cached = cached.next().flatten();
            Some(Known { place: place?, cached })
        });
        known.collect()
    }

    fn end_scan(&mut self, scan: Scan<P>, effects: &mut Effects) {
        let next = scan.next();
        match scan.reader {
            Reader::Client(token) => {
                if scan.reads > 0 {
                    P::scanned(self, scan.reads, &scan.records(), effects);
                }
                reply(token, scan, effects);
            }
            Reader::Backup(id) => {
                let read = scan.items.into_iter().map(|(key, state)| match state {
                    State::Read(record, _) => (key, Some(record)),
                    _ => (key, None),
                });
                self.backup_read(id, read.collect(), next, effects);
            }
            Reader::Merge => P::merge_read(self, &scan.records(), effects),
        }
    }

    fn scan_failed(&mut self, scan: &Scan<P>, error: Error, effects: &mut Effects) {
        match scan.reader {
            Reader::Client(token) => effects.reply(token, Reply::Failed(error)),
            Reader::Backup(id) => self.backup_failed(Some(id), error, effects),
            Reader::Merge => P::merge_read(self, &[], effects),
        }
    }

    /// The keys of a page: those of the index, with what committed batches make of them.
    fn page_of_keys(
        &self,
        request: &PageRequest,
        limit: usize,
        batched: &BTreeMap<Key, bool>,
        effects: &Effects,
    ) -> KeyPage {
        let bytes_max = request.bytes_max as usize;
        let (keys, places, passed, keys_only) = (Vec::new(), Vec::new(), None, request.keys_only);
        let mut page = KeyPage { keys, places, keys_only, bytes: 0, limit, bytes_max, more: false, passed, expired: 0 };
        if is_empty_range(&request.from, &request.to) {
            return page;
        }
        let mut added: Vec<&Key> = batched.iter().filter(|(_, exists)| **exists).map(|(key, _)| key).collect();
        // Taken from the end.
        if !request.reverse {
            added.reverse();
        }
        let is_before = |a: &[u8], b: &[u8]| if request.reverse { a > b } else { a < b };
        let (from, to) = (encoded(&request.from), encoded(&request.to));
        self.index.tree.scan(from, to, request.reverse, &mut |key, entry| {
            while let Some(next) = added.pop_if(|next| is_before(next.encoded(), key)) {
                page.add(next.encoded(), None)?;
            }
            let of_batch = !batched.is_empty() && Key::from_encoded(key).is_some_and(|key| batched.contains_key(&key));
            if is_expired(entry.expiry, effects) && !of_batch
                || of_batch && added.last().is_none_or(|next| next.encoded() != key)
            {
                return page.pass(key);
            }
            if of_batch {
                added.pop();
            }
            page.add(key, Some(entry.place).filter(|_| !of_batch))
        });
        while let Some(next) = added.pop().filter(|_| !page.more) {
            // No failure: what it says is in `page.more` too.
            let _ = page.add(next.encoded(), None);
        }
        page
    }

    /// Goes on with the scans that have something new.
    pub(crate) fn pump_scans(&mut self, effects: &mut Effects) {
        let mut awake = std::mem::take(&mut self.scans.awake);
        awake.sort_unstable();
        awake.dedup();
        for number in awake {
            self.step_scan(number, &[], effects);
        }
    }

    /// Begins what the window allows, takes what is there, and answers if that is all.
    fn step_scan(&mut self, number: u64, known: &[Option<Known<P>>], effects: &mut Effects) {
        let Some(mut scan) = self.scans.active.remove(&number) else { return };
        let mut blobs = Vec::new();
        loop {
            if let Err(corruption) = self.start_window(number, &mut scan, known, &mut blobs, effects) {
                return self.scan_failed(&scan, corruption.into(), effects);
            }
            let moved = scan.advance();
            if scan.done == scan.items.len() {
                return self.end_scan(scan, effects);
            }
            if !moved {
                break;
            }
        }
        self.scans.active.insert(number, scan);
        for (item, key, first, pages) in blobs {
            let purpose = BlobPurpose::Scan { scan: number, item };
            self.read_blob(purpose, key, (first, pages), RecordPart::Whole, effects);
        }
    }

    /// Begins the reads of a window of items: no more bytes than the window has, nor than the
    /// answer may hold (64 large values would be 4 GiB); but always the next item.
    fn start_window(
        &mut self,
        number: u64,
        scan: &mut Scan<P>,
        known: &[Option<Known<P>>],
        blobs: &mut Vec<(usize, Key, u32, u32)>,
        effects: &mut Effects,
    ) -> Result<(), Corruption> {
        let (window, window_bytes) = scan.reader.window();
        let bytes_max = (scan.request.bytes_max as usize).saturating_sub(scan.bytes).min(window_bytes);
        let mut bytes = 0;
        for item in scan.done..scan.items.len().min(scan.done.saturating_add(window)) {
            if item > scan.done && bytes >= bytes_max {
                break;
            }
            let known = known.get(item).and_then(Option::as_ref);
            self.start_item((number, item), scan, known, blobs, effects)?;
            bytes += scan.items.get(item).map_or(0, |(_, state)| state.bytes());
        }
        Ok(())
    }

    /// Takes an item from the cache, or begins to read it. Other waiters of a failed scan find it
    /// gone.
    fn start_item(
        &mut self,
        (scan, item): (u64, usize),
        page: &mut Scan<P>,
        known: Option<&Known<P>>,
        blobs: &mut Vec<(usize, Key, u32, u32)>,
        effects: &mut Effects,
    ) -> Result<(), Corruption> {
        let todo = page.items.get_mut(item).filter(|(_, state)| matches!(state, State::Todo));
        let Some((key, state)) = todo else { return Ok(()) };
        let newest = if let Reader::Backup(_) = page.reader { self.backup_cut() } else { u64::MAX };
        let of_batch = self.batch_record(key, RecordPart::Whole, newest, effects);
        if let Some(record) = of_batch {
            *state = record.map_or(State::Gone, |record| State::Read(owned(record), None));
            return Ok(());
        }
        let visible = || self.index.get(key).filter(|entry| !is_expired(entry.expiry, effects));
        let place = known.map(|known| known.place).or_else(|| Some(RecordPlace::from_bits(visible()?.place)));
        let Some(place) = place else {
            *state = State::Gone;
            return Ok(());
        };
        match place {
            RecordPlace::Record(address) => {
                let found = known.map(|known| known.cached);
                match P::cached_record(self, address, key, RecordPart::Whole, found) {
                    Some(record) => {
                        self.io.counters.cache_hits += 1;
                        *state = State::Read(owned(record?), self.placement.origin(address));
                    }
                    None => {
                        *state = State::Reading(address.read_bytes());
                        self.io.counters.cache_misses += 1;
                        P::request_record(self, address, Waiter::Scan { scan, item }, effects);
                    }
                }
            }
            RecordPlace::Blob { first, pages } => {
                *state = State::Reading(pages as usize * PAGE_BYTES);
                blobs.push((item, key.clone(), first, pages));
            }
        }
        Ok(())
    }

    /// The key of an item that is being read.
    pub(crate) fn scan_key(&self, number: u64, item: usize) -> Option<Key> {
        self.scans.active.get(&number)?.items.get(item).map(|(key, _)| key.clone())
    }

    /// Whether what a scan reads says what is wanted in memory: a walk over all keys says nothing.
    pub(crate) fn is_scan_of_client(&self, number: u64) -> bool {
        self.scans.active.get(&number).is_some_and(|scan| matches!(scan.reader, Reader::Client(_)))
    }

    /// The page of an item is in the cache: its record is taken now, as the page may go before the
    /// tick ends.
    pub(crate) fn scan_item_ready(&mut self, number: u64, item: usize, effects: &mut Effects) {
        let Some(mut scan) = self.scans.active.remove(&number) else { return };
        if let Some((_, state @ State::Reading(_))) = scan.items.get_mut(item) {
            *state = State::Todo;
        }
        let mut blobs = Vec::new();
        if let Err(corruption) = self.start_item((number, item), &mut scan, None, &mut blobs, effects) {
            return self.scan_failed(&scan, corruption.into(), effects);
        }
        self.scans.active.insert(number, scan);
        self.scans.awake.push(number);
        for (item, key, first, pages) in blobs {
            let purpose = BlobPurpose::Scan { scan: number, item };
            self.read_blob(purpose, key, (first, pages), RecordPart::Whole, effects);
        }
    }

    /// An item has been read.
    pub(crate) fn scan_item_read(&mut self, number: u64, item: usize, record: Record, origin: Option<P::Origin>) {
        let Some(scan) = self.scans.active.get_mut(&number) else { return };
        if let Some((_, state @ State::Reading(_))) = scan.items.get_mut(item) {
            let record = if record.value.len() as usize <= PAGE_BYTES { owned(record) } else { record };
            self.scans.holds_blocks |= matches!(record.value, Value::Blocks { .. });
            *state = State::Read(record, origin);
            self.scans.awake.push(number);
        }
    }

    /// A read of records has come back for these waiters.
    pub(crate) fn count_read_of_scans<'a>(&mut self, waiters: impl Iterator<Item = &'a Waiter>) {
        let mut last = None;
        for waiter in waiters {
            if let Waiter::Scan { scan, .. } = waiter
                && last != Some(*scan)
            {
                last = Some(*scan);
                if let Some(scan) = self.scans.active.get_mut(scan) {
                    scan.reads += 1;
                }
            }
        }
    }

    /// There is no block left to read into: values of pages under construction give theirs back, as
    /// copies, or scans could wait for one another for ever.
    pub(crate) fn give_back_blocks(&mut self) {
        if !std::mem::take(&mut self.scans.holds_blocks) {
            return;
        }
        fault_point!("scans_keep_their_blocks", return);
        for (_, state) in self.scans.active.values_mut().flat_map(|scan| &mut scan.items) {
            if let State::Read(record, _) = state {
                record.value = owned_value(std::mem::replace(&mut record.value, Value::Inline(Bytes::new())));
            }
        }
    }

    /// An item cannot be read: the scan fails.
    pub(crate) fn fail_scan(&mut self, number: u64, error: &Error, effects: &mut Effects) {
        if let Some(scan) = self.scans.active.remove(&number) {
            self.scan_failed(&scan, error.clone(), effects);
        }
    }
}

/// Keys of a page as they come.
#[derive(Default)]
struct KeyPage {
    keys: Vec<Key>,
    /// As the index has them; of none that a batch says something of. Empty if nobody asks for more
    /// than keys.
    places: Vec<Option<u64>>,
    keys_only: bool,
    bytes: usize,
    limit: usize,
    bytes_max: usize,
    more: bool,
    /// Where it ended, if it did for want of keys that are there.
    passed: Option<Key>,
    /// Expired keys, and such that a batch deletes.
    expired: usize,
}

impl KeyPage {
    /// Passes over a key that is not there.
    fn pass(&mut self, key: &[u8]) -> ControlFlow<()> {
        self.expired += 1;
        if self.expired < PASSED_MAX {
            return ControlFlow::Continue(());
        }
        (self.more, self.passed) = (true, Key::from_encoded(key));
        ControlFlow::Break(())
    }

    fn add(&mut self, key: &[u8], place: Option<u64>) -> ControlFlow<()> {
        if self.keys.len() >= self.limit || (!self.keys.is_empty() && self.bytes >= self.bytes_max) {
            self.more = true;
            return ControlFlow::Break(());
        }
        self.bytes += key.len();
        if let Some(key) = Key::from_encoded(key) {
            self.keys.push(key);
            if !self.keys_only {
                self.places.push(place);
            }
        }
        ControlFlow::Continue(())
    }
}

/// A record that holds no block of the cache.
fn owned(record: Record) -> Record {
    Record { value: owned_value(record.value), ..record }
}

fn owned_value(value: Value) -> Value {
    match value {
        Value::Inline(bytes) => Value::Inline(bytes),
        blocks @ Value::Blocks { .. } => Value::Inline(blocks.to_bytes()),
    }
}

/// Pages hold no blocks: whoever asks ahead leaves an answer lying, and a shard that has lent all
/// its blocks reads nothing more.
fn reply<P: Placement>(token: Token, scan: Scan<P>, effects: &mut Effects) {
    let next = scan.next().map(Bound::Excluded);
    let keys_only = scan.request.keys_only;
    let items = scan.items.into_iter().filter_map(|(key, state)| match state {
        State::Read(record, _) if is_expired(record.expiry.0, effects) => None,
        State::Read(record, _) => Some(Item { key, record: Some(owned(record)) }),
        _ if keys_only => Some(Item { key, record: None }),
        _ => None,
    });
    effects.reply(token, Reply::Page { items: items.collect(), next });
}
