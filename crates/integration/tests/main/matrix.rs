//! Stores of engine `matrix`: what they have in a way of their own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use stratakv::raw::{Operation, Reply};
use stratakv::{Compression, Engine, EngineError, ErrorKind, Level, Options, ScanOptions, Store};
use stratakv_base::random::Random;
use stratakv_integration::{place, program, value};

const MIB: u64 = 1 << 20;

fn options(shards: usize) -> Options {
    let options = Options::new().engine(Engine::Matrix).region_bytes(8 * MIB * shards as u64);
    options.shards(shards).level(Level::ProcessCrash)
}

/// A store with records enough for several pieces of a backup on each shard.
fn filled(data: &Path, shards: usize) -> Store {
    let store = options(shards).open(data).expect("a store");
    for record in 0..6_000_u32 {
        store.put(record.to_be_bytes(), [7; 1000]).expect("a put");
    }
    store
}

fn snapshots(store: &Store) -> u64 {
    store.stats().iter().find(|one| one.name == "snapshots").map_or(0, |one| one.value)
}

fn piece(store: &Store, cursor: u64, shard: u32) -> Reply {
    store.execute(Operation::Backup { cursor, shard })
}

fn begun(store: &Store) -> u64 {
    match piece(store, 0, 0) {
        Reply::Number { number, .. } => number,
        other => panic!("a backup was begun with {other:?}"),
    }
}

/// Each shard kept what was overwritten until the store was closed.
#[test]
fn a_backup_that_is_called_off_keeps_nothing_on_any_shard() {
    let place = place::directory();
    let store = filled(&place.path().join("data"), 2);
    store.backup_watched(&place.path().join("copy"), &|_| false).expect_err("it was called off");
    assert_eq!(snapshots(&store), 0);
}

/// It went on from the beginning, in another cut, and reported success.
#[test]
fn a_backup_that_another_one_ended_is_told_on_every_shard() {
    let place = place::directory();
    let store = filled(&place.path().join("data"), 2);
    let first = begun(&store);
    assert!(matches!(piece(&store, first, 1), Reply::Page { next: Some(_), .. }));
    let second = begun(&store);
    assert!(matches!(piece(&store, second, 1), Reply::Page { next: Some(_), .. }));
    for shard in [0, 1] {
        let reply = piece(&store, first, shard);
        assert!(matches!(reply, Reply::Failed(EngineError::NoSnapshot { .. })), "shard {shard}: {reply:?}");
    }
}

/// Its region was to be as long as all records.
#[test]
fn more_than_the_region_holds_is_restored() {
    let place = place::directory();
    let (copy, restored) = (place.path().join("copy"), place.path().join("restored"));
    let store = filled(&place.path().join("data"), 1);
    for record in 0..20_000_u32 {
        store.put([&b"more"[..], &record.to_be_bytes()].concat(), [8; 1000]).expect("a put");
    }
    store.backup(&copy).expect("a backup");
    stratakv::restore(&copy, &restored, &options(1)).expect("restored");
    let again = options(1).open(&restored).expect("opened");
    assert_eq!(again.region().map(|region| region.len_bytes), Some(8 * MIB));
    assert_eq!(again.len().expect("counted"), 26_000);
}

/// Values of many lengths, all but the shortest ones apart from their keys: from 600 bytes on.
fn value_of(key: u64) -> Vec<u8> {
    value::encode(key, 1, [100, 600, 1500, 5000, 9000][key as usize % 5])
}

fn name(key: u64) -> Vec<u8> {
    format!("key{key:05}").into_bytes()
}

const LONG: u64 = 90_000;

