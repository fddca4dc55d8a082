//! What may be found under a key: kept by the client that writes it, outside the process that is
//! killed.

use crate::protocol::ReadRecord;
use crate::value;

/// The server's clock may be read up to this long before it is used, in seconds.
const CLOCK_LAG_SECONDS: u64 = 1;

/// When a question was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Wall-clock second before it was asked.
    pub from: u64,
    /// Wall-clock second after it was answered.
    pub to: u64,
    /// Flushes that had been acknowledged before it was asked.
    pub flushed: u64,
    /// Flushes that had been asked for when it was answered.
    pub flushes: u64,
    /// By a cache, which may have dropped anything.
    pub evicts: bool,
}

/// A write of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which of its key.
    pub sequence: u64,
    /// Wall-clock second, 0 for never.
    pub expiry: u32,
    /// Flushes that had been asked for when it was acknowledged or seen: each one after these takes
    /// it away. None while its outcome is not known.
    pub flushes: Option<u64>,
}

impl Write {
    /// A write that is about to be asked for.
    pub fn new(sequence: u64, expiry: u32) -> Write {
        Write { sequence, expiry, flushes: None }
    }
}

/// A key's state: a value, or nothing.
pub type State = Option<Write>;

/// Whether the key may be there, and whether it may be gone.
fn may_be(state: State, moment: Moment) -> (bool, bool) {
    match state {
        None => (false, true),
        Some(Write { flushes: Some(flushes), .. }) if flushes < moment.flushed => (false, true),
        Some(Write { expiry: 0, .. }) => (true, moment.evicts),
        Some(Write { expiry, .. }) => {
            let expiry = u64::from(expiry);
            (moment.from.saturating_sub(CLOCK_LAG_SECONDS) < expiry, moment.evicts || moment.to >= expiry)
        }
    }
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The last acknowledged or seen.
    pub acknowledged: State,
    /// Issued after it, in order; outcome not known.
    pub issued: Vec<State>,
    /// The last version seen, and of which write.
    version: Option<(u64, u64)>,
}

/// What a read settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Writes whose outcome was not known before.
    pub in_doubt: u64,
    /// One of them had happened.
    pub in_doubt_present: bool,
    /// A value is gone because its time has come.
    pub expired: bool,
}

impl Known {
    fn states(&self) -> impl DoubleEndedIterator<Item = State> {
        std::iter::once(self.acknowledged).chain(self.issued.iter().copied())
    }

    /// Whether the key may be there now, and whether it may be gone.
    pub fn may_be(&self, moment: Moment) -> (bool, bool) {
        self.states().map(|state| may_be(state, moment)).fold((false, false), |a, b| (a.0 || b.0, a.1 || b.1))
    }

    /// The version the key must have, if that is known and it is there.
    pub fn version(&self) -> Option<u64> {
        let write = self.acknowledged.filter(|_| self.issued.is_empty())?;
        self.version.filter(|(sequence, _)| *sequence == write.sequence).map(|(_, version)| version)
    }

    /// The state is `state` and nothing else, as an answer showed.
    pub fn settle(&mut self, state: State, moment: Moment) {
        let since = |write: Write| Write { flushes: write.flushes.or(Some(moment.flushes)), ..write };
        self.acknowledged = state.map(since);
        self.issued.clear();
    }

    /// A version was seen of write `sequence`.
    ///
    /// # Errors
    /// Versions of a key must grow from write to write, over any number of restarts, and a write
    /// keeps its own.
    pub fn note_version(&mut self, sequence: u64, version: u64) -> Result<(), String> {
        match self.version {
            Some((last, seen)) if last == sequence && seen != version => {
                return Err(format!("write {sequence} had version {seen} and has {version} now"));
            }
            Some((last, seen)) if last != sequence && seen >= version => {
                return Err(format!("write {sequence} has version {version}, but {last} before it had {seen}"));
            }
            _ => self.version = Some((sequence, version)),
        }
        Ok(())
    }

    /// Compares what a read shows, and settles on it.
    ///
    /// # Errors
    /// It is lost, old, torn, another key's or resurrected, or its version is not what it must be.
    pub fn read(&mut self, id: u64, found: Option<&ReadRecord>, moment: Moment) -> Result<Settled, String> {
        let in_doubt = self.issued.len() as u64;
        let Some(found) = found else {
            let gone = self.states().rev().find(|state| may_be(*state, moment).1);
            let Some(gone) = gone else { return Err(self.complain("nothing", moment)) };
            // Why a cache does not have it cannot be told.
            let is_told = !moment.evicts;
            let settled = Settled {
                in_doubt,
                in_doubt_present: is_told && gone != self.acknowledged,
                expired: is_told && gone.is_some(),
            };
            self.settle(None, moment);
            return Ok(settled);
        };
        let sequence = value::decode(id, &found.value)?;
        let state = self.states().rev().find(|state| state.is_some_and(|write| write.sequence == sequence));
        match state {
            Some(state) if may_be(state, moment).0 => {
                self.note_version(sequence, found.version)?;
                let settled = Settled { in_doubt, in_doubt_present: state != self.acknowledged, expired: false };
                self.settle(state, moment);
                Ok(settled)
            }
            Some(_) => Err(self.complain(&format!("{sequence}, whose time is over or which was flushed"), moment)),
            None => Err(self.complain(&sequence.to_string(), moment)),
        }
    }

