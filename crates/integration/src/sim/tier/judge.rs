//! What a cache may answer for a key: the newest, or nothing.
//!
//! The writes of a key are numbered in the order in which they were handed over. The *floor* is the
//! newest one that was acknowledged, or seen by a read. A read may show a write from the floor at
//! its asking on; what it shows raises the floor. After a crash the same holds. Values say which
//! write they are of.

use std::collections::{BTreeMap, BTreeSet};

use stratakv_base::random::Random;
use stratakv_base::{Expiry, Wall};
use stratakv_engine::{Expect, Record};

const MAGIC: &[u8; 4] = b"TIER";
const TRAILER: usize = 12;
/// A touch sets this expiry, plus the number of the write.
pub(super) const TOUCHED: u64 = 3_000_000_000_000;

/// Bytes that tell whose they are: of this write, so many, and a trailer.
pub(super) fn piece(key: usize, write: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new((key as u64) << 32 ^ write << 8 ^ len as u64).fill(&mut bytes);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&write.to_le_bytes());
    bytes
}

/// What a write does.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Answered that it changed nothing.
    Refused,
    Gone,
    Put {
        len: usize,
        expiry: Expiry,
        expect: Expect,
    },
    /// Of the newest at its time: of the floor when it was asked, or later.
    Append {
        len: usize,
        floor: u64,
    },
    Touch {
        floor: u64,
    },
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    writes: Vec<What>,
    /// The oldest write that a read may still show.
    pub(super) floor: u64,
    /// Versions heard of, and whose they are.
    pub(super) versions: BTreeMap<u64, u64>,
    /// Under way when a life ended: they may have happened or not.
    doubtful: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Judge {
    pub(super) keys: Vec<History>,
    /// A get for meta data may be under way: its value is empty.
    pub(super) meta_only: bool,
    highest_version: u64,
}

impl Judge {
    pub(super) fn new(keys: usize) -> Judge {
        Judge { keys: vec![History::default(); keys], meta_only: false, highest_version: 0 }
    }

    /// A put or a delete is handed over: its number.
    pub(super) fn begin(&mut self, key: usize, put: Option<(usize, usize, Expiry)>, expect: Expect) -> u64 {
        let what = put.map_or(What::Gone, |(_, len, expiry)| What::Put { len, expiry, expect });
        self.keys[key].writes.push(what);
        self.keys[key].writes.len() as u64
    }

    /// An update is handed over: its number. It is a touch unless it is said to be an append.
    pub(super) fn begin_update(&mut self, key: usize) -> u64 {
        let history = &mut self.keys[key];
        history.writes.push(What::Touch { floor: history.floor });
        history.writes.len() as u64
    }

    pub(super) fn note_append(&mut self, key: usize, write: u64, len: usize) {
        let floor = self.keys[key].floor;
        self.keys[key].writes[write as usize - 1] = What::Append { len, floor };
    }

    /// It changed nothing.
    pub(super) fn refused(&mut self, key: usize, write: u64) {
        self.keys[key].writes[write as usize - 1] = What::Refused;
    }

    /// The life ended before it was answered.
    pub(super) fn left_open(&mut self, key: usize, write: u64) {
        self.keys[key].doubtful.insert(write);
    }

    pub(super) fn raise(&mut self, key: usize, write: u64) {
        let floor = &mut self.keys[key].floor;
        *floor = write.max(*floor);
    }

    pub(super) fn acknowledged(&mut self, key: usize, write: u64, version: u64, flips: bool) -> Result<(), String> {
        let history = &self.keys[key];
        if let What::Put { expect: Expect::Version(wanted), .. } = history.writes[write as usize - 1] {
            let of = history.versions.get(&wanted).copied().unwrap_or(0);
            let before = history.floor.min(write - 1);
            let is_newest = (of + 1..=before).all(|number| history.may_have_changed_nothing(number));
            if !is_newest && !flips {
                return Err(format!("version {wanted} is that of write {of}, though {before} was acknowledged"));
            }
        }
        if version > 0 && !flips {
            self.version(key, write, version)?;
        }
        self.raise(key, write);
        Ok(())
    }

    /// For messages: the last writes of a key.
    pub(super) fn describe(&self, key: Option<usize>) -> String {
        let Some(history) = key.and_then(|key| self.keys.get(key)) else { return String::new() };
        let first = history.writes.len().saturating_sub(8);
        format!(
            "floor {}, writes from {}: {:?}, versions {:?}",
            history.floor,
            first + 1,
            &history.writes[first..],
            history.versions.iter().rev().take(6).collect::<Vec<_>>()
        )
    }

