//! Data commands of several keys: the records are read, the commands run over them in memory, and
//! one write makes all of it so, on the condition that the records are still those that were read.
//!
//! What is read and answered has room in the memory for clients before it is asked for. Where short
//! records were expected and one is long, the lengths of all are asked first.

use std::collections::HashSet;
use std::sync::Arc;

use stratakv_base::{Key, Level};
use stratakv_engine::{Change, ChangeKind, Error, Operation, Record, RecordPart, Reply};
use stratakv_protocol::resp::encode;
use stratakv_structures::HEADER_BYTES;

use super::data::{CallSettings, DataCommand, Progress};
use super::overlay::{Overlay, ReadRecord};
use super::records::StoredRecord;
use super::reply::written;
use super::session::mixed;
use super::watching::SharedWatchList;
use super::work::{ATTEMPTS_MAX, Asked, WorkContext, error_of};
use crate::connection::{Target, hash};
use crate::server::lock;

/// Bytes of records and arguments that commands look at, after which others have their turn.
const SEEN_BYTES: usize = 4 << 20;
/// Bytes of replies for which there is room from the beginning.
const REPLY_BYTES: u64 = 4 << 10;

/// Limits of one command, or one transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManyLimits {
    /// Bytes of records and replies that it may hold.
    pub(crate) bytes_max: u64,
    /// So much of each value is asked for at first.
    pub(crate) first_bytes: u64,
    /// Whether several changes can be one.
    pub(crate) has_batches: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The records are read.
    Reading,
    /// The same of one that is too long to be looked at: its front.
    ReadingFront,
    /// Their lengths are asked.
    Measuring,
    /// The commands are carried out, and others have their turn.
    Running,
    /// What was made of them is written.
    Writing,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ManyWork {
    commands: Arc<[DataCommand]>,
    settings: CallSettings,
    limits: ManyLimits,
    /// Each once; behind those of the commands those that are only watched.
    keys: Vec<Key>,
    /// How many of them the commands have.
    named: usize,
    /// Of EXEC, whose reply is an array; with what its client watches.
    transaction: Option<Option<SharedWatchList>>,
    stage: Stage,
    /// The key that is being asked for.
    at: usize,
    overlay: Overlay,
    /// Bytes of records and replies for which it has room; `None`: as much as it begins with.
    room_bytes: Option<u64>,
    measured_bytes: u64,
    /// What it will answer once it is written.
    said: Vec<u8>,
    /// The command that is next.
    next: usize,
    changed: Vec<Changed>,
    attempts: u32,
}

/// A change that is being written.
#[derive(Clone, Debug)]
struct Changed {
    key: Key,
    is_deleted: bool,
}

impl ManyWork {
    pub(crate) fn new(
        commands: Vec<DataCommand>,
        keys: Vec<Key>,
        settings: CallSettings,
        limits: ManyLimits,
    ) -> ManyWork {
        ManyWork {
            commands: commands.into(),
            settings,
            limits,
            named: keys.len(),
            keys,
            transaction: None,
            stage: Stage::Reading,
            at: 0,
            overlay: Overlay::default(),
            room_bytes: None,
            measured_bytes: 0,
            said: Vec::new(),
            next: 0,
            changed: Vec::new(),
            attempts: 0,
        }
    }

    /// It is a transaction, of a client that watches these keys.
    pub(crate) fn in_transaction(mut self, watched: Option<SharedWatchList>) -> ManyWork {
        self.transaction = Some(watched);
        self
    }

    /// Bytes of records and replies for which it needs room to begin.
    pub(crate) fn first_bytes(&self) -> u64 {
        self.limits.first_bytes.saturating_mul(self.named as u64).min(self.limits.bytes_max) + REPLY_BYTES
    }

    /// Bytes of memory that it holds beside records and replies.
    pub(crate) fn held_bytes(&self) -> usize {
        let commands: usize = self.commands.iter().map(DataCommand::held_bytes).sum();
        let keys: usize = self.keys.iter().map(|key| size_of::<Key>() + key.user().len()).sum();
        commands + keys
    }

    /// Bytes of records and replies for which there is room.
    fn has_bytes(&self) -> u64 {
        self.room_bytes.unwrap_or_else(|| self.first_bytes())
    }

    /// Begins, or begins again.
    pub(crate) fn begin(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.at = 0;
        if let Some(Some(watched)) = &self.transaction {
            let watched = lock(watched);
            if watched.has_failed() {
                return self.is_touched();
            }
            if self.keys.len() == self.named {
                let named: HashSet<&Key> = self.keys.iter().collect();
                let others: Vec<Key> = watched.keys().into_iter().filter(|key| !named.contains(key)).collect();
                self.keys.extend(others);
            }
        }
        self.overlay = Overlay::new(self.settings.value_bytes_max, self.settings.wall);
        (self.said, self.next) = (Vec::new(), 0);
        self.changed.clear();
        self.read(context, asked)
    }

