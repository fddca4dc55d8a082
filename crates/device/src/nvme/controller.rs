//! A controller: brought up, asked, reset, shut down (NVMe Base Specification 2.0, sections 3.5 to
//! 3.7).

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::lock;
use crate::nvme::Bus;
use crate::nvme::command::{Cns, Command, CommandCompletion};
use crate::nvme::error::NvmeError;
use crate::nvme::identify::{ControllerIdentity, IDENTIFY_BYTES, NamespaceIdentity};
use crate::nvme::interrupts::Interrupts;
use crate::nvme::memory::{DmaMemory, Domain};
use crate::nvme::queue::Queues;
use crate::nvme::registers::{
    ACQ, AQA, ASQ, CAP, CC, CC_EN, CC_FORM, CC_SHN_NORMAL, CSTS, Capabilities, ControllerStatus, GONE, VS,
};
use crate::nvme::shape::NamespaceShape;
use crate::nvme::status::CommandStatus;

/// Entries of the admin queues.
const ADMIN_ENTRIES: u16 = 32;
/// I/O queue pairs asked for at most.
const PAIRS_MAX: u16 = 64;
/// What an admin command may take.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);
/// What an orderly end may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// What is asked of the driver.
#[derive(Clone, Copy, Debug)]
pub struct NvmeOptions {
    /// What a command may take before it is aborted, and the controller reset (Linux: 30 s).
    pub command_timeout: Duration,
    /// Most commands in flight of one queue pair.
    pub depth: u16,
}

impl Default for NvmeOptions {
    fn default() -> NvmeOptions {
        NvmeOptions { command_timeout: Duration::from_secs(30), depth: 128 }
    }
}

/// A controller that is ready. Threads share it; what they ask of its admin queue goes one by one.
#[derive(Debug)]
pub struct Controller {
    bus: Arc<dyn Bus>,
    domain: Arc<Domain>,
    options: NvmeOptions,
    capabilities: Capabilities,
    identity: ControllerIdentity,
    admin: Mutex<Admin>,
    interrupts: Mutex<Interrupts>,
    /// Resets so far: queue pairs of an earlier generation are no more.
    generation: AtomicU32,
    /// It answers no more, or was shut down.
    dead: AtomicBool,
}

#[derive(Debug)]
struct Admin {
    queues: Queues,
    next_cid: u16,
    page: DmaMemory,
    /// I/O queue pairs that the controller gave; by number (the first is 1), whether one is in use.
    pairs: Vec<bool>,
}

impl Controller {
    /// Resets the controller behind `bus` and makes it ready. Takes as long as the device does,
    /// often less than a second.
    ///
    /// # Errors
    /// See [`NvmeError`].
    pub fn start(bus: Arc<dyn Bus>, options: NvmeOptions) -> Result<Arc<Controller>, NvmeError> {
        let capabilities = Capabilities(bus.read_u64(CAP));
        if bus.read_u32(VS) == GONE {
            return Err(NvmeError::Gone);
        }
        if !capabilities.css_nvm() {
            return Err(NvmeError::NoNvm);
        }
        if capabilities.mpsmin_bytes() > 4096 {
            return Err(NvmeError::PageSize(capabilities.mpsmin_bytes()));
        }
        // Before it is told of any memory: another process may have left it at work.
        stop(&*bus, capabilities)?;
        let entries = capabilities.mqes().min(ADMIN_ENTRIES.into()) as u16;
        let doorbells = [capabilities.doorbell(0, false), capabilities.doorbell(0, true)];
        let mut admin = Admin {
            queues: Queues::new(&bus, entries, doorbells)?,
            next_cid: 0,
            page: DmaMemory::new(&bus, IDENTIFY_BYTES)?,
            pairs: Vec::new(),
        };
        bring_up(&*bus, capabilities, &mut admin)?;
        let identity = {
            let page = admin.identify(&*bus, Cns::Controller, 0)?;
            ControllerIdentity::parse(&page, capabilities.mpsmin_bytes())
        };
        tracing::debug!(device = bus.name(), ?identity, pairs = admin.pairs.len(), "an NVMe controller is ready");
        let interrupts = Interrupts::new(&*bus, admin.pairs.len() as u16)?;
        Ok(Arc::new(Controller {
            interrupts: Mutex::new(interrupts),
            domain: Domain::new(&bus),
            bus,
            options,
            capabilities,
            identity,
            admin: Mutex::new(admin),
            generation: AtomicU32::new(0),
            dead: AtomicBool::new(false),
        }))
    }

