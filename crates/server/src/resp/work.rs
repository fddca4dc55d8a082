//! Commands that are several operations, or whose reply is made of more than one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use stratakv_base::{Expiry, Key, Level};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Operation, RecordPart, Reply, Unmet, Update};
use stratakv_protocol::resp::{Version, encode};
use stratakv_structures::tree::is_tree;
use stratakv_structures::{HEADER_BYTES, Kind};

use super::cursors::Cursors;
use super::data::{DataWork, Progress};
use super::edit::{Edit, EditRule};
use super::key_list::KeyList;
use super::key_range::KeyRange;
use super::known_trees::KnownTrees;
use super::many::ManyWork;
use super::pubsub::PubSub;
use super::random_key::RandomKey;
use super::reads::{BitRead, HeadRead, RangeRead, is_doubtful};
use super::records::WRONG_TYPE;
use super::reply::{failed, written};
use super::turns::{KeyTurns, TurnNews, TurnWaiter};
use super::wait_work::{WaitEnd, WaitWork};
use super::waiting::WaitTable;
use super::walking::Walk;
use super::watching::WatchWork;
use crate::answer::AnswerContext;
use crate::connection::{Target, hash};
use crate::request::write;
use crate::structure;

/// Begun again so often because of other clients' writes, a command gives up.
pub(super) const ATTEMPTS_MAX: u32 = 100;
/// Operations of one command that are under way at once.
const IN_FLIGHT_MAX: usize = 32;

/// A command under way.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) kind: WorkKind,
    pub(crate) version: Version,
    /// Replies that came and were not looked at.
    pub(crate) arrived: VecDeque<Reply>,
    wanted_room: Option<u64>,
    /// Read of a string, if it is one.
    doubtful: Option<Box<Reply>>,
}

/// Which one.
#[derive(Clone, Debug)]
pub(crate) enum WorkKind {
    Edit(EditWork),
    Count(KeyCount),
    Batch(Batch),
    Each(EachPut),
    Range(RangeRead),
    Bits(BitRead),
    Walk(Walk),
    Head(HeadRead),
    Data(DataWork),
    Many(Box<ManyWork>),
    Watch(WatchWork),
    Random(RandomKey),
    Keys(Box<KeyRange>),
    Wait(Box<WaitWork>),
}

/// What a command may ask and is told.
pub(crate) struct WorkContext<'a> {
    pub(crate) here: AnswerContext<'a>,
    pub(crate) level: Level,
    /// Of several changes as one.
    pub(crate) batch_level: Level,
    pub(crate) shards: usize,
    pub(crate) cursors: &'a Cursors,
    pub(crate) turns: &'a Arc<KeyTurns>,
    pub(crate) trees: &'a KnownTrees,
    /// The command that asks.
    pub(crate) waiter: TurnWaiter,
    /// Who is to be told of new elements.
    pub(crate) waits: &'a Arc<WaitTable>,
    /// Who is to be told of messages.
    pub(crate) pubsub: &'a PubSub,
}

/// Operations that a step asks for.
pub(crate) type Asked = Vec<(Target, Operation)>;

impl Work {
    pub(crate) fn new(kind: WorkKind, version: Version) -> Work {
        Work { kind, version, arrived: VecDeque::new(), wanted_room: None, doubtful: None }
    }

    /// An edit of one record.
    pub(crate) fn edit(key: Key, rule: EditRule, version: Version) -> Work {
        Work::new(WorkKind::Edit(EditWork { key, rule: Arc::new(rule) }), version)
    }

    /// Whether it takes as long as many commands of one key.
    pub(crate) fn takes_long(&self) -> bool {
        matches!(self.kind, WorkKind::Walk(_) | WorkKind::Random(_) | WorkKind::Keys(_))
    }

