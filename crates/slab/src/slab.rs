//! Types the other crates code against while the engine is being written.
use stratakv_engine::*;

use crate::config::*;

/// Creates or recovers a [`Slab`].
#[derive(Debug)]
pub enum SlabOpener {
    /// Lays out a new volume.
    Create(SlabConfig),
    /// Opens an existing one.
    Recover(SlabConfig),
}

impl SlabOpener {
    /// Lays out a new volume.
    pub fn create(config: SlabConfig) -> SlabOpener {
        SlabOpener::Create(config)
    }
    /// Opens an existing volume.
    pub fn recover(config: SlabConfig) -> SlabOpener {
        SlabOpener::Recover(config)
    }
}

/// One shard of a slab store.
#[derive(Debug)]
pub struct Slab {
    report: RecoveryReport,
}

impl Slab {
    /// What recovery found.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }
    /// In-memory accounting.
    pub fn check(&self) -> CheckReport {
        CheckReport::default()
    }
}

impl Opener for SlabOpener {
    type Shard = Slab;
    fn start(&mut self, _: &mut Effects) {}
    fn complete(&mut self, _: Io, _: Outcome, _: &mut Effects) {}
    fn progress(&self) -> Progress {
        Progress::default()
    }
    fn is_finished(&self) -> bool {
        true
    }
    fn finish(self) -> Result<Slab, Error> {
        Err(Error::Closed)
    }
}

impl Shard for Slab {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, snapshot: false, durable: true, evicting: false }
    }
    fn room(&self) -> Room {
        Room { reads: 0, writes: 0, write_bytes: 0 }
    }
    fn accept(&mut self, _: Token, operation: Operation, _: &mut Effects) -> Result<(), Operation> {
        Err(operation)
    }
    fn complete(&mut self, _: Io, _: Outcome, _: &mut Effects) {}
    fn message(&mut self, _: ShardId, _: Message, _: &mut Effects) {}
    fn turn_end(&mut self, _: Budget, _: &mut Effects) {}
    fn cancel(&mut self, _: Token) {}
    fn close(&mut self, _: &mut Effects) {}
    fn is_closed(&self) -> bool {
        false
    }
    fn statistics(&self, _: &mut Vec<Statistic>) {}
}
