//! One compaction: a column of L0 into L1, or a table of a level into the next. It is planned, then
//! run in steps, each at the end of a tick; then it is installed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::fault_point;
use stratakv_device::{Block, BlockPart};
use stratakv_pmem::Pmem;

use crate::config::Compression;
use crate::container::{Column, RowPart};
use crate::cursor::{Cursor, Stop};
use crate::entry::{Body, Meta, Pointer, value_checksum};
use crate::level_cursor::LevelCursor;
use crate::levels::Change;
use crate::load::{Load, LoadCursor};
use crate::lookup::{LongRead, value_bytes};
use crate::matrix::Matrix;
use crate::merge::Merge;
use crate::output::{Output, Role};
use crate::ranges::RangeDeletes;
use crate::reading::{InMemory, Pins, RUN_PAGES};
use crate::retention::{Kept, OF_A_RANGE, Readers};
use crate::snapshots::{KeptFor, add_kept};
use crate::table::values::{BLOB_BYTES_MIN, ValuesWriter};
use crate::table::{Builder, TableFacts};
use crate::volume::{LevelTable, ValueFile};

/// Reads of up to 16 pages that a job holds: two tables, with their indexes, and the value files
/// that it moves values out of, each with what is read ahead.
const READS_HELD: usize = 32;
/// A table ends when it lies above more than so many of the next level: so a table can be brought
/// down in little room, and in little time.
pub(crate) const TABLES_BELOW_MAX: usize = 6;
/// Bits of a table's filter for each key.
const FILTER_BITS: u32 = 10;

/// What a job takes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A column of the compactor.
    Column(Column),
    /// Tables of this level.
    Level { tables: Vec<Arc<LevelTable>> },
    /// Records of a load.
    Load(Load),
}

/// Which values that it meets a job moves to new files.
#[derive(Debug)]
pub(crate) enum Moves {
    /// None.
    Nothing,
    /// Those in these files, in order, since they are met anyway.
    Met(Vec<u64>),
    /// Those in these files, in order: that is what it is there for.
    Files(Vec<u64>),
}

/// The pages of a read, and its block; without pages there is none.
type TakenRead = (Vec<(u64, u32)>, Option<Arc<Block>>);

/// A compaction under way.
#[derive(Debug)]
pub(crate) struct Job {
    /// Reads that were begun for another one are not for this one.
    pub(crate) number: u64,
    pub(crate) source: Source,
    /// Which values it moves to new files.
    pub(crate) moves: Moves,
    /// Where it goes: a level, 0 is the first one below L0.
    pub(crate) level: usize,
    /// What is left of the column in each row.
    parts: Vec<RowPart>,
    /// Tables there with keys of its range.
    below: Vec<Arc<LevelTable>>,
    /// The first key that it has not dealt with.
    position: Vec<u8>,
    /// All keys are dealt with.
    pub(crate) merged: bool,
    /// Pages read for it.
    pub(crate) pins: Pins,
    /// What was read for it: the oldest go first.
    read: VecDeque<TakenRead>,
    /// First pages of the reads that it waits for, and how many those were.
    missing: Vec<u64>,
    asked: usize,
    /// A long value that is being read, and those of its key that were read, to be moved.
    long: Option<LongRead>,
    moved: Vec<(Pointer, Bytes)>,
    table: Option<(Builder, Output)>,
    /// Tables of the level below its own that lie before the last key; and those of them that the
    /// open table lies above.
    passed: usize,
    lies_above: usize,
    /// Another table begins at the first key from here on.
    cut: Option<Vec<u8>>,
    /// A load waits for it: it is that, or makes room for it between two keys.
    pub(crate) for_load: bool,
    values: Option<(ValuesWriter, Output)>,
    /// Files that are finished, but for their last writes.
    pub(crate) finished: Vec<Output>,
    pub(crate) change: Change,
    /// Deletes of ranges when it began; and up to which of them the open table has nothing that
    /// they hide.
    pub(crate) ranges: Arc<RangeDeletes>,
    clean_version: u64,
    /// What the open table has only for snapshots, and the finished ones by file.
    kept: Vec<KeptFor>,
    pub(crate) kept_in: Vec<(u64, Vec<KeptFor>)>,
    scratch: Scratch,
    /// The last key that was written: the next one lies behind it.
    last_key: Vec<u8>,
    /// Bytes of keys and values that went in.
    pub(crate) read_bytes: u64,
    /// What its tables are written as.
    pub(crate) compression: Compression,
}

