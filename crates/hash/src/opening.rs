//! Creating a store in a region, and opening it: the walk over everything that lies there.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use smallvec::smallvec;
use stratakv_base::{Corruption, Key, Place};
use stratakv_engine::{Error, Progress};
use stratakv_pmem::Pmem;

use crate::alloc::{Allocator, Extent, Ground};
use crate::batch::Commits;
use crate::epoch::Epochs;
use crate::expiry::Expiries;
use crate::hash::{Calls, Current, Hash, HashOptions};
use crate::health::Health;
use crate::layout::{
    COMMITS, First, Header, Kind, LEASE, LEASE_AT, Named, PAGE, SUPERBLOCK_LEN, SegmentState, Superblock, VERSION_MAX,
    commit_at, commit_value, root_value, value_crc,
};
use crate::order::Orders;
use crate::parts::{store_superblocks, superblock_of};
use crate::region::{Prefix, Region};
use crate::snapshot::Snapshots;
use crate::table::HashTable;
use crate::versions::Versions;
use crate::write::TABLE_FULL;

/// Bytes of a value that are read and checked at once.
const CHECKED_BYTES: usize = 64 << 10;

/// What a thread found.
#[derive(Default)]
struct Walked {
    /// The highest version.
    highest: u64,
    /// Members of committed batches: offset, first word.
    members: Vec<(u64, First)>,
}

