//! The lab: a store under a real kernel on an emulated NVMe with a volatile cache, whose writes and
//! flushes are all logged.
//!
//! One program is both sides. On the host ([`host::run`]) it boots QEMU with itself as `/init`; as
//! process 1 there ([`guest::main`]) it writes to a store through the library and *witnesses* each
//! acknowledgement with a sector written to the same logged device. The host then cuts the power at
//! many places of the log ([`replay`]), lets the file system and the store recover, and compares
//! ([`verify`]).

pub mod bypass;
pub mod counts;
mod doctor;
pub mod errors;
pub mod guest;
pub mod host;
pub mod log;
pub mod machine;
pub mod numa;
pub mod pmem;
pub mod replay;
pub mod trace;
pub mod verify;
pub mod workload;
