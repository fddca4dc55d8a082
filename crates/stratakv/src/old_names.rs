//! Old names of statistics, kept for one release beside the new ones.
//!
//! It owns the list. `Store::stats` calls it. It never changes a value.

use stratakv_engine::Statistic;

/// New name and old name, as of 0.1. To be removed with the next release.
const RENAMED: [(&str, &str); 13] = [
    ("pages_deferred", "pages_limbo"),
    ("blob_pages", "run_pages"),
    ("reclustered_bytes", "gathered_bytes"),
    ("pmem_levels_bytes", "layer_bytes"),
    ("pmem_levels_free_bytes", "layer_free_bytes"),
    ("pmem_levels_table_bytes", "layer_table_bytes"),
    ("pmem_levels", "layer_levels"),
    ("pmem_levels_write_bytes", "layer_write_bytes"),
    ("pmem_levels_read_bytes", "layer_read_bytes"),
    ("stalled_ticks", "stalled_turns"),
    ("ghost_queue_bytes", "ghosts_bytes"),
    ("saved_bytes", "parked_bytes"),
    ("suspended_steps", "parked_attempts"),
];

/// Adds each renamed statistic once more, under its old name.
pub(crate) fn add_old_names(statistics: &mut Vec<Statistic>) {
    let old: Vec<Statistic> = statistics
        .iter()
        .filter_map(|one| {
            let (_, name) = RENAMED.iter().find(|(new, _)| *new == one.name)?;
            Some(Statistic { name, value: one.value })
        })
        .collect();
    statistics.extend(old);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_statistic_has_both_names_and_others_have_one() {
        let mut statistics =
            vec![Statistic { name: "records", value: 1 }, Statistic { name: "pages_deferred", value: 7 }];
        add_old_names(&mut statistics);
        let told: Vec<_> = statistics.iter().map(|one| (one.name, one.value)).collect();
        assert_eq!(told, [("records", 1), ("pages_deferred", 7), ("pages_limbo", 7)]);
    }
}
