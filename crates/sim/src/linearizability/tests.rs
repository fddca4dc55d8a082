//! Histories known to be right and wrong, the search against a naive one, and histories drawn from
//! a register.

mod known;
mod naive;
mod sequential;

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key, Level};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Operation, Record, RecordPart, Reply, Unmet, Update, Value};

use super::*;

const STEPS: u64 = 10_000_000;

fn key(name: &str) -> Key {
    Key::new(CollectionId::default(), name.as_bytes()).expect("a short key")
}

fn change(name: &str, expect: Expect, value: Option<&str>) -> Change {
    let kind = match value {
        Some(value) => {
            let value = Bytes::copy_from_slice(value.as_bytes());
            ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER }
        }
        None => ChangeKind::Delete,
    };
    Change { key: key(name), expect, kind }
}

fn write(changes: &[(&str, Option<&str>)], level: Level) -> Operation {
    let changes = changes.iter().map(|(name, value)| change(name, Expect::Any, *value)).collect();
    Operation::Write { changes, level }
}

fn put(name: &str, value: &str) -> Operation {
    write(&[(name, Some(value))], Level::PowerLoss)
}

fn put_if(name: &str, value: &str, expect: Expect) -> Operation {
    Operation::Write { changes: vec![change(name, expect, Some(value))], level: Level::PowerLoss }
}

fn delete(name: &str) -> Operation {
    write(&[(name, None)], Level::PowerLoss)
}

fn get(name: &str) -> Operation {
    Operation::Get { key: key(name), part: RecordPart::Whole }
}

fn update(name: &str, update: Update) -> Operation {
    Operation::Update { key: key(name), update, level: Level::PowerLoss }
}

fn done(version: u64, existed: bool) -> Option<Reply> {
    Some(Reply::Done { version, existed })
}

fn found(value: &str, version: u64) -> Option<Reply> {
    let value = Bytes::copy_from_slice(value.as_bytes());
    let value_bytes = value.len() as u64;
    Some(Reply::Record(Some(Record {
        value: Value::Inline(value),
        value_bytes,
        flags: 0,
        version,
        expiry: Expiry::NEVER,
    })))
}

fn absent() -> Option<Reply> {
    Some(Reply::Record(None))
}

/// Operations with the ticks they ran between, each by a client of its own; one without an answer
/// has none to end at.
fn history(entries: Vec<(u64, u64, Operation, Option<Reply>)>) -> History {
    let entry = |(client, (invoked, returned, operation, reply)): (u32, (u64, u64, Operation, Option<Reply>))| {
        let returned = reply.is_some().then_some(returned);
        HistoryEntry { client, invoked, returned, operation, reply }
    };
    let mut history = History::default();
    history.entries.extend((1..).zip(entries).map(entry));
    history
}

fn violation(history: &History) -> String {
    match check(history, STEPS) {
        Err(Failure::Violation(text)) => text,
        other => panic!("not found wrong: {other:?}"),
    }
}
