//! [`Reads`]: what is wanted of the volume, what is in flight and who waits for it; and
//! [`InMemory`], the pages that a step of an operation or a compaction finds in memory. A step
//! notes what it lacks; whoever runs steps asks for it and hands the reads to the device.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use foldhash::HashMap;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Place};
use stratakv_device::{Block, BlockPart, Class, IoFault};
use stratakv_engine::{Effects, Error};
use stratakv_index::PageCache;
use stratakv_pmem::Pmem;

use crate::cursor::{Pages, Stop};
use crate::entry::Pointer;
use crate::levels::Levels;
use crate::matrix::Matrix;
use crate::memory::IoPurpose;
use crate::table;
use crate::volume::{Extent, LevelTable};

/// What is to be read: up to 16 pages that lie one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The first page on the volume.
    pub(crate) page: u64,
    /// How many.
    pub(crate) pages: u32,
    /// The file that they are of, and the ordinal of the first.
    pub(crate) file: u64,
    pub(crate) ordinal: u32,
    /// Whether it is a table: pages of values are checked by whoever takes a value from them.
    pub(crate) is_table: bool,
}

impl Wanted {
    pub(crate) fn class(self) -> Class {
        if self.pages == 1 { Class::Page } else { Class::Slice }
    }
}

/// Who waits for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A suspended operation.
    Operation(u64),
    /// The compaction with this number.
    Job(u64),
}

/// Pages that somebody holds until it is done, by file and ordinal: their places may have other
/// contents by then.
pub(crate) type Pins = HashMap<(u64, u32), BlockPart>;

/// One read.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) wanted: Wanted,
    pub(crate) waiters: Vec<Waiter>,
    /// Extents of which it reads something, and which can be taken again once it is over.
    pub(crate) frees: Vec<Extent>,
}

impl Flight {
    /// Whether these are some pages of a table for an operation: the next one may want them, too.
    pub(crate) fn is_short_run(&self) -> bool {
        let is_operation = |waiter: &Waiter| matches!(waiter, Waiter::Operation(_));
        self.wanted.is_table && self.wanted.pages <= COPIED_PAGES_MAX && self.waiters.iter().any(is_operation)
    }
}

/// Pages that an operation may hold when it has come further.
const PINS_MAX: usize = 128;
/// Longer runs are not copied into the cache: they are of long scans, which would drive everything
/// else out of it.
const COPIED_PAGES_MAX: u32 = 4;

/// All reads, by the first page.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    flights: BTreeMap<u64, Flight>,
    /// Those that have not been handed to the device: it has enough to do, or there is no block.
    queue: VecDeque<u64>,
    /// Those of the PMEM levels, which are loaded and not read.
    in_pmem_levels: VecDeque<u64>,
    /// Pages that the operation holds whose step runs, and those that it lacks.
    pins: Pins,
    missing: RefCell<Vec<Wanted>>,
    ahead: RefCell<Vec<Wanted>>,
}

impl Reads {
    /// Sees to it that this is read. Whether the waiter waits for one read more: of two that begin
    /// at one page there is one read, and what that leaves out is asked for again.
    pub(crate) fn ask(&mut self, wanted: Wanted, waiter: Waiter) -> bool {
        if let Some(flight) = self.flights.get_mut(&wanted.page) {
            // An operation asks again only once all that it asked for has come.
            let waits = match waiter {
                Waiter::Operation(_) => flight.waiters.last() == Some(&waiter),
                Waiter::Job(_) => flight.waiters.contains(&waiter),
            };
            if !waits {
                flight.waiters.push(waiter);
            }
            // A compaction that had it read ahead waits for it only now.
            return !waits || matches!(waiter, Waiter::Job(_));
        }
        self.flights.insert(wanted.page, Flight { wanted, waiters: vec![waiter], frees: Vec::new() });
        let is_near = Extent { page: wanted.page, pages: wanted.pages }.in_pmem_levels();
        if is_near { &mut self.in_pmem_levels } else { &mut self.queue }.push_back(wanted.page);
        true
    }

    /// Sees to it that what was missing is read. The first pages of the reads that the waiter waits
    /// for.
    pub(crate) fn ask_missing(&mut self, waiter: Waiter) -> Vec<u64> {
        let mut missing = std::mem::take(self.missing.get_mut());
        if matches!(waiter, Waiter::Operation(_)) {
            join_near(&mut missing);
        }
        missing.retain(|wanted| self.ask(*wanted, waiter));
        missing.into_iter().map(|wanted| wanted.page).collect()
    }

