//! Whose turn it is: no connection gets more than its share of a tick before the others had theirs.
//!
//! Work is counted in units, not in time, so that the same events give the same order. A connection
//! that has used up its share waits behind those that have not, and a tick serves a bounded number
//! of units. A share is a quarter of what those used that were served lately: who asks for
//! little is not behind a crowd, each of whom asks for much.
//!
//! Errors cost a client nothing and its server an answer each. A connection that goes on making
//! them rests meanwhile, and those that rest come back one after the other: however many there are,
//! they get a bounded part of the thread.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use stratakv_base::Mono;

/// What a connection may do before others have their turn: a unit is a command that is answered at
/// once.
pub(crate) const UNITS_EACH: i64 = 64;
/// The same while many want to do something.
const UNITS_EACH_OF_MANY: i64 = 16;
const MANY: usize = 64;
/// What a tick does: who comes meanwhile waits for no more.
const TICK_UNITS: i64 = 256;
/// What it does at least for those that have used up their share.
const KEPT_UNITS: i64 = 64;
/// What a connection has used counts for half after so long.
const HALVED_AFTER_NS: u64 = 100_000_000;
/// One tick changes what is usual by one part in so many of the difference.
const USUAL_OVER_TICKS: i64 = 64;

/// What it costs to compare a password with every account.
pub(crate) const ATTEMPT_UNITS: i64 = 16;
/// What a step of a TLS handshake costs, which signs.
pub(crate) const HANDSHAKE_UNITS: i64 = 256;

/// Errors that a connection may make at once, and the time after which it may make one more.
const ERRORS_EACH: i64 = 128;
const ERROR_NS: u64 = 6_250_000;
/// What a wrong password counts for.
pub(crate) const ATTEMPT_ERRORS: u32 = 16;
/// Of those that rest one comes back in so long, and so many at once at most.
const RETURN_NS: u64 = 250_000;
const RETURNS_MAX: u64 = 4;

/// What it costs to read and send so many bytes of a value, beside the command: a unit for 2 KiB,
/// about a microsecond.
pub(crate) fn cost_of(value_bytes: u64) -> i64 {
    i64::try_from(value_bytes >> 11).unwrap_or(i64::MAX)
}

/// What it costs to make a text.
pub(crate) fn cost_of_text(text: &[u8]) -> i64 {
    i64::try_from(text.len() >> 6).unwrap_or(i64::MAX)
}

/// What a connection has had lately.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    used: i64,
    /// How often it was halved, had it been used from the beginning on.
    halved: u64,
    /// Errors made and not made up for by time, and until when that was reckoned.
    errors: i64,
    reckoned_at: Mono,
}

impl Share {
    /// So many units more.
    pub(crate) fn add(&mut self, units: i64, now: Mono) {
        self.used = self.used(now).saturating_add(units);
        self.halved = now.0 / HALVED_AFTER_NS;
    }

    /// Units used, the older the less they count.
    pub(crate) fn used(&self, now: Mono) -> i64 {
        let times = (now.0 / HALVED_AFTER_NS).saturating_sub(self.halved);
        self.used >> times.min(i64::BITS as u64 - 1)
    }

    /// So many errors more. Until when it rests, if there are too many.
    pub(crate) fn add_errors(&mut self, errors: u32, now: Mono) -> Option<Mono> {
        let forgiven = now.0.saturating_sub(self.reckoned_at.0) / ERROR_NS;
        self.errors = self.errors.saturating_sub_unsigned(forgiven).max(0);
        self.reckoned_at = if self.errors == 0 { now } else { Mono(self.reckoned_at.0 + forgiven * ERROR_NS) };
        self.errors += i64::from(errors);
        let over = u64::try_from(self.errors - ERRORS_EACH).ok().filter(|over| *over > 0)?;
        Some(Mono(self.reckoned_at.0.saturating_add(over.saturating_mul(ERROR_NS))))
    }
}

/// Connections that have something to do.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    fresh: VecDeque<u32>,
    behind: VecDeque<u32>,
    /// What those had used that were served lately.
    usual: i64,
    /// Those that made too many errors, and until when each rests.
    resting: BinaryHeap<Reverse<(Mono, u32)>>,
    /// Until when those that come back were let in.
    returned_at: Mono,
}

impl Schedule {
    /// A connection has something to do.
    pub(crate) fn add(&mut self, number: u32, is_behind: bool) {
        if is_behind { &mut self.behind } else { &mut self.fresh }.push_back(number);
    }

    /// Whether a connection that has used so much waits behind others.
    pub(crate) fn is_used_up(&self, used: i64) -> bool {
        used >= UNITS_EACH.max(self.usual / 4)
    }

    /// A connection was served, and has used so much with that.
    pub(crate) fn served(&mut self, used: i64) {
        self.usual += (used - self.usual) / USUAL_OVER_TICKS;
    }

    /// What each may do now.
    pub(crate) fn units_each(&self) -> i64 {
        if self.fresh.len() + self.behind.len() < MANY { UNITS_EACH } else { UNITS_EACH_OF_MANY }
    }

    /// Whether some are left for the next tick.
    pub(crate) fn has_more(&self) -> bool {
        !self.behind.is_empty() || !self.fresh.is_empty()
    }

    /// A connection has something to do, and rests until then.
    pub(crate) fn rest(&mut self, number: u32, until: Mono) {
        self.resting.push(Reverse((until, number)));
    }

