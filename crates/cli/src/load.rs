//! `stratakv load`: many writes in flight from one thread.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use clap::Args;
use stratakv::limits::VALUE_BYTES_MAX;
use stratakv::{Collection, CollectionId, Error, Expect, Key, Kind, Order, OrderError, Store};
use stratakv_base::quantity::{format_bytes, format_count};

use crate::failure::Failure;
use crate::import::{Checkpoint, JsonLines, Position, Tally, tell_all};
use crate::json_line::{Named, Parsed};
use crate::opening::{DurabilityArguments, EngineArguments, MadeCollectionArguments, OpenArguments};
use crate::progress;
use crate::say::say;
use crate::write_queue::{NewRecord, RefusedWrite, WriteQueue};

/// Progress is told of so many lines at a time.
const TOLD_EVERY: u64 = 256;

/// Read lines of JSON, as `dump` writes them; the store is created if there is none
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv load backup.jsonl\n  zcat backup.jsonl.gz | stratakv load --data copy -
  stratakv load --durability process_crash --skip-errors big.jsonl
  stratakv load --engine matrix --sorted backup.jsonl
  stratakv load --collection scores --order stratakv.numeric scores.jsonl

Records that exist are overwritten. A line's \"collection\" says where it goes, else \
--collection does; both are made if there are none. At the first line that is bad or cannot be \
written it stops with its number and exit code 1: all lines before it are written, and of those \
after it at most 256. With --skip-errors it reports, counts and passes over malformed lines.

With --sorted engine `matrix` writes each byte once where nothing lies yet; lines before a bad \
one are written then, too.

A dump does not say of which engine it was taken: for a store of engine \
`hash` say --engine hash, and --region with room for it (`stratakv plan --engine hash`). A \
backup does: `stratakv restore`.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    collection: MadeCollectionArguments,
    /// The file; `-` for stdin
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Pass over malformed lines
    #[arg(long)]
    skip_errors: bool,
    /// The lines of each collection are in the order of its keys, each key once, as `dump` writes
    /// them
    #[arg(long)]
    sorted: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let name = name_of(&arguments.file);
    if arguments.file.join("backup.toml").exists() {
        return Err(Failure::usage(format!(
            "{name} is a backup, not lines of JSON: stratakv restore {name} --data NEW"
        )));
    }
    // Before the store is opened: a wrong file name should not leave a new store behind.
    let rows = JsonLines::new(opened(&arguments.file)?, name.clone());
    let store = arguments.open.write(&arguments.durability, Some(&arguments.engine))?;
    let load = Load {
        default: arguments.collection.write(&store)?,
        store,
        name,
        total_bytes: total_bytes(&arguments.file),
        skip_errors: arguments.skip_errors,
        sorted: arguments.sorted,
        expect: Expect::Any,
        checkpoint: None,
    };
    load.run(Box::new(rows))
}

/// A file, as it is shown.
pub(crate) fn name_of(file: &Path) -> String {
    if file == Path::new("-") { "stdin".to_owned() } else { file.display().to_string() }
}

/// A file, or stdin.
pub(crate) fn opened(file: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if file == Path::new("-") { Ok(Box::new(io::stdin().lock())) } else { opened_at(file, 0) }
}

/// A file, from this byte on.
pub(crate) fn opened_at(file: &Path, offset: u64) -> Result<Box<dyn BufRead>, Failure> {
    let opened = File::open(file).and_then(|mut opened| {
        // Not of a pipe, which has no places.
        if offset > 0 {
            opened.seek(SeekFrom::Start(offset))?;
        }
        Ok(opened)
    });
    let opened = opened.map_err(|error| Failure::failed(format!("cannot read {}: {error}", file.display())))?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, opened)))
}

/// A pipe has no length.
pub(crate) fn total_bytes(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |found| found.len())
}

/// A record as a file has it.
pub(crate) struct Row {
    pub(crate) line: u64,
    /// Or what is wrong with it.
    pub(crate) parsed: Result<Parsed, String>,
    /// How far the file is read behind it.
    pub(crate) read_bytes: u64,
}

/// Where rows come from.
pub(crate) trait Rows {
    /// The next one; `None`: there are no more.
    fn next(&mut self) -> Result<Option<Row>, Failure>;

    /// Where the source is, behind the last one.
    fn position(&self) -> Position;

    /// Whether the source had no more than what was read. A stream also ends when what writes it
    /// fails.
    fn is_end_certain(&self) -> bool {
        true
    }
}

