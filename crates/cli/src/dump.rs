//! `stratakv dump`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use clap::{Args, ValueEnum};
use stratakv::{Collection, Engine, ErrorKind, Kind, Record, ScanOptions, Store};
use stratakv_base::quantity::format_count;

use crate::failure::{Exit, Failure};
use crate::json_line::{Line, text_or_base64};
use crate::opening::{CollectionArguments, OpenArguments, OpenedCollection, has_points, records_of};
use crate::remote::{Client, RangeRequest, RemoteRecord, ServerArguments};
use crate::say::say;
use crate::{Output, csv_line, import, progress, trees};

/// Progress is told of so many records at a time.
const TOLD_EVERY: u64 = 256;

/// Write every record as a line of JSON, in order of the collections and keys
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv dump > backup.jsonl\n  stratakv dump --prefix user: | stratakv load --data copy -
  stratakv dump --server 127.0.0.1:11211 > backup.jsonl
  stratakv dump --server redis://127.0.0.1:6379 > all.jsonl
  stratakv dump --format csv > all.csv

A line: {\"key\":\"user:1\",\"value\":\"Ada\",\"flags\":1,\"expiry\":1790000000}. Bytes that are \
not UTF-8 stand in \"key_base64\" and \"value_base64\"; flags and expiry (seconds since 1970) \
are left out when 0. Versions are not kept. Records of a collection say so with \"collection\", \
and with \"order\" if it is in another one than that of bytes; without --collection all \
collections are dumped, the default one first (with the engine `hash` in no order, and as it is \
at one moment). Elements of a list say \"list\", and their keys are their positions. When a \
collection expires as a whole is not kept. `dump` after `load` gives the same lines, those of \
the default collection of a `hash` store in another order. A damaged record ends the dump with \
exit code 4. --skip-damaged reports it and continues, and still ends with exit code 4. A structure of a newer \
layout ends the dump with exit code 6, and with --skip-damaged too it is named and left out. \
Structures of Redis clients are lines as other records are, whatever their form; `load` gives them \
the form that they need. Those of more than 64 MiB are left out: they are counted, and the exit code \
is 6. `stratakv backup` has them.

A server writes its default collection. Structures of Redis clients, and with the engines `hash` \
and `tier` keys of more than 250 bytes, are left out: they are counted, and the exit code is 6. \
`stratakv backup --server` has everything. With --server redis://HOST:PORT the port of --resp is asked, or a \
Redis: structures are lines then, and keys have any length."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    server: ServerArguments,
    /// How records are written
    #[arg(long, value_enum, default_value_t)]
    format: DumpFormat,
    /// Only this collection; without it, all of them
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Only keys that begin with this
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: OsString,
    /// Pass over damaged records: what is left of a damaged store
    #[arg(long)]
    skip_damaged: bool,
}

/// `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum DumpFormat {
    /// Lines of JSON, which `load` reads
    #[default]
    Json,
    /// CSV, which `import` reads. The first line names the columns: as the fields of JSON
    Csv,
}

impl DumpFormat {
    fn begin(self, output: &mut Output) -> Result<(), Failure> {
        match self {
            DumpFormat::Json => Ok(()),
            DumpFormat::Csv => csv_line::write_columns(output).map_err(Failure::output),
        }
    }

    fn write(self, line: &Line, output: &mut Output) -> Result<(), Failure> {
        let written = match self {
            DumpFormat::Csv => csv_line::write_line(output, line),
            DumpFormat::Json => {
                serde_json::to_writer(&mut *output, line).map_err(io::Error::from).and_then(|()| writeln!(output))
            }
        };
        written.map_err(Failure::output)
    }
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if let Some(server) = arguments.server.named().filter(|server| import::is_redis(server)) {
        arguments.format.begin(output)?;
        let mut write = |line: &Line| arguments.format.write(line, output);
        return import::dump_redis(server, arguments.server.login(), arguments.prefix.as_bytes(), &mut write);
    }
    if let Some(server) = arguments.server.connect()? {
        return ask(server, arguments, output);
    }
    let store = arguments.open.read()?;
    let mut all = Vec::new();
    let names = match &arguments.collection {
        Some(name) => vec![name.clone()],
        None => {
            all.push((Line::default(), Collection::clone(&store)));
            store.collections()?
        }
    };
    for name in names {
        all.push(match records_of(&store, &name)? {
            Some(found) => (line_of(&found, name), found.records),
            // Told as every command tells it.
            None => (Line::default(), CollectionArguments::named(name).read(&store)?),
        });
    }
    let is_ordered = stratakv::format_of(store.path())?.is_none_or(|format| format.engine != Engine::Hash);
    let progress = Progress::of(&store, arguments);
    arguments.format.begin(output)?;
    let mut dump = Dump { arguments, passed_over: BTreeSet::new(), progress, output };
    for (of, collection) in &all {
        match collection.id() == store.id() && !is_ordered {
            true => dump.unordered(&store, of)?,
            false => dump.collection(&store, of, collection)?,
        }
    }
    let missing = Missing {
        damaged: dump.passed_over.len() as u64 + dump.progress.damaged.get(),
        newer: dump.progress.newer.get(),
        too_long: dump.progress.trees.get(),
    };
    drop(all);
    store.close()?;
    match missing.failure() {
        None => Failure::incomplete(&store, "all that can be read is dumped").map_or(Ok(()), Err),
        Some(failure) => Err(failure),
    }
}

