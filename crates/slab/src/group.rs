//! Commit groups: what a placement has sealed is written, flushed if asked, then becomes the
//! durable state.
//!
//! ```text
//!  placement   seals pages, or batches of a log    in_place/seal.rs, packed/commit.rs: `seal`
//!      | launch
//!  in flight   its writes are submitted            group_written counts them down
//!      |
//!      +--- write-through, or needs no flush ------------+
//!      | needs a flush                                   |
//!  written     pump_flush submits one for all of them    |
//!      | flushed                                         |
//!      +-------------------------------------------------+
//!      | apply_groups: in order, each when durable at its level
//!  published   the placement's `publish`: `publish` and `unpublish` turn the index
//!      | complete_change answers, and wakes the key's next write
//!  durable     with the next flush at the latest: release_deferred frees old places, and
//!              send_pending_acks answers who rests on it
//!
//!  any failure: poison. Nothing is written again, everything under way is answered.
//! ```
//!
//! What a group holds is the placement's; numbers, writes, flushes and the order are kept here.

use std::collections::VecDeque;

use stratakv_base::{Key, Level, fault_point};
use stratakv_device::{BlockPart, IoFault};
use stratakv_engine::{Effects, Error, Reply, Stage};
use stratakv_index::IndexEntry;

use crate::place::RecordPlace;
use crate::placement::{PlaceOf, Placement};
use crate::requests::IoPurpose;
use crate::shard::IndexedShard;
use crate::space::{Extent, offset};
use crate::write::{Change, Origin};

/// Pages deferred at which a flush is made for their sake.
const DEFERRED_PAGES: u32 = 256;

/// An answer to be given once a group is durable.
#[derive(Debug)]
struct PendingAck {
    origin: Origin,
    reply: Reply,
    group: u64,
}

/// A group under construction.
#[derive(Debug)]
pub(crate) struct GroupBuilder<M> {
    /// Where they begin, and their pages.
    pub(crate) writes: Vec<(u32, Vec<BlockPart>)>,
    pub(crate) members: Vec<M>,
    /// The highest that a user asked for.
    pub(crate) level: Option<Level>,
    /// It relies on slices of a blob that were written before.
    pub(crate) has_body: bool,
}

impl<M> Default for GroupBuilder<M> {
    fn default() -> Self {
        GroupBuilder { writes: Vec::new(), members: Vec::new(), level: None, has_body: false }
    }
}

#[derive(Debug)]
struct Group<M> {
    number: u64,
    last_sequence: u64,
    writes_left: u32,
    /// Not acknowledged before a flush covers it.
    needs_flush: bool,
    /// Durable as soon as it is written.
    writes_through: bool,
    members: Vec<M>,
}

/// The groups of a shard.
#[derive(Debug)]
pub(crate) struct Groups<M> {
    in_flight: VecDeque<Group<M>>,
    /// Numbers: the last one sealed, applied, durable.
    sealed: u64,
    applied: u64,
    durable: u64,
    applied_sequence: u64,
    durable_sequence: u64,
    /// The flush in flight covers groups up to this number, whose last sequence is this.
    flushing: Option<(u64, u64)>,
    /// Groups up to this number have been flushed.
    flushed: u64,
    /// Somebody waits for this group to be durable.
    wanted: u64,
    /// The last version or sequence given out.
    pub(crate) counter: u64,
    /// In the order of their groups: of those that are shown the number only grows.
    pending_acks: VecDeque<PendingAck>,
}

