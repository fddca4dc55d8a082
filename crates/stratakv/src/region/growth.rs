//! A region that gets longer: by what its files get, or by new ones.

use std::fs;
use std::path::{Path, PathBuf};

use stratakv_engine::Error as EngineError;
use stratakv_hash::{FoundPart, Hash};
use stratakv_pmem::{MapOptions, Mapping, Pmem};

use super::files::{Files, Mapped, how, is_empty, same_file};
use super::{at, at_level, default_bytes, exists, is_device, refuse_contents, refused};
use crate::directory::{Directory, Manifest};
use crate::error::Error;
use crate::options::Options;

/// Shares are multiples of this where they are as long: of pages of any size that is usual.
const SHARE_BYTES: u64 = 2 << 20;

/// Bytes that a file gets.
struct Grant {
    of: usize,
    bytes: u64,
}

impl Files {
    /// Makes the files as long as was asked for, with those named that have no part yet; the new
    /// parts. Nothing says yet that they are.
    pub(super) fn grow(
        &mut self,
        named: &[PathBuf],
        home: (&Directory, &Manifest),
        options: &Options,
        created: bool,
    ) -> Result<Vec<FoundPart>, Error> {
        let has = self.region_bytes();
        let new: Vec<&PathBuf> = named.iter().filter(|path| !self.has_parts(path)).collect();
        let wanted = self.wanted(&new, options, created)?;
        if new.is_empty() && wanted == 0 {
            self.tell_unused();
            return Ok(Vec::new());
        }
        if options.read_only {
            let why = format!(
                "the region has {has} bytes, and more was asked for: it does not grow where it is only read; open it for writing"
            );
            return Err(Error::Option(why));
        }
        let grants = if new.is_empty() {
            self.share(wanted)?
        } else {
            if !created {
                home.0.write_manifest(&with_files(home.1, &new)?)?;
            }
            self.add_new(&new, wanted, home.1, options)?
        };
        let parts: Vec<u64> = grants.iter().map(|grant| grant.bytes).collect();
        let first = self.first()?;
        Hash::check_parts(&first, &parts).map_err(|error| match error {
            EngineError::WrongVolume(why) => Error::Option(format!("{}: {why}", first.path().display())),
            error => at(first.path())(error),
        })?;
        grants.iter().map(|grant| self.carry_out(grant)).collect()
    }

    fn first(&self) -> Result<&Mapping, Error> {
        let first = self.place_of(0).and_then(|(of, _)| self.files.get(of));
        first.map(|file| &file.mapping).ok_or_else(|| Error::Option("the region has no first part".into()))
    }

