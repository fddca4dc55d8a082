//! /metrics: Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write};

use stratakv::{Latencies, MeasuredKind};

use super::ServerPhase;
use super::figures::{self, Core, Disk, Process};
use crate::counters::Counters;
use crate::measures::{Kind, latencies_of};
use crate::shared::Shared;

/// A family with a sample for each thread: its name, what it is, and its value.
type PerCore = (&'static str, &'static str, fn(&Core) -> String);

/// Everything, in a fixed order.
pub(super) fn text(phase: &ServerPhase) -> String {
    let mut out = Exposition::default();
    let version = env!("CARGO_PKG_VERSION");
    out.family("build_info", "gauge", "1, labelled with the version.");
    out.sample(&[("version", version)], 1);
    out.family(
        "ready",
        "gauge",
        "1 while commands are accepted, 0 while the store is being opened, after its medium failed, or while the server drains.",
    );
    out.sample(&[], u8::from(phase.is_ready()));
    let process = Process::now();
    out.one("process_resident_bytes", "gauge", "Memory of the process.", process.resident_bytes);
    out.one("process_open_files", "gauge", "Descriptors of the process.", process.open_files);
    out.one("process_cpu_seconds_total", "counter", "Processor time of the process.", seconds(process.cpu_ns));
    if let ServerPhase::Serving(shared) = phase {
        server(shared, &mut out);
        store(shared, &mut out);
    }
    out.0
}

fn server(shared: &Shared, out: &mut Exposition) {
    out.one("uptime_seconds", "gauge", "Since the server started.", shared.started.elapsed().as_secs());
    out.one("connections", "gauge", "Connections open.", shared.connections());
    out.one("connections_max", "gauge", "Connections that may be open.", shared.limits.connections_max);
    if let Some(health) = shared.figures.xdp_health.get() {
        let up = u8::from(!health.is_gone());
        out.one("xdp_up", "gauge", "1 while the interface of AF_XDP is there, 0 once it has been removed.", up);
    }
    for (name, value) in Counters::sum(&shared.figures.counters) {
        let what = format!("What memcache's `stats` calls {name}.");
        out.one(&format!("{}_total", name.strip_prefix("total_").unwrap_or(name)), "counter", &what, value);
    }
    latencies(shared, out);
    let cores = figures::cores(shared);
    let by_core: [PerCore; 8] = [
        ("core_cpu_seconds_total", "Processor time of a server thread.", |core| seconds(core.cpu_ns).to_string()),
        ("core_operations_total", "Operations answered to clients of a thread.", |core| core.operations.to_string()),
        ("core_ticks_total", "Ticks of a thread.", |core| core.ticks.to_string()),
        ("core_turns_total", "The old name of core_ticks_total.", |core| core.ticks.to_string()),
        ("core_system_calls_total", "System calls of a thread's ring.", |core| core.system_calls.to_string()),
        ("core_slow_operations_total", "Operations over the threshold of the slow log.", |core| {
            core.slow_operations.to_string()
        }),
        ("core_idle_closed_total", "Connections closed because nothing came from their client.", |core| {
            core.idle_closed.to_string()
        }),
        ("core_connections", "Connections of a thread.", |core| core.connections.to_string()),
    ];
    for (name, what, value) in by_core {
        out.family(name, if name.ends_with("_total") { "counter" } else { "gauge" }, what);
        for (number, core) in cores.iter().enumerate() {
            out.sample(&[("core", &number.to_string())], value(core));
        }
    }
}

fn latencies(shared: &Shared, out: &mut Exposition) {
    out.family(
        "operation_latency_seconds",
        "histogram",
        "From an operation's submission to its reply, the network not included.",
    );
    for kind in Kind::ALL {
        histogram(&[("operation", kind.name())], &latencies_of(kind, &shared.figures.measures), out);
    }
    out.family(
        "request_latency_seconds",
        "histogram",
        "Requests to the store's volumes, from the tick that asked to the one that heard.",
    );
    for (name, latencies) in figures::requests(&shared.store.request_latencies()) {
        histogram(&[("request", name)], latencies, out);
    }
    out.family(
        "operation_stage_seconds",
        "histogram",
        "What operations wait for within the store, of one in sixteen; a stage that no operation was in is left out.",
    );
    for kind in MeasuredKind::ALL {
        let report = shared.store.stages(kind);
        for (stage, times) in figures::stages(&report) {
            histogram(&[("operation", kind.name()), ("stage", stage.name())], times, out);
        }
    }
}

fn histogram(labels: &[(&str, &str)], all: &Latencies, out: &mut Exposition) {
    // Counted once: buckets and count must agree while threads go on counting.
    let count = all.count();
    for (end_ns, below) in all.cumulative() {
        let end = seconds(end_ns).to_string();
        out.suffixed("_bucket", &[labels, &[("le", &end)]].concat(), below);
    }
    out.suffixed("_bucket", &[labels, &[("le", "+Inf")]].concat(), count);
    out.suffixed("_sum", labels, seconds(all.sum_ns));
    out.suffixed("_count", labels, count);
}

fn store(shared: &Shared, out: &mut Exposition) {
    out.family("store_info", "gauge", "1, labelled with the engine and when writes are acknowledged.");
    out.sample(&[("engine", figures::engine(shared)), ("durability", shared.level.name())], 1);
    let disk = Disk::of(shared.store.path());
    out.one("disk_bytes", "gauge", "The file system that the store's directory is on.", disk.bytes);
    out.one("disk_available_bytes", "gauge", "What is free of it.", disk.available_bytes);
    for statistic in shared.store.stats() {
        let what = format!("The engine's statistic {}, as in `stats`.", statistic.name);
        out.one(&format!("store_{}", statistic.name), "untyped", &what, statistic.value);
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The text, and the family that samples belong to.
#[derive(Debug, Default)]
struct Exposition(String, String);

impl Exposition {
    /// Begins a family; its name gets our prefix. Names and texts are ours: they need no escapes.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.1 = format!("stratakv_{name}");
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}", name = self.1);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.suffixed("", labels, value);
    }

    fn suffixed(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "{}{suffix}", self.1);
        for (index, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }
}
