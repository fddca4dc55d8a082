//! A record's fields besides its key and value.

use bytes::Bytes;
use stratakv_base::Expiry;
use stratakv_engine::{Record, Value};

/// What every placement keeps of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) version: u64,
    pub(crate) flags: u32,
    pub(crate) expiry: u64,
}

impl Meta {
    /// Of a record as it was read.
    pub(crate) fn of(record: &Record) -> Meta {
        Meta { version: record.version, flags: record.flags, expiry: record.expiry.0 }
    }

    /// A record of a value of so many bytes, of which `value` was asked for.
    pub(crate) fn record(&self, value: Value, value_bytes: u64) -> Record {
        Record { value, value_bytes, flags: self.flags, version: self.version, expiry: Expiry(self.expiry) }
    }

    /// A record with its whole value.
    pub(crate) fn whole(&self, value: &Bytes) -> Record {
        self.record(Value::Inline(value.clone()), value.len() as u64)
    }
}

/// 32 bits that depend on all of a sequence: the low half alone is the same at the start of every
/// incarnation.
pub(crate) fn tag(sequence: u64) -> u32 {
    (sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}
