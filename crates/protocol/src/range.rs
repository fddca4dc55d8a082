//! The ends of a range of keys, as both protocols word them.
//!
//! `-` is before the first key, `+` behind the last one; `[key` is with the key, `(key` without it.
//! Any other word is a key itself: a range has the one that it begins with, and not the one that it
//! ends with.

use std::ops::Bound;

/// Where a range begins; `None`: at `+` none does.
pub fn first(word: &[u8]) -> Option<Bound<&[u8]>> {
    match word {
        b"-" => Some(Bound::Unbounded),
        b"+" => None,
        [b'[', key @ ..] => Some(Bound::Included(key)),
        [b'(', key @ ..] => Some(Bound::Excluded(key)),
        key => Some(Bound::Included(key)),
    }
}

/// Where a range ends; `None`: at `-` none does.
pub fn last(word: &[u8]) -> Option<Bound<&[u8]>> {
    match word {
        b"+" => Some(Bound::Unbounded),
        b"-" => None,
        [b'[', key @ ..] => Some(Bound::Included(key)),
        [b'(', key @ ..] => Some(Bound::Excluded(key)),
        key => Some(Bound::Excluded(key)),
    }
}

/// The shortest key behind all that begin with `prefix`, which has one byte that is not 0xFF at
/// least; `None`: it has none, and nothing is behind.
pub fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut behind = prefix.get(..=last)?.to_vec();
    if let Some(byte) = behind.last_mut() {
        *byte += 1;
    }
    Some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_words() {
        assert_eq!(first(b"-"), Some(Bound::Unbounded));
        assert_eq!(first(b"+"), None);
        assert_eq!(last(b"-"), None);
        assert_eq!(last(b"+"), Some(Bound::Unbounded));
        assert_eq!(first(b"a"), Some(Bound::Included(&b"a"[..])));
        assert_eq!(last(b"a"), Some(Bound::Excluded(&b"a"[..])));
        for end in [first, last] {
            assert_eq!(end(b"[-"), Some(Bound::Included(&b"-"[..])));
            assert_eq!(end(b"(["), Some(Bound::Excluded(&b"["[..])));
            assert_eq!(end(b"["), Some(Bound::Included(&b""[..])));
        }
    }

    #[test]
    fn the_key_behind_a_prefix_has_it_no_more() {
        assert_eq!(behind_prefix(b"user:"), Some(b"user;".to_vec()));
        assert_eq!(behind_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(behind_prefix(b"\xff\xff"), None);
        assert_eq!(behind_prefix(b""), None);
    }
}
