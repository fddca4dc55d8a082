//! `stratakv stats`.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Map, Value};
use stratakv::Store;
use stratakv_base::quantity::format_bytes;

use crate::Output;
use crate::failure::Failure;
use crate::opening::OpenArguments;

/// Show what a store holds: records, space, shards
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv stats\n  stratakv stats --json | jq .records

Opens the store itself, so counters of traffic are those of this command. A running server tells its own to memcache
clients (`stats`).")]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Each shard's figures too: a hot one shows
    #[arg(long)]
    shards: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let store = arguments.open.read()?;
    let written = if arguments.json {
        write_json(&store, arguments.shards, output)
    } else {
        write_table(&store, arguments.shards, output)
    };
    written.map_err(Failure::output)?;
    Ok(store.close()?)
}

fn write_json(store: &Store, by_shard: bool, output: &mut Output) -> io::Result<()> {
    let recovery = store.recovery();
    let mut object = Map::new();
    object.insert("path".into(), store.path().to_string_lossy().into());
    object.insert("shards".into(), store.shards().into());
    object.insert("clean".into(), recovery.clean.into());
    object.insert("torn".into(), recovery.torn.into());
    object.insert("damage".into(), recovery.corrupt.clone().into());
    object.extend(store.stats().iter().map(|statistic| (statistic.name.to_owned(), statistic.value.into())));
    if by_shard {
        let figures = |shard| store.shard_stats(shard).into_iter().map(|one| (one.name.to_owned(), one.value.into()));
        let shards = (0..store.shards()).map(|shard| Value::Object(figures(shard).collect()));
        object.insert("by_shard".into(), shards.collect::<Vec<_>>().into());
    }
    serde_json::to_writer(&mut *output, &Value::Object(object))?;
    writeln!(output)
}

fn write_table(store: &Store, by_shard: bool, output: &mut Output) -> io::Result<()> {
    let recovery = store.recovery();
    writeln!(output, "{:<28} {}", "path", store.path().display())?;
    writeln!(output, "{:<28} {}", "shards", store.shards())?;
    writeln!(output, "{:<28} {}", "closed in order", if recovery.clean { "yes" } else { "no" })?;
    writeln!(output, "{:<28} {}", "damaged places", recovery.corrupt.len())?;
    for statistic in store.stats() {
        let (name, value) = (statistic.name, statistic.value);
        match name.ends_with("_bytes") {
            true => writeln!(output, "{name:<28} {value} ({})", format_bytes(value))?,
            false => writeln!(output, "{name:<28} {value}")?,
        }
    }
    for shard in (0..store.shards()).filter(|_| by_shard) {
        writeln!(output, "\nshard {shard}")?;
        for one in store.shard_stats(shard) {
            writeln!(output, "{:<28} {}", one.name, one.value)?;
        }
    }
    Ok(())
}
