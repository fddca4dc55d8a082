//! Volumes with hardly room, and values among dead ones.

use stratakv_engine::Error;

use super::*;

fn tiny() -> Trial {
    Trial::new(
        MatrixConfig { capacity_bytes: Some(4 << 20), table_bytes: 16 << 10, level_bytes: 64 << 10, ..config() },
        512 << 10,
        UNIT_BYTES,
    )
}

/// Puts until one is refused. How many went well.
fn fill_up(trial: &mut Trial, bytes: usize) -> u64 {
    for number in 0..100_000 {
        match trial.ask(write(vec![put(&name(number), value(number, bytes))])) {
            Reply::Done { .. } => {}
            Reply::Failed(Error::Full(_)) => return number,
            other => panic!("key {number}: {other:?}"),
        }
    }
    panic!("it is never full");
}

/// A full volume refuses puts, not deletes and reads; what was deleted makes room again, as often as one likes.
#[test]
pub(super) fn a_full_volume_recovers_after_deletes() {
    for bytes in [100, 1000, 3500, 9000] {
        let mut trial = tiny();
        let held = fill_up(&mut trial, bytes);
        assert!(held * bytes as u64 > 1_500_000, "only {held} values of {bytes} bytes");
        trial.assert_sound();
        for round in 0..3 {
            for number in 0..held * 3 / 4 {
                let reply = trial.ask(write(vec![delete(&name(number))]));
                assert!(matches!(reply, Reply::Done { .. }), "round {round}, key {number}: {reply:?}");
            }
            trial.assert_filled(held * 3 / 4..held, bytes);
            trial.fill(0..held / 2, bytes);
            trial.fill(held / 2..held * 3 / 4 - held / 8, bytes);
        }
        trial.settle();
        trial.assert_sound();
        trial.reopen();
        trial.assert_filled(0..held / 2, bytes);
        trial.assert_filled(held * 3 / 4..held, bytes);
    }
}

/// Most values of a file are overwritten or deleted, and nothing is compacted where the keys of the rest lie.
#[test]
pub(super) fn values_among_dead_ones_are_collected() {
    let mut trial = Trial::new(MatrixConfig { level_bytes: 64 << 20, ..config() }, 512 << 10, UNIT_BYTES);
    trial.fill(0..4000, 1000);
    trial.settle();
    // Every fifth one stays.
    for number in (0..4000).filter(|number| number % 5 != 0) {
        trial.ask(write(vec![delete(&name(number))]));
    }
    // Elsewhere in the key space: the columns that bring the deletes down free their bytes.
    for number in 0..3000u64 {
        trial.ask(write(vec![put(&format!("other{number}"), value(number, 100))]));
    }
    trial.settle();
    let (bytes, live_bytes) = trial.shard.levels.value_sums();
    assert!(bytes <= live_bytes * 2, "{bytes} bytes for {live_bytes}");
    assert!(trial.statistic("value_collections") > 0);
    for number in (0..4000).step_by(5) {
        trial.assert_filled(number..number + 1, 1000);
    }
    trial.assert_sound();
}

/// Long values whose writes are refused, or fail on damage, leave nothing on the volume.
#[test]
pub(super) fn values_of_refused_writes_do_not_stay() {
    let mut trial = tiny();
    trial.settle();
    let free = trial.shard.extents.free_pages();
    for _ in 0..400 {
        let change = Change { expect: Expect::Present, ..put("none", value(1, 9000)) };
        assert!(matches!(trial.ask(write(vec![change])), Reply::Unmet(_)));
        let reply = trial.ask(write(vec![put("one", value(1, 9000))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
        assert!(matches!(trial.ask(write(vec![delete("one")])), Reply::Done { .. }));
    }
    trial.settle();
    assert!(trial.shard.extents.free_pages() + 400 > free, "{} of {free}", trial.shard.extents.free_pages());
}
