//! The coordinator of batches: lets them in, asks the participants, decides.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::prepare_record::BatchId;
use foldhash::{HashSet, HashSetExt};
use stratakv_base::{Key, fault_point};
use stratakv_engine::{Change, ChangeKind, Error, Reply, Token};

use super::{BatchRules, CommitStep, Completion, LastChange, Mailbox, Prepare, ToParticipant, VisibleFlag};

/// Waiting batches looked at for one that shares no key with those before it.
const LOOK_AHEAD: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    rules: BatchRules,
    active: BTreeMap<BatchId, Coordinated>,
    /// Keys of batches across shards that are not decided yet.
    locked: HashSet<Key>,
    waiting: VecDeque<(Token, Vec<Change>)>,
    /// A batch came or keys were released since waiting batches were last looked at.
    may_admit: bool,
    done: u64,
}

#[derive(Debug)]
struct Coordinated {
    token: Option<Token>,
    participants: Arc<[u32]>,
    /// Shards that only check.
    read_only_participants: Vec<u32>,
    phase: CoordinatorPhase,
    /// To be released when it is decided.
    keys: Vec<Key>,
    visible: VisibleFlag,
    /// Who has not answered.
    missing: Vec<u32>,
    last: Option<LastChange>,
    /// Every participant so far has left a commit-done record.
    are_commit_done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoordinatorPhase {
    Locking,
    Logging,
    Committed,
}

/// What a shard has to do in a batch.
#[derive(Debug, Default)]
struct ShardChanges {
    changes: Vec<Change>,
    last: Option<usize>,
}

impl ShardChanges {
    fn logs(&self) -> bool {
        self.changes.iter().any(|change| !matches!(change.kind, ChangeKind::Check))
    }
}

impl Coordinator {
    pub(super) fn new(rules: BatchRules) -> Coordinator {
        Coordinator {
            rules,
            active: BTreeMap::new(),
            locked: HashSet::new(),
            waiting: VecDeque::new(),
            may_admit: false,
            done: 0,
        }
    }

    /// The rules of this shard.
    pub fn rules(&self) -> &BatchRules {
        &self.rules
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty() && self.waiting.is_empty()
    }

    /// No batch is under way.
    pub(super) fn is_completed(&self) -> bool {
        self.active.is_empty()
    }

    /// Batches that are not let in yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Batches committed here.
    pub fn done(&self) -> u64 {
        self.done
    }

    pub(super) fn give_up_waiting(&mut self) -> Vec<Token> {
        self.waiting.drain(..).map(|(token, _)| token).collect()
    }

    pub(super) fn queue(&mut self, token: Token, changes: Vec<Change>) {
        self.waiting.push_back((token, changes));
        self.may_admit = true;
    }

    /// Lets waiting batches in that share no key with one that is under way or waits before them:
    /// so two never wait for one another.
    pub(super) fn admit(&mut self, counter: &mut u64, mail: &mut Mailbox) {
        if !std::mem::take(&mut self.may_admit) {
            return;
        }
        let mut ahead: HashSet<Key> = HashSet::new();
        let mut at = 0;
        while at < self.waiting.len().min(LOOK_AHEAD) {
            let Some((_, changes)) = self.waiting.get(at) else { return };
            let keys: Vec<Key> = changes.iter().map(|change| change.key.clone()).collect();
            if keys.iter().any(|key| self.locked.contains(key) || ahead.contains(key)) {
                ahead.extend(keys);
                at += 1;
                continue;
            }
            self.locked.extend(keys.iter().cloned());
            if let Some((token, changes)) = self.waiting.remove(at) {
                self.begin(token, changes, keys, counter, mail);
            }
        }
    }

