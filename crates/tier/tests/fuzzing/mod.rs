//! What holds for any bytes on a volume: run by the fuzzer (docs/fuzzing.md), and over its corpus
//! by a test.

mod damage;
mod machine;

use std::collections::BTreeMap;

use stratakv_base::codec::Reader;
use stratakv_base::{CollectionId, Key};
use stratakv_engine::Error;

use crate::TierConfig;
use damage::{Damage, Sample, key, samples};
use machine::{Machine, Value, config};

/// Numbers off the front of an input; zeros when it is used up.
struct Choices<'a>(Reader<'a>);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        self.0.u8().unwrap_or_default()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.u16().map_or(0, |number| usize::from(number) % bound.max(1))
    }

    /// Up to `len` bytes.
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        self.0.bytes(len.min(self.0.left())).unwrap_or_default()
    }
}

/// Opens a damaged copy of a volume, verifies it, asks for everything in it, writes to it, ends it
/// in order or by a kill, and opens it again.
///
/// Nothing panics or goes on for ever, and the engine's own accounting holds. A key answers its
/// newest value or nothing, never an older one or another's; where something was forged, or a root
/// of before was put back, it may be an older one. Of a volume that was closed in order nothing is
/// missing without a word by `verify`. What is written after that is the newest or absent.
///
/// # Panics
/// A property does not hold.
pub fn cache(input: &[u8]) {
    let mut choices = Choices(Reader::new(input));
    let mode = choices.byte();
    let sample = &samples()[usize::from(mode & 1)];
    let mut damage = Damage::new(sample);
    for _ in 0..choices.byte() % 8 {
        damage.step(&mut choices);
    }
    damage.forge();
    let boot = if mode & 0x70 == 0x70 { [2; 16] } else { [1; 16] };
    let config = TierConfig { boot: Some(boot), ..config() };
    let mut judge = Judge::new(sample, &damage, boot == [1; 16] || sample.clean);
    if mode & 2 != 0 {
        let config = TierConfig { read_only: true, ..config.clone() };
        if let Ok(mut machine) = Machine::recover(config, damage.image.clone(), mode.into()) {
            // What a get cannot read is forgotten, and not looked for again.
            let found = machine.verify();
            let missing = judge.look(&mut machine, 0);
            let is_said = !found.damage.is_empty() || !found.unreadable.is_empty();
            let is_told = is_said || judge.may_be_older || !sample.clean || missing == 0;
            assert!(is_told, "{missing} keys are missing without a word: {found:?}");
            assert!(judge.is_any || found.damage.is_empty(), "{found:?}");
        }
    }
    let mut machine = match Machine::recover(config.clone(), damage.image, mode.into()) {
        Ok(machine) => machine,
        Err(error) => return assert!(judge.is_any, "an undamaged volume is refused: {error}"),
    };
    judge.look(&mut machine, choices.byte());
    for _ in 0..choices.byte() % 16 {
        judge.write(&mut machine, &mut choices);
    }
    machine.rest();
    judge.account(&machine);
    let is_killed = mode & 4 != 0;
    judge.is_sure = !is_killed || !judge.may_be_older;
    let image = if is_killed { machine.kill() } else { machine.close() };
    match Machine::recover(config, image, mode.into()) {
        Ok(mut machine) => judge.look_again(&mut machine),
        Err(error) => panic!("what was opened and used is refused: {error}"),
    }
}

/// Compares what a damaged volume says with what was written to it.
struct Judge {
    sample: &'static Sample,
    is_any: bool,
    /// It counts at all: the system is the same, or the end was in order.
    counts: bool,
    /// Older values may come back.
    may_be_older: bool,
    /// What was written since it was opened is not forgotten for something older.
    is_sure: bool,
    /// Since it was opened; the last one is what the key has.
    written: BTreeMap<Key, Vec<Value>>,
}

impl Judge {
    fn new(sample: &'static Sample, damage: &Damage, counts: bool) -> Judge {
        let may_be_older = damage.is_lying || !damage.forged.is_empty();
        let is_any = damage.is_any();
        Judge { sample, is_any, counts, may_be_older, is_sure: true, written: BTreeMap::new() }
    }

    /// Asks for everything; how many keys are missing that an undamaged volume has.
    fn look(&self, machine: &mut Machine, step: u8) -> usize {
        let mut missing = 0;
        for (key, answer) in &self.sample.answers {
            let found = match step {
                // All of it at once, or slice by slice.
                0..0x80 => machine.get(key),
                _ => machine.get_slices(key, u32::from(step & 0x7F) << 8 | 0xFF),
            };
            missing += usize::from(answer.is_some() && found.is_none());
            if machine.is_read_only() && !self.is_any && self.counts {
                assert!(found == *answer, "{key:?} of an undamaged volume");
            }
            self.answer(key, &found);
        }
        assert_eq!(machine.get(&key(100_000)), None, "it was never written");
        self.account(machine);
        missing
    }

