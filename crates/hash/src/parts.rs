//! Parts of a region: which there are, and one more. Drawn and argued for in docs/format-hash.md.

use stratakv_base::fault_point;
use stratakv_engine::Error;
use stratakv_pmem::{Pmem, PmemError};

use crate::hash::Hash;
use crate::layout::{
    FORMAT, HEAD_LEN, Head, Named, NoSuperblock, PAGE, PARTS_MAX, PartLayout, SUPERBLOCK_LEN, SegmentState, Superblock,
    WORDS_AT,
};
use crate::region::Region;

/// A part of a region, found in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundPart {
    /// Which it is; 0 the one with the superblock.
    pub number: u32,
    /// Where it begins in the file.
    pub from_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
    /// What it was given when it was made.
    pub id: u64,
    /// The store's.
    pub uuid: [u8; 16],
}

impl FoundPart {
    fn of(number: u32, Named { bytes, id }: Named, from_bytes: u64, uuid: [u8; 16]) -> FoundPart {
        FoundPart { number, from_bytes, len_bytes: bytes, id, uuid }
    }
}

impl<P: Pmem> Hash<P> {
    /// Bytes of the region of the store that lies here: of all its parts. What there is beyond is
    /// not used.
    ///
    /// # Errors
    /// No store there, one of a newer format; or the memory fails.
    pub fn region_bytes_of(pmem: &P) -> Result<u64, Error> {
        Ok(superblock_of(pmem)?.region_bytes())
    }

    /// The parts of the region of the store whose superblock lies here, one behind the other, as if
    /// all of them were here.
    ///
    /// # Errors
    /// As [`Hash::region_bytes_of`].
    pub fn parts_of(pmem: &P) -> Result<Vec<FoundPart>, Error> {
        let superblock = superblock_of(pmem)?;
        let mut from_bytes = 0;
        let parts = (0..).zip(&superblock.parts).map(|(number, named)| {
            let part = FoundPart::of(number, *named, from_bytes, superblock.uuid);
            from_bytes += named.bytes;
            part
        });
        Ok(parts.collect())
    }

    /// The parts that begin here, one behind the other from the first byte on: of a file that has
    /// some of a region. None: it has none. Those of a growth that was cut are among them, and
    /// there may be others whose heads are damaged.
    ///
    /// # Errors
    /// A newer format; or the memory fails.
    pub fn parts_in(pmem: &P) -> Result<Vec<FoundPart>, Error> {
        let mut found = Vec::new();
        let mut at = 0;
        match superblock_of(pmem) {
            Ok(superblock) => {
                at = superblock.first_part_bytes();
                found.push(FoundPart::of(0, Named::first(at), 0, superblock.uuid));
            }
            Err(Error::WrongVolume(_)) => {}
            Err(error) => return Err(error),
        }
        while let Some(head) = either_head(pmem, at)? {
            found.push(FoundPart::of(head.number, Named { bytes: head.bytes, id: head.id }, at, head.uuid));
            at = at.saturating_add(head.bytes);
        }
        Ok(found)
    }

    /// Bytes of the region: of all its parts.
    pub fn region_bytes(&self) -> u64 {
        self.region.superblock.region_bytes()
    }

    /// Whether the region can have these parts too, once they are there.
    ///
    /// # Errors
    /// No store there, one of a newer format; more parts than a region can have, or one too short
    /// for a segment, or too long; or the memory fails.
    pub fn check_parts(pmem: &P, parts: &[u64]) -> Result<(), Error> {
        let named = |bytes: &u64| Named { bytes: *bytes, id: 0 };
        parts.iter().map(named).try_fold(superblock_of(pmem)?, |before, part| with_part(&before, part)).map(drop)
    }

    /// Makes the region longer by a part, behind the others: before the store is opened. After a
    /// cut the region has it, or is as it was. What lay there is gone. `id` is one that no other
    /// growth had, whole or cut: drawn at random.
    ///
    /// # Errors
    /// As [`Hash::check_parts`]; the bytes are not there.
    pub fn add_part(pmem: &P, part_bytes: u64, id: u64) -> Result<(), Error> {
        let before = superblock_of(pmem)?;
        let after = with_part(&before, Named { bytes: part_bytes, id })?;
        if after.region_bytes() > pmem.len_bytes() {
            let (wanted, there) = (after.region_bytes(), pmem.len_bytes());
            return Err(Error::WrongVolume(format!(
                "a region of {wanted} bytes does not fit into {there}: make its file longer first"
            )));
        }
        repair_superblocks(pmem, &before)?;
        let (offset, uuid) = (before.region_bytes(), after.uuid);
        let region = Region::new(pmem, after);
        fault_point!("hash_part_named_before_it_is_there", store_superblocks(pmem, &region.superblock)?);
        let segments = region.parts.last().map_or(0..0, |part| part.segments.clone());
        for number in segments {
            region.set_segment(number, SegmentState::Unused)?;
        }
        store_heads(pmem, offset, &Head { number: before.parts.len() as u32, id, bytes: part_bytes, uuid })?;
        Ok(store_superblocks(pmem, &region.superblock)?)
    }

