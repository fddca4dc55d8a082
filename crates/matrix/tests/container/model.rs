//! A container beside a model: snapshots, cursors, columns, room.

use std::collections::BTreeMap;
use std::ops::Bound;

use stratakv_base::random::Random;
use stratakv_base::{Expiry, checksum};
use stratakv_engine::Error;
use stratakv_matrix::container::{Change, Column, ColumnLimits, Container, Flush, Rotation, What};
use stratakv_matrix::cursor::Cursor;
use stratakv_matrix::entry::{Body, Pointer};
use stratakv_sim::pmem::{Domain, Region};

use super::world::{ROW_BYTES, SHARD, UUID, blank};

const KEYS: u64 = 60;

/// Every version that there was, by key and version.
type Versions = BTreeMap<(Vec<u8>, u64), Option<Vec<u8>>>;

struct World<'r> {
    container: Container<&'r Region>,
    all: Versions,
    below: Versions,
    snapshots: Vec<u64>,
    manifest: u64,
    random: Random,
    /// Rows that seeks left out, as they had nothing before the end.
    left_out: usize,
}

fn key(random: &mut Random) -> Vec<u8> {
    let number = random.below(KEYS);
    let middle = if number.is_multiple_of(3) { "" } else { "and-what-they-share" };
    format!("key{}{middle}{number:03}", number % 5).into_bytes()
}

/// The newest version of a key up to another one.
fn newest(versions: &Versions, key: &[u8], at: u64) -> Option<(u64, Option<Vec<u8>>)> {
    let from = Bound::Included((key.to_vec(), 0));
    let found = versions.range((from, Bound::Included((key.to_vec(), at)))).next_back();
    found.map(|((_, version), value)| (*version, value.clone()))
}

