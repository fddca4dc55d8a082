//! [`Hash`]: what it is made of, and gets.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use stratakv_base::{Corruption, Expiry, Key, Wall};
use stratakv_engine::{Error, Record, Unmet, Value};
use stratakv_pmem::Pmem;

use crate::alloc::Allocator;
use crate::batch::Commits;
use crate::epoch::Epochs;
use crate::expiry::Expiries;
use crate::health::Health;
use crate::layout::{Header, value_crc};
use crate::order::Orders;
use crate::region::{Prefix, Region};
use crate::scrub::Scrub;
use crate::snapshot::{SnapshotReport, Snapshots};
use crate::table::{FoundEntry, HashTable, Slot};
use crate::versions::Versions;
use crate::walk::Walk;

/// What a store in a region is made of; fixed at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashOptions {
    /// Names the store; ties its checksums to it.
    pub uuid: [u8; 16],
    /// Length of a block, 32 or 64 bytes: a record takes whole ones.
    pub block_bytes: u32,
    /// Length of a segment: a power of two from 4 KiB to 1 MiB.
    pub segment_bytes: u64,
}

impl Default for HashOptions {
    fn default() -> Self {
        HashOptions { uuid: [0; 16], block_bytes: 64, segment_bytes: 1 << 20 }
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is durable.
    Done {
        /// Version of the write.
        version: u64,
        /// Whether the key existed before.
        existed: bool,
    },
    /// Its condition did not hold; nothing was changed.
    Unmet(Unmet),
}

/// Figures of a node of the machine that a region lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// The machine's number of it.
    pub number: u32,
    /// Bytes of segments on it.
    pub bytes: u64,
    /// Of them, of records, and of what was freed but may still be looked at.
    pub used_bytes: u64,
    /// Extents that threads on this node have got on it since the store was opened.
    pub local: u64,
    /// And on other nodes, because this one had no more room.
    pub remote: u64,
}

/// Bytes of DRAM of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DramReport {
    /// Of the hash table.
    pub table_bytes: u64,
    /// Of the keys of collections in order.
    pub order_bytes: u64,
    /// Of what is known to be free.
    pub space_bytes: u64,
    /// Of what says which records expire when.
    pub expiry_bytes: u64,
}

/// Figures of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records.
    pub records: u64,
    /// Those of them whose collection keeps them in order.
    pub ordered: u64,
    /// Bytes of the region in segments that are in use.
    pub used_bytes: u64,
    /// Of them, free.
    pub free_bytes: u64,
    /// Of them, freed but not yet to be written again, because a reader may still look at it.
    pub retired_bytes: u64,
    /// Bytes of segments that are not in use.
    pub unused_bytes: u64,
    /// Bytes that nothing is written to until the store is opened again, because they are damaged
    /// or the memory failed there. Records there are read and deleted as others are.
    pub lost_bytes: u64,
    /// Places at which damage was found since the store was opened.
    pub damaged: u64,
    /// Expired records whose space was given back since then.
    pub reclaimed: u64,
    /// What it takes of DRAM.
    pub dram: DramReport,
    /// Bytes of records that were checked in the background since then, and how often all of them
    /// were.
    pub scrubbed_bytes: u64,
    /// See there.
    pub scrub_rounds: u64,
    /// Snapshots, and what they keep.
    pub snapshots: SnapshotReport,
    /// By node, where the region lies on several.
    pub nodes: Vec<NodeReport>,
}

/// A store in a region of persistent memory. Shared by any number of threads.
#[derive(Debug)]
pub struct Hash<P> {
    pub(crate) region: Region<P>,
    pub(crate) table: HashTable,
    /// Of the table's hash, drawn at opening: nobody can choose keys that meet in one bucket.
    pub(crate) hash_seed: u64,
    pub(crate) epochs: Epochs,
    pub(crate) alloc: Allocator,
    pub(crate) orders: Orders,
    pub(crate) commits: Commits,
    pub(crate) snapshots: Snapshots,
    pub(crate) backup: Mutex<Option<Walk>>,
    pub(crate) expiries: Expiries,
    pub(crate) scrubbed: Mutex<Scrub>,
    pub(crate) calls: Calls,
    pub(crate) health: Health,
    pub(crate) versions: Versions,
    pub(crate) damage: Mutex<Damage>,
}

/// Operations, and whether there are still any.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) are_over: AtomicBool,
    /// Those under way that may write.
    pub(crate) under_way: Epochs,
}

/// Damage that was found.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// Where: however often it is met, it counts once.
    places: BTreeSet<u64>,
    /// The first of it, in words.
    told: Vec<Corruption>,
}

