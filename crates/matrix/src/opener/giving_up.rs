//! Giving up a region that is lost: what goes with it is told, and the manifest is written without
//! the tables that lay in its PMEM levels.

use stratakv_base::fault_point;
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_engine::{Effects, Error};
use stratakv_pmem::Pmem;

use super::{MatrixOpener, Opened, OpenerIoPurpose};
use crate::config::MatrixConfig;
use crate::container::{Config, Container, Predecessor, Report};
use crate::install::manifest_checksum;
use crate::pairing::{Epoch, Loss, LostTable, VolumeState};
use crate::pmem_levels;
use crate::table;
use crate::volume::{Extent, LevelTable, Manifest, PAGES_MAX, Superblock};

impl<P: Pmem> MatrixOpener<P> {
    /// What would be lost without the region, and what would be left.
    pub(super) fn loss_of(&self, manifest: &Manifest) -> Loss {
        self.loss_without(manifest, LevelTable::lies_in_pmem_levels).0
    }

    /// What is lost if these tables are, and the manifest without them.
    fn loss_without(&self, manifest: &Manifest, is_lost: impl Fn(&LevelTable) -> bool) -> (Loss, Manifest) {
        let mut left = manifest.clone();
        let lost = left.drop_tables(is_lost);
        let may_hide = |level: usize, table: &LevelTable| {
            let mut below = left.levels.iter().skip(level + 1).flatten();
            below.any(|other| {
                other.facts.first_key <= table.facts.last_key && table.facts.first_key <= other.facts.last_key
            })
        };
        let tables = lost.iter().map(|(level, table)| LostTable::new(*level, table, may_hide(*level, table)));
        let loss = Loss {
            known: self.superblock.known,
            clean: self.superblock.clean,
            entries: left.levels.iter().flatten().map(|table| table.facts.entries).sum(),
            tables: tables.collect(),
            ..Loss::default()
        };
        (loss, left)
    }

    /// All of the region is there but its end. Tables in its PMEM levels may lack pages: those go.
    pub(super) fn keep_rest(
        &mut self,
        pmem: P,
        manifest: &Manifest,
        why: String,
        version: u64,
    ) -> Result<Opened<P>, Error> {
        let MatrixConfig { uuid, shard, row_bytes, .. } = self.config;
        let (container, report) = Container::open(pmem, uuid, shard, row_bytes)?;
        let (loss, mut left) = self.loss_without(manifest, |table| !is_whole_in_pmem_levels(&container, &uuid, table));
        self.loss = Some(Loss { why, kept_version: Some(version), ..loss });
        self.leave_out(manifest, &mut left)?;
        let places = self.places(&left, self.superblock.manifest(), pmem_levels::pmem_levels_pages(&container))?;
        Ok(Opened { container, report, places })
    }

    /// Nothing of the region counts: a container without contents takes its place, and waits for
    /// the manifest that names no page of the PMEM levels.
    pub(super) fn begin_anew(
        &mut self,
        pmem: P,
        manifest: &Manifest,
        volume: &VolumeState,
        why: String,
        unit_bytes: u32,
    ) -> Result<Opened<P>, Error> {
        let MatrixConfig { uuid, shard, row_bytes, pmem_levels_bytes, .. } = self.config;
        let (loss, mut left) = self.loss_without(manifest, LevelTable::lies_in_pmem_levels);
        self.loss = Some(Loss { why, ..loss });
        self.leave_out(manifest, &mut left)?;
        let tables = manifest.levels.iter().flatten().map(|table| table.facts.highest_version);
        let version = tables.chain(manifest.ranges.iter().map(|range| range.version)).max().unwrap_or(0);
        let VolumeState { known, directory, compactor, .. } = *volume;
        let mut awaited = left.number;
        fault_point!("trial_layer_given_up_unannounced", awaited = manifest.number);
        let lost = Predecessor { known, directory, compactor, version, manifest: awaited };
        let epoch = Epoch { number: known.epoch.number + 1, session: self.config.session };
        let region_bytes = pmem.len_bytes().saturating_sub(pmem_levels_bytes);
        let config = Config { uuid, shard, unit_bytes, row_bytes };
        let container = Container::replace_within(pmem, config, &lost, epoch, region_bytes)?;
        let places = self.places(&left, self.superblock.manifest(), pmem_levels::pmem_levels_pages(&container))?;
        Ok(Opened { container, report: Report::default(), places })
    }

    /// If `left` lacks tables of the manifest that counts: makes it the next one, in pages that are
    /// free while that one counts.
    fn leave_out(&mut self, counts: &Manifest, left: &mut Manifest) -> Result<(), Error> {
        if counts.tables() == left.tables() {
            // Clashes are told before anything is written.
            return self.places(&on_volume(counts), self.superblock.manifest(), 0).map(|_| ());
        }
        left.number = self.search.highest().max(counts.number) + 1;
        let mut bytes = left.encode();
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        let pages = (bytes.len() / PAGE_BYTES) as u32;
        let mut places = self.places(&on_volume(counts), self.superblock.manifest(), 0)?;
        // It may lengthen the volume, as creation does.
        places.grow(self.config.capacity_bytes.map_or(PAGES_MAX, |bytes| bytes / PAGE_BYTES as u64));
        let extent = places.take_contiguous(2 * pages).ok_or(Error::Full(
            "the volume has no room for a manifest without the lost tables: give it more (--capacity)",
        ))?;
        self.superblock = Superblock {
            number: left.number,
            page: extent.page,
            pages,
            checksum: manifest_checksum(&self.config.uuid, left.number, &bytes),
            layered: left.extents().any(Extent::in_pmem_levels),
            has_ranges: !left.ranges.is_empty(),
            compressed: left.levels.iter().flatten().any(|table| table.facts.is_compressed()),
            ..self.superblock
        };
        (self.bytes, self.gives_up_tables) = (bytes, true);
        Ok(())
    }

    /// Writes the two copies of the manifest without the tables that are given up, from this byte
    /// on; then they are flushed, and only then a superblock points to them.
    pub(super) fn write_remainder(&mut self, from: usize, effects: &mut Effects) {
        let len = self.bytes.len();
        if from >= 2 * len {
            return effects.flush(self.io.start(OpenerIoPurpose::RemainderFlush));
        }
        let at = from % len;
        let bytes = self.bytes.get(at..(at + SLICE_BYTES).min(len)).unwrap_or_default();
        let place = (self.superblock.page + (from / PAGE_BYTES) as u64, (bytes.len() / PAGE_BYTES) as u64);
        let purpose = OpenerIoPurpose::Remainder(from + bytes.len());
        self.io.write(place, false, purpose, effects, |into| into.copy_from_slice(bytes));
    }
}

/// What a manifest names of the volume.
fn on_volume(manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    let tables = manifest.levels.iter_mut().flatten();
    tables.for_each(|table| table.extents.retain(|extent| !extent.in_pmem_levels()));
    manifest
}

/// Whether each page that a table has in the PMEM levels is what was stored there.
fn is_whole_in_pmem_levels<P: Pmem>(container: &Container<P>, uuid: &[u8; 16], table: &LevelTable) -> bool {
    let mut bytes = [0; PAGE_BYTES];
    (0..table.facts.pages).all(|ordinal| {
        let page = Extent::locate(&table.extents, ordinal);
        match page.and_then(|page| pmem_levels::offset_in_region(container, page)) {
            Some(offset) => {
                container.pmem().load(offset, &mut bytes).is_ok()
                    && table::verify(&bytes, uuid, table.facts.file, ordinal).is_ok()
            }
            None => true,
        }
    })
}
