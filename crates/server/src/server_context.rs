//! What connections ask of their server that is not about keys.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stratakv::Engine;
use stratakv_base::{Mono, Wall};
use stratakv_device::{Socket, SocketAddress};
use stratakv_engine::{Capability, Error};
use stratakv_protocol::memcache::{CollectionsRequest, Statistics, Watched, reply};

use crate::backups::is_local;
use crate::connection::ServerContext;
use crate::memory_budget::client_memory_bytes;
use crate::resp::{ClientDescription, ClientFilter, ConnectionAddress, EncodingSettings, KilledClients};
use crate::server::{Peer, lock};
use crate::shared::{Shared, block_budget_bytes, client_bytes};
use crate::statistics;
use crate::watch::Watching;
use crate::worker::after;

/// The server, as a connection sees it.
pub(crate) struct CommandContext<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) flush_at: &'a Cell<Option<Mono>>,
    pub(crate) mono: Mono,
    /// Of the connection.
    pub(crate) socket: &'a Socket,
    pub(crate) peer: &'a Peer,
    /// Its thread, and its number there.
    pub(crate) worker_slot: usize,
    pub(crate) connection: u32,
}

impl CommandContext<'_> {
    fn peer_address(&self) -> Option<SocketAddr> {
        self.socket.peer_address().map(|peer| match peer {
            SocketAddress::Tcp(peer) => peer,
            // A client at a UNIX socket is on this machine.
            SocketAddress::Unix(_) => SocketAddr::from(([127, 0, 0, 1], 0)),
        })
    }
}

impl ServerContext for CommandContext<'_> {
    fn statistics(&self, which: Statistics, wall: Wall) -> Vec<u8> {
        statistics::text(self.shared, which, wall)
    }

    fn flush_later(&self, delay: Option<Duration>) {
        // However the wall clock is set meanwhile.
        let at = delay.map(|delay| after(self.mono, delay));
        self.shared.flush_at.store(at.map_or(0, |at| at.0), Ordering::Release);
        self.flush_at.set(at);
    }

    fn watch(&self, kinds: Watched) -> Option<Watching> {
        let watching = self.shared.figures.watches.begin(kinds, self.worker_slot, self.connection);
        self.peer.is_watching.store(watching.is_some(), Ordering::Relaxed);
        watching
    }

    fn backup(&self, name: &str) -> Vec<u8> {
        let peer = self.peer_address();
        let store = self.shared.store.clone();
        if store.engine() == Engine::Tier {
            let mut answer = Vec::new();
            reply::client_error(&mut answer, &Error::Unsupported(Capability::Backup).to_string());
            return answer;
        }
        self.shared
            .jobs
            .backups
            .begin(name, peer, move |to, added| store.backup_watched(to, added).map_err(|error| error.to_string()))
    }

    fn collections(&self, asked: &CollectionsRequest<'_>) -> Vec<u8> {
        // With accounts nobody comes here who did not say who it is.
        let is_trusted = self.shared.security.accounts.is_some() || self.peer_address().is_some_and(is_local);
        self.shared.jobs.collections.begin(&self.shared.store, asked, is_trusted)
    }

    fn limit_memory(&self, bytes: u64) -> bool {
        let for_clients = if self.shared.memory.is_shared { client_memory_bytes(bytes) } else { 0 };
        let changed = self.shared.store.set_memory_bytes(bytes - for_clients);
        match &changed {
            Ok(()) => {
                if self.shared.memory.is_shared {
                    self.shared
                        .memory
                        .budget
                        .set_max_bytes(client_bytes(for_clients, self.shared.limits.item_bytes_max));
                }
                tracing::info!(bytes, "a client has changed the store's memory, until it is opened again");
                let shard_bytes = (bytes - for_clients) / self.shared.store.shards() as u64;
                self.shared.memory.block_budget.set_max_bytes(block_budget_bytes(shard_bytes));
            }
            Err(error) => tracing::warn!(%error, "a client could not change the store's memory"),
        }
        changed.is_ok()
    }

    fn refresh_certificates(&self) -> Vec<u8> {
        if !self.shared.security.serves_tls {
            return reply::NO_TLS.to_vec();
        }
        match self.shared.reload_tls(None) {
            Ok(()) => reply::OK.to_vec(),
            Err(error) => {
                tracing::warn!(%error, "a client had the files of TLS read again, and they are no good: those before go on");
                format!("ERROR {error}\r\n").into_bytes()
            }
        }
    }

    fn may_shut_down(&self) -> bool {
        self.shared.security.shutdown_command
    }

    fn shut_down(&self) {
        tracing::info!("a client stops the server");
        self.shared.stop();
    }

    fn version(&self) -> &str {
        statistics::VERSION
    }

    fn records(&self) -> u64 {
        statistics::records(self.shared)
    }

    fn place(&self) -> (usize, u32) {
        (self.worker_slot, self.connection)
    }

    fn client_id(&self) -> u64 {
        self.peer.resp.as_ref().map_or(0, |peer| peer.id)
    }

    fn address(&self) -> ConnectionAddress {
        ConnectionAddress { worker_slot: self.worker_slot, connection: self.connection }
    }

    fn describe_client(&self, description: &ClientDescription) {
        if let Some(peer) = &self.peer.resp {
            lock(&peer.description).clone_from(description);
        }
    }

    fn client(&self) -> String {
        statistics::redis::client(self.shared, self.peer)
    }

    fn connections(&self) -> usize {
        self.shared.connections()
    }

    fn clients(&self, filter: &ClientFilter) -> String {
        statistics::redis::clients(self.shared, filter)
    }

    fn kill_clients(&self, filter: &ClientFilter) -> KilledClients {
        let mut killed = KilledClients::default();
        for (worker_slot, slot) in self.shared.worker_slots.iter().enumerate() {
            for (connection, peer) in lock(&slot.open).iter() {
                let Some(resp) = &peer.resp else { continue };
                let is_me = resp.id == self.client_id();
                if (is_me && filter.skips_me) || !statistics::redis::is_meant(self.shared, peer, filter) {
                    continue;
                }
                if is_me {
                    killed.with_me = true;
                    continue;
                }
                killed.others += 1;
                resp.is_killed.store(true, Ordering::Release);
                self.shared.resp.calls.add(ConnectionAddress { worker_slot, connection: *connection });
            }
        }
        killed
    }

    fn mono(&self) -> Mono {
        self.mono
    }

    fn client_words(&self) -> (String, String) {
        statistics::redis::client_words(self.peer)
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.peer.listens_at.as_deref()?.strip_prefix("tcp:")?.parse().ok()
    }

    fn saved_at(&self) -> u64 {
        self.shared.saved_at()
    }

    fn info(&self, sections: &[String], wall: Wall) -> String {
        statistics::redis::info(self.shared, sections, wall)
    }

    fn sweep_nodes(&self) {
        self.shared.sweep_nodes();
    }

    fn resp_settings(&self) -> Vec<(&'static str, String)> {
        statistics::redis::settings(self.shared)
    }

    fn resp_encodings(&self) -> &EncodingSettings {
        &self.shared.resp.encodings
    }
}
