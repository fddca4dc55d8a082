//! A load generator for servers: one thread, many connections, each a closed loop of batches.
//!
//! A batch of `pipeline` requests goes out on a connection when all answers to the one before are
//! there. Latency is from the batch's handing over to the answer. Every value that comes is
//! checked: its length, and whose it is.

mod connection;
mod protocol;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use stratakv_base::random::Random;

use crate::distribution::{Chooser, Distribution};
use crate::target::BenchError;
use crate::usage::Usage;
use crate::value::Values;

use connection::{Connection, UnansweredRequest};
pub use protocol::{Answer, Protocol, Reader};

/// Between two calls of `watch`.
const TICK: Duration = Duration::from_millis(100);
/// Longest that no server keeps everybody waiting.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes received at once.
const RECEIVE_BYTES: usize = 256 << 10;
/// Events taken at once.
const EVENTS_MAX: usize = 256;

/// Which requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Each record is set once.
    Load,
    /// Records drawn at random, so many gets in a hundred, the others sets.
    Draw {
        /// Gets in a hundred requests.
        get_percent: u64,
        /// Which records.
        distribution: Distribution,
        /// Before it counts.
        warm_up: Duration,
        /// While it counts.
        duration: Duration,
    },
    /// As a cache is used: records drawn at random are got, and those that were missed are set in
    /// the connection's next batch. So many gets whatever time they take, so that all servers see
    /// the same.
    ReadThrough {
        /// Which records.
        distribution: Distribution,
        /// Gets before it counts.
        warm_up_gets: u64,
        /// Gets that count.
        gets: u64,
    },
}

/// What to do to a server.
#[derive(Clone, Copy, Debug)]
pub struct WireOptions {
    /// Where it is.
    pub address: SocketAddr,
    /// What it speaks.
    pub protocol: Protocol,
    /// Connections.
    pub connections: usize,
    /// Requests in a batch.
    pub pipeline: usize,
    /// Records there are.
    pub records: u64,
    /// Length of each value.
    pub value_bytes: usize,
    /// Which requests.
    pub work: Work,
    /// At most so many bytes of values a second are set, but where sets are drawn.
    pub load_bytes_per_s: Option<u64>,
    /// Of what is drawn.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WireReport {
    /// Answers that count.
    pub operations: u64,
    /// Seconds they took.
    pub seconds: f64,
    /// Answers a second.
    pub operations_per_s: f64,
    /// Gets among them.
    pub gets: u64,
    /// Gets that found a value.
    pub hits: u64,
    /// Sets that the server did not want.
    pub refused: u64,
    /// Half were faster.
    pub latency_us_p50: f64,
    /// 95 %.
    pub latency_us_p95: f64,
    /// 99 %.
    pub latency_us_p99: f64,
    /// 99.9 %.
    pub latency_us_p99_9: f64,
    /// The slowest.
    pub latency_us_max: f64,
    /// Processor time of this process in a second: near 1 the generator is what binds.
    pub generator_cpu: f64,
}

impl WireReport {
    /// Of a hundred gets, so many found a value; none without gets.
    pub fn hit_percent(&self) -> Option<f64> {
        (self.gets > 0).then(|| 100.0 * self.hits as f64 / self.gets as f64)
    }
}

/// Runs it. `watch` is called when it begins to count and about ten times a second, with whether
/// what happens by now counts.
///
/// # Errors
/// A connection ended, an answer is none, a value is not its record's, or nothing came for a
/// minute.
pub fn run(options: &WireOptions, watch: &mut dyn FnMut(bool)) -> Result<WireReport, BenchError> {
    Generator::new(options)?.run(watch)
}

struct Generator<'a> {
    options: &'a WireOptions,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    values: Values,
    chooser: Chooser,
    random: Random,
    /// Of what values consist of: so what is drawn does not depend on what was missed.
    contents: Random,
    /// Records loaded, or asked for.
    next: u64,
    /// Sets that went out.
    sets: u64,
    /// Records that are to be set, since they were missed.
    missed: Vec<u64>,
    value: Vec<u8>,
    tally: Tally,
}

struct Tally {
    latencies: Histogram<u64>,
    gets: u64,
    hits: u64,
    refused: u64,
}

