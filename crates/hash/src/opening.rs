//! Creating a store in a region, and opening it: the walk over everything that lies there.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use stratakv_base::Key;
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use crate::alloc::{Allocator, Extent};
use crate::epoch::Epochs;
use crate::hash::{Current, Hash, HashOptions};
use crate::layout::{
    FORMAT, First, Header, LEASE, LEASE_AT, NoSuperblock, PAGE, SUPERBLOCK_LEN, SegmentState, Superblock, VERSION_MAX,
    WORDS_AT, read_superblock, root_value, value_crc,
};
use crate::region::Region;
use crate::table::Table;

/// Bytes of a value that are read and checked at once.
const CHECKED_BYTES: usize = 64 << 10;

impl<P: Pmem + Sync> Hash<P> {
    /// Makes an empty store in a region. What lay there is gone.
    ///
    /// # Errors
    /// Options that cannot be, a region too small for one segment, or the memory fails.
    pub fn create(pmem: P, options: HashOptions) -> Result<Hash<P>, Error> {
        let superblock = Superblock {
            block_bytes: options.block_bytes,
            segment_bytes: options.segment_bytes,
            region_bytes: pmem.len_bytes(),
            uuid: options.uuid,
        };
        if !superblock.is_possible() {
            let HashOptions { block_bytes, segment_bytes, .. } = options;
            return Err(Error::WrongVolume(format!(
                "no store fits a region of {} bytes with blocks of {block_bytes} and segments of {segment_bytes} bytes: blocks have 32 or 64, \
                 segments a power of two from 4096 to 1048576, and the region takes at least five segments of 4096",
                pmem.len_bytes()
            )));
        }
        let region = Region { pmem, superblock };
        let zeros = [0; PAGE as usize];
        // First nothing that was there is a store any more.
        for at in [0, PAGE, LEASE_AT] {
            region.pmem.store(at, &zeros)?;
            region.pmem.persist(at, PAGE)?;
        }
        for number in 0..superblock.segments() {
            region.set_segment(number, SegmentState::Unused)?;
        }
        region.pmem.fence()?;
        let hash = Hash::over(region);
        hash.lease(1)?;
        for at in [PAGE, 0] {
            hash.region.pmem.store(at, &superblock.encode())?;
            hash.region.pmem.persist(at, SUPERBLOCK_LEN as u64)?;
        }
        Ok(hash)
    }

    fn over(region: Region<P>) -> Hash<P> {
        let superblock = &region.superblock;
        let arenas = 2 * thread::available_parallelism().map_or(1, usize::from);
        let segment_blocks = (superblock.segment_bytes / u64::from(superblock.block_bytes)) as u32;
        let first = region.place(superblock.first().next_multiple_of(u64::from(superblock.block_bytes)));
        Hash {
            alloc: Allocator::new(superblock.segments(), first, segment_blocks, arenas),
            table: Table::new(),
            hash_seed: RandomState::new().build_hasher().finish(),
            epochs: Epochs::new(),
            versions: AtomicU64::new(0),
            leased: AtomicU64::new(0),
            leasing: Mutex::default(),
            damage: Mutex::default(),
            damaged: AtomicU64::new(0),
            region,
        }
    }

