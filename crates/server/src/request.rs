//! What a client asks of one key, whatever its dialect: the one place where that becomes operations
//! of the engine.
//!
//! Most requests are one operation. Where the engine has none for it (a condition on an append,
//! making what is missing), a [`Plan`] asks several, each on the condition of the version that the
//! one before it saw: what other clients do in between makes it begin again.

use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{Expiry, Key, Level, Wall, probe};
use stratakv_engine::update::{self, UpdateError};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Operation, Record, RecordPart, Reply, Unmet, Update};
use stratakv_protocol::memcache::StoreMode;
use stratakv_structures::STRUCTURE_FLAGS;

use crate::connection::hash;
use crate::marks::{Mark, Marks};
use crate::pending::Access;
use crate::structure::{Join, is_structure};

/// Begun again so often because of other clients' writes, a request gives up.
const ATTEMPTS_MAX: u32 = 100;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) action: Action,
    /// Only if clients see this version.
    pub(crate) compare: Option<u64>,
    /// The version that clients shall see.
    pub(crate) version: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Get {
        /// Not only what is known of it.
        value: bool,
        touch: Option<Expiry>,
        /// An empty record where there is none.
        vivify: Option<Expiry>,
        /// The expiry before the touch is wanted.
        before: bool,
        /// Who reads is told of marks, and may be the one to make the value anew.
        told: bool,
    },
    Store {
        mode: StoreMode,
        value: Bytes,
        flags: u32,
        expiry: Expiry,
        /// What comes later than a newer version is stored as stale.
        late: bool,
        /// An append to what is not there makes it.
        vivify: Option<Expiry>,
        /// The length of the value is wanted, of an append that of all of it.
        sized: bool,
    },
    Delete,
    /// It stays, and is marked or emptied.
    Invalidate {
        stale: bool,
        /// With these flags instead of its own.
        clear: Option<u32>,
        expiry: Option<Expiry>,
    },
    Arithmetic {
        decrement: bool,
        delta: u64,
        initial: Option<(u64, Expiry)>,
        touch: Option<Expiry>,
        /// The expiry is wanted.
        expiry: bool,
    },
}

/// How a request ended. Versions are those that clients see, but for that of a record that was
/// read.
#[derive(Clone, Debug)]
pub(crate) enum RequestOutcome {
    /// It is there. `before` is its expiry before a touch, where that was wanted. `follows`: it has
    /// the first bytes of its value, the others follow slice by slice.
    Found { record: Record, before: Option<Expiry>, follows: bool },
    /// It was not there, and is now, empty.
    Vivified { version: u64 },
    /// It is written, with this version. `value_bytes` is the length of all of an append, where
    /// that was wanted.
    Done { version: u64, value_bytes: Option<u64> },
    /// The number. `expiry` is that before a touch; `is_made`: it was not there.
    Number { number: u64, version: u64, expiry: Expiry, is_made: bool },
    /// There is no such key.
    Missing,
    /// The condition of add, replace or append does not hold.
    NotStored,
    /// It has another version.
    Exists,
    /// It is no number.
    NotANumber,
    /// It is a structure of Redis clients, which other clients cannot read.
    NotAString,
    /// The flags are those of such structures.
    ReservedFlags,
    /// The operation failed.
    Failed(Error),
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    Ask(Operation),
    End(RequestOutcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The one operation that most requests are.
    First,
    /// The record is made because there is none.
    Vivify,
    /// The record is read to be changed.
    Read,
    /// It is written on the condition of what was read.
    Write,
    /// A late value takes the place of the newer one.
    Late,
    /// What cannot be marked as stale goes.
    Drop,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) request: Request,
    stage: Stage,
    attempts: u32,
    /// How much of a value is asked for.
    first_bytes: u64,
    /// Of the record that was read, or as it is to be.
    read: Option<(u64, Expiry)>,
    /// When the record that was read would end.
    before: Expiry,
    number: u64,
    /// Length of an append's whole value.
    value_bytes: Option<u64>,
}

impl RequestOutcome {
    fn done(version: u64) -> RequestOutcome {
        RequestOutcome::Done { version, value_bytes: None }
    }
}

impl Request {
    /// One without conditions.
    pub(crate) fn of(key: Key, action: Action) -> Request {
        Request { key, action, compare: None, version: None }
    }

