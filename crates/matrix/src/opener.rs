//! [`MatrixOpener`]: creates or recovers a shard. Superblocks, the manifest one of them points to,
//! then the region.

mod giving_up;
mod manifest_search;

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Corruption, Place, fault_point};
use stratakv_chassis::opener::OpenerIo;
use stratakv_device::IoFault;
use stratakv_engine::{Effects, Error, Io, IoOutcome, Opener, Progress};
use stratakv_pmem::Pmem;

use self::manifest_search::ManifestSearch;
use crate::batch::Batches;
use crate::blob_write::Blobs;
use crate::compactor::Compactor;
use crate::config::{MatrixConfig, RecoveryReport};
use crate::container::{Config, Container, Report};
use crate::cursor::Stop;
use crate::growth::VolumeSpace;
use crate::install::{Installer, manifest_checksum};
use crate::levels::Levels;
use crate::life::Life;
use crate::matrix::Matrix;
use crate::memory::Memory;
use crate::pairing::{Epoch, Known, Loss, VolumeState};
use crate::pmem_levels::{self, Plan};
use crate::ranges::{RangeDelete, RangeDeletes};
use crate::reading::Reads;
use crate::scheduler::Scheduler;
use crate::snapshots::Snapshots;
use crate::space::pages_min;
use crate::statistics::Counters;
use crate::volume::{Extent, FIRST_PAGE, Manifest, PMEM_LEVELS_FIRST, Places, Superblock};

/// A manifest longer than this is none: 1 GiB.
const MANIFEST_PAGES_MAX: u32 = 1 << 18;

/// What a request of the opener is for.
#[derive(Clone, Copy, Debug)]
enum OpenerIoPurpose {
    /// The superblock in this page.
    Superblock(usize),
    /// The manifest from this byte on.
    Manifest(usize),
    /// The first manifest of a new shard.
    FirstManifest,
    FirstFlush,
    FirstSuperblock(u64),
    /// The superblock that counts as it was found, into the slot that has another one.
    Level,
    /// The superblock that counts, in the new epoch.
    Mend,
    /// The manifest without the tables that are given up, up to this byte of its two copies; and
    /// the flush behind it.
    Remainder(usize),
    RemainderFlush,
}

/// What was opened, and which pages are free.
#[derive(Debug)]
struct Opened<P> {
    container: Container<P>,
    report: Report,
    places: Places,
}

/// See the module.
#[derive(Debug)]
pub struct MatrixOpener<P> {
    config: MatrixConfig,
    pmem: Option<P>,
    /// Bytes of a unit, for a new container.
    create: Option<u32>,
    /// The same, for one that takes the place of a container that is lost.
    replace: Option<u32>,
    loss: Option<Loss>,
    io: OpenerIo<OpenerIoPurpose>,
    search: ManifestSearch,
    superblock: Superblock,
    bytes: Vec<u8>,
    read_bytes: u64,
    /// The superblock that counts said so.
    closed_in_order: bool,
    /// Slots of superblocks that are written before the shard serves.
    mends: VecDeque<u64>,
    /// Tables are given up: the manifest is written without them.
    gives_up_tables: bool,
    opened: Option<Opened<P>>,
}

impl<P: Pmem> MatrixOpener<P> {
    /// Makes a new shard: `unit_bytes` is the unit of its container, a power of two from 4096 to 1
    /// MiB.
    pub fn create(config: MatrixConfig, pmem: P, unit_bytes: u32) -> MatrixOpener<P> {
        MatrixOpener { create: Some(unit_bytes), ..MatrixOpener::recover(config, pmem) }
    }

    /// Opens one that is there.
    pub fn recover(config: MatrixConfig, pmem: P) -> MatrixOpener<P> {
        MatrixOpener {
            config,
            pmem: Some(pmem),
            create: None,
            replace: None,
            loss: None,
            io: OpenerIo::default(),
            search: ManifestSearch::default(),
            superblock: Superblock::default(),
            bytes: Vec::new(),
            read_bytes: 0,
            closed_in_order: false,
            mends: VecDeque::new(),
            gives_up_tables: false,
            opened: None,
        }
    }

    /// Opens one that is there, and gives up its region if that does not belong to its volume, or
    /// cannot be read: all that only the region had is lost, and [`RecoveryReport::loss`] says
    /// what. `unit_bytes` as in [`MatrixOpener::create`].
    pub fn recover_without_region(config: MatrixConfig, pmem: P, unit_bytes: u32) -> MatrixOpener<P> {
        MatrixOpener { replace: Some(unit_bytes), ..MatrixOpener::recover(config, pmem) }
    }