impl Tally {
    fn note(&mut self, pending: UnansweredRequest, answer: Answer, now: Instant) {
        let took = u64::try_from((now - pending.begun).as_nanos()).unwrap_or(u64::MAX).max(1);
        self.latencies.saturating_record(took);
        self.gets += u64::from(pending.is_get);
        self.hits += u64::from(matches!(answer, Answer::Hit { .. }));
        self.refused += u64::from(answer == Answer::Refused);
    }
}

impl<'a> Generator<'a> {
    fn new(options: &'a WireOptions) -> Result<Generator<'a>, BenchError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        let mut connections = Vec::new();
        for number in 0..options.connections.max(1) {
            let connection = Connection::connect(options.address, options.protocol, options.value_bytes)?;
            let data = EventData::new_u64(number as u64);
            epoll::add(&epoll, &connection, data, EventFlags::IN).map_err(std::io::Error::from)?;
            connections.push(connection);
        }
        let distribution = match options.work {
            Work::Load => Distribution::Uniform,
            Work::Draw { distribution, .. } | Work::ReadThrough { distribution, .. } => distribution,
        };
        // Three significant digits up to two minutes.
        let latencies = Histogram::new_with_bounds(1, 120_000_000_000, 3);
        let latencies = latencies.map_err(|error| BenchError::Wrong(error.to_string()))?;
        Ok(Generator {
            options,
            epoll,
            connections,
            values: Values::new(options.value_bytes),
            chooser: Chooser::new(distribution, options.records),
            random: Random::new(options.seed),
            contents: Random::new(options.seed.wrapping_add(1)),
            next: 0,
            sets: 0,
            missed: Vec::new(),
            value: Vec::new(),
            tally: Tally { latencies, gets: 0, hits: 0, refused: 0 },
        })
    }

    fn run(mut self, watch: &mut dyn FnMut(bool)) -> Result<WireReport, BenchError> {
        let (warm_up, duration) = match self.options.work {
            Work::Load | Work::ReadThrough { .. } => (Duration::ZERO, None),
            Work::Draw { warm_up, duration, .. } => (warm_up, Some(duration)),
        };
        let start = Instant::now();
        let mut counted_from = start + warm_up;
        let end = duration.map(|duration| counted_from + duration);
        let (mut now, mut next_tick, mut heard) = (start, start + TICK, start);
        let mut used_before = None;
        let mut buffer = vec![0; RECEIVE_BYTES];
        let mut events = Vec::with_capacity(EVENTS_MAX);
        for number in 0..self.connections.len() {
            self.fill(number, now)?;
        }
        loop {
            let is_over = match end {
                None => self.next >= self.count() && self.connections.iter().all(Connection::is_idle),
                Some(end) => now >= end,
            };
            if is_over {
                break;
            }
            if used_before.is_none() && now >= counted_from && self.is_warm() {
                // Gets that warm up take as long as they take.
                if matches!(self.options.work, Work::ReadThrough { .. }) {
                    counted_from = now;
                }
                used_before = Some(Usage::now());
                watch(true);
            }
            self.wait(&mut events, self.ahead(start))?;
            now = Instant::now();
            let counts = now >= counted_from && self.is_warm();
            for event in &events {
                self.serve(event.data.u64() as usize, now, counts, &mut buffer)?;
                heard = now;
            }
            self.go_on(start, now)?;
            if now >= next_tick {
                watch(counts);
                next_tick = Instant::now() + TICK;
            }
            if now - heard > SILENCE_MAX {
                return Err(BenchError::Wrong(format!("the server said nothing for {SILENCE_MAX:?}")));
            }
        }
        let used = Usage::now().since(used_before.unwrap_or_default());
        Ok(self.report((now - counted_from).as_secs_f64(), used))
    }

    /// Requests there will be; of those drawn for a time, no matter how many.
    fn count(&self) -> u64 {
        match self.options.work {
            Work::Load => self.options.records,
            Work::Draw { .. } => u64::MAX,
            Work::ReadThrough { warm_up_gets, gets, .. } => warm_up_gets.saturating_add(gets),
        }
    }

    /// Whether what comes before is over, if that is gets.
    fn is_warm(&self) -> bool {
        !matches!(self.options.work, Work::ReadThrough { warm_up_gets, .. } if self.next < warm_up_gets)
    }

