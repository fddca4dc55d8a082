//! [`Vfio`]: an NVMe controller that the kernel's driver has given up, reached through VFIO.
//!
//! It owns the descriptors, the mapped registers, and the table of memory that the device reaches.
//! `stratakv` opens it; the driver above knows it as a [`Bus`]. It never knows what a command is.
//!
//! ```text
//!  /dev/vfio/vfio ── container: the IOMMU's table of this process   map, unmap
//!        └─ /dev/vfio/7 ── group: devices the IOMMU cannot tell apart, one process at a time
//!              └─ device: BAR 0 (mapped), configuration space, interrupts, reset
//! ```

#![expect(unsafe_code, reason = "the device is told of memory by its address")]

mod addresses;
mod bar;
mod calls;
mod refusal;

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Mutex;

use vfio_bindings::bindings::vfio::{
    VFIO_API_VERSION, VFIO_DEVICE_FLAGS_RESET, VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE,
    VFIO_GROUP_FLAGS_VIABLE, VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, VFIO_IRQ_INFO_EVENTFD,
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_TYPE1_IOMMU, VFIO_TYPE1v2_IOMMU, vfio_device_info,
    vfio_iommu_type1_dma_map, vfio_iommu_type1_info, vfio_iommu_type1_info_cap_iova_range,
};

use super::Bus;
use super::inspect::{Inspector, NVME_CLASS, NvmeFunction, VFIO_DRIVER};
use super::pci::PciAddress;
use crate::fork::Lineage;
use crate::lock;
use crate::sync;
use addresses::IoAddresses;
use bar::{Bar, Region};
use calls::{Info, Plain};
pub use refusal::VfioRefusal;

const CONTAINER: &str = "/dev/vfio/vfio";
/// The command register of configuration space (PCI, section 6.2.2), 16 bits.
const COMMAND: u64 = 4;
const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
/// No interrupt by wire: ours are messages.
const INTERRUPT_DISABLE: u16 = 1 << 10;
/// Registers of a controller: its own, and the doorbells of two queue pairs (NVMe over PCIe, 3.1).
const REGISTERS_MIN_BYTES: u64 = 0x1010;
const PAGE_BYTES: usize = 4096;

/// A controller on vfio-pci.
#[derive(Debug)]
pub struct Vfio {
    // Dropped in this order: the registers are unmapped before the device is closed.
    bar: Bar,
    device: File,
    _group: File,
    container: File,
    name: String,
    config_offset: u64,
    can_reset: bool,
    vectors: u16,
    /// Vectors that the kernel has enabled now.
    enabled: Mutex<u32>,
    addresses: Mutex<IoAddresses>,
    lineage: Lineage,
}

