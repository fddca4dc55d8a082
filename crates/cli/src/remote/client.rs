//! The memcache text protocol as its client: one command, its answer, the next. Nothing that the
//! peer says is trusted.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use stratakv::limits::VALUE_BYTES_MAX;
use stratakv::{Capability, EngineError};
use stratakv_engine::Expect;
use stratakv_protocol::memcache::{KEY_BYTES_MAX, RELATIVE_SECONDS_MAX};

use super::connection::{ANSWER_TIMEOUT, Connection, ServerAddress, TlsFiles};
use crate::failure::{Exit, Failure};
use crate::put::expiry_in;
use crate::text::escaped;

/// Longer lines are no answers: the longest key in base64, and some more.
const LINE_BYTES_MAX: u64 = 96 << 10;
/// More statistics than this no server has.
const STATISTICS_MAX: usize = 100_000;

/// A connection to a server.
pub(crate) struct Client<S = Connection> {
    /// As the user named it.
    server: String,
    stream: BufReader<S>,
}

/// What a get brings. The protocol does not tell when it expires.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) flags: u32,
    pub(crate) version: u64,
    pub(crate) value: Vec<u8>,
}

/// How a storage command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Yes,
    /// The condition did not hold.
    No,
    /// The key has another version.
    AnotherVersion,
    /// The key that a version was expected of does not exist.
    Absent,
}

/// What a storage command depends on, or does instead of replacing the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Expect(Expect),
    Append,
    Prepend,
}

impl Client {
    /// Connects, to the first of the host's addresses that answers. `hint`: what to do if nobody
    /// listens there.
    ///
    /// # Errors
    /// As of [`Connection::open`].
    pub(crate) fn connect(server: &ServerAddress, tls: &TlsFiles, hint: &str) -> Result<Client, Failure> {
        Ok(Client::over(&server.to_string(), Connection::open(server, tls, hint)?))
    }

    /// Lets `pause` pass, unless the server hangs up before.
    ///
    /// # Errors
    /// It hung up, or said something that it was not asked.
    pub(crate) fn pause(&mut self, pause: Duration) -> Result<(), Failure> {
        let wait = |stream: &mut BufReader<Connection>| {
            stream.get_ref().set_read_timeout(pause)?;
            let heard = stream.fill_buf().map(<[u8]>::len);
            stream.get_ref().set_read_timeout(ANSWER_TIMEOUT)?;
            heard
        };
        match wait(&mut self.stream) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(()),
            Ok(0) => Err(self.broken(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Err(self.unexpected_reply("something that it was not asked")),
            Err(error) => Err(self.broken(&error)),
        }
    }
}

impl<S: Read + Write> Client<S> {
    fn over(server: &str, stream: S) -> Client<S> {
        Client { server: server.to_owned(), stream: BufReader::new(stream) }
    }

    /// Says who asks.
    ///
    /// # Errors
    /// The server knows no such account.
    pub(crate) fn authenticate(&mut self, user: &str, password: &str) -> Result<(), Failure> {
        let words = format!("{user} {password}");
        self.send(&[format!("set auth 0 0 {}\r\n", words.len()).as_bytes(), words.as_bytes(), b"\r\n"])?;
        match self.line()?.as_slice() {
            b"STORED" => Ok(()),
            line if line.starts_with(b"CLIENT_ERROR") => Err(Failure::usage(format!(
                "{} does not know this user with this password: they are those of the file that it was started with (--auth-file)",
                self.server
            ))),
            line => Err(self.refused(line)),
        }
    }

    /// The record of a key, if there is one.
    ///
    /// # Errors
    /// The protocol cannot carry the key, the server refuses, is silent, or answers with something
    /// else.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Fetched>, Failure> {
        check_key(key)?;
        self.send(&[b"gets ", key, b"\r\n"])?;
        let line = self.line()?;
        if line == b"END" {
            return Ok(None);
        }
        let Some((flags, value_bytes, version)) = value_header(&line, key) else { return Err(self.refused(&line)) };
        let value = self.value(value_bytes)?;
        match self.line()?.as_slice() {
            b"END" => Ok(Some(Fetched { flags, version, value })),
            _ => Err(self.unexpected_reply("something else than the end behind a value")),
        }
    }

