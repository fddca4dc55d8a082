//! [`Blocking`]: the ring of systems that refuse io_uring: a pool of threads for disks, epoll for sockets.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, IoSlice};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags};

use crate::request::DiskRequest;
use crate::ring::{Chunk, Completion, NetOutcome, NetRequest, Ring, Socket, Wait, Waker, accepted};
use crate::sync;
use crate::volume::Volume;

/// Most disk threads of one ring. KVell's queue of 64 needs no 64 threads here: the fallback is for function, not for records.
const THREADS_MAX: u32 = 16;

/// A pool of threads and an epoll.
pub struct Blocking {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    queued: Vec<Job>,
    disk_in_flight: usize,
    epoll: rustix::fd::OwnedFd,
    sockets: HashMap<RawFd, Pending>,
    net_in_flight: usize,
    done: Vec<Completion>,
    waker: Waker,
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
    waker: Waker,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    stop: bool,
}

/// What waits for readiness of one socket.
struct Pending {
    socket: Socket,
    input: Option<(u64, Input)>,
    output: Option<(u64, Vec<Chunk>, usize)>,
    registered: bool,
}

enum Input {
    Accept,
    Recv(Vec<u8>),
}

const WAKER: u64 = u64::MAX;

impl Blocking {
    /// A ring with up to 16 disk threads.
    ///
    /// # Errors
    /// No descriptor or thread could be made.
    pub fn new(entries: u32) -> io::Result<Blocking> {
        let waker = Waker::new()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &waker.0.event, EventData::new_u64(WAKER), EventFlags::IN)?;
        let shared = Arc::new(Shared {
            jobs: Mutex::default(),
            ready: Condvar::new(),
            done: Mutex::default(),
            waker: waker.clone(),
        });
        let mut ring = Blocking {
            shared,
            threads: Vec::new(),
            queued: Vec::new(),
            disk_in_flight: 0,
            epoll,
            sockets: HashMap::new(),
            net_in_flight: 0,
            done: Vec::new(),
            waker,
        };
        for number in 0..entries.clamp(1, THREADS_MAX) {
            let shared = Arc::clone(&ring.shared);
            let builder = thread::Builder::new().name(format!("stratakv-disk-{number}"));
            ring.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(ring)
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
        pending.advance_input(&mut self.done);
        pending.advance_output(&mut self.done);
        self.net_in_flight -= self.done.len() - before;
        let mut interest = EventFlags::ONESHOT;
        interest.set(EventFlags::IN, pending.input.is_some());
        interest.set(EventFlags::OUT, pending.output.is_some());
        let idle = pending.input.is_none() && pending.output.is_none();
        let data = EventData::new_u64(fd as u64);
        let result = match (idle, pending.registered) {
            (true, true) => epoll::delete(&self.epoll, &pending.socket),
            (true, false) => Ok(()),
            (false, true) => epoll::modify(&self.epoll, &pending.socket, data, interest),
            (false, false) => epoll::add(&self.epoll, &pending.socket, data, interest),
        };
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

    fn pending(&mut self, socket: Socket) -> &mut Pending {
        let fresh = Pending { socket: Arc::clone(&socket), input: None, output: None, registered: false };
        self.sockets.entry(socket.as_raw_fd()).or_insert(fresh)
    }

    fn wait(&mut self, completions: usize, timeout: Option<Duration>) -> io::Result<()> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            // Announced before the look at what is done: a thread that finishes later wakes us.
            self.waker.announce_sleep();
            self.take_done();
            if self.done.len() >= completions {
                return Ok(());
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            let left = left
                .map(|left| rustix::time::Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ });
            let mut events = Vec::with_capacity(256);
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let mut woken = false;
            for event in events {
                match event.data.u64() {
                    WAKER => woken = true,
                    fd => self.advance(fd as RawFd),
                }
            }
            if woken {
                let _ = rustix::io::read(&self.waker.0.event, &mut [0; 8]);
                self.take_done();
                if self.done.is_empty() || self.shared_is_drained() {
                    // Woken by another thread's call, not by a disk thread.
                    return Ok(());
                }
            }
        }
    }

    fn shared_is_drained(&self) -> bool {
        self.disk_in_flight == 0
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
                let _ = rustix::io::ioctl_fionbio(&listener, true);
                let fd = listener.as_raw_fd();
                self.pending(listener).input = Some((tag, Input::Accept));
                fd
            }
            NetRequest::Recv { socket, mut buffer } => {
                if buffer.capacity() == buffer.len() {
                    buffer.reserve(4096);
                }
                let fd = socket.as_raw_fd();
                self.pending(socket).input = Some((tag, Input::Recv(buffer)));
                fd
            }
            NetRequest::Send { socket, chunks } => {
                let fd = socket.as_raw_fd();
                self.pending(socket).output = Some((tag, chunks, 0));
                fd
            }
        };
        self.advance(fd);
    }

    fn shutdown(&mut self, socket: &Socket) {
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
        self.advance(socket.as_raw_fd());
    }

    fn submit(&mut self, wait: Wait) -> io::Result<()> {
        if !self.queued.is_empty() {
            self.disk_in_flight += self.queued.len();
            let mut jobs = lock(&self.shared.jobs);
            jobs.queue.extend(self.queued.drain(..));
            drop(jobs);
            self.shared.ready.notify_all();
        }
        let result = match wait {
            Wait::None => self.wait(0, Some(Duration::ZERO)),
            Wait::For { completions, timeout } => self.wait(completions as usize, timeout),
        };
        self.waker.awake();
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

    fn name(&self) -> &'static str {
        "blocking"
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
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
            self.waker.wake();
        }
    }
}

