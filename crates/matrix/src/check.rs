//! Comparing what a shard knows with itself.

use stratakv_pmem::Pmem;

use crate::job::Job;
use crate::matrix::Matrix;
use crate::output::Output;
use crate::volume::{Extent, FIRST_PAGE};

impl<P: Pmem> Matrix<P> {
    /// Damage found, and sums that do not add up: every unit of the region, every record in it, every page of the volume. Tables are not read. O(region + files).
    pub fn check(&self) -> (Vec<String>, Vec<String>) {
        let damage = self.report.corrupt.iter().map(ToString::to_string).collect();
        let mut mistakes: Vec<String> = self.container.check().err().into_iter().collect();
        let tables = (0..self.levels.depth()).flat_map(|level| self.levels.level(level));
        let tables = tables.flat_map(|table| &table.extents).copied().map(pages).sum::<u64>();
        let values = self.levels.value_files().flat_map(|values| &values.extents).copied().map(pages).sum::<u64>();
        let limbo = self.limbo.iter().chain(&self.condemned).copied().map(pages).sum::<u64>();
        let manifest = pages(self.superblock.manifest());
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

fn pages(extent: Extent) -> u64 {
    extent.pages.into()
}