    /// Whether it would make a record with the flags of a structure.
    pub(crate) fn has_reserved_flags(&self) -> bool {
        let flags = match &self.action {
            Action::Store { flags, mode, vivify, .. } => {
                let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend) && vivify.is_none();
                if joins { None } else { Some(*flags) }
            }
            Action::Invalidate { clear, .. } => *clear,
            Action::Get { .. } | Action::Delete | Action::Arithmetic { .. } => None,
        };
        flags == Some(STRUCTURE_FLAGS)
    }

    /// Whether the whole record is read, changed here and written.
    pub(crate) fn reads_first(&self) -> bool {
        match &self.action {
            Action::Get { .. } | Action::Delete => false,
            Action::Store { mode, sized, .. } => {
                (self.compare.is_some() || *sized) && matches!(mode, StoreMode::Append | StoreMode::Prepend)
            }
            Action::Invalidate { .. } => true,
            Action::Arithmetic { touch, expiry, .. } => self.compare.is_some() || touch.is_some() || *expiry,
        }
    }

    /// Whether statistics count it among compare-and-swaps: memcached counts no append there,
    /// whatever version it names.
    pub(crate) fn counts_as_cas(&self) -> bool {
        let is_join = matches!(self.action, Action::Store { mode: StoreMode::Append | StoreMode::Prepend, .. });
        self.compare.is_some() && !is_join
    }

    /// Whether it may take more than one operation.
    pub(crate) fn is_long(&self) -> bool {
        match &self.action {
            Action::Get { vivify, before, .. } => vivify.is_some() || *before,
            Action::Store { late, vivify, .. } => *late || vivify.is_some() || self.reads_first(),
            Action::Delete => false,
            Action::Invalidate { .. } => true,
            Action::Arithmetic { initial, .. } => initial.is_some() || self.reads_first(),
        }
    }

    /// Whether the client is told of marks.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self.action, Action::Get { told: true, .. })
    }

    /// Whether the key's record stays as it is.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self.action, Action::Get { touch: None, vivify: None, .. })
    }

    /// The data block of a storage command.
    pub(crate) fn set_value(&mut self, bytes: Bytes) {
        if let Action::Store { value, .. } = &mut self.action {
            *value = bytes;
        }
    }

    /// Bytes to be written.
    pub(crate) fn writing_bytes(&self) -> u64 {
        match &self.action {
            Action::Store { value, .. } => value.len() as u64,
            _ => 0,
        }
    }

    /// The one operation that most requests are. `first_bytes` of a value are asked for.
    pub(crate) fn operation(&self, first_bytes: u64, level: Level, marks: &Marks) -> Operation {
        let key = self.key.clone();
        let expect = || self.compare.map_or(Expect::Any, |shown| Expect::Version(marks.meant(&self.key, shown)));
        match &self.action {
            Action::Get { touch: Some(expiry), .. } => Operation::Update { key, update: Update::Touch(*expiry), level },
            Action::Get { value: true, .. } => {
                // 16 MiB at most.
                let len = first_bytes as u32;
                Operation::Get { key, part: RecordPart::Sliced { hold: 0, start: 0, len } }
            }
            Action::Get { .. } | Action::Invalidate { .. } => Operation::Get { key, part: RecordPart::Meta },
            Action::Store { mode, value, flags, expiry, .. } => {
                let value = value.clone();
                let expect = match mode {
                    StoreMode::Append | StoreMode::Prepend => {
                        let join = Join { bytes: value, is_front: *mode == StoreMode::Prepend };
                        return Operation::Update { key, update: Update::Edit(Arc::new(join)), level };
                    }
                    StoreMode::Add => Expect::Absent,
                    StoreMode::Replace if self.compare.is_none() => Expect::Present,
                    StoreMode::Set | StoreMode::Replace => expect(),
                };
                self.put(expect, value, *flags, *expiry, level)
            }
            Action::Delete => write(key, expect(), ChangeKind::Delete, level),
            Action::Arithmetic { decrement, delta, .. } => {
                Operation::Update { key, update: arithmetic(*decrement, *delta), level }
            }
        }
    }

    /// What it does to its key, for those of its connection that come after it.
    pub(crate) fn access(&self) -> Access {
        let hash = hash(&self.key);
        match () {
            () if self.reads_first() => Access::Everything,
            // Which version is meant is known only once the one that a command before it gives is
            // there.
            () if self.is_long() || self.version.is_some() => Access::Alone(hash),
            () if self.only_reads() => Access::Read(hash),
            () => Access::Write(hash),
        }
    }

    fn put(&self, expect: Expect, value: Bytes, flags: u32, expiry: Expiry, level: Level) -> Operation {
        write(self.key.clone(), expect, ChangeKind::Put { value, flags, expiry }, level)
    }
}