    /// A watched key is not what it was.
    fn is_touched(&self) -> Progress {
        Progress::Ended(written(|out| encode::null_array(out, self.settings.version)))
    }

    /// There is room for so many bytes.
    pub(crate) fn has_room(&mut self, bytes: u64, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.room_bytes = Some(bytes);
        self.begin(context, asked)
    }

    /// Asks for the next record; carries the commands out if there is none.
    fn read(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.stage = Stage::Reading;
        let Some(key) = self.keys.get(self.at) else { return self.run(context, asked) };
        let part = match self.room_bytes {
            _ if self.at >= self.named => RecordPart::Meta,
            // One byte more, so that it can be told.
            Some(_) => RecordPart::Range { start: 0, len: self.settings.value_bytes_max as u64 + 1 },
            None => {
                let len = u32::try_from(self.limits.first_bytes).unwrap_or(u32::MAX);
                RecordPart::Sliced { hold: 0, start: 0, len }
            }
        };
        asked.push((Target::Key, Operation::Get { key: key.clone(), part }));
        Progress::Waits
    }

    fn measure(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.stage = Stage::Measuring;
        match self.keys.get(self.at).filter(|_| self.at < self.named) {
            Some(key) => {
                asked.push((Target::Key, Operation::Get { key: key.clone(), part: RecordPart::Meta }));
                Progress::Waits
            }
            None => self.want(self.measured_bytes, context),
        }
    }

    /// Asks for room, if it may have that much.
    fn want(&mut self, bytes: u64, context: &WorkContext<'_>) -> Progress {
        self.attempts += 1;
        let most = self.limits.bytes_max;
        match () {
            () if bytes > most => refused(&format!(
                "ERR the records and replies have {bytes} bytes, and a command or transaction may have {most}: \
                 send it in parts, or raise --memory"
            )),
            () if self.attempts > ATTEMPTS_MAX => Progress::Ended(error_of(&Error::Busy, false, context)),
            () => Progress::WantsRoom(bytes),
        }
    }