/// What a dump has left out.
struct Missing {
    damaged: u64,
    /// Structures of a newer layout.
    newer: u64,
    /// Structures that no record can have.
    too_long: u64,
}

impl Missing {
    fn failure(&self) -> Option<Failure> {
        let &Missing { damaged, newer, too_long } = self;
        let structures = |count| format_count(count, "structure");
        let mut parts = Vec::new();
        if damaged > 0 {
            parts.push(format_count(damaged, "damaged record"));
        }
        if newer > 0 {
            parts.push(format!("{} of a newer layout", structures(newer)));
        }
        if too_long > 0 {
            let which = "of Redis clients with more than 64 MiB. `stratakv backup` has all";
            parts.push(format!("{} {which}", structures(too_long)));
        }
        let exit = if damaged > 0 { Exit::Corrupt } else { Exit::Unsupported };
        let why = format!("missing from this dump: {}", parts.join("; "));
        (!parts.is_empty()).then(|| Failure::new(exit, why))
    }
}

/// The default collection of a server; without an order, all keys first.
fn ask(mut server: Client, arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let prefix = arguments.prefix.as_bytes();
    let mut left_out = 0;
    arguments.format.begin(output)?;
    let mut write = |record: RemoteRecord| {
        if record.value.is_none() {
            left_out += 1;
            return Ok(());
        }
        arguments.format.write(&record.line(), output)
    };
    if !server.range(RangeRequest::of_prefix(prefix), &mut write)? {
        let (keys, long): (Vec<Vec<u8>>, Vec<Vec<u8>>) = server
            .keys()?
            .into_iter()
            .filter(|key| key.starts_with(prefix))
            .partition(|key| key.len() <= stratakv_protocol::memcache::KEY_BYTES_MAX);
        server.fetch(&keys, &mut write)?;
        left_out += long.len() as u64;
    }
    match left_out {
        0 => Ok(()),
        left_out => Err(Failure::new(
            Exit::Unsupported,
            format!(
                "missing from this dump: {} that the memcache protocol cannot carry. `stratakv backup --server` has all",
                format_count(left_out, "record")
            ),
        )),
    }
}

/// A bar, where the lines do not go to the terminal that shows it.
struct Progress {
    show: Option<Box<dyn Fn(u64, u64)>>,
    written: Cell<u64>,
    /// Structures that are left out, as no record can have all of them.
    trees: Cell<u64>,
    /// Those that are damaged, and were told of.
    damaged: Cell<u64>,
    /// Those of a newer layout, which were told of.
    newer: Cell<u64>,
    total: u64,
}

impl Progress {
    /// Of a part of the store it is not known how much there is.
    fn of(store: &Store, arguments: &Arguments) -> Progress {
        let is_whole = arguments.collection.is_none() && arguments.prefix.is_empty();
        let show = (!io::stdout().is_terminal())
            .then(|| -> Box<dyn Fn(u64, u64)> { Box::new(progress::bar_of_records("dumping")) });
        Progress {
            show,
            written: Cell::new(0),
            trees: Cell::new(0),
            damaged: Cell::new(0),
            newer: Cell::new(0),
            total: if is_whole { progress::records_of(store) } else { 0 },
        }
    }

    fn tell(&self) {
        let written = self.written.get() + 1;
        self.written.set(written);
        if let Some(show) = self.show.as_ref().filter(|_| written.is_multiple_of(TOLD_EVERY)) {
            show(written, self.total);
        }
    }
}

/// A dump under way.
struct Dump<'a> {
    arguments: &'a Arguments,
    /// Damage that was told of.
    passed_over: BTreeSet<String>,
    progress: Progress,
    output: &'a mut Output,
}

