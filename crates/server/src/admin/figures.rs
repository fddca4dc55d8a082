//! What is told of a server: gathered once for each request, from counters that its threads write.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use stratakv::{Latencies, MeasuredKind, Region, RequestLatencies, Stage, StageReport};

use super::ServerPhase;
use crate::counters::Counters;
use crate::measures::{Kind, latencies_of};
use crate::shared::Shared;

/// Most slow operations that are told.
const SLOW_MAX: usize = 20;
/// Most shards whose figures are told: the status page asks every second.
const SHARDS_MAX: usize = 64;
/// Statistics that tell shards apart. Each engine has some of them.
const OF_SHARDS: [&str; 15] = [
    "records",
    "items",
    "read_bytes",
    "write_bytes",
    "cache_hits",
    "cache_misses",
    "hits_dram",
    "hits_ssd",
    "operations_in_progress",
    "operations_waiting_for_room",
    "index_bytes",
    "cleaned_bytes",
    "compacted_bytes",
    "full",
    "damaged_places",
];

/// What the process has of the machine.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) resident_bytes: u64,
    pub(super) open_files: u64,
    pub(super) cpu_ns: u64,
}

impl Process {
    /// Of this process; what cannot be found out is 0.
    pub(super) fn now() -> Process {
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.as_deref().and_then(|text| text.split(' ').nth(1)?.trim().parse::<u64>().ok());
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Process {
            resident_bytes: pages.unwrap_or(0) * rustix::param::page_size() as u64,
            open_files: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
            cpu_ns: (cpu.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(cpu.tv_nsec as u64),
        }
    }
}

/// What one thread has done.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) cpu_ns: u64,
    pub(super) connections: u64,
    pub(super) operations: u64,
    pub(super) ticks: u64,
    pub(super) system_calls: u64,
    pub(super) slow_operations: u64,
    pub(super) idle_closed: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
}

/// One for each server thread, in their order.
pub(super) fn cores(shared: &Shared) -> Vec<Core> {
    let threads = shared.figures.measures.iter().zip(&shared.figures.counters).zip(&shared.worker_slots);
    let core =
        |((measures, counters), worker_slot): ((&crate::measures::Measures, &Counters), &crate::server::WorkerSlot)| {
            Core {
                cpu_ns: cpu_ns(measures.thread_id.load(Ordering::Relaxed)),
                connections: worker_slot.connections.load(Ordering::Relaxed) as u64,
                operations: measures.operations(),
                ticks: measures.ticks.get(),
                system_calls: measures.system_calls.get(),
                slow_operations: measures.slow_operations.get(),
                idle_closed: measures.idle_closed.get(),
                bytes_read: counters.bytes_read.get(),
                bytes_written: counters.bytes_written.get(),
            }
        };
    threads.map(core).collect()
}

/// Time on a processor: the kernel has counted it anyway.
fn cpu_ns(thread: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok();
    text.as_deref().and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// The file system that the store is on.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) bytes: u64,
    pub(super) available_bytes: u64,
}

impl Disk {
    pub(super) fn of(path: &Path) -> Disk {
        let Ok(told) = rustix::fs::statvfs(path) else { return Disk::default() };
        Disk {
            bytes: told.f_blocks.saturating_mul(told.f_frsize),
            available_bytes: told.f_bavail.saturating_mul(told.f_frsize),
        }
    }
}

/// The engine's name.
pub(super) fn engine(shared: &Shared) -> &'static str {
    shared.store.engine().name()
}

/// /stats.json. Numbers are since the start; who wants rates asks twice.
pub(super) fn json(phase: &ServerPhase) -> Value {
    let mut told = Map::new();
    told.insert("state".into(), phase.name().into());
    told.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    told.insert("pid".into(), std::process::id().into());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    told.insert("time_ms".into(), u64::try_from(now.as_millis()).unwrap_or(u64::MAX).into());
    let process = Process::now();
    told.insert(
        "process".into(),
        json!({ "resident_bytes": process.resident_bytes, "open_files": process.open_files, "cpu_ns": process.cpu_ns }),
    );
    if let ServerPhase::Serving(shared) = phase {
        add_server(shared, &mut told);
    }
    Value::Object(told)
}

/// /shards.json: what each shard's engine tells of itself.
pub(super) fn shards_json(phase: &ServerPhase) -> Value {
    let mut told = Map::new();
    told.insert("state".into(), phase.name().into());
    if let ServerPhase::Serving(shared) = phase {
        let of = |shard: usize| numbers(shared.store.shard_stats(shard).iter().map(|one| (one.name, one.value)));
        told.insert("shards".into(), (0..shared.store.shards()).map(of).collect());
    }
    Value::Object(told)
}

