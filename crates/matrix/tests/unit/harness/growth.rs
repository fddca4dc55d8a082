//! Devices that are full before the volume is as long as it may be, and writes that wait for what
//! columns free.

use stratakv_engine::Error;

use super::space::fill_up;
use super::*;
use crate::container::{Change as Append, What};

/// A volume without a capacity, on a device of so many bytes.
fn on_a_device(bytes: u64) -> Harness {
    let config = MatrixConfig { capacity_bytes: None, table_bytes: 16 << 10, level_bytes: 64 << 10, ..config() };
    let mut harness = Harness::new(config, 512 << 10, UNIT_BYTES);
    harness.device_bytes = bytes;
    harness
}

/// It let the container fill up with what then found no room on the volume: deletes were refused,
/// and compaction tried in vain for ever.
#[test]
pub(super) fn a_full_device_refuses_puts_and_neither_deletes_nor_reads() {
    for bytes in [100, 1000, 9000] {
        let mut harness = on_a_device(4 << 20);
        let held = fill_up(&mut harness, bytes);
        assert!(held * bytes as u64 > 1_200_000, "only {held} values of {bytes} bytes");
        harness.assert_filled(0..held, bytes);
        for number in 0..held * 3 / 4 {
            let reply = harness.ask(write(vec![delete(&name(number))]));
            assert!(matches!(reply, Reply::Done { .. }), "{bytes} bytes, key {number}: {reply:?}");
        }
        harness.fill(0..held / 2, bytes);
        harness.run_until_idle();
        harness.assert_sound();
        harness.reopen();
        harness.assert_filled(0..held / 2, bytes);
        harness.assert_filled(held * 3 / 4..held, bytes);
    }
}

/// `volume_free_pages` was 2^50, whatever the device.
#[test]
fn a_volume_without_a_capacity_was_told_to_have_pages_that_no_device_has() {
    let mut harness = on_a_device(8 << 20);
    harness.fill(0..1000, 300);
    harness.run_until_idle();
    let mut statistics = Vec::new();
    harness.shard.statistics(&mut statistics);
    for one in statistics.iter().filter(|one| one.name.contains("pages")) {
        assert!(one.value < 1 << 20, "{one:?}");
    }
}

/// It is asked again by itself.
#[test]
pub(super) fn a_device_that_has_room_again_is_written_again() {
    let mut harness = on_a_device(3 << 20);
    let held = fill_up(&mut harness, 1000);
    harness.run_until_idle();
    assert!(harness.wakes, "nobody asks the device again");
    harness.device_bytes = 8 << 20;
    harness.pass(2);
    harness.run_until_idle();
    harness.fill(held..held * 2, 1000);
    harness.run_until_idle();
    harness.assert_filled(0..held * 2, 1000);
    harness.assert_sound();
}

/// A device that refused a step of growth was asked for a shorter one only if that was still
/// needed, and who waited for the longer one was forgotten.
#[test]
pub(super) fn who_waits_for_growth_is_told_when_a_step_fails() {
    let mut harness = on_a_device(300 * 4096);
    harness.run_until_idle();
    // As much as a long value waits for that finds no room.
    harness.shard.blobs.want(257);
    let token = harness.submit(write(vec![put("key", value(1, 100))]));
    harness.run_until_idle();
    let reply = harness.replies.remove(&token);
    assert!(matches!(reply, Some(Reply::Failed(Error::Full(_)))), "{reply:?}");
}

/// Free pages lay in pieces. Those side by side that a manifest wanted were asked for, and enough
/// was free once the files that it was to install were: each compaction came to nothing, for ever
/// (simulator, seed 110048802).
#[test]
pub(super) fn a_volume_in_pieces_grows_for_a_manifest() {
    let mut harness = on_a_device(64 << 20);
    harness.fill(0..1000, 300);
    harness.run_until_idle();
    harness.shard.volume.ask_for_little();
    let taken: Vec<_> = std::iter::from_fn(|| harness.shard.volume.places_mut().take(1)).flatten().collect();
    taken.iter().step_by(2).for_each(|extent| harness.shard.volume.places_mut().give(*extent));
    harness.fill(1000..4000, 300);
    harness.run_until_idle();
    harness.assert_filled(0..4000, 300);
}

/// Nothing held writes up before there was no room at all: a flush of three seconds was three
/// seconds without a write.
#[test]
pub(super) fn writes_wait_early_for_what_columns_free() {
    let mut harness = Harness::new(config(), 512 << 10, UNIT_BYTES);
    harness.fill(0..4000, 300);
    assert!(harness.statistic("installs") > 0);
    let before = harness.statistic("stalled_ticks");
    // From here on the device does nothing, and writes come in faster than it ever was.
    for number in 4000..8000 {
        harness.effects.begin(harness.now);
        let token = Token { slot: 1_000_000 + number as u32, generation: 0 };
        let operation = write(vec![put(&name(number), value(number, 300))]);
        let is_taken = harness.shard.accept(token, operation, &mut harness.effects).is_ok();
        let wake_at = harness.effects.wake_at;
        if number % 16 == 0 {
            harness.tick();
        }
        assert_eq!(harness.statistic("stalled_ticks"), before, "key {number} found no room");
        if !is_taken {
            let wait_ns = wake_at.expect("when to try again").0 - harness.now.mono.0;
            assert!(wait_ns < 100_000_000, "{wait_ns} ns");
            // What comes in at once, since something else held it up, is not waited for one by one.
            let change = Append { key: b"key", flags: 0, expiry: Expiry::NEVER, what: What::Put(&[0; 4096]) };
            harness.shard.came_in(&[change; 1000]);
            let wait_ns = harness.shard.compactor.pace.next().0 - harness.now.mono.0;
            assert!(wait_ns < 100_000_000, "{wait_ns} ns for what waited");
            harness.ask(write(vec![put(&name(number), value(number, 300))]));
            return;
        }
    }
    panic!("nobody had to wait");
}
