//! Backups: every key in one must be as a read would have found it while the backup was made. (That
//! each shard's part is a cut, tests on real threads see.)

use std::collections::BTreeMap;

use stratakv::raw::{EngineRecord, Operation, RecordPart, Reply};
use stratakv::{Engine, Key};
use stratakv_engine::Error;
use stratakv_sim::linearizability::HistoryEntry;

use super::Run;
use super::client::owned;

/// A backup that is being made.
pub(super) struct Backing {
    invoked: u64,
    /// Which backup it is, once the cuts are made.
    cursor: Option<u64>,
    shard: u32,
    records: BTreeMap<Key, EngineRecord>,
}

impl Backing {
    pub(super) fn begun(invoked: u64) -> Backing {
        Backing { invoked, cursor: None, shard: 0, records: BTreeMap::new() }
    }
}

impl Run {
    /// What to ask for next. At the end every key becomes a read that was made meanwhile: writes
    /// that were under way at the cut are in it, and shown a little later.
    pub(super) fn backup_answered(&mut self, reply: Reply) -> Result<Option<Operation>, String> {
        self.statistics.answered += 1;
        self.in_doubt -= 1;
        let now = self.tick();
        let Some(backing) = &mut self.backup else { return Ok(None) };
        let next = match owned(reply) {
            Reply::Number { number, .. } if backing.cursor.is_none() => {
                backing.cursor = Some(number);
                true
            }
            Reply::Page { items, next } => {
                for item in items {
                    let Some(record) = item.record else { return Err("a backup holds a key without a record".into()) };
                    if backing.records.insert(item.key.clone(), record).is_some() {
                        return Err(format!("a backup holds {:?} twice", item.key));
                    }
                }
                backing.shard += u32::from(next.is_none());
                next.is_some() || backing.shard < self.host.setup.shards
            }
            // What was kept for it took the last room.
            Reply::Failed(Error::NoSnapshot { .. }) if self.host.setup.engine == Engine::Matrix => {
                self.backup = None;
                return Ok(None);
            }
            // Closed, or overtaken.
            Reply::Failed(Error::Closed | Error::Unknown(_) | Error::Busy) => {
                self.backup = None;
                return Ok(None);
            }
            other => return Err(format!("a backup was answered {other:?}")),
        };
        match (next, backing.cursor) {
            (true, Some(cursor)) => Ok(Some(Operation::Backup { cursor, shard: backing.shard })),
            _ => {
                self.backup_ended(now);
                Ok(None)
            }
        }
    }

    fn backup_ended(&mut self, returned: u64) {
        let Some(Backing { invoked, cursor: Some(_), mut records, .. }) = self.backup.take() else { return };
        self.statistics.backups += 1;
        for key in self.requests.keys().to_vec() {
            let reply = Some(Reply::Record(records.remove(&key)));
            let operation = Operation::Get { key, part: RecordPart::Whole };
            self.history.entries.push(HistoryEntry { client: 2, invoked, returned: Some(returned), operation, reply });
        }
    }
}
