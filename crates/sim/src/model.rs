//! The model: what a store owes for each key.
//!
//! A key's history is the list of states after each write in the order the writes were handed over:
//! an engine takes the writes of a key in that order. A read must return a state between the last
//! write acknowledged before it was asked and the last one handed over; after a crash the key is in
//! the state of its last durable write or of a later one.

use bytes::Bytes;
use stratakv_base::{Expiry, Wall};
use stratakv_engine::Record;

/// A record as the model keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRecord {
    /// The value.
    pub value: Bytes,
    /// As written.
    pub flags: u32,
    /// As written.
    pub expiry: Expiry,
}

/// What a key holds.
pub type State = Option<ModelRecord>;

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not answered yet, or answered that the outcome is unknown: it may or may not hold.
    Open,
    /// Acknowledged.
    Done,
    /// Refused: it changed nothing.
    Void,
}

/// A write of a key.
#[derive(Clone, Debug)]
pub struct Write {
    /// The state it leaves.
    pub after: State,
    /// Its outcome.
    pub fate: Fate,
    /// Asked for at `power_loss`.
    pub power_loss: bool,
    /// Its version, once known.
    pub version: Option<u64>,
}

/// The writes of one key since the last crash.
#[derive(Clone, Debug, Default)]
pub struct History {
    base: State,
    base_version: Option<u64>,
    writes: Vec<Write>,
    /// Writes up to here must be seen by reads asked from now on.
    acked: usize,
    /// Writes up to here survive a power cut.
    durable: usize,
    /// States before the last crash, where the disk may lie.
    past: Vec<State>,
    /// The base is not known: any earlier state, or one that cannot be read.
    damaged: bool,
    /// A bit of the base turned on the medium: it may say that it is damaged, and is the base where
    /// it does not.
    rotted: bool,
}

/// What a snapshot sees of a key: the state that one of these writes left, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The last write that was acknowledged when the snapshot was asked for.
    pub from: usize,
    /// The last one that was handed over when it was there.
    pub to: usize,
    /// Damage has made the writes' numbers meaningless: any state that the key ever had.
    pub is_lost: bool,
}

/// What a read saw of a key.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// That it does not exist.
    Absent,
    /// That it exists (a scan of keys).
    Present,
    /// Flags, expiry, version and the bytes `start..` of the value, up to `len`.
    Record(&'a Record, (u64, u64)),
}

impl<'a> Seen<'a> {
    /// A whole record, or none.
    pub fn whole(record: Option<&'a Record>) -> Seen<'a> {
        record.map_or(Seen::Absent, |record| Seen::Record(record, (0, u64::MAX)))
    }

    fn is(&self, state: &State, wall: Wall) -> bool {
        let state = state.as_ref().filter(|held| !held.expiry.is_past(wall));
        match (self, state) {
            (Seen::Absent, None) | (Seen::Present, Some(_)) => true,
            (Seen::Record(record, (start, len)), Some(held)) => {
                let all = held.value.len();
                let from = (*start as usize).min(all);
                let to = (*start as usize).saturating_add(*len as usize).min(all);
                (record.flags, record.expiry, record.value_bytes) == (held.flags, held.expiry, all as u64)
                    && is_equal(record, &held.value[from..to])
            }
            _ => false,
        }
    }
}

fn is_equal(record: &Record, mut expected: &[u8]) -> bool {
    if record.value.len() != expected.len() as u64 {
        return false;
    }
    for slice in record.value.slices() {
        let Some((front, rest)) = expected.split_at_checked(slice.len()) else { return false };
        if front != slice {
            return false;
        }
        expected = rest;
    }
    expected.is_empty()
}

impl History {
    /// The state after everything handed over so far.
    pub fn newest(&self) -> &State {
        let last = self.writes.iter().rev().find(|write| write.fate != Fate::Void);
        last.map_or(&self.base, |write| &write.after)
    }

    /// Version of the newest write, where it is known.
    pub fn newest_version(&self) -> Option<u64> {
        match self.writes.iter().rev().find(|write| write.fate != Fate::Void) {
            Some(write) => write.version,
            None => self.base_version,
        }
    }

    /// Whether no write is under way or in doubt.
    pub fn is_certain(&self) -> bool {
        self.writes.iter().all(|write| write.fate != Fate::Open)
    }

