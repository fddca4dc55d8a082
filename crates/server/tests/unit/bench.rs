//! A connection without sockets, for tests and the fuzzer: its store is a map, its peer a list of
//! bytes.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use stratakv_base::random::Random;
use stratakv_base::{Level, Mono, Wall};
use stratakv_device::ring::Chunk;
use stratakv_protocol::memcache::{CollectionsRequest, Statistics, Watched, reply};

use crate::block_budget::BlockBudget;
use crate::connection::{Connection, Context, ServerContext};
use crate::counters::Counters;
use crate::credentials::Accounts;
use crate::details::Details;
use crate::marks::Marks;
use crate::memory_budget::{MemoryBudget, MemoryPermit};
use crate::model::Model;
use crate::orphans::{NodeRemovals, NodeSweeps, OrphanQueue};
use crate::recency::Recency;
use crate::resp::{
    ClientDescription, ClientFilter, ClientKind, ConnectionAddress, EncodingSettings, FilteredClient, KilledClients,
    RespShared,
};
use crate::schedule::UNITS_EACH;
use crate::watch::{Log, Watches, Watching};

pub(crate) const WALL: Wall = Wall(1_800_000_000_000);

/// A server that has nothing to say.
pub(crate) struct NoServer;

impl ServerContext for NoServer {
    fn statistics(&self, which: Statistics, wall: Wall) -> Vec<u8> {
        assert_eq!(wall, WALL);
        match which {
            Statistics::Reset => reply::RESET.to_vec(),
            Statistics::SizesOn => {
                b"STAT sizes_status error\r\nSTAT sizes_error sizes_are_not_counted\r\nEND\r\n".to_vec()
            }
            Statistics::SizesOff | Statistics::Sizes => b"STAT sizes_status disabled\r\nEND\r\n".to_vec(),
            _ => reply::END.to_vec(),
        }
    }
    fn flush_later(&self, _: Option<Duration>) {}
    fn watch(&self, kinds: Watched) -> Option<Watching> {
        Arc::new(Watches::default()).begin(kinds, 0, 0)
    }
    fn backup(&self, name: &str) -> Vec<u8> {
        let mut answer = Vec::new();
        reply::client_error(&mut answer, &format!("no backup {name}"));
        answer
    }
    fn collections(&self, asked: &CollectionsRequest<'_>) -> Vec<u8> {
        let mut answer = Vec::new();
        reply::client_error(&mut answer, &format!("no collections {}", asked.token));
        answer
    }
    fn limit_memory(&self, _: u64) -> bool {
        false
    }
    fn refresh_certificates(&self) -> Vec<u8> {
        reply::NO_TLS.to_vec()
    }
    fn may_shut_down(&self) -> bool {
        false
    }
    fn shut_down(&self) {}
    fn version(&self) -> &str {
        "1.0"
    }
    fn records(&self) -> u64 {
        7
    }
    fn client_id(&self) -> u64 {
        9
    }
    fn address(&self) -> ConnectionAddress {
        ConnectionAddress { worker_slot: 0, connection: 0 }
    }
    fn describe_client(&self, _: &ClientDescription) {}
    fn client(&self) -> String {
        "id=9\n".to_owned()
    }
    fn connections(&self) -> usize {
        1
    }
    fn clients(&self, filter: &ClientFilter) -> String {
        let (address, local_address) = ("127.0.0.1:1", "127.0.0.1:6379");
        let client = FilteredClient { id: 9, kind: ClientKind::Normal, user: "default", address, local_address };
        if filter.matches(client) { self.client() } else { String::new() }
    }
    fn kill_clients(&self, _: &ClientFilter) -> KilledClients {
        KilledClients::default()
    }
    fn mono(&self) -> Mono {
        Mono(0)
    }
    fn client_words(&self) -> (String, String) {
        ("127.0.0.1:1".to_owned(), String::new())
    }
    fn local_address(&self) -> Option<SocketAddr> {
        Some(SocketAddr::from(([127, 0, 0, 1], 6379)))
    }
    fn saved_at(&self) -> u64 {
        WALL.0 / 1000
    }
    fn info(&self, sections: &[String], _: Wall) -> String {
        format!("# {}\r\n", sections.join(" "))
    }
    fn sweep_nodes(&self) {}
    fn place(&self) -> (usize, u32) {
        (0, 0)
    }
    fn resp_settings(&self) -> Vec<(&'static str, String)> {
        vec![("databases", "1".to_owned()), ("maxclients", "10".to_owned())]
    }
    fn resp_encodings(&self) -> &EncodingSettings {
        static SETTINGS: LazyLock<EncodingSettings> = LazyLock::new(EncodingSettings::default);
        &SETTINGS
    }
}

