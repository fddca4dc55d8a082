//! Backups: a directory with a file for each shard, and `backup.toml` written last. docs/backup.md
//! draws the files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stratakv_base::checksum::crc32c;
use stratakv_base::codec::{Reader, Truncated};
use stratakv_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use stratakv_base::quantity::{format_bytes, format_count};
use stratakv_base::{CollectionId, Expiry, Key, Level};
use stratakv_engine::{Capability, Error as EngineError, Item, LoadRecord, Operation, Reply, SnapshotOp};

use crate::catalogue::CATALOGUE;
use crate::directory::{io_error, make, write_durably};
use crate::engine::Engine;
use crate::error::Error;
use crate::load::Chunks;
use crate::options::{OpenProgress, OpenPurpose, Options, Placement, Whose};
use crate::store::{Store, unexpected_reply};

const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"STRBKUP\0";
/// Longest block that is believed: a record of the longest kind beside a full piece, twice over.
const BLOCK_BYTES_MAX: u32 = 3 * (VALUE_BYTES_MAX + KEY_BYTES_MAX + 4096) as u32;
/// A block has no more than so many bytes and one record.
const BLOCK_BYTES: usize = 4 << 20;
const UNFINISHED: &str = "restore.unfinished";

/// What a backup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// Records of users: those of all collections. The catalogue, which names these, comes besides.
    pub records: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// What [`Store::backup_watched`] tells of its progress.
pub type BackupWatch<'a> = dyn Fn(&BackupSummary) -> bool + Sync + 'a;

/// `backup.toml`: there once the backup is complete.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    /// The store's.
    uuid: String,
    shards: u32,
    /// The store's. Backups of before there was another than `slab` do not name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    engine: Option<String>,
    /// `packed`, or nothing for `in_place`. Older programs do not look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placement: Option<String>,
    /// Length of the region of a store of engine `hash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    region_bytes: Option<u64>,
    /// All records in its files, those of the catalogue too.
    records: u64,
    /// Of these, the catalogue's. Backups of before this was told do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    catalogue_records: Option<u64>,
    bytes: u64,
}

/// What was written of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) summary: BackupSummary,
    pub(crate) catalogue_records: u64,
}

impl Store {
    /// Writes a backup into `directory`, which must be empty or not exist, while the store goes on
    /// serving. It holds what was written to each shard up to one moment, batches whole; nothing
    /// later. The files are durable when it returns. One backup at a time.
    ///
    /// # Errors
    /// The directory cannot be written, a record is damaged, or writes overtook the backup
    /// ([`ErrorKind::Unknown`](crate::ErrorKind::Unknown): try again, with more memory for the
    /// store).
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<BackupSummary, Error> {
        self.backup_watched(directory.as_ref(), &|_| true)
    }

    /// As [`Store::backup`]. `watch` is told what each piece has added to the backup, by several
    /// threads, and answers whether to go on.
    ///
    /// # Errors
    /// As of [`Store::backup`]; also if `watch` called it off. What was written stays in the
    /// directory, which is no backup without `backup.toml`.
    pub fn backup_watched(&self, directory: &Path, watch: &BackupWatch<'_>) -> Result<BackupSummary, Error> {
        self.inner().check_not_forked()?;
        if self.engine() == Engine::Tier {
            // Before anything is made.
            return Err(EngineError::Unsupported(Capability::Backup).into());
        }
        make(directory)?;
        let mut entries = fs::read_dir(directory).map_err(io_error("list", directory))?;
        if entries.next().is_some() {
            return Err(Error::Option(format!(
                "{} is not empty: name a new directory for the backup",
                directory.display()
            )));
        }
        let cursor = match self.execute(Operation::Backup { cursor: 0, shard: 0 }) {
            Reply::Number { number, .. } => number,
            Reply::Failed(error) => return Err(error.into()),
            _ => return Err(unexpected_reply()),
        };
        let done = self.write_backup(cursor, directory, watch);
        if done.is_err() {
            self.end_backup(cursor);
        }
        done
    }

    /// Lets go of what an engine keeps for a backup that comes to no end.
    pub(crate) fn end_backup(&self, cursor: u64) {
        // With `hash` it is a snapshot; with `slab` nothing is kept, and this is refused.
        let _ = self.execute(Operation::Snapshot(SnapshotOp::Close(cursor)));
    }

