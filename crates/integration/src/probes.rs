//! The states that the simulator has to reach, by the names of their probes
//! (`stratakv_base::probe!`).
//!
//! Each was a hole once: a harmful mutation behind it went unseen, as no generator came there.

use std::collections::BTreeMap;

/// All that the gate's seeds have to reach.
pub const WANTED: &[&str] = &[
    "library: an expired collection stands behind another one in a batch",
    "matrix: read on after writing the region back had failed",
    "packed: a log is put in order",
    "packed: sorted runs are merged",
    "packed: the cleaner moved a record that is cached",
    "runtime: an operation waits behind those that found no room",
    "server: a classic cas names a version that a meta command gave",
    "server: two clients make a counter at once",
    "slab: a delete of a range comes to what was put after it began",
    "tier: a table is written again at an end",
];

/// How often each wanted state was reached in this process, and the names of those that were not.
pub fn counts() -> (Vec<(&'static str, u64)>, Vec<&'static str>) {
    judged(&stratakv_base::probe::counts())
}

fn judged(reached: &BTreeMap<&'static str, u64>) -> (Vec<(&'static str, u64)>, Vec<&'static str>) {
    let all: Vec<(&str, u64)> =
        WANTED.iter().map(|name| (*name, reached.get(name).copied().unwrap_or_default())).collect();
    let missed = all.iter().filter(|(_, times)| *times == 0).map(|(name, _)| *name).collect();
    (all, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_never_reached_is_named() {
        let reached = WANTED.iter().skip(1).map(|name| (*name, 3)).collect();
        let (all, missed) = judged(&reached);
        assert_eq!((all.len(), missed), (WANTED.len(), vec![WANTED[0]]));
    }
}
