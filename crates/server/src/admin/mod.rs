//! The admin address: metrics, health, statistics and the status page, over HTTP, for people and
//! machines that look after the server.
//!
//! Nothing of it runs on a thread that serves: one thread accepts, and each connection has one of
//! its own for the moment that it lives. Their number, the bytes of a request and its time are
//! bounded. It reads counters; it changes nothing.

mod figures;
mod http;
mod metrics;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use stratakv_device::fork::Lineage;

use crate::listener;
use crate::server::{Error, Server, lock};
use crate::shared::Shared;
use http::{Asked, Response, Status};

/// Connections at once; more are told so.
const CONNECTIONS_MAX: usize = 32;
/// What a client may take for its request, and again for taking the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long accepting is left alone after it failed.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// An admin address. It can be there before the server is, and tells then that the store is being
/// opened. Dropping it closes the address.
#[derive(Debug)]
pub struct Admin {
    state: Arc<State>,
    address: SocketAddr,
    /// Closed to end the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    /// Whose thread it is.
    lineage: Lineage,
}

#[derive(Debug)]
struct State {
    /// Names of this machine that a request may be for, beside its addresses.
    names: Vec<String>,
    patience: Duration,
    /// What is told of; `None` before it serves. It does not keep the server alive.
    server: Mutex<Option<Weak<Shared>>>,
    connections: AtomicUsize,
}

/// One of the connections; given back however it ends, by a defect too.
struct AdminConnection(Arc<State>);

impl Drop for AdminConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How far the server is.
enum ServerPhase {
    Opening,
    Serving(Arc<Shared>),
    /// Commands received are answered, nobody else is let in; or all is over.
    Draining,
}

impl Admin {
    /// Listens on `address` (port 0 takes a free one) and answers requests that name an IP address,
    /// `localhost`, or one of `names` as their host; others are refused, as a page of somebody else
    /// whose name was made to point here could send them. There is no authentication: whoever can
    /// connect sees all figures.
    ///
    /// # Errors
    /// The address cannot be had, or the system refuses a thread.
    pub fn start(address: SocketAddr, names: Vec<String>) -> Result<Admin, Error> {
        Admin::with_patience(address, names, PATIENCE)
    }

    fn with_patience(address: SocketAddr, names: Vec<String>, patience: Duration) -> Result<Admin, Error> {
        let (listener, address) = listener::bind_tcp(address)?;
        let refused = |what| move |error| Error::System { what, error };
        listener.set_nonblocking(true).map_err(refused("listen for admin requests"))?;
        let (stop, stopped) = UnixStream::pair().map_err(refused("make a socket pair"))?;
        let state = Arc::new(State { names, patience, server: Mutex::default(), connections: 0.into() });
        let its = Arc::clone(&state);
        let body = move || accept(&its, &listener, &stopped);
        let thread = std::thread::Builder::new().name("admin".into()).spawn(body);
        let thread = Some(thread.map_err(refused("start a thread"))?);
        Ok(Admin { state, address, stop: Some(stop), thread, lineage: Lineage::here() })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on it tells of this server, until that is dropped.
    pub fn serve(&self, server: &Server) {
        *lock(&self.state.server) = Some(Arc::downgrade(&server.shared));
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        if self.lineage.is_forked() {
            let _thread = std::mem::ManuallyDrop::new(self.thread.take());
            return;
        }
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the admin thread ended by a defect");
        }
    }
}

/// The thread's life: until the other end of `stopped` is closed.
fn accept(state: &Arc<State>, listener: &TcpListener, stopped: &UnixStream) {
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        let polled = poll(&mut ready, None);
        if !ready[1].revents().is_empty() {
            return;
        }
        match polled.map_err(io::Error::from).and_then(|_| listener.accept()) {
            Ok((stream, _)) => state.serve_apart(stream),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection; trying again in a moment");
                // Nothing tells when there are descriptors again; the end is not slept through.
                let _ = poll(&mut [PollFd::new(stopped, PollFlags::IN)], Some(&ACCEPT_PAUSE));
            }
        }
    }
}

