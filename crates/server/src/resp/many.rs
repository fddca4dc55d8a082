//! Data commands of several keys: the records are read, the commands run over them in memory, and
//! one write makes all of it so, on the condition that the records are still those that were read.
//!
//! What is read and answered has room in the memory for clients before it is asked for. Where short
//! records were expected and one is long, the lengths of all are asked first.
//!
//! A command that misses nodes of a tree is undone. It is carried out again once they were read.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use stratakv_base::{CollectionId, Key, Level};
use stratakv_engine::{Change, ChangeKind, Error, Operation, Record, RecordPart, Reply};
use stratakv_protocol::resp::encode;
use stratakv_structures::HEADER_BYTES;

use super::data::{CallSettings, DataCommand, Progress};
use super::node_reads::{NodeReads, WantedNode};
use super::overlay::{Overlay, OverlayChanges, OverlayLimits, ReadRecord};
use super::pubsub::{Publication, send_all};
use super::records::StoredRecord;
use super::reply::written;
use super::session::mixed;
use super::turns::{KeyTurn, TurnNews};
use super::watching::SharedWatchList;
use super::work::{ATTEMPTS_MAX, Asked, WorkContext, error_of};
use crate::connection::{Target, hash};
use crate::server::lock;

/// Bytes of records and arguments that commands look at, after which others have their turn.
const SEEN_BYTES: usize = 4 << 20;
/// Bytes of replies for which there is room from the beginning.
const REPLY_BYTES: u64 = 4 << 10;
/// More room than that, and than half of it, replies do not keep.
const SAID_SPARE_BYTES: usize = 64 << 10;
/// The part of what a command may hold that the elements of a tree may have which it reads as a
/// whole: beside them there are what is made of them, and the reply.
const WHOLE_SHARE: u64 = 4;
/// The reply to a command that changes several keys, of an engine that has no batches.
pub(crate) const NO_BATCHES: &str = "ERR the engine `tier` has no batches, so changes of several keys cannot be all or \
     nothing: change one key with each command";
/// As often a node may not be there, because of other clients' writes.
const LOSSES_MAX: u32 = 50;
/// Then those that were taken along go alone.
const GROUP_LOSSES_MAX: u32 = 3;

/// For nodes on the way to an element, and what becomes of them.
const TREE_BYTES: u64 = 24 << 10;
/// Commands that only read gather at the hash of the key with these bits turned.
const READERS: u64 = 0x5EAD_E125_5EAD_E125;

/// A command of more keys takes no turns.
const TURNS_MAX: usize = 64;

/// Limits of one command, or one transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManyLimits {
    /// Bytes of records and replies that it may hold.
    pub(crate) bytes_max: u64,
    /// The same with its arguments: more can never be there, whatever others give back.
    pub(crate) all_bytes_max: u64,
    /// So much of each value is asked for at first.
    pub(crate) first_bytes: u64,
    /// Whether several changes can be one.
    pub(crate) has_batches: bool,
}

mod group;
mod run;

use group::Group;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Another command has the turn of the key.
    WaitingForTurn,
    /// The records are read.
    Reading,
    /// The same of one that is too long to be looked at: its front.
    ReadingFront,
    /// Their lengths are asked.
    Measuring,
    /// The commands are carried out, and others have their turn.
    Running,
    /// There was no room for what was made: it was given back, and is made again.
    WantingAll,
    /// There is no room yet for nodes that a command misses.
    WantingNodes,
    /// There is no room yet for what the commands so far have made.
    WantingMore,
    /// They are read.
    ReadingNodes,
    /// There is no room yet for what was said.
    WantingEnd,
    /// What was told of nodes is true if their root is what it was.
    Validating,
    /// What was made of them is written.
    Writing,
}

