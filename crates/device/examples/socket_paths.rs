//! What multishot receives and accepts, provided buffers, POLL_FIRST and zero-copy sends would save
//! a server thread: its processor time for each request over loopback TCP, beside what `Uring` does
//! (single-shot, into the connection's own buffer, SENDMSG). The figures behind decision 41.
//!
//! `cargo run --release --example socket_paths -- [recv|send|idle|accept|copy]... [--rounds N]`:
//! all without a name. Needs Linux 6.0 and two processors: the server runs on the first, its client
//! (a ring too) on the second. Ways of doing a thing take turns; printed are medians over the
//! rounds, and of the ratios to the first way within a round the median and the quartiles.
//!
//! The rings are raw and not `Ring`s: what is compared is what `Ring` could ask of the kernel.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]
#![expect(
    unsafe_code,
    reason = "what is compared are raw submissions; buffers live as long as the rings that know them"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::error::Error;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::types::{BufRingEntry, CancelBuilder, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

type Case = fn(usize) -> Outcome<()>;
/// As in the kernel's header; io-uring keeps them to itself.
const POLL_FIRST: u16 = 1 << 0;
const REPORT_USAGE: u16 = 1 << 3;
const ACCEPT_POLL_FIRST: u16 = 1 << 2;
const COPIED: u32 = 1 << 31;

const REQUEST: usize = 32;
const RESPONSE: usize = 100;
/// What a reply has before and after a value.
const HEAD: usize = 40;
const TAIL: usize = 2;
const PROVIDED_BYTES: usize = 4096;
/// Values are sent from here, each from another place: no cache holds them.
const VALUES: usize = 64 << 20;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = match arguments.iter().position(|argument| argument == "--rounds") {
        Some(at) => arguments.get(at + 1).ok_or("--rounds N")?.parse()?,
        None => 7,
    };
    let named: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| word.starts_with(|c: char| c.is_alphabetic())).collect();
    let chosen = |name: &str| named.is_empty() || named.contains(&name);
    let limit = Rlimit { current: Some(40_000), maximum: Some(40_000) };
    // Fails for an ordinary user: fewer idle connections then.
    let _ = setrlimit(Resource::Nofile, limit);
    let cases: [(&str, Case); 5] =
        [("recv", receives), ("send", sends), ("idle", idle), ("accept", accepts), ("copy", copies)];
    for (_, run) in cases.iter().filter(|(name, _)| chosen(name)) {
        run(rounds)?;
    }
    Ok(())
}

/// How the server receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    /// Single-shot, into a buffer of the connection: today.
    Own,
    /// The same, with IORING_RECVSEND_POLL_FIRST.
    PollFirst,
    /// The same, unless the receive before said that there is more (IORING_CQE_F_SOCK_NONEMPTY).
    PollFirstIfEmpty,
    /// Single-shot, a buffer of a ring of provided ones.
    Provided,
    /// The same with POLL_FIRST.
    ProvidedPollFirst,
    /// Multishot, buffers of that ring.
    Multishot,
}

/// How it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// Head, value and tail by SENDMSG: today.
    Message,
    /// The same by SENDMSG_ZC.
    MessageZeroCopy,
    /// As many bytes in one piece by SEND_ZC.
    ZeroCopy,
    /// The same, from registered memory.
    ZeroCopyFixed,
}

/// How it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    /// One by one: today.
    Single,
    /// The same with IORING_ACCEPT_POLL_FIRST (Linux 6.10).
    PollFirst,
    Multishot,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    connections: usize,
    /// Each is `REQUEST` bytes; a client sends so many at once.
    pipelined: usize,
    /// The whole reply to one of them.
    response: usize,
    /// Pipelines in all, and how many of them come before the clock starts.
    total: usize,
    warm: usize,
    own_bytes: usize,
    recv: Receiving,
    send: Sending,
}

/// As today.
const PLAIN: Load = Load {
    connections: 1,
    pipelined: 1,
    response: RESPONSE,
    total: 0,
    warm: 0,
    own_bytes: 2048,
    recv: Receiving::Own,
    send: Sending::Message,
};

