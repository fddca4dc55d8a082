//! The files of one store: `store.toml` (what it is), `LOCK`, `shard-NNN.vol`; and of its further
//! directories: [`parts`](crate::parts), of its devices: [`devices`](crate::devices), of its
//! region: [`region`](crate::region).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use stratakv_base::Level;
use stratakv_base::limits::SHARDS_MAX;

use crate::devices::Device;
use crate::engine::Engine;
use crate::error::Error;
use crate::options::{Compression, Placement};
use crate::region;

/// Version of the layout of a store's directory and of `store.toml`.
pub(crate) const FORMAT: u32 = 6;
/// The format of stores in one directory: older programs may open them.
pub(crate) const FORMAT_OF_ONE: u32 = 1;
/// The format of stores in several directories, and of `part.toml`.
pub(crate) const FORMAT_OF_SEVERAL: u32 = 2;
/// The format of stores on raw devices.
pub(crate) const FORMAT_OF_DEVICES: u32 = 3;
/// The format of stores of engine `hash`.
pub(crate) const FORMAT_OF_REGION: u32 = 4;
/// The format of stores of engine `matrix`, which have volumes, wherever these lie, and a region.
pub(crate) const FORMAT_OF_MATRIX: u32 = 5;
/// The format of stores of engine `tier`, wherever their volumes lie.
pub(crate) const FORMAT_OF_TIER: u32 = 6;

/// Name of [`Compression::Lz4`] in `store.toml`.
pub(crate) const LZ4: &str = "lz4";

/// What a store is: everything that is fixed at its creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    pub(crate) engine: String,
    pub(crate) shards: u32,
    pub(crate) uuid: String,
    /// `packed`, or nothing for `in_place`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) placement: Option<String>,
    /// False until every volume is durable: a store that is not complete holds nothing yet and may
    /// be made anew.
    pub(crate) complete: bool,
    /// Directories beside the one with this file, as they were named at creation; shard *n* lies in
    /// directory *n* modulo their number, this one being the first. Format 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) directories: Vec<PathBuf>,
    /// Raw devices that hold the volumes, as they were named at creation; shard *n* lies on device
    /// *n* modulo their number. Format 3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) devices: Vec<PathBuf>,
    /// Where the region of engine `hash` or `matrix` lies, as it was named at creation, if not in
    /// the store's directory. Format 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<PathBuf>,
    /// Its further files and devices, each with the later parts. Format 4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) regions: Vec<PathBuf>,
    /// Bytes of all volumes of engine `tier` together, as they were asked for last: with another
    /// length they would begin empty. Format 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cache_bytes: Option<u64>,
    /// Whether engine `tier`, without a second tier, saves its memory at a clean shutdown. Older
    /// programs do not look at it, and begin empty. Its name on the medium is the first one it had.
    #[serde(default, rename = "parks", alias = "saves", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) saves_at_shutdown: bool,
    /// `process_crash` if that was asked for where the medium loses writes in a power cut, or
    /// nothing. Older programs do not look at it, and want the option each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) durability: Option<String>,
    /// `lz4` if engine `matrix` compresses the tables that it writes, or nothing. Older programs do
    /// not look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) compression: Option<String>,
}

impl Manifest {
    /// The engine; one that is unknown was refused when the manifest was read.
    pub(crate) fn engine(&self) -> Engine {
        Engine::named(&self.engine).unwrap_or_default()
    }

    /// Where engine `slab` puts small records.
    pub(crate) fn placement(&self) -> Placement {
        if self.placement.is_some() { Placement::Packed } else { Placement::InPlace }
    }

    /// The level that was asked for where `power_loss` cannot be given.
    pub(crate) fn durability(&self) -> Option<Level> {
        self.durability.as_deref().and_then(|name| name.parse().ok())
    }

    /// Whether tables are compressed from now on.
    pub(crate) fn compression(&self) -> Compression {
        if self.compression.is_some() { Compression::Lz4 } else { Compression::None }
    }

    pub(crate) fn uuid_bytes(&self) -> Option<[u8; 16]> {
        let digits = self.uuid.as_bytes();
        // `from_str_radix` alone would take a sign for a digit.
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut uuid = [0; 16];
        for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(uuid)
    }
}

/// A store's directory, locked.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// Where the volumes lie: the store's own directory first. With devices, they lie there.
    pub(crate) parts: Vec<PathBuf>,
    pub(crate) devices: Vec<Device>,
    lock: File,
}

