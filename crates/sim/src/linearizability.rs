//! Whether a history with overlapping operations could have been made by one register for each key,
//! changed by one operation at a time.
//!
//! A [`History`] holds what was asked of a store and what it answered, with the ticks of a logical
//! clock between which each operation ran. [`check`] looks for an order of the operations in which
//! every answer is right, no operation comes before one that had returned when it was asked, and
//! versions only grow: the algorithm of Wing and Gong, "Testing and verifying concurrent objects"
//! (JPDC 1993), with the memory of Lowe, "Testing for linearizability" (CPE 2017), as Porcupine has
//! it. Keys are searched apart, unless batches tie them together.
//!
//! # What is not known
//! An operation without an answer, or answered [`Error::Unknown`], may have happened at any time
//! after it was asked, until the next crash, or never. Other failures changed nothing, as the
//! contract says.
//!
//! # Crashes
//! After a crash every key is in the state after some prefix of its own writes in the order found:
//! a crash takes a suffix, and keys lose theirs independently, but a batch as a whole. Not in the
//! suffix is
//! - a write acknowledged at a level that survives this crash ([`Level::PowerLoss`] survives a
//!   power cut, [`Level::ProcessCrash`] the death of the process),
//! - a write acknowledged before a [`Operation::Sync`] was asked that was answered before the
//!   crash,
//! - a write of such a level, acknowledged or not, whose value an answered get showed: nothing is
//!   visible before it is durable.
//!
//! What a power cut left is durable; what the death of a process left is as durable as it was.
//! Versions of lost writes may be used again.
//!
//! # Limits
//! Expiry and flags are not looked at, a get reads a whole value. Scans and deletes of ranges
//! cannot be checked. Histories without versions, with many writes of one key at the same time and
//! values that occur twice, may take exponential time: the bound on steps ends the search.
//!
//! [`Error::Unknown`]: stratakv_engine::Error::Unknown
//! [`Level::PowerLoss`]: stratakv_base::Level::PowerLoss
//! [`Level::ProcessCrash`]: stratakv_base::Level::ProcessCrash
//! [`Operation::Sync`]: stratakv_engine::Operation::Sync

mod component;
mod explain;
mod history;
mod register;
mod search;
#[cfg(test)]
mod tests;
mod undo;

pub use history::{Client, Clock, History, HistoryEntry};

use component::Components;
use search::SearchOutcome;

/// What it took to find a history in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Operations looked at: all but those that changed nothing and those without a key.
    pub operations: usize,
    /// Sets of keys searched apart.
    pub components: usize,
    /// Applications of an operation to a state.
    pub steps: u64,
}

/// Why a history was not found in order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no order: the store is wrong. The text shows the shortest prefix of the keys'
    /// history that has none.
    #[error("{0}")]
    Violation(String),
    /// The search was ended by its bound.
    #[error("no answer for {keys} after {steps} steps; give it more, or a history with less overlap")]
    Undecided {
        /// The keys it was about.
        keys: String,
        /// Steps done.
        steps: u64,
    },
    /// An operation or an answer this does not know.
    #[error("{0}")]
    NotModelled(String),
}

/// Checks a history. Stops after `steps_max` applications of an operation to a state, over all
/// keys; about 200 bytes of memory for each of a component.
///
/// # Errors
/// See [`Failure`].
pub fn check(history: &History, steps_max: u64) -> Result<Checked, Failure> {
    let components = Components::of(history)?;
    let mut checked = Checked { components: components.len(), ..Checked::default() };
    for component in components.iter() {
        let calls = component.calls(u64::MAX)?;
        checked.operations += calls.len();
        let (outcome, steps) = search::search(&component, &calls, steps_max - checked.steps);
        checked.steps += steps;
        match outcome {
            SearchOutcome::Ordered => {}
            SearchOutcome::Bound => return Err(Failure::Undecided { keys: component.names(), steps: checked.steps }),
            SearchOutcome::NoOrder => return Err(Failure::Violation(explain::explain(&component, steps_max)?)),
        }
    }
    Ok(checked)
}
