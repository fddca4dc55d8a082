//! [`Installer`]: installs what a compaction or a blob write made. The manifest is written
//! elsewhere, everything is flushed, then a superblock points to it. Only then is the old free. One
//! at a time: who has something to install asks [`Installer::is_idle`], then calls
//! [`Matrix::begin_install`].
//!
//! ```text
//!   Idle --begin_install--> Installs: Manifest -> Flush -> Superblock(0) -> Superblock(1) --> Idle
//!    |                                  |  the volume refused a write: AbortedInstall        ^
//!    |                                  `----------------------------------------------------'
//!    `--pump_close--> Closes(0) -> Closes(1) --> the shard is closed
//! ```

use std::cell::Cell;
use std::sync::Arc;

use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::fault_point;
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_device::{Block, BlockPart, Class, IoFault};
use stratakv_engine::{Effects, Reply};
use stratakv_pmem::Pmem;

use crate::blob_write::BlobWrite;
use crate::growth::VolumeSpace;
use crate::job::{Job, Moves, Source};
use crate::levels::{Change, Levels};
use crate::maintain::write_failed;
use crate::matrix::Matrix;
use crate::memory::IoPurpose;
use crate::output::Output;
use crate::scheduler::WaitFor;
use crate::volume::{Extent, Manifest, Superblock};

/// How far an installation is.
#[derive(Debug)]
enum Stage {
    /// The manifest is written.
    Manifest {
        /// Bytes of it that no write was begun for begin here.
        begun: usize,
        /// Writes in flight.
        in_flight: u32,
    },
    /// Tables, values and manifest are flushed.
    Flush,
    /// The superblock is written through to this slot, 0 and then 1.
    Superblock(u64),
}

/// A manifest on its way to the medium.
#[derive(Debug)]
struct Install {
    stage: Stage,
    made: Made,
    levels: Levels,
    /// What the new manifest does not name any more.
    free: Vec<Extent>,
    extent: Extent,
    bytes: Vec<u8>,
    superblock: Superblock,
    /// Its manifest has all deletes of ranges up to this version.
    ranges_kept: u64,
    /// Files whose unreferenced values it gives up. They are nobody's until it is installed.
    unreferenced_blobs: Vec<u64>,
}

/// What an installation that failed has of the volume: free once its writes have ended.
#[derive(Debug)]
struct AbortedInstall {
    /// Of its manifest.
    number: u64,
    in_flight: u32,
    extents: Vec<Extent>,
}

/// What an installation installs.
#[derive(Debug)]
pub(crate) enum Made {
    /// Tables and values.
    Compaction(Box<Job>),
    /// Long values, ahead of the records that point to them.
    BlobWrite(BlobWrite),
    /// Tables that deletes of ranges hide go.
    Hidden(Change),
    /// Nothing new: a copy of the manifest or a superblock is damaged.
    Repair,
}

impl Made {
    /// What it changes, and the files it wrote.
    fn take(&mut self) -> (Change, Vec<Output>) {
        match self {
            Made::Compaction(job) => (std::mem::take(&mut job.files.change), std::mem::take(&mut job.files.finished)),
            Made::BlobWrite(blob_write) => (blob_write.change(), std::mem::take(&mut blob_write.outputs)),
            Made::Hidden(change) => (std::mem::take(change), Vec::new()),
            Made::Repair => Default::default(),
        }
    }
}

#[derive(Debug)]
enum InstallerState {
    Idle,
    Installs(Box<Install>),
    /// The superblock of the orderly end is written to this slot.
    Closes(u64),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Installer {
    state: InstallerState,
    /// The one that counts.
    superblock: Superblock,
    /// Where its manifest lies, and room for the next one.
    manifest_extent: Extent,
    spare_extent: Option<Extent>,
    /// One that waits for a block, and its slot.
    superblock_waits: Option<(Superblock, u64)>,
    /// A copy of what is vital is damaged, or something is given up: a manifest is written.
    repairs: bool,
    /// Of the last manifest, installed or not.
    last_number: u64,
    next_file: Cell<u64>,
    /// Installations that failed with writes in flight.
    aborted: Vec<AbortedInstall>,
}

impl Installer {
    /// With the superblock that counts, the highest number that a manifest may have, and the number
    /// of the next file.
    pub(crate) fn new(superblock: Superblock, repairs: bool, last_number: u64, next_file: u64) -> Installer {
        Installer {
            state: InstallerState::Idle,
            superblock,
            manifest_extent: superblock.manifest(),
            spare_extent: None,
            superblock_waits: None,
            repairs,
            last_number,
            next_file: Cell::new(next_file),
            aborted: Vec::new(),
        }
    }