impl Vfio {
    /// Opens the controller at `address` (`0000:05:00.0`), which is bound to vfio-pci. One process
    /// at a time has it; one that has just died is waited for, up to two seconds.
    ///
    /// # Errors
    /// See [`VfioRefusal`].
    pub fn open(address: &str) -> Result<Vfio, VfioRefusal> {
        let address: PciAddress = address.parse()?;
        let function = Inspector::here().function(address).ok_or(VfioRefusal::Missing(address))?;
        let group_number = usable_group(&function)?;
        let refuse = |what| move |error| VfioRefusal::Io { address, what, error };
        let unsupported = |what| VfioRefusal::Unsupported { address, what };

        let container = open_file(CONTAINER).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => VfioRefusal::NoVfio(CONTAINER.to_owned()),
            _ => refuse_file(address, group_number, CONTAINER, error),
        })?;
        check_container(&container).map_err(unsupported)?;
        let path = format!("/dev/vfio/{group_number}");
        let group = sync::wait_while_busy(|| open_file(&path))
            .map_err(|error| refuse_file(address, group_number, &path, error))?;
        let flags = calls::group_flags(group.as_fd()).map_err(refuse("read the group's state"))?;
        if flags & VFIO_GROUP_FLAGS_VIABLE == 0 {
            // The kernel knows of a neighbour that sysfs did not show a moment ago.
            return Err(shared_group(&function, group_number));
        }
        calls::set_container(group.as_fd(), container.as_fd()).map_err(refuse("put the group into a container"))?;
        set_iommu(&container).map_err(refuse("use the IOMMU"))?;
        let name = address.to_string();
        let text = CString::new(name.clone()).unwrap_or_default();
        let device = calls::device_descriptor(group.as_fd(), &text).map_err(refuse("open the device"))?;
        let device = File::from(device);

        let info = calls::info(device.as_fd(), Info::Device, size_of::<vfio_device_info>());
        let info = info.map_err(refuse("ask about the device"))?;
        let flags = info.u32(offset_of!(vfio_device_info, flags)).unwrap_or_default();
        let config = Region::ask(&device, VFIO_PCI_CONFIG_REGION_INDEX).map_err(refuse("find configuration space"))?;
        // Memory space first: registers are mapped only while the device answers there.
        let on = MEMORY_SPACE | BUS_MASTER | INTERRUPT_DISABLE;
        set_command(&device, config.offset, on, 0).map_err(refuse("enable bus mastering"))?;
        let region = Region::ask(&device, VFIO_PCI_BAR0_REGION_INDEX).map_err(refuse("find the registers"))?;
        if region.bytes < REGISTERS_MIN_BYTES {
            return Err(unsupported("BAR 0 is too short for the registers of an NVMe controller"));
        }
        let clone = device.try_clone().map_err(refuse("share the device's descriptor"))?;
        let bar = Bar::map(clone, &region).map_err(refuse("map the registers"))?;
        let (irq_flags, vectors) =
            calls::irq_info(device.as_fd(), VFIO_PCI_MSIX_IRQ_INDEX).map_err(refuse("ask about interrupts"))?;
        let vectors = if irq_flags & VFIO_IRQ_INFO_EVENTFD == 0 { 0 } else { vectors };
        let addresses = io_addresses(&container).map_err(refuse("ask the IOMMU for its addresses"))?;
        let mapped = bar.mapped_bytes();
        tracing::debug!(name, group_number, vectors, registers = region.bytes, mapped, "opened a controller by VFIO");
        Ok(Vfio {
            bar,
            device,
            _group: group,
            container,
            name,
            config_offset: config.offset,
            can_reset: flags & VFIO_DEVICE_FLAGS_RESET != 0,
            vectors: u16::try_from(vectors).unwrap_or(u16::MAX),
            enabled: Mutex::new(0),
            addresses: Mutex::new(addresses),
            lineage: Lineage::here(),
        })
    }

    /// Bytes of registers that are accessed without a system call.
    pub fn mapped_bytes(&self) -> usize {
        self.bar.mapped_bytes()
    }

    /// Sets the vectors from the first on to these descriptors (-1: nobody).
    fn set_vectors(&self, enabled: &mut u32, descriptors: &[i32]) -> io::Result<()> {
        let none = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
        let device = self.device.as_fd();
        // More vectors than are enabled: kernels before 6.6 want a new start for that.
        if *enabled > 0 && (descriptors.is_empty() || descriptors.len() > *enabled as usize) {
            calls::set_irqs(device, [none, VFIO_PCI_MSIX_IRQ_INDEX, 0, 0], &[])?;
            *enabled = 0;
        }
        if descriptors.is_empty() {
            return Ok(());
        }
        let mut descriptors = descriptors.to_vec();
        descriptors.resize(descriptors.len().max(*enabled as usize), -1);
        let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        let count = descriptors.len() as u32;
        calls::set_irqs(device, [flags, VFIO_PCI_MSIX_IRQ_INDEX, 0, count], &descriptors)?;
        *enabled = count;
        Ok(())
    }

    fn refuse_child(&self) -> io::Result<()> {
        match self.lineage.is_forked() {
            true => {
                Err(io::Error::other(format!("{} belongs to the process that this one was forked from", self.name)))
            }
            false => Ok(()),
        }
    }
}

// SAFETY: memory is unmapped by the IOMMU's table before `unmap` and `drop` return: the device can
// no longer translate the address, and the kernel has waited for what was under way.
unsafe impl Bus for Vfio {
    fn name(&self) -> &str {
        &self.name
    }

    fn bar_bytes(&self) -> usize {
        self.bar.len_bytes()
    }

    fn read_u32(&self, offset: usize) -> u32 {
        if self.lineage.is_forked() { u32::MAX } else { self.bar.read_u32(offset) }
    }

    fn read_u64(&self, offset: usize) -> u64 {
        if self.lineage.is_forked() { u64::MAX } else { self.bar.read_u64(offset) }
    }