impl<M> Groups<M> {
    /// No groups yet; every sequence up to `durable_sequence` is durable.
    /// Numbers follow `counter`.
    pub(crate) fn new(durable_sequence: u64, counter: u64) -> Groups<M> {
        Groups {
            in_flight: VecDeque::new(),
            sealed: 0,
            applied: 0,
            durable: 0,
            applied_sequence: durable_sequence,
            durable_sequence,
            flushing: None,
            flushed: 0,
            wanted: 0,
            counter,
            pending_acks: VecDeque::new(),
        }
    }
    /// A new version or sequence: larger than any given out before, in this and earlier openings.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.durable_sequence
    }
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }
    pub(crate) fn applied_sequence(&self) -> u64 {
        self.applied_sequence
    }
    pub(crate) fn sealed(&self) -> u64 {
        self.sealed
    }
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
    /// Asks for a flush that makes `group` durable.
    pub(crate) fn want(&mut self, group: u64) {
        self.wanted = self.wanted.max(group);
    }
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.flushing.is_none()
    }
    /// Whether acknowledgements are yet to be sent.
    pub(crate) fn has_acks(&self) -> bool {
        !self.pending_acks.is_empty()
    }
    /// Whether every group so far is durable, or will be before it is applied.
    pub(crate) fn all_durable_when_applied(&self) -> bool {
        fault_point!("write_through_covers_everything", return true);
        self.durable == self.applied && self.in_flight.iter().all(|group| group.needs_flush || group.writes_through)
    }
    /// The last group such that it and all before it are written.
    fn written(&self) -> (u64, u64) {
        let written = self.in_flight.iter().take_while(|group| group.writes_left == 0).last();
        written.map_or((self.applied, self.applied_sequence), |group| (group.number, group.last_sequence))
    }
}

/// Those who asked for what is in a group wait for this from now on.
#[inline]
fn enter<P: Placement>(members: &[P::Member], stage: Stage, effects: &mut Effects) {
    if !effects.is_measuring() {
        return;
    }
    members.iter().for_each(|member| P::each_origin(member, &mut |origin| origin.enter(stage, effects)));
}

impl<P: Placement> IndexedShard<P> {
    /// Submits the writes of a group.
    pub(crate) fn launch(&mut self, group: GroupBuilder<P::Member>, effects: &mut Effects) {
        let GroupBuilder { writes, members, level, has_body } = group;
        self.groups.sealed += 1;
        self.io.counters.groups += 1;
        let number = self.groups.sealed;
        let volatile = self.config.geometry.volatile_cache;
        let mut needs_flush = volatile && level == Some(Level::PowerLoss);
        fault_point!("no_flush", needs_flush = false);
        // Write-through covers its own writes only: not the slices of a blob that were written
        // before, nor groups that were acknowledged without a flush, on which this one may rely. It
        // saves a tick; many writes are cheaper with one flush.
        let is_small = writes.len() <= P::WRITES_THROUGH_MAX;
        let through = needs_flush && is_small && !has_body && self.groups.all_durable_when_applied();
        enter::<P>(&members, Stage::Write, effects);
        self.groups.in_flight.push_back(Group {
            number,
            last_sequence: self.groups.counter,
            writes_left: writes.len() as u32,
            needs_flush: needs_flush && !through,
            writes_through: through || !volatile,
            members,
        });
        for (place, parts) in writes {
            self.io.counters.page_writes += 1;
            self.io.counters.write_bytes += parts.iter().map(|part| u64::from(part.len)).sum::<u64>();
            let io = self.io.start(IoPurpose::Group { number });
            effects.write(io, offset(place), parts, through);
        }
    }

    /// A write of a group is done.
    pub(crate) fn group_written(&mut self, number: u64, result: Result<(), IoFault>, effects: &mut Effects) {
        if let Err(fault) = result {
            return self.poison(fault, "a page could not be written", effects);
        }
        if let Some(group) = self.groups.in_flight.iter_mut().find(|group| group.number == number) {
            group.writes_left -= 1;
            if group.writes_left == 0 {
                let stage = if group.needs_flush { Stage::Flush } else { Stage::Order };
                enter::<P>(&group.members, stage, effects);
            }
        }
        self.apply_groups(effects);
    }

