//! What a region and its volume say of each other: `docs/format-matrix.md` says when, and why an
//! older copy is seen.

use stratakv_base::fault_point;
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use super::directory::Directory;
use super::medium::Medium;
use super::row::Row;
use super::{Config, Container, Rotation, open, superblock};
use crate::pairing::{Epoch, Known, RegionState};

/// Further than numbers can have come since the volume saw them.
const LEAP: u64 = 1 << 32;

/// A container that is given up, as far as the volume knows it.
#[derive(Clone, Copy, Debug)]
pub struct Predecessor {
    /// What the volume knew of it.
    pub known: Known,
    /// Its newest directory, compactor and version that the manifest knows.
    pub directory: u64,
    /// See above.
    pub compactor: u64,
    /// See above.
    pub version: u64,
    /// The manifest that goes with what takes its place: with an older one that is refused.
    pub manifest: u64,
}

impl<P: Pmem> Container<P> {
    /// Makes a region a container without contents that takes the place of one that is lost, in
    /// this epoch. Until that is done the region is none. Its numbers and versions are beyond all
    /// that the other one can have given.
    ///
    /// # Errors
    /// As [`Container::create`].
    pub fn replace(pmem: P, config: Config, lost: &Predecessor, epoch: Epoch) -> Result<Container<P>, Error> {
        let region_bytes = pmem.len_bytes();
        Container::replace_within(pmem, config, lost, epoch, region_bytes)
    }

    /// As [`Container::replace`], in the first `region_bytes` of a region: the rest is somebody
    /// else's.
    ///
    /// # Errors
    /// As [`Container::create`].
    pub fn replace_within(
        pmem: P,
        config: Config,
        lost: &Predecessor,
        epoch: Epoch,
        region_bytes: u64,
    ) -> Result<Container<P>, Error> {
        superblock::may_replace(&pmem, &config.uuid)?;
        let layout = superblock::plan(region_bytes.min(pmem.len_bytes()), &config)?;
        let there = open::after_what_was_there(&pmem, &config);
        let number = there.next.max(lost.known.directory).max(lost.directory).saturating_add(LEAP);
        let rotation = Rotation { compactor: lost.compactor.saturating_add(1), ..Rotation::default() };
        let directory = Directory {
            number,
            flushed: number - 1,
            next: number,
            version: lost.known.version.max(lost.version) + LEAP,
            manifest: lost.manifest,
            rotation,
            epoch,
            before: lost.known.epoch,
            ..Directory::blank()
        };
        let medium = Medium { pmem, layout };
        superblock::create(&medium, &directory)?;
        Ok(Container::with(medium, directory, config.row_bytes))
    }

    /// What is compared with what the volume says.
    pub fn state(&self) -> RegionState {
        let Directory { number, epoch, before, manifest, rotation, .. } = &self.directory;
        RegionState {
            epoch: *epoch,
            before: *before,
            directory: *number,
            version: self.version,
            manifest: *manifest,
            compactor: rotation.compactor,
        }
    }

    /// What the volume is to know of it. O(rows).
    pub fn known(&self) -> Known {
        let rows = self.rows.iter().filter(|row| row.live_elements() > 0);
        let memtables = self.memtables().filter(|memtable| !memtable.is_empty());
        Known {
            epoch: self.directory.epoch,
            directory: self.directory.number,
            version: self.durable,
            oldest: rows.clone().map(|row| row.lowest).chain(memtables.map(|one| one.lowest)).min().unwrap_or(0),
            records: rows.map(Row::live_elements).sum::<u64>() + self.memtables().map(|one| one.records).sum::<u64>(),
        }
    }

    /// Begins an epoch: from here on the volume may have this one, or the one it has.
    ///
    /// # Errors
    /// The memory failed.
    pub fn begin_epoch(&mut self, epoch: Epoch, mut volumes: Epoch) -> Result<(), Error> {
        fault_point!("matrix_epoch_before_the_volumes", volumes = epoch);
        self.mark(|directory| (directory.epoch, directory.before) = (epoch, volumes))
    }

    /// The volume has it, too: it has no other one from here on.
    ///
    /// # Errors
    /// The memory failed.
    pub fn complete_epoch(&mut self) -> Result<(), Error> {
        self.mark(|directory| directory.before = directory.epoch)
    }

    /// A manifest of the volume is durable.
    ///
    /// # Errors
    /// The memory failed.
    pub fn note_manifest(&mut self, manifest: u64) -> Result<(), Error> {
        self.mark(|directory| directory.manifest = manifest)
    }

    fn mark(&mut self, change: impl FnOnce(&mut Directory)) -> Result<(), Error> {
        self.writable()?;
        let mut directory = self.directory.clone();
        change(&mut directory);
        self.failed = true;
        self.store_directory(directory)?;
        self.failed = false;
        Ok(())
    }
}