    fn write_u32(&self, offset: usize, value: u32) {
        if !self.lineage.is_forked() {
            self.bar.write_u32(offset, value);
        }
    }

    fn write_u64(&self, offset: usize, value: u64) {
        if !self.lineage.is_forked() {
            self.bar.write_u64(offset, value);
        }
    }

    unsafe fn map(&self, memory: NonNull<u8>, bytes: usize) -> io::Result<u64> {
        self.refuse_child()?;
        let vaddr = memory.as_ptr().expose_provenance();
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || !vaddr.is_multiple_of(PAGE_BYTES) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "memory for a device is whole pages of 4096 bytes",
            ));
        }
        let mut addresses = lock(&self.addresses);
        let full = || io::Error::new(io::ErrorKind::OutOfMemory, "the IOMMU's address space is full");
        let iova = addresses.take(bytes as u64).ok_or_else(full)?;
        let map = vfio_iommu_type1_dma_map {
            argsz: size_of::<vfio_iommu_type1_dma_map>() as u32,
            flags: VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
            vaddr: vaddr as u64,
            iova,
            size: bytes as u64,
        };
        // SAFETY: the caller vouches for the memory.
        unsafe { calls::map_dma(self.container.as_fd(), &map) }.map_err(|error| {
            addresses.release(iova);
            map_error(&error, bytes)
        })?;
        Ok(iova)
    }

    fn unmap(&self, address: u64, bytes: usize) -> io::Result<()> {
        self.refuse_child()?;
        let mut addresses = lock(&self.addresses);
        if !addresses.has(address, bytes as u64) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "nothing of that length is mapped there"));
        }
        let unmapped = calls::unmap_dma(self.container.as_fd(), address, bytes as u64)?;
        if unmapped != bytes as u64 {
            return Err(io::Error::other(format!("the kernel unmapped {unmapped} of {bytes} bytes")));
        }
        addresses.release(address);
        Ok(())
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    fn interrupts(&self, events: &[Option<BorrowedFd<'_>>]) -> io::Result<()> {
        self.refuse_child()?;
        if events.len() > usize::from(self.vectors) {
            let text = format!("{} has {} interrupt vectors, {} are asked for", self.name, self.vectors, events.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let wanted = events.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let descriptors: Vec<i32> =
            events.iter().take(wanted).map(|event| event.map_or(-1, |event| event.as_raw_fd())).collect();
        self.set_vectors(&mut lock(&self.enabled), &descriptors)
    }

    fn reset(&self) -> io::Result<()> {
        self.refuse_child()?;
        if !self.can_reset {
            let text = format!("{} has no reset of its own (Function Level Reset)", self.name);
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        calls::plain(self.device.as_fd(), Plain::DeviceReset)?;
        let on = MEMORY_SPACE | BUS_MASTER | INTERRUPT_DISABLE;
        set_command(&self.device, self.config_offset, on, 0)
    }
}

impl Drop for Vfio {
    /// Bus mastering goes first: from then on the device sends nothing, whatever its queues hold.
    fn drop(&mut self) {
        if self.lineage.is_forked() {
            return;
        }
        if let Err(error) = set_command(&self.device, self.config_offset, 0, BUS_MASTER) {
            tracing::debug!(name = self.name, %error, "bus mastering was not taken away");
        }
        // Dropped: closing the descriptors does the same for what fails here.
        let _ = self.set_vectors(&mut lock(&self.enabled), &[]);
        let mut addresses = lock(&self.addresses);
        let given: Vec<(u64, u64)> = addresses.given().collect();
        for (iova, bytes) in given {
            match calls::unmap_dma(self.container.as_fd(), iova, bytes) {
                Ok(_) => addresses.release(iova),
                Err(error) => tracing::warn!(name = self.name, %error, "memory of a device was not unmapped"),
            }
        }
    }
}

/// What a function must be before its group is opened.
fn usable_group(function: &NvmeFunction) -> Result<u32, VfioRefusal> {
    let address = function.address;
    if function.class != NVME_CLASS {
        return Err(VfioRefusal::NoNvme(address, function.class));
    }
    let group = function.iommu_group.ok_or(VfioRefusal::NoIommu(address))?;
    if function.driver.as_deref() != Some(VFIO_DRIVER) {
        return Err(VfioRefusal::Driver { address, driver: function.driver.clone() });
    }
    if function.neighbours.iter().any(|neighbour| !neighbour.is_harmless()) {
        return Err(shared_group(function, group));
    }
    Ok(group)
}

fn shared_group(function: &NvmeFunction, group: u32) -> VfioRefusal {
    let others = function.neighbours.iter().filter(|neighbour| neighbour.driver.as_deref() != Some(VFIO_DRIVER));
    let others = others.map(|other| format!("{} ({})", other.address, other.driver.as_deref().unwrap_or("no driver")));
    let others = others.collect::<Vec<_>>().join(", ");
    VfioRefusal::SharedGroup { address: function.address, group, others }
}

fn open_file(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn refuse_file(address: PciAddress, group: u32, path: &str, error: io::Error) -> VfioRefusal {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            VfioRefusal::Permission { path: path.to_owned(), user: rustix::process::geteuid().as_raw() }
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy => VfioRefusal::Busy { address, group },
        io::ErrorKind::NotFound => VfioRefusal::NoVfio(path.to_owned()),
        _ => VfioRefusal::Io { address, what: "open its group", error },
    }
}

fn check_container(container: &File) -> Result<(), &'static str> {
    let ask = |what| calls::plain(container.as_fd(), what);
    if ask(Plain::GetApiVersion).ok() != Some(VFIO_API_VERSION.cast_signed()) {
        return Err("the kernel has another version of VFIO");
    }
    let has = |kind| ask(Plain::CheckExtension(kind)).is_ok_and(|answer| answer > 0);
    match has(VFIO_TYPE1_IOMMU) || has(VFIO_TYPE1v2_IOMMU) {
        true => Ok(()),
        false => Err("the kernel has no VFIO for this IOMMU (module vfio_iommu_type1)"),
    }
}

fn set_iommu(container: &File) -> io::Result<()> {
    let newer = calls::plain(container.as_fd(), Plain::SetIommu(VFIO_TYPE1v2_IOMMU));
    newer.or_else(|_| calls::plain(container.as_fd(), Plain::SetIommu(VFIO_TYPE1_IOMMU))).map(drop)
}

/// VFIO_IOMMU_GET_INFO: the addresses that the IOMMU translates.
fn io_addresses(container: &File) -> io::Result<IoAddresses> {
    let answer = calls::info(container.as_fd(), Info::Iommu, size_of::<vfio_iommu_type1_info>())?;
    let flags = answer.u32(offset_of!(vfio_iommu_type1_info, flags)).unwrap_or_default();
    let first = answer.u32(offset_of!(vfio_iommu_type1_info, cap_offset)).unwrap_or_default();
    let first = if flags & VFIO_IOMMU_INFO_CAPS == 0 { 0 } else { first };
    let ranges = answer.capability(first, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE as u16).map(|at| {
        let count = answer.u32(at + offset_of!(vfio_iommu_type1_info_cap_iova_range, nr_iovas)).unwrap_or_default();
        answer.pairs(at + offset_of!(vfio_iommu_type1_info_cap_iova_range, iova_ranges), count)
    });
    Ok(IoAddresses::new(ranges.as_deref()))
}

/// Sets and clears bits of the command register.
fn set_command(device: &File, config_offset: u64, set: u16, clear: u16) -> io::Result<()> {
    let at = config_offset.saturating_add(COMMAND);
    let mut bytes = [0; 2];
    device.read_exact_at(&mut bytes, at)?;
    let command = u16::from_le_bytes(bytes) & !clear | set;
    device.write_all_at(&command.to_le_bytes(), at)
}

fn map_error(error: &io::Error, bytes: usize) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            "the limit on locked memory is reached: `ulimit -l unlimited` (LimitMEMLOCK=infinity for systemd), or give the store less memory"
        }
        Some(libc::ENOSPC) => {
            "the kernel's limit on mappings is reached: raise dma_entry_limit of module vfio_iommu_type1"
        }
        _ => "the kernel refuses it",
    };
    io::Error::new(error.kind(), format!("{bytes} bytes cannot be mapped for the device: {why} ({error})"))
}

/// A panic of another thread leaves the tables whole: they are changed after the system call.
#[cfg(test)]
#[path = "../../tests/unit/nvme/vfio.rs"]
mod tests;
