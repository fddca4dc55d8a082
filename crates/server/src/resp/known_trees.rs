//! Which keys hold long structures, as far as is remembered: commands on them begin with the tree,
//! and need not find out first. A wrong answer costs a look.

use std::sync::atomic::{AtomicU64, Ordering};

/// Places for hashes of keys.
const PLACES: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct KnownTrees(Box<[AtomicU64]>);

impl Default for KnownTrees {
    fn default() -> KnownTrees {
        KnownTrees((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl KnownTrees {
    /// The key with this hash holds one.
    pub(crate) fn note(&self, key: u64) {
        self.place(key).store(key, Ordering::Relaxed);
    }

    /// It holds none.
    pub(crate) fn forget(&self, key: u64) {
        // Another key's may be there by now: then it is looked for once more.
        self.place(key).store(0, Ordering::Relaxed);
    }

    /// Whether it holds one, most likely.
    pub(crate) fn has(&self, key: u64) -> bool {
        key != 0 && self.place(key).load(Ordering::Relaxed) == key
    }

    fn place(&self, key: u64) -> &AtomicU64 {
        &self.0[key as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_last_at_a_place_is_known_until_it_is_forgotten() {
        let trees = KnownTrees::default();
        assert!(!trees.has(0) && !trees.has(7));
        trees.note(7);
        assert!(trees.has(7) && !trees.has(7 + PLACES as u64));
        trees.note(7 + PLACES as u64);
        assert!(!trees.has(7) && trees.has(7 + PLACES as u64));
        trees.forget(7 + PLACES as u64);
        assert!(!trees.has(7 + PLACES as u64));
    }
}
