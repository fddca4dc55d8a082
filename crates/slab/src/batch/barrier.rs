//! The consistent snapshot barrier of a backup: an instant between batches, at every shard. What a
//! shard had then is its barrier.

use stratakv_engine::{Effects, Error, Reply, Token};

use super::BatchMessage;
use crate::slab::Slab;

/// Shard 0: barriers being made, one backup after the other.
#[derive(Debug)]
pub(super) struct Barriers {
    id: u64,
    token: Token,
    asked: bool,
    missing: Vec<u32>,
}

impl Slab {
    pub(crate) fn begin_barriers(&mut self, id: u64, token: Token) {
        let missing = (0..self.config.shards).collect();
        self.batches.barriers.push_back(Barriers { id, token, asked: false, missing });
    }

    /// Whether no batch may begin now.
    pub(super) fn batches_pause(&self) -> bool {
        !self.batches.barriers.is_empty() || self.batches.barrier_wanted.is_some()
    }

    /// Once no batch is under way: has every shard make its barrier, and makes its own.
    pub(super) fn step_barriers(&mut self, effects: &mut Effects) {
        let completed = self.batches.coordinator.is_completed();
        if let Some(barriers) = self.batches.barriers.front_mut().filter(|barriers| !barriers.asked && completed) {
            barriers.asked = true;
            let id = barriers.id;
            (0..self.config.shards).for_each(|shard| self.send(shard, BatchMessage::Barrier(id), effects));
        }
        let Some(id) = self.batches.barrier_wanted else { return };
        if self.batches.prepare_records.values().all(super::PrepareRecord::is_at_rest)
            && self.batches.opening.may_serve()
        {
            self.batches.barrier_wanted = None;
            self.pass_barrier(id, effects);
            self.send(0, BatchMessage::BarrierMade(id), effects);
            self.admit(effects);
        }
    }

    /// A shard's barrier is made, or, if it broke, never will be.
    pub(super) fn barrier_made(&mut self, from: u32, id: u64, effects: &mut Effects) {
        let Some(barriers) = self.batches.barriers.front_mut().filter(|barriers| barriers.id == id) else { return };
        barriers.missing.retain(|shard| *shard != from);
        if !barriers.missing.is_empty() {
            return;
        }
        if let Some(barriers) = self.batches.barriers.pop_front() {
            effects.reply(barriers.token, Reply::Number { number: id, version: 0 });
        }
        self.admit(effects);
    }

    pub(super) fn barriers_failed(&mut self, peer: u32, effects: &mut Effects) {
        for barriers in self.batches.barriers.iter_mut() {
            barriers.missing.retain(|shard| *shard != peer);
        }
        let front =
            self.batches.barriers.front().map(|barriers| (barriers.id, barriers.asked && barriers.missing.is_empty()));
        if let Some((id, true)) = front {
            self.barrier_made(peer, id, effects);
        }
    }

    pub(super) fn give_up_barriers(&mut self, effects: &mut Effects) {
        for barriers in std::mem::take(&mut self.batches.barriers) {
            effects.reply(barriers.token, Reply::Failed(Error::Closed));
        }
        self.batches.barrier_wanted = None;
    }
}
