//! What `check` has to read besides what recovery reads of a log: the bytes of large values.
//!
//! [`Packed::verify_large_values`] is called by `stratakv::check`, for a shard that was opened for
//! reading only. It reads each blob as a get does, and refuses what a get would refuse.

use std::ops::{Bound, ControlFlow};

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Corruption, Key};

use super::Packed;
use crate::blob::{self, BlobHeader};
use crate::config::LOST_MAX;
use crate::place::blob_of;
use crate::record;
use crate::space::offset;

/// Reads so many bytes from this byte of the volume on; why the device does not give them.
pub type ReadVolume<'a> = &'a mut dyn FnMut(u64, usize) -> Result<Vec<u8>, String>;

/// What [`Packed::verify_large_values`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedValues {
    /// Damage, with its place.
    pub damage: Vec<Corruption>,
    /// Places that the device did not give.
    pub unreadable: Vec<String>,
    /// Keys of values that are damaged: the first hundred.
    pub lost: Vec<Key>,
    /// How many there are.
    pub lost_records: u64,
}

/// Why a get of a large value would fail.
enum Fault {
    Damaged { slice: usize, expected: String, found: &'static str },
    Unreadable(String),
}

/// A large value as the index knows it.
struct Blob<'a> {
    key: &'a Key,
    first: u32,
    pages: u32,
}

impl Blob<'_> {
    /// Bytes of slice `slice` on the medium.
    fn slice_bytes(&self, slice: usize) -> usize {
        (self.pages as usize * PAGE_BYTES).saturating_sub(slice * SLICE_BYTES).min(SLICE_BYTES)
    }

    fn read(&self, slice: usize, read: ReadVolume<'_>) -> Result<Vec<u8>, Fault> {
        let offset = offset(self.first) + (slice * SLICE_BYTES) as u64;
        read(offset, self.slice_bytes(slice)).map_err(Fault::Unreadable)
    }
}

impl Packed {
    /// Reads and verifies all large values in the index of a log: head, key, and every slice.
    ///
    pub fn verify_large_values(&self, read: ReadVolume<'_>) -> VerifiedValues {
        let mut found = VerifiedValues::default();
        self.index.tree.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |key, entry| {
            if let (Some((first, pages)), Some(key)) = (blob_of(entry.place), Key::from_encoded(key)) {
                match self.verify_blob(&Blob { key: &key, first, pages }, read) {
                    Ok(()) => {}
                    Err(Fault::Unreadable(why)) => found.unreadable.push(format!("{why} (the value of {key})")),
                    Err(Fault::Damaged { slice, expected, found: instead }) => {
                        let page = first + (slice * SLICE_BYTES / PAGE_BYTES) as u32;
                        found.damage.push(self.corruption(page, "large value", expected, instead));
                        found.lost_records += 1;
                        if found.lost.len() < LOST_MAX {
                            found.lost.push(key);
                        }
                    }
                }
            }
            ControlFlow::Continue(())
        });
        found
    }

    fn verify_blob(&self, blob: &Blob<'_>, read: ReadVolume<'_>) -> Result<(), Fault> {
        let (uuid, key) = (&self.config.uuid, blob.key);
        let mut slices = vec![blob.read(0, read)?];
        let header = self.blob_header(blob, slices.first().map_or(&[], Vec::as_slice))?;
        let shape = header.shape;
        for slice in 1..shape.head_slices() {
            slices.push(blob.read(slice, read)?);
        }
        let mut head = slices.concat();
        head.truncate(shape.head_bytes());
        let damaged = |slice, expected, found| Err(Fault::Damaged { slice, expected, found });
        if !blob::head_checks(uuid, blob.first, &header, &head) {
            return damaged(0, format!("checksums and key of the value of {key}"), "bytes that do not check");
        }
        if blob::head_key(&shape, &head) != key.encoded() {
            return damaged(0, format!("the value of {key}"), "another key's value");
        }
        for slice in 0..shape.slices {
            let part = shape.value_part(slice);
            if part.is_empty() {
                continue;
            }
            let bytes = match slices.get_mut(slice) {
                Some(bytes) => std::mem::take(bytes),
                None => blob.read(slice, read)?,
            };
            let at = (shape.head_bytes() + part.start).saturating_sub(slice * SLICE_BYTES);
            let value = bytes.get(at..at + part.len()).unwrap_or_default();
            let crc = blob::slice_crc(uuid, blob.first, header.meta.version, slice, value);
            if crc != blob::head_slice_crc(&head, slice) {
                return damaged(slice, format!("slice {slice} of {key}"), "a checksum that does not match");
            }
        }
        Ok(())
    }

    /// The header of the value that the index means.
    fn blob_header(&self, blob: &Blob<'_>, bytes: &[u8]) -> Result<BlobHeader, Fault> {
        let (key, slice) = (blob.key, 0);
        let header = blob::decode_header(&self.config.uuid, blob.first, bytes);
        let Some(header) = header.filter(|header| header.shape.pages() == blob.pages) else {
            let expected = format!("the head of the value of {key}");
            return Err(Fault::Damaged { slice, expected, found: "bytes that do not check" });
        };
        if self.blobs.tags.get(&blob.first) != Some(&record::tag(header.meta.version)) {
            let expected = format!("the value of {key} written last");
            return Err(Fault::Damaged { slice, expected, found: "an older one: a write was lost or went astray" });
        }
        Ok(header)
    }
}
