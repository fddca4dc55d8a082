//! Measurements on a temporary file, through the same rings the store uses.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stratakv_base::random::Random;
use stratakv_device::ring::RingKind;
use stratakv_device::volume::OpenMode;
use stratakv_device::{
    Block, BlockPart, Class, Completion, DiskOutcome, DiskRequest, Geometry, IoFault, Pool, Ring, Volume, Wait,
};
use stratakv_device::{open_ring, sync};

use crate::failure::Failure;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const FLUSHES: u64 = 50;

/// What to measure.
pub(super) struct Run<'a> {
    pub(super) directory: &'a Path,
    /// A multiple of 1 MiB.
    pub(super) file_bytes: u64,
    pub(super) length: Duration,
    /// Writes at random so many times more for as long as `stability_step`; 0: not.
    pub(super) stability_steps: u64,
    pub(super) stability_step: Duration,
    pub(super) rings: &'a OpenRing,
    /// Tells the time.
    pub(super) now: &'a dyn Fn() -> Instant,
}

/// Opens what carries the I/O.
pub(super) type OpenRing = dyn Fn() -> io::Result<Box<dyn Ring + Send>>;

/// What opens the ring of a kind.
pub(super) fn rings(kind: RingKind) -> impl Fn() -> io::Result<Box<dyn Ring + Send>> {
    move || open_ring(kind, 64)
}

impl<'a> Run<'a> {
    /// A short look, without the profile.
    fn brief(directory: &'a Path, length: Duration, rings: &'a OpenRing) -> Run<'a> {
        let (stability_steps, stability_step, now) = (0, Duration::ZERO, &Instant::now);
        Run { directory, file_bytes: 64 * MIB, length, stability_steps, stability_step, rings, now }
    }
}

/// One load.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) iops: f64,
    pub(super) latency_us_p50: f64,
    pub(super) latency_us_p99: f64,
}

impl Figures {
    fn new(mut times: Vec<Duration>, elapsed: Duration) -> Figures {
        let iops = times.len() as f64 / elapsed.as_secs_f64();
        times.sort_unstable();
        Figures { iops, latency_us_p50: percentile_us(&times, 0.5), latency_us_p99: percentile_us(&times, 0.99) }
    }
}

/// All of them.
pub(super) struct Measured {
    pub(super) geometry: Geometry,
    pub(super) direct: bool,
    pub(super) ring: &'static str,
    pub(super) file_bytes: u64,
    pub(super) fdatasync_us_p50: f64,
    pub(super) dsync_us_p50: f64,
    pub(super) read_1: Figures,
    pub(super) read_64: Figures,
    pub(super) write_1: Figures,
    pub(super) write_64: Figures,
    pub(super) profile: Vec<(Pattern, u64, Figures)>,
    /// Writes of each second, if that was asked for.
    pub(super) write_iops_each_second: Vec<u64>,
}

pub(super) fn measure(run: &Run<'_>) -> Result<Measured, Failure> {
    let bench = Bench::prepare(run)?;
    let (read_1, ring) = bench.load(Kind::Read, 1)?;
    Ok(Measured {
        geometry: bench.volume.geometry().clone(),
        direct: bench.volume.is_direct(),
        ring,
        file_bytes: run.file_bytes,
        fdatasync_us_p50: bench.flush_cost_us(false)?,
        dsync_us_p50: bench.flush_cost_us(true)?,
        read_1,
        read_64: bench.load(Kind::Read, 64)?.0,
        write_1: bench.load(Kind::Write, 1)?.0,
        write_64: bench.load(Kind::Write, 64)?.0,
        profile: bench.profile()?,
        write_iops_each_second: bench.stability()?,
    })
}

/// What decides where records go: pages a second read and written at random, and bytes a second in
/// batches as large as those of `packed`.
pub(super) struct Rates {
    pub(super) page_reads_per_s: f64,
    pub(super) page_writes_per_s: f64,
    pub(super) batch_bytes_per_s: f64,
}

/// Takes about a second.
pub(super) fn probe(directory: &Path, ring: RingKind) -> Result<Rates, Failure> {
    let (length, rings) = (Duration::from_millis(300), rings(ring));
    let run = Run::brief(directory, length, &rings);
    let bench = Bench::prepare(&run)?;
    let (reads, writes) = (bench.load(Kind::Read, 64)?.0, bench.load(Kind::Write, 64)?.0);
    let batches = Pattern { kind: Kind::Write, bytes: BATCH, in_order: false };
    let (times, elapsed, _) = bench.times(batches, 8, length)?;
    let batch_bytes_per_s = Figures::new(times, elapsed).iops * BATCH as f64;
    Ok(Rates { page_reads_per_s: reads.iops, page_writes_per_s: writes.iops, batch_bytes_per_s })
}

