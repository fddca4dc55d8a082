//! How far an import is, in a file (`--resume`): written after all that it names is durable in the
//! store, and read by the next run. It never names a record that is not in the store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use stratakv::{Collection, Engine, Store};
use stratakv_base::quantity::format_count;
use xxhash_rust::xxh3::xxh3_128;

use super::tally::Tally;
use crate::count::parse_some;
use crate::failure::{Exit, Failure};
use crate::load::name_of;
use crate::say::say;
use crate::write_queue::Written;

/// Of the file; others are refused.
const VERSION: u32 = 1;
/// Bytes at the head of a source file that tell it from others.
const HEAD_BYTES: u64 = 64 << 10;
/// A checkpoint is written after so many records, unless others are asked for,
const RECORDS: u64 = 10_000;
/// or after so many bytes.
const BYTES_MAX: u64 = 256 << 20;

/// How an import resumes.
#[derive(Args)]
pub(crate) struct ResumeArguments {
    /// Keep how far the import is in this file, and go on from there if it exists. It is removed
    /// at the end; of lines from stdin only if `export --resume` wrote them
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write that file after so many records, and after 256 MiB [default: 10000]
    #[arg(long, value_name = "N", requires = "resume", value_parser = parse_some)]
    checkpoint_records: Option<u64>,
}

/// What is imported, as a checkpoint knows it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum SourceIdentity {
    /// A file: its length, when it was written, and a hash of its head.
    File { bytes: u64, modified_s: i64, modified_ns: i64, head_xxh3: String },
    /// Lines from stdin: their hash stands beside the position.
    Stream,
    /// A Redis: `run_id`, which it draws at each start. `None`: it tells none.
    Redis { run_id: Option<String> },
}

/// How far the source is read. All before it is in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Position {
    /// Bytes of the file.
    #[serde(default)]
    pub(crate) offset: u64,
    /// Lines of the file.
    #[serde(default)]
    pub(crate) line: u64,
    /// Of `SCAN`: where it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
    /// Of lines from stdin: the hash of these bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) xxh3: Option<String>,
    /// The last key, in base64: `export --resume` goes on behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_key_base64: Option<String>,
}

/// What stands in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    version: u32,
    store: String,
    collection: u32,
    /// Those that say what a record becomes.
    options: String,
    source: SourceIdentity,
    position: Position,
    written: Written,
    passed_over: u64,
    left_out: Tally,
}

/// A checkpoint that was read, or is to be begun. The store is not known yet.
pub(crate) struct Resume {
    file: PathBuf,
    every: u64,
    source: SourceIdentity,
    options: String,
    saved: Option<Saved>,
}

/// The checkpoint of an import under way.
pub(crate) struct Checkpoint {
    file: PathBuf,
    every: u64,
    saved: Saved,
    /// An earlier run wrote so much.
    before: Written,
    passed_over_before: u64,
    /// Records, and bytes written, as of the last one.
    records_since: u64,
    bytes_at: u64,
    /// Where the source is, if that is not saved.
    reached: Option<Position>,
}

impl ResumeArguments {
    /// The option, if it was given.
    pub(super) fn named(&self) -> Option<&'static str> {
        self.resume.is_some().then_some("--resume")
    }

    /// Reads the file, if there is one. `options`: those that say what a record becomes.
    ///
    /// # Errors
    /// It is no checkpoint, or one of another source.
    pub(super) fn begin(
        &self,
        options: String,
        source: impl FnOnce() -> Result<SourceIdentity, Failure>,
    ) -> Result<Option<Resume>, Failure> {
        let Some(file) = self.resume.clone() else { return Ok(None) };
        let every = self.checkpoint_records.unwrap_or(RECORDS);
        let mut resume = Resume { saved: read(&file)?, file, every, source: source()?, options };
        resume.compare()?;
        Ok(Some(resume))
    }
}

