//! A store of engine `hash`, and of `matrix` what it has beside its volumes: one region of
//! persistent memory, in `pmem/region-000` of the store's directory or where `region` of its
//! manifest says.
//!
//! `pmem/OPEN` is there while the store is open for writing: left behind, the last end was no
//! orderly one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use stratakv_base::quantity::{format_bytes, format_count};
use stratakv_base::{Corruption, Level};
use stratakv_device::Geometry;
use stratakv_engine::{Error as EngineError, Progress};
use stratakv_hash::{Hash, HashOptions};
use stratakv_matrix::container;
use stratakv_pmem::{Domain, MapError, MapOptions, Mapping, Pmem, dax_devices, prospect_of};

use files::Files;

use crate::backup::Restoring;
use crate::check::CheckReport;
use crate::directory::{Directory, Manifest, io_error, make, sync_directory};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::hash_store::{HashStore, catalogue_records};
use crate::options::{OpenProgress, OpenPurpose, Options};
use crate::store::RecoverySummary;

mod files;
mod growth;

/// The region in the store's directory.
const REGION: &str = "pmem/region-000";
/// There while the store is open.
const OPEN_MARK: &str = "OPEN";
/// What the mark is called once the store was closed in order.
const CLOSED_MARK: &str = "CLOSED";
const MIB: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// A new region that nobody gave a length: at most this.
const REGION_BYTES: u64 = 1024 * MIB;
/// With less there is room for next to nothing.
const REGION_BYTES_MIN: u64 = MIB;
/// What must be zero at both ends of a device before a store is made on it.
const BLANK_BYTES: u64 = MIB;
/// The first superblock, and the second one behind it: both lie in these.
const SUPERBLOCKS_BYTES: u64 = 8192;

/// Whether a region lies in a directory.
pub(crate) fn is_in(directory: &Path) -> bool {
    directory.join(REGION).exists()
}

/// Where the region is, as it is remembered: its first file, and further ones.
pub(crate) fn remembered(directory: &Directory, manifest: &Manifest) -> Vec<PathBuf> {
    let first = manifest.region.clone().unwrap_or_else(|| directory.path.join(REGION));
    [first].into_iter().chain(manifest.regions.iter().cloned()).collect()
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device())
}

fn exists(path: &Path) -> Error {
    Error::Region {
        why: format!(
            "{} exists and is no part of the region: name another file for it, or remove this one",
            path.display()
        ),
        kind: ErrorKind::Usage,
    }
}

/// The directory that must be there for a file of the region to be made. That of the store makes
/// its own.
fn directory_of<'a>(directory: &'a Directory, path: &'a Path) -> &'a Path {
    let elsewhere = path.parent().filter(|_| path != directory.path.join(REGION));
    elsewhere.unwrap_or(&directory.path)
}

/// Whether the options make sense for a store of this engine, which has a region.
pub(crate) fn check_options(engine: Engine, options: &Options) -> Result<(), Error> {
    if engine == Engine::Hash {
        check_options_of_hash(options)?;
    } else if options.asked.region.paths.len() > 1 {
        return Err(Error::Option(
            "several paths for the region: with the engine `matrix` it is one file or device".into(),
        ));
    }
    if let Some((levels, region)) =
        options.asked.pmem_levels_bytes.zip(options.asked.region.bytes).filter(|(levels, region)| levels >= region)
    {
        return Err(Error::Option(format!(
            "PMEM levels of {levels} bytes in a region of {region}: they are a part of the region, ask for a longer one (--region)"
        )));
    }
    if let Some(bytes) = options.asked.region.bytes.filter(|bytes| *bytes < REGION_BYTES_MIN || bytes % PAGE_BYTES != 0)
    {
        return Err(Error::Option(format!(
            "a region of {bytes} bytes: it has at least {}, and is a multiple of 4096",
            format_bytes(REGION_BYTES_MIN)
        )));
    }
    Ok(())
}

