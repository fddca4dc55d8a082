//! The commands of a connection that are in progress: what each does to which key, what it waits
//! for, what it holds.

use stratakv_engine::Reply;
use stratakv_protocol::memcache::{Detail, DumpKind, Statistics, Watched};
use stratakv_protocol::resp::Version;

use crate::answer::{Answer, FlushWords, Planned};
use crate::binary;
use crate::block_budget::BlockPermit;
use crate::connection::Stream;
use crate::request::Request;
use crate::resp::{ClientFilter, ListenKind, Work};

/// A place in the order of answers.
#[derive(Debug, Default)]
pub(crate) struct PendingAnswer {
    pub(crate) answer: Answer,
    pub(crate) noreply: bool,
    /// Replies still missing.
    pub(crate) missing: usize,
    pub(crate) reply: Option<Reply>,
    pub(crate) access: Access,
    /// Bytes of the value being written.
    pub(crate) writing_bytes: u64,
    /// Bytes of the value that is read or being read.
    pub(crate) reading_bytes: u64,
    /// See [`Reading::whole`].
    pub(crate) whole: bool,
    /// The last value of a get: its end follows.
    pub(crate) ends: bool,
    /// The value is longer than was asked for, this long: to be asked for again.
    pub(crate) again_bytes: Option<u64>,
    pub(crate) block_permit: Option<BlockPermit>,
    pub(crate) old_value: OldValue,
    /// It is taken slice by slice.
    pub(crate) stream: Option<Box<Stream>>,
}

impl PendingAnswer {
    /// Whether what it does is not over: replies are missing, or it tells, when it is worded, what
    /// a later write would change.
    pub(crate) fn is_open(&self) -> bool {
        self.missing > 0 || matches!(&self.answer, Answer::Planned(planned) if planned.plan.request.is_told())
    }
}

/// What is known of the value that a storage command was to overwrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OldValue {
    #[default]
    Stays,
    /// The new one was refused as too long, and whether the old one goes is being seen to.
    Doubtful,
    /// That is done.
    Handled,
}

/// What a command does to which key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    #[default]
    None,
    Read(u64),
    Write(u64),
    /// Several operations, in between which no other of the connection may come.
    Alone(u64),
    Everything,
}

impl Access {
    pub(crate) fn conflicts(self, other: Access) -> bool {
        use Access::{Alone, Everything, None, Read, Write};
        match (self, other) {
            (None, _) | (_, None) => self == Everything || other == Everything,
            (Everything, _) | (_, Everything) => true,
            (Alone(a), Read(b) | Write(b) | Alone(b)) | (Read(a) | Write(a), Alone(b)) => a == b,
            (Read(a), Write(b)) | (Write(a), Read(b)) => a == b,
            // Writes of one key are carried out in the order in which they are submitted.
            (Read(_), Read(_)) | (Write(_), Write(_)) => false,
        }
    }
}

/// What the commands in progress access, as far as it fits into a few words: most commands of a
/// pipeline meet none that they have to wait for, and need not look at each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AccessFilter {
    keys: [u64; 4],
    has_everything: bool,
}

impl AccessFilter {
    /// A command in progress accesses this.
    pub(crate) fn add(&mut self, access: Access) {
        match access {
            Access::None => {}
            Access::Read(key) | Access::Write(key) | Access::Alone(key) => {
                self.keys[AccessFilter::word(key)] |= 1 << (key % 64)
            }
            Access::Everything => self.has_everything = true,
        }
    }

    /// Whether a command in progress may conflict with this access. If not, none does.
    pub(crate) fn may_conflict(&self, access: Access) -> bool {
        match access {
            Access::None => self.has_everything,
            Access::Read(key) | Access::Write(key) | Access::Alone(key) => {
                self.has_everything || self.keys[AccessFilter::word(key)] >> (key % 64) & 1 == 1
            }
            Access::Everything => true,
        }
    }

    fn word(key: u64) -> usize {
        (key / 64 % 4) as usize
    }
}

/// What a command reads for its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// So much of a value at first.
    pub(crate) bytes: u64,
    /// All of it, however long it is.
    pub(crate) whole: bool,
}

/// What a Redis client may ask about the server: what came before it is to be seen in the answer.
#[derive(Debug)]
pub(crate) enum ServerQuestion {
    /// DBSIZE.
    Records,
    /// INFO, of these sections.
    Info(Vec<String>),
    /// CLIENT LIST, which has about so many bytes.
    Clients { filter: Box<ClientFilter>, bytes: u64 },
    /// SLOWLOG, whose reply has about so many bytes.
    Slow { question: SlowQuestion, bytes: u64 },
    /// PUBSUB CHANNELS and SHARDCHANNELS.
    Channels { kind: ListenKind, pattern: Option<Vec<u8>>, bytes: u64 },
}

