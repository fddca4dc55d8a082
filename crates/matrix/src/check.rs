//! Comparing what a shard knows with itself.

use std::collections::HashMap;

use stratakv_base::checksum::crc32c;
use stratakv_base::{Corruption, Key, Place, Wall};
use stratakv_pmem::Pmem;

use crate::container::{DamagedValue, Fault};
use crate::cursor::{Cursor, Pages, Stop};
use crate::entry::{Body, Meta, Pointer, value_checksum_head};
use crate::level_cursor::LevelCursor;
use crate::matrix::Matrix;
use crate::merge::{Merge, ReadView, Visible};
use crate::output::Output;
use crate::table;
use crate::volume::{Extent, FIRST_PAGE, LevelTable};

impl<P: Pmem> Matrix<P> {
    /// Damage found, and sums that do not add up: every unit of the region, every record in it, the
    /// owner of every page of the volume. Tables and values are not read. O(region + files).
    pub fn check(&self) -> (Vec<String>, Vec<String>) {
        let mut damage: Vec<String> = self.life.report().corrupt.iter().map(ToString::to_string).collect();
        let mut mistakes = Vec::new();
        match self.container.check() {
            Ok(_) => {}
            Err(Fault::Damaged(corruption)) => damage.push(format!("the region: {corruption}")),
            Err(Fault::Mistaken(mistake)) => mistakes.push(mistake),
        }
        let volume = (FIRST_PAGE, self.volume.free_pages(), self.volume.capacity());
        let (pmem_levels_free, pmem_levels_pages) = self.volume.places().pmem_levels_pages();
        mistakes.extend(self.unaccounted("the volume", volume, false));
        mistakes.extend(self.unaccounted("the PMEM levels", (0, pmem_levels_free, pmem_levels_pages), true));
        (damage, mistakes)
    }

    /// Records in front of this key that are there, those included that have expired but were not
    /// dropped yet. Reads all tables.
    ///
    /// # Errors
    /// [`Stop`]: a part of them cannot be read.
    pub fn count_records(&self, to: &Key, pages: &dyn Pages) -> Result<u64, Stop> {
        let level = |level| Box::new(LevelCursor::new(self.levels.level(level), pages)) as Box<dyn Cursor + '_>;
        let mut merge = Merge::new((0..self.levels.depth()).map(level).collect());
        merge.seek(&[])?;
        let container = self.container.cursors_at(None, None, false)?.into_iter();
        merge.join(container.map(|cursor| Box::new(cursor) as Box<dyn Cursor + '_>));
        let mut visible = Visible::new(&mut merge, ReadView { at: u64::MAX, now: Wall(0) }, &self.ranges);
        let mut records = 0;
        while visible.forward(false)?.is_some() && visible.key() < to.encoded() {
            records += 1;
        }
        Ok(records)
    }

    /// What is wrong with the sum of one medium's pages: so many superblocks, so many free, so many
    /// in all.
    fn unaccounted(&self, medium: &str, (first, free, all): (u64, u64, u64), in_pmem_levels: bool) -> Option<String> {
        let sum = |extents: &mut dyn Iterator<Item = &Extent>| {
            extents.filter(|extent| extent.in_pmem_levels() == in_pmem_levels).copied().map(pages).sum::<u64>()
        };
        let tables = sum(&mut self.tables().flat_map(|table| &table.extents));
        let values = sum(&mut self.levels.value_files().flat_map(|values| &values.extents));
        let (new, aborted) = self.installer.new_extents(&self.levels);
        let deferred = sum(&mut self.volume.deferred().iter().chain(self.reads.held()).chain(aborted));
        let manifest = sum(&mut self.installer.manifest_extents());
        let outputs =
            self.compactor.job().into_iter().flat_map(|job| job.files.all_outputs()).chain(self.blobs.outputs());
        let under_way = sum(&mut outputs.chain(self.volume.dropped()).flat_map(Output::taken));
        let installing = sum(&mut new.iter());
        let known = first + tables + values + deferred + manifest + under_way + installing + free;
        (known != all).then(|| {
            format!(
                "of {all} pages of {medium} {known} are accounted for: {tables} of tables, {values} of values, {deferred} deferred, {manifest} of the \
                 manifest, {under_way} being written, {installing} being installed, {free} free"
            )
        })
    }
}

/// A value in a value file, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueBlob {
    /// The key, encoded.
    pub key: Vec<u8>,
    /// The version that has it.
    pub version: u64,
    /// Where it lies.
    pub pointer: Pointer,
}

/// What a table says of values in value files.
#[derive(Debug, Default)]
pub struct TableContents {
    /// Values that it points to.
    pub values: Vec<ValueBlob>,
    /// Versions in the blocks that can be read.
    pub entries: u64,
    /// The first block that cannot.
    pub damage: Option<Corruption>,
}

/// Compares a value's checksum, as its bytes come.
#[derive(Debug)]
pub struct ValueCheck {
    expected: u32,
    computed: u32,
}

impl ValueCheck {
    /// Of this value, before its first byte.
    pub fn new(value: &ValueBlob) -> ValueCheck {
        let ValueBlob { version, pointer, .. } = value;
        ValueCheck { expected: pointer.checksum, computed: value_checksum_head(*version, pointer.value_bytes) }
    }

