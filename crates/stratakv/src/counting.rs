//! What is known of a collection without reading its records: how many there are, which key has
//! which number, when one expires.

use std::ops::Bound;
use std::time::Duration;

use stratakv_base::{Expiry, Key};
use stratakv_engine::{Operation, PageRequest, RecordPart, Reply, Update};

use crate::collection::{Collection, record};
use crate::error::Error;
use crate::record::Record;
use crate::scan::whole;
use crate::store::unexpected_reply;

/// Keys looked at in one go.
const PAGE_ITEMS: u32 = 4096;
const PAGE_BYTES: u32 = 4 << 20;

/// How long a record lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// There is none.
    Absent,
    /// It does not expire.
    Unlimited,
    /// So long. To the millisecond, as expiries are.
    Left(Duration),
}

impl Collection {
    /// How many records there are. Costs a look at each key in the index, 4,096 at a time; reads
    /// none. Not a snapshot: what is put or deleted meanwhile may be counted or not.
    ///
    /// # Errors
    /// As [`Collection::get`]; an engine that does not keep these keys in order.
    pub fn len(&self) -> Result<u64, Error> {
        Ok(self.len_while(|| true)?.unwrap_or(0))
    }

    /// The same, or `None` if `goes_on` said no: it is asked before each 4,096 keys.
    ///
    /// # Errors
    /// As [`Collection::len`].
    pub fn len_while(&self, mut goes_on: impl FnMut() -> bool) -> Result<Option<u64>, Error> {
        let mut request = PageRequest { items_max: PAGE_ITEMS, ..self.page_of_all(false) };
        let mut count = 0;
        while goes_on() {
            let (keys, next) = self.inner().page_of_keys(&request)?;
            count += keys.len() as u64;
            match next {
                Some(next) => request.from = next,
                None => return Ok(Some(count)),
            }
        }
        Ok(None)
    }

    /// Whether there are no records. Costs a look at one key.
    ///
    /// # Errors
    /// As [`Collection::len`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.key_of(self.page_of_all(false), 0)?.is_none())
    }

    /// Sets when a record expires, or, with [`Expiry::NEVER`], that it does not; whether there is
    /// one. The rest of it stays as it is, but for its version. Costs as a put of its value.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn expire(&self, key: impl AsRef<[u8]>, expiry: Expiry) -> Result<bool, Error> {
        match self.update(key.as_ref(), Update::Touch(expiry.min(Expiry::MAX)))? {
            Reply::Record(record) => Ok(record.is_some()),
            _ => Err(unexpected_reply()),
        }
    }

    /// Sets how long a record lives from now on; whether there is one. Else as
    /// [`Collection::expire`].
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn expire_in(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<bool, Error> {
        self.expire(key, self.expiry_after(ttl))
    }

    /// The expiry that lies `ttl` after now, by the store's clock.
    pub(crate) fn expiry_after(&self, ttl: Duration) -> Expiry {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Expiry(self.inner().wall().0.saturating_add(ttl_ms).max(1)).min(Expiry::MAX)
    }

    /// How long a record lives on, by the store's clock ([`Store::wall`](crate::Store::wall)).
    /// Costs a read.
    ///
    /// # Errors
    /// As [`Collection::get`].
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Result<Ttl, Error> {
        let Some(record) = self.meta(key.as_ref())? else { return Ok(Ttl::Absent) };
        Ok(match record.expiry {
            Expiry::NEVER => Ttl::Unlimited,
            Expiry(at) => Ttl::Left(Duration::from_millis(at.saturating_sub(self.inner().wall().0))),
        })
    }

    /// A record without its value.
    pub(crate) fn meta(&self, key: &[u8]) -> Result<Option<Record>, Error> {
        record(self.inner().execute(Operation::Get { key: self.place(key)?, part: RecordPart::Meta }))
    }

    /// A page of one key, from either end.
    pub(crate) fn page_of_all(&self, reverse: bool) -> PageRequest {
        let (from, to) = whole(self.id());
        PageRequest { from, to, reverse, keys_only: true, items_max: 1, bytes_max: PAGE_BYTES, at: None }
    }

    /// The key of a range that comes after `skip` others.
    pub(crate) fn key_of(&self, mut request: PageRequest, mut skip: u64) -> Result<Option<Key>, Error> {
        loop {
            request.items_max = u32::try_from(skip.saturating_add(1)).unwrap_or(u32::MAX).min(PAGE_ITEMS);
            let (keys, next) = self.inner().page_of_keys(&request)?;
            let passed = keys.len() as u64;
            if let Some(key) = usize::try_from(skip).ok().and_then(|skip| keys.into_iter().nth(skip)) {
                return Ok(Some(key));
            }
            skip -= passed;
            let bound: &mut Bound<Key> = if request.reverse { &mut request.to } else { &mut request.from };
            match next {
                Some(next) => *bound = next,
                None => return Ok(None),
            }
        }
    }
}
