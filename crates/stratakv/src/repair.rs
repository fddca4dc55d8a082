//! Going on without a region that is lost: what is on the volumes of a store of engine `matrix`.

use std::path::{Path, PathBuf};

use stratakv_base::{CollectionId, Key};
use stratakv_pmem::Pmem;

use crate::catalogue::CATALOGUE;
use crate::containers::is_lost;
use crate::devices;
use crate::directory::Directory;
use crate::engine::{AnyShard, Engine};
use crate::error::Error;
use crate::open::{ShardOpening, check_engine, open_shards};
use crate::options::{OpenPurpose, Options};
use crate::parts;
use crate::region;

/// A region, or a shard's part of one, that does not belong to its volume any more, or cannot be
/// read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRegion {
    /// The shard.
    pub shard: u32,
    /// Why it is not served.
    pub why: String,
    /// What goes with it, and what stays.
    pub loss: String,
    /// The volume knows of changes up to this version; there may have been more.
    pub version: u64,
    /// Of these, the oldest that was perhaps in the region only; 0: none was.
    pub oldest: u64,
    /// At most so many of these were.
    pub records: u64,
    /// The store was closed in order after that version: there were no more.
    pub clean: bool,
    /// All of the region up to this version is kept.
    pub kept_version: Option<u64>,
    /// Versions of records in tables that are left.
    pub entries: u64,
    /// Tables that lay in the PMEM levels of the region, from the first level down: they are lost.
    pub tables: Vec<LostTable>,
    /// Names of collections, or the numbers that they stand for, may be among what those tables
    /// had.
    pub may_lose_names: bool,
}

impl LostRegion {
    fn new(shard: u32, loss: &stratakv_matrix::Loss) -> LostRegion {
        let tables: Vec<LostTable> = loss.tables.iter().map(LostTable::new).collect();
        LostRegion {
            shard,
            why: loss.why.clone(),
            loss: loss.to_string(),
            version: loss.known.version,
            oldest: loss.known.oldest,
            records: loss.known.records,
            clean: loss.clean,
            kept_version: loss.kept_version,
            entries: loss.entries,
            may_lose_names: tables.iter().any(LostTable::may_have_names),
            tables,
        }
    }
}

/// A table of which at least a part lay in the PMEM levels of a region that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostTable {
    /// Its number.
    pub table: u64,
    /// Its level: 1 is the first one below the container.
    pub level: u32,
    /// Versions of records in it.
    pub entries: u64,
    /// Of these, deletes.
    pub deletes: u64,
    /// Bytes of its pages.
    pub bytes: u64,
    /// Bytes of values apart from it, on the volume, that nothing points to any more. A file that
    /// has no others is free at once, and one of which more than half is dead gives up the rest.
    pub value_bytes: u64,
    /// The lowest version in it.
    pub lowest_version: u64,
    /// And the highest.
    pub highest_version: u64,
    /// The first key in it.
    pub first: Key,
    /// And the last.
    pub last: Key,
    /// Tables that are kept have keys in its range: of those an older version is seen from now on,
    /// also of keys that were deleted.
    pub hid_others: bool,
    /// All of it in words.
    pub text: String,
}

impl LostTable {
    fn new(table: &stratakv_matrix::LostTable) -> LostTable {
        let key =
            |encoded: &[u8]| Key::from_encoded(encoded).unwrap_or_else(|| Key::bound(CollectionId::default(), encoded));
        LostTable {
            table: table.file,
            level: table.level,
            entries: table.entries,
            deletes: table.deletes,
            bytes: table.bytes,
            value_bytes: table.value_bytes,
            lowest_version: table.versions.0,
            highest_version: table.versions.1,
            first: key(&table.keys.0),
            last: key(&table.keys.1),
            hid_others: table.hid_others,
            text: table.to_string(),
        }
    }

    fn may_have_names(&self) -> bool {
        (self.first.collection()..=self.last.collection()).contains(&CATALOGUE)
    }
}

