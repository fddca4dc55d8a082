//! [`Blocking`]: the ring of systems that refuse io_uring: a pool of threads for disks, epoll for
//! sockets.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, IoSlice};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags};

use crate::fork::Lineage;
use crate::lock;
use crate::request::DiskRequest;
use crate::ring::{Chunk, Completion, NetOutcome, NetRequest, Ring, Socket, Wait, Waker, accepted};
use crate::sync;
use crate::volume::Volume;

/// Most disk threads of one ring. KVell's queue of 64 needs no 64 threads here: the fallback is for
/// function, not for records.
const THREADS_MAX: u32 = 16;

/// A pool of threads and an epoll.
pub struct Blocking {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
    queued: Vec<Job>,
    disk_in_flight: usize,
    epoll: rustix::fd::OwnedFd,
    sockets: HashMap<RawFd, SocketQueue>,
    net_in_flight: usize,
    done: Vec<Completion>,
    waker: Waker,
    /// Of this thread; those of the disk threads are their own.
    system_calls: u64,
    lineage: Lineage,
}

struct Job {
    tag: u64,
    volume: Arc<Volume>,
    request: DiskRequest,
}

struct Shared {
    jobs: Mutex<Jobs>,
    ready: Condvar,
    done: Mutex<Vec<Completion>>,
    /// Used by the disk threads only, so that a wait can tell their completions from a call of
    /// another thread.
    finished: Waker,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    stop: bool,
}

/// What waits for readiness of one socket.
struct SocketQueue {
    socket: Socket,
    input: VecDeque<(u64, Input)>,
    output: VecDeque<(u64, Vec<Chunk>, usize)>,
    registered: bool,
}

enum Input {
    Accept,
    Recv(Vec<u8>),
}

/// What epoll may say at one look; more waits for the next.
const EVENTS_AT_ONCE: usize = 256;

const WAKER: u64 = u64::MAX;
const FINISHED: u64 = u64::MAX - 1;
const WATCHED: u64 = u64::MAX - 2;

impl Blocking {
    /// A ring with up to `entries` disk threads, at most 16, started as they are needed.
    ///
    /// # Errors
    /// No descriptor or thread could be made.
    pub fn new(entries: u32) -> io::Result<Blocking> {
        let waker = Waker::new()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let finished = Waker::new()?;
        epoll::add(&epoll, &waker.0.event, EventData::new_u64(WAKER), EventFlags::IN)?;
        epoll::add(&epoll, &finished.0.event, EventData::new_u64(FINISHED), EventFlags::IN)?;
        let shared =
            Arc::new(Shared { jobs: Mutex::default(), ready: Condvar::new(), done: Mutex::default(), finished });
        let mut ring = Blocking {
            shared,
            threads: Vec::new(),
            threads_max: entries.clamp(1, THREADS_MAX) as usize,
            queued: Vec::new(),
            disk_in_flight: 0,
            epoll,
            sockets: HashMap::new(),
            net_in_flight: 0,
            done: Vec::new(),
            waker,
            lineage: Lineage::here(),
            system_calls: 0,
        };
        ring.spawn()?;
        Ok(ring)
    }

    fn spawn(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name(format!("stratakv-disk-{}", self.threads.len()));
        self.threads.push(builder.spawn(move || shared.work())?);
        Ok(())
    }

    /// Gives the queued disk requests to the threads, and starts more of these while there are
    /// fewer than requests.
    fn hand_over(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        self.disk_in_flight += self.queued.len();
        // Without more threads the requests take longer, and that is all.
        while self.threads.len() < self.threads_max.min(self.disk_in_flight) && self.spawn().is_ok() {}
        let fresh = self.queued.len();
        lock(&self.shared.jobs).queue.extend(self.queued.drain(..));
        (0..fresh.min(self.threads.len())).for_each(|_| self.shared.ready.notify_one());
    }

    fn take_done(&mut self) {
        let mut done = lock(&self.shared.done);
        self.disk_in_flight -= done.len();
        self.done.append(&mut done);
    }

