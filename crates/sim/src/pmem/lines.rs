//! Cache lines whose stores the medium need not have yet.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::LINE_BYTES;

pub(super) const LINE: usize = LINE_BYTES as usize;
const WORD: usize = 8;

/// Which words of a line may survive without which others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WordOrder {
    /// A prefix of all words stored, each call's in ascending order.
    #[default]
    Program,
    /// A prefix of the calls, and any of the words of the next one; any of the words of
    /// non-temporal stores.
    Any,
}

/// A word stored and not durable.
#[derive(Clone, Copy, Debug)]
struct PendingWord {
    /// Which of the line's eight.
    word: u8,
    bytes: [u8; WORD],
    /// Number of the call that stored it.
    call: u32,
    non_temporal: bool,
    /// A flush came after it.
    flushed: bool,
}

/// A line with stores that are not durable.
#[derive(Clone, Debug)]
pub(super) struct Line {
    durable: [u8; LINE],
    pending: SmallVec<[PendingWord; 8]>,
}

/// All of them, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    lines: BTreeMap<u64, Line>,
    /// Lines the next fence has something to do for; a line may occur twice.
    fencing: Vec<u64>,
    calls: u32,
}

impl Lines {
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.fencing.clear();
    }

    /// Lines, by their first byte.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().map(|(number, line)| (*number as usize * LINE, line))
    }

    /// Stores into `image`, whose length is a multiple of [`LINE`]; the caller has checked the
    /// bounds.
    pub(super) fn store(&mut self, image: &mut [u8], offset: usize, bytes: &[u8], non_temporal: bool) {
        self.calls = self.calls.wrapping_add(1);
        let (mut at, mut left) = (offset, bytes);
        while !left.is_empty() {
            let number = (at / LINE) as u64;
            let start = at - at % LINE;
            let (now, later) = left.split_at(left.len().min(start + LINE - at));
            let line = &mut image[start..start + LINE];
            let entry = self.lines.entry(number).or_insert_with(|| Line::clean(line));
            line[at - start..at - start + now.len()].copy_from_slice(now);
            for word in (at - start) / WORD..(at - start + now.len()).div_ceil(WORD) {
                let mut bytes = [0; WORD];
                bytes.copy_from_slice(&line[word * WORD..(word + 1) * WORD]);
                let call = self.calls;
                entry.pending.push(PendingWord { word: word as u8, bytes, call, non_temporal, flushed: false });
            }
            if non_temporal {
                self.fencing.push(number);
            }
            (at, left) = (at + now.len(), later);
        }
    }

    /// Flushes lines; whether one of them needed it.
    pub(super) fn flush(&mut self, lines: std::ops::RangeInclusive<u64>) -> bool {
        let mut needed = false;
        for (number, line) in self.lines.range_mut(lines) {
            needed |= line.pending.iter().any(|pending| !pending.flushed && !pending.non_temporal);
            line.pending.iter_mut().for_each(|pending| pending.flushed = true);
            self.fencing.push(*number);
        }
        needed
    }

    /// Makes what was flushed durable; whether there was anything.
    pub(super) fn fence(&mut self) -> bool {
        let needed = !self.fencing.is_empty();
        for number in self.fencing.drain(..) {
            let Some(line) = self.lines.get_mut(&number) else { continue };
            line.fence();
            if line.pending.is_empty() {
                self.lines.remove(&number);
            }
        }
        needed
    }

    /// Lines with stores that were never flushed, and lines flushed and not fenced.
    pub(super) fn unfinished(&self) -> (u64, u64) {
        let unflushed =
            self.lines.values().filter(|line| !line.pending.iter().all(PendingWord::on_its_way)).count() as u64;
        (unflushed, self.lines.len() as u64 - unflushed)
    }
}

impl PendingWord {
    fn on_its_way(&self) -> bool {
        self.flushed || self.non_temporal
    }
}

impl Line {
    fn clean(bytes: &[u8]) -> Line {
        let mut durable = [0; LINE];
        durable.copy_from_slice(bytes);
        Line { durable, pending: SmallVec::new() }
    }

