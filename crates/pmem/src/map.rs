//! A region over a file, a device or memory.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::bus::Known;
use crate::flush::Flush;
use crate::group::{self, Group};
use crate::node::{Node, Nodes};
use crate::source::{Kind, Source, failed};
use crate::space::{Access, Space};
use crate::{Domain, MapError, Pmem, PmemError};

#[cfg(test)]
#[path = "../tests/unit/map.rs"]
mod tests;

/// The smallest page, in bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// How a region is mapped.
#[derive(Clone, Copy, Debug)]
pub struct MapOptions {
    /// For loads only: stores fail. Several may read at a time, if nobody writes.
    pub read_only: bool,
    /// What is stored stays in this process and ends with it; the file is locked and left as for
    /// [`MapOptions::read_only`]. For opening a store, which may want to mend something, without
    /// changing it. Takes memory for each page that is stored to.
    pub private: bool,
    /// Treat it as if it were in this domain: the one found, or a weaker one (see [`Domain`]).
    /// [`Domain::Volatile`] gives durability up: for measurements. A device cannot be treated as
    /// [`Domain::File`].
    pub domain: Option<Domain>,
    /// Addresses to set aside, in bytes: how long the region may grow while it is open. Costs no
    /// memory; what is shorter than the region counts as the region's length.
    pub reserve_bytes: u64,
    /// The node of the machine (NUMA) that the region lies on. Persistent memory knows its own; new
    /// space on tmpfs or of huge pages is taken from this one.
    pub node: Option<u32>,
    /// Write the zeros of new space, not only allocate it (true by default). Else the first store
    /// to a page costs the file system a journal entry: a fence takes 4 ms where later ones take
    /// 0.6 (ext4), and on a DAX file the store itself waits. Creating takes as long as writing the
    /// file. Without effect on memory.
    pub prewrite: bool,
}

impl Default for MapOptions {
    fn default() -> MapOptions {
        MapOptions { read_only: false, private: false, domain: None, reserve_bytes: 0, node: None, prewrite: true }
    }
}

impl MapOptions {
    /// Whether the file may be made, filled or grown.
    fn check_may_change(&self) -> Result<(), MapError> {
        if self.read_only || self.private { Err(MapError::ReadOnly) } else { Ok(()) }
    }
}

/// A mapped region; see [`Pmem`]. It is unmapped and unlocked on drop.
///
/// All accesses are atomic words (relaxed, but for `load_u64` and `store_u64`): a load during a
/// store of the same bytes gives words of before or after, and is no undefined behaviour. A store
/// that does not begin and end at multiples of 8 costs some ns more at each such edge.
///
/// What the kernel reports by a signal is not caught: an uncorrectable memory error, or a file that
/// another program shrinks in spite of the lock, ends the process with SIGBUS.
#[derive(Debug)]
pub struct Mapping {
    #[expect(dead_code, reason = "held until the region is unmapped: for who explains SIGBUS")]
    known: Known,
    // Dropped in this order: unmapped, then unlocked.
    space: Space,
    source: Source,
    /// Of a region in several files the others.
    further: Vec<Source>,
    /// What lies where, one behind the other.
    pieces: Vec<Laid>,
    nodes: Nodes,
    access: Access,
    /// What the file or device would be, mapped for all.
    medium: Domain,
    /// What lies below.
    found: Domain,
    domain: Domain,
    durability: Durability,
    /// The error that ended it when all of it was written back, or 0.
    sync_failed: AtomicI32,
    /// How all of it is written back.
    write_back: group::Sync,
    options: MapOptions,
    growth: Mutex<()>,
}

/// Bytes of one of several mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which mapping.
    pub of: usize,
    /// The first byte there.
    pub from_bytes: u64,
    /// How many.
    pub len_bytes: u64,
}

/// A piece in its place.
#[derive(Clone, Copy, Debug)]
struct Laid {
    /// In the region, its first byte.
    at: u64,
    is_file: bool,
    /// The machine's number of its node.
    number: Option<u32>,
    /// Among the nodes of the region.
    node: usize,
}

/// How stores become durable.
#[derive(Debug)]
enum Durability {
    /// Not at all.
    Nothing,
    /// By pages, with `msync`.
    Pages(Group),
    /// By lines, then a fence.
    Lines(Flush),
    /// By a fence alone.
    Fence(Flush),
}

