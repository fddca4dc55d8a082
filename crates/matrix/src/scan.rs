//! Pages of scans. A page shows what a snapshot sees, or the newest of each key; it is gathered in
//! as many steps as its reads take, each going on where the last one ended.

use std::ops::Bound;

use bytes::Bytes;
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Corruption, Key, Place, fault_point};
use stratakv_engine::range::{before_engine_keys, is_empty_range};
use stratakv_engine::{Item, PageRequest, RecordPart, Reply};
use stratakv_pmem::Pmem;

use crate::cursor::{Cursor, Stop};
use crate::entry::{Body, Meta, Pointer};
use crate::level_cursor::LevelCursor;
use crate::lookup::{LongRead, is_long, record, value_bytes};
use crate::matrix::Matrix;
use crate::merge::{Merge, ReadView, Visible};
use crate::reading::{InMemory, RUN_PAGES};
use crate::walk::{Walk, Way};

/// Most items of a page.
pub(crate) const ITEMS_MAX: usize = 16 << 10;
/// Keys whose values, where those lie apart, are asked for together.
const WINDOW: usize = 256;
/// What is asked for together may take this share of the memory.
const FETCHED_SHARE: u64 = 8;

/// A page that is being gathered.
#[derive(Debug)]
pub(crate) struct PageWork {
    from: Bound<Key>,
    to: Bound<Key>,
    reverse: bool,
    keys_only: bool,
    items_max: usize,
    bytes_max: u64,
    read_view: ReadView,
    items: Vec<(Key, Meta, Option<Bytes>)>,
    bytes: u64,
    /// What there is of the long value that is being read.
    long: Option<LongRead>,
    /// How often it went on over keys that are not shown.
    skips: usize,
    /// The snapshot that it shows: it must be open to the end.
    pub(crate) snapshot: Option<u64>,
    /// There are no more keys, or the page is full.
    gathered: bool,
    /// It is full: another page follows.
    full: bool,
    /// It is a piece of this backup.
    pub(crate) backup: Option<u64>,
}

impl PageWork {
    pub(crate) fn new(request: PageRequest, read_view: ReadView) -> PageWork {
        let (from, to) = (request.from, before_engine_keys(request.to));
        PageWork {
            gathered: is_empty_range(&from, &to),
            from,
            to,
            reverse: request.reverse,
            keys_only: request.keys_only,
            items_max: (request.items_max.max(1) as usize).min(ITEMS_MAX),
            bytes_max: u64::from(request.bytes_max),
            read_view,
            items: Vec::new(),
            bytes: 0,
            long: None,
            skips: 0,
            snapshot: request.at,
            full: false,
            backup: None,
        }
    }

    /// Of the engine's own keys, which others leave out.
    pub(crate) fn of_engine_keys(request: PageRequest, read_view: ReadView) -> PageWork {
        let from = request.from.clone();
        PageWork { from, to: Bound::Unbounded, gathered: false, ..PageWork::new(request, read_view) }
    }

    pub(crate) fn of_backup(self, cursor: u64) -> PageWork {
        PageWork { backup: Some(cursor), ..self }
    }

    fn take(&mut self, key: Key, meta: Meta, value: &[u8]) {
        let end = if self.reverse { &mut self.to } else { &mut self.from };
        *end = Bound::Excluded(key.clone());
        self.bytes += key.encoded().len() as u64 + if self.keys_only { 0 } else { value_bytes(meta) };
        let value = match meta.body {
            _ if self.keys_only => Some(Bytes::new()),
            Body::Blob(_) => None,
            _ => Some(Bytes::copy_from_slice(value)),
        };
        self.items.push((key, meta, value));
        self.full = self.items.len() >= self.items_max || self.bytes >= self.bytes_max;
        self.gathered = self.full;
    }

    /// Whether a key lies ahead: else rows or tables are not in order, and the scan would come back
    /// to where it was.
    fn is_ahead(&self, key: &[u8]) -> bool {
        let end = if self.reverse { &self.to } else { &self.from };
        let (at, reached) = match end {
            Bound::Unbounded => return true,
            Bound::Included(at) => (at, true),
            Bound::Excluded(at) => (at, false),
        };
        let order = key.cmp(at.encoded());
        if order.is_eq() { reached } else { order.is_lt() == self.reverse }
    }

    /// What was passed over is not looked at again.
    fn pass(&mut self, passed: Option<Bound<Key>>) {
        fault_point!("trial_scan_begins_anew", return);
        let Some(passed) = passed else { return };
        let end = if self.reverse { &mut self.to } else { &mut self.from };
        if is_further(end, &passed, self.reverse) {
            self.skips += 1;
            *end = passed;
        }
    }

    /// Grows with every item and every value, and every piece of one.
    pub(crate) fn progress(&self) -> usize {
        let values = self.items.iter().filter(|(_, _, value)| value.is_some()).count();
        self.items.len() + values + self.skips + self.long.as_ref().map_or(0, LongRead::progress)
    }

