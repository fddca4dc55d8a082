//! The files that a region lies in: which part is where, and growth.
//!
//! Each part says which one it is, so files are told apart by what is in them, and not by the order
//! in which they are named. A growth is written down in this order: the manifest names the file,
//! the file is there and as long as it is to be, the superblock names its part. Cut anywhere, the
//! region is as it was or longer.

use std::fs;
use std::path::{Path, PathBuf};

use stratakv_base::Level;
use stratakv_hash::{FoundPart, Hash};
use stratakv_pmem::{MapError, MapOptions, Mapping, Piece, Pmem};

use super::{at, at_level, exists, missing, missing_or, no_store_or, refused};
use crate::directory::{Directory, Manifest};
use crate::error::{Error, ErrorKind};
use crate::options::Options;

/// Files of a region, each mapped by itself.
pub(super) struct Files {
    pub(super) files: Vec<Mapped>,
    pub(super) uuid: [u8; 16],
    /// The parts that the superblock names.
    pub(super) parts: Vec<FoundPart>,
    /// The region was never in more than one file.
    in_one: bool,
}

pub(super) struct Mapped {
    pub(super) mapping: Mapping,
    /// The parts in it, as far as the superblock names them.
    pub(super) parts: Vec<FoundPart>,
}

impl Mapped {
    pub(super) fn is_at(&self, path: &Path) -> bool {
        same_file(self.mapping.path(), path)
    }

    /// Bytes of its parts.
    pub(super) fn used_bytes(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.from_bytes + part.len_bytes)
    }

    pub(super) fn unused_bytes(&self) -> u64 {
        self.mapping.len_bytes().saturating_sub(self.used_bytes())
    }
}

impl Files {
    /// A region that was just made, of one part.
    pub(super) fn created(mapping: Mapping, uuid: [u8; 16]) -> Files {
        let len_bytes = mapping.len_bytes();
        let parts = vec![FoundPart { number: 0, from_bytes: 0, len_bytes, id: 0, uuid }];
        Files { files: vec![Mapped { mapping, parts: parts.clone() }], uuid, parts, in_one: true }
    }

    /// Opens the files of a store: those that were named now, then those that the manifest
    /// remembers, as far as they are needed.
    pub(super) fn open(
        named: &[PathBuf],
        remembered: &[PathBuf],
        directory: &Directory,
        manifest: &Manifest,
        options: &Options,
    ) -> Result<Files, Error> {
        let (uuid, in_one) = (manifest.uuid_bytes().unwrap_or_default(), manifest.regions.is_empty());
        let mut files = Files { files: Vec::new(), uuid, parts: Vec::new(), in_one };
        // That a growth was cut before it had a byte.
        let is_begun = |path: &Path| is_empty(path) && Some(path) != remembered.first().map(PathBuf::as_path);
        for path in named.iter().filter(|path| path.exists() && !is_begun(path)) {
            files.add(path, options).map_err(|seen| match seen {
                Seen::Unmapped(MapError::TooShort { .. } | MapError::Unaligned { .. })
                    if !remembered.iter().any(|known| same_file(known, path)) =>
                {
                    exists(path)
                }
                seen => seen.told(directory, manifest),
            })?;
        }
        for path in remembered {
            if files.missing().is_some() && !files.has(path) && path.exists() && !is_begun(path) {
                files.add(path, options).map_err(|seen| seen.told(directory, manifest))?;
            }
        }
        if let Some(missing) = files.missing() {
            return Err(files.lacks(missing, named, remembered, (directory, manifest)));
        }
        // What a growth left that was cut before the superblock named it, or is not needed.
        let is_named = |file: &Mapped| named.iter().any(|path| file.is_at(path));
        files.files.retain(|file| !file.parts.is_empty() || is_named(file));
        Ok(files)
    }

