//! Batches over several shards, and barriers through all of them: docs/batches.md draws the records
//! and argues every crash.
//!
//! [`TwoPhaseCommit`] coordinates, at shard 0. Here is what this engine's shards do in it: one
//! whose keys a batch changes is a *participant* and has a [`prepare_record`] of it, one whose keys
//! are only checked is a *read-only participant*. A prepare record is a write like others, which
//! locks its keys in their queues, but waits for shard 0. What a crash left is read by [`opening`];
//! a snapshot or a backup begins with a [`barrier`]. Everything that is said goes out at the end of
//! a tick, once what it rests on is durable.

mod barrier;
mod opening;
pub(crate) mod prepare_record;
pub(crate) mod publication;

use std::collections::{BTreeMap, HashSet};

use stratakv_base::{Key, fault_point};
use stratakv_chassis::batches::opening::Opening;
use stratakv_chassis::batches::prepare_record::BatchId;
use stratakv_chassis::batches::{BatchRules, CommitStep, ToParticipant, TwoPhaseCommit};
use stratakv_engine::{Change, Effects, Error, Message, Operation, Reply, ShardId, Token};
use stratakv_pmem::Pmem;

use crate::matrix::Matrix;
use opening::RecordReads;
use publication::Publication;

/// Of operations that nobody outside asked for.
pub(crate) const INTERNAL: Token = Token { slot: u32::MAX, generation: u32::MAX };

/// Batches of a shard.
#[derive(Debug)]
pub(crate) struct Batches {
    commit: TwoPhaseCommit,
    /// The number of the last batch. No record of a batch with a higher one is anywhere.
    last_number: u64,
    /// The number of the last barrier.
    last_barrier: u64,
    /// The operations that prepare records are.
    prepare_records: BTreeMap<BatchId, u64>,
    /// Prepare records that are logged, whether their batches are visible, and who waits for them.
    pub(crate) publication: Publication,
    /// Keys of prepare records that cannot be applied before the store is opened again.
    stuck: HashSet<Key>,
    /// Those batches.
    stuck_batches: HashSet<BatchId>,
    /// Commit-done records that can go.
    forgotten: Vec<BatchId>,
    reads: RecordReads,
}

impl Batches {
    /// Of one of so many shards. One alone has no such batches.
    pub(crate) fn new(shard: u32, shards: u32, read_only: bool) -> Batches {
        let rules = BatchRules {
            shard,
            shards,
            read_only,
            locks_first: true,
            replies_when_decided: false,
            barriers_pause: true,
        };
        let opening = if shards > 1 { Opening::new(&rules, false) } else { Opening::over(&rules) };
        Batches {
            commit: TwoPhaseCommit::new(rules, opening),
            last_number: 0,
            last_barrier: 0,
            prepare_records: BTreeMap::new(),
            publication: Publication::default(),
            stuck: HashSet::new(),
            stuck_batches: HashSet::new(),
            forgotten: Vec::new(),
            reads: RecordReads::default(),
        }
    }

    /// Whether appends wait for a barrier.
    pub(crate) fn is_paused(&self) -> bool {
        fault_point!("trial_cut_while_others_write", return false);
        self.commit.barriers.is_paused()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.commit.is_idle() && self.prepare_records.is_empty() && self.publication.is_idle()
    }

    #[cfg(test)]
    pub(crate) fn may_serve(&self) -> bool {
        self.commit.opening.may_serve()
    }

    /// Nothing behind the version `durable` will be: what waits for it is said otherwise.
    pub(crate) fn fail_behind(&mut self, durable: u64, error: &Error) {
        self.commit.mail.fail_behind(durable, error);
    }

    /// Whether something is to be said or heard in the next tick: what a failed region left.
    pub(crate) fn has_work(&self) -> bool {
        self.commit.mail.is_due(u64::MAX)
    }

    /// Batches under way here as coordinator or participant.
    pub(crate) fn under_way(&self) -> u64 {
        (self.prepare_records.len() + self.commit.coordinator.waiting()) as u64
    }

    /// Batches committed here as coordinator.
    pub(crate) fn done(&self) -> u64 {
        self.commit.coordinator.done()
    }

    /// What came of reading the records of batches.
    pub(crate) fn opening_read(&mut self, reply: Reply) {
        self.reads.page = Some(reply);
    }
}

impl<P: Pmem> Matrix<P> {
    /// Takes an operation that several shards are needed for. Gives back what is this shard's own.
    pub(crate) fn take_of_all(
        &mut self,
        token: Token,
        operation: Operation,
        effects: &mut Effects,
    ) -> Option<Operation> {
        if self.config.shards <= 1 {
            return Some(operation);
        }
        let is_others = |change: &Change| self.batches.commit.rules().owner(&change.key) != self.config.shard;
        match operation {
            Operation::Write { changes, .. } if changes.iter().any(is_others) => {
                self.submit_batch(token, changes, effects);
                None
            }
            operation if self.config.shard == 0 && barrier::is_barrier(&operation) => {
                self.ask_barrier(token, &operation, effects);
                None
            }
            operation => Some(operation),
        }
    }

