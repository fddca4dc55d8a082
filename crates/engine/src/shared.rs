//! [`Shared`]: the contract of an engine whose medium is memory.

use stratakv_base::Now;

use crate::error::Error;
use crate::operation::{Operation, Reply};
use crate::shard::{Capabilities, Statistic};

/// An engine whose medium is memory: any number of threads call it in place, and nothing is handed
/// to a ring. Operations, replies and their meaning are those of [`Shard`](crate::Shard); a store
/// over it has one shard.
pub trait Shared: Send + Sync {
    /// What the engine can do.
    fn capabilities(&self) -> Capabilities;

    /// Does an operation to its end, in the calling thread. `now` is the time at its begin.
    fn execute(&self, operation: Operation, now: Now) -> Reply {
        self.execute_begun(operation, None, now)
    }

    /// As [`Shared::execute`], of an operation that was begun earlier, when
    /// [`Shared::last_version`] was `begun_at`: a range delete leaves what was written since. To
    /// others it makes no difference.
    fn execute_begun(&self, operation: Operation, begun_at: Option<u64>, now: Now) -> Reply;

    /// Operations on these keys follow: what they would wait for in memory one after the other is
    /// asked for side by side. A hint, which changes nothing.
    fn prefetch(&self, _keys: &mut dyn Iterator<Item = &[u8]>) {}

    /// No write that is done has a higher version, and every write that begins after this call gets
    /// one. Does not wait.
    fn last_version(&self) -> u64;

    /// Whether making a write durable puts its caller to sleep (`msync`): then whoever serves many
    /// clients with one thread calls [`Shared::execute`] for what may write from another. Reads
    /// never wait for the medium.
    fn writes_wait(&self) -> bool;

    /// Where its medium lies on several nodes of the machine (NUMA), the numbers of the processors
    /// near each: threads that work for it stay there best. Else none.
    fn processors(&self) -> Vec<Vec<usize>> {
        Vec::new()
    }

    /// A bounded step of what nobody waits for: reclaiming what expired, merging, scrubbing.
    /// Whether there is more to do at once.
    fn maintain(&self, now: Now) -> bool;

    /// Why it takes no more writes until the store is opened again: its medium failed. Once there
    /// is a failure it stays, over [`Shared::close`] too.
    fn failure(&self) -> Option<Error> {
        None
    }

    /// Appends counters and gauges.
    fn statistics(&self, out: &mut Vec<Statistic>);

    /// An orderly end: what was acknowledged at a lower level is made durable. Operations after it
    /// are answered [`Error::Closed`].
    fn close(&self);
}
