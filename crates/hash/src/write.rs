//! Puts and deletes of one key: drawn and argued for in docs/format-hash.md.

use smallvec::SmallVec;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{Expiry, Key, Wall, fault_point};
use stratakv_engine::{Error, Expect};
use stratakv_pmem::{Pmem, PmemError};

use crate::alloc::Extent;
use crate::epoch::stripe;
use crate::hash::{Current, Hash, Written};
use crate::layout::{First, HEADER_BYTES, Header, Kind, value_crc};
use crate::order::is_ordered;
use crate::region::Prefix;
use crate::table::Slot;

/// Keys and values of up to as many bytes are put together before they are stored: a multiple of 8.
const SHORT_BYTES: usize = 512;

/// A record to be.
pub(crate) struct Draft<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
}

/// A record of which all is there but its header.
pub(crate) struct Laid {
    pub(crate) place: u64,
    pub(crate) header: Header,
    prefix: Prefix,
}

impl Draft<'_> {
    fn prefix_bytes(&self) -> usize {
        self.key.len() + if self.flags == 0 { 0 } else { 4 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        HEADER_BYTES + (self.prefix_bytes() + self.value.len()) as u64
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let (len_bytes, max_bytes) = (self.value.len() as u64, VALUE_BYTES_MAX as u64);
        if len_bytes > max_bytes { Err(Error::ValueTooLarge { len_bytes, max_bytes }) } else { Ok(()) }
    }
}

impl Laid {
    pub(crate) fn extent(&self) -> Extent {
        Extent { place: self.place, blocks: self.header.blocks }
    }
}

/// What lies in an extent behind its first blocks.
pub(crate) fn behind(extent: Extent, blocks: u32) -> Extent {
    Extent { place: extent.place + u64::from(blocks), blocks: extent.blocks - blocks }
}

impl<P: Pmem> Hash<P> {
    /// Makes `value` the value of a key, durably. What the key had before is never touched until
    /// then.
    ///
    /// # Errors
    /// Value too long, no room ([`Error::Full`]: reads and deletes go on), damage where the key's
    /// record lies, or the memory fails.
    pub fn put(
        &self,
        key: &Key,
        value: &[u8],
        (flags, expiry): (u32, Expiry),
        expect: Expect,
        wall: Wall,
    ) -> Result<Written, Error> {
        let draft = Draft { key: key.encoded(), value, flags, expiry };
        draft.check()?;
        self.check_writable()?;
        let blocks = self.region.superblock.blocks_of(draft.bytes()) as u32;
        let extent = self.room(blocks, 0)?;
        let laid = self.lay(extent, &draft).and_then(|laid| {
            fault_point!("hash_body_not_fenced", return Ok(laid));
            self.region.pmem.fence()?;
            Ok(laid)
        });
        let is_laid = laid.is_ok();
        let written = laid.map_err(Error::from).and_then(|laid| self.publish(laid, draft.key, expect, wall));
        match &written {
            Ok(Written::Done { .. }) => {
                let rest = behind(extent, blocks);
                if rest.blocks > 0 {
                    self.alloc.free_rest(self.home(), rest);
                }
                self.table.grow();
            }
            // Whether the header is there is not known.
            Err(Error::Unknown(_)) => {}
            // It would be the next one to be allocated, and fail again.
            _ if !is_laid => self.alloc.lose(extent),
            // On the medium it is as free as before.
            _ => self.alloc.free(extent),
        }
        self.alloc.release();
        written
    }

    /// The arena that the calling thread takes room from first: one of the node that it is on.
    pub(crate) fn home(&self) -> usize {
        self.alloc.home(self.region.pmem.node_here(), stripe())
    }

    /// Free space of at least so many blocks: records are moved, and what snapshots keep goes,
    /// before a write is refused. `in_hand`: extents that the caller has. Not with a slot locked.
    pub(crate) fn room(&self, blocks: u32, in_hand: u64) -> Result<Extent, Error> {
        loop {
            if let Some(extent) = self.alloc.allocate(&self.region, &self.epochs, (self.home(), in_hand), blocks)? {
                return Ok(extent);
            }
            if let Some(extent) = self.make_room(blocks, in_hand)? {
                return Ok(extent);
            }
            if !self.snapshots.keeps_any() || !self.end_oldest_snapshot() {
                return Err(Error::Full("its region is used up; opened with a larger --region it has more"));
            }
        }
    }