impl Pending {
    fn advance_input(&mut self, done: &mut Vec<Completion>) {
        let Some((tag, input)) = self.input.take() else { return };
        let outcome = match input {
            Input::Accept => match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {
                    self.input = Some((tag, Input::Accept));
                    return;
                }
                other => NetOutcome::Accept(other.map(accepted).map_err(io::Error::from)),
            },
            Input::Recv(mut buffer) => {
                let spare = rustix::buffer::spare_capacity(&mut buffer);
                match rustix::net::recv(&self.socket, spare, RecvFlags::DONTWAIT) {
                    Err(Errno::AGAIN | Errno::INTR) => {
                        self.input = Some((tag, Input::Recv(buffer)));
                        return;
                    }
                    other => NetOutcome::Recv(buffer, other.map(|(received, _)| received).map_err(io::Error::from)),
                }
            }
        };
        done.push(Completion::Net { tag, outcome });
    }

    fn advance_output(&mut self, done: &mut Vec<Completion>) {
        let Some((tag, chunks, mut sent)) = self.output.take() else { return };
        let total: usize = chunks.iter().map(|chunk| chunk.bytes().len()).sum();
        let result = loop {
            if sent == total {
                break Ok(());
            }
            match send(&self.socket, &chunks, sent) {
                Ok(more) => sent += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.output = Some((tag, chunks, sent));
                    return;
                }
                Err(errno) => break Err(errno.into()),
            }
        };
        done.push(Completion::Net { tag, outcome: NetOutcome::Send(result) });
    }

    fn fail(&mut self, errno: Errno, done: &mut Vec<Completion>) {
        if let Some((tag, input)) = self.input.take() {
            let outcome = match input {
                Input::Accept => NetOutcome::Accept(Err(errno.into())),
                Input::Recv(buffer) => NetOutcome::Recv(buffer, Err(errno.into())),
            };
            done.push(Completion::Net { tag, outcome });
        }
        if let Some((tag, _, _)) = self.output.take() {
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
    rustix::net::sendmsg(socket.as_fd(), &slices, &mut SendAncillaryBuffer::default(), flags)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