fn check_options_of_hash(options: &Options) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::Option(format!("{what}: the engine `hash` has one region; leave that out")));
    if !options.places.devices.is_empty() {
        return refuse("raw devices hold volumes, which it has not (a devdax device is named as the region's path)");
    }
    if !options.places.more_directories.is_empty() {
        return refuse("several data directories are for volumes, which it has not");
    }
    if options.capacity_bytes.is_some_and(|bytes| bytes > 0) {
        return Err(Error::Option(
            "a store of the engine `hash` takes what its region has: give that a length, not the store a capacity"
                .into(),
        ));
    }
    Ok(())
}

/// Whether the region of a new store may be made: its level can be given, and nothing of others
/// lies there. Writes nothing but a page that is gone on return.
pub(crate) fn may_create(
    directory: &Directory,
    manifest: &Manifest,
    unfinished: Option<&Manifest>,
    options: &Options,
) -> Result<(), Error> {
    if manifest.engine() == Engine::Hash && manifest.shards != 1 {
        return Err(Error::Option(format!("{} shards: a store of the engine `hash` has one", manifest.shards)));
    }
    let begun =
        unfinished.is_some_and(|unfinished| remembered(directory, unfinished) == remembered(directory, manifest));
    let paths = remembered(directory, manifest);
    for (number, path) in paths.iter().enumerate() {
        if paths.iter().take(number).any(|other| other == path) {
            return Err(Error::Option(format!("{} is named twice: name each file once", path.display())));
        }
        may_create_at(path, directory, (manifest, begun), options)?;
    }
    Ok(())
}

fn may_create_at(
    path: &Path,
    directory: &Directory,
    (manifest, begun): (&Manifest, bool),
    options: &Options,
) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(_) if is_device(path) || begun => {
            let mapping = Mapping::open(path, MapOptions { read_only: true, ..MapOptions::default() });
            refuse_contents(&mapping.map_err(refused)?, manifest, begun, is_device(path))
        }
        Ok(_) => Err(exists(path)),
        Err(_) if path.parent() == Some(Path::new("/dev")) => Err(no_device(path)),
        Err(_) if !directory_of(directory, path).is_dir() => Err(no_directory(directory_of(directory, path))),
        Err(_) if options.durable_level() == Level::PowerLoss => {
            check_level(prospect_of(directory_of(directory, path)).map_err(refused)?.domain, path, options)
        }
        Err(_) => Ok(()),
    }
}

/// A directory that is not there: perhaps its file system is not mounted, and what is made below it
/// would be hidden once it is.
fn no_directory(parent: &Path) -> Error {
    let parent = parent.display();
    let why = format!(
        "the directory {parent}, in which the region is to lie, does not exist: make it (mkdir -p {parent}), after its file system is mounted, or name another \
         place for the region (--region-path)"
    );
    Error::Region { why, kind: ErrorKind::NotFound }
}

/// A name in `/dev` that nothing has: no file is made there.
fn no_device(path: &Path) -> Error {
    let why = format!(
        "there is no device {}: `ls /dev/dax*` lists those of this machine, and `ndctl create-namespace --mode devdax` makes one of persistent memory. \
         Without persistent memory name a file for the region (--region-path), or leave the option out",
        path.display()
    );
    Error::Region { why, kind: ErrorKind::NotFound }
}

/// Whether a new region may be made in the place of one that is lost: its directory is there, and
/// its level can be given. Writes nothing but a page that is gone on return.
pub(crate) fn may_replace(path: &Path, directory: &Directory, options: &Options) -> Result<(), Error> {
    let parent = directory_of(directory, path);
    if !parent.as_os_str().is_empty() && !parent.is_dir() {
        return Err(no_directory(parent));
    }
    if options.durable_level() != Level::PowerLoss || is_device(path) {
        return Ok(());
    }
    check_level(prospect_of(nearest_directory(path)).map_err(refused)?.domain, path, options)
}

