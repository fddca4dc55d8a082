//! A few rounds of `kill -9`; `cargo xtask crash` does two hundred.

use std::time::Duration;

use stratakv_integration::crash::{Mix, Plan, Trial, run};
use stratakv_integration::engine::Engine;
use stratakv_integration::place;
use stratakv_integration::protocol::Protocol;

fn rounds(engine: Engine, protocol: Protocol, io: &str, seed: u64) {
    let place = place::directory();
    let plan = Plan {
        engine,
        protocols: vec![protocol],
        ios: vec![io.to_owned()],
        rounds: 4,
        mix: Mix { keys_per_client: 60, value_bytes_max: 100 << 10, ..Mix::default() },
        life_max: Duration::from_millis(400),
        seed,
        ..Plan::default()
    };
    let tally = run(&place.path().join("data"), &plan, &mut |_, _| {});
    let tally = tally.unwrap_or_else(|message| panic!("{engine:?}, {protocol:?}, --io {io}: {message}"));
    assert!(tally.kills + tally.closes >= 4 && tally.acknowledged > 0 && tally.verified > 0, "{tally:?}");
}

#[test]
fn a_cache_killed_at_any_moment_comes_back_warm_and_shows_nothing_old() {
    let place = place::directory();
    let mut plan = Plan { rounds: 8, life_max: Duration::from_millis(400), seed: 9, ..Plan::of(Engine::Tier) };
    plan.mix.keys_per_client = 200;
    let tally = run(&place.path().join("data"), &plan, &mut |_, _| {}).unwrap_or_else(|message| panic!("{message}"));
    assert!(tally.kills > 0 && tally.closes > 0 && tally.acknowledged > 0, "{tally:?}");
    assert!(tally.after_kill.found > 0 && tally.after_close.found > 0, "{tally:?}");
}

/// The harness can fail: a cache that comes back as it was a life earlier serves old values.
#[test]
fn a_cache_that_comes_back_as_it_was_before_is_caught() {
    let place = place::directory();
    let (data, copy) = (place.path().join("data"), place.path().join("copy"));
    let mut plan = Plan::of(Engine::Tier);
    plan.mix.keys_per_client = 50;
    let mut trial = Trial::new(&data, &plan);
    for life in 0..2 {
        let served = trial.start().expect("a life");
        let load = trial.load(&served);
        load.go_on(1_000).expect("writes");
        trial.close(served, load).expect("an orderly end");
        if life == 0 {
            std::fs::create_dir(&copy).expect("a directory");
            for entry in std::fs::read_dir(&data).expect("the store") {
                let path = entry.expect("a file").path();
                std::fs::copy(&path, copy.join(path.file_name().expect("a name"))).expect("copied");
            }
        }
    }
    std::fs::remove_dir_all(&data).expect("removed");
    std::fs::rename(&copy, &data).expect("put back");
    let said = trial.start().expect_err("old values");
    assert!(said.contains("; acknowledged was "), "{said}");
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_nine() {
    rounds(Engine::Slab, Protocol::Memcache, "auto", 1);
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_nine_with_blocking_io() {
    rounds(Engine::Slab, Protocol::Memcache, "blocking", 2);
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_nine_of_a_process_that_embeds_the_library() {
    rounds(Engine::Slab, Protocol::Embedded, "auto", 3);
    rounds(Engine::Slab, Protocol::Embedded, "blocking", 4);
}

#[test]
fn nothing_acknowledged_in_a_region_is_lost_by_kill_nine() {
    rounds(Engine::Hash, Protocol::Memcache, "auto", 5);
    rounds(Engine::Hash, Protocol::Embedded, "auto", 6);
}

#[test]
fn nothing_acknowledged_beside_a_region_is_lost_by_kill_nine() {
    rounds(Engine::Matrix, Protocol::Memcache, "auto", 7);
    rounds(Engine::Matrix, Protocol::Embedded, "blocking", 8);
}
