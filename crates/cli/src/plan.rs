//! `stratakv plan`: what so many records will need, before there are any.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use stratakv::Engine;
use stratakv_base::quantity::{format_bytes, parse_bytes, parse_count};
use stratakv_matrix::SET_ASIDE_BYTES;
use stratakv_matrix::table::values::BLOB_BYTES_MIN;
use stratakv_server::client_memory_bytes;

use crate::Output;
use crate::failure::Failure;
use crate::opening::{EngineArgument, PlacementArgument};

/// Forecast memory, disk and reopening time for so many records
#[derive(Args)]
#[command(after_help = "Examples:
  stratakv plan --records 100M --key-bytes 24 --value-bytes 1024
  stratakv plan --records 4M --key-bytes 16 --value-bytes 400 --placement packed --json
  stratakv plan --records 100M --key-bytes 24 --value-bytes 100 --engine hash
  stratakv plan --records 100M --key-bytes 24 --value-bytes 1024 --engine matrix --region 8G

The index keeps of each key what tells it from its neighbour: `user:00000042` shares 12 bytes \
with the next. `doctor` measures what --read-bandwidth wants: its line for reads of 64 KiB in \
order.")]
pub(crate) struct Arguments {
    /// How many records, such as 4000000 or 100M
    #[arg(long = "records", visible_alias = "keys", value_name = "N", value_parser = parse_count)]
    keys: u64,
    /// Length of a key in bytes
    #[arg(long, visible_alias = "key-size", value_name = "BYTES", default_value = "24", value_parser = parse_bytes)]
    key_bytes: u64,
    /// Bytes at its front that a key shares with its neighbours in order, on average [default: as
    /// random bytes do]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    shared_bytes: Option<u64>,
    /// Length of a value in bytes, on average
    #[arg(long, visible_alias = "value-size", value_name = "BYTES", default_value = "1K", value_parser = parse_bytes)]
    value_bytes: u64,
    /// How the store keeps its records
    #[arg(long, value_enum, default_value = "slab")]
    engine: EngineArgument,
    /// Where small records go, with the engine `slab`
    #[arg(long, value_enum, default_value_t)]
    placement: PlacementArgument,
    /// Shards; with the engine `hash` the cores that read the region at opening
    #[arg(long, default_value_t = 2)]
    shards: u64,
    /// Length of the region, with the engine `matrix` [default: a tenth of the data]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    region: Option<u64>,
    /// Bytes a second the disk reads in large pieces
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    read_bandwidth: u64,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

const PAGE_BYTES: u64 = 4096;
/// Header, trailer: what a page of slots or a run has beside records (docs/format-slab.md).
const PAGE_OVERHEAD_BYTES: u64 = 64;
/// Before each record of a page of slots.
const SLOT_OVERHEAD_BYTES: u64 = 20;
/// Slots of a page, by size class (docs/format-slab.md).
const SLOTS: [u64; 19] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64];
/// Before each record of a log (docs/format-packed.md).
const LOGGED_OVERHEAD_BYTES: u64 = 24;
/// Longest record of a log.
const LOGGED_BYTES_MAX: u64 = 16 << 10;
/// A volume grows so that a log has this much of it alive at most.
const LOG_FILL: f64 = 0.75;
/// The default collection, before each key.
const COLLECTION_BYTES: u64 = 1;
/// Beside the rest of the key: length, version, place, and what half-full nodes waste.
const INDEX_OVERHEAD_BYTES: f64 = 11.0;
/// Books of a page of slots or a run, in memory.
const PAGE_ACCOUNTING_BYTES: f64 = 16.0;
/// Smallest useful cache and I/O buffers of a shard.
const SHARD_BYTES_MIN: u64 = 4 << 20;
/// Records a core verifies and indexes in a second while a store is opened.
const RECOVERED_PER_S: f64 = 700_000.0;
/// With placement `packed`, of the log: what is newer than its checkpoint, in a store that is
/// little written before it ends. While it is overwritten all the time, up to 16 times the
/// checkpoint is.
const LOG_SINCE_CHECKPOINT: f64 = 0.1;
/// What a checkpoint's entry costs, of a record found by a scan: assumed, there is nothing to
/// verify and no sorting.
const CHECKPOINT_ENTRY: f64 = 0.1;

