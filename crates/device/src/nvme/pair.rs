//! A pair of I/O queues: disk requests in, outcomes out, without a system call.
//!
//! ```text
//!  DiskRequest --> Request --> Command (one, or several if it is longer than MDTS)
//!                  owns the    owns a slot: identifier, deadline, a page for its PRP list
//!                  blocks      v
//!                         submission queue -- one doorbell a tick --> controller
//!                         completion queue <-- phase tags, polled --- reaches the blocks by the
//!                              v                                      addresses of its `Domain`
//!  DiskOutcome <-- Request, when its last command has ended
//! ```
//!
//! A request is answered once, and its blocks go back only when the controller reaches them no
//! more: its commands have ended, or the controller was reset.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use stratakv_base::fault_point;

use crate::nvme::builder::CommandBuilder;
use crate::nvme::command::{Command, CommandCompletion};
use crate::nvme::controller::Controller;
use crate::nvme::error::NvmeError;
use crate::nvme::namespace::NvmeVolume;
use crate::nvme::queue::Queues;
use crate::nvme::requests::Request;
use crate::nvme::status::{CommandStatus, RETRIES_MAX, RETRY_AFTER};
use crate::nvme::table::{Issue, RequestKey, RequestTable};
use crate::request::{DiskOutcome, DiskRequest, IoFault};

/// Bits of a command identifier that are the slot's number; the rest tells its uses apart.
const SLOT_BITS: u16 = 10;
const SLOTS_MAX: u16 = 1 << SLOT_BITS;

/// See the module. It belongs to one thread at a time.
#[derive(Debug)]
pub struct IoPair {
    controller: Arc<Controller>,
    id: u16,
    queues: Queues,
    /// Its interrupt, if it has one.
    vector: Option<u16>,
    /// The controller's when the queues were made; afterwards they are no more.
    generation: u32,
    slots: Vec<CommandSlot>,
    free: Vec<u16>,
    builder: CommandBuilder,
    requests: RequestTable,
    /// When deadlines are next compared.
    next_look: Duration,
}

#[derive(Clone, Debug, Default)]
struct CommandSlot {
    /// Counts its uses.
    uses: u16,
    /// Whose command it is; `None`: the slot is free.
    request: Option<RequestKey>,
    command: Command,
    deadline: Duration,
    retries: u8,
    /// It failed for now, and is sent again at its deadline.
    rests: bool,
    aborted: bool,
}

impl IoPair {
    /// A pair of its own on the controller.
    ///
    /// # Errors
    /// See [`NvmeError`]; all pairs may be in use.
    pub fn open(controller: &Arc<Controller>) -> Result<IoPair, NvmeError> {
        IoPair::open_with(controller, None)
    }

    /// The same; if the device has interrupts, each completion signals `event` (an eventfd).
    ///
    /// # Errors
    /// As [`IoPair::open`].
    pub fn open_with(controller: &Arc<Controller>, event: Option<OwnedFd>) -> Result<IoPair, NvmeError> {
        let (id, doorbells) = controller.reserve_pair()?;
        let made = IoPair::create(controller, id, doorbells, event);
        if made.is_err() {
            controller.interrupt(id, None);
            controller.release_pair(id);
        }
        made
    }

    fn create(
        controller: &Arc<Controller>,
        id: u16,
        doorbells: [usize; 2],
        event: Option<OwnedFd>,
    ) -> Result<IoPair, NvmeError> {
        let entries = controller.queue_entries();
        let queues = Queues::new(controller.shared_bus(), entries, doorbells)?;
        let slots = (entries - 1).min(SLOTS_MAX - 1);
        let builder = CommandBuilder::new(controller.shared_bus(), slots)?;
        let vector = event.and_then(|event| controller.interrupt(id, Some(event)));
        let generation = controller.create_queues(id, &queues, vector)?;
        Ok(IoPair {
            controller: Arc::clone(controller),
            id,
            queues,
            vector,
            generation,
            slots: vec![CommandSlot::default(); slots.into()],
            free: (0..slots).rev().collect(),
            builder,
            requests: RequestTable::default(),
            next_look: Duration::ZERO,
        })
    }

    /// The controller that it belongs to.
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// Requests that were begun and not yet given by [`poll`](IoPair::poll).
    pub fn in_flight(&self) -> usize {
        self.requests.in_flight()
    }

    /// Whether a completion ends the sleep of who sleeps for its event.
    pub fn interrupts(&self) -> bool {
        self.vector.is_some()
    }

    /// Whether requests wait for room.
    pub(super) fn has_waiting(&self) -> bool {
        self.requests.has_waiting()
    }

