//! Backups while the store serves: pages of a snapshot, one after the other.

use std::ops::Bound;

use stratakv_base::Key;
use stratakv_engine::{Error, PageRequest, Reply};
use stratakv_pmem::Pmem;

use crate::matrix::Matrix;
use crate::scan::PageWork;

/// Records and bytes of a piece.
const PIECE_ITEMS: u32 = 1024;
const PIECE_BYTES: u32 = 1 << 20;

/// A backup under way.
#[derive(Debug)]
pub(crate) struct Backup {
    /// As whoever asks names it.
    cursor: u64,
    snapshot: u64,
    /// Where the next piece begins.
    from: Bound<Key>,
}

/// The one under way, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    open: Option<Backup>,
    /// The newest cursor that was seen: those of shard 0 only grow, so an older one is of a backup that has ended.
    newest: u64,
}

impl<P: Pmem> Matrix<P> {
    /// Begins a backup at shard 0; its cursor. One that is under way ends.
    pub(crate) fn begin_backup(&mut self) -> Reply {
        let snapshot = self.snapshot_for_backup(None);
        Reply::Number { number: snapshot, version: self.container.version() }
    }

    /// The shard's cut is where it is asked first. `cursor`: as shard 0 named it; its own is the snapshot's number.
    fn snapshot_for_backup(&mut self, cursor: Option<u64>) -> u64 {
        if let Some(Backup { snapshot, .. }) = self.backups.open.take() {
            self.let_snapshot_go(snapshot);
        }
        let snapshot = self.snapshots.open(self.container.version(), self.now.mono);
        let cursor = cursor.unwrap_or(snapshot);
        self.backups = Backups { open: Some(Backup { cursor, snapshot, from: Bound::Unbounded }), newest: cursor };
        snapshot
    }

    /// The next piece, as a page to be gathered.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`]: another backup was begun, or the snapshot of this one was closed.
    pub(crate) fn backup_piece(&mut self, cursor: u64) -> Result<PageWork, Error> {
        if self.config.shard != 0 && cursor > self.backups.newest {
            self.snapshot_for_backup(Some(cursor));
        }
        let known = self.backups.open.as_ref().filter(|backup| backup.cursor == cursor);
        let backup = known.ok_or(Error::NoSnapshot { id: cursor })?;
        let request = PageRequest {
            from: backup.from.clone(),
            to: Bound::Unbounded,
            reverse: false,
            keys_only: false,
            items_max: PIECE_ITEMS,
            bytes_max: PIECE_BYTES,
            at: Some(backup.snapshot),
        };
        let sight = self.sight_of(request.at)?;
        Ok(PageWork::new(request, sight).of_backup(cursor))
    }

    /// Lets go of a snapshot; where this is not shard 0, of that of a backup, which is named as shard 0 names it. Whether there was one.
    pub(crate) fn close_snapshot(&mut self, id: u64) -> bool {
        if self.config.shard == 0 {
            return self.let_snapshot_go(id);
        }
        self.backups.newest = self.backups.newest.max(id);
        let ended = self.backups.open.take_if(|backup| backup.cursor == id);
        ended.is_some_and(|backup| self.let_snapshot_go(backup.snapshot))
    }

    /// Closes one; what was kept for it may be worth a compaction. Whether there was one.
    fn let_snapshot_go(&mut self, snapshot: u64) -> bool {
        self.looked_at_installs = u64::MAX;
        self.wake_compaction();
        self.snapshots.close(snapshot)
    }

    /// A piece was gathered: the next one begins behind it, and after the last one the snapshot is let go.
    pub(crate) fn backup_went_on(&mut self, cursor: u64, reply: &Reply) {
        let (Some(backup), Reply::Page { next, .. }) = (&mut self.backups.open, reply) else { return };
        if backup.cursor != cursor {
            return;
        }
        match next {
            Some(next) => backup.from = next.clone(),
            None => {
                let snapshot = backup.snapshot;
                self.backups.open = None;
                self.let_snapshot_go(snapshot);
            }
        }
    }
}
