//! A volume whose journal cannot be written: the cache goes on in DRAM.
//!
//! What is on the volume must not count any more, neither now nor after a crash, and the journal
//! can no longer say so key by key: a superblock that calls all of it void does. Until it is
//! written nobody is answered. If it cannot be written either, the device is dead, or nearly: then
//! a key that has a copy there which a recovery might take for the newest (`returning`) is neither
//! shown nor written, as that write could not be kept over a crash; all others are served from
//! DRAM. The superblock is tried again now and then: once it is there no key is refused any more.

use stratakv_device::IoFault;
use stratakv_engine::{Effects, Error, Reply};

use crate::closing::Closing;
use crate::drops::DropReason;
use crate::index::{Loc, Tag};
use crate::tier::Tier;

const NOT_VOID: &str = "the volume cannot be written, and what is on it cannot be called void";

impl Tier {
    /// The journal cannot be written.
    pub(crate) fn lose_volume(&mut self, fault: IoFault, effects: &mut Effects) {
        if self.volume.as_ref().is_none_or(|volume| volume.is_lost) {
            return;
        }
        tracing::error!(%fault, shard = self.config.shard, "the journal cannot be written: the cache goes on in DRAM only");
        let in_dram = self.returning_from_dram();
        let Some(volume) = &mut self.volume else { return };
        volume.is_lost = true;
        volume.spills.forget_holes();
        volume.returning.extend(in_dram);
        volume.returning.extend(volume.journal.unwritten());
        volume.returning.extend(volume.spills.tags_under_way());
        volume.journal.hold();
        let returning = &mut volume.returning;
        let gone = self.index.retain(|tag, loc| {
            if loc.is_on_volume() {
                returning.insert(tag);
            }
            !loc.is_on_volume()
        });
        self.evictions.count(DropReason::VolumeLost, gone);
        self.write_void(effects);
    }

    /// Tags of items in DRAM that have a copy on the volume, or may have one soon.
    fn returning_from_dram(&self) -> Vec<Tag> {
        let Some(volume) = &self.volume else { return Vec::new() };
        let mut tags = Vec::new();
        for slot in 0..self.segments.slots() as u32 {
            let Some(segment) = self.segments.get(slot) else { continue };
            for (offset, header) in segment.walk() {
                let has_copy = segment.order.is_some()
                    || segment.ssd_address(offset, &header).is_some_and(|ssd_address| volume.may_return(&ssd_address));
                if has_copy {
                    let tag = Tag::of(&segment.key(offset, &header));
                    tags.extend(self.index.at(tag, Loc::dram(slot, offset)).map(|_| tag));
                }
            }
        }
        tags
    }

    /// A superblock that says that nothing on the volume counts.
    pub(crate) fn write_void(&mut self, effects: &mut Effects) {
        self.superblock.set_void();
        self.write_superblock(effects);
    }

    pub(crate) fn superblock_written(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        let is_lost = self.volume.as_ref().is_some_and(|volume| volume.is_lost);
        match result {
            Ok(()) => {
                if is_lost {
                    self.voided();
                }
                if self.ending.phase() == Closing::Superblock {
                    self.ending.enter(Closing::Closed);
                }
            }
            Err(fault) => {
                self.counters.write_errors += 1;
                let is_saved = self.superblock.get().clean;
                if self.superblock.has_failed(self.now.mono) {
                    return;
                }
                if is_saved {
                    tracing::error!(%fault, shard = self.config.shard, "the end could not be noted on the volume");
                    self.counters.last_fault = Some(fault);
                    self.fail_end();
                }
                if self.ending.phase() == Closing::Superblock {
                    self.ending.enter(Closing::Closed);
                } else if is_lost {
                    self.give_up_volume(effects);
                }
            }
        }
    }

    /// Nothing on the volume counts, whatever comes: nobody waits for it.
    fn voided(&mut self) {
        if let Some(volume) = &mut self.volume {
            volume.journal.abandon();
            volume.returning = Default::default();
        }
        self.superblock.has_succeeded();
    }

    /// Whether nothing on a lost volume counts.
    pub(crate) fn is_void(&self) -> bool {
        self.superblock.is_written()
    }

    /// Everybody is served without the volume, but for keys that have a copy there.
    fn give_up_volume(&mut self, effects: &mut Effects) {
        let is_first = self.superblock.retry_later(self.now.mono);
        let Some(volume) = self.volume.as_mut().filter(|_| is_first) else { return };
        volume.journal.abandon();
        let returning = &volume.returning;
        tracing::error!(
            shard = self.config.shard,
            keys = returning.len(),
            "what is on the volume cannot be called void: keys that have a copy there are not served until it can be; exchange the device"
        );
        let gone = self.index.retain(|tag, _| !returning.contains(&tag));
        self.evictions.count(DropReason::VolumeLost, gone);
        while let Some(acks) = self.operations.next_acks(|_| true) {
            for (token, tag, reply) in acks {
                let is_safe = tag.map_or(returning.is_empty(), |tag| !returning.contains(&tag));
                effects.reply(token, if is_safe { reply } else { Reply::Failed(Error::Unknown(NOT_VOID)) });
            }
        }
    }

    /// Why a write of this tag, or of all, cannot be kept over a crash, if it cannot.
    pub(crate) fn refusal_of(&self, tag: Option<Tag>) -> Option<Error> {
        // Before the first tries are over nothing is refused: it is answered when they are.
        let volume = self.volume.as_ref().filter(|_| self.superblock.is_given_up())?;
        let returns = tag.map_or(!volume.returning.is_empty(), |tag| volume.returning.contains(&tag));
        let what = "calling an older copy on the volume void";
        returns.then_some(Error::Io { what, fault: IoFault::Os(5) })
    }

    /// Tries again to write a superblock: that of an orderly end is right as it is, and the next
    /// one would call all of it void.
    pub(crate) fn pump_superblock(&mut self, effects: &mut Effects) {
        match self.superblock.retries_at() {
            Some(at) if at > self.now.mono => effects.wake_at(at),
            Some(_) if self.superblock.get().clean => self.write_superblock_again(effects),
            Some(_) => self.write_void(effects),
            None => {}
        }
    }
}
