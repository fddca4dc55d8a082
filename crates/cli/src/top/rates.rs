//! What happened between two samples, and what binds.

use super::sample::{Sample, Times};

/// A thread that is busy for so much of the time has no more to give.
const BUSY: f64 = 0.9;

/// The time between two samples.
pub(super) struct Interval<'s> {
    pub(super) now: &'s Sample,
    earlier: &'s Sample,
    /// In seconds, never 0.
    pub(super) seconds: f64,
}

impl<'s> Interval<'s> {
    pub(super) fn between(earlier: &'s Sample, now: &'s Sample) -> Interval<'s> {
        let ms = now.time_ms.saturating_sub(earlier.time_ms).max(1);
        Interval { now, earlier, seconds: ms as f64 / 1000.0 }
    }

    /// How much a counter grew; 0 after a restart of the server.
    pub(super) fn grown(&self, name: &str) -> u64 {
        self.now.figure(name).saturating_sub(self.earlier.figure(name))
    }

    /// The same in a second.
    pub(super) fn rate(&self, name: &str) -> f64 {
        self.grown(name) as f64 / self.seconds
    }

    /// Times of operations and requests, where there were any, by their names.
    pub(super) fn times(&self) -> Vec<(String, Times)> {
        let disk = |(name, times): (String, Times)| (format!("disk {name}"), times);
        let operations = since(&self.now.operations, &self.earlier.operations);
        let requests = since(&self.now.requests, &self.earlier.requests).into_iter().map(disk);
        operations.into_iter().chain(requests).filter(|(_, times)| times.count() > 0).collect()
    }

    /// For each thread: how busy it was, of 1; its operations in a second; its connections.
    pub(super) fn threads(&self) -> Vec<(f64, f64, u64)> {
        let of = |(now, earlier): (&super::sample::ThreadSample, &super::sample::ThreadSample)| {
            let busy = now.cpu_ns.saturating_sub(earlier.cpu_ns) as f64 / 1e9 / self.seconds;
            let operations = now.operations.saturating_sub(earlier.operations) as f64 / self.seconds;
            (busy.min(1.0), operations, now.connections)
        };
        self.now.threads.iter().zip(&self.earlier.threads).map(of).collect()
    }

    /// Hits of gets, of 1; `None`: there were no gets.
    pub(super) fn hit_rate(&self) -> Option<f64> {
        let (hits, misses) = (self.grown("get_hits"), self.grown("get_misses"));
        let all = hits.saturating_add(misses);
        (all > 0).then(|| hits as f64 / all as f64)
    }

    /// Operations in a second, whatever they are.
    pub(super) fn operations(&self) -> f64 {
        let threads: f64 = self.threads().iter().map(|(_, operations, _)| operations).sum();
        let names = ["cmd_get", "cmd_set", "cmd_touch", "delete_hits", "delete_misses", "incr_hits", "decr_hits"];
        if self.now.threads.is_empty() { names.iter().map(|name| self.rate(name)).sum() } else { threads }
    }

    /// One sentence: what hinders the server from doing more.
    pub(super) fn bound_by(&self) -> String {
        let now = self.now;
        if !now.text("failure").is_empty() {
            return format!("shards take no writes: {}", now.text("failure"));
        }
        if now.figure("read_only_after_a_failure") > 0 || now.figure("broken_shards") > 0 {
            return "shards take no writes after a failure: see the log, then start the server again".to_owned();
        }
        if now.figure("full") > 0 || self.grown("full_refusals") > 0 {
            return "space: the disk or --capacity is full, and writes are refused".to_owned();
        }
        if now.figure("client_memory_waiting") > 0 || self.grown("memory_waits") > 0 {
            return "memory of clients: connections wait for buffers; more --memory".to_owned();
        }
        let threads = self.threads();
        let busy = threads.iter().filter(|(busy, _, _)| *busy >= BUSY).count();
        match busy {
            0 => {}
            all if all == threads.len() => return "processors: all server threads are busy".to_owned(),
            some => {
                return format!("{some} of {} server threads: spread clients over more connections", threads.len());
            }
        }
        if now.figure("operations_waiting_for_room") > 0 {
            return "space in memory or on the volumes: writes wait until there is room".to_owned();
        }
        self.waits()
    }

    /// What operations wait for within the store, where nothing is used up.
    fn waits(&self) -> String {
        if self.operations() < 1.0 {
            return "nothing: the server is idle".to_owned();
        }
        let stages = since(&self.now.stages, &self.earlier.stages);
        let total: u64 = stages.iter().fold(0, |sum: u64, (_, times)| sum.saturating_add(times.sum_us));
        let longest = stages.into_iter().max_by_key(|(_, times)| times.sum_us).filter(|(_, times)| times.sum_us > 0);
        match longest {
            Some((stage, times)) => format!(
                "nothing that is used up; of the time in the store {} % is {stage}",
                times.sum_us.saturating_mul(100) / total.max(1)
            ),
            None => "nothing that is measured".to_owned(),
        }
    }
}