    /// Whether what the key holds is known: not after damage, until it is written again.
    pub fn is_known(&self) -> bool {
        !(self.damaged || self.rotted) || self.acked > 0
    }

    /// Whether a read may find damage, if writes up to `from` must be visible: what was written
    /// since is whole.
    pub fn may_be_damaged(&self, from: usize) -> bool {
        (self.damaged || self.rotted) && from == 0
    }

    /// The number up to which a read asked now must see.
    pub fn acked(&self) -> usize {
        self.acked
    }

    /// Notes a write; its number.
    pub fn hand_over(&mut self, after: State, power_loss: bool) -> usize {
        self.writes.push(Write { after, fate: Fate::Open, power_loss, version: None });
        self.writes.len()
    }

    /// The write was refused.
    pub fn refused(&mut self, number: usize) {
        self.writes[number - 1].fate = Fate::Void;
    }

    /// The write was acknowledged.
    pub fn acknowledged(&mut self, number: usize) {
        let write = &mut self.writes[number - 1];
        write.fate = Fate::Done;
        self.acked = self.acked.max(number);
        if write.power_loss {
            self.durable = self.durable.max(number);
        }
    }

    /// Writes up to `number` were made durable by other means.
    pub fn made_durable(&mut self, number: usize) {
        self.durable = self.durable.max(number.min(self.writes.len()));
    }

    /// What was acknowledged is durable: after an orderly close. What failed on the way, as a part
    /// of a range may, stays in doubt.
    pub fn closed(&mut self) {
        self.durable = self.acked;
    }

    /// Learns a write's version. It must exceed those of earlier writes of the key.
    ///
    /// # Errors
    /// It does not, or it is not the one heard before.
    pub fn versioned(&mut self, number: usize, version: u64) -> Result<(), String> {
        let earlier = self.writes[..number - 1].iter().filter_map(|write| write.version).chain(self.base_version).max();
        let write = &mut self.writes[number - 1];
        if earlier.is_some_and(|earlier| version <= earlier) || write.version.is_some_and(|known| known != version) {
            return Err(format!(
                "write {number} has version {version}, known {:?}, before it {earlier:?}",
                write.version
            ));
        }
        write.version = Some(version);
        Ok(())
    }

    /// The number of a state that a read may have seen if writes up to `from` must be visible: 0 is
    /// the state before all writes.
    pub fn find(&self, from: usize, seen: Seen<'_>, wall: Wall) -> Option<usize> {
        let damaged = || self.may_be_damaged(from) && self.is_of_damage(seen, wall);
        self.find_known(from, seen, wall).or_else(|| damaged().then_some(0))
    }

    fn find_known(&self, from: usize, seen: Seen<'_>, wall: Wall) -> Option<usize> {
        self.counted(from, self.writes.len()).find(|number| seen.is(self.state(*number), wall))
    }

    /// What the key holds after write `number`; 0: before all of them.
    fn state(&self, number: usize) -> &State {
        number.checked_sub(1).map_or(&self.base, |write| &self.writes[write].after)
    }

    /// Whether there is such a state: a write that was refused left none.
    fn counts(&self, number: usize) -> bool {
        number.checked_sub(1).is_none_or(|write| self.writes[write].fate != Fate::Void)
    }

    /// The states from the one that held after write `from`, up to `to`.
    fn counted(&self, from: usize, to: usize) -> impl DoubleEndedIterator<Item = usize> {
        let first = (0..=from).rev().find(|number| self.counts(*number)).unwrap_or(0);
        (first..=to).filter(|number| self.counts(*number))
    }

    /// Narrows a cut by what is known of the writes by now: those that were refused, and those of
    /// which the version tells on which side of the snapshot's they lie.
    fn narrowed(&self, cut: Cut, version: u64) -> impl DoubleEndedIterator<Item = usize> {
        let to = cut.to.min(self.writes.len());
        let known = |number: usize| number.checked_sub(1).and_then(|at| self.writes[at].version);
        let behind =
            (1..=to).find(|number| self.counts(*number) && known(*number).is_some_and(|known| known > version));
        let to = behind.map_or(to, |behind| behind - 1);
        let seen =
            (1..=to).rev().find(|number| self.counts(*number) && known(*number).is_some_and(|known| known <= version));
        let from = cut.from.min(to).max(seen.unwrap_or(0));
        self.counted(from, to)
    }

