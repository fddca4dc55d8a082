//! What a suite measures, and where its stores lie while it does.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use stratakv::{Engine, Level, Options, Store};

use crate::target::BenchError;

/// With less, the memtables of `matrix` would be small.
const MATRIX_BYTES_MIN: u64 = 64 << 20;

/// A column of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Engine `hash`.
    Hash,
    /// Engine `slab`.
    Slab,
    /// Engine `matrix`, its region a tenth of what the store may hold.
    Matrix,
    /// No store: a hash table in memory. Only the graph is measured in it.
    Memory,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Subject::Hash => "hash",
            Subject::Slab => "slab",
            Subject::Matrix => "matrix",
            Subject::Memory => "memory",
        })
    }
}

/// What a store is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreResources {
    /// Length of the region of `hash`, which holds everything.
    pub(super) region_bytes: u64,
    /// Cap on memory of either.
    pub(super) memory_bytes: u64,
    /// Shards of `slab`.
    pub(super) shards: usize,
}

impl StoreResources {
    /// Length of the region of `matrix`.
    fn matrix_bytes(&self) -> u64 {
        (self.region_bytes / 10).max(MATRIX_BYTES_MIN).next_multiple_of(1 << 20)
    }
}

/// A new store in a directory of its own, which is removed with it.
pub(super) struct Stand {
    store: Option<Store>,
    path: PathBuf,
    region: Option<PathBuf>,
}

impl Stand {
    /// In a directory below `directory`, named after the subject, that must not be there yet.
    /// `None`: memory is no store.
    pub(super) fn open(subject: Subject, directory: &Path, means: StoreResources) -> Result<Option<Stand>, BenchError> {
        let options = Options::new().create_new(true).memory_bytes(means.memory_bytes).level(Level::ProcessCrash);
        let options = match subject {
            Subject::Hash => options.engine(Engine::Hash).region_bytes(means.region_bytes),
            Subject::Slab => options.engine(Engine::Slab).shards(means.shards),
            Subject::Matrix => options.engine(Engine::Matrix).region_bytes(means.matrix_bytes()),
            Subject::Memory => return Ok(None),
        };
        Ok(Some(Stand::make(&subject.to_string(), directory, None, options)?))
    }

    /// With these options; its region is `region` if that is not in the directory, and is removed
    /// too.
    pub(super) fn make(
        name: &str,
        directory: &Path,
        region: Option<PathBuf>,
        options: Options,
    ) -> Result<Stand, BenchError> {
        let path = directory.join(format!("suite-{name}"));
        let cannot = |path: &Path, why: &dyn fmt::Display| {
            BenchError::Wrong(format!(
                "cannot make {}: {why}; what an earlier run left there can be removed",
                path.display()
            ))
        };
        // Else it would be removed with what is made here.
        if let Some(region) = region.as_ref().filter(|region| region.exists()) {
            return Err(cannot(region, &"it exists"));
        }
        fs::create_dir(&path).map_err(|error| cannot(&path, &error))?;
        let mut stand = Stand { store: None, path, region };
        stand.store = Some(options.open(&stand.path)?);
        Ok(stand)
    }

    pub(super) fn store(&self) -> Result<&Store, BenchError> {
        self.store.as_ref().ok_or_else(|| BenchError::Wrong("the store was closed before".into()))
    }

    /// Closes the store and removes it.
    pub(super) fn close(self) -> Result<(), BenchError> {
        Ok(self.store()?.close()?)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            // Also of a store that could not go on: was it full?
            let all: Vec<String> = store.stats().iter().map(|one| format!("{} {}", one.name, one.value)).collect();
            tracing::debug!(path = %self.path.display(), statistics = all.join(", "), "removing");
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::error!(%error, "cannot remove {}", self.path.display());
        }
        // A store that could not be opened may not have made it.
        if let Some(region) = self.region.as_ref().filter(|region| region.exists())
            && let Err(error) = fs::remove_file(region)
        {
            tracing::error!(%error, "cannot remove {}", region.display());
        }
    }
}
