//! Open snapshots: versions that must stay visible.

use std::collections::BTreeMap;

use foldhash::HashMap;
use stratakv_base::{Mono, fault_point};
use stratakv_engine::{Error, Operation, Reply, SnapshotOp};
use stratakv_pmem::Pmem;

use crate::backup::Backup;
use crate::matrix::Matrix;
use crate::merge::ReadView;
use crate::operations::Work;

/// Most snapshots open at a time.
const OPEN_MAX: u32 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    open: BTreeMap<u64, Snapshot>,
    /// Their versions, from old to new.
    versions: Vec<u64>,
    last: u64,
    /// Of each table, the bytes that it has only for snapshots: with the snapshots that see them.
    kept: HashMap<u64, Vec<KeptFor>>,
    /// The same that no open snapshot sees any more.
    stale: HashMap<u64, u64>,
    ended_early: u64,
    /// The one under way, if there is one.
    pub(crate) backup: Option<Backup>,
}

/// Bytes of keys and values that are there for the sake of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptFor {
    /// The versions of the oldest and of the newest snapshot that see them.
    pub(crate) oldest: u64,
    pub(crate) newest: u64,
    pub(crate) bytes: u64,
}

/// Adds bytes to those that are kept for the same snapshots.
pub(crate) fn add_kept(kept: &mut Vec<KeptFor>, more: KeptFor) {
    match kept.iter_mut().find(|one| (one.oldest, one.newest) == (more.oldest, more.newest)) {
        Some(one) => one.bytes += more.bytes,
        None => kept.push(more),
    }
}

#[derive(Clone, Copy, Debug)]
struct Snapshot {
    version: u64,
    opened: Mono,
}

impl Snapshots {
    /// Whether one more may be open.
    ///
    /// # Errors
    /// [`Error::TooManySnapshots`].
    pub(crate) fn has_room(&self) -> Result<(), Error> {
        if self.open.len() < OPEN_MAX as usize { Ok(()) } else { Err(Error::TooManySnapshots { max: OPEN_MAX }) }
    }

    /// Opens one that sees everything up to `version`.
    pub(crate) fn open(&mut self, version: u64, now: Mono) -> u64 {
        self.open_as(self.last + 1, version, now);
        self.last
    }

    /// The same with a number that was chosen for all shards.
    pub(crate) fn open_as(&mut self, number: u64, version: u64, now: Mono) {
        self.last = self.last.max(number);
        self.open.insert(number, Snapshot { version, opened: now });
        self.refresh();
    }

    /// Closes it; whether there was one.
    pub(crate) fn close(&mut self, id: u64) -> bool {
        let closed = self.open.remove(&id).is_some();
        self.refresh();
        if closed {
            self.release();
        }
        closed
    }

    /// Ends the oldest one, so that what only it sees can be reclaimed. Whether there was one.
    pub(crate) fn end_oldest(&mut self) -> bool {
        let ended = self.open.keys().next().copied().is_some_and(|id| self.close(id));
        self.ended_early += u64::from(ended);
        ended
    }

    /// A compaction made this table, with so much for the sake of snapshots.
    pub(crate) fn keep(&mut self, file: u64, kept: Vec<KeptFor>) {
        if !kept.is_empty() {
            self.kept.insert(file, kept);
            self.release();
        }
    }

    /// After opening: so much was kept in tables, and nobody sees it any more.
    pub(crate) fn left_over(stale: impl IntoIterator<Item = (u64, u64)>) -> Snapshots {
        Snapshots { stale: stale.into_iter().collect(), ..Snapshots::default() }
    }

    /// What each table has for snapshots, open or not, for the manifest.
    pub(crate) fn kept_in_tables(&self) -> BTreeMap<u64, u64> {
        let mut all: BTreeMap<u64, u64> = self.stale.iter().map(|(file, bytes)| (*file, *bytes)).collect();
        for (file, kept) in &self.kept {
            *all.entry(*file).or_default() += kept.iter().map(|one| one.bytes).sum::<u64>();
        }
        all
    }

    /// Forgets tables that are gone.
    pub(crate) fn forget(&mut self, is_there: impl Fn(u64) -> bool) {
        self.kept.retain(|file, _| is_there(*file));
        self.stale.retain(|file, _| is_there(*file));
    }

    /// What was kept for a snapshot that is closed counts for those that are left of the ones that
    /// see it. Without one it is free for the next compaction that meets it.
    fn release(&mut self) {
        let versions = &self.versions;
        let left_of = |kept: KeptFor| {
            let from = versions.partition_point(|version| *version < kept.oldest);
            let behind = versions.partition_point(|version| *version <= kept.newest);
            let (oldest, newest) = (versions.get(from..behind)?.first()?, versions.get(from..behind)?.last()?);
            Some(KeptFor { oldest: *oldest, newest: *newest, ..kept })
        };
        self.kept.retain(|file, kept| {
            let mut left = Vec::new();
            for one in kept.drain(..) {
                match left_of(one) {
                    Some(one) => add_kept(&mut left, one),
                    None => *self.stale.entry(*file).or_default() += one.bytes,
                }
            }
            *kept = left;
            !kept.is_empty()
        });
    }

