//! A model of a store of some shards under [`TwoPhaseCommit`]: batches, refusals, shards that break
//! and crashes are drawn from seeds. Every batch is whole at all its shards or nowhere, and
//! everybody is answered once, as it came.

use std::collections::{BTreeMap, BTreeSet};

use crate::batches::prepare_record::{self as record, Kept};
use stratakv_base::CollectionId;
use stratakv_base::random::Random;
use stratakv_engine::{ChangeKind, Expect};

use super::*;

const SHARDS: u32 = 4;

/// What a shard's medium holds.
#[derive(Clone, Default)]
struct Medium {
    records: BTreeMap<BatchId, Kept>,
    /// Batches whose changes are applied here.
    applied: BTreeSet<BatchId>,
}

struct ModelShard {
    commit: TwoPhaseCommit,
    /// Those under way, of which nothing is on the medium.
    prepares: BTreeMap<BatchId, Prepare>,
    counter: u64,
    is_broken: bool,
}

struct Store {
    rng: Random,
    as_matrix: bool,
    shards: Vec<ModelShard>,
    media: Vec<Medium>,
    /// Messages in flight: in order from one shard to another.
    wires: BTreeMap<(u32, u32), VecDeque<BatchMessage>>,
    tokens: u32,
    /// The participants of all batches that began.
    participants: BTreeMap<BatchId, Vec<u32>>,
    replies: BTreeMap<u32, Reply>,
    unanswered: BTreeSet<u32>,
}

fn rules(shard: u32, as_matrix: bool) -> BatchRules {
    BatchRules {
        shard,
        shards: SHARDS,
        read_only: false,
        locks_first: as_matrix,
        replies_when_decided: !as_matrix,
        barriers_pause: as_matrix,
    }
}

impl Store {
    fn new(seed: u64) -> Store {
        let mut rng = Random::new(seed);
        let as_matrix = rng.below(2) == 0;
        let media = vec![Medium::default(); SHARDS as usize];
        let mut store = Store {
            rng,
            as_matrix,
            shards: Vec::new(),
            media,
            wires: BTreeMap::new(),
            tokens: 0,
            participants: BTreeMap::new(),
            replies: BTreeMap::new(),
            unanswered: BTreeSet::new(),
        };
        store.open(0);
        store
    }

    /// After a crash, or for the first time. Numbers do not repeat.
    fn open(&mut self, counter: u64) {
        (self.wires, self.unanswered) = (BTreeMap::new(), BTreeSet::new());
        self.shards = (0..SHARDS).map(|shard| self.opened(shard, counter)).collect();
    }

    fn opened(&self, shard: u32, counter: u64) -> ModelShard {
        let rules = rules(shard, self.as_matrix);
        let records = &self.media[shard as usize].records;
        let mut commit = TwoPhaseCommit::new(rules, Opening::new(&rules, records.is_empty()));
        for (id, kept) in records {
            assert!(commit.opening.note(&rules, *id, Some(&record::encode(kept)), |_| true).is_some());
        }
        commit.opening.tell(true, &mut commit.mail);
        ModelShard { commit, prepares: BTreeMap::new(), counter, is_broken: false }
    }

    fn submit(&mut self) {
        let mut keys: Vec<u64> = (0..1 + self.rng.below(5)).map(|_| self.rng.below(24)).collect();
        keys.sort_unstable();
        keys.dedup();
        let change = |key: u64, is_check: bool| Change {
            key: Key::bound(CollectionId(300), &key.to_be_bytes()),
            expect: Expect::Any,
            kind: if is_check { ChangeKind::Check } else { ChangeKind::Delete },
        };
        let changes: Vec<Change> = keys.into_iter().map(|key| change(key, self.rng.below(4) == 0)).collect();
        self.tokens += 1;
        self.unanswered.insert(self.tokens);
        let token = Token { slot: self.tokens, generation: 0 };
        let ModelShard { commit, counter, .. } = &mut self.shards[0];
        if self.rng.below(12) == 0 {
            *counter += 1;
            commit.barriers.ask(token, *counter, barriers::BarrierKind::Backup);
        } else {
            commit.submit(token, changes, counter);
        }
    }

