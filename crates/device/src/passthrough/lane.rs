//! [`Lane`]: requests of one thread to a namespace that takes commands.
//!
//! A request is answered once, and its blocks go back only when its commands have ended: the kernel
//! ends each, after 30 s at the latest, when it resets the controller.
#![expect(unsafe_code, reason = "commands hold pointers to blocks, which their request owns until they have ended")]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use stratakv_base::fault_point;

use crate::fork::Lineage;
use crate::nvme::requests::Request;
use crate::nvme::shape::VolumeState;
use crate::nvme::status::{RETRIES_MAX, RETRY_AFTER};
use crate::nvme::table::{Issue, RequestKey, RequestTable};
use crate::passthrough::abi::PassthroughCommand;
use crate::passthrough::builder::CommandData;
use crate::passthrough::namespace::PassthroughNamespace;
use crate::passthrough::outcome::CommandOutcome;
use crate::passthrough::target::CommandQueue;
use crate::request::{DiskOutcome, DiskRequest, IoFault};

/// Most commands in flight.
const DEPTH: u16 = 128;

/// See the module. It belongs to one thread.
pub(super) struct Lane {
    namespace: Arc<PassthroughNamespace>,
    queue: Box<dyn CommandQueue>,
    slots: Vec<CommandSlot>,
    free: Vec<u16>,
    requests: RequestTable,
    /// Commands that failed for now: their slots.
    resting: Vec<u16>,
    ended: Vec<(u16, i32)>,
    lineage: Lineage,
}

#[derive(Default)]
struct CommandSlot {
    /// Whose command it is; `None`: the slot is free.
    request: Option<RequestKey>,
    command: PassthroughCommand,
    /// Boxed: the command points there.
    data: Box<CommandData>,
    retries: u8,
    /// When it is sent again.
    resend_at: Duration,
}

impl Lane {
    /// A queue of its own; its completions signal `event` while the thread sleeps.
    pub(super) fn open(namespace: &Arc<PassthroughNamespace>, event: OwnedFd) -> io::Result<Lane> {
        Ok(Lane {
            namespace: Arc::clone(namespace),
            queue: namespace.queue(DEPTH, event)?,
            slots: std::iter::repeat_with(CommandSlot::default).take(DEPTH.into()).collect(),
            free: (0..DEPTH).rev().collect(),
            requests: RequestTable::default(),
            resting: Vec::new(),
            ended: Vec::new(),
            lineage: Lineage::here(),
        })
    }

    pub(super) fn namespace(&self) -> &Arc<PassthroughNamespace> {
        &self.namespace
    }

    /// Requests that were begun and not yet given by [`poll`](Lane::poll).
    pub(super) fn in_flight(&self) -> usize {
        self.requests.in_flight()
    }

    pub(super) fn system_calls(&self) -> u64 {
        self.queue.system_calls()
    }

    /// Begins a request, whose offset is on the namespace. The kernel hears of it by
    /// [`submit`](Lane::submit).
    pub(super) fn begin(&mut self, tag: u64, state: &Arc<VolumeState>, request: DiskRequest) {
        let begun = Request::new(tag, state, self.namespace.generation(), request);
        self.requests.begin(begun.map_err(|outcome| (tag, outcome)));
    }

