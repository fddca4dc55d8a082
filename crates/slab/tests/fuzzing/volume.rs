//! A whole volume: made by the engine, damaged and forged, opened again and used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Key};
use stratakv_device::memory::Image;
use stratakv_engine::Error;

use super::machine::{Machine, Value, config};
use super::{Choices, UUID, lay, log_pages, mend_blob_table, mend_page_header, mend_slot, mend_superblock};
use crate::blob;
use crate::in_place::class::SizeClass;
use crate::in_place::page::{self, Slot};
use crate::opener::IndexedOpener;
use crate::placement::Placement;
use crate::{InPlace, Log};

const SECTOR_BYTES: usize = 512;

/// A volume as the engine left it, and what was ever written to it.
struct Sample {
    is_log: bool,
    image: Vec<u8>,
    /// As it was some time before.
    older: Vec<u8>,
    /// Closed in order.
    clean: bool,
    /// Every value each key ever had.
    history: BTreeMap<Vec<u8>, BTreeSet<Value>>,
    latest: BTreeMap<Vec<u8>, Value>,
}

/// Opens a damaged copy of a volume, asks for everything in it, writes to it, closes it and opens
/// it again.
///
/// Nothing panics or goes on for ever, the engine's own accounting holds, and no key answers
/// anything it never had, except those in pages that were forged. Damage of a volume that was
/// closed in order is never silent. What is written after that is there for good.
///
/// # Panics
/// A property does not hold.
pub fn volume(input: &[u8]) {
    damaged::<InPlace>(input);
}

/// As [`volume`], of a log that has a checkpoint and batches behind it: what is forged there is
/// read by recovery with a checkpoint, and without.
///
/// # Panics
/// A property does not hold.
pub fn log(input: &[u8]) {
    damaged::<Log>(input);
}

fn damaged<P: Fuzzed>(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mode = choices.byte();
    let sample = &P::samples()[usize::from(mode & 1)];
    let mut damage = Damage::new(sample);
    for _ in 0..choices.byte() % 8 {
        damage.step(&mut choices);
    }
    damage.forge();
    let mut judge = Judge { sample, damage: &damage, written: BTreeMap::new(), forged: damage.forged_keys() };
    let image = Image { bytes: damage.image.clone(), capacity_bytes: Some(2 * sample.bytes()) };
    let mut machine = match Machine::<P>::recover(image, sample.bytes(), mode) {
        Ok(machine) => machine,
        Err(error) => return assert!(damage.any, "an undamaged volume is refused: {error}"),
    };
    judge.look(&mut machine);
    if mode & 2 != 0 {
        return;
    }
    for _ in 0..choices.byte() % 8 {
        judge.write(&mut machine, &mut choices);
    }
    machine.rest();
    account(&machine);
    machine.close();
    match Machine::<P>::recover(machine.image, sample.bytes(), mode) {
        Ok(mut machine) => judge.look_again(&mut machine),
        Err(error) => panic!("what was opened, used and closed is refused: {error}"),
    }
}

impl Sample {
    fn bytes(&self) -> u64 {
        self.image.len() as u64
    }
}

/// A placement with volumes to be damaged.
trait Fuzzed: Placement + Sized {
    /// Pages of the smallest volume there is; a log, which gives up a fifth, has twice as many.
    const PAGES: usize;
    const IS_LOG: bool;
    /// Two volumes with the same history: closed in order, and left behind by a crash.
    fn samples() -> &'static [Sample; 2];
}

impl Fuzzed for InPlace {
    const PAGES: usize = 64;
    const IS_LOG: bool = false;

    fn samples() -> &'static [Sample; 2] {
        static SAMPLES: OnceLock<[Sample; 2]> = OnceLock::new();
        SAMPLES.get_or_init(|| [true, false].map(sample::<InPlace>))
    }
}

impl Fuzzed for Log {
    const PAGES: usize = 128;
    const IS_LOG: bool = true;

    fn samples() -> &'static [Sample; 2] {
        static SAMPLES: OnceLock<[Sample; 2]> = OnceLock::new();
        SAMPLES.get_or_init(|| [true, false].map(sample::<Log>))
    }
}

