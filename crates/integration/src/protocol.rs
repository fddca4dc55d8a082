//! Ways to reach a store in another process. A further protocol is one more file that implements
//! [`Client`], and its lines here.

pub mod embedded;
mod memcache;

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take. Long: a test must not fail because its machine is busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How clients speak to the process that has the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `stratakv serve`, over TCP.
    Memcache,
    /// A process that has the library in it and does as it is told over a socket: blocking calls,
    /// futures or a session, by connection.
    Embedded,
}

impl Protocol {
    /// All of them.
    pub const ALL: &[Protocol] = &[Protocol::Memcache, Protocol::Embedded];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Memcache => "memcache",
            Protocol::Embedded => "embedded",
        }
    }

    /// A connection.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect(self, address: SocketAddr) -> io::Result<Box<dyn Client>> {
        Ok(match self {
            Protocol::Memcache => Box::new(crate::memcache::Client::connect(address)?),
            Protocol::Embedded => Box::new(embedded::Connection::connect(address)?),
        })
    }
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Of which key.
    pub key: Vec<u8>,
    /// What.
    pub kind: Kind,
}

/// See [`Command`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Answered by [`Answer::Record`].
    Get,
    /// Answered by [`Answer::Written`] or [`Answer::Unmet`].
    Put {
        /// The value.
        value: Vec<u8>,
        /// Wall-clock second, 0 for never.
        expiry: u32,
        /// Only if this holds.
        condition: Condition,
    },
    /// Answered by [`Answer::Deleted`].
    Delete,
}

/// When a put is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    None,
    /// There is no such key.
    Absent,
    /// The key has this version.
    Version(u64),
}

/// What a client learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The record, if there is one.
    Record(Option<ReadRecord>),
    /// It is written; its version where the protocol tells it.
    Written(Option<u64>),
    /// It is gone; whether it was there.
    Deleted(bool),
    /// The condition did not hold: nothing was done.
    Unmet,
    /// There is no room: nothing was done.
    Full(String),
    /// It failed: the outcome is not known.
    Failed(String),
}

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRecord {
    /// Its value.
    pub value: Vec<u8>,
    /// Its version.
    pub version: u64,
}

/// One client of the store: submits, and learns what is acknowledged. Answers come in the order of
/// the commands.
pub trait Client: Send {
    /// Sends commands without waiting.
    ///
    /// # Errors
    /// The connection ended.
    fn submit(&mut self, commands: &[Command]) -> io::Result<()>;

    /// The answer to `command`, the oldest that has none.
    ///
    /// # Errors
    /// The connection ended; `InvalidData` if the answer is none to this command, `WouldBlock` or
    /// `TimedOut` if none came in a minute.
    fn answer(&mut self, command: &Command) -> io::Result<Answer>;

    /// Everything in the store goes; nothing of this client may be without its answer.
    ///
    /// # Errors
    /// As [`Client::answer`]; `Unsupported` if the protocol cannot say it.
    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Sends one command and waits for its answer.
///
/// # Errors
/// As [`Client::submit`] and [`Client::answer`].
pub fn ask(client: &mut dyn Client, command: Command) -> io::Result<Answer> {
    let commands = [command];
    client.submit(&commands)?;
    client.answer(&commands[0])
}

/// A connection for a client that waits for its answers.
pub(crate) fn stream(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(BufReader::with_capacity(64 << 10, stream))
}

pub(crate) fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
