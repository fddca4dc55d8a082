//! RANDOMKEY: a key by lot, and not each with the same chance. Engines in key order are asked for
//! the keys before or behind a name between their first and their last one, the others for those
//! behind a place of their list, and then for those at its beginning.

use std::ops::Bound;

use stratakv_base::{CollectionId, Key};
use stratakv_engine::{Capability, Error, Item, ListRequest, Operation, PageRequest, Reply};
use stratakv_protocol::resp::{Version, encode};

use super::commands::lots;
use super::reply::written;
use super::session::mixed;
use super::work::{Asked, WorkContext, error_of};
use crate::connection::Target;

/// Keys of which one is drawn.
const CANDIDATES: u32 = 16;
const PAGE_BYTES_MAX: u32 = 16 << 10;
/// Parts of a list that are asked for after the first that had a key: a few keys in a list that was
/// made for many lie far apart.
const PARTS_MAX: u32 = 64;
/// Bytes of keys of which one is drawn.
const LISTED_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    First,
    Last,
    Between,
    Listed {
        /// From the beginning: behind the place there was not enough.
        is_from_start: bool,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct RandomKey {
    seed: u64,
    /// Bits that the cursors of a list have.
    cursor_bits: u32,
    shard: usize,
    /// Shards that have no key.
    empty: usize,
    stage: Stage,
    first: Option<Key>,
    last: Option<Key>,
    /// Of the parts of a list so far.
    listed: Vec<Key>,
    /// Parts since the first that had a key.
    parts: u32,
}

impl RandomKey {
    pub(crate) fn new(seed: u64, cursor_bits: u32) -> RandomKey {
        let (stage, listed) = (Stage::First, Vec::new());
        RandomKey { seed, cursor_bits, shard: 0, empty: 0, stage, first: None, last: None, listed, parts: 0 }
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        let keys = self.listed.iter().chain(&self.first).chain(&self.last);
        keys.map(|key| size_of::<Key>() + key.encoded().len()).sum()
    }

    fn draw(&mut self) -> u64 {
        self.seed = mixed(self.seed);
        self.seed
    }

    pub(crate) fn begin(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        let seed = self.draw();
        self.shard = lots::any(context.shards, seed).unwrap_or_default();
        self.ask_first(asked);
        None
    }

    fn ask_first(&mut self, asked: &mut Asked) {
        self.stage = Stage::First;
        self.ask_page((start(), end()), (false, 1), asked);
    }

    fn ask_page(&self, (from, to): (Bound<Key>, Bound<Key>), (reverse, items_max): (bool, u32), asked: &mut Asked) {
        let page = PageRequest { from, to, reverse, keys_only: true, items_max, bytes_max: PAGE_BYTES_MAX, at: None };
        asked.push((Target::Shard(self.shard), Operation::Page(page.into())));
    }

    fn ask_list(&mut self, cursor: u64, is_from_start: bool, asked: &mut Asked) {
        self.stage = Stage::Listed { is_from_start };
        let (collection, shard) = (CollectionId::default(), self.shard as u32);
        let list = ListRequest { collection, cursor, shard, items_max: CANDIDATES };
        asked.push((Target::Shard(self.shard), Operation::List(list)));
    }

    pub(crate) fn step(
        &mut self,
        reply: Reply,
        version: Version,
        context: &WorkContext<'_>,
        asked: &mut Asked,
    ) -> Option<Vec<u8>> {
        match (self.stage, reply) {
            (Stage::First, Reply::Failed(Error::Unsupported(Capability::Ordered))) => {
                let cursor = self.draw() >> (u64::BITS - self.cursor_bits);
                self.ask_list(cursor, false, asked);
                None
            }
            (_, Reply::Failed(error)) => Some(error_of(&error, false, context)),
            (Stage::First, Reply::Page { items, .. }) => match items.into_iter().next() {
                Some(Item { key, .. }) => {
                    self.first = Some(key);
                    self.stage = Stage::Last;
                    self.ask_page((start(), end()), (true, 1), asked);
                    None
                }
                None => self.next_shard(version, context, asked),
            },
            (Stage::Last, Reply::Page { items, .. }) => {
                self.last = items.into_iter().next().map(|item| item.key).or_else(|| self.first.clone());
                let lot = self.draw();
                let ends = self.first.as_ref().zip(self.last.as_ref());
                let name = ends.map(|(first, last)| between(first.user(), last.user(), lot)).unwrap_or_default();
                let name = Bound::Included(Key::bound(CollectionId(0), &name));
                self.stage = Stage::Between;
                match self.draw().is_multiple_of(2) {
                    true => self.ask_page((name, end()), (false, CANDIDATES), asked),
                    false => self.ask_page((start(), name), (true, CANDIDATES), asked),
                }
                None
            }
            (Stage::Between, Reply::Page { items, .. }) => {
                let key = self.drawn(items.into_iter().map(|item| item.key).collect()).or_else(|| self.last.take());
                Some(written(|out| match key {
                    Some(key) => encode::bulk(out, key.user()),
                    None => encode::null(out, version),
                }))
            }
            (Stage::Listed { is_from_start }, Reply::Listed { items, next }) => {
                self.gather(items);
                match next {
                    _ if self.has_enough() => self.answer_listed(version, context, asked),
                    Some(next) => {
                        self.ask_list(next, is_from_start, asked);
                        None
                    }
                    None if !is_from_start => {
                        self.ask_list(0, true, asked);
                        None
                    }
                    None => self.answer_listed(version, context, asked),
                }
            }
            _ => Some(error_of(&Error::Unknown("the engine gave an answer of another kind"), false, context)),
        }
    }

    /// Keys that are met again, from the beginning on, count once: each has the same chance if they
    /// are few.
    fn gather(&mut self, items: Vec<Item>) {
        for Item { key, .. } in items {
            if !self.listed.contains(&key) {
                self.listed.push(key);
            }
        }
        self.parts += u32::from(!self.listed.is_empty());
    }

    fn has_enough(&self) -> bool {
        let is_long_search = self.parts > PARTS_MAX || self.held_bytes() > LISTED_BYTES_MAX;
        self.listed.len() >= CANDIDATES as usize || is_long_search
    }

    fn answer_listed(&mut self, version: Version, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        let listed = std::mem::take(&mut self.listed);
        match self.drawn(listed) {
            Some(key) => Some(written(|out| encode::bulk(out, key.user()))),
            None => self.next_shard(version, context, asked),
        }
    }

    fn drawn(&mut self, keys: Vec<Key>) -> Option<Key> {
        let lot = self.draw();
        let place = lots::any(keys.len(), lot)?;
        keys.into_iter().nth(place)
    }

    /// The shard has no key.
    fn next_shard(&mut self, version: Version, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        self.empty += 1;
        if self.empty >= context.shards {
            return Some(written(|out| encode::null(out, version)));
        }
        self.shard = (self.shard + 1) % context.shards.max(1);
        match self.stage {
            Stage::Listed { .. } => self.ask_list(0, true, asked),
            _ => self.ask_first(asked),
        }
        None
    }
}

/// Before the first key of the default collection.
fn start() -> Bound<Key> {
    Bound::Included(Key::bound(CollectionId(0), b""))
}

/// Behind its last one.
fn end() -> Bound<Key> {
    Bound::Excluded(Key::bound(CollectionId(1), b""))
}

/// A name between two others, by lot: what they have in common, and a number between those that the
/// next eight bytes of each are.
fn between(first: &[u8], last: &[u8], lot: u64) -> Vec<u8> {
    let common = first.iter().zip(last).take_while(|(one, other)| one == other).count();
    let number = |name: &[u8]| {
        let mut bytes = [0; 8];
        name.iter().skip(common).zip(&mut bytes).for_each(|(from, to)| *to = *from);
        u64::from_be_bytes(bytes)
    };
    let (low, high) = (number(first), number(last));
    let offset = lot.checked_rem(high.saturating_sub(low).saturating_add(1)).unwrap_or_default();
    let mut name = first.get(..common).unwrap_or_default().to_vec();
    name.extend_from_slice(&low.saturating_add(offset).to_be_bytes());
    // A key is no longer, and a shorter bound is before it.
    name.truncate(u16::MAX.into());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_by_lot_lies_between_two_others() {
        for (first, last) in [
            (&b"user:1"[..], &b"user:999"[..]),
            (b"a", b"a"),
            (b"", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            (b"a", b"ab"),
        ] {
            for lot in [0, 1, u64::MAX, u64::MAX / 2, 0x1234_5678_9ABC_DEF0] {
                let name = between(first, last, lot);
                let padded = |name: &[u8]| [name, &[0; 20]].concat()[..16].to_vec();
                assert!(padded(&name) >= padded(first), "{} {lot}", name.escape_ascii());
                assert!(padded(&name) <= [&padded(last)[..], &[0xFF; 8]].concat(), "{}", name.escape_ascii());
            }
        }
        let key = vec![b'k'; 65_535];
        assert!(between(&key, &key, 7).len() <= 65_535);
    }
}