    /// There is news for the turn with this ticket; whether it waits for that.
    pub(crate) fn hear(&mut self, ticket: u64, news: TurnNews) -> bool {
        let waits = match &mut self.kind {
            WorkKind::Many(many) => many.hear(ticket, news),
            WorkKind::Wait(wait) => wait.hear(ticket, news),
            _ => false,
        };
        if waits {
            self.arrived.push_back(Reply::Number { number: ticket, version: 0 });
        }
        waits
    }

    /// What can be said of it already, if no answer comes before.
    pub(crate) fn take_said(&mut self) -> Vec<u8> {
        if let WorkKind::Many(many) = &mut self.kind { many.take_said() } else { Vec::new() }
    }

    /// The answer, if what is left of it is refused with these words.
    pub(crate) fn refused(&self, said: Vec<u8>) -> Vec<u8> {
        if let WorkKind::Many(many) = &self.kind { many.refused(&said) } else { said }
    }

    /// Refuses the first of several commands; room that the others need then.
    pub(crate) fn refuse_first(&mut self, said: &[u8]) -> Option<u64> {
        if let WorkKind::Many(many) = &mut self.kind { many.refuse_first(said) } else { None }
    }

    /// There is no room now for what it waits for: it gives back what can be made again.
    pub(crate) fn shed(&mut self) {
        match &mut self.kind {
            WorkKind::Many(many) => many.shed(),
            WorkKind::Wait(wait) => wait.shed(),
            _ => {}
        }
    }

    /// It waits for room for so many bytes, if it does.
    pub(crate) fn take_wanted_room(&mut self) -> Option<u64> {
        self.wanted_room.take()
    }

    /// There is room for as many bytes as it waited for; the answer, if nothing is to be asked.
    pub(crate) fn has_room(&mut self, bytes: u64, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        let progress = match &mut self.kind {
            WorkKind::Data(data) => data.has_room(bytes, asked),
            WorkKind::Many(many) => many.has_room(bytes, context, asked),
            WorkKind::Wait(wait) => wait.has_room(bytes, context, asked),
            _ => Progress::Waits,
        };
        self.follow(progress)
    }

    /// Of what is read of a string: whether it is one. A reply with the flags of a structure waits
    /// until the front of the value has come.
    fn see_type(&mut self, reply: Reply, asked: &mut Asked) -> Option<(Reply, Kind)> {
        let key = match &self.kind {
            WorkKind::Range(range) => &range.key,
            WorkKind::Bits(bits) => &bits.key,
            WorkKind::Head(head) => &head.key,
            _ => return Some((reply, Kind::String)),
        };
        match (self.doubtful.take(), reply) {
            (None, reply) if is_doubtful(&reply) => {
                let part = RecordPart::Range { start: 0, len: HEADER_BYTES as u64 };
                asked.push((Target::Key, Operation::Get { key: key.clone(), part }));
                self.doubtful = Some(Box::new(reply));
                None
            }
            (Some(_), reply @ Reply::Failed(_)) => Some((reply, Kind::String)),
            (Some(doubtful), Reply::Record(Some(front))) => {
                if let WorkKind::Head(head) = &mut self.kind {
                    head.is_tree = is_tree(&front.value.to_bytes());
                }
                Some((*doubtful, structure::kind(&front)))
            }
            // It has gone since.
            (_, reply) => Some((reply, Kind::String)),
        }
    }

    /// Goes on with a command that waits for an element, which may have been called or is to end.
    pub(crate) fn resume(
        &mut self,
        end: Option<WaitEnd>,
        context: &WorkContext<'_>,
        asked: &mut Asked,
    ) -> Option<Vec<u8>> {
        let WorkKind::Wait(wait) = &mut self.kind else { return None };
        let progress = wait.resume(end, context, asked);
        self.follow(progress)
    }

    /// Nobody is there to be answered any more.
    pub(crate) fn give_up(&mut self) {
        if let WorkKind::Wait(wait) = &mut self.kind {
            wait.give_up();
        }
    }

    /// For how long it waits for an element, if it does; in it `None`: for ever.
    pub(crate) fn waits_for(&self) -> Option<Option<Duration>> {
        match &self.kind {
            WorkKind::Wait(wait) => Some(wait.timeout()),
            _ => None,
        }
    }

