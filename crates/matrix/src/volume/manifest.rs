//! The manifest: which tables and value files there are, and where. Written whole with each change.

use std::collections::{BTreeMap, HashSet};

use stratakv_base::codec::{Reader, Truncated};

use super::extents::Extent;
use super::places::PMEM_LEVELS_FIRST;
use super::superblock::PAGES_MAX;
use crate::container::{NUMBERS_END, Rotation};
use crate::ranges::RangeDelete;
use crate::table::TableFacts;

/// All that a volume holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Grows by one with each manifest.
    pub number: u64,
    /// The number that the next file gets: no file has it or had it.
    pub next_file: u64,
    /// Number of the newest directory of the region when this was written.
    pub directory: u64,
    /// How far the columns are down.
    pub rotation: Rotation,
    /// The tables of the first level below L0, then those of the next one and so on, each level in
    /// the order of keys.
    pub levels: Vec<Vec<LevelTable>>,
    /// Values apart from their keys.
    pub values: Vec<ValueFile>,
    /// Bytes that tables have only for snapshots, by file: none of these outlives the process.
    pub kept: Vec<(u64, u64)>,
    /// Deletes of ranges that hide something in tables or rows, perhaps.
    pub ranges: Vec<RangeDelete>,
}

/// One table of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelTable {
    /// What its builder said of it.
    pub facts: TableFacts,
    /// Where its pages lie, one after the other.
    pub extents: Vec<Extent>,
    /// Of what deletes of ranges up to this version hide it has nothing.
    pub clean_version: u64,
}

impl LevelTable {
    /// Whether a page of it lies in the PMEM levels: it is lost with the region.
    pub fn lies_in_pmem_levels(&self) -> bool {
        self.extents.iter().any(|extent| extent.in_pmem_levels())
    }
}

/// One file of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueFile {
    /// Its number.
    pub file: u64,
    /// Where its pages lie.
    pub extents: Vec<Extent>,
    /// Bytes of all its values.
    pub bytes: u64,
    /// Bytes of those that an entry points to.
    pub live_bytes: u64,
    /// One value, which was written before the record of the log that points to it: if there is
    /// none after a crash, the file is nobody's.
    pub unreferenced: bool,
}

impl ValueFile {
    /// Whether less than so many of a hundred bytes are alive.
    pub(crate) fn is_poor(&self, percent: u64) -> bool {
        self.live_bytes.saturating_mul(100) < self.bytes.saturating_mul(percent)
    }
}

/// Bytes that are no manifest: a field that ends too early, or a number that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the manifest makes no sense at byte {at}")]
pub struct Malformed {
    /// Where.
    pub at: usize,
}

impl From<Truncated> for Malformed {
    fn from(truncated: Truncated) -> Malformed {
        Malformed { at: truncated.at }
    }
}