    /// Container, manifest, superblock: only the last one makes it a shard.
    fn start_creation(&mut self, unit_bytes: u32, effects: &mut Effects) {
        let least = pages_min(&self.config) * PAGE_BYTES as u64;
        if let Some(bytes) = self.config.capacity_bytes.filter(|bytes| *bytes < least) {
            return self.io.fail(Error::Option(format!(
                "a capacity of {bytes} bytes for each volume is too small: beside this region, each has at least {least}; ask for more (--capacity), or for a shorter region"
            )));
        }
        let Some(pmem) = self.pmem.take() else { return };
        let MatrixConfig { uuid, shard, row_bytes, .. } = self.config;
        let region_bytes = pmem.len_bytes().saturating_sub(self.config.pmem_levels_bytes);
        let made = Container::create_within(pmem, Config { uuid, shard, unit_bytes, row_bytes }, region_bytes);
        let epoch = Epoch { number: 1, session: self.config.session };
        let made = made.and_then(|mut container| container.begin_epoch(epoch, epoch).map(|()| container));
        let container = match made {
            Ok(container) => container,
            Err(error) => return self.io.fail(error),
        };
        self.superblock.known = container.known();
        let manifest = Manifest { number: 1, next_file: 1, ..Manifest::default() };
        self.bytes = manifest.encode();
        self.bytes.resize(PAGE_BYTES, 0);
        let checksum = manifest_checksum(&self.config.uuid, 1, &self.bytes);
        let (shard, shards) = (self.config.shard, self.config.shards);
        let superblock = Superblock { shard, shards, number: 1, page: FIRST_PAGE, pages: 1, ..Superblock::default() };
        self.superblock = Superblock { checksum, known: self.superblock.known, ..superblock };
        match self.places(&manifest, self.superblock.manifest(), pmem_levels::pmem_levels_pages(&container)) {
            Ok(places) => self.opened = Some(Opened { container, report: Report::default(), places }),
            Err(error) => return self.io.fail(error),
        }
        let page = std::mem::take(&mut self.bytes);
        for copy in [FIRST_PAGE, FIRST_PAGE + 1] {
            let fill = |into: &mut [u8]| into.copy_from_slice(&page);
            self.io.write((copy, 1), false, OpenerIoPurpose::FirstManifest, effects, fill);
        }
        self.bytes = page;
    }

    /// Writes through the superblock into this slot.
    fn write_superblock(&mut self, slot: u64, superblock: Superblock, purpose: OpenerIoPurpose, effects: &mut Effects) {
        let uuid = self.config.uuid;
        self.io.write((slot, 1), true, purpose, effects, |page| superblock.encode(&uuid, page));
    }

    fn created(&mut self, purpose: OpenerIoPurpose, effects: &mut Effects) {
        match purpose {
            OpenerIoPurpose::FirstManifest if self.io.is_idle() => {
                effects.flush(self.io.start(OpenerIoPurpose::FirstFlush))
            }
            OpenerIoPurpose::FirstFlush | OpenerIoPurpose::FirstSuperblock(0) => {
                let slot = u64::from(matches!(purpose, OpenerIoPurpose::FirstSuperblock(0)));
                self.write_superblock(slot, self.superblock, OpenerIoPurpose::FirstSuperblock(slot), effects);
            }
            _ => {}
        }
    }

    /// Both superblocks were read: the manifest is where the newer one says.
    fn choose(&mut self, effects: &mut Effects) {
        if let Err(error) = self.search.choose((self.config.shard, self.config.shards)) {
            return self.io.fail(error);
        }
        self.superblock = self.search.counted();
        self.try_copy(effects);
    }

    /// Reads the next copy of a manifest.
    fn try_copy(&mut self, effects: &mut Effects) {
        let Some(superblock) = self.search.next_copy() else { return };
        self.superblock = superblock;
        self.bytes.clear();
        self.read_manifest(0, effects);
    }

    /// The manifest is whole: the region must be that of this volume, and neither older than the
    /// other one has seen it. Nothing was written so far. Then both slots are made to have the
    /// superblock that counts.
    fn pair(&mut self, effects: &mut Effects) {
        match self.paired() {
            Ok(opened) if self.config.read_only => {
                self.closed_in_order = self.superblock.clean;
                self.opened = Some(opened);
            }
            Ok(opened) => {
                self.opened = Some(opened);
                match self.search.other_slot() {
                    Some(slot) => {
                        self.write_superblock(slot as u64, self.search.counted(), OpenerIoPurpose::Level, effects);
                    }
                    None => self.begin_epoch(effects),
                }
            }
            Err(error) => self.io.fail(error),
        }
    }

