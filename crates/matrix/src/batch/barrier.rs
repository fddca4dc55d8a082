//! Barriers through all shards, for snapshots and backups: every shard stops appending, then every
//! shard opens its snapshot, then goes on. So there is an instant between the two at which all of
//! them are as the snapshots show them, and whoever saw a write acknowledged before he asked finds
//! it. Appends wait for two rounds of messages, no I/O.

use std::collections::VecDeque;

use stratakv_engine::{Effects, Error, Operation, Reply, SnapshotOp, Token};
use stratakv_pmem::Pmem;

use super::BatchMessage;
use crate::matrix::Matrix;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    /// Shard 0: barriers being made, one after the other.
    asked: VecDeque<Barrier>,
    /// The number of the last one.
    last: u64,
    /// The barrier for which appending is to stop, and whether it has.
    wanted: Option<u64>,
    paused: bool,
}

#[derive(Debug)]
struct Barrier {
    number: u64,
    token: Token,
    backup: bool,
    phase: BarrierPhase,
    /// Who has not answered.
    missing: Vec<u32>,
    error: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BarrierPhase {
    /// Batches are under way.
    Waiting,
    Pausing,
    Cutting,
}

/// Whether an operation begins with a barrier.
pub(super) fn is_barrier(operation: &Operation) -> bool {
    matches!(operation, Operation::Snapshot(SnapshotOp::Open) | Operation::Backup { cursor: 0, .. })
}

impl Barriers {
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether barriers are being made: no batch may begin.
    pub(super) fn is_any(&self) -> bool {
        !self.asked.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.wanted.is_none()
    }

    pub(super) fn ask(&mut self, token: Token, backup: bool) {
        let (phase, missing) = (BarrierPhase::Waiting, Vec::new());
        self.asked.push_back(Barrier { number: 0, token, backup, phase, missing, error: None });
    }

    pub(super) fn pause(&mut self, number: u64) {
        self.wanted = Some(number);
    }

    /// Those who asked; appending goes on.
    pub(super) fn give_up(&mut self) -> Vec<Token> {
        (self.wanted, self.paused) = (None, false);
        self.asked.drain(..).map(|barrier| barrier.token).collect()
    }

    fn front(&mut self, number: u64, phase: BarrierPhase) -> Option<&mut Barrier> {
        self.asked.front_mut().filter(|barrier| barrier.number == number && barrier.phase == phase)
    }
}

impl<P: Pmem> Matrix<P> {
    pub(super) fn step_barriers(&mut self, effects: &mut Effects) {
        let is_completed = self.batches.coordinator.is_completed();
        let shards = self.config.shards;
        let barriers = &mut self.batches.barriers;
        if let Some(barrier) =
            barriers.asked.front_mut().filter(|barrier| barrier.phase == BarrierPhase::Waiting && is_completed)
        {
            barriers.last += 1;
            (barrier.number, barrier.phase, barrier.missing) =
                (barriers.last, BarrierPhase::Pausing, (0..shards).collect());
            let number = barrier.number;
            (0..shards).for_each(|shard| self.batches.send(shard, BatchMessage::Pause(number)));
        }
        let Some(number) = self.batches.barriers.wanted.filter(|_| !self.batches.barriers.paused) else { return };
        // A load becomes visible without an append.
        if self.load.is_none() {
            self.batches.barriers.paused = true;
            self.batches.send(0, BatchMessage::Paused(number));
            effects.more();
        }
    }

    /// A shard appends nothing.
    pub(super) fn shard_paused(&mut self, from: u32, number: u64) {
        let shards = self.config.shards;
        let Some(barrier) = self.batches.barriers.front(number, BarrierPhase::Pausing) else { return };
        barrier.missing.retain(|shard| *shard != from);
        if !barrier.missing.is_empty() {
            return;
        }
        (barrier.phase, barrier.missing) = (BarrierPhase::Cutting, (0..shards).collect());
        let backup = barrier.backup;
        (0..shards).for_each(|shard| self.batches.send(shard, BatchMessage::Barrier { number, backup }));
    }

    /// Every shard has stopped: this is the instant.
    pub(super) fn make_barrier(&mut self, number: u64, backup: bool) {
        if self.batches.barriers.wanted != Some(number) {
            return;
        }
        (self.batches.barriers.wanted, self.batches.barriers.paused) = (None, false);
        let version = self.container.version();
        let error = if backup { None } else { self.snapshots.has_room().err() };
        if error.is_none() {
            self.snapshots.open_as(number, version, self.now.mono);
        }
        if backup {
            self.begin_backup(number);
        }
        self.batches.send_when(version, 0, BatchMessage::BarrierMade { number, error });
    }

    /// A shard's barrier is made, or not.
    pub(super) fn barrier_made(&mut self, from: u32, number: u64, error: Option<Error>, effects: &mut Effects) {
        let Some(barrier) = self.batches.barriers.front(number, BarrierPhase::Cutting) else { return };
        barrier.missing.retain(|shard| *shard != from);
        barrier.error = barrier.error.take().or(error);
        if !barrier.missing.is_empty() {
            return;
        }
        let Some(barrier) = self.batches.barriers.asked.pop_front() else { return };
        match barrier.error {
            None => effects.reply(barrier.token, Reply::Number { number, version: 0 }),
            Some(error) => {
                (0..self.config.shards).for_each(|shard| self.batches.send(shard, BatchMessage::Uncut(number)));
                effects.reply(barrier.token, Reply::Failed(error));
            }
        }
        self.admit();
    }

    /// A shard is broken: its message will never come.
    pub(super) fn barriers_failed(&mut self, peer: u32, effects: &mut Effects) {
        if peer == 0 {
            (self.batches.barriers.wanted, self.batches.barriers.paused) = (None, false);
        }
        let Some(barrier) = self.batches.barriers.asked.front_mut() else { return };
        barrier.error = Some(Error::Unknown("a shard broke; reopen the store"));
        let (number, phase) = (barrier.number, barrier.phase);
        match phase {
            BarrierPhase::Waiting => {}
            BarrierPhase::Pausing => self.shard_paused(peer, number),
            BarrierPhase::Cutting => self.barrier_made(peer, number, None, effects),
        }
    }
}
