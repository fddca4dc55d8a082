//! What was written under one setting is there under another one, and under the first one again.

use stratakv::{Compression, Engine, IoBackend, Level, Options, Placement, Store};

const MIB: u64 = 1 << 20;

/// From a record in a page to a value with slices, in every engine.
const LENGTHS: [usize; 9] = [1, 100, 2000, 4080, 9000, 60_000, 70_000, 140_000, 300_000];

fn value(number: usize, round: usize) -> Vec<u8> {
    let len = LENGTHS[(number + round) % LENGTHS.len()];
    (0..len).map(|at| (at * 7 + number * 31 + round) as u8).collect()
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn check(store: &Store, rounds: &[usize], what: &str) {
    for (number, round) in rounds.iter().enumerate() {
        let found = store.get(key(number)).expect("it answers").map(|record| record.to_bytes().to_vec());
        assert!(found == Some(value(number, *round)), "{what}: key {number} of round {round}");
    }
}

type Change = (&'static str, fn(Options) -> Options);

/// Opened under each setting in turn, and at last as it was made; in each life some keys are
/// written anew.
fn survives(engine: &str, made: &Options, changes: &[Change]) {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("data");
    let mut rounds = vec![0; 90];
    let as_it_was: Change = ("as it was made", |options| options);
    let lives = std::iter::once(&as_it_was).chain(changes).chain(std::iter::once(&as_it_was));
    for (life, (what, change)) in lives.enumerate() {
        let what = format!("{engine}, {what}");
        let store = change(made.clone()).open(&place).unwrap_or_else(|error| panic!("{what}: {error}"));
        if life > 0 {
            check(&store, &rounds, &what);
        }
        for (number, round) in rounds.iter_mut().enumerate().filter(|(number, _)| life == 0 || number % 5 == life % 5) {
            *round = life;
            store.put(key(number), value(number, life)).expect("it is put");
        }
        check(&store, &rounds, &what);
        store.close().expect("it closes");
    }
}

const MEMORY: [Change; 3] = [
    ("with less memory", |options| options.memory_bytes(24 * MIB)),
    ("with much memory", |options| options.memory_bytes(256 * MIB)),
    ("with other I/O", |options| options.io(IoBackend::Blocking).depth(3).cores(1)),
];

#[test]
fn settings_of_slab_change_between_openings() {
    for placement in [Placement::InPlace, Placement::Packed] {
        let made = Options::new().shards(2).placement(placement).memory_bytes(64 * MIB).level(Level::ProcessCrash);
        let others: [Change; 2] = [
            ("with a capacity", |options| options.capacity_bytes(64 * MIB)),
            ("at another level", |options| options.level(Level::PowerLoss)),
        ];
        survives("slab", &made, &[&MEMORY[..], &others[..]].concat());
    }
}

#[test]
fn settings_of_hash_change_between_openings() {
    let made = Options::new().engine(Engine::Hash).region_bytes(32 * MIB).level(Level::ProcessCrash);
    // Its region gets longer and never shorter again: tests of its growth open it longer.
    survives("hash", &made, &MEMORY[1..]);
}

#[test]
fn settings_of_matrix_change_between_openings() {
    let made = Options::new().engine(Engine::Matrix).shards(1).region_bytes(64 * MIB).level(Level::ProcessCrash);
    let others: [Change; 2] = [
        ("compressed", |options| options.compression(Compression::Lz4)),
        ("not compressed", |options| options.compression(Compression::None)),
    ];
    survives("matrix", &made.memory_bytes(64 * MIB), &[&MEMORY[..], &others[..]].concat());
}

/// The segments of a cache, and how long values are cut, are those of its memory.
#[test]
fn settings_of_tier_change_between_openings() {
    let made = Options::new().engine(Engine::Tier).shards(1).memory_bytes(64 * MIB).capacity_bytes(256 * MIB);
    survives("tier", &made, &MEMORY);
    let saves = Options::new().engine(Engine::Tier).shards(1).memory_bytes(64 * MIB).save_at_shutdown(true);
    survives("tier that saves", &saves, &MEMORY[..2]);
}

/// Whatever the device is: a name that is there twice is told before anything is opened.
#[test]
fn a_device_that_is_named_twice_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (device, link) = (directory.path().join("device"), directory.path().join("link"));
    std::fs::write(&device, b"no device").expect("a file");
    std::os::unix::fs::symlink(&device, &link).expect("a link");
    let other = directory.path().join("other");
    for named in [[&device, &device, &other], [&other, &device, &link], [&link, &other, &device]] {
        let options = Options::new().shards(4).devices(named);
        let error = options.open(directory.path().join("data")).expect_err("it is refused");
        assert!(error.to_string().contains("is named twice as a device of the store"), "{error}");
    }
    let alone = Options::new().shards(4).devices([&device]).open(directory.path().join("data"));
    let error = alone.expect_err("it is no device");
    assert!(error.to_string().contains("it is no block device"), "{error}");
}

/// One table says which engine has which option: whoever asks for one of another engine is told the
/// same, whether he names the engine, makes a store or has one, and nothing is made.
#[test]
fn an_option_of_another_engine_is_refused_everywhere() {
    type Asking = (&'static str, &'static [Engine], fn(Options) -> Options);
    let asking: [Asking; 7] = [
        ("--placement", &[Engine::Slab], |options| options.placement(Placement::Packed)),
        ("--region ", &[Engine::Hash, Engine::Matrix], |options| options.region_bytes(16 * MIB)),
        ("--region-path", &[Engine::Hash, Engine::Matrix], |options| options.region_path("/nowhere/region")),
        ("--region-node", &[Engine::Hash, Engine::Matrix], |options| options.region_nodes([0])),
        ("--pmem-levels", &[Engine::Matrix], |options| options.pmem_levels_bytes(MIB)),
        ("--compression", &[Engine::Matrix], |options| options.compression(Compression::Lz4)),
        ("--save-at-shutdown", &[Engine::Tier], |options| options.save_at_shutdown(true)),
    ];
    for engine in [Engine::Slab, Engine::Hash, Engine::Matrix, Engine::Tier] {
        let directory = tempfile::tempdir().expect("a directory");
        let (new, stored) = (directory.path().join("new"), directory.path().join("stored"));
        let plain = Options::new().shards(1).memory_bytes(16 * MIB);
        let plain = if engine == Engine::Tier { plain } else { plain.level(Level::ProcessCrash) };
        let region = if matches!(engine, Engine::Hash | Engine::Matrix) { Some(16 * MIB) } else { None };
        let made = region.into_iter().fold(plain.clone().engine(engine), Options::region_bytes);
        made.open(&stored).expect("it is made").close().expect("it closes");
        for (option, engines, ask) in asking.iter().filter(|(_, engines, _)| !engines.contains(&engine)) {
            let whose = [
                (ask(plain.clone().engine(engine)).open(&new), format!("`{}` was asked for", engine.name())),
                (ask(plain.clone()).open(&stored), format!("stored has the engine `{}`", engine.name())),
            ];
            let by_default =
                (engine == Engine::Slab).then(|| (ask(plain.clone()).open(&new), "would be of".to_owned()));
            for (outcome, whose) in whose.into_iter().chain(by_default) {
                let said = outcome.err().unwrap_or_else(|| panic!("{option} of {engine:?}: it opens")).to_string();
                let named = engines.iter().all(|of| said.contains(&format!("`{}`", of.name())));
                assert!(said.starts_with(option) && said.contains(&whose) && named, "{option} of {engine:?}: {said}");
            }
            assert!(!new.exists(), "{option} of {engine:?}: something was made");
        }
    }
}

/// What is fixed at creation and every engine has is kept by a store that exists: asking for
/// something else changes nothing.
#[test]
fn a_store_that_exists_keeps_its_placement_and_its_shards() {
    let other = |placement| if placement == Placement::Packed { Placement::InPlace } else { Placement::Packed };
    let plain = |shards| Options::new().shards(shards).memory_bytes(16 * MIB);
    for engine in [Engine::Slab, Engine::Hash, Engine::Matrix, Engine::Tier] {
        for placement in [Placement::InPlace, Placement::Packed] {
            let directory = tempfile::tempdir().expect("a directory");
            let sized = |options: Options| match engine {
                Engine::Tier => options,
                Engine::Hash | Engine::Matrix => options.level(Level::ProcessCrash).region_bytes(16 * MIB),
                _ => options.level(Level::ProcessCrash),
            };
            let has = (engine == Engine::Slab).then_some(placement);
            let made = has.into_iter().fold(sized(plain(1)).engine(engine), Options::placement);
            made.open(directory.path()).expect("it is made").close().expect("it closes");
            // To name the default is to ask for nothing.
            let asked = has.map_or(Placement::InPlace, other);
            let store = sized(plain(3)).placement(asked).open(directory.path()).expect("it opens");
            assert_eq!((store.shards(), store.placement()), (1, has), "{engine:?}");
            store.close().expect("it closes");
        }
    }
}