/// What [`repair`] found, and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Shards without a region; the others are as they were.
    pub lost: Vec<LostRegion>,
    /// They have a new one.
    pub repaired: bool,
    /// Where it is.
    pub region: Option<String>,
    /// The region that was looked at: the one that was named, else the one that the store
    /// remembers.
    pub region_path: PathBuf,
    /// How long that is, or a new one would be.
    pub region_bytes: u64,
    /// What of it is for PMEM levels, or would be.
    pub pmem_levels_bytes: u64,
    /// What has, or is to have, the region ends with the machine: a new one there is made at level
    /// `process_crash` only.
    pub region_in_memory: bool,
}

/// Tells what a store of engine `matrix` loses whose region is gone, blank, damaged, older than its
/// volumes or newer; with `accept_lost_region` makes a new region, in which the store goes on with
/// what is on its volumes. A part of the region that belongs to its volume stays. Tables in the
/// PMEM levels of a lost region are lost: the report names each of them. Of `options` count what
/// says where things are, the lengths of the new region and its PMEM levels, memory and durability.
///
/// # Errors
/// There is no store, it has another engine, or is open elsewhere; a volume is missing or damaged;
/// another store's region would be written over.
pub fn repair(path: impl AsRef<Path>, options: &Options, accept_lost_region: bool) -> Result<RepairReport, Error> {
    let mut options = options.clone().create(false).create_new(false).read_only(!accept_lost_region);
    options.purpose = OpenPurpose::Repair { accepts: accept_lost_region };
    options.check()?;
    let (path, more_directories) = parts::home(path.as_ref(), &options.places.more_directories)?;
    let mut directory = Directory::lock(&path, false, options.read_only)?;
    crate::backup::refuse_unfinished(&directory.path, false)?;
    let manifest = match directory.read_manifest()? {
        Some(manifest) if manifest.complete => manifest,
        _ => return Err(Error::NotFound { path }),
    };
    if manifest.engine() != Engine::Matrix {
        return Err(Error::Option(format!(
            "`repair` is for stores of engine `matrix` that have lost their region, and the store in {} has the engine `{}`. `stratakv check` says what is \
             damaged, `stratakv dump --skip-damaged` saves the rest, `stratakv restore` brings a backup back",
            path.display(),
            manifest.engine().name()
        )));
    }
    check_engine(&manifest, &directory, &options)?;
    directory.parts = parts::find(&directory, &manifest, &more_directories)?;
    directory.devices = devices::find(&directory.path, &manifest, &options.places.devices, options.read_only)?;
    let home = options.asked.region.paths.first().cloned().or_else(|| region::remembered(&directory, &manifest).pop());
    let home = home.unwrap_or_default();
    let gone = is_lost(&home).then(|| gone(&home));
    let (shards, containers) = open_shards(&directory, &manifest, &options, ShardOpening::default())?;
    let mut report =
        RepairReport { region_in_memory: !region::safe_option(&home).is_empty(), ..RepairReport::default() };
    for (shard, opened) in (0..).zip(&shards) {
        let AnyShard::Matrix(matrix) = &opened.shard else { continue };
        let Some(loss) = &matrix.recovery().loss else { continue };
        let mut lost = LostRegion::new(shard, loss);
        // The blank one that stands for it meanwhile is not what was found.
        lost.why = gone.clone().unwrap_or(lost.why);
        report.lost.push(lost);
    }
    let Some(containers) = containers else { return Ok(report) };
    report.pmem_levels_bytes = containers.all_pmem_levels_bytes()?;
    report.region_bytes = containers.summary().len_bytes;
    if !accept_lost_region {
        if gone.is_some() && options.asked.region.bytes.is_none() {
            // What stands for it meanwhile is shorter.
            report.region_bytes = region::new_len_bytes(&home, &options)?;
        }
        report.region_path = home;
        return Ok(report);
    }
    report.region_path = home;
    let summary = containers.summary();
    containers.mapping().sync().map_err(stratakv_engine::Error::from)?;
    if let Some(moved) = region::moved(&directory, &manifest, &options, &summary.paths)? {
        directory.write_manifest(&moved)?;
    }
    report.repaired = !report.lost.is_empty();
    report.region = Some(summary.path.display().to_string());
    Ok(report)
}

/// Why a region that holds nothing is not served.
fn gone(path: &Path) -> String {
    let what = if path.exists() { "is empty" } else { "is missing" };
    format!("the region {} {what}", path.display())
}
