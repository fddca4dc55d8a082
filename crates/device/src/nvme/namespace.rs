//! A namespace: a disk of a controller; and a volume's share of what its cache holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::geometry::Geometry;
use crate::nvme::controller::Controller;
use crate::nvme::error::NvmeError;
use crate::nvme::identify::NamespaceIdentity;
use crate::nvme::pair::IoPair;
use crate::nvme::shape::{NamespaceShape, VolumeState};
use crate::request::{DiskOutcome, DiskRequest, IoFault};

/// Queue pairs for callers who have no ring, at most.
const CALLERS_MAX: usize = 8;

/// A namespace of a controller, as a disk.
#[derive(Debug)]
pub struct Namespace {
    controller: Arc<Controller>,
    identity: NamespaceIdentity,
    shape: NamespaceShape,
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
        let shape = NamespaceShape::new(nsid, controller.identity(), &identity)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let callers = cores.min(usize::from(controller.pairs()) / 2).clamp(1, CALLERS_MAX);
        // The first one at once: what rings take later does not leave callers without.
        let first = [Mutex::new(Some(IoPair::open(controller)?))].into_iter();
        let callers = first.chain((1..callers).map(|_| Mutex::new(None))).collect();
        Ok(Arc::new(Namespace { controller: Arc::clone(controller), identity, shape, callers }))
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
        self.shape.len_bytes
    }

    /// What a store may rely on.
    pub(crate) fn geometry(&self) -> Geometry {
        self.shape.geometry(format!("{} namespace {}", self.controller.name(), self.shape.nsid))
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
    state: Arc<VolumeState>,
}

impl NvmeVolume {
    /// A volume. Until its first flush the cache may hold what another process left there.
    pub fn new(namespace: &Arc<Namespace>) -> Arc<NvmeVolume> {
        let state = VolumeState::new(namespace.shape, namespace.controller.generation());
        Arc::new(NvmeVolume { namespace: Arc::clone(namespace), state })
    }

    /// What it lies on.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    pub(super) fn state(&self) -> &Arc<VolumeState> {
        &self.state
    }
}
