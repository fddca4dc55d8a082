//! Volumes with hardly room, and values among dead ones.

use stratakv_engine::{Error, SnapshotOp};

use super::*;
use crate::space::CompactionBackoff;

fn tiny() -> Harness {
    Harness::new(
        MatrixConfig { capacity_bytes: Some(4 << 20), table_bytes: 16 << 10, level_bytes: 64 << 10, ..config() },
        512 << 10,
        UNIT_BYTES,
    )
}

/// Puts until one is refused. How many went well.
pub(super) fn fill_up(harness: &mut Harness, bytes: usize) -> u64 {
    for number in 0..100_000 {
        match harness.ask(write(vec![put(&name(number), value(number, bytes))])) {
            Reply::Done { .. } => {}
            Reply::Failed(Error::Full(_)) => return number,
            other => panic!("key {number}: {other:?}"),
        }
    }
    panic!("it is never full");
}

/// A full volume refuses puts, not deletes and reads; what was deleted makes room again, as often
/// as one likes.
#[test]
pub(super) fn a_full_volume_recovers_after_deletes() {
    for bytes in [100, 1000, 3500, 9000] {
        let mut harness = tiny();
        let held = fill_up(&mut harness, bytes);
        assert!(held * bytes as u64 > 1_500_000, "only {held} values of {bytes} bytes");
        harness.assert_sound();
        for round in 0..3 {
            for number in 0..held * 3 / 4 {
                let reply = harness.ask(write(vec![delete(&name(number))]));
                assert!(matches!(reply, Reply::Done { .. }), "round {round}, key {number}: {reply:?}");
            }
            harness.assert_filled(held * 3 / 4..held, bytes);
            harness.fill(0..held / 2, bytes);
            harness.fill(held / 2..held * 3 / 4 - held / 8, bytes);
        }
        harness.run_until_idle();
        harness.assert_sound();
        harness.reopen();
        harness.assert_filled(0..held / 2, bytes);
        harness.assert_filled(held * 3 / 4..held, bytes);
    }
}

/// Most values of a file are overwritten or deleted, and nothing is compacted where the keys of the
/// rest lie.
#[test]
pub(super) fn values_among_dead_ones_are_collected() {
    let mut harness = Harness::new(MatrixConfig { level_bytes: 64 << 20, ..config() }, 512 << 10, UNIT_BYTES);
    harness.fill(0..4000, 1000);
    harness.run_until_idle();
    // Every fifth one stays.
    for number in (0..4000).filter(|number| number % 5 != 0) {
        harness.ask(write(vec![delete(&name(number))]));
    }
    // Elsewhere in the key space: the columns that bring the deletes down free their bytes.
    for number in 0..3000u64 {
        harness.ask(write(vec![put(&format!("other{number}"), value(number, 100))]));
    }
    harness.run_until_idle();
    let (bytes, live_bytes) = harness.shard.levels.value_sums();
    assert!(bytes <= live_bytes * 2, "{bytes} bytes for {live_bytes}");
    assert!(harness.statistic("value_collections") > 0);
    for number in (0..4000).step_by(5) {
        harness.assert_filled(number..number + 1, 1000);
    }
    harness.assert_sound();
}