impl Drop for Directory {
    /// Unlocks rather than only closes: a child that another thread is just starting holds a copy
    /// of the descriptor until it runs its program, and with it the lock.
    fn drop(&mut self) {
        // Cannot fail on a descriptor that is open; the kernel also unlocks when it closes.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Directory {
    /// Makes (if told) and locks the directory.
    pub(crate) fn lock(path: &Path, create: bool, read_only: bool) -> Result<Directory, Error> {
        let is_there = path.try_exists().map_err(io_error("look for", path))?;
        if !is_there {
            if !create {
                return Err(Error::NotFound { path: path.into() });
            }
            make(path)?;
        } else if !path.is_dir() {
            return Err(Error::Option(format!(
                "{} is not a directory: a store is a directory, which may have its volumes on devices (--device)",
                path.display()
            )));
        }
        let lock = lock_file(path, create, read_only)?;
        Ok(Directory { path: path.into(), parts: vec![path.into()], devices: Vec::new(), lock })
    }

    /// Whether it was removed, or another one is in its place: what lies in it ends with the
    /// process.
    pub(crate) fn is_removed(&self) -> bool {
        // What cannot be examined counts as there.
        self.lock.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// Disks that the shards are spread over.
    pub(crate) fn disks(&self) -> usize {
        self.parts.len().max(self.devices.len())
    }

    pub(crate) fn volume_path(&self, shard: u32) -> PathBuf {
        let part = self.parts.get(shard as usize % self.parts.len().max(1)).unwrap_or(&self.path);
        part.join(volume_name(shard))
    }

    pub(crate) fn manifest_path(&self) -> PathBuf {
        self.path.join("store.toml")
    }

    /// The manifest, if there is one.
    pub(crate) fn read_manifest(&self) -> Result<Option<Manifest>, Error> {
        let path = self.manifest_path();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.no_manifest(),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        parse(&text).map(Some).map_err(|refusal| refusal.at(path))
    }

    /// No `store.toml`: fine in an empty directory, damage beside volumes.
    fn no_manifest(&self) -> Result<Option<Manifest>, Error> {
        if self.path.join("part.toml").exists() {
            let path = self.path.display();
            return Err(Error::Option(format!(
                "{path} is a part of another store, or not the first directory of this one: name the one with store.toml (part.toml says where it was)"
            )));
        }
        if region::is_in(&self.path) && holds_volumes(&self.path) {
            let why = "it is missing, though volumes and a region lie beside it. Restore it from a backup: it holds `format = 5`, `engine = \"matrix\"`, \
                       `shards`, `uuid` (32 hexadecimal digits, bytes 32 to 47 of each volume) and `complete = true`";
            return Err(Error::Damaged { path: self.manifest_path(), why: why.into() });
        }
        if region::is_in(&self.path) {
            let why = "it is missing, though a region lies beside it. Restore it from a backup: it holds `format = 4`, `engine = \"hash\"`, \
                       `shards = 1`, `uuid` (32 hexadecimal digits, bytes 40 to 55 of the region) and `complete = true`";
            return Err(Error::Damaged { path: self.manifest_path(), why: why.into() });
        }
        if holds_volumes(&self.path) {
            let why = "it is missing, though volumes lie beside it. Restore it from a backup: it holds `format`, `engine`, `shards`, \
                       `uuid` (32 hexadecimal digits, bytes 16 to 31 of each volume) and `complete = true`";
            return Err(Error::Damaged { path: self.manifest_path(), why: why.into() });
        }
        Ok(None)
    }

    /// Replaces the manifest, durably: the new one or the old one is there after a crash, never
    /// half of one.
    pub(crate) fn write_manifest(&self, manifest: &Manifest) -> Result<(), Error> {
        let body = toml::to_string(manifest).map_err(|error| Error::Option(error.to_string()))?;
        let text = format!("# What this StrataKV store is. Fixed at its creation: do not edit.\n{body}");
        write_durably(&self.path, "store.toml", &text)
    }
}

/// Replaces a file, durably: the new one or the old one is there after a crash, never half of one.
pub(crate) fn write_durably(directory: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = directory.join(name);
    let temporary = directory.join(format!("{name}.new"));
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(io_error("write", &path))
}

pub(crate) fn volume_name(shard: u32) -> String {
    format!("shard-{shard:03}.vol")
}

/// Whether volumes lie in a directory.
pub(crate) fn holds_volumes(directory: &Path) -> bool {
    (0..SHARDS_MAX as u32).any(|shard| directory.join(volume_name(shard)).exists())
}

/// Makes a directory if there is none, and those above it. The names of all that are new are
/// durable when it returns.
pub(crate) fn make(path: &Path) -> Result<(), Error> {
    // Also if it is there: whoever made it a moment ago perhaps did not do so.
    let above = path.ancestors().skip(1).take_while(|above| !above.as_os_str().is_empty() && !above.exists());
    let new: Vec<&Path> = [path].into_iter().chain(above).collect();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(io_error("create", path))?;
    new.into_iter().rev().try_for_each(sync_parent)
}

pub(crate) enum ManifestError {
    Newer(u32),
    Damaged(String),
}

impl ManifestError {
    pub(crate) fn at(self, path: PathBuf) -> Error {
        match self {
            ManifestError::Newer(found) => Error::NewerFormat { path, found, known: FORMAT },
            ManifestError::Damaged(why) => Error::Damaged { path, why },
        }
    }
}

/// The manifest in a file's bytes.
pub(crate) fn parse(text: &[u8]) -> Result<Manifest, ManifestError> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let damaged =
        |error: toml::de::Error| ManifestError::Damaged(format!("{}; restore it from a backup", error.message()));
    let text = str::from_utf8(text)
        .map_err(|error| ManifestError::Damaged(format!("it is not text ({error}); restore it from a backup")))?;
    // The version first: a newer format may have other fields.
    let version: Version = toml::from_str(text).map_err(damaged)?;
    if version.format > FORMAT {
        return Err(ManifestError::Newer(version.format));
    }
    let manifest: Manifest = toml::from_str(text).map_err(damaged)?;
    if !(1..=SHARDS_MAX as u32).contains(&manifest.shards) {
        return Err(ManifestError::Damaged(format!("{} shards; a store has 1 to {SHARDS_MAX}", manifest.shards)));
    }
    check_of_engine(&manifest)?;
    check_of_volumes(&manifest)?;
    check_of_options(&manifest)?;
    if manifest.uuid_bytes().is_none() {
        return Err(ManifestError::Damaged("`uuid` is not 32 hexadecimal digits".into()));
    }
    Ok(manifest)
}

/// What no known value of a manifest is.
const UNKNOWN: &str = "is unknown to this program; use a newer stratakv, or restore the file from a backup";

/// Its engine is known, and has what the manifest gives it.
fn check_of_engine(manifest: &Manifest) -> Result<(), ManifestError> {
    match Engine::named(&manifest.engine) {
        Some(engine @ (Engine::Slab | Engine::Tier)) if manifest.region.is_some() || !manifest.regions.is_empty() => {
            Err(ManifestError::Damaged(format!("engine `{}` has no region", engine.name())))
        }
        Some(Engine::Slab | Engine::Tier) => Ok(()),
        Some(Engine::Hash) => check_of_hash(manifest),
        Some(Engine::Matrix) if manifest.placement.is_some() || !manifest.regions.is_empty() => {
            Err(ManifestError::Damaged("engine `matrix` has no placement, and one region".into()))
        }
        Some(Engine::Matrix) => Ok(()),
        None => Err(ManifestError::Damaged(format!("engine `{}` {UNKNOWN}", manifest.engine))),
    }
}

/// Its volumes can lie where they are said to.
fn check_of_volumes(manifest: &Manifest) -> Result<(), ManifestError> {
    if manifest.directories.len() >= SHARDS_MAX {
        return Err(ManifestError::Damaged(format!(
            "{} directories; a store has at most {SHARDS_MAX}",
            manifest.directories.len()
        )));
    }
    if manifest.devices.len() > manifest.shards as usize {
        return Err(ManifestError::Damaged(format!(
            "{} devices for {} shards",
            manifest.devices.len(),
            manifest.shards
        )));
    }
    if !manifest.devices.is_empty() && !manifest.directories.is_empty() {
        return Err(ManifestError::Damaged("both directories and devices hold its volumes".into()));
    }
    Ok(())
}

/// What was asked for at its creation is known, and fits its engine.
fn check_of_options(manifest: &Manifest) -> Result<(), ManifestError> {
    if let Some(placement) = manifest.placement.as_deref().filter(|placement| *placement != "packed") {
        return Err(ManifestError::Damaged(format!("placement `{placement}` {UNKNOWN}")));
    }
    if let Some(compression) = manifest.compression.as_deref().filter(|compression| *compression != LZ4) {
        return Err(ManifestError::Damaged(format!("compression `{compression}` {UNKNOWN}")));
    }
    if let Some(name) = manifest.durability.as_deref().filter(|name| *name != Level::ProcessCrash.name()) {
        return Err(ManifestError::Damaged(format!("durability `{name}` {UNKNOWN}")));
    }
    if manifest.compression.is_some() && manifest.engine() != Engine::Matrix {
        return Err(ManifestError::Damaged(format!("engine `{}` compresses nothing", manifest.engine)));
    }
    Ok(())
}

/// A store of engine `hash` has one shard, in one region.
fn check_of_hash(manifest: &Manifest) -> Result<(), ManifestError> {
    let others = [!manifest.directories.is_empty(), !manifest.devices.is_empty(), manifest.placement.is_some()];
    if manifest.shards != 1 || others.contains(&true) {
        let why = "engine `hash` has one shard, and no directories, devices or placement";
        return Err(ManifestError::Damaged(format!("{why}; restore it from a backup")));
    }
    Ok(())
}

fn lock_file(directory: &Path, create: bool, read_only: bool) -> Result<File, Error> {
    let lock = directory.join("LOCK");
    let mut options = OpenOptions::new();
    options.read(true).mode(0o600);
    if !read_only {
        options.write(true).create(create || directory.join("store.toml").exists());
    }
    let (mut file, path) = match options.open(&lock) {
        Ok(file) => (file, lock.as_path()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A copy often lacks it, and who reads makes nothing: the directory itself is locked
            // then. From a writer that makes the file meanwhile, volumes and regions have locks of
            // their own.
            (File::open(directory).map_err(io_error("open", directory))?, directory)
        }
        Err(error) => return Err(io_error("open", &lock)(error)),
    };
    let kind = if read_only { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    if let Err(errno) = flock(&file, kind) {
        if errno == rustix::io::Errno::WOULDBLOCK {
            let mut holder = String::new();
            // Who holds it is for the message only.
            let _ = file.read_to_string(&mut holder);
            let holder = holder.trim().parse::<u32>().ok();
            if holder == Some(std::process::id()) {
                return Err(Error::OpenHere { path: directory.into() });
            }
            let holder = holder.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            return Err(Error::Locked { path: directory.into(), holder });
        }
        return Err(io_error("lock", path)(errno.into()));
    }
    let (named, locked) = (fs::metadata(path), file.metadata());
    if !matches!((&named, &locked), (Ok(named), Ok(locked)) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()))
    {
        // A creation that was refused has just removed it: what is locked is the lock of nothing.
        return Err(Error::Locked { path: directory.into(), holder: String::new() });
    }
    if !read_only && path == lock {
        // Only for the message of whoever comes second; the lock itself is the kernel's.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    }
    Ok(file)
}

/// Makes the name of a new directory durable.
fn sync_parent(path: &Path) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match sync_directory(parent) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // Who may not read a directory cannot flush it; what was in it before is there whatever
            // happens.
            tracing::warn!(directory = %parent.display(), "the name of {} cannot be flushed: {error}", path.display());
            Ok(())
        }
        synced => synced.map_err(io_error("flush", parent)),
    }
}