    /// Submits a flush if a written group, the deferred free list, a Sync or a clearing waits for
    /// one.
    pub(crate) fn pump_flush(&mut self, effects: &mut Effects) {
        if self.groups.flushing.is_some() || self.health.poisoned.is_some() {
            return;
        }
        if let Some(target) = self.groups.pending_acks.back().map(|pending_ack| pending_ack.group) {
            self.groups.want(target);
        }
        let is_short = self.space.deferred_pages() > 0 && (P::is_short_of_space(self) || self.waits_for_space());
        if is_short || self.space.deferred_pages() >= DEFERRED_PAGES {
            self.groups.want(self.space.deferred_waits_for().unwrap_or_default());
        }
        let (mut covers, sequence) = self.groups.written();
        fault_point!("flush_covers_writes_in_flight", covers = self.groups.sealed);
        let waiting = self.groups.in_flight.iter().take_while(|group| group.writes_left == 0);
        let needed = waiting.into_iter().any(|group| group.needs_flush && group.number > self.groups.flushed);
        let wanted = self.groups.wanted > self.groups.durable && covers > self.groups.durable;
        let needed = needed || wanted || self.placement.wants_flush();
        if needed && self.io.submit_flush(IoPurpose::Flush { covers }, effects) {
            self.placement.flush_begun();
            self.groups.flushing = Some((covers, sequence));
        }
    }

    /// A flush is done.
    pub(crate) fn flushed(&mut self, covers: u64, result: Result<(), IoFault>, effects: &mut Effects) {
        let sequence = self.groups.flushing.take().map_or(0, |(_, sequence)| sequence);
        if let Err(fault) = result {
            return self.poison(fault, "a flush failed", effects);
        }
        if self.health.poisoned.is_some() {
            return;
        }
        self.groups.flushed = self.groups.flushed.max(covers);
        P::flush_done(self);
        self.apply_groups(effects);
        if covers > self.groups.durable {
            self.groups.durable = covers;
            self.groups.durable_sequence = sequence;
        }
        self.release_deferred(effects);
    }

    /// Publishes the groups that are durable at their level, in order.
    fn apply_groups(&mut self, effects: &mut Effects) {
        let durable = self.groups.durable;
        while let Some(group) = self.groups.in_flight.front() {
            let mut written = group.writes_left == 0;
            fault_point!("group_half_applied", written = group.writes_left <= 1);
            let mut ready = written && (!group.needs_flush || group.number <= self.groups.flushed);
            fault_point!("acknowledge_before_completion", ready = true);
            if !ready {
                break;
            }
            let Some(group) = self.groups.in_flight.pop_front() else { break };
            self.apply(group, effects);
        }
        if self.groups.durable != durable {
            self.release_deferred(effects);
        }
    }

    fn apply(&mut self, group: Group<P::Member>, effects: &mut Effects) {
        self.groups.applied = group.number;
        self.groups.applied_sequence = group.last_sequence;
        if group.writes_through && self.groups.durable + 1 == group.number {
            self.groups.durable = group.number;
            self.groups.durable_sequence = group.last_sequence;
        }
        P::publish(self, group.members, group.number, effects);
    }

    /// Puts a change into the index; the place of the record before it, if that is another one.
    pub(crate) fn publish(&mut self, change: &Change<P>) -> Option<PlaceOf<P>> {
        let entry = IndexEntry { place: change.place.to_bits(), expiry: change.expiry };
        let old = self.index.insert(change.finger, &change.key, entry);
        if let RecordPlace::Blob { pages, .. } = change.place {
            self.blobs.pages += u64::from(pages);
        }
        let old = old?;
        if old.place == entry.place {
            return None;
        }
        fault_point!("stale_index_after_class_change", self.index.tree.insert(change.key.encoded(), old));
        Some(RecordPlace::from_bits(old.place))
    }

    /// Takes a key out of the index; the place of its record.
    pub(crate) fn unpublish(&mut self, key: &Key) -> Option<PlaceOf<P>> {
        self.index.remove(key).map(|old| RecordPlace::from_bits(old.place))
    }

    /// A change is published: answers it, and releases its key.
    pub(crate) fn complete_change(&mut self, change: Change<P>, drained: &mut Vec<Key>, effects: &mut Effects) {
        let key = change.key;
        if let Some(ack) = change.ack {
            self.answer(ack.origin, ack.reply, effects);
        }
        self.backup_saw_end(&key);
        if self.keys.change_ended(&key) {
            drained.push(key);
        }
    }

