//! Our server and a real memcached under the same commands: `stratakv_integration::differ`. Fixed
//! seeds here; `cargo xtask differ` draws others.

use stratakv_integration::differ::Counts;
use stratakv_integration::differ::intended::Intended;
use stratakv_integration::differ::peer::Peers;
use stratakv_integration::differ::shrink::compared;
use stratakv_integration::engine::Engine;
use stratakv_integration::{place, requirement};

/// Of each engine. Not 59: whether a shorter number is followed by spaces depends on whether
/// memcached still sends the old one to another connection.
const SEEDS: [std::ops::Range<u64>; 2] = [0..59, 60..140];

/// Compares the seeds with this engine under our server.
fn compare(engine: Engine) {
    let Some(memcached) = requirement::tool("memcached") else { return };
    let place = place::directory();
    let peers = Peers::start(&memcached, engine, &place.path().join("data")).expect("both servers start");
    let (intended, mut counts) = (Intended::list(), Counts::default());
    for seed in SEEDS.into_iter().flatten() {
        match compared(&peers, seed, &intended) {
            Ok(more) => counts.add(&more),
            Err(failure) => panic!("{engine:?}, seed {seed}: {failure}\nours said: {}", peers.said()),
        }
    }
    assert!(
        counts.answers > 20 * counts.sequences && counts.sequences == 139,
        "sequences that are left early compare little: {counts:?}"
    );
}

#[test]
fn answers_are_those_of_memcached_with_slab() {
    compare(Engine::Slab);
}

#[test]
fn answers_are_those_of_memcached_with_tier() {
    compare(Engine::Tier);
}

#[test]
fn answers_are_those_of_memcached_with_hash() {
    compare(Engine::Hash);
}

#[test]
fn answers_are_those_of_memcached_with_matrix() {
    compare(Engine::Matrix);
}