    fn version(&mut self, key: usize, write: u64, version: u64) -> Result<(), String> {
        self.highest_version = self.highest_version.max(version);
        let versions = &mut self.keys[key].versions;
        if let Some(known) = versions.insert(version, write).filter(|known| *known != write) {
            return Err(format!("version {version} is that of write {known} and of {write}"));
        }
        let earlier = versions.range(..version).next_back().is_some_and(|(_, other)| *other > write);
        let later = versions.range(version + 1..).next().is_some_and(|(_, other)| *other < write);
        if earlier || later {
            Err(format!("version {version} of write {write} is out of order: {versions:?}"))
        } else {
            Ok(())
        }
    }

    /// A touch was answered with this record.
    pub(super) fn touched(
        &mut self,
        key: usize,
        write: u64,
        record: &Record,
        wall: Wall,
        flips: bool,
    ) -> Result<(), String> {
        if record.expiry != Expiry(TOUCHED + write) {
            return Err(format!("touched to {:?}", record.expiry));
        }
        let floor = self.keys[key].floor.min(write);
        self.seen(key, floor, record, wall, flips)
    }

    /// A read was answered with this record, when the floor at its asking was this.
    pub(super) fn seen(
        &mut self,
        key: usize,
        floor: u64,
        record: &Record,
        wall: Wall,
        flips: bool,
    ) -> Result<(), String> {
        if record.expiry.is_past(wall) {
            return Err(format!("it expired at {:?}, now it is {wall:?}", record.expiry));
        }
        let value = record.value.to_bytes();
        if value.is_empty() && self.meta_only {
            return Ok(());
        }
        let floor = if flips { 0 } else { floor };
        let write = self.keys[key].state_of(key, &value, record, floor)?;
        if flips {
            return Ok(());
        }
        self.version(key, write, record.version)?;
        self.raise(key, write);
        Ok(())
    }
}

impl History {
    fn what(&self, write: u64) -> Option<What> {
        self.writes.get((write as usize).checked_sub(1)?).copied()
    }

    /// Which write left this record. Not one before `floor`.
    fn state_of(&self, key: usize, value: &[u8], record: &Record, floor: u64) -> Result<u64, String> {
        let touch = record.expiry.0.saturating_sub(TOUCHED);
        let (write, from) = match self.what(touch) {
            // What it was before the touch was the newest then.
            Some(What::Touch { floor: before }) if touch > 0 => {
                let of_value = self.value_of(key, value, record, 0)?;
                if !self.may_be_under(of_value, before) {
                    return Err(format!("touch {touch} was of write {of_value}, though {before} was acknowledged"));
                }
                (touch.max(of_value), floor)
            }
            _ => (self.value_of(key, value, record, floor)?, floor),
        };
        if write < from {
            return Err(format!(
                "it is of write {write}; the newest that was acknowledged or seen is {from}, of {}",
                self.writes.len()
            ));
        }
        Ok(write)
    }

    /// Whether the value of a write was the newest when the floor was this: what came between
    /// changed no value.
    fn may_be_under(&self, write: u64, floor: u64) -> bool {
        let is_transparent = |number| matches!(self.what(number), Some(What::Touch { .. }));
        (write + 1..=floor).all(|number| is_transparent(number) || self.may_have_changed_nothing(number))
    }

    fn may_have_changed_nothing(&self, write: u64) -> bool {
        self.doubtful.contains(&write) || matches!(self.what(write), Some(What::Refused))
    }

    /// Which write left this value. What an append was applied to was the newest then.
    fn value_of(&self, key: usize, value: &[u8], record: &Record, floor: u64) -> Result<u64, String> {
        let Some(trailer) = value.len().checked_sub(TRAILER).map(|at| &value[at..]) else {
            return Err(format!("a value of {} bytes that nobody wrote", value.len()));
        };
        let mut number = [0; 8];
        number.copy_from_slice(&trailer[4..]);
        let write = u64::from_le_bytes(number);
        if &trailer[..4] != MAGIC || write < floor {
            return Err(format!("its value is of write {write}; the newest that was acknowledged or seen is {floor}"));
        }
        match self.what(write) {
            Some(What::Put { len, expiry, .. }) => {
                let is_it = value == piece(key, write, len) && record.flags == write as u32;
                let is_touched = record.expiry.0 >= TOUCHED;
                if is_it && (is_touched || record.expiry == expiry) {
                    Ok(write)
                } else {
                    Err(format!("not what write {write} wrote: {:?}", record.expiry))
                }
            }
            Some(What::Append { len, floor }) => {
                let own = piece(key, write, len);
                let before = value.strip_suffix(&own[..]).ok_or_else(|| format!("not what append {write} wrote"))?;
                let of = self.value_of(key, before, record, 0)?;
                if !self.may_be_under(of, floor) {
                    return Err(format!("append {write} was applied to write {of}, though {floor} was acknowledged"));
                }
                Ok(write)
            }
            other => Err(format!("write {write} wrote no value: {other:?}")),
        }
    }
}