    /// Nothing names this blob any more since `group`.
    pub(crate) fn release_blob(&mut self, extent: Extent, mut group: u64) {
        fault_point!("run_freed_before_it_is_cleared", group = 0);
        self.blobs.pages -= u64::from(extent.pages);
        self.blobs.tags.remove(&extent.first);
        self.space.release_after(group, extent);
    }

    /// Frees what waited for durability; whoever waits for space tries again.
    pub(crate) fn release_deferred(&mut self, effects: &mut Effects) {
        let (placement, blobs) = (&self.placement, &self.blobs.reads);
        let before = self.space.free_pages();
        self.space.release_durable(self.groups.durable, |extent| {
            fault_point!("reuse_a_page_with_a_read_in_flight", return false);
            placement.pins(extent) || blobs.pins(extent)
        });
        if self.space.free_pages() != before {
            self.space_came(effects);
        }
    }

    /// A write or flush failed: what is on the medium is not known any more. Everything under way
    /// is answered, nothing is written again until the volume is reopened; reads go on from the
    /// durable state.
    pub(crate) fn poison(&mut self, fault: IoFault, what: &'static str, effects: &mut Effects) {
        if self.health.poisoned.is_some() {
            return;
        }
        tracing::error!(%fault, shard = self.config.shard, "{what}: the volume takes no more writes");
        self.health.poisoned = Some(fault);
        let members = std::mem::take(&mut self.groups.in_flight).into_iter().flat_map(|group| group.members);
        let unknown: Vec<Change<P>> = members.flat_map(P::changes_of).collect();
        let mut unwritten = self.placement.abandon();
        unwritten.extend(self.abandon_blob_writes());
        let refused = || Reply::Failed(Error::Poisoned(fault));
        let acks = unknown.into_iter().map(|change| (change.ack, Reply::Failed(Error::Unknown(what))));
        for (ack, reply) in acks.chain(unwritten.into_iter().map(|change| (change.ack, refused()))) {
            if let Some(ack) = ack {
                self.answer(ack.origin, reply, effects);
            }
        }
        for work in self.keys.abandon() {
            self.answer(work.origin, refused(), effects);
        }
        self.fail_ranges(&Error::Poisoned(fault), effects);
        self.send_pending_acks(effects);
    }

    /// Gives an answer that rests on what is shown now, without a change of its own: at power loss
    /// once all of that is durable.
    pub(crate) fn answer_when_durable(&mut self, origin: Origin, level: Level, reply: Reply, effects: &mut Effects) {
        fault_point!("delete_of_nothing_at_once", return self.answer(origin, reply, effects));
        let group = self.groups.applied();
        if level < Level::PowerLoss || group <= self.groups.durable() {
            return self.answer(origin, reply, effects);
        }
        origin.enter(Stage::Flush, effects);
        self.groups.pending_acks.push_back(PendingAck { origin, reply, group });
    }

    /// Sends the pending acknowledgements whose group is durable.
    pub(crate) fn send_pending_acks(&mut self, effects: &mut Effects) {
        let (durable, poisoned) = (self.groups.durable(), self.health.poisoned);
        let asked_for = self.groups.pending_acks.back().map(|newest| newest.group);
        while let Some(pending_ack) =
            self.groups.pending_acks.pop_front_if(|next| poisoned.is_some() || next.group <= durable)
        {
            let reply = poisoned.map_or(pending_ack.reply, |fault| Reply::Failed(Error::Poisoned(fault)));
            self.answer(pending_ack.origin, reply, effects);
        }
        // The last delete of a range brings the answer to the range, for which no flush was asked.
        let mut is_asked_for = self.groups.pending_acks.back().map(|newest| newest.group) <= asked_for;
        fault_point!("library_flush_for_a_range_is_not_asked_for", is_asked_for = true);
        if !is_asked_for {
            effects.more();
        }
    }
}
