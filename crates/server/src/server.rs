//! [`Server`]: starting, addresses, stopping.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use stratakv::{Level, Store};
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_device::xdp::{PreparedXdp, XdpOptions, XdpRefusal};
use stratakv_device::{Socket, SocketAddress};

use crate::absence;
use crate::credentials::Accounts;
use crate::listener;
use crate::presence::PresenceThreads;
use crate::resp::{ClientDescription, ClusterSlots};
use crate::shared::{Shared, share};
use crate::tls::TlsOptions;
use crate::unix::{self, SocketFile};
use crate::worker::Worker;
use crate::xdp::{XdpServing, XdpShare};

/// How long a request may stand still.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses for memcache clients; port 0 takes any free port. Default: 127.0.0.1:11211.
    pub memcache: Vec<SocketAddr>,
    /// Addresses for memcache clients that speak TLS; they need `tls`. Default: none.
    pub tls_memcache: Vec<SocketAddr>,
    /// Certificate and key of TLS. Default: `None`.
    pub tls: Option<TlsOptions>,
    /// Paths of UNIX sockets for memcache clients. Default: none.
    pub unix: Vec<PathBuf>,
    /// Who may connect to them: the mode of their files. Default: 0o700, as memcached.
    pub unix_mode: u32,
    /// Sockets that listen already, for memcache clients. Default: none.
    pub inherited: Vec<Inherited>,
    /// Threads, at least 1. Default: one for each core.
    pub threads: usize,
    /// What clients may use.
    pub limits: ClientLimits,
    /// When writes are acknowledged; `None` for the store's own level.
    pub level: Option<Level>,
    /// Where backups go that clients on this machine ask for by name, each into a directory of its
    /// own; it must exist and be no store's. Default: `None`, clients get none.
    pub backup_directory: Option<PathBuf>,
    /// Most bytes a second of such a backup. Default: `None`, as fast as it goes.
    pub backup_rate: Option<NonZeroU64>,
    /// Operations that take at least this long are told in the log, up to ten a second for each
    /// thread. Default: `None`, none are.
    pub slow_from: Option<Duration>,
    /// Whether clients may stop the server (`shutdown`). Default: no.
    pub shutdown_command: bool,
    /// A file of lines `user:password`: clients have to say who they are, as memcached's text
    /// protocol (`-Y`) and SASL PLAIN have it. Passwords are sent as they are. Read at the start
    /// and by [`Server::reload`]. Default: `None`, everybody who can connect may do everything.
    pub auth_file: Option<PathBuf>,
    /// An interface and addresses of it that are served through AF_XDP, without the kernel's TCP,
    /// at the ports of `memcache` and `tls_memcache`. Default: `None`.
    pub xdp: Option<XdpOptions>,
    /// Where Redis clients may connect. Default: nowhere.
    pub resp: RespListeners,
}

/// Where Redis clients may connect: they speak RESP from the first byte, on the data that memcache
/// clients see. The mode of UNIX sockets is [`ServerOptions::unix_mode`].
#[derive(Clone, Debug, Default)]
pub struct RespListeners {
    /// Addresses; port 0 takes any free port.
    pub addresses: Vec<SocketAddr>,
    /// Addresses for clients that speak TLS; they need [`ServerOptions::tls`].
    pub tls_addresses: Vec<SocketAddr>,
    /// Paths of UNIX sockets.
    pub unix: Vec<PathBuf>,
    /// Slots of Redis Cluster that are spread over several servers: clients of clusters find each
    /// key where it is, and keys of other servers are refused. Memcache clients see no slots.
    /// Default: `None`, this server has all slots.
    pub cluster: Option<ClusterSlots>,
}

impl RespListeners {
    fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.tls_addresses.is_empty() && self.unix.is_empty()
    }
}

