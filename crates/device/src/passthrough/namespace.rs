//! [`PassthroughNamespace`]: a disk that takes its commands by the kernel; and its volumes.
#![expect(unsafe_code, reason = "commands hold pointers to blocks, which their request owns")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::geometry::Geometry;
use crate::nvme::command::Cns;
use crate::nvme::requests::Request;
use crate::nvme::shape::{NamespaceShape, VolumeState};
use crate::nvme::status::{CommandStatus, RETRIES_MAX, RETRY_AFTER};
use crate::nvme::{ControllerIdentity, NamespaceIdentity, NvmeError};
use crate::passthrough::abi::PassthroughCommand;
use crate::passthrough::builder::CommandData;
use crate::passthrough::generic::{GenericDevice, PassthroughRefusal};
use crate::passthrough::kernel::KernelTarget;
use crate::passthrough::outcome::{CommandFailure, CommandOutcome};
use crate::passthrough::queue::is_known_to_kernel;
use crate::passthrough::target::{CommandQueue, CommandTarget};
use crate::raw::RawRefusal;
use crate::request::{DiskOutcome, DiskRequest, IoFault};
use crate::sync;

/// The unit of MDTS where the kernel does not tell it: the least that there is.
const MPSMIN_BYTES: u64 = 4096;

/// A namespace of a controller that the kernel drives.
#[derive(Debug)]
pub struct PassthroughNamespace {
    target: Box<dyn CommandTarget>,
    name: String,
    identity: ControllerIdentity,
    shape: NamespaceShape,
    /// Of the same namespace; emptied by it, say.
    block_path: PathBuf,
    /// Resets of the controller that commands heard of.
    generation: AtomicU32,
}

impl PassthroughNamespace {
    /// Opens, locks and identifies a device that [`GenericDevice::find`] has found at `path`. The
    /// second value is the claim on its block device: while it is open, nobody mounts that.
    pub(crate) fn open(
        path: &Path,
        device: &GenericDevice,
        read_only: bool,
    ) -> Result<(Arc<PassthroughNamespace>, Option<File>), RawRefusal> {
        if !is_known_to_kernel() {
            return Err(PassthroughRefusal::OldKernel(device.block_path()).into());
        }
        let refusal = RawRefusal::of_open;
        let missing = || PassthroughRefusal::NoBlockDevice(device.block_path());
        let claim = match read_only {
            true => None,
            false => {
                let claimed = sync::wait_while_busy(|| device.open_block(libc::O_EXCL)).map_err(refusal)?;
                Some(claimed.ok_or_else(missing)?)
            }
        };
        // Whoever uses the block device has this lock until its last request is done, and whoever
        // uses the character device has both.
        let block = device.open_block(0).map_err(refusal)?.ok_or_else(missing)?;
        sync::lock(&block, read_only, sync::LOCK_WAIT).map_err(refusal)?;
        let file = OpenOptions::new().read(true).write(!read_only).open(path).map_err(refusal)?;
        sync::lock(&file, read_only, sync::LOCK_WAIT).map_err(refusal)?;
        let target = KernelTarget::new(file, block);
        let nsid = target.nsid().map_err(refusal)?;
        let identify = |cns, nsid| match target.identify(cns, nsid).map_err(refusal)? {
            Ok(page) => Ok(page),
            Err(status) => {
                let status = CommandStatus::new(status);
                Err(RawRefusal::from(PassthroughRefusal::Nvme(NvmeError::Refused { command: "Identify", status })))
            }
        };
        let controller = ControllerIdentity::parse(&identify(Cns::Controller, 0)?, MPSMIN_BYTES);
        let namespace = NamespaceIdentity::parse(&identify(Cns::Namespace, nsid)?);
        let namespace = namespace.ok_or(PassthroughRefusal::Nvme(NvmeError::BadIdentity(nsid)))?;
        let mut shape = NamespaceShape::new(nsid, &controller, &namespace).map_err(PassthroughRefusal::Nvme)?;
        shape.transfer_bytes_max = shape.transfer_bytes_max.min(device.transfer_bytes_max());
        tracing::debug!(device = device.name, ?shape, "an NVMe namespace takes commands");
        let opened = PassthroughNamespace::over(Box::new(target), &device.name, controller, shape, device.block_path());
        Ok((opened, claim))
    }

