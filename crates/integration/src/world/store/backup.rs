//! Backups: each shard's piece of one must be what the shard held at one moment while the backup was begun.

use std::collections::BTreeMap;

use stratakv::{EngineRecord, Key, Operation, RecordPart, Reply};
use stratakv_engine::Error;
use stratakv_sim::linearizability::Entry;

use super::Run;
use super::client::owned;

/// A backup that is being made.
pub(super) struct Backing {
    invoked: u64,
    /// When the cuts were made, and which backup it is.
    begun: Option<(u64, u64)>,
    shard: u32,
    records: BTreeMap<Key, EngineRecord>,
}

impl Backing {
    pub(super) fn begun(invoked: u64) -> Backing {
        Backing { invoked, begun: None, shard: 0, records: BTreeMap::new() }
    }
}

impl Run {
    /// What to ask for next. At the end every key becomes a read that was made while the cuts were.
    pub(super) fn backup_answered(&mut self, reply: Reply) -> Result<Option<Operation>, String> {
        self.statistics.answered += 1;
        self.in_doubt -= 1;
        let now = self.tick();
        let Some(backing) = &mut self.backup else { return Ok(None) };
        let next = match owned(reply) {
            Reply::Number { number, .. } if backing.begun.is_none() => {
                backing.begun = Some((now, number));
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
            // Closed, or overtaken.
            Reply::Failed(Error::Closed | Error::Unknown(_) | Error::Busy) => {
                self.backup = None;
                return Ok(None);
            }
            other => return Err(format!("a backup was answered {other:?}")),
        };
        match (next, backing.begun) {
            (true, Some((_, cursor))) => Ok(Some(Operation::Backup { cursor, shard: backing.shard })),
            _ => {
                self.backup_ended();
                Ok(None)
            }
        }
    }

    fn backup_ended(&mut self) {
        let Some(Backing { invoked, begun: Some((returned, _)), mut records, .. }) = self.backup.take() else { return };
        self.statistics.backups += 1;
        for key in self.requests.keys().to_vec() {
            let reply = Some(Reply::Record(records.remove(&key)));
            let operation = Operation::Get { key, part: RecordPart::Whole };
            self.history.entries.push(Entry { client: 2, invoked, returned: Some(returned), operation, reply });
        }
    }
}
