//! `stratakv restore`.

use std::path::{Path, PathBuf};

use clap::Args;
use stratakv::{Engine, Error, Options};
use stratakv_base::quantity::format_count;

use crate::failure::{Exit, Failure, holds_backup};
use crate::opening::{EngineArguments, OpenArguments, Placed};
use crate::progress;
use crate::say::say;

/// Make a new store from a backup
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv restore /mnt/backup/monday --data copy\n  stratakv restore monday --data /mnt/a --data /mnt/b --shards 8

There must be no store in --data yet. Every record comes back in its collection, with flags and \
expiry; versions are made anew. Engine and placement are those of the store that was backed up, \
and a region is as long as it was, or longer if the records want it, unless --engine, \
--placement and --region say otherwise. Interrupted, what is there refuses to open: remove it \
and restore again."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    engine: EngineArguments,
    /// Where from
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// Shards of the new store [default: one for each core; one with the engines `hash` and
    /// `matrix`]
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
}

/// Where the new store was to be, something is in the way: what to say instead.
fn refused(error: Error, arguments: &Arguments) -> Failure {
    let Error::Exists { path } = &error else { return error.into() };
    let from = arguments.from.display();
    Failure::usage(format!(
        "{} holds a store, and `restore` makes a new one: stratakv restore {from} --data NEW",
        path.display()
    ))
}

/// There is no backup to restore.
fn absent(from: &Path) -> Failure {
    let shown = from.display();
    let message = match from.exists() {
        false => format!("there is no {shown}: name the directory of a backup"),
        true => format!(
            "{shown} holds no complete backup: backup.toml, which is written last, is missing. Name the directory of a finished backup"
        ),
    };
    Failure::new(Exit::NotFound, message)
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !holds_backup(&arguments.from) {
        return Err(absent(&arguments.from));
    }
    let EngineArguments { placement: asked, .. } = arguments.engine;
    let placed = Placed::choose(asked, &arguments.open.data, arguments.open.io)?;
    let options: Options =
        placed.add_to(arguments.engine.add_to(arguments.open.options())).progress(progress::bar("restoring"));
    let options = arguments.shards.map_or(options.clone(), |shards| options.shards(shards));
    let data = arguments.open.data.first();
    let summary = stratakv::restore(&arguments.from, data, &options).map_err(|error| refused(error, arguments))?;
    let format = stratakv::format_of(data)?;
    let engine = format.map_or("unknown", |format| format.engine.name());
    let placement = match format {
        Some(format) if format.engine == Engine::Slab => {
            // A backup of another engine has no placement.
            let is_chosen = asked.is_some() || arguments.engine.engine.is_some();
            let whose = if is_chosen { "" } else { " as in the backup" };
            format!(", placement {}{whose}", format.placement.name())
        }
        _ => String::new(),
    };
    let records = format_count(summary.records, "record");
    say!("{records} restored to {} (engine {engine}{placement})", data.display());
    Ok(())
}