impl Manifest {
    /// The bytes to write.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + 100 * self.levels.iter().map(Vec::len).sum::<usize>());
        for number in [self.number, self.next_file, self.directory, self.rotation.compactor] {
            put(&mut out, number);
        }
        put(&mut out, u64::from(self.rotation.begun) | u64::from(self.rotation.wrapped) << 1);
        put_bytes(&mut out, &self.rotation.start);
        put_bytes(&mut out, &self.rotation.cursor);
        put(&mut out, self.levels.len() as u64);
        for level in &self.levels {
            put(&mut out, level.len() as u64);
            level.iter().for_each(|table| put_table(&mut out, table));
        }
        put(&mut out, self.values.len() as u64);
        for values in &self.values {
            put(&mut out, values.file);
            put_extents(&mut out, &values.extents);
            put(&mut out, values.bytes);
            put(&mut out, values.live_bytes);
            put(&mut out, u64::from(values.unreferenced));
        }
        put_pairs(&mut out, &self.kept);
        self.put_later(&mut out);
        out
    }

    /// What versions 4 and 5 have besides; nothing while there are neither deletes of ranges nor
    /// compressed tables.
    fn put_later(&self, out: &mut Vec<u8>) {
        let compressed = self.levels.iter().flatten().map(|table| &table.facts).filter(|facts| facts.is_compressed());
        let compressed: Vec<_> = compressed.map(|facts| (facts.file, u64::from(facts.plain_pages))).collect();
        if !self.ranges.is_empty() || !compressed.is_empty() {
            self.put_ranges(out);
        }
        if !compressed.is_empty() {
            put_pairs(out, &compressed);
        }
    }

    fn get_compressed(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let compressed: BTreeMap<u64, u64> = get_pairs(reader)?.into_iter().collect();
        for table in self.levels.iter_mut().flatten() {
            let pages = compressed.get(&table.facts.file).and_then(|pages| u32::try_from(*pages).ok());
            table.facts.plain_pages = pages.unwrap_or(0).max(table.facts.pages);
        }
        Ok(())
    }

    /// Reads one back. What follows it is not looked at.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Manifest, Malformed> {
        let mut reader = Reader::new(bytes);
        let reader = &mut reader;
        let mut manifest =
            Manifest { number: get(reader)?, next_file: get(reader)?, directory: get(reader)?, ..Manifest::default() };
        let (compactor, flags) = (get(reader)?, get(reader)?);
        let (start, cursor) = (get_bytes(reader)?, get_bytes(reader)?);
        manifest.rotation = Rotation { compactor, start, cursor, begun: flags & 1 != 0, wrapped: flags & 2 != 0 };
        for _ in 0..get(reader)? {
            let mut level = Vec::new();
            for _ in 0..get(reader)? {
                level.push(get_table(reader)?);
            }
            manifest.levels.push(level);
        }
        for _ in 0..get(reader)? {
            let (file, extents) = (get(reader)?, get_extents(reader)?);
            let (bytes, live_bytes, unreferenced) = (get(reader)?, get(reader)?, get(reader)? != 0);
            manifest.values.push(ValueFile { file, extents, bytes, live_bytes, unreferenced });
        }
        // In version 1 nothing follows but zeros, up to the end of a page.
        if reader.at() < bytes.len() {
            manifest.kept = get_pairs(reader)?;
        }
        // Before version 4 the same.
        if reader.at() < bytes.len() {
            manifest.get_ranges(reader)?;
        }
        // Before version 5 the same.
        if reader.at() < bytes.len() {
            manifest.get_compressed(reader)?;
        }
        Ok(manifest)
    }

    /// Why no shard has written this, if none has: numbers from which nothing counts on, sums that
    /// would not end, tables that are not in order.
    pub(crate) fn complaint(&self) -> Option<&'static str> {
        let counted = [self.number, self.next_file, self.directory, self.rotation.compactor];
        if counted.into_iter().any(|number| number >= NUMBERS_END) {
            return Some("numbers at their end");
        }
        let tables = || self.levels.iter().flatten();
        let mut files = HashSet::new();
        let mut is_new = |file: u64| file < self.next_file && files.insert(file);
        if !tables().all(|table| is_new(table.facts.file)) || !self.values.iter().all(|values| is_new(values.file)) {
            return Some("a file twice, or of a number to come");
        }
        let bytes_of = |extents: &[Extent]| extents.iter().map(|extent| u128::from(extent.pages)).sum::<u128>() << 12;
        let has_room = |table: &LevelTable| {
            let TableFacts { pages, plain_pages, data_pages, filter_pages, entries, deletes, .. } = table.facts;
            bytes_of(&table.extents) == u128::from(pages) << 12
                && u64::from(data_pages) + u64::from(filter_pages) <= pages.into()
                && entries <= u64::from(plain_pages) << 12
                && deletes <= entries
                && table.facts.blob.iter().all(|(_, bytes)| *bytes < PAGES_MAX)
        };
        let values_have_room =
            |values: &ValueFile| u128::from(values.bytes.max(values.live_bytes)) <= bytes_of(&values.extents);
        let kept_have_room = self.kept.iter().all(|(_, bytes)| *bytes < 1 << 40);
        if !tables().all(has_room) || !self.values.iter().all(values_have_room) || !kept_have_room {
            return Some("a file with more than it has room for");
        }
        let is_table = |table: &LevelTable| table.facts.first_key <= table.facts.last_key;
        let in_order = |pair: &[LevelTable]| pair[0].facts.last_key < pair[1].facts.first_key;
        let are_in_order = self.levels.iter().all(|level| level.windows(2).all(in_order)) && tables().all(is_table);
        (!are_in_order).then_some("tables that are not in order")
    }

    fn put_ranges(&self, out: &mut Vec<u8>) {
        put(out, self.ranges.len() as u64);
        for range in &self.ranges {
            put_bytes(out, &range.from);
            put_bytes(out, &range.to);
            put(out, range.version);
        }
        let is_clean = |table: &&LevelTable| table.clean_version > 0 && !self.ranges.is_empty();
        let tables = self.levels.iter().flatten().filter(is_clean);
        let clean = tables.map(|table| (table.facts.file, table.clean_version));
        put_pairs(out, &clean.collect::<Vec<_>>());
    }

    fn get_ranges(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        for _ in 0..get(reader)? {
            let (from, to) = (get_bytes(reader)?.into(), get_bytes(reader)?.into());
            self.ranges.push(RangeDelete { from, to, version: get(reader)? });
        }
        // One zero up to the end of the page: nothing was written here.
        if self.ranges.is_empty() && reader.left() == 0 {
            return Ok(());
        }
        let clean: BTreeMap<u64, u64> = get_pairs(reader)?.into_iter().collect();
        for table in self.levels.iter_mut().flatten() {
            table.clean_version = clean.get(&table.facts.file).copied().unwrap_or_default();
        }
        Ok(())
    }

    /// Takes out the tables that are lost, and what they have alive in value files: a file of which
    /// nothing else is alive goes with them. They come back, from the top down, each with its level
    /// (0 is the first one below L0).
    pub fn drop_tables(&mut self, is_lost: impl Fn(&LevelTable) -> bool) -> Vec<(usize, LevelTable)> {
        let levels = self.levels.iter_mut().enumerate();
        let lost = levels.flat_map(|(at, level)| {
            let lost = level.extract_if(.., |table| is_lost(table));
            lost.map(|table| (at, table)).collect::<Vec<_>>()
        });
        let lost: Vec<(usize, LevelTable)> = lost.collect();
        for (file, bytes) in lost.iter().flat_map(|(_, table)| &table.facts.blob) {
            if let Some(values) = self.values.iter_mut().find(|values| values.file == *file) {
                values.live_bytes = values.live_bytes.saturating_sub(*bytes);
            }
        }
        self.values.retain(|values| values.live_bytes > 0);
        self.kept.retain(|(file, _)| !lost.iter().any(|(_, table)| table.facts.file == *file));
        lost
    }

    /// How many tables it names.
    pub fn tables(&self) -> usize {
        self.levels.iter().map(Vec::len).sum()
    }

    /// Every extent that it names.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        let tables = self.levels.iter().flatten().flat_map(|table| &table.extents);
        tables.chain(self.values.iter().flat_map(|values| &values.extents)).copied()
    }
}

