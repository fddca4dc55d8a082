//! What the threads of a server share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use stratakv::{Level, Store};
use stratakv_device::xdp::XdpHealth;

use crate::absence::AbsenceWatch;
use crate::backups::Backups;
use crate::block_budget::BlockBudget;
use crate::collection_jobs::CollectionJobs;
use crate::counters::Counters;
use crate::credentials::Accounts;
use crate::details::Details;
use crate::marks::Marks;
use crate::measures::Measures;
use crate::memory_budget::MemoryBudget;
use crate::recency::Recency;
use crate::resp::RespShared;
use crate::server::{Error, IdleLimit, ServerOptions, WorkerSlot, lock};
use crate::timing::SlowFrom;
use crate::tls::{Acceptor, TlsOptions};
use crate::watch::Watches;

/// Answers on their way to clients may hold this part of a shard's buffers, over all connections:
/// all of them may be of one, and it needs the others to read anything.
const BLOCK_BUDGET_SHARE: u64 = 8;
/// What clients may make a server hold whose memory was not said.
const CLIENT_MEMORY_BYTES: u64 = 64 << 20;

/// See the module.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) level: Level,
    pub(crate) started: Instant,
    pub(crate) listening: ListeningAt,
    pub(crate) limits: ClientLimits,
    pub(crate) security: Security,
    pub(crate) memory: ClientMemory,
    pub(crate) figures: Figures,
    pub(crate) marks: Marks,
    pub(crate) recency: Recency,
    pub(crate) worker_slots: Vec<WorkerSlot>,
    pub(crate) jobs: ClientJobs,
    pub(crate) stopping: AtomicBool,
    /// Monotonic nanosecond of the `flush_all` to come; 0 for none.
    pub(crate) flush_at: AtomicU64,
    pub(crate) resp: RespShared,
    pub(crate) absence: AbsenceWatch,
}

/// What clients begin and ask about later.
pub(crate) struct ClientJobs {
    pub(crate) backups: Arc<Backups>,
    pub(crate) collections: Arc<CollectionJobs>,
}

/// Where a server listens.
pub(crate) struct ListeningAt {
    pub(crate) addresses: Vec<SocketAddr>,
    /// All of it by descriptor and in words, sockets that it was given too.
    pub(crate) listens_at: Vec<(i32, String)>,
    /// Listeners that accept nobody for a moment.
    pub(crate) paused: AtomicUsize,
    /// Sockets of that kind that it listens on, and who may connect to them.
    pub(crate) unix: Vec<PathBuf>,
    pub(crate) unix_mode: u32,
}

/// How much clients may ask for, and how long it may take.
pub(crate) struct ClientLimits {
    pub(crate) item_bytes_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) slow_from: SlowFrom,
    pub(crate) idle_limit: IdleLimit,
    pub(crate) request_limit: IdleLimit,
}

/// Who may do what, and what protects it on its way.
pub(crate) struct Security {
    /// Who may use the server, if not everybody may.
    pub(crate) accounts: Option<Accounts>,
    pub(crate) acceptor: Acceptor,
    /// From which files it is.
    tls: Mutex<Option<TlsOptions>>,
    pub(crate) serves_tls: bool,
    pub(crate) shutdown_command: bool,
}

/// What clients make a server hold.
pub(crate) struct ClientMemory {
    pub(crate) budget: Arc<MemoryBudget>,
    /// It is part of the store's memory.
    pub(crate) is_shared: bool,
    pub(crate) block_budget: Arc<BlockBudget>,
}

/// What a server counts, and who is told what it does.
pub(crate) struct Figures {
    pub(crate) counters: Vec<Counters>,
    pub(crate) measures: Vec<Measures>,
    pub(crate) watches: Arc<Watches>,
    /// Of the interface that is served through AF_XDP.
    pub(crate) xdp_health: OnceLock<Arc<XdpHealth>>,
    pub(crate) details: Details,
}

impl Shared {
    /// When the last backup was whole, in seconds of the wall clock; at first the server's start.
    pub(crate) fn saved_at(&self) -> u64 {
        self.jobs.backups.whole_at().unwrap_or_else(|| {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            now.saturating_sub(self.started.elapsed()).as_secs()
        })
    }

    /// See [`Server::reload`].
    pub(crate) fn reload_tls(&self, options: Option<TlsOptions>) -> Result<(), Error> {
        let mut tls = lock(&self.security.tls);
        let Some(options) = options.or_else(|| tls.clone()) else { return Ok(()) };
        self.security.acceptor.set(options.load()?);
        *tls = Some(options);
        Ok(())
    }

