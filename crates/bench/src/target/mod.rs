//! What is measured: the library in each of its ways in, or a server.

mod blocking;
mod futures;
mod memcache;
mod session;

use std::net::SocketAddr;
use std::str::FromStr;

use stratakv::{CollectionId, Level, Store};

/// Why a benchmark stopped.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The store.
    #[error(transparent)]
    Store(#[from] stratakv::Error),
    /// The connection.
    #[error("the connection to the server failed: {0}")]
    Connection(#[from] std::io::Error),
    /// A wrong answer.
    #[error("{0}")]
    Wrong(String),
    /// What should be measured is not there.
    #[error(
        "record {record} of {records} is not there: load them first, without --no-load (--keep leaves them for later runs)"
    )]
    NotLoaded {
        /// Which.
        record: u64,
        /// How many there should be.
        records: u64,
    },
    /// The target lacks an operation of the workload.
    #[error("{0} has no scans: choose another workload")]
    NoScans(&'static str),
}

/// One request of a benchmark.
#[derive(Debug)]
pub enum Request<'a> {
    /// Reads a record.
    Read(&'a [u8]),
    /// Writes a record.
    Write(&'a [u8], &'a [u8]),
    /// Reads up to so many records from a key on.
    Scan(&'a [u8], u32),
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationOutcome {
    /// Records found: 0 or 1 for reads.
    pub records: u32,
    /// The first bytes of the value read, to tell whose it is.
    pub front: Front,
}

/// The first bytes of a value: eight, or all of a shorter one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Front {
    bytes: [u8; 8],
    len: u8,
}

impl Front {
    /// Of the value that has these bytes.
    pub fn of<'a>(value: impl IntoIterator<Item = &'a u8>) -> Front {
        let mut front = Front::default();
        for (place, byte) in front.bytes.iter_mut().zip(value) {
            *place = *byte;
            front.len += 1;
        }
        front
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// One thread's way to a store: submit, then poll.
pub trait Target {
    /// Begins a request. `tag` comes back with its outcome.
    ///
    /// # Errors
    /// The target is broken, or lacks the operation.
    fn submit(&mut self, tag: u64, request: Request<'_>) -> Result<(), BenchError>;

    /// Waits for at least `min` outcomes (fewer if fewer are in flight) and appends them.
    ///
    /// # Errors
    /// The target is broken, or a request failed.
    fn poll(&mut self, min: usize, done: &mut Vec<(u64, OperationOutcome)>) -> Result<(), BenchError>;
}

/// Gives each thread of a benchmark its target: a [`Kind`] by [`Through`], or a store of another
/// make.
pub trait Way: Sync {
    /// As printed.
    fn name(&self) -> String;

    /// How `clients` requests in flight are spread: threads, and requests in flight of each.
    fn spread(&self, clients: usize, threads: usize) -> (usize, usize);

    /// One thread's target.
    ///
    /// # Errors
    /// It cannot be had.
    fn open(&self) -> Result<Box<dyn Target>, BenchError>;

    /// The store, if it is one of ours in this process: a run over it says what bound it.
    fn store(&self) -> Option<&Store> {
        None
    }
}

/// A way into a store of ours, or to a server.
#[derive(Debug)]
pub struct Through<'a> {
    /// Which way.
    pub kind: Kind,
    /// Needed by all but servers.
    pub store: Option<&'a Store>,
    /// Where the records lie; servers know only the default one.
    pub collection: CollectionId,
    /// When writes are acknowledged.
    pub level: Level,
}

impl Way for Through<'_> {
    fn name(&self) -> String {
        self.kind.name()
    }

    fn spread(&self, clients: usize, threads: usize) -> (usize, usize) {
        self.kind.spread(clients, threads)
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        self.kind.open(self.store, self.collection, self.level)
    }

    fn store(&self) -> Option<&Store> {
        self.store
    }
}

/// Which way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `Session`: submit and poll, many in flight from each thread.
    Embedded,
    /// Blocking calls: a thread for each request in flight.
    Blocking,
    /// Futures: many in flight from each thread, the store's reactors do the I/O.
    Async,
    /// A memcached-compatible server: pipelined, a connection for each thread.
    Memcache(SocketAddr),
}

impl FromStr for Kind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(Kind::Embedded),
            "blocking" => Ok(Kind::Blocking),
            "async" => Ok(Kind::Async),
            other => match other.strip_prefix("memcache://") {
                Some(address) => address.parse().map(Kind::Memcache).map_err(|error| format!("`{address}`: {error}")),
                None => Err(format!("unknown target `{other}`: use embedded, blocking, async or memcache://HOST:PORT")),
            },
        }
    }
}

impl Kind {
    /// As printed.
    pub fn name(self) -> String {
        match self {
            Kind::Embedded => "embedded".into(),
            Kind::Blocking => "blocking".into(),
            Kind::Async => "async".into(),
            Kind::Memcache(address) => format!("memcache://{address}"),
        }
    }

    /// How `clients` requests in flight are spread: threads, and requests in flight of each.
    pub fn spread(self, clients: usize, threads: usize) -> (usize, usize) {
        match self {
            Kind::Blocking => (clients.max(1), 1),
            _ => {
                let threads = threads.clamp(1, clients.max(1));
                (threads, clients.div_ceil(threads).max(1))
            }
        }
    }

    /// One thread's target, into `collection`. `store` is needed by all but servers.
    ///
    /// # Errors
    /// No ring, no connection.
    pub fn open(
        self,
        store: Option<&Store>,
        collection: CollectionId,
        level: Level,
    ) -> Result<Box<dyn Target>, BenchError> {
        let store = || store.cloned().ok_or_else(|| BenchError::Wrong("this target needs a store".into()));
        Ok(match self {
            Kind::Embedded => Box::new(session::SessionTarget::new(&store()?, collection, level)?),
            Kind::Blocking => Box::new(blocking::BlockingTarget::new(store()?, collection, level)),
            Kind::Async => Box::new(futures::FuturesTarget::new(store()?, collection, level)),
            Kind::Memcache(address) => Box::new(memcache::MemcacheTarget::connect(address)?),
        })
    }
}