    fn write_backup(&self, cursor: u64, directory: &Path, watch: &BackupWatch<'_>) -> Result<BackupSummary, Error> {
        let written: Vec<Result<Written, Error>> = thread::scope(|scope| {
            let write = |shard| scope.spawn(move || self.backup_shard(shard, cursor, directory, watch));
            let threads: Vec<_> = (0..self.shards() as u32).map(write).collect();
            let gone = || Error::Option("a thread that wrote a backup ended by a panic".into());
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(gone()))).collect()
        });
        let (mut summary, mut catalogue_records) = (BackupSummary::default(), 0);
        for written in written {
            let written = written?;
            summary.records += written.summary.records;
            summary.bytes += written.summary.bytes;
            catalogue_records += written.catalogue_records;
        }
        let (region, shards) = (self.region(), self.shards() as u32);
        let manifest = Manifest {
            format: FORMAT,
            uuid: self.inner().identity.uuid.clone(),
            shards,
            engine: region.map(|_| self.engine().name().to_owned()),
            placement: self.placement().filter(|had| *had == Placement::Packed).map(|had| had.name().to_owned()),
            region_bytes: region.map(|region| region.len_bytes),
            records: summary.records + catalogue_records,
            catalogue_records: Some(catalogue_records),
            bytes: summary.bytes,
        };
        let text = toml::to_string(&manifest).map_err(|error| Error::Option(error.to_string()))?;
        write_durably(
            directory,
            "backup.toml",
            &format!("# A backup of a StrataKV store. Restore it with `stratakv restore`.\n{text}"),
        )?;
        Ok(summary)
    }

    fn backup_shard(
        &self,
        shard: u32,
        cursor: u64,
        directory: &Path,
        watch: &BackupWatch<'_>,
    ) -> Result<Written, Error> {
        let path = directory.join(file_name(shard));
        let failed = |error| io_error("write", &path)(error);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        let mut blocks = Blocks::begin(BufWriter::with_capacity(1 << 20, file), shard).map_err(failed)?;
        loop {
            match self.execute(Operation::Backup { cursor, shard }) {
                Reply::Page { items, next } => {
                    let before = blocks.written.summary;
                    blocks.write(&items).map_err(failed)?;
                    let BackupSummary { records, bytes } = blocks.written.summary;
                    let added = BackupSummary { records: records - before.records, bytes: bytes - before.bytes };
                    if !watch(&added) {
                        return Err(Error::Option("the backup was called off".into()));
                    }
                    if next.is_none() {
                        break;
                    }
                }
                Reply::Failed(error) => return Err(error.into()),
                _ => return Err(unexpected_reply()),
            }
        }
        let (file, written) = blocks.end().map_err(failed)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        Ok(written)
    }
}

fn file_name(shard: u32) -> String {
    format!("shard-{shard:03}.backup")
}

/// The blocks of a shard's file, as they are written.
pub(crate) struct Blocks<W> {
    file: W,
    shard: u32,
    number: u64,
    written: Written,
}

impl<W: Write> Blocks<W> {
    pub(crate) fn begin(mut file: W, shard: u32) -> io::Result<Blocks<W>> {
        file.write_all(&header(shard))?;
        let summary = BackupSummary { records: 0, bytes: HEADER_BYTES as u64 };
        Ok(Blocks { file, shard, number: 0, written: Written { summary, catalogue_records: 0 } })
    }

    pub(crate) fn write(&mut self, items: &[Item]) -> io::Result<()> {
        // A record at a time, so that a block is no longer than it must be.
        for items in items.chunks(64) {
            let mut body = Vec::new();
            for item in items {
                let Some(record) = &item.record else { continue };
                encode(&item.key, record, &mut body);
                match is_of_user(&item.key) {
                    true => self.written.summary.records += 1,
                    false => self.written.catalogue_records += 1,
                }
                if body.len() > BLOCK_BYTES {
                    self.block(&std::mem::take(&mut body))?;
                }
            }
            if !body.is_empty() {
                self.block(&body)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, body: &[u8]) -> io::Result<()> {
        self.file.write_all(&(body.len() as u32).to_le_bytes())?;
        self.file.write_all(&crc(self.shard, self.number, body).to_le_bytes())?;
        self.file.write_all(body)?;
        self.number += 1;
        self.written.summary.bytes += 8 + body.len() as u64;
        Ok(())
    }

    /// The last block is empty, so that a file that was cut short is noticed.
    pub(crate) fn end(mut self) -> io::Result<(W, Written)> {
        self.block(&[])?;
        Ok((self.file, self.written))
    }
}

pub(crate) const HEADER_BYTES: usize = 16;

pub(crate) fn header(shard: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..].copy_from_slice(&shard.to_le_bytes());
    header
}

/// Whether a record is a user's: what is counted wherever records are.
fn is_of_user(key: &Key) -> bool {
    key.collection() < CATALOGUE
}

/// Tied to the shard and the block's place in the file.
pub(crate) fn crc(shard: u32, number: u64, body: &[u8]) -> u32 {
    crc32c(crc32c(crc32c(0, &shard.to_le_bytes()), &number.to_le_bytes()), body)
}

/// Bits of a key's length; above them, the milliseconds of the expiry.
const KEY_BITS: u32 = 22;
const KEY_MASK: u32 = (1 << KEY_BITS) - 1;

fn encode(key: &Key, record: &stratakv_engine::Record, out: &mut Vec<u8>) {
    let (seconds, millis) = (record.expiry.0 / 1000, (record.expiry.0 % 1000) as u32);
    let key_word = key.encoded().len() as u32 | millis << KEY_BITS;
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    for field in [key_word, record.value.len() as u32, record.flags, seconds] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&record.version.to_le_bytes());
    out.extend_from_slice(key.encoded());
    record.value.slices().for_each(|slice| out.extend_from_slice(slice));
}

