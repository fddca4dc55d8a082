//! The answers of `stats`.

use stratakv_base::Wall;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_protocol::memcache::{Statistics, reply};

use crate::counters::Counters;
use crate::server::Shared;

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
        Statistics::Items => {}
        Statistics::Slabs => {
            reply::stat(&mut out, "active_slabs", 0);
            reply::stat(&mut out, "total_malloced", 0);
        }
        Statistics::Sizes => reply::stat(&mut out, "sizes_status", "disabled"),
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
    reply::stat(out, "time", wall.0);
    reply::stat(out, "version", VERSION);
    reply::stat(out, "pointer_size", usize::BITS);
    reply::stat(out, "max_connections", shared.connections_max);
    reply::stat(out, "curr_connections", shared.connections());
    for (name, value) in Counters::sum(&shared.counters) {
        reply::stat(out, name, value);
    }
    reply::stat(out, "accepting_conns", 1);
    reply::stat(out, "threads", shared.counters.len());
    let engine = shared.store.stats();
    let known = |name| engine.iter().find(|statistic| statistic.name == name).map_or(0, |statistic| statistic.value);
    // Where memcached has memory these have the medium: what the store has taken of it, and what of that holds records.
    let usable_bytes = known("usable_bytes");
    let free_bytes = (known("pages_free") + known("pages_limbo")) * PAGE_BYTES as u64;
    // Of a store in a region its length, and what of it is in use.
    reply::stat(out, "limit_maxbytes", usable_bytes + known("region_bytes"));
    reply::stat(out, "bytes", usable_bytes.saturating_sub(free_bytes) + known("region_used_bytes"));
    reply::stat(out, "curr_items", known("records"));
    reply::stat(out, "evictions", 0);
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

fn settings(shared: &Shared, out: &mut Vec<u8>) {
    reply::stat(out, "maxconns", shared.connections_max);
    if let Some(address) = shared.addresses.first() {
        reply::stat(out, "tcpport", address.port());
        reply::stat(out, "udpport", 0);
        reply::stat(out, "inter", address.ip());
    }
    reply::stat(out, "verbosity", 0);
    reply::stat(out, "evictions", "off");
    reply::stat(out, "num_threads", shared.counters.len());
    reply::stat(out, "cas_enabled", "yes");
    reply::stat(out, "binding_protocol", "ascii");
    reply::stat(out, "auth_enabled_sasl", "no");
    reply::stat(out, "item_size_max", shared.item_bytes_max);
    reply::stat(out, "flush_enabled", "yes");
    reply::stat(out, "durability", shared.level.name());
}