    /// Sees to it that what a compaction will want is read, unless the device has enough to do for
    /// those who wait: so many reads.
    pub(crate) fn ask_ahead(&mut self, number: u64, reads_max: usize) {
        for wanted in std::mem::take(self.ahead.get_mut()) {
            if self.flights.len() < reads_max {
                self.ask(wanted, Waiter::Job(number));
            }
        }
    }

    /// A step of an operation begins, which holds these pages.
    pub(crate) fn begin_step(&mut self, pins: &mut Pins) {
        std::mem::swap(&mut self.pins, pins);
        self.missing.get_mut().clear();
    }

    /// It is over. `came_further`: what it held has served; what it needs again is in the cache, or
    /// is read again.
    pub(crate) fn end_step(&mut self, pins: &mut Pins, came_further: bool) {
        if came_further && self.pins.len() > PINS_MAX {
            self.pins.clear();
        }
        std::mem::swap(&mut self.pins, pins);
    }

    /// Forgets that these operations wait; what nobody waits for then and the device does not have
    /// yet is not read. What can be taken again since. O(reads).
    pub(crate) fn give_up(&mut self, operations: &foldhash::HashSet<u64>) -> Vec<Extent> {
        let mut free = Vec::new();
        let is_gone = |waiter: &Waiter| matches!(waiter, Waiter::Operation(id) if operations.contains(id));
        for queue in [&mut self.queue, &mut self.in_pmem_levels] {
            queue.retain(|page| {
                let Some(flight) = self.flights.get_mut(page) else { return false };
                flight.waiters.retain(|waiter| !is_gone(waiter));
                let is_wanted = !flight.waiters.is_empty();
                if !is_wanted {
                    free.extend(self.flights.remove(page).into_iter().flat_map(|flight| flight.frees));
                }
                is_wanted
            });
        }
        free
    }

    /// The next one to hand to the device.
    pub(crate) fn next(&self) -> Option<Wanted> {
        self.queue.front().and_then(|page| self.flights.get(page)).map(|flight| flight.wanted)
    }

    /// It was handed over.
    pub(crate) fn begun(&mut self) {
        self.queue.pop_front();
    }

    /// The next one to load from the PMEM levels.
    pub(crate) fn next_in_pmem_levels(&self) -> Option<Wanted> {
        self.in_pmem_levels.front().and_then(|page| self.flights.get(page)).map(|flight| flight.wanted)
    }

    /// It is being loaded.
    pub(crate) fn begun_in_pmem_levels(&mut self) {
        self.in_pmem_levels.pop_front();
    }

    /// Whether only a compaction waits for a read.
    pub(crate) fn is_for_job(&self, page: u64) -> bool {
        let is_job = |waiter: &Waiter| matches!(waiter, Waiter::Job(_));
        self.flights.get(&page).is_some_and(|flight| flight.waiters.iter().all(is_job))
    }

    /// It came back.
    pub(crate) fn finish(&mut self, page: u64) -> Option<Flight> {
        self.flights.remove(&page)
    }

    /// Reads that the device has.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len() - self.queue.len() - self.in_pmem_levels.len()
    }

    /// If a page of this extent is being read, the extent waits until that is over; whether it
    /// does. O(log reads).
    pub(crate) fn hold(&mut self, extent: Extent) -> bool {
        let first = (extent.page + 1).saturating_sub(u64::from(RUN_PAGES));
        let mut flights = self.flights.range_mut(first..extent.end());
        let reads = |flight: &&mut Flight| extent.page < flight.wanted.page + u64::from(flight.wanted.pages);
        let flight = flights.find_map(|(_, flight)| Some(flight).filter(reads));
        flight.map(|flight| flight.frees.push(extent)).is_some()
    }

    /// Extents that wait until they are not read any more. O(reads).
    pub(crate) fn held(&self) -> impl Iterator<Item = &Extent> {
        self.flights.values().flat_map(|flight| &flight.frees)
    }
}