    /// Begins a request, whose offset is on the namespace. The controller hears of it by
    /// [`ring`](IoPair::ring).
    pub fn submit(&mut self, tag: u64, volume: &Arc<NvmeVolume>, request: DiskRequest) {
        let refusal = self.controller.is_dead().then_some(IoFault::Os(libc::ENODEV));
        let begun = match refusal {
            Some(fault) => Err(request.refuse(fault)),
            None => Request::new(tag, volume.state(), self.controller.generation(), request),
        };
        self.requests.begin(begun.map_err(|outcome| (tag, outcome)));
    }

    /// Issues what waits, as far as there is room, and tells the controller by one write.
    pub fn ring(&mut self) {
        let mut requests = std::mem::take(&mut self.requests);
        requests.issue_waiting(|requests, key| self.issue(requests, key));
        self.requests = requests;
        self.queues.ring(self.controller.bus());
    }

    /// Moves what has ended to `done`. No system call while nothing is wrong.
    pub fn poll(&mut self, done: &mut Vec<(u64, DiskOutcome)>) {
        if self.controller.generation() != self.generation {
            self.start_anew();
        }
        // One round at most: a controller that writes on and on is not waited for.
        for _ in 0..self.queues.entries() {
            let Some(popped) = self.queues.pop(self.id) else { break };
            let wrong = match popped {
                Ok(completion) => self.take(completion),
                Err(fault) => Some(fault.to_string()),
            };
            if let Some(why) = wrong {
                self.reset(&why);
                break;
            }
        }
        if self.free.len() < self.slots.len() {
            let now = self.controller.bus().now();
            if now >= self.next_look {
                self.look(now);
            }
        }
        self.requests.take_done(done);
    }

    /// Takes a completion, or says what is wrong with it.
    fn take(&mut self, completion: CommandCompletion) -> Option<String> {
        let cid = completion.cid();
        let number = cid & (SLOTS_MAX - 1);
        let unknown = || Some(format!("a completion names command {cid:#x}, which is not in flight"));
        let Some(slot) = self.slots.get_mut(usize::from(number)) else { return unknown() };
        let mut is_known = slot.uses & (u16::MAX >> SLOT_BITS) == cid >> SLOT_BITS && !slot.rests;
        fault_point!("nvme_stale_completion_taken", is_known = true);
        let Some(request) = slot.request.filter(|_| is_known) else { return unknown() };
        let status = CommandStatus::new(completion.status());
        if status.may_be_retried() && slot.retries < RETRIES_MAX && !slot.aborted {
            slot.rests = true;
            slot.deadline = self.controller.bus().now() + RETRY_AFTER * (1 << slot.retries);
            slot.retries += 1;
            self.next_look = self.next_look.min(slot.deadline);
            return None;
        }
        self.free_slot(number);
        let mut fault = (!status.is_success()).then(|| status.fault());
        fault_point!("nvme_status_ignored", fault = None);
        if fault.is_some() {
            tracing::debug!(device = self.controller.name(), %status, "an NVMe command failed");
        }
        self.requests.command_ended(request, self.generation, fault);
        None
    }

