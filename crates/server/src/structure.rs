//! Records that hold a hash, list, set or sorted set of Redis clients, as memcache's commands and
//! those of strings meet them.

use bytes::Bytes;
use stratakv_base::Expiry;
use stratakv_engine::update::{UpdateError, UpdatedRecord};
use stratakv_engine::{Record, RecordEdit, Unmet};
use stratakv_structures::{HEADER_BYTES, Kind, STRUCTURE_FLAGS, kind_of};

/// What a record holds, of which at least the front is there.
pub(crate) fn kind(record: &Record) -> Kind {
    if record.flags != STRUCTURE_FLAGS {
        return Kind::String;
    }
    let mut front = Vec::with_capacity(HEADER_BYTES);
    for slice in record.value.slices() {
        front.extend(slice.iter().take(HEADER_BYTES - front.len()));
        if front.len() == HEADER_BYTES {
            break;
        }
    }
    kind_of(record.flags, &front)
}

/// Whether a record is a structure, and not a string.
pub(crate) fn is_structure(record: &Record) -> bool {
    kind(record) != Kind::String
}

/// append and prepend: a structure stays as it is.
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) bytes: Bytes,
    /// In front of the value.
    pub(crate) is_front: bool,
}

impl RecordEdit for Join {
    fn apply(&self, value: &Bytes, flags: u32, expiry: Expiry) -> Result<UpdatedRecord, UpdateError> {
        if kind_of(flags, value) != Kind::String {
            return Err(UpdateError::Unmet(Unmet::Unchanged));
        }
        // What is a string stays one, whatever its bytes become.
        let flags = (flags == STRUCTURE_FLAGS).then_some(0);
        let (front, back) = if self.is_front { (&self.bytes, value) } else { (value, &self.bytes) };
        Ok(UpdatedRecord { value: [&front[..], back].concat().into(), expiry: expiry.0, number: None, flags })
    }

    fn value_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}