impl State {
    /// Serves one connection in a thread of its own, if there is room.
    fn serve_apart(self: &Arc<Self>, stream: TcpStream) {
        let Some(place) = self.place() else {
            // A fresh connection takes this without waiting; one that does not is closed all the
            // same.
            let _ = stream.set_nonblocking(true);
            let _ = http::send(&stream, &Response::text(Status::Unavailable, "too many admin connections\n"), true);
            return;
        };
        let body = move || {
            place.0.converse(&stream);
            drop(place);
        };
        if let Err(error) = std::thread::Builder::new().name("admin-request".into()).spawn(body) {
            tracing::warn!(%error, "cannot start a thread for an admin request");
        }
    }

    /// A place for one more connection, if there is room.
    fn place(self: &Arc<Self>) -> Option<AdminConnection> {
        let taken = self.connections.fetch_add(1, Ordering::AcqRel);
        let place = AdminConnection(Arc::clone(self));
        (taken < CONNECTIONS_MAX).then_some(place)
    }

    /// One request, one answer.
    fn converse(&self, stream: &TcpStream) {
        // Accepted sockets take over that the listener does not wait.
        if stream.set_nonblocking(false).is_err() || stream.set_write_timeout(Some(self.patience)).is_err() {
            return;
        }
        let (response, with_body) = match http::read(stream, self.patience) {
            Ok(asked) => (self.answer(&asked), !asked.head_only),
            Err(Some(response)) => (response, true),
            Err(None) => return,
        };
        match http::send(stream, &response, with_body) {
            // Closing with bytes unread would take back the answer.
            Ok(()) if response.status != Status::Ok => http::hear_out(stream),
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "an admin client went away"),
        }
    }

    fn answer(&self, asked: &Asked) -> Response {
        if !self.is_ours(asked.host.as_deref()) {
            return Response::text(
                Status::Misdirected,
                "this host name is not known here: use an IP address or localhost, or start the server with --admin-name\n",
            );
        }
        let phase = self.phase();
        match (asked.path.as_str(), &phase) {
            ("/healthz", _) => Response::text(Status::Ok, "alive\n"),
            ("/readyz", ServerPhase::Serving(shared)) if shared.is_away() => {
                Response::text(Status::Unavailable, "away: the cache was away, and is not empty yet\n")
            }
            ("/readyz", ServerPhase::Serving(shared)) => match shared.store.failure() {
                None => Response::text(Status::Ok, &ready(shared)),
                Some(error) => Response::text(Status::Unavailable, &format!("failed: {error}\n")),
            },
            ("/readyz", _) => Response::text(Status::Unavailable, &format!("{}\n", phase.name())),
            ("/stats.json", _) => Response::json(figures::json(&phase).to_string()),
            ("/shards.json", _) => Response::json(figures::shards_json(&phase).to_string()),
            ("/metrics", _) => Response::metrics(metrics::text(&phase)),
            ("/" | "/index.html", _) => http::page(),
            _ => Response::text(
                Status::NotFound,
                "there are /, /metrics, /stats.json, /shards.json, /healthz and /readyz\n",
            ),
        }
    }

    fn phase(&self) -> ServerPhase {
        match &*lock(&self.server) {
            None => ServerPhase::Opening,
            Some(server) => match server.upgrade() {
                Some(shared) if !shared.stopping.load(Ordering::Acquire) => ServerPhase::Serving(shared),
                _ => ServerPhase::Draining,
            },
        }
    }

    /// Whether a request for this host is meant for us. Browsers cannot be made to send an IP
    /// address for somebody's name.
    fn is_ours(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return true };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

impl ServerPhase {
    /// Whether commands are accepted, and the store takes writes.
    fn is_ready(&self) -> bool {
        matches!(self, ServerPhase::Serving(shared) if shared.store.failure().is_none() && !shared.is_away())
    }

    fn name(&self) -> &'static str {
        match self {
            ServerPhase::Opening => "opening",
            ServerPhase::Serving(_) => "serving",
            ServerPhase::Draining => "draining",
        }
    }
}

/// It serves. What is damaged it does not, and says so here too.
fn ready(shared: &Shared) -> String {
    let stats = shared.store.stats();
    let figure = |name| stats.iter().find(|one| one.name == name).map(|one| one.value);
    // Not every engine knows which places it met more than once.
    let met = figure("damaged_places").or_else(|| figure("corrupt_records")).unwrap_or(0);
    match met.max(shared.store.recovery().corrupt.len() as u64) {
        0 => "ready\n".to_owned(),
        met => format!("ready, but damage was met ({met} times): `stratakv check` says where\n"),
    }
}

#[cfg(test)]
#[path = "../../tests/unit/admin.rs"]
mod tests;