/// What clients may use of a server.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Most connections at once, fewer where the limit of open files is lower; more are told so and
    /// closed. Default: 10,000.
    pub connections_max: usize,
    /// Longest value a client may store, in bytes, up to 64 MiB. Default: 1 MiB, as memcached.
    pub item_bytes_max: usize,
    /// A connection that waits for its client for so long is closed. Default: `None`, never.
    pub idle_limit: Option<Duration>,
    /// A connection is closed whose client does not go on with a request, or takes nothing of an
    /// answer, for so long. Default: 60 s; `None`, never.
    pub request_limit: Option<Duration>,
    /// Most bytes that clients may make the server hold, at least three of the longest values:
    /// received, read for them, and waiting to be sent. They are told as part of the store's
    /// memory. Default: `None`, 64 MiB beside that.
    pub client_memory_bytes: Option<u64>,
    /// A cache counts as away once a client could not be reached for so long, 3 s at least, in
    /// whole seconds: it may have written elsewhere. All connections are closed then, and what the
    /// cache has is dropped. Needs [`stratakv::Rejoin::Cold`] or
    /// [`stratakv::Rejoin::WarmWithin`]. A client whose machine ends without a word looks the
    /// same, and so does one that takes nothing of an answer for so long. Default: `None`.
    pub cut_off: Option<Duration>,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits {
            connections_max: 10_000,
            item_bytes_max: 1 << 20,
            idle_limit: None,
            request_limit: Some(REQUEST_LIMIT),
            client_memory_bytes: None,
            cut_off: None,
        }
    }
}

/// A socket that somebody else made and listens on, a service manager say.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// The socket.
    pub socket: Socket,
    /// Whether its clients speak TLS.
    pub tls: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            memcache: vec![SocketAddr::from(([127, 0, 0, 1], 11211))],
            tls_memcache: Vec::new(),
            tls: None,
            unix: Vec::new(),
            unix_mode: 0o700,
            inherited: Vec::new(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            limits: ClientLimits::default(),
            level: None,
            backup_directory: None,
            backup_rate: None,
            slow_from: None,
            shutdown_command: false,
            auth_file: None,
            xdp: None,
            resp: RespListeners::default(),
        }
    }
}

impl ServerOptions {
    /// What [`Server::start`] refuses whatever the store, so that it can be known before one is
    /// opened or made.
    ///
    /// # Errors
    /// [`Error::Option`]: an option makes no sense.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Option(why));
        let has_memcache = !(self.memcache.is_empty() && self.tls_memcache.is_empty() && self.unix.is_empty());
        if !has_memcache && self.inherited.is_empty() && self.resp.is_empty() {
            return refuse("a server needs at least one address to listen on".into());
        }
        let wants_tls = !self.tls_memcache.is_empty()
            || !self.resp.tls_addresses.is_empty()
            || self.inherited.iter().any(|inherited| inherited.tls);
        match &self.tls {
            None if wants_tls => return refuse("TLS needs a certificate and a key (--tls-cert, --tls-key)".into()),
            None => {}
            Some(tls) => _ = tls.load()?,
        }
        if self.resp.cluster.is_some() && self.resp.is_empty() {
            return refuse(
                "slots of a cluster are for Redis clients, who cannot connect: say --resp ADDRESS:PORT".into(),
            );
        }
        if self.unix_mode > 0o777 {
            return refuse(format!("mode {:o} of UNIX sockets: it can be 0 to 777", self.unix_mode));
        }
        if !(1..=1024).contains(&self.threads) {
            return refuse(format!("{} threads: a server has 1 to 1024", self.threads));
        }
        if self.limits.connections_max == 0 {
            return refuse("0 connections: nobody could connect; allow at least 1".into());
        }
        if !(1..=VALUE_BYTES_MAX).contains(&self.limits.item_bytes_max) {
            return refuse(format!(
                "items of {} bytes: the limit can be 1 to {VALUE_BYTES_MAX}",
                self.limits.item_bytes_max
            ));
        }
        if let Some(xdp) = &self.xdp {
            xdp.check().map_err(Error::Option)?;
        }
        if let Some(time) = self.limits.cut_off {
            absence::check_cut_off(time, self).map_err(Error::Option)?;
        }
        self.accounts()?;
        self.backup_directory.as_deref().map_or(Ok(()), check_backup_directory)
    }

    /// Whether any client comes by TCP through the kernel.
    pub(crate) fn listens_by_tcp(&self) -> bool {
        let addresses = [&self.memcache, &self.tls_memcache, &self.resp.addresses, &self.resp.tls_addresses];
        let is_tcp = |inherited: &Inherited| matches!(inherited.socket.local_address(), Some(SocketAddress::Tcp(_)));
        addresses.iter().any(|addresses| !addresses.is_empty()) || self.inherited.iter().any(is_tcp)
    }

    pub(crate) fn accounts(&self) -> Result<Option<Accounts>, Error> {
        self.auth_file.as_deref().map(Accounts::of).transpose().map_err(Error::Option)
    }
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address cannot be had.
    #[error("cannot listen on {address}: {error}; {hint}")]
    Listen {
        /// The address.
        address: String,
        /// What to do next.
        hint: &'static str,
        /// Why.
        error: io::Error,
    },
    /// An option makes no sense.
    #[error("{0}")]
    Option(String),
    /// The system refused a thread or a socket.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// AF_XDP cannot be had.
    #[error(transparent)]
    Xdp(#[from] XdpRefusal),
    /// The store refused a ring.
    #[error(transparent)]
    Store(#[from] stratakv::Error),
    /// A thread ended by a defect; the server has stopped.
    #[error("a server thread ended by a defect; the server has stopped, acknowledged writes are safe")]
    Defect,
}

/// After how long an idle connection is closed; may be changed while serving.
#[derive(Debug)]
pub(crate) struct IdleLimit(AtomicU64);

impl IdleLimit {
    pub(crate) fn new(limit: Option<Duration>) -> IdleLimit {
        let idle = IdleLimit(0.into());
        idle.set(limit);
        idle
    }

    fn set(&self, limit: Option<Duration>) {
        let ns = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.0.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Duration> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }
}

/// An accepted connection.
pub(crate) struct Arrival {
    pub(crate) socket: Socket,
    pub(crate) speaks: Speaks,
    /// How many absences the thread knew of that accepted it.
    pub(crate) seen: u64,
}

/// What the clients of a listener speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speaks {
    pub(crate) tls: bool,
    /// RESP; memcache otherwise.
    pub(crate) resp: bool,
}

