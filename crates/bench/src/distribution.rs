//! Which record is asked for: uniform, scrambled zipfian, latest.

use std::str::FromStr;

use serde::Serialize;
use stratakv_base::random::Random;

/// Skew of YCSB's zipfian.
pub const THETA: f64 = 0.99;

/// Name of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Every record as often as any other.
    Uniform,
    /// YCSB's scrambled zipfian: a few records far more often, spread over the key space.
    Zipfian,
    /// Zipfian over age: the newest most often.
    Latest,
}

impl FromStr for Distribution {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "uniform" => Ok(Distribution::Uniform),
            "zipfian" => Ok(Distribution::Zipfian),
            "latest" => Ok(Distribution::Latest),
            other => Err(format!("unknown distribution `{other}`: use uniform, zipfian or latest")),
        }
    }
}

/// Zipfian ranks 0..n by the method of Gray et al., "Quickly generating billion-record synthetic
/// databases" (SIGMOD 1994), as in YCSB.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    zeta_n: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// Ranks below `items`, at least 2. Cost: one power for each item, once.
    pub fn new(items: u64) -> Zipfian {
        let items = items.max(2);
        let zeta_n: f64 = (1..=items).map(|i| 1.0 / (i as f64).powf(THETA)).sum();
        let zeta_2 = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - zeta_2 / zeta_n);
        Zipfian { items, zeta_n, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// A rank: 0 is the most frequent.
    pub fn next(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let uz = u * self.zeta_n;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let rank = (self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64;
        rank.min(self.items - 1)
    }

    /// Share of all draws that rank 0 gets, in theory.
    pub fn head_share(&self) -> f64 {
        1.0 / self.zeta_n
    }
}

/// FNV-1a of a number's bytes, as YCSB scrambles ranks and names keys.
pub fn fnv1a(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

/// Draws record numbers.
#[derive(Clone, Debug)]
pub enum Chooser {
    /// See [`Distribution::Uniform`].
    Uniform,
    /// See [`Distribution::Zipfian`].
    Zipfian(Zipfian),
    /// See [`Distribution::Latest`].
    Latest(Zipfian),
}

impl Chooser {
    /// For a store of `records`.
    pub fn new(distribution: Distribution, records: u64) -> Chooser {
        match distribution {
            Distribution::Uniform => Chooser::Uniform,
            Distribution::Zipfian => Chooser::Zipfian(Zipfian::new(records)),
            Distribution::Latest => Chooser::Latest(Zipfian::new(records)),
        }
    }

    /// A record number below `records`, the number there are now.
    pub fn next(&self, records: u64, random: &mut Random) -> u64 {
        match self {
            Chooser::Uniform => random.below(records),
            Chooser::Zipfian(zipfian) => {
                // By the loaded count, which stays: a growing modulus would move the hot records
                // with every insert.
                let record = fnv1a(zipfian.next(random)) % zipfian.items;
                if record < records { record } else { record % records.max(1) }
            }
            Chooser::Latest(zipfian) => records.saturating_sub(1 + zipfian.next(random)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_the_zipfian_is_as_heavy_as_theory_says() {
        let zipfian = Zipfian::new(10_000);
        let mut random = Random::new(1);
        let mut counts = vec![0u32; 10_000];
        const DRAWS: u32 = 400_000;
        (0..DRAWS).for_each(|_| counts[zipfian.next(&mut random) as usize] += 1);
        for rank in [0usize, 1] {
            let expected = zipfian.head_share() / ((rank + 1) as f64).powf(THETA);
            let found = f64::from(counts[rank]) / f64::from(DRAWS);
            assert!((found / expected - 1.0).abs() < 0.05, "rank {rank}: {found} instead of {expected}");
        }
        // Far ranks follow the power law too: ranks 100..200 against their sum.
        let expected: f64 = (100..200).map(|r| zipfian.head_share() / f64::from(r + 1).powf(THETA)).sum();
        let found = f64::from(counts[100..200].iter().sum::<u32>()) / f64::from(DRAWS);
        assert!((found / expected - 1.0).abs() < 0.1, "{found} instead of {expected}");
    }

    #[test]
    fn every_choice_is_a_record() {
        let mut random = Random::new(2);
        for distribution in [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest] {
            let chooser = Chooser::new(distribution, 50);
            assert!((0..10_000).all(|_| chooser.next(50, &mut random) < 50), "{distribution:?}");
        }
    }

    #[test]
    fn latest_prefers_the_newest() {
        let chooser = Chooser::new(Distribution::Latest, 1000);
        let mut random = Random::new(3);
        let newest = (0..10_000).filter(|_| chooser.next(1000, &mut random) == 999).count();
        assert!(newest > 1000, "{newest} of 10,000");
    }

    #[test]
    fn inserts_do_not_move_the_hot_records() {
        let chooser = Chooser::new(Distribution::Zipfian, 2000);
        let mut random = Random::new(4);
        let mut counts = vec![0u32; 4000];
        (0..40_000u64).for_each(|tick| counts[chooser.next(2000 + tick / 20, &mut random) as usize] += 1);
        assert!(counts.iter().max().is_some_and(|hottest| *hottest > 4000), "{:?} of 40,000", counts.iter().max());
    }
}
