//! What `stats detail` counts while it is on: gets, hits, sets and deletes of keys by what stands
//! before their first `:`.
//!
//! Its room is bounded: of later prefixes than those nothing is counted.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use stratakv_protocol::memcache::Detail;

use crate::server::lock;

/// Half a megabyte at most, mostly of keys.
const PREFIXES_MAX: usize = 1 << 11;
/// As memcached has it.
pub(crate) const DELIMITER: u8 = b':';

/// What was done to keys of one prefix.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Details {
    is_on: AtomicBool,
    prefixes: Mutex<BTreeMap<Box<[u8]>, Counts>>,
}

impl Details {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Carries out a command; the lines of a dump, without the end.
    pub(crate) fn command(&self, what: Detail) -> Vec<u8> {
        let mut lines = Vec::new();
        match what {
            Detail::On | Detail::Off => self.is_on.store(what == Detail::On, Ordering::Relaxed),
            Detail::Dump => {
                for (prefix, Counts { gets, hits, sets, deletes }) in lock(&self.prefixes).iter() {
                    lines.extend_from_slice(b"PREFIX ");
                    lines.extend_from_slice(prefix);
                    lines.extend(format!(" get {gets} hit {hits} set {sets} del {deletes}\r\n").into_bytes());
                }
            }
        }
        lines
    }

    /// Forgets what was counted.
    pub(crate) fn reset(&self) {
        lock(&self.prefixes).clear();
    }

    fn count(&self, key: &[u8], change: impl FnOnce(&mut Counts)) {
        if !self.is_on() {
            return;
        }
        let Some(end) = key.iter().position(|byte| *byte == DELIMITER) else { return };
        let prefix = key.get(..end).unwrap_or_default();
        // A line could not tell it.
        if prefix.iter().any(|byte| *byte <= b' ') {
            return;
        }
        let mut prefixes = lock(&self.prefixes);
        let has_room = prefixes.len() < PREFIXES_MAX;
        match prefixes.get_mut(prefix) {
            Some(counts) => change(counts),
            None if has_room => change(prefixes.entry(prefix.into()).or_default()),
            None => {}
        }
    }

    pub(crate) fn got(&self, key: &[u8], hit: bool) {
        self.count(key, |counts| {
            counts.gets += 1;
            counts.hits += u64::from(hit);
        });
    }

    pub(crate) fn set(&self, key: &[u8]) {
        self.count(key, |counts| counts.sets += 1);
    }

    pub(crate) fn deleted(&self, key: &[u8]) {
        self.count(key, |counts| counts.deletes += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_counted_while_it_is_on_and_their_room_is_bounded() {
        let details = Details::default();
        details.got(b"user:1", true);
        assert_eq!(details.command(Detail::Dump), b"");
        details.command(Detail::On);
        details.got(b"user:1", true);
        details.got(b"user:2", false);
        details.got(b"no prefix", true);
        details.got(b"a b:1", true);
        details.set(b"user:1:name");
        details.deleted(b"job:7");
        details.command(Detail::Off);
        details.set(b"user:1");
        let told = details.command(Detail::Dump);
        let expected = "PREFIX job get 0 hit 0 set 0 del 1\r\nPREFIX user get 2 hit 1 set 1 del 0\r\n";
        assert_eq!(told.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
        details.command(Detail::On);
        (0..2 * PREFIXES_MAX).for_each(|number| details.set(format!("{number}:").as_bytes()));
        assert_eq!(lock(&details.prefixes).len(), PREFIXES_MAX);
        details.reset();
        assert_eq!(details.command(Detail::Dump), b"");
    }
}
