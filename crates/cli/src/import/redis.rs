//! The records of a Redis, or of a server that speaks its protocol: `SCAN`, and the commands that
//! read each type.

use std::collections::HashMap;

use stratakv::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use stratakv_base::quantity::format_count;

use super::checkpoint::Position;
use super::rdb::{TOO_LARGE, TOO_LONG};
use super::record::{SourceRecord, SourceValue};
use super::tally::Reason;
use super::target::{Sink, now_ms};
use crate::failure::Failure;
use crate::remote::{LoginArguments, RespClient, RespReply, ServerAddress, write_command};
use crate::room::Room;
use crate::say::say;

/// Keys that a step of `SCAN` looks at.
const SCAN_COUNT: &[u8] = b"512";
/// Structures of up to so many elements are read by one command, as they are at one moment.
const WHOLE_MAX: u64 = 10_000;
/// Longer ones are read in parts of so many elements, so that the source serves others between.
const PART: u64 = 2_000;
/// Values that are asked for at once have about so many bytes.
const GROUP_BYTES: u64 = 16 << 20;
/// What an element is taken for until it is read.
const ELEMENT_BYTES: u64 = 64;
/// A structure that did not change is read in no more parts than this by its elements, and
/// [`PARTS_TO_SPARE`]: a cursor passes empty places of a table too.
const PARTS_FACTOR: u64 = 64;
const PARTS_TO_SPARE: u64 = 1_000;
const LONG_KEY: &str = "keys have at most 65,535 bytes";
const CHANGED: &str = "they got another type while they were read";
const ENDLESS: &str = "they grew as fast as they were read";

/// A Redis.
pub(super) struct Redis {
    client: RespClient,
    records: u64,
    /// Keys that begin otherwise are passed over.
    prefix: Vec<u8>,
}

/// What a key holds, as `TYPE` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    String,
    List,
    Set,
    Hash,
    SortedSet,
}

impl Kind {
    fn of(name: &[u8]) -> Option<Kind> {
        Some(match name {
            b"string" => Kind::String,
            b"list" => Kind::List,
            b"set" => Kind::Set,
            b"hash" => Kind::Hash,
            b"zset" => Kind::SortedSet,
            _ => return None,
        })
    }

    fn length(self) -> &'static [u8] {
        match self {
            Kind::String => b"STRLEN",
            Kind::List => b"LLEN",
            Kind::Set => b"SCARD",
            Kind::Hash => b"HLEN",
            Kind::SortedSet => b"ZCARD",
        }
    }

    /// Reads all of it.
    fn whole(self, key: &[u8]) -> Vec<&[u8]> {
        match self {
            Kind::String => vec![b"GET", key],
            Kind::List => vec![b"LRANGE", key, b"0", b"-1"],
            Kind::Set => vec![b"SMEMBERS", key],
            Kind::Hash => vec![b"HGETALL", key],
            Kind::SortedSet => vec![b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
        }
    }

    /// Reads a part of it.
    fn cursor(self) -> &'static [u8] {
        match self {
            Kind::Set => b"SSCAN",
            Kind::Hash => b"HSCAN",
            _ => b"ZSCAN",
        }
    }
}

/// A key that is to be read.
struct KeyToRead {
    key: Vec<u8>,
    kind: Kind,
    length: u64,
}

/// How long a key lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lives {
    /// It is gone.
    No,
    /// It does not expire.
    Always,
    /// In milliseconds since 1970.
    Until(u64),
}

impl KeyToRead {
    fn bytes(&self) -> u64 {
        if self.kind == Kind::String { self.length } else { self.length.saturating_mul(ELEMENT_BYTES) }
    }
}

impl Redis {
    pub(super) fn connect(address: &ServerAddress, login: &LoginArguments, database: u32) -> Result<Redis, Failure> {
        let mut client = RespClient::connect(address, login, database)?;
        let records = match client.expect(&[b"DBSIZE"])? {
            RespReply::Number(records) => u64::try_from(records).unwrap_or(0),
            other => return Err(client.unexpected_reply(&other)),
        };
        Ok(Redis { client, records, prefix: Vec::new() })
    }

