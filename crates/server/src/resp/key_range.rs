//! Keys of a range in their order, over all shards: our own commands `SKV.RANGE`, `SKV.PREFIX` and
//! `mr`.
//!
//! Shard after shard is asked for one page, and each only up to where those before it have been
//! looked at. What is answered ends where the first shard has more: there the next command begins.

use std::collections::BTreeSet;
use std::ops::Bound;

use stratakv_base::{CollectionId, Key};
use stratakv_engine::{Capability, Error, Operation, PageRequest, Reply};
use stratakv_protocol::memcache::{encode_key, reply};
use stratakv_protocol::resp::encode;

use super::key_list::KeyList;
use super::reply::written;
use super::work::{Asked, WorkContext, error_of};
use crate::answer::count_failure;
use crate::connection::Target;
use crate::connection::dump::is_no_word;

/// Bytes of keys that one command gathers, and that each shard is asked for.
pub(crate) const RANGE_BYTES: usize = 64 << 10;

/// Who asks, and for what besides keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RangeForm {
    /// A Redis client.
    Resp {
        /// Values follow.
        values: bool,
    },
    /// A memcache client, with the flags of what follows.
    Meta { line: Box<[u8]>, base64: bool, wants_records: bool },
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    from: Bound<Key>,
    to: Bound<Key>,
    reverse: bool,
    count_max: usize,
    form: RangeForm,
    shard: usize,
    keys: BTreeSet<Key>,
    keys_bytes: usize,
    /// The last key up to which all shards have been looked at, if they were not to their end.
    last: Option<Key>,
    is_refused: bool,
}

/// The ends of a range of the default collection.
pub(crate) fn bounds(from: Bound<&[u8]>, to: Bound<&[u8]>) -> (Bound<Key>, Bound<Key>) {
    let key = |name: &[u8]| Key::bound(CollectionId::default(), name);
    let from = match from {
        Bound::Unbounded => Bound::Included(key(b"")),
        from => from.map(key),
    };
    let to = match to {
        Bound::Unbounded => Bound::Excluded(Key::bound(CollectionId(1), b"")),
        to => to.map(key),
    };
    (from, to)
}

impl KeyRange {
    pub(crate) fn new(
        (from, to): (Bound<Key>, Bound<Key>),
        (reverse, count_max): (bool, u32),
        form: RangeForm,
    ) -> KeyRange {
        let count_max = count_max as usize;
        let (shard, keys, keys_bytes, last, is_refused) = (0, BTreeSet::new(), 0, None, false);
        KeyRange { from, to, reverse, count_max, form, shard, keys, keys_bytes, last, is_refused }
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        RANGE_BYTES + self.keys_bytes
    }

    /// Asks the next shard; the answer, if there is none.
    pub(super) fn ask(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        let (from, to) = self.open();
        if self.shard >= context.shards || is_empty(&from, &to) {
            return Some(self.answer());
        }
        let items_max = u32::try_from(self.count_max).unwrap_or(u32::MAX);
        let bytes_max = RANGE_BYTES as u32;
        let page = PageRequest { from, to, reverse: self.reverse, keys_only: true, items_max, bytes_max, at: None };
        asked.push((Target::Shard(self.shard), Operation::Page(page.into())));
        None
    }

    /// What of the range is still of interest.
    fn open(&self) -> (Bound<Key>, Bound<Key>) {
        match (&self.last, self.reverse) {
            (Some(last), false) => (self.from.clone(), Bound::Included(last.clone())),
            (Some(last), true) => (Bound::Included(last.clone()), self.to.clone()),
            (None, _) => (self.from.clone(), self.to.clone()),
        }
    }

