//! Requests of a shard in flight, and what is counted of them.

use stratakv_engine::{Effects, Io, IoOutcome, IoTable};

/// What a request in flight is for.
#[derive(Debug)]
pub(crate) enum IoPurpose<P> {
    /// A slice of a blob that is read.
    BlobSlice { read: u64, slice: usize },
    /// Slices of a blob's value, ahead of its group.
    BlobBody { blob: u64 },
    /// A write of a commit group.
    Group { number: u64 },
    /// A flush that covers the groups up to this one.
    Flush { covers: u64 },
    /// A step of growth.
    Grow,
    /// Free pages go back to the file system.
    Discard,
    /// A step of closing.
    Close,
    /// Of the placement.
    Placement(P),
}

/// Counters, see [`Shard::statistics`](stratakv_engine::Shard::statistics).
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cache_hits: u64,
    pub(crate) cache_misses: u64,
    pub(crate) groups: u64,
    pub(crate) flushes: u64,
    pub(crate) page_reads: u64,
    pub(crate) page_writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) full_refusals: u64,
    pub(crate) expired_records: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Requests<P> {
    table: IoTable<IoPurpose<P>>,
    /// A flush is in flight, of a group, growth or a checkpoint.
    is_flushing: bool,
    pub(crate) counters: Counters,
}

impl<P> Requests<P> {
    pub(crate) fn new() -> Requests<P> {
        Requests { table: IoTable::new(), is_flushing: false, counters: Counters::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// A request begins.
    pub(crate) fn start(&mut self, purpose: IoPurpose<P>) -> Io {
        self.table.start(purpose)
    }

    /// A request has ended: what it was for.
    pub(crate) fn finish(&mut self, io: Io, outcome: &IoOutcome) -> Option<IoPurpose<P>> {
        let purpose = self.table.finish(io)?;
        self.is_flushing &= !matches!(outcome, IoOutcome::Flush(_));
        Some(purpose)
    }

    /// Submits a flush, unless one is in flight: who is refused asks again in the next tick.
    ///
    /// Two at once would hide a failure. What a flush that failed has lost is not known before it
    /// is heard of, and one that overlapped it may succeed, be heard of first and be believed.
    pub(crate) fn submit_flush(&mut self, purpose: IoPurpose<P>, effects: &mut Effects) -> bool {
        if self.is_flushing {
            return false;
        }
        self.is_flushing = true;
        self.counters.flushes += 1;
        effects.flush(self.start(purpose));
        true
    }
}
