//! [`Scheduler`]: the operations of a shard, from their beginning to their replies. It owns those
//! that are suspended, what each waits for, the locks of keys, and the replies that are held back.
//! `operation_steps.rs` runs the steps; whoever gives what somebody waits for calls
//! [`Scheduler::wake`]. It changes nothing of the store.
//!
//! An operation waits in one of these places:
//! - in the list of a [`WaitFor`];
//! - for reads: [`Suspended::missing`] counts them, and the last one wakes it;
//! - for its keys: [`KeyLockQueue`] gives it its turn;
//! - for a message of another shard, where its prepare record rests.

use std::collections::VecDeque;

use foldhash::{HashMap, HashSet};
use stratakv_device::BlockPart;
use stratakv_engine::{Error, Reply, Token};

use crate::acks::Acks;
use crate::key_locks::KeyLockQueue;
use crate::operations::{Suspended, Work};
use crate::walk::Walks;

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Nothing any more: its next step is due.
    Step,
    /// Room in the container, in order of arrival.
    ContainerRoom,
    /// Room to read a long value in.
    Memory,
    /// A manifest to be installed, or the volume to grow.
    VolumeRoom,
    /// Records that it may visit.
    Visits,
    /// Its long values to be written to the volume.
    BlobWrite,
}

/// Lists of those who wait, one for each [`WaitFor`].
const LISTS: usize = WaitFor::BlobWrite as usize + 1;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    suspended: HashMap<u64, Suspended>,
    waiting: [VecDeque<u64>; LISTS],
    key_locks: KeyLockQueue,
    last_id: u64,
    acks: Acks,
    walks: Walks,
}

impl Scheduler {
    /// The number of the next operation.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Whether the first step of an operation can run now: nobody has its keys, and no write waits
    /// for room before it.
    pub(crate) fn may_begin(&self, work: &Work) -> bool {
        !work.is_write() || (self.key_locks.is_free(work) && !self.is_awaited(WaitFor::ContainerRoom))
    }

    /// A write waits for its keys.
    pub(crate) fn queue(&mut self, id: u64, suspended: Suspended) {
        self.key_locks.queue(id, &suspended.work);
        self.suspended.insert(id, suspended);
    }

    /// Keeps an operation of which a step ran; a write holds its keys from here on. `queued`: it
    /// does already.
    pub(crate) fn suspend(&mut self, id: u64, suspended: Suspended, queued: bool) {
        if suspended.work.is_write() && !queued {
            self.key_locks.queue(id, &suspended.work);
        }
        self.suspended.insert(id, suspended);
    }

    /// As [`Scheduler::suspend`], until this is there.
    pub(crate) fn suspend_for(&mut self, wait: WaitFor, id: u64, suspended: Suspended, queued: bool) {
        self.suspend(id, suspended, queued);
        self.wait(wait, id);
    }

    /// A suspended operation waits for something else now.
    pub(crate) fn wait(&mut self, wait: WaitFor, id: u64) {
        self.waiting[wait as usize].push_back(id);
    }

    /// The first one that waits for this does so no more.
    pub(crate) fn next(&mut self, wait: WaitFor) -> Option<u64> {
        self.waiting[wait as usize].pop_front()
    }

    /// How many wait for this.
    pub(crate) fn waiting(&self, wait: WaitFor) -> usize {
        self.waiting[wait as usize].len()
    }

    pub(crate) fn is_awaited(&self, wait: WaitFor) -> bool {
        !self.waiting[wait as usize].is_empty()
    }

    /// What these waited for is there: each has its next step.
    pub(crate) fn wake(&mut self, wait: WaitFor) {
        let [steps, others @ ..] = &mut self.waiting;
        if let Some(list) = (wait as usize).checked_sub(1).and_then(|at| others.get_mut(at)) {
            steps.append(list);
        }
    }

    /// The same for the first one alone.
    pub(crate) fn wake_first(&mut self, wait: WaitFor) {
        let first = self.next(wait);
        self.waiting[WaitFor::Step as usize].extend(first);
    }

    /// Whether this one came last, so that it waits again for what it was just let go on with; then
    /// it is the first one again, and the others wait behind it.
    pub(crate) fn stays_first(&mut self, wait: WaitFor, id: u64) -> bool {
        let list = &mut self.waiting[wait as usize];
        let stays = list.back() == Some(&id);
        if stays {
            list.rotate_right(1);
        }
        stays
    }

    /// A read that an operation waits for is over, and brought these pages.
    pub(crate) fn read_done(&mut self, id: u64, pages: impl Iterator<Item = ((u64, u32), BlockPart)>) {
        let Some(suspended) = self.suspended.get_mut(&id) else { return };
        suspended.pins.extend(pages);
        suspended.missing = suspended.missing.saturating_sub(1);
        if suspended.missing == 0 {
            self.wait(WaitFor::Step, id);
        }
    }

