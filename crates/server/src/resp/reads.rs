//! Reads of a part of a string, or of what is known of a record.

use stratakv_base::Key;
use stratakv_engine::{Error, Operation, RecordPart, Reply};
use stratakv_protocol::resp::{Version, encode};
use stratakv_structures::{Kind, STRUCTURE_FLAGS};

use super::bits::{self, BitRange};
use super::edit::too_long;
use super::many::ManyWork;
use super::records::WRONG_TYPE;
use super::reply::written;
use super::work::{ATTEMPTS_MAX, Asked, WorkContext, error_of};
use crate::connection::{Target, hash};

/// As Redis says it where it does not count.
const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
    Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.";

/// GETRANGE: a part of a value, counted from its front or its end.
#[derive(Clone, Debug)]
pub(crate) struct RangeRead {
    pub(super) key: Key,
    first: i64,
    last: i64,
    /// Longest answer.
    bytes_max: usize,
    /// The version whose length was asked for.
    measured: Option<u64>,
    is_measuring: bool,
    attempts: u32,
}

impl RangeRead {
    pub(crate) fn new(key: Key, (first, last): (i64, i64), bytes_max: usize) -> RangeRead {
        RangeRead { key, first, last, bytes_max, measured: None, is_measuring: false, attempts: 0 }
    }

    pub(super) fn begin(&mut self, asked: &mut Asked) -> Option<Vec<u8>> {
        // Of no bytes it is only asked what they are of.
        self.is_measuring = self.first < 0 || self.last < self.first;
        let part = match self.is_measuring {
            true => RecordPart::Meta,
            false => self.part(self.first.unsigned_abs(), self.last.unsigned_abs()),
        };
        asked.push((Target::Key, Operation::Get { key: self.key.clone(), part }));
        None
    }

    /// One byte more than may be answered, so that it can be told.
    fn part(&self, first: u64, last: u64) -> RecordPart {
        let len = last.saturating_sub(first).saturating_add(1).min(self.bytes_max as u64 + 1);
        RecordPart::Range { start: first, len }
    }

    pub(super) fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        let record = match reply {
            Reply::Failed(error) => return Some(error_of(&error, false, context)),
            Reply::Record(Some(record)) => record,
            _ => return Some(written(|out| encode::bulk(out, b""))),
        };
        if self.is_measuring {
            self.is_measuring = false;
            self.measured = Some(record.version);
            let length = i64::try_from(record.value_bytes).unwrap_or(i64::MAX);
            let from_front = |place: i64| if place < 0 { place.saturating_add(length) } else { place };
            let (first, last) = (from_front(self.first).max(0), from_front(self.last).max(0).min(length - 1));
            let is_backwards = self.first < 0 && self.last < 0 && self.last < self.first;
            if last < first || is_backwards {
                return Some(written(|out| encode::bulk(out, b"")));
            }
            let part = self.part(first.unsigned_abs(), last.unsigned_abs());
            asked.push((Target::Key, Operation::Get { key: self.key.clone(), part }));
            return None;
        }
        if self.measured.is_some_and(|measured| measured != record.version) {
            // It was written in between.
            self.attempts += 1;
            return match self.attempts > ATTEMPTS_MAX {
                true => Some(error_of(&Error::Busy, false, context)),
                false => self.begin(asked),
            };
        }
        let value = record.value.to_bytes();
        Some(written(|out| match value.len() > self.bytes_max {
            true => encode::error(out, &too_long(value.len() as u64, self.bytes_max)),
            false => encode::bulk(out, &value),
        }))
    }
}

/// GETBIT, BITCOUNT and BITPOS.
#[derive(Clone, Debug)]
pub(crate) struct BitRead {
    pub(crate) key: Key,
    pub(crate) question: BitQuestion,
    /// Longest value that is looked at.
    pub(crate) bytes_max: usize,
}

/// What is asked about the bits of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BitQuestion {
    /// Whether this one is set.
    Bit(usize),
    /// How many are set.
    Count(BitRange),
    /// Where the first one is that is set, or not.
    Position { is_set: bool, range: BitRange },
}

impl BitQuestion {
    /// The number that is answered of a value, or of none. Of one bit alone the byte is there.
    pub(super) fn answer(self, value: Option<&[u8]>) -> i64 {
        match (self, value) {
            (BitQuestion::Bit(place), value) => i64::from(bits::bit(value.unwrap_or_default(), place % 8)),
            (BitQuestion::Count(range), value) => bits::count(value.unwrap_or_default(), range),
            (BitQuestion::Position { is_set, range }, Some(value)) => bits::position(value, is_set, range),
            (BitQuestion::Position { is_set: true, .. }, None) => -1,
            (BitQuestion::Position { is_set: false, .. }, None) => 0,
        }
    }
}

