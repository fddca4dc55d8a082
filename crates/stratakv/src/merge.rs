//! Pages of several shards as one.
//!
//! As in KVell (section 5.5): the keys are taken from every shard's index first and merged, then
//! each record is read once, so a page of n items over s shards costs n reads, not n·s. The records
//! are asked for as one page of each shard, which sees all that it needs at once and reads
//! neighbours together. Of `matrix`, whose keys are read like its records, each shard is asked at
//! once for the records of its likely share, and again if that falls short.

use std::ops::Bound;

use stratakv_base::Key;
use stratakv_engine::{Item, PageRequest};

/// A page of one shard: its items, and where the next one starts.
pub(crate) type Page = (Vec<Item>, Option<Bound<Key>>);

/// Merges one page from each shard: the first `items_max` items in order, and where the scan goes
/// on.
///
/// An item may be given out only if no shard could still have an earlier one: beyond the end of a
/// page that was cut, nothing is known.
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

/// A page over shards that do not have their keys in memory: to look at keys first would read what
/// the records are read from. Each shard is asked for its part of the items and some more, since
/// keys are drawn to shards; one of which that was too little is asked again.
#[derive(Debug)]
pub(crate) struct Gather {
    request: PageRequest,
    parts: Vec<Gathered>,
    begun: bool,
}

/// What a shard gave.
#[derive(Debug, Default)]
struct Gathered {
    items: Vec<Item>,
    bytes: u64,
    /// Where it goes on; `None`: there is no more.
    next: Option<Bound<Key>>,
    /// Items of its last page at most.
    asked: u32,
    /// Its last page has as many bytes as it may.
    is_cut: bool,
}

impl Gather {
    pub(crate) fn new(request: PageRequest, shards: usize) -> Gather {
        let start = if request.reverse { &request.to } else { &request.from };
        let part = |_| Gathered { next: Some(start.clone()), ..Gathered::default() };
        Gather { parts: (0..shards).map(part).collect(), request, begun: false }
    }

    /// The pages to be asked for now, each with its shard; none: it is finished.
    pub(crate) fn wants(&mut self) -> Vec<(usize, PageRequest)> {
        let items_max = u64::from(self.request.items_max);
        let horizon = self.horizon();
        let beyond: Vec<u64> = self.parts.iter().map(|part| self.beyond(part, horizon.as_ref())).collect();
        let ready = self.parts.iter().map(|part| part.items.len() as u64).sum::<u64>() - beyond.iter().sum::<u64>();
        let is_cut = ready > 0 && self.parts.iter().any(|part| part.is_cut);
        if self.begun && (horizon.is_none() || ready >= items_max || is_cut) {
            return Vec::new();
        }
        let shards = self.parts.len() as u64;
        let (missing, bytes_max) = (items_max - ready, u64::from(self.request.bytes_max) / shards.max(1));
        let share = share_of(missing, shards);
        let mut wanted = Vec::new();
        for (shard, part) in self.parts.iter_mut().enumerate() {
            let Some(next) = part.next.clone().filter(|_| beyond.get(shard).is_some_and(|some| *some < share)) else {
                continue;
            };
            part.asked = (share - beyond.get(shard).copied().unwrap_or(0)) as u32;
            let mut request = PageRequest {
                items_max: part.asked,
                bytes_max: bytes_max.saturating_sub(part.bytes).max(1) as u32,
                ..self.request.clone()
            };
            *(if request.reverse { &mut request.to } else { &mut request.from }) = next;
            wanted.push((shard, request));
        }
        self.begun = true;
        wanted
    }

    /// Whether it is one of keys only.
    pub(crate) fn is_of_keys(&self) -> bool {
        self.request.keys_only
    }

    /// Takes a shard's page.
    pub(crate) fn take(&mut self, shard: usize, (items, next): Page) {
        let Some(part) = self.parts.get_mut(shard) else { return };
        part.is_cut = next.is_some() && (items.len() as u64) < u64::from(part.asked);
        part.bytes += items.iter().map(bytes_of).sum::<u64>();
        part.next = next;
        part.items.extend(items);
    }

    /// The page.
    pub(crate) fn finish(self) -> Page {
        let pages = self.parts.into_iter().map(|part| (part.items, part.next)).collect();
        merge_pages(pages, self.request.reverse, self.request.items_max as usize)
    }