/// What the commands that were carried out have said, and which one is next.
#[derive(Clone, Debug, Default)]
struct CommandsRun {
    said: Vec<u8>,
    /// Messages that are sent then.
    publications: Vec<Publication>,
    next: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ManyWork {
    commands: Vec<Arc<DataCommand>>,
    /// What others said of the commands before these that they carried out.
    said_before: Vec<u8>,
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
    run: CommandsRun,
    nodes: NodeReads,
    written: WrittenRecords,
    contention: Contention,
}

/// What others who work on the same key make it do.
#[derive(Clone, Debug, Default)]
struct Contention {
    /// How often it began again.
    attempts: u32,
    /// It waits for its turn before it begins.
    takes_turn: bool,
    /// Turns of its keys that it has; the last one it may wait for.
    turns: Vec<Arc<KeyTurn>>,
    group: Group,
    /// Commands of one client that were to be one go one after the other, each with its own write.
    one_by_one: bool,
}

/// What is being written.
#[derive(Clone, Debug, Default)]
struct WrittenRecords {
    changed: Vec<Changed>,
    /// Keys whose tree goes by it.
    orphaned: Vec<Key>,
}

/// A change that is being written.
#[derive(Clone, Debug)]
struct Changed {
    key: Key,
    is_deleted: bool,
}

impl ManyWork {
    pub(crate) fn new(
        commands: Vec<Arc<DataCommand>>,
        keys: Vec<Key>,
        settings: CallSettings,
        limits: ManyLimits,
    ) -> ManyWork {
        ManyWork {
            commands,
            said_before: Vec::new(),
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
            run: CommandsRun::default(),
            nodes: NodeReads::default(),
            written: WrittenRecords::default(),
            contention: Contention::default(),
        }
    }

    /// A command on one long structure, which it changes or not: those that change it take turns.
    pub(crate) fn on_one_tree(
        command: Arc<DataCommand>,
        key: Key,
        settings: CallSettings,
        limits: ManyLimits,
        changes: bool,
    ) -> ManyWork {
        let limits = ManyLimits { first_bytes: limits.first_bytes.max(TREE_BYTES), ..limits };
        let mut work = ManyWork::new(vec![command], vec![key], settings, limits);
        work.contention.takes_turn = changes;
        work
    }

    /// It may be carried out with others on the same structure.
    pub(crate) fn in_groups(mut self) -> ManyWork {
        self.contention.group.open();
        self
    }

    /// There is news for the turn with this ticket; whether it is the one for which it waits.
    pub(crate) fn hear(&mut self, ticket: u64, news: TurnNews) -> bool {
        let turn = self.contention.turns.last();
        let waits = self.stage == Stage::WaitingForTurn && turn.is_some_and(|turn| turn.ticket() == ticket);
        if waits {
            self.contention.group.hear(news);
        }
        waits
    }

    /// Takes the turns of the keys, if it is to; false: it has to wait. All take them in the same
    /// order, so that nobody who has one waits for somebody who waits for it.
    fn has_turns(&mut self, context: &WorkContext<'_>) -> bool {
        let contention = &self.contention;
        if !(contention.takes_turn || contention.group.is_open()) || self.keys.len() > TURNS_MAX {
            return true;
        }
        let mut keys: BTreeSet<u64> = BTreeSet::new();
        if contention.takes_turn {
            keys.extend(self.keys.iter().map(hash));
        } else {
            keys.extend(self.keys.first().map(|key| hash(key) ^ READERS));
        }
        for key in keys.into_iter().skip(self.contention.turns.len()) {
            let room_bytes = self.has_bytes();
            let group = &self.contention.group;
            let offered =
                self.keys.first().and_then(|key| group.offered(key, &self.commands, self.settings, room_bytes));
            let (turn, has) = context.turns.take(key, context.waiter, offered);
            self.contention.turns.push(Arc::new(turn));
            if !has {
                return false;
            }
        }
        true
    }

