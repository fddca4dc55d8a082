//! What the connections of all Redis clients share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use stratakv::Level;

use super::calls::Calls;
use super::cursors::Cursors;
use super::encodings::EncodingSettings;
use super::known_trees::KnownTrees;
use super::pubsub::PubSub;
use super::slots::ClusterSlots;
use super::slow_log::SlowCommands;
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
    /// Commands that took long.
    pub(crate) slow: SlowCommands,
    /// Of the client that came last.
    last_id: AtomicU64,
    /// By which clients of a cluster know the server.
    node_id: OnceLock<String>,
    /// Slots that are spread over servers; `None`: this one has all.
    pub(crate) slots: Option<ClusterSlots>,
}

impl RespShared {
    /// Commands are slow from a time on, or never.
    pub(crate) fn new(batch_level: Level, slow_from: Option<Duration>, slots: Option<ClusterSlots>) -> RespShared {
        let (cursors, encodings, sweeps, turns, trees) = Default::default();
        let (calls, slow) = (Arc::default(), SlowCommands::from(slow_from));
        let (waits, pubsub) = (WaitTable::new(&calls), PubSub::new(&calls));
        let (last_id, node_id) = (0.into(), OnceLock::new());
        RespShared {
            cursors,
            encodings,
            sweeps,
            turns,
            trees,
            batch_level,
            calls,
            waits,
            pubsub,
            slow,
            last_id,
            node_id,
            slots,
        }
    }

    /// The server's name as a node: drawn when it is first asked for, 40 digits.
    pub(crate) fn node_id(&self) -> &str {
        self.node_id.get_or_init(|| {
            let mut id = [0_u8; 20];
            // Without random numbers it is a name all the same.
            if getrandom::fill(&mut id).is_err() {
                id.fill(1);
            }
            id.iter().map(|byte| format!("{byte:02x}")).collect()
        })
    }

    /// A new client, so many seconds after the server's start.
    pub(crate) fn peer(&self, began_seconds: u64) -> RespPeer {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        RespPeer { id, began_seconds, description: Mutex::default(), is_killed: false.into() }
    }
}
