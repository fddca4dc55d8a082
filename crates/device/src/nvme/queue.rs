//! A pair of queues in memory (NVMe Base Specification 2.0, section 3.3): commands in, completions
//! out. Nothing is locked: a pair belongs to one thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use stratakv_base::fault_point;

use crate::nvme::Bus;
use crate::nvme::command::{COMMAND_BYTES, COMPLETION_BYTES, Command, CommandCompletion, phase_tag};
use crate::nvme::memory::DmaMemory;

/// A submission queue and its completion queue.
///
/// ```text
///            tail: the driver's next                 head: the driver's next
///              v                                       v
///  +---+---+---+---+---+                   +---+---+---+---+---+
///  | c | c | . | . | c |  submission       |1  |1  |0  |0  |0  |  completion, with phase tags:
///  +---+---+---+---+---+  queue            +---+---+---+---+---+  1 in the first round, then 0
///                    ^                               ^
///      head: the controller's, told by completions   the controller's next
/// ```
#[derive(Debug)]
pub(super) struct Queues {
    commands: DmaMemory,
    completions: DmaMemory,
    entries: u16,
    /// The next command goes here.
    tail: u16,
    /// The tail that the controller was told.
    rung: u16,
    /// The controller has fetched the commands before this one.
    fetched: u16,
    /// The next completion comes here.
    head: u16,
    /// Its phase tag.
    phase: bool,
    /// The head that the controller was told.
    told: u16,
    doorbells: [usize; 2],
}

/// A completion breaks the rules: the controller is not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueueFault {
    #[error("a completion names submission queue {0}")]
    WrongQueue(u16),
    #[error("a completion says that the queue's head is {0}, which is not between its old head and its tail")]
    HeadOutOfRange(u16),
}

impl Queues {
    /// Room for `entries` (at least 2) of each; `doorbells` are the offsets of the two registers.
    pub(super) fn new(bus: &Arc<dyn Bus>, entries: u16, doorbells: [usize; 2]) -> io::Result<Queues> {
        Ok(Queues {
            commands: DmaMemory::new(bus, usize::from(entries) * COMMAND_BYTES)?,
            completions: DmaMemory::new(bus, usize::from(entries) * COMPLETION_BYTES)?,
            entries,
            tail: 0,
            rung: 0,
            fetched: 0,
            head: 0,
            phase: true,
            told: 0,
            doorbells,
        })
    }

    /// As new: the controller was reset.
    pub(super) fn restart(&mut self) {
        self.commands.clear();
        self.completions.clear();
        (self.tail, self.rung, self.fetched, self.head, self.told, self.phase) = (0, 0, 0, 0, 0, true);
    }

    pub(super) fn entries(&self) -> u16 {
        self.entries
    }

    /// Where the controller finds the commands, and the completions.
    pub(super) fn addresses(&self) -> [u64; 2] {
        [self.commands.address(0), self.completions.address(0)]
    }

    fn next(&self, index: u16) -> u16 {
        if index + 1 == self.entries { 0 } else { index + 1 }
    }

    /// Puts a command into the queue; `false` if it is full. The controller hears of it by
    /// [`ring`](Queues::ring).
    pub(super) fn push(&mut self, bus: &dyn Bus, command: &Command) -> bool {
        if self.next(self.tail) == self.fetched {
            return false;
        }
        fault_point!("nvme_doorbell_before_command", self.ring_ahead(bus));
        let at = usize::from(self.tail) * COMMAND_BYTES;
        for (word, value) in command.0.iter().enumerate() {
            self.commands.store(at + 4 * word, *value);
        }
        self.tail = self.next(self.tail);
        true
    }

    /// The defect of `nvme_doorbell_before_command`.
    fn ring_ahead(&mut self, bus: &dyn Bus) {
        bus.write_u32(self.doorbells[0], self.next(self.tail).into());
        self.rung = self.next(self.tail);
    }

    /// Tells the controller of all commands that were put in, by one write, and of the completions
    /// that were taken.
    pub(super) fn ring(&mut self, bus: &dyn Bus) {
        // First, so that each command that it hears of has a place for its completion.
        if self.head != self.told {
            bus.write_u32(self.doorbells[1], self.head.into());
            self.told = self.head;
        }
        if self.tail != self.rung {
            // The commands are in memory before the controller is told.
            fence(Ordering::Release);
            bus.write_u32(self.doorbells[0], self.tail.into());
            self.rung = self.tail;
        }
    }

    /// Takes the next completion, if there is one.
    pub(super) fn pop(&mut self, id: u16) -> Option<Result<CommandCompletion, QueueFault>> {
        let at = usize::from(self.head) * COMPLETION_BYTES;
        let last = self.completions.load(at + 12);
        let mut is_new = phase_tag(last) == self.phase;
        fault_point!("nvme_phase_ignored", last != 0, is_new = true);
        if !is_new {
            return None;
        }
        // The rest of the entry is read after the tag.
        fence(Ordering::Acquire);
        let [zero, one, two] = [0, 4, 8].map(|word| self.completions.load(at + word));
        self.head = self.next(self.head);
        if self.head == 0 {
            self.phase = !self.phase;
        }
        let completion = CommandCompletion([zero, one, two, last]);
        Some(self.check(id, completion))
    }

    fn check(&mut self, id: u16, completion: CommandCompletion) -> Result<CommandCompletion, QueueFault> {
        if completion.sqid() != id {
            return Err(QueueFault::WrongQueue(completion.sqid()));
        }
        let head = completion.sqhd();
        let behind =
            |of: u16| (u32::from(of) + u32::from(self.entries) - u32::from(self.fetched)) % u32::from(self.entries);
        if head >= self.entries || behind(head) > behind(self.tail) {
            return Err(QueueFault::HeadOutOfRange(head));
        }
        self.fetched = head;
        Ok(completion)
    }
}
