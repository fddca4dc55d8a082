//! What requests to volumes take, as whoever asked for them saw it: from the tick that asked to the
//! one that heard.

use std::sync::{Arc, Mutex};

use stratakv_base::Mono;
use stratakv_base::histogram::{Distribution, Histogram};
use stratakv_base::slots::Slots;
use stratakv_device::DiskRequest;
use stratakv_engine::Io;

use crate::slot::lock;

/// What a request does. Others than these are few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    Flush,
    Other,
}

impl RequestKind {
    pub(crate) fn of(request: &DiskRequest) -> RequestKind {
        match request {
            DiskRequest::Read { .. } => RequestKind::Read,
            DiskRequest::Write { .. } => RequestKind::Write,
            DiskRequest::Flush => RequestKind::Flush,
            DiskRequest::Allocate { .. } | DiskRequest::Discard { .. } => RequestKind::Other,
        }
    }
}

/// Latencies of requests to the volumes of a store since it was opened, by what they do. Those of
/// openings are not in it.
#[derive(Clone, Debug, Default)]
pub struct RequestLatencies {
    /// Reads.
    pub reads: Distribution,
    /// Writes.
    pub writes: Distribution,
    /// Flushes of a device's cache.
    pub flushes: Distribution,
}

impl RequestLatencies {
    fn add(&mut self, [reads, writes, flushes, _]: &[Histogram; 4]) {
        self.reads.add(reads);
        self.writes.add(writes);
        self.flushes.add(flushes);
    }

    /// What came after `before`, which was the same once.
    pub fn since(&self, before: &RequestLatencies) -> RequestLatencies {
        RequestLatencies {
            reads: self.reads.since(&before.reads),
            writes: self.writes.since(&before.writes),
            flushes: self.flushes.since(&before.flushes),
        }
    }
}

/// What one thread at a time measures: by kind.
type Measures = [Histogram; 4];

/// All measures of a store's requests.
#[derive(Default)]
pub(crate) struct RequestMeasures {
    /// Of threads with a ring that are there.
    rings: Mutex<Vec<Arc<Measures>>>,
    /// Of those that are gone.
    ended: Mutex<RequestLatencies>,
    /// Of requests that callers carried out in place.
    in_place: Mutex<Measures>,
}

impl RequestMeasures {
    /// So far.
    pub(crate) fn latencies(&self) -> RequestLatencies {
        // In this order one that ends meanwhile is counted, not missed.
        let rings = lock(&self.rings);
        let mut all = lock(&self.ended).clone();
        rings.iter().for_each(|measures| all.add(measures));
        all.add(&lock(&self.in_place));
        all
    }

    /// A caller carried one out.
    pub(crate) fn done_in_place(&self, kind: RequestKind, latency_ns: u64) {
        lock(&self.in_place)[kind as usize].record(latency_ns);
    }
}

/// The requests of one ring to volumes: its tags are which shard's which.
pub(crate) struct RingRequests {
    in_flight: Slots<RingRequest, u64>,
    measures: Arc<Measures>,
}

struct RingRequest {
    shard: u32,
    io: Io,
    kind: RequestKind,
    begun: Mono,
}

impl RingRequests {
    pub(crate) fn new(all: &RequestMeasures) -> RingRequests {
        let measures = Arc::new(Measures::default());
        lock(&all.rings).push(Arc::clone(&measures));
        RingRequests { in_flight: Slots::default(), measures }
    }

    /// One begins: its tag.
    pub(crate) fn begin(&mut self, shard: u32, io: Io, request: &DiskRequest, begun: Mono) -> u64 {
        self.in_flight.insert(RingRequest { shard, io, kind: RequestKind::of(request), begun })
    }

    /// It is done: whose it was.
    pub(crate) fn end(&mut self, tag: u64, now: Mono) -> Option<(u32, Io)> {
        let RingRequest { shard, io, kind, begun } = self.in_flight.remove(tag)?;
        self.measures[kind as usize].record(now.0.saturating_sub(begun.0));
        Some((shard, io))
    }

    /// None of them will be done: the shards they were of.
    pub(crate) fn lose(&mut self) -> impl Iterator<Item = usize> {
        self.in_flight.take_all().into_iter().map(|request| request.shard as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// The ring is gone; what was measured stays.
    pub(crate) fn leave(&self, all: &RequestMeasures) {
        let mut rings = lock(&all.rings);
        rings.retain(|measures| !Arc::ptr_eq(measures, &self.measures));
        lock(&all.ended).add(&self.measures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: DiskRequest = DiskRequest::Flush;
    const IO: Io = Io { slot: 7, generation: 1 };

    #[test]
    fn what_rings_measured_counts_before_and_after_their_end() {
        let all = RequestMeasures::default();
        let mut ring = RingRequests::new(&all);
        let tag = ring.begin(3, IO, &FLUSH, Mono(1000));
        assert_eq!((ring.end(tag, Mono(5000)), ring.end(tag, Mono(6000))), (Some((3, IO)), None));
        let before = all.latencies();
        assert_eq!((before.flushes.count(), before.flushes.sum_ns, before.reads.count()), (1, 4000, 0));
        ring.leave(&all);
        assert_eq!(all.latencies().flushes.count(), 1, "neither lost nor twice");
        all.done_in_place(RequestKind::Read, 2000);
        let since = all.latencies().since(&before);
        assert_eq!((since.flushes.count(), since.reads.count(), since.reads.sum_ns), (0, 1, 2000));
        assert!((since.reads.mean_in_flight(4000) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_a_failed_ring_had_is_lost_and_not_measured() {
        let all = RequestMeasures::default();
        let mut ring = RingRequests::new(&all);
        ring.begin(2, IO, &FLUSH, Mono(0));
        assert_eq!(ring.lose().collect::<Vec<_>>(), [2]);
        assert!(ring.is_empty() && all.latencies().flushes.count() == 0);
    }
}