    /// Hands over what waits, as far as there is room, in one system call.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.send_again();
        let mut requests = std::mem::take(&mut self.requests);
        requests.issue_waiting(|requests, key| self.issue(requests, key));
        self.requests = requests;
        self.queue.submit()
    }

    /// Moves what has ended to `done`. No system call.
    pub(super) fn poll(&mut self, done: &mut Vec<(u64, DiskOutcome)>) {
        let mut ended = std::mem::take(&mut self.ended);
        self.queue.poll(&mut ended);
        for (slot, outcome) in ended.drain(..) {
            self.take(slot, CommandOutcome(outcome));
        }
        self.ended = ended;
        self.requests.take_done(done);
    }

    /// Whether there is something to submit, or to take.
    pub(super) fn has_news(&mut self) -> bool {
        self.queue.has_news() || self.next_resend().is_some_and(|time| time.is_zero())
    }

    /// Whether a submit would hand commands over that found no room before.
    pub(super) fn may_go_on(&self) -> bool {
        self.requests.has_waiting() && !self.free.is_empty()
    }

    pub(super) fn announce_sleep(&mut self, sleeps: bool) {
        self.queue.announce_sleep(sleeps);
    }

    /// In what time a command is to be sent again, if one rests.
    pub(super) fn next_resend(&self) -> Option<Duration> {
        let now = self.namespace.target().now();
        let times = self.resting.iter().filter_map(|slot| self.slots.get(usize::from(*slot)));
        times.map(|slot| slot.resend_at.saturating_sub(now)).min()
    }

    /// Issues the next command of a request.
    fn issue(&mut self, requests: &mut RequestTable, key: RequestKey) -> Issue {
        let Some(slot) = self.free.last().copied() else { return Issue::NoRoom };
        let Some(request) = requests.get(key) else { return Issue::Whole };
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Issue::NoRoom };
        let (command, bytes) = match place.data.command(request) {
            Ok(made) => made,
            Err(fault) => return requests.cannot_issue(key, fault),
        };
        // SAFETY: the request owns the blocks that the command points to, and the slot its lists;
        // both stay until `take` has its end.
        if !unsafe { self.queue.push(slot, &command) } {
            return Issue::NoRoom;
        }
        command.command.trace(self.namespace.name());
        self.free.pop();
        (place.request, place.command, place.retries) = (Some(key), command, 0);
        requests.issued(key, bytes)
    }

    /// A command has ended.
    fn take(&mut self, number: u16, outcome: CommandOutcome) {
        let now = self.namespace.target().now();
        let Some(slot) = self.slots.get_mut(usize::from(number)) else { return };
        let Some(request) = slot.request else { return };
        let failure = self.namespace.hear(&slot.command, outcome).err();
        if failure.is_some_and(|failure| failure.may_be_retried) && slot.retries < RETRIES_MAX {
            slot.resend_at = now + RETRY_AFTER * (1 << slot.retries);
            slot.retries += 1;
            fault_point!("passthrough_retry_forgotten", return self.requests.command_ended(request, 0, None));
            self.resting.push(number);
            return;
        }
        let mut fault = failure.map(|failure| failure.fault);
        fault_point!("passthrough_status_ignored", fault = None);
        self.slot_ended(number, request, fault);
    }

    fn slot_ended(&mut self, number: u16, request: RequestKey, fault: Option<IoFault>) {
        let Some(slot) = self.slots.get_mut(usize::from(number)) else { return };
        slot.request = None;
        self.free.push(number);
        let Some(held) = self.requests.get(request) else { return };
        let mut after_reset = self.namespace.fault_of_reset(held);
        fault_point!("passthrough_flush_outlives_reset", after_reset = None);
        // A write that was begun before a reset may have been in the cache when it came, whatever
        // the order in which they are heard of.
        let mut generation = held.begun;
        fault_point!("passthrough_write_outlives_reset", generation = self.namespace.generation());
        self.requests.command_ended(request, generation, fault.or(after_reset));
    }

    /// Sends again what has rested.
    fn send_again(&mut self) {
        if self.resting.is_empty() {
            return;
        }
        let now = self.namespace.target().now();
        for number in std::mem::take(&mut self.resting) {
            let Some(slot) = self.slots.get(usize::from(number)) else { continue };
            // SAFETY: as in `issue`; the request has not ended, since this command of it has not.
            if slot.resend_at > now || !unsafe { self.queue.push(number, &slot.command) } {
                self.resting.push(number);
                continue;
            }
            slot.command.command.trace(self.namespace.name());
        }
    }

    /// Ends what is in flight: the kernel ends each command.
    fn drain(&mut self) -> io::Result<()> {
        let mut done = Vec::new();
        while self.requests.in_flight() > 0 {
            self.submit()?;
            self.poll(&mut done);
            done.clear();
            match self.next_resend() {
                _ if self.requests.in_flight() == 0 => {}
                Some(time) => self.namespace.target().pause(time),
                None => self.queue.wait()?,
            }
        }
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // A child's memory is its own: what the kernel writes for its parent goes elsewhere.
        if !self.lineage.is_forked() && self.drain().is_err() {
            // What the kernel may still reach is not used again.
            Box::leak(Box::new(std::mem::take(&mut self.slots)));
            Box::leak(Box::new(std::mem::take(&mut self.requests)));
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/passthrough/lanes.rs"]
mod tests;
