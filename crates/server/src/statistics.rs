//! The answers of `stats`.

use std::sync::atomic::Ordering;

use stratakv::Engine;
use stratakv_base::Wall;
use stratakv_protocol::memcache::{Statistics, reply};

use self::classes::Space;
use crate::counters::Counters;
use crate::details::DELIMITER;
use crate::server::{Shared, lock};
use crate::watch::WAITING_BYTES_MAX;

mod classes;

/// What clients are told. Clients (libmemcached among them) decide by the leading number what a server understands, so it is that of
/// the memcached whose protocol this is; ours follows.
pub(crate) const VERSION: &str = concat!("1.6.18-stratakv-", env!("CARGO_PKG_VERSION"));

/// The whole answer, its end included.
pub(crate) fn text(shared: &Shared, which: Statistics, wall: Wall) -> Vec<u8> {
    let mut out = Vec::new();
    match which {
        Statistics::General => general(shared, wall, &mut out),
        Statistics::Settings => settings(shared, &mut out),
        Statistics::Items => classes::items(shared, &mut out),
        Statistics::Slabs => classes::slabs(shared, &mut out),
        // Nothing of it happens here; clients read this as none.
        Statistics::Extstore => {}
        Statistics::Sizes | Statistics::SizesOff => reply::stat(&mut out, "sizes_status", "disabled"),
        Statistics::SizesOn => {
            // No engine tells how long what goes was, so nothing that could be counted would stay right.
            reply::stat(&mut out, "sizes_status", "error");
            reply::stat(&mut out, "sizes_error", "sizes_are_not_counted");
        }
        Statistics::Connections => connections(shared, &mut out),
        Statistics::Backup => shared.backups.tell(&mut out),
        Statistics::Reset => {
            shared.counters.iter().for_each(Counters::reset);
            shared.details.reset();
            return reply::RESET.to_vec();
        }
    }
    out.extend_from_slice(reply::END);
    out
}