/// The checksum of a value lies with its key, and `check` read pages of keys only.
#[test]
fn check_reads_the_values_that_lie_apart() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options(1).open(&data).expect("a store");
    for key in 0..5_000 {
        store.put(name(key), value_of(key)).expect("a put");
    }
    store.put(name(LONG), value::encode(LONG, 1, 300_000)).expect("a put");
    store.close().expect("closed");
    let sound = stratakv::check(&data, None).expect("checked");
    assert!(sound.is_sound(), "{sound:?}");

    let path = place::volumes(&data).remove(0);
    let (volume, file) = (std::fs::read(&path).expect("read"), File::options().write(true).open(&path).expect("open"));
    let find = |bytes: &[u8]| volume.windows(bytes.len()).position(|window| window == bytes);
    for (key, at) in [(1, 599), (2, 0), (3, 4_500), (4, 8_999), (LONG, 200_000)] {
        let bytes = if key == LONG { value::encode(LONG, 1, 300_000) } else { value_of(key) };
        let begins = find(&bytes[..64]).expect("the value lies on the volume");
        let offset = begins + at;
        file.write_all_at(&[volume[offset] ^ 0x04], offset as u64).expect("written");
        let output = program::run(&["check", "--data", data.to_str().expect("text")]);
        let said = program::said(&output);
        assert_eq!(output.status.code(), Some(4), "key {key}: {said}");
        let report = stratakv::check(&data, None).expect("checked");
        assert_eq!((report.damage.len(), report.lost_records, report.lost_unknown), (1, 1, 0), "key {key}: {report:?}");
        assert_eq!(report.lost[0].user(), name(key));
        assert!(report.damage[0].contains(&format!("byte {begins})")), "value at {begins}: {:?}", report.damage);
        assert!(report.mistakes.is_empty(), "{report:?}");
        file.write_all_at(&[volume[offset]], offset as u64).expect("written");
    }
    assert!(stratakv::check(&data, None).expect("checked").is_sound());
}

/// It was told as books that do not add up: a defect of the program.
#[test]
fn a_flipped_bit_in_a_row_of_the_region_is_damage() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options(1).open(&data).expect("a store");
    for key in 0..3_000 {
        store.put(name(key), value::encode(key, 1, 400)).expect("a put");
    }
    store.close().expect("closed");
    let path = data.join("pmem/region-000");
    let (region, file) = (std::fs::read(&path).expect("read"), File::options().write(true).open(&path).expect("open"));
    // The row of a memtable lies elsewhere than its log, which may be free.
    let bytes = value::encode(1_000, 1, 400);
    let copies = region.windows(64).enumerate().filter(|(_, window)| *window == &bytes[..64]).map(|(at, _)| at);
    for at in copies {
        file.write_all_at(&[region[at + 80] ^ 1], at as u64 + 80).expect("written");
    }
    let report = stratakv::check(&data, None).expect("checked");
    assert!(report.mistakes.is_empty() && report.damage.len() == 1, "{report:?}");
    let store = options(1).open(&data).expect("opened");
    assert_eq!(store.get(name(1_000)).expect_err("damaged").kind(), ErrorKind::Corrupt);
}

