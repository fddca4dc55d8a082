//! Turns of commands on one long structure: they follow each other in the order in which they came,
//! so that none is repeated because another one was faster.
//!
//! Nobody waits in here. A command that has to wait does nothing; when its turn comes, its thread
//! is told. Whoever has a turn waits for disks only, never for memory or for a client. A turn is
//! over when what stands for it is dropped, whatever becomes of its command.
//!
//! A command that waits may offer itself to whoever has the turn: it can be carried out with that
//! one, as a part of the same write.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use stratakv_base::Key;

use super::data::{CallSettings, DataCommand};
use crate::server::lock;

/// Which command waits: its thread, its connection there, and its place in that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnWaiter {
    pub(crate) worker_slot: usize,
    pub(crate) connection: u32,
    pub(crate) sequence: u32,
}

/// What a command that waits is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TurnNews {
    /// It has the turn.
    Turn,
    /// Another one has carried out so many of its commands, the first ones: their replies.
    Carried { said: Vec<u8>, commands: usize },
    /// Another one wanted to, and could not: it is to wait again, and for its own turn.
    LeftAlone,
    /// Another one has written what it does, and is not there any more to say what became of it.
    Unknown,
}

/// News for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TurnGrant {
    pub(crate) waiter: TurnWaiter,
    /// Of the turn: a connection of the same number may be another one.
    pub(crate) ticket: u64,
    pub(crate) news: TurnNews,
}

/// Commands of one client, in their order, that another one may carry out.
#[derive(Clone, Debug)]
pub(crate) struct OfferedCommands {
    pub(crate) key: Key,
    pub(crate) commands: Vec<Arc<DataCommand>>,
    pub(crate) settings: CallSettings,
    /// Bytes of records and replies for which they have room; they are for whoever carries them
    /// out.
    pub(crate) room_bytes: u64,
}

#[derive(Debug)]
struct WaitingCommand {
    waiter: TurnWaiter,
    ticket: u64,
    offered: Option<OfferedCommands>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct KeyTurns {
    turns: Mutex<Turns>,
    /// News of which threads are to be told.
    untold: AtomicUsize,
}

#[derive(Debug, Default)]
struct Turns {
    /// By the hash of a key: who has the turn, then who waits. Equal hashes only make commands
    /// wait.
    queues: HashMap<u64, VecDeque<WaitingCommand>>,
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

    /// What waits at this place, or has the turn, consists of one more command. False: it does not
    /// wait any more, or does not offer itself.
    pub(crate) fn offer_more(&self, command: &Arc<DataCommand>, room_bytes: u64) -> bool {
        let mut turns = lock(&self.turns.turns);
        let queue = turns.queues.get_mut(&self.key);
        let waiting = queue.and_then(|queue| queue.iter_mut().find(|waiting| waiting.ticket == self.ticket));
        let Some(offered) = waiting.and_then(|waiting| waiting.offered.as_mut()) else { return false };
        offered.commands.push(Arc::clone(command));
        offered.room_bytes += room_bytes;
        true
    }

    /// Takes commands along that wait behind it for the same key and offer themselves: up to so
    /// many, without a gap.
    pub(crate) fn carry(&self, key: &Key, most: usize) -> Vec<Arc<CarriedCommands>> {
        let mut turns = lock(&self.turns.turns);
        let Some(queue) = turns.queues.get_mut(&self.key) else { return Vec::new() };
        let (mut carried, mut left) = (Vec::new(), most);
        loop {
            // Of equal hashes the key may be another one.
            let offered = queue.get(1).and_then(|next| next.offered.as_ref()).filter(|offered| offered.key == *key);
            let Some(rest) = offered.and_then(|offered| left.checked_sub(offered.commands.len())) else { break };
            left = rest;
            let Some(WaitingCommand { waiter, ticket, offered: Some(offered) }) = queue.remove(1) else { break };
            let turns = Arc::clone(&self.turns);
            let (is_written, is_told) = Default::default();
            carried.push(Arc::new(CarriedCommands { turns, waiter, ticket, offered, is_written, is_told }));
        }
        carried
    }
}

impl Drop for KeyTurn {
    fn drop(&mut self) {
        self.turns.leave(self.key, self.ticket);
    }
}

/// Commands that another one carries out. Whatever becomes of that one, these are told.
#[derive(Debug)]
pub(crate) struct CarriedCommands {
    turns: Arc<KeyTurns>,
    waiter: TurnWaiter,
    ticket: u64,
    offered: OfferedCommands,
    /// From here on they must not be carried out once more.
    is_written: AtomicBool,
    is_told: AtomicBool,
}

impl CarriedCommands {
    pub(crate) fn offered(&self) -> &OfferedCommands {
        &self.offered
    }