    /// When the next of those that rest comes back.
    pub(crate) fn returns_at(&self) -> Option<Mono> {
        let Reverse((until, _)) = self.resting.peek()?;
        Some((*until).max(Mono(self.returned_at.0 + RETURN_NS)))
    }

    /// Lets those come back that have rested, in the order in which they may.
    fn let_return(&mut self, now: Mono) {
        // What nobody used is not kept.
        let earliest = now.0.saturating_sub(RETURN_NS * RETURNS_MAX);
        self.returned_at = self.returned_at.max(Mono(earliest));
        while self.returns_at().is_some_and(|at| at <= now) {
            let Some(Reverse((_, number))) = self.resting.pop() else { return };
            self.returned_at = Mono(self.returned_at.0 + RETURN_NS);
            self.behind.push_back(number);
        }
    }

    /// The beginning of a tick, or of its second half.
    pub(crate) fn begin(&mut self, now: Mono) -> Tick {
        self.let_return(now);
        Tick { left: TICK_UNITS, kept: KEPT_UNITS, is_behind: false }
    }

    /// The connection whose turn it is.
    pub(crate) fn next(&mut self, tick: &mut Tick) -> Option<u32> {
        let first = if tick.left > 0 { self.fresh.pop_front() } else { None };
        tick.is_behind = first.is_none();
        let may_follow = tick.left > 0 || tick.kept > 0;
        first.or_else(|| if may_follow { self.behind.pop_front() } else { None })
    }
}

/// What is left of a tick.
#[derive(Debug)]
pub(crate) struct Tick {
    left: i64,
    /// Of those behind, however many come before them.
    kept: i64,
    is_behind: bool,
}

impl Tick {
    /// Whether it is one of those that have used up their share.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The connection whose turn it was has used so many units.
    pub(crate) fn used(&mut self, units: i64) {
        self.left -= units.max(1);
        self.kept -= if self.is_behind { units.max(1) } else { 0 };
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
        let mut tick = schedule.begin(Mono(0));
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
        let mut tick = schedule.begin(Mono(0));
        assert_eq!(schedule.next(&mut tick), Some((TICK_UNITS / UNITS_EACH_OF_MANY) as u32), "in turn");
        (2000..4000).for_each(|number| schedule.add(number, false));
        let mut tick = schedule.begin(Mono(0));
        let served = std::iter::from_fn(|| schedule.next(&mut tick).inspect(|_| tick.used(1))).count();
        assert_eq!(served as i64, TICK_UNITS + KEPT_UNITS, "however many want little, and none is left out");
        assert!(tick.is_behind());
    }

    #[test]
    fn errors_are_made_up_for_by_time_alone() {
        let (mut share, at) = (Share::default(), |errors: u64| Mono(1 + errors * ERROR_NS));
        assert_eq!(share.add_errors(ERRORS_EACH as u32, at(0)), None);
        assert_eq!(share.add_errors(1, at(0)), Some(at(1)));
        assert_eq!(share.add_errors(15, at(0)), Some(at(16)));
        assert_eq!(share.add_errors(0, at(15)), Some(at(16)));
        assert_eq!(share.add_errors(0, at(16)), None);
        assert_eq!(share.add_errors(1, at(16)), Some(at(17)));
        assert_eq!(share.add_errors(ERRORS_EACH as u32, at(10_000)), None, "no more than all is forgiven");
        assert_eq!(share.add_errors(2, at(10_001)), Some(at(10_002)));
    }

    #[test]
    fn those_that_rest_come_back_one_after_the_other_however_many_they_are() {
        let mut schedule = Schedule::default();
        (0..10_000).for_each(|number| schedule.rest(number, Mono(1_000_000)));
        let mut back = Vec::new();
        for now in (0..1_000_000_000).step_by(100_000) {
            let mut tick = schedule.begin(Mono(now));
            while let Some(number) = schedule.next(&mut tick) {
                assert!(now >= 1_000_000, "{number} comes back while it rests");
                tick.used(UNITS_EACH);
                back.push(number);
            }
        }
        assert!((3980..=4000).contains(&back.len()), "{} came back in a second", back.len());
        assert!(back.is_sorted(), "who rests longest comes first");
        assert!(schedule.returns_at().is_some() && !schedule.has_more());
    }

    #[test]
    fn what_was_used_counts_for_less_and_less() {
        let mut share = Share::default();
        share.add(99, Mono(1));
        share.add(1, Mono(HALVED_AFTER_NS - 1));
        assert_eq!([0, 1, 2, 6, 1000].map(|halves| share.used(Mono(halves * HALVED_AFTER_NS))), [100, 50, 25, 1, 0]);
        share.add(10, Mono(2 * HALVED_AFTER_NS));
        assert_eq!(share.used(Mono(2 * HALVED_AFTER_NS)), 35);
    }

    #[test]
    fn who_uses_little_is_not_behind_a_crowd_that_uses_much() {
        let mut schedule = Schedule::default();
        assert!(schedule.is_used_up(UNITS_EACH) && !schedule.is_used_up(UNITS_EACH - 1));
        (0..1000).for_each(|_| schedule.served(1000));
        assert!(!schedule.is_used_up(200) && schedule.is_used_up(250));
        (0..1000).for_each(|_| schedule.served(0));
        assert!(schedule.is_used_up(UNITS_EACH), "once the crowd has gone");
    }
}
