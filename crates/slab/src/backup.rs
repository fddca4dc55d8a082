//! Backups while the store serves: what each shard had at a consistent snapshot barrier, read in
//! pieces.
//!
//! At the barrier a shard notes its newest version: everything written up to there is its *cut*.
//! Shard 0 makes the barrier (`barriers.rs` of the chassis): it lets no batch begin until those
//! under way are completed and every shard has its cut, so a batch is in all cuts or in none. From
//! then on the keys are walked in order, and a record that a write is about to change is copied
//! before (the write reads it first, which most writes do anyhow). Nothing is pinned on the medium,
//! and no write waits for the backup as a whole. What was copied ahead is bounded: if nobody
//! fetches it, the backup fails, not the writes. Of each shard a few reads are in flight
//! (`scan.rs`), so that those of clients are not behind it.

use std::ops::Bound;

use foldhash::{HashMap, HashSet, HashSetExt};
use stratakv_base::{CollectionId, Key, fault_point};
use stratakv_engine::{Capability, Effects, Error, Item, PageRequest, Record, Reply, Token};

use crate::placement::Placement;
use crate::shard::IndexedShard;

/// Records and bytes of a piece.
const PIECE_ITEMS: u32 = 1024;
const PIECE_BYTES: u32 = 1 << 20;
/// What a key that is done with is counted at.
const KEY_BYTES: usize = 64;

/// The backup of a shard.
#[derive(Debug)]
pub(crate) struct Backup {
    id: u64,
    /// Versions up to this one are in it.
    cut: u64,
    /// Writes up to the cut that are not shown yet, by key: nothing is handed out before, for a
    /// crash may take them back.
    under_way: HashMap<Key, u32>,
    /// Keys from here on are not read yet.
    from: Bound<Key>,
    /// Beyond `from`, and done with: copied, or newer than the cut. Not all of them: it saves
    /// reading, nothing rests on it.
    ahead: HashSet<Key>,
    copied: Vec<Item>,
    copied_bytes: u64,
    /// Who waits for a piece.
    token: Option<Token>,
    is_walking: bool,
    failed: Option<Error>,
}

impl<P: Placement> IndexedShard<P> {
    /// Makes the cut: everything written so far, nothing later.
    pub(crate) fn pass_barrier(&mut self, id: u64, effects: &mut Effects) -> u64 {
        self.backup_failed(None, Error::Unknown("another backup was begun"), effects);
        self.backup = Some(Backup {
            id,
            cut: self.groups.counter,
            under_way: self.keys.changing().map(|(key, outstanding)| (key.clone(), outstanding)).collect(),
            from: Bound::Unbounded,
            ahead: HashSet::new(),
            copied: Vec::new(),
            copied_bytes: 0,
            token: None,
            is_walking: false,
            failed: None,
        });
        self.groups.counter
    }

    /// Up to which version the backup shows batches that are not applied; 0 without one.
    pub(crate) fn backup_cut(&self) -> u64 {
        self.backup.as_ref().map_or(0, |backup| backup.cut)
    }

    /// Asks for the next piece of a backup. The last one says that nothing is next.
    pub(crate) fn backup_piece(&mut self, token: Token, id: u64, effects: &mut Effects) {
        let Some(backup) = self.backup.as_mut().filter(|backup| backup.id == id && backup.token.is_none()) else {
            let error = Error::Unknown("there is no such backup: it failed or ended, or another was begun");
            return effects.reply(token, Reply::Failed(error));
        };
        backup.token = Some(token);
        self.step_backup(effects);
    }

    /// Goes on with a piece that somebody waits for.
    pub(crate) fn step_backup(&mut self, effects: &mut Effects) {
        let Some(backup) = &mut self.backup else { return };
        let error = backup.failed.clone().or_else(|| self.health.poisoned.map(Error::Poisoned));
        if let Some(error) = error {
            let token = backup.token;
            // Kept until somebody has been told.
            if let Some(token) = token {
                self.backup = None;
                effects.reply(token, Reply::Failed(error));
            }
            return;
        }
        if !backup.under_way.is_empty() || backup.is_walking {
            return;
        }
        if let Some(token) = backup.token {
            backup.is_walking = true;
            let request = PageRequest {
                from: backup.from.clone(),
                to: Bound::Unbounded,
                reverse: false,
                keys_only: false,
                items_max: PIECE_ITEMS,
                bytes_max: PIECE_BYTES,
                at: None,
            };
            let id = backup.id;
            self.scan_for_backup(id, token, request, effects);
        }
    }