/// Makes one read of values of a file that lie near each other: a column brings them down in the
/// order of keys, so those that a scan wants of a file mostly do.
pub(crate) fn join_near(missing: &mut Vec<Wanted>) {
    missing.sort_unstable_by_key(|wanted| (wanted.is_table, wanted.page));
    missing.dedup_by(|next, first| {
        let (pages, ordinals) =
            (next.page.wrapping_sub(first.page), u64::from(next.ordinal.wrapping_sub(first.ordinal)));
        let is_near = pages == ordinals && pages <= u64::from(first.pages + GAP_PAGES_MAX);
        let together = pages + u64::from(next.pages);
        let joins =
            !first.is_table && !next.is_table && first.file == next.file && is_near && together <= u64::from(RUN_PAGES);
        if joins {
            first.pages = first.pages.max(together as u32);
        }
        joins
    });
}

/// Pages that nobody wants between two that are read at once: 8 KiB more cost less than another
/// request.
const GAP_PAGES_MAX: u32 = 2;

/// The pages of a read as parts of its block, each with its file and ordinal.
pub(crate) fn parts(block: &Arc<Block>, wanted: Wanted) -> impl Iterator<Item = ((u64, u32), BlockPart)> + '_ {
    let part =
        |page: u32| BlockPart { block: Arc::clone(block), start: page * PAGE_BYTES as u32, len: PAGE_BYTES as u32 };
    (0..wanted.pages).map(move |page| ((wanted.file, wanted.ordinal + page), part(page)))
}

/// Runs of tables that are read ahead of the one that a compaction is in: with two, compactions of
/// short values waited for reads a third of their time, with four a sixth.
const RUNS_AHEAD: u32 = 4;

/// The same of each value file that a compaction moves values out of: they are many, and a run of
/// each is held with those ahead of it.
const VALUE_RUNS_AHEAD: u32 = 2;

/// Pages of a table's index that are read ahead.
const INDEX_AHEAD_PAGES: u32 = 4;

/// Most pages of one read.
pub(crate) const RUN_PAGES: u32 = 16;

/// Pages in memory as lookups see them. What they miss is noted.
pub(crate) struct InMemory<'a> {
    pub(crate) levels: &'a Levels,
    pub(crate) cache: &'a RefCell<PageCache>,
    pub(crate) pins: &'a Pins,
    /// How many pages of a table to read at once where one is missing, and whether those that come
    /// before it.
    pub(crate) ahead_pages: u32,
    /// They are a compaction's, with these tables in the order of keys. It goes through them, and
    /// value files of which it moves what is alive, from one end to the other, and what comes next
    /// is read meanwhile. It does not wait for room outside the pool: it reads one value at a time.
    pub(crate) job: Option<[&'a [Arc<LevelTable>]; 2]>,
    pub(crate) backward: bool,
    pub(crate) missing: &'a RefCell<Vec<Wanted>>,
    /// What a compaction will want next, and does not wait for yet.
    pub(crate) ahead: &'a RefCell<Vec<Wanted>>,
    /// The file and the run that a compaction took a value from last.
    pub(crate) run: Cell<(u64, u32)>,
    pub(crate) shard: u32,
}

