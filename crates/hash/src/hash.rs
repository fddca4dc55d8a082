//! [`Hash`]: get, put and delete.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{Corruption, Expiry, Key, Wall, canary};
use stratakv_engine::{Error, Expect, Record, Unmet, Value};
use stratakv_pmem::{Pmem, PmemError};

use crate::alloc::{Allocator, Extent};
use crate::epoch::{Epochs, stripe};
use crate::layout::{First, HEADER_BYTES, Header, LEASE, LEASE_AT, root_word, value_crc};
use crate::region::Region;
use crate::table::{Found, Slot, Table};

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

/// Figures of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records.
    pub records: u64,
    /// Bytes of DRAM of the hash table.
    pub table_bytes: u64,
    /// Bytes of the region in segments that are in use.
    pub used_bytes: u64,
    /// Of them, free.
    pub free_bytes: u64,
    /// Of them, freed but not yet to be written again, because a reader may still look at it.
    pub retired_bytes: u64,
    /// Bytes of segments that are not in use.
    pub unused_bytes: u64,
    /// Damage that was found since the store was opened, counted.
    pub damaged: u64,
}

/// A store in a region of persistent memory. Shared by any number of threads.
#[derive(Debug)]
pub struct Hash<P> {
    pub(crate) region: Region<P>,
    pub(crate) table: Table,
    /// Of the table's hash, drawn at opening: nobody can choose keys that meet in one bucket.
    pub(crate) hash_seed: u64,
    pub(crate) epochs: Epochs,
    pub(crate) alloc: Allocator,
    /// The last version handed out.
    pub(crate) versions: AtomicU64,
    /// No version at or above is handed out.
    pub(crate) leased: AtomicU64,
    pub(crate) leasing: Mutex<()>,
    pub(crate) damage: Mutex<Vec<Corruption>>,
    pub(crate) damaged: AtomicU64,
}

/// The record of a key, found in its slot.
pub(crate) struct Current<'a> {
    pub(crate) found: Found<'a>,
    pub(crate) header: Header,
}

/// Most findings that are kept in words.
const DAMAGE_MAX: usize = 64;

impl<P: Pmem> Hash<P> {
    pub(crate) fn hash_of(&self, key: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(key, self.hash_seed)
    }

    /// The record of a key, if there is one that has not expired at `wall`. Takes no lock: two dependent cache misses, and a copy of the value.
    ///
    /// # Errors
    /// The record is damaged, or the memory under it cannot be read.
    pub fn get(&self, key: &Key, wall: Wall) -> Result<Option<Record>, Error> {
        let inside = self.epochs.enter();
        let key = key.encoded();
        let found = self.table.find(self.hash_of(key), |place| self.read(place, key).transpose()).transpose()?;
        drop(inside);
        Ok(found.filter(|record| !record.expiry.is_past(wall)))
    }

    /// The header at `offset`, if its key is as long as this one.
    fn header_like(&self, offset: u64, key: &[u8]) -> Result<Option<Header>, Error> {
        match self.region.header(offset)? {
            Some(header) => Ok(Some(header).filter(|header| header.key_bytes as usize == key.len())),
            None => Err(self.note(self.region.damage(offset, "record", "a header", "something else".into()))),
        }
    }

