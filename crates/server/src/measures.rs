//! What a server thread measures of itself: latencies by kind of operation, ticks, system calls.
//! Written by one thread, read by any.

use std::sync::atomic::AtomicU32;

use stratakv_base::histogram::{Distribution, Histogram, Tally};
use stratakv_engine::{ChangeKind, Operation};

use crate::timing::RecentSlow;

/// Kinds of operations whose latency is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Set,
    Delete,
    Update,
    Other,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [Kind::Get, Kind::Set, Kind::Delete, Kind::Update, Kind::Other];

    /// The kind of an operation.
    pub(crate) fn of(operation: &Operation) -> Kind {
        match operation {
            Operation::Get { .. } => Kind::Get,
            Operation::Update { .. } => Kind::Update,
            Operation::Write { changes, .. } => match changes.first().map(|change| &change.kind) {
                Some(ChangeKind::Put { .. }) => Kind::Set,
                Some(ChangeKind::Delete) => Kind::Delete,
                _ => Kind::Other,
            },
            _ => Kind::Other,
        }
    }

    /// Its name in figures and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Set => "set",
            Kind::Delete => "delete",
            Kind::Update => "update",
            Kind::Other => "other",
        }
    }
}

/// What one thread measures, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Measures {
    latencies: [Histogram; Kind::ALL.len()],
    pub(crate) ticks: Tally,
    pub(crate) system_calls: Tally,
    pub(crate) slow_operations: Tally,
    pub(crate) recent_slow: RecentSlow,
    pub(crate) idle_closed: Tally,
    /// The kernel's number of the thread; 0 before it runs.
    pub(crate) thread_id: AtomicU32,
}

impl Measures {
    pub(crate) fn latency(&self, kind: Kind) -> &Histogram {
        &self.latencies[kind as usize]
    }

    /// Operations measured.
    pub(crate) fn operations(&self) -> u64 {
        Distribution::of(&self.latencies).count()
    }
}

/// Latencies of one kind of operation, over all threads.
pub(crate) fn latencies_of(kind: Kind, threads: &[Measures]) -> Distribution {
    Distribution::of(threads.iter().map(|thread| thread.latency(kind)))
}
