//! [`JobFiles`]: the tables and value files that a compaction makes, and what changes with them.
//! The merge adds versions in order; the device takes pages meanwhile; an installation takes the
//! rest.

use crate::config::Compression;
use crate::entry::{Body, Meta, Pointer, value_checksum};
use crate::job::TABLES_BELOW_MAX;
use crate::levels::{Change, Levels};
use crate::output::{Output, Role};
use crate::ranges::RangeDeletes;
use crate::snapshots::{KeptFor, add_kept};
use crate::table::Builder;
use crate::table::values::{BLOB_BYTES_MIN, ValuesWriter};
use crate::volume::{LevelTable, ValueFile};

/// Bits of a table's filter for each key.
const FILTER_BITS: u32 = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct JobFiles {
    /// Where its tables go: a level, 0 is the first one below L0.
    level: usize,
    table: Option<(Builder, Output)>,
    /// Tables of the level below its own that lie before the last key; and those of them that the
    /// open table lies above.
    passed: usize,
    lies_above: usize,
    /// Another table begins at the first key from here on.
    cut: Option<Vec<u8>>,
    values: Option<(ValuesWriter, Output)>,
    /// Files that are finished, but for their last writes.
    pub(crate) finished: Vec<Output>,
    pub(crate) change: Change,
    /// Up to which delete of a range the open table has nothing that they hide.
    clean_version: u64,
    /// What the open table has only for snapshots, and the finished ones by file.
    kept: Vec<KeptFor>,
    pub(crate) kept_in: Vec<(u64, Vec<KeptFor>)>,
    /// The last key that was written: the next one lies behind it.
    pub(crate) last_key: Vec<u8>,
    /// What its tables are written as.
    pub(crate) compression: Compression,
}

impl JobFiles {
    pub(crate) fn new(level: usize, change: Change) -> JobFiles {
        JobFiles {
            level,
            table: None,
            passed: 0,
            lies_above: 0,
            cut: None,
            values: None,
            finished: Vec::new(),
            change,
            clean_version: u64::MAX,
            kept: Vec::new(),
            kept_in: Vec::new(),
            last_key: Vec::new(),
            compression: Compression::None,
        }
    }

    pub(crate) fn level(&self) -> usize {
        self.level
    }

    /// Another table begins at the first key from here on.
    pub(crate) fn cut_at(&mut self, cut: Vec<u8>) {
        self.cut = Some(cut);
    }

    /// The open table has this only for snapshots.
    pub(crate) fn keep(&mut self, kept: KeptFor) {
        add_kept(&mut self.kept, kept);
    }

    /// The open table has something that only deletes of ranges up to this version do not hide.
    pub(crate) fn note_hidden(&mut self, clean_version: u64) {
        self.clean_version = self.clean_version.min(clean_version);
    }

    /// Adds a version of a key to the open table, and its value to the open value file if it is
    /// long; begins those that are not there.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        mut meta: Meta,
        value: &[u8],
        uuid: &[u8; 16],
        new_file: &mut dyn FnMut() -> u64,
        in_pmem_levels: bool,
    ) {
        // What has expired is a delete by now, and has no value any more.
        let mut inline = if meta.body == Body::Delete { &[][..] } else { value };
        if inline.len() >= BLOB_BYTES_MIN {
            let value = std::mem::take(&mut inline);
            let (writer, output) =
                self.values.get_or_insert_with(|| (ValuesWriter::default(), Output::new(new_file(), Role::Values)));
            let offset = writer.add(value, &mut |page| output.push(page));
            let checksum = match meta.body {
                Body::Here { checksum, .. } => checksum,
                _ => value_checksum(meta.version, value),
            };
            meta.body = Body::Blob(Pointer { file: output.file(), offset, value_bytes: value.len() as u32, checksum });
        }
        let (level, compression) = (self.level, self.compression);
        let (builder, output) = self.table.get_or_insert_with(|| {
            let file = new_file();
            let role = Role::Table { level, in_pmem_levels };
            (Builder::new(*uuid, file, FILTER_BITS, compression), Output::new(file, role))
        });
        let added = builder.add(key, &meta, inline, &mut |page| output.push(page));
        debug_assert!(added.is_ok(), "versions come in order: {added:?}");
    }

    /// Ends the open table before `key` if it is long enough, or lies above many.
    pub(crate) fn end_long_table(&mut self, key: &[u8], levels: &Levels, table_bytes: u64, ranges: &RangeDeletes) {
        let below = levels.level(self.level + 1);
        while below.get(self.passed).is_some_and(|table| &table.facts.last_key[..] < key) {
            self.passed += 1;
            self.lies_above += usize::from(self.table.is_some());
        }
        let is_long = self.table.as_ref().is_some_and(|(builder, _)| builder.bytes() >= table_bytes);
        let is_cut = self.cut.take_if(|cut| key >= &cut[..]).is_some();
        if is_long || is_cut || self.lies_above > TABLES_BELOW_MAX {
            self.end_table(ranges);
            self.lies_above = 0;
        }
    }

    /// Whether all finished ones are on the medium, though perhaps in its cache.
    pub(crate) fn are_written(&self) -> bool {
        self.finished.iter().all(Output::is_written)
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

    /// Ends the open table. `ranges`: deletes of ranges when the job began.
    fn end_table(&mut self, ranges: &RangeDeletes) {
        let Some((builder, mut output)) = self.table.take() else { return };
        if let Some(facts) = builder.finish(&mut |page| output.push(page)) {
            output.end();
            self.kept_in.push((facts.file, std::mem::take(&mut self.kept)));
            let clean_version = std::mem::replace(&mut self.clean_version, u64::MAX).min(ranges.newest());
            self.change.added.push((self.level, LevelTable { facts, extents: Vec::new(), clean_version }));
            self.finished.push(output);
        }
    }

    /// All keys are dealt with.
    pub(crate) fn end(&mut self, ranges: &RangeDeletes) {
        self.end_table(ranges);
        self.end_values();
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