/// With PMEM levels: what lies in them is read, checked, damaged and found so; they are as long as
/// they were made.
#[test]
fn a_store_with_pmem_levels_is_checked_and_keeps_its_length() {
    let place = place::directory();
    let data = place.path().join("data");
    let with = |region: u64, levels: u64| options(1).region_bytes(region * MIB).pmem_levels_bytes(levels * MIB);
    for (asked, words) in [
        (with(12, 12), "PMEM levels of"),
        (with(12, 8), "8 MiB for each"),
        (Options::new().engine(Engine::Hash).pmem_levels_bytes(MIB), "engine `matrix`"),
        (Options::new().pmem_levels_bytes(MIB), "ask for the engine"),
    ] {
        let error = asked.open(place.path().join(words)).expect_err(words);
        assert!(error.kind() == ErrorKind::Usage && error.to_string().contains(words), "{error}");
    }
    let store = with(12, 4).open(&data).expect("a store");
    for round in 1..=3 {
        for key in 0..40_000 {
            store.put(name(key), value::encode(key, round, 200)).expect("a put");
        }
    }
    let told = |name: &str| store.stats().iter().find(|one| one.name == name).map_or(0, |one| one.value);
    assert_eq!(told("pmem_levels_bytes"), 4 * MIB);
    assert!(told("pmem_levels_table_bytes") > MIB && told("level_2_write_bytes") > 0, "{:?}", store.stats());
    store.close().expect("closed");
    for asked in [with(12, 3), with(12, 0)] {
        let error = asked.open(&data).expect_err("it is fixed");
        assert!(error.kind() == ErrorKind::Usage && error.to_string().contains("PMEM levels"), "{error}");
    }
    let is_whole = |store: &Store| {
        for key in (0..40_000).step_by(17) {
            let found = store.get(name(key)).expect("a get").expect("a record");
            assert!(found.to_bytes() == value::encode(key, 3, 200), "key {key}");
        }
    };
    is_whole(&options(1).region_bytes(12 * MIB).open(&data).expect("opened"));
    assert!(stratakv::check(&data, None).expect("checked").is_sound());

    let path = data.join("pmem/region-000");
    let (region, file) = (std::fs::read(&path).expect("read"), File::options().write(true).open(&path).expect("open"));
    let used = (8 * MIB as usize..region.len()).step_by(4096).find(|at| region[*at + 4] == 1 && region[*at + 8] != 0);
    // Free pages have what was there before: every page that looks like data is damaged.
    assert!(used.is_some());
    for at in (8 * MIB as usize..region.len()).step_by(4096) {
        file.write_all_at(&[region[at + 99] ^ 1], at as u64 + 99).expect("written");
    }
    let report = stratakv::check(&data, None).expect("checked");
    assert!(
        !report.damage.is_empty() && report.damage.iter().all(|damage| damage.contains("PMEM levels")),
        "{report:?}"
    );
    assert!(report.mistakes.is_empty(), "{report:?}");
}

/// Compressed tables: they take less, are read back after an orderly end, checked, damaged and
/// found so; the option is remembered, and can be changed.
#[test]
fn a_store_with_compressed_tables_takes_less_and_keeps_what_it_has() {
    let place = place::directory();
    for (asked, words) in [
        (Options::new().engine(Engine::Hash).compression(Compression::Lz4), "engine `matrix`"),
        (Options::new().compression(Compression::None), "ask for the engine"),
    ] {
        let error = asked.open(place.path().join(words)).expect_err(words);
        assert!(error.kind() == ErrorKind::Usage && error.to_string().contains(words), "{error}");
    }
    // Half of it is the same over and over.
    let value_of = |key: u64, round: u64| [&value::encode(key, round, 100)[..], &[b'-'; 100]].concat();
    let made = |compression: Compression| {
        let data = place.path().join(format!("{compression:?}"));
        let store = options(1).compression(compression).open(&data).expect("a store");
        for key in (1..=2).flat_map(|round| (0..40_000).map(move |key| (key, round))) {
            store.put(name(key.0), value_of(key.0, key.1)).expect("a put");
        }
        let told = |name: &str| store.stats().iter().find(|one| one.name == name).map_or(0, |one| one.value);
        let figures = ["table_bytes", "table_plain_bytes", "usable_bytes"].map(told);
        store.close().expect("closed");
        (data, figures)
    };
    let (_, [plain, as_plain, plain_volume]) = made(Compression::None);
    let (data, [bytes, plain_bytes, volume]) = made(Compression::Lz4);
    assert!(plain == as_plain && bytes * 10 < plain_bytes * 7, "{bytes} of {plain_bytes} bytes, {plain} of {as_plain}");
    assert!(volume * 10 < plain_volume * 8, "volumes of {volume} and {plain_volume} bytes");
    assert!(std::fs::read_to_string(data.join("store.toml")).expect("read").contains("compression = \"lz4\""));
    let path = place::volumes(&data).remove(0);
    assert_eq!(
        std::fs::read(&path).expect("read")[16],
        5,
        "programs that cannot read compressed pages refuse the volume"
    );

    assert!(stratakv::check(&data, None).expect("checked").is_sound());
    let is_whole = |store: &Store| {
        for key in (0..40_000).step_by(7) {
            let found = store.get(name(key)).expect("a get").expect("a record");
            assert!(found.to_bytes() == value_of(key, 2), "key {key}");
        }
        let mut keys = 0..40_000;
        for item in store.scan(ScanOptions::all()) {
            let (key, record) = item.expect("an item");
            let number = keys.next().expect("no more than were put");
            assert!(key == name(number) && record.to_bytes() == value_of(number, 2), "key {number}");
        }
        assert_eq!(keys.next(), None);
    };
    is_whole(&Options::new().level(Level::ProcessCrash).open(&data).expect("opened"));
    let store = options(1).compression(Compression::None).open(&data).expect("opened without");
    is_whole(&store);
    store.close().expect("closed");
    assert!(!std::fs::read_to_string(data.join("store.toml")).expect("read").contains("compression"));

    let (volume, file) = (std::fs::read(&path).expect("read"), File::options().write(true).open(&path).expect("open"));
    let pages = (0..volume.len()).step_by(4096).filter(|at| volume[at + 4] == 4 && volume[at + 5] == 0);
    for at in pages.step_by(10) {
        file.write_all_at(&[volume[at + 99] ^ 1], at as u64 + 99).expect("written");
    }
    let report = stratakv::check(&data, None).expect("checked");
    assert!(!report.damage.is_empty() && report.mistakes.is_empty(), "{report:?}");
}

