//! Connections whose command waits for an element: until when, and those that another one calls.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use stratakv_base::Mono;

use super::{Worker, after};
use crate::server::{RespPeer, WorkerSlot};
use crate::watch::Due;

/// When which connection of a thread has waited long enough. Each is in it once at most.
#[derive(Debug, Default)]
pub(super) struct WaitTimers(BTreeSet<(Mono, u32)>);

impl WaitTimers {
    /// When the first one has.
    pub(super) fn next(&self) -> Option<Mono> {
        self.0.first().map(|(at, _)| *at)
    }
}

impl Worker {
    /// Notes whether a connection waits, and until when.
    pub(super) fn time_wait(&mut self, number: u32) {
        let now = self.driver.now().mono;
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let waiting = entry.connection.waiting();
        if waiting.map(|waiting| waiting.sequence) == entry.wait.map(|(sequence, _)| sequence) {
            return;
        }
        if let Some((_, Some(until))) = entry.wait.take() {
            self.times.waits.0.remove(&(until, number));
        }
        if let Some(waiting) = waiting {
            let until = waiting.timeout.map(|timeout| after(now, timeout));
            self.times.waits.0.extend(until.map(|until| (until, number)));
            entry.wait = Some((waiting.sequence, until));
        }
    }

    /// Ends the waits whose time is over.
    pub(super) fn end_waits(&mut self) {
        let now = self.driver.now().mono;
        while let Some((_, number)) = self.times.waits.0.first().copied().filter(|(at, _)| *at <= now) {
            self.times.waits.0.pop_first();
            if let Some(entry) = self.touch(number) {
                entry.wait = entry.wait.map(|(sequence, _)| (sequence, None));
                entry.connection.time_out();
            }
        }
    }

    /// Lets connections go on that others have something for, and rings the threads of others.
    pub(super) fn pump_called(&mut self) {
        if !self.shared.resp.calls.has_some() {
            return;
        }
        if self.touch_called() {
            self.pump_all();
            // What follows from it is for the next tick.
            if self.shared.resp.calls.has_some() && self.touch_called() {
                self.shared.worker_slots[self.index].ring();
            }
        }
    }

    fn touch_called(&mut self) -> bool {
        let Due { here, elsewhere } = self.shared.resp.calls.take(self.index);
        let threads = elsewhere.iter().filter_map(|number| self.shared.worker_slots.get(*number));
        threads.for_each(WorkerSlot::ring);
        for number in &here {
            let Some(entry) = self.touch(*number) else { continue };
            let is_killed = |peer: &RespPeer| peer.is_killed.load(Ordering::Acquire);
            if entry.peer.resp.as_ref().is_some_and(is_killed) {
                entry.ending.reason = Some("killed");
                entry.connection.abort();
            }
        }
        !here.is_empty()
    }
}