impl InMemory<'_> {
    fn held(&self, file: u64, ordinal: u32, page: u64) -> Option<BlockPart> {
        if let Some(part) = self.pins.get(&(file, ordinal)) {
            return Some(part.clone());
        }
        self.cache.borrow_mut().get(page).map(BlockPart::whole)
    }

    fn miss(&self, wanted: Wanted) {
        let mut missing = self.missing.borrow_mut();
        if !missing.contains(&wanted) {
            missing.push(wanted);
        }
    }

    /// Whether they are a compaction's.
    pub(crate) fn is_job(&self) -> bool {
        self.job.is_some()
    }

    /// Notes a run of values that is missing, and the next one if all of it will be read.
    fn miss_run(&self, wanted: Wanted, locate: impl Fn(u32) -> Option<u64>) {
        self.miss(wanted);
        let ordinal = wanted.ordinal + wanted.pages;
        if let Some(page) = locate(ordinal).filter(|_| self.is_job())
            && self.held(wanted.file, ordinal, page).is_none()
        {
            self.miss(Wanted { page, pages: self.run_of(page, ordinal, RUN_PAGES, locate), ordinal, ..wanted });
        }
    }

    fn want_ahead(&self, wanted: Wanted) {
        let mut ahead = self.ahead.borrow_mut();
        if !ahead.contains(&wanted) {
            ahead.push(wanted);
        }
    }

    /// A compaction is in this run of a table: what it lacks of the next ones is read while it goes
    /// through it; and where they would be behind the table's end, of the next table.
    fn read_table_ahead(&self, table: &LevelTable, run: u32) {
        let runs = table.facts.data_pages.div_ceil(RUN_PAGES);
        (run + 1..runs.min(run + 1 + RUNS_AHEAD)).for_each(|run| self.want_run_ahead(table, run));
        let left = (run + 1 + RUNS_AHEAD).saturating_sub(runs.max(run + 1));
        let is_it = |other: &Arc<LevelTable>| other.facts.file == table.facts.file;
        let mut next = self.job.iter().flatten().filter_map(|tables| tables.get(tables.iter().position(is_it)? + 1));
        if let Some(next) = next.next().filter(|_| left > 0) {
            self.want_index_ahead(next);
            (0..left.min(next.facts.data_pages.div_ceil(RUN_PAGES))).for_each(|run| self.want_run_ahead(next, run));
        }
    }

    /// What is missing of a run, from the first page that is.
    fn want_run_ahead(&self, table: &LevelTable, run: u32) {
        let end = table.facts.data_pages.min((run + 1) * RUN_PAGES);
        let is_missing = |ordinal: u32| {
            let page = Extent::locate(&table.extents, ordinal)?;
            self.held(table.facts.file, ordinal, page).is_none().then_some((ordinal, page))
        };
        if let Some((ordinal, page)) = (run * RUN_PAGES..end).find_map(is_missing) {
            self.want_ahead(self.rest_of_run(table, ordinal, page));
        }
    }

    /// A run of a table from this page on, as far as it lies in one piece.
    fn rest_of_run(&self, table: &LevelTable, ordinal: u32, page: u64) -> Wanted {
        let end = table.facts.data_pages.min((ordinal / RUN_PAGES + 1) * RUN_PAGES);
        let locate = |next: u32| (next < end).then(|| Extent::locate(&table.extents, next))?;
        let pages = self.run_of(page, ordinal, RUN_PAGES, locate);
        Wanted { page, pages, file: table.facts.file, ordinal, is_table: true }
    }

    /// The index of a table is wanted wherever a compaction goes on in it.
    fn want_index_ahead(&self, table: &LevelTable) {
        let (first, end) = (table.facts.data_pages, table.facts.filter_first());
        for ordinal in first..end.min(first + INDEX_AHEAD_PAGES) {
            let Some(page) = Extent::locate(&table.extents, ordinal) else { break };
            if self.held(table.facts.file, ordinal, page).is_none() {
                self.want_ahead(Wanted { page, pages: 1, file: table.facts.file, ordinal, is_table: true });
            }
        }
    }

    /// Where a read begins that a compaction waits for: at the first page of the run that is
    /// missing too, so that it is the read that was asked for ahead, if there is one.
    fn missing_from(&self, table: &LevelTable, ordinal: u32, page: u64) -> (u64, u32) {
        let is_missing = |less: &u32| {
            let (before, place) = (ordinal - less, page.checked_sub(u64::from(*less)));
            let is_there = Extent::locate(&table.extents, before).is_some_and(|page| Some(page) == place);
            is_there && place.is_some_and(|page| self.held(table.facts.file, before, page).is_none())
        };
        let less = (1..=ordinal % RUN_PAGES).take_while(is_missing).count() as u32;
        (page - u64::from(less), ordinal - less)
    }

    /// A compaction is in the run of values that `here` is of: the next ones are read while it goes
    /// through it.
    fn read_ahead(&self, here: Wanted, locate: impl Fn(u32) -> Option<u64>) {
        for ordinal in (1..=VALUE_RUNS_AHEAD).map(|run| here.ordinal + run * RUN_PAGES) {
            let Some(page) = locate(ordinal) else { break };
            if self.held(here.file, ordinal, page).is_none() {
                let pages = self.run_of(page, ordinal, RUN_PAGES, &locate);
                self.want_ahead(Wanted { page, pages, ordinal, ..here });
            }
        }
    }

    /// Where the run of a value file begins that has this page: runs of a compaction begin at
    /// multiples of their length, whichever value of one it meets first, so that no page is in two.
    fn aligned(&self, page: u64, ordinal: u32, locate: impl Fn(u32) -> Option<u64>) -> (u64, u32) {
        let begin = ordinal / RUN_PAGES * RUN_PAGES;
        let is_there = |first: &u64| (begin..ordinal).all(|next| locate(next) == Some(first + u64::from(next - begin)));
        match page.checked_sub(u64::from(ordinal - begin)).filter(|first| self.is_job() && is_there(first)) {
            Some(first) => (first, begin),
            None => (page, ordinal),
        }
    }

    fn damaged(&self, what: &'static str, expected: String, found: u32) -> Stop {
        let place = Place { shard: self.shard, offset_bytes: 0 };
        Stop::Damaged(Corruption { place, what, expected, found: found.to_string() })
    }

    /// As many pages from `ordinal` on as lie side by side on the volume, at most `most`.
    fn run_of(&self, page: u64, ordinal: u32, most: u32, locate: impl Fn(u32) -> Option<u64>) -> u32 {
        let is_next = |more: &u32| locate(ordinal + more) == Some(page + u64::from(*more));
        1 + (1..most.clamp(1, RUN_PAGES)).take_while(is_next).count() as u32
    }

    /// Where a read begins that ends with a page of a table, on the way back.
    fn run_begin(&self, page: u64, ordinal: u32, ahead_pages: u32, locate: impl Fn(u32) -> Option<u64>) -> (u64, u32) {
        if !self.backward {
            return (page, ordinal);
        }
        let is_before = |less: &u32| {
            let place = ordinal.checked_sub(*less).and_then(&locate);
            place.is_some() && place == page.checked_sub(u64::from(*less))
        };
        let less = (1..ahead_pages.clamp(1, RUN_PAGES)).take_while(is_before).count() as u32;
        (page - u64::from(less), ordinal - less)
    }

    /// Appends a value that lies in a value file to `into`, its checksum not compared yet.
    ///
    /// # Errors
    /// [`Stop::Missing`]; all that is missing has been noted.
    pub(crate) fn value(&self, pointer: Pointer, into: &mut Vec<u8>) -> Result<bool, Stop> {
        let (first, end) = (
            pointer.offset / PAGE_BYTES as u64,
            (pointer.offset + u64::from(pointer.value_bytes)).div_ceil(PAGE_BYTES as u64),
        );
        let (Ok(first), Ok(end)) = (u32::try_from(first), u32::try_from(end)) else { return Ok(false) };
        let mut held = Vec::new();
        let locate = |ordinal| self.levels.locate_value(pointer, ordinal);
        let mut ordinal = first;
        let mut missing = false;
        while ordinal < end {
            let Some(page) = locate(ordinal) else { return Ok(false) };
            match self.held(pointer.file, ordinal, page) {
                Some(part) => {
                    let run = (pointer.file, ordinal / RUN_PAGES);
                    if self.is_job() && self.run.replace(run) != run {
                        let (file, ordinal) = (pointer.file, run.1 * RUN_PAGES);
                        self.read_ahead(Wanted { page, pages: 1, file, ordinal, is_table: false }, locate);
                    }
                    held.push(part);
                    ordinal += 1;
                }
                None => {
                    let (page, begin) = self.aligned(page, ordinal, locate);
                    let most = if self.is_job() { RUN_PAGES - begin % RUN_PAGES } else { end - begin };
                    let pages = self.run_of(page, begin, most, locate);
                    let wanted = Wanted { page, pages, file: pointer.file, ordinal: begin, is_table: false };
                    self.miss_run(wanted, locate);
                    missing = true;
                    ordinal = begin + pages;
                }
            }
        }
        if missing {
            return Err(Stop::Missing);
        }
        let (mut start, mut left) = ((pointer.offset % PAGE_BYTES as u64) as usize, pointer.value_bytes as usize);
        for part in held {
            let bytes = part.bytes().get(start..).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(left)];
            into.extend_from_slice(bytes);
            left -= bytes.len();
            start = 0;
        }
        Ok(left == 0)
    }
}

