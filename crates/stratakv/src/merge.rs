//! Pages of several shards as one.
//!
//! As in KVell (section 5.5): the keys are taken from every shard's index first and merged, then each record is read once, so a
//! page of n items over s shards costs n reads, not n·s. The records are asked for as one page of each shard, which sees all that
//! it needs at once and reads neighbours together.

use std::ops::Bound;

use stratakv_base::Key;
use stratakv_engine::{Item, PageRequest};

/// A page of one shard: its items, and where the next one starts.
pub(crate) type Page = (Vec<Item>, Option<Bound<Key>>);

/// Merges one page from each shard: the first `items_max` items in order, and where the scan goes on.
///
/// An item may be given out only if no shard could still have an earlier one: beyond the end of a page that was cut, nothing is known.
pub(crate) fn merge_pages(pages: Vec<Page>, reverse: bool, items_max: usize) -> Page {
    let before = |a: &Key, b: &Key| if reverse { a > b } else { a < b };
    let mut horizon: Option<Bound<Key>> = None;
    let mut items: Vec<Item> = Vec::new();
    for (page, next) in pages {
        if let Some(next) = next
            && horizon.as_ref().and_then(key_of).is_none_or(|key| key_of(&next).is_some_and(|next| before(next, key)))
        {
            horizon = Some(next);
        }
        items.extend(page);
    }
    if let Some(horizon) = horizon.as_ref().and_then(key_of) {
        items.retain(|item| !before(horizon, &item.key));
    }
    // Stable: it finds the runs that the pages are.
    items.sort_by(|a, b| if reverse { b.key.cmp(&a.key) } else { a.key.cmp(&b.key) });
    if items.len() > items_max {
        items.truncate(items_max);
        horizon = items.last().map(|last| Bound::Excluded(last.key.clone()));
    }
    (items, horizon)
}

fn key_of(bound: &Bound<Key>) -> Option<&Key> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// What a shard is asked for: the records of some merged keys.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) shard: usize,
    /// Its keys, in the order of the scan.
    pub(crate) keys: Vec<Key>,
    pub(crate) request: PageRequest,
}

/// The shares of the shards in `keys`, which are in the scan's order; `bytes_max` of the request is divided among them.
pub(crate) fn shares(
    keys: impl IntoIterator<Item = Key>,
    request: &PageRequest,
    shards: usize,
    shard_of: impl Fn(&Key) -> usize,
) -> Vec<Share> {
    let mut of_shard: Vec<Vec<Key>> = vec![Vec::new(); shards];
    let mut all = 0;
    for key in keys {
        if let Some(keys) = of_shard.get_mut(shard_of(&key)) {
            keys.push(key);
            all += 1;
        }
    }
    let share = |(shard, keys): (usize, Vec<Key>)| {
        let (first, last) = (keys.first()?.clone(), keys.last()?.clone());
        let (from, to) = if request.reverse { (last, first) } else { (first, last) };
        let bytes_max = u64::from(request.bytes_max) * keys.len() as u64 / all;
        let request = PageRequest {
            from: Bound::Included(from),
            to: Bound::Included(to),
            reverse: request.reverse,
            keys_only: false,
            items_max: keys.len() as u32,
            bytes_max: bytes_max as u32,
            at: request.at,
        };
        Some(Share { shard, keys, request })
    };
    of_shard.into_iter().enumerate().filter_map(share).collect()
}

#[cfg(test)]
mod tests {
    use stratakv_base::CollectionId;

    use super::*;

    fn key(user: u8) -> Key {
        Key::bound(CollectionId(0), &[user])
    }
    fn page(keys: &[u8], more: bool) -> Page {
        let items = keys.iter().map(|k| Item { key: key(*k), record: None }).collect();
        (items, more.then(|| Bound::Excluded(key(*keys.last().unwrap()))))
    }
    fn keys(page: &Page) -> Vec<Key> {
        page.0.iter().map(|item| item.key.clone()).collect()
    }

    #[test]
    fn nothing_is_given_out_beyond_a_page_that_did_not_end() {
        // The second shard may still have 4..8, so 9 must wait although it was asked for.
        let merged = merge_pages(vec![page(&[1, 9], false), page(&[2, 3], true)], false, 10);
        assert_eq!(keys(&merged), [key(1), key(2), key(3)]);
        assert_eq!(merged.1, Some(Bound::Excluded(key(3))));
        let merged = merge_pages(vec![page(&[9, 1], false), page(&[8, 7], true)], true, 10);
        assert_eq!(keys(&merged), [key(9), key(8), key(7)]);
        assert_eq!(merged.1, Some(Bound::Excluded(key(7))));
    }

    #[test]
    fn a_cut_page_goes_on_and_a_whole_one_ends() {
        let merged = merge_pages(vec![page(&[1, 3], false), page(&[2], false)], false, 2);
        assert_eq!((keys(&merged), merged.1), (vec![key(1), key(2)], Some(Bound::Excluded(key(2)))));
        let merged = merge_pages(vec![page(&[1, 3], false), page(&[2], false)], false, 3);
        assert_eq!((merged.0.len(), merged.1), (3, None));
    }

    #[test]
    fn a_page_whose_items_are_all_gone_still_bounds_the_others() {
        let gone = (Vec::new(), Some(Bound::Excluded(key(2))));
        let merged = merge_pages(vec![page(&[1, 3], false), gone], false, 10);
        assert_eq!((keys(&merged), merged.1), (vec![key(1)], Some(Bound::Excluded(key(2)))));
    }

    #[test]
    fn shares_cover_the_keys_and_divide_the_bytes() {
        for reverse in [false, true] {
            let mut all: Vec<u8> = (0..8).collect();
            if reverse {
                all.reverse();
            }
            let request = PageRequest {
                from: Bound::Unbounded,
                to: Bound::Unbounded,
                reverse,
                keys_only: true,
                items_max: 8,
                bytes_max: 800,
                at: None,
            };
            // Even keys are the first shard's, but 6, and the rest the second's.
            let shard_of = |key: &Key| usize::from(key.user()[0] % 2 == 1 || key.user()[0] == 6);
            let shares = shares(all.iter().map(|user| key(*user)), &request, 3, shard_of);
            let told: Vec<_> =
                shares.iter().map(|share| (share.shard, share.keys.len(), share.request.bytes_max)).collect();
            assert_eq!(told, [(0, 3, 300), (1, 5, 500)]);
            assert_eq!(shares[0].request.from, Bound::Included(key(0)));
            assert_eq!(shares[0].request.to, Bound::Included(key(4)));
        }
    }
}
