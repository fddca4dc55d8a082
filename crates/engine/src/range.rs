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

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list of keys, of which one lies between any two ends.
    #[test]
    fn a_range_is_empty_if_no_key_could_lie_in_it() {
        let key = |text: &str| Key::bound(CollectionId(3), text.as_bytes());
        let ends = ["", "b", "d"];
        // One key lies between any two of the ends, and one outside of them on each side.
        let outside = [CollectionId(2), CollectionId(4)].map(|collection| Key::bound(collection, b"x"));
        let all = ["", "a", "b", "c", "d", "e"].map(key).into_iter().chain(outside).collect::<Vec<_>>();
        let bounds = |text: &str| [Bound::Included(key(text)), Bound::Excluded(key(text)), Bound::Unbounded];
        for (from, to) in ends.iter().flat_map(|from| ends.iter().map(move |to| (from, to))) {
            for (from, to) in bounds(from).iter().flat_map(|from| bounds(to).map(|to| (from.clone(), to))) {
                let is_after = |key: &Key| match &from {
                    Bound::Included(from) => key >= from,
                    Bound::Excluded(from) => key > from,
                    Bound::Unbounded => true,
                };
                let is_before = |key: &Key| match &to {
                    Bound::Included(to) => key <= to,
                    Bound::Excluded(to) => key < to,
                    Bound::Unbounded => true,
                };
                let has_none = !all.iter().any(|key| is_after(key) && is_before(key));
                assert_eq!(is_empty_range(&from, &to), has_none, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn no_range_reaches_the_keys_of_the_engine() {
        let end = Key::bound(CollectionId::ENGINE, b"");
        let (inside, last) = (Key::bound(CollectionId::ENGINE, b"x"), Key::bound(CollectionId(3), b"x"));
        for to in
            [Bound::Unbounded, Bound::Included(inside.clone()), Bound::Excluded(inside), Bound::Included(end.clone())]
        {
            assert_eq!(before_engine_keys(to), Bound::Excluded(end.clone()));
        }
        for to in [Bound::Included(last.clone()), Bound::Excluded(last)] {
            assert_eq!(before_engine_keys(to.clone()), to);
        }
    }
}
