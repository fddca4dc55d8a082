//! Bloom filters in blocks of 64 bytes: one page and one cache line for each question.

use stratakv_base::limits::PAGE_BYTES;

use super::page::Page;

const LINE_BYTES: usize = 64;
/// The first line of a page has its header.
const LINES: u32 = (PAGE_BYTES / LINE_BYTES) as u32 - 1;
const LINE_BITS: u64 = LINE_BYTES as u64 * 8;
/// Bits of each key: the best number at 10 bits a key.
const PROBES: usize = 6;

/// The hash that filters know keys by: to be computed once for a lookup in many tables.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Pages of a filter for `keys` keys.
pub(super) fn pages_for(keys: usize, bits_per_key: u32) -> u32 {
    let bits = keys as u64 * u64::from(bits_per_key);
    bits.div_ceil(u64::from(LINES) * LINE_BITS) as u32
}

/// The page of a filter of `pages` pages that `hash` falls to, and the line in it.
#[inline]
fn place(hash: u64, pages: u32) -> (u32, usize) {
    let wide = (hash >> 32) * u64::from(pages);
    // What the page leaves of the hash's high half chooses the line.
    let line = 1 + ((u64::from(wide as u32) * u64::from(LINES)) >> 32);
    ((wide >> 32) as u32, line as usize)
}

/// The page that knows about `hash`.
#[inline]
pub(super) fn page_of(hash: u64, pages: u32) -> u32 {
    place(hash, pages).0
}

/// The bits of `hash` in its line: the top nine bits of its low half, multiplied on and on.
#[inline]
fn bits(hash: u64) -> impl Iterator<Item = (usize, u8)> {
    let numbers = std::iter::successors(Some(hash as u32), |number| Some(number.wrapping_mul(0x9e37_79b9)));
    numbers.take(PROBES).map(|number| ((number >> 26) as usize, 1 << (number >> 23 & 7)))
}

pub(super) fn insert(filter: &mut [Page], hash: u64) {
    let (page, line) = place(hash, filter.len() as u32);
    line_insert(&mut filter[page as usize].as_chunks_mut().0[line], hash);
}

/// The line that `hash` falls to takes it.
#[inline]
pub fn line_insert(line: &mut [u8; LINE_BYTES], hash: u64) {
    bits(hash).for_each(|(byte, mask)| line[byte] |= mask);
}

/// Whether the line that `hash` falls to allows it.
#[inline]
pub fn line_allows(line: &[u8; LINE_BYTES], hash: u64) -> bool {
    bits(hash).all(|(byte, mask)| line.get(byte).is_none_or(|byte| byte & mask != 0))
}

/// Whether `page`, the one that knows about `hash`, allows it. A page of another length allows
/// everything.
#[inline]
pub(super) fn allows(page: &[u8], hash: u64, pages: u32) -> bool {
    let line = page.as_chunks::<LINE_BYTES>().0.get(place(hash, pages).1);
    line.is_none_or(|line| line_allows(line, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_than_fifteen_of_a_thousand_strangers_are_let_in() {
        let keys = 100_000;
        let mut filter = vec![[0; PAGE_BYTES]; pages_for(keys, 10) as usize];
        let pages = filter.len() as u32;
        assert_eq!(pages, 32);
        let hash = |number: usize| key_hash(format!("user{number:012}").as_bytes());
        (0..keys).for_each(|number| insert(&mut filter, hash(number)));
        let asked = |number: usize| allows(&filter[page_of(hash(number), pages) as usize], hash(number), pages);
        assert!((0..keys).all(asked), "no key is refused");
        assert!(filter.iter().all(|page| page[..LINE_BYTES] == [0; LINE_BYTES]), "the header's line is left alone");
        let strangers = (keys..keys * 11).filter(|number| asked(*number)).count();
        assert!((8_000..15_000).contains(&strangers), "{strangers} of a million");
    }
}
