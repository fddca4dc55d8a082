//! `stratakv backup`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use stratakv_base::quantity::format_bytes;

use crate::Output;
use crate::failure::Failure;
use crate::opening::OpenArguments;

/// Copy a store into a directory of backup files
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv backup /mnt/backup/monday\n  stratakv restore /mnt/backup/monday --data copy

The directory must be empty or not exist. backup.toml is written last: without it the backup is not complete. Opens the store for
reading, so no server may have it; a program that embeds the store makes backups while it serves (`Store::backup`)."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    /// Where to
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Print what it holds as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let store = arguments.open.read()?;
    let summary = store.backup(&arguments.to)?;
    store.close()?;
    let (records, bytes) = (summary.records, summary.bytes);
    if arguments.json {
        writeln!(output, "{{\"records\":{records},\"bytes\":{bytes}}}").map_err(Failure::output)?;
    }
    eprintln!("stratakv: {records} records ({}) written to {}", format_bytes(bytes), arguments.to.display());
    Ok(())
}
