//! The answers of `stats`.

use std::sync::atomic::Ordering;

use stratakv::Engine;
use stratakv_base::Wall;
use stratakv_protocol::memcache::{Statistics, reply};

use self::classes::Space;
use crate::counters::Counters;
use crate::listener;
use crate::server::lock;
use crate::shared::Shared;

mod classes;
pub(crate) mod redis;
mod settings;

/// What clients are told: the memcached whose protocol this is, and nothing else. They decide by it
/// what a server understands, and some take the last number that they find. `stats` has ours.
pub(crate) const VERSION: &str = "1.6.18";

/// The whole answer, its end included.
pub(crate) fn text(shared: &Shared, which: Statistics, wall: Wall) -> Vec<u8> {
    let mut out = Vec::new();
    match which {
        Statistics::General => general(shared, wall, &mut out),
        Statistics::Settings => settings::tell(shared, &mut out),
        Statistics::Items => classes::items(shared, &mut out),
        Statistics::Slabs => classes::slabs(shared, &mut out),
        // Nothing of it happens here; clients read this as none.
        Statistics::Extstore => {}
        Statistics::Sizes | Statistics::SizesOff => reply::stat(&mut out, "sizes_status", "disabled"),
        Statistics::SizesOn => {
            // No engine tells how long what goes was, so nothing that could be counted would stay
            // right.
            reply::stat(&mut out, "sizes_status", "error");
            reply::stat(&mut out, "sizes_error", "sizes_are_not_counted");
        }
        Statistics::Connections => connections(shared, &mut out),
        Statistics::Backup => shared.jobs.backups.tell(&mut out),
        Statistics::Collections => shared.jobs.collections.tell(&mut out),
        Statistics::Reset => {
            shared.figures.counters.iter().for_each(Counters::reset);
            shared.figures.details.reset();
            return reply::RESET.to_vec();
        }
    }
    out.extend_from_slice(reply::END);
    out
}

/// How many records the store has.
pub(crate) fn records(shared: &Shared) -> u64 {
    Space::of(&shared.store.stats()).items
}

fn general(shared: &Shared, wall: Wall, out: &mut Vec<u8>) {
    let engine = shared.store.stats();
    let space = Space::of(&engine);
    process(shared, wall, out);
    let has_idle_limit = shared.limits.idle_limit.get().is_some();
    for (name, value) in Counters::sum(&shared.figures.counters) {
        // As memcached, where there are such ends.
        let is_told = match name {
            "idle_kicks" => has_idle_limit || value > 0,
            "ssl_handshake_errors" => shared.security.serves_tls,
            // Only where there are such clients.
            "cmd_resp" => value > 0,
            _ => true,
        };
        if is_told {
            reply::stat(out, name, value);
        }
    }
    if let Some(age) = shared.security.acceptor.age() {
        reply::stat(out, "time_since_server_cert_refresh", age.as_secs());
    }
    let paused = shared.listening.paused.load(Ordering::Relaxed);
    reply::stat(out, "accepting_conns", u8::from(paused == 0 || paused < shared.listening.listens_at.len()));
    reply::stat(out, "threads", shared.figures.counters.len());
    let watches = shared.figures.watches.counts();
    reply::stat(out, "log_worker_written", watches.written);
    reply::stat(out, "log_watcher_skipped", watches.skipped);
    reply::stat(out, "log_watcher_sent", watches.sent);
    reply::stat(out, "log_watchers", watches.watchers);
    let unfetched =
        [(space.reclaimed, &["expired_unfetched"][..]), (space.evicted, &["evicted_unfetched", "evicted_active"])];
    // Of those that went no more is known than how many they are.
    let none = unfetched.iter().filter(|(gone, _)| *gone == 0).flat_map(|(_, names)| *names);
    let is_told = |name: &str| engine.iter().any(|statistic| statistic.name == name);
    for name in NEVER.iter().chain(none).filter(|name| !is_told(name)) {
        reply::stat(out, name, 0);
    }
    if let Some(index) = engine.iter().find(|statistic| statistic.name == "index_bytes") {
        reply::stat(out, "hash_bytes", index.value);
    }
    client_memory(shared, out);
    reply::stat(out, "limit_maxbytes", space.limit_bytes + client_share(shared));
    reply::stat(out, "bytes", space.bytes);
    reply::stat(out, "curr_items", space.items);
    reply::stat(out, "reclaimed", space.reclaimed);
    reply::stat(out, "durability", shared.level.name());
    reply::stat(out, "engine", shared.store.engine().name());
    if let Some(region) = shared.store.region() {
        // One line, whatever the path.
        reply::stat(out, "region_path", region.path.display().to_string().escape_debug());
    }
    for statistic in &engine {
        reply::stat(out, statistic.name, statistic.value);
    }
}

/// What a cache's limit has for clients: a client that sets the limit reads the same number.
fn client_share(shared: &Shared) -> u64 {
    let is_part = shared.memory.is_shared && shared.store.engine() == Engine::Tier;
    if is_part { shared.memory.budget.max_bytes() } else { 0 }
}