    fn free_slot(&mut self, number: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(number)) {
            let uses = slot.uses.wrapping_add(1);
            *slot = CommandSlot { uses, ..CommandSlot::default() };
            self.free.push(number);
        }
    }

    /// Issues the next command of a request.
    fn issue(&mut self, requests: &mut RequestTable, key: RequestKey) -> Issue {
        if self.controller.is_dead() || self.controller.generation() != self.generation {
            return Issue::NoRoom;
        }
        let Some(slot) = self.free.last().copied() else { return Issue::NoRoom };
        let Some(request) = requests.get(key) else { return Issue::Whole };
        let (command, bytes) = match self.builder.command(slot, request, self.controller.domain()) {
            Ok(made) => made,
            Err(fault) => return requests.cannot_issue(key, fault),
        };
        let uses = self.slots.get(usize::from(slot)).map_or(0, |slot| slot.uses);
        let command = command.with_cid((uses & (u16::MAX >> SLOT_BITS)) << SLOT_BITS | slot);
        if !self.queues.push(self.controller.bus(), &command) {
            return Issue::NoRoom;
        }
        command.trace(self.controller.name());
        self.free.pop();
        let now = self.controller.bus().now();
        let timeout = self.controller.options().command_timeout;
        self.next_look = self.next_look.min(now + timeout / 4);
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            let fresh = CommandSlot { uses, ..CommandSlot::default() };
            *place = CommandSlot { request: Some(key), command, deadline: now + timeout, ..fresh };
        }
        requests.issued(key, bytes)
    }

    /// Compares deadlines, and sends again what rested.
    fn look(&mut self, now: Duration) {
        let status = self.controller.status();
        if status.is_gone() {
            return self.controller.give_up(&NvmeError::Gone);
        }
        if status.cfs() {
            return self.reset("it reports a fatal error (CSTS.CFS)");
        }
        let mut next = now + self.controller.options().command_timeout / 4;
        for number in 0..self.slots.len() as u16 {
            match self.late(number, now) {
                Late::No(deadline) => next = next.min(deadline),
                Late::Lost => return self.reset("a command was not answered, and not aborted either"),
                Late::Free => {}
            }
        }
        self.next_look = next;
    }

    /// What to do about one command: nothing, once more, end it, or reset the controller.
    fn late(&mut self, number: u16, now: Duration) -> Late {
        let timeout = self.controller.options().command_timeout;
        let Some(slot) = self.slots.get_mut(usize::from(number)) else { return Late::Free };
        let Some(request) = slot.request else { return Late::Free };
        if slot.deadline > now {
            return Late::No(slot.deadline);
        }
        if slot.rests {
            (slot.rests, slot.deadline) = (false, now + timeout);
            let command = slot.command;
            if !self.queues.push(self.controller.bus(), &command) {
                return Late::Lost;
            }
            command.trace(self.controller.name());
            self.queues.ring(self.controller.bus());
            return Late::No(now + timeout);
        }
        fault_point!("nvme_block_reused_early", {
            self.free_slot(number);
            self.requests.command_ended(request, self.generation, Some(IoFault::Os(libc::ETIMEDOUT)));
            return Late::Free;
        });
        if slot.aborted {
            return Late::Lost;
        }
        (slot.aborted, slot.deadline) = (true, now + timeout / 4);
        let cid = slot.command.cid();
        tracing::warn!(device = self.controller.name(), cid, "an NVMe command takes too long: it is aborted");
        match self.controller.abort(self.id, cid) {
            // It refuses: the command may still end by itself.
            Ok(()) | Err(NvmeError::Refused { .. }) => Late::No(now + timeout / 4),
            Err(_) => Late::Lost,
        }
    }

    fn reset(&mut self, why: &str) {
        self.controller.reset(self.generation, why);
        self.start_anew();
    }

    /// The controller was reset, or is no more: it reaches no memory of the commands that were in
    /// flight. Each request of theirs ends, and the queues are made anew.
    fn start_anew(&mut self) {
        let fault = if self.controller.is_dead() { libc::ENODEV } else { libc::ETIMEDOUT };
        let is_dead = self.controller.is_dead();
        let ends = |request: &Request| request.running > 0 || request.issued > 0 || is_dead;
        self.requests.fail(IoFault::Os(fault), ends);
        for number in 0..self.slots.len() as u16 {
            if self.slots.get(usize::from(number)).is_some_and(|slot| slot.request.is_some()) {
                self.free_slot(number);
            }
        }
        self.queues.restart();
        if is_dead {
            self.generation = self.controller.generation();
            return;
        }
        match self.controller.create_queues(self.id, &self.queues, self.vector) {
            Ok(generation) => self.generation = generation,
            // Noticed at the next poll.
            Err(error) => self.controller.give_up(&error),
        }
    }

    /// Ends what is in flight, whatever it takes: the controller answers, or is reset.
    fn drain(&mut self) {
        let mut done = Vec::new();
        let is_busy = |pair: &IoPair| pair.free.len() < pair.slots.len() || pair.has_waiting();
        // A command that is not answered is aborted, then the controller is reset: that takes less.
        let deadline = self.controller.bus().now() + 4 * self.controller.options().command_timeout;
        // One that is given up reaches no memory.
        while is_busy(self) && !self.controller.is_dead() {
            self.ring();
            self.poll(&mut done);
            done.clear();
            self.controller.bus().pause();
            if self.controller.bus().now() > deadline {
                self.controller.give_up(&NvmeError::Unanswered("its last commands"));
            }
        }
    }
}

impl Drop for IoPair {
    fn drop(&mut self) {
        self.drain();
        match self.controller.delete_queues(self.id, self.generation) {
            Ok(()) => {}
            Err(error @ NvmeError::Gone) => self.controller.give_up(&error),
            Err(error) => {
                // Their memory is about to be freed.
                tracing::warn!(device = self.controller.name(), %error, "an I/O queue pair cannot be deleted");
                self.controller.reset(self.generation, "an I/O queue pair of it cannot be deleted");
            }
        }
        if self.vector.is_some() {
            self.controller.interrupt(self.id, None);
        }
        self.controller.release_pair(self.id);
    }
}

/// Whether a command is over its time.
enum Late {
    Free,
    No(Duration),
    Lost,
}
