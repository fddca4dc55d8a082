//! Records of a range of keys, from a server: `mr`, and lists of keys where there is no order.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::ops::Bound;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stratakv::limits::VALUE_BYTES_MAX;
use stratakv_protocol::memcache::{KEY_BYTES_MAX, MetaFlags, RANGE_COUNT_MAX, reply};

use super::Client;
use super::client::number;
use crate::failure::{Exit, Failure};
use crate::json_line::Line;
use crate::put::expiry_in;

/// The word that asks for a key, and its flag: as it is where the protocol can carry it, since
/// memcached counts the bytes of the word.
fn word(key: &[u8]) -> (Cow<'_, [u8]>, &'static [u8]) {
    let is_plain = key.iter().all(|byte| *byte > b' ' && *byte != 0x7F);
    if is_plain { (key.into(), b"") } else { (STANDARD.encode(key).into_bytes().into(), b" b") }
}

/// Whether memcached takes the word that asks for a key.
pub(crate) fn can_be_asked_for(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&word(key).0.len())
}

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

/// A key of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListedKey {
    pub(crate) key: Vec<u8>,
    /// What the whole item takes.
    pub(crate) bytes: u64,
}

/// `key=NAME exp=.. la=.. cas=.. fetch=.. cls=.. size=..`, the name with `%20` and the like.
fn listed_key(line: &[u8]) -> Option<ListedKey> {
    let mut words = line.split(|byte| *byte == b' ');
    let name = words.next()?.strip_prefix(b"key=")?;
    let bytes = words.find_map(|word| number(word.strip_prefix(b"size=")?)).unwrap_or(0);
    let mut key = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'%' {
            key.push(*first);
            rest = behind;
            continue;
        }
        let (digits, behind) = behind.split_at_checked(2)?;
        key.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = behind;
    }
    Some(ListedKey { key, bytes })
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
            // Known by its place: memcached gives the key back as it was stored, in base64 or not.
            let mut asked = Vec::new();
            for (place, key) in some.iter().enumerate() {
                let (key, form) = word(key);
                asked.extend_from_slice(
                    &[b"mg ", &key[..], form, format!(" v f t c q O{place}\r\n").as_bytes()].concat(),
                );
            }
            asked.extend_from_slice(b"mn\r\n");
            self.send(&[&asked])?;
            while let Some(record) = self.fetched(some)? {
                take(record)?;
            }
        }
        Ok(())
    }

    /// Whether the server knows meta commands: memcached does from 1.6 on.
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub(crate) fn has_meta_commands(&mut self) -> Result<bool, Failure> {
        self.send(&[b"mn\r\n"])?;
        Ok(self.line()? == b"MN")
    }

    /// Begins to list the keys as memcached lists them.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn begin_list(&mut self) -> Result<(), Failure> {
        self.send(&[b"lru_crawler metadump all\r\n"])
    }

    /// The next key of the list; `None`: there are no more.
    ///
    /// # Errors
    /// The server refuses, is busy with another list, or answers with something else.
    pub(crate) fn next_listed(&mut self) -> Result<Option<ListedKey>, Failure> {
        let line = self.line()?;
        if line == b"END" {
            return Ok(None);
        }
        if line.starts_with(b"BUSY") {
            let why = "another client lists its keys: try again";
            return Err(Failure { exit: Exit::Busy, ..self.refused(&line) }.at(why));
        }
        listed_key(&line).map(Some).ok_or_else(|| self.refused(&line))
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

    /// A record that was fetched, of these keys; `None`: there are no more.
    fn fetched(&mut self, keys: &[Vec<u8>]) -> Result<Option<RemoteRecord>, Failure> {
        let line = self.line()?;
        match line.as_slice() {
            b"MN" => Ok(None),
            _ if [line.as_slice(), b"\r\n"].concat() == reply::NOT_A_STRING => Ok(Some(RemoteRecord::default())),
            _ => self.record(&line, |place| keys.get(place).cloned()).map(Some),
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
        self.record(&line, |_| None).map(Answer::Record)
    }

    /// Reads the value that `VA` announces; its length.
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub(super) fn passed_value(&mut self, line: &[u8]) -> Result<u64, Failure> {
        let length = line.strip_prefix(b"VA ").and_then(|rest| rest.split(|byte| *byte == b' ').next());
        let length = length.and_then(number::<u64>).filter(|bytes| *bytes <= VALUE_BYTES_MAX as u64);
        let length = length.ok_or_else(|| self.refused(line))?;
        self.value(length).map(|value| value.len() as u64)
    }

    /// The record of a line, with its value. `key_at`: the key that was asked for at a place.
    fn record(&mut self, line: &[u8], key_at: impl Fn(usize) -> Option<Vec<u8>>) -> Result<RemoteRecord, Failure> {
        let (value_bytes, words) = match (line.strip_prefix(b"VA "), line.strip_prefix(b"HD")) {
            (Some(rest), _) => {
                let (length, words) = rest.split_at(rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len()));
                let length = number::<u64>(length).filter(|bytes| *bytes <= VALUE_BYTES_MAX as u64);
                (Some(length.ok_or_else(|| self.refused(line))?), words)
            }
            (None, Some(words)) => (None, words),
            (None, None) => return Err(self.refused(line)),
        };
        let mut record = record_of(words, key_at).ok_or_else(|| self.refused(line))?;
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

/// The flags of an answer, all keys being base64, or named by their place.
fn record_of(words: &[u8], key_at: impl Fn(usize) -> Option<Vec<u8>>) -> Option<RemoteRecord> {
    let mut record = RemoteRecord::default();
    let mut has_key = false;
    for (letter, rest) in MetaFlags::split(words) {
        match letter {
            b'k' => {
                record.key = STANDARD.decode(rest).ok()?;
                has_key = true;
            }
            b'O' => {
                record.key = key_at(number(rest)?)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of 187 bytes has 252 in base64, which memcached refuses.
    #[test]
    fn keys_are_asked_for_in_words_that_memcached_takes() {
        for (len, can) in [(1, true), (186, true), (187, true), (250, true), (251, false), (300, false)] {
            assert_eq!(can_be_asked_for(&vec![b'k'; len]), can, "{len} bytes");
        }
        assert_eq!((word(b"k").0.into_owned(), word(b"k").1), (b"k".to_vec(), &b""[..]));
        assert_eq!((word(b"a b").0.into_owned(), word(b"a b").1), (b"YSBi".to_vec(), &b" b"[..]));
        assert!(can_be_asked_for(&[0; 186]) && !can_be_asked_for(&[0; 188]) && !can_be_asked_for(b""));
    }

    #[test]
    fn listed_keys_are_decoded() {
        let listed = |line: &str| listed_key(line.as_bytes()).map(|listed| (listed.key, listed.bytes));
        let line = "key=a%20b%FFc exp=-1 la=1 cas=2 fetch=no cls=1 size=63";
        assert_eq!(listed(line), Some((b"a b\xFFc".to_vec(), 63)));
        assert_eq!(listed("key=k exp=1"), Some((b"k".to_vec(), 0)));
        for bad in ["", "ERROR", "key=%", "key=%2", "key=%zz", "k exp=1"] {
            assert_eq!(listed(bad), None, "{bad}");
        }
    }
}
