//! Replies to commands that are one operation.

use stratakv_base::{Expiry, Key, Wall};
use stratakv_engine::{Error, Record, Reply};
use stratakv_protocol::resp::{Version, encode};

use super::records::WRONG_TYPE;
use crate::answer::{AnswerContext, count_failure};
use crate::connection::hash;
use crate::counters::Counters;
use crate::output::Output;
use crate::structure::is_structure;

/// How the reply to an operation of one key is said.
#[derive(Clone, Debug)]
pub(crate) struct RespAnswer {
    pub(crate) key: Key,
    pub(crate) said: Said,
    pub(crate) version: Version,
}

/// See [`RespAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Its value.
    Value,
    /// The same as one of several values, where one of another type is none.
    OneOfValues,
    /// OK, or null where the condition does not hold; `counts`: 1 or 0.
    Stored { bytes: u64, expiry: Expiry, counts: bool },
    /// How many went: 1 or 0.
    Deleted,
    /// How many are there: 1 or 0.
    Exists,
    /// Whether it got an expiry: 1 or 0.
    Touched,
    /// When it expires.
    Ttl { in_seconds: bool, is_absolute: bool },
}

/// What is written by this.
pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// Counts a failed operation, and says it as an error.
pub(crate) fn failed(error: &Error, storing: bool, out: &mut Vec<u8>, counters: &Counters) {
    count_failure(error, storing, counters);
    let kind = match error {
        Error::Full(_) | Error::MemoryFull { .. } => "OOM",
        _ => "ERR",
    };
    encode::error(out, &format!("{kind} {error}"));
}

impl RespAnswer {
    /// Whether the client waits for the value.
    pub(crate) fn wants_value(&self) -> bool {
        matches!(self.said, Said::Value | Said::OneOfValues)
    }

    /// Begins the reply of a value that follows slice by slice.
    pub(crate) fn begin_value(&self, record: Record, out: &mut Output, here: &AnswerContext<'_>) {
        self.found(&record, here);
        out.text(|text| encode::bulk_header(text, record.value_bytes));
        out.push_value(record.value);
    }

    /// The reply of a value that is a structure.
    pub(crate) fn refuse_structure(&self, out: &mut Output) {
        out.text(|text| match self.said {
            Said::OneOfValues => encode::null(text, self.version),
            _ => encode::error(text, WRONG_TYPE),
        });
    }

    /// Appends the reply.
    pub(crate) fn write(self, reply: Option<Reply>, out: &mut Output, here: &AnswerContext<'_>) {
        let is_store = matches!(self.said, Said::Stored { .. });
        match (self.said, reply) {
            (_, Some(Reply::Failed(error))) => {
                if let Said::Stored { bytes, expiry, .. } = self.said {
                    here.log.stored(&self.key, "set", "not_stored", expiry, bytes);
                }
                out.text(|text| failed(&error, is_store, text, here.counters));
            }
            (Said::Value | Said::OneOfValues, Some(Reply::Record(Some(record)))) if is_structure(&record) => {
                self.refuse_structure(out);
            }
            (Said::Value | Said::OneOfValues, Some(Reply::Record(Some(record)))) => {
                let len = record.value.len();
                self.found(&record, here);
                out.text(|text| encode::bulk_header(text, len));
                out.push_value(record.value);
                out.push(b"\r\n");
            }
            (_, reply) => out.text(|text| self.say(reply.as_ref(), text, here)),
        }
    }

    fn say(&self, reply: Option<&Reply>, out: &mut Vec<u8>, here: &AnswerContext<'_>) {
        let record = match reply {
            Some(Reply::Record(record)) => record.as_ref(),
            _ => None,
        };
        match self.said {
            Said::Value | Said::OneOfValues => {
                here.counters.get_misses.add(1);
                here.log.fetched(&self.key, None);
                encode::null(out, self.version);
            }
            Said::Stored { bytes, expiry, counts } => {
                let stored = match reply {
                    Some(Reply::Done { version, .. }) => Some(*version),
                    _ => None,
                };
                self.stored(stored, (bytes, expiry), here);
                match (stored, counts) {
                    (Some(_), false) => encode::simple(out, "OK"),
                    (None, false) => encode::null(out, self.version),
                    (stored, true) => encode::integer(out, i64::from(stored.is_some())),
                }
            }
            Said::Deleted => {
                let existed = matches!(reply, Some(Reply::Done { existed: true, .. }));
                let counter = if existed { &here.counters.delete_hits } else { &here.counters.delete_misses };
                counter.add(1);
                here.log.deleted(&self.key);
                if existed {
                    here.nodes.removed(&self.key);
                }
                encode::integer(out, i64::from(existed));
            }
            Said::Exists => encode::integer(out, i64::from(record.is_some())),
            Said::Touched => {
                if let Some(record) = record {
                    here.marks.keep(&self.key, record.version, None, Some(record.expiry));
                }
                let counter = if record.is_some() { &here.counters.touch_hits } else { &here.counters.touch_misses };
                counter.add(1);
                encode::integer(out, i64::from(record.is_some()));
            }
            Said::Ttl { in_seconds, is_absolute } => {
                let told = record.map_or(-2, |record| ttl(record.expiry, in_seconds, is_absolute, here.wall));
                encode::integer(out, told);
            }
        }
    }

    fn found(&self, record: &Record, here: &AnswerContext<'_>) {
        here.counters.get_hits.add(1);
        here.recency.fetched(hash(&self.key), here.wall);
        here.log.fetched(&self.key, Some(record.value_bytes));
    }

    fn stored(&self, version: Option<u64>, (bytes, expiry): (u64, Expiry), here: &AnswerContext<'_>) {
        let status = if version.is_some() { "stored" } else { "not_stored" };
        here.log.stored(&self.key, "set", status, expiry, bytes);
        if let Some(version) = version {
            here.counters.total_items.add(1);
            here.marks.forget(&self.key, version);
            here.recency.stored(hash(&self.key), here.wall);
        }
    }
}

/// When a record expires, in words of TTL and its kin; -1 for never.
pub(super) fn ttl(expiry: Expiry, in_seconds: bool, is_absolute: bool, wall: Wall) -> i64 {
    if expiry == Expiry::NEVER {
        return -1;
    }
    let millis = if is_absolute { expiry.0 } else { expiry.0.saturating_sub(wall.0) };
    // As Redis rounds.
    let told = if in_seconds { (millis + 500) / 1000 } else { millis };
    i64::try_from(told).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_told_as_redis_rounds_it() {
        let (wall, expiry) = (Wall(1_000_000), Expiry(1_010_400));
        assert_eq!(ttl(expiry, true, false, wall), 10);
        assert_eq!(ttl(Expiry(1_010_500), true, false, wall), 11);
        assert_eq!(ttl(expiry, false, false, wall), 10_400);
        assert_eq!((ttl(expiry, true, true, wall), ttl(expiry, false, true, wall)), (1010, 1_010_400));
        assert_eq!(ttl(Expiry::NEVER, false, true, wall), -1);
        assert_eq!(ttl(Expiry(5), true, false, wall), 0, "it goes this very moment");
    }
}