impl Dump<'_> {
    /// The default collection of a store that keeps no order.
    fn unordered(&mut self, store: &Store, of: &Line) -> Result<(), Failure> {
        let Dump { arguments, passed_over, progress, output } = self;
        let take = |id, key: &[u8], record: Record| match id == store.id() {
            true => write_line((store, arguments), of, (key, &record), progress, output),
            false => Ok(()),
        };
        if !arguments.skip_damaged {
            return store.for_each(take);
        }
        // Records of all collections are met: those of the others are told when theirs are read.
        store.for_each_undamaged(take, |error| {
            pass_over("", &error, passed_over);
            Ok(())
        })
    }

    /// A collection, in its order.
    fn collection(&mut self, store: &Store, of: &Line, collection: &Collection) -> Result<(), Failure> {
        let Dump { arguments, passed_over, progress, output } = self;
        // In another order than that of bytes, keys that begin alike do not lie together.
        let prefix = arguments.prefix.as_bytes();
        let scan = if collection.order().is_some() { ScanOptions::all() } else { ScanOptions::prefix(prefix) };
        let mut write =
            |key: &[u8], record: &Record| write_line((store, arguments), of, (key, record), progress, output);
        if arguments.skip_damaged {
            return dump_undamaged(collection, scan, &mut write, passed_over);
        }
        for item in collection.scan(scan) {
            let (key, record) = item?;
            write(&key, &record)?;
        }
        Ok(())
    }
}

/// A record as a line, if its key begins as was asked.
fn write_line(
    (store, arguments): (&Store, &Arguments),
    of: &Line,
    (key, record): (&[u8], &Record),
    progress: &Progress,
    output: &mut Output,
) -> Result<(), Failure> {
    if !key.starts_with(arguments.prefix.as_bytes()) {
        return Ok(());
    }
    let (collection, list, order) = (of.collection.clone(), of.list.clone(), of.order.clone());
    let mut line = Line { collection, list, order, ..Line::new(key, record) };
    if line.collection.is_none() && line.list.is_none() && trees::is_root(record) {
        match trees::packed(store, key, record) {
            Ok(Some(value)) => (line.value, line.value_base64) = text_or_base64(&value),
            Ok(None) => {
                progress.trees.set(progress.trees.get() + 1);
                return Ok(());
            }
            Err(failure) => {
                let count = match failure.exit {
                    Exit::Corrupt if arguments.skip_damaged => &progress.damaged,
                    Exit::Unsupported if arguments.skip_damaged => &progress.newer,
                    _ => return Err(failure),
                };
                say!("{}; passed over", failure.message);
                count.set(count.get() + 1);
                return Ok(());
            }
        }
    }
    progress.tell();
    arguments.format.write(&line, output)
}

/// What all lines of a collection say.
fn line_of(found: &OpenedCollection, name: String) -> Line {
    let order = found.records.order().map(str::to_owned);
    match found.kind {
        Kind::List => Line { list: Some(name), ..Line::default() },
        _ => Line { collection: Some(name), order, ..Line::default() },
    }
}

/// Keys from the index, then each record by itself, so that one that is damaged does not hide the
/// others. Where single keys cannot be asked for, a scan goes on after what it cannot read.
fn dump_undamaged(
    collection: &Collection,
    scan: ScanOptions,
    write: &mut impl FnMut(&[u8], &Record) -> Result<(), Failure>,
    passed_over: &mut BTreeSet<String>,
) -> Result<(), Failure> {
    let has_points = has_points(collection);
    let scan = if has_points { scan.keys_only() } else { scan };
    for item in collection.scan(scan) {
        let read = match item {
            Ok((key, _)) if has_points => match collection.get(&key) {
                Ok(record) => Ok(record.map(|record| (key, record))),
                Err(error) => Err((format!("key `{}`: ", key.escape_ascii()), error)),
            },
            Ok(item) => Ok(Some(item)),
            Err(error) => Err((String::new(), error)),
        };
        match read {
            Ok(Some((key, record))) => write(&key, &record)?,
            Ok(None) => {}
            Err((at, error)) if error.kind() == ErrorKind::Corrupt || has_points && error.kind() == ErrorKind::Io => {
                pass_over(&at, &error, passed_over);
            }
            Err((_, error)) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Tells of damage, once.
fn pass_over(at: &str, error: &stratakv::Error, passed_over: &mut BTreeSet<String>) {
    if passed_over.insert(error.to_string()) {
        say!("{at}{error}; passed over");
    }
}