impl Pages for InMemory<'_> {
    fn page(&self, file: u64, ordinal: u32) -> Result<BlockPart, Stop> {
        let table = self.levels.table(file);
        let Some((table, page)) = table.and_then(|table| Some((table, Extent::locate(&table.extents, ordinal)?)))
        else {
            return Err(self.damaged("page number in an index", format!("a page of table {file}"), ordinal));
        };
        let data_pages = table.facts.data_pages;
        if let Some(part) = self.held(file, ordinal, page) {
            // Data pages are gone through one by one, so a run is entered at its first page.
            if self.is_job() && ordinal < data_pages && ordinal.is_multiple_of(RUN_PAGES) {
                self.read_table_ahead(table, ordinal / RUN_PAGES);
            }
            return Ok(part);
        }
        if self.is_job() && ordinal < data_pages {
            let (page, first) = self.missing_from(table, ordinal, page);
            self.miss(self.rest_of_run(table, first, page));
            self.want_index_ahead(table);
            self.read_table_ahead(table, ordinal / RUN_PAGES);
            return Err(Stop::Missing);
        }
        // Of an index and a filter one page is wanted, again and again: read alone it stays in the
        // cache.
        let ahead_pages = if ordinal < data_pages { self.ahead_pages } else { 1 };
        let locate = |next: u32| (next < data_pages).then(|| Extent::locate(&table.extents, next))?;
        let (page, ordinal) = self.run_begin(page, ordinal, ahead_pages, locate);
        let pages = self.run_of(page, ordinal, ahead_pages, locate);
        self.miss(Wanted { page, pages, file, ordinal, is_table: true });
        Err(Stop::Missing)
    }
}

