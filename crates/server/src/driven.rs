//! A server without threads, for simulations: its caller ticks each of its workers.

use std::io;
use std::sync::Arc;

use stratakv::Store;
use stratakv::raw::Driver;
use stratakv_device::Socket;

use crate::server::{Error, Listening, ServerOptions, Speaks, worker_slots};
use crate::shared::{Shared, share};
use crate::worker::Worker;

/// See the module.
#[doc(hidden)]
pub struct DrivenServer {
    shared: Arc<Shared>,
    workers: Vec<Option<Worker>>,
}

/// Where it accepts connections.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct DrivenListeners {
    /// Of memcache clients.
    pub memcache: Vec<Socket>,
    /// Of Redis clients.
    pub redis: Vec<Socket>,
}

impl DrivenServer {
    /// A worker for each driver; the first one accepts from `listeners`. Addresses and threads of
    /// `options` do not count.
    ///
    /// # Errors
    /// The system refuses a socket pair.
    pub fn new(
        store: Store,
        options: &ServerOptions,
        drivers: Vec<Driver>,
        listeners: DrivenListeners,
    ) -> Result<DrivenServer, Error> {
        let (worker_slots, wakeups) = worker_slots(drivers.len())?;
        let options = ServerOptions { threads: drivers.len(), ..options.clone() };
        let shared = share(store, &options, None, Vec::new(), Vec::new(), worker_slots);
        let listening = |(socket, resp)| {
            let speaks = Speaks { resp, ..Speaks::default() };
            Listening { socket, speaks, inherited: false }
        };
        let DrivenListeners { memcache, redis } = listeners;
        let redis = redis.into_iter().map(|socket| (socket, true));
        let sockets = memcache.into_iter().map(|socket| (socket, false)).chain(redis);
        let mut listeners = Some(sockets.map(listening).collect());
        let workers = drivers.into_iter().zip(wakeups).enumerate().map(|(index, (driver, wakeup))| {
            let listeners = listeners.take().unwrap_or_default();
            let mut worker = Worker::new(Arc::clone(&shared), index, driver, wakeup, listeners);
            worker.begin();
            Some(worker)
        });
        Ok(DrivenServer { workers: workers.collect(), shared })
    }

    /// One tick of a worker, if it still serves.
    ///
    /// # Errors
    /// Its ring failed.
    pub fn tick(&mut self, worker: usize) -> io::Result<()> {
        let slot = &mut self.workers[worker];
        if let Some(driven) = slot
            && !driven.tick(&mut Vec::new())?
        {
            *slot = None;
        }
        Ok(())
    }

    /// Begins to stop, as `Server::shutdown`.
    pub fn shutdown(&self) {
        self.shared.stop();
    }

    /// Whether every worker has ended.
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(Option::is_none)
    }

    /// Connections held.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }
}