impl Mapping {
    /// Makes a file of `len_bytes` zeros, a multiple of 4096 (of the huge page, on hugetlbfs),
    /// really allocated; locks and maps it.
    ///
    /// On return it survives a power cut, if its domain does. After an error the file is not there.
    ///
    /// # Errors
    /// See [`MapError`]; [`MapError::Exists`] if something has that name.
    pub fn create(path: &Path, len_bytes: u64, options: MapOptions) -> Result<Mapping, MapError> {
        options.check_may_change()?;
        let source = Source::create(path)?;
        let made = Mapping::fill(source, len_bytes, options).and_then(|mapping| {
            mapping.source.sync_directory()?;
            Ok(mapping)
        });
        if made.is_err() {
            // The first error counts.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Maps a file or a devdax device with all it has, and locks it: against everybody, or for
    /// [`MapOptions::read_only`] against who writes.
    ///
    /// Holes of a file are filled, unless it is opened for reading.
    ///
    /// # Errors
    /// See [`MapError`]; [`MapError::Locked`] at once if it is open elsewhere.
    pub fn open(path: &Path, options: MapOptions) -> Result<Mapping, MapError> {
        let changes = options.check_may_change().is_ok();
        let source = Source::open(path, !changes)?;
        let len_bytes = mapped_bytes(&source, options)?;
        source.check_len(len_bytes)?;
        if changes && !matches!(source.kind, Kind::Device { .. }) {
            source.fill_holes(len_bytes)?;
        }
        Mapping::over(source, len_bytes, options)
    }

    /// A region of `len_bytes` zeros in memory: it ends with the process.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn anonymous(len_bytes: u64, options: MapOptions) -> Result<Mapping, MapError> {
        options.check_may_change()?;
        Mapping::fill(Source::anonymous()?, len_bytes, options)
    }

    /// Over a source that is empty.
    fn fill(source: Source, len_bytes: u64, options: MapOptions) -> Result<Mapping, MapError> {
        source.check_len(len_bytes)?;
        source.extend_on(options.node, (0, len_bytes), options.prewrite)?;
        Mapping::over(source, len_bytes, options)
    }

    fn over(source: Source, len_bytes: u64, options: MapOptions) -> Result<Mapping, MapError> {
        let (unit_bytes, MapOptions { private, .. }) = (source.unit_bytes, options);
        if private && matches!(source.kind, Kind::Device { .. }) {
            return Err(MapError::NotPrivate { path: source.path.clone() });
        }
        let writable = !options.read_only;
        let can_be_synchronous =
            source.kind != Kind::Memory && Space::is_synchronous(&source.file, unit_bytes, writable && !private);
        let medium = source.domain(can_be_synchronous)?;
        let synchronous = can_be_synchronous && !private;
        let found = if private { Domain::Volatile } else { medium };
        let domain = choose(found, source.kind, options.domain)?;
        let reserve_bytes = options.reserve_bytes.max(len_bytes);
        let too_long = MapError::TooLong { len_bytes: reserve_bytes };
        let reserve_bytes = reserve_bytes.checked_next_multiple_of(unit_bytes).ok_or(too_long)?;
        source.check_len(reserve_bytes)?;
        let by_page = source.kind == Kind::File && !can_be_synchronous;
        let access = Access { writable, synchronous, private, by_page };
        let space = Space::reserve(reserve_bytes, unit_bytes).map_err(failed("reserve addresses for", &source.path))?;
        space.extend(&source.file, 0, len_bytes, access).map_err(failed("map", &source.path))?;
        check_unchanged(&source.path, len_bytes, mapped_bytes(&source, options)?)?;
        let durability = Durability::of(domain).ok_or_else(|| MapError::NoFlush { path: source.path.clone() })?;
        let number = source.node(synchronous).or(options.node);
        let pieces = vec![Laid { at: 0, is_file: source.kind == Kind::File, number, node: 0 }];
        let (further, nodes, growth) = (Vec::new(), Nodes::of([]), Mutex::new(()));
        let (base, len) = space.addresses();
        let known = Known::as_region(base, len, &source.path);
        Ok(Mapping {
            known,
            space,
            source,
            further,
            pieces,
            nodes,
            access,
            medium,
            found,
            domain,
            durability,
            sync_failed: 0.into(),
            write_back: Space::sync,
            options,
            growth,
        })
    }

    /// Makes a private region `len_bytes` long: what its file does not have reads as zeros, and is
    /// memory. For looking at what is left of a file that was cut off. `len_bytes` is within
    /// [`MapOptions::reserve_bytes`].
    ///
    /// # Errors
    /// [`MapError::ReadOnly`]: the region is not private. See [`MapError`] for the others.
    pub fn fill_up_with_zeros(&self, len_bytes: u64) -> Result<(), MapError> {
        let _growing = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.access.private {
            return Err(MapError::ReadOnly);
        }
        self.space.extend_by_zeros(len_bytes).map_err(failed("map zeros behind", &self.source.path))
    }

    /// Where the file of a region ends that was filled up with zeros, in bytes.
    pub fn file_ends_at(&self) -> Option<u64> {
        let has_bytes = self.source.len_bytes().ok().filter(|_| self.access.private && self.further.is_empty())?;
        (has_bytes < self.space.mapped_bytes()).then_some(has_bytes)
    }

    /// One region of pieces of several mappings, one behind the other. Whatever is in no piece is
    /// not in it, but stays locked with it. It does not grow.
    ///
    /// # Errors
    /// See [`MapError`]; [`MapError::Mixed`] if they are in different domains,
    /// [`MapError::Unaligned`] if a piece of huge pages, or of a device, would not begin at a
    /// multiple of these.
    pub fn joined(mappings: Vec<Mapping>, pieces: &[Piece]) -> Result<Mapping, MapError> {
        check_alike(&mappings)?;
        let (space, mut pieces) = lay(&mappings, pieces)?;
        let nodes = Nodes::of(pieces.iter().map(|piece| piece.number));
        pieces.iter_mut().for_each(|piece| piece.node = nodes.index_of(piece.number));
        let mut mappings = mappings.into_iter();
        let first = mappings.next().ok_or(MapError::TooShort { len_bytes: 0, unit_bytes: PAGE_BYTES })?;
        let further = mappings.map(|mapping| mapping.source).collect();
        let (base, len) = space.addresses();
        let known = Known::as_region(base, len, first.path());
        Ok(Mapping { known, space, further, pieces, nodes, ..first })
    }

    /// The region, treated from now on as if it were in `domain`: as by [`MapOptions::domain`], by
    /// one who had to look at it first.
    ///
    /// # Errors
    /// [`MapError::Domain`].
    pub fn treated_as(mut self, domain: Domain) -> Result<Mapping, MapError> {
        self.domain = choose(self.found, self.source.kind, Some(domain))?;
        self.durability = Durability::of(domain).ok_or_else(|| MapError::NoFlush { path: self.path().into() })?;
        Ok(self)
    }

    /// Lets others have the region, though it is still mapped here: at the end of a store that
    /// somebody still holds. Nothing may be stored to it any more.
    pub fn unlock(&self) {
        self.sources().for_each(Source::unlock);
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        [&self.source].into_iter().chain(&self.further)
    }

    /// The nodes of the machine that it lies on, if these are several.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes.all
    }

