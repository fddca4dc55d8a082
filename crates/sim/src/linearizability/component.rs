//! Keys tied together by batches, and the calls on them.

use std::collections::HashMap;

use smallvec::SmallVec;
use stratakv_base::{Key, Level};
use stratakv_engine::{ChangeKind, Error, Expect, Operation, Record, RecordPart, Reply, Update};

use super::register::{ABSENT, Action, Answer, KEPT, Values};
use super::{Failure, History, HistoryEntry};

/// All components of a history.
pub(super) struct Components<'h> {
    history: &'h History,
    /// Ticks at which each answered `Sync` was asked and answered.
    syncs: Vec<(u64, u64)>,
    parts: Vec<(Vec<&'h Key>, Vec<&'h HistoryEntry>)>,
}

/// Keys that batches tie together, and what was asked of them.
#[derive(Clone, Copy)]
pub(super) struct Component<'h, 'a> {
    pub(super) keys: &'a [&'h Key],
    pub(super) entries: &'a [&'h HistoryEntry],
    pub(super) crashes: &'h [(u64, Level)],
    syncs: &'a [(u64, u64)],
    is_blind: bool,
}

/// An operation that may have changed something, or was answered.
#[derive(Clone, Debug)]
pub(super) struct Call<'h> {
    /// Which entry of the component.
    pub(super) entry: usize,
    pub(super) invoked: u64,
    /// Until when it took effect, if it did.
    pub(super) until: u64,
    /// It was answered: it did take effect.
    pub(super) must: bool,
    pub(super) action: Action<'h>,
    pub(super) answer: Answer,
    /// Answered writes of a key between two crashes happened in the order of their versions: which
    /// chain, and the place in it.
    pub(super) chain: Option<(u32, u32)>,
    pub(super) level: Level,
    /// When a `Sync` had made it durable.
    pub(super) synced: Option<u64>,
}

/// The calls of a component up to some tick.
pub(super) struct Calls<'h> {
    pub(super) calls: Vec<Call<'h>>,
    pub(super) values: Values,
    pub(super) chains: usize,
    pub(super) crashes: &'h [(u64, Level)],
}

impl Calls<'_> {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }
}

impl Call<'_> {
    /// Whether a crash cannot take it back.
    pub(super) fn survives(&self, (at, survives): (u64, Level)) -> bool {
        (self.must && self.level >= survives) || self.synced.is_some_and(|synced| synced < at)
    }

    /// Whether it has changed nothing wherever it has its answer, if it changed nothing in one
    /// place. What is told of a batch is told of its last change only.
    pub(super) fn may_be_idle(&self) -> bool {
        match (&self.action, self.answer) {
            (_, Answer::Record(_) | Answer::Unmet(_)) => true,
            (Action::Write(changes), Answer::Done { version: 0, .. }) => {
                changes.iter().filter(|(.., value)| *value != KEPT).count() <= 1
            }
            (_, answer) => matches!(answer, Answer::Done { version: 0, .. }),
        }
    }
}

