//! `stratakv import`: records of other stores, from their servers and their files.

mod checkpoint;
mod file;
mod json_lines;
mod lines;
mod memcached;
mod rdb;
mod record;
mod redis;
mod rows;
mod source;
mod tally;
mod target;
mod value;

use std::path::Path;
use std::time::Instant;

use clap::Args;
use stratakv::Expect;

use crate::failure::Failure;
use crate::load::{self, Load, Rows};
use crate::opening::{DurabilityArguments, EngineArguments, MadeCollectionArguments, OpenArguments};
use crate::remote::LoginArguments;
pub(crate) use checkpoint::{Checkpoint, Position};
use checkpoint::{Resume, ResumeArguments, SourceIdentity};
use file::FileFormat;
use json_lines::JsonArguments;
pub(crate) use json_lines::JsonLines;
pub(crate) use lines::{dump_redis, is_redis};
use rows::{CsvArguments, CsvRows};
use source::Source;
pub(crate) use tally::Tally;
use target::Target;
pub(crate) use target::tell_all;

/// Import records of a memcached, of Redis and its files, and of CSV; the store is created if there
/// is none
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv import memcached://127.0.0.1:11211
  stratakv import redis://127.0.0.1:6379 --data copy
  stratakv import redis://127.0.0.1/2 --user default --password-file secret
  stratakv import rediss://cache.example:6380 --tls-ca ca.pem
  stratakv import redis+unix:///run/redis.sock
  stratakv import dump.rdb
  stratakv import people.csv --key-column id --rows hash\n  stratakv import events.jsonl --key-field id --resume checkpoint

Sources: memcached://HOST[:PORT], memcached+tls://, memcached+unix://PATH; redis://HOST[:PORT][/DATABASE], \
rediss:// (TLS), redis+unix://PATH[?db=N]. Files: Redis's RDB (versions 1 to 11), CSV with names of columns in the first line, and \
lines of JSON. `-` is stdin.

Values, flags and times to live are kept; strings, hashes, lists, sets and sorted sets of Redis \
become those that `serve --resp` serves. The source is only read, and may go on serving: a record \
that changes meanwhile comes in its old or its new form.

Records that exist in the store are overwritten, or kept with --keep-existing. So a second run after one \
that ended early is harmless: it writes the same again. With --resume it goes on where the first one stood: give the same command again.

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
    #[command(flatten)]
    csv: CsvArguments,
    #[command(flatten)]
    json: JsonArguments,
    #[command(flatten)]
    resume: ResumeArguments,
    /// What to import: the URL of a server, or a file
    source: String,
    /// What a file is [default: as its name or its first bytes tell]
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// The database of Redis; with a URL it may stand there
    #[arg(long, value_name = "NUMBER")]
    database: Option<u32>,
    /// Of CSV and lines of JSON: pass over malformed lines
    #[arg(long)]
    skip_errors: bool,
    /// Leave records alone whose keys the store has already
    #[arg(long)]
    keep_existing: bool,
}

impl Arguments {
    /// Refuses options that would be passed over. `what`: the source, with the options that are
    /// for it.
    fn refuse_others(&self, what: &str, allowed: &[&str]) -> Result<(), Failure> {
        let given = [
            self.csv.named(),
            self.json.named(),
            self.skip_errors.then_some("--skip-errors"),
            self.database.map(|_| "--database"),
            self.format.filter(|_| self.source.contains("://")).map(|_| "--format"),
        ];
        match given.into_iter().flatten().find(|option| !allowed.contains(option)) {
            Some(option) => Err(Failure::usage(format!("{option} says nothing of {what}: leave it out"))),
            None => Ok(()),
        }
    }

    /// Those that say what a record of such a file becomes, for a checkpoint.
    fn options_of(&self, format: FileFormat) -> String {
        let of_format = match format {
            FileFormat::Rdb => format!("rdb, --database {:?}", self.database),
            FileFormat::Csv => self.csv.shown(),
            FileFormat::Jsonl => self.json.shown(),
        };
        of_format + self.kept()
    }

    fn kept(&self) -> &'static str {
        if self.keep_existing { ", --keep-existing" } else { "" }
    }
}

