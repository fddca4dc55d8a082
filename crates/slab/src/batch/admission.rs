//! Lets batches in.

use stratakv_base::Level;
use stratakv_base::limits::{SHARDS_MAX, VALUE_BYTES_MAX};
use stratakv_chassis::batches::barriers::BarrierKind;
use stratakv_engine::{Capability, Change, ChangeKind, Effects, Error, Reply, Stage, Token};

use super::record;
use crate::health::read_only;
use crate::placement::Placement;
use crate::shard::IndexedShard;

/// Most bytes of a batch: each prepare record is one record.
const BYTES_MAX: usize = VALUE_BYTES_MAX - 16 - 4 * SHARDS_MAX;

impl<P: Placement> IndexedShard<P> {
    /// Takes a batch: of keys of this shard alone, or, if it is shard 0, of any.
    pub(crate) fn accept_batch(&mut self, token: Token, changes: Vec<Change>, level: Level, effects: &mut Effects) {
        if let Some(error) = self.batch_error(&changes, level) {
            return effects.reply(token, Reply::Failed(error));
        }
        effects.enter(token, Stage::Batch);
        let commit = &mut self.batches.commit;
        if changes.iter().all(|change| commit.rules().owner(&change.key) == self.config.shard) {
            commit.begin_here(token, changes, &mut self.groups.counter);
        } else if self.config.shard == 0 {
            commit.submit(token, changes, &mut self.groups.counter);
        } else {
            let error = Error::BadBatch("it is of several shards, and was not given to shard 0");
            effects.reply(token, Reply::Failed(error));
        }
    }

    /// Shard 0: asks every shard for a barrier of this number, for a backup.
    pub(crate) fn begin_barriers(&mut self, number: u64, token: Token) {
        self.batches.commit.barriers.ask(token, number, BarrierKind::Backup);
    }

    fn batch_error(&self, changes: &[Change], level: Level) -> Option<Error> {
        if level == Level::Memory {
            return Some(Error::Unsupported(Capability::Level));
        }
        if self.config.read_only && !changes.iter().all(|change| matches!(change.kind, ChangeKind::Check)) {
            return Some(read_only());
        }
        let value_len = |change: &Change| match &change.kind {
            ChangeKind::Put { value, .. } => value.len(),
            ChangeKind::Delete | ChangeKind::Check => 0,
        };
        if let Some(len) = changes.iter().map(value_len).find(|len| *len > VALUE_BYTES_MAX) {
            return Some(Error::ValueTooLarge { len_bytes: len as u64, max_bytes: VALUE_BYTES_MAX as u64 });
        }
        record::batch_error(changes, record::CHANGE_BYTES, BYTES_MAX as u64)
    }
}
