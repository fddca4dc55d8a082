//! Regions and volumes as the engine leaves them, and what is done to them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use stratakv_base::Key;
use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;

use super::Choices;
use super::machine::{Machine, Region, UUID, Value, key};
use crate::container::forging::{Forgery, forge};
use crate::install::manifest_checksum;
use crate::volume::{Manifest, Superblock};

/// A shard as the engine left it, and what was ever written to it.
pub(super) struct Sample {
    pub(super) region: Vec<u8>,
    pub(super) volume: Vec<u8>,
    /// As they were some time before.
    older: (Vec<u8>, Vec<u8>),
    /// Closed in order; else left by a kill.
    pub(super) clean: bool,
    /// Every value that each key ever had; the last one is what it has now.
    pub(super) history: BTreeMap<Key, Vec<Value>>,
    /// Pages of tables: file, and which page of it.
    tables: BTreeMap<usize, (u64, u32)>,
}

/// Closed in order, and left by a kill, with the same history.
pub(super) fn samples() -> &'static [Sample; 2] {
    static SAMPLES: OnceLock<[Sample; 2]> = OnceLock::new();
    SAMPLES.get_or_init(|| [sample(true), sample(false)])
}

const KEYS: usize = 160;
/// Its write is the last one: rot in it looks like a torn write, and nothing behind it says that it
/// was durable.
pub(super) const LAST: &[u8] = b"last";

pub(super) fn name(number: usize) -> Vec<u8> {
    format!("key {number:03}").into_bytes()
}

struct Writer {
    machine: Machine,
    random: Random,
    history: BTreeMap<Key, Vec<Value>>,
}

impl Writer {
    fn put(&mut self, name: &[u8], len: Option<usize>) {
        let value = len.map(|len| {
            let mut bytes = vec![0; len + 8];
            // Half of it can be compressed.
            self.random.fill(&mut bytes[..len / 2 + 8]);
            bytes
        });
        self.machine.put(&key(name), &value).expect("there is room");
        self.history.entry(key(name)).or_default().push(value);
    }

    fn delete_range(&mut self, from: usize, to: usize) {
        let (from, to) = (key(&name(from)), key(&name(to)));
        self.machine.delete_range(&from, &to).expect("a range is deleted");
        self.history.range_mut(from..to).for_each(|(_, values)| values.push(None));
    }
}

fn len(number: usize, round: usize) -> usize {
    match number % 16 {
        3 => 600 + number * 5,
        _ => 40 + (number * 37 + round * 11) % 300,
    }
}

fn sample(clean: bool) -> Sample {
    let mut writer = Writer { machine: Machine::create(), random: Random::new(3), history: BTreeMap::new() };
    for round in 0..3 {
        (0..KEYS).for_each(|number| writer.put(&name(number * 7 % KEYS), Some(len(number, round))));
    }
    // Longer than a unit: its value lies on the volume before the record that points to it.
    writer.put(&name(40), Some(20_000));
    writer.delete_range(20, 40);
    (0..KEYS).step_by(5).for_each(|number| writer.put(&name(number), (number % 2 == 0).then_some(70)));
    writer.machine.rest(400);
    let older = (writer.machine.region.image(), writer.machine.volume.clone());
    for number in (0..KEYS).step_by(3) {
        writer.put(&name(number), (number % 4 != 0).then(|| len(number, 5)));
    }
    writer.delete_range(100, 103);
    (0..30).for_each(|number| writer.put(&name(number), Some(90)));
    (0..2).for_each(|round| writer.put(LAST, Some(round)));
    let Writer { machine, history, .. } = writer;
    let (region, volume) = if clean { machine.close() } else { machine.kill() };
    let (_, manifest) = newest(&volume).expect("a volume has a manifest");
    let mut tables = BTreeMap::new();
    for table in manifest.levels.iter().flatten() {
        let pages = table.extents.iter().flat_map(|extent| extent.page..extent.end());
        pages.zip(0..).for_each(|(page, ordinal)| _ = tables.insert(page as usize, (table.facts.file, ordinal)));
    }
    Sample { region, volume, older, clean, history, tables }
}

/// The superblock that counts, and its manifest.
pub(super) fn newest(volume: &[u8]) -> Option<(Superblock, Manifest)> {
    let found = volume.chunks(PAGE_BYTES).take(2).filter_map(|page| Superblock::decode(&UUID, page).ok());
    let superblock = found.max_by_key(|superblock| superblock.number)?;
    Some((superblock, Manifest::decode(volume.get(manifest_range(&superblock)?)?).ok()?))
}

/// The bytes of the first copy of its manifest.
fn manifest_range(superblock: &Superblock) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(superblock.page).ok()?.checked_mul(PAGE_BYTES)?;
    Some(start..start.checked_add(superblock.pages as usize * PAGE_BYTES)?)
}

