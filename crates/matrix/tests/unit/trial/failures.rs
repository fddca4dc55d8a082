//! Persistent memory that fails, operations that are larger than what there is, snapshots that
//! close.

use stratakv_engine::{Error, SnapshotOp, Update};

use super::*;

fn small() -> Trial {
    Trial::new(config(), 512 << 10, UNIT_BYTES)
}

/// A store to the region fails in the middle of a record: what of it is durable is not known, so
/// neither is the outcome. What it pointed to stays.
#[test]
pub(super) fn a_write_that_was_stored_half_way_is_unknown_and_keeps_its_value() {
    for stores in 0..2 {
        let mut trial = small();
        trial.fill(0..3, 10);
        let token = trial.submit(write(vec![put("long", value(9, 9000)), put("short", value(9, 9))]));
        trial.go_on_until(|trial| trial.shard.install.is_some());
        trial.fail_stores_after(stores);
        trial.settle();
        match trial.replies.remove(&token) {
            Some(Reply::Failed(Error::Unknown(_))) => {}
            other => panic!("after {stores} stores: {other:?}"),
        }
        assert!(trial.shard.orphans.is_empty(), "a record may point to it");
        let refused = trial.ask(write(vec![put("a", value(1, 1))]));
        assert!(matches!(refused, Reply::Failed(_)), "{refused:?}");
        trial.assert_filled(0..3, 10);
        trial.fail_stores_after(i64::MAX);
        trial.reopen();
        trial.assert_filled(0..3, 10);
        let long = found(&trial.ask(get("long")));
        assert!(long.is_none_or(|long| long == value(9, 9000)));
    }
}

/// A fence fails: who wrote in that tick, or saw what was written, does not know; everybody else
/// gets what he asked for.
#[test]
pub(super) fn reads_are_answered_when_the_memory_fails() {
    let mut trial = small();
    trial.fill(0..3, 10);
    let new = trial.submit(write(vec![put(&name(0), value(7, 10))]));
    let (seen, other, absent) = (trial.submit(get(&name(0))), trial.submit(get(&name(1))), trial.submit(get("none")));
    let removed = trial.submit(write(vec![delete(&name(2))]));
    let gone = trial.submit(get(&name(2)));
    trial.fail_fences_after(0);
    trial.tick();
    let unknown = |token: u32| matches!(trial.replies[&token], Reply::Failed(Error::Unknown(_)));
    assert!(unknown(new) && unknown(seen) && unknown(removed) && unknown(gone), "{:?}", trial.replies);
    assert_eq!(found(&trial.replies[&other]).as_deref(), Some(&value(1, 10)[..]));
    assert_eq!(found(&trial.replies[&absent]), None);
}

/// Writes that wait when the memory fails are answered, and the shard closes.
#[test]
pub(super) fn nobody_waits_for_a_region_that_failed() {
    let mut trial = small();
    trial.fill(0..3, 10);
    let tokens = [
        trial.submit(write(vec![put("long", value(9, 9000))])),
        trial.submit(write(vec![put("long", value(8, 10))])),
        trial.submit(Operation::Sync),
    ];
    trial.tick();
    trial.submit(write(vec![put("a", value(1, 1))]));
    trial.fail_fences_after(0);
    trial.settle();
    for token in tokens {
        assert!(matches!(trial.replies.get(&token), Some(Reply::Failed(_))), "{token}: {:?}", trial.replies);
    }
    trial.close();
}

/// At `process_crash` the region's pages stayed in the page cache: a sync wrote nothing back and
/// was answered `Done`.
#[test]
pub(super) fn a_sync_writes_the_region_back() {
    let mut trial = small();
    let syncs = |trial: &Trial| trial.region.syncs.load(std::sync::atomic::Ordering::Relaxed);
    trial.fill(0..3, 10);
    assert!(matches!(trial.ask(Operation::Sync), Reply::Done { .. }));
    assert_eq!(syncs(&trial), 0, "fences do it");
    trial.region.volatile.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(trial.ask(Operation::Sync), Reply::Done { .. }));
    assert_eq!(syncs(&trial), 1);
    trial.fail_syncs_after(0);
    assert!(matches!(trial.ask(Operation::Sync), Reply::Failed(Error::Pmem(_))));
    trial.fail_syncs_after(i64::MAX);
    assert!(matches!(trial.ask(Operation::Sync), Reply::Failed(_)), "it is for good");
    assert!(matches!(trial.ask(write(vec![put("a", value(1, 1))])), Reply::Failed(_)));
    assert!(trial.shard.failure().is_some());
    trial.close();
    assert!(trial.shard.failure().is_some());
    assert_eq!(syncs(&trial), 2);
}