/// What SLOWLOG is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowQuestion {
    /// The newest ones, so many.
    Get(usize),
    Len,
    /// To forget them.
    Reset,
}

impl ServerQuestion {
    /// Bytes of an answer that may be long.
    fn answer_bytes(&self) -> u64 {
        match self {
            ServerQuestion::Clients { bytes, .. }
            | ServerQuestion::Channels { bytes, .. }
            | ServerQuestion::Slow { bytes, .. } => *bytes,
            ServerQuestion::Records | ServerQuestion::Info(_) => 0,
        }
    }
}

/// A command that is parsed and not yet begun.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most commands are the large one, and a box would cost each of them")]
pub(crate) enum ParsedCommand {
    /// A request that is one operation, and whose reply is its answer.
    Operation {
        request: Request,
        answer: Answer,
        noreply: bool,
        reading: Reading,
    },
    Planned {
        planned: Box<Planned>,
        reading: Reading,
    },
    /// A command of a Redis client that is several operations.
    Work {
        work: Box<Work>,
        access: Access,
        reading: Reading,
        writing_bytes: u64,
    },
    Flush {
        delay: i64,
        noreply: bool,
        words: FlushWords,
    },
    /// What a Redis client asks about the server.
    Question(ServerQuestion, Version),
    Statistics(Statistics, Option<binary::Words>),
    Dump(DumpKind),
    Backup(String),
    Watch(Watched),
    Detail(Detail, Option<binary::Words>),
}

impl ParsedCommand {
    /// Whether it takes as long as many commands of keys.
    pub(crate) fn takes_long(&self) -> bool {
        matches!(
            self,
            ParsedCommand::Statistics(..)
                | ParsedCommand::Question(..)
                | ParsedCommand::Dump(_)
                | ParsedCommand::Backup(_)
                | ParsedCommand::Detail(..)
        ) || matches!(self, ParsedCommand::Work { work, .. } if work.takes_long())
    }

    /// How much of a value it asks for, or how long its answer may be.
    pub(crate) fn reading_bytes(&self) -> u64 {
        match self {
            ParsedCommand::Operation { reading, .. }
            | ParsedCommand::Planned { reading, .. }
            | ParsedCommand::Work { reading, .. } => reading.bytes,
            ParsedCommand::Question(question, _) => question.answer_bytes(),
            _ => 0,
        }
    }

    /// Bytes that it holds until it begins.
    pub(crate) fn held_bytes(&self) -> u64 {
        match self {
            ParsedCommand::Operation { request, .. } => request.writing_bytes(),
            ParsedCommand::Planned { planned, .. } => planned.plan.request.writing_bytes(),
            ParsedCommand::Work { work, writing_bytes, .. } => writing_bytes + work.held_bytes(),
            _ => 0,
        }
    }

    pub(crate) fn access(&self) -> Access {
        match self {
            ParsedCommand::Operation { request, .. } => request.access(),
            ParsedCommand::Planned { planned, .. } => planned.plan.request.access(),
            ParsedCommand::Work { access, .. } => *access,
            ParsedCommand::Flush { .. }
            | ParsedCommand::Question(..)
            | ParsedCommand::Statistics(..)
            | ParsedCommand::Dump(_)
            | ParsedCommand::Backup(_)
            | ParsedCommand::Watch(_)
            | ParsedCommand::Detail(..) => Access::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_knows_every_access_that_conflicts_and_rarely_others() {
        let mut random = stratakv_base::random::Random::new(7);
        let mut draw = |keys: u64| {
            let key = random.below(keys).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            match random.below(9) {
                0 => Access::None,
                1 => Access::Everything,
                2..5 => Access::Read(key),
                5..8 => Access::Write(key),
                _ => Access::Alone(key),
            }
        };
        let mut spared = 0;
        for _ in 0..2000 {
            let pending: Vec<Access> = (0..4).map(|_| draw(40)).collect();
            let mut filter = AccessFilter::default();
            pending.iter().for_each(|access| filter.add(*access));
            let next = draw(40);
            let conflicts = pending.iter().any(|access| next.conflicts(*access));
            assert!(filter.may_conflict(next) || !conflicts, "{next:?} after {pending:?}");
            spared += u32::from(!filter.may_conflict(next));
        }
        assert!(spared > 500, "{spared}");
    }
}