    fn fence(&mut self) {
        // A flush covers everything before it: what it covers is a prefix.
        let covered = self.pending.iter().rposition(|pending| pending.flushed).map_or(0, |last| last + 1);
        for pending in self.pending.drain(..covered) {
            write(&mut self.durable, &pending);
        }
        // A non-temporal store overtakes other words of its line, never an earlier store of its own
        // word.
        while let Some(at) = self.pending.iter().position(|pending| pending.non_temporal) {
            let done = self.pending.remove(at);
            write(&mut self.durable, &done);
            let mut position = 0;
            self.pending.retain(|pending| {
                position += 1;
                position > at || pending.word != done.word
            });
        }
    }

    /// Words that are not durable.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// What loads see.
    pub(super) fn current(&self) -> [u8; LINE] {
        let mut bytes = self.durable;
        self.pending.iter().for_each(|pending| write(&mut bytes, pending));
        bytes
    }

    /// How many ways there are to survive a cut (some may give equal bytes); saturating.
    pub(super) fn choices(&self, order: WordOrder) -> u64 {
        let past_cache = self.choices_nt(order);
        let ordinary = match order {
            WordOrder::Program => self.ordinary().count() as u64 + 1,
            WordOrder::Any => self.calls().iter().map(|words| subsets(*words) - 1).fold(1, u64::saturating_add),
        };
        ordinary.saturating_mul(past_cache)
    }

    /// What a cut leaves, for a choice below [`Line::choices`]; 0 leaves nothing of what is
    /// pending, the last one all.
    pub(super) fn survivor(&self, order: WordOrder, choice: u64) -> [u8; LINE] {
        let past_cache = self.choices_nt(order);
        let prefix_of = |choice| (choice, 0);
        let (ordinary, non_temporal) = match order {
            WordOrder::Program => (prefix_of(choice / past_cache), prefix_of(choice % past_cache)),
            WordOrder::Any => (self.calls_kept(choice / past_cache), (0, choice % past_cache)),
        };
        let mut bytes = self.durable;
        let mut seen = [0, 0];
        for pending in &self.pending {
            let (prefix, mask) = if pending.non_temporal { non_temporal } else { ordinary };
            let at = &mut seen[usize::from(pending.non_temporal)];
            if *at < prefix || (mask >> (*at - prefix).min(63)) & 1 == 1 {
                write(&mut bytes, pending);
            }
            *at += 1;
        }
        bytes
    }

    fn ordinary(&self) -> impl Iterator<Item = &PendingWord> {
        self.pending.iter().filter(|pending| !pending.non_temporal)
    }

    fn choices_nt(&self, order: WordOrder) -> u64 {
        let words = (self.pending.len() - self.ordinary().count()) as u64;
        if order == WordOrder::Program { words + 1 } else { subsets(words) }
    }

    /// Words of each ordinary call.
    fn calls(&self) -> SmallVec<[u64; 8]> {
        let mut calls = SmallVec::new();
        let mut last = None;
        for pending in self.ordinary() {
            match calls.last_mut() {
                Some(words) if last == Some(pending.call) => *words += 1,
                _ => calls.push(1),
            }
            last = Some(pending.call);
        }
        calls
    }

    /// A choice as the number of words kept of whole calls, and which of the next call's.
    fn calls_kept(&self, mut choice: u64) -> (u64, u64) {
        let mut words_kept = 0;
        for words in self.calls() {
            if choice < subsets(words) {
                return (words_kept, choice);
            }
            choice -= subsets(words) - 1;
            words_kept += words;
        }
        (words_kept, 0)
    }
}

/// Subsets of so many words, as far as they can be told apart by 63 bits.
fn subsets(words: u64) -> u64 {
    1 << words.min(63)
}

fn write(line: &mut [u8; LINE], pending: &PendingWord) {
    let start = usize::from(pending.word) * WORD;
    line[start..start + WORD].copy_from_slice(&pending.bytes);
}
