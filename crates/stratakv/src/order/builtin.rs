//! Orders that every store knows. What they make of a key is on people's disks: it never changes.

use std::sync::Arc;

use super::SortKey;

/// What names of built-in orders begin with.
pub(super) const PREFIX: &str = "stratakv.";

pub(super) const REVERSED: &str = "stratakv.reversed";
pub(super) const NUMERIC: &str = "stratakv.numeric";
pub(super) const IGNORING_ASCII_CASE: &str = "stratakv.ignoring-ascii-case";

/// The function of a built-in order.
pub(super) fn find(name: &str) -> Option<SortKey> {
    match name {
        REVERSED => Some(Arc::new(reversed)),
        NUMERIC => Some(Arc::new(numeric)),
        IGNORING_ASCII_CASE => Some(Arc::new(|key| key.to_ascii_lowercase())),
        _ => None,
    }
}

/// Each byte inverted, 00 written as FF 00, and FF FF at the end, so that the longer of two keys
/// that begin alike comes first.
fn reversed(key: &[u8]) -> Vec<u8> {
    let mut sort_key = Vec::with_capacity(key.len() + 4);
    for byte in key {
        sort_key.push(!byte);
        if *byte == 0 {
            sort_key.push(0);
        }
    }
    sort_key.extend([0xFF, 0xFF]);
    sort_key
}

const NEGATIVE: u8 = 1;
const NULL: u8 = 2;
const POSITIVE: u8 = 3;
const NO_NUMBER: u8 = 4;

/// First what sort of key it is. A positive number: how many digits are before its point (one byte,
/// or FF and two), its digits without leading and trailing zeros. A negative number: the same
/// inverted, and FF at the end. What is no number: its bytes.
fn numeric(key: &[u8]) -> Vec<u8> {
    let (is_negative, digits) = match key.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, key),
    };
    let Some((whole, fraction)) = number(digits) else { return [&[NO_NUMBER], key].concat() };
    if whole.is_empty() && fraction.is_empty() {
        return vec![NULL];
    }
    let mut size = Vec::with_capacity(4 + whole.len() + fraction.len());
    match u8::try_from(whole.len()) {
        Ok(len) if len < 0xFF => size.push(len),
        // A key has at most 65,535 bytes; a longer one is refused for its length.
        _ => {
            size.push(0xFF);
            size.extend_from_slice(&u16::try_from(whole.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    size.extend_from_slice(whole);
    size.extend_from_slice(fraction);
    if !is_negative {
        return [&[POSITIVE], &size[..]].concat();
    }
    size.iter_mut().for_each(|byte| *byte = !*byte);
    [&[NEGATIVE], &size[..], &[0xFF]].concat()
}

/// The digits before and after the point of a number without sign, without those that say nothing.
/// `None`: it is none.
fn number(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let whole = parts.next().filter(|whole| is_digits(whole))?;
    let fraction = match parts.next() {
        None => &[],
        Some(fraction) if is_digits(fraction) => fraction,
        Some(_) => return None,
    };
    let first = whole.iter().position(|digit| *digit != b'0').unwrap_or(whole.len());
    let end = fraction.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    Some((whole.get(first..)?, fraction.get(..end)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_ascending(sort_key: impl Fn(&[u8]) -> Vec<u8>, keys: &[&str]) {
        for pair in keys.windows(2) {
            let of = |key: &str| sort_key(key.as_bytes());
            assert!(of(pair[0]) < of(pair[1]), "`{}` comes before `{}`", pair[0], pair[1]);
        }
    }

    #[test]
    fn sort_keys_are_what_they_were() {
        assert_eq!(reversed(b"a\0\xFF"), b"\x9E\xFF\0\0\xFF\xFF");
        assert_eq!(numeric(b"0012.50"), b"\x03\x02125");
        assert_eq!(numeric(b"0.05"), b"\x03\x0005");
        assert_eq!(numeric(b"-12"), b"\x01\xFD\xCE\xCD\xFF");
        assert_eq!(numeric(b"-0.0"), b"\x02");
        assert_eq!(numeric(b"x1"), b"\x04x1");
        assert_eq!(numeric(&[b'7'; 300])[..5], *b"\x03\xFF\x01\x2C7");
        assert_eq!(find(IGNORING_ASCII_CASE).unwrap()("aZ\u{c4}".as_bytes()), "az\u{c4}".as_bytes());
        assert!(find("stratakv.other").is_none());
    }

    #[test]
    fn numbers_come_by_value_and_then_what_is_none() {
        let long = |len: usize| "9".repeat(len);
        let (n254, n255, n256) = (long(254), long(255), long(256));
        let negative = format!("-{n256}");
        let keys = [
            &negative, "-100", "-20.5", "-20", "-3", "-1.55", "-1.5", "-0.5", "-0.05", "0", "0.049", "0.05", "0.5",
            "1", "1.05", "1.5", "1.55", "3", "20", "20.01", "100", &n254, &n255, &n256, "", "+1", "--1", ".5", "1 ",
            "1.", "1e5", "x",
        ];
        is_ascending(numeric, &keys);
        for equal in [["1", "01"], ["1", "1.00"], ["0", "-0"], ["-5", "-05.0"]] {
            assert_eq!(numeric(equal[0].as_bytes()), numeric(equal[1].as_bytes()), "{equal:?}");
        }
    }

    proptest! {
        #[test]
        fn reversed_is_the_other_way_round(a in prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x80, 0xFE, 0xFF]), 0..6), b in prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x80, 0xFE, 0xFF]), 0..6)) {
            prop_assert_eq!(reversed(&a).cmp(&reversed(&b)), b.cmp(&a));
        }

        #[test]
        fn numbers_compare_as_numbers(a in -20_000i64..20_000, b in -20_000i64..20_000) {
            // Hundredths, written with a point.
            let text = |n: i64| format!("{}{}.{:02}", if n < 0 { "-" } else { "" }, n.abs() / 100, n.abs() % 100);
            prop_assert_eq!(numeric(text(a).as_bytes()).cmp(&numeric(text(b).as_bytes())), a.cmp(&b));
        }

        #[test]
        fn any_bytes_have_a_place(key in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(!numeric(&key).is_empty());
        }
    }
}