    /// Opens the store in a region: walks all segments with `threads` threads, checks every record and builds the table. O(bytes in use).
    ///
    /// # Errors
    /// No store there, one of a newer format, a region that is shorter than the store; or the memory fails. Damaged records are no error: [`Hash::damage`] tells.
    pub fn open(pmem: P, threads: usize) -> Result<Hash<P>, Error> {
        let superblock = superblock_of(&pmem)?;
        if superblock.region_bytes > pmem.len_bytes() {
            return Err(Error::WrongVolume(format!(
                "the region has {} bytes, and the store in it {}: its file was cut off; put it back from a backup, or make it as long as it was and open it to see what is left",
                pmem.len_bytes(),
                superblock.region_bytes
            )));
        }
        let hash = Hash::over(Region { pmem, superblock });
        hash.mend_superblocks()?;
        let spans = hash.spans()?;
        let next = AtomicU32::new(0);
        let walk = || -> Result<u64, Error> {
            let mut highest = 0;
            while let Some((first, segments)) = spans.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                highest = hash.walk(*first, *segments)?.max(highest);
            }
            // The losers that this thread freed.
            hash.region.pmem.fence()?;
            Ok(highest)
        };
        let walked: Vec<Result<u64, Error>> = thread::scope(|scope| {
            let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(walk)).collect();
            let mine = walk();
            let joined = others
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(Error::Unknown("a thread that read the region panicked"))));
            joined.chain([mine]).collect()
        });
        let mut highest = 0;
        for walked in walked {
            highest = walked?.max(highest);
        }
        hash.resume_versions(highest)?;
        Ok(hash)
    }

    /// Goes on where no version was handed out.
    fn resume_versions(&self, highest: u64) -> Result<(), Error> {
        let word = self.region.pmem.load_u64(LEASE_AT)?;
        let lease = root_value(self.region.uuid(), LEASE_AT, word).filter(|lease| *lease < VERSION_MAX / LEASE);
        let lease = lease.unwrap_or_else(|| {
            let _ = self.note(self.region.damage(
                LEASE_AT,
                "lease of versions",
                "a word that checks",
                format!("{word:#x}"),
            ));
            // At least above everything that is there, with room for what was deleted.
            highest / LEASE + 2
        });
        self.versions.store(lease.max(highest / LEASE + 1) * LEASE, Ordering::Release);
        self.lease(lease.max(highest / LEASE + 1) + 1)?;
        Ok(())
    }

    fn mend_superblocks(&self) -> Result<(), Error> {
        let expected = self.region.superblock.encode();
        for at in [PAGE, 0] {
            let mut found = [0; SUPERBLOCK_LEN];
            self.region.pmem.load(at, &mut found)?;
            if found != expected {
                self.region.pmem.store(at, &expected)?;
                self.region.pmem.persist(at, SUPERBLOCK_LEN as u64)?;
            }
        }
        Ok(())
    }

    /// The spans, taken out of the pool: first segment, count.
    fn spans(&self) -> Result<Vec<(u32, u32)>, Error> {
        let (total, mut spans, mut number, mut orphans) = (self.region.superblock.segments(), Vec::new(), 0, false);
        while number < total {
            let state = match self.region.segment(number)? {
                Some(SegmentState::Large(count)) if u64::from(number) + u64::from(count) > u64::from(total) => None,
                state => state,
            };
            let segments = match state {
                Some(SegmentState::Unused) => 0,
                // Its span was not begun, or had ended.
                Some(SegmentState::Continued) => {
                    self.region.set_segment(number, SegmentState::Unused)?;
                    orphans = true;
                    0
                }
                Some(SegmentState::Extents) => 1,
                Some(SegmentState::Large(count)) => count,
                None => {
                    let (segments, begins) = self.damaged_segment(number, total)?;
                    if !begins {
                        self.alloc.withhold(number, segments);
                        number += segments;
                        continue;
                    }
                    segments
                }
            };
            if segments > 0 {
                self.alloc.add_span(number, segments);
                spans.push((number, segments));
            }
            number += segments.max(1);
        }
        if orphans {
            self.region.pmem.fence()?;
        }
        Ok(spans)
    }

    /// The segments that one with a damaged word leads, and whether it begins with an extent: else they are left alone.
    fn damaged_segment(&self, number: u32, total: u32) -> Result<(u32, bool), Error> {
        let offset = self.region.superblock.segment_at(number);
        self.note(self.region.damage(offset, "segment", "a word that checks", "another".into()));
        let mut segments = 1;
        while number + segments < total && self.region.segment(number + segments)? == Some(SegmentState::Continued) {
            segments += 1;
        }
        Ok((segments, self.region.first(offset)?.is_some()))
    }

    /// Walks a span; the highest version in it.
    fn walk(&self, first: u32, segments: u32) -> Result<u64, Error> {
        let superblock = &self.region.superblock;
        let block_bytes = u64::from(superblock.block_bytes);
        let (mut offset, mut highest) = (superblock.segment_at(first), 0);
        let end = offset + u64::from(segments) * superblock.segment_bytes;
        while offset < end {
            let left = (end - offset) / block_bytes;
            let found = self.region.first(offset)?.filter(|found| u64::from(found.blocks) <= left);
            let Some(found) = found else {
                self.note(self.region.damage(offset, "extent", "a first word that checks", "another".into()));
                offset += block_bytes;
                // What lies between here and the next extent is left alone.
                while offset < end && self.region.first(offset)?.is_none() {
                    offset += block_bytes;
                }
                continue;
            };
            if found.is_record {
                highest = self.take_in(offset, found)?.max(highest);
            } else {
                self.alloc.free(Extent { place: self.region.place(offset), blocks: found.blocks });
            }
            offset += u64::from(found.blocks) * block_bytes;
        }
        Ok(highest)
    }

    /// Takes a record into the table, or frees the older one of a key; its version.
    fn take_in(&self, offset: u64, first: First) -> Result<u64, Error> {
        let Some(header) = self.region.header(offset)? else {
            self.note(self.region.damage(offset, "record", "a length that fits", "another".into()));
            return Ok(0);
        };
        let prefix = self.region.prefix(offset, &header)?;
        let key = prefix.get(prefix.len() - first.key_bytes as usize..).unwrap_or_default();
        if header.crc(self.region.uuid(), offset, &prefix) != header.header_crc
            || header.version >= VERSION_MAX
            || Key::from_encoded(key).is_none()
        {
            self.note(self.region.damage(offset, "record", "a header and a key that check", "others".into()));
            return Ok(0);
        }
        self.check_value(offset, &header)?;
        let slot = self.slot(key)?;
        let place = self.region.place(offset);
        let loser = match self.current(&slot, key)? {
            Some(Current { found, header: other }) if other.version < header.version => {
                slot.replace(found, place);
                Some((found.place, other))
            }
            Some(_) => Some((place, header)),
            None if slot.insert(place) => None,
            None => return Err(Error::Unknown("the hash table has reached its end")),
        };
        drop(slot);
        if let Some((place, loser)) = loser {
            self.region.set_first(self.region.offset(place), loser.first().freed())?;
            self.alloc.free(Extent { place, blocks: loser.blocks });
        }
        self.table.grow();
        Ok(header.version)
    }

    /// Notes a value that does not check. The record stays: a get of its key says what is wrong with it.
    fn check_value(&self, offset: u64, header: &Header) -> Result<(), Error> {
        let mut left = header.value_bytes as usize;
        let (mut at, mut crc) = (header.prefix_bytes(), value_crc(self.region.uuid(), offset, &[]));
        let mut buffer = [0; 512];
        let mut large = Vec::new();
        while left > 0 {
            let bytes = if left <= buffer.len() {
                &mut buffer[..left]
            } else {
                large.resize(left.min(CHECKED_BYTES), 0);
                &mut large[..]
            };
            self.region.body(offset, at, bytes)?;
            crc = stratakv_base::checksum::crc32c(crc, bytes);
            at += bytes.len() as u64;
            left -= bytes.len();
        }
        if crc != header.value_crc {
            self.note(self.region.damage(offset, "record", "a value that checks", "another".into()));
        }
        Ok(())
    }
}

fn superblock_of(pmem: &impl Pmem) -> Result<Superblock, Error> {
    if pmem.len_bytes() < WORDS_AT {
        let found = pmem.len_bytes();
        return Err(Error::WrongVolume(format!(
            "the region has {found} bytes, too short for a store: look which file it is"
        )));
    }
    let mut worst = NoSuperblock::Blank;
    for at in [0, PAGE] {
        let mut bytes = [0; SUPERBLOCK_LEN];
        pmem.load(at, &mut bytes)?;
        match read_superblock(&bytes) {
            Ok(superblock) => return Ok(superblock),
            Err(NoSuperblock::Newer(found)) => return Err(Error::NewerFormat { found, known: FORMAT }),
            Err(NoSuperblock::Foreign) => worst = NoSuperblock::Foreign,
            Err(NoSuperblock::Blank) => {}
        }
    }
    Err(Error::WrongVolume(match worst {
        NoSuperblock::Blank => "the region is blank: no store was created in it, or its creation was cut off; create one".into(),
        _ => "the region holds no store of engine hash, or both copies of its superblock are damaged: look which file it is".into(),
    }))
}
