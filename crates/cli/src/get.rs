//! `stratakv get`.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;

use crate::failure::{Exit, Failure};
use crate::json_line::Line;
use crate::opening::{CollectionArguments, OpenArguments};
use crate::{Output, key};

/// Print the value of a key, byte for byte
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv get user:1\n  stratakv get --json user:1\n  stratakv get --base64 AP8= > value.bin

Exit code 3 if there is no such key."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    collection: CollectionArguments,
    /// The key
    key: OsString,
    /// KEY is base64: for keys with bytes that a command line cannot hold
    #[arg(long)]
    base64: bool,
    /// Print a line of JSON with value, flags, expiry and version
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let key = key::bytes(&arguments.key, arguments.base64)?;
    let store = arguments.open.read()?;
    let Some(record) = arguments.collection.read(&store)?.get(&key)? else {
        return Err(Failure::new(Exit::NotFound, format!("there is no key `{}`", key.escape_ascii())));
    };
    let written = if arguments.json {
        let line = Line { version: Some(record.version), ..Line::new(&key, &record) };
        serde_json::to_writer(&mut *output, &line).map_err(Into::into).and_then(|()| writeln!(output))
    } else {
        record.value().slices().try_for_each(|slice| output.write_all(slice))
    };
    written.map_err(Failure::output)?;
    Ok(store.close()?)
}
