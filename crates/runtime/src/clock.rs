//! The two clocks, read once a tick: the system's, or one that a simulator sets.
//!
//! Expiry must not follow every step of the wall clock: two hours ahead for two seconds would
//! remove for good what expires in two hours. So the wall clock that engines are told goes with the
//! monotonic one ([`Guard`]).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use stratakv_base::{Mono, Now, Wall};

static START_NS: LazyLock<u64> = LazyLock::new(|| now_ns(ClockId::Monotonic));
static GUARD: LazyLock<Guard> = LazyLock::new(|| Guard::new(Reading::of_system()));

/// Where a runtime gets the time from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The system. Its wall clock is guarded against steps. It stands at 0 before 1970 and at its
    /// end after 2106.
    #[default]
    System,
    /// Stands still until it is set: for simulations.
    Manual(Arc<ManualClock>),
    /// As `Manual`, and its wall clock is guarded as the system's is: see [`Clock::guarded`].
    Guarded(Arc<ManualClock>, Arc<Guard>),
}

/// A clock that only moves when told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    mono: AtomicU64,
    wall: AtomicU64,
}

impl ManualClock {
    /// Sets both clocks. Time must not run backwards, but for the wall clock of a guarded one.
    pub fn set(&self, now: Now) {
        self.mono.store(now.mono.0, Ordering::Release);
        self.wall.store(now.wall.0, Ordering::Release);
    }

    fn now(&self) -> Now {
        Now { mono: Mono(self.mono.load(Ordering::Acquire)), wall: Wall(self.wall.load(Ordering::Acquire)) }
    }
}

impl Clock {
    /// Both clocks as of the kernel's last tick, 1 to 10 ms ago: for what is done a million times a
    /// second, where asking for the exact time would be a tenth of the work.
    pub fn at_last_tick(&self) -> Now {
        match self {
            Clock::System => system(ClockId::MonotonicCoarse),
            Clock::Manual(_) | Clock::Guarded(..) => self.now(),
        }
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        match self {
            Clock::System => system(ClockId::Monotonic),
            Clock::Manual(clock) => clock.now(),
            Clock::Guarded(clock, guard) => {
                let Now { mono, wall } = clock.now();
                let read = || Reading { mono, boot: mono, wall_ns: wall_ns(wall) };
                Now { mono, wall: guard.wall(mono, read) }
            }
        }
    }

    /// A clock that is set, and guarded as the system's is: for tests of steps.
    pub fn guarded(clock: Arc<ManualClock>) -> Clock {
        let Now { mono, wall } = clock.now();
        Clock::Guarded(clock, Arc::new(Guard::new(Reading { mono, boot: mono, wall_ns: wall_ns(wall) })))
    }
}

fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(ns).unwrap_or(0)
}

fn system(mono: ClockId) -> Now {
    let mono = Mono(now_ns(mono).saturating_sub(*START_NS));
    Now { mono, wall: GUARD.wall(mono, Reading::of_system) }
}

/// How long from `from` until `to`; zero if it has passed.
pub(crate) fn until(from: Mono, to: Mono) -> Duration {
    Duration::from_nanos(to.0.saturating_sub(from.0))
}

/// The wall clock is looked at so often at most; in between the monotonic one tells the time.
const LOOK_NS: u64 = 20_000_000;
/// A difference up to this is drift: it is followed, by one part in [`SLEW_SHARE`] of the time that
/// passes.
const DRIFT_NS: i64 = 1_000_000_000;
const SLEW_SHARE: i64 = 20;
/// A longer one is a step. It is followed once it has stood for ten minutes.
const CONFIRMED_NS: u64 = 600_000_000_000;

/// All clocks, read together.
#[derive(Clone, Copy, Debug)]
struct Reading {
    mono: Mono,
    /// Monotonic too, and goes on while the system is suspended.
    boot: Mono,
    wall_ns: i64,
}

/// Readings of two clocks that lie further apart are tried again: the thread may have slept between
/// them.
const APART_NS: u64 = 20_000;
const READINGS_MAX: usize = 8;

impl Reading {
    /// The wall clock is read before the monotonic one: what is made of them is behind the wall
    /// clock by the time between the two, and never ahead of it, so that nothing expires early.
    fn of_system() -> Reading {
        let read = || {
            let before_ns = now_ns(ClockId::Monotonic);
            let boot = Mono(now_ns(ClockId::Boottime).saturating_sub(*START_NS));
            let wall_ns = i64::try_from(now_ns(ClockId::Realtime)).unwrap_or(i64::MAX);
            let mono_ns = now_ns(ClockId::Monotonic);
            (mono_ns - before_ns, Reading { mono: Mono(mono_ns.saturating_sub(*START_NS)), boot, wall_ns })
        };
        let mut best = read();
        for _ in 1..READINGS_MAX {
            if best.0 <= APART_NS {
                break;
            }
            let again = read();
            best = if again.0 < best.0 { again } else { best };
        }
        best.1
    }

