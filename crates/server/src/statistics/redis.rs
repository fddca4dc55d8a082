//! `INFO`, `CLIENT LIST` and `CONFIG GET`: figures that there are, by the names that Redis has for
//! them. What does not exist here is left out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stratakv::Engine;
use stratakv_base::Wall;
use stratakv_protocol::resp::Version;

use super::classes::Space;
use super::processor_time;
use crate::counters::Counters;
use crate::resp::{ClientFilter, ClientKind, FilteredClient, ListenKind, REDIS_VERSION};
use crate::server::{Peer, RespPeer, lock};
use crate::shared::Shared;

/// Writes the lines of a section.
type WriteSection = fn(&Shared, Wall, &mut Lines);

/// Sections of `INFO`, in its order.
const SECTIONS: [(&str, WriteSection); 9] = [
    ("Server", server),
    ("Clients", clients_section),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", processor),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

/// Lines of a section.
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push_str(&format!("{name}:{value}\r\n"));
    }
}

/// The sections of these names; all of them, if none is named.
pub(crate) fn info(shared: &Shared, sections: &[String], wall: Wall) -> String {
    let is_all = sections.is_empty()
        || sections.iter().any(|section| matches!(section.as_str(), "all" | "everything" | "default"));
    let mut lines = Lines(String::new());
    for (name, tell) in SECTIONS {
        if is_all || sections.iter().any(|section| section.eq_ignore_ascii_case(name)) {
            if !lines.0.is_empty() {
                lines.0.push_str("\r\n");
            }
            lines.0.push_str(&format!("# {name}\r\n"));
            tell(shared, wall, &mut lines);
        }
    }
    lines.0
}

fn server(shared: &Shared, wall: Wall, lines: &mut Lines) {
    let uptime = shared.started.elapsed().as_secs();
    lines.add("redis_version", REDIS_VERSION);
    lines.add("redis_mode", if shared.resp.slots.is_some() { "cluster" } else { "standalone" });
    lines.add("stratakv_version", env!("CARGO_PKG_VERSION"));
    lines.add("stratakv_engine", shared.store.engine().name());
    lines.add("stratakv_durability", shared.level.name());
    lines.add("arch_bits", usize::BITS);
    lines.add("process_id", std::process::id());
    lines.add("server_time_usec", wall.0.saturating_mul(1000));
    lines.add("uptime_in_seconds", uptime);
    lines.add("uptime_in_days", uptime / 86_400);
    lines.add("io_threads_active", shared.figures.counters.len());
}

fn clients_section(shared: &Shared, _: Wall, lines: &mut Lines) {
    lines.add("connected_clients", shared.connections());
    lines.add("maxclients", shared.limits.connections_max);
    lines.add("blocked_clients", shared.resp.waits.len());
}

/// What of it is resident: other accounts of memory there are none.
fn memory(shared: &Shared, _: Wall, lines: &mut Lines) {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.as_deref().and_then(|text| text.split(' ').nth(1)?.trim().parse::<u64>().ok());
    let resident_bytes = pages.unwrap_or(0) * rustix::param::page_size() as u64;
    lines.add("used_memory", resident_bytes);
    lines.add("used_memory_human", human(resident_bytes));
    lines.add("used_memory_rss", resident_bytes);
    lines.add("used_memory_rss_human", human(resident_bytes));
    let (limit_bytes, policy) = memory_limit(shared);
    lines.add("maxmemory", limit_bytes);
    lines.add("maxmemory_policy", policy);
    lines.add("mem_clients_normal", shared.memory.budget.held_bytes());
    lines.add("stratakv_client_memory_limit_bytes", shared.memory.budget.max_bytes());
}

/// Bytes of what records take, and what becomes of others: a durable store has no limit but its
/// disk.
fn memory_limit(shared: &Shared) -> (u64, &'static str) {
    match shared.store.engine() {
        Engine::Tier => {
            let limit_bytes = Space::of(&shared.store.stats()).limit_bytes + super::client_share(shared);
            (limit_bytes, "allkeys-lru")
        }
        _ => (0, "noeviction"),
    }
}

/// A store that is served is loaded.
fn persistence(shared: &Shared, _: Wall, lines: &mut Lines) {
    lines.add("loading", 0);
    lines.add("async_loading", 0);
    // A write is durable by itself: there is neither a snapshot nor a log beside the data.
    lines.add("rdb_changes_since_last_save", 0);
    lines.add("rdb_bgsave_in_progress", u8::from(shared.jobs.backups.is_running()));
    lines.add("rdb_last_bgsave_status", if shared.jobs.backups.has_failed() { "err" } else { "ok" });
    lines.add("rdb_last_save_time", shared.saved_at());
    lines.add("aof_enabled", 0);
    lines.add("aof_rewrite_in_progress", 0);
    if let Some(rejoined) = shared.store.rejoined() {
        lines.add("stratakv_rejoin_epoch", rejoined.epoch);
    }
}

fn stats(shared: &Shared, _: Wall, lines: &mut Lines) {
    let counters = Counters::sum(&shared.figures.counters);
    let known = |name| counters.iter().find(|(counter, _)| *counter == name).map_or(0, |(_, value)| *value);
    let space = Space::of(&shared.store.stats());
    lines.add("total_connections_received", known("total_connections"));
    lines.add("total_commands_processed", known("cmd_resp"));
    lines.add("total_net_input_bytes", known("bytes_read"));
    lines.add("total_net_output_bytes", known("bytes_written"));
    lines.add("rejected_connections", known("rejected_connections"));
    lines.add("expired_keys", space.reclaimed);
    lines.add("evicted_keys", space.evicted);
    for (name, kind) in [
        ("pubsub_channels", ListenKind::Channel),
        ("pubsub_patterns", ListenKind::Pattern),
        ("pubsubshard_channels", ListenKind::ShardChannel),
    ] {
        lines.add(name, shared.resp.pubsub.len(kind));
    }
    lines.add("keyspace_hits", known("get_hits"));
    lines.add("keyspace_misses", known("get_misses"));
}

