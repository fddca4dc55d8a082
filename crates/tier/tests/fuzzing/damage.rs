//! Volumes as the engine leaves them, and what is done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::Reader;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Key};

use super::Choices;
use super::machine::{CAPACITY_BYTES, Machine, UUID, Value, config};
use crate::TierConfig;
use crate::superblock::Superblock;

const SECTOR_BYTES: usize = 512;
const PAGES: usize = CAPACITY_BYTES as usize / PAGE_BYTES;
/// Superblocks and tails.
const ROOT_PAGES: usize = 4;
/// Of the journal's ring.
const RING_PAGES: usize = PAGES / 64;

/// A volume as the engine left it, and what was ever written to it.
pub(super) struct Sample {
    pub(super) image: Vec<u8>,
    /// As it was before: closed in order, and in the middle of its last life.
    older: [Vec<u8>; 2],
    /// Closed in order; else left by a kill.
    pub(super) clean: bool,
    /// Every value that each key ever had; the last one is what it has now.
    pub(super) history: BTreeMap<Key, Vec<Value>>,
    /// What it answers as it is, opened for reading only: else its oldest segment makes room.
    pub(super) answers: BTreeMap<Key, Value>,
}

/// Closed in order, and left by a kill, with the same history.
pub(super) fn samples() -> &'static [Sample; 2] {
    static SAMPLES: OnceLock<[Sample; 2]> = OnceLock::new();
    SAMPLES.get_or_init(|| [sample(true), sample(false)])
}

/// Enough small ones that what makes them stale fills a page of the ring, some longer ones, and a
/// few that have slices.
pub(super) fn key(number: usize) -> Key {
    Key::bound(CollectionId(number as u32 % 3), format!("key {number}").as_bytes())
}

const SMALL: usize = 300;
const KEYS: usize = SMALL + 40;

fn len(number: usize) -> usize {
    match number {
        0..SMALL => number % 50,
        SMALL..330 => 400 + number * 7 % 2500,
        _ => 9_000 + (number - 330) * 5_000,
    }
}

struct Writer {
    machine: Machine,
    random: Random,
    history: BTreeMap<Key, Vec<Value>>,
}

impl Writer {
    fn put(&mut self, key: Key, len: Option<usize>) {
        let value = len.map(|len| {
            let mut bytes = vec![0; len + 8];
            self.random.fill(&mut bytes);
            bytes
        });
        self.machine.put(&key, &value).expect("a cache has room");
        self.history.entry(key).or_default().push(value);
    }

    fn flush(&mut self, collection: u32) {
        self.machine.flush(collection).expect("a collection is flushed");
        let of_it = self.history.iter_mut().filter(|(key, _)| key.collection() == CollectionId(collection));
        of_it.for_each(|(_, values)| values.push(None));
    }
}

fn sample(clean: bool) -> Sample {
    let mut writer = Writer { machine: Machine::create(), random: Random::new(3), history: BTreeMap::new() };
    (0..KEYS).for_each(|number| writer.put(key(number), Some(len(number))));
    let first = writer.machine.close();
    writer.machine = Machine::recover(config(), first.clone(), 5).expect("what was closed in order");
    for number in 0..SMALL {
        writer.put(key(number), (number % 4 != 1).then(|| len(number) + 20));
    }
    (SMALL..KEYS).step_by(3).for_each(|number| writer.put(key(number), Some(len(number) + 100)));
    // More than memory holds, so that segments are spilled.
    (0..90).for_each(|number| writer.put(key(KEYS + number), Some(3_000)));
    writer.flush(2);
    (0..20).for_each(|number| writer.put(key(number), Some(60)));
    writer.machine.rest();
    let second = writer.machine.image.bytes.clone();
    (0..60).for_each(|number| writer.put(key(KEYS + 90 + number), Some(3_000)));
    for number in (0..SMALL + 90).step_by(7) {
        writer.put(key(number), (number % 2 == 0).then_some(33));
    }
    let Writer { mut machine, history, .. } = writer;
    machine.rest();
    let mut image = if clean { machine.close() } else { machine.kill() };
    image.resize(CAPACITY_BYTES as usize, 0);
    let config = TierConfig { read_only: true, ..config() };
    let mut machine = Machine::recover(config, image.clone(), 6).expect("as it was left");
    let answers = history.keys().map(|key| (key.clone(), machine.get(key))).collect();
    Sample { image, older: [first, second], clean, history, answers }
}

/// What is done to an image before it is opened.
pub(super) struct Damage {
    sample: &'static Sample,
    pub(super) image: Vec<u8>,
    /// Pages whose checksums are made to match.
    pub(super) forged: BTreeSet<usize>,
    /// A superblock or tail of before came back: what a device does that acknowledged a write and
    /// did not do it. Its checksum is right and it lies in its place, so that only the other one of
    /// the two could tell, which may be the older one as well.
    pub(super) is_lying: bool,
}

