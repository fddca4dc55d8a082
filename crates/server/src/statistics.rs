//! The answers of `stats`.

use std::sync::atomic::Ordering;

use stratakv::Engine;
use stratakv_base::Wall;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_protocol::memcache::{Statistics, reply};

use crate::counters::Counters;
use crate::server::{Shared, lock};

/// What clients are told. Clients (libmemcached among them) decide by the leading number what a server understands, so it is that of
/// the memcached whose protocol this is; ours follows.
pub(crate) const VERSION: &str = concat!("1.6.18-stratakv-", env!("CARGO_PKG_VERSION"));

/// The whole answer, its end included.
pub(crate) fn text(shared: &Shared, which: Statistics, wall: Wall) -> Vec<u8> {
    let mut out = Vec::new();
    match which {
        Statistics::General => general(shared, wall, &mut out),
        Statistics::Settings => settings(shared, &mut out),
        // There are no slab classes in memcached's sense; clients read this as none.
        Statistics::Items | Statistics::Extstore => {}
        Statistics::Slabs => {
            reply::stat(&mut out, "active_slabs", 0);
            reply::stat(&mut out, "total_malloced", 0);
        }
        Statistics::Sizes | Statistics::SizesSwitch => reply::stat(&mut out, "sizes_status", "disabled"),
        Statistics::Connections => connections(shared, &mut out),
        Statistics::Backup => shared.backups.tell(&mut out),
        Statistics::Reset => {
            shared.counters.iter().for_each(Counters::reset);
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
    let engine = shared.store.stats();
    // What memcached tells and does not happen, or is not told apart, here.
    for name in NOTHING.iter().filter(|name| engine.iter().all(|statistic| statistic.name != **name)) {
        reply::stat(out, name, 0);
    }
    reply::stat(out, "accepting_conns", 1);
    reply::stat(out, "threads", shared.counters.len());
    let known = |name| engine.iter().find(|statistic| statistic.name == name).map_or(0, |statistic| statistic.value);
    // Where memcached has memory these have the medium: what the store has taken of it, and what of that holds records.
    let usable_bytes = known("usable_bytes");
    let free_bytes = (known("pages_free") + known("pages_limbo")) * PAGE_BYTES as u64;
    // Of a store in a region its length, and what of it is in use; of a cache what both tiers have.
    let cached_bytes = known("dram_bytes") + known("ssd_bytes");
    reply::stat(out, "limit_maxbytes", usable_bytes + known("region_bytes") + known("ssd_capacity_bytes"));
    reply::stat(out, "bytes", usable_bytes.saturating_sub(free_bytes) + known("region_used_bytes") + cached_bytes);
    reply::stat(out, "curr_items", known("records") + known("items"));
    reply::stat(out, "reclaimed", known("expired_removed"));
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
    "log_watchers",
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
        if let Some(address) = peer.address {
            reply::stat(out, &format!("{number}:addr"), format_args!("tcp:{address}"));
        }
        reply::stat(out, &format!("{number}:state"), "conn_read");
        let idle_seconds = shared.started.elapsed().as_secs().saturating_sub(peer.last_seconds.load(Ordering::Relaxed));
        reply::stat(out, &format!("{number}:secs_since_last_cmd"), idle_seconds);
    }
}

fn settings(shared: &Shared, out: &mut Vec<u8>) {
    // Whether keys can be listed.
    let is_dumped = matches!(shared.store.engine(), Engine::Slab | Engine::Matrix);
    reply::stat(out, "maxconns", shared.connections_max);
    if let Some(address) = shared.addresses.first() {
        reply::stat(out, "tcpport", address.port());
        reply::stat(out, "udpport", 0);
        reply::stat(out, "inter", address.ip());
    }
    reply::stat(out, "verbosity", 0);
    reply::stat(out, "evictions", if shared.store.engine() == Engine::Tier { "on" } else { "off" });
    reply::stat(out, "maxbytes", shared.store.stats().iter().find(|s| s.name == "usable_bytes").map_or(0, |s| s.value));
    reply::stat(out, "shutdown_command", if shared.shutdown_command { "yes" } else { "no" });
    reply::stat(out, "detail_enabled", "no");
    reply::stat(out, "lru_crawler", "no");
    reply::stat(out, "dump_enabled", if is_dumped { "yes" } else { "no" });
    reply::stat(out, "track_sizes", "no");
    reply::stat(out, "ssl_enabled", "no");
    reply::stat(out, "num_threads", shared.counters.len());
    reply::stat(out, "cas_enabled", "yes");
    reply::stat(out, "binding_protocol", "auto-negotiate");
    let auth = if shared.credentials.is_some() { "yes" } else { "no" };
    reply::stat(out, "auth_enabled_sasl", auth);
    reply::stat(out, "auth_enabled_ascii", auth);
    reply::stat(out, "item_size_max", shared.item_bytes_max);
    reply::stat(out, "flush_enabled", "yes");
    reply::stat(out, "durability", shared.level.name());
}