impl Resume {
    /// Whether the checkpoint is of this source and these options.
    fn compare(&mut self) -> Result<(), Failure> {
        let Some(saved) = &self.saved else { return Ok(()) };
        let shown = self.file.display();
        if saved.options != self.options {
            return Err(Failure::usage(format!(
                "{shown} is of an import with other options: {}; now they are: {}. Give the same, or remove {shown} to begin again",
                saved.options, self.options
            )));
        }
        let difference = match (&saved.source, &self.source) {
            (SourceIdentity::Redis { run_id: was }, SourceIdentity::Redis { run_id: is }) => {
                // Cursors are those of one process.
                if is.is_none() || was != is {
                    let why = if is.is_none() { "does not tell its run_id" } else { "was started again since" };
                    say!("the server {why}, so the cursor in {shown} is not its own: the import begins again");
                    self.saved = None;
                }
                return Ok(());
            }
            (SourceIdentity::File { bytes: was, .. }, SourceIdentity::File { bytes: is, .. }) if was != is => {
                format!("it had {was} bytes, and has {is}")
            }
            (was, is) if was == is => return Ok(()),
            (SourceIdentity::File { head_xxh3: was, .. }, SourceIdentity::File { head_xxh3: is, .. }) if was == is => {
                "it was written to since".to_owned()
            }
            (SourceIdentity::File { .. }, SourceIdentity::File { .. }) => "it begins with other bytes".to_owned(),
            _ => "that one was of another kind".to_owned(),
        };
        Err(Failure::usage(format!(
            "this is not the source that {shown} stands in: {difference}. Import that one, or remove {shown} to begin again"
        )))
    }

    /// Where an earlier run stood.
    pub(crate) fn position(&self) -> Option<&Position> {
        self.saved.as_ref().map(|saved| &saved.position)
    }

    /// The checkpoint of an import into this collection.
    ///
    /// # Errors
    /// The records of the earlier run are in another store or collection, or the store keeps none.
    pub(crate) fn of_store(self, store: &Store, collection: &Collection) -> Result<Checkpoint, Failure> {
        if store.engine() == Engine::Tier {
            return Err(Failure::new(
                Exit::Unsupported,
                "a cache (engine `tier`) may drop any record at any time, so nothing can be said of what is there: import without --resume",
            ));
        }
        let Resume { file, every, source, options, saved } = self;
        let (store, collection) = (store.uuid().to_owned(), collection.id().0);
        if let Some(saved) = &saved {
            let shown = file.display();
            if saved.store != store || saved.collection != collection {
                return Err(Failure::usage(format!(
                    "the records that {shown} counts are in another store or collection: name that one (--data, --collection), or remove {shown} to begin \
                     again"
                )));
            }
            let records = format_count(saved.written.records, "record");
            say!("going on from {shown}: {records} are there from the runs before");
        }
        let new = || Saved {
            version: VERSION,
            store,
            collection,
            options,
            source: source.clone(),
            position: Position::default(),
            written: Written::default(),
            passed_over: 0,
            left_out: Tally::default(),
        };
        let saved = saved.unwrap_or_else(new);
        let (before, passed_over_before) = (saved.written, saved.passed_over);
        Ok(Checkpoint { file, every, saved, before, passed_over_before, records_since: 0, bytes_at: 0, reached: None })
    }
}

impl Checkpoint {
    /// Where the import begins, if an earlier run was part of it.
    pub(crate) fn begun_at(&self) -> Option<Position> {
        (self.saved.position != Position::default()).then(|| self.saved.position.clone())
    }

    /// What earlier runs left out.
    pub(super) fn left_out(&self) -> Tally {
        self.saved.left_out.clone()
    }

    /// Rows that earlier runs passed over.
    pub(crate) fn passed_over_before(&self) -> u64 {
        self.passed_over_before
    }

    /// So many more records were taken. Whether a checkpoint is due.
    pub(crate) fn is_due(&mut self, records: u64, written: Written) -> bool {
        self.records_since += records;
        self.records_since >= self.every || written.bytes.saturating_sub(self.bytes_at) >= BYTES_MAX
    }

    /// The source is read up to there.
    pub(crate) fn at(&mut self, position: Position) {
        self.reached = Some(position);
    }

