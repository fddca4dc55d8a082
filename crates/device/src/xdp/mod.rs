//! Sockets without the kernel's TCP: frames by AF_XDP, TCP by `smoltcp`.

mod bpf;
mod buffers;
mod connection;
mod connections;
mod filter;
mod frame;
mod frame_io;
mod frame_pool;
mod handle;
pub mod inspect;
mod interface;
mod netlink;
mod open;
mod port;
mod ring;
mod stack;
mod stall;
mod umem;
mod xsk;

#[cfg(any(test, fuzzing))]
#[path = "../../tests/fuzzing/mod.rs"]
pub mod fuzzing;
#[cfg(test)]
#[path = "../../tests/unit/xdp/link.rs"]
mod link_tests;
#[cfg(test)]
#[path = "../../tests/unit/xdp/stack.rs"]
mod stack_tests;
#[cfg(any(test, fuzzing))]
#[path = "../../tests/unit/xdp/wire.rs"]
mod wire;

pub use buffers::BufferSizes;
pub use frame_io::FrameIo;
pub use handle::StackSocket;
pub use open::{ADDRESSES_MAX, PreparedXdp, UMEM_BYTES, XdpHealth, XdpOptions, XdpPort, XdpQueue, XdpRefusal};
pub use ring::XdpRing;
pub use stack::{Stack, StackCounters, StackOptions};
