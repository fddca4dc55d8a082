//! [`Pages`]: what the pages of a volume must hold, after writes of which some were not answered.

use std::collections::BTreeSet;

use stratakv_base::random::Random;
use stratakv_device::{Block, BlockPart, Class, DiskRequest, Pool};

pub(super) const PAGE_BYTES: usize = 4096;

/// By page: the version that was written last, and those that may be there too.
#[derive(Debug)]
pub(super) struct Pages {
    known: Vec<BTreeSet<u32>>,
    next: u32,
}

impl Pages {
    /// Of a volume that holds zeros: version 0.
    pub(super) fn new(count: usize) -> Pages {
        Pages { known: vec![BTreeSet::from([0]); count], next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// A version that was never written.
    pub(super) fn next_version(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// A write of these pages was acknowledged.
    pub(super) fn written(&mut self, first: usize, count: usize, version: u32) {
        for page in self.known.iter_mut().skip(first).take(count) {
            *page = BTreeSet::from([version]);
        }
    }

    /// A write of these pages may have happened.
    pub(super) fn maybe_written(&mut self, first: usize, count: usize, version: u32) {
        for page in self.known.iter_mut().skip(first).take(count) {
            page.insert(version);
        }
    }

    /// Whether `bytes` may be what `page` holds; else what it holds.
    pub(super) fn check(&self, page: usize, bytes: &[u8]) -> Result<(), String> {
        let version = bytes.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        let mut expected = vec![0; PAGE_BYTES];
        fill(page, version, &mut expected);
        if bytes != expected {
            return Err(format!("page {page} is torn or another page, near version {version}"));
        }
        let known = self.known.get(page).ok_or_else(|| format!("there is no page {page}"))?;
        if known.contains(&version) {
            Ok(())
        } else {
            Err(format!("page {page} holds version {version}, not {known:?}"))
        }
    }
}

/// What a version of a page looks like; version 0 is all zeros.
pub(super) fn fill(page: usize, version: u32, bytes: &mut [u8]) {
    bytes.fill(0);
    if version == 0 {
        return;
    }
    let mut random = Random::new((page as u64) << 32 | u64::from(version));
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    for (place, byte) in bytes.iter_mut().zip((page as u64).to_le_bytes().into_iter().chain(version.to_le_bytes())) {
        *place = byte;
    }
}

/// A write of `count` pages from `first` on.
pub(super) fn write(
    pool: &Pool,
    (first, count): (usize, usize),
    version: u32,
    durable: bool,
) -> Result<DiskRequest, String> {
    let mut parts = Vec::new();
    let mut page = first;
    while page < first + count {
        let left = first + count - page;
        // Both kinds of blocks, and parts of them.
        let class = if left >= 8 { Class::Slice } else { Class::Page };
        let mut block = pool.take(class).ok_or("no memory for a write")?;
        let pages = left.min(class.bytes() / PAGE_BYTES);
        for (number, bytes) in (page..).zip(block.chunks_exact_mut(PAGE_BYTES).take(pages)) {
            fill(number, version, bytes);
        }
        page += pages;
        parts.push(BlockPart { block: block.into(), start: 0, len: (pages * PAGE_BYTES) as u32 });
    }
    Ok(DiskRequest::Write { offset: (first * PAGE_BYTES) as u64, parts, durable })
}

/// A read of as many pages as a block of its class holds, at most `count`.
pub(super) fn read(pool: &Pool, first: usize, count: usize) -> Result<DiskRequest, String> {
    let class = if count > 1 { Class::Slice } else { Class::Page };
    let block: Block = pool.take(class).ok_or("no memory for a read")?;
    let pages = count.min(class.bytes() / PAGE_BYTES);
    Ok(DiskRequest::Read { offset: (first * PAGE_BYTES) as u64, block, len: (pages * PAGE_BYTES) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_its_number_and_version() {
        let mut pages = Pages::new(4);
        let mut bytes = vec![0; PAGE_BYTES];
        assert_eq!(pages.check(2, &bytes), Ok(()));
        let version = pages.next_version();
        fill(2, version, &mut bytes);
        assert!(pages.check(2, &bytes).is_err(), "nobody wrote it");
        pages.maybe_written(2, 1, version);
        assert_eq!(pages.check(2, &bytes), Ok(()));
        assert_eq!(pages.check(2, &vec![0; PAGE_BYTES]), Ok(()));
        pages.written(2, 1, version);
        assert!(pages.check(2, &vec![0; PAGE_BYTES]).is_err(), "it is lost");
        assert!(pages.check(3, &bytes).is_err(), "another page");
        bytes[4095] ^= 1;
        assert!(pages.check(2, &bytes).is_err());
    }
}
