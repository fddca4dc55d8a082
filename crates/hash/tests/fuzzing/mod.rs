//! What holds for any bytes in a region: run by the fuzzer (docs/fuzzing.md), and over its corpus
//! by a test.

use std::ops::Bound;

use bytes::Bytes;
use smallvec::smallvec;
use stratakv_base::codec::Reader;
use stratakv_base::{CollectionId, Expiry, Key, Mono, Now, Wall};
use stratakv_engine::{Change, ChangeKind, Error, Expect, PageRequest, Record, Shared};
use stratakv_pmem::{MapOptions, Mapping, Pmem};

use crate::hash::{Hash, HashOptions};
use crate::layout::{COMMITS, First, Kind, LEASE_AT, Named, PAGE, Superblock, WORDS_AT, commit_at, root_word};

const UUID: [u8; 16] = *b"a fuzzed region ";
const NOW: Wall = Wall(1000);
const KEYS: usize = 12;
const REGION_BYTES: u64 = 24 * 4096;

/// Numbers off the front of an input; zeros when it is used up.
struct Choices<'a>(Reader<'a>);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        self.0.u8().unwrap_or_default()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.u16().map_or(0, |number| usize::from(number) % bound.max(1))
    }

    fn u64(&mut self) -> u64 {
        self.0.u64().unwrap_or_default()
    }
}

/// Flags and value; `None`: no record.
type State = Option<(u32, Vec<u8>)>;

/// What keys may answer.
#[derive(Default)]
struct History {
    /// Every state each key ever had; the last one is what it has now.
    states: [Vec<State>; KEYS],
    /// Written again after the damage: only the last state is right.
    is_sure: [bool; KEYS],
    writes: usize,
}

impl History {
    fn latest(&self, key: usize) -> Option<&(u32, Vec<u8>)> {
        self.states[key].last()?.as_ref()
    }

    fn set(&mut self, key: usize, state: State) {
        self.states[key].push(state);
        self.is_sure[key] = true;
    }

    /// # Panics
    /// A key answers what it cannot.
    fn check(&self, key: usize, found: &Result<State, Error>) {
        match found {
            Ok(found) if self.is_sure[key] => assert_eq!(found.as_ref(), self.latest(key), "key {key}"),
            Ok(None) => {}
            Ok(found) => assert!(self.states[key].contains(found), "key {key} never had {found:?}"),
            Err(error) => {
                assert!(matches!(error, Error::Corrupt(_)) && !self.is_sure[key], "key {key}: {error}");
            }
        }
    }
}

/// Half of the keys are in a collection that is in order.
fn key(number: usize) -> Key {
    let name = format!("{number}{}", "k".repeat(number * number));
    Key::bound(CollectionId(number as u32 % 2), name.as_bytes())
}

fn state_of(record: Option<Record>) -> State {
    record.map(|record| (record.flags, record.value.to_bytes().to_vec()))
}

/// A value that no other write has.
fn value(write: usize, len: usize) -> Vec<u8> {
    (0..len.max(2)).map(|at| (write >> (at % 2 * 8)) as u8 ^ (at / 2) as u8).collect()
}

fn memory(image: &[u8]) -> Mapping {
    let memory = Mapping::anonymous(REGION_BYTES, MapOptions::default()).expect("memory");
    memory.store(0, image).expect("it is as long");
    memory
}

fn image(hash: &Hash<Mapping>) -> Vec<u8> {
    let mut image = vec![0; REGION_BYTES as usize];
    hash.pmem().load(0, &mut image).expect("it is as long");
    image
}

