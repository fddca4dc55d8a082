//! Many writes in flight from one thread: what `load` and `import` write through.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stratakv::limits::VALUE_BYTES_MAX;
use stratakv::raw::{Change, ChangeKind, Operation, Reply};
use stratakv::{Collection, Engine, Expect, Expiry, Key, Level, Session, Store};

use crate::failure::Failure;
use crate::trees;

/// Most writes in flight: enough to fill groups of every shard.
const IN_FLIGHT_MAX: usize = 256;
/// Most bytes of values in flight: bounds the memory that large values take.
const IN_FLIGHT_BYTES_MAX: usize = VALUE_BYTES_MAX;

/// A record to be written.
pub(crate) struct NewRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Bytes,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) expect: Expect,
}

/// A write in flight.
struct InFlight {
    /// Of the record: its line, or its place in the source.
    number: u64,
    key: Key,
    bytes: usize,
    /// It is a node of a long structure, and no record of a user's.
    is_node: bool,
}

/// The first record whose write the store refused.
pub(crate) struct RefusedWrite {
    pub(crate) number: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) failure: Failure,
}

/// How many records were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Records whose condition did not hold.
    pub(crate) unmet: u64,
}

impl Written {
    /// Both together.
    pub(crate) fn and(self, other: Written) -> Written {
        Written {
            records: self.records.saturating_add(other.records),
            bytes: self.bytes.saturating_add(other.bytes),
            unmet: self.unmet.saturating_add(other.unmet),
        }
    }
}

/// Writes of records, in the order of their numbers for each key.
pub(crate) struct WriteQueue {
    store: Store,
    engine: Engine,
    session: Session,
    level: Level,
    in_flight: HashMap<u64, InFlight>,
    /// Keys in flight: a second write of one of them waits for the first, so that the last record
    /// wins.
    keys: HashSet<Key>,
    bytes_in_flight: usize,
    /// Answers come in any order, so it is the first one only when nothing is in flight.
    refused: Option<RefusedWrite>,
    written: Written,
}

impl WriteQueue {
    /// Of a store that is open for writing.
    ///
    /// # Errors
    /// As of [`Store::session`].
    pub(crate) fn new(store: &Store) -> Result<WriteQueue, Failure> {
        Ok(WriteQueue {
            store: store.clone(),
            engine: stratakv::format_of(store.path())?.map_or(Engine::Slab, |format| format.engine),
            session: store.session()?,
            level: store.default_level(),
            in_flight: HashMap::new(),
            keys: HashSet::new(),
            bytes_in_flight: 0,
            refused: None,
            written: Written::default(),
        })
    }

    /// Begins the write of a record; a long structure is written as a tree.
    ///
    /// # Errors
    /// The record's, if it cannot be written at all, or the session's own.
    pub(crate) fn write(&mut self, number: u64, collection: &Collection, record: NewRecord) -> Result<(), Failure> {
        let NewRecord { key, value, flags, expiry, expect } = record;
        let value = self.with_nodes(number, collection, &key, (value, flags), expect)?;
        let Some(value) = value else { return Ok(()) };
        let kind = ChangeKind::Put { value, flags, expiry };
        self.submit(number, Change { key: collection.key(&key)?, expect, kind }, false)
    }

    /// Writes the nodes of a value that becomes a tree, and gives its root; other values are given
    /// back. `None`: the condition does not hold, so there are to be no nodes; or a node was
    /// refused, so there is to be no root.
    pub(crate) fn with_nodes(
        &mut self,
        number: u64,
        collection: &Collection,
        key: &[u8],
        (value, flags): (Bytes, u32),
        expect: Expect,
    ) -> Result<Option<Bytes>, Failure> {
        if collection.id() != self.store.id() {
            return Ok(Some(value));
        }
        let Some((root, nodes)) = trees::planted((&self.store, self.engine), key, (&value, flags)) else {
            return Ok(Some(value));
        };
        if expect == Expect::Absent {
            self.drain()?;
            if self.store.get(key)?.is_some() {
                self.written.unmet += 1;
                return Ok(None);
            }
        }
        nodes.into_iter().try_for_each(|node| self.submit(number, node, true))?;
        // The root comes when all that it names is there: what is there of a tree that is not whole
        // is removed as nobody's by a server's walk.
        self.drain()?;
        Ok(self.refused.is_none().then_some(root))
    }

    fn submit(&mut self, number: u64, change: Change, is_node: bool) -> Result<(), Failure> {
        let ChangeKind::Put { value, .. } = &change.kind else { return Ok(()) };
        let bytes = change.key.user().len() + value.len();
        let in_flight = InFlight { number, key: change.key.clone(), bytes, is_node };
        while self.session.in_flight() >= IN_FLIGHT_MAX
            || (self.bytes_in_flight > 0 && self.bytes_in_flight + bytes > IN_FLIGHT_BYTES_MAX)
            || self.keys.contains(&in_flight.key)
        {
            self.poll((IN_FLIGHT_MAX / 4).min(self.session.in_flight()))?;
        }
        self.bytes_in_flight += bytes;
        self.keys.insert(in_flight.key.clone());
        let ticket = self.session.submit(Operation::Write { changes: vec![change], level: self.level });
        self.in_flight.insert(ticket, in_flight);
        Ok(())
    }

    /// Takes at least `min` answers if that many are in flight. An error is the session's own.
    fn poll(&mut self, min: usize) -> Result<(), Failure> {
        for (ticket, reply) in self.session.poll(min.max(1))? {
            let Some(done) = self.in_flight.remove(&ticket) else { continue };
            self.keys.remove(&done.key);
            self.bytes_in_flight -= done.bytes;
            match reply {
                Reply::Done { .. } => {
                    self.written.records += u64::from(!done.is_node);
                    self.written.bytes += done.bytes as u64;
                }
                Reply::Unmet(_) => self.written.unmet += 1,
                Reply::Failed(error) => {
                    let earlier = self.refused.as_ref().is_some_and(|refused| refused.number < done.number);
                    if !earlier {
                        let failure = stratakv::Error::from(error).into();
                        let key = done.key.user().to_vec();
                        self.refused = Some(RefusedWrite { number: done.number, key, failure });
                    }
                }
                other => return Err(Failure::failed(format!("record {}: an odd answer: {other:?}", done.number))),
            }
        }
        Ok(())
    }

    /// Waits for everything in flight.
    ///
    /// # Errors
    /// The session's own.
    pub(crate) fn drain(&mut self) -> Result<(), Failure> {
        while self.session.in_flight() > 0 {
            let in_flight = self.session.in_flight();
            self.poll(in_flight)?;
            if self.session.in_flight() == in_flight {
                break;
            }
        }
        Ok(())
    }

    /// Whether a write was refused: then nothing more should be begun.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// The first write that was refused, once nothing is in flight.
    pub(crate) fn take_refused(&mut self) -> Option<RefusedWrite> {
        self.refused.take()
    }

    /// What is written so far.
    pub(crate) fn written(&self) -> Written {
        self.written
    }
}
