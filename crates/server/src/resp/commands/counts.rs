//! Counts and lists of keys as arguments.

use std::borrow::Cow;
use std::ops::Range;

use stratakv_protocol::resp::number;

use super::super::arguments::{Arguments, RequestRefusal};
use super::super::records::Call;

/// A count of 0 or more.
///
/// # Errors
/// It is none; the text says so.
pub(super) fn from_zero(text: &[u8], refusal: &'static str) -> Result<usize, RequestRefusal> {
    let count = number::integer(text).and_then(|count| usize::try_from(count).ok());
    count.ok_or(Cow::Borrowed(refusal))
}

/// A count of 0 or more elements.
///
/// # Errors
/// It is none.
pub(super) fn of_elements(text: &[u8]) -> Result<usize, RequestRefusal> {
    from_zero(text, "ERR value is out of range, must be positive")
}

/// A count of 1 or more.
///
/// # Errors
/// It is none; the text says so.
pub(super) fn from_one(text: &[u8], refusal: &'static str) -> Result<usize, RequestRefusal> {
    from_zero(text, refusal).and_then(|count| if count > 0 { Ok(count) } else { Err(Cow::Borrowed(refusal)) })
}

/// A number whose sign may be turned.
///
/// # Errors
/// It is none.
pub(super) fn of_any_sign(call: &Call<'_>, at: usize) -> Result<i64, RequestRefusal> {
    match call.a.integer(at)? {
        i64::MIN => {
            Err(Cow::Owned(format!("ERR value is out of range, value must between {} and {}", -i64::MAX, i64::MAX)))
        }
        number => Ok(number),
    }
}

/// Where the keys are whose number is the argument at `at`: they follow it.
///
/// # Errors
/// It is no number of 1 or more, or there are fewer arguments.
pub(super) fn numbered_keys(
    call: &Call<'_>,
    at: usize,
    too_many: &'static str,
) -> Result<Range<usize>, RequestRefusal> {
    numbered_keys_of(call.a, at, too_many)
}

/// The same of arguments.
///
/// # Errors
/// As above.
pub(super) fn numbered_keys_of(
    a: Arguments<'_>,
    at: usize,
    too_many: &'static str,
) -> Result<Range<usize>, RequestRefusal> {
    let keys = from_one(a.get(at), "ERR numkeys should be greater than 0")?;
    let first = at + 1;
    match keys > a.len().saturating_sub(first) {
        true => Err(Cow::Borrowed(too_many)),
        false => Ok(first..first + keys),
    }
}
