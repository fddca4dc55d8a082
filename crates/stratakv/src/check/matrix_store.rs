//! `check` of a shard of engine `matrix`: its container, its space, each page of its tables, each
//! value in its value files.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Corruption, Key};
use stratakv_device::sync::execute;
use stratakv_device::{Block, BlockPart, Class, DiskOutcome, DiskRequest, IoFault};
use stratakv_matrix::cursor::{Pages, Stop};
use stratakv_matrix::table::values;
use stratakv_matrix::{DamagedValue, Matrix, TableContents, ValueBlob, ValueCheck};
use stratakv_pmem::RegionPart;

use super::{CheckReport, repaired};
use crate::catalogue::internal_keys;
use crate::open::OpenedShard;

/// Keys of lost records that are listed, of a shard.
const LOST_LISTED: u64 = 100;
/// Read at once of a value.
const SLICE_PAGES: u32 = (SLICE_BYTES / PAGE_BYTES) as u32;

/// Why bytes cannot be had.
#[derive(Clone)]
enum Trouble {
    Damaged(String),
    /// The device did not give them.
    Unreadable(String),
}

impl Trouble {
    fn tell(self, whose: &str, sum: &mut CheckReport) {
        match self {
            Trouble::Damaged(damage) => sum.damage.push(format!("{damage}{whose}")),
            Trouble::Unreadable(why) => sum.unreadable.push(format!("{why}{whose}")),
        }
    }
}

/// A shard, and pages of its tables.
struct Reader<'a> {
    matrix: &'a Matrix<RegionPart>,
    shard: &'a OpenedShard,
    /// By file and ordinal.
    pages: RefCell<HashMap<(u64, u32), Result<BlockPart, Trouble>>>,
    /// Records that are lost.
    lost: Cell<u64>,
}

pub(super) fn check_matrix(matrix: &Matrix<RegionPart>, shard: &OpenedShard, sum: &mut CheckReport) {
    let (damage, mistakes) = matrix.check();
    let (pages, pages_free) = matrix.volume_pages();
    let recovery = matrix.recovery();
    sum.torn += recovery.torn;
    sum.pages += pages;
    sum.pages_free += pages_free;
    sum.damage.extend(damage);
    sum.mistakes.extend(mistakes);
    sum.unreadable.extend(recovery.unreadable.iter().map(ToString::to_string));
    if recovery.superblock_repaired && recovery.unreadable.is_empty() {
        sum.damage.push(repaired(shard));
    }
    let reader = Reader { matrix, shard, pages: RefCell::default(), lost: Cell::default() };
    reader.check_files(sum);
    // Of what is damaged nobody can tell how many there were.
    sum.records += matrix.count_records(&internal_keys(), &reader).unwrap_or_else(|_| matrix.records());
}

