//! Open snapshots: versions that must stay visible.

use std::collections::BTreeMap;

use stratakv_base::Mono;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    open: BTreeMap<u64, Snapshot>,
    /// Their versions, from old to new.
    versions: Vec<u64>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Snapshot {
    version: u64,
    opened: Mono,
}

impl Snapshots {
    /// Opens one that sees everything up to `version`.
    pub(crate) fn open(&mut self, version: u64, now: Mono) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Snapshot { version, opened: now });
        self.refresh();
        self.last
    }

    /// Closes it; whether there was one.
    pub(crate) fn close(&mut self, id: u64) -> bool {
        let closed = self.open.remove(&id).is_some();
        self.refresh();
        closed
    }

    fn refresh(&mut self) {
        self.versions = self.open.values().map(|snapshot| snapshot.version).collect();
        self.versions.sort_unstable();
        self.versions.dedup();
    }

    /// Up to which version it sees.
    pub(crate) fn version_of(&self, id: u64) -> Option<u64> {
        self.open.get(&id).map(|snapshot| snapshot.version)
    }

    /// What somebody sees, from old to new.
    pub(crate) fn versions(&self) -> &[u64] {
        &self.versions
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Age of the oldest one in nanoseconds.
    pub(crate) fn oldest_ns(&self, now: Mono) -> u64 {
        self.open.values().map(|snapshot| now.0.saturating_sub(snapshot.opened.0)).max().unwrap_or(0)
    }
}
