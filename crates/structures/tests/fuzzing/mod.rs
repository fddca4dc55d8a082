//! What holds for any bytes: run by the fuzzers (docs/fuzzing.md), and over their corpus by a test.

use bytes::Bytes;

use crate::tree::{BY_MEMBER, MAIN, Nodes, ReadNodes, TreeError, TreeRoot};
use crate::{Hash, Kind, List, STRUCTURE_FLAGS, Set, SortedSet, header, kind_of, len};

/// Longest value that is made here.
const BYTES_MAX: usize = 1 << 20;

/// Reads any bytes as a structure: as they are, and behind a header of each type whose count the
/// first byte says. What is accepted is written as it was, and lookups agree with it.
///
/// # Panics
/// A property does not hold.
pub fn structures(input: &[u8]) {
    check(input);
    let Some((count, elements)) = input.split_first() else { return };
    for kind in [Kind::Hash, Kind::List, Kind::Set, Kind::SortedSet] {
        let mut value = Vec::new();
        header::write(kind, u32::from(*count), &mut value);
        value.extend_from_slice(elements);
        check(&value);
        check_tree(&value);
        // Behind the numbers that a root has first.
        let mut value = Vec::new();
        header::write_form(kind, header::Form::Tree, u32::from(*count), &mut value);
        value.extend_from_slice(&[[0; 8], [9; 8], [0; 8]].concat());
        value.extend_from_slice(elements);
        check_tree(&value);
    }
}

/// Nodes of any bytes behind headers that are right for a level.
struct AnyNodes {
    bytes: Bytes,
    level: u8,
    entries: u8,
}

impl ReadNodes for AnyNodes {
    fn read(&self, number: u64, _: u64) -> Result<Bytes, TreeError> {
        let start = usize::try_from(number).unwrap_or(usize::MAX).min(self.bytes.len());
        let header = [1, (number % 2) as u8, self.level, 0, self.entries, 0, 0, 0];
        Ok([&header[..], &[0; 8], &number.to_le_bytes(), &self.bytes[start..]].concat().into())
    }
}

impl Nodes for AnyNodes {
    fn is_at_hand(&self, _: u64, _: u64) -> bool {
        true
    }

    fn write(&mut self, _: u64, _: Bytes) {}

    fn free(&mut self, _: u64) {}

    fn usable_number(&self, from: u64) -> u64 {
        from
    }
}

/// Whatever a root and its nodes say, all calls end, and with an error rather than a panic.
fn check_tree(value: &[u8]) {
    let bytes = Bytes::copy_from_slice(value);
    let Ok(root) = TreeRoot::parse(&bytes) else { return };
    assert_eq!(root.encode(), Ok(Some(bytes.clone())));
    for level in 0..3 {
        let mut nodes = AnyNodes { bytes: bytes.clone(), level, entries: value.last().copied().unwrap_or(1) };
        for tree in [MAIN, BY_MEMBER] {
            _ = root.get(&nodes, tree, b"a");
            _ = root.place_of(&nodes, tree, b"a");
            _ = root.entries(&nodes, tree, 1..9, 10_000);
            _ = root.clone().insert(&mut nodes, tree, (b"a", b"b"));
            _ = root.clone().remove(&mut nodes, tree, b"a");
            _ = root.clone().remove_places(&mut nodes, tree, 1..9);
        }
        _ = root.clone().insert_at(&mut nodes, 2, b"a");
        _ = root.clone().set_at(&mut nodes, 2, b"a");
        _ = root.check(&nodes);
    }
}

fn check(value: &[u8]) {
    let kind = kind_of(STRUCTURE_FLAGS, value);
    let count = len(value);
    assert_eq!(count.is_ok(), !matches!(kind, Kind::String | Kind::Damaged | Kind::Newer));
    assert_eq!(kind_of(0, value), Kind::String);
    let accepted = [check_hash(value), check_list(value), check_set(value), check_sorted_set(value)];
    let kinds = [Kind::Hash, Kind::List, Kind::Set, Kind::SortedSet];
    for (accepted, of) in accepted.into_iter().zip(kinds) {
        assert!(accepted.is_none() || kind == of, "a structure of another kind is accepted");
        assert!(accepted.is_none_or(|accepted| count == Ok(accepted)), "the count of elements is wrong");
    }
}

