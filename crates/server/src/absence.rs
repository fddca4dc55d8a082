//! Whether a cache that runs was away all the same ([`AbsenceWatch`]): its process stood still, or
//! a client could not be reached. What it has may be stale then, and what lies in buffers may be
//! late writes.
//!
//! Every thread asks before it looks at what came from clients. Threads that meet an absence close
//! all their connections and report; once all have, the thread `presence` empties the cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use stratakv::{Engine, Rejoin, Store, since_boot_ms};

use crate::server::{Error, Listening, ServerOptions, lock};

/// A process that gave no sign of life for longer was away, if nothing longer is allowed. Below it
/// lies what a busy machine does to a process: its clock thread asks for a few microseconds of a
/// processor ten times in this time.
const STILL_MIN: Duration = Duration::from_secs(1);

/// How often the clock thread tells that the process runs.
pub(crate) const BEAT: Duration = Duration::from_millis(100);

/// A cut that is noticed takes three probes of the kernel, which asks once a second at most.
const CUT_OFF_MIN: Duration = Duration::from_secs(3);
const CUT_OFF_MAX: Duration = Duration::from_secs(3600);

/// Why a cache was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbsenceCause {
    /// No thread of the process ran for so many milliseconds.
    StoodStill(u64),
    /// The kernel gave up a client that it could not reach.
    Unreachable,
}

/// The absence that is being dealt with.
#[derive(Debug)]
struct Absent {
    cause: AbsenceCause,
    /// Threads without a connection of before it.
    arrived: usize,
}

/// An absence that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentAbsence {
    /// Absences are counted from 1.
    pub(crate) number: u64,
    pub(crate) cause: AbsenceCause,
    /// Threads that may have connections of before it. With none the cache can be emptied.
    pub(crate) waited_for: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct AbsenceWatch {
    /// What counts as standing still, in milliseconds; `None`: nothing does.
    still_ms: Option<u64>,
    /// Whether a client that cannot be reached counts.
    by_clients: bool,
    threads: usize,
    /// The last sign of life of any thread, in milliseconds since the kernel was started.
    alive_at_ms: AtomicU64,
    /// Absences so far, and those of them that are over.
    noticed: AtomicU64,
    over: AtomicU64,
    absent: Mutex<Option<Absent>>,
    changed: Condvar,
}

impl AbsenceWatch {
    /// Of a server with so many threads on this store.
    pub(crate) fn new(store: &Store, by_clients: bool, threads: usize) -> AbsenceWatch {
        AbsenceWatch::of(store.rejoin(), by_clients, threads, since_boot_ms())
    }

