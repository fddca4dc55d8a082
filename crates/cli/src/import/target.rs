//! The store that an import fills.

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use stratakv::limits::VALUE_BYTES_MAX;
use stratakv::{Collection, Engine, Expect, Expiry, Store};
use stratakv_base::limits::KEY_BYTES_MAX;
use stratakv_base::quantity::{format_bytes, format_count};
use stratakv_structures::{STRUCTURE_FLAGS, tree::PACKED_BYTES_MAX};

use super::tally::{Reason, Tally};
use super::value::{SourceRecord, encode};
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use crate::write_queue::{NewRecord, RefusedWrite, WriteQueue};

/// Progress is told of so many records at a time.
const TOLD_EVERY: u64 = 256;

/// Takes records, writes them, counts them.
pub(super) struct Target {
    collection: Collection,
    writes: WriteQueue,
    expect: Expect,
    /// Long structures are trees there.
    has_trees: bool,
    pub(super) tally: Tally,
    taken: u64,
    /// How many records the source says that it has; 0: nobody knows.
    pub(super) expected: u64,
    show: Box<dyn Fn(u64, u64)>,
}

impl Target {
    pub(super) fn new(store: &Store, collection: Collection, keep_existing: bool) -> Result<Target, Failure> {
        Ok(Target {
            has_trees: store.engine() != Engine::Tier && collection.id() == store.id(),
            writes: WriteQueue::new(store)?,
            expect: if keep_existing { Expect::Absent } else { Expect::Any },
            collection,
            tally: Tally::default(),
            taken: 0,
            expected: 0,
            show: Box::new(progress::bar_of_records("importing")),
        })
    }

    /// Begins to write a record, or counts why not.
    ///
    /// # Errors
    /// The store takes no more writes.
    pub(super) fn take(&mut self, record: SourceRecord) -> Result<(), Failure> {
        self.taken += 1;
        if self.taken.is_multiple_of(TOLD_EVERY) {
            (self.show)(self.taken, self.expected.max(self.taken));
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
        let written = self.writes.written();
        self.tally.add_many(Reason::Harmless, "their keys are there already (--keep-existing)", written.unmet);
        let seconds = started.elapsed().as_secs_f64().max(1e-6);
        let rate = written.records as f64 / seconds;
        let (records, bytes) = (format_count(written.records, "record"), format_bytes(written.bytes));
        say!("{records} ({bytes}) imported from {source} in {seconds:.1} s: {rate:.0} records/s");
        self.tally.tell();
        let incomplete =
            "the import is not complete; all records counted above are written, and a second run writes them again";
        if let Some(RefusedWrite { key, failure, .. }) = self.writes.take_refused() {
            let place = format!("key `{}`", key.get(..80).unwrap_or(&key).escape_ascii());
            let failure = failure.at(place);
            return Err(Failure { message: format!("{}; {incomplete}", failure.message), ..failure });
        }
        drained?;
        imported.map_err(|failure| Failure { message: format!("{}; {incomplete}", failure.message), ..failure })?;
        self.tally.failure().map_or(Ok(()), Err)
    }
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
