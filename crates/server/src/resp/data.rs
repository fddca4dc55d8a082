//! A data command of one key: carried out at the record's owner if it may change the record, or
//! over what was read of it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use stratakv_base::{Expiry, Key, Wall};
use stratakv_engine::update::{UpdateError, UpdatedRecord};
use stratakv_engine::{Error, Operation, Record, RecordEdit, RecordPart, Reply, Unmet, Update};
use stratakv_protocol::resp::{Version, encode};
use stratakv_structures::tree::{NodeName, TreeError};

use super::arguments::{Arguments, Gathered, RequestRefusal};
use super::edit::{LONG_PAST, too_long};
use super::many::{ManyLimits, ManyWork};
use super::records::{Call, Core, Records, StoredRecord, head_of};
use super::reply::written;
use super::work::{ATTEMPTS_MAX, Asked, WorkContext, error_of};
use crate::connection::{Target, hash};
use crate::server::lock;

/// What a call has beside its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSettings {
    pub(crate) version: Version,
    pub(crate) wall: Wall,
    pub(crate) value_bytes_max: usize,
    pub(crate) reply_bytes_max: usize,
    pub(crate) seed: u64,
}

/// A data command with its arguments.
#[derive(Debug)]
pub(crate) struct DataCommand {
    core: Core,
    arguments: Gathered,
    /// Bytes of a value that it makes beside those of its arguments.
    made_bytes: usize,
}

impl DataCommand {
    pub(crate) fn new(core: Core, arguments: &Arguments<'_>) -> DataCommand {
        DataCommand { core, arguments: arguments.gather(), made_bytes: 0 }
    }

    /// One that makes so many bytes out of few.
    pub(crate) fn making(self, made_bytes: usize) -> DataCommand {
        DataCommand { made_bytes, ..self }
    }

    /// Bytes of memory that it holds, or will.
    pub(crate) fn held_bytes(&self) -> usize {
        self.arguments.held_bytes() + self.made_bytes
    }

    /// Carries it out; the reply is appended, an error too. Whether it is done: if not, what it
    /// changed before it met an error is to be undone.
    pub(crate) fn run(&self, settings: CallSettings, records: &mut dyn Records, out: &mut Vec<u8>) -> bool {
        let a = Arguments::new(&self.arguments, b"", &[]);
        let CallSettings { version, wall, value_bytes_max, reply_bytes_max, seed } = settings;
        let began = out.len();
        let done = (self.core)(&Call { a, version, wall, value_bytes_max, reply_bytes_max, seed }, records, out);
        if let Err(refusal) = &done {
            out.truncate(began);
            encode::error(out, refusal);
        }
        done.is_ok()
    }
}

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NewRecord {
    Unchanged,
    Put(StoredRecord),
    Deleted,
}

impl NewRecord {
    /// The record of a key that had this one.
    pub(super) fn after<'a>(&'a self, old: Option<&'a StoredRecord>) -> Option<&'a StoredRecord> {
        match self {
            NewRecord::Unchanged => old,
            NewRecord::Put(record) => Some(record),
            NewRecord::Deleted => None,
        }
    }

    /// What a delete makes of a key, which had a record or not.
    pub(super) fn deleted(existed: bool) -> NewRecord {
        if existed { NewRecord::Deleted } else { NewRecord::Unchanged }
    }
}

/// The record of the one key that a command has. There are no nodes here.
#[derive(Debug)]
struct OneRecord {
    old: Option<StoredRecord>,
    new: NewRecord,
    value_bytes_max: usize,
    has_trees: bool,
    /// The command wants to read or write some.
    needs_nodes: Cell<bool>,
}

impl OneRecord {
    fn now(&self) -> Option<&StoredRecord> {
        self.new.after(self.old.as_ref())
    }
}

impl Records for OneRecord {
    fn get(&self, _: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
        match self.now() {
            Some(record) if record.value.len() > self.value_bytes_max => {
                Err(too_long(record.value.len() as u64, self.value_bytes_max))
            }
            record => Ok(record.cloned()),
        }
    }

    fn head(&self, _: &[u8]) -> Option<StoredRecord> {
        self.now().map(head_of)
    }

    fn put(&mut self, _: &[u8], record: StoredRecord) {
        self.new = NewRecord::Put(record);
    }

    fn delete(&mut self, _: &[u8]) {
        self.new = NewRecord::deleted(self.old.is_some());
    }

