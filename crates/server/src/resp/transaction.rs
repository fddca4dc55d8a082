//! A transaction that a client is putting together: commands between MULTI and EXEC.

use std::sync::Arc;

use stratakv_base::Key;

use super::data::DataCommand;
use super::watching::SharedWatchList;
use crate::server::lock;

/// What a command takes beside its arguments.
const COMMAND_BYTES: usize = 128;

/// Commands that were queued.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) commands: Vec<Arc<DataCommand>>,
    /// Those of all commands, some more than once.
    pub(crate) keys: Vec<Key>,
    /// One was refused: none will be carried out.
    pub(crate) is_refused: bool,
    bytes: usize,
}

impl Queue {
    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, command: DataCommand, keys: Vec<Key>) {
        let keys_bytes: usize = keys.iter().map(|key| size_of::<Key>() + key.user().len()).sum();
        self.bytes += command.held_bytes() + COMMAND_BYTES + keys_bytes;
        self.commands.push(Arc::new(command));
        self.keys.extend(keys);
    }

    /// A command was refused: what was queued will not be needed.
    pub(crate) fn refuse(&mut self) {
        *self = Queue { is_refused: true, ..Queue::default() };
    }
}

/// What a client has of transactions.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// After MULTI.
    pub(crate) queue: Option<Queue>,
    /// What it watches; `None`: nothing.
    watched: Option<SharedWatchList>,
    /// Keys that were named, and their bytes.
    watched_keys: usize,
    watched_bytes: usize,
}

impl Transaction {
    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::held_bytes) + self.watched_bytes
    }

    /// A command after MULTI was refused.
    pub(crate) fn refuse(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.refuse();
        }
    }

    /// Keys that it watches, or more.
    pub(crate) fn watched_keys(&self) -> usize {
        self.watched_keys
    }

    /// These keys are watched too; those of them that were not yet.
    pub(crate) fn watch(&mut self, keys: &mut Vec<Key>) -> SharedWatchList {
        if let Some(watched) = &self.watched {
            let watched = lock(watched);
            keys.retain(|key| !watched.has(key));
        }
        let bytes: usize = keys.iter().map(|key| COMMAND_BYTES + key.user().len()).sum();
        self.watched_keys += keys.len();
        self.watched_bytes += bytes;
        Arc::clone(self.watched.get_or_insert_default())
    }

    /// Nothing is watched any more; what was.
    pub(crate) fn take_watched(&mut self) -> Option<SharedWatchList> {
        (self.watched_keys, self.watched_bytes) = (0, 0);
        self.watched.take()
    }
}