/// A connection, its store and its peer.
pub(crate) struct Bench {
    pub(crate) connection: Connection,
    pub(crate) model: Model,
    pub(crate) counters: Counters,
    pub(crate) marks: Marks,
    pub(crate) recency: Recency,
    pub(crate) orphans: OrphanQueue,
    pub(crate) sweeps: NodeSweeps,
    pub(crate) watches: Arc<Watches>,
    details: Details,
    pub(crate) resp: RespShared,
    pub(crate) accounts: Option<Accounts>,
    pub(crate) is_cache: bool,
    pub(crate) unsent: Vec<u8>,
    pub(crate) answer: Vec<u8>,
    pub(crate) submitted: usize,
    pub(crate) most_waiting: usize,
}

impl Bench {
    pub(crate) fn new(sent: &[u8]) -> Bench {
        Bench {
            connection: Connection::new(
                1 << 20,
                BlockBudget::new(1 << 20),
                MemoryPermit::new(&MemoryBudget::new(64 << 20)),
            ),
            model: Model::new(WALL),
            counters: Counters::default(),
            marks: Marks::default(),
            recency: Recency::default(),
            orphans: OrphanQueue::default(),
            sweeps: NodeSweeps::default(),
            watches: Arc::default(),
            details: Details::default(),
            resp: RespShared::new(Level::PowerLoss, None, None),
            accounts: None,
            is_cache: false,
            unsent: sent.to_vec(),
            answer: Vec::new(),
            submitted: 0,
            most_waiting: 0,
        }
    }

    /// The same of a Redis client.
    pub(crate) fn of_resp(sent: &[u8]) -> Bench {
        let bench = Bench::new(sent);
        Bench { connection: bench.connection.speaks_resp(), ..bench }
    }

    pub(crate) fn advance(&mut self) {
        self.connection.grant(UNITS_EACH, true);
        self.in_context(Connection::advance);
    }

    /// Does something with the connection as a thread does, and takes what it submits.
    pub(crate) fn in_context(&mut self, act: impl FnOnce(&mut Connection, &mut Context<'_>)) {
        let mut submissions = Vec::new();
        let mut context = Context {
            wall: WALL,
            level: Level::PowerLoss,
            shards: self.model.shards,
            counters: &self.counters,
            marks: &self.marks,
            recency: &self.recency,
            nodes: NodeRemovals { queue: &self.orphans, sweeps: &self.sweeps },
            log: Log { watches: &self.watches, details: &self.details, wall: WALL, cfd: 7 },
            accounts: self.accounts.as_ref(),
            server: &NoServer,
            resp: &self.resp,
            is_cache: self.is_cache,
            submissions: &mut submissions,
        };
        act(&mut self.connection, &mut context);
        self.submitted += submissions.len();
        submissions.into_iter().for_each(|submission| self.model.take(submission));
        self.most_waiting = self.most_waiting.max(self.model.waiting());
    }

    /// The peer's bytes arrive, at most `bytes_max` of them; at the end, the end.
    pub(crate) fn receive(&mut self, mut buffer: Vec<u8>, bytes_max: usize) {
        let room = buffer.capacity() - buffer.len();
        let bytes = self.unsent.len().min(room).min(bytes_max);
        buffer.extend(self.unsent.drain(..bytes));
        self.connection.received(buffer, bytes);
    }

    pub(crate) fn take_sent(&mut self, chunks: Vec<Chunk>) {
        for chunk in chunks {
            match chunk {
                Chunk::Bytes(bytes) => self.answer.extend(bytes),
                Chunk::Block { block, start, len } => self.answer.extend(&block[start as usize..][..len as usize]),
            }
        }
    }

    /// Lets things happen in an order drawn from `random` until the connection is over.
    pub(crate) fn run(mut self, random: &mut Random, bytes_max: u64) -> Bench {
        let (mut receiving, mut sending) = (None, None);
        // As a thread does: only if something has happened, or the connection wants more.
        let mut has_moved = true;
        for _ in 0..1_000_000 {
            if std::mem::take(&mut has_moved) || self.connection.wants_more() || self.connection.is_starved() {
                self.advance();
            }
            self.connection.hang_up();
            if self.connection.is_finished() && self.model.waiting() == 0 {
                return self;
            }
            receiving = receiving.or_else(|| self.connection.next_recv());
            sending = sending.or_else(|| self.connection.next_send());
            match random.below(3) {
                0 => {
                    if let Some(buffer) = receiving.take() {
                        has_moved = true;
                        self.receive(buffer, 1 + random.below(bytes_max) as usize);
                    }
                }
                1 => {
                    if let Some((chunks, _)) = sending.take() {
                        has_moved = true;
                        self.take_sent(chunks);
                        self.connection.sent(true);
                    }
                }
                _ if self.model.waiting() > 0 => {
                    has_moved = true;
                    let (sequence, reply) = self.model.answer(random);
                    self.connection.replied(sequence, reply);
                }
                _ => {}
            }
        }
        panic!("the connection does not end");
    }
}