    /// Begins a batch, which holds these of the keys that no other may have meanwhile.
    pub(super) fn begin(
        &mut self,
        token: Token,
        changes: Vec<Change>,
        keys: Vec<Key>,
        counter: &mut u64,
        mail: &mut Mailbox,
    ) {
        *counter += 1;
        let id = BatchId { number: *counter, coordinator: self.rules.shard };
        let parts = self.by_shard(changes);
        let that = |logs: bool| parts.iter().filter(move |(_, part)| part.logs() == logs).map(|(shard, _)| *shard);
        let participants: Arc<[u32]> = that(true).collect();
        let read_only_participants: Vec<u32> = that(false).collect();
        let waits = self.rules.locks_first || !read_only_participants.is_empty();
        let visible = VisibleFlag::default();
        let coordinated = Coordinated {
            token: Some(token),
            participants: Arc::clone(&participants),
            read_only_participants,
            phase: if waits { CoordinatorPhase::Locking } else { CoordinatorPhase::Logging },
            keys,
            visible: visible.clone(),
            missing: parts.keys().copied().collect(),
            last: None,
            are_commit_done: true,
        };
        self.active.insert(id, coordinated);
        for (shard, ShardChanges { changes, last }) in parts {
            let mut visible = visible.clone();
            fault_point!("batch_shown_shard_by_shard", visible = VisibleFlag::default());
            fault_point!("matrix_batch_shown_shard_by_shard", visible = VisibleFlag::default());
            let participants = Arc::clone(&participants);
            let prepare = Prepare { id, participants, changes, last, waits, visible };
            mail.send(shard, ToParticipant::Prepare(prepare));
        }
    }

    fn by_shard(&self, changes: Vec<Change>) -> BTreeMap<u32, ShardChanges> {
        let mut parts: BTreeMap<u32, ShardChanges> = BTreeMap::new();
        let last = changes.iter().rposition(|change| !matches!(change.kind, ChangeKind::Check));
        for (at, change) in changes.into_iter().enumerate() {
            let part = parts.entry(self.rules.owner(&change.key)).or_default();
            if Some(at) == last {
                part.last = Some(part.changes.len());
            }
            part.changes.push(change);
        }
        parts
    }

    /// The batch, if it is in that phase, one answer later. Says whether it was the last one.
    fn answered(&mut self, from: u32, id: BatchId, phase: CoordinatorPhase) -> Option<(&mut Coordinated, bool)> {
        let batch = self.active.get_mut(&id).filter(|batch| batch.phase == phase)?;
        batch.missing.retain(|shard| *shard != from);
        let was_last = batch.missing.is_empty();
        Some((batch, was_last))
    }

    /// A participant or read-only participant has locked its keys.
    pub(super) fn participant_locked(&mut self, from: u32, id: BatchId, mail: &mut Mailbox) {
        let Some((batch, true)) = self.answered(from, id, CoordinatorPhase::Locking) else { return };
        (batch.phase, batch.missing) = (CoordinatorPhase::Logging, batch.participants.to_vec());
        if batch.missing.is_empty() {
            return self.decide_commit(id, mail);
        }
        batch.participants.iter().for_each(|shard| mail.send(*shard, ToParticipant::Log(id)));
    }

    /// A participant's prepare record is durable.
    pub(super) fn participant_prepared(
        &mut self,
        from: u32,
        id: BatchId,
        last: Option<LastChange>,
        mail: &mut Mailbox,
    ) {
        let Some((batch, was_last)) = self.answered(from, id, CoordinatorPhase::Logging) else { return };
        batch.last = last.or(batch.last);
        fault_point!("batch_half_applied", return self.decide_commit(id, mail));
        fault_point!("matrix_batch_half_committed", return self.decide_commit(id, mail));
        if was_last {
            self.decide_commit(id, mail);
        }
    }

    /// From here on every read of its keys sees the batch, at every shard.
    fn decide_commit(&mut self, id: BatchId, mail: &mut Mailbox) {
        let Some(batch) = self.active.get_mut(&id) else { return };
        let late = std::mem::replace(&mut batch.missing, batch.participants.to_vec());
        batch.phase = CoordinatorPhase::Committed;
        batch.visible.set();
        let is_of_checks = batch.participants.is_empty();
        if let Some(token) = batch.token.take_if(|_| self.rules.replies_when_decided || is_of_checks) {
            let LastChange { version, existed } = batch.last.unwrap_or(LastChange { version: 0, existed: false });
            let reply = Reply::Done { version, existed };
            mail.replies.push_back(CommitStep::Reply { token, reply, is_of_checks });
        }
        self.done += 1;
        let mut participants = Arc::clone(&batch.participants);
        fault_point!("batch_half_applied", {
            participants = participants.iter().filter(|shard| !late.contains(shard)).copied().collect();
            late.iter().for_each(|shard| mail.send(*shard, ToParticipant::Abort(id)));
        });
        for shard in participants.iter().chain(&batch.read_only_participants) {
            mail.send(*shard, ToParticipant::Commit(id));
        }
        let keys = std::mem::take(&mut batch.keys);
        if is_of_checks {
            self.active.remove(&id);
        }
        self.release(&keys);
    }

