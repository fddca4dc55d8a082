//! What the connections of all Redis clients share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use stratakv::Level;

use super::calls::Calls;
use super::cursors::Cursors;
use super::encodings::EncodingSettings;
use super::known_trees::KnownTrees;
use super::pubsub::PubSub;
use super::session::ClientDescription;
use super::turns::KeyTurns;
use super::waiting::WaitTable;
use crate::orphans::NodeSweeps;
use crate::server::RespPeer;

/// See the module.
#[derive(Debug)]
pub(crate) struct RespShared {
    pub(crate) cursors: Cursors,
    pub(crate) sweeps: NodeSweeps,
    pub(crate) turns: Arc<KeyTurns>,
    pub(crate) trees: KnownTrees,
    pub(crate) encodings: EncodingSettings,
    /// When several changes as one are acknowledged.
    pub(crate) batch_level: Level,
    /// Connections that another one has something for.
    pub(crate) calls: Arc<Calls>,
    /// Who waits for elements.
    pub(crate) waits: Arc<WaitTable>,
    /// Who listens to which channels.
    pub(crate) pubsub: Arc<PubSub>,
    /// Of the client that came last.
    last_id: AtomicU64,
}

impl RespShared {
    pub(crate) fn new(batch_level: Level) -> RespShared {
        let (cursors, encodings, sweeps, turns, trees) = Default::default();
        let calls = Arc::default();
        let (waits, pubsub) = (WaitTable::new(&calls), PubSub::new(&calls));
        let last_id = 0.into();
        RespShared { cursors, encodings, sweeps, turns, trees, batch_level, calls, waits, pubsub, last_id }
    }

    /// A new client, so many seconds after the server's start.
    pub(crate) fn peer(&self, began_seconds: u64) -> RespPeer {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        RespPeer { id, began_seconds, description: Mutex::new(ClientDescription::default()) }
    }
}