impl Damage {
    pub(super) fn new(sample: &'static Sample) -> Damage {
        Damage { sample, image: sample.image.clone(), forged: BTreeSet::new(), is_lying: false }
    }

    pub(super) fn is_any(&self) -> bool {
        self.image != self.sample.image
    }

    pub(super) fn step(&mut self, choices: &mut Choices<'_>) {
        let kind = choices.byte();
        let pages = self.image.len() / PAGE_BYTES;
        // Half of them are those that say what the others are.
        let page = match kind & 0x40 {
            0 => usize::from(choices.byte()) % pages,
            _ => usize::from(choices.byte()) % (ROOT_PAGES + RING_PAGES).min(pages),
        };
        let (start, at) = (page * PAGE_BYTES, page * PAGE_BYTES + choices.below(PAGE_BYTES));
        let sector = at / SECTOR_BYTES * SECTOR_BYTES;
        match kind & 0x3F {
            0..8 => self.image[at] ^= choices.byte(),
            8..24 => {
                let len = usize::from(choices.byte() % 40).min(self.image.len() - at);
                let bytes = choices.bytes(len);
                self.image[at..at + bytes.len()].copy_from_slice(bytes);
            }
            24..28 => self.image[sector..sector + SECTOR_BYTES].fill(choices.byte()),
            28..32 => {
                let line = at / 64 * 64;
                self.image[line..line + 64].fill(choices.byte());
            }
            32..40 => {
                // Written to a wrong place.
                let to = if choices.byte() & 1 == 0 { choices.below(pages) } else { choices.below(8.min(pages)) };
                self.image.copy_within(start..start + PAGE_BYTES, to * PAGE_BYTES);
            }
            40..48 => self.restore(start, PAGE_BYTES, choices),
            48..52 => self.restore(sector, SECTOR_BYTES, choices),
            52..54 => self.image.resize((1 + choices.below(2 * PAGES)) * PAGE_BYTES, 0),
            54..56 => {
                let pages = 1 + choices.below(pages - page);
                self.image[start..start + pages * PAGE_BYTES].fill(0);
            }
            _ => {}
        }
        if kind & 0x80 != 0 {
            self.forged.insert(page);
        }
    }

    fn restore(&mut self, at: usize, len: usize, choices: &mut Choices<'_>) {
        let older = &self.sample.older[usize::from(choices.byte() & 1)];
        if let (Some(into), Some(from)) = (self.image.get_mut(at..at + len), older.get(at..at + len)) {
            self.is_lying |= at < ROOT_PAGES * PAGE_BYTES && into != from;
            into.copy_from_slice(from);
        }
    }

    /// Mends the checksums of pages that are to be forged, as what they are.
    pub(super) fn forge(&mut self) {
        self.forged.retain(|page| (page + 1) * PAGE_BYTES <= self.image.len());
        for number in self.forged.clone() {
            let table = self.table();
            let rest = &mut self.image[number * PAGE_BYTES..];
            match number {
                0 | 1 => {
                    rest[..16].copy_from_slice(b"StrataKV tier\0\0\0");
                    rest[32..48].copy_from_slice(&UUID);
                    set(rest, 176, crc32c(seed(&UUID, 0, 0), &rest[..176]));
                }
                2..ROOT_PAGES => {
                    rest[..8].copy_from_slice(b"STRTIERJ");
                    mend_page(rest, seed(&UUID, number as u64, magic(b"STRTIERJ")));
                }
                _ if number < ROOT_PAGES + RING_PAGES => {
                    rest[..8].copy_from_slice(&(!magic(b"STRTIERJ")).to_le_bytes());
                    mend_page(rest, seed(&UUID, number as u64, magic(b"STRTIERJ")));
                }
                _ if rest.starts_with(b"STRTIERS") => {
                    let len = u32_at(rest, 44) as usize;
                    if let Some(summary) = rest.get(64..).and_then(|rest| rest.get(..len)) {
                        set(rest, 48, crc32c(0, summary));
                    }
                    set(rest, 60, crc32c(seed(&UUID, number as u64, magic(b"STRTIERS")), &rest[..60]));
                }
                _ => {
                    if let Some((first, order)) = table
                        && let Some(page) = (number as u64).checked_sub(first)
                    {
                        mend_page(rest, seed(&UUID, order, page));
                    }
                }
            }
        }
    }

    /// Where the table that counts begins, and its order.
    fn table(&self) -> Option<(u64, u64)> {
        let superblocks = (0..2).zip(self.image.chunks(PAGE_BYTES));
        let superblocks = superblocks.filter_map(|(number, page)| Superblock::decode(&UUID, number, page).ok());
        let newest = superblocks.max_by_key(|superblock| superblock.generation)?;
        newest.table.map(|table| (table.page, table.order))
    }
}

fn magic(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    Reader::new(&bytes[at..]).u32().unwrap_or_default()
}

fn set(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn mend_page(page: &mut [u8], seed: u32) {
    set(page, PAGE_BYTES - 4, crc32c(seed, &page[..PAGE_BYTES - 4]));
}