impl BitRead {
    pub(super) fn part(&self) -> RecordPart {
        match self.question {
            BitQuestion::Bit(place) => RecordPart::Range { start: (place / 8) as u64, len: 1 },
            // One byte more, so that it can be told.
            _ => RecordPart::Range { start: 0, len: self.bytes_max as u64 + 1 },
        }
    }

    pub(super) fn end(&self, reply: Reply, context: &WorkContext<'_>) -> Vec<u8> {
        let value = match reply {
            Reply::Failed(error) => return error_of(&error, false, context),
            Reply::Record(Some(record)) => Some(record.value.to_bytes()),
            _ => None,
        };
        if let Some(value) = value.as_ref().filter(|value| value.len() > self.bytes_max) {
            return written(|out| encode::error(out, &too_long(value.len() as u64, self.bytes_max)));
        }
        let number = self.question.answer(value.as_deref());
        written(|out| encode::integer(out, number))
    }
}

/// STRLEN, TYPE and OBJECT.
#[derive(Clone, Debug)]
pub(crate) struct HeadRead {
    pub(crate) key: Key,
    pub(crate) question: HeadQuestion,
    /// The record is the root of a long structure.
    pub(crate) is_tree: bool,
    /// What tells more of one.
    pub(crate) of_tree: Option<Box<ManyWork>>,
}

/// What is asked about a record without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadQuestion {
    /// How long its value is, of a string.
    Length,
    /// What its type is called.
    Type,
    /// How it is laid out.
    Encoding,
    /// How many hold it: nothing is shared.
    References,
    /// How many seconds ago it was used last, as far as the server remembers it.
    IdleTime,
    /// How often it is used: nobody counts.
    Frequency,
    /// How many bytes its key and its value have.
    Memory,
}

impl HeadRead {
    pub(crate) fn new(key: Key, question: HeadQuestion) -> HeadRead {
        HeadRead { key, question, is_tree: false, of_tree: None }
    }

    /// What is answered of a record of this kind, or of none.
    pub(super) fn end(&self, reply: Reply, (kind, version): (Kind, Version), context: &WorkContext<'_>) -> Vec<u8> {
        let record = match reply {
            Reply::Failed(error) => return error_of(&error, false, context),
            Reply::Record(record) => record,
            _ => None,
        };
        written(|out| match (self.question, &record) {
            (HeadQuestion::Type, record) => {
                encode::simple(out, record.as_ref().map_or("none", |_| kind.name()));
            }
            (HeadQuestion::Length, None) => encode::integer(out, 0),
            (_, None) => encode::null(out, version),
            (HeadQuestion::Encoding, Some(_)) => {
                encode::bulk(out, encoding(kind, self.is_tree));
            }
            (HeadQuestion::References, Some(_)) => encode::integer(out, 1),
            (HeadQuestion::IdleTime, Some(_)) => {
                let (_, seconds) = context.here.recency.of(hash(&self.key), context.here.wall);
                encode::integer(out, seconds.into());
            }
            (HeadQuestion::Memory, Some(record)) => {
                let bytes = record.value_bytes.saturating_add(self.key.user().len() as u64);
                encode::integer(out, i64::try_from(bytes).unwrap_or(i64::MAX));
            }
            (HeadQuestion::Frequency, Some(_)) => encode::error(out, NO_FREQUENCY),
            (HeadQuestion::Length, Some(_)) if kind != Kind::String => encode::error(out, WRONG_TYPE),
            (HeadQuestion::Length, Some(record)) => {
                encode::integer(out, i64::try_from(record.value_bytes).unwrap_or(i64::MAX));
            }
        })
    }
}

/// What Redis calls the way in which a value is laid out that is most like ours.
fn encoding(kind: Kind, is_tree: bool) -> &'static [u8] {
    match (kind, is_tree) {
        (Kind::String, _) => b"raw",
        (Kind::Hash | Kind::Set, true) => b"hashtable",
        (Kind::List, true) => b"quicklist",
        (Kind::SortedSet, true) => b"skiplist",
        _ => b"listpack",
    }
}

/// Whether more has to be known to tell a record's type, which is in the front of its value.
pub(super) fn is_doubtful(reply: &Reply) -> bool {
    matches!(reply, Reply::Record(Some(record)) if record.flags == STRUCTURE_FLAGS)
}
