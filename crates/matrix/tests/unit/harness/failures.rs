//! Persistent memory that fails, operations that are larger than what there is, snapshots that
//! close.

use stratakv_engine::{Error, SnapshotOp, Update};

use super::*;

fn small() -> Harness {
    Harness::new(config(), 512 << 10, UNIT_BYTES)
}

/// A store to the region fails in the middle of a record: what of it is durable is not known, so
/// neither is the outcome. What it pointed to stays.
#[test]
pub(super) fn a_write_that_was_stored_half_way_is_unknown_and_keeps_its_value() {
    for stores in 0..2 {
        let mut harness = small();
        harness.fill(0..3, 10);
        let token = harness.submit(write(vec![put("long", value(9, 9000)), put("short", value(9, 9))]));
        harness.go_on_until(|harness| !harness.shard.installer.is_idle());
        harness.fail_stores_after(stores);
        harness.run_until_idle();
        match harness.replies.remove(&token) {
            Some(Reply::Failed(Error::Unknown(_))) => {}
            other => panic!("after {stores} stores: {other:?}"),
        }
        assert!(harness.shard.blobs.unreferenced().is_empty(), "a record may point to it");
        let refused = harness.ask(write(vec![put("a", value(1, 1))]));
        assert!(matches!(refused, Reply::Failed(_)), "{refused:?}");
        harness.assert_filled(0..3, 10);
        harness.fail_stores_after(i64::MAX);
        harness.reopen();
        harness.assert_filled(0..3, 10);
        let long = found(&harness.ask(get("long")));
        assert!(long.is_none_or(|long| long == value(9, 9000)));
    }
}

/// A fence fails: who wrote in that tick, or saw what was written, does not know; everybody else
/// gets what he asked for.
#[test]
pub(super) fn reads_are_answered_when_the_memory_fails() {
    let mut harness = small();
    harness.fill(0..3, 10);
    let new = harness.submit(write(vec![put(&name(0), value(7, 10))]));
    let (seen, other, absent) =
        (harness.submit(get(&name(0))), harness.submit(get(&name(1))), harness.submit(get("none")));
    let removed = harness.submit(write(vec![delete(&name(2))]));
    let gone = harness.submit(get(&name(2)));
    harness.fail_fences_after(0);
    harness.tick();
    let unknown = |token: u32| matches!(harness.replies[&token], Reply::Failed(Error::Unknown(_)));
    assert!(unknown(new) && unknown(seen) && unknown(removed) && unknown(gone), "{:?}", harness.replies);
    assert_eq!(found(&harness.replies[&other]).as_deref(), Some(&value(1, 10)[..]));
    assert_eq!(found(&harness.replies[&absent]), None);
}

/// Writes that wait when the memory fails are answered, and the shard closes.
#[test]
pub(super) fn nobody_waits_for_a_region_that_failed() {
    let mut harness = small();
    harness.fill(0..3, 10);
    let tokens = [
        harness.submit(write(vec![put("long", value(9, 9000))])),
        harness.submit(write(vec![put("long", value(8, 10))])),
        harness.submit(Operation::Sync),
    ];
    harness.tick();
    harness.submit(write(vec![put("a", value(1, 1))]));
    harness.fail_fences_after(0);
    harness.run_until_idle();
    for token in tokens {
        assert!(matches!(harness.replies.get(&token), Some(Reply::Failed(_))), "{token}: {:?}", harness.replies);
    }
    harness.close();
}

/// At `process_crash` the region's pages stayed in the page cache: a sync wrote nothing back and
/// was answered `Done`.
#[test]
pub(super) fn a_sync_writes_the_region_back() {
    let mut harness = small();
    let syncs = |harness: &Harness| harness.region.syncs.load(std::sync::atomic::Ordering::Relaxed);
    harness.fill(0..3, 10);
    assert!(matches!(harness.ask(Operation::Sync), Reply::Done { .. }));
    assert_eq!(syncs(&harness), 0, "fences do it");
    harness.region.volatile.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(harness.ask(Operation::Sync), Reply::Done { .. }));
    assert_eq!(syncs(&harness), 1);
    harness.fail_syncs_after(0);
    assert!(matches!(harness.ask(Operation::Sync), Reply::Failed(Error::Pmem(_))));
    harness.fail_syncs_after(i64::MAX);
    assert!(matches!(harness.ask(Operation::Sync), Reply::Failed(_)), "it is for good");
    assert!(matches!(harness.ask(write(vec![put("a", value(1, 1))])), Reply::Failed(_)));
    assert!(harness.shard.failure().is_some());
    harness.close();
    assert!(harness.shard.failure().is_some());
    assert_eq!(syncs(&harness), 2);
}