    /// The region begins a new epoch, in which the volume follows.
    fn begin_epoch(&mut self, effects: &mut Effects) {
        let Some(opened) = &mut self.opened else { return };
        let (region, volume) = (opened.container.state(), self.superblock.known.epoch);
        let number = region.epoch.number.max(volume.number) + 1;
        let epoch = Epoch { number, session: self.config.session };
        if let Err(error) = opened.container.begin_epoch(epoch, volume) {
            return self.io.fail(error);
        }
        let known = opened.container.known();
        self.prepare_mend(known);
        match self.gives_up_tables {
            true => self.write_remainder(0, effects),
            false => self.mend_next(effects),
        }
    }

    /// The container, opened and compared with the volume; or made anew if it is lost and that is
    /// accepted.
    fn paired(&mut self) -> Result<Opened<P>, Error> {
        let Some(pmem) = self.pmem.take() else { return Err(Error::Unknown("the opener has no region")) };
        let manifest = self.manifest()?;
        let volume = VolumeState {
            known: self.superblock.known,
            manifest: manifest.number,
            directory: manifest.directory,
            compactor: manifest.rotation.compactor,
        };
        let Some(unit_bytes) = self.replace else { return self.open_container(pmem, &volume, &manifest) };
        let MatrixConfig { uuid, shard, row_bytes, .. } = self.config;
        let opened = Container::open(&pmem, uuid, shard, row_bytes).map(|(container, _)| container.state());
        let (why, kept_version) = match opened.map(|region| (region, region.compare(&volume))) {
            Ok((_, Ok(()))) => return self.open_container(pmem, &volume, &manifest),
            Ok((region, Err(mismatch))) => {
                let keeps = region.lacks_only_its_end(&volume, mismatch);
                (mismatch.to_string(), keeps.then_some(region.version))
            }
            Err(error @ (Error::NewerFormat { .. } | Error::Io { .. })) => return Err(error),
            Err(error) => (error.to_string(), None),
        };
        match kept_version {
            Some(version) => self.keep_rest(pmem, &manifest, why, version),
            None => self.begin_anew(pmem, &manifest, &volume, why, unit_bytes),
        }
    }

    fn open_container(&self, pmem: P, volume: &VolumeState, manifest: &Manifest) -> Result<Opened<P>, Error> {
        let MatrixConfig { uuid, shard, row_bytes, .. } = self.config;
        let lost = |why: String| Error::WrongVolume(format!("{why}. If it is lost: {}", self.loss_of(manifest)));
        let (container, report) =
            Container::open(pmem, uuid, shard, row_bytes).map_err(|error| match region_damaged(error) {
                Error::WrongVolume(why) => lost(why),
                other => other,
            })?;
        container.state().compare(volume).map_err(|mismatch| lost(mismatch.to_string()))?;
        let places = self.places(manifest, self.superblock.manifest(), pmem_levels::pmem_levels_pages(&container))?;
        Ok(Opened { container, report, places })
    }

    /// Both slots must have the superblock that counts before anything is written: what only the
    /// other one names is free, and will be written over. The slot that has another one goes first,
    /// so one of them is whole all the while. Then the end is not in order any more.
    fn prepare_mend(&mut self, known: Known) {
        fault_point!("trial_superblocks_differ", return);
        self.mends = self.search.slots_to_mend().into();
        self.closed_in_order = self.superblock.clean;
        self.superblock = Superblock { clean: false, known, ..self.superblock };
    }

    fn mend_next(&mut self, effects: &mut Effects) {
        let Some(slot) = self.mends.pop_front() else { return };
        self.write_superblock(slot, self.superblock, OpenerIoPurpose::Mend, effects);
    }

    fn read_manifest(&mut self, from: usize, effects: &mut Effects) {
        let pages = ((self.manifest_bytes() - from).min(SLICE_BYTES) / PAGE_BYTES).max(1) as u64;
        self.io.read(
            self.search.copy_page() + (from / PAGE_BYTES) as u64,
            pages,
            OpenerIoPurpose::Manifest(from),
            effects,
        );
    }

    /// Of one copy, as its superblock says. Memory is taken for what was read of it.
    fn manifest_bytes(&self) -> usize {
        self.superblock.pages as usize * PAGE_BYTES
    }