/// The directory that a file of that path lies in, or the nearest one above that is there.
fn nearest_directory(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(Path::new("."))
}

/// Refuses what is not ours to write over: another store, or, unless this very store was being made
/// there, anything at all.
fn refuse_contents(mapping: &Mapping, manifest: &Manifest, begun: bool, device: bool) -> Result<(), Error> {
    let path = mapping.path().display();
    let refuse = |what: &str| {
        let way = if device { "make its namespace anew (ndctl create-namespace)" } else { "remove it" };
        let why = format!("{path} holds {what}: {way} if nobody wants that, or name another place for the region");
        Err(Error::Region { why, kind: ErrorKind::Usage })
    };
    match Hash::options_of(mapping) {
        Ok(found) if begun && Some(found.uuid) == manifest.uuid_bytes() => return Ok(()),
        Ok(_) => return refuse("a store of the engine `hash`"),
        Err(EngineError::NewerFormat { .. }) => return refuse("a store of a newer program"),
        // It is looked at further below.
        Err(_) => {}
    }
    match container::uuid_of(mapping) {
        Some(found) if begun && Some(found) == manifest.uuid_bytes() => return Ok(()),
        Some(_) => return refuse("containers of a store of the engine `matrix`"),
        None => {}
    }
    let len_bytes = mapping.len_bytes();
    let blank_bytes = if begun { SUPERBLOCKS_BYTES } else { BLANK_BYTES }.min(len_bytes);
    let mut bytes = vec![0; blank_bytes as usize];
    for at in if begun { vec![0] } else { vec![0, len_bytes - blank_bytes] } {
        mapping.load(at, &mut bytes).map_err(EngineError::from)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return refuse("something (its first and last MiB are not zero)");
        }
    }
    Ok(())
}

/// Removes the files that an interrupted creation of this very store left.
pub(crate) fn clear(directory: &Directory, manifest: &Manifest) -> Result<(), Error> {
    make(&directory.path.join("pmem"))?;
    remove_files(directory, manifest)
}

/// Whether a part of the region is a device.
pub(crate) fn is_on_device(directory: &Directory, manifest: &Manifest) -> bool {
    manifest.engine().has_region() && remembered(directory, manifest).iter().any(|path| is_device(path))
}