    fn has_parts(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file.is_at(path) && !file.parts.is_empty())
    }

    /// How much longer it is to be; of new devices it is not known yet.
    fn wanted(&self, new: &[&PathBuf], options: &Options, created: bool) -> Result<u64, Error> {
        let has = self.region_bytes();
        match options.asked.region.bytes {
            Some(asked) if asked < has => Err(Error::Option(format!(
                "a region of {asked} bytes was asked for, and it has {has}: a region never gets shorter; leave the option out, or `backup` the store and \
                 `restore` it with this length"
            ))),
            Some(asked) => Ok(asked - has),
            None => match new.iter().find(|path| !is_device(path) && !created) {
                Some(path) => Err(Error::Option(format!(
                    "{} has no part of the region: say where the region is (--region-path), or, to have more of it there, how long all of it is to be (--region)",
                    path.display()
                ))),
                None => Ok(0),
            },
        }
    }

    /// What each file gets: first what it has already and does not use, then equal shares of the
    /// rest.
    fn share(&self, wanted: u64) -> Result<Vec<Grant>, Error> {
        let mut left = wanted;
        let mut grants: Vec<Grant> = Vec::new();
        for (of, file) in self.files.iter().enumerate() {
            let bytes = file.unused_bytes().min(left);
            left -= bytes;
            grants.push(Grant { of, bytes });
        }
        let mut growing: Vec<&mut Grant> =
            grants.iter_mut().filter(|grant| !self.files[grant.of].mapping.is_device()).collect();
        let count = growing.len() as u64;
        for (number, grant) in (0..).zip(&mut growing) {
            let share = share_of(left, count - number);
            grant.bytes += share;
            left -= share;
        }
        if left > 0 {
            return Err(Error::Option(
                "the region lies on devices, whose lengths are fixed: name another one to have more (--region-path), without a length".into(),
            ));
        }
        grants.retain(|grant| grant.bytes > 0);
        Ok(grants)
    }

    /// Makes new files, or takes new devices. The manifest names them already.
    fn add_new(
        &mut self,
        new: &[&PathBuf],
        wanted: u64,
        manifest: &Manifest,
        options: &Options,
    ) -> Result<Vec<Grant>, Error> {
        // What a cut growth left is made again.
        self.files.retain(|file| !file.parts.is_empty());
        for path in new {
            self.refuse_others(path, manifest)?;
        }
        let (devices, plain): (Vec<&PathBuf>, Vec<&PathBuf>) = new.iter().copied().partition(|path| is_device(path));
        let mut grants = Vec::new();
        for path in devices {
            let mapping = Mapping::open(path, how(path, options)).map_err(refused)?;
            grants.push(self.push_new(mapping, options)?);
        }
        let of_devices: u64 = grants.iter().map(|grant| grant.bytes).sum();
        if options.asked.region.bytes.is_some() && (of_devices > wanted || plain.is_empty() && of_devices != wanted) {
            return Err(Error::Option(format!(
                "{wanted} bytes more were asked for, and the devices have {of_devices}: a device is taken whole; leave the length out"
            )));
        }
        let mut left = wanted - of_devices.min(wanted);
        for (number, path) in (0..).zip(&plain) {
            let share = share_of(left, plain.len() as u64 - number);
            let bytes = if options.asked.region.bytes.is_some() { share } else { default_bytes(path)? };
            left = left.saturating_sub(bytes);
            // If it stays, the next line says that it exists.
            let _ = fs::remove_file(path);
            let mapping = Mapping::create(path, bytes, how(path, options)).map_err(refused)?;
            grants.push(self.push_new(mapping, options)?);
        }
        Ok(grants)
    }

    fn push_new(&mut self, mapping: Mapping, options: &Options) -> Result<Grant, Error> {
        let mapping = at_level(mapping, options)?;
        let grant = Grant { of: self.files.len(), bytes: mapping.len_bytes() };
        self.files.push(Mapped { mapping, parts: Vec::new() });
        Ok(grant)
    }

    /// Refuses to write over what is not ours: but what a cut growth left is.
    fn refuse_others(&self, path: &Path, manifest: &Manifest) -> Result<(), Error> {
        let is_remembered = manifest.regions.iter().any(|remembered| same_file(remembered, path));
        if !path.exists() || is_empty(path) && is_remembered {
            return Ok(());
        }
        let only_read = MapOptions { read_only: true, ..MapOptions::default() };
        let mapping = Mapping::open(path, only_read).map_err(refused)?;
        let parts = Hash::parts_in(&mapping).map_err(at(path))?;
        if parts.first().is_some_and(|part| part.number > 0 && Some(part.uuid) == manifest.uuid_bytes()) {
            return Ok(());
        }
        if !mapping.is_device() && !is_remembered {
            return Err(exists(path));
        }
        refuse_contents(&mapping, manifest, false, mapping.is_device())
    }

    fn carry_out(&mut self, grant: &Grant) -> Result<FoundPart, Error> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|error| Error::Option(format!("no random numbers for a part: {error}")))?;
        let file =
            self.files.get_mut(grant.of).ok_or_else(|| Error::Option("a file of the region is not there".into()))?;
        let from_bytes = file.used_bytes();
        if from_bytes + grant.bytes > file.mapping.len_bytes() {
            file.mapping.grow(from_bytes + grant.bytes).map_err(refused)?;
        }
        let (number, id) = (self.parts.len() as u32, u64::from_le_bytes(id));
        let part = FoundPart { number, from_bytes, len_bytes: grant.bytes, id, uuid: self.uuid };
        file.parts.push(part);
        self.parts.push(part);
        Ok(part)
    }
}

/// The manifest with these files among those of the region.
fn with_files(manifest: &Manifest, new: &[&PathBuf]) -> Result<Manifest, Error> {
    let mut manifest = manifest.clone();
    for path in new {
        let path = std::path::absolute(path).map_err(|error| Error::Option(format!("the region's path: {error}")))?;
        if !manifest.regions.contains(&path) {
            manifest.regions.push(path);
        }
    }
    Ok(manifest)
}

/// One of so many equal shares, the last one being what is left.
pub(super) fn share_of(bytes: u64, shares: u64) -> u64 {
    if shares < 2 {
        return if shares == 0 { 0 } else { bytes };
    }
    let share = bytes / shares;
    share - share % if share < SHARE_BYTES { 4096 } else { SHARE_BYTES }
}