/// What was measured of one thread between the end of the warm-up and the last answer.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    processor: Duration,
    wall: Duration,
    system_calls: u64,
    notifications: u64,
    copied: u64,
    before: [u64; 2],
    after: [u64; 2],
    client: Duration,
}

struct Connection {
    socket: TcpStream,
    own: Vec<u8>,
    /// Bytes of a request of which the end has not come.
    begun: usize,
    owed: usize,
    sending: bool,
    ended: bool,
    /// The last receive left nothing behind.
    emptied: bool,
    vectors: [libc::iovec; 3],
    message: libc::msghdr,
}

const RECEIVED: u64 = 0;
const SENT: u64 = 1;

struct Server<'a> {
    // Dropped before the buffers it knows.
    ring: IoUring,
    load: Load,
    connections: Vec<Connection>,
    provided: Option<Provided>,
    values: &'a Pages,
    value_at: usize,
    answered: usize,
    open: usize,
    notifications_due: usize,
    measured: Measured,
}

/// As `Uring` sets its ring up.
fn ring(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(entries * 4)
        .build(entries)
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: who pushes keeps what the entry points to until its completion, or longer.
    while unsafe { ring.submission().push(entry) }.is_err() {
        ring.submit()?;
    }
    Ok(())
}

impl Server<'_> {
    fn serve(mut self) -> Outcome<Measured> {
        self.measured.before = memory()?;
        if self.load.send == Sending::ZeroCopyFixed {
            let whole = libc::iovec { iov_base: self.values.start.cast(), iov_len: VALUES };
            // SAFETY: the pages outlive the ring.
            unsafe { self.ring.submitter().register_buffers(&[whole])? };
        }
        if matches!(self.load.recv, Receiving::Provided | Receiving::ProvidedPollFirst | Receiving::Multishot) {
            self.provided = Some(Provided::new(&self.ring, 256)?);
        } else {
            self.connections.iter_mut().for_each(|one| one.own = Vec::with_capacity(self.load.own_bytes));
        }
        (0..self.connections.len()).try_for_each(|number| self.receive(number))?;
        let (mut system_calls, mut entries) = (0, Vec::<cqueue::Entry>::new());
        let mut began = None;
        let mut is_over = false;
        while self.open > 0 || self.notifications_due > 0 {
            if began.is_none() && self.answered >= self.load.warm {
                began = Some((processor_time(), Instant::now(), system_calls));
            }
            if let Some((processor, instant, calls)) = began.filter(|_| !is_over && self.answered >= self.load.total) {
                is_over = true;
                self.measured.processor = processor_time() - processor;
                self.measured.wall = instant.elapsed();
                self.measured.system_calls = system_calls - calls;
                self.measured.after = memory()?;
            }
            system_calls += 1;
            self.ring.submit_and_wait(1)?;
            entries.extend(self.ring.completion());
            for entry in entries.drain(..) {
                self.complete(&entry)?;
            }
        }
        Ok(self.measured)
    }

    fn complete(&mut self, entry: &cqueue::Entry) -> Outcome<()> {
        let number = (entry.user_data() >> 1) as usize;
        if entry.user_data() & 1 == SENT {
            return self.sent(number, entry);
        }
        let more = cqueue::more(entry.flags());
        if entry.result() <= 0 {
            let is_short_of_buffers = entry.result() == -libc::ENOBUFS;
            if !is_short_of_buffers {
                self.open -= usize::from(!self.connections[number].ended);
                self.connections[number].ended = true;
                return Ok(());
            }
        }
        let bytes = entry.result().max(0) as usize;
        let connection = &mut self.connections[number];
        connection.emptied = !cqueue::sock_nonempty(entry.flags());
        if let Some(provided) = &mut self.provided {
            if let Some(buffer) = cqueue::buffer_select(entry.flags()) {
                connection.parse(provided.bytes(buffer, bytes));
                provided.give_back(buffer);
            }
        } else {
            let mut own = std::mem::take(&mut connection.own);
            // SAFETY: the kernel has filled so many.
            unsafe { own.set_len(bytes) };
            connection.parse(&own);
            own.clear();
            connection.own = own;
        }
        // As a worker does it: the next receive is queued before the reply.
        if !more {
            self.receive(number)?;
        }
        self.send(number)
    }

    fn receive(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        let socket = Fd(connection.socket.as_raw_fd());
        let poll_first = match self.load.recv {
            Receiving::Own | Receiving::Provided | Receiving::Multishot => 0,
            Receiving::PollFirst | Receiving::ProvidedPollFirst => POLL_FIRST,
            Receiving::PollFirstIfEmpty => POLL_FIRST * u16::from(connection.emptied),
        };
        let entry = match self.load.recv {
            Receiving::Own | Receiving::PollFirst | Receiving::PollFirstIfEmpty => {
                let spare = connection.own.spare_capacity_mut();
                opcode::Recv::new(socket, spare.as_mut_ptr().cast(), spare.len() as u32).ioprio(poll_first).build()
            }
            Receiving::Provided | Receiving::ProvidedPollFirst => opcode::Recv::new(socket, std::ptr::null_mut(), 0)
                .ioprio(poll_first)
                .buf_group(0)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
            Receiving::Multishot => opcode::RecvMulti::new(socket, 0).build(),
        };
        push(&mut self.ring, &entry.user_data((number as u64) << 1 | RECEIVED))
    }

    fn send(&mut self, number: usize) -> Outcome<()> {
        let connection = &mut self.connections[number];
        if connection.sending || connection.owed == 0 {
            return Ok(());
        }
        connection.sending = true;
        let bytes = std::mem::take(&mut connection.owed) * self.load.response;
        if self.value_at + bytes > VALUES {
            self.value_at = 0;
        }
        let at = self.values.start.wrapping_add(self.value_at);
        self.value_at = (self.value_at + bytes).next_multiple_of(4096);
        let socket = Fd(connection.socket.as_raw_fd());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = match self.load.send {
            Sending::Message => {
                let message = connection.describe(at, bytes);
                opcode::SendMsg::new(socket, message).flags(flags as u32).build()
            }
            Sending::MessageZeroCopy => {
                let message = connection.describe(at, bytes);
                opcode::SendMsgZc::new(socket, message).flags(flags as u32).ioprio(REPORT_USAGE).build()
            }
            Sending::ZeroCopy => {
                opcode::SendZc::new(socket, at, bytes as u32).flags(flags).zc_flags(REPORT_USAGE).build()
            }
            Sending::ZeroCopyFixed => opcode::SendZc::new(socket, at, bytes as u32)
                .flags(flags)
                .zc_flags(REPORT_USAGE)
                .buf_index(Some(0))
                .build(),
        };
        Ok(push(&mut self.ring, &entry.user_data((number as u64) << 1 | SENT))?)
    }

    fn sent(&mut self, number: usize, entry: &cqueue::Entry) -> Outcome<()> {
        if cqueue::notif(entry.flags()) {
            self.notifications_due -= 1;
            self.measured.notifications += 1;
            self.measured.copied += u64::from(entry.result() as u32 & COPIED != 0);
            return Ok(());
        }
        self.notifications_due += usize::from(cqueue::more(entry.flags()));
        if entry.result() < 0 {
            return Err(io::Error::from_raw_os_error(-entry.result()).into());
        }
        self.answered += entry.result() as usize / self.load.response;
        self.connections[number].sending = false;
        self.send(number)
    }
}