/// What could not be written back at the end was told to nobody, and the superblock said that the
/// end was orderly.
#[test]
pub(super) fn a_failed_last_sync_is_told_and_leaves_no_clean_superblock() {
    for at_sync in [true, false] {
        let mut trial = small();
        trial.fill(0..3, 10);
        assert_eq!(trial.shard.failure(), None);
        if at_sync {
            trial.fail_syncs_after(0);
            trial.close();
        } else {
            trial.shard.close(&mut trial.effects);
            trial.tick();
            while !trial.shard.is_closed() {
                trial.complete_where(Some(stratakv_device::IoFault::Os(5)), |_| true);
                trial.tick();
            }
        }
        assert!(trial.shard.failure().is_some(), "at the sync: {at_sync}");
        trial.fail_syncs_after(i64::MAX);
        trial.reopen();
        assert!(!trial.shard.recovery().clean, "at the sync: {at_sync}");
        trial.assert_filled(0..3, 10);
    }
}

#[test]
pub(super) fn a_batch_larger_than_the_container_is_refused_and_says_so() {
    let mut trial = small();
    let batch: Vec<_> = (0..200).map(|number| put(&name(number), value(number, 3000))).collect();
    let reply = trial.ask(write(batch));
    let Reply::Failed(Error::BatchTooLarge { len_bytes, max_bytes }) = reply else { panic!("{reply:?}") };
    assert!(len_bytes > 600_000 && max_bytes < len_bytes);
    trial.fill(0..200, 3000);
    let batch: Vec<_> = (0..40).map(|number| put(&name(number), value(number, 3000))).collect();
    assert!(matches!(trial.ask(write(batch)), Reply::Done { .. }), "others go on");
    trial.assert_filled(0..200, 3000);
}