    /// The record at `place`, if it is of this key.
    fn read(&self, place: u64, key: &[u8]) -> Result<Option<Record>, Error> {
        let offset = self.region.offset(place);
        let Some(header) = self.header_like(offset, key)? else { return Ok(None) };
        let prefix_bytes = header.prefix_bytes() as usize;
        let mut bytes = vec![0; prefix_bytes + header.value_bytes as usize];
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
    fn header_if(&self, place: u64, key: &[u8]) -> Result<Option<Header>, Error> {
        let offset = self.region.offset(place);
        let Some(header) = self.header_like(offset, key)? else { return Ok(None) };
        let prefix = self.region.prefix(offset, &header)?;
        if header.crc(self.region.uuid(), offset, &prefix) != header.header_crc {
            let found = "bytes that do not".into();
            return Err(self.note(self.region.damage(offset, "record", "a header and a key that check", found)));
        }
        Ok(prefix.ends_with(key).then_some(header))
    }

    /// Makes `value` the value of a key, durably. What the key had before is never touched until then.
    ///
    /// # Errors
    /// Value too long, no room ([`Error::Full`]: reads and deletes go on), damage where the key's record lies, or the memory fails.
    pub fn put(
        &self,
        key: &Key,
        value: &[u8],
        (flags, expiry): (u32, Expiry),
        expect: Expect,
        wall: Wall,
    ) -> Result<Written, Error> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge { len_bytes: value.len() as u64, max_bytes: VALUE_BYTES_MAX as u64 });
        }
        let (key, stripe) = (key.encoded(), stripe());
        let mut prefix: SmallVec<[u8; 64]> = SmallVec::new();
        if flags != 0 {
            prefix.extend_from_slice(&flags.to_le_bytes());
        }
        prefix.extend_from_slice(key);
        let bytes = HEADER_BYTES + (prefix.len() + value.len()) as u64;
        let blocks = self.region.superblock.blocks_of(bytes) as u32;
        let Some(extent) = self.alloc.allocate(&self.region, &self.epochs, stripe, blocks)? else {
            return Err(Error::Full("its region is used up"));
        };
        let offset = self.region.offset(extent.place);
        let header = Header {
            blocks,
            key_bytes: key.len() as u32,
            value_bytes: value.len() as u32,
            version: 0,
            expiry: expiry.0,
            has_flags: flags != 0,
            header_crc: 0,
            value_crc: value_crc(self.region.uuid(), offset, value),
        };
        let mut begun = false;
        let laid = self.lay_body(extent, blocks, &prefix, value).map_err(Error::from);
        let written = laid.and_then(|()| self.publish(extent, header, &prefix, key, (expect, wall), &mut begun));
        match &written {
            Ok(Written::Done { .. }) => {
                let rest = Extent { place: extent.place + u64::from(blocks), blocks: extent.blocks - blocks };
                if rest.blocks > 0 {
                    self.alloc.free_rest(stripe, rest);
                }
                self.table.grow();
            }
            // On the medium it is as free as before.
            _ if !begun => self.alloc.free(extent),
            // Whether the header is there is not known.
            _ => {}
        }
        self.alloc.let_go();
        written
    }

    /// Lays what others cannot see yet: flags, key and value, and the free extent behind the record. Durable at its end.
    fn lay_body(&self, extent: Extent, blocks: u32, prefix: &[u8], value: &[u8]) -> Result<(), PmemError> {
        let (pmem, offset) = (&self.region.pmem, self.region.offset(extent.place));
        let at = offset + HEADER_BYTES;
        pmem.store(at, prefix)?;
        pmem.store(at + prefix.len() as u64, value)?;
        if !canary!("hash_body_not_flushed") {
            pmem.flush(at, (prefix.len() + value.len()) as u64)?;
        }
        if extent.blocks > blocks && !canary!("hash_rest_forgotten") {
            let rest = self.region.offset(extent.place + u64::from(blocks));
            self.region.set_first(rest, First::free(extent.blocks - blocks))?;
        }
        if canary!("hash_body_not_fenced") { Ok(()) } else { pmem.fence() }
    }

    /// Makes a laid record the one of its key; `begun` when its header may be there.
    fn publish(
        &self,
        extent: Extent,
        mut header: Header,
        prefix: &[u8],
        key: &[u8],
        (expect, wall): (Expect, Wall),
        begun: &mut bool,
    ) -> Result<Written, Error> {
        let slot = self.slot(key)?;
        let current = self.current(&slot, key)?;
        let visible = current.as_ref().filter(|current| !Expiry(current.header.expiry).is_past(wall));
        let existed = visible.is_some();
        if let Some(unmet) = expect.unmet(existed, visible.map(|current| current.header.version)) {
            return Ok(Written::Unmet(unmet));
        }
        header.version = self.next_version()?;
        let offset = self.region.offset(extent.place);
        header.header_crc = header.crc(self.region.uuid(), offset, prefix);
        if canary!("hash_entry_before_record") {
            self.point(&slot, current.as_ref().map(|current| current.found), extent.place)?;
        }
        *begun = true;
        self.region.set_header(offset, &header)?;
        if !canary!("hash_header_not_fenced") {
            self.region.pmem.fence()?;
        }
        if let Some(Current { found, header: old }) = current {
            slot.replace(found, extent.place);
            self.free_record(found.place, &old)?;
            drop(slot);
            self.alloc.retire(&self.epochs, stripe(), Extent { place: found.place, blocks: old.blocks });
        } else {
            self.point(&slot, None, extent.place)?;
        }
        Ok(Written::Done { version: header.version, existed })
    }

    fn point(&self, slot: &Slot<'_>, found: Option<Found<'_>>, place: u64) -> Result<(), Error> {
        match found {
            Some(found) => slot.replace(found, place),
            None if slot.insert(place) => {}
            None => {
                return Err(Error::Unknown(
                    "the hash table has reached its end; the write is there after the store was opened again",
                ));
            }
        }
        Ok(())
    }

    /// Makes a record a free extent, durably.
    fn free_record(&self, place: u64, header: &Header) -> Result<(), PmemError> {
        self.region.set_first(self.region.offset(place), header.first().freed())?;
        if canary!("hash_delete_not_fenced") { Ok(()) } else { self.region.pmem.fence() }
    }

    pub(crate) fn slot(&self, key: &[u8]) -> Result<Slot<'_>, Error> {
        self.table.lock(self.hash_of(key)).ok_or(Error::Unknown("the hash table is not whole"))
    }

    pub(crate) fn current<'a>(&self, slot: &Slot<'a>, key: &[u8]) -> Result<Option<Current<'a>>, Error> {
        let found = slot.find(|place| self.header_if(place, key).transpose());
        found.map(|(found, header)| Ok(Current { found, header: header? })).transpose()
    }

    /// Deletes a key, durably.
    ///
    /// # Errors
    /// As [`Hash::put`], but for room: a delete needs none.
    pub fn delete(&self, key: &Key, expect: Expect, wall: Wall) -> Result<Written, Error> {
        let key = key.encoded();
        let slot = self.slot(key)?;
        let current = self.current(&slot, key)?;
        let visible = current.as_ref().filter(|current| !Expiry(current.header.expiry).is_past(wall));
        let existed = visible.is_some();
        if let Some(unmet) = expect.unmet(existed, visible.map(|current| current.header.version)) {
            return Ok(Written::Unmet(unmet));
        }
        let version = self.next_version()?;
        if let Some(Current { found, header }) = current {
            self.free_record(found.place, &header)?;
            slot.remove(found);
            drop(slot);
            self.alloc.retire(&self.epochs, stripe(), Extent { place: found.place, blocks: header.blocks });
        }
        Ok(Written::Done { version, existed })
    }

    /// A version above all before it. Durably none at or above the lease is ever handed out.
    fn next_version(&self) -> Result<u64, PmemError> {
        let version = self.versions.fetch_add(1, Ordering::AcqRel) + 1;
        while version >= self.leased.load(Ordering::Acquire) {
            let _leasing = self.leasing.lock().unwrap_or_else(PoisonError::into_inner);
            let leased = self.leased.load(Ordering::Acquire);
            if version >= leased {
                self.lease(leased / LEASE + 1)?;
            }
        }
        Ok(version)
    }

    /// Leases the versions below `number` leases.
    pub(crate) fn lease(&self, number: u64) -> Result<(), PmemError> {
        let pmem = &self.region.pmem;
        pmem.store_u64(LEASE_AT, root_word(self.region.uuid(), LEASE_AT, number))?;
        pmem.persist(LEASE_AT, 8)?;
        self.leased.store(number * LEASE, Ordering::Release);
        Ok(())
    }

    /// Counts damage, and keeps the first findings.
    pub(crate) fn note(&self, corruption: Corruption) -> Error {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        let mut all = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < DAMAGE_MAX && !all.contains(&corruption) {
            all.push(corruption.clone());
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
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Figures. O(arenas + runs of segments that are not in use).
    pub fn report(&self) -> Report {
        let (usage, block) = (self.alloc.usage(), u64::from(self.region.superblock.block_bytes));
        Report {
            records: self.table.len(),
            table_bytes: self.table.footprint_bytes(),
            used_bytes: usage.in_spans * block,
            free_bytes: usage.free * block,
            retired_bytes: usage.retired * block,
            unused_bytes: usage.unused * block,
            damaged: self.damaged.load(Ordering::Relaxed),
        }
    }
}
