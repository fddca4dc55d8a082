//! What was measured of MatrixKV: random writes by length of values, second by second, their
//! latency, and what they cost the disk. `docs/matrixkv.md` tells how.

pub(crate) mod fills;
mod measure;

use std::path::Path;
use std::time::Duration;

use stratakv::{CollectionId, Engine, Level, Options, Store};

pub use fills::{FillReport, FillsReport, Series};
pub use measure::Fill;

use crate::suite::subject::Stand;
use crate::target::{BenchError, Kind as TargetKind, Through};

/// At scale 1: bytes of values written for each length of them.
const BYTES: f64 = 80.0 * (1u64 << 30) as f64;
const BYTES_MIN: f64 = (1u64 << 20) as f64;
/// Less memory or region, and memtables would be small.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct MatrixkvOptions {
    /// Lengths of values, each in stores of its own.
    pub value_sizes: Vec<usize>,
    /// Bytes of values that are written for each length.
    pub bytes: u64,
    /// Length of the region without the PMEM levels.
    pub region_bytes: u64,
    /// Of the PMEM levels in it; 0 for none.
    pub pmem_levels_bytes: u64,
    /// Cap on memory.
    pub memory_bytes: u64,
    /// Puts in flight.
    pub clients: usize,
    /// Threads that put; shards too.
    pub threads: usize,
    /// How often each; medians count.
    pub rounds: usize,
    /// Seed.
    pub seed: u64,
    /// See [`Fill::quiet`].
    pub quiet: Duration,
}

impl MatrixkvOptions {
    /// At scale 1: 80 GiB of values of each length from 64 B to 64 KiB, a region of a tenth of it,
    /// and a sixteenth of it as memory; of other scales, so much of it, but at least 1 MiB, and 64
    /// MiB of region and memory.
    pub fn at_scale(scale: f64, seed: u64) -> MatrixkvOptions {
        let bytes = (BYTES * scale).max(BYTES_MIN) as u64;
        MatrixkvOptions {
            value_sizes: vec![64, 256, 1024, 4096, 16 << 10, 64 << 10],
            bytes,
            region_bytes: (bytes / 10).max(MEMORY_BYTES_MIN).next_multiple_of(1 << 20),
            pmem_levels_bytes: 0,
            memory_bytes: (bytes / 16).max(MEMORY_BYTES_MIN),
            clients: 4,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            rounds: 3,
            seed,
            // Of the little that small runs write, nothing takes longer.
            quiet: Duration::from_secs_f64((scale * 100.0).clamp(0.05, 1.0)),
        }
    }
}

/// Runs the suite over engine `matrix` in stores made below `directory`, their regions below
/// `fast`, one at a time, and removed again. `watch` is told of each when it is measured. Writes
/// are acknowledged at `process_crash`, so that any medium will do.
///
/// # Errors
/// A store's own.
pub fn run_matrixkv(
    directory: &Path,
    fast: &Path,
    options: &MatrixkvOptions,
    watch: &dyn Fn(&FillReport),
) -> Result<FillsReport, BenchError> {
    let MatrixkvOptions { bytes, region_bytes, pmem_levels_bytes, memory_bytes, clients, seed, .. } = *options;
    let mut report = FillsReport {
        bytes,
        region_bytes,
        pmem_levels_bytes,
        memory_bytes,
        clients,
        seed,
        ..FillsReport::here(directory)
    };
    for value_bytes in &options.value_sizes {
        for round in 1..=options.rounds {
            let fill = fill(directory, fast, options, *value_bytes, round)?;
            watch(&fill);
            report.fills.push(fill);
        }
    }
    Ok(report)
}

fn fill(
    directory: &Path,
    fast: &Path,
    options: &MatrixkvOptions,
    value_bytes: usize,
    round: usize,
) -> Result<FillReport, BenchError> {
    let MatrixkvOptions { clients, threads, quiet, .. } = *options;
    let stand = open(directory, fast, options)?;
    let store = stand.store()?;
    let fill = Fill {
        store: if options.pmem_levels_bytes > 0 { "matrix_layer" } else { "matrix" }.into(),
        fast_memory: store.region().map(|region| region.domain.clone()).unwrap_or_default(),
        value_bytes,
        round,
        records: (options.bytes / value_bytes.max(1) as u64).max(1),
        clients,
        threads,
        seed: options.seed + 100 * (round as u64 - 1),
        quiet,
    };
    let way = Through {
        kind: TargetKind::Embedded,
        store: Some(store),
        collection: CollectionId::default(),
        level: Level::ProcessCrash,
    };
    let mut report = fill.measure(&way, Some(&|| written_bytes(store)))?;
    report.pmem_levels_table_bytes = told(store, "pmem_levels_table_bytes");
    stand.close()?;
    Ok(report)
}

