//! `stratakv dump`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use clap::Args;
use stratakv::{Record, ScanOptions};

use crate::Output;
use crate::failure::Failure;
use crate::json_line::Line;
use crate::opening::OpenArguments;

/// Write every record as a line of JSON, in order of the keys
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv dump > backup.jsonl\n  stratakv dump --prefix user: | stratakv load --data copy -

A line: {\"key\":\"user:1\",\"value\":\"Ada\",\"flags\":1,\"expiry\":1790000000}. Bytes that are not UTF-8 stand in
\"key_base64\" and \"value_base64\"; flags and expiry (seconds since 1970) are left out when 0. Versions are not kept.
`dump` after `load` gives the same lines. Damaged records end the dump with exit code 4."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    /// Only keys that begin with this
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: OsString,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let store = arguments.open.read()?;
    for item in store.scan(ScanOptions::prefix(arguments.prefix.as_bytes())) {
        write(output, &item?).map_err(Failure::output)?;
    }
    Ok(store.close()?)
}

fn write(output: &mut Output, (key, record): &(Bytes, Record)) -> io::Result<()> {
    serde_json::to_writer(&mut *output, &Line::new(key, record))?;
    writeln!(output)
}