    /// Does what can be done at once on `fd`; arms epoll for the rest.
    fn advance(&mut self, fd: RawFd) {
        let Some(pending) = self.sockets.get_mut(&fd) else { return };
        let before = self.done.len();
        self.system_calls += pending.advance_input(&mut self.done) + pending.advance_output(&mut self.done);
        self.net_in_flight -= self.done.len() - before;
        let mut interest = EventFlags::ONESHOT;
        interest.set(EventFlags::IN, !pending.input.is_empty());
        interest.set(EventFlags::OUT, !pending.output.is_empty());
        let idle = pending.input.is_empty() && pending.output.is_empty();
        let data = EventData::new_u64(fd as u64);
        let result = match (idle, pending.registered) {
            (true, true) => pending.socket.descriptor().and_then(|socket| epoll::delete(&self.epoll, socket)),
            (true, false) => Ok(()),
            (false, true) => {
                pending.socket.descriptor().and_then(|socket| epoll::modify(&self.epoll, socket, data, interest))
            }
            (false, false) => {
                pending.socket.descriptor().and_then(|socket| epoll::add(&self.epoll, socket, data, interest))
            }
        };
        self.system_calls += u64::from(!idle || pending.registered);
        pending.registered = !idle;
        if idle {
            self.sockets.remove(&fd);
        } else if let Err(errno) = result {
            let before = self.done.len();
            pending.fail(errno, &mut self.done);
            self.net_in_flight -= self.done.len() - before;
            self.sockets.remove(&fd);
        }
    }

    fn pending(&mut self, socket: Socket) -> &mut SocketQueue {
        let fresh = SocketQueue {
            socket: Arc::clone(&socket),
            input: VecDeque::new(),
            output: VecDeque::new(),
            registered: false,
        };
        self.sockets.entry(socket.raw()).or_insert(fresh)
    }

    fn wait(&mut self, completions: usize, timeout: Option<Duration>) -> io::Result<()> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            // Announced before the look at what is done: a thread that finishes later wakes us.
            self.waker.announce_sleep();
            self.shared.finished.announce_sleep();
            self.take_done();
            let left = match deadline {
                _ if self.done.len() >= completions => Some(Duration::ZERO),
                deadline => deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
            };
            let last = left.is_some_and(|left| left.is_zero());
            // Busy disks must not keep the sockets waiting, so these are looked at even if there is
            // nothing to wait for.
            if last && self.net_in_flight == 0 {
                return Ok(());
            }
            if self.poll(left)? || last {
                return Ok(());
            }
        }
    }

    /// One look at the sockets and wakers, for up to `timeout`. True if the waker was used.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|timeout| rustix::time::Timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: timeout.subsec_nanos() as _,
        });
        let mut room = [MaybeUninit::uninit(); EVENTS_AT_ONCE];
        self.system_calls += 1;
        let events: &[epoll::Event] = match epoll::wait(&self.epoll, &mut room, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => &[],
            Err(errno) => return Err(errno.into()),
        };
        let mut woken = false;
        for event in events {
            match event.data.u64() {
                WAKER => {
                    woken = true;
                    // Fails only if the counter is zero already.
                    let _ = rustix::io::read(&self.waker.0.event, &mut [0; 8]);
                }
                FINISHED => {
                    // An event is only taken back here: one that is gone already wakes nobody.
                    let _ = rustix::io::read(&self.shared.finished.0.event, &mut [0; 8]);
                    self.take_done();
                }
                WATCHED => woken = true,
                fd => self.advance(fd as RawFd),
            }
        }
        Ok(woken)
    }
}