/// A client, as `stats conns` tells of it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its socket's number in this process.
    pub(crate) descriptor: i32,
    pub(crate) address: Option<SocketAddr>,
    /// Where it connected to, in words.
    pub(crate) listens_at: Option<String>,
    /// It is told what others do.
    pub(crate) is_watching: AtomicBool,
    /// When something last came from it, in seconds after the server's start.
    pub(crate) last_seconds: AtomicU64,
    /// What is known of a Redis client.
    pub(crate) resp: Option<RespPeer>,
}

/// A Redis client, as `CLIENT LIST` tells of it.
#[derive(Debug)]
pub(crate) struct RespPeer {
    pub(crate) id: u64,
    pub(crate) began_seconds: u64,
    pub(crate) description: Mutex<ClientDescription>,
    /// Another client wants it closed.
    pub(crate) is_killed: AtomicBool,
}

impl Peer {
    pub(crate) fn of(socket: &Socket, last_seconds: u64) -> Peer {
        let address = match socket.peer_address() {
            Some(SocketAddress::Tcp(address)) => Some(address),
            _ => None,
        };
        let (is_watching, last_seconds) = (false.into(), last_seconds.into());
        let descriptor = socket.number();
        Peer { descriptor, address, listens_at: local_address(socket), is_watching, last_seconds, resp: None }
    }
}

/// Where a client has connected to.
fn local_address(socket: &Socket) -> Option<String> {
    match socket.local_address()? {
        SocketAddress::Unix(path) => Some(format!("unix:{}", path?.escape_debug())),
        SocketAddress::Tcp(address) => Some(format!("tcp:{address}")),
    }
}

/// How one thread is reached by the others.
pub(crate) struct WorkerSlot {
    /// Accepted connections on their way to the thread; `None` once it has ended.
    pub(crate) handover: Mutex<Option<Vec<Arrival>>>,
    /// Connections of the thread, those on their way included.
    pub(crate) connections: AtomicUsize,
    /// What `stats conns` tells of them, by their number.
    pub(crate) open: Mutex<BTreeMap<u32, Arc<Peer>>>,
    /// A byte written here is received by the thread's ring.
    wakeup: UnixStream,
}

impl WorkerSlot {
    /// Makes the thread look at what it was left.
    pub(crate) fn ring(&self) {
        use std::io::Write;
        // If the socket is full the thread has been rung already.
        let _ = (&self.wakeup).write(&[1]);
    }
}

/// A server that waits for its store.
#[derive(Debug)]
pub struct PreparedServer {
    options: ServerOptions,
    xdp: Option<PreparedXdp>,
}

impl PreparedServer {
    /// See [`Server::start`].
    ///
    /// # Errors
    /// See [`Server::start`].
    pub fn start(self, store: Store) -> Result<Server, Error> {
        Server::start_prepared(store, self)
    }
}

