//! The creation of a store: begun over what an interrupted one left, and undone if it is refused.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stratakv_base::limits::SHARDS_MAX;

use crate::devices;
use crate::directory::{Directory, Manifest, io_error, volume_name};
use crate::error::Error;
use crate::parts;
use crate::region;

/// Clears away what an interrupted creation left: its manifest says that it was never completed, so
/// it holds nothing.
pub(crate) fn begin(directory: &Directory, manifest: &Manifest) -> Result<(), Error> {
    directory.write_manifest(manifest)?;
    if manifest.engine().has_region() {
        region::clear(directory, manifest)?;
    }
    parts::create(directory, manifest)?;
    devices::label(&directory.devices)?;
    remove_volumes(directory)
}

fn remove_volumes(directory: &Directory) -> Result<(), Error> {
    // Volumes are made in parallel, so there may be gaps.
    let names = (0..SHARDS_MAX as u32).map(volume_name);
    names.flat_map(|name| directory.parts.iter().map(move |part| part.join(&name))).try_for_each(|path| remove(&path))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        // A directory that could not be made, or not be entered, has nothing of ours.
        Err(error) if error.kind() != io::ErrorKind::NotFound && path.exists() => Err(io_error("remove", path)(error)),
        _ => Ok(()),
    }
}

/// What was not there before a creation.
pub(crate) struct Before {
    directories: Vec<PathBuf>,
    lock: bool,
}

impl Before {
    /// Of a store in these directories, its own one first.
    pub(crate) fn of(home: &Path, more_directories: &[PathBuf]) -> Before {
        let pmem = home.join("pmem");
        let all = [pmem.as_path()].into_iter().chain(more_directories.iter().map(PathBuf::as_path)).chain([home]);
        let absent = all.flat_map(|path| path.ancestors().take_while(|above| !is_there(above)).map(Path::to_path_buf));
        Before { directories: absent.collect(), lock: home.join("LOCK").exists() }
    }

    /// Makes it so again, as far as it goes, after a creation that was refused; `begun`: what it
    /// was to be, if it came so far. What is on raw devices stays, and the manifest by which the
    /// next creation knows it for its own.
    pub(crate) fn restore(&self, directory: &Directory, begun: Option<&Manifest>) {
        if let Some(manifest) = begun
            && let Err(error) = undo(directory, manifest)
        {
            tracing::warn!(%error, "what a refused creation left could not be removed; the next one clears it away");
        }
        if directory.manifest_path().exists() {
            return;
        }
        if !self.lock {
            // A lock file that stays is locked by nobody, and is used by the next creation.
            let _ = fs::remove_file(directory.path.join("LOCK"));
        }
        self.remove_directories();
    }

    /// Those that were made; what others have put there keeps its directory.
    pub(crate) fn remove_directories(&self) {
        // One that stays is empty, or holds what others have put there.
        self.directories.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

fn is_there(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.exists()
}

/// The manifest says first that there is no whole store, and goes last: meanwhile the creation is
/// one that was interrupted.
fn undo(directory: &Directory, manifest: &Manifest) -> Result<(), Error> {
    if !directory.devices.is_empty() || region::is_on_device(directory, manifest) {
        return Ok(());
    }
    // Mostly it says so already, and a disk that is full has no room to say it again.
    if directory.read_manifest()?.is_some_and(|there| there.complete) {
        directory.write_manifest(&Manifest { complete: false, ..manifest.clone() })?;
    }
    remove_volumes(directory)?;
    if manifest.engine().has_region() {
        region::remove_files(directory, manifest)?;
    }
    directory.parts.iter().skip(1).try_for_each(|part| remove(&part.join("part.toml")))?;
    remove(&directory.manifest_path())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Engine, Options};

    /// Two creations at the same moment named the same region: who came too late removed it.
    #[test]
    fn the_undo_of_a_creation_leaves_the_region_of_another_store() {
        let root = tempfile::tempdir().unwrap();
        let (path, region) = (|name: &str| root.path().join(name), root.path().join("region"));
        let options = || Options::new().engine(Engine::Hash).region_paths([&region]).region_bytes(64 << 20);
        let store = options().create_new(true).open(path("winner")).unwrap();
        store.put(b"key", b"value").unwrap();
        drop(store);
        // As far as it had come, it named the region as its own.
        let others = Directory::lock(&path("winner"), false, true).unwrap().read_manifest().unwrap().unwrap();
        let directory = Directory::lock(&path("loser"), true, false).unwrap();
        let mut manifest = Manifest { uuid: "00112233445566778899aabbccddeeff".into(), complete: false, ..others };
        manifest.region = Some(region.clone());
        directory.write_manifest(&manifest).unwrap();
        fs::write(path("loser").join(volume_name(0)), b"").unwrap();
        undo(&directory, &manifest).unwrap();
        assert!(!directory.manifest_path().exists() && !path("loser").join(volume_name(0)).exists());
        let store = Options::new().open(path("winner")).unwrap();
        assert!(store.get(b"key").unwrap().is_some());
    }

    /// What is cut off in the middle of an undo is an interrupted creation, and no store without
    /// volumes.
    #[test]
    fn an_undo_that_is_cut_off_leaves_no_whole_store() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("store");
        drop(Options::new().create_new(true).shards(1).open(&path).unwrap());
        let directory = Directory::lock(&path, false, false).unwrap();
        let manifest = directory.read_manifest().unwrap().unwrap();
        // A directory in a volume's place cannot be removed as a file.
        fs::create_dir(path.join(volume_name(7))).unwrap();
        undo(&directory, &manifest).unwrap_err();
        assert!(manifest.complete && !directory.read_manifest().unwrap().unwrap().complete);
    }

    /// `LOCK` and `store.toml` stayed in the first of two directories if the second could not be
    /// made.
    #[test]
    fn a_creation_without_its_second_directory_leaves_nothing_in_the_first() {
        let root = tempfile::tempdir().unwrap();
        let (first, file) = (root.path().join("first"), root.path().join("file"));
        fs::create_dir(&first).unwrap();
        fs::write(&file, b"").unwrap();
        let options = Options::new().create_new(true).shards(2).data_directories([file.join("second")]);
        options.open(&first).unwrap_err();
        assert_eq!(fs::read_dir(&first).unwrap().count(), 0);
    }

    #[test]
    fn a_creation_that_finds_the_store_locked_makes_no_directories() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), b"").unwrap();
        let path = root.path().join("new");
        let before = Before::of(&path, &[]);
        fs::create_dir_all(path.join("LOCK")).unwrap();
        assert!(Directory::lock(&path, true, false).is_err());
        fs::remove_dir(path.join("LOCK")).unwrap();
        before.remove_directories();
        assert!(!path.exists());
    }
}
