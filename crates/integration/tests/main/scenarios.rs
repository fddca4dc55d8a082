//! The short forms of `cargo xtask crash --scenario all`.

use stratakv_integration::engine::Engine;
use stratakv_integration::scenario::{Scenario, ScenarioOutcome, Setting};
use stratakv_integration::{place, requirement};

fn run(name: &str) {
    let scenario = Scenario::named(name).expect("it is in the table");
    for engine in Engine::ALL {
        let place = place::directory();
        let setting = Setting { place: place.path(), engine: *engine, long: false, seed: 1 };
        match (scenario.run)(&setting) {
            Ok(ScenarioOutcome::Held(_)) => {}
            Ok(ScenarioOutcome::Skipped(why)) => requirement::not_here(&why),
            Ok(ScenarioOutcome::Missing(program)) => {
                requirement::skip(&format!("{program} not installed")).unwrap_or_default()
            }
            Err(message) => panic!("{name}, {}: {message}", engine.name()),
        }
    }
}

#[test]
fn writers_on_a_full_disk_are_refused_and_served_again_when_there_is_room() {
    run("full-disk");
}

/// `hash` wrote a mark beside its region and could not, though its region had all its room.
#[test]
fn a_store_opens_for_writing_on_a_file_system_that_others_have_filled() {
    run("full-opening");
}

/// Shards of `matrix` set the last space aside for themselves, 64 MiB each: others refused writes
/// when little was stored.
#[test]
fn shards_share_the_last_space_of_a_file_system() {
    run("last-space");
}

#[test]
fn a_limit_of_file_sizes_is_a_full_disk_and_does_not_kill_the_server() {
    run("file-size");
}

#[test]
fn a_running_server_needs_no_permissions_and_a_new_one_says_so() {
    run("permissions");
}

#[test]
fn a_directory_renamed_under_a_running_server_is_whole_in_its_new_place() {
    run("renamed");
}

#[test]
fn clients_stopped_amid_large_replies_cost_little_and_get_them_whole_when_they_go_on() {
    run("stopped-readers");
}

#[test]
fn clients_stopped_amid_a_value_harm_nobody_and_finish_it_when_they_go_on() {
    run("stopped-senders");
}

#[test]
fn a_thousand_idle_connections_and_a_storm_harm_nobody() {
    run("connections");
}

#[test]
fn connections_beyond_the_limit_of_descriptors_are_refused_and_descriptors_come_back() {
    run("descriptors");
}

#[test]
fn garbage_from_many_connections_harms_no_honest_client() {
    run("garbage");
}

#[test]
fn sigterm_under_load_ends_in_order_with_everything_acknowledged() {
    run("sigterm");
}

#[test]
fn transactions_of_redis_clients_are_whole_or_not_there_after_a_kill() {
    run("transactions");
}
