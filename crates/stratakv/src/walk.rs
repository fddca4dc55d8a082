//! All records of a store, in no order: for engines whose default collection cannot be scanned.

use stratakv_base::CollectionId;
use stratakv_engine::{Operation, Reply};

use crate::error::Error;
use crate::order;
use crate::record::Record;
use crate::store::{Store, unexpected_reply};

impl Store {
    /// Gives `take` every record there is when it is called, in no order: collection, key and
    /// record. Keys are those that were put, also where the order is a user's
    /// ([`Order`](crate::Order)), whose function is not asked. What is written meanwhile is not
    /// seen. It is done as a backup is, and like one ends a backup that is under way. An error of
    /// `take` ends it.
    ///
    /// # Errors
    /// A record is damaged, too much was written meanwhile
    /// ([`ErrorKind::Busy`](crate::ErrorKind::Busy): try again), or what `take` says.
    pub fn for_each<E: From<Error>>(
        &self,
        take: impl FnMut(CollectionId, &[u8], Record) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk(take, |damaged| Err(damaged.into()))
    }

    /// As [`Store::for_each`], but damaged records are passed over: `passed_over` is told of each
    /// place, or, in engines that cannot go on behind one, of the first, and that ends it.
    ///
    /// # Errors
    /// As there, or what `passed_over` says.
    pub fn for_each_undamaged<E: From<Error>>(
        &self,
        take: impl FnMut(CollectionId, &[u8], Record) -> Result<(), E>,
        mut passed_over: impl FnMut(Error) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last = None;
        self.walk(take, |damaged| {
            let told = damaged.to_string();
            // One that comes again and again is not passed over.
            if last.replace(told.clone()) == Some(told) { Err(damaged.into()) } else { passed_over(damaged) }
        })
    }

    fn walk<E: From<Error>>(
        &self,
        mut take: impl FnMut(CollectionId, &[u8], Record) -> Result<(), E>,
        mut damaged: impl FnMut(Error) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |error| E::from(Error::Operation(error));
        let cursor = match self.execute(Operation::Backup { cursor: 0, shard: 0 }) {
            Reply::Number { number, .. } => number,
            Reply::Failed(error) => return Err(failed(error)),
            _ => return Err(unexpected_reply().into()),
        };
        let done = self.take_pieces(cursor, &mut take, &mut damaged);
        if done.is_err() {
            self.end_backup(cursor);
        }
        done
    }

    fn take_pieces<E: From<Error>>(
        &self,
        cursor: u64,
        take: &mut impl FnMut(CollectionId, &[u8], Record) -> Result<(), E>,
        damaged: &mut impl FnMut(Error) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |error| E::from(Error::Operation(error));
        // After the cut: who made a collection before it, or dropped one after it, did so while the
        // store was open.
        let in_order = self.collections_in_order()?;
        for shard in 0..self.shards() as u32 {
            loop {
                let (items, next) = match self.execute(Operation::Backup { cursor, shard }) {
                    Reply::Page { items, next } => (items, next),
                    Reply::Failed(error @ stratakv_engine::Error::Corrupt(_)) => {
                        damaged(Error::Operation(error))?;
                        continue;
                    }
                    Reply::Failed(error) => return Err(failed(error)),
                    _ => return Err(unexpected_reply().into()),
                };
                for item in items {
                    let record = item.record.map(Record::from).ok_or_else(unexpected_reply)?;
                    let (of, stored) = (item.key.collection(), item.key.user());
                    let key = if in_order.contains(&of) { order::given(stored) } else { stored };
                    take(of, key, record)?;
                }
                if next.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }
}