    /// Lays what others cannot see yet: flags, key and value, and the free extent behind the
    /// record. Durable after a fence.
    pub(crate) fn lay(&self, extent: Extent, draft: &Draft<'_>) -> Result<Laid, PmemError> {
        let offset = self.region.offset(extent.place);
        let (value, blocks) = (draft.value, self.region.superblock.blocks_of(draft.bytes()));
        let mut prefix = Prefix::new();
        if draft.flags != 0 {
            prefix.extend_from_slice(&draft.flags.to_le_bytes());
        }
        prefix.extend_from_slice(draft.key);
        self.store_body(offset + HEADER_BYTES, &prefix, value)?;
        let rest = behind(extent, blocks as u32);
        let mut has_rest = rest.blocks > 0;
        fault_point!("hash_rest_forgotten", has_rest = false);
        if has_rest {
            self.region.set_first(self.region.offset(rest.place), First::free(rest.blocks))?;
        }
        let header = Header {
            blocks: blocks as u32,
            key_bytes: draft.key.len() as u32,
            value_bytes: value.len() as u32,
            version: 0,
            expiry: draft.expiry.0,
            has_flags: draft.flags != 0,
            header_crc: 0,
            value_crc: value_crc(self.region.uuid(), offset, value),
        };
        Ok(Laid { place: extent.place, header, prefix })
    }

    /// Durable after a fence.
    fn store_body(&self, at: u64, prefix: &[u8], value: &[u8]) -> Result<(), PmemError> {
        let pmem = &self.region.pmem;
        if prefix.len() + value.len() <= SHORT_BYTES {
            // As one run of whole words: each edge of a store within a word is a locked exchange.
            // The last word lies in the record's last block.
            let mut bytes: SmallVec<[u8; SHORT_BYTES]> = SmallVec::from_slice(prefix);
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            pmem.store(at, &bytes)?;
        } else {
            pmem.store(at, prefix)?;
            pmem.store(at + prefix.len() as u64, value)?;
        }
        fault_point!("hash_body_not_flushed", return Ok(()));
        pmem.flush(at, (prefix.len() + value.len()) as u64)
    }

    /// Stores the header of a laid record. Durable after a fence.
    pub(crate) fn store_header(&self, laid: &mut Laid, version: u64, kind: Kind) -> Result<(), PmemError> {
        let offset = self.region.offset(laid.place);
        laid.header.version = version;
        laid.header.header_crc = laid.header.crc(self.region.uuid(), offset, &laid.prefix);
        self.region.set_header(offset, &laid.header, kind)
    }

    /// Makes a laid record the one of its key. Unless the outcome is `Unknown`, an error left the
    /// medium as it was.
    fn publish(&self, mut laid: Laid, key: &[u8], expect: Expect, wall: Wall) -> Result<Written, Error> {
        let (slot, current) = self.locked(key)?;
        let existed = match judge(current.as_ref(), expect, wall) {
            Ok(existed) => existed,
            Err(unmet) => return Ok(Written::Unmet(unmet)),
        };
        let writing = self.snapshots.write();
        let version = self.next_version()?;
        let (place, expiry) = (laid.place, laid.header.expiry);
        let found = match &current {
            Some(current) => current.found,
            None => slot.reserve().ok_or(TABLE_FULL)?,
        };
        fault_point!("hash_entry_before_record", slot.replace(found, place));
        let stored = self.store_header(&mut laid, version, Kind::Record).and_then(|()| {
            fault_point!("hash_header_not_fenced", return Ok(()));
            self.region.pmem.fence()
        });
        if let Err(error) = stored {
            if current.is_none() {
                slot.remove(found);
            }
            return Err(self.fail(&error));
        }
        let kept = current.as_ref().is_some_and(|current| self.keep(key, current, version));
        let before = current.as_ref().map(|current| &current.header);
        if is_ordered(key) && before.is_none_or(|before| before.expiry != expiry) {
            slot.announce(found, current.as_ref().map_or(place, |current| current.found.place));
        }
        self.order(key, before, expiry);
        slot.replace(found, place);
        self.note_expiry(key, before.map_or(0, |before| before.expiry), Some((expiry, place)));
        drop(writing);
        if let Some(Current { header: old, found }) = current {
            self.free_record(found.place, &old).map_err(|error| self.fail(&error))?;
            drop(slot);
            self.release(Extent { place: found.place, blocks: old.blocks }, kept);
        } else {
            drop(slot);
        }
        self.orders.apply_waiting(key);
        Ok(Written::Done { version, existed })
    }