    pub(super) fn over(
        target: Box<dyn CommandTarget>,
        name: &str,
        identity: ControllerIdentity,
        shape: NamespaceShape,
        block_path: PathBuf,
    ) -> Arc<PassthroughNamespace> {
        let (name, generation) = (name.to_owned(), AtomicU32::new(0));
        Arc::new(PassthroughNamespace { target, name, identity, shape, block_path, generation })
    }

    /// `ng0n1`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its controller says of itself.
    pub fn controller(&self) -> &ControllerIdentity {
        &self.identity
    }

    /// Namespace Identifier.
    pub fn nsid(&self) -> u32 {
        self.shape.nsid
    }

    /// Its size, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.shape.len_bytes
    }

    /// Most bytes of one command.
    pub fn transfer_bytes_max(&self) -> u64 {
        self.shape.transfer_bytes_max
    }

    /// The block device of the same namespace.
    pub fn block_path(&self) -> &Path {
        &self.block_path
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.shape.geometry(self.name.clone())
    }

    pub(crate) fn unlock(&self) {
        self.target.unlock();
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn target(&self) -> &dyn CommandTarget {
        &*self.target
    }

    pub(super) fn queue(&self, depth: u16, event: OwnedFd) -> io::Result<Box<dyn CommandQueue>> {
        self.target.queue(depth, event)
    }

    /// How a command ended; notes a reset of the controller.
    pub(super) fn hear(&self, command: &PassthroughCommand, outcome: CommandOutcome) -> Result<(), CommandFailure> {
        let result = outcome.result();
        if let Err(failure) = result {
            if failure.was_reset {
                self.generation.fetch_add(1, Ordering::AcqRel);
                tracing::warn!(device = self.name, %outcome, "the kernel has reset the NVMe controller: the next flush fails");
            } else {
                tracing::debug!(device = self.name, %outcome, ?command, "an NVMe command failed");
            }
        }
        result
    }

    /// Does one request now: its offset is on the namespace. Waits until it is done.
    pub(crate) fn execute(&self, state: &Arc<VolumeState>, request: DiskRequest) -> DiskOutcome {
        let mut request = match Request::new(0, state, self.generation(), request) {
            Ok(request) => request,
            Err(outcome) => return outcome,
        };
        let mut data = CommandData::default();
        while !request.is_issued() && request.fault.is_none() {
            let done = data.command(&request).and_then(|(command, bytes)| {
                // SAFETY: the command points to blocks of `request` and to `data`, which are here.
                unsafe { self.run(&command) }.map(|()| bytes)
            });
            match done {
                Ok(bytes) => request.issued += bytes,
                Err(fault) => request.fault = Some(fault),
            }
        }
        request.fault = request.fault.or(self.fault_of_reset(&request));
        request.completed(request.begun);
        request.end().1
    }

    /// One command of a caller without a ring, again if that may help.
    ///
    /// # Safety
    /// As [`CommandTarget::execute`].
    unsafe fn run(&self, command: &PassthroughCommand) -> Result<(), IoFault> {
        let mut retries = 0;
        loop {
            command.command.trace(&self.name);
            // SAFETY: by this function's contract.
            let outcome = CommandOutcome(unsafe { self.target.execute(command) });
            match self.hear(command, outcome) {
                Err(failure) if failure.may_be_retried && retries < RETRIES_MAX => {
                    self.target.pause(RETRY_AFTER * (1 << retries));
                    retries += 1;
                }
                result => return result.map_err(|failure| failure.fault),
            }
        }
    }

    /// A flush that was begun before a reset and ended after it: what the cache held meanwhile may
    /// be lost, whatever the flush says.
    pub(super) fn fault_of_reset(&self, request: &Request) -> Option<IoFault> {
        (request.is_flush() && self.generation() != request.begun).then_some(IoFault::Os(libc::EIO))
    }
}

/// A volume on such a namespace.
#[derive(Debug)]
pub struct PassthroughVolume {
    namespace: Arc<PassthroughNamespace>,
    state: Arc<VolumeState>,
}

impl PassthroughVolume {
    /// A volume. Until its first flush the cache may hold what another process left there.
    pub fn new(namespace: &Arc<PassthroughNamespace>) -> Arc<PassthroughVolume> {
        let state = VolumeState::new(namespace.shape, namespace.generation());
        Arc::new(PassthroughVolume { namespace: Arc::clone(namespace), state })
    }

    /// What it lies on.
    pub fn namespace(&self) -> &Arc<PassthroughNamespace> {
        &self.namespace
    }

    pub(crate) fn state(&self) -> &Arc<VolumeState> {
        &self.state
    }
}
