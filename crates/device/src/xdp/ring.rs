//! [`XdpRing`]: a ring whose sockets may be a stack's; all else goes to the ring below.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::open::{Attachment, XdpHealth, XdpQueue};
use super::stack::Stack;
use super::umem::UmemIo;
use super::xsk::XskRings;
use crate::fork::Lineage;
use crate::request::DiskRequest;
use crate::ring::{Completion, NetRequest, Ring, Socket, Wait, Waker};
use crate::volume::Volume;

/// How long after its last work a thread looks for more before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How often a thread that is busy asks whether its interface is there.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long the end of a ring waits for peers to take what was sent to them.
const LINGER: Duration = Duration::from_secs(1);

/// One receive queue's stack over another ring.
///
/// It has a waker of its own, which the ring below watches as it watches the AF_XDP socket: the
/// thread may look at both without a system call before it sleeps.
pub struct XdpRing {
    rest: Box<dyn Ring + Send>,
    stack: Stack<UmemIo<XskRings>>,
    interface: String,
    _attachment: Arc<Attachment>,
    waker: Waker,
    done: Vec<Completion>,
    started: Instant,
    worked_at: Instant,
    /// Requests on the stack's sockets.
    net_in_flight: usize,
    /// Tells of changes of interfaces.
    news: OwnedFd,
    health: Arc<XdpHealth>,
    /// When it was last asked whether the interface is there.
    checked_at: Instant,
    /// The interface is gone: connections have been reset.
    has_failed: bool,
    lineage: Lineage,
}

impl XdpRing {
    /// A ring over `rest` that also listens at these addresses through a receive queue; its
    /// listeners.
    ///
    /// # Errors
    /// The ring below cannot wait for other descriptors.
    pub fn new(
        mut rest: Box<dyn Ring + Send>,
        queue: XdpQueue,
        listen: &[SocketAddr],
    ) -> io::Result<(XdpRing, Vec<Socket>)> {
        let XdpQueue { io, options, interface, news, health, attachment } = queue;
        let mut stack = Stack::new(io, options);
        let listeners = listen.iter().map(|address| stack.listen(*address)).collect();
        let waker = Waker::new()?;
        rest.watch(waker.0.event.as_fd())?;
        rest.watch(stack.io().rings.as_fd())?;
        rest.watch(news.as_fd())?;
        let started = Instant::now();
        let ring = XdpRing {
            rest,
            stack,
            interface,
            _attachment: attachment,
            waker,
            done: Vec::new(),
            started,
            worked_at: started,
            net_in_flight: 0,
            news,
            health,
            checked_at: started,
            has_failed: false,
            lineage: Lineage::here(),
        };
        Ok((ring, listeners))
    }

    /// One tick of the stack. True if there was something to do.
    fn tick(&mut self) -> bool {
        let now = Instant::now();
        let ticked = self.stack.tick(self.stack_time(now));
        let worked = match ticked {
            Ok(worked) => worked,
            Err(error) => {
                self.fail(&error);
                false
            }
        };
        self.take_done();
        if worked {
            self.worked_at = now;
        }
        if now.saturating_duration_since(self.checked_at) >= CHECK_EVERY {
            self.check(now);
        }
        worked
    }

    /// Asks whether the interface is there.
    fn check(&mut self, now: Instant) {
        self.checked_at = now;
        // What they say is asked for below; that there are more than fit is read as well.
        while !matches!(rustix::net::recv(&self.news, &mut [0u8; 4096][..], RecvFlags::empty()), Err(Errno::AGAIN)) {}
        if !self.has_failed
            && let Err(error) = self.stack.io_mut().rings.check()
        {
            self.fail(&error);
        }
    }

    /// Takes what the stack has completed.
    fn take_done(&mut self) {
        let before = self.done.len();
        self.stack.reap(&mut self.done);
        self.net_in_flight -= self.done.len() - before;
    }

    /// Connections end; sockets of the kernel and disks go on.
    fn fail(&mut self, error: &io::Error) {
        if std::mem::replace(&mut self.has_failed, true) {
            return;
        }
        if self.health.is_newly_gone() {
            let interface = &self.interface;
            tracing::error!(
                interface, %error,
                "the interface is gone: AF_XDP serves nobody there any more; restart the server when it is back"
            );
        }
        self.stack.reset_all();
    }

    fn stack_time(&self, now: Instant) -> smoltcp::time::Instant {
        let passed = now.saturating_duration_since(self.started).as_micros();
        smoltcp::time::Instant::from_micros(i64::try_from(passed).unwrap_or(i64::MAX))
    }

