//! Commands as the generators make them: bytes, in which versions are still to be filled in, and
//! what must be known to read their answers.

use std::fmt::Write;

/// Which version of a key a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that was seen last.
    Last,
    /// One that was seen before that.
    Old,
    /// One that nobody was shown.
    Wrong,
}

/// A piece of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandPiece {
    /// As it is sent.
    Bytes(Vec<u8>),
    /// A version of the command's key: each server gets its own. In decimal, or as the eight bytes
    /// of a binary header.
    Version(Which),
}

/// How the answer of a command is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Compared as it is.
    Plain,
    /// `VALUE` lines with their data.
    Values,
    /// A status, flags, perhaps a value.
    Meta,
    /// The answer of `me`.
    Debug,
    /// `STAT` lines, of which names are compared, and of some the numbers.
    Statistics,
    /// A line for each record, in no order.
    Dump,
    /// `VERSION`.
    ServerVersion,
    /// Responses of the binary protocol.
    Binary,
    /// Such responses with a statistic each.
    BinaryStatistics,
    /// Such a response with the server's version.
    BinaryServerVersion,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What is sent.
    pub parts: Vec<CommandPiece>,
    /// Of the binary protocol.
    pub binary: bool,
    /// How its answer reads.
    pub shape: Shape,
    /// The key that it is about, decoded; empty if there is none or several.
    pub key: Vec<u8>,
    /// Keys whose time it may change without writing them.
    pub touches: Vec<Vec<u8>>,
    /// The connection is over after it.
    pub closes: bool,
}

impl Command {
    /// A line of text, without its end.
    pub fn line(line: impl Into<Vec<u8>>) -> Command {
        let mut bytes = line.into();
        bytes.extend_from_slice(b"\r\n");
        Command::of(vec![CommandPiece::Bytes(bytes)], false)
    }

    /// Of these parts.
    pub fn of(parts: Vec<CommandPiece>, binary: bool) -> Command {
        Command { parts, binary, shape: Shape::Plain, key: Vec::new(), touches: Vec::new(), closes: false }
    }

    /// With an answer of this shape.
    pub fn shape(self, shape: Shape) -> Command {
        Command { shape, ..self }
    }

    /// About this key.
    pub fn key(self, key: &[u8]) -> Command {
        Command { key: key.to_vec(), ..self }
    }

    /// May change when these keys end.
    pub fn touching(self, keys: &[&[u8]]) -> Command {
        Command { touches: keys.iter().map(|key| key.to_vec()).collect(), ..self }
    }

    /// The last one of its connection.
    pub fn closing(self) -> Command {
        Command { closes: true, ..self }
    }

    /// With a data block behind it.
    pub fn data(mut self, data: &[u8]) -> Command {
        self.parts.push(CommandPiece::Bytes([data, b"\r\n"].concat()));
        self
    }

    /// What is sent where `version` says which number stands for which version.
    pub fn bytes(&self, version: impl Fn(Which) -> u64) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.parts {
            match part {
                CommandPiece::Bytes(bytes) => out.extend_from_slice(bytes),
                CommandPiece::Version(which) if self.binary => out.extend_from_slice(&version(*which).to_be_bytes()),
                CommandPiece::Version(which) => out.extend_from_slice(version(*which).to_string().as_bytes()),
            }
        }
        out
    }

    /// Whether it changes a number in place.
    pub fn counts(&self) -> bool {
        let Some(CommandPiece::Bytes(first)) = self.parts.first() else { return false };
        match self.binary {
            true => first.get(1).is_some_and(|opcode| matches!(opcode, 5 | 6 | 0x15 | 0x16)),
            false => [&b"incr"[..], b"decr", b"ma "].iter().any(|verb| first.trim_ascii_start().starts_with(verb)),
        }
    }

    /// For people, and for the patterns of [`super::intended`]: text as it is sent, versions in
    /// angle brackets.
    pub fn shown(&self) -> String {
        let mut out = String::new();
        if self.binary {
            out.push_str("binary ");
        }
        for part in &self.parts {
            // Writing to a String does not fail.
            _ = match part {
                CommandPiece::Bytes(bytes) => write!(out, "{}", shorten(bytes)),
                CommandPiece::Version(which) => write!(out, "<{which:?}>"),
            };
        }
        out
    }
}

/// Bytes as text; the middle of what is very long is left out.
pub fn shorten(bytes: &[u8]) -> String {
    const SHOWN: usize = 600;
    if bytes.len() <= 2 * SHOWN {
        return bytes.escape_ascii().to_string();
    }
    let (front, rest) = bytes.split_at(SHOWN);
    let (middle, back) = rest.split_at(rest.len() - SHOWN);
    format!("{}<{} bytes>{}", front.escape_ascii(), middle.len(), back.escape_ascii())
}

/// Commands that are sent together on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentTogether {
    /// Its number, from 0.
    pub connection: usize,
    /// In order.
    pub commands: Vec<Command>,
}
