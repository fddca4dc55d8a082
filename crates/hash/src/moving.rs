//! Room for a record that is longer than what is free anywhere: records in its way are moved.
//!
//! Merging makes long extents of short ones only where nothing stays between them. Where much is
//! free but in pieces, part of a span is cleared: each record of it is copied to a free extent
//! elsewhere that is just long enough. A moved record is the same one, with its version: whoever
//! asks about versions, snapshots among them, sees no change. Many are moved together, under the
//! locks of their slots, with three fences, so that this is quick where a fence is slow:
//!
//! 1. The copies are laid as the bodies of puts are. Fence.
//! 2. With all slots locked, those that were replaced meanwhile left out: the headers of the copies
//!    are stored. Fence. Of each record there are two now, equal in everything; opening takes
//!    either and frees the other.
//! 3. The entries point to the copies. The old first words become free. Fence. The slots are
//!    unlocked.
//!
//! What a write pays is bounded: it walks up to 64 spans, and clears up to eight parts of as much
//! as it wants and half a segment more. KVDK does not move records.

use stratakv_base::{Expiry, fault_point};
use stratakv_engine::Error;
use stratakv_pmem::{Pmem, PmemError};

use crate::alloc::{Clearing, Extent, of_one_place};
use crate::hash::Hash;
use crate::layout::{Header, Kind, value_crc};
use crate::region::Prefix;
use crate::table::{FoundEntry, Slot};
use crate::write::{Draft, Laid, behind};

/// Parts that are cleared, one after the other, before a write is told that there is no room.
const CLEARINGS_MAX: usize = 8;
/// Spans that are looked at for that: in some lie records that fit nowhere else.
const LOOKS_MAX: u64 = 64;
/// Blocks cleared at a time: so many times those that are wanted, for the next writes want as many;
/// but no more than the longest of half a segment, so many, and what is wanted.
const TIMES: u32 = 8;
const CLEARED_MIN: u32 = 512;
/// Most records that are moved together, and most bytes of their values.
const TOGETHER_MAX: usize = 64;
const TOGETHER_BYTES_MAX: usize = 1 << 20;

/// A record that is to be moved.
struct Mover {
    place: u64,
    header: Header,
    prefix: Prefix,
    value: Vec<u8>,
}

/// Its copy, and the extent that this was cut from.
struct Moved {
    old: Mover,
    copy: Laid,
    extent: Extent,
}

/// An extent that a walk met, and how many of its blocks are to be moved if it is cleared; `None`:
/// it stays.
struct PlacedExtent {
    extent: Extent,
    to_move: Option<u32>,
}

impl Mover {
    fn key(&self) -> &[u8] {
        self.header.key_in(&self.prefix)
    }

    fn draft(&self) -> Draft<'_> {
        let flags = self.header.flags_in(&self.prefix);
        Draft { key: self.key(), value: &self.value, flags, expiry: Expiry(self.header.expiry) }
    }
}

impl Moved {
    fn old_extent(&self) -> Extent {
        Extent { place: self.old.place, blocks: self.old.header.blocks }
    }
}

/// Of neighbours that have so many blocks together the records of those with the fewest to move.
/// `None`: everywhere is one that stays.
fn best_part(extents: &[PlacedExtent], blocks: u32) -> Option<Vec<Extent>> {
    let (mut best, mut fewest) = (None, u32::MAX);
    for run in extents.split(|placed| placed.to_move.is_none()) {
        let (mut end, mut has, mut to_move) = (0, 0, 0);
        for (begin, first) in run.iter().enumerate() {
            while let Some(next) = run.get(end).filter(|_| has < blocks) {
                (has, to_move) = (has + next.extent.blocks, to_move + next.to_move.unwrap_or(0));
                end += 1;
            }
            if has >= blocks && to_move < fewest {
                (best, fewest) = (run.get(begin..end), to_move);
            }
            (has, to_move) = (has - first.extent.blocks, to_move - first.to_move.unwrap_or(0));
        }
    }
    Some(best?.iter().filter(|placed| placed.to_move > Some(0)).map(|placed| placed.extent).collect())
}

