//! Keys of a list's elements: positions whose order as bytes is the order of the list.
//!
//! A key is a row of digits, the first of 8 bytes, the others of 4, big-endian. Ends grow by one in
//! the first digit, from the middle: 2⁶³ elements fit at either end with keys of 8 bytes. Between
//! two keys without room a digit is added. No key ends in a digit of 0, except with its first, so
//! below every longer one there is room.
//!
//! Where in a gap a key is put decides how long keys get: at its middle, each insertion at the same
//! place would take a bit. So it goes [`STEP`] away from one side, the lower one for every other
//! digit, the upper one for the rest: a run of insertions in either direction (each after the one
//! before, or each before the same element) finds its direction after one digit more, and then has
//! room for 65,536.

/// A key: its digits.
pub(super) type Digits = Vec<u64>;

/// Where the first element of a list goes.
const MIDDLE: u64 = 1 << 63;
/// How far from a side of a gap an element goes, if there is so much room.
const STEP: u64 = 1 << 16;
/// Digits but the first.
const BASE: u64 = 1 << 32;

/// The key of an element between two; without one, at that end. `None`: no key lies between them.
/// Those that this function made always have one, but for 2⁶³ elements at one end.
pub(super) fn between(lower: Option<&[u8]>, upper: Option<&[u8]>) -> Option<Vec<u8>> {
    let digits = match (lower.map(digits), upper.map(digits)) {
        (None, None) => vec![MIDDLE],
        (Some(lower), None) => match first(&lower).checked_add(1) {
            Some(next) => vec![next],
            None => amid(&lower, None)?,
        },
        // 0 alone would have nothing below it.
        (None, Some(upper)) => vec![first(&upper).checked_sub(1).filter(|before| *before > 0)?],
        (Some(lower), Some(upper)) => amid(&lower, Some(&upper))?,
    };
    let key = encode(&digits);
    // Whoever wrote keys of their own into the list's records is not to be believed.
    let is_between = lower.is_none_or(|lower| lower < &key[..]) && upper.is_none_or(|upper| &key[..] < upper);
    is_between.then_some(key)
}

/// The keys of `count` elements, in order, after the last one of a list or before its first.
pub(super) fn beyond(end: Option<&[u8]>, at_back: bool, count: usize) -> Option<Vec<Vec<u8>>> {
    let mut keys: Vec<Vec<u8>> = Vec::with_capacity(count);
    for _ in 0..count {
        let end = keys.last().map(Vec::as_slice).or(end);
        keys.push(if at_back { between(end, None)? } else { between(None, end)? });
    }
    if !at_back {
        keys.reverse();
    }
    Some(keys)
}

fn amid(lower: &[u64], upper: Option<&[u64]>) -> Option<Digits> {
    let mut key = Vec::new();
    // Whether the upper key begins as this one does, so far.
    let mut upper = upper;
    for at in 0..=lower.len().max(upper.map_or(0, <[u64]>::len)) {
        let limit = if at == 0 { u128::from(u64::MAX) + 1 } else { u128::from(BASE) };
        let low = u128::from(lower.get(at).copied().unwrap_or(0));
        let high = match upper {
            Some(upper) => u128::from(*upper.get(at)?),
            None => limit,
        };
        let gap = high.checked_sub(low)?;
        if gap > 1 {
            let step = u128::from(STEP).min(gap / 2);
            let digit = if at % 2 == 1 { low + step } else { high - step };
            key.push(u64::try_from(digit).ok()?);
            return Some(key);
        }
        key.push(u64::try_from(low).ok()?);
        if gap == 1 {
            upper = None;
        }
    }
    None
}

fn first(digits: &[u64]) -> u64 {
    digits.first().copied().unwrap_or(0)
}

/// The digits of a key; one that is cut off is filled up with zeros.
fn digits(key: &[u8]) -> Digits {
    let (head, tail) = key.split_at(key.len().min(8));
    let filled = |bytes: &[u8], len: usize| {
        let digit = bytes.iter().fold(0, |digit, byte| digit << 8 | u64::from(*byte));
        digit << (8 * (len - bytes.len()))
    };
    std::iter::once(filled(head, 8)).chain(tail.chunks(4).map(|bytes| filled(bytes, 4))).collect()
}

fn encode(digits: &[u64]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + 4 * digits.len());
    key.extend_from_slice(&first(digits).to_be_bytes());
    for digit in digits.iter().skip(1) {
        key.extend_from_slice(&(*digit as u32).to_be_bytes());
    }
    key
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stratakv_base::random::Random;

    use super::*;

    /// Keys are on people's disks: pushes of a later version must fit theirs.
    #[test]
    fn keys_are_what_they_were() {
        let middle = between(None, None).unwrap();
        assert_eq!(middle, [0x80, 0, 0, 0, 0, 0, 0, 0]);
        let back = between(Some(&middle), None).unwrap();
        assert_eq!(back, [0x80, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(between(None, Some(&middle)).unwrap(), [0x7F, 255, 255, 255, 255, 255, 255, 255]);
        let inner = between(Some(&middle), Some(&back)).unwrap();
        assert_eq!(inner, [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(between(Some(&inner), None).unwrap(), back, "an end needs 8 bytes whatever is there");
    }

    #[test]
    fn runs_of_insertions_keep_keys_short() {
        let ends = || (between(None, None).unwrap(), between(Some(&between(None, None).unwrap()), None).unwrap());
        let longest = |mut insert: Box<dyn FnMut() -> usize>| (0..100_000).map(|_| insert()).max().unwrap();
        // Each after the one before.
        let (mut low, high) = ends();
        let ascending = longest(Box::new(move || {
            low = between(Some(&low), Some(&high)).unwrap();
            low.len()
        }));
        // Each right after the same one.
        let (low, mut high) = ends();
        let descending = longest(Box::new(move || {
            high = between(Some(&low), Some(&high)).unwrap();
            high.len()
        }));
        assert!(ascending <= 20 && descending <= 24, "{ascending} {descending}");
    }

    #[test]
    fn ends_that_are_full_say_so_or_find_room() {
        let last = [255; 8];
        let beyond_last = between(Some(&last), None).unwrap();
        assert!(beyond_last[..] > last[..]);
        assert_eq!(between(None, Some(&[0, 0, 0, 0, 0, 0, 0, 1])), None);
        assert_eq!(between(None, Some(b"\0")), None);
        assert_eq!(between(Some(b"x"), Some(b"x\0")), None, "keys that were not made here");
        assert_eq!(between(Some(b"b"), Some(b"a")), None);
    }

    #[test]
    fn a_random_history_always_finds_room() {
        let mut random = Random::new(3);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for _ in 0..20_000 {
            // Close together, so that gaps run out.
            let at = if random.below(3) == 0 { random.below(keys.len() as u64 + 1) as usize } else { keys.len() / 2 };
            let lower = at.checked_sub(1).map(|before| &keys[before][..]);
            let key = between(lower, keys.get(at).map(|key| &key[..])).unwrap();
            keys.insert(at, key);
        }
        assert!(keys.is_sorted_by(|a, b| a < b));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_key_between_or_none(a in prop::collection::vec(any::<u8>(), 1..20), b in prop::collection::vec(any::<u8>(), 1..20)) {
            if let Some(key) = between(Some(&a), Some(&b)) {
                prop_assert!(a < key && key < b);
            }
            if let Some(key) = between(Some(&a), None) {
                prop_assert!(a < key);
            }
            if let Some(key) = between(None, Some(&b)) {
                prop_assert!(key < b);
            }
        }
    }
}