/// Depths that `--max-latency` chooses from.
const DEPTHS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The 99th percentile in µs of a random read of a page, by depth. Takes about a second.
pub(super) fn latency_by_depth(directory: &Path, ring: RingKind) -> Result<Vec<(u64, f64)>, Failure> {
    let rings = rings(ring);
    let run = Run::brief(directory, Duration::from_millis(100), &rings);
    let bench = Bench::prepare(&run)?;
    DEPTHS.iter().map(|depth| Ok((*depth, bench.load(Kind::Read, *depth)?.0.latency_us_p99))).collect()
}

/// A way of asking the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    kind: Kind,
    pub(super) bytes: u64,
    in_order: bool,
}

/// Beside reads and writes of a page with 1 and 64 in flight: latency by depth, then what larger
/// requests and their order gain.
const PROFILE: &[(Pattern, u64)] = &[
    (Pattern { kind: Kind::Read, bytes: PAGE, in_order: false }, 4),
    (Pattern { kind: Kind::Read, bytes: PAGE, in_order: false }, 16),
    (Pattern { kind: Kind::Read, bytes: PAGE, in_order: false }, 32),
    (Pattern { kind: Kind::Read, bytes: 16 << 10, in_order: false }, 16),
    (Pattern { kind: Kind::Read, bytes: 64 << 10, in_order: false }, 16),
    (Pattern { kind: Kind::Read, bytes: 64 << 10, in_order: true }, 16),
    (Pattern { kind: Kind::Write, bytes: PAGE, in_order: true }, 16),
    (Pattern { kind: Kind::Write, bytes: 16 << 10, in_order: false }, 16),
    (Pattern { kind: Kind::Write, bytes: 64 << 10, in_order: false }, 16),
    (Pattern { kind: Kind::Write, bytes: BATCH, in_order: false }, 8),
    (Pattern { kind: Kind::Write, bytes: MIB, in_order: false }, 4),
];

/// What `packed` writes at once under load.
const BATCH: u64 = 256 << 10;

impl Pattern {
    /// As printed.
    pub(super) fn name(self) -> String {
        let order = if self.in_order { "ordered" } else { "random" };
        let kind = if self.kind == Kind::Read { "read" } else { "write" };
        format!("{} KiB {order} {kind}", self.bytes >> 10)
    }
}

