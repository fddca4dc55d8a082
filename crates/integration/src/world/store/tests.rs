use super::*;

#[test]
fn stores_keep_their_promises() {
    let mut sum = Statistics::default();
    for seed in 0..100 {
        match run(seed) {
            Ok(statistics) => sum.add(&statistics),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(sum.power_cuts > 100 && sum.kills > 30 && sum.closes > 10 && sum.cut_recoveries > 30, "{sum:?}");
    assert!(sum.answered > 5_000 && sum.backups > 50 && sum.undecided < 3, "{sum:?}");
}

/// What one backup had asked for came to the next one, which replaced it: older than its cut.
#[test]
fn a_backup_takes_nothing_that_another_one_read() {
    assert_eq!(run(88_000_912).map(|_| ()), Ok(()));
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// The oracle is seen to fail.
#[test]
fn a_reply_to_the_wrong_ticket_is_noticed() {
    let swap: Tamper = |answers| {
        if let [first, second, ..] = &mut answers[..] {
            std::mem::swap(&mut first.1, &mut second.1);
        }
    };
    assert!((0..20).any(|seed| run_with(seed, |_| {}, swap).is_err()));
}

#[test]
fn a_disk_that_loses_writes_is_noticed() {
    let lossy = |setup: &mut Setup| setup.chances.lost = 3000;
    assert!((0..20).any(|seed| run_with(seed, lossy, |_| {}).is_err()));
}

/// Writes waited for ever, and were not refused: for room that was there, or that nobody would
/// make. At 709 a backup's snapshot ended, since what was kept for it took the last room. At 10422
/// a share that was committed before a crash found no room after it, since the reserve had grown
/// meanwhile.
#[test]
fn seeds_of_matrix_that_failed_once_pass() {
    for seed in [103, 143, 709, 10_422] {
        if let Err(why) = run_on_matrix(seed) {
            panic!("seed {seed}: {why}");
        }
    }
}

/// After a shard broke, batches, snapshots and backups begun later were never answered, took plain
/// puts of their keys on healthy shards with them, and the end never came.
#[test]
fn with_broken_shards_everything_is_answered_and_the_end_comes() {
    let mut sum = Statistics::default();
    for seed in 0..60 {
        match run_breaking(seed) {
            Ok(statistics) => sum.add(&statistics),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    let Statistics { broken, answered, undecided, .. } = sum;
    assert!(
        broken > 60 && answered > 2_000 && undecided < 10,
        "{broken} broken, {answered} answered, {undecided} undecided"
    );
}