    fn has(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file.is_at(path))
    }

    /// Maps a file, and sees which parts it has.
    fn add(&mut self, path: &Path, options: &Options) -> Result<(), Seen> {
        if self.has(path) {
            return Err(Seen::Error(Error::Option(format!("{} is named twice: name each file once", path.display()))));
        }
        let mapping = Mapping::open(path, how(path, options)).map_err(Seen::Unmapped)?;
        let mapping = if options.read_only && self.in_one { filled_up(mapping, path, options)? } else { mapping };
        let mapping = if options.read_only { mapping } else { at_level(mapping, options).map_err(Seen::Error)? };
        let mut parts = Hash::parts_in(&mapping).map_err(at(path)).map_err(Seen::Error)?;
        if parts.first().is_some_and(|part| part.uuid != self.uuid) {
            return Err(Seen::Foreign(path.to_path_buf()));
        }
        // What lay there before it was ours.
        parts.truncate(parts.iter().take_while(|part| part.uuid == self.uuid).count());
        if parts.first().is_some_and(|part| part.number == 0) {
            if !self.parts.is_empty() {
                let others = self.files.iter().find(|file| file.parts.first().is_some_and(|part| part.number == 0));
                let other = others.map_or_else(String::new, |file| file.mapping.path().display().to_string());
                let why = format!(
                    "{other} and {} both begin the region: one is a copy of the other; name the files of one of them only",
                    path.display()
                );
                return Err(Seen::Error(Error::Region { why, kind: ErrorKind::Corrupt }));
            }
            self.parts = Hash::parts_of(&mapping).map_err(at(path)).map_err(Seen::Error)?;
            // In one file there is nothing to be told apart, whatever became of the heads.
            if parts.len() < self.parts.len() && self.holds_all(&mapping) {
                parts.clone_from(&self.parts);
            }
        }
        self.files.push(Mapped { mapping, parts });
        self.forget_the_unnamed();
        Ok(())
    }

    /// Whether a file is the only one, and long enough for all parts.
    fn holds_all(&self, mapping: &Mapping) -> bool {
        self.in_one && self.files.is_empty() && mapping.len_bytes() >= self.region_bytes()
    }

    /// Leaves out what no superblock names: once that is known.
    fn forget_the_unnamed(&mut self) {
        let parts = &self.parts;
        if parts.is_empty() {
            return;
        }
        for file in &mut self.files {
            let is_named = |part: &&FoundPart| {
                let named = parts.get(part.number as usize);
                named.is_some_and(|named| (named.len_bytes, named.id) == (part.len_bytes, part.id))
            };
            let named = file.parts.iter().take_while(is_named).count();
            file.parts.truncate(named);
        }
    }

    /// Where a part is: which file, and what of it.
    pub(super) fn place_of(&self, number: u32) -> Option<(usize, FoundPart)> {
        let of_file = |(of, file): (usize, &Mapped)| {
            let part = file.parts.iter().find(|part| part.number == number)?;
            Some((of, *part))
        };
        self.files.iter().enumerate().find_map(of_file)
    }

    /// The first part that is in no file.
    fn missing(&self) -> Option<u32> {
        (0..self.parts.len().max(1) as u32).find(|number| self.place_of(*number).is_none())
    }

    fn lacks(
        &self,
        number: u32,
        named: &[PathBuf],
        remembered: &[PathBuf],
        (directory, manifest): (&Directory, &Manifest),
    ) -> Error {
        let home = directory.path.display();
        let looked: Vec<String> = named.iter().chain(remembered).map(|path| path.display().to_string()).collect();
        let absent: Vec<_> = named.iter().chain(remembered).filter(|path| !path.exists()).collect();
        if number == 0 {
            // What was named is told of, before what is remembered and is not there.
            let absent = absent.first().filter(|_| named.is_empty() || self.files.is_empty());
            let why = match (absent, self.files.first()) {
                (Some(path), _) => return missing(path, directory, manifest),
                (None, Some(Mapped { mapping, .. })) => {
                    // It says what it is instead.
                    let told = |error| no_store_or(error, mapping, directory, manifest);
                    return Hash::options_of(mapping).map_or_else(told, |_| Error::Region {
                        why: format!("the region of the store in {home} is in none of {}", looked.join(", ")),
                        kind: ErrorKind::Corrupt,
                    });
                }
                (None, None) => format!("the store in {home} has no region"),
            };
            return Error::Region { why, kind: ErrorKind::NotFound };
        }
        let bytes = self.parts.get(number as usize).map_or(0, |part| part.len_bytes);
        // In one file it is not told apart from one that was cut off.
        let why = format!(
            "of the region of the store in {home} part {number} is missing ({bytes} bytes; it has {} parts), which is in none of {}: name the file with it too (--region-path); if it \
             is one of these, it was cut off, or its head is damaged: put it back from a backup",
            self.parts.len(),
            looked.join(", "),
        );
        let kind = if absent.is_empty() { ErrorKind::Corrupt } else { ErrorKind::NotFound };
        Error::Region { why, kind }
    }

    pub(super) fn region_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len_bytes).sum()
    }

    /// All parts as one region.
    pub(super) fn joined(self) -> Result<Mapping, Error> {
        let mut pieces = Vec::with_capacity(self.parts.len());
        for number in 0..self.parts.len() as u32 {
            let Some((of, part)) = self.place_of(number) else { continue };
            pieces.push(Piece { of, from_bytes: part.from_bytes, len_bytes: part.len_bytes });
        }
        let several = self.files.len() > 1;
        for Mapped { mapping, parts } in self.files.iter().filter(|_| several) {
            let (has, wanted) = (mapping.len_bytes(), parts.last().map_or(0, |part| part.from_bytes + part.len_bytes));
            if has < wanted {
                let path = mapping.path().display();
                let why = format!(
                    "{path} has {has} bytes, and the parts of the region in it {wanted}: it was cut off; put it back from a backup, or make it as long as it \
                     was (truncate) and open the store to see what is left"
                );
                return Err(Error::Region { why, kind: ErrorKind::Corrupt });
            }
        }
        let mut mappings: Vec<Mapping> = self.files.into_iter().map(|file| file.mapping).collect();
        match mappings.pop() {
            // As it is: what is wrong with its length is told by who opens the store.
            Some(only) if !several => Ok(only),
            last => {
                mappings.extend(last);
                Mapping::joined(mappings, &pieces).map_err(refused)
            }
        }
    }

    /// Says what is in the files and in no part.
    pub(super) fn tell_unused(&self) {
        for file in self.files.iter().filter(|file| file.unused_bytes() > 0) {
            let (path, unused) = (file.mapping.path().display(), file.unused_bytes());
            let all = self.region_bytes() + unused;
            tracing::warn!(
                "the last {unused} bytes of {path} are not in the region: it was made longer by hand, or a growth was cut off; `--region {all}` takes them in"
            );
        }
    }
}

