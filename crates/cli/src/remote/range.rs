//! Records of a range of keys, from a server: `mr`, and lists of keys where there is no order.

use std::io::{Read, Write};
use std::ops::Bound;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stratakv::limits::VALUE_BYTES_MAX;
use stratakv_protocol::memcache::{MetaFlags, RANGE_COUNT_MAX, reply};

use super::Client;
use super::client::number;
use crate::failure::Failure;
use crate::json_line::Line;
use crate::put::expiry_in;

/// Records that are asked for at once where keys are listed first.
const AT_ONCE: usize = 64;

/// Which records, and what of them.
#[derive(Clone, Debug)]
pub(crate) struct RangeRequest {
    pub(crate) from: Bound<Vec<u8>>,
    pub(crate) to: Bound<Vec<u8>>,
    pub(crate) reverse: bool,
    /// Their keys alone.
    pub(crate) keys_only: bool,
}

/// A record as a server tells it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteRecord {
    pub(crate) key: Vec<u8>,
    /// `None`: it was not asked for, or is a structure of Redis clients.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) flags: u32,
    pub(crate) version: u64,
    /// Seconds until it expires; `None`: it does not.
    pub(crate) seconds_left: Option<u64>,
}

impl RemoteRecord {
    /// As a line of JSON, without its version.
    pub(crate) fn line(&self) -> Line {
        let line = match &self.value {
            Some(value) => Line::with_value(&self.key, value),
            None => Line::key_only(&self.key),
        };
        let expiry = self.seconds_left.map_or(0, |left| expiry_in(Duration::from_secs(left)).seconds());
        Line { flags: self.flags, expiry: u32::try_from(expiry).unwrap_or(u32::MAX), ..line }
    }
}

/// What takes records.
pub(crate) type Take<'a> = &'a mut dyn FnMut(RemoteRecord) -> Result<(), Failure>;

/// How a page of a range ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PageEnd {
    /// There is no more.
    Over,
    /// It goes on behind this key.
    Behind(Vec<u8>),
    /// The engine has no order.
    Unordered,
}

/// A line of an answer.
enum Answer {
    Record(RemoteRecord),
    End(PageEnd),
}

impl<S: Read + Write> Client<S> {
    /// Up to so many records of a range.
    ///
    /// # Errors
    /// As of [`Client::get`], and of `take`.
    pub(crate) fn page(&mut self, request: &RangeRequest, count: usize, take: Take<'_>) -> Result<PageEnd, Failure> {
        let count = count.clamp(1, RANGE_COUNT_MAX as usize);
        let (sign, flags) = (if request.reverse { "-" } else { "" }, if request.keys_only { "" } else { " v f t c" });
        let (from, to) = (end(&request.from, "-"), end(&request.to, "+"));
        self.send(&[format!("mr {from} {to} {sign}{count} b{flags}\r\n").as_bytes()])?;
        loop {
            match self.answer()? {
                Answer::Record(record) => take(record)?,
                Answer::End(end) => return Ok(end),
            }
        }
    }

    /// All records of a range, in order; whether there is an order.
    ///
    /// # Errors
    /// As of [`Client::page`].
    pub(crate) fn range(&mut self, mut request: RangeRequest, take: Take<'_>) -> Result<bool, Failure> {
        loop {
            match self.page(&request, usize::MAX, take)? {
                PageEnd::Over => return Ok(true),
                PageEnd::Unordered => return Ok(false),
                PageEnd::Behind(key) => request.go_on(key),
            }
        }
    }

    /// The records of these keys that are still there, in the order of the keys.
    ///
    /// # Errors
    /// As of [`Client::page`].
    pub(crate) fn fetch(&mut self, keys: &[Vec<u8>], take: Take<'_>) -> Result<(), Failure> {
        for some in keys.chunks(AT_ONCE) {
            let ask = |key: &Vec<u8>| format!("mg {} b k v f t c q\r\n", STANDARD.encode(key));
            let asked: String = some.iter().map(ask).chain(["mn\r\n".to_owned()]).collect();
            self.send(&[asked.as_bytes()])?;
            while let Some(record) = self.fetched()? {
                take(record)?;
            }
        }
        Ok(())
    }