    /// What they do is being written.
    pub(crate) fn begin_write(&self) {
        self.is_written.store(true, Ordering::Release);
    }

    /// Nothing of what they do was written.
    pub(crate) fn undo_write(&self) {
        self.is_written.store(false, Ordering::Release);
    }

    /// So many have been carried out, the first ones: their replies.
    pub(crate) fn end(&self, said: Vec<u8>, commands: usize) {
        self.tell(TurnNews::Carried { said, commands });
    }

    fn tell(&self, news: TurnNews) {
        if !self.is_told.swap(true, Ordering::AcqRel) {
            self.turns.grant(TurnGrant { waiter: self.waiter, ticket: self.ticket, news });
        }
    }
}

impl Drop for CarriedCommands {
    fn drop(&mut self) {
        let is_written = self.is_written.load(Ordering::Acquire);
        self.tell(if is_written { TurnNews::Unknown } else { TurnNews::LeftAlone });
    }
}

impl KeyTurns {
    /// Takes the turn of a key, or waits for it; whether it has come.
    pub(crate) fn take(
        self: &Arc<KeyTurns>,
        key: u64,
        waiter: TurnWaiter,
        offered: Option<OfferedCommands>,
    ) -> (KeyTurn, bool) {
        let mut turns = lock(&self.turns);
        turns.last_ticket += 1;
        let ticket = turns.last_ticket;
        let queue = turns.queues.entry(key).or_default();
        queue.push_back(WaitingCommand { waiter, ticket, offered });
        (KeyTurn { turns: Arc::clone(self), key, ticket }, queue.len() == 1)
    }

    fn leave(&self, key: u64, ticket: u64) {
        let mut turns = lock(&self.turns);
        let Some(queue) = turns.queues.get_mut(&key) else { return };
        let had_turn = queue.front().is_some_and(|first| first.ticket == ticket);
        queue.retain(|waiting| waiting.ticket != ticket);
        match queue.front() {
            Some(next) if had_turn => {
                let grant = TurnGrant { waiter: next.waiter, ticket: next.ticket, news: TurnNews::Turn };
                turns.granted.push(grant);
                self.untold.store(turns.granted.len(), Ordering::Release);
            }
            Some(_) => {}
            None => _ = turns.queues.remove(&key),
        }
    }

    fn grant(&self, grant: TurnGrant) {
        let mut turns = lock(&self.turns);
        turns.granted.push(grant);
        self.untold.store(turns.granted.len(), Ordering::Release);
    }

    /// News for commands of this thread, and other threads that have some.
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
    use stratakv_base::{CollectionId, Wall};
    use stratakv_protocol::resp::Version;

    use super::super::arguments::{Arguments, Gathered};
    use super::*;

    fn waiter(connection: u32) -> TurnWaiter {
        TurnWaiter { worker_slot: connection as usize % 2, connection, sequence: 7 }
    }

    fn grant(turn: &KeyTurn, connection: u32, news: TurnNews) -> TurnGrant {
        TurnGrant { waiter: waiter(connection), ticket: turn.ticket(), news }
    }

    fn key(name: &[u8]) -> Key {
        Key::new(CollectionId::default(), name).unwrap()
    }

    fn command() -> Arc<DataCommand> {
        let gathered = Gathered::default();
        Arc::new(DataCommand::new(|_, _, _| Ok(()), &Arguments::new(&gathered, b"", &[])))
    }