/// Before the key of each record in a region; records take whole blocks (docs/format-hash.md).
const RECORD_HEADER_BYTES: u64 = 32;
const BLOCK_BYTES: u64 = 64;
/// Free extents too short for what comes: of a region more than this is not filled with records of
/// many lengths.
const REGION_FILL: f64 = 0.85;
/// A region is not made shorter, and has whole pages.
const REGION_BYTES_MIN: u64 = 1 << 20;
/// Of the hash table, for each key (docs/measurements/2026-11-hash.md: 17.3).
const TABLE_BYTES: f64 = 17.5;
/// Records of a region that a core verifies and enters into the table in a second
/// (docs/measurements/2026-11-hash.md).
const ENTERED_PER_S: f64 = 770_000.0;

/// With the engine `matrix`, of an entry of a table, beside the rest of its key and a short value:
/// lengths, version, kind, checksum; a pointer more if its value lies apart.
const ENTRY_BYTES: f64 = 14.0;
const POINTER_BYTES: f64 = 14.0;
/// A table's filter has 10 bits for each key, its index some of the keys' bytes for each page.
const FILTER_BYTES: f64 = 1.25;
/// Of a page's contents, what entries take on average.
const TABLE_FILL: f64 = 0.96;
/// Each level is so many times as long as the one above it; the first one below the region as long
/// as that.
const LEVELS_RATIO: f64 = 10.0;
/// Versions that newer ones hide, and have not met: as much as all levels but the last one hold.
const HIDDEN: f64 = 1.11;
/// Of value files this much may be dead before they are collected.
const VALUES_FILL: f64 = 0.7;
/// A byte of a level is merged with so many of the next one, until it is there: half of the ratio,
/// as the next level is half full on average.
const MERGED_WITH: f64 = 5.0;
/// A part of the region for each shard, at least.
const PART_BYTES_MIN: u64 = 8 << 20;
/// Bytes of a region that opening reads in a second for each shard: logs record by record (assumed;
/// metadata of rows is less).
const REPLAYED_PER_S: f64 = 200e6;
/// A record in the region, beside key and value: its header.
const LOG_RECORD_BYTES: u64 = 36;
/// In DRAM for a record of a memtable: its place, and a key of the index.
const MEMTABLE_ENTRY_BYTES: f64 = 24.0;
/// At most so much of the region is in memtables: three of them, each as long as a row.
const MEMTABLES: f64 = 3.0 / 32.0;
const ROW_BYTES_MAX: u64 = 64 << 20;
/// What is known of a table, in memory.
const TABLE_ACCOUNTING_BYTES: f64 = 400.0;
/// Longest table, and its share of a part of the region.
const TABLE_BYTES_MAX: u64 = 4 << 20;

/// A forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Forecast {
    data_bytes: u64,
    index_bytes: u64,
    memory_bytes_min: u64,
    memory_bytes_advised: u64,
    disk_bytes: u64,
    /// Of an engine that has both: the region beside the disk.
    region_bytes: Option<u64>,
    /// Bytes written to the disk for each byte of keys and values, where that is known.
    write_amplification: Option<f64>,
    reopen_s: f64,
}

impl Forecast {
    /// With what a server keeps of its memory for clients.
    fn beside_clients(mut self) -> Forecast {
        for bytes in [&mut self.memory_bytes_min, &mut self.memory_bytes_advised] {
            let whole = bytes.saturating_mul(8).div_ceil(7);
            *bytes = if client_memory_bytes(whole) > 0 { whole } else { *bytes };
        }
        self
    }
}

