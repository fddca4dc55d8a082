//! The wall clock of the machine is stepped while stores are open.

use std::sync::Arc;

use stratakv::{Engine, Expiry, Level, Options, Placement, PutOptions, Store};
use stratakv_base::{Mono, Now, Wall};
use stratakv_runtime::{Clock, ManualClock};

const SECOND_NS: u64 = 1_000_000_000;
const HOUR_MS: u64 = 3_600_000;
const START_MS: u64 = 1_800_000_000_000;
const MIB: u64 = 1 << 20;

fn engines() -> Vec<(&'static str, Options)> {
    let of = |engine| Options::new().engine(engine).shards(1);
    vec![
        ("slab", of(Engine::Slab)),
        ("packed", of(Engine::Slab).placement(Placement::Packed)),
        ("hash", of(Engine::Hash).level(Level::ProcessCrash).region_bytes(16 * MIB)),
        ("matrix", of(Engine::Matrix).level(Level::ProcessCrash).region_bytes(64 * MIB)),
        ("tier", of(Engine::Tier).level(Level::Memory).memory_bytes(16 * MIB).capacity_bytes(32 * MIB)),
    ]
}

/// A store whose clock is read by something every 100 ms.
struct Clocked {
    clock: Arc<ManualClock>,
    passed_ms: u64,
    store: Store,
}

impl Clocked {
    fn new(options: Options, place: &std::path::Path) -> Clocked {
        let clock = Arc::new(ManualClock::default());
        clock.set(Now { mono: Mono(SECOND_NS), wall: Wall(START_MS) });
        let options = options.clock(Clock::guarded(Arc::clone(&clock)));
        Clocked { clock, passed_ms: 0, store: options.open(place.join("data")).expect("it opens") }
    }

    /// Time passes, and the machine's wall clock is so far ahead.
    fn pass(&mut self, ms: u64, step_ms: i64) {
        for _ in 0..ms / 100 {
            self.passed_ms += 100;
            let wall = (START_MS + self.passed_ms).saturating_add_signed(step_ms);
            self.clock.set(Now { mono: Mono(SECOND_NS + self.passed_ms * 1_000_000), wall: Wall(wall) });
            assert!(self.store.get(b"another").expect("it answers").is_none());
        }
    }

    fn put(&self, key: &[u8], ms: u64) {
        let expiry = Expiry(START_MS + self.passed_ms + ms);
        self.store.put_with(key, b"value", &PutOptions { expiry, ..PutOptions::default() }).expect("it is put");
    }

    fn has(&self, key: &[u8]) -> bool {
        self.store.get(key).expect("it answers").is_some()
    }
}

/// Two hours ahead for 2.5 seconds removed for good what would have expired then.
#[test]
fn a_step_of_the_wall_clock_expires_nothing() {
    for (name, options) in engines() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Clocked::new(options, directory.path());
        store.put(b"in an hour", HOUR_MS);
        store.put(b"in a minute", 60_000);
        store.pass(1000, 0);
        store.pass(2500, 2 * HOUR_MS as i64);
        assert!(store.has(b"in an hour") && store.has(b"in a minute"), "{name}, while it is ahead");
        store.pass(1000, 0);
        assert!(store.has(b"in an hour") && store.has(b"in a minute"), "{name}, after it was ahead");
        // What is due goes, whatever the wall clock says.
        store.pass(60_000, -2 * HOUR_MS as i64);
        assert_eq!((store.has(b"in an hour"), store.has(b"in a minute")), (true, false), "{name}, while it is behind");
        store.pass(HOUR_MS, 0);
        assert!(!store.has(b"in an hour"), "{name}, after an hour");
        store.store.close().expect("it closes");
    }
}
