//! `stratakv scan`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Bound;

use clap::Args;
use stratakv::{Record, ScanOptions};

use crate::failure::Failure;
use crate::json_line::Line;
use crate::opening::{CollectionArguments, OpenArguments};
use crate::{Output, key, text};

/// List keys and values in order of their bytes
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv scan --prefix user: --limit 10\n  stratakv scan --from a --to b --reverse --keys-only
  stratakv scan --json --prefix user: | jq -r .value

Without --json: key, tab, value; a line for each record, with control characters, backslashes and bytes that are not
UTF-8 escaped as in Rust. No snapshot: each record as it is when it is reached."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    collection: CollectionArguments,
    /// Keys that begin with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// From this key on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Up to this key, without it
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// --prefix, --from and --to are base64
    #[arg(long)]
    base64: bool,
    /// In descending order
    #[arg(long)]
    reverse: bool,
    /// At most this many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Keys only: reads no record
    #[arg(long)]
    keys_only: bool,
    /// Lines of JSON, as `dump` writes them, with the version
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn scan(&self) -> Result<ScanOptions, Failure> {
        let bytes = |argument: &Option<OsString>| {
            argument.as_ref().map(|argument| key::bytes(argument, self.base64)).transpose()
        };
        let (prefix, from, to) = (bytes(&self.prefix)?, bytes(&self.from)?, bytes(&self.to)?);
        let mut scan = match &prefix {
            Some(prefix) => ScanOptions::prefix(prefix),
            None => ScanOptions::range(
                from.as_deref().map_or(Bound::Unbounded, Bound::Included),
                to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            ),
        };
        if self.reverse {
            scan = scan.reverse();
        }
        if self.keys_only {
            scan = scan.keys_only();
        }
        Ok(scan)
    }

    fn write(&self, output: &mut Output, key: &[u8], record: &Record) -> io::Result<()> {
        if self.json {
            let line = match self.keys_only {
                true => Line::key_only(key),
                false => Line { version: Some(record.version), ..Line::new(key, record) },
            };
            serde_json::to_writer(&mut *output, &line)?;
        } else {
            text::write_escaped(output, key)?;
            if !self.keys_only {
                output.write_all(b"\t")?;
                text::write_escaped(output, &record.to_bytes())?;
            }
        }
        writeln!(output)
    }
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let scan = arguments.scan()?;
    let store = arguments.open.read()?;
    for item in arguments.collection.read(&store)?.scan(scan).take(arguments.limit.unwrap_or(usize::MAX)) {
        let (key, record) = item?;
        arguments.write(output, &key, &record).map_err(Failure::output)?;
    }
    Ok(store.close()?)
}