impl Report {
    /// Bytes of DRAM of all that is known of records: what grows with them.
    pub fn dram_bytes(&self) -> u64 {
        let DramReport { table_bytes, order_bytes, space_bytes, expiry_bytes } = self.dram;
        table_bytes + order_bytes + expiry_bytes + space_bytes + self.snapshots.index_bytes
    }
}

/// The record of a key, found in its slot.
pub(crate) struct Current<'a> {
    pub(crate) found: FoundEntry<'a>,
    pub(crate) header: Header,
}

/// Most findings that are kept in words.
const DAMAGE_MAX: usize = 64;

impl<P: Pmem> Hash<P> {
    pub(crate) fn hash_of(&self, key: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(key, self.hash_seed)
    }

    /// The record of a key, if there is one that has not expired at `wall`. Takes no lock: two
    /// dependent cache misses, and a copy of the value.
    ///
    /// # Errors
    /// The record is damaged, or the memory under it cannot be read.
    pub fn get(&self, key: &Key, wall: Wall) -> Result<Option<Record>, Error> {
        let inside = self.epochs.enter();
        let key = key.encoded();
        let found = self.get_inside(self.hash_of(key), key, wall);
        drop(inside);
        found
    }

    /// The same by somebody inside an epoch, who has the key's hash.
    pub(crate) fn get_inside(&self, hash: u64, key: &[u8], wall: Wall) -> Result<Option<Record>, Error> {
        let found = self.table.find(hash, |place| self.read(place, key).transpose()).transpose()?;
        Ok(found.filter(|record| !record.expiry.is_past(wall)))
    }

    /// What [`Hash::get`] finds, without the value.
    ///
    /// # Errors
    /// As there, but a damaged value is not seen.
    pub fn get_meta(&self, key: &Key, wall: Wall) -> Result<Option<Record>, Error> {
        let inside = self.epochs.enter();
        let key = key.encoded();
        let found = self.table.find(self.hash_of(key), |place| self.read_meta(place, key).transpose()).transpose()?;
        drop(inside);
        Ok(found.filter(|record| !record.expiry.is_past(wall)))
    }

    /// Before gets of keys that lie anywhere: their cache misses, of buckets and then of records,
    /// overlap. Returns the hashes of these keys.
    pub(crate) fn prefetch<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> SmallVec<[u64; 32]> {
        let hashes: SmallVec<[u64; 32]> = keys.map(|key| self.hash_of(key)).collect();
        hashes.iter().for_each(|hash| self.table.prefetch(*hash));
        for place in hashes.iter().flat_map(|hash| self.table.likely_places(*hash)) {
            self.region.prefetch(place);
        }
        hashes
    }

    pub(crate) fn read_meta(&self, place: u64, key: &[u8]) -> Result<Option<Record>, Error> {
        let Some((header, flags)) = self.checked_header(place, key)? else { return Ok(None) };
        let (version, expiry) = (header.version, Expiry(header.expiry));
        let value_bytes = u64::from(header.value_bytes);
        Ok(Some(Record { value: Value::Inline(Bytes::new()), value_bytes, flags, version, expiry }))
    }

    /// The header at `offset`, if its key is as long as this one.
    fn header_like(&self, offset: u64, key: &[u8]) -> Result<Option<Header>, Error> {
        match self.region.header(offset)? {
            Some(header) => Ok(Some(header).filter(|header| header.key_bytes as usize == key.len())),
            None => Err(self.note(self.region.damage(offset, "record", "a header", "something else".into()))),
        }
    }

    /// The record at `place`, if it is of this key.
    pub(crate) fn read(&self, place: u64, key: &[u8]) -> Result<Option<Record>, Error> {
        let offset = self.region.offset(place);
        let Some(header) = self.header_like(offset, key)? else { return Ok(None) };
        let prefix_bytes = header.prefix_bytes() as usize;
        // Not `vec![0; ..]`: glibc's `calloc` takes no block from the thread's own cache.
        let record_bytes = prefix_bytes + header.value_bytes as usize;
        #[expect(clippy::slow_vector_initialization, reason = "`vec![0; ..]` calls `calloc`")]
        let mut bytes = {
            let mut bytes = Vec::with_capacity(record_bytes);
            bytes.resize(record_bytes, 0);
            bytes
        };
        self.region.body(offset, 0, &mut bytes)?;
        let (prefix, value) = bytes.split_at(prefix_bytes);
        let (flags, found) = prefix.split_at(prefix_bytes - key.len());
        let checks = header.crc(self.region.uuid(), offset, prefix) == header.header_crc;
        if found != key && checks {
            return Ok(None);
        }
        if !checks || value_crc(self.region.uuid(), offset, value) != header.value_crc {
            let what = if checks { "a value that checks" } else { "a header and a key that check" };
            return Err(self.note(self.region.damage(offset, "record", what, "bytes that do not".into())));
        }
        let flags = flags.try_into().map_or(0, u32::from_le_bytes);
        let value_bytes = value.len() as u64;
        let mut value = Bytes::from(bytes);
        value.advance(prefix_bytes);
        let (version, expiry) = (header.version, Expiry(header.expiry));
        Ok(Some(Record { value: Value::Inline(value), value_bytes, flags, version, expiry }))
    }

