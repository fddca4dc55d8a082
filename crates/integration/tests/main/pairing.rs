//! Engine `matrix`: a region that is gone, older than its volume, or damaged is refused, with the
//! way out; given up, what is on the volume is served.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use stratakv::{Engine, Error, ErrorKind, Level, Options, Store};
use stratakv_integration::{place, program, value};

const KEYS: u64 = 6_000;

fn options() -> Options {
    Options::new().engine(Engine::Matrix).region_bytes(8 << 20).level(Level::ProcessCrash)
}

fn name(key: u64) -> Vec<u8> {
    format!("key{key:05}").into_bytes()
}

fn put(store: &Store, key: u64) {
    store.put(name(key), value::encode(key, 1, 1000)).expect("a put");
}

/// More than the region holds: much of it is on the volume.
fn fill(data: &Path) {
    let store = options().open(data).expect("a store");
    (0..KEYS).for_each(|key| put(&store, key));
    store.close().expect("closed");
}

fn found(store: &Store) -> u64 {
    let whole = |key: &u64| match store.get(name(*key)).expect("a get") {
        Some(record) => value::decode(*key, &record.to_bytes()) == Ok(1),
        None => false,
    };
    (0..KEYS).filter(whole).count() as u64
}

fn run(data: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = program::run(&[arguments, &["--data", data.to_str().expect("text")]].concat());
    (output.status.code(), format!("{}{}", String::from_utf8_lossy(&output.stdout), program::said(&output)))
}

/// Refused for writing, for reading only, and by `check`. What was said.
fn refused(data: &Path) -> Error {
    assert!(Options::new().read_only(true).create(false).open(data).is_err(), "it was opened for reading");
    assert!(stratakv::check(data, None).is_err(), "it was checked");
    options().open(data).expect_err("it was opened")
}

/// A tmpfs after a reboot.
#[test]
fn a_region_that_is_gone_is_told_and_given_up_by_a_command() {
    let place = place::directory();
    let (data, kept) = (place.path().join("data"), place.path().join("kept"));
    fill(&data);
    let region = data.join("pmem/region-000");
    fs::rename(&region, &kept).expect("moved away");
    let error = refused(&data);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("--accept-lost-region"), "{error}");

    let (code, said) = run(&data, &["repair"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("which are kept. Every change up to version ") && said.contains("Lost: "), "{said}");
    assert!(said.contains("the store was closed in order") && said.contains("nothing was changed"), "{said}");
    assert!(!region.exists());

    let accept = ["repair", "--accept-lost-region", "--region", "8M", "--durability", "process_crash"];
    let (code, said) = run(&data, &accept);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Lost: ") && said.contains("repaired: the new region is "), "{said}");
    let report = stratakv::repair(&data, &options(), false).expect("looked at");
    assert!(report.lost.is_empty() && !report.repaired, "{report:?}");
    assert!(stratakv::check(&data, None).expect("checked").is_sound());
    let store = options().open(&data).expect("opened");
    let left = found(&store);
    assert!(left > KEYS / 10 && left < KEYS, "{left} of {KEYS} are left");
    (0..KEYS).for_each(|key| put(&store, key));
    assert_eq!(found(&store), KEYS);
    store.close().expect("closed");

    fs::rename(&kept, &region).expect("put back");
    let error = refused(&data);
    assert!(error.to_string().contains("older than its volume"), "{error}");
}

/// It was made, then refused; and the command that was advised was refused too.
#[test]
fn a_repair_that_is_refused_makes_no_region_and_the_one_that_is_advised_works() {
    if !Path::new("/dev/shm").is_dir() {
        return;
    }
    let (place, memory) = (place::directory(), tempfile::tempdir_in("/dev/shm").expect("a directory in memory"));
    let (data, region) = (place.path().join("data"), memory.path().join("region"));
    let store = options().region_paths([&region]).open(&data).expect("a store");
    put(&store, 7);
    store.close().expect("closed");
    for empty in [false, true] {
        fs::remove_file(&region).expect("removed");
        if empty {
            fs::write(&region, "").expect("written");
        }
        let opening = refused(&data).to_string();
        assert!(
            opening.contains("--accept-lost-region") && opening.contains("--durability process_crash"),
            "{opening}"
        );
        for option in [["--region", "8M"], ["--region", "4M"]] {
            let (code, said) = run(&data, &[&["repair", "--accept-lost-region"], &option[..]].concat());
            assert_eq!(code, Some(2), "{said}");
            assert_eq!(region.exists(), empty, "it was touched: {said}");
        }
        let (code, said) = run(&data, &["repair", "--region", "8M"]);
        assert_eq!(code, Some(4), "{said}");
        assert!(!said.contains("blank") && said.contains(if empty { "is empty" } else { "is missing" }), "{said}");
        let advised = said.split('`').nth(1).expect("a command");
        let words: Vec<&str> = advised.split(' ').skip(1).collect();
        let output = program::run(&words);
        assert_eq!(output.status.code(), Some(0), "{advised}: {}", program::said(&output));
        assert!(options().open(&data).is_ok());
    }
}

/// It was served, for reading as well, without what had been acknowledged since.
#[test]
fn an_older_region_and_an_older_volume_are_refused() {
    let place = place::directory();
    let data = place.path().join("data");
    fill(&data);
    for file in [data.join("pmem/region-000"), place::volumes(&data).remove(0)] {
        let (older, newer) = (place.path().join("older"), place.path().join("newer"));
        fs::copy(&file, &older).expect("copied");
        let store = options().open(&data).expect("opened");
        put(&store, 7);
        store.close().expect("closed");
        fs::copy(&file, &newer).expect("copied");
        fs::copy(&older, &file).expect("put back");
        let error = refused(&data);
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let said = error.to_string();
        assert!(said.contains("is older than its") && said.contains("region-000"), "{said}");
        fs::copy(&newer, &file).expect("put back");
        assert_eq!(found(&options().open(&data).expect("opened")), KEYS);
    }
}

