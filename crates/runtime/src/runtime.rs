//! [`Runtime`]: all shards of a store, its reactors, and the ways in without a ring.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use stratakv_base::{Now, Wall};
use stratakv_device::fork::Lineage;
use stratakv_device::ring::RingKind;
use stratakv_device::{DiskRequest, Pool, Ring, Volume, Waker, open_ring_for, sync};
use stratakv_engine::{
    Error, Evicted, Io, MeasuredKind, Operation, Reply, Shard, ShardEvent, ShardId, Shared, StageReport, Statistic,
};

use crate::cell::{Cell, RING_LOST, TickOutput};
use crate::clock::{self, Clock};
use crate::direct::Direct;
use crate::driver::Driver;
use crate::pump;
use crate::reactor;
use crate::requests::{RequestKind, RequestLatencies, RequestMeasures};
use crate::slot::{Pending, Slot, Started, Waiter, lock};

/// A shard ready to run, with its volume and its pool of blocks.
pub struct Member<S> {
    /// The shard.
    pub shard: S,
    /// Its volume.
    pub volume: Arc<Volume>,
    /// Its blocks.
    pub pool: Pool,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeOptions {
    /// What carries the I/O of threads with a ring.
    pub ring: RingKind,
    /// Entries of each ring: the most requests handed over in one system call.
    pub ring_entries: u32,
    /// Background threads for futures, timers and what blocking callers leave; at least 1.
    pub reactors: usize,
}

/// All shards of one store, and its reactors; or the engine that all threads call in place.
pub struct Runtime<S: Shard + 'static> {
    /// If it is there, there are no cells and no reactors.
    pub(crate) direct: Option<Direct>,
    pub(crate) cells: Vec<Cell<S>>,
    reactors: Vec<ReactorDoor>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stopping: AtomicBool,
    /// The process whose threads and rings these are.
    lineage: Lineage,
    options: RuntimeOptions,
    pub(crate) clock: Clock,
    listener: OnceLock<Listener>,
    /// What happened before anybody listened, the first of it: ticks begin before the store is put
    /// together.
    unheard: Mutex<Vec<(ShardId, ShardEvent)>>,
    evictions: Mutex<Option<EvictionListener>>,
    pub(crate) requests: RequestMeasures,
}

/// Most events kept for a listener to come.
const UNHEARD_MAX: usize = 256;

/// Who is told what happens to shards: in whatever thread ran the tick, with no lock held. It must
/// not wait.
pub type Listener = Box<dyn Fn(ShardId, ShardEvent) + Send + Sync>;

/// Who is told what a cache evicts, in the same way.
pub type EvictionListener = Arc<dyn Fn(&Evicted, Wall) + Send + Sync>;

/// Where others leave work for a reactor.
struct ReactorDoor {
    left: Mutex<Vec<(u32, Io, DiskRequest)>>,
    filled: AtomicBool,
    waker: Waker,
}

