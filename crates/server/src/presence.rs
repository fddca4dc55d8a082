//! The threads of a cache that know whether it serves: `presence` notes every second that it does
//! (see [`stratakv::Rejoin`]), and empties it after an absence; `clock` tells the
//! [watch](crate::absence) that the process runs, and does nothing that could wait for a disk.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stratakv::Rejoined;

use crate::absence::{AbsenceCause, BEAT, CurrentAbsence};
use crate::shared::Shared;

/// A cache that was killed counts as away for at most so much longer than it was.
const EVERY: Duration = Duration::from_secs(1);

/// How often it is told who is waited for.
const WAITED_EVERY: Duration = Duration::from_secs(10);

/// Both threads.
#[derive(Debug)]
pub(crate) struct PresenceThreads(Vec<JoinHandle<()>>);

impl PresenceThreads {
    /// Begins, if the store is a cache that is written to.
    ///
    /// # Errors
    /// A thread could not be started.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<PresenceThreads> {
        let mut threads = PresenceThreads(Vec::new());
        if shared.store.rejoined().is_none() {
            return Ok(threads);
        }
        threads.spawn("presence", shared, note)?;
        if shared.absence.is_on() {
            threads.spawn("clock", shared, beat)?;
        }
        Ok(threads)
    }

    fn spawn(&mut self, name: &str, shared: &Arc<Shared>, body: fn(&Weak<Shared>)) -> io::Result<()> {
        let shared = Arc::downgrade(shared);
        self.0.push(thread::Builder::new().name(name.into()).spawn(move || body(&shared))?);
        Ok(())
    }

    /// Waits for them, once the server stops.
    pub(crate) fn join(self, shared: &Shared) {
        shared.absence.wake();
        for thread in self.0 {
            thread.thread().unpark();
            // One that ended by a defect has said so.
            _ = thread.join();
        }
        // A thread may have noticed one after the last look, or it could not be noted.
        if let Some(absence) = shared.absence.current() {
            leave(shared, absence.cause);
        }
    }

    /// In a child of fork they are the parent's.
    pub(crate) fn forget(&mut self) {
        self.0.drain(..).for_each(std::mem::forget);
    }
}

/// The server, until it stops.
fn serving(shared: &Weak<Shared>) -> Option<Arc<Shared>> {
    shared.upgrade().filter(|shared| !shared.stopping.load(Ordering::Acquire))
}

/// What the thread that notes has said.
#[derive(Debug, Default)]
struct PresenceLog {
    /// That it cannot be noted that the cache serves.
    is_told: bool,
    /// The last absence that was told, and when it was told last who is waited for.
    absence: u64,
    waited: Option<Instant>,
}

/// Until the server stops: what is answered while it drains is not counted, as clients may go
/// elsewhere by then.
fn note(shared: &Weak<Shared>) {
    let mut log = PresenceLog::default();
    while let Some(shared) = serving(shared) {
        shared.look_for_absence();
        let known = shared.absence.noticed();
        if let Some(absence) = shared.absence.current() {
            end_absence(&shared, absence, &mut log);
        } else if let Err(error) = shared.store.note_presence()
            && !std::mem::replace(&mut log.is_told, true)
        {
            tracing::warn!(%error, "that the cache serves cannot be noted: it will count as away from here on");
        }
        // It keeps the server's parts for no longer than a wait.
        shared.absence.wait(EVERY, known, || !shared.stopping.load(Ordering::Acquire));
    }
}

/// Notes at once that the cache was away, as the process may end before it is empty. Empties it
/// once no thread serves anybody.
fn end_absence(shared: &Shared, absence: CurrentAbsence, log: &mut PresenceLog) {
    log.absence(absence);
    if leave(shared, absence.cause) && absence.waited_for == 0 {
        empty(shared, absence);
    }
}

/// Whether it is noted that the cache was away.
fn leave(shared: &Shared, cause: AbsenceCause) -> bool {
    let noted = shared.store.note_absence();
    if let Err(error) = &noted {
        let (why, file) = (cause.words(), shared.store.path().join("presence"));
        tracing::error!(
            %error,
            file = %file.display(),
            "the cache was away ({why}), and that cannot be noted: it serves nobody, and tries again each second. If it ends before, remove that file, so that the next start empties the cache"
        );
    }
    noted.is_ok()
}

