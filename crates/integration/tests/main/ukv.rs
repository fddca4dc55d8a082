//! The load generator of `cargo xtask compare --ukv` against a server of ours in this process.

use std::net::SocketAddr;
use std::time::Duration;

use stratakv::{Engine, Options};
use stratakv_bench::Distribution;
use stratakv_bench::wire::{Protocol, WireOptions, WireReport, Work, run};
use stratakv_integration::place;
use stratakv_server::{ClientLimits, Server, ServerOptions};

const DRAWN: Work = Work::Draw {
    get_percent: 90,
    distribution: Distribution::Uniform,
    warm_up: Duration::from_millis(20),
    duration: Duration::from_secs(1),
};

fn with_server(engine: Engine, capacity: Option<u64>, item_bytes_max: usize, use_it: impl FnOnce(SocketAddr)) {
    let place = place::directory();
    let mut options = Options::new().engine(engine).shards(1).memory_bytes(64 << 20);
    if let Some(bytes) = capacity {
        options = options.capacity_bytes(bytes);
    }
    let store = options.open(place.path().join("data")).expect("a store");
    let memcache = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let limits = ClientLimits { item_bytes_max, ..ClientLimits::default() };
    let options = ServerOptions { memcache, threads: 1, limits, ..ServerOptions::default() };
    let server = Server::start(store.clone(), options).expect("a server");
    use_it(server.addresses()[0]);
    drop(server);
    store.close().expect("closed");
}

fn work(address: SocketAddr, work: Work, records: u64, value_bytes: usize) -> WireReport {
    let options = WireOptions {
        address,
        protocol: Protocol::Memcache,
        connections: 40,
        pipeline: 5,
        records,
        value_bytes,
        load_bytes_per_s: None,
        work,
        seed: 3,
    };
    let mut calls = 0;
    let report = run(&options, &mut |_| calls += 1).expect("a run");
    assert!(calls > 0, "it is watched");
    report
}

#[test]
fn the_load_generator_finds_what_it_loaded() {
    with_server(Engine::Slab, None, 1 << 20, |address| {
        // As 100 connections of 5, the last batch is not full.
        let loaded = work(address, Work::Load, 1_013, 4_096);
        assert_eq!((loaded.operations, loaded.gets, loaded.refused), (1_013, 0, 0));
        let drawn = work(address, DRAWN, 1_013, 4_096);
        assert_eq!((drawn.hits, drawn.refused), (drawn.gets, 0));
        assert!(drawn.gets > drawn.operations / 2 && drawn.operations > drawn.gets, "{drawn:?}");
        assert!(drawn.latency_us_p50 > 0.0 && drawn.latency_us_p50 <= drawn.latency_us_p99, "{drawn:?}");
        assert!(drawn.operations_per_s > 0.0 && drawn.seconds >= 1.0, "{drawn:?}");
        // Most of these records were never loaded.
        let missed = work(address, DRAWN, 1_000_000, 4_096);
        assert!(missed.gets > 0 && missed.hits < missed.gets, "{missed:?}");
    });
}

#[test]
fn the_load_generator_counts_what_a_cache_evicted_as_misses() {
    with_server(Engine::Tier, Some(0), 1 << 20, |address| {
        let loaded = work(address, Work::Load, 500, 256 << 10);
        assert_eq!((loaded.operations, loaded.refused), (500, 0));
        let report = work(address, DRAWN, 500, 256 << 10);
        // 125 MiB of values in 64 MiB of memory.
        assert!(report.hits > 0 && report.hits < report.gets, "{report:?}");
    });
}

#[test]
fn the_load_generator_counts_sets_that_are_refused() {
    with_server(Engine::Slab, None, 10_000, |address| {
        let report = work(address, Work::Load, 50, 10_001);
        assert_eq!((report.operations, report.refused), (50, 50));
    });
}

/// What is asked for is checked to be the record's own.
#[test]
fn the_load_generator_refuses_a_value_of_another_length() {
    with_server(Engine::Slab, None, 1 << 20, |address| {
        work(address, Work::Load, 100, 1_000);
        let options = WireOptions {
            address,
            protocol: Protocol::Memcache,
            connections: 1,
            pipeline: 1,
            records: 100,
            value_bytes: 1_001,
            load_bytes_per_s: None,
            work: DRAWN,
            seed: 3,
        };
        let error = run(&options, &mut |_| {}).expect_err("a value that is not the record's");
        assert!(error.to_string().contains("not its"), "{error}");
    });
}

#[test]
fn the_load_generator_keeps_to_a_pace_and_loads_everything() {
    with_server(Engine::Slab, None, 1 << 20, |address| {
        let options = WireOptions {
            address,
            protocol: Protocol::Memcache,
            connections: 8,
            pipeline: 3,
            records: 1_001,
            value_bytes: 4_096,
            work: Work::Load,
            load_bytes_per_s: Some(16 << 20),
            seed: 3,
        };
        let loaded = run(&options, &mut |_| {}).expect("a run");
        assert_eq!((loaded.operations, loaded.refused), (1_001, 0));
        // All but the last batch of each connection was waited for.
        let waited_for = ((1_001 - 2 * 8 * 3) * 4_096) as f64 / f64::from(16 << 20);
        assert!(loaded.seconds >= waited_for, "{loaded:?}");
        let drawn = work(address, DRAWN, 1_001, 4_096);
        assert_eq!(drawn.hits, drawn.gets, "{drawn:?}");
    });
}

#[test]
fn what_was_missed_is_set_and_found_the_next_time() {
    with_server(Engine::Tier, Some(256 << 20), 1 << 20, |address| {
        let through =
            |warm_up_gets, gets| Work::ReadThrough { distribution: Distribution::Uniform, warm_up_gets, gets };
        let cold = work(address, through(0, 2_000), 500, 512);
        let missed = cold.gets - cold.hits;
        // Who asks for what another one is about to set misses too.
        assert!(cold.gets == 2_000 && (490..1_000).contains(&missed), "{cold:?}");
        assert_eq!(cold.operations - cold.gets, missed, "each is set");
        let warm = work(address, through(500, 1_000), 500, 512);
        assert!(warm.hits == warm.gets && warm.operations == warm.gets, "{warm:?}");
        // The batch at the border is cut, and those under way there, 40 of 5, are answered when it
        // counts.
        assert!((995..=1_200).contains(&warm.gets), "{warm:?}");
    });
}