    fn offered(name: &[u8]) -> Option<OfferedCommands> {
        let settings = CallSettings {
            version: Version::default(),
            wall: Wall(1),
            value_bytes_max: 1,
            reply_bytes_max: 1,
            seed: 1,
        };
        Some(OfferedCommands { key: key(name), commands: vec![command()], settings, room_bytes: 10 })
    }

    #[test]
    fn turns_come_in_order_and_go_with_their_commands() {
        let turns = Arc::new(KeyTurns::default());
        let (first, has) = turns.take(1, waiter(0), None);
        assert!(has);
        let (other, has) = turns.take(2, waiter(9), None);
        assert!(has, "another key");
        let mut waiting: VecDeque<KeyTurn> = (1..5)
            .map(|number| turns.take(1, waiter(number), None))
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
        assert_eq!(turns.take_granted(1).0, [grant(&waiting[0], 1, TurnNews::Turn)]);
        drop(waiting.pop_front());
        assert_eq!(turns.take_granted(1).0, [grant(&waiting[0], 3, TurnNews::Turn)]);
        drop(waiting.pop_front());
        assert_eq!(turns.take_granted(0).0, [grant(&waiting[0], 4, TurnNews::Turn)]);
        drop((waiting, other));
        assert!(lock(&turns.turns).queues.is_empty() && turns.take_granted(0).0.is_empty());
    }

    #[test]
    fn who_has_the_turn_takes_along_those_behind_it_that_offer_themselves() {
        let turns = Arc::new(KeyTurns::default());
        let (first, _) = turns.take(1, waiter(0), offered(b"k"));
        let offers = [offered(b"k"), offered(b"k"), offered(b"k"), offered(b"other"), offered(b"k")];
        let waiting: Vec<KeyTurn> =
            (2..).step_by(2).zip(offers).map(|(number, offered)| turns.take(1, waiter(number), offered).0).collect();
        let mut carried = first.carry(&key(b"k"), 2);
        assert_eq!(carried.len(), 2);
        carried.extend(first.carry(&key(b"k"), 60));
        assert_eq!(carried.len(), 3, "one of another key with the same hash ends them");
        // One has been carried out, one was being written when its carrier went, one was not.
        carried[0].end(b"+OK".to_vec(), 1);
        carried[1].begin_write();
        assert!(turns.take_granted(1).0.is_empty());
        drop(carried);
        let done = TurnNews::Carried { said: b"+OK".to_vec(), commands: 1 };
        let news = [done, TurnNews::Unknown, TurnNews::LeftAlone];
        let told: Vec<TurnGrant> =
            news.into_iter().zip(&waiting).zip([2, 4, 6]).map(|((news, turn), at)| grant(turn, at, news)).collect();
        assert_eq!(turns.take_granted(0).0, told);
        drop(first);
        assert_eq!(turns.take_granted(0).0, [grant(&waiting[3], 8, TurnNews::Turn)]);
        drop(waiting);
        assert!(lock(&turns.turns).queues.is_empty());
    }

    #[test]
    fn who_waits_may_offer_more_until_it_is_taken_along() {
        let turns = Arc::new(KeyTurns::default());
        let (first, _) = turns.take(1, waiter(0), offered(b"k"));
        let (second, _) = turns.take(1, waiter(1), offered(b"k"));
        let (third, _) = turns.take(1, waiter(2), offered(b"k"));
        let (alone, _) = turns.take(1, waiter(3), None);
        assert!(second.offer_more(&command(), 5) && third.offer_more(&command(), 5));
        assert!(!alone.offer_more(&command(), 5), "it does not offer itself");
        let carried = first.carry(&key(b"k"), 3);
        let [taken] = &carried[..] else { panic!("{} were taken: the second one has two commands", carried.len()) };
        assert_eq!((taken.offered().commands.len(), taken.offered().room_bytes), (2, 15));
        assert!(!second.offer_more(&command(), 5), "it is taken along as it was");
        assert!(third.offer_more(&command(), 5));
    }
}
