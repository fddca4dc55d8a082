//! `bench suite matrixkv`: random writes over engine `matrix`, by themselves or beside what a
//! comparison has measured.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use stratakv_base::quantity::parse_bytes;
use stratakv_bench::suite::matrixkv::{FillReport, FillsReport};
use stratakv_bench::suite::{MatrixkvOptions, run_matrixkv};

use super::{claim, parse_scale};
use crate::Output;
use crate::bench::report::write_fills;
use crate::bench::{refuse_unwritable, write_json};
use crate::failure::Failure;

const VALUE_BYTES_MAX: u64 = stratakv::limits::VALUE_BYTES_MAX as u64;

/// Arguments of `bench suite matrixkv`.
#[derive(Args)]
pub(in crate::bench) struct Matrixkv {
    /// How much of it: 1 is 80 GiB of values for each length of them, a region of 8 GiB, and 5 GiB
    /// of memory
    #[arg(long, default_value_t = 0.025, value_parser = parse_scale)]
    scale: f64,
    /// Where the stores are made, one at a time, and removed: a directory that is absent or empty,
    /// on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = "./stratakv-bench")]
    data: PathBuf,
    /// Where their regions are made, and removed: a directory that is absent or empty, in
    /// persistent memory (DAX) or on tmpfs
    #[arg(long, value_name = "DIR", default_value = "/dev/shm/stratakv-bench")]
    pmem: PathBuf,
    /// Lengths of values
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "64,256,1K,4K,16K,64K", value_parser = parse_length)]
    value_sizes: Vec<usize>,
    /// How often; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Puts in flight
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=4096))]
    clients: u64,
    /// Length of the region [default: a tenth of what is written, at least 64M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    region: Option<u64>,
    /// So much more persistent memory for the first levels of tables, which then are not written to
    /// the disk [default: none]
    #[arg(long, alias = "layer", value_name = "BYTES", value_parser = parse_bytes)]
    pmem_levels: Option<u64>,
    /// Cap on the memory of the store [default: a sixteenth of what is written, at least 64M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Seed of keys and values
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report here: one HTML file, with the four figures as plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Show in the report, beside ours, what `cargo xtask compare --matrixkv --out DIR` measured of
    /// others (DIR/matrixkv.json), or an earlier --json
    #[arg(long, value_name = "FILE", requires = "report")]
    beside: Option<PathBuf>,
}

fn parse_length(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes @ 1..=VALUE_BYTES_MAX => Ok(bytes as usize),
        bytes => Err(format!("{bytes} bytes: 1 B to 64 MiB")),
    }
}

pub(super) fn run(matrixkv: &Matrixkv, output: &mut Output) -> Result<(), Failure> {
    // What cannot be used is told before anything is measured.
    let beside = matrixkv.beside.as_deref().map(read).transpose()?;
    refuse_unwritable(matrixkv.json.as_deref().into_iter().chain(matrixkv.report.as_deref()))?;
    let options = matrixkv.options();
    let grounds = [claim(&matrixkv.pmem)?, claim(&matrixkv.data)?];
    let watch = |fill: &FillReport| {
        let FillReport { value_bytes, round, puts_per_s, settling_seconds, .. } = fill;
        tracing::info!(value_bytes, round, puts_per_s, settling_seconds, "measured");
    };
    let report = run_matrixkv(&matrixkv.data, &matrixkv.pmem, &options, &watch)?;
    grounds.into_iter().try_for_each(|ground| ground.clear())?;
    write!(output, "{report}").map_err(Failure::output)?;
    if let Some(beside) = &beside {
        write!(output, "\nbeside:\n{beside}").map_err(Failure::output)?;
    }
    if let Some(path) = &matrixkv.json {
        write_json(path, &report)?;
    }
    let Some(path) = &matrixkv.report else { return Ok(()) };
    write_fills(path, &report, beside.as_ref())
}

fn read(path: &Path) -> Result<FillsReport, Failure> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::usage(format!("--beside: cannot read {}: {error}", path.display())))?;
    FillsReport::read(&text).map_err(|error| Failure::usage(format!("--beside: {} is {error}", path.display())))
}

impl Matrixkv {
    fn options(&self) -> MatrixkvOptions {
        let fitted = MatrixkvOptions::at_scale(self.scale, self.seed);
        MatrixkvOptions {
            value_sizes: self.value_sizes.clone(),
            region_bytes: self.region.unwrap_or(fitted.region_bytes),
            pmem_levels_bytes: self.pmem_levels.unwrap_or(0),
            memory_bytes: self.memory.unwrap_or(fitted.memory_bytes),
            clients: self.clients as usize,
            rounds: self.rounds as usize,
            ..fitted
        }
    }
}