    /// For answers; no longer than until more may be loaded, if that is `ahead`.
    fn wait(&self, events: &mut Vec<epoll::Event>, ahead: Duration) -> Result<(), BenchError> {
        events.clear();
        let longest = if ahead.is_zero() { TICK } else { ahead.min(TICK) };
        let timeout = Timespec { tv_sec: 0, tv_nsec: longest.subsec_nanos().into() };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    fn serve(&mut self, number: usize, now: Instant, counts: bool, buffer: &mut [u8]) -> Result<(), BenchError> {
        let (tally, missed) = (&mut self.tally, &mut self.missed);
        let reads_through = matches!(self.options.work, Work::ReadThrough { .. });
        let connection = &mut self.connections[number];
        let had_output = connection.has_output();
        connection.send()?;
        connection.receive(buffer, |pending, answer| {
            if counts {
                tally.note(pending, answer, now);
            }
            if reads_through && pending.is_get && answer == Answer::Miss {
                missed.push(pending.record);
            }
        })?;
        if connection.is_idle() && self.pace().is_none() {
            self.fill(number, now)?;
        }
        self.watch_output(number, had_output)
    }

    /// Bytes a second at which records are set, if that is limited.
    fn pace(&self) -> Option<u64> {
        self.options.load_bytes_per_s.filter(|_| !matches!(self.options.work, Work::Draw { .. }))
    }

    /// How far sets are ahead of their pace.
    fn ahead(&self, start: Instant) -> Duration {
        let Some(bytes_per_s) = self.pace() else { return Duration::ZERO };
        let bytes = self.sets * self.options.value_bytes as u64;
        Duration::from_secs_f64(bytes as f64 / bytes_per_s.max(1) as f64).saturating_sub(start.elapsed())
    }

    /// Where sets have a pace, connections that were answered wait here for their next batch.
    fn go_on(&mut self, start: Instant, now: Instant) -> Result<(), BenchError> {
        if self.pace().is_none() {
            return Ok(());
        }
        for number in 0..self.connections.len() {
            if !self.ahead(start).is_zero() {
                break;
            }
            if self.connections[number].is_idle() {
                self.fill(number, now)?;
            }
        }
        Ok(())
    }

    /// The next batch of a connection goes out.
    fn fill(&mut self, number: usize, now: Instant) -> Result<(), BenchError> {
        for _ in 0..self.options.pipeline.max(1) {
            let Some((record, is_get)) = self.request() else { break };
            self.sets += u64::from(!is_get);
            let value = (!is_get).then(|| {
                self.values.make(record, self.options.value_bytes, &mut self.contents, &mut self.value);
                &self.value[..]
            });
            self.connections[number].add(record, value, now);
        }
        self.connections[number].send()?;
        self.watch_output(number, false)
    }

    /// The next record, and whether it is got.
    fn request(&mut self) -> Option<(u64, bool)> {
        if let Some(record) = self.missed.pop() {
            return Some((record, false));
        }
        if self.next >= self.count() {
            return None;
        }
        self.next += 1;
        let drawn = |generator: &mut Self| generator.chooser.next(generator.options.records, &mut generator.random);
        Some(match self.options.work {
            Work::Load => (self.next - 1, false),
            Work::Draw { get_percent, .. } => {
                let is_get = self.random.below(100) < get_percent;
                (drawn(self), is_get)
            }
            Work::ReadThrough { .. } => (drawn(self), true),
        })
    }

    /// Asks to be told when a socket takes more, or not any more.
    fn watch_output(&self, number: usize, was_watched: bool) -> Result<(), BenchError> {
        let connection = &self.connections[number];
        if connection.has_output() == was_watched {
            return Ok(());
        }
        let flags = if was_watched { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        let data = EventData::new_u64(number as u64);
        epoll::modify(&self.epoll, connection, data, flags).map_err(|error| std::io::Error::from(error).into())
    }

    fn report(self, seconds: f64, used: Usage) -> WireReport {
        let Tally { latencies, gets, hits, refused } = self.tally;
        let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        let seconds = seconds.max(1e-9);
        WireReport {
            operations: latencies.len(),
            seconds,
            operations_per_s: latencies.len() as f64 / seconds,
            gets,
            hits,
            refused,
            latency_us_p50: at(0.5),
            latency_us_p95: at(0.95),
            latency_us_p99: at(0.99),
            latency_us_p99_9: at(0.999),
            latency_us_max: latencies.max() as f64 / 1e3,
            generator_cpu: used.cpu.as_secs_f64() / seconds,
        }
    }
}
