//! Whether two answers say the same. Where each server has its own numbers, a named rule says what
//! must hold of them instead.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::command::{Command, Which, shorten};
use super::fields::{Field, fields};
use super::intended::Intended;
use super::wire::{Answer, End};

/// A rule for what is each server's own. [`Intended`] says of each why it is there and what it may
/// hide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Versions correspond, key by key, in the order in which they appear.
    Versions,
    /// A touch may give a record another version here.
    TouchedVersions,
    /// Seconds may differ by two.
    Seconds,
    /// `s` of `ms` is of later memcached.
    StoredBytes,
    /// What `me` calls the size and the class of a record.
    RecordBytes,
    /// Statistics: names that may be missing, and more of them here.
    Names,
    /// What the server calls itself.
    ServerVersion,
}

impl Rule {
    /// All of them, by their names in the list.
    pub const ALL: &[(Rule, &str)] = &[
        (Rule::Versions, "versions"),
        (Rule::TouchedVersions, "versions after a touch"),
        (Rule::Seconds, "seconds"),
        (Rule::StoredBytes, "s of ms"),
        (Rule::RecordBytes, "size and class of me"),
        (Rule::Names, "names of statistics"),
        (Rule::ServerVersion, "version of the server"),
    ];
}

/// Seconds that the two may be apart: each counts them by a clock of its own, in steps of one.
const SECONDS_APART: i64 = 2;

/// A version that no server gives.
const WRONG_VERSION: u64 = u64::MAX - 5;

/// Versions of one record as both servers tell them: ours, theirs.
type Pair = (u64, u64);

/// What was seen of versions, key by key.
#[derive(Debug, Default)]
pub struct Versions {
    seen: HashMap<Vec<u8>, Vec<Pair>>,
    touched: BTreeSet<Vec<u8>>,
    /// By the command that is compared.
    touched_now: BTreeSet<Vec<u8>>,
}

/// Which of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `stratakv serve`.
    Ours,
    /// memcached.
    Theirs,
}

impl Versions {
    /// Notes that the time of these keys may be changed now.
    pub fn touch(&mut self, command: &Command) {
        self.touched_now = command.touches.iter().cloned().collect();
        self.touched.extend(command.touches.iter().cloned());
    }

    /// The number that stands for a version of a key on one side.
    pub fn number(&self, key: &[u8], which: Which, side: Side) -> u64 {
        let seen = self.seen.get(key).map_or(&[][..], Vec::as_slice);
        let pair = match (which, seen) {
            // Ours may be another one since, which was not shown.
            (Which::Last, [.., last]) if !self.touched.contains(key) => Some(*last),
            (Which::Old, [.., before, last]) if before.0 != last.0 && before.1 != last.1 => Some(*before),
            _ => None,
        };
        pair.map_or(WRONG_VERSION, |(ours, theirs)| if side == Side::Ours { ours } else { theirs })
    }

    /// Whether both tell the same version of a key.
    fn agree(&mut self, key: &[u8], ours: u64, theirs: u64, used: &mut BTreeSet<Rule>) -> bool {
        if ours == 0 || theirs == 0 {
            return ours == theirs;
        }
        used.insert(Rule::Versions);
        let seen = self.seen.entry(key.to_vec()).or_default();
        let by_ours = seen.iter().rposition(|pair| pair.0 == ours);
        let by_theirs = seen.iter().rposition(|pair| pair.1 == theirs);
        match (by_ours, by_theirs) {
            (Some(a), Some(b)) if a == b => return true,
            (None, None) => {}
            (None, Some(at)) if at + 1 == seen.len() && self.touched.contains(key) => {
                used.insert(Rule::TouchedVersions);
            }
            _ => return false,
        }
        seen.push((ours, theirs));
        // A key that is named twice is touched twice.
        if !self.touched_now.contains(key) {
            self.touched.remove(key);
        }
        true
    }