/// A store that was used, then damaged, forged and taken back in part: it is refused, or opened,
/// read and written.
///
/// Nothing panics or goes on for ever, and no key answers anything it never had. One bit that turns
/// is never silent. What is written after that is there for good.
///
/// # Panics
/// A property does not hold.
pub fn region(input: &[u8]) {
    let mut choices = Choices(Reader::new(input));
    let (mode, mut history) = (choices.byte(), History::default());
    let options = HashOptions {
        uuid: UUID,
        block_bytes: if mode & 1 == 0 { 64 } else { 32 },
        segment_bytes: if mode & 2 == 0 { 4096 } else { 16384 },
    };
    let hash = Hash::create(memory(&[]), options).expect("it is long enough");
    (0..choices.below(40)).for_each(|_| write(&hash, &mut history, &mut choices));
    let older = image(&hash);
    (0..choices.below(20)).for_each(|_| write(&hash, &mut history, &mut choices));
    read(&hash, &history);
    let before = image(&hash);
    let mut damage = Damage { image: before.clone(), older, block_bytes: options.block_bytes as usize };
    (0..choices.byte() % 8).for_each(|_| damage.step(&mut choices));
    let turned: u32 = damage.image.iter().zip(&before).map(|(now, before)| (now ^ before).count_ones()).sum();
    history.is_sure = [turned == 0; KEYS];
    let hash = match Hash::open(memory(&damage.image), 1) {
        Ok(hash) => hash,
        Err(error) => {
            assert!(damage.image[..2 * PAGE as usize] != before[..2 * PAGE as usize], "{error}");
            return;
        }
    };
    let lost = read(&hash, &history);
    // Scrubs all of it.
    while hash.maintain(Now { mono: Mono(0), wall: NOW }) {}
    assert!(turned != 1 || lost == 0 || hash.report().damaged > 0, "{lost} keys lost what they had without a word");
    (0..choices.below(30)).for_each(|_| write(&hash, &mut history, &mut choices));
    read(&hash, &history);
    let hash = Hash::open(hash.into_pmem(), 2).expect("what was opened is opened again");
    read(&hash, &history);
}