    /// Writes a value. `ttl`: 0 for ever, else whole seconds; it and `flags` do not matter to
    /// append and prepend.
    ///
    /// # Errors
    /// As of [`Client::get`]; also a value that the server does not take, or has no room for.
    pub(crate) fn store(
        &mut self,
        condition: Condition,
        key: &[u8],
        value: &[u8],
        flags: u32,
        ttl: Duration,
    ) -> Result<Stored, Failure> {
        check_key(key)?;
        let (verb, version) = match condition {
            Condition::Append => ("append", String::new()),
            Condition::Prepend => ("prepend", String::new()),
            Condition::Expect(Expect::Any) => ("set", String::new()),
            Condition::Expect(Expect::Absent) => ("add", String::new()),
            Condition::Expect(Expect::Present) => ("replace", String::new()),
            Condition::Expect(Expect::Version(version)) => ("cas", format!(" {version}")),
        };
        let numbers = format!(" {flags} {} {}{version}\r\n", exptime(ttl)?, value.len());
        self.send(&[verb.as_bytes(), b" ", key, numbers.as_bytes(), value, b"\r\n"])?;
        match self.line()?.as_slice() {
            b"STORED" => Ok(Stored::Yes),
            b"NOT_STORED" => Ok(Stored::No),
            b"EXISTS" => Ok(Stored::AnotherVersion),
            b"NOT_FOUND" => Ok(Stored::Absent),
            b"SERVER_ERROR object too large for cache" => Err(Failure::usage(format!(
                "{} takes no value of {} bytes: serve with a greater --item-bytes-max",
                self.server,
                value.len()
            ))),
            line => Err(self.refused(line)),
        }
    }

    /// Deletes a key; whether it was there.
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool, Failure> {
        check_key(key)?;
        self.send(&[b"delete ", key, b"\r\n"])?;
        match self.line()?.as_slice() {
            b"DELETED" => Ok(true),
            b"NOT_FOUND" => Ok(false),
            line => Err(self.refused(line)),
        }
    }

    /// Adds to a number, or subtracts; the new number, if the key is there.
    ///
    /// # Errors
    /// As of [`Client::get`]; also a value that is no number.
    pub(crate) fn count(&mut self, down: bool, key: &[u8], by: u64) -> Result<Option<u64>, Failure> {
        check_key(key)?;
        let verb: &[u8] = if down { b"decr " } else { b"incr " };
        self.send(&[verb, key, format!(" {by}\r\n").as_bytes()])?;
        let line = self.line()?;
        match (line.as_slice(), number::<u64>(&line)) {
            (b"NOT_FOUND", _) => Ok(None),
            (_, Some(number)) => Ok(Some(number)),
            _ => Err(self.refused(&line)),
        }
    }

    /// Lets a key expire after so many seconds, 0 for never; whether it is there.
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub(crate) fn touch(&mut self, key: &[u8], ttl: Duration) -> Result<bool, Failure> {
        check_key(key)?;
        self.send(&[b"touch ", key, format!(" {}\r\n", exptime(ttl)?).as_bytes()])?;
        match self.line()?.as_slice() {
            b"TOUCHED" => Ok(true),
            b"NOT_FOUND" => Ok(false),
            line => Err(self.refused(line)),
        }
    }

