//! `stratakv stats`.

mod summary;

use std::io::{self, Write};

use clap::Args;
use serde_json::{Map, Value};
use stratakv::{Level, Region, Store};
use stratakv_base::quantity::format_bytes;

use crate::Output;
use crate::failure::Failure;
use crate::opening::OpenArguments;
use crate::remote::ServerArguments;
use crate::text::write_escaped;

/// Show what a store holds: a summary, then all counters
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv stats\n  stratakv stats --raw | grep flushes\n  stratakv stats --json | jq .records
  stratakv stats --server 127.0.0.1:11211

Opens the store itself, so counters of traffic are those of this command. --server asks a \
running server for its own; there, names are those of memcached's `stats` and of the engine."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    server: ServerArguments,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// The counters only, a line each, as scripts want them
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Each shard's figures too: a hot one shows
    #[arg(long)]
    shards: bool,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if let Some(mut server) = arguments.server.connect()? {
        let statistics = server.statistics("")?;
        return write_told(&statistics, arguments, output).map_err(Failure::output);
    }
    let store = arguments.open.read()?;
    let written = if arguments.json {
        write_json(&store, arguments.shards, output)
    } else {
        write_table(&store, arguments, output)
    };
    written.map_err(Failure::output)?;
    Ok(store.close()?)
}

/// What writes may be acknowledged at where the region lies.
fn durability_max(region: &Region) -> &'static str {
    if region.can_survive_power_loss { Level::PowerLoss.name() } else { Level::ProcessCrash.name() }
}

fn write_json(store: &Store, by_shard: bool, output: &mut Output) -> io::Result<()> {
    let recovery = store.recovery();
    let mut object = Map::new();
    object.insert("path".into(), store.path().to_string_lossy().into());
    object.insert("engine".into(), store.engine().name().into());
    if let Some(placement) = store.placement() {
        object.insert("placement".into(), placement.name().into());
    }
    if let Some(region) = store.region() {
        object.insert("region_path".into(), region.path.to_string_lossy().into());
        object.insert("region_domain".into(), region.domain.as_str().into());
        object.insert("durability_max".into(), durability_max(region).into());
    }
    object.insert("shards".into(), store.shards().into());
    object.insert("clean".into(), recovery.clean.into());
    object.insert("torn".into(), recovery.torn.into());
    object.insert("damage".into(), recovery.corrupt.clone().into());
    object.insert("damaged_superblock_copies".into(), recovery.superblocks_repaired.into());
    object.insert("unreadable".into(), recovery.unreadable.clone().into());
    object.extend(store.stats().iter().map(|statistic| (statistic.name.to_owned(), statistic.value.into())));
    if by_shard {
        let figures = |shard| store.shard_stats(shard).into_iter().map(|one| (one.name.to_owned(), one.value.into()));
        let shards = (0..store.shards()).map(|shard| Value::Object(figures(shard).collect()));
        object.insert("by_shard".into(), shards.collect::<Vec<_>>().into());
    }
    serde_json::to_writer(&mut *output, &Value::Object(object))?;
    writeln!(output)
}

fn write_table(store: &Store, arguments: &Arguments, output: &mut Output) -> io::Result<()> {
    let statistics = store.stats();
    if !arguments.raw {
        let figure = |name: &str| statistics.iter().find(|one| one.name == name).map(|one| one.value);
        summary::write(&figure, output)?;
    }
    let recovery = store.recovery();
    writeln!(output, "{:<28} {}", "path", store.path().display())?;
    writeln!(output, "{:<28} {}", "engine", store.engine().name())?;
    if let Some(placement) = store.placement() {
        writeln!(output, "{:<28} {}", "placement", placement.name())?;
    }
    if let Some(region) = store.region() {
        writeln!(output, "{:<28} {}", "region", region.path.display())?;
        writeln!(output, "{:<28} {}", "region lies in", region.domain)?;
        writeln!(output, "{:<28} {}", "durability, at most", durability_max(region))?;
    }
    writeln!(output, "{:<28} {}", "shards", store.shards())?;
    writeln!(output, "{:<28} {}", "closed in order", if recovery.clean { "yes" } else { "no" })?;
    writeln!(output, "{:<28} {}", "damaged places", recovery.corrupt.len())?;
    writeln!(output, "{:<28} {}", "damaged superblock copies", recovery.superblocks_repaired)?;
    writeln!(output, "{:<28} {}", "unreadable places", recovery.unreadable.len())?;
    for statistic in &statistics {
        write_number(statistic.name, statistic.value, output)?;
    }
    for shard in (0..store.shards()).filter(|_| arguments.shards) {
        writeln!(output, "\nshard {shard}")?;
        for one in store.shard_stats(shard) {
            writeln!(output, "{:<28} {}", one.name, one.value)?;
        }
    }
    Ok(())
}

fn write_number(name: &str, value: u64, output: &mut Output) -> io::Result<()> {
    match name.ends_with("_bytes") {
        true => writeln!(output, "{name:<28} {value} ({})", format_bytes(value)),
        false => writeln!(output, "{name:<28} {value}"),
    }
}

/// What a server tells: numbers, and text that may be anything.
fn write_told(statistics: &[(String, String)], arguments: &Arguments, output: &mut Output) -> io::Result<()> {
    if arguments.json {
        let value = |text: &String| text.parse::<u64>().map_or(Value::from(text.as_str()), Value::from);
        let object: Map<_, _> = statistics.iter().map(|(name, text)| (name.clone(), value(text))).collect();
        serde_json::to_writer(&mut *output, &object)?;
        return writeln!(output);
    }
    if !arguments.raw {
        let figure = |name: &str| statistics.iter().find(|(known, _)| known == name)?.1.parse::<u64>().ok();
        summary::write(&figure, output)?;
    }
    for (name, text) in statistics {
        match text.parse() {
            Ok(number) if !name.contains(char::is_control) => write_number(name, number, output)?,
            _ => {
                write_escaped(output, format!("{name:<28} {text}").as_bytes())?;
                writeln!(output)?;
            }
        }
    }
    Ok(())
}