/// Makes the names in a directory durable.
#[cfg(not(test))]
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
pub(crate) use tests::sync_directory;

pub(crate) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |error| Error::Io { what, path, error }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        /// Directories that this thread has flushed.
        static FLUSHED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
        FLUSHED.with_borrow_mut(|flushed| flushed.push(path.to_owned()));
        File::open(path)?.sync_all()
    }

    /// Only the last one was: a power cut took the whole store, however durable its files were.
    #[test]
    fn the_names_of_all_new_directories_are_flushed() {
        let at = tempfile::tempdir().unwrap();
        let flushed = || FLUSHED.with_borrow_mut(std::mem::take);
        let path = |name: &str| at.path().join(name);
        make(&path("a/b/c")).unwrap();
        assert_eq!(flushed(), [at.path().to_owned(), path("a"), path("a/b")], "from the top down");
        make(&path("a/b/c")).unwrap();
        assert_eq!(flushed(), [path("a/b")], "it may be new all the same");
        crate::Options::new().shards(1).memory_bytes(64 << 20).open(path("a/d/e")).unwrap().close().unwrap();
        let all = flushed();
        assert!(all.contains(&path("a")) && all.contains(&path("a/d")), "{all:?}");
        std::fs::write(path("file"), b"").unwrap();
        make(&path("file/under")).unwrap_err();
    }

    fn manifest() -> Manifest {
        Manifest {
            format: 1,
            engine: "slab".into(),
            shards: 2,
            uuid: "0123456789abcdef".repeat(2),
            placement: None,
            complete: true,
            directories: Vec::new(),
            devices: Vec::new(),
            region: None,
            regions: Vec::new(),
            cache_bytes: None,
            saves_at_shutdown: false,
            durability: None,
            compression: None,
        }
    }

    #[test]
    fn a_manifest_survives_its_file() {
        let at = tempfile::tempdir().unwrap();
        let directory = Directory::lock(&at.path().join("d"), true, false).unwrap();
        assert_eq!(directory.read_manifest().unwrap(), None);
        directory.write_manifest(&manifest()).unwrap();
        assert_eq!(directory.read_manifest().unwrap(), Some(manifest()));
    }

    /// The field was renamed, and a store that was made before forgot that it saves.
    #[test]
    fn a_manifest_written_before_a_renaming_means_the_same() {
        let saves = Manifest { format: FORMAT_OF_TIER, engine: "tier".into(), saves_at_shutdown: true, ..manifest() };
        let text = toml::to_string(&saves).unwrap();
        assert!(text.contains("\nparks = true\n"), "{text}");
        for name in ["parks", "saves"] {
            let read = parse(text.replace("parks", name).as_bytes()).ok();
            assert_eq!(read.as_ref(), Some(&saves), "{name}");
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        assert!(matches!(parse(b"format = 7\nnovel = true"), Err(ManifestError::Newer(7))));
        assert!(matches!(parse(b"format = \"1\""), Err(ManifestError::Damaged(_))));
        assert!(matches!(parse(b""), Err(ManifestError::Damaged(_))));
        let text = toml::to_string(&Manifest { shards: 0, ..manifest() }).unwrap();
        assert!(matches!(parse(text.as_bytes()), Err(ManifestError::Damaged(_))));
    }

    /// A flipped bit may make it so; it was told as a failure to read, which says nothing about
    /// what to do.
    #[test]
    fn a_manifest_that_is_not_text_is_damaged() {
        let Err(ManifestError::Damaged(why)) = parse(b"format = 1\nengine = \"sl\xE1b\"") else {
            panic!("it is damaged")
        };
        assert!(why.contains("not text"), "{why}");
    }

    #[test]
    fn the_second_one_is_told_who_holds_it() {
        let at = tempfile::tempdir().unwrap();
        let _first = Directory::lock(at.path(), true, false).unwrap();
        let second = Directory::lock(at.path(), true, false).unwrap_err();
        assert!(matches!(second, Error::OpenHere { .. }) && second.to_string().contains("in this process"), "{second}");
        let lock = at.path().join("LOCK");
        assert!(lock.is_file());
        fs::write(lock, "4000000000\n").unwrap();
        let second = Directory::lock(at.path(), true, false).unwrap_err();
        assert!(second.to_string().contains("another process (process 4000000000)"), "{second}");
    }

    /// A copy of the descriptor, as a child just being started has one, once kept the lock.
    #[test]
    fn the_lock_goes_although_a_copy_of_its_descriptor_lives() {
        let at = tempfile::tempdir().unwrap();
        let first = Directory::lock(at.path(), true, false).unwrap();
        let copy = first.lock.try_clone().unwrap();
        drop(first);
        Directory::lock(at.path(), true, false).unwrap();
        drop(copy);
    }

    #[test]
    fn volumes_without_a_manifest_are_not_written_over() {
        let at = tempfile::tempdir().unwrap();
        // Also when the first volume is lost as well.
        fs::write(at.path().join("shard-003.vol"), b"precious").unwrap();
        let directory = Directory::lock(at.path(), true, false).unwrap();
        assert!(directory.read_manifest().unwrap_err().to_string().contains("volumes lie beside it"));
    }
}
