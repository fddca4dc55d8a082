//! Connections that the server has ended and their clients have not: what these still send is read
//! and thrown away, since closing with bytes unread takes back answers on their way. They are no
//! connections any more for limits and statistics, and last neither long nor in any number.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stratakv_base::Mono;

use super::{Worker, after, log};
use crate::server::lock;
use crate::watch;

/// How long a client has to hang up too.
const LINGER: Duration = Duration::from_secs(2);
/// So many of a thread linger at once; of more, the one that has done so longest is closed.
pub(crate) const LINGERING_MAX: usize = 8;

/// Connections of a thread that linger, the oldest first, and until when.
#[derive(Debug, Default)]
pub(super) struct Lingering(VecDeque<(Mono, u32)>);

impl Worker {
    /// A connection was hung up on.
    pub(super) fn linger(&mut self, number: u32) {
        let now = self.driver.now().mono;
        self.release(number);
        self.lingering.0.push_back((after(now, LINGER), number));
        if self.lingering.0.len() > LINGERING_MAX {
            self.end_first_lingering();
        }
    }

    /// When the next one is closed.
    pub(super) fn lingers_until(&self) -> Option<Mono> {
        self.lingering.0.front().map(|(until, _)| *until)
    }

    /// Closes those whose clients had their time.
    pub(super) fn end_lingering(&mut self) {
        let now = self.driver.now().mono;
        while self.lingers_until().is_some_and(|until| until <= now) {
            self.end_first_lingering();
        }
    }

    fn end_first_lingering(&mut self) {
        let Some((_, number)) = self.lingering.0.pop_front() else { return };
        if let Some(entry) = self.touch(number) {
            entry.connection.abort();
        }
    }

    /// A connection is over for everybody but its thread: others may have its place.
    pub(super) fn release(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if std::mem::replace(&mut entry.ending.is_released, true) {
            self.lingering.0.retain(|(_, lingers)| *lingers != number);
            return;
        }
        let reason = if entry.connection.is_broken() { "error" } else { "normal" };
        let log = log(&self.shared, self.driver.now().wall, &entry.socket);
        watch::connected(log, &entry.peer, Some(entry.ending.reason.unwrap_or(reason)));
        lock(&self.shared.worker_slots[self.index].open).remove(&number);
        self.shared.worker_slots[self.index].connections.fetch_sub(1, Ordering::Relaxed);
    }
}