/// Long values whose writes are refused, or fail on damage, leave nothing on the volume.
#[test]
pub(super) fn values_of_refused_writes_do_not_stay() {
    let mut harness = tiny();
    harness.run_until_idle();
    let free = harness.shard.volume.free_pages();
    for _ in 0..400 {
        let change = Change { expect: Expect::Present, ..put("none", value(1, 9000)) };
        assert!(matches!(harness.ask(write(vec![change])), Reply::Unmet(_)));
        let reply = harness.ask(write(vec![put("one", value(1, 9000))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
        assert!(matches!(harness.ask(write(vec![delete("one")])), Reply::Done { .. }));
    }
    harness.run_until_idle();
    assert!(harness.shard.volume.free_pages() + 400 > free, "{} of {free}", harness.shard.volume.free_pages());
}

fn snapshot(harness: &mut Harness) -> u64 {
    match harness.ask(Operation::Snapshot(SnapshotOp::Open)) {
        Reply::Number { number, .. } => number,
        other => panic!("no snapshot: {other:?}"),
    }
}

/// Overwrites all keys, and leaves the shard at rest.
fn overwrite(harness: &mut Harness, keys: u64, bytes: usize) {
    for number in 0..keys {
        let reply = harness.ask(write(vec![put(&name(number), value(number + 1_000_000, bytes))]));
        assert!(matches!(reply, Reply::Done { .. }), "key {number}: {reply:?}");
    }
    harness.run_until_idle();
}

/// It kept all that was overwritten, and puts were refused as long as it was open.
#[test]
pub(super) fn a_snapshot_held_for_ever_ends_before_puts_are_refused() {
    for bytes in [100, 1000] {
        let mut harness = tiny();
        // Once there is room for them, twice there is not.
        let keys = 1_450_000 / bytes as u64;
        harness.fill(0..keys, bytes);
        let held = snapshot(&mut harness);
        for _ in 0..8 {
            overwrite(&mut harness, keys, bytes);
        }
        assert_eq!(
            (harness.statistic("snapshots"), harness.statistic("snapshots_ended_early")),
            (0, 1),
            "{bytes} bytes"
        );
        let reply = harness.ask(page(10, Some(held)));
        assert!(matches!(reply, Reply::Failed(Error::NoSnapshot { id }) if id == held), "{reply:?}");
        harness.assert_sound();
    }
}

/// A volume with hardly room, where nothing more can be cleared away, and a snapshot for which
/// something is kept.
fn full_with_a_snapshot() -> (Harness, u64) {
    let mut harness = tiny();
    harness.fill(0..800, 1000);
    let held = snapshot(&mut harness);
    overwrite(&mut harness, 300, 1000);
    for number in 10_000.. {
        if harness.shard.is_tight() {
            break;
        }
        harness.fill(number..number + 1, 1000);
        harness.run_until_idle();
    }
    assert_eq!((harness.shard.compactor.backoff(), harness.statistic("snapshots")), (CompactionBackoff::Full, 1));
    assert!(harness.statistic("snapshots_kept_bytes") > 100_000);
    (harness, held)
}

#[test]
fn a_delete_that_had_not_to_wait_ended_a_snapshot() {
    let (mut harness, held) = full_with_a_snapshot();
    assert!(matches!(harness.ask(write(vec![delete(&name(799))])), Reply::Done { .. }));
    assert_eq!((harness.statistic("snapshots"), harness.statistic("snapshots_ended_early")), (1, 0));
    assert!(matches!(harness.ask(page(10, Some(held))), Reply::Page { .. }));
}

#[test]
fn a_full_volume_went_on_refusing_when_the_snapshot_that_filled_it_was_closed() {
    let (mut harness, held) = full_with_a_snapshot();
    assert!(matches!(harness.ask(Operation::Snapshot(SnapshotOp::Close(held))), Reply::Number { .. }));
    let reply = harness.ask(write(vec![put("one more", value(1, 1000))]));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    harness.assert_sound();
}

#[test]
fn long_values_were_refused_though_a_snapshot_kept_the_room() {
    let (mut harness, _) = full_with_a_snapshot();
    for number in 0..20 {
        let reply = harness.ask(write(vec![put(&format!("long{number}"), value(number, 9000))]));
        assert!(matches!(reply, Reply::Done { .. }), "value {number}: {reply:?}");
    }
    assert_eq!(harness.statistic("snapshots_ended_early"), 1);
    harness.assert_sound();
}

/// Nothing told what snapshots keep, and at the bottom it stayed when they were closed.
#[test]
pub(super) fn what_a_snapshot_keeps_is_told_and_given_back() {
    for bytes in [100, 1000] {
        let mut harness = Harness::new(MatrixConfig { level_bytes: 32 << 10, ..config() }, 512 << 10, UNIT_BYTES);
        let keys = 2_000_000 / bytes as u64;
        harness.fill(0..keys, bytes);
        let held = snapshot(&mut harness);
        assert_eq!(harness.statistic("snapshots_kept_bytes"), 0);
        for _ in 0..6 {
            overwrite(&mut harness, keys / 5, bytes);
        }
        let kept = harness.statistic("snapshots_kept_bytes");
        let once = keys / 5 * (bytes as u64 + 10);
        assert!((once / 4..=once).contains(&kept), "{bytes} bytes: {kept} of {once}");
        harness.pass(3);
        harness.tick();
        assert!(harness.statistic("snapshot_oldest_ns") >= 3_000_000_000);
        let Reply::Page { items, .. } = harness.ask(page(5, Some(held))) else { panic!("it is open") };
        assert_eq!(items.len(), 5);
        let used = |harness: &Harness| harness.shard.volume.capacity() - harness.shard.volume.free_pages();
        let before = used(&harness);
        assert!(matches!(harness.ask(Operation::Snapshot(SnapshotOp::Close(held))), Reply::Number { .. }));
        assert_eq!(harness.statistic("snapshots_kept_bytes"), 0);
        harness.fill(keys..keys + 10, bytes);
        harness.run_until_idle();
        assert!(used(&harness) + kept / 4096 / 2 <= before, "{} pages of {before}, {kept} bytes kept", used(&harness));
        harness.assert_sound();
    }
}

/// The process ended with the snapshot open: what it kept was forgotten, and stayed for good.
#[test]
fn what_a_snapshot_kept_is_given_back_after_a_restart() {
    let mut harness = Harness::new(MatrixConfig { level_bytes: 32 << 10, ..config() }, 512 << 10, UNIT_BYTES);
    harness.fill(0..2000, 1000);
    snapshot(&mut harness);
    // More than the container holds, so that most of what is kept lies in tables.
    for _ in 0..2 {
        overwrite(&mut harness, 2000, 1000);
    }
    let kept = harness.statistic("snapshots_kept_bytes");
    let used = |harness: &Harness| harness.shard.volume.capacity() - harness.shard.volume.free_pages();
    let before = used(&harness);
    harness.reopen();
    assert_eq!(harness.statistic("snapshots_kept_bytes"), 0);
    harness.fill(2000..2010, 1000);
    harness.run_until_idle();
    assert!(used(&harness) + kept / 4096 / 2 <= before, "{} pages of {before}, {kept} bytes kept", used(&harness));
    harness.assert_sound();
    harness.reopen();
    harness.assert_sound();
}

/// It told only of tables.
#[test]
fn rows_that_keep_for_a_snapshot_are_told() {
    let mut harness = Harness::new(config(), 512 << 10, UNIT_BYTES);
    harness.fill(0..1, 1000);
    snapshot(&mut harness);
    harness.fill(0..30, 1000);
    harness.run_until_idle();
    let kept = harness.statistic("snapshots_kept_bytes");
    assert!((1000..1100).contains(&kept), "{kept} bytes");
}

/// There was no statistic that tells how many records there are.
#[test]
pub(super) fn records_are_counted_about() {
    let mut harness = tiny();
    let is_near = |harness: &Harness, records: u64| {
        let told = harness.statistic("records");
        assert!(told >= records - records / 20 && told <= records + records / 5, "{told} for {records}");
    };
    harness.fill(0..10, 100);
    assert_eq!(harness.statistic("records"), 10);
    harness.ask(write(vec![delete(&name(3))]));
    harness.fill(3..4, 100);
    assert_eq!(harness.statistic("records"), 10, "deleted and put again");
    harness.fill(10..8_000, 100);
    is_near(&harness, 8_000);
    for number in 0..2_000 {
        harness.ask(write(vec![delete(&name(number * 4))]));
    }
    is_near(&harness, 6_000);
    harness.run_until_idle();
    harness.reopen();
    is_near(&harness, 6_000);
}

/// What a server tells as `bytes` and `limit_maxbytes` was 0.
#[test]
fn what_the_volume_takes_is_told() {
    let used = |harness: &Harness| {
        let [usable, free, deferred] =
            ["usable_bytes", "pages_free", "pages_deferred"].map(|name| harness.statistic(name));
        (usable, usable - (free + deferred) * 4096)
    };
    for capacity_bytes in [Some(4 << 20), None] {
        let mut harness = Harness::new(MatrixConfig { capacity_bytes, ..config() }, 512 << 10, UNIT_BYTES);
        let (_, before) = used(&harness);
        harness.fill(0..600, 3000);
        harness.run_until_idle();
        let (usable, after) = used(&harness);
        assert!(after > before + 600_000 && after <= harness.volume.len() as u64, "{before} {after}");
        match capacity_bytes {
            Some(bytes) => assert_eq!(usable, bytes),
            None => assert!(usable >= after && usable <= harness.volume.len() as u64, "{usable}"),
        }
        for number in 0..600 {
            harness.ask(write(vec![delete(&name(number))]));
        }
        assert!(used(&harness).1 < 3 << 20);
    }
}

/// It was made, and took nothing ever.
#[test]
fn a_capacity_that_is_far_too_small_is_refused_with_the_least() {
    let create = |bytes: u64| {
        let config = MatrixConfig { capacity_bytes: Some(bytes), ..config() };
        let opener = MatrixOpener::create(config.clone(), Faulty::new(512 << 10), UNIT_BYTES);
        let mut volume = Vec::new();
        let made = open_some(opener, &mut Effects::new(Pool::new(config.memory_bytes as usize)), &mut volume, u32::MAX);
        (made, volume)
    };
    let (made, volume) = create(10);
    let Err(Error::Option(why)) = made else { panic!("{made:?}") };
    assert!(volume.is_empty(), "nothing was written");
    let least = why.split(' ').filter_map(|word| word.trim_end_matches(';').parse::<u64>().ok()).next_back();
    let least = least.expect("the least");
    assert!(create(least - 1).0.is_err());
    let config = MatrixConfig { capacity_bytes: Some(least), ..config() };
    let mut harness = Harness::new(config, 512 << 10, UNIT_BYTES);
    harness.fill(0..10, 100);
    harness.assert_filled(0..10, 100);
}

/// All files of values of a store that is overwritten evenly become poor at the same time: each
/// column moved several times what it brought, and writes stood nearly still meanwhile.
#[test]
pub(super) fn columns_move_no_more_than_their_share() {
    const KEYS: u64 = 8000;
    let mut harness = Harness::new(config(), 1 << 20, UNIT_BYTES);
    harness.fill(0..KEYS, 1000);
    harness.run_until_idle();
    let mut random = stratakv_base::random::Random::new(4);
    let figures = |harness: &Harness| (harness.statistic("installs"), harness.statistic("value_write_bytes"));
    let (mut before, mut most) = (figures(&harness), 0);
    for _ in 0..2 * KEYS {
        let number = random.below(KEYS);
        harness.ask(write(vec![put(&name(number), value(number, 1000))]));
        let now = figures(&harness);
        if now.0 != before.0 {
            most = most.max((now.1 - before.1) / (now.0 - before.0));
            before = now;
        }
    }
    let (bytes, live_bytes) = (harness.statistic("value_bytes"), harness.statistic("value_live_bytes"));
    assert!(most < 1_500_000, "{most} bytes of values in one compaction");
    assert!(bytes < 2 * live_bytes, "{live_bytes} bytes of {bytes} are alive");
    harness.assert_filled(0..KEYS, 1000);
    harness.assert_sound();
}

/// As small as a volume may be.
fn smallest() -> Harness {
    let config = MatrixConfig { table_bytes: 16 << 10, level_bytes: 64 << 10, ..config() };
    let capacity_bytes = Some(crate::space::pages_min(&config) * 4096);
    Harness::new(MatrixConfig { capacity_bytes, ..config }, 1 << 20, UNIT_BYTES)
}

/// Long values for as many keys, all at once.
fn long_values_at_once(harness: &mut Harness, keys: std::ops::Range<u64>) -> Vec<u32> {
    keys.map(|number| harness.submit(write(vec![put(&name(number), value(number, 9000))]))).collect()
}

/// Together they found no room, one of them would have: nothing was cleared away, nobody was
/// refused, and all waited for ever.
#[test]
pub(super) fn long_values_of_many_writers_take_what_room_there_is() {
    let mut harness = smallest();
    let mut held = Vec::new();
    for round in 0..4 {
        let keys = round * 8..round * 8 + 8;
        let tokens = long_values_at_once(&mut harness, keys.clone());
        harness.run_until_idle();
        for (number, token) in keys.zip(tokens) {
            match harness.replies.remove(&token) {
                Some(Reply::Done { .. }) => held.push(number),
                Some(Reply::Failed(Error::Full(_))) => {}
                other => panic!("round {round}, key {number}: {other:?}"),
            }
        }
    }
    assert!((2..8).contains(&held.len()), "{held:?}");
    for number in held {
        harness.assert_filled(number..number + 1, 9000);
        assert!(matches!(harness.ask(write(vec![delete(&name(number))])), Reply::Done { .. }));
    }
    harness.fill(100..102, 9000);
    harness.assert_sound();
}

/// Nothing was cleared away any more once the store was closing.
#[test]
pub(super) fn a_store_closes_while_long_values_wait_for_room() {
    let mut harness = smallest();
    let tokens = long_values_at_once(&mut harness, 0..20);
    harness.close();
    for token in tokens {
        let reply = harness.replies.remove(&token);
        assert!(matches!(reply, Some(Reply::Done { .. } | Reply::Failed(Error::Full(_)))), "{reply:?}");
    }
}

/// What waits in the container has a shorter reserve as a row: then there was room, nothing to
/// clear away, and nobody who told the value that waited (simulator, seed 143).
#[test]
pub(super) fn a_long_value_is_answered_though_the_reserve_shrank_while_it_waited() {
    for puts in 0..6 {
        for pages in 2..12 {
            let (mut harness, bytes) = (smallest(), pages * 4096 - 1000);
            // The log has all of them, the row the last one.
            (0..puts).for_each(|_| harness.fill(0..1, 2100));
            let reply = harness.ask(write(vec![put("long", value(1, bytes))]));
            assert!(
                matches!(reply, Reply::Done { .. } | Reply::Failed(Error::Full(_))),
                "{puts} puts, {pages} pages: {reply:?}"
            );
        }
    }
}

/// What had rested for the sake of a value that was refused went on resting for a second.
#[test]
pub(super) fn a_long_value_that_is_refused_leaves_the_room_to_others() {
    let mut harness = tiny();
    harness.fill(0..1000, 1000);
    let reply = harness.ask(write(vec![put("long", value(1, 3_000_000))]));
    assert!(matches!(reply, Reply::Failed(Error::Full(_))), "{reply:?}");
    harness.fill(1000..1700, 300);
}

/// While what is dead is cleared away each tick's writes become a row. When the directory had no
/// room for another one, no compaction began that could have made some.
#[test]
pub(super) fn rows_that_fill_the_directory_do_not_end_compaction() {
    let config = MatrixConfig {
        capacity_bytes: Some(12 << 20),
        table_bytes: 16 << 10,
        level_bytes: 64 << 10,
        row_bytes: 1 << 20,
        ..config()
    };
    let mut harness = Harness::new(config, 4 << 20, UNIT_BYTES);
    // Rows name their keys: as long as they may be.
    let name = |number: u64| format!("{number:0900}");
    let held = (0..100_000).find(|number| {
        let reply = harness.ask(write(vec![put(&name(*number), value(*number, 100))]));
        matches!(reply, Reply::Failed(Error::Full(_)))
    });
    let held = held.expect("it is full some time");
    let mut tokens = Vec::new();
    for number in 0..held {
        tokens.push(harness.submit(write(vec![delete(&name(number))])));
        // A device that reads and does not write: a compaction gets nowhere meanwhile.
        harness.tick();
        while harness.complete_where(None, |request| matches!(request, DiskRequest::Read { .. })) {}
        harness.tick();
        if harness.shard.compactor.is_flush_blocked() {
            break;
        }
    }
    assert!(harness.shard.compactor.is_flush_blocked(), "the directory has room for all of them");
    // The compaction that was under way fails, and is chosen anew.
    assert!(harness.complete_where(Some(IoFault::Short), |request| matches!(request, DiskRequest::Write { .. })));
    harness.pass(2);
    harness.run_until_idle();
    let waits = tokens.iter().filter(|token| !harness.replies.contains_key(token)).count();
    assert_eq!(waits, 0, "of {}", tokens.len());
    for number in (tokens.len() as u64..held).take(3000) {
        let reply = harness.ask(write(vec![delete(&name(number))]));
        assert!(matches!(reply, Reply::Done { .. }), "key {number} of {held}: {reply:?}");
    }
    let reply = harness.ask(write(vec![put(&name(0), value(0, 100))]));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
}

/// A long value had waited for room, found some, and the device failed while it was written: others
/// were kept from its room ever after.
#[test]
pub(super) fn a_long_value_that_fails_claims_no_room() {
    let mut harness = smallest();
    let tokens = long_values_at_once(&mut harness, 0..20);
    harness.go_on_until(|harness| harness.shard.blobs.wanted_pages() > 0 && harness.shard.blobs.is_writing());
    let is_write = |request: &DiskRequest| matches!(request, DiskRequest::Write { .. });
    while harness.shard.blobs.is_writing() || harness.shard.scheduler.is_awaited(crate::scheduler::WaitFor::BlobWrite) {
        if !harness.complete_where(Some(IoFault::Short), is_write) && !harness.complete_where(None, |_| true) {
            harness.tick();
        }
    }
    harness.pass(2);
    harness.run_until_idle();
    assert!(tokens.iter().all(|token| harness.replies.contains_key(token)));
    assert_eq!(harness.shard.blobs.wanted_pages(), 0);
}