    /// Whether the next one may begin.
    pub(crate) fn is_idle(&self) -> bool {
        !matches!(self.state, InstallerState::Installs(_))
    }

    fn install(&self) -> Option<&Install> {
        if let InstallerState::Installs(install) = &self.state { Some(install) } else { None }
    }

    /// The installation of the manifest with this number, if it is that.
    fn install_mut(&mut self, number: u64) -> Option<&mut Install> {
        match &mut self.state {
            InstallerState::Installs(install) if install.number() == number => Some(install),
            _ => None,
        }
    }

    fn take_install(&mut self) -> Option<Install> {
        match std::mem::replace(&mut self.state, InstallerState::Idle) {
            InstallerState::Installs(install) => Some(*install),
            other => {
                self.state = other;
                None
            }
        }
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// A number for a new file.
    pub(crate) fn new_file(&self) -> u64 {
        self.next_file.replace(self.next_file.get() + 1)
    }

    /// Files have numbers from this one on.
    pub(crate) fn skip_files(&mut self, next: u64) {
        self.next_file.set(self.next_file.get().max(next));
    }

    /// A manifest is to be written, though nothing was made.
    pub(crate) fn repair(&mut self) {
        self.repairs = true;
    }

    pub(crate) fn repairs(&self) -> bool {
        self.repairs
    }

    /// Extents of the manifest that counts, and of room for the next one.
    pub(crate) fn manifest_extents(&self) -> impl Iterator<Item = &Extent> {
        [&self.manifest_extent].into_iter().chain(&self.spare_extent)
    }

    /// Extents that only an installation under way has, and those of installations that failed.
    pub(crate) fn new_extents(&self, levels: &Levels) -> (Vec<Extent>, impl Iterator<Item = &Extent>) {
        let new = self.install().map_or_else(Vec::new, |install| install.new_extents(levels));
        (new, self.aborted.iter().flat_map(|aborted| &aborted.extents))
    }

    /// Pages side by side for a manifest, with room for it to grow: those of the last but one, so
    /// that a volume in pieces has them, too.
    fn manifest_room(&mut self, pages: u32, volume: &mut VolumeSpace) -> Option<Extent> {
        if let Some(spare) = self.spare_extent.take() {
            if spare.pages >= pages {
                return Some(spare);
            }
            volume.defer([spare]);
        }
        let (more, places) = (pages.next_power_of_two(), volume.places_mut());
        places.take_contiguous(more).or_else(|| places.take_contiguous(pages))
    }

    /// A write of a manifest that failed is done. What is free since. `is_quiet`: nothing is in
    /// flight.
    fn aborted_written(&mut self, number: u64, is_quiet: bool) -> Vec<Extent> {
        let Some(at) = self.aborted.iter().position(|aborted| aborted.number == number) else { return Vec::new() };
        let aborted = &mut self.aborted[at];
        aborted.in_flight = aborted.in_flight.saturating_sub(1);
        let mut is_over = aborted.in_flight == 0;
        fault_point!("trial_condemned_under_load", !is_quiet, is_over = false);
        if is_over { self.aborted.swap_remove(at).extents } else { Vec::new() }
    }

    #[cfg(test)]
    pub(crate) fn has_aborted(&self) -> bool {
        !self.aborted.is_empty()
    }
}

impl Install {
    /// The number of its manifest.
    fn number(&self) -> u64 {
        self.superblock.number
    }

    /// What was to be installed, and the extents that only it has. One of its writes is done.
    fn abort(self, levels: &Levels) -> (Made, AbortedInstall) {
        let mut extents = self.levels.extents_not_in(levels);
        extents.push(self.extent);
        let in_flight =
            if let Stage::Manifest { in_flight, .. } = self.stage { in_flight.saturating_sub(1) } else { 0 };
        (self.made, AbortedInstall { number: self.superblock.number, in_flight, extents })
    }

