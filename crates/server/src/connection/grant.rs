//! What a connection may do in a tick, and what it has cost.
//!
//! The worker grants units and asks afterwards what was spent (`schedule`); the connection spends.

use crate::schedule::UNITS_EACH;

/// Units of a connection.
#[derive(Debug)]
pub(super) struct Grant {
    /// What it may still do in this tick; below zero, what it owes.
    pub(super) units: i64,
    /// What it has cost since the worker last asked.
    spent: i64,
    /// It stopped because its share of the tick is used up.
    pub(super) wants_more: bool,
    /// Others had their turn.
    pub(super) may_take_long: bool,
}

impl Grant {
    pub(super) fn new() -> Grant {
        Grant { units: UNITS_EACH, spent: 0, wants_more: false, may_take_long: false }
    }

    /// So much more may be done, and what is owed is subtracted; what takes long only if others had
    /// their turn.
    pub(super) fn give(&mut self, units: i64, others_had_theirs: bool) {
        self.units = units.min(self.units + units);
        self.may_take_long = others_had_theirs;
    }

    /// Counts work: what a command costs, and the values that are sent.
    pub(super) fn spend(&mut self, units: i64) {
        self.units -= units;
        self.spent += units;
    }

    /// What was spent since this was last asked.
    pub(super) fn take_spent(&mut self) -> i64 {
        std::mem::take(&mut self.spent)
    }
}