    fn reply(&mut self) -> Reply {
        let keys_only = self.keys_only;
        let item = |(key, meta, value): (Key, Meta, Option<Bytes>)| Item {
            key,
            record: (!keys_only).then(|| record(meta, value.unwrap_or_default(), RecordPart::Whole)),
        };
        let items = std::mem::take(&mut self.items).into_iter().map(item).collect();
        let next = if self.reverse { &self.to } else { &self.from };
        Reply::Page { items, next: self.full.then(|| next.clone()) }
    }
}

/// What became of a key whose value is not where it was.
enum Again {
    Gone,
    Here(Meta, Bytes),
    Blob(Meta, Pointer),
}

/// A key, encoded; `None`: there is no end.
type OneEnd = Option<Vec<u8>>;

/// Bytes of the blocks into which a value is read.
fn block_bytes(pointer: Pointer) -> u64 {
    let (page, slice) = (PAGE_BYTES as u64, SLICE_BYTES as u64);
    let pages = (pointer.offset % page + u64::from(pointer.value_bytes)).div_ceil(page);
    if pages == 1 { page } else { pages.div_ceil(slice / page) * slice }
}

/// Whether a scan that begins at `start` has less before it from `passed` on.
pub(crate) fn is_further(start: &Bound<Key>, passed: &Bound<Key>, reverse: bool) -> bool {
    let (Bound::Included(new) | Bound::Excluded(new)) = passed else { return false };
    match start {
        Bound::Unbounded => true,
        Bound::Included(old) | Bound::Excluded(old) if reverse => new.encoded() < old.encoded(),
        Bound::Included(old) | Bound::Excluded(old) => new.encoded() > old.encoded(),
    }
}

/// The next key after `key`: that is `key` and a zero.
pub(crate) fn behind(key: &Key) -> Vec<u8> {
    [key.encoded(), &[0]].concat()
}

/// The first key that is not before the bound.
pub(crate) fn lower(bound: &Bound<Key>) -> Vec<u8> {
    match bound {
        Bound::Included(key) => key.encoded().to_vec(),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => Vec::new(),
    }
}

/// The first key that is beyond the bound; `None`: none is.
pub(crate) fn upper(bound: &Bound<Key>) -> Option<Vec<u8>> {
    match bound {
        Bound::Included(key) => Some(behind(key)),
        Bound::Excluded(key) => Some(key.encoded().to_vec()),
        Bound::Unbounded => None,
    }
}

