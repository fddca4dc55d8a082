//! An NVMe controller that is a program: registers, queues and commands as the specification has
//! them, over a [`Disk`](crate::disk::Disk) or an image in memory. The real driver drives it.
//!
//! It completes in any order, says that a command may be tried again, loses commands, completes
//! one twice, fails as a whole, and forgets all when it is reset.

mod controller;
mod driven;
mod front;
mod transfer;
mod whole;

pub use controller::{Command, ControllerTraits, EmulatedController, Opcode, Quirk};
pub use driven::Driven;
pub(crate) use front::NvmeFront;
pub use whole::{ImageController, NvmeImage};
