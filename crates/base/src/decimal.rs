//! Numbers as memcached reads them: by C's `strtoull` and `strtoll`, and what it checks of their
//! results.
//!
//! White space may stand before them, and a sign; they end where the text ends, at white space or
//! at a zero byte, whatever follows.

/// The number at the front of `text`, of 64 bits. One with a minus is that many below 2^64, and
/// none if its first bit is set then: `-0` is 0, `-1` is no number.
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let (negative, magnitude) = read(text)?;
    let magnitude = u64::try_from(magnitude).ok()?;
    match negative {
        false => Some(magnitude),
        true => Some(magnitude.wrapping_neg()).filter(|number| number.leading_zeros() > 0),
    }
}

/// The number at the front of `text`, of 64 bits, with or without a sign.
pub fn signed(text: &[u8]) -> Option<i64> {
    let (negative, magnitude) = read(text)?;
    let magnitude = i128::try_from(magnitude).ok()?;
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// The number, with blanks behind it up to so many bytes: what memcached leaves of a longer value
/// that was counted.
pub fn padded(number: u64, bytes: usize) -> Vec<u8> {
    let mut text = number.to_string().into_bytes();
    text.resize(text.len().max(bytes), b' ');
    text
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Whether there is a minus, and the digits.
fn read(text: &[u8]) -> Option<(bool, u128)> {
    let from = text.iter().position(|byte| !is_space(*byte))?;
    let word = text.get(from..)?;
    let (negative, word) = match word.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, word),
    };
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ends = word.get(digits).is_none_or(|byte| *byte == 0 || is_space(*byte));
    if digits == 0 || !ends {
        return None;
    }
    let number = word
        .iter()
        .take(digits)
        .try_fold(0_u128, |number, digit| number.checked_mul(10)?.checked_add(u128::from(digit - b'0')))?;
    Some((negative, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_value_keeps_its_length() {
        assert_eq!((padded(7, 0), padded(7, 1), padded(17, 4)), (b"7".to_vec(), b"7".to_vec(), b"17  ".to_vec()));
        // More than a width of `format!` may be.
        assert_eq!(padded(1, 70_000).len(), 70_000);
    }

    #[test]
    fn numbers_are_read_as_c_does() {
        let good: [(&[u8], u64); 14] = [
            (b"0", 0),
            (b"7", 7),
            (b"+7", 7),
            (b" 7", 7),
            (b"\t\n\x0b\x0c\r7", 7),
            (b"7 ", 7),
            (b"7 apples", 7),
            (b"7\0x", 7),
            (b"7\r", 7),
            (b"-0", 0),
            (b"00000000000000000000000000000007", 7),
            (b"18446744073709551615", u64::MAX),
            (b"-18446744073709551615", 1),
            (b"-9223372036854775809", i64::MAX as u64),
        ];
        for (text, number) in good {
            assert_eq!(unsigned(text), Some(number), "{}", text.escape_ascii());
        }
        let bad: [&[u8]; 13] = [
            b"",
            b" ",
            b"+",
            b"-",
            b"x",
            b"7x",
            b"0x10",
            b"1.5",
            b"+-1",
            b"-1",
            b"18446744073709551616",
            b"-9223372036854775808",
            b"+ 7",
        ];
        for text in bad {
            assert_eq!(unsigned(text), None, "{}", text.escape_ascii());
        }
        assert_eq!(unsigned(&[b'9'; 50]), None);
        assert_eq!((signed(b"-7"), signed(b" +7 x")), (Some(-7), Some(7)));
        assert_eq!((signed(b"9223372036854775808"), signed(b"-9223372036854775808")), (None, Some(i64::MIN)));
        assert_eq!((signed(b"-"), signed(b"--1"), signed(b"")), (None, None, None));
    }
}
