//! What a shard does for a barrier: it stops appending, then opens its snapshot and goes on.
//! Appends wait for two rounds of messages, no I/O.

use stratakv_chassis::batches::ToCoordinator;
use stratakv_chassis::batches::barriers::BarrierKind;
use stratakv_engine::{Effects, Operation, SnapshotOp, Token};
use stratakv_pmem::Pmem;

use crate::matrix::Matrix;

/// Whether an operation begins with a barrier.
pub(super) fn is_barrier(operation: &Operation) -> bool {
    matches!(operation, Operation::Snapshot(SnapshotOp::Open) | Operation::Backup { cursor: 0, .. })
}

impl<P: Pmem> Matrix<P> {
    pub(super) fn ask_barrier(&mut self, token: Token, operation: &Operation, effects: &mut Effects) {
        let is_backup = matches!(operation, Operation::Backup { .. });
        let kind = if is_backup { BarrierKind::Backup } else { BarrierKind::Snapshot };
        self.batches.last_barrier += 1;
        self.batches.commit.barriers.ask(token, self.batches.last_barrier, kind);
        effects.more();
    }

    /// Stops appending, if a barrier wants that.
    pub(super) fn step_barriers(&mut self, effects: &mut Effects) {
        let commit = &mut self.batches.commit;
        let Some(number) = commit.barriers.wanted() else { return };
        // A load becomes visible without an append.
        if self.compactor.load.is_none() {
            commit.barriers.pause(number, &mut commit.mail);
            effects.more();
        }
    }

    /// Every shard has stopped: this is the instant.
    pub(super) fn make_barrier(&mut self, number: u64, kind: BarrierKind) {
        if !self.batches.commit.barriers.pass(number) {
            return;
        }
        let version = self.container.version();
        let is_backup = kind == BarrierKind::Backup;
        let error = if is_backup { None } else { self.snapshots.has_room().err() };
        if error.is_none() {
            self.snapshots.open_as(number, version, self.life.mono());
        }
        if is_backup {
            self.begin_backup(number);
        }
        self.batches.commit.mail.send_when(version, 0, ToCoordinator::BarrierMade(number, error));
    }
}
