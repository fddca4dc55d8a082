//! One connection of a thread: its state machine, its socket, and what is in flight between the
//! two.

use std::sync::Arc;
use std::time::Duration;

use stratakv_base::Mono;
use stratakv_device::{Socket, socket};

use super::HANDSHAKE;
use crate::connection::Connection;
use crate::progress::Progress;
use crate::schedule::{HANDSHAKE_UNITS, Share};
use crate::server::Peer;
use crate::timing::Begun;
use crate::tls::Tls;

/// A connection that waits for an element, or listens to channels, holds so much while others want
/// memory.
const QUIET_BYTES: u64 = 16 << 10;

/// A connection and what is in flight for it.
pub(super) struct ConnectionEntry {
    pub(super) socket: Socket,
    /// Between the two, if its listener is one of TLS.
    pub(super) tls: Option<Box<Tls>>,
    pub(super) peer: Arc<Peer>,
    pub(super) connection: Connection,
    pub(super) begun: Begun,
    /// When something last came from its client, or was sent to it.
    pub(super) active_at: Mono,
    pub(super) progress: Progress,
    /// What it has had of the thread's time lately.
    pub(super) share: Share,
    pub(super) memory: EntryMemory,
    pub(super) in_flight: InFlight,
    pub(super) ending: EntryEnding,
    /// Its command that waits for an element, and until when, if not for ever.
    pub(super) wait: Option<(u32, Option<Mono>)>,
    /// Listed in `touched`.
    pub(super) touched: bool,
}

/// What a connection has of the server's memory for clients.
#[derive(Debug, Default)]
pub(super) struct EntryMemory {
    /// What its permit is for.
    pub(super) held_bytes: u64,
    /// Listed among those that wait for memory.
    pub(super) starving: bool,
    pub(super) starved_since: Option<Mono>,
    /// Its client has taken an answer and gone on.
    pub(super) is_proven: bool,
}

/// Requests of a connection that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    pub(super) operations: usize,
    pub(super) receiving: bool,
    /// Its receive is called off, so that others have its room.
    pub(super) calls_off: bool,
    pub(super) sending: bool,
    pub(super) sending_bytes: u64,
}

/// How far the end of a connection has come.
#[derive(Debug, Default)]
pub(super) struct EntryEnding {
    /// Its requests have been told to end.
    pub(super) shut: bool,
    /// Its client has left, and the shards were told.
    pub(super) given_up: bool,
    /// Why it is closed, if neither it nor its peer ended it.
    pub(super) reason: Option<&'static str>,
    /// Others may have its place.
    pub(super) is_released: bool,
}

impl ConnectionEntry {
    pub(super) fn new(
        socket: Socket,
        tls: Option<Box<Tls>>,
        peer: Arc<Peer>,
        connection: Connection,
        now: Mono,
    ) -> ConnectionEntry {
        ConnectionEntry {
            socket,
            tls,
            peer,
            connection,
            begun: Begun::default(),
            active_at: now,
            progress: Progress::new(now),
            share: Share::default(),
            memory: EntryMemory::default(),
            in_flight: InFlight::default(),
            ending: EntryEnding::default(),
            wait: None,
            touched: false,
        }
    }

    /// A receive was called off: its room is for others.
    pub(super) fn give_room_back(&mut self, buffer: Vec<u8>) {
        match &mut self.tls {
            None => self.connection.room_taken(buffer),
            Some(tls) => {
                if let Some(buffer) = tls.give_room_back() {
                    self.connection.room_taken(buffer);
                }
            }
        }
    }

    /// Opens what came sealed.
    pub(super) fn open_received(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        if tls.is_handshaking() && tls.has_sealed() {
            self.connection.spend(HANDSHAKE_UNITS);
        }
        if let Err(error) = tls.open() {
            tracing::debug!(%error, "a client spoke no TLS that could be understood");
            self.connection.abort();
        }
    }

    /// Whether it is its client that has to go on: to send the rest of a request, or to take an
    /// answer.
    pub(super) fn waits_for_client(&self) -> bool {
        self.in_flight.sending || (self.in_flight.receiving && !self.connection.is_between_requests())
    }

    /// Whether it waits for an element or listens, and holds more than that needs.
    pub(super) fn hoards(&self) -> bool {
        let is_quiet = self.connection.is_waiting() || self.connection.is_listening();
        is_quiet && self.memory.held_bytes > QUIET_BYTES
    }

    /// Looks at what the client has taken of what is being sent.
    pub(super) fn look(&mut self, now: Mono) {
        if let Some(untaken) = self.in_flight.sending.then(|| socket::untaken_bytes(&self.socket)).flatten()
            && self.progress.look(untaken, now)
        {
            self.active_at = now;
        }
    }

    /// Whether it has room that others could use, between two requests.
    pub(super) fn has_idle_room(&self) -> bool {
        let is_idle = self.in_flight.operations == 0 && self.connection.is_between_requests();
        is_idle && self.tls.as_ref().map_or(self.connection.has_idle_room(), |tls| tls.has_idle_room())
    }

    /// For how long nothing may come from its client, or be taken by it.
    pub(super) fn limit(&self, idle: Option<Duration>, request: Option<Duration>) -> Option<Duration> {
        if self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            return Some(idle.map_or(HANDSHAKE, |idle| idle.min(HANDSHAKE)));
        }
        let is_told = self.connection.is_watching() || self.connection.is_waiting() || self.connection.is_listening();
        let idle = idle.filter(|_| !self.in_flight.sending && !is_told);
        let request = request.filter(|_| self.waits_for_client());
        idle.into_iter().chain(request).min()
    }
}