/// The volume was named.
#[test]
fn damage_in_the_log_names_the_region_and_the_way_out() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = options().open(&data).expect("a store");
    (0..100).for_each(|key| put(&store, key));
    store.close().expect("closed");
    let path = data.join("pmem/region-000");
    let (region, file) = (fs::read(&path).expect("read"), File::options().write(true).open(&path).expect("open"));
    // In the middle, and in the last record of all, behind which nothing says that it was durable.
    for key in [50, 99] {
        let value = value::encode(key, 1, 1000);
        let at = region.windows(64).position(|window| *window == value[..64]).expect("it is in the log") + 80;
        file.write_all_at(&[region[at] ^ 1], at as u64).expect("written");
        let said = refused(&data).to_string();
        assert!(said.contains("region-000") && said.contains("--accept-lost-region"), "{said}");
        file.write_all_at(&[region[at]], at as u64).expect("written");
    }
    assert_eq!(options().open(&data).expect("opened").len().expect("counted"), 100);
}

#[test]
fn a_store_of_another_engine_has_no_region_to_give_up() {
    let place = place::directory();
    let data = place.path().join("data");
    drop(Options::new().level(Level::ProcessCrash).open(&data).expect("a store"));
    let error = stratakv::repair(&data, &Options::new(), true).expect_err("refused");
    assert!(error.to_string().contains("engine `slab`"), "{error}");
}

/// The first levels of tables lay in a tmpfs: what was there is told, and the rest is served.
#[test]
fn a_region_with_pmem_levels_that_are_gone_are_told_table_by_table_and_given_up() {
    const MANY: u64 = 40_000;
    const ALL: u64 = 44_000;
    let place = place::directory();
    let data = place.path().join("data");
    let options = Options::new().engine(Engine::Matrix).region_bytes(16 << 20).pmem_levels_bytes(8 << 20);
    let options = options.level(Level::ProcessCrash);
    let fill = |store: &Store, keys: std::ops::Range<u64>, sequence: u64| {
        for key in keys {
            store.put(name(key), value::encode(key, sequence, 300)).expect("a put");
        }
    };
    let in_pmem_levels = |store: &Store| {
        store.stats().iter().find(|one| one.name == "pmem_levels_table_bytes").expect("it is told").value
    };
    // Of each sequence, how many keys have it; 0: the key is gone.
    let found = |store: &Store| {
        let sequence = |key: u64| {
            let record = store.get(name(key)).expect("a get");
            record.map_or(0, |record| value::decode(key, &record.to_bytes()).expect("a value that was put"))
        };
        (0..ALL).map(sequence).fold([0; 4], |mut counts, sequence| {
            counts[sequence as usize] += 1;
            counts
        })
    };
    let store = options.open(&data).expect("a store");
    fill(&store, 0..MANY, 1);
    // The last keys are put once, late: nothing on the volume has them.
    fill(&store, 0..ALL, 2);
    assert!(in_pmem_levels(&store) > 1 << 20, "{} bytes in the PMEM levels", in_pmem_levels(&store));
    store.close().expect("closed");
    let volume = fs::read(place::volumes(&data).remove(0)).expect("read");
    fs::remove_file(data.join("pmem/region-000")).expect("removed");

    let report = stratakv::repair(&data, &Options::new(), false).expect("looked at");
    let [lost] = &report.lost[..] else { panic!("{report:?}") };
    assert!(!lost.tables.is_empty() && lost.tables.iter().all(|table| table.level == 1), "{lost:?}");
    assert!(lost.tables.iter().any(|table| table.hid_others) && !lost.may_lose_names, "{lost:?}");
    let (code, said) = run(&data, &["repair"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains(&format!("Lost with the PMEM levels: {} tables", lost.tables.len())), "{said}");
    assert!(said.contains("lost: table ") && said.contains("nothing was changed"), "{said}");
    let (code, said) = run(&data, &["repair", "--json"]);
    let json: serde_json::Value = serde_json::from_str(said.lines().next().expect("a line")).expect("JSON");
    let tables = json["lost"][0]["tables"].as_array().expect("tables");
    let entries = tables.iter().map(|table| table["entries"].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((code, tables.len()), (Some(4), lost.tables.len()));
    assert_eq!(entries, lost.tables.iter().map(|table| table.entries).sum::<u64>());
    assert!(tables[0]["first"]["key"].as_str().is_some_and(|key| key.starts_with("key")), "{json}");
    assert!(volume == fs::read(place::volumes(&data).remove(0)).expect("read"), "the volume was written to");

    let accept =
        ["repair", "--accept-lost-region", "--region", "16M", "--pmem-levels", "8M", "--durability", "process_crash"];
    let (code, said) = run(&data, &accept);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Lost with the PMEM levels: ") && said.contains("repaired: the new region is "), "{said}");
    let report = stratakv::repair(&data, &options, false).expect("looked at");
    assert!(report.lost.is_empty(), "{report:?}");
    let checked = stratakv::check(&data, None).expect("checked");
    assert!(checked.is_sound(), "{checked:?}");
    let store = options.open(&data).expect("opened");
    let [gone, older, newest, _] = found(&store);
    assert!(gone > 0 && older > 0 && newest > 0, "{gone} gone, {older} older, {newest} as they were");
    fill(&store, 0..ALL, 3);
    assert!(in_pmem_levels(&store) > 0, "the new PMEM levels are not used");
    store.close().expect("closed");
    assert_eq!(found(&options.open(&data).expect("opened")), [0, 0, 0, ALL]);
}
