//! Space of deleted records goes back to the file system: the files of a store take less.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use stratakv::{Level, Options, Placement, Store, check};

/// What a store is filled with, and what stays of it.
#[derive(Clone, Copy)]
struct Shape {
    placement: Placement,
    records: u32,
    value_bytes: usize,
    kept_each: u32,
}

impl Shape {
    fn value(&self, number: u32, round: u32) -> Vec<u8> {
        let text = format!("{number:06}{round}").into_bytes();
        text.into_iter().cycle().take(self.value_bytes).collect()
    }

    fn fill(&self, store: &Store, round: u32) {
        for number in 0..self.records {
            store.put(number.to_be_bytes(), self.value(number, round)).expect("put");
        }
    }

    fn thin_out(&self, store: &Store) {
        for number in (0..self.records).filter(|number| number % self.kept_each > 0) {
            assert!(store.delete(number.to_be_bytes()).expect("deleted"));
        }
    }

    fn is_right(&self, store: &Store, round: u32) {
        for number in 0..self.records {
            let found = store.get(number.to_be_bytes()).expect("read").map(|record| record.to_bytes().to_vec());
            let expected = (number % self.kept_each == 0).then(|| self.value(number, round));
            assert!(found == expected, "record {number}");
        }
    }
}

/// Bytes that the files of a store take, as `du` counts them.
fn taken_bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("read").map(|file| file.expect("a file").metadata().expect("read"));
    files.filter(std::fs::Metadata::is_file).map(|file| file.blocks() * 512).sum()
}

fn statistic(store: &Store, name: &str) -> u64 {
    store.stats().iter().find(|one| one.name == name).expect(name).value
}

fn shrinks_and_grows(shape: Shape) {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = directory.path().join("data");
    let options = Options::new().shards(1).placement(shape.placement).level(Level::ProcessCrash);
    let store = options.open(&folder).expect("opened");
    shape.fill(&store, 0);
    let full = taken_bytes(&folder);
    assert!(full > 40 << 20, "{full} bytes");
    shape.thin_out(&store);
    // What is left is less than a megabyte, and 16 MiB stay in any case.
    let begun = Instant::now();
    while taken_bytes(&folder) > 24 << 20 {
        let discarded = statistic(&store, "discarded_bytes");
        let taken = taken_bytes(&folder);
        assert!(begun.elapsed() < Duration::from_secs(120), "{full} bytes became {taken}, {discarded} are discarded");
        std::thread::sleep(Duration::from_millis(50));
    }
    shape.is_right(&store, 0);
    store.close().expect("closed");
    let report = check(&folder, None).expect("checked");
    assert!(report.is_sound(), "{report:?}");
    // It knows its holes after an opening, and fills them before it grows.
    let store = options.open(&folder).expect("opened");
    assert!(statistic(&store, "discarded_bytes") > 0);
    let usable = statistic(&store, "usable_bytes") + statistic(&store, "discarded_bytes");
    shape.fill(&store, 1);
    let (left, has) = (statistic(&store, "discarded_bytes"), statistic(&store, "usable_bytes"));
    assert!(left == 0 || left + has == usable, "it grew though {left} bytes were discarded: {usable}, {has}");
    assert!(taken_bytes(&folder) > 40 << 20);
    shape.thin_out(&store);
    shape.is_right(&store, 1);
    store.close().expect("closed");
}

/// Pages of slots stay where they are: it is the space of large values that goes back.
#[test]
fn space_of_large_values_goes_back_in_place() {
    shrinks_and_grows(Shape { placement: Placement::InPlace, records: 1000, value_bytes: 48 << 10, kept_each: 250 });
}

/// Of each segment something stays, so that it has to be cleaned.
#[test]
fn space_of_deleted_records_goes_back_packed() {
    shrinks_and_grows(Shape { placement: Placement::Packed, records: 40_000, value_bytes: 1000, kept_each: 100 });
}

/// So much stays that the deletes themselves do not pay for cleaning it, and there are so many
/// tombstones that the cleaner has begun for their sake.
#[test]
fn space_of_an_idle_log_goes_back() {
    shrinks_and_grows(Shape { placement: Placement::Packed, records: 40_000, value_bytes: 1000, kept_each: 9 });
}