    pub(super) fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        match reply {
            Reply::Page { items, next } => {
                let end = items.last().map(|item| item.key.clone());
                for item in items {
                    self.keys_bytes += item.key.encoded().len() + size_of::<Key>();
                    self.keys.insert(item.key);
                }
                match (next, end) {
                    (Some(_), Some(end)) => self.cut(end),
                    // Nothing up to there: the same shard goes on.
                    (Some(next), None) => {
                        let (from, to) = if self.reverse { (self.from.clone(), next) } else { (next, self.to.clone()) };
                        return self.ask_again((from, to), context, asked);
                    }
                    (None, _) => {}
                }
                self.keep_first();
                self.shard += 1;
                self.ask(context, asked)
            }
            Reply::Failed(error) => Some(self.refuse(&error, context)),
            _ => Some(self.refuse(&Error::Unknown("the engine gave an answer of another kind"), context)),
        }
    }

    fn ask_again(
        &mut self,
        (from, to): (Bound<Key>, Bound<Key>),
        context: &WorkContext<'_>,
        asked: &mut Asked,
    ) -> Option<Vec<u8>> {
        let whole = (self.from.clone(), self.to.clone());
        (self.from, self.to) = (from, to);
        let ended = self.ask(context, asked);
        (self.from, self.to) = whole;
        ended
    }

    /// What lies beyond `end` is left for the next command.
    fn cut(&mut self, end: Key) {
        let is_nearer = self.last.as_ref().is_none_or(|last| (end < *last) != self.reverse);
        if is_nearer {
            self.last = Some(end);
        }
    }

    /// Lets go of keys that are too many, or that lie beyond what all shards were looked at.
    fn keep_first(&mut self) {
        while let Some(farthest) = if self.reverse { self.keys.first() } else { self.keys.last() } {
            let is_beyond =
                self.last.as_ref().is_some_and(|last| farthest != last && (farthest > last) != self.reverse);
            let is_much = self.keys.len() > self.count_max || (self.keys_bytes > RANGE_BYTES && self.keys.len() > 1);
            if !is_beyond && !is_much {
                return;
            }
            let farthest = if self.reverse { self.keys.pop_first() } else { self.keys.pop_last() };
            self.keys_bytes -= farthest.map_or(0, |key| key.encoded().len() + size_of::<Key>());
            if is_much && let Some(end) = if self.reverse { self.keys.first() } else { self.keys.last() } {
                self.last = Some(end.clone());
            }
        }
    }

    /// The keys whose records are to follow the answer, and what stands behind the last one;
    /// `None`: nothing follows.
    pub(crate) fn rest(&self) -> Option<(KeyList, Vec<u8>)> {
        let follow = match &self.form {
            RangeForm::Resp { values } => *values,
            RangeForm::Meta { wants_records, .. } => *wants_records,
        };
        (follow && !self.is_refused).then(|| (KeyList::of_keys(self.in_order().into_iter()), self.end()))
    }

    /// What stands behind the last record, for a memcache client.
    fn end(&self) -> Vec<u8> {
        let RangeForm::Meta { base64, .. } = &self.form else { return Vec::new() };
        written(|out| {
            out.extend_from_slice(b"EN");
            if let Some(last) = &self.last {
                out.extend_from_slice(b" n(");
                write_key(out, last, *base64);
            }
            out.extend_from_slice(reply::CRLF);
        })
    }

    fn in_order(&self) -> Vec<&Key> {
        match self.reverse {
            true => self.keys.iter().rev().collect(),
            false => self.keys.iter().collect(),
        }
    }

    fn answer(&self) -> Vec<u8> {
        written(|out| match &self.form {
            RangeForm::Resp { values } => {
                encode::array(out, 2);
                match &self.last {
                    Some(last) => encode::bulk(out, &[b"(", last.user()].concat()),
                    None => encode::bulk(out, b""),
                }
                encode::array(out, if *values { 2 * self.keys.len() } else { self.keys.len() });
                if !values {
                    self.in_order().iter().for_each(|key| encode::bulk(out, key.user()));
                }
            }
            RangeForm::Meta { wants_records: true, .. } => {}
            RangeForm::Meta { base64, line, .. } => {
                let opaque = line.split(|byte| *byte == b' ').find(|word| word.starts_with(b"O"));
                for key in self.in_order() {
                    out.extend_from_slice(b"HD k");
                    write_key(out, key, *base64);
                    if let Some(opaque) = opaque {
                        out.push(b' ');
                        out.extend_from_slice(opaque);
                    }
                    out.extend_from_slice(reply::CRLF);
                }
                out.extend_from_slice(&self.end());
            }
        })
    }

    fn refuse(&mut self, error: &Error, context: &WorkContext<'_>) -> Vec<u8> {
        self.is_refused = true;
        let has_no_order = matches!(error, Error::Unsupported(Capability::Ordered));
        match &self.form {
            RangeForm::Resp { .. } if has_no_order => written(|out| {
                encode::error(
                    out,
                    "ERR the engine keeps keys in no order: SCAN lists them, and `slab` and `matrix` have ranges",
                );
            }),
            RangeForm::Resp { .. } => error_of(error, false, context),
            RangeForm::Meta { .. } if has_no_order => reply::RANGE_WITHOUT_ORDER.to_vec(),
            RangeForm::Meta { .. } => written(|out| {
                count_failure(error, false, context.here.counters);
                reply::server_error(out, &error.to_string());
            }),
        }
    }
}

/// Appends a key of a line.
fn write_key(out: &mut Vec<u8>, key: &Key, base64: bool) {
    let base64 = base64 || is_no_word(key.user());
    encode_key(out, key.user(), base64);
    out.extend_from_slice(if base64 { b" b" } else { b"" });
}

fn is_empty(from: &Bound<Key>, to: &Bound<Key>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}