    fn suspended_ns(&self) -> u64 {
        self.boot.0.saturating_sub(self.mono.0)
    }
}

/// A wall clock that goes with the monotonic one. Small differences to the system's it makes up for
/// slowly, those that stay for ten minutes at once; none that is gone before. It begins with what
/// the system's says.
#[derive(Debug)]
pub struct Guard {
    /// Nanoseconds from the monotonic clock to this one.
    offset_ns: AtomicI64,
    /// The monotonic nanosecond from which on the system's clock is looked at.
    looks_at: AtomicU64,
    looks: Mutex<Looks>,
}

#[derive(Debug)]
struct Looks {
    last: Reading,
    /// A step: since when it has been seen, and how many nanoseconds it is.
    step: Option<(Mono, i64)>,
}

impl Guard {
    fn new(reading: Reading) -> Guard {
        Guard {
            offset_ns: AtomicI64::new(reading.wall_ns - reading.mono.0 as i64),
            looks_at: AtomicU64::new(reading.mono.0 + LOOK_NS),
            looks: Mutex::new(Looks { last: reading, step: None }),
        }
    }

    /// The time at this instant of the monotonic clock. One thread at a time looks at the others.
    fn wall(&self, mono: Mono, read: impl FnOnce() -> Reading) -> Wall {
        if mono.0 >= self.looks_at.load(Ordering::Relaxed)
            && let Ok(mut looks) = self.looks.try_lock()
        {
            let reading = read();
            let offset_ns = looks.look(reading, self.offset_ns.load(Ordering::Relaxed));
            self.offset_ns.store(offset_ns, Ordering::Relaxed);
            self.looks_at.store(reading.mono.0 + LOOK_NS, Ordering::Relaxed);
        }
        let ns = mono.0 as i64 + self.offset_ns.load(Ordering::Relaxed);
        Wall(u64::try_from(ns).unwrap_or(0) / 1_000_000)
    }
}

fn wall_ns(wall: Wall) -> i64 {
    i64::try_from(wall.0.saturating_mul(1_000_000)).unwrap_or(i64::MAX)
}

