//! Batches: changes that are there together or not at all, for readers and after any cut. Drawn and
//! argued for in docs/format-hash.md.
//!
//! KVDK writes a log of each batch, undoes unfinished ones at opening, and shows its changes one by
//! one.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

use stratakv_base::{Expiry, Wall, fault_point};
use stratakv_engine::{Change, ChangeKind, Error, Unmet};
use stratakv_pmem::{Pmem, PmemError};

use crate::alloc::Extent;
use crate::hash::{Current, Hash, Written};
use crate::layout::{COMMITS, First, Kind, commit_value};
use crate::table::{FoundEntry, Slot};
use crate::write::{Draft, Laid, TABLE_FULL, behind, judge};

/// Most bytes of keys and values.
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Members of more blocks are laid by themselves: what is freed between small ones that stay is too
/// short for the next, longer value.
const SMALL_BLOCKS: u64 = 8;
/// As long as there are few: until the batch is there, each extent holds back what lies behind it,
/// a segment at worst.
const ALONE_MAX: usize = 8;

/// Commit words that no batch has; `None`: the memory failed, and there will be no more.
#[derive(Debug)]
pub(crate) struct Commits {
    free: Mutex<Option<Vec<u64>>>,
    freed: Condvar,
}

impl Commits {
    pub(crate) fn new() -> Commits {
        Commits { free: Mutex::new(Some((0..COMMITS).rev().collect())), freed: Condvar::new() }
    }

    /// One of them; waits for it while as many batches are written as there are words. `None`: the
    /// memory failed.
    fn take(&self) -> Option<u64> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(number) = free.as_mut()?.pop() {
                return Some(number);
            }
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give(&self, number: u64) {
        if let Some(free) = self.free.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            free.push(number);
        }
        self.freed.notify_one();
    }

    /// No batch gets a word any more.
    fn end(&self) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.freed.notify_all();
    }
}

/// What was laid of a batch: the record or removal of each change, and the extents they are cut
/// from with the blocks they take of each.
#[derive(Default)]
struct Drafted {
    members: Vec<Laid>,
    extents: Vec<(Extent, u32)>,
}

/// A change whose slot is locked and whose condition holds.
struct Target<'a> {
    slot: Slot<'a>,
    current: Option<Current<'a>>,
    /// The entry to be changed: that of the current record, or for a new key a reserved one.
    /// `None`: a delete of nothing.
    found: Option<FoundEntry<'a>>,
    removes: bool,
    /// Its current record is kept for a snapshot.
    kept: bool,
}

fn draft(change: &Change) -> Draft<'_> {
    let key = change.key.encoded();
    match &change.kind {
        ChangeKind::Put { value, flags, expiry } => Draft { key, value, flags: *flags, expiry: *expiry },
        ChangeKind::Delete | ChangeKind::Check => Draft { key, value: &[], flags: 0, expiry: Expiry::NEVER },
    }
}

fn check(changes: &[Change]) -> Result<(), Error> {
    let mut keys = HashSet::with_capacity(changes.len());
    let mut len_bytes = 0;
    for change in changes {
        change.key.check()?;
        let draft = draft(change);
        draft.check()?;
        len_bytes += (draft.key.len() + draft.value.len()) as u64;
        if !keys.insert(draft.key) {
            return Err(Error::BadBatch("a key occurs twice"));
        }
    }
    if len_bytes > BATCH_BYTES_MAX {
        return Err(Error::BatchTooLarge { len_bytes, max_bytes: BATCH_BYTES_MAX });
    }
    if changes.is_empty() { Err(Error::BadBatch("it is empty")) } else { Ok(()) }
}

