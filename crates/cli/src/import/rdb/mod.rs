//! Redis's files: `dump.rdb`, of versions 1 to 11. Bytes are read in their order; nothing in them
//! is trusted, and no length is reserved before its bytes are there.

mod bytes;
mod crc;
mod packed;

use std::io::Read;

use stratakv::limits::VALUE_BYTES_MAX;

use super::record::{SourceRecord, SourceValue};
use crate::room::{Room, VALUE_MEMORY_MAX};
use bytes::RdbBytes;
pub(crate) use bytes::RdbError;
use packed::PackedError;

/// The newest version that is read: that of Redis 7.2. Its next one has types that are not known
/// here.
const VERSION_MAX: u32 = 11;
/// From this one on a checksum ends the file.
const VERSION_WITH_CHECKSUM: u32 = 5;

/// Of structures whose elements take more than [`crate::room::VALUE_MEMORY_MAX`].
pub(super) const TOO_LARGE: &str = "structures that take over 1 GiB of memory";
/// Of other values.
pub(super) const TOO_LONG: &str = "values have at most 64 MiB";

const OPCODE_FUNCTION: u8 = 245;
const OPCODE_MODULE: u8 = 247;
const OPCODE_IDLE: u8 = 248;
const OPCODE_FREQUENCY: u8 = 249;
const OPCODE_AUXILIARY: u8 = 250;
const OPCODE_SIZES: u8 = 251;
const OPCODE_EXPIRY_MS: u8 = 252;
const OPCODE_EXPIRY_SECONDS: u8 = 253;
const OPCODE_DATABASE: u8 = 254;
const OPCODE_END: u8 = 255;

