//! Each deliberate defect is caught by its test.

use std::panic::catch_unwind;

use stratakv_base::fault_point;

use crate::{job_reads, pace};

use super::{
    compression, failures, giving_up, growth, installs, load, pairing, pmem_levels, ranges, reads, space, walks,
};

const DEFECTS: [(&str, fn()); 60] = [
    ("trial_manifests_without_numbers", installs::a_late_write_of_a_failed_manifest_is_not_the_next_ones),
    ("trial_condemned_under_load", installs::what_a_failed_manifest_had_is_free_under_a_steady_load),
    ("trial_orphans_lost_with_a_failed_install", installs::orphans_of_a_failed_manifest_go_with_the_next_one),
    ("trial_superblocks_differ", installs::superblocks_are_alike_before_anything_is_written_over_the_older_ones),
    ("trial_errors_of_dropped_files_count", installs::a_late_error_of_a_dropped_file_is_not_the_next_ones),
    ("trial_cached_pages_outlive_their_file", reads::pages_of_a_dropped_file_leave_the_cache),
    ("trial_half_written_is_refused", failures::a_write_that_was_stored_half_way_is_unknown_and_keeps_its_value),
    ("trial_all_rests_on_the_log", failures::reads_are_answered_when_the_memory_fails),
    ("trial_failed_region_is_waited_for", failures::nobody_waits_for_a_region_that_failed),
    ("trial_sync_writes_nothing_back", failures::a_sync_writes_the_region_back),
    ("trial_large_batches_wait", failures::a_batch_larger_than_the_container_is_refused_and_says_so),
    ("trial_long_values_in_one_piece", failures::values_larger_than_the_memory_are_read_in_pieces),
    ("trial_lacks_blocks_silently", failures::a_shard_without_blocks_neither_hangs_nor_spins),
    ("trial_long_reads_crowd", failures::long_values_that_are_read_at_once_keep_within_their_share),
    ("trial_scan_begins_anew", failures::a_scan_passes_over_deleted_keys_once),
    ("trial_page_outlives_its_snapshot", failures::a_page_of_a_snapshot_that_was_closed_says_so),
    ("trial_expiry_hides_from_snapshots", failures::a_snapshot_sees_what_expires_within_a_second_and_was_overwritten),
    ("trial_failing_devices_are_waited_for", failures::writes_that_wait_for_a_device_that_fails_are_refused),
    ("trial_ranges_spin_for_a_failing_device", failures::a_row_that_waits_for_a_device_that_fails_does_not_spin),
    ("trial_damage_cannot_be_deleted", failures::a_damaged_key_can_be_deleted),
    ("trial_puts_take_the_last_room", space::a_full_volume_recovers_after_deletes),
    ("trial_growth_leaves_no_reserve", growth::a_full_device_refuses_puts_and_neither_deletes_nor_reads),
    ("trial_columns_move_all_they_meet", space::columns_move_no_more_than_their_share),
    ("trial_epoch_over_slots_that_differ", pairing::an_epoch_begins_when_both_superblocks_have_the_one_before),
    ("trial_nobody_is_paced", growth::writes_wait_early_for_what_columns_free),
    ("trial_rests_of_columns_are_expected", pace::tests::a_short_column_does_not_slow_the_next_one_down),
    ("trial_full_devices_are_not_asked_again", growth::a_device_that_has_room_again_is_written_again),
    ("trial_growth_forgets_who_waits", growth::who_waits_for_growth_is_told_when_a_step_fails),
    ("trial_long_values_fail_together", space::long_values_of_many_writers_take_what_room_there_is),
    ("trial_values_wait_for_nothing", space::a_long_value_is_answered_though_the_reserve_shrank_while_it_waited),
    ("trial_compaction_rests_for_refused_values", space::a_long_value_that_is_refused_leaves_the_room_to_others),
    ("trial_blocked_rows_are_awaited", space::rows_that_fill_the_directory_do_not_end_compaction),
    ("trial_failed_values_keep_their_claim", space::a_long_value_that_fails_claims_no_room),
    ("trial_closing_clears_nothing", space::a_store_closes_while_long_values_wait_for_room),
    ("trial_values_are_not_collected", space::values_among_dead_ones_are_collected),
    ("trial_snapshots_last_for_ever", space::a_snapshot_held_for_ever_ends_before_puts_are_refused),
    ("trial_snapshots_leave_what_they_kept", space::what_a_snapshot_keeps_is_told_and_given_back),
    ("trial_layer_has_no_reserve", pmem_levels::a_full_volume_with_pmem_levels_recovers_after_deletes),
    ("trial_layer_not_flushed", pmem_levels::tables_of_the_pmem_levels_are_durable_before_a_manifest_names_them),
    (
        "trial_layer_freed_before_the_superblock",
        pmem_levels::tables_of_the_pmem_levels_are_durable_before_a_manifest_names_them,
    ),
    ("trial_layer_given_up_unannounced", giving_up::every_cut_of_giving_up_pmem_levels_leaves_all_or_nothing),
    ("trial_range_hides_nothing", ranges::a_range_is_deleted_with_one_record),
    ("trial_range_forgotten_with_its_log", ranges::a_range_outlives_a_log_that_no_manifest_has_seen),
    ("trial_range_forgotten_above_tables", ranges::a_range_outlives_its_log),
    ("matrix_loads_without_a_marker", load::every_cut_of_a_load_leaves_all_or_nothing),
    ("matrix_loads_under_what_is_there", load::what_lies_in_the_range_of_a_load_refuses_it),
    ("trial_loads_into_tables", load::tables_around_a_load_are_parted),
    ("trial_failed_load_is_waited_for", load::faults_of_the_volume_end_a_load_in_words),
    ("trial_snapshots_see_loads_appear", load::snapshots_see_all_of_a_load_or_nothing),
    (
        "trial_tables_grow_beyond_the_room",
        compression::a_full_volume_of_compressed_tables_recovers_when_compression_is_off,
    ),
    ("trial_deletes_count_as_records", space::records_are_counted_about),
    ("trial_walks_end_unnoticed", walks::who_waits_for_a_walk_goes_on_when_that_is_over),
    ("trial_walks_pass_their_end", walks::a_walk_ends_at_its_bound),
    ("trial_rows_end_early", walks::rows_are_left_out_that_have_nothing),
    ("trial_row_filter_forgets", walks::rows_are_left_out_that_have_nothing),
    ("trial_walks_never_pause", walks::a_walk_pauses),
    ("trial_nothing_is_known_dead", walks::a_queue_is_linear),
    ("trial_dead_spans_outlive_puts", walks::dead_records_are_passed_once),
    ("trial_dead_records_stay", walks::dense_deletes_are_compacted_away),
    ("trial_pages_go_with_the_first_read", job_reads::tests::a_page_that_was_read_twice_goes_with_the_later_read),
];

#[test]
fn deliberate_defects_are_caught() {
    let missed = DEFECTS.iter().filter(|(name, harness)| {
        fault_point::release(Some(name));
        let passes = catch_unwind(harness).is_ok();
        fault_point::release(None);
        passes
    });
    let missed: Vec<&str> = missed.map(|(name, _)| *name).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