    /// A shard takes one message that came to it, and acts.
    fn tick(&mut self, shard: u32) {
        let at = shard as usize;
        if self.shards[at].is_broken {
            return;
        }
        let from = self.rng.below(u64::from(SHARDS)) as u32;
        if let Some(message) = self.wires.get_mut(&(from, shard)).and_then(VecDeque::pop_front) {
            self.shards[at].commit.mail.inbox.push_back((from, message));
        }
        let ModelShard { commit, counter, .. } = &mut self.shards[at];
        let Some(step) = commit.next(counter) else { return self.after(shard) };
        match step {
            CommitStep::Reply { token, reply, .. } => {
                assert!(self.unanswered.remove(&token.slot), "who is answered was not answered before");
                self.replies.insert(token.slot, reply);
            }
            CommitStep::Participant(message) => self.participate(shard, message),
        }
        self.after(shard);
    }

    fn participate(&mut self, shard: u32, message: ToParticipant) {
        let at = shard as usize;
        if let ToParticipant::Prepare(prepare) = &message {
            self.participants.insert(prepare.id, prepare.participants.to_vec());
        }
        match message {
            ToParticipant::Prepare(prepare) if self.rng.below(8) == 0 => {
                let refused = ToCoordinator::Refused(prepare.id, Reply::Failed(Error::Busy));
                self.shards[at].commit.mail.send(prepare.id.coordinator, refused);
            }
            ToParticipant::Prepare(prepare) => {
                let (id, waits) = (prepare.id, prepare.waits);
                self.shards[at].prepares.insert(id, prepare);
                match waits {
                    true => self.shards[at].commit.mail.send(id.coordinator, ToCoordinator::Locked(id)),
                    false => self.log(shard, id),
                }
            }
            ToParticipant::Log(id) => self.log(shard, id),
            ToParticipant::Commit(id) => self.commit(shard, id),
            ToParticipant::Abort(id) => {
                self.shards[at].prepares.remove(&id);
                let erased = self.media[at].records.remove(&id);
                assert!(!matches!(erased, Some(Kept::Resolved { .. })), "what was applied is not aborted");
            }
            ToParticipant::Forget(id) => {
                let forgotten = self.media[at].records.remove(&id);
                assert!(matches!(forgotten, Some(Kept::Resolved { .. })), "what is forgotten is applied");
            }
            ToParticipant::Barrier(number) => self.shards[at].commit.barriers.want(number),
            ToParticipant::MakeBarrier(number, _) => {
                assert!(self.shards[at].commit.barriers.pass(number));
                self.shards[at].commit.mail.send(0, ToCoordinator::BarrierMade(number, None));
            }
            ToParticipant::InDoubt(_) => panic!("every shard could be read"),
            ToParticipant::Decided(_) | ToParticipant::DropBarrier(_) => {}
        }
    }

    fn log(&mut self, shard: u32, id: BatchId) {
        let Some(prepare) = self.shards[shard as usize].prepares.get(&id) else { return };
        let (participants, changes) = (prepare.participants.to_vec(), prepare.changes.clone());
        let last = prepare.last.map(|_| LastChange { version: id.number, existed: true });
        self.media[shard as usize]
            .records
            .insert(id, Kept::PrepareRecord { participants, version: id.number, changes });
        let mail = &mut self.shards[shard as usize].commit.mail;
        mail.send(id.coordinator, ToCoordinator::Prepared(id, last.filter(|_| !self.as_matrix)));
    }