    /// Makes the region longer, to `len_bytes`, at most what was reserved at open. It stays where
    /// it is, under all who use it; the new bytes are zeros. On return its length survives a power
    /// cut, if its domain does.
    ///
    /// # Errors
    /// See [`MapError`]; the region is then as long as before. [`MapError::NotReserved`] beyond
    /// [`MapOptions::reserve_bytes`].
    pub fn grow(&self, len_bytes: u64) -> Result<(), MapError> {
        let _one_at_a_time = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_growth(len_bytes)?;
        let before_bytes = self.len_bytes();
        if len_bytes == before_bytes {
            return Ok(());
        }
        check_unchanged(&self.source.path, before_bytes, self.source.len_bytes()?)?;
        let node = self.options.node;
        let extended = self.source.extend_on(node, (before_bytes, len_bytes), self.options.prewrite).and_then(|()| {
            self.space
                .extend(&self.source.file, before_bytes, len_bytes, self.access)
                .map_err(failed("map", &self.source.path))
        });
        if extended.is_err() {
            // Nothing is mapped there. If it fails the file stays longer, and is so when opened
            // again.
            let _ = self.source.file.set_len(before_bytes);
        }
        extended
    }

    fn check_growth(&self, len_bytes: u64) -> Result<(), MapError> {
        self.options.check_may_change()?;
        self.check_writable()?;
        if matches!(self.source.kind, Kind::Device { .. }) {
            return Err(MapError::FixedLength { path: self.source.path.clone() });
        }
        self.source.check_len(len_bytes)?;
        if len_bytes < self.len_bytes() {
            return Err(MapError::Shrinks { len_bytes: self.len_bytes() });
        }
        let reserved_bytes = self.space.reserved_bytes();
        if len_bytes > reserved_bytes { Err(MapError::NotReserved { len_bytes, reserved_bytes }) } else { Ok(()) }
    }

