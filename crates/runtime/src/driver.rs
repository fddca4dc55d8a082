//! [`Driver`]: one thread's ring and its way to every shard.

use std::io;
use std::mem;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use stratakv_base::{Mono, Now};
use stratakv_device::{Completion, DiskRequest, NetOutcome, NetRequest, Ring, Socket, Wait, Waker};
use stratakv_engine::{Error, Io, IoOutcome, Operation, Reply, Shard};

use crate::cell::TickOutput;
use crate::requests::RingRequests;
use crate::runtime::Runtime;
use crate::slot::{Inbox, Waiter};

/// What a [`Driver::tick`] brought.
#[derive(Debug)]
pub enum Event {
    /// An operation was answered.
    Reply {
        /// As given to [`Driver::submit`].
        tag: u64,
        /// The answer.
        reply: Reply,
    },
    /// A socket request ended.
    Net {
        /// As given to [`Driver::net`].
        tag: u64,
        /// How it ended.
        outcome: NetOutcome,
    },
}

/// After so many ticks that brought events, what is queued on the ring is submitted: requests wait
/// no longer for more company. One tick brings what clients ask, the next what is answered from
/// memory, and the answers go out with one system call.
const TICKS_WITHOUT_SUBMIT: u32 = 2;
/// So many requests are company enough: to carry them out takes longer than the system call.
const REQUESTS_ENOUGH: usize = 32;
/// Requests of a session wait for company only for so long after it last submitted: below any
/// device's latency. Its caller may do other things before the next tick, or sleep.
const SESSION_HOLD_NS: u64 = 30_000;

/// How often a shard that another thread holds is put off in favour of other work, before it is
/// waited for: that thread may have lost its processor.
const PUT_OFF_MAX: u32 = 8;

/// One thread's ring, carrying sockets and the disk I/O of the ticks this thread runs.
///
/// Server cores, sessions and reactors are all drivers. Dropping one waits for its disk I/O and
/// hands what follows to a reactor.
pub struct Driver<S: Shard + 'static> {
    runtime: Arc<Runtime<S>>,
    ring: Box<dyn Ring + Send>,
    inbox: Arc<Inbox>,
    /// Work for each shard, gathered until its next tick.
    queues: Vec<Queue>,
    ready: ReadyShards,
    requests: RingRequests,
    completions: Vec<Completion>,
    replies: Vec<(u64, Reply)>,
    out: TickOutput,
    now: Now,
    unsubmitted: Unsubmitted,
    /// A reactor's number, if this is one: it takes what others leave, and sees to timers.
    reactor: Option<usize>,
    /// Going to rest: new I/O is for the reactors.
    leaves_requests: bool,
    /// It rests now and then: what nobody waits for is for the reactors.
    rests: bool,
    /// The ring failed: what it is given never comes back, so it is given nothing more.
    failed: bool,
}

/// Since requests were last submitted, and when that was: ticks, and requests queued.
#[derive(Default)]
struct Unsubmitted {
    since: Mono,
    ticks: u32,
    requests: usize,
}

impl Unsubmitted {
    /// Whether they may wait for more company.
    fn may_wait(&self) -> bool {
        self.ticks < TICKS_WITHOUT_SUBMIT && self.requests < REQUESTS_ENOUGH
    }
}

/// Shards that want a tick, each listed once.
#[derive(Default)]
struct ReadyShards {
    /// Those whose queue is not empty.
    busy: Vec<u32>,
    /// In a tick: those that another thread holds, and those of them that are put off.
    held: Vec<u32>,
    put_off: Vec<u32>,
}

impl ReadyShards {
    /// The next one, and whether others had their turn while another thread held it.
    fn next(&mut self) -> Option<(u32, bool)> {
        self.busy.pop().map(|shard| (shard, false)).or_else(|| Some((self.held.pop()?, true)))
    }
}

#[derive(Default)]
struct Queue {
    completions: Vec<(Io, IoOutcome)>,
    operations: Vec<(Waiter, Operation)>,
    listed: bool,
    /// How often its turn was put off, since another thread was in a tick of the shard.
    put_off: u32,
}

