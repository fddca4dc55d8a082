//! Where the time of a run goes, and what binds it: `bench ycsb --explain`.
//!
//! What is in flight where follows from latencies by Little's law: their sum over the time that it
//! took. So requests to volumes and operations of callers are compared without a clock of their
//! own.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stratakv::{Latencies, RequestLatencies, Store};

use crate::background::{Background, Sampler};
use crate::stages::{self, StagesBefore, StagesOfKind};
use crate::usage::Usage;

/// What binds at this share of what it has.
const BINDS: f64 = 0.9;

/// Requests of one kind to volumes, while a run was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestReport {
    /// In a second.
    pub per_s: f64,
    /// Half were faster, in µs.
    pub latency_us_p50: f64,
    /// 99 of 100 were faster.
    pub latency_us_p99: f64,
    /// In flight on average.
    pub in_flight: f64,
}

impl RequestReport {
    fn new(latencies: &Latencies, elapsed: Duration) -> RequestReport {
        let at = |part| latencies.quantile_ns(part) as f64 / 1e3;
        let seconds = elapsed.as_secs_f64().max(1e-9);
        RequestReport {
            per_s: latencies.count() as f64 / seconds,
            latency_us_p50: at(0.5),
            latency_us_p99: at(0.99),
            in_flight: latencies.mean_in_flight(elapsed.as_nanos() as u64),
        }
    }
}

/// Where the time went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Reads of volumes.
    pub reads: RequestReport,
    /// Writes to them.
    pub writes: RequestReport,
    /// Flushes of their caches.
    pub flushes: RequestReport,
    /// Most requests that may be in flight on all volumes; 0 if that is not known.
    pub in_flight_max: f64,
    /// Operations of callers in flight.
    pub clients: f64,
    /// Writes of callers answered in a second: several may share one write of a volume, or a flush.
    #[serde(default)]
    pub answered_writes_per_s: f64,
    /// Processors that the process kept busy, the kernel's work for it included.
    pub processors: f64,
    /// Share of the time in which its busiest thread ran.
    pub busiest_thread: f64,
    /// Processors there are.
    pub cores: f64,
    /// Volumes, each of which is flushed by itself.
    pub volumes: f64,
    /// Bytes of background work in each second.
    #[serde(default)]
    pub background: Vec<Background>,
    /// Where operations were, by kind.
    #[serde(default)]
    pub stages: Vec<StagesOfKind>,
}

impl Explanation {
    /// What binds, in a sentence.
    pub fn sentence(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let flushing = self.flushes.in_flight / self.volumes.max(1.0);
        let on_volumes = self.reads.in_flight + self.writes.in_flight + self.flushes.in_flight;
        let waiting = self.waiting();
        let (queue, processors) = (on_volumes / self.in_flight_max.max(1.0), self.processors / self.cores.max(1.0));
        if processors >= BINDS {
            return format!(
                "bound by the processors: they are busy at {} of {} cores",
                percent(processors),
                self.cores
            );
        }
        if self.busiest_thread >= BINDS {
            return format!("bound by one thread, which runs {} of the time", percent(self.busiest_thread));
        }
        if self.in_flight_max > 0.0 && queue >= BINDS {
            return format!(
                "bound by the volumes' queues: {on_volumes:.1} of {} requests in flight",
                self.in_flight_max
            );
        }
        if flushing >= BINDS {
            return format!("bound by flushes: one is under way {} of the time at each volume", percent(flushing));
        }
        if waiting >= BINDS * self.clients {
            return format!(
                "bound by the volumes: {waiting:.1} of {} operations wait for a request there",
                self.clients
            );
        }
        format!(
            "bound by nothing measured: of {} operations in flight {waiting:.1} wait for a request at a volume, processors are busy at {}",
            self.clients,
            percent(processors)
        )
    }

    /// Operations of callers that wait for a request at a volume, on average. A read has one of
    /// them; a write or a flush as many as share it.
    fn waiting(&self) -> f64 {
        let share = |requests: &RequestReport| (self.answered_writes_per_s / requests.per_s.max(1.0)).max(1.0);
        let of = |requests: &RequestReport| requests.in_flight * share(requests);
        (self.reads.in_flight + of(&self.writes) + of(&self.flushes)).min(self.clients.max(self.reads.in_flight))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<18}{:>10}{:>10}{:>10}{:>12}",
            "at the volumes", "per s", "p50 in µs", "p99 in µs", "in flight"
        )?;
        for (name, one) in [("read", &self.reads), ("write", &self.writes), ("flush", &self.flushes)] {
            let RequestReport { per_s, latency_us_p50, latency_us_p99, in_flight } = one;
            writeln!(f, "{name:<18}{per_s:>10.0}{latency_us_p50:>10.0}{latency_us_p99:>10.0}{in_flight:>12.2}")?;
        }
        writeln!(
            f,
            "processors: {:.2} of {} busy, the busiest thread {:.0} % of the time",
            self.processors,
            self.cores,
            self.busiest_thread * 100.0
        )?;
        if !self.background.is_empty() {
            writeln!(
                f,
                "{:<24}{:>10}{:>22}{:>24}",
                "background work", "MB/s", "busiest second / mean", "% of seconds near it"
            )?;
        }
        for one in &self.background {
            let (mean, peak, steady) = (one.bytes_per_s() / 1e6, one.peak(), one.steady() * 100.0);
            writeln!(f, "{:<24}{mean:>10.2}{peak:>22.2}{steady:>24.0}", one.name)?;
        }
        stages::write(&self.stages, f)?;
        writeln!(f, "{}", self.sentence())
    }
}

