//! [`Shared`]: operations of the contract, done in place.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use stratakv_base::{Expiry, Key, Now, Wall};
use stratakv_engine::update;
use stratakv_engine::{
    Capabilities, Capability, Change, ChangeKind, Error, Expect, Operation, Record, RecordPart, Reply, Shared,
    SnapshotOp, Statistic, Update, Value,
};
use stratakv_pmem::{Pmem, PmemError};

use crate::hash::{Hash, Written};

/// Bytes of records that a step of maintenance checks: at ten steps a second 2.5 MB, or a terabyte
/// in five days.
const SCRUB_BYTES: u64 = 256 << 10;

/// Names of figures by the machine's number of a node; those of more are in
/// [`Hash::report`](crate::Hash::report).
const NODE_FIGURES: [[&str; 4]; 4] = [
    ["node0_bytes", "node0_used_bytes", "node0_local", "node0_remote"],
    ["node1_bytes", "node1_used_bytes", "node1_local", "node1_remote"],
    ["node2_bytes", "node2_used_bytes", "node2_local", "node2_remote"],
    ["node3_bytes", "node3_used_bytes", "node3_local", "node3_remote"],
];

impl<P: Pmem + Send + Sync> Shared for Hash<P> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: false, snapshot: true, durable: true, evicting: false, blind: false }
    }

    fn execute_begun(&self, operation: Operation, begun_at: Option<u64>, now: Now) -> Reply {
        // Whoever may write is waited for at the end: nothing is stored once the region may be
        // another's.
        let _calling = (!matches!(operation, Operation::Get { .. })).then(|| self.calls.under_way.enter());
        if self.calls.are_over.load(Ordering::SeqCst) {
            return Reply::Failed(Error::Closed);
        }
        self.answer(operation, begun_at, now).unwrap_or_else(|error| {
            if let Error::Pmem(failure @ PmemError::SyncFailed { .. }) = &error {
                // Whatever it was for, pages may be gone.
                self.fail(failure);
            }
            Reply::Failed(error)
        })
    }

    fn prefetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        Hash::prefetch(self, keys);
    }

    fn last_version(&self) -> u64 {
        Hash::last_version(self)
    }

    fn writes_wait(&self) -> bool {
        self.region.pmem.fence_waits()
    }

    fn maintain(&self, now: Now) -> bool {
        self.sweep_past();
        if self.calls.are_over.load(Ordering::Acquire) || self.check_writable().is_err() {
            return false;
        }
        if self.reclaim_expired(now.wall) {
            return true;
        }
        self.scrub(SCRUB_BYTES);
        false
    }

    fn statistics(&self, out: &mut Vec<Statistic>) {
        let report = self.report();
        let mut add = |name, value| out.push(Statistic { name, value });
        add("records", report.records);
        add("index_bytes", report.dram.table_bytes + report.dram.order_bytes + report.dram.expiry_bytes);
        add("region_bytes", self.region.superblock.region_bytes());
        add("region_used_bytes", report.used_bytes - report.free_bytes);
        add("region_free_bytes", report.free_bytes + report.unused_bytes);
        add("region_retired_bytes", report.retired_bytes);
        add("damaged_places", report.damaged);
        add("expired_records", report.reclaimed);
        add("scrubbed_bytes", report.scrubbed_bytes);
        add("scrub_rounds", report.scrub_rounds);
        add("snapshots", report.snapshots.open);
        add("snapshots_kept_bytes", report.snapshots.kept_bytes);
        add("snapshots_index_bytes", report.snapshots.index_bytes);
        add("region_lost_bytes", report.lost_bytes);
        add("space_bytes", report.dram.space_bytes);
        add("snapshots_ended_early", report.snapshots.ended_early);
        for node in report.nodes {
            let Some([bytes, used_bytes, local, remote]) = NODE_FIGURES.get(node.number as usize) else { continue };
            add(bytes, node.bytes);
            add(used_bytes, node.used_bytes);
            add(local, node.local);
            add(remote, node.remote);
        }
    }

    fn close(&self) {
        if self.calls.are_over.swap(true, Ordering::SeqCst) {
            return;
        }
        self.calls.under_way.wait();
        if let Err(error) = self.region.pmem.sync() {
            // [`Shared::failure`] tells of it.
            self.fail(&error);
        }
    }

    fn failure(&self) -> Option<Error> {
        self.medium_failure().map(Error::Pmem)
    }
}