impl Connection {
    fn new(socket: TcpStream) -> Connection {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Connection {
            socket,
            own: Vec::new(),
            begun: 0,
            owed: 0,
            sending: false,
            ended: false,
            emptied: true,
            vectors: [none; 3],
            // SAFETY: msghdr is plain data for which all zeros is valid.
            message: unsafe { std::mem::zeroed() },
        }
    }

    /// Finds the line ends, where the bytes lie.
    fn parse(&mut self, bytes: &[u8]) {
        let mut at = REQUEST - self.begun - 1;
        while let Some(last) = bytes.get(at) {
            assert_eq!(*last, b'\n');
            self.owed += 1;
            at += REQUEST;
        }
        self.begun = (self.begun + bytes.len()) % REQUEST;
    }

    /// A message of several pieces. The connections do not move while it is used.
    fn describe(&mut self, at: *mut u8, bytes: usize) -> *const libc::msghdr {
        let piece = |from, len| libc::iovec { iov_base: at.wrapping_add(from).cast(), iov_len: len };
        // Small replies are one piece.
        let pieces = if bytes.is_multiple_of(RESPONSE) { 1 } else { 3 };
        self.vectors = match pieces {
            1 => [piece(0, bytes), piece(bytes, 0), piece(bytes, 0)],
            _ => [piece(0, HEAD), piece(HEAD, bytes - HEAD - TAIL), piece(bytes - TAIL, TAIL)],
        };
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = pieces as _;
        &raw const self.message
    }
}