    /// Says what this connection does not show: other databases, and a cluster's other nodes.
    ///
    /// # Errors
    /// The connection broke. A server that does not tell is asked no further.
    pub(super) fn tell_of_others(&mut self, database: u32) -> Result<(), Failure> {
        if let RespReply::Bytes(Some(told)) = self.client.ask(&[b"INFO", b"keyspace"])? {
            for (other, keys) in databases(&told).into_iter().filter(|(other, _)| *other != database) {
                say!("database {other} has {} more, which are not read here", format_count(keys, "record"));
            }
        }
        if let RespReply::Bytes(Some(told)) = self.client.ask(&[b"INFO", b"cluster"])?
            && told.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == b"cluster_enabled:1")
        {
            say!("this is one node of a cluster, which has a part of the keys: read each of the masters");
        }
        Ok(())
    }

    /// What it draws at each start; `None`: it tells none.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn run_id(&mut self) -> Result<Option<String>, Failure> {
        let RespReply::Bytes(Some(told)) = self.client.ask(&[b"INFO", b"server"])? else { return Ok(None) };
        let told = String::from_utf8_lossy(&told);
        let run_id = told.lines().find_map(|line| line.trim().strip_prefix("run_id:"));
        Ok(run_id.filter(|run_id| !run_id.is_empty()).map(str::to_owned))
    }

    /// Of all keys only those that begin with this.
    pub(super) fn with_prefix(self, prefix: &[u8]) -> Redis {
        Redis { prefix: prefix.to_vec(), ..self }
    }

    pub(super) fn import(mut self, target: &mut dyn Sink) -> Result<(), Failure> {
        target.expect(self.records);
        let begun_at = target.begun_at().and_then(|position| position.cursor);
        let mut cursor = begun_at.map_or_else(|| b"0".to_vec(), String::into_bytes);
        loop {
            let reply = self.client.expect(&[b"SCAN", &cursor, b"COUNT", SCAN_COUNT])?;
            let (next, mut keys) = page(&reply).ok_or_else(|| self.client.unexpected_reply(&reply))?;
            keys.retain(|key| {
                let is_long = key.len() > KEY_BYTES_MAX;
                if is_long {
                    target.tally().add(Reason::Unsupported, LONG_KEY, key);
                }
                !is_long && key.starts_with(&self.prefix)
            });
            let found = self.look_at(keys, target)?;
            let mut rest = &found[..];
            while !rest.is_empty() {
                let (group, behind) = rest.split_at(group_len(rest));
                self.read(group, target)?;
                rest = behind;
            }
            if next == b"0" {
                return Ok(());
            }
            if next == cursor {
                return Err(self.client.stands_still());
            }
            cursor = next.to_vec();
            if let Ok(cursor) = String::from_utf8(cursor.clone()) {
                target.reached(Position { cursor: Some(cursor), ..Position::default() })?;
            }
        }
    }

    /// Types and lengths of keys.
    fn look_at(&mut self, keys: Vec<&[u8]>, target: &mut dyn Sink) -> Result<Vec<KeyToRead>, Failure> {
        let mut commands = Vec::new();
        for key in &keys {
            write_command(&mut commands, &[b"TYPE", key]);
        }
        self.client.send(&commands)?;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            match self.client.reply()? {
                RespReply::Status(name) => match Kind::of(&name) {
                    Some(kind) => found.push(KeyToRead { key: key.to_vec(), kind, length: 0 }),
                    None if name == b"none" => gone(target, key)?,
                    None => {
                        let what = format!("values of the type {}", name.escape_ascii());
                        target.tally().add(Reason::Unsupported, what, key);
                    }
                },
                RespReply::Error(why) => return Err(self.client.refused(&[b"TYPE"], &why)),
                other => return Err(self.client.unexpected_reply(&other)),
            }
        }
        self.measure(&mut found)?;
        found.retain(|one| {
            let fits = one.kind != Kind::String || one.length <= VALUE_BYTES_MAX as u64;
            if !fits {
                target.tally().add(Reason::Unsupported, TOO_LONG, &one.key);
            }
            fits
        });
        Ok(found)
    }

    fn measure(&mut self, found: &mut [KeyToRead]) -> Result<(), Failure> {
        let mut commands = Vec::new();
        for one in &*found {
            write_command(&mut commands, &[one.kind.length(), &one.key]);
        }
        self.client.send(&commands)?;
        for one in found {
            // One whose type has changed since is told of when it is read.
            if let RespReply::Number(length) = self.client.reply()? {
                one.length = u64::try_from(length).unwrap_or(0);
            }
        }
        Ok(())
    }

    /// Reads keys, and lets the target take them. The time to live is asked for right behind the
    /// value: a key that is written anew meanwhile would else get the old one.
    fn read(&mut self, group: &[KeyToRead], target: &mut dyn Sink) -> Result<(), Failure> {
        let is_long = |one: &KeyToRead| one.kind != Kind::String && one.length > WHOLE_MAX;
        let mut commands = Vec::new();
        for one in group.iter().filter(|one| !is_long(one)) {
            write_command(&mut commands, &one.kind.whole(&one.key));
            write_command(&mut commands, &[b"PTTL", &one.key]);
        }
        self.client.send(&commands)?;
        for one in group.iter().filter(|one| !is_long(one)) {
            let (reply, ttl) = (self.client.reply()?, self.client.reply()?);
            let lives = self.lives(ttl)?;
            self.take(one, (reply, lives), target)?;
        }
        for one in group.iter().filter(|one| is_long(one)) {
            match self.in_parts(one)? {
                Ok(value) => {
                    let ttl = self.client.ask(&[b"PTTL", &one.key])?;
                    let lives = self.lives(ttl)?;
                    self.give(one, (value, lives), target)?;
                }
                Err((reason, why)) => target.tally().add(reason, why, &one.key),
            }
        }
        Ok(())
    }

    /// What a reply to `PTTL` says of a key.
    fn lives(&self, reply: RespReply) -> Result<Lives, Failure> {
        match reply {
            RespReply::Number(-1) => Ok(Lives::Always),
            RespReply::Number(left_ms) => {
                let left_ms = u64::try_from(left_ms).ok();
                Ok(left_ms.map_or(Lives::No, |left_ms| Lives::Until(now_ms().saturating_add(left_ms))))
            }
            RespReply::Error(why) => Err(self.client.refused(&[b"PTTL"], &why)),
            other => Err(self.client.unexpected_reply(&other)),
        }
    }

    fn take(
        &mut self,
        one: &KeyToRead,
        (reply, lives): (RespReply, Lives),
        target: &mut dyn Sink,
    ) -> Result<(), Failure> {
        let value = match reply {
            RespReply::Error(why) if why.starts_with("WRONGTYPE") => {
                target.tally().add(Reason::Failed, CHANGED, &one.key);
                return Ok(());
            }
            RespReply::Error(why) => return Err(self.client.refused(&one.kind.whole(&one.key), &why)),
            RespReply::TooLarge => {
                target.tally().add(Reason::Unsupported, TOO_LARGE, &one.key);
                return Ok(());
            }
            RespReply::Bytes(Some(bytes)) if one.kind == Kind::String => SourceValue::String(bytes),
            RespReply::Bytes(None) if one.kind == Kind::String => {
                return gone(target, &one.key);
            }
            RespReply::Array(Some(items)) if one.kind != Kind::String => match structure(one.kind, items) {
                Some(value) => value,
                None => return Err(self.client.unexpected_reply(&RespReply::Status(one.kind.length().to_vec()))),
            },
            other => return Err(self.client.unexpected_reply(&other)),
        };
        self.give(one, (value, lives), target)
    }

    fn give(
        &mut self,
        one: &KeyToRead,
        (value, lives): (SourceValue, Lives),
        target: &mut dyn Sink,
    ) -> Result<(), Failure> {
        let is_gone = match &value {
            SourceValue::String(_) => false,
            SourceValue::List(all) | SourceValue::Set(all) => all.is_empty(),
            SourceValue::Hash(all) => all.is_empty(),
            SourceValue::SortedSet(all) => all.is_empty(),
        };
        let expiry_ms = match lives {
            Lives::Until(expiry_ms) => Some(expiry_ms),
            Lives::Always => None,
            Lives::No => return gone(target, &one.key),
        };
        if is_gone {
            return gone(target, &one.key);
        }
        target.take(SourceRecord { key: one.key.clone(), value, flags: 0, expiry_ms })
    }

    /// A long structure, in parts; why it could not be read.
    fn in_parts(&mut self, one: &KeyToRead) -> Result<Result<SourceValue, (Reason, &'static str)>, Failure> {
        let mut items = Vec::new();
        let mut cursor = b"0".to_vec();
        let room = &mut Room::of_value();
        let parts_max =
            (one.length.min(u32::MAX.into()) / PART).saturating_mul(PARTS_FACTOR).saturating_add(PARTS_TO_SPARE);
        for part in 0..parts_max {
            let (first, last) = (part * PART, (part + 1) * PART - 1);
            let (first, last, count) = (first.to_string(), last.to_string(), PART.to_string());
            let words: Vec<&[u8]> = match one.kind {
                Kind::List => vec![b"LRANGE", &one.key, first.as_bytes(), last.as_bytes()],
                kind => vec![kind.cursor(), &one.key, &cursor, b"COUNT", count.as_bytes()],
            };
            let (more, next) = match (one.kind, self.client.ask_within(&words, room)?) {
                (_, RespReply::Error(why)) if why.starts_with("WRONGTYPE") => {
                    return Ok(Err((Reason::Failed, CHANGED)));
                }
                (_, RespReply::Error(why)) => return Err(self.client.refused(&words, &why)),
                (_, RespReply::TooLarge) => return Ok(Err((Reason::Unsupported, TOO_LARGE))),
                (Kind::List, RespReply::Array(Some(more))) => (more, cursor.clone()),
                (_, reply) => parts_of(reply).map_err(|reply| self.client.unexpected_reply(&reply))?,
            };
            let is_last = if one.kind == Kind::List { more.is_empty() } else { next == b"0" };
            items.extend(more);
            cursor = next;
            if is_last {
                let whole = structure(one.kind, items);
                return whole.map(Ok).ok_or_else(|| self.client.unexpected_reply(&RespReply::Array(None)));
            }
        }
        Ok(Err((Reason::Failed, ENDLESS)))
    }
}