impl World<'_> {
    fn append(&mut self) {
        let members = if self.random.below(3) == 0 { 1 + self.random.below(5) } else { 1 };
        let keys: Vec<Vec<u8>> = (0..members).map(|_| key(&mut self.random)).collect();
        let longest = [30, 300, 2500][self.random.below(3) as usize];
        let values: Vec<Vec<u8>> =
            keys.iter().map(|_| vec![self.random.below(256) as u8; self.random.below(longest) as usize]).collect();
        let is_delete: Vec<bool> = keys.iter().map(|_| self.random.below(5) == 0).collect();
        let change = |at: usize| {
            let what = if is_delete[at] { What::Delete } else { What::Put(&values[at]) };
            Change { key: &keys[at], flags: 0, expiry: Expiry::NEVER, what }
        };
        let changes: Vec<Change<'_>> = (0..keys.len()).map(change).collect();
        match self.container.append(&changes, &self.snapshots) {
            Ok(versions) => {
                for (at, version) in versions.enumerate() {
                    let value = (!is_delete[at]).then(|| values[at].clone());
                    self.all.insert((keys[at].clone(), version), value);
                }
            }
            Err(Error::Full(_)) => self.make_room(),
            Err(error) => panic!("{error}"),
        }
    }

    /// What a full container must be able to do.
    fn make_room(&mut self) {
        while self.container.flush_step(10_000).expect("room is kept for rows") != Flush::Idle {}
        self.column(1 << 20);
        self.container.hand_over().expect("handed over");
        self.column(1 << 20);
    }

    fn column(&mut self, low_bytes: u64) {
        let bounds: Vec<Vec<u8>> = self.all.keys().step_by(17).map(|(key, _)| key.clone()).collect();
        let limits = ColumnLimits { low_bytes, high_bytes: low_bytes * 2 };
        let Some(column) = self.container.column(&bounds, limits).expect("a column") else { return };
        let mut records = 0;
        // In steps, as a compaction goes: each begins where the one before ended.
        let mut parts = self.container.column_parts(&column).expect("parts");
        let mut position = Vec::new();
        while !parts.is_empty() {
            let next = key(&mut self.random);
            let next = Some(next).filter(|next| *next > position);
            for mut cursor in self.container.part_cursors(&mut parts, &position).expect("cursors") {
                let is_of_step = |key: &[u8]| next.as_ref().is_none_or(|next| key < &next[..]);
                while let (Some(key), Some(meta)) = (cursor.key().filter(|key| is_of_step(key)), cursor.meta()) {
                    let mut value = Vec::new();
                    cursor.value(&mut value).expect("a value");
                    let value = (meta.body != Body::Delete).then_some(value);
                    assert_eq!(self.all.get(&(key.to_vec(), meta.version)), Some(&value), "in a column");
                    self.below.insert((key.to_vec(), meta.version), value);
                    records += 1;
                    cursor.next().expect("a step");
                }
            }
            let Some(next) = next else { break };
            position = next;
        }
        assert_eq!(records, column.records);
        self.manifest += 1;
        self.container.release(&column, self.manifest).expect("released");
        assert!(self.container.replay(&column.after, 0, self.manifest).is_ok_and(|lacked| !lacked));
    }

    fn reopen(&mut self) {
        self.container.commit().expect("committed");
        let (region, version) = (*self.container.pmem(), self.container.version());
        self.container = Container::open(region, UUID, SHARD, ROW_BYTES).expect("opened").0;
        assert_eq!(self.container.version(), version);
        self.snapshots.clear();
    }

    fn look(&self) {
        for at in self.snapshots.iter().copied().chain([self.container.version()]) {
            for ((key, _), _) in self.all.range(..).step_by(3) {
                let found = self.container.get(key, at).expect("a get");
                let full = self.container.get_without_hints(key, at).expect("a get");
                let version = |found: &Option<stratakv_matrix::container::FoundVersion>| {
                    found.as_ref().map(|found| found.meta.version)
                };
                assert_eq!(version(&found), version(&full));
                let found = match found {
                    Some(found) => {
                        let mut value = Vec::new();
                        self.container.value(&found, &mut value).expect("a value");
                        Some((found.meta.version, (found.meta.body != Body::Delete).then_some(value)))
                    }
                    None => newest(&self.below, key, at),
                };
                assert_eq!(found, newest(&self.all, key, at), "{} at {at}", key.escape_ascii());
            }
        }
    }

    /// Cursors that are sought by hints stand where those do that search, but for some that stand
    /// beyond the end.
    fn seek_by_hints(&mut self) {
        for _ in 0..20 {
            let (key, end, reverse) = (key(&mut self.random), key(&mut self.random), self.random.below(2) == 1);
            let key = (self.random.below(10) > 0).then_some(&key[..]);
            let end = (self.random.below(4) > 0).then_some(&end[..]);
            let mut searched = Vec::new();
            for mut cursor in self.container.cursors() {
                let sought = if reverse { cursor.seek_before(key) } else { cursor.seek(key.unwrap_or_default()) };
                sought.expect("a seek");
                searched.extend(cursor.key().map(<[u8]>::to_vec).zip(cursor.meta()));
            }
            let hinted = self.container.cursors_at(key, end, reverse).expect("a seek");
            let hinted: Vec<_> =
                hinted.iter().filter_map(|cursor| Some((cursor.key()?.to_vec(), cursor.meta()?))).collect();
            let is_beyond = |key: &[u8]| end.is_some_and(|end| if reverse { key < end } else { key >= end });
            let all = searched.len();
            searched.retain(|(key, meta)| !is_beyond(key) || hinted.contains(&(key.clone(), *meta)));
            self.left_out += all - searched.len();
            assert_eq!(hinted, searched);
        }
    }

    /// Every cursor goes over the same records in each direction, from anywhere.
    fn walk(&mut self) {
        for mut cursor in self.container.cursors() {
            let mut list = Vec::new();
            cursor.next().expect("a step");
            while let (Some(key), Some(meta)) = (cursor.key(), cursor.meta()) {
                list.push((key.to_vec(), std::cmp::Reverse(meta.version)));
                cursor.next().expect("a step");
            }
            assert!(list.is_sorted() && !list.is_empty());
            let here = |cursor: &dyn Cursor| Some((cursor.key()?.to_vec(), std::cmp::Reverse(cursor.meta()?.version)));
            let mut at = list.len() + 1;
            for _ in 0..60 {
                let key = key(&mut self.random);
                match self.random.below(8) {
                    0 => {
                        cursor.seek(&key).expect("a seek");
                        at = list.partition_point(|(other, _)| *other < key) + 1;
                    }
                    1 => {
                        cursor.seek_before(Some(&key)).expect("a seek");
                        at = list.partition_point(|(other, _)| *other < key);
                    }
                    2 => {
                        cursor.seek_before(None).expect("a seek");
                        at = list.len();
                    }
                    3..=5 => {
                        cursor.next().expect("a step");
                        at = (at + 1).min(list.len() + 1);
                    }
                    _ => {
                        cursor.prev().expect("a step");
                        at = at.saturating_sub(1);
                    }
                }
                // One more than the index: 0 is before the first.
                let expected = at.checked_sub(1).and_then(|at| list.get(at));
                assert_eq!(here(&cursor).as_ref(), expected, "at {at} of {}", list.len());
                if expected.is_none() && at == 0 {
                    cursor.seek(b"").expect("a seek");
                    at = 1;
                } else if expected.is_none() {
                    cursor.seek_before(None).expect("a seek");
                    at = list.len();
                }
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..=1 => drop(self.container.seal(&self.snapshots)),
            2..=5 => drop(self.container.flush_step([1, 500, 1 << 20][self.random.below(3) as usize])),
            6 => drop(self.container.hand_over().expect("handed over")),
            7..=8 => {
                let low = 1 + self.random.below(6000);
                self.column(low);
            }
            9..=10 => drop(self.container.commit().expect("committed")),
            11 => self.snapshots.push(self.container.version()),
            12 if !self.snapshots.is_empty() => {
                let closed = self.random.below(self.snapshots.len() as u64) as usize;
                self.snapshots.remove(closed);
            }
            13 if self.random.below(4) == 0 => self.reopen(),
            _ => self.append(),
        }
    }
}