/// What could not be written back at the end was told to nobody, and the superblock said that the
/// end was orderly.
#[test]
pub(super) fn a_failed_last_sync_is_told_and_leaves_no_clean_superblock() {
    for at_sync in [true, false] {
        let mut harness = small();
        harness.fill(0..3, 10);
        assert_eq!(harness.shard.failure(), None);
        if at_sync {
            harness.fail_syncs_after(0);
            harness.close();
        } else {
            harness.shard.close(&mut harness.effects);
            harness.tick();
            while !harness.shard.is_closed() {
                harness.complete_where(Some(stratakv_device::IoFault::Os(5)), |_| true);
                harness.tick();
            }
        }
        assert!(harness.shard.failure().is_some(), "at the sync: {at_sync}");
        harness.fail_syncs_after(i64::MAX);
        harness.reopen();
        assert!(!harness.shard.recovery().clean, "at the sync: {at_sync}");
        harness.assert_filled(0..3, 10);
    }
}

#[test]
pub(super) fn a_batch_larger_than_the_container_is_refused_and_says_so() {
    let mut harness = small();
    let batch: Vec<_> = (0..200).map(|number| put(&name(number), value(number, 3000))).collect();
    let reply = harness.ask(write(batch));
    let Reply::Failed(Error::BatchTooLarge { len_bytes, max_bytes }) = reply else { panic!("{reply:?}") };
    assert!(len_bytes > 600_000 && max_bytes < len_bytes);
    harness.fill(0..200, 3000);
    let batch: Vec<_> = (0..40).map(|number| put(&name(number), value(number, 3000))).collect();
    assert!(matches!(harness.ask(write(batch)), Reply::Done { .. }), "others go on");
    harness.assert_filled(0..200, 3000);
}

