//! From the bytes of a segment to its batches. Pure functions.

use stratakv_base::limits::PAGE_BYTES;

use super::batch::{BatchHeader, HEADER_BYTES};

/// A batch in a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchAt {
    /// Its first page, counted from the segment's.
    pub(crate) page: u32,
    pub(crate) header: BatchHeader,
    /// Both headers check, and are the same.
    pub(crate) both: bool,
}

impl BatchAt {
    /// Where its records lie, in the segment's bytes.
    pub(crate) fn records(&self) -> std::ops::Range<usize> {
        let start = self.page as usize * PAGE_BYTES + HEADER_BYTES;
        start..start + self.header.bytes as usize
    }
}

/// The next batch of `generation` at or behind page `from` of a segment that begins at page `first`
/// of the volume.
pub(crate) fn next_batch(uuid: &[u8; 16], first: u32, generation: u64, bytes: &[u8], from: u32) -> Option<BatchAt> {
    let count = (bytes.len() / PAGE_BYTES) as u32;
    (from..count).find_map(|page| {
        let start = page as usize * PAGE_BYTES;
        let own = |header: &BatchHeader| header.generation == generation && header.pages <= count;
        let head = BatchHeader::decode(uuid, first + page, bytes.get(start..start + HEADER_BYTES)?).filter(own);
        if let Some(header) = head.filter(|header| page + header.pages <= count) {
            let last = page + header.pages - 1;
            let end = bytes.get(last as usize * PAGE_BYTES..(last as usize + 1) * PAGE_BYTES)?;
            let both = BatchHeader::decode_end(uuid, first + last, end) == Some((first + page, header));
            return Some(BatchAt { page, header, both });
        }
        let (begins, header) = BatchHeader::decode_end(uuid, first + page, bytes.get(start..start + PAGE_BYTES)?)?;
        let page = begins.checked_sub(first).filter(|page| *page >= from)?;
        own(&header).then_some(BatchAt { page, header, both: false })
    })
}

/// The highest generation of any batch in a segment of which the table is lost.
pub(crate) fn latest_generation(uuid: &[u8; 16], first: u32, bytes: &[u8]) -> Option<u64> {
    let pages = (first..).zip(bytes.chunks_exact(PAGE_BYTES));
    let headers = pages.filter_map(|(page, bytes)| BatchHeader::decode(uuid, page, bytes.get(..HEADER_BYTES)?));
    headers.map(|header| header.generation).max()
}