    /// Whether a snapshot up to `version` may show this; then the cut is narrowed to the one write
    /// that it can be, if it is one.
    pub fn shows(&self, cut: &mut Cut, version: u64, seen: Seen<'_>, wall: Wall) -> bool {
        if cut.is_lost {
            return (0..=self.writes.len())
                .map(|number| self.state(number))
                .chain(&self.past)
                .any(|state| seen.is(state, wall))
                || matches!(seen, Seen::Absent);
        }
        let mut fitting = self.narrowed(*cut, version).filter(|number| seen.is(self.state(*number), wall));
        match (fitting.next(), fitting.next()) {
            (Some(only), None) if !self.damaged && !self.rotted => {
                (cut.from, cut.to) = (only, only);
                true
            }
            (Some(_), _) => true,
            (None, _) => self.may_be_damaged(cut.from) && self.is_of_damage(seen, wall),
        }
    }

    /// Whether it is what may be seen of a key whose base is damaged.
    fn is_of_damage(&self, seen: Seen<'_>, wall: Wall) -> bool {
        let earlier = || self.past.iter().any(|state| seen.is(state, wall));
        // When a damaged record expires is not known: a scan of keys may show it.
        let listed = || matches!(seen, Seen::Present) && (self.rotted || self.past.iter().any(Option::is_some));
        self.damaged && earlier() || listed()
    }

    /// Whether only one of the states that [`History::find`] may take fits: writes that leave the
    /// same, as two touches do, cannot be told apart.
    pub fn is_only(&self, from: usize, seen: Seen<'_>, wall: Wall) -> bool {
        (from..=self.writes.len()).filter(|number| seen.is(self.state(*number), wall)).count() <= 1
    }

    /// A read was answered with state `number`: later reads see no older one; and what is shown is
    /// durable at its level.
    ///
    /// # Errors
    /// The record's version is not that of the write.
    pub fn read(&mut self, number: usize, version: Option<u64>) -> Result<(), String> {
        self.acked = self.acked.max(number);
        if number == 0 {
            return match (self.base_version, version) {
                (Some(known), Some(found)) if known != found => {
                    Err(format!("the record has version {found}, it had {known}"))
                }
                _ => Ok(()),
            };
        }
        // A value tells which write it is of; absence does not.
        if version.is_some() && self.writes[number - 1].power_loss {
            self.durable = self.durable.max(number);
        }
        version.map_or(Ok(()), |version| self.versioned(number, version))
    }

    /// The number from which states are allowed after a crash.
    pub fn owed(&self, power_loss_only: bool) -> usize {
        if power_loss_only { self.durable } else { self.acked }
    }

    /// After a crash: which state holds now. `None`: one that the key never had. `from` is what was
    /// owed; older states count only where the disk lies.
    pub fn recovered(&mut self, from: usize, record: Option<&Record>, wall: Wall, lies: bool) -> Option<Recovered> {
        let seen = Seen::whole(record);
        let found = match self.find_known(from, seen, wall) {
            Some(number) => Recovered { older: false, state: self.state(number).clone() },
            None if lies || self.may_be_damaged(from) && self.damaged => {
                let all = (0..=self.writes.len()).map(|number| self.state(number)).chain(&self.past);
                let older = all.into_iter().find(|state| seen.is(state, wall))?;
                Recovered { older: lies, state: older.clone() }
            }
            None => return None,
        };
        if lies {
            self.past.push(std::mem::take(&mut self.base));
            self.past.extend(self.writes.drain(..).map(|write| write.after));
        }
        let past = std::mem::take(&mut self.past);
        let base_version = record.map(|record| record.version);
        *self = History { base: found.state.clone(), base_version, past, ..History::default() };
        Some(found)
    }

    /// After a crash the key cannot be read: its record is damaged. It stands for nothing until it
    /// is written again.
    pub fn damaged(&mut self) {
        let past = std::mem::take(&mut self.past);
        let mut states: Vec<State> = past;
        states.push(std::mem::take(&mut self.base));
        states.extend(self.writes.drain(..).map(|write| write.after));
        *self = History { past: states, damaged: true, ..History::default() };
    }

