//! Why an operation did not happen.

use stratakv_base::format::unknown_format;
use stratakv_base::key::KeyError;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{Corruption, Key};
use stratakv_device::IoFault;
use stratakv_pmem::PmemError;

/// A condition of a write that did not hold. Not an error: nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present {
        /// Its version.
        version: u64,
    },
    /// The key has another version.
    Version {
        /// Its version.
        found: u64,
    },
    /// Increment or decrement of a value that does not begin with a decimal number of 64 bits.
    NotANumber,
    /// An edit left the record as it is, by its own rule.
    Unchanged,
    /// Something lies between the first and the last key of a load, or there is hardly room for it:
    /// its records can be put.
    Occupied,
}

/// A capability an engine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Ordered scans.
    Ordered,
    /// Snapshots.
    Snapshot,
    /// Batches of several changes.
    Batch,
    /// Backups.
    Backup,
    /// The durability level asked for.
    Level,
    /// Loads that are more than puts.
    Load,
    /// Lists without order.
    List,
}

/// What is not there, and what to do without it.
impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Capability::Ordered => "order of keys, so it cannot scan them: get single ones",
            Capability::Snapshot => "snapshots: read what is there now",
            Capability::Batch => "batches of several changes: write them one by one",
            Capability::Backup => {
                "backups: it is a cache and may drop any record at any time. Closed in order it is warm when it is opened again"
            }
            Capability::Level => "such durability: it acknowledges from memory",
            Capability::Load => "loads of its own: put the records",
            Capability::List => "lists without order: scan its keys, which are in order",
        })
    }
}

/// What to do with a value that is too long.
fn way_out(max_bytes: u64) -> &'static str {
    match max_bytes < VALUE_BYTES_MAX as u64 {
        true => " beside so little memory: raise --memory, or store it in parts",
        false => ": store it in parts",
    }
}

/// Why an operation failed. Unless it is [`Error::Unknown`], nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The value is longer than the limit.
    #[error("the value has {len_bytes} bytes; the longest allowed has {max_bytes}{}", way_out(*max_bytes))]
    ValueTooLarge {
        /// Its length.
        len_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// A batch that cannot be: empty, or with a key that occurs twice.
    #[error("the batch cannot be written: {0}")]
    BadBatch(&'static str),
    /// Of a load a key does not come after the one before it.
    #[error("{} comes after {}, and keys of a load ascend: sort them, each once", .0[1], .0[0])]
    Unsorted(Box<[Key; 2]>),
    /// The keys and values of a batch or a load are longer than the limit.
    #[error(
        "the batch has {len_bytes} bytes of keys and values; the largest allowed has {max_bytes}: write it in parts"
    )]
    BatchTooLarge {
        /// Their length.
        len_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// Whoever asked has left: the read was given up.
    #[error("the read was given up: whoever asked for it has left")]
    Cancelled,
    /// No space left: reads and deletes go on, writes again once there is room.
    #[error("the store is full ({0}); delete something or give it more space, reads and deletes go on")]
    Full(&'static str),
    /// The index would not fit its memory.
    #[error("the index has reached its share of the memory cap ({limit_bytes} bytes); raise --memory or delete keys")]
    MemoryFull {
        /// The index's share.
        limit_bytes: u64,
    },
    /// The device failed.
    #[error("{what} failed: {fault}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// How it failed.
        fault: IoFault,
    },
    /// Bytes from the medium do not check.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// A flush failed: the volume takes no more writes until the store is opened again.
    #[error("a flush of this volume failed earlier ({0}); it takes no more writes: reopen the store")]
    Poisoned(IoFault),
    /// The outcome is not known: it may or may not have happened.
    #[error("the outcome is not known: {0}")]
    Unknown(&'static str),
    /// The engine does not have this.
    #[error("this engine has no {0}")]
    Unsupported(Capability),
    /// The snapshot was closed, or ended because it kept too much from being reclaimed.
    #[error(
        "there is no snapshot {id}: it was closed, or it ended because what it kept took too much room; open another one"
    )]
    NoSnapshot {
        /// Its number.
        id: u64,
    },
    /// As many snapshots are open as may be.
    #[error("{max} snapshots are open, and more may not be: close one of them, then open another")]
    TooManySnapshots {
        /// Most that may be open.
        max: u32,
    },
    /// The collection has expired as a whole, or was dropped. (Stores answer this, engines do not.)
    #[error("collection {collection} has expired or was dropped: open it by its name to begin it anew")]
    Expired {
        /// Its number.
        collection: u32,
    },
    /// The store belongs to the process from which this one was forked. Nothing was done, here or
    /// there.
    #[error(
        "the store was opened by the process that this one was forked from, and stays its own: nothing was done. Open it in this process once the parent has closed it, or run another program (exec)"
    )]
    Forked,
    /// The store is closing.
    #[error("the store is closed")]
    Closed,
    /// Too much is waiting; nothing was done.
    #[error("too many operations are waiting; try again")]
    Busy,
    /// The volume is of a newer format.
    #[error("{}", unknown_format("the volume", *found, *known))]
    NewerFormat {
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// Persistent memory failed.
    #[error("the persistent memory failed: {0}")]
    Pmem(#[from] PmemError),
    /// The volume is not what the store says it should be.
    #[error("{0}")]
    WrongVolume(String),
    /// What was asked of the volume cannot be; nothing is wrong with what lies there.
    #[error("{0}")]
    Option(String),
}