    /// Its turn has come, or another one has carried it out or could not.
    fn heard(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        match self.contention.group.take_news() {
            Some(TurnNews::Carried { said, commands }) => {
                self.contention.turns.clear();
                self.commands.drain(..commands.min(self.commands.len()));
                self.said_before.extend_from_slice(&said);
                if self.commands.is_empty() {
                    return Progress::Ended(std::mem::take(&mut self.said_before));
                }
                // There was no room for the others there.
                self.contention.group.disband();
                self.begin(context, asked)
            }
            Some(TurnNews::Unknown) => {
                let error = Error::Unknown("the client that wrote this command with its own has gone");
                Progress::Ended(self.refused(&error_of(&error, true, context)))
            }
            Some(TurnNews::LeftAlone) => {
                self.contention.turns.clear();
                self.contention.group.disband();
                self.begin(context, asked)
            }
            Some(TurnNews::Turn) | None => self.begin(context, asked),
        }
    }

    /// Takes along who waits for the same structure. Those that only read gather anew behind it.
    fn gather(&mut self) {
        let (Some(turn), Some(key)) = (self.contention.turns.last(), self.keys.first()) else { return };
        self.contention.group.gather(turn, key);
        if !self.contention.takes_turn {
            self.contention.turns.clear();
        }
    }

    /// It is a transaction, of a client that watches these keys.
    pub(crate) fn in_transaction(mut self, watched: Option<SharedWatchList>) -> ManyWork {
        self.transaction = Some(watched);
        self
    }

    /// Bytes of records and replies for which it needs room to begin.
    pub(crate) fn first_bytes(&self) -> u64 {
        let most = self.bytes_max().saturating_sub(REPLY_BYTES);
        let records = self.limits.first_bytes.saturating_mul(self.named as u64);
        records.saturating_add(self.joined_bytes()).min(most) + REPLY_BYTES
    }

    /// Most bytes of records and replies: no more than can be there beside its arguments.
    fn bytes_max(&self) -> u64 {
        self.limits.bytes_max.min(self.limits.all_bytes_max.saturating_sub(self.held_bytes() as u64))
    }

    /// Bytes of memory that it holds beside records and replies.
    pub(crate) fn held_bytes(&self) -> usize {
        let commands: usize = self.commands.iter().map(|command| command.held_bytes()).sum();
        let keys: usize = self.keys.iter().map(|key| size_of::<Key>() + key.user().len()).sum();
        commands + keys
    }

    /// Bytes of records and replies for which there is room, beside the replies that there are.
    fn has_bytes(&self) -> u64 {
        let room_bytes = self.room_bytes.unwrap_or_else(|| self.first_bytes()) + self.contention.group.room_bytes();
        room_bytes.saturating_sub(self.said_before.len() as u64)
    }

    /// Begins, or begins again.
    pub(crate) fn begin(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        if !self.has_turns(context) {
            self.stage = Stage::WaitingForTurn;
            return Progress::Waits;
        }
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
        let limits = OverlayLimits {
            value_bytes_max: self.settings.value_bytes_max,
            whole_bytes_max: self.bytes_max() / WHOLE_SHARE,
            has_trees: self.limits.has_batches,
            shards: context.shards,
        };
        self.overlay = Overlay::new(limits, context.cursors.clone(), self.settings.wall);
        self.run = CommandsRun::default();
        self.contention.group.begin();
        self.written.changed.clear();
        self.read(context, asked)
    }

    /// A watched key is not what it was.
    fn is_touched(&self) -> Progress {
        Progress::Ended(written(|out| encode::null_array(out, self.settings.version)))
    }

    /// There is room for so many bytes.
    pub(crate) fn has_room(&mut self, bytes: u64, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        if bytes > self.first_bytes() {
            self.room_bytes = Some(bytes);
        }
        match self.stage {
            Stage::WantingNodes if !self.contention.takes_turn => self.read_nodes(context, asked),
            Stage::WantingMore => self.run(context, asked),
            Stage::WantingEnd => self.finish(context, asked),
            _ => self.begin(context, asked),
        }
    }

    /// There is no room now: nothing is held meanwhile but the commands. All is made again once
    /// there is.
    pub(crate) fn shed(&mut self) {
        if matches!(self.stage, Stage::WantingNodes | Stage::WantingMore | Stage::WantingEnd) {
            self.stage = Stage::WantingAll;
            self.overlay = Overlay::default();
            self.run = CommandsRun::default();
            self.contention.group.begin();
            self.nodes = NodeReads::new(Vec::new(), self.nodes.losses);
        }
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
            None => self.want(self.measured_bytes, context, asked),
        }
    }

