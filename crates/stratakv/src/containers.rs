//! The region of a store of engine `matrix`: one file or device, in which each shard has an equal
//! part for its container.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use stratakv_matrix::container::region_bytes_of;
use stratakv_matrix::{MatrixConfig, MatrixOpener};
use stratakv_pmem::{MapOptions, Mapping, Pmem, RegionPart};

use crate::directory::{Directory, Manifest, io_error, make};
use crate::error::{Error, ErrorKind};
use crate::options::{OpenPurpose, Options};
use crate::region::{at_level, may_replace, missing_or, new_len_bytes, new_mapping, refused, remembered, safe_option};
use crate::store::Region;

const MIB: u64 = 1 << 20;
/// The smallest part of a shard.
const PART_BYTES_MIN: u64 = 8 * MIB;
/// The smallest unit that every key fits into.
const UNIT_BYTES_MIN: u64 = 128 << 10;

/// The region, mapped.
pub(crate) struct Containers {
    mapping: Arc<Mapping>,
    shards: u32,
    /// The PMEM levels of all shards together, if that was asked for.
    pmem_levels_bytes: Option<u64>,
    created: bool,
    read_only: bool,
    repairing: bool,
    home: PathBuf,
}

impl Containers {
    /// Makes or maps the region of a store. What lies in its parts, the shards find out.
    pub(crate) fn open(
        directory: &Directory,
        manifest: &Manifest,
        options: &Options,
        created: bool,
    ) -> Result<Containers, Error> {
        let remembered = remembered(directory, manifest);
        let mapping = if created {
            new_mapping(&remembered, options)?
        } else {
            let path = options.asked.region.paths.first().or(remembered.first());
            let path = path.map_or(Path::new(""), PathBuf::as_path);
            match options.purpose {
                OpenPurpose::Repair { accepts } if is_lost(path) => {
                    in_place_of_lost(path, (directory, manifest), options, accepts)?
                }
                _ => existing(path, (directory, manifest), options)?,
            }
        };
        let (shards, read_only, repairing) =
            (manifest.shards, options.read_only, matches!(options.purpose, OpenPurpose::Repair { .. }));
        let home = directory.path.clone();
        let (mapping, pmem_levels_bytes) = (Arc::new(mapping), options.asked.pmem_levels_bytes);
        let containers = Containers { mapping, shards, pmem_levels_bytes, created, read_only, repairing, home };
        containers.check_len(options.asked.region.bytes)?;
        Ok(containers)
    }

    fn check_len(&self, asked_bytes: Option<u64>) -> Result<(), Error> {
        let len_bytes = self.mapping.len_bytes();
        let makes = self.created || self.repairing;
        let least = PART_BYTES_MIN * u64::from(self.shards);
        if !self.created && len_bytes < least {
            let why = format!(
                "the region {} has {len_bytes} bytes, and never had fewer than {least}: it was cut off. Put it back from a backup, \
                 or make it as long as it was (`truncate -s`) and look with `stratakv check` what is left. If it is lost, move it away: \
                 then `stratakv repair` says what goes with it",
                self.mapping.path().display()
            );
            return Err(Error::Region { why, kind: ErrorKind::Corrupt });
        }
        check_room(len_bytes, self.pmem_levels_bytes.filter(|_| makes).unwrap_or(0), self.shards)?;
        match asked_bytes {
            Some(asked) if asked != len_bytes && !self.mapping.is_device() => Err(Error::Option(format!(
                "a region of {asked} bytes was asked for, and that of this store has {len_bytes}, which is fixed with the engine `matrix`: leave the option out"
            ))),
            _ => Ok(()),
        }
    }

    /// What each shard has of it.
    fn part_bytes(&self) -> u64 {
        self.mapping.len_bytes() / u64::from(self.shards.max(1)) / 4096 * 4096
    }