/// A running server. Dropping it shuts it down and waits.
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<Result<(), Error>>>>,
    /// Of a cache: they know whether it serves.
    presence: Mutex<Option<PresenceThreads>>,
    /// Turns of each thread when they were last looked at.
    ticks_seen: Mutex<Vec<u64>>,
    /// Removed when it has stopped.
    files: Mutex<Vec<SocketFile>>,
    xdp_addresses: Vec<SocketAddr>,
    resp_addresses: Vec<SocketAddr>,
}

/// A socket to accept from.
pub(crate) struct Listening {
    pub(crate) socket: Socket,
    pub(crate) speaks: Speaks,
    pub(crate) inherited: bool,
}

impl Listening {
    /// Where: its descriptor, and in words.
    fn address(&self) -> (i32, String) {
        (self.socket.number(), local_address(&self.socket).unwrap_or_else(|| "unix:".to_owned()))
    }
}

/// What a server listens on.
struct Bound {
    listeners: Vec<Listening>,
    addresses: Vec<SocketAddr>,
    resp_addresses: Vec<SocketAddr>,
    files: Vec<SocketFile>,
}

impl Bound {
    fn all(options: &ServerOptions) -> Result<Bound, Error> {
        let mut bound =
            Bound { listeners: Vec::new(), addresses: Vec::new(), resp_addresses: Vec::new(), files: Vec::new() };
        let plain = options.memcache.iter().map(|address| (address, false));
        for (address, tls) in plain.chain(options.tls_memcache.iter().map(|address| (address, true))) {
            let address = bound.listen(*address, Speaks { tls, resp: false })?;
            bound.addresses.push(address);
        }
        let resp = options.resp.addresses.iter().map(|address| (address, false));
        for (address, tls) in resp.chain(options.resp.tls_addresses.iter().map(|address| (address, true))) {
            let address = bound.listen(*address, Speaks { tls, resp: true })?;
            bound.resp_addresses.push(address);
        }
        let paths = options.unix.iter().map(|path| (path, false));
        for (path, resp) in paths.chain(options.resp.unix.iter().map(|path| (path, true))) {
            let (socket, file) = unix::listen_at(path, options.unix_mode)?;
            bound.listeners.push(Listening { socket, speaks: Speaks { tls: false, resp }, inherited: false });
            bound.files.push(file);
        }
        let inherited = options.inherited.iter().cloned();
        let speaks = |tls| Speaks { tls, resp: false };
        let listening = |Inherited { socket, tls }| Listening { socket, speaks: speaks(tls), inherited: true };
        bound.listeners.extend(inherited.map(listening));
        Ok(bound)
    }

    fn listen(&mut self, address: SocketAddr, speaks: Speaks) -> Result<SocketAddr, Error> {
        let (socket, address) = listener::bind(address)?;
        self.listeners.push(Listening { socket, speaks, inherited: false });
        Ok(address)
    }
}

impl Server {
    /// Binds the addresses and starts the threads. Clients are served when it returns.
    ///
    /// # Errors
    /// An address cannot be had (the message says why and what to do), an option makes no sense, or
    /// the system refuses threads or rings.
    pub fn start(store: Store, options: ServerOptions) -> Result<Server, Error> {
        Server::prepare(options)?.start(store)
    }

    /// Does what can be done before the store is there, and be refused: opening a store may take
    /// minutes. It has the interface of AF_XDP from now on; kernel sockets are not bound yet.
    ///
    /// # Errors
    /// An option makes no sense, or the interface is refused.
    pub fn prepare(options: ServerOptions) -> Result<PreparedServer, Error> {
        options.check()?;
        let xdp = options.xdp.as_ref().map(|xdp| xdp.prepare(options.threads)).transpose()?;
        Ok(PreparedServer { options, xdp })
    }