impl<P: Pmem + Sync> Hash<P> {
    /// Makes an empty store in a region. What lay there is gone.
    ///
    /// # Errors
    /// Options that cannot be, a region too small for one segment, or the memory fails.
    pub fn create(pmem: P, options: HashOptions) -> Result<Hash<P>, Error> {
        let superblock = Superblock {
            block_bytes: options.block_bytes,
            segment_bytes: options.segment_bytes,
            parts: smallvec![Named::first(pmem.len_bytes())],
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
        let region = Region::new(pmem, superblock);
        let zeros = [0; PAGE as usize];
        // First nothing that was there is a store any more.
        for at in [0, PAGE, LEASE_AT] {
            region.pmem.store(at, &zeros)?;
            region.pmem.persist(at, PAGE)?;
        }
        for number in region.parts.iter().flat_map(|part| part.segments.clone()) {
            region.set_segment(number, SegmentState::Unused)?;
        }
        for number in 0..COMMITS {
            region.set_commit(number, 0)?;
        }
        region.pmem.fence()?;
        let hash = Hash::over(region);
        hash.versions.lease(&hash.region, 1)?;
        store_superblocks(&hash.region.pmem, &hash.region.superblock)?;
        Ok(hash)
    }

    fn over(region: Region<P>) -> Hash<P> {
        let arenas = 2 * thread::available_parallelism().map_or(1, usize::from);
        Hash {
            alloc: Allocator::new(Ground::of(&region), arenas),
            table: HashTable::new(),
            hash_seed: RandomState::new().build_hasher().finish(),
            epochs: Epochs::new(),
            orders: Orders::new(),
            commits: Commits::new(),
            snapshots: Snapshots::new(),
            backup: Mutex::default(),
            expiries: Expiries::new(),
            scrubbed: Mutex::default(),
            calls: Calls { are_over: false.into(), under_way: Epochs::new() },
            health: Health::default(),
            versions: Versions::default(),
            damage: Mutex::default(),
            region,
        }
    }

    /// What the store in a region was made of, without opening it.
    ///
    /// # Errors
    /// No store there, one of a newer format; or the memory fails.
    pub fn options_of(pmem: &P) -> Result<HashOptions, Error> {
        let Superblock { block_bytes, segment_bytes, uuid, .. } = superblock_of(pmem)?;
        Ok(HashOptions { uuid, block_bytes, segment_bytes })
    }

    /// A copy of the superblock that is damaged: the other one counts, and an opening for writing
    /// mends it. One that a growth was cut off before is none.
    ///
    /// # Errors
    /// As [`Hash::options_of`].
    pub fn damaged_copy(pmem: &P) -> Result<Option<Corruption>, Error> {
        superblock_of(pmem)?;
        for at in [0, PAGE] {
            let mut bytes = [0; SUPERBLOCK_LEN];
            pmem.load(at, &mut bytes)?;
            if Superblock::decode(&bytes).is_err() {
                let (place, expected) = (Place { shard: 0, offset_bytes: at }, "one that checks".to_owned());
                let found = "something else (its copy counts; opening the store for writing repairs it)".to_owned();
                return Ok(Some(Corruption { place, what: "a copy of the superblock", expected, found }));
            }
        }
        Ok(None)
    }

    /// Opens the store in a region: walks all segments with `threads` threads, checks every record
    /// and builds the table. O(bytes in use).
    ///
    /// # Errors
    /// No store there, one of a newer format, a region that is shorter than the store; or the
    /// memory fails. Damaged records are no error: [`Hash::damage`] tells.
    pub fn open(pmem: P, threads: usize) -> Result<Hash<P>, Error> {
        Hash::open_watched(pmem, threads, &|_| {})
    }

    /// As [`Hash::open`]; `watch` is told by several threads how far it is, after each span of
    /// segments.
    ///
    /// # Errors
    /// As [`Hash::open`].
    pub fn open_watched(pmem: P, threads: usize, watch: &(dyn Fn(Progress) + Sync)) -> Result<Hash<P>, Error> {
        let superblock = superblock_of(&pmem)?;
        if superblock.region_bytes() > pmem.len_bytes() {
            return Err(Error::WrongVolume(format!(
                "the region has {} bytes, and the store in it {}: its file was cut off; restore it from a backup, or save what is left with `stratakv dump --skip-damaged` and load that into a new store",
                pmem.len_bytes(),
                superblock.region_bytes()
            )));
        }
        let hash = Hash::over(Region::new(pmem, superblock));
        hash.mend_parts()?;
        let spans = hash.spans()?;
        let batches = hash.batches()?;
        let (next, done) = (AtomicU32::new(0), AtomicU64::new(0));
        let segment_bytes = hash.region.superblock.segment_bytes;
        let bytes_of = |segments: u32| u64::from(segments) * segment_bytes;
        let total_bytes = spans.iter().map(|(_, segments)| bytes_of(*segments)).sum();
        let walk = || -> Result<Walked, Error> {
            let mut walked = Walked::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                let Some((first, segments)) = spans.get(number) else { break };
                // While this one is walked, the one that comes after those of the other threads is
                // read.
                for (first, segments) in [number, number + threads].iter().filter_map(|number| spans.get(*number)) {
                    hash.region.pmem.will_read(hash.region.superblock.segment_at(*first), bytes_of(*segments));
                }
                hash.walk(*first, *segments, &batches, &mut walked)?;
                let before_bytes = done.fetch_add(bytes_of(*segments), Ordering::Relaxed);
                watch(Progress { done_bytes: before_bytes + bytes_of(*segments), total_bytes });
            }
            // The losers that this thread freed.
            hash.region.pmem.fence()?;
            Ok(walked)
        };
        let walked: Vec<Result<Walked, Error>> = thread::scope(|scope| {
            let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(walk)).collect();
            let mine = walk();
            let joined = others
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(Error::Unknown("a thread that read the region panicked"))));
            joined.chain([mine]).collect()
        });
        let mut all = Walked::default();
        for walked in walked {
            let walked = walked?;
            all.highest = all.highest.max(walked.highest);
            all.members.extend(walked.members);
        }
        hash.finish_batches(&batches, &all.members)?;
        hash.resume_versions(all.highest)?;
        Ok(hash)
    }

    /// Notes that of the region nothing is there from `from_bytes` on: its file was cut off, and
    /// zeros stand for the rest.
    pub fn note_cut_off(&self, from_bytes: u64) {
        let expected = format!("{} bytes", self.region.superblock.region_bytes());
        self.note(self.region.damage(from_bytes, "region", &expected, "the end of its file: it was cut off".into()));
    }

    /// The batches that were committed and not carried out to their end.
    fn batches(&self) -> Result<Vec<u64>, Error> {
        let mut batches = Vec::new();
        for number in 0..COMMITS {
            match self.region.commit(number)? {
                Some(0) => {}
                Some(batch) => batches.push(batch),
                None => {
                    let damage =
                        self.region.damage(commit_at(number), "commit word", "a word that checks", "another".into());
                    self.note(damage);
                    self.region.set_commit(number, 0)?;
                }
            }
        }
        Ok(batches)
    }

    /// Carries committed batches out, in the order of stores in which a write does it.
    fn finish_batches(&self, batches: &[u64], members: &[(u64, First)]) -> Result<(), Error> {
        let mut removals = Vec::new();
        for (offset, first) in members {
            if first.kind == Kind::Member {
                self.take_in(*offset)?;
                // A later record of the key may be there, written by somebody whom the batch did
                // not keep away.
                if self.region.first(*offset)?.is_some_and(|first| first.kind == Kind::Member) {
                    self.region.set_first(*offset, first.with(Kind::Record))?;
                }
            } else {
                self.remove_for(*offset)?;
                removals.push((*offset, *first));
            }
        }
        if batches.is_empty() {
            return Ok(());
        }
        self.region.pmem.fence()?;
        for number in 0..COMMITS {
            if self.region.commit(number)? != Some(0) {
                self.region.set_commit(number, 0)?;
            }
        }
        for (offset, first) in removals {
            self.region.set_first(offset, first.with(Kind::Free))?;
            self.alloc.free(Extent { place: self.region.place(offset), blocks: first.blocks });
        }
        Ok(self.region.pmem.fence()?)
    }

    /// Frees what a committed batch deletes.
    fn remove_for(&self, offset: u64) -> Result<(), Error> {
        let Some(removal) = self.region.header(offset)? else { return Ok(()) };
        let prefix = self.region.prefix(offset, &removal)?;
        let slot = self.slot(&prefix)?;
        let old = self.current(&slot, &prefix)?.filter(|current| current.header.version < removal.version);
        let Some(Current { found, header }) = old else { return Ok(()) };
        self.region.set_first(self.region.offset(found.place), header.first().with(Kind::Free))?;
        slot.remove(found);
        self.leave_order(&prefix);
        self.note_expiry(&prefix, header.expiry, None);
        self.alloc.free(Extent { place: found.place, blocks: header.blocks });
        Ok(())
    }

    /// Goes on where no version was handed out.
    fn resume_versions(&self, highest: u64) -> Result<(), Error> {
        let word = self.region.pmem.load_u64(LEASE_AT)?;
        let lease = root_value(self.region.uuid(), LEASE_AT, word).filter(|lease| *lease < VERSION_MAX / LEASE);
        let lease = lease.unwrap_or_else(|| {
            // The damage is counted; the error is for callers, and there is none.
            let _ = self.note(self.region.damage(
                LEASE_AT,
                "lease of versions",
                "a word that checks",
                format!("{word:#x}"),
            ));
            // At least above everything that is there, with room for what was deleted.
            highest / LEASE + 2
        });
        Ok(self.versions.resume(&self.region, lease.max(highest / LEASE + 1))?)
    }

    /// The spans, taken out of the pool: first segment, count.
    fn spans(&self) -> Result<Vec<(u32, u32)>, Error> {
        let (mut spans, mut orphans) = (Vec::new(), false);
        for part in &self.region.parts {
            orphans |= self.spans_of(&part.segments, &mut spans)?;
        }
        if orphans {
            self.region.pmem.fence()?;
        }
        Ok(spans)
    }

    /// The spans of a part; whether there were segments without the first one of theirs.
    fn spans_of(&self, all: &Range<u32>, spans: &mut Vec<(u32, u32)>) -> Result<bool, Error> {
        let (mut number, mut orphans) = (all.start, false);
        while number < all.end {
            let state = match self.region.segment(number)? {
                Some(SegmentState::Large(count)) if count > all.end - number => None,
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
                    let (segments, begins) = self.damaged_segment(number, all.end)?;
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
        Ok(orphans)
    }

    /// The segments that one with a damaged word leads, and whether it begins with an extent: else
    /// they are left alone.
    fn damaged_segment(&self, number: u32, end: u32) -> Result<(u32, bool), Error> {
        let offset = self.region.superblock.segment_at(number);
        self.note(self.region.damage(offset, "segment", "a word that checks", "another".into()));
        let mut segments = 1;
        while number + segments < end && self.region.segment(number + segments)? == Some(SegmentState::Continued) {
            segments += 1;
        }
        Ok((segments, self.region.first(offset)?.is_some()))
    }

    /// Walks a span.
    fn walk(&self, first: u32, segments: u32, batches: &[u64], walked: &mut Walked) -> Result<(), Error> {
        let superblock = &self.region.superblock;
        let block_bytes = u64::from(superblock.block_bytes);
        let mut offset = superblock.segment_at(first);
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
            match found.kind {
                Kind::Free => self.alloc.free(Extent { place: self.region.place(offset), blocks: found.blocks }),
                Kind::Record => walked.highest = self.take_in(offset)?.max(walked.highest),
                Kind::Member | Kind::Removal => {
                    if let Some(version) = self.meet_member(offset, found, batches)? {
                        walked.highest = walked.highest.max(version);
                        walked.members.push((offset, found));
                    }
                }
            }
            offset += u64::from(found.blocks) * block_bytes;
        }
        Ok(())
    }

    /// A member of a batch: its version if the batch was committed; else it is free.
    fn meet_member(&self, offset: u64, first: First, batches: &[u64]) -> Result<Option<u64>, Error> {
        let Some((header, _)) = self.checked_at(offset)? else { return Ok(None) };
        if batches.contains(&commit_value(header.version)) {
            return Ok(Some(header.version));
        }
        self.region.set_first(offset, first.with(Kind::Free))?;
        self.alloc.free(Extent { place: self.region.place(offset), blocks: first.blocks });
        Ok(None)
    }

    /// What the damage found so far has cost: keys of records whose values are damaged, and how
    /// many more records there may have been at most.
    ///
    /// # Errors
    /// The memory fails.
    pub fn lost(&self) -> Result<(Vec<Key>, u64), Error> {
        let damage = self.damage();
        let mut unknown = self.report().damaged - damage.len() as u64;
        let mut lost = Vec::new();
        for stratakv_base::Corruption { place, what, .. } in damage {
            let offset = place.offset_bytes;
            match what {
                "record" => match self.key_at(offset)? {
                    Some(key) => lost.push(key),
                    None => unknown += 1,
                },
                _ => unknown += self.blocks_without_extent(offset)?,
            }
        }
        Ok((lost, unknown))
    }

    /// The key of a record whose header and key check.
    fn key_at(&self, offset: u64) -> Result<Option<Key>, Error> {
        Ok(self.whole_header(offset)?.and_then(|(header, prefix)| Key::from_encoded(header.key_in(&prefix))))
    }

    /// Blocks from here on until an extent begins: each may have been a record.
    fn blocks_without_extent(&self, offset: u64) -> Result<u64, Error> {
        let superblock = &self.region.superblock;
        let first = superblock.first();
        let end = first + (offset.saturating_sub(first) / superblock.segment_bytes + 1) * superblock.segment_bytes;
        let block_bytes = u64::from(superblock.block_bytes);
        let mut at = offset;
        while at < end && self.region.first(at)?.is_none() {
            at += block_bytes;
        }
        Ok((at - offset) / block_bytes)
    }

    /// The header of the record at `offset` and its flags and key, if they check; else the damage
    /// is noted.
    fn checked_at(&self, offset: u64) -> Result<Option<(Header, Prefix)>, Error> {
        let Some(header) = self.region.header(offset)? else {
            self.note(self.region.damage(offset, "record", "a length that fits", "another".into()));
            return Ok(None);
        };
        let prefix = self.region.prefix(offset, &header)?;
        let key = header.key_in(&prefix);
        if header.crc(self.region.uuid(), offset, &prefix) != header.header_crc
            || header.version >= VERSION_MAX
            || Key::from_encoded(key).is_none()
        {
            self.note(self.region.damage(offset, "record", "a header and a key that check", "others".into()));
            return Ok(None);
        }
        Ok(Some((header, prefix)))
    }

    /// Takes a record into the table, or frees the older one of a key; its version.
    fn take_in(&self, offset: u64) -> Result<u64, Error> {
        let Some((header, prefix)) = self.checked_at(offset)? else { return Ok(0) };
        let key = header.key_in(&prefix);
        self.check_value(offset, &header)?;
        let slot = self.slot(key)?;
        let place = self.region.place(offset);
        let loser = match self.current(&slot, key)? {
            Some(Current { found, header: other }) if other.version < header.version => {
                slot.replace(found, place);
                self.order(key, Some(&other), header.expiry);
                self.note_expiry(key, other.expiry, Some((header.expiry, place)));
                Some((found.place, other))
            }
            Some(_) => Some((place, header)),
            None => {
                slot.replace(slot.reserve().ok_or(TABLE_FULL)?, place);
                self.order(key, None, header.expiry);
                self.note_expiry(key, 0, Some((header.expiry, place)));
                None
            }
        };
        drop(slot);
        self.orders.apply_waiting(key);
        if let Some((place, loser)) = loser {
            self.region.set_first(self.region.offset(place), loser.first().with(Kind::Free))?;
            self.alloc.free(Extent { place, blocks: loser.blocks });
        }
        self.table.grow();
        Ok(header.version)
    }

    /// Notes a value that does not check. The record stays: a get of its key says what is wrong
    /// with it.
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
