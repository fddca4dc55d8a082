//! Benchmarks: the YCSB core workloads and a production mix, driven against the library in each of
//! its ways in, or over memcache.
//!
//! Workloads follow the YCSB core package (Cooper et al., SoCC 2010); the production mix is KVell's
//! (SOSP 2019, section 6.5).
#![forbid(unsafe_code)]

pub mod background;
pub mod distribution;
pub mod environment;
pub mod explain;
pub mod graph;
pub mod load;
pub mod page;
pub mod paths;
pub mod phase;
pub mod plot;
pub mod report;
pub mod run;
pub mod saved;
pub mod stages;
pub mod suite;
pub mod target;
pub mod usage;
pub mod value;
pub mod wire;
pub mod workload;

pub use distribution::Distribution;
pub use report::{OperationReport, Report};
pub use run::{RunOptions, run, run_through};
pub use target::{BenchError, Kind as TargetKind, Target, Way};
pub use workload::Workload;
