//! `stratakv get`.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use clap::Args;

use crate::failure::Failure;
use crate::json_line::Line;
use crate::opening::{CollectionArguments, OpenArguments};
use crate::remote::{Client, ServerArguments};
use crate::{Output, key, text};

/// Print the value of a key, byte for byte
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv get user:1\n  stratakv get --json user:1\n  stratakv get --base64 AP8= > value.bin
  stratakv get --server 127.0.0.1:11211 user:1

On a terminal a line end follows the value. Exit code 3 if there is no such key. A server does not tell when a record expires: --json has no \
expiry then."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    server: ServerArguments,
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
    if let Some(server) = arguments.server.connect()? {
        return ask(server, &key, arguments.json, output);
    }
    let store = arguments.open.read()?;
    let record = arguments.collection.read(&store)?.get(&key)?;
    let absent = || {
        let what = format!("there is no key `{}` that can be read", key.escape_ascii());
        Failure::incomplete(&store, &what).unwrap_or_else(|| Failure::no_key(&key))
    };
    let record = record.ok_or_else(absent)?;
    let written = if arguments.json {
        write_line(&Line { version: Some(record.version), ..Line::new(&key, &record) }, output)
    } else if io::stdout().is_terminal() {
        write_for_people(record.flags, &record.to_bytes(), output)
    } else {
        record.value().slices().try_for_each(|slice| output.write_all(slice))
    };
    written.map_err(Failure::output)?;
    Ok(store.close()?)
}

fn ask(mut server: Client, key: &[u8], json: bool, output: &mut Output) -> Result<(), Failure> {
    let record = server.get(key)?.ok_or_else(|| Failure::no_key(key))?;
    let written = if json {
        let line = Line::with_value(key, &record.value);
        write_line(&Line { flags: record.flags, version: Some(record.version), ..line }, output)
    } else if io::stdout().is_terminal() {
        write_for_people(record.flags, &record.value, output)
    } else {
        output.write_all(&record.value)
    };
    written.map_err(Failure::output)
}

/// On a terminal the prompt begins a line, and a structure of Redis clients is named.
fn write_for_people(flags: u32, value: &[u8], output: &mut Output) -> io::Result<()> {
    match text::structure(flags, value) {
        Some(what) => output.write_all(what.as_bytes())?,
        None => output.write_all(value)?,
    }
    if value.ends_with(b"\n") { Ok(()) } else { output.write_all(b"\n") }
}

fn write_line(line: &Line, output: &mut Output) -> io::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    writeln!(output)
}