fn put_table(out: &mut Vec<u8>, table: &LevelTable) {
    let facts = &table.facts;
    put(out, facts.file);
    put_extents(out, &table.extents);
    put(out, facts.entries);
    for number in [facts.pages, facts.data_pages, facts.root, u32::from(facts.index_levels), facts.filter_pages] {
        put(out, u64::from(number));
    }
    put(out, facts.lowest_version);
    put(out, facts.highest_version);
    put_bytes(out, &facts.first_key);
    put_bytes(out, &facts.last_key);
    put(out, facts.deletes);
    put_pairs(out, &facts.blob);
}

fn put_pairs(out: &mut Vec<u8>, pairs: &[(u64, u64)]) {
    put(out, pairs.len() as u64);
    for (file, bytes) in pairs {
        put(out, *file);
        put(out, *bytes);
    }
}

fn get_table(reader: &mut Reader<'_>) -> Result<LevelTable, Malformed> {
    let (file, extents) = (get(reader)?, get_extents(reader)?);
    let (entries, pages) = (get(reader)?, get_u32(reader)?);
    let facts = TableFacts {
        file,
        entries,
        pages,
        plain_pages: pages,
        data_pages: get_u32(reader)?,
        root: get_u32(reader)?,
        index_levels: get_u32(reader)?.min(255) as u8,
        filter_pages: get_u32(reader)?,
        lowest_version: get(reader)?,
        highest_version: get(reader)?,
        first_key: get_bytes(reader)?.into(),
        last_key: get_bytes(reader)?.into(),
        deletes: get(reader)?,
        blob: get_pairs(reader)?,
    };
    Ok(LevelTable { facts, extents, clean_version: 0 })
}

fn get_pairs(reader: &mut Reader<'_>) -> Result<Vec<(u64, u64)>, Malformed> {
    let mut pairs = Vec::new();
    for _ in 0..get(reader)? {
        pairs.push((get(reader)?, get(reader)?));
    }
    Ok(pairs)
}

fn put_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    put(out, extents.len() as u64);
    for extent in extents {
        put(out, extent.page);
        put(out, u64::from(extent.pages));
    }
}

