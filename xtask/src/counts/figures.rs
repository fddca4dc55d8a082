//! Figures of an operation, how far they may lie from those in the repository, and how far accepted
//! changes may take them within one release.

use std::fmt;

/// How strictly figures are judged.
#[derive(Clone, Copy, Debug)]
pub struct Leeway {
    /// Counts of a path that differ by more than others from one run to the next, and by which
    /// share of the figure.
    pub wider: &'static [(Count, f64)],
    /// So many times as much is let pass.
    pub times: f64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Instructions in user space.
    Instructions,
    /// System calls.
    SystemCalls,
    /// Calls of the allocator that give memory.
    Allocations,
    /// Bytes that `memcpy` and its like copy.
    CopiedBytes,
}

impl Count {
    pub const ALL: [Count; 4] = [Count::Instructions, Count::SystemCalls, Count::Allocations, Count::CopiedBytes];

    /// Its key in the file.
    pub fn name(self) -> &'static str {
        match self {
            Count::Instructions => "instructions",
            Count::SystemCalls => "system_calls",
            Count::Allocations => "allocations",
            Count::CopiedBytes => "copied_bytes",
        }
    }

    /// The count with this key.
    pub fn named(name: &str) -> Option<Count> {
        Count::ALL.into_iter().find(|count| count.name() == name)
    }

    /// How far a figure may lie from `base`: above what two counts of one program differ by
    /// (docs/measurements/2026-11-29-bench-gate.md).
    pub fn tolerance(self, base: f64, leeway: Leeway) -> f64 {
        let (share, least) = match self {
            Count::Instructions => (0.03, 0.0),
            Count::SystemCalls => (0.05, 0.25),
            Count::Allocations => (0.02, 0.1),
            Count::CopiedBytes => (0.02, 24.0),
        };
        let own = leeway.wider.iter().find(|(count, _)| *count == self);
        (base * own.map_or(share, |(_, share)| *share) + least) * leeway.times
    }

    /// What all accepted changes since a release may add to the release's figure.
    pub fn budget(self, released: f64) -> f64 {
        let least = match self {
            Count::Instructions => 0.0,
            Count::SystemCalls => 0.5,
            Count::Allocations => 1.0,
            Count::CopiedBytes => 64.0,
        };
        (released * 0.05).max(least)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().replace('_', " "))
    }
}

/// Figures of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures([f64; 4]);

impl Figures {
    /// Of each count.
    pub fn of(figure: impl Fn(Count) -> f64) -> Figures {
        Figures(Count::ALL.map(figure))
    }

    /// One of them.
    pub fn get(&self, count: Count) -> f64 {
        self.0[count as usize]
    }

    /// Replaces one.
    pub fn set(&mut self, count: Count, figure: f64) {
        self.0[count as usize] = figure;
    }

    /// What an operation took: the difference of a long run and a short one, `operations` apart.
    /// Rounded as the file has it.
    pub fn between(few: &Figures, many: &Figures, operations: u64) -> Figures {
        Figures::of(|count| {
            let figure = (many.get(count) - few.get(count)) / operations as f64;
            let digits = if figure.abs() < 1000.0 { 100.0 } else { 1.0 };
            ((figure * digits).round() / digits).max(0.0)
        })
    }

    /// Of two counts of one program, what lies nearer to `base`: other programs only ever disturb.
    pub fn nearer(self, other: Figures, base: &Figures) -> Figures {
        let away = |figures: &Figures, count| (figures.get(count) - base.get(count)).abs();
        Figures::of(|count| if away(&other, count) < away(&self, count) { other } else { self }.get(count))
    }

    /// The middle one of several, of each count.
    pub fn middle(all: &[Figures]) -> Figures {
        Figures::of(|count| {
            let mut figures: Vec<f64> = all.iter().map(|figures| figures.get(count)).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied().unwrap_or_default()
        })
    }

    /// The counts that lie too far from `base`.
    pub fn departures(&self, base: &Figures, leeway: Leeway) -> Vec<Count> {
        let is_far = |count: &Count| {
            let base = base.get(*count);
            (self.get(*count) - base).abs() > count.tolerance(base, leeway)
        };
        Count::ALL.into_iter().filter(is_far).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Leeway = Leeway { wider: &[], times: 1.0 };

    fn figures(instructions: f64, system_calls: f64, allocations: f64, copied: f64) -> Figures {
        Figures([instructions, system_calls, allocations, copied])
    }

    #[test]
    fn an_operation_is_the_difference_of_two_runs() {
        let (few, many) = (figures(5e6, 900.0, 40.0, 7e5), figures(9e6, 1_150.0, 1_040.0, 7e5));
        assert_eq!(Figures::between(&few, &many, 1_000), figures(4_000.0, 0.25, 1.0, 0.0));
        // Noise of a start does not make a figure negative.
        assert_eq!(Figures::between(&many, &few, 1_000), figures(0.0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn a_figure_too_far_off_is_a_departure_either_way() {
        let base = figures(10_000.0, 1.0, 4.0, 1_000.0);
        assert_eq!(base.departures(&base, STRICT), []);
        assert_eq!(figures(10_290.0, 1.2, 4.1, 1_040.0).departures(&base, STRICT), []);
        assert_eq!(figures(10_310.0, 1.0, 4.0, 1_000.0).departures(&base, STRICT), [Count::Instructions]);
        assert_eq!(figures(9_690.0, 1.0, 4.0, 1_000.0).departures(&base, STRICT), [Count::Instructions]);
        assert_eq!(figures(10_000.0, 2.0, 5.0, 1_200.0).departures(&base, STRICT), Count::ALL[1..]);
        let wider = Leeway { wider: &[(Count::Instructions, 0.06)], ..STRICT };
        assert_eq!(figures(10_590.0, 1.0, 4.0, 1_000.0).departures(&base, wider), []);
        assert_eq!(figures(10_610.0, 2.0, 4.0, 1_000.0).departures(&base, wider), Count::ALL[..2]);
        let other_tools = Leeway { times: 3.0, ..STRICT };
        assert_eq!(figures(10_890.0, 1.0, 4.0, 1_000.0).departures(&base, other_tools), []);
        assert_eq!(figures(10_910.0, 1.0, 4.0, 1_000.0).departures(&base, other_tools), [Count::Instructions]);
    }

    #[test]
    fn a_second_count_takes_noise_away_and_leaves_a_change() {
        let base = figures(10_000.0, 1.0, 4.0, 1_000.0);
        let (first, second) = (figures(11_000.0, 1.6, 5.0, 1_000.0), figures(10_900.0, 1.1, 5.0, 1_300.0));
        assert_eq!(first.nearer(second, &base), figures(10_900.0, 1.1, 5.0, 1_000.0));
    }

    #[test]
    fn every_count_has_a_name_of_its_own() {
        for count in Count::ALL {
            assert_eq!(Count::named(count.name()), Some(count));
            assert!(count.budget(100.0) > 0.0 && count.tolerance(100.0, STRICT) > 0.0);
        }
        assert_eq!(Count::named("seconds"), None);
    }
}