impl<P: Pmem> Hash<P> {
    fn answer(&self, operation: Operation, begun_at: Option<u64>, now: Now) -> Result<Reply, Error> {
        let wall = now.wall;
        match operation {
            Operation::Get { key, part: RecordPart::Meta } => Ok(Reply::Record(self.get_meta(&key, wall)?)),
            Operation::Get { key, part } => {
                Ok(Reply::Record(self.get(&key, wall)?.map(|record| part_of(record, part))))
            }
            Operation::Update { key, update, .. } => self.update(&key, &update, wall),
            Operation::Write { changes, .. } => match &changes[..] {
                [change] => Ok(reply(self.change(change, wall)?)),
                changes => Ok(reply(self.write(changes, wall)?)),
            },
            Operation::Load { .. } => Err(Error::Unsupported(Capability::Load)),
            Operation::Page(request) => {
                let (items, next) = self.page(&request, wall)?;
                Ok(Reply::Page { items, next })
            }
            Operation::List(request) => {
                let (items, next) = self.list(&request, wall)?;
                Ok(Reply::Listed { items, next })
            }
            Operation::DeleteRange { range, .. } => {
                let (from, to) = *range;
                let not_after = begun_at.unwrap_or_else(|| self.last_version());
                let (number, version) = self.delete_range(&from, to, not_after, wall)?;
                Ok(Reply::Number { number, version })
            }
            Operation::Snapshot(SnapshotOp::Open) => {
                Ok(Reply::Number { number: self.open_snapshot(now.mono)?, version: self.last_version() })
            }
            Operation::Snapshot(SnapshotOp::Close(id)) => {
                self.close_snapshot(id)?;
                Ok(Reply::Done { version: self.last_version(), existed: true })
            }
            Operation::Backup { cursor: 0, .. } => {
                Ok(Reply::Number { number: self.begin_backup(now.mono)?, version: self.last_version() })
            }
            Operation::Backup { cursor, .. } => {
                let (items, next) = self.backup_piece(cursor, wall)?;
                Ok(Reply::Page { items, next })
            }
            Operation::Sync => {
                self.check_writable()?;
                self.region.pmem.sync()?;
                Ok(Reply::Done { version: self.last_version(), existed: false })
            }
        }
    }

    fn change(&self, change: &Change, wall: Wall) -> Result<Written, Error> {
        change.key.check()?;
        match &change.kind {
            ChangeKind::Put { value, flags, expiry } => {
                self.put(&change.key, value, (*flags, *expiry), change.expect, wall)
            }
            ChangeKind::Delete => self.delete(&change.key, change.expect, wall),
            ChangeKind::Check => self.write(std::slice::from_ref(change), wall),
        }
    }

    /// Reads, computes, and writes if nobody was faster; else again.
    fn update(&self, key: &Key, update: &Update, wall: Wall) -> Result<Reply, Error> {
        loop {
            let Some(record) = self.get(key, wall)? else {
                let made = match update::create(update) {
                    Ok(made) => made,
                    Err(reply) => return Ok(reply),
                };
                let about = (made.flags.unwrap_or(0), Expiry(made.expiry));
                match self.put(key, &made.value, about, Expect::Absent, wall)? {
                    Written::Done { version, .. } => return Ok(Reply::Done { version, existed: false }),
                    Written::Unmet(_) => continue,
                }
            };
            let outcome = match update::apply(update, &record.value.to_bytes(), record.flags, record.expiry.0) {
                Ok(outcome) => outcome,
                Err(error) => return Ok(error.into()),
            };
            let expiry = Expiry(outcome.expiry);
            let flags = outcome.flags.unwrap_or(record.flags);
            let written = self.put(key, &outcome.value, (flags, expiry), Expect::Version(record.version), wall)?;
            let Written::Done { version, existed } = written else { continue };
            return Ok(match (update, outcome.number) {
                (_, Some(number)) => Reply::Number { number, version },
                (Update::Touch(_), None) => Reply::Record(Some(Record { version, expiry, ..record })),
                _ => Reply::Done { version, existed },
            });
        }
    }
}

fn reply(written: Written) -> Reply {
    match written {
        Written::Done { version, existed } => Reply::Done { version, existed },
        Written::Unmet(unmet) => Reply::Unmet(unmet),
    }
}

/// The part of a record that was asked for.
fn part_of(record: Record, part: RecordPart) -> Record {
    let (start, len) = match part {
        RecordPart::Range { start, len } => (start, len),
        // No more than was asked for, though all of it was copied: the server has counted that
        // much.
        RecordPart::Sliced { start, len, .. } => (start, len.into()),
        RecordPart::Whole | RecordPart::Meta => return record,
    };
    let start = start.min(record.value_bytes);
    let end = start.saturating_add(len).min(record.value_bytes);
    let whole = record.value.to_bytes();
    // A small part that shares the whole would keep it: many such replies wait for a client that
    // asked for many long values.
    let share =
        |part: &[u8]| if part.len() < whole.len() / 2 { Bytes::copy_from_slice(part) } else { whole.slice_ref(part) };
    let value = whole.get(start as usize..end as usize).map_or_else(Bytes::new, share);
    Record { value: Value::Inline(value), ..record }
}
