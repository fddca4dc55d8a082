//! Collections that expire as a whole.
//!
//! When a collection expires is in its record in the catalogue, and `expiring/` says which ones to
//! look at when a store is opened. While it is open, [`Expiring`] holds the same in memory: every
//! operation asks it on its way to a shard ([`Inner::expired_reply`]), so a collection is gone for
//! all handles at one instant, at the cost of one atomic load where no collection expires. The keys
//! are removed by the next calls that look names up, a few collections each, or at the next
//! opening.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use stratakv_base::{CollectionId, Expiry, Key, Mono, Wall, fault_point, probe};
use stratakv_engine::{Error as EngineError, Expect, Operation, PageRequest, Reply, Unmet, Update};

use crate::batch::WriteBatch;
use crate::catalogue::{name_key, numbered, numbered_key};
use crate::dropped::{Leftovers, Numbers, STEPS};
use crate::error::Error;
use crate::kind::Named;
use crate::put::{PutOptions, PutOutcome};
use crate::routing::Inner;
use crate::store::Store;

pub(crate) const EXPIRING: &[u8] = b"expiring/";

/// Collections that expire, or have while the store was open.
#[derive(Debug, Default)]
pub(crate) struct Expiring {
    /// Whether there are any.
    any: AtomicBool,
    all: RwLock<All>,
}

#[derive(Debug, Default)]
struct All {
    /// Also those that are gone: there may be handles.
    by_id: HashMap<CollectionId, Expiry>,
    /// Those whose keys are there, and their names.
    due: BTreeMap<(Expiry, CollectionId), String>,
    /// Those that were dropped, or whose keys are removed since they have expired.
    gone: Numbers,
    leftovers: Leftovers,
}

impl Expiring {
    fn read(&self) -> RwLockReadGuard<'_, All> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, All> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, id: CollectionId, at: Expiry, name: &str) {
        let mut all = self.write();
        if let Some(before) = all.by_id.remove(&id) {
            all.due.remove(&(before, id));
        }
        if at != Expiry::NEVER {
            all.by_id.insert(id, at);
            all.due.insert((at, id), name.to_owned());
        }
        self.any.store(!all.by_id.is_empty() || !all.gone.is_empty(), Ordering::Release);
    }

    /// A collection is gone, and the catalogue says so under this key: from now on for everybody.
    pub(crate) fn gone(&self, id: CollectionId, key: Vec<u8>, now: Mono) {
        let mut all = self.write();
        if let Some(at) = all.by_id.remove(&id) {
            all.due.remove(&(at, id));
        }
        all.gone.add(id);
        all.leftovers.add(id, key, now);
        self.any.store(true, Ordering::Release);
    }

    /// What is left of those that are gone.
    pub(crate) fn leftovers<R>(&self, take: impl FnOnce(&mut Leftovers) -> R) -> R {
        take(&mut self.write().leftovers)
    }

    /// Whether a collection is gone by this clock.
    fn is_past(&self, id: CollectionId, wall: impl FnOnce() -> Wall) -> bool {
        if !self.any.load(Ordering::Acquire) || id == CollectionId::default() {
            return false;
        }
        let all = self.read();
        all.gone.has(id) || all.by_id.get(&id).is_some_and(|expiry| expiry.is_past(wall()))
    }

    /// Those that have expired and whose keys are still there, so many at most.
    pub(crate) fn past(&self, wall: Wall, max: usize) -> Vec<(CollectionId, String)> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let all = self.read();
        let past = all.due.range(..=(Expiry(wall.0), CollectionId(u32::MAX)));
        past.take(max).map(|((_, id), name)| (*id, name.clone())).collect()
    }
}

impl Inner {
    /// The wall clock by which records and collections expire.
    pub(crate) fn wall(&self) -> Wall {
        self.runtime.now().wall
    }

    pub(crate) fn is_expired(&self, id: CollectionId) -> bool {
        self.expiring.is_past(id, || self.wall())
    }

    /// Whether a page lies in a collection that has expired.
    pub(crate) fn is_page_expired(&self, request: &PageRequest) -> bool {
        lower(&request.from).is_some_and(|id| self.is_expired(id))
    }

    /// The answer to an operation in a collection that has expired: nothing is there, and nothing
    /// can be put there any more.
    pub(crate) fn expired_reply(&self, operation: &Operation) -> Option<Reply> {
        if !self.expiring.any.load(Ordering::Acquire) {
            return None;
        }
        match operation {
            Operation::Get { key, .. } => self.is_expired(key.collection()).then_some(Reply::Record(None)),
            Operation::Update { key, update, .. } if self.is_expired(key.collection()) => Some(match update {
                Update::Touch(_) => Reply::Record(None),
                _ => Reply::Unmet(Unmet::Absent),
            }),
            Operation::Write { changes, .. } => {
                let mut looked_at = changes.len();
                fault_point!("library_batches_look_at_one_collection", looked_at = 1);
                let mut collections = changes.iter().take(looked_at).map(|change| change.key.collection());
                let at = collections.position(|id| self.is_expired(id))?;
                probe!("library: an expired collection stands behind another one in a batch", at > 0);
                let expired = changes.get(at)?.key.collection();
                Some(Reply::Failed(EngineError::Expired { collection: expired.0 }))
            }
            Operation::Load { records, .. } => {
                let mut collections = records.iter().map(|record| record.key.collection());
                let expired = collections.find(|id| self.is_expired(*id))?;
                Some(Reply::Failed(EngineError::Expired { collection: expired.0 }))
            }
            Operation::Page(request) if self.is_page_expired(request) => {
                Some(Reply::Page { items: Vec::new(), next: None })
            }
            _ => None,
        }
    }
}

