//! Lists within transactions: what was seen of their ends, and their elements with the
//! transaction's own changes.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_engine::{ChangeKind, PageRequest};

use super::Transaction;
use crate::collection::{Collection, put_kind};
use crate::error::Error;
use crate::list::{End, List, place};
use crate::routing::Inner;
use crate::scan::whole;

/// What a transaction has seen of a list's ends.
#[derive(Debug, Default)]
pub(super) struct Ends {
    front: Seen,
    back: Seen,
}

/// The first keys of a list in the store, or the last ones, from the end inwards.
#[derive(Debug, Default)]
struct Seen {
    keys: Vec<Key>,
    /// There are no more.
    all: bool,
    /// Of these, the transaction has changed so many.
    passed: usize,
}

impl Ends {
    fn of(&mut self, end: End) -> &mut Seen {
        match end {
            End::Front => &mut self.front,
            End::Back => &mut self.back,
        }
    }

    /// Looks again: a key that shows that an end is not as it was seen. The list's lock is held.
    pub(super) fn changed(&self, id: CollectionId, inner: &Inner) -> Result<Option<Key>, Error> {
        for (seen, reverse) in [(&self.front, false), (&self.back, true)] {
            if let Some(changed) = seen.changed(id, reverse, inner)? {
                return Ok(Some(changed));
            }
        }
        Ok(None)
    }
}

impl Seen {
    fn changed(&self, id: CollectionId, reverse: bool, inner: &Inner) -> Result<Option<Key>, Error> {
        let wanted = self.keys.len() + usize::from(self.all);
        let mut now = Vec::with_capacity(wanted);
        let mut request = page(id, reverse);
        while now.len() < wanted {
            request.items_max = u32::try_from(wanted - now.len()).unwrap_or(u32::MAX).min(4096);
            let (keys, next) = inner.page_of_keys(&request)?;
            now.extend(keys);
            match next {
                Some(next) => *(if reverse { &mut request.to } else { &mut request.from }) = next,
                None => break,
            }
        }
        let differs = now.iter().zip(&self.keys).position(|(now, before)| now != before);
        let at = differs.unwrap_or(now.len().min(self.keys.len()));
        Ok(now.get(at).or(self.keys.get(at)).cloned())
    }
}

fn page(collection: CollectionId, reverse: bool) -> PageRequest {
    let (from, to) = whole(collection);
    PageRequest { from, to, reverse, keys_only: true, items_max: 1, bytes_max: 4 << 20, at: None }
}

/// Lists.
impl Transaction {
    /// Puts an element behind the last one of a list. Costs a look at one key.
    ///
    /// # Errors
    /// A value over 64 MiB; [`Error::OtherStore`]; as [`List::push_back`].
    pub fn push_back(&mut self, list: &List, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.push(list, End::Back, value)
    }

    /// Puts an element before the first one of a list.
    ///
    /// # Errors
    /// As [`Transaction::push_back`].
    pub fn push_front(&mut self, list: &List, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.push(list, End::Front, value)
    }

    /// Puts an element at an end of a list.
    ///
    /// # Errors
    /// As [`Transaction::push_back`].
    pub fn push(&mut self, list: &List, end: End, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let kind = put_kind(Bytes::copy_from_slice(value.as_ref()), 0, Expiry::NEVER)?;
        let last = self.end_key(list.records(), end)?;
        let key = Key::new(list.records().id(), &place(last.as_ref(), end)?)?;
        // Not read, but known: beyond the end there is nothing.
        self.reads.entry(key.clone()).or_insert(None);
        self.writes.insert(key, kind);
        Ok(())
    }

    /// Takes an element away from an end of a list; `None` if there is none. Costs a read.
    ///
    /// # Errors
    /// [`Error::OtherStore`]; as [`List::pop_front`].
    pub fn pop(&mut self, list: &List, end: End) -> Result<Option<Bytes>, Error> {
        let Some(key) = self.end_key(list.records(), end)? else { return Ok(None) };
        let value = self.element(&key)?;
        match self.reads.get(&key) {
            // Nobody else has seen it: it never was.
            Some(None) => drop(self.writes.remove(&key)),
            _ => drop(self.writes.insert(key, ChangeKind::Delete)),
        }
        Ok(value)
    }

    /// Takes the first element of a list away, as [`Transaction::pop`].
    ///
    /// # Errors
    /// As [`Transaction::pop`].
    pub fn pop_front(&mut self, list: &List) -> Result<Option<Bytes>, Error> {
        self.pop(list, End::Front)
    }

    /// Takes the last element of a list away, as [`Transaction::pop`].
    ///
    /// # Errors
    /// As [`Transaction::pop`].
    pub fn pop_back(&mut self, list: &List) -> Result<Option<Bytes>, Error> {
        self.pop(list, End::Back)
    }

    /// The element at an end of a list; `None` if there is none. Costs a read.
    ///
    /// # Errors
    /// As [`Transaction::pop`].
    pub fn peek(&mut self, list: &List, end: End) -> Result<Option<Bytes>, Error> {
        match self.end_key(list.records(), end)? {
            Some(key) => self.element(&key),
            None => Ok(None),
        }
    }

    fn element(&mut self, key: &Key) -> Result<Option<Bytes>, Error> {
        match self.writes.get(key) {
            Some(ChangeKind::Put { value, .. }) => Ok(Some(value.clone())),
            Some(_) => Ok(None),
            // Gone since its key was seen: the commit will be refused.
            None => Ok(self.read(key.clone())?.map(|record| record.to_bytes())),
        }
    }

    /// The key next to an end of a list, with the transaction's own changes.
    fn end_key(&mut self, records: &Collection, end: End) -> Result<Option<Key>, Error> {
        let id = self.key(records, b"any")?.collection();
        let stored = self.stored_end(id, end)?;
        let (from, to) = whole(id);
        let mut own = puts(&self.writes, from, to);
        let own = match end {
            End::Front => own.next(),
            End::Back => own.next_back(),
        };
        let own = own.cloned();
        Ok(match end {
            End::Front => stored.into_iter().chain(own).min(),
            End::Back => stored.into_iter().chain(own).max(),
        })
    }

    /// The key in the store next to an end, of those that the transaction has not changed.
    fn stored_end(&mut self, id: CollectionId, end: End) -> Result<Option<Key>, Error> {
        let seen = self.ends.entry(id).or_default().of(end);
        loop {
            match seen.keys.get(seen.passed) {
                Some(key) if self.writes.contains_key(key) => seen.passed += 1,
                Some(key) => return Ok(Some(key.clone())),
                None if seen.all => return Ok(None),
                None => {
                    let reverse = end == End::Back;
                    let mut request = page(id, reverse);
                    if let Some(last) = seen.keys.last() {
                        let last = Bound::Excluded(last.clone());
                        *(if reverse { &mut request.to } else { &mut request.from }) = last;
                    }
                    let (keys, _) = self.inner.page_of_keys(&request)?;
                    seen.all = keys.is_empty();
                    seen.keys.extend(keys);
                }
            }
        }
    }
}

/// Keys that a transaction puts, within bounds, in order.
fn puts(writes: &BTreeMap<Key, ChangeKind>, from: Bound<Key>, to: Bound<Key>) -> impl DoubleEndedIterator<Item = &Key> {
    writes.range((from, to)).filter(|(_, kind)| matches!(kind, ChangeKind::Put { .. })).map(|(key, _)| key)
}
