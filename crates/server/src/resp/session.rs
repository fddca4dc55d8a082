//! What a connection knows of its Redis client.

use stratakv_protocol::resp::{Parser, Version};

use super::arguments::Gathered;

/// The request that is coming, and who sends it.
#[derive(Debug, Default)]
pub(crate) struct RespClient {
    pub(crate) parser: Parser,
    pub(crate) gathered: Gathered,
    pub(crate) session: Session,
}

impl RespClient {
    /// Bytes of memory that it holds for a request that has not come whole.
    pub(crate) fn held_bytes(&self) -> usize {
        self.parser.held_bytes() + self.gathered.held_bytes()
    }

    /// Whether no request has begun.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.gathered.is_empty() && self.parser.is_between_requests()
    }
}

/// How a client has introduced itself.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) version: Version,
    pub(crate) description: ClientDescription,
}

/// What others are told of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientDescription {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
    pub(crate) version: Version,
}