    /// What opens a shard. `config`: all but the lengths, which follow from that of its part.
    pub(crate) fn opener(&self, mut config: MatrixConfig) -> Result<MatrixOpener<RegionPart>, Error> {
        let part_bytes = self.part_bytes();
        let part = RegionPart::new(Arc::clone(&self.mapping), u64::from(config.shard) * part_bytes, part_bytes);
        let part = part.map_err(|error| self.unusable(error.to_string()))?;
        let pmem_levels_bytes = self.pmem_levels_of(&part, part_bytes)?;
        let container_bytes = part_bytes - pmem_levels_bytes;
        let lengths = Lengths::of(container_bytes);
        config.row_bytes = lengths.row_bytes;
        config.table_bytes = lengths.table_bytes;
        config.level_bytes = container_bytes;
        config.pmem_levels_bytes = pmem_levels_bytes;
        config.session = getrandom::u64().map_err(|error| self.unusable(format!("no random numbers: {error}")))?;
        Ok(match (self.created, self.repairing) {
            (true, _) => MatrixOpener::create(config, part, lengths.unit_bytes),
            (false, true) => MatrixOpener::recover_without_region(config, part, lengths.unit_bytes),
            (false, false) => MatrixOpener::recover(config, part),
        })
    }

    /// What of a shard's part is its PMEM levels: its container says it, if there is one. One that
    /// is made in the place of a container that is gone has what is asked for, else what the others
    /// have.
    fn pmem_levels_of(&self, part: &RegionPart, part_bytes: u64) -> Result<u64, Error> {
        let asked = self.pmem_levels_bytes.map(|bytes| bytes / u64::from(self.shards.max(1)) / 4096 * 4096);
        if self.created {
            return Ok(asked.unwrap_or(0));
        }
        let pmem_levels_beside = |container_bytes| part_bytes.saturating_sub(container_bytes);
        let has = match region_bytes_of(part) {
            None if self.repairing => return Ok(asked.or_else(|| self.pmem_levels_of_others(part_bytes)).unwrap_or(0)),
            // Of what is no container the opener says so.
            container_bytes => container_bytes.map_or(0, pmem_levels_beside),
        };
        match asked {
            Some(asked) if asked != has => Err(Error::Option(format!(
                "PMEM levels of {asked} bytes for each shard were asked for, and those of this store have {has}, which is fixed: leave the option out"
            ))),
            _ => Ok(has),
        }
    }

    /// The PMEM levels of all shards together.
    pub(crate) fn all_pmem_levels_bytes(&self) -> Result<u64, Error> {
        let part = RegionPart::new(Arc::clone(&self.mapping), 0, self.part_bytes());
        let part = part.map_err(|error| self.unusable(error.to_string()))?;
        Ok(self.pmem_levels_of(&part, self.part_bytes())? * u64::from(self.shards))
    }

    /// The PMEM levels of a container that is there: all have as much.
    fn pmem_levels_of_others(&self, part_bytes: u64) -> Option<u64> {
        let part = |shard| RegionPart::new(Arc::clone(&self.mapping), shard * part_bytes, part_bytes).ok();
        let has = |shard| region_bytes_of(&part(shard)?).map(|bytes| part_bytes.saturating_sub(bytes));
        (0..u64::from(self.shards)).find_map(has)
    }

    fn unusable(&self, why: String) -> Error {
        Error::Region { why: format!("{}: {why}", self.mapping.path().display()), kind: ErrorKind::Io }
    }

    /// What it is, for people.
    pub(crate) fn summary(&self) -> Region {
        let mapping = &self.mapping;
        let domain = if self.read_only { mapping.medium() } else { mapping.domain() };
        Region {
            path: mapping.path().to_path_buf(),
            paths: mapping.paths().map(Path::to_path_buf).collect(),
            len_bytes: mapping.len_bytes(),
            domain: domain.to_string(),
            can_survive_power_loss: mapping.medium().survives_power_loss(),
            survives_power_loss: mapping.survives_power_loss(),
        }
    }

    /// To be unlocked at the end.
    pub(crate) fn mapping(&self) -> Arc<Mapping> {
        Arc::clone(&self.mapping)
    }
}

/// Whether a region of that length has room for what each shard has in it.
fn check_room(len_bytes: u64, pmem_levels_bytes: u64, shards: u32) -> Result<(), Error> {
    let least = PART_BYTES_MIN * u64::from(shards);
    if pmem_levels_bytes > 0 && len_bytes.saturating_sub(pmem_levels_bytes) < least {
        return Err(Error::Option(format!(
            "PMEM levels of {pmem_levels_bytes} bytes in a region of {len_bytes}: what is on its way to the volumes has at least {least} beside it, 8 MiB for each of {shards} shards; ask for a \
             longer region (--region), or smaller PMEM levels (--pmem-levels)"
        )));
    }
    if len_bytes < least {
        return Err(Error::Option(format!(
            "a region of {len_bytes} bytes for {shards} shards: it has at least {least}, 8 MiB for each; ask for more (--region)"
        )));
    }
    Ok(())
}