    /// Bytes of keys and values in tables that are kept for snapshots, at most. O(tables).
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.values().flatten().map(|kept| kept.bytes).sum()
    }

    /// The table that has the most for snapshots that are closed, and how much.
    pub(crate) fn most_stale(&self) -> Option<(u64, u64)> {
        self.stale.iter().map(|(file, bytes)| (*file, *bytes)).max_by_key(|(file, bytes)| (*bytes, *file))
    }

    /// How many ended before they were closed.
    pub(crate) fn ended_early(&self) -> u64 {
        self.ended_early
    }

    fn refresh(&mut self) {
        self.versions = self.open.values().map(|snapshot| snapshot.version).collect();
        self.versions.sort_unstable();
        self.versions.dedup();
    }

    /// Up to which version it sees.
    pub(crate) fn version_of(&self, id: u64) -> Option<u64> {
        self.open.get(&id).map(|snapshot| snapshot.version)
    }

    /// What somebody sees, from old to new.
    pub(crate) fn versions(&self) -> &[u64] {
        &self.versions
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Age of the oldest one in nanoseconds.
    pub(crate) fn oldest_ns(&self, now: Mono) -> u64 {
        self.open.values().map(|snapshot| now.0.saturating_sub(snapshot.opened.0)).max().unwrap_or(0)
    }
}

impl<P: Pmem> Matrix<P> {
    /// What a reader of a snapshot sees, or one without.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`].
    pub(crate) fn read_view_of(&self, snapshot: Option<u64>) -> Result<ReadView, Error> {
        let at = match snapshot {
            // A page may take several steps, and nothing keeps for it what is overwritten
            // meanwhile: it shows the newest of each key.
            None => u64::MAX,
            Some(id) => self.snapshots.version_of(id).ok_or(Error::NoSnapshot { id })?,
        };
        Ok(ReadView { at, now: self.life.wall() })
    }

    /// The snapshot of a page that was closed while the page was gathered: what it showed may be
    /// gone.
    pub(crate) fn missing_snapshot(&self, work: &Work) -> Option<u64> {
        let Work::Page(page) = work else { return None };
        fault_point!("trial_page_outlives_its_snapshot", return None);
        page.snapshot.filter(|id| self.snapshots.version_of(*id).is_none())
    }

    /// What a snapshot or a backup asks for.
    ///
    /// # Errors
    /// The reply, if there is no more to do for it.
    pub(crate) fn cut(&mut self, operation: Operation) -> Result<Work, Reply> {
        match operation {
            operation if self.waits_for_load(&operation) => Ok(Work::AfterLoad(operation)),
            Operation::Backup { cursor: 0, .. } => {
                let version = self.container.version();
                let cursor = self.snapshots.open(version, self.life.mono());
                self.begin_backup(cursor);
                Err(Reply::Number { number: cursor, version })
            }
            Operation::Backup { cursor, .. } => self.backup_piece(cursor).map(Work::Page).map_err(Reply::Failed),
            Operation::Snapshot(SnapshotOp::Open) => {
                self.snapshots.has_room().map_err(Reply::Failed)?;
                let version = self.container.version();
                Err(Reply::Number { number: self.snapshots.open(version, self.life.mono()), version })
            }
            Operation::Snapshot(SnapshotOp::Close(id)) if self.close_snapshot(id) => {
                Err(Reply::Number { number: id, version: 0 })
            }
            Operation::Snapshot(SnapshotOp::Close(id)) => Err(Reply::Failed(Error::NoSnapshot { id })),
            _ => Err(Reply::Failed(Error::Unknown("it is no cut"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(oldest: u64, newest: u64, bytes: u64) -> KeptFor {
        KeptFor { oldest, newest, bytes }
    }

    #[test]
    fn what_is_kept_goes_with_the_last_snapshot_that_sees_it() {
        let mut snapshots = Snapshots::default();
        let (old, new) = (snapshots.open(10, Mono(5)), snapshots.open(20, Mono(7)));
        snapshots.keep(1, vec![kept(10, 10, 100), kept(10, 20, 7)]);
        snapshots.keep(2, vec![kept(20, 20, 30)]);
        assert_eq!((snapshots.kept_bytes(), snapshots.oldest_ns(Mono(9))), (137, 4));
        assert!(snapshots.end_oldest());
        assert_eq!((snapshots.kept_bytes(), snapshots.version_of(old), snapshots.ended_early()), (37, None, 1));
        assert_eq!(snapshots.most_stale(), Some((1, 100)));
        snapshots.forget(|file| file == 2);
        assert_eq!(snapshots.kept_bytes(), 30);
        assert!(snapshots.close(new) && !snapshots.end_oldest());
        assert_eq!((snapshots.kept_bytes(), snapshots.ended_early()), (0, 1));
    }

    /// They were charged to an older one, which had never seen them, and stayed as long as that.
    #[test]
    fn bytes_of_a_closed_snapshot_are_not_charged_to_an_older_one_that_never_saw_them() {
        let mut snapshots = Snapshots::default();
        let [old, middle, new] = [10, 20, 30].map(|version| snapshots.open(version, Mono(1)));
        // Written at 25, replaced behind 30; written at 15, replaced behind 30; written at 5,
        // replaced at 15.
        snapshots.keep(1, vec![kept(30, 30, 1000), kept(20, 30, 100), kept(10, 10, 10)]);
        assert!(snapshots.close(new));
        assert_eq!((snapshots.kept_bytes(), snapshots.most_stale()), (110, Some((1, 1000))));
        assert!(snapshots.close(middle));
        assert_eq!((snapshots.kept_bytes(), snapshots.most_stale()), (10, Some((1, 1100))));
        assert_eq!(snapshots.kept_in_tables().into_iter().collect::<Vec<_>>(), [(1, 1110)]);
        assert!(snapshots.close(old));
        assert_eq!((snapshots.kept_bytes(), snapshots.most_stale()), (0, Some((1, 1110))));
    }
}
