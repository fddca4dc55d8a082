//! Faults that a machine, an administrator or other clients do to a process that has a store, while
//! honest clients with an oracle are at work.
//!
//! Each scenario begins with a fresh store and ends with the oracle's comparison after a restart.

mod disk;
mod last_space;
mod network;
mod parts;
mod shutdown;
mod space;
mod tampering;
mod transactions;
mod waves;

use std::path::Path;

pub use parts::play;

use crate::crash::{Mix, Plan, Trial};
use crate::engine::Engine;
use crate::memcache::Client;
use crate::program::Served;
use crate::protocol::Protocol;

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScenarioOutcome {
    /// As it should; what was counted.
    Held(String),
    /// It cannot be done on this machine.
    Skipped(String),
    /// A program must be installed for it.
    Missing(&'static str),
}

/// Where and how long.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// An empty directory, on a disk.
    pub place: &'a Path,
    /// Of the store.
    pub engine: Engine,
    /// More of everything, and for longer.
    pub long: bool,
    /// For everything drawn.
    pub seed: u64,
}

/// One of the faults.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on command lines.
    pub name: &'static str,
    /// What is done.
    pub what: &'static str,
    /// Does it; an error says what is wrong.
    pub run: fn(&Setting<'_>) -> Result<ScenarioOutcome, String>,
}

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "full-disk",
        what: "a small ext4 fills up, is killed on, and gets room again",
        run: space::full_disk,
    },
    Scenario {
        name: "full-opening",
        what: "a store opens for writing on a file system that others have filled",
        run: last_space::full_opening,
    },
    Scenario {
        name: "last-space",
        what: "four shards fill a small ext4, and share its last space",
        run: last_space::shared_last_space,
    },
    Scenario { name: "file-size", what: "RLIMIT_FSIZE ends the growth of volumes", run: space::file_size_limit },
    Scenario {
        name: "permissions",
        what: "chmod 000 of everything under a running server",
        run: tampering::permissions,
    },
    Scenario { name: "renamed", what: "the directory is renamed under a running server", run: tampering::renamed },
    Scenario { name: "stopped-readers", what: "clients stopped amid replies of 64 MB", run: network::stopped_readers },
    Scenario { name: "stopped-senders", what: "clients stopped amid a value", run: network::stopped_senders },
    Scenario {
        name: "connections",
        what: "thousands of idle connections, then a storm of short ones",
        run: network::connections,
    },
    Scenario { name: "descriptors", what: "more connections than descriptors", run: network::descriptors },
    Scenario { name: "garbage", what: "garbage and half commands from many connections", run: network::garbage },
    Scenario {
        name: "transactions",
        what: "kill -9 amid transactions of Redis clients over hashes, lists, sets and sorted sets",
        run: transactions::transactions,
    },
    Scenario { name: "sigterm", what: "SIGTERM under load", run: shutdown::sigterm },
];

impl Scenario {
    /// The one with this name.
    pub fn named(name: &str) -> Option<&'static Scenario> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }
}

impl Setting<'_> {
    /// The short form or the long one.
    fn either<T>(&self, short: T, long: T) -> T {
        if self.long { long } else { short }
    }

    /// A fresh store in `data`, served to memcache clients by `clients` honest ones; logged beside
    /// `place`, outside any fault.
    fn trial(&self, data: &Path, clients: u64, mix: Mix) -> Trial {
        let plan = Plan {
            engine: self.engine,
            protocols: vec![Protocol::Memcache],
            levels: vec!["process_crash".into()],
            clients,
            mix,
            seed: self.seed,
            ..Plan::default()
        };
        let mut trial = Trial::new(data, &plan);
        trial.serve.log = self.place.join("server.log");
        trial.serve = trial.serve.options(&["--memory", "64M", "--threads", "2"]);
        if self.engine.has_shards() {
            trial.serve = trial.serve.options(&["--shards", "2"]);
        }
        trial
    }
}

fn connect(served: &Served) -> Result<Client, String> {
    Client::connect(served.address()).map_err(|error| format!("no connection: {error}"))
}

/// What honest clients do unless a scenario wants it otherwise.
fn honest() -> Mix {
    Mix { keys_per_client: 100, value_bytes_max: 100 << 10, may_fail: false, evicts: false }
}
