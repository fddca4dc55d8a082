use super::*;

#[test]
fn a_cache_answers_the_newest_or_nothing() {
    let mut sum = Statistics::default();
    for seed in 0..60 {
        match run_seed(seed) {
            Ok(statistics) => sum.add(&statistics),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(sum.ends.iter().all(|ends| *ends > 60) && sum.hits_ssd > 1000, "{sum:?}");
    assert!(sum.warm[0] > 0 && sum.warm[2] > 0 && sum.lost_volumes > 0 && sum.resizes > 100, "{sum:?}");
    assert!(sum.sliced[0] > 20 && sum.sliced[1] > 0, "{:?} were taken slice by slice", sum.sliced);
}

/// Everything that was answered and counted goes into the digest.
#[test]
fn a_seed_always_gives_the_same_run_and_another_one_another() {
    let digests: Vec<u64> = (0..12)
        .map(|seed| {
            let (once, again) = (run_seed(seed).unwrap(), run_seed(seed).unwrap());
            assert_eq!(once, again, "seed {seed}");
            once.digest
        })
        .collect();
    let mut different = digests.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), digests.len(), "{digests:?}");
}