#[test]
fn a_container_is_as_its_model_is() {
    for seed in 0..12 {
        let region = Region::open(blank(60), Domain::Adr);
        let container = Container::open(&region, UUID, SHARD, ROW_BYTES).expect("opened").0;
        let (all, below) = (Versions::new(), Versions::new());
        let (snapshots, random) = (Vec::new(), Random::new(seed));
        let mut world = World { container, all, below, snapshots, manifest: 0, random, left_out: 0 };
        for step in 0..1_200 {
            world.step();
            if step % 60 == 59 {
                world.container.check().unwrap_or_else(|why| panic!("seed {seed}, step {step}: {why}"));
                world.look();
                world.walk();
                world.seek_by_hints();
            }
        }
        assert!(world.container.rotation().compactor > 3, "seed {seed}: {:?}", world.container.statistics());
        assert!(world.left_out > 100, "seed {seed}: {} rows", world.left_out);
    }
}

fn change(value: &[u8]) -> Change<'_> {
    Change { key: b"key1", flags: 0, expiry: Expiry::NEVER, what: What::Put(value) }
}

/// A batch longer than a unit, values at every length around what a unit holds; and one byte more.
#[test]
fn records_as_long_as_a_unit_fit_and_longer_ones_are_refused() {
    let region = Region::open(blank(40), Domain::Adr);
    let mut container = Container::open(&region, UUID, SHARD, ROW_BYTES).expect("opened").0;
    let most = container.record_bytes_max() as usize - 36 - 4;
    for bytes in (most - 20..=most).chain(1000..1040) {
        let value: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        match container.append(&[change(&value)], &[]) {
            Err(Error::Full(_)) => {
                container.seal(&[]).expect("sealed");
                while container.flush_step(1 << 20).expect("flushed") != Flush::Idle {}
                container.hand_over().expect("handed over");
                let limits = ColumnLimits { low_bytes: 1 << 20, high_bytes: 1 << 21 };
                let column = container.column::<Vec<u8>>(&[], limits).expect("a column").expect("there is one");
                container.release(&column, 1).expect("released");
                container.append(&[change(&value)], &[]).expect("appended");
            }
            other => drop(other.expect("appended")),
        }
        let found = container.get(b"key1", u64::MAX).expect("a get").expect("it is there");
        let mut read = Vec::new();
        container.value(&found, &mut read).expect("a value");
        assert_eq!(read, value);
    }
    let value = vec![0; most + 1];
    assert!(matches!(container.append(&[change(&value)], &[]), Err(Error::ValueTooLarge { max_bytes: 4032, .. })));
    assert!(matches!(container.append(&[], &[]), Err(Error::BadBatch(_))));
    let empty = Change { key: b"", ..change(b"v") };
    assert!(matches!(container.append(&[change(b"v"), empty], &[]), Err(Error::Key(_))));
    let long = vec![1; container.key_bytes_max() + 1];
    assert!(matches!(container.append(&[Change { key: &long, ..change(b"v") }], &[]), Err(Error::Key(_))));
    let longest = vec![1; container.key_bytes_max()];
    let pointer = Pointer { file: 1, offset: 2, value_bytes: u32::MAX, checksum: checksum::crc32c(0, b"v") };
    container
        .append(&[Change { key: &longest, flags: 7, expiry: Expiry(9), what: What::Blob(pointer) }], &[])
        .expect("it fits");
    let found = container.get(&longest, u64::MAX).expect("a get").expect("it is there");
    assert_eq!((found.meta.body, found.meta.flags, found.meta.expiry), (Body::Blob(pointer), 7, Expiry(9)));
}