impl PresenceLog {
    /// Tells of an absence when it is noticed, and then of those that are waited for.
    fn absence(&mut self, CurrentAbsence { number, cause, waited_for }: CurrentAbsence) {
        if std::mem::replace(&mut self.absence, number) != number {
            self.waited = Some(Instant::now());
            tracing::warn!(
                "{}: all connections are closed, and the cache will be emptied, as --rejoin says",
                cause.words()
            );
        } else if waited_for > 0 && self.waited.is_none_or(|at| at.elapsed() >= WAITED_EVERY) {
            self.waited = Some(Instant::now());
            tracing::warn!(
                waited_for,
                "the cache was away and is not emptied yet: threads have operations of before that have not ended"
            );
        }
    }
}

fn beat(shared: &Weak<Shared>) {
    while let Some(shared) = serving(shared) {
        shared.look_for_absence();
        drop(shared);
        thread::park_timeout(BEAT);
    }
}

/// No thread serves anybody: what the cache has goes, and then they may.
fn empty(shared: &Shared, CurrentAbsence { number, cause, .. }: CurrentAbsence) {
    let why = cause.words();
    match shared.store.return_empty(cause.absence()) {
        Ok(Rejoined { epoch, .. }) => {
            if shared.absence.end(number) {
                tracing::warn!(epoch, "the cache was away and begins empty, as --rejoin says: {why}");
                shared.ring_all();
            }
        }
        Err(error) => {
            tracing::error!(
                %error,
                "the cache was away ({why}) and cannot be emptied, or that cannot be noted: it serves nobody, and tries again each second. Restart it if that goes on"
            );
            thread::park_timeout(EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use stratakv::{Engine, Options, Rejoin};

    use super::*;
    use crate::server::{ClientLimits, ServerOptions, worker_slots};
    use crate::shared::share;

    fn options() -> Options {
        let within = Rejoin::WarmWithin(Duration::from_secs(3600));
        let options = Options::new().engine(Engine::Tier).rejoin(within);
        options.shards(1).memory_bytes(16 << 20).capacity_bytes(128 << 20)
    }

    /// Of a server whose only thread never arrives.
    fn shared(store: stratakv::Store) -> Arc<Shared> {
        let limits = ClientLimits { cut_off: Some(Duration::from_secs(3)), ..ClientLimits::default() };
        let options = ServerOptions { threads: 1, limits, ..ServerOptions::default() };
        share(store, &options, None, Vec::new(), Vec::new(), worker_slots(1).unwrap().0)
    }

    fn stop(shared: Arc<Shared>, threads: PresenceThreads) {
        shared.stop();
        threads.join(&shared);
        shared.store.close().unwrap();
    }

    /// Whatever ends the process between notice and emptying.
    #[test]
    fn a_cache_that_noticed_an_absence_is_empty_at_the_next_opening() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let says_unknown = || std::fs::read_to_string(data.join("presence")).unwrap().starts_with("1  ");
        let open = || options().open(&data).unwrap();
        for is_noted_before_the_end in [false, true] {
            let shared = shared(open());
            let threads = PresenceThreads::start(&shared).unwrap();
            while says_unknown() {
                thread::sleep(Duration::from_millis(1));
            }
            if is_noted_before_the_end {
                assert!(shared.absence.lose_client(0));
                // What a kill leaves.
                let begun = Instant::now();
                while !says_unknown() {
                    assert!(begun.elapsed() < Duration::from_secs(60), "it is not noted");
                    thread::sleep(Duration::from_millis(1));
                }
                stop(shared, threads);
            } else {
                // By a thread that still drains.
                shared.stop();
                threads.0.iter().for_each(|thread| thread.thread().unpark());
                while !threads.0.iter().all(JoinHandle::is_finished) {
                    shared.absence.wake();
                    thread::sleep(Duration::from_millis(1));
                }
                assert!(shared.absence.lose_client(0) && !says_unknown());
                stop(shared, threads);
            }
            assert!(says_unknown(), "noted {is_noted_before_the_end}");
            let store = open();
            assert!(store.rejoined().unwrap().was_emptied, "noted {is_noted_before_the_end}");
            store.close().unwrap();
        }
        let shared = shared(open());
        let threads = PresenceThreads::start(&shared).unwrap();
        while says_unknown() {
            thread::sleep(Duration::from_millis(1));
        }
        stop(shared, threads);
        assert!(!open().rejoined().unwrap().was_emptied, "so it can fail");
    }
}
