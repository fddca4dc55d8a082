//! Our own commands: keys and values in the order of the keys.

use std::borrow::Cow;
use std::ops::Bound;

use stratakv_protocol::memcache::RANGE_COUNT_MAX;
use stratakv_protocol::range;

use super::{Connection, Context, Handled};
use crate::connection::more_keys::{MoreForm, MoreKeys};
use crate::pending::Access;
use crate::resp::{
    Arguments, KeyRange, RANGE_BYTES, RangeForm, RequestRefusal, SYNTAX, Session, Work, WorkKind, bounds,
};

/// Records of one command, if it does not say how many.
const COUNT: u32 = 100;
const BAD_FIRST: &str = "ERR a range begins at -, key, [key or (key";
const BAD_LAST: &str = "ERR a range ends at key, [key, (key or +";

/// What stands behind the ends of a range.
struct RangeOptions {
    count: u32,
    reverse: bool,
    values: bool,
    /// Of a prefix: not from its beginning.
    start: Option<usize>,
}

impl RangeOptions {
    fn read(a: &Arguments<'_>, first: usize, has_start: bool) -> Result<RangeOptions, RequestRefusal> {
        let mut options = RangeOptions { count: COUNT, reverse: false, values: true, start: None };
        let mut at = first;
        while at < a.len() {
            match () {
                () if a.is(at, "REV") => options.reverse = true,
                () if a.is(at, "KEYS") => options.values = false,
                () if a.is(at, "LIMIT") && at + 1 < a.len() => {
                    at += 1;
                    let count =
                        u32::try_from(a.integer(at)?).ok().filter(|count| (1..=RANGE_COUNT_MAX).contains(count));
                    options.count = count.ok_or_else(|| {
                        Cow::Owned(format!(
                            "ERR LIMIT is from 1 to {RANGE_COUNT_MAX}: the rest comes with the next command"
                        ))
                    })?;
                }
                () if has_start && a.is(at, "FROM") && at + 1 < a.len() => {
                    at += 1;
                    options.start = Some(at);
                }
                () => return Err(Cow::Borrowed(SYNTAX)),
            }
            at += 1;
        }
        Ok(options)
    }
}

impl Connection {
    /// `SKV.RANGE from to [REV] [LIMIT n] [KEYS]`.
    pub(super) fn resp_range(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let options = RangeOptions::read(a, 3, false)?;
        let from = range::first(a.get(1)).ok_or(Cow::Borrowed(BAD_FIRST))?;
        let to = range::last(a.get(2)).ok_or(Cow::Borrowed(BAD_LAST))?;
        self.look_for_range((from, to), &options, (s, context));
        Ok(())
    }

    /// `SKV.PREFIX prefix [FROM bound] [REV] [LIMIT n] [KEYS]`.
    pub(super) fn resp_prefix(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let options = RangeOptions::read(a, 2, true)?;
        let prefix = a.get(1);
        let behind = range::behind_prefix(prefix);
        let (mut from, mut to) = (Bound::Included(prefix), behind.as_deref().map_or(Bound::Unbounded, Bound::Excluded));
        match options.start.map(|at| a.get(at)) {
            // What lies outside of the prefix changes nothing.
            Some(start) if options.reverse => to = lower_end(to, range::last(start).ok_or(Cow::Borrowed(BAD_LAST))?),
            Some(start) => from = higher_start(from, range::first(start).ok_or(Cow::Borrowed(BAD_FIRST))?),
            None => {}
        }
        self.look_for_range((from, to), &options, (s, context));
        Ok(())
    }

    fn look_for_range(
        &mut self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        options: &RangeOptions,
        (session, context): (&Session, &mut Context<'_>),
    ) {
        let form = RangeForm::Resp { values: options.values };
        let range = KeyRange::new(bounds(from, to), (options.reverse, options.count), form);
        self.begin_range(range, MoreForm::Pairs(session.version), context);
    }

    /// Looks for the keys of a range. Nothing of the client is begun until they are known: its
    /// records come before what follows.
    pub(in crate::connection) fn begin_range(&mut self, range: KeyRange, form: MoreForm, context: &mut Context<'_>) {
        let version = match &form {
            MoreForm::Pairs(version) | MoreForm::Values(version) => *version,
            MoreForm::Meta { .. } => Default::default(),
        };
        self.unfinished.more = Some(MoreKeys::awaited(form));
        let work = Work::new(WorkKind::Keys(Box::new(range)), version);
        self.begin_work(work, Access::Everything, (RANGE_BYTES as u64, 0), context);
    }
}

/// The one of two starts that is later.
fn higher_start<'a>(one: Bound<&'a [u8]>, other: Bound<&'a [u8]>) -> Bound<&'a [u8]> {
    let place = |bound: &Bound<&'a [u8]>| match *bound {
        Bound::Unbounded => None,
        Bound::Included(key) => Some((key, false)),
        Bound::Excluded(key) => Some((key, true)),
    };
    if place(&other) > place(&one) { other } else { one }
}

/// The one of two ends that is earlier.
fn lower_end<'a>(one: Bound<&'a [u8]>, other: Bound<&'a [u8]>) -> Bound<&'a [u8]> {
    let place = |bound: &Bound<&'a [u8]>| match *bound {
        Bound::Unbounded => (true, None, false),
        Bound::Included(key) => (false, Some(key), true),
        Bound::Excluded(key) => (false, Some(key), false),
    };
    if place(&other) < place(&one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_narrows_a_prefix_and_never_widens_it() {
        let (a, b) = (&b"a"[..], &b"b"[..]);
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(higher_start(Included(a), Excluded(a)), Excluded(a));
        assert_eq!(higher_start(Included(b), Excluded(a)), Included(b));
        assert_eq!(higher_start(Included(a), Unbounded), Included(a));
        assert_eq!(lower_end(Excluded(b), Included(b)), Excluded(b));
        assert_eq!(lower_end(Unbounded, Included(b)), Included(b));
        assert_eq!(lower_end(Excluded(b), Unbounded), Excluded(b));
        assert_eq!(lower_end(Excluded(b), Included(a)), Included(a));
    }
}