fn existing(path: &Path, (directory, manifest): (&Directory, &Manifest), options: &Options) -> Result<Mapping, Error> {
    let how = MapOptions { private: options.read_only, ..MapOptions::default() };
    let mapping = Mapping::open(path, how).map_err(|error| missing_or(error, directory, manifest))?;
    if options.read_only { Ok(mapping) } else { at_level(mapping, options) }
}

/// Whether there is no region, or one whose creation was cut before it had a byte.
pub(crate) fn is_lost(path: &Path) -> bool {
    fs::metadata(path)
        .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |found| found.is_file() && found.len() == 0)
}

/// A blank region where there is none: for a while in memory, if only what would be lost is to be
/// told.
fn in_place_of_lost(
    path: &Path,
    (directory, manifest): (&Directory, &Manifest),
    options: &Options,
    accepts: bool,
) -> Result<Mapping, Error> {
    if !accepts {
        let least = PART_BYTES_MIN * u64::from(manifest.shards);
        let len_bytes = options.asked.region.bytes.unwrap_or(least + options.asked.pmem_levels_bytes.unwrap_or(0));
        return Mapping::anonymous(len_bytes, MapOptions::default()).map_err(refused);
    }
    // What would refuse the new region is asked before anything is written.
    may_replace(path, directory, options)?;
    let len_bytes = options.asked.region.bytes.map_or_else(|| new_len_bytes(path, options), Ok)?;
    check_room(len_bytes, options.asked.pmem_levels_bytes.unwrap_or(0), manifest.shards)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", path)(error)),
        _ => {}
    }
    // That of the store itself; any other is there.
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make(parent)?;
    }
    new_mapping(&[path.to_path_buf()], &options.clone().region_bytes(len_bytes))
}

impl Containers {
    /// Adds the region's name, and the way out, to what is wrong with what lies in it, or on the
    /// volume.
    pub(crate) fn named(&self, error: Error) -> Error {
        match error {
            Error::Volume { path, error: stratakv_engine::Error::Corrupt(corruption) } => {
                let home = self.home.display();
                let why = format!(
                    "{corruption}. Without it nothing on the volume can be found: restore the store from a backup (rm -r {home}; then stratakv \
                     restore BACKUP --data {home})"
                );
                Error::Damaged { path, why }
            }
            Error::Volume { path, error: stratakv_engine::Error::WrongVolume(why) } if why.contains("region") => {
                let (volume, region, home) = (path.display(), self.mapping.path().display(), self.home.display());
                let way_out = if self.repairing {
                    String::new()
                } else {
                    format!(
                        ". To give it up and go on with what is on the volume: stratakv repair --accept-lost-region --data {home}{}",
                        safe_option(self.mapping.path())
                    )
                };
                Error::Region { why: format!("{region} (beside {volume}): {why}{way_out}"), kind: ErrorKind::Corrupt }
            }
            other => other,
        }
    }
}

/// What a container of some length is divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    unit_bytes: u32,
    row_bytes: u64,
    table_bytes: u64,
}

impl Lengths {
    /// Units of which a row has some, and rows of which the receiver has a dozen (MatrixKV has 8
    /// GiB, and rows of 64 MiB). A column goes down as some tables.
    fn of(part_bytes: u64) -> Lengths {
        let unit_bytes = 1 << (part_bytes / 1024).clamp(UNIT_BYTES_MIN, 256 << 10).ilog2();
        let row_bytes = (part_bytes / 32).clamp(4 * unit_bytes, 64 * MIB);
        Lengths { unit_bytes: unit_bytes as u32, row_bytes, table_bytes: (part_bytes / 64).clamp(64 << 10, 4 * MIB) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_room_for_many_rows() {
        let mib = |mib: u64| Lengths::of(mib * MIB);
        assert_eq!(mib(16), Lengths { unit_bytes: 128 << 10, row_bytes: 512 << 10, table_bytes: 256 << 10 });
        assert_eq!(mib(512), Lengths { unit_bytes: 256 << 10, row_bytes: 16 * MIB, table_bytes: 4 * MIB });
        assert_eq!(mib(8192), Lengths { unit_bytes: 256 << 10, row_bytes: 64 * MIB, table_bytes: 4 * MIB });
    }
}
