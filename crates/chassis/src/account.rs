//! What a shard does with its memory: parts that add up to its cap.

use stratakv_engine::Statistic;

/// Bytes of a shard's memory by what they are for. The parts and what is unused add up to the cap,
/// unless the parts alone exceed it.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryAccount {
    /// The cap.
    pub limit: u64,
    /// The index of keys, that of memtables too.
    pub index: u64,
    /// Other tables that grow with the store: of pages, of segments, of the tree's levels.
    pub tables: u64,
    /// Blocks, whether they hold cached records, requests under way or nothing yet.
    pub blocks: u64,
    /// What cleaning, sorting, the cache's own tables and operations under way have beside blocks.
    pub work: u64,
    /// Kept back for the allocator and for answers under way.
    pub reserve: u64,
}

impl MemoryAccount {
    /// Bytes that are for nothing yet.
    #[must_use]
    pub fn unused(&self) -> u64 {
        self.limit.saturating_sub(self.parts().iter().map(|(_, bytes)| bytes).sum())
    }

    fn parts(&self) -> [(&'static str, u64); 5] {
        [
            ("memory_index_bytes", self.index),
            ("memory_tables_bytes", self.tables),
            ("memory_blocks_bytes", self.blocks),
            ("memory_work_bytes", self.work),
            ("memory_reserve_bytes", self.reserve),
        ]
    }

    /// Appends a gauge for each part, for what is unused, and for the cap.
    pub fn append(&self, out: &mut Vec<Statistic>) {
        let all = [("memory_unused_bytes", self.unused()), ("memory_limit_bytes", self.limit)];
        out.extend(self.parts().into_iter().chain(all).map(|(name, value)| Statistic { name, value }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_the_cap() {
        let account = MemoryAccount { limit: 100, index: 11, tables: 5, blocks: 60, work: 4, reserve: 8 };
        let mut out = Vec::new();
        account.append(&mut out);
        let (limit, parts): (Vec<Statistic>, Vec<Statistic>) =
            out.into_iter().partition(|one| one.name == "memory_limit_bytes");
        assert_eq!(parts.iter().map(|part| part.value).sum::<u64>(), limit[0].value);
        assert_eq!((account.unused(), parts.len()), (12, 6));
        assert_eq!(MemoryAccount { blocks: 200, ..account }.unused(), 0);
    }
}
