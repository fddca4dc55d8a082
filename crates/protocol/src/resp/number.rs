//! Numbers as Redis reads them.

use std::fmt::Write;

/// Digits behind the point that sums keep, as Redis has them.
const FRACTION_DIGITS: usize = 17;
const ONE: i128 = 10_i128.pow(FRACTION_DIGITS as u32);
/// Longest text of a number with a fraction: the largest double has 309 digits.
pub const FLOAT_BYTES_MAX: usize = 400;

/// A whole number of 64 bits in its one spelling: no plus, no zeros before it, no spaces.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        // Downwards: there is one more negative number than there are positive ones.
        number = number.checked_mul(10)?.checked_sub(digit)?;
    }
    if is_negative { Some(number) } else { number.checked_neg() }
}

/// A double as Redis reads scores: decimal, or infinite. One that is NaN, beyond the largest double
/// or too small for a double is none.
pub fn double(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let is_spelled_infinite = text.iter().any(|byte| matches!(byte, b'i' | b'I'));
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next()?;
    let is_spelled_zero = || !mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    let is_exact = match number {
        number if number.is_nan() => false,
        number if number.is_infinite() => is_spelled_infinite,
        number => number != 0.0 || is_spelled_zero(),
    };
    is_exact.then_some(number)
}

/// A double as Redis 7.0 writes scores: 17 digits of which zeros at the end are left out, as C has
/// it in `%.17g`.
pub fn double_text(number: f64) -> String {
    match number {
        number if number.is_nan() => return "nan".to_owned(),
        f64::INFINITY => return "inf".to_owned(),
        f64::NEG_INFINITY => return "-inf".to_owned(),
        _ => {}
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match usize::try_from(16 - exponent) {
        Ok(digits) if exponent >= -4 => without_zeros(&format!("{number:.digits$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.unsigned_abs())
        }
    }
}

/// Why there is no sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumError {
    /// The first or the second text is no number.
    NotANumber,
    /// The sum is beyond the largest double.
    Infinite,
}

/// The sum of two numbers in decimal, without exponent and without zeros at its end. It is exact
/// to 17 digits behind the point below 10^20, and a sum of doubles beyond.
///
/// # Errors
/// See [`SumError`].
pub fn sum(left: &[u8], right: &[u8]) -> Result<String, SumError> {
    let (left, right) = (Decimal::read(left)?, Decimal::read(right)?);
    if let (Some(left), Some(right)) = (left.scaled(), right.scaled())
        && let Some(sum) = left.checked_add(right)
    {
        return Ok(spelled(sum));
    }
    let sum = left.double + right.double;
    if sum.is_finite() { Ok(sum.to_string()) } else { Err(SumError::Infinite) }
}

/// Whether the text is a number that [`sum`] takes.
pub fn is_float(text: &[u8]) -> bool {
    Decimal::read(text).is_ok()
}

/// A number as it was written: digits, and where the point is.
struct Decimal<'a> {
    is_negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i32,
    double: f64,
}

impl Decimal<'_> {
    fn read(text: &[u8]) -> Result<Decimal<'_>, SumError> {
        let (is_negative, rest) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            Some((b'+', rest)) => (false, rest),
            _ => (false, text),
        };
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (whole, rest) = rest.split_at(digits(rest));
        let (fraction, rest) = match rest.strip_prefix(b".") {
            Some(rest) => rest.split_at(digits(rest)),
            None => (&[][..], rest),
        };
        let exponent = match rest {
            [] => Some(0),
            [b'e' | b'E', exponent @ ..] if exponent.len() <= 6 => {
                std::str::from_utf8(exponent).ok().and_then(|text| text.parse::<i32>().ok())
            }
            _ => None,
        };
        let is_long = text.len() > FLOAT_BYTES_MAX;
        let exponent = exponent.filter(|_| whole.len() + fraction.len() > 0 && !is_long);
        let double = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        match (exponent, double) {
            (Some(_), Some(double)) if !double.is_finite() => Err(SumError::Infinite),
            (Some(exponent), Some(double)) => Ok(Decimal { is_negative, whole, fraction, exponent, double }),
            _ => Err(SumError::NotANumber),
        }
    }

    /// In units of the last digit that sums keep, rounded; `None` if it is too large for that.
    fn scaled(&self) -> Option<i128> {
        // Digits before this one count; the next one rounds.
        let kept = i64::try_from(self.whole.len()).ok()? + i64::from(self.exponent) + FRACTION_DIGITS as i64;
        let digits = self.whole.iter().chain(self.fraction);
        let mut number: i128 = 0;
        for (place, digit) in (0..kept.max(0)).zip(digits.chain(std::iter::repeat(&b'0'))) {
            // No more than 38 digits fit, however large the exponent.
            if place > 40 && number == 0 && place > (self.whole.len() + self.fraction.len()) as i64 {
                break;
            }
            number = number.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
        }
        let next = usize::try_from(kept).ok().and_then(|kept| self.whole.iter().chain(self.fraction).nth(kept));
        number += i128::from(next.is_some_and(|digit| *digit >= b'5'));
        Some(if self.is_negative { -number } else { number })
    }
}

