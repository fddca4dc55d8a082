//! Block devices: requests in, completions out. The only crate that talks to the kernel about I/O.
//!
//! [`Ring`] is the seam: `uring` (io_uring), `blocking` (a thread pool and epoll, taken by itself
//! where io_uring is refused) and `memory` (images in memory, no network, for tests) all implement
//! it. A ring belongs to one thread; it carries disk requests and socket requests alike, and
//! submits everything queued in one system call. [`sync::execute`] does one disk request in the
//! calling thread, for blocking callers who make no hop.

pub mod allocator;
pub mod block;
pub mod blocking;
pub mod fork;
pub mod geometry;
pub mod memory;
pub mod nvme;
pub mod passthrough;
pub mod privileges;
mod provided;
pub mod raw;
pub mod request;
pub mod ring;
pub mod socket;
pub mod sync;
pub mod uring;
mod uring_setup;
pub mod volume;
pub mod xdp;

pub use block::{Block, BlockPart, Class, Pool};
pub use geometry::Geometry;
pub use nvme::NvmeRing;
pub use passthrough::PassthroughRing;
pub use raw::{RawDevice, RawRefusal};
pub use request::{DiskOutcome, DiskRequest, IoFault};
pub use ring::{
    Chunk, Completion, NetOutcome, NetRequest, Ring, RingKind, Socket, Wait, Waker, open_ring, open_ring_for,
};
pub use socket::{SocketAddress, SocketHandle};
pub use volume::Volume;

/// What a mutex guards, also after a panic of another thread that had it.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