/// What is done to a shard before it is opened.
pub(super) struct Damage {
    sample: &'static Sample,
    region: Region,
    pub(super) volume: Vec<u8>,
    /// Something was written behind checksums that match.
    pub(super) is_forged: bool,
    /// Something of before came back: a medium that acknowledged a write and did not do it.
    pub(super) is_inconsistent: bool,
}

impl Damage {
    pub(super) fn new(sample: &'static Sample) -> Damage {
        let (region, volume) = (Region::new(sample.region.clone()), sample.volume.clone());
        Damage { sample, region, volume, is_forged: false, is_inconsistent: false }
    }

    pub(super) fn region(&self) -> Vec<u8> {
        self.region.image()
    }

    pub(super) fn is_any(&self) -> bool {
        self.volume != self.sample.volume || self.region() != self.sample.region
    }

    pub(super) fn step(&mut self, choices: &mut Choices<'_>) {
        let kind = choices.byte();
        match kind % 8 {
            0 | 1 => {
                let (sample, mut is_inconsistent) = (self.sample, self.is_inconsistent);
                self.region.with(|bytes| is_inconsistent |= damaged(bytes, &sample.older.0, choices));
                self.is_inconsistent = is_inconsistent;
            }
            2 | 3 => {
                self.is_inconsistent |= damaged(&mut self.volume, &self.sample.older.1, choices);
                if kind >= 0xF0 {
                    let pages = 1 + choices.below(2 * self.sample.volume.len() / PAGE_BYTES);
                    self.volume.resize(pages * PAGE_BYTES, 0);
                }
            }
            4 | 5 => {
                let (part, number, at) = (choices.byte(), choices.below(1 << 16), choices.below(1 << 16));
                let forgery = Forgery { part, number, at, bytes: choices.some() };
                self.is_forged |= forge(&self.region, &UUID, forgery).is_some();
            }
            _ => self.forge_volume(choices),
        }
    }

    fn forge_volume(&mut self, choices: &mut Choices<'_>) {
        self.is_forged = true;
        let (kind, at, bytes) = (choices.byte(), choices.below(PAGE_BYTES), choices.some());
        match kind % 4 {
            0 => self.forge_superblocks(|page| lay(page, at % 124, bytes)),
            1 => {
                let Some((superblock, _)) = newest(&self.volume) else { return };
                let Some(range) = manifest_range(&superblock) else { return };
                let Some(first) = self.volume.get_mut(range.clone()) else { return };
                lay(first, at % 1500, bytes);
                let manifest = first.to_vec();
                let len = manifest.len();
                if let Some(second) = self.volume.get_mut(range.end..range.end + len) {
                    second.copy_from_slice(&manifest);
                }
                let checksum = manifest_checksum(&UUID, superblock.number, &manifest);
                self.forge_superblocks(|page| lay(page, 68, &checksum.to_le_bytes()));
            }
            _ => {
                let number = choices.below(self.sample.tables.len());
                let Some((page, (file, ordinal))) = self.sample.tables.iter().nth(number) else { return };
                let start = page * PAGE_BYTES;
                let Some(page) = self.volume.get_mut(start..start + PAGE_BYTES) else { return };
                lay(page, 4 + at % (PAGE_BYTES - 4), bytes);
                let crc = crc32c(seed(&UUID, *file, u64::from(*ordinal)), &page[4..]);
                lay(page, 0, &crc.to_le_bytes());
            }
        }
    }

    fn forge_superblocks(&mut self, change: impl Fn(&mut [u8])) {
        for page in self.volume.chunks_mut(PAGE_BYTES).take(2) {
            change(page);
            let crc = crc32c(0, &page[..124]);
            lay(page, 124, &crc.to_le_bytes());
        }
    }
}

/// Copies as much as there is room for.
fn lay(page: &mut [u8], at: usize, bytes: &[u8]) {
    let len = bytes.len().min(page.len() - at);
    page[at..at + len].copy_from_slice(&bytes[..len]);
}

/// Whether something of before came back.
fn damaged(bytes: &mut [u8], older: &[u8], choices: &mut Choices<'_>) -> bool {
    let kind = choices.byte();
    let len = [8, 64, 512, PAGE_BYTES][usize::from(kind >> 6)].min(bytes.len());
    let at = choices.below(bytes.len() / len) * len;
    match kind % 8 {
        0..3 => {
            let at = at + choices.below(len);
            bytes[at] ^= choices.byte();
        }
        3 => bytes[at..at + len].fill(choices.byte()),
        4 => lay(bytes, at, choices.some()),
        5 | 6 => {
            let to = choices.below(bytes.len() / len) * len;
            bytes.copy_within(at..at + len, to);
        }
        _ => {
            let was = bytes.to_vec();
            lay(bytes, at, older.get(at..at + len).unwrap_or_default());
            return bytes != was;
        }
    }
    false
}
