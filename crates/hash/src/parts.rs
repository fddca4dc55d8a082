//! Parts of a region: which there are, and one more. Drawn and argued for in docs/format-hash.md.

use stratakv_base::canary;
use stratakv_engine::Error;
use stratakv_pmem::{Pmem, PmemError};

use crate::hash::Hash;
use crate::layout::{
    FORMAT, HEAD_LEN, Head, NoSuperblock, PAGE, PARTS_MAX, Part, SUPERBLOCK_LEN, SegmentState, Superblock, WORDS_AT,
};
use crate::region::Region;

impl<P: Pmem> Hash<P> {
    /// Bytes of the region of the store that lies here: of all its parts. What there is beyond is not used.
    ///
    /// # Errors
    /// No store there, one of a newer format; or the memory fails.
    pub fn region_bytes_of(pmem: &P) -> Result<u64, Error> {
        Ok(superblock_of(pmem)?.region_bytes())
    }

    /// Bytes of the region: of all its parts.
    pub fn region_bytes(&self) -> u64 {
        self.region.superblock.region_bytes()
    }

    /// Whether the region can have another part of so many bytes, once they are there.
    ///
    /// # Errors
    /// No store there, one of a newer format; as many parts as a region can have, or one too short for a segment, or too long; or the memory fails.
    pub fn check_part(pmem: &P, part_bytes: u64) -> Result<(), Error> {
        with_part(&superblock_of(pmem)?, part_bytes).map(drop)
    }

    /// Makes the region longer by a part, behind the others: before the store is opened. After a cut the region has it, or is as it was. What lay there is gone.
    ///
    /// # Errors
    /// As [`Hash::check_part`]; the bytes are not there.
    pub fn add_part(pmem: &P, part_bytes: u64) -> Result<(), Error> {
        let before = superblock_of(pmem)?;
        let after = with_part(&before, part_bytes)?;
        if after.region_bytes() > pmem.len_bytes() {
            let (wanted, there) = (after.region_bytes(), pmem.len_bytes());
            return Err(Error::WrongVolume(format!(
                "a region of {wanted} bytes does not fit into {there}: make its file longer first"
            )));
        }
        if !canary!("hash_growth_from_one_superblock") {
            store_superblocks(pmem, &before)?;
        }
        let (offset, uuid) = (before.region_bytes(), after.uuid);
        let region = Region::new(pmem, after);
        if canary!("hash_part_named_before_it_is_there") {
            store_superblocks(pmem, &region.superblock)?;
        }
        let segments = region.parts.last().map_or(0..0, |part| part.segments.clone());
        for number in segments {
            region.set_segment(number, SegmentState::Unused)?;
        }
        let head = Head { number: before.parts.len() as u32, offset, bytes: part_bytes, uuid }.encode();
        for at in [offset + PAGE, offset] {
            pmem.store(at, &head)?;
            pmem.flush(at, HEAD_LEN as u64)?;
        }
        if !canary!("hash_part_not_fenced") {
            pmem.fence()?;
        }
        Ok(store_superblocks(pmem, &region.superblock)?)
    }

    /// Mends what says which parts there are; a part of another store is none.
    pub(crate) fn mend_parts(&self) -> Result<(), Error> {
        store_superblocks(&self.region.pmem, &self.region.superblock)?;
        for (number, part) in self.region.parts.iter().enumerate().skip(1) {
            self.mend_heads(number as u32, part)?;
        }
        Ok(())
    }

    fn mend_heads(&self, number: u32, part: &Part) -> Result<(), Error> {
        let pmem = &self.region.pmem;
        let expected = Head { number, offset: part.offset, bytes: part.bytes, uuid: self.region.superblock.uuid };
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

/// The superblock of a region with a part more.
fn with_part(before: &Superblock, part_bytes: u64) -> Result<Superblock, Error> {
    if before.parts.len() == PARTS_MAX {
        return Err(Error::WrongVolume(format!(
            "the region has grown {} times, which is as often as it can: back the store up, and restore it with a longer region",
            PARTS_MAX - 1
        )));
    }
    let mut after = before.clone();
    after.parts.push(part_bytes);
    if after.is_possible() {
        return Ok(after);
    }
    Err(Error::WrongVolume(format!(
        "a region of {} bytes cannot grow by {part_bytes}: a part is a multiple of 4096 bytes, has room for one segment of {} and its head, and all of them \
         have 2^36 blocks of {} at most",
        before.region_bytes(),
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