/// Versions of one key.
#[derive(Debug, Default)]
struct Scratch {
    key: Vec<u8>,
    metas: Vec<Meta>,
    /// Where each one's value ends in `values`.
    ends: Vec<usize>,
    values: Vec<u8>,
}

impl Scratch {
    /// Takes all versions of the cursor's key.
    fn fill(&mut self, cursor: &mut impl Cursor) -> Result<(), Stop> {
        self.key.clear();
        self.metas.clear();
        self.ends.clear();
        self.values.clear();
        self.key.extend_from_slice(cursor.key().unwrap_or_default());
        while let Some(meta) = cursor.meta().filter(|_| cursor.key() == Some(&self.key)) {
            cursor.value(&mut self.values)?;
            self.metas.push(meta);
            self.ends.push(self.values.len());
            cursor.next()?;
        }
        Ok(())
    }

    fn value(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(at).and_then(|end| self.values.get(start..*end)).unwrap_or_default()
    }

    fn bytes(&self) -> u64 {
        (self.key.len() * self.metas.len() + self.values.len()) as u64
    }
}

impl Job {
    pub(crate) fn new(source: Source, level: usize, below: Vec<Arc<LevelTable>>) -> Job {
        let mut change = Change::default();
        change.removed.extend(below.iter().map(|table| table.facts.file));
        if let Source::Level { tables, .. } = &source {
            change.removed.extend(tables.iter().map(|table| table.facts.file));
        }
        Job {
            number: 0,
            moves: Moves::Met(Vec::new()),
            source,
            level,
            parts: Vec::new(),
            below,
            // Not where the column begins: a table below may begin before it.
            position: Vec::new(),
            merged: false,
            pins: Pins::default(),
            read: VecDeque::new(),
            missing: Vec::new(),
            asked: 0,
            long: None,
            moved: Vec::new(),
            table: None,
            passed: 0,
            lies_above: 0,
            cut: None,
            for_load: false,
            values: None,
            finished: Vec::new(),
            change,
            ranges: Arc::default(),
            clean_version: u64::MAX,
            kept: Vec::new(),
            kept_in: Vec::new(),
            scratch: Scratch::default(),
            last_key: Vec::new(),
            read_bytes: 0,
            compression: Compression::None,
        }
    }

    /// A column, with what each row has of it, merged with these tables.
    pub(crate) fn of_column(column: Column, parts: Vec<RowPart>, below: Vec<Arc<LevelTable>>) -> Job {
        Job { parts, ..Job::new(Source::Column(column), 0, below) }
    }

    /// A load, into a level where nothing is in its way.
    pub(crate) fn of_load(load: Load, level: usize) -> Job {
        Job { for_load: true, ..Job::new(Source::Load(load), level, Vec::new()) }
    }

    /// A table of a level becomes two, the second of which begins at the first key from `cut` on.
    pub(crate) fn of_split(table: Arc<LevelTable>, level: usize, cut: Vec<u8>) -> Job {
        let job = Job::new(Source::Level { tables: vec![table] }, level, Vec::new());
        Job { for_load: true, cut: Some(cut), moves: Moves::Nothing, ..job }
    }

    /// Whether it is a load.
    pub(crate) fn is_load(&self) -> bool {
        matches!(self.source, Source::Load(_))
    }

    /// The files that its tables have values in, and bytes of them.
    pub(crate) fn blob(&self) -> BTreeMap<u64, u64> {
        let mut files = BTreeMap::new();
        for (file, bytes) in self.tables().flat_map(|table| &table.facts.blob) {
            *files.entry(*file).or_default() += bytes;
        }
        files
    }

    /// Pages of what it reads, if nothing of that were compressed: what it makes takes hardly more,
    /// values that are moved aside. What it makes may be compressed less than what it reads, or not
    /// at all: entries come to lie beside others, and compression may be off by now.
    pub(crate) fn pages_in(&self) -> u64 {
        self.pages_likely() + self.growth_pages()
    }

    /// By how many pages what it makes may be longer than what it reads, if it is compressed no
    /// more.
    pub(crate) fn growth_pages(&self) -> u64 {
        let growth = |facts: &TableFacts| u64::from(facts.plain_pages.saturating_sub(facts.pages));
        self.tables().map(|table| growth(&table.facts)).sum()
    }