    fn damaged(&self, what: &'static str, expected: &str, found: String, page: u64) -> Error {
        let place = Place { shard: self.config.shard, offset_bytes: page * PAGE_BYTES as u64 };
        Error::Corrupt(Corruption { place, what, expected: expected.into(), found })
    }

    fn manifest(&self) -> Result<Manifest, Error> {
        let number = self.superblock.number;
        let found = manifest_checksum(&self.config.uuid, number, &self.bytes);
        if found != self.superblock.checksum {
            // The copy that was not given may be whole.
            if let Some(fault) = self.search.last_fault() {
                return Err(Error::Io { what: "reading a copy of the manifest, the other one being damaged,", fault });
            }
            let expected = format!("checksum {:08x}", self.superblock.checksum);
            return Err(self.damaged("manifest", &expected, format!("{found:08x}"), self.superblock.page));
        }
        let refuse = |found: String| self.damaged("manifest", "a manifest", found, self.superblock.page);
        let manifest = Manifest::decode(&self.bytes).map_err(|error| refuse(error.to_string()))?;
        manifest.complaint().map_or(Ok(manifest), |found| Err(refuse(found.to_owned())))
    }

    /// What no extent of the manifest covers is free.
    fn places(&self, manifest: &Manifest, own: Extent, pmem_levels_pages: u64) -> Result<Places, Error> {
        let on_volume = manifest.extents().filter(|extent| !extent.in_pmem_levels());
        let used = on_volume.map(Extent::end).max().unwrap_or(0).max(own.end());
        // More is set aside once the shard runs.
        let mut places = Places::new(used, pmem_levels_pages);
        for extent in manifest.extents().chain([own]) {
            if extent.in_pmem_levels() && extent.end() > PMEM_LEVELS_FIRST + pmem_levels_pages {
                return Err(Error::WrongVolume(format!(
                    "the region of this shard has PMEM levels of {pmem_levels_pages} pages, and tables lie beyond it: it is another region than the volume was written with"
                )));
            }
            if places.claim(extent).is_err() {
                let found = format!("{} pages at page {} that something else has", extent.pages, extent.page);
                return Err(self.damaged("manifest", "extents of its own for each file", found, self.superblock.page));
            }
        }
        Ok(places)
    }
}

/// The deletes of ranges of the manifest, and those that are in logs only. None is newer than what
/// the region has: the end of that may have been given up, and numbers go on from there.
fn ranges_after<P: Pmem>(manifest: &Manifest, container: &mut Container<P>) -> RangeDeletes {
    let behind = container.version() + 1;
    let known = manifest.ranges.iter().map(|range| RangeDelete { version: range.version.min(behind), ..range.clone() });
    let known: Vec<RangeDelete> = known.collect();
    container.ranges_are_kept(known.iter().map(|range| range.version).max().unwrap_or(0));
    RangeDeletes::new(known.into_iter().chain(container.ranges()).collect())
}

/// Damage that lies in the region, and not on the volume.
fn region_damaged(error: Error) -> Error {
    match error {
        Error::Corrupt(corruption) => Error::WrongVolume(format!("the region is damaged: {corruption}")),
        other => other,
    }
}

impl<P: Pmem + Send> Opener for MatrixOpener<P> {
    type Shard = Matrix<P>;

