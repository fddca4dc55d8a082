//! Where a benchmark measures: whose directory that is, and what is left of it afterwards.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure};

/// A file beside a store that says that a benchmark made it, so that another may write into it.
const MARK: &str = "made-by-bench";
const MARK_TEXT: &str =
    "`stratakv bench` made this store. It writes into it without asking, and overwrites what is there.\n";

/// A directory that this run may write into. What this run has made is removed when it is dropped,
/// however the run ends.
pub(super) struct Ground {
    path: PathBuf,
    /// Everything in the directory is of this run.
    ours: bool,
    /// So is the directory itself.
    made: bool,
    /// The file of the store's region, if it lies elsewhere and is this run's.
    region: Option<PathBuf>,
}

impl Ground {
    /// Takes a directory that is absent or empty, or whose store a benchmark made; any store if
    /// `existing`. Nothing is made for a run that does not `load`.
    pub(super) fn claim(path: &Path, load: bool, existing: bool) -> Result<Ground, Failure> {
        let shown = path.display();
        let marked = path.join(MARK).exists();
        if path.join("store.toml").exists() {
            return match marked || existing {
                true => Ok(Ground { path: path.to_owned(), ours: false, made: false, region: None }),
                false => Err(Failure::usage(format!(
                    "{shown} holds a store that `bench` did not make, and would be written to: name another directory with --data, or say \
                     --existing if that is wanted"
                ))),
            };
        }
        if !load {
            return Err(Failure::new(
                Exit::NotFound,
                format!("there is no store in {shown}: --no-load measures what an earlier run with --keep has left"),
            ));
        }
        let made = !path.exists();
        if !made && !marked && !is_empty(path)? {
            return Err(Failure::usage(format!(
                "{shown} holds other things than a store: name a directory that is empty or does not exist"
            )));
        }
        fs::create_dir_all(path).map_err(|error| cannot("create", path, &error))?;
        let ground = Ground { path: path.to_owned(), ours: true, made, region: None };
        fs::write(path.join(MARK), MARK_TEXT).map_err(|error| cannot("write to", path, &error))?;
        Ok(ground)
    }

    /// Takes the place of a region that this run makes outside its directory, if it makes the
    /// store. A file that is there already is nobody's to overwrite.
    pub(super) fn claim_region(&mut self, region: &Path) -> Result<(), Failure> {
        if self.ours && region.exists() {
            let shown = region.display();
            return Err(Failure::usage(format!(
                "{shown} is there already, and the region of the store that is measured would be made there: name a file that does not exist with --region-path"
            )));
        }
        self.region = self.ours.then(|| region.to_owned());
        Ok(())
    }

    /// Leaves everything as it is.
    pub(super) fn keep(&mut self) {
        self.ours = false;
    }

    /// Removes what this run has made.
    pub(super) fn clear(mut self) -> Result<(), Failure> {
        self.remove().map_err(|error| cannot("remove", &self.path, &error))
    }

    fn remove(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.ours) {
            return Ok(());
        }
        if let Some(region) = self.region.take().filter(|region| region.exists()) {
            fs::remove_file(region)?;
        }
        if self.made {
            return fs::remove_dir_all(&self.path);
        }
        for entry in fs::read_dir(&self.path)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::error!(%error, "cannot remove {}", self.path.display());
        }
    }
}

fn is_empty(path: &Path) -> Result<bool, Failure> {
    let mut entries = fs::read_dir(path).map_err(|error| cannot("read", path, &error))?;
    Ok(entries.next().is_none())
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot {what} {}: {error}", path.display()))
}
