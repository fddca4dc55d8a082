//! Where the time of operations goes: the stages of one in sixteen, measured from tick to tick.
//!
//! The runtime picks operations and begins their first stage. The engine says with
//! [`Effects::enter`](crate::Effects::enter) what one waits for from now on, and ends it with its
//! reply. A stage that begins and ends in the same tick takes no time and is not counted: no clock
//! is asked for it.

use std::sync::Arc;

use stratakv_base::Mono;
use stratakv_base::histogram::{Distribution, Histogram, Tally};

use crate::operation::Operation;
use crate::shard::Token;

/// One operation in so many is measured.
const ONE_IN: u32 = 16;
/// Most that are measured at once, a power of two.
const SLOTS: usize = 64;

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its place in a queue of the engine, or what no other stage names.
    Queue,
    /// Memory, or space on the volume.
    Room,
    /// Earlier writes of its key.
    Key,
    /// A read of the volume.
    Read,
    /// A group of writes that it is to be part of.
    Group,
    /// The write of its group.
    Write,
    /// A flush, after that write.
    Flush,
    /// Earlier groups: answers come in order.
    Order,
    /// The commit of its batch: locks, prepare records, and other shards.
    Batch,
}

impl Stage {
    /// All, in the order of a write.
    pub const ALL: [Stage; 9] = [
        Stage::Queue,
        Stage::Room,
        Stage::Key,
        Stage::Read,
        Stage::Group,
        Stage::Write,
        Stage::Flush,
        Stage::Order,
        Stage::Batch,
    ];

    /// As it stands in figures.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Queue => "queue",
            Stage::Room => "room",
            Stage::Key => "key",
            Stage::Read => "read",
            Stage::Group => "group",
            Stage::Write => "write",
            Stage::Flush => "flush",
            Stage::Order => "order",
            Stage::Batch => "batch",
        }
    }
}

/// Operations that are measured, by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredKind {
    /// A get.
    Get,
    /// A write, a batch or an update.
    Write,
    /// A page of a scan.
    Page,
}

impl MeasuredKind {
    /// All.
    pub const ALL: [MeasuredKind; 3] = [MeasuredKind::Get, MeasuredKind::Write, MeasuredKind::Page];

    /// As it stands in figures.
    pub fn name(self) -> &'static str {
        match self {
            MeasuredKind::Get => "get",
            MeasuredKind::Write => "write",
            MeasuredKind::Page => "page",
        }
    }

    fn of(operation: &Operation) -> Option<MeasuredKind> {
        match operation {
            Operation::Get { .. } => Some(MeasuredKind::Get),
            Operation::Write { .. } | Operation::Update { .. } => Some(MeasuredKind::Write),
            Operation::Page(_) => Some(MeasuredKind::Page),
            _ => None,
        }
    }
}

/// Figures of a shard since it was opened: written under its lock, read by anybody.
#[derive(Debug, Default)]
pub struct StageTimes {
    stages: [[Histogram; Stage::ALL.len()]; MeasuredKind::ALL.len()],
    answered: [Tally; MeasuredKind::ALL.len()],
}

/// The same of all shards, by kind.
#[derive(Clone, Debug, Default)]
pub struct StageReport {
    /// Times in each stage, in the order of [`Stage::ALL`], of those operations that were in it.
    pub stages: [Distribution; Stage::ALL.len()],
    /// Operations that were measured to their end: one in sixteen of all.
    pub answered: u64,
}

impl StageReport {
    /// What shards have measured of a kind.
    pub fn of<'a>(kind: MeasuredKind, shards: impl Iterator<Item = &'a StageTimes>) -> StageReport {
        let mut report = StageReport::default();
        for times in shards {
            let stages = times.stages.get(kind as usize).into_iter().flatten();
            report.stages.iter_mut().zip(stages).for_each(|(sum, one)| sum.add(one));
            report.answered += times.answered.get(kind as usize).map_or(0, Tally::get);
        }
        report
    }

    /// What came after `before`, which was the same once.
    pub fn since(&self, before: &StageReport) -> StageReport {
        let mut since = StageReport { answered: self.answered - before.answered, ..StageReport::default() };
        for (to, (now, before)) in since.stages.iter_mut().zip(self.stages.iter().zip(&before.stages)) {
            *to = now.since(before);
        }
        since
    }

    /// Time in each stage that an operation took on average, in ns, in the order of [`Stage::ALL`].
    pub fn mean_ns(&self) -> [f64; Stage::ALL.len()] {
        let answered = self.answered.max(1) as f64;
        self.stages.each_ref().map(|stage| stage.sum_ns as f64 / answered)
    }
}

/// An operation that is measured.
#[derive(Clone, Copy, Debug)]
struct Measured {
    token: Token,
    kind: MeasuredKind,
    stage: Stage,
    since: Mono,
}

/// The bit of a token's slot.
#[inline]
fn bit(token: Token) -> u64 {
    1 << (token.slot as usize % SLOTS)
}

/// The operations of a shard that are being measured.
#[derive(Debug)]
pub(crate) struct StageSampler {
    /// By the slot of their token.
    measured: [Option<Measured>; SLOTS],
    /// Which of these are taken, a bit each: what is asked for each operation.
    taken: u64,
    /// Operations until the next one that is measured.
    skip: u32,
    times: Arc<StageTimes>,
}