/// Units of 1 MiB, a pool of 4 MiB, values of up to 16 MiB: gets, updates and scans read them in
/// pieces.
#[test]
pub(super) fn values_larger_than_the_memory_are_read_in_pieces() {
    let mut harness = Harness::new(MatrixConfig { memory_bytes: 4 << 20, ..config() }, 8 << 20, 64 << 10);
    let sizes = [16 << 20, 5 << 20, 100, 700 << 10];
    for (number, bytes) in (0..).zip(sizes) {
        let reply = harness.ask(write(vec![put(&name(number), value(number, bytes))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    harness.run_until_idle();
    let more = Bytes::from_static(b"and more");
    let update =
        Operation::Update { key: key(&name(0)), update: Update::Append(more.clone()), level: Level::PowerLoss };
    let reply = harness.ask(update);
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    let expected = |number: u64| {
        let mut bytes = value(number, sizes[number as usize]).to_vec();
        if number == 0 {
            bytes.extend_from_slice(&more);
        }
        bytes
    };
    for number in 0..4 {
        assert!(found(&harness.ask(get(&name(number)))) == Some(expected(number)), "key {number}");
    }
    let Reply::Page { items, .. } = harness.ask(page(10, None)) else { panic!("no page") };
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
    let mut harness = small();
    harness.fill(0..300, 1000);
    harness.run_until_idle();
    harness.reopen();
    // The volume grows: that needs no block, and what is in flight would keep it awake.
    harness.run_until_idle();
    let pool = harness.effects.pool().clone();
    let mut lent = Vec::new();
    for class in [stratakv_device::Class::Page, stratakv_device::Class::Slice] {
        lent.extend(std::iter::from_fn(|| pool.take(class)));
    }
    let token = harness.submit(get(&name(5)));
    for _ in 0..200 {
        harness.tick();
        let waits = harness.in_flight.is_empty() && !harness.replies.contains_key(&token);
        assert!(!waits || harness.wakes, "nobody would ever look again");
        lent.extend(std::iter::from_fn(|| pool.take(stratakv_device::Class::Page)));
        lent.extend(std::iter::from_fn(|| pool.take(stratakv_device::Class::Slice)));
    }
    assert!(!harness.more, "it spins");
    lent.clear();
    harness.run_until(|harness| harness.replies.contains_key(&token));
    assert!(harness.replies.contains_key(&token));
}

/// A run of deleted keys, longer than what a page holds of tables: a scan passes over it once.
#[test]
pub(super) fn a_scan_passes_over_deleted_keys_once() {
    let mut harness = Harness::new(MatrixConfig { memory_bytes: 4 << 20, ..config() }, 512 << 10, UNIT_BYTES);
    harness.fill(0..10_000, 450);
    harness.run_until_idle();
    // What it sees stays in the tables, of which there are more than fit in memory.
    harness.ask(Operation::Snapshot(SnapshotOp::Open));
    for number in 1..9999 {
        harness.ask(write(vec![delete(&name(number))]));
    }
    harness.run_until_idle();
    harness.reopen();
    harness.run_until_idle();
    for reverse in [false, true] {
        use std::ops::Bound::Unbounded;
        let before = harness.statistic("page_reads");
        let request = PageRequest {
            from: Unbounded,
            to: Unbounded,
            reverse,
            keys_only: false,
            items_max: 10,
            bytes_max: 1 << 20,
            at: None,
        };
        let token = harness.submit(Operation::Page(request.into()));
        let ticks = harness.run_until(|harness| harness.replies.contains_key(&token));
        let Some(Reply::Page { items, .. }) = harness.replies.remove(&token) else { panic!("no page") };
        let mut names: Vec<_> = items.iter().map(|item| item.key.user().to_vec()).collect();
        names.sort();
        assert_eq!(names, [name(0).into_bytes(), name(9999).into_bytes()]);
        let pages: u64 = (0..harness.shard.levels.depth()).map(|level| harness.shard.levels.pages(level)).sum();
        let reads = harness.statistic("page_reads") - before;
        assert!(reads <= 2 * pages, "{reads} pages were read of {pages}");
        assert!(u64::from(ticks) <= pages, "{ticks} ticks for {pages} pages");
    }
}

#[test]
pub(super) fn a_page_of_a_snapshot_that_was_closed_says_so() {
    let mut harness = small();
    harness.fill(0..300, 1000);
    harness.run_until_idle();
    harness.reopen();
    let Reply::Number { number: id, .. } = harness.ask(Operation::Snapshot(SnapshotOp::Open)) else { panic!() };
    let token = harness.submit(page(100, Some(id)));
    harness.tick();
    assert!(!harness.replies.contains_key(&token), "it waits for pages");
    harness.ask(Operation::Snapshot(SnapshotOp::Close(id)));
    harness.run_until_idle();
    assert!(
        matches!(harness.replies[&token], Reply::Failed(Error::NoSnapshot { .. })),
        "{:?}",
        harness.replies[&token]
    );
}

/// The version's word in a record has the milliseconds of the expiry above it: with some, no
/// snapshot seemed to see the record.
#[test]
pub(super) fn a_snapshot_sees_what_expires_within_a_second_and_was_overwritten() {
    let mut harness = small();
    let expiry = Expiry::after(harness.now.wall, 60_500);
    assert_ne!(expiry.0 % 1000, 0);
    let kind = ChangeKind::Put { value: value(1, 20), flags: 0, expiry };
    harness.ask(write(vec![Change { kind, ..put("a", value(1, 20)) }]));
    let Reply::Number { number: id, .. } = harness.ask(Operation::Snapshot(SnapshotOp::Open)) else { panic!() };
    harness.ask(write(vec![delete("a")]));
    match harness.ask(page(10, Some(id))) {
        Reply::Page { items, .. } => assert_eq!(items.len(), 1, "{items:?}"),
        other => panic!("not a page: {other:?}"),
    }
}

/// A page of a table is damaged: what is in it can be deleted, and the key is right from then on.
#[test]
pub(super) fn a_damaged_key_can_be_deleted() {
    let mut harness = small();
    harness.fill(0..1500, 300);
    harness.run_until_idle();
    let table = harness.shard.levels.level(0)[0].clone();
    let first = table.extents[0].page as usize * 4096;
    harness.volume[first + 100] ^= 1;
    harness.reopen();
    let number: u64 = (0..1500)
        .find(|number| matches!(harness.ask(get(&name(*number))), Reply::Failed(Error::Corrupt(_))))
        .expect("a key that is damaged");
    let reply = harness.ask(write(vec![delete(&name(number))]));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    assert_eq!(found(&harness.ask(get(&name(number)))), None);
}

/// Many gets of long values at once: each gets its own, and no more of them are in memory than its
/// share.
#[test]
pub(super) fn long_values_that_are_read_at_once_keep_within_their_share() {
    let mut harness = Harness::new(MatrixConfig { memory_bytes: 8 << 20, ..config() }, 8 << 20, 64 << 10);
    for number in 0..12 {
        let reply = harness.ask(write(vec![put(&name(number), value(number, 900 << 10))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    harness.run_until_idle();
    let tokens: Vec<u32> = (0..12).map(|number| harness.submit(get(&name(number)))).collect();
    for _ in 0..TICKS_MAX {
        harness.tick();
        let held = harness.shard.memory.outside_bytes()[1];
        assert!(held <= 2 << 20, "{held} bytes");
        if harness.in_flight.is_empty() && !harness.more {
            break;
        }
        while harness.complete_where(None, |_| true) {}
    }
    for (number, token) in (0..).zip(tokens) {
        let reply = harness.replies.remove(&token).unwrap_or_else(|| panic!("get {number} is never answered"));
        assert!(found(&reply) == Some(value(number, 900 << 10).to_vec()), "key {number}");
    }
    assert_eq!(harness.shard.memory.outside_bytes()[1], 0);
    assert_eq!(harness.shard.memory.outside_bytes()[0], 0);
}

/// A device that takes no writes: compaction was tried again and again, and who waited for it did
/// so for ever (simulator, seed 140012155).
#[test]
pub(super) fn writes_that_wait_for_a_device_that_fails_are_refused() {
    for bytes in [300, 9000] {
        let mut harness = small();
        let is_write = |request: &DiskRequest| matches!(request, DiskRequest::Write { .. });
        let tokens: Vec<_> =
            (0..3000).map(|number| harness.submit(write(vec![put(&name(number), value(number, bytes))]))).collect();
        for _ in 0..200 {
            harness.tick();
            while harness.complete_where(Some(IoFault::Os(5)), is_write) || harness.complete_where(None, |_| true) {}
            harness.pass(1);
        }
        let waiting = tokens.iter().filter(|token| !harness.replies.contains_key(token)).count();
        assert_eq!(waiting, 0, "writes of {bytes} bytes");
        let why = |token: &u32| matches!(harness.replies[token], Reply::Failed(Error::Io { .. }));
        assert!(tokens.iter().any(why), "{bytes} bytes: {:?}", harness.replies[&tokens[2999]]);
        // It takes writes again.
        harness.pass(2);
        harness.run_until_idle();
        harness.fill(0..300, 300);
        harness.run_until_idle();
        harness.assert_filled(0..300, 300);
    }
}

/// A row waits until a manifest has the deleted ranges before it. While that could not be written,
/// tick followed tick for a second (simulator, seed 150002243).
#[test]
pub(super) fn a_row_that_waits_for_a_device_that_fails_does_not_spin() {
    let mut harness = small();
    harness.fill(0..60, 30);
    let range = Box::new((std::ops::Bound::Included(key(&name(5))), std::ops::Bound::Excluded(key(&name(50)))));
    harness.ask(Operation::DeleteRange { range, level: Level::PowerLoss });
    // As after a compaction that failed.
    harness.shard.compactor.put_off_until(Mono(harness.now.mono.0 + 10_000_000_000));
    for number in 60..240 {
        harness.submit(write(vec![put(&name(number), value(number, 300))]));
    }
    harness.tick();
    assert!(harness.shard.compactor.flush_wants_manifest(u64::MAX) && harness.shard.compactor.is_flush_blocked());
    assert!(harness.run_until_idle() < 100);
}