impl<S: Shard> Driver<S> {
    pub(crate) fn new(runtime: Arc<Runtime<S>>, ring: Box<dyn Ring + Send>, reactor: Option<usize>) -> Driver<S> {
        Driver {
            inbox: Inbox::new(ring.waker()),
            queues: (0..runtime.cells.len()).map(|_| Queue::default()).collect(),
            ready: ReadyShards::default(),
            requests: RingRequests::new(&runtime.requests),
            completions: Vec::new(),
            replies: Vec::new(),
            out: TickOutput::default(),
            now: runtime.clock.now(),
            unsubmitted: Unsubmitted::default(),
            runtime,
            ring,
            reactor,
            leaves_requests: false,
            rests: false,
            failed: false,
        }
    }

    /// Queues an operation for a shard's next tick. Its reply comes as an [`Event::Reply`] with
    /// `tag`.
    ///
    /// An engine that is called in place does it now; what would wait for its medium is handed
    /// over. Either way writes of one key keep their order, a range delete finds what was submitted
    /// before it and leaves what comes later, and `Sync`, snapshots and backups cover what was
    /// submitted before them.
    pub fn submit(&mut self, shard: usize, tag: u64, operation: Operation) {
        if self.runtime.is_forked() {
            return self.replies.push((tag, Reply::Failed(Error::Forked)));
        }
        if let Some(direct) = &self.runtime.direct {
            let waiter = || Waiter::Inbox(Arc::clone(&self.inbox), tag);
            self.replies.extend(direct.begin(operation, waiter).map(|reply| (tag, reply)));
            return;
        }
        let waiter = Waiter::Inbox(Arc::clone(&self.inbox), tag);
        self.queue(shard).operations.push((waiter, operation));
    }

