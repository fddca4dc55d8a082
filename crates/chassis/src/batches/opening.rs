//! What a crash left of batches: every shard tells shard 0 which prepare records and commit-done
//! records it has, shard 0 decides.

use std::collections::BTreeMap;

use super::prepare_record::{self as record, BatchFate, BatchId, Kept};
use stratakv_base::{Corruption, Key, Place, fault_point};
use stratakv_engine::Error;

use super::coordinator::Coordinator;
use super::{BatchRules, Mailbox, ToCoordinator, ToParticipant};

/// A record of a batch that a shard found.
#[derive(Clone, Debug)]
pub struct FoundBatch {
    id: BatchId,
    /// Empty if it cannot be read.
    participants: Vec<u32>,
    /// There is something to apply.
    is_prepare_record: bool,
}

/// How far a shard is with what it found.
#[derive(Debug)]
pub struct Opening {
    shards: u32,
    phase: OpeningPhase,
    /// Operations are served before all is decided: nothing was found here.
    serves_early: bool,
    found: Vec<FoundBatch>,
    /// How often what begins with this key could not be read, and was asked for again.
    failures: BTreeMap<Key, u32>,
    /// Why nothing is served.
    refusal: Option<Error>,
    /// Shard 0, until it decides: what the shards found, or nothing of those that broke before they
    /// reported or cannot read what they have.
    lists: Option<BTreeMap<u32, Option<Vec<FoundBatch>>>>,
    /// Shard 0: it decided without some shard.
    is_part_lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpeningPhase {
    Reading,
    /// Shard 0 knows what was found here.
    Told,
    Decided,
}

impl Opening {
    /// Of a shard that reads its records now. `serves_early`: it knows already that it has none.
    pub fn new(rules: &BatchRules, serves_early: bool) -> Opening {
        Opening {
            shards: rules.shards,
            phase: OpeningPhase::Reading,
            serves_early,
            found: Vec::new(),
            failures: BTreeMap::new(),
            refusal: None,
            lists: (rules.shard == 0).then(BTreeMap::new),
            is_part_lost: false,
        }
    }

    /// Of a store that has no such batches.
    pub fn over(rules: &BatchRules) -> Opening {
        Opening { phase: OpeningPhase::Decided, lists: None, ..Opening::new(rules, true) }
    }

    /// Why nothing is served.
    pub fn refusal(&self) -> Option<&Error> {
        self.refusal.as_ref()
    }

    /// From now on nothing is served.
    pub fn refuse(&mut self, error: Error) {
        self.refusal = Some(error);
    }

    /// Whether it is known here which batches hold.
    pub fn may_serve(&self) -> bool {
        self.serves_early || self.phase == OpeningPhase::Decided
    }

    /// Whether the records of this shard are still being read.
    pub fn is_reading(&self) -> bool {
        self.phase == OpeningPhase::Reading
    }

    /// Shard 0: whether batches were decided without some shard, whose records are not known.
    pub fn is_part_lost(&self) -> bool {
        self.is_part_lost
    }

    pub(super) fn is_over(&self) -> bool {
        !self.is_reading() && self.may_serve() && self.lists.is_none()
    }

    pub(super) fn end(&mut self) {
        self.phase = OpeningPhase::Decided;
    }

    /// Takes the value of a record that was found; `None` if it is damaged. Gives back what it
    /// says, if that makes sense and this shard can have logged it. A damaged one was durable, so
    /// the others go by it; what it held is lost.
    pub fn note(
        &mut self,
        rules: &BatchRules,
        id: BatchId,
        value: Option<&[u8]>,
        can_be_version: impl Fn(u64) -> bool,
    ) -> Option<Kept> {
        let is_mine = |kept: &Kept| match kept {
            Kept::PrepareRecord { version, changes, .. } => {
                can_be_version(*version) && changes.iter().all(|change| rules.owner(&change.key) == rules.shard)
            }
            Kept::Resolved { .. } => true,
        };
        let kept = value.and_then(record::decode).filter(is_mine);
        let (participants, is_prepare_record) = match &kept {
            Some(Kept::PrepareRecord { participants, .. }) => (participants.clone(), true),
            Some(Kept::Resolved { participants }) => (participants.clone(), false),
            None => (Vec::new(), false),
        };
        self.found.push(FoundBatch { id, participants, is_prepare_record });
        kept
    }

