//! The store that an import fills.

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use stratakv::limits::VALUE_BYTES_MAX;
use stratakv::{Collection, Engine, Expect, Expiry, Store};
use stratakv_base::limits::KEY_BYTES_MAX;
use stratakv_base::quantity::{format_bytes, format_count};
use stratakv_structures::{STRUCTURE_FLAGS, tree::PACKED_BYTES_MAX};

use super::checkpoint::{Checkpoint, Position};
use super::record::SourceRecord;
use super::tally::{Reason, Tally};
use super::value::encode;
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use crate::write_queue::{NewRecord, RefusedWrite, WriteQueue, Written};

/// Progress is told of so many records at a time.
const TOLD_EVERY: u64 = 256;

/// What takes the records of a source.
pub(super) trait Sink {
    /// How many records the source says that it has.
    fn expect(&mut self, records: u64);

    /// Takes a record, or counts why not.
    ///
    /// # Errors
    /// There is no sense in going on.
    fn take(&mut self, record: SourceRecord) -> Result<(), Failure>;

    /// What is left out.
    fn tally(&mut self) -> &mut Tally;

    /// Where an earlier run stood, if this one goes on.
    fn begun_at(&self) -> Option<Position> {
        None
    }

    /// All records of the source up to there were taken.
    ///
    /// # Errors
    /// A checkpoint was due, and could not be written.
    fn reached(&mut self, _: Position) -> Result<(), Failure> {
        Ok(())
    }
}

/// A store: writes records, and counts them.
pub(super) struct Target {
    store: Store,
    collection: Collection,
    writes: WriteQueue,
    expect: Expect,
    /// Long structures are trees there.
    has_trees: bool,
    tally: Tally,
    taken: u64,
    /// How many records the source says that it has; 0: nobody knows.
    expected: u64,
    show: Box<dyn Fn(u64, u64)>,
    /// With `--resume`; and how many records were taken up to where the source is.
    checkpoint: Option<Checkpoint>,
    reached: u64,
}

impl Target {
    pub(super) fn new(
        store: &Store,
        collection: Collection,
        keep_existing: bool,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Target, Failure> {
        Ok(Target {
            store: store.clone(),
            has_trees: store.engine() != Engine::Tier && collection.id() == store.id(),
            writes: WriteQueue::new(store)?,
            expect: if keep_existing { Expect::Absent } else { Expect::Any },
            collection,
            tally: checkpoint.as_ref().map(Checkpoint::left_out).unwrap_or_default(),
            taken: 0,
            expected: 0,
            show: Box::new(progress::bar_of_records("importing")),
            checkpoint,
            reached: 0,
        })
    }

    /// Waits for what is in flight, and says what came of the import. `imported`: how the source
    /// ended.
    ///
    /// # Errors
    /// A write was refused, the source failed, or records are missing.
    pub(super) fn finish(
        mut self,
        source: &str,
        started: Instant,
        imported: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let drained = self.writes.drain();
        let (written, refused) = (self.writes.written(), self.writes.take_refused());
        let imported = match &mut self.checkpoint {
            // All that was taken is there: the next run need not read it again.
            Some(checkpoint) if imported.is_err() && refused.is_none() && drained.is_ok() => {
                imported.and(checkpoint.save(&self.store, written, 0, &self.tally))
            }
            _ => imported,
        };
        let all = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.all(written));
        let unmet = all.unwrap_or(written).unmet;
        self.tally.add_many(Reason::Harmless, "their keys are there already (--keep-existing)", unmet);
        let seconds = started.elapsed().as_secs_f64().max(1e-6);
        let rate = written.records as f64 / seconds;
        let (records, bytes) = (format_count(written.records, "record"), format_bytes(written.bytes));
        say!("{records} ({bytes}) imported from {source} in {seconds:.1} s: {rate:.0} records/s");
        tell_all(all);
        self.tally.tell();
        let again = self.checkpoint.as_ref().map_or_else(
            || "all records counted above are written, and a second run writes them again".to_owned(),
            Checkpoint::advice,
        );
        let incomplete = format!("the import is not complete; {again}");
        if let Some(RefusedWrite { key, failure, .. }) = refused {
            let place = format!("key `{}`", key.get(..80).unwrap_or(&key).escape_ascii());
            let failure = failure.at(place);
            return Err(Failure { message: format!("{}; {incomplete}", failure.message), ..failure });
        }
        drained?;
        imported.map_err(|failure| Failure { message: format!("{}; {incomplete}", failure.message), ..failure })?;
        if let Some(checkpoint) = self.checkpoint {
            checkpoint.end();
        }
        self.tally.failure().map_or(Ok(()), Err)
    }
}

impl Sink for Target {
    fn expect(&mut self, records: u64) {
        self.expected = records;
    }

    fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    fn begun_at(&self) -> Option<Position> {
        self.checkpoint.as_ref().and_then(Checkpoint::begun_at)
    }

    fn reached(&mut self, position: Position) -> Result<(), Failure> {
        let Some(checkpoint) = &mut self.checkpoint else { return Ok(()) };
        let taken = self.taken - std::mem::replace(&mut self.reached, self.taken);
        checkpoint.at(position);
        if !checkpoint.is_due(taken, self.writes.written()) {
            return Ok(());
        }
        self.writes.drain()?;
        match self.writes.is_refused() {
            true => Err(Failure::failed("the store refused a write")),
            false => checkpoint.save(&self.store, self.writes.written(), 0, &self.tally),
        }
    }

    fn take(&mut self, record: SourceRecord) -> Result<(), Failure> {
        self.taken += 1;
        if self.taken.is_multiple_of(TOLD_EVERY) {
            // An estimate may be too low, and 0 is for what nobody knows.
            let expected = if self.expected == 0 { 0 } else { self.expected.max(self.taken + 1) };
            (self.show)(self.taken, expected);
        }
        let SourceRecord { key, value, flags, expiry_ms } = record;
        if expiry_ms.is_some_and(|expiry_ms| expiry_ms <= now_ms()) {
            self.tally.add(Reason::Harmless, "they had expired", &key);
            return Ok(());
        }
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            self.tally.add(Reason::Unsupported, format!("keys may have 1 to {KEY_BYTES_MAX} bytes"), &key);
            return Ok(());
        }
        let (value, flags) = match encode(value, flags) {
            Ok(encoded) => encoded,
            Err(what) => {
                self.tally.add(Reason::Unsupported, what, &key);
                return Ok(());
            }
        };
        let becomes_tree = self.has_trees && flags == STRUCTURE_FLAGS && value.len() > PACKED_BYTES_MAX;
        if value.len() > VALUE_BYTES_MAX && !becomes_tree {
            self.tally.add(Reason::Unsupported, "values have at most 64 MiB", &key);
            return Ok(());
        }
        let expiry = expiry_ms.map_or(Expiry::NEVER, |expiry_ms| Expiry(expiry_ms.min(Expiry::MAX.0)));
        let record = NewRecord { key, value: Bytes::from(value), flags, expiry, expect: self.expect };
        self.writes.write(self.taken, &self.collection, record)?;
        match self.writes.is_refused() {
            // Its reason is told at the end.
            true => Err(Failure::failed("the store refused a write")),
            false => Ok(()),
        }
    }
}

/// Says what several runs wrote together.
pub(crate) fn tell_all(all: Option<Written>) {
    if let Some(Written { records, bytes, .. }) = all {
        say!("with the runs before: {} ({})", format_count(records, "record"), format_bytes(bytes));
    }
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