    fn tables(&self) -> impl Iterator<Item = &Arc<LevelTable>> {
        let tables = if let Source::Level { tables } = &self.source { &tables[..] } else { &[] };
        tables.iter().chain(&self.below)
    }

    /// Pages of what it makes, if its tables are compressed as well as those that it reads.
    pub(crate) fn pages_likely(&self) -> u64 {
        let pages = self.tables().map(|table| u64::from(table.facts.pages)).sum::<u64>();
        let brought = match &self.source {
            // Values that columns bring begin at pages of their own at worst.
            Source::Column(column) => column.bytes.div_ceil(4096) * 5 / 4 + 1,
            Source::Load(load) => load.pages(),
            Source::Level { .. } => 0,
        };
        pages + brought + 4
    }

    /// It waits for the reads that begin at these pages.
    pub(crate) fn wait_for(&mut self, reads: Vec<u64>) {
        (self.asked, self.missing) = (reads.len(), reads);
    }

    pub(crate) fn waits(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Whether it waits for the read that begins at this page.
    pub(crate) fn waits_for(&self, page: u64) -> bool {
        self.missing.contains(&page)
    }

    /// Pages were read for it, from this one on. It keeps all reads that it asked for together, and
    /// some older ones; what it needs again of those that went is read again.
    pub(crate) fn take(&mut self, first: u64, parts: impl Iterator<Item = ((u64, u32), BlockPart)>) {
        let (mut names, mut block) = (Vec::new(), None);
        for (name, part) in parts {
            names.push(name);
            block.get_or_insert_with(|| Arc::clone(&part.block));
            self.pins.insert(name, part);
        }
        self.missing.retain(|page| *page != first);
        self.read.push_back((names, block));
        while self.read.len() > READS_HELD.max(self.asked) {
            let Some((names, block)) = self.read.pop_front() else { break };
            // A page that was read twice goes with the later read.
            let goes = |part: &BlockPart| {
                fault_point!("trial_pages_go_with_the_first_read", return true);
                block.as_ref().is_some_and(|block| Arc::ptr_eq(block, &part.block))
            };
            for name in names {
                if self.pins.get(&name).is_some_and(goes) {
                    self.pins.remove(&name);
                }
            }
        }
    }

    /// Lets go of what was read for it.
    pub(crate) fn release(&mut self) {
        self.pins.clear();
        self.read.clear();
    }

    /// Whether everything it made is on the medium, though perhaps in its cache.
    pub(crate) fn is_written(&self) -> bool {
        self.merged && self.finished.iter().all(Output::is_written)
    }

    /// Its files that are not all written.
    pub(crate) fn outputs(&mut self) -> impl Iterator<Item = &mut Output> {
        let open = self.table.iter_mut().map(|(_, output)| output);
        open.chain(self.values.iter_mut().map(|(_, output)| output)).chain(&mut self.finished)
    }

    pub(crate) fn all_outputs(&self) -> impl Iterator<Item = &Output> {
        let open = self.table.iter().map(|(_, output)| output).chain(self.values.iter().map(|(_, output)| output));
        open.chain(&self.finished)
    }

    pub(crate) fn into_outputs(self) -> impl Iterator<Item = Output> {
        let open = self.table.map(|(_, output)| output).into_iter().chain(self.values.map(|(_, output)| output));
        open.chain(self.finished)
    }

    /// Bytes made that no write has been begun for.
    pub(crate) fn backlog_bytes(&mut self) -> usize {
        self.outputs().map(|output| output.backlog_bytes()).sum()
    }

    fn end_table(&mut self) {
        let Some((builder, mut output)) = self.table.take() else { return };
        if let Some(facts) = builder.finish(&mut |page| output.push(page)) {
            output.end();
            self.kept_in.push((facts.file, std::mem::take(&mut self.kept)));
            let clean_version = std::mem::replace(&mut self.clean_version, u64::MAX).min(self.ranges.newest());
            self.change.added.push((self.level, LevelTable { facts, extents: Vec::new(), clean_version }));
            self.finished.push(output);
        }
    }

    fn end_values(&mut self) {
        let Some((writer, mut output)) = self.values.take() else { return };
        let facts = writer.finish(&mut |page| output.push(page));
        output.end();
        let (file, bytes) = (output.file(), facts.value_bytes);
        self.change.values.push(ValueFile { file, extents: Vec::new(), bytes, live_bytes: bytes, unreferenced: false });
        self.finished.push(output);
    }
}

impl<P: Pmem> Matrix<P> {
    /// Merges about `budget_bytes`. What it lacks has been asked for if it stops early.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn merge(&self, job: &mut Job, budget_bytes: u64) -> Result<(), Stop> {
        let pins = std::mem::take(&mut job.pins);
        let (source, below) =
            (std::mem::replace(&mut job.source, Source::Level { tables: Vec::new() }), std::mem::take(&mut job.below));
        let above = if let Source::Level { tables } = &source { &tables[..] } else { &[] };
        let memory = InMemory { pins: &pins, job: Some([above, &below]), ..self.in_memory(RUN_PAGES) };
        let done = self.merge_from(job, (&source, &below), budget_bytes, &memory);
        (job.source, job.below, job.pins) = (source, below, pins);
        done
    }