/// The count of the elements, if the value is accepted.
fn check_hash(value: &[u8]) -> Option<usize> {
    let lookup = Hash::lookup(value, b"a");
    let hash = Hash::parse(value).ok()?;
    assert_eq!(hash.encode(BYTES_MAX).unwrap().as_deref(), Some(value));
    assert_eq!(lookup.unwrap(), hash.get(b"a"));
    for (field, held) in hash.iter().take(3) {
        assert_eq!((hash.get(field), Hash::lookup(value, field)), (Some(held), Ok(Some(held))));
    }
    let mut other = Hash::default();
    assert_eq!(other.insert_all(hash.iter()), hash.len());
    assert_eq!(other, hash);
    assert_eq!(other.remove_all(hash.iter().map(|entry| entry.0)), hash.len());
    assert_eq!(other.encode(BYTES_MAX), Ok(None));
    Some(hash.len())
}

fn check_list(value: &[u8]) -> Option<usize> {
    let lookup = List::lookup(value, -1);
    let list = List::parse(value).ok()?;
    assert_eq!(list.encode(BYTES_MAX).unwrap().as_deref(), Some(value));
    assert_eq!(lookup.unwrap(), list.elements.back().copied());
    assert_eq!(List::lookup(value, 1).unwrap(), list.elements.get(1).copied());
    Some(list.elements.len())
}

fn check_set(value: &[u8]) -> Option<usize> {
    let lookup = Set::lookup(value, b"a");
    let set = Set::parse(value).ok()?;
    assert_eq!(set.encode(BYTES_MAX).unwrap().as_deref(), Some(value));
    assert_eq!(lookup.unwrap(), set.contains(b"a"));
    assert!(set.iter().take(3).all(|member| Set::lookup(value, member) == Ok(true)));
    let mut other = Set::default();
    assert_eq!(other.insert_all(set.iter()), set.len());
    assert_eq!(other, set);
    other.intersect(&set);
    assert_eq!(other.remove_all(set.iter()), set.len());
    Some(set.len())
}

fn check_sorted_set(value: &[u8]) -> Option<usize> {
    let lookup = SortedSet::lookup(value, b"a");
    let set = SortedSet::parse(value).ok()?;
    assert_eq!(set.encode(BYTES_MAX).unwrap().as_deref(), Some(value));
    assert_eq!(lookup.unwrap(), set.rank(b"a").and_then(|rank| set.get_at(rank)).map(|entry| entry.1));
    // A forged one may have a member twice.
    let mut other = SortedSet::default();
    other.insert_all(set.iter());
    assert!(other.len() <= set.len());
    let bytes = other.encode(BYTES_MAX).unwrap().unwrap();
    assert_eq!(SortedSet::parse(&bytes).as_ref(), Ok(&other));
    Some(set.len())
}

#[cfg(test)]
mod tests {
    use stratakv_base::random::Random;

    use super::*;

    #[test]
    fn the_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/structures");
        for file in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            structures(&bytes);
            for end in 0..bytes.len() {
                structures(&bytes[..end]);
                let mut forged = bytes.clone();
                for byte in [0, 1, 2, 4, 0x7F, 0x80, 0xFF] {
                    forged[end] = byte;
                    structures(&forged);
                }
            }
        }
    }

    /// A little of what the fuzzer does, in every run of the tests.
    #[test]
    fn drawn_bytes_hold() {
        let mut random = Random::new(1);
        for length in 0..3000 {
            let mut input: Vec<u8> = (0..length % 60).map(|_| random.below(5) as u8).collect();
            if length % 3 == 0 {
                random.fill(&mut input);
            }
            structures(&input);
        }
    }
}