impl<P: Pmem> Hash<P> {
    /// Makes all changes or none, durably, as one step for readers and after any cut. Five fences,
    /// however many changes. The outcome is that of the last change; versions are the same for all.
    /// A batch needs room also for its deletes.
    ///
    /// # Errors
    /// As [`Hash::put`]; no changes, a key twice, more than 64 MiB of keys and values.
    pub fn write(&self, changes: &[Change], wall: Wall) -> Result<Written, Error> {
        check(changes)?;
        self.check_writable()?;
        let (checks, changes): (Vec<&Change>, Vec<&Change>) =
            changes.iter().partition(|change| matches!(change.kind, ChangeKind::Check));
        if changes.is_empty() {
            return self.check_all(&checks, wall);
        }
        self.prefetch(changes.iter().map(|change| change.key.encoded()));
        let mut drafted = Drafted::default();
        let laid = self.lay_members(&changes, &mut drafted);
        let memory_failed = matches!(laid, Err(Error::Pmem(_)));
        let written = laid.and_then(|()| self.commit((&changes, &checks), &mut drafted.members, wall));
        match &written {
            Ok(Written::Done { .. }) => {
                for (extent, used) in &drafted.extents {
                    let rest = behind(*extent, *used);
                    if rest.blocks > 0 {
                        self.alloc.free_rest(self.home(), rest);
                    }
                }
                for _ in &changes {
                    self.table.grow();
                }
            }
            // Which of the headers are there is not known.
            Err(Error::Unknown(_)) => {}
            // They would be the next ones to be allocated, and fail again.
            _ if memory_failed => drafted.extents.iter().for_each(|(extent, _)| self.alloc.lose(*extent)),
            // On the medium they are as free as before.
            _ => drafted.extents.iter().for_each(|(extent, _)| self.alloc.free(*extent)),
        }
        drafted.extents.iter().for_each(|_| self.alloc.release());
        written
    }

    /// Lays all members, small ones behind one another: each ends where a free extent begins, so
    /// whatever of their headers becomes durable can be walked.
    fn lay_members(&self, changes: &[&Change], drafted: &mut Drafted) -> Result<(), Error> {
        let drafts: Vec<Draft<'_>> = changes.iter().map(|change| draft(change)).collect();
        let mut laid: Vec<(usize, Laid)> = Vec::with_capacity(drafts.len());
        for group in self.groups(&drafts) {
            let blocks: u64 = group.iter().map(|index| self.region.superblock.blocks_of(drafts[*index].bytes())).sum();
            let extent = self.room(blocks as u32, drafted.extents.len() as u64)?;
            drafted.extents.push((extent, blocks as u32));
            let mut rest = extent;
            for index in group {
                let member = self.lay(rest, &drafts[index])?;
                rest = behind(rest, member.header.blocks);
                laid.push((index, member));
            }
        }
        laid.sort_unstable_by_key(|(index, _)| *index);
        drafted.members = laid.into_iter().map(|(_, member)| member).collect();
        Ok(self.region.pmem.fence()?)
    }

    /// Which members share an extent.
    fn groups(&self, drafts: &[Draft<'_>]) -> Vec<Vec<usize>> {
        let superblock = &self.region.superblock;
        let blocks_of = |index: &usize| superblock.blocks_of(drafts[*index].bytes());
        let (mut alone, mut sharing): (Vec<usize>, Vec<usize>) =
            (0..drafts.len()).partition(|index| blocks_of(index) > SMALL_BLOCKS);
        if alone.len() > ALONE_MAX {
            sharing.extend(alone.drain(ALONE_MAX..));
        }
        let mut groups: Vec<Vec<usize>> = alone.into_iter().map(|index| vec![index]).collect();
        let (mut left, segment_blocks) = (0, superblock.blocks_of(superblock.segment_bytes));
        for index in sharing {
            let blocks = blocks_of(&index);
            match groups.last_mut().filter(|_| blocks <= left) {
                Some(group) => group.push(index),
                None => {
                    groups.push(vec![index]);
                    left = segment_blocks.max(blocks);
                }
            }
            left -= blocks;
        }
        groups
    }

    /// Whether conditions hold, all at one instant.
    fn check_all(&self, checks: &[&Change], wall: Wall) -> Result<Written, Error> {
        let slots = self.lock_all(checks)?;
        let unmet = self.judge_all(&slots, checks, wall)?;
        Ok(unmet.map_or(Written::Done { version: 0, existed: false }, Written::Unmet))
    }

    fn lock_all(&self, changes: &[&Change]) -> Result<Vec<Slot<'_>>, Error> {
        let hashes: Vec<u64> = changes.iter().map(|change| self.hash_of(change.key.encoded())).collect();
        self.table.lock_all(&hashes).ok_or(Error::Unknown("the hash table is not whole"))
    }