impl<'h> Components<'h> {
    pub(super) fn of(history: &'h History) -> Result<Components<'h>, Failure> {
        let mut numbers: HashMap<&Key, usize> = HashMap::new();
        let mut parents: Vec<usize> = Vec::new();
        let mut keys: Vec<&Key> = Vec::new();
        let mut syncs = Vec::new();
        let mut firsts = Vec::with_capacity(history.entries.len());
        for entry in &history.entries {
            let mut first = None;
            for key in keys_of(&entry.operation)? {
                let number = *numbers.entry(key).or_insert_with(|| {
                    keys.push(key);
                    parents.push(parents.len());
                    parents.len() - 1
                });
                let root = root(&mut parents, number);
                let first = *first.get_or_insert(root);
                parents[root] = first;
            }
            firsts.push(first);
            if let (Operation::Sync, Some(Reply::Done { .. }), Some(at)) =
                (&entry.operation, &entry.reply, entry.returned)
            {
                syncs.push((entry.invoked, at));
            }
        }
        let mut parts: Vec<(Vec<&Key>, Vec<&HistoryEntry>)> = keys.iter().map(|_| (Vec::new(), Vec::new())).collect();
        for (number, key) in keys.iter().enumerate() {
            parts[root(&mut parents, number)].0.push(key);
        }
        for (entry, first) in history.entries.iter().zip(firsts) {
            if let Some(first) = first {
                parts[root(&mut parents, first)].1.push(entry);
            }
        }
        parts.retain(|(keys, _)| !keys.is_empty());
        parts.iter_mut().for_each(|(_, entries)| entries.sort_unstable_by_key(|entry| entry.invoked));
        Ok(Components { history, syncs, parts })
    }

    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Component<'h, '_>> {
        let crashes = self.history.crashes();
        self.parts.iter().map(move |(keys, entries)| Component {
            keys,
            entries,
            crashes,
            syncs: &self.syncs,
            is_blind: self.history.blind,
        })
    }
}

fn root(parents: &mut [usize], mut number: usize) -> usize {
    while parents[number] != number {
        parents[number] = parents[parents[number]];
        number = parents[number];
    }
    number
}

fn keys_of(operation: &Operation) -> Result<SmallVec<[&Key; 1]>, Failure> {
    match operation {
        Operation::Get { key, part: RecordPart::Whole } | Operation::Update { key, .. } => {
            Ok([key].into_iter().collect())
        }
        Operation::Write { changes, .. } => Ok(changes.iter().map(|change| &change.key).collect()),
        Operation::Sync => Ok(SmallVec::new()),
        other => Err(Failure::NotModelled(format!("this operation cannot be checked: {other:?}"))),
    }
}

impl<'h> Component<'h, '_> {
    /// The keys, for people.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<String> = self.keys.iter().map(|key| format!("\"{}\"", key.user().escape_ascii())).collect();
        names.sort_unstable();
        if names.len() == 1 { format!("key {}", names.concat()) } else { format!("keys {}", names.join(", ")) }
    }

    /// What is known of the operations at tick `now`.
    pub(super) fn calls(&self, now: u64) -> Result<Calls<'h>, Failure> {
        let numbers: HashMap<&Key, usize> = self.keys.iter().enumerate().map(|(at, key)| (*key, at)).collect();
        let mut values = Values::new();
        let mut calls = Vec::new();
        for (at, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.invoked <= now) {
            let answer = match &entry.reply {
                Some(Reply::Failed(Error::Unknown(_))) | None => Answer::Unknown,
                // Nothing was changed.
                Some(Reply::Failed(_)) => continue,
                Some(_) if entry.returned.is_none_or(|returned| returned > now) => Answer::Unknown,
                Some(reply) => answer(reply, &mut values)?,
            };
            let Some((action, level)) = action(&entry.operation, &numbers, &mut values) else { continue };
            let answer = if self.is_blind { told_blindly(&action, answer) } else { answer };
            let must = answer != Answer::Unknown;
            if !must && matches!(action, Action::Get(_)) {
                continue;
            }
            let crash = self.crashes.get(self.crashes.partition_point(|(crash, _)| *crash < entry.invoked));
            let crash = crash.map(|(crash, _)| *crash).filter(|crash| *crash <= now);
            let returned = if must { entry.returned } else { None };
            let until = returned.unwrap_or(u64::MAX).min(crash.unwrap_or(u64::MAX));
            let answered = returned.unwrap_or(u64::MAX);
            let synced = self.syncs.iter().filter(|(asked, at)| answered < *asked && *at <= now).map(|(_, at)| *at);
            let synced = synced.min();
            let (invoked, chain) = (entry.invoked, None);
            calls.push(Call { entry: at, invoked, until, must, action, answer, chain, level, synced });
        }
        let chains = self.chain(&mut calls);
        let crashes = &self.crashes[..self.crashes.partition_point(|(at, _)| *at <= now)];
        Ok(Calls { calls, values, chains, crashes })
    }

    /// Puts the answered writes of each key between two crashes in the order of their versions; how
    /// many chains there are.
    fn chain(&self, calls: &mut [Call<'h>]) -> usize {
        let mut chains: HashMap<(usize, usize), Vec<(u64, usize)>> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            let (version, existed) = match call.answer {
                Answer::Done { version, existed } => (version, existed == Some(true)),
                Answer::Number { version, .. } => (version, true),
                _ => continue,
            };
            let key = match &call.action {
                // A delete of nothing is no write, whatever version it was answered with.
                Action::Write(changes) => {
                    let last = changes.iter().rfind(|(.., value)| *value != KEPT);
                    last.filter(|(.., value)| existed || *value != ABSENT).map(|last| last.0)
                }
                Action::Update(key, _) => Some(*key),
                Action::Get(_) => None,
            };
            if let (Some(key), 1..) = (key, version) {
                let era = self.crashes.partition_point(|(crash, _)| *crash < call.invoked);
                chains.entry((key, era)).or_default().push((version, at));
            }
        }
        let count = chains.len();
        for (number, mut chain) in chains.into_values().enumerate() {
            chain.sort_unstable();
            for (place, (_, at)) in chain.into_iter().enumerate() {
                calls[at].chain = Some((number as u32, place as u32));
            }
        }
        count
    }
}