    /// Compares the answers of a command.
    ///
    /// # Errors
    /// What differs.
    pub fn compare(
        &mut self,
        command: &Command,
        (ours, theirs): (&Answer, &Answer),
        intended: &Intended,
        used: &mut BTreeSet<Rule>,
    ) -> Result<(), String> {
        if ours.end != theirs.end {
            return Err(format!("it ended otherwise: ours {:?}, memcached's {:?}", ours.end, theirs.end));
        }
        if ours.end == End::Silent {
            return Err("neither server answers: the sequence is not whole".to_owned());
        }
        let (mut a, b) = (fields(command, &ours.bytes), fields(command, &theirs.bytes));
        if a.contains(&Field::StoredBytes) {
            used.insert(Rule::StoredBytes);
            a.retain(|field| *field != Field::StoredBytes);
        }
        if a.len() != b.len() {
            return Err("the answers have other parts".to_owned());
        }
        for (a, b) in a.iter().zip(&b) {
            self.field(a, b, intended, used)
                .map_err(|why| format!("{why}: ours {}, memcached's {}", told(a), told(b)))?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        ours: &Field,
        theirs: &Field,
        intended: &Intended,
        used: &mut BTreeSet<Rule>,
    ) -> Result<(), String> {
        let check = |holds: bool, why: &str| if holds { Ok(()) } else { Err(why.to_owned()) };
        match (ours, theirs) {
            (Field::Version { key, version: ours }, Field::Version { key: same, version: theirs }) if key == same => {
                let agree = self.agree(key, *ours, *theirs, used);
                check(agree, "the version does not correspond")
            }
            (Field::SecondsLeft(a), Field::SecondsLeft(b)) | (Field::SecondsIdle(a), Field::SecondsIdle(b)) => {
                used.insert(Rule::Seconds);
                // What is past is told as a negative number of 32 bits.
                let past = *a == 0 && *b > i64::from(i32::MAX);
                let apart = *a == *b || past || (*a >= 0 && *b >= 0 && (a - b).abs() <= SECONDS_APART);
                check(apart, "the seconds are too far apart")
            }
            (Field::RecordBytes, Field::RecordBytes) | (Field::Class, Field::Class) => {
                used.insert(Rule::RecordBytes);
                Ok(())
            }
            (Field::ServerVersion, Field::ServerVersion) => {
                used.insert(Rule::ServerVersion);
                Ok(())
            }
            (Field::Names(ours), Field::Names(theirs)) => {
                used.insert(Rule::Names);
                let missing: Vec<&str> = theirs.difference(ours).map(String::as_str).collect();
                let missing: Vec<&str> = missing.into_iter().filter(|name| !intended.may_lack(name)).collect();
                check(missing.is_empty(), &format!("names are missing: {missing:?}"))
            }
            (Field::Counts(ours), Field::Counts(theirs)) => counts(ours, theirs),
            (ours, theirs) => check(ours == theirs, "it is not the same"),
        }
    }
}

/// A field for people.
fn told(field: &Field) -> String {
    match field {
        Field::Bytes(bytes) => shorten(bytes),
        Field::Names(_) | Field::Counts(_) => String::from("statistics"),
        other => format!("{other:?}"),
    }
}

fn counts(ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, theirs) in theirs {
        match ours.get(name) {
            Some(ours) if ours != theirs => return Err(format!("{name} is {ours}, and {theirs} with memcached")),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_correspond_in_the_order_in_which_they_appear() {
        let (mut versions, mut used) = (Versions::default(), BTreeSet::new());
        let mut agree = |key: &[u8], ours, theirs| versions.agree(key, ours, theirs, &mut used);
        assert!(agree(b"a", 7, 100) && agree(b"a", 7, 100) && agree(b"b", 7, 101) && agree(b"a", 9, 105));
        assert!(!agree(b"a", 9, 106), "ours did not change");
        assert!(!agree(b"a", 10, 105), "ours changed, and nothing touched it");
        assert!(!agree(b"a", 7, 105), "an old one");
        assert!(agree(b"a", 0, 0) && !agree(b"a", 0, 5));
        versions.touched.insert(b"a".to_vec());
        assert_eq!(versions.number(b"a", Which::Last, Side::Ours), WRONG_VERSION);
        assert!(versions.agree(b"a", 10, 105, &mut used) && !versions.agree(b"a", 11, 105, &mut used));
        assert_eq!(versions.number(b"a", Which::Last, Side::Ours), 10);
        assert_eq!(versions.number(b"a", Which::Old, Side::Theirs), WRONG_VERSION, "it is the present one there");
    }

    #[test]
    fn seconds_may_be_a_little_apart_and_never_is_never() {
        let (mut versions, mut used) = (Versions::default(), BTreeSet::new());
        let intended = Intended::default();
        let mut same =
            |a, b| versions.field(&Field::SecondsLeft(a), &Field::SecondsLeft(b), &intended, &mut used).is_ok();
        assert!(same(100, 98) && same(-1, -1) && !same(-1, 0) && !same(100, 97));
    }
}
