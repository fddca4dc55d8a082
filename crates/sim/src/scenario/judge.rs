//! Every answer is judged by the model.

use std::ops::Bound;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::probe;
use stratakv_engine::{Error, Item, Reply, Unmet};

use super::requests::{self, Asked, Expected, RecordField, Scanned, Sees, key, number_of};
use super::{World, is_poison, seen_of};
use crate::machine::Engine;
use crate::model::{Seen, pages_of};

impl<E: Engine> World<'_, E> {
    /// Judges the answers that have come. Reads first: by what was acknowledged before this tick.
    pub(super) fn take_replies(&mut self) -> Result<(), String> {
        let mut replies = std::mem::take(&mut self.machine.replies);
        replies.sort_by_key(|(token, _)| {
            let asked = self.asked.iter().find(|(number, _)| number == token);
            !matches!(asked, Some((_, Asked::Read { .. } | Asked::Scan(_))))
        });
        for (token, reply) in replies.drain(..) {
            let Some(at) = self.asked.iter().position(|(number, _)| *number == token) else {
                return Err(format!("a second answer to operation {token}: {reply:?}"));
            };
            let (_, asked) = self.asked.swap_remove(at);
            tracing::debug!(token, asked = short(&asked), ?reply, "answered");
            self.judge(&asked, reply).map_err(|why| format!("operation {token}, {}: {why}", short(&asked)))?;
        }
        self.machine.replies = replies;
        Ok(())
    }

    fn judge(&mut self, asked: &Asked, reply: Reply) -> Result<(), String> {
        match asked {
            Asked::Write { key, number, expected } => self.judge_write(usize::from(*key), *number, *expected, &reply),
            Asked::Refusal { key, after } => self.judge_refusal(usize::from(*key), *after, &reply),
            Asked::Read { key, from, part } => self.judge_read(usize::from(*key), *from, *part, &reply),
            Asked::Scan(scanned) => match scanned.sees {
                Sees::At(id) => self.judge_page_of_snapshot(id, scanned, &reply),
                Sees::Now(_) => self.judge_scan(scanned, &reply),
            },
            Asked::OpenSnapshot { from, version } => self.judge_opening(from, *version, &reply),
            Asked::CloseSnapshot { id } => self.judge_closing(*id, &reply),
            Asked::Range { writes } => self.judge_range(writes, &reply),
            Asked::Load { writes } => self.judge_load(writes, &reply),
            Asked::Sync { durable } => match reply {
                Reply::Done { .. } => {
                    for (history, number) in self.histories.iter_mut().zip(durable) {
                        history.made_durable(*number);
                    }
                    Ok(())
                }
                Reply::Failed(error) => self.failed(&error, false, None),
                other => Err(format!("{other:?}")),
            },
        }
    }

    /// Whether an error is in order, and what follows from it. `damaged`: what was asked for may
    /// be; `pages`: needed by what was asked.
    pub(super) fn failed(&mut self, error: &Error, damaged: bool, pages: Option<u64>) -> Result<(), String> {
        let excused = match error {
            Error::Full(_) => self.may_be_full(pages, 3),
            // A flush that failed has lost what was written.
            Error::Corrupt(_) => {
                damaged || self.lies() || self.machine.disk.failed_flushes() != self.failed_flushes || self.poisoned
            }
            Error::Io { .. } | Error::Poisoned(_) | Error::Unknown(_) => self.is_excused(),
            Error::Pmem(_) => self.machine.has_region_failed(),
            _ => false,
        };
        if !excused {
            return Err(format!("failed without a reason: {error}"));
        }
        self.poisoned |= is_poison(error);
        Ok(())
    }

    /// Whether there may be no space for something of so many pages; `None`: it needs none.
    pub(super) fn may_be_full(&self, pages: Option<u64>, margin: u64) -> bool {
        // What cannot be read or written anew cannot be cleared away, and the disk may have an end
        // of its own.
        if self.is_excused() {
            return true;
        }
        let (Some(pages), Some(capacity_bytes)) = (pages, self.setup.capacity_bytes) else { return false };
        // Where long values find no gap is not judged, nor what damage takes.
        if pages > 1 || self.rotten {
            return true;
        }
        let histories = self.histories.iter().zip(0..);
        let held: u64 = histories.map(|(history, number)| history.pages_max(key(number).encoded().len())).sum();
        margin * (held + pages) > capacity_bytes / PAGE_BYTES as u64
    }

    fn judge_write(&mut self, key: usize, number: usize, expected: Expected, reply: &Reply) -> Result<(), String> {
        let lies = self.lies();
        let version = match (reply, expected) {
            (Reply::Failed(error), _) => {
                let pages = pages_of(self.histories[key].after(number), requests::key(key as u16).encoded().len());
                self.failed(error, false, Some(pages).filter(|pages| *pages > 0))?;
                if !matches!(error, Error::Unknown(_)) {
                    self.histories[key].refused(number);
                }
                return Ok(());
            }
            (Reply::Done { version, existed }, Expected::Done(wanted)) => {
                if wanted.is_some_and(|wanted| wanted != *existed) && !lies {
                    return Err(format!("existed: {existed}"));
                }
                *version
            }
            (Reply::Record(Some(record)), Expected::Record) => record.version,
            (Reply::Number { number, version }, Expected::Number(wanted)) if *number == wanted => *version,
            // What the disk made of the record before decides.
            (Reply::Unmet(_) | Reply::Record(None), _) if lies => {
                self.histories[key].refused(number);
                return Ok(());
            }
            _ => return Err(format!("{reply:?} instead of {expected:?}")),
        };
        self.statistics.acknowledged += 1;
        self.histories[key].acknowledged(number);
        // A delete of nothing, and a touch's record, have no version of their own.
        if version != 0 && expected != Expected::Record {
            if version <= self.floor && !lies {
                return Err(format!("version {version} is not above {}, which was seen before the crash", self.floor));
            }
            self.highest = self.highest.max(version);
            self.histories[key].versioned(number, version)?;
        }
        Ok(())
    }

    /// `after`: so many writes of the key were handed over before.
    fn judge_refusal(&mut self, key: usize, after: usize, reply: &Reply) -> Result<(), String> {
        match reply {
            Reply::Unmet(Unmet::Present { version: 0 } | Unmet::Version { found: 0 }) => Err("no version".into()),
            // A refusal tells of a state: it must not be lost as long as nobody has said that it
            // holds. Of a touch that is no record.
            Reply::Unmet(_) | Reply::Record(None) if !self.histories[key].is_answered(after) => {
                Err(format!("refused by a write without an answer: {}", self.histories[key].describe()))
            }
            Reply::Unmet(_) | Reply::Record(None) => Ok(()),
            // It may look for space before it is refused.
            Reply::Failed(error) => self.failed(error, false, Some(2)),
            // It found another state than it should: with a lying disk nothing is known of the key
            // from here on.
            _ if self.lies() => {
                self.histories[key].damaged();
                self.snapshots.lose(key);
                Ok(())
            }
            other => Err(format!("{other:?}, though its condition does not hold")),
        }
    }

    fn judge_read(&mut self, key: usize, from: usize, part: RecordField, reply: &Reply) -> Result<(), String> {
        let wall = self.machine.now().wall;
        self.reads_go_on(reply)?;
        let seen = match (reply, part) {
            (Reply::Failed(error), _) => {
                self.statistics.failed_reads += 1;
                let damaged = self.histories[key].may_be_damaged(from);
                return self.failed(error, damaged, None);
            }
            (Reply::Record(Some(record)), RecordField::Range(start, len)) => Seen::Record(record, (start, len)),
            (Reply::Record(Some(record)), RecordField::Meta) => Seen::Record(record, (0, 0)),
            (Reply::Record(None), _) => seen_of(reply),
            _ => return Err(format!("{reply:?}")),
        };
        let history = &mut self.histories[key];
        let version = match seen {
            Seen::Record(record, _) if history.is_only(from, seen, wall) => Some(record.version),
            _ => None,
        };
        let Some(number) = history.find(from, seen, wall) else {
            let found =
                if let Seen::Record(record, _) = seen { Some((record.value_bytes, record.version)) } else { None };
            return Err(format!("found {found:?}, from {from} of {}", history.describe()));
        };
        // A part may look like that of an earlier value: only whole records tell which write they
        // are of.
        if part != RecordField::Range(0, u64::MAX) {
            return Ok(());
        }
        history
            .read(number, version)
            .or_else(|why| if self.setup.regime == crate::plan::Regime::Lies { Ok(()) } else { Err(why) })
    }

    fn judge_range(&mut self, writes: &[(u16, usize)], reply: &Reply) -> Result<(), String> {
        match reply {
            Reply::Number { .. } => {
                for (key, number) in writes {
                    self.histories[usize::from(*key)].acknowledged(*number);
                }
                Ok(())
            }
            // Some may be gone, some not.
            Reply::Failed(error) => self.failed(error, self.meets_damage_of_others(), None),
            other => Err(format!("{other:?}")),
        }
    }

    /// Whether what goes over a range may say that it is damaged though all its keys are right.
    pub(super) fn meets_damage_of_others(&self) -> bool {
        self.rotten && self.machine.shares_blocks()
    }

    /// A region that takes no more writes is read as before.
    fn reads_go_on(&self, reply: &Reply) -> Result<(), String> {
        if self.machine.has_region_failed() {
            probe!("matrix: read on after writing the region back had failed");
        }
        match reply {
            Reply::Failed(error @ Error::Pmem(_)) => Err(format!("reads have stopped with the writes: {error}")),
            _ => Ok(()),
        }
    }

    /// A page of a scan: in order, no longer than asked for, nothing that is not allowed, nothing
    /// missing between its ends.
    pub(super) fn judge_scan(&mut self, scanned: &Scanned, reply: &Reply) -> Result<(), String> {
        self.reads_go_on(reply)?;
        let (items, next) = match reply {
            Reply::Page { items, next } => (items, next),
            Reply::Failed(error) => {
                self.statistics.failed_reads += 1;
                let damaged = (0..self.histories.len()).any(|key| self.may_be_damaged(&scanned.sees, key));
                return self.failed(error, (damaged && !scanned.keys_only) || self.meets_damage_of_others(), None);
            }
            other => return Err(format!("{other:?}")),
        };
        let keys: Option<Vec<u16>> = items.iter().map(|item| number_of(item.key.user())).collect();
        let keys = keys.filter(|keys| keys.iter().all(|key| usize::from(*key) < self.histories.len()));
        let Some(keys) = keys else { return Err("a key that was never written".into()) };
        let ordered = keys.windows(2).all(|pair| if scanned.reverse { pair[1] < pair[0] } else { pair[0] < pair[1] });
        if !ordered {
            return Err(format!("out of order: {keys:?}"));
        }
        check_length(scanned, items)?;
        for (item, key) in items.iter().zip(&keys) {
            let seen = if scanned.keys_only { Seen::Present } else { Seen::whole(item.record.as_ref()) };
            if !self.may_show(&scanned.sees, usize::from(*key), seen) {
                let found = item.record.as_ref().map(|record| (record.value_bytes, record.version));
                let owed = self.owed(&scanned.sees, usize::from(*key));
                return Err(format!("key {key}: found {found:?}, {owed}"));
            }
        }
        let last = match next {
            Some(Bound::Excluded(key)) => number_of(key.user()),
            Some(other) => return Err(format!("the next page starts at {other:?}")),
            None => None,
        };
        let asked = &scanned.keys;
        if keys.iter().chain(&last).any(|key| !asked.contains(key)) {
            return Err(format!("keys outside {asked:?}: {keys:?}, up to {last:?}"));
        }
        let shown = match (scanned.reverse, last) {
            (_, None) => asked.clone(),
            (false, Some(last)) => *asked.start()..=last,
            (true, Some(last)) => last..=*asked.end(),
        };
        if keys.iter().any(|key| !shown.contains(key)) {
            return Err(format!("keys outside {shown:?}: {keys:?}"));
        }
        for key in (0..self.histories.len()).filter(|key| shown.contains(&(*key as u16))) {
            if !keys.contains(&(key as u16)) && !self.may_show(&scanned.sees, key, Seen::Absent) {
                return Err(format!("key {key} is missing from {shown:?}: {}", self.owed(&scanned.sees, key)));
            }
        }
        Ok(())
    }

    /// Whether a page may meet damage of a key.
    fn may_be_damaged(&self, sees: &Sees, key: usize) -> bool {
        let history = &self.histories[key];
        match sees {
            Sees::Now(from) => history.may_be_damaged(from[key]),
            Sees::At(id) => self.snapshots.may_be_damaged(*id, key, history),
        }
    }

    /// Whether a page may show this of a key.
    fn may_show(&mut self, sees: &Sees, key: usize, seen: Seen<'_>) -> bool {
        let (wall, history) = (self.machine.now().wall, &self.histories[key]);
        match sees {
            Sees::Now(from) => history.find(from[key], seen, wall).is_some(),
            Sees::At(id) => self.snapshots.show(*id, key, history, seen, wall),
        }
    }

    /// For messages.
    fn owed(&self, sees: &Sees, key: usize) -> String {
        let from = match sees {
            Sees::Now(from) => format!("from {}", from[key]),
            Sees::At(id) => format!("at snapshot {id}, {}", self.snapshots.describe(*id, key)),
        };
        format!("{from} of {}", self.histories[key].describe())
    }
}

/// A page has as many items as were asked for at most, and none after so many bytes.
fn check_length(scanned: &Scanned, items: &[Item]) -> Result<(), String> {
    let value_bytes = |item: &Item| item.record.as_ref().map_or(0, |record| record.value_bytes);
    let before_last = items.iter().rev().skip(1);
    let bytes: u64 = before_last.map(|item| item.key.user().len() as u64 + value_bytes(item)).sum();
    let (most, most_bytes) = (scanned.items_max, scanned.bytes_max);
    if items.len() > most as usize || (items.len() > 1 && bytes >= most_bytes.into()) {
        return Err(format!("{} items, {bytes} bytes before the last one, of {most} and {most_bytes}", items.len()));
    }
    Ok(())
}

fn short(asked: &Asked) -> String {
    match asked {
        Asked::Scan(Scanned { keys, reverse, keys_only, sees, .. }) => {
            let sees = if let Sees::At(id) = sees { format!("at snapshot {id}") } else { "now".to_owned() };
            format!("Scan {{ keys: {keys:?}, reverse: {reverse}, keys_only: {keys_only}, {sees} }}")
        }
        other => format!("{other:?}"),
    }
}
