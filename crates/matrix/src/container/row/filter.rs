//! A row's filter, in DRAM: most rows do not have the key of a lookup, and need not be searched.
//!
//! MatrixKV searches L0 by hints from row to row alone (§4.4). That costs every lookup of a key
//! that lies deeper a search of the newest row and a few probes of each older one.

use stratakv_base::fault_point;

use crate::table::{key_hash, line_allows, line_insert};

/// Of each key; as tables have by default.
const BITS_PER_KEY: usize = 10;

type Line = [u8; 64];

/// A Bloom filter in lines of the processor's cache. None: it allows everything.
#[derive(Clone, Debug, Default)]
pub(super) struct RowFilter {
    lines: Box<[Line]>,
}

impl RowFilter {
    /// Of the keys with these hashes ([`key_hash`]).
    pub(super) fn of(hashes: &[u64]) -> RowFilter {
        let count = (hashes.len() * BITS_PER_KEY).div_ceil(8 * size_of::<Line>());
        let mut lines = vec![[0; 64]; count].into_boxed_slice();
        for hash in hashes {
            fault_point!("trial_row_filter_forgets", continue);
            if let Some(line) = lines.get_mut(place(*hash, count)) {
                line_insert(line, *hash);
            }
        }
        RowFilter { lines }
    }

    /// Whether a key with this hash may be in the row.
    #[inline]
    pub(super) fn allows(&self, hash: u64) -> bool {
        self.lines.get(place(hash, self.lines.len())).is_none_or(|line| line_allows(line, hash))
    }

    pub(super) fn footprint_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }
}

fn place(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// Hashes of keys as records come in order; the versions of one key have one.
#[derive(Debug, Default)]
pub(super) struct KeyHashes(Vec<u64>);

impl KeyHashes {
    pub(super) fn note(&mut self, key: &[u8]) {
        self.0.push(key_hash(key));
    }

    pub(super) fn filter(self) -> RowFilter {
        RowFilter::of(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> u64 {
        key_hash(format!("user{number:012}").as_bytes())
    }

    #[test]
    fn no_key_is_refused_and_few_strangers_are_allowed() {
        let filter = RowFilter::of(&(0..20_000).map(hash).collect::<Vec<_>>());
        assert!((0..20_000).all(|key| filter.allows(hash(key))));
        let strangers = (20_000..120_000).filter(|key| filter.allows(hash(*key))).count();
        assert!(strangers < 1_800, "{strangers} of 100,000");
        assert_eq!(filter.footprint_bytes(), 25_024);
    }

    #[test]
    fn without_a_filter_every_key_is_allowed() {
        assert!((0..100).all(|key| RowFilter::default().allows(hash(key))));
    }
}