/// Units of 1 MiB, a pool of 4 MiB, values of up to 16 MiB: gets, updates and scans read them in
/// pieces.
#[test]
pub(super) fn values_larger_than_the_memory_are_read_in_pieces() {
    let mut trial = Trial::new(MatrixConfig { memory_bytes: 4 << 20, ..config() }, 8 << 20, 64 << 10);
    let sizes = [16 << 20, 5 << 20, 100, 700 << 10];
    for (number, bytes) in (0..).zip(sizes) {
        let reply = trial.ask(write(vec![put(&name(number), value(number, bytes))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    trial.settle();
    let more = Bytes::from_static(b"and more");
    let update =
        Operation::Update { key: key(&name(0)), update: Update::Append(more.clone()), level: Level::PowerLoss };
    let reply = trial.ask(update);
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    let expected = |number: u64| {
        let mut bytes = value(number, sizes[number as usize]).to_vec();
        if number == 0 {
            bytes.extend_from_slice(&more);
        }
        bytes
    };
    for number in 0..4 {
        assert!(found(&trial.ask(get(&name(number)))) == Some(expected(number)), "key {number}");
    }
    let Reply::Page { items, .. } = trial.ask(page(10, None)) else { panic!("no page") };
    assert_eq!(items.len(), 4);
    for (number, item) in (0..).zip(items) {
        let record = item.record.unwrap();
        assert!(record.value.slices().flatten().copied().eq(expected(number)), "key {number}");
    }
}

/// All blocks are lent to somebody else: whoever waits for one asks for ticks, but not for ever,
/// and goes on when there is one.
#[test]
pub(super) fn a_shard_without_blocks_neither_hangs_nor_spins() {
    let mut trial = small();
    trial.fill(0..300, 1000);
    trial.settle();
    trial.reopen();
    // The volume grows: that needs no block, and what is in flight would keep it awake.
    trial.settle();
    let pool = trial.effects.pool().clone();
    let mut lent = Vec::new();
    for class in [stratakv_device::Class::Page, stratakv_device::Class::Slice] {
        lent.extend(std::iter::from_fn(|| pool.take(class)));
    }
    let token = trial.submit(get(&name(5)));
    for _ in 0..200 {
        trial.tick();
        let waits = trial.in_flight.is_empty() && !trial.replies.contains_key(&token);
        assert!(!waits || trial.wakes, "nobody would ever look again");
        lent.extend(std::iter::from_fn(|| pool.take(stratakv_device::Class::Page)));
        lent.extend(std::iter::from_fn(|| pool.take(stratakv_device::Class::Slice)));
    }
    assert!(!trial.more, "it spins");
    lent.clear();
    trial.settle_until(|trial| trial.replies.contains_key(&token));
    assert!(trial.replies.contains_key(&token));
}

/// A run of deleted keys, longer than what a page holds of tables: a scan passes over it once.
#[test]
pub(super) fn a_scan_passes_over_deleted_keys_once() {
    let mut trial = Trial::new(MatrixConfig { memory_bytes: 4 << 20, ..config() }, 512 << 10, UNIT_BYTES);
    trial.fill(0..10_000, 450);
    trial.settle();
    // What it sees stays in the tables, of which there are more than fit in memory.
    trial.ask(Operation::Snapshot(SnapshotOp::Open));
    for number in 1..9999 {
        trial.ask(write(vec![delete(&name(number))]));
    }
    trial.settle();
    trial.reopen();
    trial.settle();
    for reverse in [false, true] {
        use std::ops::Bound::Unbounded;
        let before = trial.statistic("page_reads");
        let request = PageRequest {
            from: Unbounded,
            to: Unbounded,
            reverse,
            keys_only: false,
            items_max: 10,
            bytes_max: 1 << 20,
            at: None,
        };
        let token = trial.submit(Operation::Page(request.into()));
        let ticks = trial.settle_until(|trial| trial.replies.contains_key(&token));
        let Some(Reply::Page { items, .. }) = trial.replies.remove(&token) else { panic!("no page") };
        let mut names: Vec<_> = items.iter().map(|item| item.key.user().to_vec()).collect();
        names.sort();
        assert_eq!(names, [name(0).into_bytes(), name(9999).into_bytes()]);
        let pages: u64 = (0..trial.shard.levels.depth()).map(|level| trial.shard.levels.pages(level)).sum();
        let reads = trial.statistic("page_reads") - before;
        assert!(reads <= 2 * pages, "{reads} pages were read of {pages}");
        assert!(u64::from(ticks) <= pages, "{ticks} turns for {pages} pages");
    }
}

#[test]
pub(super) fn a_page_of_a_snapshot_that_was_closed_says_so() {
    let mut trial = small();
    trial.fill(0..300, 1000);
    trial.settle();
    trial.reopen();
    let Reply::Number { number: id, .. } = trial.ask(Operation::Snapshot(SnapshotOp::Open)) else { panic!() };
    let token = trial.submit(page(100, Some(id)));
    trial.tick();
    assert!(!trial.replies.contains_key(&token), "it waits for pages");
    trial.ask(Operation::Snapshot(SnapshotOp::Close(id)));
    trial.settle();
    assert!(matches!(trial.replies[&token], Reply::Failed(Error::NoSnapshot { .. })), "{:?}", trial.replies[&token]);
}

/// The version's word in a record has the milliseconds of the expiry above it: with some, no
/// snapshot seemed to see the record.
#[test]
pub(super) fn a_snapshot_sees_what_expires_within_a_second_and_was_overwritten() {
    let mut trial = small();
    let expiry = Expiry::after(trial.now.wall, 60_500);
    assert_ne!(expiry.0 % 1000, 0);
    let kind = ChangeKind::Put { value: value(1, 20), flags: 0, expiry };
    trial.ask(write(vec![Change { kind, ..put("a", value(1, 20)) }]));
    let Reply::Number { number: id, .. } = trial.ask(Operation::Snapshot(SnapshotOp::Open)) else { panic!() };
    trial.ask(write(vec![delete("a")]));
    match trial.ask(page(10, Some(id))) {
        Reply::Page { items, .. } => assert_eq!(items.len(), 1, "{items:?}"),
        other => panic!("not a page: {other:?}"),
    }
}

/// A page of a table is damaged: what is in it can be deleted, and the key is right from then on.
#[test]
pub(super) fn a_damaged_key_can_be_deleted() {
    let mut trial = small();
    trial.fill(0..1500, 300);
    trial.settle();
    let table = trial.shard.levels.level(0)[0].clone();
    let first = table.extents[0].page as usize * 4096;
    trial.volume[first + 100] ^= 1;
    trial.reopen();
    let number: u64 = (0..1500)
        .find(|number| matches!(trial.ask(get(&name(*number))), Reply::Failed(Error::Corrupt(_))))
        .expect("a key that is damaged");
    let reply = trial.ask(write(vec![delete(&name(number))]));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    assert_eq!(found(&trial.ask(get(&name(number)))), None);
}

/// Many gets of long values at once: each gets its own, and no more of them are in memory than its
/// share.
#[test]
pub(super) fn long_values_that_are_read_at_once_keep_within_their_share() {
    let mut trial = Trial::new(MatrixConfig { memory_bytes: 8 << 20, ..config() }, 8 << 20, 64 << 10);
    for number in 0..12 {
        let reply = trial.ask(write(vec![put(&name(number), value(number, 900 << 10))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    trial.settle();
    let tokens: Vec<u32> = (0..12).map(|number| trial.submit(get(&name(number)))).collect();
    for _ in 0..TICKS_MAX {
        trial.tick();
        let held = trial.shard.long_bytes.load(Ordering::Relaxed);
        assert!(held <= 2 << 20, "{held} bytes");
        if trial.in_flight.is_empty() && !trial.more {
            break;
        }
        while trial.complete_where(None, |_| true) {}
    }
    for (number, token) in (0..).zip(tokens) {
        let reply = trial.replies.remove(&token).unwrap_or_else(|| panic!("get {number} is never answered"));
        assert!(found(&reply) == Some(value(number, 900 << 10).to_vec()), "key {number}");
    }
    assert_eq!(trial.shard.long_bytes.load(Ordering::Relaxed), 0);
    assert_eq!(trial.shard.waiting_bytes.load(Ordering::Relaxed), 0);
}

/// A device that takes no writes: compaction was tried again and again, and who waited for it did
/// so for ever (simulator, seed 140012155).
#[test]
pub(super) fn writes_that_wait_for_a_device_that_fails_are_refused() {
    for bytes in [300, 9000] {
        let mut trial = small();
        let is_write = |request: &DiskRequest| matches!(request, DiskRequest::Write { .. });
        let tokens: Vec<_> =
            (0..3000).map(|number| trial.submit(write(vec![put(&name(number), value(number, bytes))]))).collect();
        for _ in 0..200 {
            trial.tick();
            while trial.complete_where(Some(IoFault::Os(5)), is_write) || trial.complete_where(None, |_| true) {}
            trial.pass(1);
        }
        let waiting = tokens.iter().filter(|token| !trial.replies.contains_key(token)).count();
        assert_eq!(waiting, 0, "writes of {bytes} bytes");
        let why = |token: &u32| matches!(trial.replies[token], Reply::Failed(Error::Io { .. }));
        assert!(tokens.iter().any(why), "{bytes} bytes: {:?}", trial.replies[&tokens[2999]]);
        // It takes writes again.
        trial.pass(2);
        trial.settle();
        trial.fill(0..300, 300);
        trial.settle();
        trial.assert_filled(0..300, 300);
    }
}

/// A row waits until a manifest has the deleted ranges before it. While that could not be written,
/// tick followed tick for a second (simulator, seed 150002243).
#[test]
pub(super) fn a_row_that_waits_for_a_device_that_fails_does_not_spin() {
    let mut trial = small();
    trial.fill(0..60, 30);
    let range = Box::new((std::ops::Bound::Included(key(&name(5))), std::ops::Bound::Excluded(key(&name(50)))));
    trial.ask(Operation::DeleteRange { range, level: Level::PowerLoss });
    // As after a compaction that failed.
    trial.shard.job_not_before = Mono(trial.now.mono.0 + 10_000_000_000);
    for number in 60..240 {
        trial.submit(write(vec![put(&name(number), value(number, 300))]));
    }
    trial.tick();
    assert!(trial.shard.ranges_wait.is_some() && trial.shard.flush_waits);
    assert!(trial.settle() < 100);
}