impl<P: Pmem> Hash<P> {
    /// An extent of at least so many blocks, after moving what is in its way; `None`: that did not
    /// help. Not with a slot locked. Ends with the allocator's `release`.
    pub(crate) fn make_room(&self, blocks: u32, in_hand: u64) -> Result<Option<Extent>, Error> {
        let _waiting = self.alloc.stand_back(in_hand);
        let _turn = self.alloc.turn();
        // Whoever had the turn cleared more than it wanted.
        if let Some(found) = self.alloc.look(&self.region, self.home(), blocks)? {
            return Ok(Some(found));
        }
        if self.alloc.clearing_is_useless(blocks) {
            return Ok(None);
        }
        let (mut tried, mut clearings, freed) = (Vec::new(), 0, self.alloc.freed());
        for look in 1..=LOOKS_MAX {
            let Some(clearing) = self.alloc.begin_clearing(blocks, &mut tried) else {
                if clearings == 0 {
                    // Each look counts as something freed.
                    self.alloc.note_useless_clearing(freed + look - 1, blocks);
                }
                break;
            };
            let moved = self.clear(&clearing, blocks);
            if !matches!(moved, Ok(0)) {
                self.alloc.free_retired(&self.epochs, false);
                clearings += 1;
            }
            self.alloc.end_clearing(&self.region, self.home(), clearing)?;
            moved?;
            let found = self.alloc.look(&self.region, self.home(), blocks)?;
            if found.is_some() || clearings == CLEARINGS_MAX {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Clears a part of a span for so many blocks and more, or all of several spans; how many
    /// records were moved.
    fn clear(&self, clearing: &Clearing, blocks: u32) -> Result<usize, Error> {
        let longest = self.alloc.longest();
        let segment_blocks = self.region.superblock.blocks_of(self.region.superblock.segment_bytes) as u32;
        let with_more = blocks.saturating_mul(TIMES).min(segment_blocks / 2).max(CLEARED_MIN).max(blocks);
        let parts: Vec<Vec<Extent>> = match clearing.spans[..] {
            [(first, span)] if span.blocks >= blocks => {
                let extents = self.extents_of(first, span, longest);
                best_part(&extents, with_more).or_else(|| best_part(&extents, blocks)).into_iter().collect()
            }
            ref spans => {
                let all =
                    |(first, span): &(u32, Extent)| best_part(&self.extents_of(*first, *span, longest), span.blocks);
                let all = spans.iter().map(all);
                all.collect::<Option<_>>().unwrap_or_default()
            }
        };
        parts.into_iter().map(|records| self.move_all(records)).sum()
    }

    /// What lies in a span, up to where its medium is damaged.
    fn extents_of(&self, first: u32, span: Extent, longest: u32) -> Vec<PlacedExtent> {
        let (mut at, end, mut found) = (span.place, span.place + u64::from(span.blocks), Vec::new());
        let mut free = self.alloc.free_in(first).into_iter().peekable();
        while at < end {
            let Ok(Some(first)) = self.region.first(self.region.offset(at)) else { break };
            while free.next_if(|free| free.place < at).is_some() {}
            let to_move = match first.kind {
                Kind::Free if free.next_if(|free| free.place == at).is_some() => Some(0),
                Kind::Record if first.blocks <= longest => Some(first.blocks),
                // It fits nowhere else, is being written, or somebody has it.
                _ => None,
            };
            found.push(PlacedExtent { extent: Extent { place: at, blocks: first.blocks }, to_move });
            at += u64::from(first.blocks);
        }
        found
    }

    /// Moves records, the longest ones first: while there is long room. How many were.
    fn move_all(&self, mut records: Vec<Extent>) -> Result<usize, Error> {
        records.sort_unstable_by_key(|record| std::cmp::Reverse(record.blocks));
        let (mut together, mut bytes, mut moved) = (Vec::new(), 0, 0);
        for record in records {
            let Some(mover) = self.mover(record.place)? else { continue };
            bytes += mover.value.len();
            together.push(mover);
            if together.len() == TOGETHER_MAX || bytes > TOGETHER_BYTES_MAX {
                moved += self.move_together(std::mem::take(&mut together))?;
                bytes = 0;
            }
        }
        Ok(moved + self.move_together(together)?)
    }

    /// The record at `place`, whole; `None`: it is none any more, or is damaged, or lies on memory
    /// that cannot be read. Then it stays where it is, for whoever asks for it to be told.
    fn mover(&self, place: u64) -> Result<Option<Mover>, Error> {
        match self.read_whole(place) {
            Err(error) => Ok(of_one_place(error).map(|()| None)?),
            read => Ok(read?),
        }
    }

    fn read_whole(&self, place: u64) -> Result<Option<Mover>, PmemError> {
        let offset = self.region.offset(place);
        let Some(header) = self.region.header(offset)? else { return Ok(None) };
        let prefix = self.region.prefix(offset, &header)?;
        let mut value = vec![0; header.value_bytes as usize];
        self.region.body(offset, header.prefix_bytes(), &mut value)?;
        let checks = header.crc(self.region.uuid(), offset, &prefix) == header.header_crc
            && value_crc(self.region.uuid(), offset, &value) == header.value_crc;
        Ok(checks.then_some(Mover { place, header, prefix, value }))
    }

    fn move_together(&self, movers: Vec<Mover>) -> Result<usize, Error> {
        let mut moved = Vec::with_capacity(movers.len());
        for old in movers {
            // An error of all of the region comes again with the fence.
            let found = self.alloc.look(&self.region, self.home(), old.header.blocks).ok().flatten();
            let Some(extent) = found else { continue };
            match self.lay(extent, &old.draft()) {
                Ok(copy) => moved.push(Moved { old, copy, extent }),
                // The next one to be taken would be this one, and fail again.
                Err(_) => {
                    self.alloc.lose(extent);
                    self.alloc.release();
                }
            }
        }
        if moved.is_empty() {
            return Ok(0);
        }
        let done = self.publish_moved(&mut moved);
        for Moved { copy, extent, .. } in &moved {
            match &done {
                Ok(is_moved) if is_moved.contains(&copy.place) => {
                    let rest = behind(*extent, copy.header.blocks);
                    if rest.blocks > 0 {
                        self.alloc.free(rest);
                    }
                }
                // Whether the header is there is not known.
                Err(Error::Unknown(_)) => {}
                _ => self.alloc.free(*extent),
            }
            self.alloc.release();
        }
        done.map(|places| places.len())
    }

    /// Steps 1 to 3; the places of the copies that are records now. Unless the outcome is
    /// `Unknown`, the others are as free on the medium as before.
    fn publish_moved(&self, moved: &mut [Moved]) -> Result<Vec<u64>, Error> {
        self.region.pmem.fence()?;
        let hashes: Vec<u64> = moved.iter().map(|moved| self.hash_of(moved.old.key())).collect();
        let slots = self.table.lock_all(&hashes).ok_or(Error::Unknown("the hash table is not whole"))?;
        self.check_writable()?;
        let mut targets: Vec<(&Slot<'_>, FoundEntry<'_>, &mut Moved)> = Vec::with_capacity(moved.len());
        for (slot, moved) in slots.iter().zip(moved) {
            let current = self.current(slot, moved.old.key()).ok().flatten();
            let is_it = |found: u64| {
                fault_point!("hash_moved_over_a_newer_one", return true);
                found == moved.old.place
            };
            if let Some(current) = current.filter(|current| is_it(current.found.place)) {
                targets.push((slot, current.found, moved));
            }
        }
        self.replace_all(&mut targets).map_err(|error| self.fail(&error))?;
        let done = targets.iter().map(|(.., moved)| (moved.copy.place, moved.old_extent()));
        let (places, olds): (Vec<u64>, Vec<Extent>) = done.unzip();
        drop(targets);
        drop(slots);
        olds.into_iter().for_each(|old| self.alloc.retire(&self.epochs, self.home(), old));
        Ok(places)
    }

    /// The copies are durable before entries name them.
    fn fence_copies(&self) -> Result<(), PmemError> {
        fault_point!("hash_moved_not_fenced", return Ok(()));
        self.region.pmem.fence()
    }

    /// Steps 2 and 3.
    fn replace_all(&self, targets: &mut [(&Slot<'_>, FoundEntry<'_>, &mut Moved)]) -> Result<(), PmemError> {
        for (.., moved) in &mut *targets {
            let version = moved.old.header.version;
            self.store_header(&mut moved.copy, version, Kind::Record)?;
        }
        self.fence_copies()?;
        for (slot, found, moved) in targets {
            let (header, place) = (&moved.old.header, moved.copy.place);
            slot.replace(*found, place);
            self.note_expiry(moved.old.key(), header.expiry, Some((header.expiry, place)));
            self.region.set_first(self.region.offset(moved.old.place), header.first().with(Kind::Free))?;
        }
        self.region.pmem.fence()
    }
}