    /// Whether somebody has announced that this thread will sleep, and nobody has woken it since.
    fn is_announced(&self) -> bool {
        self.waker.0.asleep.load(Ordering::Acquire)
    }

    /// Takes a wakeup back; false if there was none.
    fn take_wakeup(&self) -> bool {
        // EAGAIN: nobody wrote to it.
        rustix::io::read(&self.waker.0.event, &mut [0; 8]).is_ok()
    }

    /// Looks for work until there is some, or none has come for a while; true if there is, or
    /// somebody has woken this thread.
    fn spin(&mut self, deadline: Option<Instant>, is_announced: bool) -> io::Result<bool> {
        loop {
            self.tick();
            self.rest.submit(Wait::None)?;
            self.rest.reap(&mut self.done);
            if !self.done.is_empty() || (is_announced && !self.is_announced()) {
                return Ok(true);
            }
            let now = Instant::now();
            let is_over = deadline.is_some_and(|deadline| deadline <= now);
            if is_over || now.saturating_duration_since(self.worked_at) >= SPIN {
                return Ok(is_over);
            }
            std::hint::spin_loop();
        }
    }

    /// Sleeps in the ring below until something happens.
    fn sleep(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let now = Instant::now();
        let timer = self.stack.next_timer().map(|at| {
            let micros = at.total_micros().saturating_sub(self.stack_time(now).total_micros());
            Duration::from_micros(u64::try_from(micros).unwrap_or(0))
        });
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        let timeout = match (timer, left) {
            (Some(timer), Some(left)) => Some(timer.min(left)),
            (timer, left) => timer.or(left),
        };
        self.rest.submit(Wait::For { completions: 1, timeout })?;
        self.rest.reap(&mut self.done);
        if !self.tick() && self.done.is_empty() {
            // Something else woke it.
            self.check(Instant::now());
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.worked_at = Instant::now();
        let deadline = timeout.map(|timeout| self.worked_at + timeout);
        // If not: nobody may wake it, or somebody has already.
        let is_announced = self.is_announced();
        if !is_announced && self.take_wakeup() {
            return self.rest.submit(Wait::None);
        }
        while !self.spin(deadline, is_announced)? {
            self.sleep(deadline)?;
            if !self.done.is_empty() {
                return Ok(());
            }
            if self.take_wakeup() {
                return Ok(());
            }
        }
        if is_announced && !self.is_announced() {
            // It is readable until then.
            self.take_wakeup();
        }
        Ok(())
    }
}

impl Ring for XdpRing {
    fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest) {
        self.rest.disk(tag, volume, request);
    }

    fn net(&mut self, tag: u64, request: NetRequest) {
        let (NetRequest::Accept { listener: socket }
        | NetRequest::Recv { socket, .. }
        | NetRequest::Send { socket, .. }) = &request;
        if self.stack.has(socket) {
            self.net_in_flight += 1;
            self.stack.request(tag, request);
        } else {
            self.rest.net(tag, request);
        }
    }

    fn shutdown(&mut self, socket: &Socket) {
        if self.stack.has(socket) { self.stack.shutdown(socket) } else { self.rest.shutdown(socket) }
    }

    fn cancel(&mut self, socket: &Socket) {
        if self.stack.has(socket) { self.stack.cancel(socket) } else { self.rest.cancel(socket) }
    }

    fn submit(&mut self, wait: Wait) -> io::Result<()> {
        self.tick();
        let result = match wait {
            Wait::None => self.rest.submit(Wait::None),
            Wait::For { timeout, .. } if self.done.is_empty() => self.wait(timeout),
            Wait::For { .. } => self.rest.submit(Wait::None),
        };
        self.waker.awake();
        result
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.take_done();
        completions.append(&mut self.done);
        self.rest.reap(completions);
    }

    fn in_flight(&self) -> usize {
        self.rest.in_flight() + self.net_in_flight
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.rest.watch(descriptor)
    }

    fn name(&self) -> &'static str {
        self.rest.name()
    }

    fn system_calls(&self) -> u64 {
        self.rest.system_calls() + self.stack.io().rings.system_calls
    }
}

impl Drop for XdpRing {
    fn drop(&mut self) {
        if self.lineage.is_forked() {
            // Its connections are the parent's.
            return;
        }
        let until = Instant::now() + LINGER;
        self.tick();
        while !self.has_failed && self.stack.has_orphans() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            self.tick();
        }
        self.stack.reset_all();
        self.tick();
    }
}
