//! Connections that another one has something for: which thread has to look at which of them.
//!
//! A thread adds connections while it serves its own, and asks after each round for those of its
//! own and for the threads that are to be rung. While there are none it costs one load.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::server::lock;
use crate::watch::Due;

/// A connection of the server: its thread, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionAddress {
    pub(crate) worker_slot: usize,
    pub(crate) connection: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    has_some: AtomicBool,
    threads: Mutex<Vec<ThreadCalls>>,
}

#[derive(Debug, Default)]
struct ThreadCalls {
    connections: Vec<u32>,
    /// The thread has been rung for them.
    is_rung: bool,
}

impl Calls {
    /// The thread of this connection is to look at it.
    pub(crate) fn add(&self, address: ConnectionAddress) {
        let mut threads = lock(&self.threads);
        if threads.len() <= address.worker_slot {
            threads.resize_with(address.worker_slot + 1, ThreadCalls::default);
        }
        if let Some(thread) = threads.get_mut(address.worker_slot) {
            thread.connections.push(address.connection);
        }
        self.has_some.store(true, Ordering::Release);
    }

    /// Whether a connection is to be looked at by its thread.
    pub(crate) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// The connections of the thread that asks, and the threads that are to be rung for others:
    /// each once.
    pub(crate) fn take(&self, worker_slot: usize) -> Due {
        let mut due = Due::default();
        let mut threads = lock(&self.threads);
        for (number, thread) in threads.iter_mut().enumerate() {
            if number == worker_slot {
                (due.here, thread.is_rung) = (std::mem::take(&mut thread.connections), false);
            } else if !thread.connections.is_empty() && !std::mem::replace(&mut thread.is_rung, true) {
                due.elsewhere.push(number);
            }
        }
        let has_some = threads.iter().any(|thread| !thread.connections.is_empty());
        self.has_some.store(has_some, Ordering::Release);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_gets_its_own_connections_and_is_rung_once_for_them() {
        let calls = Calls::default();
        assert!(!calls.has_some());
        for (worker_slot, connection) in [(0, 5), (2, 7), (2, 8)] {
            calls.add(ConnectionAddress { worker_slot, connection });
        }
        assert!(calls.has_some());
        assert_eq!(calls.take(0), Due { here: vec![5], elsewhere: vec![2] });
        assert_eq!(calls.take(0), Due { here: vec![], elsewhere: vec![] }, "it has been rung");
        assert!(calls.has_some(), "those of another thread wait");
        assert_eq!(calls.take(2), Due { here: vec![7, 8], elsewhere: vec![] });
        assert!(!calls.has_some());
        calls.add(ConnectionAddress { worker_slot: 2, connection: 9 });
        assert_eq!(calls.take(0), Due { here: vec![], elsewhere: vec![2] }, "for what is new it is rung again");
    }
}
