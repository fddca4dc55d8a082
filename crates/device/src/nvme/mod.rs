//! NVMe from user space.

mod bus;

pub use bus::Bus;