    /// With what TLS is served.
    pub(crate) fn tls_options(&self) -> Option<TlsOptions> {
        lock(&self.security.tls).clone()
    }

    /// Connections of all threads.
    pub(crate) fn connections(&self) -> usize {
        self.worker_slots.iter().map(|worker_slot| worker_slot.connections.load(Ordering::Relaxed)).sum()
    }

    /// Everything was removed: the first thread looks for nodes of long structures soon.
    pub(crate) fn sweep_nodes(&self) {
        if self.resp.sweeps.has_nodes() {
            self.resp.sweeps.want();
            self.worker_slots.first().into_iter().for_each(WorkerSlot::ring);
        }
    }

    /// Tells all threads to finish.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring_all();
    }

    /// Has all threads look at what they were left.
    pub(crate) fn ring_all(&self) {
        self.worker_slots.iter().for_each(WorkerSlot::ring);
    }

    /// Whether it was away and is not empty yet.
    pub(crate) fn is_away(&self) -> bool {
        self.look_for_absence();
        self.absence.is_away()
    }

    /// The calling thread runs. If none did for too long, all threads are told.
    pub(crate) fn look_for_absence(&self) {
        if self.absence.beat() {
            self.ring_all();
        }
    }
}

/// What answers may hold of a store whose shards have so many bytes of memory each.
pub(crate) fn block_budget_bytes(shard_bytes: u64) -> u64 {
    shard_bytes / BLOCK_BUDGET_SHARE
}

/// What clients may make the server hold: three of the longest values at least. Half of it is for
/// values that come.
pub(crate) fn client_bytes(bytes: u64, item_bytes_max: usize) -> u64 {
    bytes.max(3 * item_bytes_max as u64)
}

/// What the threads of a server with these options share.
pub(crate) fn share(
    store: Store,
    options: &ServerOptions,
    accounts: Option<Accounts>,
    addresses: Vec<SocketAddr>,
    listens_at: Vec<(i32, String)>,
    worker_slots: Vec<WorkerSlot>,
) -> Arc<Shared> {
    let block_budget_bytes = store.block_bytes_min().map_or(u64::MAX, block_budget_bytes);
    let client_bytes =
        client_bytes(options.limits.client_memory_bytes.unwrap_or(CLIENT_MEMORY_BYTES), options.limits.item_bytes_max);
    let unix = options.unix.clone();
    let watches = Watches::of(store.clone());
    let level = options.level.unwrap_or(store.default_level());
    let resp = RespShared::new(level.max(store.batch_level()), options.slow_from, options.resp.cluster.clone());
    Arc::new(Shared {
        level,
        absence: AbsenceWatch::new(&store, options.limits.cut_off.is_some(), options.threads),
        store,
        started: Instant::now(),
        listening: ListeningAt { addresses, listens_at, paused: 0.into(), unix, unix_mode: options.unix_mode },
        limits: ClientLimits {
            item_bytes_max: options.limits.item_bytes_max,
            connections_max: options.limits.connections_max,
            slow_from: SlowFrom::new(options.slow_from),
            idle_limit: IdleLimit::new(options.limits.idle_limit),
            request_limit: IdleLimit::new(options.limits.request_limit),
        },
        security: Security {
            accounts,
            acceptor: Acceptor::default(),
            tls: Mutex::new(options.tls.clone()),
            serves_tls: options.tls.is_some(),
            shutdown_command: options.shutdown_command,
        },
        memory: ClientMemory {
            budget: MemoryBudget::new(client_bytes),
            is_shared: options.limits.client_memory_bytes.is_some(),
            block_budget: BlockBudget::new(block_budget_bytes),
        },
        figures: Figures {
            counters: (0..options.threads).map(|_| Counters::default()).collect(),
            measures: (0..options.threads).map(|_| Measures::default()).collect(),
            watches,
            xdp_health: OnceLock::new(),
            details: Details::default(),
        },
        marks: Marks::default(),
        recency: Recency::default(),
        worker_slots,
        jobs: ClientJobs {
            backups: Backups::new(options.backup_directory.clone(), options.backup_rate),
            collections: Arc::default(),
        },
        stopping: false.into(),
        flush_at: 0.into(),
        resp,
    })
}
