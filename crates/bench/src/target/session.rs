//! The library through a `Session`.

use std::collections::HashMap;

use bytes::Bytes;
use stratakv::raw::Reply;
use stratakv::{CollectionId, Level, Session, Store};

use super::{BenchError, OperationOutcome, Request, Target};
use crate::target::blocking::{get, outcome, put, scan};

pub(super) struct SessionTarget {
    session: Session,
    collection: CollectionId,
    level: Level,
    tags: HashMap<u64, u64>,
}

impl SessionTarget {
    pub(super) fn new(store: &Store, collection: CollectionId, level: Level) -> Result<SessionTarget, BenchError> {
        Ok(SessionTarget { session: store.session()?, collection, level, tags: HashMap::new() })
    }
}

impl Target for SessionTarget {
    fn submit(&mut self, tag: u64, request: Request<'_>) -> Result<(), BenchError> {
        let operation = match request {
            Request::Read(key) => get(self.collection, key)?,
            Request::Write(key, value) => put(self.collection, key, Bytes::copy_from_slice(value), self.level)?,
            Request::Scan(key, len) => scan(self.collection, key, len),
        };
        let ticket = self.session.submit(operation);
        self.tags.insert(ticket, tag);
        Ok(())
    }

    fn poll(&mut self, min: usize, done: &mut Vec<(u64, OperationOutcome)>) -> Result<(), BenchError> {
        for (ticket, reply) in self.session.poll(min)? {
            let tag = self.tags.remove(&ticket).unwrap_or_default();
            if let Reply::Failed(error) = reply {
                return Err(stratakv::Error::from(error).into());
            }
            done.push((tag, outcome(&reply)?));
        }
        Ok(())
    }
}