fn decode(reader: &mut Reader<'_>) -> Result<Option<LoadRecord>, Truncated> {
    let (key_word, value_bytes, flags) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (key_bytes, millis) = (key_word & KEY_MASK, key_word >> KEY_BITS);
    let expiry = u64::from(reader.u32()?) * 1000 + u64::from(millis);
    let _version = reader.u64()?;
    let key = Key::from_encoded(reader.bytes(key_bytes as usize)?);
    let value = Bytes::copy_from_slice(reader.bytes(value_bytes as usize)?);
    // What no store writes: a record of the engine's own would be taken for a prepare record.
    let key = key.filter(|key| key.collection() != CollectionId::ENGINE && value_bytes as usize <= VALUE_BYTES_MAX);
    Ok(key.map(|key| LoadRecord { key, value, flags, expiry: Expiry(expiry) }))
}

/// Makes a new store in `directory` from a backup: every record, in its collection, with flags and
/// expiry; versions are made anew. `options` says how (shards, level, data directories). Where
/// it does not name an engine or a placement, that of the store that was backed up is taken; a
/// region that it gives no length has that of the one that was backed up, or more if the records
/// want it. There must be no store yet. If it is interrupted, what is there refuses to open, and
/// is to be removed.
///
/// # Errors
/// There is a store, the backup is not complete or is damaged, the region asked for cannot hold it,
/// the new store is full.
pub fn restore(from: impl AsRef<Path>, directory: impl AsRef<Path>, options: &Options) -> Result<BackupSummary, Error> {
    let (from, directory) = (from.as_ref(), directory.as_ref());
    let manifest = read_manifest(from)?;
    if directory.join("store.toml").exists() {
        refuse_unfinished(directory, false)?;
        return Err(Error::Exists { path: directory.into() });
    }
    let options = restoring(from, directory, &manifest, options)?;
    make(directory)?;
    write_durably(
        directory,
        UNFINISHED,
        "A restore is under way, or was interrupted: then remove this directory and restore again.\n",
    )?;
    let store = options.open(directory).inspect_err(|_| {
        // Nothing was made: the mark is of nothing either. One that stays is as good as that of a
        // restore.
        if !directory.join("store.toml").exists() {
            let _ = remove_mark(directory);
        }
    })?;
    let (mut records, mut of_users) = (0, 0);
    let mut progress = RestoreProgress { done_bytes: 0, told_bytes: 0, total_bytes: manifest.bytes, watch: &options };
    for shard in 0..manifest.shards {
        let restored = restore_file(&store, &from.join(file_name(shard)), shard, &mut progress)?;
        (records, of_users) = (records + restored.0, of_users + restored.1);
    }
    if records != manifest.records {
        let why = format!("it has {records} records and should have {}; use another backup", manifest.records);
        return Err(Error::Damaged { path: from.into(), why });
    }
    store.close()?;
    remove_mark(directory)?;
    Ok(BackupSummary { records: of_users, bytes: manifest.bytes })
}

/// What a record has in a file beside its key and its value.
const RECORD_HEADER_BYTES: u64 = 24;
/// Progress is told of so many bytes at a time.
const TOLD_BYTES: u64 = 1 << 20;

/// How far a restore is, of the bytes of the backup.
struct RestoreProgress<'a> {
    done_bytes: u64,
    told_bytes: u64,
    total_bytes: u64,
    watch: &'a Options,
}