// SAFETY: the pointers are into the connection itself and into pages that outlive every thread.
unsafe impl Send for Connection {}

struct Pages {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: owned memory, written by nobody but the kernel on behalf of its one user.
unsafe impl Send for Pages {}
// SAFETY: shared only to be read.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(bytes: usize) -> Outcome<Pages> {
        let layout = Layout::from_size_align(bytes, 4096)?;
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err("no memory".into());
        }
        Ok(Pages { start, layout })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// Buffers of which the kernel takes one when bytes have come (IORING_REGISTER_PBUF_RING).
struct Provided {
    entries: Pages,
    buffers: Pages,
    count: u16,
    tail: u16,
}

impl Provided {
    fn new(ring: &IoUring, count: u16) -> Outcome<Provided> {
        let entries = Pages::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let buffers = Pages::new(usize::from(count) * PROVIDED_BYTES)?;
        // SAFETY: the server drops its ring first.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries.start as u64, count, 0, 0)? };
        let mut provided = Provided { entries, buffers, count, tail: 0 };
        (0..count).for_each(|buffer| provided.give_back(buffer));
        Ok(provided)
    }

    fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        let at = usize::from(buffer % self.count) * PROVIDED_BYTES;
        // SAFETY: within the buffers; the kernel, which filled it, has it back after `give_back`.
        unsafe { std::slice::from_raw_parts(self.buffers.start.add(at), len.min(PROVIDED_BYTES)) }
    }

    fn give_back(&mut self, buffer: u16) {
        let first = self.entries.start.cast::<BufRingEntry>();
        // SAFETY: an entry of the ring, which the kernel does not read before the tail is past it.
        let entry = unsafe { &mut *first.add(usize::from(self.tail % self.count)) };
        entry.set_addr(self.buffers.start.wrapping_add(usize::from(buffer) * PROVIDED_BYTES) as u64);
        entry.set_len(PROVIDED_BYTES as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail lies within the first entry and is aligned.
        let tail = unsafe { &*BufRingEntry::tail(first).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Sends pipelines and awaits each one's replies, on every connection at once. Its processor time.
fn ask(load: Load, mut sockets: Vec<TcpStream>, begins: &Barrier) -> Outcome<Duration> {
    pin(1)?;
    let mut ring = ring(1024)?;
    let line: Vec<u8> = (0..REQUEST).map(|at| if at + 1 == REQUEST { b'\n' } else { b'x' }).collect();
    let request = line.repeat(load.pipelined);
    let reply = load.response * load.pipelined;
    let mut replies: Vec<Vec<u8>> = sockets.iter().map(|_| vec![0; reply]).collect();
    let mut left = vec![load.total / load.pipelined / load.connections; sockets.len()];
    begins.wait();
    let began = processor_time();
    let mut open = sockets.len();
    let mut ready: Vec<usize> = (0..sockets.len()).collect();
    while open > 0 {
        for number in ready.drain(..) {
            if left[number] == 0 {
                open -= 1;
                continue;
            }
            left[number] -= 1;
            let socket = Fd(sockets[number].as_raw_fd());
            push(
                &mut ring,
                &opcode::Send::new(socket, request.as_ptr(), request.len() as u32).build().user_data(u64::MAX),
            )?;
            let into = &mut replies[number];
            let entry = opcode::Recv::new(socket, into.as_mut_ptr(), into.len() as u32).flags(libc::MSG_WAITALL);
            push(&mut ring, &entry.ioprio(POLL_FIRST).build().user_data(number as u64))?;
        }
        if open > 0 {
            ring.submit_and_wait(1)?;
        }
        for entry in ring.completion() {
            let due = if entry.user_data() == u64::MAX { request.len() } else { reply };
            if entry.result() != due as i32 {
                return Err(format!("{} instead of {due} bytes", entry.result()).into());
            }
            if entry.user_data() != u64::MAX {
                ready.push(entry.user_data() as usize);
            }
        }
    }
    let spent = processor_time() - began;
    sockets.clear();
    Ok(spent)
}

/// One round of one way.
fn exchange(load: Load, values: &Pages) -> Outcome<Measured> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..load.connections {
        near.push(TcpStream::connect(listener.local_addr()?)?);
        let (socket, _) = listener.accept()?;
        near.last().map_or(Ok(()), |socket| socket.set_nodelay(true))?;
        socket.set_nodelay(true)?;
        far.push(Connection::new(socket));
    }
    let begins = Barrier::new(2);
    thread::scope(|scope| {
        let client = scope.spawn(|| ask(load, near, &begins));
        let server = scope.spawn(|| {
            let made = pin(0).and_then(|()| Ok(ring(512)?));
            begins.wait();
            let server = Server {
                ring: made?,
                load,
                open: far.len(),
                connections: far,
                provided: None,
                values,
                value_at: 0,
                answered: 0,
                notifications_due: 0,
                measured: Measured::default(),
            };
            server.serve()
        });
        let client = client.join().map_err(|_| "the client panicked")?;
        let mut measured = server.join().map_err(|_| "the server panicked")??;
        measured.client = client?;
        Ok(measured)
    })
}

fn receives(rounds: usize) -> Outcome<()> {
    let values = Pages::new(VALUES)?;
    let ways = [
        Receiving::Own,
        Receiving::PollFirst,
        Receiving::PollFirstIfEmpty,
        Receiving::Provided,
        Receiving::ProvidedPollFirst,
        Receiving::Multishot,
    ];
    for pipelined in [1, 4096 / REQUEST] {
        println!("\nreceive: {} B at once, {RESPONSE} B back for each {REQUEST} B", pipelined * REQUEST);
        for connections in [1, 16, 64, 256] {
            let load = |recv| Load {
                connections,
                pipelined,
                total: match (pipelined, connections) {
                    (1, 1) => 4000,
                    (1, _) => 15_360,
                    (_, 1) => 1500 * pipelined,
                    _ => 2560 * pipelined,
                },
                warm: if pipelined == 1 { 1000 } else { 256 * pipelined },
                own_bytes: if pipelined == 1 { 2048 } else { 8192 },
                recv,
                ..PLAIN
            };
            compare(
                rounds,
                &ways,
                &format!("{connections} connections"),
                |way| exchange(load(way), &values),
                |way| ((load(way).total - load(way).warm) / pipelined) as f64,
            )?;
        }
    }
    Ok(())
}

fn sends(rounds: usize) -> Outcome<()> {
    let values = Pages::new(VALUES)?;
    // Zeroed pages are one page until they are written to.
    // SAFETY: within the pages, which nobody else uses yet.
    (0..VALUES).step_by(64).for_each(|at| unsafe { values.start.add(at).write(7) });
    let ways = [Sending::Message, Sending::MessageZeroCopy, Sending::ZeroCopy, Sending::ZeroCopyFixed];
    for kib in [4, 16, 64, 256, 1024] {
        println!("\nsend: values of {kib} KiB");
        let (response, total) = (HEAD + (kib << 10) + TAIL, (300_000 / (kib + 20)).next_multiple_of(4));
        let load = |send| Load { connections: 4, response, total, warm: 40, send, ..PLAIN };
        compare(
            rounds,
            &ways,
            "4 connections",
            |way| exchange(load(way), &values),
            |way| (load(way).total - load(way).warm) as f64,
        )?;
    }
    Ok(())
}

/// Takes turns, prints medians.
fn compare<W: Copy + std::fmt::Debug>(
    rounds: usize,
    ways: &[W],
    title: &str,
    mut run: impl FnMut(W) -> Outcome<Measured>,
    units: impl Fn(W) -> f64,
) -> Outcome<()> {
    let mut all: Vec<Vec<Measured>> = vec![Vec::new(); ways.len()];
    for round in 0..rounds {
        // Nobody is always the one after the same other.
        for at in (0..ways.len()).map(|at| (at + round) % ways.len()) {
            all[at].push(run(ways[at])?);
        }
    }
    println!("  {title}");
    for (way, measured) in ways.iter().zip(&all) {
        let units = units(*way);
        let of = |value: &dyn Fn(&Measured) -> f64| median(measured.iter().map(value).collect());
        let ratio = |(one, first): (&Measured, &Measured)| one.processor.as_secs_f64() / first.processor.as_secs_f64();
        let ratios: Vec<f64> = measured.iter().zip(&all[0]).map(ratio).collect();
        println!(
            "    {:<16} server {:>8.2} us, {:.3} ({:.2} to {:.2}) of the first; client {:>8.2} us; {:>9.0} a second, {:.3} calls each{}",
            format!("{way:?}"),
            of(&|one| one.processor.as_secs_f64() * 1e6 / units),
            median(ratios.clone()),
            quantile(ratios.clone(), 0.25),
            quantile(ratios, 0.75),
            of(&|one| one.client.as_secs_f64() * 1e6 / units),
            of(&|one| units / one.wall.as_secs_f64()),
            of(&|one| one.system_calls as f64 / units),
            match measured.iter().map(|one| one.notifications).sum::<u64>() {
                0 => String::new(),
                many => format!("; {} of {many} copied", measured.iter().map(|one| one.copied).sum::<u64>()),
            }
        );
    }
    Ok(())
}

/// Memory of connections that have asked once and wait.
fn idle(_rounds: usize) -> Outcome<()> {
    let values = Pages::new(VALUES)?;
    let files = getrlimit(Resource::Nofile).current.unwrap_or(40_000) as usize;
    let connections = 10_000.min((files - 100) / 2);
    println!("\nidle: {connections} connections that have asked once");
    for recv in [Receiving::Multishot, Receiving::Provided, Receiving::Own] {
        let load = Load { connections, total: connections, recv, ..PLAIN };
        for own_bytes in if recv == Receiving::Own { &[2048, 4096][..] } else { &[0] } {
            let measured = exchange(Load { own_bytes: *own_bytes, ..load }, &values)?;
            let each = |of: usize| measured.after[of].saturating_sub(measured.before[of]) as f64 / connections as f64;
            println!(
                "    {:<16} {own_bytes:>5} B of its own: {:>6.0} B resident, {:>6.0} B of kernel slabs for each",
                format!("{recv:?}"),
                each(0),
                each(1)
            );
        }
    }
    Ok(())
}

fn accepts(rounds: usize) -> Outcome<()> {
    for burst in [1, 64] {
        println!("\naccept: storms of {burst} at once, closed again");
        let (total, ways) = (3200, [Accepting::Single, Accepting::PollFirst, Accepting::Multishot]);
        compare(rounds, &ways, "one thread accepts", |way| storm(way, burst, total), |_| total as f64)?;
    }
    Ok(())
}

fn storm(way: Accepting, burst: usize, total: usize) -> Outcome<Measured> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let server = scope.spawn(|| pin(0).and_then(|()| accept(&listener, way, total)));
        pin(1)?;
        let began = processor_time();
        for _ in 0..total / burst {
            let sockets: Vec<_> = (0..burst).map(|_| TcpStream::connect(address)).collect::<Result<_, _>>()?;
            for mut socket in sockets {
                // The server closes it first; a reset then, so that no port is kept.
                let _ = socket.read(&mut [0])?;
                rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
            }
        }
        let client = processor_time() - began;
        let measured = server.join().map_err(|_| "the server panicked")??;
        Ok(Measured { client, ..measured })
    })
}