    /// A write of a key is shown, or failed.
    pub(crate) fn backup_saw_end(&mut self, key: &Key) {
        let Some(backup) = self.backup.as_mut().filter(|backup| !backup.under_way.is_empty()) else { return };
        if let Some(left) = backup.under_way.get_mut(key) {
            *left -= 1;
            if *left == 0 {
                backup.under_way.remove(key);
            }
        }
    }

    /// A stretch of keys has been read for backup `id`: with what was copied before, it is the
    /// piece. `next` is the last key if there are more.
    pub(crate) fn backup_read(
        &mut self,
        id: u64,
        read: Vec<(Key, Option<Record>)>,
        next: Option<Key>,
        effects: &mut Effects,
    ) {
        // What an earlier one asked for, which this one replaced, is older than this one's cut.
        let current = |backup: &&mut Backup| backup.id == id;
        let Some(backup) = self.backup.as_mut().filter(current) else { return };
        let Some(token) = backup.token.take() else { return };
        backup.is_walking = false;
        if let Some(error) = &backup.failed {
            effects.reply(token, Reply::Failed(error.clone()));
            self.backup = None;
            return;
        }
        let (cut, ahead) = (backup.cut, &backup.ahead);
        let mut items = std::mem::take(&mut backup.copied);
        backup.copied_bytes = 0;
        let fresh = read.into_iter().filter_map(|(key, record)| Some((key, record?)));
        let fresh = fresh.filter(|(key, record)| record.version <= cut && !ahead.contains(key));
        items.extend(fresh.map(|(key, record)| Item { key, record: Some(record) }));
        match next {
            Some(last) => {
                backup.ahead.retain(|key| *key > last);
                backup.from = Bound::Excluded(last);
                effects.reply(token, Reply::Page { items, next: Some(backup.from.clone()) });
            }
            None => {
                self.backup = None;
                effects.reply(token, Reply::Page { items, next: None });
            }
        }
    }

    /// The backup (this one, if `id` names one) fails: a stretch of keys cannot be read, or it must
    /// end.
    pub(crate) fn backup_failed(&mut self, id: Option<u64>, error: Error, effects: &mut Effects) {
        if id.is_some_and(|id| self.backup.as_ref().is_none_or(|backup| backup.id != id)) {
            return;
        }
        if let Some(token) = self.backup.take().and_then(|backup| backup.token) {
            effects.reply(token, Reply::Failed(error));
        }
    }

    /// Whether a record must be copied before it is changed.
    pub(crate) fn backup_wants(&self, key: &Key) -> bool {
        let Some(backup) = &self.backup else { return false };
        // Prepare records and commit-done records are no part of it.
        if key.collection() == CollectionId::ENGINE {
            return false;
        }
        fault_point!("backup_without_copies", return false);
        let passed = matches!(&backup.from, Bound::Excluded(last) if key <= last);
        backup.failed.is_none() && !passed && !backup.ahead.contains(key)
    }

    /// The record of a key that is about to be changed; or, if it cannot be read, nothing.
    pub(crate) fn copy_for_backup(&mut self, key: &Key, record: Option<Record>) {
        let limit_bytes = self.config.memory_bytes / 4;
        let Some(backup) = &mut self.backup else { return };
        backup.ahead.insert(key.clone());
        if let Some(record) = record.filter(|record| record.version <= backup.cut) {
            backup.copied_bytes += record.value.len() + key.encoded().len() as u64;
            backup.copied.push(Item { key: key.clone(), record: Some(record) });
        }
        // What is forgotten is read once more before its next write, and found to be newer than the
        // cut.
        if (backup.ahead.len() * KEY_BYTES) as u64 > limit_bytes / 2 {
            backup.ahead = HashSet::from_iter([key.clone()]);
        }
        if backup.copied_bytes > limit_bytes / 2 && backup.copied.len() != 1 {
            tracing::warn!(shard = self.config.shard, "a backup was overtaken by writes and fails");
            backup.failed =
                Some(Error::Unknown("writes overtook the backup: fetch it faster, or give the store more memory"));
            (backup.copied, backup.ahead) = (Vec::new(), HashSet::new());
        }
    }

    /// Begins a backup of the whole store; only shard 0 can.
    pub(crate) fn begin_backup(&mut self, token: Token, effects: &mut Effects) {
        if self.config.shard != 0 {
            return effects.reply(token, Reply::Failed(Error::Unsupported(Capability::Backup)));
        }
        let id = self.next_number();
        self.begin_barriers(id, token);
    }
}