    /// Saves how far the source is read. Everything up to there must have been written.
    ///
    /// # Errors
    /// The store cannot make it durable, or the file cannot be written.
    pub(crate) fn save(
        &mut self,
        store: &Store,
        written: Written,
        passed_over: u64,
        left_out: &Tally,
    ) -> Result<(), Failure> {
        let Some(position) = self.reached.take() else { return Ok(()) };
        store.sync()?;
        self.saved.position = position;
        self.saved.written = self.before.and(written);
        self.saved.passed_over = passed_over;
        self.saved.left_out = left_out.clone();
        self.records_since = 0;
        self.bytes_at = written.bytes;
        let text = serde_json::to_vec_pretty(&self.saved)
            .map_err(|error| Failure::failed(format!("cannot make a checkpoint: {error}")))?;
        replace(&self.file, &text).map_err(|error| {
            Failure::failed(format!(
                "cannot write the checkpoint {}: {error}. What it said before holds; make room there, and run this again",
                self.file.display()
            ))
        })
    }

    /// What all runs together wrote.
    pub(crate) fn all(&self, written: Written) -> Option<Written> {
        (self.before != Written::default()).then(|| self.before.and(written))
    }

    /// What to do after a failure.
    pub(crate) fn advice(&self) -> String {
        format!("run the same command again to go on from {}", self.file.display())
    }

    /// The source gave no more, and nothing says whether that is its end.
    pub(crate) fn keep(self) {
        let (shown, lines) = (self.file.display(), format_count(self.saved.position.line, "line"));
        say!(
            "stdin ended behind {lines}, which are written; {shown} is kept. If what wrote them came to its end, remove {shown}; else run the same command again"
        );
    }

    /// The source is read to its end: there is nothing to go on with.
    pub(crate) fn end(self) {
        if let Err(error) = fs::remove_file(&self.file)
            && error.kind() != ErrorKind::NotFound
        {
            say!("cannot remove {}: {error}; the import is complete, remove it yourself", self.file.display());
        }
    }
}

/// A checkpoint; `None`: there is no such file.
fn read(file: &Path) -> Result<Option<Saved>, Failure> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::failed(format!("cannot read {}: {error}", file.display()))),
    };
    let saved = serde_json::from_slice::<Saved>(&text).map_err(|error| error.to_string());
    let known = saved.and_then(|saved| match saved.version {
        VERSION => Ok(saved),
        other => Err(format!("its version is {other}, and {VERSION} is known")),
    });
    known.map(Some).map_err(|why| {
        Failure::usage(format!(
            "{} is no checkpoint of an import: {why}. Name another file, or remove it to begin again",
            file.display()
        ))
    })
}

/// Replaces a file: the old one or the new one is there after a crash.
fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let partial = file.with_file_name(name);
    let mut output = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    output.write_all(content)?;
    output.sync_all()?;
    fs::rename(&partial, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// What tells a file from others.
///
/// # Errors
/// It cannot be read, or is none, such as a pipe.
pub(super) fn identity_of(file: &Path) -> Result<SourceIdentity, Failure> {
    let shown = name_of(file);
    let none = || {
        Failure::usage(format!(
            "--resume takes a file whose position can be found again, and {shown} is none: save it to a file, or give lines of JSON on stdin"
        ))
    };
    let failed = |error: io::Error| Failure::failed(format!("cannot read {shown}: {error}"));
    if file == Path::new("-") {
        return Err(none());
    }
    let opened = File::open(file).map_err(failed)?;
    let found = opened.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(none());
    }
    let mut head = Vec::new();
    opened.take(HEAD_BYTES).read_to_end(&mut head).map_err(failed)?;
    Ok(SourceIdentity::File {
        bytes: found.len(),
        modified_s: found.mtime(),
        modified_ns: found.mtime_nsec(),
        head_xxh3: format!("{:032x}", xxh3_128(&head)),
    })
}

#[cfg(test)]
#[path = "../../tests/unit/import/checkpoint.rs"]
mod tests;
