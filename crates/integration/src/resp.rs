//! A Redis client, as small as the harnesses need it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::protocol;

/// Longest string and array that is believed.
const LENGTH_MAX: i64 = 1 << 26;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RespReply {
    /// A simple string.
    Simple(String),
    /// An error.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string, or none.
    Bulk(Option<Vec<u8>>),
    /// Replies, or none.
    Array(Option<Vec<RespReply>>),
}

/// A connection that speaks RESP 2.
#[derive(Debug)]
pub struct RespConnection {
    stream: BufReader<TcpStream>,
}

impl RespConnection {
    /// Connects.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect(address: SocketAddr) -> io::Result<RespConnection> {
        protocol::stream(address).map(|stream| RespConnection { stream })
    }

    /// Sends commands in words without waiting.
    ///
    /// # Errors
    /// The connection ended.
    pub fn send(&mut self, commands: &[String]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
            }
        }
        self.stream.get_mut().write_all(&bytes)
    }

    /// The next reply.
    ///
    /// # Errors
    /// The connection ended; `InvalidData` if it is no reply.
    pub fn reply(&mut self) -> io::Result<RespReply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n") else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("`{line}` begins no reply"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(wrong)?;
        let number = || rest.parse::<i64>().map_err(|_| wrong());
        let length = || Some(number()).transpose().map(|found| found.filter(|length| *length <= LENGTH_MAX));
        Ok(match kind {
            "+" => RespReply::Simple(rest.to_owned()),
            "-" => RespReply::Error(rest.to_owned()),
            ":" => RespReply::Integer(number()?),
            "$" => match length()?.ok_or_else(wrong)? {
                -1 => RespReply::Bulk(None),
                length => {
                    let mut text = vec![0; usize::try_from(length).map_err(|_| wrong())? + 2];
                    self.stream.read_exact(&mut text)?;
                    text.truncate(text.len() - 2);
                    RespReply::Bulk(Some(text))
                }
            },
            "*" => match length()?.ok_or_else(wrong)? {
                -1 => RespReply::Array(None),
                length => RespReply::Array(Some((0..length).map(|_| self.reply()).collect::<io::Result<_>>()?)),
            },
            _ => return Err(wrong()),
        })
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// As the two.
    pub fn ask(&mut self, command: &str) -> io::Result<RespReply> {
        self.send(&[command.to_owned()])?;
        self.reply()
    }
}

impl RespReply {
    /// The strings of an array of strings; none of anything else.
    pub fn texts(&self) -> Option<Vec<String>> {
        let RespReply::Array(Some(replies)) = self else { return None };
        let text = |reply: &RespReply| match reply {
            RespReply::Bulk(Some(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        };
        replies.iter().map(text).collect()
    }
}