    /// Mends what says which parts there are; a part of another store is none.
    pub(crate) fn mend_parts(&self) -> Result<(), Error> {
        store_superblocks(&self.region.pmem, &self.region.superblock)?;
        let named = self.region.superblock.parts.iter();
        for (number, (part, Named { id, .. })) in (0..).zip(self.region.parts.iter().zip(named)).skip(1) {
            self.mend_heads(number, *id, part)?;
        }
        Ok(())
    }

    fn mend_heads(&self, number: u32, id: u64, part: &PartLayout) -> Result<(), Error> {
        let pmem = &self.region.pmem;
        let expected = Head { number, id, bytes: part.bytes, uuid: self.region.superblock.uuid };
        for at in [part.offset, part.offset + PAGE] {
            match head_at(pmem, at)? {
                Ok(found) if found == expected => {}
                Ok(found) => {
                    return Err(Error::WrongVolume(format!(
                        "at {at} part {number} of the region should begin, and there lies part {} of {}: parts were exchanged; put this one back",
                        found.number,
                        if found.uuid == expected.uuid { "it" } else { "another one" }
                    )));
                }
                Err(NoSuperblock::Newer(found)) => return Err(Error::NewerFormat { found, known: FORMAT }),
                Err(NoSuperblock::Blank | NoSuperblock::Foreign) => {
                    pmem.store(at, &expected.encode())?;
                    pmem.persist(at, HEAD_LEN as u64)?;
                }
            }
        }
        Ok(())
    }
}

/// The head at `at` if a copy of it checks. None where there is no room for one.
fn either_head(pmem: &impl Pmem, at: u64) -> Result<Option<Head>, Error> {
    for copy in [at, at.saturating_add(PAGE)] {
        if copy.saturating_add(PAGE) > pmem.len_bytes() {
            continue;
        }
        match head_at(pmem, copy)? {
            Ok(head) if head.bytes > 0 => return Ok(Some(head)),
            Err(NoSuperblock::Newer(found)) => return Err(Error::NewerFormat { found, known: FORMAT }),
            _ => {}
        }
    }
    Ok(None)
}

/// The superblock of a region with a part more.
fn with_part(before: &Superblock, part: Named) -> Result<Superblock, Error> {
    if before.parts.len() == PARTS_MAX {
        return Err(Error::WrongVolume(format!(
            "the region has grown {} times, which is as often as it can: back the store up, and restore it with a longer region",
            PARTS_MAX - 1
        )));
    }
    let mut after = before.clone();
    after.parts.push(part);
    if after.is_possible() {
        return Ok(after);
    }
    Err(Error::WrongVolume(format!(
        "a region of {} bytes cannot grow by {}: a part is a multiple of 4096 bytes, has room for one segment of {} and its head, and all of them \
         have 2^36 blocks of {} at most",
        before.region_bytes(),
        part.bytes,
        before.segment_bytes,
        before.block_bytes
    )))
}

/// The head at `at`, if one is there.
fn head_at(pmem: &impl Pmem, at: u64) -> Result<Result<Head, NoSuperblock>, PmemError> {
    let mut bytes = [0; HEAD_LEN];
    pmem.load(at, &mut bytes)?;
    Ok(Head::decode(&bytes))
}

/// Both heads of a part, durably.
fn store_heads(pmem: &impl Pmem, offset: u64, head: &Head) -> Result<(), PmemError> {
    let head = head.encode();
    for at in [offset + PAGE, offset] {
        pmem.store(at, &head)?;
        pmem.flush(at, HEAD_LEN as u64)?;
    }
    fault_point!("hash_part_not_fenced", return Ok(()));
    pmem.fence()
}

/// Before a region grows both superblocks say the same.
fn repair_superblocks(pmem: &impl Pmem, superblock: &Superblock) -> Result<(), PmemError> {
    fault_point!("hash_growth_from_one_superblock", return Ok(()));
    store_superblocks(pmem, superblock)
}

/// Makes both copies say this, durably, the first one last.
pub(crate) fn store_superblocks(pmem: &impl Pmem, superblock: &Superblock) -> Result<(), PmemError> {
    let expected = superblock.encode();
    let mut found = vec![0; expected.len()];
    for at in [PAGE, 0] {
        pmem.load(at, &mut found)?;
        if found != expected {
            pmem.store(at, &expected)?;
            pmem.persist(at, expected.len() as u64)?;
        }
    }
    Ok(())
}

/// What the region says of itself.
pub(crate) fn superblock_of(pmem: &impl Pmem) -> Result<Superblock, Error> {
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
        match Superblock::decode(&bytes) {
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
