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
    /// A prefix of the calls, and any of the words of the next one; any of the words of non-temporal stores.
    Any,
}

/// A word stored and not durable.
#[derive(Clone, Copy, Debug)]
struct Pending {
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
    pending: SmallVec<[Pending; 8]>,
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

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Line)> {
        self.lines.iter().map(|(number, line)| (*number, line))
    }

    /// Stores into `image`, whose length is a multiple of [`LINE`]; the caller has checked the bounds.
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
                entry.pending.push(Pending { word: word as u8, bytes, call, non_temporal, flushed: false });
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
        let unflushed = self.lines.values().filter(|line| !line.pending.iter().all(Pending::on_its_way)).count() as u64;
        (unflushed, self.lines.len() as u64 - unflushed)
    }
}

impl Pending {
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
        // A non-temporal store overtakes other words of its line, never an earlier store of its own word.
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

    /// Calls, each with its words that are not ordered among each other.
    fn groups(&self) -> impl Iterator<Item = &[Pending]> {
        self.pending.chunk_by(|a, b| a.call == b.call || (a.non_temporal && b.non_temporal))
    }

    /// How many ways there are to survive a cut (some may give equal bytes); saturating.
    pub(super) fn choices(&self, order: WordOrder) -> u64 {
        match order {
            WordOrder::Program => self.pending.len() as u64 + 1,
            WordOrder::Any => {
                let subsets = self.groups().map(|group| subsets(group.len()));
                subsets.fold(1, u64::saturating_add)
            }
        }
    }

    /// What a cut leaves, for a choice below [`Line::choices`]; 0 leaves nothing of what is pending.
    pub(super) fn survivor(&self, order: WordOrder, choice: u64) -> [u8; LINE] {
        let mut bytes = self.durable;
        if order == WordOrder::Program {
            self.pending.iter().take(choice as usize).for_each(|pending| write(&mut bytes, pending));
            return bytes;
        }
        let mut left = choice;
        for group in self.groups() {
            let mask = left.min(subsets(group.len()));
            let kept = group.iter().enumerate().filter(|(at, _)| mask.checked_shr(*at as u32).unwrap_or(0) & 1 == 1);
            kept.for_each(|(_, pending)| write(&mut bytes, pending));
            left -= mask;
            if left == 0 {
                break;
            }
        }
        bytes
    }
}

/// Subsets of a group that are not empty.
fn subsets(words: usize) -> u64 {
    1u64.checked_shl(words as u32).map_or(u64::MAX, |subsets| subsets - 1)
}

fn write(line: &mut [u8; LINE], pending: &Pending) {
    let start = usize::from(pending.word) * WORD;
    line[start..start + WORD].copy_from_slice(&pending.bytes);
}
