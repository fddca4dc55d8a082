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
    /// Its snapshot, the same number at every shard.
    cursor: u64,
    /// Where the next piece begins.
    from: Bound<Key>,
}

impl<P: Pmem> Matrix<P> {
    /// Begins a backup of this snapshot. One that is under way ends.
    pub(crate) fn begin_backup(&mut self, cursor: u64) {
        if let Some(Backup { cursor, .. }) = self.snapshots.backup.replace(Backup { cursor, from: Bound::Unbounded }) {
            self.let_snapshot_go(cursor);
        }
    }

    /// The next piece, as a page to be gathered.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`]: another backup was begun, or the snapshot of this one was closed.
    pub(crate) fn backup_piece(&mut self, cursor: u64) -> Result<PageWork, Error> {
        let known = self.snapshots.backup.as_ref().filter(|backup| backup.cursor == cursor);
        let backup = known.ok_or(Error::NoSnapshot { id: cursor })?;
        let request = PageRequest {
            from: backup.from.clone(),
            to: Bound::Unbounded,
            reverse: false,
            keys_only: false,
            items_max: PIECE_ITEMS,
            bytes_max: PIECE_BYTES,
            at: Some(backup.cursor),
        };
        let read_view = self.read_view_of(request.at)?;
        Ok(PageWork::new(request, read_view).of_backup(cursor))
    }

    /// Lets go of a snapshot, a backup's too. Whether there was one.
    pub(crate) fn close_snapshot(&mut self, id: u64) -> bool {
        self.snapshots.backup.take_if(|backup| backup.cursor == id);
        self.let_snapshot_go(id)
    }

    /// Closes one; what was kept for it may be worth a compaction. Whether there was one.
    fn let_snapshot_go(&mut self, snapshot: u64) -> bool {
        self.compactor.look_again();
        self.compactor.wake();
        self.snapshots.close(snapshot)
    }

    /// A piece was gathered: the next one begins behind it, and after the last one the snapshot is
    /// let go.
    pub(crate) fn backup_went_on(&mut self, cursor: u64, reply: &Reply) {
        let (Some(backup), Reply::Page { next, .. }) = (&mut self.snapshots.backup, reply) else { return };
        if backup.cursor != cursor {
            return;
        }
        match next {
            Some(next) => backup.from = next.clone(),
            None => {
                self.snapshots.backup = None;
                self.let_snapshot_go(cursor);
            }
        }
    }
}