    /// Up to where all shards have told what they have; `None`: to the end, or nothing was asked
    /// yet.
    fn horizon(&self) -> Option<Key> {
        let ends = self.parts.iter().filter_map(|part| key_of(part.next.as_ref()?)).filter(|_| self.begun);
        if self.request.reverse { ends.max().cloned() } else { ends.min().cloned() }
    }

    /// How many items of a shard lie beyond that.
    fn beyond(&self, part: &Gathered, horizon: Option<&Key>) -> u64 {
        let Some(horizon) = horizon else { return 0 };
        let is_inside = |item: &Item| if self.request.reverse { item.key >= *horizon } else { item.key <= *horizon };
        (part.items.len() - part.items.partition_point(is_inside)) as u64
    }
}

/// Of so many items the part that a shard is asked for: what is its due, and one and a half times
/// the deviation of that. So one page in eight of two shards lacks some.
fn share_of(items: u64, shards: u64) -> u64 {
    let due = items.div_ceil(shards.max(1));
    let more = (1.5 * (due as f64).sqrt() * (1.0 - 1.0 / shards.max(1) as f64).sqrt()).ceil();
    (due + more as u64).min(items)
}

fn bytes_of(item: &Item) -> u64 {
    item.key.encoded().len() as u64 + item.record.as_ref().map_or(0, |record| record.value_bytes)
}

/// What a shard is asked for: the records of some merged keys.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) shard: usize,
    /// Its keys, in the order of the scan.
    pub(crate) keys: Vec<Key>,
    pub(crate) request: PageRequest,
}

/// The shares of the shards in `keys`, which are in the scan's order; `bytes_max` of the request is
/// divided among them.
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
            // One more than there are: at the last one the page is at its end, and not full.
            items_max: keys.len() as u32 + 1,
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

    /// All of a gathered page, from shards that have these keys, and the pages that it took.
    fn gathered(shards: &[Vec<u8>], request: &PageRequest) -> (Page, usize) {
        let mut gather = Gather::new(request.clone(), shards.len());
        let mut asked = 0;
        loop {
            let wanted = gather.wants();
            if wanted.is_empty() {
                return (gather.finish(), asked);
            }
            asked += wanted.len();
            for (shard, request) in wanted {
                let bounds = (request.from.clone(), request.to.clone());
                let inside = |user: &&u8| std::ops::RangeBounds::contains(&bounds, &key(**user));
                let mut users: Vec<u8> = shards[shard].iter().filter(inside).copied().collect();
                if request.reverse {
                    users.reverse();
                }
                // A key counts as one byte here, and has six.
                let most = (request.items_max as usize).min((request.bytes_max as usize / 6).max(1));
                let more = users.len() > most;
                users.truncate(most);
                gather.take(shard, page(&users, more));
            }
        }
    }

    #[test]
    fn a_gathered_page_has_what_one_shard_would_give() {
        let mut random = stratakv_base::random::Random::new(1);
        for round in 0..2000 {
            let count = 1 + random.below(4) as usize;
            let mut shards = vec![Vec::new(); count];
            // In some rounds nearly all keys are one shard's.
            let skew = random.below(3);
            for user in 0..=random.below(200) as u8 {
                let shard = if skew == 0 && user % 16 > 0 { 0 } else { random.below(count as u64) as usize };
                shards[shard].push(user);
            }
            let (reverse, items_max) = (random.below(2) == 1, 1 + random.below(60) as u32);
            let bytes_max = if random.below(4) == 0 { 60 } else { 1 << 20 };
            let (from, to) = (Bound::Included(key(random.below(100) as u8)), Bound::Excluded(key(180)));
            let request = PageRequest { from, to, reverse, keys_only: true, items_max, bytes_max, at: None };
            let mut all: Vec<Key> = shards.iter().flatten().map(|user| key(*user)).collect();
            let bounds = (request.from.clone(), request.to.clone());
            all.retain(|key| std::ops::RangeBounds::contains(&bounds, key));
            all.sort();
            if reverse {
                all.reverse();
            }
            let (found, asked) = gathered(&shards, &request);
            let found = (keys(&found), found.1);
            let count = found.0.len();
            assert_eq!(found.0[..], all[..count], "round {round}");
            if bytes_max > 60 {
                assert_eq!(count, all.len().min(items_max as usize), "round {round}");
            }
            assert!(count > 0 || all.is_empty(), "round {round}");
            assert!(count == all.len() || found.1 == Some(Bound::Excluded(all[count - 1].clone())), "round {round}");
            assert!(skew == 0 || asked <= 4 * shards.len(), "round {round}: {asked} pages");
        }
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