    fn answer(&self, key: &Key, found: &Value) {
        let Some(value) = found else { return };
        let history = self.sample.history.get(key).map(Vec::as_slice).unwrap_or_default();
        match self.written.get(key).and_then(|written| written.last()) {
            Some(newest) if self.is_sure => assert!(newest == found, "{key:?} was written since"),
            Some(_) => {
                let mut all = history.iter().chain(&self.written[key]);
                assert!(all.any(|had| had == found), "{key:?} never had {} bytes", value.len());
            }
            None if self.may_be_older => {
                assert!(history.contains(found), "{key:?} never had {} bytes", value.len());
            }
            None => assert!(history.last() == Some(found), "{key:?} has an older value, or another's"),
        }
    }

    fn write(&mut self, machine: &mut Machine, choices: &mut Choices<'_>) {
        let kind = choices.byte();
        if kind >= 0xF0 {
            let collection = u32::from(kind) % 3;
            let result = machine.flush(collection);
            self.can_be_written(&result);
            let keys = self.sample.history.keys().chain(self.written.keys()).cloned();
            let keys: Vec<Key> = keys.filter(|key| key.collection() == CollectionId(collection)).collect();
            keys.into_iter().for_each(|key| self.note(&key, None, &result));
            return;
        }
        // Of those that there are, or another one.
        let key = key(choices.below(600));
        let value = match kind {
            0..0x40 => None,
            _ => Some(vec![kind; choices.below(if kind < 0xE0 { 4_000 } else { 40_000 })]),
        };
        let result = machine.put(&key, &value);
        self.can_be_written(&result);
        self.note(&key, value, &result);
        self.answer(&key, &machine.get(&key));
    }

    fn can_be_written(&self, result: &Result<(), Error>) {
        if let Err(error) = result {
            panic!("a cache takes everything: {error}");
        }
    }

    fn note(&mut self, key: &Key, value: Value, result: &Result<(), Error>) {
        if result.is_ok() {
            self.written.entry(key.clone()).or_default().push(value);
        }
    }

    fn look_again(&self, machine: &mut Machine) {
        for key in self.written.keys().chain(self.sample.history.keys()) {
            self.answer(key, &machine.get(key));
        }
        self.account(machine);
    }

    /// The engine's own accounting.
    fn account(&self, machine: &Machine) {
        let mistakes = machine.shard.check();
        assert!(mistakes.is_empty(), "{mistakes:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratakv_base::random::Random;

    #[test]
    fn the_corpus_of_caches_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/cache");
        for file in std::fs::read_dir(folder).unwrap() {
            cache(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    /// Else what is damaged would not be what is looked for.
    #[test]
    fn the_volumes_have_what_is_to_be_damaged() {
        for sample in samples() {
            let machine = Machine::recover(config(), sample.image.clone(), 1).unwrap();
            let report = machine.shard.recovery().clone();
            assert!(report.segments > 20 && report.items > 100, "{report:?}");
            assert!(sample.clean || report.invalidated > 200, "{report:?}");
            let tail = &machine.shard.volume.as_ref().unwrap().journal.tail();
            assert!(sample.clean || tail.next > tail.first && !tail.flush_watermarks.is_empty(), "{tail:?}");
            let lens = sample.answers.values().flatten().map(Vec::len);
            assert!(lens.clone().any(|len| len > 20_000), "a value has slices: {:?}", lens.collect::<Vec<_>>());
        }
    }

    #[test]
    fn undamaged_caches_say_what_was_written() {
        for mode in 0..=255 {
            cache(&[mode, 0, mode, 9, 0xE5, 7, 0, 0xFF, 0xF0, 0x50, 3, 1, 0xFF, 1, 0x20, 9, 0, 0xF3]);
        }
    }

    #[test]
    fn caches_damaged_at_random_hold() {
        for seed in 0..300 {
            let mut input = vec![0; 200];
            Random::new(seed).fill(&mut input);
            cache(&input);
        }
    }

    /// A judge that sees nothing would hold for everything.
    #[cfg(feature = "fault_points")]
    #[test]
    fn deliberate_defects_are_seen() {
        samples();
        // Nothing is damaged; and pages of the log that lie elsewhere.
        let undamaged = vec![vec![3, 0, 1, 0, 0]];
        let misplaced: Vec<Vec<u8>> = (10..250).map(|page| vec![0, 1, 32, page, 0, 0, 0, page ^ 1, 0]).collect();
        for (name, inputs) in
            [("tier_journal_not_read", undamaged), ("tier_recycled_segment_read_unverified", misplaced)]
        {
            stratakv_base::fault_point::release(Some(name));
            let is_seen = inputs.iter().any(|input| std::panic::catch_unwind(|| cache(input)).is_err());
            stratakv_base::fault_point::release(None);
            assert!(is_seen, "{name}");
            inputs.iter().for_each(|input| cache(input));
        }
    }

    /// Every field of what says what the others are, in turn, behind checksums that match.
    #[test]
    fn forged_numbers_do_no_harm() {
        for (page, at) in (0..8u8).flat_map(|page| (8..184u8).step_by(8).map(move |at| (page, at))) {
            for (mode, number) in [(1, [0xFF; 8]), (2, [0xFF; 8]), (7, [0; 8]), (2, [0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0])]
            {
                let head = [mode, 1, 0xC8, page, at, 0, 8];
                let writes = [0, 3, 0xE5, 7, 0, 0xFF, 0xF0, 0x50, 3, 1, 0xFF, 1, 0xF3];
                cache(&[&head[..], &number, &writes].concat());
            }
        }
    }
}