    /// After a crash a bit of the key's record is found turned. What it held is known, but for
    /// writes in doubt beyond what is owed; a read gives that or says that it is damaged. (Not
    /// always the latter: a get may find damage in a filter that a scan does not look at.)
    pub fn rotted(&mut self, from: usize) {
        let version =
            |number: usize| number.checked_sub(1).map_or(self.base_version, |write| self.writes[write].version);
        let states = self.counted(from, self.writes.len()).map(|number| (self.state(number).clone(), version(number)));
        let states = states.collect();
        self.unreadable(states);
    }

    /// After a crash the key is still as a turned bit left it: nothing that a get would have found
    /// first was made durable since. A delete of a range it meets later.
    pub fn still_rotted(&mut self) {
        let base = (std::mem::take(&mut self.base), self.base_version);
        let deletes = self.writes.iter().filter(|write| write.fate != Fate::Void && write.after.is_none());
        let others = deletes.map(|_| None).chain(std::mem::take(&mut self.past));
        self.unreadable(std::iter::once(base).chain(others.map(|state| (state, None))).collect());
    }

    /// It is one of these, and may say that it is damaged.
    fn unreadable(&mut self, mut states: Vec<(State, Option<u64>)>) {
        let (base, version) = states.remove(0);
        let past: Vec<State> = states.into_iter().map(|(state, _)| state).filter(|state| *state != base).collect();
        let (damaged, base_version) = (!past.is_empty(), version.filter(|_| past.is_empty()));
        *self = History { base, base_version, past, damaged, rotted: true, ..History::default() };
    }

    /// Pages that the key may take when space is looked for: the largest of its states since the
    /// last crash, for one may still be there when the next is acknowledged, and what is in doubt.
    pub fn pages_max(&self, key_bytes: usize) -> u64 {
        let pages = |write: &Write| pages_of(&write.after, key_bytes);
        let held = self.writes.iter().map(pages).chain([pages_of(&self.base, key_bytes)]).max();
        held.unwrap_or(0) + self.writes.iter().filter(|write| write.fate == Fate::Open).map(pages).sum::<u64>()
    }

    /// Whether the state that the first `number` writes leave has been answered for: what a refusal
    /// rests on.
    pub fn is_answered(&self, number: usize) -> bool {
        let mut writes = self.writes[..number].iter().rev().filter(|write| write.fate != Fate::Void).peekable();
        // What a delete of a range has removed is gone before the range is answered.
        let Some(last) = writes.peek().map(|write| &write.after).filter(|after| after.is_some()) else { return true };
        match writes.find(|write| write.fate == Fate::Done || &write.after != last) {
            Some(write) => &write.after == last,
            None => &self.base == last,
        }
    }

    /// Pages that all its states since the last crash take: as many as snapshots can keep.
    pub fn pages_of_all(&self, key_bytes: usize) -> u64 {
        let writes = self.writes.iter().map(|write| pages_of(&write.after, key_bytes));
        writes.chain([pages_of(&self.base, key_bytes)]).sum()
    }

    /// Writes handed over.
    pub fn writes(&self) -> usize {
        self.writes.len()
    }

    /// The largest of the writes in doubt, in pages.
    pub fn open_pages(&self, key_bytes: usize) -> u64 {
        let open = self.writes.iter().filter(|write| write.fate == Fate::Open);
        open.map(|write| pages_of(&write.after, key_bytes)).max().unwrap_or_default()
    }

    /// The states that a write and those after it leave.
    pub fn states_from(&self, number: usize) -> Vec<State> {
        self.writes[number - 1..].iter().map(|write| write.after.clone()).collect()
    }

    /// The state a write leaves.
    pub fn after(&self, number: usize) -> &State {
        &self.writes[number - 1].after
    }

    /// For messages: the states by number, short.
    pub fn describe(&self) -> String {
        let short = |state: &State| match state {
            None => "-".to_owned(),
            Some(held) => format!("{}B{}", held.value.len(), if held.expiry.0 == 0 { "" } else { "+ttl" }),
        };
        let base = match (self.damaged, self.rotted) {
            (true, _) => "damaged".to_owned(),
            (_, true) => format!("rotted {}", short(&self.base)),
            _ => short(&self.base),
        };
        let mut text = format!("acked {} durable {}; 0: {base}", self.acked, self.durable);
        for (number, write) in (1..).zip(&self.writes) {
            let level = if write.power_loss { "power" } else { "process" };
            text += &format!(", {number}: {} {:?} {level}", short(&write.after), write.fate);
        }
        text
    }
}

/// Pages that a record takes at most: one of its own, or a run. Rounded up.
pub fn pages_of(state: &State, key_bytes: usize) -> u64 {
    match state.as_ref().map(|held| key_bytes + held.value.len() + 64) {
        None => 0,
        Some(0..4000) => 1,
        Some(bytes) => bytes as u64 / 4096 + 2,
    }
}

/// What a key turned out to be after a crash.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// It went back behind what was owed: only a lying disk does that.
    pub older: bool,
    /// The state.
    pub state: State,
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratakv_engine::Value;

