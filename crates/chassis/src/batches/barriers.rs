//! Barriers through all shards, for snapshots and backups: an instant between batches, at every
//! shard.
//!
//! In two rounds ([`BatchRules::barriers_pause`]) every shard stops appending, then every shard
//! makes its barrier and goes on. So there is an instant at which all of them are as their barriers
//! show them, and whoever saw a write acknowledged before he asked finds it. In one round each
//! shard makes its barrier between two batches of its own.

use std::collections::VecDeque;

use stratakv_engine::{Error, Reply, Token};

use super::{BatchRules, Mailbox, ToCoordinator, ToParticipant};

/// See the module.
#[derive(Debug)]
pub struct Barriers {
    shards: u32,
    pauses_first: bool,
    /// Shard 0: barriers being made, one after the other.
    asked: VecDeque<Barrier>,
    /// The barrier that this shard is to make or to stop for, and whether it has stopped.
    wanted: Option<u64>,
    paused: bool,
}

/// What a barrier is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierKind {
    /// A backup, of which pieces are asked for.
    Backup,
    /// A snapshot, to be read.
    Snapshot,
}

#[derive(Debug)]
struct Barrier {
    number: u64,
    token: Token,
    kind: BarrierKind,
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
    Making,
}

impl Barriers {
    pub(super) fn new(rules: BatchRules) -> Barriers {
        let (shards, pauses_first) = (rules.shards, rules.barriers_pause);
        Barriers { shards, pauses_first, asked: VecDeque::new(), wanted: None, paused: false }
    }

    /// Whether this shard has stopped.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether no batch may begin now.
    pub(super) fn hold_batches(&self) -> bool {
        !self.is_idle()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.wanted.is_none()
    }

    /// Shard 0: asks for a barrier of this number.
    pub fn ask(&mut self, token: Token, number: u64, kind: BarrierKind) {
        let (phase, missing) = (BarrierPhase::Waiting, Vec::new());
        self.asked.push_back(Barrier { number, token, kind, phase, missing, error: None });
    }

    /// This shard is to make a barrier, or to stop for it.
    pub fn want(&mut self, number: u64) {
        self.wanted = Some(number);
    }

    /// The barrier that waits for this shard to make it or to stop.
    pub fn wanted(&self) -> Option<u64> {
        self.wanted.filter(|_| !self.paused)
    }

    /// This shard stops for a barrier.
    pub fn pause(&mut self, number: u64, mail: &mut Mailbox) {
        self.paused = true;
        mail.send(0, ToCoordinator::Paused(number));
    }

    /// This shard goes on, if it is this barrier that it makes.
    pub fn pass(&mut self, number: u64) -> bool {
        let is_wanted = self.wanted == Some(number);
        if is_wanted {
            (self.wanted, self.paused) = (None, false);
        }
        is_wanted
    }

    /// Those who asked; this shard goes on.
    pub(super) fn give_up(&mut self) -> Vec<Token> {
        (self.wanted, self.paused) = (None, false);
        self.asked.drain(..).map(|barrier| barrier.token).collect()
    }

    /// Once no batch is under way: begins the barrier that was asked for first.
    pub(super) fn begin_next(&mut self, no_batches: bool, mail: &mut Mailbox) {
        let waiting = self.asked.front_mut().filter(|barrier| no_batches && barrier.phase == BarrierPhase::Waiting);
        let Some(barrier) = waiting else { return };
        barrier.phase = if self.pauses_first { BarrierPhase::Pausing } else { BarrierPhase::Making };
        barrier.missing = (0..self.shards).collect();
        (0..self.shards).for_each(|shard| mail.send(shard, ToParticipant::Barrier(barrier.number)));
    }

    /// The barrier that is being made, if it is in that phase, one answer later. Says whether it
    /// was the last one.
    fn answered(&mut self, from: u32, number: u64, phase: BarrierPhase) -> Option<(&mut Barrier, bool)> {
        let is_that = |barrier: &&mut Barrier| barrier.number == number && barrier.phase == phase;
        let barrier = self.asked.front_mut().filter(is_that)?;
        barrier.missing.retain(|shard| *shard != from);
        let was_last = barrier.missing.is_empty();
        Some((barrier, was_last))
    }

    /// A shard has stopped.
    pub(super) fn shard_paused(&mut self, from: u32, number: u64, mail: &mut Mailbox) {
        let shards = self.shards;
        let Some((barrier, true)) = self.answered(from, number, BarrierPhase::Pausing) else { return };
        (barrier.phase, barrier.missing) = (BarrierPhase::Making, (0..shards).collect());
        let kind = barrier.kind;
        (0..shards).for_each(|shard| mail.send(shard, ToParticipant::MakeBarrier(number, kind)));
    }

    /// A shard's barrier is made, or not.
    pub(super) fn shard_made(&mut self, from: u32, number: u64, error: Option<Error>, mail: &mut Mailbox) {
        let Some((barrier, was_last)) = self.answered(from, number, BarrierPhase::Making) else { return };
        barrier.error = barrier.error.take().or(error);
        if !was_last {
            return;
        }
        let Some(barrier) = self.asked.pop_front() else { return };
        match barrier.error {
            None => mail.reply(barrier.token, Reply::Number { number, version: 0 }),
            Some(error) => {
                (0..self.shards).for_each(|shard| mail.send(shard, ToParticipant::DropBarrier(number)));
                mail.reply(barrier.token, Reply::Failed(error));
            }
        }
    }

    /// A shard is broken: its message will never come. The barrier that is being made fails, if
    /// there is an `error` for that.
    pub(super) fn peer_failed(&mut self, peer: u32, error: Option<Error>, mail: &mut Mailbox) {
        if peer == 0 && self.pauses_first {
            (self.wanted, self.paused) = (None, false);
        }
        let Some(barrier) = self.asked.front_mut() else { return };
        barrier.error = error.or(barrier.error.take());
        let (number, phase) = (barrier.number, barrier.phase);
        match phase {
            BarrierPhase::Waiting => {}
            BarrierPhase::Pausing => self.shard_paused(peer, number, mail),
            BarrierPhase::Making => self.shard_made(peer, number, None, mail),
        }
    }
}
