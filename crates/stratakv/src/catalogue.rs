//! Collections by name: which number a name stands for, in a collection of the store's own.
//!
//! | key | value |
//! |---|---|
//! | `next` | the last number given out, in decimal digits |
//! | `name/` and the name | its number, in decimal digits |
//! | `dropped/` and a number, 8 hexadecimal digits | the name it had |
//!
//! A number is drawn from `next` by an increment, so no two names get one; one drawn for nothing (a crash, a race lost) is never used. Numbers
//! are not used again: a handle of a dropped collection never meets a later one. Dropping writes `dropped/` first, then removes the name and
//! the keys; what a crash leaves of that, and what old handles wrote meanwhile, goes at the next opening.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use stratakv_base::CollectionId;
use stratakv_engine::{Expect, Reply, Unmet, Update};

use crate::collection::{Collection, PutOutcome};
use crate::error::Error;
use crate::scan::ScanOptions;
use crate::store::{Store, odd};

/// Where names are kept. The one above is for engines.
const CATALOGUE: CollectionId = CollectionId(0xFFFF_FFFE);
/// Numbers from here on are not given out.
const NUMBERS_END: u64 = 0xFFFF_FF00;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;

const NEXT: &[u8] = b"next";
const NAME: &[u8] = b"name/";
const DROPPED: &[u8] = b"dropped/";

/// Names already looked up.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<HashMap<String, CollectionId>>);

impl Names {
    fn get(&self, name: &str) -> Option<CollectionId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }
    fn set(&self, name: &str, id: Option<CollectionId>) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match id {
            Some(id) => names.insert(name.to_owned(), id),
            None => names.remove(name),
        };
    }
}

impl Store {
    /// The key space of that name, made if there is none. A name has 1 to 255 bytes.
    ///
    /// # Errors
    /// A bad name; as [`Collection::put`].
    pub fn collection(&self, name: &str) -> Result<Collection, Error> {
        if let Some(found) = self.existing_collection(name)? {
            return Ok(found);
        }
        let id = self.draw_number()?;
        match self.catalogue().put_if(&key(NAME, name.as_bytes()), id.0.to_string().as_bytes(), Expect::Absent)? {
            PutOutcome::Written { .. } => Ok(self.opened(name, id)),
            // Somebody else was faster.
            PutOutcome::Unmet(_) => self.existing_collection(name)?.ok_or_else(odd),
        }
    }

    /// The key space of that name, if there is one.
    ///
    /// # Errors
    /// A bad name; as [`Collection::get`].
    pub fn existing_collection(&self, name: &str) -> Result<Option<Collection>, Error> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let len = name.len();
            return Err(Error::Option(format!(
                "a collection's name of {len} bytes: it has 1 to {NAME_BYTES_MAX} (the default collection has no name)"
            )));
        }
        if let Some(id) = self.inner().names.get(name) {
            return Ok(Some(self.opened(name, id)));
        }
        let Some(record) = self.catalogue().get(&key(NAME, name.as_bytes()))? else { return Ok(None) };
        Ok(Some(self.opened(name, number(&record.to_bytes(), name)?)))
    }

    /// The names of all collections but the default one, which has none, in order.
    ///
    /// # Errors
    /// As [`Collection::get`].
    pub fn collections(&self) -> Result<Vec<String>, Error> {
        let names = self.catalogue().scan(ScanOptions::prefix(NAME).keys_only());
        names.map(|item| Ok(String::from_utf8_lossy(&item?.0[NAME.len()..]).into_owned())).collect()
    }

    /// Removes a collection and every key in it; whether there was one. Durable when it returns. Handles of it that are still around lead to a
    /// key space that nobody else can open, and that is emptied at the next opening.
    ///
    /// # Errors
    /// A bad name; as [`Collection::delete_range`]. What was not removed is removed at the next opening.
    pub fn drop_collection(&self, name: &str) -> Result<bool, Error> {
        let Some(dropped) = self.existing_collection(name)? else { return Ok(false) };
        self.catalogue().put(&dropped_key(dropped.id()), name.as_bytes())?;
        self.unname(name, dropped.id())?;
        dropped.delete_range(Bound::Unbounded, Bound::Unbounded)?;
        Ok(true)
    }

    /// Finishes what drops before the last end left.
    pub(crate) fn finish_drops(&self) -> Result<(), Error> {
        let left: Vec<_> = self.catalogue().scan(ScanOptions::prefix(DROPPED)).collect::<Result<_, _>>()?;
        for (key, record) in left {
            let digits = std::str::from_utf8(&key[DROPPED.len()..]).ok();
            let Some(id) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else { continue };
            let id = CollectionId(id);
            self.unname(&String::from_utf8_lossy(&record.to_bytes()), id)?;
            Collection::new(Arc::clone(self.inner()), id).delete_range(Bound::Unbounded, Bound::Unbounded)?;
            self.catalogue().delete(&key)?;
        }
        Ok(())
    }

    /// Removes a name, if it still stands for that number.
    fn unname(&self, name: &str, id: CollectionId) -> Result<(), Error> {
        self.inner().names.set(name, None);
        let key = key(NAME, name.as_bytes());
        let still = |record: Option<&crate::Record>| {
            record.is_some_and(|record| number(&record.to_bytes(), name).is_ok_and(|found| found == id))
        };
        self.catalogue().fetch_update(&key, |record| match still(record) {
            true => crate::Next::Delete,
            false => crate::Next::Keep,
        })?;
        Ok(())
    }

    fn draw_number(&self) -> Result<CollectionId, Error> {
        loop {
            match self.catalogue().update(NEXT, Update::Increment(1))? {
                Reply::Number { number, .. } if (1..NUMBERS_END).contains(&number) => {
                    return Ok(CollectionId(number as u32));
                }
                Reply::Number { .. } => {
                    return Err(Error::Option(
                        "no numbers for collections are left: dump the store and load it".into(),
                    ));
                }
                Reply::Unmet(Unmet::Absent) => {
                    self.catalogue().put_if(NEXT, b"0", Expect::Absent)?;
                }
                _ => return Err(odd()),
            }
        }
    }

    fn opened(&self, name: &str, id: CollectionId) -> Collection {
        self.inner().names.set(name, Some(id));
        Collection::new(Arc::clone(self.inner()), id)
    }

    fn catalogue(&self) -> Collection {
        Collection::new(Arc::clone(self.inner()), CATALOGUE)
    }
}

fn key(front: &[u8], back: &[u8]) -> Vec<u8> {
    [front, back].concat()
}

fn dropped_key(id: CollectionId) -> Vec<u8> {
    key(DROPPED, format!("{:08x}", id.0).as_bytes())
}

fn number(value: &[u8], name: &str) -> Result<CollectionId, Error> {
    let digits = std::str::from_utf8(value).ok();
    let number = digits.and_then(|digits| digits.parse::<u32>().ok());
    number.filter(|number| (1..NUMBERS_END).contains(&u64::from(*number))).map(CollectionId).ok_or_else(|| {
        Error::Option(format!(
            "the catalogue of collections is damaged: `{name}` stands for `{}`; dump what is left and load it",
            value.escape_ascii()
        ))
    })
}