impl Measured {
    /// What decides where records go.
    pub(super) fn rates(&self) -> Rates {
        let batches = self.profile.iter().find(|(pattern, ..)| pattern.kind == Kind::Write && pattern.bytes == BATCH);
        Rates {
            page_reads_per_s: self.read_64.iops,
            page_writes_per_s: self.write_64.iops,
            batch_bytes_per_s: batches.map_or(0.0, |(pattern, _, figures)| figures.iops * pattern.bytes as f64),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

struct Bench<'a> {
    run: &'a Run<'a>,
    path: PathBuf,
    volume: Arc<Volume>,
    pool: Pool,
    /// What is written: not zeros, which some devices treat apart.
    page: Arc<Block>,
    slice: Arc<Block>,
}

pub(super) fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    percentile_us(&times, 0.5)
}

/// Of sorted times; 0 if there are none.
fn percentile_us(sorted: &[Duration], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

impl<'a> Bench<'a> {
    /// Makes the file, takes its name away (so that it is gone when the program ends), and fills
    /// it.
    fn prepare(run: &'a Run<'a>) -> Result<Bench<'a>, Failure> {
        let path = run.directory.join(format!(".stratakv-doctor-{}", std::process::id()));
        let cannot = |what: &str, error: io::Error| {
            Failure::failed(format!("cannot {what} a temporary file in {}: {error}", run.directory.display()))
        };
        let space = rustix::fs::statvfs(run.directory).map_err(|error| cannot("make", error.into()))?;
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        if free_bytes < run.file_bytes + 16 * MIB {
            let (free, wanted) = (free_bytes / MIB, run.file_bytes / MIB);
            return Err(Failure::failed(format!(
                "{} has {free} MiB free, the measurement wants {wanted}: name another directory, or a smaller --file-bytes",
                run.directory.display()
            )));
        }
        let mode = OpenMode { create: true, read_only: false };
        let volume = Volume::open(&path, mode).map_err(|error| cannot("make", error));
        let removed = std::fs::remove_file(&path);
        let volume = Arc::new(volume?);
        removed.map_err(|error| cannot("unlink", error))?;
        let pool = Pool::new(16 << 20);
        let page = Arc::new(random_block(&pool, Class::Page)?);
        let slice = Arc::new(random_block(&pool, Class::Slice)?);
        let bench = Bench { run, path, volume, pool, page, slice };
        bench.fill()?;
        Ok(bench)
    }

    fn fill(&self) -> Result<(), Failure> {
        let parts = self.parts(MIB);
        for offset in (0..self.run.file_bytes).step_by(MIB as usize) {
            self.execute(DiskRequest::Write { offset, parts: parts.clone(), durable: false })?;
        }
        self.execute(DiskRequest::Flush)
    }

    fn execute(&self, request: DiskRequest) -> Result<(), Failure> {
        self.ended(&sync::execute(&self.volume, request))
    }

    fn ended(&self, outcome: &DiskOutcome) -> Result<(), Failure> {
        let (what, result): (_, &Result<(), IoFault>) = match outcome {
            DiskOutcome::Read(_, result) => ("read", result),
            DiskOutcome::Write(result) => ("write", result),
            DiskOutcome::Flush(result) => ("flush", result),
            DiskOutcome::Allocate(result) => ("reservation", result),
            DiskOutcome::Discard(result) => ("discard", result),
        };
        (*result).map_err(|fault| Failure::failed(format!("a {what} of {} failed: {fault}", self.path.display())))
    }

    fn write_of_page(&self, random: &mut Random, durable: bool) -> DiskRequest {
        let offset = random.below(self.run.file_bytes / PAGE) * PAGE;
        DiskRequest::Write { offset, parts: vec![BlockPart::whole(Arc::clone(&self.page))], durable }
    }

    /// Median time until one page is durable.
    fn flush_cost_us(&self, dsync: bool) -> Result<f64, Failure> {
        let mut random = Random::new(1);
        let mut times = Vec::new();
        for _ in 0..FLUSHES {
            let started = Instant::now();
            self.execute(self.write_of_page(&mut random, dsync))?;
            if !dsync {
                self.execute(DiskRequest::Flush)?;
            }
            times.push(started.elapsed());
        }
        Ok(median_us(times))
    }

    /// What is written: pages, or slices where they fit.
    fn parts(&self, bytes: u64) -> Vec<BlockPart> {
        let block = if bytes >= self.slice.len() as u64 { &self.slice } else { &self.page };
        (0..bytes / block.len() as u64).map(|_| BlockPart::whole(Arc::clone(block))).collect()
    }

    /// The request number `turn` of a pattern.
    fn request(&self, pattern: Pattern, turn: u64, random: &mut Random) -> Result<DiskRequest, Failure> {
        let Pattern { kind, bytes, in_order } = pattern;
        let places = self.run.file_bytes / bytes;
        let offset = if in_order { turn % places } else { random.below(places) } * bytes;
        if kind == Kind::Write {
            return Ok(DiskRequest::Write { offset, parts: self.parts(bytes), durable: false });
        }
        let class = if bytes > PAGE { Class::Slice } else { Class::Page };
        let block = self.pool.take(class).ok_or_else(no_block)?;
        Ok(DiskRequest::Read { offset, block, len: bytes as u32 })
    }

    fn profile(&self) -> Result<Vec<(Pattern, u64, Figures)>, Failure> {
        let measured = PROFILE.iter().map(|(pattern, depth)| {
            let (times, elapsed, _) = self.times(*pattern, *depth, self.run.length / 2)?;
            Ok((*pattern, *depth, Figures::new(times, elapsed)))
        });
        measured.collect()
    }

    /// Random writes of a page, 64 in flight, counted second by second: a device whose cache fills
    /// shows it.
    fn stability(&self) -> Result<Vec<u64>, Failure> {
        let mut seconds = Vec::new();
        for _ in 0..self.run.stability_steps {
            let pattern = Pattern { kind: Kind::Write, bytes: PAGE, in_order: false };
            let (times, elapsed, _) = self.times(pattern, 64, self.run.stability_step)?;
            seconds.push((times.len() as f64 / elapsed.as_secs_f64()) as u64);
        }
        Ok(seconds)
    }

    fn load(&self, kind: Kind, depth: u64) -> Result<(Figures, &'static str), Failure> {
        let pattern = Pattern { kind, bytes: PAGE, in_order: false };
        let (times, elapsed, ring) = self.times(pattern, depth, self.run.length)?;
        Ok((Figures::new(times, elapsed), ring))
    }

    /// Keeps `depth` requests in flight; waits for a quarter of them at a time, as the store does.
    fn times(
        &self,
        pattern: Pattern,
        depth: u64,
        length: Duration,
    ) -> Result<(Vec<Duration>, Duration, &'static str), Failure> {
        let broken = |error: io::Error| Failure::failed(format!("the I/O ring failed: {error}"));
        let mut ring = (self.run.rings)().map_err(broken)?;
        let mut random = Random::new(depth);
        let mut begun = vec![(self.run.now)(); depth as usize];
        let mut times = Vec::new();
        let mut completions = Vec::new();
        let mut turn = 0..;
        let started = (self.run.now)();
        for tag in 0..depth {
            self.begin(ring.as_mut(), tag, self.request(pattern, turn.next().unwrap_or(0), &mut random)?, &mut begun);
        }
        let wait = Wait::For { completions: (depth as u32 / 4).max(1), timeout: Some(Duration::from_secs(10)) };
        while ring.in_flight() > 0 {
            ring.submit(wait).map_err(broken)?;
            ring.reap(&mut completions);
            let more = (self.run.now)() - started < length;
            for completion in completions.drain(..) {
                let Completion::Disk { tag, outcome } = completion else { continue };
                self.ended(&outcome)?;
                drop(outcome);
                times.push((self.run.now)() - begun[tag as usize]);
                if more {
                    let request = self.request(pattern, turn.next().unwrap_or(0), &mut random)?;
                    self.begin(ring.as_mut(), tag, request, &mut begun);
                }
            }
        }
        Ok((times, (self.run.now)() - started, ring.name()))
    }

    fn begin(&self, ring: &mut dyn Ring, tag: u64, request: DiskRequest, begun: &mut [Instant]) {
        begun[tag as usize] = (self.run.now)();
        ring.disk(tag, &self.volume, request);
    }
}

fn no_block() -> Failure {
    Failure::failed("no memory for an I/O block")
}

fn random_block(pool: &Pool, class: Class) -> Result<Block, Failure> {
    let mut block = pool.take(class).ok_or_else(no_block)?;
    Random::new(0).fill(&mut block);
    Ok(block)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use stratakv_device::{NetRequest, Socket, Waker};

    use super::*;

    /// A ring to a device of which only the time is real: what a write takes.
    struct Timed {
        /// Microseconds since the beginning of the test.
        time: Arc<AtomicU64>,
        write_us: u64,
        done: Vec<Completion>,
        real: Box<dyn Ring + Send>,
    }

    impl Ring for Timed {
        fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest) {
            match request {
                DiskRequest::Write { .. } => {
                    self.time.fetch_add(self.write_us, Ordering::Relaxed);
                    self.done.push(Completion::Disk { tag, outcome: DiskOutcome::Write(Ok(())) });
                }
                other => self.real.disk(tag, volume, other),
            }
        }
        fn net(&mut self, tag: u64, request: NetRequest) {
            self.real.net(tag, request);
        }
        fn shutdown(&mut self, socket: &Socket) {
            self.real.shutdown(socket);
        }
        fn submit(&mut self, _wait: Wait) -> io::Result<()> {
            Ok(())
        }
        fn reap(&mut self, completions: &mut Vec<Completion>) {
            completions.append(&mut self.done);
        }
        fn in_flight(&self) -> usize {
            self.done.len()
        }
        fn waker(&self) -> Waker {
            self.real.waker()
        }
        fn name(&self) -> &'static str {
            self.real.name()
        }
    }

    #[test]
    fn a_device_whose_cache_fills_after_a_while_is_seen() {
        for (slow_us, is_seen) in [(2000, true), (20, false)] {
            let directory = tempfile::tempdir().expect("a directory");
            let (steps, time, began) = (AtomicU32::new(0), Arc::new(AtomicU64::new(0)), Instant::now());
            let clock = Arc::clone(&time);
            let now = move || began + Duration::from_micros(clock.load(Ordering::Relaxed));
            // A ring for each step: the cache is full after the fifth.
            let rings = move || -> io::Result<Box<dyn Ring + Send>> {
                let write_us = if steps.fetch_add(1, Ordering::Relaxed) < 5 { 20 } else { slow_us };
                let real = open_ring(RingKind::Blocking, 64)?;
                Ok(Box::new(Timed { time: Arc::clone(&time), write_us, done: Vec::new(), real }))
            };
            let step = Duration::from_millis(40);
            let brief = Run::brief(directory.path(), step, &rings);
            let run = Run { stability_steps: 12, stability_step: step, file_bytes: MIB, now: &now, ..brief };
            let seconds = Bench::prepare(&run).and_then(|bench| bench.stability()).expect("measured");
            assert_eq!(crate::doctor::advice::collapse(&seconds).is_some(), is_seen, "{seconds:?}");
        }
    }

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times: Vec<_> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!((percentile_us(&times, 0.5).round(), percentile_us(&times, 0.99).round()), (51.0, 100.0));
        assert_eq!(percentile_us(&[], 0.5), 0.0);
        assert_eq!(
            median_us(vec![Duration::from_micros(9), Duration::from_micros(1), Duration::from_micros(5)]).round(),
            5.0
        );
    }
}
