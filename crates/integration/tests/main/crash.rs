//! A few rounds of `kill -9`; `cargo xtask crash` does two hundred.

use std::time::Duration;

use stratakv_integration::crash::{Mix, Plan, run};
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