impl RestoreProgress<'_> {
    fn add(&mut self, bytes: u64) {
        self.done_bytes += bytes;
        let Some(watch) =
            self.watch.listeners.progress.as_ref().filter(|_| self.done_bytes >= self.told_bytes + TOLD_BYTES)
        else {
            return;
        };
        self.told_bytes = self.done_bytes;
        watch(OpenProgress { done_bytes: self.done_bytes.min(self.total_bytes), total_bytes: self.total_bytes });
    }
}

/// The store is whole.
fn remove_mark(directory: &Path) -> Result<(), Error> {
    let path = directory.join(UNFINISHED);
    let removed = fs::remove_file(&path).and_then(|()| File::open(directory)?.sync_all());
    removed.map_err(io_error("remove", &path))
}

/// What a restore knows of the store that it makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restoring {
    /// Length of the region that was backed up, if it was one.
    pub(crate) region_bytes: Option<u64>,
    /// A region of this length has room for all records, whatever their lengths.
    pub(crate) ample_bytes: u64,
}

/// In a region a header is 8 bytes longer than here, and a record is filled up to whole blocks
/// of 64.
const REGION_RECORD_BYTES: u64 = 8;
const REGION_BLOCK_BYTES: u64 = 64;

/// The options of the store that is made, before anything is.
fn restoring(from: &Path, to: &Path, manifest: &Manifest, options: &Options) -> Result<Options, Error> {
    let mut options = options.clone().create_new(true).level(Level::ProcessCrash);
    let (records, bytes) = (manifest.records, manifest.bytes);
    // Blocks have headers too, 8 bytes for each; what is less than that does not matter here.
    let least_bytes = bytes.saturating_add(records.saturating_mul(REGION_RECORD_BYTES));
    let blocks_bytes = least_bytes.saturating_add(records.saturating_mul(REGION_BLOCK_BYTES));
    // Segments that are begun by several threads, and ends of segments.
    let ample_bytes = blocks_bytes.saturating_add(blocks_bytes / 8).saturating_add(1 << 20).next_multiple_of(1 << 20);
    let had = manifest.engine.as_deref().and_then(Engine::named);
    // Only that of `hash` holds all records.
    let holds_all = options.engine.or(had) != Some(Engine::Matrix);
    if let Some(asked) = options.asked.region.bytes.filter(|asked| holds_all && *asked < least_bytes) {
        return Err(Error::Option(format!(
            "a region of {} cannot hold the {} of {}: give it {}, or leave its length out",
            format_bytes(asked),
            format_count(records, "record"),
            from.display(),
            format_bytes(ample_bytes)
        )));
    }
    let engine = options.engine.or(had).unwrap_or_default();
    options.asked.check(engine, Whose::New(to))?;
    if engine == Engine::Slab && options.asked.placement.is_none() {
        options.asked.placement = placement_of(from, manifest)?;
    }
    options.purpose = OpenPurpose::Restore(match holds_all {
        true => Restoring { region_bytes: manifest.region_bytes, ample_bytes },
        false => {
            Restoring { region_bytes: manifest.region_bytes.filter(|_| had == Some(Engine::Matrix)), ample_bytes: 0 }
        }
    });
    let Some(had) = manifest.engine.as_deref().filter(|_| options.engine.is_none()) else { return Ok(options) };
    let engine = Engine::named(had).ok_or_else(|| {
        let why = format!("engine `{had}` is unknown to this program; use a newer stratakv, or name an engine");
        Error::Damaged { path: from.join("backup.toml"), why }
    })?;
    options.engine = Some(engine);
    let shards = options.shards.filter(|shards| engine == Engine::Hash && *shards != 1);
    let refused = shards.map_or(Ok(()), |shards| Err(Error::Option(format!("{shards} shards: engine `hash` has one"))));
    refused.and_then(|()| options.check()).map_err(|error| match error {
        Error::Option(why) => Error::Option(format!(
            "{why}. The backup is of a store of engine `{had}`; with --engine slab it is restored to one of that"
        )),
        other => other,
    })?;
    Ok(options)
}

/// That of the store that was backed up.
fn placement_of(from: &Path, manifest: &Manifest) -> Result<Option<Placement>, Error> {
    match manifest.placement.as_deref() {
        None => Ok(None),
        Some(name) if name == Placement::Packed.name() => Ok(Some(Placement::Packed)),
        Some(other) => {
            let why = format!("placement `{other}` is unknown to this program; use a newer stratakv, or name one");
            Err(Error::Damaged { path: from.join("backup.toml"), why })
        }
    }
}

