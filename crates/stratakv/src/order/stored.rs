//! The key under which a record of a collection in an order is stored:
//! `escaped sort key, 00 00, key` (drawn in docs/collections.md).
//!
//! Within the sort key a byte 00 is written as 00 FF, so 00 00 is nowhere but at its end, and sorts
//! before whatever could stand there instead.

const ZERO: [u8; 2] = [0, 0xFF];
const END: [u8; 2] = [0, 0];

/// Where a key with that sort key is stored.
pub(super) fn join(sort_key: &[u8], key: &[u8]) -> Vec<u8> {
    let mut stored = escaped(sort_key, END.len() + key.len());
    stored.extend_from_slice(&END);
    stored.extend_from_slice(key);
    stored
}

/// What all stored keys begin with whose sort keys begin so, and no others.
pub(super) fn escaped_prefix(sort_key: &[u8]) -> Vec<u8> {
    escaped(sort_key, 0)
}

fn escaped(sort_key: &[u8], room: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sort_key.len() + 8 + room);
    for byte in sort_key {
        match byte {
            0 => bytes.extend_from_slice(&ZERO),
            byte => bytes.push(*byte),
        }
    }
    bytes
}

/// The key that is stored so; `None` if no key is.
pub(super) fn key_of(stored: &[u8]) -> Option<&[u8]> {
    let mut rest = stored;
    loop {
        let zero = rest.iter().position(|byte| *byte == 0)?;
        let (pair, after) = rest.get(zero..)?.split_first_chunk::<2>()?;
        match *pair {
            END => return Some(after).filter(|key| !key.is_empty()),
            ZERO => rest = after,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The form is on people's disks: it does not change unnoticed.
    #[test]
    fn keys_are_stored_as_ever() {
        assert_eq!(join(b"s\0t", b"k\0"), b"s\0\xFFt\0\0k\0");
        assert_eq!(join(b"", b"k"), b"\0\0k");
        assert_eq!(join(b"\xFF\0", b"\xFF"), b"\xFF\0\xFF\0\0\xFF");
        assert_eq!(escaped_prefix(b"s\0"), b"s\0\xFF");
    }

    #[test]
    fn what_was_not_made_so_is_no_key() {
        for bytes in [&b""[..], b"k", b"\0", b"s\0", b"s\0\xFF", b"s\0\xFFk", b"s\0\0", b"s\0\x01k", b"\0\0"] {
            assert_eq!(key_of(bytes), None, "{}", bytes.escape_ascii());
        }
    }

    fn bytes(lens: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        // Few bytes, so that zeros, ends and common beginnings are met.
        prop::collection::vec(prop::sample::select(vec![0, 1, 2, 0x7F, 0xFE, 0xFF]), lens)
    }

    proptest! {
        #[test]
        fn they_sort_as_sort_key_then_key(a in (bytes(0..6), bytes(1..4)), b in (bytes(0..6), bytes(1..4))) {
            prop_assert_eq!(join(&a.0, &a.1).cmp(&join(&b.0, &b.1)), a.cmp(&b));
        }

        #[test]
        fn the_key_is_read_back(sort_key in bytes(0..9), key in bytes(1..9)) {
            let stored = join(&sort_key, &key);
            prop_assert_eq!(key_of(&stored), Some(&key[..]));
        }

        #[test]
        fn a_prefix_is_that_of_the_sort_key(sort_key in bytes(0..6), prefix in bytes(0..4)) {
            let begins = join(&sort_key, b"k").starts_with(&escaped_prefix(&prefix));
            prop_assert_eq!(begins, sort_key.starts_with(&prefix));
        }

        #[test]
        fn any_bytes_give_a_key_or_none(stored in bytes(0..12)) {
            if let Some(key) = key_of(&stored) {
                prop_assert!(!key.is_empty() && stored.ends_with(key));
            }
        }
    }
}
