//! Ranges of keys, as scans and range deletes are asked for them.

use std::ops::Bound;

use stratakv_base::{CollectionId, Key};

/// A bound on encoded keys.
pub fn encoded(bound: &Bound<Key>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key.encoded()),
        Bound::Excluded(key) => Bound::Excluded(key.encoded()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// An upper bound that leaves out the engine's own keys, which are the last.
pub fn before_engine_keys(to: Bound<Key>) -> Bound<Key> {
    let end = Key::bound(CollectionId::ENGINE, b"");
    match to {
        Bound::Included(key) | Bound::Excluded(key) if key >= end => Bound::Excluded(end),
        Bound::Unbounded => Bound::Excluded(end),
        within => within,
    }
}

/// Whether nothing can lie between the bounds.
pub fn is_empty_range(from: &Bound<Key>, to: &Bound<Key>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}
