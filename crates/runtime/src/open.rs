//! Brings a shard to life: drives an [`Opener`] on a ring of its own.

use std::io;
use std::sync::Arc;

use stratakv_device::{Completion, Pool, Ring, Volume, Wait};
use stratakv_engine::{Effects, Error, Io, Opener, Progress};

use crate::clock::Clock;

/// Runs `opener` to its end in the calling thread, by the system's clock. `watch` is told the
/// progress after each batch of completions.
///
/// # Errors
/// The ring failed, or the opener's own reasons.
pub fn open_shard<O: Opener>(
    opener: O,
    volume: &Arc<Volume>,
    pool: &Pool,
    ring: &mut dyn Ring,
    watch: &mut dyn FnMut(Progress),
) -> Result<O::Shard, OpenFailure> {
    open_shard_by(&Clock::System, opener, volume, pool, ring, watch)
}

/// As [`open_shard`], by another clock: for simulations.
///
/// # Errors
/// As [`open_shard`].
#[doc(hidden)]
pub fn open_shard_by<O: Opener>(
    clock: &Clock,
    mut opener: O,
    volume: &Arc<Volume>,
    pool: &Pool,
    ring: &mut dyn Ring,
    watch: &mut dyn FnMut(Progress),
) -> Result<O::Shard, OpenFailure> {
    let mut effects = Effects::new(pool.clone());
    let mut completions = Vec::new();
    effects.begin(clock.now());
    opener.start(&mut effects);
    while !opener.is_finished() {
        for (io, request) in effects.requests.drain(..) {
            ring.disk(io.to_bits(), volume, request);
        }
        ring.submit(Wait::For { completions: 1, timeout: None })?;
        ring.reap(&mut completions);
        effects.begin(clock.now());
        for completion in completions.drain(..) {
            if let Completion::Disk { tag, outcome } = completion {
                opener.complete(Io::from_bits(tag), outcome, &mut effects);
            }
        }
        watch(opener.progress());
    }
    Ok(opener.finish()?)
}

/// Why a shard could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFailure {
    /// The ring failed.
    #[error("the I/O ring failed: {0}")]
    Ring(#[from] io::Error),
    /// The volume, or its content.
    #[error(transparent)]
    Engine(#[from] Error),
}