    /// The first condition that does not hold.
    fn judge_all(&self, slots: &[Slot<'_>], checks: &[&Change], wall: Wall) -> Result<Option<Unmet>, Error> {
        for (slot, check) in slots.iter().zip(checks) {
            let current = self.current(slot, check.key.encoded())?;
            if let Err(unmet) = judge(current.as_ref(), check.expect, wall) {
                return Ok(Some(unmet));
            }
        }
        Ok(None)
    }

    fn commit(
        &self,
        (changes, checks): (&[&Change], &[&Change]),
        members: &mut [Laid],
        wall: Wall,
    ) -> Result<Written, Error> {
        let Some(number) = self.commits.take() else {
            self.check_writable()?;
            return Err(Error::Unknown("no commit word could be had"));
        };
        let committed = self.lock_all(&[changes, checks].concat()).and_then(|mut slots| {
            let checked = slots.split_off(changes.len());
            match self.judge_all(&checked, checks, wall)? {
                Some(unmet) => Ok(Written::Unmet(unmet)),
                None => self.commit_locked(number, (slots, checked), changes, members, wall),
            }
        });
        match committed {
            // What failed in the middle keeps its word: opening decides by it.
            Err(Error::Unknown(_)) => self.commits.end(),
            _ => self.commits.give(number),
        }
        committed
    }

    fn commit_locked(
        &self,
        number: u64,
        (slots, checked): (Vec<Slot<'_>>, Vec<Slot<'_>>),
        changes: &[&Change],
        members: &mut [Laid],
        wall: Wall,
    ) -> Result<Written, Error> {
        self.check_writable()?;
        let mut targets: Vec<Target<'_>> = Vec::with_capacity(changes.len());
        let mut existed = false;
        for (slot, change) in slots.into_iter().zip(changes) {
            let current = self.current(&slot, change.key.encoded())?;
            match judge(current.as_ref(), change.expect, wall) {
                Ok(exists) => existed = exists,
                Err(unmet) => return Ok(Written::Unmet(unmet)),
            }
            let removes = matches!(change.kind, ChangeKind::Delete);
            let found = current.as_ref().map(|current| current.found);
            targets.push(Target { slot, current, found, removes, kept: false });
        }
        self.reserve(&mut targets)?;
        let writing = self.snapshots.write();
        let version = self.next_version().and_then(|version| match commit_value(version) {
            0 => self.next_version(),
            _ => Ok(version),
        });
        let version = version.inspect_err(|_| release(&targets))?;
        if let Err(error) = self.make_durable(number, version, &targets, members) {
            release(&targets);
            return Err(self.fail(&error));
        }
        for (target, change) in targets.iter_mut().zip(changes) {
            let keep = |current| self.keep(change.key.encoded(), current, version);
            target.kept = target.current.as_ref().is_some_and(keep);
        }
        self.publish_all(&targets, changes, members);
        drop(writing);
        self.carry_out(number, &targets, members).map_err(|error| self.fail(&error))?;
        // What is checked stays locked until the changes are there, and no slot is when a snapshot
        // may end.
        drop(checked);
        self.give_back(targets, members);
        changes.iter().for_each(|change| self.orders.apply_waiting(change.key.encoded()));
        Ok(Written::Done { version, existed })
    }

    /// Entries for new keys.
    fn reserve(&self, targets: &mut [Target<'_>]) -> Result<(), Error> {
        for index in 0..targets.len() {
            let target = &mut targets[index];
            if target.found.is_none() && !target.removes {
                target.found = target.slot.reserve();
                if target.found.is_none() {
                    release(&targets[..index]);
                    return Err(TABLE_FULL);
                }
            }
        }
        Ok(())
    }

    /// The members, and then the word that says that they count.
    fn make_durable(
        &self,
        number: u64,
        version: u64,
        targets: &[Target<'_>],
        members: &mut [Laid],
    ) -> Result<(), PmemError> {
        for (target, member) in targets.iter().zip(&mut *members) {
            match (target.removes, &target.current) {
                (false, _) => self.store_header(member, version, Kind::Member)?,
                (true, Some(_)) => self.store_header(member, version, Kind::Removal)?,
                // Nothing to remove. It has to end where the next one begins all the same.
                (true, None) => {
                    self.region.set_first(self.region.offset(member.place), First::free(member.header.blocks))?;
                }
            }
        }
        self.fence_members()?;
        self.region.set_commit(number, commit_value(version))?;
        fault_point!("hash_commit_not_fenced", return Ok(()));
        self.region.pmem.fence()
    }

    /// The members are durable before the word says that they count.
    fn fence_members(&self) -> Result<(), PmemError> {
        fault_point!("hash_members_not_fenced", return Ok(()));
        self.region.pmem.fence()
    }

    /// Lets readers see all of it: nobody who has seen one change sees what another one replaces.
    fn publish_all(&self, targets: &[Target<'_>], changes: &[&Change], members: &[Laid]) {
        for (target, member) in targets.iter().zip(members) {
            fault_point!("hash_batch_shown_by_halves", continue);
            if let Some(found) = target.found {
                target.slot.announce(found, target.current.as_ref().map_or(member.place, |_| found.place));
            }
        }
        let all = || targets.iter().zip(changes).zip(members);
        for ((target, change), member) in all() {
            let (before, key) = (target.current.as_ref().map(|current| &current.header), change.key.encoded());
            match target.removes {
                true if before.is_some() => self.leave_order(key),
                true => {}
                false => self.order(key, before, member.header.expiry),
            }
        }
        for (target, member) in targets.iter().zip(members) {
            let Some(found) = target.found else { continue };
            if target.removes { target.slot.remove(found) } else { target.slot.replace(found, member.place) }
        }
        for ((target, change), member) in all() {
            let before = target.current.as_ref().map_or(0, |current| current.header.expiry);
            let comes = (!target.removes).then_some((member.header.expiry, member.place));
            self.note_expiry(change.key.encoded(), before, comes);
        }
    }

    /// Makes the medium say without the word what it says with it; then takes the word back.
    fn carry_out(&self, number: u64, targets: &[Target<'_>], members: &[Laid]) -> Result<(), PmemError> {
        for (target, member) in targets.iter().zip(members) {
            if let Some(current) = &target.current {
                let old = current.header.first().with(Kind::Free);
                self.region.set_first(self.region.offset(current.found.place), old)?;
            }
            if !target.removes {
                self.region.set_first(self.region.offset(member.place), member.header.first())?;
            }
        }
        self.fence_kinds()?;
        self.region.set_commit(number, 0)?;
        for (target, member) in targets.iter().zip(members) {
            if target.removes && target.current.is_some() {
                let free = member.header.first().with(Kind::Free);
                self.region.set_first(self.region.offset(member.place), free)?;
            }
        }
        self.region.pmem.fence()
    }

    /// What the word said is durable without it, before the word is taken back.
    fn fence_kinds(&self) -> Result<(), PmemError> {
        fault_point!("hash_word_taken_back_early", return Ok(()));
        self.region.pmem.fence()
    }

    /// Space that nothing needs any more.
    fn give_back(&self, targets: Vec<Target<'_>>, members: &[Laid]) {
        let old = targets.iter().filter_map(|target| target.current.as_ref().map(|current| (current, target.kept)));
        let extent = |current: &Current<'_>| Extent { place: current.found.place, blocks: current.header.blocks };
        let old: Vec<(Extent, bool)> = old.map(|(current, kept)| (extent(current), kept)).collect();
        let removals = targets.iter().zip(members).filter(|(target, _)| target.removes);
        let removals: Vec<Extent> = removals.map(|(_, member)| member.extent()).collect();
        drop(targets);
        // No reader has ever seen a removal.
        removals.into_iter().for_each(|extent| self.alloc.free(extent));
        old.into_iter().for_each(|(extent, kept)| self.release(extent, kept));
    }
}

/// Takes back the entries that were reserved.
fn release(targets: &[Target<'_>]) {
    for target in targets.iter().filter(|target| target.current.is_none()) {
        if let Some(found) = target.found {
            target.slot.remove(found);
        }
    }
}