    /// Takes a batch of several shards that there is nothing wrong with.
    fn submit_batch(&mut self, token: Token, changes: Vec<Change>, effects: &mut Effects) {
        let Batches { commit, last_number, .. } = &mut self.batches;
        if self.config.shard != 0 {
            let error = Error::BadBatch("it is of several shards, and was not given to shard 0");
            effects.reply(token, Reply::Failed(error));
        } else if commit.opening.is_part_lost() {
            // There may be a higher number than the last one that was found.
            let why = "a shard could not be read when the store was opened: no batch of several shards can be";
            self.scheduler.reply_when_durable(token, Reply::Failed(Error::Unknown(why)), 0);
        } else {
            commit.submit(token, changes, last_number);
            effects.more();
        }
    }

    /// Why an operation cannot be, if a batch that cannot be applied has its keys, or perhaps
    /// has.
    pub(crate) fn batch_complaint(&self, operation: &Operation) -> Option<Error> {
        if let Some(error) = self.batches.commit.opening.refusal() {
            return Some(error.clone());
        }
        if self.batches.stuck.is_empty() {
            return None;
        }
        let is_stuck = match operation {
            Operation::Get { key, .. } | Operation::Update { key, .. } => self.batches.stuck.contains(key),
            Operation::Write { changes, .. } => changes.iter().any(|change| self.batches.stuck.contains(&change.key)),
            Operation::Snapshot(_) | Operation::Sync | Operation::List(_) => false,
            Operation::Page(_) | Operation::DeleteRange { .. } | Operation::Load { .. } | Operation::Backup { .. } => {
                true
            }
        };
        is_stuck.then_some(Error::Unknown("a batch could not be carried out here; open the store again to see it"))
    }

    /// Messages of other shards are handled at the end of the tick.
    pub(crate) fn batch_message(&mut self, from: ShardId, message: Message) {
        self.batches.commit.mail.receive(from, message);
    }

    /// Sends messages and handles those received. Whether anything came of it.
    pub(crate) fn step_batches(&mut self, effects: &mut Effects) -> bool {
        self.step_opening(effects);
        self.serve_released(effects);
        self.step_barriers(effects);
        self.forget_marks();
        let durable = self.container.durable_version();
        self.batches.commit.mail.post(durable, effects);
        let mut any = false;
        while let Some(step) = self.batches.commit.next(&mut self.batches.last_number) {
            any = true;
            match step {
                CommitStep::Reply { token, reply, is_of_checks: true } => {
                    self.scheduler.reply_when_durable(token, reply, self.container.version());
                }
                CommitStep::Reply { token, reply, .. } => effects.reply(token, reply),
                CommitStep::Participant(message) => self.participate(message, effects),
            }
        }
        any || self.batches.commit.mail.is_due(durable)
    }

    fn participate(&mut self, message: ToParticipant, effects: &mut Effects) {
        match message {
            ToParticipant::Prepare(prepare) => self.prepare(prepare, effects),
            ToParticipant::Log(id) => self.log_prepare_record(id, effects),
            ToParticipant::Commit(id) => self.commit_prepare_record(id, effects),
            ToParticipant::Abort(id) => self.abort_prepare_record(id, effects),
            ToParticipant::Forget(id) => self.batches.forgotten.push(id),
            ToParticipant::InDoubt(id) => self.doubt_prepare_record(id),
            ToParticipant::Decided(highest) => self.batches.last_number = highest,
            // Who asked for the barrier is answered already.
            ToParticipant::Barrier(_) if !self.is_open() => {}
            ToParticipant::Barrier(number) => self.batches.commit.barriers.want(number),
            ToParticipant::MakeBarrier(number, kind) => self.make_barrier(number, kind),
            ToParticipant::DropBarrier(number) => _ = self.close_snapshot(number),
        }
    }

    /// Another shard of the store is broken.
    pub(crate) fn shard_failed(&mut self, peer: ShardId, effects: &mut Effects) {
        let error = Error::Unknown("a shard broke; reopen the store");
        let is_undecided = self.batches.commit.peer_failed(peer.0, Some(error));
        self.participant_failed(peer.0, effects);
        if is_undecided {
            self.doubt_all();
        }
    }

    /// What waits to begin never will: the shard closes.
    pub(crate) fn close_batches(&mut self, effects: &mut Effects) {
        for token in self.batches.commit.give_up() {
            effects.reply(token, Reply::Failed(Error::Closed));
        }
    }

    /// Whether a batch may begin here.
    fn is_open(&self) -> bool {
        self.life.is_open()
    }
}
