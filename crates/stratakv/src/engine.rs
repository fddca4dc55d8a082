//! The engines behind one name: an enum outside, one match per call of a tick.

use stratakv_base::{Corruption, Unreadable};
use stratakv_engine::{
    Capabilities, Effects, Error, Io, IoOutcome, Message, Operation, Shard, ShardId, Statistic, Token,
};
use stratakv_matrix::Matrix;
use stratakv_pmem::RegionPart;
use stratakv_slab::{Packed, RecoveryReport, Slab};
use stratakv_tier::{Start, Tier};

use crate::catalogue::internal_keys;
use crate::store::take_away;

/// How a store keeps its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// KVell's design, for disks: volumes of pages or a log, an ordered index in memory.
    #[default]
    Slab,
    /// KVDK's design, for persistent memory, which it needs not wait for: records in one mapped
    /// region, a hash table in memory. The keys of the default collection are in no order, those of
    /// every other are.
    Hash,
    /// MatrixKV's design, for disks beside persistent memory: an LSM tree whose log, memtables and
    /// first level lie in a region, and whose tables lie on volumes. A put costs no read, and so
    /// does not tell whether its key was there.
    Matrix,
    /// UKV's design, a cache: new and used records in memory, the others in volumes, the oldest
    /// evicted. It acknowledges from memory, never refuses a put for want of room, and is warm
    /// again after a restart; its keys are in no order, and it has no collections with names.
    Tier,
}

impl Engine {
    const ALL: [Engine; 4] = [Engine::Slab, Engine::Hash, Engine::Matrix, Engine::Tier];

    /// Its name in `store.toml` and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Slab => "slab",
            Engine::Hash => "hash",
            Engine::Matrix => "matrix",
            Engine::Tier => "tier",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Whether a store of it has a region.
    pub(crate) fn has_region(self) -> bool {
        matches!(self, Engine::Hash | Engine::Matrix)
    }
}

/// A shard of any engine that has shards; the others are called in place.
pub enum AnyShard {
    /// KVell's design.
    Slab(Box<Slab>),
    /// The same with a log in place of pages: engine `slab`, placement `packed`.
    Packed(Box<Packed>),
    /// MatrixKV's design.
    Matrix(Box<Matrix<RegionPart>>),
    /// UKV's design.
    Tier(Box<Tier>),
}

/// What opening a shard found.
#[derive(Default)]
pub(crate) struct FoundInShard<'a> {
    pub(crate) clean: bool,
    /// Records; of an LSM tree versions, some of which may be of deleted or overwritten ones.
    pub(crate) records: u64,
    pub(crate) torn: u64,
    pub(crate) superblock_repaired: bool,
    pub(crate) corrupt: &'a [Corruption],
    pub(crate) unreadable: &'a [Unreadable],
    /// Damaged records whose key cannot be read: any key may be one of theirs.
    pub(crate) lost_unknown: u64,
}

impl AnyShard {
    pub(crate) fn found(&self) -> FoundInShard<'_> {
        match self {
            AnyShard::Slab(slab) => found_in(slab.recovery(), slab.records_from(&internal_keys())),
            AnyShard::Packed(packed) => found_in(packed.recovery(), packed.records_from(&internal_keys())),
            AnyShard::Matrix(matrix) => {
                let report = matrix.recovery();
                let (clean, records, torn) = (report.clean, matrix.records(), report.torn);
                let (superblock_repaired, corrupt) = (report.superblock_repaired, &report.corrupt[..]);
                let unreadable = &report.unreadable[..];
                FoundInShard { clean, records, torn, superblock_repaired, corrupt, unreadable, lost_unknown: 0 }
            }
            AnyShard::Tier(tier) => {
                let report = tier.recovery();
                let clean = matches!(report.start, Start::Created | Start::Clean);
                let (records, torn) = (report.items, report.invalidated);
                let nothing = FoundInShard { corrupt: &[], unreadable: &[], ..FoundInShard::default() };
                FoundInShard { clean, records, torn, ..nothing }
            }
        }
    }
}

/// What opening a shard with its index in memory found; `internal` of its records are the store's
/// own.
fn found_in(report: &RecoveryReport, internal: u64) -> FoundInShard<'_> {
    FoundInShard {
        clean: report.clean,
        records: report.records - internal,
        torn: report.torn,
        superblock_repaired: report.superblock_repaired,
        corrupt: &report.corrupt,
        unreadable: &report.unreadable,
        lost_unknown: report.lost_unknown,
    }
}

macro_rules! each {
    ($self:expr, $shard:ident => $call:expr) => {
        match $self {
            AnyShard::Slab($shard) => $call,
            AnyShard::Packed($shard) => $call,
            AnyShard::Matrix($shard) => $call,
            AnyShard::Tier($shard) => $call,
        }
    };
}

impl Shard for AnyShard {
    fn capabilities(&self) -> Capabilities {
        each!(self, shard => shard.capabilities())
    }
    fn accept(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> Result<(), Operation> {
        each!(self, shard => shard.accept(token, operation, effects))
    }
    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        each!(self, shard => shard.complete(io, outcome, effects));
    }
    fn message(&mut self, from: ShardId, message: Message, effects: &mut Effects) {
        each!(self, shard => shard.message(from, message, effects));
    }
    fn gone(&mut self, peer: ShardId, effects: &mut Effects) {
        each!(self, shard => shard.gone(peer, effects));
    }
    fn tick_end(&mut self, effects: &mut Effects) {
        each!(self, shard => shard.tick_end(effects));
    }
    fn cancel(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        each!(self, shard => shard.cancel(has_left, effects));
    }
    fn close(&mut self, effects: &mut Effects) {
        each!(self, shard => shard.close(effects));
    }
    fn is_closed(&self) -> bool {
        each!(self, shard => shard.is_closed())
    }
    fn failure(&self) -> Option<Error> {
        each!(self, shard => shard.failure())
    }
    fn statistics(&self, out: &mut Vec<Statistic>) {
        each!(self, shard => shard.statistics(out));
        match self {
            AnyShard::Slab(slab) => take_away(out, slab.records_from(&internal_keys())),
            AnyShard::Packed(packed) => take_away(out, packed.records_from(&internal_keys())),
            AnyShard::Matrix(_) | AnyShard::Tier(_) => {}
        }
    }
}
