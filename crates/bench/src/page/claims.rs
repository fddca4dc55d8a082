//! What papers have published, as ratios between stores or as shapes: their machines are others, so
//! an absolute figure says nothing here.

use super::runs::RunFigure;

/// How a figure stands to a published one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimCheck {
    /// What was published.
    pub published: String,
    /// By whom, and where.
    pub source: String,
    /// Whether it is reached here.
    pub is_met: bool,
}

/// A published figure of runs of YCSB.
#[derive(Clone, Copy, Debug)]
pub struct RunClaim {
    /// Workload, as in reports.
    pub workload: &'static str,
    /// Distribution; empty: each.
    pub distribution: &'static str,
    /// Which figure.
    pub figure: RunFigure,
    /// Beside which store: the beginning of its name. Empty: the figure by itself.
    pub peer: &'static str,
    /// The figure, or how many times better it is.
    pub at_least: f64,
    /// In words.
    pub published: &'static str,
    /// Paper and section.
    pub source: &'static str,
}

const KVELL_YCSB: &str = "KVell, SOSP 2019, section 6";
const KVELL_PRODUCTION: &str = "KVell, SOSP 2019, section 6.5";

const fn kvell(
    workload: &'static str,
    distribution: &'static str,
    figure: RunFigure,
    (peer, at_least): (&'static str, f64),
    published: &'static str,
) -> RunClaim {
    RunClaim { workload, distribution, figure, peer, at_least, published, source: KVELL_YCSB }
}

const fn production(figure: RunFigure, at_least: f64, published: &'static str) -> RunClaim {
    let (workload, distribution, peer, source) = ("production", "", "rocksdb", KVELL_PRODUCTION);
    RunClaim { workload, distribution, figure, peer, at_least, published, source }
}

/// Of KVell, beside the stores that it was measured beside.
pub const KVELL: &[RunClaim] = &[
    kvell("a", "", RunFigure::Slowest, ("", 0.95), "95 %: 400 K of 420 K operations/s"),
    kvell("a", "", RunFigure::ProcessorsIdle, ("", 0.6), "60 % of the processor time is spent waiting"),
    kvell("a", "", RunFigure::Throughput, ("rocksdb", 8.0), "8 times RocksDB"),
    kvell("a", "", RunFigure::Throughput, ("wiredtiger", 8.0), "8 times WiredTiger"),
    kvell("a", "", RunFigure::Highest, ("rocksdb", 2300.0), "3.9 ms beside more than 9 s of LSM trees"),
    kvell("a", "", RunFigure::Highest, ("wiredtiger", 770.0), "3.9 ms beside 3 s of WiredTiger"),
    kvell("b", "", RunFigure::Throughput, ("rocksdb", 2.2), "2.2 to 2.7 times the next best"),
    kvell("c", "", RunFigure::Throughput, ("rocksdb", 2.2), "2.2 to 2.7 times the next best"),
    kvell("d", "", RunFigure::Throughput, ("rocksdb", 2.2), "2.2 to 2.7 times the next best"),
    kvell("e", "uniform", RunFigure::Throughput, ("rocksdb", 1.0), "on par with RocksDB"),
    kvell("e", "uniform", RunFigure::Throughput, ("wiredtiger", 1.33), "1.33 times WiredTiger"),
    kvell("e", "zipfian", RunFigure::Throughput, ("rocksdb", 1.25), "1.25 times all others or more"),
    kvell("e", "zipfian", RunFigure::Throughput, ("wiredtiger", 1.25), "1.25 times all others or more"),
    production(RunFigure::Throughput, 4.0, "about 4 times RocksDB"),
    production(RunFigure::P99Any, 7.0, "1.7 ms beside 12 ms of RocksDB"),
    production(RunFigure::Highest, 3200.0, "2.5 ms beside 8 s of RocksDB"),
];

/// A published ratio of two stores in a phase of KVDK's measurements, or of two phases of one.
#[derive(Clone, Copy, Debug)]
pub struct PhaseClaim {
    /// The phase.
    pub phase: &'static str,
    /// Beside what it stands.
    pub beside: PhaseBeside,
    /// Operations a second, so many times.
    pub at_least: f64,
    /// In words.
    pub published: &'static str,
}

/// What a phase is held against.
#[derive(Clone, Copy, Debug)]
pub enum PhaseBeside {
    /// The same phase of a store whose name begins so.
    Store(&'static str),
    /// Another phase of the same store.
    Phase(&'static str),
}

/// Where KVDK's figures were published.
pub const KVDK_SOURCE: &str = "KVDK, the write-up of its authors, figures for 128 B values";

/// Of KVDK.
pub const KVDK: &[PhaseClaim] = &[
    PhaseClaim {
        phase: "strings update",
        beside: PhaseBeside::Phase("strings read"),
        at_least: 0.66,
        published: "48.5 M writes/s beside 73.7 M reads/s: 0.66",
    },
    PhaseClaim {
        phase: "graph edges",
        beside: PhaseBeside::Store("rocksdb"),
        at_least: 20.0,
        published: "20 times RocksDB on the same memory",
    },
    PhaseClaim {
        phase: "graph search 4 hops",
        beside: PhaseBeside::Store("rocksdb"),
        at_least: 8.0,
        published: "8 times RocksDB on the same memory",
    },
    PhaseClaim {
        phase: "graph top by degree",
        beside: PhaseBeside::Store("rocksdb"),
        at_least: 8.0,
        published: "8 times RocksDB on the same memory",
    },
];
