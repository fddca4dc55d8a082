//! `mr`, our own: the records of a range of keys, in their order.

use std::ops::Bound;

use base64::Engine;

use super::command::Command;
use super::line::{Tokens, signed};
use super::meta::{BASE64, FLAGS_MAX, META_OPAQUE_BYTES_MAX, MetaFlags};
use super::parser::LineError;
use super::reply;
use crate::range;

/// Most records of one `mr`.
pub const RANGE_COUNT_MAX: u32 = 1000;

/// Flags that say what is told of each record, as those of `mg` do.
const TOLD: &[u8] = b"Ocfhklstv";

/// Where a range begins and ends.
pub type KeyEnds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// `mr <from> <to> <count> <flags>*`: up to so many records of a range. See [`crate::range`] for
/// its ends. The flags are those of `mg` that tell something; `k` is always there, and `b` says
/// that the ends are base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaRange<'a> {
    /// Where it begins, as it was sent.
    pub from: &'a [u8],
    /// Where it ends, as it was sent.
    pub to: &'a [u8],
    /// At most so many.
    pub count: u32,
    /// From the end of the range downwards: the count was negative.
    pub reverse: bool,
    /// `b`: keys are told in base64, also those that need not be.
    pub base64: bool,
    /// `v`: values are wanted.
    pub value: bool,
    /// The flags as they were sent.
    pub line: &'a [u8],
}

impl MetaRange<'_> {
    /// Where it begins and ends. O(length).
    pub fn bounds(&self) -> Option<KeyEnds> {
        Some((self.decoded(range::first(self.from)?)?, self.decoded(range::last(self.to)?)?))
    }

    fn decoded(&self, end: Bound<&[u8]>) -> Option<Bound<Vec<u8>>> {
        let key = |word: &[u8]| match self.base64 {
            true => BASE64.decode(word).ok(),
            false => Some(word.to_vec()),
        };
        Some(match end {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(word) => Bound::Included(key(word)?),
            Bound::Excluded(word) => Bound::Excluded(key(word)?),
        })
    }

    /// What of each record is told but for its value, if not its key alone.
    pub fn wants_records(&self) -> bool {
        self.value || MetaFlags::split(self.line).any(|(letter, _)| b"cfhlst".contains(&letter))
    }
}

/// The words behind `mr`.
pub(super) fn parse(mut tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let (Some(from), Some(to), Some(count)) = (tokens.next(), tokens.next(), tokens.next()) else {
        return Err(reply::ERROR.into());
    };
    let count = signed(count).filter(|count| *count != 0).ok_or(reply::RANGE_BAD_COUNT)?;
    let reverse = count < 0;
    let count = count.unsigned_abs();
    let count = u32::try_from(count).ok().filter(|count| *count <= RANGE_COUNT_MAX).ok_or(reply::RANGE_BAD_COUNT)?;
    let line = tokens.rest();
    if tokens.count() > FLAGS_MAX {
        return Err(reply::META_TOO_MANY_FLAGS.into());
    }
    let mut range = MetaRange { from, to, count, reverse, base64: false, value: false, line };
    let mut seen = [false; 128];
    for (letter, rest) in MetaFlags::split(line) {
        match seen.get_mut(usize::from(letter)) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(reply::META_DUPLICATE_FLAG.into()),
        }
        match letter {
            b'b' => range.base64 = true,
            b'O' if rest.len() > META_OPAQUE_BYTES_MAX => return Err(reply::META_OPAQUE_TOO_LONG.into()),
            letter if !TOLD.contains(&letter) => return Err(reply::META_INVALID_FLAG.into()),
            _ => range.value |= letter == b'v',
        }
    }
    if range.bounds().is_none() {
        return Err(reply::RANGE_BAD_ENDS.into());
    }
    Ok(Command::MetaRange(range))
}

#[cfg(test)]
mod tests {
    use super::super::{Parsed, Parser};
    use super::*;

    fn parsed(line: &str, see: impl Fn(Result<MetaRange<'_>, &[u8]>)) {
        match Parser::new(1000).parse(format!("{line}\r\n").as_bytes()) {
            Parsed::Command { command: Command::MetaRange(range), .. } => see(Ok(range)),
            Parsed::Error { reply, .. } => see(Err(reply)),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_range_has_ends_a_count_and_flags() {
        parsed("mr - + 10", |range| {
            let range = range.unwrap();
            assert_eq!((range.count, range.reverse, range.value, range.wants_records()), (10, false, false, false));
            assert_eq!(range.bounds(), Some((Bound::Unbounded, Bound::Unbounded)));
        });
        parsed("mr user: (user:9 -3 v t Oq", |range| {
            let range = range.unwrap();
            assert_eq!((range.count, range.reverse, range.value, range.wants_records()), (3, true, true, true));
            let bounds = (Bound::Included(b"user:".to_vec()), Bound::Excluded(b"user:9".to_vec()));
            assert_eq!(range.bounds(), Some(bounds));
        });
        parsed("mr [YQ== (Yg== 1 b k", |range| {
            let range = range.unwrap();
            assert_eq!(range.bounds(), Some((Bound::Included(b"a".to_vec()), Bound::Excluded(b"b".to_vec()))));
            assert!(range.base64 && !range.wants_records());
        });
    }

    #[test]
    fn what_is_wrong_with_a_range_is_told() {
        for (line, told) in [
            ("mr a b", reply::ERROR),
            ("mr a b 0", reply::RANGE_BAD_COUNT),
            ("mr a b 1001", reply::RANGE_BAD_COUNT),
            ("mr a b -9223372036854775808", reply::RANGE_BAD_COUNT),
            ("mr a b x", reply::RANGE_BAD_COUNT),
            ("mr + b 1", reply::RANGE_BAD_ENDS),
            ("mr a - 1", reply::RANGE_BAD_ENDS),
            ("mr ? b 1 b", reply::RANGE_BAD_ENDS),
            ("mr a b 1 v v", reply::META_DUPLICATE_FLAG),
            ("mr a b 1 T0", reply::META_INVALID_FLAG),
            ("mr a b 1 \u{e9}", reply::META_DUPLICATE_FLAG),
            ("mr a b 1 O01234567890123456789012345678901", reply::META_OPAQUE_TOO_LONG),
        ] {
            parsed(line, |range| assert_eq!(range, Err(told), "{line}"));
        }
    }
}
