//! RESP2 as its client: commands in groups, their replies in order. Nothing that the peer says is
//! trusted.

use std::io::{self, BufRead, BufReader, Read, Write};

use super::client::certificate_wanted;
use super::connection::{ANSWER_TIMEOUT, Connection, ServerAddress};
use super::login::{Account, LoginArguments};
use crate::failure::{Exit, Failure};
use crate::room::Room;
use crate::text::escaped;

/// Longer lines are no replies.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// The longest string that Redis has.
const STRING_BYTES_MAX: u64 = 512 << 20;
/// Arrays in arrays: those of a cursor's reply, and one to spare.
const DEPTH_MAX: usize = 4;

/// What a server replied to a command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RespReply {
    /// `+OK`.
    Status(Vec<u8>),
    /// `-ERR ...`.
    Error(String),
    Number(i64),
    /// `None`: there is no such thing.
    Bytes(Option<Vec<u8>>),
    /// `None`: there is no such thing.
    Array(Option<Vec<RespReply>>),
    /// There was no room for it; it is passed.
    TooLarge,
}

/// A connection to a server for Redis clients.
pub(crate) struct RespClient<S = Connection> {
    /// As the user named it.
    server: String,
    stream: BufReader<S>,
}

impl RespClient {
    /// Connects, logs in, and selects a database.
    ///
    /// # Errors
    /// As of [`Connection::open`] and [`LoginArguments::account`]; the server's own words if it
    /// refuses.
    pub(crate) fn connect(
        address: &ServerAddress,
        login: &LoginArguments,
        database: u32,
    ) -> Result<RespClient, Failure> {
        let account = login.account()?;
        let stream = Connection::open(address, &login.tls(), "does a server for Redis clients run there?")?;
        let mut client = RespClient::over(&address.to_string(), stream);
        if let Some(Account { user, password }) = &account {
            let user = user.as_deref().map(str::as_bytes);
            let words: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(user).chain([password.as_bytes()]).collect();
            client.done(&words, "check --user and the password")?;
        }
        if database != 0 {
            client.done(&[b"SELECT", database.to_string().as_bytes()], "name another database")?;
        }
        Ok(client)
    }
}

impl<S: Read + Write> RespClient<S> {
    pub(crate) fn over(server: &str, stream: S) -> RespClient<S> {
        RespClient { server: server.to_owned(), stream: BufReader::with_capacity(64 << 10, stream) }
    }

    /// A command that answers `OK`.
    fn done(&mut self, words: &[&[u8]], advice: &str) -> Result<(), Failure> {
        match self.ask(words)? {
            RespReply::Status(_) => Ok(()),
            RespReply::Error(why) => Err(Failure::usage(format!(
                "{} refused {}: {}; {advice}",
                self.server,
                words.first().unwrap_or(&&b""[..]).escape_ascii(),
                escaped(why.as_bytes())
            ))),
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// One command, and its reply.
    ///
    /// # Errors
    /// The server hangs up, is silent, or speaks no RESP. What it refuses is a reply.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<RespReply, Failure> {
        self.ask_within(words, &mut Room::of_value())
    }

    /// As [`RespClient::ask`], if there is room for the reply.
    ///
    /// # Errors
    /// As of [`RespClient::ask`].
    pub(crate) fn ask_within(&mut self, words: &[&[u8]], room: &mut Room) -> Result<RespReply, Failure> {
        let mut command = Vec::new();
        write_command(&mut command, words);
        self.send(&command)?;
        self.reply_within(room)
    }

    /// As [`RespClient::ask`], of a command whose refusal is the end.
    ///
    /// # Errors
    /// As of [`RespClient::ask`]; also the server's refusal.
    pub(crate) fn expect(&mut self, words: &[&[u8]]) -> Result<RespReply, Failure> {
        match self.ask(words)? {
            RespReply::Error(why) => Err(self.refused(words, &why)),
            reply => Ok(reply),
        }
    }

    /// Sends commands, as [`write_command`] writes them.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn send(&mut self, commands: &[u8]) -> Result<(), Failure> {
        let sent = self.stream.get_mut().write_all(commands).and_then(|()| self.stream.get_mut().flush());
        sent.map_err(|error| self.broken(&error))
    }

    /// The next reply.
    ///
    /// # Errors
    /// As of [`RespClient::ask`].
    pub(crate) fn reply(&mut self) -> Result<RespReply, Failure> {
        self.reply_within(&mut Room::of_value())
    }

    /// The next reply, if there is room for it.
    ///
    /// # Errors
    /// As of [`RespClient::ask`].
    pub(crate) fn reply_within(&mut self, room: &mut Room) -> Result<RespReply, Failure> {
        let reply = self.part(DEPTH_MAX, room)?;
        Ok(if room.is_exceeded() { RespReply::TooLarge } else { reply })
    }