    /// What it says of itself.
    pub fn identity(&self) -> &ControllerIdentity {
        &self.identity
    }

    /// The PCI function's address.
    pub fn name(&self) -> &str {
        self.bus.name()
    }

    /// I/O queue pairs that it has.
    pub fn pairs(&self) -> u16 {
        lock(&self.admin).pairs.len() as u16
    }

    /// Whether it works no more: it was removed, could not be reset, or was shut down.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// What it says of a namespace, as it is now.
    ///
    /// # Errors
    /// There is none of that number, or its format is not taken.
    pub fn namespace(&self, nsid: u32) -> Result<NamespaceIdentity, NvmeError> {
        if nsid == 0 || nsid > self.identity.nn {
            return Err(NvmeError::NoNamespace { nsid, nn: self.identity.nn });
        }
        let page = lock(&self.admin).identify(&*self.bus, Cns::Namespace, nsid)?;
        let found = NamespaceIdentity::parse(&page).ok_or(NvmeError::BadIdentity(nsid))?;
        NamespaceShape::new(nsid, &self.identity, &found).map(|_| found)
    }

    pub(super) fn status(&self) -> ControllerStatus {
        ControllerStatus(self.bus.read_u32(CSTS))
    }

    pub(super) fn bus(&self) -> &dyn Bus {
        &*self.bus
    }

