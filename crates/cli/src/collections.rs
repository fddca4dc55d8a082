//! `stratakv collections`.

use std::io::Write;

use clap::Args;

use crate::failure::{Exit, Failure};
use crate::opening::{DurabilityArguments, OpenArguments};
use crate::{Output, text};

/// List the collections, or drop one
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv collections\n  stratakv put --collection users ada 36\n  stratakv collections --drop users

A collection is made by the first `put` or `load` into it. --drop removes it with every key in it; exit code 3 if there is none
of that name."
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
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if let Some(name) = &arguments.drop {
        let store = arguments.open.write(&arguments.durability, false)?;
        let dropped = store.drop_collection(name)?;
        store.close()?;
        return match dropped {
            true => Ok(()),
            false => Err(Failure::new(Exit::NotFound, format!("there is no collection `{name}`"))),
        };
    }
    let store = arguments.open.read()?;
    let names = store.collections()?;
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