/// What is loaded, and how.
pub(crate) struct Load {
    pub(crate) store: Store,
    /// Where rows go that name no collection.
    pub(crate) default: Collection,
    pub(crate) name: String,
    /// 0: nobody knows.
    pub(crate) total_bytes: u64,
    pub(crate) skip_errors: bool,
    pub(crate) sorted: bool,
    /// Of each row's key.
    pub(crate) expect: Expect,
    /// Of `import --resume`.
    pub(crate) checkpoint: Option<Checkpoint>,
}

impl Load {
    /// Writes all rows, says how many, and closes the store.
    ///
    /// # Errors
    /// A row is bad or cannot be written; the file cannot be read.
    pub(crate) fn run(self, rows: Box<dyn Rows>) -> Result<(), Failure> {
        let Load { store, default, name, total_bytes, skip_errors, sorted, expect, checkpoint } = self;
        let mut loader = Loader {
            default,
            store: store.clone(),
            named: HashMap::new(),
            writes: WriteQueue::new(&store)?,
            sorted: sorted.then(HashMap::new),
            expect,
            records: 0,
            bytes: 0,
            skipped: checkpoint.as_ref().map_or(0, Checkpoint::passed_over_before),
            progress: FileProgress {
                show: Box::new(progress::bar_of_bytes("loading")),
                read_bytes: checkpoint.as_ref().and_then(Checkpoint::begun_at).map_or(0, |position| position.offset),
                total_bytes,
            },
            checkpoint,
            is_end_certain: true,
        };
        let started = Instant::now();
        let result = loader.load(rows, &name, skip_errors);
        let drained = loader.writes.drain().and(loader.finish());
        loader.report(&name, started);
        let refused = loader.writes.take_refused();
        // A write that was refused comes from an earlier line than the one being read.
        let ended = match refused {
            Some(RefusedWrite { number, failure, .. }) => Err(failure.at(format!("{name}: line {number}"))),
            None => result.and(drained),
        };
        let ended = loader.end_checkpoint(ended);
        drop(loader);
        store.close()?;
        ended
    }
}

struct Loader {
    store: Store,
    /// Where lines go that name no collection, and those that do.
    default: Collection,
    named: HashMap<Named, Collection>,
    writes: WriteQueue,
    /// With `--sorted`: each collection's records go through its loader, and nothing is in flight.
    sorted: Option<HashMap<CollectionId, stratakv::Loader>>,
    expect: Expect,
    /// Of `--sorted`, beside those that went through `writes`.
    records: u64,
    bytes: u64,
    skipped: u64,
    progress: FileProgress,
    checkpoint: Option<Checkpoint>,
    /// Whether that can be removed once all is written.
    is_end_certain: bool,
}

/// How far the file is read.
struct FileProgress {
    show: Box<dyn Fn(u64, u64)>,
    read_bytes: u64,
    total_bytes: u64,
}

impl Loader {
    fn load(&mut self, mut rows: Box<dyn Rows>, name: &str, skip_errors: bool) -> Result<(), Failure> {
        let mut taken = 0u64;
        while !self.writes.is_refused() {
            let Some(Row { line, parsed, read_bytes }) = rows.next()? else { break };
            self.progress.read_bytes += read_bytes;
            taken += 1;
            if taken.is_multiple_of(TOLD_EVERY) {
                (self.progress.show)(self.progress.read_bytes, self.progress.total_bytes);
            }
            match parsed {
                Ok(parsed) => {
                    let taken = self.take(line, parsed);
                    taken.map_err(|failure| failure.at(format!("{name}: line {line}")))?;
                }
                Err(why) if skip_errors => {
                    say!("{name}: line {line}: {why}; passed over");
                    self.skipped += 1;
                }
                Err(why) => {
                    let advice = "correct it, or pass over bad lines with --skip-errors";
                    return Err(Failure::failed(format!("{name}: line {line}: {why}; {advice}")));
                }
            }
            self.reached(rows.as_ref(), false)?;
        }
        self.is_end_certain = rows.is_end_certain();
        if self.is_end_certain { Ok(()) } else { self.reached(rows.as_ref(), true) }
    }

    /// The row before was taken. Writes a checkpoint, if one is due, or this was the last row.
    fn reached(&mut self, rows: &dyn Rows, is_last: bool) -> Result<(), Failure> {
        let Some(checkpoint) = &mut self.checkpoint else { return Ok(()) };
        if !is_last && !checkpoint.is_due(1, self.writes.written()) {
            return Ok(());
        }
        self.writes.drain()?;
        match self.writes.is_refused() {
            true => Ok(()),
            false => {
                checkpoint.at(rows.position());
                checkpoint.save(&self.store, self.writes.written(), self.skipped, &Tally::default())
            }
        }
    }