    /// The domain of persistence its stores are treated by.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The domain of the file or device itself, whatever its stores are treated by here: those of a
    /// [`MapOptions::private`] mapping go nowhere.
    pub fn medium(&self) -> Domain {
        self.medium
    }

    /// Whether it is mapped with MAP_SYNC: lines written back are durable without the file system's
    /// help.
    pub(crate) fn is_synchronous(&self) -> bool {
        self.access.synchronous
    }

    /// The path it was opened by; of several the first one.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// The paths of all its files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.sources().map(|source| source.path.as_path())
    }

    /// The path of a file of it that was removed meanwhile: what is stored there ends with the
    /// process.
    pub fn removed(&self) -> Option<&Path> {
        self.sources().find(|source| source.is_removed()).map(|source| source.path.as_path())
    }

    /// Whether it is a device, whose length is fixed.
    pub fn is_device(&self) -> bool {
        matches!(self.source.kind, Kind::Device { .. })
    }

    /// The bytes that a part of it begins and ends at multiples of: a page.
    pub fn unit_bytes(&self) -> u64 {
        self.source.unit_bytes
    }

    /// Whether stores are taken.
    fn check_writable(&self) -> Result<(), PmemError> {
        if !self.access.writable {
            return Err(PmemError::ReadOnly);
        }
        self.check_written_back()
    }

    /// Whether all that was to be written back was. After a failure the kernel may have dropped
    /// pages, so no later call can make up for it.
    fn check_written_back(&self) -> Result<(), PmemError> {
        match self.sync_failed.load(Ordering::Acquire) {
            0 => {}
            errno => return Err(PmemError::SyncFailed { errno }),
        }
        match &self.durability {
            Durability::Pages(group) => group.check(),
            _ => Ok(()),
        }
    }

    /// As [`Pmem::sync`], of a range only.
    pub(crate) fn sync_range(&self, range: Range<u64>) -> Result<(), PmemError> {
        self.fence()?;
        let ends = self.pieces.iter().skip(1).map(|piece| piece.at).chain([self.space.mapped_bytes()]);
        for (piece, end) in self.pieces.iter().zip(ends).filter(|(piece, _)| piece.is_file && self.access.writable) {
            let (from, to) = (piece.at.max(range.start), end.min(range.end));
            if from < to
                && let Err(error) = (self.write_back)(&self.space, from..to)
            {
                self.sync_failed.store(error.raw_os_error(), Ordering::Release);
                return self.check_written_back();
            }
        }
        Ok(())
    }
}

/// Whether they are memory of one sort, mapped in one way.
fn check_alike(mappings: &[Mapping]) -> Result<(), MapError> {
    let Some((first, others)) = mappings.split_first() else { return Ok(()) };
    match others.iter().find(|other| (other.found, other.domain) != (first.found, first.domain)) {
        None => Ok(()),
        Some(other) => Err(MapError::Mixed {
            first_path: first.path().into(),
            first: first.found,
            second_path: other.path().into(),
            second: other.found,
        }),
    }
}

/// Maps pieces one behind the other.
fn lay(mappings: &[Mapping], pieces: &[Piece]) -> Result<(Space, Vec<Laid>), MapError> {
    let unit_bytes = mappings.iter().map(|mapping| mapping.source.unit_bytes).max().unwrap_or(PAGE_BYTES);
    let len_bytes = pieces.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.len_bytes));
    let reserve_bytes = len_bytes.checked_next_multiple_of(unit_bytes).ok_or(MapError::TooLong { len_bytes })?;
    let reserved = Space::reserve(reserve_bytes, unit_bytes);
    let space = reserved.map_err(failed("reserve addresses for", Path::new("a region of several files")))?;
    let mut laid = Vec::with_capacity(pieces.len());
    for Piece { of, from_bytes, len_bytes } in pieces {
        let mapping = mappings.get(*of).ok_or(MapError::TooShort { len_bytes: 0, unit_bytes })?;
        let (source, at) = (&mapping.source, space.mapped_bytes());
        let unaligned =
            [at, *from_bytes, *len_bytes].into_iter().find(|bytes| !bytes.is_multiple_of(source.unit_bytes));
        if let Some(len_bytes) = unaligned {
            return Err(MapError::Unaligned { len_bytes, unit_bytes: source.unit_bytes });
        }
        let end = from_bytes.saturating_add(*len_bytes);
        if end > mapping.len_bytes() {
            return Err(MapError::TooShort { len_bytes: mapping.len_bytes(), unit_bytes: end });
        }
        space.extend(&source.file, *from_bytes, at + len_bytes, mapping.access).map_err(failed("map", &source.path))?;
        let number = mapping.pieces.first().and_then(|piece| piece.number);
        laid.push(Laid { at, is_file: source.kind == Kind::File, number, node: 0 });
    }
    Ok((space, laid))
}