    /// Pages that only it has.
    fn new_extents(&self, levels: &Levels) -> Vec<Extent> {
        let mut new = self.levels.extents_not_in(levels);
        new.push(self.extent);
        new
    }
}

/// The checksum of a manifest.
pub(crate) fn manifest_checksum(uuid: &[u8; 16], number: u64, pages: &[u8]) -> u32 {
    crc32c(seed(uuid, number, 0), pages)
}

impl<P: Pmem> Matrix<P> {
    /// Begins to install what was made, whose files are written.
    ///
    /// # Errors
    /// There is no room for the manifest: what was made comes back without its files, whose room is
    /// free.
    pub(crate) fn begin_install(&mut self, mut made: Made) -> Result<(), Box<Made>> {
        let (mut change, mut outputs) = made.take();
        let unreferenced_blobs: Vec<u64> = self.blobs.unreferenced().keys().copied().collect();
        for (file, bytes) in self.blobs.unreferenced() {
            *change.dropped.entry(*file).or_default() += bytes;
        }
        fault_point!("trial_orphans_lost_with_a_failed_install", self.blobs.forget_unreferenced(&unreferenced_blobs));
        self.note_extents(&mut change, &mut outputs);
        self.counters.writes.made(change.added.iter().map(|(_, table)| &table.facts));
        let mut levels = self.levels.clone();
        let mut free = levels.apply(change);
        // One that fails keeps its number: what is left of it in flight is nobody else's.
        self.installer.last_number += 1;
        let manifest = self.manifest_with(&levels, &made);
        let mut bytes = manifest.encode();
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        let pages = (bytes.len() / PAGE_BYTES) as u32;
        // Two copies, one behind the other.
        bytes.extend_from_within(..);
        let extent = self.installer.manifest_room(2 * pages, &mut self.volume);
        let Some(extent) = extent else {
            // What it made is lost: it is compacted again when there is room. That much more than
            // is free from then on: what is free lies in pieces.
            self.give_new(&levels);
            self.volume.grow_by(u64::from(2 * pages));
            return Err(Box::new(made));
        };
        let superblock = Superblock {
            shard: self.config.shard,
            shards: self.config.shards,
            number: manifest.number,
            page: extent.page,
            pages,
            checksum: manifest_checksum(&self.config.uuid, manifest.number, &bytes[..bytes.len() / 2]),
            clean: false,
            known: self.container.known(),
            layered: levels.have_pmem_levels(),
            has_ranges: !manifest.ranges.is_empty(),
            compressed: levels.have_compressed(),
        };
        fault_point!("matrix_freed_before_the_superblock", self.volume.defer(free.drain(..)));
        fault_point!("trial_layer_freed_before_the_superblock", {
            self.volume.defer(free.extract_if(.., |extent| extent.in_pmem_levels()));
        });
        fault_point!("matrix_column_released_early", {
            if let Made::Compaction(job) = &made
                && let Source::Column(column) = &job.source
            {
                // A planted defect.
                let _ = self.container.release(column, manifest.number);
            }
        });
        let stage = Stage::Manifest { begun: 0, in_flight: 0 };
        let ranges_kept = self.container.durable_version();
        let install = Install { stage, made, levels, free, extent, bytes, superblock, ranges_kept, unreferenced_blobs };
        self.installer.state = InstallerState::Installs(Box::new(install));
        Ok(())
    }

    /// Where the files lie that were written.
    fn note_extents(&mut self, change: &mut Change, outputs: &mut [Output]) {
        for output in outputs {
            let (file, extents) = (output.file(), output.extents(self.volume.places_mut()));
            let table = change.added.iter_mut().find(|(_, table)| table.facts.file == file);
            if let Some((_, table)) = table {
                table.extents = extents;
            } else if let Some(values) = change.values.iter_mut().find(|values| values.file == file) {
                values.extents = extents;
            }
        }
    }

    /// Gives back what only these levels have.
    fn give_new(&mut self, levels: &Levels) {
        for extent in levels.extents_not_in(&self.levels) {
            self.give_back(extent);
        }
    }

    fn manifest_with(&self, levels: &Levels, made: &Made) -> Manifest {
        let rotation = match made {
            Made::Compaction(job) => match &job.source {
                Source::Column(column) => column.after.clone(),
                Source::Level { .. } | Source::Load(_) => self.container.rotation().clone(),
            },
            _ => self.container.rotation().clone(),
        };
        let mut manifest = Manifest {
            number: self.installer.last_number,
            next_file: self.installer.next_file.get(),
            directory: self.container.directory(),
            rotation,
            // A crash may forget the others, and give their numbers to something else.
            ranges: self.durable_ranges().cloned().collect(),
            ..Manifest::default()
        };
        levels.describe(&mut manifest);
        let made_now = match made {
            Made::Compaction(job) => &job.files.kept_in[..],
            _ => &[],
        };
        let mut kept = self.snapshots.kept_in_tables();
        kept.extend(made_now.iter().map(|(file, kept)| (*file, kept.iter().map(|one| one.bytes).sum::<u64>())));
        manifest.kept = kept.into_iter().filter(|(file, _)| levels.locate(*file, 0).is_some()).collect();
        manifest
    }