fn get_extents(reader: &mut Reader<'_>) -> Result<Vec<Extent>, Malformed> {
    let mut extents = Vec::new();
    for _ in 0..get(reader)? {
        let at = reader.at();
        let extent = Extent { page: get(reader)?, pages: get_u32(reader)? };
        if extent.pages == 0 || extent.page >= PMEM_LEVELS_FIRST + PAGES_MAX {
            return Err(Malformed { at });
        }
        extents.push(extent);
    }
    Ok(extents)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn get_bytes(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let at = reader.at();
    let len = usize::try_from(get(reader)?).map_err(|_| Malformed { at })?;
    Ok(reader.bytes(len)?.to_vec())
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn get_u32(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let at = reader.at();
    u32::try_from(get(reader)?).map_err(|_| Malformed { at })
}

fn get(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let (at, mut number) = (reader.at(), 0);
    for shift in (0..64).step_by(7) {
        let byte = reader.u8()?;
        let part = u64::from(byte & 0x7F);
        number |= part << shift;
        if byte < 0x80 {
            return if part << shift >> shift == part { Ok(number) } else { Err(Malformed { at }) };
        }
    }
    Err(Malformed { at })
}

#[cfg(test)]
mod tests {
    use stratakv_base::checksum::crc32c;
    use stratakv_base::random::Random;

    use super::*;

    /// A manifest that ended one byte before the end of a page, one in 4096, was not read: the zero
    /// that fills the page was taken for the number of deletes of ranges, and the next one was
    /// missing. The store did not open.
    #[test]
    fn a_manifest_may_end_anywhere_in_a_page() {
        let mut sample = Manifest { ranges: Vec::new(), ..sample() };
        sample.levels.iter_mut().flatten().for_each(|table| table.clean_version = 0);
        for bytes in 0..4200 {
            sample.rotation.cursor = vec![7; bytes];
            let mut page = sample.encode();
            page.resize(page.len().next_multiple_of(4096), 0);
            assert_eq!(Manifest::decode(&page).as_ref(), Ok(&sample), "a cursor of {bytes} bytes");
        }
    }

    fn sample() -> Manifest {
        let facts = |file: u64| TableFacts {
            file,
            entries: 1000,
            pages: 8,
            plain_pages: 8,
            data_pages: 6,
            root: 6,
            index_levels: 1,
            filter_pages: 1,
            lowest_version: 5,
            highest_version: u64::MAX,
            first_key: vec![0; 3].into(),
            last_key: vec![0xFF; 300].into(),
            deletes: 3,
            blob: vec![(4, 7), (1 << 40, 6)],
        };
        let table = |file: u64| LevelTable {
            facts: facts(file),
            extents: vec![Extent { page: 100 * file, pages: 7 }, Extent { page: 1 << 40, pages: 1 }],
            clean_version: 0,
        };
        let rotation =
            Rotation { compactor: 3, start: b"start".into(), cursor: b"cursor".into(), begun: true, wrapped: false };
        Manifest {
            number: 9,
            next_file: 12,
            directory: 44,
            rotation,
            levels: vec![vec![table(1), table(2)], vec![], vec![table(3)]],
            values: vec![ValueFile {
                file: 4,
                extents: vec![Extent { page: 5, pages: 6 }],
                bytes: 7,
                live_bytes: 6,
                unreferenced: true,
            }],
            kept: vec![(3, 900)],
            ranges: Vec::new(),
        }
    }

    #[test]
    fn what_no_shard_has_written_is_refused() {
        let mut whole = sample();
        whole.levels = vec![vec![whole.levels[0][0].clone()], vec![], whole.levels[2].clone()];
        assert_eq!(whole.complaint(), None);
        let refused = |change: fn(&mut Manifest)| {
            let mut manifest = whole.clone();
            change(&mut manifest);
            manifest.complaint().is_some()
        };
        assert!(refused(|manifest| manifest.number = u64::MAX));
        assert!(refused(|manifest| manifest.rotation.compactor = u64::MAX));
        assert!(refused(|manifest| manifest.levels[0][0].facts.file = 12), "it is a number to come");
        assert!(refused(|manifest| manifest.levels[0][0].facts.file = 3), "it is another one's");
        assert!(refused(|manifest| manifest.levels[0][0].facts.entries = u64::MAX));
        assert!(refused(|manifest| manifest.levels[0][0].facts.deletes = 1001));
        assert!(refused(|manifest| manifest.levels[0][0].facts.data_pages = u32::MAX));
        assert!(refused(|manifest| manifest.levels[0][0].facts.pages = 9), "its extents have 8");
        assert!(refused(|manifest| manifest.levels[0][0].facts.blob[0].1 = u64::MAX));
        assert!(refused(|manifest| manifest.levels[0][0].facts.last_key = Vec::new().into()));
        assert!(
            refused(|manifest| manifest.levels[0].push(LevelTable { ..sample().levels[0][1].clone() })),
            "they overlap"
        );
        assert!(refused(|manifest| manifest.values[0].bytes = u64::MAX));
        assert!(refused(|manifest| manifest.kept[0].1 = u64::MAX));
    }

    fn with_ranges() -> Manifest {
        let range = |from: &[u8], to: &[u8], version| RangeDelete { from: from.into(), to: to.into(), version };
        let mut manifest = sample();
        manifest.ranges = vec![range(b"a", &[0xFF; 200], 1 << 50), range(&[0], b"b", 800)];
        manifest.levels[2][0].clean_version = 799;
        manifest
    }

    #[test]
    fn deletes_of_ranges_are_read_and_their_format_is_this() {
        let (manifest, without) = (with_ranges(), sample().encode().len());
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes).as_ref(), Ok(&manifest));
        assert_eq!(crc32c(0, &bytes), 3_199_567_072, "a change of the format needs a new version");
        for len in without + 1..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let manifest = sample();
        let bytes = manifest.encode();
        // One table, and its bytes, of which one does not fit into seven bits.
        let without = bytes.len() - 4;
        let of_the_version_before = Manifest { kept: Vec::new(), ..manifest.clone() };
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        assert_eq!(Manifest::decode(&bytes[..without]), Ok(of_the_version_before.clone()));
        assert_eq!(Manifest::decode(&[&bytes[..without], &[0; 9]].concat()), Ok(of_the_version_before));
        for len in (0..bytes.len()).filter(|len| *len != without) {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn the_format_of_the_manifest_is_this() {
        assert_eq!(crc32c(0, &sample().encode()), 2_009_364_459, "a change of the format needs a new version");
    }

    fn compressed() -> Manifest {
        let mut manifest = sample();
        manifest.levels[0][1].facts.plain_pages = 300;
        manifest
    }

    #[test]
    fn what_compressed_tables_may_grow_to_is_read_and_its_format_is_this() {
        let (manifest, without) = (compressed(), sample().encode().len());
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes).as_ref(), Ok(&manifest));
        assert_eq!(Manifest::decode(&[&bytes[..], &[0; 9]].concat()).as_ref(), Ok(&manifest));
        assert_eq!(bytes[without..], [0, 0, 1, 2, 0xAC, 0x02]);
        // Cut behind one zero, or two, it is one of version 4.
        for len in without + 3..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
        let unknown = [&bytes[..without], &[1, 0], &bytes[without + 2..]].concat();
        assert!(Manifest::decode(&unknown).is_err(), "deletes of ranges");
    }

    #[test]
    fn tables_of_a_lost_pmem_levels_go_with_their_values() {
        let mut manifest = sample();
        assert_eq!((manifest.drop_tables(LevelTable::lies_in_pmem_levels).len(), &manifest), (0, &sample()));
        manifest.levels[0][1].extents[1].page = PMEM_LEVELS_FIRST;
        manifest.levels[2][0].facts.blob.clear();
        manifest.values[0].live_bytes = 14;
        assert_eq!(Manifest::decode(&manifest.encode()).as_ref(), Ok(&manifest));
        let lost = manifest.drop_tables(LevelTable::lies_in_pmem_levels);
        let lost: Vec<_> = lost.iter().map(|(level, table)| (*level, table.facts.file)).collect();
        assert_eq!((lost, manifest.levels.iter().map(Vec::len).collect()), (vec![(0, 2)], vec![1, 0, 1]));
        assert_eq!(manifest.values[0].live_bytes, 7);
    }

    #[test]
    fn bytes_at_random_are_no_panic_and_no_memory() {
        let mut random = Random::new(1);
        let whole = Manifest { ranges: with_ranges().ranges, ..compressed() }.encode();
        for round in 0..50_000 {
            let mut bytes = whole.clone();
            for _ in 0..=round % 4 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            let _ = Manifest::decode(&bytes);
        }
    }
}