impl Durability {
    /// `None` if this processor cannot.
    fn of(domain: Domain) -> Option<Durability> {
        Some(match domain {
            Domain::Volatile => Durability::Nothing,
            Domain::File => Durability::Pages(Group::new(Space::sync)),
            Domain::Adr => Durability::Lines(Flush::detect()?),
            Domain::Eadr => Durability::Fence(Flush::detect()?),
        })
    }
}

/// The domain found, or the weaker one asked for.
fn choose(found: Domain, kind: Kind, wanted: Option<Domain>) -> Result<Domain, MapError> {
    let wanted = wanted.unwrap_or(found);
    // Devices have no `msync`.
    let is_possible = wanted != Domain::File || kind == Kind::File;
    if wanted <= found && is_possible { Ok(wanted) } else { Err(MapError::Domain { found, wanted }) }
}

/// What is mapped of a source. A file that was cut off may end anywhere: for who only looks, the
/// rest of its last page reads as zeros.
fn mapped_bytes(source: &Source, options: MapOptions) -> Result<u64, MapError> {
    let len_bytes = source.len_bytes()?;
    let whole = len_bytes.checked_next_multiple_of(source.unit_bytes).filter(|_| options.private);
    Ok(whole.unwrap_or(len_bytes))
}

fn check_unchanged(path: &Path, before_bytes: u64, after_bytes: u64) -> Result<(), MapError> {
    if before_bytes == after_bytes {
        return Ok(());
    }
    Err(MapError::LengthChanged { path: path.to_path_buf(), before_bytes, after_bytes })
}

impl Pmem for Mapping {
    fn len_bytes(&self) -> u64 {
        self.space.mapped_bytes()
    }

    fn survives_power_loss(&self) -> bool {
        self.domain.survives_power_loss()
    }

    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.space.load(offset, into)
    }

    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.space.load_u64(offset)
    }

    fn prefetch(&self, offset: u64, len_bytes: u64) {
        self.space.prefetch(offset, len_bytes);
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.check_writable()?;
        self.space.store(offset, bytes)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.check_writable()?;
        self.space.store_u64(offset, value)
    }

    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.check_writable()?;
        match &self.durability {
            Durability::Nothing | Durability::Pages(_) => {
                self.space.store(offset, bytes)?;
                self.flush(offset, bytes.len() as u64)
            }
            Durability::Lines(flush) | Durability::Fence(flush) => self.space.store_past_cache(offset, bytes, *flush),
        }
    }

    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        match &self.durability {
            Durability::Lines(flush) => self.space.flush_lines(offset, len_bytes, *flush),
            Durability::Nothing | Durability::Fence(_) => self.space.check(offset, len_bytes),
            Durability::Pages(group) => {
                self.space.check(offset, len_bytes)?;
                group.flush(offset..offset + len_bytes);
                Ok(())
            }
        }
    }

    fn fence_waits(&self) -> bool {
        matches!(self.durability, Durability::Pages(_))
    }

    fn will_read(&self, offset: u64, len_bytes: u64) {
        if self.access.by_page && self.further.is_empty() && self.space.check(offset, len_bytes).is_ok() {
            self.source.will_read(offset, len_bytes);
        }
    }

    fn sync(&self) -> Result<(), PmemError> {
        self.sync_range(0..self.space.mapped_bytes())
    }

    fn failure(&self) -> Option<PmemError> {
        self.check_written_back().err()
    }

    fn node_count(&self) -> usize {
        self.nodes.count()
    }

    fn node_here(&self) -> usize {
        self.nodes.here()
    }

    fn node_of(&self, offset: u64) -> usize {
        let index = self.pieces.partition_point(|piece| piece.at <= offset);
        index.checked_sub(1).and_then(|index| self.pieces.get(index)).map_or(0, |piece| piece.node)
    }

    fn node_number(&self, node: usize) -> u32 {
        self.nodes.all.get(node).map_or(0, |node| node.number)
    }

    fn fence(&self) -> Result<(), PmemError> {
        self.check_written_back()?;
        match &self.durability {
            Durability::Nothing => Ok(()),
            Durability::Pages(group) => group.fence(&self.space),
            Durability::Lines(flush) | Durability::Fence(flush) => {
                flush.fence();
                Ok(())
            }
        }
    }
}
