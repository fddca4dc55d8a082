//! What holds for any bytes in a region and on its volume: run by the fuzzer (docs/fuzzing.md), and
//! over its corpus by a test.

mod damage;
mod machine;

use std::collections::BTreeMap;

use stratakv_base::Key;
use stratakv_base::codec::Reader;

use damage::{Damage, LAST, Sample, name, samples};
use machine::{Machine, Value, config, key};
use stratakv_engine::Error;

/// Numbers off the front of an input; zeros when it is used up.
struct Choices<'a>(Reader<'a>);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        self.0.u8().unwrap_or_default()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.u16().map_or(0, |number| usize::from(number) % bound.max(1))
    }

    /// Up to 31 bytes, after their number.
    fn some(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte() % 32);
        self.0.bytes(len.min(self.0.left())).unwrap_or_default()
    }
}

/// Opens a damaged copy of a region and a volume, asks for everything in it by gets and scans,
/// writes to it while it compacts, closes it and opens it again.
///
/// Nothing panics or goes on for ever. Where nothing was forged, no key answers anything it never
/// had, and damage of what was closed in order is never silent. What was written after that is
/// there, or its place is damaged and that is told.
///
/// # Panics
/// A property does not hold.
pub fn matrix(input: &[u8]) {
    let mut choices = Choices(Reader::new(input));
    let mode = choices.byte();
    let sample = &samples()[usize::from(mode & 1)];
    let mut damage = Damage::new(sample);
    for _ in 0..choices.byte() % 6 {
        damage.step(&mut choices);
    }
    let mut judge = Judge { sample, damage: &damage, is_any: damage.is_any(), written: BTreeMap::new() };
    let config = |session| config(session, mode & 0x30 == 0x30);
    let mut machine = match Machine::recover(config(7), damage.region(), damage.volume.clone()) {
        Ok(machine) => machine,
        Err(error) => return assert!(judge.is_any, "an undamaged shard is refused: {error}"),
    };
    judge.look(&mut machine);
    for _ in 0..choices.byte() % 32 {
        judge.write(&mut machine, &mut choices);
    }
    machine.rest(usize::from(choices.byte()));
    judge.look(&mut machine);
    let (region, volume) = if mode & 2 == 0 { machine.close() } else { machine.kill() };
    match Machine::recover(config(8), region, volume) {
        Ok(mut machine) => judge.look(&mut machine),
        Err(error) => assert!(judge.is_any, "what was opened and used is refused: {error}"),
    }
}

/// Compares what a damaged shard says with what was written to it.
struct Judge<'a> {
    sample: &'static Sample,
    damage: &'a Damage,
    is_any: bool,
    /// What keys have since it was opened; where a write failed, any of these.
    written: BTreeMap<Key, Vec<Value>>,
}

