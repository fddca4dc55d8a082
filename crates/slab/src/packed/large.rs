//! Large values: a blob is written whole and flushed, then its record is appended. Neither
//! cleaner nor re-clustering moves a blob.

use std::collections::BTreeMap;

use stratakv_base::{Level, fault_point};
use stratakv_device::IoFault;
use stratakv_engine::Effects;

use super::batch::record_bytes;
use crate::blob_write::ReadyBlob;
use crate::page::Meta;
use crate::slab::{self, Slab};
use crate::write::Change;

/// A blob on its way to be durable.
#[derive(Debug)]
struct LargeValue {
    change: Change,
    meta: Meta,
    value_bytes: u32,
    level: Level,
}

/// Blobs of which all but the head is written, and further.
#[derive(Debug, Default)]
pub(crate) struct LargeValues {
    heads: BTreeMap<u64, LargeValue>,
    next: u64,
    /// Written, and in need of a flush.
    written: Vec<LargeValue>,
    /// The flush in flight covers these.
    flushing: Vec<LargeValue>,
    /// Bytes of the records that will be appended.
    record_bytes: u64,
}

impl LargeValue {
    fn record_bytes(&self) -> u64 {
        record_bytes(&self.meta, self.change.key.encoded().len(), 12) as u64
    }
}

impl LargeValues {
    pub(crate) fn is_idle(&self) -> bool {
        self.heads.is_empty() && self.written.is_empty() && self.flushing.is_empty()
    }

    /// Bytes of the records that will be appended.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    pub(crate) fn abandon(&mut self) -> Vec<Change> {
        self.record_bytes = 0;
        let heads = std::mem::take(&mut self.heads).into_values();
        let rest = std::mem::take(&mut self.written).into_iter().chain(std::mem::take(&mut self.flushing));
        heads.chain(rest).map(|large| large.change).collect()
    }
}

impl Slab {
    /// All but the head of a blob is written: now the head.
    pub(crate) fn write_blob_head(&mut self, blob: ReadyBlob, effects: &mut Effects) {
        let (meta, value_bytes, level, first) = (blob.meta(), blob.value_bytes(), blob.level, blob.first);
        let sequences = (self.next_number(), self.groups.durable_sequence());
        let (parts, change) = blob.seal(&self.config.uuid, sequences);
        let Some(packed) = &mut self.packed else { return };
        packed.large.next += 1;
        let number = packed.large.next;
        let large = LargeValue { change, meta, value_bytes, level };
        packed.large.record_bytes += large.record_bytes();
        packed.large.heads.insert(number, large);
        self.counters.page_writes += 1;
        self.counters.write_bytes += parts.iter().map(|part| u64::from(part.len)).sum::<u64>();
        let io = self.io.start(slab::IoPurpose::Packed(super::PackedIoPurpose::BlobHead { number }));
        effects.write(io, Self::offset(first), parts, false);
    }

    /// The head of a blob is written.
    pub(crate) fn blob_head_written(&mut self, number: u64, result: Result<(), IoFault>, effects: &mut Effects) {
        if let Err(fault) = result {
            return self.poison(fault, "the head of a large value could not be written", effects);
        }
        let mut volatile = self.config.geometry.volatile_cache;
        fault_point!("record_laid_before_its_run_is_durable", volatile = false);
        let Some(packed) = &mut self.packed else { return };
        let Some(large) = packed.large.heads.remove(&number) else { return };
        if volatile {
            return packed.large.written.push(large);
        }
        packed.large.record_bytes -= large.record_bytes();
        self.append_large(large.change, large.meta, large.value_bytes, large.level);
    }

    /// Whether a flush would help a blob.
    pub(crate) fn blobs_want_flush(&self) -> bool {
        self.packed.as_ref().is_some_and(|packed| !packed.large.written.is_empty())
    }

    /// A flush is submitted: it covers what is written now.
    pub(crate) fn blobs_flushing(&mut self) {
        if let Some(packed) = &mut self.packed {
            packed.large.flushing = std::mem::take(&mut packed.large.written);
        }
    }

    /// That flush is done.
    pub(crate) fn blobs_flushed(&mut self) {
        let Some(packed) = &mut self.packed else { return };
        let flushed = std::mem::take(&mut packed.large.flushing);
        packed.large.record_bytes -= flushed.iter().map(LargeValue::record_bytes).sum::<u64>();
        for large in flushed {
            self.append_large(large.change, large.meta, large.value_bytes, large.level);
        }
    }
}