fn add_server(shared: &Shared, told: &mut Map<String, Value>) {
    told.insert("uptime_s".into(), shared.started.elapsed().as_secs().into());
    told.insert("durability".into(), shared.level.name().into());
    told.insert("engine".into(), engine(shared).into());
    let placement = shared.store.placement().map(|placement| placement.name());
    told.insert("placement".into(), placement.into());
    told.insert("path".into(), shared.store.path().display().to_string().into());
    told.insert("region".into(), shared.store.region().map(region).into());
    told.insert("failure".into(), shared.store.failure().map(|error| error.to_string()).into());
    let connections = json!({ "open": shared.connections(), "max": shared.limits.connections_max });
    told.insert("connections".into(), connections);
    let budget = &shared.memory.budget;
    let memory = [
        ("memory_bytes", budget.held_bytes()),
        ("memory_limit_bytes", budget.max_bytes()),
        ("memory_waiting", budget.waiting() as u64),
    ];
    told.insert("client_memory".into(), numbers(memory));
    let counters = Counters::sum(&shared.figures.counters);
    told.insert("counters".into(), numbers(counters));
    let latencies =
        Kind::ALL.map(|kind| (kind.name().to_owned(), latency(&latencies_of(kind, &shared.figures.measures))));
    told.insert("latency".into(), Value::Object(latencies.into_iter().collect()));
    let requests = shared.store.request_latencies();
    let requests = self::requests(&requests).map(|(name, latencies)| (name.to_owned(), latency(latencies)));
    told.insert("requests".into(), Value::Object(requests.into_iter().collect()));
    let stages = MeasuredKind::ALL.map(|kind| (kind.name().to_owned(), stages_of(&shared.store.stages(kind))));
    told.insert("stages".into(), Value::Object(stages.into_iter().collect()));
    told.insert("cores".into(), cores(shared).iter().map(core).collect());
    told.insert("slow".into(), slow(shared));
    told.insert("shards".into(), shards(shared));
    let disk = Disk::of(shared.store.path());
    told.insert("disk".into(), json!({ "bytes": disk.bytes, "available_bytes": disk.available_bytes }));
    let store = shared.store.stats();
    told.insert("store".into(), numbers(store.iter().map(|one| (one.name, one.value))));
}

fn region(region: &Region) -> Value {
    let paths: Vec<String> = region.paths.iter().map(|path| path.display().to_string()).collect();
    json!({
        "paths": paths,
        "bytes": region.len_bytes,
        "domain": region.domain,
        "survives_power_loss": region.survives_power_loss,
    })
}

/// The slow log's threshold, and the last slow operations of all threads, the newest first.
fn slow(shared: &Shared) -> Value {
    let mut all: Vec<_> = shared.figures.measures.iter().flat_map(|measures| measures.recent_slow.all()).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.ended));
    let recent = all.iter().take(SLOW_MAX).map(|one| {
        json!({
            "ended_ms": one.ended.0,
            "operation": one.kind.name(),
            "latency_us": one.latency_ns / 1000,
            "key_bytes": one.key_bytes,
        })
    });
    let recent: Vec<Value> = recent.collect();
    json!({ "from_us": shared.limits.slow_from.threshold_us(), "recent": recent })
}

/// What each shard has of the engine's statistics that tell shards apart: how many shards there
/// are, and the figures of the first of them.
fn shards(shared: &Shared) -> Value {
    let count = shared.store.shards();
    let figures = (0..count.min(SHARDS_MAX)).map(|shard| {
        let all = shared.store.shard_stats(shard);
        numbers(all.iter().filter(|one| OF_SHARDS.contains(&one.name)).map(|one| (one.name, one.value)))
    });
    let figures: Vec<Value> = figures.collect();
    json!({ "count": count, "figures": figures })
}

fn numbers(named: impl IntoIterator<Item = (&'static str, u64)>) -> Value {
    Value::Object(named.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect())
}

fn core(core: &Core) -> Value {
    json!({
        "cpu_ns": core.cpu_ns,
        "connections": core.connections,
        "operations": core.operations,
        "ticks": core.ticks,
        "turns": core.ticks,
        "system_calls": core.system_calls,
        "slow_operations": core.slow_operations,
        "idle_closed": core.idle_closed,
        "bytes_read": core.bytes_read,
        "bytes_written": core.bytes_written,
    })
}

/// Requests to volumes by kind, with their names.
pub(super) fn requests(all: &RequestLatencies) -> [(&'static str, &Latencies); 3] {
    [("read", &all.reads), ("write", &all.writes), ("flush", &all.flushes)]
}

/// Stages that some operation was in.
pub(super) fn stages(report: &StageReport) -> impl Iterator<Item = (Stage, &Latencies)> {
    Stage::ALL.into_iter().zip(&report.stages).filter(|(_, times)| times.count() > 0)
}

fn stages_of(report: &StageReport) -> Value {
    let mut told: serde_json::Map<String, Value> =
        stages(report).map(|(stage, times)| (stage.name().to_owned(), latency(times))).collect();
    told.insert("measured".into(), report.answered.into());
    Value::Object(told)
}

fn latency(all: &Latencies) -> Value {
    let us = |part| all.quantile_ns(part) as f64 / 1e3;
    let filled: Vec<_> = all.filled().map(|(end_ns, count)| json!([end_ns, count])).collect();
    json!({
        "count": all.count(),
        "sum_us": all.sum_ns / 1000,
        "p50_us": us(0.5),
        "p90_us": us(0.9),
        "p99_us": us(0.99),
        "p999_us": us(0.999),
        "max_us": us(1.0),
        "buckets_ns": filled,
    })
}