    /// Whether the record at `place` is of this key; its header.
    pub(crate) fn header_if(&self, place: u64, key: &[u8]) -> Result<Option<Header>, Error> {
        Ok(self.checked_header(place, key)?.map(|(header, _)| header))
    }

    /// The header of the record at `place` and its flags, if it is of this key.
    fn checked_header(&self, place: u64, key: &[u8]) -> Result<Option<(Header, u32)>, Error> {
        let offset = self.region.offset(place);
        let Some(header) = self.header_like(offset, key)? else { return Ok(None) };
        let prefix = self.region.prefix(offset, &header)?;
        if header.crc(self.region.uuid(), offset, &prefix) != header.header_crc {
            let found = "bytes that do not".into();
            return Err(self.note(self.region.damage(offset, "record", "a header and a key that check", found)));
        }
        Ok((header.key_in(&prefix) == key).then(|| (header, header.flags_in(&prefix))))
    }

    /// The header of the record at `offset` and its flags and key, if they check. Nothing is noted.
    pub(crate) fn whole_header(&self, offset: u64) -> Result<Option<(Header, Prefix)>, Error> {
        let Some(header) = self.region.header(offset)? else { return Ok(None) };
        let prefix = self.region.prefix(offset, &header)?;
        let checks = header.crc(self.region.uuid(), offset, &prefix) == header.header_crc;
        Ok(checks.then_some((header, prefix)))
    }

    pub(crate) fn slot(&self, key: &[u8]) -> Result<Slot<'_>, Error> {
        self.table.lock(self.hash_of(key)).ok_or(Error::Unknown("the hash table is not whole"))
    }

    pub(crate) fn current<'a>(&self, slot: &Slot<'a>, key: &[u8]) -> Result<Option<Current<'a>>, Error> {
        let found = slot.find(|place| self.header_if(place, key).transpose());
        found.map(|(found, header)| Ok(Current { found, header: header? })).transpose()
    }

    pub(crate) fn scrub_state(&self) -> MutexGuard<'_, Scrub> {
        self.scrubbed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts damage, and keeps the first findings.
    pub(crate) fn note(&self, corruption: Corruption) -> Error {
        let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        if damage.places.insert(corruption.place.offset_bytes) && damage.told.len() < DAMAGE_MAX {
            damage.told.push(corruption.clone());
        }
        Error::Corrupt(corruption)
    }

    /// The region, to look at. Whoever stores to it damages the store.
    pub fn pmem(&self) -> &P {
        &self.region.pmem
    }

    /// Ends the store; its region.
    pub fn into_pmem(self) -> P {
        self.region.pmem
    }

    /// Damage that was found since the store was opened: the first 64 places.
    pub fn damage(&self) -> Vec<Corruption> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).told.clone()
    }

    /// Figures. O(arenas · lengths of free extents).
    pub fn report(&self) -> Report {
        let (scrubbed_bytes, scrub_rounds) = {
            let scrub = self.scrub_state();
            (scrub.bytes, scrub.rounds)
        };
        let (usage, block) = (self.alloc.usage(), u64::from(self.region.superblock.block_bytes));
        Report {
            records: self.table.len(),
            ordered: self.orders.len(),
            used_bytes: usage.in_spans * block,
            free_bytes: usage.free * block,
            retired_bytes: usage.retired * block,
            unused_bytes: usage.unused * block,
            lost_bytes: usage.lost * block,
            damaged: self.damage.lock().unwrap_or_else(PoisonError::into_inner).places.len() as u64,
            reclaimed: self.expiries.reclaimed(),
            dram: DramReport {
                table_bytes: self.table.footprint_bytes(),
                order_bytes: self.orders.footprint_bytes(),
                space_bytes: usage.footprint_bytes,
                expiry_bytes: self.expiries.footprint_bytes(),
            },
            scrubbed_bytes,
            scrub_rounds,
            snapshots: self.snapshot_report(),
            nodes: self.report_of_nodes(),
        }
    }

    fn report_of_nodes(&self) -> Vec<NodeReport> {
        let block = u64::from(self.region.superblock.block_bytes);
        let reports = self.alloc.usage_of_nodes().into_iter().enumerate().map(|(node, usage)| NodeReport {
            number: self.region.pmem.node_number(node),
            bytes: usage.all * block,
            used_bytes: usage.taken * block,
            local: usage.local,
            remote: usage.remote,
        });
        reports.collect()
    }
}
