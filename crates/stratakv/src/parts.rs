//! A store in several directories, on several disks: shards are spread over them in turn.
//!
//! The first directory is the store's own, with `store.toml`. Each further one holds `part.toml`,
//! which says whose it is and which, so that one that is missing, exchanged or of another store is
//! noticed before a volume is opened.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::directory::{Directory, FORMAT, FORMAT_OF_SEVERAL, Manifest, holds_volumes, io_error, make, write_durably};
use crate::error::Error;

/// What a data directory beside the first is.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DataDirectory {
    format: u32,
    /// The store's.
    uuid: String,
    /// Its number; the store's own directory is 0.
    part: u32,
}

/// Which of the directories is the store's own, and which are the others. The first one unless
/// another has the manifest.
pub(crate) fn home(first: &Path, more_directories: &[PathBuf]) -> Result<(PathBuf, Vec<PathBuf>), Error> {
    let mut all: Vec<PathBuf> = [first.to_path_buf()].into_iter().chain(more_directories.iter().cloned()).collect();
    for (at, path) in all.iter().enumerate() {
        let same = |other: &PathBuf| other == path || is_same(other, path);
        if all[..at].iter().any(same) {
            return Err(Error::Option(format!("{} is named twice as a directory of the store", path.display())));
        }
    }
    let own = all.iter().position(|path| path.join("store.toml").exists()).unwrap_or(0);
    let home = all.remove(own);
    Ok((home, all))
}

pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Whether the store may be made in these directories: nothing of another store lies there.
pub(crate) fn may_create(
    own: &Directory,
    unfinished: Option<&Manifest>,
    more_directories: &[PathBuf],
) -> Result<(), Error> {
    for path in more_directories {
        let of_another = |what: &str| {
            Err(Error::Option(format!("{} holds {what}: name an empty directory, or remove it", path.display())))
        };
        if path.exists() && !path.is_dir() {
            return Err(Error::Option(format!(
                "{} is not a directory: a store is made of directories, or has its volumes on devices (--device)",
                path.display()
            )));
        }
        match read(path)? {
            // What an interrupted creation of this very store left.
            Some(part) if unfinished.is_some_and(|unfinished| unfinished.uuid == part.uuid) => {}
            Some(_) => return of_another("a part of another store"),
            None if path.join("store.toml").exists() => return of_another("another store"),
            None if holds_volumes(path) => return of_another("volumes of some store"),
            None => {}
        }
    }
    // Another store's name for the same place.
    match read(&own.path)? {
        Some(_) => {
            Err(Error::Option(format!("{} is a part of another store: name another directory", own.path.display())))
        }
        None => Ok(()),
    }
}

/// Makes the data directories beside the first and says in each whose it is.
pub(crate) fn create(directory: &Directory, manifest: &Manifest) -> Result<(), Error> {
    for (part, path) in (0u32..).zip(&directory.parts).skip(1) {
        make(path)?;
        let part = DataDirectory { format: FORMAT_OF_SEVERAL, uuid: manifest.uuid.clone(), part };
        let body = toml::to_string(&part).map_err(|error| Error::Option(error.to_string()))?;
        let home = directory.path.display();
        write_durably(path, "part.toml", &format!("# A part of the StrataKV store in {home}. Do not edit.\n{body}"))?;
    }
    Ok(())
}

/// Where the store's directories are, in order: where `named` says, else where they were.
pub(crate) fn find(directory: &Directory, manifest: &Manifest, named: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let wanted = &manifest.directories;
    let given = if named.is_empty() { wanted } else { named };
    let mut found: Vec<Option<PathBuf>> = vec![None; wanted.len()];
    for path in given {
        let Some(part) = read(path)? else { continue };
        if part.uuid != manifest.uuid {
            let why =
                format!("it is a part of another store than {}: directories were exchanged", directory.path.display());
            return Err(Error::Damaged { path: path.clone(), why });
        }
        let place = (part.part as usize).checked_sub(1).and_then(|at| found.get_mut(at));
        let Some(place) = place else {
            let why = format!("it says that it is part {} of a store in {} directories", part.part, wanted.len() + 1);
            return Err(Error::Damaged { path: path.join("part.toml"), why });
        };
        if let Some(other) = place.replace(path.clone()) {
            let why = format!("it is part {} of the store, and so is {}: one is a copy", part.part, other.display());
            return Err(Error::Damaged { path: path.clone(), why });
        }
    }
    if named.len() > wanted.len() {
        let (has, home) = (wanted.len() + 1, directory.path.display());
        return Err(Error::Option(format!(
            "{} directories are named, and the store in {home} has {has}: it cannot be spread over more later",
            named.len() + 1
        )));
    }
    let mut parts = vec![directory.path.clone()];
    for ((number, part), was) in (1..).zip(found).zip(wanted) {
        let Some(path) = part else {
            return Err(Error::MissingDirectory { home: directory.path.clone(), part: number, was: was.clone() });
        };
        parts.push(path);
    }
    Ok(parts)
}

fn read(directory: &Path) -> Result<Option<DataDirectory>, Error> {
    let path = directory.join("part.toml");
    let damaged = |why: &str| Error::Damaged { path: path.clone(), why: format!("{why}; restore it from a backup") };
    let text = match fs::read(&path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| damaged("it is not text"))?,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(io_error("read", &path)(error)),
    };
    match toml::from_str::<DataDirectory>(&text) {
        Ok(part) if part.format > FORMAT => Err(Error::NewerFormat { path, found: part.format, known: FORMAT }),
        Ok(part) => Ok(Some(part)),
        Err(error) => Err(damaged(error.message())),
    }
}