    /// Goes on with the writes of the manifest, as far as there are blocks.
    pub(crate) fn pump_install(&mut self, effects: &mut Effects) {
        let InstallerState::Installs(install) = &mut self.installer.state else { return };
        if let Stage::Manifest { begun, in_flight } = &mut install.stage {
            while *begun < install.bytes.len() {
                let Some(block) = self.memory.take_block(Class::Slice, effects) else { break };
                let end = (*begun + SLICE_BYTES).min(install.bytes.len());
                let (place, bytes) =
                    (install.extent.page * PAGE_BYTES as u64 + *begun as u64, &install.bytes[*begun..end]);
                self.counters.writes.manifest_write_bytes += bytes.len() as u64;
                let io = self.memory.start(IoPurpose::Manifest(install.superblock.number));
                effects.background(io);
                effects.write(io, place, vec![filled(block, bytes)], false);
                (*begun, *in_flight) = (end, *in_flight + 1);
            }
        }
    }

    /// A write of the manifest is done; after the last one everything is flushed.
    pub(crate) fn manifest_written(&mut self, number: u64, effects: &mut Effects) {
        let mut of_it = number;
        fault_point!("trial_manifests_without_numbers", {
            of_it = self.installer.install().map_or(number, Install::number);
        });
        let Some(install) = self.installer.install_mut(of_it) else { return self.aborted_install_written(number) };
        let Stage::Manifest { begun, in_flight } = &mut install.stage else { return };
        *in_flight -= 1;
        if *in_flight == 0 && *begun == install.bytes.len() {
            let layered = install.superblock.layered;
            install.stage = Stage::Flush;
            if layered && let Err(error) = self.complete_pmem_levels() {
                return self.fail_region(error);
            }
            fault_point!("matrix_superblock_before_the_flush", return self.flushed(number, effects));
            let io = self.memory.start(IoPurpose::Flush(number));
            effects.background(io);
            effects.flush(io);
        }
    }

    /// A write of a manifest that failed is done.
    fn aborted_install_written(&mut self, number: u64) {
        self.volume.defer(self.installer.aborted_written(number, self.memory.is_quiet()));
    }

    /// The volume refused a write of the manifest: nothing points to it or to what it was to
    /// install.
    pub(crate) fn fail_install(&mut self, number: u64, fault: IoFault, effects: &mut Effects) {
        if self.installer.install_mut(number).is_none() {
            return self.aborted_install_written(number);
        }
        let Some(install) = self.installer.take_install() else { return };
        let (made, aborted) = install.abort(&self.levels);
        if aborted.in_flight == 0 {
            self.volume.defer(aborted.extents);
        } else {
            self.installer.aborted.push(aborted);
        }
        let error = write_failed(fault);
        match made {
            Made::BlobWrite(blob_write) => self.refuse(&blob_write, &error, effects),
            Made::Repair => self.installer.repair(),
            Made::Compaction(job) if job.is_load() => self.end_load(Reply::Failed(error.clone())),
            Made::Compaction(job) if job.for_load => self.refuse_load(),
            Made::Compaction(_) | Made::Hidden(_) => {}
        }
        self.put_off(&error);
    }

    /// Everything is durable: the superblock may point to it.
    pub(crate) fn flushed(&mut self, number: u64, effects: &mut Effects) {
        let Some(install) = self.installer.install_mut(number) else { return };
        install.stage = Stage::Superblock(0);
        let superblock = install.superblock;
        self.write_superblock(superblock, 0, effects);
    }

    /// Writes a superblock, now or as soon as there is a block.
    pub(crate) fn write_superblock(&mut self, superblock: Superblock, slot: u64, effects: &mut Effects) {
        let Some(mut block) = self.memory.take_block(Class::Page, effects) else {
            self.installer.superblock_waits = Some((superblock, slot));
            return;
        };
        self.installer.superblock_waits = None;
        superblock.encode(&self.config.uuid, &mut block);
        let io = self.memory.start(IoPurpose::Superblock(superblock.number));
        effects.background(io);
        let mut durable = true;
        fault_point!("matrix_superblock_in_the_cache", durable = false);
        effects.write(io, slot * PAGE_BYTES as u64, vec![BlockPart::whole(Arc::new(block))], durable);
    }

