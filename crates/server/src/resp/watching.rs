//! WATCH: the versions of records at the time a client looked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use stratakv_base::Key;
use stratakv_engine::{Operation, RecordPart, Reply};
use stratakv_protocol::resp::encode;

use super::reply::written;
use super::work::{Asked, WorkContext, error_of};
use crate::connection::Target;
use crate::server::lock;

/// What a client watches: shared by its session, the WATCH that looks and the EXEC that asks.
pub(crate) type SharedWatchList = Arc<Mutex<WatchList>>;

/// See [`SharedWatchList`].
#[derive(Debug, Default)]
pub(crate) struct WatchList {
    /// The versions of their records, `None` where there was none.
    versions: BTreeMap<Key, Option<u64>>,
    /// Of a key it could not be told: no transaction may take it for unchanged.
    has_failed: bool,
}

impl WatchList {
    /// The watched keys.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.versions.keys().cloned().collect()
    }

    /// Whether a key's record, if the key is watched, is still the one that was seen.
    pub(super) fn is_unchanged(&self, key: &Key, version: Option<u64>) -> bool {
        self.versions.get(key).is_none_or(|seen| *seen == version)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }
}

/// A WATCH under way: key after key.
#[derive(Clone, Debug)]
pub(crate) struct WatchWork {
    keys: Vec<Key>,
    at: usize,
    list: SharedWatchList,
}

impl WatchWork {
    pub(crate) fn new(keys: Vec<Key>, list: SharedWatchList) -> WatchWork {
        WatchWork { keys, at: 0, list }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.keys.iter().map(|key| size_of::<Key>() + key.user().len()).sum()
    }

    pub(crate) fn ask(&self, asked: &mut Asked) -> Option<Vec<u8>> {
        match self.keys.get(self.at) {
            Some(key) => {
                asked.push((Target::Key, Operation::Get { key: key.clone(), part: RecordPart::Meta }));
                None
            }
            None => Some(written(|out| encode::simple(out, "OK"))),
        }
    }

    pub(crate) fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        let Some(key) = self.keys.get(self.at) else { return self.ask(asked) };
        match reply {
            Reply::Record(record) => {
                // The first look counts.
                let version = record.map(|record| record.version);
                lock(&self.list).versions.entry(key.clone()).or_insert(version);
            }
            reply => {
                lock(&self.list).has_failed = true;
                let Reply::Failed(error) = reply else { return Some(written(|out| encode::simple(out, "OK"))) };
                return Some(error_of(&error, false, context));
            }
        }
        self.at += 1;
        self.ask(asked)
    }
}
