//! A bus whose device is a program: what simulators and tests drive the driver with.
#![expect(
    unsafe_code,
    reason = "the driver gives addresses of its memory, which the emulated device copies from and to"
)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::nvme::Bus;

/// A device behind an [`EmulatedBus`]: it is called for each access of the driver.
pub trait EmulatedDevice: Debug + Send {
    /// The register of 32 bits at `offset` of BAR 0.
    fn read_register(&mut self, offset: usize) -> u32;

    /// The driver writes the register at `offset`. `memory` is what the device reaches now.
    fn write_register(&mut self, offset: usize, value: u32, memory: &DeviceMemory);

    /// A Function Level Reset; `false`: it has none.
    fn reset(&mut self) -> bool;

    /// The time as the driver sees it.
    fn now(&mut self) -> Duration;

    /// The driver waits for the device.
    fn pause(&mut self, memory: &DeviceMemory);
}

/// The memory that an emulated device reaches: what the driver mapped, by the device's addresses.
#[derive(Debug)]
pub struct DeviceMemory {
    regions: BTreeMap<u64, Region>,
    next: u64,
    /// What interrupts signal, by vector.
    events: Vec<Option<OwnedFd>>,
}

#[derive(Debug)]
struct Region {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is valid while it is mapped (a duty of `Bus::map`'s caller), in any thread;
// accesses race with the driver's only where those of a device would.
unsafe impl Send for Region {}

impl DeviceMemory {
    /// Copies from the device's address on; `false`: it reaches nothing there, or not so much.
    #[must_use]
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let Some(place) = self.place(address, into.len()) else { return false };
        // SAFETY: `place` has found that many bytes, which are mapped and so valid; nobody has a
        // reference to memory that was handed to the device.
        unsafe { place.copy_to_nonoverlapping(NonNull::from(&mut *into).cast(), into.len()) };
        true
    }

    /// Copies to the device's address; `false`: it reaches nothing there, or not so much.
    #[must_use]
    pub fn write(&self, address: u64, from: &[u8]) -> bool {
        let Some(place) = self.place(address, from.len()) else { return false };
        // SAFETY: as in `read`; the device writes only where the driver asked it to.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) };
        true
    }

    /// Raises an interrupt.
    pub fn interrupt(&self, vector: u16) {
        if let Some(event) = self.events.get(usize::from(vector)).and_then(Option::as_ref) {
            // A counter that is full has been signalled.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    fn place(&self, address: u64, bytes: usize) -> Option<NonNull<u8>> {
        let (start, region) = self.regions.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        let is_within = offset.checked_add(bytes).is_some_and(|end| end <= region.bytes);
        // SAFETY: within the region.
        is_within.then(|| unsafe { region.memory.add(offset) })
    }
}

/// A [`Bus`] to a device that is a program.
#[derive(Debug)]
pub struct EmulatedBus<D> {
    name: String,
    inner: Mutex<Inner<D>>,
}

#[derive(Debug)]
struct Inner<D> {
    device: D,
    memory: DeviceMemory,
}

impl<D: EmulatedDevice> EmulatedBus<D> {
    /// To `device`; `name` is shown in messages.
    pub fn new(name: &str, device: D) -> EmulatedBus<D> {
        let memory = DeviceMemory { regions: BTreeMap::new(), next: 1 << 32, events: Vec::new() };
        EmulatedBus { name: name.to_owned(), inner: Mutex::new(Inner { device, memory }) }
    }

    /// The device and the memory that it reaches: for who moves it on.
    pub fn with<R>(&self, look: impl FnOnce(&mut D, &DeviceMemory) -> R) -> R {
        let mut inner = self.inner();
        let Inner { device, memory } = &mut *inner;
        look(device, memory)
    }

    fn inner(&self) -> MutexGuard<'_, Inner<D>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: the device reaches memory through `DeviceMemory` alone, which forgets what is unmapped.
unsafe impl<D: EmulatedDevice> Bus for EmulatedBus<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bar_bytes(&self) -> usize {
        0x2000
    }

    fn read_u32(&self, offset: usize) -> u32 {
        self.inner().device.read_register(offset)
    }

    fn read_u64(&self, offset: usize) -> u64 {
        self.with(|device, _| {
            let low = u64::from(device.read_register(offset));
            low | u64::from(device.read_register(offset + 4)) << 32
        })
    }

    fn write_u32(&self, offset: usize, value: u32) {
        self.with(|device, memory| device.write_register(offset, value, memory));
    }

    fn write_u64(&self, offset: usize, value: u64) {
        self.with(|device, memory| {
            device.write_register(offset, value as u32, memory);
            device.write_register(offset + 4, (value >> 32) as u32, memory);
        });
    }

    unsafe fn map(&self, memory: NonNull<u8>, bytes: usize) -> io::Result<u64> {
        let mut inner = self.inner();
        let address = inner.memory.next;
        // A page that nobody has lies between two regions: who goes too far is noticed.
        inner.memory.next += bytes as u64 + 4096;
        inner.memory.regions.insert(address, Region { memory, bytes });
        Ok(address)
    }

    fn unmap(&self, address: u64, _bytes: usize) -> io::Result<()> {
        self.inner().memory.regions.remove(&address).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn vectors(&self) -> u16 {
        64
    }

    fn interrupts(&self, events: &[Option<BorrowedFd<'_>>]) -> io::Result<()> {
        let own = |event: &Option<BorrowedFd<'_>>| event.map(|event| event.try_clone_to_owned()).transpose();
        self.inner().memory.events = events.iter().map(own).collect::<io::Result<_>>()?;
        Ok(())
    }

    fn reset(&self) -> io::Result<()> {
        if self.inner().device.reset() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    fn now(&self) -> Duration {
        self.inner().device.now()
    }

    fn pause(&self) {
        self.with(EmulatedDevice::pause);
    }
}