impl<S: Shard + 'static> Runtime<S> {
    /// Starts the reactors.
    ///
    /// # Errors
    /// No ring or no thread could be made.
    pub fn start(members: Vec<Member<S>>, options: RuntimeOptions) -> io::Result<Arc<Runtime<S>>> {
        Self::start_by(Clock::System, members, options)
    }

    /// As [`Runtime::start`], by another clock: for tests.
    ///
    /// # Errors
    /// As [`Runtime::start`].
    #[doc(hidden)]
    pub fn start_by(clock: Clock, members: Vec<Member<S>>, options: RuntimeOptions) -> io::Result<Arc<Runtime<S>>> {
        let count = options.reactors.clamp(1, members.len().max(1));
        let volumes: Vec<_> = members.iter().map(|member| Arc::clone(&member.volume)).collect();
        let open = || open_ring_for(options.ring, options.ring_entries, &volumes);
        let rings = (0..count).map(|_| open()).collect::<io::Result<Vec<_>>>()?;
        let runtime = Self::over(None, members, &rings, options, clock);
        for (number, ring) in rings.into_iter().enumerate() {
            match reactor::spawn(&runtime, ring, number) {
                Ok(thread) => lock(&runtime.threads).push(thread),
                Err(error) => {
                    runtime.stop_reactors();
                    return Err(error);
                }
            }
        }
        Ok(runtime)
    }

    /// A runtime over an engine whose medium is memory. `ring` and `ring_entries` are for the
    /// sockets of its drivers.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn shared(engine: Arc<dyn Shared>, options: RuntimeOptions) -> io::Result<Arc<Runtime<S>>> {
        Self::shared_by(Clock::System, engine, options)
    }

    /// As [`Runtime::shared`], by another clock: for tests.
    ///
    /// # Errors
    /// As [`Runtime::shared`].
    #[doc(hidden)]
    pub fn shared_by(clock: Clock, engine: Arc<dyn Shared>, options: RuntimeOptions) -> io::Result<Arc<Runtime<S>>> {
        let direct = Direct::start(engine, clock.clone())?;
        Ok(Self::over(Some(direct), Vec::new(), &[], options, clock))
    }

    /// As [`Runtime::shared`] without threads, for simulations: all is done by whoever asks, and
    /// maintenance by [`Runtime::maintain`].
    #[doc(hidden)]
    pub fn shared_driven(engine: Arc<dyn Shared>, clock: Clock) -> Arc<Runtime<S>> {
        let options = RuntimeOptions { ring: RingKind::Auto, ring_entries: 64, reactors: 0 };
        Self::over(Some(Direct::turned(engine, clock.clone())), Vec::new(), &[], options, clock)
    }

    /// A step of maintenance of an engine that is called in place and has no thread for that.
    /// Whether there is more to do.
    #[doc(hidden)]
    pub fn maintain(&self) -> bool {
        self.direct.as_ref().is_some_and(Direct::maintain)
    }

    /// A runtime without threads, for simulations: its reactors are drivers over `rings`, which the
    /// caller ticks. Blocking calls wait for ever, but under [`with_pump`](crate::with_pump);
    /// drivers ([`Runtime::driver_over`]) and futures do not.
    #[doc(hidden)]
    pub fn turned(
        members: Vec<Member<S>>,
        rings: Vec<Box<dyn Ring + Send>>,
        clock: Clock,
    ) -> (Arc<Runtime<S>>, Vec<Driver<S>>) {
        let options = RuntimeOptions { ring: RingKind::Auto, ring_entries: 64, reactors: rings.len() };
        let runtime = Self::over(None, members, &rings, options, clock);
        let rings = rings.into_iter().enumerate();
        let reactors = rings.map(|(number, ring)| Driver::new(Arc::clone(&runtime), ring, Some(number))).collect();
        (runtime, reactors)
    }

    fn over(
        direct: Option<Direct>,
        members: Vec<Member<S>>,
        rings: &[Box<dyn Ring + Send>],
        options: RuntimeOptions,
        clock: Clock,
    ) -> Arc<Runtime<S>> {
        let doors =
            rings.iter().map(|ring| ReactorDoor { left: Mutex::default(), filled: false.into(), waker: ring.waker() });
        Arc::new(Runtime {
            direct,
            reactors: doors.collect(),
            cells: members.into_iter().map(|m| Cell::new(m.shard, m.volume, m.pool)).collect(),
            threads: Mutex::default(),
            stopping: false.into(),
            lineage: Lineage::here(),
            options,
            clock,
            listener: OnceLock::new(),
            unheard: Mutex::default(),
            evictions: Mutex::default(),
            requests: RequestMeasures::default(),
        })
    }

    /// Both clocks, as its operations see them.
    pub fn now(&self) -> Now {
        self.direct.as_ref().map_or_else(|| self.clock.now(), Direct::now)
    }

    /// Whether this process is a child of the one whose threads and rings these are. Then nothing
    /// is done, and everything asked is answered [`Error::Forked`]. Costs a load.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.lineage.is_forked()
    }

    /// What requests to volumes took since the store was opened. Costs a pass over the threads with
    /// a ring. An engine that is called in place has none.
    pub fn request_latencies(&self) -> RequestLatencies {
        self.requests.latencies()
    }

    /// Where the time of operations of a kind went since the store was opened, from the tick that
    /// took them to the one that answered: of one in sixteen. An engine that is called in place has
    /// none.
    pub fn stages(&self, kind: MeasuredKind) -> StageReport {
        StageReport::of(kind, self.cells.iter().map(|cell| &*cell.stages))
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        if self.direct.is_some() { 1 } else { self.cells.len() }
    }

    /// A ring of its own for the calling thread: for servers and sessions.
    ///
    /// # Errors
    /// The ring could not be made.
    pub fn driver(self: &Arc<Self>) -> io::Result<Driver<S>> {
        self.driver_with(Ok)
    }

    /// The same, over a ring that `wrap` makes of it: one with sockets of its own, say.
    ///
    /// # Errors
    /// A ring could not be made.
    pub fn driver_with(
        self: &Arc<Self>,
        wrap: impl FnOnce(Box<dyn Ring + Send>) -> io::Result<Box<dyn Ring + Send>>,
    ) -> io::Result<Driver<S>> {
        if self.is_forked() {
            return Err(io::Error::other(Error::Forked.to_string()));
        }
        let volumes = self.cells.iter().map(|cell| &cell.volume);
        let ring = open_ring_for(self.options.ring, self.options.ring_entries, volumes)?;
        Ok(self.driver_over(wrap(ring)?))
    }

    /// Keeps the calling thread near the medium, where the engine's lies on several nodes of the
    /// machine: on one of them, in turn by `number`, for as long as the thread lives. Else it does
    /// nothing.
    pub fn stay_near(&self, number: usize) {
        if let Some(direct) = self.direct.as_ref().filter(|_| !self.is_forked()) {
            direct.stay_near(number);
        }
    }

    /// A driver over a given ring.
    #[doc(hidden)]
    pub fn driver_over(self: &Arc<Self>, ring: Box<dyn Ring + Send>) -> Driver<S> {
        Driver::new(Arc::clone(self), ring, None)
    }

    /// Does one operation, in the calling thread as far as possible: a hit in the cache costs the
    /// shard's tick and nothing else; a single read or write is done in place; only when a tick
    /// asks for more than one request at once does a reactor take them.
    pub fn execute(&self, shard: usize, operation: Operation) -> Reply {
        if self.is_forked() {
            return Reply::Failed(Error::Forked);
        }
        if let Some(direct) = &self.direct {
            return direct.execute(operation);
        }
        let slot = Slot::new(1);
        self.run(shard, vec![(Waiter::Slot(Arc::clone(&slot), 0), operation)], &slot);
        slot.wait().pop().unwrap_or(Reply::Failed(Error::Closed))
    }

    /// Does several operations at once; their I/O overlaps on the reactors. Replies are in the
    /// order asked.
    pub fn execute_many(&self, operations: Vec<(usize, Operation)>) -> Vec<Reply> {
        self.start_many(operations).wait()
    }

    /// Begins what [`Runtime::execute_many`] does, to be waited for later; the reactors see to it
    /// meanwhile.
    pub fn start_many(&self, operations: Vec<(usize, Operation)>) -> Started {
        let (slot, lineage, count) = (Slot::new(operations.len()), self.lineage, operations.len());
        if self.is_forked() {
            return Started { slot, lineage, count };
        }
        if self.direct.is_some() {
            for (index, (shard, operation)) in (0u32..).zip(operations) {
                self.begin(shard, operation, Waiter::Slot(Arc::clone(&slot), index));
            }
            return Started { slot, lineage, count };
        }
        let mut queues: Vec<Vec<(Waiter, Operation)>> = self.cells.iter().map(|_| Vec::new()).collect();
        for (index, (shard, operation)) in operations.into_iter().enumerate() {
            queues[shard].push((Waiter::Slot(Arc::clone(&slot), index as u32), operation));
        }
        let mut out = TickOutput::default();
        for (shard, mut queue) in queues.into_iter().enumerate().filter(|(_, queue)| !queue.is_empty()) {
            self.cells[shard].tick(self.clock.now(), None, &mut Vec::new(), &mut queue, &mut out);
            self.leave_all(shard as u32, &mut out);
            self.after_tick(shard as u32, &mut out, None);
        }
        out.fire();
        Started { slot, lineage, count }
    }

    /// An operation as a future.
    pub fn execute_async(self: &Arc<Self>, shard: usize, operation: Operation) -> Pending<S> {
        Pending::new(Arc::clone(self), shard, operation)
    }

    /// Begins an operation; a reactor does its I/O.
    pub(crate) fn begin(&self, shard: usize, operation: Operation, waiter: Waiter) {
        if self.is_forked() {
            return waiter.answer(Reply::Failed(Error::Forked));
        }
        if let Some(direct) = &self.direct {
            if let Some(reply) = direct.begin(operation, || waiter.clone()) {
                waiter.answer(reply);
            }
            return;
        }
        let mut out = TickOutput::default();
        self.cells[shard].tick(self.clock.now(), None, &mut Vec::new(), &mut vec![(waiter, operation)], &mut out);
        self.leave_all(shard as u32, &mut out);
        self.after_tick(shard as u32, &mut out, None);
        out.fire();
    }

    /// Ticks of one shard in the calling thread, doing its I/O in place while `slot` is not ready
    /// and there is one request at a time.
    fn run(&self, shard: usize, mut operations: Vec<(Waiter, Operation)>, slot: &Slot) {
        let cell = &self.cells[shard];
        let mut out = TickOutput::default();
        let mut completions = Vec::new();
        loop {
            cell.tick(self.clock.now(), None, &mut completions, &mut operations, &mut out);
            self.after_tick(shard as u32, &mut out, None);
            out.fire();
            self.leave_requests(shard as u32, &mut out.background);
            if out.requests.len() != 1 || slot.is_ready() || pump::is_there() {
                self.leave_requests(shard as u32, &mut out.requests);
                return;
            }
            for (io, request) in out.requests.drain(..) {
                let (kind, begun) = (RequestKind::of(&request), self.clock.now().mono);
                completions.push((io, sync::execute(&cell.volume, request)));
                self.requests.done_in_place(kind, self.clock.now().mono.0.saturating_sub(begun.0));
            }
        }
    }

    /// After a tick, lock released: messages go to their shards; attention goes to the reactor that
    /// sees to the shard.
    pub(crate) fn after_tick(&self, shard: u32, out: &mut TickOutput, by_reactor: Option<usize>) {
        let sender = &self.cells[shard as usize];
        sender.deliver_messages(|to, message| {
            let Some(cell) = self.cells.get(to.0 as usize) else { return };
            if cell.leave_message(ShardId(shard), Some(message)) {
                self.reactors[self.reactor_of(to.0)].waker.wake();
            } else {
                // Whoever waits for an answer would wait for ever: it hears again that there will
                // be none.
                sender.leave_message(to, None);
                self.reactors[self.reactor_of(shard)].waker.wake();
            }
        });
        if std::mem::take(&mut out.broke) {
            self.tell_of_loss(shard);
        }
        self.tell_listener(shard, out);
        if std::mem::take(&mut out.attention) && by_reactor != Some(self.reactor_of(shard)) {
            self.reactors[self.reactor_of(shard)].waker.wake();
        }
    }

    /// Says who is told what happens to shards, and what happened since they were put to work. Only
    /// the first call counts.
    pub fn listen(&self, listener: Listener) {
        let mut unheard = lock(&self.unheard);
        // Only the first listener counts.
        let _ = self.listener.set(listener);
        let unheard = std::mem::take(&mut *unheard);
        if let Some(listener) = self.listener.get() {
            unheard.into_iter().for_each(|(shard, event)| listener(shard, event));
        }
    }

    /// Says who is told of records that caches evict, or that nobody is any more. Costs an event
    /// for each of them while somebody is.
    pub fn listen_to_evictions(&self, listener: Option<EvictionListener>) {
        if self.is_forked() {
            return;
        }
        let tells = listener.is_some();
        *lock(&self.evictions) = listener;
        self.cells.iter().for_each(|cell| cell.tell_evictions(tells));
    }

    /// Changes the cap on memory of every shard; one that evicts follows it in its next ticks, the
    /// first of which is here.
    pub fn set_shard_memory_bytes(&self, bytes: u64) {
        if self.is_forked() {
            return;
        }
        let mut out = TickOutput::default();
        for (shard, cell) in (0u32..).zip(&self.cells) {
            cell.set_memory_bytes(bytes);
            cell.tick(self.clock.now(), None, &mut Vec::new(), &mut Vec::new(), &mut out);
            self.leave_all(shard, &mut out);
            self.after_tick(shard, &mut out, None);
        }
        out.fire();
    }

    fn tell_listener(&self, shard: u32, out: &mut TickOutput) {
        for event in out.events.drain(..) {
            if let ShardEvent::Evicted(evicted) = &event {
                let listener = lock(&self.evictions).clone();
                listener.into_iter().for_each(|listener| listener(evicted, self.clock.now().wall));
            } else if let Some(event) = self.keep_unheard(ShardId(shard), event)
                && let Some(listener) = self.listener.get()
            {
                listener(ShardId(shard), event);
            }
        }
    }

    /// Keeps an event for which there is no listener yet; else gives it back.
    fn keep_unheard(&self, shard: ShardId, event: ShardEvent) -> Option<ShardEvent> {
        if self.listener.get().is_some() {
            return Some(event);
        }
        let mut unheard = lock(&self.unheard);
        if self.listener.get().is_some() {
            return Some(event);
        }
        if unheard.len() < UNHEARD_MAX {
            unheard.push((shard, event));
        }
        None
    }

    /// Counters and gauges of one shard.
    pub fn statistics_of(&self, shard: usize) -> Vec<Statistic> {
        let mut all = Vec::new();
        if self.is_forked() {
            return all;
        }
        match &self.direct {
            Some(direct) if shard == 0 => direct.statistics(&mut all),
            _ => self.cells.get(shard).into_iter().for_each(|cell| cell.statistics(&mut all)),
        }
        all
    }

    /// The other shards hear that one is broken.
    fn tell_of_loss(&self, shard: u32) {
        for (other, cell) in (0u32..).zip(&self.cells).filter(|(other, _)| *other != shard) {
            if cell.leave_message(ShardId(shard), None) {
                self.reactors[self.reactor_of(other)].waker.wake();
            }
        }
    }

    /// Hands I/O to the shard's reactor.
    fn leave_all(&self, shard: u32, out: &mut TickOutput) {
        out.requests.append(&mut out.background);
        self.leave_requests(shard, &mut out.requests);
    }

    pub(crate) fn leave_requests(&self, shard: u32, requests: &mut Vec<(Io, DiskRequest)>) {
        if requests.is_empty() {
            return;
        }
        let door = &self.reactors[self.reactor_of(shard)];
        lock(&door.left).extend(requests.drain(..).map(|(io, request)| (shard, io, request)));
        door.filled.store(true, Ordering::Release);
        door.waker.wake();
    }

    fn reactor_of(&self, shard: u32) -> usize {
        shard as usize % self.reactors.len()
    }

    fn shards_of(&self, reactor: usize) -> impl Iterator<Item = usize> {
        (reactor..self.cells.len()).step_by(self.reactors.len())
    }

    pub(crate) fn take_left(&self, reactor: usize) -> Vec<(u32, Io, DiskRequest)> {
        let door = &self.reactors[reactor];
        if !door.filled.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut lock(&door.left))
    }

    pub(crate) fn due_shards(&self, reactor: usize, now: Now) -> Vec<usize> {
        self.shards_of(reactor).filter(|shard| self.cells[*shard].is_due(now.mono)).collect()
    }

    pub(crate) fn reactor_has_work(&self, reactor: usize, now: Now) -> bool {
        self.is_stopping()
            || self.reactors[reactor].filled.load(Ordering::Acquire)
            || self.shards_of(reactor).any(|shard| self.cells[shard].is_due(now.mono))
    }

    pub(crate) fn reactor_timer(&self, reactor: usize, now: Now) -> Option<Duration> {
        let earliest = self.shards_of(reactor).filter_map(|shard| self.cells[shard].wake_at()).min()?;
        Some(clock::until(now.mono, earliest))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Counters and gauges, values of equal names added over the shards; of ages the highest one.
    pub fn statistics(&self) -> Vec<Statistic> {
        let all = (0..self.shards()).flat_map(|shard| self.statistics_of(shard));
        let mut sums: Vec<Statistic> = Vec::new();
        for one in all {
            match sums.iter_mut().find(|sum| sum.name == one.name) {
                // Ages are no sums.
                Some(oldest) if one.name.ends_with("_oldest_ns") => oldest.value = oldest.value.max(one.value),
                Some(sum) => sum.value += one.value,
                None => sums.push(one),
            }
        }
        sums
    }

    /// Most bytes of blocks that the shard with the fewest may have; `None` for an engine that has
    /// no blocks.
    pub fn block_bytes_min(&self) -> Option<u64> {
        if self.is_forked() {
            return None;
        }
        self.cells.iter().map(Cell::block_bytes).min()
    }

    /// Looks at each shard between ticks.
    pub fn look<R>(&self, mut look: impl FnMut(&S) -> R) -> Vec<R> {
        self.cells.iter().map(|cell| cell.with_shard(&mut look)).collect()
    }

    /// Gives up shards whose requests are lost: their operations are answered as unknown.
    pub(crate) fn abandon(&self, shards: impl IntoIterator<Item = usize>) {
        let mut out = TickOutput::default();
        for (shard, cell) in shards.into_iter().filter_map(|shard| Some((shard, self.cells.get(shard)?))) {
            cell.abandon(RING_LOST, &mut out);
            if std::mem::take(&mut out.broke) {
                self.tell_of_loss(shard as u32);
            }
        }
        out.fire();
    }

    /// The shard breaks in its next tick, as by a panic: before it takes operations (`stage` 0),
    /// before the end of the tick (1) or after it (2). For simulations.
    #[doc(hidden)]
    pub fn break_shard(&self, shard: usize, stage: u8) {
        if let Some(cell) = self.cells.get(shard) {
            cell.break_before(stage);
            self.reactors[self.reactor_of(shard as u32)].waker.wake();
        }
    }

    /// A reactor is gone: unless all is over, nobody else would do what is left for it.
    pub(crate) fn reactor_gone(&self, reactor: usize) {
        self.abandon(self.shards_of(reactor));
        lock(&self.reactors[reactor].left).clear();
    }

    /// Tells every shard to finish; ticks must go on until [`Runtime::is_ended`]. Later operations
    /// are answered `Closed`.
    #[doc(hidden)]
    pub fn begin_close(&self) {
        if let Some(direct) = &self.direct {
            direct.close();
        }
        let mut out = TickOutput::default();
        for (shard, cell) in self.cells.iter().enumerate() {
            cell.begin_close(self.clock.now(), &mut out);
            if std::mem::take(&mut out.broke) {
                self.tell_of_loss(shard as u32);
            }
            self.tell_listener(shard as u32, &mut out);
            self.leave_all(shard as u32, &mut out);
            self.reactors[self.reactor_of(shard as u32)].waker.wake();
        }
        out.fire();
    }

    /// Whether every shard has closed or is broken.
    #[doc(hidden)]
    pub fn is_ended(&self) -> bool {
        self.direct.as_ref().is_none_or(Direct::is_closing) && self.cells.iter().all(Cell::is_ended)
    }

    /// The first shard that takes no more writes until the store is opened again, and why: its
    /// medium failed, or a defect stopped it. Takes each shard's lock for a moment.
    pub fn failure(&self) -> Option<(usize, Error)> {
        if self.is_forked() {
            return Some((0, Error::Forked));
        }
        if let Some(direct) = &self.direct {
            return Some((0, direct.failure()?));
        }
        self.cells.iter().enumerate().find_map(|(shard, cell)| Some((shard, cell.failure()?)))
    }

    /// The path of a volume that was removed while it is open: what is written there ends with the
    /// process.
    pub fn removed_volume(&self) -> Option<&Path> {
        self.cells.iter().find(|cell| cell.volume.is_removed()).map(|cell| cell.volume.path())
    }

    /// Finishes what was accepted, closes every shard, ends the reactors. Later operations are
    /// answered `Closed`. Idempotent. If [`Runtime::failure`] tells of one then, the end was not
    /// orderly: that shard may not hold all that was acknowledged.
    pub fn close(&self) {
        if self.is_forked() {
            return;
        }
        self.begin_close();
        self.cells.iter().for_each(Cell::wait_closed);
        self.stop_reactors();
    }

    fn stop_reactors(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.reactors.iter().for_each(|reactor| reactor.waker.wake());
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a reactor thread ended by a panic");
            }
        }
    }
}