    /// Deletes a key, durably.
    ///
    /// # Errors
    /// As [`Hash::put`], but for room: a delete needs none.
    pub fn delete(&self, key: &Key, expect: Expect, wall: Wall) -> Result<Written, Error> {
        let key = key.encoded();
        let (slot, current) = self.locked(key)?;
        let existed = match judge(current.as_ref(), expect, wall) {
            Ok(existed) => existed,
            Err(unmet) => return Ok(Written::Unmet(unmet)),
        };
        // One that has expired goes too, and is told of as if it had been gone.
        let removed = current.map(|current| self.remove(slot, current, key)).transpose()?;
        Ok(Written::Done { version: removed.filter(|_| existed).unwrap_or(0), existed })
    }

    /// The slot of a key, locked to write, and its record.
    pub(crate) fn locked(&self, key: &[u8]) -> Result<(Slot<'_>, Option<Current<'_>>), Error> {
        let slot = self.slot(key)?;
        // With the slot: what failed before may have left this key in one state on the medium and
        // in another one here.
        self.check_writable()?;
        let current = self.current(&slot, key)?;
        Ok((slot, current))
    }

    /// Removes the record of a key, durably; the version of that.
    pub(crate) fn remove(&self, slot: Slot<'_>, current: Current<'_>, key: &[u8]) -> Result<u64, Error> {
        let writing = self.snapshots.write();
        let version = self.next_version()?;
        self.free_record(current.found.place, &current.header).map_err(|error| self.fail(&error))?;
        let kept = self.keep(key, &current, version);
        if is_ordered(key) {
            slot.announce(current.found, current.found.place);
            self.leave_order(key);
        }
        slot.remove(current.found);
        self.note_expiry(key, current.header.expiry, None);
        drop(writing);
        drop(slot);
        self.release(Extent { place: current.found.place, blocks: current.header.blocks }, kept);
        self.orders.apply_waiting(key);
        Ok(version)
    }

    /// The space of a record that others do not find any more, unless it is kept for a snapshot.
    /// Not with a slot locked.
    pub(crate) fn release(&self, extent: Extent, kept: bool) {
        if kept {
            self.bound_snapshots();
        } else {
            self.alloc.retire(&self.epochs, self.home(), extent);
        }
    }

    /// Keeps the order of the key's collection, which has the key if there was a record before.
    /// With the key's slot locked and a new key's entry announced: so whoever finds it in one of
    /// table and order finds it in the other.
    pub(crate) fn order(&self, key: &[u8], before: Option<&Header>, expiry: u64) {
        if is_ordered(key) && before.is_none_or(|before| before.expiry != expiry) {
            self.orders.insert(key, expiry);
            if before.is_none() {
                self.revive(key);
            }
        }
    }

    /// Makes a record a free extent, durably.
    fn free_record(&self, place: u64, header: &Header) -> Result<(), PmemError> {
        self.region.set_first(self.region.offset(place), header.first().with(Kind::Free))?;
        fault_point!("hash_delete_not_fenced", return Ok(()));
        self.region.pmem.fence()
    }

    /// The memory failed where the medium may have one state or the other: no more is written to
    /// it.
    pub(crate) fn fail(&self, error: &PmemError) -> Error {
        self.health.fail(error);
        Error::Unknown("the persistent memory failed while the write was made durable: open the store again to see")
    }

    /// Whether the memory failed in the middle of a write, in a sync, or at the end of the store.
    pub fn has_failed(&self) -> bool {
        self.health.has_failed()
    }

    /// How the memory failed, here or for everybody who stores to it; for good.
    pub(crate) fn medium_failure(&self) -> Option<PmemError> {
        self.health.failure().or_else(|| self.region.pmem.failure())
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if !self.has_failed() {
            return Ok(());
        }
        let failure = self.medium_failure();
        let why = failure.map_or_else(String::new, |error| format!(" ({error})"));
        Err(Error::WrongVolume(format!(
            "the persistent memory failed{why}; the store takes no more writes: see to the medium, then open it again"
        )))
    }

    /// The last version handed out.
    pub(crate) fn last_version(&self) -> u64 {
        self.versions.last()
    }

    /// A version above all before it.
    pub(crate) fn next_version(&self) -> Result<u64, PmemError> {
        self.versions.draw(&self.region)
    }
}

/// The table has as many buckets as it can number.
pub(crate) const TABLE_FULL: Error = Error::Full("its hash table has reached its end");

/// Whether the key existed, if the condition of its change holds.
pub(crate) fn judge(current: Option<&Current<'_>>, expect: Expect, wall: Wall) -> Result<bool, stratakv_engine::Unmet> {
    let visible = current.filter(|current| !Expiry(current.header.expiry).is_past(wall));
    let existed = visible.is_some();
    expect.unmet(existed, visible.map(|current| current.header.version)).map_or(Ok(existed), Err)
}