/// Accepts `total` connections, readies them as `Uring` does, and closes them.
fn accept(listener: &TcpListener, way: Accepting, total: usize) -> Outcome<Measured> {
    let mut ring = ring(64)?;
    let socket = Fd(listener.as_raw_fd());
    let flags = libc::SOCK_CLOEXEC;
    let mut entry = match way {
        Accepting::Multishot => opcode::AcceptMulti::new(socket).flags(flags).build(),
        _ => opcode::Accept::new(socket, std::ptr::null_mut(), std::ptr::null_mut()).flags(flags).build(),
    };
    if way == Accepting::PollFirst {
        // io-uring has no word for it.
        // SAFETY: an entry is the kernel's io_uring_sqe, whose `ioprio` is its second u16.
        unsafe { (&raw mut entry).cast::<u16>().add(1).write(ACCEPT_POLL_FIRST) };
    }
    let (began, start, mut system_calls) = (processor_time(), Instant::now(), 0);
    let (mut accepted, mut is_armed, mut entries) = (0, false, Vec::<cqueue::Entry>::new());
    while accepted < total {
        if !is_armed {
            push(&mut ring, &entry)?;
            is_armed = true;
        }
        system_calls += 1;
        ring.submit_and_wait(1)?;
        entries.extend(ring.completion());
        for entry in entries.drain(..) {
            is_armed = cqueue::more(entry.flags());
            if entry.result() < 0 {
                return Err(io::Error::from_raw_os_error(-entry.result()).into());
            }
            // SAFETY: a successful accept gives a new descriptor that nobody else owns.
            let socket = unsafe { OwnedFd::from_raw_fd(entry.result()) };
            rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
            let _ = rustix::net::getpeername(&socket);
            accepted += 1;
        }
    }
    let measured =
        Measured { processor: processor_time() - began, wall: start.elapsed(), system_calls, ..Measured::default() };
    if is_armed {
        push(&mut ring, &opcode::AsyncCancel2::new(CancelBuilder::fd(socket).all()).build())?;
        ring.submit_and_wait(2)?;
    }
    Ok(measured)
}