    fn node(&self, _: &[u8], _: NodeName, _: u64) -> Result<Bytes, TreeError> {
        self.needs_nodes.set(true);
        Err(TreeError::Missing)
    }

    fn has_node(&self, _: &[u8], _: NodeName, _: u64) -> bool {
        false
    }

    fn put_node(&mut self, _: &[u8], _: NodeName, _: Option<Bytes>) {
        self.needs_nodes.set(true);
    }

    fn usable_number(&self, _: &[u8], _: u64, from: u64) -> u64 {
        from
    }

    fn has_trees(&self) -> bool {
        self.has_trees
    }

    fn needs_room(&self) {
        // Without batches commands of several keys have no more room.
        self.needs_nodes.set(self.has_trees);
    }

    fn scan_place(&self, _: &[u8], _: u64) -> Option<Bytes> {
        self.needs_nodes.set(true);
        None
    }

    fn keep_scan_place(&self, _: &[u8], from: u64, _: Bytes) -> u64 {
        self.needs_nodes.set(true);
        from
    }

    fn whole_bytes_max(&self) -> u64 {
        u64::MAX
    }
}

/// A command on its way to the record's owner, and what it said there.
#[derive(Debug)]
pub(crate) struct DataRule {
    command: Arc<DataCommand>,
    settings: CallSettings,
    limits: ManyLimits,
    said: Mutex<Vec<u8>>,
    /// Nothing was said nor done: the command goes on where there are nodes.
    needs_nodes: AtomicBool,
}

impl DataRule {
    fn outcome(&self, old: Option<StoredRecord>) -> NewRecord {
        let mut record = OneRecord {
            old,
            new: NewRecord::Unchanged,
            value_bytes_max: self.settings.value_bytes_max,
            has_trees: self.limits.has_batches,
            needs_nodes: Cell::new(false),
        };
        let mut said = Vec::new();
        self.command.run(self.settings, &mut record, &mut said);
        *lock(&self.said) = said;
        let needs_nodes = record.needs_nodes.get();
        self.needs_nodes.store(needs_nodes, Ordering::Release);
        if needs_nodes { NewRecord::Unchanged } else { record.new }
    }

    fn answer(&self) -> Vec<u8> {
        std::mem::take(&mut *lock(&self.said))
    }
}

impl RecordEdit for DataRule {
    fn apply(&self, value: &Bytes, flags: u32, expiry: Expiry) -> Result<UpdatedRecord, UpdateError> {
        match self.outcome(Some(StoredRecord { value: value.clone(), flags, expiry })) {
            NewRecord::Unchanged => Err(UpdateError::Unmet(Unmet::Unchanged)),
            NewRecord::Put(record) => Ok(updated(record)),
            NewRecord::Deleted => Ok(updated(StoredRecord { value: Bytes::new(), flags: 0, expiry: LONG_PAST })),
        }
    }

    fn create(&self) -> Result<UpdatedRecord, UpdateError> {
        match self.outcome(None) {
            NewRecord::Put(record) => Ok(updated(record)),
            NewRecord::Unchanged | NewRecord::Deleted => Err(UpdateError::Unmet(Unmet::Absent)),
        }
    }

    fn value_bytes(&self) -> u64 {
        self.command.held_bytes() as u64
    }
}