/// An LSM tree whose first level is the region.
fn forecast_of_matrix(arguments: &Arguments) -> Forecast {
    let keys = arguments.keys.max(1);
    let (key_bytes, value_bytes) = (arguments.key_bytes + COLLECTION_BYTES, arguments.value_bytes);
    let data_bytes = keys.saturating_mul(arguments.key_bytes + value_bytes);
    let part_bytes_min = PART_BYTES_MIN * arguments.shards;
    let region_bytes = arguments.region.unwrap_or(data_bytes / 10).max(part_bytes_min).next_multiple_of(PAGE_BYTES);
    let shared = arguments.shared_bytes.map_or((keys as f64).log2() / 8.0, |bytes| bytes as f64);
    let is_apart = value_bytes >= BLOB_BYTES_MIN as u64;
    let (inline, pointer) = if is_apart { (0.0, POINTER_BYTES) } else { (value_bytes as f64, 0.0) };
    let entry = (key_bytes as f64 - shared).max(1.0) + ENTRY_BYTES + inline + pointer + FILTER_BYTES;
    let tables = keys as f64 * entry / TABLE_FILL;
    let values = if is_apart { keys as f64 * value_bytes as f64 / VALUES_FILL } else { 0.0 };
    // Into the first level each column meets about as much as it brings, at every further one
    // several times as much.
    let levels = (tables / region_bytes as f64).max(1.0).log(LEVELS_RATIO);
    let rewritten = entry * (2.0 + levels * (1.0 + MERGED_WITH));
    let written = rewritten + if is_apart { value_bytes as f64 / VALUES_FILL } else { 0.0 };
    let part_bytes = region_bytes / arguments.shards.max(1);
    let table_bytes = (part_bytes / 64).clamp(64 << 10, TABLE_BYTES_MAX) as f64;
    let memtable_bytes = (region_bytes as f64 * MEMTABLES).min((3 * ROW_BYTES_MAX * arguments.shards) as f64);
    let in_memtables = memtable_bytes / (LOG_RECORD_BYTES + key_bytes + value_bytes) as f64;
    let accounting_bytes =
        in_memtables * (MEMTABLE_ENTRY_BYTES + key_bytes as f64) + tables / table_bytes * TABLE_ACCOUNTING_BYTES;
    let index_bytes = accounting_bytes as u64;
    let memory_bytes_min = index_bytes + SHARD_BYTES_MIN * arguments.shards;
    Forecast {
        data_bytes,
        index_bytes,
        memory_bytes_min,
        // Filters and indexes in the cache, and a tenth of the data.
        memory_bytes_advised: memory_bytes_min + (keys as f64 * (FILTER_BYTES + entry / 64.0)) as u64 + data_bytes / 10,
        disk_bytes: ((tables * HIDDEN + values) as u64 + region_bytes * 5 / 4 + SET_ASIDE_BYTES)
            .next_multiple_of(PAGE_BYTES),
        region_bytes: Some(region_bytes),
        write_amplification: Some(written / (arguments.key_bytes + value_bytes).max(1) as f64),
        reopen_s: memtable_bytes / REPLAYED_PER_S / arguments.shards.clamp(1, 8) as f64,
    }
}

fn forecast_of_region(arguments: &Arguments) -> Forecast {
    let keys = arguments.keys.max(1);
    let record_bytes = RECORD_HEADER_BYTES + COLLECTION_BYTES + arguments.key_bytes + arguments.value_bytes;
    let used_bytes = keys.saturating_mul(record_bytes.next_multiple_of(BLOCK_BYTES));
    let index_bytes = (keys as f64 * TABLE_BYTES) as u64 + SHARD_BYTES_MIN;
    let cores = arguments.shards.clamp(1, 64) as f64;
    let read_s = used_bytes as f64 / arguments.read_bandwidth.max(1) as f64;
    Forecast {
        data_bytes: keys.saturating_mul(arguments.key_bytes + arguments.value_bytes),
        index_bytes,
        memory_bytes_min: index_bytes,
        // Nothing is cached: what is more is for keys to come.
        memory_bytes_advised: index_bytes + index_bytes / 4,
        disk_bytes: ((used_bytes as f64 / REGION_FILL) as u64).max(REGION_BYTES_MIN).next_multiple_of(PAGE_BYTES),
        region_bytes: None,
        write_amplification: None,
        reopen_s: read_s.max(keys as f64 / ENTERED_PER_S / cores),
    }
}

