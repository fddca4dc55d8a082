//! `stratakv_record`: values that C reads in place.

use std::mem::MaybeUninit;
use std::ptr;

use bytes::Bytes;

use crate::arg::Out;

/// A value with what belongs to it. `owner` holds its bytes, unless they belong to a scan.
#[derive(Debug)]
#[repr(C)]
pub struct Record {
    value: *const u8,
    value_len: usize,
    version: u64,
    expiry_ms: u64,
    flags: u32,
    owner: Option<Box<Bytes>>,
}

/// What stands where there is no record: all zero.
pub(crate) const NONE: Record =
    Record { value: ptr::null(), value_len: 0, version: 0, expiry_ms: 0, flags: 0, owner: None };

impl Record {
    /// One that holds its value: without a copy if that is in one piece.
    pub(crate) fn new(record: &stratakv::Record) -> Record {
        let value = record.to_bytes();
        Record { owner: Some(Box::new(value.clone())), ..Record::borrowed(&value, record) }
    }

    /// One whose value is copied to where the caller has room; that holds it if there is too
    /// little.
    pub(crate) fn in_room(record: &stratakv::Record, room: &mut [MaybeUninit<u8>]) -> Record {
        let Some(room) = room.get_mut(..record.len()).filter(|room| !room.is_empty()) else {
            return Record::new(record);
        };
        let value = record.to_bytes();
        Record { value: room.write_copy_of_slice(&value).as_ptr(), ..Record::borrowed(&value, record) }
    }

    /// One whose value belongs to somebody else.
    pub(crate) fn borrowed(value: &Bytes, record: &stratakv::Record) -> Record {
        let (version, expiry_ms, flags) = (record.version, record.expiry.0, record.flags);
        Record { value: value.as_ptr(), value_len: value.len(), version, expiry_ms, flags, owner: None }
    }

    /// A value alone.
    pub(crate) fn value(value: Bytes) -> Record {
        Record { value: value.as_ptr(), value_len: value.len(), owner: Some(Box::new(value)), ..NONE }
    }

    /// A value alone that belongs to somebody else.
    pub(crate) fn borrowed_value(value: &Bytes) -> Record {
        Record { value: value.as_ptr(), value_len: value.len(), ..NONE }
    }
}

/// Lets a record's value go, and makes it all zero.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_record_free(record: Option<&mut Record>) {
    if let Some(record) = record {
        *record = NONE;
    }
}

/// Writes a record that may be absent.
pub(crate) fn give(out: Out<'_, Record>, record: Option<Record>) {
    if let Some(out) = out {
        out.write(record.unwrap_or(NONE));
    }
}
