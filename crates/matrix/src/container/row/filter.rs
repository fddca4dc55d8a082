//! A row's filter, in DRAM: most rows do not have the key of a lookup, and need not be searched.
//!
//! MatrixKV searches L0 by hints from row to row alone (§4.4). That costs every lookup of a key
//! that lies deeper a search of the newest row and a few probes of each older one.

use stratakv_base::fault_point;

use crate::table::{line_allows, line_insert};

/// As many as tables have by default.
const BITS_PER_KEY: usize = 10;

type Line = [u8; 64];

/// A Bloom filter in lines of the processor's cache. Without any line it allows everything.
#[derive(Clone, Debug, Default)]
pub(super) struct RowFilter {
    lines: Box<[Line]>,
}

impl RowFilter {
    /// For so many keys, of which none is in it.
    pub(super) fn new(keys: usize) -> RowFilter {
        let count = (keys * BITS_PER_KEY).div_ceil(8 * size_of::<Line>());
        RowFilter { lines: vec![[0; 64]; count].into_boxed_slice() }
    }

    /// Takes a key with this hash ([`crate::table::key_hash`]).
    pub(super) fn insert(&mut self, hash: u64) {
        fault_point!("trial_row_filter_forgets", return);
        let place = place(hash, self.lines.len());
        if let Some(line) = self.lines.get_mut(place) {
            line_insert(line, hash);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::key_hash;

    fn hash(number: u32) -> u64 {
        key_hash(format!("user{number:012}").as_bytes())
    }

    #[test]
    fn no_key_is_refused_and_few_strangers_are_allowed() {
        let mut filter = RowFilter::new(20_000);
        (0..20_000).for_each(|key| filter.insert(hash(key)));
        assert!((0..20_000).all(|key| filter.allows(hash(key))));
        let strangers = (20_000..120_000).filter(|key| filter.allows(hash(*key))).count();
        assert!(strangers < 1_800, "{strangers} of 100,000");
        assert_eq!(filter.footprint_bytes(), 25_024);
    }

    #[test]
    fn without_lines_every_key_is_allowed() {
        let mut none = RowFilter::default();
        none.insert(hash(1));
        assert!((0..100).all(|key| none.allows(hash(key))));
    }
}
