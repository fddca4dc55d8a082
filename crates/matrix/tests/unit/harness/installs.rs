//! Manifests, superblocks, and the writes before them.

use stratakv_device::{DiskRequest, IoFault};

use super::*;

fn is_write(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Write { .. })
}

fn is_superblock(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Write { offset, durable: true, .. } if *offset < 8192)
}

fn small() -> Harness {
    Harness::new(config(), 512 << 10, UNIT_BYTES)
}

/// A store with so many long values that its manifest takes two writes: each has a file of its own.
fn with_a_long_manifest() -> Harness {
    let mut harness = small();
    for batch in 0..40 {
        let changes = (100 * batch..100 * (batch + 1)).map(|number| put(&name(number), value(number, 4080)));
        let reply = harness.ask(write(changes.collect()));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    harness.run_until_idle();
    assert!(harness.shard.installer.superblock().pages > 8, "{:?}", harness.shard.installer.superblock());
    harness
}

/// Of two writes of a manifest one fails, and the other one ends while the next manifest is being
/// written.
#[test]
pub(super) fn a_late_write_of_a_failed_manifest_is_not_the_next_ones() {
    let mut harness = with_a_long_manifest();
    let begin = |harness: &mut Harness, name: &str| {
        harness.submit(write(vec![put(name, value(1, 4080))]));
        while harness.shard.installer.is_idle() {
            harness.tick();
            // Of the value: those of the manifest are more.
            while harness.shard.installer.is_idle() && !harness.in_flight.is_empty() {
                let (io, request) = harness.in_flight.pop_back().unwrap();
                harness.in_flight.push_front((io, request));
                harness.complete_where(None, |_| true);
            }
        }
        harness.tick();
    };
    begin(&mut harness, "a");
    assert_eq!(harness.in_flight.len(), 2, "two writes of the manifest");
    assert!(harness.complete_where(Some(IoFault::Os(5)), is_write));
    assert!(harness.shard.installer.is_idle());
    let late = harness.in_flight.pop_front().unwrap();
    harness.pass(5);
    begin(&mut harness, "b");
    assert_eq!(harness.in_flight.len(), 2);
    harness.in_flight.push_front(late);
    assert!(harness.complete_where(None, |_| true) && harness.complete_where(None, |_| true));
    harness.tick();
    let flushes = |(_, request): &(Io, DiskRequest)| matches!(request, DiskRequest::Flush) || is_superblock(request);
    assert!(!harness.in_flight.iter().any(flushes), "it counts as written before it is");
    harness.assert_sound();
    harness.run_until_idle();
    assert!(!harness.shard.installer.has_aborted());
    harness.assert_sound();
    harness.reopen();
    harness.assert_filled(0..4000, 4080);
    assert_eq!(found(&harness.ask(get("b"))).as_deref(), Some(&value(1, 4080)[..]));
}

/// What failed at last is free while other requests are in flight all the time.
#[test]
pub(super) fn what_a_failed_manifest_had_is_free_under_a_steady_load() {
    let mut harness = with_a_long_manifest();
    let free = harness.shard.volume.free_pages();
    harness.submit(write(vec![put("a", value(1, 4080))]));
    harness.run_until(|harness| !harness.shard.installer.is_idle());
    harness.tick();
    assert!(harness.complete_where(Some(IoFault::Os(5)), is_write));
    assert!(harness.shard.volume.free_pages() < free);
    // A read that never ends.
    let read = harness.in_flight.len();
    harness.submit(get(&name(7)));
    harness.tick();
    assert!(harness.in_flight.len() > read);
    assert!(harness.complete_where(None, is_write), "its other write ends");
    harness.tick();
    assert!(harness.shard.volume.free_pages() >= free);
    harness.assert_sound();
}

/// The process ends between the two superblocks of an installation. From then on what only the
/// older one names is free; so before anything is written over it the older one must be gone, or a
/// cut within the next superblock leaves it as the only one that is whole.
#[test]
pub(super) fn superblocks_are_alike_before_anything_is_written_over_the_older_ones() {
    for requests in [0, 1, u32::MAX] {
        let mut harness = small();
        harness.fill(0..200, 1000);
        harness.run_until_idle();
        harness.fill(200..220, 4080);
        harness.submit(write(vec![put("one more", value(1, 4080))]));
        let older = harness.shard.installer.superblock().number;
        harness.go_on_until(|harness| harness.in_flight.iter().any(|(_, request)| is_superblock(request)));
        assert!(harness.complete_where(None, is_superblock), "slot 0");
        harness.reopen_after(requests).unwrap();
        harness.assert_sound();
        assert!(harness.shard.installer.superblock().number > older);
        // Whichever slot a later cut leaves damaged.
        for slot in [0, 1] {
            harness.volume[slot * 4096..][..4096].fill(0xEE);
            harness.reopen();
            harness.assert_filled(0..200, 1000);
            assert!(harness.shard.installer.superblock().number > older, "the older one came back");
            assert_eq!(harness.volume[..4096], harness.volume[4096..8192], "it is mended");
        }
        harness.fill(200..400, 1000);
        harness.run_until_idle();
        harness.reopen();
        harness.assert_filled(0..400, 1000);
        harness.assert_sound();
    }
}

#[test]
pub(super) fn an_end_in_order_is_told_and_only_that() {
    let mut harness = small();
    assert!(!harness.shard.recovery().clean);
    harness.fill(0..3, 10);
    harness.reopen();
    assert!(!harness.shard.recovery().clean, "it was not closed");
    harness.close();
    harness.reopen();
    assert!(harness.shard.recovery().clean);
    harness.fill(3..5, 10);
    harness.reopen();
    assert!(!harness.shard.recovery().clean, "it was written to since, and not closed");
    harness.assert_filled(0..5, 10);
}

#[test]
pub(super) fn a_superblock_that_points_beyond_all_volumes_is_damaged() {
    let mut harness = small();
    let forged =
        crate::volume::Superblock { page: u64::MAX - 1, pages: 3, number: 99, ..*harness.shard.installer.superblock() };
    forged.encode(&harness.config.uuid, &mut harness.volume[..4096]);
    harness.reopen();
    assert!(harness.shard.recovery().superblock_repaired);
}

/// A write of a file that was given up fails while the next compaction is under way: that goes on.
#[test]
pub(super) fn a_late_error_of_a_dropped_file_is_not_the_next_ones() {
    let mut harness = small();
    for number in 0..2000 {
        harness.submit(write(vec![put(&name(number), value(number, 300))]));
        harness.tick();
        while harness.complete_where(None, |request| !is_write(request)) {}
        if harness.shard.compactor.job().is_some() && !harness.in_flight.is_empty() {
            break;
        }
    }
    let (io, request) = harness.in_flight.pop_back().expect("a write of a table");
    assert!(is_write(&request));
    harness.shard.drop_job();
    for number in 2000..4000 {
        harness.submit(write(vec![put(&name(number), value(number, 300))]));
        harness.tick();
        while harness.complete_where(None, |_| true) {}
        if harness.shard.compactor.job().is_some() {
            break;
        }
    }
    let job = harness.shard.compactor.job().expect("the next one").number;
    harness.in_flight.push_back((io, request));
    assert!(harness.complete_where(Some(IoFault::Os(5)), is_write));
    assert_eq!(harness.shard.compactor.job().map(|job| job.number), Some(job));
    harness.run_until_idle();
    harness.assert_sound();
}

/// Values that no record points to any more go with the next manifest. One that failed forgot them,
/// and their room with them.
#[test]
pub(super) fn orphans_of_a_failed_manifest_go_with_the_next_one() {
    let mut harness = with_a_long_manifest();
    let reply = harness.ask(write(vec![put("long", value(1, 9000))]));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    harness.ask(write(vec![put("long", value(1, 10))]));
    harness.run_until_idle();
    assert!(
        harness.shard.reclaim() && harness.shard.blobs.unreferenced().len() == 1,
        "{:?}",
        harness.shard.blobs.unreferenced()
    );
    let note_unreferenced = harness.shard.blobs.unreferenced().keys().copied().next().unwrap();
    let is_there =
        |harness: &Harness| harness.shard.levels.value_files().any(|values| values.file == note_unreferenced);
    harness.run_until(|harness| !harness.shard.installer.is_idle());
    harness.tick();
    assert!(harness.complete_where(Some(IoFault::Os(5)), is_write));
    assert!(harness.shard.installer.is_idle() && is_there(&harness));
    harness.pass(5);
    harness.run_until_idle();
    harness.submit(write(vec![put("b", value(1, 4080))]));
    harness.run_until_idle();
    assert!(!is_there(&harness), "nobody knows of it any more");
    assert!(harness.shard.blobs.unreferenced().is_empty());
    harness.assert_sound();
    harness.reopen();
    harness.assert_filled(0..4000, 4080);
}

impl Harness {
    /// Every block of a page that there is, also those of the cache.
    fn hold_all_pages(&mut self) -> Vec<stratakv_device::Block> {
        let Harness { shard, effects, .. } = self;
        std::iter::from_fn(|| shard.memory.take_block(stratakv_device::Class::Page, effects)).collect()
    }
}

/// The last superblock found no block, and nobody looked for one again: the shard never closed.
#[test]
pub(super) fn the_last_superblock_waits_for_a_block_and_goes_on() {
    let mut harness = small();
    harness.fill(0..20, 100);
    harness.run_until_idle();
    let held = harness.hold_all_pages();
    harness.shard.close(&mut harness.effects);
    harness.tick();
    assert!(harness.in_flight.is_empty() && !harness.shard.is_closed(), "it found a block");
    assert!(harness.wakes, "nobody looks for one again");
    drop(held);
    harness.run_until(|harness| harness.shard.is_closed());
    assert!(harness.shard.is_closed(), "it never closes");
    harness.reopen();
    assert!(harness.shard.recovery().clean);
    harness.assert_filled(0..20, 100);
}

/// The region failed while the superblock of an installation waited for a block. It is not written
/// any more, so nobody may wait for it.
#[test]
pub(super) fn a_superblock_that_waits_for_a_block_does_not_keep_a_failed_shard_open() {
    let mut harness = small();
    harness.fill(0..200, 1000);
    harness.submit(write(vec![put("one more", value(1, 4080))]));
    harness.go_on_until(|harness| harness.in_flight.iter().any(|(_, request)| matches!(request, DiskRequest::Flush)));
    let _held = harness.hold_all_pages();
    assert!(harness.complete_where(None, |request| matches!(request, DiskRequest::Flush)));
    assert!(!harness.in_flight.iter().any(|(_, request)| is_superblock(request)), "it found a block");
    harness.fail_fences_after(0);
    let refused = harness.ask(write(vec![put("a", value(1, 1))]));
    assert!(matches!(refused, Reply::Failed(_)), "{refused:?}");
    harness.close();
}
