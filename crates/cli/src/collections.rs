//! `stratakv collections`.

use std::io::Write;

use clap::Args;
use clap::builder::PossibleValuesParser;
use stratakv::{Expiry, Kind, Order, Store};

use crate::failure::Failure;
use crate::opening::{DurabilityArguments, OpenArguments, records_of};
use crate::remote::{self, Client, CollectionsTask, ServerArguments, absent};
use crate::{Output, text};

/// List the collections, make one, or drop one
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv collections\n  stratakv put --collection users ada 36\n  stratakv collections --drop users\n  stratakv collections --long
  stratakv collections --create scores --order stratakv.numeric\n  stratakv collections --server 127.0.0.1:11211 --long

A collection is made by --create, or by the first `put` or `load` into it. --drop removes it with every \
key in it; exit code 3 if there is none of that name. A server without accounts makes and drops \
collections for clients on its own machine only."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// Make this collection; nothing changes if there is one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["json", "long", "drop"])]
    create: Option<String>,
    /// Order of a new collection's keys [default: bytes]
    #[arg(long = "order", value_name = "NAME", requires = "create", value_parser = PossibleValuesParser::new(Order::BUILT_IN))]
    in_order: Option<String>,
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
    if let Some(server) = arguments.server.connect()? {
        return run_remote(arguments, server, output);
    }
    if let Some(name) = &arguments.create {
        let store = arguments.open.write(&arguments.durability, None)?;
        match &arguments.in_order {
            Some(order) => drop(store.collection_in_order(name, order)?),
            None => drop(store.collection(name)?),
        }
        return Ok(store.close()?);
    }
    if let Some(name) = &arguments.drop {
        let store = arguments.open.write(&arguments.durability, None)?;
        let dropped = store.drop_collection(name)?;
        store.close()?;
        return if dropped { Ok(()) } else { Err(absent(name)) };
    }
    let store = arguments.open.read()?;
    let names = store.collections()?;
    match arguments.long {
        true => names.iter().try_for_each(|name| describe(&store, name, output))?,
        false => write_names(arguments.json, &names, output)?,
    }
    Ok(store.close()?)
}

/// The same, of a server.
fn run_remote(arguments: &Arguments, server: Client, output: &mut Output) -> Result<(), Failure> {
    let order = arguments.in_order.as_deref();
    let task = match (&arguments.create, &arguments.drop) {
        (Some(name), _) => CollectionsTask::Create { name, order },
        (None, Some(name)) => CollectionsTask::Drop(name),
        (None, None) if arguments.long => CollectionsTask::Describe,
        (None, None) => CollectionsTask::List,
    };
    let found = remote::collections(server, task)?;
    if arguments.long {
        return found.iter().try_for_each(|(name, told)| {
            let written = text::write_escaped(output, name.as_bytes());
            let written = written.and_then(|()| writeln!(output, "\t{}", told.replace(' ', "\t")));
            written.map_err(Failure::output)
        });
    }
    match task {
        CollectionsTask::List => {
            let names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
            write_names(arguments.json, &names, output)
        }
        _ => Ok(()),
    }
}

fn write_names(as_json: bool, names: &[String], output: &mut Output) -> Result<(), Failure> {
    let written = match as_json {
        true => serde_json::to_writer(&mut *output, names).map_err(Into::into).and_then(|()| writeln!(output)),
        false => names.iter().try_for_each(|name| {
            text::write_escaped(output, name.as_bytes())?;
            writeln!(output)
        }),
    };
    written.map_err(Failure::output)
}