    pub(crate) fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        match (self.stage, reply) {
            (_, Reply::Failed(error)) => Progress::Ended(error_of(&error, self.stage == Stage::Writing, context)),
            (Stage::Reading | Stage::ReadingFront, Reply::Record(record)) => self.came(record, context, asked),
            (Stage::Reading, Reply::Longer(value_bytes)) => self.is_longer(value_bytes, context, asked),
            (Stage::Reading, Reply::Part(record, _)) => self.is_longer(record.value_bytes, context, asked),
            (Stage::Measuring, Reply::Record(record)) => {
                let bytes = record.map_or(0, |record| record.value_bytes);
                let is_long = bytes > self.settings.value_bytes_max as u64;
                self.measured_bytes += if is_long { HEADER_BYTES as u64 } else { bytes };
                self.at += 1;
                self.measure(context, asked)
            }
            (Stage::Running, Reply::Record(_)) => self.run(context, asked),
            (Stage::Writing, Reply::Done { version, .. }) => {
                self.note(version, context);
                Progress::Ended(std::mem::take(&mut self.said))
            }
            // Another client was faster.
            (Stage::Writing, Reply::Unmet(_)) if self.attempts < ATTEMPTS_MAX => {
                self.attempts += 1;
                self.begin(context, asked)
            }
            (Stage::Writing, Reply::Unmet(_)) => Progress::Ended(error_of(&Error::Busy, false, context)),
            _ => {
                let error = Error::Unknown("the engine gave an answer of another kind");
                Progress::Ended(error_of(&error, false, context))
            }
        }
    }

    /// A record came, or its front.
    fn came(&mut self, record: Option<Record>, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let Some(key) = self.keys.get(self.at) else { return self.run(context, asked) };
        if let Some(Some(watched)) = &self.transaction
            && !lock(watched).is_unchanged(key, record.as_ref().map(|record| record.version))
        {
            return self.is_touched();
        }
        let is_named = self.at < self.named;
        let read = match record {
            Some(record) if is_named && record.value.len() < record.value_bytes && self.stage == Stage::Reading => {
                return self.is_longer(record.value_bytes, context, asked);
            }
            Some(Record { value, value_bytes, flags, version, expiry }) => {
                let record = StoredRecord { value: value.to_bytes(), flags, expiry };
                Some(ReadRecord { record, version, value_bytes })
            }
            None => None,
        };
        self.overlay.insert(key, read);
        self.at += 1;
        match self.overlay.held_bytes() as u64 > self.has_bytes() + self.keys_bytes() {
            true => self.begin_measuring(context, asked),
            false => self.read(context, asked),
        }
    }

    /// What keys and entries take, which is counted apart.
    fn keys_bytes(&self) -> u64 {
        let names: usize = self.keys.iter().map(|key| key.user().len()).sum();
        (names + self.keys.len() * super::overlay::ENTRY_BYTES) as u64
    }

    /// A record has more bytes than were asked for.
    fn is_longer(&mut self, value_bytes: u64, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let Some(key) = self.keys.get(self.at) else { return self.run(context, asked) };
        if value_bytes > self.settings.value_bytes_max as u64 {
            self.stage = Stage::ReadingFront;
            let part = RecordPart::Range { start: 0, len: HEADER_BYTES as u64 };
            asked.push((Target::Key, Operation::Get { key: key.clone(), part }));
            return Progress::Waits;
        }
        self.begin_measuring(context, asked)
    }

    fn begin_measuring(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        // Little more, so that what others add meanwhile fits.
        (self.at, self.measured_bytes) = (0, REPLY_BYTES);
        self.overlay = Overlay::default();
        self.measure(context, asked)
    }

    /// Goes on with the commands: all records are there. What takes long lets others have their
    /// turn in between.
    fn run(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        if self.next == 0 && self.transaction.is_some() {
            encode::array(&mut self.said, self.commands.len());
        }
        let mut seen_bytes = 0;
        let bytes_max = self.limits.bytes_max + self.keys_bytes();
        while let Some(command) = self.commands.get(self.next) {
            if let (true, Some(key)) = (seen_bytes > SEEN_BYTES, self.keys.first()) {
                self.stage = Stage::Running;
                asked.push((Target::Key, Operation::Get { key: key.clone(), part: RecordPart::Meta }));
                return Progress::Waits;
            }
            self.next += 1;
            // Each draws its own lots.
            let mut settings = self.settings;
            settings.reply_bytes_max = usize::try_from(self.limits.bytes_max).unwrap_or(usize::MAX);
            settings.seed = mixed(settings.seed ^ self.next as u64);
            command.run(settings, &mut self.overlay, &mut self.said);
            seen_bytes += self.overlay.take_seen_bytes() + command.held_bytes();
            if self.made_bytes() > bytes_max {
                return self.want(self.made_bytes(), context);
            }
        }
        if self.made_bytes() > self.has_bytes() + self.keys_bytes() {
            return self.want(self.made_bytes(), context);
        }
        let (changes, changed) = std::mem::take(&mut self.overlay).into_changes();
        self.write(changes, changed, context, asked)
    }

    /// Bytes of records and replies.
    fn made_bytes(&self) -> u64 {
        (self.overlay.held_bytes() + self.said.len()) as u64
    }

    fn write(
        &mut self,
        mut changes: Vec<Change>,
        changed: usize,
        context: &WorkContext<'_>,
        asked: &mut Asked,
    ) -> Progress {
        if !self.limits.has_batches {
            if self.transaction.is_some() && changed > 0 && changes.len() > 1 {
                return refused(
                    "ERR the engine `tier` has no batches: a transaction that changes something has one key there, \
                     the watched ones included",
                );
            }
            if changed > 1 {
                return refused(
                    "ERR the engine `tier` has no batches, so changes of several keys cannot be all or nothing: \
                     change one key with each command",
                );
            }
            changes.retain(|change| !matches!(change.kind, ChangeKind::Check));
        }
        // One record alone was what it was at one instant.
        if changes.is_empty() || (changed == 0 && changes.len() == 1) {
            return Progress::Ended(std::mem::take(&mut self.said));
        }
        let written = changes.iter().filter(|change| !matches!(change.kind, ChangeKind::Check));
        self.changed = written
            .map(|change| Changed { key: change.key.clone(), is_deleted: matches!(change.kind, ChangeKind::Delete) })
            .collect();
        self.stage = Stage::Writing;
        let (target, level): (Target, Level) = match changes.len() {
            1 => (Target::Key, context.level),
            _ => (Target::Batch, context.batch_level),
        };
        asked.push((target, Operation::Write { changes, level }));
        Progress::Waits
    }

    /// Tells what became of the records.
    fn note(&self, version: u64, context: &WorkContext<'_>) {
        let here = &context.here;
        for Changed { key, is_deleted } in &self.changed {
            here.marks.forget(key, version);
            if *is_deleted {
                here.log.deleted(key);
            } else {
                context.waits.call(key);
                here.counters.total_items.add(1);
                here.recency.stored(hash(key), here.wall);
            }
        }
    }
}

fn refused(text: &str) -> Progress {
    Progress::Ended(written(|out| encode::error(out, text)))
}