fn replication(_: &Shared, _: Wall, lines: &mut Lines) {
    lines.add("role", "master");
    lines.add("connected_slaves", 0);
    lines.add("master_repl_offset", 0);
}

fn cluster(shared: &Shared, _: Wall, lines: &mut Lines) {
    lines.add("cluster_enabled", u8::from(shared.resp.slots.is_some()));
}

fn processor(_: &Shared, _: Wall, lines: &mut Lines) {
    let (user, system) = processor_time();
    lines.add("used_cpu_sys", system);
    lines.add("used_cpu_user", user);
}

fn keyspace(shared: &Shared, _: Wall, lines: &mut Lines) {
    let records = super::records(shared);
    if records > 0 {
        lines.add("db0", format_args!("keys={records}"));
    }
}

/// As Redis words a number of bytes for people.
fn human(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(30, "G"), (20, "M"), (10, "K")];
    let unit = UNITS.iter().find(|(bits, _)| bytes >> bits > 0);
    unit.map_or_else(|| format!("{bytes}B"), |(bits, unit)| format!("{:.2}{unit}", bytes as f64 / f64::from(1 << bits)))
}

/// Whether a filter means this client. One that was killed is on its way out, and no client.
pub(crate) fn is_meant(shared: &Shared, peer: &Peer, filter: &ClientFilter) -> bool {
    let Some(RespPeer { id, description, is_killed, .. }) = &peer.resp else { return false };
    if is_killed.load(Ordering::Acquire) {
        return false;
    }
    let (address, local_address) = addresses(peer);
    let listens = shared.resp.pubsub.counts_of(*id).is_some_and(|counts| counts != [0, 0, 0]);
    let kind = if listens { ClientKind::PubSub } else { ClientKind::Normal };
    let description = lock(description);
    let local_address = &local_address;
    filter.matches(FilteredClient { id: *id, kind, user: description.user(), address: &address, local_address })
}

/// Where a client is, and its name.
pub(crate) fn client_words(peer: &Peer) -> (String, String) {
    let name = peer.resp.as_ref().map_or(String::new(), |resp| lock(&resp.description).name.clone());
    (addresses(peer).0, name)
}

/// Where a client is, and where it has connected to, in words of Redis.
fn addresses(peer: &Peer) -> (String, String) {
    let address = peer.address.map_or_else(|| "unix:0".to_owned(), |address| address.to_string());
    let listens_at = peer.listens_at.as_deref().unwrap_or("unix:");
    (address, listens_at.strip_prefix("tcp:").unwrap_or(listens_at).to_owned())
}

/// A line for each Redis client that is meant.
pub(crate) fn clients(shared: &Shared, filter: &ClientFilter) -> String {
    let mut open: Vec<Arc<Peer>> = Vec::new();
    for worker_slot in &shared.worker_slots {
        open.extend(lock(&worker_slot.open).values().filter(|peer| peer.resp.is_some()).cloned());
    }
    open.sort_by_key(|peer| peer.resp.as_ref().map(|resp| resp.id));
    open.iter().filter(|peer| is_meant(shared, peer, filter)).map(|peer| client(shared, peer)).collect()
}

/// The line of one.
pub(crate) fn client(shared: &Shared, peer: &Peer) -> String {
    let Some(RespPeer { id, began_seconds, description, .. }) = &peer.resp else { return String::new() };
    let description = lock(description);
    let now = shared.started.elapsed().as_secs();
    let age = now.saturating_sub(*began_seconds);
    let idle = now.saturating_sub(peer.last_seconds.load(Ordering::Relaxed));
    let (address, listens_at) = addresses(peer);
    let version = if description.version == Version::Resp3 { 3 } else { 2 };
    let listens = shared.resp.pubsub.counts_of(*id);
    let flags = match listens {
        Some([0, 0, 0]) => "O",
        Some(_) => "P",
        None if shared.resp.waits.is_waiting(*id) => "b",
        None => "N",
    };
    let [channels, patterns, shard_channels] = listens.unwrap_or_default();
    format!(
        "id={id} addr={address} laddr={listens_at} fd={} name={} age={age} idle={idle} flags={flags} db=0 sub={channels} psub={patterns} ssub={shard_channels} user={} lib-name={} lib-ver={} redir=-1 resp={version}\n",
        peer.descriptor,
        description.name,
        description.user(),
        description.library,
        description.library_version
    )
}

/// Parameters of Redis that have a meaning here.
pub(crate) fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let (limit_bytes, policy) = memory_limit(shared);
    let timeout = shared.limits.idle_limit.get().map_or(0, |limit| limit.as_secs());
    vec![
        // Every write is kept; there are no snapshots beside that.
        ("appendonly", "no".to_owned()),
        ("databases", "1".to_owned()),
        ("io-threads", shared.figures.counters.len().to_string()),
        ("maxclients", shared.limits.connections_max.to_string()),
        ("maxmemory", limit_bytes.to_string()),
        ("maxmemory-policy", policy.to_owned()),
        ("proto-max-bulk-len", shared.limits.item_bytes_max.to_string()),
        ("save", String::new()),
        ("timeout", timeout.to_string()),
    ]
}