impl Default for StageSampler {
    fn default() -> StageSampler {
        StageSampler { measured: [None; SLOTS], taken: 0, skip: 0, times: Arc::default() }
    }
}

impl StageSampler {
    pub(crate) fn times(&self) -> &Arc<StageTimes> {
        &self.times
    }

    /// An operation begins: it may be one of those that are measured.
    #[inline]
    pub(crate) fn begin(&mut self, token: Token, operation: &Operation, now: Mono) {
        match self.skip.checked_sub(1) {
            Some(skip) => self.skip = skip,
            None => self.measure(token, operation, now),
        }
    }

    #[cold]
    fn measure(&mut self, token: Token, operation: &Operation, now: Mono) {
        let Some(kind) = MeasuredKind::of(operation) else { return };
        if let Some(slot @ None) = self.measured.get_mut(token.slot as usize % SLOTS) {
            *slot = Some(Measured { token, kind, stage: Stage::Queue, since: now });
            self.taken |= bit(token);
            self.skip = ONE_IN - 1;
        }
    }

    #[inline]
    pub(crate) fn is_measuring(&self) -> bool {
        self.taken != 0
    }

    fn slot(&mut self, token: Token) -> Option<&mut Option<Measured>> {
        let slot = self.measured.get_mut(token.slot as usize % SLOTS)?;
        slot.is_some_and(|measured| measured.token == token).then_some(slot)
    }

    /// It is out of its slot.
    fn take(&mut self, token: Token) -> Option<Measured> {
        let was = self.slot(token)?.take();
        self.taken &= !bit(token);
        was
    }

    /// It waits for this from now on.
    #[inline]
    pub(crate) fn enter(&mut self, token: Token, stage: Stage, now: Mono) {
        if self.taken & bit(token) != 0 {
            self.enter_measured(token, stage, now);
        }
    }

    #[cold]
    fn enter_measured(&mut self, token: Token, stage: Stage, now: Mono) {
        let Some(Some(measured)) = self.slot(token) else { return };
        let was = std::mem::replace(measured, Measured { stage, since: now, ..*measured });
        if was.stage == stage {
            measured.since = was.since;
        } else {
            self.note(was, now);
        }
    }

    /// It is answered.
    #[inline]
    pub(crate) fn answered(&mut self, token: Token, now: Mono) {
        if self.taken & bit(token) != 0 {
            self.answered_measured(token, now);
        }
    }

    #[cold]
    fn answered_measured(&mut self, token: Token, now: Mono) {
        if let Some(was) = self.take(token) {
            self.note(was, now);
            if let Some(answered) = self.times.answered.get(was.kind as usize) {
                answered.add(1);
            }
        }
    }

    /// It was not taken after all.
    pub(crate) fn forget(&mut self, token: Token) {
        self.take(token);
    }

    fn note(&self, was: Measured, now: Mono) {
        let ns = now.0.saturating_sub(was.since.0);
        let histogram = self.times.stages.get(was.kind as usize).and_then(|stages| stages.get(was.stage as usize));
        if let Some(histogram) = histogram.filter(|_| ns > 0) {
            histogram.record(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::{CollectionId, Key};

    use super::*;
    use crate::operation::RecordPart;

    fn get() -> Operation {
        Operation::Get { key: Key::new(CollectionId(0), b"k").expect("a key"), part: RecordPart::Whole }
    }

    fn token(slot: u32) -> Token {
        Token { slot, generation: 1 }
    }

    #[test]
    fn one_in_sixteen_is_measured_from_stage_to_stage() {
        let mut sampler = StageSampler::default();
        for slot in 0..32 {
            sampler.begin(token(slot), &get(), Mono(100));
        }
        for slot in 0..32 {
            sampler.enter(token(slot), Stage::Read, Mono(150));
            sampler.enter(token(slot), Stage::Read, Mono(170));
            sampler.answered(token(slot), Mono(1150));
            sampler.answered(token(slot), Mono(9999));
        }
        let report = StageReport::of(MeasuredKind::Get, std::iter::once(&**sampler.times()));
        assert_eq!(report.answered, 2, "the first and the seventeenth");
        let [queue, _, _, read, ..] = report.mean_ns();
        assert_eq!((queue, read), (50.0, 1000.0), "the same stage again goes on");
        assert_eq!(StageReport::of(MeasuredKind::Write, std::iter::once(&**sampler.times())).answered, 0);
        assert_eq!(report.since(&report).answered, 0);
    }

    #[test]
    fn a_slot_of_another_operation_is_not_touched() {
        let mut sampler = StageSampler::default();
        sampler.begin(token(1), &get(), Mono(0));
        let later = Token { slot: 1, generation: 2 };
        sampler.enter(later, Stage::Read, Mono(10));
        sampler.answered(later, Mono(20));
        sampler.forget(later);
        sampler.answered(token(1), Mono(30));
        let report = StageReport::of(MeasuredKind::Get, std::iter::once(&**sampler.times()));
        assert_eq!((report.answered, report.mean_ns()[0]), (1, 30.0));
    }

    #[test]
    fn what_was_not_taken_counts_for_nothing() {
        let mut sampler = StageSampler::default();
        sampler.begin(token(1), &get(), Mono(0));
        sampler.forget(token(1));
        sampler.answered(token(1), Mono(30));
        assert_eq!(StageReport::of(MeasuredKind::Get, std::iter::once(&**sampler.times())).answered, 0);
    }
}