    fn of(rejoin: Option<Rejoin>, by_clients: bool, threads: usize, now_ms: u64) -> AbsenceWatch {
        let still = match rejoin {
            None | Some(Rejoin::Warm) => None,
            Some(Rejoin::Cold) => Some(STILL_MIN),
            Some(Rejoin::WarmWithin(most)) => Some(most.max(STILL_MIN)),
        };
        AbsenceWatch {
            still_ms: still.map(|still| u64::try_from(still.as_millis()).unwrap_or(u64::MAX)),
            by_clients: by_clients && still.is_some(),
            threads,
            alive_at_ms: now_ms.into(),
            noticed: 0.into(),
            over: 0.into(),
            absent: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Whether anything is watched for.
    pub(crate) fn is_on(&self) -> bool {
        self.still_ms.is_some()
    }

    /// Whether a client that cannot be reached counts.
    pub(crate) fn is_by_clients(&self) -> bool {
        self.by_clients
    }

    /// A thread runs. Whether it is the first to notice that none ran for too long.
    pub(crate) fn beat(&self) -> bool {
        self.is_on() && self.beat_at(since_boot_ms())
    }

    fn beat_at(&self, now_ms: u64) -> bool {
        let Some(still_ms) = self.still_ms else { return false };
        let alive_at_ms = self.alive_at_ms.load(Ordering::Acquire);
        if now_ms <= alive_at_ms {
            // Most ticks end here: the word stays where all threads can read it.
            return false;
        }
        if now_ms - alive_at_ms <= still_ms {
            self.alive_at_ms.fetch_max(now_ms, Ordering::Release);
            return false;
        }
        let mut absent = lock(&self.absent);
        let stood_ms = now_ms.saturating_sub(self.alive_at_ms.load(Ordering::Acquire));
        let is_first = stood_ms > still_ms;
        if is_first {
            // Before the sign of life: who sees that one sees this.
            self.begin(&mut absent, AbsenceCause::StoodStill(stood_ms));
            self.alive_at_ms.fetch_max(now_ms, Ordering::Release);
        }
        is_first
    }

    /// A client of a thread that knows of `seen` absences cannot be reached. Whether that is news:
    /// its connection was there before an absence that others have noticed.
    pub(crate) fn lose_client(&self, seen: u64) -> bool {
        let mut absent = lock(&self.absent);
        let is_news = self.by_clients && self.noticed() == seen;
        if is_news {
            self.begin(&mut absent, AbsenceCause::Unreachable);
        }
        is_news
    }

    fn begin(&self, absent: &mut Option<Absent>, cause: AbsenceCause) {
        // In the middle of another one all begins again: more may lie in buffers by now.
        *absent = Some(Absent { cause, arrived: 0 });
        self.noticed.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }

    /// How many absences there were, this one included.
    pub(crate) fn noticed(&self) -> u64 {
        self.noticed.load(Ordering::Acquire)
    }

    /// Whether all of the first `seen` are over.
    pub(crate) fn is_over(&self, seen: u64) -> bool {
        self.over.load(Ordering::Acquire) >= seen
    }

    /// Whether the cache may not be served yet.
    pub(crate) fn is_away(&self) -> bool {
        !self.is_over(self.noticed())
    }

    /// A thread has closed all that there was before absence number `seen`.
    pub(crate) fn arrive(&self, seen: u64) {
        let mut absent = lock(&self.absent);
        if let Some(absent) = absent.as_mut().filter(|_| self.noticed() == seen) {
            absent.arrived += 1;
            self.changed.notify_all();
        }
    }

    /// The absence that is not over.
    pub(crate) fn current(&self) -> Option<CurrentAbsence> {
        let absent = lock(&self.absent);
        absent.as_ref().map(|absent| CurrentAbsence {
            number: self.noticed(),
            cause: absent.cause,
            waited_for: self.threads.saturating_sub(absent.arrived),
        })
    }

    /// The cache is empty, after absence number `seen`. Whether clients may be served: there was no
    /// other one meanwhile.
    pub(crate) fn end(&self, seen: u64) -> bool {
        let mut absent = lock(&self.absent);
        let is_last = self.noticed() == seen;
        if is_last {
            *absent = None;
            self.over.store(seen, Ordering::Release);
        }
        is_last
    }

    /// Waits for so long, or until something changes, for a thread that has dealt with `known`
    /// absences.
    pub(crate) fn wait(&self, most: Duration, known: u64, goes_on: impl Fn() -> bool) {
        let absent = lock(&self.absent);
        let is_ready = absent.as_ref().is_some_and(|absent| absent.arrived >= self.threads);
        if !is_ready && self.noticed() == known && goes_on() {
            drop(self.changed.wait_timeout(absent, most).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Ends a wait.
    pub(crate) fn wake(&self) {
        // Who is about to wait holds it, and looks whether to go on.
        drop(lock(&self.absent));
        self.changed.notify_all();
    }
}

impl AbsenceCause {
    /// How long the cache was away, if somebody knows.
    pub(crate) fn absence(self) -> Option<Duration> {
        match self {
            AbsenceCause::StoodStill(ms) => Some(Duration::from_millis(ms)),
            AbsenceCause::Unreachable => None,
        }
    }

    /// Why it is emptied.
    pub(crate) fn words(self) -> String {
        match self {
            AbsenceCause::StoodStill(ms) => format!("the process did not run for {:.1} s", ms as f64 / 1000.0),
            AbsenceCause::Unreachable => "a client could not be reached (--rejoin-cut-off)".to_owned(),
        }
    }
}

/// What a server refuses of [`ClientLimits::cut_off`](crate::ClientLimits::cut_off), whatever the
/// store.
pub(crate) fn check_cut_off(time: Duration, options: &ServerOptions) -> Result<(), String> {
    if options.xdp.is_some() {
        return Err("connections through AF_XDP do not tell when a client cannot be reached: leave out --rejoin-cut-off or --xdp".into());
    }
    if !options.listens_by_tcp() {
        return Err("--rejoin-cut-off is for clients that come by TCP, and only UNIX sockets are listened on: leave it out, or say --memcache ADDRESS:PORT".into());
    }
    match (CUT_OFF_MIN..=CUT_OFF_MAX).contains(&time) && time.subsec_nanos() == 0 {
        true => Ok(()),
        false => Err(format!(
            "--rejoin-cut-off {}s: it can be 3s to 1h, in whole seconds, as the kernel looks for clients once a second at most",
            time.as_secs_f64()
        )),
    }
}

/// Has the kernel end each connection whose client could not be reached for so long. Connections
/// take it from their listener.
pub(crate) fn watch_clients(store: &Store, time: Duration, listeners: &[Listening]) -> Result<(), Error> {
    check_rejoin(store).map_err(Error::Option)?;
    let every = (time.as_secs() / 5).clamp(1, 75);
    let watch = |listening: &Listening| listening.socket.watch_peers(Duration::from_secs(every), time);
    let watched = listeners.iter().try_for_each(watch);
    watched.map_err(|error| Error::System { what: "have the kernel look for clients", error })
}

fn check_rejoin(store: &Store) -> Result<(), String> {
    Err(match store.rejoin() {
        Some(Rejoin::Cold | Rejoin::WarmWithin(_)) => return Ok(()),
        Some(Rejoin::Warm) => "--rejoin-cut-off empties a cache, which --rejoin warm (the default) keeps: say --rejoin cold or warm-within=TIME too, or leave it out".into(),
        None if store.engine() == Engine::Tier => format!(
            "--rejoin-cut-off empties a cache, and that it was away cannot be noted in {}: make that a file that can be written, or leave the option out",
            store.path().join("presence").display()
        ),
        None => "--rejoin-cut-off is for caches: say --engine tier, or leave it out".into(),
    })
}

/// How a connection ends whose peer the kernel could not reach, whatever routers and the kernel's
/// own tables said meanwhile. A peer that ends it in any way gives none of these.
pub(crate) fn is_unreachable(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let errors = [
        Errno::TIMEDOUT,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::NETDOWN,
        // What a firewall that rejects packets leaves behind.
        Errno::CONNREFUSED,
        Errno::NOPROTOOPT,
        Errno::ACCESS,
    ];
    error.raw_os_error().is_some_and(|raw| errors.iter().any(|errno| errno.raw_os_error() == raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(rejoin: Rejoin, by_clients: bool) -> AbsenceWatch {
        AbsenceWatch::of(Some(rejoin), by_clients, 2, 10_000)
    }

    fn waited_for(watch: &AbsenceWatch) -> Option<usize> {
        watch.current().map(|absence| absence.waited_for)
    }

    #[test]
    fn a_process_that_stood_still_was_away() {
        let cold = watch(Rejoin::Cold, false);
        assert!(!cold.beat_at(11_000) && !cold.is_away(), "a second is allowed");
        assert!(cold.beat_at(12_001), "more is not");
        assert!(!cold.beat_at(12_001) && !cold.beat_at(12_500), "one absence is noticed once");
        assert_eq!((cold.noticed(), cold.is_away()), (1, true));
        let wide = watch(Rejoin::WarmWithin(Duration::from_secs(10)), false);
        assert!(!wide.beat_at(20_000) && wide.beat_at(30_001));
        let narrow = watch(Rejoin::WarmWithin(Duration::from_millis(1)), false);
        assert!(!narrow.beat_at(11_000), "a busy machine does that");
        let warm = watch(Rejoin::Warm, true);
        assert!(!warm.is_on() && !warm.beat_at(1_000_000) && !warm.lose_client(0));
    }

    /// Threads that do not get on count for nothing while another one does.
    #[test]
    fn one_thread_that_runs_is_enough() {
        let cold = watch(Rejoin::Cold, false);
        for now_ms in (10_000..100_000).step_by(BEAT.as_millis() as usize) {
            assert!(!cold.beat_at(now_ms), "at {now_ms}");
        }
        // A thread whose look at the clock is long ago.
        assert!(!cold.beat_at(20_000) && !cold.is_away());
        assert!(!cold.beat_at(100_000), "and takes nothing back");
    }

    #[test]
    fn it_is_over_when_every_thread_has_arrived_and_it_is_empty() {
        let cold = watch(Rejoin::Cold, false);
        assert!(cold.beat_at(15_000));
        cold.arrive(1);
        assert_eq!(waited_for(&cold), Some(1), "one thread may still serve");
        cold.arrive(0);
        assert_eq!(waited_for(&cold), Some(1), "it does not know of it");
        cold.arrive(1);
        let absence = CurrentAbsence { number: 1, cause: AbsenceCause::StoodStill(5000), waited_for: 0 };
        assert_eq!(cold.current(), Some(absence));
        assert!(cold.end(1) && !cold.is_away() && cold.is_over(1));
        assert_eq!(cold.current(), None);
    }

    #[test]
    fn a_process_that_stands_still_again_begins_again() {
        let cold = watch(Rejoin::Cold, false);
        assert!(cold.beat_at(15_000));
        (0..2).for_each(|_| cold.arrive(1));
        assert!(cold.beat_at(20_000));
        assert_eq!(waited_for(&cold), Some(2));
        assert!(!cold.end(1) && cold.is_away(), "what came since is not looked at");
        (0..2).for_each(|_| cold.arrive(2));
        assert!(cold.end(2) && !cold.is_away());
    }

    #[test]
    fn several_clients_that_are_lost_in_one_cut_are_one_absence() {
        let cold = watch(Rejoin::Cold, true);
        assert!(cold.lose_client(0), "the first one");
        assert!(!cold.lose_client(0), "of a thread that has not heard of it");
        assert_eq!(cold.noticed(), 1);
        (0..2).for_each(|_| cold.arrive(1));
        let absence = CurrentAbsence { number: 1, cause: AbsenceCause::Unreachable, waited_for: 0 };
        assert_eq!(cold.current(), Some(absence));
        assert!(cold.end(1) && !cold.lose_client(0), "it was there before");
        assert!(cold.lose_client(1), "another cut");
        assert!(!watch(Rejoin::Cold, false).lose_client(0), "nobody asked for it");
    }

    #[test]
    fn an_end_that_the_client_made_is_no_cut() {
        use rustix::io::Errno;
        let error = |errno: Errno| std::io::Error::from_raw_os_error(errno.raw_os_error());
        assert!([Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::NETUNREACH].map(error).iter().all(is_unreachable));
        let ends = [Errno::CONNRESET, Errno::PIPE, Errno::CANCELED, Errno::CONNABORTED].map(error);
        assert!(!ends.iter().any(is_unreachable));
    }

    #[test]
    fn cuts_are_watched_for_where_clients_come_by_tcp() {
        let time = Duration::from_secs(5);
        let tcp = ServerOptions::default();
        assert_eq!(check_cut_off(time, &tcp), Ok(()));
        let unix = ServerOptions { memcache: Vec::new(), unix: vec!["/run/s".into()], ..ServerOptions::default() };
        assert!(check_cut_off(time, &unix).is_err_and(|why| why.contains("only UNIX sockets")));
        let mut resp = unix;
        resp.resp.addresses.push(([127, 0, 0, 1], 0).into());
        assert_eq!(check_cut_off(time, &resp), Ok(()));
        assert!(check_cut_off(Duration::from_millis(5500), &tcp).is_err_and(|why| why.contains("whole seconds")));
    }
}