/// A put, a delete, or a batch of both.
fn write(hash: &Hash<Mapping>, history: &mut History, choices: &mut Choices<'_>) {
    let kind = choices.byte();
    let count = if kind & 3 == 3 { 1 + choices.byte() as usize % 4 } else { 1 };
    let first = choices.byte() as usize;
    let mut states = Vec::new();
    for at in 0..count {
        let is_long = choices.byte() & 15 == 0;
        let len = choices.below(if is_long { 6000 } else { 200 });
        history.writes += 1;
        let removes = kind >> 2 >> at & 3 == 3;
        states.push(((first + at * 5) % KEYS, (!removes).then(|| (u32::from(kind >> 6), value(history.writes, len)))));
    }
    let written = match &states[..] {
        [(number, None)] => hash.delete(&key(*number), Expect::Any, NOW),
        [(number, Some((flags, value)))] => hash.put(&key(*number), value, (*flags, Expiry::NEVER), Expect::Any, NOW),
        all => hash.write(&all.iter().map(|(number, state)| change(*number, state)).collect::<Vec<_>>(), NOW),
    };
    match written {
        Ok(_) => states.into_iter().for_each(|(number, state)| history.set(number, state)),
        Err(Error::Full(_) | Error::Corrupt(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

fn change(number: usize, state: &State) -> Change {
    let kind = match state {
        Some((flags, value)) => {
            ChangeKind::Put { value: Bytes::copy_from_slice(value), flags: *flags, expiry: Expiry::NEVER }
        }
        None => ChangeKind::Delete,
    };
    Change { key: key(number), expect: Expect::Any, kind }
}

/// Gets every key, and pages through those that are in order; how many are not what they were last.
fn read(hash: &Hash<Mapping>, history: &History) -> usize {
    let mut lost = 0;
    for number in 0..KEYS {
        let found = hash.get(&key(number), NOW).map(state_of);
        history.check(number, &found);
        lost += usize::from(!found.is_ok_and(|found| found.as_ref() == history.latest(number)));
    }
    let mut from = Bound::Included(Key::bound(CollectionId(1), b""));
    for _ in 0..=KEYS {
        let to = Bound::Excluded(Key::bound(CollectionId(2), b""));
        let request =
            PageRequest { from, to, reverse: false, keys_only: false, items_max: 3, bytes_max: 1 << 20, at: None };
        let Ok((items, next)) = hash.page(&request, NOW) else { break };
        for item in items {
            let number = (0..KEYS).find(|number| key(*number) == item.key).expect("a key of ours");
            history.check(number, &Ok(state_of(item.record)));
        }
        let Some(next) = next else { return lost };
        from = next;
    }
    lost
}

/// What happens to a region.
struct Damage {
    image: Vec<u8>,
    older: Vec<u8>,
    block_bytes: usize,
}

impl Damage {
    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 10 {
            0..3 => {
                let at = choices.u64() as usize % self.image.len();
                self.image[at] ^= choices.byte();
            }
            3 => {
                // In the first line of an extent, if there is one.
                let at = self.block(choices) + choices.byte() as usize % 64;
                self.image[at] ^= 1 << (choices.byte() % 8);
            }
            4 => {
                let (at, byte) = (choices.below(self.image.len() / 64) * 64, choices.byte());
                let end = (at + (choices.below(64) + 1) * 64).min(self.image.len());
                self.image[at..end].fill(byte);
            }
            5 => {
                let at = choices.below(self.image.len() / 64) * 64;
                let end = (at + (choices.below(64) + 1) * 64).min(self.image.len());
                self.image[at..end].copy_from_slice(&self.older[at..end]);
            }
            6 => self.forge_first(choices),
            7 => self
                .forge_root(WORDS_AT + 8 * choices.below(24) as u64, choices.u64() % 4 + ((choices.u64() % 64) << 8)),
            8 => {
                let at = self.block(choices);
                let version = self.word(at + 8);
                self.forge_root(commit_at(choices.u64() % COMMITS), version);
            }
            _ => match choices.byte() % 2 {
                0 => self.forge_root(LEASE_AT, choices.u64()),
                _ => self.forge_superblock(choices),
            },
        }
    }

    /// A block of the segments.
    fn block(&self, choices: &mut Choices<'_>) -> usize {
        let first = WORDS_AT as usize + PAGE as usize;
        first + choices.below((self.image.len() - first - 64) / self.block_bytes) * self.block_bytes
    }

    fn word(&self, at: usize) -> u64 {
        self.image[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn set_word(&mut self, at: usize, word: u64) {
        self.image[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// A first word that checks, where one was or anywhere.
    fn forge_first(&mut self, choices: &mut Choices<'_>) {
        let at = self.block(choices);
        let there = First::decode(&UUID, at as u64, self.word(at));
        let [kind, blocks, key_bytes] = [choices.byte(), choices.byte(), choices.byte()];
        let kinds = [Kind::Free, Kind::Record, Kind::Member, Kind::Removal];
        let mut first = there.unwrap_or(First { kind: Kind::Free, blocks: 1, key_bytes: 0 });
        first.kind = kinds[usize::from(kind % 4)];
        if blocks != 0 {
            first.blocks = u32::from(blocks) << (blocks >> 5 & 3);
        }
        if key_bytes != 0 {
            first.key_bytes = u32::from(key_bytes);
        }
        self.set_word(at, first.encode(&UUID, at as u64));
    }

    fn forge_root(&mut self, at: u64, value: u64) {
        self.set_word(at as usize, root_word(&UUID, at, value & ((1 << 48) - 1)));
    }

    fn forge_superblock(&mut self, choices: &mut Choices<'_>) {
        let superblock = Superblock {
            block_bytes: 32 << (choices.byte() % 3),
            segment_bytes: 4096 << (choices.byte() % 10),
            parts: match choices.byte() & 3 {
                0 => smallvec![Named::first(REGION_BYTES)],
                1 => smallvec![Named::first(choices.u64())],
                2 => [12, 4, 8].iter().map(|pages| Named::first(pages * PAGE)).collect(),
                _ => (0..choices.below(5)).map(|_| Named::first(choices.u64() >> (choices.byte() % 64))).collect(),
            },
            uuid: if choices.byte() & 1 == 0 { UUID } else { [choices.byte(); 16] },
        };
        let bytes = superblock.encode();
        for at in [0, PAGE as usize] {
            self.image[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratakv_base::random::Random;

    #[test]
    fn the_corpus_of_regions_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/region");
        for file in std::fs::read_dir(folder).unwrap() {
            region(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn regions_damaged_at_random_hold() {
        for seed in 0..3000 {
            let mut input = vec![0; 600];
            Random::new(seed).fill(&mut input);
            region(&input);
        }
    }
}