fn open(directory: &Path, fast: &Path, options: &MatrixkvOptions) -> Result<Stand, BenchError> {
    let region = fast.join("suite-region");
    let opening = Options::new()
        .create_new(true)
        .engine(Engine::Matrix)
        .region_bytes(options.region_bytes + options.pmem_levels_bytes)
        .pmem_levels_bytes(options.pmem_levels_bytes)
        .region_path(&region)
        .memory_bytes(options.memory_bytes)
        .shards(options.threads)
        .level(Level::ProcessCrash);
    Stand::make("matrix", directory, Some(region), opening)
}

fn written_bytes(store: &Store) -> u64 {
    told(store, "write_bytes")
}

/// What all shards tell under a name.
fn told(store: &Store, name: &str) -> u64 {
    store.stats().iter().filter(|one| one.name == name).map(|one| one.value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_one_is_what_it_says() {
        let options = MatrixkvOptions::at_scale(1.0, 1);
        assert_eq!((options.bytes, options.region_bytes, options.memory_bytes), (80 << 30, 8 << 30, 5 << 30));
        let fortieth = MatrixkvOptions::at_scale(0.025, 1);
        assert_eq!((fortieth.bytes, fortieth.memory_bytes), (2 << 30, 128 << 20));
        let least = MatrixkvOptions::at_scale(1e-9, 1);
        assert_eq!((least.bytes, least.region_bytes, least.memory_bytes), (1 << 20, 64 << 20, 64 << 20));
    }

    #[test]
    fn every_length_is_measured_in_every_round_and_nothing_is_left() {
        let place = tempfile::tempdir().expect("a directory");
        let (data, fast) = (place.path().join("data"), place.path().join("fast"));
        [&data, &fast].into_iter().for_each(|path| std::fs::create_dir(path).expect("a directory"));
        let options = MatrixkvOptions { rounds: 2, ..MatrixkvOptions::at_scale(1e-9, 1) };
        let told = std::cell::Cell::new(0);
        let report = run_matrixkv(&data, &fast, &options, &|_| told.set(told.get() + 1)).expect("a run");
        let each: Vec<_> = report.fills.iter().map(|one| (one.value_bytes, one.round, one.puts)).collect();
        assert_eq!((each.len(), told.get()), (12, 12));
        assert_eq!((each[0], each[1], each[11]), ((64, 1, 16_384), (64, 2, 16_384), (65_536, 2, 16)));
        for one in &report.fills {
            let FillReport { latency_us_p50, latency_us_p99, latency_us_max, .. } = *one;
            assert!(one.puts_per_s > 0.0 && one.cpu_us_per_put > 0.0 && one.is_settled, "{one:?}");
            assert!(0.0 < latency_us_p50 && latency_us_p50 <= latency_us_p99 && latency_us_p99 <= latency_us_max);
            assert_eq!(one.user_bytes, one.puts * (one.value_bytes as u64 + 24));
        }
        let page = crate::page::of_fills(&report, None).expect("a page");
        assert!(page.sections.iter().any(|section| section.id == "amplification"));
        for path in [data, fast] {
            assert_eq!(std::fs::read_dir(path).expect("read").count(), 0);
        }
    }

    #[test]
    fn a_region_that_an_earlier_run_left_is_neither_used_nor_removed() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("suite-region"), "of another run").expect("a file");
        let error = run_matrixkv(place.path(), place.path(), &MatrixkvOptions::at_scale(1e-9, 1), &|_| {});
        let told = error.expect_err("it is in the way").to_string();
        assert!(told.contains("suite-region") && told.contains("earlier run"), "{told}");
        assert_eq!(std::fs::read(place.path().join("suite-region")).expect("still there"), b"of another run");
    }

    /// Four times the container: the store tells what it has written, and at rest it writes no
    /// more.
    #[test]
    fn a_container_that_overflows_costs_the_disk() {
        let place = tempfile::tempdir().expect("a directory");
        let (region_bytes, threads) = (8 << 20, 1);
        let options = MatrixkvOptions { region_bytes, threads, ..MatrixkvOptions::at_scale(1e-9, 1) };
        let stand = open(place.path(), place.path(), &options).expect("a store");
        let store = stand.store().expect("it is open");
        let fill = Fill {
            store: "matrix".into(),
            fast_memory: String::new(),
            value_bytes: 256,
            round: 1,
            records: 1 << 17,
            clients: 4,
            threads,
            seed: 1,
            quiet: Duration::from_millis(200),
        };
        let way = Through {
            kind: TargetKind::Embedded,
            store: Some(store),
            collection: CollectionId::default(),
            level: Level::ProcessCrash,
        };
        let report = fill.measure(&way, Some(&|| written_bytes(store))).expect("a run");
        let told = written_bytes(store);
        assert!(report.is_settled && told > report.user_bytes / 2, "{told} told, {report:?}");
        assert!(report.written_bytes >= told && report.written_bytes >= report.written_bytes_unsettled, "{report:?}");
        assert_eq!(report.write_amplification, report.written_bytes as f64 / report.user_bytes as f64);
    }
}
