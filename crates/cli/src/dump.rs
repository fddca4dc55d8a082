//! `stratakv dump`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use stratakv::{ErrorKind, Record, ScanOptions, Store};

use crate::Output;
use crate::failure::{Exit, Failure};
use crate::json_line::Line;
use crate::opening::OpenArguments;

/// Write every record as a line of JSON, in order of the keys
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv dump > backup.jsonl\n  stratakv dump --prefix user: | stratakv load --data copy -

A line: {\"key\":\"user:1\",\"value\":\"Ada\",\"flags\":1,\"expiry\":1790000000}. Bytes that are not UTF-8 stand in
\"key_base64\" and \"value_base64\"; flags and expiry (seconds since 1970) are left out when 0. Versions are not kept.
`dump` after `load` gives the same lines. A damaged record ends the dump with exit code 4; with --skip-damaged it is told,
the dump goes on, and the exit code is 4 in the end."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    /// Only keys that begin with this
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: OsString,
    /// Pass over damaged records: what is left of a damaged store
    #[arg(long)]
    skip_damaged: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let store = arguments.open.read()?;
    let scan = ScanOptions::prefix(arguments.prefix.as_bytes());
    if arguments.skip_damaged {
        dump_undamaged(&store, scan, output)?;
    } else {
        for item in store.scan(scan) {
            let (key, record) = item?;
            write(output, &key, &record).map_err(Failure::output)?;
        }
    }
    Ok(store.close()?)
}

/// Keys from the index, then each record by itself, so that one that is damaged does not hide the others.
fn dump_undamaged(store: &Store, scan: ScanOptions, output: &mut Output) -> Result<(), Failure> {
    let mut damaged = 0u64;
    for item in store.scan(scan.keys_only()) {
        let (key, _) = item?;
        match store.get(&key) {
            Ok(Some(record)) => write(output, &key, &record).map_err(Failure::output)?,
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                eprintln!("stratakv: {error}; passed over");
                damaged += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
    match damaged {
        0 => Ok(()),
        damaged => Err(Failure::new(Exit::Corrupt, format!("{damaged} damaged records are missing from this dump"))),
    }
}

fn write(output: &mut Output, key: &[u8], record: &Record) -> io::Result<()> {
    serde_json::to_writer(&mut *output, &Line::new(key, record))?;
    writeln!(output)
}