    fn commit(&mut self, shard: u32, id: BatchId) {
        let at = shard as usize;
        let prepare = self.shards[at].prepares.remove(&id);
        let Some(Kept::PrepareRecord { participants, .. }) = self.media[at].records.get(&id) else {
            assert!(prepare.is_some_and(|prepare| !prepare.participants.contains(&shard)), "it logged, or only checks");
            return;
        };
        let participants = participants.clone();
        self.media[at].applied.insert(id);
        let completion = if participants.len() == 1 && !self.as_matrix {
            self.media[at].records.remove(&id);
            Completion::Erased
        } else {
            self.media[at].records.insert(id, Kept::Resolved { participants });
            Completion::CommitDone
        };
        let is_last = prepare.is_some_and(|prepare| prepare.last.is_some());
        let last = LastChange { version: id.number, existed: true };
        let completed = ToCoordinator::Completed(id, completion, (is_last && self.as_matrix).then_some(last));
        self.shards[at].commit.mail.send(id.coordinator, completed);
    }

    /// Barriers, and what the shard sends.
    fn after(&mut self, shard: u32) {
        let as_matrix = self.as_matrix;
        let ModelShard { commit, prepares, .. } = &mut self.shards[shard as usize];
        if let Some(number) = commit.barriers.wanted() {
            assert!(prepares.is_empty(), "a barrier lies between batches");
            if as_matrix {
                commit.barriers.pause(number, &mut commit.mail);
            } else {
                commit.barriers.pass(number);
                commit.mail.send(0, ToCoordinator::BarrierMade(number, None));
            }
        }
        for (_, to, message) in std::mem::take(&mut self.shards[shard as usize].commit.mail.outgoing) {
            if self.shards[to as usize].is_broken {
                self.hear_of_broken(shard, to);
            } else {
                self.wires.entry((shard, to)).or_default().push_back(message);
            }
        }
    }

    fn hear_of_broken(&mut self, shard: u32, broken: u32) {
        let error = self.as_matrix.then_some(Error::Busy);
        assert!(!self.shards[shard as usize].commit.peer_failed(broken, error), "shard 0 does not break here");
    }

    fn break_one(&mut self) {
        let broken = 1 + self.rng.below(u64::from(SHARDS) - 1) as u32;
        self.shards[broken as usize].is_broken = true;
        self.wires.retain(|(from, to), _| *from != broken && *to != broken);
        (0..SHARDS).filter(|shard| *shard != broken).for_each(|shard| self.hear_of_broken(shard, broken));
    }

    fn is_idle(&self) -> bool {
        let mut running = self.shards.iter().filter(|shard| !shard.is_broken);
        running.all(|shard| shard.commit.is_idle()) && self.wires.values().all(VecDeque::is_empty)
    }

    fn run(&mut self, ticks: u64) {
        for _ in 0..ticks {
            let shard = self.rng.below(u64::from(SHARDS)) as u32;
            self.tick(shard);
        }
    }

    fn run_until_idle(&mut self) {
        for _ in 0..200_000 {
            if self.is_idle() {
                return;
            }
            self.run(8);
        }
        panic!("somebody waits for ever: {:?}", self.unanswered);
    }

    fn crash(&mut self) {
        let counter = self.shards[0].counter;
        self.open(counter);
        self.run_until_idle();
        assert!(self.media.iter().all(|medium| medium.records.is_empty()), "an opening leaves no record");
        for id in self.media.iter().flat_map(|medium| &medium.applied) {
            let at = |shard: &u32| self.media[*shard as usize].applied.contains(id);
            let participants = self.media.iter().filter(|medium| medium.applied.contains(id)).count();
            assert!(self.participants[id].iter().all(at), "{id:?} is applied at {participants} shards, not at all");
        }
    }
}

fn story(seed: u64) {
    let mut store = Store::new(seed);
    for _ in 0..3 {
        store.run_until_idle();
        for _ in 0..2 + store.rng.below(12) {
            store.submit();
            let ticks = store.rng.below(30);
            store.run(ticks);
        }
        if store.rng.below(3) == 0 {
            store.break_one();
        }
        if store.rng.below(2) == 0 {
            store.run_until_idle();
            assert!(store.unanswered.is_empty(), "everybody is answered: {:?}", store.unanswered);
        }
        store.crash();
    }
}

#[test]
fn a_batch_is_whole_everywhere_or_nowhere_and_everybody_is_answered_once() {
    for seed in 0..400 {
        story(seed);
    }
}
