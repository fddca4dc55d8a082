//! A namespace: a disk of a controller; and a volume's share of what its cache holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stratakv_base::fault_point;

use crate::geometry::Geometry;
use crate::nvme::controller::Controller;
use crate::nvme::error::NvmeError;
use crate::nvme::identify::NamespaceIdentity;
use crate::nvme::pair::IoPair;
use crate::request::{DiskOutcome, DiskRequest, IoFault};

/// Queue pairs for callers who have no ring, at most.
const CALLERS_MAX: usize = 8;
/// The largest transfer, if the controller sets no limit.
const TRANSFER_BYTES: u64 = 1 << 20;

/// A namespace of a controller, as a disk.
#[derive(Debug)]
pub struct Namespace {
    controller: Arc<Controller>,
    nsid: u32,
    identity: NamespaceIdentity,
    len_bytes: u64,
    /// For callers without a ring: one, and others as they come.
    callers: Vec<Mutex<Option<IoPair>>>,
}

impl Namespace {
    /// Namespace `nsid` (the first is 1).
    ///
    /// # Errors
    /// There is none of that number, or its format is not taken.
    pub fn open(controller: &Arc<Controller>, nsid: u32) -> Result<Arc<Namespace>, NvmeError> {
        let identity = controller.namespace(nsid)?;
        let len_bytes = identity.len_bytes().ok_or(NvmeError::BadIdentity(nsid))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let callers = cores.min(usize::from(controller.pairs()) / 2).clamp(1, CALLERS_MAX);
        // The first one at once: what rings take later does not leave callers without.
        let first = [Mutex::new(Some(IoPair::open(controller)?))].into_iter();
        let callers = first.chain((1..callers).map(|_| Mutex::new(None))).collect();
        Ok(Arc::new(Namespace { controller: Arc::clone(controller), nsid, identity, len_bytes, callers }))
    }

    /// Its controller.
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// What it says of itself.
    pub fn identity(&self) -> &NamespaceIdentity {
        &self.identity
    }

    /// Its size, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(super) fn nsid(&self) -> u32 {
        self.nsid
    }

    pub(super) fn lba_bytes(&self) -> u32 {
        self.identity.lba_bytes
    }

    pub(super) fn has_volatile_cache(&self) -> bool {
        self.controller.identity().volatile_write_cache
    }

    /// Most bytes of one command, a multiple of 4096.
    pub(super) fn transfer_bytes_max(&self) -> u64 {
        self.controller.identity().mdts_bytes.unwrap_or(TRANSFER_BYTES).clamp(4096, TRANSFER_BYTES)
    }

    /// What a store may rely on.
    pub(crate) fn geometry(&self) -> Geometry {
        let atomic = self.identity.nawupf_blocks.unwrap_or(self.controller.identity().awupf_blocks);
        Geometry {
            sector_bytes: self.lba_bytes(),
            physical_block_bytes: self.lba_bytes(),
            atomic_write_bytes: atomic.saturating_mul(self.lba_bytes()),
            volatile_cache: self.has_volatile_cache(),
            survives_power_loss: true,
            rotational: false,
            scheduler: None,
            device: Some(format!("{} namespace {}", self.controller.name(), self.nsid)),
            file_system: Some("raw".into()),
        }
    }

    /// Does one request now: its offset is on the namespace. Waits until it is done.
    pub(crate) fn execute(&self, volume: &Arc<NvmeVolume>, request: DiskRequest) -> DiskOutcome {
        let mut caller = self.caller();
        let Some(pair) = caller.as_mut() else { return request.refuse(IoFault::Os(libc::ENODEV)) };
        pair.submit(0, volume, request);
        let mut done = Vec::with_capacity(1);
        let begin = self.controller.bus().now();
        loop {
            pair.ring();
            pair.poll(&mut done);
            if let Some((_, outcome)) = done.pop() {
                return outcome;
            }
            // A read takes less.
            if self.controller.bus().now() - begin > super::SPIN_MAX {
                self.controller.bus().pause();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// A pair that nobody uses; or the first one, when it is free.
    fn caller(&self) -> MutexGuard<'_, Option<IoPair>> {
        for caller in &self.callers {
            let Ok(mut free) = caller.try_lock() else { continue };
            if free.is_none() {
                // The controller may have no more.
                *free = IoPair::open(&self.controller).ok();
            }
            if free.is_some() {
                return free;
            }
        }
        // `open` makes one at least.
        let [first, ..] = &self.callers[..] else { unreachable!("a namespace has a pair for callers") };
        first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Callers' pairs end, and the controller is shut down in order.
    ///
    /// # Errors
    /// The device does not say that it is done.
    pub(crate) fn shut_down(&self) -> Result<(), NvmeError> {
        for caller in &self.callers {
            *caller.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        self.controller.shut_down()
    }
}

/// A volume on a namespace: knows which of its writes a reset of the controller may have lost.
#[derive(Debug)]
pub struct NvmeVolume {
    namespace: Arc<Namespace>,
    cache: Mutex<CacheState>,
}

/// What of a volume the device's cache may hold.
#[derive(Debug, Default)]
struct CacheState {
    /// Writes that have completed and may be in the cache.
    completed: u64,
    /// Of them, those that a flush has covered.
    flushed: u64,
    /// The controller's when the last of them completed.
    generation: u32,
    /// The controller was reset while there were some.
    may_be_lost: bool,
}

impl NvmeVolume {
    /// A volume. Until its first flush the cache may hold what another process left there.
    pub fn new(namespace: &Arc<Namespace>) -> Arc<NvmeVolume> {
        let generation = namespace.controller.generation();
        let completed = u64::from(namespace.has_volatile_cache());
        let cache = Mutex::new(CacheState { completed, generation, ..CacheState::default() });
        Arc::new(NvmeVolume { namespace: Arc::clone(namespace), cache })
    }

    /// What it lies on.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    fn cache(&self) -> MutexGuard<'_, CacheState> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cached_writes(&self) -> u64 {
        self.cache().completed
    }

    pub(super) fn write_completed(&self, generation: u32) {
        let mut cache = self.cache();
        cache.meet(generation);
        cache.completed += 1;
    }

    pub(super) fn flushed(&self, covered: u64) {
        let mut cache = self.cache();
        cache.flushed = cache.flushed.max(covered);
    }

    /// A controller that was reset may have lost what its cache held: a flush of it fails once, as
    /// after a failed flush nobody knows what is on the medium.
    pub(super) fn may_flush(&self) -> Result<(), IoFault> {
        let mut cache = self.cache();
        fault_point!("nvme_reset_keeps_cache", cache.generation = self.namespace.controller.generation());
        cache.meet(self.namespace.controller.generation());
        cache.flushed = if cache.may_be_lost { cache.completed } else { cache.flushed };
        if std::mem::take(&mut cache.may_be_lost) { Err(IoFault::Os(libc::EIO)) } else { Ok(()) }
    }
}

impl CacheState {
    fn meet(&mut self, generation: u32) {
        if self.generation != generation {
            self.may_be_lost |= self.completed > self.flushed;
            self.generation = generation;
        }
    }
}