/// Why a file is not one of the store's.
enum Seen {
    Unmapped(MapError),
    Foreign(PathBuf),
    Error(Error),
}

impl Seen {
    fn told(self, directory: &Directory, manifest: &Manifest) -> Error {
        match self {
            Seen::Unmapped(error) => missing_or(error, directory, manifest),
            Seen::Foreign(path) => Error::Region {
                why: format!(
                    "{} is the region of another store than {}: regions were exchanged; name this store's own (--region-path), or put it back",
                    path.display(),
                    directory.path.display()
                ),
                kind: ErrorKind::Corrupt,
            },
            Seen::Error(error) => error,
        }
    }
}

/// A region that may only be looked at, as long as its superblock says. What was cut off its file
/// reads as zeros, which no segment checks with: so it is told as damage, and the rest can be read.
fn filled_up(mapping: Mapping, path: &Path, options: &Options) -> Result<Mapping, Seen> {
    let Ok(parts) = Hash::parts_of(&mapping) else { return Ok(mapping) };
    let (has_bytes, wanted_bytes) = (mapping.len_bytes(), parts.iter().map(|part| part.len_bytes).sum::<u64>());
    if wanted_bytes <= has_bytes {
        return Ok(mapping);
    }
    tracing::warn!(
        "{} has {has_bytes} bytes, and the region in it {wanted_bytes}: it was cut off. What is left can be read: save it with \
         `stratakv dump --skip-damaged` and load that into a new store, or restore a backup",
        path.display()
    );
    drop(mapping);
    let how = how(path, options);
    let how = MapOptions { reserve_bytes: how.reserve_bytes.max(wanted_bytes), ..how };
    let mapping = Mapping::open(path, how).map_err(Seen::Unmapped)?;
    mapping.fill_up_with_zeros(wanted_bytes).map_err(Seen::Unmapped)?;
    Ok(mapping)
}

pub(super) fn how(path: &Path, options: &Options) -> MapOptions {
    let node =
        options.asked.region.paths.iter().zip(&options.asked.region.nodes).find(|(named, _)| same_file(named, path));
    MapOptions {
        private: options.read_only,
        // As long as a file can be asked to get: addresses cost nothing.
        reserve_bytes: options.asked.region.bytes.unwrap_or_default(),
        // Without msync no fence waits for a page's first store.
        prewrite: options.durable_level() == Level::PowerLoss,
        node: node.map(|(_, node)| *node),
        ..MapOptions::default()
    }
}

pub(super) fn same_file(one: &Path, other: &Path) -> bool {
    one == other
        // A path that leads nowhere is no other name of a file that is there.
        || fs::canonicalize(one).ok().is_some_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

pub(super) fn is_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0)
}