    /// Takes an operation, to run a step of it or to end it.
    pub(crate) fn take(&mut self, id: u64) -> Option<Suspended> {
        self.suspended.remove(&id)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Suspended> {
        self.suspended.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Suspended> {
        self.suspended.get_mut(&id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Suspended> {
        self.suspended.values()
    }

    /// The next write whose keys are free, since a write before it is over. None while a write
    /// waits for room.
    pub(crate) fn next_with_keys(&mut self) -> Option<(u64, Suspended)> {
        while !self.is_awaited(WaitFor::ContainerRoom)
            && let Some(id) = self.key_locks.next_candidate()
        {
            let has_turn = |suspended: &Suspended| !suspended.begun && self.key_locks.has(id, &suspended.work);
            if self.suspended.get(&id).is_some_and(has_turn) {
                return self.take(id).map(|suspended| (id, suspended));
            }
        }
        None
    }

    /// An operation that had its keys, or waited for them, is over.
    pub(crate) fn release_keys(&mut self, id: u64, work: &Work) {
        self.key_locks.done(id, work);
    }

    /// All writes in the order in which they came, with whether a part of each is done: they will
    /// fail, and none waits for room any more.
    pub(crate) fn give_up_writes(&mut self) -> Vec<(u64, bool)> {
        self.waiting[WaitFor::ContainerRoom as usize].clear();
        let writes = self.suspended.iter().filter(|(_, suspended)| suspended.work.is_write());
        let mut writes: Vec<_> = writes.map(|(id, suspended)| (*id, suspended.work.is_begun())).collect();
        writes.sort_unstable();
        writes
    }

    /// Operations that are given up: they do not wait for memory any more.
    pub(crate) fn give_up(&mut self, is_given_up: impl Fn(&Suspended) -> bool) -> HashSet<u64> {
        let all = self.suspended.iter();
        let ids: HashSet<u64> = all.filter(|(_, suspended)| is_given_up(suspended)).map(|(id, _)| *id).collect();
        self.waiting[WaitFor::Memory as usize].retain(|id| !ids.contains(id));
        ids
    }

    /// Whether an operation goes on though a page that it wanted is damaged.
    pub(crate) fn bears(&mut self, id: u64, error: &Error) -> bool {
        self.suspended.get_mut(&id).is_some_and(|suspended| suspended.bears(error))
    }

    /// Everybody but the oldest operation lets go of what was read for it.
    pub(crate) fn release_pins(&mut self) {
        let oldest = self.suspended.keys().min().copied();
        let others = self.suspended.iter_mut().filter(|(id, _)| Some(**id) != oldest);
        others.for_each(|(_, suspended)| suspended.pins.clear());
    }

    /// Whether no write has its keys or waits for them.
    pub(crate) fn has_no_writes(&self) -> bool {
        self.key_locks.is_idle()
    }

    /// Whether nothing is under way and no reply is held back.
    pub(crate) fn is_idle(&self) -> bool {
        self.suspended.is_empty() && !self.acks.any_pending() && !self.acks.any_syncs()
    }

    /// Replies that are held back.
    pub(crate) fn acks(&mut self) -> &mut Acks {
        &mut self.acks
    }

    /// Holds a reply back until all up to `version` is durable.
    pub(crate) fn reply_when_durable(&mut self, token: Token, reply: Reply, version: u64) {
        self.acks.hold(token, reply, version);
    }

    /// What walks over records share.
    pub(crate) fn walks(&self) -> &Walks {
        &self.walks
    }

    pub(crate) fn walks_mut(&mut self) -> &mut Walks {
        &mut self.walks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_woken_has_its_step_in_the_order_in_which_it_waited() {
        let mut scheduler = Scheduler::default();
        for (id, wait) in
            [(1, WaitFor::Memory), (2, WaitFor::VolumeRoom), (3, WaitFor::Memory), (4, WaitFor::VolumeRoom)]
        {
            scheduler.wait(wait, id);
        }
        scheduler.wake(WaitFor::VolumeRoom);
        scheduler.wake_first(WaitFor::Memory);
        assert!(!scheduler.is_awaited(WaitFor::VolumeRoom) && scheduler.is_awaited(WaitFor::Memory));
        let steps: Vec<u64> = std::iter::from_fn(|| scheduler.next(WaitFor::Step)).collect();
        assert_eq!(steps, [2, 4, 1]);
    }

    /// The first one that finds no room would have gone behind those who came later.
    #[test]
    fn who_finds_no_room_again_stays_the_first() {
        let mut scheduler = Scheduler::default();
        [7, 8, 9].into_iter().for_each(|id| scheduler.wait(WaitFor::ContainerRoom, id));
        let first = scheduler.next(WaitFor::ContainerRoom).expect("it waits");
        assert!(!scheduler.stays_first(WaitFor::ContainerRoom, first));
        scheduler.wait(WaitFor::ContainerRoom, first);
        assert!(scheduler.stays_first(WaitFor::ContainerRoom, first));
        assert_eq!(scheduler.next(WaitFor::ContainerRoom), Some(7));
    }
}
