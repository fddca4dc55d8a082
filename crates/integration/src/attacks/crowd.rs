//! Many hostile clients in one thread: each sends its request once, or again and again, and takes
//! answers or does not.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::wire::{Dialer, Wire};

/// How long the thread sleeps at most.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// One read of an answer, and how many follow each other.
const READ_BYTES: usize = 256 << 10;
const READS: usize = 4;
/// Who could not connect tries again after so long.
const REDIAL: Duration = Duration::from_millis(100);

/// How often a client sends its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// Once.
    Once,
    /// As often as the server takes it.
    Always,
    /// Once in so long, if the server took the last one.
    Every(Duration),
}

/// What each client of a crowd does.
#[derive(Clone)]
pub struct Script {
    /// How many there are.
    pub clients: usize,
    /// The beginning of the request of the client with this number.
    pub head: fn(usize) -> Vec<u8>,
    /// The rest of it, the same for all.
    pub body: Arc<Vec<u8>>,
    /// How often it is sent.
    pub repeats: Repeats,
    /// Whether they read what they are answered.
    pub takes_answers: bool,
    /// Whether they connect again when they were closed, and after how long.
    pub comes_back: Option<Duration>,
}

/// What happened to a crowd.
#[derive(Debug, Default)]
pub struct Tally {
    /// Connections that the server closed.
    pub closed: AtomicU64,
    /// Connections that could not be made.
    pub refused: AtomicU64,
    /// Bytes that the server took.
    pub sent_bytes: AtomicU64,
    /// Bytes of answers.
    pub received_bytes: AtomicU64,
}

impl Tally {
    /// Bytes in both directions.
    pub fn moved_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed) + self.received_bytes.load(Ordering::Relaxed)
    }
}

/// A crowd at work; it leaves when it is dropped.
#[derive(Debug)]
pub struct Crowd {
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Crowd {
    /// Sends it to a server.
    pub fn start(script: Script, dialer: Dialer) -> Crowd {
        let (tally, stop) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
        let work = Work::new(script, dialer, Arc::clone(&tally));
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || work?.run(&until));
        Crowd { tally, stop, thread: Some(thread) }
    }

    /// What has happened to it so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// All of them leave.
    ///
    /// # Errors
    /// The harness could not do what it should.
    pub fn leave(mut self) -> Result<Arc<Tally>, String> {
        self.end()?;
        Ok(Arc::clone(&self.tally))
    }

    fn end(&mut self) -> Result<(), String> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err("the crowd's thread panicked".into()))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Who drops it has an error of its own to tell.
        let _ = self.end();
    }
}

/// One of them.
#[derive(Debug, Default)]
struct Client {
    wire: Option<Wire>,
    request: Vec<u8>,
    /// So much of head and body is sent.
    sent: usize,
    /// When it sends again, or connects.
    due: Option<Instant>,
    queued: bool,
}

struct Work {
    script: Script,
    dialer: Dialer,
    tally: Arc<Tally>,
    epoll: std::os::fd::OwnedFd,
    clients: Vec<Client>,
    /// Those that may be able to do something.
    queue: VecDeque<usize>,
    sink: Vec<u8>,
}