    /// What begins with this key could not be read. Whether it is read once more; otherwise which
    /// keys batches change here is not known, and nothing is served.
    pub fn may_read_again(&mut self, at: &Key) -> bool {
        let failures = self.failures.entry(at.clone()).or_default();
        *failures += 1;
        let may = *failures < record::FAILURES_MAX;
        if !may {
            self.refusal = Some(record::unread());
        }
        may
    }

    /// Everything here is read: shard 0 is told. `is_known`: it can be. Otherwise shard 0 treats
    /// this shard as one that broke, and decides nothing here.
    pub fn tell(&mut self, is_known: bool, mail: &mut Mailbox) {
        self.phase = OpeningPhase::Told;
        let found = std::mem::take(&mut self.found);
        mail.send(0, ToCoordinator::Found(is_known.then_some(found)));
    }

    /// Shard 0 learns what a shard found; `None`: it cannot read it. When all have reported, or
    /// broke, it decides.
    pub(super) fn participant_found(
        &mut self,
        from: u32,
        found: Option<Vec<FoundBatch>>,
        coordinator: &mut Coordinator,
        mail: &mut Mailbox,
    ) {
        let Some(lists) = &mut self.lists else { return };
        // One that broke, and had reported before, is lost.
        lists.entry(from).or_insert(found);
        if lists.len() < self.shards as usize {
            return;
        }
        let lists = self.lists.take().unwrap_or_default();
        let lost: Vec<u32> = lists.iter().filter(|(_, found)| found.is_none()).map(|(shard, _)| *shard).collect();
        let mut batches: BTreeMap<BatchId, Vec<(u32, FoundBatch)>> = BTreeMap::new();
        for (shard, found) in lists.into_iter().flat_map(|(shard, found)| Some((shard, found?))) {
            found.into_iter().for_each(|batch| batches.entry(batch.id).or_default().push((shard, batch)));
        }
        for (id, holders) in &batches {
            decide_found(*id, holders, &lost, coordinator, mail);
        }
        let highest = batches.keys().map(|id| id.number).max().unwrap_or(0);
        (0..self.shards).for_each(|shard| mail.send(shard, ToParticipant::Decided(highest)));
        self.is_part_lost = !lost.is_empty();
    }

    /// A shard is broken, perhaps before it reported what it found. If it is the one that decides,
    /// says so once all is read here: before that nobody may be served, and what is told then comes
    /// back with the word that the shard is broken.
    pub(super) fn peer_failed(&mut self, peer: u32, coordinator: &mut Coordinator, mail: &mut Mailbox) -> bool {
        self.participant_found(peer, None, coordinator, mail);
        let is_undecided = peer == 0 && self.phase == OpeningPhase::Told && !self.may_serve();
        if is_undecided {
            self.end();
        }
        is_undecided
    }
}

/// A batch is committed if every participant holds its prepare record or a commit-done record.
fn decide_found(
    id: BatchId,
    holders: &[(u32, FoundBatch)],
    lost: &[u32],
    coordinator: &mut Coordinator,
    mail: &mut Mailbox,
) {
    let found: Vec<_> =
        holders.iter().map(|(shard, found)| (*shard, &found.participants[..], found.is_prepare_record)).collect();
    let mut send = |shards: Vec<u32>, message: fn(BatchId) -> ToParticipant| {
        shards.into_iter().for_each(|shard| mail.send(shard, message(id)));
    };
    match record::decide(&found, lost) {
        BatchFate::InDoubt(holders) => send(holders, ToParticipant::InDoubt),
        BatchFate::Over(present) => send(present, ToParticipant::Forget),
        BatchFate::Aborted(holders) => send(holders, ToParticipant::Abort),
        BatchFate::Committed { holders, present } => {
            fault_point!("batch_dropped_at_opening", return send(holders, ToParticipant::Abort));
            fault_point!("matrix_batch_dropped_at_opening", return send(holders, ToParticipant::Abort));
            coordinator.resume(id, holders, present, mail);
        }
    }
}

/// How damage of such a record is reported.
pub fn damage(shard: u32, id: BatchId) -> Corruption {
    Corruption {
        place: Place { shard, offset_bytes: 0 },
        what: "prepare record",
        expected: "a prepare record that this shard can have logged".into(),
        found: format!("batch {:x} of shard {} says something else", id.number, id.coordinator),
    }
}