/// Overwriting a key without snapshots keeps one entry in the index, whatever the log holds.
#[test]
fn overwrites_without_snapshots_do_not_grow_the_index() {
    let region = Region::open(blank(200), Domain::Adr);
    let mut container = Container::open(&region, UUID, SHARD, 1 << 20).expect("opened").0;
    let put = |container: &mut Container<&Region>, retain: &[u64]| {
        let change = Change { key: b"key1", flags: 0, expiry: Expiry::NEVER, what: What::Put(b"value") };
        container.append(&[change], retain).expect("appended");
    };
    put(&mut container, &[]);
    let before = container.statistics().index_bytes;
    (0..2000).for_each(|_| put(&mut container, &[]));
    assert_eq!(container.statistics().index_bytes, before);
    (0..2000).for_each(|_| put(&mut container, &[1]));
    let seen = container.get(b"key1", 1).expect("a get");
    assert!(seen.is_none(), "1 was overwritten before the snapshot was");
    let kept = container.version();
    (0..2000).for_each(|_| put(&mut container, &[kept]));
    assert_eq!(container.get(b"key1", kept).expect("a get").map(|found| found.meta.version), Some(kept));
    assert!(container.statistics().index_bytes < before + 500);
}

/// A container that has handed over four rows of 200 keys with values of 60 bytes; the first key
/// has one of 3,000.
fn handed_over(region: &Region) -> Container<&Region> {
    let mut container = Container::open(region, UUID, SHARD, ROW_BYTES).expect("opened").0;
    for row in 0..4u64 {
        for number in 0..200u64 {
            let key = format!("key{number:04}");
            let value = vec![row as u8; if number == 0 { 3_000 } else { 60 }];
            let change = Change { key: key.as_bytes(), flags: 0, expiry: Expiry::NEVER, what: What::Put(&value) };
            container.append(&[change], &[]).expect("appended");
        }
        container.seal(&[]).expect("sealed");
        while container.flush_step(3_000).expect("flushed") != Flush::Idle {}
    }
    container.hand_over().expect("handed over");
    container
}