    /// A superblock is durable: the other one follows, so that each of them will do.
    pub(crate) fn superblock_written(&mut self, number: u64, effects: &mut Effects) {
        match &mut self.installer.state {
            InstallerState::Installs(install) if install.number() == number => match install.stage {
                Stage::Superblock(0) => {
                    install.stage = Stage::Superblock(1);
                    let superblock = install.superblock;
                    self.write_superblock(superblock, 1, effects);
                }
                _ => self.installed(effects),
            },
            InstallerState::Closes(slot @ 0) => {
                *slot = 1;
                self.write_superblock(self.installer.superblock, 1, effects);
            }
            InstallerState::Closes(_) => self.life.close(),
            InstallerState::Installs(_) | InstallerState::Idle => {}
        }
    }

    /// Goes on with a superblock that waited for a block, also with the last one.
    pub(crate) fn pump_superblock(&mut self, effects: &mut Effects) {
        if let Some((superblock, slot)) = self.installer.superblock_waits.filter(|_| !self.life.is_frozen()) {
            self.write_superblock(superblock, slot, effects);
        }
    }

    /// Says on the volume that this is the orderly end.
    pub(crate) fn write_last_superblock(&mut self, effects: &mut Effects) {
        let installer = &mut self.installer;
        installer.superblock = Superblock { clean: true, known: self.container.known(), ..installer.superblock };
        installer.state = InstallerState::Closes(0);
        self.life.write_last_superblock();
        self.write_superblock(self.installer.superblock, 0, effects);
    }

    /// Writes a manifest though nothing was made: something is damaged or given up, or a row waits
    /// for it.
    pub(crate) fn pump_repair(&mut self, effects: &mut Effects) {
        let is_wanted = self.installer.repairs || self.compactor.flush_wants_manifest(self.container.durable_version());
        if is_wanted
            && self.installer.is_idle()
            && self.compactor.is_put_off(self.life.mono()).is_none()
            && !self.volume.waits_for(self.manifest_pages())
            && self.begin_install(Made::Repair).is_ok()
        {
            self.installer.repairs = false;
            effects.more();
        }
    }

    /// The new manifest holds: what it does not name is free, and the column is released.
    fn installed(&mut self, effects: &mut Effects) {
        let Some(install) = self.installer.take_install() else { return };
        self.installer.superblock = install.superblock;
        let old = std::mem::replace(&mut self.installer.manifest_extent, install.extent);
        self.volume.defer(self.installer.spare_extent.replace(old));
        self.levels = install.levels;
        self.volume.defer(install.free);
        self.counters.compaction.installs += 1;
        self.blobs.forget_unreferenced(&install.unreferenced_blobs);
        if matches!(install.made, Made::Compaction(_)) {
            self.compactor.succeed();
        }
        self.container.ranges_are_kept(install.ranges_kept);
        // A column says it with its release.
        let releases = matches!(&install.made, Made::Compaction(job) if matches!(job.source, Source::Column(_)));
        if !releases && let Err(error) = self.container.note_manifest(install.superblock.number) {
            self.fail_region(error);
        }
        match install.made {
            Made::Compaction(job) => self.compacted(*job),
            Made::BlobWrite(blob_write) => self.blob_write_ended(blob_write),
            Made::Hidden(_) | Made::Repair => {}
        }
        self.forget_ranges();
        self.scheduler.wake(WaitFor::VolumeRoom);
        effects.more();
    }
}

impl<P: Pmem> Matrix<P> {
    fn compacted(&mut self, mut job: Job) {
        for (file, kept) in job.files.kept_in.drain(..) {
            self.snapshots.keep(file, kept);
        }
        let levels = &self.levels;
        self.snapshots.forget(|file| levels.locate(file, 0).is_some());
        self.bound_snapshots();
        if !job.is_load() {
            self.counters.compaction.compacted_bytes += job.read_bytes;
        }
        match &job.source {
            Source::Load(load) => self.loaded(load),
            Source::Column(column) => {
                self.counters.compaction.columns += 1;
                self.compactor.pace.went_down(column.bytes, self.life.mono());
                if let Err(error) = self.container.release(column, self.installer.last_number) {
                    self.fail_region(error);
                }
            }
            Source::Level { .. } if matches!(job.moves, Moves::Files(_)) => {
                self.counters.compaction.value_collections += 1
            }
            Source::Level { .. } => self.counters.compaction.level_compactions += 1,
        }
    }
}

fn filled(mut block: Block, bytes: &[u8]) -> BlockPart {
    block[..bytes.len()].copy_from_slice(bytes);
    BlockPart { block: Arc::new(block), start: 0, len: bytes.len() as u32 }
}
