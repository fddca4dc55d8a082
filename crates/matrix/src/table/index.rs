//! Index blocks: the blocks below, and between each two of them a separator.

use std::cmp::Ordering;

use super::page::{Block, CONTENTS_BYTES};
use super::shared_bytes;
use crate::cursor::Stop;

/// The shortest bytes that are not before `last` and before `next`; `last` if they are one key.
pub(super) fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let shared = shared_bytes(last, next);
    let (Some(low), Some(high)) = (last.get(shared), next.get(shared)) else { return last.to_vec() };
    let up_to = |len: usize, byte: u8| last[..len].iter().copied().chain([byte]).collect();
    if last.len() == shared + 1 {
        last.to_vec()
    } else if u16::from(*low) + 1 < u16::from(*high) {
        up_to(shared, low + 1)
    } else if next.len() > shared + 1 {
        up_to(shared, *high)
    } else {
        // `next` itself is the only one as short as this: make a later byte of `last` greater.
        let later = last[shared + 1..].iter().position(|byte| *byte != 0xff).map(|skipped| shared + 1 + skipped);
        match later {
            Some(at) if at + 1 < last.len() => up_to(at, last[at] + 1),
            _ => last.to_vec(),
        }
    }
}

/// One level of an index that is being built: blocks below in order, and the separators between
/// them.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub children: Vec<u32>,
    /// Where each separator ends in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Level {
    /// A further block; `separator` lies between it and the one before, if there is one.
    pub fn push(&mut self, child: u32, separator: Option<&[u8]>) {
        if let Some(separator) = separator {
            self.bytes.extend_from_slice(separator);
            self.ends.push(self.bytes.len());
        }
        self.children.push(child);
        debug_assert_eq!(self.children.len(), self.ends.len() + 1);
    }

    /// About the bytes that index blocks of this level take.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.children.len() * 6
    }

    fn separator(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[number]]
    }

    /// Writes the block of children from `first` on into `contents`, which it clears: as many as
    /// fit in a page, at least two where there are two. Returns its children, and the separator
    /// behind it.
    pub fn block(&self, first: usize, contents: &mut Vec<u8>) -> (usize, Option<&[u8]>) {
        let count = self.fitting(first);
        let separators = first..first + count - 1;
        let prefix = self.prefix(separators.clone());
        contents.clear();
        contents.extend_from_slice(&(prefix.len() as u32).to_le_bytes());
        for child in &self.children[first..first + count] {
            contents.extend_from_slice(&child.to_le_bytes());
        }
        let mut end = 0;
        for number in separators.clone() {
            end += self.separator(number).len() - prefix.len();
            contents.extend_from_slice(&(end as u16).to_le_bytes());
        }
        contents.extend_from_slice(prefix);
        for number in separators {
            contents.extend_from_slice(&self.separator(number)[prefix.len()..]);
        }
        let behind = first + count - 1;
        (count, (behind < self.ends.len()).then(|| self.separator(behind)))
    }

    /// What all these separators have in common: they ascend, so the first and the last tell.
    fn prefix(&self, separators: std::ops::Range<usize>) -> &[u8] {
        let Some(last) = separators.clone().last() else { return &[] };
        let (first, last) = (self.separator(separators.start), self.separator(last));
        &first[..shared_bytes(first, last)]
    }

    fn fitting(&self, first: usize) -> usize {
        let left = self.children.len() - first;
        let (mut sum, mut prefix) = (0, usize::MAX);
        for count in 2..=left {
            let separator = self.separator(first + count - 2);
            sum += separator.len();
            prefix = prefix.min(shared_bytes(self.separator(first), separator));
            let bytes = 4 + 4 * count + 2 * (count - 1) + sum - (count - 2) * prefix;
            if bytes > CONTENTS_BYTES && count > 2 {
                return count - 1;
            }
        }
        left
    }
}

/// The contents of an index block.
pub(super) struct Index<'a> {
    children: &'a [[u8; 4]],
    ends: &'a [[u8; 2]],
    prefix: &'a [u8],
    suffixes: &'a [u8],
}

impl<'a> Index<'a> {
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn new(block: &'a Block) -> Result<Index<'a>, Stop> {
        Index::split(block).ok_or_else(|| block.damaged("children and separators", "others"))
    }

    fn split(block: &'a Block) -> Option<Index<'a>> {
        let children = usize::from(block.header.entries);
        let (prefix_bytes, rest) = block.contents().split_first_chunk::<4>()?;
        let (numbers, rest) = rest.split_at_checked(children * 4)?;
        let (ends, rest) = rest.split_at_checked(children.checked_sub(1)? * 2)?;
        let (prefix, suffixes) = rest.split_at_checked(u32::from_le_bytes(*prefix_bytes) as usize)?;
        Some(Index { children: numbers.as_chunks().0, ends: ends.as_chunks().0, prefix, suffixes })
    }

    /// How many blocks are below.
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// The first page of a block below.
    pub fn child(&self, position: usize) -> Option<u32> {
        self.children.get(position).map(|child| u32::from_le_bytes(*child))
    }

    /// Which block below has the first key that is not before `key`, unless that is the first of
    /// the block behind it. O(log children).
    pub fn position(&self, key: &[u8]) -> Option<usize> {
        let common = key.len().min(self.prefix.len());
        let (head, rest) = key.split_at_checked(common)?;
        match head.cmp(self.prefix) {
            Ordering::Less => return Some(0),
            Ordering::Greater => return Some(self.ends.len()),
            Ordering::Equal => {}
        }
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.suffix(middle)? < rest { low = middle + 1 } else { high = middle }
        }
        Some(low)
    }

    #[inline]
    fn suffix(&self, number: usize) -> Option<&'a [u8]> {
        let end = |number: usize| self.ends.get(number).map(|end| usize::from(u16::from_le_bytes(*end)));
        let start = number.checked_sub(1).map_or(Some(0), end)?;
        self.suffixes.get(start..end(number)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 0x7f, 0xfe, 0xff]), 1..6)
    }

    #[test]
    fn separators_are_short() {
        assert_eq!(separator(b"abcdef", b"abq"), b"abd");
        assert_eq!(separator(b"abcdef", b"abd"), b"abce", "a later byte grows, as `abd` is the next key");
        assert_eq!(separator(b"abcdef", b"abdx"), b"abd");
        assert_eq!(separator(b"ab", b"abc"), b"ab");
        assert_eq!(separator(b"ab", b"ab"), b"ab");
        assert_eq!(separator(b"a\xff\xff\xff", b"b"), b"a\xff\xff\xff");
    }

    proptest! {
        #[test]
        fn no_separator_is_shorter(a in key(), b in key()) {
            let (last, next) = if a <= b { (a, b) } else { (b, a) };
            let found = separator(&last, &next);
            prop_assert!(last <= found && (found < next || last == next));
            if last != next {
                // Of each length below, the greatest bytes before `next` are before `last`.
                for len in 0..found.len() {
                    let greatest = if len < next.len() { next[..len].to_vec() } else { just_before(&next, len) };
                    prop_assert!(greatest < last || greatest >= next, "{greatest:?} lies between {last:?} and {next:?}");
                }
            }
        }
    }

    /// The greatest bytes of length `len` before `next`, which is not longer.
    fn just_before(next: &[u8], len: usize) -> Vec<u8> {
        let mut bytes = next.to_vec();
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        if let Some(byte) = bytes.last_mut() {
            *byte -= 1;
        }
        bytes.resize(len, 0xff);
        bytes
    }
}
