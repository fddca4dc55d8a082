//! Large values: a blob is written whole and flushed, then its record is appended. Neither
//! cleaner nor re-clustering moves a blob.

use std::collections::BTreeMap;

use stratakv_base::{Level, fault_point};
use stratakv_device::IoFault;
use stratakv_engine::Effects;

use super::batch::record_bytes;
use super::{Log, Packed};
use crate::blob_write::ReadyBlob;
use crate::record::Meta;
use crate::requests::IoPurpose;
use crate::space::offset;
use crate::write::Change;

/// A blob on its way to be durable.
#[derive(Debug)]
struct LargeValue {
    change: Change<Log>,
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

    /// Whether a flush would help one.
    pub(crate) fn wants_flush(&self) -> bool {
        !self.written.is_empty()
    }

    /// A flush is submitted: it covers what is written now.
    pub(crate) fn flush_begun(&mut self) {
        self.flushing = std::mem::take(&mut self.written);
    }

    pub(crate) fn abandon(&mut self) -> Vec<Change<Log>> {
        self.record_bytes = 0;
        let heads = std::mem::take(&mut self.heads).into_values();
        let rest = std::mem::take(&mut self.written).into_iter().chain(std::mem::take(&mut self.flushing));
        heads.chain(rest).map(|large| large.change).collect()
    }
}

impl Packed {
    /// All but the head of a blob is written: now the head.
    pub(crate) fn write_blob_head(&mut self, blob: ReadyBlob<Log>, effects: &mut Effects) {
        let (meta, value_bytes, level, first) = (blob.meta(), blob.value_bytes(), blob.level, blob.first);
        let sequences = (self.next_number(), self.groups.durable_sequence());
        let (parts, change) = blob.seal(&self.config.uuid, sequences);
        self.placement.large.next += 1;
        let number = self.placement.large.next;
        let large = LargeValue { change, meta, value_bytes, level };
        self.placement.large.record_bytes += large.record_bytes();
        self.placement.large.heads.insert(number, large);
        self.io.counters.page_writes += 1;
        self.io.counters.write_bytes += parts.iter().map(|part| u64::from(part.len)).sum::<u64>();
        let io = self.io.start(IoPurpose::Placement(super::LogIoPurpose::BlobHead { number }));
        effects.write(io, offset(first), parts, false);
    }

    /// The head of a blob is written.
    pub(crate) fn blob_head_written(&mut self, number: u64, result: Result<(), IoFault>, effects: &mut Effects) {
        if let Err(fault) = result {
            return self.poison(fault, "the head of a large value could not be written", effects);
        }
        let mut volatile = self.config.geometry.volatile_cache;
        fault_point!("record_laid_before_its_run_is_durable", volatile = false);
        let Some(large) = self.placement.large.heads.remove(&number) else { return };
        if volatile {
            return self.placement.large.written.push(large);
        }
        self.placement.large.record_bytes -= large.record_bytes();
        self.append_large(large.change, large.meta, large.value_bytes, large.level);
    }

    /// That flush is done.
    pub(crate) fn blobs_flushed(&mut self) {
        let flushed = std::mem::take(&mut self.placement.large.flushing);
        self.placement.large.record_bytes -= flushed.iter().map(LargeValue::record_bytes).sum::<u64>();
        for large in flushed {
            self.append_large(large.change, large.meta, large.value_bytes, large.level);
        }
    }
}
