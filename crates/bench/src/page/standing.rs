//! How two stores stand to each other in one figure: ratio, spread, and a word.

/// Without rounds to tell the spread from, figures nearer to each other than that are even.
pub const EVEN: f64 = 0.05;

/// A figure over the rounds of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The one in the middle; of an even number the upper of both.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// How many there are.
    pub rounds: usize,
}

impl Spread {
    /// Of the rounds that have the figure; `None` if none has.
    pub fn of(rounds: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = rounds.into_iter().filter(|figure| figure.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = sorted.get(sorted.len() / 2).copied()?;
        Some(Spread { median, min, max, rounds: sorted.len() })
    }
}

/// Which of two is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The other one, by more than the rounds differ.
    Behind,
    /// Neither, by more than that.
    Even,
    /// Ours, by more than that.
    Ahead,
}

impl Standing {
    /// As it stands in a report.
    pub fn word(self) -> &'static str {
        match self {
            Standing::Behind => "behind",
            Standing::Even => "even within spread",
            Standing::Ahead => "ahead",
        }
    }
}

/// How many times better ours is: 2 is twice the throughput, or half the latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Of the medians.
    pub median: f64,
    /// Of our worst round to their best one.
    pub min: f64,
    /// Of our best round to their worst one.
    pub max: f64,
    /// What follows.
    pub standing: Standing,
    /// Rounds of the one that has fewer: of one round there is no spread.
    pub rounds: usize,
}

impl Ratio {
    /// `None` where one of them is 0: nothing was seen there.
    pub fn new(ours: Spread, peer: Spread, more_is_better: bool) -> Option<Ratio> {
        let (over, under) = if more_is_better { (ours, peer) } else { (peer, ours) };
        if over.min <= 0.0 || under.min <= 0.0 {
            return None;
        }
        let (median, min, max) = (over.median / under.median, over.min / under.max, over.max / under.min);
        let rounds = ours.rounds.min(peer.rounds);
        // Of one round nobody knows the spread; that of the other side is known.
        let one_round = (min.min(median / (1.0 + EVEN)), max.max(median * (1.0 + EVEN)));
        let (low, high) = if rounds > 1 { (min, max) } else { one_round };
        let standing = match () {
            () if low > 1.0 => Standing::Ahead,
            () if high < 1.0 => Standing::Behind,
            () => Standing::Even,
        };
        Some(Ratio { median, min, max, standing, rounds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread<const N: usize>(rounds: [f64; N]) -> Spread {
        Spread::of(rounds).expect("rounds")
    }

    #[test]
    fn rounds_that_overlap_are_even() {
        let ratio = |ours, peer, more| Ratio::new(spread(ours), spread(peer), more).expect("a ratio");
        let ahead = ratio([110.0, 120.0, 130.0], [100.0, 105.0, 90.0], true);
        assert_eq!((ahead.standing, ahead.median, ahead.rounds), (Standing::Ahead, 1.2, 3));
        assert_eq!((ahead.min, ahead.max), (110.0 / 105.0, 130.0 / 90.0));
        assert_eq!(ratio([110.0, 120.0, 130.0], [100.0, 115.0, 90.0], true).standing, Standing::Even);
        // Of times less is better.
        let behind = ratio([110.0, 120.0, 130.0], [100.0, 105.0, 90.0], false);
        assert_eq!((behind.standing, behind.median), (Standing::Behind, 100.0 / 120.0));
    }

    #[test]
    fn of_one_round_five_percent_are_even() {
        let standing = |ours, peer| Ratio::new(spread([ours]), spread([peer]), true).map(|ratio| ratio.standing);
        assert_eq!(standing(104.0, 100.0), Some(Standing::Even));
        assert_eq!(standing(100.0, 104.0), Some(Standing::Even));
        assert_eq!(standing(106.0, 100.0), Some(Standing::Ahead));
        assert_eq!(standing(100.0, 106.0), Some(Standing::Behind));
        // One round of either is no spread.
        let few = Ratio::new(spread([103.0]), spread([100.0, 101.0, 102.0]), true).expect("a ratio");
        assert_eq!((few.standing, few.rounds), (Standing::Even, 1));
        // Nor is it ahead of what its rounds overlap.
        let wide = Ratio::new(spread([347.0, 572.0, 1496.0]), spread([423.0]), false).expect("a ratio");
        assert_eq!(wide.standing, Standing::Even);
    }

    #[test]
    fn what_was_not_seen_has_no_ratio() {
        assert_eq!(Ratio::new(spread([0.0]), spread([2.0]), false), None);
        assert_eq!(Ratio::new(spread([2.0]), spread([0.0, 1.0]), true), None);
        assert_eq!((Spread::of([]), Spread::of([f64::NAN])), (None, None));
        assert_eq!(spread([4.0, 1.0, 3.0, 2.0]), Spread { median: 3.0, min: 1.0, max: 4.0, rounds: 4 });
    }
}