    fn start(&mut self, effects: &mut Effects) {
        if let Some(unit_bytes) = self.create {
            return self.start_creation(unit_bytes, effects);
        }
        (0..2).for_each(|slot| self.io.read(slot, 1, OpenerIoPurpose::Superblock(slot as usize), effects));
    }

    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        let Some(purpose) = self.io.finish(io) else { return };
        match (purpose, outcome) {
            (OpenerIoPurpose::Superblock(slot), IoOutcome::Read(block, result)) => {
                self.read_bytes += PAGE_BYTES as u64;
                self.search.superblocks.read(slot, result, || Superblock::decode(&self.config.uuid, &block));
                if let Err(fault @ IoFault::Os(_)) = result {
                    self.search.note_unreadable(self.config.shard, slot as u64, 1, fault);
                }
                if self.search.superblocks.is_read() {
                    self.choose(effects);
                }
            }
            (OpenerIoPurpose::Manifest(from), IoOutcome::Read(block, Ok(()))) => {
                let all = self.manifest_bytes();
                let to = (from + SLICE_BYTES).min(all);
                self.bytes.resize(to, 0);
                if let (Some(into), Some(bytes)) = (self.bytes.get_mut(from..to), block.get(..to - from)) {
                    into.copy_from_slice(bytes);
                }
                self.read_bytes += (to - from) as u64;
                if to < all {
                    self.read_manifest(to, effects);
                } else if self.manifest().is_err() {
                    self.try_copy(effects);
                } else {
                    self.pair(effects);
                }
            }
            (OpenerIoPurpose::Manifest(_), IoOutcome::Read(_, Err(fault))) if self.search.has_more() => {
                let (page, pages) = (self.search.copy_page(), u64::from(self.superblock.pages));
                self.search.note_unreadable(self.config.shard, page, pages, fault);
                self.try_copy(effects);
            }
            (_, IoOutcome::Read(_, Err(fault))) => self.io.fail(Error::Io { what: "reading the manifest", fault }),
            (OpenerIoPurpose::Level | OpenerIoPurpose::Mend, IoOutcome::Write(Err(fault))) => self.io.fail(Error::Io {
                what: "writing a superblock (open the store for reading only to see what is there)",
                fault,
            }),
            (OpenerIoPurpose::Level, _) => self.begin_epoch(effects),
            (OpenerIoPurpose::Mend, _) => self.mend_next(effects),
            (
                OpenerIoPurpose::Remainder(_) | OpenerIoPurpose::RemainderFlush,
                IoOutcome::Write(Err(fault)) | IoOutcome::Flush(Err(fault)),
            ) => {
                self.io.fail(Error::Io {
                    what: "writing the manifest without the tables that are lost (give the region up again)",
                    fault,
                });
            }
            (OpenerIoPurpose::Remainder(end), _) => self.write_remainder(end, effects),
            (OpenerIoPurpose::RemainderFlush, _) => self.mend_next(effects),
            (_, IoOutcome::Write(Err(fault)) | IoOutcome::Flush(Err(fault))) => {
                self.io.fail(Error::Io { what: "creating the volume", fault });
            }
            (purpose, _) => self.created(purpose, effects),
        }
    }

    fn progress(&self) -> Progress {
        let total_bytes = (2 * PAGE_BYTES + self.manifest_bytes()) as u64;
        Progress { done_bytes: self.read_bytes, total_bytes }
    }

    fn is_finished(&self) -> bool {
        self.io.is_idle()
    }

    fn finish(mut self) -> Result<Matrix<P>, Error> {
        self.io.result()?;
        let manifest = self.manifest()?;
        let Some(Opened { mut container, report, places }) = self.opened.take() else {
            return Err(Error::Unknown("the opener has no region"));
        };
        let pmem_levels_pages = pmem_levels::pmem_levels_pages(&container);
        if self.create.is_none() && !self.config.read_only {
            container.complete_epoch()?;
            let replayed = container.replay(&manifest.rotation, manifest.directory, manifest.number);
            replayed.map_err(region_damaged)?;
        }
        let levels = Levels::new(&manifest);
        let (second_copy, last_number) = (self.search.is_second_copy(), self.search.highest().max(manifest.number));
        let recovery = RecoveryReport {
            clean: self.closed_in_order,
            log_records: report.recovered,
            torn: report.void_records,
            corrupt: Vec::new(),
            tables: (0..levels.depth()).map(|level| levels.level(level).len() as u64).sum(),
            entries: manifest.levels.iter().flatten().map(|table| table.facts.entries).sum(),
            superblock_repaired: self.search.repairs(),
            unreadable: self.search.into_unreadable(),
            loss: self.loss.take(),
        };
        let ranges = ranges_after(&manifest, &mut container);
        let plan = Plan::new(pmem_levels_pages * PAGE_BYTES as u64, self.config.level_bytes);
        let mut matrix = Matrix {
            life: Life::new(recovery, self.config.read_only),
            counters: Counters::default(),
            memory: Memory::new(self.config.memory_bytes),
            volume: VolumeSpace::new(places, self.config.capacity_bytes, self.config.shards),
            container,
            levels,
            ranges: Arc::new(ranges),
            reads: Reads::default(),
            scheduler: Scheduler::default(),
            snapshots: Snapshots::left_over(manifest.kept.iter().copied()),
            batches: Batches::new(self.config.shard, self.config.shards, self.config.read_only),
            blobs: Blobs::new(HashMap::new()),
            compactor: Compactor::new(plan),
            installer: Installer::new(self.superblock, second_copy, last_number, manifest.next_file),
            config: self.config,
        };
        let unreferenced = matrix.unclaimed().map_err(|stop| match stop {
            Stop::Damaged(corruption) => region_damaged(Error::Corrupt(corruption)),
            Stop::Missing => Error::Unknown("the container has no pages to miss"),
        })?;
        matrix.blobs = Blobs::new(unreferenced);
        Ok(matrix)
    }
}
