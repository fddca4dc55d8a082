//! What the driver needs of a PCI function: its registers, memory that it reaches, interrupts.
#![expect(unsafe_code, reason = "a device is told of memory by its address")]

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A PCI function with an NVMe controller, as a program in user space reaches it.
///
/// `Vfio` is the real one; the simulator has one whose controller is a program.
/// Registers are at offsets in BAR 0 (NVMe over PCIe, section 3.1), each read or written by one
/// access of its width, in program order. All threads may use it.
///
/// # Safety
/// After [`unmap`](Bus::unmap) has returned, and after the value was dropped, the device reaches
/// the memory no more.
pub unsafe trait Bus: Debug + Send + Sync {
    /// The function's address, for messages: `0000:05:00.0`.
    fn name(&self) -> &str;

    /// Bytes of BAR 0. An access beyond them reads all ones, and writes nothing.
    fn bar_bytes(&self) -> usize;

    /// The register of 32 bits at `offset`. All ones if the device has gone (PCI Express).
    fn read_u32(&self, offset: usize) -> u32;

    /// The register of 64 bits at `offset`: two reads of 32 bits where the device takes no other.
    fn read_u64(&self, offset: usize) -> u64;

    /// Writes the register of 32 bits at `offset`. What was written to memory before is seen by the
    /// device before it.
    fn write_u32(&self, offset: usize, value: u32);

    /// Writes the register of 64 bits at `offset`.
    fn write_u64(&self, offset: usize, value: u64);

    /// Lets the device reach `bytes` of memory from `memory` on (both multiples of 4096), and gives
    /// the address by which it does. Costs a system call.
    ///
    /// # Errors
    /// The system refuses: no room in the table, or a limit on locked memory (`ulimit -l`).
    ///
    /// # Safety
    /// The memory is valid until it is unmapped. The device writes to it when it is asked to.
    unsafe fn map(&self, memory: NonNull<u8>, bytes: usize) -> io::Result<u64>;

    /// Takes back what [`map`](Bus::map) gave.
    ///
    /// # Errors
    /// Nothing is mapped there.
    fn unmap(&self, address: u64, bytes: usize) -> io::Result<()>;

    /// Interrupt vectors (MSI-X) that [`interrupts`](Bus::interrupts) takes.
    fn vectors(&self) -> u16;

    /// From now on `event` (an eventfd) is signalled by each vector that it stands for; `None`:
    /// nobody is. The list replaces the one before; its place is the vector's number.
    ///
    /// # Errors
    /// The system refuses.
    fn interrupts(&self, events: &[Option<BorrowedFd<'_>>]) -> io::Result<()>;

    /// Ends all that the function does, and puts it into the state of a reset (Function Level
    /// Reset), if it can: for controllers that do not hear otherwise.
    ///
    /// # Errors
    /// It has no such reset, or the system refuses.
    fn reset(&self) -> io::Result<()>;

    /// The time since some moment, which never goes back.
    fn now(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    /// Lets some time pass: the device has not answered yet. Short.
    fn pause(&self) {
        std::thread::sleep(Duration::from_micros(20));
    }
}