    fn release(&mut self, keys: &[Key]) {
        keys.iter().for_each(|key| _ = self.locked.remove(key));
        self.may_admit = true;
    }

    /// A participant refuses: the batch is aborted. It has no prepare record that counts, so this
    /// stands whatever happens to the others.
    pub(super) fn participant_refused(&mut self, from: u32, id: BatchId, reply: Reply, mail: &mut Mailbox) {
        if self.active.get(&id).is_none_or(|batch| batch.phase == CoordinatorPhase::Committed) {
            return;
        }
        let Some(batch) = self.active.remove(&id) else { return };
        if let Some(token) = batch.token {
            mail.reply(token, reply);
        }
        for shard in batch.participants.iter().chain(&batch.read_only_participants).filter(|shard| **shard != from) {
            mail.send(*shard, ToParticipant::Abort(id));
        }
        self.release(&batch.keys);
    }

    /// A participant is done with a committed batch.
    pub(super) fn participant_completed(
        &mut self,
        from: u32,
        id: BatchId,
        completion: Completion,
        last: Option<LastChange>,
        mail: &mut Mailbox,
    ) {
        let Some((batch, was_last)) = self.answered(from, id, CoordinatorPhase::Committed) else { return };
        batch.are_commit_done &= completion == Completion::CommitDone;
        batch.last = last.or(batch.last);
        if !was_last {
            return;
        }
        let Some(batch) = self.active.remove(&id) else { return };
        if let Some(token) = batch.token {
            let broke = "the batch is done, but its last change waits for the next opening; reopen the store";
            let reply = match batch.last {
                Some(LastChange { version, existed }) => Reply::Done { version, existed },
                // It is applied then. What it comes to is not known now.
                None => Reply::Failed(Error::Unknown(broke)),
            };
            mail.reply(token, reply);
        }
        // Of a batch that is stuck somewhere, the commit-done records are needed at the next
        // opening.
        if batch.are_commit_done {
            batch.participants.iter().for_each(|shard| mail.send(*shard, ToParticipant::Forget(id)));
        }
    }

    /// A batch that an earlier opening had committed is applied by those who still hold their
    /// prepare record: `holders`, of the participants that are `present`.
    pub(super) fn resume(&mut self, id: BatchId, holders: Vec<u32>, present: Vec<u32>, mail: &mut Mailbox) {
        holders.iter().for_each(|shard| mail.send(*shard, ToParticipant::Commit(id)));
        if self.rules.read_only {
            return;
        }
        let coordinated = Coordinated {
            token: None,
            participants: present.into(),
            read_only_participants: Vec::new(),
            phase: CoordinatorPhase::Committed,
            keys: Vec::new(),
            visible: VisibleFlag::default(),
            missing: holders,
            last: None,
            are_commit_done: true,
        };
        self.active.insert(id, coordinated);
    }

    /// A shard of the store is broken: what waits for it is over.
    pub(super) fn peer_failed(&mut self, peer: u32, mail: &mut Mailbox) {
        let waiting = self.active.iter().filter(|(_, batch)| batch.missing.contains(&peer));
        for (id, phase) in waiting.map(|(id, batch)| (*id, batch.phase)).collect::<Vec<_>>() {
            let why = "a shard of the batch broke; reopen the store";
            match phase {
                CoordinatorPhase::Committed => self.participant_completed(peer, id, Completion::Stuck, None, mail),
                _ => self.participant_refused(peer, id, Reply::Failed(Error::Unknown(why)), mail),
            }
        }
    }
}