/// What clients make the server hold.
fn client_memory(shared: &Shared, out: &mut Vec<u8>) {
    reply::stat(out, "client_memory_bytes", shared.memory.budget.held_bytes());
    reply::stat(out, "client_memory_peak_bytes", shared.memory.budget.peak_bytes());
    reply::stat(out, "client_memory_limit_bytes", shared.memory.budget.max_bytes());
    reply::stat(out, "client_memory_waiting", shared.memory.budget.waiting());
}

/// The process and its connections.
fn process(shared: &Shared, wall: Wall, out: &mut Vec<u8>) {
    reply::stat(out, "pid", std::process::id());
    reply::stat(out, "uptime", shared.started.elapsed().as_secs());
    reply::stat(out, "time", wall.seconds());
    reply::stat(out, "version", VERSION);
    reply::stat(out, "stratakv_version", env!("CARGO_PKG_VERSION"));
    // Dashboards ask for it; there is none.
    reply::stat(out, "libevent", "none");
    reply::stat(out, "pointer_size", usize::BITS);
    let (user, system) = processor_time();
    reply::stat(out, "rusage_user", user);
    reply::stat(out, "rusage_system", system);
    reply::stat(out, "max_connections", shared.limits.connections_max);
    reply::stat(out, "curr_connections", shared.connections());
    reply::stat(out, "connection_structures", shared.connections());
    reply::stat(out, "reserved_fds", listener::reserved(shared.figures.counters.len()));
}

/// Counters of memcached for what does not happen here; an engine may know better.
const NEVER: &[&str] = &[
    // An allocation that fails ends the process.
    "malloc_fails",
    "response_obj_oom",
    "read_buf_oom",
    // A connection has as many commands in progress as it may, and is not interrupted.
    "conn_yields",
    // Tables and trees grow within the write that needs it.
    "hash_is_expanding",
    // What is flushed is gone at once.
    "get_flushed",
    // Lines are given to watchers at once: none is dropped before.
    "log_worker_dropped",
    // No slab classes, no page that moves from one to another.
    "slab_reassign_rescues",
    "slab_reassign_chunk_rescues",
    "slab_reassign_evictions_nomem",
    "slab_reassign_inline_reclaim",
    "slab_reassign_busy_items",
    "slab_reassign_busy_deletes",
    "slab_reassign_running",
    "slabs_moved",
    "slab_global_page_pool",
    // No lists in order of use, nobody who looks through them.
    "lru_crawler_running",
    "lru_crawler_starts",
    "lru_maintainer_juggles",
    "lru_bumps_dropped",
    "crawler_reclaimed",
    "crawler_items_checked",
    "lrutail_reflocked",
    "moves_to_cold",
    "moves_to_warm",
    "moves_within_lru",
    "direct_reclaims",
    // Connections are not given to threads by the queue of their network card.
    "unexpected_napi_ids",
    "round_robin_fallback",
    // Of a cache its engine tells them.
    "evictions",
];

/// Seconds that this process has taken: its own, and the kernel's for it.
fn processor_time() -> (String, String) {
    // utime and stime, in ticks, are fields 14 and 15; the second one, the name in parentheses, may
    // hold anything.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |number: usize| fields.split_whitespace().nth(number - 3).and_then(|field| field.parse::<u64>().ok());
    let seconds = |number| {
        let (ticks, per_second) = (ticks(number).unwrap_or_default(), rustix::param::clock_ticks_per_second().max(1));
        format!("{}.{:06}", ticks / per_second, ticks % per_second * 1_000_000 / per_second)
    };
    (seconds(14), seconds(15))
}

/// Listeners and connections, each by its descriptor: watchers are told the same number.
fn connections(shared: &Shared, out: &mut Vec<u8>) {
    for (descriptor, address) in &shared.listening.listens_at {
        reply::stat(out, &format!("{descriptor}:addr"), address);
        reply::stat(out, &format!("{descriptor}:state"), "conn_listening");
        reply::stat(out, &format!("{descriptor}:secs_since_last_cmd"), 0);
    }
    let open = shared
        .worker_slots
        .iter()
        .flat_map(|worker_slot| lock(&worker_slot.open).values().cloned().collect::<Vec<_>>());
    let mut open: Vec<_> = open.collect();
    open.sort_by_key(|peer| peer.descriptor);
    for peer in open {
        let descriptor = peer.descriptor;
        match peer.address {
            Some(address) => reply::stat(out, &format!("{descriptor}:addr"), format_args!("tcp:{address}")),
            None => reply::stat(out, &format!("{descriptor}:addr"), "unix:"),
        }
        if let Some(address) = &peer.listens_at {
            reply::stat(out, &format!("{descriptor}:listen_addr"), address);
        }
        let state = if peer.is_watching.load(Ordering::Relaxed) { "conn_watch" } else { "conn_read" };
        reply::stat(out, &format!("{descriptor}:state"), state);
        let idle_seconds = shared.started.elapsed().as_secs().saturating_sub(peer.last_seconds.load(Ordering::Relaxed));
        reply::stat(out, &format!("{descriptor}:secs_since_last_cmd"), idle_seconds);
    }
}