/// A write of one key.
pub(crate) fn write(key: Key, expect: Expect, kind: ChangeKind, level: Level) -> Operation {
    Operation::Write { changes: vec![Change { key, expect, kind }], level }
}

impl Plan {
    /// `first_bytes` of a value are asked for.
    pub(crate) fn new(request: Request, first_bytes: u64) -> Plan {
        Plan {
            request,
            stage: Stage::First,
            attempts: 0,
            first_bytes,
            read: None,
            before: Expiry::NEVER,
            number: 0,
            value_bytes: None,
        }
    }

    /// Whether what is being asked brings the value that the client waits for.
    pub(crate) fn wants_value(&self) -> bool {
        self.stage == Stage::First && matches!(self.request.action, Action::Get { value: true, .. })
    }

    /// Whether what is being asked is for the bytes of the record, for the client or to change
    /// them.
    pub(crate) fn needs_value(&self) -> bool {
        self.wants_value() || (self.stage == Stage::Read && self.request.reads_first())
    }

    /// The first operation.
    pub(crate) fn begin(&mut self, level: Level, marks: &Marks) -> Operation {
        self.stage = Stage::First;
        let request = &self.request;
        if request.reads_first() {
            return self.read(false);
        }
        match &request.action {
            Action::Get { before: true, .. } if self.read.is_none() => self.read(true),
            _ => request.operation(self.first_bytes, level, marks),
        }
    }

    fn read(&mut self, meta: bool) -> Operation {
        self.stage = Stage::Read;
        let part = if meta { RecordPart::Meta } else { RecordPart::Whole };
        Operation::Get { key: self.request.key.clone(), part }
    }

    /// What follows from a reply.
    pub(crate) fn next(&mut self, reply: Reply, level: Level, marks: &Marks, wall: Wall) -> Next {
        let reply = match reply {
            Reply::Failed(error) => return Next::End(RequestOutcome::Failed(error)),
            Reply::Unmet(Unmet::NotANumber) => return Next::End(RequestOutcome::NotANumber),
            reply => reply,
        };
        match (self.stage, reply) {
            (Stage::First, reply) => self.first(reply, level, marks, wall),
            (Stage::Vivify, Reply::Done { version, .. }) => self.vivified(version, marks, wall),
            (Stage::Read, Reply::Record(Some(record))) => self.change(record, level, marks),
            (Stage::Read, _) => self.absent(level),
            (Stage::Write, Reply::Done { version, .. }) => self.written(version, level, marks, wall),
            (Stage::Late, Reply::Record(Some(record))) => self.late(&record, level, marks),
            (Stage::Late, Reply::Done { version, .. }) => self.stored_late(version, marks, wall),
            (Stage::Drop, _) => Next::End(RequestOutcome::done(0)),
            // Another client was faster.
            _ => {
                let counts = matches!(self.request.action, Action::Arithmetic { .. });
                probe!("server: two clients make a counter at once", counts && self.stage == Stage::Vivify);
                self.again(level, marks)
            }
        }
    }