    /// An import that reached its end needs its checkpoint no more; another one says what to do.
    fn end_checkpoint(&mut self, ended: Result<(), Failure>) -> Result<(), Failure> {
        let Some(checkpoint) = self.checkpoint.take() else { return ended };
        let advice = checkpoint.advice();
        match ended {
            Ok(()) => {
                if self.is_end_certain {
                    checkpoint.end()
                } else {
                    checkpoint.keep()
                }
                Ok(())
            }
            Err(failure) => Err(Failure { message: format!("{}; then {advice}", failure.message), ..failure }),
        }
    }

    /// Begins the write that a line asks for. An error is the line's, or the session's own.
    fn take(&mut self, line: u64, parsed: Parsed) -> Result<(), Failure> {
        let Parsed { collection, key, value, flags, expiry, .. } = parsed;
        let collection = self.collection(collection)?.clone();
        let value = Bytes::from(value);
        if self.sorted.is_none() {
            let record = NewRecord { key, value, flags, expiry, expect: self.expect };
            return self.writes.write(line, &collection, record);
        }
        let value = self.writes.with_nodes(line, &collection, &key, (value, flags), Expect::Any)?;
        let Some(value) = value else { return Ok(()) };
        if let Some(loaders) = &mut self.sorted {
            let loader = loaders.entry(collection.id()).or_insert_with(|| collection.loader());
            loader.add_with(&key, &value, flags, expiry)?;
            self.bytes += (key.len() + value.len()) as u64;
        }
        Ok(())
    }

    /// Where a line goes.
    fn collection(&mut self, named: Option<Named>) -> Result<&Collection, Failure> {
        Ok(match named {
            None => &self.default,
            Some(named) => {
                if !self.named.contains_key(&named) {
                    // Made by a blocking call, which must not wait for writes of this thread's own
                    // session.
                    self.writes.drain()?;
                }
                match self.named.entry(named) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let collection = made(&self.store, new.key())?;
                        new.insert(collection)
                    }
                }
            }
        })
    }

    /// Loads what `--sorted` has waiting. What came before a bad line is written all the same.
    fn finish(&mut self) -> Result<(), Failure> {
        let mut finished = Ok(());
        for (_, loader) in self.sorted.iter_mut().flat_map(HashMap::drain) {
            let before = loader.loaded();
            match loader.finish() {
                Ok(records) => self.records += records,
                Err(error) => (self.records, finished) = (self.records + before, finished.and(Err(error.into()))),
            }
        }
        finished
    }

    fn report(&self, name: &str, started: Instant) {
        let seconds = started.elapsed().as_secs_f64().max(1e-6);
        let written = self.writes.written();
        let (records, bytes) = (self.records + written.records, self.bytes + written.bytes);
        let (rate, byte_rate) = (records as f64 / seconds, format_bytes((bytes as f64 / seconds) as u64));
        let (records, bytes) = (format_count(records, "record"), format_bytes(bytes));
        let skipped = match self.skipped {
            0 => String::new(),
            skipped => format!(", {} passed over", format_count(skipped, "bad line")),
        };
        say!("{records} ({bytes}) loaded from {name} in {seconds:.1} s: {rate:.0} records/s, {byte_rate}/s{skipped}");
        let all = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.all(written));
        tell_all(all);
        let unmet = all.unwrap_or(written).unmet;
        if unmet > 0 {
            let kept = format_count(unmet, "record");
            say!("left out: {kept}: their keys are there already (--keep-existing)");
        }
    }
}

/// The collection that a line names, made if there is none.
fn made(store: &Store, named: &Named) -> Result<Collection, Failure> {
    let name = &named.name;
    Ok(match (named.kind, &named.order) {
        (Kind::List, _) => store.list(name)?.records().clone(),
        (_, Some(order)) => match store.collection_in_order(name, order) {
            Err(Error::Order(OrderError::Unknown { .. })) if store.kind_of(name)?.is_none() => {
                return Err(Failure::usage(format!(
                    "there is no collection `{name}`, and to make it in the order `{order}` takes that order's function, which is not built in ({} are): load \
                     it with the program that has the function, or restore a backup",
                    Order::BUILT_IN.join(", ")
                )));
            }
            found => found?,
        },
        (_, None) => store.collection(name)?,
    })
}

/// A record, if the store takes it.
pub(crate) fn taken(parsed: Parsed) -> Result<Parsed, String> {
    Key::new(CollectionId::default(), &parsed.key).map_err(|error| error.to_string())?;
    if parsed.value.len() > VALUE_BYTES_MAX {
        return Err(format!("the value has {} bytes, the most is {VALUE_BYTES_MAX}", parsed.value.len()));
    }
    Ok(parsed)
}
