//! Deleting ranges: what is in one is counted, then one record deletes it. Tables of which all is
//! hidden go at once, others are rewritten when there is time.

use std::ops::Bound;

use stratakv_base::{Corruption, Expiry, Key, fault_point};
use stratakv_engine::Reply;
use stratakv_engine::range::{before_engine_keys, is_empty_range};
use stratakv_pmem::Pmem;

use crate::changes::OperationStep;
use crate::container::{Change as Append, What};
use crate::cursor::Stop;
use crate::install::Made;
use crate::job::Job;
use crate::levels::Change;
use crate::matrix::Matrix;
use crate::merge::Visible;
use crate::ranges::RangeDelete;
use crate::scan::{ITEMS_MAX, is_further, lower, upper};
use crate::walk::{Walk, Way};

/// Deletes of ranges in force at a time. With so many, keys are deleted one by one.
const RANGES_MAX: usize = 256;
/// Keys counted in one step.
const COUNTED_MAX: usize = 4096;
/// Keys deleted in one step where each has a record.
const DELETED_MAX: usize = 256;

/// A range that is being deleted. Writes in it wait meanwhile.
#[derive(Debug)]
pub(crate) struct RangeWork {
    pub(crate) from: Bound<Key>,
    pub(crate) to: Bound<Key>,
    /// It goes on here.
    next: Bound<Key>,
    /// Keys that are deleted, or that will be with one record.
    deleted: u64,
    /// The first of them, as many as are few.
    few: Vec<Key>,
    /// All are counted, or all that can be read.
    is_counted: bool,
    /// A page that it wanted is damaged: keys on it are deleted uncounted.
    damage: Option<Corruption>,
    /// Each key gets a record of its own, before the next ones are looked for.
    one_by_one: Option<bool>,
    version: u64,
    skips: usize,
}

impl RangeWork {
    pub(crate) fn new(from: Bound<Key>, to: Bound<Key>) -> RangeWork {
        RangeWork {
            next: from.clone(),
            from,
            to: before_engine_keys(to),
            deleted: 0,
            few: Vec::new(),
            is_counted: false,
            damage: None,
            one_by_one: None,
            version: 0,
            skips: 0,
        }
    }

    /// Grows with every key that it deletes, counts or passes over.
    pub(crate) fn progress(&self) -> usize {
        self.deleted as usize + self.skips
    }

    /// A page that it wanted is damaged: it goes on without a look at what lies there.
    pub(crate) fn bear(&mut self, damage: &Corruption) {
        self.damage = Some(damage.clone());
    }

    /// Whether a part of it is done.
    pub(crate) fn is_begun(&self) -> bool {
        self.one_by_one == Some(true) && self.deleted > 0
    }

    fn reply(&self) -> OperationStep {
        OperationStep::Logged(Reply::Number { number: self.deleted, version: self.version })
    }

    /// These are dealt with.
    fn pass(&mut self, found: Keys) {
        if let Some(last) = found.keys.last() {
            self.deleted += found.keys.len() as u64;
            self.next = Bound::Excluded(last.clone());
        }
        if let Some(next) = found.next {
            (self.next, self.skips) = (next, self.skips + 1);
        }
    }
}

/// Keys of a range that are there.
struct Keys {
    keys: Vec<Key>,
    /// There are no more.
    is_last: bool,
    /// The walk paused before this one.
    next: Option<Bound<Key>>,
}

impl<P: Pmem> Matrix<P> {
    /// Goes on deleting a range, for a few keys.
    ///
    /// # Errors
    /// [`Stop`]: it goes on from here once the pages are there.
    pub(crate) fn delete_range(&mut self, work: &mut RangeWork) -> Result<OperationStep, Stop> {
        if is_empty_range(&work.from, &work.to) {
            return Ok(work.reply());
        }
        let one_by_one = *work.one_by_one.get_or_insert_with(|| self.range_record(&work.from, &work.to).is_none());
        if one_by_one {
            return self.delete_some(work);
        }
        if !work.is_counted {
            match self.next_keys(work, COUNTED_MAX, u64::MAX) {
                Ok(found) => {
                    let more = self.config.range_keys_few.saturating_sub(work.few.len());
                    work.few.extend(found.keys.iter().take(more).cloned());
                    work.is_counted = found.is_last;
                    work.pass(found);
                }
                // One record deletes what nobody can count, too.
                Err(Stop::Missing) if work.damage.is_some() => work.is_counted = true,
                Err(Stop::Damaged(damage)) => (work.is_counted, work.damage) = (true, Some(damage)),
                Err(stop) => return Err(stop),
            }
        }
        if !work.is_counted {
            return Ok(OperationStep::Yields);
        }
        self.delete_counted(work)
    }