/// What copying costs that zero-copy would save: from cold memory to cold memory.
fn copies(rounds: usize) -> Outcome<()> {
    pin(0)?;
    println!("\ncopy: from memory that no cache holds");
    let (from, to) = (vec![1_u8; VALUES], vec![2_u8; VALUES]);
    let mut to = to;
    for kib in [4, 16, 64, 256, 1024] {
        let bytes = kib << 10;
        let times = (0..rounds).map(|_| {
            let began = processor_time();
            for (to, from) in to.chunks_exact_mut(bytes).zip(from.chunks_exact(bytes)) {
                to.copy_from_slice(from);
            }
            (processor_time() - began).as_secs_f64() * 1e6 / (VALUES / bytes) as f64
        });
        println!("    {kib:>5} KiB {:>8.2} us", median(times.collect()));
    }
    std::hint::black_box(to);
    Ok(())
}

fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

/// Of the calling thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn pin(processor: usize) -> Outcome<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

/// The figure of a line of a file of proc, in bytes.
fn figure(path: &str, name: &str) -> Outcome<u64> {
    let text = std::fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or("proc tells something else")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

/// Memory of the process, and of the kernel's slabs, whoever uses them.
fn memory() -> Outcome<[u64; 2]> {
    Ok([figure("/proc/self/status", "VmRSS:")?, figure("/proc/meminfo", "SUnreclaim:")?])
}
