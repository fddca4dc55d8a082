//! Manifests, superblocks, and the writes before them.

use stratakv_device::{DiskRequest, IoFault};

use super::*;

fn is_write(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Write { .. })
}

fn is_superblock(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Write { offset, durable: true, .. } if *offset < 8192)
}

fn small() -> Trial {
    Trial::new(config(), 512 << 10, UNIT_BYTES)
}

/// A store with so many long values that its manifest takes two writes: each has a file of its own.
fn with_a_long_manifest() -> Trial {
    let mut trial = small();
    for batch in 0..40 {
        let changes = (100 * batch..100 * (batch + 1)).map(|number| put(&name(number), value(number, 4080)));
        let reply = trial.ask(write(changes.collect()));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    trial.settle();
    assert!(trial.shard.superblock.pages > 8, "{:?}", trial.shard.superblock);
    trial
}

/// Of two writes of a manifest one fails, and the other one ends while the next manifest is being
/// written.
#[test]
pub(super) fn a_late_write_of_a_failed_manifest_is_not_the_next_ones() {
    let mut trial = with_a_long_manifest();
    let begin = |trial: &mut Trial, name: &str| {
        trial.submit(write(vec![put(name, value(1, 4080))]));
        while trial.shard.install.is_none() {
            trial.tick();
            // Of the value: those of the manifest are more.
            while trial.shard.install.is_none() && !trial.in_flight.is_empty() {
                let (io, request) = trial.in_flight.pop_back().unwrap();
                trial.in_flight.push_front((io, request));
                trial.complete_where(None, |_| true);
            }
        }
        trial.tick();
    };
    begin(&mut trial, "a");
    assert_eq!(trial.in_flight.len(), 2, "two writes of the manifest");
    assert!(trial.complete_where(Some(IoFault::Os(5)), is_write));
    assert!(trial.shard.install.is_none());
    let late = trial.in_flight.pop_front().unwrap();
    trial.pass(5);
    begin(&mut trial, "b");
    assert_eq!(trial.in_flight.len(), 2);
    trial.in_flight.push_front(late);
    assert!(trial.complete_where(None, |_| true) && trial.complete_where(None, |_| true));
    trial.tick();
    let flushes = |(_, request): &(Io, DiskRequest)| matches!(request, DiskRequest::Flush) || is_superblock(request);
    assert!(!trial.in_flight.iter().any(flushes), "it counts as written before it is");
    trial.assert_sound();
    trial.settle();
    assert!(trial.shard.aborted_install.is_empty());
    trial.assert_sound();
    trial.reopen();
    trial.assert_filled(0..4000, 4080);
    assert_eq!(found(&trial.ask(get("b"))).as_deref(), Some(&value(1, 4080)[..]));
}

/// What failed at last is free while other requests are in flight all the time.
#[test]
pub(super) fn what_a_failed_manifest_had_is_free_under_a_steady_load() {
    let mut trial = with_a_long_manifest();
    let free = trial.shard.extents.free_pages();
    trial.submit(write(vec![put("a", value(1, 4080))]));
    trial.settle_until(|trial| trial.shard.install.is_some());
    trial.tick();
    assert!(trial.complete_where(Some(IoFault::Os(5)), is_write));
    assert!(trial.shard.extents.free_pages() < free);
    // A read that never ends.
    let read = trial.in_flight.len();
    trial.submit(get(&name(7)));
    trial.tick();
    assert!(trial.in_flight.len() > read);
    assert!(trial.complete_where(None, is_write), "its other write ends");
    trial.tick();
    assert!(trial.shard.extents.free_pages() >= free);
    trial.assert_sound();
}

/// The process ends between the two superblocks of an installation. From then on what only the
/// older one names is free; so before anything is written over it the older one must be gone, or a
/// cut within the next superblock leaves it as the only one that is whole.
#[test]
pub(super) fn superblocks_are_alike_before_anything_is_written_over_the_older_ones() {
    for requests in [0, 1, u32::MAX] {
        let mut trial = small();
        trial.fill(0..200, 1000);
        trial.settle();
        trial.fill(200..220, 4080);
        trial.submit(write(vec![put("one more", value(1, 4080))]));
        let older = trial.shard.superblock.number;
        trial.go_on_until(|trial| trial.in_flight.iter().any(|(_, request)| is_superblock(request)));
        assert!(trial.complete_where(None, is_superblock), "slot 0");
        trial.reopen_after(requests).unwrap();
        trial.assert_sound();
        assert!(trial.shard.superblock.number > older);
        // Whichever slot a later cut leaves damaged.
        for slot in [0, 1] {
            trial.volume[slot * 4096..][..4096].fill(0xEE);
            trial.reopen();
            trial.assert_filled(0..200, 1000);
            assert!(trial.shard.superblock.number > older, "the older one came back");
            assert_eq!(trial.volume[..4096], trial.volume[4096..8192], "it is mended");
        }
        trial.fill(200..400, 1000);
        trial.settle();
        trial.reopen();
        trial.assert_filled(0..400, 1000);
        trial.assert_sound();
    }
}

#[test]
pub(super) fn an_end_in_order_is_told_and_only_that() {
    let mut trial = small();
    assert!(!trial.shard.recovery().clean);
    trial.fill(0..3, 10);
    trial.reopen();
    assert!(!trial.shard.recovery().clean, "it was not closed");
    trial.close();
    trial.reopen();
    assert!(trial.shard.recovery().clean);
    trial.fill(3..5, 10);
    trial.reopen();
    assert!(!trial.shard.recovery().clean, "it was written to since, and not closed");
    trial.assert_filled(0..5, 10);
}

#[test]
pub(super) fn a_superblock_that_points_beyond_all_volumes_is_damaged() {
    let mut trial = small();
    let forged = crate::volume::Superblock { page: u64::MAX - 1, pages: 3, number: 99, ..trial.shard.superblock };
    forged.encode(&trial.config.uuid, &mut trial.volume[..4096]);
    trial.reopen();
    assert!(trial.shard.recovery().superblock_repaired);
}

/// A write of a file that was given up fails while the next compaction is under way: that goes on.
#[test]
pub(super) fn a_late_error_of_a_dropped_file_is_not_the_next_ones() {
    let mut trial = small();
    for number in 0..2000 {
        trial.submit(write(vec![put(&name(number), value(number, 300))]));
        trial.tick();
        while trial.complete_where(None, |request| !is_write(request)) {}
        if trial.shard.job.is_some() && !trial.in_flight.is_empty() {
            break;
        }
    }
    let (io, request) = trial.in_flight.pop_back().expect("a write of a table");
    assert!(is_write(&request));
    trial.shard.drop_job();
    for number in 2000..4000 {
        trial.submit(write(vec![put(&name(number), value(number, 300))]));
        trial.tick();
        while trial.complete_where(None, |_| true) {}
        if trial.shard.job.is_some() {
            break;
        }
    }
    let job = trial.shard.job.as_ref().expect("the next one").number;
    trial.in_flight.push_back((io, request));
    assert!(trial.complete_where(Some(IoFault::Os(5)), is_write));
    assert_eq!(trial.shard.job.as_ref().map(|job| job.number), Some(job));
    trial.settle();
    trial.assert_sound();
}

/// Values that no record points to any more go with the next manifest. One that failed forgot them,
/// and their room with them.
#[test]
pub(super) fn orphans_of_a_failed_manifest_go_with_the_next_one() {
    let mut trial = with_a_long_manifest();
    let reply = trial.ask(write(vec![put("long", value(1, 9000))]));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    trial.ask(write(vec![put("long", value(1, 10))]));
    trial.settle();
    assert!(trial.shard.reclaim() && trial.shard.orphans.len() == 1, "{:?}", trial.shard.orphans);
    let orphan = trial.shard.orphans.keys().copied().next().unwrap();
    let is_there = |trial: &Trial| trial.shard.levels.value_files().any(|values| values.file == orphan);
    trial.settle_until(|trial| trial.shard.install.is_some());
    trial.tick();
    assert!(trial.complete_where(Some(IoFault::Os(5)), is_write));
    assert!(trial.shard.install.is_none() && is_there(&trial));
    trial.pass(5);
    trial.settle();
    trial.submit(write(vec![put("b", value(1, 4080))]));
    trial.settle();
    assert!(!is_there(&trial), "nobody knows of it any more");
    assert!(trial.shard.orphans.is_empty());
    trial.assert_sound();
    trial.reopen();
    trial.assert_filled(0..4000, 4080);
}