const OF_CSV: [&str; 5] = ["--key-column", "--value-column", "--rows", "--separator", "--skip-errors"];
const OF_JSON: [&str; 2] = ["--key-field", "--skip-errors"];

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let source = Source::parse(&arguments.source)?;
    match &source {
        Source::Memcached(_) => arguments.refuse_others("a memcached", &[])?,
        Source::Redis { .. } => arguments.refuse_others("a Redis", &["--database"])?,
        Source::File(_) => {}
    }
    let started = Instant::now();
    // Before the store is opened: a source that is not there should not leave a new store behind.
    match source {
        Source::Memcached(address) => {
            if let Some(option) = arguments.resume.named() {
                return Err(Failure::usage(format!(
                    "{option}: a memcached lists its keys in no order that it keeps, so nothing tells where to go on. \
                     Leave it out: a second run writes all again, or with --keep-existing what is missing"
                )));
            }
            let source = memcached::Memcached::connect(&address, &arguments.login)?;
            into_store(arguments, started, None, |target| source.import(target))
        }
        Source::Redis { address, database } => {
            let database = arguments.database.unwrap_or(database);
            let mut source = redis::Redis::connect(&address, &arguments.login, database)?;
            source.tell_of_others(database)?;
            let options = format!("redis, --database {database}{}", arguments.kept());
            let resume = arguments.resume.begin(options, || Ok(SourceIdentity::Redis { run_id: source.run_id()? }))?;
            into_store(arguments, started, resume, |target| source.import(target))
        }
        Source::File(path) => file_into_store(arguments, started, &path),
    }
}

fn file_into_store(arguments: &Arguments, started: Instant, path: &Path) -> Result<(), Failure> {
    arguments.login.refuse_without("a URL")?;
    let name = load::name_of(path);
    let mut content = load::opened(path)?;
    let format = FileFormat::of(arguments.format, path, &mut content)?;
    match format {
        FileFormat::Rdb => arguments.refuse_others("an RDB file", &["--database"])?,
        FileFormat::Csv => arguments.refuse_others("a CSV file", &OF_CSV)?,
        FileFormat::Jsonl => arguments.refuse_others("lines of JSON", &OF_JSON)?,
    }
    let is_stream = path == Path::new("-") && format == FileFormat::Jsonl;
    let resume = arguments.resume.begin(arguments.options_of(format), || match is_stream {
        true => Ok(SourceIdentity::Stream),
        false => checkpoint::identity_of(path),
    })?;
    let begun_at = resume.as_ref().and_then(Resume::position);
    let rest = |offset| load::opened_at(path, offset);
    let rows: Box<dyn Rows> = match format {
        FileFormat::Rdb => {
            let database = arguments.database;
            let source = rdb::RdbReader::new(content).map_err(|error| file::failure(&name, &error))?;
            return into_store(arguments, started, resume, |target| file::import_rdb(source, &name, database, target));
        }
        FileFormat::Csv => {
            let rows = CsvRows::new(content, &name, &arguments.csv)?;
            match begun_at {
                Some(position) => Box::new(rows.resumed(position, &arguments.csv, rest(position.offset)?)),
                None => Box::new(rows),
            }
        }
        FileFormat::Jsonl => {
            let content = match begun_at {
                Some(position) if !is_stream => rest(position.offset)?,
                _ => content,
            };
            let lines = JsonLines::new(content, name.clone()).with_fields(&arguments.json);
            let is_resumable = arguments.resume.named().is_some();
            let lines = if is_stream && is_resumable { lines.pass(begun_at)? } else { lines.starting_at(begun_at) };
            Box::new(lines)
        }
    };
    let store = arguments.open.write(&arguments.durability, Some(&arguments.engine))?;
    let collection = arguments.collection.write(&store)?;
    let load = Load {
        checkpoint: resume.map(|resume| resume.of_store(&store, &collection)).transpose()?,
        default: collection,
        store,
        name,
        total_bytes: load::total_bytes(path),
        skip_errors: arguments.skip_errors,
        sorted: false,
        expect: if arguments.keep_existing { Expect::Absent } else { Expect::Any },
    };
    load.run(rows)
}

/// Opens the store, lets `import` write to it, and reports.
fn into_store(
    arguments: &Arguments,
    started: Instant,
    resume: Option<Resume>,
    import: impl FnOnce(&mut Target) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let store = arguments.open.write(&arguments.durability, Some(&arguments.engine))?;
    let collection = arguments.collection.write(&store)?;
    let checkpoint = resume.map(|resume| resume.of_store(&store, &collection)).transpose()?;
    let mut target = Target::new(&store, collection, arguments.keep_existing, checkpoint)?;
    let imported = import(&mut target);
    let ended = target.finish(&arguments.source, started, imported);
    store.close()?;
    ended
}