    /// Whether it waits for an element, and does nothing meanwhile.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(&self.kind, WorkKind::Wait(wait) if wait.is_idle())
    }

    fn follow(&mut self, progress: Progress) -> Option<Vec<u8>> {
        match progress {
            Progress::Waits => None,
            Progress::NeedsNodes => {
                if let WorkKind::Data(data) = &self.kind {
                    let many = data.with_nodes().in_groups();
                    self.wanted_room = Some(many.first_bytes());
                    self.kind = WorkKind::Many(Box::new(many));
                }
                None
            }
            Progress::WantsRoom(bytes) => {
                self.wanted_room = Some(bytes);
                None
            }
            Progress::Ended(answer) => Some(answer),
        }
    }

    /// Bytes that it holds beside those it reads and writes.
    pub(crate) fn held_bytes(&self) -> u64 {
        let bytes = match &self.kind {
            WorkKind::Count(count) => count.keys.held_bytes(),
            WorkKind::Batch(batch) => batch.keys.held_bytes() + batch.changes.capacity() * size_of::<Change>(),
            WorkKind::Each(each) => each.keys.held_bytes() + each.changes.capacity() * size_of::<Change>(),
            WorkKind::Walk(walk) => walk.held_bytes(),
            WorkKind::Data(data) => data.held_bytes(),
            WorkKind::Many(many) => many.held_bytes(),
            WorkKind::Watch(watch) => watch.held_bytes(),
            WorkKind::Random(random) => random.held_bytes(),
            WorkKind::Keys(range) => range.held_bytes(),
            WorkKind::Wait(wait) => wait.held_bytes(),
            WorkKind::Head(head) => head.of_tree.as_ref().map_or(0, |many| many.held_bytes()),
            WorkKind::Edit(_) | WorkKind::Range(_) | WorkKind::Bits(_) => 0,
        };
        (bytes + size_of::<Work>()) as u64
    }

    /// The first operations; the answer, if there is nothing to ask.
    pub(crate) fn begin(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        match &mut self.kind {
            WorkKind::Edit(edit) => edit.begin(context, asked),
            WorkKind::Count(count) => count.ask(context, asked),
            WorkKind::Batch(batch) => {
                let changes = std::mem::take(&mut batch.changes);
                asked.push((Target::Batch, Operation::Write { changes, level: context.batch_level }));
                None
            }
            WorkKind::Each(each) => each.ask(context, asked),
            WorkKind::Range(range) => range.begin(asked),
            WorkKind::Bits(bits) => {
                asked.push((Target::Key, Operation::Get { key: bits.key.clone(), part: bits.part() }));
                None
            }
            WorkKind::Head(head) => {
                asked.push((Target::Key, Operation::Get { key: head.key.clone(), part: RecordPart::Meta }));
                None
            }
            WorkKind::Walk(walk) => walk.ask(context, asked),
            WorkKind::Watch(watch) => watch.ask(asked),
            WorkKind::Random(random) => random.begin(context, asked),
            WorkKind::Keys(range) => range.ask(context, asked),
            WorkKind::Data(data) => {
                let progress = data.begin(context, asked);
                self.follow(progress)
            }
            WorkKind::Many(many) => {
                let progress = many.begin(context, asked);
                self.follow(progress)
            }
            WorkKind::Wait(wait) => {
                let progress = wait.begin(context, asked);
                self.follow(progress)
            }
        }
    }

    /// Looks at a reply; the answer, if it was the last one.
    pub(crate) fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        let (reply, kind) = match self.see_type(reply, asked) {
            Some((_, kind)) if kind != Kind::String && !matches!(self.kind, WorkKind::Head(_)) => {
                return Some(written(|out| encode::error(out, WRONG_TYPE)));
            }
            Some(seen) => seen,
            None => return None,
        };
        match &mut self.kind {
            WorkKind::Edit(edit) => Some(edit.end(reply, context, self.version)),
            WorkKind::Count(count) => count.step(reply, context, asked),
            WorkKind::Batch(batch) => Some(batch.end(reply, context)),
            WorkKind::Each(each) => each.step(reply, context, asked),
            WorkKind::Range(range) => range.step(reply, context, asked),
            WorkKind::Bits(bits) => Some(bits.end(reply, context)),
            WorkKind::Head(head) => match head.of_tree.take().filter(|_| head.is_tree) {
                Some(many) => {
                    self.wanted_room = Some(many.first_bytes());
                    self.kind = WorkKind::Many(many);
                    None
                }
                None => Some(head.end(reply, (kind, self.version), context)),
            },
            WorkKind::Walk(walk) => walk.step(reply, context, asked),
            WorkKind::Watch(watch) => watch.step(reply, context, asked),
            WorkKind::Random(random) => random.step(reply, self.version, context, asked),
            WorkKind::Keys(range) => range.step(reply, context, asked),
            WorkKind::Data(data) => {
                let progress = data.step(reply, context);
                self.follow(progress)
            }
            WorkKind::Many(many) => {
                let progress = many.step(reply, context, asked);
                self.follow(progress)
            }
            WorkKind::Wait(wait) => {
                let progress = wait.step(reply, context, asked);
                self.follow(progress)
            }
        }
    }
}

