//! [`NamespaceShape`]: what requests have to know of a namespace, and [`VolumeState`]: what of a
//! volume its cache may hold. The same for a namespace that this process drives and for one that
//! takes its commands by the kernel.

use std::sync::{Arc, Mutex, MutexGuard};

use stratakv_base::fault_point;

use crate::geometry::Geometry;
use crate::lock;
use crate::nvme::error::NvmeError;
use crate::nvme::identify::{ControllerIdentity, NamespaceIdentity};
use crate::request::IoFault;

/// The largest transfer, if nothing sets a limit.
const TRANSFER_BYTES: u64 = 1 << 20;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceShape {
    /// Its identifier.
    pub(crate) nsid: u32,
    /// Bytes of a logical block: 512 or 4096.
    pub(crate) lba_bytes: u32,
    /// Its size.
    pub(crate) len_bytes: u64,
    /// Most bytes of one command, a multiple of 4096.
    pub(crate) transfer_bytes_max: u64,
    /// Largest write that a power cut does not tear.
    pub(crate) atomic_write_bytes: u32,
    /// A volatile write cache is present.
    pub(crate) has_volatile_cache: bool,
    /// Dataset Management is taken.
    pub(crate) takes_dataset_management: bool,
    /// Scatter gather lists are taken.
    pub(crate) takes_sgls: bool,
}

impl NamespaceShape {
    /// Of namespace `nsid`, from what its controller and it say.
    ///
    /// # Errors
    /// There is none of that number, or its format is not taken.
    pub(crate) fn new(
        nsid: u32,
        controller: &ControllerIdentity,
        namespace: &NamespaceIdentity,
    ) -> Result<NamespaceShape, NvmeError> {
        if namespace.nsze_blocks == 0 {
            return Err(NvmeError::NoNamespace { nsid, nn: controller.nn });
        }
        let NamespaceIdentity { lba_bytes, metadata_bytes, is_protected, .. } = *namespace;
        if !matches!(lba_bytes, 512 | 4096) || metadata_bytes > 0 || is_protected {
            let protected = if is_protected { ", protected end to end" } else { "" };
            return Err(NvmeError::Format { nsid, lba_bytes, metadata_bytes, protected });
        }
        let atomic = namespace.nawupf_blocks.unwrap_or(controller.awupf_blocks);
        Ok(NamespaceShape {
            nsid,
            lba_bytes,
            len_bytes: namespace.len_bytes().ok_or(NvmeError::BadIdentity(nsid))?,
            transfer_bytes_max: controller.mdts_bytes.unwrap_or(TRANSFER_BYTES).clamp(4096, TRANSFER_BYTES),
            atomic_write_bytes: atomic.saturating_mul(lba_bytes),
            has_volatile_cache: controller.volatile_write_cache,
            takes_dataset_management: controller.takes_dataset_management,
            takes_sgls: controller.takes_sgls,
        })
    }

    /// What a store may rely on; `device` is its name in messages.
    pub(crate) fn geometry(&self, device: String) -> Geometry {
        Geometry {
            sector_bytes: self.lba_bytes,
            physical_block_bytes: self.lba_bytes,
            atomic_write_bytes: self.atomic_write_bytes,
            volatile_cache: self.has_volatile_cache,
            survives_power_loss: true,
            rotational: false,
            scheduler: None,
            device: Some(device),
            file_system: Some("raw".into()),
        }
    }
}

/// A volume as its requests see it: the namespace, and which of the volume's writes a reset of the
/// controller may have lost.
#[derive(Debug)]
pub(crate) struct VolumeState {
    shape: NamespaceShape,
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

impl VolumeState {
    /// Of a volume just opened. Until its first flush the cache may hold what another process left
    /// there.
    pub(crate) fn new(shape: NamespaceShape, generation: u32) -> Arc<VolumeState> {
        let completed = u64::from(shape.has_volatile_cache);
        let cache = CacheState { completed, generation, ..CacheState::default() };
        Arc::new(VolumeState { shape, cache: Mutex::new(cache) })
    }

    pub(crate) fn shape(&self) -> &NamespaceShape {
        &self.shape
    }

    fn cache(&self) -> MutexGuard<'_, CacheState> {
        lock(&self.cache)
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
    /// after a failed flush nobody knows what is on the medium. `generation` is the controller's.
    pub(super) fn may_flush(&self, generation: u32) -> Result<(), IoFault> {
        let mut cache = self.cache();
        fault_point!("nvme_reset_keeps_cache", cache.generation = generation);
        cache.meet(generation);
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
