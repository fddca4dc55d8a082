//! Batches that this shard has logged and not applied: whether they are visible, and who has to see
//! them.
//!
//! A batch becomes visible in all shards at once, by a flag. So whoever reads one of its keys
//! afterwards waits until it is applied here, and so does whoever reads a range; others do not. A
//! write of one of its keys comes behind its prepare record.

use std::collections::{BTreeMap, HashSet};

use foldhash::HashMap;
use stratakv_base::{Key, Mono};
use stratakv_chassis::batches::VisibleFlag;
use stratakv_chassis::batches::prepare_record::BatchId;
use stratakv_engine::{Change, Effects, Error, Operation, Reply, Token};
use stratakv_pmem::Pmem;

use crate::matrix::Matrix;

/// When an operation that waits for a batch or for the opening is tried again.
const RETRY_NS: u64 = 100_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Publication {
    /// Batches that are logged, each with the flag that shows it.
    logged: BTreeMap<BatchId, VisibleFlag>,
    /// Batches that are visible and that this shard has had no room to apply yet.
    applying: HashSet<BatchId>,
    /// The keys of both.
    keys: HashMap<Key, BatchId>,
    /// Gets that wait for a batch, and pages that wait for all.
    gets: HashMap<BatchId, Vec<(Token, Operation)>>,
    pages: Vec<(Token, Operation)>,
    /// What waited and goes on.
    released: Vec<(Token, Operation)>,
}

/// What becomes of an operation in view of the batches.
pub(crate) enum ReadAdmission {
    /// It sees what it has to see.
    Begin(Operation),
    /// It goes on once a batch is applied.
    Waiting,
    /// It is to be tried again then.
    Later(Operation, Mono),
}

impl Publication {
    pub(super) fn is_idle(&self) -> bool {
        self.gets.is_empty() && self.pages.is_empty() && self.released.is_empty()
    }

    pub(super) fn log(&mut self, id: BatchId, visible: &VisibleFlag, changes: &[Change]) {
        self.logged.insert(id, visible.clone());
        self.keys.extend(changes.iter().map(|change| (change.key.clone(), id)));
    }

    /// It is being applied.
    pub(super) fn apply(&mut self, id: BatchId) {
        self.logged.remove(&id);
        self.applying.insert(id);
    }

    pub(super) fn is_applied(&self, id: BatchId) -> bool {
        self.applying.contains(&id)
    }

    /// It is applied, refused, or stuck: nobody waits for it.
    pub(super) fn complete(&mut self, id: BatchId, changes: &[Change]) {
        self.logged.remove(&id);
        self.applying.remove(&id);
        for change in changes {
            if self.keys.get(&change.key) == Some(&id) {
                self.keys.remove(&change.key);
            }
        }
        self.released.extend(self.gets.remove(&id).into_iter().flatten());
        if self.applying.is_empty() {
            self.released.append(&mut self.pages);
        }
    }

    /// Those that are visible, of one shard as their coordinator or of all.
    pub(super) fn visible(&self, coordinator: Option<u32>) -> Vec<BatchId> {
        let is_of = |id: &BatchId| coordinator.is_none_or(|shard| id.coordinator == shard);
        let visible = self.logged.iter().filter(|(id, visible)| is_of(id) && visible.is_set());
        visible.map(|(id, _)| *id).collect()
    }

    /// The batch that has this key, and whether that is visible and not being applied.
    fn of(&self, key: &Key) -> Option<(BatchId, bool)> {
        let id = self.keys.get(key).copied()?;
        Some((id, self.logged.get(&id).is_some_and(|visible| visible.is_set())))
    }

    /// Reads of those who have left.
    pub(crate) fn give_up(&mut self, has_left: &dyn Fn(Token) -> bool) -> Vec<Token> {
        let mut left = Vec::new();
        let mut leave = |waiting: &mut Vec<(Token, Operation)>| {
            left.extend(waiting.extract_if(.., |(token, _)| has_left(*token)).map(|(token, _)| token));
        };
        self.gets.values_mut().for_each(&mut leave);
        leave(&mut self.pages);
        self.gets.retain(|_, waiting| !waiting.is_empty());
        left
    }
}