    /// The ends of a range as a record has them; `None`: there can be no such record.
    fn range_record(&self, from: &Bound<Key>, to: &Bound<Key>) -> Option<(Vec<u8>, Vec<u8>)> {
        // No key is empty, and none is before a single zero.
        let from = Some(lower(from)).filter(|from| !from.is_empty()).unwrap_or_else(|| vec![0]);
        let to = upper(to)?;
        let record = Append { key: &from, flags: 0, expiry: Expiry::NEVER, what: What::Range(&to) };
        let fits = from.len() <= self.container.key_bytes_max()
            && record.record_bytes() <= self.container.record_bytes_max()
            && self.ranges.all().len() < RANGES_MAX;
        (self.container.has_ranges() && fits).then_some((from, to))
    }

    /// All keys are counted: few are deleted one by one, together, others with one record.
    fn delete_counted(&mut self, work: &mut RangeWork) -> Result<OperationStep, Stop> {
        let few_bytes = work.few.iter().map(|key| key.encoded().len() as u64).sum::<u64>();
        // Together they must find room in an empty container.
        let knows_all = work.damage.is_none() && work.deleted == work.few.len() as u64;
        if knows_all && few_bytes < self.container.record_bytes_max() {
            return Ok(match self.delete_keys(&work.few) {
                Ok(version) => {
                    work.version = version;
                    work.reply()
                }
                Err(refused) => refused,
            });
        }
        let Some((from, to)) = self.range_record(&work.from, &work.to) else {
            // Another one was faster.
            (work.one_by_one, work.next, work.deleted) = (Some(true), work.from.clone(), 0);
            return Ok(OperationStep::Yields);
        };
        let change = Append { key: &from, flags: 0, expiry: Expiry::NEVER, what: What::Range(&to) };
        let version = match self.append(&[change]) {
            Ok(version) => version,
            Err(refused) => return Ok(refused),
        };
        let range = RangeDelete { from: from[..].into(), to: to[..].into(), version };
        self.ranges = self.ranges.with(range).into();
        self.counters.range_deletes += 1;
        self.compactor.look_again();
        self.compactor.wake();
        self.learn_dead(&from, &to, work.deleted, version);
        work.version = version;
        Ok(work.reply())
    }

    /// Goes on, each key with a record of its own.
    fn delete_some(&mut self, work: &mut RangeWork) -> Result<OperationStep, Stop> {
        // A step of it must find room in the container.
        let found = match (self.next_keys(work, DELETED_MAX, self.container.record_bytes_max()), &work.damage) {
            (Err(Stop::Missing), Some(damage)) => return Err(Stop::Damaged(damage.clone())),
            (found, _) => found?,
        };
        match self.delete_keys(&found.keys) {
            Ok(0) => {}
            Ok(version) => work.version = version,
            Err(refused) => return Ok(refused),
        }
        let is_last = found.is_last;
        work.pass(found);
        Ok(if is_last { work.reply() } else { OperationStep::Yields })
    }

    /// Deletes these, as one batch. Its version; 0: there are none.
    fn delete_keys(&mut self, keys: &[Key]) -> Result<u64, OperationStep> {
        let appends: Vec<_> = keys.iter().map(|key| Append::delete(key.encoded())).collect();
        if appends.is_empty() { Ok(0) } else { self.append(&appends) }
    }

