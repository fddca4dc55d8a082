//! Files of values: pages without headers, as each value's checksum lies in the version that points
//! to it.

use std::ops::Range;

use smallvec::SmallVec;
use stratakv_base::checksum::crc32c;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::BlockPart;

use super::page::{Page, corruption};
use crate::cursor::Stop;
use crate::entry::{Pointer, value_checksum_head};

/// Values from this length on lie in value files.
pub const BLOB_BYTES_MIN: usize = 512;

const PAGE: u64 = PAGE_BYTES as u64;

/// What a finished value file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuesFacts {
    /// Its pages.
    pub pages: u64,
    /// Bytes of values in it.
    pub value_bytes: u64,
}

/// Makes one value file.
#[derive(Debug)]
pub struct ValuesWriter {
    /// The page that is being filled.
    page: Box<Page>,
    /// Where the next byte goes.
    at: u64,
    value_bytes: u64,
}

impl Default for ValuesWriter {
    fn default() -> Self {
        ValuesWriter { page: Box::new([0; PAGE_BYTES]), at: 0, value_bytes: 0 }
    }
}

impl ValuesWriter {
    /// Bytes so far, gaps included.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// Appends a value and returns its offset in the file. Pages that are finished by this go to
    /// `sink` in order: of a long value those in the middle from where they lie, all else by one
    /// copy.
    pub fn add(&mut self, value: &[u8], sink: &mut impl FnMut(&Page)) -> u64 {
        if begins_on_next_page(self.at, value.len()) {
            self.end_page(sink);
        }
        let offset = self.at;
        self.at += value.len() as u64;
        self.value_bytes += value.len() as u64;
        self.fill((offset % PAGE) as usize, value, sink);
        offset
    }

    fn fill(&mut self, start: usize, value: &[u8], sink: &mut impl FnMut(&Page)) {
        let mut rest = value;
        if start > 0 {
            let head = rest.split_off(..rest.len().min(PAGE_BYTES - start)).unwrap_or_default();
            self.page[start..start + head.len()].copy_from_slice(head);
            if start + head.len() < PAGE_BYTES {
                return;
            }
            sink(&self.page);
        }
        let (whole, tail) = rest.as_chunks::<PAGE_BYTES>();
        whole.iter().for_each(sink);
        self.page[..tail.len()].copy_from_slice(tail);
    }

    /// Fills the page that is begun with zeros and gives it.
    fn end_page(&mut self, sink: &mut impl FnMut(&Page)) {
        let start = (self.at % PAGE) as usize;
        if start > 0 {
            self.page[start..].fill(0);
            sink(&self.page);
            self.at = self.at.next_multiple_of(PAGE);
        }
    }

    /// Gives the last page, and says what the file is.
    pub fn finish(mut self, sink: &mut impl FnMut(&Page)) -> ValuesFacts {
        self.end_page(sink);
        ValuesFacts { pages: self.at / PAGE, value_bytes: self.value_bytes }
    }
}

/// Whether a value at `at` would take a page more than at the start of the next one, and the gap is
/// at most an eighth of it.
fn begins_on_next_page(at: u64, value_bytes: usize) -> bool {
    let (start, len) = (at % PAGE, value_bytes as u64);
    start > 0 && len.div_ceil(PAGE) < (start + len).div_ceil(PAGE) && PAGE - start <= len / 8
}

/// The pages that a value lies in. An offset near the end of 64 bits gives pages that no file has.
pub fn pages_of(pointer: &Pointer) -> Range<u64> {
    let first = pointer.offset / PAGE;
    let bytes = pointer.offset % PAGE + u64::from(pointer.value_bytes);
    first..first + bytes.div_ceil(PAGE)
}

/// The value of `version`, which `read` has: the pages of [`pages_of`], in order, in pieces of any
/// length. Nothing is copied.
///
/// # Errors
/// [`Stop::Damaged`]: its checksum is another, or pages are missing.
pub fn value(pointer: &Pointer, version: u64, read: &[BlockPart]) -> Result<SmallVec<[BlockPart; 2]>, Stop> {
    let (mut skip, mut left) = ((pointer.offset % PAGE) as u32, pointer.value_bytes);
    let mut pieces = SmallVec::new();
    // The head of the checksum: what comes before the value's bytes.
    let mut checksum = value_checksum_head(version, pointer.value_bytes);
    for part in read {
        let skipped = skip.min(part.len);
        let len = left.min(part.len - skipped);
        skip -= skipped;
        left -= len;
        if len > 0 {
            let piece = BlockPart { block: part.block.clone(), start: part.start + skipped, len };
            checksum = crc32c(checksum, piece.bytes());
            pieces.push(piece);
        }
    }
    if left > 0 || checksum != pointer.checksum {
        return Err(damaged(pointer, left, checksum));
    }
    Ok(pieces)
}

#[cold]
fn damaged(pointer: &Pointer, left: u32, checksum: u32) -> Stop {
    let found = format!("{checksum:08x} for {:08x}, {left} bytes missing", pointer.checksum);
    let ordinal = u32::try_from(pointer.offset / PAGE).unwrap_or(u32::MAX);
    Stop::Damaged(corruption("value", pointer.file, ordinal, "a value that checks", found))
}
