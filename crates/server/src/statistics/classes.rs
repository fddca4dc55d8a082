//! `stats items` and `stats slabs`: one class, 1, that has every record. A figure that no engine
//! keeps is left out.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_engine::Statistic;
use stratakv_protocol::memcache::reply;

use crate::counters::Counters;
use crate::shared::Shared;

/// memcached's pages, of which its classes have whole ones.
const SLAB_PAGE_BYTES: u64 = 1 << 20;

/// What a store has for records, in pieces of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chunks {
    chunk_bytes: u64,
    total: u64,
    used: u64,
    pages: u64,
}

/// What the records of a store take, in memcached's terms: where it has memory these have the
/// medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) items: u64,
    /// What they take.
    pub(super) bytes: u64,
    /// What the store has taken.
    pub(super) taken_bytes: u64,
    /// What it may take.
    pub(super) limit_bytes: u64,
    /// Records that went because they had expired.
    pub(super) reclaimed: u64,
    /// Records that a cache has dropped.
    pub(super) evicted: u64,
    /// Segments of a cache.
    segments: u64,
    /// Pages of volumes, and those that hold nothing.
    pages: u64,
    pages_free: u64,
}

impl Space {
    pub(super) fn of(engine: &[Statistic]) -> Space {
        let known =
            |name| engine.iter().find(|statistic| statistic.name == name).map_or(0, |statistic| statistic.value);
        let usable_bytes = known("usable_bytes");
        let pages_free = known("pages_free") + known("pages_deferred");
        // Of a store in a region its length, and what of it is in use; of a cache what both tiers
        // have.
        let cached_bytes = known("dram_bytes") + known("ssd_bytes");
        let second_tier_bytes = engine.iter().find(|statistic| statistic.name == "ssd_capacity_bytes");
        let cache_limit_bytes = second_tier_bytes.map_or(0, |second| second.value + known("memory_limit_bytes"));
        let page_bytes = PAGE_BYTES as u64;
        Space {
            items: known("records") + known("items"),
            bytes: usable_bytes.saturating_sub(pages_free * page_bytes) + known("region_used_bytes") + cached_bytes,
            taken_bytes: usable_bytes + known("region_bytes") + cached_bytes,
            limit_bytes: usable_bytes + known("region_bytes") + cache_limit_bytes,
            reclaimed: known("expired_records") + known("expired"),
            evicted: known("evictions"),
            segments: known("dram_segments") + known("ssd_segments"),
            pages: usable_bytes / page_bytes,
            pages_free,
        }
    }
}

impl Space {
    /// Pages of volumes where there are some. Elsewhere a chunk is what a record takes on average.
    fn chunks(&self) -> Chunks {
        let (chunk_bytes, total, free) = match self.pages {
            0 => {
                let chunk_bytes = self.bytes / self.items.max(1);
                let total = self.limit_bytes.checked_div(chunk_bytes).unwrap_or_default().max(self.items);
                (chunk_bytes, total, total - self.items)
            }
            pages => (PAGE_BYTES as u64, pages, self.pages_free.min(pages)),
        };
        let pages = if self.segments > 0 { self.segments } else { self.taken_bytes.div_ceil(SLAB_PAGE_BYTES) };
        let pages = if self.items > 0 { pages.max(1) } else { 0 };
        Chunks { chunk_bytes, total, used: total - free, pages }
    }
}

fn counted(shared: &Shared, wanted: &str) -> u64 {
    Counters::sum(&shared.figures.counters).iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| *value)
}

/// As memcached, no class where there is no record.
pub(super) fn items(shared: &Shared, out: &mut Vec<u8>) {
    let space = Space::of(&shared.store.stats());
    if space.items == 0 {
        return;
    }
    let mut stat = |name: &str, value: u64| reply::stat(out, &format!("items:1:{name}"), value);
    stat("number", space.items);
    if space.bytes > 0 {
        stat("mem_requested", space.bytes);
    }
    // Not known: tools that show classes ask for them.
    stat("age", 0);
    stat("evicted_time", 0);
    stat("evicted", space.evicted);
    if space.evicted == 0 {
        // Of those that were dropped no more is known than how many they are.
        ["evicted_nonzero", "evicted_unfetched", "evicted_active"].iter().for_each(|name| stat(name, 0));
    }
    stat("outofmemory", counted(shared, "store_no_memory"));
    // There is nothing to repair, and no crawler.
    stat("tailrepairs", 0);
    stat("reclaimed", space.reclaimed);
    stat("crawler_reclaimed", 0);
    stat("crawler_items_checked", 0);
    stat("lrutail_reflocked", 0);
    stat("direct_reclaims", 0);
}

pub(super) fn slabs(shared: &Shared, out: &mut Vec<u8>) {
    let space = Space::of(&shared.store.stats());
    let mut stat = |name: &str, value: u64| reply::stat(out, &format!("1:{name}"), value);
    let Chunks { chunk_bytes, total, used, pages } = space.chunks();
    stat("chunk_size", chunk_bytes);
    stat("chunks_per_page", (SLAB_PAGE_BYTES / chunk_bytes.max(1)).max(1));
    stat("total_pages", pages);
    stat("total_chunks", total);
    stat("used_chunks", used);
    stat("free_chunks", total - used);
    stat("free_chunks_end", 0);
    if space.bytes > 0 {
        stat("mem_requested", space.bytes);
    }
    for name in ["get_hits", "cmd_set", "delete_hits", "incr_hits", "decr_hits", "cas_hits", "cas_badval", "touch_hits"]
    {
        stat(name, counted(shared, name));
    }
    reply::stat(out, "active_slabs", 1);
    if space.taken_bytes > 0 || space.items == 0 {
        reply::stat(out, "total_malloced", space.taken_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(figures: &[(&'static str, u64)]) -> Space {
        let figures: Vec<Statistic> = figures.iter().map(|(name, value)| Statistic { name, value: *value }).collect();
        Space::of(&figures)
    }

    /// `reclaimed` was looked for under a name that no engine has.
    #[test]
    fn what_expired_was_never_told() {
        assert_eq!(space(&[("expired_records", 7)]).reclaimed, 7);
        assert_eq!(space(&[("expired", 8)]).reclaimed, 8);
    }

    #[test]
    fn each_engine_has_its_space() {
        let slab = space(&[
            ("records", 3),
            ("memory_limit_bytes", 7),
            ("usable_bytes", 40960),
            ("pages_free", 4),
            ("pages_deferred", 1),
        ]);
        assert_eq!((slab.items, slab.bytes, slab.taken_bytes, slab.limit_bytes), (3, 20480, 40960, 40960));
        assert_eq!((slab.pages, slab.pages_free), (10, 5));
        let tier = space(&[
            ("items", 3),
            ("dram_bytes", 10),
            ("ssd_bytes", 20),
            ("ssd_capacity_bytes", 99),
            ("memory_limit_bytes", 50),
            ("dram_segments", 1),
            ("ssd_segments", 2),
        ]);
        assert_eq!((tier.items, tier.bytes, tier.taken_bytes, tier.limit_bytes), (3, 30, 30, 149));
        assert_eq!((tier.segments, tier.pages), (3, 0));
        assert_eq!(tier.chunks(), Chunks { chunk_bytes: 10, total: 14, used: 3, pages: 3 });
        assert_eq!(slab.chunks(), Chunks { chunk_bytes: 4096, total: 10, used: 5, pages: 1 });
        let hash = space(&[("records", 3), ("region_bytes", 100), ("region_used_bytes", 60)]);
        assert_eq!((hash.bytes, hash.taken_bytes, hash.limit_bytes), (60, 100, 100));
    }
}