fn sample<P: Fuzzed>(clean: bool) -> Sample {
    let bytes = P::PAGES * PAGE_BYTES;
    let image = Image { bytes: Vec::new(), capacity_bytes: Some(bytes as u64) };
    let opener = IndexedOpener::<P>::create(config(0, bytes as u64, 8));
    let mut machine = Machine::open(opener, image, 7).expect("a new volume");
    let (mut history, mut latest) = (BTreeMap::<Vec<u8>, BTreeSet<Value>>::new(), BTreeMap::new());
    let mut write = |machine: &mut Machine<P>, key: &[u8], value: Value| {
        machine.put(key, &value).expect("there is room");
        history.entry(key.to_vec()).or_default().insert(value.clone());
        latest.insert(key.to_vec(), value);
    };
    let mut random = Random::new(3);
    let key = |number: u8| [b"kemn"[usize::from(number) % 4], number];
    for number in 0..24u8 {
        write(&mut machine, &key(number), bytes_of(&mut random, usize::from(number) * 31));
    }
    write(&mut machine, b"run 1", bytes_of(&mut random, 9_000));
    write(&mut machine, b"run 2", bytes_of(&mut random, 70_000));
    write(&mut machine, &[b'l'; 500], bytes_of(&mut random, 10));
    machine.rest();
    if P::IS_LOG {
        // Its close leaves a checkpoint, so that what follows is a tail.
        machine.close();
        machine = Machine::recover(machine.image, bytes as u64, 8).expect("a volume that was closed");
    }
    let older = machine.image.bytes.clone();
    for number in (0..24u8).step_by(3) {
        let len = 24 * usize::from(number) + 200;
        write(&mut machine, &key(number), bytes_of(&mut random, len).filter(|_| number % 4 != 0));
    }
    write(&mut machine, b"run 1", bytes_of(&mut random, 6_000));
    write(&mut machine, b"new", bytes_of(&mut random, 1));
    machine.rest();
    if clean {
        machine.close();
    }
    let mut image = machine.image.bytes;
    image.resize(bytes, 0);
    Sample { is_log: P::IS_LOG, image, older, clean, history, latest }
}

fn bytes_of(random: &mut Random, len: usize) -> Value {
    let mut value = vec![0; len];
    random.fill(&mut value);
    Some(value)
}

/// What is done to an image before it is opened.
struct Damage<'a> {
    sample: &'a Sample,
    image: Vec<u8>,
    /// Pages whose checksums are made to match.
    forged: BTreeSet<usize>,
    any: bool,
    /// Older content came back, which checksums cannot tell.
    older: bool,
}

impl<'a> Damage<'a> {
    fn new(sample: &'a Sample) -> Self {
        Damage { sample, image: sample.image.clone(), forged: BTreeSet::new(), any: false, older: false }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let kind = choices.byte();
        let pages = self.image.len() / PAGE_BYTES;
        let page = usize::from(choices.byte()) % pages;
        let (start, at) = (page * PAGE_BYTES, page * PAGE_BYTES + choices.below(PAGE_BYTES));
        let sector = at / SECTOR_BYTES * SECTOR_BYTES;
        self.any = true;
        match kind % 9 {
            0 => self.image[at] ^= choices.byte(),
            1 | 2 => {
                let len = usize::from(choices.byte() % 40);
                lay(choices.bytes(len), &mut self.image[at..]);
            }
            3 => self.image[sector..][..SECTOR_BYTES].fill(0),
            4 => self.image.copy_within(start..start + PAGE_BYTES, choices.below(pages) * PAGE_BYTES),
            5 => self.restore(start, PAGE_BYTES),
            6 => self.restore(sector, SECTOR_BYTES),
            7 => {
                let pages = 1 + choices.below(2 * self.sample.image.len() / PAGE_BYTES);
                self.image.resize(pages * PAGE_BYTES, 0);
            }
            _ => {}
        }
        if kind & 0x80 != 0 {
            self.forged.insert(page);
        }
    }

    fn restore(&mut self, at: usize, len: usize) {
        self.older = true;
        if let (Some(into), Some(from)) = (self.image.get_mut(at..at + len), self.sample.older.get(at..at + len)) {
            into.copy_from_slice(from);
        }
    }

