//! Reactors: background threads with a ring, for futures, timers and what callers without a ring
//! leave.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stratakv_device::{Ring, Wait};
use stratakv_engine::Shard;

use crate::driver::Driver;
use crate::runtime::Runtime;

/// With several requests in flight, a reactor waits for a quarter of them or this long, so that
/// batches do not degenerate to one.
const GATHER: Duration = Duration::from_micros(50);

/// Spawns reactor `number`. It holds the runtime until it stops, so [`Runtime::close`] must be
/// called to end it.
pub(crate) fn spawn<S: Shard + 'static>(
    runtime: &Arc<Runtime<S>>,
    ring: Box<dyn Ring + Send>,
    number: usize,
) -> io::Result<JoinHandle<()>> {
    let runtime = Arc::clone(runtime);
    thread::Builder::new().name(format!("stratakv-io-{number}")).spawn(move || {
        let mut driver = Driver::new(Arc::clone(&runtime), ring, Some(number));
        let mut events = Vec::new();
        while !runtime.is_stopping() {
            let in_flight = driver.in_flight() as u32;
            let wait = match in_flight {
                0 | 1 => Wait::For { completions: 1, timeout: None },
                more => Wait::For { completions: (more / 4).max(1), timeout: Some(GATHER) },
            };
            if let Err(error) = driver.tick(wait, &mut events) {
                // With the driver go its shards: they are answered, not left waiting.
                tracing::error!(%error, "the I/O ring failed; operations in flight are in doubt, reopen the store");
                return;
            }
            events.clear();
        }
    })
}
