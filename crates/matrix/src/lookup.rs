//! Where the newest version of a key is that a reader may see, and gets.

use bytes::Bytes;
use stratakv_base::{Corruption, Key, Place, fault_point};
use stratakv_engine::{Record, RecordPart, Reply, Value};
use stratakv_pmem::Pmem;

use crate::changes::OperationStep;
use crate::container::FoundVersion;
use crate::cursor::{Pages, Stop};
use crate::entry::{Body, Meta, Pointer, value_checksum};
use crate::matrix::Matrix;
use crate::memory::Permit;
use crate::merge::ReadView;
use crate::reading::InMemory;
use crate::table::{self, Hit};

/// A version that was found.
pub(crate) struct Located {
    pub(crate) meta: Meta,
    source: Source,
}

enum Source {
    Container(FoundVersion),
    Table(Hit),
}

impl<P: Pmem> Matrix<P> {
    /// The newest version of `key` that is not above `at`: sources from new to old, and the first
    /// that has one has the newest.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn locate(&self, key: &[u8], at: u64, pages: &dyn Pages) -> Result<Option<Located>, Stop> {
        if let Some(found) = self.container.get(key, at)? {
            return Ok(Some(Located { meta: found.meta, source: Source::Container(found) }));
        }
        let mut hash = None;
        for level in 0..self.levels.depth() {
            let Some(table) = self.levels.table_for(level, key) else { continue };
            let hash = *hash.get_or_insert_with(|| table::key_hash(key));
            if !table::may_contain(&table.facts, pages, hash)? {
                continue;
            }
            if let Some(hit) = table::find(&table.facts, pages, key, at)? {
                return Ok(Some(Located { meta: hit.meta, source: Source::Table(hit) }));
            }
        }
        Ok(None)
    }

    /// As [`Matrix::locate`], if it is there for a reader: not deleted, not expired.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn visible(
        &self,
        key: &[u8],
        read_view: ReadView,
        memory: &InMemory<'_>,
    ) -> Result<Option<Located>, Stop> {
        let is_hidden = |meta: Meta| self.ranges.hiding(key, meta.version, read_view.at).is_some();
        let located = self.locate(key, read_view.at, memory)?;
        Ok(located.filter(|located| read_view.sees(located.meta) && !is_hidden(located.meta)))
    }

    /// The value of what was found, its checksum compared.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn value(&self, located: &Located, memory: &InMemory<'_>) -> Result<Bytes, Stop> {
        let mut value = Vec::new();
        match (located.meta.body, &located.source) {
            (Body::Blob(pointer), _) => return self.value_blob(located.meta.version, pointer, memory),
            (_, Source::Container(found)) => self.container.value(found, &mut value)?,
            (_, Source::Table(hit)) => hit.value(&mut value)?,
        }
        Ok(value.into())
    }

    /// A value from a value file, its checksum compared.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn value_blob(&self, version: u64, pointer: Pointer, memory: &InMemory<'_>) -> Result<Bytes, Stop> {
        let mut value = Vec::with_capacity(pointer.value_bytes as usize);
        let is_there = memory.value(pointer, &mut value)?;
        let found = value_checksum(version, &value);
        if !is_there || found != pointer.checksum {
            return Err(Stop::Damaged(self.damaged_value(pointer, found)));
        }
        Ok(value.into())
    }

    fn damaged_value(&self, pointer: Pointer, found: u32) -> Corruption {
        let page = self.levels.locate_value(pointer, (pointer.offset / 4096) as u32).unwrap_or_default();
        let offset_bytes = page * 4096 + pointer.offset % 4096;
        Corruption {
            place: Place { shard: self.config.shard, offset_bytes },
            what: "value",
            expected: format!("checksum {:08x}", pointer.checksum),
            found: format!("{found:08x}"),
        }
    }

    /// A get. `long` is what it has of a long value: that is read piece by piece.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn get(&self, key: &Key, part: RecordPart, long: &mut Option<LongRead>) -> Result<OperationStep, Stop> {
        let (memory, read_view) = (self.in_memory(1), self.read_view());
        let Some(located) = self.locate(key.encoded(), read_view.at, &memory)? else {
            return Ok(OperationStep::Seen(Reply::Record(None), 0));
        };
        let version = located.meta.version;
        if let Some(deleted) = self.ranges.hiding(key.encoded(), version, read_view.at) {
            return Ok(OperationStep::Seen(Reply::Record(None), deleted));
        }
        if !read_view.sees(located.meta) {
            return Ok(OperationStep::Seen(Reply::Record(None), version));
        }
        let value = match located.meta.body {
            _ if part == RecordPart::Meta => Bytes::new(),
            Body::Blob(pointer) if part.expected_bytes().is_some_and(|bytes| bytes < pointer.value_bytes.into()) => {
                return Ok(OperationStep::Seen(Reply::Longer(pointer.value_bytes.into()), 0));
            }
            Body::Blob(pointer) => self.value_in_pieces(located.meta.version, pointer, long, &memory)?,
            _ => self.value(&located, &memory)?,
        };
        Ok(OperationStep::Seen(Reply::Record(Some(record(located.meta, value, part))), version))
    }

    /// A value from a value file, its checksum compared. A long one is read piece by piece, so that
    /// no more is pinned at once than a piece: `long` is what there is of it. One that was
    /// overwritten meanwhile is begun anew.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn value_in_pieces(
        &self,
        version: u64,
        pointer: Pointer,
        long: &mut Option<LongRead>,
        memory: &InMemory<'_>,
    ) -> Result<Bytes, Stop> {
        if !is_long(pointer) {
            return self.value_blob(version, pointer, memory);
        }
        if long.as_ref().is_none_or(|long| long.pointer != pointer) {
            // Its own permit is given back first.
            *long = None;
            let permit =
                self.memory.permit_for_reading(pointer.value_bytes.into(), memory.is_job()).ok_or(Stop::Missing)?;
            *long =
                Some(LongRead { pointer, bytes: Vec::with_capacity(pointer.value_bytes as usize), _permit: permit });
        }
        let Some(read) = long else { return Ok(Bytes::new()) };
        while read.bytes.len() < pointer.value_bytes as usize {
            let done = read.bytes.len() as u64;
            let piece = Pointer {
                offset: pointer.offset + done,
                value_bytes: (u64::from(pointer.value_bytes) - done).min(PIECE_BYTES) as u32,
                ..pointer
            };
            if !memory.value(piece, &mut read.bytes)? {
                return Err(Stop::Damaged(self.damaged_value(pointer, 0)));
            }
        }
        let found = value_checksum(version, &read.bytes);
        if found != pointer.checksum {
            return Err(Stop::Damaged(self.damaged_value(pointer, found)));
        }
        let bytes = std::mem::take(&mut read.bytes);
        *long = None;
        Ok(bytes.into())
    }
}

