//! [`WriteBatch`]: changes of any keys and collections, all or none.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key, Level};
use stratakv_engine::{Change, ChangeKind, Error as EngineError, Expect, Operation};

use crate::collection::{Collection, put_kind, written};
use crate::error::Error;
use crate::list::{End, List, place};
use crate::order::RejectedRecord;
use crate::put::{PutOptions, PutOutcome};
use crate::store::Store;

/// Changes that are made as one: readers see all of them or none, and so do later openings,
/// whatever happens in between. Up to 64 MiB of keys and values. A key that is given twice takes
/// the later change; all conditions on it must hold of what is stored before the batch.
///
/// A bad key or value is told by [`Store::write`], and so are two conditions on one key that can
/// never hold both.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    changes: Vec<Change>,
    /// What goes to ends of lists: where that is, is known when the batch is written.
    pushes: Vec<(List, End, Bytes)>,
    /// What was wrong first.
    error: Option<RejectedRecord>,
}

impl WriteBatch {
    /// Nothing yet.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets a key of the default collection.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut WriteBatch {
        let kind = put_kind(Bytes::copy_from_slice(value.as_ref()), 0, Expiry::NEVER);
        self.add(default_key(key.as_ref()), Expect::Any, kind)
    }

    /// Removes a key of the default collection.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut WriteBatch {
        self.add(default_key(key.as_ref()), Expect::Any, Ok(ChangeKind::Delete))
    }

    /// Sets a key of a collection.
    pub fn put_in(
        &mut self,
        collection: &Collection,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut WriteBatch {
        self.put_with(collection, key, value, &PutOptions::default())
    }

    /// Removes a key of a collection.
    pub fn delete_in(&mut self, collection: &Collection, key: impl AsRef<[u8]>) -> &mut WriteBatch {
        self.add(collection.place(key.as_ref()), Expect::Any, Ok(ChangeKind::Delete))
    }

    /// Sets a key of a collection, with flags, expiry and condition. (The level is that of the
    /// batch: power loss; with [`Engine::Hash`](crate::Engine::Hash) that of the store.)
    pub fn put_with(
        &mut self,
        collection: &Collection,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &PutOptions,
    ) -> &mut WriteBatch {
        let kind = put_kind(Bytes::copy_from_slice(value.as_ref()), options.flags, options.expiry_in(collection));
        self.add(collection.place(key.as_ref()), options.expect, kind)
    }

    /// Removes a key of a collection if `expect` holds; else nothing of the batch is done.
    pub fn delete_if(&mut self, collection: &Collection, key: impl AsRef<[u8]>, expect: Expect) -> &mut WriteBatch {
        self.add(collection.place(key.as_ref()), expect, Ok(ChangeKind::Delete))
    }

    /// Puts an element at an end of a list; of several, one after the other. For the blocking
    /// [`Store::write`] only. (To take elements away, or to decide by them, there are transactions:
    /// [`Store::transact`].)
    pub fn push(&mut self, list: &List, end: End, value: impl AsRef<[u8]>) -> &mut WriteBatch {
        match put_kind(Bytes::copy_from_slice(value.as_ref()), 0, Expiry::NEVER) {
            Ok(ChangeKind::Put { value, .. }) => self.pushes.push((list.clone(), end, value)),
            Ok(_) => {}
            Err(error) => self.error = self.error.take().or(Some(error.into())),
        }
        self
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len() + self.pushes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Finds the places of what goes to lists. Their locks are held until the batch is written.
    fn place_pushes(&mut self, store: &Store) -> Result<(), Error> {
        let mut ends: HashMap<CollectionId, (Option<Key>, Option<Key>)> = HashMap::new();
        for (list, end, value) in std::mem::take(&mut self.pushes) {
            let id = list.records().id();
            if !Arc::ptr_eq(list.records().inner(), store.inner()) {
                return Err(Error::OtherStore("the list"));
            }
            let (front, back) = match ends.entry(id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert((list.end_key(End::Front)?, list.end_key(End::Back)?)),
            };
            let at = if end == End::Front { &*front } else { &*back };
            let key = Key::new(id, &place(at.as_ref(), end)?)?;
            // The first element of a list is at both ends.
            if end == End::Front || front.is_none() {
                *front = Some(key.clone());
            }
            if end == End::Back || back.is_none() {
                *back = Some(key.clone());
            }
            let kind = ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER };
            self.changes.push(Change { key, expect: Expect::Absent, kind });
        }
        Ok(())
    }

    fn add(
        &mut self,
        key: Result<Key, RejectedRecord>,
        expect: Expect,
        kind: Result<ChangeKind, EngineError>,
    ) -> &mut WriteBatch {
        match (key, kind) {
            (Ok(key), Ok(kind)) => self.changes.push(Change { key, expect, kind }),
            (Err(error), _) => self.error = self.error.take().or(Some(error)),
            (_, Err(error)) => self.error = self.error.take().or(Some(error.into())),
        }
        self
    }

    fn operation(mut self, level: Level) -> Result<Option<Operation>, Error> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        // The sort keeps the order of those of one key.
        self.changes.sort_by(|a, b| a.key.cmp(&b.key));
        let mut changes: Vec<Change> = Vec::with_capacity(self.changes.len());
        for change in self.changes {
            match changes.last_mut() {
                Some(earlier) if earlier.key == change.key => follow(earlier, change)?,
                _ => changes.push(change),
            }
        }
        Ok((!changes.is_empty()).then_some(Operation::Write { changes, level }))
    }
}