    fn again(&mut self, level: Level, marks: &Marks) -> Next {
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            return Next::End(RequestOutcome::Failed(Error::Busy));
        }
        Next::Ask(self.begin(level, marks))
    }

    fn first(&mut self, reply: Reply, level: Level, marks: &Marks, wall: Wall) -> Next {
        let request = &self.request;
        match (&request.action, reply) {
            (Action::Get { .. }, Reply::Record(Some(record))) => self.found(record, marks),
            (Action::Arithmetic { .. }, Reply::Number { number, version }) => {
                self.number = number;
                self.written(version, level, marks, wall)
            }
            (Action::Delete, Reply::Done { existed: false, .. }) => Next::End(RequestOutcome::Missing),
            (Action::Store { .. } | Action::Delete, Reply::Done { version, .. }) => {
                self.written(version, level, marks, wall)
            }
            (_, Reply::Unmet(Unmet::Absent) | Reply::Record(None)) => self.absent(level),
            (Action::Store { late: true, .. }, Reply::Unmet(Unmet::Version { found }))
                if request.compare < Some(marks.shown(&request.key, found)) =>
            {
                self.stage = Stage::Late;
                Next::Ask(Operation::Get { key: request.key.clone(), part: RecordPart::Meta })
            }
            (_, Reply::Unmet(Unmet::Version { .. })) => Next::End(RequestOutcome::Exists),
            (_, Reply::Unmet(Unmet::Unchanged)) => Next::End(RequestOutcome::NotAString),
            _ => Next::End(RequestOutcome::NotStored),
        }
    }

    fn found(&self, record: Record, marks: &Marks) -> Next {
        if let Action::Get { touch: touch @ Some(_), .. } = self.request.action {
            marks.keep(&self.request.key, record.version, None, touch);
        }
        if matches!(self.request.action, Action::Get { value: true, .. }) && is_structure(&record) {
            return Next::End(RequestOutcome::NotAString);
        }
        Next::End(RequestOutcome::Found { record, before: self.read.map(|(_, expiry)| expiry), follows: false })
    }

    /// There is no such record: it is made if that was asked for.
    fn absent(&mut self, level: Level) -> Next {
        let (value, flags, expiry) = match &self.request.action {
            Action::Get { vivify: Some(expiry), .. } => (Bytes::new(), 0, *expiry),
            Action::Store { value, flags, vivify: Some(expiry), .. } => (value.clone(), *flags, *expiry),
            Action::Arithmetic { initial: Some((number, expiry)), .. } => (number.to_string().into(), 0, *expiry),
            Action::Store { mode: StoreMode::Set, .. } => return Next::End(RequestOutcome::Missing),
            Action::Store { mode: StoreMode::Replace, .. } if self.request.compare.is_some() => {
                return Next::End(RequestOutcome::Missing);
            }
            Action::Store { .. } => return Next::End(RequestOutcome::NotStored),
            _ => return Next::End(RequestOutcome::Missing),
        };
        self.stage = Stage::Vivify;
        Next::Ask(self.request.put(Expect::Absent, value, flags, expiry, level))
    }

    fn vivified(&mut self, version: u64, marks: &Marks, wall: Wall) -> Next {
        let (key, shown) = (&self.request.key, self.request.version);
        Next::End(match &self.request.action {
            Action::Get { vivify, .. } => {
                let expiry = vivify.unwrap_or_default();
                marks.set(key, Mark { version, expiry, sent: true, stale: false, shown }, wall);
                RequestOutcome::Vivified { version: marks.shown(key, version) }
            }
            Action::Arithmetic { initial: Some((number, expiry)), .. } => {
                let version = self.remember(version, *expiry, wall, marks);
                RequestOutcome::Number { number: *number, version, expiry: Expiry::NEVER, is_made: true }
            }
            Action::Store { vivify: Some(expiry), .. } => {
                RequestOutcome::done(self.remember(version, *expiry, wall, marks))
            }
            _ => RequestOutcome::done(self.remember(version, Expiry::NEVER, wall, marks)),
        })
    }

    /// What was known of the record is over; a version that the client gave is kept until the
    /// record ends. The version that clients see.
    fn remember(&self, version: u64, expiry: Expiry, wall: Wall, marks: &Marks) -> u64 {
        let key = &self.request.key;
        match self.request.version {
            Some(_) => {
                let mark = Mark { version, expiry, shown: self.request.version, ..Mark::default() };
                marks.set(key, mark, wall);
            }
            None => marks.forget(key, version),
        }
        marks.shown(key, version)
    }

    /// The record as it is, to be changed.
    fn change(&mut self, record: Record, level: Level, marks: &Marks) -> Next {
        let request = &self.request;
        let shown = marks.shown(&request.key, record.version);
        if request.compare.is_some_and(|wanted| wanted != shown) {
            return Next::End(RequestOutcome::Exists);
        }
        self.read = Some((record.version, record.expiry));
        self.before = record.expiry;
        if let Action::Get { .. } = request.action {
            return Next::Ask(self.begin(level, marks));
        }
        if matches!(request.action, Action::Store { .. }) && is_structure(&record) {
            return Next::End(RequestOutcome::NotAString);
        }
        let (mut flags, mut expiry) = (record.flags, record.expiry);
        let change = match &request.action {
            Action::Store { mode: StoreMode::Append, value, .. } => Update::Append(value.clone()),
            Action::Store { value, .. } => Update::Prepend(value.clone()),
            Action::Arithmetic { decrement, delta, .. } => arithmetic(*decrement, *delta),
            _ => Update::Touch(expiry),
        };
        let outcome = match update::apply(&change, &record.value.to_bytes(), flags, expiry.0) {
            Ok(outcome) => outcome,
            Err(UpdateError::Unmet(_)) => return Next::End(RequestOutcome::NotANumber),
            Err(UpdateError::TooLarge(error)) => return Next::End(RequestOutcome::Failed(error)),
        };
        let mut value = outcome.value;
        if let Action::Invalidate { clear: Some(given), .. } = request.action {
            (value, flags) = (Bytes::new(), given);
        }
        if let Action::Invalidate { expiry: Some(new), .. } | Action::Arithmetic { touch: Some(new), .. } =
            request.action
        {
            expiry = new;
        }
        self.number = outcome.number.unwrap_or_default();
        self.value_bytes = Some(value.len() as u64);
        let operation = request.put(Expect::Version(record.version), value, flags, expiry, level);
        self.read = Some((record.version, expiry));
        self.stage = Stage::Write;
        Next::Ask(operation)
    }

    /// A write is done.
    fn written(&mut self, version: u64, level: Level, marks: &Marks, wall: Wall) -> Next {
        let (_, expiry) = self.read.unwrap_or_default();
        let key = &self.request.key;
        Next::End(match self.request.action {
            Action::Arithmetic { touch, .. } => {
                match self.request.version {
                    Some(_) if marks.is_unknown(key) => _ = self.remember(version, expiry, wall, marks),
                    shown => marks.keep(key, version, shown, touch),
                }
                let version = marks.shown(key, version);
                RequestOutcome::Number { number: self.number, version, expiry: self.before, is_made: false }
            }
            Action::Invalidate { stale: true, .. } => {
                let shown = self.request.version;
                if !marks.set(key, Mark { version, expiry, stale: true, sent: false, shown }, wall) {
                    let operation = write(key.clone(), Expect::Version(version), ChangeKind::Delete, level);
                    self.stage = Stage::Drop;
                    return Next::Ask(operation);
                }
                RequestOutcome::done(marks.shown(key, version))
            }
            Action::Delete => {
                marks.forget(key, version);
                RequestOutcome::done(version)
            }
            Action::Store { mode: StoreMode::Set | StoreMode::Add | StoreMode::Replace, expiry, .. } => {
                RequestOutcome::done(self.remember(version, expiry, wall, marks))
            }
            // Of an append that did not read the record its end is not known: never, if nothing is.
            _ => {
                let version = self.remember(version, expiry, wall, marks);
                RequestOutcome::Done { version, value_bytes: self.value_bytes }
            }
        })
    }

    /// A newer record is there: the late value takes its place, and says that it is stale.
    fn late(&mut self, record: &Record, level: Level, marks: &Marks) -> Next {
        let Action::Store { value, flags, .. } = &self.request.action else {
            return Next::End(RequestOutcome::NotStored);
        };
        if self.request.compare >= Some(marks.shown(&self.request.key, record.version)) {
            return self.again(level, marks);
        }
        let expect = Expect::Version(record.version);
        let operation = self.request.put(expect, value.clone(), *flags, record.expiry, level);
        self.read = Some((record.version, record.expiry));
        Next::Ask(operation)
    }

    fn stored_late(&mut self, version: u64, marks: &Marks, wall: Wall) -> Next {
        let (before, expiry) = self.read.unwrap_or_default();
        let key = &self.request.key;
        let sent = marks.of(key, before).is_some_and(|mark| mark.sent);
        let shown = self.request.version;
        marks.set(key, Mark { version, expiry, stale: true, sent, shown }, wall);
        Next::End(RequestOutcome::done(marks.shown(key, version)))
    }
}

fn arithmetic(decrement: bool, delta: u64) -> Update {
    if decrement { Update::Decrement(delta) } else { Update::Increment(delta) }
}