impl<P: Pmem> Matrix<P> {
    /// The pages that the operation in hand can use; `ahead_pages` are read at once where one is
    /// missing.
    pub(crate) fn in_memory(&self, ahead_pages: u32) -> InMemory<'_> {
        InMemory {
            levels: &self.levels,
            cache: self.memory.cache(),
            pins: &self.reads.pins,
            ahead_pages,
            backward: false,
            job: None,
            missing: &self.reads.missing,
            ahead: &self.reads.ahead,
            run: Cell::default(),
            shard: self.config.shard,
        }
    }

    /// Reads come back: those who wait get their pages.
    pub(crate) fn read_done(&mut self, page: u64, block: Block, result: Result<(), IoFault>, effects: &mut Effects) {
        let Some(flight) = self.reads.finish(page) else { return };
        let wanted = flight.wanted;
        // Others may read a part of it, too.
        self.volume.defer(flight.frees.iter().copied());
        let checked = match result {
            Ok(()) => self.check_pages(wanted, &block),
            // Whatever was there was written, so it is lost.
            Err(IoFault::Short) => Err(Error::Corrupt(Corruption {
                place: Place { shard: self.config.shard, offset_bytes: page * 4096 },
                what: "file",
                expected: "a page".into(),
                found: "the end of the volume".into(),
            })),
            Err(fault) => Err(Error::Io { what: "a read", fault }),
        };
        self.counters.reads.page_reads += u64::from(wanted.pages);
        let block = Arc::new(block);
        if checked.is_ok() && wanted.pages == 1 {
            self.memory.cache_page(page, Arc::clone(&block));
        } else if checked.is_ok() && flight.is_short_run() {
            self.cache_copies(wanted, &block, effects);
        }
        for waiter in flight.waiters {
            match (waiter, &checked) {
                (Waiter::Operation(id), Ok(())) => self.scheduler.read_done(id, parts(&block, wanted)),
                (Waiter::Operation(id), Err(error)) if self.scheduler.bears(id, error) => {
                    self.scheduler.read_done(id, std::iter::empty());
                }
                (Waiter::Operation(id), Err(error)) => self.fail_operation(id, error.clone(), effects),
                (Waiter::Job(number), checked) => {
                    let Some(job) = self.compactor.job_mut().filter(|job| job.number == number) else { continue };
                    match checked {
                        Ok(()) => job.reads.take(page, parts(&block, wanted)),
                        // What was read ahead is perhaps never wanted; if it is, it is read again.
                        Err(error) if job.reads.waits_for(page) => self.fail_job(error.clone()),
                        Err(_) => {}
                    }
                }
            }
        }
    }

    fn check_pages(&mut self, wanted: Wanted, block: &Block) -> Result<(), Error> {
        if !wanted.is_table {
            return Ok(());
        }
        let (file, first) = (wanted.file, wanted.ordinal);
        for (ordinal, page) in (first..).zip(block.chunks(4096)).take(wanted.pages as usize) {
            if let Err(mut corruption) = table::verify(page, &self.config.uuid, file, ordinal) {
                self.locate_damage(&mut corruption, wanted.page + u64::from(ordinal - first));
                self.counters.corrupt_records += 1;
                return Err(Error::Corrupt(corruption));
            }
        }
        Ok(())
    }

    /// Puts pages of a run into the cache, each in a block of its own: all of the run's is held
    /// while one of its pages is.
    pub(crate) fn cache_copies(&mut self, wanted: Wanted, block: &Block, effects: &Effects) {
        for (page, bytes) in (wanted.page..).zip(block.chunks(PAGE_BYTES)).take(wanted.pages as usize) {
            if self.memory.cache().borrow().peek(page).is_some() {
                continue;
            }
            let Some(mut copy) = self.memory.spare_block(Class::Page, effects) else { break };
            copy.copy_from_slice(bytes);
            self.memory.cache_page(page, Arc::new(copy));
        }
    }

    /// Puts pages of a table that are being written into the cache, as far as there are blocks that
    /// nobody has: those that it takes the place of leave the cache when it is installed. So what
    /// compactions merge again and again is not read from the device again and again while there is
    /// memory for it, and a get finds the page that says where its value is.
    pub(crate) fn cache_written(&mut self, place_bytes: u64, part: &BlockPart, effects: &Effects) {
        for (page, bytes) in (place_bytes / PAGE_BYTES as u64..).zip(part.bytes().chunks(PAGE_BYTES)) {
            let Some(mut copy) = effects.block(Class::Page) else { break };
            copy.copy_from_slice(bytes);
            self.memory.cache_page(page, Arc::new(copy));
        }
    }

    /// Hands reads to the device, as many as it should have.
    pub(crate) fn pump_reads(&mut self, effects: &mut Effects) {
        while let Some(wanted) = self.reads.next() {
            if self.reads.in_flight() >= self.config.depth as usize {
                break;
            }
            let Some(block) = self.memory.take_block(wanted.class(), effects) else { break };
            self.reads.begun();
            let len = wanted.pages * 4096;
            self.counters.reads.reads += 1;
            self.counters.reads.read_bytes += u64::from(len);
            let io = self.memory.start(IoPurpose::Read(wanted.page));
            if self.reads.is_for_job(wanted.page) {
                effects.background(io);
            }
            effects.read(io, wanted.page * 4096, block, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::Change;
    use crate::table::TableFacts;
    use crate::volume::ValueFile;

    /// First page and length of what is missing, and of what is wanted ahead, as a compaction of
    /// these tables with these pages does something.
    fn wanted_by(
        levels: &Levels,
        tables: &[Arc<LevelTable>],
        pins: &Pins,
        does: impl Fn(&InMemory<'_>),
    ) -> [Vec<(u64, u32)>; 2] {
        let cache = RefCell::new(PageCache::new());
        let (missing, ahead) = (RefCell::default(), RefCell::default());
        does(&InMemory {
            levels,
            cache: &cache,
            pins,
            ahead_pages: RUN_PAGES,
            job: Some([&[], tables]),
            backward: false,
            missing: &missing,
            ahead: &ahead,
            run: Cell::default(),
            shard: 0,
        });
        [missing, ahead].map(|reads| reads.take().iter().map(|read| (read.page, read.pages)).collect())
    }

    /// The pieces of a file lay so that a run seemed to begin in the first one, over a gap that is
    /// another piece's: the compaction went round for ever.
    #[test]
    fn a_run_is_not_aligned_over_a_gap() {
        let extents =
            vec![Extent { page: 100, pages: 6 }, Extent { page: 500, pages: 5 }, Extent { page: 111, pages: 4 }];
        let file = ValueFile { file: 9, extents, bytes: 15 * 4096, live_bytes: 15 * 4096, unreferenced: false };
        let mut levels = Levels::default();
        levels.apply(Change { values: vec![file], ..Change::default() });
        let pointer = Pointer { file: 9, offset: 11 * 4096, value_bytes: 3 * 4096, checksum: 0 };
        let go = |memory: &InMemory<'_>| {
            assert!(matches!(memory.value(pointer, &mut Vec::new()), Err(Stop::Missing)));
        };
        assert_eq!(wanted_by(&levels, &[], &Pins::default(), go)[0], [(111, 4)]);
    }

    fn table(file: u64, data_pages: u32, extents: Vec<Extent>) -> Arc<LevelTable> {
        let key: Box<[u8]> = file.to_be_bytes().into();
        let facts = TableFacts {
            file,
            entries: 1,
            pages: data_pages + 2,
            plain_pages: data_pages + 2,
            data_pages,
            root: data_pages,
            index_levels: 1,
            filter_pages: 1,
            lowest_version: 1,
            highest_version: 1,
            first_key: key.clone(),
            last_key: key,
            deletes: 0,
            blob: Vec::new(),
        };
        Arc::new(LevelTable { facts, extents, clean_version: u64::MAX })
    }

    /// As [`wanted_by`], when it goes to a page.
    fn wanted_at(
        tables: &[Arc<LevelTable>],
        at: (u64, u32),
        has: &[(u64, std::ops::Range<u32>)],
    ) -> [Vec<(u64, u32)>; 2] {
        let mut levels = Levels::default();
        let added = tables.iter().map(|table| (0, LevelTable::clone(table))).collect();
        levels.apply(Change { added, ..Change::default() });
        let pool = stratakv_device::Pool::new(1 << 20);
        let block = Arc::new(pool.take(Class::Page).expect("a block"));
        let names = has.iter().flat_map(|(file, pages)| pages.clone().map(|page| (*file, page)));
        let pins: Pins = names.map(|name| (name, BlockPart::whole(Arc::clone(&block)))).collect();
        wanted_by(&levels, tables, &pins, |memory| _ = memory.page(at.0, at.1))
    }

    /// Compactions waited for the first pages of each table and for its index, and for each page
    /// behind one that the cache had: a third of their time.
    #[test]
    fn a_compaction_reads_ahead_into_the_next_table() {
        let tables =
            [table(1, 40, vec![Extent { page: 100, pages: 42 }]), table(2, 20, vec![Extent { page: 300, pages: 22 }])];
        // Its first page is missing: that run is waited for; the others, the index, and what begins
        // the next table are read meanwhile.
        let [missing, ahead] = wanted_at(&tables, (1, 0), &[]);
        assert_eq!(missing, [(100, 16)]);
        assert_eq!(ahead, [(140, 1), (116, 16), (132, 8), (320, 1), (300, 16), (316, 4)]);
        // Of what is there nothing is read again, and a run from its first page that is not.
        let has = [(1, 0..18), (1, 20..21), (1, 32..41), (2, 0..16)];
        let [missing, ahead] = wanted_at(&tables, (1, 0), &has);
        assert!(missing.is_empty());
        assert_eq!(ahead, [(118, 14), (320, 1), (316, 4)]);
        // In the middle of a run nothing is looked for, and one that is missing is the read that
        // was asked for ahead.
        assert_eq!(wanted_at(&tables, (1, 17), &has), [vec![], vec![]]);
        let [missing, ahead] = wanted_at(&tables, (1, 19), &has);
        assert_eq!(missing, [(118, 14)]);
        assert_eq!(ahead, [(320, 1), (316, 4)]);
    }

    /// As [`a_run_is_not_aligned_over_a_gap`], of a table.
    #[test]
    fn a_run_of_a_table_ends_where_its_extent_does() {
        let extents = [100, 500, 111].map(|page| Extent { page, pages: 6 });
        let tables = [table(1, 16, extents.to_vec())];
        assert_eq!(wanted_at(&tables, (1, 13), &[])[0], [(111, 4)]);
        assert_eq!(wanted_at(&tables, (1, 8), &[])[0], [(500, 6)]);
        assert_eq!(wanted_at(&tables, (1, 3), &[])[0], [(100, 6)]);
    }

    #[test]
    fn values_near_each_other_are_one_read() {
        let wanted =
            |page: u64, pages: u32, file: u64, ordinal: u32| Wanted { page, pages, file, ordinal, is_table: false };
        let table = Wanted { is_table: true, ..wanted(106, 1, 1, 6) };
        let mut missing = vec![
            wanted(104, 2, 1, 4),
            table,
            wanted(100, 2, 1, 0),
            wanted(108, 1, 1, 8),
            // Too far, in another piece of the file, of another file, too long together.
            wanted(112, 1, 1, 12),
            wanted(113, 1, 1, 40),
            wanted(114, 8, 2, 0),
            wanted(122, 9, 2, 8),
        ];
        join_near(&mut missing);
        let expected = [
            wanted(100, 9, 1, 0),
            wanted(112, 1, 1, 12),
            wanted(113, 1, 1, 40),
            wanted(114, 8, 2, 0),
            wanted(122, 9, 2, 8),
            table,
        ];
        assert_eq!(missing, expected);
        let mut overlapping = vec![wanted(100, 4, 1, 0), wanted(101, 1, 1, 1)];
        join_near(&mut overlapping);
        assert_eq!(overlapping, [wanted(100, 4, 1, 0)]);
    }
}