/// Makes two changes of one key one: what the later one does, if both conditions hold of what is
/// stored.
fn follow(earlier: &mut Change, later: Change) -> Result<(), EngineError> {
    earlier.expect = match (earlier.expect, later.expect) {
        (Expect::Any, expect) | (expect, Expect::Any) => expect,
        (one, other) if one == other => one,
        (Expect::Present, version @ Expect::Version(_)) | (version @ Expect::Version(_), Expect::Present) => version,
        _ => return Err(EngineError::BadBatch("two of its conditions on one key can never hold both")),
    };
    if !matches!(later.kind, ChangeKind::Check) {
        earlier.kind = later.kind;
    }
    Ok(())
}

fn default_key(key: &[u8]) -> Result<Key, RejectedRecord> {
    Ok(Key::new(CollectionId::default(), key)?)
}

impl Store {
    /// Makes all changes of a batch, durable at power loss (in a region at the store's own level),
    /// or none: none if a condition of one does not hold. An empty batch is done at once, with
    /// version 0.
    ///
    /// # Errors
    /// A bad key or value, over 64 MiB in all, a full store, an I/O error. Nothing was changed,
    /// unless the error's kind is [`Unknown`](crate::ErrorKind::Unknown): then all of it was, or
    /// nothing.
    pub fn write(&self, mut batch: WriteBatch) -> Result<PutOutcome, Error> {
        let lists = batch.pushes.iter().map(|(list, ..)| list.records().id());
        self.inner().check_not_forked()?;
        let _held = self.inner().list_locks.lock(lists);
        batch.place_pushes(self)?;
        match batch.operation(self.inner().batch_level())? {
            Some(operation) => written(self.execute(operation)),
            None => Ok(PutOutcome::Written { version: 0 }),
        }
    }

    /// [`Store::write`] as a future. Dropped once polled, the batch is still made, whole.
    ///
    /// # Errors
    /// As [`Store::write`]; a batch that pushes to lists, which waits for their locks.
    pub async fn write_async(&self, batch: WriteBatch) -> Result<PutOutcome, Error> {
        if !batch.pushes.is_empty() {
            return Err(Error::Option(
                "a batch that pushes to lists waits for their locks: give it to Store::write".into(),
            ));
        }
        match batch.operation(self.inner().batch_level())? {
            Some(operation) => written(self.execute_async(operation).await),
            None => Ok(PutOutcome::Written { version: 0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_a_key_holds() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").put(b"b", b"1").delete(b"a").put(b"b", b"2").put(b"a", b"3").delete(b"b");
        let Ok(Some(Operation::Write { changes, .. })) = batch.operation(Level::PowerLoss) else {
            panic!("it is a write")
        };
        let of = |name: &[u8]| changes.iter().filter(|change| change.key.user() == name).collect::<Vec<_>>();
        assert!(matches!(&of(b"a")[..], [Change { kind: ChangeKind::Put { value, .. }, .. }] if value == "3"));
        assert!(matches!(&of(b"b")[..], [Change { kind: ChangeKind::Delete, .. }]));
    }

    /// What was dropped in silence: {put if absent lock, put lock, put work} overwrote somebody's
    /// lock.
    #[test]
    fn all_conditions_on_a_key_stay() {
        let change = |kind, expect| Change { key: default_key(b"k").expect("a key"), expect, kind };
        let conditions = [Expect::Any, Expect::Absent, Expect::Present, Expect::Version(7), Expect::Version(8)];
        // States of a key: absent, or with a version.
        let states = [None, Some(7), Some(8), Some(9)];
        let holds = |expect: Expect, state: Option<u64>| expect.unmet(state.is_some(), state).is_none();
        for first in conditions {
            for second in conditions {
                let mut one = change(ChangeKind::Delete, first);
                let outcome = follow(&mut one, change(ChangeKind::Delete, second));
                let both: Vec<_> = states.into_iter().filter(|s| holds(first, *s) && holds(second, *s)).collect();
                assert_eq!(outcome.is_ok(), !both.is_empty(), "{first:?} {second:?}");
                if outcome.is_ok() {
                    let together: Vec<_> = states.into_iter().filter(|state| holds(one.expect, *state)).collect();
                    assert_eq!(together, both, "{first:?} {second:?}");
                }
            }
        }
    }

    #[test]
    fn a_bad_key_is_told_with_the_batch() {
        let mut batch = WriteBatch::new();
        batch.put(b"", b"1").put(b"b", b"1");
        assert!(batch.operation(Level::PowerLoss).is_err_and(|error| error.to_string().contains("empty")));
    }
}