    fn complain(&self, found: &str, moment: Moment) -> String {
        format!("found {found} at {moment:?}; acknowledged was {:?}, issued since {:?}", self.acknowledged, self.issued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment { from: 1000, to: 1001, flushed: 0, flushes: 0, evicts: false };

    fn write(sequence: u64) -> State {
        Some(Write::new(sequence, 0))
    }

    fn known(acknowledged: State, issued: &[State]) -> Known {
        Known { acknowledged, issued: issued.to_vec(), version: None }
    }

    fn found(sequence: u64, version: u64) -> ReadRecord {
        ReadRecord { value: value::encode(1, sequence, 100), version }
    }

    fn reads(known: &Known, sequence: Option<u64>) -> bool {
        known.clone().read(1, sequence.map(|sequence| found(sequence, sequence)).as_ref(), NOW).is_ok()
    }

    #[test]
    fn the_last_acknowledged_and_what_was_issued_since_may_be_found() {
        let open = known(write(5), &[write(6), None]);
        assert!([Some(5), Some(6), None].into_iter().all(|sequence| reads(&open, sequence)));
        assert!(!reads(&open, Some(4)), "an older value");
        let deleted = known(None, &[]);
        assert!(reads(&deleted, None));
        assert!(!reads(&deleted, Some(4)), "a resurrected value");
        assert!(!reads(&known(write(5), &[]), None), "a lost value");
    }

    #[test]
    fn what_a_restart_showed_is_settled() {
        let mut known = known(write(5), &[write(6)]);
        let settled = known.read(1, Some(&found(6, 6)), NOW).expect("6 was issued");
        assert_eq!(settled, Settled { in_doubt: 1, in_doubt_present: true, expired: false });
        assert!(!reads(&known, Some(5)), "5 was seen to be overwritten");
    }

    #[test]
    fn a_cache_shows_the_newest_or_nothing() {
        let cache = Moment { evicts: true, ..NOW };
        let shows = |known: &Known, sequence: Option<u64>| {
            known.clone().read(1, sequence.map(|sequence| found(sequence, sequence)).as_ref(), cache).is_ok()
        };
        let open = known(write(5), &[write(6)]);
        assert!([Some(5), Some(6), None].into_iter().all(|sequence| shows(&open, sequence)));
        assert!(!shows(&open, Some(4)), "an older value");
        assert!(!shows(&known(None, &[]), Some(4)), "a deleted value");
        let mut gone = known(write(5), &[]);
        gone.read(1, None, cache).expect("it may be evicted");
        assert!(!shows(&gone, Some(5)), "it was seen to be gone");
    }

    #[test]
    fn what_was_there_before_a_flush_must_not_be_found_after_it() {
        let at = |flushed, flushes| Moment { flushed, flushes, evicts: true, ..NOW };
        let mut known = Known::default();
        known.settle(write(5), at(1, 2));
        let shows = |known: &Known, moment| known.clone().read(1, Some(&found(5, 5)), moment).is_ok();
        assert!(shows(&known, at(2, 2)), "the flush was under way when it was acknowledged");
        assert!(shows(&known, at(2, 3)), "another one is under way");
        assert!(!shows(&known, at(3, 3)), "flushed");
        known.read(1, Some(&found(5, 5)), at(2, 3)).expect("not flushed yet");
        assert!(!shows(&known, at(3, 3)), "what was seen during a flush is older than the flush all the same");
        known.settle(None, at(3, 3));
        known.issued.push(write(5));
        assert!(shows(&known, at(9, 9)), "it may have happened after any flush");
    }

    #[test]
    fn a_torn_value_and_another_keys_value_are_refused() {
        let mut known = known(write(5), &[]);
        let mut torn = found(5, 5);
        torn.value[60] ^= 0x10;
        assert!(known.read(1, Some(&torn), NOW).is_err());
        let other = ReadRecord { value: value::encode(2, 5, 100), version: 5 };
        assert!(known.read(1, Some(&other), NOW).is_err());
    }

    #[test]
    fn an_expired_value_must_not_be_found_and_one_that_lives_must() {
        let expiring = |expiry| known(Some(Write::new(5, expiry)), &[]);
        assert!(reads(&expiring(1005), Some(5)) && !reads(&expiring(1005), None), "it lives");
        assert!(reads(&expiring(990), None) && !reads(&expiring(990), Some(5)), "its time is over");
        assert!(reads(&expiring(1001), None) && reads(&expiring(1001), Some(5)), "it may be either");
        let mut gone = expiring(990);
        assert!(gone.read(1, None, NOW).is_ok_and(|settled| settled.expired));
        assert_eq!(gone.acknowledged, None);
    }

    #[test]
    fn versions_grow_and_a_write_keeps_its_own() {
        let mut known = known(write(5), &[]);
        known.read(1, Some(&found(5, 70)), NOW).expect("the first version");
        assert_eq!(known.version(), Some(70));
        assert!(known.clone().read(1, Some(&found(5, 71)), NOW).is_err(), "the same write, another version");
        known.settle(write(6), NOW);
        assert_eq!(known.version(), None);
        assert!(known.clone().read(1, Some(&found(6, 70)), NOW).is_err(), "a version used twice");
        assert!(known.clone().read(1, Some(&found(6, 69)), NOW).is_err(), "a version that shrank");
        known.read(1, Some(&found(6, 71)), NOW).expect("a larger version");
    }
}
