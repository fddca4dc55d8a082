//! [`PassthroughRing`]: disks that take commands, beside another ring's files and sockets.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::passthrough::lane::Lane;
use crate::passthrough::namespace::PassthroughVolume;
use crate::request::{DiskOutcome, DiskRequest};
use crate::ring::{Completion, NetRequest, Ring, Socket, Wait, Waker};
use crate::sync;
use crate::volume::Volume;

/// With commands in flight the other ring sleeps no longer than this at a time: for a signal that
/// was lost.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A ring whose requests on such namespaces are commands, by an io_uring of its own for each. All
/// others, and all socket requests, go to the ring below.
///
/// A submit makes one system call for the commands, and none if there are none. A wait sleeps in
/// the ring below: completions signal the eventfd that wakes it.
pub struct PassthroughRing {
    rest: Box<dyn Ring + Send>,
    lanes: Vec<Lane>,
    /// No lane could be made: requests are done as for callers without a ring.
    is_refused: bool,
    ended: Vec<(u64, DiskOutcome)>,
}

impl PassthroughRing {
    /// Over `rest`.
    pub fn new(rest: Box<dyn Ring + Send>) -> PassthroughRing {
        PassthroughRing { rest, lanes: Vec::new(), is_refused: false, ended: Vec::new() }
    }

    /// The lane of a volume's namespace.
    fn lane(&mut self, volume: &PassthroughVolume) -> Option<&mut Lane> {
        let namespace = volume.namespace();
        // One that was opened anew has another lane.
        if let Some(at) = self.lanes.iter().position(|lane| Arc::ptr_eq(lane.namespace(), namespace)) {
            return self.lanes.get_mut(at);
        }
        if self.is_refused {
            return None;
        }
        // A completion wakes the ring below as another thread does.
        let made = self.rest.waker().0.event.try_clone().and_then(|event| Lane::open(namespace, event));
        match made {
            Ok(lane) => self.lanes.push(lane),
            Err(error) => {
                self.is_refused = true;
                tracing::warn!(device = namespace.name(), %error, "no io_uring for NVMe commands: a thread waits for each request");
                return None;
            }
        }
        self.lanes.last_mut()
    }

    fn commands_in_flight(&self) -> usize {
        self.lanes.iter().map(Lane::in_flight).sum()
    }

    /// Hands commands over, and takes what has ended; what that made room for is handed over too.
    fn submit_lanes(&mut self) -> io::Result<()> {
        for lane in &mut self.lanes {
            lane.submit()?;
            lane.poll(&mut self.ended);
            if lane.may_go_on() {
                lane.submit()?;
            }
        }
        Ok(())
    }

    /// Waits as told.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let begin = Instant::now();
        let was_announced = self.rest.waker().is_announced();
        self.lanes.iter_mut().for_each(|lane| lane.announce_sleep(true));
        let result = self.sleep(begin, timeout, was_announced);
        self.lanes.iter_mut().for_each(|lane| lane.announce_sleep(false));
        result
    }

    /// Sleeps until a command has ended, the ring below has something, or the time is over.
    fn sleep(&mut self, begin: Instant, timeout: Option<Duration>, was_announced: bool) -> io::Result<()> {
        loop {
            // The last look.
            if self.lanes.iter_mut().any(Lane::has_news) {
                self.rest.submit(Wait::None)?;
                return self.submit_lanes();
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
            let resend = self.lanes.iter().filter_map(Lane::next_resend).min();
            let longest = resend.map_or(SLEEP_MAX, |time| time.min(SLEEP_MAX));
            let nap = left.map_or(longest, |left| left.min(longest));
            let before = Instant::now();
            self.rest.submit(Wait::For { completions: 1, timeout: Some(nap) })?;
            self.submit_lanes()?;
            // The announcement ends with the first sleep, and so does the wait if that was ended.
            let was_ended = before.elapsed() < nap || was_announced;
            if !self.ended.is_empty() || self.rest.has_news() || was_ended || left.is_some_and(|left| left <= nap) {
                return Ok(());
            }
        }
    }
}

impl Ring for PassthroughRing {
    fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest) {
        let Some(commanded) = volume.passthrough().map(Arc::clone) else {
            return self.rest.disk(tag, volume, request);
        };
        let Some(lane) = self.lane(&commanded) else {
            let outcome = sync::execute(volume, request);
            return self.ended.push((tag, outcome));
        };
        match volume.place(request) {
            Ok(request) => lane.begin(tag, commanded.state(), request),
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
        // Of a namespace that was closed.
        self.lanes.retain(|lane| lane.in_flight() > 0 || Arc::strong_count(lane.namespace()) > 1);
        self.submit_lanes()?;
        match wait {
            Wait::For { timeout, .. } if self.ended.is_empty() && self.commands_in_flight() > 0 => self.wait(timeout),
            Wait::For { .. } if self.ended.is_empty() => self.rest.submit(wait),
            _ => self.rest.submit(Wait::None),
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.lanes.iter_mut().for_each(|lane| lane.poll(&mut self.ended));
        let ended = self.ended.drain(..);
        self.rest.reap(completions);
        completions.extend(ended.map(|(tag, outcome)| Completion::Disk { tag, outcome }));
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.rest.watch(descriptor)
    }

    fn has_news(&mut self) -> bool {
        !self.ended.is_empty() || self.lanes.iter_mut().any(Lane::has_news) || self.rest.has_news()
    }

    fn in_flight(&self) -> usize {
        self.rest.in_flight() + self.commands_in_flight() + self.ended.len()
    }

    fn waker(&self) -> Waker {
        self.rest.waker()
    }

    fn name(&self) -> &'static str {
        "passthrough"
    }

    fn system_calls(&self) -> u64 {
        self.rest.system_calls() + self.lanes.iter().map(Lane::system_calls).sum::<u64>()
    }
}
