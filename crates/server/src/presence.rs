//! The threads of a cache that know whether it serves: `presence` notes every second that it does
//! (see [`stratakv::Rejoin`]), and empties it after an absence; `clock` tells the
//! [watch](crate::absence) that the process runs, and does nothing that could wait for a disk.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stratakv::Store;

use crate::absence::{AbsenceCause, BEAT};
use crate::shared::Shared;

/// A cache that was killed counts as away for at most so much longer than it was.
const EVERY: Duration = Duration::from_secs(1);

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

/// Until the server stops: what is answered while it drains is not counted, as clients may go
/// elsewhere by then.
fn note(shared: &Weak<Shared>) {
    let mut is_told = false;
    while let Some(shared) = serving(shared) {
        shared.look_for_absence();
        if shared.absence.is_away() {
            if let Some((number, cause)) = shared.absence.to_empty() {
                empty(&shared, number, cause);
            }
        } else if let Err(error) = shared.store.note_presence()
            && !std::mem::replace(&mut is_told, true)
        {
            tracing::warn!(%error, "that the cache serves cannot be noted: it will count as away from here on");
        }
        // It keeps the server's parts for no longer than a wait.
        shared.absence.wait(EVERY, || !shared.stopping.load(Ordering::Acquire));
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
fn empty(shared: &Shared, number: u64, cause: AbsenceCause) {
    match return_empty(&shared.store, cause) {
        Ok(epoch) => {
            if shared.absence.end(number) {
                tracing::warn!(epoch, "the cache was away and begins empty, as --rejoin says: {}", cause.words());
                shared.ring_all();
            }
        }
        Err(error) => {
            let why = cause.words();
            tracing::error!(
                %error,
                "the cache was away ({why}) and cannot be emptied: it serves nobody, and tries again each second. Restart it if that goes on"
            );
            thread::park_timeout(EVERY);
        }
    }
}

fn return_empty(store: &Store, cause: AbsenceCause) -> Result<u64, stratakv::Error> {
    store.return_empty(cause.absence()).map(|rejoined| rejoined.epoch)
}
