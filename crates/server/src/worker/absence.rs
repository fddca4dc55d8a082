//! What a thread does when the server was away: it closes all connections of before without a look
//! at what they brought, and reports. It accepts again once the cache is empty.

use std::sync::atomic::Ordering;

use stratakv::raw::Event;
use stratakv_base::Mono;
use stratakv_device::NetOutcome;

use super::{TAG_LISTENER, Worker};
use crate::absence::is_unreachable;
use crate::server::lock;

/// What a thread knows of absences.
#[derive(Debug, Default)]
pub(super) struct WorkerPresence {
    /// How many there were.
    seen: u64,
    stage: PresenceStage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PresenceStage {
    #[default]
    Serving,
    /// Connections of before are being closed.
    Leaving,
    /// There are none. Others may have some, and the cache is not empty.
    Waiting,
}

impl WorkerPresence {
    pub(super) fn is_serving(&self) -> bool {
        self.stage == PresenceStage::Serving
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen
    }
}

impl Worker {
    /// Before events are looked at: what came from clients may have lain in buffers while the
    /// server was away.
    pub(super) fn notice_absence(&mut self, events: &[Event]) {
        if !self.shared.absence.is_on() {
            return;
        }
        self.shared.look_for_absence();
        // While it leaves, all that it has is of before.
        if self.shared.absence.is_by_clients() && self.times.presence.is_serving() {
            self.look_for_lost_clients(events);
        }
        let noticed = self.shared.absence.noticed();
        if noticed != self.times.presence.seen {
            self.times.presence = WorkerPresence { seen: noticed, stage: PresenceStage::Leaving };
            self.leave();
        }
    }

    fn look_for_lost_clients(&mut self, events: &[Event]) {
        for event in events {
            let (tag, error) = match event {
                Event::Net { tag, outcome: NetOutcome::Recv(_, Err(error)) | NetOutcome::Send(Err(error)) } => {
                    (*tag, error)
                }
                _ => continue,
            };
            if tag >= TAG_LISTENER || !is_unreachable(error) {
                continue;
            }
            let Some(entry) = self.entries.get(tag as usize).and_then(Option::as_ref) else { continue };
            let has_accounts = self.shared.security.accounts.is_some();
            if entry.connection.is_client(has_accounts) && self.shared.absence.lose_client(self.times.presence.seen) {
                let client = entry.peer.address;
                tracing::warn!(?client, %error, "a client cannot be reached, and may have written elsewhere");
                self.shared.ring_all();
            }
        }
    }

    /// Ends all connections, and accepts no more.
    fn leave(&mut self) {
        for listener in self.listeners.iter().filter(|listener| listener.accepting) {
            self.driver.cancel(&listener.socket);
        }
        for number in 0..self.entries.len() as u32 {
            let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { continue };
            entry.ending.reason = Some("absence");
            entry.connection.abort();
            // At once, though it may rest for its errors.
            self.pump(number, false);
        }
    }

    /// Takes the connections that other threads have left here, but for those of before an absence
    /// that this thread has noticed.
    pub(super) fn adopt_arrived(&mut self) {
        let arrived = lock(&self.shared.worker_slots[self.index].handover).as_mut().map(std::mem::take);
        for arrival in arrived.into_iter().flatten() {
            if arrival.seen < self.times.presence.seen {
                self.shared.worker_slots[self.index].connections.fetch_sub(1, Ordering::Relaxed);
            } else {
                self.adopt(arrival);
            }
        }
    }

    /// At the end of a tick: reports once nothing of before is left, and serves again once the
    /// cache is empty.
    pub(super) fn report_absence(&mut self) {
        let seen = self.times.presence.seen;
        match self.times.presence.stage {
            PresenceStage::Leaving if self.is_idle() => {
                // Their clients may have sent late writes already.
                self.listeners.iter().for_each(|listener| _ = listener.socket.refuse_pending());
                self.times.presence.stage = PresenceStage::Waiting;
                self.shared.absence.arrive(seen);
            }
            PresenceStage::Waiting if self.shared.absence.is_over(seen) => {
                self.times.presence.stage = PresenceStage::Serving;
            }
            _ => {}
        }
    }
}

/// When a thread that accepts is to look at a listener again. One that does not lets pauses be: to
/// wake for them would not end them.
pub(super) fn pause_ends_at(pauses: impl Iterator<Item = Option<(Mono, Mono)>>, accepts: bool) -> Option<Mono> {
    pauses.flatten().map(|(_, until)| until).min().filter(|_| accepts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_accepts_nobody_does_not_wake_for_pauses() {
        let pauses = || [None, Some((Mono(1), Mono(9))), Some((Mono(2), Mono(7)))].into_iter();
        assert_eq!(pause_ends_at(pauses(), true), Some(Mono(7)));
        assert_eq!(pause_ends_at(pauses(), false), None);
    }
}
