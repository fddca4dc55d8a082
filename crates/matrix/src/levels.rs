//! The tables of the levels below L0, and the files of values that they point to.

use std::ops::Range;
use std::sync::Arc;

use foldhash::HashMap;

use crate::entry::Pointer;
use crate::volume::{Extent, LevelTable, Manifest, ValueFile};

/// The levels below L0: first PMEM levels, if there are any, then those of the volume.
/// Within a level tables are in the order of keys, and no two hold the same key.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    levels: Vec<Vec<Arc<LevelTable>>>,
    by_file: HashMap<u64, Arc<LevelTable>>,
    values: HashMap<u64, ValueFile>,
    /// Pages of each level's tables, and bytes of memory: sums that are asked for in each tick.
    pages: Vec<u64>,
    /// Pages of each level's data, and versions in all of them.
    data_pages: Vec<u64>,
    entries: u64,
    footprint_bytes: usize,
    /// Bytes of all values in files, and of those that are alive.
    value_bytes: u64,
    live_bytes: u64,
}

/// What a compaction changes.
#[derive(Debug, Default)]
pub struct Change {
    /// Tables that go, by file.
    pub removed: Vec<u64>,
    /// Tables that come, and the level of each (0 is the first one below L0).
    pub added: Vec<(usize, LevelTable)>,
    /// Files of values that come.
    pub values: Vec<ValueFile>,
    /// Bytes of values that no entry points to any more, by file.
    pub dropped: HashMap<u64, u64>,
    /// Files that are unreferenced no more: an entry of a table points to them.
    pub referenced: Vec<u64>,
}

impl Levels {
    /// Those of a manifest.
    pub fn new(manifest: &Manifest) -> Levels {
        let mut levels = Levels::default();
        levels.levels = manifest.levels.iter().map(|level| level.iter().cloned().map(Arc::new).collect()).collect();
        levels.by_file = levels.levels.iter().flatten().map(|table| (table.facts.file, Arc::clone(table))).collect();
        levels.values = manifest.values.iter().map(|values| (values.file, values.clone())).collect();
        levels.add_up();
        levels
    }

    fn add_up(&mut self) {
        let pages = |level: &Vec<Arc<LevelTable>>| level.iter().map(|table| u64::from(table.facts.pages)).sum();
        self.pages = self.levels.iter().map(pages).collect();
        let data_pages =
            |level: &Vec<Arc<LevelTable>>| level.iter().map(|table| u64::from(table.facts.data_pages)).sum();
        self.data_pages = self.levels.iter().map(data_pages).collect();
        self.entries = self.levels.iter().flatten().map(|table| table.facts.entries).sum();
        self.footprint_bytes = self.sum_footprint();
        self.value_bytes = self.values.values().map(|values| values.bytes).sum();
        self.live_bytes = self.values.values().map(|values| values.live_bytes).sum();
    }

    /// Writes them into a manifest.
    pub fn describe(&self, manifest: &mut Manifest) {
        manifest.levels =
            self.levels.iter().map(|level| level.iter().map(|table| (**table).clone()).collect()).collect();
        manifest.values = self.values.values().cloned().collect();
        manifest.values.sort_by_key(|values| values.file);
    }