fn general(shared: &Shared, wall: Wall, out: &mut Vec<u8>) {
    reply::stat(out, "pid", std::process::id());
    reply::stat(out, "uptime", shared.started.elapsed().as_secs());
    reply::stat(out, "time", wall.seconds());
    reply::stat(out, "version", VERSION);
    // Dashboards ask for it; there is none.
    reply::stat(out, "libevent", "none");
    reply::stat(out, "pointer_size", usize::BITS);
    let (user, system) = processor_time();
    reply::stat(out, "rusage_user", user);
    reply::stat(out, "rusage_system", system);
    reply::stat(out, "max_connections", shared.connections_max);
    reply::stat(out, "curr_connections", shared.connections());
    for (name, value) in Counters::sum(&shared.counters) {
        reply::stat(out, name, value);
    }
    reply::stat(out, "connection_structures", shared.connections());
    let watches = shared.watches.counts();
    // Lines are given to watchers at once: none is dropped before.
    reply::stat(out, "log_worker_dropped", 0);
    reply::stat(out, "log_worker_written", watches.written);
    reply::stat(out, "log_watcher_skipped", watches.skipped);
    reply::stat(out, "log_watcher_sent", watches.sent);
    reply::stat(out, "log_watchers", watches.watchers);
    let engine = shared.store.stats();
    // What memcached tells and does not happen, or is not told apart, here.
    for name in NOTHING.iter().filter(|name| engine.iter().all(|statistic| statistic.name != **name)) {
        reply::stat(out, name, 0);
    }
    reply::stat(out, "accepting_conns", 1);
    reply::stat(out, "threads", shared.counters.len());
    let space = Space::of(&engine);
    reply::stat(out, "limit_maxbytes", space.limit_bytes);
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

const NOTHING: &[&str] = &[
    "get_expired",
    "get_flushed",
    "listen_disabled_num",
    "time_in_listen_disabled_us",
    "conn_yields",
    "hash_is_expanding",
    "malloc_fails",
    "expired_unfetched",
    "evicted_unfetched",
    "evicted_active",
    "evictions",
];

/// Seconds that this process has taken: its own, and the kernel's for it.
fn processor_time() -> (String, String) {
    // utime and stime, in ticks, are fields 14 and 15; the second one, the name in parentheses, may hold anything.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |number: usize| fields.split_whitespace().nth(number - 3).and_then(|field| field.parse::<u64>().ok());
    let seconds = |number| {
        let (ticks, per_second) = (ticks(number).unwrap_or_default(), rustix::param::clock_ticks_per_second().max(1));
        format!("{}.{:06}", ticks / per_second, ticks % per_second * 1_000_000 / per_second)
    };
    (seconds(14), seconds(15))
}

/// Listeners and connections, each by a number.
fn connections(shared: &Shared, out: &mut Vec<u8>) {
    for (number, address) in shared.addresses.iter().enumerate() {
        reply::stat(out, &format!("{number}:addr"), format_args!("tcp:{address}"));
        reply::stat(out, &format!("{number}:state"), "conn_listening");
        reply::stat(out, &format!("{number}:secs_since_last_cmd"), 0);
    }
    let open = shared.seats.iter().flat_map(|seat| lock(&seat.open).values().cloned().collect::<Vec<_>>());
    for (number, peer) in open.enumerate().map(|(number, peer)| (number + shared.addresses.len(), peer)) {
        match peer.address {
            Some(address) => reply::stat(out, &format!("{number}:addr"), format_args!("tcp:{address}")),
            None => reply::stat(out, &format!("{number}:addr"), "unix:"),
        }
        if let Some(address) = &peer.listens_at {
            reply::stat(out, &format!("{number}:listen_addr"), address);
        }
        let state = if peer.is_watching.load(Ordering::Relaxed) { "conn_watch" } else { "conn_read" };
        reply::stat(out, &format!("{number}:state"), state);
        let idle_seconds = shared.started.elapsed().as_secs().saturating_sub(peer.last_seconds.load(Ordering::Relaxed));
        reply::stat(out, &format!("{number}:secs_since_last_cmd"), idle_seconds);
    }
}

/// What there is of memcached's settings, and ours. What tunes memory and threads that are not here is left out.
fn settings(shared: &Shared, out: &mut Vec<u8>) {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let engine = shared.store.engine();
    reply::stat(out, "maxbytes", Space::of(&shared.store.stats()).limit_bytes);
    reply::stat(out, "maxconns", shared.connections_max);
    if let Some(address) = shared.addresses.first() {
        reply::stat(out, "tcpport", address.port());
        reply::stat(out, "udpport", 0);
        reply::stat(out, "inter", address.ip());
    }
    reply::stat(out, "verbosity", 0);
    reply::stat(out, "evictions", if engine == Engine::Tier { "on" } else { "off" });
    let path = shared.unix.first().map_or("NULL".to_owned(), |path| path.display().to_string());
    // One line, whatever the path.
    reply::stat(out, "domain_socket", path.escape_debug());
    reply::stat(out, "umask", format_args!("{:o}", shared.unix_mode));
    reply::stat(out, "shutdown_command", yes(shared.shutdown_command));
    reply::stat(out, "num_threads", shared.counters.len());
    reply::stat(out, "stat_key_prefix", char::from(DELIMITER));
    reply::stat(out, "detail_enabled", yes(shared.details.is_on()));
    reply::stat(out, "cas_enabled", "yes");
    reply::stat(out, "binding_protocol", "auto-negotiate");
    let auth = yes(shared.credentials.is_some());
    reply::stat(out, "auth_enabled_sasl", auth);
    reply::stat(out, "auth_enabled_ascii", auth);
    reply::stat(out, "item_size_max", shared.item_bytes_max);
    // Who is over the limit is told so and closed.
    reply::stat(out, "maxconns_fast", "yes");
    reply::stat(out, "slab_reassign", "no");
    reply::stat(out, "slab_automove", 0);
    reply::stat(out, "lru_crawler", "no");
    reply::stat(out, "flush_enabled", "yes");
    // Whether keys can be listed.
    reply::stat(out, "dump_enabled", yes(matches!(engine, Engine::Slab | Engine::Matrix)));
    reply::stat(out, "lru_maintainer_thread", "no");
    reply::stat(out, "lru_segmented", "no");
    reply::stat(out, "temp_lru", "no");
    reply::stat(out, "idle_timeout", shared.idle_limit.get().map_or(0, |limit| limit.as_secs()));
    reply::stat(out, "watcher_logbuf_size", WAITING_BYTES_MAX);
    reply::stat(out, "track_sizes", "no");
    reply::stat(out, "ssl_enabled", yes(shared.serves_tls));
    reply::stat(out, "durability", shared.level.name());
    reply::stat(out, "engine", engine.name());
}
