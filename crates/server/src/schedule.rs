//! Whose turn it is: no connection gets more than its share of a tick before the others had theirs.
//!
//! Work is counted in units, not in time, so that the same events give the same order. A connection that has used up its
//! share waits behind those that have not; of those behind, a tick serves a bounded number of units.

use std::collections::VecDeque;

use stratakv_base::Mono;

/// What a connection may do before others have their turn: a unit is a command that is answered at once.
pub(crate) const UNITS_EACH: i64 = 64;
/// The same while many want to do something.
const UNITS_EACH_OF_MANY: i64 = 16;
const MANY: usize = 64;
/// What a tick does for those that have used up their share.
const TICK_UNITS: i64 = 1024;
/// A share is for so long.
const EPOCH_NS: u64 = 10_000_000;

/// What it costs to compare a password with every account.
pub(crate) const ATTEMPT_UNITS: i64 = 16;
/// What a step of a TLS handshake costs, which signs.
pub(crate) const HANDSHAKE_UNITS: i64 = 256;

/// What it costs to send so many bytes of a value, beside the command.
pub(crate) fn cost_of(value_bytes: u64) -> i64 {
    i64::try_from(value_bytes >> 13).unwrap_or(i64::MAX)
}

/// What it costs to make a text.
pub(crate) fn cost_of_text(text: &[u8]) -> i64 {
    i64::try_from(text.len() >> 6).unwrap_or(i64::MAX)
}

/// What a connection has had of the present epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    epoch: u64,
    used: i64,
}

impl Share {
    /// So many units more.
    pub(crate) fn add(&mut self, units: i64, now: Mono) {
        let epoch = now.0 / EPOCH_NS;
        if epoch != self.epoch {
            (self.epoch, self.used) = (epoch, 0);
        }
        self.used = self.used.saturating_add(units);
    }

    /// Whether it has had all of it.
    pub(crate) fn is_used_up(&self, now: Mono) -> bool {
        self.epoch == now.0 / EPOCH_NS && self.used >= UNITS_EACH
    }
}

/// Connections that have something to do.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    fresh: VecDeque<u32>,
    behind: VecDeque<u32>,
}

impl Schedule {
    /// A connection has something to do.
    pub(crate) fn add(&mut self, number: u32, is_behind: bool) {
        if is_behind { &mut self.behind } else { &mut self.fresh }.push_back(number);
    }

    /// What each may do now.
    pub(crate) fn units_each(&self) -> i64 {
        if self.fresh.len() + self.behind.len() < MANY { UNITS_EACH } else { UNITS_EACH_OF_MANY }
    }

    /// Whether some are left for the next tick.
    pub(crate) fn has_more(&self) -> bool {
        !self.behind.is_empty() || !self.fresh.is_empty()
    }

    /// The beginning of a tick, or of its second half.
    pub(crate) fn begin(&self) -> Tick {
        Tick { left: TICK_UNITS, is_behind: false }
    }

    /// The connection whose turn it is.
    pub(crate) fn next(&mut self, tick: &mut Tick) -> Option<u32> {
        tick.is_behind = self.fresh.is_empty();
        match tick.is_behind {
            false => self.fresh.pop_front(),
            true if tick.left > 0 => self.behind.pop_front(),
            true => None,
        }
    }
}

/// What is left of a tick.
#[derive(Debug)]
pub(crate) struct Tick {
    left: i64,
    is_behind: bool,
}

impl Tick {
    /// Whether those that had not used up their share have had their turn.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The connection whose turn it was has used so many units.
    pub(crate) fn used(&mut self, units: i64) {
        if self.is_behind {
            self.left -= units.max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_had_its_share_comes_before_those_that_have() {
        let mut schedule = Schedule::default();
        (0..1000).for_each(|number| schedule.add(number, true));
        schedule.add(1000, false);
        let mut tick = schedule.begin();
        assert_eq!(schedule.next(&mut tick), Some(1000));
        tick.used(1);
        let mut served = 0;
        while let Some(number) = schedule.next(&mut tick) {
            served += schedule.units_each();
            tick.used(schedule.units_each());
            schedule.add(number, true);
            assert!(served <= TICK_UNITS, "a tick goes on and on");
        }
        assert_eq!(served, TICK_UNITS, "a tick ends, however much there is to do");
        let mut tick = schedule.begin();
        assert_eq!(schedule.next(&mut tick), Some((TICK_UNITS / UNITS_EACH_OF_MANY) as u32), "in turn");
    }

    #[test]
    fn a_share_is_new_in_each_epoch() {
        let mut share = Share::default();
        share.add(UNITS_EACH - 1, Mono(1));
        assert!(!share.is_used_up(Mono(1)));
        share.add(1, Mono(EPOCH_NS - 1));
        assert!(share.is_used_up(Mono(EPOCH_NS - 1)) && !share.is_used_up(Mono(EPOCH_NS)));
    }
}
