//! `stratakv import`: records of other stores, from their servers and their files.

mod memcached;
mod redis;
mod source;
mod tally;
mod target;
mod value;

use std::time::Instant;

use clap::Args;

use crate::failure::Failure;
use crate::opening::{DurabilityArguments, EngineArguments, MadeCollectionArguments, OpenArguments};
use crate::remote::LoginArguments;
use source::Source;
use target::Target;

/// Import the records of a memcached or Redis server; the store is created if there is none
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv import memcached://127.0.0.1:11211
  stratakv import redis://127.0.0.1:6379 --data copy
  stratakv import redis://127.0.0.1/2 --user default --password-file secret
  stratakv import rediss://cache.example:6380 --tls-ca ca.pem
  stratakv import redis+unix:///run/redis.sock

Sources: memcached://HOST[:PORT], memcached+tls://, memcached+unix://PATH; redis://HOST[:PORT][/DATABASE], \
rediss:// (TLS), redis+unix://PATH[?db=N].

Values, flags and times to live are kept; strings, hashes, lists, sets and sorted sets of Redis \
become those that `serve --resp` serves. The source is only read, and may go on serving: a record \
that changes meanwhile comes in its old or its new form.

Records that exist in the store are overwritten, or kept with --keep-existing. So a second run after one \
that ended early is harmless: it writes the same again.

At the end it says how many records were imported, and how many were left out, with the reasons. \
Exit code 6 if some were left out that a store here cannot hold, such as streams; 1 if some could not be read.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    collection: MadeCollectionArguments,
    #[command(flatten)]
    login: LoginArguments,
    /// What to import: the URL of a server
    source: String,
    /// Leave records alone whose keys the store has already
    #[arg(long)]
    keep_existing: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let source = Source::parse(&arguments.source)?;
    let started = Instant::now();
    // Before the store is opened: a source that is not there should not leave a new store behind.
    match source {
        Source::Memcached(address) => {
            let source = memcached::Memcached::connect(&address, &arguments.login)?;
            into_store(arguments, started, |target| source.import(target))
        }
        Source::Redis { address, database } => {
            let source = redis::Redis::connect(&address, &arguments.login, database)?;
            into_store(arguments, started, |target| source.import(target))
        }
    }
}

/// Opens the store, lets `import` write to it, and reports.
fn into_store(
    arguments: &Arguments,
    started: Instant,
    import: impl FnOnce(&mut Target) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let store = arguments.open.write(&arguments.durability, Some(&arguments.engine))?;
    let collection = arguments.collection.write(&store)?;
    let mut target = Target::new(&store, collection, arguments.keep_existing)?;
    let imported = import(&mut target);
    let ended = target.finish(&arguments.source, started, imported);
    store.close()?;
    ended
}
