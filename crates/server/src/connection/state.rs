//! What a connection is made of, each part with the fields that change together.

use std::collections::VecDeque;
use std::sync::Arc;

use stratakv_protocol::memcache::{BinaryParser, Keys, Parser};

use super::more_keys::MoreKeys;
use super::refused::Refused;
use super::storing::Storing;
use super::{RECV_BYTES_MIN, Receiving};
use crate::answer::ResponseEncoder;
use crate::block_budget::{BlockBudget, BlockPermit};
use crate::memory_budget::{FREE_BYTES, MemoryPermit};
use crate::output::Output;
use crate::pending::{AccessFilter, ParsedCommand, PendingAnswer};
use crate::received::Received;
use crate::resp::{RespClient, TimedCommands};

/// Which protocol the client speaks: its first byte tells.
#[derive(Debug)]
pub(super) enum ClientProtocol {
    Undecided,
    Text(Parser),
    Binary(BinaryParser),
    /// Of every client of such a listener.
    Resp(Box<RespClient>),
}

/// Whether a Redis client hears the replies to its commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReplyMode {
    #[default]
    On,
    Off,
    /// Not that to the next command.
    SkipNext,
    /// Not that to the command that is carried out.
    Skip,
}

impl ReplyMode {
    /// When the next command begins.
    pub(super) fn next(self) -> ReplyMode {
        match self {
            ReplyMode::SkipNext => ReplyMode::Skip,
            ReplyMode::Skip => ReplyMode::On,
            mode => mode,
        }
    }

    /// Whether replies are left out now.
    pub(super) fn is_silent(self) -> bool {
        matches!(self, ReplyMode::Off | ReplyMode::Skip)
    }
}

/// Who is at the other end, and what it may do.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) protocol: ClientProtocol,
    /// It has said who it is.
    pub(super) admitted: bool,
    /// It has begun to say so, in the binary protocol.
    pub(super) is_asked: bool,
    /// Commands that were none or that it may not give, since it was last asked.
    pub(super) errors: u32,
    /// Most bytes of a value that it may store.
    pub(super) item_bytes_max: u64,
    pub(super) reply_mode: ReplyMode,
    /// Its commands while somebody wants to know which are slow.
    pub(super) timed: TimedCommands,
}

/// What has come and is not parsed, and the room for more.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) received: Received,
    pub(super) receiving: Option<Receiving>,
    /// Room that a receive in flight has.
    pub(super) receiving_bytes: usize,
    pub(super) recv_bytes: usize,
    /// Of a command whose end has not come.
    pub(super) unfinished_bytes: usize,
    /// Everything received is parsed as far as possible.
    pub(super) hungry: bool,
}

/// The command that goes on before the next one is parsed.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    pub(super) storing: Option<Storing>,
    pub(super) refused: Option<Refused>,
    pub(super) rest: Option<Rest>,
    /// The same of MGET, and the records of a range.
    pub(super) more: Option<Box<MoreKeys>>,
    /// It waits for those before it.
    pub(super) held: Option<ParsedCommand>,
}

/// The keys of a get still to be asked for.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) line: Vec<u8>,
    pub(super) at: usize,
    pub(super) cas: bool,
    pub(super) touch: Option<i64>,
}

impl Rest {
    /// The key that comes next, and the rest of the line from after it on.
    pub(super) fn next(&self) -> Option<(&[u8], usize)> {
        Keys::split(self.line.get(self.at..)?)
    }

    /// Whether all keys have been asked for. The end of an answer needs no turn and no room of its
    /// own: it goes with the last value.
    pub(super) fn is_over(&self) -> bool {
        self.next().is_none()
    }
}

/// Commands in progress, in the order of their answers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) pending: VecDeque<PendingAnswer>,
    /// Of `pending`, and of some that were there since it was last empty.
    pub(super) accesses: AccessFilter,
    /// Number of the first of `pending`.
    pub(super) first: u32,
    /// Requests of several operations whose reply has come, by number.
    pub(super) replied: Vec<u32>,
    /// Of keys whose new value was refused.
    pub(super) doubtful: Vec<u32>,
    pub(super) response_encoder: ResponseEncoder,
}

/// How much of values is read ahead.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// A recent long value, in bytes.
    pub(super) value_bytes: u64,
    /// How much of the next one is asked for at first.
    pub(super) first_bytes: u64,
    /// Bytes of values read and being read, and not yet put into words.
    pub(super) bytes: u64,
    /// Values to be asked for again.
    pub(super) postponed: usize,
}

/// Answers in words, and the send in flight.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) output: Output,
    /// Bytes being sent.
    pub(super) bytes: u64,
    /// Of what is being sent.
    pub(super) permits: Vec<BlockPermit>,
    pub(super) block_budget: Arc<BlockBudget>,
}

/// Its part of the server's memory for clients.
#[derive(Debug)]
pub(super) struct Footprint {
    /// For what it holds beyond its constant.
    pub(super) permit: MemoryPermit,
    /// It stopped for want of a permit.
    pub(super) is_starved: bool,
    /// What others hold for it.
    pub(super) outside_bytes: u64,
}

/// How far its end has come.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Nothing more will be received.
    pub(super) ended: bool,
    /// Nothing more will be parsed.
    pub(super) closing: bool,
    /// Our side of the connection is closed.
    pub(super) hung_up: bool,
    /// Bytes received since.
    pub(super) unheard_bytes: usize,
    /// The peer is gone: nothing can be sent.
    pub(super) broken: bool,
}

impl Client {
    pub(super) fn new(item_bytes_max: u64) -> Client {
        let protocol = ClientProtocol::Undecided;
        let (reply_mode, timed) = Default::default();
        Client { protocol, admitted: false, is_asked: false, errors: 0, item_bytes_max, reply_mode, timed }
    }

    /// Bytes that it holds for a request that has not come whole.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.protocol {
            ClientProtocol::Resp(client) => client.held_bytes() + self.timed.held_bytes(),
            _ => 0,
        }
    }

    /// Whether it has begun no request.
    pub(super) fn is_between_requests(&self) -> bool {
        match &self.protocol {
            ClientProtocol::Resp(client) => client.is_between_requests(),
            _ => true,
        }
    }
}

impl Default for Input {
    fn default() -> Input {
        Input {
            received: Received::default(),
            receiving: None,
            receiving_bytes: 0,
            recv_bytes: RECV_BYTES_MIN,
            unfinished_bytes: 0,
            hungry: true,
        }
    }
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead { value_bytes: 0, first_bytes: FREE_BYTES, bytes: 0, postponed: 0 }
    }
}

impl Sending {
    pub(super) fn new(block_budget: Arc<BlockBudget>) -> Sending {
        Sending { output: Output::default(), bytes: 0, permits: Vec::new(), block_budget }
    }
}

impl Footprint {
    pub(super) fn new(permit: MemoryPermit) -> Footprint {
        Footprint { permit, is_starved: false, outside_bytes: 0 }
    }
}