    fn start_prepared(store: Store, PreparedServer { mut options, xdp }: PreparedServer) -> Result<Server, Error> {
        let Bound { listeners, addresses, resp_addresses, files } = Bound::all(&options)?;
        if let Some(time) = options.limits.cut_off {
            absence::watch_clients(&store, time, &listeners)?;
        }
        let ports = addresses.iter().zip(&listeners).map(|(address, listening)| (address.port(), listening.speaks.tls));
        let xdp = options.xdp.as_ref().zip(xdp).map(|xdp| XdpServing::open(xdp, ports, options.threads)).transpose()?;
        let (worker_slots, wakeups) = worker_slots(options.threads)?;
        let connections_max = listener::allow_connections(options.limits.connections_max, options.threads);
        if connections_max < options.limits.connections_max {
            let wanted = options.limits.connections_max;
            tracing::warn!(
                connections_max,
                wanted,
                "the limit of open files allows fewer connections: raise it (ulimit -n)"
            );
            options.limits.connections_max = connections_max;
        }
        let accounts = options.accounts()?;
        let listens_at = listeners.iter().map(|listening| listening.address()).collect();
        let shared = share(store, &options, accounts, addresses, listens_at, worker_slots);
        if let Some(tls) = &options.tls {
            shared.security.acceptor.set(tls.load()?);
        }
        if let Some(xdp) = &xdp {
            // It is set once.
            let _ = shared.figures.xdp_health.set(Arc::clone(&xdp.health));
        }
        let server = Server {
            shared,
            threads: Mutex::default(),
            presence: Mutex::default(),
            ticks_seen: Mutex::default(),
            files: Mutex::new(files),
            xdp_addresses: xdp.as_ref().map(|xdp| xdp.addresses.clone()).unwrap_or_default(),
            resp_addresses,
        };
        let presence = PresenceThreads::start(&server.shared);
        *lock(&server.presence) = Some(presence.map_err(|error| Error::System { what: "start a thread", error })?);
        server.start_threads(listeners, wakeups, xdp.map(|xdp| xdp.shares).unwrap_or_default())?;
        tracing::info!(
            addresses = ?server.addresses(),
            resp_addresses = ?server.resp_addresses(),
            threads = options.threads,
            "serving clients"
        );
        Ok(server)
    }

    /// Each thread makes its own ring and reports. The first one accepts for all.
    /// Those with a receive queue of AF_XDP accept from it, each for itself.
    fn start_threads(
        &self,
        listeners: Vec<Listening>,
        wakeups: Vec<Socket>,
        shares: Vec<XdpShare>,
    ) -> Result<(), Error> {
        let (report, reports) = mpsc::channel();
        let count = wakeups.len();
        let mut listeners = Some(listeners);
        let mut shares = shares.into_iter();
        for (index, wakeup) in wakeups.into_iter().enumerate() {
            let (shared, report) = (Arc::clone(&self.shared), report.clone());
            let (listeners, xdp) = (listeners.take().unwrap_or_default(), shares.next());
            let body = move || serve(shared, index, wakeup, (listeners, xdp), &report);
            let thread = std::thread::Builder::new().name(format!("server-{index}")).spawn(body);
            lock(&self.threads).push(thread.map_err(|error| Error::System { what: "start a thread", error })?);
        }
        drop(report);
        for _ in 0..count {
            reports.recv().unwrap_or(Err(Error::Defect))?;
        }
        Ok(())
    }

    /// The addresses it listens on, in the order of the options, those for TLS last; those of
    /// sockets that it was given are not among them.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.listening.addresses
    }

    /// The addresses it serves Redis clients at, in the order of the options, those for TLS last.
    pub fn resp_addresses(&self) -> &[SocketAddr] {
        &self.resp_addresses
    }

    /// The addresses it serves through AF_XDP.
    pub fn xdp_addresses(&self) -> &[SocketAddr] {
        &self.xdp_addresses
    }

    /// From now on operations that take this long are told in the log; `None`: none are.
    pub fn set_slow_from(&self, from: Option<Duration>) {
        self.shared.limits.slow_from.set(from);
    }

    /// From now on connections that wait for their client for so long are closed; `None`: none are.
    pub fn set_idle_limit(&self, limit: Option<Duration>) {
        self.shared.limits.idle_limit.set(limit);
        // Threads that sleep look at their clocks anew.
        self.shared.ring_all();
    }

    /// From now on requests may stand still for so long; `None`: for ever.
    pub fn set_request_limit(&self, limit: Option<Duration>) {
        self.shared.limits.request_limit.set(limit);
        self.shared.ring_all();
    }

    /// Reads the files of TLS again, `tls` in the place of those it had if they are given, and the
    /// file of accounts. Connections that are open keep what they began with.
    ///
    /// # Errors
    /// A file is no good; nothing has changed then.
    pub fn reload(&self, tls: Option<TlsOptions>) -> Result<(), Error> {
        let accounts = self.shared.security.accounts.as_ref();
        let again = accounts.map(Accounts::read_again).transpose().map_err(Error::Option)?;
        self.shared.reload_tls(tls)?;
        if let (Some(accounts), Some(again)) = (accounts, again) {
            accounts.set(again);
        }
        Ok(())
    }

    /// Whether every thread has had a tick since this was asked before; has them take one, so that
    /// it can be asked again later. Once the server stops, always.
    pub fn is_alive(&self) -> bool {
        let mut seen = lock(&self.ticks_seen);
        let now: Vec<u64> = self.shared.figures.measures.iter().map(|measures| measures.ticks.get()).collect();
        let stuck = seen.iter().zip(&now).any(|(before, now)| before == now);
        let alive = !stuck || self.shared.stopping.load(Ordering::Acquire);
        if alive {
            *seen = now;
            self.shared.ring_all();
        }
        alive
    }

    /// Begins to stop: no new connections, commands received are answered (for up to 10 seconds),
    /// then all is closed. Returns at once; [`Server::join`] waits. May be called from any thread
    /// and more than once.
    pub fn shutdown(&self) {
        self.shared.stop();
    }

    /// Waits until the server has stopped; a backup that is under way then is called off. The store
    /// stays open.
    ///
    /// # Errors
    /// A thread ended by a defect or because its ring failed.
    pub fn join(&self) -> Result<(), Error> {
        if self.shared.store.is_forked() {
            return Err(Error::Store(stratakv_engine::Error::Forked.into()));
        }
        let threads = std::mem::take(&mut *lock(&self.threads));
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Defect))).collect();
        self.shared.jobs.backups.stop();
        self.shared.jobs.collections.stop();
        if let Some(presence) = lock(&self.presence).take() {
            presence.join(&self.shared);
        }
        lock(&self.files).clear();
        results.into_iter().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.shared.store.is_forked() {
            // Its threads and socket files are the parent's.
            let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
            threads.drain(..).for_each(std::mem::forget);
            let presence = self.presence.get_mut().unwrap_or_else(PoisonError::into_inner);
            presence.iter_mut().for_each(PresenceThreads::forget);
            let files = self.files.get_mut().unwrap_or_else(PoisonError::into_inner);
            files.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shutdown();
        if let Err(error) = self.join() {
            tracing::error!(%error, "the server did not stop in order");
        }
    }
}