    /// The next bytes of it.
    pub fn add(&mut self, bytes: &[u8]) {
        self.computed = crc32c(self.computed, bytes);
    }

    /// Whether it is as it was written.
    pub fn is_right(&self) -> bool {
        self.computed == self.expected
    }
}

impl<P: Pmem> Matrix<P> {
    /// All tables, from the top down.
    pub fn tables(&self) -> impl Iterator<Item = &LevelTable> {
        (0..self.levels.depth()).flat_map(|level| self.levels.level(level)).map(AsRef::as_ref)
    }

    /// Where a page of a table lies on the volume.
    pub fn page_of(&self, file: u64, ordinal: u32) -> Option<u64> {
        self.levels.locate(file, ordinal)
    }

    /// Where a page of a file of values lies on the volume.
    pub fn value_page(&self, pointer: &Pointer, ordinal: u32) -> Option<u64> {
        self.levels.locate_value(*pointer, ordinal)
    }

    /// Whether a page of a table, which lies at `page` of the volume, is as it was written.
    ///
    /// # Errors
    /// It is not; where it lies.
    pub fn verify(&self, file: u64, ordinal: u32, page: u64, bytes: &[u8]) -> Result<(), Corruption> {
        table::verify(bytes, &self.config.uuid, file, ordinal).map_err(|mut corruption| {
            self.locate_damage(&mut corruption, page);
            corruption
        })
    }

    /// A place on the volume.
    pub fn place(&self, offset_bytes: u64) -> Place {
        Place { shard: self.config.shard, offset_bytes }
    }

    /// Values in value files that records of the container point to: long ones.
    ///
    /// # Errors
    /// Damage in the region.
    pub fn values_of_container(&self) -> Result<Vec<ValueBlob>, Stop> {
        let mut values = Vec::new();
        for mut cursor in self.container.cursors() {
            cursor.seek(&[])?;
            while let Some((key, meta)) = cursor.key().zip(cursor.meta()) {
                if let Body::Blob(pointer) = meta.body {
                    values.push(ValueBlob { key: key.to_vec(), version: meta.version, pointer });
                }
                cursor.next()?;
            }
        }
        Ok(values)
    }

    /// Values beside their keys in the container that do not check, and how many versions lie
    /// behind records that do not.
    pub fn damaged_in_container(&self) -> (Vec<DamagedValue>, u64) {
        self.container.damaged_values()
    }

    /// Goes over a table. Blocks that cannot be read are passed over.
    pub fn values_of_table(&self, table: &LevelTable, pages: &dyn Pages) -> TableContents {
        let (mut found, mut ordinal) = (TableContents::default(), 0);
        let (file, data_pages) = (table.facts.file, u64::from(table.facts.data_pages));
        while ordinal < data_pages {
            let mut add = |key: &[u8], meta: Meta| {
                found.entries += 1;
                if let Body::Blob(pointer) = meta.body {
                    found.values.push(ValueBlob { key: key.to_vec(), version: meta.version, pointer });
                }
            };
            ordinal = match table::entries_of_block(pages, file, ordinal as u32, &mut add) {
                Ok(next) => next,
                Err(stop) => {
                    if let Stop::Damaged(corruption) = stop {
                        found.damage.get_or_insert(corruption);
                    }
                    ordinal + 1
                }
            };
        }
        found
    }

    /// Whether a version of a key is the newest one, so that its loss is the record's.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn is_newest(&self, key: &[u8], version: u64, pages: &dyn Pages) -> Result<bool, Stop> {
        let is_hidden = self.ranges.hiding(key, version, u64::MAX).is_some();
        Ok(!is_hidden && self.locate(key, u64::MAX, pages)?.is_some_and(|located| located.meta.version == version))
    }

    /// What value files are said to have alive, where tables point to something else: `pointed` has
    /// the bytes that they point to, by file. Of files that a record of the container points to
    /// nothing is said.
    pub fn check_values(&self, pointed: &HashMap<u64, u64>) -> Vec<String> {
        let referenced = self.levels.value_files().filter(|values| !values.unreferenced);
        let wrong = referenced.filter_map(|values| {
            let (file, said, found) =
                (values.file, values.live_bytes, pointed.get(&values.file).copied().unwrap_or_default());
            (said != found).then(|| {
                format!("value file {file} is said to have {said} bytes alive, and tables point to {found} bytes of it")
            })
        });
        wrong.collect()
    }

    /// Pages of the volume up to the last that is in use, and of these those that are free.
    pub fn volume_pages(&self) -> (u64, u64) {
        let extents = self.volume.places();
        (extents.end(), extents.free_pages() - extents.capacity().saturating_sub(extents.end()))
    }
}

fn pages(extent: Extent) -> u64 {
    extent.pages.into()
}
