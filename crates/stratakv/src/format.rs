//! What a store is, without opening it.

use std::io::ErrorKind;
use std::path::Path;

use crate::directory::parse;
use crate::engine::Engine;
use crate::error::Error;
use crate::options::Placement;

/// What is fixed when a store is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Format {
    /// How it keeps its records.
    pub engine: Engine,
    /// Number of shards.
    pub shards: usize,
    /// Where small records go.
    pub placement: Placement,
    /// Raw devices that hold the volumes; 0 if directories do.
    pub devices: usize,
}

/// What the store in directory `path` is, if there is one. It is not opened: another process may
/// have it.
///
/// # Errors
/// What says it cannot be read, is damaged, or is of a newer program.
pub fn format_of(path: impl AsRef<Path>) -> Result<Option<Format>, Error> {
    let path = path.as_ref().join("store.toml");
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        // A device named as a directory is told so when it is opened.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(Error::Io { what: "read", path, error }),
    };
    let manifest = parse(&text).map_err(|refusal| refusal.at(path))?;
    let (shards, devices) = (manifest.shards as usize, manifest.devices.len());
    Ok(manifest.complete.then_some(Format {
        engine: manifest.engine(),
        shards,
        placement: manifest.placement(),
        devices,
    }))
}