impl Ring for Blocking {
    fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest) {
        self.queued.push(Job { tag, volume: Arc::clone(volume), request });
    }

    fn net(&mut self, tag: u64, request: NetRequest) {
        self.net_in_flight += 1;
        let fd = match request {
            NetRequest::Accept { listener } => {
                // A listener that waits all the same is asked only once epoll says that somebody is
                // there.
                let _ = listener.descriptor().and_then(|listener| rustix::io::ioctl_fionbio(listener, true));
                let fd = listener.raw();
                self.pending(listener).input.push_back((tag, Input::Accept));
                fd
            }
            NetRequest::Recv { socket, mut buffer } => {
                if buffer.capacity() == buffer.len() {
                    buffer.reserve(4096);
                }
                let fd = socket.raw();
                self.pending(socket).input.push_back((tag, Input::Recv(buffer)));
                fd
            }
            NetRequest::Send { socket, chunks } => {
                let fd = socket.raw();
                self.pending(socket).output.push_back((tag, chunks, 0));
                fd
            }
        };
        self.advance(fd);
    }

    fn shutdown(&mut self, socket: &Socket) {
        // A socket that is not connected any more has nothing to end.
        let _ = socket.descriptor().and_then(|socket| rustix::net::shutdown(socket, Shutdown::Both));
        self.advance(socket.raw());
    }

    fn cancel(&mut self, socket: &Socket) {
        let Some(mut pending) = self.sockets.remove(&socket.raw()) else { return };
        if pending.registered {
            // Fails only if it is not there.
            let _ = pending.socket.descriptor().and_then(|socket| epoll::delete(&self.epoll, socket));
        }
        let before = self.done.len();
        pending.fail(Errno::CANCELED, &mut self.done);
        self.net_in_flight -= self.done.len() - before;
    }

    fn submit(&mut self, wait: Wait) -> io::Result<()> {
        self.hand_over();
        let result = match wait {
            Wait::None => self.wait(0, Some(Duration::ZERO)),
            Wait::For { completions, timeout } => self.wait(completions as usize, timeout),
        };
        self.waker.awake();
        self.shared.finished.awake();
        result
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.take_done();
        completions.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.queued.len() + self.disk_in_flight + self.net_in_flight
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(WATCHED), EventFlags::IN)?)
    }

    fn name(&self) -> &'static str {
        "blocking"
    }

    fn system_calls(&self) -> u64 {
        self.system_calls
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        if self.lineage.is_forked() {
            // Its threads are the parent's: there is nobody to join.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        lock(&self.shared.jobs).stop = true;
        self.shared.ready.notify_all();
        for thread in self.threads.drain(..) {
            // A disk thread does not panic; if it did, there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let mut jobs = lock(&self.jobs);
            let job = loop {
                match jobs.queue.pop_front() {
                    Some(job) => break job,
                    None if jobs.stop => return,
                    None => jobs = self.ready.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(jobs);
            let outcome = sync::execute(&job.volume, job.request);
            lock(&self.done).push(Completion::Disk { tag: job.tag, outcome });
            self.finished.wake();
        }
    }
}

impl SocketQueue {
    fn accept(&self) -> rustix::io::Result<rustix::fd::OwnedFd> {
        rustix::net::accept_with(self.socket.descriptor()?, SocketFlags::CLOEXEC)
    }

    /// Receives or accepts for the requests in their order, until the socket has no more; returns
    /// how many system calls that took.
    fn advance_input(&mut self, done: &mut Vec<Completion>) -> u64 {
        let mut calls = 0;
        while let Some((tag, input)) = self.input.pop_front() {
            calls += 1;
            let outcome = match input {
                Input::Accept => match self.accept() {
                    Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {
                        self.input.push_front((tag, Input::Accept));
                        return calls;
                    }
                    other => NetOutcome::Accept(other.map(accepted).map_err(io::Error::from)),
                },
                Input::Recv(mut buffer) => {
                    let spare = rustix::buffer::spare_capacity(&mut buffer);
                    match self
                        .socket
                        .descriptor()
                        .and_then(|socket| rustix::net::recv(socket, spare, RecvFlags::DONTWAIT))
                    {
                        Err(Errno::AGAIN | Errno::INTR) => {
                            self.input.push_front((tag, Input::Recv(buffer)));
                            return calls;
                        }
                        other => NetOutcome::Recv(buffer, other.map(|(received, _)| received).map_err(io::Error::from)),
                    }
                }
            };
            done.push(Completion::Net { tag, outcome });
        }
        calls
    }

    /// Sends in the order of the requests, as much as the socket takes; returns how many system
    /// calls that took.
    fn advance_output(&mut self, done: &mut Vec<Completion>) -> u64 {
        let mut calls = 0;
        while let Some((tag, chunks, mut sent)) = self.output.pop_front() {
            let total: usize = chunks.iter().map(|chunk| chunk.bytes().len()).sum();
            let result = loop {
                if sent == total {
                    break Ok(());
                }
                calls += 1;
                match send(&self.socket, &chunks, sent) {
                    Ok(more) => sent += more,
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        self.output.push_front((tag, chunks, sent));
                        return calls;
                    }
                    Err(errno) => break Err(errno.into()),
                }
            };
            done.push(Completion::Net { tag, outcome: NetOutcome::Send(result) });
        }
        calls
    }

    fn fail(&mut self, errno: Errno, done: &mut Vec<Completion>) {
        for (tag, input) in self.input.drain(..) {
            let outcome = match input {
                Input::Accept => NetOutcome::Accept(Err(errno.into())),
                Input::Recv(buffer) => NetOutcome::Recv(buffer, Err(errno.into())),
            };
            done.push(Completion::Net { tag, outcome });
        }
        for (tag, _, _) in self.output.drain(..) {
            done.push(Completion::Net { tag, outcome: NetOutcome::Send(Err(errno.into())) });
        }
    }
}

fn send(socket: &Socket, chunks: &[Chunk], mut skip: usize) -> rustix::io::Result<usize> {
    let mut slices = Vec::with_capacity(chunks.len().min(1024));
    for chunk in chunks {
        let bytes = chunk.bytes();
        let left = bytes.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(bytes.len());
        if !left.is_empty() {
            slices.push(IoSlice::new(left));
        }
        if slices.len() == 1024 {
            break;
        }
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket.descriptor()?, &slices, &mut SendAncillaryBuffer::default(), flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later there may be no thread left to be had, and what nobody works off never ends.
    #[test]
    fn a_ring_has_a_thread_before_it_has_a_request() {
        assert_eq!(Blocking::new(8).unwrap().threads.len(), 1);
    }
}
