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

/// Clears away what an interrupted creation left: its manifest says that it was never completed, so it holds nothing.
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
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
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
    pub(crate) fn of(home: &Path, further: &[PathBuf]) -> Before {
        let pmem = home.join("pmem");
        let all = [pmem.as_path()].into_iter().chain(further.iter().map(PathBuf::as_path)).chain([home]);
        let absent = all.flat_map(|path| path.ancestors().take_while(|above| !is_there(above)).map(Path::to_path_buf));
        Before { directories: absent.collect(), lock: home.join("LOCK").exists() }
    }

    /// Makes it so again, as far as it goes, after a creation that was refused; `begun`: what it was to be, if it came so far. What is on raw devices stays, and the manifest by which the next
    /// creation knows it for its own.
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
            let _ = fs::remove_file(directory.path.join("LOCK"));
        }
        // What others have put there keeps its directory.
        self.directories.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

fn is_there(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.exists()
}

/// The manifest goes last: until then the creation is one that was interrupted.
fn undo(directory: &Directory, manifest: &Manifest) -> Result<(), Error> {
    if !directory.devices.is_empty() || region::is_on_device(directory, manifest) {
        return Ok(());
    }
    remove_volumes(directory)?;
    if manifest.engine().has_region() {
        region::remove_files(directory, manifest)?;
    }
    directory.parts.iter().skip(1).try_for_each(|part| remove(&part.join("part.toml")))?;
    remove(&directory.manifest_path())
}
