//! Snapshots among the steps of a scenario, drawn apart: what the seed means otherwise stays what
//! it was.

use stratakv_base::random::Random;

use super::{Condition, Plan, PlanStep, Request, What};

impl Plan {
    /// The same with snapshots in half of the seeds: opened, paged through and closed, or
    /// forgotten, between any two steps. For engines that have snapshots.
    pub fn with_snapshots(mut self, seed: u64) -> Plan {
        let mut random = Random::new(seed ^ 0x5A95_4075);
        if random.below(2) == 0 {
            return self;
        }
        let percent = [2, 8, 25][random.below(3) as usize];
        let keys = self.setup.keys;
        let churned = (random.below(2) == 0).then(|| random.below(self.steps.len() as u64 + 1) as usize);
        let mut steps = Vec::new();
        for (at, step) in self.steps.into_iter().enumerate() {
            if churned == Some(at) {
                churn(keys, &mut random, &mut steps);
            }
            steps.push(step);
            if random.below(100) < percent {
                (0..1 + random.below(3)).for_each(|_| steps.push(of_snapshot(keys, &mut random)));
            }
        }
        self.steps = steps;
        self
    }
}

fn submit(keys: u16, what: What, random: &mut Random) -> PlanStep {
    let (key, power_loss) = (random.below(keys.into()) as u16, random.below(2) == 0);
    PlanStep::Submit(Request { key, what, power_loss })
}

/// Something with one of the snapshots. They are closed less often than they are opened: many are
/// forgotten when the life ends.
fn of_snapshot(keys: u16, random: &mut Random) -> PlanStep {
    let which = random.below(256) as u8;
    let what = match random.below(10) {
        0..=2 => What::OpenSnapshot,
        3 => What::CloseSnapshot { which },
        _ => What::PageSnapshot {
            which,
            reverse: random.below(2) == 0,
            keys_only: random.below(4) == 0,
            items: 1 + random.below(12) as u8,
        },
    };
    submit(keys, what, random)
}

/// So many writes over a few keys that memtables become rows and rows tables, while snapshots
/// opened among them are looked at.
fn churn(keys: u16, random: &mut Random, steps: &mut Vec<PlanStep>) {
    let len = [60, 400, 1500, 4000][random.below(4) as usize];
    let ticks = 20 + random.below(120);
    let keys = if random.below(2) == 0 { keys } else { keys.min(4) };
    for _ in 0..ticks {
        for _ in 0..random.below(6) {
            let what = match random.below(16) {
                0 | 1 => What::Delete(Condition::Any),
                2 => What::DeleteRange { count: 1 + random.below(6) as u8 },
                _ => What::Put { len: len + random.below(16) as u32, expect: Condition::Any, ttl: 0 },
            };
            steps.push(submit(keys, what, random));
        }
        if random.below(4) == 0 {
            steps.push(of_snapshot(keys, random));
        }
        steps.push(PlanStep::Tick { completions: random.below(12) as u8, seed: random.next_u64() as u32 });
    }
}
