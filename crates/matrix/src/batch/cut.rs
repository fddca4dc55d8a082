//! Cuts through all shards, for snapshots and backups: every shard stops appending, then every
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
pub(crate) struct Cuts {
    /// Shard 0: cuts being made, one after the other.
    asked: VecDeque<Cut>,
    /// The number of the last one.
    last: u64,
    /// The cut for which appending is to stop, and whether it has.
    wanted: Option<u64>,
    paused: bool,
}

#[derive(Debug)]
struct Cut {
    number: u64,
    token: Token,
    backup: bool,
    phase: Phase,
    /// Who has not answered.
    missing: Vec<u32>,
    error: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Batches are under way.
    Waiting,
    Pausing,
    Cutting,
}

/// Whether an operation begins with a cut.
pub(super) fn is_cut(operation: &Operation) -> bool {
    matches!(operation, Operation::Snapshot(SnapshotOp::Open) | Operation::Backup { cursor: 0, .. })
}

impl Cuts {
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether cuts are being made: no batch may begin.
    pub(super) fn is_any(&self) -> bool {
        !self.asked.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.wanted.is_none()
    }

    pub(super) fn ask(&mut self, token: Token, backup: bool) {
        let (phase, missing) = (Phase::Waiting, Vec::new());
        self.asked.push_back(Cut { number: 0, token, backup, phase, missing, error: None });
    }

    pub(super) fn pause(&mut self, number: u64) {
        self.wanted = Some(number);
    }

    /// Those who asked; appending goes on.
    pub(super) fn give_up(&mut self) -> Vec<Token> {
        (self.wanted, self.paused) = (None, false);
        self.asked.drain(..).map(|cut| cut.token).collect()
    }

    fn front(&mut self, number: u64, phase: Phase) -> Option<&mut Cut> {
        self.asked.front_mut().filter(|cut| cut.number == number && cut.phase == phase)
    }
}

impl<P: Pmem> Matrix<P> {
    pub(super) fn step_cuts(&mut self, effects: &mut Effects) {
        let is_settled = self.batches.coordinator.is_settled();
        let shards = self.config.shards;
        let cuts = &mut self.batches.cuts;
        if let Some(cut) = cuts.asked.front_mut().filter(|cut| cut.phase == Phase::Waiting && is_settled) {
            cuts.last += 1;
            (cut.number, cut.phase, cut.missing) = (cuts.last, Phase::Pausing, (0..shards).collect());
            let number = cut.number;
            (0..shards).for_each(|shard| self.batches.say(shard, BatchMessage::Pause(number)));
        }
        let Some(number) = self.batches.cuts.wanted.filter(|_| !self.batches.cuts.paused) else { return };
        // A load becomes visible without an append.
        if self.load.is_none() {
            self.batches.cuts.paused = true;
            self.batches.say(0, BatchMessage::Paused(number));
            effects.more();
        }
    }

    /// A shard appends nothing.
    pub(super) fn shard_paused(&mut self, from: u32, number: u64) {
        let shards = self.config.shards;
        let Some(cut) = self.batches.cuts.front(number, Phase::Pausing) else { return };
        cut.missing.retain(|shard| *shard != from);
        if !cut.missing.is_empty() {
            return;
        }
        (cut.phase, cut.missing) = (Phase::Cutting, (0..shards).collect());
        let backup = cut.backup;
        (0..shards).for_each(|shard| self.batches.say(shard, BatchMessage::Cut { number, backup }));
    }

    /// Every shard has stopped: this is the instant.
    pub(super) fn make_cut(&mut self, number: u64, backup: bool) {
        if self.batches.cuts.wanted != Some(number) {
            return;
        }
        (self.batches.cuts.wanted, self.batches.cuts.paused) = (None, false);
        let version = self.container.version();
        let error = if backup { None } else { self.snapshots.has_room().err() };
        if error.is_none() {
            self.snapshots.open_as(number, version, self.now.mono);
        }
        if backup {
            self.begin_backup(number);
        }
        self.batches.say_when(version, 0, BatchMessage::CutMade { number, error });
    }

    /// A shard's cut is made, or not.
    pub(super) fn cut_made(&mut self, from: u32, number: u64, error: Option<Error>, effects: &mut Effects) {
        let Some(cut) = self.batches.cuts.front(number, Phase::Cutting) else { return };
        cut.missing.retain(|shard| *shard != from);
        cut.error = cut.error.take().or(error);
        if !cut.missing.is_empty() {
            return;
        }
        let Some(cut) = self.batches.cuts.asked.pop_front() else { return };
        match cut.error {
            None => effects.reply(cut.token, Reply::Number { number, version: 0 }),
            Some(error) => {
                (0..self.config.shards).for_each(|shard| self.batches.say(shard, BatchMessage::Uncut(number)));
                effects.reply(cut.token, Reply::Failed(error));
            }
        }
        self.admit();
    }

    /// A shard is broken: what it has to say it never will.
    pub(super) fn cuts_lost(&mut self, peer: u32, effects: &mut Effects) {
        if peer == 0 {
            (self.batches.cuts.wanted, self.batches.cuts.paused) = (None, false);
        }
        let Some(cut) = self.batches.cuts.asked.front_mut() else { return };
        cut.error = Some(Error::Unknown("a shard broke; reopen the store"));
        let (number, phase) = (cut.number, cut.phase);
        match phase {
            Phase::Waiting => {}
            Phase::Pausing => self.shard_paused(peer, number),
            Phase::Cutting => self.cut_made(peer, number, None, effects),
        }
    }
}
