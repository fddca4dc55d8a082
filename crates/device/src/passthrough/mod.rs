//! NVMe commands by the kernel's driver: a namespace's character device `/dev/ngXnY`, without the
//! block layer. docs/passthrough.md tells when to choose it.
//!
//! ```text
//!  PassthroughRing::disk --> Lane: RequestTable, slots --> CommandQueue
//!      (turn ends) submit ---------------------------------> one io_uring_enter: UringCmd80
//!                  wait: the ring below sleeps; completions signal its eventfd
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `abi.rs` | commands as the kernel takes them |
//! | `builder.rs` | commands of requests, and where their data lies |
//! | `outcome.rs` | how a command ended |
//! | `target.rs` | the seam: what takes commands |
//! | `kernel.rs`, `queue.rs` | the kernel: by ioctl, and by an io_uring of 128-byte entries |
//! | `emulated.rs` | a program in its place, for tests |
//! | `generic.rs` | which device it is, and its block device |
//! | `namespace.rs` | a disk: opened, locked, identified; callers without a ring |
//! | `lane.rs` | requests of one thread: split, tried again, answered once |
//! | `ring.rs` | [`PassthroughRing`]: such disks beside another ring's files and sockets |
//!
//! Requests, their table and what a namespace says of itself are those of [`nvme`](crate::nvme).

mod abi;
mod builder;
mod emulated;
mod generic;
mod kernel;
mod lane;
mod namespace;
mod outcome;
mod queue;
mod ring;
mod target;

pub use emulated::{EmulatedData, EmulatedNamespace, EmulatedTarget};
pub(crate) use generic::generic_sibling;
pub use generic::{GenericDevice, PassthroughRefusal};
pub use namespace::{PassthroughNamespace, PassthroughVolume};
pub use ring::PassthroughRing;