fn spelled(scaled: i128) -> String {
    let magnitude = scaled.unsigned_abs();
    let (whole, fraction) = (magnitude / ONE.unsigned_abs(), magnitude % ONE.unsigned_abs());
    let mut text = String::new();
    let sign = if scaled < 0 { "-" } else { "" };
    // Writing to a string does not fail.
    let _ = write!(text, "{sign}{whole}.{fraction:017}");
    text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_one_spelling() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN, -9, 1_000_000] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for bad in ["", "-", "+1", "01", "-0", "00", " 1", "1 ", "1a", "0x1", "1.0", "9223372036854775808"] {
            assert_eq!(integer(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!((integer(b"-9223372036854775809"), integer(&[b'1'; 400]), integer(b"\xff")), (None, None, None));
    }

    #[test]
    fn doubles_are_written_as_c_does() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (-2.75e-3, "-0.0027499999999999998"),
            (1e-4, "0.0001"),
            (1e-5, "1.0000000000000001e-05"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let text = double_text(number);
            assert_eq!(text, expected);
            let read = double(text.as_bytes());
            // C has a range error for the smallest ones only where they become zero.
            assert_eq!(read.map(f64::to_bits), (!number.is_nan()).then_some(number.to_bits()), "{text}");
        }
    }

    #[test]
    fn doubles_are_read_in_decimal() {
        for (text, expected) in [
            ("1", 1.0),
            ("+1.50", 1.5),
            ("-.5", -0.5),
            ("5.", 5.0),
            ("1E3", 1000.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0e999", 0.0),
            ("0.000", 0.0),
        ] {
            assert_eq!(double(text.as_bytes()), Some(expected), "{text}");
        }
        for bad in ["", " 1", "1 ", "nan", "-NaN", "1e400", "-1e400", "1e-400", "1a", "0x10", ".", "e5", "1_0", "--1"] {
            assert_eq!(double(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!((double(b"\xff"), double(b"1\0")), (None, None));
    }

    #[test]
    fn sums_are_those_of_decimals() {
        for (left, right, expected) in [
            ("10.50", "0.1", "10.6"),
            ("10.6", "-5", "5.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("0", "0", "0"),
            ("-0.5", "0.5", "0"),
            ("1", "-1.25", "-0.25"),
            ("3", "1.000000000000000005", "4.00000000000000001"),
            ("1e20", "1", "100000000000000000001"),
            ("1e300", "0", &format!("1{}", "0".repeat(300))),
            (".5", "5.", "5.5"),
            ("+1", "1E0", "2"),
            ("1e-40", "1", "1"),
            ("0e999999", "1", "1"),
            ("1e-99999", "1", "1"),
        ] {
            assert_eq!(sum(left.as_bytes(), right.as_bytes()).as_deref(), Ok(expected), "{left} + {right}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bad in ["", " 1", "1 ", "a", "1a", "nan", "NaN", ".", "e5", "1e", "1e+", "--1", "0x10", "1e1234567", "1_0"]
        {
            assert_eq!(sum(bad.as_bytes(), b"1"), Err(SumError::NotANumber), "{bad}");
            assert!(!is_float(bad.as_bytes()));
        }
        assert_eq!(sum(b"\xff", b"1"), Err(SumError::NotANumber));
        assert_eq!(sum(&[b'1'; FLOAT_BYTES_MAX + 1], b"1"), Err(SumError::NotANumber));
        for large in ["1e400", "-1e400"] {
            assert_eq!(sum(large.as_bytes(), b"1"), Err(SumError::Infinite), "{large}");
        }
        assert_eq!(sum(b"1.7e308", b"1.7e308"), Err(SumError::Infinite));
        assert_eq!(sum(b"inf", b"1"), Err(SumError::NotANumber));
    }
}