    /// Mends the checksums of pages to be forged: as what their first bytes say they are.
    fn forge(&mut self) {
        self.forged.retain(|page| (page + 1) * PAGE_BYTES <= self.image.len());
        for number in &self.forged {
            if self.sample.is_log && log_pages::forge(&mut self.image, *number) {
                continue;
            }
            let rest = &mut self.image[number * PAGE_BYTES..];
            match (number, rest.first_chunk::<4>()) {
                (0 | 1, _) => mend_superblock(&mut rest[..PAGE_BYTES]),
                (_, Some(b"SLRN")) => {
                    let length = |at: usize| u16::from_le_bytes([rest[at], rest[at + 1]]).into();
                    let high = usize::from(rest[42] % 32) << 16;
                    let shape = blob::Shape::new(length(44), length(40) + high);
                    let head = shape.head_bytes().min(rest.len());
                    mend_blob_table(&mut rest[..head], *number as u32, head);
                }
                _ => mend_page(&mut rest[..PAGE_BYTES], *number as u32),
            }
        }
        if self.sample.is_log && self.any_forged_chunk() {
            log_pages::mend_sums(&mut self.image);
        }
    }

    fn any_forged_chunk(&self) -> bool {
        self.forged.iter().any(|number| self.image[number * PAGE_BYTES..].starts_with(b"SPCK"))
    }

    /// Keys named in forged pages and blobs: they may answer anything.
    fn forged_keys(&self) -> BTreeSet<Vec<u8>> {
        let mut keys = BTreeSet::new();
        for number in self.forged.iter().copied() {
            let rest = &self.image[number * PAGE_BYTES..];
            if let Some(header) = blob::decode_header(&UUID, number as u32, rest) {
                let head = rest.get(..header.shape.head_bytes());
                keys.extend(head.map(|head| blob::head_key(&header.shape, head).to_vec()));
            }
            if self.sample.is_log {
                keys.append(&mut log_pages::keys(&self.image, number));
                continue;
            }
            let mut page = rest[..PAGE_BYTES].to_vec();
            page::verify(&mut page, &UUID, number as u32);
            for slot in 0..page::class_of(&page).slots() {
                match page::slot(&page, slot) {
                    Slot::Live(record) => _ = keys.insert(record.key.to_vec()),
                    Slot::Damaged { key: Some(key), .. } => _ = keys.insert(key.to_vec()),
                    _ => {}
                }
            }
        }
        keys
    }
}

/// Header, trailer and slots of whatever the header says.
fn mend_page(page: &mut [u8], place: u32) {
    mend_page_header(&mut page[..32], place);
    page.copy_within(..32, PAGE_BYTES - 32);
    let sequence = u64::from_le_bytes(page[16..24].try_into().unwrap_or_default());
    let page_seed = stratakv_base::checksum::seed(&UUID, u64::from(place), sequence);
    if let Some(class) = SizeClass::from_number(page[5]) {
        (0..class.slots()).for_each(|slot| mend_slot(page, class, slot, page_seed));
    }
}

/// Compares what a damaged volume says with what was written to it.
struct Judge<'a> {
    sample: &'a Sample,
    damage: &'a Damage<'a>,
    /// Written since it was opened.
    written: BTreeMap<Vec<u8>, Value>,
    forged: BTreeSet<Vec<u8>>,
}

