//! [`OperationQueues`]: operations that are not answered yet, and what each of them waits for.
//!
//! An operation is in one place: among writes that wait for room (`held`), suspended, or a reply
//! that waits for the journal. A suspended one waits for reads, for another write of its tag
//! (`busy`), for room (`cramped`), or for its turn (`ready`). `operations.rs` runs them; reads that
//! end are reported by `fetch.rs`. It never runs a step itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use foldhash::HashMap;
use stratakv_engine::{Reply, Token};

use crate::fetch::Fetched;
use crate::index::{Loc, Tag};
use crate::operations::Work;

/// Writes that may wait for room.
const HELD_MAX: usize = 1024;

/// What was read for an operation: the place, and the item if there is a whole one.
pub(crate) type LookupResult = (Loc, Option<Arc<Fetched>>);

/// A reply that waits for the journal, and of which tag it tells; of none: of every one.
pub(crate) type PendingAck = (Token, Option<Tag>, Reply);

/// An operation that waits for reads, or for one that does.
#[derive(Debug)]
pub(crate) struct Suspended {
    pub(crate) token: Token,
    /// In a box, so that it is moved cheaply.
    pub(crate) work: Box<Work>,
    pub(crate) tag: Tag,
    pub(crate) lookup_results: Vec<LookupResult>,
    /// Reads that are missing.
    pub(crate) waiting: usize,
    /// First pages of segments on the volume that stay as they are until it is done.
    pub(crate) pins: Vec<u64>,
    pub(crate) is_cancelled: bool,
}

impl Suspended {
    pub(crate) fn new(token: Token, work: Work, tag: Tag) -> Suspended {
        let work = Box::new(work);
        Suspended { token, work, tag, lookup_results: Vec::new(), waiting: 0, pins: Vec::new(), is_cancelled: false }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OperationQueues {
    suspended: HashMap<u64, Suspended>,
    /// The last name that was given to a suspended one.
    last: u64,
    ready: VecDeque<u64>,
    /// Suspended writes that found no room, in order: the first one tries, and those behind it once
    /// that is done.
    cramped: VecDeque<u64>,
    /// Tags with a suspended write, and the writes that wait for it.
    busy: HashMap<Tag, VecDeque<u64>>,
    /// Writes that wait for room, and those behind them.
    held: VecDeque<(Token, Work)>,
    /// By the group of the journal that they wait for.
    pending_acks: BTreeMap<u64, Vec<PendingAck>>,
    /// See [`stratakv_engine::Shard::statistics`].
    steps: u64,
    stalled_ticks: u64,
}

impl OperationQueues {
    /// Whether no more are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= HELD_MAX
    }

    /// Whether everything was answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.suspended.is_empty() && self.held.is_empty() && self.pending_acks.is_empty()
    }

    /// Whether writes wait for room.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// A tick ends. Whether something waits for its turn or for room.
    pub(crate) fn end_tick(&mut self) -> bool {
        self.stalled_ticks += u64::from(self.has_held());
        self.has_held() || !self.ready.is_empty() || !self.cramped.is_empty()
    }

    /// A write is the last of those that wait for room. Whether it is the only one.
    pub(crate) fn hold(&mut self, token: Token, work: Work) -> bool {
        self.held.push_back((token, work));
        self.held.len() == 1
    }

    pub(crate) fn next_held(&mut self) -> Option<(Token, Work)> {
        self.held.pop_front()
    }

    /// It found no room, and is the first to try again.
    pub(crate) fn hold_first(&mut self, token: Token, work: Work) {
        self.held.push_front((token, work));
    }

    /// Whether a write is suspended.
    pub(crate) fn has_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Suspends a write of a tag that has one, until that is done; gives back all others.
    pub(crate) fn queue_if_busy(&mut self, token: Token, work: Work, tag: Tag) -> Option<Work> {
        if !work.is_write() {
            return Some(work);
        }
        let Some(waiting) = self.busy.get_mut(&tag) else { return Some(work) };
        self.last += 1;
        waiting.push_back(self.last);
        self.suspended.insert(self.last, Suspended::new(token, work, tag));
        None
    }

    /// Names an operation that is to be suspended. Later writes of its tag wait, if it is one.
    pub(crate) fn name(&mut self, tag: Tag, is_write: bool) -> u64 {
        self.last += 1;
        if is_write {
            self.busy.insert(tag, VecDeque::new());
        }
        self.last
    }

    /// It waits for its reads, if there are any.
    pub(crate) fn suspend(&mut self, id: u64, suspended: Suspended) {
        if suspended.waiting == 0 {
            self.ready.push_back(id);
        }
        self.suspended.insert(id, suspended);
    }

    /// A read that a suspended one waits for has ended, with this. False: nobody waits.
    pub(crate) fn read_ended(&mut self, id: u64, result: Option<LookupResult>) -> bool {
        let Some(suspended) = self.suspended.get_mut(&id) else { return false };
        suspended.lookup_results.extend(result);
        suspended.waiting -= 1;
        if suspended.waiting == 0 {
            self.ready.push_back(id);
        }
        true
    }