impl<P: Pmem> Matrix<P> {
    /// Everything, as one cursor that stands where the way begins, or before that as
    /// [`Cursor::seek_before`] says; beyond its end something may be left out. `memory` has one for
    /// each level. The container is searched when nothing is missing of the levels: once, however
    /// many steps there are.
    pub(crate) fn cursor_at<'a>(&'a self, memory: &'a [InMemory<'a>], way: &Way<'_>) -> Result<Merge<'a>, Stop> {
        let Way { from: key, end, reverse } = *way;
        let level = |(level, memory): (usize, &'a InMemory<'a>)| {
            Box::new(LevelCursor::new(self.levels.level(level), memory)) as Box<dyn Cursor + 'a>
        };
        let mut merge = Merge::new(memory.iter().enumerate().map(level).collect());
        if reverse {
            merge.seek_before(key)?
        } else {
            merge.seek(key.unwrap_or_default())?
        }
        let container = self.container.cursors_at(key, end, reverse)?.into_iter();
        merge.join(container.map(|cursor| Box::new(cursor) as Box<dyn Cursor + 'a>));
        Ok(merge)
    }

    /// The pages of each level that a scan can use which wants so many items; where one is missing,
    /// what lies in it of those is read at once.
    pub(crate) fn memory_of_levels(&self, items: usize, backward: bool) -> Vec<InMemory<'_>> {
        let level = |level| {
            let quarters = self.levels.quarter_pages_of(level, items as u64);
            // They begin within a page. Less than a quarter of one seldom reaches into the next.
            let ahead_pages = if quarters == 0 { 1 } else { quarters.div_ceil(4) + 1 };
            InMemory { backward, ..self.in_memory(ahead_pages.min(RUN_PAGES.into()) as u32) }
        };
        (0..self.levels.depth()).map(level).collect()
    }

    /// Goes on with a page. `None`: others have their turn first.
    ///
    /// # Errors
    /// [`Stop`]: it goes on from here once the pages are there.
    pub(crate) fn page(&self, work: &mut PageWork) -> Result<Option<Reply>, Stop> {
        while !work.gathered || work.items.iter().any(|(_, _, value)| value.is_none()) {
            let wanted = work.items.iter().filter(|(_, _, value)| value.is_none()).count();
            if !work.gathered && wanted < WINDOW {
                match self.gather(work) {
                    // What is known by now to be wanted is asked for at once.
                    Err(Stop::Missing) => return self.fetch(work).and(Err(Stop::Missing)),
                    gathered => gathered?,
                }
                if !work.gathered && !self.scheduler.walks().may_go_on() {
                    return Ok(None);
                }
            } else {
                self.fetch(work)?;
            }
        }
        Ok(Some(work.reply()))
    }

    /// Takes keys, and the values beside them: as far as a walk goes at once.
    fn gather(&self, work: &mut PageWork) -> Result<(), Stop> {
        // Keys that are not shown lie between those that are: there may be any number of them.
        let items = if work.skips > 0 { ITEMS_MAX } else { work.items_max - work.items.len() };
        let memory = self.memory_of_levels(items, work.reverse);
        let Some((at, end)) = self.ends_of(work) else {
            work.gathered = true;
            return Ok(());
        };
        let way = Way { from: at.as_deref(), end: end.as_deref(), reverse: work.reverse };
        let mut cursor = self.cursor_at(&memory, &way)?;
        let walk = Walk::new(self.scheduler.walks(), work.read_view, way, self.container.version());
        let mut visible = Visible::new(&mut cursor, work.read_view, &self.ranges).on(walk);
        for _ in 0..WINDOW {
            let found = if work.reverse { visible.backward(!work.keys_only) } else { visible.forward(!work.keys_only) };
            let found = match found {
                Ok(found) => found,
                Err(stop) => {
                    work.pass(visible.stop(work.reverse));
                    return Err(stop);
                }
            };
            if found.is_none()
                && let Some((key, has_passed_dead)) = visible.pause()
            {
                return self.pause(work, &key, has_passed_dead);
            }
            let Some((meta, key)) = found.zip(Key::from_encoded(visible.key())) else {
                work.gathered = true;
                return Ok(());
            };
            if !work.is_ahead(key.encoded()) {
                return Err(self.out_of_order());
            }
            work.take(key, meta, visible.value());
            if work.full {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Where a page goes on, and its other end. `None`: there is nothing in between.
    fn ends_of(&self, work: &PageWork) -> Option<(OneEnd, OneEnd)> {
        let (from, to) = (lower(&work.from), upper(&work.to));
        let (at, end) = if work.reverse { (to, Some(from)) } else { (Some(from), to) };
        let at = self.short_cut(at.as_deref(), work.read_view, work.reverse).or(at);
        let (from, to) = if work.reverse { (&end, &at) } else { (&at, &end) };
        let is_empty = from.as_ref().zip(to.as_ref()).is_some_and(|(from, to)| from >= to);
        (!is_empty).then_some((at, end))
    }

    /// A walk paused before this key.
    fn pause(&self, work: &mut PageWork, key: &[u8], has_passed_dead: bool) -> Result<(), Stop> {
        let Some(key) = Key::from_encoded(key).filter(|key| work.is_ahead(key.encoded())) else {
            return Err(self.out_of_order());
        };
        let end = if work.reverse { &mut work.to } else { &mut work.from };
        *end = Bound::Included(key);
        work.skips += usize::from(has_passed_dead);
        Ok(())
    }

    /// Rows and tables in which what is read is not in order: their checksums match, so they were
    /// written so.
    #[cold]
    pub(crate) fn out_of_order(&self) -> Stop {
        let place = Place { shard: self.config.shard, offset_bytes: 0 };
        let (expected, found) = ("keys and versions in order".into(), "others".into());
        Stop::Damaged(Corruption { place, what: "rows or tables", expected, found })
    }

    /// Takes values that lie apart: all that are missing are asked for at once.
    fn fetch(&self, work: &mut PageWork) -> Result<(), Stop> {
        let memory = &self.in_memory(1);
        let (mut stop, mut asked, mut gone) = (None, 0, Vec::new());
        let PageWork { items, long, read_view, .. } = work;
        for (at, (key, meta, value)) in items.iter_mut().enumerate() {
            let (None, Body::Blob(mut pointer)) = (&value, meta.body) else { continue };
            if asked >= self.config.memory_bytes / FETCHED_SHARE {
                break;
            }
            // Since the key was met its value may have been moved, or overwritten, and its file
            // have gone.
            if self.levels.values(pointer.file).is_none() {
                match self.locate_again(key, *read_view, memory)? {
                    Again::Gone => {
                        gone.push(at);
                        continue;
                    }
                    Again::Here(found, bytes) => {
                        (*meta, *value) = (found, Some(bytes));
                        continue;
                    }
                    Again::Blob(found, there) => (*meta, pointer) = (found, there),
                }
            }
            if is_long(pointer) && asked > 0 {
                break;
            }
            asked += block_bytes(pointer);
            match self.value_in_pieces(meta.version, pointer, long, memory) {
                Err(Stop::Missing) if is_long(pointer) => {
                    stop = Some(Stop::Missing);
                    break;
                }
                Ok(found) => *value = Some(found),
                Err(Stop::Missing) => stop = Some(Stop::Missing),
                Err(damaged) => return Err(damaged),
            }
        }
        gone.into_iter().rev().for_each(|at| drop(work.items.remove(at)));
        stop.map_or(Ok(()), Err)
    }

    fn locate_again(&self, key: &Key, read_view: ReadView, memory: &InMemory<'_>) -> Result<Again, Stop> {
        let Some(located) = self.visible(key.encoded(), read_view, memory)? else { return Ok(Again::Gone) };
        match located.meta.body {
            Body::Blob(pointer) => Ok(Again::Blob(located.meta, pointer)),
            _ => Ok(Again::Here(located.meta, self.value(&located, memory)?)),
        }
    }
}