fn forecast(arguments: &Arguments) -> Forecast {
    match arguments.engine {
        EngineArgument::Hash => return forecast_of_region(arguments),
        EngineArgument::Matrix => return forecast_of_matrix(arguments),
        _ => {}
    }
    let keys = arguments.keys.max(1);
    let key_bytes = arguments.key_bytes + COLLECTION_BYTES;
    let data_bytes = keys.saturating_mul(arguments.key_bytes + arguments.value_bytes);
    // Of a random key, neighbours in order share as many bytes as it takes to tell so many keys
    // apart.
    let shared = arguments.shared_bytes.map_or((keys as f64).log2() / 8.0, |bytes| bytes as f64);
    let record_disk_bytes = match arguments.placement {
        PlacementArgument::InPlace => in_place_bytes(key_bytes, arguments.value_bytes),
        PlacementArgument::Packed => packed_bytes(key_bytes, arguments.value_bytes),
    };
    let accounted_pages = match arguments.placement {
        PlacementArgument::InPlace => (record_disk_bytes / PAGE_BYTES as f64).min(1.0),
        PlacementArgument::Packed => 0.0,
    };
    let in_index = (arguments.key_bytes as f64 - shared).max(1.0) + INDEX_OVERHEAD_BYTES;
    let index_bytes = (keys as f64 * (in_index + PAGE_ACCOUNTING_BYTES * accounted_pages)) as u64;
    let disk_bytes = (keys as f64 * record_disk_bytes) as u64;
    let memory_bytes_min = index_bytes + SHARD_BYTES_MIN * arguments.shards;
    // Entries of a checkpoint are read, but of the records only the newest.
    let (read_bytes, records) = match arguments.placement {
        PlacementArgument::InPlace => (disk_bytes as f64, keys as f64),
        PlacementArgument::Packed => {
            let newest = LOG_SINCE_CHECKPOINT;
            (disk_bytes as f64 * newest + index_bytes as f64, keys as f64 * (newest + CHECKPOINT_ENTRY))
        }
    };
    let scan_s = read_bytes / arguments.read_bandwidth.max(1) as f64;
    Forecast {
        data_bytes,
        index_bytes,
        memory_bytes_min,
        memory_bytes_advised: memory_bytes_min + data_bytes / 10,
        disk_bytes,
        region_bytes: None,
        write_amplification: None,
        // What is read is verified and put into the index, by a thread for each shard.
        reopen_s: scan_s.max(records / RECOVERED_PER_S / arguments.shards.clamp(1, 8) as f64),
    }
}

/// Disk for a record in pages of slots, or in a run of pages of its own.
fn in_place_bytes(key_bytes: u64, value_bytes: u64) -> f64 {
    let record = SLOT_OVERHEAD_BYTES + key_bytes + value_bytes;
    let payload = PAGE_BYTES - PAGE_OVERHEAD_BYTES;
    let slots = SLOTS.iter().rev().find(|slots| payload / **slots / 8 * 8 >= record);
    slots.map_or_else(|| run_bytes(key_bytes, value_bytes), |slots| PAGE_BYTES as f64 / *slots as f64)
}

/// Disk for a record in a log at its fill, or in a run.
fn packed_bytes(key_bytes: u64, value_bytes: u64) -> f64 {
    let record = (LOGGED_OVERHEAD_BYTES + key_bytes + value_bytes).next_multiple_of(8);
    if record > LOGGED_BYTES_MAX {
        return run_bytes(key_bytes, value_bytes);
    }
    record as f64 / LOG_FILL
}

fn run_bytes(key_bytes: u64, value_bytes: u64) -> f64 {
    (PAGE_OVERHEAD_BYTES + key_bytes + value_bytes).next_multiple_of(PAGE_BYTES) as f64
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if arguments.engine == EngineArgument::Tier {
        return Err(Failure::usage(
            "plan knows the needs of the engines `slab`, `hash` and `matrix`; `tier` takes what it is given",
        ));
    }
    if arguments.region.is_some() && arguments.engine != EngineArgument::Matrix {
        return Err(Failure::usage("--region: only with the engine `matrix`; that of `hash` is what plan tells"));
    }
    if !(1..=1 << 44).contains(&arguments.keys) {
        return Err(Failure::usage("--records: 1 to 2^44"));
    }
    if !(1..=65_535).contains(&arguments.key_bytes) || arguments.value_bytes > 64 << 20 {
        return Err(Failure::usage("keys have 1 to 65535 bytes, values at most 64 MiB"));
    }
    if !(1..=1024).contains(&arguments.shards) {
        return Err(Failure::usage("--shards: 1 to 1024"));
    }
    let forecast = forecast(arguments).beside_clients();
    let write = if arguments.json { write_json } else { write_text };
    let written = write(&forecast, arguments.engine, output);
    written.map_err(Failure::output)
}

fn write_json(forecast: &Forecast, engine: EngineArgument, output: &mut Output) -> io::Result<()> {
    let region_bytes = forecast.region_bytes.or((engine == EngineArgument::Hash).then_some(forecast.disk_bytes));
    let object = json!({
        "engine": Engine::from(engine).name(), "region_bytes": region_bytes,
        "data_bytes": forecast.data_bytes, "index_bytes": forecast.index_bytes,
        "memory_bytes_min": forecast.memory_bytes_min, "memory_bytes_advised": forecast.memory_bytes_advised,
        "disk_bytes": forecast.disk_bytes, "write_amplification": forecast.write_amplification,
        "reopen_s": forecast.reopen_s,
    });
    writeln!(output, "{object}")
}

