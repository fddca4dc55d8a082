//! [`NvmeRing`]: disks that this process drives, beside another ring's files and sockets.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::nvme::{IoPair, SPIN_MAX};
use crate::request::{DiskOutcome, DiskRequest};
use crate::ring::{Completion, NetRequest, Ring, Socket, Wait, Waker};
use crate::sync;
use crate::volume::Volume;

/// With commands in flight the other ring sleeps no longer than this, if no interrupt ends its
/// sleep.
const NAP: Duration = Duration::from_micros(100);
/// The same, if interrupts do: for one that was lost.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A ring whose requests on namespaces go to queue pairs of its own, made when the first one comes.
/// All others, and all socket requests, go to the ring below.
///
/// A submit rings each pair's doorbells once and makes no system call for them. A wait with
/// commands in flight looks without sleeping for 50 us, then sleeps until an interrupt; without
/// interrupts, in naps of 100 us.
pub struct NvmeRing {
    rest: Box<dyn Ring + Send>,
    pairs: Vec<IoPair>,
    /// The controller gave no pair: its requests are done as for callers without a ring.
    is_refused: bool,
    ended: Vec<(u64, DiskOutcome)>,
}

impl NvmeRing {
    /// Over `rest`.
    pub fn new(rest: Box<dyn Ring + Send>) -> NvmeRing {
        NvmeRing { rest, pairs: Vec::new(), is_refused: false, ended: Vec::new() }
    }

    /// The pair on the controller of a volume.
    fn pair(&mut self, volume: &Volume) -> Option<&mut IoPair> {
        let controller = volume.nvme()?.namespace().controller();
        // A namespace that was opened anew has another controller.
        self.pairs.retain(|pair| !pair.controller().is_dead() || pair.in_flight() > 0);
        let at = self.pairs.iter().position(|pair| Arc::ptr_eq(pair.controller(), controller));
        if let Some(at) = at {
            return self.pairs.get_mut(at);
        }
        if self.is_refused || controller.is_dead() {
            return None;
        }
        // An interrupt wakes the ring below as another thread does.
        let event = self.rest.waker().0.event.try_clone().ok();
        match IoPair::open_with(controller, event) {
            Ok(pair) => self.pairs.push(pair),
            Err(error) => {
                self.is_refused = true;
                tracing::warn!(device = controller.name(), %error, "a thread has no I/O queue pair of its own: its requests wait for one another");
            }
        }
        self.pairs.last_mut().filter(|pair| Arc::ptr_eq(pair.controller(), controller))
    }

    /// What has ended makes room for what waits: that is issued at once.
    fn poll(&mut self) {
        for pair in &mut self.pairs {
            pair.poll(&mut self.ended);
            if pair.has_waiting() {
                pair.ring();
            }
        }
    }

    fn commands_in_flight(&self) -> usize {
        self.pairs.iter().map(IoPair::in_flight).sum()
    }

    /// Waits as told; the first look was in vain.
    fn wait(&mut self, completions: u32, timeout: Option<Duration>) -> io::Result<()> {
        let begin = Instant::now();
        let waker = self.rest.waker();
        let was_announced = waker.is_announced();
        while begin.elapsed() < SPIN_MAX.min(timeout.unwrap_or(SPIN_MAX)) {
            self.poll();
            if !self.ended.is_empty() || self.rest.has_news() || was_announced && !waker.is_announced() {
                return self.rest.submit(Wait::None);
            }
            std::hint::spin_loop();
        }
        let longest = if self.pairs.iter().all(IoPair::interrupts) { SLEEP_MAX } else { NAP };
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
            let nap = left.map_or(longest, |left| left.min(longest));
            let before = Instant::now();
            self.rest.submit(Wait::For { completions, timeout: Some(nap) })?;
            self.poll();
            if before.elapsed() >= nap && nap == SLEEP_MAX && !self.ended.is_empty() {
                tracing::debug!("a completion came without its interrupt, or in the moment of a look for it");
            }
            // The announcement ends with the first sleep, and so does the wait if that was ended.
            let was_ended = before.elapsed() < nap || was_announced;
            if !self.ended.is_empty() || self.rest.has_news() || was_ended || left.is_some_and(|left| left <= nap) {
                return Ok(());
            }
        }
    }
}

impl Ring for NvmeRing {
    fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest) {
        let Some(nvme) = volume.nvme().map(Arc::clone) else { return self.rest.disk(tag, volume, request) };
        let Some(pair) = self.pair(volume) else {
            let outcome = sync::execute(volume, request);
            return self.ended.push((tag, outcome));
        };
        match volume.place(request) {
            Ok(request) => pair.submit(tag, &nvme, request),
            Err(outcome) => self.ended.push((tag, outcome)),
        }
    }

    fn net(&mut self, tag: u64, request: NetRequest) {
        self.rest.net(tag, request);
    }

    fn shutdown(&mut self, socket: &Socket) {
        self.rest.shutdown(socket);
    }

    fn cancel(&mut self, socket: &Socket) {
        self.rest.cancel(socket);
    }

    fn submit(&mut self, wait: Wait) -> io::Result<()> {
        self.pairs.iter_mut().for_each(IoPair::ring);
        self.poll();
        match wait {
            Wait::For { completions, timeout } if self.ended.is_empty() && self.commands_in_flight() > 0 => {
                self.wait(completions, timeout)
            }
            Wait::For { .. } if self.ended.is_empty() => self.rest.submit(wait),
            _ => self.rest.submit(Wait::None),
        }?;
        // Completions that were taken, and commands that found no room before.
        self.pairs.iter_mut().for_each(IoPair::ring);
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.poll();
        let ended = self.ended.drain(..);
        self.rest.reap(completions);
        completions.extend(ended.map(|(tag, outcome)| Completion::Disk { tag, outcome }));
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.rest.watch(descriptor)
    }

    fn has_news(&mut self) -> bool {
        self.poll();
        !self.ended.is_empty() || self.rest.has_news()
    }

    fn in_flight(&self) -> usize {
        self.rest.in_flight() + self.commands_in_flight() + self.ended.len()
    }

    fn waker(&self) -> Waker {
        self.rest.waker()
    }

    fn name(&self) -> &'static str {
        "nvme"
    }

    fn system_calls(&self) -> u64 {
        self.rest.system_calls()
    }
}
