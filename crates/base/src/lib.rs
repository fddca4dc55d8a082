//! Quantities, limits, codec, versions of formats, decimal numbers, checksum, corruption, seeded
//! numbers, slot tables, histograms and instants: what every StrataKV crate shares, and nothing
//! else. No I/O, no clock, no threads.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod codec;
pub mod corruption;
pub mod decimal;
pub mod fault_point;
pub mod format;
#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzzing/mod.rs"]
pub mod fuzzing;
pub mod histogram;
pub mod key;
pub mod limits;
pub mod probe;
pub mod quantity;
pub mod random;
pub mod slots;
pub mod time;

pub use corruption::{Corruption, Place, Unreadable};
pub use key::{CollectionId, Key};
pub use time::{Expiry, Mono, Now, Wall};

/// Durability level of a write: what must have happened before it is acknowledged.
///
/// Ordered: a later level implies the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Held in memory only. `tier` alone offers it.
    Memory,
    /// Handed to the device or the kernel: survives the death of the process, not of the machine.
    ProcessCrash,
    /// Survives loss of power: flushed, or written through, where the device's cache is volatile.
    PowerLoss,
}

impl Level {
    /// The level's name in options and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Memory => "memory",
            Level::ProcessCrash => "process_crash",
            Level::PowerLoss => "power_loss",
        }
    }
}

impl std::str::FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "memory" => Ok(Level::Memory),
            "process_crash" | "process-crash" => Ok(Level::ProcessCrash),
            "power_loss" | "power-loss" => Ok(Level::PowerLoss),
            other => Err(format!("unknown durability level `{other}`: use power_loss, process_crash or memory")),
        }
    }
}
