//! HSCAN, SSCAN and ZSCAN: a packed structure is answered at once with cursor 0, as Redis does with
//! small ones. A tree is walked page by page.

use std::borrow::Cow;

use stratakv_protocol::resp::{encode, glob, number};

use super::super::arguments::{NOT_AN_INTEGER, RequestRefusal, SYNTAX};
use super::super::records::Call;

/// Elements that are looked at if no `COUNT` says otherwise.
const COUNT: u64 = 10;

/// What a command asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElementScan<'a> {
    pattern: Option<&'a [u8]>,
    /// Where it goes on, and how many elements are looked at.
    pub(super) page: (u64, u64),
}

impl<'a> ElementScan<'a> {
    /// The arguments of a command whose key is there or not: Redis looks for the key first.
    pub(super) fn read(
        call: &Call<'a>,
        has_key: impl FnOnce() -> Result<bool, RequestRefusal>,
    ) -> Result<ElementScan<'a>, RequestRefusal> {
        let cursor = cursor(call.a.get(2))?;
        let (pattern, count) = if has_key()? { options(call, 3)? } else { (None, COUNT) };
        Ok(ElementScan { pattern, page: (cursor, count) })
    }

    /// Whether an element is answered.
    pub(super) fn matches(&self, element: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, element))
    }
}

fn cursor(text: &[u8]) -> Result<u64, RequestRefusal> {
    let cursor = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
    cursor.ok_or(Cow::Borrowed("ERR invalid cursor"))
}

/// What `MATCH` and `COUNT` say, in arguments from `first` on.
///
/// # Errors
/// There are other arguments than `MATCH` and `COUNT`.
fn options<'a>(call: &Call<'a>, first: usize) -> Result<(Option<&'a [u8]>, u64), RequestRefusal> {
    let (mut pattern, mut wanted) = (None, COUNT);
    for at in (first..call.a.len()).step_by(2) {
        match () {
            () if at + 1 >= call.a.len() => return Err(Cow::Borrowed(SYNTAX)),
            () if call.a.is(at, "COUNT") => match number::integer(call.a.get(at + 1)) {
                None => return Err(Cow::Borrowed(NOT_AN_INTEGER)),
                Some(..=0) => return Err(Cow::Borrowed(SYNTAX)),
                Some(count) => wanted = count.unsigned_abs(),
            },
            () if call.a.is(at, "MATCH") => pattern = Some(call.a.get(at + 1)),
            () => return Err(Cow::Borrowed(SYNTAX)),
        }
    }
    match pattern {
        Some(pattern) if pattern.len() > glob::PATTERN_BYTES_MAX => {
            Err(Cow::Owned(format!("ERR a pattern has at most {} bytes", glob::PATTERN_BYTES_MAX)))
        }
        pattern => Ok((pattern, wanted)),
    }
}

/// The front of a reply with a cursor and so many bulk strings.
pub(super) fn begin(out: &mut Vec<u8>, (cursor, strings): (u64, usize)) {
    encode::array(out, 2);
    encode::bulk(out, cursor.to_string().as_bytes());
    encode::array(out, strings);
}
