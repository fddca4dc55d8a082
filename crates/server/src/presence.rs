//! A thread that notes every second that a cache serves: see [`stratakv::Rejoin`].

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::shared::Shared;

/// A cache that was killed counts as away for at most so much longer than it was.
const EVERY: Duration = Duration::from_secs(1);

/// Begins to note it, if the store is a cache that is written to.
///
/// # Errors
/// The thread could not be started.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Option<JoinHandle<()>>> {
    if shared.store.rejoined().is_none() {
        return Ok(None);
    }
    let shared = Arc::downgrade(shared);
    thread::Builder::new().name("presence".into()).spawn(move || note(&shared)).map(Some)
}

/// Until the server stops: what is answered while it drains is not counted, as clients may go
/// elsewhere by then.
fn note(shared: &Weak<Shared>) {
    let mut is_told = false;
    while let Some(shared) = shared.upgrade().filter(|shared| !shared.stopping.load(Ordering::Acquire)) {
        if let Err(error) = shared.store.note_presence()
            && !is_told
        {
            is_told = true;
            tracing::warn!(%error, "that the cache serves cannot be noted: it will count as away from here on");
        }
        drop(shared);
        thread::park_timeout(EVERY);
    }
}