/// What there was when a run began to be counted.
pub(crate) struct Window<'a> {
    store: Option<&'a Store>,
    at: Instant,
    usage: Usage,
    requests: RequestLatencies,
    written_bytes: u64,
    threads: HashMap<String, Duration>,
    /// What each thread ran when it was last seen: those of clients end with the run.
    threads_seen: HashMap<String, Duration>,
    sampler: Sampler<'a>,
    stages: StagesBefore,
}

impl<'a> Window<'a> {
    pub(crate) fn open(store: Option<&'a Store>) -> Window<'a> {
        let requests = store.map(Store::request_latencies).unwrap_or_default();
        let sampler = Sampler::new(store);
        let stages = StagesBefore::new(store);
        let threads = Usage::threads();
        Window {
            store,
            at: Instant::now(),
            usage: Usage::now(),
            requests,
            written_bytes: written_bytes(store),
            threads_seen: threads.clone(),
            threads,
            sampler,
            stages,
        }
    }

    /// Time until the next second is over.
    pub(crate) fn left(&self) -> Duration {
        self.sampler.left()
    }

    /// A second is over.
    pub(crate) fn second(&mut self) {
        self.sampler.second();
        self.threads_seen.extend(Usage::threads());
    }

    /// What was used since, and what the store says it has written; the explanation only of a store
    /// that is embedded.
    pub(crate) fn close(self) -> (Usage, u64, Option<Explanation>) {
        let (used, elapsed) = (Usage::now().since(self.usage), self.at.elapsed());
        let told = written_bytes(self.store).saturating_sub(self.written_bytes);
        let Some(store) = self.store else { return (used, 0, None) };
        let requests = store.request_latencies().since(&self.requests);
        let ran = |(thread, now): (String, Duration)| {
            now.saturating_sub(self.threads.get(&thread).copied().unwrap_or_default())
        };
        let mut threads = self.threads_seen;
        threads.extend(Usage::threads());
        let busiest = threads.into_iter().map(ran).max().unwrap_or_default();
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let of = |latencies: &Latencies| RequestReport::new(latencies, elapsed);
        let explanation = Explanation {
            reads: of(&requests.reads),
            writes: of(&requests.writes),
            flushes: of(&requests.flushes),
            processors: used.cpu.as_secs_f64() / seconds,
            busiest_thread: busiest.as_secs_f64() / seconds,
            cores: std::thread::available_parallelism().map_or(1, usize::from) as f64,
            volumes: store.shards() as f64,
            stages: self.stages.since(store),
            background: self.sampler.finish(),
            ..Explanation::default()
        };
        (used, told, Some(explanation))
    }
}

/// Bytes that a store says it has written to its volumes, since it was opened.
fn written_bytes(store: Option<&Store>) -> u64 {
    let statistics = store.map(Store::stats).unwrap_or_default();
    statistics.iter().filter(|one| one.name == "write_bytes").map(|one| one.value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_rest() -> Explanation {
        Explanation { in_flight_max: 128.0, clients: 64.0, cores: 2.0, volumes: 4.0, ..Explanation::default() }
    }

    #[test]
    fn operations_that_share_a_write_all_wait_for_it() {
        let writes = RequestReport { per_s: 5_000.0, in_flight: 5.5, ..RequestReport::default() };
        let reads = RequestReport { per_s: 20_000.0, in_flight: 17.0, ..RequestReport::default() };
        let shared = Explanation { reads, writes, answered_writes_per_s: 28_000.0, ..at_rest() };
        assert!((shared.waiting() - (17.0 + 5.5 * 5.6)).abs() < 1e-6, "{}", shared.waiting());
        let crowded = Explanation { answered_writes_per_s: 90_000.0, ..shared };
        assert!((crowded.waiting() - 64.0).abs() < 1e-6, "no more wait than there are");
        assert!(crowded.sentence().contains("by the volumes: 64.0 of 64"), "{}", crowded.sentence());
    }

    #[test]
    fn the_sentence_names_what_is_used_up() {
        let in_flight = |in_flight| RequestReport { in_flight, ..RequestReport::default() };
        let unknown = Explanation { in_flight_max: 0.0, ..at_rest() };
        let cases: [(&str, Explanation); 7] = [
            ("by the processors", Explanation { processors: 1.9, ..at_rest() }),
            ("by one thread", Explanation { busiest_thread: 0.95, processors: 1.0, ..at_rest() }),
            ("by the volumes' queues", Explanation { reads: in_flight(120.0), ..at_rest() }),
            ("by flushes", Explanation { flushes: in_flight(3.8), ..at_rest() }),
            ("by the volumes: 60.0", Explanation { reads: in_flight(50.0), writes: in_flight(10.0), ..at_rest() }),
            ("by nothing measured: of 64", Explanation { reads: in_flight(12.0), ..unknown }),
            ("by nothing measured: of 64", Explanation { reads: in_flight(12.0), ..at_rest() }),
        ];
        for (says, explanation) in cases {
            let sentence = explanation.sentence();
            assert!(sentence.contains(says), "{sentence} does not say {says}");
        }
    }
}