/// An interrupted restore is no store.
pub(crate) fn refuse_unfinished(directory: &Path, restoring: bool) -> Result<(), Error> {
    let path = directory.join(UNFINISHED);
    if restoring || !path.try_exists().map_err(io_error("look for", &path))? {
        return Ok(());
    }
    Err(Error::Unfinished { path: directory.into() })
}

fn read_manifest(from: &Path) -> Result<Manifest, Error> {
    let path = from.join("backup.toml");
    let damaged = |why: &str| Error::Damaged { path: path.clone(), why: format!("{why}; use another backup") };
    let text = match fs::read(&path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| damaged("it is not text"))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Option(format!(
                "{} holds no complete backup: backup.toml, which is written last, is missing. Name the directory of a finished backup",
                from.display()
            )));
        }
        Err(error) => return Err(io_error("read", &path)(error)),
    };
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    // The version first: a newer format may have other fields.
    match toml::from_str::<Version>(&text) {
        Ok(Version { format }) if format > FORMAT => Err(Error::NewerFormat { path, found: format, known: FORMAT }),
        Ok(_) => toml::from_str(&text).map_err(|error| damaged(error.message())),
        Err(error) => Err(damaged(error.message())),
    }
}

/// Reads a shard's file and writes its records; how many, and how many of these are users'.
fn restore_file(
    store: &Store,
    path: &Path,
    shard: u32,
    progress: &mut RestoreProgress<'_>,
) -> Result<(u64, u64), Error> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::Damaged { path: path.into(), why: "a file of the backup is missing; use another backup".into() }
        }
        _ => io_error("read", path)(error),
    })?;
    let (mut chunks, mut last) = (Chunks::new(Arc::clone(store.inner()), Level::ProcessCrash), None);
    let mut of_users = 0;
    let records = read_file(BufReader::with_capacity(1 << 20, file), path, shard, |record| {
        // Those of `matrix` are in order; of others they come as they lie.
        of_users += u64::from(is_of_user(&record.key));
        progress.add(RECORD_HEADER_BYTES + record.key.encoded().len() as u64 + record.value.len() as u64);
        if last.replace(record.key.clone()).is_some_and(|last| last >= record.key) {
            chunks.end_order()?;
        }
        chunks.push(record)
    })?;
    chunks.flush()?;
    Ok((records, of_users))
}

/// Reads what a shard's file holds, record by record; how many. `path` is what errors call it.
pub(crate) fn read_file(
    file: impl Read,
    path: &Path,
    shard: u32,
    mut take: impl FnMut(LoadRecord) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut blocks = BlockReader { file, shard, number: 0, path: path.into() };
    blocks.header()?;
    let mut records = 0;
    while let Some(body) = blocks.next()? {
        let mut reader = Reader::new(&body);
        while reader.left() > 0 {
            let record =
                decode(&mut reader).ok().flatten().ok_or_else(|| blocks.damaged("a record that makes no sense"))?;
            records += 1;
            take(record)?;
        }
    }
    Ok(records)
}

struct BlockReader<R> {
    file: R,
    shard: u32,
    number: u64,
    path: PathBuf,
}

impl<R: Read> BlockReader<R> {
    fn damaged(&self, what: &str) -> Error {
        let why = format!("block {}: {what}; use another backup", self.number);
        Error::Damaged { path: self.path.clone(), why }
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.file.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("the file was cut short"),
            _ => io_error("read", &self.path)(error),
        })
    }

    fn header(&mut self) -> Result<(), Error> {
        let mut found = [0; HEADER_BYTES];
        self.read(&mut found)?;
        let mut reader = Reader::new(&found);
        if reader.bytes(MAGIC.len()).is_ok_and(|magic| magic == MAGIC)
            && let Ok(format) = reader.u32()
            && format > FORMAT
        {
            return Err(Error::NewerFormat { path: self.path.clone(), found: format, known: FORMAT });
        }
        if found == header(self.shard) { Ok(()) } else { Err(self.damaged("not a backup of this shard")) }
    }

    /// The next block; none at the end.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut front = [0; 8];
        self.read(&mut front)?;
        let [a, b, c, d, e, f, g, h] = front;
        let (len, expected) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if len > BLOCK_BYTES_MAX {
            return Err(self.damaged("a length beyond any block's"));
        }
        let mut body = Vec::new();
        self.file.by_ref().take(u64::from(len)).read_to_end(&mut body).map_err(io_error("read", &self.path))?;
        if body.len() < len as usize {
            return Err(self.damaged("the file was cut short"));
        }
        if crc(self.shard, self.number, &body) != expected {
            return Err(self.damaged("its checksum does not match"));
        }
        self.number += 1;
        Ok((len > 0).then_some(body))
    }
}