/// Those of now without those of before, by their names.
fn since(now: &[(String, Times)], earlier: &[(String, Times)]) -> Vec<(String, Times)> {
    let before = |name: &str| earlier.iter().find(|(known, _)| known == name).map(|(_, times)| times);
    let of = |(name, times): &(String, Times)| {
        (name.clone(), before(name).map_or_else(|| times.clone(), |before| times.since(before)))
    };
    now.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::ThreadSample;
    use super::*;

    fn sample(time_ms: u64, figures: &[(&str, u64)], cpu_ns: &[u64]) -> Sample {
        let thread = |cpu_ns: &u64| ThreadSample { cpu_ns: *cpu_ns, operations: *cpu_ns / 1000, connections: 1 };
        Sample {
            time_ms,
            figures: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            threads: cpu_ns.iter().map(thread).collect(),
            ..Sample::default()
        }
    }

    #[test]
    fn rates_are_of_the_interval() {
        let earlier = sample(1000, &[("cmd_get", 100), ("get_hits", 50), ("get_misses", 50)], &[]);
        let now = sample(3000, &[("cmd_get", 300), ("get_hits", 200), ("get_misses", 100)], &[]);
        let interval = Interval::between(&earlier, &now);
        assert_eq!((interval.rate("cmd_get"), interval.hit_rate()), (100.0, Some(0.75)));
        // After a restart counters are lower than before.
        let restarted = Interval::between(&now, &earlier);
        assert_eq!((restarted.rate("cmd_get"), restarted.hit_rate()), (0.0, None));
        assert!(restarted.seconds > 0.0);
    }

    #[test]
    fn what_binds_is_told_in_a_sentence() {
        let earlier = sample(0, &[], &[0, 0]);
        let bound = |figures: &[(&str, u64)], cpu_ns: &[u64]| {
            Interval::between(&earlier, &sample(1000, figures, cpu_ns)).bound_by()
        };
        assert!(bound(&[], &[0, 0]).contains("idle"));
        assert!(bound(&[], &[950_000_000, 990_000_000]).contains("all server threads"));
        assert!(bound(&[], &[950_000_000, 0]).contains("1 of 2 server threads"));
        assert!(bound(&[("full", 1)], &[950_000_000, 990_000_000]).contains("--capacity"));
        assert!(bound(&[("memory_waits", 1)], &[0, 0]).contains("--memory"));
        assert!(bound(&[("broken_shards", 1)], &[0, 0]).contains("no writes"));
        let mut now = sample(1000, &[], &[10_000_000, 0]);
        let times = |sum_us| Times { sum_us, ..Times::default() };
        now.stages = vec![("write: flush".into(), times(300)), ("get: read".into(), times(100))];
        assert!(Interval::between(&earlier, &now).bound_by().contains("75 % is write: flush"));
    }
}