/// The elements and the next cursor of a reply to a cursor.
fn parts_of(reply: RespReply) -> Result<(Vec<RespReply>, Vec<u8>), RespReply> {
    match reply {
        RespReply::Array(Some(parts)) => match <[RespReply; 2]>::try_from(parts) {
            Ok([RespReply::Bytes(Some(next)), RespReply::Array(Some(more))]) => Ok((more, next)),
            Ok(others) => Err(RespReply::Array(Some(others.into()))),
            Err(parts) => Err(RespReply::Array(Some(parts))),
        },
        other => Err(other),
    }
}

fn gone(target: &mut dyn Sink, key: &[u8]) -> Result<(), Failure> {
    target.tally().add(Reason::Harmless, "they were deleted or had expired before they were read", key);
    Ok(())
}

/// Databases with their keys, of lines such as `db1:keys=3,expires=0`.
fn databases(told: &[u8]) -> Vec<(u32, u64)> {
    let told = String::from_utf8_lossy(told);
    let of = |line: &str| {
        let (name, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
        Some((name.parse().ok()?, rest.split(',').next()?.parse().ok()?))
    };
    told.lines().filter_map(|line| of(line.trim())).collect()
}

/// How many of these keys are read together.
fn group_len(found: &[KeyToRead]) -> usize {
    let mut bytes = 0u64;
    let fits = found.iter().take_while(|one| {
        bytes = bytes.saturating_add(one.bytes());
        bytes <= GROUP_BYTES
    });
    fits.count().max(1)
}

/// The cursor and the keys of a reply to `SCAN`.
fn page(reply: &RespReply) -> Option<(&[u8], Vec<&[u8]>)> {
    let RespReply::Array(Some(parts)) = reply else { return None };
    let [RespReply::Bytes(Some(next)), RespReply::Array(Some(keys))] = &parts[..] else { return None };
    let keys = keys.iter().map(|key| match key {
        RespReply::Bytes(Some(key)) => Some(key.as_slice()),
        _ => None,
    });
    Some((next, keys.collect::<Option<_>>()?))
}

/// The structure of these elements; each once, where a cursor gave one twice.
fn structure(kind: Kind, items: Vec<RespReply>) -> Option<SourceValue> {
    let items = items.into_iter().map(|item| match item {
        RespReply::Bytes(Some(bytes)) => Some(bytes),
        _ => None,
    });
    let items = items.collect::<Option<Vec<Vec<u8>>>>()?;
    Some(match kind {
        Kind::String => return None,
        Kind::List => SourceValue::List(items),
        Kind::Set => SourceValue::Set(items),
        Kind::Hash => {
            let fields: HashMap<Vec<u8>, Vec<u8>> = pairs(items)?.into_iter().collect();
            SourceValue::Hash(fields.into_iter().collect())
        }
        Kind::SortedSet => {
            let score =
                |(member, score): (Vec<u8>, Vec<u8>)| Some((member, std::str::from_utf8(&score).ok()?.parse().ok()?));
            SourceValue::SortedSet(pairs(items)?.into_iter().map(score).collect::<Option<_>>()?)
        }
    })
}

fn pairs(items: Vec<Vec<u8>>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let Some(first) = items.next() {
        pairs.push((first, items.next()?));
    }
    Some(pairs)
}