/// Removes the region's files; the caller knows that they hold nothing. Those of another store
/// stay: two may have been made at the same moment, with the same path.
pub(crate) fn remove_files(directory: &Directory, manifest: &Manifest) -> Result<(), Error> {
    for path in remembered(directory, manifest).iter().filter(|path| !is_device(path)) {
        let mapping = Mapping::open(path, MapOptions { read_only: true, ..MapOptions::default() });
        if mapping.is_ok_and(|mapping| refuse_contents(&mapping, manifest, true, false).is_err()) {
            continue;
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", path)(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Makes or opens the store in its region.
pub(crate) fn open(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    created: bool,
) -> Result<(Arc<HashStore>, RecoverySummary), Error> {
    let clean = created || !directory.path.join("pmem").join(OPEN_MARK).exists();
    let (hash, grown_bytes, copy) = recover(directory, manifest, options, created)?;
    let path = hash.pmem().path().to_path_buf();
    let report = hash.report();
    let limit_bytes = options.memory_bytes;
    let index_bytes = report.dram.table_bytes + report.dram.order_bytes;
    if index_bytes > limit_bytes {
        let (records, path) = (format_count(report.records, "record"), path.display());
        let (takes, has) = (format_bytes(index_bytes), format_bytes(limit_bytes));
        return Err(Error::Option(format!(
            "the index of the region {path} ({records}) takes {takes} of memory, and the cap is {has}: open it with more (--memory), best twice as much as \
             that, so that it can grow"
        )));
    }
    let corrupt: Vec<String> = hash.damage().iter().map(ToString::to_string).collect();
    for damage in &corrupt {
        tracing::warn!(%damage, "damaged data; reading it fails, everything else is served");
    }
    let records = report.records.saturating_sub(catalogue_records(&hash));
    let lost_unknown = if corrupt.is_empty() { 0 } else { hash.lost().map_err(at(&path))?.1 };
    let superblocks_repaired = u64::from(copy.is_some());
    let found =
        RecoverySummary { corrupt, lost_unknown, grown_bytes, superblocks_repaired, ..RecoverySummary::default() };
    let recovery = RecoverySummary { created, clean, records, ..found };
    let mark = if options.read_only { None } else { Some(mark_open(&directory.path.join("pmem"))?) };
    Ok((Arc::new(HashStore::new(hash, options, mark)), recovery))
}

/// What the store is, if its region was found elsewhere than it says: to be remembered. Not by one
/// who only reads.
pub(crate) fn moved(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    found: &[PathBuf],
) -> Result<Option<Manifest>, Error> {
    let ([named], [file]) = (&options.asked.region.paths[..], found) else { return Ok(None) };
    if options.read_only || !manifest.regions.is_empty() || file != named {
        return Ok(None);
    }
    let path = std::path::absolute(named).map_err(io_error("find", named))?;
    let home = std::path::absolute(directory.path.join(REGION)).map_err(io_error("find", named))?;
    let region = (path != home).then_some(path);
    Ok((region != manifest.region).then(|| Manifest { region, ..manifest.clone() }))
}

/// Reads and verifies what is in the region, and mends it nowhere.
pub(crate) fn check(directory: &Directory, manifest: &Manifest, options: &Options) -> Result<CheckReport, Error> {
    let (hash, _, copy) = recover(directory, manifest, options, false)?;
    let report = hash.report();
    let (lost, lost_unknown) = hash.lost().map_err(at(hash.pmem().path()))?;
    Ok(CheckReport {
        shards: 1,
        lost_records: lost.len() as u64,
        lost,
        lost_unknown,
        records: report.records.saturating_sub(catalogue_records(&hash)),
        pages: hash.region_bytes() / PAGE_BYTES,
        pages_free: (report.free_bytes + report.unused_bytes) / PAGE_BYTES,
        damage: hash.damage().iter().chain(&copy).map(ToString::to_string).collect(),
        ..CheckReport::default()
    })
}

/// The first file of a new region in these, with an empty store of engine `hash` in it.
fn create(paths: &[PathBuf], manifest: &Manifest, options: &Options) -> Result<Mapping, Error> {
    let mapping = new_mapping(paths, options)?;
    let path = mapping.path().to_path_buf();
    // Sixty-four of them at least, where the region is that small.
    let segment_bytes = (mapping.len_bytes() / 64).clamp(4096, MIB);
    let segment_bytes = 1 << segment_bytes.ilog2();
    let uuid = manifest.uuid_bytes().unwrap_or_default();
    let made = Hash::create(mapping, HashOptions { uuid, segment_bytes, ..HashOptions::default() });
    Ok(made.map_err(at(&path))?.into_pmem())
}

/// The first file of a new region in these: a new file, or a device as it is.
pub(crate) fn new_mapping(paths: &[PathBuf], options: &Options) -> Result<Mapping, Error> {
    let path = paths.first().map_or(Path::new(""), PathBuf::as_path);
    let how = files::how(path, options);
    let mapping = if is_device(path) {
        Mapping::open(path, how).map_err(refused)?
    } else {
        let len_bytes = match options.asked.region.bytes {
            Some(bytes) => first_share(bytes, paths)?,
            None => new_len_bytes(path, options)?,
        };
        Mapping::create(path, len_bytes, how).map_err(refused)?
    };
    at_level(mapping, options)
}

/// What the first file gets of a new region: devices are taken whole, files have equal shares of
/// the rest.
fn first_share(region_bytes: u64, paths: &[PathBuf]) -> Result<u64, Error> {
    let mut of_devices = 0;
    for path in paths.iter().filter(|path| is_device(path)) {
        let only_read = MapOptions { read_only: true, ..MapOptions::default() };
        of_devices += Mapping::open(path, only_read).map_err(refused)?.len_bytes();
    }
    let files = paths.iter().filter(|path| !is_device(path)).count() as u64;
    let share = growth::share_of(region_bytes.saturating_sub(of_devices), files);
    if share < REGION_BYTES_MIN {
        return Err(Error::Option(format!(
            "a region of {region_bytes} bytes in {files} files beside devices of {of_devices}: each file has at least {}; ask for more, or name fewer",
            format_bytes(REGION_BYTES_MIN)
        )));
    }
    Ok(share)
}

/// The files of the region, which may be new.
fn files_of(directory: &Directory, manifest: &Manifest, options: &Options, created: bool) -> Result<Files, Error> {
    let remembered = remembered(directory, manifest);
    if !created {
        return Files::open(&options.asked.region.paths, &remembered, directory, manifest, options);
    }
    let mapping = create(&remembered, manifest, options)?;
    Ok(Files::created(mapping, manifest.uuid_bytes().unwrap_or_default()))
}

/// Opens the store in its region, after that has grown if it was asked for; by how much it has, and
/// what was wrong with a copy of its superblock.
fn recover(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    created: bool,
) -> Result<(Hash<Mapping>, u64, Option<Corruption>), Error> {
    let mut files = files_of(directory, manifest, options, created)?;
    let named = if created { remembered(directory, manifest) } else { options.asked.region.paths.clone() };
    let parts = files.grow(&named, (directory, manifest), options, created)?;
    let mapping = files.joined()?;
    for part in &parts {
        Hash::add_part(&&mapping, part.len_bytes, part.id).map_err(at(mapping.path()))?;
    }
    let grown_bytes = if created { 0 } else { parts.iter().map(|part| part.len_bytes).sum() };
    if grown_bytes > 0 {
        tracing::info!(grown_bytes, "the region has grown");
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let watch = options.listeners.progress.clone();
    let report = move |Progress { done_bytes, total_bytes }| {
        if let Some(watch) = &watch {
            watch(OpenProgress { done_bytes, total_bytes });
        }
    };
    let path = mapping.path().to_path_buf();
    // Opening takes it from the other one.
    let copy = Hash::damaged_copy(&mapping).map_err(at(&path))?;
    let cut_at = mapping.file_ends_at();
    let hash = Hash::open_watched(mapping, threads, &report).map_err(at(&path))?;
    cut_at.into_iter().for_each(|bytes| hash.note_cut_off(bytes));
    Ok((hash, grown_bytes, copy))
}

/// The region, made durable as the level asks for and no more.
pub(crate) fn at_level(mapping: Mapping, options: &Options) -> Result<Mapping, Error> {
    check_level(mapping.domain(), mapping.path(), options)?;
    // The page cache survives the process: nobody needs to wait for the disk.
    let weaker = options.durable_level() == Level::ProcessCrash && mapping.domain() == Domain::File;
    if weaker { mapping.treated_as(Domain::Volatile).map_err(refused) } else { Ok(mapping) }
}

fn check_level(domain: Domain, path: &Path, options: &Options) -> Result<(), Error> {
    if options.durable_level() != Level::PowerLoss || domain.survives_power_loss() {
        return Ok(());
    }
    Err(Error::Option(format!(
        "durability power_loss cannot be given with the region at {}: its memory does not survive a power cut. Put it on persistent memory or \
         on a disk, or ask for less (--durability process_crash)",
        path.display()
    )))
}

/// What nobody asked for: in a restore what the backup's had, if its records want no more.
pub(crate) fn new_len_bytes(path: &Path, options: &Options) -> Result<u64, Error> {
    match options.purpose {
        OpenPurpose::Restore(Restoring { region_bytes: Some(bytes), ample_bytes }) => Ok(bytes.max(ample_bytes)),
        OpenPurpose::Restore(Restoring { region_bytes: None, ample_bytes }) => {
            Ok(default_bytes(path)?.max(ample_bytes))
        }
        OpenPurpose::Use | OpenPurpose::Repair { .. } => default_bytes(path),
    }
}

/// Half of what is free there, at most 1 GiB.
fn default_bytes(path: &Path) -> Result<u64, Error> {
    let within = nearest_directory(path);
    let medium = rustix::fs::statvfs(within).map_err(|errno| io_error("examine", within)(errno.into()))?;
    let free_bytes = medium.f_bavail.saturating_mul(medium.f_frsize);
    let bytes = (free_bytes / 2).min(REGION_BYTES) / MIB * MIB;
    if bytes < REGION_BYTES_MIN {
        let why = format!(
            "{} has {} free: too little for a region; make room, or put it elsewhere",
            within.display(),
            format_bytes(free_bytes)
        );
        return Err(Error::Region { why, kind: ErrorKind::Full });
    }
    Ok(bytes)
}

/// Says that the store is open for writing from now on. The mark is an empty file that is renamed,
/// which takes no room of the file system: a full one has a region's room all the same.
fn mark_open(pmem: &Path) -> Result<PathBuf, Error> {
    make(pmem)?;
    let mark = pmem.join(OPEN_MARK);
    let write = || -> io::Result<()> {
        match fs::rename(pmem.join(CLOSED_MARK), &mark) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&mark)?.sync_all()?;
            }
            renamed => renamed?,
        }
        sync_directory(pmem)
    };
    write().map_err(io_error("write", &mark))?;
    Ok(mark)
}

/// An orderly end: the next opening finds no mark, or that it was closed.
pub(crate) fn mark_closed(mark: &Path) {
    let renamed = fs::rename(mark, mark.with_file_name(CLOSED_MARK)).and_then(|()| match mark.parent() {
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    });
    if let Err(error) = renamed {
        tracing::warn!(%error, mark = %mark.display(), "the next opening will not see that the store was closed in order");
    }
}

fn at(path: &Path) -> impl FnOnce(EngineError) -> Error {
    let path = path.to_path_buf();
    move |error| Error::Volume { path, error }
}

/// Of a store that is there, a region that is not, or is not whole.
pub(crate) fn missing_or(error: MapError, directory: &Directory, manifest: &Manifest) -> Error {
    let home = directory.path.display();
    match error {
        MapError::Io { path, source, .. } if source.kind() == io::ErrorKind::NotFound => {
            missing(&path, directory, manifest)
        }
        MapError::TooShort { .. } | MapError::Unaligned { .. } => Error::Region {
            why: format!(
                "the region of the store in {home} was cut off, or made longer by hand ({error}): put it back from a backup, or `truncate` it to such a length{}",
                empty_too(directory, manifest)
            ),
            kind: ErrorKind::Corrupt,
        },
        error => refused(error),
    }
}

/// What else there is to do if nothing at all is left of the region.
fn empty_too(directory: &Directory, manifest: &Manifest) -> String {
    let paths = remembered(directory, manifest);
    let empty = paths.iter().find(|path| fs::metadata(path).is_ok_and(|found| found.len() == 0 && found.is_file()));
    empty.map_or_else(String::new, |path| format!(". If it is lost: {}", way_out(path, directory, manifest)))
}

/// Of a store that is there, a region that is not.
fn missing(path: &Path, directory: &Directory, manifest: &Manifest) -> Error {
    Error::Region {
        why: format!(
            "the region {} of the store in {} is missing{}: mount what it lies on, or say where it is now (--region-path). If it is lost: {}",
            path.display(),
            directory.path.display(),
            if was_in_memory(path) { " (files there are in memory, and end with the machine)" } else { "" },
            way_out(path, directory, manifest)
        ),
        kind: ErrorKind::NotFound,
    }
}

/// Of a store that is there, a region in which none is.
fn no_store_or(error: EngineError, mapping: &Mapping, directory: &Directory, manifest: &Manifest) -> Error {
    let path = mapping.path();
    if !matches!(error, EngineError::WrongVolume(_)) {
        return at(path)(error);
    }
    let mut front = vec![0; SUPERBLOCKS_BYTES.min(mapping.len_bytes()) as usize];
    let is_blank = mapping.load(0, &mut front).is_ok() && front.iter().all(|byte| *byte == 0);
    let found = if is_blank {
        "is blank: zeros were written over it, or it was made anew in place of one that was lost. What was in the store is not there any more"
    } else {
        "holds no store of engine `hash`: it is another file, or both copies of its superblock are damaged. If the store's own region is elsewhere, name it (--region-path)"
    };
    let (path, home, way) = (path.display(), directory.path.display(), way_out(path, directory, manifest));
    Error::Region { why: format!("the region {path} of the store in {home} {found}. {way}"), kind: ErrorKind::Corrupt }
}

/// Whether a file of that path lies in memory that ends with the machine.
fn was_in_memory(path: &Path) -> bool {
    // What cannot be opened here cannot be used later, which says why.
    let folder = File::open(nearest_directory(path)).ok();
    folder.is_some_and(|folder| !Geometry::probe(&folder).survives_power_loss)
}

/// Whether a region of that path is in memory that loses its contents in a power cut.
pub(crate) fn is_in_memory(path: &Path) -> bool {
    match is_device(path) {
        true => dax_devices().iter().any(|device| device.path == path && !device.domain.survives_power_loss()),
        false => was_in_memory(path),
    }
}

/// What a command needs that makes or opens a region of that path: nothing, or the level that its
/// memory can give.
pub(crate) fn safe_option(path: &Path) -> &'static str {
    if !is_device(path) && was_in_memory(path) { " --durability process_crash" } else { "" }
}

