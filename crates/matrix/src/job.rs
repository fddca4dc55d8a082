//! One compaction: a column of L0 into L1, or a table of a level into the next. It is planned, then
//! run in steps, each at the end of a tick; then it is installed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_pmem::Pmem;

use crate::container::{Column, RowPart};
use crate::cursor::{Cursor, Stop};
use crate::entry::{Body, Meta, Pointer};
use crate::job_files::JobFiles;
use crate::job_reads::JobReads;
use crate::level_cursor::LevelCursor;
use crate::levels::Change;
use crate::load::{Load, LoadCursor};
use crate::lookup::{LongRead, value_bytes};
use crate::matrix::Matrix;
use crate::merge::Merge;
use crate::ranges::RangeDeletes;
use crate::reading::{InMemory, RUN_PAGES};
use crate::retention::{Kept, OF_A_RANGE, Readers};
use crate::snapshots::KeptFor;
use crate::table::TableFacts;
use crate::volume::LevelTable;

/// A table ends when it lies above more than so many of the next level: so a table can be brought
/// down in little room, and in little time.
pub(crate) const TABLES_BELOW_MAX: usize = 6;

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

/// A compaction under way.
#[derive(Debug)]
pub(crate) struct Job {
    /// Reads that were begun for another one are not for this one.
    pub(crate) number: u64,
    pub(crate) source: Source,
    /// Which values it moves to new files.
    pub(crate) moves: Moves,
    /// What is left of the column in each row.
    parts: Vec<RowPart>,
    /// Tables there with keys of its range.
    below: Vec<Arc<LevelTable>>,
    /// The first key that it has not dealt with.
    position: Vec<u8>,
    /// All keys are dealt with.
    pub(crate) merged: bool,
    /// Pages that were read for it, and those that it waits for.
    pub(crate) reads: JobReads,
    /// A long value that is being read, and those of its key that were read, to be moved.
    long: Option<LongRead>,
    moved: Vec<(Pointer, Bytes)>,
    /// A load waits for it: it is that, or makes room for it between two keys.
    pub(crate) for_load: bool,
    /// What it makes.
    pub(crate) files: JobFiles,
    /// Deletes of ranges when it began.
    pub(crate) ranges: Arc<RangeDeletes>,
    scratch: Scratch,
    /// Bytes of keys and values that went in.
    pub(crate) read_bytes: u64,
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
            parts: Vec::new(),
            below,
            // Not where the column begins: a table below may begin before it.
            position: Vec::new(),
            merged: false,
            reads: JobReads::default(),
            long: None,
            moved: Vec::new(),
            for_load: false,
            files: JobFiles::new(level, change),
            ranges: Arc::default(),
            scratch: Scratch::default(),
            read_bytes: 0,
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
        let mut job = Job::new(Source::Level { tables: vec![table] }, level, Vec::new());
        job.files.cut_at(cut);
        Job { for_load: true, moves: Moves::Nothing, ..job }
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

    /// Whether everything it made is on the medium, though perhaps in its cache.
    pub(crate) fn is_written(&self) -> bool {
        self.merged && self.files.are_written()
    }
}

impl<P: Pmem> Matrix<P> {
    /// Merges about `budget_bytes`. What it lacks has been asked for if it stops early.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn merge(&self, job: &mut Job, budget_bytes: u64) -> Result<(), Stop> {
        let pins = std::mem::take(&mut job.reads.pins);
        let (source, below) =
            (std::mem::replace(&mut job.source, Source::Level { tables: Vec::new() }), std::mem::take(&mut job.below));
        let above = if let Source::Level { tables } = &source { &tables[..] } else { &[] };
        let memory = InMemory { pins: &pins, job: Some([above, &below]), ..self.in_memory(RUN_PAGES) };
        let done = self.merge_from(job, (&source, &below), budget_bytes, &memory);
        (job.source, job.below, job.reads.pins) = (source, below, pins);
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
                job.files.end(&job.ranges);
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
        if !in_order || scratch.key <= job.files.last_key {
            job.scratch = scratch;
            return Err(self.out_of_order());
        }
        let bottom = || !self.levels.lies_above(job.files.level(), &scratch.key, &scratch.key);
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
        if let Err(stop) = self.read_moved(job, &kept, memory) {
            job.scratch = scratch;
            return Err(stop);
        }
        let moved = std::mem::take(&mut job.moved);
        self.account(job, &scratch, &kept, &moved);
        let entries = || kept.iter().filter(|(at, _)| *at != OF_A_RANGE);
        if entries().next().is_some() {
            job.files.end_long_table(&scratch.key, &self.levels, self.config.table_bytes, &ranges);
        }
        for pair in kept.windows(2) {
            let [(_, newer), (at, older)] = pair else { continue };
            if let Some((oldest, newest)) = readers.between(older.version, newer.version).filter(|_| *at != OF_A_RANGE)
            {
                let bytes = scratch.key.len() as u64 + value_bytes(*older);
                job.files.keep(KeptFor { oldest, newest, bytes });
            }
        }
        let mut new_file = || self.installer.new_file();
        let is_in_pmem_levels = self.compactor.plan().in_pmem_levels(job.files.level());
        for (at, meta) in entries() {
            // A snapshot sees what this one hides.
            if let Some(hiding) = deletes.iter().find(|delete| **delete > meta.version) {
                job.files.note_hidden(hiding - 1);
            }
            let value = match moved.iter().find(|(moved, _)| meta.body == Body::Blob(*moved)) {
                Some((_, value)) => &value[..],
                None => scratch.value(*at),
            };
            job.files.add(&scratch.key, *meta, value, &self.config.uuid, &mut new_file, is_in_pmem_levels);
        }
        job.files.last_key.clone_from(&scratch.key);
        job.scratch = scratch;
        Ok(())
    }

    /// First all that can stop: nothing is written twice. What was read of a key's values that move
    /// is kept until all is.
    fn read_moved(&self, job: &mut Job, kept: &Kept, memory: &InMemory<'_>) -> Result<(), Stop> {
        for (_, meta) in kept {
            if let Body::Blob(pointer) = meta.body
                && self.moves_from(&job.moves, pointer.file)
                && !job.moved.iter().any(|(moved, _)| *moved == pointer)
            {
                let value = self.value_in_pieces(meta.version, pointer, &mut job.long, memory)?;
                job.read_bytes += value.len() as u64;
                job.moved.push((pointer, value));
            }
        }
        Ok(())
    }

    /// Notes what becomes of the values apart of a key's versions.
    fn account(&self, job: &mut Job, scratch: &Scratch, kept: &Kept, moved: &[(Pointer, Bytes)]) {
        let kept_at = |at: usize| kept.iter().find(|(kept, _)| *kept == at).map(|(_, meta)| meta.body);
        for (at, meta) in scratch.metas.iter().enumerate() {
            let Body::Blob(pointer) = meta.body else { continue };
            let stays = kept_at(at) == Some(meta.body) && !moved.iter().any(|(moved, _)| *moved == pointer);
            if !stays {
                *job.files.change.dropped.entry(pointer.file).or_default() += u64::from(pointer.value_bytes);
            } else if self.levels.values(pointer.file).is_some_and(|values| values.unreferenced) {
                job.files.change.referenced.push(pointer.file);
            }
        }
    }
}