/// What stands next in a file.
#[derive(Debug, PartialEq)]
pub(crate) enum RdbItem {
    Record(SourceRecord),
    /// A value of a kind that no store here holds; passed over.
    LeftOut {
        key: Vec<u8>,
        what: &'static str,
    },
    /// A value whose bytes contradict their encoding; passed over.
    Damaged {
        key: Vec<u8>,
        why: &'static str,
    },
    /// Functions or a module's data, which belong to no key.
    Foreign(&'static str),
    /// The file's checksum is that of its bytes, or it has none.
    End {
        checked: bool,
    },
}

/// A value, or why there is none though its bytes were passed.
enum Passed {
    Value(SourceValue),
    LeftOut(&'static str),
    Damaged(&'static str),
}

impl Passed {
    /// A structure, if there was room for all of it.
    fn within(room: &Room, value: SourceValue) -> Passed {
        if room.is_exceeded() { Passed::LeftOut(TOO_LARGE) } else { Passed::Value(value) }
    }
}

/// Reads a file.
pub(crate) struct RdbReader<R> {
    bytes: RdbBytes<R>,
    version: u32,
    database: u64,
    /// Of one value.
    memory_max: usize,
}

impl<R: Read> RdbReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// It is no such file, of a version that is not known, or cannot be read.
    pub(crate) fn new(source: R) -> Result<RdbReader<R>, RdbError> {
        let mut bytes = RdbBytes::new(source);
        let header: [u8; 9] = bytes.array()?;
        let digits = header.strip_prefix(b"REDIS").and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(version) = digits.and_then(|digits| digits.parse().ok()) else {
            return Err(bytes.wrong("it does not begin with REDIS and a version, so it is no RDB file"));
        };
        if !(1..=VERSION_MAX).contains(&version) {
            return Err(bytes.wrong(
                "its version is newer than 11, that of Redis 7.2: import from the running server, by redis://",
            ));
        }
        Ok(RdbReader { bytes, version, database: 0, memory_max: VALUE_MEMORY_MAX })
    }

    /// The database of the item before.
    pub(crate) fn database(&self) -> u64 {
        self.database
    }

    /// How many bytes are read.
    pub(crate) fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    /// The next item. [`RdbItem::End`] is the last.
    ///
    /// # Errors
    /// The file is cut short, its bytes make no sense, or they cannot be read.
    pub(crate) fn next(&mut self) -> Result<RdbItem, RdbError> {
        let mut expiry_ms = None;
        loop {
            match self.bytes.byte()? {
                OPCODE_EXPIRY_MS => expiry_ms = Some(u64::from_le_bytes(self.bytes.array()?)),
                OPCODE_EXPIRY_SECONDS => {
                    expiry_ms = Some(u64::from(u32::from_le_bytes(self.bytes.array()?)).saturating_mul(1000));
                }
                OPCODE_DATABASE => self.database = self.bytes.count()?,
                OPCODE_SIZES => {
                    self.bytes.count()?;
                    self.bytes.count()?;
                }
                OPCODE_IDLE => drop(self.bytes.count()?),
                OPCODE_FREQUENCY => drop(self.bytes.byte()?),
                OPCODE_AUXILIARY => {
                    self.bytes.string()?;
                    self.bytes.string()?;
                }
                OPCODE_FUNCTION => {
                    self.bytes.string()?;
                    return Ok(RdbItem::Foreign("libraries of functions"));
                }
                OPCODE_MODULE => {
                    self.pass_module()?;
                    return Ok(RdbItem::Foreign("data of modules"));
                }
                OPCODE_END => return self.end(),
                kind => return self.record(kind, expiry_ms),
            }
        }
    }

    fn end(&mut self) -> Result<RdbItem, RdbError> {
        let computed = self.bytes.checksum();
        if self.version < VERSION_WITH_CHECKSUM {
            return Ok(RdbItem::End { checked: false });
        }
        match u64::from_le_bytes(self.bytes.array()?) {
            0 => Ok(RdbItem::End { checked: false }),
            stored if stored == computed => Ok(RdbItem::End { checked: true }),
            _ => Err(self.bytes.wrong("its checksum is not that of its bytes: the file is damaged, take another copy")),
        }
    }

    fn record(&mut self, kind: u8, expiry_ms: Option<u64>) -> Result<RdbItem, RdbError> {
        if kind > 21 {
            return Err(self.bytes.wrong("a value is of a type that is not known here"));
        }
        let key = self.bytes.string()?;
        let passed = self.value(kind).map_err(|error| error.of_key(&key))?;
        Ok(match passed {
            Passed::Value(value) => RdbItem::Record(SourceRecord { key, value, flags: 0, expiry_ms }),
            Passed::LeftOut(what) => RdbItem::LeftOut { key, what },
            Passed::Damaged(why) => RdbItem::Damaged { key, why },
        })
    }

    fn value(&mut self, kind: u8) -> Result<Passed, RdbError> {
        let room = &mut Room::of(self.memory_max);
        Ok(match kind {
            0 => {
                let text = self.bytes.string_within(&mut Room::of_bytes(VALUE_BYTES_MAX))?;
                text.map_or(Passed::LeftOut(TOO_LONG), |text| Passed::Value(SourceValue::String(text)))
            }
            1 | 2 => {
                let all = self.strings(room)?;
                Passed::within(room, if kind == 1 { SourceValue::List(all) } else { SourceValue::Set(all) })
            }
            3 | 5 => {
                let scores = self.scores(kind == 5, room)?;
                Passed::within(room, SourceValue::SortedSet(scores))
            }
            4 => {
                let count = self.bytes.count()?;
                let mut fields = Vec::new();
                for _ in 0..count {
                    let field = (self.bytes.string_within(room)?, self.bytes.string_within(room)?);
                    if let (Some(field), Some(value)) = field {
                        fields.push((field, value));
                    }
                }
                Passed::within(room, SourceValue::Hash(fields))
            }
            6 => {
                return Err(self
                    .bytes
                    .wrong("a module's value of Redis 4 before its release, whose length is not told"));
            }
            7 => {
                self.pass_module()?;
                Passed::LeftOut("values of modules")
            }
            15 | 19 | 21 => {
                self.pass_stream(kind)?;
                Passed::LeftOut("values of the type stream")
            }
            14 | 18 => self.quicklist(kind == 18, room)?,
            9..=13 | 16 | 17 | 20 => match self.bytes.string_within(room)? {
                None => Passed::LeftOut(TOO_LARGE),
                Some(text) => match whole(kind, &text, room) {
                    Ok(value) => Passed::Value(value),
                    Err(PackedError::TooLarge) => Passed::LeftOut(TOO_LARGE),
                    Err(PackedError::Damaged(why)) => Passed::Damaged(why),
                },
            },
            _ => return Err(self.bytes.wrong("a value is of a type that is not known here")),
        })
    }

    /// Without those for which there is no room.
    fn strings(&mut self, room: &mut Room) -> Result<Vec<Vec<u8>>, RdbError> {
        let count = self.bytes.count()?;
        let mut all = Vec::new();
        for _ in 0..count {
            all.extend(self.bytes.string_within(room)?);
        }
        Ok(all)
    }

    /// Without those for which there is no room.
    fn scores(&mut self, are_binary: bool, room: &mut Room) -> Result<Vec<(Vec<u8>, f64)>, RdbError> {
        let count = self.bytes.count()?;
        let mut all = Vec::new();
        for _ in 0..count {
            let member = self.bytes.string_within(room)?;
            let score =
                if are_binary { f64::from_le_bytes(self.bytes.array()?) } else { self.bytes.written_score()? };
            all.extend(member.map(|member| (member, score)));
        }
        Ok(all)
    }

    /// A list in nodes, each of which is a ziplist, a listpack, or one long element.
    fn quicklist(&mut self, is_second: bool, room: &mut Room) -> Result<Passed, RdbError> {
        const PLAIN: u64 = 1;
        const PACKED: u64 = 2;
        let count = self.bytes.count()?;
        let (mut all, mut damage) = (Vec::new(), None);
        for _ in 0..count {
            let container = if is_second { self.bytes.count()? } else { PACKED };
            let Some(node) = self.bytes.string_within(room)? else { continue };
            let elements = match container {
                PLAIN => Ok(vec![node]),
                PACKED if is_second => packed::listpack(&node, room),
                PACKED => packed::ziplist(&node, room),
                _ => return Err(self.bytes.wrong("a node of a list is of a kind that is not known")),
            };
            match elements {
                Ok(elements) => all.extend(elements),
                Err(PackedError::Damaged(why)) => damage = Some(why),
                // The room says so.
                Err(PackedError::TooLarge) => all = Vec::new(),
            }
        }
        Ok(match damage {
            None => Passed::within(room, SourceValue::List(all)),
            Some(why) => Passed::Damaged(why),
        })
    }

    /// What a module wrote: its identity, then parts that say what they are.
    fn pass_module(&mut self) -> Result<(), RdbError> {
        self.bytes.count()?;
        loop {
            match self.bytes.count()? {
                0 => return Ok(()),
                1 | 2 => drop(self.bytes.count()?),
                3 => drop(self.bytes.array::<4>()?),
                4 => drop(self.bytes.array::<8>()?),
                5 => drop(self.bytes.string()?),
                _ => return Err(self.bytes.wrong("a part of a module's value is of a kind that is not known")),
            }
        }
    }

    /// A stream with its groups of consumers.
    fn pass_stream(&mut self, kind: u8) -> Result<(), RdbError> {
        let (is_second, is_third) = (kind >= 19, kind >= 21);
        for _ in 0..self.bytes.count()? {
            self.bytes.string()?;
            self.bytes.string()?;
        }
        self.counts(if is_second { 8 } else { 3 })?;
        for _ in 0..self.bytes.count()? {
            self.bytes.string()?;
            self.counts(if is_second { 3 } else { 2 })?;
            for _ in 0..self.bytes.count()? {
                self.bytes.array::<24>()?;
                self.bytes.count()?;
            }
            for _ in 0..self.bytes.count()? {
                self.bytes.string()?;
                self.bytes.array::<8>()?;
                if is_third {
                    self.bytes.array::<8>()?;
                }
                for _ in 0..self.bytes.count()? {
                    self.bytes.array::<16>()?;
                }
            }
        }
        Ok(())
    }

    fn counts(&mut self, how_many: usize) -> Result<(), RdbError> {
        (0..how_many).try_for_each(|_| self.bytes.count().map(drop))
    }
}

/// A value that is one string of packed elements.
fn whole(kind: u8, text: &[u8], room: &mut Room) -> Result<SourceValue, PackedError> {
    let score = |(member, score): (Vec<u8>, Vec<u8>)| -> Result<(Vec<u8>, f64), PackedError> {
        let score = std::str::from_utf8(&score).ok().and_then(|score| score.parse().ok());
        Ok((member, score.ok_or("a score is no number")?))
    };
    let scored = |elements: Vec<Vec<u8>>| -> Result<Vec<_>, PackedError> {
        packed::pairs(elements)?.into_iter().map(score).collect()
    };
    Ok(match kind {
        9 => SourceValue::Hash(packed::zipmap(text, room)?),
        10 => SourceValue::List(packed::ziplist(text, room)?),
        11 => SourceValue::Set(packed::intset(text, room)?),
        12 => SourceValue::SortedSet(scored(packed::ziplist(text, room)?)?),
        13 => SourceValue::Hash(packed::pairs(packed::ziplist(text, room)?)?),
        16 => SourceValue::Hash(packed::pairs(packed::listpack(text, room)?)?),
        17 => SourceValue::SortedSet(scored(packed::listpack(text, room)?)?),
        _ => SourceValue::Set(packed::listpack(text, room)?),
    })
}

/// What holds for any bytes: run by the fuzzer (docs/fuzzing.md), and over its corpus by a test. A
/// file ends, with its end or with an error that says where; what it gives is no longer than what
/// LZF can make of it.
#[cfg(any(test, fuzzing))]
pub(crate) fn holds_for_any_file(file: &[u8]) {
    let mut reader = match RdbReader::new(file) {
        Ok(reader) => reader,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut items = 0;
    loop {
        let before = reader.offset();
        match reader.next() {
            Ok(RdbItem::End { .. }) => break,
            Ok(_) => items += 1,
            Err(error) => {
                assert!(error.offset <= file.len() as u64 && !error.to_string().is_empty());
                break;
            }
        }
        assert!(reader.offset() > before && items <= file.len());
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/import/rdb.rs"]
mod tests;
