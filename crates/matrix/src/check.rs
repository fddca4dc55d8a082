//! Comparing what a shard knows with itself.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Place};
use stratakv_pmem::Pmem;

use crate::job::Job;
use crate::matrix::Matrix;
use crate::output::Output;
use crate::table;
use crate::volume::{Extent, FIRST_PAGE};

impl<P: Pmem> Matrix<P> {
    /// Damage found, and sums that do not add up: every unit of the region, every record in it, every page of the volume. Tables are not read. O(region + files).
    pub fn check(&self) -> (Vec<String>, Vec<String>) {
        let damage = self.report.corrupt.iter().map(ToString::to_string).collect();
        let mut mistakes: Vec<String> = self.container.check().err().into_iter().collect();
        let tables = (0..self.levels.depth()).flat_map(|level| self.levels.level(level));
        let tables = tables.flat_map(|table| &table.extents).copied().map(pages).sum::<u64>();
        let values = self.levels.value_files().flat_map(|values| &values.extents).copied().map(pages).sum::<u64>();
        let condemned = self.condemned.iter().flat_map(|condemned| &condemned.extents);
        let limbo = self.limbo.iter().chain(condemned).copied().map(pages).sum::<u64>();
        let manifest = pages(self.manifest_extent) + self.spare_extent.map_or(0, pages);
        let outputs =
            self.job.iter().flat_map(Job::all_outputs).chain(self.spill.iter().flat_map(|spill| &spill.outputs));
        let under_way = outputs.chain(&self.dropped).map(Output::taken_pages).sum::<u64>();
        let installing = self.install.as_ref().map_or(0, |install| install.new_pages(&self.levels));
        let used = tables + values + limbo + manifest + under_way + installing;
        let known = FIRST_PAGE + used + self.extents.free_pages();
        if known != self.extents.capacity() {
            mistakes.push(format!(
                "of {} pages {known} are accounted for: {tables} of tables, {values} of values, {limbo} in limbo, {manifest} of the manifest, {under_way} \
                 being written, {installing} being installed, {} free",
                self.extents.capacity(),
                self.extents.free_pages()
            ));
        }
        (damage, mistakes)
    }
}

/// A piece of a table as it lies on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePiece {
    /// The table's file.
    pub file: u64,
    /// Which page of the table comes first.
    pub ordinal: u32,
    /// Where it lies, and how many pages.
    pub extent: Extent,
}

impl<P> Matrix<P> {
    /// Where all tables lie, to be read and given to [`Matrix::verify`].
    pub fn table_pieces(&self) -> Vec<TablePiece> {
        let mut pieces = Vec::new();
        for table in (0..self.levels.depth()).flat_map(|level| self.levels.level(level)) {
            let mut ordinal = 0;
            for extent in &table.extents {
                pieces.push(TablePiece { file: table.facts.file, ordinal, extent: *extent });
                ordinal += extent.pages;
            }
        }
        pieces
    }

    /// Whether the page at `at` of a piece is as it was written.
    ///
    /// # Errors
    /// It is not; where it lies.
    pub fn verify(&self, piece: TablePiece, at: u32, page: &[u8]) -> Result<(), Corruption> {
        table::verify(page, &self.config.uuid, piece.file, piece.ordinal + at).map_err(|mut corruption| {
            let offset_bytes = (piece.extent.page + u64::from(at)) * PAGE_BYTES as u64;
            corruption.place = Place { shard: self.config.shard, offset_bytes };
            corruption
        })
    }

    /// Pages of the volume up to the last that is in use, and of these those that are free.
    pub fn volume_pages(&self) -> (u64, u64) {
        let extents = &self.extents;
        (extents.end(), extents.free_pages() - extents.capacity().saturating_sub(extents.end()))
    }
}

fn pages(extent: Extent) -> u64 {
    extent.pages.into()
}
