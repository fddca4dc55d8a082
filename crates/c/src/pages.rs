//! Pages: records one behind the other in one piece of memory, so that a language in which each
//! call costs much needs one for many records.
//!
//! An entry is 32 bytes (`stratakv_entry`), the key, the value, and zeros up to a multiple of 8:
//!
//! ```text
//! version u64 | expiry_ms u64 | value_len u64 | key_len u32 | flags u32 | key | value | zeros
//! ```
//!
//! in the machine's order of bytes. Nothing here takes a length of a page on trust.

use std::mem::MaybeUninit;

use stratakv::{Expiry, PutOptions};

use crate::status::Failure;

/// Bytes in front of a key.
const HEADER: usize = 32;
/// The length of a value that stands for a delete: `STRATAKV_DELETED`.
const DELETED: u64 = u64::MAX;

/// Room that is filled with entries.
pub(crate) struct Page<'a> {
    room: &'a mut [MaybeUninit<u8>],
    len: usize,
    count: usize,
}

impl<'a> Page<'a> {
    pub(crate) fn new(room: &'a mut [MaybeUninit<u8>]) -> Page<'a> {
        Page { room, len: 0, count: 0 }
    }

    /// Bytes that are filled.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Entries.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of an entry.
    pub(crate) fn needed(key: &[u8], record: &stratakv::Record) -> usize {
        (HEADER + key.len()).saturating_add(record.len()).next_multiple_of(8)
    }

    /// Writes an entry; false, and nothing is written, if the room is too small.
    pub(crate) fn push(&mut self, key: &[u8], record: &stratakv::Record) -> bool {
        let needed = Page::needed(key, record);
        let Some(mut room) = self.room.get_mut(self.len..).and_then(|room| room.get_mut(..needed)) else {
            return false;
        };
        let value = record.to_bytes();
        let padding = needed - HEADER - key.len() - value.len();
        for part in [
            &record.version.to_ne_bytes()[..],
            &record.expiry.0.to_ne_bytes(),
            &(value.len() as u64).to_ne_bytes(),
            &(key.len() as u32).to_ne_bytes(),
            &record.flags.to_ne_bytes(),
            key,
            &value,
            [0; 8].get(..padding).unwrap_or_default(),
        ] {
            let Some((place, rest)) = room.split_at_mut_checked(part.len()) else { return false };
            place.write_copy_of_slice(part);
            room = rest;
        }
        self.len += needed;
        self.count += 1;
        true
    }
}

/// A change that a page asks for.
pub(crate) struct Change<'a> {
    pub(crate) key: &'a [u8],
    /// `None` removes.
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) options: PutOptions,
}

/// The changes of a page; all of them, or what is wrong with one.
pub(crate) fn changes(mut page: &[u8]) -> Result<Vec<Change<'_>>, Failure> {
    let mut changes = Vec::new();
    while !page.is_empty() {
        let change = take(&mut page).ok_or_else(|| bad(changes.len(), "it is cut off, or a length in it is wrong"))?;
        changes.push(change.map_err(|reason| bad(changes.len(), reason))?);
    }
    Ok(changes)
}

fn bad(entry: usize, reason: &str) -> Failure {
    Failure::usage(format!("entry {entry} of the page is bad: {reason}; see stratakv_entry"))
}

/// Takes one entry off a page; `None` if that is too short for it.
fn take<'a>(page: &mut &'a [u8]) -> Option<Result<Change<'a>, &'static str>> {
    let mut rest = *page;
    let version = u64::from_ne_bytes(*rest.split_off(..8)?.as_array()?);
    let expiry_ms = u64::from_ne_bytes(*rest.split_off(..8)?.as_array()?);
    let value_len = u64::from_ne_bytes(*rest.split_off(..8)?.as_array()?);
    let key_len = u32::from_ne_bytes(*rest.split_off(..4)?.as_array()?);
    let flags = u32::from_ne_bytes(*rest.split_off(..4)?.as_array()?);
    let key = rest.split_off(..key_len as usize)?;
    let value = match value_len {
        DELETED => None,
        len => Some(rest.split_off(..usize::try_from(len).ok()?)?),
    };
    let taken = page.len() - rest.len();
    *page = page.get(taken.checked_next_multiple_of(8)?..)?;
    if version != 0 {
        return Some(Err("it has a version, and pages have no conditions"));
    }
    let options = PutOptions::new().flags(flags).expiry(Expiry(expiry_ms));
    Some(Ok(Change { key, value, options }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u64, key: &[u8], value: Option<&[u8]>, value_len: u64) -> Vec<u8> {
        let mut made = [version, 7, value_len].map(u64::to_ne_bytes).concat();
        made.extend([key.len() as u32, 5].map(u32::to_ne_bytes).concat());
        made.extend([key, value.unwrap_or_default()].concat());
        made.resize(made.len().next_multiple_of(8), 0);
        made
    }

    #[test]
    fn a_page_says_what_to_set_and_what_to_remove() {
        let page = [entry(0, b"set", Some(b"12345"), 5), entry(0, b"gone", None, DELETED)].concat();
        let changes = changes(&page).unwrap_or_else(|_| panic!("the page is sound"));
        let told: Vec<_> = changes.iter().map(|change| (change.key, change.value)).collect();
        assert_eq!(told, [(&b"set"[..], Some(&b"12345"[..])), (b"gone", None)]);
    }

    /// Whatever a length says, nothing is read behind the page.
    #[test]
    fn lengths_are_not_taken_on_trust() {
        let sound = entry(0, b"key", Some(b"value"), 5);
        for cut in 1..sound.len() {
            assert!(changes(&sound[..cut]).is_err(), "{cut} bytes of {}", sound.len());
        }
        for value_len in [6 + 3, u64::MAX - 1, u64::MAX / 2, 1 << 40] {
            assert!(changes(&entry(0, b"key", Some(b"value"), value_len)).is_err(), "{value_len}");
        }
        assert!(changes(&entry(1, b"key", Some(b"value"), 5)).is_err(), "a version is a condition");
    }

    #[test]
    fn every_byte_may_be_anything() {
        let sound = [entry(0, b"key", Some(b"value"), 5), entry(0, b"gone", None, DELETED)].concat();
        for at in 0..sound.len() {
            for byte in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut changed = sound.clone();
                changed[at] = byte;
                let _either = changes(&changed).is_ok();
            }
        }
    }
}
