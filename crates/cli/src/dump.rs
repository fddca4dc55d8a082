//! `stratakv dump`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use stratakv::{Collection, ErrorKind, Record, ScanOptions};

use crate::Output;
use crate::failure::{Exit, Failure};
use crate::json_line::Line;
use crate::opening::{CollectionArguments, OpenArguments};

/// Write every record as a line of JSON, in order of the collections and keys
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv dump > backup.jsonl\n  stratakv dump --prefix user: | stratakv load --data copy -

A line: {\"key\":\"user:1\",\"value\":\"Ada\",\"flags\":1,\"expiry\":1790000000}. Bytes that are not UTF-8 stand in
\"key_base64\" and \"value_base64\"; flags and expiry (seconds since 1970) are left out when 0. Versions are not kept. Records of a
collection say so with \"collection\"; without --collection all collections are dumped, the default one first.
`dump` after `load` gives the same lines. A damaged record ends the dump with exit code 4; with --skip-damaged it is told,
the dump goes on, and the exit code is 4 in the end."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    collection: CollectionArguments,
    /// Only keys that begin with this
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: OsString,
    /// Pass over damaged records: what is left of a damaged store
    #[arg(long)]
    skip_damaged: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let store = arguments.open.read()?;
    let mut all = vec![(None, arguments.collection.read(&store)?)];
    match arguments.collection.name() {
        Some(name) => all[0].0 = Some(name.to_owned()),
        None => {
            for name in store.collections()? {
                let collection = store.existing_collection(&name)?;
                all.extend(collection.map(|collection| (Some(name), collection)));
            }
        }
    }
    let mut damaged = 0;
    for (name, collection) in &all {
        let mut write = |key: &[u8], record: &Record| {
            let line = Line { collection: name.clone(), ..Line::new(key, record) };
            let written = serde_json::to_writer(&mut *output, &line).map_err(io::Error::from);
            written.and_then(|()| writeln!(output)).map_err(Failure::output)
        };
        let scan = ScanOptions::prefix(arguments.prefix.as_bytes());
        if arguments.skip_damaged {
            damaged += dump_undamaged(collection, scan, &mut write)?;
        } else {
            for item in collection.scan(scan) {
                let (key, record) = item?;
                write(&key, &record)?;
            }
        }
    }
    drop(all);
    store.close()?;
    match damaged {
        0 => Ok(()),
        damaged => Err(Failure::new(Exit::Corrupt, format!("{damaged} damaged records are missing from this dump"))),
    }
}

/// Keys from the index, then each record by itself, so that one that is damaged does not hide the others. How many were passed over.
fn dump_undamaged(
    collection: &Collection,
    scan: ScanOptions,
    write: &mut impl FnMut(&[u8], &Record) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut damaged = 0;
    for item in collection.scan(scan.keys_only()) {
        let (key, _) = item?;
        match collection.get(&key) {
            Ok(Some(record)) => write(&key, &record)?,
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                eprintln!("stratakv: key `{}`: {error}; passed over", key.escape_ascii());
                damaged += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(damaged)
}
