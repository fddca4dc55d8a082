//! Writes: conditions, batches, read-modify-write. What a condition needs is looked up first; then all is decided and appended in one step.

use bytes::Bytes;
use stratakv_base::Expiry;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_engine::update::{Refusal, apply};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Record, Reply, Unmet, Update, Value};
use stratakv_pmem::Pmem;

use crate::container::{Change as Append, What};
use crate::cursor::Stop;
use crate::entry::Meta;
use crate::matrix::Matrix;
use crate::spill::Placed;

/// What came of an attempt at a write.
pub(crate) enum Attempt {
    /// It is done, or refused for good.
    Reply(Reply),
    /// It is in the log; the reply is for when that is durable.
    Logged(Reply),
    /// The container has no room now.
    NoRoom,
    /// A part of it is done.
    Again,
    /// It has values that are too long for the log: they are to be written to the volume first.
    Spill(Vec<Bytes>),
}

/// What is known of a key before a change.
struct Before {
    exists: bool,
    version: u64,
}

/// Whether a change has to know what is there. A plain put does not: it costs no read.
fn looks(change: &Change) -> bool {
    change.expect != Expect::Any || !matches!(change.kind, ChangeKind::Put { .. })
}

impl<P: Pmem> Matrix<P> {
    /// Carries out a write, if all that its conditions need is in memory. `placed`: where its long values lie already.
    ///
    /// # Errors
    /// [`Stop`]: nothing was changed.
    pub(crate) fn write(&mut self, changes: &[Change], placed: &[Placed]) -> Result<Attempt, Stop> {
        let before = self.look_at(changes)?;
        for (change, before) in changes.iter().zip(&before) {
            let before = before.as_ref();
            let (exists, version) = before.map_or((false, 0), |before| (before.exists, before.version));
            if let Some(unmet) = change.expect.unmet(exists, Some(version)) {
                return Ok(Attempt::Reply(Reply::Unmet(unmet)));
            }
        }
        let long = changes.iter().filter_map(|change| match &change.kind {
            ChangeKind::Put { value, .. } if self.is_long(change.key.encoded(), value) => Some(value.clone()),
            _ => None,
        });
        let long: Vec<Bytes> = long.collect();
        if long.len() != placed.len() {
            return Ok(Attempt::Spill(long));
        }
        let exists =
            |at: usize| before.get(at).is_some_and(|before| before.as_ref().is_some_and(|before| before.exists));
        let mut placed = placed.iter();
        let mut version = self.container.version();
        let mut appends = Vec::with_capacity(changes.len());
        for (at, change) in changes.iter().enumerate() {
            let key = change.key.encoded();
            match &change.kind {
                ChangeKind::Put { value, flags, expiry } => {
                    version += 1;
                    let what = match self.is_long(key, value).then(|| placed.next()).flatten() {
                        Some(placed) => What::Apart(placed.pointer(version, value)),
                        None => What::Put(value),
                    };
                    appends.push(Append { key, flags: *flags, expiry: *expiry, what });
                }
                ChangeKind::Delete if exists(at) => {
                    version += 1;
                    appends.push(Append { key, flags: 0, expiry: Expiry::NEVER, what: What::Delete });
                }
                ChangeKind::Delete | ChangeKind::Check => {}
            }
        }
        let last = changes.iter().rposition(|change| !matches!(change.kind, ChangeKind::Check));
        let existed = last.is_some_and(exists);
        // The version of the last change that is no check: 0 if that deletes what is not there.
        let nothing = last.is_none_or(|last| matches!(changes[last].kind, ChangeKind::Delete) && !exists(last));
        if appends.is_empty() {
            return Ok(Attempt::Reply(Reply::Done { version: 0, existed: false }));
        }
        let version = match self.append(&appends) {
            Ok(version) => version,
            Err(refused) => return Ok(refused),
        };
        Ok(Attempt::Logged(Reply::Done { version: if nothing { 0 } else { version }, existed }))
    }

    fn look_at(&self, changes: &[Change]) -> Result<Vec<Option<Before>>, Stop> {
        if !changes.iter().any(looks) {
            return Ok(Vec::new());
        }
        let memory = self.in_memory(1);
        let mut stop = None;
        let mut before = Vec::with_capacity(changes.len());
        // To the end, so that everything that is missing is read at once.
        for change in changes {
            let found = match looks(change) {
                true => self.visible(change.key.encoded(), self.sight(), &memory),
                false => Ok(None),
            };
            match found {
                Ok(found) => {
                    before.push(looks(change).then(|| Before {
                        exists: found.is_some(),
                        version: found.map_or(0, |found| found.meta.version),
                    }))
                }
                Err(Stop::Missing) => stop = stop.or(Some(Stop::Missing)),
                Err(damaged) => return Err(damaged),
            }
        }
        stop.map_or(Ok(before), Err)
    }

    /// Carries out an update, if the record is in memory.
    ///
    /// # Errors
    /// [`Stop`]: nothing was changed.
    pub(crate) fn update(&mut self, key: &[u8], update: &Update, placed: &[Placed]) -> Result<Attempt, Stop> {
        let Some((meta, value)) = self.record_in_memory(key)? else {
            return Ok(Attempt::Reply(Reply::Unmet(Unmet::Absent)));
        };
        let outcome = match apply(update, &value, meta.expiry.0) {
            Ok(outcome) => outcome,
            Err(Refusal::NotANumber) => return Ok(Attempt::Reply(Reply::Unmet(Unmet::NotANumber))),
            Err(Refusal::TooLarge(error)) => return Ok(Attempt::Reply(Reply::Failed(error))),
        };
        if let Some(error) = Self::value_error(outcome.value.len()) {
            return Ok(Attempt::Reply(Reply::Failed(error)));
        }
        let expiry = Expiry(outcome.expiry);
        let is_long = self.is_long(key, &outcome.value);
        let what = match placed.first() {
            None if is_long => return Ok(Attempt::Spill(vec![outcome.value])),
            Some(placed) if is_long => What::Apart(placed.pointer(self.container.version() + 1, &outcome.value)),
            _ => What::Put(&outcome.value),
        };
        let append = Append { key, flags: meta.flags, expiry, what };
        let version = match self.append(&[append]) {
            Ok(version) => version,
            Err(refused) => return Ok(refused),
        };
        Ok(Attempt::Logged(match (update, outcome.number) {
            (_, Some(number)) => Reply::Number { number, version },
            (Update::Touch(_), None) => Reply::Record(Some(Record {
                value_bytes: outcome.value.len() as u64,
                value: Value::Inline(outcome.value),
                flags: meta.flags,
                version,
                expiry,
            })),
            (_, None) => Reply::Done { version, existed: true },
        }))
    }

    fn record_in_memory(&self, key: &[u8]) -> Result<Option<(Meta, Bytes)>, Stop> {
        let memory = self.in_memory(1);
        let Some(located) = self.visible(key, self.sight(), &memory)? else { return Ok(None) };
        let value = self.value(&located, &memory)?;
        Ok(Some((located.meta, value)))
    }

    /// Whether a value is too long for a record of the log.
    fn is_long(&self, key: &[u8], value: &[u8]) -> bool {
        let append = Append { key, flags: 0, expiry: Expiry::NEVER, what: What::Put(value) };
        append.record_bytes() > self.container.record_bytes_max()
    }

    /// Why a value of this length cannot be written.
    pub(crate) fn value_error(len: usize) -> Option<Error> {
        let max_bytes = VALUE_BYTES_MAX as u64;
        (len as u64 > max_bytes).then_some(Error::ValueTooLarge { len_bytes: len as u64, max_bytes })
    }
}