impl<P: Pmem> Matrix<P> {
    /// Applies batches that are visible and that an operation has to see.
    pub(crate) fn publish_batches(
        &mut self,
        token: Token,
        operation: Operation,
        effects: &mut Effects,
    ) -> ReadAdmission {
        if !self.batches.commit.opening.may_serve() {
            return ReadAdmission::Later(operation, Mono(self.life.mono().0 + RETRY_NS));
        }
        if self.batches.publication.keys.is_empty() {
            return ReadAdmission::Begin(operation);
        }
        match &operation {
            Operation::Get { key, .. } => {
                let Some((id, is_due)) = self.batches.publication.of(key) else {
                    return ReadAdmission::Begin(operation);
                };
                if is_due {
                    self.apply(id, effects);
                }
                if !self.batches.publication.is_applied(id) {
                    return ReadAdmission::Begin(operation);
                }
                self.batches.publication.gets.entry(id).or_default().push((token, operation));
                ReadAdmission::Waiting
            }
            // They come behind its prepare record.
            Operation::Write { .. } | Operation::Update { .. } => ReadAdmission::Begin(operation),
            _ => self.publish_all(token, operation, effects),
        }
    }

    fn publish_all(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> ReadAdmission {
        for id in self.batches.publication.visible(None) {
            self.apply(id, effects);
        }
        if self.batches.publication.applying.is_empty() {
            return ReadAdmission::Begin(operation);
        }
        match operation {
            Operation::Page(_) => {
                self.batches.publication.pages.push((token, operation));
                ReadAdmission::Waiting
            }
            operation => ReadAdmission::Later(operation, Mono(self.life.mono().0 + RETRY_NS)),
        }
    }

    /// What waited for a batch goes on.
    pub(super) fn serve_released(&mut self, effects: &mut Effects) {
        for (token, operation) in std::mem::take(&mut self.batches.publication.released) {
            match self.publish_batches(token, operation, effects) {
                ReadAdmission::Begin(operation) => self.admit_operation(token, operation, effects),
                ReadAdmission::Waiting => {}
                // Reads alone wait here.
                ReadAdmission::Later(..) => effects.reply(token, Reply::Failed(Error::Busy)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Harness, UNIT_BYTES, config, found, get, page, put, value, write};

    /// Everything asked of the shard waited for every batch that was visible and not applied.
    #[test]
    fn who_has_nothing_to_do_with_a_batch_does_not_wait_for_it() {
        let mut harness = Harness::new(config(), 8 << 20, UNIT_BYTES);
        assert!(matches!(harness.ask(write(vec![put("a", value(1, 20)), put("b", value(2, 20))])), Reply::Done { .. }));
        let (id, changes) = (BatchId { number: 1, coordinator: 0 }, vec![put("b", value(3, 20))]);
        let publication = &mut harness.shard.batches.publication;
        let visible = VisibleFlag::default();
        visible.set();
        publication.log(id, &visible, &changes);
        // There is no room for it.
        publication.apply(id);
        let others = [get("a"), write(vec![put("c", value(4, 20))]), get("c"), write(vec![put("a", value(5, 20))])];
        for operation in others {
            let token = harness.submit(operation);
            harness.run_until_idle();
            assert!(harness.replies.remove(&token).is_some(), "it waits for a batch that has none of its keys");
        }
        let waiting = [harness.submit(get("b")), harness.submit(page(10, None))];
        harness.run_until_idle();
        assert!(harness.replies.is_empty(), "who has to see the batch does not wait for it");
        harness.shard.batches.publication.complete(id, &changes);
        harness.run_until_idle();
        let [get, page] = waiting.map(|token| harness.replies.remove(&token).expect("it goes on"));
        assert_eq!(found(&get), Some(value(2, 20).to_vec()));
        assert!(matches!(page, Reply::Page { items, .. } if items.len() == 3));
    }
}