    /// How many levels there are.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The tables of a level, in order of keys; none if there is no such level.
    pub fn level(&self, level: usize) -> &[Arc<LevelTable>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// Pages of a level's tables.
    pub fn pages(&self, level: usize) -> u64 {
        self.pages.get(level).copied().unwrap_or(0)
    }

    /// The table of a level that would hold `key`. O(log tables).
    pub fn table_for(&self, level: usize, key: &[u8]) -> Option<&Arc<LevelTable>> {
        let tables = self.level(level);
        let at = tables.partition_point(|table| &table.facts.last_key[..] < key);
        tables.get(at).filter(|table| &table.facts.first_key[..] <= key)
    }

    /// The tables of a level that have keys at or after `from` and before `to` (`None`: up to the
    /// end).
    pub fn overlapping(&self, level: usize, from: &[u8], to: Option<&[u8]>) -> Range<usize> {
        let tables = self.level(level);
        let start = tables.partition_point(|table| &table.facts.last_key[..] < from);
        let end = to.map_or(tables.len(), |to| tables.partition_point(|table| &table.facts.first_key[..] < to));
        start..end.max(start)
    }

    /// Whether a level under this one has a table with keys at or after `from` and up to `last`.
    pub fn lies_above(&self, level: usize, from: &[u8], last: &[u8]) -> bool {
        (level + 1..self.depth()).any(|below| {
            let tables = &self.level(below)[self.overlapping(below, from, None)];
            tables.first().is_some_and(|table| &table.facts.first_key[..] <= last)
        })
    }

    /// About how many pages of a level's data hold its part of so many versions that follow each
    /// other, in quarters of a page.
    pub fn quarter_pages_of(&self, level: usize, versions: u64) -> u64 {
        let pages = self.data_pages.get(level).copied().unwrap_or(0);
        versions.saturating_mul(pages).saturating_mul(4) / self.entries.max(1)
    }

    /// A table.
    pub fn table(&self, file: u64) -> Option<&LevelTable> {
        self.by_file.get(&file).map(AsRef::as_ref)
    }

    /// Where a page of a table lies on the volume.
    pub fn locate(&self, file: u64, ordinal: u32) -> Option<u64> {
        Extent::locate(&self.table(file)?.extents, ordinal)
    }

    /// A file of values.
    pub fn values(&self, file: u64) -> Option<&ValueFile> {
        self.values.get(&file)
    }

    /// Bytes of all values in files, and of those that are alive.
    pub fn value_sums(&self) -> (u64, u64) {
        (self.value_bytes, self.live_bytes)
    }

    /// All files of values.
    pub fn value_files(&self) -> impl Iterator<Item = &ValueFile> {
        self.values.values()
    }

    /// Where the pages of a value lie.
    pub fn locate_value(&self, pointer: Pointer, ordinal: u32) -> Option<u64> {
        Extent::locate(&self.values.get(&pointer.file)?.extents, ordinal)
    }

    /// Carries a change out. What it gives back is free once the change is durable.
    pub fn apply(&mut self, change: Change) -> Vec<Extent> {
        let mut free = Vec::new();
        for file in change.removed {
            if let Some(table) = self.by_file.remove(&file) {
                free.extend_from_slice(&table.extents);
            }
        }
        let by_file = &self.by_file;
        for level in &mut self.levels {
            level.retain(|table| by_file.contains_key(&table.facts.file));
        }
        for (level, table) in change.added {
            if self.levels.len() <= level {
                self.levels.resize_with(level + 1, Vec::new);
            }
            let table = Arc::new(table);
            let at = self.levels[level].partition_point(|other| other.facts.first_key < table.facts.first_key);
            self.levels[level].insert(at, Arc::clone(&table));
            self.by_file.insert(table.facts.file, table);
        }
        self.values.extend(change.values.into_iter().map(|values| (values.file, values)));
        for file in change.referenced {
            if let Some(values) = self.values.get_mut(&file) {
                values.unreferenced = false;
            }
        }
        for (file, bytes) in change.dropped {
            let Some(values) = self.values.get_mut(&file) else { continue };
            values.live_bytes = values.live_bytes.saturating_sub(bytes);
            if values.live_bytes == 0 {
                free.extend(self.values.remove(&file).into_iter().flat_map(|values| values.extents));
            }
        }
        self.add_up();
        free
    }

    /// Whether a table has pages in the PMEM levels. O(tables).
    pub fn have_pmem_levels(&self) -> bool {
        self.by_file.values().any(|table| table.extents.iter().any(|extent| extent.in_pmem_levels()))
    }

    /// Whether a table has compressed pages. O(tables).
    pub fn have_compressed(&self) -> bool {
        self.by_file.values().any(|table| table.facts.is_compressed())
    }

    /// Extents of these that the others do not have.
    pub fn extents_not_in(&self, others: &Levels) -> Vec<Extent> {
        let tables = self.by_file.values().filter(|table| !others.by_file.contains_key(&table.facts.file));
        let values = self.values.values().filter(|values| !others.values.contains_key(&values.file));
        tables.flat_map(|table| &table.extents).chain(values.flat_map(|values| &values.extents)).copied().collect()
    }

    /// Bytes of memory.
    pub fn footprint_bytes(&self) -> usize {
        self.footprint_bytes
    }

    fn sum_footprint(&self) -> usize {
        let table = |table: &Arc<LevelTable>| {
            size_of::<LevelTable>()
                + 80
                + table.facts.first_key.len()
                + table.facts.last_key.len()
                + table.extents.len() * size_of::<Extent>()
        };
        let values =
            self.values.values().map(|values| size_of::<ValueFile>() + 24 + values.extents.len() * size_of::<Extent>());
        self.levels.iter().flatten().map(table).sum::<usize>() + values.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TableFacts;

    fn table(file: u64, first: &str, last: &str) -> LevelTable {
        let facts = TableFacts {
            file,
            entries: 2,
            pages: 2,
            plain_pages: 2,
            data_pages: 1,
            root: 0,
            index_levels: 0,
            filter_pages: 1,
            lowest_version: 1,
            highest_version: 2,
            first_key: first.as_bytes().into(),
            last_key: last.as_bytes().into(),
            deletes: 0,
            blob: Vec::new(),
        };
        LevelTable { facts, extents: vec![Extent { page: 10 * file, pages: 2 }], clean_version: 0 }
    }

    fn sample() -> Levels {
        let mut levels = Levels::default();
        let added =
            vec![(0, table(1, "b", "d")), (1, table(4, "a", "z")), (0, table(3, "m", "p")), (0, table(2, "f", "h"))];
        levels.apply(Change { added, ..Change::default() });
        levels
    }

    #[test]
    fn tables_are_found_by_key() {
        let levels = sample();
        let found = |key: &str| levels.table_for(0, key.as_bytes()).map(|table| table.facts.file);
        assert_eq!(
            ["a", "b", "c", "d", "e", "g", "h", "i", "p", "q"].map(found),
            [None, Some(1), Some(1), Some(1), None, Some(2), Some(2), None, Some(3), None]
        );
        let overlapping = |from: &str, to: Option<&str>| levels.overlapping(0, from.as_bytes(), to.map(str::as_bytes));
        assert_eq!(overlapping("a", Some("b")), 0..0);
        assert_eq!(overlapping("a", Some("c")), 0..1);
        assert_eq!(overlapping("d", Some("m")), 0..2);
        assert_eq!(overlapping("e", Some("f")), 1..1);
        assert_eq!(overlapping("h", None), 1..3);
        assert!(levels.lies_above(0, b"b", b"c") && !levels.lies_above(1, b"b", b"c"));
        assert!(!levels.lies_above(0, b"zz", b"zzz"));
    }

    #[test]
    fn values_go_when_nothing_points_to_them() {
        let mut levels = sample();
        let values = vec![ValueFile {
            file: 9,
            extents: vec![Extent { page: 500, pages: 8 }],
            bytes: 100,
            live_bytes: 100,
            unreferenced: false,
        }];
        levels.apply(Change { values, ..Change::default() });
        let drop = |levels: &mut Levels, bytes| {
            levels.apply(Change { dropped: [(9, bytes)].into_iter().collect(), ..Change::default() })
        };
        assert_eq!(drop(&mut levels, 60), []);
        assert_eq!(drop(&mut levels, 40), [Extent { page: 500, pages: 8 }]);
        assert!(levels.values(9).is_none());
        let free = levels.apply(Change { removed: vec![2], ..Change::default() });
        assert_eq!(free, [Extent { page: 20, pages: 2 }]);
        assert_eq!(levels.level(0).len(), 2);
        let mut manifest = Manifest::default();
        levels.describe(&mut manifest);
        assert_eq!(Levels::new(&manifest).locate(3, 1), Some(31));
    }
}
