//! The shortest sequence that still shows a difference, as far as leaving commands out gets there.

use super::command::SentTogether;
use super::intended::Intended;
use super::peer::Peers;
use super::sequence::sequence;
use super::{Counts, Failure, UnmeantDifference, listed, run};

/// Sequences tried at most: each may take as long as a server is silent.
const TRIALS_MAX: u32 = 400;

/// Compares the sequence of a seed.
///
/// # Errors
/// As [`run`]; a difference is cut down, and told with the commands that it takes.
pub fn compared(peers: &Peers, seed: u64, intended: &Intended) -> Result<Counts, Failure> {
    let steps = sequence(seed);
    match run(peers, &steps, intended) {
        Err(Failure::Found(found)) => {
            let (steps, mut found) = shrink(peers, &steps, intended, found);
            found.what = format!("\n{}{}", listed(&steps), found.what);
            Err(Failure::Found(found))
        }
        other => other,
    }
}

/// Leaves out steps, then commands, as long as a difference is left. The sequence and what it
/// shows.
pub fn shrink(
    peers: &Peers,
    steps: &[SentTogether],
    intended: &Intended,
    found: UnmeantDifference,
) -> (Vec<SentTogether>, UnmeantDifference) {
    // What comes after it does not matter.
    let mut best: Vec<SentTogether> = steps[..=found.at.0].to_vec();
    let mut shown = found;
    let mut trials = 0;
    let mut try_out = |candidate: Vec<SentTogether>, best: &mut Vec<SentTogether>, shown: &mut UnmeantDifference| {
        trials += 1;
        if trials > TRIALS_MAX {
            return false;
        }
        match run(peers, &candidate, intended) {
            Err(Failure::Found(found)) => {
                (*best, *shown) = (candidate, found);
                true
            }
            _ => false,
        }
    };
    let mut size = best.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < best.len() {
            let mut candidate = best.clone();
            candidate.drain(from..(from + size).min(best.len()));
            if candidate.is_empty() || !try_out(candidate, &mut best, &mut shown) {
                from += size;
            }
        }
        size /= 2;
    }
    for step in (0..best.len()).rev() {
        let mut number = best[step].commands.len();
        while number > 0 && best[step].commands.len() > 1 {
            number -= 1;
            let mut candidate = best.clone();
            candidate[step].commands.remove(number);
            try_out(candidate, &mut best, &mut shown);
        }
    }
    (best, shown)
}