    fn part(&mut self, depth: usize, room: &mut Room) -> Result<RespReply, Failure> {
        let line = self.line()?;
        let Some((sort, rest)) = line.split_first() else { return Err(self.no_resp(&line)) };
        // As text an error may be three times as long.
        if matches!(sort, b'+' | b'-') && !room.takes(3 * rest.len() as u64) {
            return Ok(RespReply::TooLarge);
        }
        match sort {
            b'+' => Ok(RespReply::Status(rest.to_vec())),
            b'-' => Ok(RespReply::Error(String::from_utf8_lossy(rest).into_owned())),
            b':' => number(rest).map(RespReply::Number).ok_or_else(|| self.no_resp(&line)),
            b'$' => match number(rest) {
                Some(-1) => Ok(RespReply::Bytes(None)),
                Some(bytes) => match u64::try_from(bytes).ok().filter(|bytes| *bytes <= STRING_BYTES_MAX) {
                    Some(bytes) => Ok(RespReply::Bytes(self.string(bytes, room)?)),
                    None => Err(self.no_resp(&line)),
                },
                None => Err(self.no_resp(&line)),
            },
            b'*' if depth > 0 => match number(rest) {
                Some(-1) => Ok(RespReply::Array(None)),
                Some(count) if count >= 0 => self.array(count, depth - 1, room),
                _ => Err(self.no_resp(&line)),
            },
            _ => Err(self.no_resp(&line)),
        }
    }

    /// Nothing is reserved for what a count promises, and nothing kept for which there is no room.
    fn array(&mut self, count: i64, depth: usize, room: &mut Room) -> Result<RespReply, Failure> {
        let mut items = Vec::new();
        for _ in 0..count {
            let item = self.part(depth, room)?;
            // What has bytes has taken its room.
            let has_room = matches!(item, RespReply::Bytes(Some(_)) | RespReply::Status(_) | RespReply::Error(_));
            if has_room || room.takes(0) {
                items.push(item);
            }
            if room.is_exceeded() {
                items = Vec::new();
            }
        }
        Ok(RespReply::Array(Some(items)))
    }

    /// `None`: there is no room for it.
    fn string(&mut self, bytes: u64, room: &mut Room) -> Result<Option<Vec<u8>>, Failure> {
        let mut text = room.takes(bytes).then(Vec::new);
        let mut source = self.stream.by_ref().take(bytes);
        let read = match &mut text {
            Some(text) => source.read_to_end(text).map(|_| ()),
            None => io::copy(&mut source, &mut io::sink()).map(|_| ()),
        };
        read.map_err(|error| self.broken(&error))?;
        match self.line()?.is_empty() {
            true => Ok(text),
            false => Err(self.no_resp(b"a string of another length than it says")),
        }
    }

    fn line(&mut self) -> Result<Vec<u8>, Failure> {
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| self.broken(&error))?;
        match line.strip_suffix(b"\r\n") {
            Some(whole) => Ok(whole.to_vec()),
            None if line.is_empty() || !line.ends_with(b"\n") && (line.len() as u64) < LINE_BYTES_MAX => {
                Err(self.broken(&io::ErrorKind::UnexpectedEof.into()))
            }
            None => Err(self.no_resp(&line)),
        }
    }

    /// A refusal of a command that was to be carried out.
    pub(crate) fn refused(&self, words: &[&[u8]], why: &str) -> Failure {
        let (server, why) = (&self.server, escaped(why.as_bytes()));
        let command = words.first().unwrap_or(&&b""[..]).escape_ascii();
        let advice = match why.split(' ').next() {
            Some("NOAUTH") => "; log in with --user NAME or with --password-file FILE alone",
            Some("NOPERM") => {
                "; the user must be allowed to read: SCAN, TYPE, PTTL and the commands that read each type"
            }
            Some("LOADING") => "; wait until it has read its data",
            _ => "",
        };
        let message = format!("{server} refused {command}: {why}{advice}");
        // As of a wrong password: the command line lacks something.
        if why.starts_with("NOAUTH") { Failure::usage(message) } else { Failure::failed(message) }
    }

    /// A reply that makes no sense here.
    pub(crate) fn unexpected_reply(&self, reply: &RespReply) -> Failure {
        if *reply == RespReply::TooLarge {
            return Failure::failed(format!(
                "{} answered with more than 1 GiB, which fits no such command",
                self.server
            ));
        }
        let shown = format!("{reply:?}");
        let shown = shown.get(..80).unwrap_or(&shown).to_owned();
        Failure::new(Exit::Failed, format!("{} answered with {shown}, which fits no such command", self.server))
    }

    /// A cursor that comes back as it was, for ever.
    pub(crate) fn stands_still(&self) -> Failure {
        Failure::failed(format!("{} gives the same cursor again and again: it is no Redis", self.server))
    }

    fn no_resp(&self, line: &[u8]) -> Failure {
        Failure::failed(format!(
            "{} answered with `{}`, which is not RESP: does a server for Redis clients listen there?",
            self.server,
            line.get(..80).unwrap_or(line).escape_ascii()
        ))
    }

    fn broken(&self, error: &io::Error) -> Failure {
        let server = &self.server;
        Failure::failed(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no answer from {server} in {} s", ANSWER_TIMEOUT.as_secs())
            }
            io::ErrorKind::UnexpectedEof => format!("{server} closed the connection without a whole answer"),
            _ => format!("the connection to {server} broke: {error}{}", certificate_wanted(error)),
        })
    }
}

/// Adds a command to those that are sent together.
pub(crate) fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "../../tests/unit/remote/resp.rs"]
mod tests;