pub(super) fn error_of(error: &Error, storing: bool, context: &WorkContext<'_>) -> Vec<u8> {
    written(|out| failed(error, storing, out, context.here.counters))
}

/// A change of one record in dependence on itself.
#[derive(Clone, Debug)]
pub(crate) struct EditWork {
    key: Key,
    rule: Arc<EditRule>,
}

impl EditWork {
    fn begin(&self, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        let update = Update::Edit(self.rule.clone());
        asked.push((Target::Key, Operation::Update { key: self.key.clone(), update, level: context.level }));
        None
    }

    fn end(&self, reply: Reply, context: &WorkContext<'_>, version: Version) -> Vec<u8> {
        match reply {
            Reply::Failed(error) => error_of(&error, !self.rule.takes_old(), context),
            Reply::Done { version: written, existed } => {
                self.note(written, context);
                if existed { self.rule.answer(true) } else { self.rule.answer_of_absent(true, version) }
            }
            Reply::Unmet(Unmet::Unchanged) => self.rule.answer(false),
            Reply::Unmet(Unmet::Absent) => self.rule.answer_of_absent(false, version),
            _ => error_of(&Error::Unknown("the engine gave an answer of another kind"), false, context),
        }
    }

    /// Tells what became of the record.
    fn note(&self, version: u64, context: &WorkContext<'_>) {
        let here = &context.here;
        match self.rule.edit() {
            Edit::Remove => {
                here.log.deleted(&self.key);
                here.marks.forget(&self.key, version);
            }
            Edit::Expire { expiry, .. } | Edit::GetExpire(expiry) => {
                here.marks.keep(&self.key, version, None, Some(*expiry))
            }
            Edit::Persist => here.marks.keep(&self.key, version, None, Some(Expiry::NEVER)),
            Edit::Add(_) | Edit::AddFloat(_) => here.marks.keep(&self.key, version, None, None),
            Edit::Make { .. }
            | Edit::Replace { .. }
            | Edit::Append(_)
            | Edit::SetRange { .. }
            | Edit::SetBit { .. } => {
                here.counters.total_items.add(1);
                here.marks.forget(&self.key, version);
                here.recency.stored(hash(&self.key), here.wall);
            }
        }
    }
}

/// What of keys is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Those that went.
    Deleted,
    /// Those that are there.
    Present,
}

/// DEL, UNLINK, EXISTS and TOUCH of several keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyCount {
    keys: KeyList,
    counted: Counted,
    in_flight: usize,
    count: i64,
    failed: Option<Error>,
}