/// What lies in rows of the region counted for nothing: a store that was just restored seemed to be
/// empty.
#[test]
fn records_that_are_in_the_region_are_counted() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = filled(&data, 1);
    store.close().expect("closed");
    let told = stratakv::check(&data, None).expect("checked").records;
    let store = Options::new().create(false).level(Level::ProcessCrash).open(&data).expect("opened");
    let found = store.scan(stratakv::ScanOptions::all()).count() as u64;
    assert_eq!((told, store.recovery().records), (found, found));
}

/// What becomes of some pages that have something in them.
fn spoil(image: &[u8], random: &mut Random) -> Vec<(usize, Vec<u8>)> {
    let page = |at: usize| image[at * 4096..][..4096].to_vec();
    let pages = (image.len() / 4096) as u64;
    let mut filled = || loop {
        let at = random.below(pages) as usize;
        if image[at * 4096..][..4096].iter().any(|byte| *byte != 0) {
            return at;
        }
    };
    let (one, other) = (filled(), filled());
    let mut spoilt = page(one);
    match random.below(4) {
        0 => spoilt[random.below(4096) as usize] ^= 1 << random.below(8),
        1 => spoilt[2048..].fill(0),
        2 => spoilt = page(other),
        _ => return vec![(one, page(other)), (other, page(one))],
    }
    vec![(one, spoilt)]
}

