//! The phases of KVDK's own microbenchmark: strings, sorted collections, lists.

use std::sync::Mutex;
use std::thread;

use stratakv::{Collection, Record, ScanOptions, Store};
use stratakv_base::random::Random;

use crate::phase::{Latencies, Meter, PhaseReport};
use crate::target::BenchError;
use crate::value::{Values, key};

/// Bytes of each value, as in KVDK's measurement.
pub(super) const VALUE_BYTES: usize = 128;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) records: u64,
    pub(super) list_elements: u64,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

/// All phases, one after the other, in a store that is empty.
pub(super) fn run(store: &Store, subject: &str, extent: Extent) -> Result<Vec<PhaseReport>, BenchError> {
    let bench = Microbenchmark { subject, extent, values: Values::new(VALUE_BYTES) };
    let mut phases = vec![
        bench.fill("strings fill", store)?,
        bench.mixed("strings read", store, 100)?,
        bench.mixed("strings 90/10", store, 90)?,
        bench.mixed("strings update", store, 0)?,
    ];
    let sorted = store.collection("sorted")?;
    phases.push(bench.fill("sorted fill", &sorted)?);
    phases.push(bench.mixed("sorted read", &sorted, 100)?);
    phases.push(bench.scan("sorted scan", &sorted)?);
    phases.extend(bench.list(store)?);
    Ok(phases)
}

struct Microbenchmark<'a> {
    subject: &'a str,
    extent: Extent,
    values: Values,
}

impl Microbenchmark<'_> {
    /// Writes each record once.
    fn fill(&self, phase: &str, records: &Collection) -> Result<PhaseReport, BenchError> {
        self.operate(phase, |record, random, value, latencies| {
            self.values.make(record, VALUE_BYTES, random, value);
            latencies.time(|| Ok(records.put(key(record), value)?))?;
            Ok(())
        })
    }

    /// As many operations as there are records, on records drawn evenly: of 100, so many reads; the
    /// others write a new value.
    fn mixed(&self, phase: &str, records: &Collection, reads_percent: u64) -> Result<PhaseReport, BenchError> {
        self.operate(phase, |_, random, value, latencies| {
            let record = random.below(self.extent.records);
            if random.below(100) >= reads_percent {
                self.values.make(record, VALUE_BYTES, random, value);
                latencies.time(|| Ok(records.put(key(record), value)?))?;
                return Ok(());
            }
            let found = latencies.time(|| Ok(records.get(key(record))?))?;
            expect(record, found.as_ref())
        })
    }

    /// Every record in order. The latency is that until the next one is there.
    fn scan(&self, phase: &str, records: &Collection) -> Result<PhaseReport, BenchError> {
        let (mut latencies, mut count) = (Latencies::new()?, 0);
        let meter = Meter::start();
        let mut scan = records.scan(ScanOptions::all());
        while let Some((_, record)) = latencies.time(|| Ok(scan.next().transpose()?))? {
            count += 1;
            if record.len() != VALUE_BYTES {
                return Err(BenchError::Wrong(format!("the scan's record {count} has {} bytes", record.len())));
            }
        }
        if count != self.extent.records {
            return Err(BenchError::Wrong(format!("the scan gave {count} records of {}", self.extent.records)));
        }
        Ok(meter.finish(self.subject, phase, count, &latencies))
    }

    /// Pushes at one end of a list, then pops all from the other.
    fn list(&self, store: &Store) -> Result<[PhaseReport; 2], BenchError> {
        let list = store.list("list")?;
        let (elements, mut random, mut value) = (self.extent.list_elements, Random::new(self.extent.seed), Vec::new());
        let mut latencies = Latencies::new()?;
        let meter = Meter::start();
        for element in 0..elements {
            self.values.make(element, VALUE_BYTES, &mut random, &mut value);
            latencies.time(|| Ok(list.push_back(&value)?))?;
        }
        let push = meter.finish(self.subject, "list push", elements, &latencies);
        let mut latencies = Latencies::new()?;
        let meter = Meter::start();
        for element in 0..elements {
            let found = latencies.time(|| Ok(list.pop_front()?))?;
            if !found.is_some_and(|value| Values::belongs(element, &value)) {
                return Err(BenchError::Wrong(format!("element {element} of the list is not the one that was pushed")));
            }
        }
        Ok([push, meter.finish(self.subject, "list pop", elements, &latencies)])
    }

    /// As many operations as there are records, shared out evenly among the threads.
    fn operate(
        &self,
        phase: &str,
        operation: impl Fn(u64, &mut Random, &mut Vec<u8>, &mut Latencies) -> Result<(), BenchError> + Sync,
    ) -> Result<PhaseReport, BenchError> {
        let Extent { records, threads, seed, .. } = self.extent;
        let all = Mutex::new(Latencies::new()?);
        let share = |thread: u64| -> Result<(), BenchError> {
            let bound = |thread: u64| (u128::from(records) * u128::from(thread) / threads as u128) as u64;
            let mut random = Random::new(seed ^ (thread + 1) << 32 ^ phase.len() as u64);
            let (mut value, mut latencies) = (Vec::new(), Latencies::new()?);
            for record in bound(thread)..bound(thread + 1) {
                operation(record, &mut random, &mut value, &mut latencies)?;
            }
            all.lock().map_err(|_| panicked())?.add(&latencies)
        };
        let meter = Meter::start();
        thread::scope(|scope| {
            let share = &share;
            let others: Vec<_> = (1..threads as u64).map(|thread| scope.spawn(move || share(thread))).collect();
            let mine = share(0);
            let ends = others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(panicked())));
            ends.fold(mine, Result::and)
        })?;
        let all = all.into_inner().map_err(|_| panicked())?;
        Ok(meter.finish(self.subject, phase, records, &all))
    }
}

fn panicked() -> BenchError {
    BenchError::Wrong("a thread of the benchmark ended by a panic".into())
}

fn expect(record: u64, found: Option<&Record>) -> Result<(), BenchError> {
    let wrong = match found {
        Some(found) if Values::belongs(record, &found.to_bytes()) => return Ok(()),
        Some(_) => "has the value of another",
        None => "is not there",
    };
    Err(BenchError::Wrong(format!("record {record} {wrong}")))
}