    /// The keys of all records, in no order.
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub(crate) fn keys(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        self.send(&[b"lru_crawler mgdump all\r\n"])?;
        let mut keys = Vec::new();
        loop {
            let line = self.line()?;
            if line == b"EN" {
                return Ok(keys);
            }
            let key = line.strip_prefix(b"mg ").and_then(|word| match word.strip_suffix(b" b") {
                Some(word) => STANDARD.decode(word).ok(),
                None => Some(word.to_vec()),
            });
            keys.push(key.ok_or_else(|| self.refused(&line))?);
        }
    }

    /// A record that was fetched; `None`: there are no more.
    fn fetched(&mut self) -> Result<Option<RemoteRecord>, Failure> {
        let line = self.line()?;
        match line.as_slice() {
            b"MN" => Ok(None),
            _ if [line.as_slice(), b"\r\n"].concat() == reply::NOT_A_STRING => Ok(Some(RemoteRecord::default())),
            _ => self.record(&line).map(Some),
        }
    }

    fn answer(&mut self) -> Result<Answer, Failure> {
        let line = self.line()?;
        if line == b"EN" {
            return Ok(Answer::End(PageEnd::Over));
        }
        if [line.as_slice(), b"\r\n"].concat() == reply::RANGE_WITHOUT_ORDER {
            return Ok(Answer::End(PageEnd::Unordered));
        }
        if let Some(word) = line.strip_prefix(b"EN n(") {
            let key = word.strip_suffix(b" b").and_then(|word| STANDARD.decode(word).ok());
            return key.map(|key| Answer::End(PageEnd::Behind(key))).ok_or_else(|| self.refused(&line));
        }
        self.record(&line).map(Answer::Record)
    }

    /// The record of a line, with its value.
    fn record(&mut self, line: &[u8]) -> Result<RemoteRecord, Failure> {
        let (value_bytes, words) = match (line.strip_prefix(b"VA "), line.strip_prefix(b"HD")) {
            (Some(rest), _) => {
                let (length, words) = rest.split_at(rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len()));
                let length = number::<u64>(length).filter(|bytes| *bytes <= VALUE_BYTES_MAX as u64);
                (Some(length.ok_or_else(|| self.refused(line))?), words)
            }
            (None, Some(words)) => (None, words),
            (None, None) => return Err(self.refused(line)),
        };
        let mut record = record_of(words).ok_or_else(|| self.refused(line))?;
        if let Some(value_bytes) = value_bytes {
            record.value = Some(self.value(value_bytes)?);
        }
        Ok(record)
    }
}

impl RangeRequest {
    /// The keys that begin with a prefix.
    pub(crate) fn of_prefix(prefix: &[u8]) -> RangeRequest {
        let to = stratakv_protocol::range::behind_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        RangeRequest { from: Bound::Included(prefix.to_vec()), to, reverse: false, keys_only: false }
    }

    /// What is left behind this key.
    pub(crate) fn go_on(&mut self, key: Vec<u8>) {
        let end = if self.reverse { &mut self.to } else { &mut self.from };
        *end = Bound::Excluded(key);
    }
}

/// The flags of an answer, all keys being base64.
fn record_of(words: &[u8]) -> Option<RemoteRecord> {
    let mut record = RemoteRecord::default();
    let mut has_key = false;
    for (letter, rest) in MetaFlags::split(words) {
        match letter {
            b'k' => {
                record.key = STANDARD.decode(rest).ok()?;
                has_key = true;
            }
            b'f' => record.flags = number(rest)?,
            b'c' => record.version = number(rest)?,
            b't' => record.seconds_left = if rest == b"-1" { None } else { Some(number(rest)?) },
            _ => {}
        }
    }
    has_key.then_some(record)
}

fn end(bound: &Bound<Vec<u8>>, unbounded: &str) -> String {
    match bound {
        Bound::Unbounded => unbounded.to_owned(),
        Bound::Included(key) => format!("[{}", STANDARD.encode(key)),
        Bound::Excluded(key) => format!("({}", STANDARD.encode(key)),
    }
}