/// Pages of the region and of the volume, manifest and superblocks included, that are torn, have a
/// flipped bit, or lie where others belong: each key has its value, or an error that says where the
/// damage is; or the store is not opened, and it is said which file is damaged and what to do.
#[test]
fn damaged_pages_are_told_and_never_served() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options(1).open(&data).expect("a store");
    for key in 0..4_000 {
        store.put(name(key), value_of(key)).expect("a put");
    }
    store.close().expect("closed");
    let mut random = Random::new(8);
    let (mut refused, mut failed, mut served) = (0, 0, 0);
    for path in [data.join("pmem/region-000"), place::volumes(&data).remove(0)] {
        let (image, file) =
            (std::fs::read(&path).expect("read"), File::options().write(true).open(&path).expect("open"));
        for round in 0..60 {
            // The first page of a region has no copy. Whether another one that is needed to open it
            // is met is luck.
            let pages = if round == 0 { vec![(0, vec![0; 4096])] } else { spoil(&image, &mut random) };
            for (page, bytes) in &pages {
                file.write_all_at(bytes, *page as u64 * 4096).expect("written");
            }
            match Options::new().read_only(true).create(false).open(&data) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    let (said, named) = (error.to_string(), path.display().to_string());
                    assert!(said.contains(&named) && said.contains("stratakv re"), "round {round}: {said}");
                    refused += 1;
                }
                Ok(store) => {
                    for key in 0..4_000 {
                        match store.get(name(key)) {
                            Ok(record) => {
                                let bytes = record.expect("it was acknowledged").to_bytes();
                                assert!(bytes[..] == value_of(key)[..], "round {round}: key {key} has another value");
                                served += 1;
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                                assert!(error.to_string().contains("byte "), "{error}");
                                failed += 1;
                            }
                        }
                    }
                }
            }
            for (page, _) in &pages {
                file.write_all_at(&image[page * 4096..][..4096], *page as u64 * 4096).expect("written");
            }
        }
    }
    assert!(refused > 0 && failed > 20 && served > 200_000, "{refused} refused, {failed} failed, {served} served");
    assert!(stratakv::check(&data, None).expect("checked").is_sound());
}

/// Both copies of the manifest, and both superblocks.
#[test]
fn a_volume_without_a_manifest_or_superblock_says_what_to_do() {
    let place = place::directory();
    let data = place.path().join("data");
    filled(&data, 1).close().expect("closed");
    let path = place::volumes(&data).remove(0);
    let (volume, file) = (std::fs::read(&path).expect("read"), File::options().write(true).open(&path).expect("open"));
    let number = |at: usize| u64::from_le_bytes(volume[at..at + 8].try_into().expect("eight bytes"));
    let (first, pages) = (number(56), number(64) & 0xFFFF_FFFF);
    for (what, places) in [("manifest", [first, first + pages]), ("superblock", [0, 1])] {
        for page in places {
            let at = page * 4096 + 20;
            file.write_all_at(&[volume[at as usize] ^ 1], at).expect("written");
        }
        let error = options(1).open(&data).expect_err("it is refused");
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{said}");
        assert!(said.contains(what) && said.contains("shard-000") && said.contains("stratakv restore"), "{said}");
        for page in places {
            let at = page * 4096 + 20;
            file.write_all_at(&[volume[at as usize]], at).expect("written");
        }
    }
    assert!(stratakv::check(&data, None).expect("checked").is_sound());
}

#[test]
fn a_region_too_small_for_a_memtable_is_refused_and_nothing_is_made() {
    let place = place::directory();
    let data = place.path().join("data");
    for (shards, bytes) in [(1, MIB), (1, 8 * MIB - 4096), (4, 8 * MIB)] {
        let error = Options::new().engine(Engine::Matrix).shards(shards).region_bytes(bytes);
        let error = error.level(Level::ProcessCrash).open(&data).expect_err("it is refused");
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Usage, "{said}");
        assert!(said.contains("8 MiB for each") && said.contains("--region"), "{said}");
    }
    options(1).open(&data).expect("a region that is long enough");
}

/// Longer than a memtable may become, than all of the region, than is allowed.
#[test]
fn records_longer_than_a_row_are_stored_and_too_long_ones_refused() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options(1).open(&data).expect("a store");
    for (key, bytes) in [(1, 300 << 10), (2, 1 << 20), (3, 12 << 20)] {
        store.put(name(key), value::encode(key, 1, bytes)).expect("a put");
    }
    let error = store.put(b"too long", vec![0; stratakv::limits::VALUE_BYTES_MAX + 1]).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    store.close().expect("closed");
    let store = options(1).open(&data).expect("opened");
    for (key, bytes) in [(1, 300 << 10), (2, 1 << 20), (3, 12 << 20)] {
        let found = store.get(name(key)).expect("a get").expect("it is there").to_bytes();
        assert!(found[..] == value::encode(key, 1, bytes)[..], "key {key}");
    }
    assert!(store.get(b"too long").expect("a get").is_none());
}