fn write_text(forecast: &Forecast, engine: EngineArgument, output: &mut Output) -> io::Result<()> {
    let (more, place) = match engine {
        EngineArgument::Slab | EngineArgument::Matrix => ("a tenth of the data in the cache", "disk"),
        _ => ("a quarter more keys", "--region, at least"),
    };
    let amplification = forecast.disk_bytes as f64 / forecast.data_bytes.max(1) as f64;
    writeln!(output, "{:<28} {}", "keys and values", format_bytes(forecast.data_bytes))?;
    writeln!(output, "{:<28} {}", "index, in memory", format_bytes(forecast.index_bytes))?;
    writeln!(output, "{:<28} {}", "--memory, at least", format_bytes(forecast.memory_bytes_min))?;
    let advised = format_bytes(forecast.memory_bytes_advised);
    writeln!(output, "{:<28} {advised} ({more})", "--memory, advised")?;
    let disk = format_bytes(forecast.disk_bytes);
    if let Some(bytes) = forecast.region_bytes {
        writeln!(output, "{:<28} {}", "--region", format_bytes(bytes))?;
    }
    writeln!(output, "{:<28} {disk} ({amplification:.2} times the data)", place)?;
    if let Some(times) = forecast.write_amplification {
        writeln!(output, "{:<28} {times:.1} times keys and values, overwritten at random", "written to the disk")?;
    }
    writeln!(output, "{:<28} {:.1} s", "reopening", forecast.reopen_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_holds_whole_blocks_and_the_table_is_small() {
        let of = |value_bytes| {
            let engine = EngineArgument::Hash;
            let (keys, key_bytes, shards, read_bandwidth) = (1_000_000, 8, 2, 1 << 40);
            let placement = PlacementArgument::InPlace;
            forecast(&Arguments {
                keys,
                key_bytes,
                shared_bytes: None,
                value_bytes,
                engine,
                placement,
                shards,
                read_bandwidth,
                region: None,
                json: false,
            })
        };
        let region_of = |used_bytes: f64| ((used_bytes / 0.85) as u64).next_multiple_of(4096);
        // 128 bytes of value: three blocks, as measured.
        assert_eq!(of(128).disk_bytes, region_of(192e6));
        assert_eq!((of(23).disk_bytes, of(24).disk_bytes), (region_of(64e6), region_of(128e6)));
        let Forecast { index_bytes, reopen_s, .. } = of(128);
        assert!(
            (17 << 20..23 << 20).contains(&index_bytes) && (0.6..0.7).contains(&reopen_s),
            "{index_bytes} {reopen_s}"
        );
    }

    #[test]
    fn values_that_lie_apart_are_not_written_again_by_the_levels() {
        let of = |keys, value_bytes, region| {
            let (engine, placement) = (EngineArgument::Matrix, PlacementArgument::InPlace);
            let (key_bytes, shards, read_bandwidth) = (24, 1, 1 << 30);
            let shared_bytes = None;
            forecast(&Arguments {
                keys,
                key_bytes,
                shared_bytes,
                value_bytes,
                engine,
                placement,
                shards,
                region,
                read_bandwidth,
                json: false,
            })
        };
        let written = |forecast: Forecast| forecast.write_amplification.unwrap();
        let (short, long) = (of(10_000_000, 500, Some(64 << 20)), of(10_000_000, 512, Some(64 << 20)));
        assert!(written(short) > 5.0 * written(long), "{short:?} {long:?}");
        // A longer region has fewer levels below it.
        assert!(written(of(100_000_000, 200, Some(4 << 30))) < written(of(100_000_000, 200, Some(64 << 20))));
        assert_eq!(of(1_000_000, 976, None).region_bytes, Some(100_003_840));
        assert_eq!(of(1, 1, None).region_bytes, Some(8 << 20));
        assert!(long.disk_bytes > long.data_bytes && long.disk_bytes < 2 * long.data_bytes, "{long:?}");
    }

    #[test]
    fn slots_and_runs_are_as_the_format_has_them() {
        assert_eq!(in_place_bytes(25, 1024), 4096.0 / 3.0);
        assert_eq!(in_place_bytes(25, 400), 4096.0 / 8.0);
        assert_eq!(in_place_bytes(25, 5000), 8192.0);
        assert_eq!(packed_bytes(25, 1024), 1080.0 / 0.75);
        assert_eq!(packed_bytes(25, 100_000), 102_400.0);
    }
}
