//! `stratakv collections`.

use std::io::Write;

use clap::Args;
use stratakv::{Expiry, Kind, Store};

use crate::failure::{Exit, Failure};
use crate::opening::{DurabilityArguments, OpenArguments, records_of};
use crate::{Output, text};

/// List the collections, or drop one
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv collections\n  stratakv put --collection users ada 36\n  stratakv collections --drop users\n  stratakv collections --long

A collection is made by the first `put` or `load` into it. --drop removes it with every key in \
it; exit code 3 if there is none of that name."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// Remove this collection and every key in it
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    drop: Option<String>,
    /// A JSON array of names
    #[arg(long)]
    json: bool,
    /// For each also, behind tabs: `keyvalue` or `list`, how many records, when it expires, in
    /// seconds since 1970, or `never`, and the order it is in, `bytes` or a name
    #[arg(long, conflicts_with_all = ["json", "drop"])]
    long: bool,
}

/// A collection's line for `--long`.
fn describe(store: &Store, name: &str, output: &mut Output) -> Result<(), Failure> {
    let Some(found) = records_of(store, name)? else { return Ok(()) };
    let kind = if found.kind == Kind::List { "list" } else { "keyvalue" };
    let expiry = match store.collection_expiry(name)?.unwrap_or(Expiry::NEVER) {
        Expiry::NEVER => "never".to_owned(),
        expiry => expiry.seconds().to_string(),
    };
    let (count, order) = (found.records.len()?, found.records.order().unwrap_or("bytes"));
    let written = text::write_escaped(output, name.as_bytes());
    written.and_then(|()| writeln!(output, "\t{kind}\t{count}\t{expiry}\t{order}")).map_err(Failure::output)
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if let Some(name) = &arguments.drop {
        let store = arguments.open.write(&arguments.durability, None)?;
        let dropped = store.drop_collection(name)?;
        store.close()?;
        return match dropped {
            true => Ok(()),
            false => Err(Failure::new(Exit::NotFound, format!("there is no collection `{name}`"))),
        };
    }
    let store = arguments.open.read()?;
    let names = store.collections()?;
    if arguments.long {
        names.iter().try_for_each(|name| describe(&store, name, output))?;
        return Ok(store.close()?);
    }
    let written = match arguments.json {
        true => serde_json::to_writer(&mut *output, &names).map_err(Into::into).and_then(|()| writeln!(output)),
        false => names.iter().try_for_each(|name| {
            text::write_escaped(output, name.as_bytes())?;
            writeln!(output)
        }),
    };
    written.map_err(Failure::output)?;
    Ok(store.close()?)
}