    /// How many have their turn now. Those that join meanwhile have it later.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn next_ready(&mut self) -> Option<u64> {
        self.ready.pop_front()
    }

    /// Takes one out for its next step.
    pub(crate) fn take(&mut self, id: u64) -> Option<Suspended> {
        let suspended = self.suspended.remove(&id)?;
        self.steps += 1;
        Some(suspended)
    }

    /// A suspended write found no room.
    pub(crate) fn cramp(&mut self, id: u64, suspended: Suspended) {
        self.suspended.insert(id, suspended);
        self.cramped.push_back(id);
    }

    /// How many found no room.
    pub(crate) fn cramped(&self) -> usize {
        self.cramped.len()
    }

    pub(crate) fn next_cramped(&mut self) -> Option<u64> {
        self.cramped.pop_front()
    }

    /// Whether one that found no room before is over. If it found none again, it stays the first.
    pub(crate) fn is_over(&mut self, id: u64) -> bool {
        if self.cramped.back() == Some(&id) {
            self.cramped.rotate_right(1);
        }
        !self.suspended.contains_key(&id)
    }

    /// A suspended write is done: the next one of its tag has its turn.
    pub(crate) fn pass_on(&mut self, tag: Tag) {
        let Some(waiting) = self.busy.get_mut(&tag) else { return };
        match waiting.pop_front() {
            Some(next) => self.ready.push_back(next),
            None => drop(self.busy.remove(&tag)),
        }
    }

    /// Nobody waits for reads of those who have left: they are answered at their next turn.
    pub(crate) fn cancel(&mut self, has_left: &dyn Fn(Token) -> bool) {
        let gone =
            self.suspended.values_mut().filter(|suspended| !suspended.work.is_write() && has_left(suspended.token));
        gone.for_each(|suspended| suspended.is_cancelled = true);
    }

    pub(crate) fn is_cancelled(&self, id: u64) -> bool {
        self.suspended.get(&id).is_some_and(|suspended| suspended.is_cancelled)
    }

    /// A reply waits for this group of the journal.
    pub(crate) fn acknowledge_after(&mut self, group: u64, ack: PendingAck) {
        self.pending_acks.entry(group).or_default().push(ack);
    }

    /// The next replies that wait for a group that is written.
    pub(crate) fn next_acks(&mut self, is_written: impl Fn(u64) -> bool) -> Option<Vec<PendingAck>> {
        self.pending_acks.first_entry().filter(|group| is_written(*group.key())).map(|group| group.remove())
    }

    /// Steps of suspended operations so far, and ticks in which writes waited for room.
    pub(crate) fn statistics(&self) -> (u64, u64) {
        (self.steps, self.stalled_ticks)
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::{CollectionId, Key};
    use stratakv_engine::{Change, ChangeKind, Expect};

    use super::*;

    const TOKEN: Token = Token { slot: 0, generation: 0 };

    fn write() -> Work {
        let key = Key::bound(CollectionId(0), b"key");
        Work::Write(Change { key, expect: Expect::Any, kind: ChangeKind::Delete })
    }

    #[test]
    fn writes_of_a_tag_run_one_after_the_other() {
        let (mut queues, tag) = (OperationQueues::default(), Tag::from_bits(1));
        assert!(queues.queue_if_busy(TOKEN, write(), tag).is_some(), "no write of it is suspended");
        let first = queues.name(tag, true);
        queues.suspend(first, Suspended { waiting: 1, ..Suspended::new(TOKEN, write(), tag) });
        assert!(queues.queue_if_busy(TOKEN, write(), tag).is_none());
        assert!(queues.queue_if_busy(TOKEN, write(), Tag::from_bits(2)).is_some());
        assert_eq!(queues.ready(), 0);
        assert!(queues.read_ended(first, None) && !queues.read_ended(99, None));
        assert_eq!(queues.next_ready(), Some(first));
        assert!(queues.take(first).is_some());
        queues.pass_on(tag);
        let second = queues.next_ready().expect("it has its turn");
        assert!(queues.take(second).is_some());
        queues.pass_on(tag);
        assert!(!queues.has_busy() && queues.is_idle());
    }

    #[test]
    fn the_first_that_found_no_room_stays_the_first() {
        let (mut queues, tag) = (OperationQueues::default(), Tag::from_bits(1));
        queues.cramp(1, Suspended::new(TOKEN, write(), tag));
        queues.cramp(2, Suspended::new(TOKEN, write(), tag));
        let again = queues.next_cramped().and_then(|id| queues.take(id)).expect("the first");
        queues.cramp(1, again);
        assert!(!queues.is_over(1));
        assert_eq!((queues.next_cramped(), queues.cramped()), (Some(1), 1));
    }

    #[test]
    fn a_reply_goes_out_after_its_group() {
        let mut queues = OperationQueues::default();
        queues.acknowledge_after(2, (TOKEN, None, Reply::Record(None)));
        assert!(queues.next_acks(|group| group <= 1).is_none() && !queues.is_idle());
        assert_eq!(queues.next_acks(|group| group <= 2).map(|acks| acks.len()), Some(1));
        assert!(queues.is_idle());
    }
}