impl KeyCount {
    pub(crate) fn new(keys: KeyList, counted: Counted) -> KeyCount {
        KeyCount { keys, counted, in_flight: 0, count: 0, failed: None }
    }

    fn ask(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        while self.in_flight < IN_FLIGHT_MAX && self.failed.is_none() {
            let Some(key) = self.keys.next() else { break };
            let operation = match self.counted {
                Counted::Deleted => {
                    context.here.log.deleted(&key);
                    // It goes before it is looked after: that is several operations later.
                    context.here.nodes.removed(&key);
                    write(key, Expect::Any, ChangeKind::Delete, context.level)
                }
                Counted::Present => Operation::Get { key, part: RecordPart::Meta },
            };
            self.in_flight += 1;
            asked.push((Target::Key, operation));
        }
        (self.in_flight == 0).then(|| match &self.failed {
            Some(error) => error_of(error, false, context),
            None => written(|out| encode::integer(out, self.count)),
        })
    }

    fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        self.in_flight -= 1;
        let counters = context.here.counters;
        match reply {
            Reply::Failed(error) => self.failed = self.failed.take().or(Some(error)),
            Reply::Done { existed: true, .. } => {
                counters.delete_hits.add(1);
                self.count += 1;
            }
            Reply::Record(Some(_)) => self.count += 1,
            Reply::Done { .. } => counters.delete_misses.add(1),
            _ => {}
        }
        self.ask(context, asked)
    }
}

/// MSET and MSETNX: all or nothing.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) changes: Vec<Change>,
    pub(crate) keys: KeyList,
    /// MSETNX.
    pub(crate) is_conditional: bool,
}

impl Batch {
    fn end(&mut self, reply: Reply, context: &WorkContext<'_>) -> Vec<u8> {
        let here = &context.here;
        match reply {
            Reply::Failed(error) => error_of(&error, true, context),
            Reply::Done { version, .. } => {
                for key in &mut self.keys {
                    here.counters.total_items.add(1);
                    here.marks.forget(&key, version);
                    here.recency.stored(hash(&key), here.wall);
                    here.log.stored(&key, "set", "stored", Expiry::NEVER, 0);
                }
                written(|out| match self.is_conditional {
                    true => encode::integer(out, 1),
                    false => encode::simple(out, "OK"),
                })
            }
            _ => written(|out| encode::integer(out, 0)),
        }
    }
}

/// MSET by an engine that has no batches of several shards: one write after the other.
#[derive(Clone, Debug)]
pub(crate) struct EachPut {
    changes: VecDeque<Change>,
    keys: KeyList,
    in_flight: usize,
    /// The highest that a record got.
    version_max: u64,
    failed: Option<Error>,
}

impl EachPut {
    pub(crate) fn new(changes: Vec<Change>, keys: KeyList) -> EachPut {
        EachPut { changes: changes.into(), keys, in_flight: 0, version_max: 0, failed: None }
    }

    fn ask(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        while self.in_flight < IN_FLIGHT_MAX && self.failed.is_none() {
            let Some(change) = self.changes.pop_front() else { break };
            self.in_flight += 1;
            asked.push((Target::Key, Operation::Write { changes: vec![change], level: context.level }));
        }
        if self.in_flight > 0 {
            return None;
        }
        let here = &context.here;
        for key in &mut self.keys {
            here.marks.forget(&key, self.version_max);
            here.recency.stored(hash(&key), here.wall);
            here.log.stored(&key, "set", "stored", Expiry::NEVER, 0);
        }
        Some(match &self.failed {
            Some(error) => error_of(error, true, context),
            None => written(|out| encode::simple(out, "OK")),
        })
    }

    fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Option<Vec<u8>> {
        self.in_flight -= 1;
        match reply {
            Reply::Failed(error) => self.failed = self.failed.take().or(Some(error)),
            Reply::Done { version, .. } => {
                context.here.counters.total_items.add(1);
                self.version_max = self.version_max.max(version);
            }
            _ => {}
        }
        self.ask(context, asked)
    }
}
