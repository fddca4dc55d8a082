//! `stats settings`: what there is of memcached's settings, and ours. What tunes memory and threads
//! that are not here is left out.

use std::path::Path;

use stratakv::Engine;
use stratakv_protocol::memcache::reply;

use super::classes::Space;
use crate::details::DELIMITER;
use crate::shared::Shared;
use crate::watch::WAITING_BYTES_MAX;

/// Of settings with one value: what each switches or limits is not here, or cannot be chosen.
const FIXED: &[(&str, &str)] = &[
    // Nothing is logged by it.
    ("verbosity", "0"),
    // There is no UDP.
    ("udpport", "0"),
    ("num_threads_per_udp", "0"),
    // No age hides records: `flush_all` deletes them.
    ("oldest", "0"),
    ("cas_enabled", "yes"),
    ("binding_protocol", "auto-negotiate"),
    // Who is over the limit is told so and closed.
    ("maxconns_fast", "yes"),
    ("flush_enabled", "yes"),
    ("slab_reassign", "no"),
    ("slab_automove", "0"),
    ("lru_crawler", "no"),
    ("lru_maintainer_thread", "no"),
    ("lru_segmented", "no"),
    ("temp_lru", "no"),
    // Never: there is nothing to repair.
    ("tail_repair_time", "0"),
    // Keys go to shards by it, and `hash` has it in its table.
    ("hash_algorithm", "xxh3"),
    ("track_sizes", "no"),
    ("inline_ascii_response", "no"),
    // Lines go to watchers at once.
    ("worker_logbuf_size", "0"),
    ("num_napi_ids", "(null)"),
    ("memory_file", "(null)"),
    // PEM, in OpenSSL's numbers.
    ("ssl_keyformat", "1"),
    ("ssl_ciphers", "NULL"),
    ("ssl_kernel_tls", "no"),
    ("ssl_min_version", "tlsv1.2"),
];

/// Of OpenSSL: a client must show a certificate, and it is verified.
const VERIFY_PEER_OR_FAIL: u8 = 3;

pub(super) fn tell(shared: &Shared, out: &mut Vec<u8>) {
    let engine = shared.store.engine();
    reply::stat(out, "maxbytes", Space::of(&shared.store.stats()).limit_bytes + super::client_share(shared));
    reply::stat(out, "maxconns", shared.limits.connections_max);
    listeners(shared, out);
    reply::stat(out, "evictions", if engine == Engine::Tier { "on" } else { "off" });
    reply::stat(out, "shutdown_command", yes(shared.security.shutdown_command));
    reply::stat(out, "num_threads", shared.figures.counters.len());
    reply::stat(out, "stat_key_prefix", char::from(DELIMITER));
    reply::stat(out, "detail_enabled", yes(shared.figures.details.is_on()));
    let auth = yes(shared.security.accounts.is_some());
    reply::stat(out, "auth_enabled_sasl", auth);
    reply::stat(out, "auth_enabled_ascii", auth);
    reply::stat(out, "item_size_max", shared.limits.item_bytes_max);
    // Keys can be listed.
    reply::stat(out, "dump_enabled", "yes");
    reply::stat(out, "idle_timeout", shared.limits.idle_limit.get().map_or(0, |limit| limit.as_secs()));
    reply::stat(out, "read_buf_mem_limit", shared.memory.budget.max_bytes());
    reply::stat(out, "request_timeout", shared.limits.request_limit.get().map_or(0, |limit| limit.as_secs()));
    reply::stat(out, "watcher_logbuf_size", WAITING_BYTES_MAX);
    tls(shared, out);
    for (name, value) in FIXED {
        reply::stat(out, name, value);
    }
    reply::stat(out, "durability", shared.level.name());
    reply::stat(out, "engine", engine.name());
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// One line, whatever the path.
fn path(path: Option<&Path>, none: &str) -> String {
    path.map_or(none.to_owned(), |path| path.display().to_string().escape_debug().to_string())
}

fn listeners(shared: &Shared, out: &mut Vec<u8>) {
    if let Some(address) = shared.listening.addresses.first() {
        reply::stat(out, "tcpport", address.port());
        reply::stat(out, "inter", address.ip());
    }
    reply::stat(out, "domain_socket", path(shared.listening.unix.first().map(AsRef::as_ref), "NULL"));
    reply::stat(out, "umask", format_args!("{:o}", shared.listening.unix_mode));
}

fn tls(shared: &Shared, out: &mut Vec<u8>) {
    let options = shared.tls_options();
    let options = options.as_ref();
    reply::stat(out, "ssl_enabled", yes(shared.security.serves_tls));
    reply::stat(out, "ssl_chain_cert", path(options.map(|tls| tls.certificate.as_ref()), "(null)"));
    reply::stat(out, "ssl_key", path(options.map(|tls| tls.key.as_ref()), "(null)"));
    let authority = options.and_then(|tls| tls.client_authority.as_deref());
    reply::stat(out, "ssl_ca_cert", path(authority, "NULL"));
    reply::stat(out, "ssl_verify_mode", authority.map_or(0, |_| VERIFY_PEER_OR_FAIL));
    // Clients that come again are recognised, without being asked for.
    reply::stat(out, "ssl_session_cache", yes(shared.security.serves_tls));
}