/// It is not made here: where a disk is not mounted, the backups would go to another one.
fn check_backup_directory(directory: &Path) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Option(format!("backups cannot go to {}: {why}", directory.display())));
    if !directory.is_dir() {
        return refuse("it is no directory; make it, or mount its disk");
    }
    match ["store.toml", "part.toml"].iter().any(|name| directory.join(name).exists()) {
        true => refuse("a store lies in it; name another directory, best on another disk"),
        false => Ok(()),
    }
}

/// With the ports that the kernel's listeners got, of which those for TLS come last.
pub(crate) fn worker_slots(threads: usize) -> Result<(Vec<WorkerSlot>, Vec<Socket>), Error> {
    let pair = || {
        let (wakeup, heard) = UnixStream::pair()?;
        wakeup.set_nonblocking(true)?;
        let worker_slot = WorkerSlot {
            handover: Mutex::new(Some(Vec::new())),
            connections: 0.into(),
            open: Mutex::default(),
            wakeup,
        };
        Ok((worker_slot, Arc::new(heard.into())))
    };
    let pairs = (0..threads).map(|_| pair()).collect::<io::Result<Vec<_>>>();
    Ok(pairs.map_err(|error| Error::System { what: "make a socket pair", error })?.into_iter().unzip())
}

/// A thread's life. When one ends, all do: half a server would leave clients waiting.
fn serve(
    shared: Arc<Shared>,
    index: usize,
    wakeup: Socket,
    (mut listeners, xdp): (Vec<Listening>, Option<XdpShare>),
    report: &mpsc::Sender<Result<(), Error>>,
) -> Result<(), Error> {
    struct StopOthers(Arc<Shared>);
    impl Drop for StopOthers {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let _stop = StopOthers(Arc::clone(&shared));
    shared.store.stay_near(index);
    let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    shared.figures.measures[index].thread_id.store(thread, Ordering::Relaxed);
    let driver = match xdp {
        None => shared.store.driver().map_err(Error::from),
        Some(xdp) => xdp.driver(&shared.store).map(|(driver, more)| {
            listeners.extend(more);
            driver
        }),
    };
    let driver = match driver {
        Ok(driver) => driver,
        Err(error) => {
            // Nobody listens only if another thread's failure was reported first.
            let _ = report.send(Err(error));
            return Ok(());
        }
    };
    let _ = report.send(Ok(()));
    let result = Worker::new(shared, index, driver, wakeup, listeners).run();
    result.map_err(|error| Error::System { what: "do I/O through the ring", error })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these locks guard is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