/// The collection in which a range begins.
fn lower(from: &Bound<Key>) -> Option<CollectionId> {
    match from {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.collection()),
        Bound::Unbounded => None,
    }
}

impl Store {
    /// The store's wall clock, by which records and collections expire:
    /// `Expiry::after(store.wall(), 60_000)` is in a minute.
    pub fn wall(&self) -> Wall {
        self.inner().wall()
    }

    /// Sets when a collection or list expires as a whole, or, with [`Expiry::NEVER`], that it does
    /// not; whether there is one of that name. Durable when it returns.
    ///
    /// At that second it is gone for everybody, also for handles that are open: reads and scans
    /// find nothing, writes are answered [`EngineError::Expired`], its name stands for nothing and
    /// can be used anew. Its space comes back when next a collection is looked up by its name, or
    /// at the next opening. Costs one batch of two records, whatever it holds.
    ///
    /// # Errors
    /// A bad name; as [`Store::write`].
    pub fn expire_collection(&self, name: &str, expiry: Expiry) -> Result<bool, Error> {
        loop {
            if self.kind_of(name)?.is_none() {
                return Ok(false);
            }
            let Some((named, version)) = self.named(name)? else { return Ok(false) };
            let next = Named { expiry, ..named.clone() };
            let catalogue = self.catalogue();
            let expect = PutOptions { expect: Expect::Version(version), ..PutOptions::default() };
            let mut batch = WriteBatch::new();
            batch.put_with(&catalogue, name_key(name), next.encode().as_bytes(), &expect);
            match expiry {
                Expiry::NEVER => batch.delete_in(&catalogue, numbered_key(EXPIRING, named.id)),
                _ => batch.put_in(&catalogue, numbered_key(EXPIRING, named.id), name.as_bytes()),
            };
            if let PutOutcome::Written { .. } = self.write(batch)? {
                self.inner().expiring.set(named.id, expiry, name);
                return Ok(true);
            }
        }
    }

    /// When a collection or list expires as a whole ([`Expiry::NEVER`] if it does not); `None` if
    /// there is none of that name.
    ///
    /// # Errors
    /// A bad name; as [`Collection::get`](crate::Collection::get).
    pub fn collection_expiry(&self, name: &str) -> Result<Option<Expiry>, Error> {
        if self.kind_of(name)?.is_none() {
            return Ok(None);
        }
        Ok(self.named(name)?.map(|(named, _)| named.expiry))
    }

    /// At opening: learns what expires, and removes what has.
    pub(crate) fn load_expiring(&self) -> Result<(), Error> {
        let (mut emptied, mut cleared) = (Vec::new(), Ok(()));
        for (key, record) in self.catalogue().prefix(EXPIRING).collect::<Result<Vec<_>, _>>()? {
            let Some(id) = numbered(EXPIRING, &key) else { continue };
            let name = String::from_utf8_lossy(&record.to_bytes()).into_owned();
            let named = self.named(&name)?.map(|(named, _)| named).filter(|named| named.id == id);
            match named {
                Some(named) => {
                    fault_point!("library_expiry_is_forgotten_at_an_opening", continue);
                    self.inner().expiring.set(id, named.expiry, &name);
                }
                // Its name is gone already: what is left are keys that old handles wrote meanwhile.
                None if !self.inner().read_only => match self.empty(id) {
                    Ok(_) => emptied.push(key),
                    Err(error) => cleared = cleared.and(Err(error)),
                },
                None => {}
            }
        }
        // Those behind it are known by now.
        cleared?;
        self.forget_emptied(&emptied)?;
        for (id, name) in self.inner().expiring.past(self.inner().wall(), usize::MAX) {
            self.drop_if_expired(id, &name)?;
        }
        Ok(())
    }

    /// Removes some of what has expired.
    pub(crate) fn drop_expired(&self) -> Result<(), Error> {
        for (id, name) in self.inner().expiring.past(self.inner().wall(), STEPS) {
            self.drop_if_expired(id, &name)?;
        }
        Ok(())
    }

    /// Removes a collection that has expired. Its record in `expiring/` stays for a while
    /// (`dropped.rs`).
    pub(crate) fn drop_if_expired(&self, id: CollectionId, name: &str) -> Result<(), Error> {
        let inner = self.inner();
        if inner.read_only {
            return Ok(());
        }
        let wall = inner.wall();
        // Somebody may just have put it off.
        self.unname(name, |named| named.id == id && named.expiry.is_past(wall))?;
        if let Some((named, _)) = self.named(name)?.filter(|(named, _)| named.id == id) {
            inner.expiring.set(id, named.expiry, name);
            return Ok(());
        }
        self.note_gone(id, numbered_key(EXPIRING, id));
        self.empty(id).map(|_| ())
    }
}