    /// Operations on these encoded keys will be submitted next. An engine that is called in place
    /// waits for memory less then: its cache misses overlap. Others do nothing.
    pub fn prefetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        if let Some(direct) = self.runtime.direct.as_ref().filter(|_| !self.runtime.is_forked()) {
            direct.prefetch(keys);
        }
    }

    /// Those who submitted operations with these tags have left. Their gets and pages that are not
    /// done are given up in the next tick and answered with [`stratakv_engine::Error::Cancelled`];
    /// writes are carried out. What was submitted is answered in any case. Costs one pass over the
    /// operations of each shard.
    pub fn give_up(&mut self, tags: RangeInclusive<u64>) {
        for shard in 0..self.runtime.cells.len() {
            self.runtime.cells[shard].leave((Arc::clone(&self.inbox), tags.clone()));
            self.queue(shard);
        }
    }

    /// Queues a socket request. Its outcome comes as an [`Event::Net`] with `tag`.
    pub fn net(&mut self, tag: u64, request: NetRequest) {
        if self.runtime.is_forked() {
            return;
        }
        self.unsubmitted.requests += 1;
        self.ring.net(tag, request);
    }

    /// Ends the requests in flight on a socket.
    pub fn shutdown(&mut self, socket: &Socket) {
        if self.runtime.is_forked() {
            return;
        }
        self.ring.shutdown(socket);
    }

    /// Ends the requests in flight on a socket, and leaves the socket as it is.
    pub fn cancel(&mut self, socket: &Socket) {
        if self.runtime.is_forked() {
            return;
        }
        self.ring.cancel(socket);
    }

    /// From here on this driver rests often, and leaves I/O that no operation waits for to the
    /// reactors: to rest is to wait for all that is in flight. Its requests do not rely on a caller
    /// that comes back at once.
    pub fn leave_background(&mut self) {
        self.rests = true;
    }

    /// Ends this driver's wait from another thread.
    pub fn waker(&self) -> Waker {
        self.ring.waker()
    }

    /// The time of the last tick.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Requests queued on or in flight in the ring.
    pub fn in_flight(&self) -> usize {
        self.ring.in_flight()
    }

    /// `io_uring` or `blocking`.
    pub fn ring_name(&self) -> &'static str {
        self.ring.name()
    }

    /// System calls made for the ring so far.
    pub fn system_calls(&self) -> u64 {
        self.ring.system_calls()
    }

    /// One tick: take completions, run the ticks of the shards they and the queued operations
    /// belong to, submit everything in one system call. Waits as told, but only for what is
    /// missing: events found before count towards `completions`. Who waits for 0 of them comes back
    /// at once: as after a tick that brought events, requests may then stay queued for two ticks.
    ///
    /// # Errors
    /// The ring failed; drop the driver.
    pub fn tick(&mut self, wait: Wait, events: &mut Vec<Event>) -> io::Result<()> {
        self.refuse_if_failed()?;
        let before = events.len();
        self.gather(events);
        // Whoever comes back at once has other things to do meanwhile.
        let comes_back = events.len() > before || matches!(wait, Wait::For { completions: 0, .. });
        self.run_shards(events, comes_back);
        let found = (events.len() - before) as u32;
        match wait {
            Wait::For { completions, timeout } if found < completions && !self.has_work() => {
                self.wait(completions - found, timeout)?;
                self.gather(events);
                self.unsubmitted.since = self.now.mono;
                self.run_shards(events, events.len() > before);
                Ok(())
            }
            // The caller will queue more because of these events and come back at once: one system
            // call then serves both.
            Wait::For { .. } if found > 0 && self.unsubmitted.may_wait() && !self.is_slow() => {
                self.unsubmitted.ticks += 1;
                Ok(())
            }
            _ => self.submit_now(Wait::None),
        }
    }

    /// Whether the caller is one who may not come back at once, and has not lately.
    fn is_slow(&self) -> bool {
        self.rests && self.now.mono.0 >= self.unsubmitted.since.0 + SESSION_HOLD_NS
    }

    fn submit_now(&mut self, wait: Wait) -> io::Result<()> {
        self.unsubmitted = Unsubmitted { since: self.now.mono, ..Unsubmitted::default() };
        let submitted = self.ring.submit(wait);
        if submitted.is_err() {
            self.ring_failed();
        }
        submitted
    }

    /// What is in flight will never come back: the shards that wait for it are given up, whoever's
    /// operations it was for.
    fn ring_failed(&mut self) {
        self.failed = true;
        self.runtime.abandon(self.requests.lose());
    }

    fn refuse_if_failed(&self) -> io::Result<()> {
        if self.runtime.is_forked() {
            return Err(io::Error::other(Error::Forked.to_string()));
        }
        if self.failed { Err(io::Error::other("the I/O ring failed before; drop its driver")) } else { Ok(()) }
    }

    fn has_work(&self) -> bool {
        !self.ready.busy.is_empty()
            || self.reactor.is_some_and(|reactor| self.runtime.reactor_has_work(reactor, self.now))
    }

    fn wait(&mut self, completions: u32, timeout: Option<Duration>) -> io::Result<()> {
        let waker = self.ring.waker();
        waker.announce_sleep();
        let left = self.inbox.is_filled() || self.has_work();
        if left {
            waker.awake();
            return self.submit_now(Wait::None);
        }
        let timer = self.reactor.and_then(|reactor| self.runtime.reactor_timer(reactor, self.now));
        let timeout = match (timeout, timer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        // One completion may answer many operations, and each is a step of something that waits: a
        // quarter of them is company enough.
        let completions = completions.min(self.requests.len() as u32 / 4).max(1);
        self.submit_now(Wait::For { completions, timeout })
    }

    /// Takes completions, replies others left, and (reactors) requests others left.
    fn gather(&mut self, events: &mut Vec<Event>) {
        self.now = self.runtime.clock.now();
        let mut completions = mem::take(&mut self.completions);
        self.ring.reap(&mut completions);
        for completion in completions.drain(..) {
            match completion {
                Completion::Net { tag, outcome } => events.push(Event::Net { tag, outcome }),
                Completion::Disk { tag, outcome } => {
                    if let Some((shard, io)) = self.requests.end(tag, self.now.mono) {
                        self.queue(shard as usize).completions.push((io, outcome));
                    }
                }
            }
        }
        self.completions = completions;
        self.inbox.take(&mut self.replies);
        self.hand_out(events);
        if let Some(reactor) = self.reactor {
            for (shard, io, request) in self.runtime.take_left(reactor) {
                self.start_io(shard, io, request);
            }
            for shard in self.runtime.due_shards(reactor, self.now) {
                self.queue(shard);
            }
        }
    }

    fn hand_out(&mut self, events: &mut Vec<Event>) {
        events.extend(self.replies.drain(..).map(|(tag, reply)| Event::Reply { tag, reply }));
    }

    /// The ticks of all shards with work; what they ask for goes on the ring. Who comes back at
    /// once may find shards put off that another thread holds.
    fn run_shards(&mut self, events: &mut Vec<Event>, comes_back: bool) {
        // Shards that another thread holds come last: by then it is likely done, and nobody slept.
        while let Some((shard, patient)) = self.ready.next() {
            let queue = &mut self.queues[shard as usize];
            let (completions, operations) = (&mut queue.completions, &mut queue.operations);
            let (cell, me) = (&self.runtime.cells[shard as usize], Some(&self.inbox));
            if completions.is_empty() && operations.is_empty() && cell.is_awaited() {
                queue.listed = false;
                std::thread::yield_now();
                continue;
            }
            let has_news = comes_back || !self.out.own.is_empty();
            let may_put_off = has_news && !self.rests && !self.leaves_requests;
            let is_put_off = patient && may_put_off && queue.put_off < PUT_OFF_MAX;
            if patient && !is_put_off {
                cell.tick(self.now, me, completions, operations, &mut self.out);
            } else if !cell.try_tick(self.now, me, completions, operations, &mut self.out) {
                queue.put_off += u32::from(is_put_off);
                if is_put_off { &mut self.ready.put_off } else { &mut self.ready.held }.push(shard);
                continue;
            }
            (queue.listed, queue.put_off) = (false, 0);
            if self.leaves_requests || self.rests {
                self.runtime.leave_requests(shard, &mut self.out.background);
            }
            if self.leaves_requests {
                self.runtime.leave_requests(shard, &mut self.out.requests);
            }
            self.out.requests.append(&mut self.out.background);
            let mut requests = mem::take(&mut self.out.requests);
            for (io, request) in requests.drain(..) {
                self.start_io(shard, io, request);
            }
            self.out.requests = requests;
            self.runtime.after_tick(shard, &mut self.out, self.reactor);
        }
        mem::swap(&mut self.ready.busy, &mut self.ready.put_off);
        mem::swap(&mut self.replies, &mut self.out.own);
        self.hand_out(events);
        self.out.fire();
    }

    fn start_io(&mut self, shard: u32, io: Io, request: DiskRequest) {
        let tag = self.requests.begin(shard, io, &request, self.now.mono);
        self.unsubmitted.requests += 1;
        self.ring.disk(tag, &self.runtime.cells[shard as usize].volume, request);
    }

    fn queue(&mut self, shard: usize) -> &mut Queue {
        let queue = &mut self.queues[shard];
        if !queue.listed {
            queue.listed = true;
            self.ready.busy.push(shard as u32);
        }
        queue
    }
}

impl<S: Shard> Driver<S> {
    /// Sees this ring's disk I/O through and leaves what follows from it to the reactors, so that
    /// the thread may turn to other things: other threads' writes may ride on requests of this
    /// ring, and nobody else can reap it. Cheap when nothing is in flight.
    ///
    /// # Errors
    /// The ring failed; drop the driver.
    pub fn rest(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        self.refuse_if_failed()?;
        while !self.requests.is_empty() || !self.ready.busy.is_empty() {
            if self.ready.busy.is_empty() {
                self.submit_now(Wait::For { completions: 1, timeout: None })?;
            }
            self.gather(events);
            self.leaves_requests = true;
            self.run_shards(events, false);
            self.leaves_requests = false;
        }
        Ok(())
    }
}

impl<S: Shard + 'static> Drop for Driver<S> {
    fn drop(&mut self) {
        if self.runtime.is_forked() {
            return;
        }
        if self.rest(&mut Vec::new()).is_err() {
            tracing::error!("the I/O ring failed while closing; what was in flight is in doubt");
        }
        self.requests.leave(&self.runtime.requests);
        if let Some(reactor) = self.reactor {
            self.runtime.reactor_gone(reactor);
        }
    }
}