/// All columns, one after the other; each is checked.
fn columns(container: &mut Container<&Region>, bounds: &[String], limits: ColumnLimits, check: impl Fn(u64, &Column)) {
    let (mut columns, mut records, mut from) = (0, 0, Vec::new());
    while let Some(column) = container.column(bounds, limits).expect("a column") {
        assert_eq!(column.from, from);
        assert_eq!(column.records % 4, 0, "whole keys");
        check(columns, &column);
        from = column.end.clone().unwrap_or_default();
        (columns, records) = (columns + 1, records + column.records);
        container.release(&column, columns).expect("released");
        assert!(container.release(&column, columns).is_err(), "twice");
    }
    assert_eq!(records, 800);
    assert_eq!(container.statistics().rows_compactor, 0);
    assert_eq!(container.statistics().units_free, 200);
    assert_eq!(container.rotation(), &Rotation { compactor: 1, ..Rotation::default() });
}

/// A column is whole ranges of the bounds where that keeps to the limits.
#[test]
fn columns_end_at_bounds() {
    let region = Region::open(blank(200), Domain::Adr);
    let mut container = handed_over(&region);
    let bounds: Vec<String> = (0..200).step_by(13).map(|number| format!("key{number:04}")).collect();
    let limits = ColumnLimits { low_bytes: 9_000, high_bytes: 30_000 };
    columns(&mut container, &bounds, limits, |_, column| {
        assert!(column.bytes <= limits.high_bytes, "{column:?}");
        assert!(column.bytes >= limits.low_bytes || column.end.is_none(), "{column:?}");
        let is_bound = |end: &Vec<u8>| bounds.iter().any(|bound| bound.as_bytes() == end);
        assert!(column.end.as_ref().is_none_or(is_bound), "{column:?}");
    });
}

/// A range that is too long is cut at a key; a key that is too much alone is a column.
#[test]
fn ranges_that_are_too_long_are_cut_at_whole_keys() {
    let region = Region::open(blank(200), Domain::Adr);
    let mut container = handed_over(&region);
    let limits = ColumnLimits { low_bytes: 4_000, high_bytes: 6_000 };
    columns(&mut container, &[], limits, |at, column| {
        assert_eq!(at == 0, column.bytes > limits.high_bytes, "{column:?}");
        assert_eq!(at == 0, column.records == 4, "{column:?}");
        assert!(column.bytes >= limits.low_bytes || column.end.is_none(), "{column:?}");
    });
}

/// After a crash what three memtables held is one, and its row is as long as theirs together: there
/// was no room for it, and never would be.
#[test]
fn a_container_that_is_opened_full_can_be_flushed() {
    for value_bytes in [8, 300, 1500, 3000] {
        let region = Region::open(blank(60), Domain::Adr);
        let mut container = Container::open(&region, UUID, SHARD, ROW_BYTES).expect("opened").0;
        let value = vec![1; value_bytes];
        let (mut number, mut refused) = (0u64, 0);
        while refused < 3 {
            number += 1;
            let key = format!("key{:08}", number.wrapping_mul(0x9E37_79B1) % 100_000_000);
            let change = Change { key: key.as_bytes(), flags: 0, expiry: Expiry::NEVER, what: What::Put(&value) };
            match container.append(&[change], &[]) {
                Ok(_) if [52, 45].contains(&container.units_free().0) => {
                    let _ = container.seal(&[]);
                }
                Ok(_) => {}
                Err(Error::Full(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(container.statistics().memtables == 3, "{value_bytes}: {:?}", container.statistics());
        container.commit().expect("committed");
        drop(container);
        let mut container = Container::open(&region, UUID, SHARD, ROW_BYTES).expect("opened").0;
        container.seal(&[]).expect("sealed");
        while container.flush_step(10_000).expect("there is room") != Flush::Idle {}
        container.check().expect("right");
    }
}