    /// The next keys of the range that are there, as far as a walk goes at once.
    fn next_keys(&self, work: &mut RangeWork, keys_max: usize, bytes_max: u64) -> Result<Keys, Stop> {
        let memory = self.memory_of_levels(ITEMS_MAX, false);
        let (to, read_view) = (upper(&work.to), self.read_view());
        let from = lower(&work.next);
        let from = self.short_cut(Some(&from), read_view, false).unwrap_or(from);
        let (mut keys, mut bytes, mut next) = (Vec::new(), 0, None);
        if to.as_ref().is_some_and(|to| from >= *to) {
            return Ok(Keys { keys, is_last: true, next });
        }
        let way = Way { from: Some(&from), end: to.as_deref(), reverse: false };
        let mut cursor = self.cursor_at(&memory, &way)?;
        let walk = Walk::new(self.scheduler.walks(), read_view, way, self.container.version());
        let mut visible = Visible::new(&mut cursor, read_view, &self.ranges).on(walk);
        while keys.len() < keys_max && bytes < bytes_max {
            let found = match visible.forward(false) {
                // What was found so far is dealt with before the rest is read.
                Err(_) if !keys.is_empty() => return Ok(Keys { keys, is_last: false, next }),
                Err(stop) => {
                    if let Some(passed) = visible.stop(false).filter(|passed| is_further(&work.next, passed, false)) {
                        (work.next, work.skips) = (passed, work.skips + 1);
                    }
                    return Err(stop);
                }
                Ok(found) => found,
            };
            let Some((_, key)) = found.zip(Key::from_encoded(visible.key())) else {
                let paused = visible.pause().map(|(key, _)| Key::from_encoded(&key).ok_or_else(|| self.out_of_order()));
                next = paused.transpose()?.map(Bound::Included);
                return Ok(Keys { keys, is_last: next.is_none(), next });
            };
            bytes += key.encoded().len() as u64;
            keys.push(key);
        }
        Ok(Keys { keys, is_last: false, next })
    }

    /// Those that no crash can take back.
    pub(crate) fn durable_ranges(&self) -> impl Iterator<Item = &RangeDelete> {
        let durable = self.container.durable_version();
        self.ranges.all().iter().take_while(move |range| range.version <= durable)
    }

    /// Forgets deletes of ranges that hide nothing any more: no memtable, row or table has anything
    /// older in them.
    pub(crate) fn forget_ranges(&mut self) {
        if self.ranges.is_empty() {
            return;
        }
        let durable = self.container.durable_version();
        let needed = self.ranges.needed(self.snapshots.versions(), durable, |range| {
            fault_point!("trial_range_forgotten_above_tables", return self.container.has_older_than(range));
            self.container.has_older_than(range) || self.tables().any(|table| may_hide(range, table))
        });
        if let Some(needed) = needed {
            self.ranges = needed.into();
        }
    }

    /// Drops tables of which everything is hidden, without reading them. Whether there are any.
    /// O(tables · ranges), when something has changed.
    pub(crate) fn drops_hidden_tables(&mut self) -> bool {
        let newest = self.durable_ranges().last().map_or(0, |range| range.version);
        let looked = (self.counters.compaction.installs, newest, self.snapshots.len());
        if newest == 0 || looked == self.compactor.ranges_looked {
            return false;
        }
        let (durable, mut change) = (self.container.durable_version(), Change::default());
        for table in self.tables() {
            let (facts, snapshots) = (&table.facts, self.snapshots.versions());
            let keys = (&facts.first_key[..], &facts.last_key[..]);
            if self.ranges.hide_all(keys, (facts.lowest_version, facts.highest_version), snapshots, durable) {
                change.removed.push(facts.file);
                for (file, bytes) in &facts.blob {
                    *change.dropped.entry(*file).or_default() += bytes;
                }
            }
        }
        if change.removed.is_empty() {
            self.compactor.ranges_looked = looked;
            return false;
        }
        if self.volume.waits_for(self.manifest_pages()) {
            return false;
        }
        let dropped = change.removed.len() as u64;
        let begins = self.begin_install(Made::Hidden(change)).is_ok();
        self.counters.compaction.tables_dropped += if begins { dropped } else { 0 };
        begins
    }

    /// Rewrites a table of which something is hidden, so that the delete that hides it can be
    /// forgotten one day. Not while a snapshot may see it.
    pub(crate) fn half_hidden_job(&self) -> Option<Job> {
        if self.ranges.is_empty() || self.snapshots.len() > 0 {
            return None;
        }
        self.rewriting(|table| self.durable_ranges().any(|range| may_hide(range, table)))
    }
}

/// Whether a table may have something that a range hides.
fn may_hide(range: &RangeDelete, table: &crate::volume::LevelTable) -> bool {
    let facts = &table.facts;
    facts.lowest_version < range.version
        && table.clean_version < range.version
        && range.meets(&facts.first_key, &facts.last_key)
}
