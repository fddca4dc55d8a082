//! `stratakv backup`.

use std::io::Write;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use stratakv::{BackupRate, BackupSummary, Store};
use stratakv_base::quantity::{format_bytes, format_count, parse_bytes};

use crate::failure::Failure;
use crate::opening::OpenArguments;
use crate::remote::{self, ServerArguments};
use crate::say::say;
use crate::{Output, progress};

/// Copy a store into a directory of backup files
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv backup /mnt/backup/monday\n  stratakv restore /mnt/backup/monday --data copy
  stratakv serve --backup-dir /mnt/backup         # and while it serves:
  stratakv backup --server 127.0.0.1:11211 tuesday

The directory must be empty or not exist. backup.toml is written last: without it the backup is \
not complete. Opens the store for reading, so no server may have it; with --server the server \
makes the backup while it serves, in its --backup-dir, under a name that is new there. The \
command waits until it is complete; ended before, it leaves the server to it. One at a time: \
exit code 5 while there is another."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    server: ServerArguments,
    /// Where to; with --server, a name
    #[arg(value_name = "DIR|NAME")]
    target: PathBuf,
    /// Write at most so many bytes a second [default: as fast as it goes]. With --server it is the
    /// server's --backup-rate that counts
    #[arg(long, value_name = "BYTES", value_parser = parse_rate, conflicts_with = "server")]
    rate: Option<NonZeroU64>,
    /// Print what it holds as JSON
    #[arg(long)]
    json: bool,
}

/// Bytes a second.
pub(crate) fn parse_rate(text: &str) -> Result<NonZeroU64, String> {
    let bytes = parse_bytes(text)?;
    NonZeroU64::new(bytes).ok_or_else(|| "with 0 bytes a second it never ends: leave it out for no limit".into())
}

fn write(store: &Store, arguments: &Arguments) -> Result<BackupSummary, Failure> {
    let (show, written) = (progress::bar_of_records("backing up"), AtomicU64::new(0));
    let total = progress::records_of(store);
    let rate = arguments.rate.map(BackupRate::new);
    let watch = |piece: &BackupSummary| {
        let done = written.fetch_add(piece.records, Ordering::Relaxed) + piece.records;
        show(done, total);
        rate.as_ref().is_none_or(|rate| rate.keep(piece, || true))
    };
    Ok(store.backup_watched(&arguments.target, &watch)?)
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let mut incomplete = None;
    let summary = match arguments.server.connect()? {
        Some(server) => remote::backup(server, &arguments.target.to_string_lossy())?,
        None => {
            let store = arguments.open.read()?;
            let summary = write(&store, arguments)?;
            store.close()?;
            incomplete = Failure::incomplete(&store, "all that can be read is in the backup");
            summary
        }
    };
    let (records, bytes) = (summary.records, summary.bytes);
    if arguments.json {
        writeln!(output, "{{\"records\":{records},\"bytes\":{bytes}}}").map_err(Failure::output)?;
    }
    let (records, bytes) = (format_count(records, "record"), format_bytes(bytes));
    say!("{records} ({bytes}) written to {}", arguments.target.display());
    incomplete.map_or(Ok(()), Err)
}