impl Work {
    fn new(script: Script, dialer: Dialer, tally: Arc<Tally>) -> Result<Work, String> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("no epoll: {error}"))?;
        let now = Instant::now();
        let client = |number| Client { request: (script.head)(number), due: Some(now), ..Client::default() };
        let clients = (0..script.clients).map(client).collect();
        Ok(Work { script, dialer, tally, epoll, clients, queue: VecDeque::new(), sink: vec![0; READ_BYTES] })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<(), String> {
        let mut events = Vec::with_capacity(1024);
        let mut looked_at: Option<Instant> = None;
        while !stop.load(Ordering::Relaxed) {
            let timeout = if self.queue.is_empty() { LOOK_EVERY } else { Timespec { tv_sec: 0, tv_nsec: 0 } };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("epoll: {error}")),
            }
            for event in events.drain(..) {
                let (flags, number) = (event.flags, event.data.u64() as usize);
                let is_over = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                let peer_ended = flags.contains(epoll::EventFlags::RDHUP) && !self.script.takes_answers;
                if is_over || peer_ended {
                    self.closed(number);
                } else {
                    self.enqueue(number);
                }
            }
            let now = Instant::now();
            if looked_at.is_none_or(|at| now - at >= Duration::from_millis(1)) {
                looked_at = Some(now);
                self.begin_what_is_due(now);
            }
            for _ in 0..self.queue.len().min(256) {
                let Some(number) = self.queue.pop_front() else { break };
                self.clients[number].queued = false;
                self.go_on(number, now);
            }
        }
        Ok(())
    }

    fn enqueue(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        if !std::mem::replace(&mut client.queued, true) {
            self.queue.push_back(number);
        }
    }

    fn begin_what_is_due(&mut self, now: Instant) {
        for number in 0..self.clients.len() {
            let client = &mut self.clients[number];
            if client.due.is_none_or(|due| due > now) {
                continue;
            }
            client.due = None;
            if client.wire.is_none() {
                self.connect(number, now);
            }
            self.enqueue(number);
        }
    }

    fn connect(&mut self, number: usize, now: Instant) {
        let wire = self.dialer.dial();
        let client = &mut self.clients[number];
        let Ok(wire) = wire else {
            self.tally.refused.fetch_add(1, Ordering::Relaxed);
            client.due = Some(now + REDIAL);
            return;
        };
        let all = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(number as u64);
        if epoll::add(&self.epoll, &wire, data, all).is_ok() {
            (client.wire, client.sent) = (Some(wire), 0);
        }
    }

    fn closed(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        // A closed socket leaves the epoll by itself.
        if client.wire.take().is_some() {
            self.tally.closed.fetch_add(1, Ordering::Relaxed);
            client.due = self.script.comes_back.map(|pause| Instant::now() + pause);
        }
    }

    /// Reads and writes what can be read and written now.
    fn go_on(&mut self, number: usize, now: Instant) {
        let (mut again, mut is_over) = (false, false);
        let Some(client) = self.clients.get_mut(number) else { return };
        let Some(wire) = &mut client.wire else { return };
        if self.script.takes_answers {
            for tick in 0..READS {
                match wire.read(&mut self.sink) {
                    Ok(0) => is_over = true,
                    Ok(bytes) => {
                        self.tally.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                        again |= tick + 1 == READS;
                        continue;
                    }
                    Err(error) => is_over = !is_transient(error.kind()),
                }
                break;
            }
        }
        if !is_over && client.due.is_none() {
            match write_some(wire, &client.request, &self.script.body, &mut client.sent) {
                Ok(0) => {}
                Ok(bytes) => {
                    self.tally.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                    again = true;
                }
                Err(kind) => is_over |= !is_transient(kind),
            }
            let whole = client.request.len() + self.script.body.len();
            if client.sent == whole && self.script.repeats != Repeats::Once {
                client.sent = 0;
                if let Repeats::Every(pause) = self.script.repeats {
                    (client.due, again) = (Some(now + pause), false);
                }
            }
        }
        match is_over {
            true => self.closed(number),
            false if again => self.enqueue(number),
            false => {}
        }
    }
}

fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}

/// Goes on with head and body; 0: nothing is left of them.
fn write_some(wire: &mut Wire, head: &[u8], body: &[u8], sent: &mut usize) -> Result<usize, ErrorKind> {
    let left = match head.get(*sent..).filter(|left| !left.is_empty()) {
        Some(left) => left,
        None => body.get(*sent - head.len()..).unwrap_or_default(),
    };
    let written = if left.is_empty() { wire.flush().map(|()| 0) } else { wire.write(left) };
    let bytes = written.map_err(|error| error.kind())?;
    *sent += bytes;
    Ok(bytes)
}