    fn merge_from(
        &self,
        job: &mut Job,
        (source, below): (&Source, &[Arc<LevelTable>]),
        budget_bytes: u64,
        memory: &InMemory<'_>,
    ) -> Result<(), Stop> {
        let mut sought: Vec<Box<dyn Cursor + '_>> = match source {
            Source::Column(_) => Vec::new(),
            Source::Level { tables, .. } => vec![Box::new(LevelCursor::new(tables, memory))],
            Source::Load(load) => vec![Box::new(LoadCursor::new(load))],
        };
        sought.push(Box::new(LevelCursor::new(below, memory)));
        let mut cursor = Merge::new(sought);
        cursor.seek(&job.position)?;
        let rows = self.container.part_cursors(&mut job.parts, &job.position)?;
        cursor.join(rows.into_iter().map(|row| Box::new(row) as Box<dyn Cursor + '_>));
        let until = job.read_bytes + budget_bytes;
        while job.read_bytes < until {
            if cursor.key().is_none() {
                job.end_table();
                job.end_values();
                job.merged = true;
                return Ok(());
            }
            job.scratch.fill(&mut cursor)?;
            job.read_bytes += job.scratch.bytes();
            self.emit(job, memory)?;
            job.position.clear();
            job.position.extend_from_slice(&job.scratch.key);
            job.position.push(0);
        }
        Ok(())
    }

    /// Writes what is kept of one key.
    fn emit(&self, job: &mut Job, memory: &InMemory<'_>) -> Result<(), Stop> {
        let scratch = std::mem::take(&mut job.scratch);
        let in_order = scratch.metas.windows(2).all(|pair| pair[0].version > pair[1].version);
        if !in_order || scratch.key <= job.last_key {
            job.scratch = scratch;
            return Err(self.out_of_order());
        }
        let bottom = || !self.levels.lies_above(job.level, &scratch.key, &scratch.key);
        let last_is_gone =
            scratch.metas.iter().any(|meta| meta.body == Body::Delete || meta.expiry.is_past(self.life.wall()));
        let readers =
            Readers { snapshots: self.snapshots.versions(), now: self.life.wall(), bottom: last_is_gone && bottom() };
        let ranges = job.ranges.clone();
        let deletes = ranges.over(&scratch.key);
        let kept = match deletes {
            [] => readers.keep(&scratch.metas),
            _ => readers.keep_under(&scratch.metas, deletes),
        };
        // First all that can stop: nothing is written twice. What was read of a key is kept until
        // all is.
        for (_, meta) in &kept {
            if let Body::Blob(pointer) = meta.body
                && self.moves_from(&job.moves, pointer.file)
                && !job.moved.iter().any(|(moved, _)| *moved == pointer)
            {
                match self.value_in_pieces(meta.version, pointer, &mut job.long, memory) {
                    Ok(value) => {
                        job.read_bytes += value.len() as u64;
                        job.moved.push((pointer, value));
                    }
                    Err(stop) => {
                        job.scratch = scratch;
                        return Err(stop);
                    }
                }
            }
        }
        let moved = std::mem::take(&mut job.moved);
        self.account(job, &scratch, &kept, &moved);
        let entries = || kept.iter().filter(|(at, _)| *at != OF_A_RANGE);
        if entries().next().is_some() {
            self.end_long_table(job, &scratch.key);
        }
        for pair in kept.windows(2) {
            let [(_, newer), (at, older)] = pair else { continue };
            if let Some((oldest, newest)) = readers.between(older.version, newer.version).filter(|_| *at != OF_A_RANGE)
            {
                let bytes = scratch.key.len() as u64 + value_bytes(*older);
                add_kept(&mut job.kept, KeptFor { oldest, newest, bytes });
            }
        }
        for (at, meta) in entries() {
            // A snapshot sees what this one hides.
            if let Some(hiding) = deletes.iter().find(|delete| **delete > meta.version) {
                job.clean_version = job.clean_version.min(hiding - 1);
            }
            let value = match moved.iter().find(|(moved, _)| meta.body == Body::Blob(*moved)) {
                Some((_, value)) => &value[..],
                None => scratch.value(*at),
            };
            self.emit_version(job, &scratch.key, *meta, value);
        }
        job.last_key.clone_from(&scratch.key);
        job.scratch = scratch;
        Ok(())
    }

    /// Notes what becomes of the values apart of a key's versions.
    fn account(&self, job: &mut Job, scratch: &Scratch, kept: &Kept, moved: &[(Pointer, Bytes)]) {
        let kept_at = |at: usize| kept.iter().find(|(kept, _)| *kept == at).map(|(_, meta)| meta.body);
        for (at, meta) in scratch.metas.iter().enumerate() {
            let Body::Blob(pointer) = meta.body else { continue };
            let stays = kept_at(at) == Some(meta.body) && !moved.iter().any(|(moved, _)| *moved == pointer);
            if !stays {
                *job.change.dropped.entry(pointer.file).or_default() += u64::from(pointer.value_bytes);
            } else if self.levels.values(pointer.file).is_some_and(|values| values.unreferenced) {
                job.change.referenced.push(pointer.file);
            }
        }
    }

    /// Ends the open table before `key` if it is long enough, or lies above many.
    fn end_long_table(&self, job: &mut Job, key: &[u8]) {
        let below = self.levels.level(job.level + 1);
        while below.get(job.passed).is_some_and(|table| &table.facts.last_key[..] < key) {
            job.passed += 1;
            job.lies_above += usize::from(job.table.is_some());
        }
        let is_long = job.table.as_ref().is_some_and(|(builder, _)| builder.bytes() >= self.config.table_bytes);
        let is_cut = job.cut.take_if(|cut| key >= &cut[..]).is_some();
        if is_long || is_cut || job.lies_above > TABLES_BELOW_MAX {
            job.end_table();
            job.lies_above = 0;
        }
    }

    fn emit_version(&self, job: &mut Job, key: &[u8], meta: Meta, value: &[u8]) {
        // What has expired is a delete by now, and has no value any more.
        let value = if meta.body == Body::Delete { &[][..] } else { value };
        let (mut meta, mut inline) = (meta, value);
        if value.len() >= BLOB_BYTES_MIN {
            let (writer, output) = job
                .values
                .get_or_insert_with(|| (ValuesWriter::default(), Output::new(self.installer.new_file(), Role::Values)));
            let offset = writer.add(value, &mut |page| output.push(page));
            let checksum = match meta.body {
                Body::Here { checksum, .. } => checksum,
                _ => value_checksum(meta.version, value),
            };
            meta.body = Body::Blob(Pointer { file: output.file(), offset, value_bytes: value.len() as u32, checksum });
            inline = &[];
        }
        let (uuid, compression) = (self.config.uuid, job.compression);
        let (builder, output) = job.table.get_or_insert_with(|| {
            let file = self.installer.new_file();
            let role =
                Role::Table { level: job.level, in_pmem_levels: self.compactor.plan().in_pmem_levels(job.level) };
            (Builder::new(uuid, file, FILTER_BITS, compression), Output::new(file, role))
        });
        let added = builder.add(key, &meta, inline, &mut |page| output.push(page));
        debug_assert!(added.is_ok(), "versions come in order: {added:?}");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use stratakv_device::{Class, Pool};

    use super::*;

    /// Of two reads that overlapped the older one dropped pages of the newer: a compaction hung.
    #[test]
    pub(crate) fn a_page_that_was_read_twice_goes_with_the_later_read() {
        let pool = Pool::new(4 << 20);
        let part = || BlockPart::whole(Arc::new(pool.take(Class::Page).expect("a block")));
        let mut job = Job::new(Source::Level { tables: Vec::new() }, 0, Vec::new());
        let mut read = |first: u32| job.take(0, (first..first + 2).map(|page| ((1, page), part())));
        [0, 1].into_iter().chain((1..READS_HELD as u32).map(|at| at * 10)).for_each(&mut read);
        let is_held = |page| job.pins.contains_key(&(1, page));
        assert!(!is_held(0) && is_held(1) && is_held(2), "{:?}", job.read);
    }
}
