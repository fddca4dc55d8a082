//! NVMe from user space: a driver over VFIO, or over whatever else is a [`Bus`].
//!
//! The second medium of UKV's design: the SSD's queues are in this process, and a tick rings their
//! doorbells. docs/nvme.md draws it.
//!
//! | file | what it is |
//! |---|---|
//! | `bus.rs` | the seam to a PCI function: registers, memory, interrupts |
//! | `registers.rs`, `command.rs`, `status.rs`, `identify.rs` | what the specification lays out |
//! | `builder.rs` | commands of requests, and where their data lies |
//! | `name.rs` | how a store names such a disk |
//! | `memory.rs` | memory that the device reaches: queues, and the chunks of pools |
//! | `queue.rs` | a submission and a completion queue |
//! | `controller.rs` | bring-up, admin commands, reset, orderly end |
//! | `requests.rs`, `table.rs`, `shape.rs` | disk requests, their parts and answers; for all
//! | `pair.rs` | disk requests to commands and back; deadlines |
//! | `vfio.rs`, `pci.rs` | a bus whose device is one, bound to vfio-pci |
//! | `inspect.rs` | what the system says of controllers, and how they are bound; for `doctor` |
//! | `emulated.rs` | a bus whose device is a program, for simulators |
//! | `namespace.rs` | a disk, and callers without a ring |
//! | `ring.rs` | [`NvmeRing`]: these disks beside another ring's files and sockets |
//!
//! Names of registers, fields and commands are those of the NVMe Base Specification 2.0 and the NVM
//! Command Set Specification 1.0.

use std::time::Duration;

mod builder;
mod bus;
pub(crate) mod command;
mod controller;
mod emulated;
mod error;
#[cfg(any(test, fuzzing))]
#[path = "../../tests/fuzzing/identify.rs"]
pub mod fuzzing;
mod identify;
pub mod inspect;
mod interrupts;
mod memory;
mod name;
mod namespace;
mod pair;
mod pci;
mod queue;
mod registers;
pub(crate) mod requests;
mod ring;
pub(crate) mod shape;
pub(crate) mod status;
pub(crate) mod table;
mod vfio;

pub use bus::Bus;
pub use controller::{Controller, NvmeOptions};
pub use emulated::{DeviceMemory, EmulatedBus, EmulatedDevice};
pub use error::NvmeError;
pub use identify::{ControllerIdentity, IDENTIFY_BYTES, NamespaceIdentity};
pub(crate) use memory::release;
pub use name::{DriveRefusal, NvmeName};
pub use namespace::{Namespace, NvmeVolume};
pub use pair::IoPair;
pub use pci::{BadPciAddress, PciAddress};
pub use ring::NvmeRing;
pub use status::CommandStatus;
pub use vfio::{Vfio, VfioRefusal};

/// A thread that waits looks for so long without sleeping.
const SPIN_MAX: Duration = Duration::from_micros(50);