    /// Names and values of `stats`, or of a group of it, in the server's order.
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub(crate) fn statistics(&mut self, group: &str) -> Result<Vec<(String, String)>, Failure> {
        let command = format!("stats {group}");
        self.send(&[command.trim_end().as_bytes(), b"\r\n"])?;
        let mut all = Vec::new();
        loop {
            let line = self.line()?;
            if line == b"END" {
                return Ok(all);
            }
            let text = String::from_utf8_lossy(&line);
            let parts = text.strip_prefix("STAT ").and_then(|rest| rest.split_once(' '));
            let Some((name, value)) = parts else { return Err(self.refused(&line)) };
            if all.len() == STATISTICS_MAX {
                return Err(self.unexpected_reply("statistics without end"));
            }
            all.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Has the server begin a backup of this name.
    ///
    /// # Errors
    /// As of [`Client::get`]; the server's reason if it refuses.
    pub(crate) fn begin_backup(&mut self, name: &str) -> Result<(), Failure> {
        self.send(&[b"backup ", name.as_bytes(), b"\r\n"])?;
        let line = self.line()?;
        match line.as_slice() {
            b"OK" => Ok(()),
            _ if line.starts_with(b"SERVER_ERROR busy") => Err(Failure { exit: Exit::Busy, ..self.refused(&line) }),
            // As of a store that this program opens itself.
            _ if String::from_utf8_lossy(&line).contains(&no_backups()) => {
                Err(stratakv::Error::Operation(EngineError::Unsupported(Capability::Backup)).into())
            }
            _ => Err(self.refused(&line)),
        }
    }

    /// Has the server begin a request about collections.
    ///
    /// # Errors
    /// As of [`Client::get`]; the server's reason if it refuses.
    pub(super) fn begin_collections(&mut self, token: &str, words: &str) -> Result<(), Failure> {
        self.send(&[format!("collections {token} {words}\r\n").as_bytes()])?;
        let line = self.line()?;
        match line.as_slice() {
            b"OK" => Ok(()),
            _ if line.starts_with(b"SERVER_ERROR busy") => Err(Failure { exit: Exit::Busy, ..self.refused(&line) }),
            _ => Err(self.refused(&line)),
        }
    }

    /// A value of this length, and the line end behind it.
    pub(super) fn value(&mut self, value_bytes: u64) -> Result<Vec<u8>, Failure> {
        let mut value = Vec::new();
        let read = self.stream.by_ref().take(value_bytes).read_to_end(&mut value);
        read.map_err(|error| self.broken(&error))?;
        match self.line()?.is_empty() {
            true => Ok(value),
            false => Err(self.unexpected_reply("a value of another length than it says")),
        }
    }

    pub(super) fn send(&mut self, parts: &[&[u8]]) -> Result<(), Failure> {
        // One piece for all but the value: each write is a packet.
        let command = parts.concat();
        let Err(error) = self.stream.get_mut().write_all(&command) else { return Ok(()) };
        // Who hangs up may have said why.
        match self.line() {
            Ok(line) => Err(self.refused(&line)),
            Err(_) => Err(self.broken(&error)),
        }
    }

    /// The next line, without its end.
    pub(super) fn line(&mut self) -> Result<Vec<u8>, Failure> {
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| self.broken(&error))?;
        match line.strip_suffix(b"\r\n").or(line.strip_suffix(b"\n")) {
            Some(whole) => Ok(whole.to_vec()),
            None if line.len() as u64 == LINE_BYTES_MAX => Err(self.unexpected_reply("a line without end")),
            None => Err(self.broken(&io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn broken(&self, error: &io::Error) -> Failure {
        let server = &self.server;
        let what = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no answer from {server} in {} s", ANSWER_TIMEOUT.as_secs())
            }
            io::ErrorKind::UnexpectedEof => format!("{server} closed the connection without a whole answer"),
            _ => format!("the connection to {server} broke: {error}{}", certificate_wanted(error)),
        };
        Failure::failed(format!(
            "{what}; if something was to be written, it is not known whether it was: read it again"
        ))
    }

    /// An answer that says no, or one that makes no sense.
    pub(super) fn refused(&self, line: &[u8]) -> Failure {
        let server = &self.server;
        let text = String::from_utf8_lossy(line);
        let after = |prefix| text.strip_prefix(prefix).map(|rest: &str| escaped(rest.as_bytes()));
        if let Some(why) = after("SERVER_ERROR ").or(after("CLIENT_ERROR ")) {
            // As of a wrong password: the command line lacks something.
            if why.contains("unauthenticated") || why.contains("authentication failure") {
                let advice = "log in with --auth-file FILE, or with --user NAME and --password-file FILE";
                return Failure::usage(format!("{server} refused: {why}: {advice}"));
            }
            return Failure::failed(format!("{server} refused: {why}"));
        }
        match text.as_ref() {
            "ERROR Too many open connections" => Failure::new(
                Exit::Busy,
                format!("{server} has as many connections as it may: try again, or serve with more --connections"),
            ),
            "ERROR" => Failure::new(
                Exit::Unsupported,
                format!("{server} does not know this command: is it an older stratakv?"),
            ),
            redis if redis.starts_with("-ERR") || redis.starts_with("-NOAUTH") => Failure::failed(format!(
                "{server} is a port for Redis clients: name a port for memcache clients, or write redis://HOST:PORT where a command takes that"
            )),
            _ => self.unexpected_reply(&format!("`{}`", line.get(..80).unwrap_or(line).escape_ascii())),
        }
    }

    fn unexpected_reply(&self, what: &str) -> Failure {
        Failure::failed(format!(
            "{} answered with {what}, which is not the memcache text protocol: does `stratakv serve` listen there?",
            self.server
        ))
    }
}

/// What an engine that cannot be backed up says.
fn no_backups() -> String {
    EngineError::Unsupported(Capability::Backup).to_string()
}

/// With TLS 1.3 a server says only after the handshake that it wants a certificate.
pub(crate) fn certificate_wanted(error: &io::Error) -> &'static str {
    use rustls::{AlertDescription, Error};
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match cause {
        Some(Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            ": it asks for a certificate of yours, --tls-cert FILE and --tls-key FILE"
        }
        _ => "",
    }
}

/// What the protocol cannot carry in a key: its lines are split at spaces.
fn check_key(key: &[u8]) -> Result<(), Failure> {
    let why = match key {
        [] => "it is empty".to_owned(),
        _ if key.len() > KEY_BYTES_MAX => format!("it has {} bytes, and {KEY_BYTES_MAX} are the most there", key.len()),
        _ if key.iter().any(|byte| matches!(byte, b' ' | b'\r' | b'\n' | 0)) => {
            "a space, a line end and a zero byte end a key there".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!(
        "the memcache protocol cannot carry the key `{}`: {why}. Stop the server and leave --server out, or use the library",
        key.get(..80).unwrap_or(key).escape_ascii()
    )))
}

/// `VALUE <key> <flags> <bytes> <version>`: flags, bytes and version, if it is of this key and no
/// longer than a value can be.
fn value_header(line: &[u8], key: &[u8]) -> Option<(u32, u64, u64)> {
    let rest = line.strip_prefix(b"VALUE ")?.strip_prefix(key)?.strip_prefix(b" ")?;
    let mut words = rest.split(|byte| *byte == b' ');
    let flags = number(words.next()?)?;
    let value_bytes = number(words.next()?).filter(|bytes| *bytes <= VALUE_BYTES_MAX as u64)?;
    let version = number(words.next()?)?;
    words.next().is_none().then_some((flags, value_bytes, version))
}

pub(super) fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    // FromStr takes a sign too.
    let digits = std::str::from_utf8(word).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

/// So long from now, as the protocol has it; 0 for never.
fn exptime(ttl: Duration) -> Result<u64, Failure> {
    if ttl.subsec_nanos() != 0 {
        return Err(Failure::usage(
            "--ttl: memcache servers count whole seconds: give such a time, or open the store with --data",
        ));
    }
    let is_relative = ttl.as_secs() <= RELATIVE_SECONDS_MAX as u64;
    Ok(if is_relative { ttl.as_secs() } else { expiry_in(ttl).seconds() })
}

#[cfg(test)]
#[path = "../../tests/unit/remote/client.rs"]
mod tests;