impl Looks {
    /// The offset from now on.
    fn look(&mut self, reading: Reading, offset_ns: i64) -> i64 {
        let before = std::mem::replace(&mut self.last, reading);
        // Time that the monotonic clock does not count has passed all the same. (Less than a
        // millisecond lies between readings of the two clocks.)
        let suspended_ns = reading.suspended_ns().saturating_sub(before.suspended_ns());
        let offset_ns = offset_ns + if suspended_ns > 1_000_000 { suspended_ns as i64 } else { 0 };
        let difference_ns = reading.wall_ns - reading.mono.0 as i64 - offset_ns;
        if difference_ns.abs() <= DRIFT_NS {
            self.step = None;
            let most_ns = (reading.mono.0.saturating_sub(before.mono.0)) as i64 / SLEW_SHARE;
            return offset_ns + difference_ns.clamp(-most_ns, most_ns);
        }
        let seconds = difference_ns / 1_000_000_000;
        match self.step {
            Some((since, ns)) if (ns - difference_ns).abs() <= DRIFT_NS => {
                if reading.mono.0.saturating_sub(since.0) < CONFIRMED_NS {
                    return offset_ns;
                }
                self.step = None;
                tracing::warn!(seconds, "expiry follows the step of the wall clock from now on");
                offset_ns + difference_ns
            }
            _ => {
                self.step = Some((reading.mono, difference_ns));
                tracing::warn!(
                    seconds,
                    "the wall clock was stepped: expiry follows it if it stays so for ten minutes; check the time service of this machine"
                );
                offset_ns
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const HOUR_MS: i64 = 3_600_000;

    fn millis(mono: Mono) -> i64 {
        (mono.0 / 1_000_000) as i64
    }

    const START: Wall = Wall(1_800_000_000_000);

    /// A guarded clock that is read every 100 ms, and the steps of the wall clock so far.
    struct Stepped {
        clock: Arc<ManualClock>,
        guarded: Clock,
        mono: Mono,
        step_ms: i64,
    }

    impl Stepped {
        fn new() -> Stepped {
            let (clock, mono) = (Arc::new(ManualClock::default()), Mono(SECOND_NS));
            clock.set(Now { mono, wall: START });
            Stepped { guarded: Clock::guarded(Arc::clone(&clock)), clock, mono, step_ms: 0 }
        }

        /// How far it is from the time that has really passed, in milliseconds.
        fn error_ms(&self) -> i64 {
            self.guarded.now().wall.0 as i64 - START.0 as i64 - (millis(self.mono) - 1000)
        }

        fn pass(&mut self, seconds: u64) {
            let mut last = self.guarded.now().wall;
            for _ in 0..seconds * 10 {
                self.mono.0 += SECOND_NS / 10;
                let wall = START.0 as i64 + millis(self.mono) - 1000 + self.step_ms;
                self.clock.set(Now { mono: self.mono, wall: Wall(wall as u64) });
                let now = self.guarded.now().wall;
                assert!(now > last, "it stood still, or went back, with a step of {} ms", self.step_ms);
                last = now;
            }
        }

        /// The wall clock is so far from the time that has really passed.
        fn step_to(&mut self, ms: i64) {
            self.step_ms = ms;
        }
    }

    #[test]
    fn a_step_that_is_taken_back_was_none() {
        for hours in [-2, 2, 24 * 365] {
            let mut clock = Stepped::new();
            clock.pass(10);
            for seconds in [2, 300, 590] {
                clock.step_to(hours * HOUR_MS);
                clock.pass(seconds);
                assert_eq!(clock.error_ms(), 0, "{hours} hours for {seconds} s");
                clock.step_to(0);
                clock.pass(20);
                assert_eq!(clock.error_ms(), 0);
            }
        }
    }

    #[test]
    fn a_step_that_stays_is_followed_after_ten_minutes() {
        let mut clock = Stepped::new();
        clock.step_to(2 * HOUR_MS);
        clock.pass(590);
        assert_eq!(clock.error_ms(), 0);
        clock.pass(20);
        assert_eq!(clock.error_ms(), 2 * HOUR_MS);
        // Two steps one after the other: the second one counts from when it came.
        clock.step_to(5 * HOUR_MS);
        clock.pass(400);
        clock.step_to(4 * HOUR_MS);
        clock.pass(400);
        assert_eq!(clock.error_ms(), 2 * HOUR_MS);
        clock.pass(210);
        assert_eq!(clock.error_ms(), 4 * HOUR_MS);
    }

    #[test]
    fn a_step_back_that_stays_is_followed_too() {
        let mut clock = Stepped::new();
        clock.step_to(-HOUR_MS);
        clock.pass(590);
        assert_eq!(clock.error_ms(), 0);
        // It goes back once.
        clock.mono.0 += 20 * SECOND_NS;
        clock
            .clock
            .set(Now { mono: clock.mono, wall: Wall((START.0 as i64 + millis(clock.mono) - 1000 - HOUR_MS) as u64) });
        assert_eq!(clock.error_ms(), -HOUR_MS);
        clock.pass(10);
        assert_eq!(clock.error_ms(), -HOUR_MS);
    }

    #[test]
    fn drift_is_followed_slowly_and_never_backwards() {
        for ms in [900, -900] {
            let mut clock = Stepped::new();
            clock.step_to(ms);
            clock.pass(1);
            assert_eq!(clock.error_ms(), ms / 18, "a twentieth of the second");
            clock.pass(20);
            assert_eq!(clock.error_ms(), ms);
        }
    }

    #[test]
    fn time_in_which_the_system_was_suspended_has_passed() {
        let reading = |mono: u64, boot: u64, wall: u64| Reading {
            mono: Mono(mono * SECOND_NS),
            boot: Mono(boot * SECOND_NS),
            wall_ns: (wall * SECOND_NS) as i64,
        };
        let guard = Guard::new(reading(1, 501, 1000));
        let at = |mono, boot, wall| {
            let reading = reading(mono, boot, wall);
            guard.wall(reading.mono, || reading).0
        };
        assert_eq!(at(2, 502, 1001), 1_001_000);
        // An hour asleep, and the wall clock knows.
        assert_eq!(at(3, 4103, 4602), 4_602_000);
        // And a wall clock that was set to the wrong time while it slept.
        assert_eq!(at(4, 7704, 99_999), 8_203_000);
    }

    /// It was up to a millisecond ahead, so a record that was there was not found in its last
    /// millisecond.
    #[test]
    fn no_millisecond_begins_early() {
        const WALL_MS: i64 = 1_800_000_000_000;
        let reading =
            Reading { mono: Mono(1_000_900_000), boot: Mono(1_000_900_000), wall_ns: WALL_MS * 1_000_000 + 100_000 };
        let guard = Guard::new(reading);
        let at = |ns: u64| guard.wall(Mono(reading.mono.0 + ns), || reading).0 as i64;
        assert_eq!([0, 800_000, 899_999, 900_000].map(at), [WALL_MS, WALL_MS, WALL_MS, WALL_MS + 1]);
    }

    #[test]
    fn the_systems_clock_begins_with_the_time_of_day() {
        let now = Clock::System.now();
        let real = Reading::of_system();
        assert!(now.wall.0.abs_diff(real.wall_ns as u64 / 1_000_000) < 60_000, "{now:?}, {real:?}");
        assert!(Clock::System.at_last_tick().mono <= Clock::System.now().mono);
    }
}