    pub(super) fn shared_bus(&self) -> &Arc<dyn Bus> {
        &self.bus
    }

    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(super) fn options(&self) -> &NvmeOptions {
        &self.options
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Entries of an I/O queue: one more than commands that may be in flight.
    pub(super) fn queue_entries(&self) -> u16 {
        let wanted = u32::from(self.options.depth.clamp(1, 1024)) + 1;
        wanted.min(self.capabilities.mqes()).max(2) as u16
    }

    /// A number for a new I/O queue pair, and its doorbells.
    pub(super) fn reserve_pair(&self) -> Result<(u16, [usize; 2]), NvmeError> {
        let mut admin = lock(&self.admin);
        let count = admin.pairs.len() as u16;
        let free = admin.pairs.iter_mut().zip(1u16..).find(|(used, _)| !**used);
        let (used, id) = free.ok_or(NvmeError::NoQueues(count))?;
        *used = true;
        Ok((id, [self.capabilities.doorbell(id, false), self.capabilities.doorbell(id, true)]))
    }

    pub(super) fn release_pair(&self, id: u16) {
        let mut admin = lock(&self.admin);
        if let Some(used) = admin.pairs.get_mut(usize::from(id).wrapping_sub(1)) {
            *used = false;
        }
    }

    /// The interrupt of a pair signals `event` from now on, or nobody. Gives its vector; `None`: it
    /// has none, and its completions are to be looked for.
    pub(super) fn interrupt(&self, id: u16, event: Option<OwnedFd>) -> Option<u16> {
        match lock(&self.interrupts).set(&*self.bus, id, event) {
            Ok(vector) => vector,
            Err(error) => {
                tracing::warn!(device = self.name(), %error, "no interrupts: completions are looked for every 100 us");
                None
            }
        }
    }

    /// Tells the controller of a pair's queues; gives the generation that they are of.
    pub(super) fn create_queues(&self, id: u16, queues: &Queues, vector: Option<u16>) -> Result<u32, NvmeError> {
        let [commands, completions] = queues.addresses();
        let entries = queues.entries();
        let mut admin = lock(&self.admin);
        if self.is_dead() {
            return Err(NvmeError::Gone);
        }
        let completions = Command::create_completion_queue(id, entries, completions, vector);
        admin.execute(&*self.bus, "Create I/O Completion Queue", completions)?;
        let commands = Command::create_submission_queue(id, entries, commands);
        admin.execute(&*self.bus, "Create I/O Submission Queue", commands)?;
        Ok(self.generation())
    }

    /// Makes the controller forget a pair's queues; not after a reset, which did.
    pub(super) fn delete_queues(&self, id: u16, generation: u32) -> Result<(), NvmeError> {
        let mut admin = lock(&self.admin);
        if self.is_dead() || self.generation() != generation {
            return Ok(());
        }
        admin.execute(&*self.bus, "Delete I/O Submission Queue", Command::delete_submission_queue(id))?;
        admin.execute(&*self.bus, "Delete I/O Completion Queue", Command::delete_completion_queue(id))?;
        Ok(())
    }

    /// Asks for the end of a command. It is answered by its own completion, if at all.
    pub(super) fn abort(&self, queue: u16, cid: u16) -> Result<(), NvmeError> {
        lock(&self.admin).execute(&*self.bus, "Abort", Command::abort(queue, cid)).map(|_| ())
    }

    /// Resets the controller, if nobody has since `generation`: it forgets its queues and all
    /// commands in flight, and reaches no memory of theirs when this returns. If it does not, the
    /// memory is taken from it, and it is dead.
    pub(super) fn reset(&self, generation: u32, why: &str) {
        let mut admin = lock(&self.admin);
        if self.is_dead() || self.generation() != generation {
            return;
        }
        tracing::warn!(device = self.name(), why, "the NVMe controller is reset; what was in flight fails");
        let stopped = stop(&*self.bus, self.capabilities).or_else(|error| {
            tracing::warn!(device = self.name(), %error, "the controller does not stop: its function is reset");
            self.bus.reset().map_err(NvmeError::Io).and_then(|()| stop(&*self.bus, self.capabilities))
        });
        if let Err(error) = stopped {
            return self.give_up(&error);
        }
        // Only now: who sees a new generation takes the memory of its commands back.
        self.generation.fetch_add(1, Ordering::AcqRel);
        admin.queues.restart();
        let used = std::mem::take(&mut admin.pairs);
        if let Err(error) = bring_up(&*self.bus, self.capabilities, &mut admin) {
            admin.pairs = used;
            return self.give_up(&error);
        }
        for (pair, used) in admin.pairs.iter_mut().zip(used) {
            *pair = used;
        }
    }

    /// It works no more. The device may not have stopped: it loses all memory.
    pub(super) fn give_up(&self, error: &NvmeError) {
        if !self.dead.swap(true, Ordering::AcqRel) {
            tracing::error!(device = self.name(), %error, "the NVMe device is given up; every request on it fails");
            self.domain.close();
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends in order (3.6.1): the device stores what it holds, and stops. Requests in flight fail.
    ///
    /// # Errors
    /// The device does not say that it is done.
    pub fn shut_down(&self) -> Result<(), NvmeError> {
        let _admin = lock(&self.admin);
        if self.dead.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.bus.write_u32(CC, CC_FORM | CC_EN | CC_SHN_NORMAL);
        let done = |status: ControllerStatus| status.shst_complete();
        let told = wait(&*self.bus, SHUTDOWN_TIMEOUT, "shut down", done);
        let stopped = stop(&*self.bus, self.capabilities);
        self.domain.close();
        self.generation.fetch_add(1, Ordering::AcqRel);
        told.and(stopped)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            tracing::warn!(device = self.name(), %error, "the NVMe controller did not shut down in order");
        }
    }
}

impl Admin {
    /// One command, to its end.
    fn execute(&mut self, bus: &dyn Bus, name: &'static str, command: Command) -> Result<u32, NvmeError> {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        self.queues.push(bus, &command.with_cid(cid));
        self.queues.ring(bus);
        let deadline = bus.now() + ADMIN_TIMEOUT;
        loop {
            match self.queues.pop(0) {
                Some(Ok(completion)) if completion.cid() == cid => return self.end(bus, name, completion),
                _ if bus.now() > deadline => return Err(NvmeError::Unanswered(name)),
                // Of one that was given up before.
                Some(_) => bus.pause(),
                None if ControllerStatus(bus.read_u32(CSTS)).is_gone() => return Err(NvmeError::Gone),
                None => bus.pause(),
            }
        }
    }

    fn end(&mut self, bus: &dyn Bus, command: &'static str, completion: CommandCompletion) -> Result<u32, NvmeError> {
        self.queues.ring(bus);
        let status = CommandStatus::new(completion.status());
        if status.is_success() { Ok(completion.result()) } else { Err(NvmeError::Refused { command, status }) }
    }

    fn identify(&mut self, bus: &dyn Bus, cns: Cns, nsid: u32) -> Result<[u8; IDENTIFY_BYTES], NvmeError> {
        self.page.clear();
        self.execute(bus, "Identify", Command::identify(cns, nsid, self.page.address(0)))?;
        let mut page = [0; IDENTIFY_BYTES];
        self.page.copy_to(&mut page);
        Ok(page)
    }
}

/// Takes a controller out of service (CC.EN 0) and waits until it is: then it reaches no memory.
fn stop(bus: &dyn Bus, capabilities: Capabilities) -> Result<(), NvmeError> {
    // One that is just starting is waited for first (3.5.3).
    let timeout = ready_timeout(capabilities);
    let configuration = bus.read_u32(CC);
    if configuration & CC_EN == CC_EN && configuration != GONE {
        let _ready = wait(bus, timeout, "ready", |status| status.rdy() || status.cfs());
    }
    bus.write_u32(CC, CC_FORM);
    wait(bus, timeout, "disabled", |status| !status.rdy())
}

/// Puts a stopped controller into service (3.5.1), and asks for queues.
fn bring_up(bus: &dyn Bus, capabilities: Capabilities, admin: &mut Admin) -> Result<(), NvmeError> {
    let [commands, completions] = admin.queues.addresses();
    let count = u32::from(admin.queues.entries() - 1);
    bus.write_u32(AQA, count << 16 | count);
    bus.write_u64(ASQ, commands);
    bus.write_u64(ACQ, completions);
    bus.write_u32(CC, CC_FORM | CC_EN);
    wait(bus, ready_timeout(capabilities), "ready", |status| status.rdy())?;
    if ControllerStatus(bus.read_u32(CSTS)).cfs() {
        return Err(NvmeError::Fatal);
    }
    let given = admin.execute(bus, "Set Features (Number of Queues)", Command::number_of_queues(PAIRS_MAX))?;
    let count = (given & 0xFFFF).min(given >> 16) + 1;
    admin.pairs = vec![false; count.min(PAIRS_MAX.into()) as usize];
    Ok(())
}

/// CAP.TO, and at least a second.
fn ready_timeout(capabilities: Capabilities) -> Duration {
    Duration::from_millis(500) * capabilities.to().max(2)
}

fn wait(
    bus: &dyn Bus,
    timeout: Duration,
    state: &'static str,
    is_there: impl Fn(ControllerStatus) -> bool,
) -> Result<(), NvmeError> {
    let deadline = bus.now() + timeout;
    loop {
        let status = ControllerStatus(bus.read_u32(CSTS));
        if status.is_gone() {
            return Err(NvmeError::Gone);
        }
        if is_there(status) {
            return Ok(());
        }
        if bus.now() > deadline {
            return Err(if status.cfs() { NvmeError::Fatal } else { NvmeError::NotReady(state, timeout.as_secs()) });
        }
        bus.pause();
    }
}