impl Reader<'_> {
    fn check_files(&self, sum: &mut CheckReport) {
        let (mut pointed, before) = (HashMap::new(), (sum.damage.len(), sum.unreadable.len()));
        for table in self.matrix.tables() {
            let pages = self.load_table(table.facts.file, table.facts.pages);
            let is_read = !pages.iter().any(|page| matches!(page, Trouble::Unreadable(_)));
            let TableContents { mut values, entries, damage } = self.matrix.values_of_table(table, self);
            // What lies behind a damaged page makes no sense either, and is not told twice.
            let nonsense = damage.filter(|_| pages.is_empty()).map(|corruption| corruption.to_string());
            sum.damage.extend(nonsense);
            pages.into_iter().for_each(|page| page.tell("", sum));
            if is_read {
                sum.lost_unknown += table.facts.entries.saturating_sub(entries);
            }
            values.sort_by_key(|value| (value.pointer.file, value.pointer.offset));
            for value in &values {
                *pointed.entry(value.pointer.file).or_default() += u64::from(value.pointer.value_bytes);
                self.check_value(value, sum);
            }
            self.pages.borrow_mut().clear();
        }
        let (damaged, unread) = self.matrix.damaged_in_container();
        sum.lost_unknown += unread;
        for DamagedValue { key, version, damage } in damaged {
            sum.damage.push(format!("the region: {damage}"));
            self.lose(&key, version, sum);
        }
        for value in self.matrix.values_of_container().unwrap_or_default() {
            self.check_value(&value, sum);
        }
        if (sum.damage.len(), sum.unreadable.len()) == before {
            sum.mistakes.extend(self.matrix.check_values(&pointed));
        }
    }

    /// Takes a table into memory. What is wrong with its pages.
    fn load_table(&self, file: u64, pages: u32) -> Vec<Trouble> {
        let mut loaded = self.pages.borrow_mut();
        let mut troubles = Vec::new();
        for ordinal in 0..pages {
            let page = self.table_page(file, ordinal);
            troubles.extend(page.as_ref().err().cloned());
            loaded.insert((file, ordinal), page);
        }
        troubles
    }

    /// A page of a table, verified; what is wrong with it.
    fn table_page(&self, file: u64, ordinal: u32) -> Result<BlockPart, Trouble> {
        let too_few = || Trouble::Damaged("a table has fewer pages than it says".into());
        let page = self.matrix.page_of(file, ordinal).ok_or_else(too_few)?;
        let block = self.read(page, 1)?;
        let bytes = block.get(..PAGE_BYTES).unwrap_or_default();
        let checked = self.matrix.verify(file, ordinal, page, bytes);
        checked.map_err(|corruption| Trouble::Damaged(corruption.to_string()))?;
        Ok(BlockPart { block: Arc::new(block), start: 0, len: PAGE_BYTES as u32 })
    }

    /// Verifies a value, and tells if it is damaged. Of an older version that is no loss.
    fn check_value(&self, value: &ValueBlob, sum: &mut CheckReport) {
        let Err(trouble) = self.verify_value(value) else { return };
        let is_damaged = matches!(trouble, Trouble::Damaged(_));
        let key = Key::from_encoded(&value.key);
        let whose = key.as_ref().map_or_else(|| value.key.escape_ascii().to_string(), Key::to_string);
        trouble.tell(&format!(" (the value of {whose}, version {})", value.version), sum);
        if is_damaged {
            self.lose(&value.key, value.version, sum);
        }
    }

    /// This version of a key is damaged. Of an older one that is no loss.
    fn lose(&self, key: &[u8], version: u64, sum: &mut CheckReport) {
        if !self.matrix.is_newest(key, version, self).unwrap_or(true) {
            return;
        }
        sum.lost_records += 1;
        self.lost.set(self.lost.get() + 1);
        if self.lost.get() <= LOST_LISTED {
            sum.lost.extend(Key::from_encoded(key));
        }
    }

    fn verify_value(&self, value: &ValueBlob) -> Result<(), Trouble> {
        let (pointer, mut check) = (&value.pointer, ValueCheck::new(value));
        let range = values::pages_of(pointer);
        let (mut skip, mut left) = ((pointer.offset % PAGE_BYTES as u64) as usize, pointer.value_bytes as usize);
        for (page, pages) in self.pieces(value, range)? {
            let block = self.read(page, pages)?;
            let bytes = block.get(skip..pages as usize * PAGE_BYTES).unwrap_or_default();
            let bytes = bytes.get(..left).unwrap_or(bytes);
            check.add(bytes);
            left -= bytes.len();
            skip = 0;
        }
        if check.is_right() {
            return Ok(());
        }
        Err(self.damage_of(value, "a value with its checksum", "something else"))
    }

    /// Where the pages of a value lie, in pieces that are read at once.
    fn pieces(&self, value: &ValueBlob, ordinals: Range<u64>) -> Result<Vec<(u64, u32)>, Trouble> {
        let mut pieces: Vec<(u64, u32)> = Vec::new();
        for ordinal in ordinals {
            let page = u32::try_from(ordinal).ok().and_then(|ordinal| self.matrix.value_page(&value.pointer, ordinal));
            let Some(page) = page else {
                return Err(self.damage_of(value, "a value in a file of values", "an offset that no file has"));
            };
            match pieces.last_mut() {
                Some((first, pages)) if *first + u64::from(*pages) == page && *pages < SLICE_PAGES => *pages += 1,
                _ => pieces.push((page, 1)),
            }
        }
        Ok(pieces)
    }

    fn damage_of(&self, value: &ValueBlob, expected: &str, found: &str) -> Trouble {
        let pointer = &value.pointer;
        let ordinal = u32::try_from(pointer.offset / PAGE_BYTES as u64).ok();
        let page = ordinal.and_then(|ordinal| self.matrix.value_page(pointer, ordinal)).unwrap_or_default();
        let place = self.matrix.place(page * PAGE_BYTES as u64 + pointer.offset % PAGE_BYTES as u64);
        let damage = Corruption { place, what: "value", expected: expected.into(), found: found.into() };
        Trouble::Damaged(damage.to_string())
    }

    fn read(&self, page: u64, pages: u32) -> Result<Block, Trouble> {
        let unreadable = |why: &str| Trouble::Unreadable(why.into());
        let (volume, offset) = (self.shard.volume.path().display(), page * PAGE_BYTES as u64);
        let class = if pages == 1 { Class::Page } else { Class::Slice };
        let mut block =
            self.shard.pool.take(class).ok_or_else(|| unreadable("there is no memory to read the volume with"))?;
        let into = block.get_mut(..pages as usize * PAGE_BYTES).unwrap_or_default();
        if let Some(loaded) = self.matrix.pmem_levels_page(page, into) {
            let trouble = |error| Trouble::Damaged(format!("a page of the PMEM levels in the region: {error}"));
            return loaded.map(|()| block).map_err(trouble);
        }
        match execute(&self.shard.volume, DiskRequest::Read { offset, block, len: pages * PAGE_BYTES as u32 }) {
            DiskOutcome::Read(block, Ok(())) => Ok(block),
            DiskOutcome::Read(_, Err(IoFault::Short)) => {
                Err(Trouble::Damaged(format!("{volume}: it was cut short, and ends before byte {offset}")))
            }
            DiskOutcome::Read(_, Err(fault)) => {
                Err(Trouble::Unreadable(format!("{volume}: byte {offset} cannot be read: {fault}")))
            }
            _ => Err(Trouble::Unreadable(format!("{volume}: byte {offset} cannot be read"))),
        }
    }
}

impl Pages for Reader<'_> {
    fn page(&self, file: u64, ordinal: u32) -> Result<BlockPart, Stop> {
        if let Some(page) = self.pages.borrow().get(&(file, ordinal)) {
            return page.clone().map_err(|_| Stop::Missing);
        }
        self.table_page(file, ordinal).map_err(|_| Stop::Missing)
    }
}