impl Judge<'_> {
    fn look(&self, machine: &mut Machine) {
        for key in self.sample.history.keys().chain(self.written.keys()) {
            let answer = machine.get(key);
            self.answer(key, &answer);
        }
        let none = machine.get(&key(b"never written"));
        self.answer(&key(b"never written"), &none);
        self.scan(machine, false);
        self.scan(machine, true);
        if !self.damage.is_forged {
            let (damage, mistakes) = machine.shard.check();
            assert!(mistakes.is_empty(), "{mistakes:?}");
            assert!(self.is_any || damage.is_empty(), "{damage:?}");
        }
    }

    /// Whether only the newest is right: nothing but what was closed in order, damaged so that
    /// checksums tell.
    fn is_strict(&self) -> bool {
        !self.is_any || self.sample.clean && !self.damage.is_inconsistent
    }

    fn answer(&self, key: &Key, answer: &Result<Value, Error>) {
        let value = match answer {
            Ok(value) => value,
            Err(error) => return assert!(self.is_any, "{key:?}: {error}"),
        };
        if !self.damage.is_forged {
            let len = value.as_ref().map(Vec::len);
            assert!(self.may_have(key, value), "{key:?} has {len:?} bytes");
        }
    }

    /// Whether a key may have this value.
    fn may_have(&self, key: &Key, value: &Value) -> bool {
        let history = self.sample.history.get(key).map(Vec::as_slice).unwrap_or_default();
        let is_last = self.is_any && key.user() == LAST;
        match self.written.get(key) {
            Some(written) if !self.damage.is_inconsistent => written.contains(value),
            Some(written) => written.contains(value) || history.contains(value),
            None if self.is_strict() && !is_last => history.last().unwrap_or(&None) == value,
            None => value.is_none() || history.contains(value),
        }
    }

    /// Forwards with values, backwards without: in order, nothing that was never written, and
    /// nothing is left out.
    fn scan(&self, machine: &mut Machine, backwards: bool) {
        let items = match machine.scan(backwards) {
            Ok(items) => items,
            Err(error) => return assert!(self.is_any, "a scan fails: {error}"),
        };
        if self.damage.is_forged {
            return;
        }
        let in_order = |pair: &[(Key, Value)]| (pair[0].0 > pair[1].0) == backwards && pair[0].0 != pair[1].0;
        assert!(items.windows(2).all(in_order), "a scan is in order");
        let found: BTreeMap<Key, Value> = items.into_iter().collect();
        for (key, value) in &found {
            let is_known = self.sample.history.contains_key(key) || self.written.contains_key(key);
            assert!(is_known, "{key:?} never was");
            assert!(backwards || self.may_have(key, value), "{key:?} has another value in a scan");
        }
        for key in self.sample.history.keys().chain(self.written.keys()).filter(|key| !found.contains_key(key)) {
            assert!(self.may_have(key, &None), "{key:?} is left out");
        }
    }

    fn write(&mut self, machine: &mut Machine, choices: &mut Choices<'_>) {
        let (kind, number) = (choices.byte(), usize::from(choices.byte()));
        if kind >= 0xF8 {
            let (from, to) = (key(&name(number)), key(&name(number + 5)));
            let result = machine.delete_range(&from, &to);
            let keys = self.sample.history.range(from.clone()..to.clone()).map(|(key, _)| key);
            let mut keys: Vec<Key> = keys.cloned().collect();
            keys.extend(self.written.range(from..to).map(|(key, _)| key.clone()));
            keys.into_iter().for_each(|key| self.note(key, None, &result));
            return;
        }
        let key = key(&name(number));
        let value = match kind {
            0..0x40 => None,
            0x40..0xF0 => Some(vec![kind; choices.below(700)]),
            _ => Some(vec![kind; choices.below(20_000)]),
        };
        let result = machine.put(&key, &value);
        self.note(key.clone(), value, &result);
        let answer = machine.get(&key);
        self.answer(&key, &answer);
    }

    fn note(&mut self, key: Key, value: Value, result: &Result<(), Error>) {
        match result {
            Ok(()) => _ = self.written.insert(key, vec![value]),
            // It may be there, or not.
            Err(Error::Unknown(_)) => match self.written.get_mut(&key) {
                Some(written) => written.push(value),
                None => {
                    let history = self.sample.history.get(&key).cloned().unwrap_or_default();
                    self.written.insert(key, [history, vec![None, value]].concat());
                }
            },
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratakv_base::random::Random;

    #[test]
    fn the_corpus_of_matrices_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/matrix");
        for file in std::fs::read_dir(folder).unwrap() {
            matrix(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    /// Else what is damaged would not be what is looked for.
    #[test]
    fn the_shards_have_what_is_to_be_damaged() {
        for sample in samples() {
            let (_, manifest) = damage::newest(&sample.volume).unwrap();
            let levels: Vec<usize> = manifest.levels.iter().map(Vec::len).collect();
            assert!(levels.iter().filter(|tables| **tables > 0).count() > 1, "{levels:?}");
            assert!(!manifest.values.is_empty() && !manifest.ranges.is_empty(), "{levels:?}");
            let machine = Machine::recover(config(2, true), sample.region.clone(), sample.volume.clone()).unwrap();
            let rows = machine.shard.container.statistics();
            assert!(rows.rows_compactor + rows.rows_receiver > 1, "{rows:?}");
        }
    }

    #[test]
    fn undamaged_shards_say_what_was_written() {
        for mode in 0..64 {
            matrix(&[mode, 0, 4, 0x80, 9, 200, 1, 0x10, 30, 0xF9, 50, 0xF4, 7, 0xFF, 0x40, mode]);
        }
    }

    #[test]
    fn shards_damaged_at_random_hold() {
        for seed in 0..300 {
            let mut input = vec![0; 200];
            Random::new(seed).fill(&mut input);
            matrix(&input);
        }
    }

    /// A judge that sees nothing would hold for everything.
    #[cfg(feature = "fault_points")]
    #[test]
    fn deliberate_defects_are_seen() {
        let input = [0x30, 0];
        matrix(&input);
        stratakv_base::fault_point::release(Some("trial_range_hides_nothing"));
        let seen = std::panic::catch_unwind(|| matrix(&input));
        stratakv_base::fault_point::release(None);
        assert!(seen.is_err());
    }

    /// Every field of what says what the others are, in turn, behind checksums that match.
    #[test]
    fn forged_numbers_do_no_harm() {
        let writes = [3, 0x80, 9, 200, 1, 0x10, 30, 0xF9, 50, 40];
        for (part, number, at) in (0..5u8)
            .flat_map(|part| (0..2u8).flat_map(move |number| (0..96u8).step_by(4).map(move |at| (part, number, at))))
        {
            for (len, bytes) in [(8, [0xFF; 8]), (4, [0xFF; 8]), (8, [0; 8]), (1, [0x77; 8])] {
                let head = [0, 1, 4, part, number, 0, at, 0, len];
                matrix(&[&head[..], &bytes[..usize::from(len)], &writes].concat());
            }
        }
        for (kind, at) in (0..2u8).flat_map(|kind| (0..124u8).map(move |at| (kind, at))) {
            for (len, bytes) in [(8, [0xFF; 8]), (4, [0xFF; 8]), (8, [0; 8]), (2, [0xFF, 0x7F, 0, 0, 0, 0, 0, 0])] {
                let head = [0, 1, 6, kind, at, 0, len];
                matrix(&[&head[..], &bytes[..usize::from(len)], &writes].concat());
            }
        }
    }
}