    /// Asks for room, if it may have that much.
    fn want(&mut self, bytes: u64, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        if self.is_run() {
            return self.go_one_by_one(context, asked);
        }
        // Others do not wait for it while it waits for them.
        self.contention.turns.clear();
        if self.contention.group.has_carried() {
            self.contention.group.disband();
        }
        self.contention.attempts += 1;
        let most = self.bytes_max();
        match () {
            () if bytes > most => {
                let text = format!(
                    "ERR the records and replies have {bytes} bytes, and a command or transaction may have {most}: \
                     send it in parts, or raise --memory"
                );
                self.failed(&refusal(&text), context, asked)
            }
            () if self.contention.attempts > ATTEMPTS_MAX => {
                self.failed(&error_of(&Error::Busy, false, context), context, asked)
            }
            () => Progress::WantsRoom(bytes.saturating_add(self.said_before.len() as u64)),
        }
    }

    pub(crate) fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        match (self.stage, reply) {
            (_, Reply::Failed(error)) => {
                let is_writing = self.stage == Stage::Writing;
                if is_writing && group::leaves_nothing(&error) && self.contention.group.has_carried() {
                    // It may be because of what others wanted.
                    self.contention.group.undo_write();
                    self.contention.group.disband();
                    return self.begin(context, asked);
                }
                if self.is_run() && (!is_writing || group::leaves_nothing(&error)) {
                    return self.go_one_by_one(context, asked);
                }
                let said = error_of(&error, is_writing, context);
                if is_writing {
                    self.contention.group.fail(&said);
                }
                self.failed(&said, context, asked)
            }
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
            (Stage::WaitingForTurn, Reply::Number { .. }) => self.heard(context, asked),
            (Stage::Running, Reply::Record(_)) => self.run(context, asked),
            (Stage::ReadingNodes, Reply::Record(record)) => {
                self.nodes.came(record, &mut self.overlay);
                self.read_nodes(context, asked)
            }
            (Stage::Validating, Reply::Record(record)) => self.validated(record.as_ref(), context, asked),
            (Stage::Writing, Reply::Done { version, .. }) => {
                self.note(version, context);
                self.end(context, asked)
            }
            (Stage::Writing, Reply::Unmet(_)) => {
                self.contention.group.undo_write();
                self.begin_again(context, asked)
            }
            _ => {
                let error = Error::Unknown("the engine gave an answer of another kind");
                self.failed(&error_of(&error, false, context), context, asked)
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

    /// Another client was faster.
    fn begin_again(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.contention.attempts += 1;
        self.contention.takes_turn = true;
        match self.contention.attempts > ATTEMPTS_MAX {
            true => self.failed(&error_of(&Error::Busy, false, context), context, asked),
            false => self.begin(context, asked),
        }
    }

    /// Goes on with the commands: all records are there. What takes long lets others have their
    /// turn in between.
    fn run(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.gather();
        if self.contention.group.is_under_way() || (self.commands.len() > 1 && self.contention.group.is_open()) {
            return self.run_group(context, asked);
        }
        if self.run.next == 0 && self.transaction.is_some() && self.run.said.is_empty() {
            encode::array(&mut self.run.said, self.commands.len());
        }
        let mut seen_bytes = 0;
        let (bytes_max, keys_bytes) = (self.bytes_max(), self.keys_bytes());
        let now = if self.contention.one_by_one { 1 } else { self.commands.len() };
        while let Some(command) = self.commands.get(self.run.next).filter(|_| self.run.next < now) {
            if seen_bytes > SEEN_BYTES {
                return self.let_others_go_on(asked);
            }
            let said_bytes = self.run.said.len();
            let settings = lot(self.settings, self.run.next, bytes_max);
            let CommandRun { is_done, missing, seen_bytes: seen } =
                carry_out(command, settings, &mut self.overlay, &mut self.run.said);
            seen_bytes += seen;
            if !is_done || !missing.is_empty() {
                self.overlay.roll_back();
            }
            if !missing.is_empty() {
                self.run.said.truncate(said_bytes);
                self.nodes = NodeReads::new(missing, self.nodes.losses);
                return self.want_nodes(context, asked);
            }
            self.overlay.end_command();
            if self.run.said.capacity() > 2 * self.run.said.len() + SAID_SPARE_BYTES {
                // Of a reply that was too long.
                self.run.said.shrink_to_fit();
            }
            self.run.next += 1;
            let made_bytes = self.made_bytes();
            if made_bytes > bytes_max + keys_bytes {
                return self.want(made_bytes, context, asked);
            }
            if made_bytes > self.has_bytes() + keys_bytes && self.run.next < now {
                self.stage = Stage::WantingMore;
                return self.want(more_than(made_bytes, bytes_max), context, asked);
            }
        }
        if self.made_bytes() > self.has_bytes() + self.keys_bytes() {
            self.stage = Stage::WantingEnd;
            return self.want(self.made_bytes(), context, asked);
        }
        self.finish(context, asked)
    }

    /// Goes on in the next tick.
    fn let_others_go_on(&mut self, asked: &mut Asked) -> Progress {
        self.stage = Stage::Running;
        let key = self.keys.first();
        asked.extend(key.map(|key| (Target::Key, Operation::Get { key: key.clone(), part: RecordPart::Meta })));
        Progress::Waits
    }

    /// Reads nodes once there is room for them.
    fn want_nodes(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let needed = self.nodes.bytes().saturating_add(self.made_bytes() + REPLY_BYTES);
        if needed > self.has_bytes() + self.keys_bytes() {
            self.stage = Stage::WantingNodes;
            return self.want(more_than(needed, self.bytes_max()), context, asked);
        }
        self.read_nodes(context, asked)
    }

    fn read_nodes(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.stage = Stage::ReadingNodes;
        if self.nodes.ask(asked) {
            return Progress::Waits;
        }
        if self.nodes.are_whole() {
            return self.run(context, asked);
        }
        // Another client has changed the tree, most likely.
        self.nodes.losses += 1;
        if self.nodes.losses >= GROUP_LOSSES_MAX && self.contention.group.has_carried() {
            // It may be one of the others whose nodes are missing.
            self.nodes.losses = 0;
            self.contention.group.disband();
        }
        match self.nodes.losses > LOSSES_MAX {
            true if self.is_run() => {
                // They may be those of one of the commands.
                self.nodes.losses = 0;
                self.go_one_by_one(context, asked)
            }
            true => {
                let text =
                    "ERR nodes of the structure are missing: others change it too fast, or it is damaged; try again";
                self.failed(&refusal(text), context, asked)
            }
            false => self.begin_again(context, asked),
        }
    }

    /// All commands are carried out.
    fn finish(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        if let (true, Some(key)) = (self.contention.group.is_open(), self.keys.first())
            && !self.overlay.has_tree(key)
        {
            context.trees.forget(hash(key));
        }
        let key = self.keys.first().filter(|_| self.keys.len() == 1);
        // Those that were taken along may have come after the root was read.
        let is_of_one_instant = !self.overlay.has_nodes() && !self.contention.group.has_carried();
        if let (false, false, Some(key)) = (is_of_one_instant, self.overlay.has_changes(), key) {
            self.run.publications = self.overlay.take_publications();
            self.stage = Stage::Validating;
            asked.push((Target::Key, Operation::Get { key: key.clone(), part: RecordPart::Meta }));
            return Progress::Waits;
        }
        self.run.publications = self.overlay.take_publications();
        let changes = std::mem::take(&mut self.overlay).into_changes();
        self.write(changes, context, asked)
    }

    /// Nodes were read between two looks at their root.
    fn validated(&mut self, root: Option<&Record>, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let version = self.keys.first().and_then(|key| self.overlay.version(key));
        match root.map(|root| root.version) == version {
            true => self.end(context, asked),
            false => self.begin_again(context, asked),
        }
    }

    /// Bytes of records and replies.
    pub(crate) fn made_bytes(&self) -> u64 {
        (self.overlay.held_bytes() + self.run.said.len() + self.contention.group.said_bytes()) as u64
    }

    fn write(&mut self, changes: OverlayChanges, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let OverlayChanges { mut changes, changed, orphaned } = changes;
        self.written.orphaned = orphaned;
        if changes.iter().any(|change| change.key.collection() == CollectionId::NODES) {
            context.here.nodes.sweeps.note_nodes();
        }
        if !self.limits.has_batches {
            if self.transaction.is_some() && changed > 0 && changes.len() > 1 {
                let text = "ERR the engine `tier` has no batches: a transaction that changes something has one key \
                            there, the watched ones included";
                return self.failed(&refusal(text), context, asked);
            }
            if changed > 1 {
                return self.failed(&refusal(NO_BATCHES), context, asked);
            }
            changes.retain(|change| !matches!(change.kind, ChangeKind::Check));
        }
        // One record alone was what it was at one instant.
        if changes.is_empty() || (changed == 0 && changes.len() == 1) {
            return self.end(context, asked);
        }
        let is_written = |change: &&Change| {
            !matches!(change.kind, ChangeKind::Check) && change.key.collection() != CollectionId::NODES
        };
        let written = changes.iter().filter(is_written);
        self.written.changed = written
            .map(|change| Changed { key: change.key.clone(), is_deleted: matches!(change.kind, ChangeKind::Delete) })
            .collect();
        self.stage = Stage::Writing;
        self.contention.group.begin_write();
        let (target, level): (Target, Level) = match changes.len() {
            1 => (Target::Key, context.level),
            _ => (Target::Batch, context.batch_level),
        };
        asked.push((target, Operation::Write { changes, level }));
        Progress::Waits
    }

    /// All has been carried out.
    fn end(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        context.here.counters.structure_commands_carried.add(self.contention.group.end());
        let mut said = std::mem::take(&mut self.run.said);
        if said.len() > SAID_SPARE_BYTES {
            // It may be kept for long.
            said.shrink_to_fit();
        }
        if !self.run.publications.is_empty() {
            send_all(context.pubsub, &std::mem::take(&mut self.run.publications), &mut said);
        }
        self.ended(said, context, asked)
    }

    /// Tells what became of the records.
    fn note(&self, version: u64, context: &WorkContext<'_>) {
        let here = &context.here;
        self.written.orphaned.iter().for_each(|key| here.nodes.removed(key));
        for Changed { key, is_deleted } in &self.written.changed {
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

/// What came of carrying out a command.
struct CommandRun {
    /// If not, what it changed before it met an error is to be undone.
    is_done: bool,
    /// Nodes that it could not go on without.
    missing: Vec<WantedNode>,
    /// Bytes that it looked at.
    seen_bytes: usize,
}

/// Carries a command out over records and nodes. What it changes can be undone until it is ended.
fn carry_out(command: &DataCommand, settings: CallSettings, overlay: &mut Overlay, said: &mut Vec<u8>) -> CommandRun {
    overlay.begin_command();
    let is_done = command.run(settings, overlay, said);
    let seen_bytes = overlay.take_seen_bytes() + command.held_bytes();
    CommandRun { is_done, missing: overlay.take_missing(), seen_bytes }
}

/// The settings of the command of this number, which draws lots of its own.
fn lot(settings: CallSettings, number: usize, reply_bytes_max: u64) -> CallSettings {
    let reply_bytes_max = usize::try_from(reply_bytes_max).unwrap_or(usize::MAX);
    CallSettings { reply_bytes_max, seed: mixed(settings.seed ^ (number as u64 + 1)), ..settings }
}

/// So many bytes and some more, for what follows.
fn more_than(bytes: u64, most: u64) -> u64 {
    bytes.saturating_add((bytes / 2).min(most.saturating_sub(bytes)))
}

fn refusal(text: &str) -> Vec<u8> {
    written(|out| encode::error(out, text))
}