    fn held(text: &'static str) -> State {
        Some(ModelRecord { value: Bytes::from_static(text.as_bytes()), flags: 0, expiry: Expiry::NEVER })
    }

    fn record(text: &'static str, version: u64) -> Record {
        let value = Value::Inline(Bytes::from_static(text.as_bytes()));
        Record { value, value_bytes: text.len() as u64, flags: 0, version, expiry: Expiry::NEVER }
    }

    /// The oracle is seen to fail, rule by rule.
    #[test]
    fn what_is_not_owed_is_not_allowed() {
        let wall = Wall(10);
        let mut history = History::default();
        let one = history.hand_over(held("one"), true);
        let two = history.hand_over(held("two"), false);
        assert!(history.find(0, Seen::Absent, wall).is_some(), "nothing is acknowledged yet");
        history.acknowledged(one);
        assert_eq!(history.find(history.acked(), Seen::Absent, wall), None, "an acknowledged write is lost");
        assert_eq!(history.find(history.acked(), Seen::whole(Some(&record("on", 1))), wall), None, "cut short");
        assert_eq!(history.find(history.acked(), Seen::whole(Some(&record("three", 1))), wall), None, "a phantom");
        assert_eq!(history.find(history.acked(), Seen::whole(Some(&record("two", 1))), wall), Some(two));
        history.versioned(one, 5).unwrap();
        assert!(history.versioned(two, 5).is_err(), "versions only grow");
        history.read(two, Some(6)).unwrap();
        assert_eq!(history.find(history.acked(), Seen::whole(Some(&record("one", 5))), wall), None, "time runs back");
        assert_eq!(history.owed(true), one);
        let mut other = history.clone();
        assert!(other.recovered(one, None, wall, false).is_none());
        assert!(history.recovered(one, Some(&record("one", 5)), wall, false).is_some_and(|found| !found.older));
    }

