//! Cuts for a backup: between batches, at every shard.

use stratakv_engine::{Effects, Error, Reply, Token};

use super::BatchMessage;
use crate::slab::Slab;

/// Shard 0: cuts being made, one backup after the other.
#[derive(Debug)]
pub(super) struct Cuts {
    id: u64,
    token: Token,
    asked: bool,
    missing: Vec<u32>,
}

impl Slab {
    pub(crate) fn begin_cuts(&mut self, id: u64, token: Token) {
        let missing = (0..self.config.shards).collect();
        self.batches.cuts.push_back(Cuts { id, token, asked: false, missing });
    }

    /// Whether no batch may begin now.
    pub(super) fn batches_pause(&self) -> bool {
        !self.batches.cuts.is_empty() || self.batches.cut_wanted.is_some()
    }

    /// Once no batch is under way: has every shard make its cut, and makes its own.
    pub(super) fn step_cuts(&mut self, effects: &mut Effects) {
        let settled = self.batches.coordinator.is_settled();
        if let Some(cuts) = self.batches.cuts.front_mut().filter(|cuts| !cuts.asked && settled) {
            cuts.asked = true;
            let id = cuts.id;
            (0..self.config.shards).for_each(|shard| self.say(shard, BatchMessage::Cut(id), effects));
        }
        let Some(id) = self.batches.cut_wanted else { return };
        if self.batches.shares.values().all(super::PrepareRecord::is_at_rest) && self.batches.opening.may_serve() {
            self.batches.cut_wanted = None;
            self.cut(id, effects);
            self.say(0, BatchMessage::CutMade(id), effects);
            self.admit(effects);
        }
    }

    /// A shard's cut is made, or, if it broke, never will be.
    pub(super) fn cut_made(&mut self, from: u32, id: u64, effects: &mut Effects) {
        let Some(cuts) = self.batches.cuts.front_mut().filter(|cuts| cuts.id == id) else { return };
        cuts.missing.retain(|shard| *shard != from);
        if !cuts.missing.is_empty() {
            return;
        }
        if let Some(cuts) = self.batches.cuts.pop_front() {
            effects.reply(cuts.token, Reply::Number { number: id, version: 0 });
        }
        self.admit(effects);
    }

    pub(super) fn cuts_lost(&mut self, peer: u32, effects: &mut Effects) {
        for cuts in self.batches.cuts.iter_mut() {
            cuts.missing.retain(|shard| *shard != peer);
        }
        let front = self.batches.cuts.front().map(|cuts| (cuts.id, cuts.asked && cuts.missing.is_empty()));
        if let Some((id, true)) = front {
            self.cut_made(peer, id, effects);
        }
    }

    pub(super) fn give_up_cuts(&mut self, effects: &mut Effects) {
        for cuts in std::mem::take(&mut self.batches.cuts) {
            effects.reply(cuts.token, Reply::Failed(Error::Closed));
        }
        self.batches.cut_wanted = None;
    }
}
