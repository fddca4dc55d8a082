//! A record as the library's users see it.

use bytes::Bytes;
use stratakv_base::Expiry;
use stratakv_engine::{Record as EngineRecord, Value};

/// A value with its flags, version and expiry.
#[derive(Clone, Debug)]
pub struct Record {
    value: Value,
    /// Opaque to the store; memcache clients keep types in it.
    pub flags: u32,
    /// Grows with every write of the key, also across restarts; compare-and-swap is on it.
    pub version: u64,
    /// When the record expires.
    pub expiry: Expiry,
}

impl Record {
    pub(crate) fn empty() -> Record {
        Record { value: Value::Inline(Bytes::new()), flags: 0, version: 0, expiry: Expiry::NEVER }
    }

    pub(crate) fn new(value: Value, flags: u32, version: u64, expiry: Expiry) -> Record {
        Record { value, flags, version, expiry }
    }

    /// The same, without a hold on blocks of the cache.
    pub(crate) fn detached(self) -> Record {
        Record { value: Value::Inline(self.value.to_bytes()), ..self }
    }

    /// Length of the value, in bytes.
    pub fn len(&self) -> usize {
        self.value.len() as usize
    }

    /// Whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    /// The value in one piece; copies if it is shared with the cache or lies in several blocks.
    pub fn to_bytes(&self) -> Bytes {
        self.value.to_bytes()
    }

    /// The value without a copy.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl From<EngineRecord> for Record {
    fn from(record: EngineRecord) -> Record {
        Record { value: record.value, flags: record.flags, version: record.version, expiry: record.expiry }
    }
}