    /// So is that of snapshots.
    #[test]
    fn a_snapshot_shows_what_was_there_when_it_was_opened_and_the_same_ever_after() {
        let wall = Wall(10);
        let mut history = History::default();
        let [one, two] = ["one", "two"].map(|text| history.hand_over(held(text), true));
        history.acknowledged(one);
        history.versioned(one, 5).unwrap();
        let opened = Cut { from: history.acked(), to: history.writes(), is_lost: false };
        let three = history.hand_over(held("three"), true);
        let shows = |history: &History, cut: &mut Cut, version, text: &'static str| {
            history.shows(cut, version, Seen::whole(Some(&record(text, 0))), wall)
        };
        let mut cut = opened;
        assert!(!history.shows(&mut cut, 6, Seen::Absent, wall), "an acknowledged write is missing");
        assert!(!shows(&history, &mut cut, 6, "three"), "it was written afterwards");
        assert!(history.shows(&mut cut, 6, Seen::Present, wall) && cut == opened, "one or the other");
        assert!(shows(&history, &mut cut, 6, "two") && (cut.from, cut.to) == (two, two));
        assert!(!shows(&history, &mut cut, 6, "one"), "a page before showed the next one");
        history.acknowledged(three);
        history.versioned(two, 7).unwrap();
        assert!(!shows(&history, &mut opened.clone(), 6, "two"), "its version is not in the snapshot");
        assert!(!shows(&history, &mut opened.clone(), 7, "one"), "the one over it is");
        assert!(shows(&history, &mut opened.clone(), 6, "one") && shows(&history, &mut opened.clone(), 7, "two"));
        history.refused(two);
        assert!(!shows(&history, &mut opened.clone(), 7, "two"), "it was refused");
        let mut lost = Cut { is_lost: true, ..opened };
        assert!(shows(&history, &mut lost, 6, "three") && !shows(&history, &mut lost, 6, "never"));
    }

    #[test]
    fn a_rotted_key_is_damaged_or_right_until_it_is_written() {
        let wall = Wall(10);
        let mut history = History::default();
        let expired = Some(ModelRecord { expiry: Expiry(5), ..held("one").unwrap() });
        let one = history.hand_over(expired, true);
        history.acknowledged(one);
        assert!(!history.may_be_damaged(0) && history.is_known());
        history.rotted(one);
        assert!(history.may_be_damaged(0) && !history.is_known());
        assert!(history.find(0, Seen::Present, wall).is_some(), "when it expires is not known");
        let mut closed = history.clone();
        let refused = closed.hand_over(held("never"), true);
        closed.refused(refused);
        closed.closed();
        assert!(closed.may_be_damaged(closed.owed(true)), "a refused write mends nothing");
        assert_eq!(history.find(0, Seen::whole(Some(&record("two", 9))), wall), None);
        let two = history.hand_over(held("two"), true);
        history.acknowledged(two);
        assert!(!history.may_be_damaged(history.owed(true)) && history.is_known());
        assert!(history.clone().recovered(two, Some(&record("two", 9)), wall, false).is_some());
        history.still_rotted();
        assert_eq!(history.find(0, Seen::whole(Some(&record("two", 9))), wall), None, "it was gone");
    }

    /// A delete was in doubt when a bit turned: a get said that there is damage, and a scan showed
    /// what was not deleted.
    #[test]
    fn a_rotted_key_with_a_write_in_doubt_is_what_it_was_before_or_after() {
        let wall = Wall(10);
        let sees = |history: &History, value| history.find(0, Seen::whole(Some(&record(value, 9))), wall).is_some();
        let absent = |history: &History| history.find(0, Seen::Absent, wall).is_some();
        let mut history = History::default();
        for value in ["older", "one"] {
            let number = history.hand_over(held(value), true);
            history.acknowledged(number);
        }
        let (owed, mut certain) = (history.owed(true), history.clone());
        let refused = certain.hand_over(held("two"), true);
        certain.refused(refused);
        certain.rotted(owed);
        assert!(sees(&certain, "one") && !sees(&certain, "two") && !absent(&certain), "what was refused never was");
        let mut put = history.clone();
        put.hand_over(held("two"), true);
        put.rotted(owed);
        assert!(sees(&put, "one") && sees(&put, "two") && !absent(&put) && !sees(&put, "older"));
        // Another delete of a range is met after the filter.
        certain.hand_over(None, true);
        certain.still_rotted();
        assert!(sees(&certain, "one") && absent(&certain));
        history.hand_over(None, true);
        history.rotted(owed);
        assert!(sees(&history, "one") && absent(&history) && !sees(&history, "older"));
        history.still_rotted();
        assert!(sees(&history, "one") && absent(&history), "it is not known better after another crash");
        // What is made of it anew can be read.
        for found in [Some(record("one", 9)), None] {
            let found = history.clone().recovered(0, found.as_ref(), wall, false);
            assert!(found.is_some_and(|found| !found.older));
        }
        assert!(history.recovered(0, Some(&record("older", 9)), wall, false).is_none());
    }

    #[test]
    fn a_key_damaged_by_a_lie_may_be_listed_though_it_has_expired() {
        let mut history = History::default();
        let expiring = Some(ModelRecord { expiry: Expiry(20), ..held("x").unwrap() });
        history.hand_over(expiring, true);
        history.damaged();
        assert!(history.find(0, Seen::Present, Wall(30)).is_some());
        assert!(history.find(0, Seen::Absent, Wall(30)).is_some());
        let mut never = History::default();
        never.damaged();
        assert_eq!(never.find(0, Seen::Present, Wall(30)), None, "it never was");
    }

    #[test]
    fn an_expired_record_is_absent_and_a_refused_write_never_was() {
        let mut history = History::default();
        let expiring = Some(ModelRecord { expiry: Expiry(20), ..held("x").unwrap() });
        let one = history.hand_over(expiring, true);
        history.acknowledged(one);
        assert_eq!(history.find(1, Seen::Absent, Wall(19)), None);
        assert_eq!(history.find(1, Seen::Absent, Wall(20)), Some(1));
        let two = history.hand_over(held("y"), true);
        history.refused(two);
        assert_eq!(history.find(1, Seen::whole(Some(&record("y", 9))), Wall(1)), None);
        assert!(history.is_certain());
    }
}