/// Read at once of a long value.
const PIECE_BYTES: u64 = 256 << 10;

/// Whether a value is read in pieces.
pub(crate) fn is_long(pointer: Pointer) -> bool {
    fault_point!("trial_long_values_in_one_piece", return false);
    u64::from(pointer.value_bytes) > PIECE_BYTES
}

/// A long value that is being read.
#[derive(Debug)]
pub(crate) struct LongRead {
    pointer: Pointer,
    bytes: Vec<u8>,
    _permit: Permit,
}

impl LongRead {
    pub(crate) fn progress(&self) -> usize {
        self.bytes.len()
    }
}

/// Length of the value of a version.
pub(crate) fn value_bytes(meta: Meta) -> u64 {
    match meta.body {
        Body::Delete => 0,
        Body::Here { value_bytes, .. } => u64::from(value_bytes),
        Body::Blob(pointer) => u64::from(pointer.value_bytes),
    }
}

/// What a reader gets of a version and its value.
pub(crate) fn record(meta: Meta, value: Bytes, part: RecordPart) -> Record {
    let len = value.len() as u64;
    let value = match part {
        // All of it was read: it is not to be read again for the rest.
        RecordPart::Sliced { start: 0, .. } => value,
        RecordPart::Sliced { start, len, .. } => {
            return record(meta, value, RecordPart::Range { start, len: len.into() });
        }
        RecordPart::Range { start, len: wanted } => {
            let start = start.min(len);
            value.slice(start as usize..start.saturating_add(wanted).min(len) as usize)
        }
        _ => value,
    };
    let value_bytes = value_bytes(meta);
    Record { value: Value::Inline(value), value_bytes, flags: meta.flags, version: meta.version, expiry: meta.expiry }
}
