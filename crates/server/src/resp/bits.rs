//! Bits of a value: the first one is the highest of its first byte.

/// Which bytes or bits of a value are meant: numbers from its front, or below zero from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BitRange {
    pub(crate) first: i64,
    /// `None`: to the end.
    pub(crate) last: Option<i64>,
    /// They count bits.
    pub(crate) in_bits: bool,
}

impl BitRange {
    pub(crate) const ALL: BitRange = BitRange { first: 0, last: None, in_bits: false };

    /// The first bit and the one behind the last one, of a value of so many bytes. `None`: there is
    /// none.
    fn bits(self, bytes: usize) -> Option<(usize, usize)> {
        let all = i64::try_from(bytes).ok()?.checked_mul(if self.in_bits { 8 } else { 1 })?;
        let last = self.last.unwrap_or(-1);
        if self.first < 0 && last < 0 && self.first > last {
            return None;
        }
        let from_front = |place: i64| if place < 0 { place.saturating_add(all).max(0) } else { place };
        let (first, last) = (from_front(self.first), from_front(last).min(all - 1));
        if first > last {
            return None;
        }
        let (first, behind) = (usize::try_from(first).ok()?, usize::try_from(last).ok()?.checked_add(1)?);
        Some(if self.in_bits { (first, behind) } else { (first * 8, behind * 8) })
    }
}

/// Whether a bit is set; beyond the value none is.
pub(crate) fn bit(value: &[u8], place: usize) -> bool {
    value.get(place / 8).is_some_and(|byte| byte >> (7 - place % 8) & 1 == 1)
}

/// How many bits are set.
pub(crate) fn count(value: &[u8], range: BitRange) -> i64 {
    let Some((first, behind)) = range.bits(value.len()) else { return 0 };
    let mut count = 0;
    let mut place = first;
    while place < behind {
        if place.is_multiple_of(8) && place + 8 <= behind {
            count += value.get(place / 8).map_or(0, |byte| i64::from(byte.count_ones()));
            place += 8;
        } else {
            count += i64::from(bit(value, place));
            place += 1;
        }
    }
    count
}

/// Where the first bit is that is set, or not. What lies behind a value without a last place is
/// not set.
pub(crate) fn position(value: &[u8], is_set: bool, range: BitRange) -> i64 {
    let Some((first, behind)) = range.bits(value.len()) else { return -1 };
    let other = if is_set { 0 } else { 0xFF };
    let mut place = first;
    while place < behind {
        if place.is_multiple_of(8) && place + 8 <= behind && value.get(place / 8) == Some(&other) {
            place += 8;
        } else if bit(value, place) == is_set {
            return i64::try_from(place).unwrap_or(i64::MAX);
        } else {
            place += 1;
        }
    }
    match is_set || range.last.is_some() {
        true => -1,
        false => i64::try_from(behind).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &[u8] = b"\x00\xff\xf0\x01";

    fn range(first: i64, last: i64, in_bits: bool) -> BitRange {
        BitRange { first, last: Some(last), in_bits }
    }

    #[test]
    fn bits_are_counted_in_bytes_and_in_bits() {
        for (range, expected) in [
            (BitRange::ALL, 13),
            (range(0, -1, false), 13),
            (range(1, 1, false), 8),
            (range(-1, -1, false), 1),
            (range(-2, -3, false), 0),
            (range(3, 2, false), 0),
            (range(4, 9, false), 0),
            (range(-100, 1, false), 8),
            (range(8, 19, true), 12),
            (range(9, 18, true), 10),
            (range(-1, -1, true), 1),
            (range(i64::MIN, i64::MAX, true), 13),
        ] {
            assert_eq!(count(VALUE, range), expected, "{range:?}");
            assert_eq!(count(b"", range), 0);
        }
    }

    #[test]
    fn the_first_bit_is_found_as_one_by_one() {
        for first in -34..34 {
            for last in -34..34 {
                for is_set in [false, true] {
                    let range = range(first, last, true);
                    let found = (range.bits(4))
                        .and_then(|(first, behind)| (first..behind).find(|place| bit(VALUE, *place) == is_set));
                    assert_eq!(position(VALUE, is_set, range), found.map_or(-1, |place| place as i64), "{range:?}");
                }
            }
        }
        assert_eq!((position(b"\xff", false, BitRange::ALL), position(b"\x00", true, BitRange::ALL)), (8, -1));
        assert_eq!(position(b"\xff", false, range(0, -1, false)), -1);
    }
}
