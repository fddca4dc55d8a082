//! Code probes: rare states that the simulator and the tests have to reach.
//!
//! What no generator reaches, no test holds. A probe counts how often a state is reached;
//! `sim --listed` prints the counts of the gate's seeds and fails where one of them is zero. Builds
//! without debug assertions have no probes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts that this state is reached, and that the condition holds if there is one.
///
/// `probe!("server: an add met another client's", stage == Stage::Vivify);`
#[macro_export]
macro_rules! probe {
    ($name:literal) => {
        $crate::probe!($name, true)
    };
    ($name:literal, $condition:expr) => {
        if cfg!(debug_assertions) && $condition {
            static PROBE: $crate::probe::Probe = $crate::probe::Probe::new($name);
            PROBE.hit();
        }
    };
}

/// A place in the code that is counted. Made by [`probe!`](crate::probe!).
#[derive(Debug)]
pub struct Probe {
    name: &'static str,
    hits: AtomicU64,
}

/// Those that were reached in this process.
static REACHED: Mutex<Vec<&'static Probe>> = Mutex::new(Vec::new());

impl Probe {
    /// A probe that nothing has reached.
    pub const fn new(name: &'static str) -> Probe {
        Probe { name, hits: AtomicU64::new(0) }
    }

    /// Counts one more. Takes a lock the first time.
    pub fn hit(&'static self) {
        if self.hits.fetch_add(1, Ordering::Relaxed) == 0 {
            REACHED.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
    }
}

/// How often each probe was reached in this process; what was not is not in it.
pub fn counts() -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for probe in REACHED.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        *counts.entry(probe.name).or_default() += probe.hits.load(Ordering::Relaxed);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn a_state_is_counted_where_its_condition_holds() {
        for number in 0..5 {
            crate::probe!("base: an even number of the test", number % 2 == 0);
            crate::probe!("base: a number below zero of the test", number < 0);
        }
        let counts = counts();
        assert_eq!(counts.get("base: an even number of the test"), Some(&3));
        assert_eq!(counts.get("base: a number below zero of the test"), None);
    }
}