fn updated(record: StoredRecord) -> UpdatedRecord {
    let StoredRecord { value, flags, expiry } = record;
    UpdatedRecord { value, expiry: expiry.0, number: None, flags: Some(flags) }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct DataWork {
    key: Key,
    rule: Arc<DataRule>,
    only_reads: bool,
    /// So much of the value is asked for at first.
    first_bytes: u64,
    /// Bytes for which it has room, of the value or of the reply to a read.
    room_bytes: u64,
    attempts: u32,
}

impl DataWork {
    pub(crate) fn new(
        key: Key,
        command: DataCommand,
        (settings, limits): (CallSettings, ManyLimits),
        only_reads: bool,
    ) -> DataWork {
        let (said, needs_nodes) = Default::default();
        let rule = Arc::new(DataRule { command: Arc::new(command), settings, limits, said, needs_nodes });
        DataWork { key, rule, only_reads, first_bytes: 0, room_bytes: 0, attempts: 0 }
    }

    /// One that reads asks for so much of the value at first.
    pub(crate) fn with_first_bytes(mut self, first_bytes: u64) -> DataWork {
        (self.first_bytes, self.room_bytes) = (first_bytes, first_bytes);
        self
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.rule.command.held_bytes() + size_of::<DataRule>()
    }

    pub(crate) fn begin(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let key = self.key.clone();
        let operation = match self.only_reads {
            true => {
                let len = u32::try_from(self.first_bytes).unwrap_or(u32::MAX);
                Operation::Get { key, part: RecordPart::Sliced { hold: 0, start: 0, len } }
            }
            false => Operation::Update { key, update: Update::Edit(self.rule.clone()), level: context.level },
        };
        asked.push((Target::Key, operation));
        Progress::Waits
    }

    /// There is room for so many bytes of the value.
    pub(crate) fn has_room(&mut self, bytes: u64, asked: &mut Asked) -> Progress {
        self.room_bytes = bytes;
        let part = RecordPart::Range { start: 0, len: bytes };
        asked.push((Target::Key, Operation::Get { key: self.key.clone(), part }));
        Progress::Waits
    }

    pub(crate) fn step(&mut self, reply: Reply, context: &WorkContext<'_>) -> Progress {
        let here = &context.here;
        match reply {
            Reply::Failed(error) => Progress::Ended(error_of(&error, !self.only_reads, context)),
            Reply::Longer(bytes) => self.is_longer(bytes, context),
            Reply::Part(record, _) => self.is_longer(record.value_bytes, context),
            Reply::Record(Some(record)) if record.value.len() < record.value_bytes => {
                self.is_longer(record.value_bytes, context)
            }
            Reply::Record(record) => {
                let counter = if record.is_some() { &here.counters.get_hits } else { &here.counters.get_misses };
                counter.add(1);
                if record.is_some() {
                    here.recency.fetched(hash(&self.key), here.wall);
                }
                let old = record.map(|Record { value, flags, expiry, .. }| StoredRecord {
                    value: value.to_bytes(),
                    flags,
                    expiry,
                });
                self.rule.outcome(old);
                match self.said_bytes() {
                    // More than the value: it is made again once there is room.
                    said if self.only_reads && said > self.room_bytes && self.attempts <= ATTEMPTS_MAX => {
                        self.attempts += 1;
                        self.rule.answer();
                        Progress::WantsRoom(said)
                    }
                    _ => self.ended(context),
                }
            }
            Reply::Done { version, .. } => {
                here.counters.total_items.add(1);
                here.marks.forget(&self.key, version);
                context.waits.call(&self.key);
                here.recency.stored(hash(&self.key), here.wall);
                Progress::Ended(self.rule.answer())
            }
            Reply::Unmet(Unmet::Unchanged | Unmet::Absent) => self.ended(context),
            _ => {
                let error = Error::Unknown("the engine gave an answer of another kind");
                Progress::Ended(error_of(&error, false, context))
            }
        }
    }

    /// Bytes of its reply; none, if it goes on where there are nodes.
    fn said_bytes(&self) -> u64 {
        match self.rule.needs_nodes.load(Ordering::Acquire) {
            true => 0,
            false => lock(&self.rule.said).len() as u64,
        }
    }

    /// The command is done, or goes on where there are nodes.
    fn ended(&self, context: &WorkContext<'_>) -> Progress {
        match self.rule.needs_nodes.load(Ordering::Acquire) {
            true => {
                context.trees.note(hash(&self.key));
                Progress::NeedsNodes
            }
            false => Progress::Ended(self.rule.answer()),
        }
    }

    /// The same command over records and nodes that are read.
    pub(crate) fn with_nodes(&self) -> ManyWork {
        let DataRule { command, settings, limits, .. } = &*self.rule;
        ManyWork::on_one_tree(Arc::clone(command), self.key.clone(), *settings, *limits, !self.only_reads)
    }

    /// The value has more bytes than were asked for.
    fn is_longer(&mut self, bytes: u64, context: &WorkContext<'_>) -> Progress {
        self.attempts += 1;
        let most = self.rule.settings.value_bytes_max;
        match () {
            () if bytes > most as u64 => Progress::Ended(written(|out| encode::error(out, &too_long(bytes, most)))),
            () if self.attempts > ATTEMPTS_MAX => Progress::Ended(error_of(&Error::Busy, false, context)),
            () => Progress::WantsRoom(bytes),
        }
    }
}

/// What comes of a step of a data command.
pub(crate) enum Progress {
    /// It goes on when a reply has come.
    Waits,
    /// It goes on when there is room for so many bytes that it reads.
    WantsRoom(u64),
    /// It goes on as [`DataWork::with_nodes`].
    NeedsNodes,
    Ended(Vec<u8>),
}
