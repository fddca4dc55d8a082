//! HSCAN, SSCAN and ZSCAN: a structure is read as a whole, so one reply has all that matches, and
//! its cursor is 0. Redis does so with small ones.

use std::borrow::Cow;

use stratakv_protocol::resp::{encode, glob, number};

use super::super::arguments::{NOT_AN_INTEGER, RequestRefusal, SYNTAX};
use super::super::records::Call;

/// Whether the text can be a cursor. Which one makes no difference.
///
/// # Errors
/// It cannot.
pub(super) fn check_cursor(text: &[u8]) -> Result<(), RequestRefusal> {
    match std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok()) {
        Some(_) => Ok(()),
        None => Err(Cow::Borrowed("ERR invalid cursor")),
    }
}

/// The pattern that `MATCH` says, in arguments from `first` on.
///
/// # Errors
/// There are other arguments than `MATCH` and `COUNT`.
pub(super) fn pattern<'a>(call: &Call<'a>, first: usize) -> Result<Option<&'a [u8]>, RequestRefusal> {
    let mut pattern = None;
    for at in (first..call.a.len()).step_by(2) {
        match () {
            () if at + 1 >= call.a.len() => return Err(Cow::Borrowed(SYNTAX)),
            () if call.a.is(at, "COUNT") => match number::integer(call.a.get(at + 1)) {
                None => return Err(Cow::Borrowed(NOT_AN_INTEGER)),
                Some(..=0) => return Err(Cow::Borrowed(SYNTAX)),
                Some(_) => {}
            },
            () if call.a.is(at, "MATCH") => pattern = Some(call.a.get(at + 1)),
            () => return Err(Cow::Borrowed(SYNTAX)),
        }
    }
    match pattern {
        Some(pattern) if pattern.len() > glob::PATTERN_BYTES_MAX => {
            Err(Cow::Owned(format!("ERR a pattern has at most {} bytes", glob::PATTERN_BYTES_MAX)))
        }
        pattern => Ok(pattern),
    }
}

/// The front of a reply with so many bulk strings.
pub(super) fn begin(out: &mut Vec<u8>, strings: usize) {
    encode::array(out, 2);
    encode::bulk(out, b"0");
    encode::array(out, strings);
}
