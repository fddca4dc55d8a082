//! Turns of commands on one long structure: they follow each other in the order in which they came,
//! so that none is repeated because another one was faster.
//!
//! Nobody waits in here. A command that has to wait does nothing; when its turn comes, its thread
//! is told. Whoever has a turn waits for disks only, never for memory or for a client. A turn is
//! over when what stands for it is dropped, whatever becomes of its command.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::server::lock;

/// Which command waits: its thread, its connection there, and its place in that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnWaiter {
    pub(crate) worker_slot: usize,
    pub(crate) connection: u32,
    pub(crate) sequence: u32,
}

/// The turn of a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnGrant {
    pub(crate) waiter: TurnWaiter,
    /// Of the turn: a connection of the same number may be another one.
    pub(crate) ticket: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct KeyTurns {
    turns: Mutex<Turns>,
    /// Grants of which threads are to be told.
    untold: AtomicUsize,
}

#[derive(Debug, Default)]
struct Turns {
    /// By the hash of a key: who has the turn, then who waits. Equal hashes only make commands
    /// wait.
    queues: HashMap<u64, VecDeque<TurnGrant>>,
    last_ticket: u64,
    granted: Vec<TurnGrant>,
}

/// A turn, or a place among those that wait for it.
#[derive(Debug)]
pub(crate) struct KeyTurn {
    turns: Arc<KeyTurns>,
    key: u64,
    ticket: u64,
}

impl KeyTurn {
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }
}

impl Drop for KeyTurn {
    fn drop(&mut self) {
        self.turns.leave(self.key, self.ticket);
    }
}

impl KeyTurns {
    /// Takes the turn of a key, or waits for it; whether it has come.
    pub(crate) fn take(self: &Arc<KeyTurns>, key: u64, waiter: TurnWaiter) -> (KeyTurn, bool) {
        let mut turns = lock(&self.turns);
        turns.last_ticket += 1;
        let ticket = turns.last_ticket;
        let queue = turns.queues.entry(key).or_default();
        queue.push_back(TurnGrant { waiter, ticket });
        (KeyTurn { turns: Arc::clone(self), key, ticket }, queue.len() == 1)
    }

    fn leave(&self, key: u64, ticket: u64) {
        let mut turns = lock(&self.turns);
        let Some(queue) = turns.queues.get_mut(&key) else { return };
        let had_turn = queue.front().is_some_and(|first| first.ticket == ticket);
        queue.retain(|waiting| waiting.ticket != ticket);
        match queue.front().copied() {
            Some(next) if had_turn => {
                turns.granted.push(next);
                self.untold.store(turns.granted.len(), Ordering::Release);
            }
            Some(_) => {}
            None => _ = turns.queues.remove(&key),
        }
    }

    /// Turns that have come to commands of this thread, and other threads that have some.
    pub(crate) fn take_granted(&self, worker_slot: usize) -> (Vec<TurnGrant>, Vec<usize>) {
        if self.untold.load(Ordering::Acquire) == 0 {
            return (Vec::new(), Vec::new());
        }
        let mut turns = lock(&self.turns);
        let all = std::mem::take(&mut turns.granted);
        let (here, elsewhere) = all.into_iter().partition(|grant| grant.waiter.worker_slot == worker_slot);
        turns.granted = elsewhere;
        self.untold.store(turns.granted.len(), Ordering::Release);
        let mut others: Vec<usize> = turns.granted.iter().map(|grant| grant.waiter.worker_slot).collect();
        others.sort_unstable();
        others.dedup();
        (here, others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_order_and_go_with_their_commands() {
        let turns = Arc::new(KeyTurns::default());
        let waiter = |connection| TurnWaiter { worker_slot: connection as usize % 2, connection, sequence: 7 };
        let (first, has) = turns.take(1, waiter(0));
        assert!(has);
        let (other, has) = turns.take(2, waiter(9));
        assert!(has, "another key");
        let mut waiting: VecDeque<KeyTurn> = (1..5)
            .map(|number| turns.take(1, waiter(number)))
            .map(|(turn, has)| {
                assert!(!has);
                turn
            })
            .collect();
        assert_eq!(turns.take_granted(0), (Vec::new(), Vec::new()));
        // One that gives up is passed over.
        drop(waiting.remove(1));
        drop(first);
        assert_eq!(turns.take_granted(0), (Vec::new(), vec![1]), "the other thread is to be told");
        let grant = |turn: &KeyTurn, number| TurnGrant { waiter: waiter(number), ticket: turn.ticket() };
        assert_eq!(turns.take_granted(1).0, [grant(&waiting[0], 1)]);
        drop(waiting.pop_front());
        assert_eq!(turns.take_granted(1).0, [grant(&waiting[0], 3)]);
        drop(waiting.pop_front());
        assert_eq!(turns.take_granted(0).0, [grant(&waiting[0], 4)]);
        drop((waiting, other));
        assert!(lock(&turns.turns).queues.is_empty() && turns.take_granted(0).0.is_empty());
    }
}