fn action<'h>(
    operation: &'h Operation,
    numbers: &HashMap<&Key, usize>,
    values: &mut Values,
) -> Option<(Action<'h>, Level)> {
    match operation {
        Operation::Get { key, .. } => Some((Action::Get(*numbers.get(key)?), Level::Memory)),
        Operation::Update { key, update, level } => Some((Action::Update(*numbers.get(key)?, update), *level)),
        Operation::Write { changes, level, .. } => {
            let changes = changes.iter().map(|change| {
                let value = match &change.kind {
                    ChangeKind::Put { value, .. } => values.number(value.clone()),
                    ChangeKind::Delete => ABSENT,
                    ChangeKind::Check => KEPT,
                };
                Some((*numbers.get(&change.key)?, change.expect, value))
            });
            Some((Action::Write(changes.collect::<Option<_>>()?), *level))
        }
        _ => None,
    }
}

/// What an engine knows that does not look at what a put replaces.
fn told_blindly(action: &Action<'_>, answer: Answer) -> Answer {
    let Action::Write(changes) = action else { return answer };
    let last = changes.iter().rfind(|(.., value)| *value != KEPT);
    match answer {
        Answer::Done { version, .. }
            if last.is_some_and(|(_, expect, value)| *expect == Expect::Any && *value != ABSENT) =>
        {
            Answer::Done { version, existed: None }
        }
        answer => answer,
    }
}

fn answer(reply: &Reply, values: &mut Values) -> Result<Answer, Failure> {
    let mut number = |record: &Record| (values.number(record.value.to_bytes()), record.version);
    match reply {
        Reply::Done { version, existed } => Ok(Answer::Done { version: *version, existed: Some(*existed) }),
        Reply::Record(record) => Ok(Answer::Record(record.as_ref().map(&mut number))),
        Reply::Number { number, version } => Ok(Answer::Number { number: *number, version: *version }),
        Reply::Unmet(unmet) => Ok(Answer::Unmet(*unmet)),
        other => Err(Failure::NotModelled(format!("this answer cannot be checked: {other:?}"))),
    }
}

/// The name of an update, and what it was given.
pub(super) fn update_text(update: &Update) -> String {
    match update {
        Update::Append(bytes) => format!("append \"{}\"", short(bytes)),
        Update::Prepend(bytes) => format!("prepend \"{}\"", short(bytes)),
        Update::Increment(by) => format!("increment by {by}"),
        Update::Decrement(by) => format!("decrement by {by}"),
        Update::Touch(_) => "touch".into(),
        Update::Edit(edit) => format!("{edit:?}"),
    }
}

/// Bytes for people, cut short.
pub(super) fn short(bytes: &[u8]) -> String {
    const SHOWN: usize = 24;
    match bytes.get(..SHOWN) {
        Some(front) if bytes.len() > SHOWN => format!("{}…({} bytes)", front.escape_ascii(), bytes.len()),
        _ => bytes.escape_ascii().to_string(),
    }
}