impl Judge<'_> {
    fn look(&self, machine: &mut Machine<impl Placement>) {
        let mut silent = Vec::new();
        for (key, latest) in &self.sample.latest {
            let answer = machine.get(key);
            if answer.as_ref().is_ok_and(|value| value != latest) {
                silent.push(key);
            }
            self.answer(key, answer);
        }
        self.answer(b"never written", machine.get(b"never written"));
        self.scan(machine);
        let report = machine.slab.recovery();
        let is_told = !report.corrupt.is_empty() || report.superblock_repaired;
        let may_be_silent = !self.damage.forged.is_empty() || self.damage.older || !self.sample.clean;
        assert!(silent.is_empty() || is_told || may_be_silent, "lost without a word: {silent:?}");
        account(machine);
    }

    /// An answer to a get: something the key once had, the latest if nothing was damaged, what was
    /// written since.
    fn answer(&self, key: &[u8], answer: Result<Value, Error>) {
        let name = key.escape_ascii();
        let is_forged = self.forged.contains(Key::bound(CollectionId(0), key).encoded());
        match (answer, self.written.get(key)) {
            (Ok(value), Some(written)) => assert!(value == *written, "{name} was written: {value:?}"),
            (Err(error), Some(_)) => panic!("{name} was written: {error}"),
            (Ok(value), None) if !self.damage.any => {
                assert_eq!(Some(&value), self.sample.latest.get(key).or(Some(&None)), "{name}");
            }
            (value @ Ok(Some(_)), None) if !is_forged => {
                let known =
                    value.is_ok_and(|value| self.sample.history.get(key).is_some_and(|all| all.contains(&value)));
                assert!(known, "{name} never had this value");
            }
            (Err(error), None) => assert!(self.damage.any, "{name}: {error}"),
            (Ok(_), None) => {}
        }
    }

    /// Forwards with values, backwards without: in order, and nothing that was never written, but
    /// damaged names.
    fn scan(&self, machine: &mut Machine<impl Placement>) {
        for backwards in [false, true] {
            let Ok(items) = machine.scan(backwards, backwards) else { continue };
            let in_order = |pair: &[(Key, Value)]| (pair[0].0 > pair[1].0) == backwards && pair[0].0 != pair[1].0;
            assert!(items.windows(2).all(in_order), "a scan is in order");
            for (key, value) in items.into_iter().filter(|(key, _)| !self.forged.contains(key.encoded())) {
                if !backwards {
                    self.answer(key.user(), Ok(value));
                } else if !self.sample.history.contains_key(key.user()) {
                    assert!(machine.get(key.user()).is_err(), "{key:?} never was");
                }
            }
        }
    }

    fn write(&mut self, machine: &mut Machine<impl Placement>, choices: &mut Choices<'_>) {
        let mut keys = self.sample.latest.keys();
        let key = match choices.byte() {
            number @ 0..0xE0 => keys.nth(usize::from(number) % keys.len()).cloned().unwrap_or_default(),
            number => vec![b'w', number],
        };
        let value = match choices.byte() {
            number @ 0..0x40 => (number & 1 == 0).then(Vec::new),
            number => Some(vec![number; choices.below(if number < 0xF0 { 4000 } else { 30_000 })]),
        };
        match machine.put(&key, &value) {
            Ok(()) => {
                self.written.insert(key.clone(), value);
                self.answer(&key, machine.get(&key));
            }
            Err(Error::Unknown(why)) => panic!("not known: {why}"),
            Err(_) => {}
        }
    }

    fn look_again(&self, machine: &mut Machine<impl Placement>) {
        for key in self.written.keys().chain(self.sample.latest.keys()) {
            self.answer(key, machine.get(key));
        }
        account(machine);
    }
}

/// The engine's own accounting.
fn account(machine: &Machine<impl Placement>) {
    let mistakes = machine.slab.check().mistakes;
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undamaged_volumes_say_what_was_written() {
        for mode in 0..=255 {
            let input = [mode, 0, 7, 1, 0x80, 9, 2, 0, 0xF5, 0xFF, 0xFF, 0xFF, 0xF1, 0xFF, 0xFF];
            volume(&input);
            log(&input);
        }
    }

    /// Else what is forged in checkpoints would not be used.
    #[test]
    fn a_log_is_opened_by_its_checkpoint() {
        for sample in Log::samples() {
            let image = Image { bytes: sample.image.clone(), capacity_bytes: Some(sample.bytes()) };
            let machine = Machine::<Log>::recover(image, sample.bytes(), 0).unwrap();
            assert!(machine.slab.recovery().checkpoint.is_used);
        }
    }

    /// Every field of every header in turn, behind checksums that match.
    #[test]
    fn forged_numbers_do_no_harm() {
        forge_numbers((0..48).collect(), volume);
        // Those of batches, tables, roots and chunks, in whichever of the two volumes.
        let begins = |page: &u8| {
            Log::samples().iter().any(|sample| sample.image[usize::from(*page) * PAGE_BYTES..].starts_with(b"SP"))
        };
        forge_numbers((0..128).filter(begins).collect(), log);
    }

    fn forge_numbers(pages: Vec<u8>, target: fn(&[u8])) {
        for (page, at) in pages.into_iter().flat_map(|page| (8..92).step_by(8).map(move |at| (page, at))) {
            for (mode, len, number) in [(0, 4, [0; 8]), (1, 8, [0xFF; 8])] {
                let head = [mode, 1, 0x88, page, at, 0, len];
                let writes = [2, 7, 0xE5, 0xFF, 0xFF, 9, 0xFF, 0xFF, 0xFF];
                target(&[&head[..], &number[..usize::from(len)], &writes].concat());
            }
        }
    }

    #[test]
    fn volumes_damaged_anyhow_say_nothing_else() {
        let mut random = Random::new(11);
        for _ in 0..300 {
            let mut input = vec![0; 100];
            random.fill(&mut input);
            volume(&input);
            log(&input);
        }
    }
}