/// What to do about a store whose region is lost.
fn way_out(path: &Path, directory: &Directory, manifest: &Manifest) -> String {
    let (home, engine) = (directory.path.display(), manifest.engine().name());
    let (mut remove, mut option) = (format!("rm -r {home}"), String::new());
    if manifest.region.is_some() {
        option = format!(" --region-path {}", path.display());
        // As above.
        let found = fs::metadata(path).ok();
        if found.as_ref().is_some_and(|found| found.file_type().is_char_device()) {
            remove += ", make its namespace anew (ndctl create-namespace)";
        } else if found.is_some() {
            remove += &format!(" {}", path.display());
        }
    }
    let level = safe_option(path);
    let accept = match manifest.engine() {
        Engine::Matrix => format!(
            "go on with what is on the volumes, without what only the region had (stratakv repair --data {home}{option}{level} says what that is; with \
             --accept-lost-region it makes a new region), or "
        ),
        _ => String::new(),
    };
    format!(
        "{accept}restore the store from a backup ({remove}; then stratakv restore BACKUP --data {home}{option}), or, without one, begin an empty store there ({remove}; then stratakv \
         serve --engine {engine} --data {home}{option}{level})"
    )
}

/// As it was said, with what sort of failure it is.
pub(crate) fn refused(error: MapError) -> Error {
    let kind = match &error {
        MapError::Locked { .. } => ErrorKind::Locked,
        MapError::NoSpace { .. } => ErrorKind::Full,
        MapError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorKind::NotFound,
        MapError::Io { .. } | MapError::Region(_) | MapError::LengthChanged { .. } => ErrorKind::Io,
        MapError::NoFlush { .. } | MapError::Domain { .. } | MapError::Sparse { .. } | MapError::NotPrivate { .. } => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::Usage,
    };
    Error::Region { why: error.to_string(), kind }
}
