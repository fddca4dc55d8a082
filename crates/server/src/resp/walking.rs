//! Walks over all keys: SCAN and KEYS.

use std::collections::VecDeque;

use stratakv_base::Key;
use stratakv_engine::{Capability, Error, Operation, RecordPart, Reply};
use stratakv_protocol::resp::{encode, glob};
use stratakv_structures::{HEADER_BYTES, Kind, STRUCTURE_FLAGS};

use super::reply::written;
use super::work::{Asked, WorkContext, error_of};
use crate::connection::Target;
use crate::structure;
use crate::walk::{WalkPlace, keys_of};

/// Pages that one `SCAN` reads, however few keys they have.
const SCAN_PAGES_MAX: u32 = 16;
/// Records and bytes of a page.
const PAGE_ITEMS_MAX: u32 = 1000;
const PAGE_BYTES_MAX: u32 = 32 << 10;
/// Bytes of keys of a page that lists records of `hash`; of `tier` it may be eight times that.
const LIST_BYTES_MAX: usize = 64 << 10;
/// Bytes of keys that one `SCAN` gathers before it answers.
const SCAN_BYTES_MAX: usize = 64 << 10;
/// Bytes of keys that `KEYS` may answer.
const KEYS_BYTES_MAX: usize = 1 << 20;

/// SCAN or KEYS.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub(crate) kind: WalkKind,
    pub(crate) place: WalkPlace,
    pub(crate) pattern: Option<Vec<u8>>,
    /// Keys of a page whose type is still to be seen.
    unseen: VecDeque<Key>,
    /// Keys found, as bulk strings.
    found: Vec<u8>,
    count: usize,
    seen: u32,
    pages: u32,
}

/// See [`Walk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkKind {
    /// About so many keys, from this cursor on.
    Scan {
        cursor: u64,
        wanted: u32,
        /// Keys of this type only; `Some(None)`: there is no such type.
        kind: Option<Option<Kind>>,
    },
    Keys,
}

impl Walk {
    pub(crate) fn new(kind: WalkKind, place: WalkPlace, pattern: Option<Vec<u8>>) -> Walk {
        Walk { kind, place, pattern, unseen: VecDeque::new(), found: Vec::new(), count: 0, seen: 0, pages: 0 }
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        let unseen: usize = self.unseen.iter().map(|key| size_of::<Key>() + key.user().len()).sum();
        self.found.capacity() + LIST_BYTES_MAX + unseen
    }

    /// Asks for the next page, or what the type of a key is; the answer, if this is enough.
    pub(super) fn ask(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        if let Some(key) = self.unseen.front() {
            asked.push((Target::Key, Operation::Get { key: key.clone(), part: RecordPart::Meta }));
            return None;
        }
        let is_over = self.place.shard >= context.shards;
        let items_max = match self.kind {
            WalkKind::Scan { wanted, .. } => {
                let is_enough =
                    self.seen >= wanted || self.pages >= SCAN_PAGES_MAX || self.found.len() > SCAN_BYTES_MAX;
                if is_over || is_enough {
                    return Some(self.answer(is_over, context));
                }
                wanted - self.seen
            }
            WalkKind::Keys if self.found.len() > KEYS_BYTES_MAX => {
                let limit = KEYS_BYTES_MAX >> 20;
                let text = format!("ERR more than {limit} MiB of keys match: take them piece by piece, with SCAN");
                return Some(written(|out| encode::error(out, &text)));
            }
            WalkKind::Keys if is_over => return Some(self.answer(true, context)),
            WalkKind::Keys => PAGE_ITEMS_MAX,
        };
        self.pages = self.pages.saturating_add(1);
        let page = self.place.page(items_max.clamp(1, PAGE_ITEMS_MAX), PAGE_BYTES_MAX);
        asked.push((Target::Shard(self.place.shard), page));
        None
    }

    fn answer(&mut self, is_over: bool, context: &WorkContext<'_>) -> Vec<u8> {
        written(|out| {
            if let WalkKind::Scan { cursor, .. } = self.kind {
                let next = match is_over {
                    true => 0,
                    false => context.cursors.keep(cursor, self.place.clone(), context.here.wall),
                };
                encode::array(out, 2);
                encode::bulk(out, next.to_string().as_bytes());
            }
            encode::array(out, self.count);
            out.append(&mut self.found);
        })
    }

    pub(super) fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        match reply {
            Reply::Record(record) => {
                let Some(key) = self.unseen.pop_front() else { return self.ask(context, asked) };
                let is_front_missing =
                    record.as_ref().is_some_and(|record| record.flags == STRUCTURE_FLAGS && record.value.is_empty());
                if is_front_missing && record.as_ref().is_some_and(|record| record.value_bytes > 0) {
                    let part = RecordPart::Range { start: 0, len: HEADER_BYTES as u64 };
                    asked.push((Target::Key, Operation::Get { key: key.clone(), part }));
                    self.unseen.push_front(key);
                    return None;
                }
                let found = record.map(|record| structure::kind(&record));
                if matches!(self.kind, WalkKind::Scan { kind: Some(kind), .. } if kind.is_some() && kind == found) {
                    self.find(&key);
                }
            }
            Reply::Page { items, next } => {
                keys_of(items).for_each(|key| self.take(&key));
                self.place.pass_page(next);
            }
            Reply::Listed { items, next } => {
                keys_of(items).for_each(|key| self.take(&key));
                self.place.pass_list(next);
            }
            Reply::Failed(Error::Unsupported(Capability::Ordered)) => self.place.has_no_order(),
            Reply::Failed(error) => return Some(error_of(&error, false, context)),
            _ => return Some(error_of(&Error::Unknown("the engine gave an answer of another kind"), false, context)),
        }
        self.ask(context, asked)
    }

    fn take(&mut self, key: &Key) {
        self.seen = self.seen.saturating_add(1);
        if !self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, key.user())) {
            return;
        }
        match self.kind {
            WalkKind::Scan { kind: Some(None), .. } => {}
            WalkKind::Scan { kind: Some(Some(_)), .. } => self.unseen.push_back(key.clone()),
            WalkKind::Scan { kind: None, .. } | WalkKind::Keys => self.find(key),
        }
    }

    fn find(&mut self, key: &Key) {
        self.count += 1;
        encode::bulk(&mut self.found, key.user());
    }
}
